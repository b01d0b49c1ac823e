//! What holds for every policy: with room for all only cold misses, one seed one result, and K = 1 is random.

use std::sync::Arc;

use proptest::prelude::*;
use tenure_core::access::{Access, Op};
use tenure_core::policy::partitioned::PlanConfig;
use tenure_core::units::{KeyHash, TenantId};
use tenure_sim::grid::{GridConfig, Row, Survey, replay_in_memory};
use tenure_sim::policies::{POLICIES, PolicyName};
use tenure_sim::replay::{ReplayConfig, Report};

fn real_policies() -> Vec<PolicyName> {
    POLICIES.iter().map(|entry| entry.name.parse().unwrap()).collect()
}

fn every_policy() -> Vec<PolicyName> {
    [real_policies(), vec![PolicyName::BOUND]].concat()
}

fn replay(accesses: &Arc<[Access]>, policies: Vec<PolicyName>, capacity: u64, seed: u64) -> Vec<Row> {
    let config = GridConfig {
        policies,
        capacities_bytes: vec![capacity],
        replay: ReplayConfig::default(),
        settings: PlanConfig { window_requests: 50, sampled_keys_max: 32, ..PlanConfig::default() }.into(),
        seed,
        threads: 1,
    };
    replay_in_memory(accesses, &config, &|_| {}).unwrap()
}

/// A stream of few keys with all that an access may carry: sizes that change, writes, deletes, TTLs, tenants,
/// penalties.
fn stream() -> impl Strategy<Value = Arc<[Access]>> {
    let access = (0u64..40, 0u8..10, 1u32..30, 0u16..3, 1u32..2000, 0u64..60);
    prop::collection::vec(access, 1..400).prop_map(|steps| {
        let build =
            |(i, (key, op, size_bytes, tenant, penalty_us, ttl)): (usize, (u64, u8, u32, u16, u32, u64))| Access {
                key: KeyHash::of_number(key),
                op: [Op::Write, Op::Delete].get(op as usize).copied().unwrap_or(Op::Read),
                tenant: TenantId(tenant),
                size_bytes,
                time_us: i as u64,
                ttl_us: if ttl < 20 { ttl } else { 0 },
                penalty_us: penalty_us as f32,
            };
        steps.into_iter().enumerate().map(build).collect()
    })
}

fn untimed(row: &Row) -> Report {
    Report { ns_per_request: None, ..row.report.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nobody beats the bound, nobody holds more than the capacity, and a seed gives one result.
    #[test]
    fn no_policy_beats_the_bound(accesses in stream(), capacity in 1u64..300, seed in 0u64..4) {
        let rows = replay(&accesses, every_policy(), capacity, seed);
        let again = replay(&accesses, every_policy(), capacity, seed);
        let bound = untimed(rows.last().unwrap());
        for (row, same) in rows.iter().zip(&again) {
            prop_assert_eq!(untimed(row), untimed(same), "{}", row.policy);
            let paid = row.report.penalty_us_total;
            prop_assert!(bound.penalty_us_total <= paid + 1e-3, "{} pays {}, the bound {:?}", row.policy, paid, bound);
        }
    }

    /// With room for every size that a key ever has, all policies miss the same: what is cold, deleted or expired.
    /// Not so the bound, which may fill a value anew where that is cheap, unless a key's TTL and penalty are always
    /// the same: then waiting till a value expires is best.
    #[test]
    fn with_room_for_all_only_cold_misses_are_left(accesses in stream()) {
        let as_at_first = accesses.iter().map(|access| {
            let first = accesses.iter().find(|first| first.key == access.key).unwrap();
            Access { ttl_us: first.ttl_us, penalty_us: first.penalty_us, ..*access }
        });
        for (accesses, policies) in [(as_at_first.collect(), every_policy()), (accesses.clone(), real_policies())] {
            let rows = replay(&accesses, policies, 40 * 30, 1);
            for row in &rows {
                prop_assert_eq!(row.report.misses_rounded(), rows[0].report.misses_rounded(), "{}", row.policy);
                prop_assert_eq!(row.report.evictions, 0);
            }
        }
    }
}

trait MissesRounded {
    fn misses_rounded(&self) -> (u64, u64);
}

impl MissesRounded for Report {
    fn misses_rounded(&self) -> (u64, u64) {
        let requests = self.requests as f64;
        ((self.miss_ratio * requests).round() as u64, self.penalty_us_total.round() as u64)
    }
}

/// A loop of n keys with room for c: random eviction hits with probability h where h = (1 - 1/c)^(n (1 - h)), and so
/// does K = 1. With or without Redis's pool: an eviction puts its one sample into the empty pool and takes it out
/// again.
#[test]
fn a_sample_of_one_is_random() {
    let accesses: Arc<[Access]> = (0..400_000).map(|i| Access::read(KeyHash::of_number(i % 1_000), 1)).collect();
    let names = ["random", "klru:1", "redis:1"].map(|name| name.parse().unwrap()).to_vec();
    let rows = replay(&accesses, names, 800, 1);
    let (capacity, keys) = (800.0_f64, 1_000.0);
    let hit = (0..1_000).fold(0.5_f64, |hit, _| (1.0 - 1.0 / capacity).powf(keys * (1.0 - hit)));
    for row in &rows {
        assert!(
            (1.0 - row.report.miss_ratio - hit).abs() < 0.01,
            "{}: {} for {hit}",
            row.policy,
            row.report.miss_ratio
        );
    }
    let survey = Survey::of(accesses.iter().map(|access| Ok::<_, ()>(*access))).unwrap();
    assert_eq!(survey.footprint_bytes, 1_000);
}
