//! The settings: what kinds there are, and what they mean together. One table (`config/table.rs`) has each with name,
//! field, default, range and what it trades; the fields of [`Settings`], `CONFIG GET/SET/REWRITE tenure.*`, the
//! module's arguments, `TENURE.HELP settings` and docs/settings.md are all made of it.

mod declared;
mod given;
mod policy;
mod table;
#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::time::Duration;

use tenure_core::sampling::SampleRate;

pub use self::policy::Policy;
pub use self::table::{Settings, TABLE};
use crate::observe::classes::Source;
use crate::observe::keys::Remembers;
use crate::worker::Instructions;
use crate::worker::model::Modelling;

/// How a setting is read and written.
pub enum Kind {
    /// `yes` or `no`.
    Bool { default: bool, get: fn(&Settings) -> bool, set: fn(&mut Settings, bool), immutable: bool },
    /// A number within a range; `memory` ones may be written with a unit.
    Number { default: i64, min: i64, max: i64, memory: bool, get: fn(&Settings) -> i64, set: fn(&mut Settings, i64) },
    /// One of some names, `default` among them by its place; the error says why this server can't do that one.
    Choice {
        names: &'static [&'static CStr],
        default: usize,
        get: fn(&Settings) -> usize,
        set: fn(&mut Settings, usize) -> Result<(), String>,
    },
    /// A text with a grammar of its own, empty by default; the error says what is wrong.
    Text { get: fn(&Settings) -> &[u8], set: fn(&mut Settings, &[u8]) -> Result<(), String> },
}

/// One setting.
pub struct Setting {
    /// Its name without `tenure.`.
    pub name: &'static CStr,
    /// Its values.
    pub kind: Kind,
    /// Unit, meaning, and what it trades.
    pub about: &'static str,
}

impl Settings {
    /// Up to which text first parts of keys become tenants; empty where none does.
    pub fn delimiter(&self) -> &str {
        #[cfg(feature = "prefixes")]
        return &self.auto_tenants_delimiter;
        #[cfg(not(feature = "prefixes"))]
        ""
    }

    /// True where tenants' limits are a whole cluster's.
    pub fn has_limits_of_cluster(&self) -> bool {
        #[cfg(feature = "cluster")]
        return self.limits_of_cluster;
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// What of each key has to be remembered, for the policy and for tiers.
    pub fn remembers(&self) -> Remembers {
        match self.policy.remembers() {
            Remembers::Classes if self.tier_slow.is_some() => Remembers::History,
            by_policy => by_policy,
        }
    }

    /// True where keys need only be remembered in a compact entry: what they have shown and cost, of which class and
    /// in which tier they are is nobody's concern.
    pub fn keeps_compact_entries(&self) -> bool {
        self.policy == Policy::Density && self.classes.source == Source::Off && self.tier_slow.is_none()
    }

    /// True where single keys have to be remembered.
    pub fn remembers_keys(&self) -> bool {
        self.classes.source != Source::Off || self.remembers() != Remembers::Classes
    }

    /// What the worker models.
    pub fn modelling(&self) -> Modelling {
        match self.policy {
            Policy::Density => Modelling::Densities,
            Policy::Rival(rival) => rival.modelling(self.rival_k, self.samples as u32),
            Policy::Lru | Policy::Off => Modelling::Recency,
        }
    }

    /// What concerns the worker.
    pub fn instructions(&self) -> Instructions {
        Instructions {
            window_requests: self.window_requests as u64,
            window: Duration::from_secs(self.window_seconds as u64),
            granularity_bytes: self.granularity_bytes as u64,
            gain_min: self.gain_min_percent as f64 / 100.0,
            objective: self.objective,
            rate_min: SampleRate::new(self.sample_percent as f64 / 100.0).unwrap_or(SampleRate::ALL),
            samples_per_second: self.samples_per_second as u64,
            modelling: self.modelling(),
            sample_size: self.samples as u32,
        }
    }
}

/// The allowed values of a setting and its default, for people.
pub fn allowed(setting: &Setting) -> String {
    let (values, default, when) = values_and_default(&setting.kind);
    format!("{values} (default {default}){when}")
}

/// The allowed values of a setting, its default, and when it may be set.
fn values_and_default(kind: &Kind) -> (String, String, &'static str) {
    match kind {
        Kind::Bool { default, immutable, .. } => {
            let when = if *immutable { ", at start only" } else { "" };
            ("yes or no".to_owned(), if *default { "yes" } else { "no" }.to_owned(), when)
        }
        Kind::Number { default, min, max, memory, .. } => {
            let unit = if *memory { " bytes" } else { "" };
            (format!("{min} to {max}{unit}"), default.to_string(), "")
        }
        Kind::Choice { names, default, .. } => {
            let names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            (names.join(", "), names[*default].clone(), "")
        }
        Kind::Text { .. } => ("text".to_owned(), "empty".to_owned(), ""),
    }
}
