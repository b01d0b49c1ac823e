//! How many keys and bytes each partition has.
//!
//! Keys: where a database is one partition, their number is the server's own. Elsewhere every key that comes and goes
//! is counted by its event (`new`, `del`, `expired`, …); keys that were there before Tenure are divided as the walk
//! has met them, until it has come round once. Some ways to go have no event (a key overwritten by `RENAME`): when
//! the counts no longer add up to the database's own, those of the next round are taken. A round in which much came
//! and went, or that didn't begin at the beginning, is itself in doubt: the first better one replaces it.
//!
//! Bytes: keys × mean size, said anew whenever a key comes or goes. The walk's last round is remembered in 16
//! segments, each replaced when the walk has gone through it again. So for keys at rest the sum is exact, and a
//! changed value counts within a round. Of a partition of many keys one in four is sized. Nothing is stored per key;
//! about 10 KB per database.

mod database;
mod met;
#[cfg(test)]
mod tests;

use tenure_core::units::{PARTITIONS_MAX, PartitionId};

use self::database::{DRIFT_MAX, Database};
use crate::observe::partitions::Partitions;
use crate::observe::sizes::Sizes;

/// Partitions of more keys than this are sized by one in so many of those that are met.
const KEYS_MANY: f64 = 16384.0;
const SIZED_ONE_IN: u64 = 4;

/// Keys and bytes by partition. See the file's opening.
#[derive(Default)]
pub struct Usage {
    databases: Vec<Database>,
    keys: Vec<f64>,
    bytes: Vec<u64>,
    /// Keys that the walk met.
    visits: u64,
}

impl Usage {
    /// Nothing known yet.
    pub fn new() -> Self {
        Usage { keys: vec![0.0; PARTITIONS_MAX], bytes: vec![0; PARTITIONS_MAX], ..Usage::default() }
    }

    /// A key came into being.
    pub fn came(&mut self, db: u16, partition: PartitionId, sizes: &Sizes) {
        let place = self.place(db);
        let database = &mut self.databases[place];
        database.count(partition.index(), 1.0, database.walked());
        self.keys[partition.index()] += 1.0;
        self.say_bytes(place, partition, sizes);
    }

    /// Keys that were elsewhere are this server's from now on, of sizes not known.
    pub fn arrived(&mut self, db: u16, partition: PartitionId, keys: u64, sizes: &Sizes) {
        let place = self.place(db);
        let database = &mut self.databases[place];
        database.count(partition.index(), keys as f64, database.walked());
        self.keys[partition.index()] += keys as f64;
        self.say_bytes(place, partition, sizes);
    }

    /// A database, or each, has other keys than before, or none.
    pub fn forget(&mut self, db: Option<u16>) {
        self.databases.retain(|database| db.is_some_and(|db| database.db != db));
    }

    /// A key went, of a size not known.
    pub fn went(&mut self, db: u16, partition: PartitionId, sizes: &Sizes) {
        let place = self.place(db);
        let database = &mut self.databases[place];
        database.count(partition.index(), -1.0, database.walked());
        self.one_less(place, partition, sizes);
    }

    /// A key was evicted, which the walk had met or had not.
    pub fn evicted(&mut self, db: u16, partition: PartitionId, size_bytes: u32, was_met: bool, sizes: &Sizes) {
        let place = self.place(db);
        let database = &mut self.databases[place];
        let met = if was_met { 1.0 } else { database.walked() };
        database.count(partition.index(), -1.0, met);
        if was_met {
            database.met.evicted.add(partition.index(), 1.0, f64::from(size_bytes));
        }
        self.one_less(place, partition, sizes);
    }

    fn one_less(&mut self, place: usize, partition: PartitionId, sizes: &Sizes) {
        let keys = &mut self.keys[partition.index()];
        *keys = (*keys - 1.0).max(0.0);
        self.say_bytes(place, partition, sizes);
    }

    /// Says anew what a partition holds, after a change in one database.
    fn say_bytes(&mut self, place: usize, partition: PartitionId, sizes: &Sizes) {
        let i = partition.index();
        let bytes = self.databases[place].bytes_of(partition, sizes);
        let before = std::mem::replace(&mut self.databases[place].bytes[i], bytes);
        self.bytes[i] = self.bytes[i] - before + bytes;
    }

    /// So many keys have changed partition, or may have, without an event: where they are many, the next rounds count
    /// anew, up to the first in which none does.
    pub fn moved(&mut self, keys: u64) {
        for database in &mut self.databases {
            database.drift += keys as f64;
            database.moved += keys as f64;
        }
    }

    /// Of so many keys it isn't known of which partition they are now: the walk hurries to count them, and counts as
    /// before until then.
    pub fn count_anew(&mut self, keys: f64) {
        self.moved(keys as u64);
        // The round under way has met some before they changed.
        self.databases.iter_mut().for_each(|database| database.hurried = 2);
    }

    /// The keys of one partition are another's from now on.
    pub fn pass_on(&mut self, from: PartitionId, to: PartitionId) {
        self.databases.iter_mut().for_each(|database| database.pass_on(from.index(), to.index()));
        self.keys[to.index()] += std::mem::take(&mut self.keys[from.index()]);
        self.bytes[to.index()] += std::mem::take(&mut self.bytes[from.index()]);
    }

    /// A key has changed partition, of a size not known.
    pub fn changed(&mut self, db: u16, from: PartitionId, to: PartitionId, sizes: &Sizes) {
        self.went(db, from, sizes);
        self.came(db, to, sizes);
        let place = self.place(db);
        let database = &mut self.databases[place];
        (database.drift, database.moved) = (database.drift + 1.0, database.moved + 1.0);
    }

    /// Whether the size of the key that is met next matters: of a partition of many keys a part is enough, and
    /// looking at a value costs the walk a quarter of its time.
    pub fn wants_size(&mut self, partition: PartitionId) -> bool {
        self.visits = self.visits.wrapping_add(1);
        self.keys[partition.index()] < KEYS_MANY || self.visits.is_multiple_of(SIZED_ONE_IN)
    }

    /// The walk met a key, and looked at its size or not.
    pub fn visited(&mut self, db: u16, partition: PartitionId, size_bytes: Option<u32>) {
        let place = self.place(db);
        let database = &mut self.databases[place];
        database.round[partition.index()] += 1.0;
        database.met.add(partition.index(), 1, size_bytes.map(|bytes| (1.0, f64::from(bytes))), database.total);
    }

    /// The same of a few keys, of which some were looked at, and took so many bytes together.
    pub fn visited_many(&mut self, db: u16, partition: PartitionId, keys: u64, (sized, bytes): (u64, u64)) {
        let place = self.place(db);
        let database = &mut self.databases[place];
        database.round[partition.index()] += keys as f64;
        database.met.add(partition.index(), keys, Some((sized as f64, bytes as f64)), database.total);
    }

    /// The walk has come round in `db`.
    pub fn came_round(&mut self, db: u16) {
        let place = self.place(db);
        self.databases[place].come_round();
    }

    /// True once the shares of all databases are counted, not guessed, and all sizes were met.
    pub fn is_counted(&self) -> bool {
        let is_counted = |d: &Database| d.met.has_come_round && d.uncounted <= DRIFT_MAX * d.total;
        self.databases.iter().all(|d| d.total < 1.0 || is_counted(d))
    }

    /// True where what partitions hold has changed without a word, so that only the walk can tell.
    pub fn is_outdated(&self) -> bool {
        self.databases.iter().any(|d| d.hurried > 0)
    }

    /// Takes the number of keys of each database in use from the server, and adds all up anew.
    pub fn settle(&mut self, db_sizes: &[(u16, u64)], partitions: &Partitions, sizes: &Sizes) {
        self.databases.retain(|d| db_sizes.iter().any(|(db, _)| *db == d.db));
        self.keys.fill(0.0);
        self.bytes.fill(0);
        for &(db, total) in db_sizes {
            let place = self.place(db);
            let database = &mut self.databases[place];
            database.settle(total as f64, partitions.whole_database(db));
            for i in 0..partitions.len() {
                database.bytes[i] = database.bytes_of(PartitionId(i as u16), sizes);
                self.keys[i] += database.keys[i];
                self.bytes[i] += database.bytes[i];
            }
        }
    }

    /// Keys of a partition in one database, and all keys there.
    pub fn keys_in(&self, db: u16, partition: PartitionId) -> (f64, f64) {
        let database = self.databases.iter().find(|d| d.db == db);
        database.map_or((0.0, 0.0), |d| (d.keys[partition.index()], d.total))
    }

    /// Keys by partition.
    pub fn keys(&self) -> &[f64] {
        &self.keys
    }

    /// Bytes by partition.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    fn place(&mut self, db: u16) -> usize {
        self.databases.iter().position(|d| d.db == db).unwrap_or_else(|| {
            self.databases.push(Database::new(db));
            self.databases.len() - 1
        })
    }
}
