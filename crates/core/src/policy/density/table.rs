//! The table of densities: by feature and age, what keeping a key a little longer saves per unit of time. The worker
//! makes one four times a window; then it is only read.
//!
//! Source: the index of Gittins (1979) for one arm that pays once, when its key is read again: the largest, over all
//! horizons, of the chance of a read within the horizon to the expected time until then. Ages are log-spaced, four
//! buckets an octave, in the caller's ticks: ms, requests, any. Cost: O(ages) for each feature to make; a look-up is
//! one logarithm of an integer and two reads. 3 bytes for each age, up to beyond the oldest seen, of each feature that
//! was seen: features that were not share those of the feature that they are expected to be like. 1 KiB has the rates
//! by number of requests.

use super::history::{Feature, NUMBERS, STEPS_PER_NUMBER};

/// Buckets of ages: exact below 4, four an octave above, the last without end.
pub(super) const AGES: usize = 124;

#[inline]
pub(super) fn age_bucket(age: u64) -> usize {
    if age < 4 {
        return age as usize;
    }
    let octave = u64::from(age.ilog2());
    ((octave * 4 + (age >> (octave - 2)) - 8) as usize).min(AGES - 1)
}

/// First age of a bucket, and how many ages it has.
pub(super) const fn bounds_of(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < 4 {
        return (bucket, 1);
    }
    let octave = bucket / 4 + 1;
    ((4 + bucket % 4) << (octave - 2), 1 << (octave - 2))
}

/// What happens at one age.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// Accesses per tick.
    pub hazard: f32,
    /// Of them, the share of reads.
    pub reads: f32,
}

/// The rates of a feature, by age.
pub(super) type Rates = [Rate; AGES];

/// What lies ahead of a key up to some horizon.
#[derive(Clone, Copy, Debug, Default)]
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

/// 1 - e^-x of x >= 0. Not 1 less e^-x: of what is hardly ever accessed nothing would be left. e^-x is 2^-n, of a whole
/// n, times e^-r, of r below ln 2, and 1 - e^-r is a series. Within 10^-6 of it, and without a branch.
#[inline]
fn chance_within(x: f32) -> f32 {
    let octaves = (x * std::f32::consts::LOG2_E).min(126.0);
    let whole = octaves as i32;
    let rest = (octaves - whole as f32) * std::f32::consts::LN_2;
    let series = 1.0 / 24.0 - rest * (1.0 / 120.0 - rest * (1.0 / 720.0 - rest * (1.0 / 5040.0 - rest / 40320.0)));
    let of_rest = rest * (1.0 - rest * (0.5 - rest * (1.0 / 6.0 - rest * series)));
    let survives = f32::from_bits(((127 - whole) << 23) as u32);
    (1.0 - survives) + survives * of_rest
}

/// What lies ahead within each bucket.
fn stretches(rates: &[Rate]) -> [Stretch; AGES] {
    let mut stretches = [Stretch::default(); AGES];
    for (bucket, (stretch, (rate, width))) in stretches.iter_mut().zip(rates.iter().zip(WIDTHS)).enumerate() {
        let accessed = chance_within(rate.hazard * width);
        let (gain, ticks) = (accessed * rate.reads, accessed / rate.hazard);
        *stretch = Stretch { gain, ticks, survival: 1.0 - accessed, last: bucket as u8 };
    }
    stretches
}

/// How many ages each bucket has.
const WIDTHS: [f32; AGES] = {
    let (mut widths, mut bucket) = ([0.0; AGES], 0);
    while bucket < AGES {
        widths[bucket] = bounds_of(bucket).1 as f32;
        bucket += 1;
    }
    widths
};

/// By age, the largest gain per tick over any horizon of whole buckets. From the oldest age back, a stretch takes in
/// the next as long as that pays more than itself: those taken in are then the best horizon (the concave hull of gain
/// by time). O(ages).
fn indices(rates: &[Rate]) -> [Index; AGES] {
    let mut indices = [Index::default(); AGES];
    // The stretches ahead that were not taken in, the nearest last, lie where the buckets were that are done with.
    let mut stretches = stretches(rates);
    let ages = rates.len();
    let mut ahead = ages;
    for bucket in (0..ages).rev() {
        let mut own = stretches[bucket];
        while let Some(next) = stretches[..ages].get(ahead).filter(|next| next.gain * own.ticks > own.gain * next.ticks)
        {
            own = Stretch {
                gain: own.gain + own.survival * next.gain,
                ticks: own.ticks + own.survival * next.ticks,
                survival: own.survival * next.survival,
                last: next.last,
            };
            ahead += 1;
        }
        indices[bucket] = Index { density: own.gain / own.ticks, last: own.last };
        ahead -= 1;
        stretches[ahead] = own;
    }
    indices
}

#[derive(Clone, Copy, Debug, Default)]
struct Index {
    density: f32,
    /// The bucket that the best horizon ends with.
    last: u8,
}

/// The upper half of a number in single precision: within a 256th of it, and above 0 where that is.
#[derive(Clone, Copy, Debug)]
struct Half(u16);

impl Half {
    #[inline]
    fn of(number: f32) -> Half {
        Half(((number.to_bits() + (1 << 15)) >> 16) as u16)
    }

    #[inline]
    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Densities by feature and age, made four times a window and then only read, by any thread. A look-up is one logarithm
/// of an integer and two reads.
#[derive(Clone, Debug, Default)]
pub struct DensityTable {
    /// The row of each feature; empty before the first.
    rows: Vec<u8>,
    /// How many ages are told apart, the last without end.
    ages: usize,
    /// By row, then age.
    densities: Vec<Half>,
    /// The same: the bucket that the best horizon ends with.
    lasts: Vec<u8>,
    /// Reads per tick by how often a key was accessed, in sixteenths of an octave.
    rates: Vec<f32>,
}

impl DensityTable {
    /// A table that is to have so many features, of so many rows and ages. `rates` are those where each range of the
    /// number of requests begins, in reads per tick, above 0; between two lie powers of their ratio.
    pub(super) fn with_room_for(features: usize, (rows, ages): (usize, usize), rates: [f32; NUMBERS]) -> Self {
        let between = |steps: usize| {
            let (number, part) =
                (steps / STEPS_PER_NUMBER, (steps % STEPS_PER_NUMBER) as f32 / STEPS_PER_NUMBER as f32);
            rates[number] * (rates[(number + 1).min(NUMBERS - 1)] / rates[number]).powf(part)
        };
        DensityTable {
            rows: Vec::with_capacity(features),
            ages,
            densities: Vec::with_capacity(rows * ages),
            lasts: Vec::with_capacity(rows * ages),
            rates: (0..NUMBERS * STEPS_PER_NUMBER).map(between).collect(),
        }
    }

    /// Adds the next feature, of these rates: as many as there are ages.
    pub(super) fn push(&mut self, rates: &[Rate]) {
        debug_assert_eq!(rates.len(), self.ages);
        let row = u8::try_from(self.lasts.len() / self.ages).expect("there are fewer features than that");
        self.rows.push(row);
        for index in &indices(rates)[..self.ages] {
            self.densities.push(Half::of(index.density));
            self.lasts.push(index.last);
        }
    }

    /// Adds another that is like one that is there.
    pub(super) fn push_again(&mut self, feature: usize) {
        self.rows.push(self.rows[feature]);
    }

    /// True before anything was learned: another ranking has to do.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.rows.capacity()
            + self.densities.capacity() * size_of::<Half>()
            + self.lasts.capacity()
            + self.rates.capacity() * size_of::<f32>()
    }

    /// Reads to be expected per tick from keeping a key that has shown `feature` and was last accessed `age` ticks
    /// ago; above 0. 0 where the table is empty.
    #[inline]
    pub fn density(&self, feature: Feature, age: u64) -> f32 {
        self.place(feature, age).map_or(0.0, |place| self.densities[place].get())
    }

    /// Reads per tick of keys that were accessed as often, whatever their age; 0 where the table is empty.
    #[inline]
    pub fn rate(&self, feature: Feature) -> f32 {
        self.rates.get(feature.steps()).copied().unwrap_or(0.0)
    }

    /// What part of that is left of a key that expires `remaining` ticks from now, 0 to 1: what its best horizon has
    /// beyond that is taken off in proportion.
    #[inline]
    pub fn part_until(&self, feature: Feature, age: u64, remaining: u64) -> f32 {
        let Some(Index { last, .. }) = self.index(feature, age) else { return 0.0 };
        let (first, width) = bounds_of(usize::from(last));
        let horizon = (first + width).saturating_sub(age).max(1);
        remaining.min(horizon) as f32 / horizon as f32
    }

    /// Reads to be expected, at the most, of a key that has shown `feature` and stays from `age` until it is `until`
    /// ticks old; 0 where the table is empty. O(ages) at worst.
    pub fn reads_until(&self, feature: Feature, age: u64, until: u64) -> f32 {
        let (mut from, mut reads) = (age, 0.0);
        let (oldest, _) = bounds_of(AGES - 1);
        let until = if self.is_empty() { 0 } else { until.min(oldest) };
        while from < until {
            let Some(Index { density, last }) = self.index(feature, from) else { break };
            let (first, width) = bounds_of(usize::from(last));
            let to = (first + width).clamp(from + 1, until);
            reads += density * (to - from) as f32;
            from = to;
        }
        reads
    }

    /// Who is older than the ages that are told apart comes as often as the oldest of them. How long that holds is as
    /// little known as of any age that nobody was seen at: within its bucket.
    #[inline]
    fn index(&self, feature: Feature, age: u64) -> Option<Index> {
        let bucket = age_bucket(age);
        let last = |place: usize| if bucket < self.ages { self.lasts[place] } else { bucket as u8 };
        self.place(feature, age).map(|place| Index { density: self.densities[place].get(), last: last(place) })
    }

    /// Where a feature's age lies; `None` in an empty table.
    #[inline]
    fn place(&self, feature: Feature, age: u64) -> Option<usize> {
        self.rows.get(feature.row()).map(|&row| usize::from(row) * self.ages + age_bucket(age).min(self.ages - 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ages_fill_adjoining_buckets() {
        for bucket in 0..AGES {
            let (first, width) = bounds_of(bucket);
            assert_eq!((age_bucket(first), age_bucket(first + width - 1)), (bucket, bucket));
            assert_eq!(first + width, if bucket + 1 < AGES { bounds_of(bucket + 1).0 } else { 1 << 32 });
        }
        assert_eq!(age_bucket(u64::MAX), AGES - 1);
    }

    /// A key that is read once in 100 ticks at any age.
    #[test]
    fn reads_add_up_over_a_stay() {
        let feature = Feature::default();
        let rate = Rate { hazard: 0.01, reads: 1.0 };
        let mut table = DensityTable::with_room_for(0, (0, AGES), [1.0; NUMBERS]);
        (0..=feature.row()).for_each(|_| table.push(&[rate; AGES]));
        for (age, until, expected) in [(0, 50, 0.5), (40, 1_000, 9.6), (1_000, 1_000, 0.0), (7, 3, 0.0)] {
            let reads = table.reads_until(feature, age, until);
            assert!((reads - expected).abs() < 0.01 + 0.02 * expected, "{age} to {until}: {reads}");
        }
        assert_eq!(DensityTable::default().reads_until(feature, 0, 10), 0.0);
    }

    /// Three bytes for each age of each feature, and what is told is within a 256th of what was learned.
    #[test]
    fn densities_are_kept_in_half_of_their_bytes() {
        let (n_features, feature) = (20, Feature::default());
        let mut table = DensityTable::with_room_for(n_features, (n_features, AGES), [1.0; NUMBERS]);
        for hazard in (0..n_features).map(|i| 0.01 * 1.01_f32.powi(i as i32)) {
            table.push(&[Rate { hazard, reads: 1.0 }; AGES]);
        }
        assert_eq!(table.memory_bytes(), n_features * (3 * AGES + 1) + NUMBERS * STEPS_PER_NUMBER * size_of::<f32>());
        assert!((table.density(feature, 50) / 0.01 - 1.0).abs() < 1.0 / 256.0, "{}", table.density(feature, 50));
        let of_all = [f32::MIN_POSITIVE, 1e-30, 0.1, 1.0, 1.0 + 1.0 / 256.0, 1e9].map(|x| Half::of(x).get() / x);
        assert!(of_all.iter().all(|part| (part - 1.0).abs() <= 1.0 / 256.0), "{of_all:?}");
    }

    /// Nobody older than 112 ticks was seen: who is older is read as often as the oldest, and may still expire.
    #[test]
    fn who_is_older_than_all_that_were_seen_is_read_as_often() {
        let (feature, rate) = (Feature::default(), Rate { hazard: 0.01, reads: 1.0 });
        let ages = age_bucket(112) + 1;
        let mut table = DensityTable::with_room_for(0, (0, ages), [1.0; NUMBERS]);
        (0..=feature.row()).for_each(|_| table.push(&vec![rate; ages]));
        for (age, until, expected) in [(0, 1_000, 10.0), (300, 700, 4.0), (10_000, 20_000, 100.0)] {
            let reads = table.reads_until(feature, age, until);
            assert!((reads / expected - 1.0).abs() < 0.02, "{age} to {until}: {reads}");
        }
        assert_eq!(table.part_until(feature, 300, 5), 5.0 / 20.0, "of the ages 256 to 319, 20 are left");
    }

    /// However seldom keys are accessed, they are expected to be as often at each age, the first of one tick too.
    #[test]
    fn what_is_hardly_ever_accessed_has_a_density() {
        for hazard in [1e-6, 1e-9, 1e-12, 1e-30] {
            let indices = indices(&[Rate { hazard, reads: 0.5 }; AGES]);
            let is_as_seldom = |index: &Index| (index.density / (0.5 * hazard) - 1.0).abs() < 0.01;
            assert!(indices.iter().all(is_as_seldom), "{hazard}: {indices:?}");
        }
    }

    proptest! {
        /// Also of what is accessed once in 2^100 ticks.
        #[test]
        fn chances_are_those_of_the_library(exponent in -100.0f32..12.0) {
            let x = exponent.exp2();
            let exact = -(-f64::from(x)).exp_m1();
            prop_assert!((f64::from(chance_within(x)) / exact - 1.0).abs() < 1e-6, "{x}: {} {exact}", chance_within(x));
        }

        /// The index is the best of all horizons, tried one by one.
        #[test]
        fn no_horizon_is_better(hazards in prop::collection::vec((1u16..5000, 1u16..=1000), AGES)) {
            let rate = |&(hazard, reads)| {
                Rate { hazard: f32::from(hazard) / 10_000.0, reads: f32::from(reads) / 1000.0 }
            };
            let rates: Rates = std::array::from_fn(|age| rate(&hazards[age]));
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
                let found = indices[from];
                prop_assert!((f64::from(found.density) / best - 1.0).abs() < 1e-3, "{from}: {found:?} {best}");
            }
        }
    }
}
