//! What the benches share: a clock that neighbours on a shared machine don't move.

use std::time::Instant;

/// The time that this thread has had a processor, where the system tells it (Linux), else the time that passed.
pub enum ProcessorTime {
    /// At a reading of the thread's own clock, in ns.
    Scheduled(f64),
    /// At this moment.
    Passed(Instant),
}

impl ProcessorTime {
    /// The present reading.
    pub fn now() -> Self {
        scheduled_ns().map_or_else(|| ProcessorTime::Passed(Instant::now()), ProcessorTime::Scheduled)
    }

    /// What has gone since, in ns.
    pub fn elapsed_ns(&self) -> f64 {
        match self {
            ProcessorTime::Scheduled(began_ns) => scheduled_ns().unwrap_or(*began_ns) - began_ns,
            ProcessorTime::Passed(began) => began.elapsed().as_nanos() as f64,
        }
    }
}

fn scheduled_ns() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
