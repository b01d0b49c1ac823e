//! How many keys and bytes each partition has.
//!
//! Keys: where a database is one partition, their number is the server's own. Elsewhere every key that comes and goes
//! is counted by its event (`new`, `del`, `expired`, …); keys that were there before Tenure are divided as the walk
//! has met them, until it has come round once. Some ways to go have no event (a key overwritten by `RENAME`): when
//! the counts no longer add up to the database's own, those of the next round are taken. A round in which much came
//! and went, or that didn't begin at the beginning, is itself in doubt: the first better one replaces it.
//!
//! Bytes: keys × mean size, said anew whenever a key comes or goes. The walk's last round is remembered in 16
//! segments, each replaced when the walk has gone through it again: for keys at rest the sum is exact, and a changed
//! value counts within a round; of a partition of many keys one in four is sized. Nothing is stored per key; about 10
//! KB per database.

use tenure_core::units::{PARTITIONS_MAX, PartitionId};

use crate::observe::partitions::Partitions;
use crate::observe::sizes::Sizes;

/// Counts are taken anew when they were off by this share of the keys.
const DRIFT_MAX: f64 = 0.002;
/// Partitions of more keys than this are sized by one in so many of those that are met.
const KEYS_MANY: f64 = 16384.0;
const SIZED_ONE_IN: u64 = 4;
/// What was evicted is taken off what was met while at least this share of the keys is left.
const LEFT_MIN: f64 = 0.25;
/// Parts of a round.
const SEGMENTS: usize = 16;

/// Keys and bytes by partition.
#[derive(Clone)]
struct Sums {
    keys: Vec<f64>,
    bytes: Vec<f64>,
}

impl Sums {
    fn new() -> Self {
        Sums { keys: vec![0.0; PARTITIONS_MAX], bytes: vec![0.0; PARTITIONS_MAX] }
    }

    fn add(&mut self, partition: usize, keys: f64, bytes: f64) {
        self.keys[partition] = (self.keys[partition] + keys).max(0.0);
        self.bytes[partition] = (self.bytes[partition] + bytes).max(0.0);
    }

    fn scale(&mut self, by: f64) {
        self.keys.iter_mut().chain(&mut self.bytes).for_each(|value| *value *= by);
    }
}

/// The partitions that a finished segment has keys of.
type Segment = Vec<(u16, f64, f64)>;

/// Sizes as the walk met them.
struct Met {
    /// The last round's segments, those of the round under way in the place of the ones before.
    segments: Vec<Segment>,
    /// Their sums, without the segment under way.
    sums: Sums,
    /// The segment under way, and which it is.
    open: Sums,
    at: usize,
    /// Keys met in this round.
    visited: u64,
    /// Evicted since they were met.
    evicted: Sums,
    has_come_round: bool,
}

impl Met {
    fn new() -> Self {
        Met {
            segments: vec![Segment::new(); SEGMENTS],
            sums: Sums::new(),
            open: Sums::new(),
            at: 0,
            visited: 0,
            evicted: Sums::new(),
            has_come_round: false,
        }
    }

    /// Some `keys` were met in a database of `total` keys, those looked at with their bytes.
    fn add(&mut self, partition: usize, keys: u64, sized: Option<(f64, f64)>, total: f64) {
        // A product, not a quotient: this runs for each key that the walk meets.
        let visited = self.visited as f64 * SEGMENTS as f64;
        if visited >= (self.at + 1) as f64 * total && self.at + 1 < SEGMENTS {
            let at = (visited / total.max(1.0)) as usize;
            if at > self.at && at < SEGMENTS {
                self.close();
                self.at = at;
            }
        }
        self.visited += keys;
        if let Some((sized, bytes)) = sized {
            self.open.add(partition, sized, bytes);
        }
    }

    /// Puts the segment under way in its place.
    fn close(&mut self) {
        let (keys, bytes) = (&self.open.keys, &self.open.bytes);
        let some = (0..PARTITIONS_MAX).filter(|&i| keys[i] > 0.0).map(|i| (i as u16, keys[i], bytes[i])).collect();
        self.replace(self.at, some);
        self.open.scale(0.0);
        self.evicted.scale(1.0 - 1.0 / SEGMENTS as f64);
    }

    fn replace(&mut self, at: usize, segment: Segment) {
        for &(i, keys, bytes) in &segment {
            self.sums.add(usize::from(i), keys, bytes);
        }
        let old = std::mem::replace(&mut self.segments[at], segment);
        for (i, keys, bytes) in old {
            self.sums.add(usize::from(i), -keys, -bytes);
        }
    }

    fn come_round(&mut self) {
        self.close();
        // A database that shrank has come round before its last segments.
        (self.at + 1..SEGMENTS).for_each(|at| self.replace(at, Segment::new()));
        (self.at, self.visited, self.has_come_round) = (0, 0, true);
    }

    /// Mean size of a partition's keys; `None` where none was met.
    fn mean(&self, partition: usize) -> Option<f64> {
        let (mut keys, mut bytes) = (self.sums.keys[partition], self.sums.bytes[partition]);
        if !self.has_come_round {
            keys += self.open.keys[partition];
            bytes += self.open.bytes[partition];
        }
        let (left, left_bytes) = (keys - self.evicted.keys[partition], bytes - self.evicted.bytes[partition]);
        // A small rest of large sums says little.
        if left >= 1.0 && left >= LEFT_MIN * keys && left_bytes > 0.0 {
            Some(left_bytes / left)
        } else {
            (keys >= 1.0).then(|| bytes / keys)
        }
    }
}

/// One database.
struct Database {
    db: u16,
    /// Keys counted, by partition.
    counted: Vec<f64>,
    /// Keys as far as is known, by partition: those counted, and a guess at the rest.
    keys: Vec<f64>,
    /// All its keys, as the server last said.
    total: f64,
    /// Keys that were there before Tenure, or came in without an event.
    uncounted: f64,
    /// Keys by which the counts may be wrong: they were too high by them, or were taken from a round in doubt.
    drift: f64,
    /// Keys that have changed partition in the walk's round under way: where it met them is not known, so a count by
    /// it may be off by them.
    moved: f64,
    /// Variance, in keys, of what the round under way counts: each key that comes or goes lies in its walked part or
    /// does not.
    variance: f64,
    /// The walk's round under way as it would be met now: keys that came and went since are added and taken off by
    /// how likely they lie in the walked part.
    round: Vec<f64>,
    met: Met,
    /// Bytes by partition, as last said.
    bytes: Vec<u64>,
    /// Rounds of the walk that are to hurry, since many keys have changed partition.
    hurried: u8,
}

impl Database {
    fn new(db: u16) -> Self {
        let none = vec![0.0; PARTITIONS_MAX];
        Database {
            db,
            counted: none.clone(),
            keys: none.clone(),
            total: 0.0,
            uncounted: 0.0,
            drift: 0.0,
            moved: 0.0,
            variance: 0.0,
            round: none,
            met: Met::new(),
            bytes: vec![0; PARTITIONS_MAX],
            hurried: 0,
        }
    }

    /// Keys × mean size of a partition.
    fn bytes_of(&self, partition: PartitionId, sizes: &Sizes) -> u64 {
        let i = partition.index();
        if self.keys[i] <= 0.0 {
            return 0;
        }
        let mean = self.met.mean(i).unwrap_or_else(|| f64::from(sizes.mean_bytes(partition)));
        (self.keys[i] * mean) as u64
    }

    /// How much of the database this round has walked, 0 to 1.
    fn walked(&self) -> f64 {
        (self.met.visited as f64 / self.total.max(1.0)).clamp(0.0, 1.0)
    }

    /// `change` keys came or went; `met` is how likely they belong to the walked part.
    fn count(&mut self, partition: usize, change: f64, met: f64) {
        for (keys, change) in [
            (&mut self.counted[partition], change),
            (&mut self.keys[partition], change),
            (&mut self.round[partition], change * met),
        ] {
            *keys = (*keys + change).max(0.0);
        }
        self.variance += change.abs() * met * (1.0 - met);
    }

    /// Divides `total` keys as far as is known.
    fn settle(&mut self, total: f64, whole: Option<PartitionId>) {
        self.total = total;
        if let Some(partition) = whole {
            self.keys.fill(0.0);
            self.keys[partition.index()] = total;
            return;
        }
        let counted: f64 = self.counted.iter().sum();
        self.uncounted = (total - counted).max(0.0);
        if counted > total {
            self.drift += counted - total;
            self.counted.iter_mut().for_each(|keys| *keys *= total / counted);
        }
        self.keys.clone_from(&self.counted);
        let visited: f64 = self.round.iter().sum();
        if self.uncounted > 0.0 && visited > 0.0 {
            let expected = |i: usize| (total * self.round[i] / visited - self.counted[i]).max(0.0);
            let missing: Vec<f64> = (0..PARTITIONS_MAX).map(expected).collect();
            let all: f64 = missing.iter().sum::<f64>().max(1e-9);
            self.keys.iter_mut().zip(missing).for_each(|(keys, more)| *keys += self.uncounted * more / all);
        }
    }

    fn come_round(&mut self) {
        self.met.come_round();
        let visited: f64 = self.round.iter().sum();
        let wrong = self.uncounted + self.drift;
        // A round that began half-way has met some of the keys, of which the rest is guessed.
        let in_doubt = self.moved + self.variance.sqrt() + (self.total - visited).abs();
        if wrong > DRIFT_MAX * self.total && wrong > in_doubt && visited > 0.0 {
            self.counted.iter_mut().zip(&self.round).for_each(|(keys, met)| *keys = met * self.total / visited);
            (self.uncounted, self.drift) = (0.0, in_doubt);
        }
        (self.moved, self.variance) = (0.0, 0.0);
        self.hurried = self.hurried.saturating_sub(1);
        self.round.fill(0.0);
    }

    /// All that is known of one partition is of another from now on.
    fn pass_on(&mut self, from: usize, to: usize) {
        let Sums { keys: met, bytes: met_bytes } = &mut self.met.sums;
        let Sums { keys: open, bytes: open_bytes } = &mut self.met.open;
        let Sums { keys: evicted, bytes: evicted_bytes } = &mut self.met.evicted;
        let (counted, keys, round) = (&mut self.counted, &mut self.keys, &mut self.round);
        for values in [counted, keys, round, met, met_bytes, open, open_bytes, evicted, evicted_bytes] {
            values[to] += std::mem::take(&mut values[from]);
        }
        for (partition, ..) in self.met.segments.iter_mut().flatten().filter(|(i, ..)| usize::from(*i) == from) {
            *partition = to as u16;
        }
        self.bytes[to] += std::mem::take(&mut self.bytes[from]);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::classes::Classes;
    use crate::observe::keys::Keys;
    use crate::observe::tenants::{TenantSpec, Tenants};

    const A: PartitionId = PartitionId(0);
    const B: PartitionId = PartitionId(1);

    fn of_tenants(text: &str) -> Partitions {
        Partitions::new(Tenants::new(&TenantSpec::parse(text).unwrap()), Classes::default(), Keys::default(), None)
    }

    fn prefixes() -> Partitions {
        of_tenants("a=a:* b=b:*")
    }

    fn visit(usage: &mut Usage, partition: PartitionId, n: usize, size_bytes: u32) {
        (0..n).for_each(|_| usage.visited(0, partition, Some(size_bytes)));
    }

    /// 100 keys, 3 of 4 visited ones in the first partition: 75 and 25 until they are counted; then 80 and 20, as met.
    #[test]
    fn shares_are_guessed_from_the_first_visits_and_then_counted() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        usage.settle(&[(0, 100)], &partitions, &sizes);
        visit(&mut usage, A, 3, 10);
        visit(&mut usage, B, 1, 10);
        usage.settle(&[(0, 100)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [75.0, 25.0]);
        assert!(!usage.is_counted());
        visit(&mut usage, A, 77, 10);
        visit(&mut usage, B, 19, 60);
        usage.came_round(0);
        usage.settle(&[(0, 100)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [80.0, 20.0]);
        assert_eq!(&usage.bytes()[..2], [800, 10 + 19 * 60]);
        assert!(usage.is_counted());
    }

    /// 100 keys of before, of which B asks for half while the walk is under way: those that it has passed it counts
    /// as A's. The round after counts them right.
    #[test]
    fn keys_that_change_hands_are_counted_until_none_does() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        usage.settle(&[(0, 100)], &partitions, &sizes);
        visit(&mut usage, A, 90, 10);
        (0..50).for_each(|_| usage.changed(0, A, B, &sizes));
        visit(&mut usage, B, 10, 10);
        usage.came_round(0);
        visit(&mut usage, A, 50, 10);
        visit(&mut usage, B, 50, 10);
        usage.came_round(0);
        usage.settle(&[(0, 100)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [50.0, 50.0]);
        visit(&mut usage, A, 100, 10);
        usage.came_round(0);
        usage.settle(&[(0, 100)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [50.0, 50.0], "counted once and for all");
    }

    /// Keys that came since Tenure runs need no guess, however few were visited; only those of before do.
    #[test]
    fn what_came_by_an_event_is_known_at_once() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        (0..40).for_each(|_| usage.came(0, A, &sizes));
        (0..960).for_each(|_| usage.came(0, B, &sizes));
        visit(&mut usage, A, 5, 10);
        usage.settle(&[(0, 1000)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [40.0, 960.0]);
        usage.settle(&[(0, 1100)], &partitions, &sizes);
        visit(&mut usage, B, 5, 10);
        usage.settle(&[(0, 1100)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [140.0, 960.0], "half of those visited are in the first");
    }

    /// Events count exactly, and a later round that meets otherwise (keys come and go while it runs) changes nothing.
    #[test]
    fn events_are_believed_while_they_add_up() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        usage.settle(&[(0, 50)], &partitions, &sizes);
        visit(&mut usage, A, 50, 10);
        usage.came_round(0);
        usage.settle(&[(0, 50)], &partitions, &sizes);
        (0..50).for_each(|_| usage.came(0, B, &sizes));
        usage.went(0, A, &sizes);
        usage.settle(&[(0, 99)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [49.0, 50.0]);
        visit(&mut usage, A, 59, 10);
        visit(&mut usage, B, 40, 10);
        usage.came_round(0);
        usage.settle(&[(0, 99)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [49.0, 50.0]);
    }

    /// Twenty keys were overwritten by a rename, and no event told: the next round's count is taken.
    #[test]
    fn counts_that_no_longer_add_up_are_taken_anew() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        usage.settle(&[(0, 100)], &partitions, &sizes);
        visit(&mut usage, A, 50, 10);
        visit(&mut usage, B, 50, 10);
        usage.came_round(0);
        usage.settle(&[(0, 80)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [40.0, 40.0]);
        visit(&mut usage, A, 50, 10);
        visit(&mut usage, B, 30, 10);
        usage.came_round(0);
        usage.settle(&[(0, 80)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [50.0, 30.0]);
    }

    /// The walk was in the middle when the database became another. Half of the new keys are of each; what is left of
    /// the round meets three of A for one of B.
    #[test]
    fn a_round_that_began_half_way_is_counted_again() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        usage.settle(&[(0, 100)], &partitions, &sizes);
        visit(&mut usage, A, 30, 10);
        visit(&mut usage, B, 10, 10);
        usage.came_round(0);
        usage.settle(&[(0, 100)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [75.0, 25.0], "the best there is");
        for _ in 0..2 {
            visit(&mut usage, A, 50, 10);
            visit(&mut usage, B, 50, 10);
            usage.came_round(0);
            usage.settle(&[(0, 100)], &partitions, &sizes);
            assert_eq!(&usage.keys()[..2], [50.0, 50.0]);
        }
    }

    /// 900 keys of A and 100 of B, counted while 500 of A went that the walk, half-way, had met all of, and 500 came
    /// that it was still to meet: it takes half of them for met. At rest it counts right.
    #[test]
    fn what_was_counted_under_load_is_counted_again_at_rest() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        usage.settle(&[(0, 1000)], &partitions, &sizes);
        visit(&mut usage, A, 500, 10);
        (0..500).for_each(|_| usage.went(0, A, &sizes));
        (0..500).for_each(|_| usage.came(0, B, &sizes));
        visit(&mut usage, A, 400, 10);
        visit(&mut usage, B, 600, 10);
        usage.came_round(0);
        usage.settle(&[(0, 1000)], &partitions, &sizes);
        assert!((usage.keys()[0] - 400.0).abs() > 20.0, "{:?}", &usage.keys()[..2]);
        visit(&mut usage, A, 400, 10);
        visit(&mut usage, B, 600, 10);
        usage.came_round(0);
        usage.settle(&[(0, 1000)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [400.0, 600.0]);
    }

    /// A burst takes most of a partition's keys in the middle of the first round; all had been met.
    #[test]
    fn an_evicted_key_is_no_longer_met() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        usage.settle(&[(0, 200)], &partitions, &sizes);
        visit(&mut usage, A, 40, 100);
        visit(&mut usage, B, 60, 10);
        usage.settle(&[(0, 200)], &partitions, &sizes);
        (0..30).for_each(|_| usage.evicted(0, A, 100, true, &sizes));
        visit(&mut usage, B, 100, 10);
        usage.came_round(0);
        usage.settle(&[(0, 170)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [10.0, 160.0]);
        assert_eq!(&usage.bytes()[..2], [1000, 1600]);
    }

    /// Ten large keys of forty go; the mean of the rest is known at once.
    #[test]
    fn evicting_the_large_lowers_the_mean() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        (0..40).for_each(|_| usage.came(0, A, &sizes));
        usage.settle(&[(0, 40)], &partitions, &sizes);
        visit(&mut usage, A, 30, 10);
        visit(&mut usage, A, 10, 1000);
        usage.came_round(0);
        (0..10).for_each(|_| usage.evicted(0, A, 1000, true, &sizes));
        usage.settle(&[(0, 30)], &partitions, &sizes);
        assert_eq!((usage.keys()[0], usage.bytes()[0]), (30.0, 300));
    }

    /// Keys at rest are summed up exactly wherever the walk is; half of them met again three times as large count as
    /// such.
    #[test]
    fn values_that_grew_count_as_far_as_they_were_met() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        let size_of = |i: u32| i * i;
        let sum: u64 = (0..160).map(|i| u64::from(size_of(i))).sum();
        usage.settle(&[(0, 160)], &partitions, &sizes);
        for round in 0..3 {
            for i in 0..160 {
                usage.visited(0, A, Some(size_of(i)));
                usage.settle(&[(0, 160)], &partitions, &sizes);
                assert!(round == 0 || usage.bytes()[0].abs_diff(sum) <= 1, "{round} {i}: {:?}", usage.bytes()[0]);
            }
            usage.came_round(0);
        }
        visit(&mut usage, A, 81, 30_000);
        usage.settle(&[(0, 160)], &partitions, &sizes);
        let grown: u64 = 80 * 30_000 + (80..160).map(|i| u64::from(size_of(i))).sum::<u64>();
        assert!(usage.bytes()[0].abs_diff(grown) <= 1, "{} {grown}", usage.bytes()[0]);
    }

    /// Large keys come and are evicted as fast, many times over between two looks at the server: what is held stays
    /// what it was.
    #[test]
    fn what_goes_takes_along_what_it_brought() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        (0..1000).for_each(|_| usage.came(0, A, &sizes));
        usage.settle(&[(0, 1000)], &partitions, &sizes);
        visit(&mut usage, A, 1000, 200);
        usage.came_round(0);
        usage.settle(&[(0, 1000)], &partitions, &sizes);
        for _ in 0..1000 {
            usage.came(0, A, &sizes);
            usage.evicted(0, A, 1600, false, &sizes);
        }
        assert_eq!(usage.bytes()[0], 200_000);
    }

    /// 60 of B's keys become A's while A becomes somebody else's: at once all are B's, and once the walk has come
    /// round from there, A has its own.
    #[test]
    fn a_number_that_goes_to_another_tenant_is_counted_anew() {
        let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
        (0..40).for_each(|_| usage.came(0, A, &sizes));
        (0..160).for_each(|_| usage.came(0, B, &sizes));
        for _ in 0..2 {
            usage.settle(&[(0, 200)], &partitions, &sizes);
            visit(&mut usage, A, 40, 100);
            visit(&mut usage, B, 160, 10);
            usage.came_round(0);
        }
        assert!(!usage.is_outdated());
        visit(&mut usage, A, 20, 100);
        usage.pass_on(A, B);
        usage.count_anew(200.0);
        usage.settle(&[(0, 200)], &partitions, &sizes);
        assert_eq!((&usage.keys()[..2], usage.bytes()[1]), (&[0.0, 200.0][..], 5600));
        visit(&mut usage, A, 60, 10);
        visit(&mut usage, B, 120, 10);
        usage.came_round(0);
        assert!(usage.is_outdated(), "part of that round was before");
        visit(&mut usage, A, 60, 10);
        visit(&mut usage, B, 140, 100);
        usage.came_round(0);
        usage.settle(&[(0, 200)], &partitions, &sizes);
        assert_eq!((&usage.keys()[..2], usage.bytes()[0]), (&[60.0, 140.0][..], 600));
        assert!(!usage.is_outdated());
    }

    #[test]
    fn a_whole_database_is_counted_by_the_server() {
        let (mut usage, mut partitions) = (Usage::new(), of_tenants(""));
        let sizes = Sizes::new();
        let (zero, seven) = (partitions.of(0, b""), partitions.of(7, b""));
        usage.settle(&[(0, 10), (7, 30)], &partitions, &sizes);
        assert_eq!((usage.keys()[zero.index()], usage.keys()[seven.index()]), (10.0, 30.0));
        usage.settle(&[(7, 30)], &partitions, &sizes);
        assert_eq!(usage.keys()[zero.index()], 0.0, "the database was flushed");
    }
}
