//! What the module costs where a cache really runs: full. A row for each load, in pairs of stock and module.
//!
//! GETs hit or miss a cache that is 90 % full, where the module watches and nothing has to go. SETs and HSETs are of
//! new keys at the limit, so each evicts one; whoever evicts, the server or the module, the figures say. A mix at the
//! limit has reads that hit and miss and writes that evict, so who goes decides how many miss. Both servers
//! of a row are there at once, each full, and take turns of a tenth of a second: so a pair is measured before the
//! machine has changed its speed. Who has no turn stands still. Its module would take that for an idle main thread, so
//! it is told to call one busy from `BUSY_PERCENT` on, as under this load it is. While one is measured, a PING each
//! millisecond on a connection of its own shows how long its turns take. What the figures mean:
//! [`full_load`](crate::full_load).

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use tenure_servers::Server;

use crate::client::load_generator::Written;
use crate::client::probe::while_pinged;
use crate::full_load::{FullLoad, RUN_UP_PART, RatioSpreads, Ratios, Side, Standing, Turns, spread};
use crate::observation::Counters;
use crate::report::columns;
use crate::statistics::{Spread, latency_histogram};
use crate::system::{Setup, System, Venue, set};
use crate::workload::full::{Command, Size, streams};

/// How full the cache is that is read, in percent.
const FULL_PERCENT: u64 = 90;
/// What `tenure.watch-busy-percent` is, where nothing else is said: see above.
const BUSY_PERCENT: &str = "10";
/// A turn has such a part of the measured commands that take a second or two.
const TURN_PART: usize = 15;

/// One row: what is sent to which cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// GETs that hit or miss, SETs or HSETs of new keys, or a mix.
    pub command: Command,
    /// Commands that each connection sends at once.
    pub depth: usize,
    /// Of eight million keys.
    pub is_large: bool,
}

impl Load {
    /// The rows of a cache that fits anywhere.
    pub const SMALL: [Load; 10] = [
        Load { command: Command::Get, depth: 16, is_large: false },
        Load { command: Command::Get, depth: 1, is_large: false },
        Load { command: Command::Miss, depth: 16, is_large: false },
        Load { command: Command::Miss, depth: 1, is_large: false },
        Load { command: Command::Set, depth: 16, is_large: false },
        Load { command: Command::Set, depth: 1, is_large: false },
        Load { command: Command::Hset, depth: 16, is_large: false },
        Load { command: Command::Hset, depth: 1, is_large: false },
        Load { command: Command::Mix, depth: 16, is_large: false },
        Load { command: Command::Mix, depth: 1, is_large: false },
    ];

    fn written(self) -> Written {
        if self.command == Command::Hset { Written::Hash } else { Written::String }
    }
}

impl FromStr for Load {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (is_large, name) = text.strip_prefix("large-").map_or((false, text), |name| (true, name));
        let (command, depth) = name.split_once('-').unwrap_or((name, ""));
        let command = Command::ALL.into_iter().find(|known| known.name() == command);
        match (command, depth.parse()) {
            (Some(command), Ok(depth @ 1..=1000)) => Ok(Load { command, depth, is_large }),
            _ => bail!(
                "'{text}' is none of get-DEPTH, miss-DEPTH, set-DEPTH, hset-DEPTH, mix-DEPTH, nor large- and one of \
                 these, with 1 to 1000 at once"
            ),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}-{}", if self.is_large { "large-" } else { "" }, self.command.name(), self.depth)
    }
}

/// What is to be measured, and how often.
pub struct FullCache<'a> {
    /// The rows.
    pub loads: &'a [Load],
    /// Keys, commands before all turns and measured ones of each turn, where they aren't the load's own.
    pub n_keys: Option<usize>,
    /// See above.
    pub n_warmup: Option<usize>,
    /// See above.
    pub n_requests: Option<usize>,
    /// How many connections there are.
    pub n_connections: usize,
    /// How many pairs are run of each row.
    pub n_pairs: usize,
    /// Of all random draws.
    pub seed: u64,
    /// The system beside stock.
    pub system: &'a System,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One server in one turn.
#[derive(Clone, Debug, Serialize)]
pub struct FullSide {
    /// Throughput and time.
    #[serde(flatten)]
    pub side: Side,
    /// Keys that the server evicted meanwhile.
    pub n_evicted_by_server: u64,
    /// Keys that the module evicted.
    pub n_evicted_by_module: u64,
    /// Reads that missed.
    pub n_misses: u64,
    /// In how many ns PINGs were answered.
    #[serde(skip)]
    pub pings_ns: Histogram<u64>,
}

/// Two servers under one load, and the second over the first.
#[derive(Clone, Debug, Serialize)]
pub struct FullPair {
    /// Without the module.
    pub stock: FullSide,
    /// With it.
    pub module: FullSide,
    /// With the module over without.
    #[serde(flatten)]
    pub ratios: Ratios,
}

/// All pairs of a row and what they say together.
#[derive(Clone, Debug, Serialize)]
pub struct FullRow {
    /// The load's name.
    pub load: String,
    /// Keys that the cache held at first.
    pub n_keys: usize,
    /// Measured commands of each turn.
    pub n_commands: usize,
    /// In the order in which they were run.
    pub pairs: Vec<FullPair>,
    /// Of all pairs: medians, and the bounds that each lies between.
    #[serde(flatten)]
    pub ratios: RatioSpreads,
    /// The share of evictions that were the module's; `None` where there were none.
    pub evicted_by_module: Option<f64>,
    /// Reads that missed with the module, over stock's; `None` where none did.
    pub misses_ratio: Option<f64>,
    /// 99.9 of 100 of stock's PINGs were answered in so many µs.
    pub ping_us_p999_stock: f64,
    /// With the module so much later, in µs.
    pub ping_us_p999_more: f64,
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub struct FullReport {
    /// When, which server, and where.
    #[serde(flatten)]
    pub venue: Venue,
    /// The system beside stock.
    pub system: String,
    /// Settings of the module, of which the later count.
    pub settings: Vec<(String, String)>,
    /// Settings of the server beside its own.
    pub server_settings: Vec<(String, String)>,
    /// How many connections there were.
    pub n_connections: usize,
    /// Load by load.
    pub rows: Vec<FullRow>,
}

impl FullCache<'_> {
    /// Runs all pairs of all rows. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails, a read misses that should hit or hits that should miss, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<FullReport> {
        let mut setup = self.setup.clone();
        setup.settings.insert(0, ("tenure.watch-busy-percent".into(), BUSY_PERCENT.into()));
        let row = |item, turns: &Turns| self.row(item, &setup, turns);
        let rows = Turns::in_rows((self.loads, self.n_pairs), &self.setup.placement, interrupted, row)?;
        Ok(FullReport {
            venue: self.setup.venue(),
            system: self.system.label.to_string(),
            server_settings: setup.server_settings,
            settings: setup.settings,
            n_connections: self.n_connections,
            rows,
        })
    }

    fn row(&self, load: Load, setup: &Setup, turns: &Turns) -> anyhow::Result<FullRow> {
        let size = self.size(load);
        let (n_run_up, n_connections) = (size.n_requests / RUN_UP_PART, self.n_connections);
        let n_turn = n_run_up + size.n_requests;
        let (held, asked) = streams(load.command, Size { n_requests: self.n_pairs * n_turn, ..size }, self.seed);
        let of = |parts| FullLoad::of(&asked, parts, (load.depth, load.written()), n_connections);
        let begin = |system: &System| {
            let warm_up = of((0..size.n_warmup, 0..0))?;
            let server = system.start(setup, None, held.keys.tenants())?;
            Standing::begin(server, &held, &warm_up, |server| limit(server, load.command))
        };
        let (mut stock, mut module) = (begin(&System::STOCK)?, begin(self.system)?);
        let part = |pair: usize| {
            let (first, end) = (size.n_warmup + pair * n_turn, size.n_warmup + (pair + 1) * n_turn);
            let clock_starts = first + n_run_up;
            of((first..clock_starts, clock_starts..end))
        };
        let name = |system: &System| format!("{load}: {}", system.label);
        let sides = turns.in_pairs(
            self.n_pairs,
            (&name(&System::STOCK), |pair| turn(&mut stock, load.command, &part(pair)?)),
            (&name(self.system), |pair| turn(&mut module, load.command, &part(pair)?)),
        )?;
        let pair = |(stock, module): (FullSide, FullSide)| FullPair {
            ratios: Ratios::of(&stock.side, &module.side),
            stock,
            module,
        };
        Ok(FullRow::of(load, size, sides.into_iter().map(pair).collect()))
    }

    fn size(&self, load: Load) -> Size {
        let default = Size::of(load.command, load.depth, load.is_large);
        Size {
            n_keys: self.n_keys.unwrap_or(default.n_keys),
            n_warmup: self.n_warmup.unwrap_or(default.n_warmup),
            n_requests: self.n_requests.unwrap_or(default.n_requests / TURN_PART),
            ..default
        }
    }
}

/// One server's turn.
fn turn(standing: &mut Standing, command: Command, load: &FullLoad) -> anyhow::Result<FullSide> {
    let ((side, n_misses), counters, pings_ns) = standing.turn(load, |server, connections| {
        let before = Counters::read(server)?;
        let (measured, pings_ns) = while_pinged(server.port(), || {
            let (side, n_misses) = load.measure_with_misses(server, connections, None)?;
            match (command, n_misses) {
                (Command::Miss, 0) => bail!("no read missed, though no key was there"),
                (Command::Miss | Command::Mix, _) | (_, 0) => {}
                _ => bail!("{n_misses} reads missed, though all keys were there"),
            }
            Ok((side, n_misses))
        })?;
        Ok((measured, Counters::read(server)?.since(before), pings_ns))
    })?;
    let n_evicted = counters.n_evicted_by_server + counters.n_evicted_by_module;
    ensure!(command.is_read() || n_evicted > 0, "nothing was evicted: the cache isn't full");
    Ok(FullSide {
        side,
        n_evicted_by_server: counters.n_evicted_by_server,
        n_evicted_by_module: counters.n_evicted_by_module,
        n_misses,
        pings_ns,
    })
}

/// Sets the limit by what the keys take, so that the cache is as full as the load needs.
pub(crate) fn limit(server: &Server, command: Command) -> anyhow::Result<()> {
    let used_bytes: u64 = server.info("memory")?.get("used_memory").context("INFO has no used_memory")?.parse()?;
    let limit_bytes = if command.is_read() { used_bytes * 100 / FULL_PERCENT } else { used_bytes };
    set(server, "maxmemory", &limit_bytes.to_string())
}

impl FullRow {
    fn of(load: Load, size: Size, pairs: Vec<FullPair>) -> FullRow {
        let sum = |count: fn(&FullPair) -> u64| pairs.iter().map(count).sum::<u64>() as f64;
        let own = sum(|pair| pair.module.n_evicted_by_module);
        let servers = sum(|pair| pair.module.n_evicted_by_server);
        let stock_misses = sum(|pair| pair.stock.n_misses);
        let p999 = |side: fn(&FullPair) -> &FullSide| {
            let mut all = latency_histogram();
            pairs.iter().for_each(|pair| all.add(&side(pair).pings_ns).expect("histograms of the same bounds"));
            all.value_at_quantile(0.999) as f64 / 1e3
        };
        let (stock_us, module_us) = (p999(|pair| &pair.stock), p999(|pair| &pair.module));
        FullRow {
            load: load.to_string(),
            n_keys: size.n_keys,
            n_commands: size.n_requests,
            ratios: RatioSpreads::of_medians(&pairs.iter().map(|pair| pair.ratios).collect::<Vec<_>>()),
            evicted_by_module: (own + servers > 0.0).then(|| own / (own + servers)),
            misses_ratio: (stock_misses > 0.0).then(|| sum(|pair| pair.module.n_misses) / stock_misses),
            ping_us_p999_stock: stock_us,
            ping_us_p999_more: module_us - stock_us,
            pairs,
        }
    }

    fn cells(&self) -> Vec<String> {
        let figure = |s: Spread| format!("{:.3} ({:.3}–{:.3})", s.median, s.min, s.max);
        let median = |of: fn(&FullPair) -> f64| spread(self.pairs.iter().map(of)).median;
        vec![
            self.load.clone(),
            self.n_keys.to_string(),
            format!("{:.0}", median(|pair| pair.stock.side.throughput_per_s)),
            figure(self.ratios.throughput_ratio),
            format!("{:.0}", median(|pair| pair.stock.side.cpu_main_ns_per_command)),
            figure(self.ratios.cpu_main_ratio),
            self.evicted_by_module.map_or_else(|| "–".to_string(), |share| format!("{:.0} %", 100.0 * share)),
            self.misses_ratio.map_or_else(|| "–".to_string(), |ratio| format!("{ratio:.3}")),
            format!("{:.0}", self.ping_us_p999_stock),
            format!("{:+.0}", self.ping_us_p999_more),
            format!(
                "{:.0} %",
                100.0 * median(|pair| pair.stock.side.generator_busy.max(pair.module.side.generator_busy))
            ),
        ]
    }
}

impl FullReport {
    /// The report for people.
    pub fn table(&self) -> String {
        let settings = self.server_settings.iter().chain(&self.settings);
        let settings = settings.map(|(name, value)| format!(", {name} {value}"));
        let head = format!(
            "full on {}, {}: {} against stock, {} pairs of turns a row, {} connections{}; {}\n\
             Medians of the pairs, and what each lies between in 19 cases of 20.\n\n",
            self.venue.server,
            self.venue.date,
            self.system,
            self.rows.first().map_or(0, |row| row.pairs.len()),
            self.n_connections,
            settings.collect::<String>(),
            self.venue.placement,
        );
        let header = [
            "load",
            "keys",
            "stock/s",
            "throughput of stock",
            "main thread ns",
            "of stock",
            "evicted by module",
            "misses of stock",
            "PING p99.9 µs",
            "more",
            "generator",
        ];
        let mut rows = vec![header.map(str::to_string).to_vec()];
        rows.extend(self.rows.iter().map(FullRow::cells));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_known_by_name() {
        for name in ["get-16", "miss-16", "set-1", "hset-2", "mix-16", "large-get-16", "large-set-1000"] {
            assert_eq!(name.parse::<Load>().unwrap().to_string(), name);
        }
        for name in ["get", "get-0", "set-1001", "del-1", "small-get-1", ""] {
            assert!(name.parse::<Load>().unwrap_err().to_string().contains("get-DEPTH"), "{name}");
        }
    }
}
