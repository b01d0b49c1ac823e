//! Insertion points as ages: where in the order of a tier a value begins that was not asked for there yet.
//!
//! Source: Wang's dissertation (2024) sec. 5.1.2: into the fast tier's LRU list values are put a quarter of it from
//! the tail, so that what is asked for once leaves soon; into the slow tier's in the middle. A list position is an
//! age: a quarter from the tail lies the value that is as old as the 75 % quantile. So a value that was not asked for
//! since it came counts as so much older than it is. The quantiles are taken from what the walk meets, a sample
//! without bias, in a histogram of two buckets an octave; true ages, not those that count, or a tier of newcomers
//! alone would grow older with each window. In the slow tier a value has aged before it came, by what values are aged
//! when they are demoted; that is taken off. Cost: O(1) per value met, O(64 x partitions) per window; half a KiB a
//! partition.

use super::{Tier, Value};
use crate::units::{PARTITIONS_MAX, PartitionId};

/// Two buckets an octave, up to 2^32 ticks.
const AGES: usize = 64;
/// What a window weighs one window later.
const DECAY: f32 = 0.5;
/// Fewer values met than this say nothing.
const MET_MIN: f32 = 16.0;
/// What one demoted value moves the mean age of demotion by, of the difference.
const DEMOTED_WEIGHT: f32 = 1.0 / 64.0;

/// Where values begin, as shares of a tier's order from its head: 0 is the head, 1 the tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InsertionPoints {
    /// New values in the fast tier.
    pub fast: f32,
    /// Demoted values in the slow tier.
    pub slow: f32,
}

impl InsertionPoints {
    /// At the head: plain recency.
    pub const HEAD: InsertionPoints = InsertionPoints { fast: 0.0, slow: 0.0 };
}

impl Default for InsertionPoints {
    /// Those of sec. 5.1.2.
    fn default() -> Self {
        InsertionPoints { fast: 0.75, slow: 0.5 }
    }
}

/// Ages met in one tier, of one partition.
#[derive(Clone, Debug)]
struct Ages {
    met: [f32; AGES],
}

impl Ages {
    fn meet(&mut self, idle: u64) {
        self.met[bucket(idle)] += 1.0;
    }

    /// The age that a share of the values is younger than; `None` where too few were met. Linear within a bucket.
    fn quantile(&self, share: f32) -> Option<f32> {
        let all: f32 = self.met.iter().sum();
        if all < MET_MIN {
            return None;
        }
        let mut left = all * share;
        for (i, &met) in self.met.iter().enumerate() {
            if left <= met && met > 0.0 {
                return Some(first(i) + (first(i + 1) - first(i)) * left / met);
            }
            left -= met;
        }
        Some(first(AGES))
    }
}

fn bucket(idle: u64) -> usize {
    let idle = idle.saturating_add(1);
    let octave = idle.ilog2() as usize;
    let upper_half = octave > 0 && idle >> (octave - 1) & 1 == 1;
    (2 * octave + usize::from(upper_half)).min(AGES - 1)
}

/// The youngest age of a bucket.
fn first(bucket: usize) -> f32 {
    let octave = ((bucket / 2) as f32).exp2();
    octave * (1.0 + (bucket % 2) as f32 / 2.0) - 1.0
}

/// What is added to the age of values that were not asked for yet.
#[derive(Clone, Copy, Debug, Default)]
struct Offsets {
    fast: f32,
    slow: f32,
}

/// The insertion points of all partitions. See the file's opening.
#[derive(Clone, Debug)]
pub struct Insertion {
    points: InsertionPoints,
    /// By partition, then tier.
    ages: Vec<[Ages; 2]>,
    offsets: Vec<Offsets>,
    /// Mean age at which values are demoted, in ticks, of late.
    demoted_age: Vec<f32>,
}

impl Insertion {
    /// Nothing was met yet, and values begin at the head.
    pub fn new(points: InsertionPoints) -> Self {
        let none = Ages { met: [0.0; AGES] };
        Insertion {
            points,
            ages: vec![[none.clone(), none]; PARTITIONS_MAX],
            offsets: vec![Offsets::default(); PARTITIONS_MAX],
            demoted_age: vec![0.0; PARTITIONS_MAX],
        }
    }

    /// The walk met a value.
    #[inline]
    pub fn met(&mut self, value: &Value) {
        self.ages[value.partition.index()][value.placed.tier().index()].meet(value.idle);
    }

    /// A value is about to be demoted.
    pub fn demoted(&mut self, value: &Value) {
        let mean = &mut self.demoted_age[value.partition.index()];
        let weight = if *mean == 0.0 { 1.0 } else { DEMOTED_WEIGHT };
        *mean += weight * (value.idle as f32 - *mean);
    }

    /// Ends a window: values begin where its ages say.
    pub fn end_window(&mut self) {
        for ((ages, offsets), &demoted) in self.ages.iter_mut().zip(&mut self.offsets).zip(&self.demoted_age) {
            let [fast, slow] = &*ages;
            if let Some(age) = fast.quantile(self.points.fast).filter(|_| self.points.fast > 0.0) {
                offsets.fast = age;
            }
            if let Some(age) = slow.quantile(self.points.slow).filter(|_| self.points.slow > 0.0) {
                offsets.slow = (age - demoted).max(0.0);
            }
            ages.iter_mut().flat_map(|ages| &mut ages.met).for_each(|met| *met *= DECAY);
        }
    }

    /// The age by which a value stands in its tier's order, in ticks: the largest leaves first. O(1).
    #[inline]
    pub fn age(&self, value: &Value) -> f32 {
        let idle = value.idle as f32;
        let Offsets { fast, slow } = self.offsets[value.partition.index()];
        match (value.placed.was_asked(), value.placed.tier()) {
            (true, _) => idle,
            (false, Tier::Fast) => idle + fast,
            (false, Tier::Slow) => idle + slow,
        }
    }

    /// What a partition's values begin with in the fast and the slow tier, in ticks, for people.
    pub fn offsets_of(&self, partition: PartitionId) -> (f32, f32) {
        let Offsets { fast, slow } = self.offsets[partition.index()];
        (fast, slow)
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        PARTITIONS_MAX * (size_of::<[Ages; 2]>() + size_of::<Offsets>() + size_of::<f32>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::placed::Placed;
    use super::*;
    use crate::policy::density::Feature;

    fn value(idle: u64, placed: Placed) -> Value {
        Value { partition: PartitionId(3), size_bytes: 100, idle, reuse: None, feature: Feature::default(), placed }
    }

    #[test]
    fn buckets_are_half_octaves_and_cover_all_ages() {
        assert_eq!([0, 1, 2, 3, 5, 7, 11].map(bucket), [0, 2, 3, 4, 5, 6, 7]);
        assert_eq!([0, 2, 3, 4, 5, 6, 7].map(first), [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 11.0]);
        assert_eq!(bucket(u64::MAX), AGES - 1);
    }

    /// Ages even from 0 to 999: a newcomer counts as about 750 old, a demoted value, that was 400 when it left, as
    /// 100 more than it is.
    #[test]
    fn who_was_not_asked_for_begins_where_the_point_is() {
        let slow = Placed::moved(Tier::Slow, 1);
        let mut insertion = Insertion::new(InsertionPoints::default());
        assert_eq!(insertion.age(&value(7, Placed::default())), 7.0);
        for idle in 0..1000 {
            insertion.met(&value(idle, Placed::default()));
            insertion.met(&value(idle, slow));
        }
        (0..500).for_each(|_| insertion.demoted(&value(400, Placed::default())));
        insertion.end_window();
        let (fast, down) = insertion.offsets_of(PartitionId(3));
        assert!((740.0..760.0).contains(&fast) && (90.0..110.0).contains(&down), "{fast} {down}");
        assert_eq!(insertion.age(&value(7, Placed::default())), 7.0 + fast);
        assert_eq!(insertion.age(&value(500, slow)), 500.0 + down);
        assert_eq!(insertion.age(&value(7, Placed::default().accessed())), 7.0);
        assert_eq!(insertion.age(&value(7, slow.accessed())), 7.0);
    }

    #[test]
    fn at_the_head_only_idle_times_count() {
        let mut insertion = Insertion::new(InsertionPoints::HEAD);
        (0..1000).for_each(|idle| insertion.met(&value(idle, Placed::default())));
        insertion.end_window();
        assert_eq!(insertion.age(&value(7, Placed::default())), 7.0);
    }
}
