//! Draws one chart of each kind into the folder given as argument:
//! `cargo run -p tenure-plots --example gallery -- DIR`. Look at them after every change of style.
use std::path::PathBuf;

use tenure_plots::{BarChart, BarSeries, LineChart, Series};

fn main() -> anyhow::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    for x_log in [false, true] {
        let curve = |decay: f64| (1..=30).map(|i| (f64::from(i) * 100.0, (-f64::from(i) / decay).exp())).collect();
        let dense = (1..=3000).map(|i| (f64::from(i), 0.4 + 0.3 * (f64::from(i) / 200.0).sin())).collect();
        let name = |decay: f64| format!("model with decay {decay}");
        let mut series: Vec<Series> =
            [5.0, 7.0, 12.0, 20.0, 40.0].iter().map(|&d| Series { name: name(d), points: curve(d) }).collect();
        series.push(Series { name: "dense".into(), points: dense });
        let chart = LineChart {
            title: "Miss ratio by cache size: an example (seed 1, 2026-01-01)".into(),
            x_label: "cache size (MiB)".into(),
            y_label: "miss ratio".into(),
            x_log,
            series,
        };
        for extension in ["svg", "png"] {
            chart.save(folder.join(format!("lines-{}.{extension}", if x_log { "log" } else { "linear" })))?;
        }
    }
    let bars = |name: &str, values: Vec<f64>| BarSeries {
        name: name.into(),
        spread: values.iter().map(|value| (value * 0.96, value * 1.05)).collect(),
        values,
    };
    let chart = BarChart {
        title: "Mean latency of ycsb-a, backends 120/1000 µs".into(),
        y_label: "mean latency (µs)".into(),
        groups: vec!["memory 10%".into(), "memory 50%".into()],
        series: vec![bars("stock", vec![512.0, 220.0]), bars("tenure", vec![405.0, 171.0])],
    };
    chart.save(folder.join("bars.svg"))?;
    chart.save(folder.join("bars.png"))
}
