//! What the module costs where there is nothing to gain: all keys fit, full load, alternating pairs of stock and
//! module.
//!
//! How pairs are run, and what their figures mean: [`full_load`](crate::full_load).

use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use serde::Serialize;

use crate::comparison::progress_bar;
use crate::full_load::{FullLoad, RatioSpreads, Ratios, Side, Turns};
use crate::report::columns;
use crate::statistics::Spread;
use crate::system::{Setup, System, Venue};
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

/// Two servers on the same load, and the second over the first.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// Without the module.
    pub stock: Side,
    /// With it.
    pub module: Side,
    /// With the module over without.
    #[serde(flatten)]
    pub ratios: Ratios,
}

/// All pairs and what they say together.
#[derive(Clone, Debug, Serialize)]
pub struct NoHarmReport {
    /// When, which server, and where.
    #[serde(flatten)]
    pub venue: Venue,
    /// The system beside stock.
    pub system: String,
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
    /// Of all pairs.
    #[serde(flatten)]
    pub ratios: RatioSpreads,
}

impl NoHarm<'_> {
    /// Runs all pairs. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails or a read misses, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<NoHarmReport> {
        ensure!(self.n_pairs > 0, "0 pairs");
        self.setup.placement.pin_this_thread()?;
        let load = FullLoad::new(self.stream, self.depth, self.n_connections)?;
        let progress = progress_bar(2 * self.n_pairs as u64);
        let turns = Turns { progress: &progress, interrupted };
        let side = |system: &System| self.side(system, &load);
        let sides = turns.in_pairs(
            self.n_pairs,
            (System::STOCK.label, |_| side(&System::STOCK)),
            (self.system.label, |_| side(self.system)),
        )?;
        progress.finish_and_clear();
        let pair = |(stock, module)| Pair { ratios: Ratios::of(&stock, &module), stock, module };
        Ok(self.report(sides.into_iter().map(pair).collect()))
    }

    fn side(&self, system: &System, load: &FullLoad) -> anyhow::Result<Side> {
        let server = system.start(self.setup, None, self.stream.keys.tenants())?;
        let mut connections = load.begin(&server)?;
        load.warm_up(&mut connections)?;
        load.measure(&server, &mut connections, None)
    }

    fn report(&self, pairs: Vec<Pair>) -> NoHarmReport {
        NoHarmReport {
            venue: self.setup.venue(),
            system: self.system.label.to_string(),
            pipeline: self.depth,
            n_connections: self.n_connections,
            n_keys: self.stream.keys.len(),
            n_commands: self.stream.n_measured(),
            ratios: RatioSpreads::of(&pairs.iter().map(|pair| pair.ratios).collect::<Vec<_>>()),
            pairs,
        }
    }
}

impl NoHarmReport {
    /// The report for people.
    pub fn table(&self) -> String {
        let head = format!(
            "no-miss on {}, {}: {} against stock, {} pairs\n\
             {} keys of 32 bytes, GET:SET 10:1, {} connections, {} commands at once, {} commands per server; {}\n\n",
            self.venue.server,
            self.venue.date,
            self.system,
            self.pairs.len(),
            self.n_keys,
            self.n_connections,
            self.pipeline,
            self.n_commands,
            self.venue.placement,
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
                format!("{:.4}", pair.ratios.throughput_ratio),
                format!("{:.0}", pair.stock.cpu_ns_per_command),
                format!("{:.0}", pair.module.cpu_ns_per_command),
                format!("{:.4}", pair.ratios.cpu_ratio),
                format!("{:.4}", pair.ratios.cpu_main_ratio),
            ]);
        }
        let line = |name: &str, s: Spread| format!("{name}: median {:.4} ({:.4}–{:.4})\n", s.median, s.min, s.max);
        let foot = [
            line("throughput with the module over stock", self.ratios.throughput_ratio),
            line("server CPU per command over stock", self.ratios.cpu_ratio),
            line("main thread's CPU per command over stock", self.ratios.cpu_main_ratio),
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
