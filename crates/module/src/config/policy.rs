//! `tenure.policy`: what evicts, and what each needs.

use std::ffi::CStr;

use crate::observe::keys::Remembers;
use crate::rivals::Rival;

/// What evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// What keeping saves least goes, per byte and time, as learned.
    Density,
    /// What others would do, to compare with.
    Rival(Rival),
    /// The longest idle of a sample goes, whoever's it is.
    Lru,
    /// Tenure only watches; the server evicts.
    Off,
}

impl Policy {
    /// The names, in the order of [`Policy::ALL`].
    pub const NAMES: &[&CStr] = &{
        let [a, b, c, d, e] = Rival::NAMES;
        [c"density", a, b, c, d, e, c"lru", c"off"]
    };
    pub(super) const ALL: [Policy; 8] = {
        let [a, b, c, d, e] = Rival::ALL;
        let rival = Policy::Rival;
        [Policy::Density, rival(a), rival(b), rival(c), rival(d), rival(e), Policy::Lru, Policy::Off]
    };

    /// Its place among all.
    pub(super) const fn place(self) -> usize {
        match self {
            Policy::Density => 0,
            Policy::Rival(rival) => 1 + rival as usize,
            Policy::Lru => 1 + Rival::ALL.len(),
            Policy::Off => 2 + Rival::ALL.len(),
        }
    }

    /// Which of others' it is; `None` of Tenure's own.
    pub fn rival(self) -> Option<Rival> {
        if let Policy::Rival(rival) = self { Some(rival) } else { None }
    }

    /// True where partitions are held to the targets of the plan.
    pub fn has_targets(self) -> bool {
        self.rival().is_some_and(Rival::has_targets)
    }

    /// True where of keys that may go the longest idle does.
    pub fn goes_by_age(self) -> bool {
        self != Policy::Density && self.rival().is_none_or(|rival| rival.scorer().is_none())
    }

    /// True where evicting needs what the worker learns.
    pub fn learns(self) -> bool {
        self.has_targets() || self == Policy::Density
    }

    /// What of each key has to be remembered.
    pub fn remembers(self) -> Remembers {
        match self {
            Policy::Density => Remembers::History,
            Policy::Rival(rival) => rival.remembers(),
            Policy::Lru | Policy::Off => Remembers::Classes,
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        Self::NAMES[self.place()].to_string_lossy().into_owned()
    }
}
