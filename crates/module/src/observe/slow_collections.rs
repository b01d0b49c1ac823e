//! Which keys' collections lie in slow memory: their address can't be accessed, so those that were moved there are
//! remembered.
//!
//! A key that goes, for whatever reason, is forgotten with the rest of what is known of it
//! ([`super::classes::Classes::gone`]). One that is renamed is forgotten too, and one that a string replaces stays
//! until the walk meets it: what is remembered is true of nearly all, and the arena's own count of all. Cost: a look
//! into a hash map, where there are any; some 30 bytes each.

use std::collections::HashMap;

use tenure_core::units::KeyHash;

/// What a collection took as it came to slow memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of its allocations.
    pub bytes: u32,
    /// How many there are.
    pub allocations: u32,
    /// The database of its key.
    pub db: u16,
}

impl Held {
    fn extra(self) -> u64 {
        u64::from(self.allocations).saturating_sub(1)
    }
}

/// The keys, by their hashes with the database. See the file's opening.
#[derive(Debug, Default)]
pub struct SlowCollections {
    held: HashMap<KeyHash, Held>,
    extra_allocations: u64,
}

impl SlowCollections {
    /// What one took; `None` where it doesn't lie in slow memory.
    pub fn get(&self, key: KeyHash) -> Option<Held> {
        self.held.get(&key).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Allocations beyond one for each.
    pub fn extra_allocations(&self) -> u64 {
        self.extra_allocations
    }

    /// One has come to slow memory.
    pub fn insert(&mut self, key: KeyHash, held: Held) {
        self.remove(|| key);
        self.held.insert(key, held);
        self.extra_allocations += held.extra();
    }

    /// One has gone, has moved up, or is no collection any more. Costs nothing where there are none.
    #[inline]
    pub fn remove(&mut self, key: impl FnOnce() -> KeyHash) {
        if !self.held.is_empty()
            && let Some(held) = self.held.remove(&key())
        {
            self.extra_allocations -= held.extra();
        }
    }

    /// Those of one database, or all, have gone or have other names.
    pub fn forget(&mut self, db: Option<u16>) {
        self.held.retain(|_, held| db.is_some_and(|db| held.db != db));
        self.extra_allocations = self.held.values().map(|held| held.extra()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_or_goes_twice_counts_once() {
        let (mut slow, key) = (SlowCollections::default(), KeyHash(7));
        for allocations in [3, 5] {
            slow.insert(key, Held { bytes: 9000, allocations, db: 0 });
        }
        slow.insert(KeyHash(8), Held { bytes: 700, allocations: 3, db: 2 });
        assert_eq!((slow.len(), slow.extra_allocations()), (2, 6));
        (0..2).for_each(|_| slow.remove(|| key));
        assert_eq!((slow.len(), slow.extra_allocations(), slow.get(key)), (1, 2, None));
        slow.forget(Some(0));
        assert_eq!(slow.len(), 1, "it is of another database");
        slow.forget(Some(2));
        assert_eq!((slow.len(), slow.extra_allocations()), (0, 0));
        slow.insert(key, Held::default());
        slow.forget(None);
        assert_eq!(slow.get(key), None);
    }
}
