//! Belady's choice with costs and sizes, on a sample: a clairvoyant evictor that a real cache could be, if it knew
//! the future.
//!
//! Of K values drawn at random (64 unless told otherwise) the one goes whose next read saves least per byte and
//! access until then: penalty / (size × distance). What is never read again, is written before, or will have expired
//! saves nothing and goes first. The companion of the bound: what is between the two, nobody knows.

use std::sync::Arc;

use tenure_core::access::Access;
use tenure_core::error::ConfigError;
use tenure_core::policy::cache::{Outcome, SAMPLE_SIZE_MAX, sample_size};
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::random::Random;

use crate::offline::Offline;

/// How many values are sampled where nothing else is asked for.
pub const SAMPLE_SIZE: u32 = 64;

/// What lies ahead of a value. 8 bytes, so that a sample touches little memory.
#[derive(Clone, Copy, Debug, Default)]
struct Future {
    /// What its next use saves per byte, in µs; 0 where there is none.
    saved_us_per_byte: f32,
    /// The access that uses it next.
    next: u32,
}

/// The order of the clairvoyant. See the file's opening.
#[derive(Debug)]
pub struct Belady {
    offline: Arc<Offline>,
    k: usize,
    /// Index of the present access.
    now: usize,
    /// By place.
    futures: Vec<Future>,
    random: Random,
}

impl Belady {
    /// A cache of `capacity_bytes` that is going to see exactly the accesses of `offline`, in order, and samples `k`
    /// values (1 to 64).
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn cache(
        offline: Arc<Offline>,
        k: u32,
        capacity_bytes: u64,
        seed: u64,
    ) -> Result<TableCache<Belady>, ConfigError> {
        let order = Belady { offline, k: sample_size(k)?, now: 0, futures: Vec::new(), random: Random::new(seed) };
        Ok(TableCache::new(capacity_bytes, order))
    }

    fn worth(&self, place: u32) -> f32 {
        let Future { saved_us_per_byte, next } = self.futures[place as usize];
        // At the present access it may be the incoming value's own.
        let ahead = (next as usize).saturating_sub(self.now).max(1);
        saved_us_per_byte / ahead as f32
    }

    /// The value at `place` was used by the present access.
    fn note_use(&mut self, table: &Table, place: usize) {
        if self.futures.len() <= place {
            self.futures.resize(place + 1, Future::default());
        }
        self.futures[place] = match self.offline.saving(self.now) {
            None => Future::default(),
            Some((saved_us, distance)) => Future {
                saved_us_per_byte: (saved_us / f64::from(table.entries()[place].size_bytes)) as f32,
                next: self.now as u32 + distance,
            },
        };
    }
}

impl Order for Belady {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let drawn = table.draw(self.k, &mut self.random, &mut drawn);
        let (mut victim, mut least) = (drawn[0], f32::INFINITY);
        for &place in drawn {
            let worth = self.worth(place);
            if worth < least {
                (victim, least) = (place, worth);
            }
        }
        victim as usize
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.note_use(table, place);
    }

    fn touched(&mut self, table: &Table, place: usize) {
        self.note_use(table, place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.futures[to] = self.futures[from];
    }

    fn observed(&mut self, _access: &Access, _outcome: Outcome, _table: &Table) {
        self.now += 1;
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::cache::Cache;
    use tenure_core::units::KeyHash;

    use super::*;

    /// a b c a b: room for two. c must enter (misses are stored), and of a and b, b is needed later: b goes. So a
    /// hits, and b misses.
    #[test]
    fn what_is_needed_latest_goes() {
        let trace: Arc<[Access]> =
            [1, 2, 3, 1, 2].map(|key| Access { penalty_us: 1.0, ..Access::read(KeyHash(key), 1) }).into();
        let mut cache = Belady::cache(Arc::new(Offline::new(trace.clone())), 64, 2, 1).unwrap();
        let hits: Vec<bool> = trace.iter().map(|a| cache.access(a) == Outcome::Hit).collect();
        assert_eq!(hits, [false, false, false, true, false]);
    }
}
