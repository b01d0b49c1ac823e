//! The plan in force: how much memory each partition is to have, and under which K it is evicted.

use tenure_core::decide::allocation::{Claim, Group};
use tenure_core::decide::plan::{Plan, Terms, next_plan};
use tenure_core::decide::sample_size::RunningSampleSize;
use tenure_core::model::merged::MergedCurve;
use tenure_core::sampling::SampleRate;
use tenure_core::tiers::division as fast_division;
use tenure_core::units::TenantId;

use super::shared::{Instructions, Snapshot};
use super::views::PartitionView;
use crate::observe::tenants;

/// Into so many units the fast memory tier is divided.
const FAST_UNITS: u64 = 500;

/// What a plan is made of.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// By partition.
    pub partitions: &'a [PartitionView],
    /// The rate at which they were sampled.
    pub rate: SampleRate,
    /// There were requests, or a lesson.
    pub is_anything: bool,
}

/// The plan, and the K that go with it. See the file's opening.
#[derive(Default)]
pub struct Planner {
    plan: Option<Plan>,
    sample_sizes: Vec<RunningSampleSize>,
    adopted: u64,
}

impl Planner {
    /// The plan in force; `None` where there is nothing to divide.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Plans so far whose targets differ from the one before.
    pub fn adopted(&self) -> u64 {
        self.adopted
    }

    /// The K of each partition; none where they are as set.
    pub fn sample_sizes(&self) -> Vec<u32> {
        self.sample_sizes.iter().map(RunningSampleSize::k).collect()
    }

    /// Partitions are others: no plan is in force.
    pub fn clear(&mut self) {
        self.plan = None;
        self.sample_sizes.clear();
    }

    /// These targets are in force, made by another node.
    pub fn take_over(&mut self, target_bytes: Vec<u64>) {
        self.plan = Some(Plan { target_bytes, cost_us: 0.0 });
    }

    /// These K are.
    pub fn take_over_sample_sizes(&mut self, sample_sizes: impl Iterator<Item = u32>) {
        self.sample_sizes = sample_sizes.map(RunningSampleSize::new).collect();
    }

    /// The next plan is in force, by what is known of partitions and what a miss of each costs in µs. True where its
    /// targets are others.
    pub fn plan_anew(&mut self, snapshot: &Snapshot, known: Known, penalty_us: &[f64]) -> bool {
        let plan = self.decide(snapshot, known, penalty_us);
        let targets = |plan: &Option<Plan>| plan.as_ref().map(|plan| plan.target_bytes.clone());
        let moved = targets(&plan) != targets(&self.plan);
        self.plan = plan;
        moved
    }

    /// The same at the end of a window, where one that differs counts.
    pub fn end_window(&mut self, snapshot: &Snapshot, known: Known, penalty_us: &[f64]) -> bool {
        let moved = self.plan_anew(snapshot, known, penalty_us);
        self.adopted += u64::from(moved && self.plan.is_some());
        moved
    }

    /// The next plan; `None` without a limit to divide, or before any request.
    fn decide<'a>(&self, snapshot: &Snapshot, known: Known<'a>, penalty_us: &[f64]) -> Option<Plan> {
        let memory_bytes = snapshot.memory.capacity_bytes;
        if memory_bytes == 0 || !known.is_anything {
            return None;
        }
        let Instructions { granularity_bytes, gain_min, objective, .. } = snapshot.instructions;
        let minimums = tenants::fitting_minimums(&snapshot.tenants.bytes_min, memory_bytes);
        let claim_of = |((tenant, view), penalty_us): ((&TenantId, &'a PartitionView), &f64)| {
            let group = tenant.0 as usize;
            let miss_us = objective.miss_us(*penalty_us) * f64::from(snapshot.tenants.weights[group]);
            view.claim(miss_us, group, known.rate)
        };
        let claims: Vec<Claim> =
            snapshot.tenant_of.iter().zip(known.partitions).zip(penalty_us).map(claim_of).collect();
        let bounds = |(&bytes_min, &bytes_max): (&u64, &u64)| Group { bytes_min, bytes_max: bytes_max.max(bytes_min) };
        let groups: Vec<Group> = minimums.iter().zip(&snapshot.tenants.bytes_max).map(bounds).collect();
        let terms = Terms { memory_bytes, granularity_bytes, gain_min, objective };
        next_plan(self.plan.as_ref(), &claims, &groups, &terms).ok()
    }

    /// The K of each partition for its target: that which its curve is of there. To begin with it is as set; under
    /// targets that stay another has to be worth as much as another plan, too.
    pub fn choose_sample_sizes(
        &mut self,
        known: Known,
        carried: &[Option<u32>],
        (moved, instructions): (bool, &Instructions),
    ) {
        let Some(plan) = &self.plan else { return self.sample_sizes.clear() };
        let gain_min = if moved { 0.0 } else { instructions.gain_min };
        let as_set = RunningSampleSize::new(instructions.sample_size);
        let merged: Vec<&MergedCurve> = known.partitions.iter().filter_map(|view| view.merged.as_ref()).collect();
        self.sample_sizes.resize(merged.len().min(plan.target_bytes.len()), as_set);
        for (i, running) in self.sample_sizes.iter_mut().enumerate() {
            match carried[i] {
                Some(k) => *running = RunningSampleSize::new(k),
                None => {
                    let n_reads = known.partitions[i].weights.reads * known.rate.rate();
                    running.end_window(merged[i], plan.target_bytes[i], gain_min, n_reads);
                }
            }
        }
    }
}

/// How the fast memory tier is divided: a read that it misses costs the same whoever's it is, but for the
/// tenant's weight.
pub fn divide_fast<'a>(snapshot: &Snapshot, partitions: &'a [PartitionView], rate: SampleRate) -> Vec<u64> {
    let Some((division, fast_bytes)) = snapshot.fast else { return Vec::new() };
    let claim_of = |(tenant, view): (&TenantId, &'a PartitionView)| {
        let group = tenant.0 as usize;
        view.claim(f64::from(snapshot.tenants.weights[group]), group, rate)
    };
    let claims: Vec<Claim> = snapshot.tenant_of.iter().zip(partitions).map(claim_of).collect();
    let unit_bytes = (fast_bytes / FAST_UNITS).max(1);
    fast_division::divide(division, &claims, snapshot.tenants.weights.len(), fast_bytes, unit_bytes).unwrap_or_default()
}
