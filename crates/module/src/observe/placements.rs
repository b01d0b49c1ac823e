//! Who is accessed in which tier of memory: noted as commands come, told to the placement policy in batches.
//!
//! The table of keys knows of each value where it lies (`Entry::placed`) and when it was last accessed, so a look
//! into it tells the tier of a hit and its reuse time, without opening the key. It is taken as the access is put into
//! the table ([`super::classes::Classes::settle`]). Names of keys that are read are kept meanwhile, and those of slow
//! ones until a slice of moves has looked whether they go up. Cost: a copy of each name. 20 KiB, allocated once.

use tenure_core::access_ring::Beside;
use tenure_core::key_table::Entry;
use tenure_core::tiers::Tier;
use tenure_core::tiers::placer::{Placer, PlacerConfig};
use tenure_core::units::{KeyHash, PartitionId};

use super::command_table::Effect;

/// Bytes of names that wait.
const NAME_BYTES: usize = 8 << 10;
/// Bytes of the names of slow reads that are kept from one slice of moves to the next, and how many.
const SLOW_BYTES: usize = 8 << 10;
const SLOW_KEYS: usize = 64;

/// What is noted of an access beside its key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted {
    db: u16,
    partition: PartitionId,
    /// Where its name begins among those that wait, and how long it is; nothing but reads have one.
    name: (u16, u16),
    is_read: bool,
    /// Its value was put into slow memory before the command ran.
    is_stored_slow: bool,
}

/// A read of a slow value, whose name is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    key: KeyHash,
    noted: Noted,
    reuse: u64,
}

/// A slow value that was read.
#[derive(Clone, Copy, Debug)]
pub struct SlowRead<'a> {
    /// Its key's hash, with the database.
    pub key: KeyHash,
    /// Its name.
    pub name: &'a [u8],
    /// Its database.
    pub db: u16,
    /// Whose it is.
    pub partition: PartitionId,
    /// Ticks since it was accessed before.
    pub reuse: u64,
}

/// The names of the accesses under way, and the policy. See the file's opening.
#[derive(Debug)]
pub struct Placements {
    /// Who moves.
    pub placer: Placer,
    names: Vec<u8>,
    slow: Vec<Kept>,
    slow_names: Vec<u8>,
    /// Reads that found their value in the fast tier, of those whose reuse time is known.
    pub fast_reuses: u64,
    /// Reads that found their value in the slow tier.
    pub slow_hits: u64,
    /// Whose value the command that runs next stores in slow memory.
    pub stores_slow: Option<KeyHash>,
}

impl Placements {
    /// Nothing was seen yet.
    pub fn new(config: PlacerConfig) -> Placements {
        Placements {
            placer: Placer::new(config),
            names: Vec::with_capacity(NAME_BYTES),
            slow: Vec::with_capacity(SLOW_KEYS),
            slow_names: Vec::with_capacity(SLOW_BYTES),
            fast_reuses: 0,
            slow_hits: 0,
            stores_slow: None,
        }
    }

    /// True where there is room for that name beside those that wait.
    #[inline]
    pub fn has_room(&self, name: &[u8]) -> bool {
        self.names.len() + name.len() <= NAME_BYTES
    }

    /// A key is about to be accessed. A name that there is no room for isn't kept.
    #[inline]
    pub fn note(&mut self, key: KeyHash, name: &[u8], (db, partition): (u16, PartitionId), effect: Effect) -> Noted {
        let is_stored_slow = self.stores_slow.is_some_and(|stored| stored == key);
        self.stores_slow = None;
        let start = self.names.len();
        let is_read = effect == Effect::Read;
        // Only what is read is accessed by its name.
        if is_read && self.has_room(name) {
            self.names.extend_from_slice(name);
        }
        let name = (start as u16, (self.names.len() - start) as u16);
        Noted { db, partition, name, is_read, is_stored_slow }
    }

    /// What waited is in the table.
    pub fn settled(&mut self) {
        self.names.clear();
    }

    /// The slow values that were read since they were last forgotten, as far as there was room for their names.
    pub fn slow_reads(&self) -> impl Iterator<Item = SlowRead<'_>> {
        self.slow.iter().map(|Kept { key, noted, reuse }| SlowRead {
            key: *key,
            name: &self.slow_names[noted.name_range()],
            db: noted.db,
            partition: noted.partition,
            reuse: *reuse,
        })
    }

    /// Forgets them.
    pub fn forget_slow_reads(&mut self) {
        self.slow.clear();
        self.slow_names.clear();
    }
}

impl Noted {
    fn name_range(&self) -> std::ops::Range<usize> {
        let (start, length) = self.name;
        usize::from(start)..usize::from(start) + usize::from(length)
    }
}

/// Each access is looked at as it is put into the table.
impl Beside<Noted> for Placements {
    #[inline]
    fn before(&mut self, key: KeyHash, entry: &mut Entry, tick: u32, noted: &Noted) {
        let (tier, reuse) = (entry.placed().tier(), u64::from(tick.wrapping_sub(entry.last)));
        match (noted.is_read, tier) {
            (true, Tier::Fast) => {
                self.fast_reuses += 1;
                self.placer.accessed(noted.partition, tier, reuse);
            }
            (true, Tier::Slow) => self.read_slow(key, noted, reuse),
            // The server allocates a new value where new values go; where it doesn't, the walk finds out.
            (false, Tier::Slow) => entry.set_placed(entry.placed().written()),
            (false, Tier::Fast) => {}
        }
    }

    /// Newcomers that were stored in slow memory are there too.
    #[inline]
    fn after(&mut self, entry: &mut Entry, noted: &Noted) {
        if noted.is_stored_slow {
            entry.set_placed(entry.placed().found_in(Tier::Slow));
        }
    }
}

impl Placements {
    #[inline(never)]
    fn read_slow(&mut self, key: KeyHash, noted: &Noted, reuse: u64) {
        self.slow_hits += 1;
        // Noted by another policy's placements, it has no name here.
        let name = self.names.get(noted.name_range()).unwrap_or_default();
        if name.is_empty() || self.slow.len() >= SLOW_KEYS || self.slow_names.len() + name.len() > SLOW_BYTES {
            return;
        }
        let kept = (self.slow_names.len() as u16, name.len() as u16);
        self.slow_names.extend_from_slice(name);
        self.slow.push(Kept { key, noted: Noted { name: kept, ..*noted }, reuse });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::access_ring::{AccessRing, Kind};
    use tenure_core::key_table::KeyTable;
    use tenure_core::tiers::placed::Placed;

    const P: PartitionId = PartitionId(2);

    /// A table in which the first key is slow and the second fast.
    struct Bench {
        keys: KeyTable,
        accesses: AccessRing<Noted>,
        placements: Placements,
    }

    impl Bench {
        fn new() -> Bench {
            let mut keys = KeyTable::new(1 << 14);
            for (number, placed) in [(1, Placed::moved(Tier::Slow, 1)), (2, Placed::default())] {
                let entry = keys.get_or_insert(KeyHash::of_number(number), 10);
                entry.n_requests = 1;
                entry.set_placed(placed);
            }
            let mut accesses = AccessRing::default();
            for _ in 0..25 * 8 {
                accesses.push(KeyHash::of_number(99), Kind::Deleted, Noted::default());
                accesses.settle_with(&mut keys, &mut Placements::new(PlacerConfig::default()));
            }
            Bench { keys, accesses, placements: Placements::new(PlacerConfig::default()) }
        }

        fn note(&mut self, number: u64, name: &[u8], effect: Effect) {
            let key = KeyHash::of_number(number);
            let noted = self.placements.note(key, name, (3, P), effect);
            self.accesses.push(key, Kind::Accessed, noted);
        }

        fn settle(&mut self) {
            self.accesses.settle_with(&mut self.keys, &mut self.placements);
            self.placements.settled();
        }

        fn tier(&self, number: u64) -> Tier {
            self.keys.get(KeyHash::of_number(number)).unwrap().placed().tier()
        }
    }

    #[test]
    fn a_read_of_a_slow_value_is_kept_with_its_reuse_time() {
        let mut bench = Bench::new();
        bench.note(1, b"slow", Effect::Read);
        bench.note(2, b"fast", Effect::Read);
        bench.note(3, b"unknown", Effect::Read);
        bench.settle();
        let reads = |bench: &Bench| {
            let reads = bench.placements.slow_reads();
            reads.map(|read| (read.name.to_vec(), read.db, read.reuse)).collect::<Vec<_>>()
        };
        assert_eq!(reads(&bench), [(b"slow".to_vec(), 3, 15)]);
        assert_eq!((bench.placements.slow_hits, bench.placements.fast_reuses), (1, 1));
        bench.settle();
        assert_eq!(bench.placements.slow_hits, 1, "each access is looked at once");
        bench.placements.forget_slow_reads();
        assert!(reads(&bench).is_empty());
    }

    #[test]
    fn what_is_written_is_fast() {
        let mut bench = Bench::new();
        bench.note(1, b"slow", Effect::Replace);
        bench.settle();
        assert_eq!(bench.tier(1), Tier::Fast);
        assert_eq!((bench.placements.slow_hits, bench.placements.slow_reads().count()), (0, 0));
    }

    /// Stored in slow memory it is slow, whether it was or is new; the next write of another isn't.
    #[test]
    fn what_is_stored_in_slow_memory_is_slow() {
        let mut bench = Bench::new();
        for number in [1, 2, 4] {
            bench.placements.stores_slow = Some(KeyHash::of_number(number));
            bench.note(number, b"k", Effect::Replace);
        }
        bench.note(3, b"k", Effect::Replace);
        bench.settle();
        assert_eq!([1, 2, 3, 4].map(|number| bench.tier(number)), [Tier::Slow, Tier::Slow, Tier::Fast, Tier::Slow]);
    }

    #[test]
    fn no_more_names_are_kept_than_there_is_room_for() {
        let mut bench = Bench::new();
        bench.note(1, &[b'k'; 100_000], Effect::Read);
        assert!(bench.placements.has_room(b"k"));
        bench.note(1, &[b'k'; NAME_BYTES], Effect::Read);
        assert!(!bench.placements.has_room(b"k"));
        bench.note(1, b"k", Effect::Read);
        bench.settle();
        assert_eq!((bench.placements.slow_hits, bench.placements.slow_reads().count()), (3, 1));
        assert!(bench.placements.has_room(b"k"));
        bench.placements.forget_slow_reads();
        for _ in 0..=SLOW_KEYS {
            bench.note(1, b"k", Effect::Read);
            bench.settle();
        }
        assert_eq!(bench.placements.slow_reads().count(), SLOW_KEYS);
    }
}
