//! Tenure's state on the main thread, and what happens at the end of each turn of the event loop: look at what was
//! sampled, take a new plan, free memory, and, ten times a second, settle the accounts.

pub mod appearing;
mod held;
pub mod minimums;
mod pressure;
pub mod room;
mod samples;
mod status;
mod why;

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::access_ring::REQUESTS_PER_TICK;
use tenure_core::departure::Cause;
use tenure_core::key_table::{KeyTable, tick};
use tenure_core::policy::density::{Basis, Ranking, Ranks, age_step};
use tenure_core::tiers::division::Division;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId};

use self::appearing::Appearance;
use self::pressure::Pressure;
use self::samples::ServerSamples;
use self::status::EvictionStatus;
pub use self::why::Why;
use crate::config::{Policy, Settings};
use crate::enforce::UNBOUNDED;
use crate::enforce::evict::{EVICTED_MIN, Evictor, Orders, Scoring};
use crate::enforce::newcomers::Newcomer;
use crate::enforce::ranks;
use crate::enforce::usage::Usage;
use crate::enforce::walk::{Guides, SizesOf, Walk};
use crate::feature::{Wants, When};
use crate::ffi::clock::{now_us, thread_cpu_us};
use crate::ffi::migration::Arrival;
use crate::ffi::module::DataChange;
use crate::ffi::server::{Kind, Level, ScannedName, Server, Text};
use crate::ffi::{alloc, filtering, load, soon};
use crate::observe::Observer;
use crate::observe::bins::BinId;
use crate::observe::classes::{Class, Classes};
use crate::observe::command_table::CommandTable;
use crate::observe::duty::{Duty, Slices, Watched};
use crate::observe::keys::{Keys, Remembers, Table};
use crate::observe::partitions::{Partitions, in_database};
use crate::observe::sizes::LARGE_BYTES;
use crate::observe::tenants::Tenants;
use crate::rivals::Rival;
use crate::worker::{Instructions, PartitionView, Published, Snapshot, TenantTerms, Worker};

/// Between two ticks.
pub const TICK_US: u64 = 100_000;
const MEMORY_EVERY_US: u64 = 1_000_000;
/// How long the census takes for a round, where its limits let it.
const ROUND_US: u64 = 60_000_000;
/// Keys that the census visits per tick where the evictor has visited fewer; the most before shares were ever
/// counted, and where what size classes hold has changed unseen.
const CENSUS_KEYS_MIN: u64 = 64;
const CENSUS_KEYS_MAX: u64 = 512;
const CENSUS_STEPS: usize = 256;
/// Keys per tick whose overhead is asked for, and before enough of their partition's were.
const CALIBRATED_KEYS: usize = 2;
const CALIBRATED_KEYS_AT_FIRST: usize = 16;
/// Once enough were, it is asked for in one tick of so many: each asking is a command, which SLOWLOG and MONITOR show.
const CALIBRATED_EVERY: u64 = 50;
/// What an idle slice may take: a request that comes meanwhile waits so long at the most.
const IDLE_BUDGET_US: i64 = 100;
/// An event loop that hasn't been idle for so long isn't waited for.
const IDLE_WAIT_US: u64 = 5_000;
/// Between two slices of a walk that meets keys, but none that may go.
const WALK_REST_US: u64 = 10_000;
/// Memory for the table of keys: a share of the limit, within bounds; where there is no limit, a fixed size.
const KEY_TABLE_SHARE: u64 = 64;
const KEY_TABLE_BYTES_MIN: u64 = 256 << 10;
const KEY_TABLE_BYTES_MAX: u64 = 256 << 20;
const KEY_TABLE_BYTES_UNLIMITED: u64 = 4 << 20;
/// Without news from the worker for this many windows, its plan is not trusted any more.
const STALE_WINDOWS: u64 = 6;
const STALE_US_MIN: u64 = 60_000_000;

/// The server's memory limit and what it lets be evicted.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// `maxmemory`, in bytes; 0 = no limit.
    pub limit_bytes: u64,
    /// `maxmemory-policy`.
    pub policy: String,
    /// `maxmemory-clients`, in bytes: above it the server closes connections, before it evicts keys. 0 = no limit.
    clients_limit_bytes: u64,
    /// It lets only keys go that expire, and there were none.
    nothing_expires: bool,
    /// `import-mode`: another server writes all its keys here, and none may go.
    is_importing: bool,
    /// Keys that the server itself has evicted, as of the last look.
    pub evicted_by_server: u64,
    /// Commands that the server has counted.
    n_commands: u64,
    read_at_us: u64,
    stale: bool,
    /// `CONFIG RESETSTAT` was called, of which features haven't heard.
    stats_were_reset: bool,
    /// How much of its minimum each tenant has: all is 1.
    minimums_share: f64,
    /// `maxmemory-samples` of the server, while it follows.
    samples: Option<ServerSamples>,
    /// Where there are two memory tiers, how the fast one is divided, and how much of it there is to divide, in bytes.
    pub fast_to_divide: Option<(Division, u64)>,
}

/// The logical databases.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    /// Those that hold keys, with their number of keys, as of the last tick.
    pub sizes: Vec<(u16, u64)>,
    /// How many there are.
    count: u16,
}

/// What is watched of commands.
pub struct Watching {
    /// How much of a fast stream.
    duty: Duty,
    /// Which turns, while there is no time to watch all.
    pub slices: Slices,
    /// What features want to hear.
    wanted: Wants,
}

/// What the worker last made, as it was taken.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    version: u64,
    at_us: u64,
}

/// When the state was made, when it last ticked, and how many keys the walk had visited by then.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    started_at_us: u64,
    ticked_at_us: u64,
    visited: u64,
}

/// What has gone wrong, or is to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The worker was found dead.
    worker_died: bool,
    /// Set by tests: the next turn panics.
    pub panic_please: bool,
}

/// What is to be freed at one moment.
struct Need<'a> {
    /// Bytes in all.
    free_bytes: u64,
    /// By bin, as planned; empty without a plan.
    target_bytes: &'a [u64],
    /// What bins may hold, where any is above its maximum.
    bytes_max: Option<&'a [u64]>,
    /// The next turn may not find the room that it needs.
    is_urgent: bool,
}

/// The state. See the file's opening.
pub struct Tenure {
    /// Watches.
    pub observer: Observer,
    /// Knows how much each partition holds.
    pub usage: Usage,
    /// Evicts.
    pub evictor: Evictor,
    /// The walk through the keys that all share.
    pub walk: Walk,
    /// Models and plans.
    pub worker: Worker,
    /// What the worker last made.
    pub published: Arc<Published>,
    news: News,
    /// The limit.
    pub memory: Memory,
    /// Changes when a setting does.
    pub settings_version: u64,
    settings: Settings,
    /// How short memory is, and time.
    pub pressure: Pressure,
    /// What is watched of commands.
    pub watching: Watching,
    /// Which databases hold keys.
    pub databases: Databases,
    times: Times,
    /// What has gone wrong.
    pub faults: Faults,
    /// First parts of keys that are to become tenants with the next tick.
    pub appearances: Vec<Appearance>,
    /// Tenants that appeared in the place of others.
    pub tenants_replaced: u64,
}

impl Tenure {
    /// Fresh state, and the worker's thread.
    ///
    /// # Errors
    /// Why it can't run on this server, as a sentence.
    pub fn start(server: &mut Server, settings_version: u64, settings: Settings) -> Result<Tenure, String> {
        let commands = read_command_table(server)?;
        let worker = Worker::start().map_err(|e| format!("no thread for the worker: {e}"))?;
        let partitions = Partitions::new(
            Tenants::with_delimiter(&settings.tenants, settings.delimiter()),
            Classes::default(),
            Keys::default(),
            None,
            settings.bins(),
        );
        let observer = Observer::new(commands, partitions, Arc::clone(&worker.shared.queue));
        let now_us = now_us();
        if !filtering::watch(server, true) {
            return Err("the server refused a command filter".to_owned());
        }
        let mut tenure = Tenure {
            observer,
            usage: Usage::new(),
            evictor: Evictor::new(age_step(settings.window_requests as u64)),
            walk: Walk::default(),
            worker,
            published: Arc::default(),
            news: News { version: 0, at_us: now_us },
            memory: Memory { stale: true, minimums_share: 1.0, ..Memory::default() },
            settings_version,
            settings: settings.clone(),
            pressure: Pressure::default(),
            watching: Watching { duty: Duty::new(now_us), slices: Slices::default(), wanted: Wants::NOTHING },
            databases: Databases { sizes: Vec::new(), count: load::databases().min(crate::observe::DBS_MAX) },
            times: Times { started_at_us: now_us, ..Times::default() },
            faults: Faults::default(),
            appearances: Vec::new(),
            tenants_replaced: 0,
        };
        tenure.read_memory(server, now_us);
        tenure.apply(&settings);
        if settings.remembers_keys() {
            tenure.divide_anew();
        }
        Ok(tenure)
    }

    /// The number of what the worker made that is in force.
    pub fn published_version(&self) -> u64 {
        self.news.version
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes changed settings. Other tenants start the models over.
    pub fn take_settings(&mut self, version: u64, settings: Settings) {
        self.settings_version = version;
        let others = !settings.tenants.divides_as(&self.settings.tenants)
            || settings.delimiter() != self.settings.delimiter()
            || settings.classes != self.settings.classes
            || settings.remembers_keys() != self.settings.remembers_keys()
            || settings.modelling() != self.settings.modelling()
            || settings.remembers() != self.settings.remembers()
            || settings.keeps_compact_entries() != self.settings.keeps_compact_entries()
            || settings.key_table_bytes != self.settings.key_table_bytes
            || settings.bins() != self.settings.bins();
        self.apply(&settings);
        self.settings = settings;
        if others {
            self.divide_anew();
        }
    }

    /// Divides the keys as the settings say, and starts over: what was learned of other partitions is of no use.
    fn divide_anew(&mut self) {
        let settings = &self.settings;
        let table = settings.remembers_keys().then(|| self.key_table());
        let partitions = &mut self.observer.partitions;
        let classes = std::mem::take(&mut partitions.classes);
        let mean_the_same = classes.mean_the_same(&settings.classes);
        let (keys, are_kept) = std::mem::take(&mut partitions.keys).renewed(table, settings.remembers(), mean_the_same);
        let classes = classes.renewed(settings.classes.clone(), are_kept);
        let tenants = Tenants::with_delimiter(&settings.tenants, settings.delimiter());
        let owners = self.observer.partitions.owners.take();
        self.observer.set_partitions(Partitions::new(tenants, classes, keys, owners, settings.bins()));
        self.observer.sizes().forget_partitions();
        self.appearances.clear();
        self.usage = Usage::new();
        self.walk = Walk::default();
        self.evictor = Evictor::new(age_step(self.settings.window_requests as u64));
        self.times.ticked_at_us = 0;
    }

    /// The table of keys that there should be.
    fn key_table(&self) -> Table {
        let bytes = match (self.settings.key_table_bytes as u64, self.memory.limit_bytes) {
            (0, 0) => KEY_TABLE_BYTES_UNLIMITED,
            (0, limit) => (limit / KEY_TABLE_SHARE).clamp(KEY_TABLE_BYTES_MIN, KEY_TABLE_BYTES_MAX),
            (set, _) => set.max(KEY_TABLE_BYTES_MIN),
        };
        Table { bytes, has_compact_entries: self.settings.keeps_compact_entries() }
    }

    /// A limit that has grown fourfold deserves a larger table of keys, and one that is a quarter can't afford it,
    /// where no class is lost.
    pub fn is_key_table_outgrown(&self) -> bool {
        let wanted = self.key_table().bytes;
        let may_forget = self.settings.remembers() == Remembers::History;
        let held = self.observer.partitions.keys.table.as_ref().map(KeyTable::memory_bytes);
        held.is_some_and(|held| wanted >= 4 * held || (may_forget && held >= 4 * wanted))
    }

    /// Makes one that fits. Where the table doesn't say whose a key is, what was planned stays.
    pub fn fit_key_table(&mut self) {
        match self.observer.partitions.classes.is_on() {
            true => self.divide_anew(),
            false => self.observer.partitions.keys.table = Some(self.key_table().new_keys()),
        }
        self.pressure.own.forget();
    }

    fn apply(&mut self, settings: &Settings) {
        self.observer.misses.penalty_us_max = settings.penalty_max_ms as u64 * 1000;
        self.memory.stale = true;
        self.pressure.may_be_short = true;
    }

    /// The server's configuration changed: what depends on it is read again at the end of this turn.
    pub fn server_may_have_changed(&mut self) {
        self.memory.stale = true;
    }

    /// A key came or went.
    pub fn on_key_event(&mut self, server: &mut Server, db: u16, event: &CStr, name: &ScannedName) {
        let key = name.as_ref();
        match event.to_bytes() {
            b"new" if self.observer.served.arrivals.have(key) => self.count_arrival(db, key, 1),
            b"new" => self.on_new_key(server, db, name),
            b"del" | b"rename_from" | b"move_from" => self.on_gone(db, key, Cause::Deleted),
            b"expired" => self.on_gone(db, key, Cause::Expired),
            b"evicted" => self.on_gone(db, key, Cause::Evicted),
            _ => {}
        }
    }

    fn on_gone(&mut self, db: u16, key: &[u8], cause: Cause) {
        if self.observer.served.arrivals.have(key) {
            return self.count_arrival(db, key, -1);
        }
        let partition = self.observer.partitions.of(db, key);
        self.observer.on_gone(db, key, cause);
        self.usage.went(db, partition, &self.observer.known());
    }

    /// A key came into being: it is accounted for, and may be the next to go.
    fn on_new_key(&mut self, server: &mut Server, db: u16, name: &ScannedName) {
        let key = name.as_ref();
        let partition = self.observer.on_new_key(db, key, now_us);
        let size_bytes = self.look_at_new_key(server, partition, name);
        self.usage.came(db, partition, size_bytes, &self.observer.known());
        if self.pressure.status != EvictionStatus::Ready {
            return;
        }
        if self.settings.policy.goes_by_age() {
            self.note_newcomer((db, partition), name, size_bytes);
        } else if self.settings.policy == Policy::Density {
            self.offer_new_key(server, (db, partition), name);
        }
    }

    fn count_arrival(&mut self, db: u16, key: &[u8], change: i64) {
        let partition = self.observer.partitions.of(db, key);
        self.observer.served.arrivals.count(key, (db, partition), change);
    }

    /// Slots are on their way here, or have come: then their keys are, of sizes not known.
    pub fn on_arrival(&mut self, arrival: Arrival) {
        let Some((slots, came)) = self.observer.served.arrivals.take(arrival) else { return };
        if let Some(own) = &mut self.observer.served.own {
            own.add_all(&slots);
        }
        let known = self.observer.known();
        came.into_iter().for_each(|((db, partition), keys)| self.usage.arrived(db, partition, keys, &known));
    }

    /// The data set as a whole has changed, or is about to.
    pub fn on_data_change(&mut self, change: DataChange) {
        self.forget_account(change);
        let slow_collections = &mut self.observer.partitions.keys.slow_collections;
        match change {
            DataChange::Emptied(db) => slow_collections.forget(db),
            DataChange::Loaded | DataChange::Replaced => slow_collections.forget(None),
            DataChange::Swapped(one, other) => {
                [one, other].into_iter().for_each(|db| slow_collections.forget(Some(db)))
            }
            DataChange::OtherRole => {}
        }
        self.server_may_have_changed();
    }

    /// Keys that went without an event are in no account any more; those that came so are, as the walk meets them.
    fn forget_account(&mut self, change: DataChange) {
        let mut forget = |db: Option<u16>| {
            self.usage.forget(db);
            self.walk.start_over(db);
        };
        match change {
            DataChange::Emptied(db) => forget(db),
            DataChange::Swapped(one, other) => [one, other].into_iter().for_each(|db| forget(Some(db))),
            DataChange::Replaced => forget(None),
            DataChange::Loaded | DataChange::OtherRole => {}
        }
    }

    /// The first keys of a partition tell their size at once, and all where it tells their bin; a collection is still
    /// empty then.
    fn look_at_new_key(&mut self, server: &mut Server, partition: PartitionId, name: &ScannedName) -> Option<u32> {
        let are_many = self.observer.partitions.binning.of(partition).are_many();
        let sizes = self.observer.sizes();
        let are_unmet = sizes.are_unmet(partition);
        if !are_unmet && !are_many {
            return None;
        }
        let opened = server.open(name);
        if opened.kind() != Kind::String {
            return None;
        }
        let size_bytes = sizes.of(partition, name, || KeyHash::of(name.as_ref()), &opened);
        if are_unmet {
            sizes.met(partition, size_bytes);
        }
        Some(size_bytes)
    }

    /// A key of a bin that the walk rarely meets is noted by its name.
    fn note_newcomer(&mut self, (db, partition): (u16, PartitionId), name: &ScannedName, size_bytes: Option<u32>) {
        let binning = &self.observer.partitions.binning;
        let bin = match size_bytes {
            Some(size_bytes) => binning.bin_of(partition, size_bytes),
            None => binning.of(partition).of_class(0),
        };
        let (keys, all_keys) = self.usage.keys_in(db, partition);
        let keys = keys * self.usage.key_share(binning, bin);
        let note = || Newcomer { name: name.keep(), db, since_us: now_us() };
        self.evictor.newcomers.came(bin, (keys, all_keys), self.memory.limit_bytes, note);
    }

    /// A newcomer that is worth less than what was met goes before it. It was met without a search, too.
    fn offer_new_key(&mut self, server: &mut Server, (db, partition): (u16, PartitionId), name: &ScannedName) {
        self.observer.partitions.keys.settle();
        let binning = &self.observer.partitions.binning;
        // Under this policy partitions are undivided.
        let bin = binning.of(partition).of_class(0).in_pools();
        if !self.observer.partitions.above_minimums(self.usage.bytes_by_bin()).holds(bin) {
            return;
        }
        let basis = self.ranking_basis();
        let (partitions, sizes, costs) = self.observer.guides();
        let ranks = Ranks::new(basis, &self.published.learned.table, costs);
        let opened = server.open(name);
        let hash = in_database(KeyHash::of(name.as_ref()), db);
        let size_bytes = sizes.of(partition, name, || hash, &opened);
        let entry = partitions.keys.entry(hash);
        let subject = ranks::subject(&ranks, entry.as_ref(), partition, size_bytes, &opened);
        drop(opened);
        self.evictor.offer(partition, &ranks, &subject, entry.as_ref(), (name, db));
    }

    /// The end of a turn: bounded work, see the file's opening.
    pub fn end_turn(&mut self, server: &mut Server, now_us: u64) {
        assert!(!self.faults.panic_please, "asked to by TENURE.DEBUG");
        self.observer.sampler.rate = self.worker.shared.rate();
        let dropped = self.observer.end_turn(server, now_us);
        self.end_slice(server, now_us);
        if dropped > 0 {
            self.worker.shared.dropped.fetch_add(dropped, std::sync::atomic::Ordering::Relaxed);
        }
        if self.memory.stale || now_us >= self.memory.read_at_us + MEMORY_EVERY_US {
            self.read_memory(server, now_us);
        }
        if let Some(published) = self.worker.shared.news(&mut self.news.version) {
            if published.plan.as_ref().map(|p| &p.target_bytes) != self.published.plan.as_ref().map(|p| &p.target_bytes)
            {
                self.evictor.forget_victims();
            }
            if published.learned.ranking != self.published.learned.ranking {
                self.evictor.forget_victims();
            }
            if published.epoch == self.observer.epoch() {
                self.observer.partitions.binning.set_limits(&published.limits);
            }
            self.published = published;
            self.news.at_us = now_us;
            let penalties_us = self.penalties_us();
            let noise = self.observer.partitions.keys.noise;
            self.observer.misses.costs.take(penalties_us, self.observer.misses.delays, &noise);
            self.observer.misses.costs.weight = self.observer.partitions.weights();
        }
        self.follow_sample_size(server);
    }

    /// Frees what the next turn may need.
    pub fn relieve_if_short(&mut self, server: &mut Server, now_us: u64) {
        if self.pressure.may_be_short {
            self.relieve(server, now_us, When::BeforeReplies);
        }
    }

    /// True where it is time for [`Tenure::tick`].
    pub fn is_tick(&self, now_us: u64) -> bool {
        now_us >= self.times.ticked_at_us + TICK_US
    }

    /// Memory may be short before the next tick sees it: the end of this turn looks.
    pub fn expect_shortage(&mut self) {
        self.pressure.may_be_short = true;
    }

    /// True where any feature wants anything of this.
    pub fn features_want(&self, wants: Wants) -> bool {
        self.watching.wanted.has(wants)
    }

    /// Features want other things to be heard than before.
    pub fn heed(&mut self, server: &mut Server, wants: Wants) {
        self.watching.wanted = wants;
        let sampled = self.observer.sampler.kept.take();
        self.observer.sampler.kept = wants.has(Wants::SAMPLES).then(|| sampled.unwrap_or_default());
        let wanted = if wants.has(Wants::OBSERVED) { Watched::All } else { self.observer.coverage.watched() };
        self.watch(server, wanted);
    }

    /// What is to be seen of commands from now on. The filter stays for features too.
    fn watch(&mut self, server: &mut Server, wanted: Watched) {
        if filtering::watch(server, wanted != Watched::Nothing || self.watching.wanted.has(Wants::COMMANDS)) {
            self.observer.watch(wanted, self.watching.slices.are_on());
        }
    }

    /// Frees memory: where the next turn may need it, at once, and else when the event loop is idle, so that no reply
    /// waits for it.
    pub fn relieve(&mut self, server: &mut Server, now_us: u64, when: When) {
        let limit_bytes = self.memory.limit_bytes;
        let used_bytes = self.used_bytes(server);
        if when == When::BeforeReplies {
            self.pressure.growth.turn(used_bytes);
        }
        // Most turns end here: the rest is asked only where something may have to go.
        self.pressure.has_room = !self.pressure.has_maximum && used_bytes + self.headroom_bytes() <= limit_bytes;
        if self.pressure.has_room {
            self.pressure.short_since_us = None;
            return;
        }
        let status = self.status_by_plan(now_us);
        let planned = status == EvictionStatus::Ready;
        if !planned {
            self.pressure.status = status;
        }
        // A maximum holds without a plan too, and without a limit.
        let may_hold_maximums = self.memory.policy != "noeviction"
            && matches!(
                status,
                EvictionStatus::NoPlan | EvictionStatus::StalePlan | EvictionStatus::NoLimit | EvictionStatus::ByServer
            );
        if !planned && !may_hold_maximums {
            return;
        }
        let free_bytes = if planned { self.bytes_to_free(server, used_bytes) } else { 0 };
        let published = Arc::clone(&self.published);
        let plan = published.plan.as_ref().filter(|_| planned && self.settings.policy.has_targets());
        let target_bytes = plan.map_or(&[][..], |plan| &plan.target_bytes);
        let held = self.held_targets(target_bytes);
        let target_bytes = held.as_deref().unwrap_or(target_bytes);
        let partitions = &self.observer.partitions;
        let maximums = partitions.maximums(self.usage.bytes_by_bin(), target_bytes);
        if free_bytes == 0 && maximums.is_none() {
            self.pressure.short_since_us = None;
            return;
        }
        let state = status_by_state(server);
        if planned || state != EvictionStatus::Ready {
            self.pressure.status = state;
        }
        if state != EvictionStatus::Ready {
            return;
        }
        let short_since_us = *self.pressure.short_since_us.get_or_insert(now_us);
        let is_urgent = used_bytes as f64 + self.pressure.growth.peak_bytes > limit_bytes as f64;
        let rests = now_us < self.pressure.rests_until_us;
        if when == When::BeforeReplies && !is_urgent {
            if rests {
                return;
            }
            if now_us <= short_since_us + IDLE_WAIT_US {
                return soon::call_soon(server);
            }
        }
        let need = Need { free_bytes, target_bytes, bytes_max: maximums.as_deref(), is_urgent };
        self.evict_some(server, now_us, when, &published, &need);
    }

    /// A slice of eviction. By itself, so that a profile shows what it takes: `scripts/instructions` counts it.
    #[inline(never)]
    fn evict_some(&mut self, server: &mut Server, now_us: u64, when: When, published: &Published, need: &Need) {
        let budget_us = match when {
            When::BeforeReplies => self.settings.turn_budget_us,
            When::Idle => self.settings.turn_budget_us.min(IDLE_BUDGET_US),
        };
        self.need_key_counts(server);
        let sample_sizes = if self.sample_sizes().is_empty() { &[][..] } else { &published.sample_sizes };
        let bytes_max = need.bytes_max.unwrap_or(&UNBOUNDED[..self.observer.partitions.binning.len()]);
        let (sample_size, basis) = (self.sample_size(when) as usize, self.ranking_basis());
        let rival = self.settings.policy.rival();
        let (partitions, sizes, costs) = self.observer.guides();
        partitions.keys.settle();
        let orders = Orders {
            free_bytes: need.free_bytes,
            target_bytes: need.target_bytes,
            bytes_max,
            sample_size,
            sample_sizes,
            keeps_to_samples: rival.is_some_and(Rival::keeps_to_samples),
            scoring: match self.settings.policy {
                Policy::Density => Scoring::Ranked(Ranks::new(basis, &published.learned.table, costs)),
                _ => rival.and_then(Rival::scorer).map_or(Scoring::Idle, Scoring::Scored),
            },
            penalty_us: &costs.penalty_us,
            volatile_only: self.memory.policy.starts_with("volatile"),
            db_sizes: &self.databases.sizes,
            budget: Duration::from_micros(budget_us as u64),
            evicted_min: if when == When::BeforeReplies && need.is_urgent { EVICTED_MIN } else { 0 },
            now_us,
        };
        let by_size = self.settings.policy == Policy::Density || rival.is_some_and(Rival::goes_by_size);
        let sizes_of = if by_size { SizesOf::All } else { SizesOf::Account };
        let mut guides = Guides { partitions, sizes, usage: &mut self.usage, sizes_of };
        let visited = self.walk.visited;
        let (evictor, walk) = (&mut self.evictor, &mut self.walk);
        let evicted =
            server.telling_of_unlinks(|server, unlinks| evictor.relieve(server, unlinks, walk, &mut guides, &orders));
        self.pressure.short_since_us = None;
        self.memory.nothing_expires &= evicted == 0;
        if evicted == 0 {
            // Nothing may go now, or none of those that may was met yet: asking again at once would keep the event
            // loop from sleeping.
            self.pressure.rests_until_us = now_us + if self.walk.visited > visited { WALK_REST_US } else { TICK_US };
        }
        self.pressure.growth.last_used_bytes = Some(self.used_bytes(server));
    }

    /// How many bytes of keys have to go. Where clients have a limit of their own, keys make no room for their buffers
    /// while memory isn't above its limit, nor for those that the server is about to close. That costs a call.
    fn bytes_to_free(&self, server: &mut Server, used_bytes: u64) -> u64 {
        let limit_bytes = self.memory.limit_bytes;
        let keys_limit_bytes = limit_bytes - self.headroom_bytes();
        let clients_bytes = match self.memory.clients_limit_bytes {
            0 => None,
            _ => server.info_field(b"memory", "mem_clients_normal").and_then(|bytes| bytes.parse::<u64>().ok()),
        };
        let Some(clients_bytes) = clients_bytes else { return used_bytes.saturating_sub(keys_limit_bytes) };
        let to_be_closed = clients_bytes.saturating_sub(self.memory.clients_limit_bytes);
        let above_limit = used_bytes.saturating_sub(to_be_closed).saturating_sub(limit_bytes);
        above_limit.max(used_bytes.saturating_sub(clients_bytes).saturating_sub(keys_limit_bytes))
    }

    /// What the ranks of keys go by at this moment, under Tenure's own policy.
    fn ranking_basis(&self) -> Basis {
        Basis {
            ranking: self.ranking(),
            clock: self.observer.partitions.keys.accesses.clock(),
            idle_is_time: !self.memory.policy.ends_with("-lfu"),
            sees_part: self.watching.slices.are_on(),
        }
    }

    /// The ranking in force under Tenure's own policy: before the first window GDSF.
    pub fn ranking(&self) -> Ranking {
        self.current().and_then(|published| published.learned.ranking).unwrap_or(Ranking::Greedy)
    }

    /// What the worker last made, where it is about the partitions in force.
    pub fn current(&self) -> Option<&Published> {
        Some(&*self.published).filter(|published| published.epoch == self.observer.epoch())
    }

    /// What the worker last knew of a partition; `None` where that was another tenant's.
    pub fn view(&self, partition: usize) -> Option<&PartitionView> {
        let generation = self.observer.partitions.generations().get(partition)?;
        self.current()?.partitions.get(partition).filter(|view| view.generation == *generation)
    }

    /// Keys sampled per eviction by bin, as planned; empty where they are as set.
    fn sample_sizes(&self) -> &[u32] {
        let current = self.current().filter(|_| self.settings.policy.rival().is_some_and(Rival::plans_sample_sizes));
        current.map_or(&[], |published| &published.sample_sizes)
    }

    /// Keys sampled per eviction, whoever gives: as set, or as chosen; fewer where replies wait on a busy main thread.
    fn sample_size(&self, when: When) -> u32 {
        let are_waiting = when == When::BeforeReplies;
        let set = match self.settings.policy {
            Policy::Density => return self.pressure.load.samples(self.settings.density_samples as u32, are_waiting),
            _ => self.settings.samples,
        };
        self.chosen_sample_size().unwrap_or(set as u32)
    }

    /// The K that the worker chose for the whole cache.
    fn chosen_sample_size(&self) -> Option<u32> {
        let chooses = self.settings.policy.rival().is_some_and(Rival::chooses_sample_size);
        self.current()?.choice.sample_size.filter(|_| chooses)
    }

    /// Keys sampled per eviction of a bin, where no reply waits.
    pub fn sample_size_of(&self, bin: BinId) -> u32 {
        self.sample_sizes().get(bin.index()).copied().unwrap_or_else(|| self.sample_size(When::Idle))
    }

    /// Target bytes by bin; empty without a plan.
    pub fn target_bytes(&self) -> &[u64] {
        let plan = self.current().and_then(|published| published.plan.as_ref());
        plan.map_or(&[], |plan| &plan.target_bytes)
    }

    /// Mean miss penalty by partition, in µs; 1 where none is known.
    fn penalties_us(&self) -> [f32; PARTITIONS_MAX] {
        let mut penalties_us = [1.0; PARTITIONS_MAX];
        let views = self.current().map_or(&[][..], |published| &published.partitions);
        let measured = views.iter().map(|view| view.penalty_us_mean as f32);
        penalties_us.iter_mut().zip(measured).filter(|(_, us)| *us > 0.0).for_each(|(slot, us)| *slot = us);
        penalties_us
    }

    /// What stands against evicting that costs nothing to know.
    fn status_by_plan(&self, now_us: u64) -> EvictionStatus {
        let stale_us = (STALE_WINDOWS * self.settings.window_seconds as u64 * 1_000_000).max(STALE_US_MIN);
        let planned = self.current().is_some_and(|published| published.plan.is_some());
        if self.settings.policy == Policy::Off {
            EvictionStatus::PolicyOff
        } else if self.memory.policy == "noeviction" && self.memory.limit_bytes > 0 {
            EvictionStatus::NoEviction
        } else if self.memory.limit_bytes == 0 {
            EvictionStatus::NoLimit
        } else if self.memory.is_importing {
            EvictionStatus::Importing
        } else if self.server_evicts() {
            EvictionStatus::ByServer
        } else if self.faults.worker_died && self.settings.policy.learns() {
            EvictionStatus::NoWorker
        } else if !self.settings.policy.has_targets() {
            EvictionStatus::Ready
        } else if !planned {
            EvictionStatus::NoPlan
        } else if now_us > self.news.at_us + stale_us {
            EvictionStatus::StalePlan
        } else {
            EvictionStatus::Ready
        }
    }

    /// True where only the sampling size is Tenure's business.
    fn server_evicts(&self) -> bool {
        let rival = self.settings.policy.rival();
        rival.is_some_and(|rival| rival.leaves_eviction(self.settings.dlru_evictor))
            && self.memory.policy.ends_with("-lru")
    }

    /// How far below the limit memory is kept, in bytes.
    pub fn headroom_bytes(&self) -> u64 {
        if self.server_evicts() {
            return 0;
        }
        match self.settings.headroom_bytes as u64 {
            0 => {
                let limit_bytes = self.memory.limit_bytes;
                self.pressure.growth.headroom_bytes(limit_bytes) + self.pressure.own.reserve_bytes(limit_bytes)
            }
            set => set.min(self.memory.limit_bytes / 2),
        }
    }

    /// Ten times a second: key counts and mean sizes.
    pub fn tick(&mut self, server: &mut Server, now_us: u64) {
        self.times.ticked_at_us = now_us;
        self.pressure.own.tick();
        self.look_after_worker(server);
        if self.observer.commands.is_stale {
            if let Ok(commands) = read_command_table(server) {
                self.observer.commands.renew(commands);
            }
            self.observer.commands.is_stale = false;
        }
        self.pressure.load.look(now_us, thread_cpu_us());
        self.count_keys(server);
        let dbs: Vec<u16> = self.databases.sizes.iter().map(|(db, _)| *db).collect();
        self.observer.set_dbs_in_use(&dbs);
        let moved = std::mem::take(&mut self.observer.partitions.keys.moved);
        self.usage.moved(moved);
        self.census(server);
        let (partitions, sizes, _) = self.observer.guides();
        self.usage.settle(&self.databases.sizes, partitions, sizes);
    }

    /// The same, after what features do: how much is watched, and a snapshot for the worker.
    pub fn end_tick(&mut self, server: &mut Server, now_us: u64) {
        self.fit_minimums(server);
        self.watch_or_pause(server, now_us);
        self.leave_snapshot(server);
    }

    /// Counts keys where the first have come since the last tick.
    pub fn need_key_counts(&mut self, server: &mut Server) {
        if self.databases.sizes.is_empty() {
            self.count_keys(server);
        }
    }

    /// Asks which databases hold keys, and how many.
    pub fn count_keys(&mut self, server: &mut Server) {
        self.databases.sizes.clear();
        for db in 0..self.databases.count {
            if server.select_db(db) {
                let keys = server.db_size();
                if keys > 0 {
                    self.observer.partitions.of(db, b"");
                    self.databases.sizes.push((db, keys));
                }
            }
        }
    }

    /// Where nothing can be short of memory soon, turns don't look, and a fast stream is watched in part.
    fn watch_or_pause(&mut self, server: &mut Server, now_us: u64) {
        self.pressure.has_maximum = self.observer.partitions.tenants().bytes_max().iter().any(|&max| max < u64::MAX);
        let used_bytes = self.used_bytes(server);
        self.look_at_room(now_us, used_bytes);
        self.pressure.may_be_short = self.pressure.has_maximum || self.is_near_limit(used_bytes);
        let is_clock_wanted = self.watching.wanted.has(Wants::WRITES_OBSERVED)
            || (self.pressure.may_be_short && self.settings.policy == Policy::Density);
        let accesses = &mut self.observer.partitions.keys.accesses;
        accesses.turn(is_clock_wanted);
        accesses.pace(now_us);
        self.pressure.status = match self.status_by_plan(now_us) {
            EvictionStatus::Ready => status_by_state(server),
            other => other,
        };
        let enough_per_second = self.settings.watched_per_second as u64;
        let may_pause = !self.pressure.may_be_short && !self.watching.wanted.has(Wants::OBSERVED);
        let unwatched =
            if self.watching.wanted.has(Wants::WRITES_OBSERVED) { Watched::Writes } else { Watched::Nothing };
        let wanted = self.watching.duty.decide(
            now_us,
            self.observer.requests(),
            may_pause.then_some(unwatched),
            enough_per_second,
        );
        let is_busy = 100.0 * self.pressure.load.share() >= self.settings.watch_busy_percent as f64;
        let may_slice = is_busy && self.may_slice();
        self.watching.slices.allow(may_slice, self.settings.watch_percent as f64 / 100.0);
        if !self.watching.slices.is_pausing() {
            self.watch(server, wanted);
        }
    }

    /// Where keys go by rank, misses and new keys that the server tells of and the ages that it keeps will do for a
    /// while; where others need each command, they won't.
    fn may_slice(&self) -> bool {
        let others_need = Wants::OBSERVED | Wants::WRITES_OBSERVED | Wants::NEW_KEYS | Wants::ANY_COMMAND;
        self.pressure.may_be_short
            && self.settings.policy == Policy::Density
            && self.pressure.status == EvictionStatus::Ready
            && self.observer.partitions.owners.is_none()
            && !self.watching.wanted.has(others_need)
    }

    /// A turn has ended: while the main thread is busy, whether the next is watched.
    fn end_slice(&mut self, server: &mut Server, now_us: u64) {
        let seen = self.observer.partitions.keys.accesses.now() * REQUESTS_PER_TICK;
        if let Some(is_watched) = self.watching.slices.turn(now_us, seen, thread_cpu_us) {
            self.watch(server, if is_watched { Watched::All } else { Watched::Nothing });
        }
    }

    fn look_at_room(&mut self, now_us: u64, used_bytes: u64) {
        let begins_at_bytes = self.memory.limit_bytes.saturating_sub(self.headroom_bytes());
        self.pressure.room.look(now_us, used_bytes, begins_at_bytes);
        self.pressure.room.data_bytes = self.usage.bytes().iter().sum();
        self.pressure.room.tenure_bytes = alloc::allocated_bytes() as u64;
    }

    /// What the server counts against its limit, in bytes; 0 without a limit.
    pub fn used_bytes(&self, server: &mut Server) -> u64 {
        (server.used_memory_ratio() * self.memory.limit_bytes as f64) as u64
    }

    /// From half of the limit on, decisions depend on what is watched.
    fn is_near_limit(&self, used_bytes: u64) -> bool {
        self.memory.limit_bytes > 0 && used_bytes >= self.memory.limit_bytes / 2
    }

    /// Without its worker Tenure only watches: says so once.
    fn look_after_worker(&mut self, server: &mut Server) {
        if !self.faults.worker_died && !self.worker.is_alive() {
            self.faults.worker_died = true;
            let why = crate::ffi::guard::last_panic();
            let text = format!("Tenure only watches now, the server evicts as stock: the worker has died: panic {why}");
            server.log(Level::Warning, &text);
        }
    }

    /// Visits a few keys, so that mean sizes and shares are known where nothing is evicted.
    fn census(&mut self, server: &mut Server) {
        self.usage.written(self.observer.writes_of_divided());
        let may_take_time = self.usage.is_counted() && !self.usage.is_outdated();
        let wanted = if may_take_time { self.keys_for_a_round() } else { CENSUS_KEYS_MAX };
        let goal = self.times.visited + wanted;
        let (partitions, sizes, _) = self.observer.guides();
        sizes.refresh_some();
        let is_rough: Vec<bool> = (0..PARTITIONS_MAX).map(|i| sizes.is_rough(PartitionId(i as u16))).collect();
        let mut guides = Guides { partitions, sizes, usage: &mut self.usage, sizes_of: SizesOf::Account };
        let is_due = (self.times.ticked_at_us / TICK_US).is_multiple_of(CALIBRATED_EVERY);
        let now_and_then = if is_due { CALIBRATED_KEYS } else { 0 };
        let mut kept: Vec<(Text, usize, PartitionId, u16)> = Vec::new();
        let dbs = self.databases.sizes.len();
        for step in 0..CENSUS_STEPS.max(2 * wanted as usize) {
            if dbs == 0 || (self.walk.visited >= goal && kept.len() >= now_and_then) {
                break;
            }
            let (db, _) = self.databases.sizes[step % dbs];
            self.walk.step(server, db, &mut guides, |visit, _| {
                let is_rough = is_rough[visit.partition.index()];
                let wanted = if is_rough { CALIBRATED_KEYS_AT_FIRST } else { now_and_then };
                if kept.len() < wanted && visit.key.kind() == Kind::String && visit.key.length() < LARGE_BYTES {
                    kept.push((visit.name.keep(), visit.key.length(), visit.partition, visit.db));
                }
            });
        }
        for (name, length, partition, db) in kept {
            server.select_db(db);
            self.observer.sizes().calibrate(server, partition, name.as_ref(), length);
        }
        self.times.visited = self.walk.visited;
    }

    /// Keys per tick with which the walk comes round in a minute, within limits.
    fn keys_for_a_round(&self) -> u64 {
        (self.all_keys() * TICK_US / ROUND_US).clamp(CENSUS_KEYS_MIN, CENSUS_KEYS_MAX)
    }

    /// Keys of all databases, as of the last tick.
    pub fn all_keys(&self) -> u64 {
        self.databases.sizes.iter().map(|(_, keys)| keys).sum()
    }

    fn leave_snapshot(&mut self, server: &mut Server) {
        let limit_bytes = self.memory.limit_bytes;
        let items: u64 = self.usage.bytes().iter().sum();
        let used_bytes = self.used_bytes(server);
        let room_bytes = limit_bytes.saturating_sub(self.headroom_bytes()) as i64 - used_bytes as i64;
        let capacity_bytes = if limit_bytes == 0 { 0 } else { (items as i64 + room_bytes).max(1) as u64 };
        let partitions = &self.observer.partitions;
        let is_a_share = self.settings.key_table_bytes == 0;
        let key_table = partitions.keys.table.as_ref().filter(|_| is_a_share);
        let key_table_bytes = key_table.map_or(0, KeyTable::memory_bytes);
        self.worker.shared.leave(Snapshot {
            epoch: self.observer.epoch(),
            counters: self.observer.counters.to_vec(),
            tenant_of: partitions.of_what().iter().map(|(tenant, _)| *tenant).collect(),
            bins: partitions.binning.all().to_vec(),
            generations: partitions.generations().to_vec(),
            tenants: TenantTerms {
                bytes_min: partitions.tenants().guaranteed().to_vec(),
                bytes_max: partitions.tenants().bytes_max().to_vec(),
                weights: partitions.tenants().weights().to_vec(),
            },
            memory_bytes: limit_bytes,
            capacity_bytes,
            keys: self.usage.keys()[..partitions.len()].iter().map(|&keys| keys as u64).collect(),
            evictions: (self.evictor.work.evicted.iter().sum(), self.evictor.work.spent_us),
            fast: self.memory.fast_to_divide,
            key_table_bytes,
            is_watching: self.observer.coverage.watched() == Watched::All || self.watching.slices.is_pausing(),
            are_accesses_noted: partitions.keys.accesses.is_on(),
            is_replica: server.flags().is_replica(),
            instructions: self.instructions(used_bytes),
        });
    }

    /// The worker's settings; while memory is far from its limit little depends on the curves, and watching costs a
    /// quarter.
    fn instructions(&self, used_bytes: u64) -> Instructions {
        let instructions = self.settings.instructions();
        let share = if self.is_near_limit(used_bytes) { 1 } else { 4 };
        Instructions { samples_per_second: instructions.samples_per_second / share, ..instructions }
    }

    /// Asks for the limit and the policy.
    fn read_memory(&mut self, server: &mut Server, now_us: u64) {
        self.memory.read_at_us = now_us;
        self.pressure.may_be_short |= self.memory.stale;
        self.memory.stale = false;
        let Some(reply) = server.call(c"INFO", &[b"memory", b"stats", b"keyspace"]) else { return };
        let Some(text) = reply.text() else { return };
        let n_commands = self.memory.n_commands;
        let mut expire = false;
        self.pressure.room.buffers_bytes = 0;
        for line in text.lines() {
            match line.split_once(':') {
                Some(("maxmemory", value)) => self.memory.limit_bytes = value.parse().unwrap_or(0),
                Some(("maxmemory_policy", value)) => value.clone_into(&mut self.memory.policy),
                Some(("evicted_keys", value)) => self.memory.evicted_by_server = value.parse().unwrap_or(0),
                Some(("total_commands_processed", value)) => self.memory.n_commands = value.parse().unwrap_or(0),
                Some((name, value)) if room::BUFFERS.contains(&name) => {
                    self.pressure.room.buffers_bytes += value.parse().unwrap_or(0);
                }
                Some((db, value)) if db.starts_with("db") => {
                    expire |= value.split(',').any(|field| field.starts_with("expires=") && field != "expires=0");
                }
                _ => {}
            }
        }
        let clients_limit = server.setting("maxmemory-clients").unwrap_or_default();
        self.memory.clients_limit_bytes = clients_limit_bytes(&clients_limit, self.memory.limit_bytes);
        // Servers before Valkey 8.1 have none.
        self.memory.is_importing = server.setting("import-mode").is_some_and(|set| set == "yes");
        self.memory.nothing_expires = self.memory.policy.starts_with("volatile") && !expire;
        // No event tells of CONFIG RESETSTAT, but it alone makes this smaller.
        if self.memory.n_commands < n_commands {
            self.forget_longest_times();
        }
    }

    /// True once after it: features have longest times too.
    pub fn take_stats_reset(&mut self) -> bool {
        std::mem::take(&mut self.memory.stats_were_reset)
    }

    /// `CONFIG RESETSTAT`: what was longest so far is measured anew; counters go on.
    fn forget_longest_times(&mut self) {
        self.evictor.work.slice_us_max = 0;
        self.memory.stats_were_reset = true;
    }

    /// Whether Tenure evicts, as shown: ready only where there is something that may go.
    pub fn status_shown(&self) -> EvictionStatus {
        match self.pressure.status {
            EvictionStatus::Ready if self.memory.nothing_expires => EvictionStatus::NothingExpires,
            status => status,
        }
    }

    /// A key is of `class` from now on, also while it is in the cache.
    pub fn hint_key(&mut self, server: &mut Server, db: u16, key: &[u8], class: Class) {
        let (hash, now) = (in_database(KeyHash::of(key), db), tick(now_us()));
        let moved = self.observer.partitions.keys.moved;
        server.select_db(db);
        let is_there = server.open(&server.text(key)).kind() != Kind::Absent;
        let accounted = self.reassign(db, key, is_there, |partitions| partitions.keys.set_class(hash, class, now));
        if accounted {
            self.observer.partitions.keys.moved = moved;
        }
    }

    /// Changes what a key's partition is told by, and the account with it. True where the key was moved there.
    pub fn reassign(&mut self, db: u16, key: &[u8], is_there: bool, change: impl FnOnce(&mut Partitions)) -> bool {
        let partitions = &mut self.observer.partitions;
        let before = partitions.of(db, key);
        change(partitions);
        let after = partitions.of(db, key);
        let is_moved = is_there && before != after;
        if is_moved {
            self.usage.changed(db, before, after, &self.observer.known());
        }
        is_moved
    }

    /// Seconds since this state was made.
    pub fn uptime_seconds(&self) -> u64 {
        (now_us() - self.times.started_at_us) / 1_000_000
    }

    /// Keys that the walk has visited.
    pub fn visited_keys(&self) -> u64 {
        self.walk.visited
    }
}

/// What stands against evicting that the server has to be asked for.
fn status_by_state(server: &mut Server) -> EvictionStatus {
    let flags = server.flags();
    if flags.is_replica() {
        EvictionStatus::Replica
    } else if flags.is_loading() {
        EvictionStatus::Loading
    } else if server.writes_are_paused() {
        EvictionStatus::Paused
    } else {
        EvictionStatus::Ready
    }
}

/// `maxmemory-clients` in bytes, which may be set as a share of the limit.
fn clients_limit_bytes(set: &str, limit_bytes: u64) -> u64 {
    match set.strip_suffix('%') {
        Some(percent) => limit_bytes / 100 * percent.parse().unwrap_or(0),
        None => set.parse().unwrap_or(0),
    }
}

fn read_command_table(server: &mut Server) -> Result<CommandTable, String> {
    let reply = server.call(c"COMMAND", &[]).ok_or("the server doesn't answer COMMAND")?;
    CommandTable::from_reply(&reply).ok_or_else(|| "the server's COMMAND reply has no key specifications".to_owned())
}
