//! Tables of single figures from several records: what README says, and the papers' headlines beside ours.
//!
//! A row whose record isn't there is left out of README; of the papers it says so. So neither page can have a figure
//! that no record has.

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::record::Record;
use crate::tables::{list, number, percent, short, table, text};

/// A figure of a record. Labels are those of its commands; an empty one stands for all.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    /// Mean latency of a system at a memory size over the first system's, as percent; a range where there are several.
    Latency(&'static [&'static str], &'static str, &'static str),
    /// Simulated mean latency of a policy over that of `redis`, as percent, over all sizes of memory from the first
    /// to the last that are named.
    Simulated(&'static str, &'static str, [usize; 2]),
    /// The same of miss ratios.
    SimulatedMisses(&'static str, &'static str, [usize; 2]),
    /// Hits of fast memory: label, system, division, which size of the fast tier.
    FastHits(&'static str, &'static str, &'static str, usize),
    /// Promotions of a system over those of another, as percent: label, the two, which size.
    Promotions(&'static str, [&'static str; 2], usize),
    /// Mean error of a model at a sampling rate, of traces that begin so.
    Error(&'static str, f64, &'static str),
    /// Throughput over stock's, of a label.
    Pairs(&'static str),
    /// The same of a load of `full`.
    Full(&'static str),
    /// Lost writes of a way to wait, in all scenarios.
    Lost(&'static str),
    /// Writes per second of a way to wait over stock's, from the least to the most.
    PriceOf(&'static str),
    /// Throughput of two tiers over all fast: system, measured.
    Tiers(&'static str),
    /// What the busiest of three nodes has time for, over that of one, where clients find nodes so.
    Slots(&'static str),
    /// Nothing to tell.
    Nothing,
}

/// One line of a table of a paper.
pub struct PaperRow {
    /// Figure or table, and what it shows.
    pub what: &'static str,
    /// The paper's headline.
    pub theirs: &'static str,
    /// The same by the paper's own policy.
    pub own: Ask,
    /// And by the default.
    pub default: Ask,
    /// The record of both.
    pub record: &'static str,
}

/// The rows of a paper as a table; `ours` names the columns of its own policy and of the default.
///
/// # Errors
/// A field that the record lacks, by its name.
pub fn paper(ours: [&str; 2], rows: &[PaperRow]) -> anyhow::Result<String> {
    let heading = ["", "the paper", ours[0], ours[1], "from"].map(str::to_owned);
    let mut lines = Vec::new();
    for row in rows {
        let figure = |ask: Ask| -> anyhow::Result<String> {
            match Record::read(row.record)? {
                _ if matches!(ask, Ask::Nothing) => Ok("–".to_owned()),
                None => Ok("not yet".to_owned()),
                Some(record) => ask.of(&record).with_context(|| format!("{}: {}", row.record, row.what)),
            }
        };
        lines.push(vec![
            row.what.to_owned(),
            row.theirs.to_owned(),
            figure(row.own)?,
            figure(row.default)?,
            format!("`{}`", row.record),
        ]);
    }
    Ok(table(&heading, &lines))
}

/// What README says of gains: systems side by side, half of the data in memory.
///
/// # Errors
/// As [`paper`].
pub fn gains() -> anyhow::Result<String> {
    const ROWS: &[(&str, &str, &[&str])] = &[
        ("YCSB A, B, C, F, a near and a far backend", "ycsb-delay", &["A", "B", "C", "F"]),
        ("YCSB D, the same", "ycsb-delay", &["D"]),
        ("fifteen tenants, misses of 1 µs to 16 ms", "tenants-15", &["15 tenants"]),
        ("four tenants of real traces", "tenants-4", &["4 tenants"]),
        ("two real traces", "real-traces", &["kv_scarab_recs", "cdn_adaptsize"]),
    ];
    const SYSTEMS: [&str; 3] = ["hyperbolic-5", "predis", "tenure"];
    let heading = ["mean latency against stock", "hyperbolic caching", "pRedis", "Tenure"].map(str::to_owned);
    let mut lines = Vec::new();
    for (name, record, labels) in ROWS {
        let Some(record) = Record::read(record)? else { continue };
        lines.push(line(name, &SYSTEMS.map(|system| Ask::Latency(labels, "50%", system)), &record)?);
    }
    Ok(table_or_not(&heading, &lines))
}

/// What README says of costs: throughput of stock's where everything fits and in a full cache.
///
/// # Errors
/// As [`paper`].
pub fn costs() -> anyhow::Result<String> {
    const ROWS: &[(&str, &str, [Ask; 2])] = &[
        ("everything fits, reads and writes", "no-harm", [Ask::Pairs("16-deep"), Ask::Pairs("1-deep")]),
        ("a full cache, reads that hit", "full", [Ask::Full("get-16"), Ask::Full("get-1")]),
        ("a full cache, each write evicts", "full", [Ask::Full("set-16"), Ask::Full("set-1")]),
    ];
    let heading = ["throughput of stock's, as fast as clients can", "16 commands at once", "one"].map(str::to_owned);
    let mut lines = Vec::new();
    for (name, record, asks) in ROWS {
        let Some(record) = Record::read(record)? else { continue };
        lines.push(line(name, asks, &record)?);
    }
    Ok(table_or_not(&heading, &lines))
}

/// A line of a table: a name and a figure for each.
fn line(name: &str, asks: &[Ask], record: &Record) -> anyhow::Result<Vec<String>> {
    let figures = asks.iter().map(|ask| ask.of(record));
    std::iter::once(Ok(name.to_owned())).chain(figures).collect()
}

/// The table, or that nothing of it was measured.
fn table_or_not(heading: &[String], lines: &[Vec<String>]) -> String {
    if lines.is_empty() { "Not measured yet: `scripts/reproduce`.\n".to_owned() } else { table(heading, lines) }
}

impl Ask {
    /// The figure, as a cell of a table.
    fn of(self, record: &Record) -> anyhow::Result<String> {
        match self {
            Ask::Latency(labels, memory, system) => {
                let mut found = Vec::new();
                for run in record.runs.iter().filter(|run| labels.contains(&run.label.as_str())) {
                    for row in list(&run.result, "summary")? {
                        if text(row, "memory")? == memory && text(row, "system")? == system {
                            found.push(number(row, "latency_against_first.median")?);
                        }
                    }
                }
                range(&found, percent)
            }
            Ask::Simulated(label, policy, which) => simulated(record, label, policy, which, "mean_latency_us"),
            Ask::SimulatedMisses(label, policy, which) => simulated(record, label, policy, which, "miss_ratio"),
            Ask::FastHits(label, system, division, which) => {
                let row = tier_row(record, label, system, division, which)?;
                Ok(format!("{:.3}", number(row, "fast_hit_ratio")?))
            }
            Ask::Promotions(label, systems, which) => {
                let of = |system| number(tier_row(record, label, system, "free", which)?, "promotions");
                Ok(format!("{:.1} %", 100.0 * of(systems[0])? / of(systems[1])?))
            }
            Ask::Error(model, rate, beginning) => {
                let mut errors = Vec::new();
                for row in list(&record.runs.first().context("there is no run")?.result, "")? {
                    let is_it = text(row, "model")? == model && number(row, "rate")? == rate;
                    if is_it && text(row, "trace")?.starts_with(beginning) && text(row, "variant")? == "variable sizes"
                    {
                        errors.push(number(row, "mean_absolute_error")?);
                    }
                }
                ensure!(!errors.is_empty(), "there is no trace {beginning}… at {rate}");
                Ok(format!("{:.2} %", 100.0 * errors.iter().sum::<f64>() / errors.len() as f64))
            }
            Ask::Pairs(label) => Ok(format!("{:.3}", number(of_label(record, label)?, "throughput_ratio.median")?)),
            Ask::Full(load) => {
                let rows = list(&record.runs.first().context("there is no run")?.result, "rows")?;
                Ok(format!("{:.3}", number(row_of(rows, "load", load)?, "throughput_ratio.median")?))
            }
            Ask::Lost(way) => {
                let (mut lost, mut all) = (0.0, 0.0);
                for row in rows_where(record, "way", way)? {
                    lost += number(row, "n_lost")?;
                    all += number(row, "n_acknowledged")?;
                }
                Ok(format!("{lost} of {}", thousands(all)))
            }
            Ask::PriceOf(way) => {
                let rows = rows_where(record, "way", way)?;
                let found: anyhow::Result<Vec<f64>> = rows.iter().map(|row| number(row, "ratio.median")).collect();
                range(&found?, |ratio| format!("{ratio:.2}"))
            }
            Ask::Tiers(system) => {
                let rows = rows_where(record, "system", system)?;
                let found: anyhow::Result<Vec<f64>> =
                    rows.iter().map(|row| number(row, "throughput_ratio_modelled.median")).collect();
                range(&found?, |ratio| format!("{ratio:.2}"))
            }
            Ask::Slots(route) => {
                let rows = rows_where(record, "route", route)?;
                let busiest_us = |n: f64| {
                    let row = rows.iter().find(|row| number(row, "n_primaries").is_ok_and(|found| found == n));
                    number(row.context("there are no such primaries")?, "cpu_us_busiest")
                };
                Ok(format!("× {:.1}", busiest_us(1.0)? / busiest_us(3.0)?))
            }
            Ask::Nothing => Ok("–".to_owned()),
        }
    }
}

/// `−37.0 to −28.1 %`, or one where all are one.
fn range(found: &[f64], show: impl Fn(f64) -> String) -> anyhow::Result<String> {
    ensure!(!found.is_empty(), "there is no such row");
    let least = found.iter().copied().fold(f64::INFINITY, f64::min);
    let most = found.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (least, most) = (show(least), show(most));
    Ok(if least == most { least } else { format!("{} to {most}", least.trim_end_matches(" %")) })
}

fn thousands(value: f64) -> String {
    if value >= 1e6 { format!("{} million", short(value / 1e6)) } else { format!("{value:.0}") }
}

fn of_label<'a>(record: &'a Record, label: &str) -> anyhow::Result<&'a Value> {
    let run = record.runs.iter().find(|run| run.label == label);
    Ok(&run.with_context(|| format!("there is no command {label}"))?.result)
}

fn row_of<'a>(rows: &'a [Value], field: &str, name: &str) -> anyhow::Result<&'a Value> {
    rows.iter().find(|row| row[field] == name).with_context(|| format!("there is no {field} {name}"))
}

fn rows_where<'a>(record: &'a Record, field: &str, name: &str) -> anyhow::Result<Vec<&'a Value>> {
    let mut found = Vec::new();
    for run in &record.runs {
        found.extend(list(&run.result, "rows")?.iter().filter(|row| row[field] == name));
    }
    ensure!(!found.is_empty(), "there is no {field} {name}");
    Ok(found)
}

/// A field of a policy over that of `redis`, at each memory from the first to the last that are named.
fn simulated(record: &Record, label: &str, policy: &str, which: [usize; 2], field: &str) -> anyhow::Result<String> {
    let mut found = Vec::new();
    for run in record.runs.iter().filter(|run| run.label.contains(label)) {
        let of = |policy: &str| -> anyhow::Result<Vec<f64>> {
            let own = list(&run.result, "")?.iter().filter(|row| row["policy"] == policy);
            own.map(|row| number(row, field)).collect()
        };
        let pairs = of(policy)?.into_iter().zip(of("redis")?).enumerate();
        found.extend(pairs.filter(|(i, _)| (which[0]..=which[1]).contains(i)).map(|(_, (own, redis))| own / redis));
    }
    range(&found, percent)
}

fn tier_row<'a>(
    record: &'a Record,
    label: &str,
    system: &str,
    division: &str,
    which: usize,
) -> anyhow::Result<&'a Value> {
    let rows = list(of_label(record, label)?, "")?;
    let mut own = rows.iter().filter(|row| row["system"] == system && row["division"] == division);
    own.nth(which).with_context(|| format!("there is no {system}, {division}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::record_of;

    #[test]
    fn a_policy_is_told_over_redis() {
        let row = |policy: &str, us: f64| json!({"policy": policy, "mean_latency_us": us});
        let rows = json!([row("redis", 100.0), row("redis", 50.0), row("predis", 80.0), row("predis", 45.0)]);
        let record = record_of("four", rows);
        assert_eq!(Ask::Simulated("four", "predis", [0, 0]).of(&record).unwrap(), "−20.0 %");
        assert_eq!(Ask::Simulated("four", "predis", [0, 1]).of(&record).unwrap(), "−20.0 to −10.0 %");
        let error = Ask::Simulated("four", "kredis", [0, 1]).of(&record).unwrap_err();
        assert_eq!(error.to_string(), "there is no such row");
    }

    #[test]
    fn several_commands_are_a_range() {
        let row = json!({"system": "tenure", "memory": "50%", "latency_against_first": {"median": 0.7}});
        let record = record_of("A", json!({ "summary": [row] }));
        assert_eq!(Ask::Latency(&["A", "B"], "50%", "tenure").of(&record).unwrap(), "−30.0 %");
        assert!(Ask::Latency(&["B"], "50%", "tenure").of(&record).is_err());
    }
}
