//! One database: how many keys each partition has there, counted or guessed, and how large they are.

use tenure_core::units::{PARTITIONS_MAX, PartitionId};

use super::met::{Met, Sums};
use crate::observe::sizes::Sizes;

/// Counts are taken anew when they were off by this share of the keys.
pub(super) const DRIFT_MAX: f64 = 0.002;

/// One database.
pub(super) struct Database {
    pub(super) db: u16,
    /// Keys counted, by partition.
    pub(super) counted: Vec<f64>,
    /// Keys as far as is known, by partition: those counted, and a guess at the rest.
    pub(super) keys: Vec<f64>,
    /// All its keys, as the server last said.
    pub(super) total: f64,
    /// Keys that were there before Tenure, or came in without an event.
    pub(super) uncounted: f64,
    /// Keys by which the counts may be wrong: they were too high by them, or were taken from a round in doubt.
    pub(super) drift: f64,
    /// Keys that have changed partition in the walk's round under way: where it met them is not known, so a count by
    /// it may be off by them.
    pub(super) moved: f64,
    /// Variance, in keys, of what the round under way counts: each key that comes or goes lies in its walked part or
    /// does not.
    pub(super) variance: f64,
    /// The walk's round under way as it would be met now: keys that came and went since are added and taken off by
    /// how likely they lie in the walked part.
    pub(super) round: Vec<f64>,
    pub(super) met: Met,
    /// Bytes by partition, as last said.
    pub(super) bytes: Vec<u64>,
    /// Rounds of the walk that are to hurry, since many keys have changed partition.
    pub(super) hurried: u8,
}

impl Database {
    pub(super) fn new(db: u16) -> Self {
        let none = vec![0.0; PARTITIONS_MAX];
        Database {
            db,
            counted: none.clone(),
            keys: none.clone(),
            total: 0.0,
            uncounted: 0.0,
            drift: 0.0,
            moved: 0.0,
            variance: 0.0,
            round: none,
            met: Met::new(),
            bytes: vec![0; PARTITIONS_MAX],
            hurried: 0,
        }
    }

    /// Keys × mean size of a partition.
    pub(super) fn bytes_of(&self, partition: PartitionId, sizes: &Sizes) -> u64 {
        let i = partition.index();
        if self.keys[i] <= 0.0 {
            return 0;
        }
        let mean = self.met.mean(i).unwrap_or_else(|| f64::from(sizes.mean_bytes(partition)));
        (self.keys[i] * mean) as u64
    }

    /// How much of the database this round has walked, 0 to 1.
    pub(super) fn walked(&self) -> f64 {
        (self.met.visited as f64 / self.total.max(1.0)).clamp(0.0, 1.0)
    }

    /// `change` keys came or went; `met` is how likely they belong to the walked part.
    pub(super) fn count(&mut self, partition: usize, change: f64, met: f64) {
        for (keys, change) in [
            (&mut self.counted[partition], change),
            (&mut self.keys[partition], change),
            (&mut self.round[partition], change * met),
        ] {
            *keys = (*keys + change).max(0.0);
        }
        self.variance += change.abs() * met * (1.0 - met);
    }

    /// Divides `total` keys as far as is known.
    pub(super) fn settle(&mut self, total: f64, whole: Option<PartitionId>) {
        self.total = total;
        if let Some(partition) = whole {
            self.keys.fill(0.0);
            self.keys[partition.index()] = total;
            return;
        }
        let counted: f64 = self.counted.iter().sum();
        self.uncounted = (total - counted).max(0.0);
        if counted > total {
            self.drift += counted - total;
            self.counted.iter_mut().for_each(|keys| *keys *= total / counted);
        }
        self.keys.clone_from(&self.counted);
        let visited: f64 = self.round.iter().sum();
        if self.uncounted > 0.0 && visited > 0.0 {
            let expected = |i: usize| (total * self.round[i] / visited - self.counted[i]).max(0.0);
            let missing: Vec<f64> = (0..PARTITIONS_MAX).map(expected).collect();
            let all: f64 = missing.iter().sum::<f64>().max(1e-9);
            self.keys.iter_mut().zip(missing).for_each(|(keys, more)| *keys += self.uncounted * more / all);
        }
    }

    pub(super) fn come_round(&mut self) {
        self.met.come_round();
        let visited: f64 = self.round.iter().sum();
        let wrong = self.uncounted + self.drift;
        // A round that began half-way has met some of the keys, of which the rest is guessed.
        let in_doubt = self.moved + self.variance.sqrt() + (self.total - visited).abs();
        if wrong > DRIFT_MAX * self.total && wrong > in_doubt && visited > 0.0 {
            self.counted.iter_mut().zip(&self.round).for_each(|(keys, met)| *keys = met * self.total / visited);
            (self.uncounted, self.drift) = (0.0, in_doubt);
        }
        (self.moved, self.variance) = (0.0, 0.0);
        self.hurried = self.hurried.saturating_sub(1);
        self.round.fill(0.0);
    }

    /// All that is known of one partition is of another from now on.
    pub(super) fn pass_on(&mut self, from: usize, to: usize) {
        let Sums { keys: met, bytes: met_bytes } = &mut self.met.sums;
        let Sums { keys: open, bytes: open_bytes } = &mut self.met.open;
        let Sums { keys: evicted, bytes: evicted_bytes } = &mut self.met.evicted;
        let (counted, keys, round) = (&mut self.counted, &mut self.keys, &mut self.round);
        for values in [counted, keys, round, met, met_bytes, open, open_bytes, evicted, evicted_bytes] {
            values[to] += std::mem::take(&mut values[from]);
        }
        for (partition, ..) in self.met.segments.iter_mut().flatten().filter(|(i, ..)| usize::from(*i) == from) {
            *partition = to as u16;
        }
        self.bytes[to] += std::mem::take(&mut self.bytes[from]);
    }
}
