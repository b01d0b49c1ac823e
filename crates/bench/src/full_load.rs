//! Pairs of servers under full load, one after the other: what [`full_cache`](crate::full_cache),
//! [`no_harm`](crate::no_harm), [`scale`](crate::scale) and [`tiers`](crate::tiers) share.
//!
//! All keys are there and every read hits, but for traces (`workload::tiers`). The order is turned round every other
//! time. The figures are ratios within a pair, since the machine's speed drifts by more from minute to minute than what
//! is measured. Each pair is two fresh servers, or the next parts of the load on two that stay: what is to be told
//! within a hundredth has to be measured within seconds. Throughput is bounded by the busier of the two cores; core
//! time per command is the server's alone and therefore the finer figure.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use indicatif::ProgressBar;
use serde::Serialize;
use tenure_servers::Server;

use crate::client::Connection;
use crate::client::load_generator::{Batches, Latencies, Written, drive, load_all_keys};
use crate::comparison::progress_bar;
use crate::observation::{Counters, this_thread_s};
use crate::placement::Placement;
use crate::statistics::Spread;
use crate::workload::Stream;

/// Before the clock starts a turn has such a part of the commands that are measured: the server stood still.
pub const RUN_UP_PART: usize = 4;

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

/// One server over another under the same load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratios {
    /// Throughput: 1 is no harm, 0.99 is one per cent less.
    pub throughput_ratio: f64,
    /// Core time per command.
    pub cpu_ratio: f64,
    /// The same of the main thread alone.
    pub cpu_main_ratio: f64,
}

impl Ratios {
    /// Those of `other` over `base`.
    pub fn of(base: &Side, other: &Side) -> Ratios {
        Ratios {
            throughput_ratio: other.throughput_per_s / base.throughput_per_s,
            cpu_ratio: other.cpu_ns_per_command / base.cpu_ns_per_command,
            cpu_main_ratio: other.cpu_main_ns_per_command / base.cpu_main_ns_per_command,
        }
    }
}

/// Median and spread of the ratios of several pairs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RatioSpreads {
    /// Of throughput.
    pub throughput_ratio: Spread,
    /// Of core time per command.
    pub cpu_ratio: Spread,
    /// Of the main thread's.
    pub cpu_main_ratio: Spread,
}

impl RatioSpreads {
    /// Of these pairs; not numbers where there are none.
    pub fn of(ratios: &[Ratios]) -> RatioSpreads {
        RatioSpreads::each(|ratio| spread(ratios.iter().map(ratio)))
    }

    /// The same with the bounds of the median ([`Spread::of_median`]): for pairs too short to tell much each.
    pub fn of_medians(ratios: &[Ratios]) -> RatioSpreads {
        RatioSpreads::each(|ratio| Spread::of_median(ratios.iter().map(ratio)).unwrap_or(NONE))
    }

    fn each(spread: impl Fn(fn(&Ratios) -> f64) -> Spread) -> RatioSpreads {
        RatioSpreads {
            throughput_ratio: spread(|ratios| ratios.throughput_ratio),
            cpu_ratio: spread(|ratios| ratios.cpu_ratio),
            cpu_main_ratio: spread(|ratios| ratios.cpu_main_ratio),
        }
    }
}

/// Of nothing.
const NONE: Spread = Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };

/// Median and spread; not numbers where there are none.
pub fn spread(values: impl IntoIterator<Item = f64>) -> Spread {
    Spread::of(values).unwrap_or(NONE)
}

/// A stream's requests, encoded, and how many connections send them.
pub struct FullLoad<'a> {
    stream: &'a Stream,
    n_connections: usize,
    /// In two halves.
    warmup: [Batches; 2],
    measured: Batches,
}

impl<'a> FullLoad<'a> {
    /// The requests of `stream` over so many connections, each of which sends `depth` commands at once.
    ///
    /// # Errors
    /// Without connections or commands.
    pub fn new(stream: &'a Stream, depth: usize, n_connections: usize) -> anyhow::Result<FullLoad<'a>> {
        let parts = (0..stream.n_warmup, stream.n_warmup..stream.requests.len());
        FullLoad::of(stream, parts, (depth, Written::String), n_connections)
    }

    /// The same with other requests before the measurement, and in it: their places in the stream. And with what
    /// writes make.
    ///
    /// # Errors
    /// As [`FullLoad::new`].
    pub fn of(
        stream: &'a Stream,
        (warmup, measured): (Range<usize>, Range<usize>),
        (depth, written): (usize, Written),
        n_connections: usize,
    ) -> anyhow::Result<FullLoad<'a>> {
        ensure!(depth > 0 && n_connections > 0, "0 connections or commands");
        let (warmup, measured) = (&stream.requests[warmup], &stream.requests[measured]);
        let (first, second) = warmup.split_at(warmup.len() / 2);
        let encode = |requests| Batches::encode(stream, requests, depth, written);
        Ok(FullLoad { stream, n_connections, warmup: [first, second].map(encode), measured: encode(measured) })
    }

    /// Writes all keys to `server` and connects.
    ///
    /// # Errors
    /// When the server fails.
    pub fn begin(&self, server: &Server) -> anyhow::Result<Vec<Connection>> {
        load_all_keys(&mut Connection::open(server.port())?, self.stream)?;
        self.begin_empty(server)
    }

    /// Connects alone: the requests bring their keys.
    ///
    /// # Errors
    /// When the server fails.
    pub fn begin_empty(&self, server: &Server) -> anyhow::Result<Vec<Connection>> {
        (0..self.n_connections).map(|_| Connection::open(server.port())).collect()
    }

    /// Sends what comes before the measurement.
    ///
    /// # Errors
    /// When the server fails.
    pub fn warm_up(&self, connections: &mut [Connection]) -> anyhow::Result<()> {
        self.warm_up_with_pause(connections, || Ok(()))
    }

    /// The same, with something to do after half of it.
    ///
    /// # Errors
    /// When the server fails, and those of `pause`.
    pub fn warm_up_with_pause(
        &self,
        connections: &mut [Connection],
        pause: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        drive(connections, &self.warmup[0], None)?;
        pause()?;
        drive(connections, &self.warmup[1], None).map(drop)
    }

    /// Sends the rest and measures; each command's latency too where they are asked for.
    ///
    /// # Errors
    /// When the server fails or a read misses.
    pub fn measure(
        &self,
        server: &Server,
        connections: &mut [Connection],
        latencies: Option<&mut Latencies>,
    ) -> anyhow::Result<Side> {
        let (side, n_misses) = self.measure_with_misses(server, connections, latencies)?;
        ensure!(n_misses == 0, "{n_misses} of {} reads missed, though everything fits", self.stream.n_measured());
        Ok(side)
    }

    /// The same where a read may miss; returns how many did.
    ///
    /// # Errors
    /// When the server fails.
    pub fn measure_with_misses(
        &self,
        server: &Server,
        connections: &mut [Connection],
        latencies: Option<&mut Latencies>,
    ) -> anyhow::Result<(Side, u64)> {
        let (before, generator_before) = (Counters::read(server)?, this_thread_s()?);
        let load = drive(connections, &self.measured, latencies)?;
        let generator_s = this_thread_s()? - generator_before;
        let counters = Counters::read(server)?.since(before);
        let per_command = |seconds: f64| seconds * 1e9 / load.n_commands as f64;
        let side = Side {
            throughput_per_s: load.n_commands as f64 / load.elapsed.as_secs_f64(),
            cpu_ns_per_command: per_command(counters.cpu_s),
            cpu_main_ns_per_command: per_command(counters.cpu_main_s),
            generator_busy: generator_s / load.elapsed.as_secs_f64(),
        };
        Ok((side, load.n_misses))
    }
}

/// A server that stays for several turns, and stands still while it has none: its worker would take the other's time.
pub struct Standing {
    server: Server,
    connections: Vec<Connection>,
}

impl Standing {
    /// Fills `server` with the keys of `held`, lets `prepare` set it, and sends what comes before all turns.
    ///
    /// # Errors
    /// When the server fails.
    pub fn begin(
        server: Server,
        held: &Stream,
        before: &FullLoad,
        prepare: impl FnOnce(&Server) -> anyhow::Result<()>,
    ) -> anyhow::Result<Standing> {
        load_all_keys(&mut Connection::open(server.port())?, held)?;
        prepare(&server)?;
        let mut connections = before.begin_empty(&server)?;
        before.warm_up(&mut connections)?;
        server.halt()?;
        Ok(Standing { server, connections })
    }

    /// One turn: what comes before the measurement of `load`, since the server stood still, and then `measure`.
    ///
    /// # Errors
    /// When the server fails, and those of `measure`.
    pub fn turn<T>(
        &mut self,
        load: &FullLoad,
        measure: impl FnOnce(&Server, &mut [Connection]) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Standing { server, connections } = self;
        server.resume()?;
        load.warm_up(connections)?;
        let measured = measure(server, connections)?;
        server.halt()?;
        Ok(measured)
    }
}

/// A long row of servers, which the user watches and may interrupt.
pub struct Turns<'a> {
    /// One step per server.
    pub progress: &'a ProgressBar,
    /// Set when there is to be an end.
    pub interrupted: &'a AtomicBool,
}

impl Turns<'_> {
    /// One server's turn.
    ///
    /// # Errors
    /// Those of `run`, and when the user interrupts.
    pub fn take<T>(&self, name: String, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        self.progress.set_message(name);
        let done = run();
        self.progress.inc(1);
        done
    }

    /// Pairs of servers for each of `items`, as `row` measures them. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// Those of `row`, and of pinning.
    pub fn in_rows<T: Copy, R>(
        (items, n_pairs): (&[T], usize),
        placement: &Placement,
        interrupted: &AtomicBool,
        row: impl Fn(T, &Turns) -> anyhow::Result<R>,
    ) -> anyhow::Result<Vec<R>> {
        ensure!(n_pairs > 0 && !items.is_empty(), "0 pairs or rows");
        placement.pin_this_thread()?;
        let progress = progress_bar((2 * n_pairs * items.len()) as u64);
        let turns = Turns { progress: &progress, interrupted };
        let rows = items.iter().map(|&item| row(item, &turns)).collect::<anyhow::Result<_>>()?;
        progress.finish_and_clear();
        Ok(rows)
    }

    /// `n` pairs of two servers, each with its name, the order turned round every other time. Each is told which pair
    /// it is.
    ///
    /// # Errors
    /// As of a server's turn.
    pub fn in_pairs<A, B>(
        &self,
        n: usize,
        (first_name, mut first): (&str, impl FnMut(usize) -> anyhow::Result<A>),
        (second_name, mut second): (&str, impl FnMut(usize) -> anyhow::Result<B>),
    ) -> anyhow::Result<Vec<(A, B)>> {
        let mut pairs = Vec::with_capacity(n);
        for index in 0..n {
            let name = |of: &str| format!("{of}, pair {} of {n}", index + 1);
            pairs.push(if index % 2 == 0 {
                let a = self.take(name(first_name), || first(index))?;
                (a, self.take(name(second_name), || second(index))?)
            } else {
                let b = self.take(name(second_name), || second(index))?;
                (self.take(name(first_name), || first(index))?, b)
            });
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn pairs_take_turns_in_going_first() {
        let order = RefCell::new(String::new());
        let note = |letter: char, value: usize| {
            order.borrow_mut().push(letter);
            Ok(value)
        };
        let (progress, interrupted) = (ProgressBar::hidden(), AtomicBool::new(false));
        let turns = Turns { progress: &progress, interrupted: &interrupted };
        let run = || turns.in_pairs(3, ("a", |pair| note('a', pair)), ("b", |pair| note('b', 10 * pair)));
        assert_eq!(run().unwrap(), [(0, 0), (1, 10), (2, 20)]);
        assert_eq!((order.borrow().as_str(), progress.position()), ("abbaab", 6));
        interrupted.store(true, Ordering::Relaxed);
        assert_eq!(run().unwrap_err().to_string(), "interrupted");
        assert_eq!(order.borrow().len(), 6);
    }

    #[test]
    fn ratios_are_the_second_over_the_first() {
        let side = |throughput_per_s, cpu_ns_per_command, cpu_main_ns_per_command| Side {
            throughput_per_s,
            cpu_ns_per_command,
            cpu_main_ns_per_command,
            generator_busy: 0.5,
        };
        let ratios = Ratios::of(&side(100.0, 10.0, 8.0), &side(95.0, 12.0, 10.0));
        let all = RatioSpreads::of(&[ratios, Ratios { throughput_ratio: 1.05, ..ratios }]);
        assert_eq!(all.throughput_ratio, Spread { median: 1.0, min: 0.95, max: 1.05 });
        assert_eq!((all.cpu_ratio.median, all.cpu_main_ratio.max), (1.2, 1.25));
        assert!(RatioSpreads::of(&[]).cpu_ratio.median.is_nan());
    }
}
