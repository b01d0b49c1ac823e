//! When to watch: always, unless commands come so fast that watching each would cost more than about 1/150 of the
//! main thread's time while memory is far from its limit, where no decision depends on it.
//!
//! Watching then goes on for a second at a time, with pauses as long as the rate asks for. What is watched is watched
//! whole, so that reuse times within the second are right; the models are told of the gap. Misses and their penalties
//! are measured in the pauses too, by the events of the keys. Where there are two tiers of memory, pauses are
//! shorter, reads alone go unseen, and only while the fast tier is hit as it was (`features/tiers/settled.rs`). The
//! clock by which values grow old stands still in them: of a key that is accessed at random times what is left of its
//! accesses is as far apart, counted in accesses that were seen, as all of them are.
//!
//! At the limit, where keys go by rank, everything is watched while the main thread has time. While it is busy, only
//! as many turns are as a share of its time buys ([`Slices`]), spread as finely as turns are: fine slices cost few
//! hits, long ones many (docs/results/costs.md). Misses and new keys are known all the same, by their events, and how
//! old a key is by the server's own clock.

use super::command_table::Entry;

/// How long commands are watched between two pauses, at the least, in µs: what the models can see of reuse times.
const STRETCH_US: u64 = 1_000_000;
/// The longest pause, in µs.
const PAUSE_US_MAX: u64 = 20_000_000;
/// The same of one in which reads alone go unseen: it should be noticed soon that others are hot now.
const READS_PAUSE_US_MAX: u64 = 3_000_000;

/// Which commands are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watched {
    /// All.
    #[default]
    All,
    /// All but reads.
    Writes,
    /// None, but for who sends what may write: whose new keys are.
    Writers,
    /// None: misses and new keys are all that is known.
    Nothing,
}

/// Which commands are seen now, and what has gone by unseen.
#[derive(Debug, Default)]
pub struct Coverage {
    watched: Watched,
    /// When that began, and how long all commands were watched before, in µs.
    since_us: u64,
    watched_us: u64,
    /// Reads of one key, hits and misses, while writes alone were watched.
    pub unseen_reads: u64,
    /// Of them, those that found nothing.
    pub unseen_misses: u64,
}

impl Coverage {
    /// Which commands are seen. Where not all are, counters and clocks stand still.
    #[inline]
    pub fn watched(&self) -> Watched {
        self.watched
    }

    /// Others are from now on. Returns those that were.
    pub fn change(&mut self, watched: Watched, now_us: u64) -> Watched {
        self.watched_us = self.watched_us(now_us);
        self.since_us = now_us;
        std::mem::replace(&mut self.watched, watched)
    }

    /// How long all commands have been watched, in µs. Only grows.
    pub fn watched_us(&self, now_us: u64) -> u64 {
        let present_us = if self.watched == Watched::All { now_us.saturating_sub(self.since_us) } else { 0 };
        self.watched_us + present_us
    }

    /// True where accesses go unseen, whoever is known to send them.
    #[inline]
    pub fn sees_no_access(&self) -> bool {
        matches!(self.watched, Watched::Writers | Watched::Nothing)
    }

    /// True where nothing is to be done about a command: it reads, and reads go unseen.
    #[inline]
    pub fn passes(&mut self, command: Option<Entry>) -> bool {
        let passes =
            matches!(self.watched, Watched::Writes | Watched::Writers) && command.is_some_and(Entry::only_reads);
        if passes {
            self.unseen_reads += 1;
        }
        passes
    }

    /// The same as a word, for people.
    pub fn as_str(&self) -> &'static str {
        match self.watched {
            Watched::All => "all",
            Watched::Writes => "writes",
            Watched::Writers | Watched::Nothing => "paused",
        }
    }
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

    /// What to watch from now on. `seen` accesses were counted so far; `unwatched` is what has to be watched in a
    /// pause, where there may be one; `enough_per_second` accesses are always watched, and 0 stands for all.
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

/// What watching a command takes of the main thread, in µs: some 1,100 instructions, of which a third at the turn's end
/// (`scripts/instructions`, each command watched).
const WATCHED_COMMAND_US: f64 = 0.3;
/// What beginning and ending a slice takes, in µs: two turns that were asked for, and a timer.
const SLICE_US: f64 = 3.0;
/// A slice has so many requests at the least, or lasts so long, in µs.
const SLICE_REQUESTS: u64 = 16;
const SLICE_US_MAX: u64 = 10_000;
/// The longest pause between two, in µs.
const SLICE_PAUSE_US_MAX: u64 = 100_000;
/// What a slice moves the smoothed pace by, of the difference.
const PACE_WEIGHT: f64 = 0.1;

/// Which turns are watched while the main thread is busy at its limit. See the file's opening.
#[derive(Debug, Default)]
pub struct Slices {
    /// The share of the main thread's time that watching may take; `None` = everything is watched.
    budget: Option<f64>,
    is_pausing: bool,
    /// When the present slice began, and the requests seen by then; or when the pause ends.
    since_us: u64,
    seen_then: u64,
    cpu_then_us: u64,
    /// Requests per µs of the main thread's time, while they are watched.
    pace: f64,
    /// The time in slices and in all, in µs, since slices are cut.
    watched_us: u64,
    passed_us: u64,
}

impl Slices {
    /// Ten times a second: slices are cut where they `may_be`, and watching may take no more than `share` of the main
    /// thread's time, 0 to 1, where 1 stands for all that it takes.
    pub fn allow(&mut self, may_be: bool, share: f64) {
        let is_on = may_be && share < 1.0;
        if !is_on {
            *self = Slices { pace: self.pace, ..Slices::default() };
        } else if self.budget.is_none() {
            self.since_us = 0;
        }
        self.budget = is_on.then_some(share);
    }

    /// True while only some turns are watched.
    pub fn are_on(&self) -> bool {
        self.budget.is_some()
    }

    /// True while commands run unseen.
    pub fn is_pausing(&self) -> bool {
        self.is_pausing
    }

    /// How much of the pause is left, in µs.
    pub fn pause_left_us(&self, now_us: u64) -> u64 {
        self.since_us.saturating_sub(now_us)
    }

    /// The share of the time that is watched, 0 to 1.
    pub fn watched_share(&self) -> f64 {
        if self.passed_us == 0 { 1.0 } else { self.watched_us as f64 / self.passed_us as f64 }
    }

    /// A turn has ended; `seen` requests were watched so far, and `cpu_us` tells what the main thread has used of
    /// processor time. Tells whether the next turns are watched, where that changes.
    #[inline]
    pub fn turn(&mut self, now_us: u64, seen: u64, cpu_us: impl Fn() -> u64) -> Option<bool> {
        let budget = self.budget?;
        if self.is_pausing {
            if now_us < self.since_us {
                return None;
            }
            self.is_pausing = false;
            self.begin(now_us, seen, cpu_us());
            return Some(true);
        }
        if self.since_us == 0 {
            self.begin(now_us, seen, cpu_us());
            return None;
        }
        let (elapsed_us, watched) = (now_us.saturating_sub(self.since_us).max(1), seen.saturating_sub(self.seen_then));
        if watched < SLICE_REQUESTS && elapsed_us < SLICE_US_MAX {
            return None;
        }
        let used_us = cpu_us();
        let pace = watched as f64 / used_us.saturating_sub(self.cpu_then_us).max(1) as f64;
        self.pace += if self.pace == 0.0 { pace } else { PACE_WEIGHT * (pace - self.pace) };
        let request_us = WATCHED_COMMAND_US + SLICE_US / watched.max(1) as f64;
        let pause_us = pause_us(elapsed_us, budget / (request_us * self.pace).max(1e-9));
        self.watched_us += elapsed_us;
        self.passed_us += elapsed_us + pause_us;
        // Of late, not since it began.
        if self.passed_us > SLICE_PAUSE_US_MAX * 10 {
            (self.watched_us, self.passed_us) = (self.watched_us / 2, self.passed_us / 2);
        }
        self.is_pausing = pause_us > 0;
        self.begin(now_us + pause_us, seen, used_us);
        self.is_pausing.then_some(false)
    }

    fn begin(&mut self, at_us: u64, seen: u64, cpu_us: u64) {
        (self.since_us, self.seen_then, self.cpu_then_us) = (at_us, seen, cpu_us);
    }
}

/// How long the pause after a slice is, so that `share` of the time is watched.
fn pause_us(slice_us: u64, share: f64) -> u64 {
    let pause_us = slice_us as f64 * (1.0 / share.clamp(1e-6, 1.0) - 1.0);
    (pause_us as u64).min(SLICE_PAUSE_US_MAX)
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

    /// A turn of 1 ms brings 800 requests while they are watched: 0.24 of the time, of which 0.01 may be had.
    #[test]
    fn a_busy_thread_watches_as_many_turns_as_its_time_buys() {
        let (mut slices, mut seen, mut watched, mut is_watched) = (Slices::default(), 0, 0, true);
        slices.allow(true, 0.01);
        for turn in 1..=10_000 {
            seen += if is_watched { 800 } else { 0 };
            watched += u64::from(is_watched);
            is_watched = slices.turn(turn * 1_000, seen, || turn * 1_000).unwrap_or(is_watched);
            assert_eq!(slices.is_pausing(), !is_watched);
        }
        assert!((350..500).contains(&watched), "{watched}");
        assert!((slices.watched_share() - 0.041).abs() < 0.005, "{}", slices.watched_share());
        slices.allow(false, 0.01);
        assert!(!slices.are_on() && !slices.is_pausing(), "there is time to spare");
        slices.allow(true, 1.0);
        assert!(!slices.are_on(), "all is to be watched, whatever it takes");
    }

    /// Where few requests come, each is cheap to watch, and nothing is left out.
    #[test]
    fn what_takes_less_than_its_share_is_watched_whole() {
        let mut slices = Slices::default();
        slices.allow(true, 0.01);
        let changes = (1..=1_000).filter_map(|turn| slices.turn(turn * 1_000, turn * 20, || turn * 1_000)).count();
        assert_eq!((changes, slices.watched_share()), (0, 1.0));
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
