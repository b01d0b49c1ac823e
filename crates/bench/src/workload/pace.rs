//! When requests are due, where a workload has a pace of its own: peaks and valleys in turn, each at an even rate.
//!
//! A request is sent when it is due, or as soon as a connection is free after that; how late it was is noted. So a
//! server that is slow for a while is asked no less, as long as there are connections enough. Times count from the
//! start of the stream and cost nothing per request.

use std::time::Duration;

/// How busy the periodic tenant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseKind {
    /// It is asked for.
    Peak,
    /// It is silent.
    Valley,
}

/// A stretch of the stream at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Peak or valley.
    pub kind: PhaseKind,
    /// The request that it begins with.
    pub first_request: usize,
    /// When that one is due, in s.
    pub start_s: f64,
    /// Requests per second, of all tenants together; above 0.
    pub rate_per_s: f64,
}

/// When each request of a stream is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// In order; the first begins with request 0 at 0 s.
    pub phases: Vec<Phase>,
    /// From the start of one peak to the next, in s.
    pub period_s: f64,
    /// The tenant that is silent in valleys.
    pub periodic_tenant: usize,
}

impl Pace {
    /// The phase, by its number, that `request` belongs to. O(log phases).
    pub fn phase_of(&self, request: usize) -> usize {
        self.phases.partition_point(|phase| phase.first_request <= request).saturating_sub(1)
    }

    /// When `request` is due, in s.
    pub fn due_s(&self, request: usize) -> f64 {
        let phase = &self.phases[self.phase_of(request)];
        phase.start_s + (request - phase.first_request) as f64 / phase.rate_per_s
    }

    /// How long after the request `earlier` the one at `request` is due.
    pub fn due_after(&self, earlier: usize, request: usize) -> Duration {
        Duration::from_secs_f64((self.due_s(request) - self.due_s(earlier)).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_evenly_within_each_phase() {
        let phase = |kind, first_request, start_s, rate_per_s| Phase { kind, first_request, start_s, rate_per_s };
        let phases = vec![phase(PhaseKind::Peak, 0, 0.0, 10.0), phase(PhaseKind::Valley, 20, 2.0, 4.0)];
        let pace = Pace { phases, period_s: 4.0, periodic_tenant: 0 };
        for (request, number, due_s) in [(0, 0, 0.0), (5, 0, 0.5), (20, 1, 2.0), (22, 1, 2.5), (40, 1, 7.0)] {
            assert_eq!((pace.phase_of(request), pace.due_s(request)), (number, due_s));
        }
        assert_eq!(pace.due_after(5, 22), Duration::from_secs(2));
    }
}
