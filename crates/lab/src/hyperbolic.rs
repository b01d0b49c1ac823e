//! Hyperbolic caching: a value's worth is its requests per unit of time in the cache, times what a miss of it costs.
//!
//! Source: Blankstein, Sen and Freedman, ATC'17; as pRedis uses it: SoCC'19 eq. 1, cost × requests / residence time.
//! Per size, the worth is that of a byte. The score decays while nothing happens, so no order can be kept: it is
//! computed for a sample (64 values in the paper) when room is needed. A value that leaves is forgotten.

use tenure_core::policy::{Candidate, Scorer};

/// The scorer. See the file's opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hyperbolic {
    /// Whether the worth is divided by the size.
    pub per_size: bool,
}

/// How many values are sampled where nothing else is asked for.
pub const SAMPLE_SIZE: u32 = 64;

impl Scorer for Hyperbolic {
    #[inline]
    fn score(&self, candidate: &Candidate) -> f64 {
        let per_request = f64::from(candidate.n_requests) / candidate.resident.max(1) as f64;
        let worth = f64::from(candidate.penalty_us) * per_request;
        if self.per_size { worth / f64::from(candidate.size_bytes.max(1)) } else { worth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::units::PartitionId;

    /// Eq. 1: 4 requests in 10 at 100 µs are worth 40, 1 in 2 at 60 µs are worth 30; per byte it is the other way
    /// round.
    #[test]
    fn worth_is_cost_times_frequency() {
        let candidate = |n_requests, resident, penalty_us, size_bytes| Candidate {
            partition: PartitionId(0),
            idle: 0,
            resident,
            n_requests,
            size_bytes,
            penalty_us,
        };
        let (a, b) = (candidate(4, 10, 100.0, 20), candidate(1, 2, 60.0, 10));
        let plain = Hyperbolic { per_size: false };
        assert_eq!((plain.score(&a), plain.score(&b)), (40.0, 30.0));
        let per_size = Hyperbolic { per_size: true };
        assert_eq!((per_size.score(&a), per_size.score(&b)), (2.0, 3.0));
    }
}
