//! Workloads: what is asked of the cache, decided in full before the first server starts.
//!
//! A [`Stream`] is a list of requests over a table of keys, fixed by the seed, so that every system is asked exactly the same
//! in the same order; its connections share the list and each takes the next request when it is free. One workload per
//! file; [`zipfian`] holds YCSB's number generators. Cost: 12 bytes per request, the name and 10 bytes per key.

pub mod keys;
mod no_miss;
mod tenants;
mod trace;
mod ycsb;
pub mod zipfian;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use tenure_sim::trace::TraceOptions;

use keys::{Assignment, KeyTable};
use ycsb::Ycsb;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// GET; on a miss the value is fetched from the key's backend and SET.
    Read,
    /// SET: an update or an insert. The cache is written, the backend is not: see `ycsb.rs`.
    Write,
    /// MGET of a range of keys; those that miss are fetched one by one and SET.
    Scan,
    /// A read, as above, then a SET of the same key.
    ReadModifyWrite,
    /// DEL.
    Delete,
}

/// One request. 12 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key; for a scan, where its keys begin in [`Stream::scans`].
    pub key: u32,
    /// Size of the value that is written, also after a miss, in bytes.
    pub value_bytes: u32,
    /// How many keys are asked for: 1, or a scan's length, at most 100.
    pub n_keys: u8,
    /// What is done.
    pub operation: Operation,
}

impl Request {
    fn on(operation: Operation, key: u32, value_bytes: u32) -> Self {
        Request { key, value_bytes, n_keys: 1, operation }
    }
}

/// What every system of a comparison is asked.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The workload's name, fit for a folder: `ycsb-a`, `tenants`, a trace's file name.
    pub name: String,
    /// All keys.
    pub keys: KeyTable,
    /// All requests, in order; the first [`n_warmup`](Stream::n_warmup) are not measured.
    pub requests: Vec<Request>,
    /// The keys of all scans, one scan after the other.
    pub scans: Vec<u32>,
    /// How many requests come before the measurement.
    pub n_warmup: usize,
}

impl Stream {
    /// The keys that `request` asks for.
    pub fn keys_of<'a>(&'a self, request: &'a Request) -> &'a [u32] {
        match request.operation {
            Operation::Scan => &self.scans[request.key as usize..][..usize::from(request.n_keys)],
            _ => std::slice::from_ref(&request.key),
        }
    }

    /// How many requests are measured.
    pub fn n_measured(&self) -> usize {
        self.requests.len() - self.n_warmup
    }
}

/// A workload's name, as `--workload` takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// One of YCSB's six.
    Ycsb(Ycsb),
    /// Fifteen tenants with penalties of 2^0 to 2^14 µs.
    Tenants,
    /// All keys fit; throughput and CPU only.
    NoMiss,
    /// A trace in any format that the simulator reads.
    Trace(PathBuf),
}

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(letter) = text.strip_prefix("ycsb-") {
            return Ok(Workload::Ycsb(letter.parse()?));
        }
        match text {
            "tenants" => Ok(Workload::Tenants),
            "no-miss" => Ok(Workload::NoMiss),
            path if path == "-" || PathBuf::from(path).is_file() => Ok(Workload::Trace(path.into())),
            _ => bail!("workload '{text}' is none of ycsb-a to ycsb-f, tenants, no-miss, - or the path of a trace"),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Ycsb(ycsb) => write!(f, "ycsb-{ycsb}"),
            Workload::Tenants => f.write_str("tenants"),
            Workload::NoMiss => f.write_str("no-miss"),
            Workload::Trace(path) => f.write_str(&trace::name_of(path)),
        }
    }
}

/// How large a workload is and how its keys are divided. What is `None` takes the workload's own default.
#[derive(Clone, Debug)]
pub struct WorkloadOptions {
    /// Which workload.
    pub workload: Workload,
    /// Of all random draws.
    pub seed: u64,
    /// Keys that exist at the start; not for traces.
    pub n_keys: Option<usize>,
    /// Requests before the measurement.
    pub n_warmup: Option<usize>,
    /// Measured requests.
    pub n_requests: Option<usize>,
    /// How many backends there are.
    pub n_backends: usize,
    /// By what a key's backend is found.
    pub assignment: Option<Assignment>,
    /// How a trace is read.
    pub trace: TraceOptions,
}

/// How many keys and requests a workload has.
#[derive(Clone, Copy, Debug)]
struct Size {
    n_keys: usize,
    n_warmup: usize,
    n_requests: usize,
}

impl WorkloadOptions {
    /// `workload` at its default size on `n_backends` backends, seed 1.
    pub fn new(workload: Workload, n_backends: usize) -> Self {
        let trace = TraceOptions::default();
        let (n_keys, n_warmup, n_requests, assignment) = (None, None, None, None);
        WorkloadOptions { workload, seed: 1, n_keys, n_warmup, n_requests, n_backends, assignment, trace }
    }

    /// Draws the stream (or reads the trace).
    ///
    /// # Errors
    /// A trace that cannot be read or is too short, and sizes of 0.
    pub fn generate(&self) -> anyhow::Result<Stream> {
        let keys = |default| KeyTable::new(self.assignment.unwrap_or(default), self.n_backends);
        let stream = match &self.workload {
            Workload::Ycsb(ycsb) => ycsb.generate(keys(Assignment::ByKey), self.size(ycsb.default_size())?, self.seed),
            Workload::Tenants => tenants::generate(keys(Assignment::ByTenant), self.size(tenants::SIZE)?, self.seed),
            Workload::NoMiss => no_miss::generate(keys(Assignment::ByKey), self.size(no_miss::SIZE)?, self.seed),
            Workload::Trace(path) => {
                let by = if self.n_backends > 1 { Assignment::ByKey } else { Assignment::ByTenant };
                let read = trace::read(path, &self.trace, keys(by), self.n_warmup, self.n_requests);
                read.with_context(|| "the trace cannot be replayed")?
            }
        };
        ensure!(stream.keys.n_tenants() < 64, "{} tenants: at most 63 are supported", stream.keys.n_tenants());
        Ok(stream)
    }

    fn size(&self, default: Size) -> anyhow::Result<Size> {
        let size = Size {
            n_keys: self.n_keys.unwrap_or(default.n_keys),
            n_warmup: self.n_warmup.unwrap_or(default.n_warmup),
            n_requests: self.n_requests.unwrap_or(default.n_requests),
        };
        ensure!((2..=1 << 31).contains(&size.n_keys), "{} keys: 2 to 2147483648 are allowed", size.n_keys);
        ensure!(size.n_requests > 0, "0 requests: at least 1 must be measured");
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(workload: &str) -> WorkloadOptions {
        let options = WorkloadOptions::new(workload.parse().unwrap(), 2);
        WorkloadOptions { n_keys: Some(500), n_warmup: Some(100), n_requests: Some(2000), ..options }
    }

    #[test]
    fn a_seed_decides_every_request() {
        for name in ["ycsb-a", "ycsb-d", "ycsb-e", "ycsb-f", "tenants", "no-miss"] {
            let (first, again) = (small(name).generate().unwrap(), small(name).generate().unwrap());
            assert_eq!(first.requests.len(), 2100, "{name}");
            assert_eq!((first.n_warmup, first.n_measured()), (100, 2000), "{name}");
            assert_eq!(first.requests, again.requests, "{name}");
            let other = WorkloadOptions { seed: 2, ..small(name) }.generate().unwrap();
            assert_ne!(first.requests, other.requests, "{name}");
        }
    }

    #[test]
    fn unknown_workloads_are_refused_with_what_is_allowed() {
        for name in ["ycsb-g", "ycsb", "memtier", "/nonexistent/trace.csv"] {
            let error = name.parse::<Workload>().unwrap_err().to_string();
            assert!(error.contains("ycsb-a") || error.contains("a to f"), "{error}");
        }
    }

    #[test]
    fn sizes_of_nothing_are_refused() {
        assert!(WorkloadOptions { n_requests: Some(0), ..small("ycsb-a") }.generate().is_err());
        assert!(WorkloadOptions { n_keys: Some(1), ..small("ycsb-a") }.generate().is_err());
    }
}
