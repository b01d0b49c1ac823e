//! Any scorer on a sample: of K values drawn at random, the one with the lowest score goes. K-LRU is this with [`Lru`].
//!
//! [`Lru`]: super::lru::Lru

use super::Scorer;
use super::cache::{SAMPLE_SIZE_MAX, sample_size};
use super::table::{Entry, Order, Table, TableCache};
use crate::error::ConfigError;
use crate::random::Random;

/// The order of a sampled scorer. See the file's opening.
#[derive(Clone, Debug)]
pub struct Sampled<S> {
    scorer: S,
    k: usize,
    random: Random,
}

impl<S: Scorer> Sampled<S> {
    /// A cache of `capacity_bytes` that evicts by `scorer` among `k` values (1 to 64).
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn cache(scorer: S, k: u32, capacity_bytes: u64, seed: u64) -> Result<TableCache<Self>, ConfigError> {
        let k = sample_size(k)?;
        Ok(TableCache::new(capacity_bytes, Sampled { scorer, k, random: Random::new(seed) }))
    }
}

impl<S: Scorer> Order for Sampled<S> {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let drawn = table.draw(self.k, &mut self.random, &mut drawn);
        lowest(&self.scorer, table, drawn)
    }
}

/// The place of the lowest score among `places`, the first of equals.
///
/// # Panics
/// Where there are none.
#[inline]
pub(super) fn lowest(scorer: &impl Scorer, table: &Table, places: &[u32]) -> usize {
    let (mut victim, mut victim_score) = (places[0], f64::INFINITY);
    for &place in places {
        let score = scorer.score(&table.entries()[place as usize].candidate(table.clock()));
        if score < victim_score {
            (victim, victim_score) = (place, score);
        }
    }
    victim as usize
}
