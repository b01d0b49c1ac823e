//! Sleep and warm restart as a feature: when values may sleep on disk, and what wakes them; ties [`Spill`] to turns,
//! to commands and to the server's events.

mod commands;
mod folder;
pub mod slots;
mod turns;

use std::borrow::Cow;
use std::path::Path;

use tenure_core::units::{KeyHash, PartitionId};

use self::slots::MovingSlots;
use super::disk::Read;
use super::file::Folder;
use super::touches::Touches;
use super::{Counts, Spill, ends};
use crate::config::Settings;
use crate::feature::{Block, Column, Event, Feature, Outcome, Report, Turn, Wants, When};
use crate::ffi::clock::now_us;
use crate::ffi::context::own_context;
use crate::ffi::filter::FilterCall;
use crate::ffi::info::Value;
use crate::ffi::load;
use crate::ffi::module::Awaited;
use crate::ffi::reply::Answer;
use crate::ffi::server::Server;
use crate::observe::command_table::{Effect, Entry};
use crate::observe::partitions::in_database;
use crate::tenure::Tenure;

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
    /// Slots that come and go, on a node of a cluster.
    slots: MovingSlots,
    /// Which set of partitions sleepers are told apart by, and how often each number went to another tenant.
    epoch: u32,
    generations: Vec<u16>,
}

impl Sleep {
    /// Nothing sleeps before the first tick.
    pub fn new(is_server_start: bool, is_node: bool) -> Sleep {
        Sleep {
            touches: Touches::default(),
            spill: None,
            status: "off".into(),
            failed: None,
            past: Counts::default(),
            is_server_start,
            settings_version: u64::MAX,
            folder: String::new(),
            slots: MovingSlots::new(is_node),
            epoch: 0,
            generations: Vec::new(),
        }
    }

    /// Of a command without one key at a fixed place.
    fn all_words(&mut self, tenure: &mut Tenure, call: &FilterCall) {
        if self.slots.is_node {
            self.slots.change = slots::change_by(call);
        }
        self.touches.all_words(tenure, call);
    }

    /// True while no command may go by unheard.
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
        let while_asleep = Wants::COMMANDS | Wants::READS | Wants::WRITERS;
        while_on.when(self.touches.is_on)
            | while_asleep.when(self.needs_watching())
            | Wants::TO_BLOCK.when(self.touches.sleepers.any())
    }

    /// What may name a sleeping key is looked up: the key of a command that has one at a fixed place, else all words.
    fn command(&mut self, tenure: &mut Tenure, call: &mut FilterCall, command: Option<Entry>) {
        match command.map(|command| (command, command.only_key())) {
            Some((_, Some((position, effect)))) => self.touches.key(tenure, call, position, effect == Effect::Read),
            Some((command, None)) => {
                self.touches.follow_transactions(call, command.sets, tenure.gaps());
                self.all_words(tenure, call);
            }
            None => self.all_words(tenure, call),
        }
    }

    fn command_noted(&mut self, tenure: &mut Tenure, call: &mut FilterCall) {
        let (touched, change) = (self.touches.take(), self.slots.change.take());
        if touched.is_none() && self.touches.owed.is_empty() && change.is_none() {
            return;
        }
        let Some(mut server) = own_context(call) else { return };
        if let Some(change) = change.filter(|_| call.may_run()) {
            self.before_slots_change(&mut Turn { server: &mut server, now_us: now_us(), tenure }, change);
        }
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
        self.follow_slots(turn);
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
            Event::Migration(migration) => self.on_migration(migration),
            Event::Stopping => self.stop(turn),
            Event::Configured | Event::StatsReset | Event::Message { .. } => {}
        }
    }

    fn run(&mut self, turn: &mut Turn, name: &str, arguments: &[&[u8]]) -> Option<Answer> {
        let answer = |done: Result<(), String>| match done {
            Ok(()) => Answer::Ok,
            Err(why) => Answer::error(why),
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
            Some((place, bytes)) => spill.wake_waited_for(context, key, *place, bytes.as_deref()),
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
