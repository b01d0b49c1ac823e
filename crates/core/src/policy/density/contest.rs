//! Which ranking of keys would have cost least: one miniature cache for each, side by side.
//!
//! Source: miniature simulation (Waldspurger et al., ATC'17): keys are sampled by their hash, and a cache of `C`
//! bytes is stood for by one of `C` × rate; pRedis's authors choose between two policies so. Keys fall into sixteen
//! strata by their hash, and what one ranking costs more than another is believed where it is by far more than strata
//! differ by chance: one expensive key may make a window, not a decision. What is learned (density, and density
//! steadied by the long run) is returned to as soon as it is not behind. What is expected of keys that were silent for
//! long can't be told from what was seen: a loop comes round, what has died doesn't. So that is found out here, too:
//! the steady ranking takes part twice, by a table of either kind (`model.rs`). While nothing or little was evicted yet
//! an early contest decides, with caches that never have room for all that came. Cost: five small caches' access per
//! sampled access, K scores per eviction; about 40 bytes per sampled key that any of them holds; twice that with an
//! early contest.

use std::sync::Arc;

use super::SAMPLE_SIZE;
use super::candidates::{Candidates, Met};
use super::history::Feature;
use super::model::Tail;
use super::places::Places;
use super::ranking::{GreedyAges, Ranker, Ranking};
use super::shared_keys::{Known, SharedKeys};
use super::table::DensityTable;
use crate::access::{Access, Op};
use crate::policy::walk::Walk;
use crate::units::{KeyHash, PartitionId};

const STRATA: usize = 16;
/// Who takes part. The first are the rankings, in their order; the last looks at what has died with another eye.
const PARTS: [(Ranking, Tail); RIVALS] = [
    (Ranking::Density, Tail::Others),
    (Ranking::Steady, Tail::Others),
    (Ranking::Greedy, Tail::Others),
    (Ranking::Idle, Tail::Others),
    (Ranking::Steady, Tail::Learned),
];
/// Who ranks until another is ahead.
const FIRST: (Ranking, Tail) = (Ranking::Steady, Tail::Others);
const RIVALS: usize = Ranking::ALL.len() + 1;
/// What a window weighs one window later.
const DECAY: f64 = 0.7;
/// Another ranking must be ahead by this share of the cost…
const GAIN_MIN: f64 = 0.03;
/// … and by so many standard errors.
const ERRORS_MIN: f64 = 3.0;
/// Before anything is believed each cache has evicted so much of its capacity: who evicts the cheap first pays at once
/// and is paid later…
const TURNOVER_MIN: f32 = 0.25;
/// … or all have evicted in more full windows than these: of large caches little goes.
const WINDOWS_MIN: u32 = 3;
/// An early contest's caches have room for this part of what came (docs/decisions/15-rankings.md).
const EARLY_SHARE: f64 = 0.7;

/// What was learned, with each of [`Tail::ALL`].
pub type Tables = [Arc<DensityTable>; Tail::ALL.len()];

/// The contest. See the file's opening.
#[derive(Clone, Debug)]
pub struct Contest {
    keys: SharedKeys,
    rivals: [Rival; RIVALS],
    chosen: (Ranking, Tail),
    /// Full windows in which all have evicted.
    windows: u32,
    /// Of an early one.
    early: Option<Early>,
}

/// What an early contest's caches grow by, in bytes of the sample.
#[derive(Clone, Copy, Debug, Default)]
struct Early {
    /// Of all keys that came, each once.
    came: f64,
    /// Of the cache that it stands for.
    capacity: u64,
}

impl Contest {
    /// Empty caches that stand for one of which `capacity_bytes` would be the sample's; `step_ticks` as
    /// [`GreedyAges::new`] has it.
    pub fn new(capacity_bytes: u64, step_ticks: u64, seed: u64) -> Self {
        let rival = |number: usize| Rival {
            part: PARTS[number],
            capacity_bytes,
            used_bytes: 0,
            held: Places::default(),
            ages: GreedyAges::new(step_ticks),
            cost_us: [0.0; STRATA],
            turnover: 0.0,
            walk: Walk::new(seed),
            candidates: Candidates::new(),
        };
        Contest {
            keys: SharedKeys::default(),
            rivals: std::array::from_fn(rival),
            chosen: FIRST,
            windows: 0,
            early: None,
        }
    }

    /// The same of caches that only grow up to that size, while keys come.
    pub fn early(step_ticks: u64, seed: u64) -> Self {
        Contest { early: Some(Early::default()), ..Contest::new(0, step_ticks, seed) }
    }

    /// A key of the sample that wasn't seen before has come.
    pub fn came(&mut self, size_bytes: u32) {
        if let Some(early) = &mut self.early {
            early.came += f64::from(size_bytes);
            let room = early.room();
            self.rivals.iter_mut().for_each(|rival| rival.capacity_bytes = rival.capacity_bytes.max(room));
        }
    }

    /// Takes one access of the sample at `now`; `feature` is what the key has shown with it, `expires` when its value
    /// does, in ticks.
    pub fn record(&mut self, access: &Access, now: u64, feature: Feature, expires: u64, tables: &Tables) {
        let (held, gone) = self.keys.held_or_gone(access, now);
        if let Some(place) = gone {
            self.forget(place);
        }
        if access.op == Op::Delete {
            return;
        }
        let known = Known::new(access, PartitionId(0), (now, feature, expires));
        let (place, before) = self.keys.note(held, access.op, known, now);
        let bytes_before = before.map_or(0, |before| before.size_bytes);
        for rival in &mut self.rivals {
            rival.record(&mut self.keys, (place, now), (access.op, bytes_before), tables);
        }
        if self.keys[place].n_held == 0 {
            self.keys.forget(place);
        }
    }

    /// A key goes from all caches.
    fn forget(&mut self, place: u16) {
        let size_bytes = self.keys[place].size_bytes;
        for rival in self.rivals.iter_mut().filter(|rival| rival.held.has(place)) {
            rival.leave(&mut self.keys, place, size_bytes);
        }
        self.keys.forget(place);
    }

    /// Sampled keys that any of the caches holds.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Keys that the cache of the ranking in force holds.
    pub fn keys_that_fit(&self) -> usize {
        self.rivals.iter().find(|rival| rival.part == self.chosen).map_or(0, |rival| rival.held.len())
    }

    /// What another has found is chosen until this one knows better.
    pub fn begin_with(&mut self, chosen: (Ranking, Tail)) {
        self.chosen = chosen;
    }

    /// True once its caches have evicted enough to be believed.
    pub fn is_to_be_believed(&self) -> bool {
        self.windows > WINDOWS_MIN || self.have_all_evicted(TURNOVER_MIN)
    }

    fn have_all_evicted(&self, parts_min: f32) -> bool {
        self.rivals.iter().all(|rival| rival.turnover >= parts_min)
    }

    /// Ends a window, of full length or one of the short ones at the beginning, of which `part` has passed since the
    /// last part ended: the ranking to evict by until the next part ends, and by which table.
    pub fn end_window(&mut self, is_full: bool, part: f64) -> (Ranking, Tail) {
        // A cache that never had to evict says nothing.
        self.windows += u32::from(is_full && self.have_all_evicted(f32::MIN_POSITIVE));
        self.end_part(part)
    }

    /// The same while a window goes on of which `part` has passed, 0 to 1.
    pub fn end_part(&mut self, part: f64) -> (Ranking, Tail) {
        if self.is_to_be_believed() {
            let own = self.rivals.iter().find(|rival| rival.part == self.chosen).unwrap_or(&self.rivals[0]);
            let ahead = |rival: &Rival| own.gain_of(rival).filter(|_| rival.part != self.chosen);
            let best = self.rivals.iter().filter_map(|rival| Some((ahead(rival)?, rival.part)));
            self.chosen = best.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(self.chosen, |(_, part)| part);
        }
        let decay = DECAY.powf(part);
        self.rivals.iter_mut().flat_map(|rival| &mut rival.cost_us).for_each(|cost_us| *cost_us *= decay);
        self.chosen
    }

    /// What each ranking's misses have cost in the sample, in µs, older windows less: in the order of [`Ranking::ALL`].
    pub fn costs_us(&self) -> [f64; Ranking::ALL.len()] {
        std::array::from_fn(|i| self.rivals[i].cost_us.iter().sum())
    }

    /// The sample has become smaller: keys that it doesn't take go, and so does `factor` of the capacity.
    pub fn thin(&mut self, takes: impl Fn(KeyHash) -> bool, factor: f64) {
        self.keys.left_out(takes).into_iter().for_each(|place| self.forget(place));
        if let Some(early) = &mut self.early {
            early.came *= factor;
        }
        for rival in &mut self.rivals {
            rival.resize(&mut self.keys, (rival.capacity_bytes as f64 * factor) as u64);
        }
        self.give_back();
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.rivals.iter().map(Rival::memory_bytes).sum::<usize>()
    }

    /// The caches stand for one of which `capacity_bytes` is the sample's from now on.
    pub fn resize(&mut self, capacity_bytes: u64) {
        let capacity_bytes = match &mut self.early {
            None => capacity_bytes,
            Some(early) => {
                early.capacity = capacity_bytes;
                early.room()
            }
        };
        self.rivals.iter_mut().for_each(|rival| rival.resize(&mut self.keys, capacity_bytes));
        self.give_back();
    }

    /// Gives back what memory was only needed before the caches became much smaller.
    fn give_back(&mut self) {
        if let Some(old) = self.keys.close_ranks() {
            for rival in &mut self.rivals {
                rival.held = rival.held.renumbered(&old);
                rival.candidates.clear();
            }
        }
    }
}

impl Early {
    fn room(&self) -> u64 {
        self.capacity.min((EARLY_SHARE * self.came) as u64)
    }
}

/// One ranking's cache.
#[derive(Clone, Debug)]
struct Rival {
    /// How it ranks.
    part: (Ranking, Tail),
    capacity_bytes: u64,
    used_bytes: u64,
    /// Where the keys are that it holds.
    held: Places,
    ages: GreedyAges,
    /// What its misses have cost.
    cost_us: [f64; STRATA],
    /// What it has evicted so far, in parts of its capacity.
    turnover: f32,
    walk: Walk,
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

    /// Takes one access, at `now`, to the key at `place`: what is known of it is as after the access, before which its
    /// value had so many bytes.
    fn record(
        &mut self,
        keys: &mut SharedKeys,
        (place, now): (u16, u64),
        (op, bytes_before): (Op, u32),
        tables: &Tables,
    ) {
        let was_there = self.held.has(place);
        let Known { key, size_bytes, penalty_us, .. } = keys[place];
        if was_there && size_bytes == bytes_before {
            return;
        }
        if was_there {
            self.leave(keys, place, bytes_before);
        } else if op == Op::Read {
            self.cost_us[key.0 as usize % STRATA] += f64::from(penalty_us);
        }
        let size_bytes = u64::from(size_bytes);
        if size_bytes > self.capacity_bytes {
            return;
        }
        let (ranking, tail) = self.part;
        let table = &tables[tail as usize];
        while self.used_bytes + size_bytes > self.capacity_bytes && self.evict(keys, now, table) {}
        keys[place].n_held += 1;
        self.used_bytes += size_bytes;
        self.held.add(place);
        // A newcomer that is worth less than what was met goes before it.
        if !was_there {
            let score = Ranker { ranking, table, ages: &self.ages, now }.score(&keys[place].subject(now));
            self.candidates.offer(score, Met { place: place.into(), last: now });
        }
    }

    /// Evicts one, as the server would choose it; false where there is none.
    fn evict(&mut self, keys: &mut SharedKeys, now: u64, table: &DensityTable) -> bool {
        let Rival { part: (ranking, _), held, ages, walk, candidates, .. } = self;
        let ranker = Ranker { ranking: *ranking, table, ages, now };
        let draw = || {
            let place = held.next(walk)?;
            let known = &keys[place];
            Some((ranker.score(&known.subject(now)), Met { place: place.into(), last: known.last(now) }))
        };
        let is_as_met = |met: &Met| held.has(met.place as u16) && keys[met.place as u16].last(now) == met.last;
        let victim = candidates.next(SAMPLE_SIZE as usize, draw, is_as_met).map(|place| place as u16);
        let Some(victim) = victim.or_else(|| held.next(walk)) else { return false };
        // No other ranking looks at ages once there are densities.
        if *ranking == Ranking::Greedy || table.is_empty() {
            ages.evicted(&keys[victim].subject(now), now);
        }
        self.turnover += keys[victim].size_bytes as f32 / self.capacity_bytes as f32;
        self.remove(keys, victim);
        true
    }

    /// The key goes from here, and wholly where no other holds it.
    fn remove(&mut self, keys: &mut SharedKeys, place: u16) {
        self.leave(keys, place, keys[place].size_bytes);
        if keys[place].n_held == 0 {
            keys.forget(place);
        }
    }

    fn leave(&mut self, keys: &mut SharedKeys, place: u16, size_bytes: u32) {
        self.held.remove(place);
        keys[place].n_held -= 1;
        self.used_bytes -= u64::from(size_bytes);
    }

    fn memory_bytes(&self) -> usize {
        self.held.memory_bytes() + self.ages.memory_bytes() + self.candidates.memory_bytes()
    }

    fn resize(&mut self, keys: &mut SharedKeys, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        while self.used_bytes > capacity_bytes
            && let Some(place) = self.held.next(&mut self.walk)
        {
            self.remove(keys, place);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::history::History;
    use super::super::model::{DensityConfig, DensityModel};
    use super::*;
    use crate::model::key_map::KeyMap;
    use crate::random::Random;

    /// 20,000 reads of `keys` at one price with room for fifty. `table_of_lies` teaches that most accesses are writes.
    fn run(keys: impl Fn(u64, &mut Random) -> u64, table_of_lies: bool) -> (Contest, Ranking) {
        run_in(Contest::new(500, 100, 1), true, keys, table_of_lies)
    }

    /// The same of another contest, in which windows are of full length or not.
    fn run_in(
        mut contest: Contest,
        are_full: bool,
        keys: impl Fn(u64, &mut Random) -> u64,
        table_of_lies: bool,
    ) -> (Contest, Ranking) {
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
                tables = model.end_part(1.0, now, 1 << 20, Tail::ALL).map(Arc::new);
                (ranking, _) = contest.end_window(are_full, 1.0);
            }
        }
        (contest, ranking)
    }

    /// Each cache holds what it says, within its capacity, and each key is held by as many as it says.
    pub(in super::super) fn check_books(contest: &Contest) {
        for rival in &contest.rivals {
            let held = contest.keys.places().filter(|&place| rival.held.has(place));
            let sizes: Vec<u64> = held.map(|place| contest.keys[place].size_bytes.into()).collect();
            assert_eq!((rival.used_bytes, rival.held.len()), (sizes.iter().sum(), sizes.len()));
            assert!(rival.used_bytes <= rival.capacity_bytes);
        }
        let held_by = |place| contest.rivals.iter().filter(|rival| rival.held.has(place)).count();
        let is_right = |place| held_by(place) == usize::from(contest.keys[place].n_held) && held_by(place) > 0;
        assert!(contest.keys.places().all(is_right));
    }

    #[test]
    fn a_loop_is_for_density_and_everything_is_accounted_for() {
        let (contest, ranking) = run(|now, _| now % 60, false);
        assert_eq!(ranking, Ranking::Density);
        let [density, _, _, idle] = contest.costs_us();
        assert!(density < 0.7 * idle, "{density} {idle}");
        check_books(&contest);
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

    /// Which ranking a loop is for is found out before any window has its full length, but not where hardly anything
    /// has gone.
    #[test]
    fn a_cache_that_has_turned_over_is_judged_before_windows_have_their_length() {
        let (contest, ranking) = run_in(Contest::new(500, 100, 1), false, |now, _| now % 60, false);
        assert_eq!(ranking, Ranking::Density, "{:?}", contest.costs_us());
        let newcomers = |now: u64, _: &mut Random| if now.is_multiple_of(2_000) { 60 + now } else { now % 60 };
        let mut hardly_short = Contest::new(620, 100, 1);
        hardly_short.begin_with((Ranking::Idle, Tail::Others));
        let (contest, ranking) = run_in(hardly_short, false, newcomers, false);
        let turnovers = contest.rivals.each_ref().map(|rival| rival.turnover);
        assert!(turnovers.iter().all(|&turnover| turnover > 0.0), "{turnovers:?}");
        assert!(turnovers.iter().any(|&turnover| turnover < TURNOVER_MIN), "{turnovers:?}");
        assert_eq!(ranking, Ranking::Idle, "{:?}", contest.costs_us());
    }

    #[test]
    fn what_a_large_cache_took_comes_back() {
        let mut contest = Contest::new(1 << 20, 100, 1);
        let feature = History::default().accessed(0, 0, 1e-6).feature(0);
        for key in 0..20_000 {
            let access = Access { penalty_us: 100.0, ..Access::read(KeyHash::of_number(key), 10) };
            contest.record(&access, key, feature, u64::MAX, &Tables::default());
        }
        check_books(&contest);
        let large = contest.memory_bytes();
        contest.resize(1 << 14);
        check_books(&contest);
        assert!(contest.memory_bytes() < large / 8, "{large} bytes before, now {}", contest.memory_bytes());
    }

    #[test]
    fn a_thinner_sample_has_smaller_caches() {
        let (mut contest, _) = run(|_, random| random.below(100), true);
        contest.thin(|key| key.0 % 2 == 0, 0.5);
        check_books(&contest);
        assert!(contest.rivals.iter().all(|rival| rival.capacity_bytes == 250 && rival.used_bytes > 0));
        assert!(contest.keys.places().all(|place| contest.keys[place].key.0 % 2 == 0));
    }
}
