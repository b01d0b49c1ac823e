//! Exact LRU: the least recently used value goes. What sampled policies approach as K grows.

use super::linked::Lists;
use super::table::{Entry, Order, Table, TableCache};

/// The order of exact LRU. See the file's opening.
#[derive(Clone, Debug)]
pub struct ExactLru {
    by_recency: Lists<1>,
}

impl ExactLru {
    /// An exact LRU cache of `capacity_bytes`.
    pub fn cache(capacity_bytes: u64) -> TableCache<ExactLru> {
        TableCache::new(capacity_bytes, ExactLru { by_recency: Lists::new() })
    }
}

impl Order for ExactLru {
    fn victim(&mut self, _table: &Table, _incoming: &Entry) -> usize {
        self.by_recency.oldest(0).expect("a table that is not empty has an oldest value")
    }

    fn stored(&mut self, _table: &Table, place: usize) {
        self.by_recency.push(0, place);
    }

    fn touched(&mut self, _table: &Table, place: usize) {
        self.by_recency.unlink(place);
        self.by_recency.push(0, place);
    }

    fn removed(&mut self, _table: &Table, place: usize) {
        self.by_recency.unlink(place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.by_recency.moved(from, to);
    }
}
