//! The census: keys are counted ten times a second, and a few of them visited until the next time, so that sizes and
//! shares are known where nothing is evicted. Hundreds at once would hold up all commands for half a millisecond, so
//! each turn visits some, and all at once are visited only where few turns come.

use tenure_core::units::PartitionId;

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
const CENSUS_STEPS: u64 = 256;
/// Keys that one turn visits: some 50 µs.
const CENSUS_AT_ONCE: u64 = 64;
/// Keys per tick whose overhead is asked for, and before enough of their partition's were.
const CALIBRATED_KEYS: usize = 2;
const CALIBRATED_KEYS_AT_FIRST: usize = 16;
/// Once enough were, it is asked for in one tick of so many: each asking is a command, which SLOWLOG and MONITOR show.
const CALIBRATED_EVERY: u64 = 50;

/// Where the census stands, since the last tick.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Census {
    /// Keys that are still to be visited.
    keys_left: u64,
    /// Steps of the walk that it may still take.
    steps_left: u64,
    /// Turns since.
    turns: u64,
    /// Keys that it has visited.
    visited: u64,
    /// Keys that the walk had visited before.
    visited_then: u64,
}

impl Census {
    fn visit(&mut self, keys: u64) {
        self.keys_left = self.keys_left.saturating_sub(keys);
        self.visited += keys;
    }
}

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

    /// At a tick: so many keys are to be visited until the next, of which the evictor may have visited some already.
    pub(super) fn begin_census(&mut self, server: &mut Server) {
        let may_take_time = self.usage.is_counted() && !self.usage.is_outdated();
        let wanted = if may_take_time { self.keys_for_a_round() } else { CENSUS_KEYS_MAX };
        let Census { turns, visited_then, visited, .. } = self.times.census;
        let by_evictor = self.walk.visited - visited_then - visited;
        // Where too few turns come for all of them, hardly anybody is there to be held up.
        let at_once = if turns * CENSUS_AT_ONCE < wanted { CENSUS_KEYS_MAX } else { CENSUS_AT_ONCE };
        self.times.census = Census {
            keys_left: wanted.saturating_sub(by_evictor),
            steps_left: CENSUS_STEPS.max(2 * wanted),
            turns: 0,
            visited: 0,
            visited_then: self.walk.visited,
        };
        let is_due = (self.times.ticked_at_us / TICK_US).is_multiple_of(CALIBRATED_EVERY);
        self.observer.sizes().tick(self.memory.limit_bytes);
        self.visit_some(server, at_once, if is_due { CALIBRATED_KEYS } else { 0 }, CALIBRATED_KEYS_AT_FIRST);
    }

    /// In a later turn: some more.
    pub fn go_on_with_census(&mut self, server: &mut Server) {
        self.times.census.turns += 1;
        if self.times.census.keys_left > 0 {
            self.visit_some(server, CENSUS_AT_ONCE, 0, 0);
        }
    }

    /// Visits some of the keys that are left, up to `at_once`. Of `calibrated` of them the overhead is asked for, and
    /// of `calibrated_at_first` of a partition of which few were.
    fn visit_some(&mut self, server: &mut Server, at_once: u64, calibrated: usize, calibrated_at_first: usize) {
        let (partitions, sizes, _) = self.observer.guides();
        // Within a tick no overhead is asked for.
        let keys = self.usage.keys().iter().enumerate().filter(|_| calibrated_at_first > 0);
        let is_rough: Vec<bool> = keys.map(|(i, &keys)| sizes.is_rough(PartitionId(i as u16), keys as u64)).collect();
        let mut guides = Guides { partitions, sizes, usage: &mut self.usage, sizes_of: SizesOf::Account };
        let mut kept: Vec<(Text, usize, PartitionId, u16)> = Vec::new();
        let (census, dbs) = (&mut self.times.census, &self.databases.sizes);
        let mut left = census.keys_left.min(at_once);
        while !dbs.is_empty() && census.steps_left > 0 && (left > 0 || kept.len() < calibrated) {
            census.steps_left -= 1;
            let (db, _) = dbs[census.steps_left as usize % dbs.len()];
            let visited = self.walk.step(server, db, &mut guides, |visit, _| {
                let wanted =
                    if is_rough.get(visit.partition.index()) == Some(&true) { calibrated_at_first } else { calibrated };
                if kept.len() < wanted && visit.key.kind() == Kind::String && visit.key.length() < LARGE_BYTES {
                    kept.push((visit.name.keep(), visit.key.length(), visit.partition, visit.db));
                }
            });
            left = left.saturating_sub(visited as u64);
            census.visit(visited as u64);
        }
        if dbs.is_empty() || census.steps_left == 0 {
            census.keys_left = 0;
        }
        for (name, length, partition, db) in kept {
            server.select_db(db);
            self.observer.sizes().calibrate(server, partition, name.as_ref(), length);
        }
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
