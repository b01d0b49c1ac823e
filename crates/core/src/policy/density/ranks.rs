//! What a key is ranked by: put together from the table of keys, what its value is known to be, and what was learned.

use super::history::{Feature, History};
use super::miss_costs::MissCosts;
use super::ranking::{GreedyAges, Ranker, Ranking, Subject};
use super::table::DensityTable;
use crate::access_ring::Clock;
use crate::key_table::Entry;
use crate::units::PartitionId;

/// What ranking goes by from turn to turn, beside what was learned.
#[derive(Clone, Copy, Debug)]
pub struct Basis {
    /// Which ranking.
    pub ranking: Ranking,
    /// The time.
    pub clock: Clock,
    /// The server's idle time of a key is a time: not so under an LFU policy.
    pub idle_is_time: bool,
    /// Not all accesses are seen: who was accessed last the server knows better than the table of keys.
    pub sees_part: bool,
}

/// A value in the cache, as whoever holds it knows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// Where it belongs.
    pub partition: PartitionId,
    /// Memory it takes, in bytes.
    pub size_bytes: u32,
    /// In how many ms it expires; `None` = never.
    pub expires_in_ms: Option<u64>,
}

/// All that ranking needs beside the key. Times in ticks of Tenure's own clock.
#[derive(Clone, Copy, Debug)]
pub struct Ranks<'a> {
    /// Which ranking.
    pub ranking: Ranking,
    /// What was learned.
    pub table: &'a DensityTable,
    costs: &'a MissCosts,
    /// The time.
    pub clock: Clock,
    idle_is_time: bool,
    /// See [`Basis`].
    pub sees_part: bool,
}

impl<'a> Ranks<'a> {
    /// By the densities of `table`, and by what misses cost.
    pub fn new(basis: Basis, table: &'a DensityTable, costs: &'a MissCosts) -> Self {
        let Basis { ranking, clock, idle_is_time, sees_part } = basis;
        Ranks { ranking, table, costs, clock, idle_is_time, sees_part: sees_part && idle_is_time }
    }

    /// The ranker, with the ages of GDSF.
    pub fn ranker(&self, ages: &'a GreedyAges) -> Ranker<'a> {
        Ranker { ranking: self.ranking, table: self.table, ages, now: self.clock.now }
    }

    /// What is known of a key; `idle_ms` asks the server how long it wasn't used, where nothing is remembered or part
    /// of its accesses went unseen.
    #[inline]
    pub fn subject(&self, known: Option<&Entry>, value: Value, idle_ms: impl FnOnce() -> u64) -> Subject {
        let shown = self.costs.of(known, value.partition, self.clock.ticks_per_us);
        let expires = match value.expires_in_ms {
            None => u64::MAX,
            Some(0) => self.clock.now,
            Some(ms) => self.clock.tick_after(self.clock.now, ms.saturating_mul(1000)),
        };
        let value = (value.size_bytes, expires);
        Subject::of(known, shown, self.clock.now, value, self.sees_part, || self.age_of_unknown(idle_ms))
    }

    /// A key that isn't remembered was accessed before the clock went, or its place was taken: it is as old as the
    /// server's own clock lets it be.
    fn age_of_unknown(&self, idle_ms: impl FnOnce() -> u64) -> u64 {
        let unseen = self.clock.now.saturating_sub(self.clock.since);
        if !self.idle_is_time {
            return unseen;
        }
        unseen.min(self.clock.tick_after(0, idle_ms().saturating_mul(1000)))
    }
}

impl Subject {
    /// A key of which `known` is remembered, that has `shown` a feature and costs so many µs to miss, at tick `now`;
    /// its size in bytes and the tick it expires at. `age` tells that of a key that isn't remembered, in ticks, and
    /// where part of the accesses went unseen the most that it can be of any.
    #[inline]
    pub(super) fn of(
        known: Option<&Entry>,
        (feature, penalty_us): (Feature, f32),
        now: u64,
        (size_bytes, expires): (u32, u64),
        sees_part: bool,
        age: impl FnOnce() -> u64,
    ) -> Subject {
        let age = match known.map(|entry| u64::from((now as u32).wrapping_sub(entry.last))) {
            Some(remembered) if sees_part => remembered.min(age()),
            Some(remembered) => remembered,
            None => age(),
        };
        Subject { feature, last: now.saturating_sub(age), expires, size_bytes, penalty_us }
    }
}

/// The history in `known`; none where nothing is.
#[inline]
pub(super) fn history_of(known: Option<&Entry>) -> History {
    known.map_or(History::default(), Entry::history)
}

/// Whether a key that was `last` accessed then was since, by what is `known` of it now. What is remembered in a
/// compact entry by now rounds that down.
pub fn was_accessed(known: Option<&Entry>, last: Option<u32>) -> bool {
    match (known, last) {
        (Some(known), Some(last)) => known.last.wrapping_sub(last).cast_signed() > 0,
        (known, last) => known.is_some() || last.is_some(),
    }
}
