//! Two memory tiers: carries out what `tenure_core::tiers` decides, a few values at the end of each turn and while
//! the event loop is idle.
//!
//! Source: sdTMM (Wang's dissertation, 2024, ch. 5), for a server that is not changed. New values come to lie in
//! ordinary memory, the fast tier. Where less than the low mark of `tenure.tier-fast-bytes` is free, the walk through
//! the key space offers values to shortlists, and the coldest of those met move down until the high mark is free.
//! Slow values that are read go up where the policy finds them hot and there is room. A string that is stored whole
//! over a slow one, or where the fast tier is full, is copied into slow memory before the command that stores it
//! runs, and the server keeps that copy: it needs no move. What leaves the cache does so by the evictor, whichever
//! tier it lies in, so neither tier's moves wait for an eviction. Keys, short values, large collections and the
//! server's own structures stay fast and count as such; small collections move where nobody would notice
//! ([`collections`]). Where a string lies is told by its address; the table of keys remembers it, and the walk puts
//! right what has changed since. Cost: about K visited keys and one move per demotion, one move per promotion;
//! bounded per turn, and by a share of the time ([`share`]).

mod balance;
pub mod collections;
mod drain;
mod feature;
pub mod mover;
mod moves;
mod settled;
pub mod share;

use std::time::{Duration, Instant};

use tenure_core::policy::density::DensityTable;
use tenure_core::policy::pools::Pools;
use tenure_core::random::Random;
use tenure_core::tiers::Tier;
use tenure_core::tiers::placer::PlacerConfig;
use tenure_core::units::{KeyHash, PARTITIONS_MAX};

use self::balance::Balance;
use self::collections::Collections;
use self::drain::Drain;
pub use self::feature::MemoryTiers;
use self::mover::{Mover, allocated_bytes};
use self::moves::Candidate;
use self::share::TimeShare;
use crate::enforce::usage::Usage;
use crate::enforce::walk::Walk;
use crate::ffi::jemalloc::{ArenaUse, Jemalloc};
use crate::ffi::place::Place;
use crate::ffi::server::{Kind, Server, Text};
use crate::ffi::slow_strings::SlowStrings;
use crate::ffi::tier_memory::SlowMemory;
use crate::ffi::tier_pages;
use crate::observe::Observer;
use crate::observe::partitions::in_database;
use crate::observe::slow_collections::SlowCollections;

/// What a thread cache may hold at the most for tiers to be kept apart, in bytes: values must be larger to move.
const TCACHE_BYTES_MAX: usize = 1024;
/// Shorter values don't move, whatever the thread cache holds, in bytes.
const LENGTH_MIN: usize = 256;
/// The first moves of a slice may take so many times its share of time: another program may have had the core
/// meanwhile.
const MOVES_MIN: usize = 4;
const URGENT: u32 = 4;
/// Pages that one slice puts into the file of a tier.
const PAGES_PER_SLICE: usize = 64;
/// The same where too many wait: a millisecond, at the end of a turn that stored as much.
const PAGES_BEHIND: usize = 512;
/// What the mean of a partition's bytes met is moved by, of the difference.
const SHARE_WEIGHT: f64 = 1.0 / 256.0;

/// What has been done since the tiers were opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Values moved down.
    pub demoted: u64,
    /// Values moved up.
    pub promoted: u64,
    /// Values put into slow memory as they were stored.
    pub stored_slow: u64,
    /// Bytes moved, both ways.
    pub moved_bytes: u64,
    /// Values that lay elsewhere than they should after a move.
    pub strays: u64,
    /// Time spent on moves alone, in ns.
    pub move_ns: u64,
    /// Time spent in all, in µs.
    pub spent_us: u64,
    /// The longest slice, in µs.
    pub slice_us_max: u64,
    /// Slices that ended with work left to do.
    pub slices_out_of_time: u64,
}

/// What a slice works on, and within which limits.
pub struct MoveContext<'a> {
    /// The server.
    pub server: &'a mut Server,
    /// Knows the keys.
    pub observer: &'a mut Observer,
    /// How much each partition has.
    pub usage: &'a mut Usage,
    /// The walk that all share.
    pub walk: &'a mut Walk,
    /// The databases that hold keys, with their number of keys.
    pub db_sizes: &'a [(u16, u64)],
    /// What was learned, where it was.
    pub table: &'a DensityTable,
    /// Bytes of the fast tier by partition; none at all where whoever has the coldest value gives.
    pub target_bytes: &'a [u64],
    /// Keys met per demotion.
    pub sample_size: usize,
    /// The turn's share of time.
    pub budget: Duration,
}

impl MoveContext<'_> {
    /// Until when a slice that began then may go on after so many moves.
    fn until(&self, started: Instant, moves: usize) -> Instant {
        started + self.budget * if moves < MOVES_MIN { URGENT } else { 1 }
    }
}

/// How much of what was met of a partition is fast.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    fast_bytes: f64,
    bytes: f64,
}

/// The tiers, while there are two. See the file's opening.
pub struct Tiers {
    memory: &'static SlowMemory,
    strings: SlowStrings,
    mover: Mover,
    /// Hashes, lists, sets and sorted sets that move.
    pub collections: Collections,
    balance: Balance,
    pools: Pools<Candidate>,
    met: [Met; PARTITIONS_MAX],
    random: Random,
    /// How much of the time moves may take.
    pub time: TimeShare,
    drain: Drain,
    /// When the policy's window began: ticks, and µs.
    window_began: (u64, u64),
    /// What has been done.
    pub counts: Counts,
}

impl Tiers {
    /// Opens the slow tier.
    ///
    /// # Errors
    /// Why there is none, as a sentence, with what to set.
    pub fn start(server: &mut Server, place: &Place) -> Result<Tiers, String> {
        let tcache_bytes = check_allocator()?;
        let memory = SlowMemory::open(server, place)?;
        let mut tiers = Tiers {
            memory,
            strings: SlowStrings::default(),
            mover: Mover::new(memory, tcache_bytes.max(LENGTH_MIN)),
            collections: Collections::new(memory),
            balance: Balance::new(),
            pools: Pools::new(1),
            met: [Met::default(); PARTITIONS_MAX],
            random: Random::new(1),
            time: TimeShare::default(),
            drain: Drain::default(),
            window_began: (0, 0),
            counts: Counts::default(),
        };
        tiers.count(&SlowCollections::default());
        Ok(tiers)
    }

    /// Where the slow tier lies.
    pub fn memory(&self) -> &'static SlowMemory {
        self.memory
    }

    /// Counts what the slow tier holds. Tens of microseconds.
    pub fn count(&mut self, slow_collections: &SlowCollections) -> ArenaUse {
        let used = self.used(slow_collections);
        self.balance.count(used);
        used
    }

    /// What values take in the slow tier, as of now. Tens of microseconds.
    pub fn used(&self, slow_collections: &SlowCollections) -> ArenaUse {
        let mut used = self.memory.used();
        used.allocations = used.allocations.saturating_sub(slow_collections.extra_allocations());
        for length in self.strings.ready() {
            used.allocated_bytes = used.allocated_bytes.saturating_sub(allocated_bytes(length));
            used.allocations = used.allocations.saturating_sub(1);
        }
        used
    }

    /// Bytes in the slow tier: as counted, and moved since.
    pub fn slow_bytes(&self) -> u64 {
        self.balance.slow_bytes()
    }

    /// All other bytes that the server uses.
    pub fn fast_bytes(&self) -> u64 {
        self.balance.fast_bytes()
    }

    /// What of the server's memory may be fast, in bytes.
    pub fn fast_limit_bytes(&self) -> u64 {
        self.balance.fast_limit_bytes()
    }

    /// Ten times a second: what the settings and the server's limit say, and whether the slow tier is to be given up.
    pub fn tick(
        &mut self,
        server: &mut Server,
        slow_collections: &SlowCollections,
        (fast_bytes, limit_bytes): (u64, u64),
        is_wanted: bool,
    ) {
        tier_pages::settle_children(server);
        self.memory.flush(server, PAGES_PER_SLICE, true);
        self.strings.tick();
        self.collections.tick(server);
        let used = self.count(slow_collections);
        self.memory.look_at_nodes(used.active_bytes);
        self.drain.turn(!is_wanted);
        self.balance.limit(fast_bytes, limit_bytes);
    }

    /// A turn of the event loop is over; `is_busy` says that commands came.
    pub fn end_turn(&mut self, now_us: u64, is_busy: bool) {
        self.balance.end_turn();
        self.time.go_on(now_us, is_busy, self.balance.is_fast_full());
    }

    /// What was stored in a file faster than slices put it there goes there now, so that memory doesn't fill with it.
    pub fn catch_up(&mut self, server: &mut Server) {
        if self.memory.is_behind() {
            self.memory.flush(server, PAGES_BEHIND, false);
        }
    }

    /// Where a string that is about to be stored under `key` should lie from the start: over a slow value in slow
    /// memory, and where the fast tier has no room for another. A key that was forgotten counts as a newcomer.
    #[inline]
    pub fn stores_slow(&mut self, observer: &Observer, key: KeyHash, length: usize) -> bool {
        if self.balance.is_all_fast() || self.drain.is_on() || !self.mover.is_of_size(length) {
            return false;
        }
        match observer.partitions.keys.entry(key).filter(|entry| entry.n_requests > 0) {
            Some(entry) => entry.placed().tier() == Tier::Slow,
            None => !self.balance.takes_room(allocated_bytes(length) as i64),
        }
    }

    /// A copy of a string in slow memory; `None` where it would lie elsewhere.
    pub fn stored(&mut self, server: &mut Server, string: &[u8]) -> Option<Text> {
        let stored = self.strings.take(server, self.memory, string)?;
        self.counts.stored_slow += 1;
        Some(stored)
    }

    /// True while all values go up.
    pub fn is_draining(&self) -> bool {
        self.drain.is_on()
    }

    /// True once nothing is left in a slow tier that is to be given up.
    pub fn is_drained(&self) -> bool {
        self.drain.is_on() && self.balance.is_slow_empty()
    }

    /// Forgets whose keys are whose.
    pub fn divide_anew(&mut self) {
        self.pools.clear();
        self.met = [Met::default(); PARTITIONS_MAX];
    }

    /// Bytes in the fast tier that could move, by partition, estimated.
    pub fn fast_bytes_by_partition(&self, used_bytes: &[u64]) -> Vec<u64> {
        let of = |(met, &used): (&Met, &u64)| {
            if met.bytes > 0.0 { (used as f64 * met.fast_bytes / met.bytes) as u64 } else { used }
        };
        self.met.iter().zip(used_bytes).map(of).collect()
    }

    /// The part of the fast tier's values that one collecting takes down, by bytes, estimated; 0 to 1.
    pub fn collected_share(&self, used_bytes: &[u64]) -> f64 {
        let movable: u64 = self.fast_bytes_by_partition(used_bytes).iter().sum();
        (self.balance.collected_bytes() as f64 / movable.max(1) as f64).min(1.0)
    }

    /// One slice: hot values up, cold ones down, written pages into the file. True where there is more to do.
    pub fn work(&mut self, context: &mut MoveContext) -> bool {
        let started = Instant::now();
        self.collections.begin_slice();
        context.observer.partitions.keys.settle();
        let Some(mut placements) = context.observer.partitions.keys.placements.take() else { return false };
        let mut is_left = false;
        if self.drain.is_on() {
            is_left = self.drain(context, &mut placements, started);
        } else {
            is_left |= self.demote(context, &mut placements, started);
            self.promote(context, &mut placements, started);
        }
        placements.forget_slow_reads();
        context.observer.partitions.keys.placements = Some(placements);
        self.memory.flush(context.server, PAGES_PER_SLICE, false);
        let spent_us = started.elapsed().as_micros() as u64;
        self.time.spend(spent_us);
        self.counts.spent_us += spent_us;
        self.counts.slice_us_max = self.counts.slice_us_max.max(spent_us);
        context.server.note_latency(c"tenure-moves", spent_us);
        is_left
    }

    /// True where a slice has something to do.
    pub fn is_busy(&mut self, observer: &Observer) -> bool {
        let placements = observer.partitions.keys.placements.as_ref();
        self.drain.is_on()
            || self.memory.wants_flush()
            || placements.is_some_and(|placements| placements.slow_reads().next().is_some())
            || self.balance.demote_bytes() > 0
    }

    /// True when inserts outpace demotions.
    pub fn is_crowded(&self) -> bool {
        !self.balance.has_some()
    }

    /// Ends the policy's window where it is over.
    pub fn end_window(&mut self, observer: &mut Observer, requests: u64, seconds: u64, now_us: u64) {
        let now = observer.partitions.keys.accesses.now();
        let (began, began_us) = self.window_began;
        let ticks = requests / tenure_core::access_ring::REQUESTS_PER_TICK;
        if now.saturating_sub(began) < ticks && now_us.saturating_sub(began_us) < seconds * 1_000_000 {
            return;
        }
        self.window_began = (now, now_us);
        self.collections.end_window();
        let fast_bytes = self.fast_bytes();
        if let Some(placements) = &mut observer.partitions.keys.placements {
            placements.placer.end_window(now, fast_bytes);
        }
    }

    /// True while a slow tier is given up and the walk hasn't met all of so many keys since the last value that went
    /// up.
    pub fn looks_for_slow_values(&self, keys: u64) -> bool {
        self.drain.looks(keys)
    }

    /// In which tier a key's value lies.
    pub fn tier_of(
        &self,
        server: &mut Server,
        slow_collections: &SlowCollections,
        (db, name): (u16, &[u8]),
    ) -> Option<Tier> {
        server.select_db(db);
        let name = server.text(name);
        let key = server.open(&name);
        let hash = in_database(KeyHash::of(name.as_ref()), db);
        let is_slow = || slow_collections.get(hash).map(|_| Tier::Slow);
        match key.kind() {
            Kind::Collection => is_slow().or(key.is_plain_collection().then_some(Tier::Fast)),
            _ => self.mover.tier_of(&key),
        }
    }
}

impl Met {
    fn add(&mut self, tier: Tier, size_bytes: u32) {
        let size = f64::from(size_bytes);
        let fast = if tier == Tier::Fast { size } else { 0.0 };
        self.fast_bytes += SHARE_WEIGHT * (fast - self.fast_bytes);
        self.bytes += SHARE_WEIGHT * (size - self.bytes);
    }
}

/// What thread caches hold at the most, in bytes.
///
/// # Errors
/// Why there can be no tiers, and what to set.
pub fn check_allocator() -> Result<usize, String> {
    let jemalloc = Jemalloc::find()?;
    let tcache_bytes = jemalloc.tcache_max_bytes().unwrap_or(usize::MAX);
    if tcache_bytes > TCACHE_BYTES_MAX {
        return Err(format!(
            "jemalloc's thread cache holds allocations of up to {tcache_bytes} bytes and would mix the tiers; start \
             the server with {} in its environment",
            jemalloc.setting_for_tiers()
        ));
    }
    Ok(tcache_bytes)
}

/// How values are placed, as the settings say.
pub fn placer_config(rule: tenure_core::tiers::placer::Rule, is_divided: bool) -> PlacerConfig {
    PlacerConfig { rule, is_divided, ..PlacerConfig::default() }
}
