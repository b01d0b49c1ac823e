//! `tenure mrc`: a trace in, miss ratio curves out, by one model or several, as a table, JSON and a plot.
//!
//! The trace is streamed, from a file or standard input. A first pass over a file is made only where something must
//! be known before the first access: the footprint for miniature simulation and for windows, the length for a warm-up
//! given as a share. JSON is one object for one curve and a list of objects for several; docs/models.md describes
//! models and accuracy.

mod accuracy;
mod feed;
mod models;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tenure_core::curve::even_sizes;
use tenure_core::sampling::{SampleRate, Sampling};
use tenure_core::units::format_bytes;
use tenure_plots::{LineChart, Page, Series};
use tenure_sim::policies::PolicyName;

use self::feed::{Cut, Job, Seen, SizesBytes, Survey, feed, survey};
use self::models::{Curve, ModelName, Spec, rounded, usage};
use crate::print;
use crate::progress::Progress;
use crate::trace_args::{
    Amount, OutputArgs, SAMPLE_KEYS_MIN, ThreadArgs, TraceArgs, parse_amount, parse_rate, parse_size_above_0,
    report_bad_lines, sampling_at_least, trace_name,
};

/// The options of `tenure mrc`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The trace; `-` is standard input.
    #[arg(value_name = "TRACE", required_unless_present = "accuracy")]
    trace: Option<PathBuf>,

    /// Models, separated by commas: exact, shards and eaet for LRU, krr for K-LRU, merged for the best of several K,
    /// miniature for any policy. Default: krr; for the accuracy eaet, shards, krr and miniature.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = |text: &str| text.parse::<ModelName>())]
    model: Vec<ModelName>,

    /// Sampling sizes K of krr, merged and miniature, 1 to 64, separated by commas.
    #[arg(long, value_name = "K,…", value_delimiter = ',', default_value = "5",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    k: Vec<u32>,

    /// The policy of miniature, in place of K-LRU: any that `tenure simulate --list` names and that needs no future.
    #[arg(long, value_name = "NAME", value_parser = |text: &str| text.parse::<PolicyName>())]
    policy: Option<PolicyName>,

    #[command(flatten)]
    sample: SampleArgs,

    /// How many cache sizes, evenly up to the largest.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    sizes: u64,

    /// The largest cache size, in bytes (64mb); the trace's footprint where not given.
    #[arg(long, value_name = "BYTES", value_parser = parse_size_above_0)]
    memory_max: Option<u64>,

    #[command(flatten)]
    reading: TraceArgs,

    /// Not counted at the beginning: a number of accesses, or a share of the trace (20%).
    #[arg(long, value_name = "ACCESSES|SHARE", default_value = "0", value_parser = parse_amount)]
    warmup: Amount,

    /// Accesses per window, each with a curve of its own; 0 for one curve over all.
    #[arg(long, value_name = "ACCESSES", default_value_t = 0)]
    window: u64,

    /// Seed of all that is random, of which keys are sampled too.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    threads: ThreadArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    accuracy: AccuracyArgs,
}

/// Which keys are sampled.
#[derive(clap::Args)]
struct SampleArgs {
    /// Shares of keys to sample, above 0 and up to 1, separated by commas; `exact` takes all keys.
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_value = "0.01", value_parser = parse_rate)]
    rate: Vec<SampleRate>,

    /// Sample more than that share where it would be fewer keys than this: a sample of few keys says nothing, and few
    /// keys cost nothing.
    #[arg(long, value_name = "N", default_value_t = SAMPLE_KEYS_MIN)]
    sample_keys_min: u64,

    /// Sample at most so many keys, in place of a share: memory stays bounded however long the trace.
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "sample_keys_min"],
          value_parser = clap::value_parser!(u64).range(1..))]
    sample_keys: Option<u64>,
}

/// The accuracy of models over many traces.
#[derive(clap::Args)]
struct AccuracyArgs {
    /// Compare the models with exact LRU and with simulated K-LRU on all traces in DIR: a table of mean absolute
    /// errors.
    #[arg(id = "accuracy", long = "accuracy", value_name = "DIR", conflicts_with_all = ["trace", "plot", "html"])]
    folder: Option<PathBuf>,

    /// For the accuracy: at rates below 1, the mean of so many samples of keys.
    #[arg(long = "accuracy-samples", value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    samples: u64,

    /// For the accuracy: what is made of each trace, separated by commas.
    #[arg(
        long = "accuracy-variants",
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "fixed,variable,deletes,ttl"
    )]
    variants: Vec<accuracy::Variant>,
}

/// Runs the subcommand.
///
/// # Errors
/// What went wrong, and where.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(folder) = &arguments.accuracy.folder {
        return accuracy::run(folder, arguments);
    }
    if arguments.policy.is_some() && !arguments.model.contains(&ModelName::Miniature) {
        return Err(usage("--policy is miniature's: say --model miniature, too"));
    }
    let path = arguments.trace.as_deref().context("no trace given")?;
    let mut specs = arguments.specs();
    let (sizes, cut, survey) = arguments.sizes_and_cut(path, &specs)?;
    specs.iter_mut().for_each(|spec| spec.settle_rate(survey.as_ref().map(|survey| survey.n_keys)));
    let known = match &sizes {
        SizesBytes::Given(sizes) => sizes.as_slice(),
        SizesBytes::Even(_) => &[],
    };
    let jobs = specs.into_iter().map(|spec| spec.build(known).map(|running| Job::new(spec, running)));
    let jobs = jobs.collect::<Result<Vec<Job>>>()?;
    let (reader, progress) = Progress::open(path, arguments.reading.options(), "reading the trace")?;
    let (jobs, seen) = feed(reader, &progress, jobs, &sizes, cut, arguments.seed, arguments.threads.count())?;
    drop(progress);
    let name = trace_name(path);
    report_bad_lines(&name, seen.n_bad);
    report_small_samples(&jobs, &seen);
    if !seen.tells_costs && jobs.iter().any(|job| job.spec.policy.is_some_and(PolicyName::knows_costs)) {
        arguments.reading.report_costs(&name);
    }
    if let Some(plot) = &arguments.output.plot {
        chart(&name, &jobs).save(plot)?;
    }
    if let Some(html) = &arguments.output.html {
        let page = Page::new(&format!("Miss ratio by cache size: {name}"));
        page.svg(&chart(&name, &jobs).svg()?).text(&table(&name, &jobs, &seen)).save(html)?;
    }
    if arguments.output.json {
        print(&format!("{:#}\n", to_json(&name, &jobs, &seen)))
    } else {
        print(&table(&name, &jobs, &seen))
    }
}

impl Arguments {
    fn samplings(&self) -> Vec<Sampling> {
        match self.sample.sample_keys {
            Some(keys) => vec![Sampling::Keys(keys as usize)],
            None => self.sample.rate.iter().map(|&rate| sampling_at_least(rate, self.sample.sample_keys_min)).collect(),
        }
    }

    /// One model per name, K and rate; what a model has none of isn't multiplied.
    fn specs(&self) -> Vec<Spec> {
        let mut specs: Vec<Spec> = Vec::new();
        let models = if self.model.is_empty() { &[ModelName::Krr] } else { self.model.as_slice() };
        for &model in models {
            let policy = self.policy.filter(|_| model == ModelName::Miniature);
            let has_k = model == ModelName::Krr || (model == ModelName::Miniature && policy.is_none());
            let all_k: Vec<Option<u32>> = if has_k { self.k.iter().map(|&k| Some(k)).collect() } else { vec![None] };
            let samplings = if model == ModelName::Exact { vec![Sampling::ALL] } else { self.samplings() };
            for k in all_k {
                for &sampling in &samplings {
                    let merged_k = if model == ModelName::Merged { self.k.clone() } else { Vec::new() };
                    let spec = Spec { model, k, policy, sampling, seed: self.seed, merged_k, rate_asked: None };
                    if !specs.contains(&spec) {
                        specs.push(spec);
                    }
                }
            }
        }
        specs
    }

    /// The sizes of the curves and how the trace is cut; takes a first pass where that must be known before.
    fn sizes_and_cut(&self, path: &Path, specs: &[Spec]) -> Result<(SizesBytes, Cut, Option<Survey>)> {
        let n_sizes = self.sizes as usize;
        let given = self.memory_max.map(|bytes| SizesBytes::Given(even_sizes(bytes, n_sizes)));
        let needs_sizes = self.window > 0 || specs.iter().any(Spec::needs_sizes);
        if let (Amount::Accesses(warmup), true) = (self.warmup, given.is_some() || !needs_sizes) {
            let needs_keys = specs.iter().any(Spec::needs_keys) && path != Path::new("-");
            let cut = Cut { warmup, window: self.window };
            let survey = if needs_keys { Some(self.survey(path)?) } else { None };
            return Ok((given.unwrap_or(SizesBytes::Even(n_sizes)), cut, survey));
        }
        if path == Path::new("-") {
            let what = "standard input can be read once only: a warm-up must be a number of accesses, and windows and \
                        miniature simulation need --memory-max";
            return Err(usage(what));
        }
        let survey = self.survey(path)?;
        let warmup = self.warmup.of(survey.n_accesses);
        let sizes = given.unwrap_or_else(|| SizesBytes::Given(even_sizes(survey.footprint_bytes, n_sizes)));
        Ok((sizes, Cut { warmup, window: self.window }, Some(survey)))
    }

    fn survey(&self, path: &Path) -> Result<Survey> {
        let (reader, progress) = Progress::open(path, self.reading.options(), "looking for the footprint")?;
        survey(reader, &progress)
    }
}

/// Every curve with its window (from 1), `None` where there is one window only.
fn curves<'a>(jobs: &'a [Job], seen: &'a Seen) -> impl Iterator<Item = (&'a Job, Option<usize>, u64, &'a Curve)> {
    let of_job = move |job: &'a Job| {
        let windows = job.curves.iter().zip(&seen.requests).enumerate();
        windows.map(move |(i, (curve, &requests))| (job, (job.curves.len() > 1).then_some(i + 1), requests, curve))
    };
    jobs.iter().flat_map(of_job)
}

/// Keys in a model's sample, about.
fn sampled_keys(job: &Job, seen: &Seen) -> u64 {
    (seen.n_keys as f64 * job.running.sample_rate().rate()).round() as u64
}

/// Fewer keys than these say little: with 400 a miss ratio of one half is off by 0.025 (one standard error).
const KEYS_ENOUGH: u64 = 400;

/// Says on standard error where a sample is too small to say much.
fn report_small_samples(jobs: &[Job], seen: &Seen) {
    for job in jobs.iter().filter(|job| job.running.sample_rate() < SampleRate::ALL) {
        let n = sampled_keys(job, seen);
        if n < KEYS_ENOUGH {
            let more = "take more with --rate, --sample-keys or --sample-keys-min";
            eprintln!(
                "{}: a sample of about {n} of {} keys, so the curve is rough; {more}",
                job.spec.label(),
                seen.n_keys
            );
        }
    }
}

fn ns_per_request(job: &Job, seen: &Seen) -> f64 {
    let requests: u64 = seen.requests.iter().sum();
    job.busy.as_nanos() as f64 / requests.max(1) as f64
}

fn to_json(name: &str, jobs: &[Job], seen: &Seen) -> Value {
    let one = |(job, window, requests, curve): (&Job, Option<usize>, u64, &Curve)| {
        let points = curve.curve.points().iter().enumerate().map(|(i, point)| {
            let mut value = json!({ "bytes": point.bytes, "miss_ratio": point.miss_ratio });
            if let Some(k) = curve.k.get(i) {
                value["k"] = json!(k);
            }
            if let Some(penalty_us) = curve.penalty_us.get(i) {
                value["penalty_us_mean"] = json!(penalty_us);
            }
            value
        });
        let rate = match job.spec.asked() {
            Sampling::Rate(rate) | Sampling::AtLeast { rate, .. } => json!(rounded(rate)),
            Sampling::Keys(_) => Value::Null,
        };
        let mut value = json!({
            "trace": name,
            "model": job.spec.model.to_string(),
            "k": job.spec.k,
            "rate": rate,
            "rate_taken": rounded(job.running.sample_rate()),
            "sampled_keys": sampled_keys(job, seen),
            "requests": requests,
            "curve": points.collect::<Vec<Value>>(),
            "ns_per_request": ns_per_request(job, seen),
            "memory_bytes": job.running.memory_bytes(),
            "footprint_bytes": seen.footprint_bytes,
        });
        if let Some(policy) = job.spec.policy {
            value["policy"] = json!(policy.to_string());
        }
        if let Sampling::Keys(keys) = job.spec.sampling {
            value["sample_keys"] = json!(keys);
        }
        if let Some(window) = window {
            value["window"] = json!(window);
        }
        value
    };
    let mut all: Vec<Value> = curves(jobs, seen).map(one).collect();
    if all.len() == 1 { all.remove(0) } else { Value::Array(all) }
}

fn title(job: &Job, window: Option<usize>) -> String {
    match window {
        Some(window) => format!("{} window {window}", job.spec.label()),
        None => job.spec.label(),
    }
}

/// The column of what misses cost.
const COST_TITLE: &str = "us lost/request";

fn table(name: &str, jobs: &[Job], seen: &Seen) -> String {
    let mut text = String::new();
    let requests: u64 = seen.requests.iter().sum();
    let footprint = format_bytes(seen.footprint_bytes);
    let _ = writeln!(text, "{name}: {requests} requests counted, footprint {footprint}\n");
    let width = jobs.iter().map(|job| job.spec.label().len()).max().unwrap_or(0).max(5);
    let _ = writeln!(text, "{:width$}  {:>12}  {:>10}  {:>10}", "model", "sampled keys", "ns/request", "memory");
    for job in jobs {
        let memory = format_bytes(job.running.memory_bytes() as u64);
        let (keys, ns) = (sampled_keys(job, seen), ns_per_request(job, seen));
        let _ = writeln!(text, "{:width$}  {keys:>12}  {ns:>10.1}  {memory:>10}", job.spec.label());
    }
    let columns: Vec<(String, &Curve)> =
        curves(jobs, seen).map(|(job, window, _, curve)| (title(job, window), curve)).collect();
    let _ = write!(text, "\n{:>10}", "size");
    for (title, curve) in &columns {
        let _ = write!(text, "  {title:>12}");
        if !curve.penalty_us.is_empty() {
            let _ = write!(text, "  {COST_TITLE}");
        }
    }
    text.push('\n');
    let rows = columns.first().map_or(0, |(_, curve)| curve.curve.points().len());
    for row in 0..rows {
        let bytes = columns[0].1.curve.points()[row].bytes;
        let _ = write!(text, "{:>10}", format_bytes(bytes));
        for (title, curve) in &columns {
            let k = curve.k.get(row).map(|k| format!(" K={k}")).unwrap_or_default();
            let value = format!("{:.4}{k}", curve.curve.miss_ratio_at(bytes));
            let _ = write!(text, "  {value:>width$}", width = title.len().max(12));
            if let Some(penalty_us) = curve.penalty_us.get(row) {
                let _ = write!(text, "  {penalty_us:>width$.1}", width = COST_TITLE.len());
            }
        }
        text.push('\n');
    }
    text
}

fn chart(name: &str, jobs: &[Job]) -> LineChart {
    let largest = jobs.iter().flat_map(|job| &job.curves).filter_map(|curve| curve.curve.points().last());
    let (unit, unit_bytes) = unit_of(largest.map(|point| point.bytes).max().unwrap_or(1));
    let mut series = Vec::new();
    for job in jobs {
        for (i, curve) in job.curves.iter().enumerate() {
            let at = curve.curve.points().iter().map(|point| (point.bytes as f64 / unit_bytes, point.miss_ratio));
            let points = std::iter::once((0.0, 1.0)).chain(at).collect();
            series.push(Series { name: title(job, (job.curves.len() > 1).then_some(i + 1)), points });
        }
    }
    LineChart {
        title: format!("Miss ratio by cache size: {name}"),
        x_label: format!("cache size ({unit})"),
        y_label: "miss ratio".to_owned(),
        x_log: false,
        series,
    }
}

/// The unit in which `bytes` is a short number, and its bytes.
fn unit_of(bytes: u64) -> (&'static str, f64) {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let found = units.into_iter().find(|(_, bits)| bytes >> bits >= 4);
    found.map_or(("bytes", 1.0), |(unit, bits)| (unit, (1_u64 << bits) as f64))
}
