//! What a key is worth when it is met, and how to know later that it wasn't used since.

use tenure_core::access_ring::is_far_younger;
use tenure_core::key_table::{self, Entry};
use tenure_core::policy::density::{GreedyAges, Ranks, Subject, was_accessed};
use tenure_core::policy::lru::Lru;
use tenure_core::policy::{Candidate, Scorer};

use super::orders::{Orders, Scoring};
use super::walk::Visit;
use super::{CLOCK_TICK_MS, ranks};
use crate::observe::LateAccess;
use crate::observe::keys::Keys;

/// A key as it was met: one that was accessed since is no victim.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sight {
    pub(super) idle: u64,
    pub(super) n_requests: u32,
    /// When it was last accessed, where that is remembered.
    pub(super) last: Option<u32>,
    /// What it takes, in bytes; 0 where nobody looked.
    pub(super) size_bytes: u32,
    /// Its time was up: it takes that until it is looked up.
    pub(super) is_expired: bool,
}

/// What a visited key is worth, and how to know it again. Accesses that went unseen are noted in `late`, too.
pub(super) fn look_at(
    visit: &Visit,
    keys: &mut Keys,
    orders: &Orders,
    ages: &GreedyAges,
    late: &mut Vec<LateAccess>,
) -> (f64, Sight) {
    match &orders.scoring {
        Scoring::Idle => {
            let idle = visit.key.idle();
            (Lru.score(&candidate(visit, idle)), Sight { idle, ..Sight::default() })
        }
        Scoring::Scored(scorer) => {
            let idle = visit.key.idle();
            let entry = keys.entry(visit.hash());
            let remembered = entry.filter(|entry| entry.n_requests > 0);
            // Where its requests are not remembered, it counts as asked for once, when it was last used.
            let (n_requests, resident) = match remembered {
                Some(e) => {
                    (u32::from(e.n_requests), u64::from(key_table::tick(orders.now_us).wrapping_sub(e.entered)) + 1)
                }
                None => (1, idle + 1),
            };
            let penalty_us = entry.and_then(|entry| entry.penalty_us());
            let penalty_us = penalty_us.unwrap_or_else(|| orders.penalty_us[visit.partition.index()]);
            let size_bytes = visit.size_bytes.unwrap_or(visit.mean_bytes);
            let candidate = Candidate { resident, n_requests, size_bytes, penalty_us, ..candidate(visit, idle) };
            (scorer.score(&candidate), Sight { idle, n_requests, ..Sight::default() })
        }
        Scoring::Ranked(ranks) => rank(visit, keys, (ranks, orders.now_us), ages, late),
    }
}

/// The same under Tenure's own policy.
#[inline]
fn rank(
    visit: &Visit,
    keys: &mut Keys,
    (ranks, now_us): (&Ranks, u64),
    ages: &GreedyAges,
    late: &mut Vec<LateAccess>,
) -> (f64, Sight) {
    let mut known = keys.entry(visit.hash());
    // What is remembered of a key tells whether it was used since, where all is seen; the server has to be asked of
    // others alone.
    let idle = if known.is_none() || ranks.sees_part { visit.key.idle() } else { 0 };
    let (size_bytes, about_bytes) = (visit.size_bytes.unwrap_or(0), visit.size_bytes.unwrap_or(visit.mean_bytes));
    let value = (visit.partition, about_bytes);
    let mut subject = ranks::subject_idle(ranks, known.as_ref(), value, visit.key, || idle);
    // By the mean pace first, so that the record of which tick it was when is asked for few.
    if ranks.sees_part
        && let Some(old) = known.filter(|known| is_far_younger(known, subject.last, ranks.clock.now))
        && let Some((at, new)) = keys.note_late((visit.hash(), &old), (now_us, idle.saturating_add(CLOCK_TICK_MS)))
    {
        known = Some(new);
        subject = Subject { last: at, ..ranks::subject_idle(ranks, known.as_ref(), value, visit.key, || idle) };
        late.push(LateAccess { key: visit.hash(), partition: visit.partition, subject });
    }
    let last = known.map(|known| known.last);
    let is_expired = subject.expires <= ranks.clock.now;
    let score = f64::from(ranks.ranker(ages).score(&subject));
    (score, Sight { idle, last, size_bytes, is_expired, ..Sight::default() })
}

fn candidate(visit: &Visit, idle: u64) -> Candidate {
    Candidate { partition: visit.partition, idle, resident: 0, n_requests: 0, size_bytes: 0, penalty_us: 0.0 }
}

/// True where a key was accessed since it was met, as far as is remembered.
pub(super) fn was_used(scoring: &Scoring, entry: Option<&Entry>, sight: &Sight) -> bool {
    match scoring {
        Scoring::Idle => false,
        Scoring::Scored(_) => entry.map_or(0, |entry| u32::from(entry.n_requests)) > sight.n_requests,
        Scoring::Ranked(_) => was_accessed(entry, sight.last),
    }
}
