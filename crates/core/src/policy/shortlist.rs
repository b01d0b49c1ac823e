//! The best victims of a batch of sampled keys, kept until they are needed.
//!
//! Drawing K keys for each eviction and taking the worst of them (K-LRU) leaves to chance how bad the worst is.
//! Drawing m × K keys at once and taking the m worst costs as many draws, and every victim lies in the worst 1/K of
//! what was drawn. Redis's eviction pool has the same aim; a shortlist is used up before the next is drawn, so its
//! entries are fresh.

/// Up to `m` entries of the lowest scores offered. O(m) per entry that is taken in, O(1) for the rest.
#[derive(Debug)]
pub struct Shortlist<T> {
    /// Highest score first, so that the next victim is the last.
    entries: Vec<(f64, T)>,
    len_max: usize,
}

impl<T> Shortlist<T> {
    /// An empty list for `m` entries, at least 1.
    pub fn new(m: usize) -> Self {
        let len_max = m.max(1);
        Shortlist { entries: Vec::with_capacity(len_max), len_max }
    }

    /// Offers one entry; `make` is called only where it is taken in. `score` is never NaN.
    pub fn offer(&mut self, score: f64, make: impl FnOnce() -> T) {
        if self.entries.len() == self.len_max {
            if self.entries[0].0 <= score {
                return;
            }
            self.entries.remove(0);
        }
        let place = self.entries.partition_point(|(held, _)| *held > score);
        self.entries.insert(place, (score, make()));
    }

    /// Takes out the entry of the lowest score.
    pub fn pop(&mut self) -> Option<T> {
        self.entries.pop().map(|(_, entry)| entry)
    }

    /// Keeps the `m` entries of the lowest scores, where it holds more.
    pub fn truncate(&mut self, m: usize) {
        self.entries.drain(..self.entries.len().saturating_sub(m));
    }

    /// The lowest score it holds.
    pub fn lowest(&self) -> Option<f64> {
        self.entries.last().map(|(score, _)| *score)
    }

    /// True where it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
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
    }
}
