//! `tenure exporter`, `dashboard` and `top` as people use them: against real servers under load, seen by a real
//! Prometheus, a real browser, a real terminal.
//!
//! What isn't installed here is skipped, with a line `SKIPPED: why`; `./test` installs all of it.

mod browser;
mod dashboard;
mod exporter;
mod http;
mod load;
mod programs;
mod top;
