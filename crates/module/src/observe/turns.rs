//! When a turn has to end that the server doesn't tell of: after so many keys, and near the limit once what is written
//! may have taken a part of the room that is kept free.

use crate::ffi::module::Next;

/// A turn that isn't heard of ends after so many keys, so that the sample is looked at soon.
const KEYS: u32 = 64;
/// What a key takes beside its value, in bytes.
const KEY_BYTES: u64 = 100;

/// What the turn under way has brought.
#[derive(Debug)]
pub struct Turns {
    /// Keys.
    keys: u32,
    /// It ends after so many.
    end_at: u32,
    /// Bytes that were written.
    bytes: u64,
    /// It ends after so many.
    end_at_bytes: u64,
}

impl Default for Turns {
    /// Each turn is heard of.
    fn default() -> Turns {
        Turns { keys: 0, end_at: u32::MAX, bytes: 0, end_at_bytes: u64::MAX }
    }
}

impl Turns {
    /// Whether each turn is heard of from now on, and else how many bytes may be written until one has to end, where
    /// memory may be short.
    pub fn expect(&mut self, are_heard: bool, bytes_max: Option<u64>) {
        self.end_at = if are_heard { u32::MAX } else { KEYS };
        self.end_at_bytes = bytes_max.filter(|_| !are_heard).unwrap_or(u64::MAX);
    }

    /// So many bytes may be written now until one has to end, where it matters: there is more room, or less.
    pub fn fit(&mut self, bytes_max: u64) {
        if self.count_bytes() {
            self.end_at_bytes = bytes_max.min(u64::MAX - 1);
        }
    }

    /// A command is about to use a key.
    #[inline]
    pub fn count(&mut self) {
        self.keys = self.keys.saturating_add(1);
    }

    /// True where it matters how much is written.
    #[inline]
    pub fn count_bytes(&self) -> bool {
        self.end_at_bytes != u64::MAX
    }

    /// A key takes so many bytes more, at the most.
    #[inline]
    pub fn grow(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes + KEY_BYTES);
    }

    /// What is to be done about a command that was seen.
    #[inline]
    pub fn next(&self) -> Next {
        if self.keys >= self.end_at || self.bytes >= self.end_at_bytes { Next::TurnEnds } else { Next::Nothing }
    }

    /// The turn has ended.
    pub fn end(&mut self) {
        (self.keys, self.bytes) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_some_keys_and_sooner_where_what_is_written_takes_the_room() {
        let keys_of = |value_bytes: u64, bytes_max: Option<u64>| {
            let mut turns = Turns::default();
            turns.expect(false, bytes_max);
            (1..).find(|_| {
                turns.count();
                turns.grow(value_bytes);
                turns.next() == Next::TurnEnds
            })
        };
        assert_eq!(keys_of(1_000, None), Some(KEYS), "memory isn't short");
        assert_eq!(keys_of(0, Some(100_000)), Some(KEYS));
        assert_eq!(keys_of(900, Some(10_000)), Some(10));
        assert_eq!(keys_of(100_000, Some(10_000)), Some(1));
    }

    #[test]
    fn where_there_is_no_room_left_each_write_ends_a_turn() {
        let mut turns = Turns::default();
        turns.fit(0);
        turns.grow(1);
        assert_eq!(turns.next(), Next::Nothing, "memory isn't short, or each turn is heard");
        turns.end();
        turns.expect(false, Some(100_000));
        turns.fit(0);
        turns.grow(1);
        assert_eq!(turns.next(), Next::TurnEnds);
    }

    #[test]
    fn none_has_to_be_asked_for_where_each_is_heard() {
        let mut turns = Turns::default();
        turns.expect(true, Some(1_000));
        (0..10 * KEYS).for_each(|_| turns.count());
        turns.grow(1_000_000);
        assert!(turns.next() == Next::Nothing && !turns.count_bytes());
    }

    #[test]
    fn the_next_turn_begins_anew() {
        let mut turns = Turns::default();
        turns.expect(false, Some(1_000));
        (0..KEYS).for_each(|_| turns.count());
        turns.grow(1_000);
        assert_eq!(turns.next(), Next::TurnEnds);
        turns.end();
        assert_eq!(turns.next(), Next::Nothing);
    }
}
