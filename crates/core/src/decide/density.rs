//! Density: what keeping a key a little longer saves per unit of time, by what it has shown so far and by its age.
//!
//! Source: the index of Gittins (1979) for one arm that pays once, when its key is read again: the largest, over all horizons, of the chance of a
//! read within the horizon to the expected time until then. LHD (Beckmann et al., NSDI'18) ranks by such a density at a fixed horizon and
//! learns it from ages, as here. Derivation: docs/models.md, "Density".
//! Learned from a sample of the keys, evicted ones too, so that what eviction did is not learned. By *feature* (what a key has shown) and age it
//! counts accesses and the time that keys spent at that age; also of keys that were never asked for again, or a burst of those would look
//! like keys that aren't due yet. Ages are log-spaced, four buckets an octave, in the caller's ticks: ms, requests, any.
//! Cost: one look-up in a map per sampled access, O(features × ages + sampled keys) per window; 170 KiB for the table, 256 KiB and about 40 bytes per
//! sampled key for the model.

use crate::access::Op;
use crate::error::ConfigError;
use crate::model::key_map::{self, KeyMap};
use crate::units::KeyHash;

/// Buckets of ages: exact below 4, four an octave above, the last without end.
const AGES: usize = 124;

/// Gaps are remembered in eighths of an octave.
const GAP_STEPS: f32 = 8.0;
/// Gaps of one feature lie within an octave.
const GAP_STEPS_PER_FEATURE: u8 = 8;
const GAPS: usize = 256 / GAP_STEPS_PER_FEATURE as usize;
/// Ranges of the number of requests, from two on: 2, to 4, to 8, to 16, more.
const COUNTS: usize = 5;

/// Groups of keys that were seen once: of these nothing else is known, so what they have in common matters.
pub const GROUPS: usize = 16;

/// How many features there are.
pub const FEATURES: usize = GROUPS + COUNTS * GAPS;

/// A new gap weighs at least this against the smoothed one.
const GAP_WEIGHT_MIN: f32 = 0.25;

/// What a parent knows weighs as much as so many accesses seen.
const PRIOR_ACCESSES: f32 = 2.0;
/// Where nothing was seen at all, a key of age `t` is asked for at a rate of this / `t`: as likely as not before it is four times as old.
const PRIOR_HAZARD: f32 = 0.5;

/// Steps per doubling of the number of requests.
const STEPS: f32 = 16.0;
/// Steps per half of an octave, which is what outlines tell apart.
const STEPS_PER_HALF: u8 = 8;
/// More of them than 2, 4, 8 and 16 requests have: where a range of counts ends and the next begins.
const COUNT_STEPS: [u8; COUNTS - 1] = [21, 35, 50, 65];

const TABLED: usize = 256;
/// 2^-x for x in sixteenths.
const PART: [f32; TABLED] = {
    let mut part = [1.0; TABLED];
    let mut steps = 1;
    while steps < TABLED {
        // 2^(-1/16)
        part[steps] = part[steps - 1] * 0.957_603_3;
        steps += 1;
    }
    part
};
/// What one request adds to a number of requests of 2^x, in steps: log2(1 + 2^-x), by the series of ln((1 + z) / (1 - z)).
const MORE: [f32; TABLED] = {
    let mut more = [0.0; TABLED];
    let mut steps = 0;
    while steps < TABLED {
        let z = PART[steps] / (2.0 + PART[steps]);
        let zz = z * z;
        let series = z * (1.0 + zz * (1.0 / 3.0 + zz * (0.2 + zz * (1.0 / 7.0 + zz / 9.0))));
        more[steps] = 2.0 * series * std::f32::consts::LOG2_E * STEPS;
        steps += 1;
    }
    more
};

/// What a key has shown: how often and how fast it is asked for. 2 bytes, to be kept with the key, also beyond its eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// 0 = not asked for yet; else 1 more than log2 of its requests, in sixteenths. Older requests count for less.
    often: u8,
    /// Smoothed log2 of the time between two, in eighths.
    gap: u8,
}

impl History {
    /// The history after one more request at `now`, `gap` ticks after the last; of a key that had none, `gap` is not looked at. Requests count for
    /// less with time, for half after 1 / `fading` ticks. `now` decides which way a fraction of a step is rounded, so that the count is right in the
    /// mean. No logarithm is taken: of the gap it is linear within an octave, of the count it stands in a table.
    #[inline]
    pub fn asked(self, gap: u64, now: u32, fading: f32) -> History {
        let Some(steps) = self.often.checked_sub(1) else { return History { often: 1, gap: 0 } };
        let gap = gap.max(1) as f32;
        // Exponent and upper three bits of the mantissa, rounded: eighths of an octave.
        let shown = (((gap.to_bits() + (1 << 19)) >> 20) - (127 << 3)).min(255) as f32;
        let weight = PART[usize::from(steps)].max(GAP_WEIGHT_MIN);
        let smoothed = f32::from(self.gap) + weight * (shown - f32::from(self.gap));
        let faded = f32::from(steps) - gap * fading * STEPS;
        let fraction = (now.wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 24) as f32;
        let more = MORE[((faded.abs() + 0.5) as usize).min(TABLED - 1)];
        History { often: (faded.max(0.0) + more + fraction).clamp(1.0, 254.0) as u8 + 1, gap: (smoothed + 0.5) as u8 }
    }

    /// Requests, older ones less: rounded, and beyond a dozen within a few percent.
    pub fn n_requests(self) -> u32 {
        self.often.checked_sub(1).map_or(0, |steps| (f32::from(steps) / STEPS).exp2().round() as u32)
    }

    /// log2 of that, rounded down.
    #[inline]
    pub fn octave(self) -> u32 {
        u32::from(self.often.saturating_sub(1)) / STEPS as u32
    }

    /// Smoothed time between two requests, in ticks; `None` where there were fewer than two.
    pub fn gap_ticks(self) -> Option<f32> {
        (self.often > 1).then(|| (f32::from(self.gap) / GAP_STEPS).exp2())
    }

    /// Where it stands in the table. `group` is what keys that were seen once are told apart by, the penalty's class for one; taken modulo [`GROUPS`].
    #[inline]
    pub fn feature(self, group: u8) -> Feature {
        let steps = self.often.saturating_sub(1);
        let row = match steps {
            0 => usize::from(group) % GROUPS,
            _ => {
                let count = COUNT_STEPS.iter().filter(|&&most| steps > most).count();
                GROUPS + count * GAPS + usize::from(self.gap / GAP_STEPS_PER_FEATURE)
            }
        };
        Feature { row: row as u16, often: steps }
    }

    /// As ten bits: counts in halves of an octave, gaps in octaves. `seed` decides which way a fraction of a count is rounded.
    pub fn to_ten_bits(self, seed: u32) -> u16 {
        let fraction = (seed.wrapping_mul(0x9e37_79b9) >> 29) as u16;
        let halves = (u16::from(self.often.saturating_sub(1)) + fraction) / u16::from(STEPS_PER_HALF);
        halves.min(31) << 5 | u16::from(self.gap / GAP_STEPS_PER_FEATURE)
    }

    /// What the lower ten bits say, which [`History::to_ten_bits`] gave of a key that was asked for.
    #[inline]
    pub fn from_ten_bits(bits: u16) -> Self {
        let (halves, octave) = ((bits >> 5 & 31) as u8, (bits & 31) as u8);
        // A gap lies in the middle of its octave.
        let gap = octave * GAP_STEPS_PER_FEATURE + GAP_STEPS_PER_FEATURE / 2;
        History { often: halves * STEPS_PER_HALF + 1, gap: if halves == 0 { 0 } else { gap } }
    }

    /// As two bytes, for a table that keeps them.
    pub fn to_bits(self) -> u16 {
        u16::from_le_bytes([self.often, self.gap])
    }

    /// What [`History::to_bits`] gave.
    pub fn from_bits(bits: u16) -> Self {
        let [often, gap] = bits.to_le_bytes();
        History { often, gap }
    }
}

/// What ranking goes by of a history: which keys have shown alike, and how often this one was asked for. As text: `once, group 5`, or `5 to 8 times, every 2^9 ticks`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// Of the table, below [`FEATURES`].
    row: u16,
    /// log2 of its requests, in sixteenths.
    often: u8,
}

impl std::fmt::Display for Feature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(i) = usize::from(self.row).checked_sub(GROUPS) else { return write!(f, "once, group {}", self.row) };
        let times = ["2 times", "3 or 4 times", "5 to 8 times", "9 to 16 times", "more than 16 times"][i / GAPS];
        write!(f, "{times}, every 2^{} ticks", i % GAPS)
    }
}

impl Feature {
    /// How often it was asked for, older requests less; at least 1.
    #[inline]
    pub fn often(self) -> f32 {
        (f32::from(self.often) / STEPS).exp2()
    }
}

/// Whose counts a row leans on where its own are few: all of the same gap, or all that were seen once.
fn parent(row: usize) -> usize {
    if row < GROUPS { 0 } else { 1 + (row - GROUPS) % GAPS }
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

/// What was seen at one age.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Accesses of any kind: they end a stay.
    accesses: f32,
    /// Of them, reads: what a stay is for.
    reads: f32,
    /// Ticks that keys spent at this age.
    ticks: f32,
}

impl Count {
    fn add(&mut self, other: &Count) {
        self.accesses += other.accesses;
        self.reads += other.reads;
        self.ticks += other.ticks;
    }
}

/// A sampled key.
#[derive(Clone, Copy, Debug)]
struct Seen {
    last: u64,
    /// The time up to which its ages are counted.
    counted: u64,
    feature: Feature,
}

/// Learns densities from sampled accesses. See the file's opening.
#[derive(Clone, Debug)]
pub struct DensityModel {
    config: DensityConfig,
    /// By feature, then age.
    counts: Vec<Count>,
    seen: KeyMap<Seen>,
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
        Ok(DensityModel { config, counts: vec![Count::default(); FEATURES * AGES], seen: KeyMap::default() })
    }

    /// A key of the sample was accessed at `now`, in ticks that never decrease; `feature` is what it has shown with this access.
    pub fn record(&mut self, key: KeyHash, op: Op, now: u64, feature: Feature) {
        if let Some(seen) = self.seen.get(&key) {
            let counts = of_feature(&mut self.counts, seen.feature);
            let age = now - seen.last;
            expose(counts, seen.counted - seen.last, age);
            let count = &mut counts[age_bucket(age)];
            count.accesses += 1.0;
            count.reads += f32::from(u8::from(op == Op::Read));
        }
        if op == Op::Delete {
            self.seen.remove(&key);
        } else {
            self.seen.insert(key, Seen { last: now, counted: now, feature });
        }
    }

    /// Keys it remembers.
    pub fn sampled_keys(&self) -> usize {
        self.seen.len()
    }

    /// Forgets the keys that are in the sample no more.
    pub fn retain(&mut self, takes: impl Fn(KeyHash) -> bool) {
        self.seen.retain(|&key, _| takes(key));
    }

    /// Ends a window at `now`: the table of what was learned, by which all is forgotten a little, and keys not asked for in
    /// `forget_after` ticks wholly.
    pub fn end_window(&mut self, now: u64, forget_after: u64) -> DensityTable {
        for seen in self.seen.values_mut() {
            expose(of_feature(&mut self.counts, seen.feature), seen.counted - seen.last, now - seen.last);
            seen.counted = now;
        }
        self.seen.retain(|_, seen| now - seen.last < forget_after);
        let table = self.table();
        for count in &mut self.counts {
            count.accesses *= self.config.decay;
            count.reads *= self.config.decay;
            count.ticks *= self.config.decay;
        }
        table
    }

    fn table(&self) -> DensityTable {
        let mut all = [Count::default(); AGES];
        let mut parents = vec![[Count::default(); AGES]; 1 + GAPS];
        for (i, counts) in self.counts.chunks(AGES).enumerate() {
            let parent = &mut parents[parent(i)];
            for ((count, all), parent) in counts.iter().zip(&mut all).zip(parent) {
                all.add(count);
                parent.add(count);
            }
        }
        let all = leaning(&all, &prior());
        let parents: Vec<Vec<Rate>> = parents.iter().map(|counts| leaning(counts, &all)).collect();
        let of = |(i, counts): (usize, &[Count])| {
            let parent = &parents[parent(i)];
            if i < GROUPS {
                indices(&leaning(counts, &as_seldom(counts, parent)))
            } else {
                indices(&leaning(counts, parent))
            }
        };
        let mut table = Vec::with_capacity(self.counts.len());
        self.counts.chunks(AGES).enumerate().for_each(|counts| table.extend(of(counts)));
        DensityTable { indices: table }
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<Count>() + key_map::memory_bytes(&self.seen)
    }
}

fn of_feature(counts: &mut [Count], feature: Feature) -> &mut [Count] {
    &mut counts[usize::from(feature.row) * AGES..][..AGES]
}

/// Adds the ticks from age `from` to age `to` to their buckets.
fn expose(counts: &mut [Count], from: u64, to: u64) {
    let (mut bucket, mut at) = (age_bucket(from), from);
    while at < to {
        let (first, width) = bounds_of(bucket);
        let end = if bucket == AGES - 1 { to } else { to.min(first + width) };
        counts[bucket].ticks += (end - at) as f32;
        (bucket, at) = (bucket + 1, end);
    }
}

#[inline]
fn age_bucket(age: u64) -> usize {
    if age < 4 {
        return age as usize;
    }
    let octave = u64::from(age.ilog2());
    ((octave * 4 + (age >> (octave - 2)) - 8) as usize).min(AGES - 1)
}

/// First age of a bucket, and how many ages it has.
fn bounds_of(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < 4 {
        return (bucket, 1);
    }
    let octave = bucket / 4 + 1;
    ((4 + bucket % 4) << (octave - 2), 1 << (octave - 2))
}

/// What happens at one age.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Accesses per tick.
    hazard: f32,
    /// Of them, the share of reads.
    reads: f32,
}

fn prior() -> Vec<Rate> {
    let middle = |(first, width): (u64, u64)| first as f32 + width as f32 / 2.0;
    (0..AGES).map(|bucket| Rate { hazard: PRIOR_HAZARD / middle(bounds_of(bucket)), reads: 1.0 }).collect()
}

/// Rates from counts, leaning on a parent's where counts are few (the mean of a Gamma, and of a Beta, prior of the parent's mean).
fn leaning(counts: &[Count], parent: &[Rate]) -> Vec<Rate> {
    let rate = |(count, parent): (&Count, &Rate)| Rate {
        hazard: (count.accesses + PRIOR_ACCESSES) / (count.ticks + PRIOR_ACCESSES / parent.hazard),
        reads: (count.reads + PRIOR_ACCESSES * parent.reads) / (count.accesses + PRIOR_ACCESSES),
    };
    counts.iter().zip(parent).map(rate).collect()
}

/// What is expected of a group whose keys come back less often than the parent's where both were seen: as much less at all ages (proportional
/// hazards, Cox 1972). Without it a burst of dear keys that never come again would be worth keeping for the ages that nobody has seen of them
/// yet. Never more than the parent's.
fn as_seldom(counts: &[Count], parent: &[Rate]) -> Vec<Rate> {
    let seen: f32 = counts.iter().map(|count| count.accesses).sum();
    let expected: f32 = counts.iter().zip(parent).map(|(count, rate)| count.ticks * rate.hazard).sum();
    let ratio = ((seen + PRIOR_ACCESSES) / (expected + PRIOR_ACCESSES)).min(1.0);
    parent.iter().map(|rate| Rate { hazard: rate.hazard * ratio, ..*rate }).collect()
}

/// What lies ahead of a key up to some horizon.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Chance of a read.
    gain: f32,
    /// Expected ticks.
    ticks: f32,
    /// Chance that nothing happens.
    survival: f32,
    /// The bucket it ends with.
    last: u8,
}

/// By age, the largest gain per tick over any horizon of whole buckets. From the oldest age back, a stretch takes in the next
/// as long as that pays more than itself: those taken in are then the best horizon (the concave hull of gain by time). O(ages).
fn indices(rates: &[Rate]) -> Vec<Index> {
    let mut indices = vec![Index::default(); rates.len()];
    let mut ahead: Vec<Stretch> = Vec::new();
    for (bucket, rate) in rates.iter().enumerate().rev() {
        let survival = (-rate.hazard * bounds_of(bucket).1 as f32).exp();
        let accessed = 1.0 - survival;
        let (gain, ticks) = (accessed * rate.reads, accessed / rate.hazard);
        let mut own = Stretch { gain, ticks, survival, last: bucket as u8 };
        while let Some(next) = ahead.pop_if(|next| next.gain * own.ticks > own.gain * next.ticks) {
            own = Stretch {
                gain: own.gain + own.survival * next.gain,
                ticks: own.ticks + own.survival * next.ticks,
                survival: own.survival * next.survival,
                last: next.last,
            };
        }
        indices[bucket] = Index { density: own.gain / own.ticks, last: own.last };
        ahead.push(own);
    }
    indices
}

#[derive(Clone, Copy, Debug, Default)]
struct Index {
    density: f32,
    /// The bucket that the best horizon ends with.
    last: u8,
}

/// Densities by feature and age, made once a window and then only read, by any thread. A look-up is one logarithm of an integer and one read of 8 bytes.
#[derive(Clone, Debug, Default)]
pub struct DensityTable {
    /// By feature, then age; empty before the first.
    indices: Vec<Index>,
}

impl DensityTable {
    /// True before anything was learned: another ranking has to do.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.indices.capacity() * size_of::<Index>()
    }

    /// Reads to be expected per tick from keeping a key that has shown `feature` and was last asked for `age` ticks ago; above 0.
    /// 0 where the table is empty.
    #[inline]
    pub fn density(&self, feature: Feature, age: u64) -> f32 {
        self.index(feature, age).density
    }

    /// The same of a key that expires `remaining` ticks from now: what its best horizon has beyond that is taken off in proportion.
    #[inline]
    pub fn density_until(&self, feature: Feature, age: u64, remaining: u64) -> f32 {
        let Index { density, last } = self.index(feature, age);
        let (first, width) = bounds_of(usize::from(last));
        let horizon = (first + width).saturating_sub(age).max(1);
        density * (remaining.min(horizon) as f32 / horizon as f32)
    }

    #[inline]
    fn index(&self, feature: Feature, age: u64) -> Index {
        self.indices.get(usize::from(feature.row) * AGES + age_bucket(age)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    const FADING: f32 = 1e-6;
    const TWICE: Feature = Feature { row: GROUPS as u16, often: 16 };

    fn key(i: u64) -> KeyHash {
        KeyHash::of_number(i)
    }

    /// The history of a key that was asked for after these gaps.
    fn asked(gaps: &[u64]) -> History {
        gaps.iter().fold(History::default(), |history, &gap| history.asked(gap, 0, FADING))
    }

    fn model() -> DensityModel {
        DensityModel::new(DensityConfig::default()).unwrap()
    }

    #[test]
    fn ages_fill_adjoining_buckets() {
        for bucket in 0..AGES {
            let (first, width) = bounds_of(bucket);
            assert_eq!((age_bucket(first), age_bucket(first + width - 1)), (bucket, bucket));
            assert_eq!(first + width, if bucket + 1 < AGES { bounds_of(bucket + 1).0 } else { 1 << 32 });
        }
        assert_eq!(age_bucket(u64::MAX), AGES - 1);
    }

    /// Asked for at 0, 8 and 24: gaps 8 and 16, whose logarithms 3 and 4 have the mean 3.5.
    #[test]
    fn a_history_counts_and_smooths() {
        let history = asked(&[99, 8, 16]);
        assert_eq!(history.gap_ticks(), Some(2_f32.powf(3.5)));
        assert_eq!(History::from_bits(history.to_bits()), history);
        assert_eq!(asked(&[1]).gap_ticks(), None);
        let often = (0..1000).fold(History::default(), |history, now| history.asked(1 << 31, now, 0.0));
        assert!(usize::from(often.feature(0).row) < FEATURES);
        assert_eq!(asked(&[1]).feature(5).to_string(), "once, group 5");
        assert_eq!(history.feature(5).to_string(), "3 or 4 times, every 2^3 ticks");
        assert_eq!(often.feature(0).to_string(), "more than 16 times, every 2^31 ticks");
    }

    /// Every 8 ticks, a thousand times: what rounds up and what rounds down is even. Then with half-lives of 64 ticks: the sum over i of 2^(-i/8) is 12.05.
    #[test]
    fn requests_are_counted_in_the_mean_and_fade() {
        let count = |fading: f32| {
            let histories = (0..100_u32)
                .map(|first| (0..1000).fold(History::default(), |h, i| h.asked(8, 1009 * first + 8 * i, fading)));
            histories.map(|history| f64::from(history.n_requests())).sum::<f64>() / 100.0
        };
        assert!((count(0.0) / 1000.0 - 1.0).abs() < 0.1, "{}", count(0.0));
        assert!((count(1.0 / 64.0) - 12.05).abs() < 0.5, "{}", count(1.0 / 64.0));
    }

    /// Of keys asked for every 100 ticks and of keys never asked for again, the first are dense until 100 and the others never.
    #[test]
    fn what_comes_again_is_dense_until_it_is_overdue() {
        let mut model = model();
        let mut histories = [History::default(); 50];
        for now in 0..20_000_u64 {
            let i = (now % 100) as usize;
            match histories.get_mut(i) {
                Some(history) => {
                    *history = history.asked(100, now as u32, FADING);
                    model.record(key(i as u64), Op::Read, now, history.feature(0));
                }
                None => model.record(key(now), Op::Read, now, asked(&[0]).feature(0)),
            }
        }
        let table = model.end_window(20_000, 1 << 20);
        let density = |feature, age| table.density(feature, age);
        let (loops, once) = (histories[0].feature(0), asked(&[0]).feature(0));
        assert!((density(loops, 50) - 1.0 / 50.0).abs() < 0.006, "{}", density(loops, 50));
        assert!(density(loops, 90) > density(loops, 10), "nearer");
        assert!(density(loops, 1_000) < density(loops, 50) / 10.0, "overdue");
        assert!(density(once, 50) < density(loops, 50) / 5.0, "{}", density(once, 50));
        // 40 ticks are left of the 60 or so until it comes.
        let short = table.density_until(loops, 50, 10);
        assert!(short < 0.4 * density(loops, 50) && short > 0.0);
        assert_eq!(table.density_until(loops, 50, 1 << 30), density(loops, 50));
    }

    /// A burst of keys that don't come again lowers what is expected of such keys while they are still there, not only once they are forgotten.
    #[test]
    fn silence_is_learned_from() {
        let mut model = model();
        let once = asked(&[0]).feature(0);
        (0..1000).for_each(|i| model.record(key(i), Op::Read, i, once));
        let before = model.clone().end_window(1000, 1 << 20).density(once, 2000);
        let after = model.end_window(5000, 1 << 20).density(once, 2000);
        assert!(after < before / 4.0, "{after} against {before}");
    }

    /// Of two groups one comes again and one doesn't: nobody expects the second to at ages that neither has reached.
    #[test]
    fn a_group_that_never_comes_again_is_not_expected_to_later() {
        let mut model = model();
        let once = |group| asked(&[0]).feature(group);
        for now in 0..10_000 {
            let (number, group) = if now % 2 == 0 { (now % 500, 0) } else { (now, 1) };
            model.record(key(number), Op::Read, now, once(group));
        }
        let table = model.end_window(10_000, 1 << 20);
        let (comes, stays_away) = (table.density(once(0), 100_000), table.density(once(1), 100_000));
        assert!(stays_away < comes / 30.0, "{stays_away} against {comes}");
    }

    #[test]
    fn writes_end_a_stay_and_pay_nothing() {
        let learned = |op| {
            let mut model = model();
            let mut random = Random::new(1);
            for now in 0..50_000 {
                model.record(key(random.below(64)), op, now, TWICE);
            }
            model.end_window(50_000, 1 << 20).density(TWICE, 32)
        };
        let (read, written) = (learned(Op::Read), learned(Op::Write));
        assert!((read - 1.0 / 64.0).abs() < 0.002, "{read}");
        assert!(written < read / 100.0, "{written}");
    }

    #[test]
    fn a_decay_out_of_range_is_refused_and_an_empty_table_is_empty() {
        assert!(DensityModel::new(DensityConfig { decay: 1.5 }).is_err());
        assert!(DensityTable::default().is_empty());
        assert_eq!(DensityTable::default().density(TWICE, 9), 0.0);
    }

    proptest! {
        /// The index is the best of all horizons, tried one by one.
        #[test]
        fn no_horizon_is_better(hazards in prop::collection::vec((1u16..5000, 1u16..=1000), AGES)) {
            let rate = |&(hazard, reads)| Rate { hazard: f32::from(hazard) / 10_000.0, reads: f32::from(reads) / 1000.0 };
            let rates: Vec<Rate> = hazards.iter().map(rate).collect();
            let indices = indices(&rates);
            for from in [0, 3, 10, 40] {
                let (mut gain, mut ticks, mut survival, mut best) = (0.0_f64, 0.0_f64, 1.0_f64, 0.0_f64);
                for (bucket, rate) in rates.iter().enumerate().skip(from) {
                    let own = (-f64::from(rate.hazard) * bounds_of(bucket).1 as f64).exp();
                    gain += survival * (1.0 - own) * f64::from(rate.reads);
                    ticks += survival * (1.0 - own) / f64::from(rate.hazard);
                    survival *= own;
                    best = best.max(gain / ticks);
                }
                prop_assert!((f64::from(indices[from].density) / best - 1.0).abs() < 1e-3, "{from}: {:?} {best}", indices[from]);
            }
        }
    }
}
