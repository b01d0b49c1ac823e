//! How much memory each partition gets: the allocation of least total cost, by dynamic programming.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.3, eq. 8 to 11. `f[i][j]`, the least cost of the first `i` partitions on `j`
//! units, is the minimum over `k` of `f[i-1][j-k]` + the cost of partition `i` on `k` units. Curves need not be convex.
//! Differs from the paper: partitions form groups (the classes of one tenant), whose sums have a minimum and a maximum, so the
//! program runs over each group's claims and then over the groups; and memory that would save nothing anywhere is spread
//! evenly at the end in place of going wherever a tie falls.
//! Exact to the unit: of a group's total all but one claim get whole units, the dearest gets the odd bytes too.
//! Cost: O(partitions × units²) time, O(partitions × units) memory; 64 partitions × 1000 units: about 7 ms (`benches/allocation.rs`).

use crate::curve::{CurvePoint, MissRatioCurve};
use crate::error::ConfigError;

/// What one partition brings to an allocation.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Its miss ratio by memory.
    pub curve: &'a MissRatioCurve,
    /// What it would cost if every request missed: requests × mean penalty, in µs (`p_i N_i` of eq. 8).
    pub cost_us_max: f64,
    /// Whose bounds it shares: an index into the groups.
    pub group: usize,
}

impl Claim<'_> {
    /// Eq. 8: what it costs on `bytes`, in µs.
    pub fn cost_us(&self, bytes: u64) -> f64 {
        self.curve.miss_ratio_at(bytes) * self.cost_us_max
    }
}

/// The bounds of what some claims get together, in bytes; within them each is free. A group that no claim names gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Together they never get less.
    pub bytes_min: u64,
    /// Together they never get more.
    pub bytes_max: u64,
}

impl Group {
    /// Anything from nothing to all there is.
    pub const UNBOUNDED: Group = Group { bytes_min: 0, bytes_max: u64::MAX };
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
/// A claim of a group that isn't there, a minimum above its maximum, or minimums that together exceed the memory.
pub fn allocate(
    claims: &[Claim],
    groups: &[Group],
    memory_bytes: u64,
    granularity_bytes: u64,
) -> Result<Allocation, ConfigError> {
    let members = members(claims, groups)?;
    let minimums = checked_minimums(groups, &members, memory_bytes)?;
    let unit = granularity_bytes.max(1);
    // Minimums are set aside to the byte; what is divided in units is the rest.
    let units = ((memory_bytes - minimums) / unit) as usize;
    let of_groups: Vec<GroupProgram> = groups
        .iter()
        .zip(&members)
        .filter(|(_, members)| !members.is_empty())
        .map(|(&bounds, members)| GroupProgram::new(bounds, claims, members, unit, units))
        .collect();
    let program = Program::new(of_groups.iter().map(|group| group.costs(units)).collect(), units);
    let mut bytes = vec![0; claims.len()];
    for (group, k) in of_groups.iter().zip(program.fewest_units(units)) {
        group.divide(group.total_bytes(k), &mut bytes);
    }
    spread_spare(&members, groups, &mut bytes, memory_bytes);
    let cost_us = claims.iter().zip(&bytes).map(|(c, &b)| c.cost_us(b)).sum();
    Ok(Allocation { bytes, cost_us })
}

/// The miss ratio curve of several parts (the classes of one tenant), each with its number of reads, that share their memory so
/// that least is missed: at `n` sizes (at least 1), even up to the sum of what the parts' curves reach to. Empty where nothing is read.
/// O(parts × n²).
pub fn shared_curve(parts: &[(f64, &MissRatioCurve)], n: usize) -> MissRatioCurve {
    let reads: f64 = parts.iter().map(|(reads, _)| reads).sum();
    let last = |curve: &MissRatioCurve| curve.points().last().map_or(0, |point| point.bytes);
    let bytes: u64 = parts.iter().map(|(_, curve)| last(curve)).sum();
    if reads <= 0.0 || bytes == 0 {
        return MissRatioCurve::default();
    }
    let unit = bytes.div_ceil(n as u64);
    let misses = |(reads, curve): &(f64, &MissRatioCurve)| {
        (0..=n as u64).map(|k| reads * curve.miss_ratio_at(k * unit)).collect()
    };
    let program = Program::new(parts.iter().map(misses).collect(), n);
    let point = |k: usize| CurvePoint { bytes: k as u64 * unit, miss_ratio: at(program.least(), k) / reads };
    MissRatioCurve::new((1..=n).map(point).collect())
}

/// By group, the claims that name it.
fn members(claims: &[Claim], groups: &[Group]) -> Result<Vec<Vec<usize>>, ConfigError> {
    let mut members = vec![Vec::new(); groups.len()];
    for (i, claim) in claims.iter().enumerate() {
        let (group, n_groups) = (claim.group, groups.len());
        members.get_mut(group).ok_or(ConfigError::Group { group, n_groups })?.push(i);
    }
    Ok(members)
}

/// The sum of the minimums of those groups that have members.
fn checked_minimums(groups: &[Group], members: &[Vec<usize>], memory_bytes: u64) -> Result<u64, ConfigError> {
    let mut bytes_min_sum = 0_u64;
    for (&Group { bytes_min, bytes_max }, members) in groups.iter().zip(members) {
        if bytes_min > bytes_max {
            return Err(ConfigError::Bounds { bytes_min, bytes_max });
        }
        if !members.is_empty() {
            bytes_min_sum = bytes_min_sum.saturating_add(bytes_min);
        }
    }
    if bytes_min_sum > memory_bytes {
        return Err(ConfigError::MinimumsExceedMemory { bytes_min_sum, memory_bytes });
    }
    Ok(bytes_min_sum)
}

/// The least cost of one group's claims by what they get together.
struct GroupProgram<'a> {
    bounds: Group,
    unit: u64,
    /// The claims by their place, without the dearest.
    others: Vec<usize>,
    /// The one that would cost most takes what whole units of the others leave, and so the odd bytes.
    dearest: (usize, &'a Claim<'a>),
    program: Program,
}

impl<'a> GroupProgram<'a> {
    /// `units` is what any group may get above its minimum; `members` must not be empty.
    fn new(bounds: Group, claims: &'a [Claim<'a>], members: &[usize], unit: u64, units: usize) -> Self {
        let by_cost = |&a: &usize, &b: &usize| claims[a].cost_us_max.total_cmp(&claims[b].cost_us_max);
        let dearest = members.iter().copied().max_by(by_cost).unwrap_or_default();
        let others: Vec<usize> = members.iter().copied().filter(|&i| i != dearest).collect();
        let most = (bounds.bytes_min + units as u64 * unit).min(bounds.bytes_max) / unit;
        let cost = |&i: &usize| (0..=most).map(|k| claims[i].cost_us(k * unit)).collect();
        let program = Program::new(others.iter().map(cost).collect(), most as usize);
        GroupProgram { bounds, unit, others, dearest: (dearest, &claims[dearest]), program }
    }

    /// What the group gets with `k` units above its minimum.
    fn total_bytes(&self, k: usize) -> u64 {
        (self.bounds.bytes_min + k as u64 * self.unit).min(self.bounds.bytes_max)
    }

    /// Its cost on its minimum plus 0, 1, … units, up to `units` or the first that reaches its maximum.
    fn costs(&self, units: usize) -> Vec<f64> {
        let Group { bytes_min, bytes_max } = self.bounds;
        let whole = ((bytes_max - bytes_min) / self.unit).min(units as u64) as usize;
        let (first, odd) = ((bytes_min / self.unit) as usize, bytes_min % self.unit);
        let dearest =
            until_least((0..=first + whole).map(|k| self.dearest.1.cost_us(odd + k as u64 * self.unit)).collect());
        let all = convolve(self.program.least(), &dearest, first + whole);
        let mut costs: Vec<f64> = (first..=first + whole).map(|j| at(&all, j)).collect();
        if whole < units && self.total_bytes(whole) < bytes_max {
            costs.push(self.cheapest(bytes_max).1);
        }
        costs
    }

    /// How many units the others get of `total_bytes`, and what the group then costs.
    fn cheapest(&self, total_bytes: u64) -> (usize, f64) {
        let mut best = (0, f64::INFINITY);
        let most = (total_bytes / self.unit) as usize;
        for (k, others) in self.program.least().iter().enumerate().take(most + 1) {
            let cost = others + self.dearest.1.cost_us(total_bytes - k as u64 * self.unit);
            if cost < best.1 {
                best = (k, cost);
            }
        }
        best
    }

    /// Gives each claim its part of `total_bytes`. What saves nothing (the minimum may be more than is of use) goes to all alike.
    fn divide(&self, total_bytes: u64, bytes: &mut [u64]) {
        let (units, _) = self.cheapest(total_bytes);
        for (&i, k) in self.others.iter().zip(self.program.fewest_units(units)) {
            bytes[i] = k as u64 * self.unit;
        }
        let (dearest, claim) = self.dearest;
        let left = total_bytes - self.others.iter().map(|&i| bytes[i]).sum::<u64>();
        bytes[dearest] = fewest_bytes(claim, left, self.unit);
        let mut spare = left - bytes[dearest];
        let each = spare.div_ceil(self.others.len() as u64 + 1);
        for &i in self.others.iter().chain([&dearest]) {
            let extra = each.min(spare);
            bytes[i] += extra;
            spare -= extra;
        }
    }
}

/// The least of `bytes` that costs the same, in steps of `unit`. A binary search: costs never rise with memory.
fn fewest_bytes(claim: &Claim, bytes: u64, unit: u64) -> u64 {
    let (odd, cost) = (bytes % unit, claim.cost_us(bytes));
    let (mut low, mut high) = (0, bytes / unit);
    while low < high {
        let middle = low + (high - low) / 2;
        if claim.cost_us(odd + middle * unit) <= cost {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    odd + high * unit
}

/// Eq. 11 over some parts, given what each costs on 0, 1, … units.
///
/// A list of costs ends where more units save nothing: past its end the last cost holds.
struct Program {
    costs: Vec<Vec<f64>>,
    /// `f[i]` of eq. 11 for i = 0 to all parts: the least cost of the first `i` on at most so many units.
    best: Vec<Vec<f64>>,
}

impl Program {
    fn new(costs: Vec<Vec<f64>>, units: usize) -> Self {
        let costs: Vec<Vec<f64>> = costs.into_iter().map(until_least).collect();
        let mut best = vec![vec![0.0]];
        for cost in &costs {
            best.push(convolve(&best[best.len() - 1], cost, units));
        }
        Program { costs, best }
    }

    /// The least cost of all parts by units.
    fn least(&self) -> &[f64] {
        &self.best[self.costs.len()]
    }

    /// Units per part where there are `units`: least total cost first, fewest units second.
    fn fewest_units(&self, units: usize) -> Vec<usize> {
        let least = at(self.least(), units);
        let mut left = self.least().iter().position(|&cost| cost <= least).unwrap_or(0);
        let mut given = vec![0; self.costs.len()];
        for i in (0..given.len()).rev() {
            // Found again rather than noted: a search per part is nothing beside the program.
            let (before, least) = (&self.best[i], at(&self.best[i + 1], left));
            let reaches = |(k, own): (usize, &f64)| at(before, left - k) + own <= least;
            given[i] = self.costs[i].iter().take(left + 1).enumerate().position(reaches).unwrap_or(0);
            left -= given[i];
        }
        given
    }
}

/// The cost on `units`, of a list that ends where more save nothing.
fn at(costs: &[f64], units: usize) -> f64 {
    costs[units.min(costs.len() - 1)]
}

/// Cuts a list of costs after its first least.
fn until_least(mut costs: Vec<f64>) -> Vec<f64> {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let end = costs.iter().position(|&cost| cost <= least).unwrap_or(0);
    costs.truncate(end + 1);
    costs
}

/// The least of `a[j-k] + b[k]` over `k`, for each `j` up to `units`: the (min,+) convolution.
fn convolve(a: &[f64], b: &[f64], units: usize) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; (a.len() + b.len() - 1).min(units + 1)];
    for (k, &own) in b.iter().enumerate().take(least.len()) {
        for (least, other) in least[k..].iter_mut().zip(a) {
            // Not f64::min, whose care for NaN takes twice as long.
            let total = other + own;
            *least = if total < *least { total } else { *least };
        }
    }
    until_least(least)
}

/// Gives what saves nothing evenly to all that may still grow.
fn spread_spare(members: &[Vec<usize>], groups: &[Group], bytes: &mut [u64], memory_bytes: u64) {
    let mut spare = memory_bytes - bytes.iter().sum::<u64>();
    loop {
        let room = |members: &[usize], group: &Group| group.bytes_max - members.iter().map(|&i| bytes[i]).sum::<u64>();
        let rooms: Vec<u64> = members.iter().zip(groups).map(|(members, group)| room(members, group)).collect();
        let growing = || members.iter().zip(&rooms).filter(|&(members, &room)| !members.is_empty() && room > 0);
        let n: usize = growing().map(|(members, _)| members.len()).sum();
        if spare == 0 || n == 0 {
            return;
        }
        let each = spare.div_ceil(n as u64);
        for (members, &room) in growing() {
            let mut room = room;
            let each = each.min(room.div_ceil(members.len() as u64));
            for &i in members {
                let extra = each.min(room).min(spare);
                bytes[i] += extra;
                (room, spare) = (room - extra, spare - extra);
            }
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

    /// Claims of these curves and costs, each with bounds of its own.
    fn apart<'a>(of: &[(&'a MissRatioCurve, f64)]) -> (Vec<Claim<'a>>, Vec<Group>) {
        let claim =
            |(group, &(curve, cost_us_max)): (usize, &(&'a MissRatioCurve, f64))| Claim { curve, cost_us_max, group };
        (of.iter().enumerate().map(claim).collect(), vec![Group::UNBOUNDED; of.len()])
    }

    /// The example of the paper, sec. 2.1: three classes, five blocks; 2, 3 and 0 cost least, at 40 per request.
    #[test]
    fn the_papers_example() {
        let step = |n: u64| curve(&[(n - 1, 1.0), (n, 0.0)]);
        let (two, three, never) = (step(2), step(3), curve(&[(5, 1.0)]));
        let of = [(&two, 0.5 * 10.0), (&three, 0.3 * 200.0), (&never, 0.2 * 200.0)];
        let (mut claims, groups) = apart(&of);
        let got = allocate(&claims, &groups, 5, 1).unwrap();
        assert_eq!((got.bytes, got.cost_us), (vec![2, 3, 0], 40.0));
        claims.iter_mut().for_each(|claim| claim.group = 0);
        let got = allocate(&claims, &groups[..1], 5, 1).unwrap();
        assert_eq!((got.bytes, got.cost_us), (vec![2, 3, 0], 40.0));
    }

    /// Two steps of 30 and 10 reads at 2 and 1 blocks: the second pays first per block, the first more in all.
    #[test]
    fn parts_share_their_memory_so_that_least_is_missed() {
        let step = |n: u64| curve(&[(n * 10 - 1, 1.0), (n * 10, 0.0)]);
        let (two, one) = (step(2), step(1));
        let shared = shared_curve(&[(30.0, &two), (10.0, &one)], 3);
        let got: Vec<(u64, f64)> = shared.points().iter().map(|p| (p.bytes, p.miss_ratio)).collect();
        assert_eq!(got, [(10, 0.75), (20, 0.25), (30, 0.0)]);
        let alone = curve(&[(10, 0.5), (20, 0.25)]);
        assert_eq!(shared_curve(&[(7.0, &alone)], 2), alone);
        assert!(shared_curve(&[(0.0, &alone)], 2).is_empty());
        assert!(shared_curve(&[(1.0, &MissRatioCurve::default())], 2).is_empty());
    }

    #[test]
    fn bounds_hold_and_bad_ones_are_refused() {
        let steep = curve(&[(100, 0.0)]);
        let flat = curve(&[(1, 1.0)]);
        let (mut claims, mut groups) = apart(&[(&steep, 1.0), (&flat, 1.0)]);
        groups[0].bytes_max = 30;
        groups[1].bytes_min = 25;
        assert_eq!(allocate(&claims, &groups, 100, 7).unwrap().bytes, [30, 70]);
        groups[1].bytes_min = 101;
        assert!(matches!(allocate(&claims, &groups, 100, 7), Err(ConfigError::MinimumsExceedMemory { .. })));
        groups[1].bytes_max = 5;
        assert!(matches!(allocate(&claims, &groups, 100, 7), Err(ConfigError::Bounds { .. })));
        claims[1].group = 2;
        let unknown = ConfigError::Group { group: 2, n_groups: 2 };
        assert_eq!(allocate(&claims, &groups, 100, 7), Err(unknown));
    }

    /// Two tenants of two classes and 100 bytes. The first may have 50 and its dear class uses 40 of them; the second is owed
    /// 30 that save nothing, and takes what spare there is.
    #[test]
    fn bounds_are_of_the_sum() {
        let (wants_40, flat) = (curve(&[(40, 0.0)]), curve(&[(1, 1.0)]));
        let claim = |curve, cost_us_max, group| Claim { curve, cost_us_max, group };
        let claims = [claim(&wants_40, 9.0, 0), claim(&flat, 1.0, 1), claim(&wants_40, 1.0, 0), claim(&flat, 2.0, 1)];
        let mut groups = [Group { bytes_min: 0, bytes_max: 50 }, Group { bytes_min: 30, bytes_max: u64::MAX }];
        assert_eq!(allocate(&claims, &groups, 100, 10).unwrap().bytes, [40, 25, 10, 25]);
        // At 43 the last three bytes aren't a unit, and still someone's.
        groups[0].bytes_max = 43;
        let got = allocate(&claims, &groups, 100, 10).unwrap().bytes;
        assert_eq!((got[0] + got[2], got[1] + got[3]), (43, 57));
    }

    #[test]
    fn a_group_that_nobody_names_sets_nothing_aside() {
        let steep = curve(&[(100, 0.0)]);
        let (claims, mut groups) = apart(&[(&steep, 1.0)]);
        groups.push(Group { bytes_min: 1000, bytes_max: 2000 });
        assert_eq!(allocate(&claims, &groups, 100, 1).unwrap().bytes, [100]);
        assert_eq!(allocate(&[], &groups, 100, 1).unwrap().bytes, []);
    }

    #[test]
    fn spare_memory_is_spread() {
        let done = curve(&[(10, 0.0)]);
        let (claims, groups) = apart(&[(&done, 1.0), (&done, 5.0)]);
        assert_eq!(allocate(&claims, &groups, 100, 1).unwrap().bytes, [50, 50]);
    }

    /// Some claims of some groups; the curves have a point per byte.
    #[derive(Clone, Debug)]
    struct Case {
        /// Miss ratios, cost, group.
        claims: Vec<(Vec<f64>, f64, usize)>,
        groups: Vec<Group>,
        /// Beyond the minimums.
        spare: u64,
    }

    impl Case {
        fn curves(&self) -> Vec<MissRatioCurve> {
            let points =
                |ratios: &[f64]| ratios.iter().enumerate().map(|(i, &r)| (i as u64 + 1, r)).collect::<Vec<_>>();
            self.claims.iter().map(|(ratios, ..)| curve(&points(ratios))).collect()
        }

        fn claims<'a>(&self, curves: &'a [MissRatioCurve]) -> Vec<Claim<'a>> {
            let claim = |(curve, &(_, cost_us_max, group)): (_, &(_, _, usize))| Claim { curve, cost_us_max, group };
            curves.iter().zip(&self.claims).map(claim).collect()
        }

        fn memory_bytes(&self) -> u64 {
            let named = |&g: &usize| self.claims.iter().any(|(.., group)| *group == g);
            let minimums = (0..self.groups.len()).filter(named).map(|g| self.groups[g].bytes_min);
            minimums.sum::<u64>() + self.spare
        }
    }

    prop_compose! {
        fn any_case(n_claims: usize, n_groups: usize)(
            groups in prop::collection::vec((0..4_u64, 0..15_u64), 1..=n_groups)
        )(
            claims in prop::collection::vec(
                (prop::collection::vec(0.0..1.0_f64, 1..10), 0.0..100.0_f64, 0..groups.len()), 1..=n_claims),
            groups in Just(groups),
            spare in 0..12_u64,
        ) -> Case {
            let bounds = |(min, width)| Group { bytes_min: min, bytes_max: min + width };
            Case { claims, groups: groups.into_iter().map(bounds).collect(), spare }
        }
    }

    /// Every way to divide at most `memory_bytes` in steps of `unit`, tried; `given` is what each group has so far.
    fn brute_force(claims: &[Claim], groups: &[Group], given: &mut [u64], memory_bytes: u64, unit: u64) -> f64 {
        let [first, rest @ ..] = claims else {
            let reached =
                groups.iter().zip(given).all(|(group, given)| *given == u64::MAX || *given >= group.bytes_min);
            return if reached { 0.0 } else { f64::INFINITY };
        };
        let most = memory_bytes.min(groups[first.group].bytes_max - given[first.group]);
        let mut least = f64::INFINITY;
        for bytes in (0..=most).step_by(unit as usize) {
            given[first.group] += bytes;
            let cost_us = first.cost_us(bytes) + brute_force(rest, groups, given, memory_bytes - bytes, unit);
            given[first.group] -= bytes;
            least = least.min(cost_us);
        }
        least
    }

    /// The program of a group for each claim, written plainly: units above the minimums, before the spare is spread.
    fn plain_program(claims: &[Claim], groups: &[Group], unit: u64, units: usize) -> Vec<usize> {
        let mut best = vec![0.0; units + 1];
        let mut choices = Vec::new();
        for claim in claims {
            let Group { bytes_min, bytes_max } = groups[claim.group];
            let most = (bytes_max - bytes_min).div_ceil(unit).min(units as u64) as usize;
            let cost = |k: usize| claim.cost_us((bytes_min + k as u64 * unit).min(bytes_max));
            let choose = |j: usize| {
                let totals = (0..=most.min(j)).map(|k| (best[j - k] + cost(k), k));
                totals.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap()
            };
            let chosen: Vec<(f64, usize)> = (0..=units).map(choose).collect();
            best = chosen.iter().map(|c| c.0).collect();
            choices.push(chosen);
        }
        let mut left = best.iter().position(|&c| c <= best[units]).unwrap();
        let mut given: Vec<usize> = Vec::new();
        for chosen in choices.iter().rev() {
            given.push(chosen[left].1);
            left -= chosen[left].1;
        }
        given.reverse();
        given
    }

    fn check_bounds(case: &Case, got: &Allocation) {
        assert!(got.bytes.iter().sum::<u64>() <= case.memory_bytes());
        for (g, group) in case.groups.iter().enumerate() {
            let of_group = case.claims.iter().zip(&got.bytes).filter(|(claim, _)| claim.2 == g);
            let (n, sum) = of_group.fold((0, 0), |(n, sum), (_, &bytes)| (n + 1, sum + bytes));
            assert!(n == 0 || (group.bytes_min..=group.bytes_max).contains(&sum), "{group:?} gets {sum}");
        }
    }

    proptest! {
        #[test]
        fn the_dynamic_program_equals_brute_force(case in any_case(4, 3)) {
            let (curves, memory) = (case.curves(), case.memory_bytes());
            let claims = case.claims(&curves);
            let got = allocate(&claims, &case.groups, memory, 1).unwrap();
            let mut given: Vec<u64> = vec![u64::MAX; case.groups.len()];
            claims.iter().for_each(|claim| given[claim.group] = 0);
            let least = brute_force(&claims, &case.groups, &mut given, memory, 1);
            prop_assert!((got.cost_us - least).abs() < 1e-6, "{} and by brute force {least}", got.cost_us);
            check_bounds(&case, &got);
        }

        /// Units larger than a byte: bounds hold to the byte, and the cost is no more than that of the best in whole units.
        #[test]
        fn coarse_units_keep_the_bounds(case in any_case(4, 3), unit in 2..5_u64) {
            let curves = case.curves();
            let claims = case.claims(&curves);
            check_bounds(&case, &allocate(&claims, &case.groups, case.memory_bytes(), unit).unwrap());
            let whole = |group: &Group| Group { bytes_min: group.bytes_min * unit, bytes_max: group.bytes_max * unit };
            let whole = Case { groups: case.groups.iter().map(whole).collect(), spare: case.spare * unit, ..case };
            let got = allocate(&claims, &whole.groups, whole.memory_bytes(), unit).unwrap();
            check_bounds(&whole, &got);
            let mut given: Vec<u64> = vec![u64::MAX; whole.groups.len()];
            claims.iter().for_each(|claim| given[claim.group] = 0);
            let least = brute_force(&claims, &whole.groups, &mut given, whole.memory_bytes(), unit);
            prop_assert!(got.cost_us <= least + 1e-6, "{} and by brute force {least}", got.cost_us);
        }

        /// What a claim with bounds of its own got before there were groups.
        #[test]
        fn a_group_of_one_is_a_claim_by_itself(case in any_case(6, 6), unit in 1..5_u64) {
            let mut case = case;
            case.claims.truncate(case.groups.len());
            case.groups.truncate(case.claims.len());
            case.claims.iter_mut().enumerate().for_each(|(i, claim)| claim.2 = i);
            let curves = case.curves();
            let claims = case.claims(&curves);
            let units = (case.spare / unit) as usize;
            let program = plain_program(&claims, &case.groups, unit, units);
            let minimum = |(group, &k): (&Group, &usize)| (group.bytes_min + k as u64 * unit).min(group.bytes_max);
            let mut expected: Vec<u64> = case.groups.iter().zip(&program).map(minimum).collect();
            let members: Vec<Vec<usize>> = (0..claims.len()).map(|i| vec![i]).collect();
            spread_spare(&members, &case.groups, &mut expected, case.memory_bytes());
            prop_assert_eq!(allocate(&claims, &case.groups, case.memory_bytes(), unit).unwrap().bytes, expected);
        }

        #[test]
        fn all_memory_is_given_out(memory in 0u64..10_000, unit in 1u64..500, n in 1usize..8, n_groups in 1usize..4) {
            let c = curve(&[(500, 0.3), (4_000, 0.1)]);
            let claims: Vec<Claim> =
                (0..n).map(|i| Claim { curve: &c, cost_us_max: i as f64, group: i % n_groups }).collect();
            let got = allocate(&claims, &vec![Group::UNBOUNDED; n_groups], memory, unit).unwrap();
            prop_assert_eq!(got.bytes.iter().sum::<u64>(), memory);
        }
    }
}
