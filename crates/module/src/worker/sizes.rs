//! What the cache would miss with less memory or more, as it is published.

use tenure_core::curve::{CurvePoint, MissRatioCurve};
use tenure_core::policy::density::{Expectations, Expected, SCALES};

/// What is expected of each size, as it is published.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// The limits that it is about, in bytes, in the order of [`SCALES`].
    pub memory_bytes: [u64; SCALES.len()],
    /// By partition; empty before anything is known.
    pub expected: Expectations,
}

impl Sizes {
    /// True where nothing is known yet.
    pub fn is_empty(&self) -> bool {
        self.expected.by_size.is_empty()
    }

    /// What some partitions together would do at each size.
    pub fn of(&self, partitions: &[usize]) -> Vec<Expected> {
        let reads = |&i: &usize| self.expected.reads_per_second.get(i).copied().unwrap_or(0.0);
        let all: f64 = partitions.iter().map(reads).sum();
        let together = |by_partition: &Vec<Expected>| {
            let sum = |of: fn(&Expected) -> f64| partitions.iter().filter_map(|&i| by_partition.get(i)).map(of).sum();
            let misses: f64 =
                partitions.iter().map(|i| reads(i) * by_partition.get(*i).map_or(0.0, |e| e.miss_ratio)).sum();
            Expected {
                used_bytes: sum(|expected| expected.used_bytes),
                miss_ratio: if all > 0.0 { misses / all } else { 0.0 },
                lost_us_per_second: sum(|expected| expected.lost_us_per_second),
            }
        };
        self.expected.by_size.iter().map(together).collect()
    }

    /// Reads a second of some partitions together.
    pub fn reads_per_second(&self, partitions: &[usize]) -> f64 {
        partitions.iter().filter_map(|&i| self.expected.reads_per_second.get(i)).sum()
    }

    /// The miss ratio of some partitions by the memory that they would hold themselves; empty where that isn't known.
    pub fn curve_of(&self, partitions: &[usize]) -> MissRatioCurve {
        let mut points: Vec<CurvePoint> = Vec::new();
        for Expected { used_bytes, miss_ratio, .. } in self.of(partitions) {
            let bytes = used_bytes as u64;
            if bytes > points.last().map_or(0, |point| point.bytes) {
                points.push(CurvePoint { bytes, miss_ratio });
            }
        }
        MissRatioCurve::new(points)
    }

    /// The miss ratio of one partition with a limit of `memory_bytes`; `None` beyond the sizes.
    pub fn miss_ratio_at(&self, partition: usize, memory_bytes: u64) -> Option<f64> {
        let after = self.memory_bytes.partition_point(|&bytes| bytes < memory_bytes);
        let at = |size: usize| self.expected.by_size.get(size)?.get(partition).map(|expected| expected.miss_ratio);
        if self.memory_bytes.get(after) == Some(&memory_bytes) {
            return at(after);
        }
        let before = after.checked_sub(1)?;
        let (low, high) = (self.memory_bytes[before], *self.memory_bytes.get(after)?);
        let share = (memory_bytes - low) as f64 / (high - low) as f64;
        Some(at(before)? + share * (at(after)? - at(before)?))
    }
}
