//! CAMP: greedy dual by cost and size, its ratios rounded so that few queues hold all values.
//!
//! Source: Ghandeharizadeh et al., Middleware'14, algorithm 1 and sec. 2.2: H = L + cost / size, where L is the least
//! H of the others at a hit, and of what is left at an eviction. The ratio is multiplied by the largest size seen, so
//! that it is a whole number, of which the leading binary digits (5, as there) are kept. Differs: the paper has a
//! queue in order of access for each rounded ratio, and a heap of their oldest; here one ordered set has all values
//! by H, then by access, which gives the same victims. Ratios taken before a larger size was met stay as they are
//! until the next access. Doesn't count requests. Cost: O(log n) per access.

use std::collections::BTreeSet;

use tenure_core::policy::table::{Entry, Order, Table, TableCache};

/// Leading binary digits of a ratio that count.
const PRECISION_BITS: u32 = 5;

/// H, the number of the access, and the place.
type Rank = (u64, u64, usize);

/// The order of CAMP. See the file's opening.
#[derive(Clone, Debug, Default)]
pub struct Camp {
    ranks: BTreeSet<Rank>,
    rank_of: Vec<Rank>,
    /// L of the formula.
    age: u64,
    largest_bytes: u32,
    accesses: u64,
}

impl Camp {
    /// A CAMP cache of `capacity_bytes`.
    pub fn cache(capacity_bytes: u64) -> TableCache<Camp> {
        TableCache::new(capacity_bytes, Camp::default())
    }

    fn put(&mut self, place: usize, entry: &Entry) {
        self.largest_bytes = self.largest_bytes.max(entry.size_bytes);
        self.accesses += 1;
        let ratio = f64::from(entry.penalty_us) * f64::from(self.largest_bytes) / f64::from(entry.size_bytes.max(1));
        let rank = (self.age + rounded(ratio as u64), self.accesses, place);
        if self.rank_of.len() <= place {
            self.rank_of.resize(place + 1, rank);
        }
        self.rank_of[place] = rank;
        self.ranks.insert(rank);
    }

    /// Takes a value out; the age follows the lowest of those that stay.
    fn take(&mut self, place: usize) {
        self.ranks.remove(&self.rank_of[place]);
        if let Some(&(lowest, ..)) = self.ranks.first() {
            self.age = self.age.max(lowest);
        }
    }
}

/// A number with all but its leading digits zero.
fn rounded(ratio: u64) -> u64 {
    let dropped = (u64::BITS - ratio.leading_zeros()).saturating_sub(PRECISION_BITS);
    ratio >> dropped << dropped
}

impl Order for Camp {
    fn victim(&mut self, _table: &Table, _incoming: &Entry) -> usize {
        self.ranks.first().expect("a table that is not empty has a lowest value").2
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.put(place, &table.entries()[place]);
    }

    fn touched(&mut self, table: &Table, place: usize) {
        self.take(place);
        self.put(place, &table.entries()[place]);
    }

    fn removed(&mut self, _table: &Table, place: usize) {
        self.take(place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        let (rank, number, _) = self.rank_of[from];
        self.ranks.remove(&(rank, number, from));
        self.rank_of[to] = (rank, number, to);
        self.ranks.insert((rank, number, to));
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::access::Access;
    use tenure_core::policy::cache::{Cache, Outcome};
    use tenure_core::units::KeyHash;

    use super::*;

    /// Five leading digits: up to 31 exactly, then in steps of a sixteenth at the most.
    #[test]
    fn ratios_are_rounded_to_five_digits() {
        assert_eq!([0, 31, 32, 33, 63, 64, 67, 68].map(rounded), [0, 31, 32, 32, 62, 64, 64, 68]);
    }

    /// Three values of one byte fit. H of a, b, c: 8, 2, 4. d (2) evicts b, and L is 4, the least of a and c: H of d
    /// is 6. e (1) evicts c, L is 6, H of e is 7; f (9) evicts d, L is 7; g evicts e. So what is cheap stays a while,
    /// and a (8) goes next.
    #[test]
    fn the_least_of_age_and_ratio_goes() {
        let mut cache = Camp::cache(3);
        let mut ask = |key: char, us: f32| {
            let read = Access { penalty_us: us, ..Access::read(KeyHash::of_number(key as u64), 1) };
            cache.access(&read) == Outcome::Hit
        };
        for (key, us) in [('a', 8.0), ('b', 2.0), ('c', 4.0), ('d', 2.0), ('e', 1.0), ('f', 9.0)] {
            assert!(!ask(key, us));
        }
        assert!(!ask('g', 3.0) && ask('a', 8.0) && ask('f', 9.0) && ask('g', 3.0) && !ask('e', 1.0));
    }

    /// With one size and price it is LRU: the hits of three places over A B C A D B are A alone.
    #[test]
    fn equals_go_in_order_of_access() {
        let mut cache = Camp::cache(3);
        let hit = |key: char| {
            let read = Access { penalty_us: 5.0, ..Access::read(KeyHash::of_number(key as u64), 1) };
            if cache.access(&read) == Outcome::Hit { key } else { '.' }
        };
        assert_eq!("ABCADB".chars().map(hit).collect::<String>(), "...A..");
    }
}
