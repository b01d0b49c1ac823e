//! What the simulator says of the same requests: predicted mean latency and miss ratio, beside what was measured.
//!
//! The very stream that the servers were asked is replayed through the simulator's policy for each system, with the
//! measured hit time and the measured penalty of each tenant, both from the first system's runs at that memory size.
//! A key's size is what the server says it takes, and the cache's capacity is what the server's limit leaves beside
//! an empty server and what the module takes or keeps free. What the replay does not know: that clients overtake each
//! other and fetch one key twice at the same time, that the server's clock of last use ticks once a second, and that
//! windows also end after seconds.

use std::fmt;

use anyhow::{Context, ensure};
use serde::Serialize;
use tenure_core::access::{Access, Op};
use tenure_core::policy::cache::Outcome;
use tenure_core::policy::partitioned::{Partitioning, PlanConfig};
use tenure_core::units::{KeyHash, TenantId};
use tenure_sim::policies::{Policy, PolicyName, Setup};
use tenure_sim::settings::Settings;

use crate::statistics::TenantSums;
use crate::system::System;
use crate::workload::{Operation, Request, Stream};

/// Measured times that a prediction needs, in µs.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// A read that hits.
    pub hit_us: f64,
    /// A write.
    pub write_us: f64,
    /// By tenant, what a miss takes beyond a hit: the fetch and the write-back.
    pub penalty_us: Vec<f64>,
}

impl Times {
    /// From the sums of each tenant; `None` where no read hit, or a tenant that missed has no miss of a single key to
    /// go by.
    pub fn of(tenants: &[TenantSums]) -> Option<Times> {
        let mean = |part: fn(&TenantSums) -> crate::statistics::Sum| {
            let (n, ns) = tenants.iter().map(part).fold((0, 0), |(n, ns), sum| (n + sum.n, ns + sum.ns));
            (n > 0).then(|| ns as f64 / n as f64 / 1000.0)
        };
        let hit_us = mean(|tenant| tenant.hits)?;
        let penalty = |tenant: &TenantSums| match tenant.misses.mean_us() {
            Some(miss_us) => Some((miss_us - hit_us).max(0.0)),
            None => (tenant.n_missed == 0).then_some(0.0),
        };
        let penalty_us = tenants.iter().map(penalty).collect::<Option<_>>()?;
        Some(Times { hit_us, write_us: mean(|tenant| tenant.writes).unwrap_or(hit_us), penalty_us })
    }
}

/// What the simulator says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Mean latency of the measured requests, in µs.
    pub latency_us_mean: f64,
    /// Keys missed over keys read.
    pub miss_ratio: f64,
}

/// Replays `stream` as `system` would serve it.
///
/// `key_bytes` says what each key takes in the server with the value that the stream has last for it,
/// `capacity_bytes` what all may take together, `settings` what the user has set of the module.
///
/// # Errors
/// When the system or a setting has no counterpart in the simulator, or the stream has scans, whose own time is not
/// known.
pub fn predict(
    stream: &Stream,
    system: &System,
    key_bytes: &[u32],
    capacity_bytes: u64,
    times: &Times,
    settings: &[(String, String)],
) -> anyhow::Result<Prediction> {
    ensure!(
        stream.scans.is_empty(),
        "{} has scans, and what a scan takes without its misses is not measured",
        stream.name
    );
    let mut cache = build(system, capacity_bytes, settings)?;
    let accesses = Accesses { stream, key_bytes, times };
    let mut sums = Sums::default();
    for (index, request) in stream.requests.iter().enumerate() {
        let latency_us = accesses.perform(cache.as_mut(), request, &mut sums);
        if index < stream.n_warmup {
            sums = Sums::default();
        } else {
            sums.latency_us += latency_us;
        }
    }
    Ok(Prediction {
        latency_us_mean: sums.latency_us / stream.n_measured() as f64,
        miss_ratio: sums.n_missed as f64 / sums.n_read.max(1) as f64,
    })
}

/// Whether the simulator can predict these systems under these settings of the module: asked before a long run, not
/// after.
///
/// # Errors
/// Which system or setting it knows nothing of.
pub fn can_predict(systems: &[System], settings: &[(String, String)]) -> anyhow::Result<()> {
    systems.iter().try_for_each(|system| build(system, 1 << 20, settings).map(drop))
}

/// The simulator's cache for `system`.
fn build(system: &System, capacity_bytes: u64, settings: &[(String, String)]) -> anyhow::Result<Box<dyn Policy>> {
    let mut simulated = Settings::from(PlanConfig { partitioning: Partitioning::Tenant, ..PlanConfig::default() });
    for (name, value) in settings.iter().filter(|_| system.has_module()) {
        simulated.set(name, value).map_err(|error| anyhow::anyhow!("{error}; leave it or --predict out"))?;
    }
    let policy = system.simulated_policy().with_context(|| {
        format!("the simulator has nothing that does what {} does; leave it or --predict out", system.label)
    })?;
    let policy: PolicyName = policy.parse().map_err(|error: String| anyhow::anyhow!(error))?;
    let setup = Setup { capacity_bytes, parameter: None, seed: 1, settings: simulated, offline: None };
    policy.build(&setup).map_err(|error| anyhow::anyhow!("{error}"))
}

#[derive(Default)]
struct Sums {
    latency_us: f64,
    n_read: u64,
    n_missed: u64,
}

/// Turns requests into the simulator's accesses.
struct Accesses<'a> {
    stream: &'a Stream,
    key_bytes: &'a [u32],
    times: &'a Times,
}

impl Accesses<'_> {
    /// Performs one request and returns what it takes, in µs.
    fn perform(&self, cache: &mut dyn Policy, request: &Request, sums: &mut Sums) -> f64 {
        let read = |cache: &mut dyn Policy, sums: &mut Sums| {
            let access = self.access(request, Op::Read);
            let is_miss = cache.access(&access) == Outcome::Miss;
            sums.n_read += 1;
            sums.n_missed += u64::from(is_miss);
            self.times.hit_us + if is_miss { f64::from(access.penalty_us) } else { 0.0 }
        };
        match request.operation {
            Operation::Read | Operation::Scan => read(cache, sums),
            Operation::Write => {
                cache.access(&self.access(request, Op::Write));
                self.times.write_us
            }
            Operation::ReadModifyWrite => {
                let read_us = read(cache, sums);
                cache.access(&self.access(request, Op::Write));
                read_us + self.times.write_us
            }
            Operation::Delete => {
                cache.access(&self.access(request, Op::Delete));
                self.times.write_us
            }
        }
    }

    fn access(&self, request: &Request, op: Op) -> Access {
        let (key, keys) = (request.key, &self.stream.keys);
        // The server told the size with the last value; this one may be larger or smaller.
        let size =
            i64::from(self.key_bytes[key as usize]) + i64::from(request.value_bytes) - i64::from(keys.value_bytes(key));
        let tenant = keys.tenant(key);
        Access {
            tenant: TenantId(tenant as u16),
            penalty_us: self.times.penalty_us[tenant] as f32,
            ..Access::read(KeyHash::of(keys.name(key)), size.clamp(1, i64::from(u32::MAX)) as u32).with_op(op)
        }
    }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} µs at a miss ratio of {:.4}", self.latency_us_mean, self.miss_ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Sum;
    use crate::workload::WorkloadOptions;

    fn stream(workload: &str) -> Stream {
        let options = WorkloadOptions::new(workload.parse().unwrap(), 2);
        let size = WorkloadOptions { n_keys: Some(2000), n_warmup: Some(20_000), n_requests: Some(40_000), ..options };
        size.generate().unwrap()
    }

    fn times() -> Times {
        Times { hit_us: 30.0, write_us: 40.0, penalty_us: vec![120.0, 1000.0] }
    }

    fn predict_at(workload: &str, system: &System, share: f64) -> Prediction {
        let (stream, key_bytes) = (stream(workload), vec![1100; 2000]);
        let settings = [("tenure.window-requests".to_string(), "5000".to_string())];
        let capacity_bytes = (2000.0 * 1100.0 * share) as u64;
        predict(&stream, system, &key_bytes, capacity_bytes, &times(), &settings).unwrap()
    }

    #[test]
    fn with_room_for_all_nothing_misses_after_the_warm_up() {
        let prediction = predict_at("ycsb-c", &System::STOCK, 1.1);
        assert!(prediction.miss_ratio < 0.01, "{prediction}");
        assert!((30.0..45.0).contains(&prediction.latency_us_mean), "{prediction}");
        let updates = predict_at("ycsb-a", &System::STOCK, 1.1);
        assert!((updates.latency_us_mean - 35.0).abs() < 2.0, "half reads at 30, half writes at 40: {updates}");
    }

    #[test]
    fn tenure_is_predicted_to_beat_stock_where_penalties_differ() {
        let (stock, tenure) = (predict_at("ycsb-c", &System::STOCK, 0.5), predict_at("ycsb-c", &System::TENURE, 0.5));
        assert!(tenure.latency_us_mean < 0.95 * stock.latency_us_mean, "stock {stock}, tenure {tenure}");
        assert!(tenure.miss_ratio > stock.miss_ratio, "cheap misses are traded for dear ones");
    }

    #[test]
    fn settings_that_the_simulator_lacks_are_refused() {
        let settings = [("tenure.policy".to_string(), "lru".to_string())];
        let error =
            predict(&stream("ycsb-a"), &System::TENURE, &[1100; 2000], 1 << 20, &times(), &settings).unwrap_err();
        assert!(error.to_string().contains("tenure.policy"), "{error}");
        assert!(can_predict(&[System::TENURE], &[]).is_ok() && can_predict(&[System::TENURE], &settings).is_err());
        let unknown: System = "kredis-db-k5".parse().unwrap();
        let error = can_predict(&[System::STOCK, unknown], &[]).unwrap_err();
        assert!(error.to_string().contains("kredis-db-k5"), "{error}");
    }

    #[test]
    fn times_are_means_over_tenants_and_penalties_are_beyond_a_hit() {
        let sum = |n: u64, us: u64| Sum { n, ns: n * us * 1000 };
        let tenant = |misses: Sum| TenantSums {
            hits: sum(10, 30),
            misses,
            writes: sum(5, 50),
            n_missed: 4,
            ..Default::default()
        };
        let times = Times::of(&[tenant(sum(4, 150)), tenant(sum(4, 1030))]).unwrap();
        assert_eq!(times, Times { hit_us: 30.0, write_us: 50.0, penalty_us: vec![120.0, 1000.0] });
        assert_eq!(Times::of(&[tenant(Sum::default())]), None, "it missed, but only in scans");
        assert_eq!(Times::of(&[TenantSums::default()]), None);
    }
}
