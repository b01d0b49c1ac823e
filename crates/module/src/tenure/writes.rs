//! Writes whose replies wait for replicas: ties `enforce::replies` to commands and turns.

use super::Tenure;
use crate::enforce::replies::mode::Mode;
use crate::ffi::filter::{self, FilterCall};
use crate::ffi::server::Server;
use crate::observe::command_table::{Entry, Marks};
use crate::observe::duty::Watched;

/// A command by its name.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// A read, while those go unseen.
    Unseen,
    /// Any other, as the server's table has it, if it does.
    Seen(Option<Entry>),
}

impl Tenure {
    /// A command is about to run: what it is, and whether anything is to be done about it.
    #[inline]
    pub fn named(&mut self, call: &FilterCall) -> Named {
        let command = self.observer.command(call);
        let passes = !self.replies.is_on() && self.observer.passes(command);
        if passes { Named::Unseen } else { Named::Seen(command) }
    }

    /// A command is about to run of which [`Tenure::named`] has told this: it is watched, and its reply waits for replicas where it should.
    #[inline]
    pub fn on_command(&mut self, call: &mut FilterCall, command: Option<Entry>, now_us: impl Fn() -> u64) {
        // Before another word may come in front.
        if self.tiers.is_some() {
            self.before_store(call, command);
        }
        let call = &*call;
        if self.replies.is_on() {
            self.before_write(call, command);
        }
        if self.observer.watched() != Watched::Nothing {
            self.observer.on_command(call, command, now_us);
        }
    }

    #[inline]
    fn before_write(&mut self, call: &FilterCall, command: Option<Entry>) {
        let marks = command.map_or_else(Marks::unknown, |command| command.marks);
        let mode = if self.replies.needs_keys() && marks.has(Marks::WRITES) {
            self.strictest_of_keys(call, command)
        } else {
            self.replies.mode_strictest()
        };
        // A read of a sleeping key blocks its client, and a few reads write (`GETEX`).
        let may_block = self.observer.touches.are_wanted();
        self.replies.on_command(call, marks, mode, may_block);
    }

    /// The strictest mode of a command's keys; without keys, that of anybody's.
    fn strictest_of_keys(&mut self, call: &FilterCall, command: Option<Entry>) -> Mode {
        let Tenure { observer, replies, .. } = self;
        let mut mode = Mode::Async;
        let is_known = command.is_some_and(|command| {
            observer.for_each_tenant(call, command, |tenant| mode = mode.max(replies.mode_of(tenant)))
        });
        if is_known { mode } else { replies.mode_strictest() }
    }

    /// At the end of a turn, before its replies leave.
    pub(super) fn end_writes(&mut self, server: &Server, now_us: u64) {
        let was_on = self.replies.is_on();
        self.replies.end_turn(server, now_us);
        if was_on != self.replies.is_on() || self.replies.needs_keys() {
            let wanted = if self.replies.needs_keys() { Watched::All } else { self.observer.watched() };
            self.watch(server, wanted);
        }
    }

    /// Watches these commands from now on; those whose replies may wait are looked at all the same.
    pub(super) fn watch(&mut self, server: &Server, wanted: Watched) {
        if filter::watch(server, wanted != Watched::Nothing || self.replies.is_on()) {
            self.observer.watch(wanted);
        }
    }

    /// Gives the server back what was set or held for it.
    pub fn give_back(&mut self, server: &Server) {
        self.give_back_samples(server);
        self.replies.stop(server, false);
    }
}
