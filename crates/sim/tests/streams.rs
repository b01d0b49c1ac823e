//! Tenure's own policy on streams made for what it is weak at: nowhere worse than stock by more than 1 %.

use std::sync::Arc;

use tenure_core::access::Access;
use tenure_core::policy::density::WINDOW_REQUESTS;
use tenure_core::policy::partitioned::PlanConfig;
use tenure_sim::grid::{GridConfig, Survey, replay_in_memory};
use tenure_sim::replay::ReplayConfig;
use tenure_sim::streams::Stream;

const KEYS: u64 = 6_000;
const READS: u64 = 150_000;
/// Memory, in percent of the footprint.
const MEMORY_PERCENT: [u64; 4] = [5, 10, 20, 40];

/// Mean latency of tenure by memory, where that of redis is 1. The first fifth warms up.
fn against_redis(stream: Stream) -> [f64; 4] {
    replayed(stream, MEMORY_PERCENT, READS / 20, READS / 5)
}

fn replayed<const N: usize>(stream: Stream, memory_percent: [u64; N], window_requests: u64, warm_up: u64) -> [f64; N] {
    let accesses: Arc<[Access]> = stream.accesses(KEYS, READS, 1).into();
    let survey = Survey::of(accesses.iter().map(|access| Ok::<_, ()>(*access))).unwrap();
    let config = GridConfig {
        policies: ["redis", "tenure"].map(|name| name.parse().unwrap()).to_vec(),
        capacities_bytes: memory_percent.map(|percent| survey.footprint_bytes * percent / 100).to_vec(),
        replay: ReplayConfig { warm_up, ..ReplayConfig::default() },
        settings: PlanConfig { window_requests, ..PlanConfig::default() }.into(),
        seed: 1,
        threads: 1,
    };
    let rows = replay_in_memory(&accesses, &config, &|_| {}).unwrap();
    std::array::from_fn(|i| rows[N + i].report.mean_latency_us / rows[i].report.mean_latency_us)
}

const DEAR: [Stream; 3] = [Stream::DearBurst, Stream::DearBursts, Stream::DearAlways];

/// Issue 6, "Known weakness": at unseen ages expensive keys that never come again were expected to, and stayed (1.022
/// and 1.038 at 20 and 40 % of memory).
#[test]
fn bursts_of_dear_keys_that_never_come_again_cost_no_more_than_under_redis() {
    for stream in DEAR {
        let latencies = against_redis(stream);
        assert!(latencies.iter().all(|&latency| latency < 1.0), "{stream}: {latencies:?}");
    }
}

#[test]
fn on_no_stream_is_it_worse_than_redis() {
    for stream in Stream::ALL.into_iter().filter(|stream| !DEAR.contains(stream)) {
        let latencies = against_redis(stream);
        assert!(latencies.iter().all(|&latency| latency < 1.01), "{stream}: {latencies:?}");
    }
}

/// Nothing was learned before, and keys come and go, so that the number of a key's requests says little. Who believes
/// it for three full windows of a server has most of these streams behind: 1.25, 1.05, 1.10 and 1.19 were the worst.
#[test]
fn from_cold_it_is_hardly_worse_than_redis_where_keys_come_and_go() {
    for stream in [Stream::Sessions, Stream::Feed, Stream::Renamed, Stream::Load] {
        let latencies = replayed(stream, [5, 10, 20, 40, 60], WINDOW_REQUESTS, 0);
        assert!(latencies.iter().all(|&latency| latency < 1.03), "{stream}: {latencies:?}");
    }
}
