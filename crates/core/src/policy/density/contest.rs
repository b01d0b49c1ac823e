//! Which ranking of keys would have cost least: one miniature cache for each, side by side.
//!
//! Source: miniature simulation (Waldspurger et al., ATC'17): keys are sampled by their hash, and a cache of `C`
//! bytes is stood for by one of `C` × rate; pRedis's authors choose between two policies so. Keys fall into sixteen
//! strata by their hash, and what one ranking costs more than another is believed where it is by far more than strata
//! differ by chance: one expensive key may make a window, not a decision. What is learned (density, and density
//! steadied by the long run) is returned to as soon as it is not behind. Cost: four small caches' access per sampled
//! access, K scores per eviction; about 80 bytes per ranking and sampled key that fits.

use super::history::Feature;
use super::ranking::{GreedyAges, Ranker, Ranking, Subject};
use super::table::DensityTable;
use crate::access::{Access, Op};
use crate::model::key_map::KeyMap;
use crate::random::Random;
use crate::units::KeyHash;

/// Keys sampled per eviction.
const SAMPLE_SIZE: usize = 16;
const STRATA: usize = 16;
/// Room for so many keys more is never given back.
const KEYS_KEPT_ROOM_FOR: usize = 256;
/// What a window weighs one window later.
const DECAY: f64 = 0.7;
/// Another ranking must be ahead by this share of the cost…
const GAIN_MIN: f64 = 0.03;
/// … and by so many standard errors.
const ERRORS_MIN: f64 = 3.0;
/// Windows that all caches evicted in before anything is believed: who evicts the cheap first pays at once and is
/// paid later.
const WINDOWS_MIN: u32 = 3;

/// The contest. See the file's opening.
#[derive(Clone, Debug)]
pub struct Contest {
    rivals: [Rival; Ranking::ALL.len()],
    chosen: Ranking,
    /// Windows in which all have evicted.
    windows: u32,
}

impl Contest {
    /// Empty caches that stand for one of which `capacity_bytes` would be the sample's; `step_ticks` as
    /// [`GreedyAges::new`] has it.
    pub fn new(capacity_bytes: u64, step_ticks: u64, seed: u64) -> Self {
        let rival = |ranking| Rival {
            ranking,
            capacity_bytes,
            used_bytes: 0,
            held: Vec::new(),
            place_of: KeyMap::default(),
            ages: GreedyAges::growing(step_ticks),
            cost_us: [0.0; STRATA],
            has_evicted: false,
            random: Random::new(seed),
        };
        Contest { rivals: Ranking::ALL.map(rival), chosen: Ranking::Density, windows: 0 }
    }

    /// Takes one access of the sample at `now`; `feature` is what the key has shown with it, `expires` when its value
    /// does, in ticks.
    pub fn record(&mut self, access: &Access, now: u64, feature: Feature, expires: u64, table: &DensityTable) {
        for rival in &mut self.rivals {
            rival.record(access, now, feature, expires, table);
        }
    }

    /// The ranking that another has found is chosen until this one knows better.
    pub fn begin_with(&mut self, ranking: Ranking) {
        self.chosen = ranking;
    }

    /// Ends a window: the ranking to evict by until the next ends.
    pub fn end_window(&mut self) -> Ranking {
        // A cache that never had to evict says nothing.
        self.windows += u32::from(self.rivals.iter().all(|rival| rival.has_evicted));
        if self.windows > WINDOWS_MIN {
            let own = self.rivals.iter().find(|rival| rival.ranking == self.chosen).unwrap_or(&self.rivals[0]);
            let ahead = |rival: &Rival| own.gain_of(rival).filter(|_| rival.ranking != self.chosen);
            let best = self.rivals.iter().filter_map(|rival| Some((ahead(rival)?, rival.ranking)));
            self.chosen = best.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(self.chosen, |(_, ranking)| ranking);
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
            rival.resize((rival.capacity_bytes as f64 * factor) as u64);
            for place in (0..rival.held.len()).rev() {
                if !takes(rival.held[place].0) {
                    rival.remove(place);
                }
            }
            rival.give_back();
        }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.rivals.iter().map(Rival::memory_bytes).sum()
    }

    /// The caches stand for one of which `capacity_bytes` is the sample's from now on.
    pub fn resize(&mut self, capacity_bytes: u64) {
        self.rivals.iter_mut().for_each(|rival| rival.resize(capacity_bytes));
    }
}

/// One ranking's cache.
#[derive(Clone, Debug)]
struct Rival {
    ranking: Ranking,
    capacity_bytes: u64,
    used_bytes: u64,
    held: Vec<(KeyHash, Subject)>,
    place_of: KeyMap<u32>,
    ages: GreedyAges,
    /// What its misses have cost.
    cost_us: [f64; STRATA],
    has_evicted: bool,
    random: Random,
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
        if other.ranking.is_learned() {
            return (mean > 0.0).then_some(mean * STRATA as f64 / total_us);
        }
        let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (STRATA - 1) as f64;
        let error = (variance / STRATA as f64).sqrt();
        let gain = mean * STRATA as f64 / total_us;
        (gain > GAIN_MIN && mean > ERRORS_MIN * error).then_some(gain)
    }

    fn record(&mut self, access: &Access, now: u64, feature: Feature, expires: u64, table: &DensityTable) {
        let place = self.place_of.get(&access.key).copied();
        let held = place.map(|place| self.remove(place as usize));
        if access.op == Op::Delete {
            return;
        }
        // Of a value that is there, a read leaves the expiry as it was.
        let alive = held.filter(|held| held.expires > now);
        if alive.is_none() && access.op == Op::Read {
            self.cost_us[access.key.0 as usize % STRATA] += f64::from(access.penalty_us);
        }
        let expires = alive.filter(|_| access.op == Op::Read).map_or(expires, |held| held.expires);
        let n_requests = alive.map_or(1, |held| held.n_requests.saturating_add(1));
        let Access { size_bytes, penalty_us, .. } = *access;
        if u64::from(size_bytes) > self.capacity_bytes {
            return;
        }
        while self.used_bytes + u64::from(size_bytes) > self.capacity_bytes {
            self.evict(now, table);
        }
        self.place_of.insert(access.key, self.held.len() as u32);
        self.used_bytes += u64::from(size_bytes);
        self.held.push((access.key, Subject { feature, last: now, expires, n_requests, size_bytes, penalty_us }));
    }

    /// Evicts the lowest of a sample.
    fn evict(&mut self, now: u64, table: &DensityTable) {
        let ranker = Ranker { ranking: self.ranking, table, ages: &self.ages, now };
        let (mut victim, mut lowest) = (0, f32::INFINITY);
        for _ in 0..SAMPLE_SIZE {
            let place = self.random.below(self.held.len() as u64) as usize;
            let score = ranker.score(&self.held[place].1);
            if score < lowest {
                (victim, lowest) = (place, score);
            }
        }
        let gone = self.remove(victim);
        // No other ranking looks at ages once there are densities.
        if self.ranking == Ranking::Greedy || table.is_empty() {
            self.ages.evicted(&gone, now);
        }
        self.has_evicted = true;
    }

    fn remove(&mut self, place: usize) -> Subject {
        let (key, gone) = self.held.swap_remove(place);
        self.place_of.remove(&key);
        self.used_bytes -= u64::from(gone.size_bytes);
        if let Some((moved, _)) = self.held.get(place) {
            self.place_of.insert(*moved, place as u32);
        }
        gone
    }

    fn memory_bytes(&self) -> usize {
        self.held.capacity() * size_of::<(KeyHash, Subject)>() + self.place_of.memory_bytes() + self.ages.memory_bytes()
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        while self.used_bytes > capacity_bytes {
            let place = self.random.below(self.held.len() as u64) as usize;
            self.remove(place);
        }
        self.give_back();
    }

    /// Gives back what memory was only needed before the cache became much smaller.
    fn give_back(&mut self) {
        let keys = self.held.len();
        if self.held.capacity() > 2 * keys + KEYS_KEPT_ROOM_FOR {
            self.held.shrink_to(keys + keys / 4);
            self.place_of.shrink_to(keys + keys / 4);
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
        let (mut table, mut ranking) = (DensityTable::default(), Ranking::Density);
        for now in 0..20_000_u64 {
            let access = Access { penalty_us: 100.0, ..Access::read(KeyHash::of_number(keys(now, &mut random)), 10) };
            let (last, history) = histories.get(&access.key).copied().unwrap_or_default();
            let history = history.accessed(now - last, now as u32, 2e-4);
            histories.insert(access.key, (now, history));
            let op = if table_of_lies { Op::Write } else { Op::Read };
            let feature = history.feature(0);
            model.record(access.key, if now % 7 == 0 { Op::Read } else { op }, now, feature);
            contest.record(&access, now, feature, u64::MAX, &table);
            if now % 2_000 == 1_999 {
                table = model.end_window(now, 1 << 20);
                ranking = contest.end_window();
            }
        }
        (contest, ranking)
    }

    #[test]
    fn a_loop_is_for_density_and_everything_is_accounted_for() {
        let (contest, ranking) = run(|now, _| now % 60, false);
        assert_eq!(ranking, Ranking::Density);
        let [density, .., idle] = contest.costs_us();
        assert!(density < 0.7 * idle, "{density} {idle}");
        for rival in &contest.rivals {
            assert_eq!(rival.used_bytes, rival.held.iter().map(|(_, s)| u64::from(s.size_bytes)).sum::<u64>());
            assert!(rival.held.iter().enumerate().all(|(i, (key, _))| rival.place_of.get(key) == Some(&(i as u32))));
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
            contest.record(&access, key, feature, u64::MAX, &DensityTable::default());
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
            assert!(rival.used_bytes <= 250 && rival.held.iter().all(|(key, _)| key.0 % 2 == 0));
        }
    }
}
