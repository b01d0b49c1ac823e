//! Miniature simulation: the miss ratio curve of any policy, from small caches fed with a sample of the keys.
//!
//! Source: Waldspurger et al. (ATC'17) as DLRU (Wang et al., MEMSYS'20) uses it in sec. 2.2 and 3.3: keys are sampled
//! by their hash at rate R, and a cache of `C` bytes is simulated by one of `C R` bytes. Differs from DLRU:
//! capacities in bytes rather than in mean-sized objects, SHARDS-adj for the requests that the sample lacks (misses
//! are divided by the requests *expected* in the sample), and a census that corrects the rate (`census.rs`). A
//! miniature of fewer bytes than a value has can't store it, so sizes below a few hundred values / R mean little.
//! Cost: one access of the policy per sampled access and size; the memory of its caches.

use super::census::Census;
use super::deletes::Deletes;
use super::{Counted, CurveModel};
use crate::access::{Access, Op};
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
    deletes: Deletes,
    census: Census,
}

struct Simulated {
    size_bytes: u64,
    misses: f64,
    /// Miss penalties of the reads among them, in µs.
    penalty_us: f64,
    cache: Box<dyn Cache + Send>,
}

impl Miniature {
    /// A model that simulates caches of `sizes_bytes` (strictly increasing) by those that `build` makes for the
    /// capacities, in bytes, it is given.
    pub fn new(
        sizes_bytes: &[u64],
        rate: SampleRate,
        counted: Counted,
        mut build: impl FnMut(u64) -> Box<dyn Cache + Send>,
    ) -> Self {
        let simulated = |&size_bytes: &u64| {
            let capacity_bytes = (size_bytes as f64 * rate.rate()).round().max(1.0) as u64;
            Simulated { size_bytes, misses: 0.0, penalty_us: 0.0, cache: build(capacity_bytes) }
        };
        let caches = sizes_bytes.iter().map(simulated).collect();
        let (deletes, census) = (Deletes::default(), Census::beside(Sampling::Rate(rate)));
        Miniature { rate, counted, caches, requests: 0.0, deletes, census }
    }

    /// The time lost to misses by cache size, in µs per request, at each of `sizes_bytes` (strictly increasing):
    /// between the sizes that were simulated linear, below them that of the smallest. Where a policy goes by cost it
    /// may miss more and lose less. Empty where there were no requests.
    pub fn penalties_us(&self, sizes_bytes: &[u64]) -> Vec<f64> {
        let (expected, stretch) = self.expected_and_stretch();
        if expected <= 0.0 || self.caches.is_empty() {
            return Vec::new();
        }
        let at = |simulated: &Simulated| (simulated.size_bytes as f64 * stretch, simulated.penalty_us / expected);
        let points: Vec<(f64, f64)> = self.caches.iter().map(at).collect();
        let lost_at = |&bytes: &u64| {
            let bytes = bytes as f64;
            let after = points.partition_point(|point| point.0 < bytes).min(points.len() - 1);
            let (before, after) = (points[after.saturating_sub(1)], points[after]);
            let share =
                if after.0 > before.0 { ((bytes - before.0) / (after.0 - before.0)).clamp(0.0, 1.0) } else { 1.0 };
            before.1 + share * (after.1 - before.1)
        };
        sizes_bytes.iter().map(lost_at).collect()
    }

    /// Requests that the sample should hold, and what a miniature's size is to be multiplied by, by the census.
    fn expected_and_stretch(&self) -> (f64, f64) {
        let correction = self.census.correction(self.rate);
        (self.requests * correction.rate, self.rate.rate() / correction.rate * correction.size_factor)
    }

    /// A delete found its key where the largest cache holds less afterwards.
    fn delete(&mut self, access: &Access) {
        let used = |caches: &[Simulated]| caches.last().map_or(0, |largest| largest.cache.used_bytes());
        let before = used(&self.caches);
        for simulated in &mut self.caches {
            simulated.cache.access(access);
        }
        self.deletes.count(used(&self.caches) < before);
    }
}

impl CurveModel for Miniature {
    fn record(&mut self, access: &Access) {
        let counts = self.counted.includes(access.op);
        self.requests += f64::from(u8::from(counts));
        self.census.record(access);
        if access.op == Op::Delete {
            self.deletes.advance(1.0);
        }
        if !self.rate.takes(access.key) {
            return;
        }
        if access.op == Op::Delete {
            return self.delete(access);
        }
        let penalty_us = if access.op == Op::Read { f64::from(access.penalty_us) } else { 0.0 };
        for simulated in &mut self.caches {
            if simulated.cache.access(access) == Outcome::Miss && counts {
                simulated.misses += 1.0;
                simulated.penalty_us += penalty_us;
            }
        }
    }

    fn forget_counts(&mut self) {
        self.requests = 0.0;
        self.deletes = Deletes::default();
        self.caches.iter_mut().for_each(|simulated| (simulated.misses, simulated.penalty_us) = (0.0, 0.0));
    }

    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        let (expected, stretch) = self.expected_and_stretch();
        if expected <= 0.0 {
            return MissRatioCurve::default();
        }
        let missing = self.deletes.misses_missing(self.census.correction(self.rate).rate);
        let mut points: Vec<CurvePoint> = Vec::new();
        for simulated in &self.caches {
            let bytes = (simulated.size_bytes as f64 * stretch).round() as u64;
            if points.last().is_none_or(|last| last.bytes < bytes) {
                points.push(CurvePoint { bytes, miss_ratio: (simulated.misses + missing) / expected });
            }
        }
        let simulated = MissRatioCurve::new(points);
        let at = |&bytes: &u64| CurvePoint { bytes, miss_ratio: simulated.miss_ratio_at(bytes) };
        MissRatioCurve::new(sizes_bytes.iter().map(at).collect())
    }

    fn sample_rate(&self) -> SampleRate {
        self.rate
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
