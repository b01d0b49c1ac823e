//! The sampled keys that any of some miniature caches holds, once for all of these: found by key, at numbered places.
//!
//! What a key has shown is the same in each cache, so one look-up finds it for all. Which caches hold it they know
//! themselves, by a bit for each place (`places.rs`). Cost: one look-up; some 5 bytes a key beside what is kept of it.

use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use crate::model::key_map::spread;
use crate::units::KeyHash;

/// So many keys have a place, at the most: who adds more has to forget others first.
pub const KEYS_MAX: usize = 1 << 15;
/// Room for so many keys more is never given back.
const KEPT_ROOM_FOR: usize = 256;
/// A list that is full grows by so many, and by an eighth.
const ROOM: usize = 64;

/// What is kept of a key.
pub(super) trait Keyed: Copy {
    fn key(&self) -> KeyHash;
}

/// The keys. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct SharedKeys<T> {
    known: Vec<T>,
    place_of: HashTable<u16>,
    free: Vec<u16>,
}

impl<T> Default for SharedKeys<T> {
    fn default() -> Self {
        SharedKeys { known: Vec::new(), place_of: HashTable::new(), free: Vec::new() }
    }
}

impl<T: Keyed> SharedKeys<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.place_of.len()
    }

    /// Their places, in no order.
    pub fn places(&self) -> impl Iterator<Item = u16> {
        self.place_of.iter().copied()
    }

    /// Where a key is; `None` where it is nowhere.
    #[inline]
    pub fn find(&self, key: KeyHash) -> Option<u16> {
        self.place_of.find(spread(key.0), |&place| self[place].key() == key).copied()
    }

    /// Adds a key that is nowhere.
    pub fn add(&mut self, new: T) -> u16 {
        debug_assert!(self.find(new.key()).is_none());
        let place = match self.free.pop() {
            Some(place) => {
                self[place] = new;
                place
            }
            None => {
                push(&mut self.known, new);
                self.known.len() as u16 - 1
            }
        };
        let known = &self.known;
        let hash = |&place: &u16| spread(known[usize::from(place)].key().0);
        self.place_of.insert_unique(spread(new.key().0), place, hash);
        place
    }

    /// The key at `place` is held by no cache any more.
    pub fn forget(&mut self, place: u16) {
        if let Ok(found) = self.place_of.find_entry(spread(self[place].key().0), |&one| one == place) {
            found.remove();
            push(&mut self.free, place);
        }
    }

    /// Gives back what memory was only needed for many more keys. Where it does, the keys have other places: their old
    /// ones in the order of the new.
    pub fn close_ranks(&mut self) -> Option<Vec<u16>> {
        if self.known.capacity() <= 2 * self.len() + KEPT_ROOM_FOR {
            return None;
        }
        let mut old: Vec<u16> = self.places().collect();
        old.sort_unstable();
        let few = SharedKeys {
            known: Vec::with_capacity(old.len() + old.len() / 4),
            place_of: HashTable::with_capacity(old.len()),
            free: Vec::new(),
        };
        let all = std::mem::replace(self, few);
        old.iter().for_each(|&place| _ = self.add(all[place]));
        Some(old)
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.known.capacity() * size_of::<T>()
            + self.place_of.allocation_size()
            + self.free.capacity() * size_of::<u16>()
    }
}

impl<T> Index<u16> for SharedKeys<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: u16) -> &T {
        &self.known[usize::from(place)]
    }
}

impl<T> IndexMut<u16> for SharedKeys<T> {
    #[inline]
    fn index_mut(&mut self, place: u16) -> &mut T {
        &mut self.known[usize::from(place)]
    }
}

/// Adds one. A list that is full grows by an eighth, not to twice its size.
fn push<T>(list: &mut Vec<T>, one: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(ROOM + list.len() / 8);
    }
    list.push(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyed for KeyHash {
        fn key(&self) -> KeyHash {
            *self
        }
    }

    fn key(i: u64) -> KeyHash {
        KeyHash::of_number(i)
    }

    #[test]
    fn keys_are_found_until_they_are_forgotten_and_places_are_used_again() {
        let mut keys = SharedKeys::default();
        let places: Vec<u16> = (0..1_000).map(|i| keys.add(key(i))).collect();
        (0..1_000).step_by(2).for_each(|i| keys.forget(places[i]));
        keys.forget(places[0]);
        assert_eq!(keys.len(), 500);
        assert!((0..1_000).all(|i| keys.find(key(i)) == (i % 2 == 1).then_some(places[i as usize])));
        (1_000..1_500).for_each(|i| assert!(keys.add(key(i)) < 1_000));
        assert!((1_000..1_500).all(|i| keys.find(key(i)).is_some_and(|place| keys[place] == key(i))));
    }

    /// Few keys of many take as little memory as few alone, and all are found at their new places.
    #[test]
    fn memory_comes_back() {
        let mut keys = SharedKeys::default();
        (0..30_000).for_each(|i| _ = keys.add(key(i)));
        let (large, before) = (keys.memory_bytes(), keys.clone());
        assert_eq!(keys.close_ranks(), None, "all are needed");
        (0..30_000).filter(|i| i % 100 > 0).for_each(|i| keys.forget(keys.find(key(i)).unwrap()));
        let old = keys.close_ranks().unwrap();
        assert_eq!((keys.len(), old.len()), (300, 300));
        assert!((0..300).all(|new| keys[new] == before[old[usize::from(new)]] && keys.find(keys[new]) == Some(new)));
        assert!(keys.memory_bytes() < large / 50, "{large} bytes before, now {}", keys.memory_bytes());
    }
}
