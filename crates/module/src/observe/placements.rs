//! Who is asked for in which tier of memory: noted as commands come, told to the placement policy in batches.
//!
//! The table of keys knows of each value where it lies (`Entry::placed`) and when it was last asked for, so a look into it tells the
//! tier of a hit and its reuse time, without opening the key. That look waits for memory; it is taken when accesses are put into the
//! table anyway ([`super::classes::Classes::settle`]), for all that wait at once. Names of keys that are read are kept meanwhile, and those
//! of slow ones until a slice of moves has looked whether they go up.
//! Cost: a copy of each name, and a look at a cache line that the table needs too. 24 KiB, allocated once.

use tenure_core::key_table::KeyTable;
use tenure_core::tiers::Tier;
use tenure_core::tiers::placer::{Placer, PlacerConfig};
use tenure_core::units::{KeyHash, PartitionId};

use super::command_table::Effect;

/// Accesses that wait at the most: as many as the table's own ring takes, or they would be in the table before they are looked at.
const PENDING: usize = 32;
/// Bytes of the names of slow reads that are kept from one slice of moves to the next, and how many.
const SLOW_BYTES: usize = 8 << 10;
const SLOW_KEYS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Access {
    key: KeyHash,
    db: u16,
    partition: PartitionId,
    effect: Effect,
    tick: u32,
    name: (usize, usize),
    /// Its value was put into slow memory before the command ran.
    is_stored_slow: bool,
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
    /// Ticks since it was asked for before.
    pub reuse: u64,
}

/// The accesses under way, and the policy. See the file's opening.
#[derive(Debug)]
pub struct Placements {
    /// Who moves.
    pub placer: Placer,
    pending: Vec<Access>,
    names: Vec<u8>,
    slow: Vec<(Access, u64)>,
    slow_names: Vec<u8>,
    /// Reads that found their value in the slow tier.
    pub slow_hits: u64,
    /// Whose value the command that runs next stores in slow memory.
    pub stores_slow: Option<KeyHash>,
    /// Those whose value was, and who aren't in the table yet.
    stored_slow: Vec<KeyHash>,
}

impl Placements {
    /// Nothing was seen yet.
    pub fn new(config: PlacerConfig) -> Placements {
        Placements {
            placer: Placer::new(config),
            pending: Vec::with_capacity(PENDING),
            names: Vec::with_capacity(8 << 10),
            slow: Vec::with_capacity(SLOW_KEYS),
            slow_names: Vec::with_capacity(SLOW_BYTES),
            slow_hits: 0,
            stores_slow: None,
            stored_slow: Vec::with_capacity(PENDING),
        }
    }

    /// True where the waiting accesses have to be looked at before another is noted.
    #[inline]
    pub fn are_full(&self, name: &[u8]) -> bool {
        self.pending.len() >= PENDING || self.names.len() + name.len() > self.names.capacity()
    }

    /// A key is about to be asked for, at `tick`. Of too long a name nothing is noted.
    #[inline]
    pub fn note(&mut self, key: KeyHash, name: &[u8], (db, partition): (u16, PartitionId), effect: Effect, tick: u32) {
        let is_stored_slow = self.stores_slow.take() == Some(key);
        if self.are_full(name) {
            return;
        }
        let start = self.names.len();
        // Only what is read is asked for by its name.
        if effect == Effect::Read {
            self.names.extend_from_slice(name);
        }
        let name = (start, self.names.len() - start);
        self.pending.push(Access { key, db, partition, effect, tick, name, is_stored_slow });
    }

    /// Looks at what waits, before it is put into the table.
    pub fn look(&mut self, keys: &mut KeyTable) {
        let near = self.pending.iter().fold(0, |near, access| near ^ keys.warm(access.key));
        std::hint::black_box(near);
        for access in &self.pending {
            if access.is_stored_slow {
                self.stored_slow.push(access.key);
            }
            // Who isn't known to be there has no reuse time.
            let Some(entry) = keys.get_mut(access.key).filter(|entry| entry.n_requests > 0) else { continue };
            let (tier, reuse) = (entry.placed().tier(), u64::from(access.tick.wrapping_sub(entry.last)));
            match (access.effect, tier) {
                (Effect::Read, Tier::Fast) => self.placer.asked(access.partition, tier, reuse),
                (Effect::Read, Tier::Slow) => {
                    self.slow_hits += 1;
                    let (start, length) = access.name;
                    if self.slow.len() < SLOW_KEYS && self.slow_names.len() + length <= SLOW_BYTES {
                        let name = (self.slow_names.len(), length);
                        self.slow_names.extend_from_slice(&self.names[start..start + length]);
                        self.slow.push((Access { name, ..*access }, reuse));
                    }
                }
                // The server allocates a new value where new values go; where it doesn't, the walk finds out.
                (Effect::Write, Tier::Slow) => entry.set_placed(entry.placed().written()),
                _ => {}
            }
        }
        self.pending.clear();
        self.names.clear();
    }

    /// Once what waited is in the table: newcomers that were stored in slow memory are there.
    pub fn settle(&mut self, keys: &mut KeyTable) {
        for key in self.stored_slow.drain(..) {
            if let Some(entry) = keys.get_mut(key) {
                entry.set_placed(entry.placed().found_in(Tier::Slow));
            }
        }
    }

    /// The slow values that were read since they were last forgotten, as far as there was room for their names.
    pub fn slow_reads(&self) -> impl Iterator<Item = SlowRead<'_>> {
        self.slow.iter().map(|(access, reuse)| SlowRead {
            key: access.key,
            name: &self.slow_names[access.name.0..access.name.0 + access.name.1],
            db: access.db,
            partition: access.partition,
            reuse: *reuse,
        })
    }

    /// Forgets them.
    pub fn forget_slow_reads(&mut self) {
        self.slow.clear();
        self.slow_names.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::tiers::placed::Placed;

    const P: PartitionId = PartitionId(2);

    fn table_with(slow: u64, fast: u64) -> KeyTable {
        let mut keys = KeyTable::new(1 << 14);
        for (number, placed) in [(slow, Placed::moved(Tier::Slow, 1)), (fast, Placed::default())] {
            let entry = keys.get_or_insert(KeyHash::of_number(number), 10);
            entry.n_requests = 1;
            entry.set_placed(placed);
        }
        keys
    }

    fn note(placements: &mut Placements, number: u64, name: &[u8], effect: Effect) {
        placements.note(KeyHash::of_number(number), name, (3, P), effect, 25);
    }

    #[test]
    fn a_read_of_a_slow_value_is_kept_with_its_reuse_time() {
        let (mut keys, mut placements) = (table_with(1, 2), Placements::new(PlacerConfig::default()));
        note(&mut placements, 1, b"slow", Effect::Read);
        note(&mut placements, 2, b"fast", Effect::Read);
        note(&mut placements, 3, b"unknown", Effect::Read);
        placements.look(&mut keys);
        let reads: Vec<_> = placements.slow_reads().map(|read| (read.name.to_vec(), read.db, read.reuse)).collect();
        assert_eq!(reads, [(b"slow".to_vec(), 3, 15)]);
        assert_eq!(placements.slow_hits, 1);
        placements.look(&mut keys);
        assert_eq!(placements.slow_hits, 1, "each access is looked at once");
        placements.forget_slow_reads();
        assert_eq!(placements.slow_reads().count(), 0);
    }

    #[test]
    fn what_is_written_is_fast() {
        let (mut keys, mut placements) = (table_with(1, 2), Placements::new(PlacerConfig::default()));
        note(&mut placements, 1, b"slow", Effect::Write);
        placements.look(&mut keys);
        assert_eq!(keys.get(KeyHash::of_number(1)).unwrap().placed().tier(), Tier::Fast);
        assert_eq!((placements.slow_hits, placements.slow_reads().count()), (0, 0));
    }

    /// Stored in slow memory it is slow, whether it was or is new; the next write of another isn't.
    #[test]
    fn what_is_stored_in_slow_memory_is_slow() {
        let (mut keys, mut placements) = (table_with(1, 2), Placements::new(PlacerConfig::default()));
        for number in [1, 2] {
            placements.stores_slow = Some(KeyHash::of_number(number));
            note(&mut placements, number, b"k", Effect::Write);
        }
        keys.get_or_insert(KeyHash::of_number(3), 10).n_requests = 1;
        note(&mut placements, 3, b"k", Effect::Write);
        placements.look(&mut keys);
        placements.settle(&mut keys);
        let tier = |number| keys.get(KeyHash::of_number(number)).unwrap().placed().tier();
        assert_eq!([1, 2, 3].map(tier), [Tier::Slow, Tier::Slow, Tier::Fast]);
    }

    #[test]
    fn no_more_is_noted_than_there_is_room_for() {
        let mut placements = Placements::new(PlacerConfig::default());
        (0..100).for_each(|i| note(&mut placements, i, b"k", Effect::Read));
        assert_eq!(placements.pending.len(), PENDING);
        assert!(placements.are_full(b"k"));
        let mut placements = Placements::new(PlacerConfig::default());
        note(&mut placements, 1, &[b'k'; 100_000], Effect::Read);
        assert!(placements.pending.is_empty());
    }
}
