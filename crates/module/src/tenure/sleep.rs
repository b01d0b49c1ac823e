//! When values may sleep on disk, and what wakes them: ties `enforce::spill` to the turn, to commands and to the server's events.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use tenure_core::units::{KeyHash, PartitionId};

use super::Tenure;
use crate::enforce::spill::disk::Outcome;
use crate::enforce::spill::{SleepContext, SleepState, Spill, ends, now_ms};
use crate::ffi::awaits;
use crate::ffi::clock::now_us;
use crate::ffi::filter::{self, FilterCall};
use crate::ffi::module::Awaited;
use crate::ffi::server::{Level, Server};
use crate::ffi::soon;
use crate::info;
use crate::observe::command_table::Marks;
use crate::observe::duty::Watched;
use crate::observe::partitions::in_database;
use crate::observe::touches::{Touched, Touches};
use crate::runtime::Runtime;

/// What falling asleep and waking may take of one turn, and telling whose value has ended.
const TURN_BUDGET: Duration = Duration::from_micros(200);
/// So many are told between two looks at the clock.
const TOLD_PER_LOOK: usize = 16;

impl Tenure {
    /// Works with the spill, where there is one, on what it needs of the rest.
    fn with_spill<R>(
        &mut self,
        server: &mut Server,
        now_us: u64,
        body: impl FnOnce(&mut Spill, &mut SleepContext) -> R,
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
        let mut context =
            SleepContext { server, observer, usage, db_sizes, room_bytes, burst_bytes, volatile_only, now_us, window };
        spill.as_mut().map(|spill| body(spill, &mut context))
    }

    /// What stands against sleep on this server with these settings.
    pub(super) fn sleep_status(&self, server: &mut Server) -> Cow<'static, str> {
        let flags = server.flags();
        let status = if self.settings.spill_dir.is_empty() {
            "off: tenure.spill-dir is empty"
        } else if !filter::knows_clients() {
            "off: this server doesn't tell modules who sends a command; Valkey 7.2 and Redis 7.2 do"
        } else if flags.is_cluster() {
            "off: this server is a node of a cluster, whose slots may move"
        } else if flags.is_replica() {
            "off: this server is a replica"
        } else if flags.is_loading() {
            "off: the server is loading"
        } else if let Some(failed) = &self.spill_failed {
            return failed.clone().into();
        } else {
            "ready"
        };
        status.into()
    }

    /// Opens the folder or lets go of it, as it should be; ten times a second.
    pub(super) fn fit_spill(&mut self, server: &mut Server, now_us: u64) {
        self.spill_status = self.sleep_status(server);
        if self.spill_status != "ready" {
            if self.spill.is_some() {
                info::keep_counts(self, Tenure::close_spill);
            }
            return;
        }
        if self.spill.is_none() {
            match Spill::start(&self.settings, now_us) {
                Ok(spill) => self.spill = Some(spill),
                Err(why) => {
                    server.log(Level::Warning, &format!("values can't sleep: {why}"));
                    let failed = format!("off: tenure.spill-dir can't be used: {why}; setting it anew tries again");
                    self.spill_status = failed.clone().into();
                    self.spill_failed = Some(failed);
                    return;
                }
            }
            self.observer.touches.is_on = true;
            self.take_warm(server, now_us);
        }
    }

    /// Values of the last orderly stop, where this is the server's start: later, clients may have changed anything.
    fn take_warm(&mut self, server: &mut Server, now_us: u64) {
        let wanted = std::mem::take(&mut self.is_server_start) && self.settings.warm_restart;
        let text = match self.with_spill(server, now_us, |spill, context| spill.take_warm(context, wanted)) {
            Some(Ok(warm)) if warm.keys > 0 => {
                format!("warm restart: {} values of the last stop, {} bytes", warm.keys, warm.bytes)
            }
            Some(Err(why)) => format!("no warm restart: {why}"),
            _ => return,
        };
        server.log(Level::Notice, &text);
    }

    /// Lets go of the folder: what sleeps is gone, as if evicted, which clients are told over the next turns.
    pub(super) fn close_spill(&mut self) {
        if self.spill.take().is_some() {
            let sleepers = &mut self.observer.touches.sleepers;
            sleepers.give_up_all();
            sleepers.forget_segments();
        }
    }

    /// Lets go of the folder and tells all clients at once: there are no turns to come.
    pub fn end_sleep(&mut self, server: &mut Server) {
        self.close_spill();
        let touches = &mut self.observer.touches;
        ends::settle(server, &mut touches.owed);
        touches.sleepers.forget_where(|_| true, |sleeper| ends::tell(server, sleeper));
    }

    /// First at the end of each turn, while anything may sleep: what pauses of writes have left to do.
    pub(super) fn follow_pauses(&mut self, server: &mut Server) {
        if let Some(spill) = &mut self.spill {
            spill.note_pause(server.writes_are_paused());
        }
        self.settle_sleepers(server);
    }

    /// Where writes are no longer paused, replicas have what woke meanwhile.
    pub fn settle_sleepers(&mut self, server: &mut Server) {
        ends::settle(server, &mut self.observer.touches.owed);
    }

    /// The same before a command runs. It may be the one that ends the pause: so once more after this turn's commands.
    pub fn settle_soon(&mut self, server: &mut Server) {
        self.settle_sleepers(server);
        if !self.observer.touches.owed.is_empty() {
            soon::call_soon(server);
        }
    }

    /// Tells clients of some sleepers whose value has ended. True where there is more to tell.
    fn tell_some(&mut self, server: &mut Server) -> bool {
        let touches = &mut self.observer.touches;
        if touches.is_on && !touches.sleepers.any() && self.spill.is_none() && touches.owed.is_empty() {
            *touches = Touches::default();
        }
        let now_ms = if touches.sleepers.any() { now_ms() } else { return false };
        if !touches.sleepers.have_ended(now_ms) || server.writes_are_paused() {
            return false;
        }
        let started = Instant::now();
        let is_over = |told: usize| told.is_multiple_of(TOLD_PER_LOOK) && started.elapsed() >= TURN_BUDGET;
        let mut told = 0;
        while let Some(sleeper) = touches.sleepers.take_ended(now_ms) {
            ends::tell(server, &sleeper);
            told += 1;
            if is_over(told) {
                break;
            }
        }
        touches.sleepers.have_ended(now_ms)
    }

    /// A transaction is about to run, unless a key that it watches is no more: so where clients watch keys, all whose value has ended
    /// are told now.
    fn tell_watchers(&mut self, server: &mut Server) {
        let sleepers = &mut self.observer.touches.sleepers;
        let now_ms = now_ms();
        if !sleepers.have_ended(now_ms) {
            return;
        }
        // Servers that don't say how many watch may have some.
        if server.info_fields(b"clients", ["watching_clients"]).is_some_and(|[watching]| watching == "0") {
            return;
        }
        while let Some(sleeper) = sleepers.take_ended(now_ms) {
            ends::tell(server, &sleeper);
        }
    }

    /// How long ago sampled keys were used before tells whether a class is periodic.
    pub(super) fn note_reuses(&mut self, now_us: u64) {
        if let Some(spill) = &mut self.spill {
            self.observer.sampled_keys.drain(..).for_each(|(partition, key)| spill.sampled(partition, key, now_us));
        }
    }

    /// A slice of falling asleep and waking. Where there is more to do, an idle event loop is asked for more.
    pub fn sleep_some(&mut self, server: &mut Server, now_us: u64) {
        if self.tell_some(server) {
            soon::call_soon(server);
        }
        // While writes are paused no key may come or go: what the disk has done waits.
        if !self.spill.as_ref().is_some_and(Spill::is_busy) || server.writes_are_paused() {
            return;
        }
        // What wakes fills memory faster than the ticks that look how full it is.
        self.may_be_short = true;
        let worked =
            self.with_spill(server, now_us, |spill, context| spill.work(context, TURN_BUDGET) && spill.is_busy());
        if worked == Some(true) {
            soon::call_soon(server);
        }
    }

    /// Ten times a second.
    pub(super) fn sleep_tick(&mut self, server: &mut Server, now_us: u64) {
        self.fit_spill(server, now_us);
        let may_evict = self.memory.policy != "noeviction";
        self.with_spill(server, now_us, |spill, context| {
            if !may_evict {
                // Nothing may be lost any more, so nothing may sleep.
                spill.wake_all(context);
            }
            spill.tick(context, may_evict);
        });
        if self.sleep_needs_watching() {
            self.watch(server, Watched::All);
        }
    }

    /// True while no command may pass unseen.
    pub(super) fn sleep_needs_watching(&self) -> bool {
        let touches = &self.observer.touches;
        touches.sleepers.any()
            || !touches.owed.is_empty()
            || self.spill.as_ref().is_some_and(|spill| spill.needs_watching(&self.observer))
    }

    /// What the filter found of sleepers in the command that is about to run.
    pub fn on_touched(&mut self, call: &FilterCall, server: &mut Server, touched: &Touched) {
        let asleep = self.end_if_over(server, &touched.keys);
        if touched.is_anything {
            self.observer.touches.sleepers.give_up_all();
        }
        if touched.is_exec {
            self.tell_watchers(server);
        }
        if asleep.is_empty() || (touched.is_read && self.makes_wait(call, server)) {
            return;
        }
        self.with_spill(server, now_us(), |spill, context| spill.wake_now(context, &asleep));
    }

    /// Of these keys those that sleep; whose value has ended is told now, before a command finds them absent.
    fn end_if_over(&mut self, server: &mut Server, keys: &[KeyHash]) -> Vec<KeyHash> {
        let sleepers = &mut self.observer.touches.sleepers;
        let mut asleep = Vec::with_capacity(keys.len());
        for key in keys {
            match sleepers.take_if_ended(*key, now_ms()) {
                Some(sleeper) => ends::tell(server, &sleeper),
                None => asleep.push(*key),
            }
        }
        asleep
    }

    /// True where the command's client will wait for the disk alone: it only reads, of a plain client outside a transaction, the
    /// server does not remember what it reads, and its user may run `TENURE.AWAIT`.
    fn makes_wait(&self, call: &FilterCall, server: &mut Server) -> bool {
        let Some(client_id) = call.client_id() else { return false };
        // Some writes count as reads: GETEX and PFCOUNT ask for a value all the same.
        let writes = self.observer.command(call).is_none_or(|command| command.marks.has(Marks::WRITES));
        let may_block = call.client(client_id).is_some_and(|client| !client.in_multi && !client.is_tracking);
        !writes && may_block && awaits::is_allowed(server, client_id) && call.put_behind_await(client_id)
    }

    /// A command that was put behind `TENURE.AWAIT` runs: its client waits, where its key still sleeps.
    pub fn await_value(&mut self, server: &mut Server, words: &[&[u8]]) -> Awaited {
        let Some(name) = self.observer.only_key(words) else { return Awaited::Runs };
        let (db, key) = self.sleeping(server, name);
        let Some(sleeper) = self.observer.touches.sleepers.get(key).filter(|s| s.db == db && *s.name == *name) else {
            return Awaited::Runs;
        };
        let (place, partition) = (sleeper.place, sleeper.partition);
        let refused = match (awaits::block::<Runtime>(server), &mut self.spill) {
            (Some(client), Some(spill)) => match spill.read_for(client, partition, place) {
                Ok(()) => return Awaited::Waits,
                Err(client) => Some(client),
            },
            (client, _) => client,
        };
        if let Some(client) = refused {
            client.abort();
        }
        self.with_spill(server, now_us(), |spill, context| spill.wake_now(context, &[key]));
        Awaited::Runs
    }

    /// The value that a client waited for was read, or was not: then its key is forgotten, so that nobody waits for it again.
    pub fn finish_await(&mut self, server: &mut Server, words: &[&[u8]], outcome: Option<Outcome>) {
        let Some(name) = self.observer.only_key(words) else { return };
        let (db, key) = self.sleeping(server, name);
        let now_us = now_us();
        self.with_spill(server, now_us, |spill, context| match outcome {
            Some((place, bytes)) => drop(spill.wake_with(context, key, place, bytes.as_deref())),
            None if context.observer.touches.sleepers.has(key, db, name) => spill.give_up_waiting(context, key),
            None => {}
        });
        server.select_db(db);
    }

    fn sleeping(&self, server: &mut Server, name: &[u8]) -> (u16, KeyHash) {
        let db = server.selected_db();
        (db, in_database(KeyHash::of(name), db))
    }

    /// A key came into being: if it slept, what is in memory is newer.
    pub(super) fn on_new_while_asleep(&mut self, db: u16, name: &[u8]) {
        let sleepers = &mut self.observer.touches.sleepers;
        if sleepers.any() {
            let key = in_database(KeyHash::of(name), db);
            sleepers.is_awake(key, db, name);
        }
    }

    /// What slept in a database is no more, or in any.
    pub(super) fn forget_sleepers(&mut self, server: &mut Server, db: Option<u16>) {
        let is_gone = |db_of: u16| db.is_none_or(|db| db_of == db);
        let Touches { sleepers, owed, .. } = &mut self.observer.touches;
        owed.retain(|(db, _)| !is_gone(*db));
        sleepers.forget_where(|sleeper| is_gone(sleeper.db), |sleeper| ends::tell_emptied(server, sleeper));
    }

    /// Databases have changed places: who sleeps is given up, of all of them.
    pub(super) fn swap_sleepers(&mut self, one: u16, other: u16) {
        let Touches { sleepers, owed, .. } = &mut self.observer.touches;
        sleepers.give_up_all();
        for (db, _) in owed {
            *db = if *db == one {
                other
            } else if *db == other {
                one
            } else {
                *db
            };
        }
    }

    /// An orderly stop: what it leaves on disk is the file of a warm restart, or nothing.
    pub fn on_shutdown(&mut self, server: &mut Server) {
        if self.settings.warm_restart && self.spill.is_some() {
            self.write_warm(server);
        }
        self.spill = None;
    }

    fn write_warm(&mut self, server: &mut Server) {
        self.count_keys(server);
        let text = match self.with_spill(server, now_us(), |spill, context| spill.write_warm(context)) {
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
    pub fn set_rest(&mut self, server: &mut Server, partition: PartitionId, asleep: bool) -> Result<(), String> {
        let now_us = now_us();
        self.fit_spill(server, now_us);
        if self.spill.is_none() {
            return Err(format!("sleep is {}", self.spill_status));
        }
        if asleep && self.memory.policy == "noeviction" {
            return Err("maxmemory-policy is noeviction: nothing may leave memory".to_owned());
        }
        // Keys may have come since the last tick.
        self.count_keys(server);
        if asleep {
            self.watch(server, Watched::All);
        }
        self.with_spill(server, now_us, |spill, context| match asleep {
            true => spill.sleep(context, partition),
            false => spill.wake(partition, context.window, now_us),
        });
        soon::call_soon(server);
        Ok(())
    }

    /// What a partition is about, for people.
    pub fn sleep_state_of(&self, partition: PartitionId) -> &'static str {
        match self.spill.as_ref().map_or(SleepState::Awake, |spill| spill.rest(partition)) {
            SleepState::Awake => "awake",
            SleepState::FallingAsleep { .. } => "falling asleep",
            SleepState::Asleep => "asleep",
            SleepState::Waking => "waking",
        }
    }
}
