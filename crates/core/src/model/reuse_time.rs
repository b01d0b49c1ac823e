//! A histogram of reuse times and ages, log-spaced: exact below 64, within 1/64 above.
//!
//! Weights are fractions, because windows decay, and may be negative: a slowdown that ends. 512 bytes for each octave
//! up to the largest that came, 23 KiB at the most. O(1) to record.

use std::iter::repeat;

use crate::log_linear::{self, bounds_of};

/// Buckets per octave; the relative error of a reuse time is at most 1 / this.
const PER_OCTAVE: u64 = 64;
/// Octaves above the exact range, so reuse times up to 2^50 requests or bytes are told apart.
const OCTAVES: u64 = 44;
const BUCKETS: usize = (PER_OCTAVE * (OCTAVES + 1)) as usize;

/// Weights by reuse time. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct ReuseTimes {
    /// Whole octaves; all beyond are empty.
    buckets: Vec<f64>,
}

impl ReuseTimes {
    pub fn new() -> Self {
        ReuseTimes { buckets: Vec::new() }
    }

    /// Adds `weight` at reuse time `t`, at least 1.
    pub fn add(&mut self, t: u64, weight: f64) {
        let bucket = bucket_of(t);
        if bucket >= self.buckets.len() {
            self.grow(bucket);
        }
        self.buckets[bucket] += weight;
    }

    #[cold]
    fn grow(&mut self, bucket: usize) {
        let len = (bucket + 1).next_multiple_of(PER_OCTAVE as usize);
        self.buckets.reserve_exact(len - self.buckets.len());
        self.buckets.resize(len, 0.0);
    }

    /// Multiplies every weight by `factor`.
    pub fn scale(&mut self, factor: f64) {
        for bucket in &mut self.buckets {
            *bucket *= factor;
        }
    }

    /// All weights added up.
    pub fn sum(&self) -> f64 {
        self.buckets.iter().sum()
    }

    /// Every bucket in order, the empty ones too: its first reuse time, its width, its weight.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        self.buckets.iter().copied().chain(repeat(0.0)).take(BUCKETS).enumerate().map(|(i, weight)| {
            let (first, width) = bounds_of::<PER_OCTAVE>(i);
            (first, width, weight)
        })
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<f64>()
    }
}

fn bucket_of(t: u64) -> usize {
    log_linear::bucket_of::<PER_OCTAVE>(t).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_the_range_go_to_the_last_bucket() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn it_takes_memory_up_to_the_largest_and_tells_all_buckets() {
        let mut times = ReuseTimes::new();
        times.add(5, 1.0);
        times.add(1000, 2.0);
        // Exact up to 63, then 64 to 1023 in four octaves.
        assert_eq!(times.memory_bytes(), 5 * 512);
        times.add(u64::MAX, 4.0);
        assert_eq!(times.memory_bytes(), 8 * BUCKETS);
        let weights: Vec<(u64, f64)> = times.iter().map(|(first, _, weight)| (first, weight)).collect();
        let there: Vec<&(u64, f64)> = weights.iter().filter(|(_, weight)| *weight > 0.0).collect();
        assert_eq!((weights.len(), times.sum(), there.len()), (BUCKETS, 7.0, 3));
        assert!((985..=1000).contains(&there[1].0) && there[0].0 == 5);
        assert_eq!(ReuseTimes::new().iter().count(), BUCKETS);
    }
}
