//! The rankings between which Tenure's own policy chooses: cost density, the same steadied by the long run, GDSF and
//! recency. Server, simulator and miniature caches all rank by this file.
//!
//! Cost density is penalty × density ÷ size (`table.rs`). Where draws are independent, how often a key was accessed is
//! all there is to know, and a table by feature and age, learned from few, knows it badly. So the steady ranking takes
//! a geometric mean of the density and of how soon keys come that were accessed so often. GDSF (Cherkasova, HP Labs
//! 1998-69) needs no more of a key than is remembered anyway. Its H is the age L at its last access plus requests ×
//! penalty ÷ size. L at any time past is looked up in a short list, the same for all keys. As in `gdsf.rs`, L is a
//! moving mean of the victims' H. Differs: requests from before a key was evicted count, and older ones less, so that
//! no cache has to count for itself. Cost: one look-up in a table of 120 KiB, or a few steps in a list of 16 KiB.

use std::collections::VecDeque;

use super::history::Feature;
use super::model::when;
use super::table::DensityTable;

/// How keys are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ranking {
    /// What keeping it saves per byte and time, as learned.
    Density,
    /// The same, and how soon keys come that were accessed so often in the long run.
    Steady,
    /// GDSF; also what ranks before anything was learned.
    Greedy,
    /// The longest idle goes, as in a server without Tenure.
    Idle,
}

impl Ranking {
    /// All of them.
    pub const ALL: [Ranking; 4] = [Ranking::Density, Ranking::Steady, Ranking::Greedy, Ranking::Idle];

    /// True where it goes by what was learned.
    pub fn is_learned(self) -> bool {
        matches!(self, Ranking::Density | Ranking::Steady)
    }

    /// Its name, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Ranking::Density => "density",
            Ranking::Steady => "steady",
            Ranking::Greedy => "gdsf",
            Ranking::Idle => "lru",
        }
    }
}

/// What is known of a key when it is ranked. Times in ticks, the same as everywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subject {
    /// What it has shown.
    pub feature: Feature,
    /// When it was last accessed.
    pub last: u64,
    /// When it expires; `u64::MAX` = never.
    pub expires: u64,
    /// Memory it takes, in bytes.
    pub size_bytes: u32,
    /// What a miss of it costs, in µs.
    pub penalty_us: f32,
}

impl Subject {
    /// Penalty per byte, in µs. What costs nothing still counts, for a little.
    #[inline]
    fn worth(&self) -> f32 {
        self.penalty_us.max(1.0) / self.size_bytes.max(1) as f32
    }
}

/// What all keys are ranked with at one time.
#[derive(Clone, Copy, Debug)]
pub struct Ranker<'a> {
    /// Which ranking.
    pub ranking: Ranking,
    /// What was learned.
    pub table: &'a DensityTable,
    /// The ages of GDSF.
    pub ages: &'a GreedyAges,
    /// The time.
    pub now: u64,
}

impl Ranker<'_> {
    /// The worth of keeping a key: the lowest goes first. Expired keys go before all others. Never NaN.
    #[inline]
    pub fn score(&self, subject: &Subject) -> f32 {
        if subject.expires <= self.now {
            return f32::NEG_INFINITY;
        }
        let age = self.now.saturating_sub(subject.last);
        match self.ranking {
            Ranking::Idle => -(age as f32),
            Ranking::Density | Ranking::Steady if !self.table.is_empty() => {
                let (feature, table) = (subject.feature, self.table);
                let reads = match self.ranking {
                    Ranking::Steady => steadied(table.density(feature, age), table.rate(feature)),
                    _ => table.density(feature, age),
                };
                let part = match subject.expires {
                    u64::MAX => 1.0,
                    expires => table.part_until(feature, age, expires - self.now),
                };
                subject.worth() * reads * part
            }
            Ranking::Density | Ranking::Steady | Ranking::Greedy => self.ages.rank(subject),
        }
    }
}

/// What the steady ranking expects: the geometric mean, in which the rate counts five times and the density three.
#[inline]
fn steadied(density: f32, rate: f32) -> f32 {
    (rate * (density * (density * rate).sqrt()).sqrt()).sqrt()
}

/// Points of the list: what is idle for longer counts as the oldest.
const POINTS: usize = 2048;
/// Points looked at one by one from where one is thought to lie.
const NEAR: usize = 8;
/// What a victim's H moves L by, of the difference.
const AGE_WEIGHT: f32 = 1.0 / 16.0;

/// L of GDSF, now and at times past.
#[derive(Clone, Debug)]
pub struct GreedyAges {
    /// The lower half of a time, and L from then on.
    points: VecDeque<(u32, f32)>,
    /// The time of the last of them.
    newest: u64,
    step_ticks: u64,
    age: f32,
}

impl GreedyAges {
    /// An age of 0, noted at most every `step_ticks`; it looks back over 2048 of these, and is of no size before it is
    /// used.
    pub fn new(step_ticks: u64) -> Self {
        GreedyAges { points: VecDeque::new(), newest: 0, step_ticks: step_ticks.max(1), age: 0.0 }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.points.capacity() * size_of::<(u32, f32)>()
    }

    /// H of a key.
    #[inline]
    fn rank(&self, subject: &Subject) -> f32 {
        self.at(subject.last) + subject.feature.often() * subject.worth()
    }

    fn at(&self, time: u64) -> f32 {
        let Some(&(_, age)) = self.points.back() else { return 0.0 };
        if self.newest <= time {
            return age;
        }
        let is_later = |from: u32| when(from, self.newest) > time;
        // Two points are a step apart at the least, and hardly more while there are evictions: it lies here or later.
        let steps_back = (self.newest - time).div_ceil(self.step_ticks);
        let mut at = self.points.len().saturating_sub(1 + usize::try_from(steps_back).unwrap_or(usize::MAX));
        for _ in 0..NEAR {
            match self.points.get(at + 1) {
                Some(&(from, _)) if !is_later(from) => at += 1,
                _ => return self.points.get(at).map_or(0.0, |&(_, age)| age),
            }
        }
        let later = self.points.partition_point(|&(from, _)| !is_later(from));
        self.points.get(later.saturating_sub(1)).map_or(0.0, |&(_, age)| age)
    }

    /// A key was evicted at `now`, by whatever ranking.
    pub fn evicted(&mut self, subject: &Subject, now: u64) {
        self.age += AGE_WEIGHT * (self.rank(subject) - self.age);
        if self.points.is_empty() || now >= self.newest + self.step_ticks {
            if self.points.len() == POINTS {
                self.points.pop_front();
            }
            self.points.push_back((now as u32, self.age));
            self.newest = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::super::model::{DensityConfig, DensityModel};
    use super::*;
    use crate::access::Op;
    use crate::units::KeyHash;

    fn subject(last: u64, penalty_us: f32) -> Subject {
        let feature = History::default().accessed(0, 0, 1e-6).feature(0);
        Subject { feature, last, expires: u64::MAX, size_bytes: 100, penalty_us }
    }

    #[test]
    fn dear_and_small_are_kept_and_expired_goes_first() {
        let mut model = DensityModel::new(DensityConfig::default()).unwrap();
        let feature = subject(0, 0.0).feature;
        (0..2_000).for_each(|i| model.record(KeyHash::of_number(i % 100), Op::Read, i, feature));
        let table = model.end_window(2_000, 1 << 20);
        let ages = GreedyAges::new(1);
        for ranking in [Ranking::Density, Ranking::Steady, Ranking::Greedy] {
            let score = |subject: &Subject| Ranker { ranking, table: &table, ages: &ages, now: 2_000 }.score(subject);
            let cheap = subject(1_950, 100.0);
            assert!(score(&cheap) < score(&Subject { penalty_us: 1000.0, ..cheap }));
            assert!(score(&cheap) > score(&Subject { size_bytes: 1000, ..cheap }));
            assert!(score(&Subject { expires: 2_000, penalty_us: 1e9, ..cheap }) < score(&subject(0, 1.0)));
            let left = score(&Subject { expires: 2_001, ..cheap }) / score(&cheap);
            let part = if ranking == Ranking::Greedy { 1.0 } else { table.part_until(feature, 50, 1) };
            assert!((left - part).abs() < 1e-6, "{ranking:?}: {left} of what never expires, for {part}");
        }
        let idle = Ranker { ranking: Ranking::Idle, table: &table, ages: &ages, now: 2_000 };
        assert!(idle.score(&subject(0, 1e9)) < idle.score(&subject(1, 1.0)));
    }

    /// 2^8 of the one counts 2^3, of the other 2^5.
    #[test]
    fn the_rate_counts_five_times_and_the_density_three() {
        assert_eq!([steadied(1.0, 1.0), steadied(256.0, 1.0), steadied(1.0, 256.0)], [1.0, 8.0, 32.0]);
    }

    /// L follows the victims' mean, up and down, and a key keeps the L of its last access.
    #[test]
    fn the_age_is_that_of_the_last_access() {
        let mut ages = GreedyAges::new(10);
        (0..1_000).for_each(|now| ages.evicted(&subject(now, 100.0), now));
        let (early, late) = (ages.rank(&subject(100, 100.0)), ages.rank(&subject(990, 100.0)));
        assert!(early > 2.0 && late > early + 10.0, "{early} {late}");
        assert_eq!(ages.points.len(), 100);
    }

    /// Times are kept by their lower halves: what is found is the same from any start.
    #[test]
    fn ages_are_found_where_the_lower_half_of_a_time_begins_anew() {
        let found = |start: u64| {
            let mut ages = GreedyAges::new(10);
            (0..3_000).for_each(|now| ages.evicted(&subject(start + now, 100.0), start + now));
            [0, 5, 10, 700, 1_500, 2_999, 4_000].map(|time| ages.at(start + time))
        };
        assert_eq!(found((1 << 32) - 1_000), found(1 << 20));
        assert_eq!(found((1 << 33) - 1_000), found(1 << 20));
    }
}
