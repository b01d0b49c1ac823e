//! Miniature simulation: the miss ratio curve of any policy, from small caches fed with a sample of the keys.
//!
//! Source: Waldspurger et al. (ATC'17) as DLRU (Wang et al., MEMSYS'20) uses it in sec. 2.2 and 3.3: keys are sampled by their hash at
//! rate R, and a cache of `C` bytes is simulated by one of `C R` bytes.
//! Differs from DLRU: capacities in bytes rather than in mean-sized objects, SHARDS-adj for the requests that the sample lacks
//! (misses are divided by the requests *expected* in the sample), and a census that corrects the rate (`census.rs`).
//! A miniature of fewer bytes than a value has can't store it, so sizes below a few hundred values / R mean little.
//! Cost: one access of the policy per sampled access and size; the memory of its caches.

use super::census::Census;
use super::{Counted, CurveModel};
use crate::access::Access;
use crate::curve::{CurvePoint, MissRatioCurve};
use crate::policy::cache::{Cache, Outcome};
use crate::sampling::{SampleRate, Sampling};

/// The model. See the file's opening.
pub struct Miniature {
    rate: SampleRate,
    counted: Counted,
    caches: Vec<Simulated>,
    /// Counted requests of the stream, sampled or not.
    requests: f64,
    census: Census,
}

struct Simulated {
    size_bytes: u64,
    misses: f64,
    cache: Box<dyn Cache + Send>,
}

impl Miniature {
    /// A model that simulates caches of `sizes_bytes` (strictly increasing) by those that `build` makes for the capacities,
    /// in bytes, it is given.
    pub fn new(
        sizes_bytes: &[u64],
        rate: SampleRate,
        counted: Counted,
        mut build: impl FnMut(u64) -> Box<dyn Cache + Send>,
    ) -> Self {
        let simulated = |&size_bytes: &u64| {
            let capacity_bytes = (size_bytes as f64 * rate.rate()).round().max(1.0) as u64;
            Simulated { size_bytes, misses: 0.0, cache: build(capacity_bytes) }
        };
        let caches = sizes_bytes.iter().map(simulated).collect();
        Miniature { rate, counted, caches, requests: 0.0, census: Census::beside(Sampling::Rate(rate)) }
    }
}

impl CurveModel for Miniature {
    fn record(&mut self, access: &Access) {
        let counts = self.counted.includes(access.op);
        self.requests += f64::from(u8::from(counts));
        self.census.record(access);
        if !self.rate.takes(access.key) {
            return;
        }
        for simulated in &mut self.caches {
            let missed = simulated.cache.access(access) == Outcome::Miss;
            simulated.misses += f64::from(u8::from(missed && counts));
        }
    }

    fn forget_counts(&mut self) {
        self.requests = 0.0;
        self.caches.iter_mut().for_each(|simulated| simulated.misses = 0.0);
    }

    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        if self.requests == 0.0 {
            return MissRatioCurve::default();
        }
        let correction = self.census.correction(self.rate);
        let stretch = self.rate.rate() / correction.rate * correction.size_factor;
        let expected = self.requests * correction.rate;
        let mut points: Vec<CurvePoint> = Vec::new();
        for simulated in &self.caches {
            let bytes = (simulated.size_bytes as f64 * stretch).round() as u64;
            if points.last().is_none_or(|last| last.bytes < bytes) {
                points.push(CurvePoint { bytes, miss_ratio: simulated.misses / expected });
            }
        }
        let simulated = MissRatioCurve::new(points);
        let at = |&bytes: &u64| CurvePoint { bytes, miss_ratio: simulated.miss_ratio_at(bytes) };
        MissRatioCurve::new(sizes_bytes.iter().map(at).collect())
    }

    fn memory_bytes(&self) -> usize {
        let of_caches: usize = self.caches.iter().map(|simulated| simulated.cache.memory_bytes()).sum();
        self.caches.capacity() * size_of::<Simulated>() + of_caches + self.census.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::even_sizes;
    use crate::model::testing::{StreamConfig, fed, simulated_curve, stream};
    use crate::policy::cache::KLru;

    fn error(k: u32, rate: SampleRate) -> f64 {
        let accesses = stream(StreamConfig { n: 200_000, keys: 20_000, ..StreamConfig::default() });
        let sizes = even_sizes(30_000, 10);
        let build = |bytes| KLru::new(k, bytes, 3).unwrap();
        let model = Miniature::new(&sizes, rate, Counted::ReadsAndWrites, |bytes| Box::new(build(bytes)));
        let truth = simulated_curve(k, &accesses, &sizes);
        fed(model, &accesses).curve(&sizes).mean_absolute_error(&truth, &sizes)
    }

    #[test]
    fn at_rate_one_it_is_the_simulation_itself() {
        assert_eq!(error(5, SampleRate::ALL), 0.0);
    }

    #[test]
    fn a_sample_is_close() {
        for k in [1, 5] {
            let error = error(k, SampleRate::new(0.1).unwrap());
            assert!(error < 0.02, "K={k}: {error}");
        }
    }
}
