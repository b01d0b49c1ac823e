//! Who goes from a miniature cache: of the keys that are met the lowest are kept for the next evictions, as the server
//! does, by the same lists (`policy/pools.rs`).
//!
//! A miniature that took the lowest of each sample and forgot the rest would choose worse than the server. Cost: K
//! scores an eviction; 1.5 KB.

use crate::policy::pools::{Donor, Pools};
use crate::units::PartitionId;

/// As many more are drawn where few may go, as a multiple of K.
const PATIENCE: usize = 4;
/// One list for all: a sample has few keys of a partition.
const ALL: PartitionId = PartitionId(0);

/// A key that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met {
    /// Where the cache's owner has it.
    pub place: u32,
    /// When it was last accessed: one that was accessed since is no candidate any more.
    pub last: u64,
}

/// The lowest of those that were met. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct Candidates(Pools<Met>);

impl Candidates {
    pub fn new() -> Self {
        Candidates(Pools::new(1))
    }

    /// One was met, or has just entered.
    #[inline]
    pub fn offer(&mut self, score: f32, met: Met) {
        self.0.offer(ALL, f64::from(score), || met);
    }

    /// The next to go, of `k` met for each. `draw` meets one, `None` where that may not go; `may_go` tells
    /// whether one that was met before still may, and was not accessed since. `None` where too few may.
    pub fn next(
        &mut self,
        k: usize,
        mut draw: impl FnMut() -> Option<(f32, Met)>,
        may_go: impl Fn(&Met) -> bool,
    ) -> Option<u32> {
        self.0.set_sample_sizes(k, &[]);
        let mut patience = PATIENCE * k;
        loop {
            while patience > 0 && !self.0.is_ready(Donor::Anyone) {
                patience -= 1;
                if let Some((score, met)) = draw() {
                    self.offer(score, met);
                }
            }
            let met = self.0.take(Donor::Anyone)?;
            if may_go(&met) {
                return Some(met.place);
            }
        }
    }

    /// Forgets all: places are others' now.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const KEYS: usize = 1_000;
    const K: usize = 10;

    /// 5,000 evictions from 1,000 keys, each of which is followed by a newcomer: how many keys were lower than those
    /// that went, on average. Scores are drawn evenly.
    fn mean_rank(mut next: impl FnMut(&[f32], &mut Random, Option<usize>) -> usize) -> f64 {
        let mut random = Random::new(7);
        let score = |random: &mut Random| random.below(1 << 20) as f32 / (1 << 20) as f32;
        let mut scores: Vec<f32> = (0..KEYS).map(|_| score(&mut random)).collect();
        let (mut lower, mut came) = (0, None);
        for _ in 0..5_000 {
            let gone = next(&scores, &mut random, came);
            lower += scores.iter().filter(|&&one| one < scores[gone]).count();
            scores[gone] = score(&mut random);
            came = Some(gone);
        }
        lower as f64 / 5_000.0
    }

    /// What was met before is worth far more than a larger sample.
    #[test]
    fn those_that_go_are_far_lower_than_the_lowest_of_sixteen() {
        let mut candidates = Candidates::new();
        let met = |place: usize, scores: &[f32]| Met { place: place as u32, last: u64::from(scores[place].to_bits()) };
        let own = mean_rank(|scores, random, came| {
            came.iter().for_each(|&place| candidates.offer(scores[place], met(place, scores)));
            let draw = || {
                let place = random.below(KEYS as u64) as usize;
                Some((scores[place], met(place, scores)))
            };
            candidates.next(K, draw, |one| *one == met(one.place as usize, scores)).unwrap() as usize
        });
        let lowest_of_sixteen = mean_rank(|scores, random, _| {
            let drawn = (0..16).map(|_| random.below(KEYS as u64) as usize);
            drawn.min_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap()
        });
        assert!(5.0 * own < lowest_of_sixteen, "{own} {lowest_of_sixteen}");
    }

    /// One that was accessed since it was met doesn't go, and where nothing may go, nothing does.
    #[test]
    fn only_those_go_that_are_as_they_were_met() {
        let mut candidates = Candidates::new();
        (0..20).for_each(|place| candidates.offer(place as f32, Met { place, last: 5 }));
        assert_eq!(candidates.next(K, || None, |met| met.place % 2 == 1), Some(1));
        candidates.clear();
        let mut draws = 0;
        let draw = || {
            draws += 1;
            None
        };
        assert_eq!((candidates.next(K, draw, |_| true), draws), (None, PATIENCE * K));
        assert!(candidates.memory_bytes() > 0);
    }
}
