//! How much lies in which tier, and how much may: by what the slow tier held when it was last counted, and what has
//! moved since.

use tenure_core::tiers::marks::{FreeSpace, Marks, Overflow, Usage as TierUsage};

use super::mover::MOVED_MAX_BYTES;
use crate::ffi::jemalloc::{ArenaUse, server_used_bytes};

/// Without `tenure.tier-fast-bytes`, this share of the limit is fast: the chapter's.
const FAST_SHARE: u64 = 5;

/// What both tiers hold. See the file's opening.
pub struct Balance {
    space: FreeSpace,
    /// What the slow tier held when it was last counted.
    counted: ArenaUse,
    /// Moved down since, less what moved up, in bytes.
    moved_since: i64,
    fast_limit_bytes: u64,
    /// What newcomers may still take of the fast tier in this turn, in bytes.
    room_bytes: i64,
    /// Nothing is slow, and there is room.
    is_all_fast: bool,
}

impl Balance {
    /// All is fast, and may be.
    pub fn new() -> Balance {
        Balance {
            space: FreeSpace::new(Marks::default(), Overflow::DownWhereRoom),
            counted: ArenaUse::default(),
            moved_since: 0,
            fast_limit_bytes: u64::MAX,
            room_bytes: i64::MAX,
            is_all_fast: true,
        }
    }

    /// The slow tier was counted, and held that.
    pub fn count(&mut self, used: ArenaUse) {
        (self.counted, self.moved_since) = (used, 0);
    }

    /// So many bytes have moved down, or up where negative.
    pub fn moved_down(&mut self, bytes: i64) {
        self.moved_since += bytes;
    }

    /// Bytes in the slow tier: as counted, and moved since.
    pub fn slow_bytes(&self) -> u64 {
        self.counted.allocated_bytes.saturating_add_signed(self.moved_since)
    }

    /// True where the slow tier held nothing when it was last counted.
    pub fn is_slow_empty(&self) -> bool {
        self.counted.allocations == 0
    }

    /// All other bytes that the server uses.
    pub fn fast_bytes(&self) -> u64 {
        server_used_bytes().saturating_sub(self.slow_bytes())
    }

    /// What of the server's memory may be fast, in bytes.
    pub fn fast_limit_bytes(&self) -> u64 {
        self.fast_limit_bytes
    }

    /// What is set for the fast tier, and the server's limit, in bytes; 0 = none.
    pub fn limit(&mut self, fast_bytes: u64, limit_bytes: u64) {
        self.fast_limit_bytes = match (fast_bytes, limit_bytes) {
            (0, 0) => u64::MAX,
            (0, limit) => limit / FAST_SHARE,
            (set, _) => set,
        };
    }

    /// A turn of the event loop is over.
    pub fn end_turn(&mut self) {
        let free = i128::from(self.fast_limit_bytes) - i128::from(self.fast_bytes());
        self.room_bytes = free.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        self.is_all_fast = self.slow_bytes() == 0 && self.room_bytes > MOVED_MAX_BYTES as i64;
    }

    /// True where nothing is slow, and newcomers find room.
    #[inline]
    pub fn is_all_fast(&self) -> bool {
        self.is_all_fast
    }

    /// True where more is fast than may be.
    pub fn is_fast_full(&self) -> bool {
        self.room_bytes < 0
    }

    /// Whether a newcomer finds room in the fast tier. It is counted where it goes.
    pub fn takes_room(&mut self, bytes: i64) -> bool {
        let has_room = self.room_bytes >= bytes;
        if has_room {
            self.room_bytes -= bytes;
        } else {
            self.moved_since += bytes;
        }
        has_room
    }

    /// What has to go down now, in bytes.
    pub fn demote_bytes(&mut self) -> u64 {
        self.space.due(self.usage()).demote_bytes
    }

    /// What one collecting takes down, in bytes.
    pub fn collected_bytes(&self) -> u64 {
        self.space.collected_bytes(self.fast_limit_bytes)
    }

    /// True while the fast tier has some room.
    pub fn has_some(&self) -> bool {
        self.space.has_some(self.usage())
    }

    /// True where values may go up.
    pub fn has_room(&self) -> bool {
        self.space.has_room(self.usage())
    }

    /// True where those may that aren't hot yet.
    pub fn has_spare(&self) -> bool {
        self.space.has_spare(self.usage())
    }

    fn usage(&self) -> TierUsage {
        TierUsage {
            fast_bytes: self.fast_bytes(),
            fast_limit_bytes: self.fast_limit_bytes,
            slow_bytes: self.slow_bytes(),
            // Both tiers together are held to the server's own limit by the evictor.
            slow_limit_bytes: u64::MAX,
        }
    }
}
