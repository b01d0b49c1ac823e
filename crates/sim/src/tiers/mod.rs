//! Two tiers of memory over a trace: what lies where, what moves, and what that would cost.
//!
//! The decisions are the core's (`tenure_core::tiers`); here are the values ([`cache`]), what is learned from the
//! accesses (`learner`), workloads like those of the dissertation ([`workloads`]), and what is counted. Systems as in
//! Wang's dissertation (2024) sec. 5.2: sdTMM, the same by worth, naiveTMM (whatever is found in the slow tier goes
//! up, in plain order of recency), demotion only, all fast, all slow. Hits, moves and keys met are counted; times are
//! modelled from them by [`Prices`], and named so.

pub mod cache;
mod learner;
pub mod workloads;

use std::fmt;
use std::str::FromStr;

use tenure_core::access::{Access, Op};
use tenure_core::tiers::Tier;
use tenure_core::tiers::division::Division;
use tenure_core::tiers::insertion::InsertionPoints;
use tenure_core::tiers::marks::{Marks, Overflow};
use tenure_core::tiers::placer::Rule;
use tenure_core::tiers::worth::Speeds;

use cache::TierCache;

/// What places values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum System {
    /// By reuse time, with insertion points and free memory kept: the dissertation's chapter 5.
    Sdtmm,
    /// By time saved per byte.
    Worth,
    /// Up goes whatever is accessed in the slow tier, down the longest idle.
    Naive,
    /// sdTMM without promotions.
    DemotionOnly,
    /// One tier, fast.
    AllFast,
    /// One tier, slow.
    AllSlow,
}

impl System {
    /// All of them, in the order in which they are listed.
    pub const ALL: [System; 6] =
        [System::Sdtmm, System::Worth, System::Naive, System::DemotionOnly, System::AllFast, System::AllSlow];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            System::Sdtmm => "sdtmm",
            System::Worth => "worth",
            System::Naive => "naive",
            System::DemotionOnly => "demotion-only",
            System::AllFast => "all-fast",
            System::AllSlow => "all-slow",
        }
    }

    /// What it does.
    pub fn about(self) -> &'static str {
        match self {
            System::Sdtmm => "promotion by reuse time, insertion points, free memory kept (dissertation, ch. 5)",
            System::Worth => "promotion and demotion by time saved per byte, where it pays for the moves",
            System::Naive => "whatever is read in the slow tier goes up, the longest idle down (naiveTMM)",
            System::DemotionOnly => "sdtmm that promotes nothing",
            System::AllFast => "one tier, fast",
            System::AllSlow => "one tier, slow",
        }
    }

    /// The rule by which it places values; of one tier, by which they leave the cache: plain recency.
    pub fn rule(self) -> Rule {
        match self {
            System::Sdtmm => Rule::ReuseTime,
            System::Worth => Rule::Worth,
            System::DemotionOnly => Rule::Never,
            System::Naive | System::AllFast | System::AllSlow => Rule::Always,
        }
    }

    /// True where there are two tiers.
    pub fn has_tiers(self) -> bool {
        !matches!(self, System::AllFast | System::AllSlow)
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = System::ALL.into_iter().find(|system| system.name() == text);
        let names = System::ALL.map(System::name).join(", ");
        named.ok_or_else(|| format!("system '{text}' is none of {names}"))
    }
}

/// What times are modelled from, beside the tiers' speeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// The server's own time for a request whose value is fast, in ns.
    pub request_ns: f64,
    /// Time for one key that the walk meets, in ns.
    pub met_ns: f64,
    /// What a client waits for a hit of a fast value, in µs.
    pub hit_us: f64,
}

impl Default for Prices {
    /// As measured on Redis 7.0, Valkey 8.0 and 9.1: 900,000 commands a second when pipelined; evictions at K = 5 and
    /// 16 that take 3.1 and 7.6 µs.
    fn default() -> Self {
        Prices { request_ns: 1100.0, met_ns: (7600.0 - 3100.0) / 11.0, hit_us: 20.0 }
    }
}

/// How two tiers are simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierConfig {
    /// What places values.
    pub system: System,
    /// How tenants share the fast tier.
    pub division: Division,
    /// The fast tier's limit, in bytes.
    pub fast_bytes: u64,
    /// The slow tier's, in bytes; `u64::MAX` = it holds all there is.
    pub slow_bytes: u64,
    /// How much is kept free.
    pub marks: Marks,
    /// Where what doesn't fit goes.
    pub overflow: Overflow,
    /// Where values begin in a tier's order; of sdtmm and demotion-only.
    pub points: InsertionPoints,
    /// What memory costs.
    pub speeds: Speeds,
    /// What all else costs.
    pub prices: Prices,
    /// Requests between two turns of background work.
    pub turn_requests: u64,
    /// Requests between two thresholds and two divisions.
    pub window_requests: u64,
    /// Values met in a tier for each that leaves it, 1 to 64.
    pub sample_size: u32,
    /// Names of newcomers kept, by tenant: of those that entered and weren't asked for since. 0 = all are found by
    /// the walk.
    pub newcomers: usize,
    /// Seed of all that is random.
    pub seed: u64,
}

impl Default for TierConfig {
    fn default() -> Self {
        TierConfig {
            system: System::Sdtmm,
            division: Division::Free,
            fast_bytes: 0,
            slow_bytes: u64::MAX,
            marks: Marks::default(),
            overflow: Overflow::default(),
            points: InsertionPoints::default(),
            speeds: Speeds::default(),
            prices: Prices::default(),
            turn_requests: 16,
            window_requests: 50_000,
            sample_size: 5,
            newcomers: 1 << 16,
            seed: 1,
        }
    }
}

/// What is counted over a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Reads and writes.
    pub requests: u64,
    /// Reads.
    pub reads: u64,
    /// Reads that found their value, by tier.
    pub hits: [u64; 2],
    /// Reads and writes whose key wasn't there.
    pub misses: u64,
    /// Values that went up.
    pub promotions: u64,
    /// Values that went down.
    pub demotions: u64,
    /// Promotions that had to wait for a demotion.
    pub chained: u64,
    /// Bytes of both.
    pub moved_bytes: u64,
    /// Values that left the cache, by tier.
    pub evictions: [u64; 2],
    /// Keys that the walk met.
    pub met: u64,
    /// Time to read the values of hits, in ns, beyond that of the fast tier.
    pub slow_read_ns: f64,
    /// Time of moves, in ns.
    pub move_ns: f64,
    /// Miss penalties of reads, in µs.
    pub penalty_us: f64,
}

impl Counts {
    fn share(part: f64, whole: u64) -> f64 {
        if whole > 0 { part / whole as f64 } else { 0.0 }
    }

    /// Reads that found their value in this tier / reads.
    pub fn hit_ratio(&self, tier: Tier) -> f64 {
        Self::share(self.hits[tier.index()] as f64, self.reads)
    }

    /// Reads that found none / reads.
    pub fn read_miss_ratio(&self) -> f64 {
        Self::share((self.reads - self.hits[0] - self.hits[1]) as f64, self.reads)
    }

    /// Requests that found no key / requests.
    pub fn miss_ratio(&self) -> f64 {
        Self::share(self.misses as f64, self.requests)
    }

    /// Values moved, up or down, per request.
    pub fn moves_per_request(&self) -> f64 {
        Self::share((self.promotions + self.demotions) as f64, self.requests)
    }

    /// Keys that the walk met, per request.
    pub fn met_per_request(&self) -> f64 {
        Self::share(self.met as f64, self.requests)
    }

    /// Modelled: the server's time for a request, moves and walk included, in ns.
    pub fn server_ns(&self, prices: &Prices) -> f64 {
        prices.request_ns
            + Self::share(self.slow_read_ns + self.move_ns + self.met as f64 * prices.met_ns, self.requests)
    }

    /// Modelled: what a client waits in the mean, in µs: the hit time, what slow values add to it, and miss
    /// penalties. Background work is not in it.
    pub fn mean_latency_us(&self, prices: &Prices) -> f64 {
        prices.hit_us + Self::share(self.slow_read_ns / 1000.0 + self.penalty_us, self.requests)
    }
}

/// One system over one trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TierRow {
    /// How it was set.
    pub config: TierConfig,
    /// What was counted, after the warm-up.
    pub counts: Counts,
    /// Modelled: requests the server could serve, relative to all values fast. 1 is no loss.
    pub throughput: f64,
}

/// Replays a trace under each of these configurations, which should differ in system, division and fast bytes only;
/// the first `warm_up` accesses aren't counted. All-slow is all-fast with other times, so both are one replay.
pub fn simulate<'a>(
    accesses: impl Fn() -> Box<dyn Iterator<Item = &'a Access> + 'a> + Sync,
    configs: &[TierConfig],
    warm_up: usize,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Vec<TierRow> {
    let Some(first) = configs.first() else { return Vec::new() };
    let all_fast = TierConfig {
        system: System::AllFast,
        fast_bytes: first.fast_bytes.saturating_add(first.slow_bytes),
        slow_bytes: 0,
        ..*first
    };
    let mut jobs = vec![all_fast];
    jobs.extend(configs.iter().filter(|config| config.system.has_tiers()));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::Mutex::new(vec![Counts::default(); jobs.len()]);
    let work = || {
        while let Some((i, job)) =
            Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).and_then(|i| Some((i, jobs.get(i)?)))
        {
            let counts = replay(accesses(), *job, warm_up, progress);
            done.lock().expect("no thread panicked with it")[i] = counts;
        }
    };
    std::thread::scope(|scope| {
        (1..threads.min(jobs.len())).for_each(|_| _ = scope.spawn(work));
        work();
    });
    let done = done.into_inner().expect("no thread panicked with it");
    let mut tiered = done[1..].iter();
    let counts = |config: &TierConfig| match config.system {
        System::AllFast => done[0],
        System::AllSlow => all_slow(&done[0], config, accesses(), warm_up),
        _ => *tiered.next().expect("one job for each"),
    };
    let counts: Vec<Counts> = configs.iter().map(counts).collect();
    let row = |(config, counts): (&TierConfig, Counts)| TierRow {
        config: *config,
        counts,
        throughput: done[0].server_ns(&config.prices) / counts.server_ns(&config.prices),
    };
    configs.iter().zip(counts).map(row).collect()
}

fn replay<'a>(
    accesses: impl Iterator<Item = &'a Access>,
    config: TierConfig,
    warm_up: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Counts {
    const STEP: usize = 1 << 14;
    let mut cache = TierCache::new(config);
    for (i, access) in accesses.enumerate() {
        if i == warm_up {
            cache.forget_counts();
        }
        cache.access(access);
        if i % STEP == STEP - 1 {
            progress(STEP as u64);
        }
    }
    *cache.counts()
}

/// What all-fast came to, with every hit's value read from the slow tier. The mean size of what is read stands for
/// the sizes of hits.
fn all_slow<'a>(
    all_fast: &Counts,
    config: &TierConfig,
    accesses: impl Iterator<Item = &'a Access>,
    warm_up: usize,
) -> Counts {
    let reads = accesses.skip(warm_up).filter(|access| access.op == Op::Read);
    let ns: f64 = reads.map(|access| f64::from(config.speeds.saved_ns(access.size_bytes))).sum();
    let hits = all_fast.hits[0];
    let slow_read_ns = Counts::share(ns, all_fast.reads) * hits as f64;
    Counts { hits: [0, hits], slow_read_ns, ..*all_fast }
}
