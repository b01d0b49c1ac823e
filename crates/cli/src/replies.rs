//! `tenure replies`: what is lost with a primary, and what it costs to lose nothing.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};
use tenure_bench::placement::Placement;
use tenure_bench::replies::Way;
use tenure_bench::replies::loss::{Loss, Scenario};
use tenure_bench::replies::price::Price;
use tenure_bench::report::default_folder;
use tenure_bench::system::Setup;
use tenure_servers::ServerBinary;

use crate::bench::{parse, parse_setting};
use crate::measuring::{print_report, told_to_stop, write_report};

/// The options of `tenure replies`.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Kills primaries in mid-run and counts the acknowledged writes that no replica has.
    Loss(LossArguments),
    /// Measures throughput and latency of writes by what their answers wait for.
    Price(PriceArguments),
}

/// What both share.
#[derive(Args)]
struct Common {
    /// The primary's core and that of clients and replicas, or none.
    #[arg(long, value_name = "SERVER,CLIENTS|none", value_parser = parse::<Placement>)]
    cpus: Option<Placement>,

    /// A setting of the module, as tenure.replies-replicas=2; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,

    /// Prints JSON in place of the table.
    #[arg(long)]
    json: bool,

    /// Where report.json and report.txt are written. Default: a new folder bench/runs/DATE-replies-….
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct LossArguments {
    /// What answers wait for: stock, async, sent, acked, wait (a WAIT behind each batch).
    #[arg(
        long,
        value_name = "WAY,WAY…",
        value_delimiter = ',',
        default_value = "async,sent,acked",
        value_parser = parse::<Way>
    )]
    ways: Vec<Way>,

    /// What goes wrong beside: plain (nothing), pipelined (nothing, but many writes at once), slowed (the replicas
    /// stand still before), one-dies, both-die (before; what is acknowledged afterwards is lost).
    #[arg(
        long,
        value_name = "NAME,NAME…",
        value_delimiter = ',',
        default_value = "plain,pipelined,slowed,one-dies,both-die",
        value_parser = parse::<Scenario>
    )]
    scenarios: Vec<Scenario>,

    /// How often each is tried.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,

    /// Clients.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: u32,

    /// Writes that each client sends at once where they are pipelined.
    #[arg(long, value_name = "DEPTH", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pipeline: u32,

    /// Of the times at which things go wrong.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct PriceArguments {
    /// What answers wait for, as for loss; the first is what the others are compared with.
    #[arg(
        long,
        value_name = "WAY,WAY…",
        value_delimiter = ',',
        default_value = "async,sent,acked,wait",
        value_parser = parse::<Way>
    )]
    ways: Vec<Way>,

    /// Numbers of clients.
    #[arg(
        long,
        value_name = "N,N…",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,128,256,512",
        value_parser = clap::value_parser!(u32).range(1..=5000)
    )]
    connections: Vec<u32>,

    /// How many writes each client sends at once.
    #[arg(
        long,
        value_name = "DEPTH,DEPTH…",
        value_delimiter = ',',
        default_value = "1,16",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pipeline: Vec<u32>,

    /// How long each is measured, in milliseconds.
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 2000,
        value_parser = clap::value_parser!(u64).range(10..=3_600_000)
    )]
    duration: u64,

    /// How often.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,

    #[command(flatten)]
    common: Common,
}

/// Runs `tenure replies`.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupted = told_to_stop(&[SIGINT, SIGTERM])?;
    match &arguments.what {
        What::Loss(arguments) => run_loss(arguments, &interrupted),
        What::Price(arguments) => run_price(arguments, &interrupted),
    }
}

fn run_loss(arguments: &LossArguments, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let setup = setup(&arguments.common)?;
    let loss = Loss {
        ways: &arguments.ways,
        scenarios: &arguments.scenarios,
        n_runs: arguments.runs as usize,
        n_connections: arguments.connections as usize,
        depth: arguments.pipeline as usize,
        seed: arguments.seed,
        setup: &setup,
    };
    let report = loss.run(interrupted)?;
    finish(&arguments.common, "replies-loss", &report.json()?, &report.table())
}

fn run_price(arguments: &PriceArguments, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let setup = setup(&arguments.common)?;
    let numbers = |given: &[u32]| -> Vec<usize> { given.iter().map(|n| *n as usize).collect() };
    let price = Price {
        ways: &arguments.ways,
        connections: &numbers(&arguments.connections),
        depths: &numbers(&arguments.pipeline),
        duration: Duration::from_millis(arguments.duration),
        n_repetitions: arguments.repetitions as usize,
        setup: &setup,
    };
    let report = price.run(interrupted)?;
    finish(&arguments.common, "replies-price", &report.json()?, &report.table())
}

fn setup(common: &Common) -> anyhow::Result<Setup> {
    Ok(Setup {
        binary: ServerBinary::installed()?,
        placement: common.cpus.unwrap_or_else(Placement::default_for_this_machine),
        settings: common.settings.clone(),
        environment: Vec::new(),
        cluster: None,
        clock_speed: 1,
        server_settings: Vec::new(),
    })
}

fn finish(common: &Common, name: &str, json: &str, table: &str) -> anyhow::Result<()> {
    let folder = common.out.clone().unwrap_or_else(|| default_folder(name));
    write_report(&folder, json, table)?;
    print_report(&folder, json, table, common.json)
}
