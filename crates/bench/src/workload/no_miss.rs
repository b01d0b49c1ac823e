//! Everything fits and every read hits: what watching costs when there is nothing to gain.
//!
//! Source: pRedis (SoCC'19) sec. 6.5.3, a stress test of ten GETs per SET, 32-byte values, 50 clients per thread;
//! and, for clusters, Scalable and Reliable Redis (TrustCom'16) sec. IV, nine GETs per SET of 100 bytes. Keys are
//! drawn uniformly, so that the server's own caches are no kinder than in use.

use super::keys::KeyTable;
use super::zipfian::Random;
use super::{Operation, Request, Size, Stream};

/// The warm-up is for the caches and the module's tables.
pub(super) const SIZE: Size = Size { n_keys: 100_000, n_warmup: 200_000, n_requests: 2_000_000 };

/// What is written, and how often.
pub(super) struct Mix {
    name: &'static str,
    value_bytes: u32,
    /// One request in so many is a SET.
    cycle: usize,
}

/// Ten GETs, then a SET.
pub(super) const NO_MISS: Mix = Mix { name: "no-miss", value_bytes: 32, cycle: 11 };
/// Nine GETs, then a SET.
pub(super) const SLOTS: Mix = Mix { name: "slots", value_bytes: 100, cycle: 10 };
/// Fewer than of the others: each request is one round trip.
pub(super) const SLOTS_SIZE: Size = Size { n_keys: 100_000, n_warmup: 20_000, n_requests: 200_000 };

pub(super) fn generate(mut keys: KeyTable, mix: &Mix, size: Size, seed: u64) -> Stream {
    for number in 0..size.n_keys {
        keys.add(format!("memtier-{number}").as_bytes(), 0, mix.value_bytes);
    }
    let mut random = Random::new(seed);
    let next = |index: usize| {
        let operation = if index % mix.cycle == mix.cycle - 1 { Operation::Write } else { Operation::Read };
        Request::on(operation, random.below(size.n_keys as u64) as u32, mix.value_bytes)
    };
    let requests = (0..size.n_warmup + size.n_requests).map(next).collect();
    Stream { name: mix.name.into(), keys, requests, scans: Vec::new(), n_warmup: size.n_warmup, pace: None }
}
