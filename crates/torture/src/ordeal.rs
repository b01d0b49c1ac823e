//! Servers that are started to be put through what nobody does to another's: they are killed at any moment, come back
//! with what they kept, take over from each other, and give slots away, all under load.
//!
//! What is left after each is known exactly. After a kill with an append-only file it is all that was answered;
//! without, nothing; with a snapshot, what that had. On a replica that takes over under `acked` it is all writes that
//! were answered.

use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use redis::{ConnectionInfo, IntoConnectionInfo};
use tempfile::TempDir;
use tenure_servers::{Cluster, Product, Server, ServerBinary, ServerOptions, environment_for_tiers, wait_for};

use crate::course::{Event, Left};
use crate::disturb::Disturbance;
use crate::{Outcome, Progress, Torture};

/// Longest wait for a server to do what it was told.
const DEADLINE: Duration = Duration::from_secs(60);
/// Between two faults, at random.
const PAUSE_MS: (u64, u64) = (100, 1500);
/// Primaries among which slots move.
const N_PRIMARIES: usize = 3;

/// What servers are put through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordeal {
    /// Killed and stopped, with an append-only file and warm restarts.
    Aof,
    /// The same with snapshots.
    Rdb,
    /// The same with warm restarts alone.
    Warm,
    /// A replica takes over where its primary is killed or told to give way, with replies that wait for it.
    Failover,
    /// Slots of a cluster move.
    Reshard,
    /// One child after the other saves, rewrites the append-only file, and feeds a replica.
    Forks,
}

impl Ordeal {
    /// All of them.
    pub const ALL: [Ordeal; 6] =
        [Ordeal::Aof, Ordeal::Rdb, Ordeal::Warm, Ordeal::Failover, Ordeal::Reshard, Ordeal::Forks];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Ordeal::Aof => "aof",
            Ordeal::Rdb => "rdb",
            Ordeal::Warm => "warm",
            Ordeal::Failover => "failover",
            Ordeal::Reshard => "reshard",
            Ordeal::Forks => "forks",
        }
    }

    /// Whether what is left is known beside this too.
    fn bears(self, disturbance: Disturbance) -> bool {
        match (self, disturbance) {
            // A snapshot of whatever moment would be loaded at the next start.
            (Ordeal::Rdb | Ordeal::Warm, Disturbance::Save) => false,
            // It would be in the way of those that are waited for.
            (Ordeal::Forks, Disturbance::Save) => false,
            // Who is let go of may lose writes.
            (Ordeal::Failover, Disturbance::Enabled) => false,
            // One node's keys are not all, and there is one database.
            (Ordeal::Reshard, Disturbance::Flush | Disturbance::Databases) => false,
            _ => true,
        }
    }

    /// Starts servers, and runs `torture` on them while they are put through it.
    ///
    /// # Errors
    /// When a server doesn't start, or doesn't do in time what it is told.
    pub fn run(self, torture: &Torture, binary: &ServerBinary, module: &Path, progress: &Progress) -> Result<Outcome> {
        let disturbances = torture.disturbances.iter().copied().filter(|which| self.bears(*which)).collect();
        let torture = Torture { disturbances, ..torture.clone() };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(torture.seed ^ 0x0fa1);
        let mut stage = Stage::start(self, binary, &options(&torture, module, self))?;
        let server = stage.address()?;
        thread::scope(|scope| {
            let clients = scope.spawn(|| torture.run(&server, progress));
            let mut faults = Ok(());
            while faults.is_ok() && !clients.is_finished() {
                let pause_ms = if self == Ordeal::Forks { 0 } else { PAUSE_MS.0 + random.next_u64() % PAUSE_MS.1 };
                let next = Instant::now() + Duration::from_millis(pause_ms);
                // All clients are there once a command was answered: before, a dead server would be the end of it.
                let is_under_way = || progress.n_commands() > 0;
                while (Instant::now() < next || !is_under_way()) && !clients.is_finished() {
                    thread::sleep(Duration::from_millis(5));
                }
                faults = stage.strike(random.next_u64(), progress);
                progress.faults.fetch_add(u64::from(faults.is_ok()), Ordering::Relaxed);
            }
            if faults.is_err() {
                progress.stop();
            }
            let outcome = clients.join().map_err(|_| anyhow!("the clients failed"))?;
            faults.and(outcome)
        })
    }
}

impl FromStr for Ordeal {
    type Err = String;

    fn from_str(name: &str) -> Result<Ordeal, String> {
        let found = Ordeal::ALL.into_iter().find(|ordeal| ordeal.name() == name);
        found.ok_or_else(|| {
            format!("there is no ordeal '{name}'; there are aof, rdb, warm, failover, reshard and forks")
        })
    }
}

/// Half of the data fits, so that it is evicted, and windows end fast.
fn options(torture: &Torture, module: &Path, ordeal: Ordeal) -> ServerOptions {
    let keys = torture.n_clients as u64 * u64::from(torture.n_keys);
    let data = keys * (torture.value_bytes_max as u64 / 6 + 100);
    let nodes = if ordeal == Ordeal::Reshard { N_PRIMARIES as u64 } else { 1 };
    let mut options = ServerOptions::default().with_module(module);
    options.environment.extend(environment_for_tiers());
    let options = options
        .set("maxmemory", (data / 2 / nodes).max(10 << 20))
        .set("maxmemory-policy", "allkeys-lru")
        .set("tenure.window-seconds", 1)
        .set("tenure.window-requests", 1000);
    match ordeal {
        Ordeal::Aof => options
            .set("appendonly", "yes")
            // The kernel has each write before its reply leaves, and keeps it when the process is killed.
            .set("appendfsync", "no")
            .set("auto-aof-rewrite-min-size", "4mb"),
        Ordeal::Forks => options.set("appendonly", "yes").set("auto-aof-rewrite-percentage", 0),
        Ordeal::Failover => options
            .set("repl-backlog-size", "1mb")
            .set("tenure.replies", "acked")
            .set("tenure.replies-on-timeout", "refuse"),
        _ => options,
    }
}

/// The servers.
enum Stage {
    /// One, and how it is put through.
    Alone { server: Box<Server>, ordeal: Ordeal, _spill: TempDir },
    /// A primary and its replica, which change places.
    Pair { primary: Box<Server>, replica: Box<Server>, _spill: TempDir },
    /// One that makes children, and a replica that one of them feeds.
    Forking { server: Box<Server>, replica: Box<Server>, _spill: TempDir },
    /// Primaries of a cluster.
    Several(Cluster),
}

impl Stage {
    fn start(ordeal: Ordeal, binary: &ServerBinary, options: &ServerOptions) -> Result<Stage> {
        let spill = tempfile::tempdir()?;
        let start = |name: &str| {
            let folder = spill.path().join(name);
            Server::start(binary, &options.clone().set("tenure.spill-dir", folder.display())).map(Box::new)
        };
        match ordeal {
            Ordeal::Reshard => Ok(Stage::Several(Cluster::start(binary, options, N_PRIMARIES, 0)?)),
            Ordeal::Failover => {
                let (primary, replica) = (start("one")?, start("other")?);
                follow(&replica, &primary)?;
                Ok(Stage::Pair { primary, replica, _spill: spill })
            }
            Ordeal::Forks => {
                let (server, replica) = (start("one")?, Server::start(binary, &ServerOptions::default())?);
                // A thread more, where this server can hold replies.
                let _ = server.call::<()>(&["CONFIG", "SET", "tenure.replies", "sent"]);
                Ok(Stage::Forking { server, replica: Box::new(replica), _spill: spill })
            }
            Ordeal::Aof | Ordeal::Rdb | Ordeal::Warm => {
                let folder = spill.path().join("one");
                let options =
                    options.clone().set("tenure.spill-dir", folder.display()).set("tenure.warm-restart", "yes");
                Ok(Stage::Alone { server: Box::new(Server::start(binary, &options)?), ordeal, _spill: spill })
            }
        }
    }

    fn address(&self) -> Result<ConnectionInfo> {
        match self {
            Stage::Alone { server, .. } | Stage::Forking { server, .. } => address(server),
            Stage::Pair { primary, .. } => address(primary),
            Stage::Several(cluster) => address(&cluster.nodes()[0]),
        }
    }

    /// One fault, and what mends it.
    fn strike(&mut self, draw: u64, progress: &Progress) -> Result<()> {
        match self {
            Stage::Alone { server, ordeal, .. } => match ordeal {
                Ordeal::Rdb => strike_with_snapshots(server, draw, progress),
                _ if draw.is_multiple_of(3) => {
                    server.stop()?;
                    bring_back(server, Left::All, progress)
                }
                _ => {
                    server.kill();
                    let left = if *ordeal == Ordeal::Aof { Left::All } else { Left::Nothing };
                    bring_back(server, left, progress)
                }
            },
            Stage::Pair { primary, replica, .. } => {
                if draw.is_multiple_of(3) {
                    give_way(primary, replica, progress)?;
                } else {
                    take_over(primary, replica, progress)?;
                }
                std::mem::swap(primary, replica);
                Ok(())
            }
            Stage::Forking { server, replica, .. } => fork(server, replica, draw),
            Stage::Several(cluster) => move_a_slot(cluster, draw, progress),
        }
    }
}

fn address(server: &Server) -> Result<ConnectionInfo> {
    Ok(format!("redis://127.0.0.1:{}", server.port()).into_connection_info()?)
}

/// Starts the server again, whose process is gone.
fn bring_back(server: &mut Server, left: Left, progress: &Progress) -> Result<()> {
    // Who has a command under way sees the connection break first.
    let _paused = progress.course.pause();
    progress.course.tell(Event::Restarted(left));
    server.restart()
}

/// Of three times: a snapshot, a kill, a stop with a snapshot, which a warm restart follows.
fn strike_with_snapshots(server: &mut Server, draw: u64, progress: &Progress) -> Result<()> {
    if draw.is_multiple_of(3) {
        server.kill();
        return bring_back(server, Left::Saved, progress);
    }
    let paused = progress.course.pause();
    server.call::<()>(&["SAVE"])?;
    progress.course.tell(Event::Saved);
    if draw % 3 == 1 {
        server.stop()?;
        progress.course.tell(Event::Restarted(Left::All));
        server.restart()?;
    }
    drop(paused);
    Ok(())
}

/// Makes one server follow the other, and waits until replies wait for it.
fn follow(replica: &Server, primary: &Server) -> Result<()> {
    replica.replica_of(primary)?;
    wait_for(DEADLINE, "replies to wait for the replica", || {
        let fields = primary.info("tenure").unwrap_or_default();
        fields.get("tenure_replies_replicas").is_some_and(|n| n == "1")
    })
}

/// The primary is killed; its replica goes on, and it comes back as a replica.
fn take_over(primary: &mut Server, replica: &Server, progress: &Progress) -> Result<()> {
    primary.kill();
    {
        let _paused = progress.course.pause();
        replica.call::<()>(&["REPLICAOF", "NO", "ONE"])?;
        tell_of_new_primary(replica, progress)?;
    }
    primary.restart()?;
    follow(primary, replica)
}

/// The primary is told to give way.
fn give_way(primary: &Server, replica: &Server, progress: &Progress) -> Result<()> {
    primary.call::<()>(&["FAILOVER"])?;
    let is_primary = |server: &Server| {
        server.info("replication").is_ok_and(|info| info.get("role").is_some_and(|role| role == "master"))
    };
    wait_for(DEADLINE, "a failover", || is_primary(replica) && !is_primary(primary))
        .with_context(|| primary.log_tail())?;
    {
        let _paused = progress.course.pause();
        tell_of_new_primary(replica, progress)?;
    }
    primary.wait_until_in_sync()?;
    follow(primary, replica)
}

fn tell_of_new_primary(server: &Server, progress: &Progress) -> Result<()> {
    progress.course.tell(Event::Restarted(Left::Answered));
    progress.course.tell(Event::Moved(Box::new(address(server)?)));
    Ok(())
}

/// Has a child made, and waits for its end.
fn fork(server: &Server, replica: &Server, draw: u64) -> Result<()> {
    match draw % 3 {
        0 => server.call::<()>(&["BGSAVE"])?,
        1 => server.call::<()>(&["BGREWRITEAOF"])?,
        _ => {
            replica.call::<()>(&["REPLICAOF", "NO", "ONE"])?;
            // What the replica has is nobody's any more, so that it needs all.
            server.call::<()>(&["DEBUG", "CHANGE-REPL-ID"])?;
            replica.replica_of(server)?;
        }
    }
    wait_for(DEADLINE, "a child to end", || {
        let info = server.info("persistence").unwrap_or_default();
        ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]
            .iter()
            .all(|name| info.get(*name).is_some_and(|n| n == "0"))
    })
    .with_context(|| server.log_tail())?;
    let info = server.info("persistence")?;
    let is_well = |name: &str| info.get(name).is_some_and(|status| status == "ok");
    ensure!(is_well("rdb_last_bgsave_status") && is_well("aof_last_bgrewrite_status"), "a child failed: {info:?}");
    Ok(())
}

/// Of some node a slot that has keys goes to another.
fn move_a_slot(cluster: &Cluster, draw: u64, progress: &Progress) -> Result<()> {
    let n = cluster.nodes().len();
    let from = draw as usize % n;
    let to = (from + 1 + draw as usize / n % (n - 1)) % n;
    let source = &cluster.nodes()[from];
    let Some(key) = source.call::<Option<String>>(&["RANDOMKEY"])? else { return Ok(()) };
    let slot: u16 = source.call(&["CLUSTER", "KEYSLOT", &key])?;
    let binary = source.binary();
    let has_whole_moves = binary.product == Product::Valkey && binary.version.0 >= 9;
    let began = Instant::now();
    {
        // Who was told to ask a node once has done so by then: a node that gets the slot again has no key at first.
        let _paused = progress.course.pause();
        progress.course.tell(Event::SlotsMove(began));
    }
    match has_whole_moves && draw >> 32 & 1 == 1 {
        true => move_as_a_whole(cluster, slot, from, to)?,
        false => cluster.move_slots([slot], from, to)?,
    }
    let _paused = progress.course.pause();
    progress.course.tell(Event::SlotsMoved(began.elapsed()));
    Ok(())
}

/// The source sends all keys of the slot and what happens to them, and gives them up at once.
fn move_as_a_whole(cluster: &Cluster, slot: u16, from: usize, to: usize) -> Result<()> {
    let (id, range) = (cluster.nodes()[to].cluster_id()?, slot.to_string());
    let source = &cluster.nodes()[from];
    source.call::<()>(&["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &range, &range, "NODE", &id])?;
    wait_for(DEADLINE, "a slot to be another node's", || cluster.owner_of(slot).is_ok_and(|owner| owner == to))?;
    cluster.wait_until_all_agree()
}
