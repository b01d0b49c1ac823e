//! How much memory each partition gets: the allocation of least total cost, by dynamic programming.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.3, eq. 8 to 11. `f[i][j]`, the least cost of the first `i` partitions on `j`
//! units, is the minimum over `k` of `f[i-1][j-k]` + the cost of partition `i` on `k` units. Curves need not be convex.
//! Differs from the paper: each partition has a minimum and a maximum, and memory that would save nothing anywhere is
//! spread evenly at the end in place of going wherever a tie falls.
//! Cost: O(partitions × units²) time, O(partitions × units) memory; 16 partitions × 1000 units: about 10 ms.

use crate::curve::MissRatioCurve;
use crate::error::ConfigError;

/// What one partition brings to an allocation.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Its miss ratio by memory.
    pub curve: &'a MissRatioCurve,
    /// What it would cost if every request missed: requests × mean penalty, in µs (`p_i N_i` of eq. 8).
    pub cost_us_max: f64,
    /// It never gets less, in bytes.
    pub bytes_min: u64,
    /// It never gets more, in bytes.
    pub bytes_max: u64,
}

impl Claim<'_> {
    /// Eq. 8: what it costs on `bytes`, in µs.
    pub fn cost_us(&self, bytes: u64) -> f64 {
        self.curve.miss_ratio_at(bytes) * self.cost_us_max
    }
}

/// Bytes per partition, in the order of the claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// What each partition gets, in bytes; adds up to at most the memory there is.
    pub bytes: Vec<u64>,
    /// The total it is predicted to cost, in µs.
    pub cost_us: f64,
}

/// Divides `memory_bytes` among `claims` in units of `granularity_bytes` (at least 1) so that the total cost is least.
///
/// All memory is given out, unless the maximums forbid it.
///
/// # Errors
/// A minimum above its maximum, or minimums that together exceed the memory.
pub fn allocate(claims: &[Claim], memory_bytes: u64, granularity_bytes: u64) -> Result<Allocation, ConfigError> {
    check_bounds(claims, memory_bytes)?;
    let unit = granularity_bytes.max(1);
    // Minimums are set aside to the byte; what is divided in units is the rest.
    let minimums: u64 = claims.iter().map(|c| c.bytes_min).sum();
    let units = ((memory_bytes - minimums) / unit) as usize;
    let costs: Vec<Vec<f64>> = claims.iter().map(|c| costs_by_units(c, unit, units)).collect();
    let given = fewest_units_of_least_cost(&costs, units);
    let mut bytes: Vec<u64> =
        claims.iter().zip(&given).map(|(c, &k)| (c.bytes_min + k as u64 * unit).min(c.bytes_max)).collect();
    spread_spare(claims, &mut bytes, memory_bytes);
    let cost_us = claims.iter().zip(&bytes).map(|(c, &b)| c.cost_us(b)).sum();
    Ok(Allocation { bytes, cost_us })
}

fn check_bounds(claims: &[Claim], memory_bytes: u64) -> Result<(), ConfigError> {
    for c in claims {
        if c.bytes_min > c.bytes_max {
            return Err(ConfigError::Bounds { bytes_min: c.bytes_min, bytes_max: c.bytes_max });
        }
    }
    let bytes_min_sum = claims.iter().map(|c| c.bytes_min).fold(0, u64::saturating_add);
    if bytes_min_sum > memory_bytes {
        return Err(ConfigError::MinimumsExceedMemory { bytes_min_sum, memory_bytes });
    }
    Ok(())
}

/// Cost of a claim on its minimum plus 0, 1, … units, up to `units` or the first that reaches its maximum.
fn costs_by_units(claim: &Claim, unit: u64, units: usize) -> Vec<f64> {
    let most = (claim.bytes_max - claim.bytes_min).div_ceil(unit).min(units as u64);
    (0..=most).map(|k| claim.cost_us((claim.bytes_min + k * unit).min(claim.bytes_max))).collect()
}

/// Eq. 11: units per claim, least total cost first, fewest units second.
fn fewest_units_of_least_cost(costs: &[Vec<f64>], units: usize) -> Vec<usize> {
    let mut best = vec![0.0; units + 1];
    let mut choices: Vec<Vec<u32>> = Vec::with_capacity(costs.len());
    for cost in costs {
        let mut next = vec![f64::INFINITY; units + 1];
        let mut choice = vec![0u32; units + 1];
        for j in 0..=units {
            for (k, &own) in cost.iter().enumerate().take(j + 1) {
                let total = best[j - k] + own;
                if total < next[j] {
                    (next[j], choice[j]) = (total, k as u32);
                }
            }
        }
        best = next;
        choices.push(choice);
    }
    // The fewest units that reach the least cost: the rest is spare.
    let least = best[units];
    let mut left = best.iter().position(|&c| c <= least).unwrap_or(units);
    let mut given = vec![0; costs.len()];
    for (i, choice) in choices.iter().enumerate().rev() {
        given[i] = choice[left] as usize;
        left -= given[i];
    }
    given
}

/// Gives what saves nothing evenly to all that may still grow.
fn spread_spare(claims: &[Claim], bytes: &mut [u64], memory_bytes: u64) {
    let mut spare = memory_bytes - bytes.iter().sum::<u64>();
    loop {
        let room: Vec<usize> = (0..bytes.len()).filter(|&i| bytes[i] < claims[i].bytes_max).collect();
        if spare == 0 || room.is_empty() {
            return;
        }
        let each = spare.div_ceil(room.len() as u64);
        for i in room {
            let extra = each.min(claims[i].bytes_max - bytes[i]).min(spare);
            bytes[i] += extra;
            spare -= extra;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::curve::CurvePoint;

    fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        MissRatioCurve::new(points.iter().map(|&(bytes, miss_ratio)| CurvePoint { bytes, miss_ratio }).collect())
    }

    fn claim(curve: &MissRatioCurve, cost_us_max: f64) -> Claim<'_> {
        Claim { curve, cost_us_max, bytes_min: 0, bytes_max: u64::MAX }
    }

    /// The example of the paper, sec. 2.1: three classes, five blocks; 2, 3 and 0 cost least, at 40 per request.
    #[test]
    fn the_papers_example() {
        let step = |n: u64| curve(&[(n - 1, 1.0), (n, 0.0)]);
        let (two, three, never) = (step(2), step(3), curve(&[(5, 1.0)]));
        let claims = [claim(&two, 0.5 * 10.0), claim(&three, 0.3 * 200.0), claim(&never, 0.2 * 200.0)];
        let got = allocate(&claims, 5, 1).unwrap();
        assert_eq!((got.bytes, got.cost_us), (vec![2, 3, 0], 40.0));
    }

    #[test]
    fn bounds_hold_and_bad_ones_are_refused() {
        let steep = curve(&[(100, 0.0)]);
        let flat = curve(&[(1, 1.0)]);
        let mut claims = [claim(&steep, 1.0), claim(&flat, 1.0)];
        claims[0].bytes_max = 30;
        claims[1].bytes_min = 25;
        assert_eq!(allocate(&claims, 100, 7).unwrap().bytes, [30, 70]);
        claims[1].bytes_min = 101;
        assert!(matches!(allocate(&claims, 100, 7), Err(ConfigError::MinimumsExceedMemory { .. })));
        claims[1].bytes_max = 5;
        assert!(matches!(allocate(&claims, 100, 7), Err(ConfigError::Bounds { .. })));
    }

    #[test]
    fn spare_memory_is_spread() {
        let done = curve(&[(10, 0.0)]);
        let got = allocate(&[claim(&done, 1.0), claim(&done, 5.0)], 100, 1).unwrap();
        assert_eq!(got.bytes, [50, 50]);
    }

    /// Every way to divide `units` among the claims, tried.
    fn brute_force(claims: &[Claim], units: u64) -> f64 {
        match claims {
            [] => 0.0,
            [first, rest @ ..] => {
                let (low, high) = (first.bytes_min, first.bytes_max.min(units));
                (low..=high).map(|k| first.cost_us(k) + brute_force(rest, units - k)).fold(f64::INFINITY, f64::min)
            }
        }
    }

    proptest! {
        #[test]
        fn the_dynamic_program_equals_brute_force(
            parts in prop::collection::vec((prop::collection::vec(0.0..1.0f64, 1..10), 0.0..100.0f64, 0u64..3, 3u64..20), 1..5),
            spare in 0u64..12,
        ) {
            let curves: Vec<MissRatioCurve> = parts.iter().map(|(ratios, ..)| {
                curve(&ratios.iter().enumerate().map(|(i, &r)| (i as u64 + 1, r)).collect::<Vec<_>>())
            }).collect();
            let claims: Vec<Claim> = parts.iter().zip(&curves).map(|((_, cost_us_max, min, max), curve)| {
                Claim { curve, cost_us_max: *cost_us_max, bytes_min: *min, bytes_max: *max }
            }).collect();
            let memory = claims.iter().map(|c| c.bytes_min).sum::<u64>() + spare;
            let got = allocate(&claims, memory, 1).unwrap();
            prop_assert!((got.cost_us - brute_force(&claims, memory)).abs() < 1e-6);
            prop_assert!(got.bytes.iter().sum::<u64>() <= memory);
            for (bytes, claim) in got.bytes.iter().zip(&claims) {
                prop_assert!((claim.bytes_min..=claim.bytes_max).contains(bytes));
            }
        }

        #[test]
        fn all_memory_is_given_out(memory in 0u64..10_000, unit in 1u64..500, n in 1usize..8) {
            let c = curve(&[(500, 0.3), (4_000, 0.1)]);
            let claims: Vec<Claim> = (0..n).map(|i| claim(&c, i as f64)).collect();
            prop_assert_eq!(allocate(&claims, memory, unit).unwrap().bytes.iter().sum::<u64>(), memory);
        }
    }
}
