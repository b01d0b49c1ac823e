//! Tenure's state on the main thread, and what happens at the end of each turn of the event loop: look at what was
//! sampled, take a new plan, free memory, and, ten times a second, settle the accounts.

pub mod appearing;
mod census;
mod held;
mod key_events;
mod memory;
pub mod minimums;
mod news;
mod pressure;
pub mod room;
mod samples;
mod snapshot;
mod status;
mod watching;
mod why;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::key_table::KeyTable;
use tenure_core::policy::density::{Basis, Ranking, Ranks, age_step};

use self::appearing::Appearing;
pub use self::memory::Memory;
use self::pressure::Pressure;
use self::status::{EvictionStatus, status_by_state};
use self::watching::Hearing;
pub use self::watching::Watching;
pub use self::why::Why;
use crate::config::{Policy, Settings};
use crate::enforce::UNBOUNDED;
use crate::enforce::evict::{EVICTED_MIN, Evictor, Orders, Scoring};
use crate::enforce::usage::Usage;
use crate::enforce::walk::{Guides, SizesOf, Walk};
use crate::feature::{Wants, When};
use crate::ffi::clock::{now_us, thread_cpu_us};
use crate::ffi::server::{Level, Server};
use crate::ffi::{alloc, filtering, load, soon};
use crate::observe::Observer;
use crate::observe::classes::Classes;
use crate::observe::command_table::CommandTable;
use crate::observe::duty::{Duty, Slices};
use crate::observe::keys::{Keys, Remembers, Table};
use crate::observe::partitions::Partitions;
use crate::observe::tenants::Tenants;
use crate::rivals::Rival;
use crate::worker::{PartitionView, Published, Worker};

/// Between two ticks.
pub const TICK_US: u64 = 100_000;
const MEMORY_EVERY_US: u64 = 1_000_000;
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

/// The logical databases.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    /// Those that hold keys, with their number of keys, as of the last tick.
    pub sizes: Vec<(u16, u64)>,
    /// How many there are.
    count: u16,
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
    /// By partition, as planned; empty without a plan.
    target_bytes: &'a [u64],
    /// What partitions may hold, where any is above its maximum.
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
    /// Tenants that appear by themselves.
    pub appearing: Appearing,
}

impl Tenure {
    /// Fresh state, and the worker's thread.
    ///
    /// # Errors
    /// Why it can't run on this server, as a sentence.
    pub fn start(server: &mut Server, settings_version: u64, settings: Settings) -> Result<Tenure, String> {
        let commands = read_command_table(server)?;
        let mut worker = Worker::start().map_err(|e| format!("no thread for the worker: {e}"))?;
        let partitions = Partitions::new(
            Tenants::with_delimiter(&settings.tenants, settings.delimiter()),
            Classes::default(),
            Keys::default(),
            None,
        );
        let observer = Observer::new(commands, partitions, Arc::clone(&worker.shared.queue));
        let now_us = now_us();
        worker.news.at_us = now_us;
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
            memory: Memory { stale: true, minimums_share: 1.0, ..Memory::default() },
            settings_version,
            settings: settings.clone(),
            pressure: Pressure::default(),
            watching: Watching {
                duty: Duty::new(now_us),
                slices: Slices::default(),
                wanted: Wants::NOTHING,
                hearing: Hearing::default(),
            },
            databases: Databases { sizes: Vec::new(), count: load::databases().min(crate::observe::DBS_MAX) },
            times: Times { started_at_us: now_us, ..Times::default() },
            faults: Faults::default(),
            appearing: Appearing::default(),
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
        self.worker.news.version
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
            || settings.key_table_bytes != self.settings.key_table_bytes;
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
        self.observer.set_partitions(Partitions::new(tenants, classes, keys, owners));
        self.observer.sizes().forget_partitions();
        self.appearing.pending.clear();
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
        self.take_news(now_us);
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
        let maximums = partitions.maximums(self.usage.bytes(), target_bytes);
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
        let bytes_max = need.bytes_max.unwrap_or(&UNBOUNDED[..self.observer.partitions.len()]);
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

    /// Keys sampled per eviction by partition, as planned; empty where they are as set.
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

    /// Keys sampled per eviction of a partition, where no reply waits.
    pub fn sample_size_of(&self, partition: usize) -> u32 {
        self.sample_sizes().get(partition).copied().unwrap_or_else(|| self.sample_size(When::Idle))
    }

    /// Target bytes by partition; empty without a plan.
    pub fn target_bytes(&self) -> &[u64] {
        let plan = self.current().and_then(|published| published.plan.as_ref());
        plan.map_or(&[], |plan| &plan.target_bytes)
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
        } else if now_us > self.worker.news.at_us + stale_us {
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

    fn look_at_room(&mut self, now_us: u64, used_bytes: u64) {
        let begins_at_bytes = self.memory.limit_bytes.saturating_sub(self.headroom_bytes());
        self.pressure.room.look(now_us, used_bytes, begins_at_bytes);
        self.pressure.room.data_bytes = self.usage.bytes().iter().sum();
        self.pressure.room.tenure_bytes = alloc::allocated_bytes() as u64;
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

    /// Whether Tenure evicts, as shown: ready only where there is something that may go.
    pub fn status_shown(&self) -> EvictionStatus {
        match self.pressure.status {
            EvictionStatus::Ready if self.memory.nothing_expires => EvictionStatus::NothingExpires,
            status => status,
        }
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

fn read_command_table(server: &mut Server) -> Result<CommandTable, String> {
    let reply = server.call(c"COMMAND", &[]).ok_or("the server doesn't answer COMMAND")?;
    CommandTable::from_reply(&reply).ok_or_else(|| "the server's COMMAND reply has no key specifications".to_owned())
}
