//! DLRU: K-LRU whose K is chosen anew every window, by what miniature caches of five K would have missed.
//!
//! Source: DLRU (Wang et al., MEMSYS'20) sec. 3; Wang's dissertation (2024) ch. 3. The cost model is in `decide/sample_size.rs`.
//! Differs from the paper: the miniature caches are bounded by bytes, like the cache, where the paper counts objects of mean
//! size; they begin when the cache first fills, with its values, at a rate that lets them hold about 4096 keys (the paper has 1/200
//! of millions).
//! No pool: with one, K = 1 would be far from random. Cost: five miniature caches × the rate on top of K-LRU.

use super::Snapshot;
use super::cache::{Cache, KLru, Outcome, SAMPLE_SIZE_MAX};
use super::lru::Lru;
use super::sampled::lowest;
use super::table::{Entry, Order, Table, TableCache};
use crate::access::{Access, Op};
use crate::decide::sample_size::{DISTINCT_KEYS_MIN, SAMPLE_SIZE_DEFAULT, SAMPLE_SIZES, cheapest_sample_size};
use crate::model::key_map::KeyMap;
use crate::random::Random;
use crate::sampling::SampleRate;

/// About how many keys a miniature cache holds.
const MINIATURE_KEYS: f64 = 4096.0;

/// The miniature caches and what they missed in this window.
#[derive(Clone, Debug)]
struct Miniatures {
    rate: SampleRate,
    caches: Vec<KLru>,
    misses: [u64; SAMPLE_SIZES.len()],
    distinct: KeyMap<()>,
}

impl Miniatures {
    fn new(rate: SampleRate, capacity_bytes: u64, random: &mut Random) -> Self {
        let capacity = (capacity_bytes as f64 * rate.rate()) as u64;
        let cache = |&k: &u32| KLru::new(k, capacity, random.next_u64()).expect("the sizes compared are in range");
        let caches = SAMPLE_SIZES.iter().map(cache).collect();
        Miniatures { rate, caches, misses: [0; SAMPLE_SIZES.len()], distinct: KeyMap::default() }
    }

    /// Holds what `table` holds, in its order of recency: a miniature that begins empty would miss alike for every K.
    fn fill(&mut self, table: &Table) {
        let mut sampled: Vec<&Entry> = table.entries().iter().filter(|entry| self.rate.takes(entry.key)).collect();
        sampled.sort_unstable_by_key(|entry| entry.last_access);
        for cache in &mut self.caches {
            for entry in &sampled {
                cache.access(&Access::read(entry.key, entry.size_bytes));
            }
        }
    }

    fn take(&mut self, access: &Access) {
        self.distinct.insert(access.key, ());
        for (cache, misses) in self.caches.iter_mut().zip(&mut self.misses) {
            *misses += u64::from(cache.access(access) == Outcome::Miss);
        }
    }
}

/// The order of DLRU. See the file's opening.
#[derive(Clone, Debug)]
pub struct Dlru {
    k: u32,
    window_requests: u64,
    miniatures: Option<Miniatures>,
    requests: u64,
    misses: u64,
    penalty_us_sum: f64,
    random: Random,
}

impl Dlru {
    /// A DLRU cache of `capacity_bytes` that chooses K every `window_requests`.
    pub fn cache(capacity_bytes: u64, window_requests: u64, seed: u64) -> TableCache<Dlru> {
        let order = Dlru {
            k: SAMPLE_SIZE_DEFAULT,
            window_requests,
            miniatures: None,
            requests: 0,
            misses: 0,
            penalty_us_sum: 0.0,
            random: Random::new(seed),
        };
        TableCache::new(capacity_bytes, order)
    }

    fn end_window(&mut self) {
        if let Some(miniatures) = &mut self.miniatures {
            let enough = miniatures.distinct.len() >= DISTINCT_KEYS_MIN;
            let penalty_us_mean = self.penalty_us_sum / self.misses.max(1) as f64;
            self.k = match enough {
                true => cheapest_sample_size(&miniatures.misses, penalty_us_mean),
                false => SAMPLE_SIZE_DEFAULT,
            };
            miniatures.misses = [0; SAMPLE_SIZES.len()];
            miniatures.distinct.clear();
        }
        (self.requests, self.misses, self.penalty_us_sum) = (0, 0, 0.0);
    }
}

impl Order for Dlru {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        if self.miniatures.is_none() {
            let rate = (MINIATURE_KEYS / table.entries().len() as f64).min(1.0);
            let rate = SampleRate::new(rate).unwrap_or(SampleRate::ALL);
            let mut miniatures = Miniatures::new(rate, table.capacity_bytes(), &mut self.random);
            miniatures.fill(table);
            self.miniatures = Some(miniatures);
        }
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        lowest(&Lru, table, table.draw(self.k as usize, &mut self.random, &mut drawn))
    }

    fn observed(&mut self, access: &Access, outcome: Outcome, _table: &Table) {
        if let Some(miniatures) = self.miniatures.as_mut().filter(|m| m.rate.takes(access.key)) {
            miniatures.take(access);
        }
        if access.op == Op::Read {
            self.requests += 1;
            if outcome == Outcome::Miss {
                self.misses += 1;
                self.penalty_us_sum += f64::from(access.penalty_us);
            }
            if self.requests >= self.window_requests {
                self.end_window();
            }
        }
    }

    fn snapshot(&self, _table: &Table) -> Snapshot {
        Snapshot { sample_sizes: vec![self.k], ..Snapshot::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Inspect;
    use crate::units::KeyHash;

    fn k_after(keys: impl Iterator<Item = u64>) -> u32 {
        let mut cache = Dlru::cache(1_000, 10_000, 1);
        for key in keys {
            cache.access(&Access { penalty_us: 1000.0, ..Access::read(KeyHash::of_number(key), 1) });
        }
        cache.snapshot().sample_sizes[0]
    }

    /// A loop slightly larger than the cache is best served at random.
    #[test]
    fn a_loop_wants_random_eviction() {
        assert_eq!(k_after((0..60_000).map(|i| i % 1_100)), 1);
    }

    /// A working set that drifts slowly is best served by recency.
    #[test]
    fn a_drift_wants_recency() {
        let mut random = Random::new(3);
        assert_eq!(k_after((0..60_000).map(move |i| i / 4 + random.below(900))), 16);
    }
}
