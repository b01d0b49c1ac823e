//! What the models that sample stack distances count: requests, and at which cache size each would have hit.
//!
//! Sources: SHARDS (Waldspurger et al., FAST'15) for scaling distances by 1 / rate and for SHARDS-adj. The sample
//! holds too few or too many requests, against requests × rate; the difference belongs to a few hot keys. It is
//! counted as hits in any cache, but for requests that deletes outside the sample turn into misses (`deletes.rs`). The
//! rate may be corrected by a census (`census.rs`).
//!
//! Our own is [`distance_at_rate_one`]: of a distance only the bytes *above* the key are a sample and are scaled; its
//! own bytes are known. Scaling both puts every distance off by (1 / rate - 1) × its size, half a bucket of 40 at 80
//! sampled keys.

use super::Counted;
use super::census::Correction;
use super::deletes::Deletes;
use super::distances::Distances;
use crate::access::{Access, Op};
use crate::curve::MissRatioCurve;
use crate::sampling::SampleRate;

/// The distance, in bytes, of a key that lies `depth_bytes` deep (its own included) in a stack of sampled keys.
pub(super) fn distance_at_rate_one(depth_bytes: u64, own_bytes: u64, rate: SampleRate) -> u64 {
    if rate == SampleRate::ALL {
        return depth_bytes;
    }
    let above_bytes = depth_bytes.saturating_sub(own_bytes) as f64;
    (above_bytes / rate.rate()) as u64 + own_bytes
}

/// The counts. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    counted: Counted,
    /// In weights of `unit` each, so that thinning needn't touch them.
    distances: Distances,
    unit: f64,
    /// Counted requests of the stream, sampled or not.
    requests: f64,
    /// Counted requests of sampled keys.
    sampled: f64,
    deletes: Deletes,
}

/// The unit is made 1 again where it falls below this.
const UNIT_MIN: f64 = 1e-100;

impl Tally {
    pub fn new(counted: Counted) -> Self {
        Tally {
            counted,
            distances: Distances::rounded(),
            unit: 1.0,
            requests: 0.0,
            sampled: 0.0,
            deletes: Deletes::default(),
        }
    }

    /// Counts requests of the stream.
    pub fn advance(&mut self, requests: f64) {
        self.requests += requests;
    }

    /// Counts deletes of the stream.
    pub fn advance_deletes(&mut self, deletes: f64) {
        self.deletes.advance(deletes);
    }

    /// Counts one access of the stream, where it is a request that counts, or a delete.
    #[inline]
    pub fn advance_by(&mut self, access: &Access) {
        if self.counted.includes(access.op) {
            self.requests += 1.0;
        } else if access.op == Op::Delete {
            self.deletes.advance(1.0);
        }
    }

    /// Counts one delete of a sampled key, and whether the key was there.
    pub fn count_delete(&mut self, found: bool) {
        self.deletes.count(found);
    }

    /// Counts one access of a sampled key and the least capacity that holds it; `None` where no cache does.
    pub fn count(&mut self, access: &Access, distance_bytes: Option<u64>) {
        let counts = self.counted.includes(access.op);
        if distance_bytes.is_none() {
            self.deletes.began(counts);
        }
        if !counts {
            return;
        }
        self.sampled += 1.0;
        if let Some(distance_bytes) = distance_bytes {
            self.distances.add(distance_bytes, 1.0 / self.unit);
        }
    }

    /// One access of a sampled key says nothing: the requests that it stands for are none.
    pub fn leave_out(&mut self, access: &Access, rate: SampleRate) {
        if self.counted.includes(access.op) {
            self.requests -= 1.0 / rate.rate();
        }
    }

    /// Everything counted so far weighs `decay` of what it did.
    pub fn decay(&mut self, decay: f64) {
        self.requests *= decay;
        self.deletes.decay_stream(decay);
        self.thin(decay);
    }

    /// The sample is thinned to the share `share` of what it was. O(1), amortized.
    pub fn thin(&mut self, share: f64) {
        self.sampled *= share;
        self.deletes.scale_sample(share);
        self.unit *= share;
        if self.unit == 0.0 {
            self.distances.clear();
            self.unit = 1.0;
        } else if self.unit < UNIT_MIN {
            self.distances.scale(self.unit);
            self.unit = 1.0;
        }
    }

    /// The miss ratio at each of `sizes_bytes`, for distances that were scaled by `rate`, with SHARDS-adj.
    pub fn curve(&self, sizes_bytes: &[u64], rate: SampleRate, correction: Correction) -> MissRatioCurve {
        let expected = self.requests * correction.rate;
        let stretch = rate.rate() / correction.rate * correction.size_factor;
        let hits_missing = expected - self.sampled - self.deletes.misses_missing(correction.rate);
        self.distances.curve(sizes_bytes, stretch, expected / self.unit, hits_missing / self.unit)
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.distances.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_above_is_scaled() {
        let tenth = SampleRate::new(0.1).unwrap();
        assert_eq!(distance_at_rate_one(500, 100, tenth), 4_100);
        assert_eq!(distance_at_rate_one(100, 100, tenth), 100, "nothing above");
        assert_eq!(distance_at_rate_one(500, 100, SampleRate::ALL), 500);
    }
}
