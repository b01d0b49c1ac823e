//! A restart in mid-run: an orderly stop, a start with the same settings, and how soon the cache is as good as it was.
//!
//! The miss ratio before is that of all measured requests before the stop. It is *back* from the first request on
//! from which a window's requests miss at most a tenth more often; a window is a hundredth of the measured requests,
//! though at least 200 and at most 10000. So a cache that lost nothing is back after 0 requests, and chance can bring
//! an empty one back early only by a window's noise.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;
use tenure_servers::Server;

use crate::timeline::{Event, first_window, miss_ratio};
use crate::workload::Stream;

/// A miss ratio of so many times the one before the restart is as good.
const TOLERANCE: f64 = 1.1;

/// What a restart did to the miss ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Restart {
    /// Measured requests before it.
    pub n_requests_before: u64,
    /// Measured requests after it.
    pub n_requests_after: u64,
    /// From SHUTDOWN to the first PONG, in s.
    pub down_s: f64,
    /// Keys missed over keys read, of all measured requests before it; NaN (JSON: null) where nothing was read, as
    /// below.
    pub miss_ratio_before: f64,
    /// The same of the first window after it.
    pub miss_ratio_after: f64,
    /// Requests in a window.
    pub window_requests: usize,
    /// After so many requests the miss ratio was back; `None` where it was not at the end of the run.
    pub n_requests_until_back: Option<u64>,
    /// By how much the misses after it exceed those that the ratio before would have made.
    pub n_misses_extra: f64,
}

impl Restart {
    /// Of a restart before the request at `restarted_at` of `stream`, from its measured `events` in order.
    pub fn of(stream: &Stream, events: &[Event], restarted_at: usize, down: Duration) -> Restart {
        let (before, after) = events.split_at(events.partition_point(|event| (event.request as usize) < restarted_at));
        let window_requests = (stream.n_measured() / 100).clamp(200, 10_000).min(after.len().max(1));
        let ratio = |events: &[Event]| miss_ratio(events).unwrap_or(f64::NAN);
        let miss_ratio_before = ratio(before);
        let back = first_window(after, window_requests, miss_ratio_before * TOLERANCE);
        let misses = |event: &Event| f64::from(event.n_missed) - f64::from(event.n_read) * miss_ratio_before;
        Restart {
            n_requests_before: before.len() as u64,
            n_requests_after: after.len() as u64,
            down_s: down.as_secs_f64(),
            miss_ratio_before,
            miss_ratio_after: ratio(&after[..window_requests.min(after.len())]),
            window_requests,
            n_requests_until_back: back.map(|n| n as u64),
            n_misses_extra: after.iter().map(misses).sum(),
        }
    }

    /// After how many requests the miss ratio was back; where it was not, all there were.
    pub fn requests_until_back(&self) -> f64 {
        self.n_requests_until_back.unwrap_or(self.n_requests_after) as f64
    }
}

/// Stops `server` by SHUTDOWN NOSAVE and starts it again with all its settings as they are now; returns how long it
/// was away.
///
/// # Errors
/// When it does not stop or start in order, or its settings cannot be kept.
pub fn restart(server: &mut Server) -> anyhow::Result<Duration> {
    let reply: String = server.call(&["CONFIG", "REWRITE"]).context("the settings cannot be kept over the restart")?;
    ensure!(reply == "OK", "CONFIG REWRITE was answered by {reply}");
    let stopped_at = Instant::now();
    server.restart().context("the server does not restart")?;
    Ok(stopped_at.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Outcome;
    use crate::workload::WorkloadOptions;

    /// 20000 measured requests, so a window of 200; every tenth misses before the restart at half of them, and after
    /// it those that `misses` says, by their number since.
    fn restart_of(misses: impl Fn(usize) -> bool) -> Restart {
        let options = WorkloadOptions::new("ycsb-c".parse().unwrap(), 1);
        let stream = WorkloadOptions { n_warmup: Some(500), n_requests: Some(20_000), ..options }.generate().unwrap();
        let event = |place: usize| {
            let is_miss = if place < 10_000 { place.is_multiple_of(10) } else { misses(place - 10_000) };
            let outcome = Outcome { n_read: 1, n_missed: u32::from(is_miss), n_refused: 0 };
            Event::new(500 + place, Duration::from_micros(5), outcome)
        };
        let events: Vec<Event> = (0..20_000).map(event).collect();
        Restart::of(&stream, &events, 10_500, Duration::from_secs(2))
    }

    #[test]
    fn a_cache_that_lost_nothing_is_back_at_once() {
        let restart = restart_of(|n| n.is_multiple_of(10));
        assert_eq!((restart.n_requests_before, restart.n_requests_after, restart.down_s), (10_000, 10_000, 2.0));
        assert_eq!((restart.miss_ratio_before, restart.miss_ratio_after, restart.window_requests), (0.1, 0.1, 200));
        assert_eq!((restart.n_requests_until_back, restart.n_misses_extra.abs() < 1e-6), (Some(0), true));
    }

    #[test]
    fn an_empty_cache_is_back_when_it_has_filled() {
        // The first 1000 all miss, then every tenth. A window may have 22 misses: at request 998 it has the last 2
        // and 20 more.
        let restart = restart_of(|n| n < 1000 || n.is_multiple_of(10));
        assert_eq!((restart.miss_ratio_after, restart.n_requests_until_back), (1.0, Some(998)));
        assert!((restart.n_misses_extra - 900.0).abs() < 1e-6, "{}", restart.n_misses_extra);
    }

    #[test]
    fn a_cache_that_is_not_back_in_time_counts_with_all_requests() {
        let restart = restart_of(|n| n.is_multiple_of(8));
        assert_eq!((restart.n_requests_until_back, restart.requests_until_back()), (None, 10_000.0));
        let restart = restart_of(|n| n < 9900);
        assert_eq!(restart.n_requests_until_back, None, "less than a window is too little to tell");
    }
}
