//! What policies make of streams made for what learning is weak at (`tenure_sim::streams`): mean latency against
//! redis by memory, and after a change how many requests it takes until a policy is ahead of redis again.
//!
//! 6,000 keys and 150,000 accesses, windows of 7,500, the first fifth warms up; a policy is ahead again where three of
//! the following hundredths of the stream in a row cost less than under redis. Then the same from cold: all is
//! counted, and windows are as long as a server's. Run:
//! `cargo run --locked --release -p tenure-sim --example streams`; it takes 30 s.
//!
//! With a folder as argument it writes traces there instead, for `tenure bench`: those in which keys come and go
//! (`sessions.csv`, `feed.csv`, `renamed.csv`, `load.csv`, `handed.csv`) or are written and never read
//! (`counted.csv`), of 20,000 keys of 10 KB, 400,000 accesses each.

use std::io;
use std::sync::Arc;

use tenure_core::access::Access;
use tenure_core::policy::density::WINDOW_REQUESTS;
use tenure_core::policy::partitioned::PlanConfig;
use tenure_sim::grid::{GridConfig, Row, Survey, replay_in_memory};
use tenure_sim::policies::PolicyName;
use tenure_sim::replay::ReplayConfig;
use tenure_sim::streams::{SERVED_KEYS, Stream};

const KEYS: u64 = 6_000;
const READS: u64 = 150_000;
const STEP: u64 = READS / 100;
/// In percent of the footprint.
const MEMORY: [u64; 5] = [5, 10, 20, 40, 60];
const POLICIES: [&str; 4] = ["redis", "gdsf", "tenure", "bound"];

/// Of the traces for servers.
const SERVED: [Stream; 6] =
    [Stream::Sessions, Stream::Feed, Stream::Renamed, Stream::Load, Stream::Handed, Stream::Counted];
const SERVED_ACCESSES: u64 = 400_000;

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        print_table();
        return Ok(());
    };
    let write = |stream: Stream| stream.write_trace(stream.accesses(SERVED_KEYS, SERVED_ACCESSES, 1), folder.as_ref());
    SERVED.into_iter().try_for_each(write)
}

fn print_table() {
    println!("{:12} {:8} {}   ahead again after", "stream", "policy", MEMORY.map(|m| format!("{m:>5} %")).join(" "));
    let warm = ReplayConfig { warm_up: READS / 5, window_accesses: STEP, ..ReplayConfig::default() };
    Stream::ALL.into_iter().for_each(|stream| print_rows(stream, warm, READS / 20));
    println!("from cold, windows of {WINDOW_REQUESTS}");
    SERVED.into_iter().for_each(|stream| print_rows(stream, ReplayConfig::default(), WINDOW_REQUESTS));
}

fn print_rows(stream: Stream, counted: ReplayConfig, window_requests: u64) {
    let rows = replay(stream, counted, window_requests);
    let (redis, others) = rows.split_at(MEMORY.len());
    for (name, rows) in POLICIES[1..].iter().zip(others.chunks(MEMORY.len())) {
        print!("{:12} {name:8}", stream.name());
        for (row, redis) in rows.iter().zip(redis) {
            print!(" {:>7.3}", row.report.mean_latency_us / redis.report.mean_latency_us);
        }
        // The bound has no windows.
        for percent in stream.changes_percent().iter().filter(|_| *name != "bound") {
            let after = rows.iter().zip(redis).map(|(row, redis)| ahead_again(row, redis, *percent));
            print!("   {percent} %: {}", after.collect::<Vec<_>>().join(" "));
        }
        println!();
    }
}

/// All policies, each at all sizes of memory.
fn replay(stream: Stream, counted: ReplayConfig, window_requests: u64) -> Vec<Row> {
    let accesses: Arc<[Access]> = stream.accesses(KEYS, READS, 1).into();
    let survey = Survey::of(accesses.iter().map(|access| Ok::<_, ()>(*access))).expect("no errors in memory");
    let config = GridConfig {
        policies: POLICIES.map(|name| name.parse::<PolicyName>().expect("it is in the table")).to_vec(),
        capacities_bytes: MEMORY.map(|percent| survey.footprint_bytes * percent / 100).to_vec(),
        replay: counted,
        settings: PlanConfig { window_requests, ..PlanConfig::default() }.into(),
        seed: 1,
        threads: 1,
    };
    replay_in_memory(&accesses, &config, &|_| {}).expect("the settings are in range")
}

/// Requests from a change on until `row` is ahead of `redis`; `-` for never.
fn ahead_again(row: &Row, redis: &Row, percent: usize) -> String {
    let pairs: Vec<bool> = row
        .windows
        .iter()
        .zip(&redis.windows)
        .map(|(own, redis)| own.mean_latency_us < redis.mean_latency_us)
        .collect();
    let after = pairs.get(percent..).unwrap_or_default();
    let step = after.windows(3).position(|three| three.iter().all(|&is_ahead| is_ahead));
    step.map_or_else(|| "-".to_owned(), |step| (step as u64 * STEP).to_string())
}
