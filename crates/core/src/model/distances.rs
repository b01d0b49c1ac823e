//! A histogram of stack distances: how many requests a cache of a given size would have hit.
//!
//! The sampled models keep distances to 1 part in 1024, so that memory stays bounded (1024 entries per doubling of
//! the distance, and only those that occurred), and of each such bucket the mean: where all are alike, as in a loop,
//! it is exact. The oracle keeps them exactly, and its memory grows with their number. New distances are collected
//! and merged into a sorted list now and then: about 20 ns each, amortized.

use crate::curve::{CurvePoint, MissRatioCurve};

/// Mantissa bits that a rounded distance keeps.
const BITS_KEPT: u32 = 10;

/// New distances before the first merge.
const FRESH_MIN: usize = 4096;

/// Requests by stack distance, with fractional weights. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct Distances {
    exact: bool,
    /// Buckets strictly increasing.
    sorted: Vec<Entry>,
    fresh: Vec<Entry>,
}

/// Requests whose distances fall into one bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    /// The lowest distance that falls into it.
    bucket: u64,
    /// The mean of those that did.
    mean: f64,
    weight: f64,
}

impl Distances {
    /// Keeps every distance as it is.
    pub fn exact() -> Self {
        Distances { exact: true, sorted: Vec::new(), fresh: Vec::new() }
    }

    /// Keeps distances to 1 part in 1024.
    pub fn rounded() -> Self {
        Distances { exact: false, ..Distances::exact() }
    }

    /// Adds `weight` requests at `distance`.
    pub fn add(&mut self, distance: u64, weight: f64) {
        let bucket = if self.exact { distance } else { bucket_of(distance) };
        self.fresh.push(Entry { bucket, mean: distance as f64, weight });
        if self.fresh.len() >= self.sorted.len().max(FRESH_MIN) {
            self.sorted = self.merged();
            self.fresh.clear();
        }
    }

    /// Multiplies every weight by `factor`.
    pub fn scale(&mut self, factor: f64) {
        self.sorted.iter_mut().chain(&mut self.fresh).for_each(|entry| entry.weight *= factor);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.sorted.clear();
        self.fresh.clear();
    }

    /// All entries, buckets strictly increasing. O(n log n) in what came since the last merge.
    fn merged(&self) -> Vec<Entry> {
        let mut all = self.sorted.clone();
        all.extend_from_slice(&self.fresh);
        all.sort_by_key(|entry| entry.bucket);
        all.dedup_by(|later, kept| {
            let same = later.bucket == kept.bucket;
            if same {
                kept.weight += later.weight;
                // In this order equal distances stay what they are, to the last bit.
                kept.mean += (later.mean - kept.mean) * (later.weight / kept.weight);
            }
            same
        });
        all
    }

    /// The miss ratio at each of `sizes` (strictly increasing): of `requests`, all hit whose distance times `stretch`
    /// is at most the size, and `hits_at_zero` more. Empty where there were no requests.
    pub fn curve(&self, sizes: &[u64], stretch: f64, requests: f64, hits_at_zero: f64) -> MissRatioCurve {
        if requests <= 0.0 {
            return MissRatioCurve::default();
        }
        let mut hits = hits_at_zero;
        let merged = self.merged();
        let mut next = merged.iter().peekable();
        let point = |&bytes: &u64| {
            while let Some(entry) = next.next_if(|entry| entry.mean * stretch <= bytes as f64) {
                hits += entry.weight;
            }
            CurvePoint { bytes, miss_ratio: 1.0 - hits / requests }
        };
        MissRatioCurve::new(sizes.iter().map(point).collect())
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.sorted.capacity() + self.fresh.capacity()) * size_of::<Entry>()
    }
}

/// The lowest distance of the bucket that `distance` falls in; itself below 1024.
fn bucket_of(distance: u64) -> u64 {
    let drop = (u64::BITS - distance.leading_zeros()).saturating_sub(BITS_KEPT);
    distance >> drop << drop
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_thousandth_wide() {
        for distance in [0, 1, 1023, 1024, 1025, 123_456_789, u64::MAX / 3] {
            let error = (distance - bucket_of(distance)) as f64;
            assert!(error <= distance as f64 / 512.0, "{distance} became {}", bucket_of(distance));
        }
    }

    #[test]
    fn distances_alike_stay_what_they_are() {
        let mut distances = Distances::rounded();
        (0..10_000).for_each(|i| distances.add(12_370_001, 1.0 / f64::from(1 + i % 7)));
        let merged = distances.merged();
        assert_eq!((merged.len(), merged[0].mean), (1, 12_370_001.0));
    }

    #[test]
    fn a_curve_counts_what_fits() {
        let mut distances = Distances::exact();
        for distance in [3, 1, 3, 7] {
            distances.add(distance, 1.0);
        }
        let curve = distances.curve(&[1, 2, 3, 6, 7], 1.0, 8.0, 0.0);
        let got: Vec<f64> = curve.points().iter().map(|p| p.miss_ratio).collect();
        assert_eq!(got, [7.0 / 8.0, 7.0 / 8.0, 5.0 / 8.0, 5.0 / 8.0, 0.5]);
    }

    #[test]
    fn merging_changes_nothing_and_bounds_the_memory() {
        let mut distances = Distances::rounded();
        for i in 0..1_000_000_u64 {
            distances.add(i.wrapping_mul(i) % 1_000_003, 1.0);
        }
        let total: f64 = distances.merged().iter().map(|entry| entry.weight).sum();
        assert_eq!(total, 1_000_000.0);
        assert!(distances.memory_bytes() < 1 << 20, "{}", distances.memory_bytes());
    }
}
