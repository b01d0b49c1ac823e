//! Which of many prefixes is the longest that a key starts with: for tenants and for rules of classes.
//!
//! Prefixes are sorted; the last that is not above the key starts with every prefix of the key that there is, so it
//! or one of its own prefixes is the answer. Cost: a binary search among the prefixes that share the key's first
//! byte, and mostly one more comparison.

/// No prefix of this one is there.
const NONE: u32 = u32::MAX;

/// Prefixes, and what each stands for. See the file's opening.
#[derive(Clone, Debug)]
pub struct Prefixes<T> {
    /// Ascending; with each, where its own longest proper prefix is.
    sorted: Vec<(Vec<u8>, T, u32)>,
    /// By first byte: where those that start with it begin.
    begins: Vec<u32>,
}

impl<T: Copy> Prefixes<T> {
    /// Of prefixes that are not empty and differ.
    pub fn new(prefixes: impl IntoIterator<Item = (Vec<u8>, T)>) -> Self {
        let mut sorted: Vec<(Vec<u8>, T, u32)> =
            prefixes.into_iter().map(|(prefix, value)| (prefix, value, NONE)).collect();
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for i in 1..sorted.len() {
            let mut at = i as u32 - 1;
            while at != NONE && !sorted[i].0.starts_with(&sorted[at as usize].0) {
                at = sorted[at as usize].2;
            }
            sorted[i].2 = at;
        }
        let begin = |first: usize| sorted.partition_point(|(prefix, ..)| usize::from(prefix[0]) < first) as u32;
        let begins = (0..=256).map(begin).collect();
        Prefixes { sorted, begins }
    }

    /// What the longest prefix that `key` starts with stands for.
    #[inline]
    pub fn longest(&self, key: &[u8]) -> Option<T> {
        let first = usize::from(*key.first()?);
        let (begin, end) = (self.begins[first] as usize, self.begins[first + 1] as usize);
        if begin == end {
            return None;
        }
        let below = self.sorted[begin..end].partition_point(|(prefix, ..)| prefix.as_slice() <= key);
        // The prefixes of a prefix share its first byte.
        let mut at = if below == 0 { NONE } else { (begin + below - 1) as u32 };
        while let Some((prefix, value, parent)) = self.sorted.get(at as usize) {
            if key.starts_with(prefix) {
                return Some(*value);
            }
            at = *parent;
        }
        None
    }

    /// True without prefixes.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As by trying them all.
        #[test]
        fn the_longest_of_all_that_fit(
            prefixes in prop::collection::btree_set(prop::collection::vec(0_u8..3, 1..5), 0..40),
            keys in prop::collection::vec(prop::collection::vec(0_u8..3, 0..8), 50),
        ) {
            let prefixes: Vec<Vec<u8>> = prefixes.into_iter().collect();
            let found = Prefixes::new(prefixes.iter().cloned().zip(0_usize..));
            prop_assert_eq!(found.is_empty(), prefixes.is_empty());
            for key in keys {
                let fits = |i: &usize| key.starts_with(&prefixes[*i]);
                let longest = (0..prefixes.len()).filter(fits).max_by_key(|&i| prefixes[i].len());
                prop_assert_eq!(found.longest(&key), longest);
            }
        }
    }
}
