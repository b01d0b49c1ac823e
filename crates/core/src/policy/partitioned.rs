//! What the partitioning policies share: which partition an access belongs to, what each holds, reads and costs, and
//! when to plan.
//!
//! The defaults are the module's, so that a replay predicts what the server would do: reads are what waits, a window
//! weighs 0.7 one window later, memory is divided in thousandths, and a plan that saves less than 1 % isn't adopted.

use crate::access::{Access, Op};
use crate::curve::MissRatioCurve;
use crate::decide::allocation::{Claim, Group};
use crate::decide::objective::Objective;
use crate::decide::penalty_class::{PENALTY_CLASSES, penalty_class};
use crate::decide::plan::{Plan, Terms, next_plan};
use crate::decide::size_class::{SIZE_CLASSES_MAX, SizeClasses};
use crate::error::ConfigError;
use crate::sampling::SampleRate;
use crate::units::{KeyHash, PARTITIONS_MAX, PartitionId};

use super::cache::{Outcome, sample_size};
use super::over_target::OverTarget;
use super::pools::{Donor, next_donor};
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

    /// How many there may be, `size_classes` of each.
    fn count_max(self, size_classes: usize) -> usize {
        match self {
            Partitioning::PenaltyClass => PENALTY_CLASSES,
            Partitioning::Tenant => PARTITIONS_MAX / size_classes,
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
    /// What a plan is to reach.
    pub objective: Objective,
    /// Classes by size that each of these is divided into once more, 1 (not at all) to 8.
    pub size_classes: usize,
}

impl PlanConfig {
    /// # Errors
    /// What is out of its range.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        sample_size(self.sample_size)?;
        if !(0.0..=1.0).contains(&self.decay) {
            return Err(ConfigError::Decay(self.decay));
        }
        if !(1..=SIZE_CLASSES_MAX).contains(&self.size_classes) {
            return Err(ConfigError::SizeClasses(self.size_classes));
        }
        match self.partitioning.count_max(self.size_classes) * self.size_classes {
            n if n > PARTITIONS_MAX => Err(ConfigError::Partitions(n)),
            _ => Ok(()),
        }
    }
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
            objective: Objective::Penalty,
            size_classes: 1,
        }
    }
}

/// Fewer reads than this, after decay, are none.
const READS_MIN: f64 = 0.5;

/// The account of one partition. What is counted decays with each window.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    used_bytes: u64,
    keys: u64,
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
    /// By what a partition is before it is divided by size.
    sizes: Vec<SizeClasses>,
    plan: Option<Plan>,
    /// Requests since the last plan.
    requests: u64,
    /// The value that left last, and from where: it may have come back to another partition.
    left_last: Option<(KeyHash, PartitionId)>,
}

impl Ledger {
    pub fn new(config: PlanConfig, capacity_bytes: u64) -> Self {
        let n = config.partitioning.count_min();
        let accounts = vec![Account::default(); n * config.size_classes];
        let sizes = vec![SizeClasses::new(config.size_classes); n];
        Ledger { config, capacity_bytes, accounts, sizes, plan: None, requests: 0, left_last: None }
    }

    pub fn config(&self) -> &PlanConfig {
        &self.config
    }

    pub fn n_partitions(&self) -> usize {
        self.accounts.len()
    }

    /// Where what `access` stores belongs.
    #[inline]
    pub fn partition_of(&self, access: &Access) -> PartitionId {
        let n = self.config.size_classes;
        let whole = self.whole_of(access);
        if n == 1 {
            return PartitionId(whole as u16);
        }
        let class = self.sizes.get(whole).map_or(0, |sizes| sizes.limits().class_of(access.size_bytes));
        PartitionId((whole * n + class) as u16)
    }

    /// What `access` belongs to, before it is divided by size.
    #[inline]
    fn whole_of(&self, access: &Access) -> usize {
        let config = &self.config;
        config.partitioning.of(access).index().min(config.partitioning.count_max(config.size_classes) - 1)
    }

    /// The partitions, one after the other, that `partition` is a size class of.
    pub fn siblings(&self, partition: PartitionId) -> std::ops::Range<usize> {
        let first = partition.index() / self.config.size_classes * self.config.size_classes;
        first..first + self.config.size_classes
    }

    fn account(&mut self, partition: PartitionId) -> &mut Account {
        if self.accounts.len() <= partition.index() {
            let n = self.siblings(partition).end;
            self.accounts.resize(n, Account::default());
            self.sizes.resize(n / self.config.size_classes, SizeClasses::new(self.config.size_classes));
        }
        &mut self.accounts[partition.index()]
    }

    pub fn stored(&mut self, entry: &Entry) {
        let account = self.account(entry.partition);
        account.used_bytes += u64::from(entry.size_bytes);
        account.keys += 1;
    }

    pub fn removed(&mut self, entry: &Entry) {
        let account = self.account(entry.partition);
        account.used_bytes -= u64::from(entry.size_bytes);
        account.keys -= 1;
        self.left_last = Some((entry.key, entry.partition));
    }

    /// The other size class that a key was of until its present access, which is one of `partition`.
    pub fn came_from(&self, key: KeyHash, partition: PartitionId) -> Option<PartitionId> {
        let (left, before) = self.left_last?;
        (left == key && before != partition && self.siblings(partition).contains(&before.index())).then_some(before)
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
        if self.config.size_classes > 1 && access.op != Op::Delete {
            let whole = self.whole_of(access);
            self.sizes[whole].saw(access.size_bytes);
        }
        self.requests += u64::from(outcome != Outcome::NotARequest);
        self.requests >= self.config.window_requests
    }

    /// What each partition holds, in bytes.
    pub fn used_bytes(&self) -> Vec<u64> {
        self.accounts.iter().map(|account| account.used_bytes).collect()
    }

    /// Which partitions hold more than their target once `incoming` is stored; where none does, those furthest above
    /// their share. All, before the first plan.
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
    pub fn donor(&self, incoming: &Entry) -> Donor {
        let unlimited = [u64::MAX; PARTITIONS_MAX];
        let next = |used: &[u64], targets: &[u64]| next_donor(used, targets, &unlimited, OverTarget::default, true);
        self.with_used_bytes(incoming, next).unwrap_or(Donor::Anyone)
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

    /// Makes the next plan from each partition's curve and the rate at which it was sampled, and begins a new window.
    pub fn plan(&mut self, curves: &[MissRatioCurve], rates: impl Iterator<Item = SampleRate>) {
        assert_eq!(curves.len(), self.accounts.len(), "one curve for each partition");
        self.requests = 0;
        self.accounts.iter_mut().filter(|account| account.reads < READS_MIN).for_each(|account| account.reads = 0.0);
        if self.accounts.iter().any(|account| account.reads > 0.0) {
            let penalties = self.penalties_us();
            let n = self.config.size_classes;
            let claim = |(i, (((account, curve), rate), penalty_us)): (usize, (((&Account, _), SampleRate), f64))| {
                let cost_us_max = account.reads * self.config.objective.miss_us(penalty_us);
                Claim::new(curve, cost_us_max, i / n).seen_by(account.reads * rate.rate())
            };
            let claims: Vec<Claim> =
                self.accounts.iter().zip(curves).zip(rates).zip(penalties).enumerate().map(claim).collect();
            // What nobody reads gets nothing, and costs no time to plan for.
            let is_read = |accounts: &[Account]| accounts.iter().any(|account| account.reads > 0.0);
            let most = |accounts: &[Account]| if is_read(accounts) { self.capacity_bytes } else { 0 };
            let groups: Vec<Group> =
                self.accounts.chunks(n).map(|of_one| Group { bytes_min: 0, bytes_max: most(of_one) }).collect();
            let terms = Terms {
                memory_bytes: self.capacity_bytes,
                granularity_bytes: self.config.granularity_bytes,
                gain_min: self.config.gain_min,
                objective: self.config.objective,
            };
            let next = next_plan(self.plan.as_ref(), &claims, &groups, &terms);
            self.plan = Some(next.expect("bounds of 0 and the capacity always fit"));
        }
        for account in &mut self.accounts {
            account.reads *= self.config.decay;
            account.misses *= self.config.decay;
            account.penalty_us_sum *= self.config.decay;
        }
        let of_one = self.accounts.chunks(self.config.size_classes);
        for (sizes, accounts) in self.sizes.iter_mut().zip(of_one) {
            sizes.end_window(accounts.iter().map(|account| account.keys).sum(), self.config.decay as f32);
        }
    }

    /// Mean penalty by partition, the same for its size classes; the mean of all where none was measured, and 1 where
    /// none was measured at all.
    fn penalties_us(&self) -> Vec<f64> {
        let mean = |accounts: &[Account]| {
            let misses: f64 = accounts.iter().map(|account| account.misses).sum();
            accounts.iter().map(|account| account.penalty_us_sum).sum::<f64>() / misses
        };
        let or = |us: f64, fallback: f64| if us > 0.0 { us } else { fallback };
        let fallback = or(mean(&self.accounts), 1.0);
        let n = self.config.size_classes;
        self.accounts.chunks(n).flat_map(|of_one| std::iter::repeat_n(or(mean(of_one), fallback), n)).collect()
    }
}
