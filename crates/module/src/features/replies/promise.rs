//! What the settings promise of replies to writes: what each waits for, how many replicas have to know of it, and what
//! becomes of it after a timeout.

use super::mode::{Mode, Modes, OnTimeout};
use crate::config::Settings;

/// What the settings promise of replies to writes.
#[derive(Clone, Debug)]
pub struct Promise {
    /// Whose writes wait for what.
    pub modes: Modes,
    n_replicas: usize,
    /// After this wait, in µs, replicas can't follow.
    pub timeout_us: u64,
    /// What becomes of writes then.
    pub on_timeout: OnTimeout,
}

impl Promise {
    /// What nobody has set: writes wait for nothing.
    pub fn new() -> Promise {
        Promise { modes: Modes::default(), n_replicas: 1, timeout_us: 1_000_000, on_timeout: OnTimeout::Async }
    }

    /// As the settings say; `stated` are the modes that tenants state, by tenant.
    pub fn of(settings: &Settings, stated: &[Option<Mode>]) -> Promise {
        Promise {
            modes: Modes::new(stated, settings.replies),
            n_replicas: settings.replies_replicas as usize,
            timeout_us: settings.replies_timeout_ms as u64 * 1000,
            on_timeout: settings.replies_on_timeout,
        }
    }

    /// Of how many replicas a write has to be known, where `n` follow.
    pub fn n_needed(&self, n: usize) -> usize {
        if self.n_replicas == 0 { n.max(1) } else { self.n_replicas }
    }

    /// True where writes are refused after a timeout.
    pub fn refuses(&self) -> bool {
        self.on_timeout == OnTimeout::Refuse
    }
}
