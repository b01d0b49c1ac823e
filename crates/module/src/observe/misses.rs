//! Misses that wait for their write: how the miss penalty is measured.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 2.1 and 5: the penalty is the time from a key's miss to the next write of that key.
//! Differs from the paper: a four-way table of fixed size in place of an entry in the key space; a newer miss takes the
//! place of the oldest of its four. A second miss of a key that waits already is the same fetch, or one that joined it: the first counts.
//! 128 KiB, one memory access per miss, and one per write while any miss waits.

use tenure_core::units::KeyHash;

const SLOTS: usize = 1 << 13;
/// A miss may wait in any of so many slots, one cache line together.
const WAYS: usize = 4;
/// A write this many times later than the longest penalty is no answer to the miss.
const ABANDONED_AFTER: u64 = 4;

#[derive(Clone, Copy)]
struct Waiting {
    key: u64,
    since_us: u64,
}

const EMPTY: Waiting = Waiting { key: 0, since_us: 0 };

/// The table. See the file's opening.
pub struct MissTable {
    slots: Vec<Waiting>,
    waiting: usize,
}

impl MissTable {
    /// An empty table.
    pub fn new() -> Self {
        MissTable { slots: vec![EMPTY; SLOTS], waiting: 0 }
    }

    /// True where a write may answer a miss.
    #[inline]
    pub fn any_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// A read of `key` found nothing at `now_us`. False where a miss of it waits already.
    pub fn note(&mut self, key: KeyHash, now_us: u64) -> bool {
        let set = &mut self.slots[ways_of(key)];
        if set.iter().any(|slot| slot.key == key.0) {
            return false;
        }
        // A free slot is older than any miss.
        let Some(oldest) = set.iter_mut().min_by_key(|slot| slot.since_us) else { return true };
        self.waiting += usize::from(oldest.key == 0);
        *oldest = Waiting { key: key.0, since_us: now_us.max(1) };
        true
    }

    /// `key` is written: its penalty in µs, at most `penalty_us_max`; `None` where no miss of it waits, or one so old that it
    /// was given up.
    pub fn take(&mut self, key: KeyHash, now_us: impl Fn() -> u64, penalty_us_max: u64) -> Option<u64> {
        let slot = self.slots[ways_of(key)].iter_mut().find(|slot| slot.key == key.0 && slot.key != 0)?;
        let took_us = now_us().saturating_sub(slot.since_us);
        *slot = EMPTY;
        self.waiting -= 1;
        (took_us <= penalty_us_max.saturating_mul(ABANDONED_AFTER)).then_some(took_us.min(penalty_us_max))
    }
}

fn ways_of(key: KeyHash) -> std::ops::Range<usize> {
    let set = (key.0 ^ (key.0 >> 32)) as usize % (SLOTS / WAYS) * WAYS;
    set..set + WAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_is_the_time_from_the_first_miss_to_the_write() {
        let mut table = MissTable::new();
        let (a, b) = (KeyHash::of(b"a"), KeyHash::of(b"b"));
        assert!(!table.any_waiting());
        assert!(table.note(a, 1_000));
        assert!(!table.note(a, 1_500));
        assert_eq!(table.take(b, || 2_000, 10_000), None);
        assert_eq!(table.take(a, || 2_000, 10_000), Some(1_000));
        assert_eq!(table.take(a, || 3_000, 10_000), None, "answered once");
        assert!(!table.any_waiting());
    }

    #[test]
    fn outliers_are_capped_and_what_was_given_up_is_no_penalty() {
        let mut table = MissTable::new();
        let a = KeyHash::of(b"a");
        table.note(a, 0);
        assert_eq!(table.take(a, || 250, 100), Some(100));
        table.note(a, 0);
        assert_eq!(table.take(a, || 402, 100), None);
    }
}
