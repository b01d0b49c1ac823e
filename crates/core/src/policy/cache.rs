//! A simulated cache: accesses in, hit or miss out. Every policy that is replayed or simulated in miniature
//! implements this.
//!
//! The rules are the same for all, so that policies differ only in what they evict:
//! - a read or a write is one request; an absent key is a miss and is then stored (cache-aside), a present one is a
//!   hit;
//! - a request states the value's size, and a present value takes the new size;
//! - room is made before a value is stored, never at its own expense, until used plus new bytes are at most the
//!   capacity;
//! - a value larger than the whole capacity is not stored, evicts nothing, and an older value of its key is dropped;
//! - a delete removes the key and is no request; a value leaves the moment its time to live is over.
//!
//! `KLru`, at the end, is the plainest of them and what Redis does without its pool: the reference for KRR and for
//! miniatures.

use crate::access::{Access, Op};
use crate::error::ConfigError;
use crate::expiry::{ExpiryQueue, expires_us_after};
use crate::model::key_map::KeyMap;
use crate::random::Random;
use crate::units::KeyHash;

/// What an access found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The value was there.
    Hit,
    /// The value wasn't there; it is now, where it fits.
    Miss,
    /// The access asked for nothing: a delete.
    NotARequest,
}

/// Accesses for which memory is read ahead at once.
pub const AHEAD: usize = 16;

/// A simulated cache of a fixed capacity in bytes. The file's opening has the rules that an implementor keeps.
///
/// The caller gives accesses in the order of the stream, their times never decreasing.
pub trait Cache {
    /// Takes one access and says what it found.
    fn access(&mut self, access: &Access) -> Outcome;

    /// Reads a word of what the next accesses need, [`AHEAD`] at the most, so that their waits for memory overlap.
    /// Changes nothing.
    fn warm(&self, _next: &[Access]) {}

    /// Bytes of the values stored now; at most the capacity.
    fn used_bytes(&self) -> u64;

    /// What the cache may hold, in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Values evicted so far to make room; expiry and deletes are none.
    fn evictions(&self) -> u64;

    /// The cache's own memory, in bytes; 0 where an implementor doesn't know it.
    fn memory_bytes(&self) -> usize {
        0
    }
}

impl<C: Cache + ?Sized> Cache for Box<C> {
    fn access(&mut self, access: &Access) -> Outcome {
        (**self).access(access)
    }

    fn warm(&self, next: &[Access]) {
        (**self).warm(next);
    }

    fn used_bytes(&self) -> u64 {
        (**self).used_bytes()
    }

    fn capacity_bytes(&self) -> u64 {
        (**self).capacity_bytes()
    }

    fn evictions(&self) -> u64 {
        (**self).evictions()
    }

    fn memory_bytes(&self) -> usize {
        (**self).memory_bytes()
    }
}

/// The largest sampling size K.
pub const SAMPLE_SIZE_MAX: u32 = 64;

/// A sampling size as a number of keys.
///
/// # Errors
/// [`ConfigError::SampleSize`] for one outside 1 to [`SAMPLE_SIZE_MAX`].
pub fn sample_size(k: u32) -> Result<usize, ConfigError> {
    if (1..=SAMPLE_SIZE_MAX).contains(&k) { Ok(k as usize) } else { Err(ConfigError::SampleSize(k)) }
}

/// K-LRU: of K resident keys, drawn at random without replacement, the least recently used is evicted.
///
/// Source: the K-LRU of Wang's dissertation (2024) sec. 2.2.1. K = 1 is random eviction; where no more than K keys are
/// resident it is exact LRU. Cost: O(1) per access, O(K) per eviction; about 60 bytes per resident key.
#[derive(Clone, Debug)]
pub struct KLru {
    k: u32,
    capacity_bytes: u64,
    used_bytes: u64,
    evictions: u64,
    clock: u64,
    random: Random,
    resident: Vec<Resident>,
    place_of: KeyMap<u32>,
    expiries: ExpiryQueue,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    key: KeyHash,
    last_access: u64,
    expires_us: u64,
    size_bytes: u32,
}

impl KLru {
    /// A cache of `capacity_bytes` that samples `k` keys (1 to 64) per eviction.
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn new(k: u32, capacity_bytes: u64, seed: u64) -> Result<Self, ConfigError> {
        sample_size(k)?;
        Ok(KLru {
            k,
            capacity_bytes,
            used_bytes: 0,
            evictions: 0,
            clock: 0,
            random: Random::new(seed),
            resident: Vec::new(),
            place_of: KeyMap::default(),
            expiries: ExpiryQueue::default(),
        })
    }

    /// Changes the capacity, and evicts what no longer fits.
    pub fn set_capacity(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.make_room(0);
    }

    /// Keys that are resident now.
    pub fn n_resident(&self) -> usize {
        self.resident.len()
    }

    fn expire(&mut self, now_us: u64) {
        while let Some((key, expires_us)) = self.expiries.pop_expired(now_us) {
            let place = self.place_of.get(&key).copied();
            if let Some(place) = place.filter(|&p| self.resident[p as usize].expires_us == expires_us) {
                self.remove_at(place as usize);
            }
        }
    }

    fn remove(&mut self, key: KeyHash) -> Option<Resident> {
        let place = *self.place_of.get(&key)?;
        Some(self.remove_at(place as usize))
    }

    fn remove_at(&mut self, place: usize) -> Resident {
        let gone = self.resident.swap_remove(place);
        self.place_of.remove(&gone.key);
        if let Some(moved) = self.resident.get(place) {
            self.place_of.insert(moved.key, place as u32);
        }
        self.used_bytes -= u64::from(gone.size_bytes);
        gone
    }

    /// Evicts until `size_bytes` fit. What is to stay has been taken out before.
    fn make_room(&mut self, size_bytes: u32) {
        while self.used_bytes + u64::from(size_bytes) > self.capacity_bytes {
            let victim = self.draw_victim();
            self.remove_at(victim);
            self.evictions += 1;
        }
    }

    /// The place of the least recently used of K resident keys (Floyd's draw without replacement, exactly K numbers).
    fn draw_victim(&mut self) -> usize {
        let n = self.resident.len();
        let k = (self.k as usize).min(n);
        let mut drawn = [0_usize; SAMPLE_SIZE_MAX as usize];
        let mut victim = 0;
        let mut victim_access = u64::MAX;
        for (count, last) in (n - k..n).enumerate() {
            let candidate = self.random.below(last as u64 + 1) as usize;
            let place = if drawn[..count].contains(&candidate) { last } else { candidate };
            drawn[count] = place;
            let last_access = self.resident[place].last_access;
            if last_access < victim_access {
                (victim, victim_access) = (place, last_access);
            }
        }
        victim
    }

    fn store(&mut self, entry: Resident) {
        self.make_room(entry.size_bytes);
        self.used_bytes += u64::from(entry.size_bytes);
        self.place_of.insert(entry.key, self.resident.len() as u32);
        self.resident.push(entry);
        self.expiries.push(entry.key, entry.expires_us);
    }
}

impl Cache for KLru {
    fn access(&mut self, access: &Access) -> Outcome {
        self.expire(access.time_us);
        if access.op == Op::Delete {
            self.remove(access.key);
            return Outcome::NotARequest;
        }
        self.clock += 1;
        let place = self.place_of.get(&access.key).copied();
        if let Some(found) = place.and_then(|p| self.resident.get_mut(p as usize)) {
            let expires_us = expires_us_after(access, Some(found.expires_us));
            if (found.size_bytes, found.expires_us) == (access.size_bytes, expires_us) {
                found.last_access = self.clock;
                return Outcome::Hit;
            }
        }
        let before = self.remove(access.key);
        if u64::from(access.size_bytes) <= self.capacity_bytes {
            self.store(Resident {
                key: access.key,
                last_access: self.clock,
                expires_us: expires_us_after(access, before.map(|entry| entry.expires_us)),
                size_bytes: access.size_bytes,
            });
        }
        if before.is_some() { Outcome::Hit } else { Outcome::Miss }
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn evictions(&self) -> u64 {
        self.evictions
    }

    fn memory_bytes(&self) -> usize {
        self.resident.capacity() * size_of::<Resident>() + self.place_of.memory_bytes() + self.expiries.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> KeyHash {
        KeyHash::of_number(number)
    }

    fn cache(k: u32, capacity_bytes: u64) -> KLru {
        KLru::new(k, capacity_bytes, 1).unwrap()
    }

    /// Room for two values of 10. a b a c: c evicts b, the older; then a hits, b misses and evicts c, c misses.
    #[test]
    fn a_large_k_is_lru() {
        let mut cache = cache(64, 20);
        let outcomes: Vec<bool> =
            [1, 2, 1, 3, 1, 2, 3].map(|n| cache.access(&Access::read(key(n), 10)) == Outcome::Hit).to_vec();
        assert_eq!(outcomes, [false, false, true, false, true, false, false]);
        assert_eq!((cache.evictions(), cache.used_bytes()), (3, 20));
    }

    /// A loop one key longer than the cache: LRU never hits, random eviction does.
    #[test]
    fn k_of_one_evicts_at_random() {
        let hits = |k| {
            let mut cache = cache(k, 50);
            (0..5_000).filter(|i| cache.access(&Access::read(key(i % 51), 1)) == Outcome::Hit).count()
        };
        assert_eq!(hits(64), 0);
        assert!(hits(1) > 4_000, "{}", hits(1));
    }

    #[test]
    fn sizes_deletes_and_expiry_keep_the_account() {
        let mut cache = cache(5, 100);
        assert_eq!(cache.access(&Access::read(key(1), 101)), Outcome::Miss);
        assert_eq!(cache.used_bytes(), 0, "larger than the capacity: not stored");
        cache.access(&Access::read(key(1), 40));
        assert_eq!(cache.access(&Access::read(key(1), 70).with_op(Op::Write)), Outcome::Hit);
        assert_eq!(cache.used_bytes(), 70, "the new size counts");
        cache.access(&Access { ttl_us: 10, ..Access::read(key(2), 30) });
        assert_eq!(cache.access(&Access { time_us: 9, ..Access::read(key(2), 30) }), Outcome::Hit);
        assert_eq!(cache.access(&Access { time_us: 10, ..Access::read(key(3), 20) }), Outcome::Miss);
        assert_eq!((cache.used_bytes(), cache.evictions()), (90, 0), "the expired value made room");
        assert_eq!(
            cache.access(&Access { time_us: 11, ..Access::read(key(1), 1).with_op(Op::Delete) }),
            Outcome::NotARequest
        );
        assert_eq!(cache.used_bytes(), 20);
        assert_eq!(cache.access(&Access { time_us: 12, ..Access::read(key(3), 200) }), Outcome::Hit);
        assert_eq!((cache.used_bytes(), cache.n_resident()), (0, 0), "grown beyond the capacity: dropped");
    }

    #[test]
    fn a_sample_size_out_of_range_is_refused() {
        assert_eq!(KLru::new(0, 1, 1).err(), Some(ConfigError::SampleSize(0)));
        assert_eq!(KLru::new(65, 1, 1).err(), Some(ConfigError::SampleSize(65)));
    }
}
