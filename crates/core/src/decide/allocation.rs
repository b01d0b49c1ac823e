//! How much memory each partition gets: the allocation of least total cost, by dynamic programming.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.3, eq. 8 to 11. `f[i][j]`, the least cost of the first `i` partitions
//! on `j` units, is the minimum over `k` of `f[i-1][j-k]` + the cost of partition `i` on `k` units. Curves need not be
//! convex. Differs from the paper: partitions form groups (the classes of one tenant), whose sums have a minimum and a
//! maximum. So the program runs over each group's claims, then over the groups. Memory that would save nothing
//! anywhere is spread evenly at the end; in the paper it goes wherever a tie falls. Exact to the unit: of a group's
//! total all but one claim get whole units, the most expensive gets the odd bytes too. Cost: O(partitions × units²)
//! time, O(partitions × units) memory; 64 partitions × 1000 units: about 7 ms (`benches/allocation.rs`).

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
    /// Reads that were looked at for the curve: how much chance is in it. Infinitely many where the curve is exact.
    pub n_reads: f64,
    /// What it costs as it is, in µs, and how much more counts what it would lose against that.
    held: Option<(f64, f64)>,
}

impl<'a> Claim<'a> {
    /// A claim of a partition that holds nothing yet, or whose memory may go as easily as it came.
    pub fn new(curve: &'a MissRatioCurve, cost_us_max: f64, group: usize) -> Self {
        Claim { curve, cost_us_max, group, n_reads: f64::INFINITY, held: None }
    }

    /// The same with a curve that `n_reads` were looked at for.
    pub fn seen_by(self, n_reads: f64) -> Self {
        Claim { n_reads: n_reads.max(1.0), ..self }
    }

    /// The same of a partition that has `bytes` now: what it would lose against that weighs 1 + `reluctance` in an
    /// allocation.
    pub fn holding(&self, bytes: u64, reluctance: f64) -> Self {
        Claim { held: Some((self.cost_us(bytes), reluctance)), ..self.clone() }
    }

    /// The variance of what it costs less on one of two sizes than on the other, in µs²: the reads in between are
    /// counted, and counts vary by their square root.
    pub fn gain_variance(&self, one: u64, other: u64) -> f64 {
        let share = (self.curve.miss_ratio_at(one) - self.curve.miss_ratio_at(other)).abs();
        self.cost_us_max * self.cost_us_max * share / self.n_reads
    }

    /// What an allocation has to minimise: the cost, and again some of what is lost.
    fn weighed_us(&self, bytes: u64) -> f64 {
        let cost_us = self.cost_us(bytes);
        cost_us + self.held.map_or(0.0, |(held_us, reluctance)| reluctance * (cost_us - held_us).max(0.0))
    }

    /// Eq. 8: what it costs on `bytes`, in µs.
    pub fn cost_us(&self, bytes: u64) -> f64 {
        self.curve.miss_ratio_at(bytes) * self.cost_us_max
    }
}

/// The bounds of what some claims get together, in bytes; within them each is free. A group that no claim names gets
/// nothing.
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
    spread_spare(claims, &members, groups, &mut bytes, memory_bytes);
    let cost_us = claims.iter().zip(&bytes).map(|(c, &b)| c.cost_us(b)).sum();
    Ok(Allocation { bytes, cost_us })
}

/// The miss ratio curve of several parts (the classes of one tenant), each with its number of reads, that share their
/// memory so that least is missed: at `n` sizes (at least 1), even up to the sum of what the parts' curves reach to.
/// Empty where nothing is read. O(parts × n²).
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

/// What no group may do worse than: its part of an equal split of the memory.
#[derive(Clone, Debug, PartialEq)]
pub struct EqualSplit {
    /// By group, its bounds with the least minimum from which on it costs no more than on its part.
    pub groups: Vec<Group>,
    /// By group, the least that it costs on its part, in µs.
    pub cost_us: Vec<f64>,
}

/// Divides `memory_bytes` alike among the groups that cost anything at all, as far as their bounds let it. Then finds
/// how much less would do for each. Costs never rise with memory, so "no more expensive than on its part" is a
/// minimum, and the program that keeps minimums stays exact. Those minimums always fit. Arguments as of [`allocate`];
/// O(claims × units²).
///
/// # Errors
/// As [`allocate`].
pub fn equal_split(
    claims: &[Claim],
    groups: &[Group],
    memory_bytes: u64,
    granularity_bytes: u64,
) -> Result<EqualSplit, ConfigError> {
    let members = members(claims, groups)?;
    checked_minimums(groups, &members, memory_bytes)?;
    let unit = granularity_bytes.max(1);
    let is_asked_for = |members: &Vec<usize>| members.iter().any(|&i| claims[i].cost_us_max > 0.0);
    let accesses: Vec<bool> = members.iter().map(is_asked_for).collect();
    let parts = equal_parts(groups, &members, &accesses, memory_bytes);
    let mut split = EqualSplit { groups: groups.to_vec(), cost_us: vec![0.0; groups.len()] };
    for g in (0..groups.len()).filter(|&g| accesses[g]) {
        let bounds = Group { bytes_min: 0, bytes_max: parts[g] };
        let program = GroupProgram::new(bounds, claims, &members[g], unit, (parts[g] / unit) as usize);
        split.cost_us[g] = program.cheapest(parts[g]).1;
        split.groups[g].bytes_min = program.least_as_cheap(groups[g].bytes_min, parts[g]);
    }
    Ok(split)
}

/// By group, its part: the same for all that are accessed but for those whose bounds forbid it; the others have their
/// minimum.
fn equal_parts(groups: &[Group], members: &[Vec<usize>], accesses: &[bool], memory_bytes: u64) -> Vec<u64> {
    let at = |level: u64| -> Vec<u64> {
        let part = |(g, group): (usize, &Group)| match (accesses[g], members[g].is_empty()) {
            (true, _) => level.clamp(group.bytes_min, group.bytes_max),
            (false, false) => group.bytes_min,
            (false, true) => 0,
        };
        groups.iter().enumerate().map(part).collect()
    };
    let fits = |level: u64| at(level).iter().map(|&part| u128::from(part)).sum::<u128>() <= u128::from(memory_bytes);
    let (mut fitting, mut beyond) = (0, memory_bytes.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            beyond = middle;
        }
    }
    at(fitting)
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
    claims: &'a [Claim<'a>],
    members: &'a [usize],
    bounds: Group,
    unit: u64,
    /// The claims by their place, without the most expensive.
    others: Vec<usize>,
    /// The one that would cost most takes what whole units of the others leave, and so the odd bytes.
    dearest: (usize, &'a Claim<'a>),
    program: Program,
}

impl<'a> GroupProgram<'a> {
    /// `units` is what any group may get above its minimum; `members` must not be empty.
    fn new(bounds: Group, claims: &'a [Claim<'a>], members: &'a [usize], unit: u64, units: usize) -> Self {
        let by_cost = |&a: &usize, &b: &usize| claims[a].cost_us_max.total_cmp(&claims[b].cost_us_max);
        let dearest = members.iter().copied().max_by(by_cost).unwrap_or_default();
        let others: Vec<usize> = members.iter().copied().filter(|&i| i != dearest).collect();
        let most = (bounds.bytes_min + units as u64 * unit).min(bounds.bytes_max) / unit;
        let cost = |&i: &usize| (0..=most).map(|k| claims[i].weighed_us(k * unit)).collect();
        let program = Program::new(others.iter().map(cost).collect(), most as usize);
        GroupProgram { claims, members, bounds, unit, others, dearest: (dearest, &claims[dearest]), program }
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
            until_least((0..=first + whole).map(|k| self.dearest.1.weighed_us(odd + k as u64 * self.unit)).collect());
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
            let cost = others + self.dearest.1.weighed_us(total_bytes - k as u64 * self.unit);
            if cost < best.1 {
                best = (k, cost);
            }
        }
        best
    }

    /// The least of `most` bytes, whole units less, that costs no more and is at least `least`.
    fn least_as_cheap(&self, least: u64, most: u64) -> u64 {
        let cost = self.cheapest(most).1;
        // A hair's breadth for sums that are added up in another order.
        let is_as_cheap = |units: u64| self.cheapest(most - units * self.unit).1 <= cost * (1.0 + 1e-12);
        let (mut fewer, mut too_few) = (0, (most.saturating_sub(least)) / self.unit + 1);
        while too_few - fewer > 1 {
            let middle = fewer + (too_few - fewer) / 2;
            if is_as_cheap(middle) {
                fewer = middle;
            } else {
                too_few = middle;
            }
        }
        most - fewer * self.unit
    }

    /// Gives each claim its part of `total_bytes`, and what saves nothing (the minimum may be more than is of use) as
    /// [`hand_out`] does.
    fn divide(&self, total_bytes: u64, bytes: &mut [u64]) {
        let (units, _) = self.cheapest(total_bytes);
        for (&i, k) in self.others.iter().zip(self.program.fewest_units(units)) {
            bytes[i] = k as u64 * self.unit;
        }
        let (dearest, claim) = self.dearest;
        let left = total_bytes - self.others.iter().map(|&i| bytes[i]).sum::<u64>();
        bytes[dearest] = fewest_bytes(claim, left, self.unit);
        hand_out(left - bytes[dearest], self.claims, self.members, bytes);
    }
}

/// The least of `bytes` that costs the same, in steps of `unit`. A binary search: costs never rise with memory.
fn fewest_bytes(claim: &Claim, bytes: u64, unit: u64) -> u64 {
    let (odd, cost) = (bytes % unit, claim.weighed_us(bytes));
    let (mut low, mut high) = (0, bytes / unit);
    while low < high {
        let middle = low + (high - low) / 2;
        if claim.weighed_us(odd + middle * unit) <= cost {
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

/// Gives what saves nothing evenly to all groups that may still grow.
fn spread_spare(claims: &[Claim], members: &[Vec<usize>], groups: &[Group], bytes: &mut [u64], memory_bytes: u64) {
    let mut spare = memory_bytes - bytes.iter().sum::<u64>();
    loop {
        let room = |members: &[usize], group: &Group| group.bytes_max - members.iter().map(|&i| bytes[i]).sum::<u64>();
        let rooms: Vec<u64> = members.iter().zip(groups).map(|(members, group)| room(members, group)).collect();
        let growing = || members.iter().zip(&rooms).filter(|&(members, &room)| !members.is_empty() && room > 0);
        let n = growing().count() as u64;
        if spare == 0 || n == 0 {
            return;
        }
        let each = spare.div_ceil(n);
        for (members, &room) in growing() {
            let extra = each.min(room).min(spare);
            hand_out(extra, claims, members, bytes);
            spare -= extra;
        }
    }
}

/// Gives `members` what saves none of them anything: in proportion to what they have, for who needs more may soon
/// need more yet. Where none has anything, to those that cost anything alike; where none does, to all.
fn hand_out(extra: u64, claims: &[Claim], members: &[usize], bytes: &mut [u64]) {
    let has: u64 = members.iter().map(|&i| bytes[i]).sum();
    let costs = members.iter().any(|&i| claims[i].cost_us_max > 0.0);
    let weight = |i: usize, bytes: &[u64]| match (has, costs) {
        (0, true) => u64::from(claims[i].cost_us_max > 0.0),
        (0, false) => 1,
        _ => bytes[i],
    };
    let (mut left, mut weight_left) = (extra, members.iter().map(|&i| weight(i, bytes)).sum::<u64>());
    for &i in members {
        let own = weight(i, bytes);
        // The last with any weight takes what is left, to the byte.
        let part = (u128::from(left) * u128::from(own)).checked_div(u128::from(weight_left)).unwrap_or(0) as u64;
        bytes[i] += part;
        (left, weight_left) = (left - part, weight_left - own);
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
            |(group, &(curve, cost_us_max)): (usize, &(&'a MissRatioCurve, f64))| Claim::new(curve, cost_us_max, group);
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

    /// Two tenants of two classes and 100 bytes. The first may have 50 and its expensive class uses 40 of them; the
    /// second is owed 30 that save nothing, and takes what spare there is.
    #[test]
    fn bounds_are_of_the_sum() {
        let (wants_40, flat) = (curve(&[(40, 0.0)]), curve(&[(1, 1.0)]));
        let claim = Claim::new;
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
            let claim = |(curve, &(_, cost_us_max, group)): (_, &(_, _, usize))| Claim::new(curve, cost_us_max, group);
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

    /// By group, its equal part: a byte more for each in turn, as long as there are bytes for all that may have one.
    fn parts_by_hand(case: &Case, memory_bytes: u64) -> Vec<u64> {
        let n_claims = |g: usize| case.claims.iter().filter(|claim| claim.2 == g).count();
        let is_asked = |g: usize| case.claims.iter().any(|claim| claim.2 == g && claim.1 > 0.0);
        let mut parts: Vec<u64> =
            (0..case.groups.len()).map(|g| if n_claims(g) > 0 { case.groups[g].bytes_min } else { 0 }).collect();
        let of = |parts: &[u64], level: u64| -> Vec<u64> {
            let part = |g: usize| match is_asked(g) {
                true => parts[g].max(level.min(case.groups[g].bytes_max)),
                false => parts[g],
            };
            (0..parts.len()).map(part).collect()
        };
        for level in 0..=memory_bytes {
            let next = of(&parts, level);
            if next.iter().sum::<u64>() > memory_bytes {
                break;
            }
            parts = next;
        }
        (0..parts.len()).map(|g| if is_asked(g) { parts[g] } else { 0 }).collect()
    }

    /// The least that claims cost together on `bytes`, tried.
    fn best_of(claims: &[Claim], bytes: u64) -> f64 {
        let [first, rest @ ..] = claims else { return 0.0 };
        (0..=bytes).map(|own| first.cost_us(own) + best_of(rest, bytes - own)).fold(f64::INFINITY, f64::min)
    }

    /// The least cost of all ways to divide the memory under which no group costs more than its limit, tried.
    fn fair_by_force(
        claims: &[Claim],
        groups: &[Group],
        limits_us: &[f64],
        memory_bytes: u64,
        given: &mut Vec<u64>,
        at: usize,
    ) -> f64 {
        if at == claims.len() {
            let of = |g: usize| claims.iter().zip(&*given).filter(move |(claim, _)| claim.group == g);
            let fits = |g: usize| {
                let (n, bytes) = of(g).fold((0, 0), |(n, sum), (_, &bytes)| (n + 1, sum + bytes));
                let cost_us: f64 = of(g).map(|(claim, &bytes)| claim.cost_us(bytes)).sum();
                let is_within = (groups[g].bytes_min..=groups[g].bytes_max).contains(&bytes);
                n == 0 || (is_within && cost_us <= limits_us[g] + 1e-9)
            };
            let cost_us = || claims.iter().zip(&*given).map(|(claim, &bytes)| claim.cost_us(bytes)).sum();
            return if (0..groups.len()).all(fits) { cost_us() } else { f64::INFINITY };
        }
        let mut least = f64::INFINITY;
        for bytes in 0..=memory_bytes {
            given[at] = bytes;
            least = least.min(fair_by_force(claims, groups, limits_us, memory_bytes - bytes, given, at + 1));
        }
        least
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

        /// Units larger than a byte: bounds hold to the byte, and the cost is no more than that of the best in whole
        /// units.
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

        /// Under the minimums of an equal split nobody costs more than on its part, which is what brute force makes
        /// of it; and of all plans of which that is true, tried one by one, the allocation is the cheapest.
        #[test]
        fn an_equal_split_is_the_least_that_anyone_gets(case in any_case(4, 3)) {
            let (curves, memory) = (case.curves(), case.memory_bytes());
            let claims = case.claims(&curves);
            let split = equal_split(&claims, &case.groups, memory, 1).unwrap();
            let parts = parts_by_hand(&case, memory);
            for (g, part) in parts.iter().enumerate() {
                let own: Vec<Claim> = claims.iter().filter(|claim| claim.group == g).cloned().collect();
                let least = if own.is_empty() { 0.0 } else { best_of(&own, *part) };
                prop_assert!((split.cost_us[g] - least).abs() < 1e-6, "group {g} on {part}: {least} {split:?}");
            }
            let got = allocate(&claims, &split.groups, memory, 1).unwrap();
            let cost_of = |bytes: &[u64], g: usize| -> f64 {
                claims.iter().zip(bytes).filter(|(claim, _)| claim.group == g).map(|(c, &b)| c.cost_us(b)).sum()
            };
            for g in 0..case.groups.len() {
                prop_assert!(cost_of(&got.bytes, g) <= split.cost_us[g] + 1e-6, "group {g}: {got:?} {split:?}");
            }
            let least = fair_by_force(&claims, &case.groups, &split.cost_us, memory, &mut vec![0; claims.len()], 0);
            prop_assert!((got.cost_us - least).abs() < 1e-6, "{} and by brute force {least}", got.cost_us);
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
            spread_spare(&claims, &members, &case.groups, &mut expected, case.memory_bytes());
            prop_assert_eq!(allocate(&claims, &case.groups, case.memory_bytes(), unit).unwrap().bytes, expected);
        }

        #[test]
        fn all_memory_is_given_out(memory in 0u64..10_000, unit in 1u64..500, n in 1usize..8, n_groups in 1usize..4) {
            let c = curve(&[(500, 0.3), (4_000, 0.1)]);
            let claims: Vec<Claim> =
                (0..n).map(|i| Claim::new(&c, i as f64, i % n_groups)).collect();
            let got = allocate(&claims, &vec![Group::UNBOUNDED; n_groups], memory, unit).unwrap();
            prop_assert_eq!(got.bytes.iter().sum::<u64>(), memory);
        }
    }
}
