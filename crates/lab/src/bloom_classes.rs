//! Which class a key is of, as pRedis remembers it: sixteen Bloom filters. An object of comparison; nothing in the
//! server uses it.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.1: a chain of filters, one per class (figure 5), or a tree of them
//! (figure 6), each sized by eq. 6 and 7. (Eq. 7 lacks its minus.) The tree is read as: one filter of all keys, and
//! at each of the fifteen inner nodes one of the keys in its left half, whose "no" means right. So a known key meets
//! five, as the paper says, and there are sixteen, as in its table 3. Differs from the paper: a filter of the tree is
//! sized for all the keys that it takes, where table 3 has 1 MB for each. What a filter has taken it keeps. A key
//! that changed its class is of the lowest it ever had, and keys long gone fill the filters beyond their size, where
//! most answers are wrong: see the table in `benches/classes.rs`. Cost: `k` = −log2(error) bits to read per filter;
//! per key of chain 1.44 `k` bits, of the tree three times that.

use std::f64::consts::LN_2;

use tenure_core::decide::penalty_class::PENALTY_CLASSES;
use tenure_core::units::KeyHash;

/// A set of keys that never misses one it has, and takes some for its own that it hasn't.
#[derive(Clone, Debug)]
struct Filter {
    words: Vec<u64>,
    bits: u64,
    /// How many bits a key sets.
    hashes: u32,
}

impl Filter {
    /// For `keys` at a share `error` of false answers: eq. 6 and 7.
    fn new(keys: usize, error: f64) -> Self {
        let bits = (-(keys as f64) * error.ln() / (LN_2 * LN_2)).ceil().max(64.0) as u64;
        let hashes = (-error.ln() / LN_2).round().max(1.0) as u32;
        Filter { words: vec![0; bits.div_ceil(64) as usize], bits, hashes }
    }

    /// Where a key's bits are: word and mask. Two halves of one hash make all of them (Kirsch and Mitzenmacher,
    /// ESA'06).
    fn places(&self, key: KeyHash) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (bits, step) = (self.bits, key.0.rotate_left(32) | 1);
        (0..u64::from(self.hashes)).map(move |i| {
            let hash = key.0.wrapping_add(step.wrapping_mul(i));
            let bit = ((u128::from(hash) * u128::from(bits)) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn insert(&mut self, key: KeyHash) {
        self.places(key).for_each(|(word, mask)| self.words[word] |= mask);
    }

    fn contains(&self, key: KeyHash) -> bool {
        self.places(key).all(|(word, mask)| self.words[word] & mask != 0)
    }
}

/// How the filters are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Figure 5: is it of class 0? of class 1? and so on.
    Chain,
    /// Figure 6: is it known? of the lower eight classes? of the lower four of those? and so on.
    Tree,
}

/// The classes of keys. See the file's opening.
#[derive(Clone, Debug)]
pub struct BloomClasses {
    shape: Shape,
    /// Of a chain by class. Of a tree first that of all keys, then those of the inner nodes, 1 the top, the halves of
    /// `n` at 2 `n` and 2 `n` + 1, and so the classes from [`PENALTY_CLASSES`] on.
    filters: Vec<Filter>,
}

impl BloomClasses {
    /// For up to `keys_per_class` keys of each class; each filter then errs for a share `error` of the keys that it
    /// hasn't, which is brought into [1e-9, 0.5].
    pub fn new(shape: Shape, keys_per_class: usize, error: f64) -> Self {
        let classes = |filter: usize| match (shape, filter) {
            (Shape::Chain, _) => 1,
            (Shape::Tree, 0) => PENALTY_CLASSES,
            (Shape::Tree, node) => PENALTY_CLASSES >> (node.ilog2() + 1),
        };
        let filter = |i| Filter::new(keys_per_class * classes(i), error.clamp(1e-9, 0.5));
        BloomClasses { shape, filters: (0..PENALTY_CLASSES).map(filter).collect() }
    }

    /// Notes that `key` is of `class`; what lies above the last counts to the last.
    pub fn insert(&mut self, key: KeyHash, class: usize) {
        let class = class.min(PENALTY_CLASSES - 1);
        if self.shape == Shape::Chain {
            return self.filters[class].insert(key);
        }
        self.filters[0].insert(key);
        // The class's number in binary is the way down: the nodes on it are what stays when its low digits go.
        let mut leaf = PENALTY_CLASSES + class;
        while leaf > 1 {
            if leaf.is_multiple_of(2) {
                self.filters[leaf / 2].insert(key);
            }
            leaf /= 2;
        }
    }

    /// The class of `key`: at most the lowest it was inserted with. `None` only for a key that wasn't.
    pub fn class_of(&self, key: KeyHash) -> Option<usize> {
        match self.shape {
            Shape::Chain => self.filters.iter().position(|filter| filter.contains(key)),
            Shape::Tree => self.filters[0].contains(key).then(|| self.leaf_of(key)),
        }
    }

    fn leaf_of(&self, key: KeyHash) -> usize {
        let mut node = 1;
        while node < PENALTY_CLASSES {
            node = 2 * node + usize::from(!self.filters[node].contains(key));
        }
        node - PENALTY_CLASSES
    }

    /// The filters' memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.filters.iter().map(|filter| filter.words.len() * size_of::<u64>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const KEYS: usize = 2_000;
    const ERROR: f64 = 0.01;

    fn key(class: usize, i: usize) -> KeyHash {
        KeyHash::of_number((i * PENALTY_CLASSES + class) as u64)
    }

    /// So many keys of each class, sized for [`KEYS`].
    fn filled(shape: Shape, keys_per_class: usize) -> BloomClasses {
        let mut classes = BloomClasses::new(shape, KEYS, ERROR);
        (0..PENALTY_CLASSES).for_each(|c| (0..keys_per_class).for_each(|i| classes.insert(key(c, i), c)));
        classes
    }

    /// The share of unknown keys that are taken for known.
    fn mistaken(classes: &BloomClasses) -> f64 {
        let unknown = (0..100_000_u64).map(|i| KeyHash::of_number((1 << 40) + i));
        unknown.filter(|&key| classes.class_of(key).is_some()).count() as f64 / 100_000.0
    }

    /// The share of known keys whose class is wrong.
    fn misplaced(classes: &BloomClasses, keys_per_class: usize) -> f64 {
        let all = (0..PENALTY_CLASSES).flat_map(|c| (0..keys_per_class).map(move |i| (key(c, i), c)));
        let wrong = all.filter(|&(key, class)| classes.class_of(key) != Some(class)).count();
        wrong as f64 / (PENALTY_CLASSES * keys_per_class) as f64
    }

    /// Within a fifth, which is many deviations of what is counted here.
    fn check(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 0.2, "{got}, expected {expected}");
    }

    #[test]
    fn sizes_are_those_of_equations_6_and_7() {
        let filter = Filter::new(1_000_000, 0.01);
        // 10^6 × ln 100 / (ln 2)² and ln 100 / ln 2: "about 1 MB".
        assert_eq!((filter.bits, filter.hashes), (9_585_059, 7));
        assert_eq!(BloomClasses::new(Shape::Chain, 64_000, 0.01).memory_bytes(), 16 * 76_688);
        let tree = BloomClasses::new(Shape::Tree, 64_000, 0.01).memory_bytes();
        // 16 of all keys, and at each of four levels 8 of the lower halves.
        check(tree as f64, 48.0 * 76_688.0);
    }

    #[test]
    fn at_capacity_a_filter_errs_as_asked_and_the_shapes_by_what_they_ask() {
        let (chain, tree) = (filled(Shape::Chain, KEYS), filled(Shape::Tree, KEYS));
        let errs = |filters: f64| 1.0 - (1.0 - ERROR).powf(filters);
        // An unknown key meets all sixteen of the chain, and one of the tree.
        check(mistaken(&chain), errs(16.0));
        check(mistaken(&tree), errs(1.0));
        // A known key meets as many of others' as its class has before it: 7.5, and at half the nodes the left's: 2.
        check(misplaced(&chain, KEYS), errs(7.5));
        check(misplaced(&tree, KEYS), errs(2.0));
    }

    /// Of 2 n keys a filter for n at 1 % takes (1 − e^(−2 k n / m))^k = 0.159 for its own, k = 7 and m / n = 9.585.
    #[test]
    fn overfilled_twice_a_chain_knows_almost_every_key() {
        let (chain, tree) = (filled(Shape::Chain, 2 * KEYS), filled(Shape::Tree, 2 * KEYS));
        check(mistaken(&chain), 1.0 - (1.0 - 0.159_f64).powi(16));
        check(mistaken(&tree), 0.159);
        assert!(misplaced(&chain, 2 * KEYS) > 0.5 && misplaced(&tree, 2 * KEYS) > 0.25);
    }

    #[test]
    fn a_key_that_changed_its_class_is_of_the_lowest_it_had() {
        for shape in [Shape::Chain, Shape::Tree] {
            let mut classes = BloomClasses::new(shape, KEYS, ERROR);
            let (falls, rises) = (KeyHash::of(b"falls"), KeyHash::of(b"rises"));
            for (key, class) in [(falls, 9), (falls, 4), (rises, 4), (rises, 99)] {
                classes.insert(key, class);
            }
            assert_eq!((classes.class_of(falls), classes.class_of(rises)), (Some(4), Some(4)), "{shape:?}");
            assert_eq!(classes.class_of(KeyHash::of(b"neither")), None);
        }
    }

    proptest! {
        #[test]
        fn no_key_is_ever_unknown(
            inserts in prop::collection::vec((0..500_u64, 0..20_usize), 1..400), keys in 0..40_usize,
        ) {
            for shape in [Shape::Chain, Shape::Tree] {
                let mut classes = BloomClasses::new(shape, keys, ERROR);
                let mut lowest: HashMap<u64, usize> = HashMap::new();
                for &(number, class) in &inserts {
                    classes.insert(KeyHash::of_number(number), class);
                    lowest.entry(number).and_modify(|lowest| *lowest = class.min(*lowest)).or_insert(class);
                }
                for (&number, &lowest) in &lowest {
                    let got = classes.class_of(KeyHash::of_number(number));
                    prop_assert!(got.is_some_and(|class| class <= lowest), "{got:?}, lowest {lowest}");
                }
            }
        }
    }
}
