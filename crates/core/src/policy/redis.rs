//! Redis's approximated LRU: 5 keys are sampled per eviction, and a pool remembers the 16 best seen so far.
//!
//! Source: `evict.c` of Redis 7 and Valkey 8 (`evictionPoolPopulate`, `performEvictions`). Each eviction merges its
//! sample into the pool, which is ordered by idle time *as it was when sampled*. A sampled key enters at the first
//! place whose idle time is not below its own. With the pool full, the shortest idle drops out, and a key shorter idle
//! than all is not taken. Then the longest idle of the pool that is still resident goes; those that are gone are
//! dropped from the pool, those that were accessed in between are not. Differs from the server: idle time is counted
//! in requests, where the server's clock ticks once a second, and keys are drawn evenly, where `dictGetSomeKeys` takes
//! neighbours in the hash table. Cost: O(K × pool) per eviction.

use super::cache::{SAMPLE_SIZE_MAX, sample_size};
use super::table::{Entry, Order, Table, TableCache};
use crate::error::ConfigError;
use crate::random::Random;
use crate::units::KeyHash;

/// `maxmemory-samples` where nothing else is configured.
pub const SAMPLE_SIZE: u32 = 5;

/// How many candidates the pool holds (`EVPOOL_SIZE`).
const POOL_SIZE: usize = 16;

/// The order of Redis. See the file's opening.
#[derive(Clone, Debug)]
pub struct RedisLru {
    k: usize,
    /// Idle time when sampled, and key; the longest idle last.
    pool: Vec<(u64, KeyHash)>,
    random: Random,
}

impl RedisLru {
    /// A cache of `capacity_bytes` with `k` samples per eviction (1 to 64).
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn cache(k: u32, capacity_bytes: u64, seed: u64) -> Result<TableCache<RedisLru>, ConfigError> {
        sample_size(k)?;
        Ok(TableCache::new(capacity_bytes, RedisLru::order(k, seed)))
    }

    /// The order alone, of `k` samples (1 to 64).
    pub fn order(k: u32, seed: u64) -> RedisLru {
        RedisLru { k: k as usize, pool: Vec::with_capacity(POOL_SIZE + 1), random: Random::new(seed) }
    }

    /// Samples `k` keys (1 to 64) from now on; the pool stays, as the server's does.
    pub fn set_sample_size(&mut self, k: u32) {
        self.k = k as usize;
    }

    fn populate(&mut self, table: &Table) {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        for &place in table.draw(self.k, &mut self.random, &mut drawn) {
            let entry = &table.entries()[place as usize];
            let idle = table.clock() - entry.last_access;
            let at = self.pool.partition_point(|&(pooled, _)| pooled < idle);
            if self.pool.len() < POOL_SIZE {
                self.pool.insert(at, (idle, entry.key));
            } else if at > 0 {
                self.pool.copy_within(1..at, 0);
                self.pool[at - 1] = (idle, entry.key);
            }
        }
    }
}

impl Order for RedisLru {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        loop {
            self.populate(table);
            while let Some((_, key)) = self.pool.pop() {
                if let Some(place) = table.place_of(key) {
                    return place;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::policy::cache::{Cache, Outcome};

    /// Three values fit, and the sample takes them all, so the pool holds 1 2 3 by idle time. The fourth evicts 1 and
    /// leaves 2, 3 in the pool with idle times of then; 2 is accessed, yet it is the pool's longest idle: the fifth
    /// evicts it all the same.
    #[test]
    fn the_pool_remembers_idle_times_as_they_were() {
        let mut cache = RedisLru::cache(5, 3, 1).unwrap();
        let mut ask = |n| cache.access(&Access::read(KeyHash::of_number(n), 1));
        for n in [1, 2, 3, 4] {
            assert_eq!(ask(n), Outcome::Miss);
        }
        assert_eq!(ask(2), Outcome::Hit);
        // Sampled now: 2 idle 1, 3 idle 3, 4 idle 2. Pool by then: 2 (idle 2), 3 (idle 1) and these: the longest is 3.
        assert_eq!(ask(5), Outcome::Miss);
        assert_eq!(ask(3), Outcome::Miss, "3 was idle for 3 requests, longer than 2 had been");
        assert_eq!(cache.evictions(), 3);
    }

    #[test]
    fn it_stays_within_its_capacity() {
        let mut cache = RedisLru::cache(5, 1_000, 1).unwrap();
        for i in 0..20_000_u64 {
            cache.access(&Access::read(KeyHash::of_number(i.wrapping_mul(i) % 503), (i % 37) as u32 + 1));
            assert!(cache.used_bytes() <= 1_000);
        }
    }
}
