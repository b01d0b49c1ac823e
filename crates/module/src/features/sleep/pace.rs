//! How much falling asleep and waking may take of each tick, and when they have to wait.

use std::time::Duration;

/// Of each tick, what falling asleep and waking may take of the main thread's time, in µs.
const TICK_SHARE_US: u64 = 20_000;
/// Ticks in a second.
const TICKS_PER_SECOND: u64 = 10;

/// What is left of this tick. See the file's opening.
#[derive(Debug, Default)]
pub struct Pace {
    bytes_per_tick: u64,
    bytes_left: u64,
    us_left: u64,
    /// Writes are paused, or were when the turn before this ended: what was held back runs unseen after that.
    is_paused: bool,
    was_paused: bool,
}

impl Pace {
    /// So many bytes may be written in a second, from the next tick on.
    pub fn allow(&mut self, bytes_per_second: u64) {
        self.bytes_per_tick = bytes_per_second / TICKS_PER_SECOND;
    }

    /// Ten times a second.
    pub fn tick(&mut self) {
        (self.bytes_left, self.us_left) = (self.bytes_per_tick, TICK_SHARE_US);
    }

    /// At the end of each turn, whether writes are paused.
    pub fn note_pause(&mut self, is_paused: bool) {
        self.was_paused = std::mem::replace(&mut self.is_paused, is_paused);
    }

    /// True where there is time, and no pause stands against it.
    pub fn may_work(&self) -> bool {
        self.us_left > 0 && !self.is_paused && !self.was_paused
    }

    /// The time that is left.
    pub fn time_left(&self) -> Duration {
        Duration::from_micros(self.us_left)
    }

    /// A slice has taken so long, in µs.
    pub fn spend_us(&mut self, us: u64) {
        self.us_left = self.us_left.saturating_sub(us);
    }

    /// True where nothing more may be written in this tick.
    pub fn is_written_out(&self) -> bool {
        self.bytes_left == 0
    }

    /// So many bytes go to the disk.
    pub fn write(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }
}
