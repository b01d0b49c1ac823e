//! What the reply to a write may wait for, as tenants state it. Who lets it wait is a feature (`features/replies`).

use std::ffi::CStr;

/// What the reply to a write waits for. The stricter is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Nothing: it may leave before the write has gone to any replica, as stock.
    #[default]
    Async,
    /// The write was handed to the replicas' sockets ("semi synchronization": Chen et al., TrustCom'16, sec. III.B).
    Sent,
    /// Replicas have acknowledged the write.
    Acked,
}

impl Mode {
    /// The names, in the order of [`Mode::ALL`].
    pub const NAMES: &[&CStr] = &[c"async", c"sent", c"acked"];
    /// All of them, the laxest first.
    pub const ALL: [Mode; 3] = [Mode::Async, Mode::Sent, Mode::Acked];

    /// Its name.
    pub fn name(self) -> &'static str {
        ["async", "sent", "acked"][self as usize]
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}
