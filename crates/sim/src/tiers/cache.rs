//! A cache in two tiers: the values, their moves, and the background work between turns.
//!
//! What it may know is what the server knows: a key's last access, reuse time, size and tenant when an access or the
//! walk meets it, and the bytes of each tier. The walk meets keys of both tiers in no order (drawn at random here),
//! each is offered to its tier's shortlists (`policy/pools.rs`), and K keys of a tier are met for each that leaves
//! it. Reads leave a value where it is, writes put it into the fast tier, since the server allocates it anew. Once a
//! turn: promotions of what was accessed, then what `tiers/marks.rs` says. Cost: a look-up per access, 48 bytes a
//! value.

use std::collections::VecDeque;

use tenure_core::access::{Access, Op};
use tenure_core::expiry::{ExpiryQueue, expires_us_after};
use tenure_core::model::key_map::KeyMap;
use tenure_core::policy::density::{DensityTable, Feature};
use tenure_core::policy::over_target::OverTarget;
use tenure_core::policy::pools::{Donor, PATIENCE, Pools, next_donor};
use tenure_core::random::Random;
use tenure_core::tiers::division::Division;
use tenure_core::tiers::marks::{FreeSpace, Usage};
use tenure_core::tiers::placed::Placed;
use tenure_core::tiers::placer::{Placer, PlacerConfig, Rule};
use tenure_core::tiers::{Tier, Value};
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId};

use super::learner::{Densities, Tenants};
use super::{Counts, TierConfig};

/// The first window ends after so many requests, each next is twice as long, up to the length that was asked for.
const WINDOW_REQUESTS_MIN: u64 = 1000;
/// The key table's share of the fast tier, of keys of 1 KiB four times as many as there are in it.
const TABLE_SHARE: u64 = 16;
/// Bytes of the table where the fast tier is small.
const TABLE_BYTES_MIN: u64 = 1 << 20;
/// A tenant with less than this of its target has memory to spare.
const SPARE_BELOW: f64 = 0.5;
/// The search for a value that may leave is given up after so many rounds of the walk; the next turn tries again.
const ROUNDS_MAX: usize = 8;
/// No time between two requests: there was only one.
const ONCE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Item {
    key: KeyHash,
    last_access: u64,
    /// Requests between its last two, or [`ONCE`].
    reuse: u64,
    expires_us: u64,
    size_bytes: u32,
    penalty_us: f32,
    partition: PartitionId,
    placed: Placed,
}

#[derive(Clone, Copy, Debug)]
struct Victim {
    key: KeyHash,
    last_access: u64,
}

/// Where a value that leaves its tier goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Down,
    Out,
}

/// What is used, in bytes.
#[derive(Debug)]
struct Used {
    /// By tier, then partition.
    of: [[u64; PARTITIONS_MAX]; 2],
    /// By tier.
    total: [u64; 2],
}

/// What was learned of densities, where the system goes by them.
#[derive(Debug)]
struct Learned {
    densities: Option<Densities>,
    /// Where it doesn't.
    none: DensityTable,
}

impl Learned {
    fn feature(&self, item: &Item) -> Feature {
        self.densities.as_ref().map(|d| d.feature(item.key, item.penalty_us)).unwrap_or_default()
    }

    fn table(&self) -> &DensityTable {
        self.densities.as_ref().map_or(&self.none, |densities| &densities.table)
    }
}

/// How the fast tier is divided, where it is.
#[derive(Debug)]
struct Divided {
    tenants: Option<Tenants>,
    /// By tenant, in bytes.
    targets: Vec<u64>,
}

/// Accesses so far, and at which of them the window ends.
#[derive(Debug)]
struct Time {
    now: u64,
    window_ends: u64,
}

/// The cache. See the file's opening.
#[derive(Debug)]
pub struct TierCache {
    config: TierConfig,
    items: Vec<Item>,
    place_of: KeyMap<u32>,
    expiries: ExpiryQueue,
    used: Used,
    placer: Placer,
    space: FreeSpace,
    pools: [Pools<Victim>; 2],
    /// To go up at the end of the turn.
    candidates: Vec<KeyHash>,
    /// By partition, who entered since and wasn't met yet, the oldest first.
    newcomers: Vec<VecDeque<Victim>>,
    learned: Learned,
    division: Divided,
    random: Random,
    time: Time,
    counts: Counts,
}

impl TierCache {
    /// An empty cache.
    pub fn new(config: TierConfig) -> Self {
        let (rule, points) = (config.system.rule(), config.points);
        let is_divided = config.division != Division::Free;
        let pools = || Pools::new(config.sample_size.clamp(1, 64) as usize);
        let table_bytes = (config.fast_bytes / TABLE_SHARE).max(TABLE_BYTES_MIN);
        TierCache {
            items: Vec::new(),
            place_of: KeyMap::default(),
            expiries: ExpiryQueue::default(),
            used: Used { of: [[0; PARTITIONS_MAX]; 2], total: [0; 2] },
            placer: Placer::new(PlacerConfig { rule, points, speeds: config.speeds, is_divided }),
            space: FreeSpace::new(config.marks, config.overflow),
            pools: [pools(), pools()],
            candidates: Vec::new(),
            newcomers: Vec::new(),
            learned: Learned {
                densities: (rule == Rule::Worth).then(|| Densities::new(table_bytes)),
                none: DensityTable::default(),
            },
            division: Divided { tenants: is_divided.then(Tenants::default), targets: Vec::new() },
            random: Random::new(config.seed),
            time: Time { now: 0, window_ends: WINDOW_REQUESTS_MIN.min(config.window_requests) },
            counts: Counts::default(),
            config,
        }
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Begins to count anew; what is cached stays.
    pub fn forget_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// Bytes in a tier.
    pub fn used_bytes(&self, tier: Tier) -> u64 {
        self.used.total[tier.index()]
    }

    /// Bytes of one partition in a tier.
    pub fn used_bytes_of(&self, tier: Tier, partition: PartitionId) -> u64 {
        self.used.of[tier.index()][partition.index()]
    }

    /// Where a key's value lies; `None` where it isn't there.
    pub fn tier_of(&self, key: KeyHash) -> Option<Tier> {
        self.place_of.get(&key).map(|&place| self.items[place as usize].placed.tier())
    }

    /// Values in the cache.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True where it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// One access.
    pub fn access(&mut self, access: &Access) {
        self.expire(access.time_us);
        if access.op == Op::Delete {
            if let Some(&place) = self.place_of.get(&access.key) {
                self.remove(place as usize);
            }
            self.learn(access);
            return;
        }
        self.time.now += 1;
        self.counts.requests += 1;
        self.counts.reads += u64::from(access.op == Op::Read);
        match self.place_of.get(&access.key) {
            Some(&place) => self.hit(place as usize, access),
            None => self.miss(access),
        }
        self.learn(access);
        if self.time.now.is_multiple_of(self.config.turn_requests.max(1)) {
            self.end_turn();
        }
        if self.time.now >= self.time.window_ends {
            self.end_window();
        }
    }

    fn learn(&mut self, access: &Access) {
        if let Some(densities) = &mut self.learned.densities {
            densities.observe(access, self.time.now);
        }
        if let Some(tenants) = &mut self.division.tenants {
            tenants.observe(access, partition_of(access));
        }
    }

    fn expire(&mut self, now_us: u64) {
        while let Some((key, expires_us)) = self.expiries.pop_expired(now_us) {
            if let Some(&place) = self.place_of.get(&key)
                && self.items[place as usize].expires_us == expires_us
            {
                self.remove(place as usize);
            }
        }
    }

    fn account(&mut self, item: &Item, add: bool) {
        let (tier, size) = (item.placed.tier().index(), u64::from(item.size_bytes));
        let (part, all) = (&mut self.used.of[tier][item.partition.index()], &mut self.used.total[tier]);
        (*part, *all) = if add { (*part + size, *all + size) } else { (*part - size, *all - size) };
    }

    fn remove(&mut self, place: usize) -> Item {
        let item = self.items.swap_remove(place);
        self.place_of.remove(&item.key);
        if let Some(moved) = self.items.get(place) {
            self.place_of.insert(moved.key, place as u32);
        }
        self.account(&item, false);
        item
    }

    /// Gives a value another place, size or owner.
    fn change(&mut self, place: usize, change: impl FnOnce(&mut Item)) {
        let before = self.items[place];
        change(&mut self.items[place]);
        let after = self.items[place];
        self.account(&before, false);
        self.account(&after, true);
    }

    fn hit(&mut self, place: usize, access: &Access) {
        let found = self.items[place];
        let (tier, reuse) = (found.placed.tier(), self.time.now - found.last_access);
        self.placer.accessed(found.partition, tier, reuse);
        let expires_us = expires_us_after(access, Some(found.expires_us));
        let (clock, is_read) = (self.time.now, access.op == Op::Read);
        self.change(place, |item| {
            item.last_access = clock;
            item.reuse = reuse;
            item.expires_us = expires_us;
            item.size_bytes = access.size_bytes;
            item.penalty_us = access.penalty_us;
            item.partition = partition_of(access);
            item.placed = if is_read { item.placed.accessed() } else { item.placed.written() };
        });
        if expires_us != found.expires_us {
            self.expiries.push(access.key, expires_us);
        }
        if is_read {
            self.counts.hits[tier.index()] += 1;
            if tier == Tier::Slow {
                self.counts.slow_read_ns += f64::from(self.config.speeds.saved_ns(access.size_bytes));
                self.candidates.push(access.key);
            }
        }
    }

    fn miss(&mut self, access: &Access) {
        self.counts.misses += 1;
        if access.op == Op::Read {
            self.counts.penalty_us += f64::from(access.penalty_us);
        }
        if u64::from(access.size_bytes) > self.config.fast_bytes {
            return;
        }
        let item = Item {
            key: access.key,
            last_access: self.time.now,
            reuse: ONCE,
            expires_us: expires_us_after(access, None),
            size_bytes: access.size_bytes,
            penalty_us: access.penalty_us,
            partition: partition_of(access),
            placed: Placed::default(),
        };
        self.place_of.insert(item.key, self.items.len() as u32);
        self.expiries.push(item.key, item.expires_us);
        self.items.push(item);
        self.account(&item, true);
        self.admit_to_ring(&item);
    }

    fn value(&self, item: &Item) -> Value {
        Value {
            partition: item.partition,
            size_bytes: item.size_bytes,
            idle: self.time.now - item.last_access,
            reuse: (item.reuse != ONCE).then_some(item.reuse),
            feature: self.learned.feature(item),
            placed: item.placed,
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            fast_bytes: self.used.total[0],
            fast_limit_bytes: self.config.fast_bytes,
            slow_bytes: self.used.total[1],
            slow_limit_bytes: self.config.slow_bytes,
        }
    }

    /// Background work: promotions, then what is to go down or out.
    fn end_turn(&mut self) {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.drain(..).for_each(|key| self.promote(key));
        self.candidates = candidates;
        let due = self.space.due(self.usage());
        self.make_room(Tier::Slow, Way::Out, due.evict_slow_bytes);
        self.make_room(Tier::Fast, Way::Out, due.evict_fast_bytes);
        self.make_room(Tier::Fast, Way::Down, due.demote_bytes);
    }

    fn wants_up(&self, value: &Value) -> bool {
        let target = self.division.targets.get(value.partition.index());
        let used = self.used_bytes_of(Tier::Fast, value.partition) as f64;
        let has_spare = self.space.has_spare(self.usage()) || target.is_some_and(|&t| used < SPARE_BELOW * t as f64);
        self.placer.wants_up(value, self.table(), has_spare)
    }

    fn promote(&mut self, key: KeyHash) {
        let Some(&place) = self.place_of.get(&key) else { return };
        let item = self.items[place as usize];
        let size = u64::from(item.size_bytes);
        if item.placed.tier() == Tier::Fast || size > self.config.fast_bytes || !self.wants_up(&self.value(&item)) {
            return;
        }
        let short = (self.used.total[0] + size).saturating_sub(self.config.fast_bytes);
        if short > 0 {
            self.counts.chained += 1;
            self.make_room(Tier::Fast, Way::Down, short);
            if self.used.total[0] + size > self.config.fast_bytes {
                return;
            }
        }
        let Some(&place) = self.place_of.get(&key) else { return };
        self.move_to_other_tier(place as usize);
        self.counts.promotions += 1;
    }

    fn move_to_other_tier(&mut self, place: usize) {
        let item = self.items[place];
        let value = self.value(&item);
        let placed = self.placer.moved(&value);
        self.change(place, |item| item.placed = placed);
        self.counts.moved_bytes += u64::from(item.size_bytes);
        self.counts.move_ns += f64::from(self.config.speeds.move_ns(item.size_bytes));
    }

    /// Lets values leave a tier until `bytes` have, or none is found.
    fn make_room(&mut self, tier: Tier, way: Way, bytes: u64) {
        let enough = self.used.total[tier.index()].saturating_sub(bytes);
        let mut rounds = 0;
        while self.used.total[tier.index()] > enough && rounds < ROUNDS_MAX {
            let Some(place) = self.next_to_leave(tier) else {
                rounds += 1;
                continue;
            };
            let item = self.items[place];
            let value = self.value(&item);
            self.placer.left(&value, self.placer.rank(&value, self.table()));
            if way == Way::Down && self.used.total[1] + u64::from(item.size_bytes) <= self.config.slow_bytes {
                self.move_to_other_tier(place);
                self.counts.demotions += 1;
            } else {
                self.remove(place);
                self.counts.evictions[tier.index()] += 1;
            }
        }
    }

    fn table(&self) -> &DensityTable {
        self.learned.table()
    }

    /// The value that leaves a tier next: the oldest newcomer if that may leave, else of who gives the one that the
    /// placer ranks lowest of those met.
    fn next_to_leave(&mut self, tier: Tier) -> Option<usize> {
        let donor = match tier {
            Tier::Fast => {
                let unlimited = [u64::MAX; PARTITIONS_MAX];
                next_donor(&self.used.of[0], &self.division.targets, &unlimited, OverTarget::default, true)
                    .unwrap_or(Donor::Anyone)
            }
            Tier::Slow => Donor::Anyone,
        };
        if tier == Tier::Fast
            && let Some(place) = self.oldest_newcomer(donor)
        {
            return Some(place);
        }
        loop {
            if let Some(place) = self.meet(tier, donor) {
                return Some(place);
            }
            let pools = &mut self.pools[tier.index()];
            let victim = pools.take(donor).or_else(|| pools.take(Donor::Anyone))?;
            // A candidate that was accessed since, has moved or is gone is no victim.
            let place = self.place_of.get(&victim.key).map(|&place| place as usize);
            let is_valid = |&place: &usize| {
                let item = &self.items[place];
                item.last_access == victim.last_access && item.placed.tier() == tier
            };
            if let Some(place) = place.filter(is_valid) {
                return Some(place);
            }
        }
    }

    /// The donor's value that entered first of those not asked for since, if it may leave. Who was accessed leaves
    /// the ring.
    fn oldest_newcomer(&mut self, donor: Donor) -> Option<usize> {
        let ring = match donor {
            Donor::Partition(id) => id.index(),
            Donor::Anyone => (0..self.newcomers.len())
                .filter(|&ring| !self.newcomers[ring].is_empty())
                .min_by_key(|&ring| self.newcomers[ring].front().map(|newcomer| newcomer.last_access))?,
        };
        while let Some(&newcomer) = self.newcomers.get(ring)?.front() {
            let place = self.place_of.get(&newcomer.key).map(|&place| place as usize);
            let place = place.filter(|&place| {
                let item = &self.items[place];
                item.last_access == newcomer.last_access && item.placed == Placed::default()
            });
            if let Some(place) = place {
                let value = self.value(&self.items[place]);
                let may_leave = self.placer.may_leave(&value, self.placer.rank(&value, self.table()));
                self.counts.met += u64::from(may_leave);
                if may_leave {
                    self.newcomers[ring].pop_front();
                }
                return may_leave.then_some(place);
            }
            self.newcomers[ring].pop_front();
        }
        None
    }

    fn admit_to_ring(&mut self, item: &Item) {
        let ring = item.partition.index();
        if self.newcomers.len() <= ring {
            self.newcomers.resize_with(ring + 1, VecDeque::new);
        }
        let ring = &mut self.newcomers[ring];
        if self.config.newcomers > 0 {
            if ring.len() == self.config.newcomers {
                ring.pop_front();
            }
            ring.push_back(Victim { key: item.key, last_access: item.last_access });
        }
    }

    /// The walk, until a value is met that may leave at once, K values of the tier's donor were met, or patience has
    /// run out.
    fn meet(&mut self, tier: Tier, donor: Donor) -> Option<usize> {
        let patience = PATIENCE * self.config.sample_size as usize;
        let mut met = 0;
        for _ in 0..patience {
            if self.items.is_empty() || self.pools[tier.index()].will_do(donor, met) {
                return None;
            }
            self.counts.met += 1;
            let place = self.random.below(self.items.len() as u64) as usize;
            let item = self.items[place];
            let value = self.value(&item);
            let table = self.learned.table();
            self.placer.met(&value, table);
            let rank = self.placer.rank(&value, table);
            let found_in = item.placed.tier();
            met += usize::from(found_in == tier);
            let gives = donor == Donor::Anyone || donor == Donor::Partition(item.partition);
            if found_in == tier && gives && self.placer.may_leave(&value, rank) {
                return Some(place);
            }
            let Item { key, last_access, partition, .. } = item;
            self.pools[found_in.index()].offer(partition, rank, || Victim { key, last_access });
        }
        None
    }

    fn end_window(&mut self) {
        let (clock, window_requests) = (self.time.now, self.config.window_requests);
        if let Some(densities) = &mut self.learned.densities {
            densities.end_window(clock, window_requests);
        }
        if let Some(tenants) = &mut self.division.tenants {
            self.division.targets =
                tenants.divide(self.config.division, self.config.fast_bytes, &self.config.speeds, window_requests);
        }
        self.placer.end_window(clock, self.used.total[0]);
        self.pools.iter_mut().for_each(Pools::clear);
        self.time.window_ends = clock + clock.min(window_requests);
    }
}

/// A tenant is a partition, and all beyond the last share it.
fn partition_of(access: &Access) -> PartitionId {
    PartitionId(access.tenant.0.min(PARTITIONS_MAX as u16 - 1))
}
