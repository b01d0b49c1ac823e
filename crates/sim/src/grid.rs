//! Many policies and memory sizes over one trace at once, on as many threads as wanted.
//!
//! A trace in memory is replayed job by job; a streamed one is read once, in batches that every job replays before
//! the next, so that memory doesn't grow with its length. Results don't depend on the number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tenure_core::access::{Access, Op};
use tenure_core::error::ConfigError;
use tenure_core::model::key_map::KeyMap;

use crate::bound::bound;
use crate::offline::Offline;
use crate::policies::{PolicyName, Setup};
use crate::replay::{Replay, ReplayConfig, Report, WindowReport};
use crate::settings::Settings;
use crate::trace::TraceError;

/// Accesses per batch.
const BATCH: usize = 1 << 16;

/// What is replayed.
#[derive(Clone, Debug)]
pub struct GridConfig {
    /// Policies, each at each capacity.
    pub policies: Vec<PolicyName>,
    /// Capacities in bytes.
    pub capacities_bytes: Vec<u64>,
    /// How to count.
    pub replay: ReplayConfig,
    /// How the policies that have settings are set.
    pub settings: Settings,
    /// Seed of all that is random.
    pub seed: u64,
    /// Threads, at least 1.
    pub threads: usize,
}

/// One policy at one capacity.
#[derive(Clone, Debug)]
pub struct Row {
    /// The policy.
    pub policy: PolicyName,
    /// What it came to.
    pub report: Report,
    /// Its windows, if any were asked for.
    pub windows: Vec<WindowReport>,
}

/// What a trace holds, before anything is replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Lines of the trace: reads, writes and deletes.
    pub accesses: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Keys read or written.
    pub distinct_keys: u64,
    /// Their sizes as last seen, added up, in bytes: what 100 % of memory means.
    pub footprint_bytes: u64,
    /// The latest time, in µs; 0 where the trace has none.
    pub last_us: u64,
}

impl Survey {
    /// Surveys a trace. About 20 bytes of memory per distinct key.
    ///
    /// # Errors
    /// The trace's first.
    pub fn of<E>(accesses: impl Iterator<Item = Result<Access, E>>) -> Result<Survey, E> {
        let mut survey = Survey::default();
        let mut sizes: KeyMap<u32> = KeyMap::default();
        for access in accesses {
            let access = access?;
            survey.accesses += 1;
            survey.last_us = survey.last_us.max(access.time_us);
            if access.op != Op::Delete {
                survey.requests += 1;
                sizes.insert(access.key, access.size_bytes);
            }
        }
        survey.distinct_keys = sizes.len() as u64;
        survey.footprint_bytes = sizes.values().map(|&size| u64::from(size)).sum();
        Ok(survey)
    }
}

/// Every job's name and setup, policy by policy.
fn jobs(config: &GridConfig, offline: Option<&Arc<Offline>>) -> Vec<(PolicyName, Setup)> {
    let setup = |&capacity_bytes: &u64| Setup {
        capacity_bytes,
        parameter: None,
        seed: config.seed,
        settings: config.settings,
        offline: offline.cloned(),
    };
    let replayed = config.policies.iter().filter(|name| **name != PolicyName::BOUND);
    replayed.flat_map(|name| config.capacities_bytes.iter().map(move |capacity| (*name, setup(capacity)))).collect()
}

/// Replays a trace in memory. `progress` is told of accesses done, by any thread; jobs × accesses in all.
///
/// # Errors
/// A policy's parameter out of its range.
pub fn replay_in_memory(
    accesses: &Arc<[Access]>,
    config: &GridConfig,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Row>, ConfigError> {
    let offline = config.policies.iter().any(|name| name.is_offline());
    let offline = offline.then(|| Arc::new(Offline::new(Arc::clone(accesses))));
    let jobs = jobs(config, offline.as_ref());
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<(), ConfigError> {
        while let Some((i, (policy, setup))) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, jobs.get(i)?)))
        {
            let mut replay = Replay::new(policy.build(setup)?, config.replay);
            for batch in accesses.chunks(BATCH) {
                replay.feed(batch);
                progress(batch.len() as u64);
            }
            let (report, windows) = replay.finish();
            rows.lock().expect("no thread panicked with it").push((i, Row { policy: *policy, report, windows }));
        }
        Ok(())
    };
    on_threads(config.threads.min(jobs.len()), &work)?;
    let mut rows = rows.into_inner().expect("no thread panicked with it");
    rows.sort_by_key(|(i, _)| *i);
    let mut rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    if let Some(offline) = offline.filter(|_| config.policies.contains(&PolicyName::BOUND)) {
        let reports = bound(&offline, &config.capacities_bytes, config.replay.warm_up as usize, config.replay.hit_us);
        rows.extend(reports.into_iter().map(|report| Row { policy: PolicyName::BOUND, report, windows: Vec::new() }));
    }
    Ok(rows)
}

/// Runs `work` on `threads` threads, this one among them; the first error of any.
pub(crate) fn on_threads<E: Send>(threads: usize, work: &(impl Fn() -> Result<(), E> + Sync)) -> Result<(), E> {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let theirs = others.into_iter().map(|other| other.join().expect("a replay doesn't panic"));
        theirs.fold(mine, |first, next| first.and(next))
    })
}

/// Why a streamed replay stopped.
#[derive(Debug)]
pub enum StreamError {
    /// The trace is bad.
    Trace(TraceError),
    /// A policy's parameter is out of its range.
    Config(ConfigError),
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StreamError::Trace(e) => e.fmt(f),
            StreamError::Config(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

/// Replays a trace while it is read. `progress` is told of accesses read.
///
/// # Errors
/// The trace's first error, and a policy's parameter out of its range.
///
/// # Panics
/// Where a policy must know the future.
pub fn replay_stream(
    accesses: &mut (impl Iterator<Item = Result<Access, TraceError>> + Send),
    config: &GridConfig,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Row>, StreamError> {
    assert!(config.policies.iter().all(|name| !name.is_offline()), "the future can't be known from a stream");
    let jobs = jobs(config, None);
    let build = |(name, setup): &(PolicyName, Setup)| Ok(Mutex::new(Replay::new(name.build(setup)?, config.replay)));
    let replays: Vec<Mutex<Replay>> = jobs.iter().map(build).collect::<Result<_, _>>().map_err(StreamError::Config)?;
    let mut batch = next_batch(accesses).map_err(StreamError::Trace)?;
    while !batch.is_empty() {
        progress(batch.len() as u64);
        batch = feed_while_reading(&replays, &batch, accesses, config.threads).map_err(StreamError::Trace)?;
    }
    let finish = |(replay, (policy, _)): (Mutex<Replay>, (PolicyName, Setup))| {
        let (report, windows) = replay.into_inner().expect("no thread panicked with it").finish();
        Row { policy, report, windows }
    };
    Ok(replays.into_iter().zip(jobs).map(finish).collect())
}

/// Feeds one batch to every replay, and reads the next meanwhile.
fn feed_while_reading(
    replays: &[Mutex<Replay>],
    batch: &[Access],
    accesses: &mut (impl Iterator<Item = Result<Access, TraceError>> + Send),
    threads: usize,
) -> Result<Vec<Access>, TraceError> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(replay) = replays.get(next.fetch_add(1, Ordering::Relaxed)) {
            replay.lock().expect("no thread panicked with it").feed(batch);
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let read = next_batch(accesses);
        work();
        others.into_iter().for_each(|other| other.join().expect("a replay doesn't panic"));
        read
    })
}

fn next_batch(accesses: &mut impl Iterator<Item = Result<Access, TraceError>>) -> Result<Vec<Access>, TraceError> {
    let mut batch = Vec::with_capacity(BATCH);
    for access in accesses.take(BATCH) {
        batch.push(access?);
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::partitioned::PlanConfig;

    use super::*;
    use tenure_core::units::KeyHash;

    fn trace() -> Arc<[Access]> {
        let key = |i: u64| KeyHash::of_number(i.wrapping_mul(i) % 5_003 % (1 + i % 997));
        (0..40_000)
            .map(|i| Access { penalty_us: (i % 7) as f32, ..Access::read(key(i), 1 + (i % 90) as u32) })
            .collect()
    }

    fn config(policies: &str, threads: usize) -> GridConfig {
        GridConfig {
            policies: policies.split(',').map(|name| name.parse().unwrap()).collect(),
            capacities_bytes: vec![2_000, 10_000],
            replay: ReplayConfig { warm_up: 5_000, window_accesses: 10_000, ..ReplayConfig::default() },
            settings: PlanConfig { window_requests: 10_000, ..PlanConfig::default() }.into(),
            seed: 3,
            threads,
        }
    }

    fn same(a: &[Row], b: &[Row]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            let untimed = |row: &Row| Report { ns_per_request: None, ..row.report.clone() };
            assert_eq!((a.policy, untimed(a), &a.windows), (b.policy, untimed(b), &b.windows));
        }
    }

    #[test]
    fn a_stream_gives_what_memory_gives_on_any_number_of_threads() {
        let trace = trace();
        let names =
            "lru,random,klru:3,redis,lfu,hyperbolic:5,hyperbolic-size,gdsf,s3fifo,dlru,predis,predis-paper,kredis";
        let one = replay_in_memory(&trace, &config(names, 1), &|_| {}).unwrap();
        same(&one, &replay_in_memory(&trace, &config(names, 3), &|_| {}).unwrap());
        let mut stream = trace.iter().map(|access| Ok(*access));
        same(&one, &replay_stream(&mut stream, &config(names, 2), &|_| {}).unwrap());
        assert_eq!(one.len(), 26);
        assert!(one.iter().all(|row| row.windows.len() == 4));
    }

    /// The seed moves what is random, and nothing else.
    #[test]
    fn the_seed_matters_where_it_should() {
        let trace = trace();
        let run = |seed| replay_in_memory(&trace, &GridConfig { seed, ..config("lru,random", 1) }, &|_| {}).unwrap();
        let (a, b) = (run(1), run(2));
        assert_eq!(a[0].report.miss_ratio, b[0].report.miss_ratio);
        assert_ne!(a[2].report.miss_ratio, b[2].report.miss_ratio);
    }

    #[test]
    fn nobody_beats_the_bound() {
        let trace = trace();
        let names = "lru,random,redis,lfu,hyperbolic,gdsf,s3fifo,predis,belady,bound";
        let rows = replay_in_memory(&trace, &config(names, 2), &|_| {}).unwrap();
        let (bounds, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.policy == PolicyName::BOUND);
        for row in others {
            let bound = bounds.iter().find(|b| b.report.memory_bytes == row.report.memory_bytes).unwrap();
            assert!(row.report.penalty_us_total >= bound.report.penalty_us_total, "{} {:?}", row.policy, row.report);
            assert_eq!(row.report.requests, bound.report.requests);
        }
    }

    #[test]
    fn a_survey_takes_the_last_size_of_each_key() {
        let at = |key, size| Ok::<_, TraceError>(Access::read(KeyHash(key), size));
        let gone = Ok(Access::read(KeyHash(9), 50).with_op(Op::Delete));
        let survey = Survey::of([at(1, 10), at(2, 5), at(1, 7), gone].into_iter()).unwrap();
        assert_eq!(survey, Survey { accesses: 4, requests: 3, distinct_keys: 2, footprint_bytes: 12, last_us: 0 });
    }
}
