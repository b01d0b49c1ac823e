//! In-cache LFU: the value with the fewest requests since it entered goes; of equals, the least recently used.
//!
//! Exact, by a heap over (requests, last access). It forgets a value's requests when it leaves and never ages them, as
//! textbooks have it: a yardstick, not the server's `allkeys-lfu`. Cost: O(log n) per access.

use super::heap::PlaceHeap;
use super::table::{Entry, Order, Table, TableCache};

/// The order of LFU. See the file's opening.
#[derive(Clone, Debug)]
pub struct Lfu {
    heap: PlaceHeap<(u32, u64)>,
}

impl Lfu {
    /// An LFU cache of `capacity_bytes`.
    pub fn cache(capacity_bytes: u64) -> TableCache<Lfu> {
        TableCache::new(capacity_bytes, Lfu { heap: PlaceHeap::new() })
    }
}

fn rank(table: &Table, place: usize) -> (u32, u64) {
    let entry = &table.entries()[place];
    (entry.n_requests, entry.last_access)
}

impl Order for Lfu {
    fn victim(&mut self, _table: &Table, _incoming: &Entry) -> usize {
        self.heap.lowest().expect("a table that is not empty has a lowest value").0
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.heap.insert(place, rank(table, place));
    }

    fn touched(&mut self, table: &Table, place: usize) {
        self.heap.change(place, rank(table, place));
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

    /// Two fit. a a b c: c evicts b (1 request) and not a (2); then d evicts c; a still hits.
    #[test]
    fn the_least_frequent_goes() {
        let mut cache = Lfu::cache(2);
        let hits: Vec<bool> = [1, 1, 2, 3, 2, 4, 1]
            .map(|n| cache.access(&Access::read(KeyHash::of_number(n), 1)) == Outcome::Hit)
            .to_vec();
        assert_eq!(hits, [false, true, false, false, false, false, true]);
    }
}
