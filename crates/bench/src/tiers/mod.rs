//! The price of two tiers of memory in a real server: stock with all memory alike beside the module with a slow tier that holds most values.
//!
//! Everything fits and nothing is evicted, so with a slow tier of ordinary memory (`anon`) what is lost is Tenure's own work. Pairs as in
//! [`full_load`](crate::full_load), for each kind of accesses, share of updates and size of the fast tier; both servers have the thread cache that
//! tiers need. All keys are loaded into fast memory, which is limited after half of the warm-up; when the limit is kept the other half
//! follows, then the measurement. What a slower tier makes of it is modelled from what was counted, and named so.
//! Source: Wang's dissertation (2024) sec. 5.2, where sdTMM reaches 87 % of all-fast in the mean and 97.8 % at best.

pub mod figures;
mod report;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use tenure_servers::{Server, wait_for};

use crate::client::load_generator::Latencies;
use crate::comparison::progress_bar;
use crate::full_load::{FullLoad, Ratios, Side, Turns};
use crate::observation::Memory;
use crate::system::{Setup, System, set};
use crate::workload::tiers::{Share, TierLoad};
use crate::workload::{Stream, WorkloadOptions};

use figures::TierInfo;
pub use report::{TierReport, TierRow};

/// Lengths of values that move.
const VALUE_BYTES: std::ops::RangeInclusive<u32> = 257..=1 << 20;
/// What the server adds to a value: a header and a zero; the second where the length takes more than 16 bits.
const OVERHEAD_BYTES: [u64; 2] = [6, 10];
/// The most that `tenure.tier-fast-bytes` takes: everything is fast.
const FAST_BYTES_MAX: u64 = 1 << 50;
/// The share of the fast tier's limit above which values go down.
const LOW_MARK: f64 = 0.98;
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
    /// The slow tier, as `tenure.tier-slow` takes it.
    pub tier: &'a str,
    /// Commands that each connection sends at once.
    pub depth: usize,
    /// How many connections there are.
    pub n_connections: usize,
    /// How many pairs are run of each row.
    pub n_pairs: usize,
    /// The system with the module.
    pub system: &'a System,
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

impl TierPrice<'_> {
    /// Runs all rows. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a server fails, has no tiers or doesn't keep the limit, when a read misses, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<TierReport> {
        self.check()?;
        self.setup.placement.pin_this_thread()?;
        let n_rows = self.loads.len() * self.fast.len();
        let progress = progress_bar((2 * self.n_pairs * n_rows) as u64);
        let turns = Turns { progress: &progress, interrupted };
        let mut rows = Vec::with_capacity(n_rows);
        let mut first = None;
        for load in self.loads {
            let stream = WorkloadOptions { tier_load: *load, ..self.options.clone() }.generate()?;
            let requests = FullLoad::new(&stream, self.depth, self.n_connections)?;
            for &fast in self.fast {
                let pairs = self.pairs(&turns, load, &stream, &requests, fast)?;
                rows.push(TierRow::new(load, fast, &stream, pairs));
            }
            first.get_or_insert((stream.n_warmup, stream.n_measured()));
        }
        progress.finish_and_clear();
        let (n_warmup, n_commands) = first.context("no accesses")?;
        Ok(TierReport::new(self, n_warmup, n_commands, rows))
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.n_pairs > 0 && !self.fast.is_empty(), "0 pairs or sizes of the fast tier");
        ensure!(self.system.has_module(), "{} has no module, and so no tiers", self.system.label);
        for fast in self.fast {
            ensure!(
                fast.0 > 0.0 && fast.0 < 1.0,
                "a fast tier of {fast}: with two tiers it is above 0% and below 100%"
            );
        }
        for load in self.loads {
            let value_bytes = load.value_bytes();
            ensure!(
                VALUE_BYTES.contains(&value_bytes),
                "values of {value_bytes} bytes don't move: {} to {} do",
                VALUE_BYTES.start(),
                VALUE_BYTES.end()
            );
        }
        let ours = ["tenure.tier-slow", "tenure.tier-fast-bytes"];
        if let Some((name, _)) = self.setup.settings.iter().find(|(name, _)| ours.contains(&name.as_str())) {
            bail!("{name} is set by the workload: --tier says where, --fast how much");
        }
        Ok(())
    }

    fn pairs(
        &self,
        turns: &Turns,
        load: &TierLoad,
        stream: &Stream,
        requests: &FullLoad,
        fast: Share,
    ) -> anyhow::Result<Vec<TierPair>> {
        let row = format!("{}, updates {}", load.accesses, load.updates);
        let (all_fast, tiers) = (format!("{row}, all fast"), format!("{row}, fast tier {fast}"));
        let sides = turns.in_pairs(
            self.n_pairs,
            (&all_fast, || self.all_fast(stream, requests)),
            (&tiers, || self.tiers(stream, requests, fast)),
        )?;
        let pair = |(all_fast, (tiers, counted)): (TimedSide, (TimedSide, TierInfo))| {
            let (n_commands, value_bytes) = (stream.n_measured(), stream.keys.value_bytes(0));
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

    fn all_fast(&self, stream: &Stream, requests: &FullLoad) -> anyhow::Result<TimedSide> {
        let server = System::STOCK.start(&self.setup(), None, stream.keys.tenants())?;
        let mut connections = requests.begin(&server)?;
        requests.warm_up(&mut connections)?;
        TimedSide::measure(|latencies| requests.measure(&server, &mut connections, Some(latencies)))
    }

    fn tiers(&self, stream: &Stream, requests: &FullLoad, fast: Share) -> anyhow::Result<(TimedSide, TierInfo)> {
        let mut setup = self.setup();
        let tiers =
            [("tenure.tier-fast-bytes", FAST_BYTES_MAX.to_string()), ("tenure.tier-slow", self.tier.to_string())];
        let tiers = tiers.map(|(name, value)| (name.to_string(), value));
        setup.settings.splice(..0, tiers);
        let server = self.system.start(&setup, None, stream.keys.tenants())?;
        wait_until_ready(&server)?;
        let mut connections = requests.begin(&server)?;
        let (n_values, value_bytes) = (stream.keys.len(), stream.keys.value_bytes(0));
        // By then the server has the buffers that connections take, which are fast, and knows who is hot.
        requests.warm_up_with_pause(&mut connections, || {
            let used_bytes = Memory::read(&server)?.used_bytes;
            limit(&server, fast_limit_bytes(used_bytes, n_values, value_bytes, fast)?)
        })?;
        let before = TierInfo::read(&server)?;
        let side = TimedSide::measure(|latencies| requests.measure(&server, &mut connections, Some(latencies)))?;
        Ok((side, TierInfo::read(&server)?.since(before)))
    }
}

impl TimedSide {
    fn measure(run: impl FnOnce(&mut Latencies) -> anyhow::Result<Side>) -> anyhow::Result<TimedSide> {
        let mut latencies = Latencies::new();
        let side = run(&mut latencies)?;
        let (get_us, set_us) = (Quantiles::of(&latencies.reads_ns), Quantiles::of(&latencies.writes_ns));
        Ok(TimedSide { side, get_us, set_us })
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

/// The limit of the fast tier at which so much of the bytes of `n_values` alike is fast, beside all that can't move.
///
/// # Errors
/// Where the values take more than is used.
fn fast_limit_bytes(used_bytes: u64, n_values: usize, value_bytes: u32, fast: Share) -> anyhow::Result<u64> {
    let values_bytes = n_values as u64 * allocated_bytes(value_bytes);
    let slow_bytes = (values_bytes as f64 * (1.0 - fast.0)) as u64;
    used_bytes.checked_sub(slow_bytes).with_context(|| {
        format!(
            "{n_values} values take {values_bytes} bytes, by the allocator's classes, where only {used_bytes} are used"
        )
    })
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
        // 1000 values of 1024 bytes and 500,000 of other things.
        let limit = |fast| fast_limit_bytes(1_524_000, 1000, 1000, Share(fast)).unwrap();
        assert_eq!((limit(0.2), limit(0.5)), (500_000 + 204_800, 500_000 + 512_000));
        assert!(fast_limit_bytes(800_000, 1000, 1000, Share(0.1)).is_err());
    }
}
