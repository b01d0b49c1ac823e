//! KRR: the miss ratio curve of K-LRU for any sampling size K, with sizes, deletes and expiry.
//!
//! Source: Yang, Wang and Wang (ICPP'21) as Wang's dissertation (2024) sums it up in sec. 2.3.1 and 4.1.4. Idea: a
//! stack that is updated at random so that its top `i` keys are what a K-LRU cache of `i` keys would hold. When a key
//! comes to the top, the key at position `i` is the one that a cache of `i` keys evicts with probability 1 -
//! ((i-1)/i)^K', and then moves down into the place left open below it; all other keys stay. Backward update: from
//! the open place `p` upwards, the next such position is `ceil((p-1) u^(1/K'))` for a uniform `u`, so only about K'
//! ln M of M keys move. K' = K^1.4 makes up for the stack being less ordered than true recency (the authors' fit,
//! checked in docs/models.md). Bytes: the sizes of the first b^j keys are added up for every j (`size_sums`), and a
//! position's bytes interpolated. Differs from the paper: sampling without a bias of half a sampled key, correction
//! of the rate by a census, a table in place of the power function, b = 1.1. Deleted and expired keys leave holes,
//! which the next key to come to the top from below fills. Cost: O(K' log M) per sampled access, about 3 ns per key
//! moved; about 50 bytes per sampled key.

use super::key_map::KeyMap;
use super::krr_stack::{ShrinkTable, Stack};
use super::sample::Sample;
use super::tally::distance_at_rate_one;
use super::{Counted, CurveModel};
use crate::access::{Access, Op};
use crate::curve::MissRatioCurve;
use crate::error::ConfigError;
use crate::expiry::{ExpiryQueue, expires_us_after};
use crate::policy::cache::sample_size;
use crate::random::Random;
use crate::sampling::{SampleRate, Sampling};
use crate::units::KeyHash;

/// K' = K^this: see the file's opening.
const SAMPLE_SIZE_EXPONENT: f64 = 1.4;

/// The model. See the file's opening.
#[derive(Clone, Debug)]
pub struct Krr {
    sampling: Sampling,
    sample: Sample,
    random: Random,
    shrink: ShrinkTable,
    known: KeyMap<Known>,
    stack: Stack,
    expiries: ExpiryQueue,
    /// Until enough was seen, the first access of a key says nothing.
    first_access_is_unknown: bool,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: u32,
    expires_us: u64,
}

impl Krr {
    /// A model of K-LRU with sampling size `k`, 1 to 64.
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn new(k: u32, sampling: Sampling, counted: Counted, seed: u64) -> Result<Self, ConfigError> {
        sample_size(k)?;
        Ok(Krr {
            sampling,
            sample: Sample::new(sampling, counted),
            random: Random::new(seed),
            shrink: ShrinkTable::new(f64::from(k).powf(SAMPLE_SIZE_EXPONENT)),
            known: KeyMap::default(),
            stack: Stack::default(),
            expiries: ExpiryQueue::default(),
            first_access_is_unknown: false,
        })
    }

    /// Counts requests of the stream without looking at their keys, as [`super::eaet::Eaet::advance`] does.
    pub fn advance(&mut self, counted: u64) {
        self.sample.tally.advance(counted as f64);
    }

    /// Counts deletes of the stream, as [`super::eaet::Eaet::advance_deletes`] does.
    pub fn advance_deletes(&mut self, deletes: u64) {
        self.sample.tally.advance_deletes(deletes as f64);
    }

    /// Takes one access of a key in the sample.
    pub fn record_sampled(&mut self, access: &Access) {
        self.expire(access.time_us);
        let known = self.known.get(&access.key).copied();
        if access.op == Op::Delete {
            self.sample.tally.count_delete(known.is_some());
            if let Some(known) = known {
                self.known.remove(&access.key);
                self.stack.remove(known.id);
            }
            return;
        }
        let distance = match known {
            None => None,
            Some(known) => {
                let (depth_bytes, own_bytes) = self.stack.depth(known.id);
                Some(distance_at_rate_one(depth_bytes, own_bytes, self.sample.rate))
            }
        };
        match distance {
            None if self.first_access_is_unknown => self.sample.tally.leave_out(access, self.sample.rate),
            _ => self.sample.tally.count(access, distance),
        }
        let expires_us = expires_us_after(access, known.map(|known| known.expires_us));
        let id = match known {
            Some(known) => {
                self.stack.touch(known.id, access.size_bytes, &self.shrink, &mut self.random);
                known.id
            }
            None => self.stack.insert(access.size_bytes, &self.shrink, &mut self.random),
        };
        if known.is_none_or(|known| known.expires_us != expires_us) {
            self.known.insert(access.key, Known { id, expires_us });
            self.expiries.push(access.key, expires_us);
        }
        if self.sampling.is_exceeded_by(self.known.len(), self.sample.rate) {
            self.thin(self.sampling.lowered(self.sample.rate));
        }
    }

    /// Takes one access of a key that was another model's until now: it was accessed before, so this is no cold miss.
    pub fn record_joined(&mut self, access: &Access) {
        let before = std::mem::replace(&mut self.first_access_is_unknown, true);
        self.record_sampled(access);
        self.first_access_is_unknown = before;
    }

    /// The size of a sampled key at its last access, in bytes; `None` where the key isn't remembered.
    pub fn size_of(&self, key: KeyHash) -> Option<u32> {
        self.known.get(&key).map(|known| self.stack.depth(known.id).1 as u32)
    }

    fn expire(&mut self, now_us: u64) {
        while let Some((key, expires_us)) = self.expiries.pop_expired(now_us) {
            let known = self.known.get(&key).copied();
            if let Some(known) = known.filter(|known| known.expires_us == expires_us) {
                self.known.remove(&key);
                self.stack.remove(known.id);
            }
        }
    }

    /// Ends a window: what was counted so far weighs `decay` (0 to 1) of what it did. Keys stay known.
    pub fn decay(&mut self, decay: f64) {
        self.sample.tally.decay(decay);
    }

    /// Thins the sample to a lower rate, as if it had been sampled so from the start. O(sampled keys).
    ///
    /// # Panics
    /// Where `rate` is above the present one: what was not sampled can't be had back.
    pub fn thin(&mut self, rate: SampleRate) {
        assert!(rate <= self.sample.rate, "a sample can only be thinned");
        let share = rate.rate() / self.sample.rate.rate();
        self.sample.set_rate(rate);
        self.known.retain(|&key, _| rate.takes(key));
        self.known.shrink_to_fit();
        let kept: Vec<u32> = self.known.values().map(|known| known.id).collect();
        self.stack.keep_only(&kept, share, &mut self.random);
    }

    /// Raises the rate. The stack holds too few keys for it, so it starts empty, as after a gap ([`Krr::skip`]).
    ///
    /// # Panics
    /// Where `rate` is below the present one: thinning is another thing.
    pub fn widen(&mut self, rate: SampleRate) {
        assert!(rate >= self.sample.rate, "thinning is another thing");
        self.sample.set_rate(rate);
        self.skip();
    }

    /// A part of the stream goes by unseen: keys are forgotten, and until [`Krr::all_known`] their next access is not
    /// taken for a cold miss.
    pub fn skip(&mut self) {
        self.known = KeyMap::default();
        self.stack = Stack::default();
        self.expiries = ExpiryQueue::default();
        self.first_access_is_unknown = true;
    }

    /// Enough was seen since the rate was raised, or since a gap: a key not met so far is new.
    pub fn all_known(&mut self) {
        self.first_access_is_unknown = false;
    }

    /// Forgets keys that no cache of `bytes` holds: their next access is a miss in any smaller one all the same.
    /// O(sampled keys).
    pub fn forget_beyond(&mut self, bytes: u64) {
        let (stack, rate) = (&self.stack, self.sample.rate);
        let is_within = |known: &Known| {
            let (depth_bytes, own_bytes) = stack.depth(known.id);
            distance_at_rate_one(depth_bytes, own_bytes, rate) <= bytes
        };
        let before = self.known.len();
        self.known.retain(|_, known| is_within(known));
        if self.known.len() < before {
            let kept: Vec<u32> = self.known.values().map(|known| known.id).collect();
            self.stack.keep_only(&kept, 1.0, &mut self.random);
        }
    }

    /// Bytes of all keys that are remembered, those that they stand for included.
    pub fn known_bytes(&self) -> u64 {
        (self.stack.bytes() as f64 / self.sample.rate.rate()) as u64
    }

    /// The rate of the sample now.
    pub fn rate(&self) -> SampleRate {
        self.sample.rate
    }

    /// Sampled keys that are remembered now.
    pub fn sampled_keys(&self) -> usize {
        self.known.len()
    }
}

impl CurveModel for Krr {
    fn record(&mut self, access: &Access) {
        if self.sample.takes(access) {
            self.record_sampled(access);
        }
    }

    fn forget_counts(&mut self) {
        self.sample.tally.decay(0.0);
    }

    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        self.sample.curve(sizes_bytes)
    }

    fn sample_rate(&self) -> SampleRate {
        self.sample.rate
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.known.memory_bytes()
            + self.stack.memory_bytes()
            + self.expiries.memory_bytes()
            + self.sample.memory_bytes()
            + self.shrink.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::even_sizes;
    use crate::model::testing::{StreamConfig, exact_curve, fed, simulated_curve, stream};

    fn krr(k: u32, sampling: Sampling) -> Krr {
        Krr::new(k, sampling, Counted::ReadsAndWrites, 1).unwrap()
    }

    /// The mean absolute error against simulation (K up to 16) or exact LRU (above), over 10 sizes.
    fn error(k: u32, sampling: Sampling, config: StreamConfig) -> f64 {
        let accesses = stream(config);
        let sizes = even_sizes(6_000 * (u64::from(config.size_bytes_max) + 1) / 2, 10);
        let truth = if k > 16 { exact_curve(&accesses, &sizes) } else { simulated_curve(k, &accesses, &sizes) };
        fed(krr(k, sampling), &accesses).curve(&sizes).mean_absolute_error(&truth, &sizes)
    }

    #[test]
    fn it_equals_simulated_k_lru() {
        for k in [1, 2, 5, 8, 16] {
            let error = error(k, Sampling::ALL, StreamConfig::default());
            assert!(error < 0.004, "K={k}: {error}");
        }
    }

    #[test]
    fn it_tends_to_lru_as_k_grows() {
        let errors = [1, 5, 64].map(|k| {
            let accesses = stream(StreamConfig::default());
            let sizes = even_sizes(6_000, 10);
            let lru = exact_curve(&accesses, &sizes);
            fed(krr(k, Sampling::ALL), &accesses).curve(&sizes).mean_absolute_error(&lru, &sizes)
        });
        assert!(errors[0] > errors[1] && errors[1] > errors[2] && errors[2] < 0.01, "{errors:?}");
    }

    #[test]
    fn sizes_and_deletes_are_modelled() {
        for k in [1, 5] {
            let variable = StreamConfig { size_bytes_max: 1000, ..StreamConfig::default() };
            let sizes = error(k, Sampling::ALL, variable);
            assert!(sizes < 0.006, "K={k}, sizes: {sizes}");
            let deletes = error(k, Sampling::ALL, StreamConfig { delete_every: 5, ..variable });
            assert!(deletes < 0.006, "K={k}, sizes and deletes: {deletes}");
        }
    }

    #[test]
    fn samples_are_close_and_bounded() {
        let config = StreamConfig { n: 200_000, keys: 20_000, ..StreamConfig::default() };
        let accesses = stream(config);
        let sizes = even_sizes(30_000, 20);
        let truth = simulated_curve(5, &accesses, &sizes);
        let rate = Sampling::Rate(SampleRate::new(0.1).unwrap());
        for sampling in [rate, Sampling::Keys(2_000)] {
            let model = fed(krr(5, sampling), &accesses);
            let error = model.curve(&sizes).mean_absolute_error(&truth, &sizes);
            assert!(error < 0.02, "{sampling:?}: {error}");
        }
        let model = fed(krr(5, Sampling::Keys(2_000)), &accesses);
        assert!((1_000..=2_000).contains(&model.sampled_keys()), "{}", model.sampled_keys());
        assert!(model.memory_bytes() < 1 << 20, "{}", model.memory_bytes());
    }

    #[test]
    fn an_expired_value_is_cold_and_leaves_its_space() {
        let read =
            |number: u64, time_us: u64| Access { time_us, ttl_us: 50, ..Access::read(KeyHash::of_number(number), 8) };
        let accesses: Vec<Access> = (0..1000_u64).map(|i| read(i % 10, i * 10)).collect();
        assert_eq!(fed(krr(5, Sampling::ALL), &accesses).curve(&[1 << 20]).points()[0].miss_ratio, 1.0);
    }

    /// A loop that is watched in part stays one, and what lies beyond the sizes of interest isn't missed.
    #[test]
    fn a_gap_is_no_miss_and_what_no_cache_holds_can_be_forgotten() {
        let mut krr = krr(16, Sampling::ALL);
        for round in 0..40 {
            if round % 4 == 0 {
                krr.skip();
            }
            (0..1000).for_each(|i| krr.record(&Access::read(KeyHash::of_number(i), 1)));
            if round % 4 == 1 {
                krr.all_known();
            }
        }
        let curve = krr.curve(&[800, 1000]);
        assert!(curve.miss_ratio_at(1000) < 0.01 && curve.miss_ratio_at(800) > 0.5, "{curve:?}");
        assert_eq!(krr.known_bytes(), 1000);
        krr.forget_beyond(600);
        assert!((590..=600).contains(&krr.sampled_keys()), "{}", krr.sampled_keys());
    }

    /// Half of the keys join the sample late; a loop that is all hits stays one.
    #[test]
    fn a_widened_sample_takes_no_old_key_for_a_new_one() {
        let mut krr = krr(5, Sampling::Rate(SampleRate::new(0.5).unwrap()));
        let round = |krr: &mut Krr| {
            krr.advance(1000);
            let keys = (0..1000).map(KeyHash::of_number).filter(|&key| krr.rate().takes(key)).collect::<Vec<_>>();
            keys.into_iter().for_each(|key| krr.record_sampled(&Access::read(key, 1)));
        };
        (0..10).for_each(|_| round(&mut krr));
        krr.decay(0.0);
        krr.widen(SampleRate::ALL);
        (0..10).for_each(|_| round(&mut krr));
        assert!(krr.curve(&[1000]).miss_ratio_at(1000) < 1e-6);
    }

    /// A loop whose keys were another model's for the first rounds.
    #[test]
    fn a_key_that_joins_is_not_new() {
        let mut krr = krr(5, Sampling::ALL);
        (0..1000).for_each(|i| krr.record_joined(&Access::read(KeyHash::of_number(i), 1)));
        krr.advance(1000);
        (0..3000).for_each(|i| krr.record(&Access::read(KeyHash::of_number(i % 1000), 1)));
        assert_eq!(krr.size_of(KeyHash::of_number(7)), Some(1));
        assert!(krr.curve(&[1000]).miss_ratio_at(1000) < 1e-6);
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let accesses = stream(StreamConfig { n: 20_000, ..StreamConfig::default() });
        let curve = |seed| {
            let model = Krr::new(5, Sampling::ALL, Counted::ReadsAndWrites, seed).unwrap();
            fed(model, &accesses).curve(&even_sizes(6_000, 20))
        };
        assert_eq!(curve(1), curve(1));
        assert_ne!(curve(1), curve(2));
    }

    #[test]
    fn a_sample_size_out_of_range_is_refused() {
        assert_eq!(Krr::new(0, Sampling::ALL, Counted::Reads, 1).err(), Some(ConfigError::SampleSize(0)));
    }
}
