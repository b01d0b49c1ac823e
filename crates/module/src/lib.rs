//! Tenure in the server: a thin shell around `tenure-core`, loaded as `libtenure.so`.
//!
//! The folders are the loop observe → model → decide → enforce. `observe` sees every command and samples, `worker`
//! models and decides in the background, `enforce` carries the plan out at the end of each turn of the event loop.
//! `tenure` ties them together, `runtime` has the order of things, and `features` plug in there. The server is reached
//! through the crate `tenure-host`. Suggested reading order: `runtime`, `tenure`, `observe`, `worker`, `enforce`,
//! `feature`, `features`, `config`, `commands`, `info`.
#![forbid(unsafe_code)]
// What only features call is there for those that are left out, too: hooks with a condition each would be harder to
// read.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

mod commands;
mod config;
mod counts;
mod enforce;
mod feature;
mod features;
#[cfg(any(feature = "fuzzing", all(test, feature = "default")))]
pub mod fuzzing;
mod hosted;
mod info;
mod observe;
mod rivals;
mod runtime;
mod tenure;
mod wire;
mod worker;

// As modules of this crate know it.
use tenure_host as ffi;

// Unit tests run without a server, whose allocator doesn't exist there, and so does `fuzz/`.
#[cfg(not(any(test, feature = "fuzzing")))]
#[global_allocator]
static ALLOCATOR: ffi::alloc::Counting = ffi::alloc::Counting;

ffi::export_module!(runtime::Runtime);
