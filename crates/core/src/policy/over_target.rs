//! Only a partition above its target gives up keys: the driver of pRedis.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 5: of the sampled keys the longest idle goes, if its partition holds
//! more than the plan gives it; else the second longest idle is looked at, and so on; with none, a new sample is
//! drawn.

use super::{Candidate, Scorer};
use crate::units::{PARTITIONS_MAX, PartitionId};

/// Which partitions hold more than their target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverTarget(u128);

const _: () = assert!(PARTITIONS_MAX <= u128::BITS as usize);

impl OverTarget {
    /// Compares used and target bytes, partition by partition; those without a target are over it.
    pub fn new(used_bytes: &[u64], target_bytes: &[u64]) -> Self {
        let target = |i: usize| target_bytes.get(i).copied().unwrap_or(0);
        OverTarget::of(used_bytes.iter().enumerate().map(|(i, &used)| used > target(i)))
    }

    /// The partitions furthest above their share, for when none is above its target and memory is short all the same:
    /// of all but the `spared`, those whose used / target is within 1 % of the highest; of all, where nobody else
    /// holds anything.
    pub fn nearest(used_bytes: &[u64], target_bytes: &[u64], spared: OverTarget) -> Self {
        let near = OverTarget::fullest(used_bytes, target_bytes, |i| !spared.holds(PartitionId(i as u16)));
        if near.is_none() { OverTarget::fullest(used_bytes, target_bytes, |_| true) } else { near }
    }

    fn fullest(used_bytes: &[u64], target_bytes: &[u64], may_give: impl Fn(usize) -> bool) -> Self {
        let fill = |(i, &used): (usize, &u64)| {
            f64::from(u8::from(may_give(i))) * used as f64 / target_bytes.get(i).map_or(1.0, |&t| t.max(1) as f64)
        };
        let fills: Vec<f64> = used_bytes.iter().enumerate().map(fill).collect();
        let highest = fills.iter().copied().fold(0.0, f64::max);
        OverTarget::of(fills.iter().map(|&fill| fill > 0.0 && fill >= 0.99 * highest))
    }

    /// These, in the order of their numbers.
    pub fn of(partitions: impl Iterator<Item = bool>) -> Self {
        OverTarget(partitions.enumerate().map(|(i, is_one)| u128::from(is_one) << i).sum())
    }

    /// Every partition: what a server without a plan evicts from.
    pub fn all() -> Self {
        OverTarget(u128::MAX)
    }

    /// One partition alone.
    pub fn only(partition: PartitionId) -> Self {
        OverTarget(1 << partition.index())
    }

    /// Who may give without falling below what it is guaranteed: who holds more than `bytes_min`, all past its end;
    /// all, where nobody does.
    pub fn above_minimum(used_bytes: &[u64], bytes_min: &[u64]) -> Self {
        let above = OverTarget::new(used_bytes, bytes_min);
        if above.is_none() { OverTarget::all() } else { above }
    }

    /// True where no partition is over its target.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// True where keys of `partition` may be evicted.
    pub fn holds(self, partition: PartitionId) -> bool {
        self.0 >> partition.index() & 1 == 1
    }
}

/// The index of the candidate to evict: the lowest score among those whose partition is over its target. O(sample).
pub fn victim(sample: &[Candidate], over: OverTarget, scorer: &impl Scorer) -> Option<usize> {
    let scored = sample.iter().enumerate().filter(|(_, c)| over.holds(c.partition)).map(|(i, c)| (i, scorer.score(c)));
    scored.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::lru::Lru;

    fn candidate(partition: u16, idle: u64) -> Candidate {
        let partition = PartitionId(partition);
        Candidate { partition, idle, resident: 0, n_requests: 0, size_bytes: 1, penalty_us: 0.0 }
    }

    #[test]
    fn the_longest_idle_of_those_over_their_target_goes() {
        let sample = [candidate(0, 90), candidate(1, 10), candidate(1, 50), candidate(2, 70)];
        let over = OverTarget::new(&[5, 20, 7], &[10, 10, 7]);
        assert_eq!(victim(&sample, over, &Lru), Some(2));
        assert_eq!(victim(&sample, OverTarget::all(), &Lru), Some(0));
        assert_eq!(victim(&sample, OverTarget::new(&[1, 1, 1], &[1, 1, 1]), &Lru), None);
    }

    #[test]
    fn with_none_over_target_the_fullest_give() {
        let near = |spared| {
            let near = OverTarget::nearest(&[9, 100, 50, 0], &[10, 101, 100, 0], spared);
            [0, 1, 2, 3].map(|i| near.holds(PartitionId(i)))
        };
        assert_eq!(near(OverTarget::default()), [false, true, false, false]);
        assert_eq!(near(OverTarget::only(PartitionId(1))), [true, false, false, false], "the fullest of the others");
        assert_eq!(near(OverTarget::all()), [false, true, false, false], "somebody has to");
    }

    #[test]
    fn a_partition_without_a_target_is_over_it() {
        assert!(OverTarget::new(&[0, 1], &[10]).holds(PartitionId(1)));
    }
}
