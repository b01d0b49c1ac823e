//! Streams and simulations that the models' tests share.

use proptest::prelude::*;

use super::CurveModel;
use super::exact::{Exact, Measure};
use crate::access::{Access, Op};
use crate::curve::{CurvePoint, MissRatioCurve};
use crate::policy::cache::{Cache, KLru, Outcome};
use crate::random::Random;
use crate::units::KeyHash;

/// What a [`stream`] is made of.
#[derive(Clone, Copy)]
pub struct StreamConfig {
    /// Accesses.
    pub n: usize,
    /// Popular keys, drawn by a power law.
    pub keys: u64,
    /// One access in so many goes to a loop over `keys / 2` other keys; 0 = none.
    pub loop_every: u64,
    /// Largest size in bytes; sizes are uniform by key, from 1.
    pub size_bytes_max: u32,
    /// One access in so many is a delete; 0 = none.
    pub delete_every: u64,
}

impl Default for StreamConfig {
    fn default() -> Self {
        StreamConfig { n: 100_000, keys: 4_000, loop_every: 4, size_bytes_max: 1, delete_every: 0 }
    }
}

/// A mix of popular keys and a loop: LRU, random eviction and what lies between differ on it.
pub fn stream(config: StreamConfig) -> Vec<Access> {
    let mut random = Random::new(42);
    let mut at_in_loop = 0;
    let access = |i: usize| {
        let from_loop = config.loop_every > 0 && (i as u64).is_multiple_of(config.loop_every);
        let number = if from_loop {
            at_in_loop = (at_in_loop + 1) % (config.keys / 2);
            1_000_000 + at_in_loop
        } else {
            (random.unit().powi(3) * config.keys as f64) as u64
        };
        let key = KeyHash::of_number(number);
        let size_bytes = 1 + Random::new(key.0).below(u64::from(config.size_bytes_max)) as u32;
        let is_delete = config.delete_every > 0 && random.below(config.delete_every) == 0;
        Access::read(key, size_bytes).with_op(if is_delete { Op::Delete } else { Op::Read })
    };
    (0..config.n).map(access).collect()
}

/// The model after `accesses`.
pub fn fed<M: CurveModel>(mut model: M, accesses: &[Access]) -> M {
    accesses.iter().for_each(|access| model.record(access));
    model
}

/// The exact LRU curve.
pub fn exact_curve(accesses: &[Access], sizes_bytes: &[u64]) -> MissRatioCurve {
    fed(Exact::new(Measure::Bytes), accesses).curve(sizes_bytes)
}

/// Misses / requests of a K-LRU cache of `bytes`.
pub fn simulated(k: u32, bytes: u64, accesses: &[Access]) -> f64 {
    let mut cache = KLru::new(k, bytes, 3).unwrap();
    let outcomes: Vec<Outcome> = accesses.iter().map(|access| cache.access(access)).collect();
    let count = |wanted: Outcome| outcomes.iter().filter(|&&outcome| outcome == wanted).count() as f64;
    count(Outcome::Miss) / (count(Outcome::Miss) + count(Outcome::Hit)).max(1.0)
}

/// The curve of K-LRU by simulation at each size.
pub fn simulated_curve(k: u32, accesses: &[Access], sizes_bytes: &[u64]) -> MissRatioCurve {
    let at = |&bytes: &u64| CurvePoint { bytes, miss_ratio: simulated(k, bytes, accesses) };
    MissRatioCurve::new(sizes_bytes.iter().map(at).collect())
}

/// Few keys, sizes that change, deletes, times to live: everything that may happen, often. Keys below 4 have times to
/// live and are only written and deleted: a read that misses in small caches alone sets the time anew in those alone,
/// which no single stack can hold.
pub fn any_accesses(size_bytes_max: u32) -> impl Strategy<Value = Vec<Access>> {
    let one = (0..12_u64, 0..10_u8, 1..=size_bytes_max, 0..4_u64, 0..30_u64);
    proptest::collection::vec(one, 1..200).prop_map(|list| {
        let mut time_us = 0;
        let to_access = |(number, op, size_bytes, gap_us, ttl_us): (u64, u8, u32, u64, u64)| {
            time_us += gap_us;
            let op = [Op::Delete, Op::Write, Op::Write].get(op as usize).copied().unwrap_or(Op::Read);
            let access = Access { op, time_us, ..Access::read(KeyHash::of_number(number), size_bytes) };
            match (number < 4, op) {
                (true, Op::Delete) | (false, _) => access,
                (true, _) => Access { op: Op::Write, ttl_us, ..access },
            }
        };
        list.into_iter().map(to_access).collect()
    })
}
