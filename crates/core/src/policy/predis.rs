//! pRedis: memory divided among partitions so that misses cost least, and held to it by whom eviction takes from.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.3 (plan) and 5 (driver). An EAET model per partition; every window the
//! dynamic program gives each its target; who is above its target gives up what was not asked for longest. Two
//! drivers: the paper's, which draws K values until one of them belongs to a partition above its target; and the
//! module's, through the same `pools`. Cost: that of K-LRU, one EAET access for a sampled key, and 8 ms per plan (16
//! partitions, 1000 units).

use super::cache::{Outcome, SAMPLE_SIZE_MAX};
use super::lru::Lru;
use super::over_target::OverTarget;
use super::partitioned::{Ledger, PlanConfig};
use super::pools::{Donor, PATIENCE, Pools};
use super::table::{Entry, Order, Table, TableCache};
use super::walk::Walk;
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
    walk: Walk,
}

impl Predis {
    /// A pRedis cache of `capacity_bytes`.
    ///
    /// # Errors
    /// What the configuration has out of range.
    pub fn cache(
        config: PlanConfig,
        driver: Driver,
        capacity_bytes: u64,
        seed: u64,
    ) -> Result<TableCache<Predis>, ConfigError> {
        config.check()?;
        let order = Predis {
            ledger: Ledger::new(config, capacity_bytes),
            models: Vec::new(),
            rate: SampleRate::ALL,
            driver,
            pools: Pools::new(config.sample_size as usize),
            random: Random::new(seed),
            walk: Walk::new(seed),
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
    fn pooled_victim(&mut self, table: &Table, donor: Donor, over: OverTarget) -> usize {
        loop {
            self.meet(table, donor);
            // The module would try again later, or leave it to the server; here room is needed now.
            let victim = self.pools.take_or(donor, over).or_else(|| self.pools.take(Donor::Anyone));
            // A candidate that was accessed since, or is gone, is no victim.
            let place = victim.and_then(|victim| {
                let place = table.place_of(victim.key)?;
                (table.entries()[place].last_access == victim.last_access).then_some(place)
            });
            if let Some(place) = place {
                return place;
            }
        }
    }

    /// Draws values until K of the donor's were met, or patience has run out.
    fn meet(&mut self, table: &Table, donor: Donor) {
        for drawn in 0..PATIENCE * self.sample_size() {
            if self.pools.will_do(donor, drawn) {
                return;
            }
            let entry = &table.entries()[self.walk.next(table.entries().len())];
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

    /// All size classes of a partition share its clock, so that what is known of a key can go from one to the other.
    fn record(&mut self, access: &Access, partition: PartitionId) {
        let (rate, siblings) = (self.rate, self.ledger.siblings(partition));
        self.model(PartitionId(siblings.end as u16 - 1));
        if access.op == Op::Delete {
            // Of what size the value was a delete doesn't say; who doesn't know the key isn't touched by it.
            let knowing = self.models[siblings].iter_mut().filter(|_| rate.takes(access.key));
            return knowing.for_each(|model| model.record_sampled(access, model.clock()));
        }
        for i in siblings {
            self.models[i].advance(1, u64::from(i == partition.index() && access.op == Op::Read));
        }
        if rate.takes(access.key) {
            if let Some(before) = self.ledger.came_from(access.key, partition)
                && let Ok([from, to]) = self.models.get_disjoint_mut([before.index(), partition.index()])
            {
                from.hand_over(access.key, to);
            }
            let model = &mut self.models[partition.index()];
            model.record_sampled(access, model.clock());
            self.thin_where_too_many();
        }
    }

    fn end_window(&mut self) {
        let n = self.ledger.n_partitions();
        self.model(PartitionId(n as u16 - 1));
        let curves: Vec<MissRatioCurve> = self.models.iter().map(Eaet::full_curve).collect();
        self.ledger.plan(&curves, self.models.iter().map(Eaet::rate));
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
            Driver::Module => self.pooled_victim(table, self.ledger.donor(incoming), self.ledger.over(incoming)),
        }
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.ledger.stored(&table.entries()[place]);
    }

    fn removed(&mut self, table: &Table, place: usize) {
        self.ledger.removed(&table.entries()[place]);
    }

    fn partition_of(&self, access: &Access) -> PartitionId {
        self.ledger.partition_of(access)
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
    use crate::decide::objective::Objective;
    use crate::policy::Inspect;
    use crate::policy::cache::Cache;
    use crate::policy::partitioned::Partitioning;
    use crate::units::TenantId;

    /// Two tenants loop over 100 keys each, one at ten times the other's cost, with room for 120: the expensive one
    /// gets all that it can use, and hits.
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

    /// Misses of each tenant in the second half of `accesses`.
    fn misses(config: PlanConfig, capacity_bytes: u64, accesses: &[Access]) -> [u64; 3] {
        let mut cache = Predis::cache(config, Driver::Module, capacity_bytes, 1).unwrap();
        let mut misses = [0; 3];
        for (i, access) in accesses.iter().enumerate() {
            let is_miss = cache.access(access) == Outcome::Miss;
            misses[access.tenant.0 as usize] += u64::from(is_miss && i >= accesses.len() / 2);
        }
        misses
    }

    /// Values of 50 and of 1000 bytes that are accessed alike, with room for a third of the bytes: divided by size
    /// the small ones stay. Where sizes are equal nothing is divided, and nothing changes.
    #[test]
    fn size_classes_keep_the_small_values_and_equal_ones_as_they_were() {
        let config = PlanConfig { partitioning: Partitioning::Tenant, window_requests: 5_000, ..PlanConfig::default() };
        let misses_of = |small: u32, size_classes: usize| {
            let mut random = Random::new(3);
            let mut read = || {
                let key = random.below(2_000);
                let size_bytes = if key.is_multiple_of(2) { small } else { 1_000 };
                Access { penalty_us: 100.0, ..Access::read(KeyHash::of_number(key), size_bytes) }
            };
            let accesses: Vec<Access> = (0..60_000).map(|_| read()).collect();
            misses(PlanConfig { size_classes, ..config }, 350_000, &accesses)[0]
        };
        let (undivided, divided) = (misses_of(50, 1), misses_of(50, 4));
        assert!((divided as f64) < 0.65 * undivided as f64, "{divided} with size classes, {undivided} without");
        assert_eq!(misses_of(1_000, 4), misses_of(1_000, 1));
    }

    /// Three tenants, each asked for 3000 keys, some more popular, of ten and a hundred times the first's penalty.
    /// For the least penalty the cheap one has next to nothing; under a fair plan nobody misses more than alone on a
    /// third of the memory.
    #[test]
    fn a_fair_plan_leaves_no_tenant_worse_off_than_an_equal_part() {
        let config =
            PlanConfig { partitioning: Partitioning::Tenant, window_requests: 10_000, ..PlanConfig::default() };
        let mut random = Random::new(5);
        let mut read = |i: u64| {
            let (tenant, key) = ((i % 3) as u16, (random.unit().powi(2) * 3_000.0) as u64);
            let access = Access::read(KeyHash::of_number(u64::from(tenant) * 10_000 + key), 10);
            Access { tenant: TenantId(tenant), penalty_us: [100.0, 1_000.0, 10_000.0][tenant as usize], ..access }
        };
        let accesses: Vec<Access> = (0..240_000).map(&mut read).collect();
        let alone = [0, 1, 2].map(|tenant| {
            let own: Vec<Access> = accesses.iter().copied().filter(|access| access.tenant.0 == tenant).collect();
            misses(config, 10_000, &own)[tenant as usize]
        });
        let planned = |objective| misses(PlanConfig { objective, ..config }, 30_000, &accesses);
        let (least, fair) = (planned(Objective::Penalty), planned(Objective::Fair));
        let share = |misses: [u64; 3], tenant: usize| misses[tenant] as f64 / alone[tenant] as f64;
        assert!(share(least, 0) > 1.5, "{least:?}, alone {alone:?}");
        assert!((0..3).all(|tenant| share(fair, tenant) < 1.05), "{fair:?}, alone {alone:?}");
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
