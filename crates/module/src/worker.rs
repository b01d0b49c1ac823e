//! The worker: one background thread that turns the sampled stream into curves, and curves into plans.
//!
//! It shares with the main thread a bounded queue of sampled accesses, a snapshot of the counters that the main
//! thread leaves every 100 ms, and the last published plan. Neither side ever waits for the other: the main thread
//! only tries the locks. It also steers the sampling rate: low enough that watching costs the main thread little,
//! high enough that a small working set is seen well.

#[cfg(test)]
mod agreement;
pub mod chooser;
mod division;
pub mod model;
pub mod sizing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use tenure_core::curve::{MissRatioCurve, Part};
use tenure_core::decide::allocation::{Claim, Group, shared_curve};
use tenure_core::decide::objective::Objective;
use tenure_core::decide::plan::{Plan, Terms, next_plan};
use tenure_core::decide::sample_size::RunningSampleSize;
use tenure_core::decide::size_class::SizeLimits;
use tenure_core::model::merged::MergedCurve;
use tenure_core::policy::density::{Learned, Learner, LearnerConfig};
use tenure_core::policy::kredis::SAMPLE_SIZES;
use tenure_core::sampling::SampleRate;
use tenure_core::tiers::division::{self as fast_division, Division as FastDivision};
use tenure_core::units::{PartitionId, TenantId};

use self::chooser::{Choice, Chooser, Whole};
use self::division::Division;
use self::model::{Model, Modelling};
use self::sizing::{Sizer, Sizes};
use crate::ffi::guard;
use crate::observe::bins::Bins;
use crate::observe::tenants;
use crate::observe::{Counters, Sampled};

/// Sampled accesses under way to the worker.
const QUEUE_LEN: usize = 1 << 11;
/// With fewer sampled keys than this the rate is raised, where the stream allows it.
const SAMPLED_KEYS_ENOUGH: usize = 1 << 14;
/// What was counted in a window weighs this much one window later.
const WINDOW_DECAY: f64 = 0.7;
/// With so many penalties measured in a window, those before it count no more: a backend that has slowed down is seen
/// at once.
const PENALTIES_ENOUGH: f64 = 30.0;
/// What a primary has taught is believed for so many windows, and so long at the least.
const LESSON_WINDOWS: u32 = 6;
const LESSON_TIME_MIN: Duration = Duration::from_secs(60);
/// What was taken over is forgotten when its reads are fewer than this share of one's own.
const CARRIED_MIN: f64 = 0.05;
const NAP: Duration = Duration::from_millis(10);
/// How often the rate is looked at.
const RATE_EVERY: Duration = Duration::from_millis(100);

/// Into so many units the fast memory tier is divided.
const FAST_UNITS: u64 = 500;
/// Points of the curve of a divided partition.
const WHOLE_POINTS: usize = 200;

/// What the worker is told to do: the settings that concern it.
#[derive(Clone, Copy, Debug)]
pub struct Instructions {
    /// A window ends after this many requests.
    pub window_requests: u64,
    /// A window ends after this time at the latest.
    pub window: Duration,
    /// The unit of allocation, in bytes; 0 = a thousandth of the memory.
    pub granularity_bytes: u64,
    /// A plan that saves less than this share of the present one's cost is not adopted.
    pub gain_min: f64,
    /// What a plan is to reach.
    pub objective: Objective,
    /// The rate isn't lowered below this while memory for the sample lasts.
    pub rate_min: SampleRate,
    /// Sampled accesses a second that the main thread may spend its time on.
    pub samples_per_second: u64,
    /// What models the partitions.
    pub modelling: Modelling,
    /// Keys sampled per eviction, where nothing better is known.
    pub sample_size: u32,
}

/// What the main thread leaves for the worker.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Which set of partitions the rest is about.
    pub epoch: u32,
    /// Counted so far, by partition.
    pub counters: Vec<Counters>,
    /// Whose each partition is.
    pub tenant_of: Vec<TenantId>,
    /// Its bins.
    pub bins: Vec<Bins>,
    /// Guaranteed, by tenant.
    pub bytes_min: Vec<u64>,
    /// Allowed, by tenant.
    pub bytes_max: Vec<u64>,
    /// How much its misses count, by tenant.
    pub weights: Vec<u32>,
    /// The server's limit, in bytes; 0 = none.
    pub memory_bytes: u64,
    /// What all keys together may take, in bytes; 0 without a limit.
    pub capacity_bytes: u64,
    /// Keys there are, by partition.
    pub keys: Vec<u64>,
    /// Keys evicted so far, and the time that took, in µs.
    pub evictions: (u64, u64),
    /// Where there are two memory tiers, how the fast one is divided, and how much of it there is to divide, in bytes.
    pub fast: Option<(FastDivision, u64)>,
    /// The table of keys, in bytes, where it is a share of the limit; else 0.
    pub key_table_bytes: u64,
    /// False while commands run unseen: the counters stand still.
    pub is_watching: bool,
    /// What keys show is noted: of sampled accesses more is known than their size.
    pub are_accesses_noted: bool,
    /// This server follows a primary: what it is asked for is no guide.
    pub is_replica: bool,
    /// The settings.
    pub instructions: Instructions,
}

/// What is known of one partition at the end of a window.
#[derive(Clone, Debug, Default)]
pub struct PartitionView {
    /// Its miss ratio by memory, reads only; where it is divided, with its memory divided as is best.
    pub curve: MissRatioCurve,
    /// The curves of single K, where there are: that above is the lowest of them.
    pub merged: Option<MergedCurve>,
    /// Mean miss penalty, in µs; 0 where none was measured.
    pub penalty_us_mean: f64,
    /// Standard deviation of the miss penalty, in µs.
    pub penalty_us_spread: f64,
    /// Measured misses / reads in the window; `None` without reads.
    pub miss_ratio: Option<f64>,
    /// Sampled keys remembered.
    pub sampled_keys: usize,
    /// What its history weighs.
    pub weights: Weights,
}

/// What is known of one bin at the end of a window.
#[derive(Clone, Debug, Default)]
pub struct BinView {
    /// Its miss ratio by memory, reads only.
    pub curve: MissRatioCurve,
    /// Its reads of late; where there are several bins, as sampled.
    pub reads: f64,
    /// Sampled keys remembered.
    pub sampled_keys: usize,
}

impl BinView {
    /// What it brings to an allocation where each of its misses costs so much.
    fn claim(&self, miss_us: f64, group: usize, rate: SampleRate) -> Claim<'_> {
        Claim::new(&self.curve, self.reads * miss_us, group).seen_by(self.reads * rate.rate())
    }
}

/// What the worker publishes: immutable.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Which set of partitions it is about.
    pub epoch: u32,
    /// Windows so far.
    pub window: u64,
    /// Target bytes by bin, and what they are predicted to cost; `None` where there is nothing to divide.
    pub plan: Option<Plan>,
    /// Bytes of the fast memory tier by bin; empty where it isn't divided.
    pub fast_target_bytes: Vec<u64>,
    /// Where the size classes begin that it is about, by partition.
    pub limits: Vec<SizeLimits>,
    /// Keys sampled per eviction, by bin, as they go with the plan; empty where they are as set.
    pub sample_sizes: Vec<u32>,
    /// Keys sampled per eviction in the whole cache, where one K is chosen for it.
    pub choice: Choice,
    /// A replica's: what its primary has learned, with a plan made of that.
    pub is_taught: bool,
    /// What Tenure's own policy evicts by.
    pub learned: Learned,
    /// What it would miss with less memory or more.
    pub sizes: Arc<Sizes>,
    /// How far the last prediction of that was off; `None` before there was one.
    pub prediction_error: Option<f64>,
    /// By partition.
    pub partitions: Vec<PartitionView>,
    /// By bin.
    pub bins: Vec<BinView>,
    /// Time to make all curves, in µs.
    pub curves_us: u64,
    /// Time to allocate, in µs.
    pub plan_us: u64,
    /// Plans whose targets differ from the one before.
    pub plans_adopted: u64,
    /// Memory of the models, in bytes.
    pub models_bytes: u64,
}

/// What both threads see.
pub struct Shared {
    /// Sampled accesses, main thread to worker.
    pub queue: Arc<ArrayQueue<Sampled>>,
    snapshot: Mutex<Option<Snapshot>>,
    published: Mutex<Arc<Published>>,
    taught: Mutex<Option<Taught>>,
    version: AtomicU64,
    rate_threshold: AtomicU64,
    stop: AtomicBool,
    /// Sampled accesses that the main thread dropped since the rate was last looked at.
    pub dropped: AtomicU64,
    /// Set by tests: the worker panics at its next turn.
    pub panic_please: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        Shared {
            queue: Arc::new(ArrayQueue::new(QUEUE_LEN)),
            snapshot: Mutex::new(None),
            published: Mutex::default(),
            taught: Mutex::default(),
            version: AtomicU64::new(0),
            rate_threshold: AtomicU64::new(SampleRate::ALL.threshold()),
            stop: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            panic_please: AtomicBool::new(false),
        }
    }

    /// Main thread: leaves a snapshot; the one before is dropped. Skipped where the worker is taking it just now.
    pub fn leave(&self, snapshot: Snapshot) {
        if let Ok(mut place) = self.snapshot.try_lock() {
            *place = Some(snapshot);
        }
    }

    /// Main thread: leaves what a primary has taught; what it taught before is dropped. Skipped as above.
    pub fn teach(&self, taught: Taught) {
        if let Ok(mut place) = self.taught.try_lock() {
            *place = Some(taught);
        }
    }

    /// Main thread: the newest publication, if it is newer than `version`, which moves along.
    pub fn news(&self, version: &mut u64) -> Option<Arc<Published>> {
        let newest = self.version.load(Ordering::Acquire);
        if newest == *version {
            return None;
        }
        let published = self.published.try_lock().ok()?.clone();
        *version = newest;
        Some(published)
    }

    /// Worker: what was published last.
    fn published(&self) -> Arc<Published> {
        self.published.lock().map(|place| place.clone()).unwrap_or_default()
    }

    fn publish(&self, published: Published) {
        if let Ok(mut place) = self.published.lock() {
            *place = Arc::new(published);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The sampling rate in force.
    pub fn rate(&self) -> SampleRate {
        SampleRate::from_threshold(self.rate_threshold.load(Ordering::Relaxed))
    }
}

/// The running thread. Dropping it stops and joins it, within a nap or the making of one plan.
pub struct Worker {
    /// What it shares.
    pub shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system has no thread to give.
    pub fn start() -> std::io::Result<Worker> {
        let shared = Arc::new(Shared::new());
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("tenure-worker".to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| Models::new(&its).run(&its))).is_err() {
                guard::count_panic("the worker");
            }
        })?;
        Ok(Worker { shared, thread: Some(thread) })
    }

    /// False where the thread has ended, which only a panic makes it do.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

/// What a partition's history weighs: decays with each window as its histogram does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// Reads.
    pub reads: f64,
    /// Measured penalties.
    pub penalties: f64,
    /// Their sum, in µs.
    pub penalty_us_sum: f64,
    /// The sum of their squares, in µs².
    pub penalty_us_square_sum: f64,
}

impl Weights {
    /// Mean and standard deviation of the penalties, in µs; 0 where none was measured.
    fn penalty_us(&self) -> (f64, f64) {
        let n = self.penalties.max(1e-9);
        let (mean, mean_square) = (self.penalty_us_sum / n, self.penalty_us_square_sum / n);
        (mean, (mean_square - mean * mean).max(0.0).sqrt())
    }
}

/// What another node has learned of one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lesson {
    /// Whose it is.
    pub tenant: String,
    /// Its class, or `none`.
    pub class: String,
    /// Planned bytes.
    pub target_bytes: u64,
    /// Keys sampled per eviction; 0 where that is as set.
    pub sample_size: u32,
    /// Its reads and penalties of late.
    pub weights: Weights,
    /// Its miss ratio by memory.
    pub curve: MissRatioCurve,
}

/// What its primary has taught a replica.
#[derive(Clone, Debug)]
pub struct Taught {
    /// Which set of partitions the numbers are of.
    pub epoch: u32,
    /// What is known, by partition.
    pub partitions: Vec<(PartitionId, Lesson)>,
    /// Keys sampled per eviction, where one K was chosen for the whole cache.
    pub sample_size: Option<u32>,
    /// When it was heard.
    pub heard: Instant,
}

impl Taught {
    /// True while its teacher may still be right.
    fn is_fresh(&self, instructions: &Instructions) -> bool {
        self.heard.elapsed() < (LESSON_WINDOWS * instructions.window).max(LESSON_TIME_MIN)
    }
}

/// A curve that was taken over, and the reads that it stands for; they decay, and it goes when they are few beside
/// one's own.
#[derive(Clone, Debug)]
struct Carried {
    curve: MissRatioCurve,
    reads: f64,
    sample_size: u32,
}

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
}

/// The worker's own state.
struct Models {
    epoch: u32,
    partitions: Vec<Partition>,
    /// By bin.
    models: Vec<Model>,
    /// Reads of each bin of a divided partition in this window, as sampled.
    reads_now: Vec<f64>,
    /// Reads of each bin in the windows before, decaying.
    reads: Vec<f64>,
    modelling: Modelling,
    rate: SampleRate,
    plan: Option<Plan>,
    sample_sizes: Vec<RunningSampleSize>,
    chooser: Chooser,
    learner: Option<Box<Learner>>,
    sizer: Option<Sizer>,
    window: u64,
    plans_adopted: u64,
    window_began: Instant,
    /// Sampled accesses since the rate was last looked at.
    samples: u64,
    rate_looked_at: Instant,
    instructions: Option<Instructions>,
    sampled_keys_max: usize,
    /// Commands run unseen.
    is_paused: bool,
    /// What its primary taught last, while this server is a replica.
    taught: Option<Taught>,
}

impl Models {
    fn new(shared: &Shared) -> Self {
        Models {
            epoch: 0,
            partitions: Vec::new(),
            models: Vec::new(),
            reads_now: Vec::new(),
            reads: Vec::new(),
            modelling: Modelling::default(),
            rate: shared.rate(),
            plan: None,
            sample_sizes: Vec::new(),
            chooser: Chooser::default(),
            learner: None,
            sizer: None,
            window: 0,
            plans_adopted: 0,
            window_began: Instant::now(),
            samples: 0,
            rate_looked_at: Instant::now(),
            instructions: None,
            sampled_keys_max: Modelling::default().sampled_keys_max(0),
            is_paused: false,
            taught: None,
        }
    }

    fn run(&mut self, shared: &Shared) {
        while !shared.stop.load(Ordering::Relaxed) {
            assert!(!shared.panic_please.load(Ordering::Relaxed), "asked to by TENURE.DEBUG");
            let is_behind = self.take_some(|| shared.queue.pop());
            self.steer_rate(shared);
            let snapshot = shared.snapshot.lock().ok().and_then(|mut place| place.take());
            if let Some(snapshot) = snapshot {
                self.look_at(shared, &snapshot);
            }
            if !is_behind {
                std::thread::park_timeout(NAP);
            }
        }
    }

    /// Takes what has come, a full queue at the most: where more comes than is taken, windows have to end all the
    /// same. True where there may be more.
    fn take_some(&mut self, mut next: impl FnMut() -> Option<Sampled>) -> bool {
        for _ in 0..QUEUE_LEN {
            let Some(sampled) = next() else { return false };
            self.take(&sampled);
        }
        true
    }

    fn take(&mut self, sampled: &Sampled) {
        if sampled.epoch != self.epoch {
            self.start_epoch(sampled.epoch);
        }
        self.samples += 1;
        if self.modelling == Modelling::Miniatures {
            self.chooser.record(&sampled.access);
        }
        if let (Some(learner), Some(shown)) = (&mut self.learner, &sampled.shown) {
            learner.record(&sampled.access, shown);
            if let Some(sizer) = &mut self.sizer {
                sizer.record(&sampled.access, sampled.partition, shown, learner.learned());
            }
        }
        let (partition, bins) = (sampled.partition.index(), sampled.bins);
        self.make_room(partition, bins);
        let range = bins.range();
        match &mut self.partitions[partition].division {
            Some(division) => division.take(sampled, &mut self.models[range.clone()], &mut self.reads_now[range]),
            None => self.models[range.start].record_sampled(&sampled.access, sampled.at),
        }
    }

    /// Makes what is kept of a partition and of its bins, where it isn't there.
    fn make_room(&mut self, partition: usize, bins: Bins) {
        while self.models.len() < bins.range().end {
            self.models.push(Model::new(self.modelling, self.model_rate(), self.models.len() as u64));
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

    fn start_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
        self.partitions.clear();
        self.models.clear();
        self.reads_now.clear();
        self.reads.clear();
        self.plan = None;
        self.sample_sizes.clear();
        self.chooser = Chooser::default();
        let window_requests = self.instructions.map_or(0, |instructions| instructions.window_requests);
        let learns = self.modelling == Modelling::Densities;
        let config = LearnerConfig::new(self.rate, window_requests);
        let learner = || Box::new(Learner::new(config).expect("the default decay is in range"));
        self.learner = learns.then(learner);
        self.sizer = learns.then(|| Sizer::new(self.rate, window_requests));
    }

    /// Lowers the rate where watching costs too much or remembers too much.
    fn steer_rate(&mut self, shared: &Shared) {
        let Some(instructions) = self.instructions else { return };
        let elapsed = self.rate_looked_at.elapsed();
        if elapsed < RATE_EVERY {
            return;
        }
        // What was dropped on the way cost the main thread as much as what came.
        let dropped = shared.dropped.swap(0, Ordering::Relaxed);
        let per_second = (self.samples + dropped) as f64 / elapsed.as_secs_f64();
        self.samples = 0;
        self.rate_looked_at = Instant::now();
        let keys = self.sampled_keys();
        let allowed = instructions.samples_per_second as f64;
        if keys > self.sampled_keys_max {
            self.set_rate(shared, self.rate.rate() / 2.0);
        } else if per_second > 1.25 * allowed && self.rate > instructions.rate_min {
            let wanted = self.rate.rate() * (allowed / per_second).max(0.1);
            self.set_rate(shared, wanted.max(instructions.rate_min.rate()));
        }
    }

    /// Raises the rate at the end of a window in which few keys were seen and watching cost little.
    fn raise_rate(&mut self, shared: &Shared, samples_per_second: f64, allowed: u64) {
        let keys = self.sampled_keys();
        if keys < SAMPLED_KEYS_ENOUGH.min(self.sampled_keys_max / 4)
            && samples_per_second < allowed as f64 / 4.0
            && self.rate < SampleRate::ALL
        {
            self.set_rate(shared, (self.rate.rate() * 2.0).min(1.0));
        }
    }

    fn set_rate(&mut self, shared: &Shared, rate: f64) {
        let Ok(rate) = SampleRate::new(rate.min(1.0)) else { return };
        self.rate = rate;
        let model_rate = self.model_rate();
        self.models.iter_mut().for_each(|model| model.set_rate(model_rate));
        if let Some(learner) = &mut self.learner {
            learner.set_rate(rate);
        }
        if let Some(sizer) = &mut self.sizer {
            sizer.set_stream_rate(rate);
        }
        shared.rate_threshold.store(rate.threshold(), Ordering::Relaxed);
    }

    /// The share of keys that the partitions' models look at: all that are sampled, unless they decide nothing.
    fn model_rate(&self) -> SampleRate {
        SampleRate::new(self.rate.rate() * self.modelling.share()).unwrap_or(self.rate)
    }

    fn sampled_keys(&self) -> usize {
        let learned = self.learner.as_ref().map_or(0, |learner| learner.sampled_keys());
        self.models.iter().map(Model::sampled_keys).sum::<usize>().max(learned)
    }

    /// Ends the window where it is time to.
    fn look_at(&mut self, shared: &Shared, snapshot: &Snapshot) {
        let modelling = snapshot.instructions.modelling;
        let held = self.instructions.replace(snapshot.instructions);
        let is_as_long = held.is_some_and(|held| held.window_requests == snapshot.instructions.window_requests);
        let is_new_learner = modelling == Modelling::Densities && !is_as_long;
        if snapshot.epoch != self.epoch || modelling != self.modelling || is_new_learner {
            self.modelling = modelling;
            self.start_epoch(snapshot.epoch);
        }
        self.sampled_keys_max = modelling.sampled_keys_max(snapshot.memory_bytes);
        if let Some(learner) = &mut self.learner {
            learner.set_keys_max(self.sampled_keys_max);
        }
        let n_partitions = snapshot.tenant_of.len();
        if n_partitions == 0 {
            return;
        }
        snapshot.bins.iter().enumerate().for_each(|(i, &bins)| self.make_room(i, bins));
        if self.learns_from_primary(shared, snapshot) {
            return;
        }
        let since = |(held, now): (&Partition, &Counters)| now.requests().saturating_sub(held.before.requests());
        let requests: u64 = self.partitions.iter().zip(&snapshot.counters).map(since).sum();
        let was_paused = std::mem::replace(&mut self.is_paused, !snapshot.is_watching);
        if was_paused {
            self.window_began = Instant::now();
            return;
        }
        let elapsed = self.window_began.elapsed();
        let window_requests = match &self.learner {
            Some(learner) => learner.window_requests(),
            None => snapshot.instructions.window_requests,
        };
        if !self.is_paused && requests < window_requests && elapsed < snapshot.instructions.window {
            return;
        }
        let samples_per_second = requests as f64 * self.rate.rate() / elapsed.as_secs_f64().max(0.001);
        let before = shared.published();
        let is_idle = requests == 0 && before.epoch == self.epoch && before.bins.len() == self.models.len();
        let published = if is_idle { self.plan_again(snapshot, &before) } else { self.end_window(snapshot) };
        shared.publish(published);
        if self.is_paused {
            self.models.iter_mut().for_each(Model::skip);
            self.partitions.iter_mut().filter_map(|held| held.division.as_mut()).for_each(Division::skip);
            self.chooser.skip();
        }
        self.raise_rate(shared, samples_per_second, snapshot.instructions.samples_per_second);
        self.window_began = Instant::now();
    }

    /// On a replica, publishes what its primary teaches in place of what it would learn itself; when it becomes the
    /// primary, begins with that. True where there is nothing more to do: the replica's own windows don't count while
    /// it is taught.
    fn learns_from_primary(&mut self, shared: &Shared, snapshot: &Snapshot) -> bool {
        let heard = shared.taught.lock().ok().and_then(|mut place| place.take());
        let is_news = heard.is_some();
        self.taught = heard.or(self.taught.take());
        self.taught.take_if(|t| t.epoch != self.epoch || !t.is_fresh(&snapshot.instructions));
        if self.taught.is_none() {
            return false;
        }
        if is_news || !snapshot.is_replica {
            self.take_over(snapshot);
            shared.publish(self.plan_on_lessons(snapshot));
        }
        if !snapshot.is_replica {
            self.taught = None;
        }
        true
    }

    /// Begins anew with what was taught: own models know nothing yet, and what they have missed is no cold miss.
    fn take_over(&mut self, snapshot: &Snapshot) {
        let Some(taught) = self.taught.clone() else { return };
        let epoch = self.epoch;
        self.start_epoch(epoch);
        snapshot.bins.iter().enumerate().for_each(|(i, &bins)| self.make_room(i, bins));
        self.models.iter_mut().for_each(Model::skip);
        self.partitions.iter_mut().zip(&snapshot.counters).for_each(|(held, &counted)| held.before = counted);
        self.window_began = Instant::now();
        self.chooser.begin_with(taught.sample_size);
        let mut target_bytes = vec![0; self.models.len()];
        for (id, lesson) in taught.partitions {
            let Some((held, bins)) = self.partitions.get_mut(id.index()).zip(snapshot.bins.get(id.index())) else {
                continue;
            };
            let (curve, reads, sample_size) = (lesson.curve, lesson.weights.reads, lesson.sample_size);
            (held.carried, held.weights) = (Some(Carried { curve, reads, sample_size }), lesson.weights);
            // How the primary has divided it by size isn't taught: its bins begin alike.
            target_bytes[bins.range()].fill(lesson.target_bytes / bins.count() as u64);
            self.reads[bins.range()].fill(reads / bins.count() as f64);
        }
        self.plan = Some(Plan { target_bytes, cost_us: 0.0 });
    }

    /// What is known is what was taught.
    fn plan_on_lessons(&mut self, snapshot: &Snapshot) -> Published {
        let view = |held: &Partition| {
            let (penalty_us_mean, penalty_us_spread) = held.weights.penalty_us();
            let curve = held.carried.as_ref().map_or_else(MissRatioCurve::default, |carried| carried.curve.clone());
            PartitionView {
                curve,
                penalty_us_mean,
                penalty_us_spread,
                weights: held.weights,
                ..PartitionView::default()
            }
        };
        let views: Vec<PartitionView> = self.partitions.iter().map(view).collect();
        let bins_of = |(view, bins): (&PartitionView, &Bins)| {
            let n = bins.count();
            let part = Part { curve: &view.curve, weight: 1.0, share: n as f64 };
            let curve = if n == 1 { view.curve.clone() } else { MissRatioCurve::of_parts(&[part]) };
            let bin = BinView { curve, reads: view.weights.reads / n as f64, sampled_keys: 0 };
            std::iter::repeat_n(bin, n)
        };
        let bins: Vec<BinView> = views.iter().zip(&snapshot.bins).flat_map(bins_of).collect();
        let began = Instant::now();
        self.plan = self.decide(snapshot, &views, &bins);
        if self.modelling == Modelling::SampleSizes {
            let as_set = snapshot.instructions.sample_size;
            self.sample_sizes = self
                .carried_sample_sizes(snapshot)
                .into_iter()
                .map(|k| RunningSampleSize::new(k.unwrap_or(as_set)))
                .collect();
        }
        Published {
            choice: self.chooser.choice(),
            is_taught: true,
            fast_target_bytes: self.divide_fast(snapshot, &bins),
            limits: vec![SizeLimits::NONE; views.len()],
            partitions: views,
            bins,
            plan_us: began.elapsed().as_micros() as u64,
            ..self.as_it_stands()
        }
    }

    /// What the next publication says in any case.
    fn as_it_stands(&self) -> Published {
        Published {
            epoch: self.epoch,
            window: self.window,
            plan: self.plan.clone(),
            sample_sizes: self.sample_sizes.iter().map(RunningSampleSize::k).collect(),
            plans_adopted: self.plans_adopted,
            models_bytes: self.models_bytes(),
            ..Published::default()
        }
    }

    /// Ends a window in which nobody asked for anything: what was known stands, and is planned on for the limits as
    /// they are. Nights would be forgetful otherwise.
    fn plan_again(&mut self, snapshot: &Snapshot, before: &Published) -> Published {
        let began = Instant::now();
        let views: Vec<PartitionView> =
            before.partitions.iter().map(|view| PartitionView { miss_ratio: None, ..view.clone() }).collect();
        self.plan = self.decide(snapshot, &views, &before.bins);
        self.window += 1;
        Published {
            fast_target_bytes: self.divide_fast(snapshot, &before.bins),
            partitions: views,
            plan_us: began.elapsed().as_micros() as u64,
            ..Published {
                window: self.window,
                plan: self.plan.clone(),
                models_bytes: self.models_bytes(),
                ..before.clone()
            }
        }
    }

    fn end_window(&mut self, snapshot: &Snapshot) -> Published {
        let began = Instant::now();
        let capacity_bytes = snapshot.capacity_bytes;
        let before: Vec<Counters> = self.partitions.iter().map(|held| held.before).collect();
        let (bins, merged): (Vec<BinView>, Vec<Option<MergedCurve>>) = snapshot
            .bins
            .iter()
            .enumerate()
            .flat_map(|(i, &bins)| self.close_bins(i, bins, &snapshot.counters[i], capacity_bytes))
            .unzip();
        let views: Vec<PartitionView> = (0..snapshot.bins.len())
            .map(|i| {
                let range = snapshot.bins[i].range();
                self.close(i, (&bins[range.clone()], &merged[range]), &snapshot.counters[i])
            })
            .collect();
        let merged: Vec<MergedCurve> = merged.into_iter().flatten().collect();
        let curves_us = began.elapsed().as_micros() as u64;
        let began = Instant::now();
        let plan = self.decide(snapshot, &views, &bins);
        let targets = |plan: &Option<Plan>| plan.as_ref().map(|plan| plan.target_bytes.clone());
        let moved = targets(&plan) != targets(&self.plan);
        self.plans_adopted += u64::from(moved && plan.is_some());
        self.plan = plan;
        self.choose_sample_sizes(&merged, &bins, moved, snapshot);
        let limits_of = |held: &Partition| held.division.as_ref().map_or(SizeLimits::NONE, Division::limits);
        let limits = self.partitions.iter().map(limits_of).collect();
        let choice = match self.modelling {
            Modelling::Miniatures => self.chooser.end_window(self.whole(snapshot), self.rate),
            _ => Choice::default(),
        };
        let learned = self.learner.as_mut().map(|learner| learner.end_window(capacity_bytes)).unwrap_or_default();
        let elapsed = (self.window_began.elapsed(), self.rate);
        let sizes = self.sizer.as_mut().map(|sizer| sizer.end_window(snapshot, &before, elapsed, &learned));
        self.window += 1;
        let age = 64 * snapshot.instructions.window_requests;
        self.models.iter_mut().for_each(|model| model.end_window(WINDOW_DECAY, age, capacity_bytes));
        // What is published is about the limits as they were; others are for the next window.
        for (held, &keys) in self.partitions.iter_mut().zip(&snapshot.keys) {
            if let Some(division) = &mut held.division {
                division.end_window(keys, WINDOW_DECAY as f32);
            }
        }
        Published {
            fast_target_bytes: self.divide_fast(snapshot, &bins),
            limits,
            choice,
            learned,
            sizes: sizes.unwrap_or_default().into(),
            prediction_error: self.sizer.as_ref().and_then(|sizer| sizer.error),
            partitions: views,
            bins,
            curves_us,
            plan_us: began.elapsed().as_micros() as u64,
            ..self.as_it_stands()
        }
    }

    fn models_bytes(&self) -> u64 {
        let models: usize = self.models.iter().map(Model::memory_bytes).sum();
        let learner = self.learner.as_ref().map_or(0, |learner| learner.memory_bytes());
        let sizer = self.sizer.as_ref().map_or(0, Sizer::memory_bytes);
        (models + self.chooser.memory_bytes() + learner + sizer) as u64
    }

    /// The cache as a whole.
    fn whole(&self, snapshot: &Snapshot) -> Whole {
        let (n, sum) = self.penalties();
        Whole {
            keys: snapshot.keys.iter().sum(),
            capacity_bytes: snapshot.capacity_bytes,
            memory_bytes: snapshot.memory_bytes,
            penalty_us_mean: if n > 0.0 { sum / n } else { 0.0 },
            evictions: snapshot.evictions.0,
            eviction_us: snapshot.evictions.1,
            reads: self.partitions.iter().map(|held| held.before.reads).sum(),
            misses: self.partitions.iter().map(|held| held.before.misses).sum(),
        }
    }

    /// Penalties measured of late, and their sum in µs.
    fn penalties(&self) -> (f64, f64) {
        let add =
            |(n, sum): (f64, f64), held: &Partition| (n + held.weights.penalties, sum + held.weights.penalty_us_sum);
        self.partitions.iter().fold((0.0, 0.0), add)
    }

    /// The K of each bin for its target: that which its curve is of there. To begin with it is as set; under targets
    /// that stay another has to be worth as much as another plan, too.
    fn choose_sample_sizes(&mut self, merged: &[MergedCurve], bins: &[BinView], moved: bool, snapshot: &Snapshot) {
        let (instructions, carried) = (&snapshot.instructions, self.carried_sample_sizes(snapshot));
        let Some(plan) = &self.plan else { return self.sample_sizes.clear() };
        let gain_min = if moved { 0.0 } else { instructions.gain_min };
        let as_set = RunningSampleSize::new(instructions.sample_size);
        self.sample_sizes.resize(merged.len().min(plan.target_bytes.len()), as_set);
        for (i, running) in self.sample_sizes.iter_mut().enumerate() {
            match carried[i] {
                Some(k) => *running = RunningSampleSize::new(k),
                None => {
                    let n_reads = bins[i].reads * self.rate.rate();
                    running.end_window(&merged[i], plan.target_bytes[i], gain_min, n_reads);
                }
            }
        }
    }

    /// The K of each bin that was taken over and says more than what was seen since.
    fn carried_sample_sizes(&self, snapshot: &Snapshot) -> Vec<Option<u32>> {
        let of = |(held, bins): (&Partition, &Bins)| {
            let carried = held.carried.as_ref().filter(|carried| carried.sample_size > 0);
            let says_more = carried.filter(|carried| carried.reads >= 0.5 * held.weights.reads);
            std::iter::repeat_n(says_more.map(|carried| carried.sample_size), bins.count())
        };
        self.partitions.iter().zip(&snapshot.bins).flat_map(of).collect()
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
        let Partition { weights, before, .. } = &mut self.partitions[partition];
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
        }
    }

    /// Joins a partition's curve with the one that was taken over, each by the reads that it stands for. Bins of one
    /// that is divided have their own alone.
    fn join_carried(&mut self, partition: usize, closed: &mut [(BinView, Option<MergedCurve>)]) {
        let held = &mut self.partitions[partition];
        let Some(carried) = &mut held.carried else { return };
        carried.reads *= WINDOW_DECAY;
        let reads: f64 = closed.iter().map(|(bin, _)| bin.reads).sum();
        let own_reads = (reads - carried.reads).max(0.0);
        if carried.reads < CARRIED_MIN * own_reads {
            held.carried = None;
            return;
        }
        if let [(only, _)] = closed {
            let part = |curve, weight| Part { curve, weight, share: 1.0 };
            only.curve = MissRatioCurve::of_parts(&[part(&only.curve, own_reads), part(&carried.curve, carried.reads)]);
        }
    }

    /// The next plan; `None` without a limit to divide, or before any request.
    fn decide(&self, snapshot: &Snapshot, views: &[PartitionView], bins: &[BinView]) -> Option<Plan> {
        let memory_bytes = snapshot.capacity_bytes;
        let is_unknown = |held: &Partition| held.carried.is_none() && held.before.requests() == 0;
        if memory_bytes == 0 || self.partitions.iter().all(is_unknown) {
            return None;
        }
        let Instructions { granularity_bytes, gain_min, objective, .. } = snapshot.instructions;
        let penalty_us = self.penalties_us(views);
        let minimums = tenants::fitting_minimums(&snapshot.bytes_min, memory_bytes);
        let claims_of = |((tenant, of_one), penalty_us): ((&TenantId, &Bins), &f64)| {
            let group = tenant.0 as usize;
            let miss_us = objective.miss_us(*penalty_us) * f64::from(snapshot.weights[group]);
            bins[of_one.range()].iter().map(move |bin| bin.claim(miss_us, group, self.rate))
        };
        let claims: Vec<Claim> =
            snapshot.tenant_of.iter().zip(&snapshot.bins).zip(&penalty_us).flat_map(claims_of).collect();
        let bounds = |(&bytes_min, &bytes_max): (&u64, &u64)| Group { bytes_min, bytes_max: bytes_max.max(bytes_min) };
        let groups: Vec<Group> = minimums.iter().zip(&snapshot.bytes_max).map(bounds).collect();
        let terms = Terms { memory_bytes, granularity_bytes, gain_min, objective };
        next_plan(self.plan.as_ref(), &claims, &groups, &terms).ok()
    }

    /// How the fast memory tier is divided: a read that it misses costs the same whoever's it is, but for the
    /// tenant's weight.
    fn divide_fast(&self, snapshot: &Snapshot, bins: &[BinView]) -> Vec<u64> {
        let Some((division, fast_bytes)) = snapshot.fast else { return Vec::new() };
        let claims_of = |(tenant, of_one): (&TenantId, &Bins)| {
            let group = tenant.0 as usize;
            let weight = f64::from(snapshot.weights[group]);
            bins[of_one.range()].iter().map(move |bin| bin.claim(weight, group, self.rate))
        };
        let claims: Vec<Claim> = snapshot.tenant_of.iter().zip(&snapshot.bins).flat_map(claims_of).collect();
        let unit_bytes = (fast_bytes / FAST_UNITS).max(1);
        fast_division::divide(division, &claims, snapshot.weights.len(), fast_bytes, unit_bytes).unwrap_or_default()
    }

    /// Mean penalty by partition; where none was measured, the mean of all; where none was measured at all, the same
    /// for all, so that the plan saves the most misses.
    fn penalties_us(&self, views: &[PartitionView]) -> Vec<f64> {
        let (n, sum) = self.penalties();
        let fallback = if n > 0.0 { sum / n } else { 1.0 };
        views.iter().map(|view| if view.penalty_us_mean > 0.0 { view.penalty_us_mean } else { fallback }).collect()
    }
}

/// The curve of a partition whose bins have what is best of its memory.
fn whole_curve(bins: &[BinView]) -> MissRatioCurve {
    match bins {
        [only] => only.curve.clone(),
        _ => shared_curve(&bins.iter().map(|bin| (bin.reads, &bin.curve)).collect::<Vec<_>>(), WHOLE_POINTS),
    }
}

/// The same of each K; `None` where K isn't chosen.
fn whole_merged(bins: &[BinView], merged: &[Option<MergedCurve>]) -> Option<MergedCurve> {
    if let [only] = merged {
        return only.clone();
    }
    let of = |k: u32| {
        let of_bin =
            |(bin, merged): (&BinView, &Option<MergedCurve>)| Some((bin.reads, merged.as_ref()?.of(k)?.clone()));
        let parts: Vec<(f64, MissRatioCurve)> = bins.iter().zip(merged).filter_map(of_bin).collect();
        let parts: Vec<(f64, &MissRatioCurve)> = parts.iter().map(|(reads, curve)| (*reads, curve)).collect();
        (k, shared_curve(&parts, WHOLE_POINTS))
    };
    merged.iter().any(Option::is_some).then(|| MergedCurve::new(&SAMPLE_SIZES.map(of)))
}

#[cfg(test)]
mod tests {
    use tenure_core::access::Access;
    use tenure_core::curve::CurvePoint;
    use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

    use super::*;
    use crate::observe::bins::Binning;

    pub(super) fn instructions() -> Instructions {
        Instructions {
            window_requests: 1000,
            window: Duration::from_secs(3600),
            granularity_bytes: 0,
            gain_min: 0.01,
            objective: Objective::Penalty,
            rate_min: SampleRate::new(0.01).unwrap(),
            samples_per_second: 1_000_000,
            modelling: Modelling::Recency,
            sample_size: 5,
        }
    }

    /// Two partitions of `size_classes` bins, or of one.
    fn binning(size_classes: usize) -> Binning {
        let mut binning = Binning::new(size_classes);
        (0..2).for_each(|_| binning.add(0));
        binning
    }

    fn sampled(access: Access, at: u64, partition: u16) -> Sampled {
        let partition = PartitionId(partition);
        Sampled { access, at, partition, bins: binning(1).of(partition), is_sized: true, epoch: 0, shown: None }
    }

    fn snapshot(counters: Vec<Counters>, capacity_bytes: u64) -> Snapshot {
        Snapshot {
            epoch: 0,
            counters,
            tenant_of: vec![TenantId(0), TenantId(1)],
            bins: binning(1).all().to_vec(),
            bytes_min: vec![0; 2],
            bytes_max: vec![u64::MAX; 2],
            weights: vec![1; 2],
            memory_bytes: capacity_bytes,
            capacity_bytes,
            keys: vec![10_000; 2],
            evictions: (0, 0),
            fast: None,
            key_table_bytes: 0,
            is_watching: true,
            are_accesses_noted: true,
            is_replica: false,
            instructions: instructions(),
        }
    }

    /// On a busy core accesses may come faster than a worker takes them.
    #[test]
    fn a_queue_that_is_never_empty_keeps_no_window_from_ending() {
        let mut models = Models::new(&Shared::new());
        let access = Access::read(KeyHash::of_number(1), 10);
        assert!(models.take_some(|| Some(sampled(access, 0, 0))));
        assert!(!models.take_some(|| None));
    }

    /// Two partitions, each a loop over 100 keys of 10 bytes, misses of the second ten times as expensive, memory for
    /// one: it goes to the second.
    #[test]
    fn a_window_gives_memory_to_the_dear_misses() {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        for round in 0..20u64 {
            for key in 0..100u64 {
                for partition in 0..2u16 {
                    let counted = &mut counters[partition as usize];
                    counted.reads += 1;
                    let key = KeyHash::of_number(u64::from(partition) * 1000 + key);
                    models.take(&sampled(Access::read(key, 10), counted.requests(), partition));
                    if round == 0 {
                        counted.misses += 1;
                        counted.penalties += 1;
                        counted.penalty_us_sum += if partition == 0 { 100.0 } else { 1000.0 };
                    }
                }
            }
        }
        models.look_at(&shared, &snapshot(counters, 1050));
        let mut version = 0;
        let published = shared.news(&mut version).expect("a window has ended");
        let targets = &published.plan.as_ref().unwrap().target_bytes;
        assert!(targets[1] >= 1000, "{targets:?}");
        assert_eq!(published.partitions[1].penalty_us_mean, 1000.0);
        assert!(shared.news(&mut version).is_none());
    }

    /// A loop over 1.2 times what fits beside keys of recency, both in need of all memory: the loop is to be evicted
    /// at random, or to fit; the other by recency.
    #[test]
    fn each_partition_gets_a_k_with_its_target() {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut settings = instructions();
        settings.modelling = Modelling::SampleSizes;
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        models.look_at(&shared, &Snapshot { instructions: settings, ..snapshot(counters.clone(), 1_900) });
        let mut random = tenure_core::random::Random::new(7);
        for i in 0..100_000_u64 {
            let recent = 1_000_000 + i / 4 + random.below(1_500);
            for (partition, key) in [i % 1_100, recent].into_iter().enumerate() {
                counters[partition].reads += 1;
                let access = Access::read(KeyHash::of_number(key), 1);
                models.take(&sampled(access, counters[partition].requests(), partition as u16));
            }
        }
        models.look_at(&shared, &Snapshot { instructions: settings, ..snapshot(counters, 1_900) });
        let published = shared.news(&mut 0).expect("a window has ended");
        let targets = &published.plan.as_ref().unwrap().target_bytes;
        let k = &published.sample_sizes;
        assert!(k[1] >= 8, "{k:?} {targets:?}");
        assert!(k[0] < 5 || targets[0] >= 1_100, "{k:?} {targets:?}");
    }

    /// As above, but every miss counts alike, or the cheap tenant a hundredfold: it has the memory.
    #[test]
    fn objective_and_weight_change_whose_misses_count() {
        for (objective, weights, dear_has_it) in [
            (Objective::Penalty, vec![1, 1], true),
            (Objective::Penalty, vec![100, 1], false),
            (Objective::Hits, vec![3, 2], false),
            (Objective::Hits, vec![2, 3], true),
        ] {
            let shared = Shared::new();
            let mut models = Models::new(&shared);
            let mut counters = vec![Counters::default(); PARTITIONS_MAX];
            for i in 0..4000_u64 {
                let (partition, key) = (i as u16 % 2, i / 2 % 100);
                let counted = &mut counters[usize::from(partition)];
                counted.reads += 1;
                counted.penalties += 1;
                counted.penalty_us_sum += [100.0, 1000.0][usize::from(partition)];
                let access = Access::read(KeyHash::of_number(u64::from(partition) * 1000 + key), 10);
                models.take(&sampled(access, counted.requests(), partition));
            }
            let instructions = Instructions { objective, ..instructions() };
            models.look_at(&shared, &Snapshot { instructions, weights: weights.clone(), ..snapshot(counters, 1050) });
            let published = shared.news(&mut 0).expect("a window has ended");
            let targets = &published.plan.as_ref().unwrap().target_bytes;
            assert_eq!(targets[1] >= 1000, dear_has_it, "{objective:?} {weights:?}: {targets:?}");
        }
    }

    /// Two partitions that loop over small values and large ones in turn, with room for all of the small: those have
    /// it, of either partition, and the curve of a partition as a whole says that this is half of its misses.
    #[test]
    fn a_divided_partition_keeps_its_small_values() {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        let divided = binning(2);
        let mut published = Arc::default();
        for i in 0..320_000_u64 {
            let (partition, key) = (i as u16 % 2, i / 2 % 1000);
            let counted = &mut counters[usize::from(partition)];
            counted.reads += 1;
            let access =
                Access::read(KeyHash::of_number(u64::from(partition) * 10_000 + key), [200, 900][key as usize % 2]);
            let sampled = sampled(access, counted.requests(), partition);
            models.take(&Sampled { bins: divided.of(sampled.partition), ..sampled });
            // The first window says where the classes begin; those after divide by that, and forget what they knew.
            if i % 40_000 == 39_999 {
                let bins = divided.all().to_vec();
                models.look_at(&shared, &Snapshot { bins, ..snapshot(counters.clone(), 240_000) });
                published = shared.news(&mut 0).expect("a window has ended");
            }
        }
        let targets = &published.plan.as_ref().unwrap().target_bytes;
        assert!(targets.len() == 4 && [0, 2].iter().all(|&small| targets[small] >= 100_000), "{targets:?}");
        let begins: Vec<u32> = published.limits.iter().filter_map(|limits| limits.begins_bytes(1)).collect();
        assert!(begins.iter().all(|begins| (201..=900).contains(begins)) && begins.len() == 2, "{begins:?}");
        let of_first = &published.partitions[0].curve;
        assert!((of_first.miss_ratio_at(120_000) - 0.5).abs() < 0.06, "{}", of_first.miss_ratio_at(120_000));
    }

    /// A backend slows down from one window to the next: the mean is the new one at once, where enough misses say so.
    #[test]
    fn the_penalty_is_that_of_the_last_window() {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut counted = Counters::default();
        let mut mean_after = |reads: u64, penalties: u64, us: f64| {
            counted.reads += reads;
            counted.penalties += penalties;
            counted.penalty_us_sum += penalties as f64 * us;
            let mut counters = vec![Counters::default(); PARTITIONS_MAX];
            counters[0] = counted;
            models.look_at(&shared, &snapshot(counters, 0));
            shared.news(&mut 0).unwrap().partitions[0].penalty_us_mean
        };
        assert_eq!(mean_after(2000, 100, 1000.0), 1000.0);
        assert_eq!(mean_after(2000, 100, 2000.0), 2000.0);
        let few = mean_after(2000, 7, 1000.0);
        assert!((1900.0..2000.0).contains(&few), "seven do not outweigh a hundred: {few}");
    }

    /// A replica is taught that the second partition is expensive and fits; it plans so, also as the primary's heir,
    /// until it has seen for several windows that it is the first.
    #[test]
    fn a_replica_plans_on_what_it_was_taught_and_so_does_the_heir_until_it_knows_better() {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut version = 0;
        let curve = MissRatioCurve::new(vec![CurvePoint { bytes: 1000, miss_ratio: 0.0 }]);
        let lesson = |i: u16, penalty_us: f64, target_bytes| {
            let weights =
                Weights { reads: 1000.0, penalties: 100.0, penalty_us_sum: 100.0 * penalty_us, ..Weights::default() };
            (PartitionId(i), Lesson { target_bytes, weights, curve: curve.clone(), ..Lesson::default() })
        };
        let taught = || Taught {
            epoch: 0,
            partitions: vec![lesson(0, 10.0, 0), lesson(1, 1000.0, 1050)],
            sample_size: None,
            heard: Instant::now(),
        };
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        let now = |counters: &[Counters], is_replica| Snapshot { is_replica, ..snapshot(counters.to_vec(), 1050) };
        let targets =
            |published: Option<Arc<Published>>| published.unwrap().plan.as_ref().unwrap().target_bytes.clone();
        // What a replica sees itself counts for nothing while it is taught.
        counters[0].writes = 5000;
        shared.teach(taught());
        models.look_at(&shared, &now(&counters, true));
        let published = shared.news(&mut version);
        assert!(published.as_ref().unwrap().is_taught);
        assert!(targets(published)[1] >= 1000);
        models.look_at(&shared, &now(&counters, true));
        assert!(shared.news(&mut version).is_none());
        models.look_at(&shared, &now(&counters, false));
        assert!(targets(shared.news(&mut version))[1] >= 1000, "the heir begins with it");

        let mut second_has_it = Vec::new();
        for _ in 0..8 {
            for i in 0..2000_u64 {
                let counted = &mut counters[0];
                counted.reads += 1;
                counted.penalties += 1;
                counted.penalty_us_sum += 5000.0;
                let access = Access::read(KeyHash::of_number(i % 100), 10);
                models.take(&sampled(access, counted.requests(), 0));
            }
            models.look_at(&shared, &now(&counters, false));
            let published = shared.news(&mut version);
            assert!(!published.as_ref().unwrap().is_taught);
            second_has_it.push(targets(published)[1] >= 1000);
        }
        assert!(!second_has_it[7], "{second_has_it:?}");
        assert!(models.partitions[0].carried.is_none(), "what was taken over is forgotten in time");
    }

    /// A night in which nobody asks for anything; then the limit is halved, and there still is nobody.
    #[test]
    fn what_was_known_outlasts_windows_without_requests() {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        (counters[0].reads, counters[0].penalties, counters[0].penalty_us_sum) = (5000, 5, 5000.0);
        counters[1].reads = 1000;
        let mut look = |capacity_bytes| {
            let mut now = snapshot(counters.clone(), capacity_bytes);
            now.instructions.window = Duration::ZERO;
            models.look_at(&shared, &now);
            shared.news(&mut 0).unwrap()
        };
        let before = look(1000);
        (0..1000).for_each(|_| _ = look(1000));
        let after = look(500);
        let weights = |published: &Published| published.partitions.iter().map(|view| view.weights).collect::<Vec<_>>();
        assert_eq!(weights(&after), weights(&before));
        assert_eq!((after.window, after.partitions[0].miss_ratio), (before.window + 1001, None));
        assert_eq!(after.plan.as_ref().unwrap().target_bytes.iter().sum::<u64>(), 500);
    }

    #[test]
    fn without_a_limit_there_is_no_plan() {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        counters[0].reads = 5000;
        models.look_at(&shared, &snapshot(counters, 0));
        assert!(shared.news(&mut 0).unwrap().plan.is_none());
    }
}
