//! Markdown of a record: what was run, where, and its figures.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::record::Record;
use crate::set::{Measurement, Shape};

/// Lines of a page are no wider, but for tables of many columns.
const WIDTH: usize = 118;

/// How a line begins that marks a figure as older than the code.
pub const OLD: &str = "**Older than the code**";

/// The tables of a record, with a line that says when, where and by which commands.
///
/// # Errors
/// A field that isn't in the JSON, by its name.
pub fn markdown(one: &Measurement, record: &Record) -> anyhow::Result<String> {
    let tables = match one.shape {
        Shape::Systems => systems(record)?,
        Shape::Pairs => pairs(record)?,
        Shape::Ladder => ladder(record)?,
        Shape::Simulated => simulated(record)?,
        Shape::SimulatedTiers => simulated_tiers(record)?,
        Shape::Full => full(record)?,
        Shape::Slots => slots(record)?,
        Shape::Accuracy => accuracy(record)?,
        Shape::Resized => resized(record)?,
        Shape::Tiers => tiers(record)?,
        Shape::Loss => loss(record)?,
        Shape::Price => price(record)?,
    };
    let commands: Vec<String> = record.runs.iter().flat_map(|run| wrapped(&run.command, "    ", "      ")).collect();
    let old = record.commits_since(one.measures);
    let since = |n| if n == 1 { "1 commit since has".to_string() } else { format!("{n} commits since have") };
    let old = old.map_or(String::new(), |n| format!("\n{OLD}: {} changed what it measures.\n", since(n)));
    let server = server(record).map_or(String::new(), |server| format!(" {server}."));
    let taken = taken_by_host(record);
    let taken =
        taken.map_or(String::new(), |share| format!(" Its host took up to {:.1} % of its time.", 100.0 * share));
    let Record { date, commit, length, machine, .. } = record;
    let from = format!("{date}, commit {commit}, {length} version.{server} {machine}.{taken}");
    let (from, commands) = (wrapped(&from, "", "").join("\n"), commands.join("\n"));
    Ok(format!("{tables}{}\n{from}\n{old}\n{commands}\n", pictures(one, record)))
}

/// The server that a record is of, as its first command tells it.
fn server(record: &Record) -> Option<&str> {
    let result = &record.runs.first()?.result;
    ["/conditions/server", "/server"].iter().find_map(|path| result.pointer(path)?.as_str())
}

/// The largest share of the machine's core time that its host gave to others in any run, where that was noted.
fn taken_by_host(record: &Record) -> Option<f64> {
    let rows = record.runs.iter().filter_map(|run| run.result.get("summary")?.as_array()).flatten();
    rows.filter_map(|row| number(row, "figures.taken_by_host.max").ok()).reduce(f64::max)
}

/// The pictures of a record that has some, as a page of docs/results shows them.
fn pictures(one: &Measurement, record: &Record) -> String {
    if record.runs.iter().all(|run| run.over_run.is_empty()) {
        return String::new();
    }
    // What the record shows stands above it, and a picture's line can't be broken.
    let picture = |what: &str, file: &str| format!("![{what} over the run](../figures/{}-{file}.svg)\n", one.name);
    format!("\n{}{}", picture("Mean latency", "latency"), picture("Miss ratio", "miss-ratio"))
}

/// Text in lines of [`WIDTH`], broken at spaces.
fn wrapped(text: &str, first: &str, rest: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// A table: a heading, and rows of cells; the first column is text, the others are numbers.
pub fn table(heading: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let ruler: Vec<String> =
        heading.iter().enumerate().map(|(i, _)| if i == 0 { "---" } else { "--:" }.to_owned()).collect();
    line(heading) + &line(&ruler) + &rows.iter().map(|row| line(row)).collect::<String>()
}

pub fn number(value: &Value, path: &str) -> anyhow::Result<f64> {
    let found = path.split('.').try_fold(value, |value, name| value.get(name));
    found.and_then(Value::as_f64).with_context(|| format!("there is no number {path}"))
}

pub fn text<'a>(value: &'a Value, path: &str) -> anyhow::Result<&'a str> {
    value.get(path).and_then(Value::as_str).with_context(|| format!("there is no text {path}"))
}

pub fn list<'a>(value: &'a Value, path: &str) -> anyhow::Result<&'a Vec<Value>> {
    let found = if path.is_empty() { Some(value) } else { value.get(path) };
    found.and_then(Value::as_array).with_context(|| format!("there is no list '{path}'"))
}

/// Three digits that matter.
pub fn short(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

pub fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−")
}

/// `median (min–max)`, or the median alone where all are one.
pub fn spread(value: &Value, path: &str) -> anyhow::Result<String> {
    let of = |name: &str| number(value, &format!("{path}.{name}"));
    let (median, min, max) = (of("median")?, of("min")?, of("max")?);
    let three = |value: f64| format!("{value:.3}");
    Ok(if min == max { three(median) } else { format!("{} ({}–{})", three(median), three(min), three(max)) })
}

/// `tenure bench`: a row for each command and memory, a column for each system. Where systems took turns, or ran
/// several times, a table more says how sure their latencies are.
fn systems(record: &Record) -> anyhow::Result<String> {
    let (mut latency, mut against, mut misses) = (Vec::new(), Vec::new(), Vec::new());
    let mut heading = vec![String::new()];
    for run in &record.runs {
        let mut by_memory: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for row in list(&run.result, "summary")? {
            by_memory.entry(text(row, "memory")?.to_owned()).or_default().push(row);
        }
        for (memory, rows) in by_memory {
            let mut names = vec![String::new()];
            let label = format!("{}, {memory}", run.label);
            let (mut costs, mut spreads, mut ratios) = (vec![label.clone()], vec![label.clone()], vec![label]);
            for (i, row) in rows.iter().enumerate() {
                names.push(text(row, "system")?.to_owned());
                let mean = short(number(row, "figures.latency_us_mean.median")?);
                costs.push(if i == 0 {
                    mean
                } else {
                    format!("{mean} ({})", percent(number(row, "latency_against_first.median")?))
                });
                spreads.push(spread(row, "latency_against_first")?);
                ratios.push(format!("{:.3}", number(row, "figures.miss_ratio.median")?));
            }
            ensure!(heading.len() == 1 || heading == names, "commands compare different systems");
            heading = names;
            latency.push(costs);
            against.push(spreads);
            misses.push(ratios);
        }
    }
    let mut headed = |title: &str, rows: &[Vec<String>]| {
        heading[0] = title.to_owned();
        table(&heading, rows)
    };
    let mut tables = vec![headed("mean latency, µs", &latency)];
    if against.iter().flatten().any(|cell: &String| cell.contains('(')) {
        tables.push(headed("latency over the first's", &against));
    }
    tables.push(headed("miss ratio", &misses));
    Ok(tables.join("\n"))
}

fn pairs(record: &Record) -> anyhow::Result<String> {
    let heading = ["with Tenure / stock", "throughput", "server's CPU per command", "main thread's"].map(str::to_owned);
    let rows = record.runs.iter().map(|run| {
        let ratio = |name: &str| spread(&run.result, name);
        Ok(vec![run.label.clone(), ratio("throughput_ratio")?, ratio("cpu_ratio")?, ratio("cpu_main_ratio")?])
    });
    Ok(table(&heading, &rows.collect::<anyhow::Result<Vec<_>>>()?))
}

fn ladder(record: &Record) -> anyhow::Result<String> {
    let run = record.runs.first().context("there is no run")?;
    let heading =
        ["policy", "mean latency / redis", "best", "worst", "gap to the bound closed", "rungs"].map(str::to_owned);
    let mut rows = Vec::new();
    for row in list(&run.result, "all")? {
        let closed =
            number(row, "gap_closed").map_or_else(|_| "–".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let of = |name: &str| number(row, name).map(|value| format!("{value:.4}"));
        rows.push(vec![
            text(row, "policy")?.to_owned(),
            of("relative_mean")?,
            of("relative_best")?,
            of("relative_worst")?,
            closed,
            number(row, "rungs")?.to_string(),
        ]);
    }
    Ok(table(&heading, &rows))
}

fn add_cell(rows: &mut Vec<(String, Vec<String>)>, name: &str, cell: String) {
    match rows.iter_mut().find(|(known, _)| known == name) {
        Some((_, cells)) => cells.push(cell),
        None => rows.push((name.to_owned(), vec![cell])),
    }
}

fn rows_of(rows: Vec<(String, Vec<String>)>) -> Vec<Vec<String>> {
    rows.into_iter().map(|(name, cells)| [vec![name], cells].concat()).collect()
}

/// `tenure simulate --tiers`: a row for each system at each size of the fast tier.
fn simulated_tiers(record: &Record) -> anyhow::Result<String> {
    let heading =
        ["accesses", "places", "fast, MB", "hits of fast memory", "promotions / request", "throughput, modelled"]
            .map(str::to_owned);
    let mut rows = Vec::new();
    for run in &record.runs {
        for row in list(&run.result, "")? {
            let division = text(row, "division")?;
            let system = text(row, "system")?;
            rows.push(vec![
                run.label.clone(),
                if division == "free" { system.to_owned() } else { format!("{system}, {division}") },
                format!("{:.1}", number(row, "fast_bytes")? / 1e6),
                format!("{:.3}", number(row, "fast_hit_ratio")?),
                format!("{:.4}", number(row, "promotions")? / number(row, "requests")?),
                format!("{:.3}", number(row, "throughput_modelled")?),
            ]);
        }
    }
    Ok(table(&heading, &rows))
}

/// `tenure bench --workload full`: a row for each load.
fn full(record: &Record) -> anyhow::Result<String> {
    let heading = [
        "load",
        "throughput / stock",
        "main thread's time / stock",
        "evicted by Tenure",
        "misses / stock",
        "PING p99.9 more, µs",
    ]
    .map(str::to_owned);
    let mut rows = Vec::new();
    for run in &record.runs {
        for row in list(&run.result, "rows")? {
            let given = |field: &str, show: fn(f64) -> String| number(row, field).map_or_else(|_| "–".to_owned(), show);
            rows.push(vec![
                text(row, "load")?.to_owned(),
                spread(row, "throughput_ratio")?,
                spread(row, "cpu_main_ratio")?,
                given("evicted_by_module", |share| format!("{:.0} %", share * 100.0)),
                given("misses_ratio", |ratio| format!("{ratio:.3}")),
                short(number(row, "ping_us_p999_more")?),
            ]);
        }
    }
    Ok(table(&heading, &rows))
}

/// `tenure simulate`: a row for each policy, a column for each memory.
fn simulated(record: &Record) -> anyhow::Result<String> {
    let mut text_of_all = String::new();
    for run in &record.runs {
        let mut memories: Vec<u64> = Vec::new();
        let mut by_policy: Vec<(String, Vec<String>)> = Vec::new();
        for row in list(&run.result, "")? {
            let memory = number(row, "memory_bytes")? as u64;
            if !memories.contains(&memory) {
                memories.push(memory);
            }
            let cell = format!("{} ({:.3})", short(number(row, "mean_latency_us")?), number(row, "miss_ratio")?);
            add_cell(&mut by_policy, text(row, "policy")?, cell);
        }
        let mut heading = vec![format!("{}: µs (miss ratio)", run.label)];
        heading.extend(memories.iter().map(|&bytes| format!("{:.1} MB", bytes as f64 / 1e6)));
        text_of_all += &(table(&heading, &rows_of(by_policy)) + "\n");
    }
    Ok(text_of_all.trim_end().to_owned() + "\n")
}

/// `tenure mrc --accuracy`: the mean over traces by model and rate.
fn accuracy(record: &Record) -> anyhow::Result<String> {
    let mut sums: BTreeMap<(String, String, String), (f64, f64, usize)> = BTreeMap::new();
    for run in &record.runs {
        for row in list(&run.result, "")? {
            let key =
                (text(row, "model")?.to_owned(), number(row, "rate")?.to_string(), text(row, "variant")?.to_owned());
            let (sum, worst, n) = sums.entry(key).or_default();
            let error = number(row, "mean_absolute_error")?;
            (*sum, *worst, *n) = (*sum + error, worst.max(error), *n + 1);
        }
    }
    let heading = ["model", "rate", "sizes", "mean absolute error", "worst trace", "traces"].map(str::to_owned);
    let rows: Vec<Vec<String>> = sums
        .into_iter()
        .map(|((model, rate, variant), (sum, worst, n))| {
            vec![model, rate, variant, format!("{:.4}", sum / n as f64), format!("{worst:.4}"), n.to_string()]
        })
        .collect();
    Ok(table(&heading, &rows))
}

/// `tenure bench --resize`: a row for each workload, over its tenants by their reads.
fn resized(record: &Record) -> anyhow::Result<String> {
    let of_limit = |limit: &str| [format!("{limit}: predicted"), "±".to_owned(), "measured".to_owned()];
    let heading = [
        &["requests", "first limit"].map(str::to_owned)[..],
        &of_limit("half"),
        &of_limit("twice"),
        &["off by, mean", "at most", "worker, of a core"].map(str::to_owned),
    ]
    .concat();
    let mut rows = Vec::new();
    for run in &record.runs {
        let tenants = list(&run.result, "rows")?;
        let mean = |scale: f64, of: &str| -> anyhow::Result<String> {
            let (mut sum, mut reads) = (0.0, 0.0);
            for row in tenants {
                let weight = if number(row, "scale")? == scale { number(row, "reads")? } else { 0.0 };
                (sum, reads) = (sum + weight * number(row, of)?, reads + weight);
            }
            Ok(format!("{:.4}", sum / reads))
        };
        let mut cells = vec![run.label.clone(), format!("{:.0} MB", number(&run.result, "maxmemory_bytes")? / 1e6)];
        for scale in [0.5, 2.0] {
            cells.extend([mean(scale, "predicted")?, mean(scale, "apart")?, mean(scale, "measured")?]);
        }
        cells
            .extend([number(&run.result, "off_mean")?, number(&run.result, "off_max")?].map(|off| format!("{off:.4}")));
        cells.push(format!("{:.1} %", 100.0 * number(&run.result, "worker_share")?));
        rows.push(cells);
    }
    Ok(table(&heading, &rows))
}

fn tiers(record: &Record) -> anyhow::Result<String> {
    let heading =
        ["accesses", "places", "fast", "throughput / all fast", "with the modelled slow tier", "hits of fast memory"]
            .map(str::to_owned);
    let mut rows = Vec::new();
    for run in &record.runs {
        for row in list(&run.result, "rows")? {
            rows.push(vec![
                text(row, "accesses")?.to_owned(),
                text(row, "system")?.to_owned(),
                format!("{:.0} %", number(row, "fast")? * 100.0),
                spread(row, "throughput_ratio")?,
                spread(row, "throughput_ratio_modelled")?,
                spread(row, "fast_hit_ratio").unwrap_or_else(|_| "–".to_owned()),
            ]);
        }
    }
    Ok(table(&heading, &rows))
}

/// `tenure bench --workload slots`: a row for each number of primaries and way to find a key's node.
fn slots(record: &Record) -> anyhow::Result<String> {
    let heading = ["primaries", "clients", "redirects / request", "requests/s", "the busiest node allows, requests/s"]
        .map(str::to_owned);
    let mut rows = Vec::new();
    for run in &record.runs {
        for row in list(&run.result, "rows")? {
            rows.push(vec![
                number(row, "n_primaries")?.to_string(),
                text(row, "route")?.to_owned(),
                short(number(row, "redirects")?),
                short(number(row, "throughput_per_s")?),
                short(1e6 / number(row, "cpu_us_busiest")?),
            ]);
        }
    }
    Ok(table(&heading, &rows))
}

fn loss(record: &Record) -> anyhow::Result<String> {
    let heading =
        ["way", "scenario", "runs", "acknowledged", "lost", "runs with a loss", "most in one"].map(str::to_owned);
    let mut rows = Vec::new();
    for run in &record.runs {
        for row in list(&run.result, "rows")? {
            let of = |name: &str| number(row, name).map(|value| value.to_string());
            rows.push(vec![
                text(row, "way")?.to_owned(),
                text(row, "scenario")?.to_owned(),
                of("n_runs")?,
                of("n_acknowledged")?,
                of("n_lost")?,
                of("n_runs_with_loss")?,
                of("n_lost_max")?,
            ]);
        }
    }
    Ok(table(&heading, &rows))
}

fn price(record: &Record) -> anyhow::Result<String> {
    let heading = ["way", "connections", "deep", "writes / stock", "CPU per write / stock", "mean latency, µs"]
        .map(str::to_owned);
    let mut rows = Vec::new();
    for run in &record.runs {
        for row in list(&run.result, "rows")? {
            rows.push(vec![
                text(row, "way")?.to_owned(),
                number(row, "n_connections")?.to_string(),
                number(row, "depth")?.to_string(),
                spread(row, "ratio")?,
                spread(row, "cpu_ratio")?,
                short(number(row, "latency_us_mean.median")?),
            ]);
        }
    }
    Ok(table(&heading, &rows))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::record_of;
    use crate::set::SET;

    #[test]
    fn systems_stand_side_by_side() {
        let row = |system: &str, mean: f64, ratio: f64| {
            let figures = json!({"latency_us_mean": {"median": mean}, "miss_ratio": {"median": 0.25}});
            let against = json!({"median": ratio, "min": ratio, "max": ratio});
            json!({"system": system, "memory": "50%", "figures": figures, "latency_against_first": against})
        };
        let (stock, tenure) = (row("stock", 137.4, 1.0), row("tenure", 80.0, 0.582));
        let of = |tenure: &Value| systems(&record_of("A", json!({"summary": [stock, tenure]}))).unwrap();
        let made = of(&tenure);
        assert!(made.contains("| mean latency, µs | stock | tenure |"), "{made}");
        assert!(made.contains("| A, 50% | 137 | 80.0 (−41.8 %) |"), "{made}");
        assert!(made.contains("| A, 50% | 0.250 | 0.250 |") && !made.contains("over the first"), "{made}");
        let mut by_turns = tenure;
        by_turns["latency_against_first"]["max"] = json!(0.6);
        let made = of(&by_turns);
        assert!(made.contains("| latency over the first's | stock | tenure |"), "{made}");
        assert!(made.contains("| A, 50% | 1.000 | 0.582 (0.582–0.600) |"), "{made}");
    }

    #[test]
    fn tiers_are_named_with_their_division() {
        let row = json!({"system": "sdtmm", "division": "guided", "fast_bytes": 2_000_000, "fast_hit_ratio": 0.8,
            "promotions": 5, "requests": 1000, "throughput_modelled": 0.9});
        let made = simulated_tiers(&record_of("A", json!([row]))).unwrap();
        assert!(made.contains("| A | sdtmm, guided | 2.0 | 0.800 | 0.0050 | 0.900 |"), "{made}");
    }

    #[test]
    fn a_full_cache_is_told_by_load() {
        let one = json!({"median": 0.9, "min": 0.8, "max": 1.0});
        let row = json!({"load": "set-1", "throughput_ratio": one, "cpu_main_ratio": one, "evicted_by_module": 0.65,
            "misses_ratio": null, "ping_us_p999_more": 897.2});
        let made = full(&record_of("A", json!({ "rows": [row] }))).unwrap();
        let cells = "0.900 (0.800–1.000) | 0.900 (0.800–1.000) | 65 % | – | 897";
        assert!(made.contains(&format!("| set-1 | {cells} |")), "{made}");
    }

    #[test]
    fn the_most_that_a_host_took_is_told_where_it_was_noted() {
        let row = |max: f64| json!({"figures": {"taken_by_host": {"median": 0.0, "min": 0.0, "max": max}}});
        let record = record_of("A", json!({ "summary": [row(0.004), row(0.031), {"figures": {}}] }));
        assert_eq!(taken_by_host(&record), Some(0.031));
        assert_eq!(taken_by_host(&record_of("A", json!({ "summary": [{"figures": {}}] }))), None);
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = pairs(&record_of("A", json!({"throughput_ratio": {"median": 1.0}}))).unwrap_err();
        assert_eq!(error.to_string(), "there is no number throughput_ratio.min");
    }

    #[test]
    fn no_line_is_wider_than_a_page() {
        let words = "word ".repeat(100);
        assert!(wrapped(words.trim(), "    ", "      ").iter().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn every_name_is_told_once() {
        let mut names: Vec<&str> = SET.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SET.len());
    }
}
