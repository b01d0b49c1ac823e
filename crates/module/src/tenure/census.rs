//! The census: keys are counted and a few of them visited ten times a second, so that sizes and shares are known where
//! nothing is evicted.

use tenure_core::units::{PARTITIONS_MAX, PartitionId};

use super::{TICK_US, Tenure};
use crate::enforce::walk::{Guides, SizesOf};
use crate::ffi::server::{Kind, Server, Text};
use crate::observe::sizes::LARGE_BYTES;

/// How long the census takes for a round, where its limits let it.
const ROUND_US: u64 = 60_000_000;
/// Keys that the census visits per tick where the evictor has visited fewer; the most before shares were ever
/// counted, and where keys have changed partition.
const CENSUS_KEYS_MIN: u64 = 64;
const CENSUS_KEYS_MAX: u64 = 512;
const CENSUS_STEPS: usize = 256;
/// Keys per tick whose overhead is asked for, and before enough of their partition's were.
const CALIBRATED_KEYS: usize = 2;
const CALIBRATED_KEYS_AT_FIRST: usize = 16;
/// Once enough were, it is asked for in one tick of so many: each asking is a command, which SLOWLOG and MONITOR show.
const CALIBRATED_EVERY: u64 = 50;

impl Tenure {
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

    /// Visits a few keys, so that mean sizes and shares are known where nothing is evicted.
    pub(super) fn census(&mut self, server: &mut Server) {
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
}
