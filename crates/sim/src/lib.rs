//! Trace readers, replay under any policy, and what an offline policy could have reached at best.
//!
//! The decisions are the core's; this crate feeds them a trace and counts. Suggested reading order: [`trace`] (a file
//! in, accesses out), [`costs`] (what a miss costs), [`replay`] (one policy, one trace), [`policies`] (the table of
//! them), [`grid`] (many at once), [`offline`], [`bound`] and [`belady`] (knowing the future), [`ladder`] (all of it,
//! in one comparison), [`tiers`] (two tiers of memory).
#![forbid(unsafe_code)]

pub mod belady;
pub mod bound;
pub mod costs;
pub mod foo;
pub mod grid;
pub mod ladder;
mod lives;
pub mod offline;
pub mod policies;
pub mod replay;
pub mod settings;
pub mod streams;
pub mod tiers;
pub mod trace;
