//! Pictures of a record: latency and miss ratio of each system over the run, as docs/figures/NAME-latency.svg and
//! NAME-miss-ratio.svg; and the one that README shows, of stock and Tenure alone.

use std::path::PathBuf;

use tenure_plots::{LineChart, Series};

use crate::record::{OverRun, Record};
use crate::set::{Measurement, SET};

/// Where pictures lie, from the root of the working copy.
const FOLDER: &str = "docs/figures";
/// README's picture, of which measurement, and which systems it shows.
const README: (&str, &str, &[&str]) = ("latency-over-the-run", "slow-down", &["stock", "tenure"]);

/// All pictures whose record is there: path and SVG.
///
/// # Errors
/// A record that can't be read, or a picture that can't be drawn.
pub fn all() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut pictures = Vec::new();
    for one in SET {
        let Some(axis) = one.over_run else { continue };
        let Some(record) = Record::read(one.name)? else { continue };
        let Some(lines) = record.runs.first().map(|run| &run.over_run[..]).filter(|lines| !lines.is_empty()) else {
            continue;
        };
        for (what, column) in [("latency", 1), ("miss-ratio", 2)] {
            pictures.push((path(&format!("{}-{what}", one.name)), chart(one, axis, lines, column).svg()?));
        }
        let (name, of, systems) = README;
        if of == one.name {
            let shown: Vec<OverRun> =
                lines.iter().filter(|line| systems.contains(&line.system.as_str())).cloned().collect();
            pictures.push((path(name), chart(one, axis, &shown, 1).svg()?));
        }
    }
    Ok(pictures)
}

/// README's picture: that of latency where its record is there, else the dashboard.
///
/// # Errors
/// A record that can't be read.
pub fn readme() -> anyhow::Result<String> {
    let (name, of, systems) = README;
    let record = Record::read(of)?;
    let is_drawn = record.is_some_and(|record| record.runs.iter().any(|run| !run.over_run.is_empty()));
    Ok(if is_drawn {
        let text = "Mean latency over a run in which a backend slows down";
        format!("![{text}: {}]({FOLDER}/{name}.svg)\n", systems.join(" and "))
    } else {
        format!("![The dashboard: memory and time lost by tenant, miss ratios, evictions]({FOLDER}/dashboard.png)\n")
    })
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("{FOLDER}/{name}.svg"))
}

/// One number of all lines over the run: 1 the latency, 2 the miss ratio.
fn chart(one: &Measurement, axis: &str, lines: &[OverRun], column: usize) -> LineChart {
    let series = lines.iter().map(|line| Series {
        name: line.system.clone(),
        points: line.points().into_iter().map(|point| (point[0], point[column])).collect(),
    });
    let (what, unit) = if column == 1 { ("Mean latency", "mean latency (µs)") } else { ("Miss ratio", "miss ratio") };
    LineChart {
        title: format!("{what}: {}", one.shows),
        x_label: axis.to_owned(),
        y_label: unit.to_owned(),
        x_log: false,
        series: series.collect(),
    }
}
