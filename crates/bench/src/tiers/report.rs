//! What two tiers cost, as a table, as JSON and as plots.

use serde::Serialize;
use tenure_core::units::format_bytes;
use tenure_plots::{BarChart, BarSeries};

use super::{Placing, Quantiles, TierPair, TierPrice, TimedSide, read_bytes_mean};
use crate::full_load::{RatioSpreads, spread};
use crate::report::columns;
use crate::statistics::Spread;
use crate::system::Venue;
use crate::workload::tiers::{Share, TierLoad};
use crate::workload::{Operation, Stream};

/// One kind of accesses with one share of updates, one system and one size of the fast tier.
#[derive(Clone, Debug, Serialize)]
pub struct TierRow {
    /// The accesses, as `zipf:0.99`.
    pub accesses: String,
    /// How many of the requests are SETs, 0 to 1; of a trace, of the measured ones, with those that fill.
    pub updates: f64,
    /// What placed values, as the simulator calls it.
    pub system: &'static str,
    /// How much of the values' bytes may be fast, 0 to 1.
    pub fast: f64,
    /// Values in all.
    pub n_keys: usize,
    /// Their size, in bytes; of a trace, the mean of those read.
    pub value_bytes: u32,
    /// Requests before the measurement.
    pub n_warmup: usize,
    /// Measured requests.
    pub n_commands: usize,
    /// Median and spread of the ratios, with two tiers over all fast.
    #[serde(flatten)]
    pub ratios: RatioSpreads,
    /// Modelled: throughput over all fast with the dissertation's slow tier.
    pub throughput_ratio_modelled: Spread,
    /// Reads that found their value in fast memory / reads; `None` without reads.
    pub fast_hit_ratio: Option<Spread>,
    /// In the order in which they were run.
    pub pairs: Vec<TierPair>,
}

impl TierRow {
    pub(super) fn new(load: &TierLoad, system: Placing, fast: Share, stream: &Stream, pairs: Vec<TierPair>) -> TierRow {
        let measured = &stream.requests[stream.n_warmup..];
        let n_writes = measured.iter().filter(|request| request.operation == Operation::Write).count();
        TierRow {
            accesses: load.accesses.to_string(),
            updates: if load.is_trace() { n_writes as f64 / measured.len() as f64 } else { load.updates.0 },
            system: system.name(),
            fast: fast.0,
            n_keys: stream.keys.len(),
            value_bytes: read_bytes_mean(stream),
            n_warmup: stream.n_warmup,
            n_commands: measured.len(),
            ratios: RatioSpreads::of(&pairs.iter().map(|pair| pair.ratios).collect::<Vec<_>>()),
            throughput_ratio_modelled: spread(pairs.iter().map(|pair| pair.throughput_ratio_modelled)),
            fast_hit_ratio: Spread::of(pairs.iter().filter_map(|pair| pair.fast_hit_ratio)),
            pairs,
        }
    }

    fn name(&self) -> Vec<String> {
        let [updates, fast] = [self.updates, self.fast].map(|share| Share(share).to_string());
        vec![self.accesses.clone(), updates, fast, self.system.to_string()]
    }

    /// What was asked for.
    fn load(&self) -> String {
        format!("{}, updates {}", self.accesses, Share(self.updates))
    }

    /// The median over the pairs.
    fn median(&self, figure: impl Fn(&TierPair) -> f64) -> f64 {
        spread(self.pairs.iter().map(figure)).median
    }
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub struct TierReport {
    /// When, which server, and where.
    #[serde(flatten)]
    pub venue: Venue,
    /// Settings of the module that the user gave.
    pub module_settings: Vec<(String, String)>,
    /// The slow tier, as `tenure.tier-slow` takes it.
    pub tier: String,
    /// Commands that each connection sent at once.
    pub pipeline: usize,
    /// How many connections there were.
    pub n_connections: usize,
    /// Pairs per row.
    pub n_pairs: usize,
    /// The figures.
    pub rows: Vec<TierRow>,
}

impl TierReport {
    pub(super) fn new(price: &TierPrice, rows: Vec<TierRow>) -> TierReport {
        TierReport {
            venue: price.setup.venue(),
            module_settings: price.setup.settings.clone(),
            tier: price.tier.to_string(),
            pipeline: price.depth,
            n_connections: price.n_connections,
            n_pairs: price.n_pairs,
            rows,
        }
    }

    /// The report for people.
    pub fn table(&self) -> String {
        [self.head(), self.throughput(), self.placing(), self.latencies(), self.foot()].join("\n")
    }

    /// The report for programs.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    fn head(&self) -> String {
        let settings: Vec<String> =
            self.module_settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let settings = if settings.is_empty() { "defaults".to_string() } else { settings.join(", ") };
        let size = |row: &TierRow| {
            let TierRow { n_keys, value_bytes, n_commands, n_warmup, .. } = row;
            format!("{n_keys} of {value_bytes} bytes, {n_commands} commands per server after {n_warmup} of warm-up")
        };
        let sizes: Vec<String> = self.rows.iter().map(size).collect();
        let sizes = if sizes.iter().all(|size| *size == sizes[0]) { &sizes[0] } else { "sizes differ, see JSON" };
        format!(
            "Two tiers on {}, {}: Tenure with the slow tier {} against stock with all memory alike, {} pairs a row\n\
             Values: {sizes}; {} connections, {} commands at once; {}\n\
             Module settings: {settings}. Medians over the pairs (smallest–largest).\n",
            self.venue.server,
            self.venue.date,
            self.tier,
            self.n_pairs,
            self.n_connections,
            self.pipeline,
            self.venue.placement,
        )
    }

    /// A table of the rows' names and, of each, what `cells` makes of it.
    fn block(&self, header: &[&str], cells: impl Fn(&TierRow) -> Vec<String>) -> String {
        let names = ["accesses", "updates", "fast tier", "system"];
        let mut rows = vec![names.iter().chain(header).map(|name| (*name).to_string()).collect::<Vec<_>>()];
        rows.extend(self.rows.iter().map(|row| [row.name(), cells(row)].concat()));
        columns(&rows)
    }

    fn throughput(&self) -> String {
        let header = ["all fast/s", "tiers/s", "ratio", "", "main thread", "", "modelled", ""];
        self.block(&header, |row| {
            let per_s = |side: fn(&TierPair) -> &TimedSide| row.median(|pair| side(pair).side.throughput_per_s);
            let mut cells =
                vec![format!("{:.0}", per_s(|pair| &pair.all_fast)), format!("{:.0}", per_s(|pair| &pair.tiers))];
            for ratio in [row.ratios.throughput_ratio, row.ratios.cpu_main_ratio, row.throughput_ratio_modelled] {
                cells.push(format!("{:.4}", ratio.median));
                cells.push(format!("({:.4}–{:.4})", ratio.min, ratio.max));
            }
            cells
        })
    }

    fn placing(&self) -> String {
        let header = ["fast hits", "up", "down", "stored slow", "moving", "slice µs", "slow values", "fast", "slow"];
        self.block(&header, |row| {
            let per_command = |count: fn(&TierPair) -> u64| {
                format!("{:.4}", row.median(|pair| count(pair) as f64) / row.n_commands as f64)
            };
            let bytes = |of: fn(&TierPair) -> u64| format_bytes(row.median(|pair| of(pair) as f64) as u64);
            let slow_share = row.median(|pair| pair.counted.slow_values as f64) / row.n_keys as f64;
            let slices = row.pairs.iter().map(|pair| pair.counted.slice_us_max);
            vec![
                row.fast_hit_ratio.map_or("–".to_string(), |ratio| format!("{:.4}", ratio.median)),
                per_command(|pair| pair.counted.promotions),
                per_command(|pair| pair.counted.demotions),
                per_command(|pair| pair.counted.stored_slow),
                format!("{:.2}%", 100.0 * row.median(|pair| pair.moving_share)),
                slices.max().unwrap_or(0).to_string(),
                format!("{:.1}%", 100.0 * slow_share),
                bytes(|pair| pair.counted.fast_bytes),
                bytes(|pair| pair.counted.slow_bytes),
            ]
        })
    }

    fn latencies(&self) -> String {
        let header = ["GET p50 µs", "tiers", "p99", "tiers", "SET p50 µs", "tiers", "p99", "tiers"];
        self.block(&header, |row| {
            let mut cells = Vec::new();
            let of: [fn(&TimedSide) -> Option<Quantiles>; 2] = [|side| side.get_us, |side| side.set_us];
            for quantiles in of {
                for quantile in [|of: Quantiles| of.p50, |of: Quantiles| of.p99] {
                    for side in [|pair: &TierPair| pair.all_fast, |pair: &TierPair| pair.tiers] {
                        let values = row.pairs.iter().filter_map(|pair| quantiles(&side(pair)).map(quantile));
                        cells
                            .push(Spread::of(values).map_or("–".to_string(), |spread| format!("{:.0}", spread.median)));
                    }
                }
            }
            cells
        })
    }

    /// Bars for each size of the fast tier, a group for what is asked for: what of all fast is left, and the hits.
    /// Each with its name.
    pub fn charts(&self) -> Vec<(String, BarChart)> {
        let mut sizes: Vec<f64> = self.rows.iter().map(|row| row.fast).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        // What is slow throughout has no size of its own and stands beside each.
        if sizes.len() > 1 {
            sizes.retain(|&fast| fast > 0.0);
        }
        let chart = |fast: f64, name: &str, y_label: &str, value: fn(&TierRow) -> Option<Spread>| {
            let title =
                format!("{y_label}, fast tier {} ({}, {})", Share(fast), self.venue.server, &self.venue.date[..10]);
            (format!("{name}-{}", Share(fast).to_string().replace('%', "pct")), self.bars(fast, title, y_label, value))
        };
        let charts = |fast| {
            let throughput = |row: &TierRow| Some(row.ratios.throughput_ratio);
            [
                chart(fast, "throughput", "throughput over all fast", throughput),
                chart(fast, "fast-hits", "reads that hit fast memory / reads", |row| row.fast_hit_ratio),
            ]
        };
        sizes.into_iter().flat_map(charts).collect()
    }

    fn bars(&self, fast: f64, title: String, y_label: &str, value: fn(&TierRow) -> Option<Spread>) -> BarChart {
        let rows: Vec<&TierRow> = self.rows.iter().filter(|row| row.fast == fast || row.fast == 0.0).collect();
        let (mut groups, mut systems) = (Vec::new(), Vec::new());
        for row in &rows {
            if !groups.contains(&row.load()) {
                groups.push(row.load());
            }
            if !systems.contains(&row.system) {
                systems.push(row.system);
            }
        }
        let series = |system: &str| {
            let of = |group: &String| rows.iter().find(|row| row.system == system && row.load() == *group);
            let spreads = groups.iter().map(|group| of(group).and_then(|row| value(row)).unwrap_or(spread([])));
            let (values, spread) = spreads.map(|spread| (spread.median, (spread.min, spread.max))).unzip();
            BarSeries { name: system.to_string(), values, spread }
        };
        let series = systems.into_iter().map(series).collect();
        BarChart { title, y_label: y_label.to_string(), groups, series }
    }

    fn foot(&self) -> String {
        let mut systems: Vec<&str> = self.rows.iter().map(|row| row.system).collect();
        systems.sort_unstable();
        systems.dedup();
        let summary = |what: &str, ratio: fn(&TierRow) -> Spread| {
            let of = |system: &&str| {
                let rows = self.rows.iter().filter(|row| row.system == *system);
                let ratios: Vec<f64> = rows.map(|row| ratio(row).median).collect();
                let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
                let all = spread(ratios);
                format!("{what}, {system}: mean of its rows {mean:.4}, least {:.4}, best {:.4}\n", all.min, all.max)
            };
            systems.iter().map(of).collect::<String>()
        };
        let sides = self.rows.iter().flat_map(|row| &row.pairs).flat_map(|pair| [pair.all_fast, pair.tiers]);
        let busy = sides.map(|side| side.side.generator_busy).fold(0.0, f64::max);
        format!(
            "Ratios: throughput, core time of the main thread per command, and throughput modelled, with tiers over \
             all fast.\n\
             Per command: values moved up, down, and stored slow at once. Moving: share of the measured time. Slice: \
             the longest since the server started, the first limiting included. Slow values and bytes at the end.\n\
             Latencies under full load, from a batch's first byte to its last reply, with the wait for all other \
             connections.\n\
             The modelled ratio adds to the measured time what the dissertation's slow tier (twice the latency, \
             bandwidth / 2.4) takes longer than anon: another tier's\n\
             own speed is measured already.\n\
             {}{}load generator: at most {:.0} % of its core\n",
            summary("throughput over all fast, measured", |row| row.ratios.throughput_ratio),
            summary("throughput over all fast, modelled", |row| row.throughput_ratio_modelled),
            busy * 100.0,
        )
    }
}
