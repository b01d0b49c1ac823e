//! Which sampling size K costs least: DLRU's cost model.
//!
//! Source: DLRU (Wang et al., MEMSYS'20) sec. 3.5, and Wang's dissertation (2024) eq. 3.2: P_K = M_K × (p + OH_K), with M_K the misses that a
//! miniature cache of that K had, p the mean miss penalty, and OH_K what sampling for one eviction takes, in proportion
//! to K as table 3.1 measured it.

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

/// What an eviction takes at K = 1, in µs, by what one was measured to take at `k`: in the proportion of table 3.1, for a K between
/// two of its own that of the lower.
pub fn eviction_us_at_one(measured_us: f64, k: u32) -> f64 {
    let i = SAMPLE_SIZES.iter().rposition(|&held| held <= k).unwrap_or(0);
    measured_us / EVICTION_RATIOS[i]
}

/// The K of the least cost (eq. 3.2), the smallest of equals. `misses` are those of the miniature caches, in the order of
/// [`SAMPLE_SIZES`]; `penalty_us_mean` is p, without bound where misses alone are to decide; `eviction_us_at_one` is OH_1.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // Where an eviction is as dear as a miss, one miss in ten less doesn't pay.
        assert_eq!(cheapest_sample_size(&[100.0, 95.0, 90.0, 90.0, 90.0], 100.0, 100.0), 1);
        assert_eq!(cheapest_sample_size(&[100.0, 95.0, 90.0, 90.0, 90.0], f64::MAX.sqrt(), 100.0), 5);
    }
}
