//! The rate at which keys are sampled: low enough that watching costs the main thread little and memory lasts, high
//! enough that a small working set is seen well.

use std::time::{Duration, Instant};

use tenure_core::sampling::SampleRate;

use super::shared::Instructions;

/// With fewer sampled keys than this the rate is raised, where the stream allows it.
const SAMPLED_KEYS_ENOUGH: usize = 1 << 14;
/// The rate is raised to what takes so much of the samples that are allowed: a stream is not always as fast.
const ALLOWED_SHARE: f64 = 0.75;
/// It is not raised for less, nor by more at once; for the caches of other sizes it is changed by no less.
const RAISED_BY_MIN: f64 = 1.25;
const RAISED_BY_MAX: f64 = 2.0;
/// How often the rate is looked at.
const RATE_EVERY: Duration = Duration::from_millis(100);

/// The rate in force, and what it is steered by. Keys are those that the models remember.
pub struct RateControl {
    /// The models'.
    rate: SampleRate,
    /// The stream's, at least the models'.
    stream: SampleRate,
    /// Sampled accesses since it was last looked at.
    samples: u64,
    looked_at: Instant,
    keys_max: usize,
}

impl RateControl {
    /// `rate` is in force, and so many keys may be remembered.
    pub fn new(rate: SampleRate, keys_max: usize) -> Self {
        RateControl { rate, stream: rate, samples: 0, looked_at: Instant::now(), keys_max }
    }

    /// The rate at which the models take keys.
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// The rate at which accesses come: the models', or more for the caches of other sizes.
    pub fn stream(&self) -> SampleRate {
        self.stream
    }

    /// The models' is another from now on, and the stream's where it was no other, or less.
    pub fn set(&mut self, rate: SampleRate) {
        if self.stream == self.rate || self.stream < rate {
            self.stream = rate;
        }
        self.rate = rate;
    }

    /// So many keys may be remembered from now on.
    pub fn allow_keys(&mut self, keys_max: usize) {
        self.keys_max = keys_max;
    }

    /// A sampled access was taken.
    pub fn count(&mut self) {
        self.samples += 1;
    }

    /// True where it is time to look whether the rate is too high.
    pub fn is_due(&self) -> bool {
        self.looked_at.elapsed() >= RATE_EVERY
    }

    /// The rate that there should be where watching costs too much or remembers too much. What was dropped on the way
    /// cost the main thread as much as what came.
    pub fn lowered(&mut self, dropped: u64, keys: usize, instructions: &Instructions) -> Option<f64> {
        let per_second = (self.samples + dropped) as f64 / self.looked_at.elapsed().as_secs_f64();
        self.samples = 0;
        self.looked_at = Instant::now();
        let allowed = instructions.samples_per_second as f64;
        if keys > self.keys_max {
            return Some(self.rate.rate() / 2.0);
        }
        if per_second > 1.25 * allowed && self.stream > self.rate {
            self.stream = self.rate;
            return Some(self.rate.rate());
        }
        let is_too_high = per_second > 1.25 * allowed && self.rate > instructions.rate_min;
        let wanted = self.rate.rate() * (allowed / per_second).max(0.1);
        is_too_high.then(|| wanted.max(instructions.rate_min.rate()))
    }

    /// At the end of a window with so many requests a second: accesses come at the rate that is wanted for the caches
    /// of other sizes from now on, as far as that may be. True where that is another rate.
    pub fn widen(&mut self, wanted: f64, requests_per_second: f64, allowed: u64) -> bool {
        let by_time = ALLOWED_SHARE * allowed as f64 / requests_per_second.max(1.0);
        let stream = wanted.min(by_time).clamp(self.rate.rate(), 1.0);
        let (less, more) = (self.stream.rate() / RAISED_BY_MIN, self.stream.rate() * RAISED_BY_MIN);
        if stream > less && stream < more {
            return false;
        }
        SampleRate::new(stream).is_ok_and(|stream| std::mem::replace(&mut self.stream, stream) != stream)
    }

    /// The rate that there should be at the end of a window in which few keys were seen and watching cost little.
    pub fn raised(&self, keys: usize, samples_per_second: f64, allowed: u64) -> Option<f64> {
        let keys_enough = SAMPLED_KEYS_ENOUGH.min(self.keys_max / 2);
        let by_keys = keys_enough as f64 / keys.max(1) as f64;
        let by_time = ALLOWED_SHARE * allowed as f64 / samples_per_second.max(1.0);
        let factor = by_keys.min(by_time).min(RAISED_BY_MAX);
        let may_be_raised = factor >= RAISED_BY_MIN && self.rate < SampleRate::ALL;
        may_be_raised.then(|| self.rate.rate() * factor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::instructions;
    use super::*;

    /// Up to half of the keys that may be remembered, three quarters of the samples that are allowed, and twice at the
    /// most; for little nothing is changed.
    #[test]
    fn it_is_raised_to_what_is_enough() {
        let control = RateControl::new(SampleRate::new(0.1).unwrap(), 8_000);
        let raised = |keys, samples| control.raised(keys, samples, 10_000).map(|rate| (rate * 1000.0).round() / 1000.0);
        assert_eq!(raised(0, 0.0), Some(0.2));
        assert_eq!((raised(3_000, 100.0), raised(3_300, 100.0)), (Some(0.133), None));
        assert_eq!((raised(100, 5_000.0), raised(100, 7_000.0)), (Some(0.15), None));
        assert_eq!(RateControl::new(SampleRate::ALL, 8_000).raised(0, 0.0, 10_000), None);
    }

    /// More comes than the models take while that may be; where it is too much, no more than they take at first.
    #[test]
    fn more_comes_where_it_is_wanted_and_allowed() {
        let mut control = RateControl::new(SampleRate::new(0.1).unwrap(), 8_000);
        let mut widened = |wanted, requests| {
            let is_other = control.widen(wanted, requests, 10_000);
            (is_other, (control.stream().rate() * 1000.0).round())
        };
        assert_eq!([widened(0.05, 1e3), widened(0.11, 1e3)], [(false, 100.0); 2]);
        assert_eq!(
            [widened(0.2, 1e3), widened(0.21, 1e3), widened(2.0, 5e4)],
            [(true, 200.0), (false, 200.0), (true, 150.0)]
        );
        assert_eq!(
            [widened(2.0, 1e3), widened(0.0, 1e3), widened(0.5, 1e3)],
            [(true, 1000.0), (true, 100.0), (true, 500.0)]
        );
        // The models' rate is another, and what comes the same, until it is too much.
        control.set(SampleRate::new(0.2).unwrap());
        assert_eq!((control.rate().rate() * 10.0).round(), 2.0);
        assert_eq!((control.stream().rate() * 10.0).round(), 5.0);
        let busy = Instructions { samples_per_second: 10, ..instructions() };
        assert!(control.lowered(1_000_000, 0, &busy).is_some_and(|rate| (rate - 0.2).abs() < 1e-6));
        assert_eq!(control.stream(), control.rate());
        assert!(control.lowered(1_000_000, 0, &busy).is_some_and(|rate| rate < 0.1));
    }
}
