//! SIEVE: one queue in order of entry, and a hand that passes over what was accessed since it last came by.
//!
//! Source: Zhang et al., NSDI'24, algorithm 1: new values enter at the head; the hand goes from the tail to the head,
//! takes the mark from values that have one and evicts the first that has none; survivors stay where they are, and
//! the hand stays where it stopped. Differs: a value whose size changes enters anew, as in all simulated caches here.
//! Knows neither cost nor size. Cost: O(1) per access, amortised.

use tenure_core::policy::linked::Lists;
use tenure_core::policy::table::{Entry, Order, Table, TableCache};

/// The order of SIEVE. See the file's opening.
#[derive(Clone, Debug)]
pub struct Sieve {
    queue: Lists<1>,
    was_accessed: Vec<bool>,
    /// Where the hand stands; `None`: at the tail.
    hand: Option<usize>,
}

impl Sieve {
    /// A SIEVE cache of `capacity_bytes`.
    pub fn cache(capacity_bytes: u64) -> TableCache<Sieve> {
        let order = Sieve { queue: Lists::new(), was_accessed: Vec::new(), hand: None };
        TableCache::new(capacity_bytes, order)
    }
}

impl Order for Sieve {
    fn victim(&mut self, _table: &Table, _incoming: &Entry) -> usize {
        loop {
            let place = self.hand.or_else(|| self.queue.oldest(0)).expect("a table that is not empty has an oldest");
            self.hand = self.queue.newer(place);
            if !std::mem::take(&mut self.was_accessed[place]) {
                return place;
            }
        }
    }

    fn stored(&mut self, _table: &Table, place: usize) {
        self.queue.push(0, place);
        if self.was_accessed.len() <= place {
            self.was_accessed.resize(place + 1, false);
        }
        self.was_accessed[place] = false;
    }

    fn touched(&mut self, _table: &Table, place: usize) {
        self.was_accessed[place] = true;
    }

    fn removed(&mut self, _table: &Table, place: usize) {
        if self.hand == Some(place) {
            self.hand = self.queue.newer(place);
        }
        self.queue.unlink(place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.queue.moved(from, to);
        self.was_accessed[to] = self.was_accessed[from];
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::access::Access;
    use tenure_core::policy::cache::{Cache, Outcome};
    use tenure_core::units::KeyHash;

    use super::*;

    /// Which of these reads hit, with room for `values` of one byte.
    fn hits(values: u64, keys: &str) -> String {
        let mut cache = Sieve::cache(values);
        let hit = |key: char| match cache.access(&Access::read(KeyHash::of_number(key as u64), 1)) {
            Outcome::Hit => key,
            _ => '.',
        };
        keys.chars().map(hit).collect()
    }

    /// What was accessed keeps its place, and the hand goes on from where it stopped, not from the tail.
    #[test]
    fn survivors_stay_and_the_hand_goes_on() {
        // Tail to head A B C; A is marked: the hand passes it and takes B for D, and C, not A, for E. A is unmarked
        // by now, but behind the hand.
        assert_eq!(hits(3, "ABCADEA"), "...A..A");
        // Next the hand is at D, which was not accessed: it goes for F, and E for G.
        assert_eq!(hits(3, "ABCADEAFAG"), "...A..A.A.");
        assert_eq!(hits(3, "ABCADEAFAGA"), "...A..A.A.A");
    }

    /// With all marked the hand goes round once and takes the oldest.
    #[test]
    fn with_all_marked_the_oldest_goes() {
        assert_eq!(hits(3, "ABCABCDBC"), "...ABC.BC");
        assert_eq!(hits(3, "ABCABCDA"), "...ABC..");
    }

    /// Deletes and sizes that change under the hand: nothing is lost, and the account is the table's.
    #[test]
    fn the_hand_survives_what_it_stands_on() {
        let mut cache = Sieve::cache(40);
        let mut random = tenure_core::random::Random::new(1);
        for i in 0..20_000_u64 {
            let key = KeyHash::of_number(random.below(30));
            let read = Access::read(key, 1 + random.below(4) as u32);
            let access = if i % 7 == 0 { read.with_op(tenure_core::access::Op::Delete) } else { read };
            cache.access(&access);
            assert!(cache.used_bytes() <= 40);
        }
    }
}
