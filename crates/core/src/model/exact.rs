//! Exact LRU stack distances, in bytes or in objects: the oracle that the other models are tested against.
//!
//! Source: Mattson et al. (1970), with the stack of `lru_stack.rs`. A request hits in every LRU cache whose capacity
//! is at least its stack distance: the bytes of all distinct values used since the key's last access, its own
//! included, plus the free space that deletes and expiry left above it. This is exact for a cache that evicts the
//! least recently used until the new value fits, at every capacity that no single value exceeds; below, it is that of
//! a cache which such a value empties. In objects every value counts 1. Expiry is taken from an unlimited cache:
//! where a read misses only in caches too small to hold the value, those set its time to live anew, which no single
//! stack can tell. Cost: O(log n) per access; memory grows with keys and with distinct distances.

use super::CurveModel;
use super::distances::Distances;
use super::lru_stack::{Depth, LruStack};
use crate::access::Access;
use crate::curve::MissRatioCurve;
use crate::sampling::SampleRate;

/// What the size of a cache is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes.
    Bytes,
    /// Values, whatever their size; the `bytes` of a curve's points then are a number of values.
    Objects,
}

/// The oracle. See the file's opening.
#[derive(Clone, Debug)]
pub struct Exact {
    measure: Measure,
    stack: LruStack,
    distances: Distances,
    requests: u64,
}

impl Exact {
    /// An oracle that measures caches in bytes or in values.
    pub fn new(measure: Measure) -> Self {
        Exact { measure, stack: LruStack::default(), distances: Distances::exact(), requests: 0 }
    }
}

impl CurveModel for Exact {
    fn record(&mut self, access: &Access) {
        let size = if self.measure == Measure::Bytes { access.size_bytes } else { 1 };
        match self.stack.access(access, size) {
            Depth::Deleted(_) => return,
            Depth::Cold => {}
            Depth::At { depth_bytes, .. } => self.distances.add(depth_bytes, 1.0),
        }
        self.requests += 1;
    }

    fn forget_counts(&mut self) {
        self.distances.clear();
        self.requests = 0;
    }

    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        self.distances.curve(sizes_bytes, 1.0, self.requests as f64, 0.0)
    }

    fn sample_rate(&self) -> SampleRate {
        SampleRate::ALL
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.stack.memory_bytes() + self.distances.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access::Op;
    use crate::model::testing::{any_accesses, simulated, simulated_curve};
    use crate::units::KeyHash;

    /// LRU written as plainly as can be: values in the order of their use, the oldest first. A value too large
    /// empties it.
    struct PlainLru {
        capacity_bytes: u64,
        values: Vec<(KeyHash, u64, u64)>,
    }

    impl PlainLru {
        fn is_hit(&mut self, access: &Access) -> Option<bool> {
            self.values.retain(|value| value.2 > access.time_us);
            let found = self.values.iter().position(|value| value.0 == access.key);
            let old = found.map(|i| self.values.remove(i));
            if access.op == Op::Delete {
                return None;
            }
            let expires_us = crate::expiry::expires_us_after(access, old.map(|value| value.2));
            self.values.push((access.key, u64::from(access.size_bytes), expires_us));
            while self.values.iter().map(|value| value.1).sum::<u64>() > self.capacity_bytes {
                self.values.remove(0);
            }
            Some(old.is_some())
        }
    }

    fn misses(cache: &mut impl FnMut(&Access) -> Option<bool>, accesses: &[Access]) -> f64 {
        let outcomes: Vec<bool> = accesses.iter().filter_map(cache).collect();
        outcomes.iter().filter(|&&hit| !hit).count() as f64 / outcomes.len().max(1) as f64
    }

    fn exact(accesses: &[Access], measure: Measure) -> Exact {
        let mut exact = Exact::new(measure);
        accesses.iter().for_each(|access| exact.record(access));
        exact
    }

    proptest! {
        #[test]
        fn it_equals_a_plain_lru_at_every_capacity(accesses in any_accesses(9)) {
            let sizes: Vec<u64> = (1..=110).collect();
            let curve = exact(&accesses, Measure::Bytes).curve(&sizes);
            for point in curve.points() {
                let mut plain = PlainLru { capacity_bytes: point.bytes, values: Vec::new() };
                let expected = misses(&mut |access| plain.is_hit(access), &accesses);
                prop_assert!((point.miss_ratio - expected).abs() < 1e-9, "{point:?}, {expected}");
            }
        }

        #[test]
        fn it_equals_k_lru_with_a_large_sample_from_the_largest_value_up(accesses in any_accesses(9)) {
            for point in exact(&accesses, Measure::Bytes).curve(&(9..=60).collect::<Vec<u64>>()).points() {
                let expected = simulated(64, point.bytes, &accesses);
                prop_assert!((point.miss_ratio - expected).abs() < 1e-9, "{point:?}, {expected}");
            }
        }

        #[test]
        fn objects_are_bytes_of_size_one(accesses in any_accesses(9)) {
            let ones: Vec<Access> = accesses.iter().map(|access| Access { size_bytes: 1, ..*access }).collect();
            let sizes: Vec<u64> = (1..=12).collect();
            let objects = exact(&accesses, Measure::Objects).curve(&sizes);
            prop_assert_eq!(objects, exact(&ones, Measure::Bytes).curve(&sizes));
        }
    }

    /// a(4) b(2) a c(3) b: the second a lies under b, 2 + 4 bytes; the second b under c and a, 3 + 4 + 2.
    #[test]
    fn six_bytes_hold_the_first_reuse_and_nine_the_second() {
        let stream = [(1, 4), (2, 2), (1, 4), (3, 3), (2, 2)];
        let accesses = stream.map(|(number, size)| Access::read(KeyHash::of_number(number), size));
        let curve = exact(&accesses, Measure::Bytes).curve(&[5, 6, 8, 9]);
        let got: Vec<f64> = curve.points().iter().map(|p| p.miss_ratio).collect();
        assert_eq!(got, [1.0, 0.8, 0.8, 0.6]);
    }

    #[test]
    fn compaction_changes_nothing() {
        let accesses: Vec<Access> =
            (0..50_000_u64).map(|i| Access::read(KeyHash::of_number(i.wrapping_mul(i) % 997), 1)).collect();
        let curve = exact(&accesses, Measure::Bytes).curve(&[64]);
        assert!(curve.mean_absolute_error(&simulated_curve(64, &accesses, &[64]), &[64]) < 1e-9);
    }

    #[test]
    fn after_a_warm_up_known_keys_are_not_cold() {
        let accesses: Vec<Access> = (0..10).map(|i| Access::read(KeyHash::of_number(i), 1)).collect();
        let mut exact = exact(&accesses, Measure::Bytes);
        exact.forget_counts();
        accesses.iter().for_each(|access| exact.record(access));
        assert_eq!(exact.curve(&[9, 10]).points().iter().map(|p| p.miss_ratio).collect::<Vec<_>>(), [1.0, 0.0]);
    }
}
