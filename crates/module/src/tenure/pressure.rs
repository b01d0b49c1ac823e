//! How short memory is, and the main thread's time: what turns go by when they free memory.

use tenure_core::policy::density::Load;

use super::room::Room;
use super::status::EvictionStatus;
use crate::ffi::alloc;
use crate::observe::partitions::NearMaximum;

/// What turns go by. As of the last tick, or the turn that last looked.
pub struct Pressure {
    /// Whether Tenure evicts.
    pub(super) status: EvictionStatus,
    /// How busy the main thread is.
    pub load: Load,
    pub(super) growth: Growth,
    pub(super) own: Own,
    /// Nothing that is met may go: no search until then.
    pub(super) rests_until_us: u64,
    /// Since when there is something to free that an idle event loop may do.
    pub(super) short_since_us: Option<u64>,
    /// Memory is near its limit, or a partition has a maximum: turns look whether there is something to free.
    pub(super) may_be_short: bool,
    /// A tenant has a maximum, which holds however much memory is free.
    pub(super) has_maximum: bool,
    /// Who is near a maximum.
    pub(super) near_maximum: NearMaximum,
    /// Nothing had to go when a turn last looked.
    pub(super) has_room: bool,
    /// How much more goes into memory.
    pub room: Room,
}

impl Default for Pressure {
    /// Turns look until a tick has found that they needn't.
    fn default() -> Pressure {
        Pressure {
            status: EvictionStatus::NoPlan,
            load: Load::default(),
            growth: Growth::default(),
            own: Own::default(),
            rests_until_us: 0,
            short_since_us: None,
            may_be_short: true,
            has_maximum: true,
            near_maximum: NearMaximum::default(),
            has_room: false,
            room: Room::default(),
        }
    }
}

/// What Tenure itself holds: it counts against the limit, and at the end of a window the worker takes more for a
/// moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    pub(super) peak_bytes: f64,
}

impl Own {
    /// Ten times a second. Half of a peak is forgotten in eleven minutes.
    pub(super) fn tick(&mut self) {
        self.peak_bytes = (alloc::take_peak_bytes() as f64).max(self.peak_bytes * 0.9999);
    }

    /// What it held until now it won't take again.
    pub(super) fn forget(&mut self) {
        alloc::take_peak_bytes();
        self.peak_bytes = 0.0;
    }

    /// What it may take again, in bytes, with the allocator's rounding.
    pub(super) fn reserve_bytes(&self, limit_bytes: u64) -> u64 {
        let more = self.peak_bytes - alloc::allocated_bytes() as f64;
        ((1.15 * more).max(0.0) as u64).min(limit_bytes / 20)
    }
}

/// How much a turn of the event loop may bring, learned from those that were: what the headroom is for. What Tenure
/// itself takes meanwhile is none of it: [`Own`] has a reserve for that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    /// Bytes in use when memory was last looked at, and of them those that are Tenure's.
    last: Option<(u64, u64)>,
    /// The largest, and the second largest.
    peaks_bytes: [f64; 2],
}

impl Growth {
    /// A turn began with `used_bytes` before anything was freed.
    pub(super) fn turn(&mut self, used_bytes: u64) {
        let before = self.last;
        self.look(used_bytes);
        let of_others = |(used, own): (u64, u64)| used.saturating_sub(own);
        let grown = before.zip(self.last).map_or(0, |(then, now)| of_others(now).saturating_sub(of_others(then)));
        let [first, second] = self.peaks_bytes;
        let grown = grown as f64;
        self.peaks_bytes = [first.max(grown), second.max(first.min(grown))];
    }

    /// Ten times a second. Half of a peak is forgotten in a second and a half, however few turns come.
    pub(super) fn tick(&mut self) {
        self.peaks_bytes = self.peaks_bytes.map(|peak| 0.95 * peak);
    }

    /// So many are in use.
    pub(super) fn look(&mut self, used_bytes: u64) {
        self.last = Some((used_bytes, alloc::allocated_bytes() as u64));
    }

    /// Bytes in use when memory was last looked at.
    pub(super) fn last_used_bytes(&self) -> Option<u64> {
        self.last.map(|(used_bytes, _)| used_bytes)
    }

    /// The largest turn of late that room is kept for, in bytes: up to 1/30 of the limit. One alone that was larger
    /// doesn't count: a table of the server's that grew is not soon to grow again.
    pub(super) fn largest_turn_bytes(&self, limit_bytes: u64) -> u64 {
        (self.peaks_bytes[1] as u64).min(limit_bytes / 30)
    }

    /// Bytes to stay below the limit: half as much again as that, and 1/1600 of the limit at least.
    pub(super) fn headroom_bytes(&self, limit_bytes: u64) -> u64 {
        (self.largest_turn_bytes(limit_bytes) * 3 / 2).max(limit_bytes / 1600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 300_000_000;

    /// Turns that bring so many bytes each, all of which goes again.
    fn turns(growth: &mut Growth, bytes: &[u64]) {
        for bytes in bytes {
            growth.look(LIMIT / 2);
            growth.turn(LIMIT / 2 + bytes);
        }
    }

    #[test]
    fn room_is_kept_for_what_turns_bring_again_and_again() {
        let mut growth = Growth::default();
        let least = LIMIT / 1600;
        turns(&mut growth, &[1000, 9_000_000, 2000]);
        assert_eq!(growth.headroom_bytes(LIMIT), least, "once is no rule");
        turns(&mut growth, &[1000, 4_000_000, 2000]);
        assert!((6_000_000..6_100_000).contains(&growth.headroom_bytes(LIMIT)));
        turns(&mut growth, &[20_000_000; 2]);
        assert_eq!(growth.headroom_bytes(LIMIT), LIMIT / 20, "a twentieth at the most");
        (0..100).for_each(|_| growth.tick());
        assert_eq!(growth.headroom_bytes(LIMIT), least);
    }
}
