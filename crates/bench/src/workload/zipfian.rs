//! YCSB's number generators: Zipfian, scrambled Zipfian, latest, and the hash that scatters key numbers.
//!
//! Source: the definitions of YCSB's CoreWorkload and its generators; the Zipfian is that of Gray et al. (SIGMOD'94),
//! whose letters (θ, ζ, α, η, u) stay here. It is an approximation: below the two hottest items, ranks are drawn from
//! a continuous curve, so that at θ = 0.99 the third gets 17 to 20 % too many draws, the tenth 3 to 4 %. Every YCSB
//! client draws so, and we do too. [`ZipfTable`] is exact and not YCSB's. Random numbers come from xoshiro256++, so a
//! seed gives the same stream on every machine.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// YCSB's skew.
pub const THETA: f64 = 0.99;

/// The scrambled Zipfian draws from this many items, plus one, whatever the number of keys.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// ζ(10^10) at θ = 0.99, as YCSB fixes it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// A source of uniform random numbers, fixed by a seed.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The source for `seed`.
    pub fn new(seed: u64) -> Self {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n; the bias is below n / 2^53.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.unit() * n as f64) as u64
    }
}

/// YCSB's 64-bit FNV-1a of a number's octets, low to high, made positive: scatters key numbers.
pub fn fnv64(mut number: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for _ in 0..8 {
        hash = (hash ^ (number & 0xff)).wrapping_mul(1_099_511_628_211);
        number >>= 8;
    }
    (hash as i64).unsigned_abs()
}

/// Draws ranks 0..n, 0 the hottest, in proportion to 1/(rank+1)^θ.
#[derive(Clone, Debug)]
pub struct Zipfian {
    theta: f64,
    alpha: f64,
    eta: f64,
    /// ζ(2) = 1 + 1/2^θ.
    zeta_2: f64,
    zeta_n: f64,
    /// Items that `zeta_n` counts.
    n: u64,
    /// Items at construction: η keeps counting with them.
    n_at_construction: u64,
}

impl Zipfian {
    /// Over `n` items with skew `theta` in (0, 1). O(n).
    pub fn new(n: u64, theta: f64) -> Self {
        Zipfian::with_zeta(n, theta, zeta(0..n, theta))
    }

    fn with_zeta(n: u64, theta: f64, zeta_n: f64) -> Self {
        let zeta_2 = zeta(0..2, theta);
        let mut zipfian =
            Zipfian { theta, alpha: 1.0 / (1.0 - theta), eta: 0.0, zeta_2, zeta_n, n, n_at_construction: n };
        zipfian.update_eta();
        zipfian
    }

    fn update_eta(&mut self) {
        let share = 1.0 - (2.0 / self.n_at_construction as f64).powf(1.0 - self.theta);
        self.eta = share / (1.0 - self.zeta_2 / self.zeta_n);
    }

    /// Lets the generator draw from `n` items from now on; fewer than before are ignored.
    pub fn grow(&mut self, n: u64) {
        if n > self.n {
            self.zeta_n += zeta(self.n..n, self.theta);
            self.n = n;
            self.update_eta();
        }
    }

    /// The next rank.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let uz = u * self.zeta_n;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            (self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
        }
    }
}

/// Σ 1/(rank+1)^θ over `ranks`.
fn zeta(ranks: std::ops::Range<u64>, theta: f64) -> f64 {
    ranks.map(|rank| 1.0 / ((rank + 1) as f64).powf(theta)).sum()
}

/// Draws ranks 0..n exactly in proportion to 1/(rank+1)^θ, from a table of 8 n bytes.
#[derive(Clone, Debug)]
pub struct ZipfTable(Vec<f64>);

impl ZipfTable {
    /// Over `n` items, at least 1, with skew `theta`, 0 or more. O(n).
    pub fn new(n: u64, theta: f64) -> Self {
        let mut sum = 0.0;
        let add = |rank| {
            sum += 1.0 / ((rank + 1) as f64).powf(theta);
            sum
        };
        ZipfTable((0..n).map(add).collect())
    }

    /// The next rank. O(log n).
    pub fn draw(&self, random: &mut Random) -> u64 {
        let total = self.0[self.0.len() - 1];
        let u = random.unit() * total;
        self.0.partition_point(|&sum| sum <= u).min(self.0.len() - 1) as u64
    }
}

/// A Zipfian over ten billion items folded onto `n` keys by a hash: the hot keys lie anywhere, some together.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    inner: Zipfian,
    n: u64,
}

impl ScrambledZipfian {
    /// Over keys 0..n.
    pub fn new(n: u64) -> Self {
        ScrambledZipfian { inner: Zipfian::with_zeta(SCRAMBLED_ITEMS + 1, THETA, SCRAMBLED_ZETA), n }
    }

    /// The next key number.
    pub fn draw(&self, random: &mut Random) -> u64 {
        fnv64(self.inner.draw(random)) % self.n
    }
}

/// Draws key numbers back from the newest, the newest hottest.
#[derive(Clone, Debug)]
pub struct Latest(Zipfian);

impl Latest {
    /// Where `newest` is the newest key's number, at least 1.
    pub fn new(newest: u64) -> Self {
        Latest(Zipfian::new(newest, THETA))
    }

    /// The next key number, in 1..=newest.
    pub fn draw(&mut self, newest: u64, random: &mut Random) -> u64 {
        self.0.grow(newest);
        newest - self.0.draw(random).min(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N_DRAWS: usize = 400_000;

    fn counts(n: usize, mut draw: impl FnMut(&mut Random) -> u64) -> Vec<usize> {
        let mut random = Random::new(7);
        let mut counts = vec![0; n];
        for _ in 0..N_DRAWS {
            counts[draw(&mut random) as usize] += 1;
        }
        counts
    }

    fn share(count: usize) -> f64 {
        count as f64 / N_DRAWS as f64
    }

    #[test]
    fn hashes_are_those_of_published_ycsb_keys() {
        // The first three records of a YCSB load are user6284781860667377211, user8517097267634966620,
        // user1820151046732198393.
        assert_eq!(
            [0, 1, 2].map(fnv64),
            [6_284_781_860_667_377_211, 8_517_097_267_634_966_620, 1_820_151_046_732_198_393]
        );
    }

    /// The share of `ranks` that the published draw gives, from its inverse: u of a rank k of 2 or more.
    fn share_by_definition(zipfian: &Zipfian, ranks: std::ops::Range<u64>) -> f64 {
        let u = |k: u64| ((k as f64 / zipfian.n as f64).powf(1.0 - zipfian.theta) - 1.0 + zipfian.eta) / zipfian.eta;
        u(ranks.end) - u(ranks.start)
    }

    #[test]
    fn zipfian_frequencies_are_those_of_the_definition_and_near_the_law() {
        for theta in [0.8, 0.99] {
            let zipfian = Zipfian::new(1000, theta);
            let counts = counts(1000, |random| zipfian.draw(random));
            for rank in [0, 1] {
                let expected = 1.0 / f64::from(rank + 1).powf(theta) / zipfian.zeta_n;
                assert!((share(counts[rank as usize]) / expected - 1.0).abs() < 0.03, "θ {theta}, rank {rank}");
            }
            for ranks in [2..3, 3..4, 2..10, 10..100, 100..1000] {
                let drawn = share(counts[ranks.clone()].iter().sum());
                let ranks = ranks.start as u64..ranks.end as u64;
                let by_definition = share_by_definition(&zipfian, ranks.clone());
                assert!((drawn / by_definition - 1.0).abs() < 0.03, "θ {theta}, ranks {ranks:?}: {drawn}");
                let by_law = zeta(ranks.clone(), theta) / zipfian.zeta_n;
                assert!((drawn / by_law - 1.0).abs() < 0.2, "θ {theta}, ranks {ranks:?}: {drawn}");
            }
        }
    }

    #[test]
    fn the_table_follows_the_law() {
        let table = ZipfTable::new(1000, 0.8);
        let counts = counts(1000, |random| table.draw(random));
        let zeta_n = zeta(0..1000, 0.8);
        for ranks in [0..1, 1..2, 2..3, 3..10, 10..100, 100..1000] {
            let drawn = share(counts[ranks.clone()].iter().sum());
            let expected = zeta(ranks.start as u64..ranks.end as u64, 0.8) / zeta_n;
            assert!((drawn / expected - 1.0).abs() < 0.03, "ranks {ranks:?}: {drawn} {expected}");
        }
    }

    #[test]
    fn growing_equals_starting_larger_but_for_eta() {
        let mut grown = Zipfian::new(100, THETA);
        grown.grow(200);
        assert!((grown.zeta_n - zeta(0..200, THETA)).abs() < 1e-9);
        let eta = (1.0 - (2.0_f64 / 100.0).powf(0.01)) / (1.0 - grown.zeta_2 / grown.zeta_n);
        assert!((grown.eta - eta).abs() < 1e-12);
        grown.grow(150);
        assert_eq!(grown.n, 200);
    }

    #[test]
    fn the_scrambled_zipfians_hottest_keys_lie_where_the_hash_puts_them() {
        let scrambled = ScrambledZipfian::new(1001);
        let counts = counts(1001, |random| scrambled.draw(random));
        for rank in [0u64, 1] {
            let key = (fnv64(rank) % 1001) as usize;
            let alone = 1.0 / ((rank + 1) as f64).powf(THETA) / SCRAMBLED_ZETA;
            // Others are folded onto the same key: about 1/1001 of the rest.
            let drawn = share(counts[key]);
            assert!(drawn > alone * 0.95 && drawn < alone + 0.01, "rank {rank}: {drawn} and {alone}");
        }
        assert!(counts.iter().filter(|&&count| count == 0).count() == 0, "folding reaches every key");
    }

    #[test]
    fn latest_prefers_the_newest_and_stays_in_range() {
        let mut latest = Latest::new(999);
        let counts = counts(1500, |random| latest.draw(1499, random));
        assert!(counts[1499] > counts[1498] && counts[1498] > counts[1400]);
        assert!(share(counts[1499]) > 0.1);
    }
}
