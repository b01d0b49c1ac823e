//! A census of a stream's keys in bounded memory: how many there are, and the bytes of their values.
//!
//! Source: the fixed-size sample of SHARDS (Waldspurger et al., FAST'15, sec. 3.2), with no stack behind it: the keys
//! of the lowest hashes are kept with their last size, and the threshold falls when there are too many. Up to the
//! limit the count is exact; beyond, its standard error is 1/sqrt(limit), 1.6 % at the default.
//!
//! The sampled models use it to correct their rate (our own; docs/models.md, "Census"): of 5,000 keys a rate of 0.01
//! should take 50, but takes 43 or 57, and then cold misses and sizes are off by as much. The census says how many
//! keys there are, so the model divides by the share that it really took. Cost: one comparison for a key outside the
//! census, one look-up inside; up to 300 KiB at the default limit.

use std::collections::BinaryHeap;

use super::key_map::KeyMap;
use crate::access::{Access, Op};
use crate::sampling::{SampleRate, Sampling};
use crate::units::KeyHash;

/// Keys in a census unless said otherwise.
pub const CENSUS_KEYS: usize = 4096;

/// The census. See the file's opening.
#[derive(Clone, Debug)]
pub struct Census {
    limit: usize,
    threshold: u64,
    sizes_bytes: KeyMap<u32>,
    /// The same keys, the highest hash first.
    highest: BinaryHeap<KeyHash>,
}

/// What a census says of a sample that takes the keys up to a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// The share of keys that the sample really took, in (0, 1].
    pub rate: f64,
    /// The mean size of all keys over that of the sampled keys.
    pub size_factor: f64,
}

impl Correction {
    /// The sample is as it should be.
    pub fn none(rate: SampleRate) -> Self {
        Correction { rate: rate.rate(), size_factor: 1.0 }
    }
}

impl Census {
    /// A census that keeps up to `limit` keys (at least 1).
    pub fn new(limit: usize) -> Self {
        Census { limit: limit.max(1), threshold: u64::MAX, sizes_bytes: KeyMap::default(), highest: BinaryHeap::new() }
    }

    /// The census that corrects a sample: of the default limit, and none where it could tell nothing.
    pub fn beside(sampling: Sampling) -> Self {
        match sampling {
            Sampling::Rate(rate) if rate < SampleRate::ALL => Census::new(CENSUS_KEYS),
            Sampling::Keys(keys) | Sampling::AtLeast { keys, .. } if keys < CENSUS_KEYS => Census::new(CENSUS_KEYS),
            _ => Census { threshold: 0, ..Census::new(1) },
        }
    }

    /// Takes one access; a deleted key stays counted.
    #[inline]
    pub fn record(&mut self, access: &Access) {
        if access.key.0 <= self.threshold && access.op != Op::Delete {
            self.take(access);
        }
    }

    fn take(&mut self, access: &Access) {
        if self.sizes_bytes.insert(access.key, access.size_bytes).is_some() {
            return;
        }
        self.highest.push(access.key);
        if self.highest.len() > self.limit
            && let Some(out) = self.highest.pop()
        {
            self.sizes_bytes.remove(&out);
            self.threshold = out.0 - 1;
        }
    }

    /// The share of keys that the census keeps, in (0, 1].
    fn rate(&self) -> f64 {
        SampleRate::from_threshold(self.threshold).rate()
    }

    /// Distinct keys of the stream.
    pub fn n_keys(&self) -> f64 {
        self.highest.len() as f64 / self.rate()
    }

    /// The footprint, in bytes: the last sizes of all distinct keys added up.
    pub fn footprint_bytes(&self) -> f64 {
        self.sizes_bytes.values().map(|&size| f64::from(size)).sum::<f64>() / self.rate()
    }

    /// What a model that samples at `rate` should correct: nothing where its sample is larger than the census, or
    /// empty.
    pub fn correction(&self, rate: SampleRate) -> Correction {
        if rate.threshold() >= self.threshold {
            return Correction::none(rate);
        }
        let sampled = self.sizes_bytes.iter().filter(|entry| rate.takes(*entry.0));
        let (n, bytes) = sampled.fold((0.0, 0.0), |(n, bytes), entry| (n + 1.0, bytes + f64::from(*entry.1)));
        if n == 0.0 {
            return Correction::none(rate);
        }
        let mean_bytes = self.footprint_bytes() / self.n_keys();
        Correction { rate: n / self.n_keys(), size_factor: mean_bytes / (bytes / n) }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.sizes_bytes.memory_bytes() + self.highest.capacity() * size_of::<KeyHash>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(census: Census, n: u64) -> Census {
        let mut census = census;
        for number in (0..n).chain(0..n / 2) {
            census.record(&Access::read(KeyHash::of_number(number), 100 + (number % 101) as u32));
        }
        census
    }

    #[test]
    fn it_is_exact_up_to_its_limit_and_close_beyond() {
        let few = taken(Census::new(1000), 1000);
        assert_eq!(few.n_keys(), 1000.0);
        assert!((few.footprint_bytes() / 150_000.0 - 1.0).abs() < 0.01, "{}", few.footprint_bytes());
        let many = taken(Census::new(1000), 50_000);
        assert!((many.n_keys() / 50_000.0 - 1.0).abs() < 0.1, "{}", many.n_keys());
        assert!((many.footprint_bytes() / 7_500_000.0 - 1.0).abs() < 0.1, "{}", many.footprint_bytes());
        assert!(many.memory_bytes() < 100_000);
    }

    #[test]
    fn it_knows_the_share_that_a_sample_really_took() {
        let rate = SampleRate::new(0.02).unwrap();
        let census = taken(Census::beside(Sampling::Rate(rate)), 3000);
        let sampled = (0..3000).map(KeyHash::of_number).filter(|&key| rate.takes(key)).count();
        let correction = census.correction(rate);
        assert!((correction.rate - sampled as f64 / 3000.0).abs() < 1e-12, "{correction:?}");
        assert!((correction.size_factor - 1.0).abs() < 0.2, "{correction:?}");
    }

    #[test]
    fn it_says_nothing_where_it_knows_less_than_the_sample() {
        let rate = SampleRate::new(0.5).unwrap();
        let census = taken(Census::beside(Sampling::Rate(rate)), 50_000);
        assert_eq!(census.correction(rate), Correction::none(rate));
        let none = taken(Census::beside(Sampling::ALL), 100);
        assert_eq!(none.correction(SampleRate::ALL), Correction { rate: 1.0, size_factor: 1.0 });
    }
}
