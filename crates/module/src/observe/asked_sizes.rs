//! What the server has said that collections and large strings take: the size cache of pRedis (Pan et al., SoCC'19,
//! sec. 5), here with 4 bytes an entry.
//!
//! Within an octave of elements the size goes with their number. Some are asked for again each tick, as many as have
//! shown that to be wrong. A key has one slot. There are twice as many of them a tick later where keys push each other
//! out. Memory: nothing before the first, then 4 KiB to 1 MiB, and no more than a 1024th of the server's limit, but for
//! the least.

use tenure_core::units::KeyHash;

/// Slots at first, and at the most.
const SLOTS_MIN: usize = 1 << 10;
const SLOTS_MAX: usize = 1 << 18;
/// All slots together may take this share of the server's limit.
const LIMIT_SHARE: u64 = 1024;
/// There are to be more slots where more than one in so many looks pushes another key out…
const PUSHED_OUT_SHARE: usize = 8;
/// … of so many looks in a tick, at the least.
const LOOKS_ENOUGH: usize = 256;
/// Remembered sizes that are asked for again per tick, where some of the last were wrong; else half as many each time,
/// down to one.
const REFRESHED_MAX: u32 = 16;
/// A remembered size is wrong from this share of itself on.
const WRONG_FROM: u32 = 32;

/// A size in four bytes: the key's fingerprint, the octave of its elements, and bytes for each of them as a float with
/// an exponent of five bits and a mantissa of eleven. All zero: nothing is remembered.
#[derive(Clone, Copy, Default, PartialEq)]
struct Remembered(u32);

impl Remembered {
    const OCTAVE_BITS: u32 = 5;
    /// Of the bits of an `f32` from 1 up to 2^32 those from here on are kept.
    const FLOAT_SHIFT: u32 = f32::MANTISSA_DIGITS - 1 - 11;
    const ONE: u32 = 1.0_f32.to_bits() >> Self::FLOAT_SHIFT;

    fn new(hash: KeyHash, elements: u32, size_bytes: u32) -> Self {
        let each = (size_bytes as f32 / elements.max(1) as f32).max(1.0);
        let rounded = (each.to_bits() + (1 << (Self::FLOAT_SHIFT - 1))) >> Self::FLOAT_SHIFT;
        Remembered(Self::of_key(hash, elements) | (rounded - Self::ONE).min(u16::MAX.into()))
    }

    /// What it has in the upper half if it is of that key with so many elements, within their octave.
    fn of_key(hash: KeyHash, elements: u32) -> u32 {
        let fingerprint = (hash.0 >> 32) as u32 >> (16 + Self::OCTAVE_BITS);
        (fingerprint << Self::OCTAVE_BITS | elements.max(1).ilog2()) << 16
    }

    fn is_some(self) -> bool {
        self != Remembered::default()
    }

    fn is_of(self, hash: KeyHash) -> bool {
        self.is_some() && (self.0 ^ Self::of_key(hash, 1)) >> (16 + Self::OCTAVE_BITS) == 0
    }

    /// What it takes with so many elements, each as large as before: within their octave that comes close. `None`
    /// beyond, and of another key.
    fn expected_bytes(self, hash: KeyHash, elements: u32) -> Option<u32> {
        let is_it = self.is_some() && self.0 >> 16 == Self::of_key(hash, elements) >> 16;
        is_it.then(|| {
            let each = f32::from_bits((Self::ONE + (self.0 & u32::from(u16::MAX))) << Self::FLOAT_SHIFT);
            (f64::from(each) * f64::from(elements.max(1))).round() as u32
        })
    }
}

/// The sizes. See the file's opening.
pub struct AskedSizes {
    slots: Vec<Remembered>,
    /// Looks since there were last enough of them at a tick, and how many of them pushed another key out.
    looks: usize,
    pushed_out: usize,
    /// Remembered sizes that may be asked for again until the next tick.
    asks_left: u32,
    /// How many those were at the last.
    refreshed: u32,
    /// One of them was wrong.
    was_wrong: bool,
}

impl AskedSizes {
    /// Nothing is remembered.
    pub fn new() -> Self {
        AskedSizes {
            slots: Vec::new(),
            looks: 0,
            pushed_out: 0,
            asks_left: 0,
            refreshed: REFRESHED_MAX,
            was_wrong: true,
        }
    }

    /// What the key takes, in bytes, that has so many elements or bytes now: as remembered, or as `ask` says.
    pub fn of(&mut self, hash: KeyHash, elements: u32, ask: impl FnOnce() -> Option<u32>) -> Option<u32> {
        if self.slots.is_empty() {
            self.slots = vec![Remembered::default(); SLOTS_MIN];
        }
        let slot = hash.0 as usize & (self.slots.len() - 1);
        let held = self.slots[slot];
        let expected = held.expected_bytes(hash, elements);
        if expected.is_some() && self.asks_left == 0 {
            self.looks += 1;
            return expected;
        }
        self.asks_left = self.asks_left.saturating_sub(u32::from(expected.is_some()));
        let size_bytes = ask()?;
        self.looks += 1;
        self.pushed_out += usize::from(held.is_some() && !held.is_of(hash));
        self.was_wrong |= expected.is_some_and(|bytes| bytes.abs_diff(size_bytes) > size_bytes / WRONG_FROM);
        self.slots[slot] = Remembered::new(hash, elements, size_bytes);
        Some(size_bytes)
    }

    /// What is remembered of the key, in bytes.
    pub fn remembered(&self, hash: KeyHash, elements: u32) -> Option<u32> {
        let slot = hash.0 as usize & self.slots.len().checked_sub(1)?;
        self.slots[slot].expected_bytes(hash, elements)
    }

    /// Ten times a second: the next that are met are asked about though they are remembered, since elements may have
    /// grown. There are more slots where that was worth it, within what a server with that limit (0 = none) may give.
    pub fn tick(&mut self, limit_bytes: u64) {
        let fewer = (self.refreshed / 2).max(1);
        self.refreshed = if std::mem::take(&mut self.was_wrong) { REFRESHED_MAX } else { fewer };
        self.asks_left = self.refreshed;
        let bytes_max = if limit_bytes == 0 { u64::MAX } else { limit_bytes / LIMIT_SHARE };
        let slots = 2 * self.slots.len();
        let may_grow = slots <= SLOTS_MAX && (slots * size_of::<Remembered>()) as u64 <= bytes_max;
        if self.looks >= LOOKS_ENOUGH {
            if may_grow && self.pushed_out * PUSHED_OUT_SHARE > self.looks {
                // A key's new slot is its old one, or the one as far behind it as there were slots.
                self.slots.extend_from_within(..);
            }
            (self.looks, self.pushed_out) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_that_has_grown_is_as_large_as_its_elements() {
        let (key, other) = (KeyHash(0xab << 56), KeyHash(0xac << 56));
        let remembered = Remembered::new(key, 100, 1000);
        let expected =
            [(63, None), (64, Some(640)), (100, Some(1000)), (101, Some(1010)), (127, Some(1270)), (128, None)];
        for (elements, bytes) in expected {
            assert_eq!(remembered.expected_bytes(key, elements), bytes, "{elements}");
        }
        assert_eq!(remembered.expected_bytes(other, 100), None);
        assert!(remembered.is_of(key) && !remembered.is_of(other));
        assert_eq!(Remembered::default().expected_bytes(KeyHash(0), 0), None);
    }

    /// All sizes are told within a 2048th, and the largest and the least are.
    #[test]
    fn four_bytes_tell_a_size_well_enough() {
        let key = KeyHash(u64::MAX);
        for (elements, size_bytes) in
            [(0, 57), (1, u32::MAX), (1, 1), (u32::MAX, u32::MAX), (7, 1_234_567), (300, 4_001)]
        {
            let told = Remembered::new(key, elements, size_bytes).expected_bytes(key, elements).unwrap();
            assert!(told.abs_diff(size_bytes) <= size_bytes / 2048, "{told} for {size_bytes}");
        }
    }

    #[test]
    fn sizes_are_asked_for_again_as_often_as_they_are_wrong() {
        let mut sizes = AskedSizes::new();
        let mut asked = |is_wrong: bool| {
            sizes.was_wrong |= is_wrong;
            sizes.tick(0);
            sizes.asks_left
        };
        assert_eq!([asked(false), asked(false), asked(false)], [REFRESHED_MAX, REFRESHED_MAX / 2, REFRESHED_MAX / 4]);
        (0..5).for_each(|_| _ = asked(false));
        assert_eq!([asked(false), asked(true), asked(false)], [1, REFRESHED_MAX, REFRESHED_MAX / 2]);
    }

    /// So many keys are looked at again and again, a tick after each round: how many were asked about in the last
    /// round, and slots.
    fn rounds(keys: u64, limit_bytes: u64) -> (usize, usize) {
        let mut sizes = AskedSizes::new();
        let (mut asked, mut wrong) = (0, 0);
        for _ in 0..20 {
            asked = 0;
            for key in 0..keys {
                let bytes = 100 + key as u32;
                let ask = || {
                    asked += 1;
                    Some(bytes)
                };
                let told = sizes.of(KeyHash::of_number(key), 10, ask).unwrap();
                wrong += u64::from(told.abs_diff(bytes) > bytes / 2048 + 1);
            }
            sizes.tick(limit_bytes);
            sizes.asks_left = 0;
        }
        assert!(wrong < keys * 20 / 1000 + 1, "{wrong} have another's");
        (asked, sizes.slots.len())
    }

    /// Few are remembered in little; of many most are, unless the server's limit is low.
    #[test]
    fn as_many_are_remembered_as_there_are() {
        assert_eq!(AskedSizes::new().slots.capacity(), 0);
        assert_eq!(rounds(100, 0).1, SLOTS_MIN);
        let (asked, slots) = rounds(10_000, 0);
        assert!(asked < 10_000 / 4 && slots > 10_000 && slots <= SLOTS_MAX, "{asked} with {slots} slots");
        assert_eq!(rounds(1_000_000, 0).1, SLOTS_MAX);
        assert_eq!(rounds(10_000, 32 << 20).1, 8 << 10, "32 KiB");
        assert_eq!(rounds(10_000, 1 << 10).1, SLOTS_MIN);
    }
}
