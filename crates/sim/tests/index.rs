//! The development traces against what their index says of them, where they are at hand: `TENURE_TRACES`, or
//! `../shared/traces` beside the repository. They are not part of it, so their absence is said and is no failure.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::access::Access;
use tenure_sim::grid::{GridConfig, Survey, replay_in_memory};
use tenure_sim::policies::PolicyName;
use tenure_sim::replay::ReplayConfig;
use tenure_sim::settings::Settings;
use tenure_sim::trace::{Sizes, TraceOptions, TraceReader};

/// Requests, distinct keys, LRU miss ratio at 10 % and at 50 % of the keys, and Belady's at 10 % where the index has
/// it.
type Line = (&'static str, u64, u64, f64, f64, Option<f64>);

const INDEX: &[Line] = &[
    ("blk_arc_oltp", 914_145, 186_880, 0.335, 0.219, Some(0.238)),
    ("blk_arc_p12", 547_147, 114_223, 0.603, 0.257, Some(0.358)),
    ("blk_arc_p3", 238_578, 56_686, 0.821, 0.306, Some(0.463)),
    ("blk_cloudphysics_vscsi", 113_872, 48_974, 0.805, 0.627, Some(0.629)),
    ("cdn_adaptsize", 66_987, 36_815, 0.658, 0.570, Some(0.550)),
    ("kv_mooncake_synthetic", 121_877, 43_924, 0.740, 0.411, Some(0.494)),
    ("kv_scarab_recs", 1_245_184, 258_368, 0.394, 0.226, Some(0.250)),
    ("lirs_2_pools", 100_000, 9_939, 0.456, 0.272, Some(0.315)),
    ("lirs_cpp", 9_047, 1_223, 0.242, 0.141, Some(0.158)),
    ("lirs_gli", 6_015, 2_529, 0.991, 0.787, Some(0.822)),
    ("lirs_multi1", 15_858, 2_606, 0.566, 0.515, Some(0.472)),
    ("lirs_scan", 50_025, 2_001, 1.000, 1.000, Some(0.904)),
    ("lirs_sprite", 133_996, 7_075, 0.135, 0.057, Some(0.086)),
    ("web_products_2013", 76_118, 20_484, 0.443, 0.308, Some(0.319)),
    ("mix_dev_4tenants", 427_101, 100_612, 0.511, 0.276, Some(0.320)),
    ("syn_meta_assoc_leader", 600_000, 131_248, 0.550, 0.260, Some(0.335)),
    ("syn_meta_kvcache_l2_wc", 600_000, 167_848, 0.324, 0.282, Some(0.280)),
    ("syn_twstat_c04", 300_000, 11_310, 0.252, 0.083, Some(0.145)),
    ("syn_twstat_c17", 300_000, 4_920, 0.029, 0.021, Some(0.021)),
    ("syn_twstat_c23", 300_000, 77_460, 0.911, 0.578, None),
    ("syn_twstat_c34", 300_000, 6_090, 0.242, 0.085, Some(0.140)),
    ("syn_twstat_c44", 300_000, 4_950, 0.089, 0.032, Some(0.052)),
    ("syn_twstat_c52", 300_000, 9_210, 0.180, 0.067, Some(0.105)),
];

fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("TENURE_TRACES").map_or(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

fn load(folder: &Path, name: &str) -> Arc<[Access]> {
    let options = TraceOptions { sizes: Sizes::Fixed(1), ..TraceOptions::default() };
    let reader = TraceReader::open(folder.join(format!("{name}.csv.gz")), options).unwrap();
    // Every miss costs the same, writes' too, so that the clairvoyant minimises misses as the index's does.
    reader.map(|access| Access { penalty_us: 1.0, ..access.unwrap() }).collect()
}

fn miss_ratios(accesses: &Arc<[Access]>, policy: &str, capacities_bytes: Vec<u64>) -> Vec<f64> {
    let config = GridConfig {
        policies: vec![policy.parse::<PolicyName>().unwrap()],
        capacities_bytes,
        replay: ReplayConfig::default(),
        settings: Settings::default(),
        seed: 1,
        threads: 2,
    };
    let rows = replay_in_memory(accesses, &config, &|_| {}).unwrap();
    rows.iter().map(|row| row.report.miss_ratio).collect()
}

/// LRU exactly as the index has it (to its three decimals), at 10 % and 50 % of the keys; with room for all, cold
/// misses only.
#[test]
fn lru_is_as_the_index_says() {
    let Some(folder) = traces() else {
        println!("SKIPPED: no traces beside the repository and no TENURE_TRACES");
        return;
    };
    for &(name, requests, keys, at_10, at_50, _) in INDEX {
        let accesses = load(&folder, name);
        let survey = Survey::of(accesses.iter().map(|access| Ok::<_, ()>(*access))).unwrap();
        // The index counts keys that are only ever deleted, too; one trace has 20 of them.
        let only_deleted = if name == "syn_twstat_c23" { 20 } else { 0 };
        assert_eq!((survey.accesses, survey.distinct_keys), (requests, keys - only_deleted), "{name}");
        let got = miss_ratios(&accesses, "lru", vec![keys.div_ceil(10), keys.div_ceil(2), keys]);
        assert!((got[0] - at_10).abs() <= 0.0006, "{name} at 10 %: {} where the index has {at_10}", got[0]);
        assert!((got[1] - at_50).abs() <= 0.0006, "{name} at 50 %: {} where the index has {at_50}", got[1]);
        if name != "syn_twstat_c23" {
            let cold = keys as f64 / survey.requests as f64;
            assert!((got[2] - cold).abs() < 1e-9, "{name} with room for all: {} where {cold} are cold", got[2]);
        }
    }
}

/// The sampled clairvoyant stays within 0.025 of the exact one, and never beats it.
#[test]
fn the_clairvoyant_comes_near_the_optimum() {
    let Some(folder) = traces() else {
        println!("SKIPPED: no traces beside the repository and no TENURE_TRACES");
        return;
    };
    // Reads only: what a write saves is nothing in latency, but counts as a hit in the index.
    for name in
        ["blk_arc_p3", "kv_mooncake_synthetic", "lirs_2_pools", "lirs_sprite", "lirs_multi1", "web_products_2013"]
    {
        let &(_, _, keys, _, _, optimum) = INDEX.iter().find(|line| line.0 == name).unwrap();
        let got = miss_ratios(&load(&folder, name), "belady", vec![keys.div_ceil(10)])[0];
        let optimum = optimum.unwrap();
        assert!((optimum - 0.0006..optimum + 0.025).contains(&got), "{name}: {got} where the optimum is {optimum}");
    }
}
