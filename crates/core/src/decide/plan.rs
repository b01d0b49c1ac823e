//! The plan: what the enforcer carries out until the next one, and whether a new one is worth the change.

use super::allocation::{Claim, Group, allocate};
use crate::error::ConfigError;

/// Target bytes per partition, in the order of the claims it was made from. Immutable once published.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Plan {
    /// What each partition should hold, in bytes.
    pub target_bytes: Vec<u64>,
    /// Predicted cost of the window under this plan, in µs.
    pub cost_us: f64,
}

/// Makes the next plan, or keeps the present targets where the gain would be below `gain_min` (a share of the present plan's
/// cost, 0 to 1): memory that moves is refetched, so a plan that flutters costs more than it saves.
///
/// The present plan is judged on today's curves; where it no longer fits (other partitions, less memory, new bounds), it is
/// replaced whatever the gain.
///
/// # Errors
/// As [`allocate`].
pub fn next_plan(
    present: Option<&Plan>,
    claims: &[Claim],
    groups: &[Group],
    memory_bytes: u64,
    granularity_bytes: u64,
    gain_min: f64,
) -> Result<Plan, ConfigError> {
    let best = allocate(claims, groups, memory_bytes, granularity_bytes)?;
    if let Some(plan) = present.filter(|plan| still_fits(plan, claims, groups, memory_bytes)) {
        let cost_us: f64 = claims.iter().zip(&plan.target_bytes).map(|(c, &b)| c.cost_us(b)).sum();
        if cost_us - best.cost_us <= gain_min * cost_us {
            return Ok(Plan { cost_us, ..plan.clone() });
        }
    }
    Ok(Plan { target_bytes: best.bytes, cost_us: best.cost_us })
}

/// True where the plan is for these partitions, keeps the bounds of their groups, and gives out this memory to within 1 %.
fn still_fits(plan: &Plan, claims: &[Claim], groups: &[Group], memory_bytes: u64) -> bool {
    let sum: u64 = plan.target_bytes.iter().sum();
    if plan.target_bytes.len() != claims.len() || sum > memory_bytes || memory_bytes - sum > memory_bytes / 100 {
        return false;
    }
    let mut bytes_by_group = vec![None; groups.len()];
    for (claim, bytes) in claims.iter().zip(&plan.target_bytes) {
        *bytes_by_group[claim.group].get_or_insert(0) += bytes;
    }
    let is_within =
        |(group, sum): (&Group, Option<u64>)| sum.is_none_or(|b| (group.bytes_min..=group.bytes_max).contains(&b));
    groups.iter().zip(bytes_by_group).all(is_within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{CurvePoint, MissRatioCurve};

    fn line(bytes: u64) -> MissRatioCurve {
        MissRatioCurve::new(vec![CurvePoint { bytes, miss_ratio: 0.0 }])
    }

    /// All of one group.
    fn claims<'a>(curves: &'a [MissRatioCurve], costs: &[f64]) -> Vec<Claim<'a>> {
        let claim = |(curve, &cost_us_max)| Claim { curve, cost_us_max, group: 0 };
        curves.iter().zip(costs).map(claim).collect()
    }

    const UNBOUNDED: [Group; 1] = [Group::UNBOUNDED];

    #[test]
    fn a_small_gain_is_not_worth_the_change_and_a_large_one_is() {
        let curves = [line(100), line(100)];
        let first = next_plan(None, &claims(&curves, &[10.0, 9.0]), &UNBOUNDED, 100, 10, 0.05).unwrap();
        assert_eq!(first.target_bytes, [100, 0]);
        let kept = next_plan(Some(&first), &claims(&curves, &[10.0, 10.2]), &UNBOUNDED, 100, 10, 0.05).unwrap();
        assert_eq!(kept.target_bytes, [100, 0]);
        let moved = next_plan(Some(&first), &claims(&curves, &[10.0, 30.0]), &UNBOUNDED, 100, 10, 0.05).unwrap();
        assert_eq!(moved.target_bytes, [0, 100]);
    }

    #[test]
    fn a_plan_that_no_longer_fits_is_replaced() {
        let curves = [line(100), line(100)];
        let old = Plan { target_bytes: vec![100, 0], cost_us: 9.0 };
        let got = next_plan(Some(&old), &claims(&curves, &[10.0, 10.0]), &UNBOUNDED, 50, 10, 0.5).unwrap();
        assert!(got.target_bytes.iter().sum::<u64>() <= 50);
    }
    /// Two tenants of two partitions: 60 and 40 of 100 bytes, each within its bounds until the second is owed 50.
    #[test]
    fn bounds_are_of_a_groups_sum() {
        let curves = [line(100), line(100), line(100), line(100)];
        let mut claims = claims(&curves, &[10.0; 4]);
        claims[2].group = 1;
        claims[3].group = 1;
        let present = Plan { target_bytes: vec![60, 0, 0, 40], cost_us: 0.0 };
        let mut groups = [Group { bytes_min: 0, bytes_max: 60 }, Group { bytes_min: 40, bytes_max: 100 }];
        let kept = next_plan(Some(&present), &claims, &groups, 100, 10, 0.5).unwrap();
        assert_eq!(kept.target_bytes, present.target_bytes);
        groups[1].bytes_min = 50;
        let replaced = next_plan(Some(&present), &claims, &groups, 100, 10, 0.5).unwrap();
        assert!(replaced.target_bytes[2] + replaced.target_bytes[3] >= 50, "{replaced:?}");
    }
}
