//! `tenure bench`: reads the options, runs the comparison, prints and writes the report.
//!
//! Without options: YCSB A with half of its footprint as memory, in front of a MariaDB near and one 1 ms away, stock
//! against tenure. An update-heavy Zipfian mix over two backends of unequal distance is the smallest workload in
//! which both locality and penalty matter, and it is the one the papers report.

mod full;
mod scale;
mod tiers;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};
use tenure_bench::backend::{BackendSpec, MariaDbRoute, SlowDown};
use tenure_bench::client::Route;
use tenure_bench::comparison::{Comparison, MemoryLimit};
use tenure_bench::moment::Moment;
use tenure_bench::no_harm::NoHarm;
use tenure_bench::placement::Placement;
use tenure_bench::predict::can_predict;
use tenure_bench::report::{Report, default_folder, write_page};
use tenure_bench::resize::Resize;
use tenure_bench::slot_map::SlotMapRuns;
use tenure_bench::system::{Clustering, Setup, System};
use tenure_bench::workload::keys::Assignment;
use tenure_bench::workload::{Workload, WorkloadOptions};
use tenure_servers::ServerBinary;
use tenure_sim::trace::{Format, TenantSource, TraceOptions};

use crate::measuring::{print_report, told_to_stop, write_report};

/// The options of `tenure bench`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    stream: StreamArgs,

    #[command(flatten)]
    backends: BackendArgs,

    /// Stops and starts the server in mid-run and reports how soon it misses no more than before; at half of the
    /// measured requests unless told otherwise (--restart=30%).
    #[arg(
        long,
        value_name = "SHARE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "50%",
        conflicts_with = "predict",
        value_parser = parse::<Moment>
    )]
    restart: Option<Moment>,

    #[command(flatten)]
    servers: ServerArgs,

    /// How often each system is run; of no-miss, how many turns each server has (default there: 50), of tiers how many
    /// pairs of each row. Default: 3.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,

    /// In how many turns each system measures its requests, while the others stand still: what the machine does for
    /// seconds falls on all alike then. But what the module does by the clock (tenure.window-seconds) comes after fewer
    /// requests, the more systems there are. 1: one system after the other. Not for clusters, restarts and diurnal.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: u32,

    /// Clients that ask at once. Default: 4, of tenants 8, of diurnal 16, of full, scale, no-miss and tiers 50; of
    /// slots several, 1,4,16,64,256.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: Option<Vec<u32>>,

    /// Commands that each connection sends at once; for no-miss and tiers only.
    #[arg(long, value_name = "DEPTH", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pipeline: u32,

    #[command(flatten)]
    report: ReportArgs,

    /// Halves and doubles maxmemory of a running server with Tenure, and compares what TENURE.MRC had predicted with
    /// what came.
    #[arg(long, conflicts_with_all = ["predict", "restart", "slow_down", "cluster"])]
    resize: bool,

    /// Replays the same requests through the simulator with the measured times, and prints its prediction beside each
    /// result, and how much of the gap between the first system and the offline bound each closes.
    #[arg(long)]
    predict: bool,

    #[command(flatten)]
    tiers: tiers::TierArgs,

    #[command(flatten)]
    full: full::FullArgs,

    #[command(flatten)]
    scale: scale::ScaleArgs,
}

/// What is asked for.
#[derive(clap::Args)]
struct StreamArgs {
    /// ycsb-a … ycsb-f, tenants, diurnal (a tenant asked for in peaks beside one always asked for), full (what a full
    /// cache costs), scale (what keys cost as they grow), no-miss, slots (of clusters, what it is worth that clients
    /// remember slots), tiers (what two tiers of memory cost), or the path of a trace.
    #[arg(long, value_name = "NAME|TRACE", default_value = "ycsb-a", value_parser = parse::<Workload>)]
    workload: Workload,

    /// Keys that exist at the start; not for traces; of tiers, of each tenant. Default: 100000, of tenants 60000, of
    /// diurnal 20000.
    #[arg(long, value_name = "N")]
    records: Option<usize>,

    /// Requests before the measurement. Default: 300000, of diurnal one period, of no-miss and tiers 200000, of a
    /// trace 30 %.
    #[arg(long, value_name = "N")]
    warmup: Option<usize>,

    /// Measured requests. Default: 300000, of diurnal three periods, of no-miss 2000000, of tiers 400000, of a trace
    /// the rest.
    #[arg(long, value_name = "N")]
    requests: Option<usize>,

    /// Of diurnal, the time from one peak to the next; its first half is the peak. Default: 30, which makes two
    /// minutes per run.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    period: Option<u32>,

    /// Of all random draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Of a trace, its format: tenure, csv, oracleGeneral, twitter, msr or monitor. Default: told by its beginning.
    #[arg(long, value_name = "NAME")]
    format: Option<Format>,

    /// Of a trace, where tenants come from: column, column:N, prefix:CHARACTER, hash:N or none.
    #[arg(long, value_name = "SOURCE", default_value = "column")]
    tenants: TenantSource,
}

/// Where misses go.
#[derive(clap::Args)]
struct BackendArgs {
    /// Where misses go: delay:US,US…, sqlite, sqlite:US,US… (additional delays), mariadb, mariadb:local,
    /// mariadb:remote. Default: mariadb; for the workload tenants the delays 1, 2, 4 … 16384 µs.
    #[arg(long, value_name = "SPEC", value_parser = parse::<BackendSpec>)]
    backend: Option<BackendSpec>,

    /// Makes one backend slower in mid-run: 1:1000@40% adds 1000 µs to each fetch from the second backend (they count
    /// from 0) once 40 % of the measured requests are done.
    #[arg(long, value_name = "BACKEND:US@SHARE", conflicts_with = "predict", value_parser = parse::<SlowDown>)]
    slow_down: Option<SlowDown>,

    /// By what a key's backend is found: key (its hash) or tenant. Default: key, for tenants tenant.
    #[arg(long, value_name = "key|tenant", value_parser = parse::<Assignment>)]
    backend_by: Option<Assignment>,

    /// Rows of 1 KB in each database.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: u64,
}

/// What answers: servers, how they are set and where they run.
#[derive(clap::Args)]
struct ServerArgs {
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', value_parser = parse::<Named>, help = systems_help())]
    systems: Option<Vec<Named>>,

    /// Memory for the keys: a share of the workload's footprint (50%) or bytes (64mb). Default: 50%.
    #[arg(long, value_name = "SIZE,SIZE…", value_delimiter = ',', value_parser = parse::<MemoryLimit>)]
    memory: Option<Vec<MemoryLimit>>,

    /// On a cluster of so many primaries without replicas, which share the memory; of slots several, default 1,2,3.
    #[arg(long, value_name = "PRIMARIES", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100),
          conflicts_with_all = ["predict", "restart"])]
    cluster: Option<Vec<u32>>,

    /// How clients find a key's node in a cluster: library (crate redis, which asks for the slot map), remember (what
    /// redirects say), default-node (one node, and where it redirects to). Default: library; of slots all.
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', value_parser = parse::<Route>)]
    routes: Option<Vec<Route>>,

    /// The server's core and that of clients and backends, or none.
    #[arg(long, value_name = "SERVER,CLIENTS|none", value_parser = parse::<Placement>)]
    cpus: Option<Placement>,

    /// How many times as fast the servers' wall clock runs: their LRU clock ticks once a second, too coarse for a run
    /// of seconds. Of a trace that took an hour and is replayed in a minute, 60.
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clock_speed: u32,

    /// A setting of the module, as tenure.window-requests=10000; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,
}

/// What is told of it, and where.
#[derive(clap::Args)]
struct ReportArgs {
    /// Into how many stretches the measured requests are cut to show latency and miss ratio over the run.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10000))]
    bins: u32,

    /// Prints JSON in place of the table.
    #[arg(long)]
    json: bool,

    /// Where report.json, report.txt and the plots are written. Default: a new folder bench/runs/DATE-WORKLOAD.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A system that is named.
#[derive(Clone, Debug, PartialEq)]
enum Named {
    /// A server with a policy of eviction, or alone.
    Cache(System),
    /// What places values in two tiers of memory.
    Tiers(tenure_sim::tiers::System),
}

impl std::str::FromStr for Named {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let cache = text.parse::<System>().map(Named::Cache);
        let named = cache.or_else(|error| text.parse().map(Named::Tiers).map_err(|_: String| error));
        named.with_context(|| format!("of tiers: {}", tier_systems()))
    }
}

/// Enough clients to overlap waiting, few enough that no core is saturated by hits.
const N_CONNECTIONS: u32 = 4;
/// These wait most of the time.
const N_CONNECTIONS_TENANTS: u32 = 8;
/// Enough that a request rarely waits for another's miss.
const N_CONNECTIONS_DIURNAL: u32 = 16;
/// What the papers' stress test uses.
const N_CONNECTIONS_NO_MISS: u32 = 50;
/// The paper has 1 to 512, each power of two.
const N_CONNECTIONS_SLOTS: [u32; 5] = [1, 4, 16, 64, 256];
const N_PRIMARIES_SLOTS: [u32; 3] = [1, 2, 3];
const N_REPETITIONS: u32 = 3;
const N_PAIRS: u32 = 50;

/// Runs `tenure bench`.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let interrupted = told_to_stop(&[SIGINT, SIGTERM])?;
    let setup = Setup {
        binary: ServerBinary::installed()?,
        placement: arguments.servers.cpus.unwrap_or_else(Placement::default_for_this_machine),
        settings: arguments.servers.settings.clone(),
        environment: Vec::new(),
        cluster: None,
        clock_speed: arguments.servers.clock_speed,
        server_settings: arguments.full.server_settings(),
    };
    if arguments.stream.workload != Workload::Tiers
        && let Some(name) = arguments.tiers.first_given()
    {
        bail!("{name} is of the workload tiers");
    }
    let of_full = match arguments.stream.workload {
        Workload::Full => None,
        Workload::Scale => arguments.full.first_not_of_scale(),
        _ => arguments.full.first_given(),
    };
    if let Some(name) = of_full {
        bail!("{name} is of the workload full");
    }
    if arguments.stream.workload != Workload::Scale
        && let Some(name) = arguments.scale.first_given()
    {
        bail!("{name} is of the workload scale");
    }
    let is_comparison = match arguments.stream.workload {
        Workload::Full | Workload::Scale | Workload::Tiers | Workload::NoMiss | Workload::Slots => false,
        _ => !arguments.resize,
    };
    ensure!(arguments.turns == 1 || is_comparison, "--turns is of comparisons of systems before a backend");
    match arguments.stream.workload {
        _ if arguments.resize => run_resize(arguments, &setup),
        Workload::Full => full::run(arguments, &setup, &interrupted),
        Workload::Scale => scale::run(arguments, &setup, &interrupted),
        Workload::Tiers => tiers::run(arguments, &setup, &interrupted),
        Workload::NoMiss => run_no_harm(arguments, &setup, &interrupted),
        Workload::Slots => run_slot_map(arguments, &setup, &interrupted),
        _ => run_comparison(arguments, &Setup { cluster: clustering(arguments)?, ..setup }, &interrupted),
    }
}

/// The one of several values that is given, where only one makes sense.
fn only<T: Copy>(values: &Option<Vec<T>>, name: &str, workload: &Workload) -> anyhow::Result<Option<T>> {
    match values.as_deref() {
        None => Ok(None),
        Some([only]) => Ok(Some(*only)),
        Some(_) => bail!("--{name} takes one value with the workload {workload}; slots takes several"),
    }
}

fn clustering(arguments: &Arguments) -> anyhow::Result<Option<Clustering>> {
    let n_primaries = only(&arguments.servers.cluster, "cluster", &arguments.stream.workload)?;
    let route = only(&arguments.servers.routes, "routes", &arguments.stream.workload)?;
    ensure!(n_primaries.is_some() || route.is_none(), "--routes is of clusters: --cluster says of how many primaries");
    let route = route.unwrap_or(Route::Library);
    Ok(n_primaries.map(|n_primaries| Clustering { n_primaries: n_primaries as usize, route }))
}

fn run_slot_map(arguments: &Arguments, setup: &Setup, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let system = match arguments.servers.systems {
        None => System::STOCK,
        Some(_) => match <[System; 1]>::try_from(systems(arguments)?) {
            Ok([system]) => system,
            Err(systems) => bail!("slots runs one system, not {}", systems.len()),
        },
    };
    let numbers = |given: &Option<Vec<u32>>, default: &[u32]| -> Vec<usize> {
        given.as_deref().unwrap_or(default).iter().map(|&n| n as usize).collect()
    };
    let stream = workload(arguments, 1).generate()?;
    let runs = SlotMapRuns {
        stream: &stream,
        n_primaries: &numbers(&arguments.servers.cluster, &N_PRIMARIES_SLOTS),
        routes: arguments.servers.routes.as_deref().unwrap_or(&Route::ALL),
        n_connections: &numbers(&arguments.connections, &N_CONNECTIONS_SLOTS),
        system: &system,
        setup,
    };
    let report = runs.run(interrupted)?;
    let draw =
        |path: &dyn Fn(&str) -> PathBuf| report.charts().iter().try_for_each(|(name, chart)| chart.save(path(name)));
    finish(arguments, "slots", &report.json()?, &report.table(), draw)
}

fn run_comparison(arguments: &Arguments, setup: &Setup, interrupted: &AtomicBool) -> anyhow::Result<()> {
    let backend = arguments.backends.backend.clone().unwrap_or_else(|| match arguments.stream.workload {
        Workload::Tenants => BackendSpec::Delay((0..15).map(|power| f64::from(1 << power)).collect()),
        _ => BackendSpec::MariaDb(vec![MariaDbRoute::Local, MariaDbRoute::Remote]),
    });
    let n_connections = match arguments.stream.workload {
        Workload::Tenants => N_CONNECTIONS_TENANTS,
        Workload::Diurnal => N_CONNECTIONS_DIURNAL,
        _ => N_CONNECTIONS,
    };
    let systems = systems(arguments)?;
    let stream = workload(arguments, backend.len()).generate()?;
    if arguments.predict {
        can_predict(&systems, &arguments.servers.settings, &stream)?;
    }
    let memory = arguments.servers.memory.as_deref().unwrap_or(&[MemoryLimit::Share(0.5)]);
    let comparison = Comparison {
        stream: &stream,
        backend: &backend,
        slow_down: arguments.backends.slow_down,
        n_rows: arguments.backends.rows,
        systems: &systems,
        memory,
        n_repetitions: arguments.repetitions.unwrap_or(N_REPETITIONS) as usize,
        n_turns: arguments.turns as usize,
        n_connections: only(&arguments.connections, "connections", &arguments.stream.workload)?.unwrap_or(n_connections)
            as usize,
        n_bins: arguments.report.bins as usize,
        restart: arguments.restart,
        setup,
    };
    let compared = comparison.run(interrupted)?;
    let mut report = Report::new(&comparison, arguments.stream.seed, &compared);
    if arguments.predict {
        report.add_predictions(&comparison, &compared)?;
    }
    let name = match (arguments.restart, setup.cluster) {
        (Some(_), _) => format!("{}-restart", stream.name),
        (None, Some(cluster)) => format!("{}-cluster-{}", stream.name, cluster.n_primaries),
        (None, None) => stream.name.clone(),
    };
    let folder = arguments.report.out.clone().unwrap_or_else(|| default_folder(&name));
    report.write(&folder)?;
    print_report(&folder, &report.json()?, &report.table(), arguments.report.json)
}

fn run_resize(arguments: &Arguments, setup: &Setup) -> anyhow::Result<()> {
    let delays_us = match (&arguments.backends.backend, &arguments.stream.workload) {
        (Some(BackendSpec::Delay(delays_us)), _) => delays_us.clone(),
        (Some(_), _) => bail!("--resize takes delays alone as its backends: --backend delay:200"),
        (None, Workload::Tenants) => (0..15).map(|power| f64::from(1 << power)).collect(),
        (None, _) => vec![200.0],
    };
    let share = match arguments.servers.memory.as_deref() {
        None => 0.5,
        Some([MemoryLimit::Share(share)]) => *share,
        Some(_) => bail!("--resize takes one share of the footprint as its memory: --memory 50%"),
    };
    let systems = systems(arguments)?;
    let system =
        systems.iter().find(|system| system.has_module()).context("--resize needs a system with the module")?;
    let stream = workload(arguments, delays_us.len()).generate()?;
    let depth = arguments.pipeline as usize;
    let report = Resize { stream: &stream, share, depth, delays_us: &delays_us, system, setup }.run()?;
    let name = format!("{}-resize", stream.name);
    finish(arguments, &name, &serde_json::to_string_pretty(&report)?, &report.table(), |_| Ok(()))
}

fn run_no_harm(arguments: &Arguments, setup: &Setup, interrupted: &AtomicBool) -> anyhow::Result<()> {
    if arguments.servers.cluster.is_some() {
        bail!("no-miss runs on one server; the workload slots runs on clusters");
    }
    if arguments.restart.is_some() || arguments.backends.slow_down.is_some() {
        bail!("no-miss has no misses and no backend: --restart and --slow-down are for the other workloads");
    }
    let system = &system_beside_stock(arguments)?;
    let stream = workload(arguments, 1).generate()?;
    let no_harm = NoHarm {
        stream: &stream,
        depth: arguments.pipeline as usize,
        n_connections: only(&arguments.connections, "connections", &arguments.stream.workload)?
            .unwrap_or(N_CONNECTIONS_NO_MISS) as usize,
        n_pairs: arguments.repetitions.unwrap_or(N_PAIRS) as usize,
        system,
        setup,
    };
    let report = no_harm.run(interrupted)?;
    finish(arguments, &format!("no-miss-{}-deep", arguments.pipeline), &report.json()?, &report.table(), |_| Ok(()))
}

/// Writes a report where it belongs, and prints it. `draw` saves the plots, of which it is told where one of a name
/// goes; once for each kind of file.
fn finish(
    arguments: &Arguments,
    name: &str,
    json: &str,
    table: &str,
    draw: impl Fn(&dyn Fn(&str) -> PathBuf) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let folder = arguments.report.out.clone().unwrap_or_else(|| default_folder(name));
    write_report(&folder, json, table)?;
    for extension in ["svg", "png"] {
        draw(&|name| folder.join(format!("{name}.{extension}")))?;
    }
    write_page(&folder, &format!("tenure bench: {name}"), table)?;
    print_report(&folder, json, table, arguments.report.json)
}

/// The system with the module, where the workload compares one with stock.
fn system_beside_stock(arguments: &Arguments) -> anyhow::Result<System> {
    let mut modules = systems(arguments)?;
    modules.retain(System::has_module);
    match <[System; 1]>::try_from(modules) {
        Ok([system]) => Ok(system),
        Err(modules) => bail!(
            "{} compares stock with one system that has the module, not with {}",
            arguments.stream.workload,
            modules.len()
        ),
    }
}

/// What the user names, or what shows the workload's point.
fn systems(arguments: &Arguments) -> anyhow::Result<Vec<System>> {
    let by_default: &[&str] = match arguments.stream.workload {
        _ if arguments.restart.is_some() => &["tenure", "tenure-warm"],
        Workload::Diurnal => &["stock", "tenure", "tenure-sleep"],
        _ => &["stock", "tenure"],
    };
    let of = |named: &Named| match named {
        Named::Cache(system) => Ok(system.clone()),
        Named::Tiers(system) => bail!("system '{system}' is of the workload tiers; others have {}", System::names()),
    };
    match &arguments.servers.systems {
        Some(systems) => systems.iter().map(of).collect(),
        None => by_default.iter().map(|name| name.parse()).collect(),
    }
}

fn workload(arguments: &Arguments, n_backends: usize) -> WorkloadOptions {
    WorkloadOptions {
        seed: arguments.stream.seed,
        n_keys: arguments.stream.records,
        n_warmup: arguments.stream.warmup,
        n_requests: arguments.stream.requests,
        period_s: arguments.stream.period.map(f64::from),
        assignment: arguments.backends.backend_by,
        trace: TraceOptions {
            format: arguments.stream.format,
            tenants: arguments.stream.tenants.clone(),
            ..TraceOptions::default()
        },
        ..WorkloadOptions::new(arguments.stream.workload.clone(), n_backends)
    }
}

fn systems_help() -> String {
    format!(
        "The systems, of which the first is what the others are compared with: {}. Default: stock,tenure; of diurnal \
         stock,tenure,tenure-sleep; with --restart tenure,tenure-warm. Of tiers, what places values: {}. Default: \
         sdtmm",
        System::names(),
        tier_systems()
    )
}

fn tier_systems() -> String {
    tenure_sim::tiers::System::ALL.map(|system| system.name()).join(", ")
}

/// What the library reads, with its errors as clap wants them.
pub fn parse<T: std::str::FromStr<Err = anyhow::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: anyhow::Error| format!("{error:#}"))
}

/// A setting of the module, as the user gives it.
pub fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if name.starts_with("tenure.") => Ok((name.to_string(), value.to_string())),
        _ => Err(format!("'{text}' is not NAME=VALUE with a name that begins with tenure.")),
    }
}
