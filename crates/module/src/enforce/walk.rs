//! A walk through the key space that never ends: each step visits the keys of a hash bucket or a few.
//!
//! Hash order makes consecutive steps a random sample without replacement, so the walk is where the evictor gets its
//! samples and where mean sizes and counts come from: no key is visited for one purpose only.

use tenure_core::random::Random;
use tenure_core::units::{KeyHash, PartitionId};

use super::usage::Usage;
use crate::ffi::server::{Key, Kind, ScanCursor, ScannedName, Server};
use crate::observe::bins::BinId;
use crate::observe::keys::Keys;
use crate::observe::partitions::Partitions;
use crate::observe::sizes::{Known, Sizes};

/// A key as the walk meets it.
pub struct Visit<'a> {
    /// Its name.
    pub name: &'a ScannedName<'a>,
    /// The key, open for reading.
    pub key: &'a Key<'a>,
    /// Its database.
    pub db: u16,
    /// Where it belongs.
    pub partition: PartitionId,
    /// In which bin.
    pub bin: BinId,
    /// What it takes, where that was looked at.
    pub size_bytes: Option<u32>,
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
    /// Everybody's.
    All,
}

impl Guides<'_> {
    /// A key was evicted, which the walk had met or had not.
    pub fn evicted(&mut self, db: u16, partition: PartitionId, size_bytes: u32, was_met: bool) {
        let known = Known { binning: &self.partitions.binning, sizes: self.sizes };
        self.usage.evicted(db, partition, size_bytes, was_met, &known);
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
        visit: impl FnMut(&Visit, &Keys),
    ) -> usize {
        if server.select_db(db) { self.step_here(server, db, guides, visit) } else { 0 }
    }

    /// The same where the server has turned to database `db` already.
    pub fn step_here(
        &mut self,
        server: &mut Server,
        db: u16,
        guides: &mut Guides,
        mut visit: impl FnMut(&Visit, &Keys),
    ) -> usize {
        // Whose all keys of a database are needs no look at their names.
        let whole = guides.partitions.whole_database(db);
        let place = self.cursors.iter().position(|(held, _)| *held == db).unwrap_or_else(|| {
            self.cursors.push((db, ScanCursor::new(server)));
            self.cursors.len() - 1
        });
        let mut visited = 0;
        let came_round = server.scan_step(&self.cursors[place].1, |name, key| {
            let partition = whole.unwrap_or_else(|| guides.partitions.of(db, name.as_ref()));
            visited += 1;
            let bins = guides.partitions.binning.of(partition);
            let is_counted = guides.usage.wants_size(partition) || guides.sizes_of == SizesOf::All || bins.are_many();
            let is_sized = is_counted || (guides.sizes_of == SizesOf::Collections && key.kind() == Kind::Collection);
            // The hash only finds a remembered size; strings don't need it.
            let hash = || KeyHash::of(name.as_ref());
            let size_bytes = is_sized.then(|| guides.sizes.of(partition, name, hash, key));
            // Means are of all kinds alike: what was asked for collections' sake doesn't count.
            let counted_bytes = size_bytes.filter(|_| is_counted);
            if let Some(size_bytes) = counted_bytes {
                guides.sizes.met(partition, size_bytes);
            }
            guides.usage.visited(db, partition, counted_bytes);
            let bin = match size_bytes.filter(|_| bins.are_many()) {
                Some(size_bytes) => {
                    guides.usage.visited_of_size(db, partition, size_bytes);
                    guides.partitions.binning.bin_of(partition, size_bytes)
                }
                None => bins.of_class(0),
            };
            visit(&Visit { name, key, db, partition, bin, size_bytes }, &guides.partitions.keys);
        });
        if came_round {
            guides.usage.came_round(db);
        }
        self.visited += visited as u64;
        visited
    }
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
