//! Which ranking of keys would have cost least: one miniature cache for each, side by side.
//!
//! Source: miniature simulation (Waldspurger et al., ATC'17): keys are sampled by their hash, and a cache of `C`
//! bytes is stood for by one of `C` × rate; pRedis's authors choose between two policies so. Keys fall into sixteen
//! strata by their hash, and what one ranking costs more than another is believed where it is by far more than strata
//! differ by chance: one expensive key may make a window, not a decision. What is learned (density, and density
//! steadied by the long run) is returned to as soon as it is not behind. What is expected of keys that were silent for
//! long can't be told from what was seen: a loop comes round, what has died doesn't. So that is found out here, too:
//! the steady ranking takes part twice, by a table of either kind (`model.rs`). Cost: five small caches' access per
//! sampled access, K scores per eviction; about 150 bytes per sampled key that any of them holds.

use std::sync::Arc;

use super::SAMPLE_SIZE;
use super::candidates::{Candidates, Met};
use super::history::Feature;
use super::model::Tail;
use super::ranking::{GreedyAges, Ranker, Ranking, Subject};
use super::table::DensityTable;
use crate::access::{Access, Op};
use crate::model::key_map::KeyMap;
use crate::random::Random;
use crate::units::KeyHash;

const STRATA: usize = 16;
/// Who takes part. The first are the rankings, in their order; the last looks at what has died with another eye.
const PARTS: [(Ranking, Tail); RIVALS] = [
    (Ranking::Density, Tail::Others),
    (Ranking::Steady, Tail::Others),
    (Ranking::Greedy, Tail::Others),
    (Ranking::Idle, Tail::Others),
    (Ranking::Steady, Tail::Learned),
];
const RIVALS: usize = Ranking::ALL.len() + 1;
/// Room for so many keys more is never given back.
pub(super) const KEYS_KEPT_ROOM_FOR: usize = 256;
/// What a window weighs one window later.
const DECAY: f64 = 0.7;
/// Another ranking must be ahead by this share of the cost…
const GAIN_MIN: f64 = 0.03;
/// … and by so many standard errors.
const ERRORS_MIN: f64 = 3.0;
/// Windows that all caches evicted in before anything is believed: who evicts the cheap first pays at once and is
/// paid later.
const WINDOWS_MIN: u32 = 3;

/// What was learned, with each of [`Tail::ALL`].
pub type Tables = [Arc<DensityTable>; Tail::ALL.len()];

/// The contest. See the file's opening.
#[derive(Clone, Debug)]
pub struct Contest {
    keys: Keys,
    rivals: [Rival; RIVALS],
    chosen: (Ranking, Tail),
    /// Windows in which all have evicted.
    windows: u32,
}

impl Contest {
    /// Empty caches that stand for one of which `capacity_bytes` would be the sample's; `step_ticks` as
    /// [`GreedyAges::new`] has it.
    pub fn new(capacity_bytes: u64, step_ticks: u64, seed: u64) -> Self {
        let rival = |number: usize| Rival {
            part: PARTS[number],
            number,
            capacity_bytes,
            used_bytes: 0,
            held: Vec::new(),
            ages: GreedyAges::growing(step_ticks),
            cost_us: [0.0; STRATA],
            has_evicted: false,
            random: Random::new(seed),
            candidates: Candidates::new(),
        };
        Contest { keys: Keys::default(), rivals: std::array::from_fn(rival), chosen: PARTS[0], windows: 0 }
    }

    /// Takes one access of the sample at `now`; `feature` is what the key has shown with it, `expires` when its value
    /// does, in ticks.
    pub fn record(&mut self, access: &Access, now: u64, feature: Feature, expires: u64, tables: &Tables) {
        let slot = self.keys.slot_of(access.key);
        let Access { size_bytes, penalty_us, .. } = *access;
        let shown = Shown { feature, last: now, size_bytes, penalty_us };
        let before = std::mem::replace(&mut self.keys.slots[slot as usize].shown, shown);
        for rival in &mut self.rivals {
            rival.record(&mut self.keys, slot, access, (now, expires, before.size_bytes), tables);
        }
        self.keys.free_unless_held(slot);
    }

    /// The ranking that another has found is chosen until this one knows better.
    pub fn begin_with(&mut self, ranking: Ranking) {
        self.chosen = (ranking, Tail::Others);
    }

    /// Ends a window: the ranking to evict by until the next ends, and by which table.
    pub fn end_window(&mut self) -> (Ranking, Tail) {
        // A cache that never had to evict says nothing.
        self.windows += u32::from(self.rivals.iter().all(|rival| rival.has_evicted));
        if self.windows > WINDOWS_MIN {
            let own = self.rivals.iter().find(|rival| rival.part == self.chosen).unwrap_or(&self.rivals[0]);
            let ahead = |rival: &Rival| own.gain_of(rival).filter(|_| rival.part != self.chosen);
            let best = self.rivals.iter().filter_map(|rival| Some((ahead(rival)?, rival.part)));
            self.chosen = best.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(self.chosen, |(_, part)| part);
        }
        self.rivals.iter_mut().flat_map(|rival| &mut rival.cost_us).for_each(|cost_us| *cost_us *= DECAY);
        self.chosen
    }

    /// What each ranking's misses have cost in the sample, in µs, older windows less: in the order of [`Ranking::ALL`].
    pub fn costs_us(&self) -> [f64; Ranking::ALL.len()] {
        std::array::from_fn(|i| self.rivals[i].cost_us.iter().sum())
    }

    /// The sample has become smaller: keys that it doesn't take go, and so does `factor` of the capacity.
    pub fn thin(&mut self, takes: impl Fn(KeyHash) -> bool, factor: f64) {
        for rival in &mut self.rivals {
            rival.resize(&mut self.keys, (rival.capacity_bytes as f64 * factor) as u64);
            for place in (0..rival.held.len()).rev() {
                let slot = rival.held[place];
                if !takes(self.keys.slots[slot as usize].key) {
                    rival.remove(&mut self.keys, place);
                    self.keys.free_unless_held(slot);
                }
            }
        }
        self.give_back();
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.rivals.iter().map(Rival::memory_bytes).sum::<usize>()
    }

    /// The caches stand for one of which `capacity_bytes` is the sample's from now on.
    pub fn resize(&mut self, capacity_bytes: u64) {
        self.rivals.iter_mut().for_each(|rival| rival.resize(&mut self.keys, capacity_bytes));
        self.give_back();
    }

    /// Gives back what memory was only needed before the caches became much smaller.
    fn give_back(&mut self) {
        let Contest { keys, rivals, .. } = self;
        rivals.iter_mut().for_each(|rival| shrink(&mut rival.held));
        let n_keys = keys.slots.len() - keys.free.len();
        if keys.slots.capacity() > 2 * n_keys + KEYS_KEPT_ROOM_FOR {
            keys.close_ranks();
            rivals.iter_mut().for_each(|rival| rival.find_again(keys));
        }
    }
}

/// Leaves room for a quarter more, where it is twice what is used and more.
pub(super) fn shrink<T>(list: &mut Vec<T>) {
    if list.capacity() > 2 * list.len() + KEYS_KEPT_ROOM_FOR {
        list.shrink_to(list.len() + list.len() / 4);
    }
}

/// What all caches know of a key alike.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    feature: Feature,
    /// When it was last accessed.
    last: u64,
    size_bytes: u32,
    penalty_us: f32,
}

/// A key's stay in one cache.
#[derive(Clone, Copy, Debug)]
struct Stay {
    expires: u64,
    n_requests: u32,
    /// In the cache's list; [`NOWHERE`] where it isn't there.
    place: u32,
}

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    shown: Shown,
    key: KeyHash,
    stays: [Stay; RIVALS],
}

impl Slot {
    fn is_held(&self) -> bool {
        self.stays.iter().any(|stay| stay.place != NOWHERE)
    }

    #[inline]
    fn subject(&self, rival: usize) -> Subject {
        let Shown { feature, last, size_bytes, penalty_us } = self.shown;
        let Stay { expires, n_requests, .. } = self.stays[rival];
        Subject { feature, last, expires, n_requests, size_bytes, penalty_us }
    }
}

/// The keys that any of the caches holds, once for all: one look-up finds a key in each of them.
#[derive(Clone, Debug, Default)]
struct Keys {
    slots: Vec<Slot>,
    free: Vec<u32>,
    slot_of: KeyMap<u32>,
}

impl Keys {
    /// The slot of a key, a new one where no cache holds it.
    fn slot_of(&mut self, key: KeyHash) -> u32 {
        let Keys { slots, free, slot_of } = self;
        *slot_of.entry(key).or_insert_with(|| {
            let absent = Stay { expires: 0, n_requests: 0, place: NOWHERE };
            let new = Slot { shown: Shown::default(), key, stays: [absent; RIVALS] };
            match free.pop() {
                Some(slot) => {
                    slots[slot as usize] = new;
                    slot
                }
                None => {
                    slots.push(new);
                    slots.len() as u32 - 1
                }
            }
        })
    }

    #[inline]
    fn free_unless_held(&mut self, slot: u32) {
        let Slot { key, .. } = self.slots[slot as usize];
        if !self.slots[slot as usize].is_held() {
            self.slot_of.remove(&key);
            self.free.push(slot);
        }
    }

    /// Moves the slots in use together. Who has their numbers has to find them again.
    fn close_ranks(&mut self) {
        self.slots.retain(Slot::is_held);
        self.slots.shrink_to(self.slots.len() + self.slots.len() / 4);
        self.free = Vec::new();
        self.slot_of.shrink_to(self.slots.len() + self.slots.len() / 4);
        for (number, slot) in self.slots.iter().enumerate() {
            self.slot_of.insert(slot.key, number as u32);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<u32>()
            + self.slot_of.memory_bytes()
    }
}

/// One ranking's cache.
#[derive(Clone, Debug)]
struct Rival {
    /// How it ranks.
    part: (Ranking, Tail),
    /// Its place in [`PARTS`].
    number: usize,
    capacity_bytes: u64,
    used_bytes: u64,
    /// Slots of the keys that it holds.
    held: Vec<u32>,
    ages: GreedyAges,
    /// What its misses have cost.
    cost_us: [f64; STRATA],
    has_evicted: bool,
    random: Random,
    candidates: Candidates,
}

impl Rival {
    /// What share of its own cost `other` would have saved; `None` where that may be chance.
    fn gain_of(&self, other: &Rival) -> Option<f64> {
        let total_us: f64 = self.cost_us.iter().sum();
        let mut differences = [0.0; STRATA];
        for (difference, (own, other)) in differences.iter_mut().zip(self.cost_us.iter().zip(&other.cost_us)) {
            *difference = own - other;
        }
        let mean = differences.iter().sum::<f64>() / STRATA as f64;
        if other.part.0.is_learned() {
            return (mean > 0.0).then_some(mean * STRATA as f64 / total_us);
        }
        let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (STRATA - 1) as f64;
        let error = (variance / STRATA as f64).sqrt();
        let gain = mean * STRATA as f64 / total_us;
        (gain > GAIN_MIN && mean > ERRORS_MIN * error).then_some(gain)
    }

    /// Takes one access at `now`; of the key's slot all but its stay here is as it is after the access, before which
    /// its value had so many bytes.
    fn record(
        &mut self,
        keys: &mut Keys,
        slot: u32,
        access: &Access,
        (now, expires, bytes_before): (u64, u64, u32),
        tables: &Tables,
    ) {
        let held = keys.slots[slot as usize].stays[self.number];
        if held.place != NOWHERE {
            self.take_out(keys, held.place as usize, bytes_before);
        }
        if access.op == Op::Delete {
            return;
        }
        // Of a value that is there, a read leaves the expiry as it was.
        let alive = Some(held).filter(|held| held.place != NOWHERE && held.expires > now);
        if alive.is_none() && access.op == Op::Read {
            self.cost_us[access.key.0 as usize % STRATA] += f64::from(access.penalty_us);
        }
        let expires = alive.filter(|_| access.op == Op::Read).map_or(expires, |held| held.expires);
        let n_requests = alive.map_or(1, |held| held.n_requests.saturating_add(1));
        let size_bytes = u64::from(access.size_bytes);
        if size_bytes > self.capacity_bytes {
            return;
        }
        while self.used_bytes + size_bytes > self.capacity_bytes {
            self.evict(keys, now, &tables[self.part.1 as usize]);
        }
        keys.slots[slot as usize].stays[self.number] = Stay { expires, n_requests, place: self.held.len() as u32 };
        self.used_bytes += size_bytes;
        self.held.push(slot);
        // A newcomer that is worth less than what was met goes before it.
        if alive.is_none() {
            let (ranking, tail) = self.part;
            let ranker = Ranker { ranking, table: &tables[tail as usize], ages: &self.ages, now };
            let score = ranker.score(&keys.slots[slot as usize].subject(self.number));
            self.candidates.offer(score, Met { place: slot, last: now });
        }
    }

    /// Evicts one, as the server would choose it.
    fn evict(&mut self, keys: &mut Keys, now: u64, table: &DensityTable) {
        let Rival { part: (ranking, _), number, held, ages, random, candidates, .. } = self;
        let ranker = Ranker { ranking: *ranking, table, ages, now };
        let slots = &keys.slots;
        let draw = || {
            let place = held[random.below(held.len() as u64) as usize];
            let subject = slots[place as usize].subject(*number);
            Some((ranker.score(&subject), Met { place, last: subject.last }))
        };
        let is_as_met = |met: &Met| {
            let slot = &slots[met.place as usize];
            slot.stays[*number].place != NOWHERE && slot.shown.last == met.last
        };
        let slot = candidates.next(SAMPLE_SIZE as usize, draw, is_as_met).unwrap_or(held[0]);
        // No other ranking looks at ages once there are densities.
        if *ranking == Ranking::Greedy || table.is_empty() {
            ages.evicted(&keys.slots[slot as usize].subject(*number), now);
        }
        let place = keys.slots[slot as usize].stays[*number].place;
        self.remove(keys, place as usize);
        keys.free_unless_held(slot);
        self.has_evicted = true;
    }

    fn remove(&mut self, keys: &mut Keys, place: usize) {
        let size_bytes = keys.slots[self.held[place] as usize].shown.size_bytes;
        self.take_out(keys, place, size_bytes);
    }

    fn take_out(&mut self, keys: &mut Keys, place: usize, size_bytes: u32) {
        let gone = self.held.swap_remove(place);
        keys.slots[gone as usize].stays[self.number].place = NOWHERE;
        self.used_bytes -= u64::from(size_bytes);
        if let Some(&moved) = self.held.get(place) {
            keys.slots[moved as usize].stays[self.number].place = place as u32;
        }
    }

    fn memory_bytes(&self) -> usize {
        self.held.capacity() * size_of::<u32>() + self.ages.memory_bytes() + self.candidates.memory_bytes()
    }

    fn resize(&mut self, keys: &mut Keys, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        while self.used_bytes > capacity_bytes {
            let place = self.random.below(self.held.len() as u64) as usize;
            let slot = self.held[place];
            self.remove(keys, place);
            keys.free_unless_held(slot);
        }
    }

    /// The slots have other numbers than before.
    fn find_again(&mut self, keys: &Keys) {
        self.candidates.clear();
        for (number, slot) in keys.slots.iter().enumerate() {
            if let Some(held) = self.held.get_mut(slot.stays[self.number].place as usize) {
                *held = number as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::super::model::{DensityConfig, DensityModel};
    use super::*;

    /// 20,000 reads of `keys` at one price with room for fifty. `table_of_lies` teaches that most accesses are writes.
    fn run(keys: impl Fn(u64, &mut Random) -> u64, table_of_lies: bool) -> (Contest, Ranking) {
        let mut contest = Contest::new(500, 100, 1);
        let mut histories: KeyMap<(u64, History)> = KeyMap::default();
        let (mut model, mut random) = (DensityModel::new(DensityConfig::default()).unwrap(), Random::new(5));
        let (mut tables, mut ranking) = (Tables::default(), Ranking::Density);
        for now in 0..20_000_u64 {
            let access = Access { penalty_us: 100.0, ..Access::read(KeyHash::of_number(keys(now, &mut random)), 10) };
            let (last, history) = histories.get(&access.key).copied().unwrap_or_default();
            let history = history.accessed(now - last, now as u32, 2e-4);
            histories.insert(access.key, (now, history));
            let op = if table_of_lies { Op::Write } else { Op::Read };
            let feature = history.feature(0);
            model.record(access.key, if now % 7 == 0 { Op::Read } else { op }, now, feature);
            contest.record(&access, now, feature, u64::MAX, &tables);
            if now % 2_000 == 1_999 {
                tables = model.end_window_with(now, 1 << 20, Tail::ALL).map(Arc::new);
                (ranking, _) = contest.end_window();
            }
        }
        (contest, ranking)
    }

    #[test]
    fn a_loop_is_for_density_and_everything_is_accounted_for() {
        let (contest, ranking) = run(|now, _| now % 60, false);
        assert_eq!(ranking, Ranking::Density);
        let [density, _, _, idle] = contest.costs_us();
        assert!(density < 0.7 * idle, "{density} {idle}");
        for rival in &contest.rivals {
            let slots = || rival.held.iter().map(|&slot| &contest.keys.slots[slot as usize]);
            assert_eq!(rival.used_bytes, slots().map(|slot| u64::from(slot.shown.size_bytes)).sum::<u64>());
            assert!(slots().enumerate().all(|(i, slot)| slot.stays[rival.number].place == i as u32));
            assert!(slots().all(|slot| contest.keys.slot_of.get(&slot.key).is_some()));
        }
    }

    /// Equals are never told apart by chance: one ranking against itself never wins.
    #[test]
    fn a_rival_is_not_ahead_of_itself() {
        let (contest, _) = run(|_, random| random.below(100), false);
        let own = &contest.rivals[2];
        assert_eq!(own.gain_of(own), None);
        let mut ahead = own.clone();
        ahead.cost_us[0] *= 0.5;
        assert_eq!(own.gain_of(&ahead), None, "one stratum alone may be one key");
        ahead.cost_us.iter_mut().for_each(|cost_us| *cost_us *= 0.9);
        assert!(own.gain_of(&ahead).is_some());
    }

    #[test]
    fn what_a_large_cache_took_comes_back() {
        let mut contest = Contest::new(1 << 20, 100, 1);
        let feature = History::default().accessed(0, 0, 1e-6).feature(0);
        for key in 0..20_000 {
            let access = Access { penalty_us: 100.0, ..Access::read(KeyHash::of_number(key), 10) };
            contest.record(&access, key, feature, u64::MAX, &Tables::default());
        }
        let large = contest.memory_bytes();
        contest.resize(1 << 14);
        assert!(contest.memory_bytes() < large / 8, "{large} bytes before, now {}", contest.memory_bytes());
    }

    #[test]
    fn a_thinner_sample_has_smaller_caches() {
        let (mut contest, _) = run(|_, random| random.below(100), true);
        contest.thin(|key| key.0 % 2 == 0, 0.5);
        for rival in &contest.rivals {
            let key = |&slot: &u32| contest.keys.slots[slot as usize].key;
            assert!(rival.used_bytes <= 250 && rival.held.iter().all(|slot| key(slot).0 % 2 == 0));
        }
    }
}
