//! A histogram of reuse times and ages, log-spaced: exact below 64, within 1/64 above.
//!
//! Weights are fractions, because windows decay, and may be negative: a slowdown that ends. 23 KiB each. O(1) to
//! record.

use crate::log_linear::{self, bounds_of};

/// Buckets per octave; the relative error of a reuse time is at most 1 / this.
const PER_OCTAVE: u64 = 64;
/// Octaves above the exact range, so reuse times up to 2^50 requests or bytes are told apart.
const OCTAVES: u64 = 44;
const BUCKETS: usize = (PER_OCTAVE * (OCTAVES + 1)) as usize;

/// Weights by reuse time. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct ReuseTimes {
    buckets: Vec<f64>,
}

impl ReuseTimes {
    pub fn new() -> Self {
        ReuseTimes { buckets: vec![0.0; BUCKETS] }
    }

    /// Adds `weight` at reuse time `t`, at least 1.
    pub fn add(&mut self, t: u64, weight: f64) {
        self.buckets[bucket_of(t)] += weight;
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

    /// Every bucket in order: its first reuse time, its width, its weight.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        self.buckets.iter().enumerate().map(|(i, &weight)| {
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
}
