//! What the module costs where there is nothing to gain: all keys fit, full load, alternating pairs of stock and module.
//!
//! Each pair is two fresh servers one after the other, the order turned round every other time. The figures are ratios
//! within a pair, since the machine's speed drifts by more from minute to minute than the module costs. Throughput is bounded
//! by the busier of the two cores; core time per command is the server's alone and therefore the finer figure.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use serde::Serialize;

use crate::client::Connection;
use crate::client::load_generator::{Batches, drive, load_all_keys};
use crate::comparison::progress_bar;
use crate::observation::{Counters, this_thread_s};
use crate::report::columns;
use crate::statistics::Spread;
use crate::system::{Setup, System};
use crate::workload::Stream;

/// What is to be compared, and how often.
pub struct NoHarm<'a> {
    /// The requests.
    pub stream: &'a Stream,
    /// Commands that each connection sends at once.
    pub depth: usize,
    /// How many connections there are.
    pub n_connections: usize,
    /// How many pairs are run.
    pub n_pairs: usize,
    /// The system beside stock.
    pub system: &'a System,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One server's figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Side {
    /// Commands per second.
    pub throughput_per_s: f64,
    /// Core time of all the server's threads per command, in ns.
    pub cpu_ns_per_command: f64,
    /// Of this, the main thread's, in ns.
    pub cpu_main_ns_per_command: f64,
    /// The share of the time that the load generator's thread was on its core: near 1 it is what limits the throughput.
    pub generator_busy: f64,
}

/// Two servers on the same load, and the second over the first.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// Without the module.
    pub stock: Side,
    /// With it.
    pub module: Side,
    /// Throughput with the module over that without; 1 is no harm, 0.99 is one per cent less.
    pub throughput_ratio: f64,
    /// Core time per command with the module over that without.
    pub cpu_ratio: f64,
    /// The same of the main thread alone.
    pub cpu_main_ratio: f64,
}

/// All pairs and what they say together.
#[derive(Clone, Debug, Serialize)]
pub struct NoHarmReport {
    /// When the report was made, in UTC.
    pub date: String,
    /// The server, such as `redis-7.0.15`.
    pub server: String,
    /// The system beside stock.
    pub system: String,
    /// Where both ends ran.
    pub placement: String,
    /// Commands that each connection sent at once.
    pub pipeline: usize,
    /// How many connections there were.
    pub n_connections: usize,
    /// Keys of the workload.
    pub n_keys: usize,
    /// Measured commands per server.
    pub n_commands: usize,
    /// In the order in which they were run.
    pub pairs: Vec<Pair>,
    /// Median and spread of the ratios.
    pub throughput_ratio: Spread,
    /// Median and spread of the ratios.
    pub cpu_ratio: Spread,
    /// Median and spread of the ratios.
    pub cpu_main_ratio: Spread,
}

impl NoHarm<'_> {
    /// Runs all pairs. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails or a read misses, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<NoHarmReport> {
        ensure!(self.depth > 0 && self.n_connections > 0 && self.n_pairs > 0, "0 connections, commands or pairs");
        self.setup.placement.pin_this_thread()?;
        let progress = progress_bar(2 * self.n_pairs as u64);
        let (warmup, measured) = self.stream.requests.split_at(self.stream.n_warmup);
        let load = [warmup, measured].map(|requests| Batches::encode(self.stream, requests, self.depth));
        let mut pairs = Vec::with_capacity(self.n_pairs);
        for index in 0..self.n_pairs {
            let side = |system: &System| {
                ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                progress.set_message(format!("{}, pair {} of {}", system.label, index + 1, self.n_pairs));
                let side = self.side(system, &load);
                progress.inc(1);
                side
            };
            let (stock, module);
            if index % 2 == 0 {
                stock = side(&System::STOCK)?;
                module = side(self.system)?;
            } else {
                module = side(self.system)?;
                stock = side(&System::STOCK)?;
            }
            pairs.push(Pair::new(stock, module));
        }
        progress.finish_and_clear();
        Ok(self.report(pairs))
    }

    fn side(&self, system: &System, [warmup, measured]: &[Batches; 2]) -> anyhow::Result<Side> {
        let server = system.start(self.setup, None, self.stream.keys.tenants())?;
        load_all_keys(&mut Connection::open(server.port())?, self.stream)?;
        let connections: anyhow::Result<Vec<Connection>> =
            (0..self.n_connections).map(|_| Connection::open(server.port())).collect();
        let mut connections = connections?;
        drive(&mut connections, warmup)?;
        let (before, generator_before) = (Counters::read(&server)?, this_thread_s()?);
        let load = drive(&mut connections, measured)?;
        let generator_s = this_thread_s()? - generator_before;
        let counters = Counters::read(&server)?.since(before);
        ensure!(load.n_misses == 0, "{} of {} reads missed, though everything fits", load.n_misses, load.n_commands);
        let per_command = |seconds: f64| seconds * 1e9 / load.n_commands as f64;
        Ok(Side {
            throughput_per_s: load.n_commands as f64 / load.elapsed.as_secs_f64(),
            cpu_ns_per_command: per_command(counters.cpu_s),
            cpu_main_ns_per_command: per_command(counters.cpu_main_s),
            generator_busy: generator_s / load.elapsed.as_secs_f64(),
        })
    }

    fn report(&self, pairs: Vec<Pair>) -> NoHarmReport {
        let spread = |ratio: fn(&Pair) -> f64| {
            let nothing = Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };
            Spread::of(pairs.iter().map(ratio)).unwrap_or(nothing)
        };
        NoHarmReport {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            server: self.setup.binary.label.clone(),
            system: self.system.label.to_string(),
            placement: self.setup.placement.to_string(),
            pipeline: self.depth,
            n_connections: self.n_connections,
            n_keys: self.stream.keys.len(),
            n_commands: self.stream.n_measured(),
            throughput_ratio: spread(|pair| pair.throughput_ratio),
            cpu_ratio: spread(|pair| pair.cpu_ratio),
            cpu_main_ratio: spread(|pair| pair.cpu_main_ratio),
            pairs,
        }
    }
}

impl Pair {
    fn new(stock: Side, module: Side) -> Pair {
        Pair {
            throughput_ratio: module.throughput_per_s / stock.throughput_per_s,
            cpu_ratio: module.cpu_ns_per_command / stock.cpu_ns_per_command,
            cpu_main_ratio: module.cpu_main_ns_per_command / stock.cpu_main_ns_per_command,
            stock,
            module,
        }
    }
}

impl NoHarmReport {
    /// The report for people.
    pub fn table(&self) -> String {
        let head = format!(
            "no-miss on {}, {}: {} against stock, {} pairs\n\
             {} keys of 32 bytes, GET:SET 10:1, {} connections, {} commands at once, {} commands per server; {}\n\n",
            self.server,
            self.date,
            self.system,
            self.pairs.len(),
            self.n_keys,
            self.n_connections,
            self.pipeline,
            self.n_commands,
            self.placement,
        );
        let header =
            ["pair", "", "stock/s", "with module/s", "ratio", "CPU ns", "with module ns", "ratio", "main thread ratio"];
        let mut rows = vec![header.map(str::to_string).to_vec()];
        for (index, pair) in self.pairs.iter().enumerate() {
            rows.push(vec![
                (index + 1).to_string(),
                String::new(),
                format!("{:.0}", pair.stock.throughput_per_s),
                format!("{:.0}", pair.module.throughput_per_s),
                format!("{:.4}", pair.throughput_ratio),
                format!("{:.0}", pair.stock.cpu_ns_per_command),
                format!("{:.0}", pair.module.cpu_ns_per_command),
                format!("{:.4}", pair.cpu_ratio),
                format!("{:.4}", pair.cpu_main_ratio),
            ]);
        }
        let line = |name: &str, s: Spread| format!("{name}: median {:.4} ({:.4}–{:.4})\n", s.median, s.min, s.max);
        let foot = [
            line("throughput with the module over stock", self.throughput_ratio),
            line("server CPU per command over stock", self.cpu_ratio),
            line("main thread's CPU per command over stock", self.cpu_main_ratio),
        ];
        let busy = self.pairs.iter().flat_map(|pair| [pair.stock.generator_busy, pair.module.generator_busy]);
        let busy = busy.fold(0.0, f64::max);
        let busy = format!("load generator: at most {:.0} % of its core\n", busy * 100.0);
        format!("{head}{}\n{}{busy}", columns(&rows), foot.concat())
    }

    /// The report for programs.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
