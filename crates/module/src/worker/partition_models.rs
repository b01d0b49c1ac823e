//! What the worker keeps of each partition: its model, reads and penalties of late, and the counters as they were when
//! the last window ended.

use tenure_core::curve::{MissRatioCurve, Part};
use tenure_core::sampling::SampleRate;
use tenure_core::units::PartitionId;

use super::lessons::{Carried, Lesson};
use super::model::{Model, Modelling};
use super::shared::Snapshot;
use super::views::{PartitionView, Weights};
use crate::observe::{Counters, Sampled};

/// What was counted in a window weighs this much one window later.
const WINDOW_DECAY: f64 = 0.7;
/// With so many penalties measured in a window, those before it count no more: a backend that has slowed down is seen
/// at once.
const PENALTIES_ENOUGH: f64 = 30.0;
/// A sampled key that wasn't accessed for so many windows is forgotten.
const WINDOWS_REMEMBERED: u64 = 64;

/// What is known of one partition.
struct Partition {
    model: Model,
    weights: Weights,
    /// The counters as they were when the last window ended.
    before: Counters,
    /// What was taken over and still counts.
    carried: Option<Carried>,
    /// How often its number went to another tenant.
    generation: u16,
}

impl Partition {
    /// Nothing yet; of what its number stood for before, nothing any more.
    fn new(modelling: Modelling, rate: SampleRate, number: usize, generation: u16) -> Self {
        Partition {
            model: Model::new(modelling, rate, number as u64),
            weights: Weights::default(),
            before: Counters::default(),
            carried: None,
            generation,
        }
    }
}

/// All partitions of one set. See the file's opening.
pub struct PartitionModels {
    modelling: Modelling,
    /// The share of keys that models look at.
    rate: SampleRate,
    partitions: Vec<Partition>,
}

impl PartitionModels {
    /// None yet, of a stream sampled at `rate`.
    pub fn new(modelling: Modelling, rate: SampleRate) -> Self {
        PartitionModels { modelling, rate: share_of(rate, modelling), partitions: Vec::new() }
    }

    /// What models them.
    pub fn modelling(&self) -> Modelling {
        self.modelling
    }

    /// The stream is sampled at `rate` from now on.
    pub fn set_rate(&mut self, rate: SampleRate) {
        self.rate = share_of(rate, self.modelling);
        self.partitions.iter_mut().for_each(|held| held.model.set_rate(self.rate));
    }

    /// Takes one access of a key in the sample.
    pub fn take(&mut self, sampled: &Sampled) {
        let partition = sampled.partition.index();
        self.make_room(partition + 1);
        if self.is_of(partition, sampled.generation) {
            self.partitions[partition].model.record_sampled(&sampled.access, sampled.at);
        }
    }

    /// Makes what is kept of so many partitions, where it isn't there.
    pub fn make_room(&mut self, n: usize) {
        for number in self.partitions.len()..n {
            self.partitions.push(Partition::new(self.modelling, self.rate, number, 0));
        }
    }

    /// What a number stands for has become another tenant's: what was learned of it is forgotten. False where news of
    /// an older one comes late.
    pub fn is_of(&mut self, partition: usize, generation: u16) -> bool {
        let held = self.partitions[partition].generation;
        if generation != held && generation.wrapping_sub(held) < u16::MAX / 2 {
            self.partitions[partition] = Partition::new(self.modelling, self.rate, partition, generation);
        }
        generation == self.partitions[partition].generation
    }

    /// A part of the stream goes by unseen: what comes next is no cold miss.
    pub fn skip(&mut self) {
        self.partitions.iter_mut().for_each(|held| held.model.skip());
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Sampled keys remembered in all.
    pub fn sampled_keys(&self) -> usize {
        self.partitions.iter().map(|held| held.model.sampled_keys()).sum()
    }

    /// Memory of the models, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.partitions.iter().map(|held| held.model.memory_bytes()).sum()
    }

    /// The counters as they were when the last window ended.
    pub fn before(&self) -> Vec<Counters> {
        self.partitions.iter().map(|held| held.before).collect()
    }

    /// Requests since then.
    pub fn requests_until(&self, now: &[Counters]) -> u64 {
        let since = |(held, now): (&Partition, &Counters)| now.requests().saturating_sub(held.before.requests());
        self.partitions.iter().zip(now).map(since).sum()
    }

    /// True where there were requests, or a lesson.
    pub fn are_known(&self) -> bool {
        self.partitions.iter().any(|held| held.carried.is_some() || held.before.requests() > 0)
    }

    /// Penalties measured of late, and their sum in µs.
    pub fn penalties(&self) -> (f64, f64) {
        let add =
            |(n, sum): (f64, f64), held: &Partition| (n + held.weights.penalties, sum + held.weights.penalty_us_sum);
        self.partitions.iter().fold((0.0, 0.0), add)
    }

    /// Mean penalty by partition; where none was measured, the mean of all; where none was measured at all, the same
    /// for all, so that the plan saves the most misses.
    pub fn penalties_us(&self, views: &[PartitionView]) -> Vec<f64> {
        let (n, sum) = self.penalties();
        let fallback = if n > 0.0 { sum / n } else { 1.0 };
        views.iter().map(|view| if view.penalty_us_mean > 0.0 { view.penalty_us_mean } else { fallback }).collect()
    }
}

/// At the end of a window.
impl PartitionModels {
    /// Adds up the window of all partitions.
    pub fn close_all(&mut self, snapshot: &Snapshot) -> Vec<PartitionView> {
        let capacity_bytes = snapshot.memory.capacity_bytes;
        let n = snapshot.tenant_of.len();
        let of_all = self.partitions[..n].iter_mut().zip(&snapshot.counters);
        of_all.map(|(held, now)| held.close(now, capacity_bytes)).collect()
    }

    /// What was seen so far weighs less from now on.
    pub fn end_window(&mut self, snapshot: &Snapshot) {
        let age = WINDOWS_REMEMBERED * snapshot.instructions.window_requests;
        let capacity_bytes = snapshot.memory.capacity_bytes;
        self.partitions.iter_mut().for_each(|held| held.model.end_window(WINDOW_DECAY, age, capacity_bytes));
    }
}

impl Partition {
    /// Adds up its window: `now` are its counters.
    fn close(&mut self, now: &Counters, capacity_bytes: u64) -> PartitionView {
        let before = std::mem::replace(&mut self.before, *now);
        let reads = now.reads.saturating_sub(before.reads);
        self.model.advance(now.requests().saturating_sub(before.requests()), reads);
        self.model.advance_deletes(now.deletes.saturating_sub(before.deletes));
        let (curve, merged) = self.model.curve(capacity_bytes);
        let weights = &mut self.weights;
        weights.reads = weights.reads * WINDOW_DECAY + reads as f64;
        let penalties = now.penalties.saturating_sub(before.penalties) as f64;
        let kept = if penalties >= PENALTIES_ENOUGH { 0.0 } else { WINDOW_DECAY };
        weights.penalties = weights.penalties * kept + penalties;
        weights.penalty_us_sum = weights.penalty_us_sum * kept + (now.penalty_us_sum - before.penalty_us_sum);
        weights.penalty_us_square_sum =
            weights.penalty_us_square_sum * kept + (now.penalty_us_square_sum - before.penalty_us_square_sum);
        let (penalty_us_mean, penalty_us_spread) = weights.penalty_us();
        let misses = now.misses.saturating_sub(before.misses);
        PartitionView {
            curve: self.joined_with_carried(curve),
            merged,
            penalty_us_mean,
            penalty_us_spread,
            miss_ratio: (reads > 0).then(|| (misses as f64 / reads as f64).min(1.0)),
            sampled_keys: self.model.sampled_keys(),
            weights: self.weights,
            generation: self.generation,
        }
    }

    /// Its own curve and the one that was taken over, each by the reads that it stands for.
    fn joined_with_carried(&mut self, own: MissRatioCurve) -> MissRatioCurve {
        let Some(carried) = &mut self.carried else { return own };
        let reads = self.weights.reads;
        let own_reads = |carried: f64| (reads - carried).max(0.0);
        if !carried.outlasts(own_reads, WINDOW_DECAY) {
            self.carried = None;
            return own;
        }
        let part = |curve, weight| Part { curve, weight, share: 1.0 };
        MissRatioCurve::of_parts(&[part(&own, own_reads(carried.reads)), part(&carried.curve, carried.reads)])
    }
}

/// What was taken over from another node.
impl PartitionModels {
    /// Begins with what was taught: the planned bytes by partition. Own models know nothing yet, and what they have
    /// missed is no cold miss.
    pub fn take_over(&mut self, lessons: Vec<(PartitionId, Lesson)>, snapshot: &Snapshot) -> Vec<u64> {
        self.skip();
        self.partitions.iter_mut().zip(&snapshot.counters).for_each(|(held, &counted)| held.before = counted);
        self.partitions.iter_mut().zip(&snapshot.generations).for_each(|(held, &of)| held.generation = of);
        let mut target_bytes = vec![0; self.partitions.len()];
        for (id, lesson) in lessons {
            let Some(held) = self.partitions.get_mut(id.index()) else { continue };
            let (curve, reads, sample_size) = (lesson.curve, lesson.weights.reads, lesson.sample_size);
            (held.carried, held.weights) = (Some(Carried { curve, reads, sample_size }), lesson.weights);
            target_bytes[id.index()] = lesson.target_bytes;
        }
        target_bytes
    }

    /// What was taught, as if it had been seen, by partition.
    pub fn taught_views(&self) -> Vec<PartitionView> {
        let view = |held: &Partition| {
            let (penalty_us_mean, penalty_us_spread) = held.weights.penalty_us();
            let curve = held.carried.as_ref().map_or_else(MissRatioCurve::default, |carried| carried.curve.clone());
            let (weights, generation) = (held.weights, held.generation);
            PartitionView { curve, penalty_us_mean, penalty_us_spread, weights, generation, ..PartitionView::default() }
        };
        self.partitions.iter().map(view).collect()
    }

    /// The K of each partition that was taken over and says more than what was seen since.
    pub fn carried_sample_sizes(&self) -> Vec<Option<u32>> {
        let of = |held: &Partition| {
            let carried = held.carried.as_ref().filter(|carried| carried.sample_size > 0);
            let says_more = carried.filter(|carried| carried.reads >= 0.5 * held.weights.reads);
            says_more.map(|carried| carried.sample_size)
        };
        self.partitions.iter().map(of).collect()
    }

    /// For tests: sampled keys remembered of a partition, and its reads of late.
    #[cfg(test)]
    pub fn known(&self, partition: usize) -> (usize, f64) {
        let held = &self.partitions[partition];
        (held.model.sampled_keys(), held.weights.reads)
    }

    /// For tests: what was taken over of a partition still counts.
    #[cfg(test)]
    pub fn is_carried(&self, partition: usize) -> bool {
        self.partitions[partition].carried.is_some()
    }
}

/// The share of keys that models look at: all that are sampled, unless they decide nothing.
fn share_of(rate: SampleRate, modelling: Modelling) -> SampleRate {
    SampleRate::new(rate.rate() * modelling.share()).unwrap_or(rate)
}
