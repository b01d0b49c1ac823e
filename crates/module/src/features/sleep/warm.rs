//! Warm restart: an orderly stop writes the hottest values to a file, and the next start has them asleep before the
//! first client is served, then wakes them hottest first.
//!
//! Idea of pRedis (Pan et al., SoCC'19, sec. 4) taken further: what falls asleep at night may as well sleep through a
//! restart.

use std::io;
use std::time::{Duration, Instant};

use tenure_core::units::{KeyHash, PARTITIONS_MAX};

use super::falling::{VALUE_BYTES_MAX, record_of};
use super::file::{Record, WarmWriter, take_warm};
use super::sleepers::Sleeper;
use super::{Pending, SleepContext, Spill, now_ms};
use crate::ffi::server::{Key, Kind, ScanCursor, Server, Text};
use crate::observe::owners::NOBODY;
use crate::observe::partitions::in_database;

/// An orderly stop is held up by no more than this.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Names held in memory at once, at the most: of one heat, more than these are left behind.
const NAMES_MAX: usize = 1 << 20;
/// How hot: not used for less than 1, 2, 4, … seconds.
const HEATS: usize = 24;

/// What an orderly stop wrote, or a start found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Warm {
    /// Values.
    pub keys: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

fn heat_of(key: &Key) -> usize {
    ((key.idle() / 1000 + 1).ilog2() as usize).min(HEATS - 1)
}

impl Spill {
    /// Puts the values that the last orderly stop has written to sleep, and their partitions to waking; only to
    /// remove the file where they are not `wanted`.
    ///
    /// # Errors
    /// A sentence that says why there are none.
    pub fn take_warm(&mut self, context: &mut SleepContext, wanted: bool) -> Result<Warm, String> {
        let Some((list, file)) = take_warm(self.folder.path())?.filter(|_| wanted) else { return Ok(Warm::default()) };
        self.disk.hold_warm(file).map_err(|e| e.to_string())?;
        let mut warm = Warm::default();
        // The last to fall asleep wakes first.
        for listed in list.into_iter().rev() {
            let hash = in_database(KeyHash::of(&listed.name), listed.db);
            let partition = context.observer.partitions.of(listed.db, &listed.name);
            let sleepers = &mut context.touches.sleepers;
            sleepers.written(listed.place);
            let (db, place, expires_at_ms) = (listed.db, listed.place, listed.expires_at_ms);
            let is_there = context.server.select_db(db)
                && context.server.open_or_expire(&context.server.text(&listed.name)).kind() != Kind::Absent;
            let name = listed.name.into();
            let sleeper = Sleeper { db, name, place, expires_at_ms, partition, owner: NOBODY };
            if !is_there && sleepers.add(hash, sleeper) {
                warm.keys += 1;
                warm.bytes += u64::from(place.len);
                self.wake(partition, context.window, context.now_us);
            }
        }
        Ok(warm)
    }

    /// Writes the hottest part of each partition, and what sleeps, as far as there is room and time.
    ///
    /// # Errors
    /// What the disk says; there is no file then.
    pub fn write_warm(&mut self, context: &mut SleepContext) -> io::Result<Warm> {
        let until = Instant::now() + STOP_MAX;
        let mut writer = WarmWriter::create(self.folder.path())?;
        let mut warm = Warm::default();
        let used = context.usage.bytes();
        let share = (self.bytes_max as f64 / used.iter().sum::<u64>().max(1) as f64).min(1.0);
        // What a record takes beyond its value weighs as much as what a key takes in memory beyond its.
        let mut left: Vec<f64> = used.iter().map(|&bytes| 2.0 * bytes as f64 * share + 4096.0).collect();
        left.resize(PARTITIONS_MAX, 4096.0);
        let heats = self.heats(context);
        for heat in (0..HEATS).filter(|&heat| heats[heat] > 0) {
            for &(db, _) in context.db_sizes {
                for (name, idle_seconds, expires_at_ms) in
                    names_of_heat(context.server, db, heat, context.volatile_only)
                {
                    let partition = context.observer.partitions.of(db, name.as_ref());
                    if left[partition.index()] <= 0.0 || writer.bytes() >= self.bytes_max || Instant::now() >= until {
                        continue;
                    }
                    let pending = Pending { db, name: name.as_ref().to_vec(), expires_at_ms, idle_seconds, hash: 0 };
                    let Some(bytes) = record_of(context.server, &pending) else { continue };
                    if let Some(record) = Record::decode(&bytes) {
                        writer.append(&record)?;
                        left[partition.index()] -= bytes.len() as f64;
                        warm.keys += 1;
                    }
                }
            }
        }
        warm.keys += self.write_sleepers(context, &mut writer, until)?;
        warm.bytes = writer.bytes();
        writer.finish()?;
        Ok(warm)
    }

    /// How many keys there are of each heat.
    fn heats(&self, context: &mut SleepContext) -> [u64; HEATS] {
        let mut heats = [0; HEATS];
        for &(db, _) in context.db_sizes {
            for_each_key(context.server, db, |_, key| heats[heat_of(key)] += 1);
        }
        heats
    }

    /// What sleeps is colder than what is awake.
    fn write_sleepers(
        &mut self,
        context: &mut SleepContext,
        writer: &mut WarmWriter,
        until: Instant,
    ) -> io::Result<u64> {
        let mut written = 0;
        let sleepers = &context.touches.sleepers;
        for sleeper in sleepers.iter() {
            if writer.bytes() >= self.bytes_max || Instant::now() >= until {
                break;
            }
            let is_over = sleeper.expires_at_ms > 0 && sleeper.expires_at_ms <= now_ms();
            let Some(bytes) = self.disk.read_now(sleeper.place).filter(|_| !is_over) else { continue };
            if let Some(record) = Record::decode(&bytes) {
                writer.append(&record)?;
                written += 1;
            }
        }
        Ok(written)
    }
}

/// Name, idle seconds and expiry of the keys of one heat. One walk through the database.
fn names_of_heat(server: &mut Server, db: u16, heat: usize, volatile_only: bool) -> Vec<(Text, u32, u64)> {
    let mut names = Vec::new();
    for_each_key(server, db, |name, key| {
        let is_large = key.kind() == Kind::String && key.length() > VALUE_BYTES_MAX;
        let expires_at_ms = key.expires_at_ms();
        if names.len() < NAMES_MAX && heat_of(key) == heat && !is_large && (!volatile_only || expires_at_ms > 0) {
            names.push((name.keep(), (key.idle() / 1000) as u32, expires_at_ms));
        }
    });
    names
}

fn for_each_key(server: &mut Server, db: u16, mut visit: impl FnMut(&crate::ffi::server::ScannedName, &Key)) {
    if server.select_db(db) {
        let cursor = ScanCursor::new(server);
        while !server.scan_step(&cursor, &mut visit) {}
    }
}
