//! What the module costs as keys grow: caches of several sizes, stock beside module, and the slope of each figure.
//!
//! Each server is loaded, let alone, read, written to at its limit, saved by a child, stopped, and started with what
//! was saved. A PING each millisecond beside it shows the longest turn. Nothing is written while the child saves, so
//! that memory is enough for a cache that fills most of a machine; GETs go on at a trickle. Values compress well, so
//! the core's time decides how long a snapshot takes, not the disk. A slope is what a million keys more cost, between
//! the smallest and the largest size, by medians.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;
use tenure_servers::Server;

use crate::client::Connection;
use crate::client::load_generator::load_all_keys;
use crate::client::probe::while_pinged;
use crate::full_cache::limit;
use crate::full_load::{FullLoad, Turns, spread};
use crate::observation::{Counters, Memory, cpu_s};
use crate::report::columns;
use crate::statistics::Spread;
use crate::system::{Setup, System, Venue};
use crate::workload::Stream;
use crate::workload::full::{Command, Size, streams};

/// Commands that each connection sends at once.
const DEPTH: usize = 16;
/// How long a server is let alone, for what it does by the clock.
const ALONE: Duration = Duration::from_secs(3);
/// A child that saves twelve gigabytes takes a minute or two.
const SAVE_DEADLINE: Duration = Duration::from_secs(1800);
/// What a million keys more cost is what is asked for.
const KEYS_OF_SLOPE: f64 = 1e6;

/// What is to be measured, and how often.
pub struct Scale<'a> {
    /// So many keys at first, one cache after the other.
    pub sizes: &'a [usize],
    /// Measured commands, where they aren't as many as of a full cache.
    pub n_requests: Option<usize>,
    /// How many connections there are.
    pub n_connections: usize,
    /// How many pairs are run of each size.
    pub n_pairs: usize,
    /// Of all random draws.
    pub seed: u64,
    /// The system beside stock.
    pub system: &'a System,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// A figure of one server, by its name with the unit.
type Figures = Vec<(&'static str, f64)>;

/// One figure of one size.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleFigure {
    /// What it is, with its unit.
    pub name: &'static str,
    /// Of stock, where it has such a thing.
    pub stock: Option<Spread>,
    /// With the module.
    pub module: Spread,
    /// With the module over without, pair by pair.
    pub ratio: Option<Spread>,
}

/// One size.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleRow {
    /// Keys at first.
    pub n_keys: usize,
    /// All that was measured, in the order of the run.
    pub figures: Vec<ScaleFigure>,
}

/// All sizes.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    /// When, which server, and where.
    #[serde(flatten)]
    pub venue: Venue,
    /// The system beside stock.
    pub system: String,
    /// How many pairs were run of each size.
    pub n_pairs: usize,
    /// Size by size.
    pub rows: Vec<ScaleRow>,
}

impl Scale<'_> {
    /// Runs all pairs of all sizes. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails or a read misses, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<ScaleReport> {
        let row = |item, turns: &Turns| self.row(item, turns);
        let rows = Turns::in_rows((self.sizes, self.n_pairs), &self.setup.placement, interrupted, row)?;
        Ok(ScaleReport {
            venue: self.setup.venue(),
            system: self.system.label.to_string(),
            n_pairs: self.n_pairs,
            rows,
        })
    }

    fn row(&self, n_keys: usize, turns: &Turns) -> anyhow::Result<ScaleRow> {
        let size = |command| {
            let size = Size::of(command, DEPTH, true);
            Size { n_keys, n_requests: self.n_requests.unwrap_or(size.n_requests), ..size }
        };
        let (held, read) = streams(Command::Get, size(Command::Get), self.seed);
        let (_, written) = streams(Command::Set, size(Command::Set), self.seed);
        let loads = Loads {
            held: &held,
            reads: FullLoad::new(&read, DEPTH, self.n_connections)?,
            writes: FullLoad::new(&written, DEPTH, self.n_connections)?,
        };
        let side = |system: &System| self.side(system, &loads);
        let name = |system: &System| format!("{n_keys} keys: {}", system.label);
        let pairs = turns.in_pairs(
            self.n_pairs,
            (&name(&System::STOCK), |_| side(&System::STOCK)),
            (&name(self.system), |_| side(self.system)),
        )?;
        Ok(ScaleRow::of(n_keys, &pairs))
    }

    /// One server from its start to its second start.
    fn side(&self, system: &System, loads: &Loads) -> anyhow::Result<Figures> {
        let mut server = system.start(self.setup, None, loads.held.keys.tenants())?;
        let mut figures = Figures::new();
        let began = Instant::now();
        load_all_keys(&mut Connection::open(server.port())?, loads.held)?;
        figures.push(("load, s", began.elapsed().as_secs_f64()));
        limit(&server, Command::Get)?;
        let_alone(&server, &mut figures)?;
        full("GET", &server, &loads.reads, &mut figures)?;
        limit(&server, Command::Set)?;
        full("SET at the limit", &server, &loads.writes, &mut figures)?;
        memory(&server, &mut figures)?;
        save(&server, &mut figures)?;
        let stopping = Instant::now();
        server.stop()?;
        figures.push(("stop, s", stopping.elapsed().as_secs_f64()));
        let starting = Instant::now();
        server.restart()?;
        figures.push(("start, s", starting.elapsed().as_secs_f64()));
        // A run of many keys takes an hour: what was measured is told as it comes.
        eprintln!("{} keys, {}: {figures:.2?}", loads.held.keys.len(), system.label);
        Ok(figures)
    }
}

/// What is sent to each server of a size.
struct Loads<'a> {
    held: &'a Stream,
    reads: FullLoad<'a>,
    writes: FullLoad<'a>,
}

/// A field of INFO tenure as a number; `None` of stock.
fn field(server: &Server, name: &str) -> anyhow::Result<Option<f64>> {
    Ok(server.info("tenure")?.get(name).and_then(|value| value.parse().ok()))
}

/// What the server does by itself: the census, and the server's own cron.
fn let_alone(server: &Server, figures: &mut Figures) -> anyhow::Result<()> {
    let visited = || field(server, "tenure_visited_keys");
    let (before, before_s, began) = (visited()?, cpu_s(server.pid())?, Instant::now());
    let (_, pings) = while_pinged(server.port(), || {
        thread::sleep(ALONE);
        Ok(())
    })?;
    let (after_s, seconds) = (cpu_s(server.pid())?, began.elapsed().as_secs_f64());
    figures.push(("alone: main thread, ms/s", (after_s.0 - before_s.0) * 1e3 / seconds));
    figures.push(("alone: longest PING, ms", pings.max() as f64 / 1e6));
    if let Some((before, after)) = before.zip(visited()?) {
        let n_keys: u64 = server.call(&["DBSIZE"])?;
        figures.push(("alone: a round of the census, min", n_keys as f64 * seconds / (after - before) / 60.0));
    }
    Ok(())
}

/// A load as fast as it goes. Names of figures are known at compile time, so the kind chooses among them.
fn full(kind: &str, server: &Server, load: &FullLoad, figures: &mut Figures) -> anyhow::Result<()> {
    let names: [&'static str; 6] = if kind == "GET" {
        [
            "GET: a second",
            "GET: PING p99.9, ms",
            "GET: longest PING, ms",
            "GET: windows a second",
            "GET: curves, ms",
            "GET: plan, ms",
        ]
    } else {
        [
            "SET at the limit: a second",
            "SET: PING p99.9, ms",
            "SET: longest PING, ms",
            "SET: windows a second",
            "SET: curves, ms",
            "SET: plan, ms",
        ]
    };
    let mut connections = load.begin_empty(server)?;
    load.warm_up(&mut connections)?;
    let (before, windows) = (Counters::read(server)?, field(server, "tenure_windows")?);
    let eviction_us = field(server, "tenure_eviction_us")?;
    let ((side, seconds), pings) = while_pinged(server.port(), || {
        let began = Instant::now();
        let (side, _) = load.measure_with_misses(server, &mut connections, None)?;
        Ok((side, began.elapsed().as_secs_f64()))
    })?;
    figures.push((names[0], side.throughput_per_s));
    figures.push((names[1], pings.value_at_quantile(0.999) as f64 / 1e6));
    figures.push((names[2], pings.max() as f64 / 1e6));
    if let Some((before, after)) = windows.zip(field(server, "tenure_windows")?) {
        figures.push((names[3], (after - before) / seconds));
        for (name, of) in [(names[4], "tenure_curves_us"), (names[5], "tenure_plan_us")] {
            figures.push((name, field(server, of)?.context("INFO has no such field")? / 1e3));
        }
    }
    let counters = Counters::read(server)?.since(before);
    if let Some((before, after)) = eviction_us.zip(field(server, "tenure_eviction_us")?)
        && counters.n_evicted_by_module > 0
    {
        let n_evicted = counters.n_evicted_by_module as f64;
        figures.push(("SET: µs an eviction of the module's", (after - before) / n_evicted));
        figures.push((
            "SET: evicted by the module, %",
            100.0 * n_evicted / (n_evicted + counters.n_evicted_by_server as f64),
        ));
        let longest = field(server, "tenure_eviction_slice_us_max")?.context("INFO has no such field")?;
        figures.push(("SET: longest slice of evictions, ms", longest / 1e3));
    }
    Ok(())
}

/// Megabytes of it all.
fn memory(server: &Server, figures: &mut Figures) -> anyhow::Result<()> {
    let memory = Memory::read(server)?;
    figures.push(("used_memory, MB", memory.used_bytes as f64 / 1e6));
    figures.push(("resident, MB", memory.resident_bytes as f64 / 1e6));
    let of_module = [
        ("of the module, MB", "tenure_memory_bytes"),
        ("table of keys, MB", "tenure_key_table_bytes"),
        ("models, MB", "tenure_models_bytes"),
    ];
    for (name, of) in of_module {
        if let Some(bytes) = field(server, of)? {
            figures.push((name, bytes / 1e6));
        }
    }
    Ok(())
}

/// A child saves all of it, while GETs trickle.
fn save(server: &Server, figures: &mut Figures) -> anyhow::Result<()> {
    let mut reader = Connection::open(server.port())?;
    let (seconds, pings) = while_pinged(server.port(), || {
        let began = Instant::now();
        server.call::<String>(&["BGSAVE"])?;
        tenure_servers::wait_for(SAVE_DEADLINE, "the child to have saved", || {
            let is_read = reader.call(&[b"GET", b"b0:000000000001"]).is_ok();
            thread::sleep(Duration::from_millis(8));
            is_read
                && server
                    .info("persistence")
                    .is_ok_and(|info| info.get("rdb_bgsave_in_progress").is_some_and(|n| n == "0"))
        })?;
        Ok(began.elapsed().as_secs_f64())
    })?;
    let info = server.info("persistence")?;
    ensure!(info.get("rdb_last_bgsave_status").is_some_and(|status| status == "ok"), "the child failed to save");
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<f64>().ok()).context("INFO lacks a field");
    figures.push(("BGSAVE, s", seconds));
    figures.push(("BGSAVE: fork, ms", number(server.info("stats")?.get("latest_fork_usec"))? / 1e3));
    figures.push(("BGSAVE: longest PING, ms", pings.max() as f64 / 1e6));
    figures.push(("BGSAVE: copied, MB", number(info.get("rdb_last_cow_size"))? / 1e6));
    Ok(())
}

impl ScaleRow {
    fn of(n_keys: usize, pairs: &[(Figures, Figures)]) -> ScaleRow {
        let find = |figures: &Figures, name| figures.iter().find(|(of, _)| *of == name).map(|&(_, value)| value);
        let names = pairs.first().map(|(_, module)| module.iter().map(|&(name, _)| name)).into_iter().flatten();
        let figure = |name| {
            let of = |value: &dyn Fn(&(Figures, Figures)) -> Option<f64>| Spread::of(pairs.iter().filter_map(value));
            ScaleFigure {
                name,
                stock: of(&|(stock, _)| find(stock, name)),
                module: spread(pairs.iter().filter_map(|(_, module)| find(module, name))),
                ratio: of(&|(stock, module)| Some(find(module, name)? / find(stock, name)?)),
            }
        };
        ScaleRow { n_keys, figures: names.map(figure).collect() }
    }

    fn find(&self, name: &str) -> Option<&ScaleFigure> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

impl ScaleReport {
    /// What a million keys more cost of that figure, stock and module; of one size alone nothing is known.
    fn slope(&self, name: &str) -> Option<(Option<f64>, f64)> {
        let (least, most) =
            (self.rows.iter().min_by_key(|row| row.n_keys)?, self.rows.iter().max_by_key(|row| row.n_keys)?);
        let more = (most.n_keys - least.n_keys) as f64 / KEYS_OF_SLOPE;
        let (least, most) = (least.find(name)?, most.find(name)?);
        let by = |from: f64, to: f64| (to - from) / more;
        let stock = least.stock.zip(most.stock).map(|(from, to)| by(from.median, to.median));
        (more > 0.0).then(|| (stock, by(least.module.median, most.module.median)))
    }

    /// The report for people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "scale on {}, {}: {} against stock, {} pairs a size; {}\n",
            self.venue.server, self.venue.date, self.system, self.n_pairs, self.venue.placement,
        );
        let number = |value: f64| if value.abs() < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") };
        let optional = |value: Option<f64>| value.map_or_else(|| "–".to_string(), number);
        for row in &self.rows {
            let header = ["figure", "stock", "module", "module (range)", "of stock", "a million keys more", "stock's"];
            let mut rows = vec![header.map(str::to_string).to_vec()];
            for figure in &row.figures {
                let slope = self.slope(figure.name);
                rows.push(vec![
                    figure.name.to_string(),
                    optional(figure.stock.map(|stock| stock.median)),
                    number(figure.module.median),
                    format!("{}–{}", number(figure.module.min), number(figure.module.max)),
                    figure.ratio.map_or_else(
                        || "–".to_string(),
                        |ratio| format!("{:.3} ({:.3}–{:.3})", ratio.median, ratio.min, ratio.max),
                    ),
                    optional(slope.map(|(_, module)| module)),
                    optional(slope.and_then(|(stock, _)| stock)),
                ]);
            }
            text += &format!("\n{} keys\n\n{}", row.n_keys, columns(&rows));
        }
        text
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
    fn a_slope_is_what_a_million_keys_more_cost() {
        let row = |n_keys, stock, module| {
            ScaleRow::of(n_keys, &[(vec![("start, s", stock)], vec![("start, s", module), ("plan, ms", 2.0 * module)])])
        };
        let mut report = ScaleReport {
            venue: Venue::default(),
            system: String::new(),
            n_pairs: 1,
            rows: vec![row(2_000_000, 1.0, 1.5), row(12_000_000, 11.0, 21.5)],
        };
        assert_eq!(report.slope("start, s"), Some((Some(1.0), 2.0)));
        assert_eq!(report.slope("plan, ms"), Some((None, 4.0)));
        assert_eq!(report.rows[1].find("start, s").unwrap().ratio.unwrap().median, 21.5 / 11.0);
        assert_eq!(report.rows[1].find("plan, ms").unwrap().ratio.map(|ratio| ratio.median), None);
        report.rows.pop();
        assert_eq!(report.slope("start, s"), None);
    }
}
