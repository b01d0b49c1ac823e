//! What the subcommands that read traces ask for alike: how to read, how much to leave out, how many threads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use tenure_core::sampling::{SampleRate, Sampling};
use tenure_core::units::parse_bytes;
use tenure_sim::costs::CostSpec;
use tenure_sim::trace::{Format, LogNormalSizes, Sizes, TenantSource, TraceOptions};

/// What a miss costs where neither the trace nor the command line says it, in µs: all alike, so that a policy that
/// goes by cost goes by hits.
const PENALTY_US_DEFAULT: f32 = 1000.0;

/// In which forms the result is given, beside the table.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// Plot the result into FILE.svg or FILE.png.
    #[arg(long, value_name = "FILE", value_parser = parse_plot)]
    pub plot: Option<PathBuf>,

    /// Write one HTML page with the table and the plot, to be sent to somebody.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// How a trace is read.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The trace's format: auto, tenure, csv, oracleGeneral, twitter, msr or monitor.
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = parse_format)]
    pub format: TraceFormat,

    /// Columns of a libCacheSim csv, as in "time-col=1, obj-id-col=2, obj-size-col=3".
    #[arg(short = 't', long, value_name = "PARAMETERS", default_value = "")]
    pub trace_type_params: String,

    /// Tenants: column, column:N (modulo N), client, prefix:CHARACTER, hash:N (by the key's hash) or none.
    #[arg(
        long,
        value_name = "SOURCE",
        default_value = "column",
        value_parser = |text: &str| text.parse::<TenantSource>()
    )]
    pub tenants: TenantSource,

    /// What a miss costs: fixed:US, by-key:US,US…, by-tenant:US,US…, column, or column:US where rows may say nothing.
    /// Default: column:1000.
    #[arg(long, value_name = "SPEC")]
    pub costs: Option<CostSpec>,

    /// Give every key this size in bytes, above 0, whatever the trace says.
    #[arg(
        long,
        value_name = "BYTES",
        conflicts_with = "missing_size",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub fixed_size: Option<u32>,

    /// Size of keys that the trace tells none of: bytes, or `lognormal` (50 B to 64 KiB by the key's hash, median
    /// 1810 B).
    #[arg(long, value_name = "BYTES|lognormal", default_value = "1024", value_parser = parse_missing_size)]
    pub missing_size: Sizes,

    /// Pass over malformed lines, and say how many there were.
    #[arg(long)]
    pub skip_bad: bool,
}

/// A format, or `auto`.
#[derive(Clone, Copy, Debug)]
pub struct TraceFormat(pub Option<Format>);

fn parse_format(text: &str) -> Result<TraceFormat, String> {
    if text == "auto" { Ok(TraceFormat(None)) } else { text.parse().map(|format| TraceFormat(Some(format))) }
}

fn parse_missing_size(text: &str) -> Result<Sizes, String> {
    if text == "lognormal" {
        return Ok(Sizes::TraceOrDrawn(LogNormalSizes::default_range()));
    }
    let size = text.parse::<u32>().ok().filter(|&size| size > 0);
    size.map(Sizes::TraceOr).ok_or_else(|| format!("'{text}' is neither a number of bytes above 0 nor 'lognormal'"))
}

impl TraceArgs {
    /// Says on standard error what misses are taken to cost, where the command line doesn't. For a trace that says
    /// nothing of it.
    pub fn report_costs(&self, trace: &str) {
        if self.costs.is_none() {
            eprintln!(
                "{trace}: nothing says what a miss costs; each is taken to cost {PENALTY_US_DEFAULT} µs (--costs)"
            );
        }
    }

    /// The same for the reader.
    pub fn options(&self) -> TraceOptions {
        TraceOptions {
            format: self.format.0,
            parameters: self.trace_type_params.clone(),
            tenants: self.tenants.clone(),
            sizes: self.fixed_size.map_or(self.missing_size, Sizes::Fixed),
            costs: Some(self.costs.clone().unwrap_or(CostSpec::ColumnOr(PENALTY_US_DEFAULT))),
            skip_bad: self.skip_bad,
        }
    }
}

/// How many threads to use.
#[derive(Args, Clone, Copy, Debug)]
pub struct ThreadArgs {
    /// Threads; all cores where not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    num_thread: Option<u64>,
}

impl ThreadArgs {
    /// At least 1.
    pub fn count(self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.num_thread.map_or_else(cores, |n| n as usize)
    }
}

/// A number of accesses, or a share of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many.
    Accesses(u64),
    /// Below 1.
    Share(f64),
}

impl Amount {
    /// The number of accesses, of a trace of `n_accesses`.
    pub fn of(self, n_accesses: u64) -> u64 {
        match self {
            Amount::Accesses(accesses) => accesses,
            Amount::Share(share) => (n_accesses as f64 * share) as u64,
        }
    }
}

/// Reads a number of bytes above 0.
pub fn parse_size_above_0(text: &str) -> Result<u64, String> {
    parse_size(text)?.checked_sub(1).map(|below| below + 1).ok_or_else(|| "0 bytes hold nothing".to_owned())
}

/// Reads the name of a file to plot into.
pub fn parse_plot(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if !path.extension().is_some_and(|extension| extension == "svg" || extension == "png") {
        return Err(format!("'{text}' ends neither in .svg nor in .png"));
    }
    match path.parent() {
        Some(folder) if folder != Path::new("") && !folder.is_dir() => {
            Err(format!("there is no folder '{}'", folder.display()))
        }
        _ => Ok(path),
    }
}

/// Reads a time in µs, 0 or more.
pub fn parse_us(text: &str) -> Result<f64, String> {
    let us = text.parse().ok().filter(|us: &f64| us.is_finite() && *us >= 0.0);
    us.ok_or_else(|| format!("'{text}' is not a number of µs, 0 or more"))
}

/// Reads a number of bytes: `1000` or `64mb`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|e| e.to_string())
}

/// Reads a sampling rate: above 0, up to 1.
pub fn parse_rate(text: &str) -> Result<SampleRate, String> {
    let rate: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    SampleRate::new(rate).map_err(|e| e.to_string())
}

/// Keys that a sample takes at the least, unless said otherwise: as many as SHARDS (FAST'15, sec. 5) found to be
/// enough.
pub const SAMPLE_KEYS_MIN: u64 = 8192;

/// The share `rate` of keys, and at least so many.
pub fn sampling_at_least(rate: SampleRate, keys: u64) -> Sampling {
    match keys {
        0 => Sampling::Rate(rate),
        _ if rate == SampleRate::ALL => Sampling::ALL,
        keys => Sampling::AtLeast { rate, keys: keys as usize },
    }
}

/// Reads an [`Amount`]: `1000` or `20%`.
pub fn parse_amount(text: &str) -> Result<Amount, String> {
    let share = parse_share(text).filter(|share| *share < 1.0).map(Amount::Share);
    let allowed = || format!("'{text}' is neither a number of accesses nor a share below 100%");
    share.or_else(|| text.parse().ok().map(Amount::Accesses)).ok_or_else(allowed)
}

/// Reads a share: `20%` is 0.2.
pub fn parse_share(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    (percent.is_finite() && percent >= 0.0).then_some(percent / 100.0)
}

/// The traces in a folder, by name.
///
/// # Errors
/// Where the folder can't be read or holds none.
pub fn traces_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.to_string_lossy();
        if [".csv", ".csv.gz", ".csv.zst", ".oracleGeneral.zst"].iter().any(|end| name.ends_with(end)) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        bail!("{}: no trace (.csv, .csv.gz, .csv.zst or .oracleGeneral.zst) in this folder", folder.display());
    }
    paths.sort();
    Ok(paths)
}

/// Says on standard error how many malformed lines were passed over, if any were.
pub fn report_bad_lines(trace: &str, n_bad: u64) {
    if n_bad > 0 {
        let lines = if n_bad == 1 { "line was" } else { "lines were" };
        eprintln!("{trace}: {n_bad} malformed {lines} passed over");
    }
}

/// What the trace is called in tables and plots: its file name without extensions.
pub fn trace_name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    let name = path.file_name().map_or_else(|| PathBuf::from("trace"), PathBuf::from);
    let name = name.to_string_lossy().into_owned();
    name.split('.').next().filter(|stem| !stem.is_empty()).map_or_else(|| name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read() {
        assert_eq!(parse_amount("20%"), Ok(Amount::Share(0.2)));
        assert_eq!(parse_amount("1000"), Ok(Amount::Accesses(1000)));
        assert!(["100%", "-1%", "x", ""].iter().all(|text| parse_amount(text).is_err()));
        assert_eq!([Amount::Share(0.2).of(50), Amount::Accesses(7).of(50)], [10, 7]);
    }

    #[test]
    fn what_means_nothing_is_refused() {
        assert!(["nan", "inf", "-1", "", "x"].iter().all(|text| parse_us(text).is_err()));
        assert_eq!(parse_us("0.5"), Ok(0.5));
        assert_eq!((parse_size_above_0("1kb"), parse_size_above_0("0").is_err()), (Ok(1024), true));
        assert!(["a.gif", "nowhere/at-all/a.svg", "svg"].iter().all(|text| parse_plot(text).is_err()));
        assert_eq!(parse_plot("a.svg"), Ok(PathBuf::from("a.svg")));
    }

    #[test]
    fn only_traces_are_taken_from_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(traces_in(folder.path()).unwrap_err().to_string().contains("no trace"));
        for name in ["b.csv.gz", "notes.md", "a.csv"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<String> = traces_in(folder.path()).unwrap().iter().map(|path| trace_name(path)).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
