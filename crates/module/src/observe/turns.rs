//! When a turn has to end that the server doesn't tell of: after so many keys, and near the limit after fewer that are
//! written, since they may grow.

use super::command_table::Effect;
use crate::ffi::module::Next;

/// A turn that isn't heard of ends after so many keys, so that the sample is looked at soon.
const KEYS: u32 = 64;
/// Near the limit one that is written counts as so many.
const KEYS_PER_WRITE: u32 = 8;

/// What the turn under way has brought.
#[derive(Debug)]
pub struct Turns {
    /// Keys, as they count.
    keys: u32,
    /// It ends after so many.
    end_at: u32,
    per_write: u32,
}

impl Default for Turns {
    /// Each turn is heard of.
    fn default() -> Turns {
        Turns { keys: 0, end_at: u32::MAX, per_write: 1 }
    }
}

impl Turns {
    /// Whether each turn is heard of from now on, and else whether memory may be short.
    pub fn expect(&mut self, are_heard: bool, may_be_short: bool) {
        self.end_at = if are_heard { u32::MAX } else { KEYS };
        self.per_write = if may_be_short { KEYS_PER_WRITE } else { 1 };
    }

    /// A command is about to use a key.
    #[inline]
    pub fn count(&mut self, effect: Effect) {
        self.keys = self.keys.saturating_add(if effect == Effect::Read { 1 } else { self.per_write });
    }

    /// What is to be done about a command that was seen.
    #[inline]
    pub fn next(&self) -> Next {
        if self.keys >= self.end_at { Next::TurnEnds } else { Next::Nothing }
    }

    /// The turn has ended.
    pub fn end(&mut self) {
        self.keys = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_after_some_reads_and_fewer_writes_where_memory_is_short() {
        let keys_of = |effect: Effect, may_be_short: bool| {
            let mut turns = Turns::default();
            turns.expect(false, may_be_short);
            (1..).find(|_| {
                turns.count(effect);
                turns.next() == Next::TurnEnds
            })
        };
        assert_eq!(keys_of(Effect::Read, true), Some(KEYS));
        assert_eq!(keys_of(Effect::Write, false), Some(KEYS));
        assert_eq!(keys_of(Effect::Write, true), Some(KEYS / KEYS_PER_WRITE));
        let mut heard = Turns::default();
        (0..10 * KEYS).for_each(|_| heard.count(Effect::Write));
        assert_eq!(heard.next(), Next::Nothing);
    }
}
