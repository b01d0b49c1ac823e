//! Replies that leave only when the write they answer has gone to the replicas: `tenure.replies`.
//!
//! Source: "Master-slave Semi Synchronization", Chen et al., TrustCom'16, sec. III.B: first the stream to the
//! replicas, then the reply (`sent`). Beyond it: `acked` waits for acknowledgements, per tenant, in groups, and gives
//! way when replicas can't follow.
//!
//! Commands run as ever and are never touched. What is held is a connection, for the rest of the turn of the event
//! loop and longer: its replies are collected in their order and nothing more is read from it, so pipelines,
//! transactions, scripts and whatever blocks keep their meaning, and other connections are not delayed. The turn's
//! end comes before any of its replies has left:
//!
//! - `sent`: the stream is handed to the replicas' sockets then. Where they take it, which they do unless a replica
//!   is behind, nobody is held at all; else the turn's writers are, until the sockets have taken it.
//! - `acked`: the turn's writers wait for the stream as it is then, in one group, for which the replicas are asked
//!   once to acknowledge; each turn lets go of the groups whose place they have reached.
//!
//! Who has written is noted by the filter, before the command runs. A connection whose reply may leave before the
//! turn's end is held from there on: under `acked`; where older replies of it still wait for its socket, since the
//! next may leave with them; and where a command follows that may let the server serve others before it ends (a
//! script). A write whose client blocks (`BLPOP`) is remembered until it is answered. Whose write changed nothing
//! waits no longer than the others of its turn.
//!
//! Cost: a look-up per writing connection and turn; under `acked` two, two system calls, and one look at
//! `INFO replication` a turn.

mod feature;
pub mod gate;
pub mod mode;
mod replicas;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tenure_core::units::TenantId;

use self::gate::{Counts, Gate};
use self::mode::{Mode, Modes, OnTimeout};
use self::replicas::{Replicas, own_offset};
use crate::config::Settings;
use crate::ffi::filter::{FilterCall, address_of, is_blocked};
use crate::ffi::holding::{self, Holding};
use crate::ffi::server::{Level, Server};
use crate::ffi::{MainThread, soon};
use crate::observe::command_table::Marks;

const TICK_US: u64 = 100_000;
/// Where it is told that a gate was opened or closed, beside the log.
const CHANNEL: &[u8] = b"tenure:replies";
/// More replicas than there can be: with so many wanted the server refuses every write.
const NEVER_ENOUGH: &[u8] = b"2147483647";

/// By client id: a gate's group. Ids are counted by the server, so they need little mixing.
type Tickets = HashMap<u64, (Mode, u64), BuildHasherDefault<IdHasher>>;

/// Mixes one number by a multiplication.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// A connection that has written in this turn.
#[derive(Clone, Copy, Debug)]
struct Writer {
    client_id: u64,
    mode: Mode,
    /// Its replies are held already.
    is_held: bool,
    /// It may be answered in a later turn, or have been let go by the server after a long script.
    may_block: bool,
    /// Then it waits for a key, which only a write brings.
    waits_for_keys: bool,
}

/// A connection whose client blocked.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    mode: Mode,
    waits_for_keys: bool,
}

/// Why nothing is held, or that it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HoldingStatus {
    /// No tenant's writes wait for anything.
    #[default]
    Async,
    /// Replies are held.
    On,
    /// This server follows a primary.
    Replica,
    /// A data set is being loaded.
    Loading,
    /// The server can't.
    Unable(String),
}

/// What refusing writes takes: the server's own settings as they were.
#[derive(Debug)]
struct Refusal {
    replicas_to_write: String,
    max_lag: String,
}

/// The state. See the file's opening.
pub struct Replies {
    /// Whether replies are held, and why not.
    pub status: HoldingStatus,
    holding: Option<Holding>,
    modes: Modes,
    n_replicas: usize,
    timeout_us: u64,
    on_timeout: OnTimeout,
    replicas: Replicas,
    /// Those of this turn, each at least once.
    writers: Vec<Writer>,
    /// The last of them, where it needn't be noted again.
    last: (u64, Mode),
    /// Those whose clients blocked, until they are answered.
    blocked: HashMap<u64, Blocked>,
    /// Some of them wait for something else than a key: the end of a pause, a module.
    any_wait_otherwise: bool,
    /// What each held connection waits for: a gate's group. Only the last one counts.
    tickets: Tickets,
    sent: Gate,
    acked: Gate,
    /// A write has run in this turn.
    has_written: bool,
    /// A replica has said something in this turn.
    has_heard: bool,
    /// Transactions may have queued commands that yield.
    has_yielded: bool,
    /// The role, the threads or the settings may have changed.
    pub is_stale: bool,
    refusal: Option<Refusal>,
    ticked_at_us: u64,
    /// Why nothing can be held, where the server's threads are the reason.
    threads: Option<String>,
}

impl Replies {
    /// Nothing is held before the settings have been taken and a turn has ended.
    pub fn new() -> Replies {
        Replies {
            status: HoldingStatus::Async,
            holding: None,
            modes: Modes::default(),
            n_replicas: 1,
            timeout_us: 1_000_000,
            on_timeout: OnTimeout::Async,
            replicas: Replicas::default(),
            writers: Vec::new(),
            last: (0, Mode::Async),
            blocked: HashMap::new(),
            any_wait_otherwise: false,
            tickets: HashMap::default(),
            sent: Gate::new(Mode::Sent),
            acked: Gate::new(Mode::Acked),
            has_written: false,
            has_heard: false,
            has_yielded: false,
            is_stale: true,
            refusal: None,
            ticked_at_us: 0,
            threads: None,
        }
    }

    /// Takes changed settings. `stated` are the modes that tenants state, by tenant.
    pub fn take_settings(&mut self, settings: &Settings, stated: &[Option<Mode>]) {
        self.modes = Modes::new(stated, settings.replies);
        self.n_replicas = settings.replies_replicas as usize;
        self.timeout_us = settings.replies_timeout_ms as u64 * 1000;
        self.on_timeout = settings.replies_on_timeout;
        self.is_stale = true;
    }

    /// True while commands have to be looked at.
    pub fn is_on(&self) -> bool {
        self.holding.is_some()
    }

    /// True where whose writes wait depends on their keys.
    pub fn needs_keys(&self) -> bool {
        self.is_on() && !self.modes.is_uniform()
    }

    /// The mode of a tenant's writes.
    pub fn mode_of(&self, tenant: TenantId) -> Mode {
        self.modes.of(tenant)
    }

    /// The mode of commands whose keys aren't known.
    pub fn mode_strictest(&self) -> Mode {
        self.modes.strictest()
    }
}

/// Before a command runs.
impl Replies {
    /// A command is about to run, under the mode of the strictest of its keys.
    #[inline]
    pub fn on_command(&mut self, call: &FilterCall, marks: Marks, mode: Mode, may_block: bool) {
        if marks.has(Marks::ACKNOWLEDGES) {
            self.has_heard |= call.client_id().is_some_and(|client_id| self.replicas.heard(client_id, call));
        }
        let Some(holding) = self.holding else { return };
        if self.may_refuse() {
            self.refuse_or_not(call, &holding, marks, mode);
        }
        let runs_yielding = marks.has(Marks::YIELDS) || (marks.has(Marks::RUNS_QUEUED) && self.has_yielded);
        if runs_yielding {
            self.has_yielded = true;
            self.hold_writers(call, &holding);
        }
        if marks.has(Marks::WRITES) {
            self.has_written = true;
            let waits_for_keys = marks.has(Marks::WAITS_FOR_KEYS);
            let may_block = may_block || waits_for_keys || runs_yielding;
            self.note_writer(call, &holding, mode, runs_yielding, (may_block, waits_for_keys));
        }
    }

    #[inline]
    fn note_writer(
        &mut self,
        call: &FilterCall,
        holding: &Holding,
        mode: Mode,
        yields: bool,
        (may_block, waits_for_keys): (bool, bool),
    ) {
        let Some(client_id) = call.client_id() else { return };
        let is_noted = self.last == (client_id, mode) && !yields && !may_block;
        if is_noted || mode == Mode::Async || self.gate(mode).opened().is_some() {
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
        self.writers.push(Writer { client_id, mode, is_held, may_block, waits_for_keys });
        self.last = (client_id, mode);
    }

    /// The server may answer before this turn ends: who has written so far is held from now on.
    fn hold_writers(&mut self, call: &FilterCall, holding: &Holding) {
        self.collect_answered(call, holding);
        for writer in self.writers.iter_mut().filter(|writer| !writer.is_held) {
            writer.is_held = holding.hold(call, writer.client_id);
        }
    }

    fn gate(&self, mode: Mode) -> &Gate {
        if mode == Mode::Acked { &self.acked } else { &self.sent }
    }

    fn may_refuse(&self) -> bool {
        self.on_timeout == OnTimeout::Refuse && (self.sent.opened().is_some() || self.acked.opened().is_some())
    }

    /// While a gate is open and writes are to be refused: lets the server do it, so that errors, transactions and
    /// scripts are as under its own `min-replicas-to-write`, which is as it was again before any command that isn't
    /// to be refused.
    #[cold]
    fn refuse_or_not(&mut self, call: &FilterCall, holding: &Holding, marks: Marks, mode: Mode) {
        let Some(client_id) = call.client_id() else { return };
        // What a script runs stands or falls with the script.
        if holding.has_pending(call, client_id).is_none() {
            return;
        }
        let Some(mut server) = soon::own_context(call) else { return };
        let is_refused = marks.has(Marks::WRITES) && mode != Mode::Async && self.gate(mode).opened().is_some();
        match is_refused {
            true if self.refusal.is_none() => self.refuse(&mut server),
            true => {}
            false => self.stop_refusing(&mut server),
        }
    }

    fn refuse(&mut self, server: &mut Server) {
        let mut setting = |name| server.setting(name);
        let (Some(replicas_to_write), Some(max_lag)) =
            (setting("min-replicas-to-write"), setting("min-replicas-max-lag"))
        else {
            return;
        };
        // With a lag of 0 the server doesn't look at all.
        let lag = if max_lag == "0" { "10" } else { &max_lag };
        server.set_setting("min-replicas-to-write", NEVER_ENOUGH);
        server.set_setting("min-replicas-max-lag", lag.as_bytes());
        self.refusal = Some(Refusal { replicas_to_write, max_lag });
    }

    fn stop_refusing(&mut self, server: &mut Server) {
        if let Some(before) = self.refusal.take() {
            server.set_setting("min-replicas-to-write", before.replicas_to_write.as_bytes());
            server.set_setting("min-replicas-max-lag", before.max_lag.as_bytes());
        }
    }

    /// Those who blocked and have been answered since count as writers of this turn. Who waits for a key is looked at
    /// only where there was a write.
    fn collect_answered(&mut self, proof: &impl MainThread, holding: &Holding) {
        if self.blocked.is_empty() || !(self.has_written || self.any_wait_otherwise) {
            return;
        }
        let Replies { blocked, writers, replicas, .. } = self;
        blocked.retain(|&client_id, &mut Blocked { mode, waits_for_keys }| {
            match holding.has_pending(proof, client_id) {
                Some(true) if !is_blocked(proof, client_id) && !replicas.has(client_id) => {
                    writers.push(Writer { client_id, mode, is_held: false, may_block: true, waits_for_keys });
                    false
                }
                is_there => is_there.is_some(),
            }
        });
        self.any_wait_otherwise = self.blocked.values().any(|blocked| !blocked.waits_for_keys);
    }

    /// A connection has gone.
    pub fn forget_connection(&mut self, client_id: u64) {
        self.blocked.remove(&client_id);
        self.tickets.remove(&client_id);
    }
}

/// What the end of a turn works with.
struct Turn<'a> {
    server: &'a mut Server,
    holding: Holding,
    now_us: u64,
    is_tick: bool,
    /// A replica has said something.
    has_heard: bool,
}

/// At the end of a turn.
impl Replies {
    /// The turn's commands have run and none of its replies has left, but for those of who is held.
    pub fn end_of_turn(&mut self, server: &mut Server, now_us: u64) {
        self.stop_refusing(server);
        if self.is_stale {
            self.fit(server);
        }
        let Some(holding) = self.holding else { return };
        self.last = (0, Mode::Async);
        self.collect_answered(server, &holding);
        self.has_written = false;
        let is_tick = now_us >= self.ticked_at_us + TICK_US;
        let has_heard = std::mem::take(&mut self.has_heard);
        let mut turn = Turn { server, holding, now_us, is_tick, has_heard };
        if is_tick {
            self.tick(&mut turn);
        }
        self.sort_writers(&mut turn);
        self.end_sent(&mut turn);
        self.end_acked(&mut turn);
        self.writers.clear();
        self.open_what_is_overdue(&mut turn);
    }

    /// Takes out who has got no answer: clients that are blocked, who can't be held, or nobody would see them leave,
    /// and those that want none.
    fn sort_writers(&mut self, turn: &mut Turn) {
        let Replies { writers, blocked, tickets, any_wait_otherwise, .. } = self;
        let is_paused = !writers.is_empty() && turn.server.writes_are_paused();
        writers.retain_mut(|writer| {
            let ticket = if tickets.is_empty() { None } else { tickets.get(&writer.client_id) };
            // Who still waits for acknowledgements waits for its later writes' too.
            writer.mode = ticket.map_or(writer.mode, |(mode, _)| writer.mode.max(*mode));
            if !(is_paused || writer.may_block) {
                return true;
            }
            let Some(is_answered) = turn.holding.has_pending(turn.server, writer.client_id) else { return false };
            if is_blocked(turn.server, writer.client_id) {
                let waits_for_keys = writer.waits_for_keys && !is_paused;
                *any_wait_otherwise |= !waits_for_keys;
                let mode = blocked.get(&writer.client_id).map_or(writer.mode, |held| writer.mode.max(held.mode));
                blocked.insert(writer.client_id, Blocked { mode, waits_for_keys });
            }
            if !is_answered && writer.is_held && ticket.is_none() {
                turn.holding.release(turn.server, writer.client_id);
            }
            is_answered
        });
    }

    fn end_sent(&mut self, turn: &mut Turn) {
        let is_open = self.sent.opened().is_some();
        let has_new = self.writers.iter().any(|writer| writer.mode == Mode::Sent);
        let has_work = has_new || self.sent.is_waiting() || (is_open && turn.is_tick);
        if !has_work {
            return;
        }
        turn.holding.flush_replicas(turn.server);
        let is_sent = self.are_sent(turn);
        if is_open {
            self.let_go(turn, Mode::Sent);
            let may_close = turn.is_tick && is_sent && self.threads.is_none();
            if may_close && self.sent.was_opened_before(turn.now_us.saturating_sub(self.timeout_us)) {
                self.close(turn, Mode::Sent);
            }
        } else if is_sent {
            self.sent.pass(
                turn.now_us,
                |_| true,
                |client, ticket| pass(&mut self.tickets, turn, client, (Mode::Sent, ticket)),
            );
            self.let_go(turn, Mode::Sent);
        } else {
            self.hold(turn, Mode::Sent, 0);
        }
    }

    /// Whether as many replicas as needed have the whole stream in their sockets.
    fn are_sent(&mut self, turn: &mut Turn) -> bool {
        let is_enough = |replies: &Replies, turn: &mut Turn| {
            replies.replicas.n_sent(turn.server, &turn.holding) >= replies.n_needed(replies.replicas.len())
        };
        if is_enough(self, turn) {
            return true;
        }
        // One may have come or gone since the last tick.
        self.replicas.refresh(turn.server);
        is_enough(self, turn)
    }

    fn end_acked(&mut self, turn: &mut Turn) {
        let is_open = self.acked.opened().is_some();
        let has_new = self.writers.iter().any(|writer| writer.mode == Mode::Acked);
        let may_pass = (self.acked.is_waiting() || is_open) && (turn.has_heard || turn.is_tick);
        if !has_new && !may_pass {
            return;
        }
        let n_needed = self.n_needed(self.replicas.len());
        if is_open {
            self.let_go(turn, Mode::Acked);
            return self.probe(turn, n_needed);
        }
        let Replies { acked, tickets, replicas, .. } = self;
        let is_there = |target| replicas.n_acked(target) >= n_needed;
        acked.pass(turn.now_us, is_there, |client, ticket| pass(tickets, turn, client, (Mode::Acked, ticket)));
        if has_new {
            let own = own_offset(turn.server);
            if is_there(own) {
                return self.let_go(turn, Mode::Acked);
            }
            self.hold(turn, Mode::Acked, own);
            turn.server.ask_for_acknowledgements();
        } else if turn.is_tick && self.acked.is_waiting() {
            turn.server.ask_for_acknowledgements();
        }
    }

    /// Of how many replicas, where `n` follow.
    fn n_needed(&self, n: usize) -> usize {
        if self.n_replicas == 0 { n.max(1) } else { self.n_replicas }
    }

    /// This turn's writers under `mode` wait for the stream to come to `target`.
    fn hold(&mut self, turn: &mut Turn, mode: Mode, target: u64) {
        let is_held = |writer: &&Writer| {
            (writer.is_held && !writer.may_block) || turn.holding.hold(turn.server, writer.client_id)
        };
        let writers = self.writers.iter().filter(|writer| writer.mode == mode).filter(is_held);
        let clients: Vec<u64> = writers.map(|writer| writer.client_id).collect();
        if clients.is_empty() {
            return;
        }
        let ticket = (mode, self.gate(mode).next_ticket());
        self.tickets.extend(clients.iter().map(|client_id| (*client_id, ticket)));
        self.gate_mut(mode).wait(clients, target, turn.now_us);
    }

    /// This turn's writers under `mode` need not wait, unless they do for an earlier write.
    fn let_go(&self, turn: &mut Turn, mode: Mode) {
        let held = self.writers.iter().filter(|writer| writer.mode == mode && writer.is_held);
        for writer in held.filter(|writer| !self.tickets.contains_key(&writer.client_id)) {
            turn.holding.release(turn.server, writer.client_id);
        }
    }
}

/// A connection's group goes: it is let go, unless it waits for a later write too.
fn pass(tickets: &mut Tickets, turn: &mut Turn, client_id: u64, ticket: (Mode, u64)) {
    if tickets.get(&client_id) == Some(&ticket) {
        tickets.remove(&client_id);
        turn.holding.release(turn.server, client_id);
    }
}

/// When replicas can't follow, and when they can again.
impl Replies {
    /// Ten times a second.
    fn tick(&mut self, turn: &mut Turn) {
        self.ticked_at_us = turn.now_us;
        self.replicas.refresh(turn.server);
        let n = self.replicas.len();
        for mode in [Mode::Sent, Mode::Acked] {
            let is_short = self.modes.uses(mode) && n < self.n_needed(n);
            self.gate_mut(mode).note_shortage(is_short, turn.now_us);
        }
    }

    fn open_what_is_overdue(&mut self, turn: &mut Turn) {
        for mode in [Mode::Sent, Mode::Acked] {
            let is_used = self.modes.uses(mode) && self.gate(mode).opened().is_none();
            if let Some(threads) = self.threads.clone().filter(|_| is_used) {
                self.open(turn, mode, threads);
            } else if self.gate(mode).is_overdue(turn.now_us, self.timeout_us) {
                let (n, n_needed) = (self.replicas.len(), self.n_needed(self.replicas.len()));
                let ms = self.timeout_us / 1000;
                let what = if mode == Mode::Sent { "taken the writes" } else { "acknowledged the writes" };
                let why = format!("fewer than {n_needed} of {n} replicas have {what} for {ms} ms");
                self.open(turn, mode, why);
            }
        }
    }

    /// Nobody waits under `mode` from now on.
    fn open(&mut self, turn: &mut Turn, mode: Mode, why: String) {
        let closes = self.on_timeout == OnTimeout::Refuse;
        let n = self.give_up(turn, mode, closes);
        let text = if closes {
            format!("writes are refused now: {why}; {n} connections with unanswered writes were closed")
        } else {
            format!("replies don't wait for replicas now: {why}; {n} were let go")
        };
        turn.server.log(Level::Warning, &format!("tenure.replies {}: {text}", mode.name()));
        turn.server.publish(CHANNEL, format!("degraded {}: {why}", mode.name()).as_bytes());
        self.gate_mut(mode).open(why, turn.now_us);
    }

    /// Lets all go who wait under `mode`, or closes them: what became of their writes is for them to find out.
    /// Returns how many.
    fn give_up(&mut self, turn: &mut Turn, mode: Mode, closes: bool) -> u64 {
        let mut n = 0;
        for (client_id, ticket) in self.gate_mut(mode).take_all() {
            if self.tickets.get(&client_id) == Some(&(mode, ticket)) {
                self.tickets.remove(&client_id);
                n += 1;
                if closes {
                    turn.server.close_client(client_id);
                }
                turn.holding.release(turn.server, client_id);
            }
        }
        let counts = &mut self.gate_mut(mode).counts;
        *(if closes { &mut counts.closed } else { &mut counts.unconfirmed }) += n;
        n
    }

    /// While the gate of `acked` is open: closes it where replicas acknowledge in time again.
    fn probe(&mut self, turn: &mut Turn, n_needed: usize) {
        let is_there = |target| self.replicas.n_acked(target) >= n_needed;
        let own = || own_offset(turn.server);
        let (may_close, asks) = self.acked.probe(own, is_there, turn.now_us, self.timeout_us);
        if may_close && self.threads.is_none() {
            self.close(turn, Mode::Acked);
        } else if asks {
            turn.server.ask_for_acknowledgements();
        }
    }

    fn close(&mut self, turn: &mut Turn, mode: Mode) {
        self.gate_mut(mode).close();
        let text = format!("tenure.replies {}: replicas follow again, replies wait for them", mode.name());
        turn.server.log(Level::Notice, &text);
        turn.server.publish(CHANNEL, format!("restored {}", mode.name()).as_bytes());
    }

    fn gate_mut(&mut self, mode: Mode) -> &mut Gate {
        if mode == Mode::Acked { &mut self.acked } else { &mut self.sent }
    }
}

/// When it is on at all.
impl Replies {
    /// The settings, the role or the threads may have changed.
    fn fit(&mut self, server: &mut Server) {
        self.is_stale = false;
        let flags = server.flags();
        let threads = server.setting("io-threads");
        let status = if self.modes.strictest() == Mode::Async {
            HoldingStatus::Async
        } else if flags.is_replica() {
            HoldingStatus::Replica
        } else if flags.is_loading() {
            // AccessRing again until it is over.
            self.is_stale = true;
            HoldingStatus::Loading
        } else if let Err(why) = holding::holding() {
            HoldingStatus::Unable(why)
        } else if threads.is_none() {
            HoldingStatus::Unable(
                "CONFIG can't be called: whether threads send replies isn't known, nor can writes be refused"
                    .to_owned(),
            )
        } else {
            HoldingStatus::On
        };
        let threads = threads.filter(|n| n != "1");
        self.threads = threads.map(|n| format!("io-threads is {n}, and replies can be held with 1 only"));
        match status {
            HoldingStatus::On if self.holding.is_none() => {
                self.holding = holding::holding().ok();
                self.replicas.refresh(server);
            }
            HoldingStatus::On => self.leave_unused_gates(server),
            _ => self.stop(server, status == HoldingStatus::Replica),
        }
        self.status = status;
    }

    /// Under a mode that nobody's writes are under any more nobody waits.
    fn leave_unused_gates(&mut self, server: &mut Server) {
        let Some(holding) = self.holding else { return };
        let mut turn = Turn { server, holding, now_us: 0, is_tick: false, has_heard: false };
        for mode in [Mode::Sent, Mode::Acked] {
            if !self.modes.uses(mode) {
                self.give_up(&mut turn, mode, false);
                self.gate_mut(mode).close();
            }
        }
    }

    /// Holds nothing any more. Who waits is let go, or closed where this server's writes are no longer what counts:
    /// it follows another now.
    pub fn stop(&mut self, server: &mut Server, closes: bool) {
        self.stop_refusing(server);
        let Some(holding) = self.holding.take() else { return };
        let mut turn = Turn { server, holding, now_us: 0, is_tick: false, has_heard: false };
        let n = self.give_up(&mut turn, Mode::Sent, closes) + self.give_up(&mut turn, Mode::Acked, closes);
        let writers = std::mem::take(&mut self.writers);
        for writer in &writers {
            if closes {
                // Held, so that it is closed when this turn has ended.
                holding.hold(server, writer.client_id);
                server.close_client(writer.client_id);
            }
            holding.release(server, writer.client_id);
        }
        self.tickets.clear();
        self.blocked.clear();
        self.sent.close();
        self.acked.close();
        let n = n + if closes { writers.len() as u64 } else { 0 };
        if n > 0 {
            let done =
                if closes { "closed: this server follows another now" } else { "let go: nothing is held any more" };
            server.log(Level::Warning, &format!("tenure.replies: {n} connections with unanswered writes were {done}"));
        }
    }
}

/// After a fault, when nothing of the state can be relied upon: lets go of every connection there is.
pub fn release_everyone(server: &mut Server) {
    let (Ok(holding), Some(reply)) = (holding::holding(), server.call(c"CLIENT", &[b"LIST"])) else { return };
    let id_of = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("id=")?.parse().ok());
    reply.text().unwrap_or_default().lines().filter_map(id_of).for_each(|client_id| holding.release(server, client_id));
}

/// What it says of itself.
impl Replies {
    /// Whether replies are held, and why not, for people.
    pub fn describe(&self) -> String {
        let open = |gate: &Gate| {
            let opened = gate.opened().filter(|_| self.modes.uses(gate.mode))?;
            let what = if self.on_timeout == OnTimeout::Refuse { "refusing writes" } else { "degraded to async" };
            Some(format!("{what}: {}", opened.why))
        };
        match &self.status {
            HoldingStatus::Async => "async".to_owned(),
            HoldingStatus::Replica => "off: this server is a replica".to_owned(),
            HoldingStatus::Loading => "off: the server is loading".to_owned(),
            HoldingStatus::Unable(why) => format!("off: {why}"),
            HoldingStatus::On => {
                let why = open(&self.acked).or_else(|| open(&self.sent));
                why.unwrap_or_else(|| format!("holding: {}", self.modes.strictest().name()))
            }
        }
    }

    /// Who is held and for how long, longest first, a line for each as in `CLIENT LIST`.
    pub fn list_held(&self, server: &Server, now_us: u64) -> String {
        let mut held: Vec<(u64, u64, Mode)> = Vec::new();
        for (&client_id, &(mode, ticket)) in &self.tickets {
            let since_us = self.gate(mode).since_us(ticket).unwrap_or(now_us);
            held.push((since_us, client_id, mode));
        }
        held.sort_unstable_by_key(|&(since_us, client_id, _)| (since_us, client_id));
        let line = |(since_us, client_id, mode): (u64, u64, Mode)| {
            let (address, db) = address_of(server, client_id)?;
            let (mode, ms) = (mode.name(), now_us.saturating_sub(since_us) / 1000);
            Some(format!("id={client_id} addr={address} db={db} replies={mode} held-ms={ms}\n"))
        };
        held.into_iter().filter_map(line).collect()
    }

    /// Connections held now.
    pub fn n_held(&self) -> usize {
        self.tickets.len()
    }

    /// Replicas that follow.
    pub fn n_replicas(&self) -> usize {
        self.replicas.len()
    }

    /// The longest wait is measured anew.
    pub fn forget_longest_wait(&mut self) {
        (self.sent.counts.wait_us_max, self.acked.counts.wait_us_max) = (0, 0);
    }

    /// What has waited so far, under all modes together.
    pub fn counts(&self) -> Counts {
        let (sent, acked) = (&self.sent.counts, &self.acked.counts);
        Counts {
            held: sent.held + acked.held,
            wait_us: sent.wait_us + acked.wait_us,
            wait_us_max: sent.wait_us_max.max(acked.wait_us_max),
            unconfirmed: sent.unconfirmed + acked.unconfirmed,
            closed: sent.closed + acked.closed,
            opened: sent.opened + acked.opened,
        }
    }
}
