//! `tenure bench --resize`: halves and doubles `maxmemory` of a running server, and compares what `TENURE.MRC` had
//! said with what came.
//!
//! One connection sends the stream's requests so many at a time, and answers misses after the delay of their backend.
//! The server has a share of what all keys take; a first part of the requests fills it and lets the curve settle.
//! Then, for half and for twice the memory: the limit is what it was at first, until keys come and go as they do under
//! it; what is predicted is read, the limit set, some rounds let pass in which keys come or go, and a round counted.
//! The stream begins again where it ends. What is predicted is read many times in a round, since a reading knows of the
//! last windows alone, and real traces change; how far single readings are from their mean is told.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use redis::{Value, from_redis_value};
use serde::Serialize;
use tenure_servers::Server;

use crate::client::Connection;
use crate::client::connection::Reply;
use crate::client::load_generator::load_all_keys;
use crate::observation::Counters;
use crate::report::columns;
use crate::system::{Setup, System};
use crate::workload::keys::Tenant;
use crate::workload::{Operation, Request, Stream};

/// How often all requests are sent before anything is predicted.
const WARM_UP: usize = 4;
/// … and so many at the least. The more often a key was seen, the better it is ranked: after six rounds a stream of
/// four tenants was still getting better under half the memory, and what had been predicted was of the time before.
const WARM_UP_REQUESTS_MIN: usize = 5_000_000;
/// How often once a limit was set: what there is room for comes with its next miss, which is long in coming where a key
/// is rarely asked for. One of four tenants missed 0.084 to 0.095 of its reads where two rounds had passed, and 0.051
/// and 0.060 with ten (docs/results/curves.md).
const SETTLING: usize = 10;
/// A short stream is sent oftener: so many requests are sent at the least. Many are windows of the server's.
const SETTLING_REQUESTS_MIN: usize = 500_000;
/// How often what is predicted is read in a round.
const READINGS: usize = 16;
/// Tenants with fewer reads in the stretch are left out: chance is as large as what is asked.
const READS_ENOUGH: u64 = 1000;

/// What is to be done.
pub struct Resize<'a> {
    /// What is asked.
    pub stream: &'a Stream,
    /// The part of all keys' memory that the server has at first.
    pub share: f64,
    /// Requests that are sent at once.
    pub depth: usize,
    /// How long a miss takes, by backend, in µs.
    pub delays_us: &'a [f64],
    /// With the module.
    pub system: &'a System,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One tenant under another limit.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub tenant: String,
    /// The limit, as a multiple of the first.
    pub scale: f64,
    /// What had been predicted, the mean of the readings of a round.
    pub predicted: f64,
    /// How far single readings were from that, their standard deviation.
    pub apart: f64,
    /// What came.
    pub measured: f64,
    /// In so many reads.
    pub reads: u64,
}

impl Row {
    /// By how much the prediction was off.
    pub fn off(&self) -> f64 {
        (self.predicted - self.measured).abs()
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct ResizeReport {
    /// The workload.
    pub workload: String,
    /// The server, such as `redis-7.0.15`.
    pub server: String,
    /// The first limit, in bytes.
    pub maxmemory_bytes: u64,
    /// Each tenant at each limit.
    pub rows: Vec<Row>,
    /// Mean over rows, and the worst of them.
    pub off_mean: f64,
    /// The worst of them.
    pub off_max: f64,
    /// All threads but the main one, of a core.
    pub worker_share: f64,
}

/// The stream, played round and round.
struct Player<'a> {
    resize: &'a Resize<'a>,
    connection: Connection,
    at: usize,
    counts: Vec<(u64, u64)>,
    value: Vec<u8>,
}

impl Resize<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// When the server fails, or tells nothing of other sizes.
    pub fn run(&self) -> anyhow::Result<ResizeReport> {
        ensure!(self.stream.scans.is_empty(), "{} has scans, and --resize knows reads and writes", self.stream.name);
        self.setup.placement.pin_this_thread()?;
        let maxmemory_bytes = self.limit()?;
        let server = self.system.start(self.setup, Some(maxmemory_bytes), self.stream.keys.tenants())?;
        let connection = Connection::open(server.port())?;
        let counts = vec![(0, 0); self.stream.keys.n_tenants()];
        let mut player = Player { resize: self, connection, at: 0, counts, value: Vec::new() };
        let n = self.stream.requests.len();
        let (before, began) = (Counters::read(&server)?, Instant::now());
        // Until what comes is no first access any more, for the server and for its miniature caches.
        player.play(rounds(WARM_UP, WARM_UP_REQUESTS_MIN, n))?;
        let mut rows = Vec::new();
        for scale in [0.5, 2.0] {
            player.set_limit(maxmemory_bytes)?;
            player.play(rounds(SETTLING, SETTLING_REQUESTS_MIN, n))?;
            let limit = (scale * maxmemory_bytes as f64) as u64;
            let predicted = player.predictions(&server, limit)?;
            player.set_limit(limit)?;
            player.play(rounds(SETTLING, SETTLING_REQUESTS_MIN, n))?;
            player.counts.fill((0, 0));
            player.play(n)?;
            rows.extend(self.rows(scale, &predicted, &player.counts));
        }
        let counters = Counters::read(&server)?.since(before);
        let worker_share = (counters.cpu_s - counters.cpu_main_s) / began.elapsed().as_secs_f64();
        let off_mean = rows.iter().map(Row::off).sum::<f64>() / rows.len().max(1) as f64;
        let off_max = rows.iter().map(Row::off).fold(0.0, f64::max);
        let (workload, server) = (self.stream.name.clone(), self.setup.binary.label.clone());
        Ok(ResizeReport { workload, server, maxmemory_bytes, rows, off_mean, off_max, worker_share })
    }

    /// What the server needs when it is empty, and the share of what all keys take.
    fn limit(&self) -> anyhow::Result<u64> {
        let server = System::STOCK.start(self.setup, None, self.stream.keys.tenants())?;
        let used = || -> anyhow::Result<u64> {
            Ok(server.info("memory")?.get("used_memory").context("INFO memory has no used_memory")?.parse()?)
        };
        let empty = used()?;
        load_all_keys(&mut Connection::open(server.port())?, self.stream)?;
        Ok(empty + (self.share * (used()? - empty) as f64) as u64)
    }

    fn rows(&self, scale: f64, predicted: &BTreeMap<String, Vec<f64>>, counts: &[(u64, u64)]) -> Vec<Row> {
        let row = |(tenant, &(reads, misses)): (&Tenant, &(u64, u64))| {
            // Without names there is one tenant, the database.
            let readings = predicted.get(&tenant.name).or_else(|| predicted.values().next())?;
            let n = readings.len() as f64;
            let mean = readings.iter().sum::<f64>() / n;
            let apart = (readings.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / n).sqrt();
            let measured = misses as f64 / reads.max(1) as f64;
            Some(Row { tenant: tenant.name.clone(), scale, predicted: mean, apart, measured, reads })
        };
        let rows = self.stream.keys.tenants().iter().zip(counts).filter_map(row);
        rows.filter(|row| row.reads >= READS_ENOUGH).collect()
    }
}

impl Player<'_> {
    fn set_limit(&mut self, bytes: u64) -> anyhow::Result<()> {
        let reply = self.connection.call(&[b"CONFIG", b"SET", b"maxmemory", bytes.to_string().as_bytes()])?;
        ensure!(reply == Reply::Simple, "CONFIG SET maxmemory was answered by {reply:?}");
        Ok(())
    }

    fn play(&mut self, n: usize) -> anyhow::Result<()> {
        let requests = &self.resize.stream.requests;
        let mut left = n;
        while left > 0 {
            let end = (self.at + left.min(self.resize.depth)).min(requests.len());
            self.send(&requests[self.at..end])?;
            left -= end - self.at;
            self.at = end % requests.len();
        }
        Ok(())
    }

    /// What is predicted of a limit, by tenant, as it is read in one round.
    fn predictions(&mut self, server: &Server, limit: u64) -> anyhow::Result<BTreeMap<String, Vec<f64>>> {
        let mut readings: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for _ in 0..READINGS {
            self.play(self.resize.stream.requests.len() / READINGS)?;
            for (tenant, miss_ratio) in reading(server, limit)? {
                readings.entry(tenant).or_default().push(miss_ratio);
            }
        }
        Ok(readings)
    }

    fn send(&mut self, requests: &[Request]) -> anyhow::Result<()> {
        let keys = &self.resize.stream.keys;
        for request in requests {
            let name = keys.name(request.key);
            match request.operation {
                Operation::Delete => self.connection.queue(&[b"DEL", name]),
                Operation::Write => self.queue_set(request.key, request.value_bytes),
                Operation::Read | Operation::ReadModifyWrite => self.connection.queue(&[b"GET", name]),
                Operation::Scan => bail!("a scan in a stream without scans"),
            }
        }
        self.connection.send()?;
        let began = Instant::now();
        let mut writes: Vec<(f64, u32, u32)> = Vec::new();
        for request in requests {
            let reply = self.connection.reply()?;
            if !matches!(request.operation, Operation::Read | Operation::ReadModifyWrite) {
                continue;
            }
            let counts = &mut self.counts[keys.tenant(request.key)];
            counts.0 += 1;
            let is_miss = reply == Reply::Nil;
            counts.1 += u64::from(is_miss);
            if is_miss || request.operation == Operation::ReadModifyWrite {
                let delays = self.resize.delays_us;
                let delay_us = if is_miss { delays[keys.backend(request.key) % delays.len()] } else { 0.0 };
                writes.push((delay_us, request.key, request.value_bytes));
            }
        }
        writes.sort_by(|a, b| a.0.total_cmp(&b.0));
        for of_one_delay in writes.chunk_by(|a, b| a.0.to_bits() == b.0.to_bits()) {
            sleep(Duration::from_secs_f64(of_one_delay[0].0 / 1e6).saturating_sub(began.elapsed()));
            for &(_, key, value_bytes) in of_one_delay {
                self.queue_set(key, value_bytes);
            }
            self.connection.send()?;
            for _ in of_one_delay {
                let reply = self.connection.reply()?;
                ensure!(matches!(reply, Reply::Simple | Reply::Error(_)), "SET was answered by {reply:?}");
            }
        }
        Ok(())
    }

    fn queue_set(&mut self, key: u32, value_bytes: u32) {
        self.value.resize(value_bytes as usize, b'v');
        self.connection.queue(&[b"SET", self.resize.stream.keys.name(key), &self.value]);
    }
}

/// Requests of so many rounds of `n` each, or of more where these are fewer than `requests_min`.
fn rounds(least: usize, requests_min: usize, n: usize) -> usize {
    least.max(requests_min.div_ceil(n.max(1))) * n
}

/// What `TENURE.MRC` says of the tenants' miss ratios with a limit of about `limit` bytes.
fn reading(server: &Server, limit: u64) -> anyhow::Result<BTreeMap<String, f64>> {
    let rows: Vec<BTreeMap<String, Value>> = redis::cmd("TENURE.MRC").query(&mut server.connection()?)?;
    for row in rows {
        let bytes: u64 = from_redis_value(row.get("maxmemory_bytes").context("no maxmemory_bytes")?.clone())?;
        if bytes.abs_diff(limit) <= 8 {
            let tenants = row.get("tenants").context("no tenants")?.clone();
            let tenants: Vec<BTreeMap<String, String>> = from_redis_value(tenants)?;
            let ratio = |tenant: &BTreeMap<String, String>| {
                Some((tenant.get("name")?.clone(), tenant.get("miss_ratio")?.parse().ok()?))
            };
            return Ok(tenants.iter().filter_map(ratio).collect());
        }
    }
    bail!("TENURE.MRC tells nothing of {limit} bytes")
}

impl ResizeReport {
    /// As a table.
    pub fn table(&self) -> String {
        let head = ["tenant", "memory", "predicted", "±", "measured", "off", "reads"].map(str::to_owned).to_vec();
        let row = |row: &Row| {
            vec![
                row.tenant.clone(),
                format!("{:.0} %", 100.0 * row.scale),
                format!("{:.4}", row.predicted),
                format!("{:.4}", row.apart),
                format!("{:.4}", row.measured),
                format!("{:.4}", row.off()),
                row.reads.to_string(),
            ]
        };
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(self.rows.iter().map(row)).collect();
        let mut out = format!("{} on {}\n\n{}", self.workload, self.server, columns(&rows));
        let _ = writeln!(
            out,
            "\noff by {:.4} on average, {:.4} at the most; all but the main thread took {:.4} of a core",
            self.off_mean, self.off_max, self.worker_share
        );
        out
    }
}
