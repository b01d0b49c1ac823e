//! When there are two memory tiers: ties `enforce::tier` to the turn, to settings and to people.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::tiers::Tier;
use tenure_core::tiers::division::Division;

use super::{TICK_US, Tenure, When};
use crate::config::Policy;
use crate::enforce::tier::{Around, Tiers};
use crate::ffi::callbacks::now_us;
use crate::ffi::filter::FilterCall;
use crate::ffi::server::{Level, Server};
use crate::ffi::soon;
use crate::observe::command_table::Entry;
use crate::observe::keys::Remembers;
use crate::observe::placements::Placements;

/// What a slice of moves may take: at the end of a turn, where the fast tier is full, and while the event loop is idle.
const TURN_BUDGET: Duration = Duration::from_micros(50);
const IDLE_BUDGET: Duration = Duration::from_micros(100);

/// Between two slices that met nothing slow, while all that is moves up.
const DRAIN_REST_US: u64 = 2_000;

/// What INFO and TENURE.TIERS show.
#[derive(Clone, Debug, Default)]
pub struct TierFigures {
    /// Where the slow tier lies; empty without one.
    pub place: String,
    /// Bytes in fast memory: all that isn't slow.
    pub fast_bytes: u64,
    /// What of them may be.
    pub fast_limit_bytes: u64,
    /// Bytes in slow memory, as the allocator counts them.
    pub slow_bytes: u64,
    /// Values there.
    pub slow_values: u64,
    /// Collections among them.
    pub slow_collections: u64,
    /// Whether collections move, or why they stay.
    pub collections: String,
    /// Bytes of pages of slow memory with values in them.
    pub slow_active_bytes: u64,
    /// Bytes that the slow tier could not give, or another node gave (estimated).
    pub elsewhere_bytes: u64,
    /// Reads that found their value in slow memory.
    pub slow_hits: u64,
    /// Other reads that found something, also where values are short or of another kind.
    pub fast_hits: u64,
    /// Hits while reads went unseen, which are in the two above by the share of slow ones before.
    pub estimated_hits: u64,
    /// What was done.
    pub counts: crate::enforce::tier::Counts,
    /// Pages put into the file of the slow tier.
    pub flushed_pages: u64,
    /// Mean reuse time of fast values, below which a slow one is hot, in requests; 0 = not known.
    pub hot_requests: f64,
}

impl Tenure {
    /// Works with the tiers, where there are, on what they need of the rest.
    fn with_tiers<R>(
        &mut self,
        budget: Duration,
        server: &Server,
        body: impl FnOnce(&mut Tiers, &mut Around) -> R,
    ) -> Option<R> {
        let published = Arc::clone(&self.published);
        let is_divided = self.settings.tier_division != Division::Free && self.current().is_some();
        let target_bytes = if is_divided { &published.fast_target_bytes[..] } else { &[] };
        let sample_size = self.settings.samples as usize;
        let Tenure { tiers, observer, usage, walk, db_sizes, .. } = self;
        let table = &published.learned.table;
        let mut around = Around { server, observer, usage, walk, db_sizes, table, target_bytes, sample_size, budget };
        tiers.as_mut().map(|tiers| body(tiers, &mut around))
    }

    /// What of the fast tier values can have, and how it is divided; `None` where it isn't.
    pub(super) fn fast_to_divide(&self) -> Option<(Division, u64)> {
        let tiers = self.tiers.as_ref().filter(|_| self.settings.tier_division != Division::Free)?;
        let used_bytes = self.usage.bytes_by_bin();
        let movable: u64 = tiers.fast_bytes_by_bin(used_bytes).iter().sum();
        let fixed = tiers.fast_bytes().saturating_sub(movable);
        Some((self.settings.tier_division, tiers.fast_limit_bytes().saturating_sub(fixed)))
    }

    /// What stands against two tiers with these settings.
    fn wants_tiers(&self) -> Result<(), &'static str> {
        if self.settings.tier_slow.is_none() {
            Err("off: tenure.tier-slow is empty")
        } else if self.settings.remembers() != Remembers::History {
            Err("off: under a hyperbolic tenure.policy the table of keys has no room for them")
        } else if self.settings.tier_fast_bytes == 0 && self.memory.limit_bytes == 0 {
            Err("off: neither tenure.tier-fast-bytes nor maxmemory is set")
        } else {
            Ok(())
        }
    }

    /// Opens the slow tier or gives it up, as it should be; ten times a second.
    pub(super) fn tier_tick(&mut self, server: &Server, now_us: u64) {
        let wanted = self.wants_tiers();
        let place = self.settings.tier_slow.clone();
        if wanted.is_ok()
            && self.tiers.is_none()
            && self.tiers_failed.is_none()
            && let Some(place) = &place
        {
            match Tiers::start(server, place) {
                Ok(tiers) => {
                    self.tiers = Some(tiers);
                    self.renew_placements();
                }
                Err(why) => {
                    server.log(Level::Warning, &format!("no memory tiers: {why}"));
                    self.tiers_failed = Some(why);
                }
            }
        }
        let limit_bytes = self.memory.limit_bytes;
        let fast_bytes = self.settings.tier_fast_bytes as u64;
        let (requests, seconds) = (self.settings.window_requests as u64, self.settings.window_seconds as u64);
        let Tenure { tiers, observer, .. } = self;
        if let Some(tiers) = tiers {
            let is_same = place.as_ref() == Some(tiers.memory().place());
            let slow_collections = &observer.partitions.keys.slow_collections;
            tiers.tick(server, slow_collections, (fast_bytes, limit_bytes), wanted.is_ok() && is_same);
            tiers.end_window(observer, requests, seconds, now_us);
            if tiers.is_drained() {
                self.tiers = None;
                self.observer.partitions.keys.placements = None;
            }
        }
        self.tiers_standing = match (&self.tiers, &self.tiers_failed, wanted) {
            (Some(tiers), _, _) if tiers.is_draining() => "giving up the slow tier: its values move up".to_owned(),
            (Some(_), _, _) if server.flags().is_loading() => "standing by: the server is loading".to_owned(),
            (Some(_), _, _) => "ready".to_owned(),
            (None, _, Err(why)) => why.to_owned(),
            (None, Some(why), _) => format!("off: {why}"),
            (None, None, Ok(())) => "off: not opened yet".to_owned(),
        };
        self.place_some(server, now_us, When::BeforeReplies);
    }

    /// A command is about to run: the string that it stores, if it stores one, goes where it should lie. The server keeps the memory that it is
    /// handed. A look into the table of keys, and a copy of a string that is to be slow.
    #[inline]
    pub fn before_store(&mut self, call: &mut FilterCall, command: Option<Entry>) {
        let Some(tiers) = &mut self.tiers else { return };
        let Some(store) = self.observer.stores(call, command) else { return };
        let Some(server) = soon::own_context(call) else { return };
        if !tiers.stores_slow(&self.observer, store.key, store.value.len()) {
            return;
        }
        let Some(stored) = tiers.stored(&server, store.value) else { return };
        let (key, value_at) = (store.key, store.value_at);
        if call.replace_word(value_at, stored)
            && let Some(placements) = &mut self.observer.partitions.keys.placements
        {
            placements.stores_slow = Some(key);
        }
    }

    /// A slice of moves. Where there is more to do, an idle event loop is asked for more.
    pub(super) fn place_some(&mut self, server: &Server, now_us: u64, when: When) {
        let budget = match when {
            When::Idle => IDLE_BUDGET,
            When::BeforeReplies => TURN_BUDGET,
        };
        // From the cheapest question to the dearest: most turns end with the first.
        let may_begin = |tiers: &Tiers| tiers.is_draining() || tiers.time.allows(budget.as_micros() as u64);
        if now_us < self.tiers_rest_until_us
            || !self.tiers.as_ref().is_some_and(may_begin)
            || !self.tiers.as_mut().is_some_and(|tiers| tiers.is_busy(&self.observer))
            || server.flags().is_loading()
        {
            return;
        }
        if self.db_sizes.is_empty() {
            self.count_keys(server);
        }
        let moved =
            |tenure: &Tenure| tenure.tiers.as_ref().map_or(0, |tiers| tiers.counts.demoted + tiers.counts.promoted);
        let moved_before = moved(self);
        if self.with_tiers(budget, server, Tiers::work) != Some(true) {
            return;
        }
        let looks_on = self.tiers.as_ref().is_some_and(|tiers| tiers.looks_for_slow_values(self.all_keys()));
        if moved(self) > moved_before || looks_on {
            soon::call_soon(server);
        } else {
            // What is met doesn't move: asking again at once would keep the event loop from sleeping.
            let is_draining = self.tiers.as_ref().is_some_and(Tiers::is_draining);
            self.tiers_rest_until_us = now_us + if is_draining { DRAIN_REST_US } else { TICK_US };
        }
    }

    /// For the policy: what decides about moves, and whether the fast tier is divided.
    pub(super) fn placer_config(&self) -> tenure_core::tiers::placer::PlacerConfig {
        crate::enforce::tier::placer_config(self.settings.tier_rule, self.settings.tier_division != Division::Free)
    }

    /// What was learned of who is hot is of another rule, or of other partitions.
    pub(super) fn renew_placements(&mut self) {
        let config = self.placer_config();
        self.observer.partitions.keys.placements = self.tiers.as_ref().map(|_| Box::new(Placements::new(config)));
        self.settled.start_over(now_us());
        if let Some(tiers) = &mut self.tiers {
            tiers.divide_anew();
        }
    }

    /// True while placement needs to see reads too: until the fast tier is hit as it was for some seconds, and while newcomers
    /// crowd it.
    pub(super) fn tiers_need_reads(&mut self, now_us: u64) -> bool {
        let Tenure { tiers, observer, settled, .. } = self;
        let (Some(tiers), Some(placements)) = (tiers, &observer.partitions.keys.placements) else { return false };
        settled.unseen(observer.unseen_reads - observer.unseen_misses.min(observer.unseen_reads));
        !settled.look(now_us, placements.fast_reuses, placements.slow_hits) || tiers.is_draining() || tiers.is_crowded()
    }

    /// True where the clock of the table of keys has to go.
    pub(super) fn clock_is_wanted(&self) -> bool {
        self.tiers.is_some() || (self.may_be_short && self.settings.policy == Policy::Density)
    }

    /// What there is to show, as of the last tick.
    pub fn tier_figures(&self) -> TierFigures {
        let Some(tiers) = &self.tiers else { return TierFigures::default() };
        let memory = tiers.memory();
        let slow_collections = &self.observer.partitions.keys.slow_collections;
        let used = tiers.used(slow_collections);
        let placements = self.observer.partitions.keys.placements.as_ref();
        let counters = &self.observer.counters;
        let hits: u64 = counters.iter().map(|c| c.reads.saturating_sub(c.misses)).sum();
        let seen_slow_hits = placements.map_or(0, |placements| placements.slow_hits);
        let (unseen_hits, unseen_slow_hits) = self.settled.estimate();
        let slow_hits = seen_slow_hits + unseen_slow_hits;
        let hot = placements.and_then(|placements| placements.placer.hot_ticks(tenure_core::units::PartitionId(0)));
        TierFigures {
            place: memory.place().to_string(),
            fast_bytes: crate::ffi::jemalloc::server_used_bytes().saturating_sub(used.allocated_bytes),
            fast_limit_bytes: tiers.fast_limit_bytes(),
            slow_bytes: used.allocated_bytes,
            slow_values: used.allocations,
            slow_collections: slow_collections.len() as u64,
            collections: tiers.collections.refusal().map_or("move".to_owned(), |why| format!("stay: {why}")),
            slow_active_bytes: used.active_bytes,
            elsewhere_bytes: memory.elsewhere_bytes(),
            slow_hits,
            fast_hits: hits.saturating_sub(seen_slow_hits) + unseen_hits.saturating_sub(unseen_slow_hits),
            estimated_hits: unseen_hits,
            counts: tiers.counts,
            flushed_pages: memory.flushed_pages(),
            hot_requests: hot.map_or(0.0, |ticks| f64::from(ticks) * tenure_core::asked::REQUESTS_PER_TICK as f64),
        }
    }

    /// Moves one key's value, for tests.
    pub fn move_key(&mut self, server: &Server, db: u16, key: &[u8], tier: Tier) -> Result<String, String> {
        let off = self.tiers_standing.clone();
        self.with_tiers(TURN_BUDGET, server, |tiers, around| tiers.move_key(around, db, key, tier)).ok_or(off)
    }

    /// In which tier a key's value lies, for tests: `none` where it isn't of a kind that moves.
    pub fn tier_of_key(&self, server: &Server, db: u16, key: &[u8]) -> Result<&'static str, String> {
        let tiers = self.tiers.as_ref().ok_or_else(|| self.tiers_standing.clone())?;
        let slow_collections = &self.observer.partitions.keys.slow_collections;
        Ok(tiers.tier_of(server, slow_collections, (db, key)).map_or("none", Tier::as_str))
    }
}
