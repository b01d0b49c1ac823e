//! What models one partition: EAET, or KRR for several sampling sizes, where the policy is to choose among them.

use tenure_core::access::Access;
use tenure_core::curve::{MissRatioCurve, even_sizes};
use tenure_core::model::CurveModel;
use tenure_core::model::eaet::{Counted, Eaet};
use tenure_core::model::merged::{MergedCurve, MergedKrr};
use tenure_core::policy::kredis::SAMPLE_SIZES;
use tenure_core::sampling::{SampleRate, Sampling};

/// Points of a KRR curve up to the memory there is, and as many up to what the partition's keys take, where that is less.
const CURVE_POINTS: usize = 100;
/// KRR forgets keys that don't fit in so many times the memory there is.
const BEYOND: u64 = 2;

/// Sampled keys remembered in all partitions together, at the most and at the least; more lower the rate, below its floor if
/// need be. In between, their memory may be 1/128 of the limit.
const SAMPLED_KEYS_MAX: usize = 1 << 18;
const SAMPLED_KEYS_MIN: usize = 1 << 13;
const SAMPLED_KEY_BYTES: u64 = 64;

/// Which models the worker runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modelling {
    /// EAET: recency, as if the longest idle key went.
    #[default]
    Recency,
    /// KRR for each of [`SAMPLE_SIZES`]: the plan says under which K a partition is evicted.
    SampleSizes,
    /// KRR for the K that is set.
    OneSampleSize(u32),
    /// EAET, and miniature caches that say which K serves the whole cache best.
    Miniatures,
    /// What keeping a key saves by what it has shown; and EAET, for people, on a part of the sample.
    Densities,
}

impl Modelling {
    /// Sampled keys that may be remembered in all partitions together under a limit of `memory_bytes`; 0 = none.
    pub fn sampled_keys_max(self, memory_bytes: u64) -> usize {
        // Half a megabyte of tables is there in any case.
        let least = if self == Modelling::Densities { SAMPLED_KEYS_MIN / 4 } else { SAMPLED_KEYS_MIN };
        let keys_max = match memory_bytes {
            0 => SAMPLED_KEYS_MAX,
            limit => ((limit / 128 / SAMPLED_KEY_BYTES) as usize).clamp(least, SAMPLED_KEYS_MAX),
        };
        match self {
            Modelling::SampleSizes => keys_max / SAMPLE_SIZES.len(),
            _ => keys_max,
        }
    }

    /// The share of the sampled keys that the partitions' models look at.
    pub fn share(self) -> f64 {
        if self == Modelling::Densities { 0.25 } else { 1.0 }
    }
}

/// The model of one partition.
pub enum Model {
    /// See [`Modelling::Recency`].
    Recency(Box<Eaet>),
    /// See [`Modelling::SampleSizes`] and [`Modelling::OneSampleSize`].
    SampleSizes(MergedKrr),
}

impl Model {
    /// A model that knows nothing.
    pub fn new(modelling: Modelling, rate: SampleRate, seed: u64) -> Model {
        match modelling {
            Modelling::Recency | Modelling::Miniatures | Modelling::Densities => {
                Model::Recency(Box::new(Eaet::new(rate, Counted::Reads)))
            }
            Modelling::SampleSizes => Model::krr(&SAMPLE_SIZES, rate, seed),
            Modelling::OneSampleSize(k) => Model::krr(&[k], rate, seed),
        }
    }

    fn krr(sample_sizes: &[u32], rate: SampleRate, seed: u64) -> Model {
        let krr = MergedKrr::new(sample_sizes, Sampling::Rate(rate), Counted::Reads, seed);
        Model::SampleSizes(krr.expect("the sizes that are merged are in range"))
    }

    /// Takes one access of a key in the sample; the partition has had `at` requests before.
    pub fn record_sampled(&mut self, access: &Access, at: u64) {
        match self {
            Model::Recency(eaet) if eaet.rate().takes(access.key) => eaet.record_sampled(access, at),
            Model::SampleSizes(krr) if krr.rate().takes(access.key) => krr.record_sampled(access),
            _ => {}
        }
    }

    /// Counts requests, and the reads among them, sampled or not.
    pub fn advance(&mut self, requests: u64, reads: u64) {
        match self {
            Model::Recency(eaet) => eaet.advance(requests, reads),
            Model::SampleSizes(krr) => krr.advance(reads),
        }
    }

    /// Thins or widens the sample.
    pub fn set_rate(&mut self, rate: SampleRate) {
        match self {
            Model::Recency(eaet) if rate < eaet.rate() => eaet.thin(rate),
            Model::Recency(eaet) => eaet.widen(rate),
            Model::SampleSizes(krr) => krr.set_rate(rate),
        }
    }

    /// A part of the stream goes by unseen.
    pub fn skip(&mut self) {
        match self {
            Model::Recency(eaet) => eaet.skip(),
            Model::SampleSizes(krr) => krr.skip(),
        }
    }

    /// The curve of reads, and of which K each of its points is.
    pub fn curve(&self, capacity_bytes: u64) -> (MissRatioCurve, Option<MergedCurve>) {
        match self {
            Model::Recency(eaet) => (eaet.full_curve(), None),
            Model::SampleSizes(krr) => {
                let merged = krr.merged(&sizes(capacity_bytes, krr.known_bytes()));
                (merged.curve().clone(), Some(merged))
            }
        }
    }

    /// Ends a window: what was counted weighs `decay`; what was last asked for more than `age` requests ago is forgotten, or what
    /// the memory there is holds in no case.
    pub fn end_window(&mut self, decay: f64, age: u64, capacity_bytes: u64) {
        match self {
            Model::Recency(eaet) => {
                eaet.decay(decay);
                eaet.all_known();
                eaet.forget_older_than(age);
            }
            Model::SampleSizes(krr) => {
                krr.end_window(decay);
                if capacity_bytes > 0 {
                    krr.forget_beyond(BEYOND * capacity_bytes);
                }
            }
        }
    }

    /// Sampled keys that are remembered.
    pub fn sampled_keys(&self) -> usize {
        match self {
            Model::Recency(eaet) => eaet.sampled_keys(),
            Model::SampleSizes(krr) => krr.sampled_keys(),
        }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Model::Recency(eaet) => eaet.memory_bytes(),
            Model::SampleSizes(krr) => krr.memory_bytes(),
        }
    }
}

/// Where the curve of a partition is looked at: even up to the memory there is (without a limit, to all that is known), and
/// finer up to what the partition's keys take.
fn sizes(capacity_bytes: u64, known_bytes: u64) -> Vec<u64> {
    let most = if capacity_bytes == 0 { known_bytes } else { capacity_bytes };
    let mut sizes = even_sizes(most.max(1), CURVE_POINTS);
    sizes.extend(even_sizes(known_bytes.clamp(1, most.max(1)), CURVE_POINTS));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_partition_is_looked_at_closely() {
        let sizes = sizes(1_000_000, 1000);
        assert_eq!((sizes[0], sizes[98], sizes.len()), (10, 990, 200));
        assert_eq!(super::sizes(0, 500).last(), Some(&500));
        assert_eq!(super::sizes(0, 0), [1]);
    }
}
