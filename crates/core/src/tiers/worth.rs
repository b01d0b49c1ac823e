//! The second rule: a value is worth its fast memory by what it saves per byte and unit of time.
//!
//! Our own; derivation in docs/models.md, "Two tiers". Fast memory saves at each request the difference of two reads, so worth is accesses per
//! tick (`decide/density.rs`, the same density that evicts; before that has learned, the inverse of reuse and idle time) × time saved ÷
//! size. A slow value goes up where it is worth clearly more than what is demoted of late, and where what it will save over a usual stay
//! pays for its move and the one it causes: below some tens of requests a stay no move pays at all. Nothing here depends on the order of a list,
//! so insertion points have no part in it.
//! Cost: one look-up in the density table; 4 bytes a partition.

use super::Value;
use crate::decide::density::DensityTable;
use crate::units::{PARTITIONS_MAX, PartitionId};

/// What one demoted value moves the mean worth of demotion by, of the difference.
const DEMOTED_WEIGHT: f32 = 1.0 / 16.0;
/// What goes up is worth so many times what goes down of late: both are estimates, and a move for nothing costs as much as one with a use.
const MARGIN: f32 = 2.0;
/// A value that went up makes another go down.
const MOVES_PER_PROMOTION: f32 = 2.0;
/// What a stay's length weighs against those of former windows.
const STAY_WEIGHT: f32 = 0.5;

/// What reads of both tiers and a move cost. A nanosecond and a byte per nanosecond (10^9 bytes per second) are the units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    /// Time to the first byte in the fast tier, in ns.
    pub fast_latency_ns: f32,
    /// The same in the slow tier.
    pub slow_latency_ns: f32,
    /// Bytes per ns of the fast tier.
    pub fast_bytes_per_ns: f32,
    /// The same of the slow tier.
    pub slow_bytes_per_ns: f32,
    /// What a move costs the main thread beside reading and writing the value, in ns.
    pub move_ns: f32,
}

impl Default for Speeds {
    /// The slow tier of the dissertation's machine: twice the latency, bandwidth ÷ 2.4 (sec. 5.2.1), of a fast tier of 100 ns and 12 bytes per ns,
    /// which is assumed (about what one core gets of local memory). A move: 2.5 µs, between the 1.6 and 3.2 measured on stock servers (DESIGN.md).
    fn default() -> Self {
        Speeds {
            fast_latency_ns: 100.0,
            slow_latency_ns: 200.0,
            fast_bytes_per_ns: 12.0,
            slow_bytes_per_ns: 5.0,
            move_ns: 2500.0,
        }
    }
}

impl Speeds {
    /// Time that a read of `size_bytes` saves in the fast tier, in ns, at least 0.
    #[inline]
    pub fn saved_ns(&self, size_bytes: u32) -> f32 {
        let per_byte = self.slow_bytes_per_ns.recip() - self.fast_bytes_per_ns.recip();
        (self.slow_latency_ns - self.fast_latency_ns + size_bytes as f32 * per_byte).max(0.0)
    }

    /// Time of one move, in ns: read in one tier, written in the other.
    #[inline]
    pub fn move_ns(&self, size_bytes: u32) -> f32 {
        let per_byte = self.slow_bytes_per_ns.recip() + self.fast_bytes_per_ns.recip();
        self.move_ns + self.fast_latency_ns + self.slow_latency_ns + size_bytes as f32 * per_byte
    }
}

/// What values are worth, and from which worth on they go up. See the file's opening.
#[derive(Clone, Debug)]
pub struct Worth {
    speeds: Speeds,
    /// By partition, and last over all: mean worth of what was demoted of late.
    demoted: Vec<f32>,
    /// How long bytes stay in the fast tier, in ticks, of late.
    stay_ticks: f32,
    demoted_bytes: u64,
}

impl Worth {
    /// Nothing was demoted yet.
    pub fn new(speeds: Speeds) -> Self {
        Worth { speeds, demoted: vec![0.0; PARTITIONS_MAX + 1], stay_ticks: f32::INFINITY, demoted_bytes: 0 }
    }

    /// Accesses to be expected per tick, above 0.
    fn rate(value: &Value, table: &DensityTable) -> f32 {
        if !table.is_empty() {
            return table.density(value.feature, value.idle);
        }
        match value.reuse {
            Some(reuse) => 1.0 / reuse.max(value.idle).max(1) as f32,
            None => 0.5 / (value.idle as f32 + 1.0),
        }
    }

    /// Nanoseconds that its fast memory saves per byte and tick.
    pub fn of(&self, value: &Value, table: &DensityTable) -> f32 {
        Self::rate(value, table) * self.speeds.saved_ns(value.size_bytes) / value.size_bytes.max(1) as f32
    }

    /// True where a slow value is worth going up, in place of what goes down of its own partition (`alone`) or of any.
    pub fn wants_up(&self, value: &Value, table: &DensityTable, alone: bool) -> bool {
        let place = if alone { value.partition.index() } else { PARTITIONS_MAX };
        let saved = Self::rate(value, table) * self.stay_ticks * self.speeds.saved_ns(value.size_bytes);
        self.of(value, table) > MARGIN * self.demoted[place]
            && saved > MOVES_PER_PROMOTION * self.speeds.move_ns(value.size_bytes)
    }

    /// A value is about to be demoted.
    pub fn demoted(&mut self, value: &Value, table: &DensityTable) {
        let worth = self.of(value, table);
        for place in [value.partition.index(), PARTITIONS_MAX] {
            let mean = &mut self.demoted[place];
            *mean += DEMOTED_WEIGHT * (worth - *mean);
        }
        self.demoted_bytes += u64::from(value.size_bytes);
    }

    /// Ends a window of `ticks`, with `fast_bytes` in the fast tier: by what left it in between, bytes stay so long.
    pub fn end_window(&mut self, ticks: u64, fast_bytes: u64) {
        let left = std::mem::take(&mut self.demoted_bytes).max(1);
        let stay = ticks as f32 * fast_bytes as f32 / left as f32;
        self.stay_ticks = match self.stay_ticks.is_finite() {
            true => self.stay_ticks + STAY_WEIGHT * (stay - self.stay_ticks),
            false => stay,
        };
    }

    /// Mean worth of what was demoted of a partition of late, for people.
    pub fn demoted_of(&self, partition: PartitionId) -> f32 {
        self.demoted[partition.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::placed::Placed;
    use super::*;
    use crate::decide::density::Feature;

    fn value(size_bytes: u32, reuse: u64, idle: u64) -> Value {
        Value {
            partition: PartitionId(0),
            size_bytes,
            idle,
            reuse: Some(reuse),
            feature: Feature::default(),
            placed: Placed::default(),
        }
    }

    /// 1 KiB: 100 ns of latency and 1024 × (1/5 − 1/12) = 119 ns of transfer; a move 2800 + 1024 × (1/5 + 1/12) = 3090 ns.
    #[test]
    fn a_read_saves_latency_and_transfer() {
        let speeds = Speeds::default();
        assert!((speeds.saved_ns(1024) - 219.5).abs() < 0.1 && (speeds.move_ns(1024) - 3090.1).abs() < 0.1);
        assert_eq!(speeds.saved_ns(0), 100.0);
        assert_eq!(Speeds { slow_latency_ns: 50.0, ..speeds }.saved_ns(0), 0.0);
    }

    #[test]
    fn often_asked_for_and_small_is_worth_more() {
        let worth = Worth::new(Speeds::default());
        let of = |value: Value| worth.of(&value, &DensityTable::default());
        assert!(of(value(100, 10, 0)) > of(value(100, 100, 0)));
        assert!(of(value(100, 10, 0)) > of(value(1000, 10, 0)));
        assert!(of(value(100, 10, 5)) > of(value(100, 10, 50)), "idle for longer than its reuse time");
        assert!(of(Value { reuse: None, ..value(100, 0, 9) }) > 0.0);
    }

    /// A stay of 100,000 ticks: asked for every 1000 it saves 100 × 219 ns, more than two moves; every 10,000 a tenth of it, less.
    #[test]
    fn it_goes_up_only_where_that_pays() {
        let none = DensityTable::default();
        let mut worth = Worth::new(Speeds::default());
        assert!(worth.wants_up(&value(1024, 10_000, 0), &none, false), "nothing was ever demoted");
        let cold = value(1024, 50_000, 0);
        (0..100).for_each(|_| worth.demoted(&cold, &none));
        worth.end_window(100_000, 100 * 1024);
        assert!(worth.wants_up(&value(1024, 1_000, 0), &none, false));
        assert!(!worth.wants_up(&value(1024, 10_000, 0), &none, false));
        (0..200).for_each(|_| worth.demoted(&value(1024, 1_500, 0), &none));
        assert!(!worth.wants_up(&value(1024, 1_000, 0), &none, false), "no better than what goes down");
        assert!(worth.wants_up(&value(1024, 1_000, 0), &none, true) == (worth.demoted_of(PartitionId(0)) == 0.0));
    }
}
