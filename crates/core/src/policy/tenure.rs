//! Tenure's own policy, simulated: of the keys that are met the one goes whose bytes save least, by whichever ranking is ahead.
//!
//! The parts are those of the server: what keys have shown is kept in a [`KeyTable`] of fixed size and outlasts eviction where there is
//! room; a sample of the accesses teaches the density table (`decide/density.rs`) and feeds miniature caches of four rankings
//! (`model/contest.rs`); candidates are drawn K per eviction over all partitions and the best kept on a shortlist (`pools.rs`). There are no
//! walls but a tenant's own: who is above its maximum gives first, who is at its minimum doesn't give. Time is counted in requests.
//! Cost: one cache line per access, K look-ups in two tables per eviction, and per sampled access that of a model and of four small caches.

use super::Snapshot;
use super::cache::{Outcome, SAMPLE_SIZE_MAX};
use super::over_target::OverTarget;
use super::partitioned::Partitioning;
use super::pools::{Giver, PATIENCE, Pools, next_giver};
use super::ranking::{GreedyAges, Ranker, Ranking, Subject};
use super::table::{Entry, Order, Table, TableCache};
use crate::access::Access;
use crate::decide::density::{DensityConfig, DensityModel, DensityTable, History};
use crate::decide::penalty_class::penalty_class;
use crate::error::ConfigError;
use crate::expiry::{NEVER_US, expires_us_after};
use crate::key_table::KeyTable;
use crate::model::contest::Contest;
use crate::random::Random;
use crate::sampling::SampleRate;
use crate::units::{KeyHash, PARTITIONS_MAX, PartitionId};

/// How many values are sampled where nothing else is asked for.
pub const SAMPLE_SIZE: u32 = 16;
/// The key table's share of the memory: of keys of 1 KiB, all that are there are remembered.
const TABLE_SHARE: u64 = 64;
/// The first window ends after so many requests, each next is twice as long, up to the length that was asked for.
const WINDOW_REQUESTS_MIN: u64 = 1000;
/// Keys not asked for in this many windows are forgotten by the model.
const WINDOWS_REMEMBERED: u64 = 64;
/// Points of GDSF's ages in a window.
const AGES_PER_WINDOW: u64 = 64;

/// How the policy works.
#[derive(Clone, Debug, PartialEq)]
pub struct TenureConfig {
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
}

impl Default for TenureConfig {
    fn default() -> Self {
        TenureConfig {
            sample_size: SAMPLE_SIZE,
            window_requests: 50_000,
            decay: DensityConfig::default().decay,
            sampled_keys_max: 1 << 15,
            key_table_bytes: 0,
            ranking: None,
            bounds: Vec::new(),
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

#[derive(Clone, Copy, Debug)]
struct Victim {
    key: KeyHash,
    last_access: u64,
}

/// The order of Tenure. See the file's opening.
#[derive(Debug)]
pub struct Tenure {
    config: TenureConfig,
    keys: KeyTable,
    model: DensityModel,
    table: DensityTable,
    ages: GreedyAges,
    contest: Contest,
    ranking: Ranking,
    rate: SampleRate,
    used_bytes: [u64; PARTITIONS_MAX],
    bytes_min: Vec<u64>,
    bytes_max: Vec<u64>,
    pools: Pools<Victim>,
    random: Random,
    window_ends: u64,
    now_us: u64,
}

impl Tenure {
    /// A cache of `capacity_bytes`.
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`], [`ConfigError::Decay`] and [`ConfigError::Bounds`] for what the configuration has out of range.
    pub fn cache(config: TenureConfig, capacity_bytes: u64, seed: u64) -> Result<TableCache<Tenure>, ConfigError> {
        if !(1..=SAMPLE_SIZE_MAX).contains(&config.sample_size) {
            return Err(ConfigError::SampleSize(config.sample_size));
        }
        if let Some(&Bounds { bytes_min, bytes_max }) = config.bounds.iter().find(|b| b.bytes_min > b.bytes_max) {
            return Err(ConfigError::Bounds { bytes_min, bytes_max });
        }
        let key_table_bytes = match config.key_table_bytes {
            0 => capacity_bytes / TABLE_SHARE,
            set => set,
        };
        let step = config.window_requests / AGES_PER_WINDOW;
        let order = Tenure {
            keys: KeyTable::with_outlines(key_table_bytes, 1),
            model: DensityModel::new(DensityConfig { decay: config.decay })?,
            table: DensityTable::default(),
            ages: GreedyAges::new(step),
            contest: Contest::new(capacity_bytes, step, seed),
            ranking: config.ranking.unwrap_or(Ranking::Density),
            rate: SampleRate::ALL,
            used_bytes: [0; PARTITIONS_MAX],
            bytes_min: config.bounds.iter().map(|bounds| bounds.bytes_min).collect(),
            bytes_max: config.bounds.iter().map(|bounds| bounds.bytes_max).collect(),
            pools: Pools::new(config.sample_size as usize),
            random: Random::new(seed),
            window_ends: WINDOW_REQUESTS_MIN.min(config.window_requests),
            now_us: 0,
            config,
        };
        Ok(TableCache::new(capacity_bytes, order))
    }

    /// The ranking that evicts now.
    pub fn ranking(&self) -> Ranking {
        self.ranking
    }

    /// The time in requests at which what expires at `expires_us` does, at the pace so far.
    fn expires_at(&self, expires_us: u64, now: u64) -> u64 {
        if expires_us == NEVER_US || self.now_us == 0 {
            return u64::MAX;
        }
        let per_us = now as f64 / self.now_us as f64;
        now + (expires_us.saturating_sub(self.now_us) as f64 * per_us) as u64
    }

    fn subject(&self, entry: &Entry, now: u64) -> Subject {
        let known = self.keys.recall(entry.key, now as u32);
        let history = known.map_or(History::default(), |known| known.history());
        Subject {
            feature: history.feature(group(entry.penalty_us)),
            last: entry.last_access,
            expires: self.expires_at(entry.expires_us, now),
            n_requests: entry.n_requests,
            size_bytes: entry.size_bytes,
            penalty_us: entry.penalty_us,
        }
    }

    fn offer(&mut self, entry: &Entry, now: u64) {
        let ranker = Ranker { ranking: self.ranking, table: &self.table, ages: &self.ages, now };
        let score = ranker.score(&self.subject(entry, now));
        let Entry { key, last_access, partition, .. } = *entry;
        self.pools.offer(partition, f64::from(score), || Victim { key, last_access });
    }

    /// Draws values until K that may go were met, or patience has run out.
    fn meet(&mut self, table: &Table, giver: Giver, may_give: OverTarget) {
        let patience = PATIENCE * self.config.sample_size as usize;
        let mut met = 0;
        for _ in 0..patience {
            if self.pools.will_do(giver, met) {
                return;
            }
            let entry = table.entries()[self.random.below(table.entries().len() as u64) as usize];
            if may_give.holds(entry.partition) {
                met += 1;
                self.offer(&entry, table.clock());
            }
        }
    }

    /// What the access has shown of its key, if it is remembered; the history with it.
    fn learn(&mut self, access: &Access, now: u64) -> History {
        let fading = self.keys.fading();
        let entry = self.keys.get_or_insert_by_history(access.key, now as u32);
        let gap = u64::from((now as u32).wrapping_sub(entry.last));
        let history = entry.history().asked(gap, now as u32, fading);
        entry.set_history(history);
        entry.last = now as u32;
        entry.n_requests = 1;
        history
    }

    /// Feeds model and miniatures, where the key is in the sample.
    fn sample(&mut self, access: &Access, now: u64, history: History) {
        if !self.rate.takes(access.key) {
            return;
        }
        let feature = history.feature(group(access.penalty_us));
        self.model.record(access.key, access.op, now, feature);
        let expires_us = expires_us_after(access, None);
        self.contest.record(access, now, feature, self.expires_at(expires_us, now), &self.table);
        if self.model.sampled_keys() > self.config.sampled_keys_max
            && let Ok(rate) = SampleRate::new(self.rate.rate() / 2.0)
        {
            self.rate = rate;
            self.model.retain(|key| rate.takes(key));
            self.contest.thin(|key| rate.takes(key), 0.5);
        }
    }

    fn end_window(&mut self, now: u64) {
        self.table = self.model.end_window(now, WINDOWS_REMEMBERED * self.config.window_requests);
        let chosen = if now >= self.config.window_requests { self.contest.end_window() } else { self.ranking };
        let ranking = self.config.ranking.unwrap_or(chosen);
        if ranking != self.ranking {
            self.ranking = ranking;
            self.pools.clear();
        }
        self.window_ends = now + now.min(self.config.window_requests);
    }
}

/// What tells keys apart that were seen once: their penalty's class.
fn group(penalty_us: f32) -> u8 {
    penalty_class(f64::from(penalty_us)) as u8
}

impl Order for Tenure {
    fn victim(&mut self, table: &Table, incoming: &Entry) -> usize {
        let mut used = self.used_bytes;
        used[incoming.partition.index()] += u64::from(incoming.size_bytes);
        let mut bytes_max = [u64::MAX; PARTITIONS_MAX];
        bytes_max[..self.bytes_max.len().min(PARTITIONS_MAX)].copy_from_slice(&self.bytes_max);
        let giver = next_giver(&used, &[], &bytes_max, OverTarget::default, true).unwrap_or(Giver::Anyone);
        let may_give = match giver {
            Giver::Partition(id) if self.used_bytes[id.index()] > 0 => OverTarget::only(id),
            _ => OverTarget::above_minimum(&self.used_bytes, &self.bytes_min),
        };
        loop {
            self.meet(table, giver, may_give);
            let place = self.pools.take(giver).or_else(|| self.pools.take(Giver::Anyone)).and_then(|victim| {
                let place = table.place_of(victim.key)?;
                let entry = &table.entries()[place];
                (entry.last_access == victim.last_access && may_give.holds(entry.partition)).then_some(place)
            });
            if let Some(place) = place {
                let gone = self.subject(&table.entries()[place], table.clock());
                self.ages.evicted(&gone, table.clock());
                return place;
            }
        }
    }

    fn stored(&mut self, table: &Table, place: usize) {
        let entry = &table.entries()[place];
        self.used_bytes[entry.partition.index()] += u64::from(entry.size_bytes);
    }

    fn removed(&mut self, table: &Table, place: usize) {
        let entry = &table.entries()[place];
        self.used_bytes[entry.partition.index()] -= u64::from(entry.size_bytes);
        if let Some(known) = self.keys.get_mut(entry.key) {
            known.n_requests = 0;
        }
    }

    fn partition_of(&self, access: &Access) -> PartitionId {
        if self.config.bounds.is_empty() { PartitionId(0) } else { Partitioning::Tenant.of(access) }
    }

    fn observed(&mut self, access: &Access, outcome: Outcome, table: &Table) {
        self.now_us = access.time_us;
        let now = table.clock();
        let history = match outcome {
            Outcome::NotARequest => History::default(),
            _ => self.learn(access, now),
        };
        self.sample(access, now, history);
        // A newcomer that is worth less than what was met goes before it.
        if outcome == Outcome::Miss
            && let Some(place) = table.place_of(access.key)
        {
            self.offer(&table.entries()[place], now);
        }
        if now >= self.window_ends {
            self.end_window(now);
        }
    }

    fn snapshot(&self, _table: &Table) -> Snapshot {
        let n = self.config.bounds.len().max(1);
        Snapshot {
            target_bytes: Vec::new(),
            used_bytes: self.used_bytes[..n.min(PARTITIONS_MAX)].to_vec(),
            sample_sizes: vec![self.config.sample_size],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::cache::Cache;
    use crate::units::TenantId;

    fn config() -> TenureConfig {
        TenureConfig { window_requests: 2_000, key_table_bytes: 1 << 16, ..TenureConfig::default() }
    }

    /// What share of the second half's reads hit, over all and of tenant 1.
    fn hit_ratio(config: TenureConfig, capacity: u64, trace: impl Iterator<Item = Access>) -> (f64, f64) {
        let mut cache = Tenure::cache(config, capacity, 1).unwrap();
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

    /// A loop over 100 keys with room for 60: recency never hits, density keeps some of them.
    #[test]
    fn a_loop_larger_than_the_cache_hits() {
        let (hits, _) = hit_ratio(config(), 600, (0..40_000).map(|i| read(0, i % 100, 100.0)));
        assert!(hits > 0.5, "{hits}");
    }

    /// Half of the requests are for keys at fifty times the price that never come again: they don't keep the others out.
    #[test]
    fn dear_keys_that_never_come_again_leave() {
        let trace = |i: u64| if i.is_multiple_of(2) { read(0, i, 5_000.0) } else { read(1, i / 2 % 80, 100.0) };
        let (_, hits) = hit_ratio(config(), 1_000, (0..60_000).map(trace));
        assert!(hits > 0.9, "{hits}");
        let greedy = TenureConfig { ranking: Some(Ranking::Greedy), ..config() };
        let (_, by_gdsf) = hit_ratio(greedy, 1_000, (0..60_000).map(trace));
        assert!(by_gdsf < hits - 0.3, "{by_gdsf}");
    }

    /// 3000 keys of which a draw that stays is asked for, the first far more often than the last, with room for 300: what the long run knows is
    /// found out, and better than density alone. Where the draw moves, density is.
    #[test]
    fn where_popularity_stays_the_long_run_counts() {
        let run = |ranking, per_step: u64| {
            let mut cache = Tenure::cache(TenureConfig { ranking, ..config() }, 3_000, 1).unwrap();
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

    /// Three tenants, the first of no use and with a guarantee, the second dear and limited.
    #[test]
    fn a_minimum_and_a_maximum_hold() {
        let bounds = [(300, 2_000), (0, 200), (0, 2_000)].map(|(bytes_min, bytes_max)| Bounds { bytes_min, bytes_max });
        let mut cache = Tenure::cache(TenureConfig { bounds: bounds.to_vec(), ..config() }, 1_000, 1).unwrap();
        for i in 0..30_000_u64 {
            let access = match i % 3 {
                0 => read(0, i, 1.0),
                1 => read(1, i / 3 % 100, 10_000.0),
                _ => read(2, i / 3 % 90, 500.0),
            };
            cache.access(&access);
            let used = cache.order().used_bytes;
            if i > 3_000 {
                assert!(used[0] >= 300 && used[1] <= 200, "{:?} at {i}", &used[..3]);
            }
        }
    }

    #[test]
    fn bad_configurations_are_refused() {
        let refused = |config| Tenure::cache(config, 1_000, 1).err();
        assert_eq!(refused(TenureConfig { sample_size: 0, ..config() }), Some(ConfigError::SampleSize(0)));
        assert_eq!(refused(TenureConfig { decay: 2.0, ..config() }), Some(ConfigError::Decay(2.0)));
        let bounds = vec![Bounds { bytes_min: 2, bytes_max: 1 }];
        let expected = ConfigError::Bounds { bytes_min: 2, bytes_max: 1 };
        assert_eq!(refused(TenureConfig { bounds, ..config() }), Some(expected));
    }
}
