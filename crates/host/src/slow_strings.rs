//! Server strings whose bytes lie in slow memory, for values that are stored there at once; some made in advance.
//!
//! To choose the arena and go back takes jemalloc half a microsecond and more: it locks what the thread's cache and
//! both arenas share. Values of one length often come one after the other, so strings of the lengths asked for last
//! are made several at a time, and filled when they are needed. A length that isn't asked for any more gives its
//! strings back at the next tick. Cost: a copy, and choosing the arena once for up to 16 strings of a length that is
//! asked for often (docs/decisions/07-moving-values.md). At most 1 MiB is held.

use super::server::{Server, Text};
use super::tier_memory::SlowMemory;

/// Lengths of which strings are made in advance.
const SHELVES: usize = 8;
/// Longer strings are made one by one: what choosing the arena takes is little beside the copy.
const LENGTH_MAX: usize = 8 << 10;
/// Strings made at once, at the most.
const BATCH_MAX: usize = 16;

/// Strings of one length, ready to be filled.
struct Shelf {
    length: usize,
    ready: Vec<Text>,
    /// How many were made the last time.
    batch: usize,
    /// Taken since the last tick.
    taken: usize,
}

/// The strings. See the file's opening.
#[derive(Default)]
pub struct SlowStrings {
    shelves: Vec<Shelf>,
}

impl SlowStrings {
    /// A string with these bytes in `memory`; `None` where that can't be. It has to be longer than what passes
    /// through thread caches.
    pub fn take(&mut self, server: &Server, memory: &SlowMemory, bytes: &[u8]) -> Option<Text> {
        let string = if bytes.len() > LENGTH_MAX {
            memory.strings(server, bytes, 1).pop()
        } else {
            self.of_shelf(server, memory, bytes)
        }?;
        memory.took(string.as_ref().as_ptr(), bytes.len());
        Some(string)
    }

    fn of_shelf(&mut self, server: &Server, memory: &SlowMemory, bytes: &[u8]) -> Option<Text> {
        let shelf = self.shelf(bytes.len());
        shelf.taken += 1;
        if let Some(mut string) = shelf.ready.pop() {
            string.fill(bytes);
            return Some(string);
        }
        shelf.ready = memory.strings(server, bytes, shelf.batch);
        shelf.batch = (2 * shelf.batch).min(BATCH_MAX);
        shelf.ready.pop()
    }

    /// That of this length; a new one takes the place of that which was used least.
    fn shelf(&mut self, length: usize) -> &mut Shelf {
        let at = self.shelves.iter().position(|shelf| shelf.length == length).unwrap_or_else(|| {
            if self.shelves.len() == SHELVES {
                let least = (0..SHELVES).min_by_key(|&i| self.shelves[i].taken).unwrap_or(0);
                self.shelves.swap_remove(least);
            }
            self.shelves.push(Shelf { length, ready: Vec::new(), batch: 1, taken: 0 });
            self.shelves.len() - 1
        });
        &mut self.shelves[at]
    }

    /// Ten times a second: lengths that weren't asked for since are given up.
    pub fn tick(&mut self) {
        self.shelves.retain_mut(|shelf| std::mem::take(&mut shelf.taken) > 0);
    }

    /// The lengths of all that are ready, in bytes.
    pub fn ready(&self) -> impl Iterator<Item = usize> {
        self.shelves.iter().flat_map(|shelf| shelf.ready.iter().map(|_| shelf.length))
    }
}
