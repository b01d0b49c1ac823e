//! Values that sleep on disk: a class in its valley gives its memory to others, and is back before or as its peak
//! begins.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 4. In a valley the values go to disk, least recently used first; at a
//! peak, told by a run of reads of sleeping keys or by the period, they are loaded back, the last to fall asleep
//! first. Differs from the paper: a read of a sleeping key is answered from disk (see `host/src/awaits.rs`), and any
//! other use of one wakes it first. A key falls asleep only if its value is still what was written, by a hash of 64
//! bits. So no value that has changed since is ever served. A sleeping key is no key of the server's: `DBSIZE` and
//! `SCAN` don't see it, replicas and the append-only file have it deleted, and restored when it wakes. Whatever goes
//! wrong on disk costs hits. Cost: two `DUMP`s to fall asleep and a `RESTORE` to wake, both in slices; 100 bytes and
//! the name for each sleeper.

mod counts;
pub mod disk;
pub mod ends;
mod falling;
pub mod feature;
pub mod file;
mod intervals;
mod pace;
mod rhythms;
pub mod sleepers;
#[cfg(test)]
mod sleepers_histories;
mod sweep;
pub mod touches;
mod waking;
pub mod warm;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenure_core::decide::diurnal::DiurnalConfig;
use tenure_core::units::{KeyHash, PartitionId};

pub use self::counts::Counts;
use self::disk::{Disk, Done};
use self::feature::slots::MovingSlots;
use self::file::Folder;
use self::pace::Pace;
pub use self::rhythms::SleepState;
use self::rhythms::{HISTORY_RUNS, Rhythms};
use self::sleepers::Sleepers;
use self::sweep::Sweep;
use self::touches::Touches;
use crate::config::Settings;
use crate::enforce::usage::Usage;
use crate::ffi::server::{Level, Server};
use crate::observe::Observer;
use crate::observe::partitions::Partitions;

/// Segments are a sixteenth of what the disk may hold, within bounds.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Keys on their way to the disk or back, at the most.
const UNDER_WAY_MAX: usize = 512;
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
    /// Slots of a cluster that may change hands.
    pub slots: &'a MovingSlots,
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
    /// Sleepers that are to wake because their slots leave, and those of them that the disk reads.
    leaving: Vec<KeyHash>,
    read_to_leave: HashSet<u64>,
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
            leaving: Vec::new(),
            read_to_leave: HashSet::new(),
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
        let is_any_under_way = || {
            !self.leaving.is_empty()
                || !self.pending.is_empty()
                || !self.arrived.is_empty()
                || self.disk.under_way() > 0
        };
        self.pace.may_work() && (is_any_under_way() || self.rhythms.any_moves())
    }

    /// True where keys are about to sleep, so that no command may go by unheard.
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
        self.wake_what_leaves(context, is_over);
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
                if self.read_to_leave.remove(&key.0) || has_room || self.is_held(context, key) {
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
}

/// True where this server may change keys by itself: not where it follows another, or loads.
fn may_change_keys(server: &mut Server) -> bool {
    let flags = server.flags();
    !flags.is_replica() && !flags.is_loading()
}
