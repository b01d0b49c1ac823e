//! The accesses of `tenure simulate --tiers` as requests of a server in which every key is: GETs, and SETs of the
//! same size; or those of a trace.
//!
//! Source of the accesses: Wang's dissertation (2024) sec. 5.2, see `tenure_sim::tiers::workloads`. With updates of
//! 0, 5 and 50 % those by skew are YCSB's C, B and A. A scan is here so many GETs of one key after the other. What
//! changes in mid-run does so in the middle of all requests, the warm-up counted, so the measured ones must be more
//! than that. A trace's keys come as it asks for them. Nothing is evicted, so which reads miss is known before: they
//! are sent as the SETs that would fill. Times, and times to live, are left out.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use tenure_core::random::Random;
use tenure_sim::tiers::workloads::Workload as Accesses;
use tenure_sim::trace::{Sizes, TraceOptions};

use super::keys::{Assignment, KeyTable};
use super::{Operation, Request, Size, Stream, trace};

/// Lengths of values that move, in bytes.
pub(crate) const BYTES_THAT_MOVE: RangeInclusive<u32> = 257..=1 << 20;

/// Above the 256 bytes from which on values move.
const VALUE_BYTES: u32 = 1000;
/// Of the dissertation's case of large values.
const VALUE_BYTES_LARGE: u32 = 4096;
/// Four windows of requests before the measurement, eight in it.
pub(super) const SIZE: Size = Size { n_keys: 100_000, n_warmup: 200_000, n_requests: 400_000 };

/// A part of a whole, 0 to 1; 0.05 is written 5%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok()) {
            Some(share) if (0.0..=100.0).contains(&share) => Ok(Share(share / 100.0)),
            _ => bail!("'{text}' is no share from 0% to 100%"),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 10_000.0).round() / 100.0)
    }
}

/// Which keys are asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum TierAccesses {
    /// As a workload of the simulator says.
    Made(Accesses),
    /// As a trace says, in any format that the simulator reads.
    Trace(PathBuf),
}

impl FromStr for TierAccesses {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let path = Path::new(text);
        match text.parse() {
            Ok(made) => Ok(TierAccesses::Made(made)),
            Err(_) if path.is_file() => Ok(TierAccesses::Trace(path.into())),
            Err(error) => bail!("{error}, or the path of a trace"),
        }
    }
}

impl fmt::Display for TierAccesses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TierAccesses::Made(made) => made.fmt(f),
            TierAccesses::Trace(path) => f.write_str(&trace::name_of(path)),
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct TierLoad {
    /// Which keys.
    pub accesses: TierAccesses,
    /// How many of the requests are SETs; a trace says itself.
    pub updates: Share,
    /// Size of all values, in bytes; `None`: 1000, of two-phases-4k 4096, of a trace as it says, as near as that can
    /// move.
    pub value_bytes: Option<u32>,
}

impl Default for TierLoad {
    /// YCSB B.
    fn default() -> Self {
        TierLoad { accesses: TierAccesses::Made(Accesses::Zipf(0.99)), updates: Share(0.05), value_bytes: None }
    }
}

impl TierLoad {
    /// Whether its keys come as they are asked for.
    pub fn is_trace(&self) -> bool {
        matches!(self.accesses, TierAccesses::Trace(_))
    }
}

/// `size` has the keys of each tenant, and the requests of all together.
pub(super) fn generate(accesses: Accesses, load: &TierLoad, size: Size, seed: u64) -> anyhow::Result<Stream> {
    let changes = matches!(accesses, Accesses::TwoPhases { .. } | Accesses::ChangingTenants);
    ensure!(
        !changes || size.n_warmup < size.n_requests,
        "{accesses} changes in the middle of all requests: {} of warm-up before {} measured ones hide it",
        size.n_warmup,
        size.n_requests
    );
    let is_large = accesses == Accesses::TwoPhases { large: true };
    let value_bytes = load.value_bytes.unwrap_or(if is_large { VALUE_BYTES_LARGE } else { VALUE_BYTES });
    let n_tenants = accesses.tenants();
    let mut keys = KeyTable::new(Assignment::ByTenant, 1);
    let mut random = Random::new(!seed);
    let order = shuffled(size.n_keys, &mut random);
    for tenant in 0..n_tenants {
        for number in &order {
            keys.add(format!("user{number}").as_bytes(), tenant as u16, value_bytes);
        }
    }
    let mut places = vec![0; size.n_keys];
    order.iter().zip(0..).for_each(|(&number, place)| places[number as usize] = place);
    let n_requests = size.n_warmup + size.n_requests;
    let asked = accesses.keys(size.n_keys as u64, n_requests.div_ceil(n_tenants) as u64, seed);
    let request = |(tenant, number): (u16, u64)| {
        // `unit` is above 0 and at most 1.
        let operation = if random.unit() <= load.updates.0 { Operation::Write } else { Operation::Read };
        let key = u32::from(tenant) * size.n_keys as u32 + places[number as usize];
        Request::on(operation, key, value_bytes)
    };
    let requests = asked.into_iter().take(n_requests).map(request).collect();
    let name = format!("tiers-{}", accesses.to_string().replace(':', "-"));
    Ok(Stream { name, keys, requests, scans: Vec::new(), n_warmup: size.n_warmup, pace: None })
}

/// The trace in `path`: all of it, or what is asked for. Reads of keys that aren't there by then become SETs.
pub(super) fn replay(
    path: &Path,
    load: &TierLoad,
    options: &TraceOptions,
    (n_warmup, n_requests): (Option<usize>, Option<usize>),
) -> anyhow::Result<Stream> {
    let sizes = load.value_bytes.map_or(Sizes::TraceOr(VALUE_BYTES), Sizes::Fixed);
    let options = TraceOptions { sizes, ..options.clone() };
    let keys = KeyTable::new(Assignment::ByTenant, 1);
    let mut stream = trace::read(path, &options, keys, n_warmup, n_requests).context("the trace cannot be replayed")?;
    let mut is_there = vec![false; stream.keys.len()];
    for request in &mut stream.requests {
        let is_there = &mut is_there[request.key as usize];
        if request.operation == Operation::Read && !*is_there {
            request.operation = Operation::Write;
        }
        *is_there = request.operation != Operation::Delete;
        request.value_bytes = request.value_bytes.clamp(*BYTES_THAT_MOVE.start(), *BYTES_THAT_MOVE.end());
    }
    for key in 0..stream.keys.len() as u32 {
        let value_bytes = stream.keys.value_bytes(key);
        stream.keys.set_value_bytes(key, value_bytes.clamp(*BYTES_THAT_MOVE.start(), *BYTES_THAT_MOVE.end()));
    }
    Ok(stream)
}

/// The numbers from 0 to `n` in an order in which keys are loaded: what is hot must be neither the oldest nor side by
/// side in memory.
fn shuffled(n: usize, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    for last in (1..n).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(accesses: &str, updates: f64, size: Size) -> anyhow::Result<Stream> {
        let load = TierLoad { updates: Share(updates), ..TierLoad::default() };
        generate(accesses.parse().unwrap(), &load, size, 1)
    }

    const SMALL: Size = Size { n_keys: 1000, n_warmup: 4001, n_requests: 6000 };

    #[test]
    fn shares_are_read_and_bad_ones_refused() {
        for (text, share) in [("0%", 0.0), ("5%", 0.05), ("12.5%", 0.125), ("100%", 1.0)] {
            let read: Share = text.parse().unwrap();
            assert_eq!((read, read.to_string()), (Share(share), text.to_string()));
        }
        for text in ["101%", "-1%", "0.5", "nan%", ""] {
            assert!(text.parse::<Share>().unwrap_err().to_string().contains("0% to 100%"), "{text}");
        }
    }

    #[test]
    fn updates_are_a_share_of_the_requests_for_the_same_keys() {
        let keys = |stream: &Stream| stream.requests.iter().map(|request| request.key).collect::<Vec<_>>();
        let all: Vec<Stream> = [0.0, 0.05, 1.0].map(|updates| stream("zipf:0.99", updates, SMALL).unwrap()).into();
        for (stream, expected) in all.iter().zip([0..=0, 400..=600, 10_001..=10_001]) {
            let n = stream.requests.iter().filter(|request| request.operation == Operation::Write).count();
            assert!(expected.contains(&n), "{n}");
            assert_eq!(keys(stream), keys(&all[0]));
            assert!(stream.requests.iter().all(|request| request.value_bytes == 1000));
        }
    }

    #[test]
    fn tenants_have_keys_of_their_own() {
        let stream = stream("four-tenants", 0.5, SMALL).unwrap();
        assert_eq!((stream.keys.len(), stream.keys.n_tenants(), stream.requests.len()), (4000, 4, 10_001));
        let turns = stream.requests.iter().take(8).map(|request| stream.keys.tenant(request.key));
        assert_eq!(turns.collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
        let mut names: Vec<&[u8]> = (2000..3000).map(|key| stream.keys.name(key)).collect();
        assert!(!names.is_sorted() && names.iter().all(|name| name.starts_with(b"t02:user")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1000, "each key once");
    }

    #[test]
    fn a_change_must_be_measured() {
        let size = Size { n_warmup: 6000, ..SMALL };
        assert!(stream("two-phases", 0.0, size).unwrap_err().to_string().contains("6000 measured"));
        assert!(stream("zipf:0.8", 0.0, size).is_ok());
        let large = stream("two-phases-4k", 0.0, SMALL).unwrap();
        assert_eq!(large.keys.value_bytes(7), 4096);
        let half = &large.requests[5001..];
        let n = half.iter().filter(|request| large.keys.bare_name(request.key) == b"user999").count();
        assert!(n > 200, "the last key is hot from then on, {n}");
    }

    #[test]
    fn accesses_are_named_or_a_trace() {
        let trace = tempfile::Builder::new().prefix("small").suffix(".csv.gz").tempfile().unwrap();
        let read: TierAccesses = trace.path().to_str().unwrap().parse().unwrap();
        assert!(read == TierAccesses::Trace(trace.path().into()) && read.to_string().starts_with("small"), "{read}");
        assert_eq!("zipf:0.5".parse::<TierAccesses>().unwrap(), TierAccesses::Made(Accesses::Zipf(0.5)));
        let error = "/none.csv".parse::<TierAccesses>().unwrap_err().to_string();
        assert!(error.contains("zipf:SKEW") && error.ends_with("or the path of a trace"), "{error}");
    }

    /// What isn't there is stored by whoever asks, also after a DEL; lengths are those nearest that move.
    #[test]
    fn a_trace_fills_what_it_misses() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows =
            "time_s,key,op,size,tenant\n,a,get,10,\n,a,get,500,\n,b,set,2000000,\n,a,del,,\n,a,get,,\n,b,get,600,\n";
        std::fs::write(file.path(), rows).unwrap();
        let replayed = |load: &TierLoad| {
            let sizes = (Some(2), None);
            let stream = replay(file.path(), load, &TraceOptions::default(), sizes).unwrap();
            assert_eq!((stream.n_warmup, stream.keys.len()), (2, 2));
            stream.requests.iter().map(|r| (r.operation, r.key, r.value_bytes)).collect::<Vec<_>>()
        };
        use Operation::{Delete, Read, Write};
        let expected =
            [(Write, 0, 257), (Read, 0, 500), (Write, 1, 1 << 20), (Delete, 0, 1000), (Write, 0, 1000), (Read, 1, 600)];
        assert_eq!(replayed(&TierLoad::default()), expected);
        let fixed = replayed(&TierLoad { value_bytes: Some(700), ..TierLoad::default() });
        assert!(fixed.iter().all(|(_, _, bytes)| *bytes == 700), "{fixed:?}");
    }
}
