//! What the partitioning policies share: which partition an access belongs to, what each holds, reads and costs, and when to plan.
//!
//! The defaults are the module's, so that a replay predicts what the server would do: reads are what waits, a window weighs 0.7
//! one window later, memory is divided in thousandths, and a plan that saves less than 1 % isn't adopted.

use crate::access::{Access, Op};
use crate::curve::MissRatioCurve;
use crate::decide::allocation::{Claim, Group};
use crate::decide::penalty_class::{PENALTY_CLASSES, penalty_class};
use crate::decide::plan::{Plan, next_plan};
use crate::units::{PARTITIONS_MAX, PartitionId};

use super::cache::Outcome;
use super::over_target::OverTarget;
use super::pools::{Giver, next_giver};
use super::table::Entry;

/// What makes a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioning {
    /// Keys of similar miss penalty: the sixteen classes of pRedis.
    #[default]
    PenaltyClass,
    /// Keys of one tenant; all tenants beyond the last partition share it.
    Tenant,
}

impl Partitioning {
    /// Where what `access` stores belongs.
    #[inline]
    pub fn of(self, access: &Access) -> PartitionId {
        match self {
            Partitioning::PenaltyClass => PartitionId(penalty_class(f64::from(access.penalty_us)) as u16),
            Partitioning::Tenant => PartitionId(access.tenant.0.min(PARTITIONS_MAX as u16 - 1)),
        }
    }

    fn count_min(self) -> usize {
        match self {
            Partitioning::PenaltyClass => PENALTY_CLASSES,
            Partitioning::Tenant => 1,
        }
    }
}

/// How a partitioning policy plans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanConfig {
    /// What makes a partition.
    pub partitioning: Partitioning,
    /// Requests between two plans.
    pub window_requests: u64,
    /// What a window weighs one window later, 0 to 1.
    pub decay: f64,
    /// A plan that saves less than this share of the present one's cost isn't adopted, 0 to 1.
    pub gain_min: f64,
    /// The unit of allocation, in bytes; 0 = a thousandth of the memory.
    pub granularity_bytes: u64,
    /// Keys sampled per eviction, where the policy doesn't choose by itself.
    pub sample_size: u32,
    /// Keys that the models of all partitions remember; more lower the rate.
    pub sampled_keys_max: usize,
}

impl Default for PlanConfig {
    fn default() -> Self {
        PlanConfig {
            partitioning: Partitioning::PenaltyClass,
            window_requests: 50_000,
            decay: 0.7,
            gain_min: 0.01,
            granularity_bytes: 0,
            sample_size: 5,
            sampled_keys_max: 1 << 15,
        }
    }
}

/// Fewer reads than this, after decay, are none.
const READS_MIN: f64 = 0.5;

/// The account of one partition. What is counted decays with each window.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    used_bytes: u64,
    reads: f64,
    misses: f64,
    penalty_us_sum: f64,
}

/// The accounts of all partitions, and the plan in force.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    config: PlanConfig,
    capacity_bytes: u64,
    accounts: Vec<Account>,
    plan: Option<Plan>,
    /// Requests since the last plan.
    requests: u64,
}

impl Ledger {
    pub fn new(config: PlanConfig, capacity_bytes: u64) -> Self {
        let accounts = vec![Account::default(); config.partitioning.count_min()];
        Ledger { config, capacity_bytes, accounts, plan: None, requests: 0 }
    }

    pub fn config(&self) -> &PlanConfig {
        &self.config
    }

    pub fn n_partitions(&self) -> usize {
        self.accounts.len()
    }

    fn account(&mut self, partition: PartitionId) -> &mut Account {
        if self.accounts.len() <= partition.index() {
            self.accounts.resize(partition.index() + 1, Account::default());
        }
        &mut self.accounts[partition.index()]
    }

    pub fn stored(&mut self, entry: &Entry) {
        self.account(entry.partition).used_bytes += u64::from(entry.size_bytes);
    }

    pub fn removed(&mut self, entry: &Entry) {
        self.account(entry.partition).used_bytes -= u64::from(entry.size_bytes);
    }

    /// Counts one access of `partition`; true where the window has ended.
    pub fn observed(&mut self, access: &Access, outcome: Outcome, partition: PartitionId) -> bool {
        let account = self.account(partition);
        if access.op == Op::Read {
            account.reads += 1.0;
            if outcome == Outcome::Miss {
                account.misses += 1.0;
                account.penalty_us_sum += f64::from(access.penalty_us);
            }
        }
        self.requests += u64::from(outcome != Outcome::NotARequest);
        self.requests >= self.config.window_requests
    }

    /// What each partition holds, in bytes.
    pub fn used_bytes(&self) -> Vec<u64> {
        self.accounts.iter().map(|account| account.used_bytes).collect()
    }

    /// Which partitions hold more than their target once `incoming` is stored; where none does, those furthest above their
    /// share. All, before the first plan.
    pub fn over(&self, incoming: &Entry) -> OverTarget {
        self.with_used_bytes(incoming, |used, targets| {
            let over = OverTarget::new(used, targets);
            match (targets, over.is_none()) {
                ([], _) => OverTarget::all(),
                (_, true) => OverTarget::nearest(used, targets, OverTarget::default()),
                (_, false) => over,
            }
        })
    }

    /// Who gives up a value so that `incoming` can be stored.
    pub fn giver(&self, incoming: &Entry) -> Giver {
        let unlimited = [u64::MAX; PARTITIONS_MAX];
        let next = |used: &[u64], targets: &[u64]| next_giver(used, targets, &unlimited, OverTarget::default, true);
        self.with_used_bytes(incoming, next).unwrap_or(Giver::Anyone)
    }

    fn with_used_bytes<T>(&self, incoming: &Entry, take: impl FnOnce(&[u64], &[u64]) -> T) -> T {
        let mut used = [0; PARTITIONS_MAX];
        for (slot, account) in used.iter_mut().zip(&self.accounts) {
            *slot = account.used_bytes;
        }
        used[incoming.partition.index()] += u64::from(incoming.size_bytes);
        let n = self.accounts.len().max(incoming.partition.index() + 1);
        take(&used[..n], self.target_bytes())
    }

    /// Target bytes by partition; empty until the first plan.
    pub fn target_bytes(&self) -> &[u64] {
        self.plan.as_ref().map_or(&[], |plan| &plan.target_bytes)
    }

    /// Makes the next plan from each partition's curve, and begins a new window.
    pub fn plan(&mut self, curves: &[MissRatioCurve]) {
        assert_eq!(curves.len(), self.accounts.len(), "one curve for each partition");
        self.requests = 0;
        self.accounts.iter_mut().filter(|account| account.reads < READS_MIN).for_each(|account| account.reads = 0.0);
        if self.accounts.iter().any(|account| account.reads > 0.0) {
            let penalties = self.penalties_us();
            let claim = |(group, ((account, curve), penalty_us)): (usize, ((&Account, _), f64))| Claim {
                curve,
                cost_us_max: account.reads * penalty_us,
                group,
            };
            let claims: Vec<Claim> = self.accounts.iter().zip(curves).zip(penalties).enumerate().map(claim).collect();
            // What nobody reads gets nothing, and costs no time to plan for.
            let most = |account: &Account| if account.reads > 0.0 { self.capacity_bytes } else { 0 };
            let groups: Vec<Group> =
                self.accounts.iter().map(|account| Group { bytes_min: 0, bytes_max: most(account) }).collect();
            let unit = match self.config.granularity_bytes {
                0 => (self.capacity_bytes / 1000).max(1),
                set => set.max(self.capacity_bytes / 4000),
            };
            let next = next_plan(self.plan.as_ref(), &claims, &groups, self.capacity_bytes, unit, self.config.gain_min);
            self.plan = Some(next.expect("bounds of 0 and the capacity always fit"));
        }
        for account in &mut self.accounts {
            account.reads *= self.config.decay;
            account.misses *= self.config.decay;
            account.penalty_us_sum *= self.config.decay;
        }
    }

    /// Mean penalty by partition; the mean of all where none was measured, and 1 where none was measured at all.
    fn penalties_us(&self) -> Vec<f64> {
        let misses: f64 = self.accounts.iter().map(|account| account.misses).sum();
        let sum: f64 = self.accounts.iter().map(|account| account.penalty_us_sum).sum();
        let fallback = if misses > 0.0 && sum > 0.0 { sum / misses } else { 1.0 };
        let mean = |account: &Account| account.penalty_us_sum / account.misses;
        self.accounts.iter().map(mean).map(|us| if us > 0.0 { us } else { fallback }).collect()
    }
}
