//! Replies that leave only when the write they answer has gone to the replicas: `tenure.replies`.
//!
//! Source: "Master-slave Semi Synchronization", Chen et al., TrustCom'16, sec. III.B: first the stream to the
//! replicas, then the reply (`sent`). Beyond it: `acked` waits for acknowledgements, per tenant, in groups, and gives
//! way when replicas can't follow.
//!
//! Commands run as ever and are never touched. What is held is a connection, for the rest of the turn of the event
//! loop and longer. Its replies are collected in their order, and nothing more is read from it. So pipelines,
//! transactions, scripts and whatever blocks keep their meaning, and other connections are not delayed. The turn's end
//! comes before any of its replies has left:
//!
//! - `sent`: the stream is handed to the replicas' sockets then. Where they take it, which they do unless a replica
//!   is behind, nobody is held at all; else the turn's writers are, until the sockets have taken it.
//! - `acked`: the turn's writers wait for the stream as it is then, in one group, for which the replicas are asked
//!   once to acknowledge; each turn lets go of the groups whose place they have reached.
//!
//! Who has written is noted by the filter, before the command runs. A connection whose reply may leave before the
//! turn's end is held from there on. That is so under `acked`; where older replies of it still wait for its socket,
//! since the next may leave with them; and where a command follows that may let the server serve others before it ends
//! (a script). A write whose client blocks (`BLPOP`) is remembered until it is answered. Whose write changed nothing
//! waits no longer than the others of its turn.
//!
//! Cost: a look-up per writing connection and turn; under `acked` two, two system calls, and one look at
//! `INFO replication` a turn.

mod feature;
pub mod gate;
#[cfg(test)]
mod gate_histories;
mod gates;
pub mod mode;
mod promise;
mod refusal;
mod replicas;
mod writers;

use tenure_core::units::TenantId;

use self::gate::{Counts, Gate};
use self::gates::Gates;
use self::mode::Mode;
use self::promise::Promise;
use self::refusal::Refusal;
use self::replicas::{Replicas, own_offset};
use self::writers::{Write, Writer, Writers};
use crate::config::Settings;
use crate::ffi::context::own_context;
use crate::ffi::filter::{FilterCall, address_of};
use crate::ffi::holding::{self, Holding};
use crate::ffi::server::{Level, Server};
use crate::observe::command_table::Marks;

const TICK_US: u64 = 100_000;
/// Where it is told that a gate was opened or closed, beside the log.
const CHANNEL: &[u8] = b"tenure:replies";
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

/// The state. See the file's opening.
pub struct Replies {
    /// Whether replies are held, and why not.
    pub status: HoldingStatus,
    holding: Option<Holding>,
    promise: Promise,
    replicas: Replicas,
    writers: Writers,
    gates: Gates,
    /// A replica has said something in this turn.
    has_heard: bool,
    /// Transactions may have queued commands that yield.
    has_yielded: bool,
    /// The role, the threads or the settings may have changed.
    pub is_stale: bool,
    refusal: Refusal,
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
            promise: Promise::new(),
            replicas: Replicas::default(),
            writers: Writers::default(),
            gates: Gates::new(),
            has_heard: false,
            has_yielded: false,
            is_stale: true,
            refusal: Refusal::default(),
            ticked_at_us: 0,
            threads: None,
        }
    }

    /// Takes changed settings. `stated` are the modes that tenants state, by tenant.
    pub fn take_settings(&mut self, settings: &Settings, stated: &[Option<Mode>]) {
        self.promise = Promise::of(settings, stated);
        self.is_stale = true;
    }

    /// True while commands have to be looked at.
    pub fn is_on(&self) -> bool {
        self.holding.is_some()
    }

    /// True where whose writes wait depends on their keys.
    pub fn needs_keys(&self) -> bool {
        self.is_on() && !self.promise.modes.is_uniform()
    }

    /// The mode of a tenant's writes.
    pub fn mode_of(&self, tenant: TenantId) -> Mode {
        self.promise.modes.of(tenant)
    }

    /// The mode of commands whose keys aren't known.
    pub fn mode_strictest(&self) -> Mode {
        self.promise.modes.strictest()
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
            self.writers.hold_all(call, &holding, &self.replicas);
        }
        if marks.has(Marks::WRITES) {
            self.writers.has_written = true;
            if mode == Mode::Async || self.gates.of(mode).opened().is_some() {
                return;
            }
            let waits_for_keys = marks.has(Marks::WAITS_FOR_KEYS);
            let may_block = may_block || waits_for_keys || runs_yielding;
            self.writers.note(call, &holding, Write { mode, yields: runs_yielding, may_block, waits_for_keys });
        }
    }

    fn may_refuse(&self) -> bool {
        self.promise.refuses() && self.gates.is_any_open()
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
        let Some(mut server) = own_context(call) else { return };
        let is_refused = marks.has(Marks::WRITES) && mode != Mode::Async && self.gates.of(mode).opened().is_some();
        match is_refused {
            true => self.refusal.begin(&mut server),
            false => self.refusal.end(&mut server),
        }
    }

    /// A connection has gone.
    pub fn forget_connection(&mut self, client_id: u64) {
        self.writers.forget_connection(client_id);
        self.gates.forget_connection(client_id);
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
        self.refusal.end(server);
        if self.is_stale {
            self.fit(server);
        }
        let Some(holding) = self.holding else { return };
        self.writers.end_turn(server, &holding, &self.replicas);
        let is_tick = now_us >= self.ticked_at_us + TICK_US;
        let has_heard = std::mem::take(&mut self.has_heard);
        let mut turn = Turn { server, holding, now_us, is_tick, has_heard };
        if is_tick {
            self.tick(&mut turn);
        }
        self.writers.sort(turn.server, &holding, &self.gates);
        self.end_sent(&mut turn);
        self.end_acked(&mut turn);
        self.writers.all.clear();
        self.open_what_is_overdue(&mut turn);
    }

    fn end_sent(&mut self, turn: &mut Turn) {
        let gate = self.gates.of(Mode::Sent);
        let is_open = gate.opened().is_some();
        let has_new = self.writers.under(Mode::Sent).next().is_some();
        let has_work = has_new || gate.is_waiting() || (is_open && turn.is_tick);
        if !has_work {
            return;
        }
        turn.holding.flush_replicas(turn.server);
        let is_sent = self.are_sent(turn);
        if is_open {
            self.let_go(turn, Mode::Sent);
            let may_close = turn.is_tick && is_sent && self.threads.is_none();
            let then_us = turn.now_us.saturating_sub(self.promise.timeout_us);
            if may_close && self.gates.of(Mode::Sent).was_opened_before(then_us) {
                self.close(turn, Mode::Sent);
            }
        } else if is_sent {
            let release = |client_id| turn.holding.release(turn.server, client_id);
            self.gates.pass(Mode::Sent, turn.now_us, |_| true, release);
            self.let_go(turn, Mode::Sent);
        } else {
            self.hold(turn, Mode::Sent, 0);
        }
    }

    /// Whether as many replicas as needed have the whole stream in their sockets.
    fn are_sent(&mut self, turn: &mut Turn) -> bool {
        let is_enough = |replies: &Replies, turn: &mut Turn| {
            replies.replicas.n_sent(turn.server, &turn.holding) >= replies.promise.n_needed(replies.replicas.len())
        };
        if is_enough(self, turn) {
            return true;
        }
        // One may have come or gone since the last tick.
        self.replicas.refresh(turn.server);
        is_enough(self, turn)
    }

    fn end_acked(&mut self, turn: &mut Turn) {
        let gate = self.gates.of(Mode::Acked);
        let is_open = gate.opened().is_some();
        let has_new = self.writers.under(Mode::Acked).next().is_some();
        let may_pass = (gate.is_waiting() || is_open) && (turn.has_heard || turn.is_tick);
        if !has_new && !may_pass {
            return;
        }
        let n_needed = self.promise.n_needed(self.replicas.len());
        if is_open {
            self.let_go(turn, Mode::Acked);
            return self.probe(turn, n_needed);
        }
        let Replies { gates, replicas, .. } = self;
        let is_there = |target| replicas.n_acked(target) >= n_needed;
        let release = |client_id| turn.holding.release(turn.server, client_id);
        gates.pass(Mode::Acked, turn.now_us, is_there, release);
        if has_new {
            let own = own_offset(turn.server);
            if is_there(own) {
                return self.let_go(turn, Mode::Acked);
            }
            self.hold(turn, Mode::Acked, own);
            turn.server.ask_for_acknowledgements();
        } else if turn.is_tick && self.gates.of(Mode::Acked).is_waiting() {
            turn.server.ask_for_acknowledgements();
        }
    }

    /// This turn's writers under `mode` wait for the stream to come to `target`.
    fn hold(&mut self, turn: &mut Turn, mode: Mode, target: u64) {
        let is_held = |writer: &&Writer| {
            (writer.is_held && !writer.may_block) || turn.holding.hold(turn.server, writer.client_id)
        };
        let writers = self.writers.under(mode).filter(is_held);
        let clients: Vec<u64> = writers.map(|writer| writer.client_id).collect();
        if !clients.is_empty() {
            self.gates.wait(clients, mode, target, turn.now_us);
        }
    }

    /// This turn's writers under `mode` need not wait, unless they do for an earlier write.
    fn let_go(&self, turn: &mut Turn, mode: Mode) {
        let held = self.writers.under(mode).filter(|writer| writer.is_held);
        for writer in held.filter(|writer| self.gates.waits(writer.client_id).is_none()) {
            turn.holding.release(turn.server, writer.client_id);
        }
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
            let is_short = self.promise.modes.uses(mode) && n < self.promise.n_needed(n);
            self.gates.of_mut(mode).note_shortage(is_short, turn.now_us);
        }
    }

    fn open_what_is_overdue(&mut self, turn: &mut Turn) {
        for mode in [Mode::Sent, Mode::Acked] {
            let is_used = self.promise.modes.uses(mode) && self.gates.of(mode).opened().is_none();
            if let Some(threads) = self.threads.clone().filter(|_| is_used) {
                self.open(turn, mode, threads);
            } else if self.gates.of(mode).is_overdue(turn.now_us, self.promise.timeout_us) {
                let (n, n_needed) = (self.replicas.len(), self.promise.n_needed(self.replicas.len()));
                let ms = self.promise.timeout_us / 1000;
                let what = if mode == Mode::Sent { "taken the writes" } else { "acknowledged the writes" };
                let why = format!("fewer than {n_needed} of {n} replicas have {what} for {ms} ms");
                self.open(turn, mode, why);
            }
        }
    }

    /// Nobody waits under `mode` from now on.
    fn open(&mut self, turn: &mut Turn, mode: Mode, why: String) {
        let closes = self.promise.refuses();
        let n = self.give_up(turn, mode, closes);
        let text = if closes {
            format!("writes are refused now: {why}; {n} connections with unanswered writes were closed")
        } else {
            format!("replies don't wait for replicas now: {why}; {n} were let go")
        };
        turn.server.log(Level::Warning, &format!("tenure.replies {}: {text}", mode.name()));
        turn.server.publish(CHANNEL, format!("degraded {}: {why}", mode.name()).as_bytes());
        self.gates.of_mut(mode).open(why, turn.now_us);
    }

    /// Lets all go who wait under `mode`, or closes them: what became of their writes is for them to find out.
    /// Returns how many.
    fn give_up(&mut self, turn: &mut Turn, mode: Mode, closes: bool) -> u64 {
        let waited = self.gates.take_all(mode);
        for &client_id in &waited {
            if closes {
                turn.server.close_client(client_id);
            }
            turn.holding.release(turn.server, client_id);
        }
        let n = waited.len() as u64;
        let counts = &mut self.gates.of_mut(mode).counts;
        *(if closes { &mut counts.closed } else { &mut counts.unconfirmed }) += n;
        n
    }

    /// While the gate of `acked` is open: closes it where replicas acknowledge in time again.
    fn probe(&mut self, turn: &mut Turn, n_needed: usize) {
        let is_there = |target| self.replicas.n_acked(target) >= n_needed;
        let own = || own_offset(turn.server);
        let timeout_us = self.promise.timeout_us;
        let (may_close, asks) = self.gates.of_mut(Mode::Acked).probe(own, is_there, turn.now_us, timeout_us);
        if may_close && self.threads.is_none() {
            self.close(turn, Mode::Acked);
        } else if asks {
            turn.server.ask_for_acknowledgements();
        }
    }

    fn close(&mut self, turn: &mut Turn, mode: Mode) {
        self.gates.of_mut(mode).close();
        let text = format!("tenure.replies {}: replicas follow again, replies wait for them", mode.name());
        turn.server.log(Level::Notice, &text);
        turn.server.publish(CHANNEL, format!("restored {}", mode.name()).as_bytes());
    }
}

/// When it is on at all.
impl Replies {
    /// The settings, the role or the threads may have changed.
    fn fit(&mut self, server: &mut Server) {
        self.is_stale = false;
        let flags = server.flags();
        let threads = server.setting("io-threads");
        let status = if self.promise.modes.strictest() == Mode::Async {
            HoldingStatus::Async
        } else if flags.is_replica() {
            HoldingStatus::Replica
        } else if flags.is_loading() {
            // Asked again until it is over.
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
            if !self.promise.modes.uses(mode) {
                self.give_up(&mut turn, mode, false);
                self.gates.of_mut(mode).close();
            }
        }
    }

    /// Holds nothing any more. Who waits is let go, or closed where this server's writes are no longer what counts:
    /// it follows another now.
    pub fn stop(&mut self, server: &mut Server, closes: bool) {
        self.refusal.end(server);
        let Some(holding) = self.holding.take() else { return };
        let mut turn = Turn { server, holding, now_us: 0, is_tick: false, has_heard: false };
        let n = self.give_up(&mut turn, Mode::Sent, closes) + self.give_up(&mut turn, Mode::Acked, closes);
        let writers = self.writers.take_all();
        for writer in &writers {
            if closes {
                // Held, so that it is closed when this turn has ended.
                holding.hold(server, writer.client_id);
                server.close_client(writer.client_id);
            }
            holding.release(server, writer.client_id);
        }
        self.gates.reset();
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
            let opened = gate.opened().filter(|_| self.promise.modes.uses(gate.mode))?;
            let what = if self.promise.refuses() { "refusing writes" } else { "degraded to async" };
            Some(format!("{what}: {}", opened.why))
        };
        match &self.status {
            HoldingStatus::Async => "async".to_owned(),
            HoldingStatus::Replica => "off: this server is a replica".to_owned(),
            HoldingStatus::Loading => "off: the server is loading".to_owned(),
            HoldingStatus::Unable(why) => format!("off: {why}"),
            HoldingStatus::On => {
                let why = open(self.gates.of(Mode::Acked)).or_else(|| open(self.gates.of(Mode::Sent)));
                why.unwrap_or_else(|| format!("holding: {}", self.promise.modes.strictest().name()))
            }
        }
    }

    /// Who is held and for how long, longest first, a line for each as in `CLIENT LIST`.
    pub fn list_held(&self, server: &Server, now_us: u64) -> String {
        let line = |(since_us, client_id, mode): (u64, u64, Mode)| {
            let (address, db) = address_of(server, client_id)?;
            let (mode, ms) = (mode.name(), now_us.saturating_sub(since_us) / 1000);
            Some(format!("id={client_id} addr={address} db={db} replies={mode} held-ms={ms}\n"))
        };
        self.gates.held(now_us).into_iter().filter_map(line).collect()
    }

    /// Connections held now.
    pub fn n_held(&self) -> usize {
        self.gates.n_held()
    }

    /// Replicas that follow.
    pub fn n_replicas(&self) -> usize {
        self.replicas.len()
    }

    /// The longest wait is measured anew.
    pub fn forget_longest_wait(&mut self) {
        self.gates.forget_longest_wait();
    }

    /// What has waited so far, under all modes together.
    pub fn counts(&self) -> Counts {
        self.gates.counts()
    }
}
