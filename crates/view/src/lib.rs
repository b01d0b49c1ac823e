//! Servers with Tenure, to look at: what they say of themselves, read once and shown in several ways.
//!
//! Owns the way from a server's words (`INFO tenure`, `TENURE.*`) to figures; leaves out where they are printed, which is the
//! tool's. Suggested reading order: [`nodes`], [`plan`].
#![forbid(unsafe_code)]

pub mod nodes;
pub mod plan;
