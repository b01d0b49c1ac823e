//! Fifteen tenants whose misses cost 2^0 to 2^14 µs: where knowing the penalty is worth most.
//!
//! Source: kRedis (Dynamic memory management, 2024) sec. 4.2.3.2, whose fifteen tenants have the same ladder of
//! penalties over Twitter's traces. Here the traffic is synthetic. Every tenant accesses its own keys equally often,
//! by a plain Zipf law of skew 0.8. Sizes are log-normal from 50 B to 64 KiB, fixed per key by its hash, as the
//! simulator draws them.

use tenure_core::units::KeyHash;
use tenure_sim::trace::LogNormalSizes;

use super::keys::KeyTable;
use super::zipfian::{Random, ZipfTable};
use super::{Operation, Request, Size, Stream};

/// How many tenants there are.
pub(crate) const N_TENANTS: usize = 15;

/// 4000 keys per tenant, 3.7 KB on average: a footprint of about 230 MB.
pub(super) const SIZE: Size = Size { n_keys: 60_000, n_warmup: 300_000, n_requests: 300_000 };

const THETA: f64 = 0.8;

pub(super) fn generate(mut keys: KeyTable, size: Size, seed: u64) -> Stream {
    let n_keys_each = size.n_keys.div_ceil(N_TENANTS);
    let sizes = LogNormalSizes::default_range();
    for tenant in 0..N_TENANTS {
        for rank in 0..n_keys_each {
            let name = format!("{tenant}-{rank}");
            keys.add(name.as_bytes(), tenant as u16, sizes.size_bytes(KeyHash::of(name.as_bytes())));
        }
    }
    let (zipf, mut random) = (ZipfTable::new(n_keys_each as u64, THETA), Random::new(seed));
    let next = |_| {
        let tenant = random.below(N_TENANTS as u64) as usize;
        let key = (tenant * n_keys_each) as u32 + zipf.draw(&mut random) as u32;
        Request::on(Operation::Read, key, keys.value_bytes(key))
    };
    let requests = (0..size.n_warmup + size.n_requests).map(next).collect();
    Stream { name: "tenants".into(), keys, requests, scans: Vec::new(), n_warmup: size.n_warmup, pace: None }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Assignment;
    use super::*;

    #[test]
    fn tenants_ask_equally_often_and_sizes_span_the_range() {
        let size = Size { n_keys: 15_000, n_warmup: 0, n_requests: 60_000 };
        let stream = generate(KeyTable::new(Assignment::ByTenant, 15), size, 1);
        assert_eq!((stream.keys.n_tenants(), stream.keys.len()), (15, 15_000));
        assert_eq!(stream.keys.name(1000), b"t01:1-0");
        let mut counts = [0; N_TENANTS];
        for request in &stream.requests {
            counts[stream.keys.tenant(request.key)] += 1;
            assert_eq!(request.value_bytes, stream.keys.value_bytes(request.key));
        }
        assert!(counts.iter().all(|count| (3700..4300).contains(count)), "{counts:?}");
        let sizes: Vec<u32> = (0..15_000).map(|key| stream.keys.value_bytes(key)).collect();
        assert!(sizes.iter().min().unwrap() < &100 && sizes.iter().max().unwrap() > &40_000);
        assert!(sizes.iter().all(|bytes| (50..=65_536).contains(bytes)));
    }
}
