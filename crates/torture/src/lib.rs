//! Checked reads: clients that know what each reply may be, beside whatever a server is put through.
//!
//! Each client ([`client`]) owns the keys behind its own hash tag, so nobody else changes them. [`known`] says what a
//! key may hold: a cache may lose any key at any moment, so nothing is always allowed, and whatever else is not what
//! was written is wrong. What a reply can't tell (a connection that broke in the middle of a write) leaves several
//! values possible until a read tells which. [`disturb`] asks the server meanwhile for what Tenure does there: sleep,
//! other policies, tiers, saves. [`ordeal`] starts servers of its own for what can't be done to others': they are
//! killed, take over from each other, give slots away. [`course`] tells clients what is left of their keys then.
//!
//! All draws come from a seed, so the commands of a run can be sent again; when the server evicts is its own.

#![forbid(unsafe_code)]

pub mod client;
pub mod course;
pub mod disturb;
pub mod known;
pub mod model;
pub mod ordeal;
pub mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use redis::ConnectionInfo;

use crate::client::Client;
use crate::course::Course;
use crate::disturb::Disturbance;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Torture {
    /// How many clients there are, 1 and more.
    pub n_clients: usize,
    /// Keys of each, 8 and more.
    pub n_keys: u32,
    /// The largest value that one write makes, in bytes.
    pub value_bytes_max: usize,
    /// Of all draws.
    pub seed: u64,
    /// For how long.
    pub duration: Duration,
    /// What the server is asked for meanwhile.
    pub disturbances: Vec<Disturbance>,
    /// Whether commands are sent by a function too. The server has to have [`wire::library`].
    pub calls_functions: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Commands that were answered.
    pub n_commands: u64,
    /// Of them, those whose reply tells what a key holds.
    pub n_reads: u64,
    /// Of the reads, those of keys that weren't there: evicted, expired, deleted or never written.
    pub n_absent: u64,
    /// Connections that broke, or were refused.
    pub n_reconnections: u64,
    /// Disturbances that the server carried out.
    pub n_disturbances: u64,
    /// What was done to servers that were started for it.
    pub n_faults: u64,
    /// Replies that can't be right, in words: the first hundred.
    pub wrong: Vec<String>,
    /// How many there were.
    pub n_wrong: u64,
}

/// What clients share: counts, and what has happened to the server.
#[derive(Debug, Default)]
pub struct Progress {
    course: Course,
    faults: AtomicU64,
    commands: AtomicU64,
    reads: AtomicU64,
    absent: AtomicU64,
    reconnections: AtomicU64,
    disturbances: AtomicU64,
    wrong: AtomicU64,
    told: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Progress {
    /// Commands that were answered so far.
    pub fn n_commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Replies so far that can't be right.
    pub fn n_wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    /// Has all clients end after the command that they are at.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all have ended, or are to.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn tell(&self, what: String) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < 100 {
            told.push(what);
        }
    }

    fn outcome(&self) -> Outcome {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Outcome {
            n_commands: of(&self.commands),
            n_reads: of(&self.reads),
            n_absent: of(&self.absent),
            n_reconnections: of(&self.reconnections),
            n_disturbances: of(&self.disturbances),
            n_faults: of(&self.faults),
            wrong: self.told.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            n_wrong: of(&self.wrong),
        }
    }
}

impl Torture {
    /// Whether each client has two databases of its own.
    fn owns_databases(&self) -> bool {
        self.disturbances.contains(&Disturbance::Databases)
    }

    /// Runs it on that server to its end, or until `progress` is stopped. Keys that were made are deleted afterwards
    /// where the server is there. Of a cluster, it is a primary: keys are chosen so that it has them.
    ///
    /// # Errors
    /// When the server doesn't answer at the start. Later a broken connection is made anew.
    pub fn run(&self, server: &ConnectionInfo, progress: &Progress) -> Result<Outcome> {
        let ends = Instant::now() + self.duration;
        let clients = (0..self.n_clients).map(|i| Client::start(server, self, i)).collect::<Result<Vec<_>>>()?;
        let mut disturber = disturb::Disturber::start(server, self)?;
        thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    while Instant::now() < ends && !progress.is_stopped() {
                        client.step(progress);
                    }
                    client.clean_up();
                });
            }
            while Instant::now() < ends && !progress.is_stopped() {
                disturber.step(progress);
            }
            disturber.restore();
        });
        Ok(progress.outcome())
    }
}
