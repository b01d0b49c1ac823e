//! 3L-Cache × cost: a forest learns when a value is asked for next, and of those met in order of access the one goes
//! whose bytes wait longest for their cost.
//!
//! Source: Zhou et al., FAST'25 ("3L-Cache: Low Overhead, High Precision and Low Latency Learning-based Caching"),
//! and the authors' program in libCacheSim with its objective `object-miss-ratio`. Features: time since the last
//! access, the last three gaps, size, requests. What was sampled at a request gives one row when it is asked for
//! again, or when it leaves the window of evicted keys that are remembered (as many as values are held); its label is
//! the logarithm of the time that took. A pointer goes through the values from the longest idle on and takes 1024 (at
//! most a hundredth) at a time, of which half are evicted by predicted time × size; newcomers of more than 2 % of the
//! room are looked at first. Without a forest it is LRU. Here predicted time × size / cost. Differs: trees as in
//! `boosting.rs`; a forest grows when as many rows have come as a window of the caller's has requests, at most 65,536
//! (there always: most traces here would never see one); the window of evicted keys doesn't grow (there after a
//! million requests). Cost: two predictions of 16 trees per eviction, O(rows × trees) per forest; about 90 bytes per
//! key held or remembered.

use std::collections::{BinaryHeap, VecDeque};

use tenure_core::access::{Access, Op};
use tenure_core::model::key_map::KeyMap;
use tenure_core::policy::cache::Outcome;
use tenure_core::policy::linked::Lists;
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::random::Random;
use tenure_core::units::KeyHash;

use crate::boosting::{Forest, Growth};

const GAPS: usize = 3;
const FEATURES: usize = GAPS + 3;
const GROWTH: Growth = Growth { trees: 16, leaves: 32, rate: 0.1 };
/// Rows that a forest is grown from at most.
const ROWS_MAX: usize = 65_536;
/// Once there is a forest, one in four samples becomes a row.
const ROW_ONE_IN: u64 = 4;
/// Values looked at together, and how many of them for each that goes.
const BATCH: usize = 1024;
const LOOKED_AT_PER_VICTIM: usize = 2;
/// Newcomers of more than this share of the room are looked at first; from ten times that on nobody else is.
const NEW_SHARE: f64 = 0.02;

/// What is known of a key.
#[derive(Clone, Copy, Debug)]
struct Known {
    last: u64,
    /// The latest first; 0 = none.
    gaps: [u32; GAPS],
    requests: u16,
    size_bytes: u32,
    /// When it was sampled; 0 = not since its last access.
    sampled: u64,
    /// It has left, and is remembered.
    is_gone: bool,
}

impl Known {
    fn row(&self, now: u64) -> [f32; FEATURES] {
        let [a, b, c] = self.gaps.map(|gap| gap as f32);
        [(now - self.last) as f32, a, b, c, self.size_bytes as f32, f32::from(self.requests)]
    }
}

/// A candidate: the one that waits longest goes first, unless it was asked for meanwhile.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    wait: f64,
    key: KeyHash,
    last: u64,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.wait.total_cmp(&other.wait)
    }
}

/// What the next forest is to learn from.
#[derive(Clone, Debug)]
struct Rows {
    rows: Vec<[f32; FEATURES]>,
    labels: Vec<f32>,
    /// A forest grows from so many.
    wanted: usize,
}

/// The order of 3L-Cache. See the file's opening.
#[derive(Clone, Debug)]
pub struct ThreeL {
    queue: Lists<1>,
    known: KeyMap<Known>,
    gone: VecDeque<KeyHash>,
    learned: Rows,
    forest: Option<Forest<FEATURES>>,
    /// The longest idle that has left the window, up to the last forest and since.
    idle_max: [u64; 2],
    candidates: BinaryHeap<Candidate>,
    /// What may still go of the candidates before others are looked at.
    due: usize,
    pointer: Option<usize>,
    newcomers: VecDeque<(KeyHash, u32)>,
    new_bytes: u64,
    used_bytes: u64,
    evicting: bool,
    now: u64,
    random: Random,
}

impl ThreeL {
    /// A 3L cache of `capacity_bytes` whose forests grow from as many rows as a window has requests.
    pub fn cache(capacity_bytes: u64, window_requests: u64, seed: u64) -> TableCache<ThreeL> {
        let order = ThreeL {
            queue: Lists::new(),
            known: KeyMap::default(),
            gone: VecDeque::new(),
            learned: Rows {
                rows: Vec::new(),
                labels: Vec::new(),
                wanted: (window_requests as usize).clamp(1, ROWS_MAX),
            },
            forest: None,
            idle_max: [0; 2],
            candidates: BinaryHeap::new(),
            due: 0,
            pointer: None,
            newcomers: VecDeque::new(),
            new_bytes: 0,
            used_bytes: 0,
            evicting: false,
            now: 1,
            random: Random::new(seed),
        };
        TableCache::new(capacity_bytes, order)
    }

    /// A key's sample has come to its end after `time`.
    fn learn(&mut self, known: &Known, time: u64) {
        if known.sampled == 0 || (self.forest.is_some() && self.random.below(ROW_ONE_IN) > 0) {
            return;
        }
        let Rows { rows, labels, wanted } = &mut self.learned;
        rows.push(known.row(known.sampled));
        labels.push((time as f32).ln_1p());
        if rows.len() >= *wanted {
            self.forest = Some(Forest::grow(rows, labels, GROWTH));
            rows.clear();
            labels.clear();
            self.candidates.clear();
            self.due = 0;
            self.idle_max[0] = self.idle_max[1];
        }
    }

    /// The longest gone are forgotten, beyond as many as are held.
    fn forget(&mut self, n_held: usize) {
        while self.gone.len() > n_held + 2 {
            let Some(key) = self.gone.pop_front() else { return };
            let Some(&known) = self.known.get(&key).filter(|known| known.is_gone) else { continue };
            let idle = self.now - known.last;
            self.idle_max[1] = self.idle_max[1].max(idle);
            self.learn(&known, self.idle_max[0] + idle);
            self.known.remove(&key);
        }
    }

    /// Samples one key of all that are held or remembered.
    fn sample(&mut self, table: &Table) {
        let n_held = table.entries().len();
        let drawn = self.random.below((n_held + self.gone.len()).max(1) as u64) as usize;
        let key = match table.entries().get(drawn) {
            Some(entry) => Some(entry.key),
            None => self.gone.get(drawn - n_held).copied(),
        };
        if let Some(known) = key.and_then(|key| self.known.get_mut(&key)).filter(|known| known.sampled == 0) {
            known.sampled = self.now;
        }
    }

    fn offer(&mut self, entry: &Entry) {
        let (Some(forest), Some(known)) = (&self.forest, self.known.get(&entry.key)) else { return };
        let time = f64::from(forest.predict(&known.row(self.now))).exp();
        let wait = time * f64::from(entry.size_bytes) / f64::from(entry.penalty_us.max(1e-3));
        self.candidates.push(Candidate { wait, key: entry.key, last: known.last });
    }

    /// Looks at newcomers, then at the next that the pointer meets.
    fn look(&mut self, table: &Table) {
        let entries = table.entries();
        let batch = BATCH.min(entries.len() / 100 + LOOKED_AT_PER_VICTIM);
        let is_much = |bytes: u64, share: f64, used: u64| bytes as f64 > share * used as f64;
        let mut looked_at = 0;
        while looked_at < batch * 3 / 2
            && is_much(self.new_bytes, NEW_SHARE, self.used_bytes)
            && let Some((key, size_bytes)) = self.newcomers.pop_front()
        {
            self.new_bytes -= u64::from(size_bytes);
            if let Some(place) = table.place_of(key) {
                self.offer(&entries[place]);
                looked_at += 1;
            }
        }
        if !is_much(self.new_bytes, 10.0 * NEW_SHARE, self.used_bytes) {
            for _ in 0..batch {
                let Some(place) = self.pointer.or_else(|| self.queue.oldest(0)) else { break };
                self.offer(&entries[place]);
                self.pointer = self.queue.newer(place);
                looked_at += 1;
                if self.pointer.is_none() {
                    // Once round: what was thought of values before is old.
                    self.candidates.clear();
                }
            }
        }
        self.due = (looked_at / LOOKED_AT_PER_VICTIM).max(1);
    }

    /// The candidate that waits longest and is still what it was.
    fn worst(&mut self, table: &Table) -> Option<usize> {
        while let Some(Candidate { key, last, .. }) = self.candidates.pop() {
            let place = table.place_of(key);
            if let Some(place) = place.filter(|_| self.known.get(&key).is_some_and(|known| known.last == last)) {
                return Some(place);
            }
        }
        None
    }

    fn step_from(&mut self, place: usize) {
        if self.pointer == Some(place) {
            self.pointer = self.queue.newer(place);
        }
    }
}

impl Order for ThreeL {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        self.evicting = true;
        if self.forest.is_some() {
            if self.due == 0 || self.candidates.is_empty() {
                self.look(table);
            }
            self.due = self.due.saturating_sub(1);
            if let Some(place) = self.worst(table) {
                return place;
            }
        }
        self.queue.oldest(0).expect("a table that is not empty has an oldest")
    }

    fn stored(&mut self, table: &Table, place: usize) {
        let Entry { key, size_bytes, .. } = table.entries()[place];
        self.queue.push(0, place);
        self.used_bytes += u64::from(size_bytes);
        if self.forest.is_some() {
            self.newcomers.push_back((key, size_bytes));
            self.new_bytes += u64::from(size_bytes);
        }
    }

    fn touched(&mut self, _table: &Table, place: usize) {
        self.step_from(place);
        self.queue.unlink(place);
        self.queue.push(0, place);
    }

    fn removed(&mut self, table: &Table, place: usize) {
        let Entry { key, size_bytes, .. } = table.entries()[place];
        self.step_from(place);
        self.queue.unlink(place);
        self.used_bytes -= u64::from(size_bytes);
        if std::mem::take(&mut self.evicting)
            && let Some(known) = self.known.get_mut(&key)
        {
            known.is_gone = true;
            self.gone.push_back(key);
        }
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.queue.moved(from, to);
        if self.pointer == Some(from) {
            self.pointer = Some(to);
        }
    }

    fn observed(&mut self, access: &Access, _outcome: Outcome, table: &Table) {
        if access.op == Op::Delete {
            self.known.remove(&access.key);
            return;
        }
        let now = self.now;
        if let Some(&before) = self.known.get(&access.key) {
            self.learn(&before, now - before.sampled.min(now));
        }
        let new = Known {
            last: now,
            gaps: [0; GAPS],
            requests: 0,
            size_bytes: access.size_bytes,
            sampled: 0,
            is_gone: false,
        };
        let known = self.known.entry(access.key).or_insert(new);
        if known.requests > 0 {
            let [a, b, _] = known.gaps;
            known.gaps = [(now - known.last).min(u64::from(u32::MAX)) as u32, a, b];
        }
        let requests = known.requests.saturating_add(1);
        *known = Known { requests, gaps: known.gaps, ..new };
        self.now += 1;
        self.sample(table);
        self.forget(table.entries().len());
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::cache::Cache;

    use super::*;

    fn read(number: u64, penalty_us: f32) -> Access {
        Access { penalty_us, ..Access::read(KeyHash::of_number(number), 1) }
    }

    /// Without a forest it is LRU: of A B C A D, with room for three, B goes.
    #[test]
    fn at_first_it_is_lru() {
        let mut cache = ThreeL::cache(3, 1_000_000, 1);
        let mut hit = |key: char| if cache.access(&read(key as u64, 1.0)) == Outcome::Hit { key } else { '.' };
        assert_eq!("ABCADAB".chars().map(&mut hit).collect::<String>(), "...A.A.");
    }

    /// A loop over 300 keys with room for 200, beside as many that never come again: LRU never hits, and of the loop
    /// two thirds can be had.
    #[test]
    fn what_comes_again_is_learned_and_what_is_expensive_preferred() {
        let mut cache = ThreeL::cache(200, 5_000, 1);
        let (mut cheap, mut expensive) = (0, 0);
        for i in 0..120_000_u64 {
            let number = if i % 2 == 0 { i / 2 % 300 } else { 1_000 + i };
            let is_expensive = number % 2 == 0;
            let hit = cache.access(&read(number, if is_expensive { 100.0 } else { 1.0 })) == Outcome::Hit;
            let counted = u32::from(hit && i >= 60_000);
            *(if is_expensive { &mut expensive } else { &mut cheap }) += counted;
            assert!(cache.used_bytes() <= 200);
        }
        assert!(cheap + expensive > 10_000 && expensive > 2 * cheap, "{cheap} and {expensive} of 15000 each");
    }

    #[test]
    fn the_account_is_kept_under_deletes_and_changing_sizes() {
        let mut cache = ThreeL::cache(300, 1_000, 1);
        let mut random = Random::new(1);
        for i in 0..30_000_u64 {
            let key = KeyHash::of_number(random.below(90));
            let access = Access { penalty_us: 9.0, ..Access::read(key, 1 + random.below(30) as u32) };
            cache.access(&if i % 7 == 0 { access.with_op(Op::Delete) } else { access });
            assert!(cache.used_bytes() <= 300 && cache.order().used_bytes == cache.used_bytes());
        }
    }
}
