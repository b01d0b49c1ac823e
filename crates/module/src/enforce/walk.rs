//! A walk through the key space that never ends: each step visits the keys of a hash bucket or a few.
//!
//! Hash order makes consecutive steps a random sample without replacement, so the walk is where the evictor gets its
//! samples and where mean sizes and counts come from: no key is visited for one purpose only.

use tenure_core::random::Random;
use tenure_core::units::{KeyHash, PartitionId};

use super::usage::Usage;
use crate::ffi::server::{Key, Kind, ScanCursor, ScannedName, Server};
use crate::observe::keys::Keys;
use crate::observe::partitions::{Partitions, in_database};
use crate::observe::sizes::Sizes;

/// A key as the walk meets it.
pub struct Visit<'a> {
    /// Its name.
    pub name: &'a ScannedName<'a>,
    /// The key, open for reading.
    pub key: &'a Key<'a>,
    hash: Option<KeyHash>,
    /// Its database.
    pub db: u16,
    /// Where it belongs.
    pub partition: PartitionId,
    /// What it takes, where that was looked at.
    pub size_bytes: Option<u32>,
    /// What its partition's keys take in the mean: about the same, where sizes were asked for and this one wasn't
    /// looked at.
    pub mean_bytes: u32,
}

impl Visit<'_> {
    /// Its hash in its database.
    #[inline]
    pub fn hash(&self) -> KeyHash {
        self.hash.unwrap_or_else(|| in_database(KeyHash::of(self.name.as_ref()), self.db))
    }
}

/// What every visited key is shown to.
pub struct Guides<'a> {
    /// Who is who.
    pub partitions: &'a mut Partitions,
    /// How large.
    pub sizes: &'a mut Sizes,
    /// How many.
    pub usage: &'a mut Usage,
    /// Whose sizes the caller needs, beyond what the account does.
    pub sizes_of: SizesOf,
}

/// Whose sizes are accessed, also where a part would do for the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizesOf {
    /// Nobody's.
    Account,
    /// Collections'.
    Collections,
    /// Everybody's; a collection is asked about where the account needs it alone.
    Known,
    /// Everybody's.
    All,
}

impl SizesOf {
    /// Keys are ranked by them.
    fn are_ranked(self) -> bool {
        matches!(self, SizesOf::Known | SizesOf::All)
    }
}

impl Guides<'_> {
    /// A key was evicted, which the walk had met or had not.
    pub fn evicted(&mut self, db: u16, partition: PartitionId, size_bytes: u32, was_met: bool) {
        self.usage.evicted(db, partition, size_bytes, was_met, self.sizes);
    }

    /// The hash of a key that is about to be looked up among those that are remembered: that line of memory comes
    /// while the server is asked for the value.
    #[inline]
    fn hash_of(&self, db: u16, name: &ScannedName) -> Option<KeyHash> {
        let keys = self.partitions.keys.table.as_ref().filter(|_| self.sizes_of.are_ranked())?;
        let hash = in_database(KeyHash::of(name.as_ref()), db);
        std::hint::black_box(keys.warm(hash));
        Some(hash)
    }

    /// The size of a key where it matters to anybody, and whether it counts for the means: what was asked for
    /// collections' sake doesn't, as means are of all kinds alike, nor what nobody was asked about. To look at a size
    /// fetches its value from memory; where all are alike, the sizes of some are enough for ranking too.
    #[inline]
    fn size(&mut self, partition: PartitionId, name: &ScannedName, key: &Key) -> (Option<u32>, bool) {
        // The hash only finds a remembered size; strings don't need it.
        let hash = || KeyHash::of(name.as_ref());
        let is_ranked = self.sizes_of.are_ranked() && self.sizes.vary(partition);
        let is_collection = || key.kind() == Kind::Collection;
        let is_guessed = is_ranked && self.sizes_of == SizesOf::Known && is_collection();
        if (is_ranked && !is_guessed) || self.usage.wants_size(partition) {
            (Some(self.sizes.of(partition, name, hash, key)), true)
        } else if is_guessed {
            (Some(self.sizes.roughly(partition, name, hash, key)), false)
        } else {
            let is_wanted = self.sizes_of == SizesOf::Collections && is_collection();
            (is_wanted.then(|| self.sizes.of(partition, name, hash, key)), false)
        }
    }

    /// As [`Guides::met`], of a partition that the database is as a whole.
    #[inline]
    fn tallied(&mut self, tally: &mut Tally, partition: PartitionId, name: &ScannedName, key: &Key) -> Option<u32> {
        let (size_bytes, counts) = self.size(partition, name, key);
        tally.keys += 1;
        if let Some(size_bytes) = size_bytes.filter(|_| counts) {
            tally.sized += 1;
            tally.bytes += u64::from(size_bytes);
            tally.apart_bytes += self.sizes.apart_bytes(partition, size_bytes);
        }
        size_bytes
    }

    /// What was tallied counts.
    fn settle(&mut self, tally: &mut Tally, db: u16, partition: Option<PartitionId>) {
        let Tally { keys, sized, bytes, apart_bytes } = std::mem::take(tally);
        if let Some(partition) = partition.filter(|_| keys > 0) {
            self.sizes.met_many(partition, sized, (bytes, apart_bytes));
            self.usage.visited_many(db, partition, keys, (sized, bytes));
        }
    }

    /// The walk met a key: it counts, and where its size matters to anybody it is looked at. Its size.
    #[inline]
    fn met(&mut self, db: u16, partition: PartitionId, name: &ScannedName, key: &Key) -> Option<u32> {
        let (size_bytes, counts) = self.size(partition, name, key);
        let counted_bytes = size_bytes.filter(|_| counts);
        if let Some(size_bytes) = counted_bytes {
            self.sizes.met(partition, size_bytes);
        }
        self.usage.visited(db, partition, counted_bytes);
        size_bytes
    }
}

/// A database, by its number of keys, of those that `may` be it; `None` where they hold no key.
pub fn draw_db(random: &mut Random, db_sizes: &[(u16, u64)], may: impl Fn(u16) -> bool) -> Option<u16> {
    let those = || db_sizes.iter().filter(|(db, _)| may(*db));
    let mut at = random.below(those().map(|(_, keys)| keys).sum());
    let is_it = |&&(_, keys): &&(u16, u64)| {
        let is_it = at < keys;
        at = at.saturating_sub(keys);
        is_it
    };
    those().find(is_it).map(|(db, _)| *db)
}

/// Where the walk stands in each database.
#[derive(Default)]
pub struct Walk {
    cursors: Vec<(u16, ScanCursor)>,
    /// Keys visited since the module was loaded.
    pub visited: u64,
}

impl Walk {
    /// A database, or each, has other keys than before: a round that began among those would tell nothing of these.
    pub fn start_over(&mut self, db: Option<u16>) {
        self.cursors.retain(|(held, _)| db.is_some_and(|db| db != *held));
    }

    /// One step in database `db`; returns how many keys were visited, which may be none.
    pub fn step(
        &mut self,
        server: &mut Server,
        db: u16,
        guides: &mut Guides,
        visit: impl FnMut(&Visit, &mut Keys),
    ) -> usize {
        let one = Stretch { keys: 1, steps: 1 };
        if server.select_db(db) { self.steps_here(server, db, guides, one, visit).keys } else { 0 }
    }

    /// Steps in database `db`, to which the server has turned already, until the stretch is walked: how far it went.
    pub fn steps_here(
        &mut self,
        server: &mut Server,
        db: u16,
        guides: &mut Guides,
        stretch: Stretch,
        mut visit: impl FnMut(&Visit, &mut Keys),
    ) -> Stretch {
        // Whose all keys of a database are needs no look at their names.
        let whole = guides.partitions.whole_database(db);
        let place = self.cursors.iter().position(|(held, _)| *held == db).unwrap_or_else(|| {
            self.cursors.push((db, ScanCursor::new(server)));
            self.cursors.len() - 1
        });
        let cursor = &self.cursors[place].1;
        let (mut gone, mut tally) = (Stretch { keys: 0, steps: 0 }, Tally::default());
        while gone.keys < stretch.keys && gone.steps < stretch.steps {
            gone.steps += 1;
            let came_round = server.scan_step(cursor, |name, key| {
                gone.keys += 1;
                let hash = guides.hash_of(db, name);
                let (partition, size_bytes) = match whole {
                    Some(partition) => (partition, guides.tallied(&mut tally, partition, name, key)),
                    None => {
                        let partition = guides.partitions.of(db, name.as_ref());
                        (partition, guides.met(db, partition, name, key))
                    }
                };
                let mean_bytes = guides.sizes.mean_bytes(partition);
                let visited = Visit { name, key, hash, db, partition, size_bytes, mean_bytes };
                visit(&visited, &mut guides.partitions.keys);
            });
            if came_round {
                guides.settle(&mut tally, db, whole);
                guides.usage.came_round(db);
            }
        }
        guides.settle(&mut tally, db, whole);
        self.visited += gone.keys as u64;
        gone
    }
}

/// Keys that were met, those of them whose size was looked at, theirs, and how far from the mean these are.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    keys: u64,
    sized: u64,
    bytes: u64,
    apart_bytes: u64,
}

/// How far the walk is to go, or went: to so many keys, in so many steps at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Keys. The last step's may be more.
    pub keys: usize,
    /// Steps.
    pub steps: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_drawn_by_their_keys() {
        let (mut random, sizes) = (Random::new(1), [(0, 100), (3, 0), (7, 300)]);
        let drawn: Vec<u16> = (0..4000).filter_map(|_| draw_db(&mut random, &sizes, |_| true)).collect();
        let of = |db: u16| drawn.iter().filter(|drawn| **drawn == db).count();
        assert_eq!((drawn.len(), of(3)), (4000, 0));
        assert!((900..1100).contains(&of(0)), "{}", of(0));
        assert_eq!(draw_db(&mut random, &sizes, |db| db == 0), Some(0));
        assert_eq!(draw_db(&mut random, &sizes, |db| db == 3), None, "it is empty");
    }
}
