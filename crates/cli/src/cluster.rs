//! `tenure cluster`: a cluster on this machine with the module on every node, to try things out. `./run cluster`
//! calls it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::bail;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tenure_servers::options::quoted;
use tenure_servers::{Cluster, Server, ServerBinary, ServerOptions, module_path, wait_for};

use crate::measuring::told_to_stop;
use crate::print;
use crate::trace_args::parse_size;

/// The options of `tenure cluster`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Port of the first node; the others take those above it.
    #[arg(long, value_name = "N", default_value_t = 7000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// How many primaries share the slots.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    primaries: u16,

    /// How many replicas follow each primary.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=5))]
    replicas: u16,

    /// maxmemory of each node, such as 64mb or 2gb.
    #[arg(long, value_name = "SIZE", default_value = "256mb", value_parser = parse_size)]
    memory: u64,

    /// More settings for all nodes, such as -- --tenure.window-seconds 5 --cluster-node-timeout 2000.
    #[arg(last = true, value_name = "SETTING")]
    settings: Vec<String>,
}

/// Starts the cluster and keeps it until a signal comes or a node ends.
///
/// # Errors
/// When a node or the cluster doesn't start, or a node ends by itself.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let stop = told_to_stop(&[SIGINT, SIGTERM, SIGHUP])?;
    let mut options = ServerOptions { port: Some(arguments.port), ..ServerOptions::default() }
        .with_module(module_path()?)
        .set("maxmemory", arguments.memory)
        .set("maxmemory-policy", "allkeys-lru");
    options.settings.extend(lines(&arguments.settings)?);
    let binary = ServerBinary::installed()?;
    let cluster = Cluster::start(&binary, &options, usize::from(arguments.primaries), usize::from(arguments.replicas))?;
    print(&what_to_try(&cluster))?;
    let has_ended = |node: &Server| !node.is_alive();
    let until = || stop.load(Ordering::Relaxed) || cluster.nodes().iter().any(has_ended);
    while wait_for(Duration::from_secs(60), "the end", until).is_err() {}
    match cluster.nodes().iter().find(|node| has_ended(node) && !stop.load(Ordering::Relaxed)) {
        Some(node) => bail!("the node on port {} has ended; the end of its log:\n{}", node.port(), node.log_tail()),
        None => Ok(()),
    }
}

/// Lines of a configuration file, from words as a server's command line has them: each `--name` begins one.
fn lines(words: &[String]) -> anyhow::Result<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match (word.strip_prefix("--"), lines.last_mut()) {
            (Some(name), _) => lines.push(name.to_string()),
            (None, Some(line)) => *line = format!("{line} {}", quoted(word)),
            (None, None) => bail!("'{word}' is no setting; settings begin with --, as in --tenure.window-seconds 5"),
        }
    }
    Ok(lines)
}

fn what_to_try(cluster: &Cluster) -> String {
    let (first, n_primaries) = (cluster.nodes()[0].port(), cluster.primaries().len());
    let program = if has_program("valkey-cli") { "valkey-cli" } else { "redis-cli" };
    let row = |(i, node): (usize, &Server)| {
        let role = match i.checked_sub(n_primaries) {
            None => "primary".to_string(),
            Some(replica) => format!("replica of {}", cluster.nodes()[replica % n_primaries].port()),
        };
        format!("  127.0.0.1:{}  {role}\n", node.port())
    };
    let nodes: String = cluster.nodes().iter().enumerate().map(row).collect();
    format!(
        "\nTenure serves on a cluster of {} nodes:\n\n{nodes}\nCtrl-C ends all of them, and what they hold is gone. \
         In another terminal:\n\n  \
         {program} -c -p {first}                                connect; -c follows redirects\n  \
         {program} -p {first} TENURE.STATUS                     what one node is doing\n  \
         {program} -p {first} CLUSTER FAILOVER                  on a replica's port: it takes over\n  \
         {program} --cluster reshard 127.0.0.1:{first}          moves slots\n\n",
        cluster.nodes().len()
    )
}

fn has_program(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_lines_of_a_configuration_file() {
        let words = ["--save", "", "--client-output-buffer-limit", "replica", "0 0"].map(str::to_string);
        assert_eq!(lines(&words).unwrap(), ["save \"\"", "client-output-buffer-limit \"replica\" \"0 0\""]);
        assert!(lines(&["x".to_string()]).unwrap_err().to_string().contains("'x'"));
    }
}
