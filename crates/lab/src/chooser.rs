//! DLRU in the server: one K for the whole cache, chosen at the end of each window by what miniature caches missed.
//!
//! Source: DLRU (Wang et al., MEMSYS'20) sec. 3; cost model in `tenure_core::decide::sample_size`, caches in
//! `miniatures.rs`. They take 1/200 of the keys, more in small caches, and never more than the stream is
//! sampled at. Deviations: a window with too few distinct keys is counted on with the next; windows in which the
//! miniatures weren't full from the start decide nothing, since every K misses alike then.

use tenure_core::access::Access;
use tenure_core::decide::sample_size::{DISTINCT_KEYS_MIN, EVICTION_US_AT_ONE, SAMPLE_SIZES, eviction_us_at_one};
use tenure_core::sampling::SampleRate;

use super::miniatures::Miniatures;

/// The share of keys to begin with in a large cache (sec. 3.3).
const RATE: f64 = 1.0 / 200.0;
/// Keys that a miniature is to hold at the least, and where memory for it isn't scarce.
const KEYS_MIN: u64 = 512;
const KEYS_MAX: u64 = 4096;
/// The miniatures' share of the limit, and what a key takes in all of them, in bytes.
const LIMIT_SHARE: u64 = 128;
const KEY_BYTES: u64 = 60 * SAMPLE_SIZES.len() as u64;
/// A miniature that holds so many times what it is to hold is made anew at a lower rate.
const TOO_MANY: u64 = 4;
/// Fewer evictions in a window than this don't tell what one takes.
const EVICTIONS_MIN: u64 = 100;

/// What the cache as a whole is like at the end of a window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole {
    /// Keys there are.
    pub keys: u64,
    /// What all keys together may take, in bytes; 0 without a limit.
    pub capacity_bytes: u64,
    /// The server's limit, in bytes.
    pub memory_bytes: u64,
    /// Mean miss penalty, in µs; 0 where none was measured.
    pub penalty_us_mean: f64,
    /// Keys evicted so far.
    pub evictions: u64,
    /// Time spent on it, in µs.
    pub eviction_us: u64,
    /// Keys read so far.
    pub reads: u64,
    /// Of these, keys that weren't there.
    pub misses: u64,
}

/// What was chosen, and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// Keys to sample per eviction; `None` until enough was seen.
    pub sample_size: Option<u32>,
    /// The miss ratio that each of [`SAMPLE_SIZES`] would have had in the last window.
    pub miss_ratios: [f64; SAMPLE_SIZES.len()],
    /// Distinct keys that say so.
    pub sampled_keys: usize,
    /// How far the prediction was off, window by window.
    pub error: Error,
}

/// By how much the miss ratio predicted for the K in force was off the one that was counted, over the windows that
/// had a K from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Error {
    /// Such windows.
    pub windows: u64,
    /// Sum of the absolute differences of miss ratios.
    pub sum: f64,
}

impl Error {
    /// The mean absolute error, as DLRU's authors have it (sec. 4.2); `None` before the first window.
    pub fn mean(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.sum / self.windows as f64)
    }
}

/// The miniatures and the choice. See the file's opening.
#[derive(Debug, Default)]
pub struct Chooser {
    miniatures: Option<Miniatures>,
    choice: Choice,
    /// They were full when the window began.
    were_full: bool,
    before: Whole,
}

impl Chooser {
    /// Takes one access of the sampled stream.
    pub fn record(&mut self, access: &Access) {
        if let Some(miniatures) = &mut self.miniatures {
            miniatures.record(access);
        }
    }

    /// What was chosen elsewhere is in force until something is chosen here.
    pub fn begin_with(&mut self, sample_size: Option<u32>) {
        self.choice = Choice { sample_size, ..Choice::default() };
    }

    /// What is in force.
    pub fn choice(&self) -> Choice {
        self.choice
    }

    /// A part of the stream goes by unseen: what the miniatures hold is of no use.
    pub fn skip(&mut self) {
        (self.miniatures, self.were_full) = (None, false);
    }

    /// Ends a window of a stream that is sampled at `stream_rate`; what is to be used from now on.
    pub fn end_window(&mut self, whole: Whole, stream_rate: SampleRate) -> Choice {
        // Where no penalty was measured, misses alone decide.
        let penalty_us = if whole.penalty_us_mean > 0.0 { whole.penalty_us_mean } else { f64::MAX.sqrt() };
        let eviction_us = self.eviction_us(whole);
        if let Some(miniatures) = &mut self.miniatures {
            let cheapest = miniatures.cheapest(penalty_us, eviction_us);
            if self.were_full && cheapest.is_some() {
                let (miss_ratios, sampled_keys) = (miniatures.miss_ratios(), miniatures.sampled_keys());
                let error = compare(&self.choice, &miss_ratios, self.before, whole);
                self.choice = Choice { sample_size: cheapest, miss_ratios, sampled_keys, error };
            }
            // Where too few keys were met, the next window goes on counting.
            if !self.were_full || cheapest.is_some() {
                miniatures.end_window();
            }
        }
        self.before = whole;
        self.fit(whole, stream_rate);
        self.were_full = self.miniatures.as_ref().is_some_and(Miniatures::are_full);
        self.choice
    }

    /// OH_1: as measured in this window, where there was enough to measure.
    fn eviction_us(&self, whole: Whole) -> f64 {
        let evictions = whole.evictions.saturating_sub(self.before.evictions);
        let spent_us = whole.eviction_us.saturating_sub(self.before.eviction_us) as f64;
        match self.choice.sample_size {
            Some(k) if evictions >= EVICTIONS_MIN => eviction_us_at_one(spent_us / evictions as f64, k),
            _ => EVICTION_US_AT_ONE,
        }
    }

    /// Makes the miniatures fit the cache: its size, its number of keys, the rate of the stream.
    fn fit(&mut self, whole: Whole, stream_rate: SampleRate) {
        if whole.capacity_bytes == 0 {
            return self.skip();
        }
        let keys = (whole.memory_bytes / LIMIT_SHARE / KEY_BYTES).clamp(KEYS_MIN, KEYS_MAX);
        let enough = (keys as f64 / whole.keys.max(1) as f64).max(RATE).min(stream_rate.rate());
        let rate = match &self.miniatures {
            None => Some(enough),
            Some(m) if m.rate() > stream_rate => Some(enough),
            Some(m) if m.resident_keys() as u64 > TOO_MANY * keys && m.rate().rate() > RATE => Some(enough),
            Some(m) if m.are_full() && m.resident_keys() < DISTINCT_KEYS_MIN && m.rate() < stream_rate => {
                Some((2.0 * m.rate().rate()).min(stream_rate.rate()))
            }
            Some(_) => None,
        };
        let anew = rate.and_then(|rate| SampleRate::new(rate.min(1.0)).ok());
        match (anew, &mut self.miniatures) {
            (Some(rate), _) => self.miniatures = Some(Miniatures::new(rate, whole.capacity_bytes, 1)),
            (None, Some(miniatures)) => miniatures.resize(whole.capacity_bytes),
            (None, None) => {}
        }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.miniatures.as_ref().map_or(0, Miniatures::memory_bytes)
    }
}

/// Adds the window that ends to the error of `choice`, whose K was in force.
fn compare(choice: &Choice, predicted: &[f64; SAMPLE_SIZES.len()], before: Whole, whole: Whole) -> Error {
    let reads = whole.reads.saturating_sub(before.reads);
    let in_force = SAMPLE_SIZES.iter().position(|&k| Some(k) == choice.sample_size);
    match in_force {
        Some(i) if reads > 0 => {
            let counted = whole.misses.saturating_sub(before.misses) as f64 / reads as f64;
            Error { windows: choice.error.windows + 1, sum: choice.error.sum + (predicted[i] - counted).abs() }
        }
        _ => choice.error,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::units::KeyHash;

    use super::*;

    /// After windows of `keys`, which are more than fit.
    fn chosen(mut keys: impl Iterator<Item = u64>) -> Choice {
        let mut chooser = Chooser::default();
        let whole = Whole {
            keys: 4000,
            capacity_bytes: 4000,
            memory_bytes: 1 << 20,
            penalty_us_mean: 1000.0,
            ..Whole::default()
        };
        for _ in 0..8 {
            keys.by_ref().take(20_000).for_each(|key| chooser.record(&Access::read(KeyHash::of_number(key), 1)));
            chooser.end_window(whole, SampleRate::ALL);
        }
        chooser.choice
    }

    #[test]
    fn a_loop_wants_a_random_victim_and_a_drift_the_oldest() {
        let choice = chosen((0..).map(|i| i % 5000));
        assert_eq!(choice.sample_size, Some(1), "{choice:?}");
        assert!(choice.miss_ratios[0] < choice.miss_ratios[4], "{choice:?}");
        let mut random = tenure_core::random::Random::new(1);
        let choice = chosen((0..).map(|i| i / 4 + random.below(5000)));
        assert!(choice.sample_size >= Some(10), "{choice:?}");
    }

    /// The K in force is compared with what was counted, window by window, from the second with a K on.
    #[test]
    fn the_error_is_that_of_the_k_in_force() {
        let choice = Choice { sample_size: Some(5), ..Choice::default() };
        let counted = |reads, misses| Whole { reads, misses, ..Whole::default() };
        let error = compare(&choice, &[0.9, 0.9, 0.25, 0.9, 0.9], counted(100, 50), counted(300, 90));
        assert_eq!((error.windows, error.sum), (1, 0.25 - 0.2));
        assert_eq!(error.mean(), Some(0.25 - 0.2));
        assert_eq!(compare(&Choice::default(), &[0.9; 5], counted(0, 0), counted(9, 9)).mean(), None);
    }

    #[test]
    fn what_fits_and_what_is_not_sampled_decides_nothing() {
        assert_eq!(chosen((0..).map(|i| i % 1000)).sample_size, None, "it fits: no miniature is ever full");
        assert_eq!(chosen((0..).map(|i| i % 3)), Choice::default());
    }
}
