//! `scripts/reproduce`: every figure of docs/results, by name.
//!
//! Owns the command line and the order of things. [`set`] lists the measurements with their commands, [`record`] runs
//! one and keeps what came of it as docs/results/NAME.json, [`tables`] makes markdown of such a file, and [`pages`]
//! puts it between its marks in docs/results/*.md. [`figures`] draws what is drawn, and [`digest`] makes the tables of
//! README and of docs/papers.md ([`papers`]), which have figures of several records. Prose stands around the marks and
//! is written by hand. So no figure is in a page that no JSON has.

#![forbid(unsafe_code)]

mod digest;
mod figures;
mod pages;
mod papers;
mod record;
mod set;
mod tables;

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Parser;

use crate::record::Record;
use crate::set::{Length, Measurement, SET};

/// Measures what docs/results says, by name, and writes its tables.
#[derive(Parser)]
#[command(name = "scripts/reproduce", disable_version_flag = true)]
struct Arguments {
    /// What to measure, by the names that --list shows; none: all.
    names: Vec<String>,
    /// Takes the long versions, with repetitions. Hours in all, where the quick ones take one.
    #[arg(long)]
    full: bool,
    /// Measures nothing; writes the tables anew from the JSON that is there.
    #[arg(long)]
    render: bool,
    /// Measures nothing; fails where a table is not what its JSON gives, or where a figure is older than the code it
    /// measures.
    #[arg(long)]
    check: bool,
    /// Lists the names, and what each shows.
    #[arg(long)]
    list: bool,
    /// The folder of traces of which the commands name some. Default: what TENURE_TRACES says.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// The tool to measure with.
    #[arg(long, default_value = "target/release/tenure", value_name = "PATH")]
    tool: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let chosen = chosen(&arguments.names)?;
    if arguments.list {
        for one in chosen {
            println!("{:<22} {}", one.name, one.shows);
        }
        return Ok(());
    }
    if arguments.check {
        return check(&chosen);
    }
    if !arguments.render {
        measure(&arguments, &chosen)?;
    }
    pages::write_all()
}

/// The measurements of these names, in the order of the set.
fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Measurement>> {
    for name in names {
        if !SET.iter().any(|one| one.name == name) {
            let known: Vec<&str> = SET.iter().map(|one| one.name).collect();
            bail!("there is no measurement '{name}'; there are {}", known.join(", "));
        }
    }
    Ok(SET.iter().filter(|one| names.is_empty() || names.iter().any(|name| name == one.name)).collect())
}

/// Runs each, and goes on where one fails; fails in the end then.
fn measure(arguments: &Arguments, chosen: &[&Measurement]) -> anyhow::Result<()> {
    let traces = arguments.traces.clone().or_else(|| std::env::var_os("TENURE_TRACES").map(PathBuf::from));
    let length = if arguments.full { Length::Full } else { Length::Quick };
    let mut failed = Vec::new();
    for (i, one) in chosen.iter().enumerate() {
        if one.needs_traces && traces.is_none() {
            eprintln!("SKIPPED: {} needs traces: set TENURE_TRACES or --traces", one.name);
            continue;
        }
        eprintln!("[{}/{}] {}: {}", i + 1, chosen.len(), one.name, one.shows);
        match record::measure(one, length, &arguments.tool, traces.as_deref()) {
            Ok(record) => record.write()?,
            Err(error) => {
                eprintln!("error: {}: {error:#}", one.name);
                failed.push(one.name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("not measured: {}", failed.join(", ")) }
}

/// Fails where a page isn't what the JSON gives, or where a figure is older than the code.
fn check(chosen: &[&Measurement]) -> anyhow::Result<()> {
    let mut wrong = pages::outdated()?;
    for one in chosen {
        match Record::read(one.name).with_context(|| format!("docs/results/{}.json", one.name))? {
            None => wrong.push(format!("{}: never measured", one.name)),
            Some(record) => wrong.extend(
                record
                    .commits_since(one.measures)
                    .map(|n| format!("{}: {n} commits have changed what it measures", one.name)),
            ),
        }
    }
    for line in &wrong {
        println!("{line}");
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{} figures or tables are not up to date", wrong.len()) }
}
