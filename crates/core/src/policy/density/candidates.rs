//! Who goes from a miniature cache: of the keys met by chance the lowest are kept for the next evictions, as the server
//! does (`policy/pools.rs`).
//!
//! A miniature that took the lowest of each sample and forgot the rest would choose worse than the server: on a stream
//! much like a loop it missed twice as many. Cost: K scores an eviction; 1.5 KB.

use crate::policy::pools::SHORTLIST;
use crate::policy::shortlist::Shortlist;

/// As many more are drawn where few may go, as a multiple of K.
const PATIENCE: usize = 4;

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
pub(super) struct Candidates {
    lowest: Shortlist<Met>,
    /// Keys met, less K for each that went.
    met: usize,
}

impl Candidates {
    pub fn new() -> Self {
        Candidates { lowest: Shortlist::new(SHORTLIST), met: 0 }
    }

    /// One was met, or has just entered.
    #[inline]
    pub fn offer(&mut self, score: f32, met: Met) {
        self.met += 1;
        self.lowest.offer(f64::from(score), || met);
    }

    /// The next to go, of `k` for each that does. `draw` meets one by chance, `None` where that may not go; `is_as_met` tells whether one that was
    /// met before is there still, and was not accessed since. `None` where too few were met that may go.
    pub fn next(
        &mut self,
        k: usize,
        mut draw: impl FnMut() -> Option<(f32, Met)>,
        is_as_met: impl Fn(&Met) -> bool,
    ) -> Option<u32> {
        let mut patience = PATIENCE * k;
        loop {
            while patience > 0 && (self.met < k || self.lowest.is_empty()) {
                patience -= 1;
                if let Some((score, met)) = draw() {
                    self.offer(score, met);
                }
            }
            let met = self.lowest.pop()?;
            self.met = self.met.min(SHORTLIST * k).saturating_sub(k);
            if is_as_met(&met) {
                return Some(met.place);
            }
        }
    }

    /// Forgets all: places are others' now.
    pub fn clear(&mut self) {
        self.lowest.clear();
        self.met = 0;
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.lowest.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::pools::{Donor, Pools};
    use crate::random::Random;
    use crate::units::PartitionId;

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

    /// Much as the server chooses: far lower than the lowest of sixteen would be.
    #[test]
    fn it_chooses_as_the_server_does() {
        let mut candidates = Candidates::new();
        let met = |place: usize, scores: &[f32]| Met { place: place as u32, last: u64::from(scores[place].to_bits()) };
        let own = mean_rank(|scores, random, came| {
            came.iter().for_each(|&place| candidates.offer(scores[place], met(place, scores)));
            let draw = || Some(random.below(KEYS as u64) as usize).map(|place| (scores[place], met(place, scores)));
            let is_as_met = |one: &Met| *one == met(one.place as usize, scores);
            candidates.next(K, draw, is_as_met).unwrap() as usize
        });
        let mut pools = Pools::new(K);
        let servers = mean_rank(|scores, random, came| {
            let offer = |pools: &mut Pools<Met>, place: usize| {
                pools.offer(PartitionId(0), scores[place].into(), || met(place, scores));
            };
            came.iter().for_each(|&place| offer(&mut pools, place));
            loop {
                while !pools.will_do(Donor::Anyone, 0) {
                    offer(&mut pools, random.below(KEYS as u64) as usize);
                }
                let one = pools.take(Donor::Anyone).unwrap();
                if one == met(one.place as usize, scores) {
                    return one.place as usize;
                }
            }
        });
        let lowest_of = |n: usize| {
            mean_rank(move |scores, random, _| {
                let drawn = (0..n).map(|_| random.below(KEYS as u64) as usize);
                drawn.min_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap()
            })
        };
        assert!((own / servers - 1.0).abs() < 0.1, "{own} {servers}");
        assert!(own < 0.7 * lowest_of(16), "{own} {}", lowest_of(16));
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
