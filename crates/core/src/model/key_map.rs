//! A hash map by [`KeyHash`] that doesn't hash a second time, and grows bit by bit.
//!
//! A sampled key's hash lies below the sampling threshold, so its upper bits are all alike, and those are what the
//! standard map tags its entries with. One multiplication (Fibonacci hashing) spreads the lower bits over all of them.
//!
//! A table that is full needs a second one of twice its size while it moves. In a cache of a few megabytes that is more
//! than eviction keeps free, and the server would evict for it. So there are several, each of which grows by itself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use crate::units::KeyHash;

/// So many tables. Keys are spread evenly, but for chance: all grow at about the same number of keys, one by one.
const PARTS: usize = 16;

type Part<V> = HashMap<KeyHash, V, BuildHasherDefault<SpreadHasher>>;

/// A map from sampled keys to `V`. Its methods are those of the standard map.
#[derive(Clone, Debug)]
pub struct KeyMap<V> {
    parts: Box<[Part<V>; PARTS]>,
}

impl<V> Default for KeyMap<V> {
    fn default() -> KeyMap<V> {
        KeyMap { parts: Box::new(std::array::from_fn(|_| Part::default())) }
    }
}

#[expect(missing_docs, reason = "they are the standard map's")]
impl<V> KeyMap<V> {
    #[inline]
    fn part(&self, key: &KeyHash) -> &Part<V> {
        &self.parts[part_of(*key)]
    }

    #[inline]
    fn part_mut(&mut self, key: &KeyHash) -> &mut Part<V> {
        &mut self.parts[part_of(*key)]
    }

    #[inline]
    pub fn get(&self, key: &KeyHash) -> Option<&V> {
        self.part(key).get(key)
    }

    #[inline]
    pub fn get_mut(&mut self, key: &KeyHash) -> Option<&mut V> {
        self.part_mut(key).get_mut(key)
    }

    #[inline]
    pub fn contains_key(&self, key: &KeyHash) -> bool {
        self.part(key).contains_key(key)
    }

    #[inline]
    pub fn insert(&mut self, key: KeyHash, value: V) -> Option<V> {
        self.part_mut(&key).insert(key, value)
    }

    #[inline]
    pub fn remove(&mut self, key: &KeyHash) -> Option<V> {
        self.part_mut(key).remove(key)
    }

    #[inline]
    pub fn entry(&mut self, key: KeyHash) -> Entry<'_, KeyHash, V> {
        self.part_mut(&key).entry(key)
    }

    /// Cost: a few additions.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(Part::is_empty)
    }

    pub fn clear(&mut self) {
        self.parts.iter_mut().for_each(Part::clear);
    }

    pub fn retain(&mut self, mut keeps: impl FnMut(&KeyHash, &mut V) -> bool) {
        self.parts.iter_mut().for_each(|part| part.retain(&mut keeps));
    }

    /// Of `capacity` in all.
    pub fn shrink_to(&mut self, capacity: usize) {
        self.parts.iter_mut().for_each(|part| part.shrink_to(capacity.div_ceil(PARTS)));
    }

    pub fn shrink_to_fit(&mut self) {
        self.shrink_to(0);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&KeyHash, &V)> {
        self.parts.iter().flat_map(Part::iter)
    }

    pub fn keys(&self) -> impl Iterator<Item = &KeyHash> {
        self.parts.iter().flat_map(Part::keys)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.parts.iter().flat_map(Part::values)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.parts.iter_mut().flat_map(Part::values_mut)
    }

    /// What it takes, in bytes: the standard map fills at most 7 of 8 places and keeps a byte of control for each.
    pub fn memory_bytes(&self) -> usize {
        let places: usize = self.parts.iter().map(|part| part.capacity() * 8 / 7).sum();
        places * (size_of::<(KeyHash, V)>() + 1)
    }
}

impl<V> IntoIterator for KeyMap<V> {
    type Item = (KeyHash, V);
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Part<V>, PARTS>>;

    fn into_iter(self) -> Self::IntoIter {
        (*self.parts).into_iter().flatten()
    }
}

impl<V> FromIterator<(KeyHash, V)> for KeyMap<V> {
    fn from_iter<I: IntoIterator<Item = (KeyHash, V)>>(entries: I) -> KeyMap<V> {
        let mut map = KeyMap::default();
        entries.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

#[inline]
pub(crate) fn spread(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// By bits that neither choose a table's place nor tag its entry.
#[inline]
fn part_of(key: KeyHash) -> usize {
    (spread(key.0) >> 48) as usize % PARTS
}

/// Spreads the 64 bits that a [`KeyHash`] writes; of no use for anything else.
#[derive(Default)]
pub struct SpreadHasher(u64);

impl Hasher for SpreadHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(self.0 ^ u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mixed = spread(word);
        self.0 = mixed ^ (mixed >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::SampleRate;

    fn sampled(rate: f64) -> impl Iterator<Item = KeyHash> {
        let rate = SampleRate::new(rate).unwrap();
        (0..).map(KeyHash::of_number).filter(move |&key| rate.takes(key))
    }

    /// Whatever the rate, and so the upper bits of hashes: no step takes more than a tenth of what the map holds then.
    #[test]
    fn it_grows_bit_by_bit() {
        for rate in [1.0, 0.01, 0.001] {
            let mut map = KeyMap::default();
            let mut before = 0;
            for (i, key) in sampled(rate).take(20_000).enumerate() {
                map.insert(key, [0_u64; 4]);
                let bytes = map.memory_bytes();
                assert!(i < 500 || bytes - before <= bytes / 10, "{before} to {bytes} bytes at {i} keys, rate {rate}");
                before = bytes;
            }
            assert_eq!(map.len(), 20_000);
        }
    }

    #[test]
    fn it_is_a_map() {
        let keys: Vec<KeyHash> = sampled(0.1).take(1000).collect();
        let mut map: KeyMap<usize> = keys.iter().enumerate().map(|(i, &key)| (key, i)).collect();
        assert_eq!(keys.iter().map(|key| map.get(key).copied().unwrap()).sum::<usize>(), 499_500);
        assert_eq!((map.insert(keys[3], 7), map.remove(&keys[4]), map.get(&keys[4])), (Some(3), Some(4), None));
        map.retain(|_, i| *i % 2 == 0);
        assert_eq!((map.len(), map.keys().count(), map.values().filter(|&&i| i == 7).count()), (499, 499, 0));
        map.values_mut().for_each(|i| *i += 1);
        *map.entry(keys[3]).or_insert(0) += 5;
        assert_eq!((map.get(&keys[3]), map.get(&keys[2])), (Some(&5), Some(&3)));
        let taken = map.memory_bytes();
        map.clear();
        map.shrink_to_fit();
        assert!(map.is_empty() && map.memory_bytes() < taken / 10);
    }
}
