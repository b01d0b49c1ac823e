//! Full load from one thread: a batch to each of many connections, then all their replies.
//!
//! Every connection always has a batch outstanding, so the server sees as many clients at once as there are
//! connections. The commands are encoded before the clock starts; what remains per batch is one write and as few
//! reads as it takes, which one core can do for about two million pipelined commands a second.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use hdrhistogram::Histogram;

use super::connection::{Connection, Reply, write_command};
use crate::statistics::latency_histogram;
use crate::workload::{Operation, Request, Stream};

/// The commands of a stretch of a stream, encoded, in batches.
#[derive(Debug)]
pub struct Batches {
    bytes: Vec<u8>,
    batches: Vec<Batch>,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    /// Where it ends in `bytes`.
    end: usize,
    n_reads: usize,
    n_writes: usize,
    n_deletes: usize,
}

/// What writes make of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// A string, by SET.
    String,
    /// A hash of one field, by HSET.
    Hash,
}

impl Batches {
    /// Encodes `requests` (reads, writes and deletes of one key) in batches of `depth` commands.
    ///
    /// # Panics
    /// Where `depth` is 0.
    pub fn encode(stream: &Stream, requests: &[Request], depth: usize, written: Written) -> Batches {
        let (mut bytes, mut batches) = (Vec::new(), Vec::new());
        let value_bytes_max = requests.iter().map(|request| request.value_bytes).max().unwrap_or(0);
        let value = vec![b'v'; value_bytes_max as usize];
        for batch in requests.chunks(depth) {
            for request in batch {
                let name = stream.keys.name(request.key);
                match request.operation {
                    Operation::Write => {
                        let value = &value[..request.value_bytes as usize];
                        match written {
                            Written::String => write_command(&mut bytes, &[b"SET", name, value]),
                            Written::Hash => write_command(&mut bytes, &[b"HSET", name, b"field", value]),
                        }
                    }
                    Operation::Delete => write_command(&mut bytes, &[b"DEL", name]),
                    _ => write_command(&mut bytes, &[b"GET", name]),
                }
            }
            let n_of = |operation| batch.iter().filter(|request| request.operation == operation).count();
            let (n_writes, n_deletes) = (n_of(Operation::Write), n_of(Operation::Delete));
            let n_reads = batch.len() - n_writes - n_deletes;
            batches.push(Batch { end: bytes.len(), n_reads, n_writes, n_deletes });
        }
        Batches { bytes, batches }
    }

    fn bytes(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.batches[index - 1].end };
        &self.bytes[start..self.batches[index].end]
    }
}

/// How long commands took under the load, from when their batch was sent until its last reply was read, in ns: with
/// the wait for the commands of all other connections, which are sent first.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Of GETs.
    pub reads_ns: Histogram<u64>,
    /// Of SETs.
    pub writes_ns: Histogram<u64>,
}

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        Latencies { reads_ns: latency_histogram(), writes_ns: latency_histogram() }
    }

    fn record(&mut self, batch: Batch, latency: Duration) {
        let latency_ns = latency.as_nanos() as u64;
        self.reads_ns.saturating_record_n(latency_ns, batch.n_reads as u64);
        self.writes_ns.saturating_record_n(latency_ns, batch.n_writes as u64);
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies::new()
    }
}

/// What a load came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Commands that were answered.
    pub n_commands: u64,
    /// Reads that missed.
    pub n_misses: u64,
    /// From the first write to the last reply.
    pub elapsed: Duration,
}

/// Sends all `batches` over `connections`, each of which has one outstanding at any time. Notes how long each took
/// where `latencies` are asked for: two looks at the clock per batch.
///
/// # Errors
/// When the server fails or refuses a command.
pub fn drive(
    connections: &mut [Connection],
    batches: &Batches,
    mut latencies: Option<&mut Latencies>,
) -> anyhow::Result<Load> {
    ensure!(!connections.is_empty(), "no connections to drive");
    let start = Instant::now();
    let mut load = Load::default();
    let mut sent = vec![start; connections.len()];
    for first in (0..batches.batches.len()).step_by(connections.len()) {
        let n = connections.len().min(batches.batches.len() - first);
        for (i, connection) in connections[..n].iter_mut().enumerate() {
            if latencies.is_some() {
                sent[i] = Instant::now();
            }
            connection.send_encoded(batches.bytes(first + i))?;
        }
        for (i, connection) in connections[..n].iter_mut().enumerate() {
            let batch = batches.batches[first + i];
            read_replies(connection, batch.n_reads + batch.n_writes + batch.n_deletes, &mut load)?;
            if let Some(latencies) = &mut latencies {
                latencies.record(batch, sent[i].elapsed());
            }
        }
    }
    load.elapsed = start.elapsed();
    Ok(load)
}

fn read_replies(connection: &mut Connection, n_commands: usize, load: &mut Load) -> anyhow::Result<()> {
    load.n_commands += n_commands as u64;
    for _ in 0..n_commands {
        match connection.reply()? {
            Reply::Bulk(_) | Reply::Simple | Reply::Integer(_) => {}
            Reply::Nil => load.n_misses += 1,
            other => bail!("the server answered {other:?}"),
        }
    }
    Ok(())
}

/// Writes each key of `stream` once, at the size it has last.
///
/// # Errors
/// When the server fails or refuses a write.
pub fn load_all_keys(connection: &mut Connection, stream: &Stream) -> anyhow::Result<()> {
    /// Enough to hide the round trip, little enough for both socket buffers with values of a few KB.
    const DEPTH: usize = 64;
    /// More bytes than this are sent at once only for a single key.
    const BYTES_AT_ONCE: usize = 64 * 1024;
    let all: Vec<u32> = (0..stream.keys.len() as u32).collect();
    let (mut value, mut n_queued, mut bytes_queued) = (Vec::new(), 0, 0);
    for (i, &key) in all.iter().enumerate() {
        value.resize(stream.keys.value_bytes(key) as usize, b'v');
        connection.queue(&[b"SET", stream.keys.name(key), &value]);
        n_queued += 1;
        bytes_queued += value.len();
        if n_queued == DEPTH || bytes_queued >= BYTES_AT_ONCE || i + 1 == all.len() {
            connection.send()?;
            for _ in 0..n_queued {
                let reply = connection.reply()?;
                ensure!(reply == Reply::Simple, "SET was answered by {reply:?}");
            }
            (n_queued, bytes_queued) = (0, 0);
        }
    }
    Ok(())
}

/// What each key takes in the server, in bytes: name, value and overhead, as `MEMORY USAGE` says, in the order of keys.
///
/// # Errors
/// When the server fails, or a key is not there.
pub fn key_sizes(connection: &mut Connection, stream: &Stream) -> anyhow::Result<Vec<u32>> {
    const DEPTH: usize = 256;
    let all: Vec<u32> = (0..stream.keys.len() as u32).collect();
    let mut sizes = Vec::with_capacity(all.len());
    for batch in all.chunks(DEPTH) {
        for &key in batch {
            connection.queue(&[b"MEMORY", b"USAGE", stream.keys.name(key)]);
        }
        connection.send()?;
        for _ in batch {
            match connection.reply()? {
                Reply::Integer(bytes) => sizes.push(bytes.clamp(1, i64::from(u32::MAX)) as u32),
                other => bail!("MEMORY USAGE was answered by {other:?}"),
            }
        }
    }
    Ok(sizes)
}
