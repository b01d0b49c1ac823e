//! The sampled accesses of one turn of the event loop, noted before their commands run and looked at after.
//!
//! It takes what the longest turn so far has brought: at most 512 accesses and 64 KiB of key bytes. What a turn brings
//! beyond that is not noted.

use tenure_core::units::{KeyHash, PartitionId};

use super::command_table::Effect;

const ENTRIES: usize = 512;
const KEY_BYTES: usize = 64 << 10;
/// What a command does is told while it runs, so its keys are among the last: how many may be looked at.
const LOOK_BACK: usize = 64;

/// Database, partition, and request number of the partition.
pub type Place = (u16, PartitionId, u64);

struct Entry {
    start: usize,
    len: usize,
    hash: KeyHash,
    place: Option<Place>,
    effect: Effect,
    at: u64,
    is_answer: bool,
    has_missed: bool,
}

/// One noted access.
pub struct Noted<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash, without the database.
    pub hash: KeyHash,
    /// Where it belongs; `None` where the database isn't known.
    pub place: Option<Place>,
    /// What the command does to it.
    pub effect: Effect,
    /// When, in ticks of Tenure's own clock.
    pub at: u64,
    /// It is the write that answers a miss.
    pub is_answer: bool,
    /// It is a read that found nothing, whatever is there by now.
    pub has_missed: bool,
}

/// The ring. See the file's opening.
#[derive(Default)]
pub struct Ring {
    entries: Vec<Entry>,
    keys: Vec<u8>,
}

impl Ring {
    /// Notes one access, at a tick, that may answer a miss. False where the turn's room is used up.
    pub fn push(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        place: Option<Place>,
        effect: Effect,
        (at, is_answer): (u64, bool),
    ) -> bool {
        if self.entries.len() >= ENTRIES || self.keys.len() + key.len() > KEY_BYTES {
            return false;
        }
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.entries.push(Entry { start, len: key.len(), hash, place, effect, at, is_answer, has_missed: false });
        true
    }

    /// Tells where the last access of `hash` with that effect belongs, if it was noted without.
    pub fn place(&mut self, hash: KeyHash, effect: Effect, place: Place) {
        let is_it = |e: &&mut Entry| e.hash == hash && e.effect == effect && e.place.is_none();
        if let Some(entry) = self.entries.iter_mut().rev().take(LOOK_BACK).find(is_it) {
            entry.place = Some(place);
        }
    }

    /// The last read of `hash` has found nothing.
    pub fn missed(&mut self, hash: KeyHash) {
        let is_it = |e: &&mut Entry| e.hash == hash && e.effect == Effect::Read && !e.has_missed;
        if let Some(entry) = self.entries.iter_mut().rev().take(LOOK_BACK).find(is_it) {
            entry.has_missed = true;
        }
    }

    /// True where nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All that was noted, in order.
    pub fn iter(&self) -> impl Iterator<Item = Noted<'_>> {
        self.entries.iter().map(|e| Noted {
            key: &self.keys[e.start..e.start + e.len],
            hash: e.hash,
            place: e.place,
            effect: e.effect,
            at: e.at,
            is_answer: e.is_answer,
            has_missed: e.has_missed,
        })
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn may bring a miss and its answer: by its end the key is there.
    #[test]
    fn a_read_that_found_nothing_is_told_from_those_that_found_what_came_after() {
        let (mut ring, hash) = (Ring::default(), KeyHash::of(b"k"));
        for effect in [Effect::Read, Effect::Replace, Effect::Read] {
            ring.push(b"k", hash, None, effect, (0, effect == Effect::Replace));
            ring.push(b"other", KeyHash::of(b"other"), None, Effect::Read, (0, false));
            if effect == Effect::Read && ring.iter().count() == 2 {
                ring.missed(hash);
            }
        }
        let told: Vec<_> = ring.iter().filter(|noted| noted.key == b"k").map(|noted| noted.has_missed).collect();
        assert_eq!(told, [true, false, false]);
        assert!(ring.iter().filter(|noted| noted.key == b"other").all(|noted| !noted.has_missed));
    }
}
