//! A histogram of reuse times and ages, log-spaced: exact below 64, within 1/64 above.
//!
//! Weights are fractions, because windows decay, and may be negative: a slowdown that ends. 23 KiB each. O(1) to record.

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
            let (first, width) = bounds_of(i);
            (first, width, weight)
        })
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<f64>()
    }
}

fn bucket_of(t: u64) -> usize {
    if t < PER_OCTAVE {
        return t as usize;
    }
    let octave = u64::from(t.ilog2()) - 6;
    let within = (t >> octave) - PER_OCTAVE;
    (((octave + 1) * PER_OCTAVE + within) as usize).min(BUCKETS - 1)
}

fn bounds_of(bucket: usize) -> (u64, u64) {
    let (octave, within) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    if octave == 0 { (within, 1) } else { ((PER_OCTAVE + within) << (octave - 1), 1 << (octave - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket_and_buckets_adjoin() {
        for t in (0..5000).chain([1 << 20, (1 << 20) + 12345, (1 << 41) + 1]) {
            let (first, width) = bounds_of(bucket_of(t));
            assert!(first <= t && t < first + width, "{t} is not in [{first}, {first}+{width})");
        }
        for bucket in 1..BUCKETS {
            let (first, width) = bounds_of(bucket - 1);
            assert_eq!(bounds_of(bucket).0, first + width);
        }
    }

    #[test]
    fn times_beyond_the_range_go_to_the_last_bucket() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
