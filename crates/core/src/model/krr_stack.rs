//! The stack behind KRR: an array of keys that is updated at random, with the bytes above any position.
//!
//! Source: see `krr.rs`. Positions count from 1, the top, as in the paper's formulas. An entry is found by its id
//! through `place_of`; moving it writes its new place there. A removed entry stays as a hole of its size, and the
//! next entry that comes to the top from below the topmost hole fills it: only what lies above that hole moves, as in
//! a cache with free space.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random::Random;

/// The base of the positions up to which sizes are added up. Closer positions cost time and gain nothing that shows.
const SIZE_SUM_BASE: f64 = 1.1;

/// The id of a hole.
const HOLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Item {
    id: u32,
    size_bytes: u32,
}

/// The stack. See the file's opening.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    items: Vec<Item>,
    /// Position by id; of no meaning for free ids.
    place_of: Vec<u32>,
    free_ids: Vec<u32>,
    /// Positions of holes, topmost first. An entry whose position no longer holds a hole is stale.
    holes: BinaryHeap<Reverse<u32>>,
    sums: SizeSums,
}

impl Stack {
    /// Bytes down to the end of entry `id`, estimated between the positions whose sums are known, and its own bytes.
    pub fn depth(&self, id: u32) -> (u64, u64) {
        let place = self.place_of[id as usize];
        (self.sums.up_to(place, self.items.len()), u64::from(self.items[place as usize - 1].size_bytes))
    }

    /// Brings a new entry to the top and gives its id.
    pub fn insert(&mut self, size_bytes: u32, shrink: &ShrinkTable, random: &mut Random) -> u32 {
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.place_of.push(0);
            self.place_of.len() as u32 - 1
        });
        let item = Item { id, size_bytes };
        let open = match self.take_hole_above(u32::MAX) {
            Some((hole, hole_bytes)) => {
                self.sums.add(hole, None, i64::from(size_bytes) - i64::from(hole_bytes));
                hole
            }
            None => {
                self.items.push(item);
                let end = self.items.len() as u32;
                self.sums.cover(end);
                self.sums.add(end, None, i64::from(size_bytes));
                end
            }
        };
        self.bring_to_top(item, open, shrink, random);
        id
    }

    /// Brings entry `id` to the top, with a new size.
    pub fn touch(&mut self, id: u32, size_bytes: u32, shrink: &ShrinkTable, random: &mut Random) {
        let place = self.place_of[id as usize];
        let old_bytes = std::mem::replace(&mut self.items[place as usize - 1].size_bytes, size_bytes);
        self.sums.add(place, None, i64::from(size_bytes) - i64::from(old_bytes));
        let item = Item { id, size_bytes };
        match self.take_hole_above(place) {
            None => self.bring_to_top(item, place, shrink, random),
            Some((hole, hole_bytes)) => {
                // Caches that reach down to the old place keep their free space: it moves there.
                self.sums.add(hole, Some(place), i64::from(size_bytes) - i64::from(hole_bytes));
                self.bring_to_top(item, hole, shrink, random);
                self.items[place as usize - 1] = Item { id: HOLE, size_bytes: hole_bytes };
                self.holes.push(Reverse(place));
                self.drop_holes_at_the_end();
            }
        }
    }

    /// Takes entry `id` out; its bytes stay as a hole.
    pub fn remove(&mut self, id: u32) {
        let place = self.place_of[id as usize];
        self.free_ids.push(id);
        self.items[place as usize - 1].id = HOLE;
        self.holes.push(Reverse(place));
        self.drop_holes_at_the_end();
    }

    /// Keeps the entries `ids` and the share `share` of holes, in their order.
    pub fn keep_only(&mut self, ids: &[u32], share: f64, random: &mut Random) {
        let mut is_kept = vec![false; self.place_of.len()];
        ids.iter().for_each(|&id| is_kept[id as usize] = true);
        self.free_ids = (0..is_kept.len() as u32).filter(|&id| !is_kept[id as usize]).collect();
        self.items.retain(|item| if item.id == HOLE { random.unit() < share } else { is_kept[item.id as usize] });
        self.holes.clear();
        self.sums = SizeSums::default();
        for (i, item) in self.items.iter().enumerate() {
            let place = i as u32 + 1;
            if item.id == HOLE {
                self.holes.push(Reverse(place));
            } else {
                self.place_of[item.id as usize] = place;
            }
            self.sums.cover(place);
            self.sums.add(place, None, i64::from(item.size_bytes));
        }
        self.drop_holes_at_the_end();
    }

    /// Bytes of all entries and holes.
    pub fn bytes(&self) -> u64 {
        self.items.len().checked_sub(1).map_or(0, |last| self.sums.up_to(last as u32 + 1, self.items.len()))
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.items.capacity() * size_of::<Item>()
            + (self.place_of.capacity() + self.free_ids.capacity() + self.holes.capacity()) * size_of::<u32>()
            + self.sums.memory_bytes()
    }

    /// The update: from the open place upwards, each entry at a drawn position moves into the place left open below it.
    fn bring_to_top(&mut self, item: Item, open: u32, shrink: &ShrinkTable, random: &mut Random) {
        let mut open = open;
        let mut sum = self.sums.first_from(open);
        while open > 1 {
            let from = shrink.draw_below(open, random);
            let moved = self.items[from as usize - 1];
            self.sums.add_down_to(&mut sum, from, i64::from(item.size_bytes) - i64::from(moved.size_bytes));
            self.items[open as usize - 1] = moved;
            self.place_of[moved.id as usize] = open;
            open = from;
        }
        self.items[0] = item;
        self.place_of[item.id as usize] = 1;
    }

    /// Takes the topmost hole, where it lies above `place`: its position and its bytes.
    fn take_hole_above(&mut self, place: u32) -> Option<(u32, u32)> {
        while let Some(&Reverse(hole)) = self.holes.peek() {
            match self.items.get(hole as usize - 1) {
                Some(item) if item.id == HOLE && hole < place => {
                    self.holes.pop();
                    return Some((hole, item.size_bytes));
                }
                Some(item) if item.id == HOLE => return None,
                _ => self.holes.pop(),
            };
        }
        None
    }

    fn drop_holes_at_the_end(&mut self) {
        while let Some(item) = self.items.pop_if(|item| item.id == HOLE) {
            self.sums.add(self.items.len() as u32 + 1, None, -i64::from(item.size_bytes));
        }
    }
}

/// The bytes of the first b, b^2, b^3 … entries: what Wang's dissertation (2024) sec. 2.3.1 calls `sizeArray`.
#[derive(Clone, Debug, Default)]
struct SizeSums {
    /// Positions, strictly increasing from 1; the last is at or beyond the end of the stack.
    places: Vec<u32>,
    /// Bytes of the entries down to that position, or to the end of the stack.
    bytes: Vec<i64>,
}

impl SizeSums {
    /// Extends the positions until one is at or beyond `end`.
    fn cover(&mut self, end: u32) {
        while self.places.last().is_none_or(|&last| last < end) {
            let last = self.places.last().copied().unwrap_or(0);
            self.places.push(((f64::from(last) * SIZE_SUM_BASE) as u32).max(last + 1));
            self.bytes.push(self.bytes.last().copied().unwrap_or(0));
        }
    }

    /// Index of the first sum that holds position `place`.
    fn first_from(&self, place: u32) -> usize {
        self.places.partition_point(|&p| p < place)
    }

    /// Adds `delta` to the sums from position `from` on, up to but without `before`.
    fn add(&mut self, from: u32, before: Option<u32>, delta: i64) {
        if delta == 0 {
            return;
        }
        let end = before.map_or(self.places.len(), |before| self.first_from(before));
        let start = self.first_from(from);
        self.bytes[start..end].iter_mut().for_each(|sum| *sum += delta);
    }

    /// Adds `delta` to the sums before index `sum` whose position is `place` or beyond, and moves `sum` to the first
    /// of them.
    #[inline]
    fn add_down_to(&mut self, sum: &mut usize, place: u32, delta: i64) {
        while *sum > 0 && self.places[*sum - 1] >= place {
            *sum -= 1;
            self.bytes[*sum] += delta;
        }
    }

    /// Bytes of the entries down to `place` in a stack of `n_entries`, linear between the known sums.
    fn up_to(&self, place: u32, n_entries: usize) -> u64 {
        let above = self.first_from(place);
        let (end, end_bytes) = (self.places[above].min(n_entries as u32), self.bytes[above]);
        if above == 0 || end == place {
            return end_bytes as u64;
        }
        let (start, start_bytes) = (self.places[above - 1], self.bytes[above - 1]);
        let share = f64::from(place - start) / f64::from(end - start);
        (start_bytes as f64 + share * (end_bytes - start_bytes) as f64) as u64
    }

    fn memory_bytes(&self) -> usize {
        self.places.capacity() * (size_of::<u32>() + size_of::<i64>())
    }
}

/// Draws the next position to move: `ceil((p - 1) u^(1/K'))`. The power is read off a table, linear between 1024 even
/// steps of `u`; only the lowest step, where the power is steep, is computed. About 2 ns a number.
#[derive(Clone, Debug)]
pub(super) struct ShrinkTable {
    exponent: f64,
    /// u^(1/K') at u = i / 1024.
    powers: Vec<f64>,
}

const STEPS: usize = 1024;

impl ShrinkTable {
    /// A table for an effective sampling size K' of at least 1.
    pub fn new(k_effective: f64) -> Self {
        let exponent = 1.0 / k_effective;
        ShrinkTable { exponent, powers: (0..=STEPS).map(|i| (i as f64 / STEPS as f64).powf(exponent)).collect() }
    }

    /// A position in [1, `open` - 1], where `open` is at least 2.
    #[inline]
    fn draw_below(&self, open: u32, random: &mut Random) -> u32 {
        let u = random.unit();
        let scaled = u * STEPS as f64;
        let step = (scaled as usize).min(STEPS - 1);
        let power = if step == 0 {
            u.powf(self.exponent)
        } else {
            self.powers[step] + (scaled - step as f64) * (self.powers[step + 1] - self.powers[step])
        };
        // Rounding down and adding 1 is `ceil` but for whole numbers, which are never drawn; `ceil` itself is a call.
        ((f64::from(open - 1) * power) as u32 + 1).min(open - 1)
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.powers.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes down to each position, added up one by one.
    fn plain_sums(stack: &Stack) -> Vec<u64> {
        let add = |sum: &mut u64, item: &Item| {
            *sum += u64::from(item.size_bytes);
            Some(*sum)
        };
        stack.items.iter().scan(0, add).collect()
    }

    fn check(stack: &Stack) -> Result<(), TestCaseError> {
        let plain = plain_sums(stack);
        for (&place, &bytes) in stack.sums.places.iter().zip(&stack.sums.bytes) {
            let end = (place as usize).min(plain.len());
            prop_assert_eq!(bytes as u64, end.checked_sub(1).map_or(0, |i| plain[i]), "sum at {}", place);
        }
        for (i, item) in stack.items.iter().enumerate().filter(|(_, item)| item.id != HOLE) {
            prop_assert_eq!(stack.place_of[item.id as usize] as usize, i + 1);
        }
        let holes = stack.items.iter().filter(|item| item.id == HOLE).count();
        prop_assert!(stack.holes.len() >= holes);
        Ok(())
    }

    proptest! {
        #[test]
        fn sums_and_places_stay_true(steps in proptest::collection::vec((0..4_u8, 0..40_usize, 1..100_u32), 1..300)) {
            let (shrink, mut random) = (ShrinkTable::new(5.0), Random::new(1));
            let mut stack = Stack::default();
            let mut ids: Vec<u32> = Vec::new();
            for (step, which, size_bytes) in steps {
                match (step, ids.len()) {
                    (0, n) if n > 0 => stack.remove(ids.swap_remove(which % n)),
                    (1, n) if n > 0 => stack.touch(ids[which % n], size_bytes, &shrink, &mut random),
                    (2, n) if n > 20 => {
                        ids.truncate(n / 2);
                        stack.keep_only(&ids, 0.5, &mut random);
                    }
                    _ => ids.push(stack.insert(size_bytes, &shrink, &mut random)),
                }
                check(&stack)?;
            }
        }
    }

    #[test]
    fn what_is_touched_lies_on_top() {
        let (shrink, mut random) = (ShrinkTable::new(5.0), Random::new(1));
        let mut stack = Stack::default();
        let ids: Vec<u32> = (0..10).map(|_| stack.insert(7, &shrink, &mut random)).collect();
        stack.touch(ids[3], 9, &shrink, &mut random);
        assert_eq!(stack.depth(ids[3]), (9, 9));
    }

    /// P(position <= j) = (j / (p - 1))^K', the product of what the single positions are passed over with.
    #[test]
    fn positions_are_drawn_by_their_distribution() {
        let (shrink, mut random) = (ShrinkTable::new(3.0), Random::new(1));
        let n = 200_000;
        let mut counts = [0.0_f64; 11];
        (0..n).for_each(|_| counts[shrink.draw_below(11, &mut random) as usize] += 1.0);
        let mut below = 0.0;
        for (j, count) in counts.iter().enumerate().skip(1) {
            below += count / f64::from(n);
            let expected = (j as f64 / 10.0).powi(3);
            assert!((below - expected).abs() < 0.004, "{j}: {below}, not {expected}");
        }
    }
}
