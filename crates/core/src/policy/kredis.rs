//! kRedis: memory and sampling size planned together for each tenant, and each evicted from by itself.
//!
//! Source: Wang's dissertation (2024) ch. 4. For each tenant, KRR curves for K = 1, 5, 8 and 16 are merged into the
//! lowest (eq. 4.1); every window the dynamic program (algorithm 1) divides memory by the merged curves, and each
//! tenant gets the K that its share asks for. The tenant most above its target gives up the least recently used of K
//! of its own values (sec. 4.1.3: one dictionary per tenant, so no draw is wasted). Before the first plan K = 5
//! values of any tenant are drawn. Cost: that of K-LRU, and four KRR accesses for a sampled key (O(K log keys) each);
//! the share of keys falls as there are more.

use super::Snapshot;
use super::cache::{Outcome, SAMPLE_SIZE_MAX};
use super::partitioned::{Ledger, Partitioning, PlanConfig};
use super::pools::Donor;
use super::table::{Entry, Order, Table, TableCache, draw_from};
use crate::access::{Access, Op};
use crate::curve::MissRatioCurve;
use crate::error::ConfigError;
use crate::model::merged::{MERGED_SAMPLE_SIZES, MergedCurve, MergedKrr, sizes_of_interest};
use crate::model::{Counted, CurveModel};
use crate::random::Random;
use crate::sampling::Sampling;
use crate::units::PartitionId;

/// Keys that one model remembers: this share of what all may.
const KEYS_SHARE: usize = 16;

/// Which values belong to which tenant: an array of places for each, to draw from.
#[derive(Clone, Debug, Default)]
struct Members {
    of: Vec<Vec<u32>>,
    /// By place: its partition, and its position among the partition's.
    at: Vec<(u16, u32)>,
}

impl Members {
    fn insert(&mut self, place: usize, partition: PartitionId) {
        if self.of.len() <= partition.index() {
            self.of.resize(partition.index() + 1, Vec::new());
        }
        if self.at.len() <= place {
            self.at.resize(place + 1, (0, 0));
        }
        let members = &mut self.of[partition.index()];
        self.at[place] = (partition.0, members.len() as u32);
        members.push(place as u32);
    }

    fn remove(&mut self, place: usize) {
        let (partition, position) = self.at[place];
        let members = &mut self.of[partition as usize];
        members.swap_remove(position as usize);
        if let Some(&moved) = members.get(position as usize) {
            self.at[moved as usize].1 = position;
        }
    }

    fn moved(&mut self, from: usize, to: usize) {
        let (partition, position) = self.at[from];
        self.of[partition as usize][position as usize] = to as u32;
        self.at[to] = (partition, position);
    }
}

/// The order of kRedis. See the file's opening.
#[derive(Debug)]
pub struct Kredis {
    ledger: Ledger,
    /// By partition.
    models: Vec<MergedKrr>,
    sample_sizes: Vec<u32>,
    members: Members,
    random: Random,
}

impl Kredis {
    /// A kRedis cache of `capacity_bytes`; its partitions are tenants, whatever the configuration says.
    ///
    /// # Errors
    /// What the configuration has out of range.
    pub fn cache(config: PlanConfig, capacity_bytes: u64, seed: u64) -> Result<TableCache<Kredis>, ConfigError> {
        let config = PlanConfig { partitioning: Partitioning::Tenant, ..config };
        config.check()?;
        let order = Kredis {
            ledger: Ledger::new(config, capacity_bytes),
            models: Vec::new(),
            sample_sizes: Vec::new(),
            members: Members::default(),
            random: Random::new(seed),
        };
        Ok(TableCache::new(capacity_bytes, order))
    }

    fn model(&mut self, partition: PartitionId) -> &mut MergedKrr {
        let sampling = Sampling::Keys((self.ledger.config().sampled_keys_max / KEYS_SHARE).max(1));
        while self.models.len() <= partition.index() {
            let model = MergedKrr::new(&MERGED_SAMPLE_SIZES, sampling, Counted::Reads, self.random.next_u64());
            self.models.push(model.expect("the sizes that are merged are in range"));
        }
        &mut self.models[partition.index()]
    }

    fn record(&mut self, access: &Access, partition: PartitionId) {
        let siblings = self.ledger.siblings(partition);
        self.model(PartitionId(siblings.end as u16 - 1));
        if access.op == Op::Delete {
            // Of what size the value was a delete doesn't say; who doesn't know the key isn't touched by it.
            return self.models[siblings].iter_mut().for_each(|model| model.record(access));
        }
        if let Some(before) = self.ledger.came_from(access.key, partition) {
            self.models[before.index()].record(&access.with_op(Op::Delete));
            let model = &mut self.models[partition.index()];
            model.advance(u64::from(access.op == Op::Read));
            if model.rate().takes(access.key) {
                model.record_joined(access);
            }
            return;
        }
        self.models[partition.index()].record(access);
    }

    fn end_window(&mut self, capacity_bytes: u64) {
        let n = self.ledger.n_partitions();
        self.model(PartitionId(n as u16 - 1));
        let merge = |model: &MergedKrr| model.merged(&sizes_of_interest(capacity_bytes, model.known_bytes()));
        let merged: Vec<MergedCurve> = self.models.iter().map(merge).collect();
        let curves: Vec<MissRatioCurve> = merged.iter().map(|merged| merged.curve().clone()).collect();
        self.ledger.plan(&curves, self.models.iter().map(MergedKrr::rate));
        let PlanConfig { sample_size, decay, .. } = *self.ledger.config();
        let targets = self.ledger.target_bytes();
        let k_of = |(merged, &target): (&MergedCurve, &u64)| merged.k_at(target).unwrap_or(sample_size);
        self.sample_sizes = merged.iter().zip(targets).map(k_of).collect();
        self.models.iter_mut().for_each(|model| model.end_window(decay));
    }
}

impl Order for Kredis {
    fn victim(&mut self, table: &Table, incoming: &Entry) -> usize {
        let default = self.ledger.config().sample_size;
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let last_access = |place: &u32| table.entries()[*place as usize].last_access;
        if let Donor::Partition(id) = self.ledger.donor(incoming) {
            let k = self.sample_sizes.get(id.index()).copied().unwrap_or(default);
            let members = self.members.of.get(id.index()).map_or(&[][..], Vec::as_slice);
            let drawn = draw_from(members.len(), k as usize, &mut self.random, &mut drawn);
            if let Some(victim) = drawn.iter().map(|&i| members[i as usize]).min_by_key(last_access) {
                return victim as usize;
            }
        }
        let drawn = table.draw(default as usize, &mut self.random, &mut drawn);
        drawn.iter().copied().min_by_key(last_access).expect("the table is not empty") as usize
    }

    fn stored(&mut self, table: &Table, place: usize) {
        let entry = &table.entries()[place];
        self.ledger.stored(entry);
        self.members.insert(place, entry.partition);
    }

    fn removed(&mut self, table: &Table, place: usize) {
        self.ledger.removed(&table.entries()[place]);
        self.members.remove(place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.members.moved(from, to);
    }

    fn partition_of(&self, access: &Access) -> PartitionId {
        self.ledger.partition_of(access)
    }

    fn observed(&mut self, access: &Access, outcome: Outcome, table: &Table) {
        let partition = self.partition_of(access);
        self.record(access, partition);
        if self.ledger.observed(access, outcome, partition) {
            self.end_window(table.capacity_bytes());
        }
    }

    fn snapshot(&self, _table: &Table) -> Snapshot {
        Snapshot {
            target_bytes: self.ledger.target_bytes().to_vec(),
            used_bytes: self.ledger.used_bytes(),
            sample_sizes: self.sample_sizes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Inspect;
    use crate::policy::cache::Cache;
    use crate::units::{KeyHash, TenantId};

    /// Tenant 0 loops over 1100 keys, tenant 1 drifts over 900. With room for 1900 neither fits, and they want
    /// opposite K.
    #[test]
    fn each_tenant_gets_the_k_that_its_accesses_want() {
        let config = PlanConfig { window_requests: 20_000, ..PlanConfig::default() };
        let mut cache = Kredis::cache(config, 1_900, 1).unwrap();
        let mut random = Random::new(5);
        for i in 0..200_000_u64 {
            let key = if i % 2 == 0 { i / 2 % 1_100 } else { 1_000_000 + i / 8 + random.below(1_500) };
            let tenant = TenantId((i % 2) as u16);
            let access = Access { tenant, penalty_us: 100.0, ..Access::read(KeyHash::of_number(key), 1) };
            cache.access(&access);
            assert!(cache.used_bytes() <= 1_900);
        }
        let snapshot = cache.snapshot();
        assert_eq!(snapshot.used_bytes.iter().sum::<u64>(), cache.used_bytes());
        assert_eq!(snapshot.target_bytes.iter().sum::<u64>(), 1_900);
        assert!(snapshot.sample_sizes[1] >= 8, "{snapshot:?}");
        assert!(snapshot.sample_sizes[0] < 5 || snapshot.target_bytes[0] >= 1_100, "{snapshot:?}");
    }
}
