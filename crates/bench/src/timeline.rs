//! How a run went: mean latency, p99 and miss ratio of one stretch of its measured requests after the other.
//!
//! Every measured request leaves an [`Event`] of 16 bytes with the client that sent it, which costs a few ns. What is
//! told over the run is worked out afterwards, from all events in the order of the stream.

use std::time::Duration;

use serde::Serialize;

use crate::client::Outcome;
use crate::workload::Stream;
use crate::workload::pace::Pace;

/// What became of one measured request. 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// Its place in the stream.
    pub request: u32,
    /// How long it took.
    pub latency_us: f32,
    /// By how much it was sent later than it was due; 0 where the workload has no pace.
    pub late_us: f32,
    /// Keys that it read, at most 100.
    pub n_read: u8,
    /// Of these, keys that missed.
    pub n_missed: u8,
}

impl Event {
    /// That the request at `index` took `latency`.
    pub fn new(index: usize, latency: Duration, outcome: Outcome) -> Event {
        let Outcome { n_read, n_missed, .. } = outcome;
        let (request, latency_us) = (index as u32, micros(latency));
        Event { request, latency_us, late_us: 0.0, n_read: n_read as u8, n_missed: n_missed as u8 }
    }

    /// The same, sent `late` after it was due.
    pub fn late_by(self, late: Duration) -> Event {
        Event { late_us: micros(late), ..self }
    }
}

fn micros(duration: Duration) -> f32 {
    (duration.as_secs_f64() * 1e6) as f32
}

/// One stretch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Where it ends: measured requests so far; of a workload with a pace, seconds since the measurement began.
    pub until: f64,
    /// Requests in it.
    pub n_requests: u64,
    /// Their mean latency, in µs; `None` of none.
    pub latency_us_mean: Option<f64>,
    /// 99 % of them took no longer, in µs; `None` of none.
    pub latency_us_p99: Option<f64>,
    /// Keys missed over keys read; `None` where nothing was read.
    pub miss_ratio: Option<f64>,
}

/// Cuts the measured part of `stream` into `n_bins` stretches, of as many requests each, or, where it has a pace, of
/// the same time, and tells what the `events` in each came to. There are no more stretches than measured requests.
pub fn timeline(stream: &Stream, events: &[Event], n_bins: usize) -> Vec<Point> {
    let n_bins = n_bins.min(stream.n_measured());
    match &stream.pace {
        Some(pace) => {
            let end_s = pace.due_after(stream.n_warmup, stream.requests.len()).as_secs_f64();
            cut(events, |event| time_s(stream, pace, event), end_s, n_bins)
        }
        None => {
            let place = |event: &Event| f64::from(event.request) - stream.n_warmup as f64;
            cut(events, place, stream.n_measured() as f64, n_bins)
        }
    }
}

/// When a request of a stream with the pace `pace` was sent, in s since the measurement began.
pub fn time_s(stream: &Stream, pace: &Pace, event: &Event) -> f64 {
    pace.due_after(stream.n_warmup, event.request as usize).as_secs_f64() + f64::from(event.late_us) / 1e6
}

/// Cuts what lies from 0 to `end`; `place` says where an event lies.
fn cut(events: &[Event], place: impl Fn(&Event) -> f64, end: f64, n_bins: usize) -> Vec<Point> {
    let mut bins = vec![Bin::default(); n_bins];
    for event in events {
        let bin = (place(event) * n_bins as f64 / end) as usize;
        bins[bin.min(n_bins - 1)].add(event);
    }
    let until = |bin: usize| (bin + 1) as f64 * end / n_bins as f64;
    bins.into_iter().enumerate().map(|(number, bin)| bin.point(until(number))).collect()
}

/// What a stretch is told from: 4 bytes per request.
#[derive(Clone, Default)]
struct Bin {
    latencies_us: Vec<f32>,
    reads: Reads,
}

impl Bin {
    fn add(&mut self, event: &Event) {
        self.latencies_us.push(event.latency_us);
        self.reads.add(event);
    }

    fn point(mut self, until: f64) -> Point {
        let n = self.latencies_us.len();
        let sum_us: f64 = self.latencies_us.iter().map(|&us| f64::from(us)).sum();
        let rank = (n as f64 * 0.99).ceil() as usize;
        let p99 = rank.checked_sub(1).map(|rank| *self.latencies_us.select_nth_unstable_by(rank, f32::total_cmp).1);
        Point {
            until,
            n_requests: n as u64,
            latency_us_mean: (n > 0).then(|| sum_us / n as f64),
            latency_us_p99: p99.map(f64::from),
            miss_ratio: self.reads.miss_ratio(),
        }
    }
}

/// Keys read, and of these keys missed.
#[derive(Clone, Copy, Default)]
struct Reads {
    n_read: u64,
    n_missed: u64,
}

impl Reads {
    fn add(&mut self, event: &Event) {
        self.n_read += u64::from(event.n_read);
        self.n_missed += u64::from(event.n_missed);
    }

    /// Takes back what was added.
    fn remove(&mut self, event: &Event) {
        self.n_read -= u64::from(event.n_read);
        self.n_missed -= u64::from(event.n_missed);
    }

    fn miss_ratio(self) -> Option<f64> {
        (self.n_read > 0).then(|| self.n_missed as f64 / self.n_read as f64)
    }
}

/// Mean latency in µs; `None` of nothing.
pub fn latency_us_mean(events: &[Event]) -> Option<f64> {
    let sum_us: f64 = events.iter().map(|event| f64::from(event.latency_us)).sum();
    (!events.is_empty()).then(|| sum_us / events.len() as f64)
}

/// Keys missed over keys read; `None` where nothing was read.
pub fn miss_ratio(events: &[Event]) -> Option<f64> {
    let mut reads = Reads::default();
    events.iter().for_each(|event| reads.add(event));
    reads.miss_ratio()
}

/// The first place in `events` from which `n` of them in a row have a miss ratio of at most `miss_ratio_max`.
/// O(events).
///
/// # Panics
/// Where `n` is 0.
pub fn first_window(events: &[Event], n: usize, miss_ratio_max: f64) -> Option<usize> {
    let mut reads = Reads::default();
    events.windows(n).enumerate().find_map(|(place, window)| {
        if place == 0 {
            window.iter().for_each(|event| reads.add(event));
        } else {
            reads.remove(&events[place - 1]);
            reads.add(&window[n - 1]);
        }
        reads.miss_ratio().is_some_and(|ratio| ratio <= miss_ratio_max).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadOptions;

    fn stream(n_requests: usize) -> Stream {
        let options = WorkloadOptions::new("ycsb-c".parse().unwrap(), 1);
        WorkloadOptions { n_warmup: Some(50), n_requests: Some(n_requests), ..options }.generate().unwrap()
    }

    fn event(index: usize, us: u64, n_read: u32, n_missed: u32) -> Event {
        Event::new(index, Duration::from_micros(us), Outcome { n_read, n_missed, n_refused: 0 })
    }

    #[test]
    fn a_point_is_mean_p99_and_miss_ratio_of_its_stretch() {
        // The first 200 take 1 to 200 µs and never miss; the others take 10 µs and miss every fourth time.
        let first = (0..200).map(|i| event(50 + i, i as u64 + 1, 1, 0));
        let events: Vec<Event> = first.chain((200..400).map(|i| event(50 + i, 10, 1, u32::from(i % 4 == 0)))).collect();
        let points = timeline(&stream(400), &events, 2);
        let expected = |until, latency_us_mean, latency_us_p99, miss_ratio| {
            let (latency_us_mean, latency_us_p99) = (Some(latency_us_mean), Some(latency_us_p99));
            let miss_ratio = Some(miss_ratio);
            Point { until, n_requests: 200, latency_us_mean, latency_us_p99, miss_ratio }
        };
        assert_eq!(points, [expected(200.0, 100.5, 198.0, 0.0), expected(400.0, 10.0, 10.0, 0.25)]);
    }

    #[test]
    fn stretches_have_as_many_requests_each_whatever_their_number() {
        let events: Vec<Event> = (0..1000).map(|i| event(50 + i, 5, 1, 0)).collect();
        for n_bins in [1, 7, 100, 300, 1000] {
            let points = timeline(&stream(1000), &events, n_bins);
            let counts: Vec<u64> = points.iter().map(|point| point.n_requests).collect();
            assert_eq!((points.len(), counts.iter().sum::<u64>()), (n_bins, 1000));
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{n_bins}: {counts:?}");
            assert_eq!(points[n_bins - 1].until, 1000.0);
        }
        assert_eq!(timeline(&stream(1000), &events, 5000).len(), 1000);
        let empty = timeline(&stream(1000), &events[500..], 2)[0];
        assert_eq!(
            (empty.n_requests, empty.latency_us_mean, empty.latency_us_p99, empty.miss_ratio),
            (0, None, None, None)
        );
    }

    #[test]
    fn keys_of_scans_count_each_and_writes_not_at_all() {
        assert_eq!(miss_ratio(&[event(0, 1, 8, 1), event(1, 1, 0, 0), event(2, 1, 2, 2)]), Some(0.3));
        assert_eq!(timeline(&stream(10), &[event(50, 1, 0, 0)], 1)[0].miss_ratio, None);
    }

    #[test]
    fn the_first_window_that_is_good_enough_is_found() {
        let events: Vec<Event> = (0..100).map(|i| event(i, 1, 1, u32::from(i < 50 || i == 60))).collect();
        for (n, miss_ratio_max, expected) in
            [(10, 0.0, Some(50)), (11, 0.0, Some(61)), (10, 0.1, Some(49)), (41, 0.0, None)]
        {
            assert_eq!(first_window(&events, n, miss_ratio_max), expected, "{n}, {miss_ratio_max}");
        }
        assert_eq!(first_window(&events, 101, 1.0), None, "there are not so many");
        assert_eq!(first_window(&events, 10, f64::NAN), None);
    }
}
