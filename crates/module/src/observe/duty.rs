//! When to watch: always, unless commands come so fast that watching each would cost more than about 1/150 of the main thread's
//! time while memory is far from its limit, where no decision depends on it.
//!
//! Watching then goes on for a second at a time, with pauses as long as the rate asks for. What is watched is watched whole, so
//! that reuse times within the second are right; the models are told of the gap. Misses and their penalties are measured in the
//! pauses too, by the events of the keys.

/// How long commands are watched between two pauses, at the least, in µs: what the models can see of reuse times.
const STRETCH_US: u64 = 1_000_000;
/// The longest pause, in µs.
const PAUSE_US_MAX: u64 = 20_000_000;

/// Whether commands are watched now. See the file's opening.
#[derive(Debug)]
pub struct Duty {
    watching: bool,
    /// When the present stretch began, and the number of commands' keys seen by then.
    since_us: u64,
    seen_then: u64,
    /// When the present pause ends.
    pause_until_us: u64,
}

impl Duty {
    /// Watching from `now_us` on.
    pub fn new(now_us: u64) -> Self {
        Duty { watching: true, since_us: now_us, seen_then: 0, pause_until_us: 0 }
    }

    /// Whether to watch from now on. `seen` accesses were counted so far; `is_far` says that nothing is decided soon;
    /// `enough_per_second` accesses are always watched, and 0 stands for all.
    pub fn decide(&mut self, now_us: u64, seen: u64, is_far: bool, enough_per_second: u64) -> bool {
        let may_pause = is_far && enough_per_second > 0;
        let elapsed_us = now_us.saturating_sub(self.since_us);
        if !self.watching {
            if !may_pause || now_us >= self.pause_until_us {
                *self = Duty { seen_then: seen, ..Duty::new(now_us) };
            }
        } else if elapsed_us >= STRETCH_US {
            let enough = enough_per_second as f64 * elapsed_us as f64 / 1e6;
            let excess = seen.saturating_sub(self.seen_then) as f64 / enough - 1.0;
            *self = Duty { seen_then: seen, ..Duty::new(now_us) };
            if may_pause && excess > 0.0 {
                self.watching = false;
                self.pause_until_us = now_us + ((excess * elapsed_us as f64) as u64).min(PAUSE_US_MAX);
            }
        }
        self.watching
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_streams_are_watched_in_part_and_only_far_from_the_limit() {
        let mut duty = Duty::new(0);
        assert!(duty.decide(500_000, 200_000, true, 50_000), "a stretch isn't over");
        assert!(!duty.decide(1_000_000, 400_000, true, 50_000), "eight times too many");
        assert!(!duty.decide(7_900_000, 400_000, true, 50_000));
        assert!(duty.decide(8_000_000, 400_000, true, 50_000), "seven seconds of pause for one of watching");
        assert!(!duty.decide(9_000_000, 800_000, true, 50_000));
        assert!(duty.decide(9_100_000, 800_000, false, 50_000), "near the limit the pause ends at once");
        assert!(duty.decide(10_200_000, 9_800_000, false, 50_000));
        assert!(duty.decide(11_300_000, 19_800_000, true, 0), "0 stands for all");
        assert!(duty.decide(12_300_000, 19_850_000, true, 50_000), "slow enough");
    }
}
