//! Feeds one trace to several models at once: one thread reads, the others run the models, each a share of them.
//!
//! Accesses go in chunks through short queues, so memory doesn't grow with the trace, and the slowest thread sets the
//! pace. What a model takes is measured around its chunks, without reading and waiting.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tenure_core::access::{Access, Op};
use tenure_core::curve::even_sizes;
use tenure_core::model::census::Census;
use tenure_sim::trace::TraceReader;

use super::models::{Curve, Running, Spec};
use crate::progress::Progress;

/// Accesses per chunk: 400 KB, so that a chunk stays in a core's cache.
const CHUNK_ACCESSES: usize = 8192;
/// Chunks that may wait for a thread.
const CHUNKS_WAITING: usize = 8;
/// Keys in the census that finds the footprint: 1 % standard error beyond them.
const CENSUS_KEYS: usize = 8192;

/// How the trace is cut.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    /// Accesses at the beginning that warm the models up and aren't counted.
    pub warmup: u64,
    /// Accesses per window, each with curves of its own; 0 = one curve over all.
    pub window: u64,
}

/// The sizes, in bytes, that curves are asked at.
#[derive(Clone, Debug)]
pub enum SizesBytes {
    /// Known before.
    Given(Vec<u64>),
    /// So many even ones up to the footprint, which is known in the end.
    Even(usize),
}

/// One model and what came of it.
pub struct Job {
    /// Which model.
    pub spec: Spec,
    /// The model.
    pub running: Running,
    /// What it took, without reading and waiting.
    pub busy: Duration,
    /// Its curves, one per window.
    pub curves: Vec<Curve>,
}

impl Job {
    /// A model that has seen nothing yet.
    pub fn new(spec: Spec, running: Running) -> Self {
        Job { spec, running, busy: Duration::ZERO, curves: Vec::new() }
    }
}

/// What the trace was.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Reads and writes by window, without the warm-up.
    pub requests: Vec<u64>,
    /// Accesses of any kind, the warm-up included.
    pub accesses: u64,
    /// The last sizes of all distinct keys added up, in bytes.
    pub footprint_bytes: u64,
    /// Distinct keys, about.
    pub n_keys: u64,
    /// Malformed lines that were passed over.
    pub n_bad: u64,
    /// Some access said what a miss of it costs.
    pub tells_costs: bool,
}

enum Message {
    Accesses(Arc<Vec<Access>>),
    WarmUpEnded,
    WindowEnded(Arc<Vec<u64>>),
}

/// Reads the trace to its end and gives the jobs back with their curves, in their order.
///
/// # Errors
/// What the reader says.
pub fn feed(
    mut reader: TraceReader,
    progress: &Progress,
    jobs: Vec<Job>,
    sizes: &SizesBytes,
    cut: Cut,
    seed: u64,
    n_threads: usize,
) -> Result<(Vec<Job>, Seen)> {
    let n_threads = n_threads.clamp(1, jobs.len().max(1));
    let mut shares: Vec<Vec<(usize, Job)>> = (0..n_threads).map(|_| Vec::new()).collect();
    for (i, job) in jobs.into_iter().enumerate() {
        shares[i % n_threads].push((i, job));
    }
    thread::scope(|scope| {
        let (senders, threads): (Vec<_>, Vec<_>) = shares
            .into_iter()
            .map(|share| {
                let (sender, receiver) = sync_channel(CHUNKS_WAITING);
                (sender, scope.spawn(move || run(share, &receiver)))
            })
            .unzip();
        let seen = read(&mut reader, progress, &senders, sizes, cut, seed);
        drop(senders);
        let mut jobs = Vec::new();
        for thread in threads {
            jobs.extend(thread.join().map_err(|_| anyhow::anyhow!("a model's thread panicked"))?);
        }
        jobs.sort_by_key(|(i, _)| *i);
        Ok((jobs.into_iter().map(|(_, job)| job).collect(), seen?))
    })
}

fn run(mut share: Vec<(usize, Job)>, receiver: &Receiver<Message>) -> Vec<(usize, Job)> {
    for message in receiver {
        for (_, job) in &mut share {
            let began = Instant::now();
            match &message {
                Message::Accesses(accesses) => job.running.record_all(accesses),
                Message::WarmUpEnded => {
                    job.running.forget_counts();
                    job.busy = Duration::ZERO;
                    continue;
                }
                Message::WindowEnded(sizes_bytes) => {
                    job.curves.push(job.running.curve(sizes_bytes));
                    job.running.forget_counts();
                }
            }
            job.busy += began.elapsed();
        }
    }
    share
}

fn read(
    reader: &mut TraceReader,
    progress: &Progress,
    senders: &[SyncSender<Message>],
    sizes: &SizesBytes,
    cut: Cut,
    seed: u64,
) -> Result<Seen> {
    let mut census = Census::new(CENSUS_KEYS);
    let mut seen = Seen::default();
    let send = |message: &dyn Fn() -> Message| {
        // A thread that panicked has dropped its receiver; joining it says so.
        senders.iter().for_each(|sender| drop(sender.send(message())));
    };
    let mut window_requests = 0;
    loop {
        let in_warmup = seen.accesses < cut.warmup;
        let until_cut = match (in_warmup, cut.window) {
            (true, _) => cut.warmup - seen.accesses,
            (false, 0) => u64::MAX,
            (false, window) => window - (seen.accesses - cut.warmup) % window,
        };
        let wanted = until_cut.min(CHUNK_ACCESSES as u64) as usize;
        let mut chunk = Vec::with_capacity(wanted);
        for access in reader.by_ref().take(wanted) {
            let access = access?;
            chunk.push(Access { key: access.key.seeded(seed), ..access });
        }
        let n = chunk.len() as u64;
        seen.accesses += n;
        chunk.iter().for_each(|access| census.record(access));
        window_requests += chunk.iter().filter(|access| access.op != Op::Delete).count() as u64;
        let chunk = Arc::new(chunk);
        send(&|| Message::Accesses(Arc::clone(&chunk)));
        progress.update();
        let ended = n < wanted as u64;
        if in_warmup && seen.accesses == cut.warmup {
            send(&|| Message::WarmUpEnded);
            window_requests = 0;
        } else if !in_warmup && (ended || n == until_cut) && (window_requests > 0 || seen.requests.is_empty()) {
            seen.requests.push(std::mem::take(&mut window_requests));
            let sizes = Arc::new(sizes_now(sizes, &census));
            send(&|| Message::WindowEnded(Arc::clone(&sizes)));
        }
        if ended {
            break;
        }
    }
    if seen.requests.is_empty() {
        anyhow::bail!("the trace ended within the warm-up of {} accesses", cut.warmup);
    }
    seen.footprint_bytes = census.footprint_bytes() as u64;
    seen.n_keys = census.n_keys() as u64;
    (seen.n_bad, seen.tells_costs) = (reader.n_bad(), reader.tells_costs());
    Ok(seen)
}

fn sizes_now(sizes: &SizesBytes, census: &Census) -> Vec<u64> {
    match sizes {
        SizesBytes::Given(sizes) => sizes.clone(),
        SizesBytes::Even(n) => even_sizes(census.footprint_bytes() as u64, *n),
    }
}

/// What a first pass over a trace finds.
pub struct Survey {
    /// Accesses of any kind.
    pub n_accesses: u64,
    /// Distinct keys, about.
    pub n_keys: u64,
    /// Their last sizes added up, in bytes, about.
    pub footprint_bytes: u64,
}

/// Takes a first pass over the trace.
///
/// # Errors
/// What the reader says.
pub fn survey(reader: TraceReader, progress: &Progress) -> Result<Survey> {
    let mut census = Census::new(CENSUS_KEYS);
    let mut n_accesses = 0_u64;
    for access in reader {
        census.record(&access.context("in the first pass, which finds the footprint")?);
        n_accesses += 1;
        if n_accesses.is_multiple_of(CHUNK_ACCESSES as u64) {
            progress.update();
        }
    }
    Ok(Survey { n_accesses, n_keys: census.n_keys() as u64, footprint_bytes: census.footprint_bytes() as u64 })
}
