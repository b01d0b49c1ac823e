//! What a reply to a write waits for, and for whose writes.

use std::ffi::CStr;

use tenure_core::units::TenantId;

pub use crate::observe::reply_mode::Mode;

/// What becomes of writes while replicas are too slow or too few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// They are answered as under [`Mode::Async`].
    #[default]
    Async,
    /// They are refused, as under the server's `min-replicas-to-write`.
    Refuse,
}

impl OnTimeout {
    /// The names, in the order of [`OnTimeout::ALL`].
    pub const NAMES: &[&CStr] = &[c"async", c"refuse"];
    /// Both.
    pub const ALL: [OnTimeout; 2] = [OnTimeout::Async, OnTimeout::Refuse];
}

/// Whose writes are under which mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    by_tenant: Vec<Mode>,
    of_others: Mode,
    strictest: Mode,
    is_uniform: bool,
}

impl Modes {
    /// Tenants have the mode stated for them, and all others that `of_others`.
    pub fn new(stated: &[Option<Mode>], of_others: Mode) -> Modes {
        let by_tenant: Vec<Mode> = stated.iter().map(|mode| mode.unwrap_or(of_others)).collect();
        let strictest = by_tenant.iter().copied().fold(of_others, Mode::max);
        let is_uniform = by_tenant.iter().all(|mode| *mode == of_others);
        Modes { by_tenant, of_others, strictest, is_uniform }
    }

    /// The mode of one tenant's writes. A tenant that came later has that of the others.
    pub fn of(&self, tenant: TenantId) -> Mode {
        self.by_tenant.get(tenant.0 as usize).copied().unwrap_or(self.of_others)
    }

    /// The strictest of any tenant's: that of commands whose keys aren't known.
    pub fn strictest(&self) -> Mode {
        self.strictest
    }

    /// True where any tenant's writes are under `mode`.
    pub fn uses(&self, mode: Mode) -> bool {
        self.of_others == mode || self.by_tenant.contains(&mode)
    }

    /// True where all tenants have the same.
    pub fn is_uniform(&self) -> bool {
        self.is_uniform
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_does_not_state_it_takes_from_the_setting() {
        let modes = Modes::new(&[None, Some(Mode::Acked), Some(Mode::Async)], Mode::Sent);
        let of = |tenant| modes.of(TenantId(tenant));
        assert_eq!([of(0), of(1), of(2), of(9)], [Mode::Sent, Mode::Acked, Mode::Async, Mode::Sent]);
        assert_eq!((modes.strictest(), modes.is_uniform()), (Mode::Acked, false));
        assert!(Modes::new(&[None, Some(Mode::Sent)], Mode::Sent).is_uniform());
        assert_eq!(Modes::default().strictest(), Mode::Async);
    }
}
