//! Tenure's decisions: pure functions and owned state, deterministic, without I/O, clock, threads or globals.
//!
//! The module in the server and the simulator call the same code, so what the simulator predicts is what the server
//! does. Suggested reading order: [`units`], [`access`], [`curve`], [`sampling`], then [`model`] (a stream of
//! accesses in, a curve out), [`decide`] (curves and penalties in, a plan out), [`policy`] (which of a sample of keys
//! goes), [`tiers`] (which of two memories a value lies in).
#![forbid(unsafe_code)]

pub mod access;
pub mod access_ring;
pub mod compact_entries;
pub mod curve;
pub mod decide;
pub mod departure;
pub mod error;
pub mod expiry;
pub mod fetches;
pub mod frequent;
pub mod key_table;
pub mod log_linear;
#[cfg(test)]
mod machines;
pub mod model;
pub mod owner_table;
pub mod policy;
pub mod random;
pub mod sampling;
pub mod slots;
pub mod tiers;
pub mod timeline;
pub mod units;
