//! Keys of slots that move to this node as a whole (`ffi::migration`), there before they are its own.
//!
//! What the source sends is no access: that was made there. The server counts such keys in no database and evicts
//! none, so neither does Tenure; how many came is counted here, and they are in the account from the moment when the
//! slots are the node's.

use std::collections::HashMap;

use tenure_core::units::PartitionId;

use super::slots::Slots;
use crate::ffi::migration::{Migration, Stage};

/// A database, and a partition.
type Place = (u16, PartitionId);

struct Job {
    id: [u8; 40],
    slots: Slots,
    /// Keys that have come and are still there.
    came: HashMap<Place, i64>,
}

/// The slots that arrive. See the file's opening.
#[derive(Default)]
pub struct Arrivals {
    jobs: Vec<Job>,
}

impl Arrivals {
    /// True where the key is of a slot that arrives.
    #[inline]
    pub fn have(&self, key: &[u8]) -> bool {
        self.any() && self.jobs.iter().any(|job| job.slots.have(key))
    }

    /// True where any slot arrives.
    #[inline]
    pub fn any(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// A key of such a slot has come (1) or gone (-1).
    pub fn count(&mut self, key: &[u8], place: Place, change: i64) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.slots.have(key)) {
            *job.came.entry(place).or_default() += change;
        }
    }

    /// Partitions have other numbers from now on: what has come is left to the walk to find.
    pub fn forget_counts(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.came.clear());
    }

    /// Slots begin to arrive, are this node's, or are not. Where they are: which, and how many keys they brought.
    pub fn take(&mut self, migration: Migration) -> Option<(Slots, Vec<(Place, u64)>)> {
        let Migration { job: id, stage, ranges } = migration;
        let known = self.jobs.iter().position(|job| job.id == id).map(|at| self.jobs.swap_remove(at));
        let slots = Slots::of_ranges(&ranges);
        match stage {
            Stage::Arriving => {
                self.jobs.push(Job { id, slots, came: HashMap::new() });
                None
            }
            // Keys that leave tell by themselves.
            Stage::Refused | Stage::Leaving | Stage::Kept | Stage::Left => None,
            Stage::Arrived => {
                let came = known.into_iter().flat_map(|job| job.came);
                let came = came.filter_map(|(place, keys)| Some((place, u64::try_from(keys).ok()?)));
                Some((slots, came.collect()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(job: u8, stage: Stage) -> Migration {
        // `foo` is of slot 12182.
        let ranges = vec![(0, 3), (12_182, 12_182)];
        Migration { job: [job; 40], stage, ranges }
    }

    #[test]
    fn what_arrives_counts_once_it_has_arrived() {
        let mut arrivals = Arrivals::default();
        assert!(!arrivals.have(b"foo") && arrivals.take(arrival(1, Stage::Arriving)).is_none());
        assert!(arrivals.have(b"foo") && arrivals.have(b"{foo}2") && !arrivals.have(b"123456789"));
        let place = (0, PartitionId(3));
        (0..3).for_each(|_| arrivals.count(b"foo", place, 1));
        arrivals.count(b"foo", place, -1);
        let (slots, came) = arrivals.take(arrival(1, Stage::Arrived)).unwrap();
        assert!(slots.have(b"foo") && !arrivals.have(b"foo") && !arrivals.any());
        assert_eq!(came, [(place, 2)]);
    }

    #[test]
    fn what_is_refused_never_counts_nor_what_was_not_seen_to_begin() {
        let mut arrivals = Arrivals::default();
        arrivals.take(arrival(1, Stage::Arriving));
        arrivals.count(b"foo", (0, PartitionId(0)), 1);
        assert!(arrivals.take(arrival(1, Stage::Refused)).is_none() && !arrivals.any());
        assert!(arrivals.take(arrival(2, Stage::Arrived)).is_some_and(|(_, came)| came.is_empty()));
    }
}
