//! The plan: what the enforcer carries out until the next one, and whether a new one is worth the change.

use super::allocation::{Allocation, Claim, EqualSplit, Group, allocate, equal_split};
use super::objective::Objective;
use crate::error::ConfigError;

/// Target bytes per partition, in the order of the claims it was made from. Immutable once published.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Plan {
    /// What each partition should hold, in bytes.
    pub target_bytes: Vec<u64>,
    /// Predicted cost of the window under this plan, in µs.
    pub cost_us: f64,
}

/// How plans are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// What there is to divide, in bytes.
    pub memory_bytes: u64,
    /// The unit that it is divided in, in bytes; 0 = a thousandth, and never less than a 4000th.
    pub granularity_bytes: u64,
    /// A plan that saves less than this share of the present one's cost isn't adopted, 0 to 1.
    pub gain_min: f64,
    /// What it is to reach.
    pub objective: Objective,
}

impl Terms {
    fn unit_bytes(&self) -> u64 {
        match self.granularity_bytes {
            0 => (self.memory_bytes / 1000).max(1),
            set => set.max(self.memory_bytes / 4000),
        }
    }
}

/// A loss against the present plan counts so much more than a gain. So memory goes where it saves clearly more, and
/// not to and fro with the noise of two curves that fall alike. What half as much again gives and costs is in
/// docs/decisions/04-partitions.md, "Plans that stay".
const RELUCTANCE: f64 = 0.5;

/// A plan has to save so many standard errors of what it is predicted to save: it is the best of many that chance has
/// a part in.
const CHANCE: f64 = 2.0;

/// Makes the next plan, or keeps the present targets where the gain would be below the least (a share of the present
/// plan's cost): memory that moves is refetched, so a plan that flutters costs more than it saves.
///
/// The gain has to be more than chance in the curves makes, too, and what a partition would lose weighs more than
/// what another would gain. The present plan is judged on today's curves; where it no longer fits (other partitions,
/// new bounds, a tenant that it leaves more expensive than an equal split by more than that share), it is replaced
/// whatever the gain.
///
/// # Errors
/// As [`allocate`].
pub fn next_plan(
    present: Option<&Plan>,
    claims: &[Claim],
    groups: &[Group],
    terms: &Terms,
) -> Result<Plan, ConfigError> {
    let &Terms { memory_bytes, gain_min, .. } = terms;
    let split = match terms.objective {
        Objective::Fair => Some(equal_split(claims, groups, memory_bytes, terms.unit_bytes())?),
        Objective::Penalty | Objective::Hits => None,
    };
    let bounds = split.as_ref().map_or(groups, |split| &split.groups);
    let is_fair = |plan: &Plan| split.as_ref().is_none_or(|split| is_fair(plan, claims, split, gain_min));
    let present = present.and_then(|plan| fitted(plan, claims, groups, memory_bytes)).filter(is_fair);
    let of = |claims: &[Claim]| allocate(claims, bounds, memory_bytes, terms.unit_bytes());
    let Some(present) = present else { return of(claims).map(Plan::from) };
    let held = claims.iter().zip(&present.target_bytes).map(|(claim, &bytes)| claim.holding(bytes, RELUCTANCE));
    let mut best = Plan::from(of(&held.collect::<Vec<_>>())?);
    if !is_fair(&best) {
        best = of(claims)?.into();
    }
    let gain_us = present.cost_us - best.cost_us;
    let chance_us = CHANCE * gain_variance(claims, &present, &best).sqrt();
    Ok(if gain_us <= (gain_min * present.cost_us).max(chance_us) { present } else { best })
}

impl From<Allocation> for Plan {
    fn from(allocation: Allocation) -> Plan {
        Plan { target_bytes: allocation.bytes, cost_us: allocation.cost_us }
    }
}

/// The variance of what one plan costs less than another, in µs².
fn gain_variance(claims: &[Claim], one: &Plan, other: &Plan) -> f64 {
    let of = |((claim, &one), &other): ((&Claim, &u64), &u64)| claim.gain_variance(one, other);
    claims.iter().zip(&one.target_bytes).zip(&other.target_bytes).map(of).sum()
}

/// True where no group costs more under the plan than on an equal split, but for the share `tolerance`.
fn is_fair(plan: &Plan, claims: &[Claim], split: &EqualSplit, tolerance: f64) -> bool {
    let mut cost_us = vec![0.0; split.cost_us.len()];
    for (claim, &bytes) in claims.iter().zip(&plan.target_bytes) {
        cost_us[claim.group] += claim.cost_us(bytes);
    }
    cost_us.iter().zip(&split.cost_us).all(|(cost, limit)| *cost <= limit * (1.0 + tolerance) + 1e-9)
}

/// The share of the memory by which targets may miss it: what the keys may take together moves a little from window
/// to window.
const MEMORY_TOLERANCE: f64 = 0.01;

/// The present plan as it would be for today's memory: as it is where that is nearly the same, else in proportion.
/// `None` where it is not for these partitions, or doesn't keep the bounds of their groups.
fn fitted(present: &Plan, claims: &[Claim], groups: &[Group], memory_bytes: u64) -> Option<Plan> {
    let sum: u64 = present.target_bytes.iter().sum();
    if present.target_bytes.len() != claims.len() || sum == 0 {
        return None;
    }
    let by = memory_bytes as f64 / sum as f64;
    let scaled = |&bytes: &u64| if (by - 1.0).abs() <= MEMORY_TOLERANCE { bytes } else { (bytes as f64 * by) as u64 };
    let target_bytes: Vec<u64> = present.target_bytes.iter().map(scaled).collect();
    let mut bytes_by_group = vec![None; groups.len()];
    for (claim, bytes) in claims.iter().zip(&target_bytes) {
        *bytes_by_group[claim.group].get_or_insert(0) += bytes;
    }
    let is_within =
        |(group, sum): (&Group, Option<u64>)| sum.is_none_or(|b| (group.bytes_min..=group.bytes_max).contains(&b));
    let cost_us = claims.iter().zip(&target_bytes).map(|(claim, &bytes)| claim.cost_us(bytes)).sum();
    groups.iter().zip(bytes_by_group).all(is_within).then_some(Plan { target_bytes, cost_us })
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
        let claim = |(curve, &cost_us_max)| Claim::new(curve, cost_us_max, 0);
        curves.iter().zip(costs).map(claim).collect()
    }

    const UNBOUNDED: [Group; 1] = [Group::UNBOUNDED];

    fn terms(memory_bytes: u64, gain_min: f64) -> Terms {
        Terms { memory_bytes, granularity_bytes: 10, gain_min, objective: Objective::Penalty }
    }

    #[test]
    fn a_small_gain_is_not_worth_the_change_and_a_large_one_is() {
        let curves = [line(100), line(100)];
        let first = next_plan(None, &claims(&curves, &[10.0, 9.0]), &UNBOUNDED, &terms(100, 0.05)).unwrap();
        assert_eq!(first.target_bytes, [100, 0]);
        let kept = next_plan(Some(&first), &claims(&curves, &[10.0, 10.2]), &UNBOUNDED, &terms(100, 0.05)).unwrap();
        assert_eq!(kept.target_bytes, [100, 0]);
        let moved = next_plan(Some(&first), &claims(&curves, &[10.0, 30.0]), &UNBOUNDED, &terms(100, 0.05)).unwrap();
        assert_eq!(moved.target_bytes, [0, 100]);
    }

    /// The other plan saves 8 of 18 µs, give or take √(10² + 18²) / √reads: of 4 reads that is chance, of 400 it is
    /// not.
    #[test]
    fn a_gain_that_may_be_chance_is_not_worth_the_change() {
        let curves = [line(100), line(100)];
        let present = Plan { target_bytes: vec![100, 0], cost_us: 0.0 };
        for (n_reads, target_bytes) in [(4.0, [100, 0]), (400.0, [0, 100])] {
            let seen: Vec<Claim> = claims(&curves, &[10.0, 18.0]).into_iter().map(|c| c.seen_by(n_reads)).collect();
            let got = next_plan(Some(&present), &seen, &UNBOUNDED, &terms(100, 0.05)).unwrap();
            assert_eq!(got.target_bytes, target_bytes, "{n_reads}");
        }
    }

    /// What the keys may take moves a little all the time: the plan stays as it is, or goes along.
    #[test]
    fn a_plan_outlasts_changes_of_the_memory() {
        let curves = [line(1000), line(1000)];
        let present = Plan { target_bytes: vec![600, 400], cost_us: 0.0 };
        for (memory_bytes, target_bytes) in
            [(1009, [600, 400]), (991, [600, 400]), (1100, [660, 440]), (900, [540, 360])]
        {
            let got = next_plan(Some(&present), &claims(&curves, &[10.0; 2]), &UNBOUNDED, &terms(memory_bytes, 0.01));
            assert_eq!(got.unwrap().target_bytes, target_bytes, "{memory_bytes}");
        }
    }

    #[test]
    fn a_plan_that_no_longer_fits_is_replaced() {
        let curves = [line(100), line(100)];
        let old = Plan { target_bytes: vec![100, 0], cost_us: 9.0 };
        let got = next_plan(Some(&old), &claims(&curves, &[10.0, 10.0]), &UNBOUNDED, &terms(50, 0.5)).unwrap();
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
        let kept = next_plan(Some(&present), &claims, &groups, &terms(100, 0.5)).unwrap();
        assert_eq!(kept.target_bytes, present.target_bytes);
        groups[1].bytes_min = 50;
        let replaced = next_plan(Some(&present), &claims, &groups, &terms(100, 0.5)).unwrap();
        assert!(replaced.target_bytes[2] + replaced.target_bytes[3] >= 50, "{replaced:?}");
    }

    /// Two tenants that could use all of 100 bytes, one ten times as expensive: it gets all but what the other needs
    /// to be as well off as on its half. A plan that robs the other is replaced though it costs less; one that does
    /// by less than the least gain is kept.
    #[test]
    fn a_fair_plan_leaves_nobody_worse_off() {
        let knee = MissRatioCurve::new(vec![
            CurvePoint { bytes: 30, miss_ratio: 0.4 },
            CurvePoint { bytes: 50, miss_ratio: 0.4 },
            CurvePoint { bytes: 100, miss_ratio: 0.0 },
        ]);
        let curves = [line(100), knee];
        let mut claims = claims(&curves, &[1000.0, 100.0]);
        claims[1].group = 1;
        let groups = [Group::UNBOUNDED; 2];
        let fair = Terms { objective: Objective::Fair, ..terms(100, 0.05) };
        let plan = next_plan(None, &claims, &groups, &fair).unwrap();
        assert_eq!(plan.target_bytes, [70, 30], "30 bytes are as good as 50");
        let all = Plan { target_bytes: vec![100, 0], cost_us: 100.0 };
        assert_eq!(next_plan(Some(&all), &claims, &groups, &terms(100, 0.05)).unwrap().target_bytes, [100, 0]);
        assert_eq!(next_plan(Some(&all), &claims, &groups, &fair).unwrap().target_bytes, [70, 30]);
        let nearly = Plan { target_bytes: vec![71, 29], cost_us: 0.0 };
        assert_eq!(next_plan(Some(&nearly), &claims, &groups, &fair).unwrap().target_bytes, [71, 29]);
    }
}
