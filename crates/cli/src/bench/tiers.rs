//! `tenure bench --workload tiers`: what two tiers of memory cost in a real server.

use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use clap::Args;
use tenure_bench::system::Setup;
use tenure_bench::tiers::TierPrice;
use tenure_bench::workload::tiers::{Share, TierLoad};
use tenure_sim::tiers::workloads::Workload as Accesses;

use super::{Arguments, N_CONNECTIONS_NO_MISS, N_REPETITIONS, finish, only, parse, system_beside_stock, workload};

/// The options of the workload tiers, which other workloads refuse.
#[derive(Args)]
#[command(next_help_heading = "Two tiers of memory (--workload tiers)")]
pub struct TierArgs {
    /// Which keys are asked for: zipf:SKEW, scan:SKEW, two-phases, two-phases-4k, two-tenants, four-tenants, changing-tenants.
    /// Default: zipf:0.5,zipf:0.8,zipf:0.99,zipf:1.2,scan:0.99,two-phases.
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', value_parser = |text: &str| text.parse::<Accesses>())]
    accesses: Option<Vec<Accesses>>,

    /// How many of the requests are SETs. Default: 5%.
    #[arg(long, value_name = "SHARE,SHARE…", value_delimiter = ',', value_parser = parse::<Share>)]
    updates: Option<Vec<Share>>,

    /// How much of the values' bytes may be fast. Default: 20%.
    #[arg(long, value_name = "SHARE,SHARE…", value_delimiter = ',', value_parser = parse::<Share>)]
    fast: Option<Vec<Share>>,

    /// The slow tier, as tenure.tier-slow takes it: anon, numa:NODE or file:PATH. Default: anon.
    #[arg(long, value_name = "PLACE")]
    tier: Option<String>,

    /// Size of all values, 257 to 1048576. Default: 1000, of two-phases-4k 4096.
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
    fn loads(&self) -> Vec<TierLoad> {
        let by_default = || Accesses::ALL[..6].to_vec();
        let (all, value_bytes) = (self.accesses.clone().unwrap_or_else(by_default), self.value_bytes);
        let updates = self.updates.clone().unwrap_or(vec![Share(0.05)]);
        let with_updates = |accesses| updates.iter().map(move |&updates| TierLoad { accesses, updates, value_bytes });
        all.into_iter().flat_map(with_updates).collect()
    }
}

/// Runs it.
///
/// # Errors
/// Options of other workloads, and those of the run.
pub fn run(arguments: &Arguments, setup: &Setup, interrupted: &AtomicBool) -> anyhow::Result<()> {
    refuse_others(arguments)?;
    let loads = arguments.tiers.loads();
    let price = TierPrice {
        options: &workload(arguments, 1),
        loads: &loads,
        fast: arguments.tiers.fast.as_deref().unwrap_or(&[Share(0.2)]),
        tier: arguments.tiers.tier.as_deref().unwrap_or("anon"),
        depth: arguments.pipeline as usize,
        n_connections: only(&arguments.connections, "connections", &arguments.workload)?
            .unwrap_or(N_CONNECTIONS_NO_MISS) as usize,
        n_pairs: arguments.repetitions.unwrap_or(N_REPETITIONS) as usize,
        system: &system_beside_stock(arguments)?,
        setup,
    };
    let report = price.run(interrupted)?;
    finish(arguments, &format!("tiers-{}-deep", arguments.pipeline), &report.json()?, &report.table())
}

/// Everything fits on one server that nobody restarts.
fn refuse_others(arguments: &Arguments) -> anyhow::Result<()> {
    let misses = "tiers has no misses";
    let refused = [
        (
            arguments.cluster.is_some() || arguments.routes.is_some(),
            "--cluster and --routes",
            "tiers runs on one server",
        ),
        (arguments.memory.is_some(), "--memory", "with tiers everything fits; --fast says how much is fast"),
        (arguments.backend.is_some() || arguments.backend_by.is_some(), "--backend and --backend-by", misses),
        (arguments.slow_down.is_some() || arguments.restart.is_some(), "--slow-down and --restart", misses),
        (arguments.predict, "--predict", "tenure simulate --tiers says what the simulator makes of it"),
        (arguments.period.is_some(), "--period", "that is of diurnal"),
    ];
    for (is_given, names, why) in refused {
        ensure!(!is_given, "{names}: {why}");
    }
    Ok(())
}
