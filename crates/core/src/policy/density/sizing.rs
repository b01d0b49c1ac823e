//! What the cache would miss with less memory or more: miniature caches of this policy at eight sizes, fed by the
//! same sample.
//!
//! Source: miniature simulation (Waldspurger et al., ATC'17): keys are sampled by their hash, and a cache of `C`
//! bytes is stood for by one of `C` × rate. All rank by the densities that were learned, choose and keep to tenants'
//! bounds as the server does. Under half the memory or twice as much the contest may choose the other of the learned
//! rankings. So there are two caches of these sizes, and the one that misses less counts. Differs from the source:
//! what a key has shown is the same in all caches and is kept once; and the server itself says how good the sample
//! is. What of its misses is the sample's tells the share of the keys that miss, which is what caches are to be
//! scaled by. And what it misses is where predictions begin: of a smaller cache, what its miniature misses more than
//! that of the present size is added, as of as many keys as the partition has there; of a larger one there is less in
//! proportion. Where the server evicts a share of the keys by itself, the same share goes by idle time here, up to the
//! present size. What partitions miss more leans on what all do, as far as they differ by no more than chance. Misses
//! that nobody answers, of keys that are nowhere, don't depend on memory. Cost: a look-up per sampled access, K scores
//! per eviction and cache; about 40 bytes for each sampled key that fits into four times the memory.

use super::SAMPLE_SIZE;
use super::candidates::{Candidates, Met};
use super::history::Feature;
use super::places::Places;
use super::ranking::{GreedyAges, Ranker, Ranking};
use super::shared_keys::{KEYS_MAX, Known, SharedKeys};
use super::table::DensityTable;
use crate::access::{Access, Op};
use crate::policy::walk::Walk;
use crate::random::Random;
use crate::sampling::SampleRate;
use crate::units::PartitionId;

/// The sizes that are simulated, as parts of the present one.
pub const SCALES: [f64; 8] = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0];
/// Which of them is the present one.
pub const PRESENT: usize = 3;
/// Own memory for each key that is remembered, in bytes, at the most.
pub const BYTES_PER_KEY: u64 = 46;

/// How a cache ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// As the server does.
    InForce,
    /// As the server does, but for [`Ranking::Density`] where that is [`Ranking::Steady`].
    NotSteady,
    /// [`Ranking::Steady`].
    Steady,
}

impl By {
    fn ranking(self, in_force: Ranking) -> Ranking {
        match self {
            By::NotSteady if in_force == Ranking::Steady => Ranking::Density,
            By::InForce | By::NotSteady => in_force,
            By::Steady => Ranking::Steady,
        }
    }
}

/// Which caches there are: their place in [`SCALES`], and how they rank. Near the present size the ranking is the same.
const CACHES: [(usize, By); 12] = [
    (0, By::NotSteady),
    (0, By::Steady),
    (1, By::NotSteady),
    (1, By::Steady),
    (2, By::InForce),
    (3, By::InForce),
    (4, By::InForce),
    (5, By::InForce),
    (6, By::NotSteady),
    (6, By::Steady),
    (7, By::NotSteady),
    (7, By::Steady),
];
/// That of the present size.
const PRESENT_CACHE: usize = 5;
/// Of so many keys the server evicts the longest idle, by its default.
const OF_SERVER: usize = 5;
/// As a multiple of K, so many are drawn to find K keys of a tenant that is above its maximum.
const PATIENCE: usize = 4;
/// What a window weighs one window later.
const DECAY: f64 = 0.7;
/// A miniature counts from this share of its capacity on.
const FULL: f64 = 0.9;
/// Misses that say as much of the sample as is believed beforehand.
const MISSES_BELIEVED: f64 = 100.0;
/// The same of a partition's caches.
const MISSES_ENOUGH: f64 = 20.0;
/// Keys of a partition's that say as much of its sample.
const KEYS_ENOUGH: f64 = 20.0;
/// The sample's share is not off by more than this.
const OFF_MAX: f64 = 1.5;
/// What partitions have in common is known from so many of them on.
const ALIKE_FROM: usize = 4;

/// What a tenant may rely on, by partition: the tenant's number, and its bounds in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which tenant.
    pub tenant: u8,
    /// At or below this nothing of it is evicted for others.
    pub bytes_min: u64,
    /// Above this it gives first.
    pub bytes_max: u64,
}

impl Default for Owner {
    fn default() -> Self {
        Owner { tenant: 0, bytes_min: 0, bytes_max: u64::MAX }
    }
}

/// What one partition was seen to do since the window before ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Reads.
    pub reads: f64,
    /// Reads that found nothing.
    pub misses: f64,
    /// Of these, those that a write answered.
    pub answered: f64,
    /// What they cost, in µs.
    pub miss_us: f64,
    /// Keys of it that there are.
    pub keys: f64,
}

impl Measured {
    fn decay(&mut self, now: &Measured) {
        self.reads = self.reads * DECAY + now.reads;
        self.misses = self.misses * DECAY + now.misses;
        self.answered = self.answered * DECAY + now.answered;
        self.miss_us = self.miss_us * DECAY + now.miss_us;
        self.keys = now.keys;
    }
}

/// What one partition would do with a memory of some size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// What it would hold, in bytes.
    pub used_bytes: f64,
    /// Its misses / reads.
    pub miss_ratio: f64,
    /// Time that its misses would cost, in µs per second.
    pub lost_us_per_second: f64,
}

/// What is expected of each size, by partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expectations {
    /// Reads per second, by partition.
    pub reads_per_second: Vec<f64>,
    /// In the order of [`SCALES`], by partition; empty before there is anything to tell.
    pub by_size: Vec<Vec<Expected>>,
}

/// One cache.
#[derive(Debug)]
struct Small {
    capacity_bytes: u64,
    used_bytes: u64,
    /// Where the keys are that it holds.
    held: Places,
    walk: Walk,
    by_partition: Vec<Account>,
    /// Used bytes by tenant.
    by_tenant: Vec<u64>,
    ages: GreedyAges,
    candidates: Candidates,
}

impl Small {
    /// What its misses have cost.
    fn cost_us(&self) -> f64 {
        self.by_partition.iter().map(|account| account.cost_us).sum()
    }
}

/// What a partition has in one cache, and has missed there.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    used_bytes: u64,
    keys: u32,
    misses: f64,
    cost_us: f64,
}

/// What a cache misses more than that of the present size.
#[derive(Clone, Copy, Debug, Default)]
struct More {
    misses: f64,
    cost_us: f64,
    /// Sampled keys that it holds less.
    keys: f64,
}

/// The caches. See the file's opening.
#[derive(Debug)]
pub struct Sizing {
    rate: SampleRate,
    caches: Vec<Small>,
    known: SharedKeys,
    owners: Vec<Owner>,
    measured: Vec<Measured>,
    seconds: f64,
    /// Of the server's misses, those of the sample.
    missed_there: f64,
    /// The sample's share of the keys that miss, over the rate.
    share: f64,
    is_full: bool,
    /// K.
    sample_size: usize,
    /// The share of its keys that the server evicts by itself.
    by_server: f64,
    steps: u64,
    random: Random,
}

impl Sizing {
    /// Empty caches of no size for keys sampled at `rate`; `step_ticks` as [`GreedyAges::new`] has it.
    pub fn new(rate: SampleRate, step_ticks: u64, seed: u64) -> Self {
        let small = |cache| Small {
            capacity_bytes: 0,
            used_bytes: 0,
            held: Places::default(),
            walk: Walk::new(seed ^ cache as u64),
            by_partition: Vec::new(),
            by_tenant: vec![0],
            ages: GreedyAges::new(step_ticks),
            candidates: Candidates::new(),
        };
        Sizing {
            rate,
            caches: (0..CACHES.len()).map(small).collect(),
            known: SharedKeys::default(),
            owners: Vec::new(),
            measured: Vec::new(),
            seconds: 0.0,
            missed_there: 0.0,
            share: 1.0,
            is_full: false,
            sample_size: SAMPLE_SIZE as usize,
            by_server: 0.0,
            steps: 0,
            random: Random::new(seed),
        }
    }

    /// The share of all keys that it looks at.
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// So many keys are met for each that goes from now on, 1 or more.
    pub fn set_sample_size(&mut self, sample_size: usize) {
        self.sample_size = sample_size.max(1);
    }

    /// The server evicts this share of the keys that go by itself, 0 to 1: up to the present size the same share goes
    /// here as the longest idle of a few.
    pub fn set_share_of_server(&mut self, share: f64) {
        self.by_server = share;
    }

    /// The present size's cache is full: misses are counted.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Sampled keys that are remembered.
    pub fn keys(&self) -> usize {
        self.known.len()
    }

    /// Accesses of the sample, and keys evicted for them, since this was last asked: half a microsecond each.
    pub fn take_steps(&mut self) -> u64 {
        std::mem::take(&mut self.steps)
    }

    /// Takes one access of the sample at `now`; `feature` is what the key has shown with it, `expires` when its value
    /// does, in ticks. `is_miss`: it is the answer to a miss of the server's.
    pub fn record(
        &mut self,
        access: &Access,
        (partition, is_miss): (PartitionId, bool),
        (now, feature, expires): (u64, Feature, u64),
        (ranking, table): (Ranking, &DensityTable),
    ) {
        if self.caches[0].capacity_bytes == 0 || !self.rate.takes(access.key) {
            return;
        }
        self.steps += 1;
        self.missed_there += f64::from(u8::from(is_miss && self.is_full));
        let (held, gone) = self.known.held_or_gone(access, now);
        if let Some(place) = gone {
            self.forget(place);
        }
        if access.op == Op::Delete {
            return;
        }
        let known = Known::new(access, partition, (now, feature, expires));
        let (place, before) = self.known.note(held, access.op, known, now);
        self.fit_partitions(partition.index() + 1);
        if let Some(before) = &before {
            self.recount(place, before);
        }
        for (cache, (size, _)) in CACHES.into_iter().enumerate() {
            let rank = (ranking, table, now);
            if !self.caches[cache].held.has(place) {
                // A key that is met for the first time, and that the server has, would have been there.
                let was_there = before.is_none() && !is_miss && size >= PRESENT;
                if access.op == Op::Read && self.is_full && !was_there {
                    let account = &mut self.caches[cache].by_partition[partition.index()];
                    account.misses += 1.0;
                    account.cost_us += f64::from(access.penalty_us);
                }
                self.enter(place, cache, rank);
            }
            self.make_room(cache, place, rank);
        }
        if self.known[place].n_held == 0 {
            self.forget(place);
        }
        if self.keys() > KEYS_MAX {
            self.set_rate(self.rate.lowered());
        }
    }

    fn fit_partitions(&mut self, n: usize) {
        if self.caches[0].by_partition.len() < n {
            self.caches.iter_mut().for_each(|cache| cache.by_partition.resize(n, Account::default()));
        }
    }

    fn owner(&self, partition: u8) -> Owner {
        self.owners.get(usize::from(partition)).copied().unwrap_or_default()
    }

    /// Counts a key that was known as this as what it is now: of another size, maybe, and of another partition.
    fn recount(&mut self, place: u16, before: &Known) {
        let now = self.known[place];
        if before.partition == now.partition && before.size_bytes == now.size_bytes {
            return;
        }
        for cache in 0..CACHES.len() {
            if self.caches[cache].held.has(place) {
                self.count(cache, before, -1);
                self.count(cache, &now, 1);
            }
        }
    }

    /// A key is in that cache from now on (`more` = 1), or no more (-1).
    fn count(&mut self, cache: usize, key: &Known, more: i32) {
        let tenant = usize::from(self.owner(key.partition).tenant);
        let small = &mut self.caches[cache];
        let account = &mut small.by_partition[usize::from(key.partition)];
        account.keys = account.keys.saturating_add_signed(more);
        for bytes in [&mut small.used_bytes, &mut small.by_tenant[tenant], &mut account.used_bytes] {
            *bytes = bytes.saturating_add_signed(i64::from(more) * i64::from(key.size_bytes));
        }
    }

    fn enter(&mut self, place: u16, cache: usize, rank: (Ranking, &DensityTable, u64)) {
        let known = &mut self.known[place];
        known.n_held += 1;
        let known = *known;
        self.count(cache, &known, 1);
        let small = &mut self.caches[cache];
        small.held.add(place);
        // A newcomer that is worth less than what was met goes before it.
        let score = ranker(cache, &small.ages, rank).score(&known.subject(rank.2));
        small.candidates.offer(score, Met { place: place.into(), last: rank.2 });
    }

    /// It is in that cache no more.
    fn leave(&mut self, place: u16, cache: usize) {
        self.caches[cache].held.remove(place);
        let known = &mut self.known[place];
        known.n_held -= 1;
        let known = *known;
        self.count(cache, &known, -1);
    }

    /// It is in no cache any more.
    fn forget(&mut self, place: u16) {
        for cache in 0..CACHES.len() {
            if self.caches[cache].held.has(place) {
                self.leave(place, cache);
            }
        }
        self.known.forget(place);
    }

    /// Evicts until the cache is within its capacity, and the tenant of the key at `place` within its maximum.
    fn make_room(&mut self, cache: usize, place: u16, rank: (Ranking, &DensityTable, u64)) {
        let owner = self.owner(self.known[place].partition);
        let bytes_max = scaled(owner.bytes_max, self.rate);
        loop {
            let small = &self.caches[cache];
            let is_above = small.by_tenant[usize::from(owner.tenant)] > bytes_max;
            if small.held.len() == 0 || (!is_above && small.used_bytes <= small.capacity_bytes) {
                return;
            }
            let victim = match small.used_bytes > small.capacity_bytes {
                true if !is_above => self.victim(cache, rank),
                is_full => {
                    let of_tenant = self.victim_of(cache, owner.tenant, rank);
                    of_tenant.or_else(|| is_full.then(|| self.victim(cache, rank)).flatten())
                }
            };
            // A tenant that is rarely met in so large a cache gives with one of its next accesses.
            let Some(victim) = victim else { return };
            self.steps += 1;
            self.leave(victim, cache);
            if victim != place && self.known[victim].n_held == 0 {
                self.forget(victim);
            }
        }
    }

    /// Who goes next of all that hold more than they are guaranteed; where hardly any does, anyone. `None` where there
    /// is no one.
    fn victim(&mut self, cache: usize, rank: (Ranking, &DensityTable, u64)) -> Option<u16> {
        // With more memory fewer keys go, and the server has less to evict by itself.
        if CACHES[cache].0 <= PRESENT && self.by_server > 0.0 && self.random.unit() < self.by_server {
            return self.victim_of_server(cache, rank.2);
        }
        let Sizing { caches, known, owners, rate, sample_size, .. } = self;
        let Small { held, walk, by_tenant, ages, candidates, .. } = &mut caches[cache];
        let (ranker, now) = (ranker(cache, ages, rank), rank.2);
        let may_give = |partition: u8| {
            let owner = owners.get(usize::from(partition)).copied().unwrap_or_default();
            let bytes_min = scaled(owner.bytes_min, *rate);
            bytes_min == 0 || by_tenant[usize::from(owner.tenant)] > bytes_min
        };
        let draw = || {
            let place = held.next(walk)?;
            let known = &known[place];
            let score = || ranker.score(&known.subject(now));
            may_give(known.partition).then(|| (score(), Met { place: place.into(), last: known.last(now) }))
        };
        let may_go = |met: &Met| {
            let is_as_met = |known: &Known| known.last(now) == met.last && may_give(known.partition);
            held.has(met.place as u16) && is_as_met(&known[met.place as u16])
        };
        let victim = candidates.next(*sample_size, draw, may_go).map(|place| place as u16);
        let victim = victim.or_else(|| held.next(walk))?;
        self.went(cache, victim, rank);
        Some(victim)
    }

    /// Who goes where the server itself evicts.
    fn victim_of_server(&mut self, cache: usize, now: u64) -> Option<u16> {
        let Small { held, walk, .. } = &mut self.caches[cache];
        let met = (0..OF_SERVER).filter_map(|_| held.next(walk));
        met.min_by_key(|&place| self.known[place].last(now))
    }

    /// The lowest of a sample of one tenant; `None` where none was met.
    fn victim_of(&mut self, cache: usize, tenant: u8, rank: (Ranking, &DensityTable, u64)) -> Option<u16> {
        let Small { held, walk, ages, .. } = &mut self.caches[cache];
        let ranker = ranker(cache, ages, rank);
        let met = (0..PATIENCE * self.sample_size)
            .filter_map(|_| held.next(walk))
            .map(|place| (place, &self.known[place]))
            .filter(|(_, known)| self.owners.get(usize::from(known.partition)).is_some_and(|o| o.tenant == tenant))
            .take(self.sample_size);
        let scores = met.map(|(place, known)| (place, ranker.score(&known.subject(rank.2))));
        let (victim, _) = scores.min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.went(cache, victim, rank);
        Some(victim)
    }

    /// The ages of GDSF follow those that go, where they are looked at.
    fn went(&mut self, cache: usize, victim: u16, (in_force, table, now): (Ranking, &DensityTable, u64)) {
        let small = &mut self.caches[cache];
        if CACHES[cache].1.ranking(in_force) == Ranking::Greedy || table.is_empty() {
            small.ages.evicted(&self.known[victim].subject(now), now);
        }
    }

    /// The rate at which keys are looked at: others go, and caches shrink with it. At a higher one they have to fill
    /// again.
    pub fn set_rate(&mut self, rate: SampleRate) {
        let factor = rate.rate() / self.rate.rate();
        self.rate = rate;
        let left_out = self.known.left_out(|key| rate.takes(key));
        left_out.into_iter().for_each(|place| self.forget(place));
        for cache in 0..CACHES.len() {
            let bytes = (self.caches[cache].capacity_bytes as f64 * factor) as u64;
            self.resize(cache, bytes, None);
        }
        if factor > 1.0 {
            self.begin_again();
        }
        self.close_ranks();
    }

    /// Gives back what memory was only needed for many more keys.
    fn close_ranks(&mut self) {
        if let Some(old) = self.known.close_ranks() {
            for small in &mut self.caches {
                small.held = small.held.renumbered(&old);
                small.candidates.clear();
            }
        }
    }

    /// What was counted counts no more, until the caches are full.
    pub fn begin_again(&mut self) {
        self.is_full = false;
        self.forget_counts();
    }

    /// What was counted counts no more: it was of another size.
    pub fn forget_counts(&mut self) {
        (self.seconds, self.measured, self.missed_there) = (0.0, Vec::new(), 0.0);
        for account in self.caches.iter_mut().flat_map(|small| &mut small.by_partition) {
            (account.misses, account.cost_us) = (0.0, 0.0);
        }
    }

    /// What has no room any more goes by `rank`, or as chance has it.
    fn resize(&mut self, cache: usize, capacity_bytes: u64, rank: Option<(Ranking, &DensityTable, u64)>) {
        self.caches[cache].capacity_bytes = capacity_bytes;
        while self.caches[cache].used_bytes > capacity_bytes {
            let place = match rank {
                Some(rank) => self.victim(cache, rank),
                None => {
                    let Small { held, walk, .. } = &mut self.caches[cache];
                    held.next(walk)
                }
            };
            let Some(place) = place else { return };
            self.leave(place, cache);
            if self.known[place].n_held == 0 {
                self.forget(place);
            }
        }
    }

    /// The caches stand for these, in bytes, in the order of [`SCALES`], and tenants have these bounds, from now on;
    /// what has no room any more goes by the ranking.
    pub fn set_capacities(
        &mut self,
        capacities_bytes: [u64; SCALES.len()],
        owners: Vec<Owner>,
        rank: (Ranking, &DensityTable, u64),
    ) {
        if owners != self.owners {
            self.owners = owners;
            self.fit_partitions(self.owners.len());
            let n_tenants = self.owners.iter().map(|owner| usize::from(owner.tenant) + 1).max().unwrap_or(1);
            for cache in 0..CACHES.len() {
                self.caches[cache].by_tenant = vec![0; n_tenants];
                for partition in 0..self.caches[cache].by_partition.len() {
                    let tenant = usize::from(self.owner(partition as u8).tenant);
                    let used_bytes = self.caches[cache].by_partition[partition].used_bytes;
                    self.caches[cache].by_tenant[tenant] += used_bytes;
                }
            }
        }
        for (cache, (size, _)) in CACHES.into_iter().enumerate() {
            let bytes = (capacities_bytes[size] as f64 * self.rate.rate() * self.share) as u64;
            self.resize(cache, bytes.max(1), Some(rank));
        }
    }

    /// Ends a window of so many seconds in which partitions were seen to do this; what is expected of each size from
    /// now on.
    pub fn end_window(&mut self, now: &[Measured], seconds: f64) -> Expectations {
        let present = &self.caches[PRESENT_CACHE];
        if !self.is_full {
            // What is counted begins with the next window.
            self.is_full =
                present.capacity_bytes > 1 && present.used_bytes as f64 >= FULL * present.capacity_bytes as f64;
            return Expectations::default();
        }
        self.fit_partitions(now.len());
        self.measured.resize(self.caches[0].by_partition.len(), Measured::default());
        self.measured.iter_mut().zip(now).for_each(|(held, now)| held.decay(now));
        self.seconds = self.seconds * DECAY + seconds;
        let missed: f64 = self.measured.iter().map(|measured| measured.answered).sum();
        let share = (self.missed_there + MISSES_BELIEVED) / (missed * self.rate.rate() + MISSES_BELIEVED);
        self.share = share.clamp(1.0 / OFF_MAX, OFF_MAX);
        self.missed_there *= DECAY;
        let of_size = |size: usize| {
            let of_this = (0..CACHES.len()).filter(|&cache| CACHES[cache].0 == size);
            let cost_us = |cache: &usize| self.caches[*cache].cost_us();
            let cheapest = of_this.min_by(|a, b| cost_us(a).total_cmp(&cost_us(b))).unwrap_or(PRESENT_CACHE);
            let more = self.more_misses(cheapest);
            (0..now.len()).map(|partition| self.expected(cheapest, partition, more[partition])).collect()
        };
        let by_size = (0..SCALES.len()).map(of_size).collect();
        let per_second = |measured: &Measured| measured.reads / self.seconds.max(1e-6);
        let expectations = Expectations { reads_per_second: self.measured.iter().map(per_second).collect(), by_size };
        for account in self.caches.iter_mut().flat_map(|small| &mut small.by_partition) {
            account.misses *= DECAY;
            account.cost_us *= DECAY;
        }
        expectations
    }

    /// What a cache misses more than that of the present size, of all keys, by partition: misses and their cost.
    ///
    /// What a smaller one misses more is counted, and stands for as many keys as there are. What a larger one misses
    /// no more is in proportion.
    fn more_misses(&self, cache: usize) -> Vec<More> {
        let rate = self.rate.rate();
        let of_partition = |(partition, measured): (usize, &Measured)| {
            let [its, present] = [cache, PRESENT_CACHE].map(|cache| &self.caches[cache].by_partition[partition]);
            let scale = match its.misses < present.misses {
                true => (measured.answered * rate + MISSES_ENOUGH) / (present.misses + MISSES_ENOUGH),
                false => {
                    let share = (measured.keys * rate + KEYS_ENOUGH) / (f64::from(present.keys) + KEYS_ENOUGH);
                    share.clamp(1.0 / OFF_MAX, OFF_MAX)
                }
            } / rate;
            More {
                misses: scale * (its.misses - present.misses),
                cost_us: scale * (its.cost_us - present.cost_us),
                keys: f64::from(present.keys.saturating_sub(its.keys)),
            }
        };
        let mut more: Vec<More> = self.measured.iter().enumerate().map(of_partition).collect();
        if CACHES[cache].0 < PRESENT {
            lean(&mut more, &self.measured, rate);
        }
        more
    }

    fn expected(&self, cache: usize, partition: usize, more: More) -> Expected {
        let measured = &self.measured[partition];
        let its = &self.caches[cache].by_partition[partition];
        let used_bytes = its.used_bytes as f64 / (self.rate.rate() * self.share);
        if measured.reads <= 0.0 {
            return Expected { used_bytes, ..Expected::default() };
        }
        let unanswered = ((measured.misses - measured.answered) / measured.reads).clamp(0.0, 1.0);
        let lost_us = measured.miss_us + more.cost_us;
        Expected {
            used_bytes,
            miss_ratio: ((measured.misses + more.misses) / measured.reads).clamp(unanswered, 1.0),
            lost_us_per_second: (lost_us / self.seconds.max(1e-6)).max(0.0),
        }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let of_cache = |small: &Small| {
            small.held.memory_bytes()
                + small.by_partition.capacity() * size_of::<Account>()
                + small.ages.memory_bytes()
                + small.candidates.memory_bytes()
                + size_of::<Small>()
        };
        self.caches.iter().map(of_cache).sum::<usize>() + self.known.memory_bytes()
    }
}

/// What partitions miss more leans on what all do, as far as they differ by no more than chance (James and Stein,
/// 1961): where each of many has few sampled keys, and all are alike, each is expected to miss as all do.
fn lean(more: &mut [More], measured: &[Measured], rate: f64) {
    let mut known: Vec<(&mut More, f64)> = more
        .iter_mut()
        .zip(measured)
        .map(|(more, measured)| (more, measured.reads))
        .filter(|(more, reads)| *reads > 0.0 && more.keys > 0.0)
        .collect();
    if known.len() < ALIKE_FROM {
        return;
    }
    let n = known.len() as f64;
    let sum = |of: fn(&(&mut More, f64)) -> f64| known.iter().map(of).sum::<f64>();
    let mean = sum(|(more, _)| more.misses) / sum(|(_, reads)| *reads);
    let ratios = || known.iter().map(|(more, reads)| (more.misses / reads, more.keys));
    let variance = ratios().map(|(ratio, _)| (ratio - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // That of the number of keys by which two caches differ, as of so many drawn by chance.
    let by_chance = ratios().map(|(ratio, keys)| ratio.powi(2) * (1.0 - rate) / keys).sum::<f64>() / n;
    let part = ((n - 3.0) / (n - 1.0) * by_chance / variance.max(f64::MIN_POSITIVE)).min(1.0);
    for (more, reads) in known.iter_mut().filter(|(more, _)| more.misses > 0.0) {
        let factor = 1.0 + part * (mean * *reads / more.misses - 1.0);
        let factor = factor.clamp(1.0 / OFF_MAX, OFF_MAX);
        more.misses *= factor;
        more.cost_us *= factor;
    }
}

/// How that cache ranks, where `in_force` does in the server.
fn ranker<'a>(
    cache: usize,
    ages: &'a GreedyAges,
    (in_force, table, now): (Ranking, &'a DensityTable, u64),
) -> Ranker<'a> {
    Ranker { ranking: CACHES[cache].1.ranking(in_force), table, ages, now }
}

/// What of so many bytes is the sample's.
fn scaled(bytes: u64, rate: SampleRate) -> u64 {
    if bytes == u64::MAX { bytes } else { (bytes as f64 * rate.rate()) as u64 }
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::*;
    use crate::units::KeyHash;

    const SIZE: u32 = 10;

    fn capacities(present_bytes: u64) -> [u64; SCALES.len()] {
        SCALES.map(|scale| (scale * present_bytes as f64) as u64)
    }

    /// `n` reads of `keys` by recency, in windows of 10,000, at `rate`; what is expected at the end. What an LRU of
    /// the present size would miss is measured.
    fn run(rate: f64, present_bytes: u64, n: u64, keys: impl Fn(&mut Random) -> (u16, u64)) -> (Sizing, Expectations) {
        let mut sizing = Sizing::new(SampleRate::new(rate).unwrap(), 100, 3);
        let mut real = Sizing::new(SampleRate::ALL, 100, 5);
        let table = DensityTable::default();
        let mut random = Random::new(7);
        let mut expectations = Expectations::default();
        let mut measured = [Measured::default(); 8];
        for caches in [&mut sizing, &mut real] {
            caches.set_capacities(capacities(present_bytes), Vec::new(), (Ranking::Idle, &table, 0));
        }
        for now in 0..n {
            let (partition, key) = keys(&mut random);
            let key = KeyHash::of_number(u64::from(partition) << 32 | key);
            let access = Access { penalty_us: 100.0, ..Access::read(key, SIZE) };
            let shown = (now, History::default().accessed(0, 0, 1e-6).feature(0), u64::MAX);
            let partition = PartitionId(partition);
            let its = |real: &Sizing| {
                real.caches[PRESENT_CACHE].by_partition.get(partition.index()).copied().unwrap_or_default()
            };
            let before = its(&real).misses;
            real.is_full = true;
            real.record(&access, (partition, false), shown, (Ranking::Idle, &table));
            let is_miss = its(&real).misses > before;
            let seen = &mut measured[partition.index()];
            seen.reads += 1.0;
            seen.misses += f64::from(u8::from(is_miss));
            (seen.answered, seen.miss_us) = (seen.misses, 100.0 * seen.misses);
            seen.keys = its(&real).keys.into();
            sizing.record(&access, (partition, is_miss), shown, (Ranking::Idle, &table));
            if now % 10_000 == 9_999 {
                expectations = sizing.end_window(&measured, 2.0);
                sizing.set_capacities(capacities(present_bytes), Vec::new(), (Ranking::Idle, &table, now));
                measured = [Measured::default(); 8];
            }
        }
        (sizing, expectations)
    }

    fn check_books(sizing: &Sizing) {
        let held_by = |place| sizing.caches.iter().filter(|small| small.held.has(place)).count();
        let is_known = |place| held_by(place) == usize::from(sizing.known[place].n_held) && held_by(place) > 0;
        assert!(sizing.known.places().all(is_known));
        for small in &sizing.caches {
            let held = || sizing.known.places().filter(|&place| small.held.has(place));
            let sizes: u64 = held().map(|place| u64::from(sizing.known[place].size_bytes)).sum();
            let by_partition: u64 = small.by_partition.iter().map(|account| account.used_bytes).sum();
            assert_eq!((small.used_bytes, by_partition, small.by_tenant.iter().sum()), (sizes, sizes, sizes));
            assert!(small.used_bytes <= small.capacity_bytes);
            assert_eq!(held().count(), small.held.len());
        }
    }

    /// Keys drawn alike out of 2,000, room for 1,000: a cache of any part of them misses the rest. A sample of a
    /// quarter says the same.
    #[test]
    fn equals_are_missed_by_what_does_not_fit() {
        for rate in [1.0, 0.25] {
            let (sizing, expectations) = run(rate, 1_000 * u64::from(SIZE), 200_000, |random| (0, random.below(2_000)));
            check_books(&sizing);
            for (scale, expected) in SCALES.iter().zip(&expectations.by_size) {
                let (wanted, told) = ((1.0 - scale / 2.0).max(0.0), expected[0]);
                assert!((told.miss_ratio - wanted).abs() < 0.02, "{rate} {scale}: {told:?}");
                // 5,000 reads a second, 100 µs a miss.
                let lost = 5_000.0 * 100.0 * wanted;
                assert!((told.lost_us_per_second - lost).abs() < 0.04 * 500_000.0, "{rate} {scale}: {told:?}");
            }
            assert!((expectations.reads_per_second[0] - 5_000.0).abs() < 1.0);
        }
    }

    /// Eight partitions alike, of which the sample has some fifty keys each: what each would miss under half the memory
    /// is told of them nearly as of all.
    #[test]
    fn partitions_alike_are_told_alike() {
        let keys = |random: &mut Random| (random.below(8) as u16, random.below(500));
        let (_, expectations) = run(0.1, 2_000 * u64::from(SIZE), 400_000, keys);
        let [half, present] = [1, PRESENT].map(|size| &expectations.by_size[size]);
        let more: Vec<f64> =
            half.iter().zip(present).map(|(half, present)| half.miss_ratio - present.miss_ratio).collect();
        let (least, most) = more.iter().fold((1.0_f64, 0.0_f64), |(least, most), &one| (least.min(one), most.max(one)));
        assert!(least > 0.23 && most < 0.27 && most - least < 0.02, "{more:?}");
    }

    /// Of the two caches of a size the one that misses less counts, whichever ranking is in force.
    #[test]
    fn of_two_rankings_the_cheaper_is_expected() {
        let rankings = |by: By| [Ranking::Density, Ranking::Steady, Ranking::Idle].map(|in_force| by.ranking(in_force));
        assert_eq!(rankings(By::InForce), [Ranking::Density, Ranking::Steady, Ranking::Idle]);
        assert_eq!(rankings(By::NotSteady), [Ranking::Density, Ranking::Density, Ranking::Idle]);
        assert_eq!(rankings(By::Steady), [Ranking::Steady; 3]);
        let (mut sizing, _) = run(1.0, 5_000, 40_000, |random| (0, random.below(1_000)));
        let half = (0..CACHES.len()).filter(|&cache| SCALES[CACHES[cache].0] == 0.5);
        let told = half.map(|dear| {
            sizing.forget_counts();
            for cache in 0..CACHES.len() {
                let misses = if cache == dear { 900.0 } else { 600.0 };
                let account = &mut sizing.caches[cache].by_partition[0];
                (account.misses, account.cost_us) = (misses, 100.0 * misses);
            }
            let measured = Measured { reads: 1_000.0, misses: 600.0, answered: 600.0, miss_us: 60_000.0, keys: 0.0 };
            let expected = sizing.end_window(&[measured], 1.0).by_size[1][0];
            (expected.miss_ratio, expected.lost_us_per_second)
        });
        assert_eq!(told.collect::<Vec<_>>(), [(0.6, 60_000.0); 2]);
    }

    /// A partition of which the sample has a quarter more keys than there are for its rate misses that much less more.
    #[test]
    fn what_is_missed_more_is_of_as_many_keys_as_there_are() {
        let (mut sizing, _) = run(1.0, 5_000, 40_000, |random| (0, random.below(1_000)));
        let told = [500.0, 400.0, 0.0].map(|keys| {
            sizing.forget_counts();
            for (small, (size, _)) in sizing.caches.iter_mut().zip(CACHES) {
                let account = &mut small.by_partition[0];
                (account.misses, account.keys) = (if SCALES[size] < 1.0 { 900.0 } else { 600.0 }, 500);
            }
            let measured = Measured { reads: 1_000.0, misses: 600.0, answered: 600.0, miss_us: 60_000.0, keys };
            sizing.end_window(&[measured], 1.0).by_size[1][0].miss_ratio
        });
        let wanted = [0.9, 0.6 + 0.3 * 420.0 / 520.0, 0.6 + 0.3 / OFF_MAX];
        assert!(told.iter().zip(wanted).all(|(told, wanted)| (told - wanted).abs() < 1e-9), "{told:?} {wanted:?}");
    }

    /// Reads of 2,000 keys, drawn alike, every other a hundred times as dear, by GDSF; what each kind misses in the
    /// present size's cache, of which the server evicts that share by itself.
    fn misses_by_price(share_of_server: f64) -> [f64; 2] {
        let mut sizing = Sizing::new(SampleRate::ALL, 100, 3);
        let table = DensityTable::default();
        sizing.set_capacities(capacities(5_000), Vec::new(), (Ranking::Greedy, &table, 0));
        sizing.set_share_of_server(share_of_server);
        sizing.is_full = true;
        let mut random = Random::new(7);
        for now in 0..60_000 {
            let (number, price) = (random.below(1_000), now % 2);
            let key = KeyHash::of_number(number << 1 | price);
            let access = Access { penalty_us: [10.0, 1_000.0][price as usize], ..Access::read(key, SIZE) };
            let shown = (now, History::default().accessed(0, 0, 1e-6).feature(0), u64::MAX);
            sizing.record(&access, (PartitionId(price as u16), true), shown, (Ranking::Greedy, &table));
        }
        [0, 1].map(|partition| sizing.caches[PRESENT_CACHE].by_partition[partition].misses)
    }

    /// By the ranking the dear stay; what the server evicts it takes from both alike.
    #[test]
    fn the_servers_share_goes_by_its_choice() {
        let [cheap, dear] = misses_by_price(0.0);
        assert!(dear < 0.6 * cheap, "{dear} {cheap}");
        let [cheap, dear] = misses_by_price(1.0);
        assert!((dear / cheap - 1.0).abs() < 0.1, "{dear} {cheap}");
    }

    /// A key that is met for the first time, as after the rate was raised, is no miss of a cache as large as the
    /// server's, or larger, where the server has it.
    #[test]
    fn what_the_server_has_is_no_miss_of_larger_caches() {
        let (mut sizing, _) = run(1.0, 5_000, 40_000, |random| (0, random.below(1_000)));
        let table = DensityTable::default();
        for is_miss in [false, true] {
            sizing.forget_counts();
            let access = Access::read(KeyHash::of_number(1 << 40 | u64::from(is_miss)), SIZE);
            let shown = (40_000, History::default().accessed(0, 0, 1e-6).feature(0), u64::MAX);
            sizing.record(&access, (PartitionId(0), is_miss), shown, (Ranking::Idle, &table));
            for (small, (size, _)) in sizing.caches.iter().zip(CACHES) {
                assert_eq!(small.by_partition[0].misses, f64::from(u8::from(is_miss || size < PRESENT)));
            }
        }
    }

    /// A tenant that is guaranteed all it needs misses nothing at any size that holds it, whatever the other does.
    #[test]
    fn bounds_hold_at_every_size() {
        let mut sizing = Sizing::new(SampleRate::ALL, 100, 3);
        let owner = |tenant, bytes_min| Owner { tenant, bytes_min, bytes_max: u64::MAX };
        let capped = Owner { tenant: 2, bytes_min: 0, bytes_max: 500 };
        let table = DensityTable::default();
        let owners = vec![owner(0, 1_000), owner(1, 0), capped];
        sizing.set_capacities(capacities(8_000), owners, (Ranking::Idle, &table, 0));
        let mut random = Random::new(7);
        for now in 0..60_000_u64 {
            let partition = now % 3;
            let number = if partition == 0 { random.below(100) } else { random.below(4_000) };
            let access = Access::read(KeyHash::of_number(partition << 32 | number), SIZE);
            let shown = (now, History::default().accessed(0, 0, 1e-6).feature(0), u64::MAX);
            sizing.record(&access, (PartitionId(partition as u16), true), shown, (Ranking::Idle, &table));
            if now == 30_000 {
                sizing.is_full = true;
            }
        }
        check_books(&sizing);
        for small in &sizing.caches {
            assert_eq!((small.by_partition[0].used_bytes, small.by_partition[0].misses), (1_000, 0.0));
            assert!(small.by_partition[2].used_bytes <= 600 && small.by_partition[1].misses > 1_000.0);
        }
    }

    /// Keys that come once each: the rate is lowered before there are more than places have numbers. At a hundredth of
    /// it the memory is given back.
    #[test]
    fn keys_are_no_more_than_so_many_and_few_take_little() {
        let mut sizing = Sizing::new(SampleRate::ALL, 100, 3);
        let table = DensityTable::default();
        sizing.set_capacities([u64::MAX / 8; SCALES.len()], Vec::new(), (Ranking::Idle, &table, 0));
        for now in 0..80_000 {
            let access = Access::read(KeyHash::of_number(now), SIZE);
            let shown = (now, History::default().accessed(0, 0, 1e-6).feature(0), u64::MAX);
            sizing.record(&access, (PartitionId(0), false), shown, (Ranking::Idle, &table));
            assert!(sizing.keys() <= KEYS_MAX);
        }
        check_books(&sizing);
        assert!(sizing.keys() > KEYS_MAX / 2 && sizing.rate() < SampleRate::ALL);
        let full = (sizing.keys(), sizing.memory_bytes());
        assert!(full.1 < full.0 * BYTES_PER_KEY as usize, "{full:?}");
        sizing.set_rate(SampleRate::new(sizing.rate().rate() / 100.0).unwrap());
        check_books(&sizing);
        assert!(sizing.keys() > full.0 / 200 && sizing.memory_bytes() < full.1 / 20, "{}", sizing.memory_bytes());
    }

    /// At half the rate half of the keys are left, at more the caches fill before they count again.
    #[test]
    fn another_rate_keeps_the_books_and_what_was_deleted_or_expired_is_gone() {
        let (mut sizing, _) = run(1.0, 5_000, 40_000, |random| (0, random.below(1_000)));
        let before = sizing.keys();
        sizing.set_rate(SampleRate::new(0.5).unwrap());
        check_books(&sizing);
        assert!((0.4..0.6).contains(&(sizing.keys() as f64 / before as f64)) && sizing.is_full);
        sizing.set_rate(SampleRate::ALL);
        assert!(!sizing.is_full && sizing.end_window(&[], 1.0).by_size.is_empty());
        let table = DensityTable::default();
        let shown = |now, expires| (now, History::default().accessed(0, 0, 1e-6).feature(0), expires);
        let key = KeyHash::of_number(1 << 40);
        let mut record = |op, now, expires| {
            let access = Access { op, ..Access::read(key, SIZE) };
            sizing.record(&access, (PartitionId(0), false), shown(now, expires), (Ranking::Idle, &table));
            check_books(&sizing);
            sizing.known.find(key).is_some()
        };
        assert_eq!([record(Op::Write, 50_000, 50_010), record(Op::Delete, 50_001, 0)], [true, false]);
        assert!(record(Op::Write, 50_002, 50_010));
        assert!(record(Op::Read, 60_000, 70_000), "missed and filled again");
        assert_eq!(sizing.known[sizing.known.find(key).unwrap()].subject(60_000).expires, 70_000);
        assert!(sizing.memory_bytes() > 0);
    }

    /// Partitions that miss alike but for chance are told alike, others as they are, and few as they are.
    #[test]
    fn who_differs_by_chance_alone_leans_on_all() {
        const KEYS: f64 = 100.0;
        let apart_by_chance = |random: &mut Random| (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        let leaned = |means: &[f64]| {
            let mut random = Random::new(7);
            let misses = means.iter().map(|mean| mean * (1.0 + apart_by_chance(&mut random) / KEYS.sqrt()));
            let before: Vec<More> = misses.map(|misses| More { misses, cost_us: 50.0 * misses, keys: KEYS }).collect();
            let measured = vec![Measured { reads: 1_000.0, ..Measured::default() }; means.len()];
            let mut after = before.clone();
            lean(&mut after, &measured, 0.01);
            assert!(after.iter().all(|more| (more.cost_us - 50.0 * more.misses).abs() < 1e-6));
            let off = |all: &[More]| {
                let off = all.iter().zip(means).map(|(more, mean)| (more.misses / mean - 1.0).abs());
                off.fold(0.0, f64::max)
            };
            let total = |all: &[More]| all.iter().map(|more| more.misses).sum::<f64>();
            assert!((total(&after) / total(&before) - 1.0).abs() < 1e-6);
            (off(&before), off(&after))
        };
        let (before, after) = leaned(&[200.0; 16]);
        assert!(before > 0.15 && after < before / 2.0, "{before} {after}");
        let differ: Vec<f64> = (0..16).map(|i| if i % 2 == 0 { 100.0 } else { 300.0 }).collect();
        let (before, after) = leaned(&differ);
        assert!(after < 1.1 * before, "{before} {after}");
        let (before, after) = leaned(&[200.0; 3]);
        assert_eq!(before, after);
        // One that has next to no keys in question says nothing of how much of the others is chance.
        let of = |misses, keys| More { misses, cost_us: 0.0, keys };
        let mut more = vec![of(200.0, 300.0), of(30.0, 300.0), of(5.0, 1.0), of(180.0, 300.0)];
        lean(&mut more, &[Measured { reads: 1_000.0, ..Measured::default() }; 4], 0.1);
        assert!((29.0..31.0).contains(&more[1].misses), "{more:?}");
    }
}
