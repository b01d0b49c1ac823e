//! `tenure simulate`: what each policy would make of a trace, at each memory size; and the ladder over many traces.

mod ladder;
mod tiers;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tenure_core::access::Access;
use tenure_core::decide::objective::Objective;
use tenure_core::policy::density::{self, Watched};
use tenure_core::policy::partitioned::{Partitioning, PlanConfig};
use tenure_core::units::format_bytes;
use tenure_plots::{LineChart, Page, Series};
use tenure_sim::costs::{CostSpec, PenaltyNoise};
use tenure_sim::grid::{GridConfig, Row, Survey, replay_in_memory, replay_stream};
use tenure_sim::policies::{POLICIES, PolicyName};
use tenure_sim::replay::ReplayConfig;
use tenure_sim::settings::{Settings, parse_watched};
use tenure_sim::tiers::workloads::Workload;
use tenure_sim::trace::{Sizes, TraceOptions, TraceReader};

use crate::bench::parse_setting;
use crate::trace_args::{
    Amount, OutputArgs, ThreadArgs, TraceArgs, parse_amount, parse_share, parse_size, parse_us, report_bad_lines,
    trace_name,
};

/// Replay a trace under several policies and memory sizes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The trace; `-` is standard input.
    #[arg(value_name = "TRACE", required_unless_present_any = ["ladder", "list", "workload"])]
    trace: Option<PathBuf>,

    /// A workload made here in place of a trace. Of two tiers: zipf:SKEW, scan:SKEW, two-phases, two-phases-4k,
    /// two-tenants, four-tenants or changing-tenants. For policies: twitter-tenants or loop-then-drift.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["trace", "ladder"],
          value_parser = |text: &str| text.parse::<Workload>())]
    workload: Option<Workload>,

    /// Policies, separated by commas; `--list` says which there are. Default: redis,predis,gdsf,bound; for the ladder
    /// nearly all.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = |text: &str| text.parse::<PolicyName>())]
    policies: Option<Vec<PolicyName>>,

    /// Memory sizes, separated by commas: bytes (64mb) or a share of the trace's footprint (10%). Default: 10%,50%; for
    /// --tiers no limit.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_memory)]
    memory: Vec<Memory>,

    #[command(flatten)]
    reading: TraceArgs,

    #[command(flatten)]
    counted: CountedArgs,

    /// What a hit costs, in µs.
    #[arg(long, value_name = "US", default_value = "20", value_parser = parse_us, allow_negative_numbers = true)]
    hit_us: f64,

    /// How far off the penalties are that policies hear of, each access by itself: standard deviation as a share of
    /// the penalty (50%), 57% at most. What misses cost stays what it is.
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse_noise)]
    penalty_noise: PenaltyNoise,

    /// Fetches take their time: who asks for a key while it is being fetched waits for the rest, and that is no miss.
    /// Needs times in the trace, and no policy that knows the future (belady, bound).
    #[arg(long, conflicts_with_all = ["ladder", "tiers"])]
    delayed_hits: bool,

    #[command(flatten)]
    policy: PolicyArgs,

    /// Seed of all that is random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    threads: ThreadArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    ladder: LadderArgs,

    /// List the policies.
    #[arg(long, conflicts_with = "html")]
    list: bool,

    #[command(flatten)]
    tiers: tiers::TierArgs,
}

/// What of the trace is counted, and in what pieces.
#[derive(Args, Debug)]
struct CountedArgs {
    /// Not counted at the beginning: a number of accesses, or a share of the trace (20%).
    #[arg(long, value_name = "ACCESSES|SHARE", default_value = "0", value_parser = parse_amount)]
    warmup: Amount,

    /// Accesses per window of the report over time, which plots then show beside latency by memory; 0 for none.
    #[arg(long, value_name = "ACCESSES", default_value_t = 0)]
    windows: u64,
}

/// How policies are set.
#[derive(Args, Debug)]
struct PolicyArgs {
    /// A setting of the module, as tenure.density-samples=16; may be given several times. On the ladder the window is
    /// a share of each trace.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, String)>,

    /// Tenure's own policy sees so many accesses in a row of so many, as on a server that is too busy to watch all:
    /// 10:50. It knows of misses always, and when each key was accessed last, as servers do.
    #[arg(long, value_name = "SEEN:OF", value_parser = parse_watched)]
    watched: Option<Watched>,

    /// Plan at most this often, in requests; the same as --set tenure.window-requests.
    #[arg(long, value_name = "REQUESTS", default_value_t = density::WINDOW_REQUESTS,
          value_parser = clap::value_parser!(u64).range(1..))]
    window_requests: u64,

    /// What makes a partition for predis: class (sixteen ranges of miss penalty) or tenant.
    #[arg(long, value_name = "KIND", default_value = "class", value_parser = parse_partitioning)]
    partitions: Partitioning,

    /// Classes by value size that each partition is divided into once more (predis, kredis); 1 = not at all.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    size_classes: u64,

    /// What plans are to reach (predis, kredis): penalty (the least in all), hits (the most), or fair (the least
    /// penalty that leaves no partition worse off than an equal split of the memory).
    #[arg(long, value_name = "NAME", default_value = "penalty", value_parser = parse_objective)]
    objective: Objective,

    /// The unit of allocation, in bytes; 0 = a thousandth of the memory.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_size)]
    granularity: u64,
}

/// The ladder: all policies over many traces.
#[derive(Args, Debug)]
struct LadderArgs {
    /// Compare all policies on all traces in DIR of at least 100,000 accesses, relative to redis. See
    /// docs/simulation.md.
    #[arg(id = "ladder", long = "ladder", value_name = "DIR", conflicts_with_all = ["trace", "html"])]
    folder: Option<PathBuf>,

    /// For the ladder: look at so many accesses of each trace at most.
    #[arg(long, value_name = "N", default_value_t = 600_000)]
    ladder_accesses: usize,

    /// For the ladder: windows per trace, for the policies that plan.
    #[arg(long, value_name = "N", default_value_t = 20)]
    ladder_windows: u64,

    /// For the ladder: whole traces, with windows as long as a server's (--window-requests).
    #[arg(long, requires = "ladder", conflicts_with_all = ["ladder_accesses", "ladder_windows"])]
    whole: bool,

    /// For the ladder: all misses cost the same.
    #[arg(long, requires = "ladder")]
    equal_costs: bool,
}

/// Memory sizes unless something else is asked for.
const MEMORY_DEFAULT: [Memory; 2] = [Memory::Share(0.1), Memory::Share(0.5)];

/// What is replayed unless something else is asked for.
const POLICIES_DEFAULT: &str = "redis,predis,gdsf,bound";
/// The same where fetches take their time.
const POLICIES_DELAYED: &str = "redis,gdsf,va-cdh,tenure";

/// Keys and reads of each tenant of a workload made here.
const WORKLOAD_KEYS: u64 = 50_000;
const WORKLOAD_READS: u64 = 500_000;

/// Memory in bytes or as a share of the footprint.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Memory {
    Bytes(u64),
    Share(f64),
}

impl Memory {
    /// In bytes, of a footprint.
    fn of(self, footprint_bytes: u64) -> u64 {
        match self {
            Memory::Bytes(bytes) => bytes,
            Memory::Share(share) => (share * footprint_bytes as f64).ceil() as u64,
        }
    }
}

fn parse_memory(text: &str) -> Result<Memory, String> {
    match parse_share(text) {
        Some(share) if share > 0.0 => Ok(Memory::Share(share)),
        _ => parse_size(text).ok().filter(|&bytes| bytes > 0).map(Memory::Bytes).ok_or_else(|| {
            format!("memory '{text}' is neither bytes above 0 (1048576, 64mb) nor a share above 0 (10%)")
        }),
    }
}

fn parse_noise(text: &str) -> Result<PenaltyNoise, String> {
    let noise = parse_share(text).and_then(|share| PenaltyNoise::new(share as f32));
    noise.ok_or_else(|| format!("noise '{text}' is not a share from 0% to 57%"))
}

fn parse_partitioning(text: &str) -> Result<Partitioning, String> {
    match text {
        "class" => Ok(Partitioning::PenaltyClass),
        "tenant" => Ok(Partitioning::Tenant),
        _ => Err(format!("partitions '{text}' are none of class, tenant")),
    }
}

fn parse_objective(text: &str) -> Result<Objective, String> {
    let named = Objective::ALL.into_iter().find(|objective| objective.name() == text);
    named.ok_or_else(|| format!("objective '{text}' is none of {}", Objective::ALL.map(Objective::name).join(", ")))
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the trace, and where; a plot that can't be written.
pub fn run(args: &Arguments) -> Result<()> {
    if args.list {
        return list(&mut std::io::stdout().lock());
    }
    if !args.tiers.tiers.is_empty() {
        return tiers::run(args);
    }
    if let Some(folder) = &args.ladder.folder {
        return ladder::run(args, folder);
    }
    let path = match (args.workload, &args.trace) {
        (Some(workload), _) => PathBuf::from(workload.to_string()),
        (None, path) => path.clone().context("a trace or a workload is needed")?,
    };
    let path = path.as_path();
    let (survey, rows) = match args.workload {
        Some(workload) => simulate_in_memory(args, &made(args, workload))?,
        None => simulate(args, path)?,
    };
    let counted = rows.iter().all(|row| row.report.requests > 0);
    ensure!(counted, "{}: no request is left to count behind the warm-up (--warmup)", path.display());
    if let Some(file) = &args.output.plot {
        plot(args, path, &rows, file)?;
    }
    if let Some(file) = &args.output.html {
        let mut table = Vec::new();
        write_table(&mut table, &rows)?;
        let page = Page::new(&format!("tenure simulate: {}", trace_name(path)));
        page.svg(&chart(args, path, &rows)?.svg()?).text(&String::from_utf8_lossy(&table)).save(file)?;
    }
    let mut out = std::io::stdout().lock();
    if args.output.json {
        let rows: Vec<Value> = rows.iter().map(json_row).collect();
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
        return Ok(());
    }
    if let Some(survey) = survey {
        let Survey { requests, distinct_keys, footprint_bytes, .. } = survey;
        let footprint = format_bytes(footprint_bytes);
        writeln!(out, "{}: {requests} requests, {distinct_keys} keys, footprint {footprint}", trace_name(path))?;
    }
    write_table(&mut out, &rows)
}

fn list(out: &mut impl Write) -> Result<()> {
    for entry in POLICIES {
        let name = entry.parameter.map_or_else(|| entry.name.to_owned(), |_| format!("{}[:N]", entry.name));
        let parameter = entry.parameter.map(|meaning| format!(" (N: {meaning})")).unwrap_or_default();
        writeln!(out, "{name:20} {}{parameter}", entry.about)?;
    }
    writeln!(out, "{:20} what no policy can beat: an offline lower bound on cost", "bound")?;
    Ok(())
}

/// How policies are set: by flags, then by the server's names.
fn settings(args: &Arguments) -> Result<Settings> {
    let mut settings = Settings::from(PlanConfig {
        partitioning: args.policy.partitions,
        window_requests: args.policy.window_requests,
        granularity_bytes: args.policy.granularity,
        objective: args.policy.objective,
        size_classes: args.policy.size_classes as usize,
        ..PlanConfig::default()
    });
    settings.watched = args.policy.watched;
    settings.delayed_hits = args.delayed_hits;
    args.policy.settings.iter().try_for_each(|(name, value)| settings.set(name, value)).map_err(anyhow::Error::msg)?;
    Ok(settings)
}

/// Surveys the trace where shares of it are asked for or its times matter, and replays it: from memory where the future
/// is needed or the trace can be read only once, else as a stream.
fn simulate(args: &Arguments, path: &Path) -> Result<(Option<Survey>, Vec<Row>)> {
    let needs_survey = args.delayed_hits
        || memory(args).iter().any(|memory| matches!(memory, Memory::Share(_)))
        || matches!(args.counted.warmup, Amount::Share(_));
    let once = path == Path::new("-");
    if policies(args)?.iter().any(|policy| policy.is_offline()) || (once && needs_survey) {
        let mut reader = TraceReader::open(path, args.reading.options())?;
        let accesses = reader.by_ref().collect::<Result<Arc<[Access]>, _>>()?;
        report_bad_lines(reader.name(), reader.n_bad());
        report_costs(args, &reader);
        return simulate_in_memory(args, &accesses);
    }
    let survey = if needs_survey { Some(Survey::of(TraceReader::open(path, args.reading.options())?)?) } else { None };
    let config = grid_config(args, survey.unwrap_or_default())?;
    let bar = survey.map_or_else(ProgressBar::hidden, |survey| progress_bar(survey.accesses));
    let mut reader = TraceReader::open(path, args.reading.options())?;
    let rows = replay_stream(&mut reader, &config, &|n| bar.inc(n))?;
    bar.finish_and_clear();
    report_bad_lines(reader.name(), reader.n_bad());
    report_costs(args, &reader);
    Ok((survey, rows))
}

fn simulate_in_memory(args: &Arguments, accesses: &Arc<[Access]>) -> Result<(Option<Survey>, Vec<Row>)> {
    let survey = Survey::of(accesses.iter().map(|access| Ok::<_, anyhow::Error>(*access)))?;
    let config = grid_config(args, survey)?;
    let bar = progress_bar(survey.accesses * (config.policies.len() * config.capacities_bytes.len()) as u64);
    let rows = replay_in_memory(accesses, &config, &|n| bar.inc(n))?;
    bar.finish_and_clear();
    Ok((Some(survey), rows))
}

/// The accesses of a workload made here, with the costs that were asked for; of two tiers misses cost nothing else.
fn made(args: &Arguments, workload: Workload) -> Arc<[Access]> {
    let options = args.reading.options();
    let asked = args.reading.costs.is_some() || args.tiers.tiers.is_empty();
    let costs = options.costs.filter(|_| asked).unwrap_or(CostSpec::ColumnOr(0.0));
    let mut accesses = workload.accesses(WORKLOAD_KEYS, WORKLOAD_READS, args.seed);
    for access in &mut accesses {
        access.penalty_us = costs.penalty_us(access.key, access.tenant, None);
        if let Sizes::Fixed(bytes) = options.sizes {
            access.size_bytes = bytes;
        }
    }
    accesses.into()
}

fn grid_config(args: &Arguments, survey: Survey) -> Result<GridConfig> {
    let warm_up = args.counted.warmup.of(survey.accesses);
    ensure!(!args.delayed_hits || survey.last_us > 0, "the trace has no times, which --delayed-hits needs");
    Ok(GridConfig {
        policies: policies(args)?,
        capacities_bytes: memory(args).iter().map(|memory| memory.of(survey.footprint_bytes)).collect(),
        replay: ReplayConfig {
            hit_us: args.hit_us,
            warm_up,
            window_accesses: args.counted.windows,
            noise: args.penalty_noise,
            delayed_hits: args.delayed_hits,
        },
        settings: settings(args)?,
        seed: args.seed,
        threads: args.threads.count(),
    })
}

/// The memory sizes that were asked for.
fn memory(args: &Arguments) -> &[Memory] {
    if args.memory.is_empty() { &MEMORY_DEFAULT } else { &args.memory }
}

/// The policies that were asked for.
fn policies(args: &Arguments) -> Result<Vec<PolicyName>> {
    let default = if args.delayed_hits { POLICIES_DELAYED } else { POLICIES_DEFAULT };
    let policies = args.policies.clone().map_or_else(|| named(default), Ok)?;
    let offline = policies.iter().find(|policy| args.delayed_hits && policy.is_offline());
    if let Some(policy) = offline {
        bail!("{policy} knows nothing of fetches that take their time: leave it out of --policies with --delayed-hits");
    }
    Ok(policies)
}

fn named(names: &str) -> Result<Vec<PolicyName>> {
    names.split(',').map(|name| name.parse().map_err(anyhow::Error::msg)).collect()
}

fn report_costs(args: &Arguments, reader: &TraceReader) {
    if !reader.tells_costs() {
        args.reading.report_costs(reader.name());
    }
}

/// The first accesses of a trace, and how many tenants they name.
fn load(path: &Path, options: TraceOptions, accesses_max: usize) -> Result<(Arc<[Access]>, usize)> {
    let mut reader = TraceReader::open(path, options)?;
    let accesses = reader.by_ref().take(accesses_max).collect::<Result<Arc<[Access]>, _>>()?;
    report_bad_lines(reader.name(), reader.n_bad());
    Ok((accesses, reader.tenant_names().len()))
}

/// A bar with the time left on standard error, where that is a terminal.
fn progress_bar(accesses: u64) -> ProgressBar {
    let bar = ProgressBar::new(accesses);
    let template = "{wide_bar} {percent}% of {len} accesses, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn json_row(row: &Row) -> Value {
    let report = &row.report;
    let mut value = json!({
        "policy": row.policy.to_string(),
        "memory_bytes": report.memory_bytes,
        "miss_ratio": report.miss_ratio,
        "read_miss_ratio": report.read_miss_ratio,
        "byte_miss_ratio": report.byte_miss_ratio,
        "delayed_hit_ratio": report.delayed_hit_ratio,
        "mean_latency_us": report.mean_latency_us,
        "penalty_us_total": report.penalty_us_total,
        "requests": report.requests,
        "evictions": report.evictions,
        "ns_per_request": report.ns_per_request,
    });
    if !row.windows.is_empty() {
        let window = |window: &tenure_sim::replay::WindowReport| {
            json!({
                "accesses": window.accesses,
                "miss_ratio": window.miss_ratio,
                "mean_latency_us": window.mean_latency_us,
                "target_bytes": window.snapshot.target_bytes,
                "used_bytes": window.snapshot.used_bytes,
                "sample_sizes": window.snapshot.sample_sizes,
            })
        };
        value["windows"] = row.windows.iter().map(window).collect();
    }
    value
}

fn write_table(out: &mut impl Write, rows: &[Row]) -> Result<()> {
    let are_delayed = rows.iter().any(|row| row.report.delayed_hit_ratio > 0.0);
    let delayed = |text: String| if are_delayed { format!("{text:>11}") } else { String::new() };
    writeln!(
        out,
        "{:18} {:>12} {:>10} {:>10}{} {:>13} {:>12} {:>11}",
        "policy",
        "memory",
        "miss ratio",
        "by bytes",
        delayed("delayed".to_owned()),
        "mean latency",
        "evictions",
        "ns/request"
    )?;
    for Row { policy, report, .. } in rows {
        let ns = report.ns_per_request.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
        writeln!(
            out,
            "{:18} {:>12} {:>10.4} {:>10.4}{} {:>10.1} µs {:>12} {:>11}",
            policy.to_string(),
            format_bytes(report.memory_bytes),
            report.miss_ratio,
            report.byte_miss_ratio,
            delayed(format!("{:.4}", report.delayed_hit_ratio)),
            report.mean_latency_us,
            report.evictions,
            ns
        )?;
    }
    Ok(())
}

fn plot(args: &Arguments, path: &Path, rows: &[Row], file: &Path) -> Result<()> {
    chart(args, path, rows)?.save(file)?;
    rows.iter().try_for_each(|row| plot_windows(path, row, file))
}

/// Mean latency by memory, a line for each policy.
fn chart(args: &Arguments, path: &Path, rows: &[Row]) -> Result<LineChart> {
    let mut series: Vec<Series> = Vec::new();
    for policy in policies(args)? {
        let own = rows.iter().filter(|row| row.policy == policy);
        let mut points: Vec<(f64, f64)> =
            own.map(|row| (row.report.memory_bytes as f64 / 1048576.0, row.report.mean_latency_us)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        series.push(Series { name: policy.to_string(), points });
    }
    Ok(LineChart {
        title: format!("{}: mean latency by policy and memory", trace_name(path)),
        x_label: "memory (MiB)".to_owned(),
        y_label: "mean latency (µs)".to_owned(),
        x_log: false,
        series,
    })
}

/// Allocation and K over time, for a policy that decides, into files named beside `file`.
fn plot_windows(path: &Path, row: &Row, file: &Path) -> Result<()> {
    let what = format!("{}: {} with {}", trace_name(path), row.policy, format_bytes(row.report.memory_bytes));
    type Column = fn(&tenure_core::policy::Snapshot) -> Vec<f64>;
    let charts: [(&str, &str, Column); 2] = [
        ("allocation", "target (MiB)", |s| s.target_bytes.iter().map(|&b| b as f64 / 1048576.0).collect()),
        ("K", "sampling size K", |s| s.sample_sizes.iter().map(|&k| f64::from(k)).collect()),
    ];
    for (name, y_label, column) in charts {
        let n = row.windows.iter().map(|window| column(&window.snapshot).len()).max().unwrap_or(0);
        let line = |i: usize| Series {
            name: if n == 1 { "all".to_owned() } else { format!("partition {i}") },
            points: row
                .windows
                .iter()
                .filter_map(|window| Some((window.accesses as f64, *column(&window.snapshot).get(i)?)))
                .collect(),
        };
        let series: Vec<Series> = (0..n).map(line).filter(|line| line.points.iter().any(|&(_, y)| y > 0.0)).collect();
        if series.is_empty() {
            continue;
        }
        let chart = LineChart {
            title: format!("{what}: {name} over time"),
            x_label: "accesses".to_owned(),
            y_label: y_label.to_owned(),
            x_log: false,
            series,
        };
        chart.save(beside(file, &format!("{}-{}-{name}", row.policy, row.report.memory_bytes)))?;
    }
    Ok(())
}

/// `plot.svg` and `dlru-100-K` give `plot-dlru-100-K.svg`.
fn beside(file: &Path, what: &str) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!("{stem}-{}.{extension}", what.replace(':', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes_are_read() {
        assert_eq!(parse_memory("10%"), Ok(Memory::Share(0.1)));
        assert_eq!(parse_memory("64mb"), Ok(Memory::Bytes(64 << 20)));
        assert!(["0", "0%", "-1%", "x"].iter().all(|text| parse_memory(text).is_err()));
    }

    #[test]
    fn plots_beside_a_plot_keep_its_extension() {
        assert_eq!(beside(Path::new("a/plot.svg"), "klru:5-K"), Path::new("a/plot-klru_5-K.svg"));
    }
}
