//! Settings that are texts with a grammar of their own, as they are given.

use tenure_core::decide::penalty_class::ClassLimits;

use super::Settings;
use crate::ffi::{filter, holding, load};
use crate::observe::classes::ClassRules;
use crate::observe::tenants::TenantSpec;

/// The longest `tenure.auto-tenants-delimiter`, in bytes.
#[cfg(feature = "prefixes")]
const DELIMITER_BYTES_MAX: usize = 8;

impl Settings {
    /// Takes a new text for `tenure.tenants`.
    ///
    /// # Errors
    /// As [`TenantSpec::parse`], tenants by user where the server doesn't tell who sends a command, and replies to be
    /// held where they can't be; nothing changes then.
    pub fn set_tenants(&mut self, text: &str) -> Result<(), String> {
        let tenants = TenantSpec::parse_for(text, load::databases().min(crate::observe::DBS_MAX))?;
        if tenants.has_users() && !cfg!(feature = "owners") {
            return Err("tenants by user need the feature 'owners', which this module was built without".to_owned());
        }
        if tenants.holds_replies() {
            if !cfg!(feature = "replies") {
                return Err("',replies=' needs the feature 'replies', which this module was built without".to_owned());
            }
            holding::holding()?;
        }
        if tenants.has_users() && !filter::knows_clients() {
            return Err(
                "tenants by user need a server that tells modules who sends a command: Valkey 7.2, Redis 7.2; here, \
                         allowed are a prefix with one '*' at its end, and db:N"
                    .to_owned(),
            );
        }
        self.tenants = tenants;
        self.tenants_text = text.to_owned();
        Ok(())
    }

    /// Takes a new `tenure.auto-tenants-delimiter`.
    ///
    /// # Errors
    /// More than 8 bytes; nothing changes then.
    #[cfg(feature = "prefixes")]
    pub fn set_auto_tenants_delimiter(&mut self, text: &str) -> Result<(), String> {
        if text.len() > DELIMITER_BYTES_MAX {
            return Err(format!("delimiter of {} bytes; allowed are 1 to {DELIMITER_BYTES_MAX}, or none", text.len()));
        }
        self.auto_tenants_delimiter = text.to_owned();
        Ok(())
    }

    /// Takes a new text for `tenure.class-limits`.
    ///
    /// # Errors
    /// As [`ClassLimits::parse`]; nothing changes then.
    pub fn set_class_limits(&mut self, text: &str) -> Result<(), String> {
        self.classes.limits = ClassLimits::parse(text)?;
        self.class_limits_text = text.to_owned();
        Ok(())
    }

    /// Takes a new text for `tenure.class-rules`.
    ///
    /// # Errors
    /// As [`ClassRules::parse`]; nothing changes then.
    pub fn set_class_rules(&mut self, text: &[u8]) -> Result<(), String> {
        self.classes.rules = ClassRules::parse(text)?;
        self.class_rules_text = text.to_vec();
        Ok(())
    }
}

/// # Errors
/// Where the bytes are no text; names of keys alone may be any.
pub(super) fn as_text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("'{}' is not UTF-8 text", bytes.escape_ascii()))
}
