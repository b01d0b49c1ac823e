//! Sleep and warm restart as a feature: when values may sleep on disk, and what wakes them; ties [`Spill`] to turns,
//! to commands and to the server's events.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use tenure_core::units::{KeyHash, PartitionId};

use super::disk::Read;
use super::file::Folder;
use super::touches::{Touched, Touches};
use super::{Counts, SleepContext, SleepState, Spill, ends, now_ms};
use crate::config::Settings;
use crate::feature::{Block, Column, Event, Feature, Outcome, Report, Turn, Wants, When};
use crate::ffi::awaits;
use crate::ffi::clock::now_us;
use crate::ffi::context::own_context;
use crate::ffi::filter::{self, FilterCall};
use crate::ffi::info::Value;
use crate::ffi::module::{Awaited, DataChange};
use crate::ffi::reply::Answer;
use crate::ffi::server::{Level, Server};
use crate::ffi::{load, soon};
use crate::observe::command_table::{Effect, Entry, Marks};
use crate::observe::partitions::in_database;
use crate::tenure::Tenure;

/// What falling asleep and waking may take of one turn, and telling whose value has ended.
const TURN_BUDGET: Duration = Duration::from_micros(200);
/// So many are told between two looks at the clock.
const TOLD_PER_LOOK: usize = 16;

/// The feature. See the file's opening.
pub struct Sleep {
    /// Who is asleep, and which of them commands name.
    touches: Touches,
    /// Where values sleep, while they may.
    spill: Option<Spill>,
    /// Whether they may, and why not.
    status: Cow<'static, str>,
    /// The folder can't be used.
    failed: Option<String>,
    /// What was counted by folders that were let go of.
    past: Counts,
    /// Tenure was started with the server, before any client.
    is_server_start: bool,
    /// Which settings were taken, and the folder among them.
    settings_version: u64,
    folder: String,
    /// Which set of partitions sleepers are told apart by, and how often each number went to another tenant.
    epoch: u32,
    generations: Vec<u16>,
}

impl Sleep {
    /// Nothing sleeps before the first tick.
    pub fn new(is_server_start: bool) -> Sleep {
        Sleep {
            touches: Touches::default(),
            spill: None,
            status: "off".into(),
            failed: None,
            past: Counts::default(),
            is_server_start,
            settings_version: u64::MAX,
            folder: String::new(),
            epoch: 0,
            generations: Vec::new(),
        }
    }

    /// True while no command may pass unseen.
    fn needs_watching(&self) -> bool {
        let touches = &self.touches;
        touches.sleepers.any() || !touches.owed.is_empty() || self.spill.as_ref().is_some_and(Spill::needs_watching)
    }
}

/// Its settings that are more than a number.
impl Settings {
    /// Takes another folder for `tenure.spill-dir`.
    ///
    /// # Errors
    /// Where the server serves already, and it can't be made or written to, or is another server's; nothing changes
    /// then.
    pub fn set_spill_dir(&mut self, text: &str) -> Result<(), String> {
        // At the start the server is not to fail over it: it says so and runs without sleep.
        if !text.is_empty() && load::is_loaded() {
            Folder::check(Path::new(text))?;
        }
        self.spill_dir = text.to_owned();
        Ok(())
    }
}

impl Feature for Sleep {
    /// Transactions are followed wherever values may sleep: what one queues may fall asleep before it runs.
    fn wants(&self) -> Wants {
        let while_on = Wants::TURNS | Wants::SLICES | Wants::SAMPLES | Wants::NEW_KEYS | Wants::SEEN_COMMANDS;
        let while_asleep = Wants::COMMANDS | Wants::READS | Wants::OBSERVED;
        while_on.when(self.touches.is_on)
            | while_asleep.when(self.needs_watching())
            | Wants::TO_BLOCK.when(self.touches.sleepers.any())
    }

    /// What may name a sleeping key is looked up: the key of a command that has one at a fixed place, else all words.
    fn command(&mut self, tenure: &mut Tenure, call: &mut FilterCall, command: Option<Entry>) {
        match command.map(|command| (command, command.only_key())) {
            Some((_, Some((position, effect)))) => self.touches.key(tenure, call, position, effect == Effect::Read),
            Some((command, None)) => {
                self.touches.follow_transactions(call, command.sets);
                self.touches.all_words(tenure, call);
            }
            None => self.touches.all_words(tenure, call),
        }
    }

    fn command_noted(&mut self, tenure: &mut Tenure, call: &mut FilterCall) {
        let touched = self.touches.take();
        if touched.is_none() && self.touches.owed.is_empty() {
            return;
        }
        let Some(mut server) = own_context(call) else { return };
        if let Some(touched) = touched {
            self.on_touched(call, &mut Turn { server: &mut server, now_us: now_us(), tenure }, &touched);
        }
        if !self.touches.owed.is_empty() {
            self.settle_soon(&mut server);
        }
    }

    /// If it slept, what is in memory is newer.
    fn new_key(&mut self, db: u16, name: &[u8]) {
        let sleepers = &mut self.touches.sleepers;
        if sleepers.any() {
            let key = in_database(KeyHash::of(name), db);
            sleepers.is_awake(key, db, name);
        }
    }

    /// First of all what pauses of writes have left to do.
    fn end_turn(&mut self, turn: &mut Turn) {
        self.follow_partitions(turn.tenure);
        if let Some(spill) = &mut self.spill {
            spill.note_pause(turn.server.writes_are_paused());
        }
        self.settle(turn.server);
    }

    fn slice(&mut self, turn: &mut Turn, _: When) {
        self.follow_partitions(turn.tenure);
        self.note_reuses(turn);
        self.sleep_some(turn);
        self.hold_what_wakes(turn);
    }

    /// Where writes are no longer paused, replicas have what woke meanwhile.
    fn settle(&mut self, server: &mut Server) {
        ends::settle(server, &mut self.touches.owed);
    }

    fn tick(&mut self, turn: &mut Turn) {
        self.follow_partitions(turn.tenure);
        self.open_or_let_go(turn);
        let may_evict = turn.tenure.memory.policy != "noeviction";
        self.with_spill(turn, |spill, context| {
            if !may_evict {
                // Nothing may be lost any more, so nothing may sleep.
                spill.wake_all(context);
            }
            spill.tick(context, may_evict);
        });
    }

    fn event(&mut self, turn: &mut Turn, event: &Event) {
        match event {
            Event::Configured if self.settings_version != turn.tenure.settings_version => self.take_settings(turn),
            Event::DataSet(change) => self.on_data_change(turn.server, *change),
            Event::ClientGone(client_id) => self.touches.discard(*client_id),
            Event::Stopping => self.stop(turn),
            Event::Configured | Event::StatsReset | Event::Message { .. } => {}
        }
    }

    fn run(&mut self, turn: &mut Turn, name: &str, arguments: &[&[u8]]) -> Option<Answer> {
        let answer = |done: Result<(), String>| match done {
            Ok(()) => Answer::Ok,
            Err(why) => Answer::Error(format!("ERR {why}")),
        };
        match (name, arguments) {
            ("tenure.sleep", [of]) => Some(answer(self.put_to_rest(turn, of, true))),
            ("tenure.wake", [of]) => Some(answer(self.put_to_rest(turn, of, false))),
            ("tenure.debug", [topic, of]) if is(topic, b"panic") && is(of, b"reads") => {
                self.spill.iter().for_each(Spill::panic_at_next_read);
                Some(Answer::Ok)
            }
            _ => None,
        }
    }

    /// A command that was put behind `TENURE.AWAIT` runs: its client waits, where its key still sleeps.
    fn awaits(&mut self, turn: &mut Turn, words: &[&[u8]], block: Block) -> Option<Awaited> {
        self.follow_partitions(turn.tenure);
        let name = turn.tenure.observer.only_key(words)?;
        let (db, key) = sleeping(turn.server, name);
        let sleeper = self.touches.sleepers.get(key).filter(|s| s.db == db && *s.name == *name)?;
        let (place, partition) = (sleeper.place, sleeper.partition);
        let refused = match (block(turn.server), &mut self.spill) {
            (Some(client), Some(spill)) => match spill.read_for(client, partition, place) {
                Ok(()) => return Some(Awaited::Waits),
                Err(client) => Some(client),
            },
            (client, _) => client,
        };
        if let Some(client) = refused {
            client.abort();
        }
        self.with_spill(turn, |spill, context| spill.wake_now(context, &[key]));
        Some(Awaited::Runs)
    }

    /// The value that a client waited for was read, or was not: then its key is forgotten, so that nobody waits for
    /// it again.
    fn awaited(&mut self, turn: &mut Turn, words: &[&[u8]], outcome: &mut Option<Outcome>) {
        self.follow_partitions(turn.tenure);
        let read = outcome.take_if(|outcome| outcome.is::<Read>()).and_then(|read| read.downcast::<Read>().ok());
        let Some(name) = turn.tenure.observer.only_key(words) else { return };
        let (db, key) = sleeping(turn.server, name);
        self.with_spill(turn, |spill, context| match read.as_deref() {
            Some((place, bytes)) => drop(spill.wake_with(context, key, *place, bytes.as_deref())),
            None if context.touches.sleepers.has(key, db, name) => spill.give_up_waiting(context, key),
            None => {}
        });
        turn.server.select_db(db);
    }

    fn report(&self, tenure: &Tenure, report: &mut Report) {
        use Value::{Count, Text, Total};
        let (sleepers, counts) = (&self.touches.sleepers, self.counts());
        report.status.push(("sleep", Text(self.status.to_string())));
        let fields = [
            ("sleep", Text(self.status.to_string())),
            ("sleeping_keys", Count(sleepers.len() as u64)),
            ("sleeping_bytes", Count(sleepers.live_bytes())),
            ("spill_disk_bytes", Count(sleepers.disk_bytes())),
            ("slept_keys", Total(counts.slept)),
            ("woken_keys", Total(counts.woken)),
            ("sleeping_reads", Total(counts.touched)),
            ("spill_refused", Total(counts.refused)),
            ("spill_damaged", Total(counts.damaged)),
            ("spill_given_up", Total(counts.given_up)),
        ];
        report.info.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        let partitions = || (0..tenure.observer.partitions.len() as u16).map(PartitionId);
        let keys = partitions().map(|partition| Count(sleepers.of(partition) as u64)).collect();
        let rest = partitions().map(|partition| Text(self.rest_of(partition).to_owned())).collect();
        report.partitions.push(Column { name: "sleeping_keys", of_partition: keys });
        report.partitions.push(Column { name: "rest", of_partition: rest });
    }

    /// Lets go of the folder and tells all clients at once: there are no turns to come.
    fn release(&mut self, server: &mut Server) {
        self.let_go();
        ends::settle(server, &mut self.touches.owed);
        self.touches.sleepers.forget_where(|_| true, |sleeper| ends::tell(server, sleeper));
    }
}

fn is(word: &[u8], name: &[u8]) -> bool {
    word.eq_ignore_ascii_case(name)
}

fn sleeping(server: &mut Server, name: &[u8]) -> (u16, KeyHash) {
    let db = server.selected_db();
    (db, in_database(KeyHash::of(name), db))
}

/// What stands against sleep on this server with these settings.
///
/// # Errors
/// Why values can't sleep.
fn is_possible(settings: &Settings, server: &mut Server) -> Result<(), &'static str> {
    let flags = server.flags();
    if settings.spill_dir.is_empty() {
        Err("off: tenure.spill-dir is empty")
    } else if !filter::knows_clients() {
        Err("off: this server doesn't tell modules who sends a command; Valkey 7.2 and Redis 7.2 do")
    } else if flags.is_cluster() {
        Err("off: this server is a node of a cluster, whose slots may move")
    } else if flags.is_replica() {
        Err("off: this server is a replica")
    } else if flags.is_loading() {
        Err("off: the server is loading")
    } else {
        Ok(())
    }
}

/// When values may sleep.
impl Sleep {
    /// Works with the spill, where there is one, on what it needs of the rest.
    fn with_spill<R>(&mut self, turn: &mut Turn, body: impl FnOnce(&mut Spill, &mut SleepContext) -> R) -> Option<R> {
        let spill = self.spill.as_mut()?;
        let Turn { server, now_us, tenure } = turn;
        let headroom_bytes = tenure.headroom_bytes();
        let (room_bytes, burst_bytes) = match tenure.memory.limit_bytes {
            0 => (i64::MAX, i64::MAX),
            limit => {
                let room_bytes = limit.saturating_sub(headroom_bytes) as i64 - tenure.used_bytes(server) as i64;
                (room_bytes, (headroom_bytes / 2).max(1) as i64)
            }
        };
        let volatile_only = tenure.memory.policy.starts_with("volatile");
        let (now_us, window) = (*now_us, tenure.published.window);
        let Tenure { observer, usage, databases, .. } = &mut **tenure;
        let db_sizes = &databases.sizes;
        let touches = &mut self.touches;
        let mut context = SleepContext {
            server,
            observer,
            touches,
            usage,
            db_sizes,
            room_bytes,
            burst_bytes,
            volatile_only,
            now_us,
            window,
        };
        Some(body(spill, &mut context))
    }

    fn take_settings(&mut self, turn: &mut Turn) {
        self.settings_version = turn.tenure.settings_version;
        let settings = turn.tenure.settings();
        if self.folder != settings.spill_dir {
            self.folder.clone_from(&settings.spill_dir);
            self.let_go();
        }
        // Whatever was set may be what was missing.
        self.failed = None;
        if let Some(spill) = &mut self.spill {
            spill.take_settings(settings, turn.now_us);
        }
    }

    /// Sleepers of partitions that are no more are those of the new ones, whose rhythms are to be learned.
    fn follow_partitions(&mut self, tenure: &mut Tenure) {
        let (epoch, generations) = (tenure.observer.epoch(), tenure.observer.partitions.generations());
        let is_other = std::mem::replace(&mut self.epoch, epoch) != epoch;
        // What sleeps stays whose it was while tenants only come.
        if !is_other && generations.starts_with(&self.generations) {
            self.generations.extend_from_slice(&generations[self.generations.len()..]);
            return;
        }
        let stays = |(i, before): (usize, &u16)| !is_other && generations.get(i) == Some(before);
        let stay: Vec<bool> = self.generations.iter().enumerate().map(stays).collect();
        self.generations = generations.to_vec();
        if let Some(spill) = &mut self.spill {
            spill.divide_anew(&stay, &mut tenure.observer.partitions, &mut self.touches.sleepers);
        }
    }

    /// Opens the folder or lets go of it, as it should be; ten times a second.
    fn open_or_let_go(&mut self, turn: &mut Turn) {
        let settings = turn.tenure.settings();
        self.status = match (is_possible(settings, turn.server), &self.failed) {
            (Ok(()), None) => "ready".into(),
            (Ok(()), Some(failed)) => failed.clone().into(),
            (Err(why), _) => why.into(),
        };
        if self.status != "ready" {
            return self.let_go();
        }
        if self.spill.is_some() {
            return;
        }
        match Spill::start(settings, turn.now_us) {
            Ok(spill) => {
                self.spill = Some(spill);
                self.touches.is_on = true;
                self.take_warm(turn);
            }
            Err(why) => {
                turn.server.log(Level::Warning, &format!("values can't sleep: {why}"));
                let failed = format!("off: tenure.spill-dir can't be used: {why}; setting it anew tries again");
                self.status = failed.clone().into();
                self.failed = Some(failed);
            }
        }
    }

    /// Lets go of the folder: what sleeps is gone, as if evicted, which clients are told over the next turns.
    fn let_go(&mut self) {
        if let Some(spill) = self.spill.take() {
            self.past += spill.counts;
            self.touches.sleepers.give_up_all();
            self.touches.sleepers.forget_segments();
        }
    }

    /// What was counted, by this folder and those before.
    fn counts(&self) -> Counts {
        let mut counts = self.past;
        counts += self.spill.as_ref().map(|spill| spill.counts).unwrap_or_default();
        counts
    }

    /// `TENURE.SLEEP` and `TENURE.WAKE`.
    ///
    /// # Errors
    /// What stands against it.
    fn put_to_rest(&mut self, turn: &mut Turn, of: &[u8], asleep: bool) -> Result<(), String> {
        let partition = turn.tenure.observer.partitions.called(of)?;
        self.follow_partitions(turn.tenure);
        self.open_or_let_go(turn);
        if self.spill.is_none() {
            return Err(format!("sleep is {}", self.status));
        }
        if asleep && turn.tenure.memory.policy == "noeviction" {
            return Err("maxmemory-policy is noeviction: nothing may leave memory".to_owned());
        }
        // Keys may have come since the last tick.
        turn.tenure.count_keys(turn.server);
        self.with_spill(turn, |spill, context| match asleep {
            true => spill.sleep(context, partition),
            false => spill.wake(partition, context.window, context.now_us),
        });
        soon::call_soon(turn.server);
        Ok(())
    }

    /// What a partition is about, for people.
    fn rest_of(&self, partition: PartitionId) -> &'static str {
        match self.spill.as_ref().map_or(SleepState::Awake, |spill| spill.rest(partition)) {
            SleepState::Awake => "awake",
            SleepState::FallingAsleep { .. } => "falling asleep",
            SleepState::Asleep => "asleep",
            SleepState::Waking => "waking",
        }
    }
}

/// What turns bring.
impl Sleep {
    /// How long ago sampled keys were used before tells whether a class is periodic.
    fn note_reuses(&mut self, turn: &mut Turn) {
        if let (Some(sampled), Some(spill)) = (&mut turn.tenure.observer.sampler.kept, &mut self.spill) {
            sampled.drain(..).for_each(|(partition, key)| spill.sampled(partition, key, turn.now_us));
        }
    }

    /// A slice of falling asleep and waking. Where there is more to do, an idle event loop is asked for more.
    fn sleep_some(&mut self, turn: &mut Turn) {
        if self.tell_some(turn.server) {
            soon::call_soon(turn.server);
        }
        // While writes are paused no key may come or go: what the disk has done waits.
        if !self.spill.as_ref().is_some_and(Spill::is_busy) || turn.server.writes_are_paused() {
            return;
        }
        // What wakes fills memory faster than the ticks that look how full it is.
        turn.tenure.expect_shortage();
        let worked = self.with_spill(turn, |spill, context| spill.work(context, TURN_BUDGET) && spill.is_busy());
        if worked == Some(true) {
            soon::call_soon(turn.server);
        }
    }

    /// What wakes is to have what it had: its memory is made room for by others.
    fn hold_what_wakes(&self, turn: &mut Turn) {
        let window = turn.tenure.published.window;
        let held_bytes = self.spill.as_ref().map_or(Vec::new(), |spill| spill.held_bytes(window, turn.now_us));
        turn.tenure.observer.partitions.held_bytes = held_bytes;
    }

    /// Tells clients of some sleepers whose value has ended. True where there is more to tell.
    fn tell_some(&mut self, server: &mut Server) -> bool {
        let touches = &mut self.touches;
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

    /// Values of the last orderly stop, where this is the server's start: later, clients may have changed anything.
    fn take_warm(&mut self, turn: &mut Turn) {
        let wanted = std::mem::take(&mut self.is_server_start) && turn.tenure.settings().warm_restart;
        let text = match self.with_spill(turn, |spill, context| spill.take_warm(context, wanted)) {
            Some(Ok(warm)) if warm.keys > 0 => {
                format!("warm restart: {} values of the last stop, {} bytes", warm.keys, warm.bytes)
            }
            Some(Err(why)) => format!("no warm restart: {why}"),
            _ => return,
        };
        turn.server.log(Level::Notice, &text);
    }

    /// An orderly stop: what it leaves on disk is the file of a warm restart, or nothing.
    fn stop(&mut self, turn: &mut Turn) {
        if turn.tenure.settings().warm_restart && self.spill.is_some() {
            self.follow_partitions(turn.tenure);
            self.write_warm(turn);
        }
        self.spill = None;
    }

    fn write_warm(&mut self, turn: &mut Turn) {
        turn.tenure.count_keys(turn.server);
        let text = match self.with_spill(turn, |spill, context| spill.write_warm(context)) {
            Some(Ok(warm)) => format!("warm restart: {} values written, {} bytes", warm.keys, warm.bytes),
            Some(Err(why)) => format!("no warm restart: values can't be written: {why}"),
            None => return,
        };
        turn.server.log(Level::Notice, &text);
    }
}

/// What commands and the server's events bring.
impl Sleep {
    /// What the filter found of sleepers in the command that is about to run.
    fn on_touched(&mut self, call: &FilterCall, turn: &mut Turn, touched: &Touched) {
        let asleep = self.end_if_over(turn.server, &touched.keys);
        if touched.is_anything {
            self.touches.sleepers.give_up_all();
        }
        if touched.is_exec {
            self.tell_watchers(turn.server);
        }
        if asleep.is_empty() || (touched.is_read && makes_wait(call, turn)) {
            return;
        }
        self.with_spill(turn, |spill, context| spill.wake_now(context, &asleep));
    }

    /// Of these keys those that sleep; whose value has ended is told now, before a command finds them absent.
    fn end_if_over(&mut self, server: &mut Server, keys: &[KeyHash]) -> Vec<KeyHash> {
        let sleepers = &mut self.touches.sleepers;
        let mut asleep = Vec::with_capacity(keys.len());
        for key in keys {
            match sleepers.take_if_ended(*key, now_ms()) {
                Some(sleeper) => ends::tell(server, &sleeper),
                None => asleep.push(*key),
            }
        }
        asleep
    }

    /// A transaction is about to run, unless a key that it watches is no more: so where clients watch keys, all whose
    /// value has ended are told now.
    fn tell_watchers(&mut self, server: &mut Server) {
        let sleepers = &mut self.touches.sleepers;
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

    /// The same before a command runs. It may be the one that ends the pause: so once more after this turn's commands.
    fn settle_soon(&mut self, server: &mut Server) {
        self.settle(server);
        if !self.touches.owed.is_empty() {
            soon::call_soon(server);
        }
    }

    fn on_data_change(&mut self, server: &mut Server, change: DataChange) {
        match change {
            DataChange::Emptied(db) => self.touches.forget_database(server, db),
            DataChange::Swapped(one, other) => self.touches.swap_databases(one, other),
            DataChange::Loaded | DataChange::Replaced | DataChange::OtherRole => self.touches.sleepers.give_up_all(),
        }
    }
}

/// True where the command's client will wait for the disk alone: it only reads, of a plain client outside a
/// transaction, the server does not remember what it reads, and its user may run `TENURE.AWAIT`.
fn makes_wait(call: &FilterCall, turn: &mut Turn) -> bool {
    let Some(client_id) = call.client_id() else { return false };
    // Some writes count as reads: GETEX and PFCOUNT ask for a value all the same.
    let writes = turn.tenure.observer.command(call).is_none_or(|command| command.marks.has(Marks::WRITES));
    let may_block = call.client(client_id).is_some_and(|client| !client.in_multi && !client.is_tracking);
    !writes && may_block && awaits::is_allowed(turn.server, client_id) && call.put_behind_await(client_id)
}
