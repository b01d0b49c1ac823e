//! What the cache would miss with less memory or more, under the policy in force: drives
//! `tenure_core::policy::density::Sizing`.
//!
//! Each window what was expected of the present size is compared with what was measured, and after a change of
//! `maxmemory` what had been expected of that size. Cost: the worker takes at most 8 ms a second for it, and an
//! eight-hundredth of `maxmemory`.

use std::time::Duration;

use tenure_core::access::{Access, Op};
use tenure_core::policy::density::{BYTES_PER_KEY, KEYS_MAX, age_step};
use tenure_core::policy::density::{Learned, Measured, Owner, PRESENT, Ranking, SCALES, Shown, Sizing};
use tenure_core::sampling::SampleRate;
use tenure_core::units::PartitionId;

use super::shared::{Evictions, Snapshot};
use super::sizes::Sizes;
use crate::observe::Counters;

/// The part of the limit that the sample may take.
const MEMORY_SHARE: u64 = 800;
/// Sampled keys that are worth while in any case.
const KEYS_MIN: u64 = 1024;
/// Steps a second that may be taken, of half a microsecond each: see [`Sizing::take_steps`].
const STEPS_PER_SECOND: f64 = 16_000.0;
/// The rate is raised where it may be so many times as high.
const RAISED_FROM: f64 = 1.5;
/// It is raised to this part of what there is time for. While caches fill anew each key takes twice the time: the rate
/// would be lowered again at once, then raised again, and the caches never be as they should.
const RAISED_IN_TIME: f64 = 1.0 / 3.0;
/// … and lowered where it is above what it may be by so much.
const LOWERED_FROM: f64 = 1.25;
/// Fewer reads in a window say nothing of a prediction.
const READS_ENOUGH: f64 = 500.0;
/// Of fewer evictions it isn't asked how many keys were met for each, and how many were the server's.
const EVICTIONS_ENOUGH: u64 = 1000;
/// What models take under any limit: tables of a quarter of a megabyte, and the smallest samples.
const MODELS_BYTES_MIN: u64 = 400 << 10;
/// From so many times the limit on, up or down, the table of keys becomes another size.
const TABLE_RENEWED_FROM: f64 = 4.0;

/// The caches, and what was expected last. See the file's opening.
pub struct Sizer {
    sizing: Box<Sizing>,
    sizes: Sizes,
    /// How far the last prediction was off; `None` before there was one.
    pub error: Option<f64>,
    memory_bytes: u64,
    /// The caches hold fewer keys than they should: more are sampled than before.
    is_filling: bool,
    /// Keys that the caches would hold if all were sampled, as they were when they were last full.
    keys_met: Option<f64>,
    /// What eviction had done when the last window ended.
    evictions: Evictions,
    rate_wanted: f64,
    now: u64,
}

impl Sizer {
    /// For keys sampled at `rate`.
    pub fn new(rate: SampleRate, window_requests: u64) -> Self {
        let sizing = Box::new(Sizing::new(rate, age_step(window_requests), 1));
        Sizer {
            sizing,
            sizes: Sizes::default(),
            error: None,
            memory_bytes: 0,
            is_filling: false,
            keys_met: None,
            evictions: Evictions::default(),
            rate_wanted: 0.0,
            now: 0,
        }
    }

    /// Takes one access of the sample.
    pub fn record(&mut self, access: &Access, partition: PartitionId, shown: &Shown, learned: &Learned) {
        let Shown { now, expires, feature, penalty_us, op } = *shown;
        self.now = self.now.max(now);
        // The write that answers a miss stands for the read.
        let is_miss = op == Op::Read && access.op == Op::Write;
        let access = Access { op, penalty_us, ..*access };
        let ranking = learned.ranking.unwrap_or(Ranking::Greedy);
        self.sizing.record(&access, (partition, is_miss), (self.now, feature, expires), (ranking, &learned.table));
    }

    /// Follows the rate of the stream.
    pub fn set_stream_rate(&mut self, rate: SampleRate) {
        if rate < self.sizing.rate() {
            self.sizing.set_rate(rate);
        }
    }

    /// The share of the keys that it would look at, if all reached it; 0 while there is nothing to tell.
    pub fn rate_wanted(&self) -> f64 {
        self.rate_wanted
    }

    /// Ends a window: counters as they were when the last one ended, and as they are. What was learned ranks from now
    /// on.
    pub fn end_window(
        &mut self,
        snapshot: &Snapshot,
        before: &[Counters],
        (elapsed, stream_rate): (Duration, SampleRate),
        learned: &Learned,
    ) -> Sizes {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let keys = snapshot.keys.iter().copied().chain(std::iter::repeat(0));
        let of = |((before, now), keys): ((&Counters, &Counters), u64)| measured(before, now, keys);
        let now: Vec<Measured> = before.iter().zip(&snapshot.counters).zip(keys).map(of).collect();
        self.error = self.error_of(snapshot.memory.limit_bytes, &now).or(self.error);
        let is_fed = snapshot.are_accesses_noted && snapshot.is_watching && snapshot.memory.data_bytes_max > 0;
        if is_fed {
            let told = Sizes { memory_bytes: limits(snapshot), expected: self.sizing.end_window(&now, seconds) };
            self.is_filling &= told.is_empty() && told.memory_bytes == self.sizes.memory_bytes;
            // What was expected last stands until it can be told anew.
            if !self.is_filling {
                self.sizes = told;
            }
        } else {
            self.sizing.begin_again();
            (self.is_filling, self.sizes) = (false, Sizes::default());
        }
        let rank = (learned.ranking.unwrap_or(Ranking::Greedy), &*learned.table, self.now);
        let limit_bytes = snapshot.memory.limit_bytes;
        let limit_before = std::mem::replace(&mut self.memory_bytes, limit_bytes);
        if limit_before != limit_bytes {
            self.sizing.forget_counts();
            // Under a higher one there may be as many more keys.
            let more = (limit_bytes as f64 / limit_before as f64).max(1.0);
            self.keys_met = self.keys_met.map(|keys| keys * more).filter(|_| limit_before > 0);
        }
        self.follow_evictions(snapshot.evictions);
        let wanted = self.fit_rate(snapshot, seconds, stream_rate);
        self.rate_wanted = if is_fed { wanted } else { 0.0 };
        self.sizing.set_capacities(capacities(snapshot), owners(snapshot), rank);
        self.sizes.clone()
    }

    /// Mean over all reads of how far the prediction for this memory was off in the window that has ended.
    fn error_of(&self, memory_bytes: u64, now: &[Measured]) -> Option<f64> {
        let off = |(i, now): (usize, &Measured)| {
            let predicted = self.sizes.miss_ratio_at(i, memory_bytes)?;
            Some((now.reads, (predicted * now.reads - now.misses).abs()))
        };
        let (reads, misses) =
            now.iter().enumerate().filter_map(off).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (reads >= READS_ENOUGH).then(|| misses / reads)
    }

    /// While it is busy Tenure meets fewer keys for an eviction, and the server evicts some by itself. So do the
    /// caches.
    fn follow_evictions(&mut self, so_far: Evictions) {
        let before = self.evictions;
        let since = |of: fn(&Evictions) -> u64| of(&so_far).saturating_sub(of(&before));
        let [keys, met, by_server] = [since(|e| e.keys), since(|e| e.met), since(|e| e.by_server)];
        if keys + by_server >= EVICTIONS_ENOUGH {
            self.evictions = so_far;
            self.sizing.set_share_of_server(by_server as f64 / (keys + by_server) as f64);
            // Where the server evicts all, nothing was met.
            if keys > 0 {
                self.sizing.set_sample_size((met as f64 / keys as f64).round() as usize);
            }
        }
    }

    /// As many keys are looked at as memory and time allow, of those that come. Returns the rate at which they should
    /// come.
    fn fit_rate(&mut self, snapshot: &Snapshot, seconds: f64, stream_rate: SampleRate) -> f64 {
        let rate = self.sizing.rate();
        let keys_fitting_share = (snapshot.memory.limit_bytes / MEMORY_SHARE / BYTES_PER_KEY) as f64;
        // They may become as many more before the rate is lowered.
        let keys_max = (keys_fitting_share / LOWERED_FROM).clamp(KEYS_MIN as f64, KEYS_MAX as f64);
        let met = self.sizing.keys() as f64 / rate.rate();
        if self.sizing.is_full() {
            self.keys_met = Some(met);
        }
        // Until they were full once, the caches are expected to meet as many keys as the largest has room for.
        let keys_fitting = snapshot.keys.iter().sum::<u64>() as f64 * SCALES[SCALES.len() - 1];
        let keys = self.keys_met.unwrap_or(keys_fitting).max(met);
        let steps_per_second = self.sizing.take_steps() as f64 / seconds;
        let by_keys = keys_max / keys.max(1.0);
        let by_time = rate.rate() * STEPS_PER_SECOND / steps_per_second.max(1.0);
        let should_come = by_keys.min(in_time(rate.rate(), by_time));
        let wanted = should_come.min(stream_rate.rate());
        if wanted * LOWERED_FROM < rate.rate() || wanted > RAISED_FROM * rate.rate() {
            self.is_filling |= wanted > rate.rate();
            self.sizing.set_rate(SampleRate::new(wanted).unwrap_or(rate));
        }
        should_come
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.sizing.memory_bytes()
    }
}

/// The rate that time allows where there is time for `by_time`: the present one, less where that is too much, and more
/// only where there is plenty.
pub(super) fn in_time(rate: f64, by_time: f64) -> f64 {
    (by_time * RAISED_IN_TIME).max(rate.min(by_time))
}

fn measured(before: &Counters, now: &Counters, keys: u64) -> Measured {
    let since = |of: fn(&Counters) -> u64| of(now).saturating_sub(of(before)) as f64;
    Measured {
        reads: since(|counters| counters.reads),
        misses: since(|counters| counters.misses),
        answered: since(|counters| counters.answered),
        miss_us: (now.miss_us - before.miss_us).max(0.0),
        keys: keys as f64,
    }
}

/// The limits that are looked at.
fn limits(snapshot: &Snapshot) -> [u64; SCALES.len()] {
    SCALES.map(|scale| (scale * snapshot.memory.limit_bytes as f64) as u64)
}

/// What of these all keys would have. Tenure's models follow the limit, but for what they take in any case. What is
/// kept free is told of each. What else isn't data takes as much under each: the server's hash tables don't shrink
/// before they are all but empty, and the table of keys is another only under very different limits.
pub(super) fn capacities(snapshot: &Snapshot) -> [u64; SCALES.len()] {
    let (limit, capacity) = (snapshot.memory.limit_bytes as f64, snapshot.memory.data_bytes_max as f64);
    let (table, models) =
        (snapshot.memory.key_table_bytes as f64, snapshot.memory.models_bytes.saturating_sub(MODELS_BYTES_MIN) as f64);
    let headroom = snapshot.memory.headroom_bytes;
    let at = |i: usize| {
        let scale = SCALES[i];
        let is_renewed = scale >= TABLE_RENEWED_FROM || scale * TABLE_RENEWED_FROM <= 1.0;
        let table_more = if is_renewed { (scale - 1.0) * table } else { 0.0 };
        let headroom_more = headroom[i] as f64 - headroom[PRESENT] as f64;
        (capacity + (scale - 1.0) * (limit - models) - headroom_more - table_more).max(0.0) as u64
    };
    std::array::from_fn(at)
}

fn owners(snapshot: &Snapshot) -> Vec<Owner> {
    let of = |tenant: usize| Owner {
        tenant: tenant as u8,
        bytes_min: snapshot.tenants.bytes_min.get(tenant).copied().unwrap_or(0),
        bytes_max: snapshot.tenants.bytes_max.get(tenant).copied().unwrap_or(u64::MAX),
    };
    snapshot.tenant_of.iter().map(|tenant| of(usize::from(tenant.0))).collect()
}
