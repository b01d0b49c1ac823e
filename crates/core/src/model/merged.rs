//! The merged curve: at each cache size the lowest miss ratio of several K-LRU curves, and the K that gives it.
//!
//! Source: Wang's dissertation (2024) sec. 4.1.1, eq. 4.1: mMRC(C) = min over K of MRC_K(C). Where two are equal the
//! smaller K is taken: its evictions cost less (sec. 3.1.3). Between the sizes of the given curves the merged one is
//! linear, so it never promises less than the lowest curve holds. O(curves × points). [`MergedKrr`] runs the KRR
//! models of several K side by side: their stacks differ, so the cost is that of all of them.

use super::krr::Krr;
use super::{Counted, CurveModel};
use crate::access::Access;
use crate::curve::{CurvePoint, MissRatioCurve, even_sizes};
use crate::error::ConfigError;
use crate::sampling::{SampleRate, Sampling};

/// The sampling sizes whose curves are merged (sec. 4.1.4).
pub const MERGED_SAMPLE_SIZES: [u32; 4] = [1, 5, 8, 16];

/// One point of a merged curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MergedPoint {
    /// Cache size, in bytes.
    pub bytes: u64,
    /// The lowest miss ratio at that size, in [0, 1].
    pub miss_ratio: f64,
    /// The sampling size that gives it.
    pub k: u32,
}

/// Several K-LRU curves merged into one. See the file's opening.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MergedCurve {
    points: Vec<MergedPoint>,
    curve: MissRatioCurve,
    by_k: Vec<(u32, MissRatioCurve)>,
}

impl MergedCurve {
    /// Merges curves, each with its sampling size, at all sizes that any of them has.
    pub fn new(curves: &[(u32, MissRatioCurve)]) -> Self {
        let mut by_k: Vec<&(u32, MissRatioCurve)> = curves.iter().filter(|(_, curve)| !curve.is_empty()).collect();
        by_k.sort_by_key(|(k, _)| *k);
        let mut sizes: Vec<u64> = by_k.iter().flat_map(|(_, curve)| curve.points()).map(|point| point.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let lowest_at = |bytes: u64| {
            let at = by_k.iter().map(|(k, curve)| MergedPoint { bytes, miss_ratio: curve.miss_ratio_at(bytes), k: *k });
            at.min_by(|a, b| a.miss_ratio.total_cmp(&b.miss_ratio))
        };
        let points: Vec<MergedPoint> = sizes.into_iter().filter_map(lowest_at).collect();
        let of_curve = points.iter().map(|point| CurvePoint { bytes: point.bytes, miss_ratio: point.miss_ratio });
        let curve = MissRatioCurve::new(of_curve.collect());
        let by_k = by_k.into_iter().cloned().collect();
        MergedCurve { points, curve, by_k }
    }

    /// The points, sizes increasing.
    pub fn points(&self) -> &[MergedPoint] {
        &self.points
    }

    /// The merged curve itself, which an allocation reads like any other.
    pub fn curve(&self) -> &MissRatioCurve {
        &self.curve
    }

    /// The curve of one of the merged sizes.
    pub fn of(&self, k: u32) -> Option<&MissRatioCurve> {
        self.by_k.iter().find(|(of, _)| *of == k).map(|(_, curve)| curve)
    }

    /// The sampling size to run a cache of `bytes` with: that of the nearest point; `None` on an empty curve. O(log
    /// points).
    pub fn k_at(&self, bytes: u64) -> Option<u32> {
        let after = self.points.partition_point(|point| point.bytes <= bytes);
        let around = self.points[after.saturating_sub(1)..].iter().take(2);
        around.min_by_key(|point| point.bytes.abs_diff(bytes)).map(|point| point.k)
    }
}

impl MergedCurve {
    /// As [`MergedCurve::k_at`] for a cache that runs with `held`, which it leaves only where that saves more than
    /// the share `gain_min` of its misses, and more than `errors` standard errors of the `n_reads` sampled reads
    /// behind the curves: those that lie together cross by noise. `held` is kept where its curve isn't known and
    /// nothing better is.
    pub fn k_from(&self, held: u32, bytes: u64, gain_min: f64, n_reads: f64, errors: f64) -> u32 {
        let misses = |k: u32| self.of(k).map(|curve| curve.miss_ratio_at(bytes));
        let Some((best, with_best)) = self.k_at(bytes).and_then(|best| Some((best, misses(best)?))) else {
            return held;
        };
        let Some(with_held) = misses(held) else { return best };
        let chance = (with_held * (1.0 - with_held) / n_reads.max(1.0)).sqrt();
        if with_held - with_best > (gain_min * with_held).max(errors * chance) { best } else { held }
    }
}

/// Points up to the memory there is, and as many up to what the partition's keys take, where that is less.
const CURVE_POINTS: usize = 100;

/// Where the curve of a partition is looked at: even up to the memory there is (without a limit, to all that is
/// known), and finer up to what the partition's keys take.
pub fn sizes_of_interest(capacity_bytes: u64, known_bytes: u64) -> Vec<u64> {
    let most = if capacity_bytes == 0 { known_bytes } else { capacity_bytes };
    let mut sizes = even_sizes(most.max(1), CURVE_POINTS);
    sizes.extend(even_sizes(known_bytes.clamp(1, most.max(1)), CURVE_POINTS));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// KRR for several K at once, whose curve is the merged one.
#[derive(Clone, Debug)]
pub struct MergedKrr {
    models: Vec<(u32, Krr)>,
}

impl MergedKrr {
    /// A model of K-LRU for each of `sample_sizes` (1 to 64).
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another K.
    pub fn new(sample_sizes: &[u32], sampling: Sampling, counted: Counted, seed: u64) -> Result<Self, ConfigError> {
        let model = |&k: &u32| Krr::new(k, sampling, counted, seed).map(|model| (k, model));
        Ok(MergedKrr { models: sample_sizes.iter().map(model).collect::<Result<_, _>>()? })
    }

    /// The merged curve at `sizes_bytes` (strictly increasing), with the K of each point.
    pub fn merged(&self, sizes_bytes: &[u64]) -> MergedCurve {
        let curves: Vec<_> = self.models.iter().map(|(k, model)| (*k, model.curve(sizes_bytes))).collect();
        MergedCurve::new(&curves)
    }

    /// As [`Krr::advance`].
    pub fn advance(&mut self, counted: u64) {
        self.each(|model| model.advance(counted));
    }

    /// As [`Krr::advance_deletes`].
    pub fn advance_deletes(&mut self, deletes: u64) {
        self.each(|model| model.advance_deletes(deletes));
    }

    /// As [`Krr::record_sampled`].
    pub fn record_sampled(&mut self, access: &Access) {
        self.each(|model| model.record_sampled(access));
    }

    /// As [`Krr::record_joined`].
    pub fn record_joined(&mut self, access: &Access) {
        self.each(|model| model.record_joined(access));
    }

    /// As [`Krr::thin`] where `rate` is the lower, and [`Krr::widen`] where it is the higher.
    pub fn set_rate(&mut self, rate: SampleRate) {
        self.each(|model| if rate <= model.rate() { model.thin(rate) } else { model.widen(rate) });
    }

    /// As [`Krr::skip`].
    pub fn skip(&mut self) {
        self.each(Krr::skip);
    }

    /// Ends a window: as [`Krr::decay`] and [`Krr::all_known`].
    pub fn end_window(&mut self, decay: f64) {
        self.each(|model| {
            model.decay(decay);
            model.all_known();
        });
    }

    /// As [`Krr::forget_beyond`].
    pub fn forget_beyond(&mut self, bytes: u64) {
        self.each(|model| model.forget_beyond(bytes));
    }

    /// As [`Krr::rate`].
    pub fn rate(&self) -> SampleRate {
        self.models.first().map_or(SampleRate::ALL, |(_, model)| model.rate())
    }

    /// Sampled keys that are remembered now, by the model that remembers most.
    pub fn sampled_keys(&self) -> usize {
        self.models.iter().map(|(_, model)| model.sampled_keys()).max().unwrap_or(0)
    }

    /// As [`Krr::known_bytes`].
    pub fn known_bytes(&self) -> u64 {
        self.models.iter().map(|(_, model)| model.known_bytes()).max().unwrap_or(0)
    }

    fn each(&mut self, change: impl Fn(&mut Krr)) {
        self.models.iter_mut().for_each(|(_, model)| change(model));
    }
}

impl CurveModel for MergedKrr {
    fn record(&mut self, access: &Access) {
        self.models.iter_mut().for_each(|(_, model)| model.record(access));
    }

    fn forget_counts(&mut self) {
        self.models.iter_mut().for_each(|(_, model)| model.forget_counts());
    }

    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        self.merged(sizes_bytes).curve().clone()
    }

    fn sample_rate(&self) -> SampleRate {
        self.rate()
    }

    fn memory_bytes(&self) -> usize {
        self.models.iter().map(|(_, model)| model.memory_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        MissRatioCurve::new(points.iter().map(|&(bytes, miss_ratio)| CurvePoint { bytes, miss_ratio }).collect())
    }

    /// Random eviction is better up to 20 bytes, near-LRU beyond; at 30 they are equal, and the smaller K is taken.
    #[test]
    fn the_lowest_curve_wins_at_each_size() {
        let merged = MergedCurve::new(&[
            (16, curve(&[(10, 1.0), (20, 0.75), (30, 0.25)])),
            (1, curve(&[(10, 0.875), (20, 0.625), (25, 0.625), (30, 0.25)])),
        ]);
        let got: Vec<(u64, f64, u32)> = merged.points().iter().map(|p| (p.bytes, p.miss_ratio, p.k)).collect();
        assert_eq!(got, [(10, 0.875, 1), (20, 0.625, 1), (25, 0.5, 16), (30, 0.25, 1)]);
        assert_eq!(merged.curve().miss_ratio_at(25), 0.5);
        for (bytes, k) in [(0, 1), (22, 1), (24, 16), (25, 16), (1000, 1)] {
            assert_eq!(merged.k_at(bytes), Some(k), "at {bytes}");
        }
    }

    #[test]
    fn a_small_partition_is_looked_at_closely() {
        let sizes = sizes_of_interest(1_000_000, 1000);
        assert_eq!((sizes[0], sizes[98], sizes.len()), (10, 990, 200));
        assert_eq!(sizes_of_interest(0, 500).last(), Some(&500));
        assert_eq!(sizes_of_interest(0, 0), [1]);
    }

    /// At 20 bytes K = 1 misses 0.625 and K = 16 0.75: a sixth less.
    #[test]
    fn a_k_is_left_for_a_better_one_that_is_no_chance() {
        let merged = MergedCurve::new(&[(16, curve(&[(20, 0.75)])), (1, curve(&[(20, 0.625)]))]);
        for (held, gain_min, n_reads, k) in
            [(16, 0.01, 1000.0, 1), (16, 0.2, 1000.0, 16), (16, 0.01, 10.0, 16), (1, 0.0, 1000.0, 1), (5, 0.2, 1.0, 1)]
        {
            assert_eq!(merged.k_from(held, 20, gain_min, n_reads, 1.0), k, "{held} {gain_min} {n_reads}");
        }
        assert_eq!(merged.k_from(16, 20, 0.01, 1000.0, 10.0), 16, "one error is 0.0137");
        assert_eq!(MergedCurve::default().k_from(5, 20, 0.0, 10.0, 1.0), 5);
    }

    #[test]
    fn nothing_merges_to_nothing() {
        let merged = MergedCurve::new(&[(5, MissRatioCurve::default())]);
        assert!(merged.curve().is_empty());
        assert_eq!(merged.k_at(10), None);
    }
}
