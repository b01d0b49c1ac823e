//! The ladder: every policy on many traces, costs, sizes and memory sizes, as mean latency relative to `redis`.
//!
//! A *rung* is one trace under one cost scheme, with one kind of sizes, at one share of its footprint. Three cost
//! schemes: two backends of 120 and 1000 µs by the key's hash; four tenants of 200, 400, 1000 and 2000 µs (the
//! trace's own tenants in turn, where it has at least four, else by the key's hash); fifteen of 2^0 … 2^14 µs by the
//! key's hash. Sizes are 1 KiB throughout, or the trace's with log-normal ones (50 B to 64 KiB) where it has none.
//! What costs alike is also a tenant, for the policies that partition by tenant. Where costs are to be equal, there
//! is one scheme. The first fifth of a trace warms up; the bound and the clairvoyant are told the future. A policy
//! that knows no costs is replayed once for all cost schemes. Cost: about 5 minutes of two cores for 18 traces.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tenure_core::access::{Access, Op};
use tenure_core::error::ConfigError;
use tenure_core::policy::cache::Outcome;
use tenure_core::policy::partitioned::PlanConfig;
use tenure_core::units::TenantId;

use crate::bound::bound;
use crate::costs::{PenaltyNoise, backend_of};
use crate::grid::{Survey, on_threads};
use crate::offline::Offline;
use crate::policies::{PolicyName, Setup};
use crate::replay::Tally;
use crate::settings::Settings;

/// What is compared by default, and in this order.
pub const POLICIES: &str = "redis,lru,klru:5,random,lfu,dlru,s3fifo,sieve,predis,predis-paper,kredis,hyperbolic:5,\
                            hyperbolic,hyperbolic-size,wtinylfu,tinylfu-sampled,camp,lhd,3l-cache,gdsf,gdsf-sampled,\
                            tenure,belady";

/// Memory sizes, in percent of the footprint.
pub const MEMORY_PERCENT: [u64; 4] = [10, 25, 50, 75];

/// The first so many percent of a trace warm up.
const WARM_UP_PERCENT: usize = 20;

/// Units that memory is planned in, unless told otherwise: a quarter of the module's, because windows are short here
/// and a plan takes time in proportion to their square.
const UNITS: u64 = 250;

/// What every miss costs where costs are equal, in µs.
const EQUAL_US: f32 = 1000.0;

/// Size of every value where sizes are fixed, in bytes.
const FIXED_BYTES: u32 = 1024;

/// How a ladder is run.
#[derive(Clone, Debug)]
pub struct LadderConfig {
    /// Policies beside the bound; `redis` must be one of them.
    pub policies: Vec<PolicyName>,
    /// How the policies that have settings are set; their window is a share of the trace, see `windows`.
    pub settings: Settings,
    /// Windows per trace; `None`: of as many requests as the settings say.
    pub windows: Option<u64>,
    /// All misses cost the same, in place of the three schemes.
    pub equal_costs: bool,
    /// What a hit costs, in µs.
    pub hit_us: f64,
    /// How far off penalties are of which policies hear.
    pub noise: PenaltyNoise,
    /// Seed of all that is random.
    pub seed: u64,
    /// Threads, at least 1.
    pub threads: usize,
}

/// A cost scheme.
#[derive(Clone, Debug)]
struct Costs {
    name: &'static str,
    penalties_us: Vec<f32>,
    /// Whether the trace's own tenants decide, where there are enough.
    by_tenant: bool,
}

impl Costs {
    fn all(equal: bool) -> Vec<Costs> {
        if equal {
            return vec![Costs { name: "equal", penalties_us: vec![EQUAL_US], by_tenant: false }];
        }
        let fifteen = (0..15).map(|i| (1_u32 << i) as f32).collect();
        vec![
            Costs { name: "two backends", penalties_us: vec![120.0, 1000.0], by_tenant: false },
            Costs { name: "four tenants", penalties_us: vec![200.0, 400.0, 1000.0, 2000.0], by_tenant: true },
            Costs { name: "fifteen", penalties_us: fifteen, by_tenant: false },
        ]
    }

    /// Who `access` belongs to, and what its miss costs.
    fn assign(&self, access: &Access, n_tenants: usize) -> (TenantId, f32) {
        let n = self.penalties_us.len();
        let group = match self.by_tenant && n_tenants >= n {
            true => access.tenant.0 as usize % n,
            false => backend_of(access.key, n),
        };
        (TenantId(group as u16), self.penalties_us[group])
    }
}

/// One policy on one rung.
#[derive(Clone, Debug)]
pub struct Rung {
    /// The trace's name.
    pub trace: String,
    /// The cost scheme's name.
    pub costs: &'static str,
    /// `fixed` or `variable`.
    pub sizes: &'static str,
    /// Memory, in percent of the footprint.
    pub memory_percent: u64,
    /// The policy.
    pub policy: PolicyName,
    /// Over reads and writes, in µs.
    pub mean_latency_us: f64,
    /// Over reads and writes.
    pub miss_ratio: f64,
    /// Time to replay one access, in ns; `None` for the bound.
    pub ns_per_request: Option<f64>,
}

/// A trace with one kind of sizes.
struct Sized {
    sizes: &'static str,
    accesses: Arc<[Access]>,
    footprint_bytes: u64,
    /// Under each cost scheme, with the future.
    costed: Vec<Arc<Offline>>,
}

/// Replays one trace up the ladder. `accesses` carry the trace's sizes, or drawn ones, and its own tenants, of which
/// there are `n_tenants`.
///
/// # Errors
/// A policy's parameter out of its range.
pub fn climb(
    trace: &str,
    accesses: &[Access],
    n_tenants: usize,
    config: &LadderConfig,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Rung>, ConfigError> {
    let costs = Costs::all(config.equal_costs);
    let fixed = accesses.iter().map(|access| Access { size_bytes: FIXED_BYTES, ..*access }).collect();
    let sized = [("fixed", fixed), ("variable", Arc::from(accesses))]
        .map(|(sizes, accesses): (_, Arc<[Access]>)| prepare(sizes, accesses, n_tenants, &costs));
    let climber = Climber { trace, n_tenants, config, costs: &costs };
    let mut jobs = Vec::new();
    for sized in &sized {
        for percent in MEMORY_PERCENT {
            for &policy in &config.policies {
                match policy.knows_costs() {
                    true => jobs.extend((0..costs.len()).map(|cost| (sized, percent, policy, Some(cost)))),
                    false => jobs.push((sized, percent, policy, None)),
                }
            }
        }
    }
    let (next, rungs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<(), ConfigError> {
        while let Some(&(sized, percent, policy, cost)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut done = climber.replay(sized, percent, policy, cost)?;
            progress(accesses.len() as u64);
            rungs.lock().expect("no thread panicked with it").append(&mut done);
        }
        Ok(())
    };
    on_threads(config.threads, &work)?;
    let mut rungs = rungs.into_inner().expect("no thread panicked with it");
    rungs.extend(sized.iter().flat_map(|sized| climber.bounds(sized)));
    Ok(rungs)
}

/// How many replays of the whole trace [`climb`] makes: what its progress adds up to, in accesses, per access of the
/// trace.
pub fn replays_per_trace(config: &LadderConfig) -> u64 {
    let costs = Costs::all(config.equal_costs).len() as u64;
    let each: u64 = config.policies.iter().map(|policy| if policy.knows_costs() { costs } else { 1 }).sum();
    each * 2 * MEMORY_PERCENT.len() as u64
}

fn prepare(sizes: &'static str, accesses: Arc<[Access]>, n_tenants: usize, costs: &[Costs]) -> Sized {
    let survey =
        Survey::of(accesses.iter().map(|access| Ok::<_, ()>(*access))).expect("a trace in memory has no errors");
    let costed = |costs: &Costs| {
        let assigned = accesses.iter().map(|access| {
            let (tenant, penalty_us) = costs.assign(access, n_tenants);
            Access { tenant, penalty_us, ..*access }
        });
        Arc::new(Offline::new(assigned.collect()))
    };
    let costed = costs.iter().map(costed).collect();
    Sized { sizes, accesses, footprint_bytes: survey.footprint_bytes, costed }
}

struct Climber<'a> {
    trace: &'a str,
    n_tenants: usize,
    config: &'a LadderConfig,
    costs: &'a [Costs],
}

impl Climber<'_> {
    fn warm_up(&self, sized: &Sized) -> usize {
        sized.accesses.len() * WARM_UP_PERCENT / 100
    }

    /// Replays a policy under one cost scheme, or, where it knows no costs, under all at once.
    fn replay(
        &self,
        sized: &Sized,
        percent: u64,
        policy: PolicyName,
        cost: Option<usize>,
    ) -> Result<Vec<Rung>, ConfigError> {
        let offline = &sized.costed[cost.unwrap_or(0)];
        let window_requests = match self.config.windows {
            Some(windows) => (sized.accesses.len() as u64 / windows.max(1)).max(1000),
            None => self.config.settings.plan.window_requests,
        };
        let capacity_bytes = sized.footprint_bytes * percent / 100;
        let granularity_bytes = match self.config.settings.plan.granularity_bytes {
            0 => capacity_bytes / UNITS,
            set => set,
        };
        let mut cache = policy.build(&Setup {
            capacity_bytes,
            parameter: None,
            seed: self.config.seed,
            settings: Settings {
                plan: PlanConfig { window_requests, granularity_bytes, ..self.config.settings.plan },
                ..self.config.settings
            },
            offline: Some(Arc::clone(offline)),
        })?;
        let warm_up = self.warm_up(sized);
        let mut tally = Tally::default();
        let mut penalties_us = vec![0.0_f64; self.costs.len()];
        let began = Instant::now();
        for (i, access) in offline.accesses.iter().enumerate() {
            let outcome = cache.access(&self.config.noise.heard(access, i as u64));
            if i < warm_up {
                continue;
            }
            tally.count(access, outcome);
            if cost.is_none() && outcome == Outcome::Miss && access.op == Op::Read {
                // The scheme that the accesses carry may have renumbered their tenants, so the trace's own access is
                // asked.
                let own = &sized.accesses[i];
                for (sum, costs) in penalties_us.iter_mut().zip(self.costs) {
                    *sum += f64::from(costs.assign(own, self.n_tenants).1);
                }
            }
        }
        let ns = began.elapsed().as_nanos() as f64 / offline.accesses.len().max(1) as f64;
        let rung = |(index, penalty_us): (usize, f64)| {
            let report = Tally { penalty_us, ..tally.clone() }.report(0, 0, self.config.hit_us, Some(ns));
            self.rung(sized, index, percent, policy, &report)
        };
        Ok(match cost {
            Some(index) => vec![rung((index, tally.penalty_us))],
            None => penalties_us.into_iter().enumerate().map(rung).collect(),
        })
    }

    fn bounds(&self, sized: &Sized) -> Vec<Rung> {
        let capacities = MEMORY_PERCENT.map(|percent| sized.footprint_bytes * percent / 100);
        let one = |(index, offline): (usize, &Arc<Offline>)| {
            let reports = bound(offline, &capacities, self.warm_up(sized), self.config.hit_us);
            let rung = |(report, percent)| self.rung(sized, index, percent, PolicyName::BOUND, &report);
            reports.into_iter().zip(MEMORY_PERCENT).map(rung).collect::<Vec<_>>()
        };
        sized.costed.iter().enumerate().flat_map(one).collect()
    }

    fn rung(
        &self,
        sized: &Sized,
        cost: usize,
        memory_percent: u64,
        policy: PolicyName,
        report: &crate::replay::Report,
    ) -> Rung {
        Rung {
            trace: self.trace.to_owned(),
            costs: self.costs[cost].name,
            sizes: sized.sizes,
            memory_percent,
            policy,
            mean_latency_us: report.mean_latency_us,
            miss_ratio: report.miss_ratio,
            ns_per_request: report.ns_per_request,
        }
    }
}

/// What a policy came to over many rungs. Latencies are relative to `redis` on the same rung.
#[derive(Clone, Debug, PartialEq)]
pub struct LadderRow {
    /// The policy.
    pub policy: PolicyName,
    /// Geometric mean of relative latency.
    pub relative_mean: f64,
    /// Lowest relative latency.
    pub relative_best: f64,
    /// Highest relative latency.
    pub relative_worst: f64,
    /// How much of what could be saved is saved: relative savings added up, over those of the bound.
    pub gap_closed: f64,
    /// Mean time to replay one access, in ns; `None` for the bound.
    pub ns_per_request: Option<f64>,
    /// How many rungs that is over.
    pub rungs: usize,
}

/// Sums up the rungs that `takes`, policy by policy in the order of `policies`, the bound last.
pub fn standings(rungs: &[Rung], policies: &[PolicyName], takes: impl Fn(&Rung) -> bool) -> Vec<LadderRow> {
    let taken: Vec<&Rung> = rungs.iter().filter(|rung| takes(rung)).collect();
    let key = |rung: &Rung| (rung.trace.clone(), rung.costs, rung.sizes, rung.memory_percent);
    let of = |policy: PolicyName| -> Vec<&Rung> {
        let mut own: Vec<&Rung> = taken.iter().copied().filter(|rung| rung.policy == policy).collect();
        own.sort_by_key(|rung| key(rung));
        own
    };
    let redis = of("redis".parse().expect("redis is a policy"));
    let relative = |own: &[&Rung]| -> Vec<f64> {
        assert_eq!(own.len(), redis.len(), "every policy is on every rung");
        own.iter().zip(&redis).map(|(own, redis)| own.mean_latency_us / redis.mean_latency_us).collect()
    };
    let saved = |relative: &[f64]| relative.iter().map(|r| 1.0 - r).sum::<f64>();
    let could_be_saved = saved(&relative(&of(PolicyName::BOUND)));
    let stand = |&policy: &PolicyName| {
        let own = of(policy);
        let relative = relative(&own);
        let n = relative.len().max(1) as f64;
        let ns: Option<f64> = own.iter().map(|rung| rung.ns_per_request).sum();
        LadderRow {
            policy,
            relative_mean: (relative.iter().map(|r| r.ln()).sum::<f64>() / n).exp(),
            relative_best: relative.iter().copied().fold(f64::INFINITY, f64::min),
            relative_worst: relative.iter().copied().fold(0.0, f64::max),
            gap_closed: saved(&relative) / could_be_saved,
            ns_per_request: ns.map(|ns| ns / n),
            rungs: relative.len(),
        }
    };
    policies.iter().chain(&[PolicyName::BOUND]).map(stand).collect()
}

/// The cost schemes' names, in order.
pub fn cost_names(equal: bool) -> impl Iterator<Item = &'static str> {
    Costs::all(equal).into_iter().map(|costs| costs.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::units::KeyHash;

    #[test]
    fn every_policy_stands_on_every_rung_and_the_bound_below_all() {
        let key = |i: u64| KeyHash::of_number(i.wrapping_mul(i) % 1_009 % (1 + i % 199));
        let accesses: Vec<Access> = (0..8_000).map(|i| Access::read(key(i), 50 + (i % 900) as u32)).collect();
        let policies: Vec<PolicyName> =
            "redis,random,gdsf,predis,belady".split(',').map(|p| p.parse().unwrap()).collect();
        let config = LadderConfig {
            policies: policies.clone(),
            settings: Settings::default(),
            windows: Some(8),
            equal_costs: false,
            hit_us: 20.0,
            noise: PenaltyNoise::default(),
            seed: 1,
            threads: 2,
        };
        let rungs = climb("t", &accesses, 1, &config, &|_| {}).unwrap();
        assert_eq!(rungs.len(), 6 * 3 * 2 * 4);
        let all = standings(&rungs, &policies, |_| true);
        assert_eq!(all[0].relative_mean, 1.0);
        assert_eq!(all[0].gap_closed, 0.0);
        let bound = all.last().unwrap();
        assert_eq!((bound.gap_closed, bound.rungs), (1.0, 24));
        assert!(all.iter().all(|s| s.relative_best >= bound.relative_best && s.relative_mean >= bound.relative_mean));
        let equal = LadderConfig { equal_costs: true, windows: None, ..config };
        assert_eq!(climb("t", &accesses, 1, &equal, &|_| {}).unwrap().len(), 6 * 2 * 4);
        assert_eq!(replays_per_trace(&equal), 5 * 2 * 4);
        let few = standings(&rungs, &policies, |rung| rung.memory_percent == 10 && rung.costs == "fifteen");
        assert_eq!(few[0].rungs, 2);
    }
}
