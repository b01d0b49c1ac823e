//! Observe: every command on its way into the server, misses and key events on their way out, and a sample for the
//! models.
//!
//! The filter hashes each key, counts it for its partition and, where the hash is in the sample, notes it in a ring
//! that is allocated once. At the end of the event loop's turn, when the commands have run, the noted keys are looked
//! at (there or gone, how large, when they expire) and passed to the worker through a bounded queue. What doesn't fit
//! is dropped and counted. Cost on the main thread: a hash and a few counters per key; about 1,350 instructions per
//! sampled key.

pub mod arrivals;
mod asked_sizes;
pub mod classes;
pub mod clients;
pub mod command_table;
pub mod counters;
pub mod duty;
pub mod first_parts;
pub mod keys;
mod known_commands;
pub mod misses;
pub mod origins;
pub mod owners;
pub mod partitions;
pub mod placements;
pub mod prefixes;
pub mod reply_mode;
pub mod ring;
pub mod sample_queue;
pub mod sampler;
pub mod served;
pub mod sizes;
pub mod slots;
pub mod slow_collections;
pub mod tenants;
pub mod turns;
mod usual_sizes;

use std::sync::Arc;

use tenure_core::departure::{Cause, Departure};
use tenure_core::key_table;
use tenure_core::policy::density::MissCosts;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

use self::clients::Clients;
use self::command_table::{CommandTable, Effect, Entry, KeyUse, Sets};
pub use self::counters::Counters;
use self::duty::{Coverage, Watched};
use self::known_commands::KnownCommands;
use self::misses::{Filled, Misses};
use self::owners::{Owners, User};
use self::partitions::{Partitions, in_database};
pub use self::sample_queue::{QUEUE_LEN, SampleQueue};
pub use self::sampler::{LateAccess, Sampled};
use self::sampler::{Lookup, Sampler};
use self::served::ServedSlots;
use self::sizes::Sizes;
use self::turns::Turns;

use crate::ffi::clock::command_began_us;
use crate::ffi::filter::{FilterCall, Words};
use crate::ffi::module::Next;
use crate::ffi::server::Server;

/// Databases that Tenure looks at one by one; a server may have more, and they are one tenant together.
pub const DBS_MAX: u16 = 256;

/// The observing half of Tenure's state. See the file's opening.
pub struct Observer {
    /// The server's commands.
    pub commands: KnownCommands,
    clients: Clients,
    /// Misses that wait for their answers, and what misses cost.
    pub misses: Misses,
    /// What of the accesses the models are shown.
    pub sampler: Sampler,
    sizes: Sizes,
    /// Who is who. Changes only between turns.
    pub partitions: Partitions,
    /// On a node of a cluster, which keys it holds.
    pub served: ServedSlots,
    /// By partition.
    pub counters: [Counters; PARTITIONS_MAX],
    /// When the last turn ended, as the key table counts time.
    tick: u32,
    /// Which commands are seen, and what has gone by unseen.
    pub coverage: Coverage,
    /// What the turn under way has brought.
    pub turns: Turns,
    /// Commands came since the last turn ended.
    pub is_busy: bool,
    /// That which was seen last unloads a module.
    unloads: bool,
}

/// A string that is about to be stored whole.
pub struct Store<'a> {
    /// Its key's hash, with the database.
    pub key: KeyHash,
    /// The string.
    pub value: &'a [u8],
    /// Which word of the command it is.
    pub value_at: usize,
}

impl Observer {
    /// An observer that passes its sample to `queue`.
    pub fn new(commands: CommandTable, partitions: Partitions, queue: Arc<SampleQueue>) -> Self {
        Observer {
            commands: KnownCommands::new(commands),
            clients: Clients::new(),
            misses: Misses::new(),
            sampler: Sampler::new(queue),
            sizes: Sizes::new(),
            partitions,
            served: ServedSlots::default(),
            counters: [Counters::default(); PARTITIONS_MAX],
            tick: 0,
            coverage: Coverage::default(),
            turns: Turns::default(),
            is_busy: false,
            unloads: false,
        }
    }

    /// Starts over with other partitions: what was counted for the old ones is of no use to the new.
    pub fn set_partitions(&mut self, partitions: Partitions) {
        self.partitions = partitions;
        self.counters.fill(Counters::default());
        self.sampler.begin_epoch();
        self.served.arrivals.forget_counts();
        // Delays are of the backend, penalties of partitions.
        self.misses.costs = MissCosts { are_delayed: self.misses.costs.are_delayed, ..MissCosts::default() };
        // Users may have other numbers.
        self.clients.forget();
    }

    /// Which set of partitions is in force.
    pub fn epoch(&self) -> u32 {
        self.sampler.epoch()
    }

    /// Other commands are seen from now on; after some turns alone, in slices.
    pub fn watch(&mut self, watched: Watched, in_slices: bool, now_us: u64) {
        let before = self.coverage.change(watched, now_us);
        if before == Watched::Nothing && watched != Watched::Nothing {
            // Clients may have gone to other databases meanwhile.
            if in_slices { self.clients.forget_places() } else { self.clients.forget() }
        }
    }

    /// From now on it has to be right which database each command is for. False where it may not have been so far.
    pub fn follow_clients(&mut self) -> bool {
        !self.clients.make_sure()
    }

    /// True where nothing is to be done about a command: it reads, and reads go unseen.
    #[inline]
    pub fn passes(&mut self, command: Option<Entry>) -> bool {
        let passes = self.coverage.passes(command);
        if passes {
            self.is_busy = true;
        }
        passes
    }

    /// A command as the server's table has it; `None` where it isn't there. About 5 ns.
    #[inline]
    pub fn command(&self, call: &FilterCall) -> Option<Entry> {
        self.commands.table().find(call.word(0)?)
    }

    /// A command is about to run, of which [`Observer::command`] has told this. No allocation, bounded by its number
    /// of keys.
    #[inline]
    pub fn on_command(&mut self, call: &FilterCall, command: Option<Entry>, now_us: impl Fn() -> u64) {
        self.is_busy = true;
        let Some(command) = command else {
            return self.commands.meet_unknown();
        };
        if let Some((position, effect)) = command.only_key() {
            self.misses.due = u32::from(effect == Effect::Read);
            let db = self.clients.db_of(call, self.partitions.owners.as_deref_mut());
            return self.on_key(call, position, effect, db, &now_us);
        }
        self.on_keys(call, command, &now_us);
    }

    /// Any other command: no key, or several.
    #[inline(never)]
    fn on_keys(&mut self, call: &FilterCall, command: Entry, now_us: &impl Fn() -> u64) {
        // Also where there is no key: a script's commands are in the database of the client that runs it.
        let db = self.clients.db_of(call, self.partitions.owners.as_deref_mut());
        self.misses.due = 0;
        match command.sets {
            Sets::Nothing => {}
            Sets::Modules => self.unloads = call.word(1).is_some_and(|word| word.eq_ignore_ascii_case(b"unload")),
            Sets::Database => self.clients.may_move(call, call.word(1).and_then(parse_db)),
            Sets::MaybeClient => self.clients.may_move(call, None),
            Sets::Reader => {
                self.clients.may_move(call, None);
                self.clients.reads();
            }
            Sets::RunsQueued => {
                self.clients.may_move(call, None);
                self.misses.due = u32::MAX;
            }
        }
        let table = self.commands.lend();
        command_table::for_each_key(table.keys(command, call), call, |position, effect| {
            self.misses.due += u32::from(effect == Effect::Read);
            self.on_key(call, position, effect, db, now_us);
        });
        self.commands.take_back(table);
    }

    /// The database of a command that is about to run; `None` where it can't be known.
    pub fn db_of(&mut self, call: &FilterCall) -> Option<u16> {
        self.clients.db_of(call, self.partitions.owners.as_deref_mut())
    }

    /// From now on `owners` says whose keys are.
    pub fn set_owners(&mut self, owners: Option<Box<dyn Owners>>) {
        self.partitions.set_owners(owners);
        // Users may have other numbers.
        self.clients.forget();
    }

    /// Calls `visit` with the tenant of each of a command's keys; false where there is none, or it isn't known.
    pub fn for_each_tenant(&mut self, call: &FilterCall, command: Entry, mut visit: impl FnMut(TenantId)) -> bool {
        self.for_each_key(call, command, |partitions, (db, key), user| {
            visit(partitions.tenant_of(db, key, || KeyHash::of(key), user));
        })
    }

    /// Calls `visit` with each of a command's keys, its database, and who asks for it; false where there is none, or
    /// the database isn't known.
    pub fn for_each_key(
        &mut self,
        call: &FilterCall,
        command: Entry,
        mut visit: impl FnMut(&mut Partitions, (u16, &[u8]), User),
    ) -> bool {
        let Some(db) = self.clients.db_of(call, self.partitions.owners.as_deref_mut()) else { return false };
        let (user, mut any) = (self.clients.user(), false);
        let Observer { commands, partitions, .. } = self;
        command_table::for_each_key(commands.table().keys(command, call), call, |position, _| {
            if let Some(key) = call.word(position) {
                visit(partitions, (db, key), user);
                any = true;
            }
        });
        any
    }

    /// True where a command writes keys of slots that are only on their way here, as nobody but their source does.
    pub fn comes_from_source(&self, call: &FilterCall, command: Option<Entry>) -> bool {
        let arrivals = &self.served.arrivals;
        let Some(command) = command.filter(|_| arrivals.any()) else { return false };
        let mut is_arriving = false;
        command_table::for_each_key(self.commands.table().keys(command, call), call, |position, effect| {
            is_arriving |= effect != Effect::Read && call.word(position).is_some_and(|key| arrivals.have(key));
        });
        is_arriving
    }

    /// What a command is about to store whole, if it does so.
    #[inline]
    pub fn stores<'a>(&mut self, call: &'a FilterCall, command: Option<Entry>) -> Option<Store<'a>> {
        let command = command?;
        let (value_at, (position, _)) = (command.marks.stored_word()?, command.only_key()?);
        let db = self.clients.db_of(call, self.partitions.owners.as_deref_mut())?;
        let key = in_database(KeyHash::of(call.word(position)?), db);
        Some(Store { key, value: call.word(value_at)?, value_at })
    }

    /// The one key of a command of that many words, where it has one at a fixed place.
    pub fn only_key<'a>(&self, words: &[&'a [u8]]) -> Option<&'a [u8]> {
        let (position, _) = self.commands.table().find(words.first()?)?.only_key()?;
        words.get(position).copied()
    }

    /// One key of a command that is about to run.
    #[inline(always)]
    fn on_key(
        &mut self,
        call: &FilterCall,
        position: usize,
        effect: Effect,
        db: Option<u16>,
        now_us: &impl Fn() -> u64,
    ) {
        if self.coverage.watched() != Watched::All && effect == Effect::Read {
            self.coverage.unseen_reads += 1;
            return;
        }
        if self.coverage.sees_no_access() {
            return;
        }
        let Some(key) = call.word(position) else { return };
        if self.served.own.is_some() && self.served.is_elsewhere(&self.clients, key, effect) {
            return;
        }
        if self.coverage.watched() != Watched::All {
            return self.on_unseen_write(call, key, effect, db);
        }
        self.turns.count();
        if effect.writes() && self.turns.count_bytes() {
            self.turns.grow(written_bytes(call));
        }
        let hash = KeyHash::of(key);
        // Redis 7.0 with several databases in use: which one is found out at the end of the turn, for sampled keys. A
        // miss that waits knows its own.
        if db.is_none() {
            self.partitions.counted_anywhere(key, self.clients.user());
            if effect.writes() && self.misses.table.any_waiting() {
                self.answer_anywhere(key, hash, now_us);
            }
        }
        let mut filled = Filled::New;
        let place = db.map(|db| {
            if effect.writes() {
                if self.misses.table.any_waiting() {
                    filled = self.misses.filled(in_database(hash, db), now_us, command_began_us);
                    if filled == Filled::New && self.misses.table.take_late(in_database(hash, db)) {
                        filled = Filled::Late;
                    }
                }
                self.on_write(call, in_database(hash, db), filled.answer().map(|answer| answer.penalty_us));
            }
            let user = self.clients.user();
            let partition = self.partitions.of_counted(db, key, || hash, user);
            let counted = &mut self.counters[partition.index() % PARTITIONS_MAX];
            counted.count(effect, 1);
            if let Some(answer) = filled.answer() {
                counted.count_prompted(answer);
            }
            let requests = counted.requests();
            let named = (in_database(hash, db), key);
            self.partitions.keys.used(named, (db, partition), effect, filled, self.tick);
            (db, partition, requests)
        });
        let at = self.partitions.keys.accesses.now();
        self.sampler.note((key, hash), place, effect, (at, filled != Filled::New));
    }

    /// This node of a cluster is a replica, or is none any more.
    pub fn follow(&mut self, is_replica: bool) {
        self.clients.follow(is_replica);
    }

    /// A write among reads that go unseen: what is known of where values lie stays right, and of who they are. What
    /// its miss cost is told by the event of the new key, and what is deleted by its own.
    #[inline(never)]
    fn on_unseen_write(&mut self, call: &FilterCall, key: &[u8], effect: Effect, db: Option<u16>) {
        let Some(db) = db.filter(|_| effect.writes()) else { return };
        let key = in_database(KeyHash::of(key), db);
        self.on_write(call, key, None);
        self.partitions.keys.stored(key);
    }

    /// A write tells the key's class, by what its miss cost or by who writes.
    #[inline]
    fn on_write(&mut self, call: &FilterCall, key: KeyHash, penalty_us: Option<u64>) {
        if let Some(penalty_us) = penalty_us {
            self.partitions.learn(key, penalty_us, self.tick);
        }
        if self.partitions.classes.any_connections()
            && let Some(client_id) = call.client_id()
        {
            self.partitions.written_by(client_id, key, self.tick);
        }
    }

    /// `key` is written, nobody knows where: the first database in which a miss of it waits has its answer.
    #[cold]
    fn answer_anywhere(&mut self, key: &[u8], hash: KeyHash, now_us: &impl Fn() -> u64) {
        let Observer { clients, misses, partitions, counters, tick, .. } = self;
        let answer = |&db: &u16| Some((db, misses.answered(in_database(hash, db), now_us)?));
        if let Some((db, answer)) = clients.dbs_in_use().iter().find_map(answer) {
            partitions.learn(in_database(hash, db), answer.penalty_us, *tick);
            counters[partitions.of(db, key).index()].count_answer(answer);
        }
    }

    /// True between two slices: what events tell of keys goes into the table all the same. Far from the limit nothing
    /// does.
    #[inline]
    fn notes_unseen(&self) -> bool {
        self.coverage.sees_no_access() && self.partitions.keys.accesses.is_on()
    }

    /// A read found nothing. Comes from within the command, with the database known.
    pub fn on_miss(&mut self, db: u16, key: &[u8], now_us: u64) {
        if self.coverage.watched() != Watched::All {
            let named = in_database(KeyHash::of(key), db);
            self.coverage.unseen_misses += u64::from(self.coverage.watched() == Watched::Writes);
            return self.misses.begins_unseen(named, (now_us, command_began_us()));
        }
        if self.misses.due == 0 {
            return;
        }
        self.misses.due -= 1;
        let hash = KeyHash::of(key);
        let partition = self.partitions.of_accessed(db, key, || hash, self.clients.user());
        self.sampler.missed(hash);
        let counted = &mut self.counters[partition.index()];
        counted.misses += 1;
        if self.clients.are_unknown() {
            counted.reads += 1;
            let at = counted.requests();
            self.sampler.place(hash, Effect::Read, (db, partition, at));
        }
        let origin = self.partitions.keys.missed(in_database(hash, db), self.tick);
        let is_regretted = self.counters[partition.index()].origins.count(origin);
        self.misses.begins(in_database(hash, db), (now_us, command_began_us()), is_regretted);
    }

    /// The event loop's turn is over and its commands have run: the sampled keys are looked at and passed on. Returns
    /// how many the turn dropped.
    pub fn end_turn(&mut self, server: &mut Server, now_us: u64) -> u64 {
        let dropped = self.sampler.take_dropped();
        self.is_busy = false;
        self.turns.end();
        self.tick = key_table::tick(now_us);
        self.clients.end_turn();
        self.partitions.keys.end_turn();
        if !self.sampler.is_empty() {
            self.partitions.keys.settle();
            let Observer { sampler, partitions, clients, counters, sizes, misses, .. } = self;
            let costs = &misses.costs;
            sampler.pass_on(Lookup { server, partitions, clients, counters, sizes, costs, now_us, stands_for: 1 });
        }
        dropped
    }

    /// Accesses that went unseen are told to who learns.
    pub fn pass_on_late(&mut self, late: &mut Vec<LateAccess>) {
        late.drain(..).for_each(|late| self.sampler.pass_on_late(&late));
    }

    /// What is to be done about the command that was seen last.
    #[inline]
    pub fn next(&mut self) -> Next {
        if self.unloads {
            self.unloads = false;
            return Next::ModuleGoes;
        }
        self.turns.next()
    }

    /// A key came into being in `db`; tells its partition.
    pub fn on_new_key(&mut self, db: u16, key: &[u8], now_us: impl Fn() -> u64) -> PartitionId {
        // Between two slices of watching nothing else tells that commands come.
        self.is_busy = true;
        self.clients.met(db);
        self.partitions.created(db, key, self.clients.user());
        self.partitions.keys.accesses.created(|| in_database(KeyHash::of(key), db));
        if self.coverage.watched() != Watched::All {
            let hash = in_database(KeyHash::of(key), db);
            let filled = match self.misses.table.any_waiting() {
                true => self.misses.filled(hash, now_us, command_began_us),
                false => Filled::New,
            };
            if self.notes_unseen() {
                let partition = self.partitions.of(db, key);
                // A command that has missed itself unseen has asked for nothing, as far as is known.
                let noted = if filled == Filled::ByItself { Filled::New } else { filled };
                self.partitions.keys.used((hash, key), (db, partition), Effect::Replace, noted, self.tick);
            }
            let Some(answer) = filled.answer() else { return self.partitions.of(db, key) };
            self.partitions.learn(hash, answer.penalty_us, self.tick);
            let partition = self.partitions.of(db, key);
            self.counters[partition.index()].count_answer(answer);
            return partition;
        }
        let partition = self.partitions.of(db, key);
        if self.clients.are_unknown() {
            let counted = &mut self.counters[partition.index()];
            counted.writes += 1;
            let (hash, at) = (KeyHash::of(key), counted.requests());
            self.sampler.place(hash, Effect::Replace, (db, partition, at));
        }
        partition
    }

    /// A key came that the filter may not have seen, of the size of its partition's. True where the turn has to end.
    pub fn has_grown_unseen(&mut self, partition: PartitionId) -> bool {
        if self.coverage.watched() == Watched::All || !self.turns.count_bytes() {
            return false;
        }
        self.turns.grow(u64::from(self.sizes.mean_bytes(partition)));
        self.turns.next() == Next::TurnEnds
    }

    /// A key has gone: what it was accessed while it was there counts no more.
    pub fn on_gone(&mut self, db: u16, key: &[u8], cause: Cause) {
        self.partitions.gone(db, || KeyHash::of(key), Departure::by(cause));
    }

    /// Reads and writes counted so far.
    pub fn requests(&self) -> u64 {
        self.counters.iter().map(Counters::requests).sum()
    }

    /// Tells which databases hold keys.
    pub fn set_dbs_in_use(&mut self, dbs: &[u16]) {
        self.clients.set_dbs_in_use(dbs);
    }

    /// Who is who, how large, and what a miss costs, for those who look at keys.
    pub fn guides(&mut self) -> (&mut Partitions, &mut Sizes, &MissCosts) {
        (&mut self.partitions, &mut self.sizes, &self.misses.costs)
    }

    /// The sizes of keys.
    pub fn sizes(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    /// The same, to ask them only.
    pub fn known_sizes(&self) -> &Sizes {
        &self.sizes
    }
}

/// What a command may write, in bytes: as much as if each of its words were as long as the last.
fn written_bytes(call: &FilterCall) -> u64 {
    let words = call.count();
    words.saturating_sub(2) as u64 * call.word(words.saturating_sub(1)).map_or(0, |word| word.len() as u64)
}

fn parse_db(word: &[u8]) -> Option<u16> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// What a key specification's flags say of a key: see `command_table`.
impl From<KeyUse> for Effect {
    fn from(key_use: KeyUse) -> Self {
        match key_use {
            KeyUse::ReadOnly => Effect::Read,
            KeyUse::Remove => Effect::Delete,
            KeyUse::ReadWrite => Effect::Change,
            KeyUse::Overwrite => Effect::Replace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::classes::Classes;
    use super::keys::Keys;
    use super::tenants::{TenantSpec, Tenants};
    use super::*;

    #[test]
    fn what_misses_cost_is_not_taken_for_other_partitions() {
        let partitions =
            || Partitions::new(Tenants::new(&TenantSpec::default()), Classes::default(), Keys::default(), None);
        let mut observer = Observer::new(CommandTable::empty(), partitions(), Arc::default());
        observer.misses.costs =
            MissCosts { penalty_us: [50.0; PARTITIONS_MAX], are_delayed: true, ..MissCosts::default() };
        observer.set_partitions(partitions());
        assert!(observer.misses.costs.penalty_us.iter().all(|&us| us == 1.0) && observer.misses.costs.are_delayed);
    }
}
