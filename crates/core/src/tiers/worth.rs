//! The second rule: a value is worth its fast memory by what it saves per byte and unit of time.
//!
//! Our own; derivation in docs/models.md, "Two tiers". Fast memory saves at each request the difference of two reads,
//! so worth is accesses per tick (`policy/density/`, the same density that evicts; before that has learned, the
//! inverse of reuse and idle time) × time saved ÷ size. A slow value goes up where it is worth more than fast values
//! are in the mean, and where what it saves over a usual stay pays for two moves: its own, and the one that it causes.
//! Below some tens of requests a stay no move pays. Nothing here depends on the order of a list, so insertion points
//! have no part in it. Cost: one look-up in the density table; 4 bytes a partition.

use super::{Tier, Value};
use crate::policy::density::DensityTable;
use crate::units::{PARTITIONS_MAX, PartitionId};

/// What one fast value that the walk meets moves the mean worth of these by, of the difference.
const MET_WEIGHT: f32 = 1.0 / 256.0;
/// A value that went up makes another go down.
const MOVES_PER_PROMOTION: f32 = 2.0;
/// What a stay's length weighs against those of former windows.
const STAY_WEIGHT: f32 = 0.5;

/// What reads of both tiers and a move cost. A nanosecond and a byte per nanosecond (10^9 bytes per second) are the
/// units.
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
    /// The slow tier of the dissertation's machine: twice the latency, bandwidth ÷ 2.4 (sec. 5.2.1), of a fast tier of
    /// 100 ns and 12 bytes per ns, which is assumed (about what one core gets of local memory). A move: 2.5 µs,
    /// between the 1.6 and 3.2 measured on Redis 7.0, Valkey 8.0 and 9.1.
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
    /// By partition, and last over all: mean log2 of the worth of fast values of late; NaN before the first.
    fast: Vec<f32>,
    /// How long bytes stay in the fast tier, in ticks, of late.
    stay_ticks: f32,
    demoted_bytes: u64,
}

impl Worth {
    /// Nothing was met yet.
    pub fn new(speeds: Speeds) -> Self {
        Worth { speeds, fast: vec![f32::NAN; PARTITIONS_MAX + 1], stay_ticks: f32::INFINITY, demoted_bytes: 0 }
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

    /// Accesses per tick to be expected of a value over a stay. A density is highest just after a request. So it is
    /// taken at the age that the value had before its last one. At most one request per reuse time counts, since in a
    /// loop all values look as if they were about to be accessed.
    fn lasting_rate(value: &Value, table: &DensityTable) -> f32 {
        let reuse = value.reuse.unwrap_or(0).max(value.idle).max(1);
        Self::rate(&Value { idle: reuse, ..*value }, table).min(1.0 / reuse as f32)
    }

    /// True where a slow value is worth going up: more than what is fast of its own partition (`alone`) or of any.
    pub fn wants_up(&self, value: &Value, table: &DensityTable, alone: bool) -> bool {
        let saved = Self::lasting_rate(value, table) * self.speeds.saved_ns(value.size_bytes);
        let mean = self.fast[if alone { value.partition.index() } else { PARTITIONS_MAX }];
        let is_better = mean.is_nan() || saved / value.size_bytes.max(1) as f32 > mean.exp2();
        is_better && saved * self.stay_ticks > MOVES_PER_PROMOTION * self.speeds.move_ns(value.size_bytes)
    }

    /// The walk met a value. Newcomers, which wait to be accessed again, are no measure.
    pub fn met(&mut self, value: &Value, table: &DensityTable) {
        if value.placed.tier() == Tier::Slow || !value.placed.was_asked() {
            return;
        }
        let worth = self.of(value, table).log2();
        for place in [value.partition.index(), PARTITIONS_MAX] {
            let mean = &mut self.fast[place];
            *mean = if mean.is_nan() { worth } else { *mean + MET_WEIGHT * (worth - *mean) };
        }
    }

    /// A value is about to be demoted.
    pub fn demoted(&mut self, value: &Value) {
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

    /// Mean worth of a partition's fast values of late, for people; `None` before any was met.
    pub fn fast_of(&self, partition: PartitionId) -> Option<f32> {
        Some(self.fast[partition.index()]).filter(|mean| !mean.is_nan()).map(f32::exp2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::placed::Placed;
    use super::*;
    use crate::policy::density::Feature;

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

    /// 1 KiB: 100 ns of latency and 1024 × (1/5 − 1/12) = 119 ns of transfer; a move 2800 + 1024 × (1/5 + 1/12) =
    /// 3090 ns.
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

    /// A stay of 100,000 ticks: asked for every 1000 it saves 100 × 219 ns, more than two moves; every 10,000 a tenth
    /// of it, less.
    #[test]
    fn it_goes_up_only_where_that_pays() {
        let none = DensityTable::default();
        let mut worth = Worth::new(Speeds::default());
        assert!(worth.wants_up(&value(1024, 10_000, 0), &none, false), "nothing is known");
        (0..100).for_each(|_| worth.demoted(&value(1024, 50_000, 0)));
        worth.end_window(100_000, 100 * 1024);
        assert!(worth.wants_up(&value(1024, 1_000, 0), &none, false));
        assert!(!worth.wants_up(&value(1024, 10_000, 0), &none, false));
        let hot = Value { placed: Placed::default().accessed(), ..value(1024, 500, 0) };
        (0..1000).for_each(|_| worth.met(&hot, &none));
        assert!(!worth.wants_up(&value(1024, 1_000, 0), &none, false), "no better than what is fast");
        assert!(worth.wants_up(&value(1024, 100, 0), &none, false));
        assert_eq!(worth.fast_of(PartitionId(1)), None);
        assert!((worth.fast_of(PartitionId(0)).unwrap() / worth.of(&hot, &none) - 1.0).abs() < 1e-3);
    }
}
