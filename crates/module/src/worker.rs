//! The worker: one background thread that turns the sampled stream into curves, and curves into plans.
//!
//! What it shares with the main thread is in `worker/shared.rs`. Here: the thread, the order of things in it, and
//! when a window ends.

#[cfg(test)]
mod agreement;
pub mod lessons;
pub mod model;
mod nap;
mod partition_models;
mod planner;
mod rate;
pub mod shared;
mod sizes;
pub mod sizing;
#[cfg(test)]
mod tests;
pub mod views;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tenure_core::policy::density::{Learned, Learner, LearnerConfig};
use tenure_core::sampling::SampleRate;

#[cfg(any(feature = "cluster", test))]
pub use self::lessons::Lesson;
pub use self::lessons::Taught;
use self::model::Modelling;
use self::nap::{Nap, Stint};
use self::partition_models::PartitionModels;
use self::planner::{Known, Planner, divide_fast};
use self::rate::RateControl;
use self::shared::{AWAKE, Effort};
pub use self::shared::{Evictions, Instructions, MemoryNow, Published, Shared, Snapshot, TenantTerms};
use self::sizing::Sizer;
pub use self::views::PartitionView;
#[cfg(any(feature = "cluster", test))]
pub use self::views::Weights;
use crate::ffi::{background, guard};
use crate::observe::{Counters, QUEUE_LEN, Sampled};
use crate::rivals::{Choice, Chooser, Whole};

/// How long the main thread waits for the thread to end: more than it takes, unless it makes a plan or is stopped.
const PATIENCE: Duration = Duration::from_millis(20);
/// Threads that were told to end and had not in that time.
static LEAVING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Which publication was taken last, and when.
#[derive(Clone, Copy, Debug, Default)]
pub struct News {
    /// Its number; 0 = none.
    pub version: u64,
    /// In µs.
    pub at_us: u64,
}

/// The running thread. Dropping it tells it to end, and waits for that no longer than 20 ms: what it shares stays for
/// as long as it runs.
pub struct Worker {
    /// What it shares.
    pub shared: Arc<Shared>,
    /// What was taken of what it has made.
    pub news: News,
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
            background::can_wait();
            if catch_unwind(AssertUnwindSafe(|| Models::new(&its).run(&its))).is_err() {
                guard::count_panic("the worker");
            }
        })?;
        Ok(Worker { shared, news: News::default(), thread: Some(thread) })
    }

    /// Main thread, each turn: what has come in doesn't wait for the end of a long nap, nor much of it for that of a
    /// short one. One look at a number where the worker takes none.
    #[inline]
    pub fn wake(&self) {
        let rests_until = self.shared.rests_until.load(Ordering::Relaxed);
        if rests_until != AWAKE && self.shared.queue.waiting() >= rests_until {
            self.shared.rests_until.store(AWAKE, Ordering::Relaxed);
            self.thread.iter().for_each(|thread| thread.thread().unpark());
        }
    }

    /// False where the thread has ended, which only a panic makes it do.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        let until = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
        leaving.push(thread);
        let (ended, others) = leaving.drain(..).partition(JoinHandle::is_finished);
        *leaving = others;
        join_all(ended);
    }
}

/// Waits for threads that still have to end, because their code is about to go.
pub fn wait_for_leaving() {
    join_all(std::mem::take(&mut *LEAVING.lock().unwrap_or_else(PoisonError::into_inner)));
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// The window under way.
struct Window {
    /// Windows that have ended.
    number: u64,
    began: Instant,
    /// Commands run unseen.
    is_paused: bool,
}

/// The worker's own state.
struct Models {
    epoch: u32,
    kept: PartitionModels,
    rate: RateControl,
    planner: Planner,
    chooser: Chooser,
    learner: Option<Box<Learner>>,
    sizer: Option<Sizer>,
    window: Window,
    instructions: Option<Instructions>,
    /// What its primary taught last, while this server is a replica.
    taught: Option<Taught>,
}

impl Models {
    fn new(shared: &Shared) -> Self {
        let modelling = Modelling::default();
        Models {
            epoch: 0,
            kept: PartitionModels::new(modelling, shared.rate()),
            rate: RateControl::new(shared.rate(), modelling.sampled_keys_max(0)),
            planner: Planner::default(),
            chooser: Chooser::default(),
            learner: None,
            sizer: None,
            window: Window { number: 0, began: Instant::now(), is_paused: false },
            instructions: None,
            taught: None,
        }
    }

    fn run(&mut self, shared: &Shared) {
        let (mut nap, mut stint) = (Nap::default(), Stint::default());
        while !shared.stop.load(Ordering::Relaxed) {
            assert!(!shared.panic_please.load(Ordering::Relaxed), "asked to by TENURE.DEBUG");
            let came = self.take_some(|| {
                stint.go_on(shared.queue.waiting());
                shared.queue.pop()
            });
            self.steer_rate(shared);
            if let Some(snapshot) = shared.take_snapshot() {
                self.look_at(shared, &snapshot);
            }
            if came < QUEUE_LEN {
                nap.take(shared, came > 0);
            }
        }
    }

    /// Takes what has come, a full queue at the most: where more comes than is taken, windows have to end all the
    /// same. Returns how many; below a full queue there are no more.
    fn take_some(&mut self, next: impl FnMut() -> Option<Sampled>) -> usize {
        std::iter::from_fn(next).take(QUEUE_LEN).map(|sampled| self.take(&sampled)).count()
    }

    fn take(&mut self, sampled: &Sampled) {
        if sampled.epoch != self.epoch {
            self.start_epoch(sampled.epoch, self.kept.modelling());
        }
        if !sampled.is_seen {
            return self.take_late(sampled);
        }
        self.rate.count();
        if self.kept.modelling() == Modelling::Miniatures {
            self.chooser.record(&sampled.access);
        }
        if let (Some(learner), Some(shown)) = (&mut self.learner, &sampled.shown) {
            learner.record(&sampled.access, shown);
            if let Some(sizer) = &mut self.sizer {
                sizer.record(&sampled.access, sampled.partition, shown, learner.learned());
            }
        }
        self.kept.take(sampled);
    }

    /// An access that went unseen tells who learns when its key was accessed, and nobody how often that was.
    fn take_late(&mut self, sampled: &Sampled) {
        if let (Some(learner), Some(shown)) = (&mut self.learner, &sampled.shown) {
            learner.record(&sampled.access, shown);
        }
    }

    fn start_epoch(&mut self, epoch: u32, modelling: Modelling) {
        self.epoch = epoch;
        let rate = self.rate.rate();
        self.kept = PartitionModels::new(modelling, rate);
        self.planner.clear();
        self.chooser = Chooser::default();
        let window_requests = self.instructions.map_or(0, |instructions| instructions.window_requests);
        let learns = modelling == Modelling::Densities;
        let config = LearnerConfig::new(rate, window_requests);
        let learner = || Box::new(Learner::new(config).expect("the default decay is in range"));
        self.learner = learns.then(learner);
        self.sizer = learns.then(|| Sizer::new(rate, window_requests));
    }

    /// Lowers the rate where watching costs too much or remembers too much.
    fn steer_rate(&mut self, shared: &Shared) {
        let Some(instructions) = self.instructions.filter(|_| self.rate.is_due()) else { return };
        let dropped = shared.dropped.swap(0, Ordering::Relaxed);
        let keys = self.sampled_keys();
        if let Some(rate) = self.rate.lowered(dropped, keys, &instructions) {
            self.set_rate(shared, rate);
        }
    }

    fn set_rate(&mut self, shared: &Shared, rate: f64) {
        let Ok(rate) = SampleRate::new(rate.min(1.0)) else { return };
        self.rate.set(rate);
        self.kept.set_rate(rate);
        if let Some(learner) = &mut self.learner {
            learner.set_rate(rate);
        }
        if let Some(sizer) = &mut self.sizer {
            sizer.set_stream_rate(self.rate.stream());
        }
        shared.set_rates(rate, self.rate.stream());
    }

    /// Has more come than the models take where the caches of other sizes have room for more.
    fn widen_stream(&mut self, shared: &Shared, requests_per_second: f64, allowed: u64) {
        let wanted = self.sizer.as_ref().map_or(0.0, Sizer::rate_wanted);
        if self.rate.widen(wanted, requests_per_second, allowed) {
            shared.set_rates(self.rate.rate(), self.rate.stream());
        }
    }

    fn sampled_keys(&self) -> usize {
        let learned = self.learner.as_ref().map_or(0, |learner| learner.sampled_keys());
        self.kept.sampled_keys().max(learned)
    }

    /// Ends the window where it is time to.
    fn look_at(&mut self, shared: &Shared, snapshot: &Snapshot) {
        self.follow(snapshot);
        if snapshot.tenant_of.is_empty() {
            return;
        }
        self.kept.make_room(snapshot.tenant_of.len());
        for (i, &generation) in snapshot.generations.iter().enumerate() {
            if !self.kept.is_of(i, generation) {
                return;
            }
        }
        if self.learns_from_primary(shared, snapshot) {
            return;
        }
        let requests = self.kept.requests_until(&snapshot.counters);
        let was_paused = std::mem::replace(&mut self.window.is_paused, !snapshot.is_watching);
        if was_paused {
            self.window.began = Instant::now();
            return;
        }
        let elapsed = self.window.began.elapsed();
        let window_requests = match &self.learner {
            Some(learner) => learner.window_requests(),
            None => snapshot.instructions.window_requests,
        };
        if !self.window.is_paused && requests < window_requests && elapsed < snapshot.instructions.window {
            return self.end_part(shared, requests);
        }
        let requests_per_second = requests as f64 / elapsed.as_secs_f64().max(0.001);
        let before = shared.published();
        let published = if requests == 0 && self.stands(&before) {
            self.plan_again(snapshot, &before)
        } else {
            self.end_window(snapshot)
        };
        shared.publish(self.with_teaching(shared, published));
        if self.window.is_paused {
            self.kept.skip();
            self.chooser.skip();
        }
        let allowed = snapshot.instructions.samples_per_second;
        let samples_per_second = requests_per_second * self.rate.rate().rate();
        if let Some(rate) = self.rate.raised(self.sampled_keys(), samples_per_second, allowed) {
            self.set_rate(shared, rate);
        }
        self.widen_stream(shared, requests_per_second, allowed);
        self.window.began = Instant::now();
    }

    /// Ends a part of the window, after so many requests of it, where it is time to: what was learned meanwhile ranks,
    /// and all else that was published stands.
    fn end_part(&mut self, shared: &Shared, requests: u64) {
        let before = shared.published();
        let stands = self.stands(&before);
        let Some(learner) = self.learner.as_mut().filter(|learner| stands && learner.part_ends_at(requests)) else {
            return;
        };
        let learned = Learned { teaching: before.learned.teaching.clone(), ..learner.end_part() };
        shared.publish_part(Published { learned, ..Published::clone(&before) });
    }

    /// Other partitions, other models, or windows of another length: what was learned begins anew.
    fn follow(&mut self, snapshot: &Snapshot) {
        let modelling = snapshot.instructions.modelling;
        let held = self.instructions.replace(snapshot.instructions);
        let is_as_long = held.is_some_and(|held| held.window_requests == snapshot.instructions.window_requests);
        let is_new_learner = modelling == Modelling::Densities && !is_as_long;
        if snapshot.epoch != self.epoch || modelling != self.kept.modelling() || is_new_learner {
            self.start_epoch(snapshot.epoch, modelling);
        }
        let keys_max = modelling.sampled_keys_max(snapshot.memory.limit_bytes);
        self.rate.allow_keys(keys_max);
        if let Some(learner) = &mut self.learner {
            learner.set_keys_max(keys_max);
        }
    }

    /// With what replicas ask for, where there are any.
    fn with_teaching(&self, shared: &Shared, published: Published) -> Published {
        let learner = self.learner.as_ref().filter(|_| shared.is_asked());
        let teaching = learner.map(|learner| Arc::new(learner.teaching()));
        Published { learned: Learned { teaching, ..published.learned }, ..published }
    }

    /// On a replica, publishes what its primary teaches in place of what it would learn itself; when it becomes the
    /// primary, begins with that. True where there is nothing more to do: the replica's own windows don't count while
    /// it is taught.
    fn learns_from_primary(&mut self, shared: &Shared, snapshot: &Snapshot) -> bool {
        let heard = shared.take_taught();
        let is_news = heard.is_some();
        self.taught = heard.or(self.taught.take());
        self.taught.take_if(|t| t.epoch != self.epoch || !t.is_fresh(snapshot.instructions.window));
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

    /// Begins anew with what was taught.
    fn take_over(&mut self, snapshot: &Snapshot) {
        let Some(taught) = self.taught.clone() else { return };
        self.start_epoch(self.epoch, self.kept.modelling());
        self.kept.make_room(snapshot.tenant_of.len());
        self.window.began = Instant::now();
        self.chooser.begin_with(taught.sample_size);
        if let Some((learner, teaching)) = self.learner.as_mut().zip(taught.teaching) {
            learner.begin_with(&teaching);
        }
        self.planner.take_over(self.kept.take_over(taught.partitions, snapshot));
    }

    /// What is known is what was taught.
    fn plan_on_lessons(&mut self, snapshot: &Snapshot) -> Published {
        let partitions = self.kept.taught_views();
        let began = Instant::now();
        let known = self.known(&partitions);
        self.planner.plan_anew(snapshot, known, &self.kept.penalties_us(&partitions));
        if self.kept.modelling() == Modelling::SampleSizes {
            let as_set = snapshot.instructions.sample_size;
            let carried = self.kept.carried_sample_sizes();
            self.planner.take_over_sample_sizes(carried.into_iter().map(|k| k.unwrap_or(as_set)));
        }
        let effort = Effort { plan_us: began.elapsed().as_micros() as u64, ..self.effort() };
        Published {
            choice: self.chooser.choice(),
            learned: self.learner.as_ref().map(|learner| learner.learned().clone()).unwrap_or_default(),
            is_taught: true,
            fast_target_bytes: divide_fast(snapshot, &partitions, self.rate.rate()),
            partitions,
            effort,
            ..self.as_it_stands()
        }
    }

    /// What a plan is made of.
    fn known<'a>(&self, partitions: &'a [PartitionView]) -> Known<'a> {
        Known { partitions, rate: self.rate.rate(), is_anything: self.kept.are_known() }
    }

    /// What the next publication says in any case.
    fn as_it_stands(&self) -> Published {
        Published {
            epoch: self.epoch,
            window: self.window.number,
            plan: self.planner.plan().cloned(),
            sample_sizes: self.planner.sample_sizes(),
            plans_adopted: self.planner.adopted(),
            ..Published::default()
        }
    }

    /// True where what was published is about these partitions.
    fn stands(&self, published: &Published) -> bool {
        published.epoch == self.epoch && published.partitions.len() == self.kept.len()
    }

    /// Ends a window in which nobody asked for anything: what was known stands, and is planned on for the limits as
    /// they are. Nights would be forgetful otherwise.
    fn plan_again(&mut self, snapshot: &Snapshot, before: &Published) -> Published {
        let began = Instant::now();
        let as_before = |view: &PartitionView| PartitionView { miss_ratio: None, ..view.clone() };
        let partitions: Vec<PartitionView> = before.partitions.iter().map(as_before).collect();
        let known = self.known(&partitions);
        self.planner.plan_anew(snapshot, known, &self.kept.penalties_us(&partitions));
        self.window.number += 1;
        let plan_us = began.elapsed().as_micros() as u64;
        Published {
            fast_target_bytes: divide_fast(snapshot, &partitions, self.rate.rate()),
            partitions,
            window: self.window.number,
            plan: self.planner.plan().cloned(),
            effort: Effort { curves_us: before.effort.curves_us, plan_us, ..self.effort() },
            ..before.clone()
        }
    }

    fn end_window(&mut self, snapshot: &Snapshot) -> Published {
        let began = Instant::now();
        let before = self.kept.before();
        let partitions = self.kept.close_all(snapshot);
        let curves_us = began.elapsed().as_micros() as u64;
        let began = Instant::now();
        let known = self.known(&partitions);
        let moved = self.planner.end_window(snapshot, known, &self.kept.penalties_us(&partitions));
        let carried = self.kept.carried_sample_sizes();
        self.planner.choose_sample_sizes(known, &carried, (moved, &snapshot.instructions));
        let choice = match self.kept.modelling() {
            Modelling::Miniatures => self.chooser.end_window(self.whole(snapshot), self.rate.rate()),
            _ => Choice::default(),
        };
        let learned =
            self.learner.as_mut().map(|learner| learner.end_window(snapshot.memory.data_bytes_max)).unwrap_or_default();
        let elapsed = (self.window.began.elapsed(), self.rate.stream());
        let sizes = self.sizer.as_mut().map(|sizer| sizer.end_window(snapshot, &before, elapsed, &learned));
        self.window.number += 1;
        self.kept.end_window(snapshot);
        let fast_target_bytes = divide_fast(snapshot, &partitions, self.rate.rate());
        let effort = Effort { curves_us, plan_us: began.elapsed().as_micros() as u64, ..self.effort() };
        Published {
            fast_target_bytes,
            choice,
            learned,
            sizes: sizes.unwrap_or_default().into(),
            prediction_error: self.sizer.as_ref().and_then(|sizer| sizer.error),
            partitions,
            effort,
            ..self.as_it_stands()
        }
    }

    /// The memory that modelling takes.
    fn effort(&self) -> Effort {
        let learner = self.learner.as_ref().map_or(0, |learner| learner.memory_bytes());
        let sizer = self.sizer.as_ref().map_or(0, Sizer::memory_bytes);
        let models_bytes = (self.kept.memory_bytes() + self.chooser.memory_bytes() + learner + sizer) as u64;
        Effort { models_bytes, ..Effort::default() }
    }

    /// The cache as a whole.
    fn whole(&self, snapshot: &Snapshot) -> Whole {
        let (n, sum) = self.kept.penalties();
        let sum_of = |of: fn(&Counters) -> u64| self.kept.before().iter().map(of).sum();
        Whole {
            keys: snapshot.keys.iter().sum(),
            capacity_bytes: snapshot.memory.capacity_bytes,
            memory_bytes: snapshot.memory.limit_bytes,
            penalty_us_mean: if n > 0.0 { sum / n } else { 0.0 },
            evictions: snapshot.evictions.keys,
            eviction_us: snapshot.evictions.spent_us,
            reads: sum_of(|counters| counters.reads),
            misses: sum_of(|counters| counters.misses),
        }
    }
}
