//! The table of settings as the server is told of it, and as it sets and reads them.

use std::ffi::CStr;

use super::{Kind, Setting, Settings, TABLE, allowed};
use crate::features::left_out;
use crate::ffi::load;
use crate::ffi::settings::{self, Declared, Given, closest};

impl settings::Settings for Settings {
    fn declared() -> Vec<Declared> {
        let declared = |setting: &Setting| Declared {
            name: setting.name,
            kind: match &setting.kind {
                Kind::Bool { .. } => settings::Kind::Bool,
                Kind::Number { min, max, memory, .. } => {
                    settings::Kind::Number { min: *min, max: *max, memory: *memory }
                }
                Kind::Choice { names, .. } => settings::Kind::Choice { names },
                Kind::Text { .. } => settings::Kind::Text,
            },
        };
        TABLE.iter().map(declared).collect()
    }

    fn get(&self, i: usize) -> Given<'_> {
        match &TABLE[i].kind {
            Kind::Bool { get, .. } => Given::Bool(get(self)),
            Kind::Number { get, .. } => Given::Number(get(self)),
            Kind::Choice { get, .. } => Given::Choice(get(self)),
            Kind::Text { get, .. } => Given::Text(get(self)),
        }
    }

    fn set(&mut self, i: usize, value: Given) -> Result<(), String> {
        match (&TABLE[i].kind, value) {
            // The server's own way to say so refuses the value that is set already.
            (Kind::Bool { get, immutable: true, .. }, Given::Bool(value))
                if load::is_loaded() && get(self) != value =>
            {
                return Err(format!("tenure.{} can be set at start only", TABLE[i].name.to_string_lossy()));
            }
            (Kind::Bool { set, .. }, Given::Bool(value)) => set(self, value),
            (Kind::Number { set, .. }, Given::Number(value)) => set(self, value),
            (Kind::Choice { set, .. }, Given::Choice(value)) => set(self, value)?,
            (Kind::Text { set, .. }, Given::Text(value)) => set(self, value)?,
            _ => return Err(format!("tenure.{} is of another kind", TABLE[i].name.to_string_lossy())),
        }
        Ok(())
    }

    fn set_argument(&mut self, name: &str, value: &str) -> Result<(), String> {
        let i = TABLE
            .iter()
            .position(|setting| setting.name.to_bytes() == name.as_bytes())
            .ok_or_else(|| no_setting(name))?;
        let wrong = || format!("tenure.{name} is '{value}'; allowed: {}", allowed(&TABLE[i]));
        let given = given(&TABLE[i].kind, value).ok_or_else(wrong)?;
        self.set(i, given).map_err(|why| format!("tenure.{name}: {why}"))
    }

    fn is_enabled(&self) -> bool {
        self.enabled
    }
}

/// A value as it is written; `None` where it isn't one of those allowed.
fn given<'a>(kind: &Kind, value: &'a str) -> Option<Given<'a>> {
    Some(match kind {
        Kind::Bool { .. } => Given::Bool(match value {
            "yes" => true,
            "no" => false,
            _ => return None,
        }),
        Kind::Number { min, max, memory, .. } => {
            let number = if *memory {
                tenure_core::units::parse_bytes(value).ok().and_then(|bytes| i64::try_from(bytes).ok())
            } else {
                value.parse().ok()
            };
            Given::Number(number.filter(|n| (min..=max).contains(&n))?)
        }
        Kind::Choice { names, .. } => {
            let named = |name: &&CStr| name.to_bytes() == value.as_bytes();
            Given::Choice(names.iter().position(named)?)
        }
        Kind::Text { .. } => Given::Text(value.as_bytes()),
    })
}

fn no_setting(name: &str) -> String {
    if let Some(feature) = left_out(name) {
        return format!("tenure.{name} is of the feature '{feature}', which this module was built without");
    }
    let names: Vec<_> = TABLE.iter().map(|setting| setting.name.to_string_lossy()).collect();
    match closest(name, names.iter().map(AsRef::as_ref)) {
        Some(known) => format!("there is no setting tenure.{name}; did you mean tenure.{known}?"),
        None => format!("there is no setting tenure.{name}; TENURE.HELP settings lists them"),
    }
}
