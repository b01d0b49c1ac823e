//! What commands and the server's events bring: sleepers that are about to be touched wake, or their clients wait.

use tenure_core::units::KeyHash;

use super::super::touches::Touched;
use super::super::{ends, now_ms};
use super::Sleep;
use crate::feature::{Feature, Turn};
use crate::ffi::filter::FilterCall;
use crate::ffi::module::DataChange;
use crate::ffi::server::Server;
use crate::ffi::{awaits, soon};
use crate::observe::command_table::Marks;

impl Sleep {
    /// What the filter found of sleepers in the command that is about to run.
    pub(super) fn on_touched(&mut self, call: &FilterCall, turn: &mut Turn, touched: &Touched) {
        let asleep = self.end_if_over(turn.server, &touched.keys);
        if touched.is_anything {
            self.touches.sleepers.give_up_all();
        }
        if touched.is_exec {
            self.tell_watchers(turn.server);
        }
        if asleep.is_empty() || !self.is_served(turn) || (touched.is_read && makes_wait(call, turn)) {
            return;
        }
        self.with_spill(turn, |spill, context| spill.wake_now(context, &asleep));
    }

    /// Of these keys those that sleep; whose value has ended is told now, before a command finds them absent.
    pub(super) fn end_if_over(&mut self, server: &mut Server, keys: &[KeyHash]) -> Vec<KeyHash> {
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
    pub(super) fn tell_watchers(&mut self, server: &mut Server) {
        let sleepers = &mut self.touches.sleepers;
        let now_ms = now_ms();
        if !sleepers.have_ended(now_ms) {
            return;
        }
        // Servers that don't say how many watch may have some.
        if server.info_field(c"clients", c"watching_clients").is_some_and(|watching| watching == "0") {
            return;
        }
        while let Some(sleeper) = sleepers.take_ended(now_ms) {
            ends::tell(server, &sleeper);
        }
    }

    /// The same before a command runs. It may be the one that ends the pause: so once more after this turn's commands.
    pub(super) fn settle_soon(&mut self, server: &mut Server) {
        self.settle(server);
        if !self.touches.owed.is_empty() {
            soon::call_soon(server);
        }
    }

    pub(super) fn on_data_change(&mut self, server: &mut Server, change: DataChange) {
        match change {
            DataChange::Emptied(db) => self.touches.forget_database(server, db),
            DataChange::Swapped(one, other) => self.touches.swap_databases(one, other),
            DataChange::Loaded | DataChange::Replaced => self.touches.sleepers.give_up_all(),
            DataChange::OtherRole => {
                self.slots.forget_moves();
                self.touches.sleepers.give_up_all();
            }
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
