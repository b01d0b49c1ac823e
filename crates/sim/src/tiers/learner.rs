//! What is learned from the accesses beside the placer: densities, for the rule by worth, and curves, for the
//! division of the fast tier.
//!
//! As the server's worker does it: histories in a table of keys, a sample of the accesses for the density model
//! (`policy/density/`) and one EAET model a tenant. Each is kept only where it is needed.

use tenure_core::access::{Access, Op};
use tenure_core::curve::MissRatioCurve;
use tenure_core::decide::allocation::Claim;
use tenure_core::decide::penalty_class::penalty_class;
use tenure_core::key_table::KeyTable;
use tenure_core::model::Counted;
use tenure_core::model::eaet::Eaet;
use tenure_core::policy::density::{DensityConfig, DensityModel, DensityTable, Feature, History};
use tenure_core::sampling::SampleRate;
use tenure_core::tiers::division::{Division, divide};
use tenure_core::tiers::worth::Speeds;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId};

/// Keys that each of the models remembers at the most.
const SAMPLED_KEYS_MAX: usize = 1 << 15;
/// Keys not asked for in this many windows are forgotten.
const WINDOWS_REMEMBERED: u64 = 64;
/// What a window weighs one window later, in curves and reads.
const DECAY: f64 = 0.7;
/// Units that the fast tier is divided in.
const UNITS: u64 = 250;

/// Densities of what keys have shown.
#[derive(Debug)]
pub struct Densities {
    keys: KeyTable,
    model: DensityModel,
    rate: SampleRate,
    /// What was learned up to the last window's end.
    pub table: DensityTable,
}

impl Densities {
    /// Nothing was seen; `table_bytes` for the table of keys.
    pub fn new(table_bytes: u64) -> Self {
        Densities {
            keys: KeyTable::new(table_bytes),
            model: DensityModel::new(DensityConfig::default()).expect("the default is in range"),
            rate: SampleRate::ALL,
            table: DensityTable::default(),
        }
    }

    fn group(penalty_us: f32) -> u8 {
        penalty_class(f64::from(penalty_us)) as u8
    }

    /// An access, at request `now`.
    pub fn observe(&mut self, access: &Access, now: u64) {
        let mut history = History::default();
        if access.op != Op::Delete {
            let fading = self.keys.fading();
            let entry = self.keys.get_or_insert(access.key, now as u32);
            let gap = u64::from((now as u32).wrapping_sub(entry.last));
            history = entry.history().accessed(gap, now as u32, fading);
            entry.set_history(history);
            entry.last = now as u32;
        }
        if !self.rate.takes(access.key) {
            return;
        }
        self.model.record(access.key, access.op, now, history.feature(Self::group(access.penalty_us)));
        if self.model.sampled_keys() > SAMPLED_KEYS_MAX {
            self.rate = self.rate.lowered();
            let rate = self.rate;
            self.model.retain(|key| rate.takes(key));
        }
    }

    /// What a key has shown.
    pub fn feature(&self, key: KeyHash, penalty_us: f32) -> Feature {
        let history = self.keys.get(key).map_or(History::default(), |entry| entry.history());
        history.feature(Self::group(penalty_us))
    }

    /// Ends a window.
    pub fn end_window(&mut self, now: u64, window_requests: u64) {
        self.table = self.model.end_window(now, WINDOWS_REMEMBERED * window_requests);
    }
}

/// A tenant's curve, reads and bytes.
#[derive(Debug)]
struct Tenant {
    model: Eaet,
    reads: f64,
    bytes: f64,
}

/// Curves of all tenants, and what each should have of the fast tier.
#[derive(Debug, Default)]
pub struct Tenants {
    tenants: Vec<Tenant>,
    rate: Option<SampleRate>,
}

impl Tenants {
    fn rate(&self) -> SampleRate {
        self.rate.unwrap_or(SampleRate::ALL)
    }

    /// An access of `partition`'s.
    pub fn observe(&mut self, access: &Access, partition: PartitionId) {
        let rate = self.rate();
        while self.tenants.len() <= partition.index().min(PARTITIONS_MAX - 1) {
            self.tenants.push(Tenant { model: Eaet::new(rate, Counted::Reads), reads: 0.0, bytes: 0.0 });
        }
        let tenant = &mut self.tenants[partition.index()];
        if access.op == Op::Read {
            tenant.reads += 1.0;
            tenant.bytes += f64::from(access.size_bytes);
        }
        if access.op != Op::Delete {
            tenant.model.advance(1, u64::from(access.op == Op::Read));
        }
        if rate.takes(access.key) {
            tenant.model.record_sampled(access, tenant.model.clock());
            if self.tenants.iter().map(|tenant| tenant.model.sampled_keys()).sum::<usize>() > SAMPLED_KEYS_MAX {
                let rate = rate.lowered();
                self.tenants.iter_mut().for_each(|tenant| tenant.model.thin(rate));
                self.rate = Some(rate);
            }
        }
    }

    /// Ends a window: target bytes by partition, none under free competition.
    pub fn divide(&mut self, division: Division, fast_bytes: u64, speeds: &Speeds, window_requests: u64) -> Vec<u64> {
        let curves: Vec<MissRatioCurve> = self.tenants.iter().map(|tenant| tenant.model.full_curve()).collect();
        let claim = |(i, (tenant, curve)): (usize, (&Tenant, _))| {
            let size_bytes = (tenant.bytes / tenant.reads.max(1.0)) as u32;
            Claim::new(curve, tenant.reads * f64::from(speeds.saved_ns(size_bytes)) / 1000.0, i)
        };
        let claims: Vec<Claim> = self.tenants.iter().zip(&curves).enumerate().map(claim).collect();
        let targets = divide(division, &claims, claims.len(), fast_bytes, (fast_bytes / UNITS).max(1));
        for tenant in &mut self.tenants {
            tenant.model.decay(DECAY);
            tenant.model.forget_older_than(WINDOWS_REMEMBERED * window_requests);
            tenant.reads *= DECAY;
            tenant.bytes *= DECAY;
        }
        targets.expect("every claim is of a group of its own")
    }
}
