//! What a miss of a key costs under Tenure's own policy: as measured for the key, else as its partition's do in the mean; where many
//! misses meet a fetch of the same key under way, the wait of all of them.

use tenure_core::decide::delayed_hits::{DELAYED_MIN, aggregate_delay_us};
use tenure_core::decide::density::{Feature, History};
use tenure_core::decide::penalty_class::penalty_class;
use tenure_core::key_table::Entry;
use tenure_core::units::{PARTITIONS_MAX, PartitionId};

/// Misses that the share of delayed ones is told by.
const MISSES_ENOUGH: u64 = 256;

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
}

/// What is known of all keys together. See the file's opening.
#[derive(Clone, Debug)]
pub struct Worths {
    /// Mean miss penalty by partition, in µs; 1 where none is known.
    pub penalty_us: [f32; PARTITIONS_MAX],
    /// Fetches meet.
    pub are_delayed: bool,
}

impl Default for Worths {
    fn default() -> Self {
        Worths { penalty_us: [1.0; PARTITIONS_MAX], are_delayed: false }
    }
}

impl Worths {
    /// Takes what was measured last.
    pub fn take(&mut self, penalty_us: [f32; PARTITIONS_MAX], delays: Delays) {
        self.penalty_us = penalty_us;
        self.are_delayed = delays.share() >= DELAYED_MIN;
    }

    /// What a key has shown, and what a miss of it costs, in µs. Of a key that isn't remembered, that of its partition.
    #[inline]
    pub fn of(&self, entry: Option<&Entry>, partition: PartitionId, ticks_per_us: f64) -> (Feature, f32) {
        let penalty_us = entry.and_then(Entry::penalty_us).unwrap_or(self.penalty_us[partition.index()]);
        let history = entry.map_or(History::default(), Entry::history);
        let group = penalty_class(f64::from(penalty_us)) as u8;
        let costs_us = match self.are_delayed {
            true => {
                let gap_us = history.gap_ticks().filter(|_| ticks_per_us > 0.0).map(|gap| gap / ticks_per_us as f32);
                aggregate_delay_us(penalty_us, gap_us)
            }
            false => penalty_us,
        };
        (history.feature(group), costs_us)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::key_table::KeyTable;
    use tenure_core::units::KeyHash;

    use super::*;

    #[test]
    fn the_keys_own_penalty_counts_and_else_its_partitions() {
        let mut table = KeyTable::new(4096);
        let entry = table.get_or_insert(KeyHash::of_number(1), 0);
        entry.learn_penalty(1000.0);
        entry.set_history(History::default().asked(0, 0, 1e-6).asked(8, 8, 1e-6));
        let mut worths = Worths::default();
        worths.penalty_us[3] = 50.0;
        let us = |worths: &Worths, entry| worths.of(entry, PartitionId(3), 0.01).1;
        assert_eq!(us(&worths, None), 50.0);
        assert!((us(&worths, Some(entry)) - 1000.0).abs() < 1.0);
        // Every 8 ticks of 100 µs: one more comes while it is fetched, and waits for half of that in the mean.
        worths.are_delayed = true;
        assert!((us(&worths, Some(entry)) - 1625.0).abs() < 2.0);
        assert_eq!(us(&worths, None), 50.0);
    }

    #[test]
    fn delays_count_where_they_are_many() {
        let (mut delays, mut worths) = (Delays::default(), Worths::default());
        (0..1000).for_each(|i| delays.count(i % 10 == 0));
        assert!((delays.share() - 0.1).abs() < 0.02);
        worths.take([1.0; PARTITIONS_MAX], delays);
        assert!(worths.are_delayed);
        (0..3000).for_each(|_| delays.count(false));
        worths.take([1.0; PARTITIONS_MAX], delays);
        assert!(!worths.are_delayed);
    }
}
