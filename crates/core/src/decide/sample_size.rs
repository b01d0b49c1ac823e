//! Which sampling size K costs least: DLRU's cost model; and when a partition leaves the K that it runs with.
//!
//! Source: DLRU (Wang et al., MEMSYS'20) sec. 3.5, and Wang's dissertation (2024) eq. 3.2: P_K = M_K × (p + OH_K),
//! with M_K the misses that a miniature cache of that K had, p the mean miss penalty, and OH_K what sampling for one
//! eviction takes, in proportion to K as table 3.1 measured it.

use crate::model::merged::MergedCurve;

/// The sampling sizes that are compared.
pub const SAMPLE_SIZES: [u32; 5] = [1, 2, 5, 10, 16];

/// What is used until enough was seen.
pub const SAMPLE_SIZE_DEFAULT: u32 = 5;

/// A window with fewer distinct sampled keys than this decides nothing.
pub const DISTINCT_KEYS_MIN: usize = 256;

/// What an eviction takes at K = 1, in µs, where it isn't measured: stock Valkey takes about 1 µs at K = 5.
pub const EVICTION_US_AT_ONE: f64 = 0.42;

/// Table 3.1, machine A: how much longer an eviction takes than at K = 1, for each of [`SAMPLE_SIZES`].
const EVICTION_RATIOS: [f64; 5] = [1.00, 1.64, 2.37, 3.18, 4.31];

/// What an eviction takes at K = 1, in µs, by what one was measured to take at `k`: in the proportion of table 3.1,
/// for a K between two of its own that of the lower.
pub fn eviction_us_at_one(measured_us: f64, k: u32) -> f64 {
    let i = SAMPLE_SIZES.iter().rposition(|&held| held <= k).unwrap_or(0);
    measured_us / EVICTION_RATIOS[i]
}

/// The K of the least cost (eq. 3.2), the smallest of equals. `misses` are those of the miniature caches, in the
/// order of [`SAMPLE_SIZES`]; `penalty_us_mean` is p, without bound where misses alone are to decide;
/// `eviction_us_at_one` is OH_1.
pub fn cheapest_sample_size(misses: &[f64; SAMPLE_SIZES.len()], penalty_us_mean: f64, eviction_us_at_one: f64) -> u32 {
    let cost_us = |i: usize| misses[i] * (penalty_us_mean + eviction_us_at_one * EVICTION_RATIOS[i]);
    let mut best = 0;
    for i in 1..SAMPLE_SIZES.len() {
        if cost_us(i) < cost_us(best) {
            best = i;
        }
    }
    SAMPLE_SIZES[best]
}

/// Standard errors by which another K has to be better for two windows, and at once.
const ERRORS_TWICE: f64 = 2.0;
const ERRORS_AT_ONCE: f64 = 3.0;
/// Each change asks so many more of the next, and what was asked falls to this share from window to window.
const DOUBT: f64 = 2.0;
const DOUBT_KEPT: f64 = 0.95;

/// The K that a partition runs with, from window to window.
///
/// Curves of two K that lie together cross by noise, and what is sampled changes little from one window to the next,
/// so noise lasts. Another K has to be better beyond doubt, or better than by chance for two windows; and whoever has
/// just changed is believed less the next time.
#[derive(Clone, Copy, Debug)]
pub struct RunningSampleSize {
    k: u32,
    /// What the last window alone would have it be.
    wish: u32,
    /// Standard errors that are accessed on top.
    doubt: f64,
}

impl RunningSampleSize {
    /// Runs with `k` to begin with.
    pub fn new(k: u32) -> Self {
        RunningSampleSize { k, wish: k, doubt: 0.0 }
    }

    /// The K it runs with.
    pub fn k(&self) -> u32 {
        self.k
    }

    /// Ends a window: the K for a cache of `bytes`; the other arguments are those of [`MergedCurve::k_from`]. O(log
    /// points).
    pub fn end_window(&mut self, merged: &MergedCurve, bytes: u64, gain_min: f64, n_reads: f64) -> u32 {
        let wished = |errors: f64| merged.k_from(self.k, bytes, gain_min, n_reads, errors + self.doubt);
        let wish = wished(ERRORS_TWICE);
        let k = if wish == self.wish { wish } else { wished(ERRORS_AT_ONCE) };
        let doubt = self.doubt * DOUBT_KEPT + if k == self.k { 0.0 } else { DOUBT };
        *self = RunningSampleSize { k, wish, doubt };
        k
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::curve::{CurvePoint, MissRatioCurve};
    use crate::model::CurveModel;
    use crate::model::eaet::Counted;
    use crate::model::merged::{MERGED_SAMPLE_SIZES, MergedKrr, sizes_of_interest};
    use crate::random::Random;
    use crate::sampling::{SampleRate, Sampling};
    use crate::units::KeyHash;

    /// Curves of one point, at 10 bytes.
    fn merged(miss_ratios: [(u32, f64); 2]) -> MergedCurve {
        let curve = |miss_ratio| MissRatioCurve::new(vec![CurvePoint { bytes: 10, miss_ratio }]);
        MergedCurve::new(&miss_ratios.map(|(k, miss_ratio)| (k, curve(miss_ratio))))
    }

    /// Two K that are alike but for noise that lasts some windows, as that of decaying counts does: K stays in 29
    /// windows of 30 (in 15 of 16 without doubt). A loop, where the smaller K is far better, is followed in one
    /// window, just after a change too.
    #[test]
    fn k_follows_what_is_better_and_not_the_noise() {
        let (mut random, mut noise, mut running) = (Random::new(1), 0.0, RunningSampleSize::new(5));
        let (mut changes, windows) = (0, 1000);
        for _ in 0..windows {
            // Of 1000 reads at a miss ratio of one half the standard error is 0.016; this is half as much again.
            noise = 0.7 * noise + 0.7 * 0.016 * 2.6 * (2.0 * random.unit() - 1.0);
            let held = running.k();
            changes += usize::from(running.end_window(&merged([(5, 0.5), (16, 0.5 + noise)]), 10, 0.0, 1000.0) != held);
        }
        assert!((1..windows / 30).contains(&changes), "{changes}");
        let other = if running.k() == 5 { 16 } else { 5 };
        for k in [other, running.k(), other] {
            let loops = merged([(5, if k == 5 { 0.3 } else { 0.7 }), (16, if k == 5 { 0.7 } else { 0.3 })]);
            assert_eq!(running.end_window(&loops, 10, 0.0, 1000.0), k);
        }
    }

    /// A tenant of few reads, some keys far hotter than others, of whose keys 3 in 100 are sampled: K = 1 misses 3 of
    /// 100 reads more than K = 5. Which keys are sampled stays, and so what they say by chance.
    #[test]
    fn k_of_a_tenant_of_few_reads_stays() {
        const KEYS: u64 = 9000;
        const READS: u64 = 1250;
        const DECAY: f64 = 0.7;
        let rate = SampleRate::new(0.03).unwrap();
        for seed in 1..=20 {
            let mut krr = MergedKrr::new(&MERGED_SAMPLE_SIZES, Sampling::Rate(rate), Counted::Reads, seed).unwrap();
            let (mut random, mut running, mut reads) = (Random::new(7919 * seed), RunningSampleSize::new(5), 0.0);
            for _ in 0..50 {
                for _ in 0..READS {
                    let number = (KEYS as f64 * random.unit().powi(3)) as u64;
                    krr.record(&Access::read(KeyHash::of_number(1_000_000 * seed + number), 1072));
                }
                reads = DECAY * reads + READS as f64;
                let merged = krr.merged(&sizes_of_interest(12 << 20, krr.known_bytes()));
                assert_ne!(running.end_window(&merged, 4 << 20, 0.01, reads * rate.rate()), 1, "seed {seed}");
                krr.end_window(DECAY);
            }
        }
    }

    #[test]
    fn misses_decide_and_with_equal_misses_the_cheaper_eviction() {
        assert_eq!(cheapest_sample_size(&[100.0, 90.0, 80.0, 70.0, 60.0], 500.0, EVICTION_US_AT_ONE), 16);
        assert_eq!(cheapest_sample_size(&[60.0, 70.0, 80.0, 90.0, 100.0], 500.0, EVICTION_US_AT_ONE), 1);
        assert_eq!(cheapest_sample_size(&[100.0; 5], 500.0, EVICTION_US_AT_ONE), 1);
        // One miss in a hundred less is worth less than 0.85 µs per miss more, where a miss costs 10 µs only.
        assert_eq!(cheapest_sample_size(&[100.0, 99.0, 99.0, 99.0, 99.0], 10.0, EVICTION_US_AT_ONE), 1);
        assert_eq!(cheapest_sample_size(&[100.0, 99.0, 99.0, 99.0, 99.0], 1000.0, EVICTION_US_AT_ONE), 2);
    }

    #[test]
    fn a_measured_eviction_sets_the_scale() {
        assert!((eviction_us_at_one(2.37, 5) - 1.0).abs() < 1e-12);
        assert_eq!((eviction_us_at_one(4.31, 16), eviction_us_at_one(1.0, 1)), (1.0, 1.0));
        // Where an eviction is as expensive as a miss, one miss in ten less doesn't pay.
        assert_eq!(cheapest_sample_size(&[100.0, 95.0, 90.0, 90.0, 90.0], 100.0, 100.0), 1);
        assert_eq!(cheapest_sample_size(&[100.0, 95.0, 90.0, 90.0, 90.0], f64::MAX.sqrt(), 100.0), 5);
    }
}
