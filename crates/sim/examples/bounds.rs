//! How much tighter cost-FOO (`tenure_sim::foo`) is than the bound of the ladder (`tenure_sim::bound`), on the first
//! accesses of traces: mean miss penalty of each, and of the first over the second.
//!
//! Two backends of 120 and 1000 µs, 10, 25 and 50 % of the footprint, sizes of 1 KiB and the trace's or drawn ones.
//! Run: `cargo run --locked --release -p tenure-sim --example bounds TRACE…`; a trace takes some seconds.

use std::sync::Arc;

use tenure_core::access::Access;
use tenure_sim::bound::bound;
use tenure_sim::costs::backend_of;
use tenure_sim::foo::least_penalty_us;
use tenure_sim::grid::Survey;
use tenure_sim::offline::Offline;
use tenure_sim::trace::{LogNormalSizes, Sizes, TraceOptions, TraceReader};

const ACCESSES: usize = 4_000;
const PENALTIES_US: [f32; 2] = [120.0, 1000.0];
const FIXED_BYTES: u32 = 1024;
const MEMORY_PERCENT: [u64; 3] = [10, 25, 50];

fn main() -> anyhow::Result<()> {
    println!("{:28} {:9} {:>6} {:>10} {:>10} {:>7}", "trace", "sizes", "memory", "by sum", "cost-FOO", "ratio");
    for path in std::env::args().skip(1) {
        let sizes = Sizes::TraceOrDrawn(LogNormalSizes::default_range());
        let reader = TraceReader::open(&path, TraceOptions { sizes, ..TraceOptions::default() })?;
        let own = reader.take(ACCESSES).collect::<Result<Vec<Access>, _>>()?;
        for (name, fixed) in [("fixed", Some(FIXED_BYTES)), ("variable", None)] {
            let costed = own.iter().map(|access| Access {
                penalty_us: PENALTIES_US[backend_of(access.key, PENALTIES_US.len())],
                size_bytes: fixed.unwrap_or(access.size_bytes),
                ttl_us: 0,
                ..*access
            });
            compare(&path, name, &costed.collect());
        }
    }
    Ok(())
}

fn compare(path: &str, sizes: &str, accesses: &Arc<[Access]>) {
    let survey = Survey::of(accesses.iter().map(|access| Ok::<_, ()>(*access))).expect("no errors in memory");
    let (offline, n) = (Offline::new(Arc::clone(accesses)), accesses.len() as f64);
    for percent in MEMORY_PERCENT {
        let capacity = survey.footprint_bytes * percent / 100;
        let by_sum = bound(&offline, &[capacity], 0, 0.0)[0].penalty_us_total / n;
        let flow = least_penalty_us(&offline, capacity, 0).expect("nothing expires") / n;
        let name = path.rsplit('/').next().unwrap_or(path);
        println!("{name:28} {sizes:9} {percent:>5}% {by_sum:>10.2} {flow:>10.2} {:>7.4}", flow / by_sum);
    }
}
