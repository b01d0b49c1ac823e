//! Falling asleep: a sweep meets the keys of partitions that are to, their values are written, and where a value is
//! still what was written its key leaves the server.

use tenure_core::departure::Departure;
use tenure_core::units::KeyHash;

use super::file::{Place, Record};
use super::rhythms::ROUNDS;
use super::sleepers::Sleeper;
use super::{Pending, SleepContext, SleepState, Spill, UNDER_WAY_MAX, may_change_keys};
use crate::ffi::server::{Kind, Server, Text};
use crate::observe::partitions::in_database;

/// Values above this are left to eviction: to write one as `DUMP` does would hold the server up for a millisecond.
pub(super) const VALUE_BYTES_MAX: usize = 128 << 10;
/// Steps of the walk between two looks at the clock.
const STEPS_PER_LOOK: usize = 8;

impl Spill {
    /// Keys of partitions that fall asleep, as a sweep meets them.
    pub(super) fn fall_asleep_some(&mut self, context: &mut SleepContext, is_over: impl Fn() -> bool) {
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
    pub(super) fn end_sweep(&mut self, context: &SleepContext) -> bool {
        let next = self.sweep.end();
        let none_falls = self.rhythms.end_round(next);
        if !none_falls {
            self.sweep.begin(context.server, context.db_sizes);
        }
        none_falls
    }

    /// One step of the sweep: a database and the names of those of its keys that are to fall asleep. `None` at the end.
    pub(super) fn meet(&mut self, context: &mut SleepContext) -> Option<(u16, Vec<Text>)> {
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
    pub(super) fn write(&mut self, context: &mut SleepContext, db: u16, name: &Text) {
        let hash = in_database(KeyHash::of(name.as_ref()), db);
        context.server.select_db(db);
        let key = context.server.open(name);
        let partition = context.observer.partitions.of(db, name.as_ref());
        let size_bytes = context.observer.sizes().of(partition, name, || hash, &key) as usize;
        let is_large = size_bytes > VALUE_BYTES_MAX;
        let may_sleep = context.slots.let_sleep(&context.observer.served, name.as_ref());
        if key.kind() == Kind::Absent || is_large || !may_sleep || self.pending.contains_key(&hash.0) {
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
    pub(super) fn written(&mut self, context: &mut SleepContext, key: KeyHash, place: Place) {
        let SleepContext { server, observer, touches, usage, slots, .. } = context;
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
        if server.writes_are_paused() || !slots.let_sleep(&observer.served, &pending.name) {
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
}

/// The record of a key as it is now.
pub(super) fn record_of(server: &mut Server, pending: &Pending) -> Option<Vec<u8>> {
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
