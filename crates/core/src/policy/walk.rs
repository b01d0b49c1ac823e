//! A walk through numbered places that never ends: each is met once before any is met again.
//!
//! The server's evictor meets keys in the order of their hashes. A simulated cache that drew its samples by chance
//! would do worse: some of the keys that are never asked for again would be missed for several rounds. Steps are a
//! golden section of the places, so what came together is met apart. Cost: an addition for each place, and up to as
//! many again where their number is no power of two.

use crate::random::Random;

/// The golden section of 2^64.
const SECTION: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where the walk is. See the file's opening.
#[derive(Clone, Debug)]
pub struct Walk {
    at: usize,
}

impl Walk {
    /// A walk that begins anywhere.
    pub fn new(seed: u64) -> Self {
        Walk { at: Random::new(seed).below(1 << 32) as usize }
    }

    /// The next of `n` places, `n` > 0. Places that are added or taken away meanwhile are met in their turn; where `n`
    /// passes a power of two the round begins again.
    #[inline]
    pub fn next(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.saturating_sub(1).leading_zeros();
        if bits == 0 {
            return 0;
        }
        // Odd, so that all places are met.
        let step = (SECTION >> (u64::BITS - bits)) as usize | 1;
        loop {
            self.at = self.at.wrapping_add(step) & ((1 << bits) - 1);
            if self.at < n {
                return self.at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of any number each is met once a round, and neighbours are met apart.
    #[test]
    fn each_place_is_met_once_a_round() {
        for n in [1, 2, 3, 5, 64, 1000, 4097] {
            let mut walk = Walk::new(n as u64);
            for _ in 0..3 {
                let mut met = vec![0; n];
                (0..n).for_each(|_| met[walk.next(n)] += 1);
                assert_eq!(met, vec![1; n], "of {n}");
            }
        }
        let mut walk = Walk::new(7);
        let met: Vec<usize> = (0..1000).map(|_| walk.next(1000)).collect();
        let are_apart = |ten: &[usize]| ten.iter().filter(|&&at| at < 500).count().abs_diff(5) <= 2;
        assert!(met.chunks(10).all(are_apart), "{met:?}");
    }
}
