//! S3-FIFO: a small queue that most values don't outlive, a main queue with second chances, and a memory of who left
//! the small.
//!
//! Source: Yang et al., SOSP'23, algorithm 1: new values enter the small queue (10 % of the bytes), remembered ones
//! the main queue. A value that leaves the small queue goes to main if it was accessed more than once meanwhile, else
//! out and into the ghost queue. One that reaches the end of main goes round again while its counter (at most 3) is
//! above 0, which costs it one. Differs: the ghost queue is bounded by bytes (as many as main holds), since sizes
//! differ here. Knows neither cost nor size. Cost: O(1) per access, amortised.

use std::collections::VecDeque;

use super::linked::Lists;
use super::table::{Entry, Order, Table, TableCache};
use crate::model::key_map::KeyMap;
use crate::units::KeyHash;

const SMALL: usize = 0;
const MAIN: usize = 1;
/// The small queue's share of the capacity.
const SMALL_SHARE: f64 = 0.1;
/// What a counter counts to.
const COUNT_MAX: u8 = 3;

/// The order of S3-FIFO. See the file's opening.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    queues: Lists<2>,
    counts: Vec<u8>,
    bytes: [u64; 2],
    capacity_bytes: u64,
    ghost: VecDeque<(KeyHash, u32, u64)>,
    /// The number of a key's newest entry in the ghost queue.
    ghost_number: KeyMap<u64>,
    ghost_bytes: u64,
    n_ghosts: u64,
}

impl S3Fifo {
    /// An S3-FIFO cache of `capacity_bytes`.
    pub fn cache(capacity_bytes: u64) -> TableCache<S3Fifo> {
        let order = S3Fifo {
            queues: Lists::new(),
            counts: Vec::new(),
            bytes: [0; 2],
            capacity_bytes,
            ghost: VecDeque::new(),
            ghost_number: KeyMap::default(),
            ghost_bytes: 0,
            n_ghosts: 0,
        };
        TableCache::new(capacity_bytes, order)
    }

    fn small_is_due(&self) -> bool {
        self.bytes[SMALL] as f64 >= SMALL_SHARE * self.capacity_bytes as f64
    }

    fn move_to_main(&mut self, place: usize, size_bytes: u32) {
        let from = self.queues.list_of(place);
        self.queues.unlink(place);
        self.queues.push(MAIN, place);
        self.bytes[from] -= u64::from(size_bytes);
        self.bytes[MAIN] += u64::from(size_bytes);
    }

    fn victim_of_small(&mut self, table: &Table) -> Option<usize> {
        while let Some(place) = self.queues.oldest(SMALL) {
            let entry = &table.entries()[place];
            if self.counts[place] > 1 {
                self.counts[place] = 0;
                self.move_to_main(place, entry.size_bytes);
            } else {
                self.remember(entry);
                return Some(place);
            }
        }
        None
    }

    fn victim_of_main(&mut self) -> Option<usize> {
        while let Some(place) = self.queues.oldest(MAIN) {
            if self.counts[place] == 0 {
                return Some(place);
            }
            self.counts[place] -= 1;
            self.queues.unlink(place);
            self.queues.push(MAIN, place);
        }
        None
    }

    fn remember(&mut self, entry: &Entry) {
        self.n_ghosts += 1;
        self.ghost.push_back((entry.key, entry.size_bytes, self.n_ghosts));
        self.ghost_number.insert(entry.key, self.n_ghosts);
        self.ghost_bytes += u64::from(entry.size_bytes);
        while self.ghost_bytes as f64 > (1.0 - SMALL_SHARE) * self.capacity_bytes as f64 {
            let Some((key, size_bytes, number)) = self.ghost.pop_front() else {
                break;
            };
            self.ghost_bytes -= u64::from(size_bytes);
            if self.ghost_number.get(&key) == Some(&number) {
                self.ghost_number.remove(&key);
            }
        }
    }
}

impl Order for S3Fifo {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let small_first = self.small_is_due() || self.queues.oldest(MAIN).is_none();
        let victim = if small_first { self.victim_of_small(table) } else { None };
        let victim = victim.or_else(|| self.victim_of_main()).or_else(|| self.victim_of_small(table));
        victim.expect("a table that is not empty has a value in one of the queues")
    }

    fn stored(&mut self, table: &Table, place: usize) {
        let entry = &table.entries()[place];
        let queue = if self.ghost_number.remove(&entry.key).is_some() { MAIN } else { SMALL };
        self.queues.push(queue, place);
        self.bytes[queue] += u64::from(entry.size_bytes);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] = 0;
    }

    fn touched(&mut self, _table: &Table, place: usize) {
        self.counts[place] = (self.counts[place] + 1).min(COUNT_MAX);
    }

    fn removed(&mut self, table: &Table, place: usize) {
        self.bytes[self.queues.list_of(place)] -= u64::from(table.entries()[place].size_bytes);
        self.queues.unlink(place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.queues.moved(from, to);
        self.counts[to] = self.counts[from];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::policy::cache::{Cache, Outcome};

    /// Ten fit. A key asked for three times outlives a scan of a hundred others; one asked for once doesn't.
    #[test]
    fn a_scan_does_not_flush_what_is_popular() {
        let mut cache = S3Fifo::cache(10);
        let mut ask = |n| cache.access(&Access::read(KeyHash::of_number(n), 1)) == Outcome::Hit;
        for n in [1, 1, 1, 2] {
            ask(n);
        }
        for n in 100..200 {
            assert!(!ask(n));
        }
        assert!(ask(1));
        assert!(!ask(2));
    }

    /// What left the small queue lately enters main when it comes back.
    #[test]
    fn the_ghost_queue_remembers() {
        let mut cache = S3Fifo::cache(10);
        for n in 0..12 {
            cache.access(&Access::read(KeyHash::of_number(n), 1));
        }
        assert_eq!(cache.access(&Access::read(KeyHash::of_number(1), 1)), Outcome::Miss);
        let place = cache.table().place_of(KeyHash::of_number(1)).unwrap();
        assert_eq!(cache.order().queues.list_of(place), MAIN);
    }
}
