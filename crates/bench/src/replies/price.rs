//! Price: throughput and latency of writes by what their answers wait for, from one connection to hundreds (the
//! paper's Figures 8 and 9).
//!
//! All ways run in turn within each repetition, each on a primary of its own with two replicas, at one number of
//! connections after the other; only one primary is under load at any time. Ratios are within a repetition, for the
//! machine's speed drifts. Clients and replicas share a core, so that throughput has the replicas' work in it; the
//! primary's main thread's time per write has not, and is the finer figure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use super::Way;
use super::trio::Trio;
use super::writers::{Load, Writers};
use crate::comparison::progress_bar;
use crate::observation::cpu_s;
use crate::report::columns;
use crate::statistics::Spread;
use crate::system::{Setup, Venue};

const VALUE_BYTES: usize = 100;
/// Keys of all connections together.
const N_KEYS: u64 = 100_000;
const WARMUP: Duration = Duration::from_millis(200);

/// What is to be measured, and how often.
pub struct Price<'a> {
    /// The ways; others are compared with the first.
    pub ways: &'a [Way],
    /// Numbers of connections.
    pub connections: &'a [usize],
    /// Writes that each connection sends at once.
    pub depths: &'a [usize],
    /// How long each is measured.
    pub duration: Duration,
    /// How often.
    pub n_repetitions: usize,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One way at one load.
#[derive(Clone, Debug, Serialize)]
pub struct PriceRow {
    /// Writes sent at once.
    pub depth: usize,
    /// Connections.
    pub n_connections: usize,
    /// The way.
    pub way: Way,
    /// Writes per second.
    pub writes_per_s: Spread,
    /// Over the first way's in the same repetition.
    pub ratio: Spread,
    /// Core time of the primary's main thread per write, in µs.
    pub cpu_us: Spread,
    /// Over the first way's in the same repetition.
    pub cpu_ratio: Spread,
    /// From a batch's first byte to its last reply, in µs: the mean.
    pub latency_us_mean: Spread,
    /// Its median.
    pub latency_us_p50: Spread,
    /// Its 99th percentile.
    pub latency_us_p99: Spread,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct PriceReport {
    /// When, which server, and where.
    #[serde(flatten)]
    pub venue: Venue,
    /// How often each was measured.
    pub n_repetitions: usize,
    /// For how long, in s.
    pub duration_s: f64,
    /// The figures.
    pub rows: Vec<PriceRow>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    writes_per_s: f64,
    cpu_us: f64,
    latency_us_mean: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
}

impl Price<'_> {
    /// Measures everything. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails or refuses a write, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<PriceReport> {
        let least = self.connections.iter().chain(self.depths).min().copied().unwrap_or(0);
        ensure!(
            least > 0 && self.n_repetitions > 0 && !self.ways.is_empty(),
            "0 connections, writes, repetitions or ways"
        );
        self.setup.placement.pin_this_thread()?;
        let points: Vec<(usize, usize)> =
            self.depths.iter().flat_map(|depth| self.connections.iter().map(|n| (*depth, *n))).collect();
        let progress = progress_bar((points.len() * self.ways.len() * self.n_repetitions) as u64);
        let trios: Vec<Trio> =
            self.ways.iter().map(|way| Trio::start(self.setup, *way)).collect::<anyhow::Result<_>>()?;
        let mut rows = Vec::new();
        for (depth, n_connections) in points {
            let mut measured = vec![Vec::new(); self.ways.len()];
            for repetition in 0..self.n_repetitions {
                for turn in 0..self.ways.len() {
                    // Nobody always goes first.
                    let index = (turn + repetition) % self.ways.len();
                    ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                    progress.set_message(format!("{}, {n_connections} connections, {depth} at once", self.ways[index]));
                    measured[index].push(self.measure(&trios[index], self.ways[index], depth, n_connections)?);
                    progress.inc(1);
                }
            }
            rows.extend(
                self.ways
                    .iter()
                    .zip(&measured)
                    .map(|(way, of_way)| PriceRow::new(*way, depth, n_connections, of_way, &measured[0])),
            );
        }
        progress.finish_and_clear();
        Ok(PriceReport {
            venue: self.setup.venue(),
            n_repetitions: self.n_repetitions,
            duration_s: self.duration.as_secs_f64(),
            rows,
        })
    }

    fn measure(&self, trio: &Trio, way: Way, depth: usize, n_connections: usize) -> anyhow::Result<Measured> {
        let n_keys = Some((N_KEYS / n_connections as u64).max(1));
        let load = Load { depth, waits: way == Way::Wait, value_bytes: VALUE_BYTES, n_keys };
        let mut writers = Writers::connect(trio.primary.port(), n_connections, load)?;
        writers.run(WARMUP)?;
        writers.latencies.reset();
        let core_time_s = || cpu_s(trio.primary.pid()).map(|(main, _)| main);
        let (before, cpu_before_s, start) = (writers.n_acknowledged(), core_time_s()?, Instant::now());
        writers.run(self.duration)?;
        let (n, cpu_s, elapsed) = (writers.n_acknowledged() - before, core_time_s()? - cpu_before_s, start.elapsed());
        writers.finish(Duration::from_secs(10))?;
        ensure!(writers.n_refused == 0, "{} writes were refused", writers.n_refused);
        trio.check_standing(way)?;
        let us = |ns: u64| ns as f64 / 1000.0;
        Ok(Measured {
            writes_per_s: n as f64 / elapsed.as_secs_f64(),
            cpu_us: cpu_s * 1e6 / n as f64,
            latency_us_mean: writers.latencies.mean() / 1000.0,
            latency_us_p50: us(writers.latencies.value_at_quantile(0.5)),
            latency_us_p99: us(writers.latencies.value_at_quantile(0.99)),
        })
    }
}

impl PriceRow {
    fn new(way: Way, depth: usize, n_connections: usize, of_way: &[Measured], of_first: &[Measured]) -> PriceRow {
        let nothing = Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };
        let spread = |figure: fn(&Measured) -> f64| Spread::of(of_way.iter().map(figure)).unwrap_or(nothing);
        let ratios = |figure: fn(&Measured) -> f64| {
            let ratios = of_way.iter().zip(of_first).map(|(own, first)| figure(own) / figure(first));
            Spread::of(ratios).unwrap_or(nothing)
        };
        PriceRow {
            depth,
            n_connections,
            way,
            writes_per_s: spread(|measured| measured.writes_per_s),
            ratio: ratios(|measured| measured.writes_per_s),
            cpu_us: spread(|measured| measured.cpu_us),
            cpu_ratio: ratios(|measured| measured.cpu_us),
            latency_us_mean: spread(|measured| measured.latency_us_mean),
            latency_us_p50: spread(|measured| measured.latency_us_p50),
            latency_us_p99: spread(|measured| measured.latency_us_p99),
        }
    }
}

impl PriceReport {
    /// The report for people.
    pub fn table(&self) -> String {
        let head = format!(
            "writes by what their answers wait for, on {}, {}\n\
             SETs of {VALUE_BYTES} bytes, two replicas, medians of {} times {} s; {}\n\n",
            self.venue.server, self.venue.date, self.n_repetitions, self.duration_s, self.venue.placement
        );
        let header = [
            "at once",
            "connections",
            "way",
            "writes/s",
            "ratio",
            "(min–max)",
            "CPU µs",
            "ratio",
            "mean µs",
            "p50 µs",
            "p99 µs",
        ];
        let mut rows = vec![header.map(str::to_string).to_vec()];
        rows.extend(self.rows.iter().map(|row| {
            vec![
                row.depth.to_string(),
                row.n_connections.to_string(),
                row.way.to_string(),
                format!("{:.0}", row.writes_per_s.median),
                format!("{:.3}", row.ratio.median),
                format!("({:.3}–{:.3})", row.ratio.min, row.ratio.max),
                format!("{:.2}", row.cpu_us.median),
                format!("{:.3}", row.cpu_ratio.median),
                format!("{:.0}", row.latency_us_mean.median),
                format!("{:.0}", row.latency_us_p50.median),
                format!("{:.0}", row.latency_us_p99.median),
            ]
        }));
        format!("{head}{}", columns(&rows))
    }

    /// The report for programs.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
