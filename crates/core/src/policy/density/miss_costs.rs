//! What a miss of a key costs under Tenure's own policy: what was measured for the key, else its partition's mean.
//! Where many misses meet a fetch of the same key under way, the wait of all of them counts. All of it is multiplied
//! by the tenant's weight. If one key's measurements vary as much as different keys', as where a client fetches many
//! keys one after the other, the partition's mean counts.

use super::history::{Feature, History};
use super::ranks::history_of;
use crate::decide::delayed_hits::{DELAYED_MIN, aggregate_delay_us};
use crate::decide::penalty_class::penalty_class;
use crate::key_table::Entry;
use crate::units::{PARTITIONS_MAX, PartitionId};

/// Misses that the share of delayed ones is told by.
const MISSES_ENOUGH: u64 = 256;

/// Where a key that has shown `history` stands in the table: keys that were seen once are told apart by the class of
/// their penalty.
#[inline]
pub fn feature_of(history: History, penalty_us: f32) -> Feature {
    history.feature(penalty_class(f64::from(penalty_us)) as u8)
}

/// What a miss of a key that has shown `history` makes all wait who ask for it meanwhile, in µs.
#[inline]
pub(super) fn all_wait_us(penalty_us: f32, history: History, ticks_per_us: f64) -> f32 {
    let gap_us = history.gap_ticks().filter(|_| ticks_per_us > 0.0).map(|gap| gap / ticks_per_us as f32);
    aggregate_delay_us(penalty_us, gap_us)
}

/// How many of the misses find their key being fetched already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    misses: u64,
    delayed: u64,
    share: f64,
}

impl Delays {
    /// One more miss.
    pub fn count(&mut self, is_delayed: bool) {
        self.misses += 1;
        self.delayed += u64::from(is_delayed);
        if self.misses >= MISSES_ENOUGH {
            self.share = self.delayed as f64 / self.misses as f64;
            (self.misses, self.delayed) = (self.misses / 2, self.delayed / 2);
        }
    }

    /// Their share, of late, 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// True where they are so many that what others wait counts.
    pub fn count_for_something(&self) -> bool {
        self.share >= DELAYED_MIN
    }
}

/// Measures that are enough to tell noise by.
const MEASURES_ENOUGH: f64 = 200.0;
/// What one measure moves a mean by, of the difference, once there are enough.
const MEASURE_WEIGHT: f64 = 1.0 / 1024.0;
/// What two measures of one key differ by, squared, over what one is off by: 2 of the first two, 8/7 where one is
/// smoothed over many.
const PAIR: f64 = 1.5;
/// From here on a key's own measure is taken as it is.
const TRUSTED: f32 = 0.8;

/// How far measured penalties tell keys apart, over all partitions. Logarithms, since penalties differ by factors;
/// variances as Welford (1962) adds them up, late measures more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    measures: f64,
    pairs: f64,
    mean: f64,
    /// Squared difference from the mean.
    apart: f64,
    /// Squared difference from what was held of the same key.
    within: f64,
}

impl Noise {
    /// A penalty was measured, in µs, of a key of which `held_us` was known.
    pub fn measured(&mut self, us: f32, held_us: Option<f32>) {
        let log = f64::from(us.max(1.0)).ln();
        self.measures += 1.0;
        let off = log - self.mean;
        self.mean += off / self.measures.min(1.0 / MEASURE_WEIGHT);
        self.apart += (off * (log - self.mean) - self.apart) / self.measures.min(1.0 / MEASURE_WEIGHT);
        if let Some(held_us) = held_us {
            self.pairs += 1.0;
            let off = log - f64::from(held_us.max(1.0)).ln();
            self.within += (off * off - self.within) / self.pairs.min(1.0 / MEASURE_WEIGHT);
        }
    }

    /// All that it knows, for another server.
    pub fn to_numbers(&self) -> [f64; 5] {
        [self.measures, self.pairs, self.mean, self.apart, self.within]
    }

    /// What [`Noise::to_numbers`] told; `None` where that can't be.
    pub fn from_numbers([measures, pairs, mean, apart, within]: [f64; 5]) -> Option<Noise> {
        let can_be = [measures, pairs, apart, within].iter().all(|n| n.is_finite() && *n >= 0.0) && mean.is_finite();
        can_be.then_some(Noise { measures, pairs, mean, apart, within })
    }

    /// What part of the difference (of logarithms) between a key's own penalty and its partition's is real, 0 to 1:
    /// the share of the variance that is between keys. 1 while too little was measured.
    pub fn trust(&self) -> f32 {
        if self.pairs < MEASURES_ENOUGH || self.apart == 0.0 {
            return 1.0;
        }
        let trust = (1.0 - self.within / (PAIR * self.apart)).clamp(0.0, 1.0) as f32;
        if trust > TRUSTED { 1.0 } else { trust }
    }
}

/// What is known of all keys together. See the file's opening.
#[derive(Clone, Debug)]
pub struct MissCosts {
    /// Mean miss penalty by partition, in µs; 1 where none is known.
    pub penalty_us: [f32; PARTITIONS_MAX],
    /// How much misses count, by partition.
    pub weight: [f32; PARTITIONS_MAX],
    /// Fetches meet.
    pub are_delayed: bool,
    /// What a key's own penalty tells: see [`Noise::trust`].
    pub trust: f32,
}

impl Default for MissCosts {
    fn default() -> Self {
        MissCosts { penalty_us: [1.0; PARTITIONS_MAX], weight: [1.0; PARTITIONS_MAX], are_delayed: false, trust: 1.0 }
    }
}

impl MissCosts {
    /// Takes what was measured last.
    pub fn take(&mut self, penalty_us: [f32; PARTITIONS_MAX], delays: Delays, noise: &Noise) {
        self.penalty_us = penalty_us;
        self.trust = noise.trust();
        self.are_delayed = delays.count_for_something();
    }

    /// What a key has shown, and what a miss of it costs, in µs, times its tenant's weight. Of a key that isn't
    /// remembered, that of its partition.
    #[inline]
    pub fn of(&self, entry: Option<&Entry>, partition: PartitionId, ticks_per_us: f64) -> (Feature, f32) {
        let mean_us = self.penalty_us[partition.index()];
        let penalty_us = match entry.and_then(Entry::penalty_us) {
            Some(own_us) if self.trust < 1.0 && mean_us > 1.0 => mean_us * (own_us / mean_us).powf(self.trust),
            Some(own_us) => own_us,
            None => mean_us,
        };
        let history = history_of(entry);
        let costs_us = if self.are_delayed { all_wait_us(penalty_us, history, ticks_per_us) } else { penalty_us };
        (feature_of(history, penalty_us), costs_us * self.weight[partition.index()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_table::KeyTable;
    use crate::units::KeyHash;

    #[test]
    fn the_keys_own_penalty_counts_and_else_its_partitions() {
        let mut table = KeyTable::new(4096);
        let entry = table.get_or_insert(KeyHash::of_number(1), 0);
        entry.learn_penalty(1000.0);
        entry.set_history(History::default().accessed(0, 0, 1e-6).accessed(8, 8, 1e-6));
        let mut costs = MissCosts::default();
        costs.penalty_us[3] = 50.0;
        let us = |costs: &MissCosts, entry| costs.of(entry, PartitionId(3), 0.01).1;
        assert_eq!(us(&costs, None), 50.0);
        assert!((us(&costs, Some(entry)) - 1000.0).abs() < 1.0);
        // Every 8 ticks of 100 µs: one more comes while it is fetched, and waits for half of that in the mean.
        costs.are_delayed = true;
        assert!((us(&costs, Some(entry)) - 1625.0).abs() < 2.0);
        assert_eq!(us(&costs, None), 50.0);
        costs.weight[3] = 4.0;
        assert_eq!(us(&costs, None), 200.0);
    }

    #[test]
    fn delays_count_where_they_are_many() {
        let (mut delays, mut costs) = (Delays::default(), MissCosts::default());
        (0..1000).for_each(|i| delays.count(i % 10 == 0));
        assert!((delays.share() - 0.1).abs() < 0.02);
        costs.take([1.0; PARTITIONS_MAX], delays, &Noise::default());
        assert!(costs.are_delayed);
        (0..3000).for_each(|_| delays.count(false));
        costs.take([1.0; PARTITIONS_MAX], delays, &Noise::default());
        assert!(!costs.are_delayed);
    }

    /// Two backends a factor of ten apart, each measured within a tenth: keys differ. One backend whose keys wait for
    /// one another: they don't.
    #[test]
    fn penalties_that_are_noise_count_as_their_mean() {
        let measured = |us_of: &mut dyn FnMut(u64) -> f32| {
            let (mut noise, mut table) = (Noise::default(), KeyTable::new(1 << 16));
            for i in 0..20_000 {
                let key = i * 7 % 1_000;
                let (us, entry) = (us_of(key), table.get_or_insert(KeyHash::of_number(key), 0));
                noise.measured(us, entry.penalty_us());
                entry.learn_penalty(us);
            }
            noise
        };
        let mut random = crate::random::Random::new(3);
        let steady = measured(&mut |key| [200.0, 2000.0][key as usize % 2] * (0.9 + random.below(20) as f32 / 100.0));
        assert_eq!(steady.trust(), 1.0);
        let queued = measured(&mut |_| 1000.0 * (1 + random.below(50)) as f32);
        assert!(queued.trust() < 0.25, "{}", queued.trust());
        let mut costs = MissCosts::default();
        costs.take([900.0; PARTITIONS_MAX], Delays::default(), &queued);
        let mut table = KeyTable::new(4096);
        let entry = table.get_or_insert(KeyHash::of_number(1), 0);
        entry.learn_penalty(9000.0);
        let (_, us) = costs.of(Some(entry), PartitionId(3), 0.0);
        assert!((900.0..1700.0).contains(&us), "{us}");
    }
}
