//! How much of the main thread's time moves may take: a small share while commands come, more while the fast tier is
//! over its limit, all of it while no command comes. The small share is for caches whose values are accessed alike:
//! moves win nothing there, and so lose next to nothing.

/// What moves may take while the fast tier keeps its limit: 2 %.
const SHARE: f64 = 0.02;
/// While it holds more than it may.
const SHARE_FULL: f64 = 0.2;
/// No command for so long: nobody waits.
const QUIET_US: u64 = 20_000;
/// So much time is saved up at the most, in µs.
const SAVED_US_MAX: f64 = 400.0;
/// So much is owed at the most, in µs: several times the longest slice.
const OWED_US_MAX: f64 = 20_000.0;

/// The time that may be spent. See the file's opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeShare {
    /// Below zero after a slice that took longer.
    saved_us: f64,
    at_us: u64,
    last_command_us: u64,
}

impl TimeShare {
    /// Time has gone on to `now_us`; `is_busy` says that commands have come since, `is_full` that the fast tier is
    /// over its limit.
    pub fn go_on(&mut self, now_us: u64, is_busy: bool, is_full: bool) {
        let elapsed_us = now_us.saturating_sub(std::mem::replace(&mut self.at_us, now_us));
        if is_busy {
            self.last_command_us = now_us;
        }
        let share = if is_full { SHARE_FULL } else { SHARE };
        self.saved_us = (self.saved_us + elapsed_us as f64 * share).min(SAVED_US_MAX);
    }

    /// True where a slice of `slice_us` may begin.
    pub fn allows(&self, slice_us: u64) -> bool {
        self.saved_us >= slice_us as f64 || self.is_quiet()
    }

    /// A slice took so long. What is spent in quiet is nobody's.
    pub fn spend(&mut self, us: u64) {
        if !self.is_quiet() {
            self.saved_us = (self.saved_us - us as f64).max(-OWED_US_MAX);
        }
    }

    fn is_quiet(&self) -> bool {
        self.at_us >= self.last_command_us + QUIET_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices of 50 µs, and one of 150, in a second of turns of 100 µs each.
    fn spent_us(is_full: bool) -> u64 {
        let mut time = TimeShare::default();
        let mut spent = 0;
        for turn in 1..=10_000 {
            time.go_on(turn * 100, true, is_full);
            if time.allows(50) {
                let slice = if turn == 5_000 { 150 } else { 50 };
                time.spend(slice);
                spent += slice;
            }
        }
        spent
    }

    #[test]
    fn a_busy_server_gives_a_fiftieth_of_its_time_and_a_fifth_where_the_fast_tier_is_full() {
        assert!((19_900..=20_100).contains(&spent_us(false)), "{}", spent_us(false));
        assert!((199_000..=201_000).contains(&spent_us(true)), "{}", spent_us(true));
    }

    #[test]
    fn a_quiet_server_gives_all_of_it() {
        let mut time = TimeShare::default();
        time.go_on(1_000_000, true, false);
        time.spend(10_000);
        assert!(!time.allows(50));
        time.go_on(1_019_999, false, false);
        time.spend(10_000);
        assert!(!time.allows(50));
        time.go_on(1_020_000, false, false);
        assert!(time.allows(50));
        time.spend(1_000_000);
        time.go_on(1_020_100, true, false);
        assert!(!time.allows(50), "a command came, and the slices before are owed for");
        time.go_on(2_020_100, true, false);
        assert!(time.allows(50), "what was spent in quiet isn't");
    }
}
