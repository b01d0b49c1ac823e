//! The moves of one slice: which values go up, which go down, and where the walk finds them.

use std::time::Instant;

use tenure_core::key_table::Entry;
use tenure_core::policy::over_target::OverTarget;
use tenure_core::policy::pools::{Donor, PATIENCE, next_donor};
use tenure_core::tiers::placed::Placed;
use tenure_core::tiers::{Tier, Value};
use tenure_core::units::{KeyHash, PartitionId};

use super::mover::{Moved, allocated_bytes};
use super::{MoveContext, Tiers};
use crate::enforce::UNBOUNDED;
use crate::enforce::walk::{Guides, SizesOf, draw_db};
use crate::ffi::server::{Kind, Text};
use crate::observe::Observer;
use crate::observe::partitions::in_database;
use crate::observe::placements::{Placements, SlowRead};

/// Steps of the walk between two looks at the clock.
const STEPS_PER_LOOK: usize = 4;
/// Moves that fail in a row: enough for this turn.
const FAILURES_MAX: usize = 16;
/// Values that go up in one slice at the most.
const PROMOTIONS_MAX: usize = 16;
/// Moves after which who gives is decided anew.
const MOVES_PER_DONOR: usize = 16;

/// A value that may go down.
pub(super) struct Candidate {
    name: Text,
    db: u16,
    /// When it was last accessed; `None` where that isn't known.
    last: Option<u32>,
    /// Memory it took when it was met, in bytes.
    size_bytes: u32,
}

impl Tiers {
    /// What was read in the slow tier and is hot goes up, the hottest first, as far as there are room and time.
    pub(super) fn promote(&mut self, context: &mut MoveContext, placements: &mut Placements, started: Instant) {
        let has_spare = self.balance.has_spare();
        let hot = |read: SlowRead| {
            let size_bytes = context.observer.known_sizes().mean_bytes(read.partition);
            let value = known_slow(context.observer, read.key, read.partition, size_bytes)?;
            let value = Value { idle: 0, reuse: Some(read.reuse), ..value };
            let name = || context.server.text(read.name);
            placements.placer.wants_up(&value, context.table, has_spare).then(|| (read.key, read.db, name(), value))
        };
        let mut reads: Vec<SlowRead> = placements.slow_reads().collect();
        reads.sort_unstable_by_key(|read| read.reuse);
        let hot: Vec<_> = reads.into_iter().filter_map(hot).take(PROMOTIONS_MAX).collect();
        for (n, (hash, db, name, value)) in hot.into_iter().enumerate() {
            let is_over = n > 0 && Instant::now() >= context.until(started, n);
            if is_over || !self.balance.has_room() {
                return;
            }
            self.carry_out(context, placements, (hash, db, &name), value, Tier::Fast);
        }
    }

    /// The coldest of the fast values that are met go down, until enough is free.
    pub(super) fn demote(&mut self, context: &mut MoveContext, placements: &mut Placements, started: Instant) -> bool {
        let mut failures = 0;
        self.pools.set_sample_sizes(context.sample_size, &[]);
        let mut donor = None;
        for n in 0.. {
            let until = context.until(started, n);
            if self.balance.demote_bytes() == 0 || failures > FAILURES_MAX {
                return false;
            }
            if n > 0 && Instant::now() >= until {
                self.counts.slices_out_of_time += 1;
                return true;
            }
            if n % MOVES_PER_DONOR == 0 {
                donor = self.donor(context);
            }
            let Some(candidate) = donor.and_then(|donor| self.find(context, placements, donor, until)) else {
                return true;
            };
            let hash = in_database(KeyHash::of(candidate.name.as_ref()), candidate.db);
            let partition = context.observer.partitions.of(candidate.db, candidate.name.as_ref());
            let entry = context.observer.partitions.keys.entry(hash);
            let is_moved = entry.map(|entry| entry.last) == candidate.last && {
                let value = known(context.observer, hash, partition, Tier::Fast, candidate.size_bytes);
                let rank = placements.placer.rank(&value, context.table);
                let key = (hash, candidate.db, &candidate.name);
                let is_moved = self.carry_out(context, placements, key, value, Tier::Slow);
                if is_moved {
                    placements.placer.left(&value, rank);
                }
                is_moved
            };
            failures = if is_moved { 0 } else { failures + 1 };
        }
        false
    }

    /// Who gives the next.
    fn donor(&self, context: &MoveContext) -> Option<Donor> {
        let n = context.target_bytes.len();
        if n == 0 {
            return Some(Donor::Anyone);
        }
        let used_bytes = context.usage.bytes();
        let fast_bytes = self.fast_bytes_by_partition(&used_bytes[..n]);
        next_donor(&fast_bytes, context.target_bytes, &UNBOUNDED[..n], OverTarget::default, true)
    }

    /// The next to go down: the worst of those met, or one about as bad as those that went of late; `None` where none
    /// was met in time.
    fn find(
        &mut self,
        context: &mut MoveContext,
        placements: &mut Placements,
        donor: Donor,
        until: Instant,
    ) -> Option<Candidate> {
        let patience = PATIENCE * self.pools.sample_size(donor);
        let mut met = 0;
        for step in 0..2 * patience {
            if self.pools.will_do(donor, met)
                && let Some(candidate) = self.pools.take(donor)
            {
                return Some(candidate);
            }
            if step % STEPS_PER_LOOK == STEPS_PER_LOOK - 1 && Instant::now() >= until {
                break;
            }
            let mut as_bad = None;
            let gives = |partition| donor == Donor::Anyone || donor == Donor::Partition(partition);
            met += self.step(context, placements, gives, &mut as_bad, |_, _| {});
            if as_bad.is_some() {
                return as_bad;
            }
        }
        None
    }

    /// One step of the walk: what is met is offered, and what the table holds of it is put right. `as_bad` is a value
    /// of who gives that ranks about as low as those that went of late. `visit` sees each slow value where all of
    /// them go up.
    fn step(
        &mut self,
        context: &mut MoveContext,
        placements: &mut Placements,
        gives: impl Fn(PartitionId) -> bool,
        as_bad: &mut Option<Candidate>,
        mut visit: impl FnMut(&Value, (KeyHash, u16, Text)),
    ) -> usize {
        let Some(db) = draw_db(&mut self.random, context.db_sizes, |_| true) else { return 0 };
        let mut found: Vec<(KeyHash, Tier)> = Vec::new();
        let clock = context.observer.partitions.keys.accesses.clock();
        let (partitions, sizes, costs) = context.observer.guides();
        let tries_unknown = self.drain.tries_unknown(context.db_sizes);
        let sizes_of = if self.collections.refusal().is_none() { SizesOf::Collections } else { SizesOf::Account };
        let mut guides = Guides { partitions, sizes, usage: context.usage, sizes_of };
        let Tiers { mover, collections, pools, met, drain, .. } = self;
        let (table, is_draining) = (context.table, drain.is_on());
        let mut offered = 0;
        context.walk.step(context.server, db, &mut guides, |seen, keys| {
            let hash = || in_database(KeyHash::of(seen.name.as_ref()), seen.db);
            let string = || Some((mover.tier_of(seen.key)?, allocated_bytes(seen.key.length()) as u32));
            let collection = || collections.tier_of(&keys.slow_collections, seen.key, hash(), seen.size_bytes?);
            let Some((tier, size_bytes)) = string().or_else(collection) else { return };
            let is_collection = seen.key.kind() == Kind::Collection;
            let hash = hash();
            let entry = keys.entry(hash);
            let (feature, _) = costs.of(entry.as_ref(), seen.partition, clock.ticks_per_us);
            let value =
                Value { feature, ..value_of(entry.as_ref(), seen.partition, size_bytes, tier, clock.now, clock.since) };
            met[seen.partition.index()].add(tier, size_bytes);
            if entry.is_some_and(|entry| entry.placed().tier() != tier) {
                found.push((hash, tier));
            }
            placements.placer.met(&value, table);
            if is_draining && (tier == Tier::Slow || (is_collection && tries_unknown)) {
                let value = Value { placed: value.placed.found_in(Tier::Slow), ..value };
                visit(&value, (hash, seen.db, seen.name.keep()));
            }
            if tier == Tier::Fast && !is_draining {
                offered += 1;
                let last = entry.map(|entry| entry.last);
                let rank = placements.placer.rank(&value, table);
                let candidate = || Candidate { name: seen.name.keep(), db: seen.db, last, size_bytes };
                if as_bad.is_none() && gives(seen.partition) && placements.placer.may_leave(&value, rank) {
                    *as_bad = Some(candidate());
                } else {
                    pools.offer(seen.partition, rank, candidate);
                }
            }
        });
        for (hash, tier) in found {
            put_right(context.observer, hash, |placed| placed.found_in(tier));
        }
        offered
    }

    /// Moves what the walk meets up, until nothing is slow.
    pub(super) fn drain(&mut self, context: &mut MoveContext, placements: &mut Placements, started: Instant) -> bool {
        for step in 0.. {
            let before = (self.counts.promoted, context.walk.visited);
            let looks = step % STEPS_PER_LOOK == STEPS_PER_LOOK - 1;
            if self.slow_bytes() == 0 || (looks && started.elapsed() >= context.budget) {
                break;
            }
            let mut slow = Vec::new();
            self.step(context, placements, |_| false, &mut None, |value, key| slow.push((*value, key)));
            for (value, (hash, db, name)) in slow {
                self.carry_out(context, placements, (hash, db, &name), value, Tier::Fast);
            }
            self.drain.met(context.walk.visited - before.1, self.counts.promoted > before.0);
        }
        self.slow_bytes() > 0
    }

    /// Moves one value, and remembers where it is.
    fn carry_out(
        &mut self,
        context: &mut MoveContext,
        placements: &mut Placements,
        (hash, db, name): (KeyHash, u16, &Text),
        value: Value,
        tier: Tier,
    ) -> bool {
        let started = Instant::now();
        context.server.select_db(db);
        let proof = context.server.proof();
        let mut key = context.server.open(name);
        let moved = if key.kind() == Kind::Collection {
            drop(key);
            let slow = &mut context.observer.partitions.keys.slow_collections;
            self.collections.move_to(slow, context.server, (hash, name), tier)
        } else {
            context.observer.partitions.keys.slow_collections.remove(|| hash);
            self.mover.move_to(&proof, &mut key, tier)
        };
        match moved {
            Moved::There(bytes) => {
                self.counts.move_ns += started.elapsed().as_nanos() as u64;
                self.counts.moved_bytes += bytes;
                let (count, bytes) = match tier {
                    Tier::Slow => (&mut self.counts.demoted, bytes as i64),
                    Tier::Fast => (&mut self.counts.promoted, -(bytes as i64)),
                };
                *count += 1;
                self.balance.moved_down(bytes);
                let value = Value { size_bytes: bytes.unsigned_abs() as u32, ..value };
                let placed = placements.placer.moved(&value);
                context.observer.partitions.keys.set_placed(hash, placed);
                true
            }
            Moved::Already => {
                put_right(context.observer, hash, |placed| placed.found_in(tier));
                false
            }
            Moved::Stray => {
                self.counts.strays += 1;
                false
            }
            Moved::Unfit => false,
        }
    }

    /// Moves one key's value, for tests. What became of it, as text.
    pub fn move_key(&mut self, context: &mut MoveContext, db: u16, name: &[u8], tier: Tier) -> String {
        self.collections.begin_slice();
        context.observer.partitions.keys.settle();
        let Some(mut placements) = context.observer.partitions.keys.placements.take() else {
            return "off".to_owned();
        };
        let name = context.server.text(name);
        let hash = in_database(KeyHash::of(name.as_ref()), db);
        let partition = context.observer.partitions.of(db, name.as_ref());
        let from = if tier == Tier::Fast { Tier::Slow } else { Tier::Fast };
        let value = known(context.observer, hash, partition, from, 0);
        let is_moved = self.carry_out(context, &mut placements, (hash, db, &name), value, tier);
        context.observer.partitions.keys.placements = Some(placements);
        if is_moved { "moved" } else { "not moved" }.to_owned()
    }
}

fn value_of(entry: Option<&Entry>, partition: PartitionId, size_bytes: u32, tier: Tier, now: u64, since: u64) -> Value {
    Value {
        partition,
        size_bytes,
        // Who isn't remembered was not asked for since the clock goes.
        idle: entry.map_or(now.saturating_sub(since), |entry| u64::from((now as u32).wrapping_sub(entry.last))),
        reuse: entry.and_then(|entry| entry.history().gap_ticks()).map(|gap| gap as u64),
        feature: Default::default(),
        placed: entry.map_or(Placed::default(), Entry::placed).found_in(tier),
    }
}

/// What is known of a slow value; `None` where its key isn't remembered as that of one.
fn known_slow(observer: &Observer, hash: KeyHash, partition: PartitionId, size_bytes: u32) -> Option<Value> {
    let is_slow = observer.partitions.keys.entry(hash).is_some_and(|entry| entry.placed().tier() == Tier::Slow);
    is_slow.then(|| known(observer, hash, partition, Tier::Slow, size_bytes))
}

/// What is known of a value, remembered or not.
fn known(observer: &Observer, hash: KeyHash, partition: PartitionId, tier: Tier, size_bytes: u32) -> Value {
    let keys = &observer.partitions.keys;
    let (entry, clock) = (keys.entry(hash), keys.accesses.clock());
    let (feature, _) = observer.misses.costs.of(entry.as_ref(), partition, clock.ticks_per_us);
    Value { feature, ..value_of(entry.as_ref(), partition, size_bytes, tier, clock.now, clock.since) }
}

/// Changes what the table knows of where a value lies.
fn put_right(observer: &mut Observer, hash: KeyHash, change: impl FnOnce(Placed) -> Placed) {
    if let Some(entry) = observer.partitions.keys.table.as_mut().and_then(|keys| keys.get_mut(hash)) {
        entry.set_placed(change(entry.placed()));
    }
}
