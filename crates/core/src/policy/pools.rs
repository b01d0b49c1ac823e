//! Who gives up the next key, and which: a shortlist of candidates for each partition, fed by whatever keys are
//! sampled.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 5, "pRedis Driver": of K sampled keys the longest idle goes whose
//! partition is above its target, and a new sample is drawn where there is none. Differs from the paper: every
//! sampled key is offered to its own partition's list, so that none is wasted on the wrong partition, and a partition
//! may give up one key for every K of its keys that were met, sooner where its keys are rare. The server's evictor
//! and the simulated pRedis both evict through this file. Cost: O(1) per key that is not among the worst of its
//! partition, O(32) else; O(partitions that keys were offered of) to choose who gives.

use super::over_target::OverTarget;
use super::shortlist::Shortlist;
use crate::decide::sample_size::SAMPLE_SIZE_DEFAULT;
use crate::units::PartitionId;

/// Keys on a partition's shortlist: with as many, what is met of 10 keys an eviction is worth what 64 are with 8.
pub const SHORTLIST: usize = 32;
/// Where K keys of the donor don't turn up among this many times K sampled ones, its best so far goes: a small
/// partition whose keys come and go fast would cost K / its share of all keys for each eviction else.
pub const RARE: usize = 2;
/// From this K on candidates are kept from sample to sample, whoever chose it: see [`Pools::keep_to_sample_sizes`].
const POOLED_FROM: usize = SAMPLE_SIZE_DEFAULT as usize;
/// The search for a key of the right partition is given up after this many times K keys.
pub const PATIENCE: usize = 64;

/// Who gives up the next key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Donor {
    /// A partition above its target or its maximum.
    Partition(PartitionId),
    /// Whoever has the worst key.
    Anyone,
}

/// Who gives: who holds most above its maximum, whether or not memory is `short`. Else, where it is short, who holds
/// most above its target; where nobody is above, the fullest of those below. The `spared` hold no more than they are
/// guaranteed, and give only when nobody else holds anything. `None` where there is nothing to do.
///
/// All in bytes by partition; a partition past the end of `target_bytes` has none, and past the end of `bytes_max`
/// may hold nothing. With no targets at all, anyone gives.
pub fn next_donor(
    used_bytes: &[u64],
    target_bytes: &[u64],
    bytes_max: &[u64],
    spared: impl FnOnce() -> OverTarget,
    short: bool,
) -> Option<Donor> {
    let above_max = OverTarget::new(used_bytes, bytes_max);
    if !above_max.is_none() {
        return most_above(used_bytes, bytes_max, above_max);
    }
    if !short {
        return None;
    }
    if target_bytes.is_empty() {
        return Some(Donor::Anyone);
    }
    let over = OverTarget::new(used_bytes, target_bytes);
    let over = if over.is_none() { OverTarget::nearest(used_bytes, target_bytes, spared()) } else { over };
    most_above(used_bytes, target_bytes, over).or(Some(Donor::Anyone))
}

fn most_above(used_bytes: &[u64], limits: &[u64], over: OverTarget) -> Option<Donor> {
    let above =
        |id: &PartitionId| used_bytes[id.index()] as i128 - limits.get(id.index()).map_or(0, |&l| i128::from(l));
    let ids = (0..used_bytes.len() as u16).map(PartitionId);
    ids.filter(|id| over.holds(*id)).max_by_key(above).map(Donor::Partition)
}

#[derive(Clone, Debug)]
struct Pool<T> {
    victims: Shortlist<T>,
    /// Keys met, less K for each that went: what it may still give.
    met: usize,
}

impl<T> Pool<T> {
    fn new() -> Self {
        Pool { victims: Shortlist::new(SHORTLIST), met: 0 }
    }
}

/// The candidates of all partitions. `T` is how the caller knows a key again.
#[derive(Clone, Debug)]
pub struct Pools<T> {
    /// Of the partitions up to the last of which a key was ever offered: most caches have few, and all are looked
    /// through for each victim.
    pools: Vec<Pool<T>>,
    /// K, where any partition gives.
    sample_size: usize,
    /// K by partition; past its end as where any gives.
    sample_sizes: Vec<usize>,
    /// Keys that were met for those that went, so far.
    used_up: u64,
    /// No key is looked at for nothing, so that a victim is the worst of K and no more: see
    /// [`Pools::keep_to_sample_sizes`].
    is_strict: bool,
}

impl<T> Pools<T> {
    /// Empty lists; `sample_size` is K, at least 1.
    pub fn new(sample_size: usize) -> Self {
        let sample_size = sample_size.max(1);
        Pools { pools: Vec::new(), sample_size, sample_sizes: Vec::new(), used_up: 0, is_strict: false }
    }

    /// Changes K, for any partition and by partition.
    pub fn set_sample_sizes(&mut self, sample_size: usize, by_partition: &[u32]) {
        self.sample_size = sample_size.max(1);
        self.sample_sizes.clear();
        self.sample_sizes.extend(by_partition.iter().map(|&k| (k as usize).max(1)));
    }

    /// Whether a victim is to be the worst of no more than K, where K is below the default. Else keys that were met
    /// while others gave, and those left over of former samples, find worse ones, as in the server's own pool:
    /// welcome where recency tells, and not where a small K was chosen for a loop.
    pub fn keep_to_sample_sizes(&mut self, is_strict: bool) {
        self.is_strict = is_strict;
    }

    /// K, for who gives.
    pub fn sample_size(&self, donor: Donor) -> usize {
        match donor {
            Donor::Partition(id) => self.sample_sizes.get(id.index()).copied().unwrap_or(self.sample_size),
            Donor::Anyone => self.sample_size,
        }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let lists: usize = self.pools.iter().map(|pool| pool.victims.memory_bytes()).sum();
        lists + self.pools.capacity() * size_of::<Pool<T>>() + self.sample_sizes.capacity() * size_of::<usize>()
    }

    /// Forgets all candidates: they were made under another plan.
    pub fn clear(&mut self) {
        for pool in &mut self.pools {
            pool.victims.clear();
            pool.met = 0;
        }
    }

    /// A key of `partition` was sampled; the lower its score, the sooner it goes. `make` is called where it is
    /// shortlisted.
    pub fn offer(&mut self, partition: PartitionId, score: f64, make: impl FnOnce() -> T) {
        let most = SHORTLIST * self.sample_size(Donor::Partition(partition));
        if self.pools.len() <= partition.index() {
            self.pools.resize_with(partition.index() + 1, Pool::new);
        }
        let pool = &mut self.pools[partition.index()];
        if self.is_strict && most < SHORTLIST * POOLED_FROM && pool.met >= most {
            return;
        }
        pool.met = (pool.met + 1).min(most);
        pool.victims.offer(score, make);
    }

    /// True once the donor is ready, or where after `drawn` keys it turns out to be so rare that one candidate has to
    /// do.
    pub fn will_do(&self, donor: Donor, drawn: usize) -> bool {
        self.is_ready(donor) || (drawn >= RARE * self.sample_size(donor) && self.has_candidate(donor))
    }

    /// True while so many of the partition's keys were met that one more counts for nothing.
    pub fn is_full(&self, partition: PartitionId) -> bool {
        let donor = Donor::Partition(partition);
        self.met(donor) >= SHORTLIST * self.sample_size(donor)
    }

    fn has_candidate(&self, donor: Donor) -> bool {
        match donor {
            Donor::Partition(id) => self.pools.get(id.index()).is_some_and(|pool| !pool.victims.is_empty()),
            Donor::Anyone => self.pools.iter().any(|pool| !pool.victims.is_empty()),
        }
    }

    /// True once the donor has a candidate and K of its keys were met.
    pub fn is_ready(&self, donor: Donor) -> bool {
        self.met(donor) >= self.sample_size(donor)
    }

    /// Keys of the donor that are to be met before it can give so many `victims`, up to [`SHORTLIST`].
    pub fn missing(&self, donor: Donor, victims: usize) -> usize {
        (victims.min(SHORTLIST) * self.sample_size(donor)).saturating_sub(self.met(donor))
    }

    /// Keys of the donor that will be met in any case before it gives, at least 1.
    pub fn wanted(&self, donor: Donor) -> usize {
        // Without a candidate, those that were met count for nothing until there is one.
        if self.has_candidate(donor) { self.missing(donor, 1).max(1) } else { 1 }
    }

    /// Keys of the donor that were met and aren't used up; 0 where it has no candidate.
    fn met(&self, donor: Donor) -> usize {
        match donor {
            Donor::Partition(id) => self.pools.get(id.index()).filter(|p| !p.victims.is_empty()).map_or(0, |p| p.met),
            Donor::Anyone => self.pools.iter().filter(|p| !p.victims.is_empty()).map(|p| p.met).sum(),
        }
    }

    /// Takes the donor's candidate of the lowest score, ready or not; K of the keys that were met are used up by it.
    pub fn take(&mut self, donor: Donor) -> Option<T> {
        match donor {
            Donor::Partition(id) if id.index() < self.pools.len() => self.take_from(donor, id.index()),
            Donor::Partition(_) => None,
            Donor::Anyone => self.take_of(OverTarget::all()),
        }
    }

    /// Takes the candidate of the lowest score of these partitions, as where anyone gives.
    pub fn take_of(&mut self, these: OverTarget) -> Option<T> {
        let lowest = |(i, pool): (usize, &Pool<T>)| pool.victims.lowest().map(|score| (i, score));
        let pools = self.pools.iter().enumerate().filter(|(i, _)| these.holds(PartitionId(*i as u16)));
        let (i, _) = pools.filter_map(lowest).min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.take_from(Donor::Anyone, i)
    }

    /// Keys that were met for those that went, so far: K for each, or fewer where these had to do.
    pub fn used_up(&self) -> u64 {
        self.used_up
    }

    fn take_from(&mut self, donor: Donor, i: usize) -> Option<T> {
        let k = self.sample_size(donor);
        let mut used_up = k;
        let others = (0..self.pools.len()).filter(|&other| donor == Donor::Anyone && other != i);
        for pool in std::iter::once(i).chain(others) {
            let part = used_up.min(self.pools[pool].met);
            self.pools[pool].met -= part;
            used_up -= part;
        }
        self.used_up += (k - used_up) as u64;
        let victim = self.pools[i].victims.pop();
        if self.is_strict && self.sample_size(donor) < POOLED_FROM {
            self.keep_what_is_due(donor);
        }
        victim
    }

    /// Of m × K keys that were met the m worst go, and the others are met anew.
    fn keep_what_is_due(&mut self, donor: Donor) {
        let k = self.sample_size(donor);
        match donor {
            Donor::Partition(id) => {
                let pool = &mut self.pools[id.index()];
                pool.victims.truncate(pool.met / k);
            }
            Donor::Anyone => {
                let met: usize = self.pools.iter().map(|pool| pool.met).sum();
                self.pools.iter_mut().for_each(|pool| pool.victims.truncate(met / k));
            }
        }
    }

    /// As [`Pools::take`], but where the donor has no candidate, whoever of `others` has the worst gives.
    pub fn take_or(&mut self, donor: Donor, others: OverTarget) -> Option<T> {
        self.take(donor).or_else(|| self.take_of(others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Donor = Donor::Partition(PartitionId(0));
    const B: Donor = Donor::Partition(PartitionId(1));

    #[test]
    fn who_is_furthest_above_gives_and_a_maximum_comes_first() {
        let (none, nobody) = ([u64::MAX, u64::MAX], OverTarget::default);
        assert_eq!(next_donor(&[15, 30], &[10, 20], &none, nobody, true), Some(B));
        assert_eq!(next_donor(&[9, 19], &[10, 20], &none, nobody, true), Some(B), "the fullest, where nobody is above");
        assert_eq!(next_donor(&[15, 30], &[10, 20], &none, nobody, false), None);
        assert_eq!(next_donor(&[15, 30], &[10, 20], &[12, u64::MAX], nobody, false), Some(A));
        assert_eq!(next_donor(&[15, 30], &[], &none, nobody, true), Some(Donor::Anyone));
        let b_is_guaranteed = || OverTarget::only(PartitionId(1));
        assert_eq!(next_donor(&[9, 19], &[10, 20], &none, b_is_guaranteed, true), Some(A));
        assert_eq!(
            next_donor(&[0, 19], &[10, 20], &none, b_is_guaranteed, true),
            Some(B),
            "nobody else holds anything"
        );
    }

    #[test]
    fn a_partition_gives_its_worst_key_for_every_k_that_were_met() {
        let mut pools = Pools::new(2);
        let offers = [(0, -5.0, "a5"), (1, -9.0, "b9"), (0, -7.0, "a7"), (1, -1.0, "b1")];
        for (partition, score, name) in offers {
            pools.offer(PartitionId(partition), score, || name);
        }
        assert!(pools.is_ready(A) && pools.missing(A, 1) == 0);
        assert_eq!((pools.take(A), pools.used_up()), (Some("a7"), 2));
        assert!(!pools.is_ready(A), "one key for two met");
        assert_eq!((pools.missing(A, 1), pools.missing(A, 3)), (2, 6));
        assert_eq!(pools.take(Donor::Anyone), Some("b9"));
        let b_is_over = OverTarget::new(&[1, 1], &[1, 0]);
        assert_eq!(pools.take_or(A, b_is_over), Some("a5"));
        pools.offer(PartitionId(0), -6.0, || "a6");
        assert_eq!(pools.take_or(B, b_is_over), Some("b1"));
        assert_eq!(pools.take_or(B, b_is_over), None, "who holds no more than it should is left alone");
        assert_eq!(pools.take_or(B, OverTarget::all()), Some("a6"));
    }

    #[test]
    fn a_partition_of_which_no_key_was_met_has_none_to_give() {
        let mut pools = Pools::new(1);
        assert_eq!((pools.is_ready(A), pools.will_do(B, 100), pools.take(A)), (false, false, None));
        pools.offer(PartitionId(1), 0.0, || "b");
        assert_eq!((pools.is_ready(A), pools.will_do(A, 100), pools.take(A)), (false, false, None));
        assert_eq!(pools.take_or(Donor::Partition(PartitionId(127)), OverTarget::all()), Some("b"));
        assert_eq!(pools.take(Donor::Anyone), None);
    }

    /// A gives for each key that is met, B for every third; kept to K, A takes no more than it can give up.
    #[test]
    fn each_partition_has_its_k() {
        let mut pools = Pools::new(5);
        pools.set_sample_sizes(5, &[1, 3]);
        pools.keep_to_sample_sizes(true);
        let n = SHORTLIST as u32;
        for i in 0..2 * n {
            pools.offer(PartitionId(0), f64::from(2 * n - i), || i);
        }
        pools.offer(PartitionId(1), 0.0, || 100);
        pools.offer(PartitionId(1), 1.0, || 101);
        assert!(!pools.is_ready(B));
        pools.offer(PartitionId(1), 2.0, || 102);
        assert!(pools.is_ready(B));
        let all_of_a: Vec<u32> = std::iter::from_fn(|| pools.is_ready(A).then(|| pools.take(A)).flatten()).collect();
        assert_eq!(all_of_a, (0..n).rev().collect::<Vec<_>>(), "the first that were met");
        assert_eq!(pools.take(B), Some(100));
        assert!(!pools.is_ready(B));
    }
}
