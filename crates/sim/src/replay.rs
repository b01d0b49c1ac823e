//! One policy against one trace, and what is counted.
//!
//! Reads and writes are requests. A hit costs the hit time. A read that misses costs the hit time and the miss
//! penalty, and is followed by the fill, whose own round trip is part of the measured penalty. A write costs the hit
//! time whether or not the key was there: it brings its value and waits for nobody. A delete costs nothing and is no
//! request. So the miss ratio is over reads and writes, as trace tools count it, and the mean latency too, with
//! writes at the hit time. Where fetches take their time, who asks for a key meanwhile waits for the rest, and that is
//! no miss (`tenure_core::fetches`).

use std::time::{Duration, Instant};

use tenure_core::access::{Access, Op};
use tenure_core::fetches::{Fetches, Wait};
use tenure_core::policy::Snapshot;
use tenure_core::policy::cache::{AHEAD, Outcome};

use crate::costs::PenaltyNoise;
use crate::policies::Policy;

/// What is counted. Numbers of requests are fractions, because the bound counts parts of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Reads and writes.
    pub requests: f64,
    /// Reads.
    pub reads: f64,
    /// Reads and writes whose key wasn't there.
    pub misses: f64,
    /// Reads whose key wasn't there.
    pub read_misses: f64,
    /// Bytes asked for or written.
    pub bytes: f64,
    /// Those of misses.
    pub missed_bytes: f64,
    /// Miss penalties of reads, and what others waited for the rest of a fetch, in µs.
    pub penalty_us: f64,
    /// Reads that waited so.
    pub delayed_hits: f64,
}

impl Tally {
    /// Counts one access.
    #[inline]
    pub fn count(&mut self, access: &Access, outcome: Outcome) {
        match outcome {
            Outcome::NotARequest => {}
            Outcome::Hit => {
                self.requests += 1.0;
                self.reads += f64::from(u8::from(access.op == Op::Read));
                self.bytes += f64::from(access.size_bytes);
            }
            Outcome::Miss => self.count_miss(access),
        }
    }

    /// Counts one access that has waited for this.
    fn count_waiting(&mut self, access: &Access, outcome: Outcome, wait: Wait) {
        match wait {
            Wait::Delayed(us) => {
                self.count(access, Outcome::Hit);
                self.delayed_hits += 1.0;
                self.penalty_us += f64::from(us);
            }
            Wait::Fetch | Wait::Nothing => self.count(access, outcome),
        }
    }

    /// Counts one access as a miss, if it is a request.
    pub fn count_miss(&mut self, access: &Access) {
        if access.op == Op::Delete {
            return;
        }
        let bytes = f64::from(access.size_bytes);
        self.requests += 1.0;
        self.bytes += bytes;
        self.misses += 1.0;
        self.missed_bytes += bytes;
        if access.op == Op::Read {
            self.reads += 1.0;
            self.read_misses += 1.0;
            self.penalty_us += f64::from(access.penalty_us);
        }
    }

    /// Sums it up for a cache of `capacity_bytes`.
    pub fn report(&self, capacity_bytes: u64, evictions: u64, hit_us: f64, ns_per_request: Option<f64>) -> Report {
        let ratio = |part: f64, whole: f64| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
        Report {
            memory_bytes: capacity_bytes,
            miss_ratio: ratio(self.misses, self.requests),
            read_miss_ratio: ratio(self.read_misses, self.reads),
            byte_miss_ratio: ratio(self.missed_bytes, self.bytes),
            delayed_hit_ratio: ratio(self.delayed_hits, self.requests),
            mean_latency_us: if self.requests > 0.0 { hit_us + self.penalty_us.max(0.0) / self.requests } else { 0.0 },
            penalty_us_total: self.penalty_us.max(0.0),
            requests: self.requests as u64,
            evictions,
            ns_per_request,
        }
    }
}

/// What a policy came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The cache's capacity, in bytes.
    pub memory_bytes: u64,
    /// Misses / requests, over reads and writes.
    pub miss_ratio: f64,
    /// Misses / reads: what the server itself reports.
    pub read_miss_ratio: f64,
    /// Bytes of misses / bytes, over reads and writes.
    pub byte_miss_ratio: f64,
    /// Delayed hits / requests; 0 where fetches take no time.
    pub delayed_hit_ratio: f64,
    /// Over reads and writes, in µs.
    pub mean_latency_us: f64,
    /// Miss penalties of reads, and waits of delayed hits, in µs.
    pub penalty_us_total: f64,
    /// Reads and writes counted.
    pub requests: u64,
    /// Values evicted, warm-up included.
    pub evictions: u64,
    /// Time to simulate one access, in ns; `None` for the bound.
    pub ns_per_request: Option<f64>,
}

/// What happened in one window of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowReport {
    /// Accesses replayed up to its end.
    pub accesses: u64,
    /// Over the window's reads and writes.
    pub miss_ratio: f64,
    /// Over the window's reads and writes, in µs.
    pub mean_latency_us: f64,
    /// Decisions at its end.
    pub snapshot: Snapshot,
}

/// How a replay counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayConfig {
    /// What a hit costs, in µs.
    pub hit_us: f64,
    /// Accesses at the beginning that aren't counted.
    pub warm_up: u64,
    /// Accesses per window report; 0 for none.
    pub window_accesses: u64,
    /// How far off penalties are of which the policy hears.
    pub noise: PenaltyNoise,
    /// Fetches take their time.
    pub delayed_hits: bool,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        let noise = PenaltyNoise::default();
        ReplayConfig { hit_us: 20.0, warm_up: 0, window_accesses: 0, noise, delayed_hits: false }
    }
}

/// A replay under way: the trace comes in batches.
pub struct Replay {
    policy: Box<dyn Policy>,
    config: ReplayConfig,
    /// Where fetches take their time.
    fetches: Option<Fetches>,
    accesses: u64,
    tally: Tally,
    window: Tally,
    windows: Vec<WindowReport>,
    busy: Duration,
}

impl Replay {
    /// Begins a replay.
    pub fn new(policy: Box<dyn Policy>, config: ReplayConfig) -> Self {
        let (tally, window, windows) = (Tally::default(), Tally::default(), Vec::new());
        let fetches = config.delayed_hits.then(Fetches::default);
        Replay { policy, config, fetches, accesses: 0, tally, window, windows, busy: Duration::ZERO }
    }

    /// Replays the next accesses of the trace.
    pub fn feed(&mut self, batch: &[Access]) {
        let began = Instant::now();
        let mut rest = batch;
        while !rest.is_empty() {
            let (part, later) = rest.split_at(self.accesses_until_something_ends().min(rest.len() as u64) as usize);
            self.feed_part(part);
            rest = later;
        }
        self.busy += began.elapsed();
    }

    fn accesses_until_something_ends(&self) -> u64 {
        let warm_up = self.config.warm_up.checked_sub(self.accesses).filter(|&n| n > 0);
        let window = self.config.window_accesses;
        let window = (window > 0).then(|| window - self.accesses % window);
        warm_up.unwrap_or(u64::MAX).min(window.unwrap_or(u64::MAX))
    }

    fn feed_part(&mut self, part: &[Access]) {
        let counts = self.accesses >= self.config.warm_up;
        let windows = self.config.window_accesses > 0;
        for next in part.chunks(AHEAD) {
            self.policy.warm(next);
            for (i, access) in (self.accesses..).zip(next) {
                let outcome = self.policy.access(&self.config.noise.heard(access, i));
                let wait = self.fetches.as_mut().map_or(Wait::Nothing, |fetches| fetches.wait(access, outcome));
                if counts {
                    self.tally.count_waiting(access, outcome, wait);
                }
                if windows {
                    self.window.count_waiting(access, outcome, wait);
                }
            }
            self.accesses += next.len() as u64;
        }
        if windows && self.accesses.is_multiple_of(self.config.window_accesses) {
            self.end_window();
        }
    }

    fn end_window(&mut self) {
        let report = std::mem::take(&mut self.window).report(self.policy.capacity_bytes(), 0, self.config.hit_us, None);
        self.windows.push(WindowReport {
            accesses: self.accesses,
            miss_ratio: report.miss_ratio,
            mean_latency_us: report.mean_latency_us,
            snapshot: self.policy.snapshot(),
        });
    }

    /// What it came to, and its windows.
    pub fn finish(self) -> (Report, Vec<WindowReport>) {
        let ns = self.busy.as_nanos() as f64 / self.accesses.max(1) as f64;
        let evictions = self.policy.evictions();
        (self.tally.report(self.policy.capacity_bytes(), evictions, self.config.hit_us, Some(ns)), self.windows)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::exact_lru::ExactLru;
    use tenure_core::units::KeyHash;

    use super::*;

    /// get a (miss), set b (miss), get b (hit), get a (hit), del a, get a (miss): 3 of 5 requests miss; 2 reads pay
    /// 100 µs, and every request 20: 60 µs in the mean.
    #[test]
    fn writes_count_as_requests_and_pay_the_hit_time_only() {
        let at = |key, op| Access { op, penalty_us: 100.0, ..Access::read(KeyHash(key), 10) };
        let trace =
            [at(1, Op::Read), at(2, Op::Write), at(2, Op::Read), at(1, Op::Read), at(1, Op::Delete), at(1, Op::Read)];
        let replayed = |warm_up, window_accesses| {
            let config = ReplayConfig { warm_up, window_accesses, ..ReplayConfig::default() };
            let mut replay = Replay::new(Box::new(ExactLru::cache(100)), config);
            trace.chunks(4).for_each(|batch| replay.feed(batch));
            replay.finish()
        };
        let (all, windows) = replayed(0, 3);
        assert_eq!((all.requests, all.miss_ratio, all.read_miss_ratio), (5, 0.6, 0.5));
        assert_eq!((all.mean_latency_us, all.penalty_us_total, all.byte_miss_ratio), (60.0, 200.0, 0.6));
        assert_eq!(windows.iter().map(|w| w.accesses).collect::<Vec<_>>(), [3, 6]);
        let (late, _) = replayed(4, 0);
        assert_eq!((late.requests, late.miss_ratio), (1, 1.0));
    }

    /// Reads of one key at 0, 30 and 150 µs, whose fetch takes 100: the second waits 70 µs and is no miss.
    #[test]
    fn who_asks_meanwhile_waits_for_the_rest_of_the_fetch() {
        let at = |time_us| Access { time_us, penalty_us: 100.0, ..Access::read(KeyHash(1), 10) };
        let replayed = |delayed_hits| {
            let config = ReplayConfig { delayed_hits, ..ReplayConfig::default() };
            let mut replay = Replay::new(Box::new(ExactLru::cache(100)), config);
            replay.feed(&[0, 30, 150].map(at));
            replay.finish().0
        };
        let (waiting, at_once) = (replayed(true), replayed(false));
        assert_eq!((waiting.penalty_us_total, at_once.penalty_us_total), (170.0, 100.0));
        assert_eq!((waiting.miss_ratio, waiting.delayed_hit_ratio), (1.0 / 3.0, 1.0 / 3.0));
        assert_eq!((at_once.miss_ratio, at_once.delayed_hit_ratio), (1.0 / 3.0, 0.0));
    }
}
