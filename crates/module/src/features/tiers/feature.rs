//! Two memory tiers as a feature: when there are two, and what turns, ticks and commands bring.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::access_ring::REQUESTS_PER_TICK;
use tenure_core::tiers::Tier;
use tenure_core::tiers::division::Division;
use tenure_core::tiers::placer::{PlacerConfig, Rule};
use tenure_core::units::PartitionId;

use super::settled::Settled;
use super::{MoveContext, Tiers, placer_config};
use crate::config::Settings;
use crate::counts::with_past;
use crate::feature::{Event, Feature, Report, Turn, Wants, When};
use crate::ffi::clock::now_us;
use crate::ffi::context::own_context;
use crate::ffi::filter::FilterCall;
use crate::ffi::info::Value;
use crate::ffi::place::Place;
use crate::ffi::reply::Answer;
use crate::ffi::server::Level;
use crate::ffi::{load, soon, tier_memory};
use crate::observe::command_table::Entry;
use crate::observe::keys::Remembers;
use crate::observe::placements::Placements;
use crate::tenure::{TICK_US, Tenure};

/// What moves may take of the main thread at the end of one turn, while replies wait, and while the event loop is idle.
const TURN_BUDGET: Duration = Duration::from_micros(50);
const IDLE_BUDGET: Duration = Duration::from_micros(100);
/// Between two slices of giving a tier up that found nothing to move, in µs.
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
    pub counts: super::Counts,
    /// Pages put into the file of the slow tier.
    pub flushed_pages: u64,
    /// Mean reuse time of fast values, below which a slow one is hot, in requests; 0 = not known.
    pub hot_requests: f64,
}

/// The feature. See the file's opening.
pub struct MemoryTiers {
    tiers: Option<Tiers>,
    /// Why there are none, or what they are up to.
    status: String,
    /// Which slow tier can't be opened, and why.
    failed: Option<(Place, String)>,
    /// Whether the fast tier is hit as it was.
    settled: Settled,
    /// Reads have to be seen, as of the last tick.
    needs_reads: bool,
    /// Nothing that is met moves: no search until then.
    rests_until_us: u64,
    /// Which settings were taken, by what rules values move, and which partitions there are.
    settings_version: u64,
    rules: (Rule, Division),
    epoch: u32,
}

impl MemoryTiers {
    /// There are none before the first tick.
    pub fn new() -> MemoryTiers {
        MemoryTiers {
            tiers: None,
            status: "off".to_owned(),
            failed: None,
            settled: Settled::default(),
            needs_reads: false,
            rests_until_us: 0,
            settings_version: 0,
            rules: Default::default(),
            epoch: 0,
        }
    }
}

/// Its settings that are more than a number.
impl Settings {
    /// Takes another place for `tenure.tier-slow`.
    ///
    /// # Errors
    /// As [`Place::parse`]; where the server serves already, also where its allocator can't keep tiers apart, or the
    /// place gives no memory. Nothing changes then.
    pub fn set_tier_slow(&mut self, text: &str) -> Result<(), String> {
        let place = Place::parse(text)?;
        // At the start the server is not to fail over it: it says so and runs without tiers.
        if let Some(place) = &place
            && load::is_loaded()
        {
            super::check_allocator()?;
            tier_memory::check_place(place)?;
        }
        self.tier_slow = place;
        self.tier_slow_text = text.to_owned();
        Ok(())
    }
}

impl Feature for MemoryTiers {
    /// A value that replaces a slow one is handed over by the filter, so commands that write are always heard.
    fn wants(&self) -> Wants {
        let heard = Wants::COMMANDS | Wants::TURNS | Wants::SLICES | Wants::WRITES_OBSERVED;
        heard.when(self.tiers.is_some()) | Wants::OBSERVED.when(self.needs_reads)
    }

    /// The string that a command stores, if it stores one, goes where it should lie. The server keeps the memory that
    /// it is handed. A look into the table of keys, and a copy of a string that is to be slow.
    fn command(&mut self, tenure: &mut Tenure, call: &mut FilterCall, command: Option<Entry>) {
        let Some(tiers) = &mut self.tiers else { return };
        let Some(store) = tenure.observer.stores(call, command) else { return };
        let Some(mut server) = own_context(call) else { return };
        if !tiers.stores_slow(&tenure.observer, store.key, store.value.len()) {
            return;
        }
        let Some(stored) = tiers.stored(&mut server, store.value) else { return };
        let (key, value_at) = (store.key, store.value_at);
        if call.replace_word(value_at, stored)
            && let Some(placements) = &mut tenure.observer.partitions.keys.placements
        {
            placements.stores_slow = Some(key);
        }
    }

    fn end_turn(&mut self, turn: &mut Turn) {
        self.follow_partitions(turn.tenure);
        if let Some(tiers) = &mut self.tiers {
            tiers.end_turn(turn.now_us, turn.tenure.observer.is_busy);
            tiers.catch_up(turn.server);
        }
    }

    fn slice(&mut self, turn: &mut Turn, when: When) {
        self.follow_partitions(turn.tenure);
        self.place_some(turn, when);
    }

    fn tick(&mut self, turn: &mut Turn) {
        self.follow_partitions(turn.tenure);
        self.open_or_give_up(turn);
        self.place_some(turn, When::BeforeReplies);
        self.needs_reads = self.reads_are_needed(turn);
        turn.tenure.memory.fast_to_divide = self.fast_to_divide(turn.tenure);
    }

    fn event(&mut self, turn: &mut Turn, event: &Event) {
        if let (Event::StatsReset, Some(tiers)) = (event, &mut self.tiers) {
            tiers.counts.slice_us_max = 0;
        }
        if matches!(event, Event::Configured) && self.settings_version != turn.tenure.settings_version {
            self.take_settings(turn.tenure);
        }
    }

    fn run(&mut self, turn: &mut Turn, name: &str, arguments: &[&[u8]]) -> Option<Answer> {
        match (name, arguments) {
            ("tenure.tiers", []) => Some(self.answer(turn.tenure)),
            ("tenure.debug", [topic, key, to @ ..]) if topic.eq_ignore_ascii_case(b"tier") => {
                Some(self.debug(turn, key, to.first().copied()))
            }
            _ => None,
        }
    }

    fn report(&self, tenure: &Tenure, report: &mut Report) {
        report.info.push(("tiers".to_owned(), Value::Text(self.status.clone())));
        let fields = fields(&self.figures(tenure)).into_iter();
        report.info.extend(fields.map(|(name, value)| (format!("tier_{name}"), value)));
    }
}

/// When there are two tiers.
impl MemoryTiers {
    fn take_settings(&mut self, tenure: &mut Tenure) {
        self.settings_version = tenure.settings_version;
        self.settled.unsettle(now_us());
        let settings = tenure.settings();
        // Another place is another try; one that failed would fail again, and it costs addresses to see that.
        self.failed.take_if(|(place, _)| settings.tier_slow.as_ref() != Some(place));
        let rules = (settings.tier_rule, settings.tier_division);
        if std::mem::replace(&mut self.rules, rules) != rules {
            self.renew_placements(tenure);
        }
    }

    /// Where partitions are others than before, who is accessed in which tier is learned anew.
    fn follow_partitions(&mut self, tenure: &mut Tenure) {
        let epoch = tenure.observer.epoch();
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.renew_placements(tenure);
        }
    }

    fn renew_placements(&mut self, tenure: &mut Tenure) {
        let settings = tenure.settings();
        let config: PlacerConfig = placer_config(settings.tier_rule, settings.tier_division != Division::Free);
        tenure.observer.partitions.keys.placements = self.tiers.as_ref().map(|_| Box::new(Placements::new(config)));
        self.settled.start_over(now_us());
        if let Some(tiers) = &mut self.tiers {
            tiers.divide_anew();
        }
    }

    /// Opens the slow tier or gives it up, as it should be; ten times a second.
    fn open_or_give_up(&mut self, turn: &mut Turn) {
        let wanted = are_wanted(turn.tenure);
        if wanted.is_ok() {
            self.open(turn);
        }
        let Turn { server, now_us, tenure } = turn;
        let settings = tenure.settings();
        let bytes = (settings.tier_fast_bytes as u64, tenure.memory.limit_bytes);
        let (requests, seconds) = (settings.window_requests as u64, settings.window_seconds as u64);
        if let Some(tiers) = &mut self.tiers {
            let is_same = settings.tier_slow.as_ref() == Some(tiers.memory().place());
            tiers.tick(server, &tenure.observer.partitions.keys.slow_collections, bytes, wanted.is_ok() && is_same);
            tiers.end_window(&mut tenure.observer, requests, seconds, *now_us);
            if tiers.is_drained() {
                self.tiers = None;
                tenure.observer.partitions.keys.placements = None;
            }
        }
        self.status = match (&self.tiers, &self.failed, wanted) {
            (Some(tiers), _, _) if tiers.is_draining() => "giving up the slow tier: its values move up".to_owned(),
            (Some(_), _, _) if server.flags().is_loading() => "standing by: the server is loading".to_owned(),
            (Some(_), _, _) => "ready".to_owned(),
            (None, _, Err(why)) => why.to_owned(),
            (None, Some((_, why)), _) => format!("off: {why}"),
            (None, None, Ok(())) => "off: not opened yet".to_owned(),
        };
    }

    fn open(&mut self, turn: &mut Turn) {
        let Some(place) = turn.tenure.settings().tier_slow.clone() else { return };
        if self.tiers.is_some() || self.failed.is_some() {
            return;
        }
        match Tiers::start(turn.server, &place) {
            Ok(tiers) => {
                self.tiers = Some(tiers);
                self.renew_placements(turn.tenure);
            }
            Err(why) => {
                turn.server.log(Level::Warning, &format!("no memory tiers: {why}"));
                self.failed = Some((place, why));
            }
        }
    }

    /// Reads are needed until the fast tier is hit as often as it was for a while.
    fn reads_are_needed(&mut self, turn: &mut Turn) -> bool {
        let observer = &turn.tenure.observer;
        let (Some(tiers), Some(placements)) = (&self.tiers, &observer.partitions.keys.placements) else { return false };
        self.settled.unseen(observer.coverage.unseen_reads.saturating_sub(observer.coverage.unseen_misses));
        let collected = tiers.collected_share(turn.tenure.usage.bytes());
        !self.settled.look(turn.now_us, placements.fast_reuses, placements.slow_hits, collected)
            || tiers.is_draining()
            || tiers.is_crowded()
    }
}

/// Whether there are to be two tiers.
///
/// # Errors
/// Why not.
fn are_wanted(tenure: &Tenure) -> Result<(), &'static str> {
    let settings: &Settings = tenure.settings();
    if settings.tier_slow.is_none() {
        Err("off: tenure.tier-slow is empty")
    } else if settings.remembers() != Remembers::History {
        Err("off: under this tenure.policy the table of keys has no room for them")
    } else if settings.tier_fast_bytes == 0 && tenure.memory.limit_bytes == 0 {
        Err("off: neither tenure.tier-fast-bytes nor maxmemory is set")
    } else {
        Ok(())
    }
}

/// What moves.
impl MemoryTiers {
    /// Works with the tiers, where there are, on what they need of the rest.
    fn with_tiers<R>(
        &mut self,
        budget: Duration,
        turn: &mut Turn,
        body: impl FnOnce(&mut Tiers, &mut MoveContext) -> R,
    ) -> Option<R> {
        let Turn { server, tenure, .. } = turn;
        let published = Arc::clone(&tenure.published);
        let settings = tenure.settings();
        let is_divided = settings.tier_division != Division::Free && tenure.current().is_some();
        let target_bytes = if is_divided { &published.fast_target_bytes[..] } else { &[] };
        let sample_size = settings.samples as usize;
        let Tenure { observer, usage, walk, databases, .. } = &mut **tenure;
        let db_sizes = &databases.sizes;
        let table = &published.learned.table;
        let mut context =
            MoveContext { server, observer, usage, walk, db_sizes, table, target_bytes, sample_size, budget };
        self.tiers.as_mut().map(|tiers| body(tiers, &mut context))
    }

    /// How the fast tier is divided, and what there is to divide: values; what can't move stays fast whoever has it.
    fn fast_to_divide(&self, tenure: &Tenure) -> Option<(Division, u64)> {
        let division = tenure.settings().tier_division;
        let tiers = self.tiers.as_ref().filter(|_| division != Division::Free)?;
        let movable: u64 = tiers.fast_bytes_by_partition(tenure.usage.bytes()).iter().sum();
        let fixed = tiers.fast_bytes().saturating_sub(movable);
        Some((division, tiers.fast_limit_bytes().saturating_sub(fixed)))
    }

    /// A slice of moves. Where there is more to do, an idle event loop is accessed more.
    fn place_some(&mut self, turn: &mut Turn, when: When) {
        let budget = match when {
            When::Idle => IDLE_BUDGET,
            When::BeforeReplies => TURN_BUDGET,
        };
        // From the cheapest question to the most expensive: most turns end with the first.
        let may_begin = |tiers: &Tiers| tiers.is_draining() || tiers.time.allows(budget.as_micros() as u64);
        if turn.now_us < self.rests_until_us
            || !self.tiers.as_ref().is_some_and(may_begin)
            || !self.tiers.as_mut().is_some_and(|tiers| tiers.is_busy(&turn.tenure.observer))
            || turn.server.flags().is_loading()
        {
            return;
        }
        turn.tenure.need_key_counts(turn.server);
        let moved_before = self.n_moved();
        if self.with_tiers(budget, turn, Tiers::work) != Some(true) {
            return;
        }
        let all_keys = turn.tenure.all_keys();
        let looks_on = self.tiers.as_ref().is_some_and(|tiers| tiers.looks_for_slow_values(all_keys));
        if self.n_moved() > moved_before || looks_on {
            soon::call_soon(turn.server);
        } else {
            // Asking again at once would keep the event loop from sleeping.
            let is_draining = self.tiers.as_ref().is_some_and(Tiers::is_draining);
            self.rests_until_us = turn.now_us + if is_draining { DRAIN_REST_US } else { TICK_US };
        }
    }

    fn n_moved(&self) -> u64 {
        self.tiers.as_ref().map_or(0, |tiers| tiers.counts.demoted + tiers.counts.promoted)
    }
}

/// What it says of itself.
impl MemoryTiers {
    /// What there is to show, as of the last tick.
    fn figures(&self, tenure: &Tenure) -> TierFigures {
        let Some(tiers) = &self.tiers else { return TierFigures::default() };
        let memory = tiers.memory();
        let slow_collections = &tenure.observer.partitions.keys.slow_collections;
        let used = tiers.used(slow_collections);
        let placements = tenure.observer.partitions.keys.placements.as_ref();
        let counters = &tenure.observer.counters;
        let hits: u64 = counters.iter().map(|c| c.reads.saturating_sub(c.misses)).sum();
        let seen_slow_hits = placements.map_or(0, |placements| placements.slow_hits);
        let (unseen_hits, unseen_slow_hits) = self.settled.estimate();
        let slow_hits = seen_slow_hits + unseen_slow_hits;
        let hot = placements.and_then(|placements| placements.placer.hot_ticks(PartitionId(0)));
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
            hot_requests: hot.map_or(0.0, |ticks| f64::from(ticks) * REQUESTS_PER_TICK as f64),
        }
    }

    /// `TENURE.TIERS`.
    fn answer(&self, tenure: &Tenure) -> Answer {
        let state = ("state", Answer::Text(self.status.clone()));
        let fields = fields(&self.figures(tenure))
            .into_iter()
            .map(|(name, value)| (name, with_past(value, &format!("tier_{name}")).into()));
        Answer::Map(std::iter::once(state).chain(fields).collect())
    }

    /// `TENURE.DEBUG TIER key [fast|slow]`: where a key's value lies, or a move of it.
    fn debug(&mut self, turn: &mut Turn, key: &[u8], to: Option<&[u8]>) -> Answer {
        let db = turn.server.selected_db();
        let to = to.map(|to| String::from_utf8_lossy(to).to_ascii_lowercase());
        let done = match to.as_deref() {
            None => self.tier_of_key(turn, db, key).map(str::to_owned),
            Some("fast") => self.move_key(turn, db, key, Tier::Fast),
            Some("slow") => self.move_key(turn, db, key, Tier::Slow),
            Some(other) => Err(format!("there is no tier '{other}'; there are fast and slow")),
        };
        done.map_or_else(Answer::error, Answer::Text)
    }

    fn move_key(&mut self, turn: &mut Turn, db: u16, key: &[u8], tier: Tier) -> Result<String, String> {
        let off = self.status.clone();
        self.with_tiers(TURN_BUDGET, turn, |tiers, context| tiers.move_key(context, db, key, tier)).ok_or(off)
    }

    fn tier_of_key(&self, turn: &mut Turn, db: u16, key: &[u8]) -> Result<&'static str, String> {
        let tiers = self.tiers.as_ref().ok_or_else(|| self.status.clone())?;
        let slow_collections = &turn.tenure.observer.partitions.keys.slow_collections;
        Ok(tiers.tier_of(turn.server, slow_collections, (db, key)).map_or("none", Tier::as_str))
    }
}

/// What is shown of the memory tiers, by INFO with `tier_` before each name.
fn fields(figures: &TierFigures) -> Vec<(&'static str, Value)> {
    use Value::{Count, Number, Text, Total};
    let counts = &figures.counts;
    let moves = counts.demoted + counts.promoted;
    vec![
        ("slow_place", Text(figures.place.clone())),
        ("fast_bytes", Count(figures.fast_bytes)),
        ("fast_limit_bytes", Count(figures.fast_limit_bytes)),
        ("slow_bytes", Count(figures.slow_bytes)),
        ("slow_values", Count(figures.slow_values)),
        ("slow_collections", Count(figures.slow_collections)),
        ("collections", Text(figures.collections.clone())),
        ("slow_active_bytes", Count(figures.slow_active_bytes)),
        ("elsewhere_bytes", Count(figures.elsewhere_bytes)),
        ("fast_hits", Total(figures.fast_hits)),
        ("slow_hits", Total(figures.slow_hits)),
        ("estimated_hits", Total(figures.estimated_hits)),
        ("demotions", Total(counts.demoted)),
        ("promotions", Total(counts.promoted)),
        ("stored_slow", Total(counts.stored_slow)),
        ("moved_bytes", Total(counts.moved_bytes)),
        ("strays", Total(counts.strays)),
        ("move_us_mean", Number(counts.move_ns as f64 / 1000.0 / moves.max(1) as f64)),
        ("spent_us", Total(counts.spent_us)),
        ("slice_us_max", Count(counts.slice_us_max)),
        ("slices_out_of_time", Total(counts.slices_out_of_time)),
        ("flushed_pages", Total(figures.flushed_pages)),
        ("hot_requests", Number(figures.hot_requests)),
    ]
}
