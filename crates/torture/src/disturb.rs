//! What the server is asked for while its replies are checked: what Tenure does to values, again and again.

use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use redis::{Connection, ConnectionInfo, RedisResult};

use crate::course::Event;
use crate::{Progress, Torture};

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);
/// Policies that are set by turns.
const POLICIES: [&str; 5] = ["density", "predis", "kredis", "hyperbolic", "lru"];
/// Rules of tiers that are set by turns: what moves most is there most.
const TIER_RULES: [&str; 4] = ["reuse-time", "worth", "always", "always"];

/// What may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Partitions fall asleep and are woken.
    Sleep,
    /// Another policy evicts.
    Policy,
    /// Tenure is turned off and on.
    Enabled,
    /// A child saves.
    Save,
    /// Values move to slow memory and back, by other rules.
    Tiers,
    /// All keys of all databases are deleted, whoever's they are.
    Flush,
    /// Clients have two databases each, which they empty and swap, whatever is in them.
    Databases,
}

impl Disturbance {
    /// All of them.
    pub const ALL: [Disturbance; 7] = [
        Disturbance::Sleep,
        Disturbance::Policy,
        Disturbance::Enabled,
        Disturbance::Save,
        Disturbance::Tiers,
        Disturbance::Flush,
        Disturbance::Databases,
    ];
}

impl FromStr for Disturbance {
    type Err = String;

    fn from_str(name: &str) -> Result<Disturbance, String> {
        match name {
            "sleep" => Ok(Disturbance::Sleep),
            "policy" => Ok(Disturbance::Policy),
            "enabled" => Ok(Disturbance::Enabled),
            "save" => Ok(Disturbance::Save),
            "tiers" => Ok(Disturbance::Tiers),
            "flush" => Ok(Disturbance::Flush),
            "databases" => Ok(Disturbance::Databases),
            _ => Err(format!(
                "there is no disturbance '{name}'; there are sleep, policy, enabled, save, tiers, flush and databases"
            )),
        }
    }
}

/// Asks for them by turns, on a connection of its own.
pub struct Disturber {
    server: ConnectionInfo,
    connection: Option<Connection>,
    random: Xoshiro256PlusPlus,
    disturbances: Vec<Disturbance>,
    /// Settings as they were before.
    before: Vec<(String, String)>,
    n_events: usize,
}

impl Disturber {
    /// Connects, where there is anything to ask for.
    ///
    /// # Errors
    /// When the server doesn't answer, or has no Tenure.
    pub fn start(server: &ConnectionInfo, torture: &Torture) -> Result<Disturber> {
        let of_clients = Disturbance::Databases;
        let mut disturber = Disturber {
            server: server.clone(),
            connection: None,
            random: Xoshiro256PlusPlus::seed_from_u64(!torture.seed),
            disturbances: torture.disturbances.iter().copied().filter(|which| *which != of_clients).collect(),
            before: Vec::new(),
            n_events: 0,
        };
        if !disturber.disturbances.is_empty() {
            let mut connection = redis::Client::open(server.clone())?.get_connection()?;
            for name in ["tenure.policy", "tenure.tier-slow", "tenure.tier-rule"] {
                let told: Option<(String, String)> =
                    redis::cmd("CONFIG").arg("GET").arg(name).query(&mut connection)?;
                disturber.before.extend(told);
            }
            disturber.connection = Some(connection);
        }
        Ok(disturber)
    }

    /// Asks for one, and pauses.
    pub fn step(&mut self, progress: &Progress) {
        thread::sleep(PAUSE);
        if self.disturbances.is_empty() {
            return;
        }
        let _turn = progress.course.enter();
        for event in progress.course.since(self.n_events) {
            self.n_events += 1;
            match event {
                Event::Moved(server) => (self.server, self.connection) = (*server, None),
                Event::Restarted(_) => self.connection = None,
                Event::Saved | Event::Flushed(_) | Event::SlotsMove(_) | Event::SlotsMoved(_) => {}
            }
        }
        let which = self.disturbances[self.random.next_u64() as usize % self.disturbances.len()];
        let draw = self.random.next_u64();
        let Some(connection) = &mut self.connection else {
            self.connection = redis::Client::open(self.server.clone()).and_then(|client| client.get_connection()).ok();
            return;
        };
        match ask(connection, which, draw, progress) {
            Ok(()) => {
                progress.disturbances.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.is_connection_dropped() || error.is_io_error() => self.connection = None,
            // What a server refuses, such as a save while another is under way, is its right.
            Err(_) => {}
        }
    }

    /// Leaves the server as it was: on, awake, with its settings.
    pub fn restore(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let _ = set(connection, "tenure.enabled", "yes");
        for (name, value) in &self.before {
            let _ = set(connection, name, value);
        }
        let _ = for_all_partitions(connection, "TENURE.WAKE");
    }
}

fn ask(connection: &mut Connection, which: Disturbance, draw: u64, progress: &Progress) -> RedisResult<()> {
    match which {
        Disturbance::Sleep => {
            for_all_partitions(connection, if draw.is_multiple_of(3) { "TENURE.WAKE" } else { "TENURE.SLEEP" })
        }
        Disturbance::Policy => set(connection, "tenure.policy", POLICIES[draw as usize % POLICIES.len()]),
        Disturbance::Enabled => set(connection, "tenure.enabled", if draw.is_multiple_of(4) { "no" } else { "yes" }),
        Disturbance::Save => redis::cmd("BGSAVE").query(connection),
        Disturbance::Tiers if draw.is_multiple_of(8) => set(connection, "tenure.tier-slow", ""),
        Disturbance::Tiers => {
            set(connection, "tenure.tier-slow", "anon")?;
            set(connection, "tenure.tier-rule", TIER_RULES[draw as usize / 8 % TIER_RULES.len()])
        }
        // A cache that is emptied all the time has nothing that could be wrong.
        Disturbance::Flush if draw.is_multiple_of(16) => {
            let sent = Instant::now();
            redis::cmd("FLUSHALL").arg(["SYNC", "ASYNC"][draw as usize / 16 % 2]).exec(connection)?;
            progress.course.tell(Event::Flushed(sent));
            Ok(())
        }
        Disturbance::Flush | Disturbance::Databases => Ok(()),
    }
}

fn set(connection: &mut Connection, name: &str, value: &str) -> RedisResult<()> {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query(connection)
}

fn for_all_partitions(connection: &mut Connection, command: &str) -> RedisResult<()> {
    let rows: Vec<Vec<redis::Value>> = redis::cmd("TENURE.PARTITIONS").query(connection)?;
    for row in rows {
        let Some(redis::Value::BulkString(name)) = row.get(1) else { continue };
        redis::cmd(command).arg(&name[..]).query::<redis::Value>(connection)?;
    }
    Ok(())
}
