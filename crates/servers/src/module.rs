//! Where the libraries lie that were built last: the module, and the clock for benchmarks.

use crate::Result;
use anyhow::{Context, anyhow, bail};
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// File name of the module, as Cargo builds it on Linux.
const MODULE_FILE: &str = "libtenure.so";
/// The same of the faster clock.
const CLOCK_FILE: &str = "libtenure_clock.so";

/// Absolute path of `libtenure.so`: `TENURE_MODULE` when set, else beside the running program.
///
/// The program may be `target/PROFILE/tenure` or a test in `target/PROFILE/deps`. Its own profile is looked at first,
/// where the newer of `target/PROFILE` and `target/PROFILE/deps` wins (`cargo test` builds only the second); then
/// `release` and `debug`.
///
/// # Errors
/// When there is none: the text says where it was looked for and how to build it.
pub fn module_path() -> Result<PathBuf> {
    library_path("TENURE_MODULE", MODULE_FILE)
}

/// Absolute path of `libtenure_clock.so`, which makes a server's wall clock faster: `TENURE_CLOCK` when set, else
/// found as the module is.
///
/// # Errors
/// As [`module_path()`].
pub fn clock_path() -> Result<PathBuf> {
    library_path("TENURE_CLOCK", CLOCK_FILE)
}

fn library_path(variable: &str, file: &str) -> Result<PathBuf> {
    if let Some(given) = env::var_os(variable) {
        let path = PathBuf::from(&given);
        return path.canonicalize().with_context(|| format!("{variable} is {}: no such file", path.display()));
    }
    let program = env::current_exe().context("the path of the running program is unknown")?;
    let program_folder = program.parent().ok_or_else(|| anyhow!("{} lies in no folder", program.display()))?;
    let profile = if program_folder.file_name() == Some(OsStr::new("deps")) {
        program_folder.parent()
    } else {
        Some(program_folder)
    };
    let profile = profile.unwrap_or(program_folder);
    let mut profiles = vec![profile.to_path_buf()];
    profiles.extend(profile.parent().iter().flat_map(|target| [target.join("release"), target.join("debug")]));
    match profiles.iter().find_map(|profile| newest(profile, file)) {
        Some(path) => Ok(path),
        None => bail!(
            "no {file} in {}: build it with `cargo build --release`, or set {variable}",
            profiles.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
        ),
    }
}

fn newest(profile: &Path, file: &str) -> Option<PathBuf> {
    // Of two as new as each other (Cargo links one to the other) the last wins: the one whose place people know.
    let candidates = [profile.join("deps").join(file), profile.join(file)];
    let built_at = |path: &PathBuf| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    candidates.into_iter().filter(|path| built_at(path).is_some()).max_by_key(built_at)
}
