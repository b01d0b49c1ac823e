//! DLRU: K-LRU whose K is chosen anew every window, by what miniature caches of five K would have missed.
//!
//! Source: DLRU (Wang et al., MEMSYS'20) sec. 3; Wang's dissertation (2024) ch. 3. The cost model is in
//! `core/src/decide/sample_size.rs`. The miniature caches are those of `miniatures.rs`. Differs from the paper: they
//! begin when the cache first fills, with its values, at a rate that lets them hold about 4096 keys (the paper has
//! 1/200 of millions). The server evicts, with its pool, which the miniatures don't have: as in the paper, K-LRU
//! stands for it. Cost: five miniature caches × the rate on top of K-LRU.

use crate::miniatures::Miniatures;
use tenure_core::access::{Access, Op};
use tenure_core::decide::sample_size::{EVICTION_US_AT_ONE, SAMPLE_SIZE_DEFAULT};
use tenure_core::policy::Snapshot;
use tenure_core::policy::cache::Outcome;
use tenure_core::policy::redis::RedisLru;
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::random::Random;
use tenure_core::sampling::SampleRate;

/// About how many keys a miniature cache holds.
const MINIATURE_KEYS: f64 = 4096.0;

/// Holds what `table` holds, in its order of recency: a miniature that begins empty would miss alike for every K.
fn fill(miniatures: &mut Miniatures, table: &Table) {
    let mut sampled: Vec<&Entry> = table.entries().iter().filter(|entry| miniatures.rate().takes(entry.key)).collect();
    sampled.sort_unstable_by_key(|entry| entry.last_access);
    sampled.iter().for_each(|entry| miniatures.hold(&Access::read(entry.key, entry.size_bytes)));
}

/// The order of DLRU. See the file's opening.
#[derive(Clone, Debug)]
pub struct Dlru {
    k: u32,
    evictor: RedisLru,
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
            evictor: RedisLru::order(SAMPLE_SIZE_DEFAULT, seed),
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
            let penalty_us_mean = self.penalty_us_sum / self.misses.max(1) as f64;
            self.k = miniatures.cheapest(penalty_us_mean, EVICTION_US_AT_ONE).unwrap_or(SAMPLE_SIZE_DEFAULT);
            miniatures.end_window();
            self.evictor.set_sample_size(self.k);
        }
        (self.requests, self.misses, self.penalty_us_sum) = (0, 0, 0.0);
    }
}

impl Order for Dlru {
    fn victim(&mut self, table: &Table, incoming: &Entry) -> usize {
        if self.miniatures.is_none() {
            let rate = (MINIATURE_KEYS / table.entries().len() as f64).min(1.0);
            let rate = SampleRate::new(rate).unwrap_or(SampleRate::ALL);
            let mut miniatures = Miniatures::new(rate, table.capacity_bytes(), self.random.next_u64());
            fill(&mut miniatures, table);
            self.miniatures = Some(miniatures);
        }
        self.evictor.victim(table, incoming)
    }

    fn observed(&mut self, access: &Access, outcome: Outcome, _table: &Table) {
        if let Some(miniatures) = &mut self.miniatures {
            miniatures.record(access);
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
    use tenure_core::policy::Inspect;
    use tenure_core::policy::cache::Cache;
    use tenure_core::units::KeyHash;

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
