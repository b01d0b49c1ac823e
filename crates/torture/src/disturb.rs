//! What the server is asked for while its replies are checked: what Tenure does to values, again and again.

use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use redis::{Connection, RedisResult};

use crate::{Progress, Torture};

/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);
/// Policies that are set by turns.
const POLICIES: [&str; 5] = ["density", "predis", "kredis", "hyperbolic", "lru"];

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
}

impl FromStr for Disturbance {
    type Err = String;

    fn from_str(name: &str) -> Result<Disturbance, String> {
        match name {
            "sleep" => Ok(Disturbance::Sleep),
            "policy" => Ok(Disturbance::Policy),
            "enabled" => Ok(Disturbance::Enabled),
            "save" => Ok(Disturbance::Save),
            _ => Err(format!("there is no disturbance '{name}'; there are sleep, policy, enabled and save")),
        }
    }
}

/// Asks for them by turns, on a connection of its own.
pub struct Disturber {
    server: redis::ConnectionInfo,
    connection: Option<Connection>,
    random: Xoshiro256PlusPlus,
    disturbances: Vec<Disturbance>,
    /// The policy before, to be put back.
    policy: Option<String>,
}

impl Disturber {
    /// Connects, where there is anything to ask for.
    ///
    /// # Errors
    /// When the server doesn't answer, or has no Tenure.
    pub fn start(torture: &Torture) -> Result<Disturber> {
        let mut disturber = Disturber {
            server: torture.server.clone(),
            connection: None,
            random: Xoshiro256PlusPlus::seed_from_u64(!torture.seed),
            disturbances: torture.disturbances.clone(),
            policy: None,
        };
        if !disturber.disturbances.is_empty() {
            let mut connection = redis::Client::open(torture.server.clone())?.get_connection()?;
            let told: Vec<String> = redis::cmd("CONFIG").arg("GET").arg("tenure.policy").query(&mut connection)?;
            disturber.policy = told.into_iter().nth(1);
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
        let which = self.disturbances[self.random.next_u64() as usize % self.disturbances.len()];
        let Some(connection) = &mut self.connection else {
            self.connection = redis::Client::open(self.server.clone()).and_then(|client| client.get_connection()).ok();
            return;
        };
        match ask(connection, which, self.random.next_u64()) {
            Ok(()) => {
                progress.disturbances.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.is_connection_dropped() || error.is_io_error() => self.connection = None,
            // What a server refuses, such as a save while another is under way, is its right.
            Err(_) => {}
        }
    }

    /// Leaves the server as it was: on, awake, with its policy.
    pub fn restore(&mut self) {
        let (Some(connection), Some(policy)) = (&mut self.connection, &self.policy) else { return };
        let _ = set(connection, "tenure.enabled", "yes");
        let _ = set(connection, "tenure.policy", policy);
        let _ = for_all_partitions(connection, "TENURE.WAKE");
    }
}

fn ask(connection: &mut Connection, which: Disturbance, draw: u64) -> RedisResult<()> {
    match which {
        Disturbance::Sleep => {
            for_all_partitions(connection, if draw.is_multiple_of(3) { "TENURE.WAKE" } else { "TENURE.SLEEP" })
        }
        Disturbance::Policy => set(connection, "tenure.policy", POLICIES[draw as usize % POLICIES.len()]),
        Disturbance::Enabled => set(connection, "tenure.enabled", if draw.is_multiple_of(4) { "no" } else { "yes" }),
        Disturbance::Save => redis::cmd("BGSAVE").query(connection),
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
