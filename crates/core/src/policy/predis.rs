//! pRedis: memory divided among partitions so that misses cost least, and held to it by whom eviction takes from.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.3 (plan) and 5 (driver). An EAET model per partition; every window the dynamic program
//! gives each its target; who is above its target gives up what was not asked for longest. Two drivers: the paper's, which
//! draws K values until one of them belongs to a partition above its target; and the module's, through the same `pools`.
//! Cost: that of K-LRU, one EAET access for a sampled key, and 8 ms per plan (16 partitions, 1000 units).

use super::cache::{Outcome, SAMPLE_SIZE_MAX};
use super::lru::Lru;
use super::over_target::OverTarget;
use super::partitioned::{Ledger, PlanConfig};
use super::pools::{Giver, PATIENCE, Pools};
use super::table::{Entry, Order, Table, TableCache};
use super::{Scorer, Snapshot};
use crate::access::{Access, Op};
use crate::curve::MissRatioCurve;
use crate::error::ConfigError;
use crate::model::eaet::{Counted, Eaet};
use crate::random::Random;
use crate::sampling::SampleRate;
use crate::units::{KeyHash, PartitionId};

/// The paper's driver gives up after this many samples, and takes the longest idle of the last.
const SAMPLES_MAX: usize = 64;
/// Keys not asked for in this many windows are forgotten by the models.
const WINDOWS_REMEMBERED: u64 = 64;

/// How victims are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// As the server module does.
    Module,
    /// As sec. 5 of the paper says.
    Paper,
}

#[derive(Clone, Copy, Debug)]
struct Victim {
    key: KeyHash,
    last_access: u64,
}

/// The order of pRedis. See the file's opening.
#[derive(Debug)]
pub struct Predis {
    ledger: Ledger,
    models: Vec<Eaet>,
    rate: SampleRate,
    driver: Driver,
    pools: Pools<Victim>,
    random: Random,
}

impl Predis {
    /// A pRedis cache of `capacity_bytes`.
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] and [`ConfigError::Decay`] for what the configuration has out of range.
    pub fn cache(
        config: PlanConfig,
        driver: Driver,
        capacity_bytes: u64,
        seed: u64,
    ) -> Result<TableCache<Predis>, ConfigError> {
        if !(1..=SAMPLE_SIZE_MAX).contains(&config.sample_size) {
            return Err(ConfigError::SampleSize(config.sample_size));
        }
        if !(0.0..=1.0).contains(&config.decay) {
            return Err(ConfigError::Decay(config.decay));
        }
        let order = Predis {
            ledger: Ledger::new(config, capacity_bytes),
            models: Vec::new(),
            rate: SampleRate::ALL,
            driver,
            pools: Pools::new(config.sample_size as usize),
            random: Random::new(seed),
        };
        Ok(TableCache::new(capacity_bytes, order))
    }

    fn sample_size(&self) -> usize {
        self.ledger.config().sample_size as usize
    }

    /// The paper's driver.
    fn sampled_victim(&mut self, table: &Table, over: OverTarget) -> usize {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let mut longest_idle = 0;
        for _ in 0..SAMPLES_MAX {
            let drawn = table.draw(self.sample_size(), &mut self.random, &mut drawn);
            let last_access = |place: &u32| table.entries()[*place as usize].last_access;
            let may_go = |place: &&u32| over.holds(table.entries()[**place as usize].partition);
            if let Some(&victim) = drawn.iter().filter(may_go).min_by_key(|place| last_access(place)) {
                return victim as usize;
            }
            longest_idle = drawn.iter().copied().min_by_key(last_access).map_or(0, |place| place as usize);
        }
        longest_idle
    }

    /// The module's driver.
    fn pooled_victim(&mut self, table: &Table, giver: Giver, over: OverTarget) -> usize {
        loop {
            self.meet(table, giver);
            // The module would try again later, or leave it to the server; here room is needed now.
            let victim = self.pools.take_or(giver, over).or_else(|| self.pools.take(Giver::Anyone));
            // A candidate that was asked for since, or is gone, is no victim.
            let place = victim.and_then(|victim| {
                let place = table.place_of(victim.key)?;
                (table.entries()[place].last_access == victim.last_access).then_some(place)
            });
            if let Some(place) = place {
                return place;
            }
        }
    }

    /// Draws values until K of the giver's were met, or patience has run out.
    fn meet(&mut self, table: &Table, giver: Giver) {
        for drawn in 0..PATIENCE * self.sample_size() {
            if self.pools.will_do(giver, drawn) {
                return;
            }
            let entry = &table.entries()[self.random.below(table.entries().len() as u64) as usize];
            let score = Lru.score(&entry.candidate(table.clock()));
            let Entry { key, last_access, partition, .. } = *entry;
            self.pools.offer(partition, score, || Victim { key, last_access });
        }
    }

    fn model(&mut self, partition: PartitionId) -> &mut Eaet {
        while self.models.len() <= partition.index() {
            self.models.push(Eaet::new(self.rate, Counted::Reads));
        }
        &mut self.models[partition.index()]
    }

    fn record(&mut self, access: &Access, partition: PartitionId) {
        let rate = self.rate;
        let model = self.model(partition);
        if access.op != Op::Delete {
            model.advance(1, u64::from(access.op == Op::Read));
        }
        if rate.takes(access.key) {
            model.record_sampled(access, model.clock());
            self.thin_where_too_many();
        }
    }

    fn end_window(&mut self) {
        let n = self.ledger.n_partitions();
        self.model(PartitionId(n as u16 - 1));
        let curves: Vec<MissRatioCurve> = self.models.iter().map(Eaet::full_curve).collect();
        self.ledger.plan(&curves);
        let config = *self.ledger.config();
        for model in &mut self.models {
            model.decay(config.decay);
            model.forget_older_than(WINDOWS_REMEMBERED * config.window_requests);
        }
    }

    fn thin_where_too_many(&mut self) {
        let keys: usize = self.models.iter().map(Eaet::sampled_keys).sum();
        if keys > self.ledger.config().sampled_keys_max
            && let Ok(rate) = SampleRate::new(self.rate.rate() / 2.0)
        {
            self.rate = rate;
            self.models.iter_mut().for_each(|model| model.thin(rate));
        }
    }
}

impl Order for Predis {
    fn victim(&mut self, table: &Table, incoming: &Entry) -> usize {
        match self.driver {
            Driver::Paper => self.sampled_victim(table, self.ledger.over(incoming)),
            Driver::Module => self.pooled_victim(table, self.ledger.giver(incoming), self.ledger.over(incoming)),
        }
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.ledger.stored(&table.entries()[place]);
    }

    fn removed(&mut self, table: &Table, place: usize) {
        self.ledger.removed(&table.entries()[place]);
    }

    fn partition_of(&self, access: &Access) -> PartitionId {
        self.ledger.config().partitioning.of(access)
    }

    fn observed(&mut self, access: &Access, outcome: Outcome, _table: &Table) {
        let partition = self.partition_of(access);
        self.record(access, partition);
        if self.ledger.observed(access, outcome, partition) {
            self.end_window();
        }
    }

    fn snapshot(&self, _table: &Table) -> Snapshot {
        Snapshot {
            target_bytes: self.ledger.target_bytes().to_vec(),
            used_bytes: self.ledger.used_bytes(),
            sample_sizes: vec![self.ledger.config().sample_size],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Inspect;
    use crate::policy::cache::Cache;
    use crate::policy::partitioned::Partitioning;
    use crate::units::TenantId;

    /// Two tenants loop over 100 keys each, one at ten times the other's cost, with room for 120: the dear one gets all that it
    /// can use, and hits.
    #[test]
    fn the_dear_tenant_gets_what_it_can_use() {
        let config = PlanConfig { partitioning: Partitioning::Tenant, window_requests: 2_000, ..PlanConfig::default() };
        let mut cache = Predis::cache(config, Driver::Module, 1_200, 1).unwrap();
        let mut hits = [0_u32; 2];
        for i in 0..40_000_u64 {
            let tenant = (i % 2) as u16;
            let access = Access {
                tenant: TenantId(tenant),
                penalty_us: if tenant == 0 { 100.0 } else { 1_000.0 },
                ..Access::read(KeyHash::of_number(u64::from(tenant) * 1_000 + i / 2 % 100), 10)
            };
            let outcome = cache.access(&access);
            hits[tenant as usize] += u32::from(i >= 20_000 && outcome == Outcome::Hit);
        }
        assert!(hits[1] > 9_900, "{hits:?} of 10000 each");
        let snapshot = cache.snapshot();
        assert!(snapshot.target_bytes[1] >= 1_000, "{snapshot:?}");
        assert_eq!(snapshot.used_bytes.iter().sum::<u64>(), cache.used_bytes());
    }

    #[test]
    fn either_driver_stays_within_the_capacity() {
        for driver in [Driver::Module, Driver::Paper] {
            let config = PlanConfig { window_requests: 500, sampled_keys_max: 64, ..PlanConfig::default() };
            let mut cache = Predis::cache(config, driver, 1_000, 1).unwrap();
            for i in 0..20_000_u64 {
                let penalty_us = [5.0, 120.0, 1_000.0][(i % 3) as usize];
                let key = KeyHash::of_number(i.wrapping_mul(i) % 503);
                cache.access(&Access { penalty_us, ..Access::read(key, (i % 37) as u32 + 1) });
                assert!(cache.used_bytes() <= 1_000);
            }
        }
    }
}
