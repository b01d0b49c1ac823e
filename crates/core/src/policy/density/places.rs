//! Which of some numbered places a miniature cache has keys at: a bit for each, by which a walk comes.
//!
//! A list would be drawn from at the first try. But it takes sixteen times the memory, and each key would have to know
//! where it stands in the list of each cache. To take the next that is there, from a place drawn by chance, would meet
//! those after a gap too often: a cache whose victims are met so misses more.

use crate::policy::walk::Walk;

const BITS: usize = u64::BITS as usize;
/// So many places are passed before the next is taken that is there.
const PATIENCE: usize = 64;

/// The places. See the file's opening.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    words: Vec<u64>,
    n: usize,
}

impl Places {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.n
    }

    /// True where `place` is one of them.
    #[inline]
    pub fn has(&self, place: u16) -> bool {
        let place = usize::from(place);
        self.words.get(place / BITS).is_some_and(|word| word >> (place % BITS) & 1 == 1)
    }

    /// Adds one that isn't there.
    pub fn add(&mut self, place: u16) {
        debug_assert!(!self.has(place));
        let place = usize::from(place);
        if self.words.len() <= place / BITS {
            self.words.resize(place / BITS + 1, 0);
        }
        self.words[place / BITS] |= 1 << (place % BITS);
        self.n += 1;
    }

    /// Takes one away that is there.
    pub fn remove(&mut self, place: u16) {
        debug_assert!(self.has(place));
        let place = usize::from(place);
        self.words[place / BITS] &= !(1 << (place % BITS));
        self.n -= 1;
    }

    /// The next of them, as `walk` comes by; `None` where there is none. Cost: a look at a bit for each place that it
    /// passes, up to 64. Where hardly any is there, a look at each word then.
    #[inline]
    pub fn next(&self, walk: &mut Walk) -> Option<u16> {
        if self.n == 0 {
            return None;
        }
        let mut passed = || walk.next(self.words.len() * BITS);
        let there = (0..PATIENCE).map(|_| passed() as u16).find(|&place| self.has(place));
        there.or_else(|| self.next_from(passed() / BITS))
    }

    /// The first of a word, or of those after it.
    fn next_from(&self, word: usize) -> Option<u16> {
        let words = (word..self.words.len()).chain(0..word);
        let (at, word) = words.map(|at| (at, self.words[at])).find(|&(_, word)| word != 0)?;
        Some((at * BITS) as u16 + word.trailing_zeros() as u16)
    }

    /// The same where what was at `old` places is at the first ones now, in this order.
    pub fn renumbered(&self, old: &[u16]) -> Places {
        let there = old.iter().enumerate().filter(|&(_, &place)| self.has(place));
        there.map(|(place, _)| place as u16).collect()
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

impl FromIterator<u16> for Places {
    fn from_iter<I: IntoIterator<Item = u16>>(places: I) -> Places {
        let mut all = Places::default();
        places.into_iter().for_each(|place| all.add(place));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is there is met, each of it once a round; nothing else is, and of nothing nothing.
    #[test]
    fn each_is_met_once_and_nothing_else() {
        let mut walk = Walk::new(7);
        let mut places: Places = (0..400).map(|i| 3 * i).collect();
        (0..400).step_by(2).for_each(|i| places.remove(3 * i));
        assert_eq!((places.len(), places.has(3), places.has(6), places.has(u16::MAX)), (200, true, false, false));
        let mut met = [0_u32; 1200];
        (0..400).for_each(|_| met[usize::from(places.next(&mut walk).unwrap())] += 1);
        assert!(met.iter().enumerate().all(|(place, &n)| n == 2 * u32::from(places.has(place as u16))), "{met:?}");
        assert_eq!(Places::default().next(&mut walk), None);
    }

    /// The only one of many places is found, wherever the search begins.
    #[test]
    fn the_only_one_is_found() {
        let mut walk = Walk::new(7);
        let mut places: Places = (0..30_000).collect();
        (0..30_000).filter(|&place| place != 12_345).for_each(|place| places.remove(place));
        assert!((0..200).all(|_| places.next(&mut walk) == Some(12_345)));
        assert_eq!(places.memory_bytes(), places.words.capacity() * 8);
    }
}
