//! The evictor: frees memory below the server's limit, from partitions that hold more than their target.
//!
//! Who gives up a key and which is decided in `tenure_core::policy::pools`, after pRedis (Pan et al., SoCC'19) sec. 5; the walk
//! through the key space feeds it. All this happens at the end of an event loop's turn, in a slice of bounded time, a little
//! below `maxmemory`, so that the server's own eviction has nothing left to do; when Tenure can't keep up, it is there.
//! Cost: about K scanned keys and one unlink per eviction, more where a partition that gives has a small share of the keys;
//! bounded per turn by `tenure.turn-budget-us`.

use std::time::{Duration, Instant};

use tenure_core::key_table;
use tenure_core::policy::hyperbolic::Hyperbolic;
use tenure_core::policy::lru::Lru;
use tenure_core::policy::over_target::OverTarget;
use tenure_core::policy::pools::{Giver, PATIENCE, Pools, next_giver};
use tenure_core::policy::{Candidate, Scorer};
use tenure_core::units::{KeyHash, PARTITIONS_MAX};

use super::newcomers::{Newcomers, Oldest};
use super::walk::{Guides, Visit, Walk};
use crate::ffi::server::{Kind, Server, Text};
use crate::observe::classes::Classes;
use crate::observe::partitions::in_database;

/// Victims in a row that were gone or used again: enough for this turn.
const FAILURES_MAX: usize = 16;

/// Where memory is about to reach its limit, so many keys go before the time is looked at: it may have passed while another
/// program had the core, and what Tenure leaves over the server takes from whoever is idle longest, a guaranteed tenant first.
pub const EVICTED_MIN: usize = 16;

/// Steps of the walk between two looks at the clock.
const STEPS_PER_LOOK: usize = 8;

/// From this K on, of the four that are planned with, the oldest key is as good as the oldest of a sample.
const NEARLY_LRU: usize = 8;

/// Which of a partition's keys goes first.
#[derive(Clone, Copy, Debug)]
pub enum Scoring {
    /// The longest idle, as the server ranks them.
    Idle,
    /// What is worth least, by what is remembered of it.
    Worth(Hyperbolic),
}

/// What a turn has to free, and how.
pub struct Orders<'a> {
    /// Bytes to free.
    pub free_bytes: u64,
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
    pub scoring: Scoring,
    /// Mean miss penalty by partition, in µs, for keys whose own isn't known; one for each partition there can be.
    pub penalty_us: &'a [f32; PARTITIONS_MAX],
    /// Only keys that expire may go.
    pub volatile_only: bool,
    /// The databases that hold keys, with their number of keys.
    pub db_sizes: &'a [(u16, u64)],
    /// The turn's share of time.
    pub budget: Duration,
    /// So many keys go whatever the time: see [`EVICTED_MIN`].
    pub evicted_min: usize,
    /// The time.
    pub now_us: u64,
}

/// What has been done since the module was loaded.
#[derive(Clone, Debug)]
pub struct Work {
    /// Keys evicted, by partition.
    pub evicted: Vec<u64>,
    /// Bytes evicted, as estimated.
    pub evicted_bytes: u64,
    /// Time spent, in µs.
    pub spent_us: u64,
    /// The longest slice, in µs.
    pub slice_us_max: u64,
    /// Slices that ended with work left to do.
    pub slices_out_of_time: u64,
}

struct Victim {
    name: Text,
    db: u16,
    /// As it was met: a key that was asked for since is no victim.
    idle: u64,
    n_requests: u32,
    /// The walk has met it.
    was_met: bool,
}

/// The evictor. See the file's opening.
pub struct Evictor {
    pools: Pools<Victim>,
    /// Keys of partitions that the walk rarely meets.
    pub newcomers: Newcomers,
    /// State of the generator that picks databases and newcomers.
    seed: u64,
    /// What has been done.
    pub work: Work,
}

impl Evictor {
    /// An evictor at rest.
    pub fn new() -> Self {
        let evicted = vec![0; PARTITIONS_MAX];
        let work = Work { evicted, evicted_bytes: 0, spent_us: 0, slice_us_max: 0, slices_out_of_time: 0 };
        Evictor { pools: Pools::new(1), newcomers: Newcomers::new(), seed: 0x2545_f491_4f6c_dd1d, work }
    }

    /// Forgets the shortlists: they were made under another policy.
    pub fn forget_victims(&mut self) {
        self.pools.clear();
    }

    /// One slice of work; how many keys went.
    pub fn relieve(&mut self, server: &Server, walk: &mut Walk, guides: &mut Guides, orders: &Orders) -> usize {
        let started = Instant::now();
        self.pools.set_sample_sizes(orders.sample_size, orders.sample_sizes);
        self.pools.keep_to_sample_sizes(orders.keeps_to_samples);
        let n = orders.bytes_max.len();
        let (mut freed_bytes, mut failures, mut evicted) = (0, 0, 0);
        loop {
            let short = freed_bytes < orders.free_bytes;
            let used_bytes = &guides.usage.bytes()[..n];
            let spared = || guides.partitions.at_minimum(used_bytes);
            let giver = next_giver(used_bytes, orders.target_bytes, orders.bytes_max, spared, short);
            let Some(giver) = giver else { break };
            if evicted >= orders.evicted_min && started.elapsed() >= orders.budget {
                self.work.slices_out_of_time += 1;
                break;
            }
            let Some(victim) = self.find(server, walk, guides, orders, (giver, short), started) else { break };
            match self.evict(server, guides, orders, &victim) {
                Some(bytes) => (freed_bytes, failures, evicted) = (freed_bytes + bytes, 0, evicted + 1),
                None => failures += 1,
            }
            if failures > FAILURES_MAX {
                break;
            }
        }
        let spent_us = started.elapsed().as_micros() as u64;
        self.work.spent_us += spent_us;
        self.work.slice_us_max = self.work.slice_us_max.max(spent_us);
        evicted
    }

    /// The next victim: from the giver's pool, once K of its keys were met; where they don't turn up in time and memory is
    /// short, the longest idle of those that hold more than their target: nobody below it pays for another.
    fn find(
        &mut self,
        server: &Server,
        walk: &mut Walk,
        guides: &mut Guides,
        orders: &Orders,
        (giver, short): (Giver, bool),
        started: Instant,
    ) -> Option<Victim> {
        if let Some(victim) = self.newcomer(server, guides, orders, giver) {
            return Some(victim);
        }
        let patience = PATIENCE * self.pools.sample_size(giver);
        let (mut met, mut steps) = (0, 0);
        while !self.pools.will_do(giver, met) {
            let out_of_time = steps % STEPS_PER_LOOK == STEPS_PER_LOOK - 1 && started.elapsed() >= orders.budget;
            if met >= patience || steps >= 2 * patience || out_of_time {
                return match short {
                    true => self.pools.take_or(giver, others(guides, orders)),
                    false => self.pools.take(giver),
                };
            }
            let db = self.pick_db(guides, orders, giver)?;
            steps += 1;
            let pools = &mut self.pools;
            met += walk.step(server, db, guides, |visit, classes| {
                if orders.volatile_only && visit.key.expires_in_ms().is_none() {
                    return;
                }
                let candidate = candidate(visit, classes, orders);
                let score = match orders.scoring {
                    Scoring::Idle => Lru.score(&candidate),
                    Scoring::Worth(hyperbolic) => hyperbolic.score(&candidate),
                };
                pools.offer(visit.partition, score, || victim(visit, &candidate));
            });
        }
        self.pools.take(giver)
    }

    /// A key of a giver that the walk rarely meets: its oldest, or the longest idle of K where K was chosen small.
    fn newcomer(&mut self, server: &Server, guides: &Guides, orders: &Orders, giver: Giver) -> Option<Victim> {
        let Giver::Partition(id) = giver else { return None };
        let keys = guides.usage.keys()[id.index()];
        // What is worth least isn't told by age.
        let by_age = matches!(orders.scoring, Scoring::Idle);
        if orders.volatile_only || !by_age || self.pools.is_ready(giver) || !self.newcomers.cover(id, keys) {
            return None;
        }
        let k = self.pools.sample_size(giver);
        let Oldest { name, db, idle } = if orders.keeps_to_samples && k < NEARLY_LRU {
            let Evictor { newcomers, seed, .. } = self;
            newcomers.oldest_of(server, id, k, || next_random(seed))?
        } else {
            self.newcomers.oldest(server, id, orders.now_us)?
        };
        Some(Victim { name, db, idle, n_requests: 0, was_met: false })
    }

    /// A database to sample, by its number of keys, among those that may hold the giver's.
    fn pick_db(&mut self, guides: &Guides, orders: &Orders, giver: Giver) -> Option<u16> {
        if let [(only, _)] = orders.db_sizes {
            return Some(*only);
        }
        let may_give = |db: u16| match giver {
            Giver::Partition(id) => guides.partitions.whole_database(db).is_none_or(|whole| whole == id),
            Giver::Anyone => true,
        };
        let weigh = |all: bool| {
            let weight = move |&(db, n): &(u16, u64)| if all || may_give(db) { n } else { 0 };
            (orders.db_sizes.iter().map(weight).sum::<u64>(), all)
        };
        let (total, all) = match weigh(false) {
            (0, _) => weigh(true),
            some => some,
        };
        let mut at = next_random(&mut self.seed) % total.max(1);
        for &(db, n) in orders.db_sizes {
            let n = if all || may_give(db) { n } else { 0 };
            if at < n {
                return Some(db);
            }
            at -= n;
        }
        None
    }

    /// Evicts one key, unless it was used since it was shortlisted. Bytes freed.
    fn evict(&mut self, server: &Server, guides: &mut Guides, orders: &Orders, victim: &Victim) -> Option<u64> {
        server.select_db(victim.db);
        let key = server.open(&victim.name);
        if key.kind() == Kind::Absent || key.idle() < victim.idle {
            return None;
        }
        if orders.volatile_only && key.expires_in_ms().is_none() {
            return None;
        }
        let key_hash = in_database(KeyHash::of(victim.name.as_ref()), victim.db);
        let partition = guides.partitions.of(victim.db, victim.name.as_ref());
        if let Scoring::Worth(_) = orders.scoring
            && guides.partitions.classes.entry(key_hash).map_or(0, |entry| u32::from(entry.n_requests))
                > victim.n_requests
        {
            return None;
        }
        let hash = || KeyHash::of(victim.name.as_ref());
        let size_bytes = guides.sizes.of(server, partition, &victim.name, hash, &key);
        if !key.unlink() {
            return None;
        }
        guides.partitions.gone(victim.db, hash);
        server.replicate_unlink(&victim.name);
        server.signal_modified(&victim.name);
        server.notify_evicted(&victim.name);
        guides.usage.evicted(victim.db, partition, size_bytes, victim.was_met);
        self.work.evicted[partition.index()] += 1;
        self.work.evicted_bytes += u64::from(size_bytes);
        Some(u64::from(size_bytes))
    }
}

/// Who may give in the giver's place: who holds more than its target, or anyone where nobody does.
fn others(guides: &Guides, orders: &Orders) -> OverTarget {
    let over = OverTarget::new(&guides.usage.bytes()[..orders.bytes_max.len()], orders.target_bytes);
    if over.is_none() { OverTarget::all() } else { over }
}

/// Xorshift: which database or newcomer comes next needs no more.
fn next_random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// What is known of a visited key. Where its requests are not remembered, it counts as asked for once, when it was last used.
fn candidate(visit: &Visit, classes: &Classes, orders: &Orders) -> Candidate {
    let idle = visit.key.idle();
    let mut candidate =
        Candidate { partition: visit.partition, idle, resident: 0, n_requests: 0, size_bytes: 0, penalty_us: 0.0 };
    if let Scoring::Worth(_) = orders.scoring {
        let entry = classes.entry(in_database(KeyHash::of(visit.name.as_ref()), visit.db));
        let remembered = entry.filter(|entry| entry.n_requests > 0);
        (candidate.n_requests, candidate.resident) = match remembered {
            Some(e) => (u32::from(e.n_requests), u64::from(key_table::tick(orders.now_us).wrapping_sub(e.entered)) + 1),
            None => (1, idle + 1),
        };
        let penalty_us = entry.and_then(|entry| entry.penalty_us());
        candidate.penalty_us = penalty_us.unwrap_or_else(|| orders.penalty_us[visit.partition.index()]);
        candidate.size_bytes = visit.size_bytes.unwrap_or(1);
    }
    candidate
}

fn victim(visit: &Visit, candidate: &Candidate) -> Victim {
    let Candidate { idle, n_requests, .. } = *candidate;
    Victim { name: visit.name.keep(), db: visit.db, idle, n_requests, was_met: true }
}
