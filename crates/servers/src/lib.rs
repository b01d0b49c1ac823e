//! Real servers for tests and benchmarks: finds them, starts them on a free port, and notices when they crash.
//!
//! A server comes from the PATH ([`ServerBinary::installed`]) or from a folder of unpacked packages that
//! `scripts/servers` fills ([`ServerBinary::all`]). Nothing here is a mock, and nothing is left behind: each [`Server`]
//! has a temporary folder of its own and dies with the value. Suggested reading order: [`binary`], [`options`],
//! [`server`], [`cluster`].
#![forbid(unsafe_code)]

pub mod binary;
pub mod cluster;
mod lifetime;
mod module;
pub mod options;
pub mod server;
mod wait;

pub use binary::{Loader, Product, ServerBinary};
pub use cluster::Cluster;
pub use module::{clock_path, module_path};
pub use options::{ServerOptions, environment_for_tiers};
pub use server::Server;
pub use wait::{DEADLINE, wait_for};

/// What went wrong, with where and what is allowed in its text.
pub use anyhow::{Error, Result};
