//! What is remembered of single keys, in the cache or not: the table of keys, and the accesses on their way into it.
//!
//! The filter notes each access in a ring (`core/src/access_ring.rs`), which is put into the table when it is full or
//! somebody asks. What is remembered depends on who needs it: classes alone, residence, or
//! what each key has shown, for Tenure's own. Cost: 16 bytes a key in the table, 5 in a compact entry; one cache line
//! an access.

use tenure_core::access_ring::{AccessRing, Kind, REQUESTS_PER_TICK};
use tenure_core::departure::{Cause, Departure};
use tenure_core::key_table::{BUCKET_BYTES, Entry, KeyTable};
use tenure_core::policy::density::Noise;
use tenure_core::tiers::placed::Placed;
use tenure_core::units::{KeyHash, PartitionId};

use super::classes::Class;
use super::command_table::Effect;
use super::misses::Filled;
use super::placements::{Noted, Placements};
use super::slow_collections::SlowCollections;

/// What is remembered of a key beside its class and penalty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remembers {
    /// Nothing, and no key whose class isn't known.
    #[default]
    Classes,
    /// How long and how often accessed each key of the cache is there.
    Residence,
    /// What each key has shown, in the cache or not, for Tenure's own policy.
    History,
}

/// Where a miss comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin {
    /// The key never was there, as far as is remembered, and nothing is forgotten that could say otherwise.
    First,
    /// Its time was over.
    Expired,
    /// It was evicted; by Tenure so many seconds ago, where that is remembered.
    Evicted(Option<f64>),
    /// A client removed it.
    Deleted,
    /// Too long ago to tell, or it has gone without a word.
    Unknown,
}

/// The table that is to be had for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it may take.
    pub bytes: u64,
    /// Half of it for what the other half has no place for: where neither classes nor tiers are to be remembered.
    pub has_compact_entries: bool,
}

impl Table {
    /// An empty one.
    pub fn new_keys(self) -> KeyTable {
        match self.has_compact_entries {
            true => KeyTable::with_compact_entries(self.bytes, REQUESTS_PER_TICK),
            false => KeyTable::new(self.bytes),
        }
    }

    /// True where `keys` is such a one.
    fn is_of(self, keys: &KeyTable) -> bool {
        let least = BUCKET_BYTES << u32::from(self.has_compact_entries);
        self.has_compact_entries == keys.has_compact_entries() && self.bytes / least * least == keys.memory_bytes()
    }
}

/// What is remembered of keys. See the file's opening.
#[derive(Debug, Default)]
pub struct Keys {
    /// Where nothing needs it there is none.
    pub table: Option<KeyTable>,
    remembers: Remembers,
    /// Accesses on their way into the table, where it holds what keys have shown.
    pub accesses: AccessRing<Noted>,
    /// Where there are two tiers of memory, who is accessed in which.
    pub placements: Option<Box<Placements>>,
    /// And whose collections lie in the slower one.
    pub slow_collections: SlowCollections,
    /// Keys that changed class, or were forgotten, maybe while they were in the cache.
    pub moved: u64,
    /// How far penalties tell keys apart.
    pub noise: Noise,
}

impl Keys {
    /// Nothing is remembered yet.
    pub fn new(table: Option<KeyTable>, remembers: Remembers) -> Self {
        Keys { table, remembers, ..Keys::default() }
    }

    /// The same with another `table`, and whether what was learned of keys is kept: where the table is as before, its
    /// classes mean the same, and its times are of the same clock.
    pub fn renewed(self, table: Option<Table>, remembers: Remembers, classes_mean_the_same: bool) -> (Self, bool) {
        let is_history = |remembers| remembers == Remembers::History;
        let is_same = |keys: &KeyTable| table.is_some_and(|table| table.is_of(keys));
        let may_keep = classes_mean_the_same && is_history(remembers) == is_history(self.remembers);
        let kept = self.table.filter(|keys| may_keep && is_same(keys));
        let is_kept = kept.is_some();
        let slow_collections = self.slow_collections;
        let keys = if is_kept {
            let (accesses, placements) = (self.accesses, self.placements);
            Keys { table: kept, remembers, accesses, placements, slow_collections, ..Keys::default() }
        } else {
            Keys { slow_collections, ..Keys::new(table.map(Table::new_keys), remembers) }
        };
        (keys, is_kept)
    }

    /// The class that is remembered of a key; 0 = none. One cache line.
    #[inline]
    pub fn class_of(&self, key: KeyHash) -> Class {
        self.table.as_ref().and_then(|keys| keys.get(key)).map_or(0, |entry| entry.class)
    }

    /// A miss of the key cost `penalty_us`, and `class_of` says what that makes of its class, from its smoothed
    /// penalty. Remembered where classes are measured, or more than classes is.
    pub fn learn(&mut self, key: KeyHash, penalty_us: u64, now: u32, class_of: impl Fn(Class, f32) -> Option<Class>) {
        let now = self.time(now);
        let Some(keys) = &mut self.table else { return };
        let displaced = keys.displaced();
        let entry = keys.get_or_insert(key, now);
        self.noise.measured(penalty_us as f32, entry.penalty_us());
        let smoothed_us = entry.learn_penalty(penalty_us as f32);
        if let Some(class) = class_of(entry.class, smoothed_us) {
            entry.class = class;
        }
        self.moved += keys.displaced() - displaced;
    }

    /// What is remembered beside classes.
    pub fn remembers(&self) -> Remembers {
        self.remembers
    }

    /// The key of that name is accessed, written or deleted; `filled` says what a write is to misses.
    #[inline]
    pub fn used(
        &mut self,
        (key, name): (KeyHash, &[u8]),
        place: (u16, PartitionId),
        effect: Effect,
        filled: Filled,
        now: u32,
    ) {
        if self.remembers == Remembers::History {
            let kind = match (effect, filled) {
                (Effect::Delete, _) => Kind::Deleted,
                (Effect::Change | Effect::Replace, Filled::Answers(answer)) if !answer.is_counted => Kind::Answered,
                (Effect::Change | Effect::Replace, Filled::Answers(_) | Filled::Late) => Kind::Filled,
                (Effect::Change | Effect::Replace, Filled::ByItself) => Kind::FilledItself,
                (Effect::Replace, Filled::New) => Kind::Replaced,
                (Effect::Read, _) | (Effect::Change, Filled::New) => Kind::Accessed,
            };
            return self.ask((key, name), place, effect, kind);
        }
        let Some(keys) = &mut self.table else { return };
        let displaced = keys.displaced();
        let entry = match effect {
            _ if effect.writes() && self.remembers == Remembers::Residence => Some(keys.get_or_insert(key, now)),
            _ => keys.get_mut(key),
        };
        let Some(entry) = entry else { return };
        entry.last = now;
        match effect {
            _ if effect.writes() && entry.n_requests == 0 => entry.enter(now),
            Effect::Delete if entry.n_requests > 0 => entry.leave(Departure::by(Cause::Deleted)),
            Effect::Delete => {}
            // What isn't there has 0 and keeps it.
            _ => entry.n_requests = entry.n_requests.saturating_add(u16::from(entry.n_requests > 0)),
        }
        self.moved += keys.displaced() - displaced;
    }

    /// The same where what keys have shown is remembered, and where there are two tiers, in which each key lies. Always
    /// inlined: every command comes by here, and a call takes as long as half of the work.
    #[inline(always)]
    fn ask(&mut self, (key, name): (KeyHash, &[u8]), place: (u16, PartitionId), effect: Effect, kind: Kind) {
        if self.table.is_none() || !self.accesses.is_on() {
            return;
        }
        let has_room = self.placements.as_ref().is_none_or(|placements| placements.has_room(name));
        if self.accesses.is_full() || !has_room {
            self.settle();
        }
        let noted = match &mut self.placements {
            Some(placements) => placements.note(key, name, place, effect),
            None => Noted::default(),
        };
        self.accesses.push(key, kind, noted);
    }

    /// While reads go unseen, a key is written: where its value lies has to be known all the same.
    pub fn stored(&mut self, key: KeyHash) {
        self.ask((key, b""), (0, PartitionId::default()), Effect::Replace, Kind::Stored);
    }

    /// The key's value lies there now. Who isn't remembered is from now on, as of whom nothing was seen since the
    /// clock goes.
    pub fn set_placed(&mut self, key: KeyHash, placed: Placed) {
        let since = self.accesses.clock().since as u32;
        let Some(keys) = &mut self.table else { return };
        let displaced = keys.displaced();
        let entry = keys.get_or_insert(key, since);
        entry.n_requests = entry.n_requests.max(1);
        entry.set_placed(placed);
        self.moved += keys.displaced() - displaced;
    }

    /// Accesses that wait are in the table from now on. A comparison, where there are none.
    #[inline]
    pub fn settle(&mut self) {
        if self.accesses.are_waiting() {
            self.settle_waiting();
        }
    }

    /// A turn is over. Where values lie in two tiers, what is slow and was read may have to move now; else accesses
    /// wait until they are many or asked about.
    #[inline]
    pub fn end_turn(&mut self) {
        if self.placements.is_some() {
            self.settle();
        }
    }

    #[inline(never)]
    fn settle_waiting(&mut self) {
        let Some(keys) = &mut self.table else { return };
        self.moved += match &mut self.placements {
            Some(placements) => self.accesses.settle_with(keys, &mut **placements),
            None => self.accesses.settle_with(keys, &mut ()),
        };
        if let Some(placements) = &mut self.placements {
            placements.settled();
        }
    }

    /// A read of the key has found nothing: why, as of `tick`.
    #[inline]
    pub fn missed(&mut self, key: KeyHash, tick: u32) -> Origin {
        self.settle();
        let Some(keys) = &mut self.table else { return Origin::Unknown };
        // The read itself is counted already, where it is noted at all.
        let counted = u16::from(self.remembers == Remembers::History && self.accesses.is_on());
        let (departure, is_known) = match keys.get_mut(key) {
            Some(entry) if entry.n_requests > counted => {
                // It has gone without a word.
                entry.leave(Departure::default());
                return Origin::Unknown;
            }
            Some(entry) => {
                entry.n_requests = 0;
                (entry.departure(), entry.history().n_requests() > u32::from(counted))
            }
            None => (keys.compact_departure(key).unwrap_or_default(), false),
        };
        let remembers_all = || self.remembers != Remembers::Classes && keys.forgets_nothing_of(key);
        match departure.cause() {
            Some(Cause::Evicted) => Origin::Evicted(departure.seconds_until(tick)),
            Some(Cause::Expired) => Origin::Expired,
            Some(Cause::Deleted) => Origin::Deleted,
            None if is_known || remembers_all() => Origin::First,
            None => Origin::Unknown,
        }
    }

    /// The time that entries are dated by: `now`, or Tenure's own clock.
    fn time(&self, now: u32) -> u32 {
        if self.remembers == Remembers::History { self.accesses.now() as u32 } else { now }
    }

    /// A key of the cache, of which `known` is remembered, was met at `now_us`, and wasn't used for `idle_ms` as the
    /// server has it. Where that tells of an access that went unseen, it is noted: its tick, and what is remembered of
    /// the key then.
    pub fn note_late(&mut self, known: (KeyHash, &Entry), (now_us, idle_ms): (u64, u64)) -> Option<(u64, Entry)> {
        let keys = self.table.as_mut().filter(|_| self.remembers == Remembers::History && self.accesses.is_on())?;
        let at = self.accesses.tick_before(now_us, idle_ms.saturating_mul(1000))?;
        let displaced = keys.displaced();
        let noted = self.accesses.note_late(keys, known, at);
        self.moved += keys.displaced() - displaced;
        noted.map(|known| (at, known))
    }

    /// The key has left the cache.
    #[inline]
    pub fn gone(&mut self, key: impl Fn() -> KeyHash, departure: Departure) {
        self.settle();
        self.slow_collections.remove(&key);
        let now = self.accesses.now() as u32;
        if let Some(keys) = &mut self.table {
            // A table of classes has no room for keys without one.
            keys.leave(key(), departure, now, self.remembers == Remembers::History);
        }
    }

    /// From now on the key is of `class`.
    pub fn set_class(&mut self, key: KeyHash, class: Class, now: u32) {
        let now = self.time(now);
        let Some(keys) = &mut self.table else { return };
        let displaced = keys.displaced();
        let entry = keys.get_or_insert(key, now);
        let changed = u64::from(std::mem::replace(&mut entry.class, class) != class);
        self.moved += keys.displaced() - displaced + changed;
    }

    /// On a replica: the clock goes as the primary's, by `ticks` more than was seen here. That has gone without a
    /// break for `unbroken` ticks.
    pub fn follow(&mut self, ticks: u64, unbroken: u64) {
        self.settle();
        self.accesses.follow(ticks, unbroken);
    }

    /// Takes over what another server remembers of a bucket's keys: histories, in a table like this one. `None` where
    /// it isn't.
    pub fn take_bucket(&mut self, bucket: usize, bytes: &[u8], class_here: impl Fn(Class) -> Class) -> Option<()> {
        self.settle();
        let keys = self.table.as_mut().filter(|_| self.remembers == Remembers::History)?;
        self.moved += keys.take_bucket(bucket, bytes, self.accesses.now() as u32, class_here)?;
        Some(())
    }

    /// Takes over what another server remembers of a key, in a table of as many buckets that isn't of histories.
    pub fn take_over(&mut self, bucket: usize, entry: Entry, now: u32) {
        let Some(keys) = self.table.as_mut().filter(|_| self.remembers != Remembers::History) else { return };
        let displaced = keys.displaced();
        let before = keys.put(bucket, entry, now);
        self.moved += keys.displaced() - displaced + u64::from(before.is_some_and(|class| class != entry.class));
    }

    /// What is remembered of a key.
    #[inline]
    pub fn entry(&self, key: KeyHash) -> Option<Entry> {
        self.table.as_ref().and_then(|keys| keys.recall(key, self.accesses.now() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::super::misses::Answer;
    use super::*;
    use tenure_core::tiers::Tier;

    #[test]
    fn a_table_with_compact_entries_stays_where_another_is_to_have_them_too() {
        let compacted = Table { bytes: 1 << 16, has_compact_entries: true };
        let mut keys = Keys::new(Some(compacted.new_keys()), Remembers::History);
        keys.learn(KeyHash::of(b"k"), 100, 0, |_, _| None);
        let (keys, is_kept) = keys.renewed(Some(compacted), Remembers::History, true);
        assert!(is_kept && keys.entry(KeyHash::of(b"k")).is_some());
        let full = Table { has_compact_entries: false, ..compacted };
        let (keys, is_kept) = keys.renewed(Some(full), Remembers::History, true);
        assert!(!is_kept && keys.entry(KeyHash::of(b"k")).is_none());
        assert_eq!(keys.table.map(|keys| (keys.has_compact_entries(), keys.memory_bytes())), Some((false, 1 << 16)));
    }

    /// A value that moved before anyone asked for it is known to lie there, also once it is accessed.
    #[test]
    fn what_moved_is_remembered_of_keys_that_nobody_asked_for() {
        let mut keys = Keys::new(Some(KeyTable::new(1 << 16)), Remembers::History);
        keys.accesses.turn(true);
        let (key, down) = (KeyHash::of(b"k"), Placed::moved(Tier::Slow, 3));
        keys.set_placed(key, down);
        assert_eq!(keys.entry(key).map(|entry| (entry.n_requests, entry.placed())), Some((1, down)));
        keys.used((key, b"k"), (0, PartitionId::default()), Effect::Read, Filled::New, 0);
        keys.settle();
        assert_eq!(keys.entry(key).map(|entry| entry.placed().tier()), Some(Tier::Slow));
    }

    /// A key that the server has used since is known to have been, while Tenure's own clock goes.
    #[test]
    fn what_the_server_has_used_unseen_is_noted() {
        let mut keys = Keys::new(Some(KeyTable::new(1 << 16)), Remembers::History);
        let [key, other] = [b"k", b"o"].map(|name| KeyHash::of(name));
        keys.accesses.turn(true);
        keys.used((key, b"k"), (0, PartitionId::default()), Effect::Read, Filled::New, 0);
        let now_us = 16 * REQUESTS_PER_TICK * 1_000_000;
        for at_us in (0..now_us).step_by(1_000_000) {
            keys.used((other, b"o"), (0, PartitionId::default()), Effect::Read, Filled::New, 0);
            keys.accesses.pace(at_us + 1_000_000);
        }
        keys.settle();
        let known = keys.entry(key).unwrap();
        let mut noted = |is_on| {
            keys.accesses.turn(is_on);
            keys.note_late((key, &known), (now_us, 2_000)).map(|(at, known)| (at, known.n_requests))
        };
        assert_eq!((noted(false), noted(true)), (None, Some((15, 2))));
    }

    /// A miss and its answer are one access, whether the miss was seen or not: here the second.
    #[test]
    fn a_miss_that_went_unseen_counts_with_its_answer() {
        let mut keys = Keys::new(Some(KeyTable::new(1 << 16)), Remembers::History);
        keys.accesses.turn(true);
        let place = (0, PartitionId::default());
        for (name, is_counted) in [(b"seen", true), (b"not.", false)] {
            let key = KeyHash::of(name);
            keys.used((key, name), place, Effect::Read, Filled::New, 0);
            keys.gone(|| key, Departure::by(Cause::Evicted));
            if is_counted {
                keys.used((key, name), place, Effect::Read, Filled::New, 0);
                keys.missed(key, 0);
            }
            let answer = Answer { penalty_us: 100, joined: 0, is_regretted: false, is_counted };
            keys.used((key, name), place, Effect::Replace, Filled::Answers(answer), 0);
            keys.settle();
            let shown = keys.entry(key).map(|entry| (entry.n_requests, entry.history().n_requests()));
            assert_eq!(shown, Some((1, 2)), "seen: {is_counted}");
        }
    }

    /// A write that goes unseen but for where its value lies: a new key is there, one that was deleted is again, and
    /// no time passes.
    #[test]
    fn what_is_written_among_unseen_reads_is_there() {
        let mut keys = Keys::new(Some(KeyTable::new(1 << 16)), Remembers::History);
        keys.accesses.turn(true);
        let key = KeyHash::of(b"k");
        for _ in 0..2 {
            keys.stored(key);
            keys.settle();
            assert_eq!(keys.entry(key).map(|entry| (entry.n_requests, entry.placed())), Some((1, Placed::default())));
            keys.set_placed(key, Placed::moved(Tier::Slow, 3));
            keys.stored(key);
            keys.gone(|| key, Departure::by(Cause::Deleted));
            assert_eq!(keys.entry(key).map(|entry| entry.n_requests), Some(0));
        }
        assert_eq!(keys.accesses.now(), 0);
    }
}
