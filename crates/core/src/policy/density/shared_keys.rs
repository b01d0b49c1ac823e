//! The sampled keys that any of some miniature caches holds, once for all of these: found by key, at numbered places.
//!
//! What a key has shown is the same in each cache, so one look-up finds it for all. Which caches hold it they know
//! themselves, by a bit for each place (`places.rs`). Cost: one look-up; some 40 bytes a key.

use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use super::history::Feature;
use super::model::when;
use super::ranking::Subject;
use crate::access::{Access, Op};
use crate::model::key_map::spread;
use crate::units::{KeyHash, PartitionId};

/// So many keys have a place, at the most: who adds more has to forget others first.
pub const KEYS_MAX: usize = 1 << 15;
/// Room for so many keys more is never given back.
const KEPT_ROOM_FOR: usize = 256;
/// A list that is full grows by so many, and by an eighth.
const ROOM: usize = 64;
/// Stands for no expiry, or one that is further away than can be told.
const NEVER: u32 = u32::MAX;

/// A sampled key: its [`Subject`], packed, whose it is, and how many caches hold it. Of times the lower half is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Known {
    pub key: KeyHash,
    last: u32,
    /// Ticks from then until it expires.
    lives: u32,
    pub size_bytes: u32,
    pub penalty_us: f32,
    feature: Feature,
    pub partition: u8,
    pub n_held: u8,
}

const _: () = assert!(size_of::<Known>() == 32);

impl Known {
    /// A key at its access at `now`; `feature` is what it has shown with it, `expires` when its value does, in ticks.
    pub fn new(access: &Access, partition: PartitionId, (now, feature, expires): (u64, Feature, u64)) -> Known {
        let Access { key, size_bytes, penalty_us, .. } = *access;
        let (last, lives) = (now as u32, until(expires, now));
        let partition = partition.index() as u8;
        Known { key, last, lives, size_bytes, penalty_us, feature, partition, n_held: 0 }
    }

    /// When it was last accessed: at most 2^32 ticks before `now`.
    #[inline]
    pub fn last(&self, now: u64) -> u64 {
        when(self.last, now)
    }

    /// When it expires.
    #[inline]
    fn expires(&self, now: u64) -> u64 {
        if self.lives == NEVER { u64::MAX } else { self.last(now) + u64::from(self.lives) }
    }

    /// What it is ranked by at `now`.
    #[inline]
    pub fn subject(&self, now: u64) -> Subject {
        let Known { feature, size_bytes, penalty_us, .. } = *self;
        Subject { feature, last: self.last(now), expires: self.expires(now), size_bytes, penalty_us }
    }
}

/// Ticks until then; [`NEVER`] where they are more than 2^32.
fn until(expires: u64, now: u64) -> u32 {
    expires.saturating_sub(now).min(NEVER.into()) as u32
}

/// The keys. See the file's opening.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedKeys {
    known: Vec<Known>,
    place_of: HashTable<u16>,
    free: Vec<u16>,
}

impl SharedKeys {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.place_of.len()
    }

    /// Their places, in no order.
    pub fn places(&self) -> impl Iterator<Item = u16> {
        self.place_of.iter().copied()
    }

    /// The places of those that `takes` leaves out.
    pub fn left_out(&self, takes: impl Fn(KeyHash) -> bool) -> Vec<u16> {
        self.places().filter(|&place| !takes(self[place].key)).collect()
    }

    /// Where a key is; `None` where it is nowhere.
    #[inline]
    pub fn find(&self, key: KeyHash) -> Option<u16> {
        self.place_of.find(spread(key.0), |&place| self[place].key == key).copied()
    }

    /// Where the key of an access at `now` is: first where its value is there, then where it is to be forgotten before,
    /// being deleted or having expired.
    #[inline]
    pub fn held_or_gone(&self, access: &Access, now: u64) -> (Option<u16>, Option<u16>) {
        let found = self.find(access.key);
        let is_gone = |place: u16| access.op == Op::Delete || self[place].expires(now) <= now;
        if found.is_some_and(is_gone) { (None, found) } else { (found, None) }
    }

    /// A key, which is at `held` or nowhere, is known as `new` from now on, as this operation leaves it: where it is,
    /// and what it was known as. One that is added is in no cache yet.
    #[inline]
    pub fn note(&mut self, held: Option<u16>, op: Op, new: Known, now: u64) -> (u16, Option<Known>) {
        let Some(place) = held else { return (self.add(new), None) };
        let before = self[place];
        self[place] = Known { n_held: before.n_held, ..new };
        // Of a value that is there, a read leaves the expiry as it was.
        if op == Op::Read {
            self[place].lives = until(before.expires(now), now);
        }
        (place, Some(before))
    }

    /// Adds a key that is nowhere.
    fn add(&mut self, new: Known) -> u16 {
        debug_assert!(self.find(new.key).is_none());
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
        let hash = |&place: &u16| spread(known[usize::from(place)].key.0);
        self.place_of.insert_unique(spread(new.key.0), place, hash);
        place
    }

    /// The key at `place` is held by no cache any more.
    pub fn forget(&mut self, place: u16) {
        if let Ok(found) = self.place_of.find_entry(spread(self[place].key.0), |&one| one == place) {
            found.remove();
            push(&mut self.free, place);
        }
    }

    /// Gives back what memory was only needed for many more keys. Where it does, the keys have other places: their old
    /// ones in the order of the new.
    pub fn close_ranks(&mut self) -> Option<Vec<u16>> {
        if self.known.capacity() <= self.len() + self.len() / 2 + KEPT_ROOM_FOR {
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
        self.known.capacity() * size_of::<Known>()
            + self.place_of.allocation_size()
            + self.free.capacity() * size_of::<u16>()
    }
}

impl Index<u16> for SharedKeys {
    type Output = Known;

    #[inline]
    fn index(&self, place: u16) -> &Known {
        &self.known[usize::from(place)]
    }
}

impl IndexMut<u16> for SharedKeys {
    #[inline]
    fn index_mut(&mut self, place: u16) -> &mut Known {
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

    fn key(i: u64) -> KeyHash {
        KeyHash::of_number(i)
    }

    fn known(i: u64) -> Known {
        Known::new(&Access::read(key(i), 10), PartitionId(0), (0, Feature::default(), u64::MAX))
    }

    #[test]
    fn keys_are_found_until_they_are_forgotten_and_places_are_used_again() {
        let mut keys = SharedKeys::default();
        let places: Vec<u16> = (0..1_000).map(|i| keys.add(known(i))).collect();
        (0..1_000).step_by(2).for_each(|i| keys.forget(places[i]));
        keys.forget(places[0]);
        assert_eq!(keys.len(), 500);
        assert!((0..1_000).all(|i| keys.find(key(i)) == (i % 2 == 1).then_some(places[i as usize])));
        (1_000..1_500).for_each(|i| assert!(keys.add(known(i)) < 1_000));
        assert!((1_000..1_500).all(|i| keys.find(key(i)).is_some_and(|place| keys[place].key == key(i))));
    }

    /// Few keys of many take as little memory as few alone, and all are found at their new places.
    #[test]
    fn memory_comes_back() {
        let mut keys = SharedKeys::default();
        (0..30_000).for_each(|i| _ = keys.add(known(i)));
        let (large, before) = (keys.memory_bytes(), keys.clone());
        assert_eq!(keys.close_ranks(), None, "all are needed");
        let mut some = keys.clone();
        (0..12_000).for_each(|i| some.forget(some.find(key(i)).unwrap()));
        assert!(some.close_ranks().is_some() && some.memory_bytes() < large * 4 / 5, "three fifths are left");
        (0..30_000).filter(|i| i % 100 > 0).for_each(|i| keys.forget(keys.find(key(i)).unwrap()));
        let old = keys.close_ranks().unwrap();
        assert_eq!((keys.len(), old.len()), (300, 300));
        let is_there = |new| keys[new] == before[old[usize::from(new)]] && keys.find(keys[new].key) == Some(new);
        assert!((0..300).all(is_there));
        assert!(keys.memory_bytes() < large / 50, "{large} bytes before, now {}", keys.memory_bytes());
    }

    /// Times are told right across the 2^32 ticks of which the lower half of one tells; a read leaves an expiry.
    #[test]
    fn times_are_whole_though_half_of_each_is_kept() {
        const WRAP: u64 = 1 << 32;
        for (start, lives, gap) in [(WRAP - 5, 100, 20), (7 * WRAP + 3, WRAP - 2, WRAP - 3), (0, 2, 1)] {
            let mut keys = SharedKeys::default();
            let noted = |op, now, expires| {
                let access = Access { op, ..Access::read(key(1), 10) };
                (op, Known::new(&access, PartitionId(0), (now, Feature::default(), expires)), now)
            };
            let note = |keys: &mut SharedKeys, (op, known, now)| keys.note(keys.find(key(1)), op, known, now).0;
            let place = note(&mut keys, noted(Op::Write, start, start + lives));
            let gone = |keys: &SharedKeys, now| keys.held_or_gone(&Access::read(key(1), 10), now).1;
            let subject = keys[place].subject(start + gap);
            assert_eq!((subject.last, subject.expires), (start, start + lives));
            assert_eq!((gone(&keys, start + gap), gone(&keys, start + lives)), (None, Some(place)));
            note(&mut keys, noted(Op::Read, start + gap, u64::MAX));
            let subject = keys[place].subject(start + gap);
            assert_eq!((subject.last, subject.expires), (start + gap, start + lives));
            note(&mut keys, noted(Op::Write, start + gap, u64::MAX));
            assert_eq!((keys[place].subject(start + lives).expires, gone(&keys, start + lives)), (u64::MAX, None));
        }
    }
}
