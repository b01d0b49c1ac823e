//! GreedyDual-Size-Frequency: the value with the least of age + requests × cost / size goes.
//!
//! Source: Cherkasova, HP Labs 1998-69 (frequency), on Cao and Irani, USITS'97 (cost and size): H = L + F × C / S, where L, the age, is the H of the
//! last value evicted, so that what isn't asked for is overtaken. F restarts at 1 when a value enters. Exact, by a heap.
//! Cost: O(log n) per access.

use super::heap::PlaceHeap;
use super::table::{Entry, Order, Table, TableCache};

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
        self.age + f64::from(entry.n_requests) * f64::from(entry.penalty_us) / f64::from(entry.size_bytes.max(1))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::policy::cache::{Cache, Outcome};
    use crate::units::KeyHash;

    /// Room for 10 bytes. a (5 bytes, 100 µs: H 20), b (5 bytes, 50 µs: H 10), c (5 bytes, 5 µs: H 1): c evicts b, whose H of 10 becomes
    /// the age, so c stands at 11; d (5 bytes, 20 µs: H 10 + 4) evicts c, and a still hits.
    #[test]
    fn cheap_goes_before_dear() {
        let mut cache = Gdsf::cache(10);
        let mut ask = |n, penalty_us| {
            cache.access(&Access { penalty_us, ..Access::read(KeyHash::of_number(n), 5) }) == Outcome::Hit
        };
        let hits = [ask(1, 100.0), ask(2, 50.0), ask(3, 5.0), ask(4, 20.0), ask(1, 100.0), ask(2, 50.0)];
        assert_eq!(hits, [false, false, false, false, true, false]);
    }
}
