//! What it is worth to count what all wait for one fetch: mean latency against redis where fetches take their time.
//!
//! Streams of `tenure_sim::streams`, 6,000 keys and 300,000 reads, whose misses cost 120 or 1,000 µs, at 1, 10 and
//! 100 µs between two reads; the first fifth warms up. `unaware` is Tenure's own policy that counts a miss as what it
//! costs whoever asks first. Run: `cargo run --locked --release -p tenure-sim --example delayed`; it takes a minute.

use std::sync::Arc;

use tenure_core::access::Access;
use tenure_core::policy::partitioned::PlanConfig;
use tenure_sim::grid::{GridConfig, Row, Survey, replay_in_memory};
use tenure_sim::policies::PolicyName;
use tenure_sim::replay::ReplayConfig;
use tenure_sim::settings::Settings;
use tenure_sim::streams::Stream;

const KEYS: u64 = 6_000;
const READS: u64 = 300_000;
const STREAMS: [Stream; 4] = [Stream::Equal, Stream::Swap, Stream::Phases, Stream::Drift];
const SPACING_US: [u64; 3] = [1, 10, 100];
/// In percent of the footprint.
const MEMORY: [u64; 3] = [5, 10, 40];
const POLICIES: [&str; 4] = ["redis", "gdsf", "va-cdh", "tenure"];

fn main() {
    println!(
        "{:8} {:>7} {:8} {:>8} {:>7} {:>7} {:>7}",
        "stream", "spacing", "policy", "delayed", "5 %", "10 %", "40 %"
    );
    for stream in STREAMS {
        for spacing_us in SPACING_US {
            let mut accesses = stream.accesses(KEYS, READS, 1);
            accesses.iter_mut().for_each(|access| access.time_us *= spacing_us);
            let accesses: Arc<[Access]> = accesses.into();
            let mut rows = replay(&accesses, &POLICIES, true);
            rows.extend(replay(&accesses, &["tenure"], false));
            let (redis, others) = rows.split_at(MEMORY.len());
            let names = POLICIES[1..].iter().chain(&["unaware"]);
            for (name, rows) in names.zip(others.chunks(MEMORY.len())) {
                let delayed = rows[0].report.delayed_hit_ratio;
                print!("{:8} {spacing_us:>4} µs {name:8} {delayed:>8.3}", stream.name());
                for (row, redis) in rows.iter().zip(redis) {
                    print!(" {:>7.3}", row.report.mean_latency_us / redis.report.mean_latency_us);
                }
                println!();
            }
        }
    }
}

/// These policies, each at all sizes of memory; Tenure's own counts what all wait, or doesn't.
fn replay(accesses: &Arc<[Access]>, policies: &[&str], is_aware: bool) -> Vec<Row> {
    let survey = Survey::of(accesses.iter().map(|access| Ok::<_, ()>(*access))).expect("no errors in memory");
    let plan = PlanConfig { window_requests: READS / 20, ..PlanConfig::default() };
    let config = GridConfig {
        policies: policies.iter().map(|name| name.parse::<PolicyName>().expect("it is in the table")).collect(),
        capacities_bytes: MEMORY.map(|percent| survey.footprint_bytes * percent / 100).to_vec(),
        replay: ReplayConfig { warm_up: READS / 5, delayed_hits: true, ..ReplayConfig::default() },
        settings: Settings { delayed_hits: is_aware, ..plan.into() },
        seed: 1,
        threads: 2,
    };
    replay_in_memory(accesses, &config, &|_| {}).expect("the settings are in range")
}
