//! Everything fits and every read hits: what watching costs when there is nothing to gain.
//!
//! Source: pRedis (SoCC'19) sec. 6.5.3, a stress test of ten GETs per SET, 32-byte values, 50 clients per thread. Keys are drawn
//! uniformly, so that the server's own caches are no kinder than in use.

use super::keys::KeyTable;
use super::zipfian::Random;
use super::{Operation, Request, Size, Stream};

/// The warm-up is for the caches and the module's tables.
pub(super) const SIZE: Size = Size { n_keys: 100_000, n_warmup: 200_000, n_requests: 2_000_000 };

const VALUE_BYTES: u32 = 32;

/// Ten GETs, then a SET.
const CYCLE: usize = 11;

pub(super) fn generate(mut keys: KeyTable, size: Size, seed: u64) -> Stream {
    for number in 0..size.n_keys {
        keys.add(format!("memtier-{number}").as_bytes(), 0, VALUE_BYTES);
    }
    let mut random = Random::new(seed);
    let next = |index: usize| {
        let operation = if index % CYCLE == CYCLE - 1 { Operation::Write } else { Operation::Read };
        Request::on(operation, random.below(size.n_keys as u64) as u32, VALUE_BYTES)
    };
    let requests = (0..size.n_warmup + size.n_requests).map(next).collect();
    Stream { name: "no-miss".into(), keys, requests, scans: Vec::new(), n_warmup: size.n_warmup, pace: None }
}
