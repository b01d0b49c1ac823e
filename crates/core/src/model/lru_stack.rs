//! The LRU stack in bytes: how deep a key lies, exactly, with sizes, deletes and expiry, in O(log n).
//!
//! Source: Mattson et al. (1970) for the stack; Bennett and Kruskal (1975) for the tree over time slots; both as the
//! models' papers use them. Each access takes the next time slot, and a Fenwick tree adds up the bytes of the slots,
//! so the bytes at or above a key are one sum. When the slots run out, the live ones are moved together and
//! renumbered.
//!
//! Our own are the holes. They make deletes, expiry and changes of size exact for *every* cache size at once. Bytes
//! that leave the stack stay behind as a hole: free space in all caches that reach so deep. The next bytes to be
//! stored fill the topmost holes first. docs/models.md, section "Exact", says why this is exact and what it means
//! below the largest value. Cost: O(log n) per access, amortized; about 70 bytes per key.

use std::collections::BinaryHeap;

use super::key_map::KeyMap;
use crate::access::{Access, Op};
use crate::expiry::{ExpiryQueue, expires_us_after};
use crate::sampling::SampleRate;
use crate::units::KeyHash;

/// What an access met in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// A delete, which is no request: true where it found the key.
    Deleted(bool),
    /// The key wasn't there: a miss in every cache.
    Cold,
    /// It was there.
    At {
        /// The least capacity, in bytes, of a cache that holds the key: all bytes above it, holes included, and its
        /// own.
        depth_bytes: u64,
        /// Its own bytes.
        own_bytes: u64,
    },
}

/// The stack. See the file's opening.
#[derive(Clone, Debug, Default)]
pub(super) struct LruStack {
    entries: KeyMap<Entry>,
    slots: Vec<Slot>,
    /// Bytes of the slots, as a Fenwick tree of `tree.len() - 1` slots, from 1.
    tree: Vec<u64>,
    total_bytes: u64,
    /// Slots that are holes, the newest (topmost) first.
    holes: BinaryHeap<u32>,
    expiries: ExpiryQueue,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: u32,
    expires_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: KeyHash,
    size_bytes: u32,
    content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    Value,
    Hole,
}

/// Slots of the smallest tree; it grows to twice what is live. Few in tests, so that they are moved often.
const SLOTS_MIN: usize = if cfg!(test) { 8 } else { 1024 };

impl LruStack {
    /// Takes one access of `size_bytes` (which a caller that counts objects sets to 1).
    pub fn access(&mut self, access: &Access, size_bytes: u32) -> Depth {
        self.expire(access.time_us);
        let entry = self.entries.get(&access.key).copied();
        let depth = entry.map_or(Depth::Cold, |entry| self.depth_of(entry.slot));
        if access.op == Op::Delete {
            if let Some(entry) = entry {
                self.entries.remove(&access.key);
                self.leave_hole(entry.slot);
            }
            return Depth::Deleted(entry.is_some());
        }
        self.replace(entry.map(|entry| entry.slot), size_bytes);
        let expires_us = expires_us_after(access, entry.map(|entry| entry.expires_us));
        if entry.is_none_or(|entry| entry.expires_us != expires_us) {
            self.expiries.push(access.key, expires_us);
        }
        let slot = self.push_slot(access.key, size_bytes);
        self.entries.insert(access.key, Entry { slot, expires_us });
        depth
    }

    /// Takes a key out as if it had never been seen: no hole.
    pub fn forget(&mut self, key: KeyHash) {
        if let Some(entry) = self.entries.remove(&key) {
            self.shrink_slot(entry.slot, u32::MAX);
        }
    }

    /// Takes all keys out that a sample of the share `rate` doesn't take.
    pub fn keep(&mut self, rate: SampleRate) {
        let out: Vec<KeyHash> = self.entries.keys().copied().filter(|&key| !rate.takes(key)).collect();
        out.into_iter().for_each(|key| self.forget(key));
    }

    /// Keys in the stack.
    pub fn n_keys(&self) -> usize {
        self.entries.len()
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes()
            + self.slots.capacity() * size_of::<Slot>()
            + self.tree.capacity() * size_of::<u64>()
            + self.holes.capacity() * size_of::<u32>()
            + self.expiries.memory_bytes()
    }

    fn expire(&mut self, now_us: u64) {
        while let Some((key, expires_us)) = self.expiries.pop_expired(now_us) {
            let entry = self.entries.get(&key).copied();
            if let Some(entry) = entry.filter(|entry| entry.expires_us == expires_us) {
                self.entries.remove(&key);
                self.leave_hole(entry.slot);
            }
        }
    }

    /// Makes room for a value of `size_bytes` on top: its old place becomes a hole, then the topmost holes are filled.
    fn replace(&mut self, old_slot: Option<u32>, size_bytes: u32) {
        if let Some(slot) = old_slot {
            if self.holes.is_empty() && self.slots[slot as usize].size_bytes <= size_bytes {
                self.shrink_slot(slot, u32::MAX);
                return;
            }
            self.leave_hole(slot);
        }
        let mut wanted_bytes = size_bytes;
        while wanted_bytes > 0 {
            let Some(hole) = self.holes.peek().copied() else { break };
            wanted_bytes -= self.shrink_slot(hole, wanted_bytes);
            if self.slots[hole as usize].content == Content::Nothing {
                self.holes.pop();
            }
        }
    }

    fn leave_hole(&mut self, slot: u32) {
        self.slots[slot as usize].content = Content::Hole;
        self.holes.push(slot);
    }

    /// Takes up to `bytes` off a slot and says how many; a slot without bytes is nothing.
    fn shrink_slot(&mut self, slot: u32, bytes: u32) -> u32 {
        let of = &mut self.slots[slot as usize];
        let taken = of.size_bytes.min(bytes);
        of.size_bytes -= taken;
        if of.size_bytes == 0 {
            of.content = Content::Nothing;
        }
        self.total_bytes -= u64::from(taken);
        let mut i = slot as usize + 1;
        while i < self.tree.len() {
            self.tree[i] -= u64::from(taken);
            i += i & i.wrapping_neg();
        }
        taken
    }

    fn push_slot(&mut self, key: KeyHash, size_bytes: u32) -> u32 {
        if self.slots.len() + 1 >= self.tree.len() {
            self.compact();
        }
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { key, size_bytes, content: Content::Value });
        self.total_bytes += u64::from(size_bytes);
        let mut i = slot as usize + 1;
        while i < self.tree.len() {
            self.tree[i] += u64::from(size_bytes);
            i += i & i.wrapping_neg();
        }
        slot
    }

    /// Bytes of `slot` and of all newer ones, and its own.
    fn depth_of(&self, slot: u32) -> Depth {
        let own_bytes = u64::from(self.slots[slot as usize].size_bytes);
        let mut older_bytes = 0;
        let mut i = slot as usize;
        while i > 0 {
            older_bytes += self.tree[i];
            i &= i - 1;
        }
        Depth::At { depth_bytes: self.total_bytes - older_bytes, own_bytes }
    }

    /// Moves the live slots together and builds the tree anew, with room for as many again. Holes under the oldest
    /// value are dropped: nothing is left below them that they could keep from moving.
    fn compact(&mut self) {
        let oldest = self.slots.iter().position(|slot| slot.content == Content::Value).unwrap_or(self.slots.len());
        self.total_bytes -= self.slots[..oldest].iter().map(|slot| u64::from(slot.size_bytes)).sum::<u64>();
        self.slots.drain(..oldest);
        self.slots.retain(|slot| slot.content != Content::Nothing);
        self.holes.clear();
        self.tree.clear();
        self.tree.resize((self.slots.len() * 2).max(SLOTS_MIN) + 1, 0);
        for (i, slot) in self.slots.iter().enumerate() {
            match slot.content {
                Content::Hole => self.holes.push(i as u32),
                _ => self.entries.get_mut(&slot.key).expect("a value's key is known").slot = i as u32,
            }
            self.tree[i + 1] = u64::from(slot.size_bytes);
        }
        for i in 1..self.tree.len() {
            let above = i + (i & i.wrapping_neg());
            if above < self.tree.len() {
                self.tree[above] += self.tree[i];
            }
        }
    }
}
