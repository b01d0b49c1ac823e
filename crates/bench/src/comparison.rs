//! A comparison: every system at every memory size, several times over, in turn, on the same requests.
//!
//! Repetitions are interleaved (stock, tenure, stock, tenure …, the order turned round every other time), so that
//! what the machine does meanwhile falls on all systems alike. What it does for seconds does so where systems take
//! turns: then all are there at once, and who has no turn stands still. Memory is a share of the footprint, and the
//! footprint is what the server itself says: used memory with all keys loaded and no limit, less that of an empty
//! server.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use anyhow::{bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use tenure_core::units::{format_bytes, parse_bytes};

use crate::backend::{BackendSpec, Backends, SlowDown};
use crate::client::Connection;
use crate::client::load_generator::{key_sizes, load_all_keys};
use crate::moment::Moment;
use crate::observation::Memory;
use crate::run::{Conditions, Measurement, Session};
use crate::system::{Setup, System};
use crate::workload::Stream;

/// How much memory the cache may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryLimit {
    /// A share of the footprint, above 0; 0.5 is written 50%.
    Share(f64),
    /// So many bytes, beside what an empty server uses.
    Bytes(u64),
}

impl MemoryLimit {
    /// The `maxmemory` of each of `n_nodes` servers that share it.
    pub fn maxmemory_bytes(self, footprint: Footprint, n_nodes: u64) -> u64 {
        let bytes = match self {
            MemoryLimit::Share(share) => (footprint.keys_bytes as f64 * share) as u64,
            MemoryLimit::Bytes(bytes) => bytes,
        };
        footprint.empty_bytes + bytes / n_nodes
    }
}

impl FromStr for MemoryLimit {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let limit = match text.strip_suffix('%') {
            Some(share) => share.trim().parse().ok().map(|share: f64| MemoryLimit::Share(share / 100.0)),
            None => parse_bytes(text).ok().map(MemoryLimit::Bytes),
        };
        match limit {
            Some(MemoryLimit::Share(share)) if !(share > 0.0 && share <= 100.0) => {
                bail!("memory '{text}' is no share above 0% and up to 10000%")
            }
            Some(limit) => Ok(limit),
            None => bail!("memory '{text}' is neither a share of the footprint (50%) nor bytes (64mb)"),
        }
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryLimit::Share(share) => write!(f, "{}%", (share * 10_000.0).round() / 100.0),
            MemoryLimit::Bytes(bytes) => f.write_str(&format_bytes(*bytes)),
        }
    }
}

/// What a workload's keys take in the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Used memory of an empty server; in a cluster the mean of the nodes.
    pub empty_bytes: u64,
    /// What all keys add to it.
    pub keys_bytes: u64,
}

impl Footprint {
    /// Loads every key of `stream` into a server without module and without limit, or into a cluster of such. Also
    /// says what each key takes, the server's table included; in a cluster nothing of single keys.
    ///
    /// # Errors
    /// When the server does not start or fails under the load.
    pub fn measure(setup: &Setup, stream: &Stream) -> anyhow::Result<(Footprint, Vec<u32>)> {
        if setup.cluster.is_some() {
            return Ok((Footprint::of_cluster(setup, stream)?, Vec::new()));
        }
        let server = System::STOCK.start(setup, None, &[])?;
        let mut connection = Connection::open(server.port())?;
        let empty_bytes = Memory::read(&server)?.used_bytes;
        load_all_keys(&mut connection, stream)?;
        let loaded_bytes = Memory::read(&server)?.used_bytes;
        ensure!(loaded_bytes > empty_bytes, "{} keys take no memory", stream.keys.len());
        let footprint = Footprint { empty_bytes, keys_bytes: loaded_bytes - empty_bytes };
        Ok((footprint, footprint.spread_rest(key_sizes(&mut connection, stream)?)))
    }

    fn of_cluster(setup: &Setup, stream: &Stream) -> anyhow::Result<Footprint> {
        let serving = System::STOCK.serve(setup, None, &[])?;
        let used_bytes = || Memory::read_all(serving.nodes()).map(|memory| memory.used_bytes);
        let mut cache = serving.connect()?;
        // A connection takes memory too.
        let empty_bytes = used_bytes()?;
        cache.load_all_keys(stream)?;
        let loaded_bytes = used_bytes()?;
        ensure!(loaded_bytes > empty_bytes, "{} keys take no memory", stream.keys.len());
        Ok(Footprint { empty_bytes: empty_bytes / setup.n_nodes(), keys_bytes: loaded_bytes - empty_bytes })
    }

    /// Adds to each key's size its share of what belongs to no single key.
    fn spread_rest(self, key_bytes: Vec<u32>) -> Vec<u32> {
        let counted: u64 = key_bytes.iter().map(|&bytes| u64::from(bytes)).sum();
        let rest = self.keys_bytes.saturating_sub(counted) / key_bytes.len().max(1) as u64;
        key_bytes.into_iter().map(|bytes| bytes.saturating_add(rest as u32)).collect()
    }
}

/// What is to be compared, and how often.
pub struct Comparison<'a> {
    /// The requests.
    pub stream: &'a Stream,
    /// The backends.
    pub backend: &'a BackendSpec,
    /// Which of them slows down, and when.
    pub slow_down: Option<SlowDown>,
    /// Rows of the databases among them.
    pub n_rows: u64,
    /// The systems, the first one being what others are compared with.
    pub systems: &'a [System],
    /// The memory sizes.
    pub memory: &'a [MemoryLimit],
    /// How often each is run.
    pub n_repetitions: usize,
    /// In how many turns each measures its requests, while the others stand still; 1: one system after the other.
    pub n_turns: usize,
    /// How many clients ask at once.
    pub n_connections: usize,
    /// Into how many bins each run is cut for its timeline.
    pub n_bins: usize,
    /// When the server is restarted in each run, if it is.
    pub restart: Option<Moment>,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which system, as an index.
    pub system: usize,
    /// Which memory size, as an index.
    pub memory: usize,
    /// Which repetition, from 0.
    pub repetition: usize,
    /// The limit of each server.
    pub maxmemory_bytes: u64,
    /// What came of it.
    pub measurement: Measurement,
}

/// All that a comparison found.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Of all keys together.
    pub footprint: Footprint,
    /// What each key takes of it.
    pub key_bytes: Vec<u32>,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

impl Comparison<'_> {
    /// Runs everything. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server, a client or a backend fails, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<Compared> {
        ensure!(
            self.setup.cluster.is_none() || self.stream.scans.is_empty(),
            "{} asks for several keys at once, which lie on several nodes of a cluster",
            self.stream.name
        );
        if let Some(moment) = self.restart {
            let is_before = moment.first_request(self.stream) > self.stream.n_warmup;
            ensure!(is_before, "a restart at {moment} leaves no request before it to compare with");
        }
        ensure!(
            (1..=self.stream.n_measured()).contains(&self.n_turns),
            "{} turns for {} measured requests",
            self.n_turns,
            self.stream.n_measured()
        );
        if self.n_turns > 1 {
            // Nodes of a cluster take one that stands still for dead.
            ensure!(self.setup.cluster.is_none(), "the nodes of a cluster don't take turns");
            ensure!(self.restart.is_none(), "who is restarted takes no turns");
            ensure!(self.stream.pace.is_none(), "{} has a pace, and takes no turns", self.stream.name);
        }
        self.setup.placement.pin_this_thread()?;
        let n_runs = self.n_repetitions * self.memory.len() * self.systems.len();
        let progress = progress_bar((n_runs * self.stream.requests.len()) as u64);
        progress.set_message("loading all keys to measure the footprint");
        let (footprint, key_bytes) = Footprint::measure(self.setup, self.stream)?;
        progress.set_message(format!("starting the backend {}", self.backend));
        let backends = Backends::start(self.backend, self.n_rows, self.slow_down)?;
        let Comparison { stream, setup, n_connections, n_bins, n_turns, restart, .. } = *self;
        let (backends, progress) = (&backends, &progress);
        let conditions =
            Conditions { stream, backends, setup, n_connections, n_bins, n_turns, restart, progress, interrupted };
        let mut runs = Vec::with_capacity(n_runs);
        for repetition in 0..self.n_repetitions {
            for (memory, &limit) in self.memory.iter().enumerate() {
                let maxmemory_bytes = limit.maxmemory_bytes(footprint, setup.n_nodes());
                let order = self.order(repetition);
                let at_once = if n_turns > 1 { order.len() } else { 1 };
                for systems in order.chunks(at_once) {
                    progress.set_position((runs.len() * stream.requests.len()) as u64);
                    let name = |label: &str| {
                        let n = self.n_repetitions;
                        progress.set_message(format!("{label}, memory {limit}, repetition {} of {n}", repetition + 1));
                    };
                    let measured = self.measure(&conditions, systems, maxmemory_bytes, name)?;
                    let run = |(&system, measurement)| Run { system, memory, repetition, maxmemory_bytes, measurement };
                    runs.extend(systems.iter().zip(measured).map(run));
                }
            }
        }
        progress.finish_and_clear();
        Ok(Compared { footprint, key_bytes, runs })
    }

    /// Measures these systems, by turns where there are several, and says in the same order what came of each. `name`
    /// is told whose turn it is.
    fn measure(
        &self,
        conditions: &Conditions,
        systems: &[usize],
        maxmemory_bytes: u64,
        name: impl Fn(&str),
    ) -> anyhow::Result<Vec<Measurement>> {
        let (mut sessions, are_several) = (Vec::with_capacity(systems.len()), systems.len() > 1);
        for &system in systems {
            name(self.systems[system].label);
            let session = Session::begin(conditions, &self.systems[system], maxmemory_bytes)?;
            if are_several {
                session.halt()?;
            }
            sessions.push(session);
        }
        for turn in 0..self.n_turns {
            let range = self.turn(turn);
            let mut take = |at: usize| {
                name(self.systems[systems[at]].label);
                if !are_several {
                    return sessions[at].measure(range.clone());
                }
                sessions[at].resume()?;
                sessions[at].measure(range.clone())?;
                sessions[at].halt()
            };
            // As repetitions do.
            match turn % 2 {
                0 => (0..systems.len()).try_for_each(&mut take)?,
                _ => (0..systems.len()).rev().try_for_each(&mut take)?,
            }
        }
        sessions.into_iter().map(Session::end).collect()
    }

    /// The requests of a turn, counted from 0: as many in each, and as a timeline of so many stretches has them.
    fn turn(&self, turn: usize) -> Range<usize> {
        let begins_at = |turn: usize| self.stream.n_warmup + (turn * self.stream.n_measured()).div_ceil(self.n_turns);
        begins_at(turn)..begins_at(turn + 1)
    }

    /// The systems in the order in which they are run.
    fn order(&self, repetition: usize) -> Vec<usize> {
        let systems = 0..self.systems.len();
        if repetition.is_multiple_of(2) { systems.collect() } else { systems.rev().collect() }
    }
}

/// A bar on standard error, invisible where that is no terminal.
pub fn progress_bar(n: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}\n{wide_bar} {percent}% of {human_len}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let progress = ProgressBar::new(n).with_style(style);
    progress.enable_steady_tick(std::time::Duration::from_millis(500));
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_no_key_is_shared_by_all() {
        let footprint = Footprint { empty_bytes: 7, keys_bytes: 130 };
        assert_eq!(footprint.spread_rest(vec![40, 60]), [55, 75]);
    }

    #[test]
    fn limits_are_read_and_bad_ones_refused() {
        let footprint = Footprint { empty_bytes: 1000, keys_bytes: 500 };
        for (text, bytes) in [("50%", 1250), ("10%", 1050), ("0.4%", 1002), ("100%", 1500), ("2kb", 3048)] {
            let limit: MemoryLimit = text.parse().unwrap();
            assert_eq!(limit.maxmemory_bytes(footprint, 1), bytes, "{text}");
        }
        assert_eq!(MemoryLimit::Share(0.6).maxmemory_bytes(footprint, 3), 1100);
        assert_eq!("12.5%".parse::<MemoryLimit>().unwrap().to_string(), "12.5%");
        for text in ["0%", "-5%", "nan%", "x", "", "20000%"] {
            assert!(text.parse::<MemoryLimit>().unwrap_err().to_string().contains("memory"), "{text}");
        }
    }
}
