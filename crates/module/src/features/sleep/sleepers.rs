//! Who is asleep: the keys whose values lie on disk, and where. About 100 bytes and the name for each, 30 more
//! where it expires, and 30 in a cluster.
//!
//! Beside them those whose value has ended, which clients haven't been told yet: given up, all of a folder at once
//! maybe, so that they are told over many turns. Until then a command that names one is told apart from one that
//! names a key never heard of.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use tenure_core::slots::slot_of;
use tenure_core::units::{KeyHash, PartitionId};

use super::file::{Place, WARM};
use crate::observe::owners::User;

/// A key asleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleeper {
    /// Its database.
    pub db: u16,
    /// Its name.
    pub name: Box<[u8]>,
    /// Where its value lies.
    pub place: Place,
    /// When it expires, in ms since 1970; 0 = never.
    pub expires_at_ms: u64,
    /// Where it belonged when it fell asleep.
    pub partition: PartitionId,
    /// Whose it is.
    pub owner: User,
}

impl Sleeper {
    /// True where its time to live is over, at so many ms since 1970.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.expires_at_ms > 0 && self.expires_at_ms <= now_ms
    }
}

/// Keys are hashes already.
#[derive(Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = self.0.rotate_left(8) ^ u64::from(b));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type ByHash<T> = HashMap<u64, T, BuildHasherDefault<AsIs>>;

/// What of a segment is still in use.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    bytes: u64,
    live_bytes: u64,
}

/// All sleepers. See the file's opening.
#[derive(Default)]
pub struct Sleepers {
    by_hash: ByHash<Sleeper>,
    /// By partition, in the order in which they fell asleep; some may have woken since.
    order: HashMap<PartitionId, Vec<u64>>,
    segments: HashMap<u32, Segment>,
    live_bytes: u64,
    /// By partition.
    keys: HashMap<PartitionId, usize>,
    /// Those that expire, the next first: when, and the key's hash.
    by_expiry: BTreeSet<(u64, u64)>,
    /// On a node of a cluster, each one's slot and hash.
    by_slot: Option<BTreeSet<(u16, u64)>>,
    given_up: ByHash<Sleeper>,
    /// Their hashes, in the order in which they are told; some may have been told since.
    to_tell: Vec<u64>,
}

impl Sleepers {
    /// True where any key is asleep, or was and its end is still to be told.
    #[inline]
    pub fn any(&self) -> bool {
        !self.by_hash.is_empty() || !self.given_up.is_empty()
    }

    /// True where values have ended that are still to be told, at so many ms since 1970.
    pub fn have_ended(&self, now_ms: u64) -> bool {
        !self.given_up.is_empty() || self.by_expiry.first().is_some_and(|&(at_ms, _)| at_ms <= now_ms)
    }

    /// The next whose value has ended, no longer remembered; `None` where there is none.
    pub fn take_ended(&mut self, now_ms: u64) -> Option<Sleeper> {
        while let Some(hash) = self.to_tell.pop() {
            if let Some(sleeper) = self.given_up.remove(&hash) {
                return Some(sleeper);
            }
        }
        let &(at_ms, hash) = self.by_expiry.first()?;
        if at_ms <= now_ms { self.remove(KeyHash(hash)) } else { None }
    }

    /// That very key, no longer remembered, where its value has ended.
    pub fn take_if_ended(&mut self, key: KeyHash, now_ms: u64) -> Option<Sleeper> {
        if let Some(sleeper) = self.given_up.remove(&key.0) {
            return Some(sleeper);
        }
        self.get(key).is_some_and(|sleeper| sleeper.is_over(now_ms)).then(|| self.remove(key))?
    }

    /// Keys asleep.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Bytes of their records.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes of all segments, those no longer needed too.
    pub fn disk_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// Keys of one partition that are asleep.
    pub fn of(&self, partition: PartitionId) -> usize {
        self.keys.get(&partition).copied().unwrap_or(0)
    }

    /// The key of that hash (database mixed in), if it sleeps.
    #[inline]
    pub fn get(&self, key: KeyHash) -> Option<&Sleeper> {
        self.by_hash.get(&key.0)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Sleeper> {
        self.by_hash.values()
    }

    /// True where that very key sleeps: its hash could be another's too.
    pub fn has(&self, key: KeyHash, db: u16, name: &[u8]) -> bool {
        self.get(key).is_some_and(|sleeper| sleeper.db == db && *sleeper.name == *name)
    }

    /// True where that very key sleeps, or did and its end is still to be told.
    pub fn knows(&self, key: KeyHash, db: u16, name: &[u8]) -> bool {
        let is_it = |sleeper: &Sleeper| sleeper.db == db && *sleeper.name == *name;
        self.get(key).is_some_and(is_it) || self.given_up.get(&key.0).is_some_and(is_it)
    }

    /// The same of a key whose name isn't at hand.
    pub fn knows_hash(&self, key: KeyHash) -> bool {
        self.by_hash.contains_key(&key.0) || self.given_up.contains_key(&key.0)
    }

    /// A key falls asleep. False where one of the same hash sleeps already.
    pub fn add(&mut self, key: KeyHash, sleeper: Sleeper) -> bool {
        let (place, partition) = (sleeper.place, sleeper.partition);
        if self.by_hash.contains_key(&key.0) {
            return false;
        }
        if sleeper.expires_at_ms > 0 {
            self.by_expiry.insert((sleeper.expires_at_ms, key.0));
        }
        if let Some(by_slot) = &mut self.by_slot {
            by_slot.insert((slot_of(&sleeper.name), key.0));
        }
        self.by_hash.insert(key.0, sleeper);
        self.order.entry(partition).or_default().push(key.0);
        *self.keys.entry(partition).or_default() += 1;
        self.segments.entry(place.segment).or_default().live_bytes += u64::from(place.len);
        self.live_bytes += u64::from(place.len);
        true
    }

    /// So many bytes were written to a segment, whether or not they will be needed.
    pub fn written(&mut self, place: Place) {
        self.segments.entry(place.segment).or_default().bytes += u64::from(place.len);
    }

    /// A key no longer sleeps.
    pub fn remove(&mut self, key: KeyHash) -> Option<Sleeper> {
        let sleeper = self.by_hash.remove(&key.0)?;
        self.by_expiry.remove(&(sleeper.expires_at_ms, key.0));
        if let Some(by_slot) = &mut self.by_slot {
            by_slot.remove(&(slot_of(&sleeper.name), key.0));
        }
        let len = u64::from(sleeper.place.len);
        if let Some(keys) = self.keys.get_mut(&sleeper.partition) {
            *keys = keys.saturating_sub(1);
        }
        if let Some(segment) = self.segments.get_mut(&sleeper.place.segment) {
            segment.live_bytes = segment.live_bytes.saturating_sub(len);
        }
        self.live_bytes = self.live_bytes.saturating_sub(len);
        if self.by_hash.is_empty() {
            // Nobody sleeps: what the tables took is better used by those awake.
            (self.by_hash, self.order) = Default::default();
        }
        Some(sleeper)
    }

    /// The same, where `is_wanted`.
    pub fn remove_if(&mut self, key: KeyHash, is_wanted: bool) -> Option<Sleeper> {
        if is_wanted { self.remove(key) } else { None }
    }

    /// The key of a partition that fell asleep last, the hottest of those left; it still sleeps, but is listed no more.
    pub fn next_to_wake(&mut self, partition: PartitionId) -> Option<KeyHash> {
        let order = self.order.get_mut(&partition)?;
        while let Some(hash) = order.pop() {
            if self.by_hash.get(&hash).is_some_and(|sleeper| sleeper.partition == partition) {
                return Some(KeyHash(hash));
            }
        }
        None
    }

    /// A key that was to wake sleeps on.
    pub fn list_again(&mut self, key: KeyHash) {
        if let Some(sleeper) = self.by_hash.get(&key.0) {
            self.order.entry(sleeper.partition).or_default().push(key.0);
        }
    }

    /// The segment that is being written.
    fn newest(&self) -> Option<u32> {
        self.segments.keys().filter(|number| **number != WARM).max().copied()
    }

    /// Segments, but for the newest, that nobody needs any more.
    pub fn take_empty_segments(&mut self) -> Vec<u32> {
        let newest = self.newest();
        let is_empty = |(&number, segment): (&u32, &Segment)| (segment.live_bytes == 0).then_some(number);
        let empty: Vec<u32> = self.segments.iter().filter_map(is_empty).filter(|n| Some(*n) != newest).collect();
        self.segments.retain(|number, _| !empty.contains(number));
        empty
    }

    /// Gives up the sleepers of the segment with the least that is still in use, the newest excepted; `None` where
    /// there is no other. Cost: all sleepers are looked at.
    pub fn give_up_segment(&mut self) -> Option<u32> {
        let newest = self.newest();
        let others = self.segments.iter().filter(|(number, _)| Some(**number) != newest);
        let number = *others.min_by_key(|(_, segment)| segment.live_bytes)?.0;
        let is_there = |(hash, sleeper): (&u64, &Sleeper)| (sleeper.place.segment == number).then_some(*hash);
        let hashes: Vec<u64> = self.by_hash.iter().filter_map(is_there).collect();
        hashes.into_iter().for_each(|hash| self.give_up(hash));
        self.segments.remove(&number);
        Some(number)
    }

    fn give_up(&mut self, hash: u64) {
        if let Some(sleeper) = self.remove(KeyHash(hash)) {
            self.given_up.insert(hash, sleeper);
            self.to_tell.push(hash);
        }
    }

    /// On a node of a cluster: the slot of each is known from now on.
    pub fn know_slots(&mut self) {
        let slots = self.by_hash.iter().map(|(hash, sleeper)| (slot_of(&sleeper.name), *hash));
        self.by_slot = Some(slots.collect());
    }

    /// Those of the slots that are `meant`. Cost: each slot with sleepers is asked for, and those are looked at.
    pub fn of_slots(&self, mut are_meant: impl FnMut(u16) -> bool) -> Vec<KeyHash> {
        let (mut found, mut from) = (Vec::new(), 0);
        let Some(by_slot) = &self.by_slot else { return found };
        while let Some(&(slot, _)) = by_slot.range((from, 0)..).next() {
            if are_meant(slot) {
                found.extend(by_slot.range((slot, 0)..=(slot, u64::MAX)).map(|&(_, hash)| KeyHash(hash)));
            }
            from = slot + 1;
        }
        found
    }

    /// Gives up those of the slots that are `meant`: how many.
    pub fn give_up_slots(&mut self, are_meant: impl FnMut(u16) -> bool) -> usize {
        let hashes = self.of_slots(are_meant);
        hashes.iter().for_each(|key| self.give_up(key.0));
        hashes.len()
    }

    /// Gives up all; their files are no longer needed. Cost: their hashes are copied.
    pub fn give_up_all(&mut self) {
        let asleep = std::mem::take(&mut self.by_hash);
        self.to_tell.extend(asleep.keys());
        match self.given_up.is_empty() {
            true => self.given_up = asleep,
            false => self.given_up.extend(asleep),
        }
        (self.order, self.keys, self.by_expiry) = Default::default();
        self.by_slot.iter_mut().for_each(BTreeSet::clear);
        self.segments.values_mut().for_each(|segment| segment.live_bytes = 0);
        self.live_bytes = 0;
    }

    /// The files are no more.
    pub fn forget_segments(&mut self) {
        self.segments.clear();
    }

    /// Forgets the keys that `gone` says are no more, as when a database is emptied, those given up too; `tell` hears
    /// of each.
    pub fn forget_where(&mut self, gone: impl Fn(&Sleeper) -> bool, mut tell: impl FnMut(&Sleeper)) {
        let hashes: Vec<u64> = self.by_hash.iter().filter(|(_, s)| gone(s)).map(|(hash, _)| *hash).collect();
        hashes.into_iter().filter_map(|hash| self.remove(KeyHash(hash))).for_each(|sleeper| tell(&sleeper));
        self.given_up.retain(|_, sleeper| {
            let is_gone = gone(sleeper);
            if is_gone {
                tell(sleeper);
            }
            !is_gone
        });
    }

    /// A key is in memory again, whatever became of its value on disk.
    pub fn is_awake(&mut self, key: KeyHash, db: u16, name: &[u8]) {
        if self.knows(key, db, name) {
            self.remove(key);
            self.given_up.remove(&key.0);
        }
    }

    /// Tells each key's partition anew, also that of keys which are listed no more. Cost: all sleepers are looked at.
    pub fn divide_anew(&mut self, mut of: impl FnMut(&Sleeper) -> PartitionId) {
        self.keys.clear();
        for sleeper in self.by_hash.values_mut() {
            sleeper.partition = of(sleeper);
            *self.keys.entry(sleeper.partition).or_default() += 1;
        }
        for hash in std::mem::take(&mut self.order).into_values().flatten() {
            if let Some(sleeper) = self.by_hash.get(&hash) {
                self.order.entry(sleeper.partition).or_default().push(hash);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(i: u64, segment: u32) -> (KeyHash, Sleeper) {
        let name = format!("key:{i}").into_bytes();
        let place = Place { segment, offset: 0, len: 100 };
        let hash = KeyHash::of(&name);
        let partition = PartitionId((i % 2) as u16);
        (hash, Sleeper { db: 0, name: name.into(), place, expires_at_ms: 0, partition, owner: 0 })
    }

    fn sleepers(n: u64) -> Sleepers {
        let mut sleepers = Sleepers::default();
        for i in 0..n {
            let (hash, sleeper) = sleeper(i, 1 + (i / 10) as u32);
            sleepers.written(sleeper.place);
            assert!(sleepers.add(hash, sleeper));
        }
        sleepers
    }

    #[test]
    fn the_last_to_fall_asleep_wakes_first_and_those_awake_are_passed_over() {
        let mut sleepers = sleepers(10);
        let hash = |i: u64| KeyHash::of(format!("key:{i}").as_bytes());
        sleepers.remove(hash(7)).unwrap();
        assert_eq!(sleepers.next_to_wake(PartitionId(1)), Some(hash(9)));
        assert_eq!(sleepers.next_to_wake(PartitionId(1)), Some(hash(5)));
        sleepers.list_again(hash(5));
        assert_eq!(sleepers.next_to_wake(PartitionId(1)), Some(hash(5)));
        assert!(sleepers.has(hash(5), 0, b"key:5") && !sleepers.has(hash(5), 1, b"key:5"));
        assert_eq!((sleepers.len(), sleepers.live_bytes()), (9, 900));
        assert!(!sleepers.add(hash(5), sleeper(5, 1).1), "it sleeps already");
    }

    #[test]
    fn segments_go_when_nobody_needs_them_or_when_there_is_no_room() {
        let mut sleepers = sleepers(40);
        (0..10).for_each(|i| drop(sleepers.remove(sleeper(i, 1).0)));
        (10..15).for_each(|i| drop(sleepers.remove(sleeper(i, 2).0)));
        assert_eq!(sleepers.disk_bytes(), 4000);
        assert_eq!(sleepers.take_empty_segments(), [1]);
        assert_eq!(sleepers.give_up_segment(), Some(2));
        assert_eq!((sleepers.len(), sleepers.live_bytes(), sleepers.disk_bytes()), (20, 2000, 2000));
        assert_eq!(sleepers.give_up_segment(), Some(3));
        assert_eq!(sleepers.give_up_segment(), None, "the newest stays");
    }

    #[test]
    fn an_emptied_database_takes_its_sleepers_with_it() {
        let mut sleepers = sleepers(10);
        sleepers.divide_anew(|_| PartitionId(5));
        assert_eq!((sleepers.of(PartitionId(5)), sleepers.of(PartitionId(0))), (10, 0));
        let mut told = 0;
        sleepers.forget_where(|sleeper| sleeper.db == 0, |_| told += 1);
        assert!(!sleepers.any() && sleepers.live_bytes() == 0 && told == 10);
    }

    #[test]
    fn whose_value_has_ended_is_remembered_until_it_is_told() {
        let mut sleepers = sleepers(10);
        for i in 0..4 {
            let (hash, mut late) = sleeper(i, 1);
            sleepers.remove(hash).unwrap();
            late.expires_at_ms = 100 - i;
            assert!(sleepers.add(hash, late));
        }
        assert!(!sleepers.have_ended(96) && sleepers.take_ended(96).is_none());
        assert_eq!(*sleepers.take_ended(98).unwrap().name, *b"key:3");
        assert!(sleepers.take_if_ended(sleeper(1, 1).0, 98).is_none(), "not yet");
        assert_eq!(*sleepers.take_if_ended(sleeper(2, 1).0, 98).unwrap().name, *b"key:2");
        sleepers.give_up_all();
        assert_eq!((sleepers.len(), sleepers.live_bytes(), sleepers.of(PartitionId(0))), (0, 0, 0));
        let hash = sleeper(5, 1).0;
        assert!(sleepers.any() && sleepers.have_ended(0) && !sleepers.has(hash, 0, b"key:5"));
        assert!(sleepers.knows(hash, 0, b"key:5") && sleepers.take_if_ended(hash, 0).is_some());
        sleepers.is_awake(sleeper(6, 1).0, 0, b"key:6");
        assert_eq!(std::iter::from_fn(|| sleepers.take_ended(0)).count(), 6);
        assert!(!sleepers.any());
    }

    #[test]
    fn sleepers_of_a_slot_are_found_and_given_up() {
        let mut sleepers = sleepers(20);
        sleepers.know_slots();
        let all: Vec<u16> = (0..20).map(|i| slot_of(format!("key:{i}").as_bytes())).collect();
        let (hash, _) = sleeper(3, 1);
        assert_eq!(sleepers.of_slots(|slot| slot == all[3]), [hash]);
        assert_eq!(sleepers.of_slots(|_| true).len(), 20);
        assert_eq!(sleepers.give_up_slots(|slot| slot == all[3]), 1);
        assert!(sleepers.get(hash).is_none() && sleepers.knows(hash, 0, b"key:3") && sleepers.have_ended(0));
        let (other, value) = sleeper(4, 1);
        sleepers.remove(other);
        assert_eq!(sleepers.of_slots(|_| true).len(), 18, "it woke");
        sleepers.add(other, value);
        assert_eq!(sleepers.of_slots(|slot| slot == all[4]), [other]);
        sleepers.give_up_all();
        assert!(sleepers.of_slots(|_| true).is_empty());
    }
}
