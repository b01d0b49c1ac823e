//! One measurement, run: its commands' JSON with the machine, versions, commit and settings that gave it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::set::{Length, Measurement};

/// Where pages and JSON lie, from the root of the working copy.
pub const FOLDER: &str = "docs/results";

/// What was measured, as kept in docs/results/NAME.json.
#[derive(Debug, Deserialize, Serialize)]
pub struct Record {
    /// As in the set.
    pub name: String,
    /// `quick` or `full`.
    pub length: String,
    /// The day, in UTC.
    pub date: String,
    /// The commit of the working copy; with `+` where files were changed.
    pub commit: String,
    /// Processor, number of cores, memory, distribution.
    pub machine: String,
    /// What was run, and what each command said.
    pub runs: Vec<Run>,
}

/// One command and its JSON.
#[derive(Debug, Deserialize, Serialize)]
pub struct Run {
    /// What tells its rows from those of other commands.
    pub label: String,
    /// As a reader would type it; `TRACES` stands for the folder of traces.
    pub command: String,
    /// What it printed, without what tables don't use.
    pub result: Value,
    /// How it went, where that is drawn: a line for each system at each memory size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_run: Vec<OverRun>,
}

/// Latency and misses of one system over its first repetition.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct OverRun {
    /// As `--systems` has it.
    pub system: String,
    /// As `--memory` has it.
    pub memory: String,
    /// Where each stretch ends (requests or seconds), its mean latency in µs and its miss ratio, with spaces between
    /// them; `-` for none. One text a stretch keeps the file short.
    pub stretches: Vec<String>,
}

impl OverRun {
    /// What `tenure bench` told of each system's first repetition; nothing where it told nothing.
    fn of(result: &Value) -> Vec<OverRun> {
        let runs = result.get("runs").and_then(Value::as_array).into_iter().flatten();
        let first = runs.filter(|run| run["repetition"] == 0);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
        let stretch = |point: &Value| {
            format!(
                "{:.0} {} {}",
                point["until"].as_f64().unwrap_or_default(),
                point["latency_us_mean"].as_f64().map_or_else(|| "-".to_owned(), |us| format!("{us:.1}")),
                number(&point["miss_ratio"])
            )
        };
        first
            .map(|run| OverRun {
                system: text(&run["system"]),
                memory: text(&run["memory"]),
                stretches: run["timeline"].as_array().into_iter().flatten().map(stretch).collect(),
            })
            .collect()
    }

    /// The stretches as numbers: until, latency, miss ratio; NaN for none.
    pub fn points(&self) -> Vec<[f64; 3]> {
        let point = |line: &String| {
            let mut numbers = line.split(' ').map(|word| word.parse().unwrap_or(f64::NAN));
            [(); 3].map(|()| numbers.next().unwrap_or(f64::NAN))
        };
        self.stretches.iter().map(point).collect()
    }
}

/// Runs all commands of a measurement.
///
/// # Errors
/// A command that can't be run, fails, or prints no JSON.
pub fn measure(one: &Measurement, length: Length, tool: &Path, traces: Option<&Path>) -> anyhow::Result<Record> {
    let mut runs = Vec::new();
    for (label, arguments) in one.commands(length) {
        eprintln!("    tenure {arguments}");
        let mut result = run(tool, &arguments, traces)?;
        let over_run = if one.over_run.is_some() { OverRun::of(&result) } else { Vec::new() };
        trim(&mut result);
        runs.push(Run { label, result, command: format!("tenure {arguments}"), over_run });
    }
    Ok(Record {
        name: one.name.to_owned(),
        length: length.name().to_owned(),
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        commit: commit()?,
        machine: machine(),
        runs,
    })
}

fn run(tool: &Path, arguments: &str, traces: Option<&Path>) -> anyhow::Result<Value> {
    let folder = traces.map(|path| path.display().to_string()).unwrap_or_default();
    let words = arguments.split(' ').map(|word| word.replace("TRACES", &folder));
    let output = Command::new(tool).args(words).arg("--json").stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{} can't be run: cargo build --release", tool.display()))?;
    if !output.status.success() {
        bail!("tenure {arguments}: {}", output.status);
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("tenure {arguments} printed no JSON"))
}

/// Takes out lists of single runs behind medians, and of single rungs behind means, which no table shows.
fn trim(result: &mut Value) {
    match result {
        Value::Object(fields) => {
            for long in ["runs", "pairs", "timeline", "bins", "rungs"] {
                if fields.get(long).is_some_and(Value::is_array) {
                    fields.remove(long);
                }
            }
            fields.values_mut().for_each(trim);
        }
        Value::Array(items) => items.iter_mut().for_each(trim),
        Value::Number(number) => {
            // Four significant digits are more than a table shows, and keep the files short.
            if let Some(value) = number.as_f64().filter(|_| number.is_f64()) {
                let short: f64 = format!("{value:.4e}").parse().unwrap_or(value);
                *result = serde_json::json!(short);
            }
        }
        _ => {}
    }
}

impl Record {
    /// The file of a measurement.
    fn path(name: &str) -> PathBuf {
        Path::new(FOLDER).join(format!("{name}.json"))
    }

    /// Reads what was measured last; `None` where nothing was.
    ///
    /// # Errors
    /// A file that can't be read, or isn't a record.
    pub fn read(name: &str) -> anyhow::Result<Option<Record>> {
        let path = Record::path(name);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&fs::read_to_string(&path)?)?))
    }

    /// Writes it in place of what was measured before.
    ///
    /// # Errors
    /// A file that can't be written.
    pub fn write(&self) -> anyhow::Result<()> {
        fs::write(Record::path(&self.name), serde_json::to_string_pretty(self)? + "\n")
            .context("docs/results can't be written")
    }

    /// How many commits have changed these paths since; `None` where none has, or where git doesn't know. Where the
    /// commit is gone, as after a rebase, it is that which brought the record.
    pub fn commits_since(&self, paths: &[&str]) -> Option<usize> {
        let measured = self.commit.trim_end_matches('+');
        let mut known = Command::new("git");
        known.args(["merge-base", "--is-ancestor", measured, "HEAD"]);
        let since = match text_of(&mut known) {
            Some(_) => measured.to_owned(),
            None => {
                text_of(Command::new("git").args(["log", "-1", "--format=%H", "--"]).arg(Record::path(&self.name)))?
            }
        };
        let mut command = Command::new("git");
        command.args(["rev-list", "--count", &format!("{since}..HEAD"), "--"]).args(paths);
        let said = text_of(&mut command)?;
        said.parse().ok().filter(|&n| n > 0)
    }
}

/// The commit of the working copy.
fn commit() -> anyhow::Result<String> {
    let id = text_of(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))
        .context("this is no git working copy")?;
    let changed = text_of(Command::new("git").args([
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        "crates",
        "Cargo.lock",
    ]));
    Ok(if changed.is_some_and(|list| !list.is_empty()) { id + "+" } else { id })
}

fn text_of(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// This machine in a few words; no name of it.
fn machine() -> String {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once([':', '=']).map_or("unknown", |(_, value)| value).trim().trim_matches('"').to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kib: f64 = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0.0);
    let processor = field("/proc/cpuinfo", "model name");
    format!("{cores} cores of {processor}, {:.0} GB, {}", kib / 1e6, field("/etc/os-release", "PRETTY_NAME"))
}

/// A record of one run, for tests.
#[cfg(test)]
pub fn record_of(label: &str, result: Value) -> Record {
    let run = Run { label: label.to_owned(), command: "tenure bench".to_owned(), result, over_run: Vec::new() };
    Record {
        name: "x".into(),
        length: "quick".into(),
        date: "2026-01-01".into(),
        commit: "0".into(),
        machine: "m".into(),
        runs: vec![run],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_kept_as_it_went() {
        let point = |ratio: Value| json!({"until": 50.0, "latency_us_mean": 1.234, "miss_ratio": ratio});
        let timeline = [point(json!(0.25)), point(Value::Null)];
        let run = |n: usize| json!({"system": "stock", "memory": "50%", "repetition": n, "timeline": timeline});
        let kept = OverRun::of(&json!({ "runs": [run(0), run(1)] }));
        assert_eq!((kept.len(), &kept[0].stretches[..]), (1, &["50 1.2 0.2500".to_owned(), "50 1.2 -".to_owned()][..]));
        assert_eq!(kept[0].points()[0], [50.0, 1.2, 0.25]);
        assert!(kept[0].points()[1][2].is_nan());
    }

    #[test]
    fn what_is_kept_is_what_tables_show() {
        let mut ladder = json!({ "all": [{ "policy": "lru", "rungs": 432 }], "rungs": [{ "ns_per_request": 183.17 }] });
        trim(&mut ladder);
        assert_eq!(ladder, json!({ "all": [{ "policy": "lru", "rungs": 432 }] }));
        let mut systems = json!([{ "mean_us": 1.234_567, "runs": [{ "seed": 1 }] }]);
        trim(&mut systems);
        assert_eq!(systems, json!([{ "mean_us": 1.2346 }]));
    }
}
