//! The report's plots, each as SVG and PNG: mean latency by system, its distribution, and latency and miss ratio over
//! the run.

use std::iter;
use std::path::Path;

use tenure_plots::{BarChart, BarSeries, LineChart, Series};

use super::table::figure;
use super::{Report, RunFigures};
use crate::timeline::Point;

pub(super) fn draw(report: &Report, folder: &Path) -> anyhow::Result<()> {
    for extension in ["svg", "png"] {
        let path = |name: &str| folder.join(format!("{name}.{extension}"));
        mean_latency(report).save(path("mean-latency"))?;
        for memory in memories(report) {
            for (kind, chart) in line_charts(report, &memory) {
                chart.save(path(&format!("{kind}-{}", memory.replace('%', "pct").replace(' ', ""))))?;
            }
        }
    }
    Ok(())
}

/// The charts at one memory size, each with the beginning of its name.
fn line_charts(report: &Report, memory: &str) -> Vec<(String, LineChart)> {
    let mut charts = vec![("distribution".to_string(), distribution(report, memory))];
    let paced = report.runs.iter().find_map(|run| run.paced.as_ref());
    let tenants = paced.into_iter().flat_map(|paced| &paced.tenants).map(|tenant| Some(tenant.tenant.as_str()));
    for tenant in iter::once(None).chain(tenants) {
        let name = |what: &str| tenant.map_or(what.to_string(), |tenant| format!("{what}-{tenant}"));
        charts.push((name("latency"), latency_over_run(report, memory, tenant)));
        charts.push((name("miss-ratio"), miss_ratio_over_run(report, memory, tenant)));
    }
    charts
}

fn memories(report: &Report) -> Vec<String> {
    let mut memories: Vec<String> = report.summary.iter().map(|summary| summary.memory.clone()).collect();
    memories.dedup();
    memories
}

fn systems(report: &Report) -> Vec<String> {
    let mut systems = Vec::new();
    for summary in &report.summary {
        if !systems.contains(&summary.system) {
            systems.push(summary.system.clone());
        }
    }
    systems
}

/// Names the run that a plot comes from.
fn title(report: &Report, what: &str) -> String {
    let c = &report.conditions;
    format!(
        "{what}: {}, {} ({}, seed {}, {})",
        c.stream.workload,
        c.backend,
        c.servers.server,
        c.stream.seed,
        &c.date[..10]
    )
}

fn mean_latency(report: &Report) -> BarChart {
    let memories = memories(report);
    let bars = |system: String| {
        let means = memories.iter().filter_map(|memory| {
            let summary = report.summary.iter().find(|s| s.system == system && s.memory == *memory)?;
            Some(figure(summary, "latency_us_mean"))
        });
        let (values, spread) = means.map(|mean| (mean.median, (mean.min, mean.max))).unzip();
        BarSeries { name: system, values, spread }
    };
    BarChart {
        title: title(report, "Mean latency"),
        y_label: format!("mean latency (µs), median of {}, whiskers: min–max", report.conditions.n_repetitions),
        groups: memories.iter().map(|memory| format!("memory {memory}")).collect(),
        series: systems(report).into_iter().map(bars).collect(),
    }
}

/// A system's run whose mean latency is nearest to the median: what a person would call its typical run.
fn typical_run<'a>(report: &'a Report, system: &str, memory: &str) -> Option<&'a RunFigures> {
    let summary = report.summary.iter().find(|summary| summary.system == system && summary.memory == memory)?;
    let median = figure(summary, "latency_us_mean").median;
    let runs = report.runs.iter().filter(|run| run.system == system && run.memory == memory);
    runs.min_by(|a, b| {
        let distance = |run: &RunFigures| (run.figures.latency.latency_us_mean - median).abs();
        distance(a).total_cmp(&distance(b))
    })
}

fn lines(report: &Report, memory: &str, points: impl Fn(&RunFigures) -> Vec<(f64, f64)>) -> Vec<Series> {
    let line = |system: String| {
        let run = typical_run(report, &system, memory)?;
        Some(Series { points: points(run), name: system })
    };
    systems(report).into_iter().filter_map(line).collect()
}

fn distribution(report: &Report, memory: &str) -> LineChart {
    LineChart {
        title: title(report, &format!("Latency distribution, memory {memory}")),
        x_label: "latency (µs)".into(),
        y_label: "share of requests that took no longer".into(),
        x_log: true,
        series: lines(report, memory, |run| run.latency_distribution.clone()),
    }
}

fn latency_over_run(report: &Report, memory: &str, tenant: Option<&str>) -> LineChart {
    let latency = |point: &Point| point.latency_us_mean;
    LineChart { y_label: "mean latency (µs)".into(), ..over_run(report, "Latency", memory, tenant, latency) }
}

fn miss_ratio_over_run(report: &Report, memory: &str, tenant: Option<&str>) -> LineChart {
    let miss_ratio = |point: &Point| point.miss_ratio;
    LineChart { y_label: "miss ratio".into(), ..over_run(report, "Miss ratio", memory, tenant, miss_ratio) }
}

fn over_run(
    report: &Report,
    what: &str,
    memory: &str,
    tenant: Option<&str>,
    value: fn(&Point) -> Option<f64>,
) -> LineChart {
    let whose = tenant.map_or(String::new(), |tenant| format!(" of {tenant}"));
    let points = |run: &RunFigures| {
        timeline_of(run, tenant).iter().map(|point| (point.until, value(point).unwrap_or(f64::NAN))).collect()
    };
    let axis = if report.conditions.stream.period_s.is_some() { "time (s)" } else { "measured requests so far" };
    let restart = report.conditions.restart.as_ref().map_or(String::new(), |moment| format!(", restart at {moment}"));
    LineChart {
        title: title(report, &format!("{what}{whose} over the run, memory {memory}")),
        x_label: format!("{axis}{restart}"),
        series: lines(report, memory, points),
        ..LineChart::default()
    }
}

/// Over all requests, or over those of one tenant of a workload with a pace.
fn timeline_of<'a>(run: &'a RunFigures, tenant: Option<&str>) -> &'a [Point] {
    let Some(tenant) = tenant else { return &run.timeline };
    let paced = run.paced.iter().flat_map(|paced| &paced.tenants);
    paced.filter(|of| of.tenant == tenant).map(|of| &of.timeline[..]).next().unwrap_or_default()
}
