//! Tenants that appear by themselves: one for each first part of a key up to a delimiter, those that are accessed
//! most.
//!
//! Accesses of who is a tenant are counted in any case; first parts of other keys are counted where their keys are
//! (`observe/first_parts.rs`), in fixed memory (`core/src/frequent.rs`). As a window ends it is decided here who
//! becomes a tenant (`core/src/decide/first_parts.rs`); on a replica that its primary teaches, its primary decides.
//! Cost: nothing per command but, for keys of no tenant, a hash and a few cache lines.

use tenure_core::decide::first_parts::{accesses_min, changes};
use tenure_core::frequent::faded;
use tenure_core::units::TenantId;

use crate::feature::{Feature, Report, Turn, Wants};
use crate::ffi::info::Value;
use crate::observe::first_parts;
use crate::tenure::Tenure;
use crate::tenure::appearing::Appearance;

/// Who has been a tenant for fewer windows keeps his place: part of what he was accessed is not counted for him.
const WINDOWS_MIN: u32 = 3;

/// How much a tenant is accessed.
#[derive(Clone, Copy, Debug, Default)]
struct Accessed {
    /// Of late.
    count: u64,
    /// All that were counted as the last window ended.
    before: u64,
    /// Windows since it appeared.
    windows: u32,
}

/// The feature. See the file's opening.
#[derive(Default)]
pub struct AutoTenants {
    /// By tenant.
    accessed: Vec<Accessed>,
    /// Which set of partitions that is about.
    epoch: Option<u32>,
    /// Which window ended last.
    version: u64,
}

impl AutoTenants {
    /// None before the first tick.
    pub fn new() -> AutoTenants {
        AutoTenants::default()
    }

    /// Other partitions: all is counted anew.
    fn follow_partitions(&mut self, tenure: &Tenure) {
        let epoch = Some(tenure.observer.epoch());
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.accessed.clear();
        }
    }

    /// A window has ended: who becomes a tenant.
    fn decide(&mut self, tenure: &mut Tenure) {
        let partitions = &mut tenure.observer.partitions;
        if !partitions.tenants().do_appear() {
            return;
        }
        let mut counted = vec![0; partitions.tenants().names().len()];
        for ((tenant, _), counters) in partitions.of_what().iter().zip(&tenure.observer.counters) {
            counted[usize::from(tenant.0)] += counters.requests() + counters.deletes;
        }
        self.accessed.resize(counted.len(), Accessed::default());
        for (accessed, now) in self.accessed.iter_mut().zip(counted) {
            accessed.count = faded(accessed.count) + now.saturating_sub(accessed.before);
            (accessed.before, accessed.windows) = (now, accessed.windows.saturating_add(1));
        }
        // What is nobody's is among what `other` counts.
        let total = self.accessed.iter().map(|accessed| accessed.count).sum();
        let mut candidates = partitions.nobodys().map_or(Vec::new(), |nobodys| nobodys.most(accesses_min(total)));
        let names = partitions.tenants().names();
        // It was counted until the tick in which it became one.
        candidates.retain(|named| !names.contains(&first_parts::name_of(&named.name)));
        let counts: Vec<u64> = candidates.iter().map(|named| named.count).collect();
        let of = |tenant: TenantId| (tenant, self.accessed[usize::from(tenant.0)]);
        let held = partitions.tenants().appeared().into_iter().map(of);
        let held: Vec<(TenantId, u64)> =
            held.filter(|(_, accessed)| accessed.windows >= WINDOWS_MIN).map(|(id, of)| (id, of.count)).collect();
        let (mut next, free) = (names.len().., partitions.tenants().free());
        let Some(nobodys) = partitions.nobodys() else { return };
        for (i, in_place_of) in changes(&held, &counts, free, total) {
            let part = candidates[i].name.clone();
            nobodys.forget(&part);
            let Some(place) = in_place_of.map(|tenant| usize::from(tenant.0)).or_else(|| next.next()) else { break };
            self.accessed.resize(self.accessed.len().max(place + 1), Accessed::default());
            // Its accesses so far count on.
            self.accessed[place] = Accessed { count: counts[i], ..Accessed::default() };
            tenure.appearing.pending.push(Appearance { part, in_place_of });
        }
        nobodys.fade();
    }
}

impl Feature for AutoTenants {
    /// What the observer counts, as far as it sees the stream, will do.
    fn wants(&self) -> Wants {
        Wants::NOTHING
    }

    fn tick(&mut self, turn: &mut Turn) {
        self.follow_partitions(turn.tenure);
        let version = turn.tenure.published_version();
        let has_ended = std::mem::replace(&mut self.version, version) != version;
        let is_taught = turn.tenure.current().is_none_or(|published| published.is_taught);
        if has_ended && !is_taught && !turn.tenure.has_tenants_to_change() {
            self.decide(turn.tenure);
        }
    }

    fn report(&self, tenure: &Tenure, report: &mut Report) {
        let n = tenure.observer.partitions.tenants().appeared().len() as u64;
        report.status.push(("auto_tenants", Value::Count(n)));
        report.info.push(("auto_tenants".to_owned(), Value::Count(n)));
        report.info.push(("auto_tenants_replaced".to_owned(), Value::Total(tenure.appearing.replaced)));
    }
}
