//! SHARDS: LRU miss ratio curves from the exact stack distances of a sample of keys.
//!
//! Source: Waldspurger et al. (FAST'15): a key is sampled by its hash, and its distance is scaled by 1 / rate (sec.
//! 3). The rate is fixed (sec. 3.1), or the number of keys is (sec. 3.2): then the key of the highest hash leaves, the
//! threshold falls to it, and what was counted before is rescaled. SHARDS-adj (sec. 3.3) makes up for requests that
//! the sample lacks. Differs from the paper: distances in bytes, with deletes and expiry (`lru_stack.rs`); only the
//! bytes above a key are scaled (`tally.rs`); at a fixed rate a census corrects the rate (`census.rs`), and deletes
//! the requests (`deletes.rs`). At rate 1 it equals `exact` up to 1/1024 in size. Cost: O(log n) per sampled access;
//! about 70 bytes per sampled key, so constant memory with a fixed number of keys.

use std::collections::BinaryHeap;

use super::lru_stack::{Depth, LruStack};
use super::sample::Sample;
use super::tally::distance_at_rate_one;
use super::{Counted, CurveModel};
use crate::access::Access;
use crate::curve::MissRatioCurve;
use crate::sampling::{SampleRate, Sampling};
use crate::units::KeyHash;

/// The model. See the file's opening.
#[derive(Clone, Debug)]
pub struct Shards {
    sampling: Sampling,
    sample: Sample,
    stack: LruStack,
    /// The sampled keys, the highest hash first; empty at a fixed rate. A key that was deleted meanwhile is stale.
    highest: BinaryHeap<KeyHash>,
}

impl Shards {
    /// A model that samples at a fixed rate or a fixed number of keys.
    pub fn new(sampling: Sampling, counted: Counted) -> Self {
        Shards {
            sampling,
            sample: Sample::new(sampling, counted),
            stack: LruStack::default(),
            highest: BinaryHeap::new(),
        }
    }

    /// The rate of the sample now.
    pub fn rate(&self) -> SampleRate {
        self.sample.rate
    }

    /// Sampled keys that are remembered now.
    pub fn sampled_keys(&self) -> usize {
        self.stack.n_keys()
    }

    fn record_sampled(&mut self, access: &Access) {
        match self.stack.access(access, access.size_bytes) {
            Depth::Deleted(found) => self.sample.tally.count_delete(found),
            Depth::Cold => {
                self.sample.tally.count(access, None);
                self.limit_keys(access.key);
            }
            Depth::At { depth_bytes, own_bytes } => {
                self.sample.tally.count(access, Some(distance_at_rate_one(depth_bytes, own_bytes, self.sample.rate)));
            }
        }
    }

    fn limit_keys(&mut self, new: KeyHash) {
        let floor = self.sampling.floor();
        if self.sample.rate == floor {
            self.highest = BinaryHeap::new();
            return;
        }
        self.highest.push(new);
        while self.sampling.is_exceeded_by(self.stack.n_keys(), self.sample.rate)
            && let Some(out) = self.highest.pop()
        {
            let below = SampleRate::from_threshold(out.0.saturating_sub(1)).max(floor);
            if !below.takes(out) {
                self.stack.forget(out);
            }
            self.sample.set_rate(below);
        }
    }
}

impl CurveModel for Shards {
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
            + self.stack.memory_bytes()
            + self.highest.capacity() * size_of::<KeyHash>()
            + self.sample.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::even_sizes;
    use crate::model::testing::{StreamConfig, exact_curve, fed, stream};

    fn shards(sampling: Sampling) -> Shards {
        Shards::new(sampling, Counted::ReadsAndWrites)
    }

    #[test]
    fn at_rate_one_it_equals_exact() {
        let accesses = stream(StreamConfig { n: 20_000, keys: 500, delete_every: 10, ..StreamConfig::default() });
        let sizes: Vec<u64> = (1..=700).collect();
        assert_eq!(fed(shards(Sampling::ALL), &accesses).curve(&sizes), exact_curve(&accesses, &sizes));
    }

    #[test]
    fn samples_are_close_and_bounded() {
        let config = StreamConfig { n: 200_000, keys: 20_000, size_bytes_max: 1000, ..StreamConfig::default() };
        let accesses = stream(config);
        let sizes = even_sizes(30_000 * 500, 20);
        let truth = exact_curve(&accesses, &sizes);
        for sampling in [Sampling::Rate(SampleRate::new(0.1).unwrap()), Sampling::Keys(2_000)] {
            let model = fed(shards(sampling), &accesses);
            let error = model.curve(&sizes).mean_absolute_error(&truth, &sizes);
            assert!(error < 0.02, "{sampling:?}: {error}");
        }
    }

    /// The fixed number of keys is kept to, and twice the stream takes no more memory.
    #[test]
    fn memory_does_not_grow_with_the_stream() {
        let memory = |n| {
            let accesses = stream(StreamConfig { n, keys: n as u64 / 4, ..StreamConfig::default() });
            let model = fed(shards(Sampling::Keys(512)), &accesses);
            assert_eq!(model.sampled_keys(), 512);
            model.memory_bytes()
        };
        assert!(memory(400_000) < memory(100_000) * 3 / 2);
    }

    /// All 10,000 keys lie as deep as they can: rounded up, no cache of their size would hold them.
    #[test]
    fn a_loop_fits_at_its_full_size() {
        let (n, size_bytes) = (10_000, 1_237);
        let accesses: Vec<Access> = (0..5 * n).map(|i| Access::read(KeyHash::of_number(i % n), size_bytes)).collect();
        let sizes = [n * u64::from(size_bytes) - 1, n * u64::from(size_bytes)];
        let curve = fed(shards(Sampling::ALL), &accesses).curve(&sizes);
        assert_eq!(curve, exact_curve(&accesses, &sizes));
        assert!((curve.points()[1].miss_ratio - 0.2).abs() < 1e-9, "the first round");
    }

    #[test]
    fn a_share_is_taken_only_of_keys_enough() {
        let rate = SampleRate::new(0.1).unwrap();
        let sampling = Sampling::AtLeast { rate, keys: 1_000 };
        for (keys, sampled) in [(900, 900..=900), (5_000, 990..=1_000), (40_000, 3_800..=4_200)] {
            let accesses: Vec<Access> = (0..2 * keys).map(|i| Access::read(KeyHash::of_number(i % keys), 1)).collect();
            let model = fed(shards(sampling), &accesses);
            assert!(sampled.contains(&model.sampled_keys()), "{keys}: {}", model.sampled_keys());
            let curve = model.curve(&[keys * 3 / 4, keys * 5 / 4]);
            assert!(curve.points()[0].miss_ratio > 0.9, "{keys}: {curve:?}");
            assert!((curve.points()[1].miss_ratio - 0.5).abs() < 0.03, "{keys}: {curve:?}");
        }
    }
}
