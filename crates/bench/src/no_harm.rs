//! What the module costs where there is nothing to gain: all keys fit, full load, stock and module by turns.
//!
//! Both servers are there at once, and who has no turn stands still. Its module counts by the clock how much it
//! watches, so it is told to watch half as many commands a second. How pairs of turns are run, and what their figures
//! mean: [`full_load`](crate::full_load).

use std::sync::atomic::AtomicBool;

use anyhow::ensure;
use serde::Serialize;
use tenure_servers::Server;

use crate::client::load_generator::Written;
use crate::comparison::progress_bar;
use crate::full_load::{FullLoad, RUN_UP_PART, RatioSpreads, Ratios, Side, Standing, Turns, spread};
use crate::statistics::Spread;
use crate::system::{Setup, System, Venue, set};
use crate::workload::Stream;

const WATCHED_PER_SECOND: &str = "tenure.watched-per-second";

/// What is to be compared, and how often.
pub struct NoHarm<'a> {
    /// The requests.
    pub stream: &'a Stream,
    /// Commands that each connection sends at once.
    pub depth: usize,
    /// How many connections there are.
    pub n_connections: usize,
    /// How many turns each server has: the requests are divided among them.
    pub n_pairs: usize,
    /// The system beside stock.
    pub system: &'a System,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// Two servers on the same part of the load, and the second over the first.
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
    /// Measured commands of each turn.
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
        let (stream, n_turn) = (self.stream, self.stream.n_measured() / self.n_pairs.max(1));
        let n_run_up = n_turn / RUN_UP_PART;
        ensure!(n_run_up > 0, "{} requests are too few for {} pairs of turns", stream.n_measured(), self.n_pairs);
        self.setup.placement.pin_this_thread()?;
        let progress = progress_bar(2 * self.n_pairs as u64);
        let turns = Turns { progress: &progress, interrupted };
        let part = |before, measured| {
            FullLoad::of(stream, (before, measured), (self.depth, Written::String), self.n_connections)
        };
        let warm_up = part(0..stream.n_warmup, 0..0)?;
        let begin = |system: &System| {
            let server = system.start(self.setup, None, stream.keys.tenants())?;
            Standing::begin(server, stream, &warm_up, watch_half)
        };
        let (mut stock, mut module) = (begin(&System::STOCK)?, begin(self.system)?);
        let turn = |standing: &mut Standing, pair: usize| {
            let begins_at = stream.n_warmup + pair * n_turn;
            let clock_starts_at = begins_at + n_run_up;
            let load = part(begins_at..clock_starts_at, clock_starts_at..begins_at + n_turn)?;
            standing.turn(&load, |server, connections| load.measure(server, connections, None))
        };
        let sides = turns.in_pairs(
            self.n_pairs,
            (System::STOCK.label, |pair| turn(&mut stock, pair)),
            (self.system.label, |pair| turn(&mut module, pair)),
        )?;
        progress.finish_and_clear();
        let pair = |(stock, module)| Pair { ratios: Ratios::of(&stock, &module), stock, module };
        Ok(self.report(n_turn - n_run_up, sides.into_iter().map(pair).collect()))
    }

    fn report(&self, n_commands: usize, pairs: Vec<Pair>) -> NoHarmReport {
        NoHarmReport {
            venue: self.setup.venue(),
            system: self.system.label.to_string(),
            pipeline: self.depth,
            n_connections: self.n_connections,
            n_keys: self.stream.keys.len(),
            n_commands,
            ratios: RatioSpreads::of_medians(&pairs.iter().map(|pair| pair.ratios).collect::<Vec<_>>()),
            pairs,
        }
    }
}

/// Halves how many commands a second the module watches, where there is one: see the file's opening.
fn watch_half(server: &Server) -> anyhow::Result<()> {
    let setting: Vec<String> = server.call(&["CONFIG", "GET", WATCHED_PER_SECOND])?;
    let Some(per_second) = setting.get(1) else { return Ok(()) };
    // 0 stands for all.
    set(server, WATCHED_PER_SECOND, &per_second.parse::<u64>()?.div_ceil(2).to_string())
}

impl NoHarmReport {
    /// The report for people.
    pub fn table(&self) -> String {
        let head = format!(
            "no-miss on {}, {}: {} against stock, {} pairs of turns\n\
             {} keys of 32 bytes, GET:SET 10:1, {} connections, {} commands at once, {} a turn; {}\n\
             Medians of the pairs, and what each lies between in 19 cases of 20.\n\n",
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
        let median = |of: fn(&Pair) -> f64| spread(self.pairs.iter().map(of)).median;
        let stock = format!(
            "stock: {:.0} commands/s, {:.0} ns of CPU each\n",
            median(|pair| pair.stock.throughput_per_s),
            median(|pair| pair.stock.cpu_ns_per_command),
        );
        let line = |name: &str, s: Spread| format!("{name}: median {:.4} ({:.4}–{:.4})\n", s.median, s.min, s.max);
        let foot = [
            line("throughput with the module over stock", self.ratios.throughput_ratio),
            line("server CPU per command over stock", self.ratios.cpu_ratio),
            line("main thread's CPU per command over stock", self.ratios.cpu_main_ratio),
        ];
        let busy = self.pairs.iter().flat_map(|pair| [pair.stock.generator_busy, pair.module.generator_busy]);
        let busy = busy.fold(0.0, f64::max);
        let busy = format!("load generator: at most {:.0} % of its core\n", busy * 100.0);
        format!("{head}{stock}{}{busy}", foot.concat())
    }

    /// The report for programs.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
