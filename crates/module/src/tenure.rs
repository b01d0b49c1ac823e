//! Tenure's state on the main thread, and what happens at the end of each turn of the event loop: look at what was
//! sampled, take a new plan, free memory, and, ten times a second, settle the accounts.

pub mod appearing;
mod census;
mod held;
mod in_force;
mod key_events;
mod memory;
pub mod minimums;
mod news;
mod pressure;
mod relief;
pub mod room;
mod samples;
mod snapshot;
mod status;
mod watching;
mod why;

use std::sync::Arc;

use tenure_core::key_table::KeyTable;
use tenure_core::policy::density::{KEY_TABLE_SHARE, LIMIT_BYTES_MIN, age_step};

use self::appearing::Appearing;
use self::census::Census;
pub use self::memory::Memory;
use self::pressure::Pressure;
use self::status::EvictionStatus;
pub use self::watching::Watching;
pub use self::why::Why;
use crate::config::Settings;
use crate::enforce::evict::Evictor;
use crate::enforce::usage::Usage;
use crate::enforce::walk::Walk;
use crate::ffi::clock::{now_us, thread_cpu_us};
use crate::ffi::server::{Level, Server};
use crate::ffi::{alloc, filtering, load};
use crate::observe::Observer;
use crate::observe::classes::Classes;
use crate::observe::command_table::CommandTable;
use crate::observe::keys::{Keys, Remembers, Table};
use crate::observe::partitions::Partitions;
use crate::observe::tenants::Tenants;
use crate::worker::{Published, Worker};

/// Between two ticks.
pub const TICK_US: u64 = 100_000;
const MEMORY_EVERY_US: u64 = 1_000_000;
/// Memory for the table of keys: a share of the limit, within bounds; where there is no limit, a fixed size.
const KEY_TABLE_BYTES_MIN: u64 = 256 << 10;
/// What Tenure's own policy takes of a small cache beside it comes off it, down to a smaller share of the limit.
const TAKEN_BESIDE_BYTES: u64 = 512 << 10;
const KEY_TABLE_SHARE_MIN: u64 = 104;
const KEY_TABLE_BYTES_MAX: u64 = 256 << 20;
const KEY_TABLE_BYTES_UNLIMITED: u64 = 4 << 20;

/// The logical databases.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    /// Those that hold keys, with their number of keys, as of the last tick.
    pub sizes: Vec<(u16, u64)>,
    /// How many there are.
    count: u16,
}

/// When the state was made, when it last ticked, and how far the census is since then.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    started_at_us: u64,
    ticked_at_us: u64,
    census: Census,
}

/// What has gone wrong, or is to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The worker was found dead.
    worker_died: bool,
    /// Set by tests: the next turn panics.
    pub panic_please: bool,
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
        if !filtering::watch(server, filtering::Sees::Commands) {
            return Err("the server refused a command filter".to_owned());
        }
        let mut tenure = Tenure {
            observer,
            usage: Usage::new(),
            evictor: Evictor::new(age_step(settings.window_requests as u64)),
            walk: Walk::default(),
            worker,
            published: Arc::default(),
            memory: Memory { stale: true, settings_are_stale: true, minimums_share: 1.0, ..Memory::default() },
            settings_version,
            settings: settings.clone(),
            pressure: Pressure::default(),
            watching: Watching::new(now_us),
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

    /// The number of what the worker made that is in force: the same until a window ends.
    pub fn published_version(&self) -> u64 {
        self.published.version
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
        self.walk.start_over(None);
        self.evictor = Evictor::new(age_step(self.settings.window_requests as u64));
        self.times.ticked_at_us = 0;
    }

    /// False where the server's limit is too low for Tenure.
    pub fn has_room(&self) -> bool {
        !(1..LIMIT_BYTES_MIN).contains(&self.memory.limit_bytes)
    }

    /// The table of keys that there should be.
    fn key_table(&self) -> Table {
        let has_compact_entries = self.settings.keeps_compact_entries();
        let beside = if has_compact_entries { TAKEN_BESIDE_BYTES } else { 0 };
        let share_of = |limit: u64| (limit / KEY_TABLE_SHARE).saturating_sub(beside).max(limit / KEY_TABLE_SHARE_MIN);
        let bytes = match (self.settings.key_table_bytes as u64, self.memory.limit_bytes) {
            (0, 0) => KEY_TABLE_BYTES_UNLIMITED,
            (0, limit) => share_of(limit).clamp(KEY_TABLE_BYTES_MIN, KEY_TABLE_BYTES_MAX),
            (set, _) => set.max(KEY_TABLE_BYTES_MIN),
        };
        Table { bytes, has_compact_entries }
    }

    /// A limit that allows four times as much deserves a larger table of keys, and one that allows a quarter can't
    /// afford it, where no class is lost.
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
        (self.memory.stale, self.memory.settings_are_stale) = (true, true);
    }

    /// The end of a turn: bounded work, see the file's opening.
    pub fn end_turn(&mut self, server: &mut Server, now_us: u64) {
        assert!(!self.faults.panic_please, "asked to by TENURE.DEBUG");
        self.observer.sampler.rate = self.worker.shared.stream_rate();
        let dropped = self.observer.end_turn(server, now_us);
        self.end_slice(server, now_us);
        self.worker.wake();
        if dropped > 0 {
            self.worker.shared.dropped.fetch_add(dropped, std::sync::atomic::Ordering::Relaxed);
        }
        if self.memory.stale || now_us >= self.memory.read_at_us + MEMORY_EVERY_US {
            self.read_memory(server, now_us);
        }
        self.take_news(now_us);
        self.follow_sample_size(server);
    }

    /// True where it is time for [`Tenure::tick`].
    pub fn is_tick(&self, now_us: u64) -> bool {
        now_us >= self.times.ticked_at_us + TICK_US
    }

    /// Memory may be short before the next tick sees it: the end of this turn looks.
    pub fn expect_shortage(&mut self) {
        self.pressure.may_be_short = true;
    }

    /// Ten times a second: key counts and mean sizes.
    pub fn tick(&mut self, server: &mut Server, now_us: u64) {
        self.times.ticked_at_us = now_us;
        self.pressure.own.tick();
        self.pressure.growth.tick();
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
        self.begin_census(server);
        let (partitions, sizes, _) = self.observer.guides();
        self.usage.settle(&self.databases.sizes, partitions, sizes);
    }

    /// The same, after what features do: how much is watched, and a snapshot for the worker.
    pub fn end_tick(&mut self, server: &mut Server, now_us: u64) {
        self.fit_minimums(server);
        self.watch_or_pause(server, now_us);
        if !self.is_thrifty() {
            self.evictor.unread.forget_some();
        }
        self.leave_snapshot(server);
    }

    fn look_at_room(&mut self, now_us: u64, used_bytes: u64) {
        let begins_at_bytes = self.memory.limit_bytes.saturating_sub(self.headroom_bytes());
        self.pressure.room.look(now_us, used_bytes, begins_at_bytes);
        let counted_bytes = self.usage.bytes().iter().sum();
        let not_data_bytes = self.memory.not_data.bytes;
        self.pressure.room.data_bytes = not_data_bytes.map_or(counted_bytes, |bytes| used_bytes.saturating_sub(bytes));
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

/// Asked so, and not as a bare `COMMAND`: Valkey from 9.1 on keeps the whole answer to that as well, 0.1 MB. Names
/// alone (`COMMAND LIST`) would be one command more of which the server keeps latencies, in 24 KB.
fn read_command_table(server: &mut Server) -> Result<CommandTable, String> {
    let reply = server.call(c"COMMAND", &[b"INFO"]).ok_or("the server doesn't answer COMMAND INFO")?;
    CommandTable::from_reply(&reply).ok_or_else(|| "the server's COMMAND reply has no key specifications".to_owned())
}
