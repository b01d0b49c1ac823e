//! Values that sleep on disk: a class in its valley gives its memory to others, and is back before or as its peak
//! begins.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 4. In a valley the values go to disk, least recently used first; at a
//! peak, told by a run of reads of sleeping keys or by the period, they are loaded back, the last to fall asleep
//! first. Differs from the paper: a read of a sleeping key is answered from disk (see `host/src/awaits.rs`), any
//! other use of one wakes it first, and a key falls asleep only if its value is still what was written (a hash of 64
//! bits says so), so no value that has changed since is ever served. A sleeping key is no key of the server's:
//! `DBSIZE` and `SCAN` don't see it, replicas and the append-only file have it deleted, and restored when it wakes.
//! Whatever goes wrong on disk costs hits. Cost: two `DUMP`s to fall asleep and a `RESTORE` to wake, both in slices;
//! 100 bytes and the name for each sleeper.

mod counts;
pub mod disk;
pub mod ends;
pub mod feature;
pub mod file;
mod pace;
mod rhythms;
pub mod sleepers;
mod sweep;
pub mod touches;
pub mod warm;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenure_core::decide::diurnal::{DiurnalConfig, Phase};
use tenure_core::departure::Departure;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId};

pub use self::counts::Counts;
use self::disk::{Blocked, Disk, Done};
use self::file::{Folder, Place, Record};
use self::pace::Pace;
pub use self::rhythms::SleepState;
use self::rhythms::{HISTORY_RUNS, ROUNDS, Rhythms};
use self::sleepers::{Sleeper, Sleepers};
use self::sweep::Sweep;
use self::touches::Touches;
use crate::config::Settings;
use crate::enforce::usage::Usage;
use crate::ffi::server::{Kind, Level, Server, Text};
use crate::observe::Observer;
use crate::observe::partitions::{Partitions, in_database};

/// Values above this are left to eviction: to write one as `DUMP` does would hold the server up for a millisecond.
const VALUE_BYTES_MAX: usize = 128 << 10;
/// Segments are a sixteenth of what the disk may hold, within bounds.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Keys on their way to the disk or back, at the most.
const UNDER_WAY_MAX: usize = 512;
/// Steps of the walk between two looks at the clock.
const STEPS_PER_LOOK: usize = 8;
/// Keys that one command may wake while the server waits for the disk; more are forgotten.
const WAKE_NOW_MAX: usize = 256;
/// After the disk has refused a value nothing falls asleep for so long.
const REFUSED_REST_US: u64 = 30_000_000;

/// A value on its way to the disk.
struct Pending {
    db: u16,
    name: Vec<u8>,
    expires_at_ms: u64,
    idle_seconds: u32,
    /// Hash of its record, 64 bits.
    hash: u64,
}

/// What the rest of Tenure lends for a moment.
pub struct SleepContext<'a> {
    /// The server.
    pub server: &'a mut Server,
    /// Who is who.
    pub observer: &'a mut Observer,
    /// Who is asleep.
    pub touches: &'a mut Touches,
    /// What each partition holds.
    pub usage: &'a mut Usage,
    /// The databases that hold keys, with their number of keys.
    pub db_sizes: &'a [(u16, u64)],
    /// Bytes until memory is short; negative where it is.
    pub room_bytes: i64,
    /// Bytes by which memory may grow in one slice though it is short.
    pub burst_bytes: i64,
    /// Only keys that expire may leave memory.
    pub volatile_only: bool,
    /// The time.
    pub now_us: u64,
    /// Windows so far.
    pub window: u64,
}

/// The sleep of values. See the file's opening.
pub struct Spill {
    // Its threads end before the folder is let go of.
    disk: Disk,
    folder: Folder,
    pending: HashMap<u64, Pending>,
    /// What the disk has done and nobody has looked at.
    arrived: VecDeque<Done>,
    rhythms: Rhythms,
    auto: bool,
    bytes_max: u64,
    pace: Pace,
    refused_until_us: u64,
    sweep: Sweep,
    /// For `INFO`.
    pub counts: Counts,
}

fn segment_bytes(bytes_max: u64) -> u64 {
    (bytes_max / 16).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// Milliseconds since 1970, as keys' times to live are told.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Spill {
    /// Opens the folder and starts the threads.
    ///
    /// # Errors
    /// A sentence that says what stands against it.
    pub fn start(settings: &Settings, now_us: u64) -> Result<Spill, String> {
        let folder = Folder::open(Path::new(&settings.spill_dir))?;
        let bytes_max = settings.spill_max_bytes as u64;
        let disk =
            Disk::start(folder.path(), segment_bytes(bytes_max)).map_err(|e| format!("no thread for the disk: {e}"))?;
        let mut spill = Spill {
            disk,
            folder,
            pending: HashMap::new(),
            arrived: VecDeque::new(),
            rhythms: Rhythms::new(),
            auto: false,
            bytes_max,
            pace: Pace::default(),
            refused_until_us: 0,
            sweep: Sweep::default(),
            counts: Counts::default(),
        };
        spill.take_settings(settings, now_us);
        Ok(spill)
    }

    /// Takes what may change while it runs.
    pub fn take_settings(&mut self, settings: &Settings, now_us: u64) {
        self.bytes_max = settings.spill_max_bytes as u64;
        self.disk.set_segment_bytes(segment_bytes(self.bytes_max));
        self.pace.allow(settings.spill_bytes_per_second as u64);
        self.auto = settings.spill_auto;
        let run_intervals = settings.spill_run_intervals as usize;
        let config = DiurnalConfig { run_intervals, history_intervals: run_intervals * HISTORY_RUNS };
        self.rhythms.keep_time(config, settings.spill_interval_seconds as u64 * 1_000_000, now_us);
    }

    /// Where the files are.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Partitions are divided otherwise: sleepers are the new ones', rhythms begin anew but for those that `stay`.
    pub fn divide_anew(&mut self, stay: &[bool], partitions: &mut Partitions, sleepers: &mut Sleepers) {
        self.rhythms.keep(stay);
        sleepers.divide_anew(|sleeper| {
            partitions.of_accessed(sleeper.db, &sleeper.name, || KeyHash::of(&sleeper.name), sleeper.owner)
        });
    }

    /// A partition is to fall asleep.
    pub fn sleep(&mut self, context: &SleepContext, partition: PartitionId) {
        let held_bytes = context.usage.bytes()[partition.index()];
        self.rhythms.fall_asleep(partition, held_bytes, self.sweep.next());
        if !self.sweep.is_under_way() {
            self.sweep.begin(context.server, context.db_sizes);
        }
    }

    /// A partition is to wake.
    pub fn wake(&mut self, partition: PartitionId, window: u64, now_us: u64) {
        self.rhythms.wake(partition, window, now_us);
    }

    /// All that sleep are to wake.
    pub fn wake_all(&mut self, context: &SleepContext) {
        for i in 0..self.rhythms.len() {
            let partition = PartitionId(i as u16);
            let sleeps = context.touches.sleepers.of(partition) > 0;
            if self.rest(partition) != SleepState::Waking && (sleeps || self.rest(partition) != SleepState::Awake) {
                self.wake(partition, context.window, context.now_us);
            }
        }
    }

    /// What a partition is about.
    pub fn rest(&self, partition: PartitionId) -> SleepState {
        self.rhythms.rest(partition)
    }

    /// At the end of each turn, whether writes are paused. Commands that were held back run after that, and the
    /// filter doesn't see them again, so nothing that they may name falls asleep until the turn after.
    pub fn note_pause(&mut self, is_paused: bool) {
        self.pace.note_pause(is_paused);
    }

    /// True where there is something to do that a turn may do some of.
    pub fn is_busy(&self) -> bool {
        let is_any_under_way = || !self.pending.is_empty() || !self.arrived.is_empty() || self.disk.under_way() > 0;
        self.pace.may_work() && (is_any_under_way() || self.rhythms.any_moves())
    }

    /// True where keys are about to sleep, so that no command may pass unseen.
    pub fn needs_watching(&self) -> bool {
        !self.pending.is_empty() || self.rhythms.any_falls()
    }

    /// What partitions that wake had before they fell asleep, in bytes by partition; empty where none wakes.
    pub fn held_bytes(&self, window: u64, now_us: u64) -> Vec<u64> {
        self.rhythms.held_bytes(window, now_us)
    }

    /// A slice of work: takes what the disk has done, lets some fall asleep, wakes some. False where there was
    /// nothing to do.
    pub fn work(&mut self, context: &mut SleepContext, budget: Duration) -> bool {
        let before = (self.disk.under_way(), self.sweep.dbs_left());
        let started = Instant::now();
        let budget = budget.min(self.pace.time_left());
        let is_over = || started.elapsed() >= budget;
        self.arrived.extend(self.disk.take_done());
        let mut has_worked = !self.arrived.is_empty();
        // What wakes has to be made room for before more does.
        let mut burst_left = context.burst_bytes;
        while !is_over() && burst_left > 0 {
            let Some(done) = self.arrived.pop_front() else { break };
            burst_left -= self.take_done(context, done) as i64;
        }
        for i in 0..self.rhythms.len() {
            let partition = PartitionId(i as u16);
            match self.rest(partition) {
                SleepState::Waking => self.wake_some(context, partition, is_over),
                SleepState::FallingAsleep { .. } => self.fall_asleep_some(context, is_over),
                SleepState::Awake | SleepState::Asleep => {}
            }
        }
        let after = (self.disk.under_way(), self.sweep.dbs_left());
        has_worked |= before != after || self.sweep.is_under_way();
        let spent_us = started.elapsed().as_micros() as u64;
        self.pace.spend_us(spent_us);
        context.server.note_latency(c"tenure-sleep", spent_us);
        has_worked
    }

    /// Returns how many bytes have come into memory.
    fn take_done(&mut self, context: &mut SleepContext, done: Done) -> u64 {
        match done {
            Done::Written { key, place } => self.written(context, key, place),
            Done::Read { key, place, bytes } => {
                let has_room = context.room_bytes > 0;
                if has_room || self.is_held(context, key) {
                    let is_awake = self.wake_with(context, key, place, bytes.as_deref());
                    context.room_bytes -= i64::from(place.len);
                    return if is_awake && !has_room { u64::from(place.len) } else { 0 };
                } else {
                    context.touches.sleepers.list_again(key);
                    self.rhythms.stop_waking();
                }
            }
            Done::Refused { key, why } => {
                self.pending.remove(&key.0);
                self.counts.refused += 1;
                if context.now_us >= self.refused_until_us {
                    let text = format!("values can't fall asleep in {}: {why}", self.path().display());
                    context.server.log(Level::Warning, &text);
                }
                self.refused_until_us = context.now_us + REFUSED_REST_US;
            }
        }
        0
    }

    /// True where the key's partition has a right to more memory than it has, though memory is short.
    fn is_held(&self, context: &SleepContext, key: KeyHash) -> bool {
        let Some(sleeper) = context.touches.sleepers.get(key) else { return false };
        let used = context.usage.bytes()[sleeper.partition.index()];
        self.rhythms.is_held_below(sleeper.partition, used, context.window, context.now_us)
    }

    /// Keys of partitions that fall asleep, as a sweep meets them.
    fn fall_asleep_some(&mut self, context: &mut SleepContext, is_over: impl Fn() -> bool) {
        let mut steps = 0;
        loop {
            let is_full = self.pace.is_written_out() || self.pending.len() >= UNDER_WAY_MAX;
            steps += 1;
            if is_full || context.now_us < self.refused_until_us || (steps % STEPS_PER_LOOK == 0 && is_over()) {
                return;
            }
            let Some((db, names)) = self.meet(context) else {
                if self.end_sweep(context) {
                    return;
                }
                continue;
            };
            for name in names {
                self.write(context, db, &name);
            }
        }
    }

    /// The sweep has met all keys: partitions enter their next round, and it begins anew. True where nothing falls
    /// asleep any more.
    fn end_sweep(&mut self, context: &SleepContext) -> bool {
        let next = self.sweep.end();
        let none_falls = self.rhythms.end_round(next);
        if !none_falls {
            self.sweep.begin(context.server, context.db_sizes);
        }
        none_falls
    }

    /// One step of the sweep: a database and the names of those of its keys that are to fall asleep. `None` at the end.
    fn meet(&mut self, context: &mut SleepContext) -> Option<(u16, Vec<Text>)> {
        let (db, cursor) = self.sweep.current()?;
        let mut due = Vec::new();
        let mut came_round = true;
        if context.server.select_db(db) {
            let partitions = &mut context.observer.partitions;
            let volatile_only = context.volatile_only;
            came_round = context.server.scan_step(cursor, |name, key| {
                let SleepState::FallingAsleep { round, .. } = self.rest(partitions.of(db, name.as_ref())) else {
                    return;
                };
                let is_due = key.idle() >= self.rhythms.interval_us() / 1000 * ROUNDS[round] / 4;
                if is_due && (!volatile_only || key.expires_at_ms() > 0) {
                    due.push(name.keep());
                }
            });
        }
        if came_round {
            self.sweep.end_db();
        }
        Some((db, due))
    }

    /// Sends a value to the disk; its key falls asleep when it is there, unless it has changed by then.
    fn write(&mut self, context: &mut SleepContext, db: u16, name: &Text) {
        let hash = in_database(KeyHash::of(name.as_ref()), db);
        context.server.select_db(db);
        let key = context.server.open(name);
        let partition = context.observer.partitions.of(db, name.as_ref());
        let size_bytes = context.observer.sizes().of(partition, name, || hash, &key) as usize;
        if key.kind() == Kind::Absent || size_bytes > VALUE_BYTES_MAX || self.pending.contains_key(&hash.0) {
            return;
        }
        let expires_at_ms = key.expires_at_ms();
        let idle_ms = key.idle();
        let idle_seconds = (idle_ms / 1000).min(u64::from(u32::MAX)) as u32;
        drop(key);
        let pending = Pending { db, name: name.as_ref().to_vec(), expires_at_ms, idle_seconds, hash: 0 };
        let Some(record) = record_of(context.server, &pending) else { return };
        // To look at it was no use of it.
        context.server.open(name).set_idle(idle_ms);
        self.pace.write(record.len() as u64);
        let pending = Pending { hash: KeyHash::of(&record).0, ..pending };
        if self.disk.append(hash, record) {
            self.pending.insert(hash.0, pending);
        }
    }

    /// A value is on disk: its key falls asleep, if the value is still the same.
    fn written(&mut self, context: &mut SleepContext, key: KeyHash, place: Place) {
        let SleepContext { server, observer, touches, usage, .. } = context;
        touches.sleepers.written(place);
        let Some(pending) = self.pending.remove(&key.0) else { return };
        server.select_db(pending.db);
        let name = server.text(&pending.name);
        let opened = server.open(&name);
        let is_there = opened.kind() != Kind::Absent;
        let is_same_time = opened.expires_at_ms() == pending.expires_at_ms;
        drop(opened);
        if !is_there || !may_change_keys(server) {
            return;
        }
        if server.writes_are_paused() {
            return;
        }
        let hash_now = record_of(server, &pending).map(|record| KeyHash::of(&record).0);
        let partition = observer.partitions.of(pending.db, &pending.name);
        match self.rest(partition) {
            SleepState::FallingAsleep { .. } | SleepState::Asleep if is_same_time && hash_now == Some(pending.hash) => {
            }
            // It has changed on the way: once more, as it is now.
            SleepState::FallingAsleep { .. } => return self.write(context, pending.db, &name),
            _ => return,
        }
        let Pending { db, name: bytes, expires_at_ms, .. } = pending;
        let owner = observer.partitions.owner_of(db, &bytes);
        let sleeper = Sleeper { db, name: bytes.into(), place, expires_at_ms, partition, owner };
        if touches.sleepers.add(key, sleeper) {
            server.open(&name).unlink();
            server.replicate_unlink(&name);
            observer.partitions.gone(db, || KeyHash::of(name.as_ref()), Departure::default());
            usage.went(db, partition, observer.known_sizes());
            self.counts.slept += 1;
        }
    }

    /// Asks the disk for the hottest sleepers of a partition that wakes.
    fn wake_some(&mut self, context: &mut SleepContext, partition: PartitionId, is_over: impl Fn() -> bool) {
        while self.disk.under_way() + self.arrived.len() < UNDER_WAY_MAX && !is_over() {
            let sleepers = &mut context.touches.sleepers;
            let Some(key) = sleepers.next_to_wake(partition) else {
                if self.disk.under_way() == 0 && self.arrived.is_empty() {
                    // Here the time begins in which plans have to see that it is used.
                    self.wake(partition, context.window, context.now_us);
                    self.rhythms.of(partition).rest = SleepState::Awake;
                }
                return;
            };
            let Some(place) = sleepers.get(key).map(|sleeper| sleeper.place) else { continue };
            if !self.disk.read(key, place) {
                return sleepers.list_again(key);
            }
        }
    }

    /// A record was read: its key wakes, if that is still the one that sleeps. True where it is awake now.
    pub fn wake_with(&mut self, context: &mut SleepContext, key: KeyHash, place: Place, bytes: Option<&[u8]>) -> bool {
        let SleepContext { server, observer, touches, usage, .. } = context;
        let is_that = touches.sleepers.get(key).is_some_and(|sleeper| sleeper.place == place);
        let Some(sleeper) = touches.sleepers.remove_if(key, is_that && may_change_keys(server)) else { return false };
        let record = bytes.and_then(Record::decode).filter(|r| r.db == sleeper.db && *r.name == *sleeper.name);
        self.counts.damaged += u64::from(record.is_none());
        let lives = record.filter(|_| !sleeper.is_over(now_ms()));
        let is_awake = lives.is_some_and(|record| ends::restore(server, &record, &mut touches.owed));
        if !is_awake {
            ends::tell(server, &sleeper);
            return false;
        }
        observer.partitions.created(sleeper.db, &sleeper.name, sleeper.owner);
        let partition = observer.partitions.of(sleeper.db, &sleeper.name);
        usage.came(sleeper.db, partition, observer.known_sizes());
        self.counts.woken += 1;
        true
    }

    /// The value of a key that a client waited for didn't come in time: it is given up, so that nobody waits for it
    /// again.
    pub fn give_up_waiting(&mut self, context: &mut SleepContext, key: KeyHash) {
        if let Some(sleeper) = context.touches.sleepers.remove(key) {
            self.counts.damaged += 1;
            ends::tell(context.server, &sleeper);
        }
    }

    /// Wakes keys that a command is about to touch, while the server waits for the disk. What can't wake now is given
    /// up: the command may change or delete it, and run again without being seen.
    pub fn wake_now(&mut self, context: &mut SleepContext, keys: &[KeyHash]) {
        for (i, key) in keys.iter().enumerate() {
            let Some(sleeper) = context.touches.sleepers.get(*key) else { continue };
            let (place, partition) = (sleeper.place, sleeper.partition);
            self.touched(partition);
            if i < WAKE_NOW_MAX {
                let bytes = self.disk.read_now(place);
                self.wake_with(context, *key, place, bytes.as_deref());
            }
            if let Some(sleeper) = context.touches.sleepers.remove(*key) {
                self.counts.given_up += 1;
                ends::tell(context.server, &sleeper);
            }
        }
    }

    /// Reads a sleeping key's value for a client that waits for it; the client back where that can't be.
    ///
    /// # Errors
    /// The client, where too many wait.
    pub fn read_for(&mut self, client: Blocked, partition: PartitionId, place: Place) -> Result<(), Blocked> {
        self.disk.read_for(client, place)?;
        self.touched(partition);
        Ok(())
    }

    /// For tests: the thread that reads for clients panics at its next job.
    pub fn panic_at_next_read(&self) {
        self.disk.panic_at_next_read();
    }

    fn touched(&mut self, partition: PartitionId) {
        self.counts.touched += 1;
        self.rhythms.of(partition).touched += 1;
    }

    /// A sampled key was accessed: how long after its last time counts for its partition.
    pub fn sampled(&mut self, partition: PartitionId, key: KeyHash, now_us: u64) {
        self.rhythms.sampled(partition, key, now_us);
    }

    /// Ten times a second: fresh budgets, room on the disk, and at the end of an interval who falls asleep and who
    /// wakes.
    pub fn tick(&mut self, context: &mut SleepContext, may_sleep: bool) {
        self.pace.tick();
        let sleepers = &mut context.touches.sleepers;
        let before = sleepers.len();
        while sleepers.disk_bytes() > self.bytes_max {
            let Some(segment) = sleepers.give_up_segment() else { break };
            self.disk.remove(segment);
        }
        self.counts.given_up += (before - sleepers.len()) as u64;
        for segment in sleepers.take_empty_segments() {
            self.disk.remove(segment);
        }
        for i in 0..self.rhythms.len() {
            let partition = PartitionId(i as u16);
            // Values on their way to a slow disk may be all that is to sleep.
            let none_comes = self.pending.is_empty() && self.arrived.is_empty();
            let none_sleeps = || context.touches.sleepers.of(partition) == 0;
            let rhythm = self.rhythms.of(partition);
            if rhythm.rest == SleepState::Asleep && none_comes && none_sleeps() {
                rhythm.rest = SleepState::Awake;
            }
            if rhythm.is_to_wake() {
                self.wake(partition, context.window, context.now_us);
            }
        }
        if self.rhythms.ends_interval(context.now_us) {
            self.end_interval(context, may_sleep);
        }
    }

    fn end_interval(&mut self, context: &mut SleepContext, may_sleep: bool) {
        for i in 0..context.observer.partitions.len().min(PARTITIONS_MAX) {
            let partition = PartitionId(i as u16);
            let requests = context.observer.counters[i].unprompted();
            let may_sleep =
                may_sleep && self.auto && context.now_us >= self.refused_until_us && context.usage.keys()[i] >= 1.0;
            let rhythm = self.rhythms.of(partition);
            let pattern = rhythm.end_interval(requests);
            match (pattern.map(|p| p.phase), rhythm.rest) {
                (Some(Phase::Valley), SleepState::Awake)
                    if may_sleep && pattern.is_some_and(|p| p.next_peak_in > 1) =>
                {
                    self.sleep(context, partition);
                }
                (Some(Phase::Peak), SleepState::Asleep) => self.wake(partition, context.window, context.now_us),
                (Some(Phase::Valley | Phase::Between), SleepState::Asleep)
                    if pattern.is_some_and(|p| p.next_peak_in <= 1) =>
                {
                    self.wake(partition, context.window, context.now_us);
                }
                _ => {}
            }
        }
    }
}

/// True where this server may change keys by itself: not where it follows another, or loads.
fn may_change_keys(server: &mut Server) -> bool {
    let flags = server.flags();
    !flags.is_replica() && !flags.is_loading()
}

/// The record of a key as it is now.
fn record_of(server: &mut Server, pending: &Pending) -> Option<Vec<u8>> {
    server.select_db(pending.db);
    let value = server.call(c"DUMP", &[&pending.name])?;
    let record = Record {
        db: pending.db,
        name: &pending.name,
        payload: value.bytes()?,
        expires_at_ms: pending.expires_at_ms,
        idle_seconds: pending.idle_seconds,
    };
    Some(record.encode())
}
