//! Who owns each key of a data set: a number from 1 to 255 for every key that is there, exact, at 5 to 11 bytes a key.
//!
//! Unlike the [`KeyTable`](crate::key_table::KeyTable), which has a fixed size and forgets what was not asked for,
//! this one grows with the keys and forgets nothing: memory that is accounted by owner would not add up else. A key
//! is known by 34 bits of its hash, 10 of them by the number of its segment, so that an entry is four bytes: 24 bits
//! and the owner. Of ten million keys one in 1,700 shares them with another, of a hundred million one in 170; the two
//! then have one owner. Segments are open addressing with linear probing, home by the upper bits of the entry, so
//! that growing needs no key's name; each grows and shrinks by itself, which bounds the pause: of ten million keys it
//! moves 10,000 entries, about 20 µs. Cost: O(1), two cache lines for a look-up.

use crate::units::KeyHash;

/// A key's owner; 0 is nobody.
pub type Owner = u8;

const SEGMENTS: usize = 1 << 10;
/// Bits of an entry that are of the hash; the owner has the other eight.
const TAG_BITS: u32 = 24;
const SLOTS_MIN: usize = 8;
const SLOTS_MAX: usize = 1 << TAG_BITS;
const FREE: u32 = 0;

#[derive(Clone, Debug, Default)]
struct Segment {
    /// A power of two of them, or none.
    slots: Box<[u32]>,
    used: usize,
}

impl Segment {
    #[inline]
    fn home(&self, tag: u32) -> usize {
        (tag >> (TAG_BITS - self.slots.len().trailing_zeros())) as usize
    }

    /// Where the entry of `tag` is, or the free slot where it would be. Some slot is free, always.
    #[inline]
    fn find(&self, tag: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.home(tag);
        while self.slots[at] != FREE && self.slots[at] >> 8 != tag {
            at = (at + 1) & mask;
        }
        at
    }

    /// True where the entry is new.
    fn set(&mut self, tag: u32, owner: Owner) -> bool {
        // At most three quarters full.
        if 4 * (self.used + 1) > 3 * self.slots.len() && self.slots.len() < SLOTS_MAX {
            self.resize((2 * self.slots.len()).max(SLOTS_MIN));
        }
        let at = self.find(tag);
        let is_new = self.slots[at] == FREE;
        if is_new && self.used + 1 >= self.slots.len() {
            return false;
        }
        self.slots[at] = tag << 8 | u32::from(owner);
        self.used += usize::from(is_new);
        is_new
    }

    fn remove(&mut self, tag: u32) -> Owner {
        if self.used == 0 {
            return 0;
        }
        let mask = self.slots.len() - 1;
        let mut hole = self.find(tag);
        let owner = self.slots[hole] as u8;
        if owner == 0 {
            return 0;
        }
        // What was pushed past the hole moves up, unless that would put it before its home.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let entry = self.slots[at];
            if entry == FREE {
                break;
            }
            let from_home = at.wrapping_sub(self.home(entry >> 8)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = entry;
                hole = at;
            }
        }
        self.slots[hole] = FREE;
        self.used -= 1;
        if self.used == 0 {
            self.slots = Box::default();
        } else if 8 * self.used < self.slots.len() && self.slots.len() > SLOTS_MIN {
            self.resize(self.slots.len() / 2);
        }
        owner
    }

    fn resize(&mut self, n: usize) {
        let old = std::mem::replace(&mut self.slots, vec![FREE; n].into_boxed_slice());
        for entry in old.into_iter().filter(|entry| *entry != FREE) {
            let at = self.find(entry >> 8);
            self.slots[at] = entry;
        }
    }
}

/// The table. See the file's opening.
#[derive(Clone, Debug)]
pub struct OwnerTable {
    segments: Box<[Segment]>,
    len: usize,
    slots: usize,
}

impl Default for OwnerTable {
    fn default() -> Self {
        OwnerTable::new()
    }
}

impl OwnerTable {
    /// A table that knows no key. 24 KiB.
    pub fn new() -> Self {
        OwnerTable { segments: vec![Segment::default(); SEGMENTS].into_boxed_slice(), len: 0, slots: 0 }
    }

    /// Segment and tag of a key.
    #[inline]
    fn place(key: KeyHash) -> (usize, u32) {
        (key.0 as usize % SEGMENTS, (key.0 >> SEGMENTS.trailing_zeros()) as u32 & ((1 << TAG_BITS) - 1))
    }

    /// The key's owner; 0 where it isn't known.
    #[inline]
    pub fn get(&self, key: KeyHash) -> Owner {
        let (segment, tag) = Self::place(key);
        let segment = &self.segments[segment];
        if segment.slots.is_empty() { 0 } else { segment.slots[segment.find(tag)] as Owner }
    }

    /// From now on the key is `owner`'s, or nobody's where that is 0. May allocate.
    pub fn set(&mut self, key: KeyHash, owner: Owner) {
        if owner == 0 {
            self.remove(key);
            return;
        }
        self.change(key, |segment, tag| usize::from(segment.set(tag, owner)) as isize);
    }

    /// The key is no more; returns whose it was, 0 where that isn't known.
    pub fn remove(&mut self, key: KeyHash) -> Owner {
        let mut owner = 0;
        self.change(key, |segment, tag| {
            owner = segment.remove(tag);
            -isize::from(owner > 0)
        });
        owner
    }

    fn change(&mut self, key: KeyHash, change: impl FnOnce(&mut Segment, u32) -> isize) {
        let (segment, tag) = Self::place(key);
        let segment = &mut self.segments[segment];
        let before = segment.slots.len();
        self.len = self.len.wrapping_add_signed(change(segment, tag));
        self.slots = self.slots - before + segment.slots.len();
    }

    /// Keys whose owner is known.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True where no key's owner is known.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (size_of::<Segment>() * SEGMENTS + size_of::<u32>() * self.slots) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(i: u64) -> KeyHash {
        KeyHash::of_number(i)
    }

    #[test]
    fn a_million_keys_have_their_owners_in_little_memory() {
        let mut table = OwnerTable::new();
        let n = 1_000_000;
        for i in 0..n {
            table.set(key(i), (i % 64) as u8 + 1);
        }
        let right = (0..n).filter(|&i| table.get(key(i)) == (i % 64) as u8 + 1).count() as u64;
        assert!(right >= n - 200, "{} of {n} have another's", n - right);
        assert!(n - table.len() as u64 <= 100, "{}", table.len());
        let per_key = table.memory_bytes() as f64 / n as f64;
        assert!((5.3..11.0).contains(&per_key), "{per_key} bytes a key");
        let ghosts = (n..2 * n).filter(|&i| table.get(key(i)) > 0).count();
        assert!(ghosts <= 120, "{ghosts} of {n} keys that never were");
        for i in 0..n {
            table.remove(key(i));
        }
        assert_eq!((table.len(), table.memory_bytes()), (0, OwnerTable::new().memory_bytes()));
    }

    #[test]
    fn an_owner_changes_in_place_and_nobody_is_no_entry() {
        let mut table = OwnerTable::new();
        assert_eq!((table.get(key(1)), table.remove(key(1))), (0, 0));
        table.set(key(1), 7);
        table.set(key(1), 255);
        assert_eq!((table.get(key(1)), table.len()), (255, 1));
        table.set(key(1), 0);
        assert!(table.is_empty());
        table.set(key(1), 3);
        assert_eq!((table.remove(key(1)), table.get(key(1)), table.len()), (3, 0, 0));
    }

    proptest! {
        /// As a map, through all that growing, shrinking and moving up. Keys share a segment, and often a home.
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u64..400, 0u8..4), 0..3000)) {
            let (mut table, mut map) = (OwnerTable::new(), HashMap::new());
            // Homes of neighbours differ by less than the tags do: the upper bits are few.
            let key = |i: u64| KeyHash(5 | (i * 40_503 % (1 << TAG_BITS)) << 10);
            for (i, owner) in steps {
                if owner == 0 {
                    prop_assert_eq!(table.remove(key(i)), map.remove(&i).unwrap_or(0));
                } else {
                    table.set(key(i), owner);
                    map.insert(i, owner);
                }
                prop_assert_eq!(table.len(), map.len());
            }
            for i in 0..400 {
                prop_assert_eq!(table.get(key(i)), map.get(&i).copied().unwrap_or(0));
            }
        }
    }
}
