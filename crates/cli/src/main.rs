//! The command-line tool `tenure`: one file per subcommand, and one exit.
//!
//! Results go to standard output, progress and errors to standard error. Exit code 0 is success (a reader that closed
//! the pipe is one), 1 a failure, 2 bad usage.
#![forbid(unsafe_code)]

mod bench;
mod cluster;
mod connection;
mod dashboard;
mod exporter;
mod measuring;
mod mrc;
mod pages;
mod plan;
mod progress;
mod replies;
mod simulate;
mod status;
mod top;
mod torture;
mod trace_args;
mod watching;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Memory management for Valkey and Redis by what a miss costs: models, simulation, benchmark.
#[derive(Parser)]
#[command(name = "tenure", version, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs systems side by side on the same requests and reports latency, misses, throughput and cost.
    Bench(Box<bench::Arguments>),
    /// Serves as a cluster on this machine, with the module on every node, until Ctrl-C.
    Cluster(Box<cluster::Arguments>),
    /// Serves a page with what a server, or a cluster, does, live.
    Dashboard(Box<dashboard::Arguments>),
    /// Serves what servers say to Prometheus.
    Exporter(Box<exporter::Arguments>),
    /// Predicts the miss ratio at each memory size from a trace.
    Mrc(Box<mrc::Arguments>),
    /// Writes the manual's pages and the shells' completions into a folder, for packages.
    #[command(hide = true)]
    Pages(Box<pages::Arguments>),
    /// Says what memory a tenant takes for a miss ratio: on a server, in a cluster, or by a trace.
    Plan(Box<plan::Arguments>),
    /// Kills primaries and counts what is lost, or measures what it costs to lose nothing (tenure.replies).
    Replies(Box<replies::Arguments>),
    /// Replays a trace under several policies and memory sizes.
    Simulate(Box<simulate::Arguments>),
    /// Says what Tenure does on a server, or on all primaries of a cluster together.
    Status(Box<status::Arguments>),
    /// Shows what a server, or a cluster, does in a terminal, live.
    Top(Box<top::Arguments>),
    /// Checks what a server's reads return, beside writes of its own.
    Torture(Box<torture::Arguments>),
}

fn main() -> ExitCode {
    // clap exits with 2 on bad usage and with 0 after --help.
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Cluster(arguments) => cluster::run(&arguments),
        Command::Dashboard(arguments) => dashboard::run(&arguments),
        Command::Exporter(arguments) => exporter::run(&arguments),
        Command::Mrc(arguments) => mrc::run(&arguments),
        Command::Pages(arguments) => pages::run(&arguments, Arguments::command()),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Replies(arguments) => replies::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Torture(arguments) => torture::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        // Some options contradict each other only when all are known.
        Err(error) if error.is::<clap::Error>() => {
            eprint!("{error}");
            ExitCode::from(2)
        }
        Err(error) => {
            let said = sentence(&error);
            eprintln!("error: {said}");
            if let Some(hint) = hint(&said) {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Writes a result to standard output, where `println!` would panic when the reader has gone.
fn print(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()?;
    Ok(())
}

/// What went wrong and why, each cause once: many errors say their cause's text in their own.
fn sentence(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if !said.last().is_some_and(|last| last.contains(&cause)) {
            said.push(cause);
        }
    }
    said.join(": ")
}

/// What to try, where what the server or the TLS library says isn't plain.
const HINTS: [(&str, &str); 4] = [
    ("NOAUTH", "give the password in VALKEYCLI_AUTH, with --auth-file, or in redis://USER:PASSWORD@HOST:PORT"),
    ("no connection: Connection reset", "does that port speak TLS? Then say --tls"),
    ("UnknownIssuer", "--cacert names a file with the certificate of who signed the server's"),
    (
        "CaUsedAsEndEntity",
        "the server shows an authority's own certificate (CA:TRUE): give it one that is signed with that, or say \
         --insecure",
    ),
];

fn hint(said: &str) -> Option<&'static str> {
    HINTS.iter().find(|(text, _)| said.contains(text)).map(|(_, hint)| *hint)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let refused = || redis::RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error = Err::<(), _>(refused()).context("127.0.0.1:1: no connection").unwrap_err();
        assert_eq!(sentence(&error), "127.0.0.1:1: no connection: connection refused");
        let error = anyhow::anyhow!("size is negative").context("trace.csv:1042").context("replay");
        assert_eq!(sentence(&error), "replay: trace.csv:1042: size is negative");
        assert_eq!(hint(&sentence(&error)), None);
    }
}
