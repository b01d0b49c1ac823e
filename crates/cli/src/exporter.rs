//! `tenure exporter`: servers' figures for Prometheus, at `/metrics`.

use std::path::PathBuf;

use anyhow::Result;
use tenure_view::exporter::Exporter;
use tenure_view::http::{Guard, listen};

use crate::connection::ConnectionArguments;
use crate::watching::{password, say_where};

/// The options of `tenure exporter`.
#[derive(clap::Args)]
pub struct Arguments {
    /// HOST:PORT of each server with Tenure; redis://USER:PASSWORD@HOST:PORT where one asks for a password.
    #[arg(value_name = "SERVER", value_delimiter = ',', required = true)]
    servers: Vec<String>,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9122")]
    listen: String,

    /// A file whose first line is the password that scrapes have to give (basic_auth or authorization in Prometheus).
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Tenants of a server that have series of their own; the others together are `overflow`.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1000))]
    tenants_max: u16,
}

/// Runs the subcommand.
///
/// # Errors
/// When an address is none, or nobody can listen where it should.
pub fn run(arguments: &Arguments) -> Result<()> {
    let servers = arguments.connection.to_all(arguments.servers.iter().map(String::as_str))?;
    let mut guard = Guard::open();
    if let Some(file) = &arguments.password_file {
        guard = guard.with_password(password(file)?);
    }
    let listener = listen(&arguments.listen)?;
    say_where(&listener, "metrics", "")?;
    Exporter::new(servers, usize::from(arguments.tenants_max)).serve(listener, guard)
}
