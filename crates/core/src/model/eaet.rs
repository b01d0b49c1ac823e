//! EAET: miss ratio curves from reuse times, for objects of different sizes, with deletes and expiry.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 2.2, on top of AET (Hu et al., ATC'16). Idea: a block travels `c` bytes
//! down the LRU stack in its average eviction time `AET(c)` (eq. 2), at a speed given by the bytes of accesses whose
//! reuse time is longer than `t`, less the upward moves of deletes younger than `t` (eq. 5); the miss ratio is the
//! share of requests whose reuse time is above `AET(c)` (eq. 4). Differs from the paper (derivations in
//! docs/models.md, "EAET"):
//! - a log-spaced histogram (relative error at most 1/64), and byte weights in place of one record per byte;
//! - the speed at age `t` is an average over the requests that a block of that age can have met, those with at least
//!   `t` of history before them. The paper's average over all requests counts every first access as a push on blocks
//!   of any age, also of ages beyond the trace, and is off by up to 0.05 at large caches for it;
//! - a request that changes a size pushes the difference on older blocks;
//! - no distance is above the most bytes that were stored at once, whatever the histogram's resolution says.
//!
//! Time runs in bytes, as the paper's decomposition into single bytes has it, or in requests ([`Clock`]), which is as
//! good where sizes don't come in phases, and all that a caller can tell that doesn't look at the size of every
//! request. Sampled input carries the SHARDS-adj correction (Waldspurger et al., FAST'15): shares are taken of the
//! accesses that were *expected* in the sample (requests × rate), which is the same as adding the difference at reuse
//! time 0, less the misses that deletes outside the sample cause (`deletes.rs`). In `record` a census corrects the
//! rate itself (`census.rs`). Where all accesses are seen, the depths are put right by distances measured on a
//! thousand keys (`calibration.rs`). Cost: O(1) per sampled access, O(buckets) per curve; 45 KiB plus about 40 bytes
//! per sampled key.

pub use super::Counted;
use super::CurveModel;
use super::calibration::Calibration;
use super::census::{Census, Correction};
use super::deletes::Deletes;
use super::key_map::KeyMap;
use super::reuse_time::ReuseTimes;
use crate::access::{Access, Op};
use crate::curve::{CurvePoint, MissRatioCurve};
use crate::expiry::expires_us_after;
use crate::sampling::{SampleRate, Sampling};
use crate::units::KeyHash;

/// The unit of a model's time: of its reuse times, and of the ages that it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Requests: reads and writes.
    Requests,
    /// The bytes of those requests.
    Bytes,
}

/// What is remembered of a sampled key.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// When its last access was, by the model's clock.
    at: u64,
    /// Time of its last access, in µs.
    time_us: u64,
    /// When its value expires, in µs; `u64::MAX` = never.
    expires_us: u64,
    size_bytes: u32,
}

/// A stretch of the stream: while it lasted, the history that its requests knew grew `from` one length `to` another;
/// they count `weight` each.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: u64,
    to: u64,
    weight: f64,
}

/// After the rate was raised: the keys that joined the sample then.
#[derive(Clone, Copy, Debug)]
struct Joined {
    /// The rate before; keys that it takes were known already.
    known_rate: SampleRate,
    /// When the others joined, by the model's clock.
    at: u64,
    /// Until enough was seen, their first access says nothing.
    first_access_is_unknown: bool,
}

/// The sampled keys that are remembered, and how many bytes they are.
#[derive(Clone, Debug, Default)]
struct KnownKeys {
    seen: KeyMap<Seen>,
    /// Bytes of `seen`.
    bytes: u64,
    /// The most that they were, at the present rate.
    bytes_max: f64,
}

impl KnownKeys {
    fn remember(&mut self, key: KeyHash, seen: Seen) {
        let before = self.seen.insert(key, seen);
        self.bytes += u64::from(seen.size_bytes);
        self.bytes -= before.map_or(0, |before| u64::from(before.size_bytes));
        self.bytes_max = self.bytes_max.max(self.bytes as f64);
    }

    fn forget(&mut self, key: KeyHash) {
        let gone = self.seen.remove(&key);
        self.bytes -= gone.map_or(0, |gone| u64::from(gone.size_bytes));
    }

    fn keep(&mut self, keeps: impl Fn(KeyHash, &Seen) -> bool) {
        self.seen.retain(|&key, seen| keeps(key, seen));
        self.bytes = self.seen.values().map(|seen| u64::from(seen.size_bytes)).sum();
    }
}

/// What was counted of the sample; it decays, and scales with the rate.
#[derive(Clone, Debug)]
struct Counts {
    /// Counted requests by their reuse time.
    reuses: ReuseTimes,
    /// By how many bytes the pushes on a block fall when it reaches an age.
    slowdowns: ReuseTimes,
    /// Counted requests whose key had no earlier access: their reuse time is infinite.
    cold_requests: f64,
    /// Bytes that all requests pushed on a block of age 0.
    pushed_bytes: f64,
    /// Requests that say nothing.
    unknown_requests: f64,
}

impl Counts {
    fn new() -> Counts {
        Counts {
            reuses: ReuseTimes::new(),
            slowdowns: ReuseTimes::new(),
            cold_requests: 0.0,
            pushed_bytes: 0.0,
            unknown_requests: 0.0,
        }
    }

    fn scale(&mut self, factor: f64) {
        self.reuses.scale(factor);
        self.slowdowns.scale(factor);
        self.cold_requests *= factor;
        self.pushed_bytes *= factor;
        self.unknown_requests *= factor;
    }
}

/// The model. See the file's opening.
#[derive(Clone, Debug)]
pub struct Eaet {
    sampling: Sampling,
    rate: SampleRate,
    counted: Counted,
    unit: Clock,
    known: KnownKeys,
    counts: Counts,
    /// The stream's time so far, sampled or not; never decays.
    clock: u64,
    /// Accesses before this time are forgotten.
    remembers_from: u64,
    /// Counted requests of the stream, sampled or not; decays as the histograms do.
    requests: f64,
    deletes: Deletes,
    /// The stream's time by the history it knew; the last `open` stretches still last.
    stretches: Vec<Stretch>,
    open: usize,
    joined: Option<Joined>,
    census: Census,
    /// Where it is accessed.
    calibration: Option<Box<Calibration>>,
}

/// Stretches of less weight than this count for nothing.
const WEIGHT_MIN: f64 = 1e-9;

/// More stretches than this are merged.
const STRETCHES_MAX: usize = 64;

impl Eaet {
    /// A model that looks at the share `rate` of keys; its time runs in requests.
    pub fn new(rate: SampleRate, counted: Counted) -> Self {
        Eaet::with_clock(Sampling::Rate(rate), counted, Clock::Requests)
    }

    /// A model that samples a share of keys, or at most a number of them, and whose time runs in `unit`.
    pub fn with_clock(sampling: Sampling, counted: Counted, unit: Clock) -> Self {
        Eaet {
            sampling,
            rate: sampling.rate(),
            counted,
            unit,
            known: KnownKeys::default(),
            counts: Counts::new(),
            clock: 0,
            remembers_from: 0,
            requests: 0.0,
            deletes: Deletes::default(),
            stretches: vec![Stretch { from: 0, to: 0, weight: 1.0 }],
            open: 1,
            joined: None,
            census: Census::beside(sampling),
            calibration: None,
        }
    }

    /// A model whose time runs in bytes, and whose depths are put right by distances measured on a thousand keys
    /// (`calibration.rs`). It has to see all accesses ([`CurveModel::record`]), with their sizes.
    pub fn calibrated(sampling: Sampling, counted: Counted) -> Self {
        let calibration = Some(Box::new(Calibration::new(counted)));
        Eaet { calibration, ..Eaet::with_clock(sampling, counted, Clock::Bytes) }
    }

    /// A model without a census.
    pub(super) fn uncorrected(sampling: Sampling, counted: Counted, unit: Clock) -> Self {
        Eaet { census: Census::beside(Sampling::ALL), ..Eaet::with_clock(sampling, counted, unit) }
    }

    /// How long ago the key of `access`, the next of the stream, was accessed when it comes; `None` where it isn't
    /// known.
    pub(super) fn reuse_time_of(&self, access: &Access) -> Option<u64> {
        self.known.seen.get(&access.key).map(|seen| (self.clock + self.moving(access) - seen.at).max(1))
    }

    /// By how much an access moves the clock.
    fn moving(&self, access: &Access) -> u64 {
        match (access.op, self.unit) {
            (Op::Delete, _) => 0,
            (_, Clock::Bytes) => u64::from(access.size_bytes),
            (_, Clock::Requests) => 1,
        }
    }

    /// Counts requests of the stream without looking at their keys: what a caller that samples by itself tells between
    /// calls of [`Eaet::record_sampled`]. The clock moves by `moving`, in its unit; `counted` requests are of the kind
    /// that the miss ratio counts.
    pub fn advance(&mut self, moving: u64, counted: u64) {
        self.clock += moving;
        self.requests += counted as f64;
        let first_open = self.stretches.len() - self.open;
        self.stretches[first_open..].iter_mut().for_each(|stretch| stretch.to += moving);
    }

    /// Counts deletes of the stream, as [`Eaet::advance`] counts requests. Where they are told, the curve takes the
    /// misses behind those that the sample lacks into account (`deletes.rs`).
    pub fn advance_deletes(&mut self, deletes: u64) {
        self.deletes.advance(deletes as f64);
    }

    /// Takes one access of a key in the sample, at time `at` of the model's clock (never less than at an earlier call
    /// for the key). The requests themselves are told by [`Eaet::advance`].
    pub fn record_sampled(&mut self, access: &Access, at: u64) {
        let last = self.known.seen.get(&access.key).copied();
        let alive = last.filter(|seen| access.time_us < seen.expires_us);
        if let (Some(seen), None) = (last, alive) {
            self.count_expiry(access.key, &seen, access.time_us, at);
        }
        let history = self.history(access.key, at);
        if access.op == Op::Delete {
            self.deletes.count(alive.is_some());
            if let Some(seen) = alive {
                self.count_removal(at - seen.at, history, seen.size_bytes);
            }
            self.forget(access.key);
            return;
        }
        let requests = f64::from(u8::from(self.counted.includes(access.op)));
        self.counts.pushed_bytes += f64::from(access.size_bytes);
        match alive {
            Some(seen) => {
                let reuse_time = (at - seen.at).max(1);
                self.counts.reuses.add(reuse_time, requests);
                self.counts.slowdowns.add(reuse_time, f64::from(seen.size_bytes));
                if access.size_bytes != seen.size_bytes {
                    self.counts.slowdowns.add(history, f64::from(access.size_bytes) - f64::from(seen.size_bytes));
                }
            }
            None => {
                self.deletes.began(requests > 0.0);
                self.counts.slowdowns.add(history, f64::from(access.size_bytes));
                if last.is_none() && self.is_unknown(access.key) {
                    self.counts.unknown_requests += requests;
                } else {
                    self.counts.cold_requests += requests;
                }
            }
        }
        let expires_us = expires_us_after(access, alive.map(|seen| seen.expires_us));
        self.known
            .remember(access.key, Seen { at, time_us: access.time_us, expires_us, size_bytes: access.size_bytes });
        if self.sampling.is_exceeded_by(self.known.seen.len(), self.rate) {
            self.thin(self.sampling.lowered(self.rate));
        }
    }

    /// An expired value left the cache between two requests for it: a delete at the time its expiry fell on.
    fn count_expiry(&mut self, key: KeyHash, seen: &Seen, now_us: u64, at: u64) {
        let share = (seen.expires_us - seen.time_us) as f64 / (now_us - seen.time_us).max(1) as f64;
        let age = (share * (at - seen.at) as f64) as u64;
        self.count_removal(age, self.history(key, seen.at + age), seen.size_bytes);
    }

    /// A value left at age `age`: blocks older than that moved up by its bytes (eq. 5).
    fn count_removal(&mut self, age: u64, history: u64, size_bytes: u32) {
        self.counts.slowdowns.add(age + 1, f64::from(size_bytes));
        self.counts.slowdowns.add(history, -f64::from(size_bytes));
    }

    /// How far back an access of `key` at time `at` could have found an earlier one.
    fn history(&self, key: KeyHash, at: u64) -> u64 {
        let joined_at = self.joined.filter(|joined| !joined.known_rate.takes(key)).map_or(0, |joined| joined.at);
        at.saturating_sub(self.remembers_from.max(joined_at)).max(1)
    }

    fn is_unknown(&self, key: KeyHash) -> bool {
        self.joined.is_some_and(|joined| joined.first_access_is_unknown && !joined.known_rate.takes(key))
    }

    /// Ends a window: what was counted so far weighs `decay` (0 to 1) of what it did. Keys stay known.
    pub fn decay(&mut self, decay: f64) {
        self.scale(decay);
        self.requests *= decay;
        self.deletes.decay_stream(decay);
        self.stretches.iter_mut().for_each(|stretch| stretch.weight *= decay);
        self.begin_stretch();
    }

    /// Ends the stretches that last, and begins those of what is known now: one of the keys known for long, one of
    /// those that joined.
    fn begin_stretch(&mut self) {
        self.stretches.retain(|stretch| stretch.weight > WEIGHT_MIN && stretch.to > stretch.from);
        if self.stretches.len() > STRETCHES_MAX {
            self.merge_oldest_stretches();
        }
        let history = self.clock - self.remembers_from;
        let known_share = self.joined.map_or(1.0, |joined| joined.known_rate.rate() / self.rate.rate());
        self.stretches.push(Stretch { from: history, to: history, weight: known_share });
        self.open = 1;
        if let Some(joined) = self.joined {
            let history = self.clock - joined.at;
            self.stretches.push(Stretch { from: history, to: history, weight: 1.0 - known_share });
            self.open = 2;
        }
    }

    fn merge_oldest_stretches(&mut self) {
        let oldest = self.stretches.remove(0);
        let next = &mut self.stretches[0];
        let length = |stretch: &Stretch| (stretch.to - stretch.from) as f64;
        let mass = oldest.weight * length(&oldest) + next.weight * length(next);
        *next = Stretch { from: oldest.from.min(next.from), to: oldest.to.max(next.to), weight: 0.0 };
        next.weight = mass / length(next);
    }

    /// Thins the sample to a lower rate, as if it had been sampled so from the start.
    ///
    /// # Panics
    /// Where `rate` is above the present one: what was not sampled can't be had back.
    pub fn thin(&mut self, rate: SampleRate) {
        assert!(rate <= self.rate, "a sample can only be thinned");
        self.change_rate(rate);
        self.joined = self.joined.filter(|joined| joined.known_rate < rate);
        self.known.keep(|key, _| rate.takes(key));
        self.known.seen.shrink_to_fit();
        self.begin_stretch();
    }

    /// Raises the rate. Keys that come into the sample so were accessed before, unseen: until [`Eaet::all_known`]
    /// their first access is not taken for a cold miss.
    ///
    /// # Panics
    /// Where `rate` is below the present one.
    pub fn widen(&mut self, rate: SampleRate) {
        assert!(rate >= self.rate, "thinning is another thing");
        let known_rate = self.joined.map_or(self.rate, |joined| joined.known_rate);
        self.joined = Some(Joined { known_rate, at: self.clock, first_access_is_unknown: true });
        self.change_rate(rate);
        self.begin_stretch();
    }

    fn change_rate(&mut self, rate: SampleRate) {
        let share = rate.rate() / self.rate.rate();
        self.scale(share);
        self.known.bytes_max *= share;
        self.rate = rate;
    }

    /// A part of the stream goes by unseen, of unknown length: what is known of keys is forgotten, and until
    /// [`Eaet::all_known`] their next access is not taken for a cold miss.
    pub fn skip(&mut self) {
        self.known.keep(|_, _| false);
        self.remembers_from = self.clock;
        let nothing_known = SampleRate::from_threshold(0);
        self.joined = Some(Joined { known_rate: nothing_known, at: self.clock, first_access_is_unknown: true });
        self.begin_stretch();
    }

    /// Enough was seen since the rate was raised, or since a gap: a key not met so far is new.
    pub fn all_known(&mut self) {
        if let Some(joined) = &mut self.joined {
            joined.first_access_is_unknown = false;
        }
    }

    /// Forgets keys whose last access is more than `age` ago, in the clock's unit: they only take memory.
    pub fn forget_older_than(&mut self, age: u64) {
        let oldest = self.clock.saturating_sub(age);
        if oldest <= self.remembers_from {
            return;
        }
        self.known.keep(|_, seen| seen.at >= oldest);
        self.remembers_from = oldest;
        self.joined = self.joined.filter(|joined| joined.at > oldest);
        self.begin_stretch();
    }

    fn scale(&mut self, factor: f64) {
        self.counts.scale(factor);
        self.deletes.scale_sample(factor);
    }

    /// Sampled keys that are remembered now.
    pub fn sampled_keys(&self) -> usize {
        self.known.seen.len()
    }

    /// Forgets one sampled key, as when its database was flushed.
    pub fn forget(&mut self, key: KeyHash) {
        self.known.forget(key);
    }

    /// The size of a sampled key at its last access, in bytes; `None` where the key isn't remembered.
    pub fn size_of(&self, key: KeyHash) -> Option<u32> {
        self.known.seen.get(&key).map(|seen| seen.size_bytes)
    }

    /// The key's accesses are another model's from now on, which shares this one's clock and rate: what is remembered
    /// of it goes there.
    pub fn hand_over(&mut self, key: KeyHash, to: &mut Eaet) {
        if let Some(seen) = self.known.seen.get(&key).copied() {
            self.forget(key);
            to.known.remember(key, seen);
        }
    }

    /// The rate of the sample.
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// The stream's time so far, in the unit that [`Eaet::advance`] was told it in.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The curve at the histogram's own resolution: one point per reuse time that occurred. Empty where nothing was
    /// counted.
    pub fn full_curve(&self) -> MissRatioCurve {
        let Correction { rate, size_factor } = self.census.correction(self.rate);
        let expected = self.requests * rate - self.counts.unknown_requests;
        if expected <= 0.0 {
            return MissRatioCurve::default();
        }
        let depths = self.depths(rate, size_factor);
        let factors = self.calibration.as_ref().map(|calibration| calibration.factors());
        let bytes_max = self.known.bytes_max / rate * size_factor;
        let mut tail_requests =
            self.counts.cold_requests + self.counts.reuses.sum() + self.deletes.misses_missing(rate);
        let mut bytes = 0.0;
        let mut steps = Steps::default();
        for (i, ((_, _, requests), depth)) in self.counts.reuses.iter().zip(depths).enumerate().skip(1) {
            steps.push(bytes, tail_requests / expected);
            tail_requests -= requests;
            let factor = factors.as_ref().map_or(1.0, |factors| factors[i]);
            bytes = f64::max(bytes, depth * factor).min(bytes_max);
        }
        steps.push(bytes, tail_requests / expected);
        steps.into_curve()
    }

    /// How deep a block lies, in bytes, when it is as old as a bucket's last reuse time, for all buckets.
    pub(super) fn depths(&self, rate: f64, size_factor: f64) -> Vec<f64> {
        let (mut pushed_bytes, mut bytes) = (self.counts.pushed_bytes, 0.0);
        let mut depths = vec![0.0];
        for (first, width, slowdown) in self.counts.slowdowns.iter().skip(1) {
            pushed_bytes -= slowdown;
            // Eq. 2 over one bucket, whose reuse times lie evenly in it: the speed at each of its ages, added up.
            let width = width as f64;
            let pushed_in_bucket = pushed_bytes * width + slowdown * (width + 1.0) / 2.0;
            let meeting = self.time_with_history(first as f64 - 1.0 + (width - 1.0) / 2.0) * rate;
            if meeting > 0.0 {
                bytes += (pushed_in_bucket / meeting).max(0.0) * size_factor;
            }
            depths.push(bytes);
        }
        depths
    }

    /// The stream's time in which at least `history` was known: what a block of that age can have met.
    fn time_with_history(&self, history: f64) -> f64 {
        let beyond =
            |stretch: &Stretch| stretch.weight * (stretch.to as f64 - history.max(stretch.from as f64)).max(0.0);
        self.stretches.iter().map(beyond).sum()
    }
}

/// Collects a curve's corners: where the miss ratio is about to fall, and where it has fallen.
#[derive(Default)]
struct Steps {
    points: Vec<CurvePoint>,
    last: Option<CurvePoint>,
}

impl Steps {
    /// The next size and its miss ratio; a stretch without a fall keeps only its two ends.
    fn push(&mut self, bytes: f64, miss_ratio: f64) {
        let point = CurvePoint { bytes: bytes.round() as u64, miss_ratio: miss_ratio.clamp(0.0, 1.0) };
        let falls = self.points.last().is_none_or(|kept| point.miss_ratio < kept.miss_ratio);
        if falls {
            if let Some(before) = self.last.take() {
                self.keep(before);
            }
            self.keep(point);
        } else {
            self.last = Some(point);
        }
    }

    fn keep(&mut self, point: CurvePoint) {
        match self.points.last().copied() {
            Some(kept) if kept.bytes >= point.bytes => self.fall_at_once(kept, point.miss_ratio),
            _ if point.bytes == 0 => {}
            _ => self.points.push(point),
        }
    }

    /// The curve falls at the size of its last corner: a new corner one byte below keeps what stands before it flat.
    fn fall_at_once(&mut self, kept: CurvePoint, miss_ratio: f64) {
        self.points.pop();
        let below = kept.bytes - 1;
        if self.points.last().map_or(0, |before| before.bytes) < below {
            self.points.push(CurvePoint { bytes: below, ..kept });
        }
        self.points.push(CurvePoint { miss_ratio, ..kept });
    }

    /// The flat stretch behind the last fall has no end: only cold misses are left there, at any size.
    fn into_curve(mut self) -> MissRatioCurve {
        if self.points.is_empty() {
            self.points.push(CurvePoint { bytes: 1, miss_ratio: 1.0 });
        }
        MissRatioCurve::new(self.points)
    }
}

impl CurveModel for Eaet {
    fn record(&mut self, access: &Access) {
        if let Some(calibration) = &mut self.calibration {
            calibration.record(access);
        }
        if access.op == Op::Delete {
            self.advance_deletes(1);
        } else {
            self.advance(self.moving(access), u64::from(self.counted.includes(access.op)));
        }
        self.census.record(access);
        if self.rate.takes(access.key) {
            self.record_sampled(access, self.clock);
        }
    }

    fn forget_counts(&mut self) {
        self.decay(0.0);
        if let Some(calibration) = &mut self.calibration {
            calibration.forget_counts();
        }
    }

    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        let full = self.full_curve();
        if full.is_empty() {
            return full;
        }
        let at = |&bytes: &u64| CurvePoint { bytes, miss_ratio: full.miss_ratio_at(bytes) };
        MissRatioCurve::new(sizes_bytes.iter().map(at).collect())
    }

    fn sample_rate(&self) -> SampleRate {
        self.rate
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.known.seen.memory_bytes()
            + self.counts.reuses.memory_bytes()
            + self.counts.slowdowns.memory_bytes()
            + self.census.memory_bytes()
            + self.calibration.as_ref().map_or(0, |calibration| calibration.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> KeyHash {
        KeyHash::of_number(n)
    }

    fn model(accesses: impl IntoIterator<Item = Access>) -> Eaet {
        let mut eaet = Eaet::new(SampleRate::ALL, Counted::ReadsAndWrites);
        accesses.into_iter().for_each(|a| eaet.record(&a));
        eaet
    }

    /// A loop over n keys misses always below n and never above, after the first round.
    #[test]
    fn a_loop_has_its_cliff_where_all_keys_fit() {
        let n = 50;
        let eaet = model((0..100 * n).map(|i| Access::read(key(i % n), 10)));
        let curve = eaet.curve(&[n * 10 / 2, n * 10 - 20, n * 10 + 10]);
        let miss: Vec<f64> = curve.points().iter().map(|p| p.miss_ratio).collect();
        assert!(miss[0] > 0.95 && miss[1] > 0.9, "{miss:?}");
        assert!((miss[2] - 0.01).abs() < 0.001, "only the first round misses: {miss:?}");
    }

    /// Reuse times of 1020 bytes share a bucket with those of 1023, but no distance is above the 1020 bytes that
    /// there are.
    #[test]
    fn no_distance_is_above_what_was_stored_at_once() {
        let mut eaet = Eaet::with_clock(Sampling::ALL, Counted::ReadsAndWrites, Clock::Bytes);
        (0..1000).for_each(|i| eaet.record(&Access::read(key(i % 10), 102)));
        let curve = eaet.curve(&[918, 1020]);
        assert!(curve.miss_ratio_at(918) > 0.99, "{curve:?}");
        assert!((curve.miss_ratio_at(1020) - 0.01).abs() < 1e-9, "{curve:?}");
    }

    /// A sample may think the loop longer than all that was stored; its cliff must stay a cliff all the same.
    #[test]
    fn a_sampled_loop_keeps_its_cliff() {
        let sampling = Sampling::Rate(SampleRate::new(0.1).unwrap());
        for first in (0..20).map(|i| i * 10_000) {
            let mut eaet = Eaet::with_clock(sampling, Counted::ReadsAndWrites, Clock::Bytes);
            (0..20_000).for_each(|i| eaet.record(&Access::read(key(first + i % 1_000), 100)));
            let curve = eaet.full_curve();
            assert!(curve.miss_ratio_at(90_000) > 0.9, "{first}: {}", curve.miss_ratio_at(90_000));
            assert!(curve.miss_ratio_at(110_000) < 0.1, "{first}: {}", curve.miss_ratio_at(110_000));
        }
    }

    /// Keys 1 1 2 2 3 3 …: one key of memory is enough to hit every second request.
    #[test]
    fn one_key_of_memory_holds_a_reuse_time_of_one() {
        let eaet = model((0..1000).map(|i| Access::read(key(i / 2), 1)));
        assert!((eaet.curve(&[1]).points()[0].miss_ratio - 0.5).abs() < 1e-6);
    }

    /// With every key deleted before it is asked again, all requests are cold misses, whatever the memory.
    #[test]
    fn a_deleted_key_is_cold() {
        let eaet = model((0..1000).map(|i| {
            let access = Access::read(key(i / 2 % 10), 8);
            if i % 2 == 0 { access } else { access.with_op(Op::Delete) }
        }));
        assert_eq!(eaet.curve(&[1 << 20]).points()[0].miss_ratio, 1.0);
    }

    /// Deletes free memory: of a loop over 100 keys half are deleted at once, so half the memory holds the rest.
    #[test]
    fn deletes_move_the_rest_up() {
        let rounds = (0..200).flat_map(|_| 0..100u64).flat_map(|k| {
            let access = Access::read(key(k), 100);
            let delete = access.with_op(Op::Delete);
            std::iter::once(access).chain((k % 2 == 1).then_some(delete))
        });
        let curve = model(rounds).full_curve();
        assert!(curve.miss_ratio_at(5_300) < 0.52, "{}", curve.miss_ratio_at(5_300));
        assert!(curve.miss_ratio_at(4_500) > 0.9, "{}", curve.miss_ratio_at(4_500));
    }

    /// A value that expires before every reuse never hits; one that outlives it always does.
    #[test]
    fn expiry_counts() {
        let stream =
            |ttl_us: u64| (0..1000u64).map(move |i| Access { time_us: i * 10, ttl_us, ..Access::read(key(i % 10), 8) });
        assert_eq!(model(stream(50)).curve(&[1 << 20]).points()[0].miss_ratio, 1.0);
        assert!(model(stream(1_000_000)).curve(&[1 << 20]).points()[0].miss_ratio < 0.02);
    }

    #[test]
    fn only_reads_count_when_asked_so() {
        let mut eaet = Eaet::new(SampleRate::ALL, Counted::Reads);
        for i in 0..1000 {
            let access = Access::read(key(i / 2), 1);
            eaet.record(&if i % 2 == 0 { access.with_op(Op::Write) } else { access });
        }
        assert!(eaet.curve(&[2]).points()[0].miss_ratio < 1e-6, "each read follows its write");
    }

    #[test]
    fn a_thinned_model_keeps_its_curve() {
        let stream = |i: u64| Access::read(key(i.wrapping_mul(i) % 20_011), 100);
        let mut thinned = model((0..200_000).map(stream));
        let whole = thinned.clone();
        thinned.thin(SampleRate::new(0.2).unwrap());
        let sizes = crate::curve::even_sizes(20_011 * 100, 20);
        let error = whole.curve(&sizes).mean_absolute_error(&thinned.curve(&sizes), &sizes);
        assert!(error < 0.02, "{error}");
        assert!(thinned.sampled_keys() < whole.sampled_keys() / 3);
    }

    /// Half of the keys join the sample late; a loop that is all hits stays one.
    #[test]
    fn a_widened_sample_takes_no_old_key_for_a_new_one() {
        let mut eaet = Eaet::new(SampleRate::new(0.5).unwrap(), Counted::ReadsAndWrites);
        for round in 0..20 {
            if round == 10 {
                eaet.decay(0.0);
                eaet.widen(SampleRate::ALL);
            }
            (0..1000).for_each(|i| eaet.record(&Access::read(key(i), 1)));
        }
        assert!(eaet.curve(&[2000]).points()[0].miss_ratio < 1e-6);
    }

    /// A loop that is watched in part stays one: its curve falls where the loop fits.
    #[test]
    fn a_gap_is_no_reuse_time_and_no_miss() {
        let mut eaet = Eaet::new(SampleRate::ALL, Counted::ReadsAndWrites);
        for round in 0..40 {
            if round % 4 == 0 {
                eaet.skip();
            }
            (0..1000).for_each(|i| eaet.record(&Access::read(key(i), 1)));
            if round % 4 == 1 {
                eaet.all_known();
            }
        }
        let ratios: Vec<f64> = eaet.curve(&[900, 1100]).points().iter().map(|point| point.miss_ratio).collect();
        assert!(ratios[0] > 0.99 && ratios[1] < 0.01, "{ratios:?}");
    }

    /// A loop whose keys are another model's from the middle on: a reuse time that began in the one ends in the other.
    #[test]
    fn a_key_that_is_handed_over_is_not_new() {
        let empty = || Eaet::new(SampleRate::ALL, Counted::ReadsAndWrites);
        let (mut before, mut after) = (empty(), empty());
        for at in 0..2000 {
            let access = Access::read(key(at % 100), 10);
            if at >= 1000 {
                before.hand_over(access.key, &mut after);
                after.record_sampled(&access, at);
            } else {
                before.record_sampled(&access, at);
            }
        }
        assert_eq!((before.sampled_keys(), after.sampled_keys(), after.size_of(key(7))), (0, 100, Some(10)));
        after.advance(2000, 1000);
        assert_eq!(after.full_curve().miss_ratio_at(1 << 20), 0.0);
        assert!(after.full_curve().miss_ratio_at(500) > 0.9);
    }

    #[test]
    fn nothing_seen_gives_an_empty_curve() {
        assert!(model([]).full_curve().is_empty());
    }
}
