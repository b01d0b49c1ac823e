//! The report as text: what was run, then one line per system and memory size, then one per backend or tenant.

use tenure_core::policy::density::LIMIT_BYTES_MIN;
use tenure_core::units::format_bytes;

use super::{Report, RunFigures, Simulated, Summary, paced, restart};
use crate::statistics::Spread;

/// With more tenants than this only the sums are printed; JSON has them all.
const TENANTS_SHOWN_MAX: usize = 16;

pub(super) fn table(report: &Report) -> String {
    let mut parts = vec![conditions(report), latencies(report), costs(report), tenants(report)];
    parts.extend(report.summary.iter().map(|summary| summary.maxmemory_bytes).min().and_then(stands_aside));
    parts.extend(paced::tables(report));
    parts.extend(restart::table(report));
    if report.summary.iter().any(|summary| summary.simulated.is_some()) {
        parts.push(predictions(report));
    }
    parts.join("\n")
}

fn conditions(report: &Report) -> String {
    let c = &report.conditions;
    let settings: Vec<String> =
        c.servers.module_settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let settings = if settings.is_empty() { "defaults".to_string() } else { settings.join(", ") };
    let clock = if c.servers.clock_speed == 1 {
        String::new()
    } else {
        format!("; wall clock {} times as fast", c.servers.clock_speed)
    };
    let slow_down = c.slow_down.as_ref().map_or(String::new(), |slow_down| format!(" (slow down {slow_down})"));
    let cluster = c.servers.cluster.as_ref().map_or(String::new(), |(n_primaries, route)| {
        format!(" as a cluster of {n_primaries} primaries (clients: {route})")
    });
    let turns = match c.n_turns {
        1 => String::new(),
        n => format!(
            "Systems took {n} turns; against the first: the median of the turns, and what it lies between in 19 cases \
             of 20.\n"
        ),
    };
    format!(
        "{} against {}{} on {}{cluster}, {}\n\
         {} keys, footprint {}; {} requests after {} of warm-up over {} connections, seed {}, {} repetitions\n\
         {}{clock}; module settings: {settings}\n\
         Medians over the repetitions (smallest–largest); latencies in µs, backend included.\n{turns}",
        c.stream.workload,
        c.backend,
        slow_down,
        c.servers.server,
        c.date,
        c.stream.n_keys,
        format_bytes(c.footprint_bytes),
        c.stream.n_requests,
        c.stream.n_warmup,
        c.n_connections,
        c.stream.seed,
        c.n_repetitions,
        c.servers.placement,
    )
}

/// What to say where the lowest limit is too low for the module.
fn stands_aside(maxmemory_bytes: u64) -> Option<String> {
    (maxmemory_bytes < LIMIT_BYTES_MIN).then(|| {
        let (limit, least) = (format_bytes(maxmemory_bytes), format_bytes(LIMIT_BYTES_MIN));
        format!("With maxmemory of {limit} the server serves as stock, module or not: Tenure begins at {least}.\n")
    })
}

fn latencies(report: &Report) -> String {
    let first = report.summary.first().map_or("first", |summary| summary.system.as_str());
    let against = format!("against {first}");
    let header = ["memory", "system", "mean", "", &against, "", "p50", "p90", "p99", "p99.9", "p99.99", "miss ratio"];
    let mut rows = vec![header.map(str::to_string).to_vec()];
    for summary in &report.summary {
        let (mean, ratio) = (figure(summary, "latency_us_mean"), summary.latency_against_first);
        let mut row = vec![summary.memory.clone(), summary.system.clone()];
        row.extend([number(mean.median), range(mean, number)]);
        row.extend([change(ratio.median), range(ratio, change)]);
        for name in ["p50", "p90", "p99", "p999", "p9999"] {
            row.push(number(figure(summary, &format!("latency_us_{name}")).median));
        }
        row.push(ratio4(figure(summary, "miss_ratio").median));
        rows.push(row);
    }
    columns(&rows)
}

fn costs(report: &Report) -> String {
    let header = ["memory", "system", "requests/s", "evictions", "by the server", "server CPU s", "main thread s"];
    let mut rows = vec![header.map(str::to_string).to_vec()];
    rows[0].extend(["PING p99.9", "PING max", "taken by host"].map(str::to_string));
    rows[0].extend(["peak over maxmemory", "refused writes"].map(str::to_string));
    for summary in &report.summary {
        let median = |name: &str| figure(summary, name).median;
        let mut row = vec![summary.memory.clone(), summary.system.clone()];
        row.push(whole(median("throughput_per_s")));
        row.extend([whole(median("evictions")), whole(median("evictions_by_server"))]);
        row.extend(["server_cpu_s", "server_cpu_main_s"].map(|name| format!("{:.2}", median(name))));
        row.extend(["ping_us_p999", "ping_us_max"].map(|name| number(median(name))));
        row.push(format!("{:.1} %", 100.0 * median("taken_by_host")));
        row.push(format_bytes(peak_over_limit(report, summary)));
        row.push(runs_of(report, summary).map(|run| run.n_refused).sum::<u64>().to_string());
        rows.push(row);
    }
    columns(&rows)
}

/// The most by which any repetition exceeded its limit.
fn peak_over_limit(report: &Report, summary: &Summary) -> u64 {
    let n_nodes = report.conditions.servers.cluster.as_ref().map_or(1, |(n_primaries, _)| *n_primaries as u64);
    let over = |run: &RunFigures| run.server_memory.used_bytes_peak.saturating_sub(n_nodes * run.maxmemory_bytes);
    runs_of(report, summary).map(over).max().unwrap_or(0)
}

fn tenants(report: &Report) -> String {
    let n_tenants = report.runs.first().map_or(0, |run| run.tenants.len());
    if n_tenants > TENANTS_SHOWN_MAX {
        return format!("{n_tenants} tenants: report.json has the figures of each.\n");
    }
    let header = ["memory", "system", "tenant", "backend", "reads", "miss ratio", "hit", "miss", "write", "compound"];
    let mut rows = vec![header.map(str::to_string).to_vec()];
    for summary in &report.summary {
        for tenant in 0..n_tenants {
            rows.push(tenant_row(report, summary, tenant));
        }
    }
    columns(&rows)
}

fn tenant_row(report: &Report, summary: &Summary, tenant: usize) -> Vec<String> {
    let all: Vec<_> = runs_of(report, summary).map(|run| &run.tenants[tenant]).collect();
    let miss_ratio = |n_missed: u64, n_read: u64| (n_read > 0).then(|| n_missed as f64 / n_read as f64);
    vec![
        summary.memory.clone(),
        summary.system.clone(),
        all[0].tenant.clone(),
        all[0].backend.clone(),
        all[0].n_read.to_string(),
        median_of(all.iter().map(|t| miss_ratio(t.n_missed, t.n_read)), ratio4),
        median_of(all.iter().map(|t| t.hit_us_mean), number),
        median_of(all.iter().map(|t| t.miss_us_mean), number),
        median_of(all.iter().map(|t| t.write_us_mean), number),
        median_of(all.iter().map(|t| t.compound_us_mean), number),
    ]
}

/// The median of the values that are there; a dash where none is.
pub(super) fn median_of(values: impl Iterator<Item = Option<f64>>, show: fn(f64) -> String) -> String {
    Spread::of(values.flatten()).map_or("–".to_string(), |spread| show(spread.median))
}

/// What the simulator says beside what was measured.
fn predictions(report: &Report) -> String {
    let latency = ["memory", "system", "mean", "predicted", "measured over predicted"];
    let others = ["miss ratio", "predicted", "gap closed", "by misses alone", "predicted"];
    let mut rows = vec![[latency, others].concat().into_iter().map(str::to_string).collect::<Vec<_>>()];
    let mut bound_of = None;
    for summary in &report.summary {
        let Some(Simulated { prediction, bound, gap_closed }) = summary.simulated else { continue };
        if bound_of.replace(&summary.memory) != Some(&summary.memory) {
            let (latency, misses) = (number(bound.latency_us_mean), ratio4(bound.miss_ratio));
            let row = [&summary.memory, "bound", "–", &latency, "–", "–", &misses, "–", "–", "–"];
            rows.push(row.map(str::to_string).to_vec());
        }
        let mean = figure(summary, "latency_us_mean").median;
        rows.push(vec![
            summary.memory.clone(),
            summary.system.clone(),
            number(mean),
            number(prediction.latency_us_mean),
            change(mean / prediction.latency_us_mean),
            ratio4(figure(summary, "miss_ratio").median),
            ratio4(prediction.miss_ratio),
            percent(gap_closed.latency),
            percent(gap_closed.misses),
            percent(gap_closed.predicted),
        ]);
    }
    columns(&rows)
}

/// A share as a percentage.
fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1}%", share * 100.0) } else { "–".to_string() }
}

pub(super) fn runs_of<'a>(report: &'a Report, summary: &'a Summary) -> impl Iterator<Item = &'a RunFigures> {
    report.runs.iter().filter(|run| run.memory == summary.memory && run.system == summary.system)
}

/// A figure of a summary; NaN where no run had it.
pub(super) fn figure(summary: &Summary, name: &str) -> Spread {
    let nothing = Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN };
    summary.figures.get(name).copied().unwrap_or(nothing)
}

pub(super) fn number(value: f64) -> String {
    match value {
        v if !v.is_finite() => "–".to_string(),
        v if v >= 100.0 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

pub(super) fn whole(value: f64) -> String {
    if value.is_finite() { format!("{value:.0}") } else { "–".to_string() }
}

pub(super) fn ratio4(value: f64) -> String {
    if value.is_finite() { format!("{value:.4}") } else { "–".to_string() }
}

pub(super) fn seconds(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "–".to_string() }
}

/// A ratio as a change: 0.875 is `-12.5%`.
fn change(ratio: f64) -> String {
    format!("{:+.1}%", (ratio - 1.0) * 100.0)
}

pub(super) fn range(spread: Spread, show: impl Fn(f64) -> String) -> String {
    format!("({}–{})", show(spread.min), show(spread.max))
}

/// Rows of cells under a header, with columns as wide as their widest cell: the first two to the left, others to the
/// right.
pub fn columns(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cell = |(column, cell): (usize, &String)| {
            let width = widths[column];
            if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let line: Vec<String> = row.iter().enumerate().map(cell).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
        if index == 0 {
            text.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * n_columns.saturating_sub(1)));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_string).to_vec();
        let text = columns(&[row(["memory", "s", "µs"]), row(["10%", "stock", "1234"])]);
        assert_eq!(text, "memory  s        µs\n-------------------\n10%     stock  1234\n");
    }

    #[test]
    fn a_limit_too_low_for_tenure_is_told() {
        assert!(stands_aside(3 << 20).is_some_and(|told| told.contains("of 3 MiB") && told.contains("at 4 MiB")));
        assert_eq!(stands_aside(4 << 20), None);
    }

    #[test]
    fn numbers_are_short_and_missing_ones_dashes() {
        assert_eq!([12.345, 123.45, f64::NAN].map(number), ["12.3", "123", "–"]);
        assert_eq!([0.875, 1.2].map(change), ["-12.5%", "+20.0%"]);
    }
}
