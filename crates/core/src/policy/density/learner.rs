//! What the policy learns, and when: densities and the contest are fed with sampled accesses, fitted to the cache's
//! size and the stream's rate at the end of each window, and read at the end of each quarter of one.
//!
//! The server's worker and the simulated cache both learn by this. Nothing comes in while memory is far from its limit.
//! The contest takes a quarter of the sample at most, and no more than 4,096 keys of it.
//! Memory: 0.1 to 0.6 MB, and about 30 bytes a sampled key and 40 a key of the contest's that fits.

use std::iter;
use std::sync::Arc;

use super::contest::{Contest, Tables};
use super::history::Feature;
use super::model::{DensityConfig, DensityModel, Tail};
use super::ranking::Ranking;
use super::shared_keys::KEYS_MAX;
use super::table::DensityTable;
use crate::access::{Access, Op};
use crate::access_ring::REQUESTS_PER_TICK;
use crate::error::ConfigError;
use crate::sampling::SampleRate;

/// Keys not asked for in this many windows are forgotten.
const WINDOWS_REMEMBERED: u64 = 64;
/// Points of GDSF's ages in a window.
const AGES_PER_WINDOW: u64 = 64;
/// The first window ends after so many requests, each next is twice as long, up to the length that was asked for.
const WINDOW_REQUESTS_MIN: u64 = 1000;
/// Windows of full length are read so often: what changes is noticed sooner, and no less is remembered.
const PARTS: u32 = 4;
/// Windows weigh as if they had at least this many requests for each key that the cache has room for: the keys of a
/// large one come again after many windows.
const REQUESTS_PER_KEY: f64 = 0.25;
/// Fewer accesses to keys seen before say nothing of who comes again, as while a cache is loaded: recency ranks.
const RETURNS_MIN: f32 = 10.0;
/// The contest has this part of the sampled keys that may be remembered…
const CONTEST_SHARE: usize = 4;
/// … and is fed by so many at the most: more choose no better (docs/decisions/15-rankings.md).
const CONTEST_KEYS_MAX: usize = 1 << 12;
const SEED: u64 = 1;

/// What a sampled access tells beside itself. Its access reads, of a miss, as the one that the answer completes.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// When it was accessed, in ticks: before what was told already, where it went unseen and is told late.
    pub now: u64,
    /// When its value expires, in ticks; `u64::MAX` = never.
    pub expires: u64,
    /// What it has shown with this access.
    pub feature: Feature,
    /// What a miss of it costs, in µs, as ranking counts it.
    pub penalty_us: f32,
    /// What it does to a stay.
    pub op: Op,
}

/// How a [`Learner`] learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnerConfig {
    /// The share of the keys that is sampled.
    pub rate: SampleRate,
    /// Requests in a window, once it is of full length.
    pub window_requests: u64,
    /// What a window weighs one window later, 0 to 1. By requests: one that ends early takes less off.
    pub decay: f32,
    /// Seed of the miniature caches.
    pub seed: u64,
}

impl LearnerConfig {
    /// As the server learns from a sample of `rate`.
    pub fn new(rate: SampleRate, window_requests: u64) -> Self {
        LearnerConfig { rate, window_requests, decay: DensityConfig::default().decay, seed: SEED }
    }
}

/// What was learned, for the main thread.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// Densities; empty before the first window.
    pub table: Arc<DensityTable>,
    /// The ranking to evict by; `None` before the first window.
    pub ranking: Option<Ranking>,
    /// What each of [`Ranking::ALL`] would have cost the sample, in µs, older windows less.
    pub costs_us: [f64; Ranking::ALL.len()],
    /// Sampled keys that say so.
    pub sampled_keys: usize,
    /// All that the learner knows, where that is to be taught.
    pub teaching: Option<Arc<Teaching>>,
}

/// What a learner knows, for one that goes on in its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Teaching {
    /// Of the density model: row and age as one number, then accesses, reads and ticks.
    pub counts: Vec<(u32, [f32; 3])>,
    /// The ranking in force, by its place in [`Ranking::ALL`]; another number is none.
    pub ranking: u8,
    /// Windows it has learned for.
    pub windows: u32,
}

/// Ticks between two points of GDSF's ages.
pub fn age_step(window_requests: u64) -> u64 {
    (window_requests / REQUESTS_PER_TICK / AGES_PER_WINDOW).max(1)
}

/// The learner. See the file's opening.
#[derive(Debug)]
pub struct Learner {
    model: DensityModel,
    contest: Contest,
    /// Decides until the other is to be believed.
    early: Option<Contest>,
    rate: SampleRate,
    contest_rate: SampleRate,
    keys_max: usize,
    capacity_bytes: u64,
    window_requests: u64,
    windows: u32,
    /// Parts of the open window that have ended.
    parts: u32,
    now: u64,
    /// When it was last read, in ticks.
    read_at: u64,
    /// What was learned, with either tail.
    tables: Tables,
    learned: Learned,
}

impl Learner {
    /// A learner that knows nothing.
    ///
    /// # Errors
    /// [`ConfigError::Decay`] for a decay outside [0, 1].
    pub fn new(config: LearnerConfig) -> Result<Self, ConfigError> {
        let LearnerConfig { rate, window_requests, decay, seed } = config;
        Ok(Learner {
            model: DensityModel::new(DensityConfig { decay })?,
            contest: Contest::new(0, age_step(window_requests), seed),
            early: Some(Contest::early(age_step(window_requests), seed)),
            rate,
            contest_rate: rate,
            keys_max: usize::MAX,
            capacity_bytes: 0,
            window_requests,
            windows: 0,
            parts: 0,
            now: 0,
            read_at: 0,
            tables: Tables::default(),
            learned: Learned::default(),
        })
    }

    /// Takes one access of the sampled stream.
    pub fn record(&mut self, access: &Access, shown: &Shown) {
        if !self.rate.takes(access.key) {
            return;
        }
        let Shown { now, expires, feature, penalty_us, op } = *shown;
        let is_late = now < self.now;
        self.now = self.now.max(now);
        // Of keys that nobody has seen come, only those that come again are found out about: not a fair sample.
        if is_late && !self.model.knows(access.key) {
            return;
        }
        let takes_part = self.contest_rate.takes(access.key);
        let is_new = self.early.is_some() && takes_part && op != Op::Delete && !self.model.knows(access.key);
        if let Some(early) = self.early.as_mut().filter(|_| is_new) {
            early.came(access.size_bytes);
        }
        self.model.record(access.key, op, now, feature);
        if self.capacity_bytes > 0 && takes_part {
            let access = Access { op, penalty_us, ..*access };
            for contest in iter::once(&mut self.contest).chain(&mut self.early) {
                contest.record(&access, self.now, feature, expires, &self.tables);
            }
            if self.contests().any(|contest| contest.keys() == KEYS_MAX) {
                self.thin_contest(self.contest_rate.lowered());
            }
        }
    }

    fn contests(&mut self) -> impl Iterator<Item = &mut Contest> {
        iter::once(&mut self.contest).chain(&mut self.early)
    }

    /// Follows the rate of the stream.
    pub fn set_rate(&mut self, rate: SampleRate) {
        self.rate = rate;
        self.model.retain(|key| rate.takes(key));
        self.fit_contest();
    }

    /// At most so many sampled keys are to be remembered.
    pub fn set_keys_max(&mut self, keys_max: usize) {
        self.keys_max = keys_max;
    }

    /// The contest's caches stand for the cache as it is, of a rate at which its keys are few enough.
    fn fit_contest(&mut self) {
        let keys = self.model.sampled_keys().max(1);
        let keys_max = (self.keys_max / CONTEST_SHARE).min(CONTEST_KEYS_MAX);
        let share = (keys_max as f64 / keys as f64).min(1.0);
        let wanted = SampleRate::new(self.rate.rate() * share).unwrap_or(self.rate);
        // Where it may be larger again the keys that it has not seen are missed at first: not for little.
        if wanted < self.contest_rate {
            self.thin_contest(wanted);
        } else if wanted.rate() > 2.0 * self.contest_rate.rate() {
            self.contest_rate = wanted;
        }
        let bytes = (self.capacity_bytes as f64 * self.contest_rate.rate()) as u64;
        self.contests().for_each(|contest| contest.resize(bytes));
    }

    fn thin_contest(&mut self, rate: SampleRate) {
        let factor = rate.rate() / self.contest_rate.rate();
        self.contests().for_each(|contest| contest.thin(|key| rate.takes(key), factor));
        self.contest_rate = rate;
    }

    /// Requests after which the window that is open ends.
    pub fn window_requests(&self) -> u64 {
        (WINDOW_REQUESTS_MIN << self.windows.min(20)).min(self.window_requests)
    }

    /// True where a part of the open window ends after so many requests of it. The last ends with the window.
    pub fn part_ends_at(&self, requests: u64) -> bool {
        let parts = u64::from(self.parts) + 1;
        self.is_full() && parts < u64::from(PARTS) && requests * u64::from(PARTS) >= self.window_requests * parts
    }

    /// Ends a part of a window: what ranks from now on.
    pub fn end_part(&mut self) -> Learned {
        self.parts += 1;
        self.read(self.window_requests(), Contest::end_part);
        self.learned.clone()
    }

    /// True while windows have the length that was asked for.
    fn is_full(&self) -> bool {
        self.window_requests() == self.window_requests
    }

    /// Ends a window of a cache of `capacity_bytes` (0: without a limit, there is nothing to compare).
    pub fn end_window(&mut self, capacity_bytes: u64) -> Learned {
        let is_full = self.is_full();
        self.read(self.window_requests(), |contest, part| contest.end_window(is_full, part));
        (self.windows, self.parts) = (self.windows + 1, 0);
        self.capacity_bytes = capacity_bytes;
        self.fit_contest();
        self.learned.clone()
    }

    /// What was learned, after part of a window of so many requests since the last time; `end` ends it in a contest.
    /// What was learned fades by requests: a night of few takes little off what the day has shown.
    fn read(&mut self, window_requests: u64, end: impl Fn(&mut Contest, f64) -> (Ranking, Tail)) {
        let passed = ((self.now - self.read_at) * REQUESTS_PER_TICK) as f64;
        self.read_at = self.now;
        let part_of = |requests: f64| (passed / requests).min(1.0);
        let learned_over = |requests: u64| (REQUESTS_PER_KEY * self.keys_that_fit()).max(requests as f64);
        let forget_after = WINDOWS_REMEMBERED * learned_over(self.window_requests) as u64 / REQUESTS_PER_TICK;
        let part = part_of(learned_over(window_requests)) as f32;
        // What isn't in force gives its memory back before new ones take theirs.
        self.tables = Tables::default();
        self.tables = self.model.end_part(part, self.now, forget_after, Tail::ALL).map(Arc::new);
        let part = part_of(window_requests as f64);
        if let Some(early) = &mut self.early {
            self.contest.begin_with(end(early, part));
        }
        let (ranking, tail) = end(&mut self.contest, part);
        self.early.take_if(|_| self.contest.is_to_be_believed());
        self.learned.table = Arc::clone(&self.tables[tail as usize]);
        self.learned.ranking = Some(if self.has_learned() { ranking } else { Ranking::Idle });
        self.learned.costs_us = self.early.as_ref().unwrap_or(&self.contest).costs_us();
        self.learned.sampled_keys = self.model.sampled_keys();
    }

    /// Keys that the cache has room for, by the contest's; 0 before that has any.
    fn keys_that_fit(&self) -> f64 {
        self.contest.keys_that_fit() as f64 / self.contest_rate.rate()
    }

    /// All that it knows, but for single keys. 16 bytes for each age of a feature that was seen, 350 KB at most.
    pub fn teaching(&self) -> Teaching {
        let place = self.learned.ranking.and_then(|ranking| Ranking::ALL.iter().position(|&one| one == ranking));
        let ranking = place.map_or(u8::MAX, |place| place as u8);
        Teaching { counts: self.model.counts(), ranking, windows: self.windows }
    }

    /// Goes on from what another has learned.
    pub fn begin_with(&mut self, teaching: &Teaching) {
        self.windows = teaching.windows;
        self.learned.table = Arc::new(self.model.begin_with(&teaching.counts));
        self.tables = Tail::ALL.map(|_| Arc::clone(&self.learned.table));
        self.learned.ranking = Ranking::ALL.get(usize::from(teaching.ranking)).copied();
        if let Some(ranking) = self.learned.ranking.filter(|_| self.has_learned()) {
            self.contest.begin_with((ranking, Tail::Others));
            self.early = None;
        }
    }

    /// True once keys have come again.
    fn has_learned(&self) -> bool {
        self.model.returns() >= RETURNS_MIN
    }

    /// What was learned last.
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Sampled keys that are remembered.
    pub fn sampled_keys(&self) -> usize {
        self.model.sampled_keys()
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.model.memory_bytes()
            + iter::once(&self.contest).chain(&self.early).map(Contest::memory_bytes).sum::<usize>()
            + self.tables.iter().map(|table| table.memory_bytes()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::contest::tests::check_books;
    use super::super::history::History;
    use super::*;
    use crate::units::KeyHash;

    fn learner(window_requests: u64) -> Learner {
        Learner::new(LearnerConfig::new(SampleRate::ALL, window_requests)).unwrap()
    }

    fn shown(now: u64, feature: Feature) -> Shown {
        Shown { now, expires: u64::MAX, feature, penalty_us: 100.0, op: Op::Read }
    }

    /// Who is found out about late has come again: keys that are known from then alone would all seem to.
    #[test]
    fn keys_that_are_told_late_alone_are_not_learned_from() {
        let mut learner = learner(10_000);
        let once = History::default().accessed(0, 0, 0.0).feature(0);
        for (number, now) in [(1, 50), (2, 100), (3, 70)] {
            learner.record(&Access::read(KeyHash::of_number(number), 100), &shown(now, once));
        }
        assert_eq!(learner.sampled_keys(), 2);
    }

    /// A pupil ranks as its teacher does, at once, and what makes no sense is left out.
    #[test]
    fn what_was_learned_is_taught() {
        let mut teacher = learner(10_000);
        let feature = |i: u64| History::default().accessed(0, i as u32, 0.0).feature(0);
        for window in 0..4 {
            for i in 0..10_000_u64 {
                let access = Access::read(KeyHash::of_number(i % 3000), 100);
                teacher.record(&access, &shown((window * 10_000 + i) / 8, feature(i)));
            }
            teacher.end_window(1 << 20);
        }
        let mut pupil = learner(10_000);
        let mut teaching = teacher.teaching();
        teaching.counts.extend([(u32::MAX, [1.0; 3]), (0, [f32::NAN; 3]), (1, [1.0, 2.0, 1.0])]);
        pupil.begin_with(&teaching);
        assert_eq!((pupil.learned().ranking, pupil.window_requests()), (teacher.learned().ranking, 10_000));
        // The teacher has forgotten a little since it made its table, in which rows lean on others.
        let close = |age: u64| {
            let [own, taught] = [&teacher, &pupil].map(|learner| learner.learned().table.density(feature(1), age));
            (taught / own - 1.0).abs() < 0.2
        };
        assert!((0..1000).all(close));
        let [own, taught] = [&teacher, &pupil].map(|learner| learner.learned().table.rate(feature(1)));
        assert!((taught / own - 1.0).abs() < 0.2 && (375.0 * own - 1.0).abs() < 0.1, "{own} and {taught}");
    }

    /// A loop over 1.5 times what fits: recency misses always, density keeps some. All keys were accessed as often, so
    /// the steady ranking keeps the same, and stays in force. At half the rate the miniatures are half as large.
    #[test]
    fn a_loop_is_learned_at_any_rate() {
        let mut learner = learner(10_000);
        let half = SampleRate::new(0.5).unwrap();
        let mut learned = Learned::default();
        for i in 0..100_000_u64 {
            if i == 50_000 {
                learner.set_rate(half);
            }
            let history = History::default().accessed(0, 0, 1e-6).accessed(300, 300, 1e-6);
            let access = Access::read(KeyHash::of_number(i % 300), 10);
            learner.record(&access, &shown(i, history.feature(0)));
            if i % 10_000 == 9_999 {
                learned = learner.end_window(2_000);
            }
        }
        let [density, steady, .., idle] = learned.costs_us;
        assert!(density < 0.8 * idle && density > 0.0, "{:?}", learned.costs_us);
        assert_eq!((learned.ranking, steady), (Some(Ranking::Steady), density));
        assert!((100..200).contains(&learned.sampled_keys), "{}", learned.sampled_keys);
        assert!(!learned.table.is_empty() && learner.memory_bytes() > 2 * learned.table.memory_bytes());
    }

    /// However many keys there are, the contest has a quarter of what may be remembered.
    #[test]
    fn the_contest_stays_small() {
        let mut learner = learner(10_000);
        learner.set_keys_max(2_000);
        for i in 0..40_000_u64 {
            let access = Access::read(KeyHash::of_number(i % 8_000), 10);
            learner.record(&access, &shown(i, History::default().accessed(0, 0, 1e-6).feature(0)));
            if i % 10_000 == 9_999 {
                learner.end_window(40_000);
            }
        }
        let share = learner.contest_rate.rate();
        assert!((share - 500.0 / 8_000.0).abs() < 0.01, "{share}");
        let before = learner.contest.memory_bytes();
        learner.set_rate(SampleRate::new(0.5).unwrap());
        learner.end_window(40_000);
        assert!(learner.contest.memory_bytes() <= before && learner.sampled_keys() < 4_300);
        assert!((learner.contest_rate.rate() - share).abs() < 0.01, "the same keys are few enough of half as many");
    }

    /// Sixty keys come round, which is for density. That is known where all have room, and who says so goes once it is
    /// known from caches of the size that the cache has.
    #[test]
    fn rankings_are_compared_before_anything_had_to_go() {
        let mut learner = learner(2_000);
        let mut histories = [History::default(); 60];
        let mut ranking_with = |capacity_bytes: u64, rounds: std::ops::Range<u64>| {
            for i in rounds.start * 60..rounds.end * 60 {
                let history = &mut histories[(i % 60) as usize];
                *history = history.accessed(60, i as u32, 1e-6);
                learner.record(&Access::read(KeyHash::of_number(i % 60), 10), &shown(i, history.feature(0)));
                if i % 2_000 == 1_999 {
                    learner.end_window(capacity_bytes);
                }
            }
            (learner.learned().ranking, learner.early.is_some())
        };
        assert_eq!(ranking_with(700, 0..300), (Some(Ranking::Density), true));
        assert_eq!(ranking_with(500, 300..600), (Some(Ranking::Density), false));
    }

    /// A learner for which sixty keys have come round, one access a tick, for eight windows of 8,000 ticks when full.
    /// Short windows had no parts. And what those keys have shown.
    fn who_knows_a_loop() -> (Learner, Feature) {
        let mut learner = learner(8_000 * REQUESTS_PER_TICK);
        let mut histories = [History::default(); 60];
        for tick in 0..64_000 {
            let history = &mut histories[(tick % 60) as usize];
            *history = history.accessed(60, tick as u32, 1e-6);
            learner.record(&Access::read(KeyHash::of_number(tick % 60), 10), &shown(tick, history.feature(0)));
            if tick % 8_000 == 7_999 {
                assert!(learner.is_full() || !learner.part_ends_at(u64::MAX / 8), "at {tick}");
                learner.end_window(2_000);
            }
        }
        (learner, histories[0].feature(0))
    }

    /// Keys that came round stay away: what is read after a quarter of a window says so already. In four
    /// of them no more is forgotten than in a window at once.
    #[test]
    fn what_has_changed_is_noticed_within_a_window() {
        let (mut learner, feature) = who_knows_a_loop();
        let (before, returns) = (learner.learned().table.density(feature, 100), learner.model.returns());
        for part in 1..=4 {
            for i in 64_000 + (part - 1) * 2_000..64_000 + part * 2_000 {
                learner.record(&Access::read(KeyHash::of_number(i), 10), &shown(i, History::default().feature(0)));
            }
            let ends_at = part * 2_000 * REQUESTS_PER_TICK;
            assert!(!learner.part_ends_at(ends_at - 1));
            let learned = if part < 4 {
                assert!(learner.part_ends_at(ends_at), "part {part}");
                learner.end_part()
            } else {
                assert!(!learner.part_ends_at(ends_at), "the last ends with the window");
                learner.end_window(2_000)
            };
            let after = learned.table.density(feature, 100);
            assert!(after < 0.7 * before, "{after} for {before} after {part} quarters");
        }
        assert!((learner.model.returns() / (0.7 * returns) - 1.0).abs() < 1e-3);
    }

    /// A hundred windows that end by time, with a hundredth of their requests each, are a window.
    #[test]
    fn a_quiet_night_takes_nothing_off_what_was_learned() {
        let (mut learner, _) = who_knows_a_loop();
        let (returns, costs_us) = (learner.model.returns(), learner.contest.costs_us());
        for window in 0..100 {
            learner.record(
                &Access::read(KeyHash::of_number(1 << 20 | window), 10),
                &shown(64_079 + 80 * window, History::default().feature(0)),
            );
            learner.end_window(2_000);
        }
        assert!((learner.model.returns() / (0.7 * returns) - 1.0).abs() < 1e-3, "{returns}");
        assert!(learner.contest.costs_us()[3] > 0.6 * costs_us[3] && costs_us[3] > 0.0, "{costs_us:?}");
        learner.end_window(2_000);
        assert!((learner.model.returns() / (0.7 * returns) - 1.0).abs() < 1e-3, "nobody came, nothing is forgotten");
    }

    /// Of a cache that has room for more keys than are asked for in a window more than the last windows count: with
    /// room for twenty times as many, five windows are as one.
    #[test]
    fn of_a_large_cache_more_is_remembered() {
        let kept_of = |capacity_bytes: u64| {
            let mut learner = learner(1_000);
            let feature = History::default().accessed(0, 0, 1e-6).feature(0);
            let mut window = |keys: std::ops::Range<u64>, first_tick: u64| {
                for (i, key) in keys.enumerate() {
                    let at = first_tick + i as u64 / REQUESTS_PER_TICK;
                    learner.record(&Access::read(KeyHash::of_number(key), 10), &shown(at, feature));
                }
                learner.end_window(capacity_bytes);
                learner.model.returns()
            };
            (0..30).for_each(|i| _ = window(i * 1_000..(i + 1) * 1_000, i * 125));
            let returns = window(0..1_000, 30 * 125);
            window(1_000_000..1_001_000, 31 * 125) / returns
        };
        for (capacity_bytes, expected) in [(1_000, 0.7), (200_000, 0.7_f32.powf(0.2))] {
            let kept = kept_of(capacity_bytes);
            assert!((kept - expected).abs() < 0.01, "{kept} for {expected}");
        }
    }

    #[test]
    fn windows_grow_to_the_length_that_is_asked_for() {
        let mut learner = learner(5_000);
        let lengths: Vec<u64> = (0..5)
            .map(|_| {
                learner.end_window(0);
                learner.window_requests()
            })
            .collect();
        assert_eq!(lengths, [2_000, 4_000, 5_000, 5_000, 5_000]);
    }

    /// While a cache is loaded nobody comes again, and which of the keys will is unknown: as in a server alone the
    /// longest idle goes. What was learned ranks as soon as some have come.
    #[test]
    fn recency_ranks_until_keys_come_again() {
        let mut learner = learner(10_000);
        let feature = History::default().accessed(0, 0, 1e-6).feature(0);
        let mut ranking_after = |keys: std::ops::Range<u64>| {
            for key in keys {
                let access = Access::read(KeyHash::of_number(key), 10).with_op(Op::Write);
                learner.record(&access, &shown(key, feature));
            }
            learner.end_window(2_000).ranking
        };
        assert_eq!(ranking_after(0..1000), Some(Ranking::Idle));
        assert_eq!(ranking_after(1000..2000), Some(Ranking::Idle));
        assert_eq!(ranking_after(1900..2000), Some(Ranking::Steady));
    }

    /// However many keys a window has, the contest holds no more than have a place, and goes on with some of them.
    #[test]
    fn the_contest_is_thinned_within_a_window() {
        let mut learner = learner(1 << 20);
        let feature = History::default().accessed(0, 0, 1e-6).feature(0);
        learner.end_window(1 << 40);
        for i in 0..100_000_u64 {
            learner.record(&Access::read(KeyHash::of_number(i), 100), &shown(i, feature));
            assert!(learner.contest.keys() < KEYS_MAX);
        }
        check_books(&learner.contest);
        assert!(learner.contest.keys() > KEYS_MAX / 4 && learner.contest_rate < SampleRate::ALL);
        assert!(learner.model.sampled_keys() > 90_000, "the model's own are not bounded here");
    }
}
