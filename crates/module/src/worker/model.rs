//! What models one partition: EAET, or KRR for several sampling sizes, where the policy is to choose among them.

use tenure_core::access::Access;
use tenure_core::curve::MissRatioCurve;
use tenure_core::model::CurveModel;
use tenure_core::model::eaet::{Counted, Eaet};
use tenure_core::model::merged::{MERGED_SAMPLE_SIZES, MergedCurve, MergedKrr, sizes_of_interest};
use tenure_core::sampling::{SampleRate, Sampling};

/// KRR forgets keys that don't fit in so many times the memory there is.
const BEYOND: u64 = 2;

/// Sampled keys remembered in all partitions together, at the most and at the least; more lower the rate, below its
/// floor if need be. In between, their memory may be 1/128 of the limit.
const SAMPLED_KEYS_MAX: usize = 1 << 18;
const SAMPLED_KEYS_MIN: usize = 1 << 13;
const SAMPLED_KEY_BYTES: u64 = 64;
const MEMORY_SHARE: u64 = 128;
/// Densities are learned well from fewer (docs/decisions/15-rankings.md). Under a limit that is a power of two these
/// fill the maps' tables, which are too, to four fifths: some more would double them.
const DENSITIES_SHARE: u64 = 320;

/// Which models the worker runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modelling {
    /// EAET: recency, as if the longest idle key went.
    #[default]
    Recency,
    /// KRR for each of [`MERGED_SAMPLE_SIZES`]: the plan says under which K a partition is evicted.
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
        let (least, share) = match self {
            Modelling::Densities => (SAMPLED_KEYS_MIN / 4, DENSITIES_SHARE),
            _ => (SAMPLED_KEYS_MIN, MEMORY_SHARE),
        };
        let keys_max = match memory_bytes {
            0 => SAMPLED_KEYS_MAX,
            limit => ((limit / share / SAMPLED_KEY_BYTES) as usize).clamp(least, SAMPLED_KEYS_MAX),
        };
        match self {
            Modelling::SampleSizes => keys_max / MERGED_SAMPLE_SIZES.len(),
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
            Modelling::SampleSizes => Model::krr(&MERGED_SAMPLE_SIZES, rate, seed),
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

    /// Counts deletes, sampled or not: what the sample lacks of them tells misses that it lacks.
    pub fn advance_deletes(&mut self, deletes: u64) {
        match self {
            Model::Recency(eaet) => eaet.advance_deletes(deletes),
            Model::SampleSizes(krr) => krr.advance_deletes(deletes),
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
                let merged = krr.merged(&sizes_of_interest(capacity_bytes, krr.known_bytes()));
                (merged.curve().clone(), Some(merged))
            }
        }
    }

    /// Ends a window: what was counted weighs `decay`; what was last asked for more than `age` requests ago is
    /// forgotten, or what the memory there is holds in no case.
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

#[cfg(test)]
mod tests {
    use tenure_core::access::Op;
    use tenure_core::units::{KeyHash, TenantId};

    use super::*;

    /// A hot key that the sample lacks is read twice for each delete of it, so half of its reads miss whatever the
    /// memory. Twenty cold keys that are sampled are read as often all together, and deleted now and then.
    #[test]
    fn deletes_of_a_key_that_the_sample_lacks_are_misses() {
        let rate = SampleRate::new(0.5).unwrap();
        let cold: Vec<KeyHash> = (0..).map(KeyHash::of_number).filter(|&key| rate.takes(key)).take(20).collect();
        for modelling in [Modelling::Recency, Modelling::OneSampleSize(5)] {
            let mut model = Model::new(modelling, rate, 1);
            let (mut requests, mut deletes) = (0, 0);
            for round in 0..4_000_u64 {
                let (key, at) = (cold[round as usize % 20], requests);
                let access = |op| Access {
                    key,
                    op,
                    tenant: TenantId(0),
                    size_bytes: 100,
                    time_us: at,
                    ttl_us: 0,
                    penalty_us: 0.0,
                };
                model.record_sampled(&access(Op::Read), at);
                if round % 100 == 0 {
                    model.record_sampled(&access(Op::Delete), at);
                    deletes += 1;
                }
                requests += 2;
                deletes += round % 2;
            }
            model.advance(requests, requests);
            let untold = model.curve(1 << 20).0.miss_ratio_at(1 << 20);
            model.advance_deletes(deletes);
            let told = model.curve(1 << 20).0.miss_ratio_at(1 << 20);
            assert!(untold < 0.1 && (0.2..0.35).contains(&told), "{modelling:?}: {untold} untold, {told} told");
        }
    }
}
