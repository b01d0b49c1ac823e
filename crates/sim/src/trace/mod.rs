//! Traces: any supported file in, a stream of accesses out, in memory that doesn't grow with the trace.
//!
//! [`TraceReader`] is an iterator of accesses; who also needs a key's text (a benchmark that replays the trace
//! against a real server) calls [`TraceReader::next_request`]. One file per format. Cost: about 60 ns per row of
//! gzipped CSV, unpacking on a thread of its own.

mod delimited;
mod format;
mod input;
mod libcachesim;
mod monitor;
mod msr;
mod oracle_general;
mod row;
mod sizes;
mod tenants;
mod tenure;
#[cfg(test)]
mod tests;
mod twitter;

use std::fmt;
use std::io::Read;
use std::path::Path;

pub use format::Format;
use format::{Parser, Step, StepError};
use input::Input;
use row::Row;
pub use sizes::{LogNormalSizes, Sizes};
pub use tenants::TenantSource;
use tenants::Tenants;
use tenure_core::access::Access;
use tenure_core::units::KeyHash;

use crate::costs::CostSpec;

/// How a trace is to be read. The default takes everything as the trace says it.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// The format; told by the trace's beginning where it isn't given.
    pub format: Option<Format>,
    /// The columns of libCacheSim's csv, as its `-t` option writes them.
    pub parameters: String,
    /// Where tenants come from.
    pub tenants: TenantSource,
    /// Where sizes come from.
    pub sizes: Sizes,
    /// What a miss costs; as the trace says where it isn't given.
    pub costs: Option<CostSpec>,
    /// Malformed lines are passed over and counted, in place of ending the trace.
    pub skip_bad: bool,
}

/// What is wrong with a trace, and where: `trace.csv:1042: size '-3' is negative`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    name: String,
    /// Line or record, from 1; 0 where the whole trace is meant.
    line: u64,
    what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.name, self.what),
            line => write!(f, "{}:{line}: {}", self.name, self.what),
        }
    }
}

impl std::error::Error for TraceError {}

/// An access with the text of its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// The access; its key is the hash of the text.
    pub access: Access,
    /// The key's bytes.
    pub key: &'a [u8],
}

/// Reads a trace from its start to its end. After an error it ends, unless bad lines are skipped. A trace without any
/// access is an error at its end.
///
/// Times start at 0 and never go back: where a trace's lines are out of order, a late one counts as simultaneous with
/// the one before it.
pub struct TraceReader {
    name: String,
    input: Input,
    parser: Parser,
    options: TraceOptions,
    tenants: Tenants,
    row: Row,
    n_lines: u64,
    n_bad: u64,
    n_accesses: u64,
    /// Accesses of which the trace says what a miss costs.
    n_priced: u64,
    start_us: Option<u64>,
    now_us: u64,
    ended: bool,
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceReader { name, parser, n_lines, .. } = self;
        f.debug_struct("TraceReader").field("name", name).field("parser", parser).field("n_lines", n_lines).finish()
    }
}

impl TraceReader {
    /// Opens the trace at `path`; `-` is standard input.
    ///
    /// # Errors
    /// Where it can't be read, its format can't be told, or its parameters are not understood.
    pub fn open(path: impl AsRef<Path>, options: TraceOptions) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        let input = Input::open(path).map_err(|e| whole(&name, e.to_string()))?;
        TraceReader::new(name, input, options)
    }

    /// Reads a trace from `bytes`; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn from_reader(
        name: impl Into<String>,
        bytes: impl Read + Send + 'static,
        options: TraceOptions,
    ) -> Result<Self, TraceError> {
        let name = name.into();
        let input = Input::from_reader(bytes).map_err(|e| whole(&name, e.to_string()))?;
        TraceReader::new(name, input, options)
    }

    fn new(name: String, mut input: Input, options: TraceOptions) -> Result<Self, TraceError> {
        let asked = options.format.or((!options.parameters.is_empty()).then_some(Format::LibCacheSimCsv));
        let format = match asked {
            Some(format) => format,
            None => match Format::detect(&mut input).map_err(|e| whole(&name, e.to_string()))? {
                Some(format) => format,
                None if input.peek(1).is_ok_and(|start| start.is_empty()) => {
                    return Err(whole(&name, "it is empty".into()));
                }
                None => {
                    let what = "its format can't be told: say --format, or which columns of a csv hold what, \
                                as in -t \"time-col=1, obj-id-col=2, obj-size-col=3\"";
                    return Err(whole(&name, what.to_owned()));
                }
            },
        };
        let parser = Parser::new(format, &options.parameters).map_err(|what| whole(&name, what))?;
        let tenants = Tenants::new(options.tenants.clone());
        Ok(TraceReader {
            name,
            input,
            parser,
            options,
            tenants,
            row: Row::new(),
            n_lines: 0,
            n_bad: 0,
            n_accesses: 0,
            n_priced: 0,
            start_us: None,
            now_us: 0,
            ended: false,
        })
    }

    /// The next access with the text of its key; `None` at the end.
    pub fn next_request(&mut self) -> Option<Result<Request<'_>, TraceError>> {
        let access = self.next()?;
        Some(access.map(|access| Request { access, key: &self.row.key }))
    }

    /// Names of the tenants seen so far, by [`TenantId`](tenure_core::units::TenantId); a trace without tenants has
    /// one, named "".
    pub fn tenant_names(&self) -> &[String] {
        self.tenants.names()
    }

    /// How many malformed lines were passed over so far.
    pub fn n_bad(&self) -> u64 {
        self.n_bad
    }

    /// True where some access told what a miss of it costs.
    pub fn tells_costs(&self) -> bool {
        self.n_priced > 0
    }

    /// What errors call the trace.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn access(&mut self) -> Result<Access, String> {
        let row = &self.row;
        let key = KeyHash::of(&row.key);
        let tenant = self.tenants.of(row, key)?;
        let start_us = *self.start_us.get_or_insert(row.time_us);
        self.now_us = self.now_us.max(row.time_us.saturating_sub(start_us));
        let size_bytes = self.options.sizes.size_bytes(key, row.size_bytes)?;
        let penalty_us =
            self.options.costs.as_ref().unwrap_or(&CostSpec::ColumnOr(0.0)).penalty_us(key, tenant, row.penalty_us);
        self.n_accesses += 1;
        self.n_priced += u64::from(row.penalty_us.is_some());
        Ok(Access { key, op: row.op, tenant, size_bytes, time_us: self.now_us, ttl_us: row.ttl_us, penalty_us })
    }

    /// What is wrong with the trace as a whole, now that it has been read.
    fn verdict(&self) -> Option<String> {
        if self.n_accesses == 0 {
            let all_bad = if self.n_bad > 0 { ": every line is malformed" } else { "" };
            return Some(format!("it holds no access{all_bad}"));
        }
        let costs_wanted = self.options.costs == Some(CostSpec::Column);
        (costs_wanted && self.n_priced == 0).then(|| {
            "no row says what a miss costs: --costs column needs a column penalty_us; column:US gives rows without \
             one US µs"
                .to_owned()
        })
    }

    fn fail(&mut self, what: String) -> TraceError {
        self.ended = true;
        TraceError { name: self.name.clone(), line: self.n_lines, what }
    }
}

impl Iterator for TraceReader {
    type Item = Result<Access, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let what = match self.parser.step(&mut self.input, &mut self.row, &mut self.n_lines) {
                Ok(Step::Nothing) => continue,
                Ok(Step::End) => break,
                Ok(Step::Row) => match self.access() {
                    Ok(access) => return Some(Ok(access)),
                    Err(what) => what,
                },
                Err(StepError::Line(what)) => what,
                Err(StepError::Read(e)) => {
                    // The bytes after the line before are unreadable, so that is the last good line.
                    self.n_lines += 1;
                    return Some(Err(self.fail(e.to_string())));
                }
            };
            if !self.options.skip_bad {
                return Some(Err(self.fail(what)));
            }
            self.n_bad += 1;
        }
        let has_ended = std::mem::replace(&mut self.ended, true);
        let wrong = if has_ended { None } else { self.verdict() };
        wrong.map(|what| Err(whole(&self.name, what)))
    }
}

fn whole(name: &str, what: String) -> TraceError {
    TraceError { name: name.to_owned(), line: 0, what }
}
