//! `tenure exporter` as people use it: against real servers under load, seen by a real Prometheus.
//!
//! What isn't installed here is skipped, with a line `SKIPPED: why`; `./test` installs all of it.

mod exporter;
mod http;
mod load;
mod programs;
