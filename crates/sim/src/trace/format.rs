//! Which format a trace has, told by its beginning, and one parser for all of them.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::input::Input;
use super::libcachesim::LibCacheSimCsv;
use super::monitor::Monitor;
use super::oracle_general;
use super::row::Row;
use super::tenure::TenureCsv;
use super::{libcachesim, monitor, msr, tenure, twitter};

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Tenure's CSV: `time_s,key,op,size,tenant`.
    Tenure,
    /// libCacheSim's csv with named columns.
    LibCacheSimCsv,
    /// libCacheSim's binary oracleGeneral.
    OracleGeneral,
    /// Twitter's cache-trace csv.
    Twitter,
    /// MSR Cambridge csv.
    Msr,
    /// A log of `MONITOR`.
    Monitor,
}

const NAMES: [(Format, &str); 6] = [
    (Format::Tenure, "tenure"),
    (Format::LibCacheSimCsv, "csv"),
    (Format::OracleGeneral, "oracleGeneral"),
    (Format::Twitter, "twitter"),
    (Format::Msr, "msr"),
    (Format::Monitor, "monitor"),
];

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
        found.map(|(format, _)| *format).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("trace format '{text}' is none of auto, {}", names.join(", "))
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(format, _)| format == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl Format {
    /// Tells the format by the trace's beginning; `None` where none fits.
    pub(super) fn detect(input: &mut Input) -> io::Result<Option<Format>> {
        let start = input.peek(4096)?;
        let start = &start[..start.len().min(4096)];
        if oracle_general::looks_like(&start[..start.len() / 24 * 24]) {
            return Ok(Some(Format::OracleGeneral));
        }
        let line = start.split(|&b| b == b'\n').next().unwrap_or(start);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Ok(Format::of_line(line))
    }

    fn of_line(line: &[u8]) -> Option<Format> {
        let names_a_key = |line: &[u8]| {
            let roles: Vec<_> = line.split(|&b| b == b',').map(libcachesim::role_of).collect();
            roles.len() > 1 && roles.contains(&super::delimited::Role::Key)
        };
        if monitor::looks_like(line) {
            Some(Format::Monitor)
        } else if tenure::is_header(line) {
            Some(Format::Tenure)
        } else if msr::looks_like(line) {
            Some(Format::Msr)
        } else if twitter::looks_like(line) {
            Some(Format::Twitter)
        } else if TenureCsv::new().parse(line, &mut Row::new()) == Ok(true) && line.split(|&b| b == b',').count() == 5 {
            Some(Format::Tenure)
        } else if names_a_key(line) {
            Some(Format::LibCacheSimCsv)
        } else {
            None
        }
    }
}

/// The parser of one trace.
#[derive(Debug)]
pub(super) enum Parser {
    Tenure(TenureCsv),
    LibCacheSimCsv(LibCacheSimCsv),
    OracleGeneral,
    Twitter,
    Msr,
    Monitor(Box<Monitor>),
}

/// What one step through a trace found.
pub(super) enum Step {
    /// The row holds a request.
    Row,
    /// A line without a request.
    Nothing,
    /// The end.
    End,
}

/// Why a step failed: the line is bad, or the file can't be read on.
pub(super) enum StepError {
    Line(String),
    Read(io::Error),
}

impl Parser {
    pub fn new(format: Format, parameters: &str) -> Result<Self, String> {
        Ok(match format {
            Format::Tenure => Parser::Tenure(TenureCsv::new()),
            Format::LibCacheSimCsv => Parser::LibCacheSimCsv(LibCacheSimCsv::new(parameters)?),
            Format::OracleGeneral => Parser::OracleGeneral,
            Format::Twitter => Parser::Twitter,
            Format::Msr => Parser::Msr,
            Format::Monitor => Parser::Monitor(Box::default()),
        })
    }

    /// Reads one line or record into `row`; `n_lines` counts them.
    pub fn step(&mut self, input: &mut Input, row: &mut Row, n_lines: &mut u64) -> Result<Step, StepError> {
        if let Parser::Monitor(monitor) = self
            && monitor.next_waiting(row)
        {
            return Ok(Step::Row);
        }
        row.clear();
        let line = match self {
            Parser::OracleGeneral => input.next_record(oracle_general::RECORD_BYTES),
            _ => input.next_line(),
        };
        let Some(line) = line.map_err(StepError::Read)? else {
            return Ok(Step::End);
        };
        *n_lines += 1;
        if line.is_empty() {
            return Ok(Step::Nothing);
        }
        let found = match self {
            Parser::Tenure(format) => format.parse(line, row),
            Parser::LibCacheSimCsv(format) => format.parse(line, row),
            Parser::OracleGeneral => oracle_general::parse(line, row).map(|()| true),
            Parser::Twitter => twitter::parse(line, row).map(|()| true),
            Parser::Msr => msr::parse(line, row).map(|()| true),
            Parser::Monitor(format) => format.parse(line, row),
        };
        found.map(|is_row| if is_row { Step::Row } else { Step::Nothing }).map_err(StepError::Line)
    }
}
