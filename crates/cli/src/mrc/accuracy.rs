//! The accuracy table: how far each model's curve lies from the truth, on every trace of a folder.
//!
//! The truth is exact LRU stack distances for SHARDS and EAET, and a direct simulation of K-LRU at every size for KRR
//! and miniature simulation. The error is the mean absolute difference of the miss ratio over even sizes up to the
//! exact footprint, all requests counted. Every trace is taken in several variants ([`Variant`]): two kinds of sizes,
//! and with deletes or times to live put in. At rates below 1 the error is the mean over several samples: the keys
//! are hashed anew for each, so that no one draw of keys decides. Averages are over traces of at least 100,000
//! requests.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tenure_core::access::{Access, Op};
use tenure_core::curve::{CurvePoint, MissRatioCurve, even_sizes};
use tenure_core::policy::cache::{Cache, KLru, Outcome};
use tenure_core::policy::exact_lru::ExactLru;
use tenure_core::random::Random;
use tenure_core::sampling::SampleRate;
use tenure_core::units::KeyHash;
use tenure_sim::trace::{LogNormalSizes, Sizes, TraceOptions, TraceReader};

use super::Arguments;
use super::models::{ModelName, Spec, rounded};
use crate::print;
use crate::trace_args::{sampling_at_least, trace_name, traces_in};

/// Traces of fewer requests are shown and not averaged.
const REQUESTS_MIN: usize = 100_000;
/// The sampling size that miniature simulation is shown for.
const MINIATURE_K: u32 = 5;

/// What is made of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Variant {
    /// Values of 1 KiB.
    Fixed,
    /// The trace's sizes, or log-normal ones by the key's hash where it has none.
    Variable,
    /// The same, with every tenth access a delete.
    Deletes,
    /// The same, half of the keys with a time to live of 1 % to 100 % of the trace, set by writes and by the fill
    /// after a miss.
    Ttl,
}

impl Variant {
    fn sizes(self) -> Sizes {
        match self {
            Variant::Fixed => Sizes::Fixed(1024),
            _ => Sizes::TraceOrDrawn(LogNormalSizes::default_range()),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Variant::Fixed => "fixed sizes",
            Variant::Variable => "variable sizes",
            Variant::Deletes => "variable sizes, deletes",
            Variant::Ttl => "variable sizes, times to live",
        }
    }

    fn make(self, accesses: &mut [Access]) {
        let n = accesses.len() as u64;
        for (i, access) in (0..n).zip(accesses) {
            match self {
                Variant::Deletes if Random::new(i).below(10) == 0 => access.op = Op::Delete,
                Variant::Ttl => (access.time_us, access.ttl_us) = (i, ttl_us(access.key, n)),
                _ => {}
            }
        }
    }
}

/// The time to live of a key in a stream of `n` accesses, one each µs; 0 = for ever.
fn ttl_us(key: KeyHash, n: u64) -> u64 {
    let mut random = Random::new(key.0);
    if random.below(2) == 0 { 0 } else { (n as f64 * 0.01_f64.powf(random.unit())) as u64 }
}

/// One line of the table.
#[derive(Clone, Debug)]
struct Line {
    trace: String,
    requests: usize,
    variant: Variant,
    model: ModelName,
    k: Option<u32>,
    rate: f64,
    error: f64,
    /// Over the samples.
    error_max: f64,
}

/// One trace in one variant: the unit that threads share out.
struct Task {
    path: PathBuf,
    variant: Variant,
}

/// Prints the table for all traces in `folder`.
pub(super) fn run(folder: &Path, arguments: &Arguments) -> Result<()> {
    let mut tasks = Vec::new();
    for path in largest_first(traces_in(folder)?) {
        tasks.extend(arguments.accuracy.variants.iter().map(|&variant| Task { path: path.clone(), variant }));
    }
    let bar = indicatif::ProgressBar::new(tasks.len() as u64);
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Vec<Line>>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.count().min(tasks.len()) {
            scope.spawn(|| {
                while let Some((i, task)) = next_task(&next, &tasks) {
                    let lines = measure(task, arguments).with_context(|| task.path.display().to_string());
                    results.lock().expect("no thread panics while it holds this").push((i, lines));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().expect("no thread panics while it holds this");
    results.sort_by_key(|(i, _)| *i);
    let lines = results.into_iter().map(|(_, lines)| lines).collect::<Result<Vec<Vec<Line>>>>()?.concat();
    if arguments.output.json { print(&format!("{:#}\n", to_json(&lines))) } else { print(&table(&lines)) }
}

/// So that no thread is left alone with a long trace in the end.
fn largest_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_key(|path| std::cmp::Reverse(path.metadata().map_or(0, |metadata| metadata.len())));
    paths
}

fn next_task<'a>(next: &AtomicUsize, tasks: &'a [Task]) -> Option<(usize, &'a Task)> {
    let i = next.fetch_add(1, Ordering::Relaxed);
    tasks.get(i).map(|task| (i, task))
}

fn measure(task: &Task, arguments: &Arguments) -> Result<Vec<Line>> {
    let options = TraceOptions { sizes: task.variant.sizes(), ..arguments.reading.options() };
    let mut accesses = TraceReader::open(&task.path, options)?.collect::<Result<Vec<Access>, _>>()?;
    task.variant.make(&mut accesses);
    let requests = accesses.iter().filter(|access| access.op != Op::Delete).count();
    let (n_keys, footprint_bytes) = keys_and_footprint(&accesses);
    let sizes_bytes = even_sizes(footprint_bytes, arguments.sizes as usize);
    let exact = match task.variant {
        // The fill after a miss sets a time to live anew, in small caches alone: no stack can tell (docs/models.md,
        // "Exact").
        Variant::Ttl => simulate(&accesses, &sizes_bytes, &|bytes| Box::new(ExactLru::cache(bytes))),
        _ => curve_of(&spec(arguments, ModelName::Exact, None, SampleRate::ALL, 0), &accesses, &sizes_bytes)?,
    };
    let klru = |k: u32| {
        let build = |bytes| KLru::new(k, bytes, arguments.seed).expect("the command line takes K from 1 to 64 only");
        simulate(&accesses, &sizes_bytes, &|bytes| Box::new(build(bytes)))
    };
    let compared = arguments.sample.rate.iter().flat_map(|&rate| models(arguments, rate));
    let all_k: BTreeSet<u32> = compared.filter_map(|(_, k)| k).collect();
    let simulated: HashMap<u32, MissRatioCurve> = all_k.into_iter().map(|k| (k, klru(k))).collect();
    let line = |model, k, rate, errors: Vec<f64>| Line {
        trace: trace_name(&task.path),
        requests,
        variant: task.variant,
        model,
        k,
        rate: rounded(rate),
        error: errors.iter().sum::<f64>() / errors.len() as f64,
        error_max: errors.iter().copied().fold(0.0, f64::max),
    };
    let mut lines = Vec::new();
    for &rate in &arguments.sample.rate {
        let n_samples = if rate == SampleRate::ALL { 1 } else { arguments.accuracy.samples };
        let mut samples = vec![accesses.clone()];
        samples.extend((1..n_samples).map(|sample| hashed_anew(&accesses, sample)));
        for (model, k) in models(arguments, rate) {
            let truth = k.map_or(&exact, |k| &simulated[&k]);
            let errors = samples.iter().zip(arguments.seed..).map(|(sample, seed)| {
                let mut spec = spec(arguments, model, k, rate, seed);
                spec.settle_rate(Some(n_keys));
                let curve = curve_of(&spec, sample, &sizes_bytes)?;
                Ok(curve.mean_absolute_error(truth, &sizes_bytes))
            });
            lines.push(line(model, k, rate, errors.collect::<Result<Vec<f64>>>()?));
        }
    }
    Ok(lines)
}

/// What is compared at a rate: KRR at every K, and miniature simulation below rate 1 at one K.
fn models(arguments: &Arguments, rate: SampleRate) -> Vec<(ModelName, Option<u32>)> {
    let all = [ModelName::Eaet, ModelName::Shards, ModelName::Krr, ModelName::Miniature];
    let wanted = if arguments.model.is_empty() { all.as_slice() } else { arguments.model.as_slice() };
    let with_k = |model: &ModelName| match model {
        ModelName::Krr => arguments.k.iter().map(|&k| (ModelName::Krr, Some(k))).collect(),
        ModelName::Miniature if rate == SampleRate::ALL || !arguments.k.contains(&MINIATURE_K) => Vec::new(),
        ModelName::Miniature => vec![(ModelName::Miniature, Some(MINIATURE_K))],
        model => vec![(*model, None)],
    };
    wanted.iter().flat_map(with_k).collect()
}

fn spec(arguments: &Arguments, model: ModelName, k: Option<u32>, rate: SampleRate, seed: u64) -> Spec {
    let sampling = sampling_at_least(rate, arguments.sample.sample_keys_min);
    Spec { model, k, policy: None, sampling, seed, merged_k: Vec::new(), rate_asked: None }
}

fn curve_of(spec: &Spec, accesses: &[Access], sizes_bytes: &[u64]) -> Result<MissRatioCurve> {
    let mut running = spec.build(sizes_bytes)?;
    running.record_all(accesses);
    Ok(running.curve(sizes_bytes).curve)
}

/// Distinct keys, and their last sizes added up, in bytes.
fn keys_and_footprint(accesses: &[Access]) -> (u64, u64) {
    let mut last_sizes: HashMap<KeyHash, u32> = HashMap::new();
    for access in accesses.iter().filter(|access| access.op != Op::Delete) {
        last_sizes.insert(access.key, access.size_bytes);
    }
    (last_sizes.len() as u64, last_sizes.values().map(|&size| u64::from(size)).sum())
}

/// A policy simulated at each size.
fn simulate(accesses: &[Access], sizes_bytes: &[u64], build: &dyn Fn(u64) -> Box<dyn Cache>) -> MissRatioCurve {
    let miss_ratio_at = |&bytes: &u64| {
        let mut cache = build(bytes);
        let (mut misses, mut requests) = (0_u64, 0_u64);
        for access in accesses {
            let outcome = cache.access(access);
            requests += u64::from(outcome != Outcome::NotARequest);
            misses += u64::from(outcome == Outcome::Miss);
        }
        CurvePoint { bytes, miss_ratio: misses as f64 / requests.max(1) as f64 }
    };
    MissRatioCurve::new(sizes_bytes.iter().map(miss_ratio_at).collect())
}

/// The same accesses under other hashes: another sample of keys.
fn hashed_anew(accesses: &[Access], sample: u64) -> Vec<Access> {
    accesses.iter().map(|access| Access { key: access.key.seeded(sample), ..*access }).collect()
}

fn name_of(model: ModelName, k: Option<u32>) -> String {
    k.map_or_else(|| model.to_string(), |k| format!("{model} K={k}"))
}

/// Averages over the long traces, in the order in which lines first appear: variant, model, K, rate.
fn averages(lines: &[Line]) -> Vec<(Variant, String, f64, f64)> {
    let mut sums: Vec<(Variant, String, f64, f64, f64)> = Vec::new();
    for line in lines.iter().filter(|line| line.requests >= REQUESTS_MIN) {
        let name = name_of(line.model, line.k);
        match sums.iter_mut().find(|sum| sum.0 == line.variant && sum.1 == name && sum.2 == line.rate) {
            Some(sum) => (sum.3, sum.4) = (sum.3 + line.error, sum.4 + 1.0),
            None => sums.push((line.variant, name, line.rate, line.error, 1.0)),
        }
    }
    sums.into_iter().map(|(variant, name, rate, sum, n)| (variant, name, rate, sum / n)).collect()
}

fn to_json(lines: &[Line]) -> Value {
    let lines = lines.iter().map(|line| {
        json!({
            "trace": line.trace, "requests": line.requests, "variant": line.variant.name(),
            "model": line.model.to_string(), "k": line.k, "rate": line.rate,
            "mean_absolute_error": line.error, "mean_absolute_error_max": line.error_max,
        })
    });
    Value::Array(lines.collect())
}

/// Markdown: one table per variant and rate, a row per trace and the averages last.
fn table(lines: &[Line]) -> String {
    let mut text = String::new();
    let averages = averages(lines);
    let mut shown: Vec<(Variant, f64)> = Vec::new();
    for line in lines {
        if shown.contains(&(line.variant, line.rate)) {
            continue;
        }
        shown.push((line.variant, line.rate));
    }
    for (variant, rate) in shown {
        let here: Vec<&Line> = lines.iter().filter(|line| line.variant == variant && line.rate == rate).collect();
        let mut names: Vec<String> = Vec::new();
        for line in &here {
            let name = name_of(line.model, line.k);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let _ = writeln!(text, "\nrate {rate}, {}\n", variant.name());
        let _ = writeln!(text, "| trace | requests | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|--:|{}", "--:|".repeat(names.len()));
        for row in here.chunk_by(|a, b| a.trace == b.trace) {
            let errors: Vec<String> = row.iter().map(|line| format!("{:.4}", line.error)).collect();
            let _ = writeln!(text, "| {} | {} | {} |", row[0].trace, row[0].requests, errors.join(" | "));
        }
        let of_name = |name: &String| averages.iter().find(|a| a.0 == variant && a.1 == *name && a.2 == rate);
        let means: Vec<String> =
            names.iter().map(|name| of_name(name).map_or("–".to_owned(), |a| format!("{:.4}", a.3))).collect();
        let _ = writeln!(text, "| **mean of ≥ 100 k requests** | | {} |", means.join(" | "));
        let worst = |name: &String| {
            let of_name = |line: &&&Line| name_of(line.model, line.k) == *name && line.requests >= REQUESTS_MIN;
            here.iter().filter(of_name).map(|line| line.error).fold(0.0, f64::max)
        };
        let worst: Vec<String> = names.iter().map(|name| format!("{:.4}", worst(name))).collect();
        let _ = writeln!(text, "| worst of them | | {} |", worst.join(" | "));
    }
    text
}
