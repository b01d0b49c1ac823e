//! Sizes as the walk meets them: its last round is remembered in 16 segments, each replaced when the walk has gone
//! through it again.

use tenure_core::units::PARTITIONS_MAX;

/// What was evicted is taken off what was met while at least this share of the keys is left.
const LEFT_MIN: f64 = 0.25;
/// Parts of a round.
const SEGMENTS: usize = 16;

/// Keys and bytes by partition.
#[derive(Clone)]
pub(super) struct Sums {
    pub(super) keys: Vec<f64>,
    pub(super) bytes: Vec<f64>,
}

impl Sums {
    pub(super) fn new() -> Self {
        Sums { keys: vec![0.0; PARTITIONS_MAX], bytes: vec![0.0; PARTITIONS_MAX] }
    }

    pub(super) fn add(&mut self, partition: usize, keys: f64, bytes: f64) {
        self.keys[partition] = (self.keys[partition] + keys).max(0.0);
        self.bytes[partition] = (self.bytes[partition] + bytes).max(0.0);
    }

    pub(super) fn scale(&mut self, by: f64) {
        self.keys.iter_mut().chain(&mut self.bytes).for_each(|value| *value *= by);
    }
}

/// The partitions that a finished segment has keys of.
pub(super) type Segment = Vec<(u16, f64, f64)>;

/// Sizes as the walk met them.
pub(super) struct Met {
    /// The last round's segments, those of the round under way in the place of the ones before.
    pub(super) segments: Vec<Segment>,
    /// Their sums, without the segment under way.
    pub(super) sums: Sums,
    /// The segment under way, and which it is.
    pub(super) open: Sums,
    pub(super) at: usize,
    /// Keys met in this round.
    pub(super) visited: u64,
    /// Evicted since they were met.
    pub(super) evicted: Sums,
    pub(super) has_come_round: bool,
}

impl Met {
    pub(super) fn new() -> Self {
        Met {
            segments: vec![Segment::new(); SEGMENTS],
            sums: Sums::new(),
            open: Sums::new(),
            at: 0,
            visited: 0,
            evicted: Sums::new(),
            has_come_round: false,
        }
    }

    /// Some `keys` were met in a database of `total` keys, those looked at with their bytes.
    pub(super) fn add(&mut self, partition: usize, keys: u64, sized: Option<(f64, f64)>, total: f64) {
        // A product, not a quotient: this runs for each key that the walk meets.
        let visited = self.visited as f64 * SEGMENTS as f64;
        if visited >= (self.at + 1) as f64 * total && self.at + 1 < SEGMENTS {
            let at = (visited / total.max(1.0)) as usize;
            if at > self.at && at < SEGMENTS {
                self.close_before(at);
            }
        }
        self.visited += keys;
        if let Some((sized, bytes)) = sized {
            self.open.add(partition, sized, bytes);
        }
    }

    /// Goes on to segment `at`. Those between have met nothing: keys that are met several at once go past whole
    /// segments of a small database, and one that shrinks comes round before its last segments.
    fn close_before(&mut self, at: usize) {
        while self.at < at {
            self.close();
            self.at += 1;
        }
    }

    /// Puts the segment under way in its place.
    fn close(&mut self) {
        let (keys, bytes) = (&self.open.keys, &self.open.bytes);
        let some = (0..PARTITIONS_MAX).filter(|&i| keys[i] > 0.0).map(|i| (i as u16, keys[i], bytes[i])).collect();
        self.replace(self.at, some);
        self.open.scale(0.0);
        self.evicted.scale(1.0 - 1.0 / SEGMENTS as f64);
    }

    fn replace(&mut self, at: usize, segment: Segment) {
        for &(i, keys, bytes) in &segment {
            self.sums.add(usize::from(i), keys, bytes);
        }
        let old = std::mem::replace(&mut self.segments[at], segment);
        for (i, keys, bytes) in old {
            self.sums.add(usize::from(i), -keys, -bytes);
        }
    }

    pub(super) fn come_round(&mut self) {
        self.close_before(SEGMENTS);
        (self.at, self.visited, self.has_come_round) = (0, 0, true);
    }

    /// Mean size of a partition's keys; `None` where none was met.
    pub(super) fn mean(&self, partition: usize) -> Option<f64> {
        let (mut keys, mut bytes) = (self.sums.keys[partition], self.sums.bytes[partition]);
        if !self.has_come_round {
            keys += self.open.keys[partition];
            bytes += self.open.bytes[partition];
        }
        let (left, left_bytes) = (keys - self.evicted.keys[partition], bytes - self.evicted.bytes[partition]);
        // A small rest of large sums says little.
        if left >= 1.0 && left >= LEFT_MIN * keys && left_bytes > 0.0 {
            Some(left_bytes / left)
        } else {
            (keys >= 1.0).then(|| bytes / keys)
        }
    }
}
