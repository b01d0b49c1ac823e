//! Observe: every command on its way into the server, misses and key events on their way out, and a sample for the
//! models.
//!
//! The filter hashes each key, counts it for its partition and, where the hash is in the sample, notes it in a ring
//! that is allocated once. At the end of the event loop's turn, when the commands have run, the noted keys are looked
//! at (there or gone, how large, when they expire) and passed to the worker through a bounded queue. What doesn't fit
//! is dropped and counted. Cost on the main thread: a hash and a few counters per key; about 1,350 instructions per
//! sampled key.

pub mod arrivals;
pub mod bins;
pub mod classes;
pub mod clients;
pub mod command_table;
pub mod duty;
pub mod keys;
pub mod misses;
pub mod origins;
pub mod owners;
pub mod partitions;
pub mod placements;
pub mod prefixes;
pub mod reply_mode;
pub mod ring;
pub mod sizes;
pub mod slots;
pub mod slow_collections;
pub mod tenants;

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use tenure_core::access::{Access, Op};
use tenure_core::departure::{Cause, Departure};
use tenure_core::key_table;
use tenure_core::policy::density::{Delays, MissCosts, Shown};
use tenure_core::sampling::SampleRate;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

use self::arrivals::Arrivals;
use self::bins::Bins;
use self::clients::Clients;
use self::command_table::{CommandTable, Effect, Entry, KeyUse, Sets};
use self::duty::Watched;
use self::misses::{Answer, MissTable};
use self::origins::Origins;
use self::owners::{Owners, User};
use self::partitions::{Partitions, in_database};
use self::ring::Ring;
use self::sizes::{Known, Sizes};
use self::slots::Slots;

use crate::ffi::filter::{FilterCall, Words};
use crate::ffi::server::{Kind, Server};

/// Databases that Tenure looks at one by one; a server may have more, and they are one tenant together.
pub const DBS_MAX: u16 = 256;

/// What has been counted for one partition since the module was loaded. Only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Reads of one key, hits and misses.
    pub reads: u64,
    /// Writes of one key.
    pub writes: u64,
    /// Deletes of one key.
    pub deletes: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// The same by where they come from.
    pub origins: Origins,
    /// Misses that were answered, those that joined a fetch under way too.
    pub answered: u64,
    /// Time from misses to their answers, in µs: who joins a fetch is taken to have waited for half of it.
    pub miss_us: f64,
    /// Measured penalties: how many, their sum and their sum of squares, in µs.
    pub penalties: u64,
    /// Sum of the measured penalties, in µs.
    pub penalty_us_sum: f64,
    /// Sum of their squares, in µs².
    pub penalty_us_square_sum: f64,
}

impl Counters {
    /// Requests in the models' sense: reads and writes. The clock of the partition's reuse times.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Reads, and writes that answer no miss: how much the partition is accessed, however much of it is in memory.
    pub fn unprompted(&self) -> u64 {
        self.reads + self.writes.saturating_sub(self.penalties)
    }

    #[inline]
    fn count(&mut self, effect: Effect, times: u64) {
        match effect {
            Effect::Read => self.reads += times,
            Effect::Write => self.writes += times,
            Effect::Delete => self.deletes += times,
        }
    }

    fn count_answer(&mut self, answer: Answer) {
        let (penalty_us, lost_us) = (answer.penalty_us as f64, answer.lost_us());
        self.miss_us += lost_us;
        self.answered += 1 + answer.joined;
        if answer.is_regretted {
            self.origins.regret_us += lost_us;
        }
        self.penalties += 1;
        self.penalty_us_sum += penalty_us;
        self.penalty_us_square_sum += penalty_us * penalty_us;
    }
}

/// One sampled access on its way to the worker.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    /// The access; its key's hash has the database mixed into the low bits.
    pub access: Access,
    /// The partition's request number.
    pub at: u64,
    /// Where the access belongs.
    pub partition: PartitionId,
    /// The partition's bins.
    pub bins: Bins,
    /// The access's size is that of the key, which is there; else it is the partition's mean.
    pub is_sized: bool,
    /// Which set of partitions the number above is of; it changes with `tenure.tenants`.
    pub epoch: u32,
    /// What the key has shown, where that is remembered.
    pub shown: Option<Shown>,
}

/// What of the stream was not passed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Sampled accesses beyond what one turn looks at.
    pub ring_full: u64,
    /// Sampled accesses that the worker had no room for.
    pub queue_full: u64,
    /// Commands that are not in the server's command table as it was last read.
    pub unknown_commands: u64,
}

/// The observing half of Tenure's state. See the file's opening.
pub struct Observer {
    commands: CommandTable,
    clients: Clients,
    misses: MissTable,
    ring: Ring,
    sizes: Sizes,
    queue: Arc<ArrayQueue<Sampled>>,
    /// Who is who. Changes only between turns.
    pub partitions: Partitions,
    /// On a node of a cluster, what it or its primary serves: of other keys it holds nothing.
    pub slots: Option<Slots>,
    /// Slots on their way to this node, whose keys are there already.
    pub arrivals: Arrivals,
    /// Keys of other nodes that were accessed here: those commands are answered with a redirect.
    pub redirected: u64,
    /// The keys that the last turn sampled, where a feature wants to hear of them.
    pub sampled_keys: Option<Vec<(PartitionId, KeyHash)>>,
    /// By partition.
    pub counters: [Counters; PARTITIONS_MAX],
    /// Not passed on.
    pub losses: Losses,
    /// The share of keys that is sampled.
    pub rate: SampleRate,
    /// What misses cost, where the key's own isn't known.
    pub miss_costs: MissCosts,
    /// How many misses meet a fetch of the same key.
    pub delays: Delays,
    /// Penalties above this count as this, in µs.
    pub penalty_us_max: u64,
    /// When the last turn ended, as the key table counts time.
    tick: u32,
    /// Set where a command was met that the table doesn't know: a module was loaded since.
    pub table_is_stale: bool,
    /// Commands came since the last turn ended.
    pub is_busy: bool,
    /// One of them loads or unloads modules.
    pub manages_modules: bool,
    /// Which commands are seen. Where not all are, counters and clocks stand still.
    watched: Watched,
    /// Reads of one key, hits and misses, while writes alone were watched.
    pub unseen_reads: u64,
    /// Of them, those that found nothing.
    pub unseen_misses: u64,
    panic_please: bool,
    /// How many misses the command that runs now may still bring: as many as it has reads. Others (a `GETSET`'s look
    /// at the old value) belong to no read. Queued commands were seen earlier, so `EXEC` may bring any number.
    misses_due: u32,
    dropped_before: u64,
    /// Keys that several databases hold take turns.
    undecided: usize,
    epoch: u32,
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
    pub fn new(commands: CommandTable, partitions: Partitions, queue: Arc<ArrayQueue<Sampled>>) -> Self {
        Observer {
            commands,
            clients: Clients::new(),
            misses: MissTable::new(),
            ring: Ring::new(),
            sizes: Sizes::new(),
            queue,
            partitions,
            slots: None,
            arrivals: Arrivals::default(),
            redirected: 0,
            sampled_keys: None,
            counters: [Counters::default(); PARTITIONS_MAX],
            losses: Losses::default(),
            rate: SampleRate::ALL,
            miss_costs: MissCosts::default(),
            delays: Delays::default(),
            penalty_us_max: 10_000_000,
            tick: 0,
            table_is_stale: false,
            is_busy: false,
            manages_modules: false,
            watched: Watched::All,
            unseen_reads: 0,
            unseen_misses: 0,
            panic_please: false,
            misses_due: 0,
            dropped_before: 0,
            undecided: 0,
            epoch: 0,
        }
    }

    /// Takes the server's command table as it is now.
    pub fn set_commands(&mut self, commands: CommandTable) {
        self.commands = commands;
        self.table_is_stale = false;
    }

    /// Starts over with other partitions: what was counted for the old ones is of no use to the new.
    pub fn set_partitions(&mut self, partitions: Partitions) {
        self.partitions = partitions;
        self.counters.fill(Counters::default());
        self.ring.clear();
        self.arrivals.forget_counts();
        // Delays are of the backend, penalties of partitions.
        self.miss_costs = MissCosts { are_delayed: self.miss_costs.are_delayed, ..MissCosts::default() };
        // Users may have other numbers.
        self.clients.forget();
        self.epoch += 1;
    }

    /// Which set of partitions is in force.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Which commands are seen.
    #[inline]
    pub fn watched(&self) -> Watched {
        self.watched
    }

    /// Other commands are seen from now on; after some turns alone, in slices.
    pub fn watch(&mut self, watched: Watched, in_slices: bool) {
        if self.watched == Watched::Nothing && watched != Watched::Nothing {
            // Clients may have gone to other databases meanwhile.
            if in_slices { self.clients.forget_places() } else { self.clients.forget() }
        }
        self.watched = watched;
    }

    /// True where nothing is to be done about a command: it reads, and reads go unseen.
    #[inline]
    pub fn passes(&mut self, command: Option<Entry>) -> bool {
        let passes = self.watched == Watched::Writes && command.is_some_and(Entry::only_reads);
        if passes {
            self.is_busy = true;
            self.unseen_reads += 1;
        }
        passes
    }

    /// A command as the server's table has it; `None` where it isn't there. About 5 ns.
    #[inline]
    pub fn command(&self, call: &FilterCall) -> Option<Entry> {
        self.commands.find(call.word(0)?)
    }

    /// A command is about to run, of which [`Observer::command`] has told this. No allocation, bounded by its number
    /// of keys.
    #[inline]
    pub fn on_command(&mut self, call: &FilterCall, command: Option<Entry>, now_us: impl Fn() -> u64) {
        self.is_busy = true;
        let Some(command) = command else {
            return self.on_unknown_command();
        };
        if let Some((position, effect)) = command.only_key() {
            self.misses_due = u32::from(effect == Effect::Read);
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
        self.misses_due = 0;
        match command.sets {
            Sets::Nothing => {}
            Sets::Modules => self.manages_modules = true,
            Sets::Database => self.clients.may_move(call, call.word(1).and_then(parse_db)),
            Sets::MaybeClient => self.clients.may_move(call, None),
            Sets::Reader => {
                self.clients.may_move(call, None);
                self.clients.reads();
            }
            Sets::RunsQueued => {
                self.clients.may_move(call, None);
                self.misses_due = u32::MAX;
            }
        }
        let commands = std::mem::take(&mut self.commands);
        let keys = commands.keys(command, call);
        command_table::for_each_key(keys, call, |position, effect| {
            self.misses_due += u32::from(effect == Effect::Read);
            self.on_key(call, position, effect, db, now_us);
        });
        self.commands = commands;
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
        let user = self.clients.user();
        let Observer { commands, partitions, .. } = self;
        let mut any = false;
        command_table::for_each_key(commands.keys(command, call), call, |position, _| {
            if let Some(key) = call.word(position) {
                visit(partitions, (db, key), user);
                any = true;
            }
        });
        any
    }

    /// True where a command writes keys of slots that are only on their way here, as nobody but their source does.
    pub fn comes_from_source(&self, call: &FilterCall, command: Option<Entry>) -> bool {
        let Some(command) = command.filter(|_| self.arrivals.any()) else { return false };
        let mut is_arriving = false;
        command_table::for_each_key(self.commands.keys(command, call), call, |position, effect| {
            is_arriving |= effect != Effect::Read && call.word(position).is_some_and(|key| self.arrivals.have(key));
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
        let (position, _) = self.commands.find(words.first()?)?.only_key()?;
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
        if self.watched != Watched::All && effect == Effect::Read {
            self.unseen_reads += 1;
            return;
        }
        let Some(key) = call.word(position) else { return };
        if self.slots.is_some() && self.is_elsewhere(key, effect) {
            return;
        }
        if self.watched != Watched::All {
            return self.on_unseen_write(call, key, effect, db);
        }
        let hash = KeyHash::of(key);
        // Redis 7.0 with several databases in use: which one is found out at the end of the turn, for sampled keys. A
        // miss that waits knows its own.
        if db.is_none() && effect == Effect::Write && self.misses.any_waiting() {
            self.answer_anywhere(key, hash, now_us);
        }
        let mut is_answer = false;
        let place = db.map(|db| {
            let mut answer = None;
            if effect == Effect::Write {
                if self.misses.any_waiting() {
                    answer = self.misses.take(in_database(hash, db), now_us, self.penalty_us_max);
                    is_answer = answer.is_some() || self.misses.take_late(in_database(hash, db));
                }
                self.on_write(call, in_database(hash, db), answer.map(|answer| answer.penalty_us));
            }
            let user = self.clients.user();
            let partition = self.partitions.of_accessed(db, key, || hash, user);
            let counted = &mut self.counters[partition.index() % PARTITIONS_MAX];
            counted.count(effect, 1);
            if let Some(answer) = answer {
                counted.count_answer(answer);
            }
            let requests = counted.requests();
            let named = (in_database(hash, db), key);
            self.partitions.keys.used(named, (db, partition), effect, is_answer, self.tick);
            (db, partition, requests)
        });
        let at = self.partitions.keys.accesses.now();
        if self.rate.takes(hash) && !self.ring.push(key, hash, place, effect, (at, is_answer)) {
            self.losses.ring_full += 1;
        }
    }

    /// True where the key is accessed on another node: the client is sent there, or that node's accesses are repeated
    /// here.
    #[inline(never)]
    fn is_elsewhere(&mut self, key: &[u8], effect: Effect) -> bool {
        if self.arrivals.have(key) {
            return true;
        }
        let is_redirected = self.is_redirected(key, effect);
        self.redirected += u64::from(is_redirected);
        is_redirected
    }

    /// True where a node of a cluster sends the client elsewhere.
    fn is_redirected(&self, key: &[u8], effect: Effect) -> bool {
        if !self.clients.is_replica() {
            return self.slots.as_ref().is_some_and(|slots| !slots.have(key));
        }
        let sender = self.clients.sender();
        let is_others = || self.slots.as_ref().is_some_and(|slots| !slots.have(key));
        !sender.is_served(effect) || (effect == Effect::Read && is_others())
    }

    /// This node of a cluster is a replica, or is none any more.
    pub fn follow(&mut self, is_replica: bool) {
        self.clients.follow(is_replica);
    }

    /// A write among reads that go unseen: what is known of where values lie stays right, and of who they are. What
    /// its miss cost is told by the event of the new key, and what is deleted by its own.
    #[inline(never)]
    fn on_unseen_write(&mut self, call: &FilterCall, key: &[u8], effect: Effect, db: Option<u16>) {
        let Some(db) = db.filter(|_| effect == Effect::Write) else { return };
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
        let Observer { clients, misses, partitions, counters, penalty_us_max, tick, .. } = self;
        let answer = |&db: &u16| Some((db, misses.take(in_database(hash, db), now_us, *penalty_us_max)?));
        if let Some((db, answer)) = clients.dbs_in_use().iter().find_map(answer) {
            partitions.learn(in_database(hash, db), answer.penalty_us, *tick);
            counters[partitions.of(db, key).index()].count_answer(answer);
        }
    }

    /// For tests: the next command panics. The way there is by a table that knows none, so that it costs nothing else.
    pub fn panic_at_next_command(&mut self) {
        self.commands = CommandTable::empty();
        self.panic_please = true;
    }

    #[cold]
    fn on_unknown_command(&mut self) {
        assert!(!self.panic_please, "asked to by TENURE.DEBUG");
        self.losses.unknown_commands += 1;
        self.table_is_stale = true;
    }

    /// True between two slices: what events tell of keys goes into the table all the same. Far from the limit nothing
    /// does.
    #[inline]
    fn notes_unseen(&self) -> bool {
        self.watched == Watched::Nothing && self.partitions.keys.accesses.is_on()
    }

    /// A read found nothing. Comes from within the command, with the database known.
    pub fn on_miss(&mut self, db: u16, key: &[u8], now_us: u64) {
        if self.watched != Watched::All {
            let named = in_database(KeyHash::of(key), db);
            self.unseen_misses += u64::from(self.watched == Watched::Writes);
            self.misses.note(named, now_us, false);
            if self.notes_unseen() {
                let partition = self.partitions.of(db, key);
                self.partitions.keys.used((named, key), (db, partition), Effect::Read, false, self.tick);
                self.partitions.keys.missed(named, self.tick);
            }
            return;
        }
        if self.misses_due == 0 {
            return;
        }
        self.misses_due -= 1;
        let hash = KeyHash::of(key);
        let partition = self.partitions.of_accessed(db, key, || hash, self.clients.user());
        let counted = &mut self.counters[partition.index()];
        counted.misses += 1;
        if self.clients.are_unknown() {
            counted.reads += 1;
            let at = counted.requests();
            if self.rate.takes(hash) {
                self.ring.place(hash, Effect::Read, (db, partition, at));
            }
        }
        let origin = self.partitions.keys.missed(in_database(hash, db), self.tick);
        let is_regretted = self.counters[partition.index()].origins.count(origin);
        let is_first = self.misses.note(in_database(hash, db), now_us, is_regretted);
        self.delays.count(!is_first);
    }

    /// The event loop's turn is over and its commands have run: the sampled keys are looked at and passed on. Returns
    /// how many the turn dropped.
    pub fn end_turn(&mut self, server: &mut Server, now_us: u64) -> u64 {
        let dropped = self.losses.ring_full + self.losses.queue_full - self.dropped_before;
        self.dropped_before += dropped;
        (self.is_busy, self.manages_modules) = (false, false);
        self.tick = key_table::tick(now_us);
        self.clients.end_turn();
        self.partitions.keys.end_turn();
        if self.ring.is_empty() {
            return dropped;
        }
        self.partitions.keys.settle();
        let mut ring = std::mem::take(&mut self.ring);
        for noted in ring.iter() {
            let place = noted.place.or_else(|| self.find_place(server, noted.key, noted.effect));
            let Some((db, partition, at)) = place else { continue };
            let (access, is_sized) = self.look_at(server, db, partition, &noted, now_us);
            if let Some(sampled) = &mut self.sampled_keys {
                sampled.push((partition, access.key));
            }
            let shown = self.shown(&access, partition, &noted, is_sized);
            let bins = self.partitions.binning.of(partition);
            let sampled = Sampled { access, at, partition, bins, is_sized, epoch: self.epoch, shown };
            if self.queue.push(sampled).is_err() {
                self.losses.queue_full += 1;
            }
        }
        ring.clear();
        self.ring = ring;
        dropped
    }

    /// What became of one sampled key, and whether it is there, so that its size is known.
    fn look_at(
        &mut self,
        server: &mut Server,
        db: u16,
        partition: PartitionId,
        noted: &ring::Noted,
        now_us: u64,
    ) -> (Access, bool) {
        server.select_db(db);
        let name = server.text(noted.key);
        let key = server.open(&name);
        let hash = in_database(noted.hash, db);
        let (op, size_bytes) = match (noted.effect, key.kind()) {
            (Effect::Read, Kind::Absent) => (Op::Read, self.sizes.mean_bytes(partition)),
            (_, Kind::Absent) => (Op::Delete, 1),
            (effect, _) => {
                let op = if effect == Effect::Read { Op::Read } else { Op::Write };
                (op, self.sizes.of(partition, &name, || hash, &key))
            }
        };
        let ttl_us = if op == Op::Delete { None } else { key.expires_in_ms() }.map_or(0, |ms| (ms * 1000).max(1));
        let tenant = TenantId(partition.0);
        let access = Access { key: hash, op, tenant, size_bytes, time_us: now_us, ttl_us, penalty_us: 0.0 };
        (access, key.kind() != Kind::Absent)
    }

    /// What Tenure's own policy learns of a sampled access. A miss tells with its answer what it is about; without
    /// one there is nothing that could have been kept.
    fn shown(&self, access: &Access, partition: PartitionId, noted: &ring::Noted, is_there: bool) -> Option<Shown> {
        let accesses = &self.partitions.keys.accesses;
        if !accesses.is_on() || (noted.effect == Effect::Read && !is_there) {
            return None;
        }
        let clock = accesses.clock();
        let entry = self.partitions.keys.entry(access.key);
        let (feature, penalty_us) = self.miss_costs.of(entry.as_ref(), partition, clock.ticks_per_us);
        let expires = match access.ttl_us {
            0 => u64::MAX,
            ttl_us => clock.tick_after(noted.at, ttl_us),
        };
        let op = if noted.is_answer { Op::Read } else { access.op };
        Some(Shown { now: noted.at, expires, feature, penalty_us, op })
    }

    /// Redis 7.0, several databases, a key that was there: the database that holds it (of several, one of those where
    /// it was used last), and one access in each sampled key's name for all that were not sampled.
    fn find_place(&mut self, server: &mut Server, key: &[u8], effect: Effect) -> Option<ring::Place> {
        let name = server.text(key);
        let idle_in = |&db: &u16| {
            let key = server.select_db(db).then(|| server.open(&name)).filter(|key| key.kind() != Kind::Absent)?;
            Some((key.idle(), db))
        };
        let holders: Vec<(u64, u16)> = self.clients.dbs_in_use().iter().filter_map(idle_in).collect();
        let idle_min = holders.iter().map(|(idle, _)| *idle).min()?;
        let last: Vec<u16> = holders.iter().filter(|(idle, _)| *idle == idle_min).map(|(_, db)| *db).collect();
        self.undecided = self.undecided.wrapping_add(1);
        let db = last[self.undecided % last.len()];
        let partition = self.partitions.of(db, key);
        let counted = &mut self.counters[partition.index()];
        let stands_for = (1.0 / self.rate.rate()).round() as u64;
        counted.count(effect, stands_for);
        Some((db, partition, counted.requests()))
    }

    /// A key came into being in `db`; tells its partition.
    pub fn on_new_key(&mut self, db: u16, key: &[u8], now_us: impl Fn() -> u64) -> PartitionId {
        self.clients.met(db);
        self.partitions.created(db, key, self.clients.user());
        if self.watched != Watched::All {
            let hash = in_database(KeyHash::of(key), db);
            let waited = self.misses.any_waiting().then(|| self.misses.take(hash, now_us, self.penalty_us_max));
            if self.notes_unseen() {
                let (is_answer, partition) = (waited.flatten().is_some(), self.partitions.of(db, key));
                self.partitions.keys.used((hash, key), (db, partition), Effect::Write, is_answer, self.tick);
            }
            let Some(answer) = waited.flatten() else { return self.partitions.of(db, key) };
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
            if self.rate.takes(hash) {
                self.ring.place(hash, Effect::Write, (db, partition, at));
            }
        }
        partition
    }

    /// A key has gone: what it was accessed while it was there counts no more.
    pub fn on_gone(&mut self, db: u16, key: &[u8], cause: Cause) {
        self.partitions.gone(db, || KeyHash::of(key), Departure::by(cause));
    }

    /// What of the commands is watched, for people.
    pub fn watching(&self) -> &'static str {
        match self.watched {
            Watched::All => "all",
            Watched::Writes => "writes",
            Watched::Nothing => "paused",
        }
    }

    /// Reads and writes counted so far.
    pub fn requests(&self) -> u64 {
        self.counters.iter().map(Counters::requests).sum()
    }

    /// Writes counted so far of partitions that are divided by size.
    pub fn writes_of_divided(&self) -> u64 {
        let with_bins = self.counters.iter().zip(self.partitions.binning.all());
        with_bins.filter(|(_, bins)| bins.are_many()).map(|(counters, _)| counters.writes).sum()
    }

    /// Tells which databases hold keys.
    pub fn set_dbs_in_use(&mut self, dbs: &[u16]) {
        self.clients.set_dbs_in_use(dbs);
    }

    /// Who is who, how large, and what a miss costs, for those who look at keys.
    pub fn guides(&mut self) -> (&mut Partitions, &mut Sizes, &MissCosts) {
        (&mut self.partitions, &mut self.sizes, &self.miss_costs)
    }

    /// The sizes of keys.
    pub fn sizes(&mut self) -> &mut Sizes {
        &mut self.sizes
    }

    /// What bytes are told by, beside the keys.
    pub fn known(&self) -> Known<'_> {
        Known { binning: &self.partitions.binning, sizes: &self.sizes }
    }
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
            KeyUse::ReadWrite | KeyUse::Overwrite => Effect::Write,
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
            || Partitions::new(Tenants::new(&TenantSpec::default()), Classes::default(), Keys::default(), None, 1);
        let mut observer = Observer::new(CommandTable::empty(), partitions(), Arc::new(ArrayQueue::new(1)));
        observer.miss_costs =
            MissCosts { penalty_us: [50.0; PARTITIONS_MAX], are_delayed: true, ..MissCosts::default() };
        observer.set_partitions(partitions());
        assert!(observer.miss_costs.penalty_us.iter().all(|&us| us == 1.0) && observer.miss_costs.are_delayed);
    }
}
