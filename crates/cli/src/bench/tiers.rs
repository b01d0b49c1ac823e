//! `tenure bench --workload tiers`: what two tiers of memory cost in a real server.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{bail, ensure};
use clap::Args;
use tenure_bench::system::Setup;
use tenure_bench::tiers::{Placing, TierPrice};
use tenure_bench::workload::tiers::{Share, TierAccesses, TierLoad};
use tenure_sim::tiers::System;
use tenure_sim::tiers::workloads::Workload as Accesses;

use super::{Arguments, N_CONNECTIONS_NO_MISS, N_REPETITIONS, Named, finish, only, parse, workload};

/// The options of the workload tiers, which other workloads refuse.
#[derive(Args)]
#[command(next_help_heading = "Two tiers of memory (--workload tiers)")]
pub struct TierArgs {
    /// Which keys are asked for: zipf:SKEW, scan:SKEW, two-phases, two-phases-4k, two-tenants, four-tenants,
    /// changing-tenants, or as a trace says, whose reads of keys that aren't there yet are SETs. Default:
    /// zipf:0.5,zipf:0.8,zipf:0.99,zipf:1.2,scan:0.99,two-phases.
    #[arg(long, value_name = "NAME|TRACE,…", value_delimiter = ',', value_parser = parse::<TierAccesses>)]
    accesses: Option<Vec<TierAccesses>>,

    /// How many of the requests are SETs; a trace says itself. Default: 5%.
    #[arg(long, value_name = "SHARE,SHARE…", value_delimiter = ',', value_parser = parse::<Share>)]
    updates: Option<Vec<Share>>,

    /// How much of the values' bytes may be fast. Default: 20%.
    #[arg(long, value_name = "SHARE,SHARE…", value_delimiter = ',', value_parser = parse::<Share>)]
    fast: Option<Vec<Share>>,

    /// The slow tier, as tenure.tier-slow takes it: anon, numa:NODE or file:PATH. Default: anon.
    #[arg(long, value_name = "PLACE")]
    tier: Option<String>,

    /// Size of all values, 257 to 1048576. Default: 1000, of two-phases-4k 4096, of a trace as it says (1000 where it
    /// doesn't), within these limits.
    #[arg(long, value_name = "BYTES")]
    value_bytes: Option<u32>,
}

impl TierArgs {
    /// An option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--accesses", self.accesses.is_some()),
            ("--updates", self.updates.is_some()),
            ("--fast", self.fast.is_some()),
            ("--tier", self.tier.is_some()),
            ("--value-bytes", self.value_bytes.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Every kind of accesses with every share of updates.
    fn loads(&self) -> anyhow::Result<Vec<TierLoad>> {
        let by_default = || Accesses::OF_TIERS[..6].iter().copied().map(TierAccesses::Made).collect();
        let all: Vec<TierAccesses> = self.accesses.clone().unwrap_or_else(by_default);
        let is_trace = |accesses: &TierAccesses| matches!(accesses, TierAccesses::Trace(_));
        ensure!(self.updates.is_none() || !all.iter().all(is_trace), "--updates: a trace says itself what is written");
        let updates = self.updates.clone().unwrap_or(vec![Share(0.05)]);
        let loads = |accesses: TierAccesses| {
            let updates = if is_trace(&accesses) { &updates[..1] } else { &updates };
            let load = |&updates| TierLoad { accesses: accesses.clone(), updates, value_bytes: self.value_bytes };
            updates.iter().map(load).collect::<Vec<_>>()
        };
        Ok(all.into_iter().flat_map(loads).collect())
    }
}

/// What places values, of those that are named.
fn systems(arguments: &Arguments) -> anyhow::Result<Vec<Placing>> {
    let of = |named: &Named| match named {
        Named::Tiers(system) => Placing::try_from(*system),
        Named::Cache(system) => {
            let names = System::ALL.map(System::name).join(", ");
            bail!("'{}' does not say how values are placed: tiers has {names}", system.label)
        }
    };
    match &arguments.servers.systems {
        None => Ok(vec![Placing::SDTMM]),
        Some(systems) => systems.iter().map(of).collect(),
    }
}

/// Runs it.
///
/// # Errors
/// Options of other workloads, and those of the run.
pub fn run(arguments: &Arguments, setup: &Setup, interrupted: &AtomicBool) -> anyhow::Result<()> {
    refuse_others(arguments)?;
    let (loads, systems) = (arguments.tiers.loads()?, systems(arguments)?);
    let price = TierPrice {
        options: &workload(arguments, 1),
        loads: &loads,
        fast: arguments.tiers.fast.as_deref().unwrap_or(&[Share(0.2)]),
        systems: &systems,
        tier: arguments.tiers.tier.as_deref().unwrap_or("anon"),
        depth: arguments.pipeline as usize,
        n_connections: only(&arguments.connections, "connections", &arguments.stream.workload)?
            .unwrap_or(N_CONNECTIONS_NO_MISS) as usize,
        n_pairs: arguments.repetitions.unwrap_or(N_REPETITIONS) as usize,
        setup,
    };
    let report = price.run(interrupted)?;
    let draw =
        |path: &dyn Fn(&str) -> PathBuf| report.charts().iter().try_for_each(|(name, chart)| chart.save(path(name)));
    finish(arguments, &format!("tiers-{}-deep", arguments.pipeline), &report.json()?, &report.table(), draw)
}

/// Everything fits on one server that nobody restarts.
fn refuse_others(arguments: &Arguments) -> anyhow::Result<()> {
    let misses = "tiers has no misses";
    let refused = [
        (
            arguments.servers.cluster.is_some() || arguments.servers.routes.is_some(),
            "--cluster and --routes",
            "tiers runs on one server",
        ),
        (arguments.servers.memory.is_some(), "--memory", "with tiers everything fits; --fast says how much is fast"),
        (
            arguments.backends.backend.is_some() || arguments.backends.backend_by.is_some(),
            "--backend and --backend-by",
            misses,
        ),
        (arguments.backends.slow_down.is_some() || arguments.restart.is_some(), "--slow-down and --restart", misses),
        (arguments.predict, "--predict", "tenure simulate --tiers says what the simulator makes of it"),
        (arguments.stream.period.is_some(), "--period", "that is of diurnal"),
    ];
    for (is_given, names, why) in refused {
        ensure!(!is_given, "{names}: {why}");
    }
    Ok(())
}
