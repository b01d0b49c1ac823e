//! Who has written in this turn, and whose client blocked with a write that is still to come.

use std::collections::HashMap;

use super::gates::Gates;
use super::mode::Mode;
use super::replicas::Replicas;
use crate::ffi::MainThread;
use crate::ffi::filter::{FilterCall, is_blocked};
use crate::ffi::holding::Holding;
use crate::ffi::server::Server;

/// A connection that has written in this turn.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// Whose it is.
    pub client_id: u64,
    /// What its reply waits for.
    pub mode: Mode,
    /// Its replies are held already.
    pub is_held: bool,
    /// It may be answered in a later turn, or have been let go by the server after a long script.
    pub may_block: bool,
    /// Then it waits for a key, which only a write brings.
    pub waits_for_keys: bool,
}

/// A connection whose client blocked.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    mode: Mode,
    waits_for_keys: bool,
}

/// A write that is about to run.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// What its reply waits for.
    pub mode: Mode,
    /// It may let the server serve others before it ends.
    pub yields: bool,
    /// Its client may block.
    pub may_block: bool,
    /// Then it waits for a key.
    pub waits_for_keys: bool,
}

/// The writers of a turn, and who blocked. See the file's opening.
#[derive(Debug, Default)]
pub struct Writers {
    /// Those of this turn, each at least once.
    pub all: Vec<Writer>,
    /// The last of them, where it needn't be noted again.
    last: Option<(u64, Mode)>,
    /// Those whose clients blocked, until they are answered.
    blocked: HashMap<u64, Blocked>,
    /// Some of them wait for something else than a key: the end of a pause, a module.
    any_wait_otherwise: bool,
    /// A write has run in this turn.
    pub has_written: bool,
}

impl Writers {
    /// A connection writes; it is held from here on where its reply may leave before the turn's end.
    #[inline]
    pub fn note(&mut self, call: &FilterCall, holding: &Holding, write: Write) {
        let Some(client_id) = call.client_id() else { return };
        let Write { mode, yields, may_block, waits_for_keys } = write;
        if self.last == Some((client_id, mode)) && !yields && !may_block {
            return;
        }
        let is_held = if mode == Mode::Acked || yields {
            // The server's own clients, as scripts use, have no connection: who called them is noted already.
            if !holding.hold(call, client_id) {
                return;
            }
            true
        } else {
            match holding.has_pending(call, client_id) {
                None => return,
                Some(is_pending) => is_pending && holding.hold(call, client_id),
            }
        };
        self.all.push(Writer { client_id, mode, is_held, may_block, waits_for_keys });
        self.last = Some((client_id, mode));
    }

    /// The server may answer before this turn ends: who has written so far is held from now on.
    pub fn hold_all(&mut self, proof: &impl MainThread, holding: &Holding, replicas: &Replicas) {
        self.collect_answered(proof, holding, replicas);
        for writer in self.all.iter_mut().filter(|writer| !writer.is_held) {
            writer.is_held = holding.hold(proof, writer.client_id);
        }
    }

    /// Those who blocked and have been answered since count as writers of this turn. Who waits for a key is looked at
    /// only where there was a write.
    fn collect_answered(&mut self, proof: &impl MainThread, holding: &Holding, replicas: &Replicas) {
        if self.blocked.is_empty() || !(self.has_written || self.any_wait_otherwise) {
            return;
        }
        let Writers { blocked, all, .. } = self;
        blocked.retain(|&client_id, &mut Blocked { mode, waits_for_keys }| {
            match holding.has_pending(proof, client_id) {
                Some(true) if !is_blocked(proof, client_id) && !replicas.has(client_id) => {
                    all.push(Writer { client_id, mode, is_held: false, may_block: true, waits_for_keys });
                    false
                }
                is_there => is_there.is_some(),
            }
        });
        self.any_wait_otherwise = self.blocked.values().any(|blocked| !blocked.waits_for_keys);
    }

    /// The turn's commands have run.
    pub fn end_turn(&mut self, proof: &impl MainThread, holding: &Holding, replicas: &Replicas) {
        self.last = None;
        self.collect_answered(proof, holding, replicas);
        self.has_written = false;
    }

    /// Takes out who has got no answer: clients that are blocked, who can't be held, or nobody would see them leave,
    /// and those that want none.
    pub fn sort(&mut self, server: &mut Server, holding: &Holding, gates: &Gates) {
        let Writers { all, blocked, any_wait_otherwise, .. } = self;
        let is_paused = !all.is_empty() && server.writes_are_paused();
        all.retain_mut(|writer| {
            let waits = gates.waits(writer.client_id);
            // Who still waits for acknowledgements waits for its later writes' too.
            writer.mode = waits.map_or(writer.mode, |mode| writer.mode.max(mode));
            if !(is_paused || writer.may_block) {
                return true;
            }
            let Some(is_answered) = holding.has_pending(server, writer.client_id) else { return false };
            if is_blocked(server, writer.client_id) {
                let waits_for_keys = writer.waits_for_keys && !is_paused;
                *any_wait_otherwise |= !waits_for_keys;
                let mode = blocked.get(&writer.client_id).map_or(writer.mode, |held| writer.mode.max(held.mode));
                blocked.insert(writer.client_id, Blocked { mode, waits_for_keys });
            }
            if !is_answered && writer.is_held && waits.is_none() {
                holding.release(server, writer.client_id);
            }
            is_answered
        });
    }

    /// Those under one mode.
    pub fn under(&self, mode: Mode) -> impl Iterator<Item = &Writer> {
        self.all.iter().filter(move |writer| writer.mode == mode)
    }

    /// A connection has gone.
    pub fn forget_connection(&mut self, client_id: u64) {
        self.blocked.remove(&client_id);
    }

    /// Nobody is held any more: the writers of this turn, taken out.
    pub fn take_all(&mut self) -> Vec<Writer> {
        self.blocked.clear();
        std::mem::take(&mut self.all)
    }
}
