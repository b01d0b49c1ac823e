//! `tenure pages`, for packages: the manual's pages and the shells' completions, made of the options as they are.

use std::fs::create_dir_all;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap_complete::Shell;

/// The options of `tenure pages`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder to write to: `man/*.1`, `tenure.bash`, `_tenure`, `tenure.fish`.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// When the folder can't be written to.
pub fn run(arguments: &Arguments, mut command: clap::Command) -> Result<()> {
    let folder = &arguments.folder;
    let manual = folder.join("man");
    create_dir_all(&manual).with_context(|| format!("{}: cannot be made", manual.display()))?;
    // `tenure-status.1`, as `man tenure-status` and `man tenure status` look for it.
    clap_mangen::generate_to(command.clone().disable_help_subcommand(true), &manual)
        .with_context(|| format!("{}: cannot be written to", manual.display()))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "tenure", folder)
            .with_context(|| format!("{}: cannot be written to", folder.display()))?;
    }
    Ok(())
}
