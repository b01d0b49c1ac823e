//! `tenure bench --workload full`: what the module costs where the cache is full.

use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use clap::Args;
use tenure_bench::full_cache::{FullCache, Load};
use tenure_bench::system::Setup;

use super::{Arguments, N_CONNECTIONS_NO_MISS, finish, only, parse, system_beside_stock};

/// Alternating pairs of each row, where nothing else is said.
const N_PAIRS: u32 = 5;

/// The options of the workload full, which other workloads refuse.
#[derive(Args)]
#[command(next_help_heading = "A full cache (--workload full)")]
pub struct FullArgs {
    /// What is sent: get-DEPTH (hits, the cache is 90 % full) and set-DEPTH (new keys at the limit), so many commands
    /// at once; large-get-DEPTH and large-set-DEPTH of eight million keys in 4.6 GB. Default:
    /// get-16,get-1,set-16,set-1.
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', value_parser = parse::<Load>)]
    loads: Option<Vec<Load>>,

    /// How many pairs of servers are run of each load. Default: 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: Option<u32>,

    /// The server's setting of that name.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128))]
    io_threads: Option<u32>,
}

impl FullArgs {
    /// An option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--loads", self.loads.is_some()),
            ("--pairs", self.pairs.is_some()),
            ("--io-threads", self.io_threads.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// What the servers are told.
    pub fn server_settings(&self) -> Vec<(String, String)> {
        self.io_threads.map(|n| ("io-threads".to_string(), n.to_string())).into_iter().collect()
    }
}

/// Runs it.
///
/// # Errors
/// Options of other workloads, and those of the run.
pub fn run(arguments: &Arguments, setup: &Setup, interrupted: &AtomicBool) -> anyhow::Result<()> {
    refuse_others(arguments)?;
    let full = FullCache {
        loads: arguments.full.loads.as_deref().unwrap_or(&Load::SMALL),
        n_keys: arguments.records,
        n_warmup: arguments.warmup,
        n_requests: arguments.requests,
        n_connections: only(&arguments.connections, "connections", &arguments.workload)?
            .unwrap_or(N_CONNECTIONS_NO_MISS) as usize,
        n_pairs: arguments.full.pairs.unwrap_or(N_PAIRS) as usize,
        seed: arguments.seed,
        system: &system_beside_stock(arguments)?,
        setup,
    };
    let report = full.run(interrupted)?;
    finish(arguments, "full", &report.json()?, &report.table(), |_| Ok(()))
}

/// One server, no backend, and its own words for depth, pairs and memory.
fn refuse_others(arguments: &Arguments) -> anyhow::Result<()> {
    let no_backend = "full has no backend: its GETs hit";
    let refused = [
        (
            arguments.cluster.is_some() || arguments.routes.is_some(),
            "--cluster and --routes",
            "full runs on one server",
        ),
        (arguments.memory.is_some(), "--memory", "the limit of full follows from its keys; --records says how many"),
        (arguments.backend.is_some() || arguments.backend_by.is_some(), "--backend and --backend-by", no_backend),
        (arguments.slow_down.is_some() || arguments.restart.is_some(), "--slow-down and --restart", no_backend),
        (arguments.predict, "--predict", "full has no misses to predict"),
        (arguments.period.is_some(), "--period", "that is of diurnal"),
        (arguments.pipeline != 1, "--pipeline", "--loads says how many commands are sent at once"),
        (arguments.repetitions.is_some(), "--repetitions", "--pairs says how many pairs are run"),
    ];
    for (is_given, names, why) in refused {
        ensure!(!is_given, "{names}: {why}");
    }
    Ok(())
}
