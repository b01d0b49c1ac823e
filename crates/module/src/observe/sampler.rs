//! The sample: of all accesses those whose keys' hashes are in it, noted before their commands run, looked at when the
//! turn is over, and passed on to the worker.
//!
//! What a turn brings beyond the ring's room, or the worker's queue has no room for, is dropped and counted.

use std::sync::Arc;

use tenure_core::access::{Access, Op};
use tenure_core::policy::density::{MissCosts, Shown, Subject};
use tenure_core::sampling::SampleRate;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

use super::clients::Clients;
use super::command_table::Effect;
use super::counters::Counters;
use super::partitions::{Partitions, in_database};
use super::ring::{Noted, Place, Ring};
use super::sample_queue::SampleQueue;
use super::sizes::Sizes;
use crate::ffi::server::{Kind, Server};

/// One sampled access on its way to the worker.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    /// The access; its key's hash has the database mixed into the low bits.
    pub access: Access,
    /// The partition's request number.
    pub at: u64,
    /// Where the access belongs.
    pub partition: PartitionId,
    /// Which set of partitions the number above is of; it changes with `tenure.tenants`.
    pub epoch: u32,
    /// How often the number went to another tenant.
    pub generation: u16,
    /// What the key has shown, where that is remembered.
    pub shown: Option<Shown>,
    /// Its command was seen. Of others Tenure's own policy alone is told, by `access` and `shown`.
    pub is_seen: bool,
}

/// An access that went unseen: the server's clock has told of it when its key was met.
#[derive(Clone, Copy, Debug)]
pub struct LateAccess {
    /// The key.
    pub key: KeyHash,
    /// Where it belongs.
    pub partition: PartitionId,
    /// What is known of it, with this access.
    pub subject: Subject,
}

/// What of the stream was not passed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// Sampled accesses beyond what one turn looks at.
    pub ring_full: u64,
    /// Sampled accesses that the worker had no room for.
    pub queue_full: u64,
}

/// The sample of one turn, and what was passed on. See the file's opening.
pub struct Sampler {
    ring: Ring,
    queue: Arc<SampleQueue>,
    /// The share of keys that is sampled.
    pub rate: SampleRate,
    /// Not passed on.
    pub losses: Losses,
    dropped_before: u64,
    /// The keys that the last turn sampled, where a feature wants to hear of them.
    pub kept: Option<Vec<(PartitionId, KeyHash)>>,
    /// Keys that several databases hold take turns.
    undecided: usize,
    /// The turn's last request number of each partition, where places are told out of order.
    latest: Latest,
    epoch: u32,
}

impl Sampler {
    /// Takes every key, and passes it on to `queue`.
    pub fn new(queue: Arc<SampleQueue>) -> Self {
        Sampler {
            ring: Ring::default(),
            queue,
            rate: SampleRate::ALL,
            losses: Losses::default(),
            dropped_before: 0,
            kept: None,
            undecided: 0,
            latest: Latest::default(),
            epoch: 0,
        }
    }

    /// Which set of partitions samples are of.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Partitions are others from now on: what was noted is forgotten.
    pub fn begin_epoch(&mut self) {
        self.ring.clear();
        self.epoch += 1;
    }

    /// Notes an access of a key, if that is in the sample; with its place, where that is known, the tick, and whether
    /// it answers a miss.
    #[inline(always)]
    pub fn note(&mut self, (key, hash): (&[u8], KeyHash), place: Option<Place>, effect: Effect, when: (u64, bool)) {
        if self.rate.takes(hash) && !self.ring.push(key, hash, place, effect, when) {
            self.losses.ring_full += 1;
        }
    }

    /// Tells where the last access of that key belongs, if it was noted without.
    pub fn place(&mut self, hash: KeyHash, effect: Effect, place: Place) {
        if self.rate.takes(hash) {
            self.ring.place(hash, effect, place);
        }
    }

    /// The last read of that key has found nothing.
    pub fn missed(&mut self, hash: KeyHash) {
        if self.rate.takes(hash) {
            self.ring.missed(hash);
        }
    }

    /// How many were dropped since this was last asked.
    pub fn take_dropped(&mut self) -> u64 {
        let dropped = self.losses.ring_full + self.losses.queue_full - self.dropped_before;
        self.dropped_before += dropped;
        dropped
    }

    /// True where the turn has sampled nothing.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The turn's commands have run: the sampled keys are looked at and passed on.
    pub fn pass_on(&mut self, mut lookup: Lookup) {
        lookup.stands_for = (1.0 / self.rate.rate()).round() as u64;
        self.latest.0.clear();
        let is_out_of_order = lookup.clients.are_unknown();
        for noted in self.ring.iter() {
            let place = noted.place.or_else(|| {
                self.undecided = self.undecided.wrapping_add(1);
                lookup.find_place(noted.key, noted.effect, self.undecided)
            });
            let Some((db, partition, at)) = place else { continue };
            let at = if is_out_of_order { self.latest.in_order(partition, at) } else { at };
            let (access, is_there) = lookup.look_at(db, partition, &noted);
            if let Some(kept) = &mut self.kept {
                kept.push((partition, access.key));
            }
            let shown = lookup.shown(&access, partition, &noted, is_there);
            let generation = lookup.partitions.generations()[partition.index()];
            let sampled = Sampled { access, at, partition, epoch: self.epoch, generation, shown, is_seen: true };
            if !self.queue.push(sampled) {
                self.losses.queue_full += 1;
            }
        }
        self.ring.clear();
    }

    /// Passes on an access that went unseen, where its key is in the sample.
    pub fn pass_on_late(&mut self, late: &LateAccess) {
        let LateAccess { key, partition, subject } = *late;
        if !self.rate.takes(key) {
            return;
        }
        let Subject { feature, last, expires, size_bytes, penalty_us } = subject;
        let shown = Some(Shown { now: last, expires, feature, penalty_us, op: Op::Read });
        let access = Access { tenant: TenantId(partition.0), ..Access::read(key, size_bytes) };
        let epoch = self.epoch;
        if !self.queue.push(Sampled { access, at: 0, partition, epoch, generation: 0, shown, is_seen: false }) {
            self.losses.queue_full += 1;
        }
    }
}

/// The last request number of each partition. Redis 7.0 doesn't tell the database of a command. Events tell it of some,
/// in a transaction the last first, and of others it is found at the turn's end: so the numbers of one key's accesses
/// may fall, and models know no time that goes back.
#[derive(Debug, Default)]
struct Latest(Vec<(PartitionId, u64)>);

impl Latest {
    /// `at`, or the number before it where that is higher.
    fn in_order(&mut self, partition: PartitionId, at: u64) -> u64 {
        match self.0.iter_mut().find(|(of, _)| *of == partition) {
            Some((_, latest)) => {
                *latest = at.max(*latest);
                *latest
            }
            None => {
                self.0.push((partition, at));
                at
            }
        }
    }
}

/// What sampled keys are looked at with.
pub struct Lookup<'a> {
    /// The server.
    pub server: &'a mut Server,
    /// Whose keys are.
    pub partitions: &'a mut Partitions,
    /// Which databases are in use.
    pub clients: &'a Clients,
    /// Accesses whose database is only found now are counted here.
    pub counters: &'a mut [Counters; PARTITIONS_MAX],
    /// How large keys are.
    pub sizes: &'a mut Sizes,
    /// What a miss of one costs.
    pub costs: &'a MissCosts,
    /// The time, in µs.
    pub now_us: u64,
    /// Accesses that each sampled one stands for.
    pub stands_for: u64,
}

impl Lookup<'_> {
    /// What became of one sampled key, and whether it is there, so that its size is known.
    fn look_at(&mut self, db: u16, partition: PartitionId, noted: &Noted) -> (Access, bool) {
        self.server.select_db(db);
        let name = self.server.text(noted.key);
        let key = self.server.open(&name);
        let hash = in_database(noted.hash, db);
        let (op, size_bytes) = match (noted.effect, key.kind()) {
            (Effect::Read, Kind::Absent) => (Op::Read, self.sizes.mean_bytes(partition)),
            (_, Kind::Absent) => (Op::Delete, 1),
            (effect, _) => {
                let op = if effect == Effect::Read { Op::Read } else { Op::Write };
                (op, self.sizes.of(partition, &name, || hash, &key))
            }
        };
        let ttl_us = if op == Op::Delete { None } else { key.expires_in_ms() }.map_or(0, |ms| (ms * 1000).max(1));
        let tenant = TenantId(partition.0);
        let access = Access { key: hash, op, tenant, size_bytes, time_us: self.now_us, ttl_us, penalty_us: 0.0 };
        (access, key.kind() != Kind::Absent)
    }

    /// What Tenure's own policy learns of a sampled access. A miss tells with its answer what it is about; without
    /// one there is nothing that could have been kept.
    fn shown(&self, access: &Access, partition: PartitionId, noted: &Noted, is_there: bool) -> Option<Shown> {
        let accesses = &self.partitions.keys.accesses;
        if !accesses.is_on() || (noted.effect == Effect::Read && (!is_there || noted.has_missed)) {
            return None;
        }
        let clock = accesses.clock();
        let entry = self.partitions.keys.entry(access.key);
        let (feature, penalty_us) = self.costs.of(entry.as_ref(), partition, clock.ticks_per_us);
        let expires = match access.ttl_us {
            0 => u64::MAX,
            ttl_us => clock.tick_after(noted.at, ttl_us),
        };
        let op = if noted.is_answer { Op::Read } else { access.op };
        Some(Shown { now: noted.at, expires, feature, penalty_us, op })
    }

    /// Redis 7.0, several databases, a key that was there: the database that holds it (of several, one of those where
    /// it was used last), and one access in each sampled key's name for all that were not sampled.
    fn find_place(&mut self, key: &[u8], effect: Effect, turn: usize) -> Option<Place> {
        let Lookup { server, clients, .. } = self;
        let name = server.text(key);
        let idle_in = |&db: &u16| {
            let key = server.select_db(db).then(|| server.open(&name)).filter(|key| key.kind() != Kind::Absent)?;
            Some((key.idle(), db))
        };
        let holders: Vec<(u64, u16)> = clients.dbs_in_use().iter().filter_map(idle_in).collect();
        let idle_min = holders.iter().map(|(idle, _)| *idle).min()?;
        let last: Vec<u16> = holders.iter().filter(|(idle, _)| *idle == idle_min).map(|(_, db)| *db).collect();
        let db = last[turn % last.len()];
        let partition = self.partitions.of(db, key);
        let counted = &mut self.counters[partition.index()];
        counted.count(effect, self.stands_for);
        Some((db, partition, counted.requests()))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::density::Feature;

    use super::*;

    /// Who learns is told of it as a read at that time, where its key is in the sample.
    #[test]
    fn what_went_unseen_is_passed_on_late() {
        let queue = Arc::new(SampleQueue::default());
        let mut sampler = Sampler::new(Arc::clone(&queue));
        let (key, expires) = (KeyHash::of(b"k"), u64::MAX);
        let subject = Subject { feature: Feature::default(), last: 7, expires, size_bytes: 9, penalty_us: 3.0 };
        let late = LateAccess { key, partition: PartitionId(1), subject };
        sampler.pass_on_late(&late);
        let told = queue.pop().unwrap();
        let shown = told.shown.map(|shown| (shown.now, shown.penalty_us, shown.op));
        assert_eq!((told.access.key, told.is_seen, shown), (key, false, Some((7, 3.0, Op::Read))));
        sampler.rate = SampleRate::new(1e-9).unwrap();
        sampler.pass_on_late(&late);
        assert!(queue.pop().is_none());
    }

    #[test]
    fn time_does_not_go_back_behind_a_place_that_was_told_out_of_order() {
        let (mut latest, [a, b]) = (Latest::default(), [PartitionId(1), PartitionId(2)]);
        let in_order = [(a, 106), (b, 7), (a, 103), (a, 107), (b, 8)].map(|(of, at)| latest.in_order(of, at));
        assert_eq!(in_order, [106, 7, 106, 107, 8]);
    }
}
