//! Loss: the primary is killed (SIGKILL) in mid-run, and the acknowledged writes that no replica has are counted.
//!
//! Each run starts three servers, lets the clients write new keys for a while, and kills the primary. It takes the
//! replies that were on their way, lets the replicas read all that they were sent, and looks each acknowledged key up
//! on both. So what counts is what a failover that loses nothing by itself would have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use serde::Serialize;
use tenure_core::random::Random;
use tenure_servers::Server;

use super::Way;
use super::trio::Trio;
use super::writers::{Load, Writers, key};
use crate::client::{Connection, Reply};
use crate::comparison::progress_bar;
use crate::report::columns;
use crate::system::{Setup, Venue};

const VALUE_BYTES: usize = 100;
/// The primary lives so long under load, in ms, at the least and at the most.
const LIFE_MS: (u64, u64) = (200, 700);
/// So long before its end the replicas are halted, where they are slowed.
const HALT_MS: (u64, u64) = (300, 800);
/// So long before its end replicas die, where they do.
const DEATH_MS: u64 = 500;
/// What is on its way when both replicas have died has come after so long.
const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// What goes wrong beside the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Nothing.
    Plain,
    /// Nothing; clients send many writes at once.
    Pipelined,
    /// Both replicas stand still from a moment before (SIGSTOP), so that their sockets fill.
    Slowed,
    /// One replica dies before.
    OneDies,
    /// Both die before. What is acknowledged after their death is lost.
    BothDie,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 5] =
        [Scenario::Plain, Scenario::Pipelined, Scenario::Slowed, Scenario::OneDies, Scenario::BothDie];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Plain => "plain",
            Scenario::Pipelined => "pipelined",
            Scenario::Slowed => "slowed",
            Scenario::OneDies => "one-dies",
            Scenario::BothDie => "both-die",
        }
    }
}

impl std::str::FromStr for Scenario {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match Scenario::ALL.into_iter().find(|scenario| scenario.name() == text) {
            Some(scenario) => Ok(scenario),
            None => bail!("'{text}' is none of {}", Scenario::ALL.map(Scenario::name).join(", ")),
        }
    }
}

/// What is to be tried, and how often.
pub struct Loss<'a> {
    /// The ways.
    pub ways: &'a [Way],
    /// What goes wrong beside.
    pub scenarios: &'a [Scenario],
    /// Runs of each.
    pub n_runs: usize,
    /// Clients.
    pub n_connections: usize,
    /// Writes sent at once where they are pipelined.
    pub depth: usize,
    /// Of the times at which things go wrong.
    pub seed: u64,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One way under one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct LossRow {
    /// The way.
    pub way: Way,
    /// What went wrong.
    pub scenario: Scenario,
    /// Runs.
    pub n_runs: usize,
    /// Acknowledged writes of all runs.
    pub n_acknowledged: u64,
    /// Acknowledged writes that no replica has, of all runs; where both died, those acknowledged after that.
    pub n_lost: u64,
    /// Runs in which any was.
    pub n_runs_with_loss: usize,
    /// The most in one run.
    pub n_lost_max: u64,
}

impl LossRow {
    /// Nothing was tried yet.
    fn new(way: Way, scenario: Scenario, n_runs: usize) -> LossRow {
        LossRow { way, scenario, n_runs, n_acknowledged: 0, n_lost: 0, n_runs_with_loss: 0, n_lost_max: 0 }
    }

    /// One more run.
    fn add(&mut self, n_acknowledged: u64, n_lost: u64) {
        self.n_acknowledged += n_acknowledged;
        self.n_lost += n_lost;
        self.n_runs_with_loss += usize::from(n_lost > 0);
        self.n_lost_max = self.n_lost_max.max(n_lost);
    }
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct LossReport {
    /// When, which server, and where.
    #[serde(flatten)]
    pub venue: Venue,
    /// Clients.
    pub n_connections: usize,
    /// Writes sent at once where they were pipelined.
    pub depth: usize,
    /// Of the times at which things went wrong.
    pub seed: u64,
    /// The figures.
    pub rows: Vec<LossRow>,
}

impl Loss<'_> {
    /// Tries everything. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails that should not, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<LossReport> {
        ensure!(self.n_runs > 0 && self.n_connections > 0 && self.depth > 0, "0 runs, connections or writes");
        self.setup.placement.pin_this_thread()?;
        let progress = progress_bar((self.ways.len() * self.scenarios.len() * self.n_runs) as u64);
        let mut random = Random::new(self.seed);
        let mut rows = Vec::new();
        for &scenario in self.scenarios {
            for &way in self.ways {
                let mut row = LossRow::new(way, scenario, self.n_runs);
                for index in 0..self.n_runs {
                    ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                    progress.set_message(format!("{way}, {}, run {} of {}", scenario.name(), index + 1, self.n_runs));
                    let (n_acknowledged, n_lost) = self.run_once(way, scenario, &mut random)?;
                    row.add(n_acknowledged, n_lost);
                    progress.inc(1);
                }
                rows.push(row);
            }
        }
        progress.finish_and_clear();
        Ok(LossReport {
            venue: self.setup.venue(),
            n_connections: self.n_connections,
            depth: self.depth,
            seed: self.seed,
            rows,
        })
    }

    /// Acknowledged writes, and how many of them are lost.
    fn run_once(&self, way: Way, scenario: Scenario, random: &mut Random) -> anyhow::Result<(u64, u64)> {
        let mut trio = Trio::start(self.setup, way)?;
        let depth = if scenario == Scenario::Pipelined { self.depth } else { 1 };
        let load = Load { depth, waits: way == Way::Wait, value_bytes: VALUE_BYTES, n_keys: None };
        let mut writers = Writers::connect(trio.primary.port(), self.n_connections, load)?;
        let mut between = |(min, max): (u64, u64)| min + random.below(max - min);
        writers.run(Duration::from_millis(between(LIFE_MS)))?;
        trio.check_standing(way)?;
        match scenario {
            Scenario::Plain | Scenario::Pipelined => {}
            Scenario::Slowed => {
                trio.halt(true)?;
                writers.run(Duration::from_millis(between(HALT_MS)))?;
            }
            Scenario::OneDies => {
                trio.replicas[between((0, 2)) as usize].kill();
                writers.run(Duration::from_millis(DEATH_MS))?;
            }
            Scenario::BothDie => {
                trio.replicas.iter_mut().for_each(Server::kill);
                writers.run(ON_ITS_WAY)?;
                let before = writers.n_acknowledged();
                writers.run(Duration::from_millis(DEATH_MS))?;
                return Ok((writers.n_acknowledged(), writers.n_acknowledged() - before));
            }
        }
        trio.kill_primary()?;
        writers.finish(Duration::from_secs(10))?;
        ensure!(writers.n_refused == 0, "{} writes were refused", writers.n_refused);
        let acknowledged = writers.acknowledged();
        let n_lost = count_lost(&trio, &acknowledged)?;
        Ok((acknowledged.iter().sum(), n_lost))
    }
}

/// Keys that no replica has, of those acknowledged on each connection.
fn count_lost(trio: &Trio, acknowledged: &[u64]) -> anyhow::Result<u64> {
    let keys = acknowledged.iter().enumerate().flat_map(|(index, n)| (0..*n).map(move |number| key(index, number)));
    let mut missing: Vec<Vec<u8>> = keys.collect();
    for replica in trio.replicas.iter().filter(|replica| replica.is_alive()) {
        missing = missing_on(replica, missing)?;
    }
    Ok(missing.len() as u64)
}

fn missing_on(replica: &Server, keys: Vec<Vec<u8>>) -> anyhow::Result<Vec<Vec<u8>>> {
    const DEPTH: usize = 500;
    let mut connection = Connection::open(replica.port())?;
    let mut missing = Vec::new();
    for batch in keys.chunks(DEPTH) {
        batch.iter().for_each(|key| connection.queue(&[b"EXISTS", key]));
        connection.send()?;
        for key in batch {
            match connection.reply()? {
                Reply::Integer(0) => missing.push(key.clone()),
                Reply::Integer(_) => {}
                other => bail!("EXISTS was answered by {other:?}"),
            }
        }
    }
    Ok(missing)
}

impl LossReport {
    /// The report for people.
    pub fn table(&self) -> String {
        let head = format!(
            "acknowledged writes lost with the primary (SIGKILL), on {}, {}\n\
             two replicas, {} connections, pipelined: {} writes at once, seed {}; {}\n\n",
            self.venue.server, self.venue.date, self.n_connections, self.depth, self.seed, self.venue.placement
        );
        let header = ["scenario", "way", "runs", "acknowledged", "lost", "runs with loss", "most in a run"];
        let mut rows = vec![header.map(str::to_string).to_vec()];
        rows.extend(self.rows.iter().map(|row| {
            vec![
                row.scenario.name().to_string(),
                row.way.to_string(),
                row.n_runs.to_string(),
                row.n_acknowledged.to_string(),
                row.n_lost.to_string(),
                row.n_runs_with_loss.to_string(),
                row.n_lost_max.to_string(),
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
