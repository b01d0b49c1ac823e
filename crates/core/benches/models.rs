//! What one request costs in each model, by sampling rate: ns of processor time per request of the stream, sampled or
//! not.
//!
//! The stream is fixed by its seed: 1,000,000 reads (20,000 under `cargo test`) of 100,000 keys, Zipf with exponent
//! 0.9 by inversion of the continuous law, values of 50 B to 64 KiB, log-uniform by key. Each model takes it once
//! from empty, so the figures hold its growth too. The checksum is of the curves: a change of it means that the work
//! changed, not its speed. Time is the thread's own (schedstat), so that neighbours on a shared machine count little;
//! caches they still share.
//!
//! Run: `cargo bench -p tenure-core --bench models`. On two hyperthreads of a 2.5 GHz Xeon that two other processes
//! used too, 21 November 2026, ns per request at rate 1 / 0.1 / 0.01, and memory at 0.01:
//!
//! ```text
//! exact                         266
//! SHARDS                        275 /    44 /  17     408 KiB
//! EAET                          108 /    28 /  16     309 KiB
//! KRR, K = 1                    598 /    76 /  16
//! KRR, K = 5                   2375 /   191 /  25     381 KiB
//! KRR, K = 16                  5431 /   430 /  33
//! merged, K = 1, 5, 8, 16     15407 /   990 / 126     1.5 MiB
//! miniature K = 5, 40 sizes       - /   710 /  47     1.7 MiB
//! simulated K-LRU, one size, K = 1, 5 and 16: 67, 71 and 84
//! ```

mod support;

use support::ProcessorTime;
use tenure_core::access::Access;
use tenure_core::curve::even_sizes;
use tenure_core::model::eaet::{Clock, Eaet};
use tenure_core::model::exact::{Exact, Measure};
use tenure_core::model::krr::Krr;
use tenure_core::model::merged::MergedKrr;
use tenure_core::model::miniature::Miniature;
use tenure_core::model::shards::Shards;
use tenure_core::model::{Counted, CurveModel};
use tenure_core::policy::cache::{Cache, KLru};
use tenure_core::random::Random;
use tenure_core::sampling::{SampleRate, Sampling};
use tenure_core::units::KeyHash;

const SEED: u64 = 1;
const KEYS: u64 = 100_000;
const ZIPF_EXPONENT: f64 = 0.9;
const ACCESSES: usize = 1_000_000;
const ACCESSES_IN_TESTS: usize = 20_000;

fn main() {
    // `cargo bench` passes --bench, `cargo test` doesn't.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let accesses = stream(if is_bench { ACCESSES } else { ACCESSES_IN_TESTS });
    let sizes_bytes = even_sizes(KEYS * 9_000, 40);
    println!("{:28} {:>6} {:>10} {:>12} {:>9}", "model", "rate", "ns/request", "memory", "checksum");
    for rate in [1.0, 0.1, 0.01] {
        let rate = SampleRate::new(rate).expect("these rates are allowed");
        for (name, model) in models(Sampling::Rate(rate), &sizes_bytes) {
            measure(name, &format!("{:.2}", rate.rate()), model, &accesses, &sizes_bytes);
        }
    }
    for (name, model) in bounded_models() {
        measure(name, "8192", model, &accesses, &sizes_bytes);
    }
    measure_k_lru(&accesses);
}

/// Every model that a rate makes sense for; exact only takes all keys, and a miniature at rate 1 is no miniature.
fn models(sampling: Sampling, sizes_bytes: &[u64]) -> Vec<(&'static str, Box<dyn CurveModel>)> {
    let counted = Counted::ReadsAndWrites;
    let krr = |k| Box::new(Krr::new(k, sampling, counted, SEED).expect("this K is allowed"));
    let mut models: Vec<(&'static str, Box<dyn CurveModel>)> = vec![
        ("shards", Box::new(Shards::new(sampling, counted))),
        ("eaet", Box::new(Eaet::with_clock(sampling, counted, Clock::Bytes))),
        ("eaet, calibrated", Box::new(Eaet::calibrated(sampling, counted))),
        ("krr K=1", krr(1)),
        ("krr K=5", krr(5)),
        ("krr K=16", krr(16)),
        (
            "merged K=1,5,8,16",
            Box::new(MergedKrr::new(&[1, 5, 8, 16], sampling, counted, SEED).expect("these K are allowed")),
        ),
    ];
    match sampling {
        Sampling::Rate(rate) if rate < SampleRate::ALL => {
            let build = |bytes| KLru::new(5, bytes, SEED).expect("this K is allowed");
            let miniature = Miniature::new(sizes_bytes, rate, counted, |bytes| Box::new(build(bytes)));
            models.push(("miniature K=5, 40 sizes", Box::new(miniature)));
        }
        _ => models.insert(0, ("exact", Box::new(Exact::new(Measure::Bytes)))),
    }
    models
}

fn bounded_models() -> Vec<(&'static str, Box<dyn CurveModel>)> {
    let (sampling, counted) = (Sampling::Keys(8192), Counted::ReadsAndWrites);
    vec![
        ("shards, number of keys", Box::new(Shards::new(sampling, counted))),
        ("eaet, number of keys", Box::new(Eaet::with_clock(sampling, counted, Clock::Bytes))),
        ("krr K=5, number of keys", Box::new(Krr::new(5, sampling, counted, SEED).expect("this K is allowed"))),
    ]
}

fn measure(name: &str, rate: &str, mut model: Box<dyn CurveModel>, accesses: &[Access], sizes_bytes: &[u64]) {
    let began = ProcessorTime::now();
    accesses.iter().for_each(|access| model.record(access));
    let ns = began.elapsed_ns() / accesses.len() as f64;
    let checksum: f64 = model.curve(sizes_bytes).points().iter().map(|point| point.miss_ratio).sum();
    println!("{name:28} {rate:>6} {ns:>10.1} {:>12} {checksum:>9.5}", model.memory_bytes());
}

/// The direct simulation that KRR stands in for: one cache of half the footprint.
fn measure_k_lru(accesses: &[Access]) {
    for k in [1, 5, 16] {
        let mut cache = KLru::new(k, KEYS * 4_500, SEED).expect("this K is allowed");
        let began = ProcessorTime::now();
        accesses.iter().for_each(|access| _ = cache.access(access));
        let ns = began.elapsed_ns() / accesses.len() as f64;
        let name = format!("k-lru K={k}, one size");
        println!("{name:28} {:>6} {ns:>10.1} {:>12} {:>9}", "1.00", cache.memory_bytes(), cache.evictions());
    }
}

fn stream(n: usize) -> Vec<Access> {
    let mut random = Random::new(SEED);
    let access = |_| {
        // Inversion of the continuous law: rank = n^(u) in the limit of exponent 1, ((n^(1-s) - 1) u + 1)^(1/(1-s))
        // below it.
        let rest = 1.0 - ZIPF_EXPONENT;
        let rank = (((KEYS as f64).powf(rest) - 1.0) * random.unit() + 1.0).powf(1.0 / rest);
        let key = KeyHash::of_number(rank as u64);
        let size_bytes = 50.0 * (65_536.0_f64 / 50.0).powf(Random::new(key.0).unit());
        Access::read(key, size_bytes as u32)
    };
    (0..n).map(access).collect()
}
