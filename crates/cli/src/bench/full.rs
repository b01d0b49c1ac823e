//! `tenure bench --workload full`: what the module costs where the cache is full.

use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use clap::Args;
use tenure_bench::full_cache::{FullCache, Load};
use tenure_bench::system::Setup;

use super::{Arguments, N_CONNECTIONS_NO_MISS, finish, only, parse, system_beside_stock};

/// Pairs of turns of each row, where nothing else is said.
const N_PAIRS: u32 = 60;

/// The options of the workload full, which other workloads refuse.
#[derive(Args)]
#[command(next_help_heading = "A full cache (--workload full)")]
pub struct FullArgs {
    /// What is sent: get-DEPTH (hits, the cache is 90 % full), miss-DEPTH (misses of it), set-DEPTH (new keys at the
    /// limit), hset-DEPTH (new hashes of many sizes) and mix-DEPTH (ten GETs for a SET, of four times the keys that
    /// fit), so many commands at once; large-get-DEPTH and so on of eight million keys in 4.6 GB. Default:
    /// get-16,get-1,miss-16,miss-1,set-16,set-1,hset-16,hset-1,mix-16,mix-1.
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', value_parser = parse::<Load>)]
    loads: Option<Vec<Load>>,

    /// How many pairs of turns two servers have of each load; of scale, how many pairs of servers are run of each size.
    /// Default: 60, of scale 1.
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

    /// How many pairs were asked for.
    pub fn pairs(&self) -> Option<u32> {
        self.pairs
    }

    /// Of those that were given, one that the workload scale has no use for.
    pub fn first_not_of_scale(&self) -> Option<&'static str> {
        self.loads.as_ref().map(|_| "--loads")
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
    refuse_others(arguments, "full")?;
    let full = FullCache {
        loads: arguments.full.loads.as_deref().unwrap_or(&Load::SMALL),
        n_keys: arguments.stream.records,
        n_warmup: arguments.stream.warmup,
        n_requests: arguments.stream.requests,
        n_connections: only(&arguments.connections, "connections", &arguments.stream.workload)?
            .unwrap_or(N_CONNECTIONS_NO_MISS) as usize,
        n_pairs: arguments.full.pairs.unwrap_or(N_PAIRS) as usize,
        seed: arguments.stream.seed,
        system: &system_beside_stock(arguments)?,
        setup,
    };
    let report = full.run(interrupted)?;
    finish(arguments, "full", &report.json()?, &report.table(), |_| Ok(()))
}

/// One server, no backend, and its own words for depth, pairs and memory.
///
/// # Errors
/// Options that the workload of that name, full or scale, has no use for.
pub fn refuse_others(arguments: &Arguments, name: &str) -> anyhow::Result<()> {
    let no_backend = "there is no backend: GETs hit";
    let refused = [
        (
            arguments.servers.cluster.is_some() || arguments.servers.routes.is_some(),
            "--cluster and --routes",
            "there is one server",
        ),
        (
            arguments.servers.memory.is_some(),
            "--memory",
            "the limit follows from the keys, of full --records, of scale --sizes",
        ),
        (
            arguments.backends.backend.is_some() || arguments.backends.backend_by.is_some(),
            "--backend and --backend-by",
            no_backend,
        ),
        (
            arguments.backends.slow_down.is_some() || arguments.restart.is_some(),
            "--slow-down and --restart",
            no_backend,
        ),
        (arguments.predict, "--predict", "there are no misses to predict"),
        (arguments.stream.period.is_some(), "--period", "that is of diurnal"),
        (arguments.pipeline != 1, "--pipeline", "full has --loads, and scale sends 16 at once"),
        (arguments.repetitions.is_some(), "--repetitions", "--pairs says how many pairs are run"),
    ];
    for (is_given, names, why) in refused {
        ensure!(!is_given, "{names} with the workload {name}: {why}");
    }
    Ok(())
}
