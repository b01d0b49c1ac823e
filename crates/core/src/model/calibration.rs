//! What EAET's average eviction time leaves out, measured on a few keys and put right.
//!
//! AET takes the requests that push on a block for a random sample of all requests (Hu et al., ATC'16, sec. 3.1).
//! Where they are not (a scan that turns round at its ends, phases), the depth that it gives for a reuse time is off.
//! Ours (docs/models.md, "Calibration"): of about a thousand keys the true stack distances are kept, as SHARDS does,
//! beside an EAET model of the same keys. By how much the two differ at a reuse time says by how much the model of
//! all keys is off there; that the few keys are too many or too few for their rate changes both alike. Cost: that of
//! SHARDS for a thousand keys; 150 KiB.

use super::CurveModel;
use super::eaet::{Clock, Counted, Eaet};
use super::lru_stack::{Depth, LruStack};
use super::reuse_time::ReuseTimes;
use super::tally::distance_at_rate_one;
use crate::access::Access;
use crate::sampling::Sampling;

/// Keys whose distances are measured, at the most.
const KEYS_MAX: usize = 1024;
/// Distances of so many buckets to either side are taken together: reuse times within 6 %.
const NEIGHBOURS: usize = 4;
/// As many distances as the model gives them stand beside those that were measured, so that few say little.
const PRIOR_DISTANCES: f64 = 2.0;
/// What differs by less may be chance, and is left as it is; from twice as much on it is taken as measured.
const CHANCE: f64 = 0.03;

/// The keys and their distances. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    model: Eaet,
    stack: LruStack,
    /// Distances measured, by reuse time: how many, and their sum in bytes.
    measured: ReuseTimes,
    distance_bytes: ReuseTimes,
}

impl Calibration {
    /// Nothing measured yet.
    pub fn new(counted: Counted) -> Self {
        Calibration {
            model: Eaet::uncorrected(Sampling::Keys(KEYS_MAX), counted, Clock::Bytes),
            stack: LruStack::default(),
            measured: ReuseTimes::new(),
            distance_bytes: ReuseTimes::new(),
        }
    }

    /// Takes one access of the stream.
    pub fn record(&mut self, access: &Access) {
        let rate = self.model.rate();
        let reuse_time = if rate.takes(access.key) { self.model.reuse_time_of(access) } else { None };
        if rate.takes(access.key)
            && let Depth::At { depth_bytes, own_bytes } = self.stack.access(access, access.size_bytes)
            && let Some(reuse_time) = reuse_time
        {
            self.measured.add(reuse_time, 1.0);
            self.distance_bytes.add(reuse_time, distance_at_rate_one(depth_bytes, own_bytes, rate) as f64);
        }
        self.model.record(access);
        if self.model.rate() < rate {
            self.stack.keep(self.model.rate());
        }
    }

    /// Forgets what was measured.
    pub fn forget_counts(&mut self) {
        self.model.forget_counts();
        self.measured.scale(0.0);
        self.distance_bytes.scale(0.0);
    }

    /// By bucket of reuse times, what the depth is to be multiplied by that a model gives.
    pub fn factors(&self) -> Vec<f64> {
        let depths = self.model.depths(self.model.rate().rate(), 1.0);
        let buckets = self.measured.iter().zip(self.distance_bytes.iter()).zip(&depths);
        let of_bucket: Vec<(f64, f64)> = buckets
            .map(|(((_, _, n), (_, _, bytes)), depth)| if *depth > 0.0 { (n, bytes / depth) } else { (0.0, 0.0) })
            .collect();
        let mut factors = Vec::with_capacity(of_bucket.len());
        for i in 0..of_bucket.len() {
            let near = &of_bucket[i.saturating_sub(NEIGHBOURS)..(i + NEIGHBOURS + 1).min(of_bucket.len())];
            let (n, sum) = near.iter().fold((0.0, 0.0), |(n, sum), of| (n + of.0, sum + of.1));
            factors.push(beyond_chance((sum + PRIOR_DISTANCES) / (n + PRIOR_DISTANCES)));
        }
        factors
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.model.memory_bytes() + self.stack.memory_bytes() + 2 * self.measured.memory_bytes()
    }
}

/// The factor, where it is far enough from 1.
fn beyond_chance(factor: f64) -> f64 {
    let off = factor - 1.0;
    off.signum().mul_add((2.0 * (off.abs() - CHANCE)).clamp(0.0, off.abs()), 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::even_sizes;
    use crate::model::testing::{exact_curve, fed};
    use crate::sampling::SampleRate;
    use crate::units::KeyHash;

    #[test]
    fn small_differences_are_chance() {
        for (measured, taken) in
            [(1.0, 1.0), (1.02, 1.0), (0.97, 1.0), (1.045, 1.03), (0.955, 0.97), (1.5, 1.5), (0.5, 0.5)]
        {
            assert!((beyond_chance(measured) - taken).abs() < 1e-9, "{measured}: {}", beyond_chance(measured));
        }
    }

    /// Up and down again: a key comes back after twice as long as it lies deep, soon or late, where AET takes it for
    /// one of all.
    #[test]
    fn a_scan_that_turns_round_is_modelled() {
        let n = 5_000;
        let number = |i: u64| if (i / n).is_multiple_of(2) { i % n } else { n - 1 - i % n };
        let accesses: Vec<Access> = (0..20 * n).map(|i| Access::read(KeyHash::of_number(number(i)), 100)).collect();
        let sizes = even_sizes(n * 100, 40);
        let truth = exact_curve(&accesses, &sizes);
        let tenth = Sampling::Rate(SampleRate::new(0.1).unwrap());
        for (sampling, error_max) in [(Sampling::ALL, 0.01), (tenth, 0.02)] {
            let plain = fed(Eaet::with_clock(sampling, Counted::ReadsAndWrites, Clock::Bytes), &accesses);
            let plain = plain.curve(&sizes).mean_absolute_error(&truth, &sizes);
            let model = fed(Eaet::calibrated(sampling, Counted::ReadsAndWrites), &accesses);
            let error = model.curve(&sizes).mean_absolute_error(&truth, &sizes);
            assert!(error < error_max && plain > 0.12, "{sampling:?}: {error}, without calibration {plain}");
        }
    }
}
