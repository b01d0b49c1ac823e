//! Bins: what has a model, a target and candidates for eviction of its own. A partition is one bin, or, where values
//! are divided by size (`tenure.size-classes`), as many as there are size classes.
//!
//! A partition's accesses are counted exactly, for whose a key is its name tells. How large its value is shows only
//! where the key is looked at: when it is sampled, when it comes, when the walk meets it. So what is known of bins
//! comes from those looks, and nothing is stored per key. Bins have numbers below 128 as partitions have; a partition
//! for which too few are left stays undivided.

use tenure_core::decide::size_class::{SIZE_CLASSES_MAX, SizeLimits};
use tenure_core::units::{PARTITIONS_MAX, PartitionId};

/// A bin's number. Dense, from 0, below [`PARTITIONS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinId(pub u8);

impl BinId {
    /// Its place in a table of bins.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// As whom the pools know it: there, whoever has a target is a partition.
    #[inline]
    pub fn in_pools(self) -> PartitionId {
        PartitionId(u16::from(self.0))
    }

    /// Whom the pools mean.
    pub fn of_pools(id: PartitionId) -> BinId {
        BinId(id.0 as u8)
    }
}

/// The bins of one partition, one after the other, smallest values first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bins {
    first: u8,
    n: u8,
}

impl Bins {
    /// How many there are, at least 1.
    #[inline]
    pub fn count(self) -> usize {
        usize::from(self.n)
    }

    /// True where there is more than one.
    #[inline]
    pub fn are_many(self) -> bool {
        self.n > 1
    }

    /// The bin of a size class, from 0.
    #[inline]
    pub fn of_class(self, class: usize) -> BinId {
        BinId(self.first + class.min(self.count() - 1) as u8)
    }

    /// That of the largest of their targets, the first where they have none.
    pub fn largest(self, targets: Option<&[u64]>) -> BinId {
        let largest = targets.and_then(|targets| (0..targets.len()).max_by_key(|&class| targets[class]));
        self.of_class(largest.unwrap_or(0))
    }

    /// Their numbers.
    pub fn range(self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first) + self.count()
    }
}

/// Which bins each partition has, and where its size classes begin.
#[derive(Clone, Debug, Default)]
pub struct Binning {
    /// Bins that a partition is to have.
    wanted: usize,
    /// By partition.
    bins: Vec<Bins>,
    limits: Vec<SizeLimits>,
    /// By bin.
    partition_of: Vec<PartitionId>,
}

impl Binning {
    /// No bins yet; partitions are to have `size_classes` each, where that is 2 or more.
    pub fn new(size_classes: usize) -> Self {
        Binning { wanted: size_classes.clamp(1, SIZE_CLASSES_MAX), ..Binning::default() }
    }

    /// Numbers that are left.
    pub fn free(&self) -> usize {
        PARTITIONS_MAX - self.partition_of.len()
    }

    /// The next partition has come; a number has to be left. It is divided where so many numbers are left afterwards
    /// as are `needed` for others.
    pub fn add(&mut self, needed: usize) {
        let partition = PartitionId(self.bins.len() as u16);
        let n = if self.wanted > 1 && self.free() >= self.wanted + needed { self.wanted } else { 1 };
        self.bins.push(Bins { first: self.partition_of.len() as u8, n: n as u8 });
        self.limits.push(SizeLimits::NONE);
        self.partition_of.extend(std::iter::repeat_n(partition, n));
    }

    /// How many bins there are.
    pub fn len(&self) -> usize {
        self.partition_of.len()
    }

    /// The bins of a partition.
    #[inline]
    pub fn of(&self, partition: PartitionId) -> Bins {
        self.bins[partition.index()]
    }

    /// The bins of all partitions.
    pub fn all(&self) -> &[Bins] {
        &self.bins
    }

    /// Whose each bin is.
    pub fn partition_of(&self) -> &[PartitionId] {
        &self.partition_of
    }

    /// Where the size classes of a partition begin.
    pub fn limits(&self, partition: PartitionId) -> &SizeLimits {
        &self.limits[partition.index()]
    }

    /// The bin of a key of `partition` that takes so many bytes.
    #[inline]
    pub fn bin_of(&self, partition: PartitionId, size_bytes: u32) -> BinId {
        let bins = self.of(partition);
        bins.of_class(if bins.are_many() { self.limits(partition).class_of(size_bytes) } else { 0 })
    }

    /// Takes the limits under which the targets were planned, by partition.
    pub fn set_limits(&mut self, limits: &[SizeLimits]) {
        self.limits.iter_mut().zip(limits).for_each(|(held, new)| *held = *new);
    }

    /// What each partition has of what its bins have.
    pub fn by_partition(&self, by_bin: &[u64]) -> Vec<u64> {
        let sum = |bins: &Bins| by_bin.get(bins.range()).map_or(0, |own| own.iter().sum());
        self.bins.iter().map(sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_to_the_first_and_are_left_for_the_others() {
        let mut binning = Binning::new(8);
        (0..17).rev().for_each(|others| binning.add(others));
        let counts: Vec<usize> = binning.all().iter().map(|bins| bins.count()).collect();
        assert_eq!(counts, [&[8; 15][..], &[1; 2]].concat(), "a number each is left for the last two");
        assert_eq!(binning.len(), 122);
        assert_eq!((binning.of(PartitionId(1)).range(), binning.partition_of()[15]), (8..16, PartitionId(1)));
        let by_bin: Vec<u64> = (0..122).collect();
        assert_eq!(binning.by_partition(&by_bin)[..2], [28, 92]);
        let mut undivided = Binning::new(0);
        (0..128).for_each(|_| undivided.add(0));
        assert_eq!((undivided.len(), undivided.free()), (128, 0));
        assert_eq!(undivided.bin_of(PartitionId(127), 1 << 20), BinId(127));
    }
}
