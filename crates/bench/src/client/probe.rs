//! A probe for stalls: a PING every millisecond on a connection of its own, and how long each answer took.
//!
//! The server answers a PING between two turns of its event loop, so the longest answer shows the longest turn (and the
//! client core's own delays, which is why only figures of one placement are compared).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;

use super::connection::Connection;
use crate::placement::{prefer_this_thread, wait_until, wake_exactly};
use crate::statistics::latency_histogram;

/// The time from one PING to the next.
pub const INTERVAL: Duration = Duration::from_millis(1);

/// Sends PINGs until `stop` is set, and returns their latencies in ns. A PING that is late by more than one interval,
/// because the one before took so long, is sent at once, and the ones between are left out.
///
/// # Errors
/// When the server fails.
pub fn probe(mut connection: Connection, stop: &AtomicBool) -> anyhow::Result<Histogram<u64>> {
    wake_exactly();
    prefer_this_thread();
    let mut latencies_ns = latency_histogram();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        connection.call(&[b"PING"])?;
        latencies_ns.saturating_record(start.elapsed().as_nanos() as u64);
        next = (next + INTERVAL).max(Instant::now());
        wait_until(next);
    }
    Ok(latencies_ns)
}

/// Runs `body` beside a probe of the server on `port`; what it returns, and the PINGs' latencies in ns.
///
/// # Errors
/// Those of `body`, and when the server fails.
pub fn while_pinged<T>(port: u16, body: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Histogram<u64>)> {
    let (connection, stop) = (Connection::open(port)?, AtomicBool::new(false));
    thread::scope(|scope| {
        let pinging = scope.spawn(|| probe(connection, &stop));
        let done = body();
        stop.store(true, Ordering::Relaxed);
        let latencies_ns = pinging.join().ok().context("the probe has panicked")??;
        Ok((done?, latencies_ns))
    })
}
