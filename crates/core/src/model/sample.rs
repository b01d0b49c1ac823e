//! A sample of a stream's keys, as the models have it that measure stack distances: its rate, what was counted, and
//! the census that corrects the rate.

use super::Counted;
use super::census::Census;
use super::tally::Tally;
use crate::access::Access;
use crate::curve::MissRatioCurve;
use crate::sampling::{SampleRate, Sampling};

/// The sample. See the file's opening.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Its rate now.
    pub rate: SampleRate,
    /// What was counted of it.
    pub tally: Tally,
    census: Census,
}

impl Sample {
    /// A sample of nothing yet.
    pub fn new(sampling: Sampling, counted: Counted) -> Self {
        Sample { rate: sampling.rate(), tally: Tally::new(counted), census: Census::beside(sampling) }
    }

    /// One access of the stream; true where its key is in the sample.
    pub fn takes(&mut self, access: &Access) -> bool {
        self.tally.advance_by(access);
        self.census.record(access);
        self.rate.takes(access.key)
    }

    /// Goes on at another rate, as if what was counted had been sampled so from the start.
    pub fn set_rate(&mut self, rate: SampleRate) {
        self.tally.thin(rate.rate() / self.rate.rate());
        self.rate = rate;
    }

    /// As [`CurveModel::curve`](super::CurveModel::curve).
    pub fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        self.tally.curve(sizes_bytes, self.rate, self.census.correction(self.rate))
    }

    /// Own memory beyond this, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.tally.memory_bytes() + self.census.memory_bytes()
    }
}
