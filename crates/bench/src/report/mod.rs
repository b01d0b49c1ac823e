//! What a comparison came to: figures per run and per system, as a table, as JSON and as plots.
//!
//! A figure of a system is the median over its repetitions, with the smallest and largest beside it. "Against the
//! first system" is computed within each repetition, or each turn, and then reduced to a median, so that what changed
//! between them does not count.

mod paced;
mod plots;
mod restart;
mod table;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use tenure_plots::Page;

use crate::client::probe;
use crate::comparison::{Compared, Comparison, Run};
use crate::observation::Memory;
use crate::paced::Paced;
use crate::predict::{Prediction, Replayed, Times};
use crate::restart::Restart;
use crate::statistics::{Recorder, Spread};
use crate::system::Venue;
use crate::timeline::Point;

pub use table::columns;

/// Everything that is printed, written and drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was run, as it can be run again.
    pub conditions: ReportedConditions,
    /// One entry per system and memory size.
    pub summary: Vec<Summary>,
    /// One entry per run, in the order of the runs.
    pub runs: Vec<RunFigures>,
}

/// The conditions that all runs shared.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedConditions {
    /// When the report was made, in UTC.
    pub date: String,
    /// What was asked for.
    #[serde(flatten)]
    pub stream: ReportedStream,
    /// The backend's specification.
    pub backend: String,
    /// Which backend slowed down, by how much and when, as it was asked for.
    pub slow_down: Option<String>,
    /// When the server was restarted, as it was asked for.
    pub restart: Option<String>,
    /// What answered, and how it was set.
    #[serde(flatten)]
    pub servers: ReportedServers,
    /// Clients that asked at once.
    pub n_connections: usize,
    /// Repetitions of each run.
    pub n_repetitions: usize,
    /// In how many turns systems measured their requests; 1 where they ran one after the other.
    pub n_turns: usize,
    /// What all keys take in the server, in bytes.
    pub footprint_bytes: u64,
    /// Used memory of an empty server, in bytes.
    pub empty_server_bytes: u64,
    /// Time between two PINGs of the stall probe, in µs.
    pub probe_interval_us: u64,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedStream {
    /// The workload's name.
    pub workload: String,
    /// Of all random draws.
    pub seed: u64,
    /// Keys of the workload.
    pub n_keys: usize,
    /// Requests before the measurement.
    pub n_warmup: usize,
    /// Measured requests.
    pub n_requests: usize,
    /// Of a workload with a pace, the time from one peak to the next, in s; its timelines are over seconds, others
    /// over requests.
    pub period_s: Option<f64>,
}

/// What answered, and how it was set.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedServers {
    /// The server, such as `redis-7.0.15`.
    pub server: String,
    /// Primaries of the cluster, and how clients found them; `None` on one server.
    pub cluster: Option<(usize, String)>,
    /// Settings of the module that the user gave.
    pub module_settings: Vec<(String, String)>,
    /// How many times as fast the servers' wall clock ran.
    pub clock_speed: u32,
    /// Where both ends ran.
    pub placement: String,
}

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunFigures {
    /// The system's label.
    pub system: String,
    /// The memory size as it was asked for.
    pub memory: String,
    /// The server's limit.
    pub maxmemory_bytes: u64,
    /// From 0.
    pub repetition: usize,
    /// All the numbers.
    #[serde(flatten)]
    pub figures: Figures,
    /// Memory at the end of the run.
    pub server_memory: Memory,
    /// Writes that the server refused for lack of memory.
    pub n_refused: u64,
    /// By tenant.
    pub tenants: Vec<TenantFigures>,
    /// Points (latency in µs, share of requests that took no longer).
    pub latency_distribution: Vec<(f64, f64)>,
    /// How latency and misses went over the measured requests.
    pub timeline: Vec<Point>,
    /// Mean latency in each turn, in µs.
    pub turns_us: Vec<f64>,
    /// In peaks and valleys, where the workload has a pace.
    pub paced: Option<Paced>,
    /// Before and after the restart, if there was one.
    pub restart: Option<Restart>,
}

/// The numbers of a run that are worth a median. Latencies in µs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Of all measured requests.
    #[serde(flatten)]
    pub latency: LatencyFigures,
    /// Keys missed over keys read; NaN (JSON: null) where nothing was read.
    pub miss_ratio: f64,
    /// Requests per second, all clients together.
    pub throughput_per_s: f64,
    /// Keys that the server and the module evicted.
    pub evictions: f64,
    /// Of these, keys that the server evicted by its own policy.
    pub evictions_by_server: f64,
    /// Keys that the module put to sleep.
    pub slept_keys: f64,
    /// Keys that it brought back.
    pub woken_keys: f64,
    /// Reads that found their key asleep.
    pub sleeping_reads: f64,
    /// Commands that the nodes of a cluster sent elsewhere.
    pub redirects: f64,
    /// How busy the server was, and what disturbed it.
    #[serde(flatten)]
    pub load: LoadFigures,
    /// Mean absolute error of the miss ratios that the module predicted window by window; `None` where it predicted
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_ratio_error_mean: Option<f64>,
    /// After how many s of a peak the periodic tenant's reads hit again, median over the peaks; `None` where there
    /// are no peaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_s: Option<f64>,
    /// How many requests after the restart the miss ratio was back; where it was not, all of them. `None` without a
    /// restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back_requests: Option<f64>,
}

/// Latency of all measured requests, in µs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyFigures {
    /// Mean latency of all measured requests.
    pub latency_us_mean: f64,
    /// Half of the requests took no longer.
    pub latency_us_p50: f64,
    /// 90 % took no longer.
    pub latency_us_p90: f64,
    /// 99 % took no longer.
    pub latency_us_p99: f64,
    /// 99.9 % took no longer.
    pub latency_us_p999: f64,
    /// 99.99 % took no longer.
    pub latency_us_p9999: f64,
}

/// How busy the server was, and what disturbed it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LoadFigures {
    /// Time on a core, all threads of the server, in s.
    pub server_cpu_s: f64,
    /// Of this, the main thread's, in s.
    pub server_cpu_main_s: f64,
    /// The longest that a PING waited during the measurement.
    pub ping_us_max: f64,
    /// 99.9 % of the PINGs waited no longer.
    pub ping_us_p999: f64,
    /// The share of the machine's core time that its host gave to others, 0 to 1.
    pub taken_by_host: f64,
}

/// One tenant in one run.
#[derive(Clone, Debug, Serialize)]
pub struct TenantFigures {
    /// Its prefix.
    pub tenant: String,
    /// What holds its values.
    pub backend: String,
    /// Keys it read.
    pub n_read: u64,
    /// Of these, keys that missed.
    pub n_missed: u64,
    /// Mean latency of reads that hit, in µs.
    pub hit_us_mean: Option<f64>,
    /// Mean latency of reads that missed, with the backend's part and the write-back, in µs.
    pub miss_us_mean: Option<f64>,
    /// Mean latency of writes and deletes, in µs.
    pub write_us_mean: Option<f64>,
    /// Mean latency of scans and read-modify-writes, in µs.
    pub compound_us_mean: Option<f64>,
}

/// One system at one memory size.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The system's label.
    pub system: String,
    /// The memory size as it was asked for.
    pub memory: String,
    /// The server's limit.
    pub maxmemory_bytes: u64,
    /// Every figure by name.
    pub figures: std::collections::BTreeMap<String, Spread>,
    /// Mean latency over that of the first system, in the same repetition; below 1 is faster. Where systems took
    /// turns, in the same turn: the median of the turns, and what it lies between in 19 of 20 cases.
    pub latency_against_first: Spread,
    /// What the simulator says, where it was asked.
    #[serde(flatten)]
    pub simulated: Option<Simulated>,
}

/// What the simulator says of one system at one memory size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Simulated {
    /// Of the system itself.
    pub prediction: Prediction,
    /// The least that any policy could come to with all of this memory for the keys.
    pub bound: Prediction,
    /// How far the system is on the way from the first system to the bound.
    pub gap_closed: GapClosed,
}

/// Shares of the gap in mean latency between the first system (0) and the bound (1); NaN where there is hardly one.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GapClosed {
    /// As measured.
    pub latency: f64,
    /// By the measured misses alone, as if all else took as long as with the first system.
    pub misses: f64,
    /// As predicted.
    pub predicted: f64,
}

/// A gap of less than this share of the first system's latency is none.
const GAP_MIN: f64 = 0.01;

/// How far `this` is from `first` to `bound`, all in µs.
fn gap_closed(first: f64, this: f64, bound: f64) -> f64 {
    let gap = first - bound;
    if gap > GAP_MIN * first { (first - this) / gap } else { f64::NAN }
}

impl Report {
    /// Puts the figures of all runs together.
    pub fn new(comparison: &Comparison, seed: u64, compared: &Compared) -> Report {
        let footprint = compared.footprint;
        let Venue { date, server, placement } = comparison.setup.venue();
        let stream = ReportedStream {
            workload: comparison.stream.name.clone(),
            seed,
            n_keys: comparison.stream.keys.len(),
            n_warmup: comparison.stream.n_warmup,
            n_requests: comparison.stream.n_measured(),
            period_s: comparison.stream.pace.as_ref().map(|pace| pace.period_s),
        };
        let servers = ReportedServers {
            server,
            cluster: comparison.setup.cluster.map(|cluster| (cluster.n_primaries, cluster.route.to_string())),
            module_settings: comparison.setup.settings.clone(),
            clock_speed: comparison.setup.clock_speed,
            placement,
        };
        let conditions = ReportedConditions {
            date,
            stream,
            backend: comparison.backend.to_string(),
            slow_down: comparison.slow_down.map(|slow_down| slow_down.to_string()),
            restart: comparison.restart.map(|moment| moment.to_string()),
            servers,
            n_connections: comparison.n_connections,
            n_repetitions: comparison.n_repetitions,
            n_turns: comparison.n_turns,
            footprint_bytes: footprint.keys_bytes,
            empty_server_bytes: footprint.empty_bytes,
            probe_interval_us: probe::INTERVAL.as_micros() as u64,
        };
        let runs: Vec<RunFigures> = compared.runs.iter().map(|run| run_figures(comparison, run)).collect();
        let summary = summarise(comparison, &runs);
        Report { conditions, summary, runs }
    }

    /// Adds what the simulator says of each system at each memory size, with the first system's measured times.
    ///
    /// # Errors
    /// When the simulator cannot replay the workload, the system or a setting.
    pub fn add_predictions(&mut self, comparison: &Comparison, compared: &Compared) -> anyhow::Result<()> {
        for (memory, limit) in comparison.memory.iter().enumerate() {
            let times = recorded(compared, 0, memory).and_then(|first| Times::of(first.tenants()));
            let times = times.context("nothing to predict from: no read hit")?;
            let capacity_bytes = limit.maxmemory_bytes(compared.footprint, 1) - compared.footprint.empty_bytes;
            let replayed = Replayed { stream: comparison.stream, key_bytes: &compared.key_bytes, times: &times };
            let bound = replayed.bound(capacity_bytes)?;
            let mut first = None;
            for (at, system) in comparison.systems.iter().enumerate() {
                let capacity_bytes = capacity_bytes.saturating_sub(module_bytes(compared, at, memory));
                let prediction = replayed.predict(system, capacity_bytes, &comparison.setup.settings)?;
                let is_meant = |s: &&mut Summary| s.system == system.label && s.memory == limit.to_string();
                let Some(summary) = self.summary.iter_mut().find(is_meant) else { continue };
                let measured_us = summary.figures.get("latency_us_mean").map_or(f64::NAN, |spread| spread.median);
                let by_misses_us = replayed.with_misses(&misses(compared, at, memory));
                let all_us = [measured_us, by_misses_us, prediction.latency_us_mean];
                let first_us = *first.get_or_insert(all_us);
                let closed = |i: usize| gap_closed(first_us[i], all_us[i], bound.latency_us_mean);
                let gap_closed = GapClosed { latency: closed(0), misses: closed(1), predicted: closed(2) };
                summary.simulated = Some(Simulated { prediction, bound, gap_closed });
            }
        }
        Ok(())
    }

    /// The report for people.
    pub fn table(&self) -> String {
        table::table(self)
    }

    /// The report for programs.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Writes `report.json`, `report.txt` and the plots into `folder`, which is made.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        write_file(folder, "report.json", &self.json()?)?;
        write_file(folder, "report.txt", &self.table())?;
        plots::draw(self, folder)?;
        let ReportedConditions { stream, backend, servers, date, .. } = &self.conditions;
        let (workload, server) = (&stream.workload, &servers.server);
        write_page(folder, &format!("tenure bench: {workload}, {backend}, {server}, {date}"), &self.table())
    }
}

/// Writes `report.html`, one page with the table and all plots of the folder, to be sent to somebody.
///
/// # Errors
/// When a plot can't be read or the page not be written.
pub fn write_page(folder: &Path, title: &str, table: &str) -> anyhow::Result<()> {
    Page::new(title).text(table).svgs_in(folder)?.save(&folder.join("report.html"))
}

/// Writes one file of a report; the folder is made.
///
/// # Errors
/// When it cannot be written.
pub fn write_file(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .with_context(|| path.display().to_string())
}

/// A folder `bench/runs/<date>-<workload>` under the current one, that does not exist yet.
pub fn default_folder(workload: &str) -> PathBuf {
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let folder = |n: u32| {
        let number = if n == 1 { String::new() } else { format!("-{n}") };
        PathBuf::from(format!("bench/runs/{date}-{workload}{number}"))
    };
    (1..).map(folder).find(|folder| !folder.exists()).unwrap_or_else(|| folder(1))
}

fn run_figures(comparison: &Comparison, run: &Run) -> RunFigures {
    let measurement = &run.measurement;
    let (recorder, observed) = (&measurement.recorder, &measurement.observed);
    let counters = observed.counters;
    let total = recorder.total();
    let tenants = comparison.stream.keys.tenants().iter().zip(recorder.tenants());
    RunFigures {
        system: comparison.systems[run.system].label.to_string(),
        memory: comparison.memory[run.memory].to_string(),
        maxmemory_bytes: run.maxmemory_bytes,
        repetition: run.repetition,
        figures: Figures {
            latency: LatencyFigures {
                latency_us_mean: total.mean_us().unwrap_or(f64::NAN),
                latency_us_p50: recorder.quantile_us(0.5),
                latency_us_p90: recorder.quantile_us(0.9),
                latency_us_p99: recorder.quantile_us(0.99),
                latency_us_p999: recorder.quantile_us(0.999),
                latency_us_p9999: recorder.quantile_us(0.9999),
            },
            miss_ratio: recorder.miss_ratio().unwrap_or(f64::NAN),
            throughput_per_s: total.n as f64 / observed.elapsed.as_secs_f64(),
            evictions: (counters.n_evicted_by_server + counters.n_evicted_by_module) as f64,
            evictions_by_server: counters.n_evicted_by_server as f64,
            slept_keys: counters.n_slept as f64,
            woken_keys: counters.n_woken as f64,
            sleeping_reads: counters.n_sleeping_reads as f64,
            redirects: counters.n_redirects as f64,
            load: LoadFigures {
                server_cpu_s: counters.cpu_s,
                server_cpu_main_s: counters.cpu_main_s,
                ping_us_max: observed.pings_ns.max() as f64 / 1000.0,
                ping_us_p999: observed.pings_ns.value_at_quantile(0.999) as f64 / 1000.0,
                taken_by_host: observed.core_time.share_taken(),
            },
            miss_ratio_error_mean: counters.prediction_error_mean(),
            back_s: measurement.paced.as_ref().and_then(Paced::back_s_median),
            back_requests: measurement.restart.map(|restart| restart.requests_until_back()),
        },
        server_memory: observed.memory,
        n_refused: recorder.n_refused(),
        tenants: tenants
            .map(|(tenant, sums)| TenantFigures {
                tenant: tenant.name.clone(),
                backend: comparison.backend.label(tenant.backend),
                n_read: sums.n_read,
                n_missed: sums.n_missed,
                hit_us_mean: sums.hits.mean_us(),
                miss_us_mean: sums.misses.mean_us(),
                write_us_mean: sums.writes.mean_us(),
                compound_us_mean: sums.compound.mean_us(),
            })
            .collect(),
        latency_distribution: recorder.distribution(),
        timeline: measurement.timeline.clone(),
        turns_us: measurement.turns_us.clone(),
        paced: measurement.paced.clone(),
        restart: measurement.restart,
    }
}

/// The runs of a system at one memory size.
fn runs_of(compared: &Compared, system: usize, memory: usize) -> impl Iterator<Item = &Run> {
    compared.runs.iter().filter(move |run| run.system == system && run.memory == memory)
}

/// What the module's own memory takes of the limit, in the mean of a system's runs.
fn module_bytes(compared: &Compared, system: usize, memory: usize) -> u64 {
    let runs = runs_of(compared, system, memory);
    let bytes: Vec<u64> = runs.map(|run| run.measurement.observed.memory.module_bytes).collect();
    bytes.iter().sum::<u64>() / bytes.len().max(1) as u64
}

/// By tenant, the keys that a system missed, in the mean of its runs.
fn misses(compared: &Compared, system: usize, memory: usize) -> Vec<f64> {
    let n_runs = runs_of(compared, system, memory).count() as f64;
    let sums = recorded(compared, system, memory);
    sums.iter().flat_map(Recorder::tenants).map(|tenant| tenant.n_missed as f64 / n_runs).collect()
}

/// What was recorded of a system at one memory size, all its runs together; `None` without a run.
fn recorded(compared: &Compared, system: usize, memory: usize) -> Option<Recorder> {
    let mut runs = runs_of(compared, system, memory);
    let mut sums = runs.next()?.measurement.recorder.clone();
    runs.for_each(|run| sums.merge(&run.measurement.recorder));
    Some(sums)
}

impl Figures {
    /// Every figure with its name, as JSON has it.
    fn named(&self) -> Vec<(String, f64)> {
        let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(self) else { return Vec::new() };
        fields.into_iter().filter_map(|(name, value)| value.as_f64().map(|value| (name, value))).collect()
    }
}

/// Mean latency in each turn over that of another system in the same turn.
fn ratios(own: &[&RunFigures], others: &[&RunFigures]) -> Vec<f64> {
    let pairs = own.iter().zip(others).flat_map(|(own, other)| own.turns_us.iter().zip(&other.turns_us));
    pairs.map(|(own, other)| own / other).collect()
}

fn summarise(comparison: &Comparison, runs: &[RunFigures]) -> Vec<Summary> {
    let first = comparison.systems[0].label;
    let mut summary = Vec::new();
    for memory in comparison.memory.iter().map(ToString::to_string) {
        for system in comparison.systems {
            let of = |label: &str| -> Vec<&RunFigures> {
                let mut found: Vec<&RunFigures> =
                    runs.iter().filter(|run| run.memory == memory && run.system == label).collect();
                found.sort_by_key(|run| run.repetition);
                found
            };
            let (own, others) = (of(system.label), of(first));
            let ratios = ratios(&own, &others);
            let latency_against_first =
                if comparison.n_turns == 1 { Spread::of(ratios) } else { Spread::of_median(ratios) };
            let Some(latency_against_first) = latency_against_first else { continue };
            let mut values = std::collections::BTreeMap::<String, Vec<f64>>::new();
            for (name, value) in own.iter().flat_map(|run| run.figures.named()) {
                values.entry(name).or_default().push(value);
            }
            summary.push(Summary {
                system: system.label.to_string(),
                memory: memory.clone(),
                maxmemory_bytes: own[0].maxmemory_bytes,
                figures: values.into_iter().filter_map(|(name, all)| Some((name, Spread::of(all)?))).collect(),
                latency_against_first,
                simulated: None,
            });
        }
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_closed_is_a_share_of_what_there_is_to_win() {
        assert_eq!(gap_closed(100.0, 70.0, 60.0), 0.75);
        assert_eq!([gap_closed(100.0, 100.0, 60.0), gap_closed(100.0, 60.0, 60.0)], [0.0, 1.0]);
        assert_eq!(gap_closed(100.0, 120.0, 60.0), -0.5, "worse than the first");
        for bound in [99.5, 100.0, 100.5] {
            assert!(gap_closed(100.0, 90.0, bound).is_nan(), "nothing to win: {bound}");
        }
    }
}
