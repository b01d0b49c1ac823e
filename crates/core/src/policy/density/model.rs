//! Learns densities: how often keys that have shown a feature are accessed at each age.
//!
//! LHD (Beckmann et al., NSDI'18) learns such a density from ages, as here; what is made of it is in `table.rs`.
//! Derivation: docs/models.md, "Density". Learned from a sample of the keys, evicted ones too, so that what eviction
//! did is not learned. By *feature* (what a key has shown) and age it counts accesses and the time that keys spent at
//! that age; never-reused keys count too, or a one-hit burst looks merely not yet due. Cost: one look-up in a map per
//! sampled access, O(features × ages + sampled keys) per window; some 1 KB a feature that was seen and about 30 bytes
//! per sampled key.

use super::history::{FEATURES, Feature, GAPS, GROUPS, NUMBERS, OFTEN, WRITTEN_OFTEN, requests_from};
use super::row::{Count, Row};
use super::table::{AGES, DensityTable, Rate, Rates, age_bucket, bounds_of};
use crate::access::Op;
use crate::error::ConfigError;
use crate::model::key_map::KeyMap;
use crate::units::KeyHash;

/// What a parent knows weighs as much as so many accesses seen.
const PRIOR_ACCESSES: f32 = 2.0;
/// That keys come as often as is expected of all weighs as much as so many that were due.
const PRIOR_DUE: f32 = 2.0;
/// What was due at one age weighs so much for the next.
const DUE_KEPT: f32 = 0.9;
/// Where nothing was seen at all, a key of age `t` is accessed at a rate of this / `t`: as likely as not before it is
/// four times as old.
const PRIOR_HAZARD: f32 = 0.5;

/// What is taught of one age, at the least.
const COUNT_MIN: f32 = 1e-3;

/// Ages are told apart up to so many buckets, two octaves, beyond the oldest that was seen: where nobody was, nothing
/// is known.
const AGES_BEYOND: usize = 8;

/// How many rows others lean on.
const PARENTS: usize = GAPS + 3;

/// Whose counts a row leans on where its own are few: all of the same gap, all that were asked for once, or written
/// once, or written more often and never asked for.
fn parent(row: usize) -> usize {
    if row < OFTEN {
        GAPS + row / GROUPS
    } else if row < WRITTEN_OFTEN {
        (row - OFTEN) % GAPS
    } else {
        GAPS + 2
    }
}

/// What is expected of keys at ages at which few of their feature were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// What is expected of others: after long silence a loop comes round.
    Others,
    /// As much less than of others as they came less often at the ages below: who has died doesn't come again.
    Learned,
}

impl Tail {
    /// Both.
    pub const ALL: [Tail; 2] = [Tail::Others, Tail::Learned];
}

/// How [`DensityModel`] learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DensityConfig {
    /// What a window weighs one window later, 0 to 1.
    pub decay: f32,
}

impl Default for DensityConfig {
    fn default() -> Self {
        DensityConfig { decay: 0.7 }
    }
}

/// A sampled key.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// When it was last accessed, as [`when`] tells it.
    last: u32,
    feature: Feature,
}

/// The time of which only the lower half was kept, at most 2^32 ticks before `now`: who was silent for longer is long
/// forgotten.
#[inline]
pub(super) fn when(last: u32, now: u64) -> u64 {
    now.saturating_sub((now as u32).wrapping_sub(last).into())
}

/// Learns densities from sampled accesses. See the file's opening.
#[derive(Clone, Debug)]
pub struct DensityModel {
    config: DensityConfig,
    /// By feature, what was seen of it.
    rows: Vec<Row>,
    /// By range of the number of requests: those of all ages.
    numbers: [Count; NUMBERS],
    seen: KeyMap<Seen>,
    /// When the last window ended: the time up to which the ages of keys that were not accessed since are counted.
    counted: u64,
    /// The latest access that was told.
    latest: u64,
}

impl DensityModel {
    /// A model that has seen nothing.
    ///
    /// # Errors
    /// [`ConfigError::Decay`] for a decay outside [0, 1].
    pub fn new(config: DensityConfig) -> Result<Self, ConfigError> {
        if !(0.0..=1.0).contains(&config.decay) {
            return Err(ConfigError::Decay(f64::from(config.decay)));
        }
        let (rows, numbers) = (vec![Row::default(); FEATURES], [Count::NONE; NUMBERS]);
        Ok(DensityModel { config, rows, numbers, seen: KeyMap::default(), counted: 0, latest: 0 })
    }

    /// A key of the sample was accessed at `now`, in ticks; `feature` is what it has shown with this access. It may be
    /// told late, of a key of which nothing later is known.
    pub fn record(&mut self, key: KeyHash, op: Op, now: u64, feature: Feature) {
        self.latest = self.latest.max(now);
        let shown = Seen { last: now as u32, feature };
        let Some(seen) = self.seen.get_mut(&key) else {
            if op != Op::Delete {
                self.seen.insert(key, shown);
            }
            return;
        };
        let last = when(seen.last, self.latest);
        let Some(age) = now.checked_sub(last) else { return };
        let before = std::mem::replace(seen, shown);
        let from = self.counted.saturating_sub(last);
        let (row, number) = (&mut self.rows[before.feature.row()], &mut self.numbers[before.feature.number()]);
        row.expose_or_retract(from, age);
        number.ticks = (number.ticks + (age as i64 - from as i64) as f32).max(0.0);
        for count in [row.at(age_bucket(age)), number] {
            count.accesses += 1.0;
            count.reads += f32::from(u8::from(op == Op::Read));
        }
        // Who was told late has grown older since then, up to where ages are counted.
        let grown = self.counted.saturating_sub(now);
        if grown > 0 && op != Op::Delete {
            self.rows[feature.row()].expose(0, grown);
            self.numbers[feature.number()].ticks += grown as f32;
        }
        if op == Op::Delete {
            self.seen.remove(&key);
        }
    }

    /// True of a key that was accessed before and is remembered.
    pub fn knows(&self, key: KeyHash) -> bool {
        self.seen.contains_key(&key)
    }

    /// Accesses to sampled keys that had been accessed before, older windows less.
    pub fn returns(&self) -> f32 {
        self.numbers.iter().map(|count| count.accesses).sum()
    }

    /// Keys it remembers.
    pub fn sampled_keys(&self) -> usize {
        self.seen.len()
    }

    /// Forgets the keys that are in the sample no more, and gives back their memory.
    pub fn retain(&mut self, takes: impl Fn(KeyHash) -> bool) {
        self.seen.retain(|&key, _| takes(key));
        self.seen.shrink_to_fit();
    }

    /// Ends a window at `now`: the table of what was learned, by which all is forgotten a little, and keys not asked
    /// for in `forget_after` ticks wholly.
    pub fn end_window(&mut self, now: u64, forget_after: u64) -> DensityTable {
        let [table] = self.end_part(1.0, now, forget_after, [Tail::Others]);
        table
    }

    /// The same where only `part` of a window has passed, 0 to 1, since the last of these: as much less is forgotten. A
    /// table for each of these tails.
    pub fn end_part<const N: usize>(
        &mut self,
        part: f32,
        now: u64,
        forget_after: u64,
        tails: [Tail; N],
    ) -> [DensityTable; N] {
        let (rows, numbers, counted) = (&mut self.rows, &mut self.numbers, self.counted);
        self.seen.retain(|_, seen| {
            let last = when(seen.last, now);
            let (from, age) = (counted.saturating_sub(last), now - last);
            rows[seen.feature.row()].expose(from, age);
            numbers[seen.feature.number()].ticks += (age - from) as f32;
            age < forget_after
        });
        self.counted = now;
        rows.iter_mut().for_each(Row::add_up);
        let tables = tails.map(|tail| self.table(tail));
        let decay = self.config.decay.powf(part);
        self.rows.iter_mut().for_each(|row| row.fade(decay));
        self.numbers.iter_mut().for_each(|count| count.fade(decay));
        tables
    }

    /// What was counted up to the end of the last part, without what is next to nothing: row and age as one number,
    /// behind them the ranges of the number of requests, then accesses, reads and ticks.
    pub(super) fn counts(&self) -> Vec<(u32, [f32; 3])> {
        let known = |(i, count): (usize, Count)| {
            let is_something = count.accesses + count.ticks > COUNT_MIN;
            is_something.then_some((i as u32, [count.accesses, count.reads, count.ticks]))
        };
        self.rows.iter().flat_map(Row::all_ages).chain(self.numbers).enumerate().filter_map(known).collect()
    }

    /// Counts on from what another has counted, and forgets its own. What can't be is left out.
    pub(super) fn begin_with(&mut self, counts: &[(u32, [f32; 3])]) -> DensityTable {
        self.rows.fill(Row::default());
        self.numbers.fill(Count::NONE);
        self.seen = KeyMap::default();
        (self.counted, self.latest) = (0, 0);
        for &(i, [accesses, reads, ticks]) in counts {
            let can_be = [accesses, reads, ticks].iter().all(|n| n.is_finite() && *n >= 0.0) && reads <= accesses;
            if !can_be {
                continue;
            }
            let held = match self.rows.get_mut(i as usize / AGES) {
                Some(row) => Some(row.at(i as usize % AGES)),
                None => self.numbers.get_mut(i as usize - FEATURES * AGES),
            };
            if let Some(held) = held {
                *held = Count::of(accesses, reads, ticks);
            }
        }
        self.table(Tail::Others)
    }

    fn table(&self, tail: Tail) -> DensityTable {
        let (mut all, mut parents) = ([Count::NONE; AGES], [[Count::NONE; AGES]; PARENTS]);
        for (i, row) in self.rows.iter().enumerate() {
            for ((count, all), parent) in row.counts().iter().zip(&mut all).zip(&mut parents[parent(i)]) {
                all.add(count);
                parent.add(count);
            }
        }
        let oldest = self.rows.iter().map(|row| row.counts().len()).max().unwrap_or(0);
        let ages = (oldest + AGES_BEYOND).min(AGES);
        let all = leaning(&all[..ages], &prior(), (tail, ages));
        let parents = parents.map(|counts| leaning(&counts[..ages], &all, (tail, ages)));
        // What was never seen is expected to be as its parent: the same for all of one parent.
        let mut unseen = [None; PARENTS];
        let n_rows = self.rows.iter().filter(|row| !row.is_empty()).count() + PARENTS;
        let mut table = DensityTable::with_room_for(FEATURES, (n_rows.min(FEATURES), ages), self.rates());
        for (i, row) in self.rows.iter().enumerate() {
            let (counts, expected) = (row.counts(), &parents[parent(i)]);
            let of_row = |expected: &Rates| leaning(counts, expected, (tail, ages));
            match unseen[parent(i)] {
                Some(like) if row.is_empty() => table.push_again(like),
                _ if row.is_empty() => {
                    unseen[parent(i)] = Some(i);
                    table.push(&of_row(expected)[..ages]);
                }
                _ if i < OFTEN => table.push(&of_row(&as_seldom(counts, expected))[..ages]),
                _ => table.push(&of_row(expected)[..ages]),
            }
        }
        table
    }

    /// Reads per tick by range of the number of requests. Where few were seen of a number its rate leans on one that is
    /// in proportion to the number.
    fn rates(&self) -> [f32; NUMBERS] {
        let (mut reads, mut due) = (PRIOR_ACCESSES, PRIOR_ACCESSES);
        for (number, count) in self.numbers.iter().enumerate() {
            reads += count.reads;
            due += count.ticks * requests_from(number);
        }
        std::array::from_fn(|number| {
            let (count, expected) = (&self.numbers[number], reads / due * requests_from(number));
            (count.reads + PRIOR_ACCESSES) / (count.ticks + PRIOR_ACCESSES / expected)
        })
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.rows.iter().map(Row::memory_bytes).sum::<usize>()
            + self.seen.memory_bytes()
    }
}

fn prior() -> Rates {
    let middle = |(first, width): (u64, u64)| first as f32 + width as f32 / 2.0;
    std::array::from_fn(|bucket| Rate { hazard: PRIOR_HAZARD / middle(bounds_of(bucket)), reads: 1.0 })
}

/// Rates of so many ages, from counts of the first of them, leaning on a parent's where counts are few (the mean of a
/// Gamma, and of a Beta, prior of the parent's mean). By a learned tail that is times what came of what was due, by the
/// parent's rates, at the ages below.
fn leaning(counts: &[Count], parent: &Rates, (tail, ages): (Tail, usize)) -> Rates {
    let (mut came, mut due) = (PRIOR_DUE, PRIOR_DUE);
    let mut rates = [Rate::default(); AGES];
    for (bucket, (rate, parent)) in rates.iter_mut().zip(parent).take(ages).enumerate() {
        let count = counts.get(bucket).unwrap_or(&Count::NONE);
        let expected = match tail {
            Tail::Others => parent.hazard,
            Tail::Learned => parent.hazard * (came / due).min(1.0),
        };
        came = PRIOR_DUE + DUE_KEPT * (came - PRIOR_DUE) + count.accesses;
        due = PRIOR_DUE + DUE_KEPT * (due - PRIOR_DUE) + count.ticks * parent.hazard;
        *rate = Rate {
            hazard: (count.accesses + PRIOR_ACCESSES) / (count.ticks + PRIOR_ACCESSES / expected),
            reads: (count.reads + PRIOR_ACCESSES * parent.reads) / (count.accesses + PRIOR_ACCESSES),
        };
    }
    rates
}

/// What is expected of a group whose keys come back less often than the parent's where both were seen: as much less
/// at all ages (proportional hazards, Cox 1972). Without it a burst of expensive keys that never come again would be
/// worth keeping for the ages that nobody has seen of them yet. Never more than the parent's.
fn as_seldom(counts: &[Count], parent: &Rates) -> Rates {
    let seen: f32 = counts.iter().map(|count| count.accesses).sum();
    let expected: f32 = counts.iter().zip(parent).map(|(count, rate)| count.ticks * rate.hazard).sum();
    let ratio = ((seen + PRIOR_ACCESSES) / (expected + PRIOR_ACCESSES)).min(1.0);
    parent.map(|rate| Rate { hazard: rate.hazard * ratio, ..rate })
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::*;
    use crate::random::Random;

    const FADING: f32 = 1e-6;

    fn key(i: u64) -> KeyHash {
        KeyHash::of_number(i)
    }

    /// The history of a key that was accessed after these gaps.
    fn accessed(gaps: &[u64]) -> History {
        gaps.iter().fold(History::default(), |history, &gap| history.accessed(gap, 0, FADING))
    }

    fn model() -> DensityModel {
        DensityModel::new(DensityConfig::default()).unwrap()
    }

    /// A key that was accessed twice.
    fn twice() -> Feature {
        accessed(&[0, 1]).feature(0)
    }

    /// Of keys asked for every 100 ticks and of keys never accessed again, the first are dense until 100 and the
    /// others never.
    #[test]
    fn what_comes_again_is_dense_until_it_is_overdue() {
        let mut model = model();
        let mut histories = [History::default(); 50];
        for now in 0..20_000_u64 {
            let i = (now % 100) as usize;
            match histories.get_mut(i) {
                Some(history) => {
                    *history = history.accessed(100, now as u32, FADING);
                    model.record(key(i as u64), Op::Read, now, history.feature(0));
                }
                None => model.record(key(now), Op::Read, now, accessed(&[0]).feature(0)),
            }
        }
        let table = model.end_window(20_000, 1 << 20);
        let density = |feature, age| table.density(feature, age);
        let (loops, once) = (histories[0].feature(0), accessed(&[0]).feature(0));
        assert!((density(loops, 50) - 1.0 / 50.0).abs() < 0.006, "{}", density(loops, 50));
        assert!(density(loops, 90) > density(loops, 10), "nearer");
        assert!(density(loops, 1_000) < density(loops, 50) / 10.0, "overdue");
        assert!(density(once, 50) < density(loops, 50) / 5.0, "{}", density(once, 50));
        // 40 ticks are left of the 60 or so until it comes.
        let short = table.part_until(loops, 50, 10);
        assert!(short < 0.4 && short > 0.0);
        assert_eq!(table.part_until(loops, 50, 1 << 30), 1.0);
    }

    /// Half of the accesses to known keys are told only before the next to their key, and their keys were counted as
    /// older meanwhile: in the end the same is known.
    #[test]
    fn what_is_told_late_counts_as_if_it_were_told_at_once() {
        let learned = |late: bool| {
            let mut model = DensityModel::new(DensityConfig { decay: 1.0 }).unwrap();
            let (mut random, mut waiting) = (Random::new(1), [None; 200]);
            for now in 0..20_000_u64 {
                let (i, number) = (random.below(200), random.below(5));
                let feature = accessed(&[0, 1, 50, 50, 50][..=number as usize]).feature(0);
                let told = (key(i), Op::Read, now, feature);
                let before = waiting[i as usize].take();
                let is_late = random.below(2) == 0 && late && model.knows(key(i));
                if is_late {
                    waiting[i as usize] = Some(told);
                }
                for (key, op, at, feature) in before.into_iter().chain((!is_late).then_some(told)) {
                    model.record(key, op, at, feature);
                }
                if now % 500 == 0 {
                    model.end_part(0.1, now, 1 << 20, [Tail::Others]);
                }
            }
            waiting.into_iter().flatten().for_each(|(key, op, at, feature)| model.record(key, op, at, feature));
            model.end_part(0.1, 20_000, 1 << 20, [Tail::Others]);
            model.counts()
        };
        let (at_once, late) = (learned(false), learned(true));
        assert!(at_once.len() > 50 && at_once == late, "{at_once:?}\n{late:?}");
    }

    /// A burst of keys that don't come again lowers what is expected of such keys while they are still there, not
    /// only once they are forgotten.
    #[test]
    fn silence_is_learned_from() {
        let mut model = model();
        let once = accessed(&[0]).feature(0);
        (0..1000).for_each(|i| model.record(key(i), Op::Read, i, once));
        let before = model.clone().end_window(1000, 1 << 20).density(once, 2000);
        let after = model.end_window(5000, 1 << 20).density(once, 2000);
        assert!(after < before / 4.0, "{after} against {before}");
    }

    /// Of two groups one comes again and one doesn't: nobody expects the second to at ages that neither has reached.
    #[test]
    fn a_group_that_never_comes_again_is_not_expected_to_later() {
        let mut model = model();
        let once = |group| accessed(&[0]).feature(group);
        for now in 0..10_000 {
            let (number, group) = if now % 2 == 0 { (now % 500, 0) } else { (now, 1) };
            model.record(key(number), Op::Read, now, once(group));
        }
        let table = model.end_window(10_000, 1 << 20);
        let (comes, stays_away) = (table.density(once(0), 100_000), table.density(once(1), 100_000));
        assert!(stays_away < comes / 30.0, "{stays_away} against {comes}");
    }

    #[test]
    fn a_smaller_sample_takes_less_memory() {
        let mut model = model();
        (0..10_000).for_each(|i| model.record(key(i), Op::Read, i, accessed(&[0]).feature(0)));
        let before = model.memory_bytes();
        model.retain(|held| (0..2_500).any(|i| key(i) == held));
        assert_eq!(model.sampled_keys(), 2_500);
        assert!(model.memory_bytes() < before / 2, "{} of {before}", model.memory_bytes());
    }

    /// Each key is read twice, one after the other, and never again: who was read once comes at once, and who was read
    /// twice doesn't come for having been read twice as often. Nobody was read more often: in proportion to the number.
    #[test]
    fn how_soon_keys_come_that_were_accessed_so_often_is_learned() {
        let mut histories = vec![History::default()];
        (1..=16).for_each(|now| histories.push(histories[now as usize - 1].accessed(1, now, FADING)));
        let mut model = model();
        (0..10_000).for_each(|i| model.record(key(i / 2), Op::Read, i, histories[(1 + i % 2) as usize].feature(0)));
        let table = model.end_window(10_000, 1 << 20);
        let rate = |requests: usize| table.rate(histories[requests].feature(0));
        assert!(rate(1) > 0.1 && rate(2) < 1e-5, "{} and {}", rate(1), rate(2));
        let ratio = rate(16) / rate(8);
        assert!((ratio - 2.0).abs() < 0.3, "{ratio}");
    }

    #[test]
    fn writes_end_a_stay_and_pay_nothing() {
        let learned = |op| {
            let mut model = model();
            let mut random = Random::new(1);
            for now in 0..50_000 {
                model.record(key(random.below(64)), op, now, twice());
            }
            model.end_window(50_000, 1 << 20).density(twice(), 32)
        };
        let (read, written) = (learned(Op::Read), learned(Op::Write));
        assert!((read - 1.0 / 64.0).abs() < 0.002, "{read}");
        assert!(written < read / 100.0, "{written}");
    }

    #[test]
    fn a_decay_out_of_range_is_refused_and_an_empty_table_is_empty() {
        assert!(DensityModel::new(DensityConfig { decay: 1.5 }).is_err());
        assert!(DensityTable::default().is_empty());
        assert_eq!(DensityTable::default().density(twice(), 9), 0.0);
    }
}
