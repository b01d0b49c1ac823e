//! Tenure as the server's callbacks come to it: what each means, told to whom it concerns.

use std::ffi::CStr;

use crate::commands::{self, table};
use crate::config::Settings;
use crate::feature::{Event, Outcome, Topic};
use crate::features;
use crate::ffi::clock::now_us;
use crate::ffi::commands::Command;
use crate::ffi::config;
use crate::ffi::filter::FilterCall;
use crate::ffi::info::Sink;
use crate::ffi::messages::{Messages, NodeId};
use crate::ffi::migration::Migration;
use crate::ffi::module::{Awaited, Cells, DataChange, Life, Module, Next};
use crate::ffi::reply::Answer;
use crate::ffi::server::{ScannedName, Server};
use crate::observe::command_table::Entry;
use crate::runtime::{Named, Runtime};
use crate::tenure::minimums;
use crate::{counts, info, worker};

static CELLS: Cells<Runtime> = Cells::empty();

impl Module for Runtime {
    const TITLE: &'static str = "Tenure";
    const NAME: &'static CStr = c"tenure";
    const ENABLED: &'static CStr = c"tenure.enabled";
    const RUNS_BY: &'static [&'static CStr] = &[c"maxmemory"];
    const COMMANDS: &'static [Command] = table::COMMANDS;
    const SINCE: &'static CStr = table::SINCE;
    const AWAIT: &'static CStr = c"tenure.await";
    // The last byte of the word is the version of all formats.
    const MESSAGES: Messages = Messages { first_type: 214, kinds: Topic::ALL.len() as u8, word: b"tenure\x01" };
    type Settings = Settings;
    /// The command, where the server's table has it.
    type Seen = Option<Entry>;
    type Outcome = Outcome;

    fn cells() -> &'static Cells<Self> {
        &CELLS
    }

    fn version() -> i32 {
        info::version_number()
    }

    fn start(
        server: &mut Server,
        settings_version: u64,
        settings: Settings,
        is_server_start: bool,
    ) -> Result<Runtime, String> {
        info::note_room(true);
        Runtime::start(server, settings_version, settings, is_server_start)
    }

    /// Minimums have to fit into the limit as it is now.
    fn check(running: Option<&mut Runtime>, server: &mut Server, settings: &Settings) -> Result<(), String> {
        let limit_bytes = server.info_field(c"memory", c"maxmemory").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        let room_bytes = running.and_then(|runtime| runtime.tenure.room_for_keys(server, limit_bytes));
        minimums::check(settings, limit_bytes, room_bytes)
    }

    fn stop(&mut self, server: &mut Server) {
        info::keep_last_counts(self);
        self.give_back(server);
    }

    fn unloaded() {
        worker::wait_for_leaving();
        counts::forget();
    }

    fn after_fault(server: &mut Server) {
        features::after_fault(server);
    }

    #[inline]
    fn before_command(&mut self, call: &FilterCall) -> Option<Option<Entry>> {
        match self.named(call) {
            Named::Unseen => None,
            Named::Seen(command) => Some(command),
        }
    }

    #[inline]
    fn on_command(&mut self, call: &mut FilterCall, command: Option<Entry>) -> Next {
        Runtime::on_command(self, call, command, now_us);
        self.tenure.observer.next()
    }

    fn on_miss(&mut self, db: u16, key: &[u8]) {
        self.tenure.observer.on_miss(db, key, now_us());
    }

    fn on_key_event(&mut self, server: &mut Server, db: u16, event: &CStr, key: &ScannedName) {
        Runtime::on_key_event(self, server, db, event, key);
    }

    fn end_turn(&mut self, server: &mut Server) -> Life {
        if self.tenure.settings_version != config::version() {
            let (version, now) = config::current::<Runtime>(server);
            info::keep_counts(self, |runtime| runtime.take_settings(server, version, now));
        }
        Runtime::end_turn(self, server, now_us());
        if !self.tenure.settings().enabled {
            return Life::Stops("tenure.enabled is 'no'");
        }
        if !self.has_room {
            info::note_room(false);
            return Life::Stops(info::NO_ROOM);
        }
        if self.tenure.worker.is_alive() { Life::Runs } else { Life::Ails }
    }

    fn on_idle(&mut self, server: &mut Server) {
        self.idle(server);
    }

    fn on_wake(&mut self, server: &mut Server) {
        self.tenure.end_slice(server, now_us());
    }

    fn on_config_change(&mut self, server: &mut Server) {
        self.server_may_have_changed(server);
    }

    fn on_disconnect(&mut self, server: &mut Server, client_id: u64) {
        self.on_client_gone(server, client_id);
    }

    fn on_data_change(&mut self, server: &mut Server, change: DataChange) {
        Runtime::on_data_change(self, server, change);
    }

    fn on_migration(&mut self, server: &mut Server, migration: Migration) {
        self.event(server, &Event::Migration(&migration));
        self.tenure.on_migration(migration);
    }

    fn on_cron(&mut self, server: &mut Server) {
        self.settle(server);
    }

    fn on_shutdown(&mut self, server: &mut Server) {
        self.event(server, &Event::Stopping);
    }

    fn on_message(&mut self, server: &mut Server, sender: &NodeId, kind: u8, body: &[u8]) {
        if let Some(topic) = Topic::of(kind) {
            self.event(server, &Event::Message { sender, topic, body });
        }
    }

    fn on_await(&mut self, server: &mut Server, words: &[&[u8]]) -> Awaited {
        Runtime::on_await(self, server, words)
    }

    fn on_awaited(&mut self, server: &mut Server, words: &[&[u8]], outcome: Option<Outcome>) {
        Runtime::on_awaited(self, server, words, outcome);
    }

    fn refuse(words: &[&[u8]]) -> Option<Answer> {
        commands::changes(words).then(commands::no_permission)
    }

    fn on_own_command(&mut self, server: &mut Server, words: &[&[u8]]) -> Answer {
        commands::run(self, server, words)
    }

    fn answer_stopped(words: &[&[u8]]) -> Answer {
        commands::run_stopped(words)
    }

    fn info(&self, sink: &mut Sink) {
        info::write(self, sink);
    }

    fn info_stopped(sink: &mut Sink) {
        info::write_stopped(sink);
    }
}
