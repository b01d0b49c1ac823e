//! Replays a trace in any format that the simulator reads.
//!
//! Reads become cache-aside reads, writes SETs, deletes DELs. A value has the size that the trace gives (the whole of
//! it: the server adds the key and its own overhead), cut at 64 MiB. Times are ignored: a request is sent when a
//! connection is free.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, ensure};
use tenure_core::access::Op;
use tenure_sim::trace::{TraceOptions, TraceReader};

use super::keys::KeyTable;
use super::{Operation, Request, Stream};

/// No value is larger.
const VALUE_BYTES_MAX: u32 = 1 << 26;

/// The part of a trace that warms up where nobody says how much.
const WARMUP_SHARE: f64 = 0.3;

/// The trace's file name up to its first dot; `trace` for standard input.
pub(super) fn name_of(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.trim_start_matches(['.', '-']).split('.').next().unwrap_or_default();
    if name.is_empty() { "trace".to_string() } else { name.to_string() }
}

/// Reads the first `n_warmup` + `n_requests` requests, or the whole trace.
pub(super) fn read(
    path: &Path,
    options: &TraceOptions,
    mut keys: KeyTable,
    n_warmup: Option<usize>,
    n_requests: Option<usize>,
) -> anyhow::Result<Stream> {
    let n_max = n_requests.map_or(usize::MAX, |n| n.saturating_add(n_warmup.unwrap_or(0)));
    let mut reader = TraceReader::open(path, options.clone())?;
    let (mut requests, mut numbers) = (Vec::new(), HashMap::<Vec<u8>, u32>::new());
    while requests.len() < n_max {
        let Some(row) = reader.next_request() else { break };
        let row = row?;
        let value_bytes = row.access.size_bytes.min(VALUE_BYTES_MAX);
        let key = match numbers.get(row.key) {
            Some(&key) => key,
            None => {
                let key = keys.add(row.key, row.access.tenant.0, value_bytes);
                numbers.insert(row.key.to_vec(), key);
                key
            }
        };
        let operation = match row.access.op {
            Op::Read => Operation::Read,
            Op::Write => Operation::Write,
            Op::Delete => Operation::Delete,
        };
        if operation != Operation::Delete {
            keys.set_value_bytes(key, value_bytes);
        }
        requests.push(Request::on(operation, key, value_bytes));
    }
    let n_warmup = n_warmup.unwrap_or((requests.len() as f64 * WARMUP_SHARE) as usize);
    ensure!(n_warmup < requests.len(), "it has {} requests, and {n_warmup} of them are to warm up", requests.len());
    let name = name_of(path);
    u32::try_from(requests.len()).context("it has more than 4 billion requests: say how many with --requests")?;
    Ok(Stream { name, keys, requests, scans: Vec::new(), n_warmup, pace: None })
}

#[cfg(test)]
mod tests {
    use super::super::keys::Assignment;
    use super::*;

    fn read_text(text: &str, n_warmup: Option<usize>, n_requests: Option<usize>) -> anyhow::Result<Stream> {
        let file = tempfile::Builder::new().prefix("small").suffix(".csv.txt").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let options = TraceOptions::default();
        read(file.path(), &options, KeyTable::new(Assignment::ByTenant, 1), n_warmup, n_requests)
    }

    const TRACE: &str =
        "time_s,key,op,size,tenant\n0,a,get,10,x\n1,b,set,20,y\n2,a,set,11,x\n3,a,del,1,x\n4,b,get,20,y\n";

    #[test]
    fn rows_become_requests() {
        let stream = read_text(TRACE, Some(1), None).unwrap();
        let got: Vec<_> = stream.requests.iter().map(|r| (r.operation, r.key, r.value_bytes)).collect();
        let expected = [
            (Operation::Read, 0, 10),
            (Operation::Write, 1, 20),
            (Operation::Write, 0, 11),
            (Operation::Delete, 0, 1),
            (Operation::Read, 1, 20),
        ];
        assert_eq!(got, expected);
        assert_eq!((stream.keys.name(0), stream.keys.name(1)), (&b"t00:a"[..], &b"t01:b"[..]));
        assert_eq!(stream.keys.value_bytes(0), 11, "the last size that was stored");
        assert!(stream.name.starts_with("small"));
    }

    #[test]
    fn a_trace_is_cut_or_refused_by_its_length() {
        assert_eq!(read_text(TRACE, Some(1), Some(2)).unwrap().requests.len(), 3);
        assert_eq!(read_text(TRACE, None, None).unwrap().n_warmup, 1);
        let error = read_text(TRACE, Some(5), None).unwrap_err().to_string();
        assert!(error.contains("5 requests"), "{error}");
        assert!(
            format!("{:#}", read_text("time_s,key,op,size,tenant\n0,a,get,-1,x\n", None, None).unwrap_err())
                .contains(":2:")
        );
    }
}
