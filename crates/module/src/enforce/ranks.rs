//! What a key is ranked by under Tenure's own policy: put together from the table of keys, the server and what the worker has learned.

use tenure_core::asked::Clock;
use tenure_core::decide::density::DensityTable;
use tenure_core::key_table::Entry;
use tenure_core::policy::ranking::{GreedyAges, Ranker, Ranking, Subject};
use tenure_core::units::PartitionId;

use super::CLOCK_TICK_MS;
use crate::ffi::server::Key;
use crate::observe::worths::Worths;

/// What ranking goes by that is Tenure's to say, from turn to turn.
#[derive(Clone, Copy, Debug)]
pub struct Basis {
    /// Which ranking.
    pub ranking: Ranking,
    /// The time.
    pub clock: Clock,
    /// The server's idle time of a key is a time: not so under an LFU policy.
    pub idle_is_time: bool,
}

/// All that ranking needs beside the key. Times in ticks of Tenure's own clock.
#[derive(Clone, Copy, Debug)]
pub struct Ranks<'a> {
    /// Which ranking.
    pub ranking: Ranking,
    /// What was learned.
    pub table: &'a DensityTable,
    worths: &'a Worths,
    /// The time.
    pub clock: Clock,
    idle_is_time: bool,
}

impl<'a> Ranks<'a> {
    /// By the densities of `table`, and by what misses cost.
    pub fn new(basis: Basis, table: &'a DensityTable, worths: &'a Worths) -> Self {
        let Basis { ranking, clock, idle_is_time } = basis;
        Ranks { ranking, table, worths, clock, idle_is_time }
    }

    /// The ranker, with the ages of GDSF.
    pub fn ranker(&self, ages: &'a GreedyAges) -> Ranker<'a> {
        Ranker { ranking: self.ranking, table: self.table, ages, now: self.clock.now }
    }

    /// What is known of a key of that partition that takes `size_bytes`.
    #[inline]
    pub fn subject(&self, entry: Option<&Entry>, partition: PartitionId, size_bytes: u32, key: &Key) -> Subject {
        let (feature, penalty_us) = self.worths.of(entry, partition, self.clock.ticks_per_us);
        let age = match entry {
            Some(entry) => u64::from((self.clock.now as u32).wrapping_sub(entry.last)),
            None => self.age_of_unknown(key),
        };
        Subject {
            feature,
            last: self.clock.now.saturating_sub(age),
            expires: match key.expires_in_ms() {
                None => u64::MAX,
                Some(0) => self.clock.now,
                Some(ms) => self.clock.tick_after(self.clock.now, ms.saturating_mul(1000)),
            },
            n_requests: entry.map_or(1, |entry| u32::from(entry.n_requests).max(1)),
            size_bytes,
            penalty_us,
        }
    }

    /// A key that isn't remembered was asked for before the clock went, or its place was taken: it is as old as the server's own clock lets
    /// it be.
    fn age_of_unknown(&self, key: &Key) -> u64 {
        let unseen = self.clock.now.saturating_sub(self.clock.since);
        if !self.idle_is_time {
            return unseen;
        }
        unseen.min(self.clock.tick_after(0, key.idle().saturating_add(CLOCK_TICK_MS).saturating_mul(1000)))
    }
}
