//! What the worker keeps of each partition and of its bins: models, reads and penalties of late, and the counters as
//! they were when the last window ended.

use tenure_core::curve::{MissRatioCurve, Part};
use tenure_core::decide::size_class::SizeLimits;
use tenure_core::model::merged::MergedCurve;
use tenure_core::sampling::SampleRate;
use tenure_core::units::PartitionId;

use super::division::Division;
use super::lessons::{Carried, Lesson};
use super::model::{Model, Modelling};
use super::shared::Snapshot;
use super::views::{BinView, PartitionView, Weights, whole_curve, whole_merged};
use crate::observe::bins::Bins;
use crate::observe::{Counters, Sampled};

/// What was counted in a window weighs this much one window later.
const WINDOW_DECAY: f64 = 0.7;
/// With so many penalties measured in a window, those before it count no more: a backend that has slowed down is seen
/// at once.
const PENALTIES_ENOUGH: f64 = 30.0;
/// A sampled key that wasn't accessed for so many windows is forgotten.
const WINDOWS_REMEMBERED: u64 = 64;

/// What is known of one partition besides its models.
#[derive(Default)]
struct Partition {
    weights: Weights,
    /// The counters as they were when the last window ended.
    before: Counters,
    /// Where it is divided by size.
    division: Option<Division>,
    /// What was taken over and still counts.
    carried: Option<Carried>,
    /// How often its number went to another tenant.
    generation: u16,
}

/// All partitions of one set. See the file's opening.
pub struct PartitionModels {
    modelling: Modelling,
    /// The share of keys that models look at.
    rate: SampleRate,
    partitions: Vec<Partition>,
    /// By bin.
    models: Vec<Model>,
    /// Reads of each bin of a divided partition in this window, as sampled.
    reads_now: Vec<f64>,
    /// Reads of each bin in the windows before, decaying.
    reads: Vec<f64>,
}

/// A window of all partitions, closed.
pub struct Closed {
    /// By partition.
    pub views: Vec<PartitionView>,
    /// By bin.
    pub bins: Vec<BinView>,
    /// The curves of single K, where there are, by bin.
    pub merged: Vec<MergedCurve>,
}

impl PartitionModels {
    /// None yet, of a stream sampled at `rate`.
    pub fn new(modelling: Modelling, rate: SampleRate) -> Self {
        PartitionModels {
            modelling,
            rate: share_of(rate, modelling),
            partitions: Vec::new(),
            models: Vec::new(),
            reads_now: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// What models them.
    pub fn modelling(&self) -> Modelling {
        self.modelling
    }

    /// The stream is sampled at `rate` from now on.
    pub fn set_rate(&mut self, rate: SampleRate) {
        self.rate = share_of(rate, self.modelling);
        self.models.iter_mut().for_each(|model| model.set_rate(self.rate));
    }

    /// Takes one access of a key in the sample.
    pub fn take(&mut self, sampled: &Sampled) {
        let (partition, bins) = (sampled.partition.index(), sampled.bins);
        self.make_room(partition, bins);
        if !self.is_of(partition, bins, sampled.generation) {
            return;
        }
        let range = bins.range();
        match &mut self.partitions[partition].division {
            Some(division) => division.take(sampled, &mut self.models[range.clone()], &mut self.reads_now[range]),
            None => self.models[range.start].record_sampled(&sampled.access, sampled.at),
        }
    }

    /// Makes what is kept of a partition and of its bins, where it isn't there.
    pub fn make_room(&mut self, partition: usize, bins: Bins) {
        while self.models.len() < bins.range().end {
            self.models.push(Model::new(self.modelling, self.rate, self.models.len() as u64));
            self.reads_now.push(0.0);
            self.reads.push(0.0);
        }
        if self.partitions.len() <= partition {
            self.partitions.resize_with(partition + 1, Partition::default);
        }
        if bins.are_many() {
            self.partitions[partition].division.get_or_insert_with(|| Division::new(bins.count()));
        }
    }

    /// What a number stands for has become another tenant's: what was learned of it is forgotten. False where news of
    /// an older one comes late.
    pub fn is_of(&mut self, partition: usize, bins: Bins, generation: u16) -> bool {
        let held = self.partitions[partition].generation;
        if generation != held && generation.wrapping_sub(held) < u16::MAX / 2 {
            let division = bins.are_many().then(|| Division::new(bins.count()));
            self.partitions[partition] = Partition { generation, division, ..Partition::default() };
            for bin in bins.range() {
                self.models[bin] = Model::new(self.modelling, self.rate, bin as u64);
                (self.reads_now[bin], self.reads[bin]) = (0.0, 0.0);
            }
        }
        generation == self.partitions[partition].generation
    }

    /// A part of the stream goes by unseen.
    pub fn skip(&mut self) {
        self.skip_models();
        self.partitions.iter_mut().filter_map(|held| held.division.as_mut()).for_each(Division::skip);
    }

    /// What comes next is no cold miss.
    fn skip_models(&mut self) {
        self.models.iter_mut().for_each(Model::skip);
    }

    /// Bins of all partitions.
    pub fn n_bins(&self) -> usize {
        self.models.len()
    }

    /// Sampled keys remembered in all.
    pub fn sampled_keys(&self) -> usize {
        self.models.iter().map(Model::sampled_keys).sum()
    }

    /// Memory of the models, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.models.iter().map(Model::memory_bytes).sum()
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

    /// Where size classes begin, by partition.
    pub fn limits(&self) -> Vec<SizeLimits> {
        let limits_of = |held: &Partition| held.division.as_ref().map_or(SizeLimits::NONE, Division::limits);
        self.partitions.iter().map(limits_of).collect()
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
    pub fn close_all(&mut self, snapshot: &Snapshot) -> Closed {
        let capacity_bytes = snapshot.memory.capacity_bytes;
        let (bins, merged): (Vec<BinView>, Vec<Option<MergedCurve>>) = snapshot
            .bins
            .iter()
            .enumerate()
            .flat_map(|(i, &bins)| self.close_bins(i, bins, &snapshot.counters[i], capacity_bytes))
            .unzip();
        let views = (0..snapshot.bins.len())
            .map(|i| {
                let range = snapshot.bins[i].range();
                self.close(i, (&bins[range.clone()], &merged[range]), &snapshot.counters[i])
            })
            .collect();
        Closed { views, bins, merged: merged.into_iter().flatten().collect() }
    }

    /// What was seen so far weighs less from now on, and limits of size classes move.
    pub fn end_window(&mut self, snapshot: &Snapshot) {
        let age = WINDOWS_REMEMBERED * snapshot.instructions.window_requests;
        self.models.iter_mut().for_each(|model| model.end_window(WINDOW_DECAY, age, snapshot.memory.capacity_bytes));
        for (held, &keys) in self.partitions.iter_mut().zip(&snapshot.keys) {
            if let Some(division) = &mut held.division {
                division.end_window(keys, WINDOW_DECAY as f32);
            }
        }
    }

    /// Adds up one partition's window for each of its bins; their curves.
    fn close_bins(
        &mut self,
        partition: usize,
        bins: Bins,
        now: &Counters,
        capacity_bytes: u64,
    ) -> Vec<(BinView, Option<MergedCurve>)> {
        let before = &self.partitions[partition].before;
        let requests = now.requests().saturating_sub(before.requests());
        let reads = now.reads.saturating_sub(before.reads) as f64;
        let deletes = now.deletes.saturating_sub(before.deletes);
        let close = |bin: usize| {
            let sampled = std::mem::take(&mut self.reads_now[bin]);
            let own = if bins.are_many() { sampled } else { reads };
            self.reads[bin] = self.reads[bin] * WINDOW_DECAY + own;
            let model = &mut self.models[bin];
            // A bin's requests come at the times of its partition's.
            model.advance(requests, own.round() as u64);
            // Whose deletes they were is known of partitions alone.
            if !bins.are_many() {
                model.advance_deletes(deletes);
            }
            let (curve, merged) = model.curve(capacity_bytes);
            (BinView { curve, reads: self.reads[bin], sampled_keys: model.sampled_keys() }, merged)
        };
        let mut closed: Vec<_> = bins.range().map(close).collect();
        self.join_carried(partition, &mut closed);
        closed
    }

    /// Adds up one partition's window.
    fn close(
        &mut self,
        partition: usize,
        (bins, merged): (&[BinView], &[Option<MergedCurve>]),
        now: &Counters,
    ) -> PartitionView {
        let Partition { weights, before, generation, .. } = &mut self.partitions[partition];
        let before = std::mem::replace(before, *now);
        let reads = now.reads.saturating_sub(before.reads);
        weights.reads = weights.reads * WINDOW_DECAY + reads as f64;
        let penalties = now.penalties.saturating_sub(before.penalties) as f64;
        let kept = if penalties >= PENALTIES_ENOUGH { 0.0 } else { WINDOW_DECAY };
        weights.penalties = weights.penalties * kept + penalties;
        weights.penalty_us_sum = weights.penalty_us_sum * kept + (now.penalty_us_sum - before.penalty_us_sum);
        weights.penalty_us_square_sum =
            weights.penalty_us_square_sum * kept + (now.penalty_us_square_sum - before.penalty_us_square_sum);
        let (penalty_us_mean, penalty_us_spread) = weights.penalty_us();
        let weights = *weights;
        let misses = now.misses.saturating_sub(before.misses);
        PartitionView {
            curve: whole_curve(bins),
            merged: whole_merged(bins, merged),
            penalty_us_mean,
            penalty_us_spread,
            miss_ratio: (reads > 0).then(|| (misses as f64 / reads as f64).min(1.0)),
            sampled_keys: bins.iter().map(|bin| bin.sampled_keys).sum(),
            weights,
            generation: *generation,
        }
    }

    /// Joins a partition's curve with the one that was taken over, each by the reads that it stands for. Bins of one
    /// that is divided have their own alone.
    fn join_carried(&mut self, partition: usize, closed: &mut [(BinView, Option<MergedCurve>)]) {
        let held = &mut self.partitions[partition];
        let Some(carried) = &mut held.carried else { return };
        let reads: f64 = closed.iter().map(|(bin, _)| bin.reads).sum();
        let own_reads = |carried: f64| (reads - carried).max(0.0);
        if !carried.outlasts(own_reads, WINDOW_DECAY) {
            held.carried = None;
            return;
        }
        let own_reads = own_reads(carried.reads);
        if let [(only, _)] = closed {
            let part = |curve, weight| Part { curve, weight, share: 1.0 };
            only.curve = MissRatioCurve::of_parts(&[part(&only.curve, own_reads), part(&carried.curve, carried.reads)]);
        }
    }
}

/// What was taken over from another node.
impl PartitionModels {
    /// Begins with what was taught: the planned bytes by bin. Own models know nothing yet, and what they have missed is
    /// no cold miss.
    pub fn take_over(&mut self, lessons: Vec<(PartitionId, Lesson)>, snapshot: &Snapshot) -> Vec<u64> {
        self.skip_models();
        self.partitions.iter_mut().zip(&snapshot.counters).for_each(|(held, &counted)| held.before = counted);
        self.partitions.iter_mut().zip(&snapshot.generations).for_each(|(held, &of)| held.generation = of);
        let mut target_bytes = vec![0; self.models.len()];
        for (id, lesson) in lessons {
            let Some((held, bins)) = self.partitions.get_mut(id.index()).zip(snapshot.bins.get(id.index())) else {
                continue;
            };
            let (curve, reads, sample_size) = (lesson.curve, lesson.weights.reads, lesson.sample_size);
            (held.carried, held.weights) = (Some(Carried { curve, reads, sample_size }), lesson.weights);
            // How the primary has divided it by size isn't taught: its bins begin alike.
            target_bytes[bins.range()].fill(lesson.target_bytes / bins.count() as u64);
            self.reads[bins.range()].fill(reads / bins.count() as f64);
        }
        target_bytes
    }

    /// What was taught, as if it had been seen: by partition, and by bin.
    pub fn taught_views(&self, snapshot: &Snapshot) -> (Vec<PartitionView>, Vec<BinView>) {
        let view = |held: &Partition| {
            let (penalty_us_mean, penalty_us_spread) = held.weights.penalty_us();
            let curve = held.carried.as_ref().map_or_else(MissRatioCurve::default, |carried| carried.curve.clone());
            let (weights, generation) = (held.weights, held.generation);
            PartitionView { curve, penalty_us_mean, penalty_us_spread, weights, generation, ..PartitionView::default() }
        };
        let views: Vec<PartitionView> = self.partitions.iter().map(view).collect();
        let bins_of = |(view, bins): (&PartitionView, &Bins)| {
            let n = bins.count();
            let part = Part { curve: &view.curve, weight: 1.0, share: n as f64 };
            let curve = if n == 1 { view.curve.clone() } else { MissRatioCurve::of_parts(&[part]) };
            let bin = BinView { curve, reads: view.weights.reads / n as f64, sampled_keys: 0 };
            std::iter::repeat_n(bin, n)
        };
        let bins = views.iter().zip(&snapshot.bins).flat_map(bins_of).collect();
        (views, bins)
    }

    /// The K of each bin that was taken over and says more than what was seen since.
    pub fn carried_sample_sizes(&self, snapshot: &Snapshot) -> Vec<Option<u32>> {
        let of = |(held, bins): (&Partition, &Bins)| {
            let carried = held.carried.as_ref().filter(|carried| carried.sample_size > 0);
            let says_more = carried.filter(|carried| carried.reads >= 0.5 * held.weights.reads);
            std::iter::repeat_n(says_more.map(|carried| carried.sample_size), bins.count())
        };
        self.partitions.iter().zip(&snapshot.bins).flat_map(of).collect()
    }

    /// For tests: sampled keys remembered of a partition's first bin, and its reads of late.
    #[cfg(test)]
    pub fn known(&self, partition: usize, bins: Bins) -> (usize, f64) {
        (self.models[bins.range().start].sampled_keys(), self.partitions[partition].weights.reads)
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
