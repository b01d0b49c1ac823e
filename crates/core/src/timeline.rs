//! Which tick of a clock it was at a time past: a few points of both, the closer together the later they are.
//!
//! A clock that counts requests goes faster by day than by night, and a server tells in seconds how long a key was not
//! used. Cost: O(points) ten times a second, a binary search for each question; some 150 points, 2 KB, for a day.

use std::collections::VecDeque;

/// Two points are apart by this part of the time since the later of them, or less.
const SPACING: u64 = 8;

/// The points, in µs and ticks, the oldest first. See the file's opening.
#[derive(Clone, Debug, Default)]
pub struct Timeline(VecDeque<(u64, u64)>);

impl Timeline {
    /// It is `tick` at `now_us`. Neither ever decreases.
    pub fn note(&mut self, now_us: u64, tick: u64) {
        self.0.push_back((now_us, tick));
        // From the newest back, a point goes where its neighbours are close enough to each other without it.
        let mut at = self.0.len().saturating_sub(2);
        while at >= 1 {
            let (before_us, after_us) = (self.0[at - 1].0, self.0[at + 1].0);
            if after_us.saturating_sub(before_us) < now_us.saturating_sub(after_us) / SPACING {
                self.0.remove(at);
            }
            at -= 1;
        }
    }

    /// The tick at `time_us`, where it is the second of `now`, in µs and ticks; in proportion between two points.
    /// `None` before the first.
    pub fn tick_at(&self, time_us: u64, now: (u64, u64)) -> Option<u64> {
        let later = self.0.partition_point(|&(us, _)| us <= time_us);
        let (from_us, from) = self.0[later.checked_sub(1)?];
        let (to_us, to) = self.0.get(later).copied().unwrap_or(now);
        let part = time_us.saturating_sub(from_us) as f64 / to_us.saturating_sub(from_us).max(1) as f64;
        Some(from + (part.min(1.0) * to.saturating_sub(from) as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A day at ten points a second of a clock that stands at night, and goes on at 1,000 ticks a second. What is
    /// told is within an eighth of the time past, and few points are kept.
    #[test]
    fn a_tick_past_is_told_by_few_points() {
        const HOUR: u64 = 36_000;
        let tick_at = |tenths: u64| 100 * (tenths.min(6 * HOUR) + tenths.saturating_sub(12 * HOUR));
        let mut timeline = Timeline::default();
        let end = 24 * HOUR;
        (100..=end).for_each(|tenths| timeline.note(tenths * 100_000, tick_at(tenths)));
        assert!(timeline.0.len() < 200, "{} points", timeline.0.len());
        let now = (end * 100_000, tick_at(end));
        for ago in [0, 1, 7, 100, 3_000, 5 * HOUR, 11 * HOUR, 13 * HOUR, 20 * HOUR] {
            let told = timeline.tick_at((end - ago) * 100_000, now).unwrap();
            assert!(told.abs_diff(tick_at(end - ago)) <= 100 * ago / SPACING, "{told} {ago} tenths ago");
        }
        assert_eq!(timeline.tick_at(99 * 100_000, now), None);
        assert_eq!(timeline.tick_at(end * 100_000 + 50_000, (now.0 + 100_000, now.1 + 10)), Some(now.1 + 5));
    }
}
