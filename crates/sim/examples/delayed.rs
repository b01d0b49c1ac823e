//! What it is worth to count what all wait for one fetch: mean latency against redis where fetches take their time.
//!
//! Streams of `tenure_sim::streams` with 6,000 keys, 300,000 reads and misses of 120 or 1,000 µs, one read each µs or
//! each 10 µs. In others each read of every other key is three or ten, 1 µs apart, of 1,000 µs each, and the next comes
//! 100 µs after the first. The first fifth warms up. `unaware` is Tenure's own policy where a miss counts as what it
//! costs whoever asks first. Run: `cargo run --locked --release -p tenure-sim --example delayed`; it takes a minute.
//!
//! With a folder as argument it writes traces there instead, for `tenure bench`: `equal.csv` and `drift.csv`, ten reads
//! at once, of 20,000 keys of 10 KB, 600,000 reads each.

use std::io;
use std::sync::Arc;

use tenure_core::access::Access;
use tenure_core::policy::partitioned::PlanConfig;
use tenure_sim::costs::backend_of;
use tenure_sim::grid::{GridConfig, Row, Survey, replay_in_memory};
use tenure_sim::policies::PolicyName;
use tenure_sim::replay::ReplayConfig;
use tenure_sim::settings::Settings;
use tenure_sim::streams::{SERVED_KEYS, Stream};

const KEYS: u64 = 6_000;
const READS: u64 = 300_000;
/// Streams with so many µs between two reads, and so many reads at once of every other key.
const CASES: [(Stream, u64, u64); 10] = [
    (Stream::Equal, 1, 1),
    (Stream::Swap, 1, 1),
    (Stream::Phases, 1, 1),
    (Stream::Drift, 1, 1),
    (Stream::Equal, 10, 1),
    (Stream::Drift, 10, 1),
    (Stream::Equal, 100, 3),
    (Stream::Drift, 100, 3),
    (Stream::Equal, 100, 10),
    (Stream::Drift, 100, 10),
];
/// What a miss of a key costs that is read several times at once, in µs.
const AT_ONCE_US: f32 = 1000.0;
/// In percent of the footprint.
const MEMORY: [u64; 3] = [5, 10, 40];
const POLICIES: [&str; 4] = ["redis", "gdsf", "va-cdh", "tenure"];

/// Of the traces for servers.
const SERVED_READS: u64 = 600_000;

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        print_table();
        return Ok(());
    };
    let write = |stream: Stream| stream.write_trace(reads(stream, SERVED_KEYS, SERVED_READS, 100, 10), folder.as_ref());
    [Stream::Equal, Stream::Drift].into_iter().try_for_each(write)
}

fn print_table() {
    println!("stream       apart  at once policy    delayed     5 %    10 %    40 %");
    for (stream, apart_us, at_once) in CASES {
        let accesses = reads(stream, KEYS, READS, apart_us, at_once).collect();
        let mut rows = replay(&accesses, &POLICIES, true);
        rows.extend(replay(&accesses, &["tenure"], false));
        let (redis, others) = rows.split_at(MEMORY.len());
        let names = POLICIES[1..].iter().chain(&["unaware"]);
        for (name, rows) in names.zip(others.chunks(MEMORY.len())) {
            let delayed = rows[0].report.delayed_hit_ratio;
            print!("{:8} {apart_us:>6} µs {at_once:>8} {name:8} {delayed:>8.3}", stream.name());
            for (row, redis) in rows.iter().zip(redis) {
                print!(" {:>7.3}", row.report.mean_latency_us / redis.report.mean_latency_us);
            }
            println!();
        }
    }
}

/// The first `n_reads` of a stream in which every other key is read so often at once.
fn reads(stream: Stream, keys: u64, n_reads: u64, apart_us: u64, at_once: u64) -> impl Iterator<Item = Access> {
    let several = move |(i, access): (u64, Access)| {
        let n = if backend_of(access.key, 2) == 0 { 1 } else { at_once };
        let penalty_us = if at_once > 1 { AT_ONCE_US } else { access.penalty_us };
        (0..n).map(move |later| Access { time_us: i * apart_us + later, penalty_us, ..access })
    };
    (0..).zip(stream.accesses(keys, n_reads, 1)).flat_map(several).take(n_reads as usize)
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
