//! GreedyDual-Size-Frequency: the value with the least of age + requests × cost / size goes.
//!
//! Source: Cherkasova, HP Labs 1998-69 (frequency), on Cao and Irani, USITS'97 (cost and size): H = L + F × C / S,
//! where L, the age, is the H of the last value evicted, so that what isn't asked for is overtaken. F restarts at 1
//! when a value enters. [`Gdsf`] is exact, by a heap: O(log n) per access. [`SampledGdsf`] is what a server can do:
//! one float a value, and of K values drawn at random the lowest goes. The H of what goes is then now higher, now
//! lower, and an age that follows every H upward stays at the highest ever met: it follows their mean instead.

use super::cache::{SAMPLE_SIZE_MAX, sample_size};
use super::heap::PlaceHeap;
use super::table::{Entry, Order, Table, TableCache};
use crate::error::ConfigError;
use crate::random::Random;

/// How many values are sampled where nothing else is accessed.
pub const SAMPLE_SIZE: u32 = 16;
/// What a victim's H moves the age by, of the difference.
const AGE_WEIGHT: f32 = 1.0 / 16.0;

/// The order of GDSF. See the file's opening.
#[derive(Clone, Debug)]
pub struct Gdsf {
    heap: PlaceHeap<f64>,
    /// L of the formula.
    age: f64,
}

impl Gdsf {
    /// A GDSF cache of `capacity_bytes`.
    pub fn cache(capacity_bytes: u64) -> TableCache<Gdsf> {
        TableCache::new(capacity_bytes, Gdsf { heap: PlaceHeap::new(), age: 0.0 })
    }

    fn rank(&self, entry: &Entry) -> f64 {
        self.age + worth(entry)
    }
}

impl Order for Gdsf {
    fn victim(&mut self, _table: &Table, _incoming: &Entry) -> usize {
        let (place, rank) = self.heap.lowest().expect("a table that is not empty has a lowest value");
        self.age = rank;
        place
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.heap.insert(place, self.rank(&table.entries()[place]));
    }

    fn touched(&mut self, table: &Table, place: usize) {
        self.heap.change(place, self.rank(&table.entries()[place]));
    }

    fn removed(&mut self, _table: &Table, place: usize) {
        self.heap.remove(place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.heap.moved(from, to);
    }
}

/// F × C / S of the formula.
fn worth(entry: &Entry) -> f64 {
    f64::from(entry.n_requests) * f64::from(entry.penalty_us) / f64::from(entry.size_bytes.max(1))
}

/// The order of GDSF by samples. See the file's opening.
#[derive(Clone, Debug)]
pub struct SampledGdsf {
    k: usize,
    /// H by place. The age gains about one usual `F × C / S` each time the cache turns over, so that 24 bits last
    /// 100,000 times.
    ranks: Vec<f32>,
    /// L of the formula: a moving mean of the H of victims.
    age: f32,
    random: Random,
}

impl SampledGdsf {
    /// A cache of `capacity_bytes` that samples `k` values (1 to 64) per eviction.
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn cache(k: u32, capacity_bytes: u64, seed: u64) -> Result<TableCache<SampledGdsf>, ConfigError> {
        let order = SampledGdsf { k: sample_size(k)?, ranks: Vec::new(), age: 0.0, random: Random::new(seed) };
        Ok(TableCache::new(capacity_bytes, order))
    }
}

impl Order for SampledGdsf {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let drawn = table.draw(self.k, &mut self.random, &mut drawn);
        let rank = |place: u32| self.ranks[place as usize];
        let victim = drawn.iter().copied().min_by(|&a, &b| rank(a).total_cmp(&rank(b))).expect("the table isn't empty");
        self.age += AGE_WEIGHT * (rank(victim) - self.age);
        victim as usize
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.ranks.resize(self.ranks.len().max(place + 1), 0.0);
        self.touched(table, place);
    }

    fn touched(&mut self, table: &Table, place: usize) {
        self.ranks[place] = self.age + worth(&table.entries()[place]) as f32;
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.ranks[to] = self.ranks[from];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::policy::cache::{Cache, Outcome};
    use crate::units::KeyHash;

    /// Room for 10 bytes. a (5 bytes, 100 µs: H 20), b (5 bytes, 50 µs: H 10), c (5 bytes, 5 µs: H 1): c evicts b,
    /// whose H of 10 becomes the age, so c stands at 11; d (5 bytes, 20 µs: H 10 + 4) evicts c, and a still hits.
    #[test]
    fn cheap_goes_before_dear() {
        let mut cache = Gdsf::cache(10);
        let mut ask = |n, penalty_us| {
            cache.access(&Access { penalty_us, ..Access::read(KeyHash::of_number(n), 5) }) == Outcome::Hit
        };
        let hits = [ask(1, 100.0), ask(2, 50.0), ask(3, 5.0), ask(4, 20.0), ask(1, 100.0), ask(2, 50.0)];
        assert_eq!(hits, [false, false, false, false, true, false]);
    }

    /// As above, with a sample that takes all: b goes first, its H of 10 takes the age to 10/16; then c, whose H is 1
    /// + that.
    #[test]
    fn a_sample_of_all_evicts_in_the_same_order() {
        let mut cache = SampledGdsf::cache(64, 10, 1).unwrap();
        let mut ask = |n, penalty_us| {
            cache.access(&Access { penalty_us, ..Access::read(KeyHash::of_number(n), 5) }) == Outcome::Hit
        };
        let hits = [ask(1, 100.0), ask(2, 50.0), ask(3, 5.0), ask(4, 20.0), ask(1, 100.0), ask(2, 50.0)];
        assert_eq!(hits, [false, false, false, false, true, false]);
        assert!(SampledGdsf::cache(65, 10, 1).is_err());
    }

    /// Values that nobody asks for again leave, however expensive they were: the age overtakes them.
    #[test]
    fn the_age_overtakes_what_was_dear_once() {
        let mut cache = SampledGdsf::cache(16, 1_000, 1).unwrap();
        let mut ask = |n, penalty_us| {
            cache.access(&Access { penalty_us, ..Access::read(KeyHash::of_number(n), 10) }) == Outcome::Hit
        };
        (0..90).for_each(|n| assert!(!ask(1_000 + n, 1_000.0)));
        let hits = (0..60_000).filter(|i| ask(i % 60, 100.0) && *i >= 50_000).count();
        assert!(hits > 9_900, "{hits} of 10000");
    }
}
