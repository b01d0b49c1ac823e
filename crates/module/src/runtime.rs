//! The order of things on the main thread: what Tenure itself does and what its features do, at each call of the
//! server.
//!
//! [`Tenure`] watches, plans and evicts; features (`features::all`) plug in through [`Feature`], and nothing here
//! knows one by name. Where none is on, a command costs one test of a bit mask for all of them.

use std::ffi::CStr;

use crate::config::Settings;
use crate::feature::{Event, Feature, Outcome, Report, Turn, Wants, When};
use crate::features;
use crate::ffi::awaits;
use crate::ffi::clock::now_us;
use crate::ffi::filter::FilterCall;
use crate::ffi::module::{Awaited, DataChange};
use crate::ffi::reply::Answer;
use crate::ffi::server::{ScannedName, Server};
use crate::info;
use crate::observe::command_table::Entry;
use crate::observe::duty::Watched;
use crate::tenure::Tenure;

/// What the filter makes of a command by its name alone.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// It is none of Tenure's business.
    Unseen,
    /// It is, and so is what the server's table says of it; `None` where it isn't there.
    Seen(Option<Entry>),
}

/// The features that there are, and what they want to hear.
struct Features {
    all: Vec<(Box<dyn Feature>, Wants)>,
    /// What any of them wants.
    wants: Wants,
}

impl Features {
    fn new(all: Vec<Box<dyn Feature>>) -> Features {
        Features { all: all.into_iter().map(|feature| (feature, Wants::NOTHING)).collect(), wants: Wants::NOTHING }
    }

    /// Calls `body` with each feature that `is_meant` by what it wanted before, and asks it afterwards what it wants
    /// now.
    fn each(&mut self, is_meant: impl Fn(Wants) -> bool, mut body: impl FnMut(&mut dyn Feature)) {
        let mut all_wants = Wants::NOTHING;
        for (feature, wants) in &mut self.all {
            if is_meant(*wants) {
                body(&mut **feature);
                *wants = feature.wants();
            }
            all_wants = all_wants | *wants;
        }
        self.wants = all_wants;
    }
}

/// All of Tenure. See the file's opening.
pub struct Runtime {
    /// What watches, plans and evicts.
    pub tenure: Tenure,
    features: Features,
    /// Which set of partitions features have heard of.
    epoch: u32,
    /// False where the server's limit is so low that Tenure's own memory would leave too little to keys, and no
    /// feature has anything to do.
    pub has_room: bool,
}

impl Runtime {
    /// Fresh state, and the worker's thread.
    ///
    /// # Errors
    /// Why it can't run on this server, as a sentence.
    pub fn start(
        server: &mut Server,
        settings_version: u64,
        settings: Settings,
        is_server_start: bool,
    ) -> Result<Runtime, String> {
        let tenure = Tenure::start(server, settings_version, settings)?;
        let features = Features::new(features::all(server, is_server_start));
        let mut runtime = Runtime { tenure, features, epoch: 0, has_room: true };
        runtime.event(server, &Event::Configured);
        Ok(runtime)
    }

    /// What there is to do about a command that is about to run, told by its name.
    #[inline]
    pub fn named(&mut self, call: &FilterCall) -> Named {
        let command = self.tenure.observer.command(call);
        let passes = !self.features.wants.has(Wants::READS) && self.tenure.observer.passes(command);
        if passes { Named::Unseen } else { Named::Seen(command) }
    }

    /// Such a command is about to run, as [`Runtime::named`] has told.
    #[inline]
    pub fn on_command(&mut self, call: &mut FilterCall, command: Option<Entry>, now_us: impl Fn() -> u64) {
        if self.features.wants.has(Wants::HEARS_COMMANDS) {
            return self.on_command_heard(call, command, now_us);
        }
        // Where nobody wants to hear of commands and nothing is watched, there is no filter.
        self.tenure.observer.on_command(call, command, now_us);
    }

    /// The same where features hear of it.
    #[inline(never)]
    fn on_command_heard(&mut self, call: &mut FilterCall, command: Option<Entry>, now_us: impl Fn() -> u64) {
        let hears = |wants: &Wants| wants.has(Wants::HEARS_COMMANDS);
        for (feature, _) in self.features.all.iter_mut().filter(|(_, wants)| hears(wants)) {
            feature.command(&mut self.tenure, call, command);
        }
        if self.tenure.observer.coverage.watched() != Watched::Nothing {
            self.tenure.observer.on_command(call, command, now_us);
        }
        for (feature, _) in self.features.all.iter_mut().filter(|(_, wants)| hears(wants)) {
            feature.command_noted(&mut self.tenure, call);
        }
    }

    /// A key came, went, or something happened to it.
    pub fn on_key_event(&mut self, server: &mut Server, db: u16, event: &CStr, key: &ScannedName) {
        if self.features.wants.has(Wants::NEW_KEYS) && event == c"new" {
            let all = &mut self.features.all;
            all.iter_mut()
                .filter(|(_, wants)| wants.has(Wants::NEW_KEYS))
                .for_each(|(f, _)| f.new_key(db, key.as_ref()));
        }
        self.tenure.on_key_event(server, db, event, key);
    }

    /// A command stands behind the word that lets its client wait.
    pub fn on_await(&mut self, server: &mut Server, words: &[&[u8]]) -> Awaited {
        let mut awaited = None;
        self.each(
            server,
            now_us(),
            |_| true,
            |feature, turn| {
                if awaited.is_none() {
                    awaited = feature.awaits(turn, words, awaits::block::<Runtime>);
                }
            },
        );
        awaited.unwrap_or(Awaited::Runs)
    }

    /// Its client's wait is over.
    pub fn on_awaited(&mut self, server: &mut Server, words: &[&[u8]], mut outcome: Option<Outcome>) {
        self.each(server, now_us(), |_| true, |feature, turn| feature.awaited(turn, words, &mut outcome));
    }

    /// Takes changed settings.
    pub fn take_settings(&mut self, server: &mut Server, version: u64, settings: Settings) {
        self.tenure.take_settings(version, settings);
        self.event(server, &Event::Configured);
    }

    /// The server's configuration changed: what depends on it is read again at the end of this turn.
    pub fn server_may_have_changed(&mut self, server: &mut Server) {
        self.tenure.server_may_have_changed();
        self.event(server, &Event::Configured);
    }

    /// The data set as a whole has changed, or is about to.
    pub fn on_data_change(&mut self, server: &mut Server, change: DataChange) {
        self.event(server, &Event::DataSet(change));
        self.tenure.on_data_change(change);
    }

    /// A connection has ended.
    pub fn on_client_gone(&mut self, server: &mut Server, client_id: u64) {
        self.tenure.observer.partitions.classes.forget_connection(client_id);
        self.event(server, &Event::ClientGone(client_id));
    }

    /// The end of a turn: bounded work.
    pub fn end_turn(&mut self, server: &mut Server, now_us: u64) {
        if self.features.wants.has(Wants::TURNS) {
            self.each(server, now_us, |wants| wants.has(Wants::TURNS), |feature, turn| feature.end_turn(turn));
        }
        self.tenure.end_turn(server, now_us);
        let is_tick = self.tenure.is_tick(now_us);
        // What it takes is no reason to evict.
        if is_tick && self.tenure.is_key_table_outgrown() {
            info::keep_counts(self, |runtime| runtime.tenure.fit_key_table());
        }
        self.slices(server, now_us, When::BeforeReplies);
        self.tenure.relieve_if_short(server, now_us);
        if is_tick {
            if self.tenure.has_tenants_to_change() {
                info::keep_counts(self, |runtime| runtime.tenure.change_tenants());
            }
            self.tenure.tick(server, now_us);
            let epoch = self.tenure.observer.epoch();
            // Features follow other partitions, and count anew for them.
            match std::mem::replace(&mut self.epoch, epoch) == epoch {
                true => self.tick_features(server, now_us),
                false => info::keep_counts(self, |runtime| runtime.tick_features(server, now_us)),
            }
            // By now a feature that is on has begun: what sleeps is found with the first tick.
            self.has_room = self.tenure.has_room() || self.features.wants != Wants::NOTHING;
            self.tenure.end_tick(server, now_us);
            if self.tenure.take_stats_reset() {
                self.event(server, &Event::StatsReset);
            }
        } else {
            self.tenure.go_on_with_census(server);
        }
    }

    /// The event loop has nothing else to do, unless commands have come just now.
    pub fn idle(&mut self, server: &mut Server) {
        self.settle(server);
        if self.tenure.observer.is_busy {
            return;
        }
        self.slices(server, now_us(), When::Idle);
        self.tenure.relieve(server, now_us(), When::Idle);
        self.tenure.go_on_with_census(server);
    }

    /// Whatever has waited for the end of a pause of writes.
    pub fn settle(&mut self, server: &mut Server) {
        if self.features.wants.has(Wants::TURNS) {
            let now_us = now_us();
            self.each(server, now_us, |wants| wants.has(Wants::TURNS), |feature, turn| feature.settle(turn.server));
        }
    }

    fn slices(&mut self, server: &mut Server, now_us: u64, when: When) {
        if self.features.wants.has(Wants::SLICES) {
            self.each(server, now_us, |wants| wants.has(Wants::SLICES), |feature, turn| feature.slice(turn, when));
        }
    }

    /// Runs a `TENURE.*` command that is a feature's own.
    pub fn run(&mut self, server: &mut Server, name: &str, arguments: &[&[u8]]) -> Option<Answer> {
        let mut answer = None;
        self.each(
            server,
            now_us(),
            |_| true,
            |feature, turn| {
                if answer.is_none() {
                    answer = feature.run(turn, name, arguments);
                }
            },
        );
        answer
    }

    fn tick_features(&mut self, server: &mut Server, now_us: u64) {
        self.each(server, now_us, |_| true, |feature, turn| feature.tick(turn));
    }

    /// Something happened that every feature is told of.
    pub fn event(&mut self, server: &mut Server, event: &Event) {
        self.each(server, now_us(), |_| true, |feature, turn| feature.event(turn, event));
    }

    /// Calls `body` with each feature that `is_meant`, and sees to what they want.
    fn each(
        &mut self,
        server: &mut Server,
        now_us: u64,
        is_meant: impl Fn(Wants) -> bool,
        mut body: impl FnMut(&mut dyn Feature, &mut Turn),
    ) {
        let Runtime { tenure, features, .. } = self;
        let before = features.wants;
        features.each(is_meant, |feature| body(feature, &mut Turn { server, now_us, tenure }));
        if features.wants != before {
            tenure.heed(server, features.wants, now_us);
        }
    }

    /// What features say of themselves.
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        self.features.all.iter().for_each(|(feature, _)| feature.report(&self.tenure, &mut report));
        report
    }

    /// Gives back whatever was taken of the server: the state is about to go.
    pub fn give_back(&mut self, server: &mut Server) {
        self.tenure.give_back_samples(server);
        self.features.all.iter_mut().for_each(|(feature, _)| feature.release(server));
    }
}
