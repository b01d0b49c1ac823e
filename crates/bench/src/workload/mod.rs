//! Workloads: what is asked of the cache, decided in full before the first server starts.
//!
//! A [`Stream`] is a list of requests over a table of keys. The seed fixes it, so every system has exactly the same
//! requests in the same order. Connections share the list: each takes the next request when it is free and, where the
//! workload has a [`pace`], when it is due. One workload per file; [`zipfian`] holds YCSB's number generators. Cost:
//! 12 bytes per request, the name and 10 bytes per key.

mod diurnal;
pub mod full;
pub mod keys;
mod no_miss;
pub mod pace;
mod tenants;
pub mod tiers;
mod trace;
mod ycsb;
pub mod zipfian;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use tenure_sim::trace::TraceOptions;

use keys::{Assignment, KeyTable};
use pace::Pace;
use tiers::{TierAccesses, TierLoad};
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
    /// When requests are due; `None`: as soon as a connection is free.
    pub pace: Option<Pace>,
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
    /// A tenant that is asked for in peaks beside one that always is.
    Diurnal,
    /// A cache that is full; throughput, CPU and evictions only.
    Full,
    /// Caches of several sizes; what each of them costs.
    Scale,
    /// All keys fit; throughput and CPU only.
    NoMiss,
    /// All keys fit, in a cluster; throughput, redirects and CPU only.
    Slots,
    /// All keys fit, and most values lie in slow memory.
    Tiers,
    /// A trace in any format that the simulator reads.
    Trace(PathBuf),
}

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let is_file = Path::new(text).is_file();
        match text.strip_prefix("ycsb-").map(str::parse) {
            Some(Err(_)) if is_file => return Ok(Workload::Trace(text.into())),
            Some(letter) => return Ok(Workload::Ycsb(letter?)),
            None => {}
        }
        match text {
            "tenants" => Ok(Workload::Tenants),
            "diurnal" => Ok(Workload::Diurnal),
            "full" => Ok(Workload::Full),
            "scale" => Ok(Workload::Scale),
            "no-miss" => Ok(Workload::NoMiss),
            "slots" => Ok(Workload::Slots),
            "tiers" => Ok(Workload::Tiers),
            path if path == "-" || is_file => Ok(Workload::Trace(path.into())),
            _ => bail!(
                "workload '{text}' is none of ycsb-a to ycsb-f, tenants, diurnal, full, scale, no-miss, slots, tiers, \
                 - or the path of a trace"
            ),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Ycsb(ycsb) => write!(f, "ycsb-{ycsb}"),
            Workload::Tenants => f.write_str("tenants"),
            Workload::Diurnal => f.write_str("diurnal"),
            Workload::Full => f.write_str("full"),
            Workload::Scale => f.write_str("scale"),
            Workload::NoMiss => f.write_str("no-miss"),
            Workload::Slots => f.write_str("slots"),
            Workload::Tiers => f.write_str("tiers"),
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
    /// From one peak to the next, in s; of diurnal only.
    pub period_s: Option<f64>,
    /// How many backends there are.
    pub n_backends: usize,
    /// By what a key's backend is found.
    pub assignment: Option<Assignment>,
    /// How a trace is read.
    pub trace: TraceOptions,
    /// What tiers are asked for.
    pub tier_load: TierLoad,
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
        let (n_keys, n_warmup, n_requests, period_s, assignment) = (None, None, None, None, None);
        WorkloadOptions {
            workload,
            seed: 1,
            n_keys,
            n_warmup,
            n_requests,
            period_s,
            n_backends,
            assignment,
            trace,
            tier_load: TierLoad::default(),
        }
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
            Workload::Diurnal => {
                let by_key = self.assignment == Some(Assignment::ByKey);
                ensure!(!by_key, "diurnal has a backend for each of its tenants, and not by key");
                let period_s = self.period_s.unwrap_or(diurnal::PERIOD_S);
                diurnal::generate(self.n_backends, self.size(diurnal::size(period_s))?, period_s, self.seed)
            }
            Workload::Full | Workload::Scale => bail!("{} has a stream for each of its loads", self.workload),
            Workload::NoMiss => {
                let size = self.size(no_miss::SIZE)?;
                no_miss::generate(keys(Assignment::ByKey), &no_miss::NO_MISS, size, self.seed)
            }
            Workload::Slots => {
                let size = self.size(no_miss::SLOTS_SIZE)?;
                no_miss::generate(keys(Assignment::ByKey), &no_miss::SLOTS, size, self.seed)
            }
            Workload::Tiers => match &self.tier_load.accesses {
                TierAccesses::Made(accesses) => {
                    tiers::generate(*accesses, &self.tier_load, self.size(tiers::SIZE)?, self.seed)?
                }
                TierAccesses::Trace(path) => {
                    tiers::replay(path, &self.tier_load, &self.trace, (self.n_warmup, self.n_requests))?
                }
            },
            Workload::Trace(path) => {
                let by = if self.n_backends > 1 { Assignment::ByKey } else { Assignment::ByTenant };
                let read = trace::read(path, &self.trace, keys(by), self.n_warmup, self.n_requests);
                read.with_context(|| "the trace cannot be replayed")?
            }
        };
        ensure!(stream.keys.n_tenants() <= 64, "{} tenants: at most 64 are supported", stream.keys.n_tenants());
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
        for name in ["ycsb-a", "ycsb-d", "ycsb-e", "ycsb-f", "tenants", "diurnal", "no-miss", "slots", "tiers"] {
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
    fn diurnal_has_tenants_and_backends_of_its_own() {
        let error = WorkloadOptions { assignment: Some(Assignment::ByKey), ..small("diurnal") }.generate().unwrap_err();
        assert!(error.to_string().contains("by key"), "{error}");
        let stream = WorkloadOptions { period_s: Some(0.5), ..small("diurnal") }.generate().unwrap();
        assert_eq!(stream.pace.unwrap().phases[1].start_s, 0.25);
    }

    #[test]
    fn sizes_of_nothing_are_refused() {
        assert!(WorkloadOptions { n_requests: Some(0), ..small("ycsb-a") }.generate().is_err());
        assert!(WorkloadOptions { n_keys: Some(1), ..small("ycsb-a") }.generate().is_err());
    }
}
