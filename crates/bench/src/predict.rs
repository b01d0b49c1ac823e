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
use tenure_sim::bound::bound;
use tenure_sim::offline::Offline;
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

    /// What it takes without a miss.
    fn hit_or_write_us(&self, op: Op) -> f64 {
        if op == Op::Read { self.hit_us } else { self.write_us }
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

/// The same requests as were measured, for the simulator.
#[derive(Clone, Copy, Debug)]
pub struct Replayed<'a> {
    /// The requests.
    pub stream: &'a Stream,
    /// By key: what it takes in the server, with the value that the stream has last for it.
    pub key_bytes: &'a [u32],
    /// Measured times.
    pub times: &'a Times,
}

/// Whether the simulator can predict these systems under these settings of the module, asked these requests: to be
/// known before a long run, not after.
///
/// # Errors
/// Which system or setting it knows nothing of, and where the stream has scans, whose own time is not known.
pub fn can_predict(systems: &[System], settings: &[(String, String)], stream: &Stream) -> anyhow::Result<()> {
    systems.iter().try_for_each(|system| build(system, 1 << 20, settings).map(drop))?;
    has_no_scans(stream)
}

fn has_no_scans(stream: &Stream) -> anyhow::Result<()> {
    ensure!(
        stream.scans.is_empty(),
        "{} has scans, and what a scan takes without its misses is not measured; leave --predict out",
        stream.name
    );
    Ok(())
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

impl Replayed<'_> {
    /// As `system` would serve the requests with `capacity_bytes` for all keys, the module set as `settings` say.
    ///
    /// # Errors
    /// When the system or a setting has no counterpart in the simulator, or the stream has scans, whose own time is not
    /// known.
    pub fn predict(
        &self,
        system: &System,
        capacity_bytes: u64,
        settings: &[(String, String)],
    ) -> anyhow::Result<Prediction> {
        has_no_scans(self.stream)?;
        let mut cache = build(system, capacity_bytes, settings)?;
        let mut sums = Sums::default();
        for (index, request) in self.stream.requests.iter().enumerate() {
            if index == self.stream.n_warmup {
                sums = Sums::default();
            }
            for access in self.accesses(request) {
                let is_miss = cache.access(&access) == Outcome::Miss;
                sums.count(&access, self.times, is_miss);
            }
        }
        Ok(sums.prediction(self.stream))
    }

    /// The least that any policy can come to with `capacity_bytes` for all keys, knowing the future or not: see
    /// [`tenure_sim::bound`].
    ///
    /// # Errors
    /// When the stream has scans.
    pub fn bound(&self, capacity_bytes: u64) -> anyhow::Result<Prediction> {
        has_no_scans(self.stream)?;
        let (warm_up, measured) = self.stream.requests.split_at(self.stream.n_warmup);
        let mut accesses: Vec<Access> = warm_up.iter().flat_map(|request| self.accesses(request)).collect();
        let warm_up = accesses.len();
        accesses.extend(measured.iter().flat_map(|request| self.accesses(request)));
        let report = bound(&Offline::new(accesses.into()), &[capacity_bytes], warm_up, 0.0).remove(0);
        let latency_us_mean = self.with_misses_us(report.penalty_us_total);
        Ok(Prediction { latency_us_mean, miss_ratio: report.read_miss_ratio })
    }

    /// The mean latency, in µs, of measured requests in which so many of each tenant's reads missed.
    pub fn with_misses(&self, n_missed: &[f64]) -> f64 {
        self.with_misses_us(n_missed.iter().zip(&self.times.penalty_us).map(|(n, penalty_us)| n * penalty_us).sum())
    }

    fn with_misses_us(&self, misses_us: f64) -> f64 {
        let measured = &self.stream.requests[self.stream.n_warmup..];
        let all_hit_us: f64 =
            measured.iter().flat_map(|request| ops(request.operation)).map(|&op| self.times.hit_or_write_us(op)).sum();
        (all_hit_us + misses_us) / self.stream.n_measured() as f64
    }

    /// What a request is to the simulator.
    fn accesses(&self, request: &Request) -> impl Iterator<Item = Access> + use<> {
        let (key, keys) = (request.key, &self.stream.keys);
        // The server told the size with the last value; this one may be larger or smaller.
        let size =
            i64::from(self.key_bytes[key as usize]) + i64::from(request.value_bytes) - i64::from(keys.value_bytes(key));
        let tenant = keys.tenant(key);
        let access = Access {
            tenant: TenantId(tenant as u16),
            penalty_us: self.times.penalty_us[tenant] as f32,
            ..Access::read(KeyHash::of(keys.name(key)), size.clamp(1, i64::from(u32::MAX)) as u32)
        };
        ops(request.operation).iter().map(move |&op| access.with_op(op))
    }
}

/// What an operation does to its key, one after the other.
fn ops(operation: Operation) -> &'static [Op] {
    match operation {
        Operation::Read | Operation::Scan => &[Op::Read],
        Operation::Write => &[Op::Write],
        Operation::ReadModifyWrite => &[Op::Read, Op::Write],
        Operation::Delete => &[Op::Delete],
    }
}

#[derive(Default)]
struct Sums {
    latency_us: f64,
    n_read: u64,
    n_missed: u64,
}

impl Sums {
    fn count(&mut self, access: &Access, times: &Times, is_miss: bool) {
        let is_read = access.op == Op::Read;
        self.latency_us += times.hit_or_write_us(access.op);
        self.n_read += u64::from(is_read);
        if is_read && is_miss {
            self.n_missed += 1;
            self.latency_us += f64::from(access.penalty_us);
        }
    }

    fn prediction(&self, stream: &Stream) -> Prediction {
        Prediction {
            latency_us_mean: self.latency_us / stream.n_measured() as f64,
            miss_ratio: self.n_missed as f64 / self.n_read.max(1) as f64,
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
        replayed(&stream, &key_bytes, &times()).predict(system, capacity_bytes, &settings).unwrap()
    }

    fn replayed<'a>(stream: &'a Stream, key_bytes: &'a [u32], times: &'a Times) -> Replayed<'a> {
        Replayed { stream, key_bytes, times }
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
    fn the_bound_is_below_every_policy_and_with_room_for_all_what_hits_and_writes_take() {
        for workload in ["ycsb-a", "ycsb-c", "ycsb-f"] {
            let (stream, key_bytes, times) = (stream(workload), [1100; 2000], times());
            let bound = |share: f64| {
                replayed(&stream, &key_bytes, &times).bound((2000.0 * 1100.0 * share) as u64).unwrap().latency_us_mean
            };
            for system in [&System::STOCK, &System::TENURE] {
                let policy = predict_at(workload, system, 0.5).latency_us_mean;
                assert!(bound(0.5) < policy, "{workload}: bound {}, {} {policy}", bound(0.5), system.label);
            }
            let with_room = predict_at(workload, &System::STOCK, 1.1).latency_us_mean;
            assert!((bound(1.1) - with_room).abs() < 1e-9 * with_room, "{workload}: {} {with_room}", bound(1.1));
        }
    }

    #[test]
    fn misses_are_added_at_their_tenants_penalty() {
        let (reads, updates, key_bytes, times) = (stream("ycsb-c"), stream("ycsb-f"), [1100; 2000], times());
        let mean_us = |stream: &Stream, n_missed| replayed(stream, &key_bytes, &times).with_misses(n_missed);
        assert!((mean_us(&reads, &[0.0, 0.0]) - 30.0).abs() < 1e-6, "all hit");
        let all = mean_us(&reads, &[10_000.0, 4000.0]);
        assert!((all - (30.0 + 30.0 + 100.0)).abs() < 1e-6, "a quarter at 120, a tenth at 1000, of 40000: {all}");
        let half_written = mean_us(&updates, &[0.0, 0.0]);
        assert!((half_written - (30.0 + 20.0)).abs() < 1.0, "half of them write at 40 as well: {half_written}");
    }

    #[test]
    fn scans_are_refused_before_a_run() {
        let error = can_predict(&[System::STOCK], &[], &stream("ycsb-e")).unwrap_err();
        assert!(error.to_string().contains("ycsb-e has scans"), "{error}");
    }

    #[test]
    fn settings_that_the_simulator_lacks_are_refused() {
        let settings = [("tenure.policy".to_string(), "lru".to_string())];
        let (stream, key_bytes, times) = (stream("ycsb-a"), [1100; 2000], times());
        let error = replayed(&stream, &key_bytes, &times).predict(&System::TENURE, 1 << 20, &settings).unwrap_err();
        assert!(error.to_string().contains("tenure.policy"), "{error}");
        assert!(can_predict(&[System::TENURE], &[], &stream).is_ok());
        assert!(can_predict(&[System::TENURE], &settings, &stream).is_err());
        let unknown: System = "kredis-db-k5".parse().unwrap();
        let error = can_predict(&[System::STOCK, unknown], &[], &stream).unwrap_err();
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
