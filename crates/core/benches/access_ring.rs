//! What it costs to remember each access, beside a server's other work: ns of processor time per access, at once and
//! by the ring.
//!
//! A table of 64 MiB with compact entries (256 KiB under `cargo test`), which no cache of the processor holds, and
//! accesses to 2,000,000 keys drawn at random. Between two of them lies other work of about a thousand cycles, each
//! step waiting for the one before, as a command's does; its own time is taken off. `at once` puts each access into
//! the table as it comes; `ring` notes it, and 32 are put in together with their cache lines read ahead. The checksum
//! is of the table.
//!
//! Run: `cargo bench --locked -p tenure-core --bench access_ring`; it takes 20 s. On a quiet Xeon with two cores, 22
//! November 2026, twice: 192 and 212 ns at once, 60 and 66 by the ring. Of full entries alone (`KeyTable::new`) it was
//! 136 and 138, and 30.

mod support;

use std::hint::black_box;

use support::ProcessorTime;
use tenure_core::access_ring::{AccessRing, Kind, REQUESTS_PER_TICK};
use tenure_core::key_table::KeyTable;
use tenure_core::random::Random;
use tenure_core::units::KeyHash;

const SEED: u64 = 1;
const ROUNDS: usize = 5;
/// Steps of other work between two accesses: three multiplications each wait for one another.
const STEPS: usize = 100;

/// How the accesses get into the table.
#[derive(Clone, Copy)]
enum How {
    Never,
    AtOnce,
    Ring,
}

fn main() {
    // `cargo bench` passes --bench, `cargo test` doesn't.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (table_bytes, keys, n) = if is_bench { (64 << 20, 2_000_000, 2_000_000) } else { (256 << 10, 8_000, 20_000) };
    println!("{:8} {:>10} {:>12}", "how", "ns/access", "checksum");
    let (idle_ns, _) = best(How::Never, table_bytes, keys, n);
    for (name, how) in [("at once", How::AtOnce), ("ring", How::Ring)] {
        let (ns, checksum) = best(how, table_bytes, keys, n);
        println!("{name:8} {:>10.1} {checksum:>12}", (ns - idle_ns) / n as f64);
    }
}

/// The shortest of some rounds, and the table's checksum after it.
fn best(how: How, table_bytes: u64, keys: u64, n: u64) -> (f64, u64) {
    let rounds = (0..ROUNDS).map(|_| round(how, table_bytes, keys, n));
    rounds.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are rounds")
}

fn round(how: How, table_bytes: u64, keys: u64, n: u64) -> (f64, u64) {
    let (mut table, mut accesses, mut random) =
        (KeyTable::with_compact_entries(table_bytes, REQUESTS_PER_TICK), AccessRing::default(), Random::new(SEED));
    accesses.turn(true);
    let mut work = 1_u64;
    // The first pass fills the table.
    for _ in 0..n {
        accesses.note(&mut table, KeyHash::of_number(random.below(keys)), Kind::Accessed);
    }
    let began = ProcessorTime::now();
    for _ in 0..n {
        let key = KeyHash::of_number(random.below(keys));
        match how {
            How::Never => drop(black_box(key)),
            How::Ring => drop(accesses.note(&mut table, key, Kind::Accessed)),
            How::AtOnce => {
                accesses.note(&mut table, key, Kind::Accessed);
                accesses.settle(&mut table);
            }
        }
        for _ in 0..STEPS {
            work = (work ^ (work >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    black_box(work);
    accesses.settle(&mut table);
    (began.elapsed_ns(), table.displaced() + table.len() as u64)
}
