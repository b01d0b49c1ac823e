//! Whether a class of keys is used by day and not by night: its period, and whether it is in a valley now.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 4, whose three tests must all hold: existence (max − min > 0.5 ×
//! average), duration (peaks and valleys last) and long reuse (keys come back after about as long as lies between two
//! peaks). Idea: the counts of accesses per interval (a minute, say), smoothed over half a run, are high above the
//! middle of their swing and low below its lower quarter; a stretch of either counts once it has lasted a run (10
//! intervals). The period is the distance from rise to rise and from fall to fall. Differs from the paper, so that
//! noise, bursts and growth don't pass: max and min are the 99th and the first percentile; distances must agree and
//! none be overdue; high and low must explain two fifths of the variance of the raw counts. Long reuse is a share: of
//! the accesses to keys that are new or long unused, half must be to keys of about one period ago. Load that drifts
//! at random passes for a period now and then (of the tests' random walks under one in 20), noise doesn't. Evidence
//! is two rises and two falls, so a period may be up to half the history: a day in 50 hours of minutes. Cost: O(1)
//! per interval, O(history) per question; 4 bytes per interval of history and 3.3 KiB, 15 KiB by default.

use std::collections::VecDeque;

/// What history is at most, in intervals.
pub const HISTORY_INTERVALS_MAX: usize = 3072;

/// Reuse times are counted by powers of two: of 0 and 1 interval, 2 and 3, 4 to 7, … 2048 and more.
const REUSE_BUCKETS: usize = 12;
/// Into how many slots of equal length the history of reuse times is divided.
const REUSE_SLOTS: usize = 64;

/// Existence: the swing must be above this share of the mean.
const SWING_SHARE_MIN: f64 = 0.5;
/// One interval in so many may be further out at either end without setting the scale.
const OUTLIERS: usize = 100;
/// Distances may differ by this share from the median …
const DISTANCE_TOLERANCE: f64 = 0.2;
/// … but for one in so many.
const DISTANCE_OUTLIERS: usize = 4;
/// A period without rise or fall that is longer than expected by this factor is the end of the pattern.
const OVERDUE: f64 = 1.25;
/// What high and low must explain of the variance of the counts. A sine reaches 0.81; noise that passes all else
/// stays below.
const EXPLAINED_MIN: f64 = 0.4;
/// Of the accesses to keys not used lately, one in so many must be to keys of about a period ago.
const LONG_REUSE_ONE_IN: u64 = 2;
/// Fewer long reuses than this are none.
const LONG_REUSES_MIN: u64 = 8;

/// How a [`Diurnal`] looks at its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiurnalConfig {
    /// Intervals that a peak and a valley last at least; 0 counts as 1.
    pub run_intervals: usize,
    /// Intervals that are looked back; at most [`HISTORY_INTERVALS_MAX`].
    pub history_intervals: usize,
}

impl Default for DiurnalConfig {
    /// For intervals of a minute: ten minutes, and two days with two hours to spare.
    fn default() -> Self {
        DiurnalConfig { run_intervals: 10, history_intervals: 3000 }
    }
}

/// How long ago the keys of one interval's accesses were used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseTimes {
    buckets: [u32; REUSE_BUCKETS],
    new: u32,
}

impl ReuseTimes {
    /// Counts an access to a key that was last used `intervals` ago; `None` where it wasn't seen before, or that is
    /// forgotten. A sample of the keys will do.
    pub fn add(&mut self, intervals: Option<u32>) {
        let count = match intervals {
            Some(intervals) => &mut self.buckets[bucket(intervals as usize)],
            None => &mut self.new,
        };
        *count = count.saturating_add(1);
    }

    fn merge(&mut self, other: &ReuseTimes) {
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count = count.saturating_add(more);
        }
        self.new = self.new.saturating_add(other.new);
    }
}

fn bucket(intervals: usize) -> usize {
    (intervals.max(1).ilog2() as usize).min(REUSE_BUCKETS - 1)
}

/// Where in its period a class is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not periodic.
    Unknown,
    /// Its accesses are above the middle of their swing.
    Peak,
    /// Neither.
    Between,
    /// Its accesses are in the lower quarter of their swing, and those of the last interval close to the fewest of
    /// the last run.
    Valley,
}

/// What is known of a periodic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// From peak to peak, in intervals.
    pub period: usize,
    /// Where in it the class is.
    pub phase: Phase,
    /// Intervals until accesses are expected to be half way up to their next peak; 0 where that is due.
    pub next_peak_in: usize,
}

/// The accesses of one class, interval by interval. See the file's opening.
#[derive(Clone, Debug)]
pub struct Diurnal {
    run: usize,
    history: usize,
    /// Accesses by interval, the oldest first.
    counts: VecDeque<u32>,
    /// Reuse times by slot, the oldest first; the last is being filled.
    reuses: VecDeque<ReuseTimes>,
    /// How many intervals are in the last slot.
    in_last_slot: usize,
}

impl Diurnal {
    /// A class of which nothing was seen.
    pub fn new(config: DiurnalConfig) -> Self {
        let history = config.history_intervals.clamp(1, HISTORY_INTERVALS_MAX);
        Diurnal {
            run: config.run_intervals.max(1),
            history,
            counts: VecDeque::with_capacity(history),
            reuses: VecDeque::with_capacity(REUSE_SLOTS),
            in_last_slot: 0,
        }
    }

    /// Takes one interval: how many accesses the class had (all, or a steady share), and how long ago their keys were
    /// used before. Intervals without accesses must be given too.
    pub fn record(&mut self, accesses: u32, reuses: &ReuseTimes) {
        if self.counts.len() == self.history {
            self.counts.pop_front();
        }
        self.counts.push_back(accesses);
        if self.reuses.is_empty() || self.in_last_slot == self.slot_intervals() {
            if self.reuses.len() == REUSE_SLOTS {
                self.reuses.pop_front();
            }
            self.reuses.push_back(ReuseTimes::default());
            self.in_last_slot = 0;
        }
        self.in_last_slot += 1;
        if let Some(slot) = self.reuses.back_mut() {
            slot.merge(reuses);
        }
    }

    fn slot_intervals(&self) -> usize {
        self.history.div_ceil(REUSE_SLOTS)
    }

    /// True where all three tests hold.
    pub fn is_periodic(&self) -> bool {
        self.pattern().is_some()
    }

    /// From peak to peak, in intervals; `None` where it isn't periodic.
    pub fn period(&self) -> Option<usize> {
        self.pattern().map(|pattern| pattern.period)
    }

    /// Where in its period the class is.
    pub fn phase(&self) -> Phase {
        self.pattern().map_or(Phase::Unknown, |pattern| pattern.phase)
    }

    /// As [`Pattern::next_peak_in`]; `None` where the class isn't periodic.
    pub fn next_peak_in(&self) -> Option<usize> {
        self.pattern().map(|pattern| pattern.next_peak_in)
    }

    /// All of the above at once, which costs as much as one of them.
    pub fn pattern(&self) -> Option<Pattern> {
        let counts: Vec<u32> = self.counts.iter().copied().collect();
        // Odd, so that a smoothed peak lasts as long as the peak; at most half a run, so that a burst shorter than
        // the other half never lasts a run.
        let width = (self.run / 2).saturating_sub(1) | 1;
        let smooth = smoothed(&counts, width);
        let swing = Swing::of(&smooth).filter(|swing| swing.is_significant(&counts))?;
        let stretches = stretches(&smooth, &swing, self.run, width / 2);
        let period = period(&stretches, counts.len(), 2 * self.run)?;
        if explained(&counts, &swing, &stretches) < EXPLAINED_MIN || !self.is_reused_after(period) {
            return None;
        }
        let risen = stretches.iter().rev().find(|stretch| stretch.is_high)?.begin;
        let next_peak_in = (risen + period).saturating_sub(counts.len());
        Some(Pattern { period, phase: self.phase_in(&swing, &counts, &smooth), next_peak_in })
    }

    fn phase_in(&self, swing: &Swing, counts: &[u32], smooth: &[f64]) -> Phase {
        let now = smooth.last().copied().unwrap_or(0.0);
        if now >= swing.middle() {
            return Phase::Peak;
        }
        let lately = &counts[counts.len().saturating_sub(self.run)..];
        let fewest = f64::from(lately.iter().copied().min().unwrap_or(0));
        let last = f64::from(lately.last().copied().unwrap_or(0));
        // Close: by a tenth of the swing, or by no more than the counts of a steady stream differ (three deviations
        // of Poisson).
        let close = (swing.width() / 10.0).max(3.0 * (fewest + 1.0).sqrt());
        if now <= swing.lower_quarter() && last - fewest <= close { Phase::Valley } else { Phase::Between }
    }

    /// The third test, over the last period. Long is from a third of a period, rounded down to a power of two, to
    /// four times the period, likewise; what is longer counts as new.
    fn is_reused_after(&self, period: usize) -> bool {
        let slots = 1 + period.saturating_sub(self.in_last_slot).div_ceil(self.slot_intervals());
        let mut reuses = ReuseTimes::default();
        self.reuses.iter().rev().take(slots).for_each(|slot| reuses.merge(slot));
        let sum = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        let (upper, longer) = reuses.buckets.split_at(bucket(2 * period) + 1);
        let (long, others) = (sum(&upper[bucket(period / 3)..]), sum(longer) + u64::from(reuses.new));
        long >= LONG_REUSES_MIN && long * LONG_REUSE_ONE_IN >= long + others
    }

    /// The detector's own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.counts.capacity() * size_of::<u32>() + self.reuses.capacity() * size_of::<ReuseTimes>()
    }
}

/// Means of `width` counts each, from the first on; none where there are fewer.
fn smoothed(counts: &[u32], width: usize) -> Vec<f64> {
    let mean = |window: &[u32]| window.iter().map(|&count| f64::from(count)).sum::<f64>() / width as f64;
    counts.windows(width).map(mean).collect()
}

/// Between what the smoothed counts move.
struct Swing {
    low: f64,
    high: f64,
}

impl Swing {
    fn of(smooth: &[f64]) -> Option<Swing> {
        let mut sorted = smooth.to_vec();
        let outliers = sorted.len() / OUTLIERS;
        let high = sorted.len().checked_sub(1 + outliers)?;
        let mut nth = |n| *sorted.select_nth_unstable_by(n, f64::total_cmp).1;
        Some(Swing { low: nth(outliers), high: nth(high) })
    }

    /// The first test.
    fn is_significant(&self, counts: &[u32]) -> bool {
        self.width() > SWING_SHARE_MIN * mean(counts)
    }

    fn width(&self) -> f64 {
        self.high - self.low
    }

    fn middle(&self) -> f64 {
        self.low + self.width() / 2.0
    }

    fn lower_quarter(&self) -> f64 {
        self.low + self.width() / 4.0
    }
}

/// A peak or a valley: from `begin` until the next begins.
struct Stretch {
    is_high: bool,
    begin: usize,
}

/// The second test: stretches of high and low by turns. One shorter than a run belongs to the one before.
///
/// `centre` is where in its window a smoothed count stands.
fn stretches(smooth: &[f64], swing: &Swing, run: usize, centre: usize) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for (i, &count) in smooth.iter().enumerate() {
        let was_high = all.last().is_some_and(|stretch| stretch.is_high);
        let is_high = count >= swing.middle() || (was_high && count > swing.lower_quarter());
        if all.is_empty() || is_high != was_high {
            all.push(Stretch { is_high, begin: i });
        }
    }
    let mut lasting: Vec<Stretch> = Vec::new();
    let ends = all.iter().skip(1).map(|next| next.begin).chain([smooth.len()]).collect::<Vec<_>>();
    for (stretch, end) in all.into_iter().zip(ends) {
        let is_turn = lasting.last().is_none_or(|before| before.is_high != stretch.is_high);
        if is_turn && end - stretch.begin >= run {
            lasting.push(Stretch { begin: stretch.begin + centre, ..stretch });
        }
    }
    lasting
}

/// The distance of rises, and of falls, where they agree; `now` is the end of the history, `delay` what a turn takes
/// to be seen.
fn period(stretches: &[Stretch], now: usize, delay: usize) -> Option<usize> {
    let turns = stretches.get(1..)?;
    let mut distances: Vec<usize> = turns.windows(3).map(|turns| turns[2].begin - turns[0].begin).collect();
    if distances.len() < 2 {
        return None;
    }
    distances.sort_unstable();
    let median = (distances[(distances.len() - 1) / 2] + distances[distances.len() / 2]) / 2;
    let strays = |&&distance: &&usize| distance.abs_diff(median) as f64 > DISTANCE_TOLERANCE * median as f64;
    if distances.iter().filter(strays).count() > distances.len() / DISTANCE_OUTLIERS {
        return None;
    }
    // The second turn from either end is a rise or a fall that has none of its kind further out.
    let [_, first, ..] = turns else { return None };
    let [.., last, _] = turns else { return None };
    let overdue = (OVERDUE * median as f64) as usize + delay;
    (first.begin <= overdue && now - last.begin <= overdue).then_some(median)
}

/// The share of the variance of the counts that high and low explain (the correlation ratio), 0 to 1. What comes before
/// the first stretch is neither. Counts further out than the swing is wide are taken for that, lest one burst be most
/// of the variance.
fn explained(counts: &[u32], swing: &Swing, stretches: &[Stretch]) -> f64 {
    let Some(first) = stretches.first() else { return 0.0 };
    let taken = |&count: &u32| f64::from(count).clamp(swing.low - swing.width(), swing.high + swing.width());
    let is_high = |i: usize| {
        let after = stretches.partition_point(|stretch| stretch.begin <= i);
        stretches[after - 1].is_high
    };
    let told = || counts.iter().map(taken).enumerate().skip(first.begin);
    let mut levels = [(0.0, 0.0); 2];
    for (i, count) in told() {
        let (n, sum) = &mut levels[usize::from(is_high(i))];
        *n += 1.0;
        *sum += count;
    }
    let mean = (levels[0].1 + levels[1].1) / (levels[0].0 + levels[1].0);
    let between: f64 = levels.iter().filter(|(n, _)| *n > 0.0).map(|(n, sum)| n * (sum / n - mean).powi(2)).sum();
    let all: f64 = told().map(|(_, count)| (count - mean).powi(2)).sum();
    if all > 0.0 { between / all } else { 0.0 }
}

fn mean(counts: &[u32]) -> f64 {
    counts.iter().map(|&count| f64::from(count)).sum::<f64>() / counts.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::f64::consts::TAU;

    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    /// Short enough that a test takes no time: peaks and valleys of 6 intervals, 500 of history.
    const QUICK: DiurnalConfig = DiurnalConfig { run_intervals: 6, history_intervals: 500 };

    /// Which keys a stream uses.
    #[derive(Clone, Copy)]
    enum Keys {
        /// The same at all times.
        Same,
        /// Others after each so many intervals.
        NewEvery(usize),
    }

    /// A class that uses 300 keys at a time at random, `counts` of them per interval.
    fn feed(diurnal: &mut Diurnal, counts: &[u32], keys: Keys) {
        let mut random = Random::new(3);
        let mut last_used: HashMap<u64, usize> = HashMap::new();
        for (now, &count) in counts.iter().enumerate() {
            let generation = match keys {
                Keys::Same => 0,
                Keys::NewEvery(intervals) => now / intervals,
            };
            let mut reuses = ReuseTimes::default();
            for _ in 0..count {
                let key = generation as u64 * 300 + random.below(300);
                reuses.add(last_used.insert(key, now).map(|then| (now - then) as u32));
            }
            diurnal.record(count, &reuses);
        }
    }

    fn after(counts: &[u32], keys: Keys) -> Diurnal {
        let mut diurnal = Diurnal::new(QUICK);
        feed(&mut diurnal, counts, keys);
        diurnal
    }

    /// A count around `mean`: Poisson, by its definition for few and by the normal law for many.
    fn poisson(random: &mut Random, mean: f64) -> u32 {
        if mean > 50.0 {
            let normal = (-2.0 * random.unit().ln()).sqrt() * (TAU * random.unit()).cos();
            return (mean + normal * mean.sqrt()).round().max(0.0) as u32;
        }
        let (mut n, mut product) = (0, random.unit());
        while product > (-mean).exp() {
            n += 1;
            product *= random.unit();
        }
        n
    }

    fn noisy(n: usize, seed: u64, mean: impl Fn(usize) -> f64) -> Vec<u32> {
        let mut random = Random::new(seed);
        (0..n).map(|i| poisson(&mut random, mean(i))).collect()
    }

    fn shuffled(mut counts: Vec<u32>, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        for i in (1..counts.len()).rev() {
            counts.swap(i, random.below(i as u64 + 1) as usize);
        }
        counts
    }

    /// 40 intervals of 5 accesses, then 20 of 50, and so on.
    fn square(n: usize) -> Vec<u32> {
        (0..n).map(|i| if i % 60 < 40 { 5 } else { 50 }).collect()
    }

    /// Reuse times that are long whatever the period, so that only the counts decide.
    fn pattern_of_counts(counts: &[u32]) -> Option<Pattern> {
        let mut diurnal = Diurnal::new(QUICK);
        let reuses = ReuseTimes { new: 0, buckets: std::array::from_fn(|i| 1 << (REUSE_BUCKETS - i)) };
        counts.iter().for_each(|&count| diurnal.record(count, &reuses));
        diurnal.pattern()
    }

    #[test]
    fn a_square_wave_is_periodic_from_its_second_peaks_end_on() {
        let ends = (0..400).find(|&n| after(&square(n), Keys::Same).is_periodic());
        // The second peak ends at 120; the fall is believed a run later, and smoothing takes two.
        assert!((120..=128).contains(&ends.unwrap()), "{ends:?}");
        let expected = [
            (170, Phase::Peak, 50),
            (181, Phase::Peak, 39),
            (182, Phase::Between, 38),
            (183, Phase::Valley, 37),
            (219, Phase::Valley, 1),
        ];
        for (n, phase, next_peak_in) in expected {
            let got = after(&square(n), Keys::Same).pattern();
            assert_eq!(got, Some(Pattern { period: 60, phase, next_peak_in }), "after {n}");
        }
    }

    #[test]
    fn a_sine_with_noise_is_periodic_wherever_it_stands() {
        for n in 260..380 {
            let counts = noisy(n, n as u64, |i| 40.0 + 30.0 * (TAU * i as f64 / 120.0).sin());
            let pattern = after(&counts, Keys::Same).pattern().unwrap_or_else(|| panic!("after {n}"));
            assert!((110..=130).contains(&pattern.period), "{pattern:?}");
            // It rises through the middle at multiples of 120.
            let expected = (120 - n % 120) % 120;
            let off = pattern.next_peak_in.abs_diff(expected);
            assert!(off.min(120 - off) <= 14, "after {n}: {pattern:?}");
            match n % 120 {
                15..=45 => assert_eq!(pattern.phase, Phase::Peak, "after {n}"),
                85..=100 => assert_eq!(pattern.phase, Phase::Valley, "after {n}"),
                _ => {}
            }
        }
    }

    #[test]
    fn one_burst_does_not_hide_a_period() {
        let mut counts = square(480);
        counts[200] = 5_000;
        assert_eq!(pattern_of_counts(&counts).map(|pattern| pattern.period), Some(60));
    }

    /// Minutes, as in the server: two days of which the afternoons are busy.
    #[test]
    fn a_day_of_minutes_fits_the_default_history() {
        let mut diurnal = Diurnal::new(DiurnalConfig::default());
        let counts = noisy(5000, 1, |i| if i % 1440 < 300 { 30.0 } else { 2.0 });
        feed(&mut diurnal, &counts, Keys::Same);
        assert!((1420..=1460).contains(&diurnal.period().unwrap()), "{:?}", diurnal.pattern());
        assert!(diurnal.memory_bytes() < 16 << 10, "{}", diurnal.memory_bytes());
    }

    #[test]
    fn each_of_the_three_tests_is_needed() {
        let periodic = |counts: &[u32], keys| after(counts, keys).is_periodic();
        assert!(periodic(&square(300), Keys::Same));
        // Existence: 45 and 60 differ by less than half of 50.
        let shallow: Vec<u32> = square(300).iter().map(|&count| 44 + count / 3).collect();
        assert!(!periodic(&shallow, Keys::Same));
        // Duration: peaks of three intervals.
        let spikes: Vec<u32> = (0..300).map(|i| if i % 60 < 57 { 5 } else { 50 }).collect();
        assert!(!periodic(&spikes, Keys::Same));
        // Long reuse: each period has keys of its own.
        assert!(!periodic(&square(300), Keys::NewEvery(60)));
    }

    #[test]
    fn bursts_and_growth_are_not_periodic() {
        let burst = |lasts: usize| {
            (0..400).map(|i| if (100..100 + lasts).contains(&i) { 90 } else { 10 }).collect::<Vec<u32>>()
        };
        let growing = noisy(400, 1, |i| 10.0 + i as f64 / 4.0);
        let shrinking: Vec<u32> = growing.iter().rev().copied().collect();
        let step: Vec<u32> = (0..400).map(|i| if i < 200 { 10 } else { 60 }).collect();
        for counts in [burst(1), burst(4), burst(30), burst(200), growing, shrinking, step, vec![0; 400], vec![7; 400]]
        {
            for n in 1..=counts.len() {
                assert_eq!(pattern_of_counts(&counts[..n]), None, "after {n} of {counts:?}");
            }
        }
    }

    /// A drift looks like a period where its turns happen to be even; the bound is what the file's opening states.
    #[test]
    fn few_random_walks_pass_for_periods() {
        let walk = |seed: u64| {
            let mut random = Random::new(seed);
            let mut level = 50.0_f64;
            let mut step = |_| {
                level = (level + 8.0 * (random.unit() - 0.5)).max(0.0);
                level as u32
            };
            (0..500).map(&mut step).collect::<Vec<u32>>()
        };
        let passed = (0..300).filter(|&seed| pattern_of_counts(&walk(seed)).is_some()).count();
        assert!(passed < 300 / 20, "{passed} of 300");
    }

    #[test]
    fn a_pattern_that_ends_is_given_up() {
        let mut counts = square(300);
        counts.extend(vec![5; 80]);
        assert!(!after(&counts, Keys::Same).is_periodic());
        let mut diurnal = Diurnal::new(QUICK);
        assert_eq!((diurnal.period(), diurnal.next_peak_in(), diurnal.phase()), (None, None, Phase::Unknown));
        diurnal.record(1, &ReuseTimes::default());
        assert!(!diurnal.is_periodic());
    }

    /// Both ends of the history are in a valley, too short yet to last a run.
    #[test]
    fn valleys_cut_off_at_both_ends_hide_no_period() {
        let is_high = |i: usize| (35 + i) % 41 < 30;
        let found = |seed: &u64| {
            let counts = noisy(124, *seed, |i| if is_high(i) { 20.83 } else { 0.42 });
            pattern_of_counts(&counts).is_some_and(|pattern| pattern.period.abs_diff(41) <= 3)
        };
        let missed: Vec<u64> = (0..10_000).filter(|seed| !found(seed)).collect();
        assert!(missed.is_empty(), "{} of 10000: {missed:?}", missed.len());
    }

    proptest! {
        #[test]
        fn constant_noise_is_never_periodic(seed: u64, log_mean in -3.0..7.0_f64, n in 1..700_usize) {
            prop_assert_eq!(pattern_of_counts(&noisy(n, seed, |_| log_mean.exp())), None);
        }

        #[test]
        fn shuffled_counts_are_not_periodic(seed: u64, period in 20..200_usize, n in 100..700_usize) {
            let counts = (0..n).map(|i| if i % period < period / 2 { 5 } else { 50 }).collect();
            prop_assert_eq!(pattern_of_counts(&shuffled(counts, seed)), None);
        }

        #[test]
        fn noisy_square_waves_are_found(
            seed: u64, period in 36..200_usize, duty in 0.25..0.75_f64, low in 0.0..20.0_f64,
            begin in 0..200_usize, cycles in 2.5..6.0_f64,
        ) {
            let high = 2.0 * low + 20.0;
            let n = (period as f64 * cycles) as usize;
            let is_high = |i: usize| ((begin + i) % period) < (period as f64 * duty) as usize;
            let counts = noisy(n, seed, |i| if is_high(i) { high } else { low });
            let pattern = pattern_of_counts(&counts).expect("two whole periods and a half were seen");
            prop_assert!(pattern.period.abs_diff(period) <= 3, "{pattern:?}");
            // The next peak begins where the wave says, or it has just begun and not lasted a run.
            let rises = (n..).find(|&i| is_high(i) && !is_high(i - 1)).unwrap() - n;
            let off = pattern.next_peak_in.abs_diff(rises);
            prop_assert!(off.min(period.abs_diff(off)) <= 9, "{pattern:?}, next rise in {rises}");
        }

        #[test]
        fn any_counts_are_answered(counts in prop::collection::vec(any::<u32>(), 0..60), run in 0..5_usize) {
            let mut diurnal = Diurnal::new(DiurnalConfig { run_intervals: run, history_intervals: 40 });
            for &count in &counts {
                diurnal.record(count, &ReuseTimes { new: count, buckets: [count; REUSE_BUCKETS] });
            }
            if let Some(pattern) = diurnal.pattern() {
                prop_assert!(pattern.period >= 2 * run.max(1) && pattern.period <= 40);
                prop_assert!(pattern.next_peak_in <= pattern.period);
            }
        }
    }
}
