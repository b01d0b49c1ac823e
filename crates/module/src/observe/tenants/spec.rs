//! `tenure.tenants`, read.
//!
//! Grammar: space-separated entries, each `NAME=SELECTOR[,min=BYTES][,max=BYTES][,weight=N][,replies=MODE]`, a
//! selector being `PREFIX*`, `user:USERNAME` or `db:N`; what ends in `*` is a prefix, `user:*` too.

use tenure_core::units::{format_bytes, parse_bytes};

use super::super::reply_mode::Mode;
use super::TENANTS_MAX;

/// The highest weight of a tenant.
const WEIGHT_MAX: u32 = 1000;

/// What makes a key a tenant's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Keys that start so, in any database.
    Prefix(Vec<u8>),
    /// Keys that a user of the server's access control lists has created, in any database.
    User(String),
    /// Keys of one logical database.
    Database(u16),
}

/// One tenant as stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name in INFO and replies.
    pub name: String,
    /// Which keys are its.
    pub selector: Selector,
    /// What it is guaranteed, in bytes.
    pub bytes_min: u64,
    /// What it may hold, in bytes.
    pub bytes_max: u64,
    /// How much its misses count in a plan, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// What replies to its writes wait for, where that is stated.
    pub replies: Option<Mode>,
}

/// The setting, read. An empty one means: one tenant per logical database in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSpec {
    pub(super) tenants: Vec<Tenant>,
}

impl TenantSpec {
    /// Reads the setting, for a server of so many databases.
    ///
    /// # Errors
    /// A sentence that says which entry is wrong, and what is allowed.
    pub fn parse_for(text: &str, databases: u16) -> Result<TenantSpec, String> {
        let tenant = |entry| parse_tenant(entry, databases);
        let tenants = text.split_ascii_whitespace().map(tenant).collect::<Result<Vec<Tenant>, String>>()?;
        if tenants.len() >= TENANTS_MAX {
            return Err(format!("{} tenants; allowed are {}, and 'other'", tenants.len(), TENANTS_MAX - 1));
        }
        for (i, tenant) in tenants.iter().enumerate() {
            for earlier in &tenants[..i] {
                if earlier.name == tenant.name {
                    return Err(format!("tenant '{}' is named twice", tenant.name));
                }
                if earlier.selector == tenant.selector {
                    return Err(format!("tenants '{}' and '{}' select the same keys", earlier.name, tenant.name));
                }
            }
        }
        Ok(TenantSpec { tenants })
    }

    /// The same for a server of as many databases as Tenure tells apart.
    #[cfg(test)]
    pub fn parse(text: &str) -> Result<TenantSpec, String> {
        TenantSpec::parse_for(text, super::super::DBS_MAX)
    }

    /// True where replies to any tenant's writes are to be held.
    pub fn holds_replies(&self) -> bool {
        self.tenants.iter().any(|tenant| tenant.replies.is_some_and(|mode| mode != Mode::Async))
    }

    /// True where `other` has the same tenants, with the same bounds and weights; what their replies wait for may
    /// differ.
    pub fn divides_as(&self, other: &TenantSpec) -> bool {
        let plain = |spec: &TenantSpec| -> Vec<Tenant> {
            spec.tenants.iter().map(|tenant| Tenant { replies: None, ..tenant.clone() }).collect()
        };
        plain(self) == plain(other)
    }

    /// All minimums together, in bytes.
    pub fn minimums_bytes(&self) -> u64 {
        self.tenants.iter().fold(0, |sum, tenant| sum.saturating_add(tenant.bytes_min))
    }

    /// What is stated of replies, by tenant.
    pub fn replies(&self) -> Vec<Option<Mode>> {
        self.tenants.iter().map(|tenant| tenant.replies).collect()
    }

    /// True where a tenant is a user: whose a key is has to be noted then.
    pub fn has_users(&self) -> bool {
        self.tenants.iter().any(|tenant| matches!(tenant.selector, Selector::User(_)))
    }
}

fn parse_tenant(entry: &str, databases: u16) -> Result<Tenant, String> {
    let mut parts = entry.split(',');
    let (name, selector) = parts.next().and_then(|head| head.split_once('=')).ok_or_else(|| {
        format!(
            "tenant '{entry}' has no selector; write NAME=PREFIX*, NAME=user:USERNAME or NAME=db:N, then \
                 ,min=BYTES, ,max=BYTES, ,weight=N and ,replies=MODE if wanted"
        )
    })?;
    let name_is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if name.is_empty() || name.len() > 64 || !name_is_plain || name == "other" {
        return Err(format!(
            "tenant name '{name}'; allowed are 1 to 64 letters, digits, '_', '-', '.', and not 'other'"
        ));
    }
    let mut tenant = Tenant {
        name: name.to_owned(),
        selector: parse_selector(entry, selector, databases)?,
        bytes_min: 0,
        bytes_max: u64::MAX,
        weight: 1,
        replies: None,
    };
    for option in parts {
        let bytes = |text: &str| parse_bytes(text).map_err(|e| format!("tenant '{name}': {e}"));
        match option.split_once('=') {
            Some(("min", text)) => tenant.bytes_min = bytes(text)?,
            Some(("max", "-1")) => tenant.bytes_max = u64::MAX,
            Some(("max", text)) => tenant.bytes_max = bytes(text)?,
            Some(("weight", text)) => {
                let weight = text.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
                tenant.weight =
                    weight.ok_or_else(|| format!("tenant '{name}': weight '{text}'; allowed is 1 to {WEIGHT_MAX}"))?;
            }
            Some(("replies", text)) => {
                let mode = Mode::named(text);
                tenant.replies =
                    Some(mode.ok_or_else(|| {
                        format!("tenant '{name}': replies '{text}'; allowed is async, sent or acked")
                    })?);
            }
            _ => {
                return Err(format!(
                    "tenant '{name}': option '{option}'; allowed are min=BYTES, max=BYTES, weight=N and replies=MODE"
                ));
            }
        }
    }
    if tenant.bytes_max == 0 {
        return Err(format!("tenant '{name}': max=0 would leave it nothing; write max=-1 or no max for no maximum"));
    }
    if tenant.bytes_min > tenant.bytes_max {
        let (min, max) = (format_bytes(tenant.bytes_min), format_bytes(tenant.bytes_max));
        return Err(format!("tenant '{name}': min of {min} is above max of {max}"));
    }
    Ok(tenant)
}

fn parse_selector(entry: &str, selector: &str, databases: u16) -> Result<Selector, String> {
    if let Some(number) = selector.strip_prefix("db:") {
        return match number.parse() {
            Ok(db) if db < databases => Ok(Selector::Database(db)),
            _ => Err(format!("tenant '{entry}': database '{number}'; allowed is 0 to {}", databases - 1)),
        };
    }
    // What ends in '*' is a prefix, also where it begins with 'user:', as the names of keys may.
    let user = selector.strip_prefix("user:").filter(|_| !selector.ends_with('*'));
    match (selector.strip_suffix('*'), user) {
        (Some(prefix), _) if !prefix.is_empty() && !prefix.contains('*') => {
            Ok(Selector::Prefix(prefix.as_bytes().to_vec()))
        }
        (_, Some(name)) if !name.is_empty() && !name.contains('*') => Ok(Selector::User(name.to_owned())),
        _ => Err(format!(
            "tenant '{entry}': selector '{selector}'; allowed are a prefix with one '*' at its end, user:USERNAME, \
             and db:N"
        )),
    }
}
