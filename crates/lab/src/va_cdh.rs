//! VA-CDH: per byte and time until the next request, what a miss makes all wait who ask meanwhile, and how far that
//! varies.
//!
//! Source: Jiang, Ma and Wang, arXiv 2504.20335 (2025): the value with the lowest (E + ω σ) / (R s) goes, for E and σ
//! the mean and the standard deviation of a fetch's aggregate delay, R the time until the next request and s the size.
//! As the source has it, E and σ are measured: whatever is in the cache, a fetch is thought to begin with the first
//! request after the last one's end. Differs from the source: R is the mean time between two such fetches, at least
//! the time since the last request; ω is 1; and of a sample of 64 the lowest goes. What keys have shown is remembered
//! for ever. Cost: a look-up per access, 64 per eviction; some 40 bytes for each key ever seen.

use tenure_core::access::{Access, Op};
use tenure_core::error::ConfigError;
use tenure_core::model::key_map::KeyMap;
use tenure_core::policy::cache::{Outcome, SAMPLE_SIZE_MAX, sample_size};
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::random::Random;

/// How many values are sampled where nothing else is asked for.
pub const SAMPLE_SIZE: u32 = 64;
/// ω: what a standard deviation weighs against a mean.
const OMEGA: f32 = 1.0;

/// The order. See the file's opening.
#[derive(Clone, Debug)]
pub struct VaCdh {
    k: usize,
    seen: KeyMap<Seen>,
    now_us: u64,
    random: Random,
}

/// What a key has shown.
#[derive(Clone, Copy, Debug)]
struct Seen {
    last_us: u64,
    /// When the first and the last fetch began.
    first_us: u64,
    began_us: u64,
    /// What the last one has made all wait so far.
    delay_us: f32,
    /// Of those before: how many, their mean, and the sum of the squares of what they are off it (Welford 1962).
    fetches: u32,
    mean_us: f32,
    squares: f32,
}

impl Seen {
    /// A key with its first request.
    fn first(access: &Access) -> Seen {
        let (now, delay_us) = (access.time_us, access.penalty_us);
        Seen { last_us: now, first_us: now, began_us: now, delay_us, fetches: 0, mean_us: 0.0, squares: 0.0 }
    }

    /// Another request: a read waits for the rest of the last fetch, or a new one begins. A write waits for nothing.
    fn again(&mut self, access: &Access) {
        let since_us = (access.time_us - self.began_us) as f32;
        self.last_us = access.time_us;
        if access.op == Op::Write {
            return;
        }
        if since_us < access.penalty_us {
            self.delay_us += access.penalty_us - since_us;
            return;
        }
        self.fetches += 1;
        let off = self.delay_us - self.mean_us;
        self.mean_us += off / self.fetches as f32;
        self.squares += off * (self.delay_us - self.mean_us);
        (self.began_us, self.delay_us) = (access.time_us, access.penalty_us);
    }

    /// Mean and standard deviation of what a fetch makes all wait, in µs; before one has ended what the first does.
    fn delay(&self) -> (f32, f32) {
        match self.fetches {
            0 => (self.delay_us, 0.0),
            n => (self.mean_us, (self.squares / n as f32).sqrt()),
        }
    }
}

impl VaCdh {
    /// A cache of `capacity_bytes` that looks at `k` values an eviction (1 to 64).
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn cache(k: u32, capacity_bytes: u64, seed: u64) -> Result<TableCache<VaCdh>, ConfigError> {
        let order = VaCdh { k: sample_size(k)?, seen: KeyMap::default(), now_us: 0, random: Random::new(seed) };
        Ok(TableCache::new(capacity_bytes, order))
    }

    fn score(&self, entry: &Entry) -> f32 {
        let Some(seen) = self.seen.get(&entry.key) else { return 0.0 };
        let idle_us = (self.now_us - seen.last_us) as f32;
        let between_us = (seen.began_us - seen.first_us) as f32 / seen.fetches.max(1) as f32;
        let (mean_us, deviation_us) = seen.delay();
        let until_next_us = between_us.max(idle_us).max(1.0);
        (mean_us + OMEGA * deviation_us) / (until_next_us * entry.size_bytes.max(1) as f32)
    }
}

impl Order for VaCdh {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let drawn = table.draw(self.k, &mut self.random, &mut drawn);
        let scores = drawn.iter().map(|&place| (self.score(&table.entries()[place as usize]), place));
        let (_, victim) = scores.min_by(|a, b| a.0.total_cmp(&b.0)).expect("the table isn't empty");
        victim as usize
    }

    fn observed(&mut self, access: &Access, _outcome: Outcome, _table: &Table) {
        self.now_us = access.time_us;
        if access.op == Op::Delete {
            self.seen.remove(&access.key);
            return;
        }
        let known = self.seen.entry(access.key);
        known.and_modify(|seen| seen.again(access)).or_insert_with(|| Seen::first(access));
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::cache::Cache;
    use tenure_core::units::KeyHash;

    use super::*;

    /// Fetches of 100 µs, of which one has others wait 60 and 10 and one has none: 170 and 100 µs, the third is under
    /// way.
    #[test]
    fn delays_are_measured_by_fetches() {
        let at = |time_us| Access { time_us, penalty_us: 100.0, ..Access::read(KeyHash(1), 10) };
        let mut seen = Seen::first(&at(1_000));
        assert_eq!(seen.delay(), (100.0, 0.0));
        seen.again(&at(1_030).with_op(Op::Write));
        [1_040, 1_090, 1_100, 1_250].map(at).iter().for_each(|access| seen.again(access));
        assert_eq!((seen.delay(), seen.fetches, seen.began_us), ((135.0, 35.0), 2, 1_250));
    }

    /// Of two keys that are asked for as often, with room for one of them, the one whose fetch others wait for stays.
    #[test]
    fn what_others_wait_for_stays() {
        let mut cache = VaCdh::cache(64, 20, 1).unwrap();
        let mut ask = |key, time_us, penalty_us| {
            cache.access(&Access { time_us, penalty_us, ..Access::read(KeyHash::of_number(key), 10) })
        };
        for i in 0..10 {
            ask(1, 1_000 * i, 500.0);
            ask(2, 1_000 * i + 500, 5_000.0);
        }
        ask(3, 10_000, 1.0);
        assert_eq!(ask(2, 10_001, 5_000.0), Outcome::Hit);
        assert_eq!(VaCdh::cache(65, 20, 1).unwrap_err(), ConfigError::SampleSize(65));
    }
}
