//! `tenure simulate --ladder`: all policies over all traces of a folder, as a table, JSON and a plot.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tenure_plots::{BarChart, BarSeries};
use tenure_sim::ladder::{self, LadderConfig, LadderRow, Rung};
use tenure_sim::policies::PolicyName;
use tenure_sim::trace::{LogNormalSizes, Sizes, TraceOptions};

use super::{Arguments, load, named, progress_bar, settings};
use crate::trace_args::{trace_name, traces_in};

/// Traces shorter than this say little.
const LADDER_ACCESSES_MIN: usize = 100_000;

/// Runs it over all traces in `folder`.
///
/// # Errors
/// What is wrong with a trace, and where; a plot that can't be written.
pub(super) fn run(args: &Arguments, folder: &Path) -> Result<()> {
    let policies = policies(args)?;
    let config = LadderConfig {
        policies: policies.clone(),
        settings: settings(args)?,
        windows: (!args.ladder.whole).then_some(args.ladder.ladder_windows),
        equal_costs: args.ladder.equal_costs,
        hit_us: args.hit_us,
        noise: args.penalty_noise,
        seed: args.seed,
        threads: args.threads.count(),
    };
    let sizes = Sizes::TraceOrDrawn(LogNormalSizes::default_range());
    let options = TraceOptions { sizes, ..TraceOptions::default() };
    let accesses_max = if args.ladder.whole { usize::MAX } else { args.ladder.ladder_accesses };
    let (mut rungs, mut used, mut short) = (Vec::new(), Vec::new(), Vec::new());
    for path in traces_in(folder)? {
        let name = trace_name(&path);
        let (accesses, n_tenants) = load(&path, options.clone(), accesses_max)?;
        if accesses.len() < LADDER_ACCESSES_MIN {
            short.push(name);
            continue;
        }
        let bar = progress_bar(accesses.len() as u64 * ladder::replays_per_trace(&config));
        bar.println(format!("{name}: {} accesses", accesses.len()));
        rungs.extend(ladder::climb(&name, &accesses, n_tenants, &config, &|n| bar.inc(n))?);
        bar.finish_and_clear();
        used.push(name);
    }
    if used.is_empty() {
        bail!("{}: no trace of at least {LADDER_ACCESSES_MIN} accesses", folder.display());
    }
    if let Some(file) = &args.output.plot {
        plot_ladder(&rungs, &policies, file)?;
    }
    let mut out = std::io::stdout().lock();
    if args.output.json {
        serde_json::to_writer(&mut out, &ladder_json(&rungs, &policies))?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "Traces: {}", used.join(", "))?;
    if !short.is_empty() {
        writeln!(out, "Left out, below {LADDER_ACCESSES_MIN} accesses: {}", short.join(", "))?;
    }
    write_ladder(&mut out, &rungs, &config)
}

/// Those asked for, or nearly all; the bound is always there.
fn policies(args: &Arguments) -> Result<Vec<PolicyName>> {
    let mut policies = args.policies.clone().map_or_else(|| named(ladder::POLICIES), Ok)?;
    policies.retain(|policy| *policy != PolicyName::BOUND);
    if !policies.iter().any(|policy| policy.to_string() == "redis") {
        bail!("the ladder compares with redis; name it among --policies");
    }
    Ok(policies)
}

fn write_ladder(out: &mut impl Write, rungs: &[Rung], config: &LadderConfig) -> Result<()> {
    let policies = &config.policies;
    let all = ladder::standings(rungs, policies, |_| true);
    let usual = ladder::standings(rungs, policies, |rung| rung.memory_percent <= 50);
    writeln!(
        out,
        "\nMean latency relative to redis, {} rungs (10, 25, 50, 75 % of memory), {} at 10 to 50 %",
        all[0].rungs, usual[0].rungs
    )?;
    writeln!(
        out,
        "{:16} {:>9} {:>7} {:>7} {:>11} | {:>9} {:>11} | {:>11}",
        "policy", "geo. mean", "best", "worst", "gap closed", "10–50 %", "gap closed", "ns/request"
    )?;
    for (a, u) in all.iter().zip(&usual) {
        let ns = a.ns_per_request.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
        writeln!(
            out,
            "{:16} {:>9.3} {:>7.3} {:>7.3} {:>10.1}% | {:>9.3} {:>10.1}% | {:>11}",
            a.policy.to_string(),
            a.relative_mean,
            a.relative_best,
            a.relative_worst,
            a.gap_closed * 100.0,
            u.relative_mean,
            u.gap_closed * 100.0,
            ns
        )?;
    }
    let slices = slices(rungs, config);
    writeln!(out, "\nGeometric mean by part")?;
    write!(out, "{:16}", "policy")?;
    for name in slices.keys() {
        write!(out, " {name:>13}")?;
    }
    writeln!(out)?;
    for (i, policy) in policies.iter().copied().chain([PolicyName::BOUND]).enumerate() {
        write!(out, "{:16}", policy.to_string())?;
        for standings in slices.values() {
            write!(out, " {:>13.3}", standings[i].relative_mean)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Standings by cost scheme, sizes and memory.
fn slices(rungs: &[Rung], config: &LadderConfig) -> BTreeMap<String, Vec<LadderRow>> {
    let policies = &config.policies;
    let mut slices = BTreeMap::new();
    for costs in ladder::cost_names(config.equal_costs) {
        slices.insert(format!("a {costs}"), ladder::standings(rungs, policies, |rung| rung.costs == costs));
    }
    for sizes in ["fixed", "variable"] {
        slices.insert(format!("b {sizes}"), ladder::standings(rungs, policies, |rung| rung.sizes == sizes));
    }
    for percent in ladder::MEMORY_PERCENT {
        let of = |rung: &Rung| rung.memory_percent == percent;
        slices.insert(format!("c {percent} %"), ladder::standings(rungs, policies, of));
    }
    slices
}

fn ladder_json(rungs: &[Rung], policies: &[PolicyName]) -> Value {
    let standing = |s: &LadderRow| {
        json!({
            "policy": s.policy.to_string(),
            "relative_mean": s.relative_mean,
            "relative_best": s.relative_best,
            "relative_worst": s.relative_worst,
            "gap_closed": s.gap_closed,
            "ns_per_request": s.ns_per_request,
            "rungs": s.rungs,
        })
    };
    let rung = |r: &Rung| {
        json!({
            "trace": r.trace,
            "costs": r.costs,
            "sizes": r.sizes,
            "memory_percent": r.memory_percent,
            "policy": r.policy.to_string(),
            "mean_latency_us": r.mean_latency_us,
            "miss_ratio": r.miss_ratio,
            "ns_per_request": r.ns_per_request,
        })
    };
    let all: Vec<Value> = ladder::standings(rungs, policies, |_| true).iter().map(standing).collect();
    let usual = ladder::standings(rungs, policies, |rung| rung.memory_percent <= 50);
    let usual: Vec<Value> = usual.iter().map(standing).collect();
    json!({ "all": all, "up_to_50_percent": usual, "rungs": rungs.iter().map(rung).collect::<Vec<_>>() })
}

fn plot_ladder(rungs: &[Rung], policies: &[PolicyName], file: &Path) -> Result<()> {
    let series = |name: &str, standings: Vec<LadderRow>| BarSeries {
        name: name.to_owned(),
        values: standings.iter().map(|s| s.relative_mean).collect(),
        spread: Vec::new(),
    };
    let chart = BarChart {
        title: "Mean latency relative to redis (geometric mean)".to_owned(),
        y_label: "relative mean latency".to_owned(),
        groups: policies.iter().chain(&[PolicyName::BOUND]).map(PolicyName::to_string).collect(),
        series: vec![
            series("10 to 75 % of memory", ladder::standings(rungs, policies, |_| true)),
            series("10 to 50 %", ladder::standings(rungs, policies, |rung| rung.memory_percent <= 50)),
        ],
    };
    chart.save(file)
}
