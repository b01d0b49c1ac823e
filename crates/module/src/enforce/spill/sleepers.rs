//! Who is asleep: the keys whose values lie on disk, and where. About 100 bytes and the name for each.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

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
}

impl Sleepers {
    /// True where any key is asleep.
    #[inline]
    pub fn any(&self) -> bool {
        !self.by_hash.is_empty()
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

    /// A key falls asleep. False where one of the same hash sleeps already.
    pub fn add(&mut self, key: KeyHash, sleeper: Sleeper) -> bool {
        let (place, partition) = (sleeper.place, sleeper.partition);
        if self.by_hash.contains_key(&key.0) {
            return false;
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

    /// Forgets the sleepers of the segment with the least that is still in use, the newest excepted; `None` where there is no
    /// other. Cost: all sleepers are looked at.
    pub fn give_up_segment(&mut self) -> Option<u32> {
        let newest = self.newest();
        let others = self.segments.iter().filter(|(number, _)| Some(**number) != newest);
        let number = *others.min_by_key(|(_, segment)| segment.live_bytes)?.0;
        self.forget_where(|sleeper| sleeper.place.segment == number);
        self.segments.remove(&number);
        Some(number)
    }

    /// Forgets the keys that `gone` says are no more, as when a database is emptied.
    pub fn forget_where(&mut self, gone: impl Fn(&Sleeper) -> bool) {
        let hashes: Vec<u64> = self.by_hash.iter().filter(|(_, s)| gone(s)).map(|(hash, _)| *hash).collect();
        hashes.into_iter().for_each(|hash| drop(self.remove(KeyHash(hash))));
    }

    /// Tells each key's partition anew.
    pub fn divide_anew(&mut self, mut of: impl FnMut(&Sleeper) -> PartitionId) {
        let orders: Vec<Vec<u64>> = std::mem::take(&mut self.order).into_values().collect();
        self.keys.clear();
        for hash in orders.into_iter().flatten() {
            if let Some(sleeper) = self.by_hash.get_mut(&hash) {
                sleeper.partition = of(sleeper);
                *self.keys.entry(sleeper.partition).or_default() += 1;
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
        sleepers.forget_where(|sleeper| sleeper.db == 0);
        assert!(!sleepers.any() && sleepers.live_bytes() == 0);
    }
}
