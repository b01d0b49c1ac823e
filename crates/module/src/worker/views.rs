//! What is known of partitions at the end of a window, as it is published.

use tenure_core::curve::MissRatioCurve;
use tenure_core::decide::allocation::Claim;
use tenure_core::model::merged::MergedCurve;
use tenure_core::sampling::SampleRate;

/// What is known of one partition at the end of a window.
#[derive(Clone, Debug, Default)]
pub struct PartitionView {
    /// Its miss ratio by memory, reads only.
    pub curve: MissRatioCurve,
    /// The curves of single K, where there are: that above is the lowest of them.
    pub merged: Option<MergedCurve>,
    /// Mean miss penalty, in µs; 0 where none was measured.
    pub penalty_us_mean: f64,
    /// Standard deviation of the miss penalty, in µs.
    pub penalty_us_spread: f64,
    /// Measured misses / reads in the window; `None` without reads.
    pub miss_ratio: Option<f64>,
    /// Sampled keys remembered.
    pub sampled_keys: usize,
    /// What its history weighs.
    pub weights: Weights,
    /// How often its number had gone to another tenant.
    pub generation: u16,
}

impl PartitionView {
    /// What it brings to an allocation where each of its misses costs so much.
    pub fn claim(&self, miss_us: f64, group: usize, rate: SampleRate) -> Claim<'_> {
        let reads = self.weights.reads;
        Claim::new(&self.curve, reads * miss_us, group).seen_by(reads * rate.rate())
    }
}

/// What a partition's history weighs: decays with each window as its histogram does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// Reads.
    pub reads: f64,
    /// Measured penalties.
    pub penalties: f64,
    /// Their sum, in µs.
    pub penalty_us_sum: f64,
    /// The sum of their squares, in µs².
    pub penalty_us_square_sum: f64,
}

impl Weights {
    /// Mean and standard deviation of the penalties, in µs; 0 where none was measured.
    pub fn penalty_us(&self) -> (f64, f64) {
        let n = self.penalties.max(1e-9);
        let (mean, mean_square) = (self.penalty_us_sum / n, self.penalty_us_square_sum / n);
        (mean, (mean_square - mean * mean).max(0.0).sqrt())
    }
}
