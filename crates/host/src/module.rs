//! What a module on this host is: one type, whose safe functions the server's callbacks come to.
//!
//! Each runs on the server's main thread, under the guard: a panic is counted, and nothing is called any more until
//! the module is asked to start again. Two never run within each other: what the server calls while one is at work
//! (an event of a key that it has just removed) goes by.

use std::ffi::CStr;

use super::MainThread;
use super::commands::Command;
use super::filter::FilterCall;
use super::guard::MainCell;
use super::info::Sink;
use super::messages::{Messages, NodeId};
use super::migration::Migration;
use super::reply::Answer;
use super::server::{ScannedName, Server};
use super::settings::Settings;

/// What becomes of the data set as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataChange {
    /// A database was emptied, or all were.
    Emptied(Option<u16>),
    /// Two databases have changed places.
    Swapped(u16, u16),
    /// Another data set takes its place, or an empty one is filled.
    Loaded,
    /// Another data set, which was loaded beside it, has taken its place.
    Replaced,
    /// This server follows another, or does no longer.
    OtherRole,
}

/// What becomes of a command that was put behind [`Module::AWAIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Its client waits.
    Waits,
    /// It runs at once.
    Runs,
}

/// How a module comes out of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It goes on.
    Runs,
    /// A part of it has died: asked to start, it is started anew.
    Ails,
    /// It is to stop, for this reason.
    Stops(&'static str),
}

/// What a command asks for that the module has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// That its turn ends, where not each is heard of.
    TurnEnds,
    /// Nothing, but it unloads a module.
    ModuleGoes,
}

/// Where the one value of a module and its settings are kept: `static CELLS: Cells<M> = Cells::empty();`.
pub struct Cells<M: Module> {
    pub(super) state: MainCell<M>,
    pub(super) settings: MainCell<M::Settings>,
}

impl<M: Module> Cells<M> {
    /// Nothing yet.
    pub const fn empty() -> Cells<M> {
        Cells { state: MainCell::empty(), settings: MainCell::empty() }
    }
}

/// A module. See the file's opening.
pub trait Module: Sized + 'static {
    /// What people call it, in the log.
    const TITLE: &'static str;
    /// What the server calls it; its commands and settings begin with that and a dot.
    const NAME: &'static CStr;
    /// The setting by which it is turned on and off, as the server knows it.
    const ENABLED: &'static CStr;
    /// Settings of the server's that decide whether it can run: where one of them is set while it is stopped, or one of
    /// its own, it tries again.
    const RUNS_BY: &'static [&'static CStr];
    /// Its commands. A container's stand together.
    const COMMANDS: &'static [Command];
    /// Since which of its versions they are there.
    const SINCE: &'static CStr;
    /// The command that stands before those that wait for something.
    const AWAIT: &'static CStr;
    /// What it sends to itself on other nodes of a cluster.
    const MESSAGES: Messages;
    /// Its settings.
    type Settings: Settings;
    /// What [`Module::before_command`] finds out for [`Module::on_command`].
    type Seen;
    /// What a client waited for.
    type Outcome: Send + 'static;

    /// Where it is kept.
    fn cells() -> &'static Cells<Self>;

    /// Which version it is, as one number.
    fn version() -> i32;
    /// Fresh state; whether the server itself starts, which hasn't served anybody yet.
    ///
    /// # Errors
    /// Why it can't run on this server, as a sentence.
    fn start(
        server: &mut Server,
        settings_version: u64,
        settings: Self::Settings,
        is_server_start: bool,
    ) -> Result<Self, String>;
    /// Whether settings that were set together can be so, on this server and in this state, if there is one.
    ///
    /// # Errors
    /// Why not, as a sentence; they are put back then.
    fn check(running: Option<&mut Self>, server: &mut Server, settings: &Self::Settings) -> Result<(), String>;
    /// Gives the server back what was set or held for it. It is dropped afterwards.
    fn stop(&mut self, server: &mut Server);
    /// After a fault, of which the state was stopped and dropped: gives back what doesn't depend on it.
    fn after_fault(server: &mut Server);

    /// It has been unloaded: whatever is kept beside the state is forgotten.
    fn unloaded();

    /// A command is about to run; whether anything is to be done about it. As short as can be: most commands end here.
    fn before_command(&mut self, call: &FilterCall) -> Option<Self::Seen>;
    /// That is done.
    fn on_command(&mut self, call: &mut FilterCall, seen: Self::Seen) -> Next;
    /// A read has found nothing.
    fn on_miss(&mut self, db: u16, key: &[u8]);
    /// A key came, went, or something happened to it.
    fn on_key_event(&mut self, server: &mut Server, db: u16, event: &CStr, key: &ScannedName);
    /// The end of a turn of the event loop, before its replies leave: of each, or of those that are asked for
    /// (`turns`).
    fn end_turn(&mut self, server: &mut Server) -> Life;
    /// The event loop has time, as was asked for (`soon::call_soon`).
    fn on_idle(&mut self, server: &mut Server);
    /// The time has come that was asked for (`wake::after`). In the midst of a turn: keys may not be changed.
    fn on_wake(&mut self, server: &mut Server);
    /// The server's configuration has changed.
    fn on_config_change(&mut self, server: &mut Server);
    /// A connection has gone.
    fn on_disconnect(&mut self, server: &mut Server, client_id: u64);
    /// The data set has.
    fn on_data_change(&mut self, server: &mut Server, change: DataChange);
    /// Slots are on their way to this node of a cluster or away, or have come or gone.
    fn on_migration(&mut self, server: &mut Server, migration: Migration);
    /// Ten times a second, before commands that were held back by a pause of writes run.
    fn on_cron(&mut self, server: &mut Server);
    /// The server stops in good order.
    fn on_shutdown(&mut self, server: &mut Server);
    /// A message of this module on another node.
    fn on_message(&mut self, server: &mut Server, sender: &NodeId, kind: u8, body: &[u8]);

    /// A command stands behind [`Module::AWAIT`].
    fn on_await(&mut self, server: &mut Server, words: &[&[u8]]) -> Awaited;
    /// Its client's wait is over; without an outcome it took too long, or whoever was to give one has died.
    fn on_awaited(&mut self, server: &mut Server, words: &[&[u8]], outcome: Option<Self::Outcome>);
    /// What a command that changes what the module does is answered with, where its client may not.
    fn refuse(words: &[&[u8]]) -> Option<Answer>;
    /// Runs one of its commands.
    fn on_own_command(&mut self, server: &mut Server, words: &[&[u8]]) -> Answer;
    /// What its commands answer while it doesn't run.
    fn answer_stopped(words: &[&[u8]]) -> Answer;
    /// Writes its section of INFO.
    fn info(&self, sink: &mut Sink);
    /// The same while it doesn't run.
    fn info_stopped(sink: &mut Sink);
}

/// Works on the module's state, where there is one.
#[inline]
pub(super) fn with<M: Module, R>(proof: &impl MainThread, body: impl FnOnce(&mut M) -> R) -> Option<R> {
    M::cells().state.with(proof, body)
}

/// Gives the server back what was set for it, stops the worker and drops all state.
pub(super) fn retire<M: Module>(server: &mut Server) {
    if let Some(mut module) = M::cells().state.set(server, None) {
        module.stop(server);
    }
}
