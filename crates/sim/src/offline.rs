//! A trace in memory with each access's next use: what clairvoyant policies and the bound need.

use std::sync::Arc;

use tenure_core::access::{Access, Op};
use tenure_core::expiry::expires_us_after;
use tenure_core::model::key_map::KeyMap;

/// No later use.
pub const NEVER: u32 = u32::MAX;

/// A whole trace, and what comes next. 56 bytes per access.
#[derive(Clone, Debug)]
pub struct Offline {
    /// The trace.
    pub accesses: Arc<[Access]>,
    /// By access: the index of the next read or write that would find what this access leaves behind, were it never
    /// evicted. [`NEVER`] where there is none, where the key is deleted first, or where the value has expired by then.
    pub next_use: Vec<u32>,
}

impl Offline {
    /// Looks ahead through a whole trace. O(accesses).
    ///
    /// # Panics
    /// For a trace of 2^32 - 1 accesses or more.
    pub fn new(accesses: Arc<[Access]>) -> Self {
        assert!(accesses.len() < NEVER as usize, "the trace is too long to look ahead in");
        let mut next_use = vec![NEVER; accesses.len()];
        // By key: its last access, and when the value would expire if it were never evicted.
        let mut last: KeyMap<(u32, u64)> = KeyMap::default();
        for (i, access) in accesses.iter().enumerate() {
            if access.op == Op::Delete {
                last.remove(&access.key);
                continue;
            }
            let alive = last.get(&access.key).copied().filter(|&(_, expires_us)| access.time_us < expires_us);
            if let Some((before, _)) = alive {
                next_use[before as usize] = i as u32;
            }
            last.insert(access.key, (i as u32, expires_us_after(access, alive.map(|(_, expires_us)| expires_us))));
        }
        Offline { accesses, next_use }
    }

    /// What the next use of what access `i` leaves behind saves if the value is still there, in µs, and how many
    /// accesses away it is; `None` where there is no next use.
    #[inline]
    pub fn saving(&self, i: usize) -> Option<(f64, u32)> {
        let next = self.next_use[i];
        let access = self.accesses.get(next as usize)?;
        Some((saved_us(access), next - i as u32))
    }
}

/// What `access` saves if it finds the value, in µs. A write saves nothing: it brings its own value.
#[inline]
pub fn saved_us(access: &Access) -> f64 {
    if access.op == Op::Read { f64::from(access.penalty_us) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use tenure_core::units::KeyHash;

    use super::*;

    /// a b a(del) a b: the delete ends a's first stay; b is used next at 4.
    #[test]
    fn deletes_and_expiry_end_a_stay() {
        let read = |n| Access::read(KeyHash(n), 1);
        let trace = [read(1), read(2), read(1).with_op(Op::Delete), read(1), read(2)];
        assert_eq!(Offline::new(Arc::new(trace)).next_use, [NEVER, 4, NEVER, NEVER, NEVER]);
        let at = |time_us| Access { time_us, ttl_us: 10, ..read(1) };
        assert_eq!(Offline::new(Arc::new([at(0), at(9), at(10), at(19)])).next_use, [1, NEVER, 3, NEVER]);
    }
}
