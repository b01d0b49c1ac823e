//! Miniature caches of K-LRU for several K side by side: which of them would have missed how often.
//!
//! Source: DLRU (Wang et al., MEMSYS'20) sec. 3.3: keys are sampled by their hash, and a cache of `C` bytes is stood
//! for by one of `C` × rate. Differs from the paper: bounded by bytes, like the cache, where the paper counts objects
//! of mean size; and windows before the last count, less and less. Cost: one access to each cache per sampled access;
//! about 60 bytes per K and sampled key that fits.

use tenure_core::access::{Access, Op};
use tenure_core::decide::sample_size::{DISTINCT_KEYS_MIN, SAMPLE_SIZES, cheapest_sample_size};
use tenure_core::model::key_map::KeyMap;
use tenure_core::policy::cache::{Cache, KLru, Outcome};
use tenure_core::sampling::SampleRate;

/// A miniature is full from this share of its capacity on.
const FULL: f64 = 0.9;
/// What the misses of a window still weigh in the next: the samples of one window are few, and chance would change K
/// to and fro.
const DECAY: f64 = 0.7;

/// The caches, one for each of [`SAMPLE_SIZES`], and what they missed in this window.
#[derive(Clone, Debug)]
pub struct Miniatures {
    rate: SampleRate,
    caches: Vec<KLru>,
    reads: u64,
    misses: [u64; SAMPLE_SIZES.len()],
    /// Misses of the windows before, weighed.
    missed_before: [f64; SAMPLE_SIZES.len()],
    distinct: KeyMap<()>,
}

impl Miniatures {
    /// Empty caches that stand for one of `capacity_bytes`.
    pub fn new(rate: SampleRate, capacity_bytes: u64, seed: u64) -> Self {
        let capacity = miniature(capacity_bytes, rate);
        let cache = |(i, &k): (u64, &u32)| {
            KLru::new(k, capacity, seed.wrapping_add(i)).expect("the sizes compared are in range")
        };
        let caches = (0..).zip(&SAMPLE_SIZES).map(cache).collect();
        Miniatures {
            rate,
            caches,
            reads: 0,
            misses: [0; SAMPLE_SIZES.len()],
            missed_before: [0.0; SAMPLE_SIZES.len()],
            distinct: KeyMap::default(),
        }
    }

    /// They stand for a cache of another size from now on.
    pub fn resize(&mut self, capacity_bytes: u64) {
        let capacity = miniature(capacity_bytes, self.rate);
        self.caches
            .iter_mut()
            .filter(|cache| cache.capacity_bytes() != capacity)
            .for_each(|c| c.set_capacity(capacity));
    }

    /// Takes one access, where its key is in the sample.
    pub fn record(&mut self, access: &Access) {
        if !self.rate.takes(access.key) {
            return;
        }
        let counted = u64::from(access.op == Op::Read);
        self.reads += counted;
        self.distinct.insert(access.key, ());
        for (cache, misses) in self.caches.iter_mut().zip(&mut self.misses) {
            *misses += counted * u64::from(cache.access(access) == Outcome::Miss);
        }
    }

    /// Holds a value, before anything is counted. Called in the order of recency, oldest first.
    pub fn hold(&mut self, access: &Access) {
        if self.rate.takes(access.key) {
            for cache in &mut self.caches {
                cache.access(access);
            }
        }
    }

    /// The K of the least cost in this window and, each weighed less than the next, those before; `None` where too
    /// few keys were sampled in this one to tell.
    pub fn cheapest(&self, penalty_us_mean: f64, eviction_us_at_one: f64) -> Option<u32> {
        let enough = self.distinct.len() >= DISTINCT_KEYS_MIN;
        enough.then(|| cheapest_sample_size(&self.missed(), penalty_us_mean, eviction_us_at_one))
    }

    fn missed(&self) -> [f64; SAMPLE_SIZES.len()] {
        std::array::from_fn(|i| self.missed_before[i] + self.misses[i] as f64)
    }

    /// Ends the window: counts start over, and what was missed weighs less.
    pub fn end_window(&mut self) {
        self.missed_before = self.missed().map(|misses| DECAY * misses);
        (self.reads, self.misses) = (0, [0; SAMPLE_SIZES.len()]);
        self.distinct.clear();
    }

    /// The miss ratio of each K in this window, in the order of [`SAMPLE_SIZES`]; 0 without reads.
    pub fn miss_ratios(&self) -> [f64; SAMPLE_SIZES.len()] {
        self.misses.map(|misses| misses as f64 / self.reads.max(1) as f64)
    }

    /// True where all caches have to evict: before, every K misses alike.
    pub fn are_full(&self) -> bool {
        self.caches.iter().all(|cache| cache.used_bytes() as f64 >= FULL * cache.capacity_bytes() as f64)
    }

    /// Distinct keys sampled in this window.
    pub fn sampled_keys(&self) -> usize {
        self.distinct.len()
    }

    /// Keys that a miniature holds, of the fullest.
    pub fn resident_keys(&self) -> usize {
        self.caches.iter().map(KLru::n_resident).max().unwrap_or(0)
    }

    /// The share of keys that is sampled.
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.caches.iter().map(Cache::memory_bytes).sum::<usize>() + self.distinct.memory_bytes()
    }
}

fn miniature(capacity_bytes: u64, rate: SampleRate) -> u64 {
    ((capacity_bytes as f64 * rate.rate()) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::units::KeyHash;

    /// A loop over 1.2 times what fits: random eviction misses least; a tenth of the keys shows it.
    #[test]
    fn a_sampled_loop_wants_k_of_one_and_a_resized_cache_holds_it() {
        let mut miniatures = Miniatures::new(SampleRate::new(0.1).unwrap(), 10_000, 1);
        let rounds = |miniatures: &mut Miniatures, n: u64| {
            (0..n * 12_000).for_each(|i| miniatures.record(&Access::read(KeyHash::of_number(i % 12_000), 1)));
        };
        rounds(&mut miniatures, 2);
        assert!(miniatures.are_full());
        miniatures.end_window();
        assert_eq!(miniatures.cheapest(1000.0, 0.4), None, "nothing sampled");
        rounds(&mut miniatures, 4);
        assert_eq!(miniatures.cheapest(1000.0, 0.4), Some(1));
        let ratios = miniatures.miss_ratios();
        assert!(ratios[0] < 0.4 && ratios[4] > 0.8, "{ratios:?}");
        miniatures.resize(14_000);
        rounds(&mut miniatures, 2);
        miniatures.end_window();
        rounds(&mut miniatures, 2);
        assert_eq!(miniatures.miss_ratios(), [0.0; 5]);
        assert!(!miniatures.are_full());
    }
}
