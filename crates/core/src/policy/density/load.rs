//! How busy the server's main thread is, and how much looking for a good victim is worth then.
//!
//! What keys a larger sample finds saves its users' time later; what the sample takes of the main thread is waited
//! for now by all whose commands are in line. With time to spare hardly anybody is; from half of it spent on, each
//! microsecond more makes a line longer (docs/decisions/06-density.md). Where slices of eviction end for want of time
//! the sample is smaller still: what Tenure leaves over, the server takes by recency, and the worse of two keys by rank
//! is still the better victim.

use crate::decide::sample_size::SAMPLE_SIZE_DEFAULT;

/// From this share of the time on the sample becomes smaller…
const AT_EASE: f64 = 0.3;
/// … and from this on it is as small as it gets: where requests come by chance (M/M/1), each microsecond more makes all
/// who come to a core that is half taken wait for four.
const HALF_TAKEN: f64 = 0.5;
/// What a tick's share moves the smoothed one by, of the difference.
const WEIGHT: f64 = 0.1;
/// So many keys are looked at where time runs out, of which newcomers are one each. On the ladder that costs 4 % of
/// the latency, and one key all that there is to win.
const FEWEST: u32 = 2;
/// A slice that ran out of time counts as many as so many that didn't: one large value among small ones is no reason,
/// nor is another program that had the core.
const LATE: u32 = 3;
/// So many of these make it one key fewer.
const LATE_PER_KEY: u32 = 8;
const LATE_MAX: u32 = LATE_PER_KEY * (SAMPLE_SIZE_DEFAULT - FEWEST + 1) - 1;

/// The share of its time that the main thread is at work. See the file's opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Time and processor time when it was last looked at, in µs.
    seen: Option<(u64, u64)>,
    share: f64,
    /// How many more slices ended for want of time than not, see [`LATE`].
    late: u32,
    /// One did since the last tick.
    has_run_out: bool,
}

impl Load {
    /// It is `now_us`, and the main thread has used `cpu_us` of processor time so far.
    pub fn look(&mut self, now_us: u64, cpu_us: u64) {
        if let Some((then_us, before_us)) = self.seen.replace((now_us, cpu_us)) {
            let elapsed_us = now_us.saturating_sub(then_us).max(1) as f64;
            let share = (cpu_us.saturating_sub(before_us) as f64 / elapsed_us).min(1.0);
            self.share += WEIGHT * (share - self.share);
        }
        if !std::mem::take(&mut self.has_run_out) {
            self.late = self.late.saturating_sub(LATE_PER_KEY);
        }
    }

    /// A slice of eviction has ended, with keys left to free or without.
    pub fn slice_ended(&mut self, ran_out: bool) {
        self.late = if ran_out { (self.late + LATE).min(LATE_MAX) } else { self.late.saturating_sub(1) };
        self.has_run_out |= ran_out;
    }

    /// True while more than one slice in four ends with keys left to free.
    pub fn runs_out(&self) -> bool {
        self.fewer() > 0
    }

    /// Keys fewer, since slices ended for want of time.
    fn fewer(&self) -> u32 {
        self.late / LATE_PER_KEY
    }

    /// The share of late, 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// How many keys to look at where `set` were if there is time; `are_waiting` says that replies do.
    pub fn samples(&self, set: u32, are_waiting: bool) -> u32 {
        let spare = ((HALF_TAKEN - self.share) / (HALF_TAKEN - AT_EASE)).clamp(0.0, 1.0);
        if are_waiting && self.runs_out() {
            return set.min(SAMPLE_SIZE_DEFAULT - self.fewer());
        }
        // As many as the server itself looks at.
        let few = set.min(SAMPLE_SIZE_DEFAULT);
        few + (f64::from(set - few) * spare).round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ticks: u64, share: f64) -> Load {
        let mut load = Load::default();
        (0..=ticks).for_each(|i| load.look(i * 100_000, (i as f64 * share * 100_000.0) as u64));
        load
    }

    #[test]
    fn the_share_is_of_late() {
        assert_eq!(Load::default().share(), 0.0);
        assert!((after(100, 0.7).share() - 0.7).abs() < 0.01);
        assert!(after(5, 1.0).share() < 0.5, "half a second is no load");
    }

    #[test]
    fn the_busier_the_fewer_keys_are_looked_at_but_as_many_as_the_server_would() {
        let samples = |share, set| after(200, share).samples(set, false);
        assert_eq!([0.1, 0.29, 0.42, 0.51, 1.0].map(|share| samples(share, 10)), [10, 10, 7, 5, 5]);
        assert_eq!([0.1, 1.0].map(|share| samples(share, 64)), [64, 5]);
        assert_eq!([0.1, 1.0].map(|share| samples(share, 3)), [3, 3], "fewer were asked for");
        let before_replies = |share| after(200, share).samples(10, true);
        assert_eq!([0.1, 0.42, 1.0].map(before_replies), [10, 7, 5]);
    }

    #[test]
    fn where_time_runs_out_fewer_are_looked_at_until_it_does_no_more() {
        let mut load = after(200, 1.0);
        let looks = |load: &Load| (load.samples(10, true), load.samples(1, true), load.samples(10, false));
        let fewer = (0..11).map(|_| {
            load.slice_ended(true);
            looks(&load).0
        });
        assert_eq!(fewer.collect::<Vec<_>>(), [5, 5, 4, 4, 4, 3, 3, 2, 2, 2, 2]);
        assert_eq!(looks(&load), (2, 1, 5));
        let (now_us, cpu_us) = (20_100_000, 20_100_000);
        load.look(now_us, cpu_us);
        assert_eq!(looks(&load).0, 2, "it did since the last tick");
        let more = (1..5).map(|tick| {
            load.look(now_us + tick * 100_000, cpu_us + tick * 100_000);
            (load.samples(10, true), load.runs_out())
        });
        assert_eq!(more.collect::<Vec<_>>(), [(3, true), (4, true), (5, false), (5, false)]);
    }

    /// A large value now and then has a slice run out of time, and no fewer keys would help.
    #[test]
    fn one_slice_in_five_that_runs_out_is_no_reason_to_look_at_fewer() {
        let k = |one_in: u32| {
            let mut load = Load::default();
            (0..1_000).for_each(|i| load.slice_ended(i % one_in == 0));
            load.samples(10, true)
        };
        assert_eq!([1, 2, 5, 20].map(k), [2, 2, 10, 10]);
    }
}
