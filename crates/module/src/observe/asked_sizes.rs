//! What the server has said that collections and large strings take: the size cache of pRedis (Pan et al., SoCC'19,
//! sec. 5), here with 12 bytes an entry.
//!
//! Until there are twice or half as many elements, the size goes with their number. Some are asked for again each tick,
//! as many as have shown that to be wrong. A key has one slot. There are twice as many of them a tick later where keys
//! push each other out. Memory: nothing before the first, then 12 to 768 KiB, and no more than a 64th of the server's
//! limit, but for the least.

use tenure_core::units::KeyHash;

/// Slots at first, and at the most.
const SLOTS_MIN: usize = 1 << 10;
const SLOTS_MAX: usize = 1 << 16;
/// All slots together may take this share of the server's limit.
const LIMIT_SHARE: u64 = 64;
/// There are to be more slots where more than one in so many looks pushes another key out…
const PUSHED_OUT_SHARE: usize = 8;
/// … of so many looks in a tick, at the least.
const LOOKS_ENOUGH: usize = 256;
/// Remembered sizes that are asked for again per tick, where some of the last were wrong; else half as many each time,
/// down to one.
const REFRESHED_MAX: u32 = 16;
/// A remembered size is wrong from this share of itself on.
const WRONG_FROM: u32 = 32;

#[derive(Clone, Copy, Default)]
struct Remembered {
    fingerprint: u32,
    elements: u32,
    /// 0 = nothing is remembered.
    size_bytes: u32,
}

impl Remembered {
    /// What it takes with so many elements, each as large as before: within a factor of two that comes close. `None`
    /// beyond, and where nothing is remembered.
    fn expected_bytes(&self, elements: u32) -> Option<u32> {
        let is_near = self.elements / 2 <= elements && elements <= self.elements.saturating_mul(2);
        (self.size_bytes > 0 && is_near).then(|| {
            let bytes = u64::from(self.size_bytes) * u64::from(elements) / u64::from(self.elements.max(1));
            bytes.clamp(1, u64::from(u32::MAX)) as u32
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
    pub fn of(&mut self, hash: KeyHash, elements: u32, ask: impl FnOnce() -> u32) -> u32 {
        if self.slots.is_empty() {
            self.slots = vec![Remembered::default(); SLOTS_MIN];
        }
        self.looks += 1;
        let fingerprint = (hash.0 >> 32) as u32;
        let slot = hash.0 as usize & (self.slots.len() - 1);
        let held = self.slots[slot];
        let is_it = held.fingerprint == fingerprint;
        let expected = if is_it { held.expected_bytes(elements) } else { None };
        if let Some(expected) = expected.filter(|_| self.asks_left == 0) {
            return expected;
        }
        self.asks_left = self.asks_left.saturating_sub(u32::from(expected.is_some()));
        self.pushed_out += usize::from(!is_it && held.size_bytes > 0);
        let size_bytes = ask();
        self.was_wrong |= expected.is_some_and(|bytes| bytes.abs_diff(size_bytes) > size_bytes / WRONG_FROM);
        self.slots[slot] = Remembered { fingerprint, elements, size_bytes };
        size_bytes
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
        let remembered = Remembered { fingerprint: 1, elements: 100, size_bytes: 1000 };
        let expected =
            [(49, None), (50, Some(500)), (100, Some(1000)), (101, Some(1010)), (200, Some(2000)), (201, None)];
        for (elements, bytes) in expected {
            assert_eq!(remembered.expected_bytes(elements), bytes, "{elements}");
        }
        assert_eq!(Remembered::default().expected_bytes(0), None);
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
        let mut asked = 0;
        for _ in 0..20 {
            asked = 0;
            for key in 0..keys {
                let bytes = 100 + key as u32;
                let ask = || {
                    asked += 1;
                    bytes
                };
                assert_eq!(sizes.of(KeyHash::of_number(key), 10, ask), bytes);
            }
            sizes.tick(limit_bytes);
            sizes.asks_left = 0;
        }
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
        assert_eq!(rounds(10_000, 8 << 20).1, 8 << 10, "96 KiB of 128");
        assert_eq!(rounds(10_000, 1 << 10).1, SLOTS_MIN);
    }
}
