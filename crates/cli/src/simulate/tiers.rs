//! `tenure simulate --tiers`: what two tiers of memory would make of a trace, of a workload made here, or of a folder
//! of traces.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use tenure_core::access::Access;
use tenure_core::tiers::Tier;
use tenure_core::tiers::division::Division;
use tenure_core::tiers::insertion::InsertionPoints;
use tenure_core::tiers::marks::Marks;
use tenure_core::tiers::worth::Speeds;
use tenure_core::units::format_bytes;
use tenure_plots::{LineChart, Series};
use tenure_sim::grid::Survey;
use tenure_sim::tiers::workloads::Workload;
use tenure_sim::tiers::{Prices, System, TierConfig, TierRow, simulate};

use super::{Arguments, Memory, load, made, parse_memory, progress_bar};
use crate::trace_args::{trace_name, traces_in};

/// Two tiers of memory.
#[derive(Args, Debug)]
#[command(next_help_heading = "Two tiers of memory")]
pub struct TierArgs {
    /// Simulate two tiers: the fast one's sizes, separated by commas, in bytes or as a share (20%) of the memory.
    /// Without --memory the slow tier holds all there is, and shares are of the footprint. See docs/simulation.md.
    #[arg(
        long,
        value_name = "SIZE,…",
        value_delimiter = ',',
        value_parser = parse_memory,
        conflicts_with_all = ["policies", "windows", "html"]
    )]
    pub(super) tiers: Vec<Memory>,

    /// What places values, separated by commas: sdtmm, worth, naive, demotion-only, all-fast, all-slow. Default: all of
    /// them.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        requires = "tiers",
        value_parser = |text: &str| text.parse::<System>()
    )]
    systems: Option<Vec<System>>,

    /// How tenants share the fast tier (of sdtmm and worth), separated by commas: free, guided (by miss ratio curves)
    /// or equal.
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        requires = "tiers",
        default_value = "free",
        value_parser = parse_division
    )]
    division: Vec<Division>,

    /// Parts of sdtmm, worth and demotion-only to do without, separated by commas: points (values begin at the head of
    /// their tier's order), marks (no memory is kept free) or newcomers (who came last is found by the walk alone).
    #[arg(long, value_name = "PART,…", value_delimiter = ',', requires = "tiers")]
    without: Vec<Part>,

    /// The slow tier: how many times the fast one's latency, and its bandwidth divided by what.
    #[arg(
        long,
        value_name = "TIMES,DIVISOR",
        requires = "tiers",
        default_value = "2,2.4",
        value_parser = parse_slow_tier
    )]
    slow_tier: (f32, f32),

    /// Values met in a tier for each that leaves it, 1 to 64.
    #[arg(
        long,
        value_name = "K",
        requires = "tiers",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    tier_samples: u32,
}

/// What can be left out, to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Points,
    Marks,
    Newcomers,
}

fn parse_division(text: &str) -> Result<Division, String> {
    let named = Division::ALL.into_iter().find(|division| division.name() == text);
    named.ok_or_else(|| format!("division '{text}' is none of {}", Division::ALL.map(Division::name).join(", ")))
}

fn parse_slow_tier(text: &str) -> Result<(f32, f32), String> {
    let number = |text: &str| text.trim().parse::<f32>().ok().filter(|n| n.is_finite() && *n >= 1.0);
    let parsed = text.split_once(',').and_then(|(times, divisor)| Some((number(times)?, number(divisor)?)));
    parsed.ok_or_else(|| format!("slow tier '{text}' is not two numbers of at least 1, as in 2,2.4"))
}

/// Traces of a folder that are shorter are left out, as on the ladder of policies.
const ACCESSES_MIN: usize = 100_000;

/// What was replayed, and what came of it.
struct Replayed {
    name: String,
    footprint_bytes: u64,
    rows: Vec<TierRow>,
}

/// Runs it.
///
/// # Errors
/// What is wrong with a trace, and where; a plot that can't be written.
pub fn run(args: &Arguments) -> Result<()> {
    let replayed = match (&args.ladder.folder, args.workload, &args.trace) {
        (Some(folder), ..) => folder_and_workloads(args, folder)?,
        (None, Some(workload), _) => vec![of_workload(args, workload)?],
        (None, None, Some(path)) => {
            let accesses = load(path, args.reading.options(), usize::MAX)?.0;
            vec![replay(args, trace_name(path), &accesses)?]
        }
        (None, None, None) => bail!("a trace or a workload is needed"),
    };
    if let Some(file) = &args.output.plot {
        plot(&replayed, file)?;
    }
    let mut out = std::io::stdout().lock();
    if args.output.json {
        let rows: Vec<Value> = replayed.iter().flat_map(|one| one.rows.iter().map(|row| json_row(one, row))).collect();
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
        return Ok(());
    }
    replayed.iter().try_for_each(|one| write_table(&mut out, one))?;
    if replayed.len() > 1 { write_means(&mut out, &replayed) } else { Ok(()) }
}

fn of_workload(args: &Arguments, workload: Workload) -> Result<Replayed> {
    replay(args, workload.to_string(), &made(args, workload))
}

fn folder_and_workloads(args: &Arguments, folder: &Path) -> Result<Vec<Replayed>> {
    let mut replayed = Vec::new();
    for path in traces_in(folder)? {
        let accesses = load(&path, args.reading.options(), args.ladder.ladder_accesses)?.0;
        if accesses.len() >= ACCESSES_MIN {
            replayed.push(replay(args, trace_name(&path), &accesses)?);
        }
    }
    for workload in Workload::OF_TIERS {
        replayed.push(of_workload(args, workload)?);
    }
    Ok(replayed)
}

fn replay(args: &Arguments, name: String, accesses: &Arc<[Access]>) -> Result<Replayed> {
    let survey = Survey::of(accesses.iter().map(|access| Ok::<_, anyhow::Error>(*access)))?;
    let configs = configs(args, survey.footprint_bytes)?;
    let jobs = configs.iter().filter(|config| config.system.has_tiers()).count() as u64 + 1;
    let bar = progress_bar(survey.accesses * jobs);
    let warm_up = args.counted.warmup.of(survey.accesses) as usize;
    let rows = simulate(|| Box::new(accesses.iter()), &configs, warm_up, args.threads.count(), &|n| bar.inc(n));
    bar.finish_and_clear();
    Ok(Replayed { name, footprint_bytes: survey.footprint_bytes, rows })
}

/// All systems at each size of the fast tier, with each division where that matters.
fn configs(args: &Arguments, footprint_bytes: u64) -> Result<Vec<TierConfig>> {
    let memory_bytes = match args.memory.as_slice() {
        [] => None,
        [memory] => Some(memory.of(footprint_bytes)),
        _ => bail!("--tiers takes one --memory, both tiers together"),
    };
    let (times, divisor) = args.tiers.slow_tier;
    let fast = Speeds::default();
    let speeds = Speeds {
        slow_latency_ns: fast.fast_latency_ns * times,
        slow_bytes_per_ns: fast.fast_bytes_per_ns / divisor,
        ..fast
    };
    let mut base = TierConfig::default();
    for part in &args.tiers.without {
        match part {
            Part::Points => base.points = InsertionPoints::HEAD,
            Part::Marks => base.marks = Marks { low: 0.0, high: 0.0 },
            Part::Newcomers => base.newcomers = 0,
        }
    }
    let mut configs = Vec::new();
    for size in &args.tiers.tiers {
        let fast_bytes = size.of(memory_bytes.unwrap_or(footprint_bytes));
        let slow_bytes = memory_bytes.map_or(Some(u64::MAX), |bytes| bytes.checked_sub(fast_bytes));
        let slow_bytes = slow_bytes.context("the fast tier is larger than the memory of both")?;
        for system in args.tiers.systems.clone().unwrap_or(System::ALL.to_vec()) {
            let divides = matches!(system, System::Sdtmm | System::Worth);
            for &division in if divides { args.tiers.division.as_slice() } else { &[Division::Free] } {
                configs.push(TierConfig {
                    system,
                    division,
                    fast_bytes,
                    slow_bytes,
                    speeds,
                    prices: Prices { hit_us: args.hit_us, ..Prices::default() },
                    window_requests: args.policy.window_requests.max(1),
                    sample_size: args.tiers.tier_samples,
                    seed: args.seed,
                    ..base
                });
            }
        }
    }
    Ok(configs)
}

fn json_row(one: &Replayed, row: &TierRow) -> Value {
    let TierRow { config, counts, throughput } = row;
    let unlimited = config.slow_bytes == u64::MAX;
    json!({
        "trace": one.name,
        "system": config.system.name(),
        "division": config.division.name(),
        "memory_bytes": if unlimited { Value::Null } else { json!(config.fast_bytes + config.slow_bytes) },
        "fast_bytes": config.fast_bytes,
        "fast_hit_ratio": counts.hit_ratio(Tier::Fast),
        "slow_hit_ratio": counts.hit_ratio(Tier::Slow),
        "read_miss_ratio": counts.read_miss_ratio(),
        "miss_ratio": counts.miss_ratio(),
        "requests": counts.requests,
        "promotions": counts.promotions,
        "demotions": counts.demotions,
        "evictions": counts.evictions[0] + counts.evictions[1],
        "moves_per_request": counts.moves_per_request(),
        "bytes_moved": counts.moved_bytes,
        "keys_met_per_request": counts.met_per_request(),
        "mean_latency_us_modelled": counts.mean_latency_us(&config.prices),
        "server_ns_modelled": counts.server_ns(&config.prices),
        "throughput_modelled": throughput,
    })
}

fn write_table(out: &mut impl Write, one: &Replayed) -> Result<()> {
    writeln!(
        out,
        "{}, footprint {}; latency and throughput are modelled",
        one.name,
        format_bytes(one.footprint_bytes)
    )?;
    let head = ["fast tier", "fast", "slow", "miss", "up", "down", "met", "latency", "throughput"];
    let [fast, ratios @ ..] = head;
    write!(out, "{:20} {fast:>11}", "system")?;
    ratios.iter().try_for_each(|name| write!(out, " {name:>8}"))?;
    writeln!(out)?;
    for TierRow { config, counts, throughput } in &one.rows {
        let name = match config.division {
            Division::Free => config.system.to_string(),
            division => format!("{}, {}", config.system, division.name()),
        };
        let per_request = |n: u64| n as f64 / counts.requests.max(1) as f64;
        writeln!(
            out,
            "{name:20} {:>11} {:>8.4} {:>8.4} {:>8.4} {:>8.4} {:>8.4} {:>8.3} {:>8.2} {throughput:>8.3}",
            format_bytes(config.fast_bytes),
            counts.hit_ratio(Tier::Fast),
            counts.hit_ratio(Tier::Slow),
            counts.read_miss_ratio(),
            per_request(counts.promotions),
            per_request(counts.demotions),
            counts.met_per_request(),
            counts.mean_latency_us(&config.prices),
        )?;
    }
    writeln!(out)?;
    Ok(())
}

/// The means over all traces, by the order of the rows, which is the same for each.
fn write_means(out: &mut impl Write, replayed: &[Replayed]) -> Result<()> {
    writeln!(out, "mean of {}", replayed.len())?;
    writeln!(
        out,
        "{:20} {:>11} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "system", "fast tier", "fast", "up", "down", "met", "throughput"
    )?;
    let n = replayed.len() as f64;
    for (i, first) in replayed[0].rows.iter().enumerate() {
        let mean = |of: &dyn Fn(&TierRow) -> f64| replayed.iter().map(|one| of(&one.rows[i])).sum::<f64>() / n;
        let per_request =
            |of: fn(&TierRow) -> u64| mean(&move |row: &TierRow| of(row) as f64 / row.counts.requests.max(1) as f64);
        let share = first.config.fast_bytes as f64 / replayed[0].footprint_bytes.max(1) as f64;
        writeln!(
            out,
            "{:20} {:>10.0}% {:>8.4} {:>8.4} {:>8.4} {:>8.3} {:>10.3}",
            first.config.system.name(),
            100.0 * share,
            mean(&|row| row.counts.hit_ratio(Tier::Fast)),
            per_request(|row| row.counts.promotions),
            per_request(|row| row.counts.demotions),
            mean(&|row| row.counts.met_per_request()),
            mean(&|row| row.throughput),
        )?;
    }
    Ok(())
}

/// Fast-tier hit ratio by the fast tier's share, a line a system; of the first trace.
fn plot(replayed: &[Replayed], file: &Path) -> Result<()> {
    let Some(one) = replayed.first() else { return Ok(()) };
    let mut series: Vec<Series> = Vec::new();
    for row in &one.rows {
        let name = format!("{}, {}", row.config.system, row.config.division.name());
        let point = (row.config.fast_bytes as f64 / 1048576.0, row.counts.hit_ratio(Tier::Fast));
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    series.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let chart = LineChart {
        title: format!("{}: hits in the fast tier", one.name),
        x_label: "fast tier (MiB)".to_owned(),
        y_label: "reads that hit the fast tier / reads".to_owned(),
        x_log: false,
        series,
    };
    chart.save(file)?;
    Ok(())
}
