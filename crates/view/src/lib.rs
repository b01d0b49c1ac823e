//! Servers with Tenure, to look at: what they say of themselves, read once and shown in several ways.
//!
//! Owns the way from a server's words (`INFO tenure`, `TENURE.*`) to figures and to whoever looks at them; leaves out
//! the command line, which is the tool's. Suggested reading order: [`nodes`], [`reading`], [`sampler`], then
//! [`exporter`], [`plan`], [`http`].
#![forbid(unsafe_code)]

pub mod dashboard;
pub mod exporter;
mod history;
pub mod http;
pub mod nodes;
pub mod plan;
pub mod reading;
pub mod sampler;
pub mod sizing;
pub mod summary;
pub mod top;
