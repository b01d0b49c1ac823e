//! LHD × cost: of a sample the value goes that is expected to hit least for the room and the time it takes, as
//! learned from hits and evictions by age.
//!
//! Source: Beckmann, Chen and Cidon, NSDI'18, and the authors' program as libCacheSim has it, whose constants these
//! are: values fall into sixteen classes by the last two ages they hit at. Each class counts hits and evictions by
//! age. The hit density at an age is the hits from there on over the time that values live from there on. Ranked by
//! density / size; here times the cost of a miss. The newest that looked worse than recent victims are candidates too,
//! and one in 32 explores: for at most 1 % of the room it stays whatever it is worth, while the first 50 models are
//! learned. Differs: a model is made each window of the caller's, not each 2^20 requests, for most traces here are
//! shorter than that; how coarse ages are is set by the first model and by the 25th. One application; the first models
//! sample 8, as there. Cost: 40 scores per eviction, one pass over the ages of 16 classes per window, 4 MB where all
//! 20,000 occur.

use tenure_core::policy::cache::SAMPLE_SIZE_MAX;
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::random::Random;
use tenure_core::units::KeyHash;

const CLASSES: usize = 16;
const AGES: usize = 20_000;
const SAMPLE_SIZE: usize = 32;
const SAMPLE_SIZE_AT_FIRST: usize = 8;
/// Models until all is sampled, and nothing explored.
const MODELS_AT_FIRST: u32 = 50;
/// The newest that may go at once.
const ADMISSIONS: usize = 8;
const EXPLORED_SHARE: f64 = 0.01;
const EXPLORE_ONE_IN: u64 = 32;
/// What a window weighs one window later.
const DECAY: f32 = 0.9;
/// log2 of the requests that ages are counted in, at first.
const SHIFT_AT_FIRST: u32 = 10;
/// Ages are so coarse that as many as there are values are a hundredth of what can be counted.
const COARSENESS: f64 = 0.01 * AGES as f64;

/// What is known of a value. Ages are coarse.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    at: u64,
    hit_age: u32,
    hit_age_before: u32,
    explores: bool,
}

/// Values alike, by age: up to the oldest that anything has happened at.
#[derive(Clone, Debug, Default)]
struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
}

/// The order of LHD. See the file's opening.
#[derive(Clone, Debug)]
pub struct Lhd {
    tags: Vec<Tag>,
    classes: Vec<Class>,
    shift: u32,
    now: u64,
    window_requests: u64,
    models: u32,
    newest: [Option<KeyHash>; ADMISSIONS],
    n_newest: usize,
    victim_density: f32,
    explorable_bytes: i64,
    /// The value that is about to leave was evicted, and comes back if only its size has changed.
    leaving: Option<(KeyHash, Tag)>,
    evicts: bool,
    random: Random,
}

impl Lhd {
    /// An LHD cache of `capacity_bytes` that makes a model every `window_requests`.
    pub fn cache(capacity_bytes: u64, window_requests: u64, seed: u64) -> TableCache<Lhd> {
        let order = Lhd {
            tags: Vec::new(),
            classes: vec![Class::default(); CLASSES],
            shift: SHIFT_AT_FIRST,
            now: 0,
            window_requests: window_requests.max(1),
            models: 0,
            newest: [None; ADMISSIONS],
            n_newest: 0,
            victim_density: 0.0,
            explorable_bytes: (EXPLORED_SHARE * capacity_bytes as f64) as i64,
            leaving: None,
            evicts: false,
            random: Random::new(seed),
        };
        TableCache::new(capacity_bytes, order)
    }

    fn age(&self, tag: &Tag) -> usize {
        ((self.now - tag.at) >> self.shift).min(AGES as u64 - 1) as usize
    }

    fn score(&self, place: usize, entry: &Entry) -> f32 {
        let tag = &self.tags[place];
        let age = self.age(tag);
        if age == AGES - 1 {
            return f32::MIN;
        }
        let class = class_of(tag);
        let density = match self.models {
            // Before the first model it is about GDSF.
            0 => (class + 1) as f32 / (age + 1) as f32,
            _ => self.classes[class].densities.get(age).copied().unwrap_or(0.0),
        };
        let density = density * entry.penalty_us / entry.size_bytes.max(1) as f32;
        if tag.explores { density + entry.penalty_us } else { density }
    }

    /// A value that was accessed or has entered explores from now on, or doesn't.
    fn explore(&mut self, place: usize, size_bytes: u32) {
        let explores =
            self.random.below(EXPLORE_ONE_IN) == 0 && self.explorable_bytes > 0 && self.models < MODELS_AT_FIRST;
        self.tags[place].explores = explores;
        if explores {
            self.explorable_bytes -= i64::from(size_bytes);
        }
    }

    fn tick(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(self.window_requests) {
            self.learn();
        }
    }

    fn learn(&mut self) {
        for class in &mut self.classes {
            class.hits.iter_mut().chain(&mut class.evictions).for_each(|count| *count *= DECAY);
        }
        self.models += 1;
        if self.models == 1 || self.models == 25 {
            self.coarsen();
        }
        self.classes.iter_mut().for_each(Class::learn);
    }

    /// Fits the width of an age to the number of values.
    fn coarsen(&mut self) {
        let wanted = (self.tags.len() as f64 / COARSENESS).max(2.0).log2().ceil() as u32;
        let (from, to) = (std::mem::replace(&mut self.shift, wanted), wanted);
        for counts in self.classes.iter_mut().flat_map(|class| [&mut class.hits, &mut class.evictions]) {
            let mut fitted = Vec::new();
            for (age, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                let (first, width) = ((age << from) >> to, 1_usize << from.saturating_sub(to));
                (first..first + width).for_each(|age| add(&mut fitted, age.min(AGES - 1), count / width as f32));
            }
            *counts = fitted;
        }
        let rescale = |age: u32| ((u64::from(age) << from) >> to).min(AGES as u64) as u32;
        for tag in &mut self.tags {
            (tag.hit_age, tag.hit_age_before) = (rescale(tag.hit_age), rescale(tag.hit_age_before));
        }
    }
}

impl Class {
    /// Hits from an age on over the time lived from there on, from the oldest back.
    fn learn(&mut self) {
        let ages = self.hits.len().max(self.evictions.len());
        for counts in [&mut self.hits, &mut self.evictions, &mut self.densities] {
            counts.resize(ages, 0.0);
        }
        let (mut hits, mut events, mut lived) = (0.0, 0.0, 0.0);
        for age in (0..ages).rev() {
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            lived += events;
            self.densities[age] = if events > 1e-5 { hits / lived } else { 0.0 };
        }
    }
}

/// Counts at an age, which may be older than any before.
fn add(counts: &mut Vec<f32>, age: usize, count: f32) {
    counts.resize(counts.len().max(age + 1), 0.0);
    counts[age] += count;
}

/// About log2 of how much of the largest age is left by the last two.
fn class_of(tag: &Tag) -> usize {
    let ages = u64::from(tag.hit_age) + u64::from(tag.hit_age_before);
    (0..CLASSES - 1).find(|&class| ages << class >= AGES as u64).unwrap_or(CLASSES - 1)
}

impl Order for Lhd {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let k = if self.models > MODELS_AT_FIRST { SAMPLE_SIZE } else { SAMPLE_SIZE_AT_FIRST };
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let drawn = table.draw(k, &mut self.random, &mut drawn).iter().map(|&place| place as usize);
        let newest = self.newest.iter().flatten().filter_map(|&key| table.place_of(key));
        let scored = drawn.chain(newest).map(|place| (self.score(place, &table.entries()[place]), place));
        let (density, victim) = scored.min_by(|a, b| a.0.total_cmp(&b.0)).expect("the table isn't empty");
        self.victim_density = DECAY * self.victim_density + (1.0 - DECAY) * density;
        self.evicts = true;
        victim
    }

    fn stored(&mut self, table: &Table, place: usize) {
        let entry = &table.entries()[place];
        let new = Tag { at: self.now, hit_age: 0, hit_age_before: AGES as u32, explores: false };
        let back = self.leaving.take().filter(|(key, _)| *key == entry.key && entry.n_requests > 1);
        self.tags.resize(self.tags.len().max(place + 1), new);
        self.tags[place] = back.map_or(new, |(_, tag)| Tag { at: self.now, ..tag });
        self.explore(place, entry.size_bytes);
        if back.is_none() && !self.tags[place].explores && self.score(place, entry) < self.victim_density {
            self.newest[self.n_newest % ADMISSIONS] = Some(entry.key);
            self.n_newest += 1;
        }
        self.tick();
    }

    fn touched(&mut self, table: &Table, place: usize) {
        let (tag, size_bytes) = (self.tags[place], table.entries()[place].size_bytes);
        let age = self.age(&tag);
        add(&mut self.classes[class_of(&tag)].hits, age, 1.0);
        self.explorable_bytes += if tag.explores { i64::from(size_bytes) } else { 0 };
        self.tags[place] =
            Tag { at: self.now, hit_age: age as u32, hit_age_before: tag.hit_age, explores: tag.explores };
        self.explore(place, size_bytes);
        self.tick();
    }

    fn removed(&mut self, table: &Table, place: usize) {
        let (tag, entry) = (self.tags[place], &table.entries()[place]);
        self.explorable_bytes += if tag.explores { i64::from(entry.size_bytes) } else { 0 };
        if std::mem::take(&mut self.evicts) {
            let age = self.age(&tag);
            add(&mut self.classes[class_of(&tag)].evictions, age, 1.0);
        } else {
            self.leaving = Some((entry.key, tag));
        }
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.tags[to] = self.tags[from];
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::access::Access;
    use tenure_core::policy::cache::{Cache, Outcome};

    use super::*;

    /// Two hits at age 1 and one eviction at age 3: from age 0 on 2 hits in 1 + 1 + 3 ages and the one they end in, 3
    /// more, so 2 / 8; from age 2 on none.
    #[test]
    fn a_density_is_hits_over_time_lived() {
        let mut class = Class::default();
        add(&mut class.hits, 1, 2.0);
        add(&mut class.evictions, 3, 1.0);
        class.learn();
        assert_eq!(class.densities, [0.25, 0.4, 0.0, 0.0]);
    }

    #[test]
    fn classes_are_by_the_last_two_ages() {
        let class = |hit_age, hit_age_before| class_of(&Tag { hit_age, hit_age_before, ..Tag::default() });
        assert_eq!([class(0, AGES as u32), class(5_000, 5_000), class(1, 0), class(0, 0)], [0, 1, 15, 15]);
    }

    /// A loop over 1000 keys with room for 600, beside as many keys that never come again: recency never hits, LHD
    /// learns to keep some of the loop.
    #[test]
    fn a_loop_is_learned() {
        let mut cache = Lhd::cache(600, 20_000, 1);
        let mut hits = 0;
        for i in 0..200_000_u64 {
            let number = if i % 2 == 0 { i / 2 % 1_000 } else { 10_000 + i };
            let hit = cache.access(&Access { penalty_us: 1.0, ..Access::read(KeyHash::of_number(number), 1) });
            hits += u32::from(i >= 100_000 && hit == Outcome::Hit);
        }
        assert!(hits > 10_000, "{hits} of 50000 of the loop");
    }

    #[test]
    fn the_account_is_kept_under_deletes_and_changing_sizes() {
        let mut cache = Lhd::cache(300, 1_000, 1);
        let mut random = Random::new(1);
        for i in 0..30_000_u64 {
            let key = KeyHash::of_number(random.below(90));
            let access = Access { penalty_us: 9.0, ..Access::read(key, 1 + random.below(30) as u32) };
            cache.access(&if i % 7 == 0 { access.with_op(tenure_core::access::Op::Delete) } else { access });
            assert!(cache.used_bytes() <= 300 && cache.order().tags.len() >= cache.table().entries().len());
        }
    }
}
