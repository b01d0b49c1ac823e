//! `tenure torture`: reads of a server are checked, for a minute, against what they may be.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tenure_servers::{ServerBinary, module_path};
use tenure_torture::disturb::Disturbance;
use tenure_torture::ordeal::Ordeal;
use tenure_torture::{Outcome, Progress, Torture};

use crate::connection::ConnectionArguments;
use crate::print;

/// The options of `tenure torture`.
#[derive(clap::Args)]
pub struct Arguments {
    /// HOST:PORT of a server. Keys begin with `torture:` and are deleted in the end; other keys may be evicted for
    /// them.
    #[arg(value_name = "SERVER", required_unless_present = "ordeal")]
    server: Option<String>,

    /// Instead of a server: those that are started here (by TENURE_SERVER, else the installed one) and put through
    /// it, each for the duration: aof, rdb, warm (killed and stopped, and back with an append-only file, a snapshot, or
    /// a warm restart alone), failover (a replica takes over, replies wait for it), reshard (slots of a cluster move),
    /// forks (one child after the other saves, rewrites the append-only file, feeds a replica).
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',', conflicts_with = "server")]
    ordeal: Vec<Ordeal>,

    /// For how long.
    #[arg(
        long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    duration: u64,

    /// Clients at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    connections: u64,

    /// Keys of each client.
    #[arg(
        long, value_name = "N", default_value_t = 5000,
        value_parser = clap::value_parser!(u32).range(8..=10_000_000)
    )]
    keys: u32,

    /// The largest value that one write makes.
    #[arg(
        long, value_name = "BYTES", default_value_t = 16_384,
        value_parser = clap::value_parser!(u64).range(16..=1 << 20)
    )]
    value_bytes_max: u64,

    /// What the server is asked for meanwhile: sleep (partitions fall asleep and wake), policy (another one evicts),
    /// enabled (Tenure is turned off and on), save (a child saves), tiers (values move to slow memory and back).
    /// Settings are put back in the end. And flush, which deletes all keys of the server now and then, and databases,
    /// which gives each client two databases that it empties and swaps. Default: nothing; in an ordeal all that it
    /// bears.
    #[arg(long, value_name = "NAME,NAME…", value_delimiter = ',')]
    disturb: Vec<Disturbance>,

    /// Of all draws: the same one sends the same commands.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Runs the subcommand.
///
/// # Errors
/// When the server doesn't answer at the start, or a reply was wrong.
pub fn run(arguments: &Arguments) -> Result<()> {
    let torture = Torture {
        n_clients: arguments.connections as usize,
        n_keys: arguments.keys,
        value_bytes_max: arguments.value_bytes_max as usize,
        seed: arguments.seed,
        duration: Duration::from_secs(arguments.duration),
        disturbances: arguments.disturb.clone(),
        // That would leave a library in somebody's server.
        calls_functions: false,
    };
    if let Some(server) = &arguments.server {
        let server = arguments.connection.to(server)?;
        return tell(arguments, None, |progress| torture.run(&server, progress));
    }
    ensure!(
        arguments.connection == ConnectionArguments::default(),
        "--ordeal starts servers of its own, so it takes none of --user, --auth-file, --tls, --cacert, --cert, --key, \
         --insecure"
    );
    let (binary, module) = (ServerBinary::installed()?, module_path()?);
    let disturbances = match arguments.disturb.is_empty() {
        true => Disturbance::ALL.to_vec(),
        false => torture.disturbances.clone(),
    };
    let torture = Torture { disturbances, ..torture };
    arguments
        .ordeal
        .iter()
        .try_for_each(|ordeal| tell(arguments, Some(*ordeal), |it| ordeal.run(&torture, &binary, &module, it)))
}

/// Runs it beside a bar, and prints what came of it.
fn tell(arguments: &Arguments, ordeal: Option<Ordeal>, run: impl FnOnce(&Progress) -> Result<Outcome>) -> Result<()> {
    let progress = Progress::default();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| show(arguments.duration, &progress));
        let outcome = run(&progress);
        progress.stop();
        outcome
    })?;
    let name = ordeal.map(Ordeal::name);
    let text = if arguments.json { to_json } else { table };
    print(&text(name, arguments.seed, &outcome))?;
    if outcome.n_wrong > 0 {
        bail!("{} replies were wrong (seed {})", outcome.n_wrong, arguments.seed);
    }
    Ok(())
}

/// A bar of seconds on standard error, where that is a terminal, until all have ended.
fn show(seconds: u64, progress: &Progress) {
    let bar = ProgressBar::new(seconds);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos} of {len} s, {msg}") {
        bar.set_style(style);
    }
    while !progress.is_stopped() {
        bar.set_position(bar.elapsed().as_secs().min(seconds));
        bar.set_message(format!("{} commands, wrong: {}", progress.n_commands(), progress.n_wrong()));
        thread::sleep(Duration::from_millis(200));
    }
    bar.finish_and_clear();
}

fn table(ordeal: Option<&str>, seed: u64, outcome: &Outcome) -> String {
    let rows = [
        ("seed", seed),
        ("commands", outcome.n_commands),
        ("reads", outcome.n_reads),
        ("of keys not there", outcome.n_absent),
        ("reconnections", outcome.n_reconnections),
        ("disturbances", outcome.n_disturbances),
        ("wrong", outcome.n_wrong),
    ];
    let mut text = ordeal.map_or(String::new(), |name| {
        format!("{:<18} {name:>12}\n{:<18} {:>12}\n", "ordeal", "faults", outcome.n_faults)
    });
    text.extend(rows.iter().map(|(name, n)| format!("{name:<18} {n:>12}\n")));
    for what in &outcome.wrong {
        text += &format!("wrong: {what}\n");
    }
    text
}

fn to_json(ordeal: Option<&str>, seed: u64, outcome: &Outcome) -> String {
    let value = json!({
        "ordeal": ordeal,
        "faults": outcome.n_faults,
        "seed": seed,
        "commands": outcome.n_commands,
        "reads": outcome.n_reads,
        "absent": outcome.n_absent,
        "reconnections": outcome.n_reconnections,
        "disturbances": outcome.n_disturbances,
        "wrong": outcome.n_wrong,
        "told": outcome.wrong,
    });
    format!("{value:#}\n")
}
