//! LRU on a sample: the longest idle goes. With K sampled keys this is the K-LRU of Redis (`maxmemory-samples`).

use super::{Candidate, Scorer};

/// The scorer. See the file's opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl Scorer for Lru {
    fn score(&self, candidate: &Candidate) -> f64 {
        -(candidate.idle as f64)
    }
}
