//! When values may sleep on disk, and what wakes them: ties `enforce::spill` to the turn, to commands and to the server's events.

use std::time::Duration;

use tenure_core::units::{KeyHash, PartitionId};

use super::Tenure;
use crate::enforce::spill::{Around, Rest, Spill};
use crate::ffi::awaits;
use crate::ffi::filter::{self, FilterCall};
use crate::ffi::server::{Level, Server};
use crate::ffi::{callbacks, soon};
use crate::observe::command_table::Marks;
use crate::observe::duty::Watched;
use crate::observe::partitions::in_database;
use crate::observe::touches::{Touched, Touches};

/// What falling asleep and waking may take of one turn.
const TURN_BUDGET: Duration = Duration::from_micros(200);

/// What becomes of a command that was put behind `TENURE.AWAIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Its client waits for the disk.
    Waits,
    /// It runs at once.
    Runs,
}

impl Tenure {
    /// Works with the spill, where there is one, on what it needs of the rest.
    fn with_spill<R>(
        &mut self,
        server: &Server,
        now_us: u64,
        body: impl FnOnce(&mut Spill, &mut Around) -> R,
    ) -> Option<R> {
        let room_bytes = match self.memory.limit_bytes {
            0 => i64::MAX,
            limit => limit.saturating_sub(self.headroom_bytes()) as i64 - self.used_bytes(server) as i64,
        };
        let burst_bytes =
            if self.memory.limit_bytes == 0 { i64::MAX } else { (self.headroom_bytes() / 2).max(1) as i64 };
        let volatile_only = self.memory.policy.starts_with("volatile");
        let window = self.published.window;
        let Tenure { spill, observer, usage, db_sizes, .. } = self;
        let mut around =
            Around { server, observer, usage, db_sizes, room_bytes, burst_bytes, volatile_only, now_us, window };
        spill.as_mut().map(|spill| body(spill, &mut around))
    }

    /// What stands against sleep on this server with these settings.
    pub(super) fn sleep_standing(&self, server: &Server) -> &'static str {
        let flags = server.flags();
        if self.settings.spill_dir.is_empty() {
            "off: tenure.spill-dir is empty"
        } else if !filter::knows_clients() {
            "off: this server doesn't tell modules who sends a command; Valkey 7.2 and Redis 7.2 do"
        } else if flags.is_cluster() {
            "off: this server is a node of a cluster, whose slots may move"
        } else if flags.is_replica() {
            "off: this server is a replica"
        } else if flags.is_loading() {
            "off: the server is loading"
        } else if let Some(failed) = self.spill_failed {
            failed
        } else {
            "ready"
        }
    }

    /// Opens the folder or lets go of it, as it should be; ten times a second.
    pub(super) fn fit_spill(&mut self, server: &Server, now_us: u64) {
        let standing = self.sleep_standing(server);
        self.spill_standing = standing;
        if standing != "ready" {
            return self.close_spill();
        }
        if self.spill.is_none() {
            match Spill::start(&self.settings, now_us) {
                Ok(spill) => self.spill = Some(spill),
                Err(why) => {
                    server.log(Level::Warning, &format!("values can't sleep: {why}"));
                    self.spill_failed = Some(
                        "off: tenure.spill-dir can't be used; the server's log says why; setting it again tries again",
                    );
                    return;
                }
            }
            self.observer.touches.is_on = true;
            self.take_warm(server, now_us);
        }
    }

    /// Values of the last orderly stop, where this is the server's start: later, clients may have changed anything.
    fn take_warm(&mut self, server: &Server, now_us: u64) {
        let wanted = std::mem::take(&mut self.is_server_start) && self.settings.warm_restart;
        let text = match self.with_spill(server, now_us, |spill, around| spill.take_warm(around, wanted)) {
            Some(Ok(warm)) if warm.keys > 0 => {
                format!("warm restart: {} values of the last stop, {} bytes", warm.keys, warm.bytes)
            }
            Some(Err(why)) => format!("no warm restart: {why}"),
            _ => return,
        };
        server.log(Level::Notice, &text);
    }

    /// Lets go of the folder: what sleeps is gone, as if evicted.
    pub(super) fn close_spill(&mut self) {
        if self.spill.take().is_some() {
            self.observer.touches = Touches::default();
        }
    }

    /// How long ago sampled keys were used before tells whether a class is periodic.
    pub(super) fn note_reuses(&mut self, now_us: u64) {
        if let Some(spill) = &mut self.spill {
            self.observer.sampled_keys.drain(..).for_each(|(partition, key)| spill.sampled(partition, key, now_us));
        }
    }

    /// A slice of falling asleep and waking. Where there is more to do, an idle event loop is asked for more.
    pub fn sleep_some(&mut self, server: &Server, now_us: u64) {
        // While writes are paused no key may come or go: what the disk has done waits.
        if !self.spill.as_ref().is_some_and(Spill::is_busy) || server.writes_are_paused() {
            return;
        }
        // What wakes fills memory faster than the ticks that look how full it is.
        self.may_be_short = true;
        let worked =
            self.with_spill(server, now_us, |spill, around| spill.work(around, TURN_BUDGET) && spill.is_busy());
        if worked == Some(true) {
            soon::call_soon(server);
        }
    }

    /// Ten times a second.
    pub(super) fn sleep_tick(&mut self, server: &Server, now_us: u64) {
        self.fit_spill(server, now_us);
        let may_evict = self.memory.policy != "noeviction";
        self.with_spill(server, now_us, |spill, around| {
            if !may_evict {
                // Nothing may be lost any more, so nothing may sleep.
                spill.wake_all(around);
            }
            spill.tick(around, may_evict);
        });
        let needs_watching = self.spill.as_ref().is_some_and(|spill| spill.needs_watching(&self.observer));
        if needs_watching {
            self.watch(server, Watched::All);
        }
    }

    /// True while no command may pass unseen.
    pub(super) fn sleep_needs_watching(&self) -> bool {
        self.spill.as_ref().is_some_and(|spill| spill.needs_watching(&self.observer))
    }

    /// What the filter found of sleepers in the command that is about to run.
    pub fn on_touched(&mut self, call: &FilterCall, server: &Server, touched: &Touched) {
        // A read changes nothing, so where nothing may wake now its key sleeps on.
        if touched.is_read && (server.writes_are_paused() || self.makes_wait(call, server)) {
            return;
        }
        if touched.is_anything {
            self.observer.touches.sleepers.forget_where(|_| true);
        }
        self.with_spill(server, callbacks::now_us(), |spill, around| spill.wake_now(around, &touched.keys));
    }

    /// True where the command's client will wait for the disk alone: it only reads, of a plain client outside a transaction, the
    /// server does not remember what it reads, and its user may run `TENURE.AWAIT`.
    fn makes_wait(&self, call: &FilterCall, server: &Server) -> bool {
        let Some(client_id) = call.client_id() else { return false };
        // Some writes count as reads: GETEX and PFCOUNT ask for a value all the same.
        let writes = self.observer.command(call).is_none_or(|command| command.marks.has(Marks::WRITES));
        let may_block = call.client(client_id).is_some_and(|client| !client.in_multi && !client.is_tracking);
        !writes && may_block && awaits::is_allowed(server, client_id) && call.put_behind_await(client_id)
    }

    /// A command that was put behind `TENURE.AWAIT` runs: its client waits, where its key still sleeps.
    pub fn await_value(&mut self, server: &Server, words: &[&[u8]]) -> Awaited {
        let Some(name) = self.observer.only_key(words) else { return Awaited::Runs };
        let (db, key) = self.sleeping(server, name);
        let Some(sleeper) = self.observer.touches.sleepers.get(key).filter(|s| s.db == db && *s.name == *name) else {
            return Awaited::Runs;
        };
        let (place, partition) = (sleeper.place, sleeper.partition);
        let refused = match (awaits::block(server), &mut self.spill) {
            (Some(client), Some(spill)) => match spill.read_for(client, partition, place) {
                Ok(()) => return Awaited::Waits,
                Err(client) => Some(client),
            },
            (client, _) => client,
        };
        if let Some(client) = refused {
            client.abort();
        }
        self.with_spill(server, callbacks::now_us(), |spill, around| spill.wake_now(around, &[key]));
        Awaited::Runs
    }

    /// The value that a client waited for was read, or was not: then its key is forgotten, so that nobody waits for it again.
    pub fn finish_await(&mut self, server: &Server, words: &[&[u8]], outcome: Option<awaits::Outcome>) {
        let Some(name) = self.observer.only_key(words) else { return };
        let (db, key) = self.sleeping(server, name);
        let now_us = callbacks::now_us();
        self.with_spill(server, now_us, |spill, around| match outcome {
            Some((place, bytes)) => drop(spill.wake_with(around, key, place, bytes.as_deref())),
            None if around.observer.touches.sleepers.has(key, db, name) => {
                around.observer.touches.sleepers.remove(key);
                spill.counts.damaged += 1;
            }
            None => {}
        });
        server.select_db(db);
    }

    fn sleeping(&self, server: &Server, name: &[u8]) -> (u16, KeyHash) {
        let db = server.selected_db();
        (db, in_database(KeyHash::of(name), db))
    }

    /// A key came into being: if it slept, what is in memory is newer.
    pub(super) fn on_new_while_asleep(&mut self, db: u16, name: &[u8]) {
        let sleepers = &mut self.observer.touches.sleepers;
        if sleepers.any() {
            let key = in_database(KeyHash::of(name), db);
            if sleepers.has(key, db, name) {
                sleepers.remove(key);
            }
        }
    }

    /// What slept in a database is no more, or in any.
    pub(super) fn forget_sleepers(&mut self, db: Option<u16>) {
        self.observer.touches.sleepers.forget_where(|sleeper| db.is_none_or(|db| sleeper.db == db));
    }

    /// An orderly stop.
    pub fn on_shutdown(&mut self, server: &Server) {
        if !self.settings.warm_restart || self.spill.is_none() {
            return;
        }
        self.count_keys(server);
        let text = match self.with_spill(server, callbacks::now_us(), |spill, around| spill.write_warm(around)) {
            Some(Ok(warm)) => format!("warm restart: {} values written, {} bytes", warm.keys, warm.bytes),
            Some(Err(why)) => format!("no warm restart: values can't be written: {why}"),
            None => return,
        };
        server.log(Level::Notice, &text);
    }

    /// `TENURE.SLEEP` and `TENURE.WAKE`.
    ///
    /// # Errors
    /// What stands against it.
    pub fn set_rest(&mut self, server: &Server, partition: PartitionId, asleep: bool) -> Result<(), String> {
        let now_us = callbacks::now_us();
        self.fit_spill(server, now_us);
        if self.spill.is_none() {
            return Err(format!("sleep is {}", self.spill_standing));
        }
        if asleep && self.memory.policy == "noeviction" {
            return Err("maxmemory-policy is noeviction: nothing may leave memory".to_owned());
        }
        // Keys may have come since the last tick.
        self.count_keys(server);
        if asleep {
            self.watch(server, Watched::All);
        }
        self.with_spill(server, now_us, |spill, around| match asleep {
            true => spill.sleep(around, partition),
            false => spill.wake(partition, around.window, now_us),
        });
        soon::call_soon(server);
        Ok(())
    }

    /// What a partition is about, for people.
    pub fn rest_of(&self, partition: PartitionId) -> &'static str {
        match self.spill.as_ref().map_or(Rest::Awake, |spill| spill.rest(partition)) {
            Rest::Awake => "awake",
            Rest::FallingAsleep { .. } => "falling asleep",
            Rest::Asleep => "asleep",
            Rest::Waking => "waking",
        }
    }
}
