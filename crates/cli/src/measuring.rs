//! What the subcommands that run for long share: they stop when they are told to, and leave their report in a folder.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use tenure_bench::report::write_file;

use crate::print;

/// True from the first of these signals on.
///
/// # Errors
/// When the system doesn't let a signal be handled.
pub fn told_to_stop(signals: &[i32]) -> Result<Arc<AtomicBool>> {
    let is_told = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        signal_hook::flag::register(signal, Arc::clone(&is_told)).context("signals cannot be handled")?;
    }
    Ok(is_told)
}

/// Writes a report for programs and for people into `folder`, which is made where it isn't there.
///
/// # Errors
/// When a file can't be written.
pub fn write_report(folder: &Path, json: &str, table: &str) -> Result<()> {
    write_file(folder, "report.json", json)?;
    write_file(folder, "report.txt", table)
}

/// Prints the report as JSON, or as a table and where its files are.
///
/// # Errors
/// When standard output can't be written.
pub fn print_report(folder: &Path, json: &str, table: &str, as_json: bool) -> Result<()> {
    match as_json {
        true => print(&format!("{json}\n")),
        false => print(&format!("{table}\nwritten to {}\n", folder.display())),
    }
}
