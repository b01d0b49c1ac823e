//! A hash map by [`KeyHash`] that doesn't hash a second time.
//!
//! A sampled key's hash lies below the sampling threshold, so its upper bits are all alike, and those are what the
//! standard map tags its entries with. One multiplication (Fibonacci hashing) spreads the lower bits over all of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::units::KeyHash;

/// A map from sampled keys to `V`.
pub type KeyMap<V> = HashMap<KeyHash, V, BuildHasherDefault<SpreadHasher>>;

/// Memory of a map, in bytes: the standard map fills at most 7 of 8 places and keeps a byte of control for each.
pub fn memory_bytes<V>(map: &KeyMap<V>) -> usize {
    map.capacity() * 8 / 7 * (size_of::<(KeyHash, V)>() + 1)
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
        let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
