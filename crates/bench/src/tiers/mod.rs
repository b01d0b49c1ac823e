//! The price of two tiers of memory in a real server: stock with all memory alike beside the module with a slow tier
//! that holds most values.
//!
//! Everything fits and nothing is evicted, so with a slow tier of ordinary memory (`anon`) what is lost is Tenure's
//! own work. Pairs as in [`full_load`](crate::full_load), for each kind of accesses, share of updates, size of the
//! fast tier and system (`placing`); both servers have the thread cache that tiers need. All keys are loaded into
//! fast memory, which is limited after half of the warm-up; when the limit is kept the other half follows, then the
//! measurement. Where all is to be slow nothing is ever fast. A trace brings its keys itself; what takes memory
//! beside its values by the end, all of which stays fast, is told by a server that replays it once before. What a
//! slower tier makes of it is modelled from what was counted, and named so. Source: Wang's dissertation (2024) sec.
//! 5.2, where sdTMM reaches 87 % of all-fast in the mean and 97.8 % at best.

pub mod figures;
mod placing;
mod report;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use tenure_servers::{Server, wait_for};

use crate::client::Connection;
use crate::client::load_generator::Latencies;
use crate::comparison::progress_bar;
use crate::full_load::{FullLoad, Ratios, Side, Turns};
use crate::observation::Memory;
use crate::system::{Setup, System, set};
use crate::workload::tiers::{BYTES_THAT_MOVE, Share, TierLoad};
use crate::workload::{Operation, Stream, WorkloadOptions};

use figures::TierInfo;
pub use placing::Placing;
pub use report::{TierReport, TierRow};

/// What the server adds to a value: a header and a zero; the second where the length takes more than 16 bits.
const OVERHEAD_BYTES: [u64; 2] = [6, 10];
/// The most that `tenure.tier-fast-bytes` takes: everything is fast.
const FAST_BYTES_MAX: u64 = 1 << 50;
/// The least that it takes: what is new finds no room, and is slow from the start.
const FAST_BYTES_MIN: u64 = 1;
/// The share of the fast tier's limit above which values go down, and that to which they do.
const LOW_MARK: f64 = 0.98;
const HIGH_MARK: f64 = 0.95;
const READY_DEADLINE: Duration = Duration::from_secs(10);
/// For millions of moves.
const LIMIT_DEADLINE: Duration = Duration::from_secs(180);

/// What is to be measured, and how often.
pub struct TierPrice<'a> {
    /// Sizes, seed and kind of values; the accesses and updates in it are replaced by the following.
    pub options: &'a WorkloadOptions,
    /// One after the other, each with every share of updates.
    pub loads: &'a [TierLoad],
    /// How much of the values' bytes may be fast.
    pub fast: &'a [Share],
    /// What places values, each with every size of the fast tier.
    pub systems: &'a [Placing],
    /// The slow tier, as `tenure.tier-slow` takes it.
    pub tier: &'a str,
    /// Commands that each connection sends at once.
    pub depth: usize,
    /// How many connections there are.
    pub n_connections: usize,
    /// How many pairs are run of each row.
    pub n_pairs: usize,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One server under the load, with its latencies.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TimedSide {
    /// Throughput and core time.
    #[serde(flatten)]
    pub side: Side,
    /// Latencies of GETs.
    pub get_us: Option<Quantiles>,
    /// Latencies of SETs.
    pub set_us: Option<Quantiles>,
    /// Reads that missed: of a trace, those that came before the SET that fills, on another connection.
    pub n_misses: u64,
}

/// Latencies under full load, in µs; see [`Latencies`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Quantiles {
    fn of(latencies_ns: &Histogram<u64>) -> Option<Quantiles> {
        let at = |quantile| latencies_ns.value_at_quantile(quantile) as f64 / 1000.0;
        (!latencies_ns.is_empty()).then(|| Quantiles { p50: at(0.5), p99: at(0.99) })
    }
}

/// Two servers on the same load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TierPair {
    /// Stock, all memory alike.
    pub all_fast: TimedSide,
    /// With two tiers.
    pub tiers: TimedSide,
    /// With two tiers over all fast.
    #[serde(flatten)]
    pub ratios: Ratios,
    /// Modelled: throughput over all fast with the dissertation's slow tier.
    pub throughput_ratio_modelled: f64,
    /// What was counted in the measured part, and bytes at its end.
    pub counted: TierInfo,
    /// `counted.fast_hits` of all hits.
    pub fast_hit_ratio: Option<f64>,
    /// Share of the measured time that the main thread spent on placement.
    pub moving_share: f64,
}

/// One kind of accesses, ready to be sent.
struct Prepared<'a> {
    load: &'a TierLoad,
    stream: &'a Stream,
    requests: FullLoad<'a>,
}

impl Prepared<'_> {
    /// Connects to a server, with all keys there or, before a trace, none.
    fn begin(&self, server: &Server) -> anyhow::Result<Vec<Connection>> {
        if self.load.is_trace() { self.requests.begin_empty(server) } else { self.requests.begin(server) }
    }

    /// What the values take when all is there, by the allocator's classes; of a trace, at its end.
    fn values_bytes(&self) -> u64 {
        let all = 0..self.stream.keys.len() as u32;
        match self.load.is_trace() {
            true => stored_bytes(self.stream),
            false => all.map(|key| allocated_bytes(self.stream.keys.value_bytes(key))).sum(),
        }
    }
}

impl TierPrice<'_> {
    /// Runs all rows. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails, has no tiers or doesn't keep the limit, when a read misses, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<TierReport> {
        self.check()?;
        self.setup.placement.pin_this_thread()?;
        let (kinds, n_traces) = (self.kinds(), self.loads.iter().filter(|load| load.is_trace()).count());
        let n_placing = self.systems.iter().filter(|system| system.has_tiers()).count();
        let n_servers = 2 * self.n_pairs * self.loads.len() * kinds.len() + n_traces * n_placing;
        let progress = progress_bar(n_servers as u64);
        let turns = Turns { progress: &progress, interrupted };
        let mut rows = Vec::with_capacity(self.loads.len() * kinds.len());
        for load in self.loads {
            let stream = &self.stream(load)?;
            let requests = FullLoad::new(stream, self.depth, self.n_connections)?;
            let prepared = Prepared { load, stream, requests };
            let fixed_bytes = self.fixed_bytes(&turns, &prepared)?;
            for &(system, fast) in &kinds {
                let fixed_bytes = fixed_bytes.iter().find(|(of, _)| *of == system).map(|&(_, bytes)| bytes);
                let pairs = self.pairs(&turns, &prepared, (system, fast), fixed_bytes)?;
                rows.push(TierRow::new(load, system, fast, stream, pairs));
            }
        }
        progress.finish_and_clear();
        Ok(TierReport::new(self, rows))
    }

    /// Each size with every system that has two tiers; what is slow throughout once.
    fn kinds(&self) -> Vec<(Placing, Share)> {
        let (tiered, all_slow): (Vec<Placing>, Vec<Placing>) =
            self.systems.iter().copied().partition(Placing::has_tiers);
        let tiered = self.fast.iter().flat_map(|&fast| tiered.iter().map(move |&system| (system, fast)));
        tiered.chain(all_slow.into_iter().map(|system| (system, Share(0.0)))).collect()
    }

    fn stream(&self, load: &TierLoad) -> anyhow::Result<Stream> {
        WorkloadOptions { tier_load: load.clone(), ..self.options.clone() }.generate()
    }

    fn check(&self) -> anyhow::Result<()> {
        let n = [self.n_pairs, self.fast.len(), self.systems.len(), self.loads.len()];
        ensure!(n.iter().all(|&n| n > 0), "0 pairs, sizes of the fast tier, systems or kinds of accesses");
        for fast in self.fast {
            ensure!(
                fast.0 > 0.0 && fast.0 < 1.0,
                "a fast tier of {fast}: with two tiers it is above 0% and below 100%"
            );
        }
        for value_bytes in self.loads.iter().filter_map(|load| load.value_bytes) {
            ensure!(
                BYTES_THAT_MOVE.contains(&value_bytes),
                "values of {value_bytes} bytes don't move: {} to {} do",
                BYTES_THAT_MOVE.start(),
                BYTES_THAT_MOVE.end()
            );
        }
        let ours = [
            ("tenure.tier-slow", "--tier says where"),
            ("tenure.tier-fast-bytes", "--fast says how much"),
            ("tenure.tier-rule", "--systems says by which rule"),
        ];
        for (name, _) in &self.setup.settings {
            if let Some((_, how)) = ours.iter().find(|(ours, _)| ours == name) {
                bail!("{name} is set by the workload: {how}");
            }
        }
        // What can't be made is told before the first row has run, not after the others have.
        self.loads.iter().try_for_each(|load| self.stream(load).map(drop))
    }

    fn pairs(
        &self,
        turns: &Turns,
        prepared: &Prepared,
        (system, fast): (Placing, Share),
        fixed_bytes: Option<u64>,
    ) -> anyhow::Result<Vec<TierPair>> {
        let Prepared { load, stream, .. } = prepared;
        let row = if load.is_trace() {
            load.accesses.to_string()
        } else {
            format!("{}, updates {}", load.accesses, load.updates)
        };
        let (all_fast, tiers) = (format!("{row}, all fast"), format!("{row}, {system}, fast tier {fast}"));
        let sides = turns.in_pairs(
            self.n_pairs,
            (&all_fast, |_| self.all_fast(prepared)),
            (&tiers, |_| self.tiers(prepared, (system, fast), fixed_bytes)),
        )?;
        let pair = |(all_fast, (tiers, counted)): (TimedSide, (TimedSide, TierInfo))| {
            let (n_commands, value_bytes) = (stream.n_measured(), read_bytes_mean(stream));
            TierPair {
                ratios: Ratios::of(&all_fast.side, &tiers.side),
                throughput_ratio_modelled: counted.modelled_ratio(&all_fast.side, &tiers.side, n_commands, value_bytes),
                fast_hit_ratio: counted.fast_hit_ratio(),
                moving_share: counted.moving_share(&tiers.side, n_commands),
                all_fast,
                tiers,
                counted,
            }
        };
        Ok(sides.into_iter().map(pair).collect())
    }

    /// What both servers are started with.
    fn setup(&self) -> Setup {
        let mut setup = self.setup.clone();
        setup.environment.extend(tenure_servers::environment_for_tiers());
        setup
    }

    fn all_fast(&self, prepared: &Prepared) -> anyhow::Result<TimedSide> {
        let Prepared { stream, requests, .. } = prepared;
        let server = System::STOCK.start(&self.setup(), None, stream.keys.tenants())?;
        let mut connections = prepared.begin(&server)?;
        requests.warm_up(&mut connections)?;
        TimedSide::measure(prepared, &server, &mut connections)
    }

    /// A server with two tiers, of which the fast one has room for all, or for nothing where all is to be slow.
    fn start(&self, system: Placing, stream: &Stream) -> anyhow::Result<Server> {
        let mut setup = self.setup();
        let fast_bytes = if system.has_tiers() { FAST_BYTES_MAX } else { FAST_BYTES_MIN };
        let tiers = [("tenure.tier-fast-bytes", fast_bytes.to_string()), ("tenure.tier-slow", self.tier.to_string())];
        let placing = system.settings().into_iter().map(|(name, value)| (name, value.to_string()));
        let ours = tiers.into_iter().chain(placing).map(|(name, value)| (name.to_string(), value));
        setup.settings.splice(..0, ours);
        let server = System::TENURE.start(&setup, None, stream.keys.tenants())?;
        wait_until_ready(&server)?;
        Ok(server)
    }

    fn tiers(
        &self,
        prepared: &Prepared,
        (system, fast): (Placing, Share),
        fixed_bytes: Option<u64>,
    ) -> anyhow::Result<(TimedSide, TierInfo)> {
        let server = self.start(system, prepared.stream)?;
        let mut connections = prepared.begin(&server)?;
        // By then the server has the buffers that connections take, which are fast, and knows who is hot.
        prepared.requests.warm_up_with_pause(&mut connections, || {
            if !system.has_tiers() {
                return Ok(());
            }
            let values_bytes = prepared.values_bytes();
            let fixed_bytes = match fixed_bytes {
                Some(bytes) => bytes,
                None => beside_values(Memory::read(&server)?.used_bytes, values_bytes)?,
            };
            limit(&server, fast_limit_bytes(fixed_bytes, values_bytes, fast))
        })?;
        let before = TierInfo::read(&server)?;
        let side = TimedSide::measure(prepared, &server, &mut connections)?;
        Ok((side, TierInfo::read(&server)?.since(before)))
    }

    /// Of a trace, what a server of each system takes beside values once all of it was replayed, in bytes.
    fn fixed_bytes(&self, turns: &Turns, prepared: &Prepared) -> anyhow::Result<Vec<(Placing, u64)>> {
        let Prepared { load, stream, requests } = prepared;
        if !load.is_trace() {
            return Ok(Vec::new());
        }
        let of = |&system: &Placing| {
            let bytes = turns.take(format!("{}, {system}, what is no value", load.accesses), || {
                let server = self.start(system, stream)?;
                let mut connections = prepared.begin(&server)?;
                requests.warm_up(&mut connections)?;
                requests.measure_with_misses(&server, &mut connections, None)?;
                beside_values(Memory::read(&server)?.used_bytes, prepared.values_bytes())
            })?;
            Ok((system, bytes))
        };
        self.systems.iter().filter(|system| system.has_tiers()).map(of).collect()
    }
}

impl TimedSide {
    fn measure(prepared: &Prepared, server: &Server, connections: &mut [Connection]) -> anyhow::Result<TimedSide> {
        let (mut latencies, requests) = (Latencies::new(), &prepared.requests);
        let (side, n_misses) = if prepared.load.is_trace() {
            requests.measure_with_misses(server, connections, Some(&mut latencies))?
        } else {
            (requests.measure(server, connections, Some(&mut latencies))?, 0)
        };
        let (get_us, set_us) = (Quantiles::of(&latencies.reads_ns), Quantiles::of(&latencies.writes_ns));
        Ok(TimedSide { side, get_us, set_us, n_misses })
    }
}

fn wait_until_ready(server: &Server) -> anyhow::Result<()> {
    let mut standing = String::new();
    let is_ready = || {
        standing = server.info("tenure").ok().and_then(|mut info| info.remove("tenure_tiers")).unwrap_or_default();
        standing == "ready"
    };
    wait_for(READY_DEADLINE, "two tiers", is_ready).with_context(|| format!("no tiers: {standing}"))
}

/// Limits the fast tier and waits until what doesn't fit has gone down.
fn limit(server: &Server, bytes: u64) -> anyhow::Result<()> {
    set(server, "tenure.tier-fast-bytes", &bytes.to_string())?;
    let mut last = TierInfo::default();
    let is_kept = || {
        last = TierInfo::read(server).unwrap_or_default();
        last.fast_limit_bytes == bytes && (last.fast_bytes as f64) < LOW_MARK * bytes as f64
    };
    wait_for(LIMIT_DEADLINE, "the fast tier to keep its limit", is_kept).with_context(|| {
        format!(
            "{} of {bytes} bytes are fast, {} values slow: is there room for more?",
            last.fast_bytes, last.slow_values
        )
    })
}

/// The limit of the fast tier at which so much of the values' bytes is fast, beside all that can't move. A part of
/// the limit is kept free; what of it is for `fixed_bytes` is added, so that of the values' share the same is free as
/// in the simulator, which has nothing else.
fn fast_limit_bytes(fixed_bytes: u64, values_bytes: u64, fast: Share) -> u64 {
    let used = (LOW_MARK + HIGH_MARK) / 2.0;
    (fixed_bytes as f64 / used + values_bytes as f64 * fast.0) as u64
}

/// What of the used bytes is no value.
///
/// # Errors
/// Where the values take more than is used.
fn beside_values(used_bytes: u64, values_bytes: u64) -> anyhow::Result<u64> {
    used_bytes.checked_sub(values_bytes).with_context(|| {
        format!("the values take {values_bytes} bytes, by the allocator's classes, where only {used_bytes} are used")
    })
}

/// What the values take that a stream has stored by its end, by the allocator's classes.
fn stored_bytes(stream: &Stream) -> u64 {
    let mut bytes = vec![0; stream.keys.len()];
    for request in &stream.requests {
        match request.operation {
            Operation::Write => bytes[request.key as usize] = allocated_bytes(request.value_bytes),
            Operation::Delete => bytes[request.key as usize] = 0,
            _ => {}
        }
    }
    bytes.iter().sum()
}

/// Mean length of the values that the measured part reads, in bytes.
fn read_bytes_mean(stream: &Stream) -> u32 {
    let measured = stream.requests[stream.n_warmup..].iter();
    let reads = measured.filter(|request| request.operation == Operation::Read);
    let (n, bytes) = reads.fold((0, 0), |(n, bytes), request| (n + 1, bytes + u64::from(request.value_bytes)));
    (bytes / n.max(1)) as u32
}

/// Bytes that jemalloc takes for a value of this length: its classes, four to a doubling.
fn allocated_bytes(value_bytes: u32) -> u64 {
    let wanted = u64::from(value_bytes) + OVERHEAD_BYTES[usize::from(value_bytes >= 1 << 16)];
    wanted.next_multiple_of((wanted.next_power_of_two() / 8).max(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// jemalloc's classes: … 320, 384 …, 896, 1024, 1280 …, 4096, 5120 …, 65,536, 80 KiB.
    #[test]
    fn values_take_their_class() {
        for (length, bytes) in [(257, 320), (314, 320), (315, 384), (1000, 1024), (1018, 1024), (1019, 1280)] {
            assert_eq!(allocated_bytes(length), bytes, "{length}");
        }
        assert_eq!([4096, 65_530, 65_531].map(allocated_bytes), [5120, 65_536, 81_920]);
    }

    #[test]
    fn the_limit_leaves_the_share_and_all_that_is_no_value() {
        // 1000 values of 1024 bytes and 482,500 of other things, for which 17,500 are kept free in the mean.
        let fixed_bytes = beside_values(1_506_500, 1_024_000).unwrap();
        let limit = |fast| fast_limit_bytes(fixed_bytes, 1_024_000, Share(fast));
        assert_eq!((limit(0.2), limit(0.5)), (500_000 + 204_800, 500_000 + 512_000));
        assert!(beside_values(800_000, 1_024_000).is_err());
    }

    /// What was stored last counts, as long as it is there.
    #[test]
    fn what_a_trace_stores_is_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rows = "time_s,key,op,size,tenant\n,a,get,1000,\n,b,set,300,\n,a,get,3000,\n,b,del,,\n,c,get,1000,\n\
                    ,c,get,1000,\n";
        std::fs::write(file.path(), rows).unwrap();
        let mut options = WorkloadOptions { n_warmup: Some(2), ..WorkloadOptions::new("tiers".parse().unwrap(), 1) };
        options.tier_load.accesses = file.path().to_str().unwrap().parse().unwrap();
        let stream = options.generate().unwrap();
        // `a` and `c`, of 1000 bytes each; what is read of `a` was longer for who wrote the trace.
        assert_eq!((stored_bytes(&stream), read_bytes_mean(&stream)), (2048, 2000));
        let stored = Stream { requests: stream.requests[..3].to_vec(), ..stream };
        assert_eq!(stored_bytes(&stored), 1024 + 320);
    }
}
