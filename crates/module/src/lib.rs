//! Tenure in the server: a thin shell around `tenure-core`, loaded as `libtenure.so`.
//!
//! The loop observe → model → decide → enforce is the folders: `observe` sees every command and samples, `worker` models and
//! decides in the background, `enforce` carries the plan out at the end of each turn of the event loop; `tenure` ties them
//! together. `ffi` holds all unsafe code. Suggested reading order: `tenure`, `observe`, `worker`, `enforce`, `cluster`, `config`, `commands`,
//! `info`, `ffi`.
#![deny(unsafe_code)]

mod cluster;
mod commands;
mod config;
mod enforce;
mod ffi;
mod info;
mod observe;
mod tenure;
mod worker;
