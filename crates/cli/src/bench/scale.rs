//! `tenure bench --workload scale`: what the module costs as keys grow.

use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use clap::Args;
use tenure_bench::scale::Scale;
use tenure_bench::system::Setup;

use super::full::refuse_others;
use super::{Arguments, N_CONNECTIONS_NO_MISS, finish, only, system_beside_stock};

/// Two, since a slope needs as many.
const SIZES: [usize; 2] = [2_000_000, 20_000_000];
const N_PAIRS: u32 = 1;

/// The options of the workload scale, which other workloads refuse.
#[derive(Args)]
#[command(next_help_heading = "Caches of several sizes (--workload scale)")]
pub struct ScaleArgs {
    /// How many keys the caches have, 570 bytes each. Default: 2000000,20000000; that takes 14 GB.
    #[arg(long, value_name = "KEYS,KEYS…", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(10_000..=200_000_000))]
    sizes: Option<Vec<u32>>,
}

impl ScaleArgs {
    /// An option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        self.sizes.as_ref().map(|_| "--sizes")
    }
}

/// Runs it.
///
/// # Errors
/// Options of other workloads, and those of the run.
pub fn run(arguments: &Arguments, setup: &Setup, interrupted: &AtomicBool) -> anyhow::Result<()> {
    refuse_others(arguments, "scale")?;
    ensure!(
        arguments.stream.records.is_none(),
        "--records with the workload scale: --sizes says how many keys there are"
    );
    ensure!(arguments.stream.warmup.is_none(), "--warmup with the workload scale: it has its own");
    let given = arguments.scale.sizes.as_ref();
    let sizes = given.map_or(SIZES.to_vec(), |sizes| sizes.iter().map(|&n_keys| n_keys as usize).collect());
    let scale = Scale {
        sizes: &sizes,
        n_requests: arguments.stream.requests,
        n_connections: only(&arguments.connections, "connections", &arguments.stream.workload)?
            .unwrap_or(N_CONNECTIONS_NO_MISS) as usize,
        n_pairs: arguments.full.pairs().unwrap_or(N_PAIRS) as usize,
        seed: arguments.stream.seed,
        system: &system_beside_stock(arguments)?,
        setup,
    };
    let report = scale.run(interrupted)?;
    finish(arguments, "scale", &report.json()?, &report.table(), |_| Ok(()))
}
