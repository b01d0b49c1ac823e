//! What a workload with a pace came to: each tenant in peaks and in valleys, and how soon the periodic one is back.
//!
//! A tenant is *back* in a peak from the first request on from which [`WINDOW_REQUESTS`] requests in a row hit at
//! [`FULL_HIT_RATIO`] or more. A tenant whose keys were kept is back after 0 s.

use serde::Serialize;

use crate::statistics::Spread;
use crate::timeline::{Event, Point, first_window, latency_us_mean, miss_ratio, time_s, timeline};
use crate::workload::Stream;
use crate::workload::pace::{Pace, PhaseKind};

/// So many requests of the periodic tenant tell whether it is back.
pub const WINDOW_REQUESTS: usize = 200;

/// The share of them that must hit.
pub const FULL_HIT_RATIO: f64 = 0.95;

/// What a run of a paced workload came to.
#[derive(Clone, Debug, Serialize)]
pub struct Paced {
    /// By tenant.
    pub tenants: Vec<PacedTenant>,
    /// By measured peak.
    pub peaks: Vec<Peak>,
    /// By how much requests were sent later than they were due, in µs.
    pub late_us_mean: f64,
    /// The largest of these.
    pub late_us_max: f64,
}

/// One tenant over the run.
#[derive(Clone, Debug, Serialize)]
pub struct PacedTenant {
    /// Its prefix.
    pub tenant: String,
    /// In all measured peaks together.
    pub peak: PhaseFigures,
    /// In all measured valleys together.
    pub valley: PhaseFigures,
    /// Over time.
    pub timeline: Vec<Point>,
}

/// One tenant in all phases of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// Its requests.
    pub n_requests: u64,
    /// Their mean latency, in µs; `None` of none.
    pub latency_us_mean: Option<f64>,
    /// Keys missed over keys read; `None` where nothing was read.
    pub miss_ratio: Option<f64>,
}

/// One peak, as the periodic tenant sees it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// When it began, in s since the measurement did.
    pub start_s: f64,
    /// How long it was, in s.
    pub length_s: f64,
    /// After how many s the tenant was back; `None` where it was not before the valley.
    pub back_s: Option<f64>,
}

impl Paced {
    /// From the measured `events` of `stream`, in its order, which has the pace `pace`.
    pub fn of(stream: &Stream, pace: &Pace, events: &[Event], n_bins: usize) -> Paced {
        let tenant_of = |event: &Event| stream.keys.tenant(stream.requests[event.request as usize].key);
        let of_tenant = |tenant: usize| -> Vec<Event> {
            events.iter().filter(|event| tenant_of(event) == tenant).copied().collect()
        };
        let tenants = stream.keys.tenants().iter().enumerate().map(|(number, tenant)| {
            let events = of_tenant(number);
            PacedTenant {
                tenant: tenant.name.clone(),
                peak: PhaseFigures::of(pace, PhaseKind::Peak, &events),
                valley: PhaseFigures::of(pace, PhaseKind::Valley, &events),
                timeline: timeline(stream, &events, n_bins),
            }
        });
        let late = || events.iter().map(|event| f64::from(event.late_us));
        Paced {
            tenants: tenants.collect(),
            peaks: peaks(stream, pace, &of_tenant(pace.periodic_tenant)),
            late_us_mean: late().sum::<f64>() / events.len().max(1) as f64,
            late_us_max: late().fold(0.0, f64::max),
        }
    }

    /// The median over the peaks of the time after which the periodic tenant was back, in s; a peak in which it was
    /// not counts with its whole length. `None` where no peak was measured from its start.
    pub fn back_s_median(&self) -> Option<f64> {
        let times = self.peaks.iter().map(|peak| peak.back_s.unwrap_or(peak.length_s));
        Spread::of(times).map(|spread| spread.median)
    }
}

impl PhaseFigures {
    fn of(pace: &Pace, kind: PhaseKind, events: &[Event]) -> PhaseFigures {
        let is_meant = |event: &&Event| pace.phases[pace.phase_of(event.request as usize)].kind == kind;
        let events: Vec<Event> = events.iter().filter(is_meant).copied().collect();
        PhaseFigures {
            n_requests: events.len() as u64,
            latency_us_mean: latency_us_mean(&events),
            miss_ratio: miss_ratio(&events),
        }
    }
}

/// The peaks that were measured from their start, by the events of the periodic tenant.
fn peaks(stream: &Stream, pace: &Pace, events: &[Event]) -> Vec<Peak> {
    let begin_s = pace.due_s(stream.n_warmup);
    let mut peaks = Vec::new();
    for (number, phase) in pace.phases.iter().enumerate() {
        if phase.kind == PhaseKind::Valley || phase.first_request < stream.n_warmup {
            continue;
        }
        let end = pace.phases.get(number + 1).map_or(stream.requests.len(), |next| next.first_request);
        let place = |request: usize| events.partition_point(|event| (event.request as usize) < request);
        let of_peak = &events[place(phase.first_request)..place(end)];
        let start_s = phase.start_s - begin_s;
        let back = first_window(of_peak, WINDOW_REQUESTS, 1.0 - FULL_HIT_RATIO);
        peaks.push(Peak {
            start_s,
            length_s: pace.due_after(phase.first_request, end).as_secs_f64(),
            back_s: back.map(|first| (time_s(stream, pace, &of_peak[first]) - start_s).max(0.0)),
        });
    }
    peaks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Outcome;
    use crate::workload::WorkloadOptions;
    use std::time::Duration;

    /// A period of 2 s to warm up, then three; 4000 requests a second in peaks, every other one of the periodic tenant.
    fn stream() -> Stream {
        let options = WorkloadOptions::new("diurnal".parse().unwrap(), 2);
        WorkloadOptions { n_keys: Some(400), period_s: Some(2.0), ..options }.generate().unwrap()
    }

    /// Every request takes 10 µs when it hits and 1000 µs when it misses, which `misses` decides by the number of the
    /// measured peak and the place in it; all are late by 3 ms.
    fn run(stream: &Stream, misses: impl Fn(usize, usize) -> bool) -> Paced {
        let pace = stream.pace.as_ref().unwrap();
        let event = |index: usize| {
            let phase = pace.phase_of(index);
            let is_periodic = stream.keys.tenant(stream.requests[index].key) == pace.periodic_tenant;
            let place = index - pace.phases[phase].first_request;
            let is_miss = is_periodic && misses(phase / 2 - 1, place);
            let outcome = Outcome { n_read: 1, n_missed: u32::from(is_miss), n_refused: 0 };
            let latency = Duration::from_micros(if is_miss { 1000 } else { 10 });
            Event::new(index, latency, outcome).late_by(Duration::from_millis(3))
        };
        let events: Vec<Event> = (stream.n_warmup..stream.requests.len()).map(event).collect();
        Paced::of(stream, pace, &events, 6)
    }

    #[test]
    fn a_tenant_is_back_when_the_next_requests_hit() {
        // In the first peak the first 800 of 4000 requests miss (400 of them the tenant's), in the second none, in
        // the third all.
        let stream = stream();
        let paced = run(&stream, |peak, place| [place < 800, false, true][peak]);
        let starts: Vec<f64> = paced.peaks.iter().map(|peak| (peak.start_s * 1e6).round() / 1e6).collect();
        assert_eq!(starts, [0.0, 2.0, 4.0]);
        assert!(paced.peaks.iter().all(|peak| (peak.length_s - 1.0).abs() < 1e-9));
        // Of a window's 200 requests ten may miss: back ten requests of its own, 5 ms, before the last miss; and 3 ms
        // late.
        let back: Vec<Option<f64>> = paced.peaks.iter().map(|p| p.back_s.map(|s| (s * 1e4).round() / 1e4)).collect();
        assert_eq!(back, [Some(0.198), Some(0.003), None]);
        assert!((paced.back_s_median().unwrap() - 0.198).abs() < 1e-4);
        assert!((paced.late_us_mean - 3000.0).abs() < 0.01 && (paced.late_us_max - 3000.0).abs() < 0.01);
    }

    #[test]
    fn tenants_are_told_apart_in_peaks_and_valleys() {
        let stream = stream();
        let paced = run(&stream, |peak, _| peak == 2);
        let [steady, periodic] = &paced.tenants[..] else { panic!("two tenants") };
        assert_eq!((steady.tenant.as_str(), periodic.tenant.as_str()), ("s0", "p0"));
        assert_eq!((periodic.peak.n_requests, periodic.valley), (6000, PhaseFigures::default()));
        assert_eq!((steady.peak.n_requests, steady.valley.n_requests), (6000, 6000));
        assert_eq!(steady.valley.miss_ratio, Some(0.0));
        let (mean, ratio) = (periodic.peak.latency_us_mean.unwrap(), periodic.peak.miss_ratio.unwrap());
        assert!((mean - 340.0).abs() < 0.01 && (ratio - 1.0 / 3.0).abs() < 1e-9, "{mean}, {ratio}");
        // Six stretches of a second: the periodic tenant's are the peaks, and what came 3 ms late lies in the next one.
        let full: Vec<f64> = periodic.timeline.iter().filter(|p| p.n_requests > 100).map(|p| p.until).collect();
        assert_eq!(full, [1.0, 3.0, 5.0]);
    }
}
