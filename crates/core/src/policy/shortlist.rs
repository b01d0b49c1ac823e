//! The best victims of a batch of sampled keys, kept until they are needed.
//!
//! Drawing K keys for each eviction and taking the worst of them (K-LRU) leaves to chance how bad the worst is.
//! Drawing m × K keys at once and taking the m worst costs as many draws, and every victim lies in the worst 1/K of
//! what was drawn. Redis's eviction pool has the same aim; a shortlist is used up before the next is drawn, so its
//! entries are fresh.

/// A score, and where its entry lies.
type Rank = (f64, u16);

/// Up to `m` entries of the lowest scores offered. O(log m) per entry that is taken in, and a move of 16 m bytes at
/// the most; one comparison for the rest.
#[derive(Clone, Debug)]
pub struct Shortlist<T> {
    /// Highest score first, so that the next victim is the last.
    ranks: Vec<Rank>,
    /// Entries stay where they are while ranks move.
    entries: Vec<Option<T>>,
    /// Places that an entry was taken out of.
    free: Vec<u16>,
    len_max: usize,
}

impl<T> Shortlist<T> {
    /// An empty list for `m` entries, 1 to 65,536.
    pub fn new(m: usize) -> Self {
        let len_max = m.clamp(1, 1 << 16);
        Shortlist {
            ranks: Vec::with_capacity(len_max),
            entries: Vec::with_capacity(len_max),
            free: Vec::new(),
            len_max,
        }
    }

    /// Offers one entry; `make` is called only where it is taken in. `score` is never NaN.
    #[inline]
    pub fn offer(&mut self, score: f64, make: impl FnOnce() -> T) {
        match self.ranks.first() {
            Some(&(highest, place)) if self.ranks.len() == self.len_max => {
                if highest > score {
                    self.replace_highest(score, place, make());
                }
            }
            _ => self.insert(score, make()),
        }
    }

    /// The entry of the highest score goes for this one.
    fn replace_highest(&mut self, score: f64, place: u16, entry: T) {
        let at = self.ranks.partition_point(|(held, _)| *held > score) - 1;
        self.ranks.copy_within(1..=at, 0);
        self.ranks[at] = (score, place);
        self.entries[usize::from(place)] = Some(entry);
    }

    fn insert(&mut self, score: f64, entry: T) {
        let place = self.free.pop().unwrap_or(self.entries.len() as u16);
        match self.entries.get_mut(usize::from(place)) {
            Some(free) => *free = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        let at = self.ranks.partition_point(|(held, _)| *held > score);
        self.ranks.insert(at, (score, place));
    }

    /// Takes out the entry of the lowest score.
    pub fn pop(&mut self) -> Option<T> {
        let (_, place) = self.ranks.pop()?;
        self.free.push(place);
        self.entries[usize::from(place)].take()
    }

    /// Keeps the `m` entries of the lowest scores, where it holds more.
    pub fn truncate(&mut self, m: usize) {
        let Shortlist { ranks, entries, free, .. } = self;
        for (_, place) in ranks.drain(..ranks.len().saturating_sub(m)) {
            entries[usize::from(place)] = None;
            free.push(place);
        }
    }

    /// The lowest score it holds.
    #[inline]
    pub fn lowest(&self) -> Option<f64> {
        self.ranks.last().map(|(score, _)| *score)
    }

    /// True where it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty()
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.ranks.capacity() * size_of::<Rank>()
            + self.entries.capacity() * size_of::<Option<T>>()
            + self.free.capacity() * size_of::<u16>()
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.ranks.clear();
        self.entries.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_the_lowest_scores_in_order(scores in prop::collection::vec(0u32..50, 0..60), m in 1usize..12) {
            let mut list = Shortlist::new(m);
            for &score in &scores {
                list.offer(f64::from(score), || score);
            }
            let mut sorted = scores.clone();
            sorted.sort_unstable();
            sorted.truncate(m);
            prop_assert_eq!(list.lowest(), sorted.first().map(|&s| f64::from(s)));
            let got: Vec<u32> = std::iter::from_fn(|| list.pop()).collect();
            prop_assert_eq!(got, sorted);
        }

        /// Taking out and putting in by turns, it gives what a list that is sorted each time does.
        #[test]
        fn it_gives_the_lowest_by_turns(steps in prop::collection::vec((0u32..9, 0usize..3), 0..80), m in 1usize..9) {
            let (mut list, mut sorted) = (Shortlist::new(m), Vec::new());
            for (i, &(score, taken)) in steps.iter().enumerate() {
                list.offer(f64::from(score), || i);
                if sorted.len() < m || sorted.last().is_some_and(|&(highest, _)| score < highest) {
                    sorted.truncate(m - 1);
                    let at = sorted.partition_point(|&(held, _)| held <= score);
                    sorted.insert(at, (score, i));
                }
                for _ in 0..taken {
                    let lowest = (!sorted.is_empty()).then(|| sorted.remove(0).1);
                    prop_assert_eq!(list.pop(), lowest);
                }
                if taken == 0 && i % 7 == 0 {
                    list.truncate(m / 2);
                    sorted.truncate(m / 2);
                }
            }
        }
    }
}
