//! `tenure plan`: the memory that a tenant takes for a miss ratio, and what more or less would do; of a running server, of all
//! primaries of a cluster, or of a trace.
//!
//! A server's curves are those it plans by, put together in `tenure_view::plan`. A trace's curve is that of K-LRU, as a server with
//! that many `maxmemory-samples` would have.

use std::path::Path;

use anyhow::Result;
use tenure_bench::report::columns;
use tenure_core::curve::even_sizes;
use tenure_core::model::census::Census;
use tenure_core::model::krr::Krr;
use tenure_core::model::{Counted, CurveModel};
use tenure_core::sampling::SampleRate;
use tenure_core::units::{TenantId, format_bytes};
use tenure_view::nodes::{connect, parse_address};
use tenure_view::plan::{Answer, Known, choose, of_servers, share_of};

use crate::print;
use crate::progress::Progress;
use crate::trace_args::{SAMPLE_KEYS_MIN, TraceArgs, parse_rate, report_bad_lines, sampling_at_least};

/// Sizes that a trace's curve is made at.
const CURVE_POINTS: usize = 400;
/// Keys in the census that finds a tenant's footprint: 1 % standard error beyond them.
const CENSUS_KEYS: usize = 8192;

/// The options of `tenure plan`.
#[derive(clap::Args)]
pub struct Arguments {
    /// HOST:PORT of a server with Tenure, or of any node of a cluster; or a trace, `-` for standard input.
    #[arg(value_name = "SERVER|TRACE")]
    source: String,

    /// Whose memory; may be left out where there is only one tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// The miss ratio that is wanted, 0 to 1.
    #[arg(long, value_name = "X", value_parser = parse_ratio)]
    miss_ratio: Option<f64>,

    /// Of a trace: the sampling size K of the server, 1 to 64.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    k: u32,

    /// Of a trace: the share of keys to sample, above 0 and up to 1; more where that is fewer than 8192 keys.
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = parse_rate)]
    rate: SampleRate,

    #[command(flatten)]
    reading: TraceArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("'{text}' is no miss ratio; allowed is 0 to 1"))
}

/// Runs the subcommand.
///
/// # Errors
/// When the source can't be read, or knows nothing of the tenant.
pub fn run(arguments: &Arguments) -> Result<()> {
    let path = Path::new(&arguments.source);
    let is_trace = arguments.source == "-" || path.exists();
    let known = if is_trace { of_trace(path, arguments)? } else { of_server(arguments)? };
    let answer = Answer::of(&known, arguments.miss_ratio);
    let what = if is_trace { "footprint" } else { "now" };
    print(&if arguments.json { format!("{:#}\n", answer.to_json(&known)) } else { table(&answer, &known, what) })
}

fn of_server(arguments: &Arguments) -> Result<Known> {
    of_servers(&mut connect(parse_address(&arguments.source)?)?, arguments.tenant.as_deref())
}

fn of_trace(path: &Path, arguments: &Arguments) -> Result<Known> {
    let (mut reader, progress) = Progress::open(path, arguments.reading.options(), "reading the trace")?;
    let sampling = sampling_at_least(arguments.rate, SAMPLE_KEYS_MIN);
    let mut model = Krr::new(arguments.k, sampling, Counted::ReadsAndWrites, 1)?;
    let mut census = Census::new(CENSUS_KEYS);
    let mut wanted: Option<TenantId> = None;
    let mut n = 0_u64;
    while let Some(access) = reader.next() {
        let access = access?;
        n += 1;
        if n.is_multiple_of(8192) {
            progress.update();
        }
        let is_wanted = match wanted {
            Some(tenant) => access.tenant == tenant,
            None => {
                let name = &reader.tenant_names()[usize::from(access.tenant.0)];
                let fits = arguments.tenant.as_ref().is_none_or(|asked| asked == name);
                if fits {
                    wanted = Some(access.tenant);
                }
                fits
            }
        };
        if is_wanted {
            model.record(&access);
            census.record(&access);
        }
    }
    drop(progress);
    report_bad_lines(reader.name(), reader.n_bad());
    let names: Vec<&str> = reader.tenant_names().iter().map(String::as_str).collect();
    let tenant = choose(&names, arguments.tenant.as_deref())?.to_owned();
    let footprint_bytes = census.footprint_bytes() as u64;
    let curve = model.curve(&even_sizes(footprint_bytes, CURVE_POINTS));
    Ok(Known { tenant, curve, present_bytes: footprint_bytes, penalty_us: None, nodes: Vec::new() })
}

fn table(answer: &Answer, known: &Known, what: &str) -> String {
    let mut out = format!("tenant '{}', {what} {}\n", known.tenant, format_bytes(known.present_bytes));
    if let Some(asked) = answer.asked {
        out += &match answer.needed_bytes {
            Some(bytes) => format!("a miss ratio of {asked} takes {}\n", format_bytes(bytes)),
            None => {
                let least = known.curve.points().last().map_or(1.0, |point| point.miss_ratio);
                format!(
                    "no memory brings a miss ratio of {asked}: {least:.4} is the least, the rest are first accesses\n"
                )
            }
        };
    }
    if known.nodes.len() > 1 {
        for (address, bytes) in &known.nodes {
            let needed = answer.needed_bytes.map(|needed| share_of(*bytes, known, needed));
            let needed = needed.map_or(String::new(), |bytes| format!(", then {}", format_bytes(bytes)));
            out += &format!("  {address}: {}{needed}\n", format_bytes(*bytes));
        }
    }
    let mut rows =
        vec![vec!["memory".to_owned(), String::new(), "miss ratio".to_owned(), "us lost per request".to_owned()]];
    for &(factor, bytes, miss_ratio) in &answer.rows {
        let lost = known.penalty_us.map_or("-".to_owned(), |penalty_us| format!("{:.1}", miss_ratio * penalty_us));
        rows.push(vec![format_bytes(bytes), format!("{:.0} %", 100.0 * factor), format!("{miss_ratio:.4}"), lost]);
    }
    format!("{out}\n{}", columns(&rows))
}
