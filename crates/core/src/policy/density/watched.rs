//! A server that is too busy to watch all accesses, simulated: which are seen, and what tells of the others.

use crate::access_ring::REQUESTS_PER_TICK;
use crate::timeline::Timeline;

/// Accesses between two points of the time line.
const NOTED_EVERY: u64 = 64;

/// So many accesses in a row are seen of so many. Misses are known always, and when a key that is met was accessed
/// last, which the server keeps itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Accesses seen in a row, at least 1.
    pub seen: u64,
    /// Of so many, at least as many.
    pub of: u64,
}

/// The accesses so far, seen or not.
#[derive(Debug)]
pub(super) struct Watch {
    watched: Watched,
    accesses: u64,
    /// Which tick it was at each of the server's times. Ticks count the accesses that are known.
    timeline: Timeline,
}

impl Watch {
    pub(super) fn new(watched: Watched) -> Watch {
        Watch { watched, accesses: 0, timeline: Timeline::default() }
    }

    /// Whether the next access is seen; `now` is the server's time and the tick.
    pub(super) fn sees(&mut self, now: (u64, u64)) -> bool {
        let is_seen = self.accesses % self.watched.of.max(1) < self.watched.seen;
        if self.accesses.is_multiple_of(NOTED_EVERY) {
            self.timeline.note(now.0, now.1);
        }
        self.accesses += 1;
        is_seen
    }

    /// The tick of a time of the server's.
    pub(super) fn tick_at(&self, time: u64, now: (u64, u64)) -> u64 {
        self.timeline.tick_at(time, now).unwrap_or(now.1.saturating_sub((now.0 - time) / REQUESTS_PER_TICK))
    }
}
