//! Policies against libCacheSim's own tests (`test/test_evictionAlgo.c` there): misses on its disk trace, at equal
//! costs, by memory. The trace is among the development traces; where it isn't at hand, that is said and is no
//! failure. Sizes are those a key came with first, as in that program's trace.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tenure_core::access::{Access, Op};
use tenure_sim::grid::{GridConfig, replay_in_memory};
use tenure_sim::policies::PolicyName;
use tenure_sim::replay::ReplayConfig;
use tenure_sim::settings::Settings;
use tenure_sim::trace::{TraceOptions, TraceReader};

const TRACE: &str = "blk_cloudphysics_vscsi.csv.gz";
const STEP_BYTES: u64 = 128 << 20;

/// Misses at 1 to 8 steps of memory, and how far off ours may be.
const MISSES: &[(&str, [u64; 8], f64)] = &[
    ("lru", [93_374, 89_783, 83_572, 81_722, 72_494, 72_104, 71_972, 71_704], 0.0),
    // By samples, before the first model: ours misses 1 to 2.5 % less.
    ("lhd", [90_534, 86_891, 82_334, 77_339, 71_355, 66_938, 63_677, 61_116], 0.03),
    ("gdsf", [89_070, 84_750, 74_850, 70_490, 67_923, 64_180, 61_027, 58_721], 0.02),
];

fn trace() -> Option<Arc<[Access]>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = std::env::var_os("TENURE_TRACES").map_or(beside, Into::into).join(TRACE);
    let mut first: HashMap<_, u32> = HashMap::new();
    let reader = path.is_file().then(|| TraceReader::open(&path, TraceOptions::default()).unwrap())?;
    let equal = |access: Access| {
        let size_bytes = *first.entry(access.key).or_insert(access.size_bytes);
        Access { size_bytes, penalty_us: 1.0, op: Op::Read, ..access }
    };
    Some(reader.map(|access| access.unwrap()).map(equal).collect())
}

#[test]
fn misses_are_those_of_libcachesim() {
    let Some(accesses) = trace() else {
        println!("SKIPPED: {TRACE} is absent; TENURE_TRACES says where traces are");
        return;
    };
    let bytes: u64 = accesses.iter().map(|access| u64::from(access.size_bytes)).sum();
    assert_eq!((accesses.len(), bytes), (113_872, 4_368_040_448), "the trace as libCacheSim has it");
    for &(policy, misses, tolerance) in MISSES {
        let mut settings = Settings::default();
        settings.plan.window_requests = 1 << 20;
        let config = GridConfig {
            policies: vec![policy.parse::<PolicyName>().unwrap()],
            capacities_bytes: (1..=8).map(|steps| steps * STEP_BYTES).collect(),
            replay: ReplayConfig::default(),
            settings,
            seed: 1,
            threads: 1,
        };
        for (row, theirs) in replay_in_memory(&accesses, &config, &|_| {}).unwrap().iter().zip(misses) {
            let ours = row.report.miss_ratio * accesses.len() as f64;
            println!("{policy} {:>4} MiB: {ours:.0}, there {theirs}", row.report.memory_bytes >> 20);
            assert!((ours / theirs as f64 - 1.0).abs() <= tolerance + 1e-9, "{policy}: {ours} misses for {theirs}");
        }
    }
}
