//! How much is to move down or out so that each tier keeps some memory free.
//!
//! Source: Wang's dissertation (2024) sec. 5.1.1 and 5.1.3. Where less than the low mark (2 %) of a tier is free,
//! background work begins, and ends when the high mark (5 %) is. What no longer fits the fast tier at all goes
//! straight out of the cache (reactive eviction), so a demotion never has to wait for an eviction in the slow tier:
//! no cascades. Differs from the paper: straight out goes only what the slow tier has no room for either. In the
//! server a full fast tier stops no write (its arena just grows until the end of the turn), so nothing is gained by
//! throwing away what fits below. [`Overflow::Out`] is the paper's.

/// The marks of both tiers, as shares of a tier's limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Marks {
    /// Below this share free, collecting begins. 0 to 1.
    pub low: f64,
    /// Up to this share free, collecting goes on. `low` to 1.
    pub high: f64,
}

impl Default for Marks {
    /// Those of sec. 5.1.3.
    fn default() -> Self {
        Marks { low: 0.02, high: 0.05 }
    }
}

/// Where what exceeds the fast tier's limit goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Down, as far as there is room below; the rest out of the cache.
    #[default]
    DownWhereRoom,
    /// Out of the cache, as in the paper.
    Out,
}

/// Bytes in both tiers and what they may hold. A limit of `u64::MAX` is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Used in the fast tier, in bytes.
    pub fast_bytes: u64,
    /// The fast tier's limit, in bytes.
    pub fast_limit_bytes: u64,
    /// Used in the slow tier, in bytes.
    pub slow_bytes: u64,
    /// The slow tier's limit, in bytes; 0 where there is none.
    pub slow_limit_bytes: u64,
}

/// What is to be done now, in bytes. Evictions of the fast tier come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// To leave the cache from the fast tier.
    pub evict_fast_bytes: u64,
    /// To go from the fast tier to the slow one, which has room for it.
    pub demote_bytes: u64,
    /// To leave the cache from the slow tier.
    pub evict_slow_bytes: u64,
}

/// Whether a tier is being collected.
#[derive(Clone, Copy, Debug, Default)]
struct Collector {
    is_collecting: bool,
}

impl Collector {
    /// Bytes above the high mark, where the low one was passed and the high one not reached yet.
    fn due_bytes(&mut self, marks: Marks, used: u64, limit: u64) -> u64 {
        if limit == u64::MAX {
            return 0;
        }
        let share = |mark: f64| (limit as f64 * mark) as u64;
        let free = limit.saturating_sub(used);
        if free < share(marks.low) || used > limit {
            self.is_collecting = true;
        }
        let due = used.saturating_sub(limit - share(marks.high).min(limit));
        self.is_collecting &= due > 0;
        if self.is_collecting { due } else { 0 }
    }
}

/// Keeps memory free. See the file's opening. A few bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeSpace {
    marks: Marks,
    overflow: Overflow,
    fast: Collector,
    slow: Collector,
}

impl FreeSpace {
    /// With these marks; a high one below the low one counts as that.
    pub fn new(marks: Marks, overflow: Overflow) -> Self {
        let low = marks.low.clamp(0.0, 1.0);
        let marks = Marks { low, high: marks.high.clamp(low, 1.0) };
        FreeSpace { marks, overflow, fast: Collector::default(), slow: Collector::default() }
    }

    /// What is to be done, asked at the end of a turn. O(1).
    pub fn due(&mut self, usage: Usage) -> Due {
        let Usage { fast_bytes, fast_limit_bytes, slow_bytes, slow_limit_bytes } = usage;
        let evict_slow_bytes = self.slow.due_bytes(self.marks, slow_bytes, slow_limit_bytes);
        let to_leave = self.fast.due_bytes(self.marks, fast_bytes, fast_limit_bytes);
        let over = fast_bytes.saturating_sub(fast_limit_bytes);
        let room = slow_limit_bytes.saturating_sub(slow_bytes);
        if slow_limit_bytes == 0 {
            return Due { evict_fast_bytes: to_leave, demote_bytes: 0, evict_slow_bytes };
        }
        let evict_fast_bytes = match self.overflow {
            Overflow::Out => over,
            Overflow::DownWhereRoom => over.saturating_sub(room),
        };
        Due { evict_fast_bytes, demote_bytes: (to_leave - evict_fast_bytes).min(room), evict_slow_bytes }
    }

    /// What one collecting of a tier with that limit frees, from mark to mark, in bytes.
    pub fn collected_bytes(&self, limit: u64) -> u64 {
        if limit == u64::MAX { 0 } else { (limit as f64 * (self.marks.high - self.marks.low)) as u64 }
    }

    /// True where the fast tier has more free than the low mark, so that something may go up: the last to do so
    /// begins the collecting.
    pub fn has_room(&self, usage: Usage) -> bool {
        let free = usage.fast_limit_bytes.saturating_sub(usage.fast_bytes) as f64;
        free > usage.fast_limit_bytes as f64 * self.marks.low
    }

    /// True where the fast tier has at least half as much free as the low mark wants: those that go up leave it that.
    pub fn has_some(&self, usage: Usage) -> bool {
        let free = usage.fast_limit_bytes.saturating_sub(usage.fast_bytes) as f64;
        free >= usage.fast_limit_bytes as f64 * self.marks.low / 2.0
    }

    /// True where the fast tier has more free than collecting would leave it, so that what goes up displaces nothing.
    pub fn has_spare(&self, usage: Usage) -> bool {
        let free = usage.fast_limit_bytes.saturating_sub(usage.fast_bytes) as f64;
        free > usage.fast_limit_bytes as f64 * (2.0 * self.marks.high - self.marks.low)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage(fast_bytes: u64, slow_bytes: u64) -> Usage {
        Usage { fast_bytes, fast_limit_bytes: 1_000, slow_bytes, slow_limit_bytes: 4_000 }
    }

    /// Of 1000 bytes 20 and 50 are to be free: nothing up to 980, then down to 950, and nothing again up to 980.
    #[test]
    fn collecting_begins_at_the_low_mark_and_ends_at_the_high_one() {
        let mut space = FreeSpace::default();
        let demote = |space: &mut FreeSpace, fast| space.due(usage(fast, 0)).demote_bytes;
        let due: Vec<u64> = [970, 980, 981, 960, 951, 950, 970, 990].map(|fast| demote(&mut space, fast)).into();
        assert_eq!(due, [0, 0, 31, 10, 1, 0, 0, 40]);
        assert_eq!(space.due(usage(0, 3_921)).evict_slow_bytes, 121);
        assert_eq!(space.due(usage(0, 3_800)).evict_slow_bytes, 0);
        assert_eq!((space.collected_bytes(1_000), space.collected_bytes(u64::MAX)), (30, 0));
    }

    #[test]
    fn what_does_not_fit_goes_down_where_there_is_room_else_out() {
        let due = |overflow, slow| FreeSpace::new(Marks::default(), overflow).due(usage(1_100, slow));
        let room = due(Overflow::DownWhereRoom, 3_000);
        assert_eq!((room.evict_fast_bytes, room.demote_bytes, room.evict_slow_bytes), (0, 150, 0));
        let full = due(Overflow::DownWhereRoom, 3_990);
        assert_eq!((full.evict_fast_bytes, full.demote_bytes, full.evict_slow_bytes), (90, 10, 190));
        let paper = due(Overflow::Out, 3_000);
        assert_eq!((paper.evict_fast_bytes, paper.demote_bytes), (100, 50));
        let none = FreeSpace::default().due(Usage { slow_limit_bytes: 0, ..usage(1_000, 0) });
        assert_eq!((none.evict_fast_bytes, none.demote_bytes), (50, 0));
    }

    #[test]
    fn without_a_limit_nothing_is_due() {
        let none =
            Usage { fast_bytes: 1 << 40, fast_limit_bytes: u64::MAX, slow_bytes: 1 << 40, slow_limit_bytes: u64::MAX };
        assert_eq!(FreeSpace::default().due(none), Due::default());
        assert!(FreeSpace::default().has_spare(none));
        let has_room = |fast| FreeSpace::default().has_room(usage(fast, 0));
        assert_eq!([979, 980, 1_000, 1_100].map(has_room), [true, false, false, false]);
        let has_some = |fast| FreeSpace::default().has_some(usage(fast, 0));
        assert_eq!([980, 990, 991, 1_100].map(has_some), [true, true, false, false]);
    }

    proptest! {
        /// Demoted bytes fit below, nothing is moved that isn't there, and what was over its limit is within it
        /// afterwards.
        #[test]
        fn what_is_due_fits(fast in 0u64..3_000, slow in 0u64..6_000, out: bool) {
            let overflow = if out { Overflow::Out } else { Overflow::DownWhereRoom };
            let due = FreeSpace::new(Marks::default(), overflow).due(usage(fast, slow));
            prop_assert!(due.evict_fast_bytes + due.demote_bytes <= fast && due.evict_slow_bytes <= slow);
            prop_assert!(due.demote_bytes == 0 || slow + due.demote_bytes <= 4_000);
            prop_assert!(fast - due.evict_fast_bytes - due.demote_bytes <= 1_000);
            prop_assert!(slow - due.evict_slow_bytes <= 4_000);
        }
    }
}
