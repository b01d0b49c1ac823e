//! `tenure dashboard`: a page with what a server does, live.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tenure_view::http::{Guard, listen, random_token};

use crate::connection::ConnectionArguments;
use crate::watching::{password, say_where};

/// The options of `tenure dashboard`.
#[derive(clap::Args)]
pub struct Arguments {
    /// HOST:PORT of a server with Tenure, or of any node of a cluster; redis://USER:PASSWORD@HOST:PORT where it asks
    /// for one.
    #[arg(value_name = "SERVER")]
    server: String,

    #[command(flatten)]
    connection: ConnectionArguments,

    /// Where to listen. Beyond this machine the page asks for a password, or for the token in the address that is
    /// printed.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: String,

    /// A file whose first line is the password that browsers are asked for; any user name will do.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// A name that browsers know this machine by, beside its addresses and localhost; may be given several times.
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// When the address is none, or nobody can listen where it should.
pub fn run(arguments: &Arguments) -> Result<()> {
    let server = arguments.connection.to(&arguments.server)?;
    let password = arguments.password_file.as_deref().map(password).transpose()?;
    let listener = listen(&arguments.listen)?;
    let is_local = listener.local_addr().context("the listener has no address")?.ip().is_loopback();
    let mut guard = Guard::own_names(arguments.name.clone());
    let mut query = String::new();
    if let Some(password) = password {
        guard = guard.with_password(password);
    } else if !is_local {
        let token = random_token()?;
        query = format!("?token={token}");
        guard = guard.with_token(token);
    }
    say_where(&listener, "", &query)?;
    tenure_view::dashboard::run(listener, guard, server)
}
