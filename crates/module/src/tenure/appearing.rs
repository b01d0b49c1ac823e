//! Tenants that appear by themselves, as the state takes them: what their numbers stood for is settled, and what is
//! learned by number begins anew.

use tenure_core::units::{PartitionId, TenantId};

use super::Tenure;
use crate::observe::Counters;
use crate::observe::first_parts;

/// A first part of keys that is to become a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// The first part.
    pub part: Vec<u8>,
    /// Whose place it takes; `None`: a free one.
    pub in_place_of: Option<TenantId>,
}

/// What is to appear, and what has.
#[derive(Debug, Default)]
pub struct Appearing {
    /// First parts of keys that are to become tenants with the next tick.
    pub pending: Vec<Appearance>,
    /// Tenants that appeared in the place of others.
    pub replaced: u64,
}

impl Tenure {
    /// True where [`Tenure::change_tenants`] has something to do.
    pub fn has_tenants_to_change(&self) -> bool {
        !self.appearing.pending.is_empty()
    }

    /// Makes tenants of the first parts that are to be. Their keys were `other`'s, and so are those of whom they take
    /// the place of; how many that are, the walk tells. Counters of the latter begin anew.
    pub fn change_tenants(&mut self) {
        let other = self.observer.partitions.tenants().other();
        let of_others = self.observer.partitions.base_of(other);
        for Appearance { part, in_place_of } in std::mem::take(&mut self.appearing.pending) {
            let before = in_place_of.map(|tenant| self.observer.partitions.of_tenant(tenant));
            if self.observer.partitions.appear(&part, in_place_of) {
                self.appearing.replaced += u64::from(in_place_of.is_some());
                before.into_iter().flatten().for_each(|partition| self.forget_partition(partition, of_others));
            }
        }
        let others = self.observer.partitions.of_tenant(other);
        let keys: f64 = others.iter().map(|partition| self.usage.keys()[partition.index()]).sum();
        self.usage.count_anew(keys);
        self.evictor.forget_victims();
        self.evictor.newcomers.clear();
    }

    /// The number of a partition is another's from now on; its keys are `heir`'s.
    fn forget_partition(&mut self, partition: PartitionId, heir: PartitionId) {
        self.usage.pass_on(partition, heir);
        self.observer.sizes().forget(partition);
        self.observer.counters[partition.index()] = Counters::default();
        self.evictor.work.evicted[partition.index()] = 0;
    }

    /// A primary has these tenants: those among them that appeared there are to be this node's too, in the place of
    /// those that it doesn't have.
    pub fn follow_tenants<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let tenants = self.observer.partitions.tenants();
        if !tenants.do_appear() {
            return;
        }
        let mut wanted: Vec<&str> = names.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let own = |tenant: &TenantId| tenants.names()[usize::from(tenant.0)].as_str();
        let mut left: Vec<TenantId> = tenants.appeared();
        left.retain(|tenant| wanted.binary_search(&own(tenant)).is_err());
        let mut free = tenants.free();
        let is_new = |name: &&str| !tenants.names().iter().any(|held| held == name);
        let parts = wanted.into_iter().filter(is_new).filter_map(first_parts::part_named);
        self.appearing.pending = parts
            .filter_map(|part| {
                let in_place_of = if free > 0 { None } else { Some(left.pop()?) };
                free = free.saturating_sub(1);
                Some(Appearance { part, in_place_of })
            })
            .collect();
    }
}
