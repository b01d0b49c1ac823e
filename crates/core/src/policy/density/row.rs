//! What was seen of the keys of one feature, by age: accesses, and the time that keys spent at that age.
//!
//! 16 bytes for each age up to the oldest that was seen, by octaves. O(1) to add a stay, O(ages) to add them up.

use super::table::{AGES, age_bucket, bounds_of};

/// A row grows by so many ages: an octave.
const GROWS_BY: usize = 4;
const _: () = assert!(AGES.is_multiple_of(GROWS_BY));

/// What was seen at one age.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    /// Accesses of any kind: they end a stay.
    pub accesses: f32,
    /// Of them, reads: what a stay is for.
    pub reads: f32,
    /// Ticks that keys spent at this age.
    pub ticks: f32,
    /// What is not added up yet: keys that grew up to this age, less those that are counted from the age before on.
    passed: i32,
}

impl Count {
    /// Nothing.
    pub const NONE: Count = Count::of(0.0, 0.0, 0.0);

    /// So many accesses, reads and ticks.
    pub const fn of(accesses: f32, reads: f32, ticks: f32) -> Count {
        Count { accesses, reads, ticks, passed: 0 }
    }

    /// Adds what another has seen.
    pub fn add(&mut self, other: &Count) {
        self.accesses += other.accesses;
        self.reads += other.reads;
        self.ticks += other.ticks;
    }

    /// Forgets all but this share.
    pub fn fade(&mut self, kept: f32) {
        self.accesses *= kept;
        self.reads *= kept;
        self.ticks *= kept;
    }
}

/// The counts of a feature, by age. See the file's opening.
#[derive(Clone, Debug, Default)]
pub(super) struct Row(Vec<Count>);

impl Row {
    /// True where no key of this feature was seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to the oldest age that was seen.
    pub fn counts(&self) -> &[Count] {
        &self.0
    }

    /// The same of all ages.
    pub fn all_ages(&self) -> impl Iterator<Item = Count> {
        self.0.iter().copied().chain(std::iter::repeat(Count::NONE)).take(AGES)
    }

    /// What was seen at one age.
    #[inline]
    pub fn at(&mut self, bucket: usize) -> &mut Count {
        if bucket >= self.0.len() {
            self.grow(bucket);
        }
        &mut self.0[bucket]
    }

    #[cold]
    fn grow(&mut self, bucket: usize) {
        let ages = (bucket + 1).next_multiple_of(GROWS_BY);
        self.0.reserve_exact(ages - self.0.len());
        self.0.resize(ages, Count::NONE);
    }

    /// Adds the ticks from age `from` to age `to`, no younger, to their buckets: those of the first and the last, while
    /// the buckets between wait for [`Row::add_up`].
    #[inline]
    pub fn expose(&mut self, from: u64, to: u64) {
        let (first, last) = (age_bucket(from), age_bucket(to));
        if first == last {
            self.at(first).ticks += (to - from) as f32;
            return;
        }
        let ended = self.at(last);
        ended.ticks += (to - bounds_of(last).0) as f32;
        ended.passed += 1;
        let (start, width) = bounds_of(first);
        self.0[first].ticks += (start + width - from) as f32;
        self.0[first + 1].passed -= 1;
    }

    /// The same where `to` may be younger: then the ticks from there to `from` are taken back, which were added before
    /// it was known that the key was not as old.
    #[inline]
    pub fn expose_or_retract(&mut self, from: u64, to: u64) {
        if to >= from { self.expose(from, to) } else { self.retract(to, from) }
    }

    #[cold]
    fn retract(&mut self, from: u64, to: u64) {
        let (first, last) = (age_bucket(from), age_bucket(to));
        self.at(last).ticks -= (to - bounds_of(last).0.max(from)) as f32;
        if first < last {
            self.0[last].passed -= 1;
            let (start, width) = bounds_of(first);
            self.0[first].ticks -= (start + width - from) as f32;
            self.0[first + 1].passed += 1;
        }
    }

    /// Adds to each bucket the ticks of all keys that passed it.
    pub fn add_up(&mut self) {
        let mut passing = 0;
        for (bucket, count) in self.0.iter_mut().enumerate().rev() {
            let passed = (i64::from(passing) * bounds_of(bucket).1 as i64) as f32;
            // What is taken back late has faded since it was added.
            count.ticks = (count.ticks + passed).max(0.0);
            passing += std::mem::take(&mut count.passed);
        }
    }

    /// Forgets all but this share.
    pub fn fade(&mut self, kept: f32) {
        self.0.iter_mut().for_each(|count| count.fade(kept));
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Count>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As many ticks at each age as if all were counted one by one, in memory up to the oldest.
        #[test]
        fn ages_that_were_passed_add_up(stays in prop::collection::vec((0u64..3000, 0u64..3000), 1..40)) {
            let (mut row, mut expected) = (Row::default(), [0.0_f32; AGES]);
            let oldest = stays.iter().map(|(from, more)| age_bucket(from + more)).max().unwrap();
            for (from, more) in stays {
                row.expose(from, from + more);
                (from..from + more).for_each(|age| expected[age_bucket(age)] += 1.0);
            }
            row.add_up();
            prop_assert!(row.all_ages().map(|count| count.ticks).eq(expected));
            prop_assert!(row.counts().iter().all(|count| count.passed == 0));
            prop_assert_eq!(row.memory_bytes(), (oldest + 1).next_multiple_of(GROWS_BY) * 16);
        }
    }
}
