//! VA-CDH: per byte and time until the next request, what a miss makes all wait who ask meanwhile, and how far that
//! varies.
//!
//! Source: Jiang, Ma and Wang, arXiv 2504.20335 (2025): the value with the lowest (E + ω σ) / (R s) goes, for E and σ
//! the mean and the standard deviation of a fetch's aggregate delay, R the time until the next request and s the size.
//! Differs from the source: E and σ are those of Poisson arrivals, by Campbell's theorem, and not counted by fetches;
//! their rate and R come from the smoothed time between a key's requests, R at least the time since the last; ω is 1;
//! and of a sample of 64 the lowest goes. What keys have shown is remembered for ever. Cost: a look-up per access, 64
//! per eviction; some 30 bytes for each key ever seen.

use tenure_core::access::{Access, Op};
use tenure_core::decide::delayed_hits::aggregate_delay_us;
use tenure_core::error::ConfigError;
use tenure_core::model::key_map::KeyMap;
use tenure_core::policy::cache::{Outcome, SAMPLE_SIZE_MAX};
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::random::Random;

/// How many values are sampled where nothing else is asked for.
pub const SAMPLE_SIZE: u32 = 64;
/// ω: what a standard deviation weighs against a mean.
const OMEGA: f32 = 1.0;
/// What a new time between two requests weighs.
const WEIGHT: f32 = 0.25;

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
    /// Smoothed time between two requests; `None` before the second.
    gap_us: Option<f32>,
}

impl VaCdh {
    /// A cache of `capacity_bytes` that looks at `k` values an eviction (1 to 64).
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn cache(k: u32, capacity_bytes: u64, seed: u64) -> Result<TableCache<VaCdh>, ConfigError> {
        if !(1..=SAMPLE_SIZE_MAX).contains(&k) {
            return Err(ConfigError::SampleSize(k));
        }
        let order = VaCdh { k: k as usize, seen: KeyMap::default(), now_us: 0, random: Random::new(seed) };
        Ok(TableCache::new(capacity_bytes, order))
    }

    fn score(&self, entry: &Entry) -> f32 {
        let seen = self.seen.get(&entry.key);
        let idle_us = seen.map_or(0, |seen| self.now_us - seen.last_us) as f32;
        let gap_us = seen.and_then(|seen| seen.gap_us);
        let until_next_us = gap_us.unwrap_or(idle_us).max(idle_us).max(1.0);
        let (mean, deviation) = aggregate_delay(entry.penalty_us, gap_us);
        (mean + OMEGA * deviation) / (until_next_us * entry.size_bytes.max(1) as f32)
    }
}

/// Mean and standard deviation of what a fetch makes all wait, in µs, where requests come by Poisson's law: the sum of
/// z - u over arrivals u in z has the variance z³ / 3 gap.
fn aggregate_delay(penalty_us: f32, gap_us: Option<f32>) -> (f32, f32) {
    let deviation = gap_us.map_or(0.0, |gap_us| (penalty_us.powi(3) / (3.0 * gap_us.max(1.0))).sqrt());
    (aggregate_delay_us(penalty_us, gap_us), deviation)
}

impl Order for VaCdh {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let drawn = table.draw(self.k, &mut self.random, &mut drawn);
        let score = |place: &u32| self.score(&table.entries()[*place as usize]);
        drawn.iter().min_by(|a, b| score(a).total_cmp(&score(b))).map_or(0, |&place| place as usize)
    }

    fn observed(&mut self, access: &Access, _outcome: Outcome, _table: &Table) {
        self.now_us = access.time_us;
        if access.op == Op::Delete {
            self.seen.remove(&access.key);
            return;
        }
        let before = self.seen.get(&access.key).copied();
        let gap_us = before.map(|before| {
            let gap_us = (access.time_us - before.last_us) as f32;
            before.gap_us.map_or(gap_us, |smoothed| smoothed + WEIGHT * (gap_us - smoothed))
        });
        self.seen.insert(access.key, Seen { last_us: access.time_us, gap_us });
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::cache::Cache;
    use tenure_core::units::KeyHash;

    use super::*;

    /// Fetches of 1 ms with requests every 100 µs, drawn: mean and deviation are those that are counted.
    #[test]
    fn delays_are_those_of_poisson_arrivals() {
        let (z, gap) = (1000.0_f64, 100.0_f64);
        let mut random = Random::new(7);
        let mut delay = || {
            let (mut at, mut sum) = (0.0, z);
            loop {
                at -= (1.0 - random.unit()).ln() * gap;
                if at > z {
                    return sum;
                }
                sum += z - at;
            }
        };
        let delays: Vec<f64> = (0..100_000).map(|_| delay()).collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let variance = delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / delays.len() as f64;
        let (told_mean, told_deviation) = aggregate_delay(z as f32, Some(gap as f32));
        assert!((f64::from(told_mean) / mean - 1.0).abs() < 0.01, "{told_mean} {mean}");
        assert!((f64::from(told_deviation) / variance.sqrt() - 1.0).abs() < 0.02, "{told_deviation} {variance}");
        assert_eq!(aggregate_delay(1000.0, None), (1000.0, 0.0));
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
