//! Size classes: the keys of a partition divided by what they take.
//!
//! A value of 100 bytes and one of 50 KB that are accessed alike are not worth the same: the small one saves as many
//! misses for a five-hundredth of the memory. Recency within one partition can't tell, but the program that divides
//! memory can, once each has a curve of its own. Limits are quantiles of the sizes accessed of late, quartiles for
//! four classes. Each access weighs the square root of its size: by accesses alone the largest class has nearly all
//! bytes where many values are tiny, by bytes the smallest has nearly all accesses. A limit stays where it is until
//! the share below it is clearly another's, so that keys don't change class with the noise of a window; sizes that
//! differ by less than twofold, and partitions of few keys, are one class. O(1) per size, O(buckets) per window; 1
//! KiB.

use crate::log_linear;

/// The most classes.
pub const SIZE_CLASSES_MAX: usize = 8;

const PER_OCTAVE: u64 = 8;
/// How many buckets sizes are told apart by; limits lie between two of them.
pub const BUCKETS: usize = log_linear::bucket_of::<PER_OCTAVE>(u32::MAX as u64) + 1;
/// A partition is divided from so many keys per class on, and no more below half of that: a few keys make no curve,
/// and each class holds a value or two beyond its target.
const KEYS_MIN: u64 = 64;
/// A limit moves where the share below it is off by more than this part of a class's.
const TOLERANCE: f64 = 0.25;
/// The middles of the outermost classes differ at least by this factor, or there are no classes.
const SPREAD_MIN: f64 = 2.0;

/// Where one size class ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// Never descending, in bytes; past the last class and before anything is known `u32::MAX`.
    limits_bytes: [u32; SIZE_CLASSES_MAX - 1],
}

impl Default for SizeLimits {
    fn default() -> Self {
        SizeLimits::NONE
    }
}

impl SizeLimits {
    /// All sizes are of class 0.
    pub const NONE: SizeLimits = SizeLimits { limits_bytes: [u32::MAX; SIZE_CLASSES_MAX - 1] };

    /// The class of a size in bytes, from 0.
    #[inline]
    pub fn class_of(&self, size_bytes: u32) -> usize {
        let size_bytes = size_bytes.min(u32::MAX - 1);
        self.limits_bytes.iter().filter(|&&limit| limit <= size_bytes).count()
    }

    /// Where class `class` begins, in bytes; `None` where no size is of it.
    pub fn begins_bytes(&self, class: usize) -> Option<u32> {
        let begins = if class == 0 { 0 } else { *self.limits_bytes.get(class - 1)? };
        (begins < u32::MAX && self.class_of(begins) == class).then_some(begins)
    }
}

/// The classes of one partition, and the sizes that say where they begin. See the file's opening.
#[derive(Clone, Debug)]
pub struct SizeClasses {
    n: usize,
    /// By size: accesses of late, weighed.
    seen: Vec<f32>,
    /// The weight of this window's.
    seen_now: f32,
    limits: SizeLimits,
}

impl SizeClasses {
    /// `n` classes, 1 to [`SIZE_CLASSES_MAX`], without limits yet.
    pub fn new(n: usize) -> Self {
        SizeClasses {
            n: n.clamp(1, SIZE_CLASSES_MAX),
            seen: vec![0.0; BUCKETS],
            seen_now: 0.0,
            limits: SizeLimits::NONE,
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> &SizeLimits {
        &self.limits
    }

    /// A key of so many bytes was accessed.
    #[inline]
    pub fn saw(&mut self, size_bytes: u32) {
        let weight = (size_bytes as f32).sqrt();
        self.seen[bucket_of(size_bytes)] += weight;
        self.seen_now += weight;
    }

    /// Ends a window, after which the partition has so many `keys` in the cache. Moves limits that have to move. What
    /// was seen so far weighs `decay` (0 to 1) of what it did, but after a window of few accesses it loses no more
    /// than those make up for. Returns true where a limit has moved.
    pub fn end_window(&mut self, keys: u64, decay: f32) -> bool {
        let is_divided = self.limits != SizeLimits::NONE;
        let keys_min = KEYS_MIN * self.n as u64 / if is_divided { 2 } else { 1 };
        let moved = if keys >= keys_min {
            self.revise()
        } else {
            std::mem::replace(&mut self.limits, SizeLimits::NONE) != SizeLimits::NONE
        };
        let all: f32 = self.seen.iter().sum();
        let decay = decay.max(1.0 - std::mem::take(&mut self.seen_now) / all.max(f32::MIN_POSITIVE));
        self.seen.iter_mut().for_each(|count| *count *= decay);
        moved
    }

    /// True where a limit has moved.
    fn revise(&mut self) -> bool {
        let below = self.shares_below();
        let wanted = self.wanted(&below);
        let mut limits = self.limits;
        for i in 1..self.n {
            let quantile = i as f64 / self.n as f64;
            let off = |limit: u32| (below[bucket_of(limit)] - quantile).abs();
            let (held, new) = (self.limits.limits_bytes[i - 1], wanted.limits_bytes[i - 1]);
            let holds = (held == u32::MAX) == (new == u32::MAX);
            if !holds || (new < u32::MAX && off(held) > off(new) + TOLERANCE / self.n as f64) {
                limits.limits_bytes[i - 1] = new;
            }
        }
        // One that moved past one that stayed: the shares are so different that all move.
        let limits = if limits.limits_bytes.is_sorted() { limits } else { wanted };
        std::mem::replace(&mut self.limits, limits) != limits
    }

    /// By bucket, the share of sizes below it, 0 to 1.
    fn shares_below(&self) -> Vec<f64> {
        let sum: f64 = self.seen.iter().map(|&count| f64::from(count)).sum();
        let mut below = 0.0;
        let add = |&count: &f32| {
            let share = below / sum.max(1e-9);
            below += f64::from(count);
            share
        };
        self.seen.iter().map(add).collect()
    }

    /// The limits that these shares alone would give.
    fn wanted(&self, below: &[f64]) -> SizeLimits {
        let mut limits = SizeLimits::NONE;
        let middle = |quantile: f64| below.partition_point(|&share| share <= quantile).saturating_sub(1);
        let outermost = 0.5 / self.n as f64;
        let spread = f64::from(begins_at(middle(1.0 - outermost))) / f64::from(begins_at(middle(outermost)).max(1));
        if spread >= SPREAD_MIN {
            for i in 1..self.n {
                limits.limits_bytes[i - 1] = begins_at(nearest(below, i as f64 / self.n as f64));
            }
        }
        limits
    }
}

/// The bucket whose share below is nearest to `quantile`: a value that many keys share is of one class.
fn nearest(below: &[f64], quantile: f64) -> usize {
    let after = below.partition_point(|&share| share < quantile).min(below.len() - 1);
    let before = below.partition_point(|&share| share < below[after.saturating_sub(1)]);
    if quantile - below[before] <= below[after] - quantile { before } else { after }
}

/// The bucket of a size: exact below 16, then eight an octave.
pub fn bucket_of(size_bytes: u32) -> usize {
    log_linear::bucket_of::<PER_OCTAVE>(u64::from(size_bytes))
}

/// The least size in a bucket.
pub fn begins_at(bucket: usize) -> u32 {
    log_linear::bounds_of::<PER_OCTAVE>(bucket).0 as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    const MANY: u64 = 1 << 20;

    fn classes(n: usize, sizes: impl IntoIterator<Item = u32>) -> SizeClasses {
        let mut classes = SizeClasses::new(n);
        sizes.into_iter().for_each(|size| classes.saw(size));
        classes.end_window(MANY, 0.7);
        classes
    }

    /// Sizes evenly between 100 and 1700 bytes: of Σ√s, which goes as s^1.5, a quarter lies below 691, a half below
    /// 1080, and three quarters below 1406; a bucket is an eighth of a size at most.
    #[test]
    fn limits_are_quantiles_by_the_root_of_the_size() {
        let classes = classes(4, (0..1600).map(|i| 100 + i));
        let begins: Vec<u32> = (1..4).filter_map(|class| classes.limits().begins_bytes(class)).collect();
        for (begins, expected) in begins.iter().zip([691.0, 1080.0, 1406.0]) {
            assert!((f64::from(*begins) / expected - 1.0).abs() < 0.1, "{begins} and not {expected}");
        }
        assert_eq!(begins.len(), 3);
        assert_eq!([100, begins[1] - 1, begins[1], u32::MAX].map(|size| classes.limits().class_of(size)), [0, 1, 2, 3]);
    }

    /// Nine in ten values of 31 bytes are of one class; whatever is larger shares the others.
    #[test]
    fn a_size_that_many_share_is_not_divided() {
        let classes = classes(4, (0..10_000).map(|i| if i % 10 > 0 { 31 } else { 200 + i }));
        let limits = classes.limits();
        assert_eq!(limits.class_of(31), 0);
        assert!(limits.class_of(200) > 0 && limits.class_of(10_000) == 3, "{limits:?}");
    }

    /// Fifty windows in which next to nothing is accessed, and that of one size, make nobody forget the others.
    #[test]
    fn quiet_windows_forget_nothing() {
        let mut classes = classes(4, (0..1600).map(|i| 100 + i));
        let before = *classes.limits();
        for window in 0..50 {
            if window % 10 == 0 {
                classes.saw(2000);
            }
            assert!(!classes.end_window(MANY, 0.7));
        }
        assert_eq!(classes.limits(), &before);
    }

    #[test]
    fn equal_sizes_and_few_keys_are_one_class() {
        for sizes in [vec![1024; 1000], (0..1000).map(|i| 1000 + i / 2).collect()] {
            assert_eq!(classes(4, sizes).limits(), &SizeLimits::NONE);
        }
        let mut few = SizeClasses::new(4);
        (0..1000).for_each(|i| few.saw(100 + i * 10));
        assert!(!few.end_window(4 * KEYS_MIN - 1, 1.0));
        assert!(few.end_window(4 * KEYS_MIN, 1.0) && few.limits().begins_bytes(3).is_some());
        assert!(!few.end_window(2 * KEYS_MIN, 1.0), "what is divided stays so");
        assert!(few.end_window(2 * KEYS_MIN - 1, 1.0) && few.limits() == &SizeLimits::NONE);
        assert_eq!(classes(1, (0..1000).map(|i| 100 + i)).limits(), &SizeLimits::NONE);
    }

    /// Windows of 2000 log-normal sizes each: limits stay through the noise, and move where sizes do.
    #[test]
    fn limits_move_with_sizes_and_not_with_noise() {
        let mut random = Random::new(7);
        let mut classes = SizeClasses::new(4);
        let mut window = |classes: &mut SizeClasses, scale: f64| {
            (0..2000).for_each(|_| {
                // About log-normal: a sum of twelve even draws is about normal.
                let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
                classes.saw((scale * (1.2 * normal).exp()) as u32);
            });
            classes.end_window(MANY, 0.7)
        };
        assert!(window(&mut classes, 1800.0));
        let moves = (0..50).filter(|_| window(&mut classes, 1800.0)).count();
        assert!(moves <= 2, "{moves} of 50 windows moved a limit");
        let before = *classes.limits();
        let moves = (0..10).filter(|_| window(&mut classes, 18_000.0)).count();
        assert!(moves > 0 && classes.limits().begins_bytes(1) > before.begins_bytes(3), "{:?}", classes.limits());
    }

    #[test]
    fn every_size_lies_in_its_bucket_and_buckets_adjoin() {
        for size in (0..5000).chain([1 << 20, (1 << 20) + 12_345, u32::MAX]) {
            let bucket = bucket_of(size);
            let ends = if bucket + 1 < BUCKETS { begins_at(bucket + 1) } else { u32::MAX };
            assert!(begins_at(bucket) <= size && (size < ends || size == u32::MAX), "{size}");
            assert!(
                bucket == 0 || f64::from(begins_at(bucket)) <= 1.126 * f64::from(begins_at(bucket - 1)) || bucket <= 8
            );
        }
    }

    proptest! {
        /// Whatever is seen: limits never descend, a class begins where it says, and larger is never of a lower class.
        #[test]
        fn limits_are_in_order(n in 1..=SIZE_CLASSES_MAX, windows in prop::collection::vec(
            prop::collection::vec(0..u32::MAX, 0..100), 1..5)) {
            let mut classes = SizeClasses::new(n);
            for window in &windows {
                window.iter().for_each(|&size| classes.saw(size));
                classes.end_window(MANY, 0.5);
                let limits = classes.limits();
                prop_assert!(limits.limits_bytes.is_sorted());
                for &size in window {
                    let class = limits.class_of(size);
                    prop_assert!(class < n);
                    prop_assert!(limits.begins_bytes(class).is_some_and(|begins| begins <= size));
                }
            }
        }
    }
}
