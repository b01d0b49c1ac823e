//! When to watch: always, unless commands come so fast that watching each would cost more than about 1/150 of the main thread's
//! time while memory is far from its limit, where no decision depends on it.
//!
//! Watching then goes on for a second at a time, with pauses as long as the rate asks for. What is watched is watched whole, so
//! that reuse times within the second are right; the models are told of the gap. Misses and their penalties are measured in the
//! pauses too, by the events of the keys.
//! Where there are two tiers of memory, pauses are shorter, reads alone go unseen, and only while the fast tier is hit as it was
//! (`features/tiers/settled.rs`). The clock by which values grow old stands still in them: of a key that is accessed at random times what is left
//! of its accesses is as far apart, counted in accesses that were seen, as all of them are.

/// How long commands are watched between two pauses, at the least, in µs: what the models can see of reuse times.
const STRETCH_US: u64 = 1_000_000;
/// The longest pause, in µs.
const PAUSE_US_MAX: u64 = 20_000_000;
/// The same of one in which reads alone go unseen: it should be noticed soon that others are hot now.
const READS_PAUSE_US_MAX: u64 = 3_000_000;

/// Which commands are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// All.
    All,
    /// All but reads.
    Writes,
    /// None: misses and new keys are all that is known.
    Nothing,
}

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

    /// What to watch from now on. `seen` accesses were counted so far; `unwatched` is what has to be watched in a pause, where there may
    /// be one; `enough_per_second` accesses are always watched, and 0 stands for all.
    pub fn decide(&mut self, now_us: u64, seen: u64, unwatched: Option<Watched>, enough_per_second: u64) -> Watched {
        let unwatched = unwatched.filter(|_| enough_per_second > 0);
        let elapsed_us = now_us.saturating_sub(self.since_us);
        if !self.watching {
            if unwatched.is_none() || now_us >= self.pause_until_us {
                *self = Duty { seen_then: seen, ..Duty::new(now_us) };
            }
        } else if elapsed_us >= STRETCH_US {
            let enough = enough_per_second as f64 * elapsed_us as f64 / 1e6;
            let excess = seen.saturating_sub(self.seen_then) as f64 / enough - 1.0;
            *self = Duty { seen_then: seen, ..Duty::new(now_us) };
            if let Some(unwatched) = unwatched
                && excess > 0.0
            {
                let pause_us_max = if unwatched == Watched::Writes { READS_PAUSE_US_MAX } else { PAUSE_US_MAX };
                self.watching = false;
                self.pause_until_us = now_us + ((excess * elapsed_us as f64) as u64).min(pause_us_max);
            }
        }
        unwatched.filter(|_| !self.watching).unwrap_or(Watched::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_streams_are_watched_in_part_and_only_far_from_the_limit() {
        let mut duty = Duty::new(0);
        let nothing = Some(Watched::Nothing);
        let mut watches = |now_us, seen, far: bool, enough| {
            duty.decide(now_us, seen, nothing.filter(|_| far), enough) == Watched::All
        };
        assert!(watches(500_000, 200_000, true, 50_000), "a stretch isn't over");
        assert!(!watches(1_000_000, 400_000, true, 50_000), "eight times too many");
        assert!(!watches(7_900_000, 400_000, true, 50_000));
        assert!(watches(8_000_000, 400_000, true, 50_000), "seven seconds of pause for one of watching");
        assert!(!watches(9_000_000, 800_000, true, 50_000));
        assert!(watches(9_100_000, 800_000, false, 50_000), "near the limit the pause ends at once");
        assert!(watches(10_200_000, 9_800_000, false, 50_000));
        assert!(watches(11_300_000, 19_800_000, true, 0), "0 stands for all");
        assert!(watches(12_300_000, 19_850_000, true, 50_000), "slow enough");
    }

    /// Also where the need for it changes in mid-pause.
    #[test]
    fn where_writes_are_needed_pauses_are_short_and_of_reads_alone() {
        let mut duty = Duty::new(0);
        let (reads, all) = (Some(Watched::Writes), Watched::All);
        assert_eq!(duty.decide(1_000_000, 1_000_000, reads, 10_000), Watched::Writes);
        assert_eq!(duty.decide(2_000_000, 1_000_000, Some(Watched::Nothing), 10_000), Watched::Nothing);
        assert_eq!(duty.decide(3_900_000, 1_000_000, reads, 10_000), Watched::Writes);
        assert_eq!(duty.decide(4_000_000, 1_000_000, reads, 10_000), all, "three seconds, not a hundred");
        assert_eq!(duty.decide(5_000_000, 2_000_000, reads, 10_000), Watched::Writes);
        assert_eq!(duty.decide(5_100_000, 2_000_000, None, 10_000), all);
    }
}
