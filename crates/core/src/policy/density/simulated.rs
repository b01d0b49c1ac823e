//! The policy as a simulated cache: what the server's filter, worker and evictor do with it, without a server.
//!
//! What keys have shown is kept in a [`KeyTable`] of fixed size and outlasts eviction where there is room; a sample
//! of the accesses feeds the [`Learner`]; candidates are drawn K per eviction over all partitions and the best kept
//! on a shortlist (`pools.rs`). There are no walls but a tenant's own: who is above its maximum gives first, who is
//! at its minimum doesn't give. Time is counted in requests, in the server's ticks. What the server has to measure is
//! told here: what misses cost and how large values are. Its main thread always has time for K keys. Cost: one cache
//! line per access, K look-ups in two tables per eviction, and per sampled access that of a model and of five small
//! caches.

use super::history::History;
use super::learner::{Learned, Learner, LearnerConfig, Shown, age_step};
use super::miss_costs::{Delays, all_wait_us, feature_of};
use super::model::DensityConfig;
use super::ranking::{GreedyAges, Ranker, Ranking, Subject};
use super::ranks::{history_of, was_accessed};
use super::watched::{Watch, Watched};
use super::{KEY_TABLE_SHARE, SAMPLE_SIZE, WINDOW_REQUESTS};
use crate::access::{Access, Op};
use crate::access_ring::{AccessRing, Kind, REQUESTS_PER_TICK};
use crate::departure::{Cause, Departure};
use crate::error::ConfigError;
use crate::expiry::{NEVER_US, expires_us_after};
use crate::fetches::{Fetches, Wait};
use crate::key_table::{self, KeyTable};
use crate::policy::Snapshot;
use crate::policy::cache::{Outcome, sample_size};
use crate::policy::over_target::OverTarget;
use crate::policy::partitioned::Partitioning;
use crate::policy::pools::{Donor, PATIENCE, Pools, next_donor};
use crate::policy::table::{Entry, Order, Table, TableCache};
use crate::policy::walk::Walk;
use crate::sampling::SampleRate;
use crate::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

/// How often the pace of the stream is looked at, in µs.
const PACE_EVERY_US: u64 = 100_000;
/// Values drawn at a time, at the most.
const DRAWN_MAX: usize = 16;

/// How the policy works.
#[derive(Clone, Debug, PartialEq)]
pub struct DensityPolicyConfig {
    /// Values sampled per eviction, 1 to 64.
    pub sample_size: u32,
    /// Requests between two tables.
    pub window_requests: u64,
    /// What a window weighs one window later, 0 to 1.
    pub decay: f32,
    /// Sampled keys at most; more halve the rate.
    pub sampled_keys_max: usize,
    /// Bytes of the table of keys; 0 = a 64th of the memory.
    pub key_table_bytes: u64,
    /// The one ranking to use; `None` = whichever is ahead.
    pub ranking: Option<Ranking>,
    /// Guaranteed and allowed bytes by tenant; tenants past the end have no bounds.
    pub bounds: Vec<Bounds>,
    /// Which accesses are seen; `None` = all.
    pub watched: Option<Watched>,
    /// Fetches take their time ([`Fetches`]), and what all wait for one counts.
    pub delayed_hits: bool,
}

impl Default for DensityPolicyConfig {
    fn default() -> Self {
        DensityPolicyConfig {
            sample_size: SAMPLE_SIZE,
            window_requests: WINDOW_REQUESTS,
            decay: DensityConfig::default().decay,
            sampled_keys_max: 1 << 15,
            key_table_bytes: 0,
            ranking: None,
            bounds: Vec::new(),
            watched: None,
            delayed_hits: false,
        }
    }
}

/// What a tenant may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At or below this nothing of it is evicted for others.
    pub bytes_min: u64,
    /// Above this it gives first.
    pub bytes_max: u64,
}

/// A key as it was met: one that was accessed since is no victim.
#[derive(Clone, Copy, Debug)]
struct Victim {
    key: KeyHash,
    /// When the table of keys has it last accessed, where it remembers it.
    last: Option<u32>,
    last_access: u64,
}

/// What tenants hold, and what they may rely on, in bytes.
#[derive(Debug)]
struct Held {
    used_bytes: [u64; PARTITIONS_MAX],
    bytes_min: Vec<u64>,
    bytes_max: [u64; PARTITIONS_MAX],
}

/// How the stream goes on in time.
#[derive(Debug)]
struct Pace {
    now_us: u64,
    /// When the table's clock was last told.
    told_us: u64,
}

/// The order of the policy. See the file's opening.
#[derive(Debug)]
pub struct Density {
    config: DensityPolicyConfig,
    keys: KeyTable,
    accesses: AccessRing,
    learner: Learner,
    learned: Learned,
    ages: GreedyAges,
    ranking: Ranking,
    rate: SampleRate,
    /// Requests since the window began.
    requests: u64,
    tenants: Held,
    pools: Pools<Victim>,
    walk: Walk,
    pace: Pace,
    /// What is seen; `None` where everything is.
    watch: Option<Watch>,
    /// Fetches under way, and how many misses meet them; `None` where they take no time.
    delays: Option<(Fetches, Delays)>,
}

impl Density {
    /// A cache of `capacity_bytes`.
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`], [`ConfigError::Decay`] and [`ConfigError::Bounds`] for what the configuration has
    /// out of range.
    pub fn cache(
        config: DensityPolicyConfig,
        capacity_bytes: u64,
        seed: u64,
    ) -> Result<TableCache<Density>, ConfigError> {
        sample_size(config.sample_size)?;
        if let Some(&Bounds { bytes_min, bytes_max }) = config.bounds.iter().find(|b| b.bytes_min > b.bytes_max) {
            return Err(ConfigError::Bounds { bytes_min, bytes_max });
        }
        let key_table_bytes = match config.key_table_bytes {
            0 => capacity_bytes / KEY_TABLE_SHARE,
            set => set,
        };
        let (rate, window_requests, decay) = (SampleRate::ALL, config.window_requests, config.decay);
        let mut learner = Learner::new(LearnerConfig { rate, window_requests, decay, seed })?;
        learner.set_keys_max(config.sampled_keys_max);
        let mut bytes_max = [u64::MAX; PARTITIONS_MAX];
        bytes_max.iter_mut().zip(&config.bounds).for_each(|(max, bounds)| *max = bounds.bytes_max);
        let mut accesses = AccessRing::new();
        accesses.turn(true);
        let order = Density {
            keys: KeyTable::with_compact_entries(key_table_bytes, REQUESTS_PER_TICK),
            accesses,
            learner,
            learned: Learned::default(),
            ages: GreedyAges::new(age_step(window_requests)),
            ranking: config.ranking.unwrap_or(Ranking::Greedy),
            rate,
            requests: 0,
            tenants: Held {
                used_bytes: [0; PARTITIONS_MAX],
                bytes_min: config.bounds.iter().map(|bounds| bounds.bytes_min).collect(),
                bytes_max,
            },
            pools: Pools::new(config.sample_size as usize),
            walk: Walk::new(seed),
            delays: config.delayed_hits.then(Default::default),
            pace: Pace { now_us: 0, told_us: 0 },
            watch: config.watched.map(Watch::new),
            config,
        };
        Ok(TableCache::new(capacity_bytes, order))
    }

    /// The ranking that evicts now.
    pub fn ranking(&self) -> Ranking {
        self.ranking
    }

    /// The tick at which what expires at `expires_us` does, at the pace of late.
    fn expires_at(&self, expires_us: u64) -> u64 {
        match expires_us {
            NEVER_US => u64::MAX,
            _ => self.accesses.clock().tick_after(self.accesses.now(), expires_us.saturating_sub(self.pace.now_us)),
        }
    }

    /// What a miss costs of a key that has shown `history`, in µs.
    #[inline]
    fn costs_us(&self, penalty_us: f32, history: History) -> f32 {
        match &self.delays {
            Some((_, delays)) if delays.count_for_something() => {
                all_wait_us(penalty_us, history, self.accesses.clock().ticks_per_us)
            }
            _ => penalty_us,
        }
    }

    /// What is remembered of a key.
    fn recall(&self, key: KeyHash) -> Option<key_table::Entry> {
        self.keys.recall(key, self.accesses.now() as u32)
    }

    /// What is known of a value.
    #[inline]
    fn subject(&self, entry: &Entry, known: Option<&key_table::Entry>, clock: u64) -> Subject {
        let history = history_of(known);
        let shown = (feature_of(history, entry.penalty_us), self.costs_us(entry.penalty_us, history));
        let value = (entry.size_bytes, self.expires_at(entry.expires_us));
        let now = self.accesses.now();
        let idle = || match &self.watch {
            Some(watch) => now - watch.tick_at(entry.last_access, (clock, now)),
            None => (clock - entry.last_access) / REQUESTS_PER_TICK,
        };
        Subject::of(known, shown, now, value, self.watch.is_some(), idle)
    }

    fn offer(&mut self, entry: &Entry, clock: u64) {
        let known = self.recall(entry.key);
        let subject = self.subject(entry, known.as_ref(), clock);
        let (table, ages) = (&self.learned.table, &self.ages);
        let score = Ranker { ranking: self.ranking, table, ages, now: self.accesses.now() }.score(&subject);
        let Entry { key, last_access, partition, .. } = *entry;
        let last = known.map(|known| known.last);
        self.pools.offer(partition, f64::from(score), || Victim { key, last, last_access });
    }

    /// Draws values until K that may go were met, or patience has run out. One word of each is read before any is
    /// looked at, so that the waits for memory overlap.
    fn meet(&mut self, table: &Table, donor: Donor, may_give: OverTarget) {
        let mut patience = PATIENCE * self.config.sample_size as usize;
        let mut met = 0;
        while patience > 0 && !self.pools.will_do(donor, met) {
            let wanted = self.pools.wanted(donor).min(patience).min(DRAWN_MAX);
            patience -= wanted;
            let mut drawn = [0; DRAWN_MAX];
            let drawn = &mut drawn[..wanted];
            drawn.fill_with(|| self.walk.next(table.entries().len()));
            self.keys.warm_all(drawn.iter().map(|&place| table.entries()[place].key));
            for &mut place in drawn {
                let entry = &table.entries()[place];
                if may_give.holds(entry.partition) {
                    met += 1;
                    if self.watch.is_some() {
                        self.see_late(entry, table.clock());
                    }
                    self.offer(entry, table.clock());
                }
            }
        }
    }

    /// Who gives next, and whose keys may go: anyone's, where nobody has bounds.
    fn donor(&self, incoming: &Entry) -> (Donor, OverTarget) {
        let Held { used_bytes, bytes_min, bytes_max } = &self.tenants;
        if self.config.bounds.is_empty() {
            return (Donor::Anyone, OverTarget::all());
        }
        let mut used = *used_bytes;
        used[incoming.partition.index()] += u64::from(incoming.size_bytes);
        let donor = next_donor(&used, &[], bytes_max, OverTarget::default, true).unwrap_or(Donor::Anyone);
        let may_give = match donor {
            Donor::Partition(id) if used_bytes[id.index()] > 0 => OverTarget::only(id),
            _ => OverTarget::above_minimum(used_bytes, bytes_min),
        };
        (donor, may_give)
    }

    /// Where a victim lies and what is known of it, unless it has gone or was accessed since it was met.
    fn find(&self, victim: &Victim, table: &Table) -> Option<(usize, Subject)> {
        let place = table.place_of(victim.key)?;
        let entry = &table.entries()[place];
        let known = self.recall(victim.key);
        let was_accessed = match (&known, victim.last) {
            _ if self.watch.is_some() => entry.last_access != victim.last_access,
            (None, None) => entry.last_access != victim.last_access,
            _ => was_accessed(known.as_ref(), victim.last),
        };
        (!was_accessed).then(|| (place, self.subject(entry, known.as_ref(), table.clock())))
    }

    /// Notes an access, and feeds the learner where its key is in the sample. What isn't watched doesn't reach it, a
    /// miss either.
    fn learn(&mut self, access: &Access, is_watched: bool) {
        let kind = match access.op {
            Op::Read => Kind::Accessed,
            Op::Write => Kind::Replaced,
            Op::Delete => Kind::Deleted,
        };
        self.accesses.note(&mut self.keys, access.key, kind);
        if !is_watched || !self.rate.takes(access.key) {
            return;
        }
        self.accesses.settle(&mut self.keys);
        let history = match kind {
            Kind::Deleted => History::default(),
            _ => history_of(self.keys.get(access.key)),
        };
        self.teach(access, (self.accesses.now(), expires_us_after(access, None)), history);
    }

    /// A value was met: it may have been accessed since that was last seen.
    fn see_late(&mut self, entry: &Entry, clock: u64) {
        let (Some(watch), Some(known)) = (&self.watch, self.recall(entry.key)) else { return };
        let at = watch.tick_at(entry.last_access, (clock, self.accesses.now()));
        let Some(known) = self.accesses.note_late(&mut self.keys, (entry.key, &known), at) else { return };
        if self.rate.takes(entry.key) {
            let Entry { key, size_bytes, penalty_us, expires_us, partition, .. } = *entry;
            let tenant = TenantId(partition.0);
            let access = Access { penalty_us, tenant, ..Access::read(key, size_bytes) };
            self.teach(&access, (at, expires_us), known.history());
        }
    }

    /// Tells the learner of an access to a key of the sample: at which tick, and when its value expires, in µs.
    fn teach(&mut self, access: &Access, (now, expires_us): (u64, u64), history: History) {
        let shown = Shown {
            now,
            expires: self.expires_at(expires_us),
            feature: feature_of(history, access.penalty_us),
            penalty_us: self.costs_us(access.penalty_us, history),
            op: access.op,
        };
        self.learner.record(access, &shown);
        if self.learner.sampled_keys() > self.config.sampled_keys_max
            && let Ok(half) = SampleRate::new(self.rate.rate() / 2.0)
        {
            self.rate = half;
            self.learner.set_rate(half);
        }
    }

    /// From now on that ranks.
    fn take(&mut self, learned: Learned) {
        self.learned = learned;
        let ranking = self.config.ranking.or(self.learned.ranking).unwrap_or(Ranking::Greedy);
        if ranking != self.ranking {
            self.ranking = ranking;
            self.pools.clear();
        }
    }
}

impl Order for Density {
    fn victim(&mut self, table: &Table, incoming: &Entry) -> usize {
        self.accesses.settle(&mut self.keys);
        let (donor, may_give) = self.donor(incoming);
        loop {
            self.meet(table, donor, may_give);
            let victim = self.pools.take(donor).or_else(|| self.pools.take(Donor::Anyone));
            let found = victim.and_then(|victim| self.find(&victim, table));
            if let Some((place, gone)) = found.filter(|&(place, _)| may_give.holds(table.entries()[place].partition)) {
                self.ages.evicted(&gone, self.accesses.now());
                return place;
            }
        }
    }

    fn stored(&mut self, table: &Table, place: usize) {
        let entry = &table.entries()[place];
        self.tenants.used_bytes[entry.partition.index()] += u64::from(entry.size_bytes);
    }

    fn removed(&mut self, table: &Table, place: usize) {
        let entry = &table.entries()[place];
        self.tenants.used_bytes[entry.partition.index()] -= u64::from(entry.size_bytes);
        self.accesses.settle(&mut self.keys);
        // Compact entries too tell who has left. How is not looked at here.
        self.keys.leave(entry.key, Departure::by(Cause::Evicted), self.accesses.now() as u32, true);
    }

    fn partition_of(&self, access: &Access) -> PartitionId {
        if self.config.bounds.is_empty() { PartitionId(0) } else { Partitioning::Tenant.of(access) }
    }

    fn observed(&mut self, access: &Access, outcome: Outcome, table: &Table) {
        self.pace.now_us = access.time_us;
        if self.pace.now_us >= self.pace.told_us + PACE_EVERY_US {
            self.pace.told_us = self.pace.now_us;
            self.accesses.pace(self.pace.now_us);
        }
        if let Some((fetches, delays)) = &mut self.delays {
            match fetches.wait(access, outcome) {
                Wait::Nothing => {}
                wait => delays.count(matches!(wait, Wait::Delayed(_))),
            }
        }
        let now = (table.clock(), self.accesses.now());
        let is_watched = self.watch.as_mut().is_none_or(|watch| watch.sees(now));
        if is_watched || outcome != Outcome::Hit {
            self.learn(access, is_watched);
        }
        // A newcomer that is worth less than what was met goes before it.
        if outcome == Outcome::Miss
            && let Some(place) = table.place_of(access.key)
        {
            self.accesses.settle(&mut self.keys);
            self.offer(&table.entries()[place], table.clock());
        }
        self.requests += u64::from(outcome != Outcome::NotARequest);
        if self.requests >= self.learner.window_requests() {
            self.requests = 0;
            let learned = self.learner.end_window(table.capacity_bytes());
            self.take(learned);
        } else if self.learner.part_ends_at(self.requests) {
            let learned = self.learner.end_part();
            self.take(learned);
        }
    }

    fn warm(&self, key: KeyHash) -> u32 {
        self.keys.warm(key)
    }

    fn snapshot(&self, _table: &Table) -> Snapshot {
        let n = self.config.bounds.len().max(1);
        Snapshot {
            target_bytes: Vec::new(),
            used_bytes: self.tenants.used_bytes[..n.min(PARTITIONS_MAX)].to_vec(),
            sample_sizes: vec![self.config.sample_size],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sizing::{Measured, SCALES, Sizing};
    use super::*;
    use crate::policy::cache::Cache;
    use crate::random::Random;
    use crate::units::TenantId;

    fn config() -> DensityPolicyConfig {
        DensityPolicyConfig { window_requests: 2_000, key_table_bytes: 1 << 16, ..DensityPolicyConfig::default() }
    }

    /// What share of the second half's reads hit, over all and of tenant 1.
    fn hit_ratio(config: DensityPolicyConfig, capacity: u64, trace: impl Iterator<Item = Access>) -> (f64, f64) {
        let mut cache = Density::cache(config, capacity, 1).unwrap();
        let trace: Vec<Access> = trace.collect();
        let (mut hits, mut counts) = ([0_u32; 2], [0_u32; 2]);
        for (i, access) in trace.iter().enumerate() {
            let hit = cache.access(access) == Outcome::Hit;
            assert!(cache.used_bytes() <= capacity);
            if i >= trace.len() / 2 {
                let of = usize::from(access.tenant.0 == 1);
                hits[of] += u32::from(hit);
                counts[of] += 1;
            }
        }
        let ratio = |hits, counts: u32| f64::from(hits) / f64::from(counts.max(1));
        (ratio(hits[0] + hits[1], counts[0] + counts[1]), ratio(hits[1], counts[1]))
    }

    fn read(space: u64, i: u64, penalty_us: f32) -> Access {
        let tenant = TenantId(space as u16);
        Access { penalty_us, tenant, ..Access::read(KeyHash::of_number(space << 32 | i), 10) }
    }

    /// A loop over 1000 keys with room for 600: recency never hits, density keeps some of them.
    #[test]
    fn a_loop_larger_than_the_cache_hits() {
        let (hits, _) = hit_ratio(config(), 6_000, (0..60_000).map(|i| read(0, i % 1_000, 100.0)));
        assert!(hits > 0.5, "{hits}");
    }

    /// Half of the requests are for keys at fifty times the price that never come again: they don't keep the others
    /// out.
    #[test]
    fn dear_keys_that_never_come_again_leave() {
        let trace = |i: u64| if i.is_multiple_of(2) { read(0, i, 5_000.0) } else { read(1, i / 2 % 80, 100.0) };
        let (_, hits) = hit_ratio(config(), 1_000, (0..60_000).map(trace));
        assert!(hits > 0.9, "{hits}");
        let idle = DensityPolicyConfig { ranking: Some(Ranking::Idle), ..config() };
        let (_, by_recency) = hit_ratio(idle, 1_000, (0..60_000).map(trace));
        assert!(by_recency < hits - 0.3, "{by_recency}");
    }

    /// 3000 keys of which a draw that stays is accessed, the first far more often than the last, with room for 300:
    /// what the long run knows is found out, and better than density alone. Where the draw moves, density is.
    #[test]
    fn where_popularity_stays_the_long_run_counts() {
        let run = |ranking, per_step: u64| {
            let mut cache = Density::cache(DensityPolicyConfig { ranking, ..config() }, 3_000, 1).unwrap();
            let (mut random, mut hits) = (Random::new(3), 0_u32);
            for i in 0..60_000_u64 {
                let drawn = (random.below(1_000_000) as f64 / 1e6).powi(3) * 3_000.0;
                let hit = cache.access(&read(0, drawn as u64 + i / per_step, 100.0)) == Outcome::Hit;
                hits += u32::from(hit && i >= 30_000);
            }
            (hits, cache.order().ranking())
        };
        let ((chosen, ranking), (density, _)) = (run(None, u64::MAX), run(Some(Ranking::Density), u64::MAX));
        assert!(ranking == Ranking::Steady && chosen > density + 200, "{ranking:?}: {chosen} of 30000, {density}");
        let ((moving, ranking), (steady, _)) = (run(None, 5), run(Some(Ranking::Steady), 5));
        assert!(ranking == Ranking::Density && moving > steady + 200, "{ranking:?}: {moving} of 30000, {steady}");
    }

    /// Three tenants, the first of no use and with a guarantee, the second expensive and limited.
    #[test]
    fn a_minimum_and_a_maximum_hold() {
        let bounds = [(300, 2_000), (0, 200), (0, 2_000)].map(|(bytes_min, bytes_max)| Bounds { bytes_min, bytes_max });
        let mut cache = Density::cache(DensityPolicyConfig { bounds: bounds.to_vec(), ..config() }, 1_000, 1).unwrap();
        for i in 0..30_000_u64 {
            let access = match i % 3 {
                0 => read(0, i, 1.0),
                1 => read(1, i / 3 % 100, 10_000.0),
                _ => read(2, i / 3 % 90, 500.0),
            };
            cache.access(&access);
            let used = cache.order().tenants.used_bytes;
            if i > 3_000 {
                assert!(used[0] >= 300 && used[1] <= 200, "{:?} at {i}", &used[..3]);
            }
        }
    }

    /// What a cache of half the size misses of keys that come round, was told by one of full size, whose miniatures
    /// have all keys. Miniatures that take the lowest of sixteen are off by 0.04.
    #[test]
    fn what_half_the_memory_misses_was_expected() {
        const WINDOW: u64 = 20_000;
        let config = DensityPolicyConfig {
            window_requests: WINDOW,
            key_table_bytes: 1 << 20,
            ranking: Some(Ranking::Density),
            ..DensityPolicyConfig::default()
        };
        let mut random = Random::new(3);
        // Half of the reads go round, the others are drawn.
        let mut keys = (0..400_000).map(move |i| if i % 2 == 0 { i / 2 % 2_000 } else { 2_000 + random.below(1_000) });
        let accesses: Vec<Access> = keys.by_ref().map(|i| read(0, i, 100.0)).collect();
        let (n, capacity) = (accesses.len(), 20_000);
        let [mut whole, mut half] =
            [capacity, capacity / 2].map(|bytes| Density::cache(config.clone(), bytes, 1).unwrap());
        let mut sizing = Sizing::new(SampleRate::ALL, age_step(WINDOW), 1);
        let (mut measured, mut misses, mut told) = (Measured::default(), 0, Vec::new());
        for (i, access) in accesses.iter().enumerate() {
            misses += u32::from(half.access(access) == Outcome::Miss && i >= n / 2);
            let is_miss = whole.access(access) == Outcome::Miss;
            measured.reads += 1.0;
            measured.misses += f64::from(u8::from(is_miss));
            measured.answered = measured.misses;
            measured.keys = whole.table().entries().len() as f64;
            let order = whole.order_mut();
            order.accesses.settle(&mut order.keys);
            let feature = feature_of(history_of(order.keys.get(access.key)), access.penalty_us);
            let (now, rank) = (order.accesses.now(), (order.ranking, &*order.learned.table));
            sizing.record(access, (PartitionId(0), is_miss), (now, feature, u64::MAX), rank);
            if i as u64 % WINDOW == WINDOW - 1 {
                let expected = sizing.end_window(&[std::mem::take(&mut measured)], 1.0).by_size;
                told.extend(expected.get(1).filter(|_| i >= n / 2).map(|half| half[0].miss_ratio));
                let capacities = SCALES.map(|scale| (scale * capacity as f64) as u64);
                sizing.set_capacities(capacities, Vec::new(), (rank.0, rank.1, now));
            }
        }
        let (came, told) = (f64::from(misses) / (n / 2) as f64, told.iter().sum::<f64>() / told.len() as f64);
        assert!((told - came).abs() < 0.02, "{told} {came}");
    }

    /// A table with room for 64 of 300 keys, of which ten are in the cache: of a compact entry it is known whether its
    /// key has left. Keys that compact entries take for one another, by four buckets and 12 bits, tell nothing.
    #[test]
    fn the_table_of_keys_knows_who_has_left() {
        let mut cache = Density::cache(DensityPolicyConfig { key_table_bytes: 512, ..config() }, 100, 1).unwrap();
        let mut random = Random::new(3);
        let key = |number| read(0, number, 100.0).key;
        (0..20_000).for_each(|_| _ = cache.access(&read(0, random.below(300), 100.0)));
        let order = cache.order_mut();
        order.accesses.settle(&mut order.keys);
        let keys = &cache.order().keys;
        let compact = |number| keys.compact_departure(key(number)).filter(|_| keys.get(key(number)).is_none());
        let is_there = |number| cache.table().place_of(key(number)).is_some();
        let bits = |number| (key(number).0 as u32 >> 30, key(number).0 >> 44 & 0xfff);
        let is_alone = |&number: &u64| (0..300).all(|other| other == number || bits(other) != bits(number));
        let known: Vec<_> = (0..300).filter(is_alone).filter_map(|number| Some((number, compact(number)?))).collect();
        assert!(known.len() > 40, "{known:?}");
        assert!(
            known.iter().all(|&(number, departure)| is_there(number) == (departure == Departure::default())),
            "{known:?}"
        );
    }

    #[test]
    fn bad_configurations_are_refused() {
        let refused = |config| Density::cache(config, 1_000, 1).err();
        assert_eq!(refused(DensityPolicyConfig { sample_size: 0, ..config() }), Some(ConfigError::SampleSize(0)));
        assert_eq!(refused(DensityPolicyConfig { decay: 2.0, ..config() }), Some(ConfigError::Decay(2.0)));
        let bounds = vec![Bounds { bytes_min: 2, bytes_max: 1 }];
        let expected = ConfigError::Bounds { bytes_min: 2, bytes_max: 1 };
        assert_eq!(refused(DensityPolicyConfig { bounds, ..config() }), Some(expected));
    }
}
