//! The report's three plots, each as SVG and PNG: mean latency by system, its distribution, and its course over the run.

use std::path::Path;

use tenure_plots::{BarChart, BarSeries, LineChart, Series};

use super::table::figure;
use super::{Report, RunFigures};

pub(super) fn draw(report: &Report, folder: &Path) -> anyhow::Result<()> {
    for extension in ["svg", "png"] {
        let path = |name: &str| folder.join(format!("{name}.{extension}"));
        mean_latency(report).save(path("mean-latency"))?;
        for memory in memories(report) {
            let name = |kind: &str| format!("{kind}-{}", memory.replace('%', "pct").replace(' ', ""));
            distribution(report, &memory).save(path(&name("distribution")))?;
            course(report, &memory).save(path(&name("course")))?;
        }
    }
    Ok(())
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
    format!("{what}: {}, {} ({}, seed {}, {})", c.workload, c.backend, c.server, c.seed, &c.date[..10])
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
        let distance = |run: &RunFigures| (run.figures.latency_us_mean - median).abs();
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

fn course(report: &Report, memory: &str) -> LineChart {
    LineChart {
        title: title(report, &format!("Latency over the run, memory {memory}")),
        x_label: format!("requests so far (the first {} warm up)", report.conditions.n_warmup),
        y_label: "mean latency (µs)".into(),
        x_log: false,
        series: lines(report, memory, |run| run.latency_course.clone()),
    }
}
