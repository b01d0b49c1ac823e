//! How the keys and bytes of a divided partition lie over the sizes of its values, and so over its bins: in one
//! database.
//!
//! Two histograms by size: the walk's round under way, and the one before, which stands for the part of the keys that
//! the walk has still to meet. So after one round keys at rest are known but for where the round stands, and what
//! comes, or is evicted, counts at once: in the first by how likely it lies in the walked part, in the second for the
//! rest. Only shares are taken from them: how much a partition has in all is `usage`'s to say. Limits may move
//! without a look at anything. O(1) per key; 8 KiB per divided partition, made when the first of its keys is met.

use tenure_core::decide::size_class::{BUCKETS, SIZE_CLASSES_MAX, SizeLimits, begins_at, bucket_of};
use tenure_core::units::PartitionId;

/// Keys and bytes by size class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Keys.
    pub keys: [f64; SIZE_CLASSES_MAX],
    /// Bytes.
    pub bytes: [f64; SIZE_CLASSES_MAX],
}

impl Held {
    /// Mean size of a key; `None` of nothing.
    pub fn mean_bytes(&self) -> Option<f64> {
        let (keys, bytes) = (self.keys.iter().sum::<f64>(), self.bytes.iter().sum::<f64>());
        (keys > 0.0).then(|| bytes / keys)
    }

    /// Adds `by` times `other`.
    pub fn add(&mut self, other: &Held, by: f64) {
        self.keys.iter_mut().zip(other.keys).for_each(|(sum, more)| *sum += by * more);
        self.bytes.iter_mut().zip(other.bytes).for_each(|(sum, more)| *sum += by * more);
    }
}

/// Keys by size.
#[derive(Clone)]
struct Histogram {
    keys: Vec<f64>,
    bytes: Vec<f64>,
    /// The same by size class.
    held: Held,
}

impl Histogram {
    fn new() -> Self {
        Histogram { keys: vec![0.0; BUCKETS], bytes: vec![0.0; BUCKETS], held: Held::default() }
    }

    /// Adds `by` keys, or takes off as much as there is; returns how much that was.
    fn add(&mut self, size_bytes: u32, by: f64, limits: &SizeLimits) -> f64 {
        let bucket = bucket_of(size_bytes);
        let by = by.max(-self.keys[bucket]);
        self.keys[bucket] += by;
        // Where the last key of a bucket goes, what rounding left of it goes too.
        let is_empty = self.keys[bucket] <= 0.0;
        let bytes = if is_empty { -self.bytes[bucket] } else { (by * f64::from(size_bytes)).max(-self.bytes[bucket]) };
        self.bytes[bucket] += bytes;
        let class = limits.class_of(begins_at(bucket));
        self.held.keys[class] = (self.held.keys[class] + by).max(0.0);
        self.held.bytes[class] = (self.held.bytes[class] + bytes).max(0.0);
        by
    }

    fn sum_up(&mut self, limits: &SizeLimits) {
        self.held = Held::default();
        for bucket in (0..BUCKETS).filter(|&bucket| self.keys[bucket] > 0.0) {
            let class = limits.class_of(begins_at(bucket));
            self.held.keys[class] += self.keys[bucket];
            self.held.bytes[class] += self.bytes[bucket];
        }
    }
}

/// One partition.
#[derive(Clone)]
struct Sizes {
    /// Met in the walk's round under way.
    round: Histogram,
    /// Met in the round before, and what has come since.
    before: Histogram,
    /// Under which limits both are summed up.
    limits: SizeLimits,
}

/// The sizes of all divided partitions. See the file's opening.
#[derive(Clone, Default)]
pub struct Spread {
    of: Vec<Option<Box<Sizes>>>,
}

impl Spread {
    /// A key has come, of which `walked` (0 to 1) is how likely it lies in the walked part.
    pub fn came(&mut self, partition: PartitionId, size_bytes: u32, walked: f64) {
        let Sizes { round, before, limits } = self.sizes(partition);
        round.add(size_bytes, walked, limits);
        before.add(size_bytes, 1.0, limits);
    }

    /// A key was evicted, which lies in the walked part as likely as that (1: the walk has met it).
    pub fn evicted(&mut self, partition: PartitionId, size_bytes: u32, walked: f64) {
        let Some(Some(sizes)) = self.of.get_mut(partition.index()) else { return };
        let Sizes { round, before, limits } = sizes.as_mut();
        let taken = -round.add(size_bytes, -walked, limits);
        // What was met is none of those to come, unless it was met in the round before.
        let left = if walked < 1.0 { 1.0 } else { 1.0 - taken };
        before.add(size_bytes, -left, limits);
    }

    /// The walk met a key.
    pub fn met(&mut self, partition: PartitionId, size_bytes: u32) {
        let Sizes { round, limits, .. } = self.sizes(partition);
        round.add(size_bytes, 1.0, limits);
    }

    /// Nothing is known of a partition any more.
    pub fn forget(&mut self, partition: usize) {
        if let Some(sizes) = self.of.get_mut(partition) {
            *sizes = None;
        }
    }

    /// The walk has come round.
    pub fn come_round(&mut self) {
        for sizes in self.of.iter_mut().flatten() {
            sizes.before = std::mem::replace(&mut sizes.round, Histogram::new());
        }
    }

    /// Takes the limits in force and sums up anew; ten times a second.
    pub fn settle(&mut self, limits_of: impl Fn(PartitionId) -> SizeLimits) {
        for (i, sizes) in self.of.iter_mut().enumerate() {
            if let Some(sizes) = sizes {
                sizes.limits = limits_of(PartitionId(i as u16));
                let Sizes { round, before, limits } = sizes.as_mut();
                round.sum_up(limits);
                before.sum_up(limits);
            }
        }
    }

    /// What each size class has, where the walk has come as far as `walked` (0 to 1).
    pub fn held(&self, partition: PartitionId, walked: f64) -> Held {
        let mut held = Held::default();
        if let Some(Some(sizes)) = self.of.get(partition.index()) {
            held.add(&sizes.round.held, 1.0);
            held.add(&sizes.before.held, 1.0 - walked);
        }
        held
    }

    fn sizes(&mut self, partition: PartitionId) -> &mut Sizes {
        if self.of.len() <= partition.index() {
            self.of.resize(partition.index() + 1, None);
        }
        let new = || Sizes { round: Histogram::new(), before: Histogram::new(), limits: SizeLimits::NONE };
        self.of[partition.index()].get_or_insert_with(|| Box::new(new()))
    }
}

/// The share of each size class; of nothing, the first has all.
pub fn shares(of_classes: &[f64; SIZE_CLASSES_MAX]) -> [f64; SIZE_CLASSES_MAX] {
    let all: f64 = of_classes.iter().sum();
    if all > 0.0 {
        return of_classes.map(|own| own / all);
    }
    let mut shares = [0.0; SIZE_CLASSES_MAX];
    shares[0] = 1.0;
    shares
}

#[cfg(test)]
mod tests {
    use tenure_core::decide::size_class::SizeClasses;

    use super::*;

    const A: PartitionId = PartitionId(0);

    /// Quartiles of sizes from 100 to 1700 bytes.
    fn limits() -> SizeLimits {
        let mut classes = SizeClasses::new(4);
        (0..1600).for_each(|i| classes.saw(100 + i));
        classes.end_window(1600, 1.0);
        *classes.limits()
    }

    /// A hundred keys of 200 bytes and ten of 1600, wherever the walk stands; the large ones go, and at once nothing
    /// of them is left.
    #[test]
    fn what_comes_and_goes_counts_at_once() {
        for walked in [0.0, 0.3, 1.0] {
            let (mut spread, limits) = (Spread::default(), limits());
            assert_eq!(shares(&spread.held(A, walked).bytes)[0], 1.0);
            spread.met(A, 200);
            spread.settle(|_| limits);
            (1..100).for_each(|_| spread.came(A, 200, walked));
            (0..10).for_each(|_| spread.came(A, 1600, walked));
            let held = spread.held(A, walked);
            assert!((held.keys[0] - 100.0).abs() < 1e-9 && (held.bytes[3] - 16_000.0).abs() < 1e-6, "{held:?}");
            spread.settle(|_| limits);
            assert!((shares(&spread.held(A, walked).bytes)[3] - 4.0 / 9.0).abs() < 1e-9);
            (0..10).for_each(|_| spread.evicted(A, 1600, walked));
            assert!(spread.held(A, walked).bytes[1..].iter().sum::<f64>() < 1e-6, "{:?}", spread.held(A, walked));
            spread.settle(|_| SizeLimits::NONE);
            assert_eq!(shares(&spread.held(A, walked).bytes)[0], 1.0);
        }
    }

    /// A thousand large keys have become small ones, which no event tells: as the walk meets them that is known, and
    /// after one round nothing else is. Keys that it met and that are evicted are gone at once, whether it met them
    /// in this round or the one before.
    #[test]
    fn one_round_of_the_walk_tells_what_is_there() {
        let (mut spread, limits) = (Spread::default(), limits());
        (0..1000).for_each(|_| spread.met(A, 1600));
        spread.come_round();
        spread.settle(|_| limits);
        for met in 0..1000 {
            let held = spread.held(A, f64::from(met) / 1000.0);
            assert!(
                (held.keys[0] - f64::from(met)).abs() < 1e-6 && (held.keys[3] + held.keys[0] - 1000.0).abs() < 1e-6
            );
            spread.met(A, 200);
        }
        spread.come_round();
        assert_eq!(spread.held(A, 0.0).keys[..4], [1000.0, 0.0, 0.0, 0.0]);
        (0..100).for_each(|_| spread.evicted(A, 200, 1.0));
        assert_eq!(spread.held(A, 0.0).keys[0], 900.0);
        (0..50).for_each(|_| spread.met(A, 200));
        (0..50).for_each(|_| spread.evicted(A, 200, 1.0));
        assert!((spread.held(A, 0.1).keys[0] - 810.0).abs() < 1e-6, "{:?}", spread.held(A, 0.1));
    }
}
