//! What the main thread and the worker share: a queue of sampled accesses, a snapshot of the counters one way, and what
//! was made of them the other.
//!
//! Neither side ever waits for the other: the main thread only tries the locks, and the worker holds one for as long as
//! a pointer takes to copy.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::decide::objective::Objective;
use tenure_core::decide::plan::Plan;
use tenure_core::policy::density::{Learned, SCALES};
use tenure_core::sampling::SampleRate;
use tenure_core::tiers::division::Division as FastDivision;
use tenure_core::units::TenantId;

use super::lessons::Taught;
use super::model::Modelling;
use super::sizes::Sizes;
use super::views::PartitionView;
use crate::observe::{Counters, SampleQueue};
use crate::rivals::Choice;

/// The worker isn't to be woken.
pub const AWAKE: usize = usize::MAX;

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
    /// How often its number went to another tenant.
    pub generations: Vec<u16>,
    /// What tenants may have.
    pub tenants: TenantTerms,
    /// What there is to divide.
    pub memory: MemoryNow,
    /// Keys there are, by partition.
    pub keys: Vec<u64>,
    /// What eviction has done so far.
    pub evictions: Evictions,
    /// Where there are two memory tiers, how the fast one is divided, and how much of it there is to divide, in bytes.
    pub fast: Option<(FastDivision, u64)>,
    /// False while commands run unseen: the counters stand still.
    pub is_watching: bool,
    /// What keys show is noted: of sampled accesses more is known than their size.
    pub are_accesses_noted: bool,
    /// This server follows a primary: what it is asked for is no guide.
    pub is_replica: bool,
    /// The settings.
    pub instructions: Instructions,
}

/// What eviction has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evictions {
    /// Keys that went.
    pub keys: u64,
    /// Time it took, in µs.
    pub spent_us: u64,
    /// Keys that were met for these.
    pub met: u64,
    /// Keys that the server itself has evicted.
    pub by_server: u64,
}

/// How much memory there is.
#[derive(Clone, Copy, Debug)]
pub struct MemoryNow {
    /// The server's limit, in bytes; 0 = none.
    pub limit_bytes: u64,
    /// What all keys together may take, in bytes, as partitions' bytes are counted: by mean sizes; 0 without a limit.
    pub capacity_bytes: u64,
    /// The same by the server's own figures, as values are in truth.
    pub data_bytes_max: u64,
    /// The table of keys, in bytes, where it is a share of the limit; else 0.
    pub key_table_bytes: u64,
    /// The models, in bytes: more under a larger limit.
    pub models_bytes: u64,
    /// What would be kept free with [`SCALES`] of the limit, in bytes.
    pub headroom_bytes: [u64; SCALES.len()],
}

/// What tenants are guaranteed and allowed, and how much their misses count.
#[derive(Clone, Debug)]
pub struct TenantTerms {
    /// Guaranteed, in bytes, by tenant.
    pub bytes_min: Vec<u64>,
    /// Allowed, in bytes, by tenant.
    pub bytes_max: Vec<u64>,
    /// How much a miss counts, by tenant.
    pub weights: Vec<u32>,
}

/// What the worker publishes: immutable.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// The number of the last that was whole: of a window, or of lessons.
    pub version: u64,
    /// Which set of partitions it is about.
    pub epoch: u32,
    /// Windows so far.
    pub window: u64,
    /// Target bytes by partition, and what they are predicted to cost; `None` where there is nothing to divide.
    pub plan: Option<Plan>,
    /// Bytes of the fast memory tier by partition; empty where it isn't divided.
    pub fast_target_bytes: Vec<u64>,
    /// Keys sampled per eviction, by partition, as they go with the plan; empty where they are as set.
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
    /// What it took to make this.
    pub effort: Effort,
    /// Plans whose targets differ from the one before.
    pub plans_adopted: u64,
}

/// What modelling takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    /// Time to make all curves, in µs.
    pub curves_us: u64,
    /// Time to allocate, in µs.
    pub plan_us: u64,
    /// Memory of the models, in bytes.
    pub models_bytes: u64,
}

/// What both threads see.
pub struct Shared {
    /// Sampled accesses, main thread to worker.
    pub queue: Arc<SampleQueue>,
    snapshot: Mutex<Option<Snapshot>>,
    published: Mutex<Arc<Published>>,
    taught: Mutex<Option<Taught>>,
    version: AtomicU64,
    rate_threshold: AtomicU64,
    stream_threshold: AtomicU64,
    /// The worker is to end.
    pub stop: AtomicBool,
    /// The worker takes a nap, and is to be woken once so many samples wait for it; else [`AWAKE`].
    pub rests_until: AtomicUsize,
    /// Sampled accesses that the main thread dropped since the rate was last looked at.
    pub dropped: AtomicU64,
    /// Replicas ask what was learned.
    is_asked: AtomicBool,
    /// Set by tests: the worker panics at its next turn.
    pub panic_please: AtomicBool,
}

impl Shared {
    /// Nothing was left or published.
    pub fn new() -> Self {
        Shared {
            queue: Arc::default(),
            snapshot: Mutex::new(None),
            published: Mutex::default(),
            taught: Mutex::default(),
            version: AtomicU64::new(0),
            rate_threshold: AtomicU64::new(SampleRate::ALL.threshold()),
            stream_threshold: AtomicU64::new(SampleRate::ALL.threshold()),
            stop: AtomicBool::new(false),
            rests_until: AtomicUsize::new(AWAKE),
            dropped: AtomicU64::new(0),
            is_asked: AtomicBool::new(false),
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

    /// Main thread: whether replicas ask what was learned.
    pub fn set_asked(&self, is_asked: bool) {
        self.is_asked.store(is_asked, Ordering::Relaxed);
    }

    /// Worker: whether they do.
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
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

    /// Worker: what the main thread has left, once.
    pub fn take_snapshot(&self) -> Option<Snapshot> {
        self.snapshot.lock().ok().and_then(|mut place| place.take())
    }

    /// Worker: what a primary has taught, once.
    pub fn take_taught(&self) -> Option<Taught> {
        self.taught.lock().ok().and_then(|mut place| place.take())
    }

    /// Worker: what was published last.
    pub fn published(&self) -> Arc<Published> {
        self.published.lock().map(|place| place.clone()).unwrap_or_default()
    }

    /// Worker: this is what the main thread finds from now on.
    pub fn publish(&self, published: Published) {
        let version = self.version.load(Ordering::Relaxed) + 1;
        self.publish_part(Published { version, ..published });
    }

    /// Worker: the same while a window goes on, in which only part of what was published last is replaced.
    pub fn publish_part(&self, published: Published) {
        if let Ok(mut place) = self.published.lock() {
            *place = Arc::new(published);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Worker: accesses are to come at the rate `stream` from now on, of which the models take `rate`.
    pub fn set_rates(&self, rate: SampleRate, stream: SampleRate) {
        self.rate_threshold.store(rate.threshold(), Ordering::Relaxed);
        self.stream_threshold.store(stream.threshold(), Ordering::Relaxed);
    }

    /// The rate at which the models take keys.
    pub fn rate(&self) -> SampleRate {
        SampleRate::from_threshold(self.rate_threshold.load(Ordering::Relaxed))
    }

    /// The rate at which accesses are passed on.
    pub fn stream_rate(&self) -> SampleRate {
        SampleRate::from_threshold(self.stream_threshold.load(Ordering::Relaxed))
    }
}
