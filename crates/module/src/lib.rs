//! Tenure in the server: a thin shell around `tenure-core`, loaded as `libtenure.so`.
//!
//! The loop observe → model → decide → enforce is the folders: `observe` sees every command and samples, `worker` models and
//! decides in the background, `enforce` carries the plan out at the end of each turn of the event loop; `tenure` ties them
//! together, `runtime` says in which order things are done, and `features` plug in there. `ffi` holds all unsafe code. Suggested
//! reading order: `runtime`, `tenure`, `observe`, `worker`, `enforce`, `feature`, `features`, `config`, `commands`, `info`, `ffi`.
#![deny(unsafe_code)]

mod commands;
mod config;
mod counts;
mod enforce;
mod feature;
mod features;
mod ffi;
mod info;
mod observe;
mod runtime;
mod tenure;
mod worker;
