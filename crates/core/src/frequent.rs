//! Which names of a stream are the most frequent, in fixed memory.
//!
//! Source: Space-Saving (Metwally et al., ICDT 2005): a name that has no counter takes that of the least frequent, and
//! its count with it, which may be too high by as much.
//! Differs from the paper: names are divided by their hash into 32 sets of eight counters, so that finding the least
//! frequent is a look at eight. A name is never missed that has more than an eighth of its set's share of the stream:
//! of names that are spread evenly, one in 256 of all. Names lie in the counters, so that counting allocates nothing.
//! Cost: O(1) per name, at most eight cache lines; 24 KiB.

use crate::units::KeyHash;

/// Longer names aren't counted, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
const SETS: usize = 32;
const WAYS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Counter {
    hash: KeyHash,
    count: u64,
    /// By how much the count may be too high.
    error: u64,
    len: u8,
    name: [u8; NAME_BYTES_MAX],
}

const NONE: Counter = Counter { hash: KeyHash(0), count: 0, error: 0, len: 0, name: [0; NAME_BYTES_MAX] };

/// A name and how often it came, at the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name.
    pub name: Vec<u8>,
    /// Never more often than it came.
    pub count: u64,
}

/// The counters. See the file's opening.
#[derive(Clone, Debug)]
pub struct Frequent {
    sets: Box<[[Counter; WAYS]]>,
    total: u64,
}

/// What a count of one window weighs in the next: seven eighths.
pub fn faded(count: u64) -> u64 {
    (u128::from(count) * 7 / 8) as u64
}

impl Default for Frequent {
    fn default() -> Self {
        Frequent { sets: vec![[NONE; WAYS]; SETS].into_boxed_slice(), total: 0 }
    }
}

impl Frequent {
    /// Counts a name once; one of more than [`NAME_BYTES_MAX`] bytes isn't counted.
    #[inline]
    pub fn count(&mut self, name: &[u8]) {
        let Ok(len @ 0..=64) = u8::try_from(name.len()) else { return };
        let hash = KeyHash::of(name);
        self.total += 1;
        let set = &mut self.sets[hash.0 as usize % SETS];
        if let Some(own) = set.iter_mut().find(|held| held.hash == hash && held.count > 0) {
            own.count += 1;
            return;
        }
        let Some(least) = set.iter_mut().min_by_key(|held| held.count) else { return };
        (least.hash, least.len, least.error) = (hash, len, least.count);
        least.count += 1;
        least.name[..name.len()].copy_from_slice(name);
    }

    /// All counts become seven eighths of what they are, so that the stream of late counts most.
    pub fn fade(&mut self) {
        self.total = faded(self.total);
        for held in self.sets.iter_mut().flatten() {
            (held.count, held.error) = (faded(held.count), faded(held.error));
        }
    }

    /// The name is counted elsewhere from now on.
    pub fn forget(&mut self, name: &[u8]) {
        let hash = KeyHash::of(name);
        self.sets[hash.0 as usize % SETS].iter_mut().filter(|held| held.hash == hash).for_each(|held| *held = NONE);
    }

    /// All that was counted of late, names that have no counter too.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The names that came at least `count_min` times of late, most frequent first.
    pub fn most(&self, count_min: u64) -> Vec<Named> {
        let surely = |held: &&Counter| held.count > 0 && held.count - held.error >= count_min.max(1);
        let named = |held: &Counter| Named {
            name: held.name[..usize::from(held.len)].to_vec(),
            count: held.count - held.error,
        };
        let mut names: Vec<Named> = self.sets.iter().flatten().filter(surely).map(named).collect();
        names.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        names
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    #[test]
    fn few_names_are_counted_exactly() {
        let mut frequent = Frequent::default();
        for (name, n) in [("shop", 5), ("session", 9), ("", 1)] {
            (0..n).for_each(|_| frequent.count(name.as_bytes()));
        }
        frequent.count(&[b'x'; NAME_BYTES_MAX + 1]);
        let counts = |frequent: &Frequent, least| -> Vec<(String, u64)> {
            frequent.most(least).into_iter().map(|n| (String::from_utf8(n.name).unwrap(), n.count)).collect()
        };
        let pair = |name: &str, n| (name.to_owned(), n);
        assert_eq!(counts(&frequent, 1), [pair("session", 9), pair("shop", 5), pair("", 1)]);
        assert_eq!(frequent.total(), 15);
        frequent.forget(b"session");
        frequent.fade();
        assert_eq!(counts(&frequent, 1), [pair("shop", 4)]);
        assert_eq!(counts(&frequent, 5), []);
    }

    /// 64 names have half of the stream; the other half are names that come once each. Rounds take out those that
    /// were found, as tenants are, so that no set is too full for long.
    #[test]
    fn the_frequent_are_found_among_many_that_come_once() {
        let (mut frequent, mut random, mut found) = (Frequent::default(), Random::new(7), Vec::new());
        for round in 0..6 {
            for i in 0..50_000_u64 {
                let name = if random.next_u64() % 2 == 0 {
                    format!("once{round}:{i}")
                } else {
                    format!("often{}", random.next_u64() % 64)
                };
                if !found.contains(&name) {
                    frequent.count(name.as_bytes());
                }
            }
            for named in frequent.most(frequent.total() / 1000) {
                let name = String::from_utf8(named.name).unwrap();
                assert!(name.starts_with("often"), "{name}");
                frequent.forget(name.as_bytes());
                found.push(name);
            }
            frequent.fade();
        }
        assert_eq!(found.len(), 64);
    }

    proptest! {
        /// Against a table of all names: no count is above the truth, and none that must be there is missed.
        #[test]
        fn counts_are_never_too_high(names in prop::collection::vec(0_u16..400, 1..3000)) {
            let (mut frequent, mut truth) = (Frequent::default(), HashMap::new());
            for name in names {
                frequent.count(&name.to_le_bytes());
                *truth.entry(name.to_le_bytes().to_vec()).or_insert(0_u64) += 1;
            }
            for named in frequent.most(1) {
                prop_assert!(named.count <= truth[&named.name]);
            }
            prop_assert_eq!(frequent.total(), truth.values().sum::<u64>());
        }
    }
}
