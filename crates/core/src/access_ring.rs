//! Who is accessed, under Tenure's own policy: accesses on their way into the table of keys, and the clock that they
//! are dated by.
//!
//! The clock counts requests, in ticks of eight, as the simulator counts them: a stream that slows down at night
//! makes no key older, and 32 bits of it last for 34 billion requests. While memory is far from its limit it stands
//! still, and the table isn't touched. Accesses wait in a small ring until it is full, or a key's end or who asks about
//! a key has to find them done. Then one word of each of their cache lines is read before any of them is
//! worked on, so that the waits for memory overlap. Cost: `benches/access_ring.rs`. 512 bytes.

use crate::departure::{Cause, Departure};
use crate::key_table::{Entry, KeyTable};
use crate::policy::density::History;
use crate::tiers::placed::Placed;
use crate::timeline::Timeline;
use crate::units::KeyHash;

/// Requests in a tick.
pub const REQUESTS_PER_TICK: u64 = 8;
/// Accesses that wait at the most.
const PENDING: usize = 32;
/// An access that went unseen is noted where it makes a key so many times younger than it was taken to be.
const YOUNGER: u64 = 8;
/// The pace is that of the last so many µs.
const PACE_OVER_US: f64 = 10e6;

/// What an access is to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read, or a change of what is there: the key is accessed, and there afterwards unless a miss says otherwise.
    Accessed,
    /// The same by a write that replaces whatever is there, and answers no miss.
    Replaced,
    /// The write that answers a miss, which was counted already.
    Filled,
    /// The same of a miss that went unseen: both are one access.
    Answered,
    /// The write of a command that has missed itself, as `SET … GET` does: nobody has waited for it.
    FilledItself,
    /// A delete.
    Deleted,
    /// A write while reads go unseen. The key is there, but the clock stands still and it counts as no request: else
    /// what is written would look hotter than what is read.
    Stored,
}

impl Kind {
    fn moves_clock(self) -> bool {
        !matches!(self, Kind::Filled | Kind::FilledItself | Kind::Stored)
    }
}

/// What else is to be done with each access, on the same look at the table, with what the caller noted of it.
pub trait Beside<B> {
    /// A key that is in the cache is accessed at `tick`; its entry is as it was before.
    fn before(&mut self, key: KeyHash, entry: &mut Entry, tick: u32, noted: &B);

    /// The access is in its entry.
    fn after(&mut self, entry: &mut Entry, noted: &B);
}

/// Nothing else.
impl<B> Beside<B> for () {
    fn before(&mut self, _: KeyHash, _: &mut Entry, _: u32, _: &B) {}

    fn after(&mut self, _: &mut Entry, _: &B) {}
}

#[derive(Clone, Copy, Debug)]
struct Pending<B> {
    key: KeyHash,
    tick: u32,
    kind: Kind,
    beside: B,
}

/// What the clock says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// The time, in ticks.
    pub now: u64,
    /// The tick since when it has gone without a break: what isn't remembered wasn't asked for since then, or its
    /// place was taken.
    pub since: u64,
    /// Ticks a µs, of late; 0 = not known.
    pub ticks_per_us: f64,
}

impl Clock {
    /// The tick, after `at`, at which `left_us` will have passed, at the pace of late; `u64::MAX` where that isn't
    /// known.
    pub fn tick_after(&self, at: u64, left_us: u64) -> u64 {
        if self.ticks_per_us == 0.0 {
            return u64::MAX;
        }
        at.saturating_add(((left_us as f64 * self.ticks_per_us) as u64).max(1))
    }
}

/// The ring and the clock; of each access the caller may note something `B`. See the file's opening.
#[derive(Debug)]
pub struct AccessRing<B = ()> {
    pending: Vec<Pending<B>>,
    requests: u64,
    /// The clock goes.
    is_on: bool,
    since: u64,
    ticks_per_us: f64,
    /// Ticks and time when the pace was last looked at.
    paced: (u64, u64),
    timeline: Timeline,
}

impl<B> Default for AccessRing<B> {
    fn default() -> Self {
        AccessRing {
            pending: Vec::with_capacity(PENDING),
            requests: 0,
            is_on: false,
            since: 0,
            ticks_per_us: 0.0,
            paced: (0, 0),
            timeline: Timeline::default(),
        }
    }
}

impl AccessRing {
    /// Nobody was accessed yet, and the clock stands.
    pub fn new() -> Self {
        AccessRing::default()
    }

    /// An access, dated now. Returns how many keys the table has forgotten over it.
    #[inline]
    pub fn note(&mut self, keys: &mut KeyTable, key: KeyHash, kind: Kind) -> u64 {
        let forgotten = if self.is_full() { self.settle(keys) } else { 0 };
        self.push(key, kind, ());
        forgotten
    }

    /// As [`AccessRing::settle_with`], and nothing else.
    pub fn settle(&mut self, keys: &mut KeyTable) -> u64 {
        self.settle_with(keys, &mut ())
    }
}

impl<B: Copy> AccessRing<B> {
    /// The time, in ticks.
    #[inline]
    pub fn now(&self) -> u64 {
        self.requests / REQUESTS_PER_TICK
    }

    /// Another clock, which this one goes by, has gone on by `ticks`, and without a break for `unbroken` by now.
    pub fn follow(&mut self, ticks: u64, unbroken: u64) {
        self.requests += ticks * REQUESTS_PER_TICK;
        self.since = self.now().saturating_sub(unbroken);
    }

    /// True while the clock goes.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Starts or stops the clock.
    pub fn turn(&mut self, on: bool) {
        if on && !self.is_on {
            self.since = self.now();
        }
        self.is_on = on;
    }

    /// True where what waits has to be put into the table before another access is noted.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.pending.len() >= PENDING
    }

    /// An access, dated now; reads, writes and deletes that are seen move the clock. Not where the ring
    /// [`is full`](AccessRing::is_full): what is pushed then is not noted.
    #[inline]
    pub fn push(&mut self, key: KeyHash, kind: Kind, beside: B) {
        self.requests += u64::from(kind.moves_clock());
        debug_assert!(!self.is_full());
        if self.pending.len() < self.pending.capacity() {
            self.pending.push(Pending { key, tick: self.now() as u32, kind, beside });
        }
    }

    /// A key came into being. Where the last access was of it, that was a write, and there was nothing to ask for
    /// before.
    #[inline]
    pub fn created(&mut self, key: impl FnOnce() -> KeyHash) {
        if let Some(last) = self.pending.last_mut().filter(|last| last.kind == Kind::Accessed)
            && last.key == key()
        {
            last.kind = Kind::Replaced;
        }
    }

    /// True where accesses wait.
    #[inline]
    pub fn are_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Puts what waits into the table, with something to do `beside`. Returns how many keys that has forgotten over it.
    #[inline(never)]
    pub fn settle_with(&mut self, keys: &mut KeyTable, beside: &mut impl Beside<B>) -> u64 {
        let displaced = keys.displaced();
        let fading = keys.fading() * REQUESTS_PER_TICK as f32;
        keys.warm_all(self.pending.iter().map(|pending| pending.key));
        for pending in &self.pending {
            apply(keys, pending, fading, beside);
        }
        self.pending.clear();
        keys.displaced() - displaced
    }

    /// A key of the cache, of which `known` is remembered, was last accessed at `tick`, as the server's own clock has
    /// it. Where that makes it younger by far, an access went unseen, and is noted as a read: what is remembered then.
    pub fn note_late(&self, keys: &mut KeyTable, (key, known): (KeyHash, &Entry), tick: u64) -> Option<Entry> {
        let rounded_by = if keys.get(key).is_none() { keys.epoch_ticks() } else { 0 };
        let latest = tick.saturating_sub(u64::from(rounded_by));
        if known.n_requests == 0 || !is_far_younger(known, latest, self.now()) {
            return None;
        }
        let (tick, fading) = (tick as u32, keys.fading() * REQUESTS_PER_TICK as f32);
        let entry = keys.get_or_insert_by_history(key, self.now() as u32);
        let gap = u64::from(tick.wrapping_sub(entry.last));
        entry.set_history(entry.history().accessed(gap, tick, fading));
        entry.last = tick;
        entry.n_requests = entry.n_requests.saturating_add(1);
        Some(*entry)
    }

    /// The tick of `us_ago` before `now_us`; `None` where the clock didn't go yet.
    pub fn tick_before(&self, now_us: u64, us_ago: u64) -> Option<u64> {
        self.timeline.tick_at(now_us.checked_sub(us_ago)?, (now_us, self.now()))
    }

    /// Ten times a second: how fast the clock goes.
    pub fn pace(&mut self, now_us: u64) {
        let now = self.now();
        self.timeline.note(now_us, now);
        let (ticks, at_us) = std::mem::replace(&mut self.paced, (now, now_us));
        let elapsed_us = now_us.saturating_sub(at_us) as f64;
        if at_us == 0 || elapsed_us == 0.0 {
            return;
        }
        let pace = (now - ticks) as f64 / elapsed_us;
        let weight = if self.ticks_per_us == 0.0 { 1.0 } else { (elapsed_us / PACE_OVER_US).min(1.0) };
        self.ticks_per_us += weight * (pace - self.ticks_per_us);
    }

    /// What the clock says.
    pub fn clock(&self) -> Clock {
        Clock { now: self.now(), since: self.since, ticks_per_us: self.ticks_per_us }
    }
}

/// Whether a key that was last accessed at `tick` is younger by far than `known` has it. Soon after another, an access
/// tells little that isn't known.
#[inline]
pub fn is_far_younger(known: &Entry, tick: u64, now: u64) -> bool {
    let known_age = u64::from((now as u32).wrapping_sub(known.last));
    YOUNGER * now.saturating_sub(tick) < known_age
}

/// One access, in the table.
#[inline]
fn apply<B>(keys: &mut KeyTable, pending: &Pending<B>, fading: f32, beside: &mut impl Beside<B>) {
    let &Pending { key, tick, kind, beside: ref noted } = pending;
    if kind == Kind::Deleted {
        if let Some(entry) = keys.get_mut(key)
            && entry.n_requests > 0
        {
            entry.leave(Departure::by(Cause::Deleted));
        }
        return;
    }
    let entry = keys.get_or_insert_by_history(key, tick);
    let is_there = entry.n_requests > 0;
    if is_there {
        beside.before(key, entry, tick, noted);
    }
    match kind {
        Kind::Accessed | Kind::Replaced | Kind::Answered => {
            let (history, gap) = (entry.history(), u64::from(tick.wrapping_sub(entry.last)));
            entry.set_history(match kind {
                Kind::Replaced => history.replaced(gap, tick, fading),
                _ => history.accessed(gap, tick, fading),
            });
            // Of one that isn't there it stays known how it left until a miss has asked; as a stamp it is one of long
            // ago.
            if is_there {
                entry.set_placed(entry.placed().accessed());
            }
            entry.last = tick;
            if kind == Kind::Answered {
                // What is remembered as there had gone without a word.
                entry.n_requests = 0;
                entry.set_placed(Placed::default());
            }
            entry.n_requests = entry.n_requests.saturating_add(1);
        }
        Kind::Stored if is_there => {}
        Kind::Filled | Kind::FilledItself | Kind::Stored => {
            entry.n_requests = 1;
            entry.set_placed(Placed::default());
            if kind == Kind::FilledItself && entry.history().n_requests() <= 1 {
                entry.set_history(History::default().replaced(0, tick, fading));
            }
            // Its miss may have been forgotten meanwhile.
            if entry.history() == History::default() {
                entry.set_history(History::default().accessed(0, tick, fading));
            }
        }
        Kind::Deleted => {}
    }
    beside.after(entry, noted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::Tier;

    fn accessed() -> (AccessRing, KeyTable) {
        let mut accesses = AccessRing::new();
        accesses.turn(true);
        (accesses, KeyTable::new(1 << 16))
    }

    /// AccessRing for at ticks 0, 1 and 3: gaps of 1 and 2, whose logarithms 0 and 1 have the mean 0.5.
    #[test]
    fn a_key_is_known_by_its_requests_and_ghosts_are_too() {
        let (mut accesses, mut keys) = accessed();
        let key = KeyHash::of_number(1);
        for at in 0..=24 {
            let number = if [0, 8, 24].contains(&at) { 1 } else { 1000 + at };
            accesses.note(&mut keys, KeyHash::of_number(number), Kind::Accessed);
        }
        accesses.settle(&mut keys);
        let entry = *keys.get(key).unwrap();
        assert_eq!((entry.history().gap_ticks(), entry.last, entry.n_requests), (Some(2_f32.sqrt()), 3, 3));
        accesses.note(&mut keys, key, Kind::Deleted);
        accesses.settle(&mut keys);
        assert_eq!(keys.get(key).map(|e| (e.n_requests, e.history())), Some((0, entry.history())));
    }

    /// A hash or a counter is written once by what makes it, and asked for by what changes it then.
    #[test]
    fn what_makes_a_key_asks_for_nothing() {
        let (mut accesses, mut keys) = accessed();
        let [made, changed, other] = [1, 2, 3].map(KeyHash::of_number);
        let feature = |keys: &KeyTable, key| keys.get(key).unwrap().history().feature(0).to_string();
        for key in [made, changed] {
            accesses.note(&mut keys, key, Kind::Accessed);
            accesses.created(|| if key == made { made } else { other });
        }
        accesses.settle(&mut keys);
        accesses.created(|| changed);
        assert_eq!([feature(&keys, made), feature(&keys, changed)], ["written once, group 0", "once, group 0"]);
        for at in 0..8 {
            accesses.note(&mut keys, if at == 7 { made } else { other }, Kind::Accessed);
        }
        accesses.settle(&mut keys);
        assert_eq!(feature(&keys, made), "2 times, every 2^0 ticks");
    }

    /// Nobody counted the miss: it is an access of the key, and whatever was known to be there is no more.
    #[test]
    fn the_answer_to_a_miss_that_went_unseen_is_an_access() {
        let (mut accesses, mut keys) = accessed();
        let [new, evicted, held] = [1, 2, 3].map(KeyHash::of_number);
        for key in [evicted, held, held] {
            accesses.note(&mut keys, key, Kind::Accessed);
        }
        accesses.settle(&mut keys);
        keys.leave(evicted, Departure::by(Cause::Evicted), 0, true);
        keys.get_mut(held).unwrap().set_placed(Placed::moved(Tier::Slow, 3));
        let before = accesses.requests;
        for key in [new, evicted, held] {
            accesses.note(&mut keys, key, Kind::Answered);
            accesses.created(|| key);
        }
        accesses.settle(&mut keys);
        assert_eq!(accesses.requests, before + 3);
        let entries = [new, evicted, held].map(|key| *keys.get(key).unwrap());
        assert_eq!(entries.map(|entry| (entry.n_requests, entry.history().n_requests())), [(1, 1), (1, 2), (1, 3)]);
        assert!(entries.iter().all(|entry| entry.placed() == Placed::default()));
        assert_eq!(entries[0].history().feature(0).to_string(), "once, group 0", "it was asked for");
    }

    /// A command that looks at what it replaces: a key of which nothing was known is as one that was written.
    #[test]
    fn who_misses_and_writes_in_one_go_has_asked_for_nothing() {
        let (mut accesses, mut keys) = accessed();
        let [new, known] = [1, 2].map(KeyHash::of_number);
        (0..2).for_each(|_| _ = accesses.note(&mut keys, known, Kind::Accessed));
        accesses.settle(&mut keys);
        keys.leave(known, Departure::by(Cause::Deleted), 0, true);
        for key in [new, known] {
            accesses.note(&mut keys, key, Kind::Accessed);
            accesses.settle(&mut keys);
            keys.get_mut(key).unwrap().n_requests = 0;
            let before = accesses.requests;
            accesses.note(&mut keys, key, Kind::FilledItself);
            assert_eq!(accesses.requests, before);
        }
        accesses.settle(&mut keys);
        let entries = [new, known].map(|key| *keys.get(key).unwrap());
        assert_eq!(entries[0].history().feature(0).to_string(), "written once, group 0");
        assert_eq!(entries.map(|entry| (entry.n_requests, entry.history().n_requests())), [(1, 1), (1, 3)]);
    }

    /// A miss and its answer are one request.
    #[test]
    fn an_answer_is_no_request() {
        let (mut accesses, mut keys) = accessed();
        let key = KeyHash::of_number(1);
        accesses.note(&mut keys, key, Kind::Accessed);
        accesses.settle(&mut keys);
        keys.get_mut(key).unwrap().n_requests = 0;
        let before = accesses.requests;
        accesses.note(&mut keys, key, Kind::Filled);
        accesses.settle(&mut keys);
        let entry = keys.get(key).unwrap();
        assert_eq!((accesses.requests, entry.n_requests, entry.history().n_requests()), (before, 1, 1));
    }

    /// A write that replaces what is there asks for nothing, and one that changes it does. What answers a miss was
    /// asked for.
    #[test]
    fn who_was_asked_for_is_remembered() {
        let (mut accesses, mut keys) = accessed();
        let mut shown = |number, kinds: &[Kind]| {
            kinds.iter().for_each(|&kind| _ = accesses.note(&mut keys, KeyHash::of_number(number), kind));
            accesses.settle(&mut keys);
            keys.get(KeyHash::of_number(number)).unwrap().history().feature(0).to_string()
        };
        assert_eq!(shown(1, &[Kind::Replaced]), "written once, group 0");
        assert_eq!(shown(1, &[Kind::Replaced]), "written 2 times");
        assert_eq!(shown(1, &[Kind::Accessed]), "3 or 4 times, every 2^0 ticks");
        assert_eq!(shown(2, &[Kind::Accessed, Kind::Filled]), "once, group 0");
        assert_eq!(shown(3, &[Kind::Filled]), "once, group 0");
    }

    /// Known from tick 0 on, and 1,000 ticks old: the server has it 200 ticks old, which tells little, and 100, which
    /// is noted once. A compact entry may be an epoch older than the key is.
    #[test]
    fn an_access_that_went_unseen_is_noted_where_a_key_is_far_younger() {
        let (mut accesses, mut keys) = (accessed().0, KeyTable::with_compact_entries(1 << 14, REQUESTS_PER_TICK));
        let [key, gone] = [1, 2].map(KeyHash::of_number);
        [key, gone].iter().for_each(|&key| _ = accesses.note(&mut keys, key, Kind::Accessed));
        accesses.settle(&mut keys);
        keys.leave(gone, Departure::by(Cause::Evicted), 0, true);
        let known = [key, gone].map(|key| *keys.get(key).unwrap());
        accesses.requests = 1_000 * REQUESTS_PER_TICK;
        let mut noted = |key, known: &Entry, tick| accesses.note_late(&mut keys, (key, known), tick);
        assert_eq!((noted(key, &known[0], 800), noted(gone, &known[1], 900)), (None, None));
        let new = noted(key, &known[0], 900).unwrap();
        assert_eq!((new.last, new.n_requests, new.history().n_requests()), (900, 2, 2));
        assert_eq!(noted(key, &new, 900), None);

        let (other, compact) = (KeyHash::of_number(3), known[0]);
        accesses.requests = REQUESTS_PER_TICK << 20;
        let [far, rounded] = [1 << 16, (1 << 17) - 1].map(|age| (1 << 20) - age);
        assert!(keys.epoch_ticks() > 1);
        let noted = [rounded, far].map(|tick| accesses.note_late(&mut keys, (other, &compact), tick).is_some());
        assert_eq!(noted, [false, true]);
    }

    /// A clock that stood while nobody came tells which tick it was then.
    #[test]
    fn a_time_past_is_told_in_ticks() {
        let (mut accesses, _) = accessed();
        accesses.pace(1_000_000);
        accesses.requests = 100 * REQUESTS_PER_TICK;
        accesses.pace(2_000_000);
        accesses.pace(12_000_000);
        let before = |us_ago| accesses.tick_before(12_000_000, us_ago);
        assert_eq!([0, 9_000_000, 10_500_000, 11_500_000].map(before), [Some(100), Some(100), Some(50), None]);
    }

    /// A value that went down is accessed there; filled anew it is a newcomer to the fast tier.
    #[test]
    fn where_a_value_lies_outlasts_a_request_and_no_fill() {
        let (mut accesses, mut keys) = accessed();
        let key = KeyHash::of_number(1);
        let mut after = |keys: &mut KeyTable, kind| {
            accesses.note(keys, key, kind);
            accesses.settle(keys);
            keys.get(key).unwrap().placed()
        };
        let down = Placed::moved(Tier::Slow, 7);
        assert_eq!(after(&mut keys, Kind::Accessed), Placed::default());
        keys.get_mut(key).unwrap().set_placed(down);
        assert_eq!(after(&mut keys, Kind::Accessed), down.accessed());
        assert_eq!(after(&mut keys, Kind::Filled), Placed::default());
        keys.get_mut(key).unwrap().set_placed(down);
        after(&mut keys, Kind::Deleted);
        let back = after(&mut keys, Kind::Accessed);
        assert_eq!((back.tier(), back.was_asked()), (Tier::Fast, false));
    }

    /// While reads go unseen a write makes nobody hotter and no time pass, and what is new is there.
    #[test]
    fn a_write_that_is_no_request_leaves_clock_and_history_alone() {
        let (mut accesses, mut keys) = accessed();
        let (held, new) = (KeyHash::of_number(1), KeyHash::of_number(2));
        for _ in 0..8 {
            accesses.note(&mut keys, held, Kind::Accessed);
        }
        accesses.settle(&mut keys);
        let (before, now) = (*keys.get(held).unwrap(), accesses.now());
        for key in [held, new, new] {
            accesses.note(&mut keys, key, Kind::Stored);
        }
        accesses.settle(&mut keys);
        assert_eq!((*keys.get(held).unwrap(), accesses.now()), (before, now));
        let entry = keys.get(new).unwrap();
        assert_eq!((entry.n_requests, entry.last, entry.history().n_requests()), (1, now as u32, 1));
    }

    /// Of an access to a key that is there the entry is shown as it was and as it is.
    #[test]
    fn each_access_is_looked_at_before_and_after() {
        #[derive(Default)]
        struct Seen(Vec<(char, u32, u16)>);
        impl Beside<u32> for Seen {
            fn before(&mut self, _: KeyHash, entry: &mut Entry, tick: u32, noted: &u32) {
                self.0.push(('b', noted + tick - entry.last, entry.n_requests));
            }
            fn after(&mut self, entry: &mut Entry, noted: &u32) {
                self.0.push(('a', *noted, entry.n_requests));
            }
        }
        let (mut accesses, mut keys, mut seen) = (AccessRing::default(), KeyTable::new(1 << 16), Seen::default());
        for (noted, kind) in [(10, Kind::Accessed), (20, Kind::Accessed), (30, Kind::Deleted)] {
            accesses.push(KeyHash::of_number(1), kind, noted);
            (0..7).for_each(|_| accesses.push(KeyHash::of_number(2), Kind::Deleted, 0));
        }
        accesses.settle_with(&mut keys, &mut seen);
        assert_eq!(seen.0, [('a', 10, 1), ('b', 21, 1), ('a', 20, 2)]);
    }

    #[test]
    fn what_waits_is_put_in_when_the_ring_is_full() {
        let (mut accesses, mut keys) = accessed();
        for i in 0..=PENDING as u64 {
            accesses.note(&mut keys, KeyHash::of_number(i), Kind::Accessed);
        }
        assert_eq!((keys.len(), accesses.pending.len()), (PENDING, 1));
    }

    #[test]
    fn the_pace_is_ticks_a_microsecond() {
        let (mut accesses, mut keys) = accessed();
        accesses.pace(1_000_000);
        for i in 0..8000 {
            accesses.note(&mut keys, KeyHash::of_number(i), Kind::Accessed);
        }
        accesses.pace(1_100_000);
        assert!((accesses.clock().ticks_per_us - 0.01).abs() < 1e-9);
        assert_eq!([0, 50, 1000].map(|us| accesses.clock().tick_after(7, us)), [8, 8, 17]);
        assert_eq!(Clock::default().tick_after(7, 1000), u64::MAX);
    }
}
