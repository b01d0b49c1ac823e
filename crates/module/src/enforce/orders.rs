//! What a slice of eviction has to free, how, and from whom.

use std::borrow::Cow;
use std::time::Duration;

use tenure_core::policy::Scorer;
use tenure_core::policy::density::Ranks;
use tenure_core::policy::over_target::OverTarget;
use tenure_core::policy::pools::{Donor, next_donor};
use tenure_core::units::PARTITIONS_MAX;

use super::walk::Guides;

/// Which of a partition's keys goes first.
#[derive(Clone, Copy)]
pub enum Scoring<'a> {
    /// The longest idle, as the server ranks them.
    Idle,
    /// The lowest score, by what is remembered of it.
    Scored(&'a dyn Scorer),
    /// What keeping saves least, as learned.
    Ranked(Ranks<'a>),
}

/// How newcomers go without a search.
#[derive(Clone, Copy)]
pub struct Thrifty {
    /// The server's limit, in bytes.
    pub limit_bytes: u64,
    /// Slices have run out of time of late.
    pub runs_out: bool,
}

/// What a turn has to free, and how.
pub struct Orders<'a> {
    /// Bytes to free.
    pub free_bytes: u64,
    /// So many more may be, where a few more keys spare later turns their slice.
    pub more_bytes: u64,
    /// Target bytes by partition; with none, any key may go.
    pub target_bytes: &'a [u64],
    /// Allowed bytes by partition: who is above goes even where memory isn't short.
    pub bytes_max: &'a [u64],
    /// Keys sampled per eviction.
    pub sample_size: usize,
    /// The same by partition, where they differ.
    pub sample_sizes: &'a [u32],
    /// K was chosen: no key may be older than a sample of K gives.
    pub keeps_to_samples: bool,
    /// Which key goes.
    pub scoring: Scoring<'a>,
    /// Mean miss penalty by partition, in µs, for keys whose own isn't known; one for each partition there can be.
    pub penalty_us: &'a [f32; PARTITIONS_MAX],
    /// Only keys that expire may go.
    pub volatile_only: bool,
    /// Newcomers may go without a search, where one would take more than it can save: the main thread is busy.
    pub thrifty: Option<Thrifty>,
    /// The databases that hold keys, with their number of keys.
    pub db_sizes: &'a [(u16, u64)],
    /// The turn's share of time.
    pub budget: Duration,
    /// So many keys go whatever the time: see [`super::slice::EVICTED_MIN`].
    pub evicted_min: usize,
    /// The time.
    pub now_us: u64,
}

/// Target and allowed bytes by partition, as this slice goes by them.
pub(super) struct Limits<'a> {
    target_bytes: Cow<'a, [u64]>,
    bytes_max: Cow<'a, [u64]>,
    passed_over: u128,
}

impl<'a> Limits<'a> {
    pub(super) fn of(orders: &Orders<'a>) -> Self {
        let (target_bytes, bytes_max) = (Cow::Borrowed(orders.target_bytes), Cow::Borrowed(orders.bytes_max));
        Limits { target_bytes, bytes_max, passed_over: 0 }
    }

    pub(super) fn next_donor(&self, guides: &Guides, short: bool) -> Option<Donor> {
        let used_bytes = &guides.usage.bytes()[..self.bytes_max.len()];
        let spared = || guides.partitions.at_minimum(used_bytes);
        next_donor(used_bytes, &self.target_bytes, &self.bytes_max, spared, short)
    }

    /// The keys of a donor don't turn up, as those of one slot of a cluster while the walk is in others, or the few
    /// of one that came before their names were noted: whoever is next gives. False where it has been passed over
    /// before.
    pub(super) fn pass_over(&mut self, donor: Donor) -> bool {
        let Donor::Partition(id) = donor else { return false };
        let is_new = self.passed_over >> id.index() & 1 == 0;
        if is_new {
            self.passed_over |= 1 << id.index();
            for limits in [&mut self.target_bytes, &mut self.bytes_max] {
                if let Some(limit) = limits.to_mut().get_mut(id.index()) {
                    *limit = u64::MAX;
                }
            }
        }
        is_new
    }

    /// Whose newcomers may go for the donor: those of all who are above their maximum, where it is, or of who may give.
    pub(super) fn may_go(&self, guides: &Guides, orders: &Orders, donor: Donor) -> OverTarget {
        match donor {
            Donor::Partition(_) => OverTarget::new(&guides.usage.bytes()[..self.bytes_max.len()], &self.bytes_max),
            Donor::Anyone => may_give(guides, orders),
        }
    }

    /// Bytes that the donor holds above its maximum.
    pub(super) fn excess_bytes(&self, guides: &Guides, donor: Donor) -> u64 {
        let Donor::Partition(id) = donor else { return 0 };
        let bytes_max = self.bytes_max.get(id.index()).copied().unwrap_or(0);
        guides.usage.bytes()[id.index()].saturating_sub(bytes_max)
    }
}

/// Whose keys are looked at: where there are no targets that see to it, not those of tenants at their minimum.
pub(super) fn may_give(guides: &Guides, orders: &Orders) -> OverTarget {
    match orders.scoring {
        Scoring::Ranked(_) => guides.partitions.above_minimums(guides.usage.bytes()),
        _ => OverTarget::all(),
    }
}

/// Who may give in the donor's place: who holds more than its target, or anyone above its minimum where nobody does.
pub(super) fn others(guides: &Guides, orders: &Orders, may_give: OverTarget) -> OverTarget {
    if let Scoring::Ranked(_) = orders.scoring {
        return may_give;
    }
    let used_bytes = guides.usage.bytes();
    let over = OverTarget::new(&used_bytes[..orders.bytes_max.len()], orders.target_bytes);
    if over.is_none() { guides.partitions.above_minimums(used_bytes) } else { over }
}
