//! What the worker last made, as far as it is about the partitions in force: targets, sampling sizes, the ranking; and
//! what stands against evicting by it.

use tenure_core::policy::density::Ranking;

use super::Tenure;
use super::status::EvictionStatus;
use crate::config::Policy;
use crate::feature::When;
use crate::rivals::Rival;
use crate::worker::{PartitionView, Published};

/// Without news from the worker for this many windows, its plan is not trusted any more.
const STALE_WINDOWS: u64 = 6;
const STALE_US_MIN: u64 = 60_000_000;

impl Tenure {
    /// The ranking in force under Tenure's own policy: before the first window GDSF.
    pub fn ranking(&self) -> Ranking {
        self.current().and_then(|published| published.learned.ranking).unwrap_or(Ranking::Greedy)
    }

    /// What the worker last made, where it is about the partitions in force.
    pub fn current(&self) -> Option<&Published> {
        Some(&*self.published).filter(|published| published.epoch == self.observer.epoch())
    }

    /// What the worker last knew of a partition; `None` where that was another tenant's.
    pub fn view(&self, partition: usize) -> Option<&PartitionView> {
        let generation = self.observer.partitions.generations().get(partition)?;
        self.current()?.partitions.get(partition).filter(|view| view.generation == *generation)
    }

    /// Keys sampled per eviction by partition, as planned; empty where they are as set.
    pub(super) fn sample_sizes(&self) -> &[u32] {
        let current = self.current().filter(|_| self.settings.policy.rival().is_some_and(Rival::plans_sample_sizes));
        current.map_or(&[], |published| &published.sample_sizes)
    }

    /// Keys sampled per eviction, whoever gives: as set, or as chosen; fewer where replies wait on a busy main thread.
    pub(super) fn sample_size(&self, when: When) -> u32 {
        let are_waiting = when == When::BeforeReplies;
        let set = match self.settings.policy {
            Policy::Density => return self.pressure.load.samples(self.settings.density_samples as u32, are_waiting),
            _ => self.settings.samples,
        };
        self.chosen_sample_size().unwrap_or(set as u32)
    }

    /// The K that the worker chose for the whole cache.
    pub(super) fn chosen_sample_size(&self) -> Option<u32> {
        let chooses = self.settings.policy.rival().is_some_and(Rival::chooses_sample_size);
        self.current()?.choice.sample_size.filter(|_| chooses)
    }

    /// Keys sampled per eviction of a partition, where no reply waits.
    pub fn sample_size_of(&self, partition: usize) -> u32 {
        self.sample_sizes().get(partition).copied().unwrap_or_else(|| self.sample_size(When::Idle))
    }

    /// Target bytes by partition; empty without a plan.
    pub fn target_bytes(&self) -> &[u64] {
        let plan = self.current().and_then(|published| published.plan.as_ref());
        plan.map_or(&[], |plan| &plan.target_bytes)
    }

    /// What stands against evicting that costs nothing to know.
    pub(super) fn status_by_plan(&self, now_us: u64) -> EvictionStatus {
        let stale_us = (STALE_WINDOWS * self.settings.window_seconds as u64 * 1_000_000).max(STALE_US_MIN);
        let planned = self.current().is_some_and(|published| published.plan.is_some());
        if self.settings.policy == Policy::Off {
            EvictionStatus::PolicyOff
        } else if self.memory.policy == "noeviction" && self.memory.limit_bytes > 0 {
            EvictionStatus::NoEviction
        } else if self.memory.limit_bytes == 0 {
            EvictionStatus::NoLimit
        } else if self.memory.is_importing {
            EvictionStatus::Importing
        } else if self.server_evicts() {
            EvictionStatus::ByServer
        } else if self.faults.worker_died && self.settings.policy.learns() {
            EvictionStatus::NoWorker
        } else if !self.settings.policy.has_targets() {
            EvictionStatus::Ready
        } else if !planned {
            EvictionStatus::NoPlan
        } else if now_us > self.worker.news.at_us + stale_us {
            EvictionStatus::StalePlan
        } else {
            EvictionStatus::Ready
        }
    }

    /// True where only the sampling size is Tenure's business.
    pub(super) fn server_evicts(&self) -> bool {
        let rival = self.settings.policy.rival();
        rival.is_some_and(|rival| rival.leaves_eviction(self.settings.rival_evictor))
            && self.memory.policy.ends_with("-lru")
    }

    /// How far below the limit memory is kept, in bytes.
    pub fn headroom_bytes(&self) -> u64 {
        self.headroom_bytes_under(self.memory.limit_bytes)
    }

    /// The same if the limit were `limit_bytes`.
    pub(super) fn headroom_bytes_under(&self, limit_bytes: u64) -> u64 {
        if self.server_evicts() {
            return 0;
        }
        match self.settings.headroom_bytes as u64 {
            0 => self.pressure.growth.headroom_bytes(limit_bytes) + self.pressure.own.reserve_bytes(limit_bytes),
            set => set.min(limit_bytes / 2),
        }
    }

    /// What the next turn may need of that, in bytes: as much as turns have brought, and half of what is set. The rest
    /// is for turns that come until the event loop is idle.
    pub(super) fn next_turn_bytes(&self) -> u64 {
        let brought_bytes = self.pressure.growth.largest_turn_bytes(self.memory.limit_bytes);
        match self.settings.headroom_bytes {
            0 => brought_bytes,
            _ => brought_bytes.max(self.headroom_bytes() / 2),
        }
    }
}
