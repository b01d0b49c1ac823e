//! What is counted for each partition: accesses, misses and where they come from, what misses cost.
//!
//! The filter and the events count on the main thread; the worker is left copies. Nothing is ever taken back, so
//! whoever looks at two copies knows what came between them.

use super::command_table::Effect;
use super::misses::Answer;
use super::origins::Origins;

/// What has been counted for one partition since the module was loaded. Only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Reads of one key, hits and misses.
    pub reads: u64,
    /// Writes of one key.
    pub writes: u64,
    /// Of them, those that answered a miss.
    pub prompted: u64,
    /// Deletes of one key.
    pub deletes: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// The same by where they come from.
    pub origins: Origins,
    /// Misses that were answered, those that joined a fetch under way too.
    pub answered: u64,
    /// Time from misses to their answers, in µs: who joins a fetch is taken to have waited for half of it.
    pub miss_us: f64,
    /// Measured penalties: how many, their sum and their sum of squares, in µs.
    pub penalties: u64,
    /// Sum of the measured penalties, in µs.
    pub penalty_us_sum: f64,
    /// Sum of their squares, in µs².
    pub penalty_us_square_sum: f64,
}

impl Counters {
    /// Requests in the models' sense: reads and writes. The clock of the partition's reuse times.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Reads, and writes that answer no miss: how much the partition is accessed, however much of it is in memory.
    pub fn unprompted(&self) -> u64 {
        self.reads + self.writes - self.prompted
    }

    /// So many accesses of one kind.
    #[inline]
    pub(super) fn count(&mut self, effect: Effect, times: u64) {
        match effect {
            Effect::Read => self.reads += times,
            Effect::Change | Effect::Replace => self.writes += times,
            Effect::Delete => self.deletes += times,
        }
    }

    /// A write that is counted has answered a miss.
    #[inline]
    pub(super) fn count_prompted(&mut self, answer: Answer) {
        self.prompted += 1;
        self.count_answer(answer);
    }

    /// A miss was answered, by a write that may have gone unseen.
    pub(super) fn count_answer(&mut self, answer: Answer) {
        let (penalty_us, lost_us) = (answer.penalty_us as f64, answer.lost_us());
        self.miss_us += lost_us;
        self.answered += 1 + answer.joined;
        if answer.is_regretted {
            self.origins.regret_us += lost_us;
        }
        self.penalties += 1;
        self.penalty_us_sum += penalty_us;
        self.penalty_us_square_sum += penalty_us * penalty_us;
    }
}
