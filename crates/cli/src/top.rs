//! `tenure top`: what a server or a cluster does, in a terminal.

use anyhow::Result;

use crate::connection::ConnectionArguments;

/// The options of `tenure top`.
#[derive(clap::Args)]
pub struct Arguments {
    /// HOST:PORT of a server with Tenure, or of any node of a cluster; redis://USER:PASSWORD@HOST:PORT where it asks
    /// for one.
    #[arg(value_name = "SERVER")]
    server: String,

    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Runs the subcommand.
///
/// # Errors
/// When the address is none, or standard output no terminal.
pub fn run(arguments: &Arguments) -> Result<()> {
    tenure_view::top::run(arguments.connection.to(&arguments.server)?)
}
