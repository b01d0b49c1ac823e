//! Moves one value from tier to tier: the same bytes at another address, and nothing else about the key changes.
//!
//! The value's memory is allocated anew by making the string longer and cutting it to what it was, each of which the
//! server does by reallocating; what is allocated while the slow arena is chosen lies there. So the key keeps its
//! object. Time to live, idle time or frequency and encoding stay. Nobody is told, nothing is replicated, and a
//! `WATCH` doesn't fail. (`StringSet` with a string made under the arena was tried first: it deletes the key, raises
//! `new`, loses the time to live, and copies the value on Valkey 8.1.)
//!
//! Small allocations are moved by a reallocation; large ones may grow and shrink where they are, so their bytes are
//! put aside, the string is cut to one byte, and grown where it is to be. Which way it was is told by looking where
//! the value lies. Cost: two allocations and copies; large ones three. On the main thread; nothing sees the string in
//! between.

use crate::ffi::MainThread;
use crate::ffi::server::{Key, Kind};
use crate::ffi::tier_memory::SlowMemory;
use tenure_core::tiers::Tier;

/// From here on jemalloc may grow and shrink an allocation where it is (its largest small class is 14 KiB), in bytes.
const LARGE_BYTES: usize = 14_000;
/// Larger values stay where they are: one move would be a long turn, in bytes.
pub const MOVED_MAX_BYTES: usize = 1 << 20;
/// What the server adds to a string's bytes: a header and a zero.
const OVERHEAD_BYTES: usize = 6;
/// The same where its length takes more than 16 bits.
const OVERHEAD_LONG_BYTES: usize = 10;

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The value lies where it should, and takes so many bytes there.
    There(u64),
    /// It did already.
    Already,
    /// It isn't of a kind or size that moves.
    Unfit,
    /// It lies elsewhere all the same.
    Stray,
}

/// Bytes that the allocator takes for a string of `length` bytes: jemalloc's classes, four to a doubling.
pub fn allocated_bytes(length: usize) -> u64 {
    let wanted = length + if length < 1 << 16 { OVERHEAD_BYTES } else { OVERHEAD_LONG_BYTES };
    let step = (wanted.next_power_of_two() / 8).max(16);
    wanted.next_multiple_of(step) as u64
}

/// Moves values. See the file's opening.
pub struct Mover {
    memory: &'static SlowMemory,
    /// Shorter values would be mixed by thread caches, in bytes.
    length_min: usize,
    /// A large value's bytes while it is moved.
    aside: Vec<u8>,
}

impl Mover {
    /// Moves between ordinary memory and `memory`.
    pub fn new(memory: &'static SlowMemory, length_min: usize) -> Mover {
        Mover { memory, length_min, aside: Vec::new() }
    }

    /// Whether a value's kind and size let it move.
    pub fn may_move(&self, key: &Key) -> bool {
        key.kind() == Kind::String && self.is_of_size(key.length())
    }

    /// Whether a string of that length moves.
    pub fn is_of_size(&self, length: usize) -> bool {
        (self.length_min..=MOVED_MAX_BYTES).contains(&length)
    }

    /// In which tier a string lies; `None` where it isn't one that moves.
    pub fn tier_of(&self, key: &Key) -> Option<Tier> {
        if !self.may_move(key) {
            return None;
        }
        let bytes = key.bytes()?;
        Some(if self.memory.contains(bytes.as_ptr()) { Tier::Slow } else { Tier::Fast })
    }

    /// Moves a value; `key` has to be open for writing.
    pub fn move_to(&mut self, proof: &impl MainThread, key: &mut Key, tier: Tier) -> Moved {
        match self.tier_of(key) {
            None => return Moved::Unfit,
            Some(held) if held == tier => return Moved::Already,
            Some(_) => {}
        }
        let length = key.length();
        if length < LARGE_BYTES {
            self.reallocate(proof, key, tier, length);
        }
        if self.tier_of(key) != Some(tier) {
            self.copy(proof, key, tier);
        }
        assert_eq!(key.length(), length, "a moved value has its length");
        if self.tier_of(key) != Some(tier) {
            return Moved::Stray;
        }
        if let Some(bytes) = key.bytes().filter(|_| tier == Tier::Slow) {
            self.memory.took(bytes.as_ptr(), length);
        }
        Moved::There(allocated_bytes(length))
    }

    /// Longer by more than the allocator's rounding, in fast memory, and cut where it is to be.
    fn reallocate(&self, proof: &impl MainThread, key: &mut Key, tier: Tier, length: usize) {
        if key.set_length(length + length / 4 + 64) {
            self.within(proof, tier, || key.set_length(length));
            // Where the arena couldn't be chosen.
            if key.length() != length {
                key.set_length(length);
            }
        }
    }

    fn copy(&mut self, proof: &impl MainThread, key: &mut Key, tier: Tier) {
        self.aside.clear();
        match key.bytes() {
            Some(bytes) => self.aside.extend_from_slice(bytes),
            None => return,
        }
        let is_whole = key.set_length(1) && self.within(proof, tier, || fill(key, &self.aside)) == Some(true);
        if !is_whole {
            // Where the arena couldn't be chosen; the server doesn't refuse what it did before.
            assert!(fill(key, &self.aside), "a value is put back");
        }
        self.aside.clear();
        self.aside.shrink_to(LARGE_BYTES);
    }

    fn within<R>(&self, proof: &impl MainThread, tier: Tier, body: impl FnOnce() -> R) -> Option<R> {
        match tier {
            Tier::Slow => self.memory.within(proof, body),
            Tier::Fast => Some(body()),
        }
    }
}

/// Gives a short string these bytes, in an allocation of their size: cut by one byte, it gives back what growing took
/// beyond it.
fn fill(key: &mut Key, bytes: &[u8]) -> bool {
    key.set_length(bytes.len() + 1) && key.overwrite(bytes) && key.set_length(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// jemalloc's classes: 320 after 256; 1024, 1280; 2560 after 2048; 64 KiB and 80 KiB.
    #[test]
    fn sizes_are_rounded_as_jemalloc_does() {
        for (length, bytes) in [
            (256, 320),
            (314, 320),
            (1000, 1024),
            (1018, 1024),
            (1019, 1280),
            (2045, 2560),
            (65_530, 65_536),
            (65_536, 81_920),
        ] {
            assert_eq!(allocated_bytes(length), bytes, "{length}");
        }
    }
}
