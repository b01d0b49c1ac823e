//! The slots that this node of a cluster serves: a command that it answers with a redirect never looked for its key.
//!
//! Filters run before the server finds out that a key is another node's, and no `keymiss` follows, so such a read
//! would count as a hit. The slots are read from the server about once a second (`features/cluster/view.rs`); until
//! then what has just come is not counted and what has just gone is. A replica redirects all but its primary's stream
//! and the reads of clients that have said `READONLY`. Cost: the CRC of the key, on nodes of a cluster alone.

use tenure_core::slots::{SLOTS, slot_of};

use super::command_table::Effect;

/// Who sends a command to a replica of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sender {
    /// Its primary.
    Primary,
    /// A client that has said `READONLY`.
    Reader,
    /// Any other client: it is redirected.
    #[default]
    Other,
    /// The server doesn't tell (Redis 7.0); whether any client has said `READONLY`.
    Unknown { any_reads: bool },
}

impl Sender {
    /// True where a replica runs its commands of this effect, on keys of its primary's slots.
    pub fn is_served(self, effect: Effect) -> bool {
        match self {
            Sender::Primary => true,
            Sender::Reader => effect == Effect::Read,
            Sender::Other => false,
            // Most writes are the primary's.
            Sender::Unknown { any_reads } => any_reads || effect != Effect::Read,
        }
    }
}

/// A set of slots, 2 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots(Box<[u64; SLOTS as usize / 64]>);

impl Default for Slots {
    fn default() -> Self {
        Slots(Box::new([0; SLOTS as usize / 64]))
    }
}

impl Slots {
    /// Those of some ranges, each by its first and last.
    pub fn of_ranges(ranges: &[(u16, u16)]) -> Slots {
        let mut slots = Slots::default();
        ranges.iter().for_each(|&(first, last)| (first..=last).for_each(|slot| slots.add(slot)));
        slots
    }

    /// Adds a slot; one that can't be is ignored.
    pub fn add(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot) / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    /// Adds all of another set.
    pub fn add_all(&mut self, others: &Slots) {
        self.0.iter_mut().zip(others.0.iter()).for_each(|(word, more)| *word |= more);
    }

    /// True where the key is of one of them.
    #[inline]
    pub fn have(&self, key: &[u8]) -> bool {
        self.has(slot_of(key))
    }

    /// True where that slot is one of them.
    #[inline]
    pub fn has(&self, slot: u16) -> bool {
        self.0.get(usize::from(slot) / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added() {
        let mut slots = Slots::default();
        assert!(!slots.have(b"foo"));
        [12182, 0, 16_383, 16_384, u16::MAX].into_iter().for_each(|slot| slots.add(slot));
        assert!(slots.have(b"foo") && slots.have(b"") && !slots.have(b"123456789"));
    }
}
