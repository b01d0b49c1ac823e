//! Latencies of one run, recorded by each client on its own and merged; medians and spread over repetitions.
//!
//! Means come from exact sums, percentiles from a histogram with three significant digits. 270 KB per histogram.
//! Beside them each measured request leaves an event of 16 bytes, which a timeline is made of and then forgotten.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::Outcome;
use crate::timeline::Event;
use crate::workload::{Operation, Request, Stream};

/// A histogram for latencies in ns, from 1 ns to 10 minutes, three digits; longer ones count as 10 minutes.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("bounds and digits that the library allows")
}

/// A number of latencies and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// How many.
    pub n: u64,
    /// Their sum in ns.
    pub ns: u64,
}

impl Sum {
    fn add(&mut self, latency_ns: u64) {
        self.n += 1;
        self.ns += latency_ns;
    }

    fn merge(&mut self, other: Sum) {
        self.n += other.n;
        self.ns += other.ns;
    }

    /// Their mean in µs; `None` of nothing.
    pub fn mean_us(&self) -> Option<f64> {
        (self.n > 0).then(|| self.ns as f64 / self.n as f64 / 1000.0)
    }
}

/// What one tenant's requests came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TenantSums {
    /// Reads of one key that hit.
    pub hits: Sum,
    /// Reads of one key that missed, with the backend's part and the write-back.
    pub misses: Sum,
    /// Writes and deletes.
    pub writes: Sum,
    /// Scans and read-modify-writes, whether or not something missed; by the tenant of their first key.
    pub compound: Sum,
    /// Keys read, also by scans.
    pub n_read: u64,
    /// Of these, keys that missed.
    pub n_missed: u64,
}

/// All that one client records, or all clients of a run together.
#[derive(Clone, Debug)]
pub struct Recorder {
    latencies_ns: Histogram<u64>,
    tenants: Vec<TenantSums>,
    events: Vec<Event>,
    n_refused: u64,
}

impl Recorder {
    /// An empty one for `stream`.
    pub fn new(stream: &Stream) -> Self {
        Recorder {
            latencies_ns: latency_histogram(),
            tenants: vec![TenantSums::default(); stream.keys.n_tenants()],
            events: Vec::new(),
            n_refused: 0,
        }
    }

    /// Notes that the request at `index` of the whole stream was sent `late` after it was due and took `latency` from
    /// then on. Of the warm-up nothing is kept.
    pub fn record(&mut self, stream: &Stream, index: usize, late: Duration, latency: Duration, outcome: Outcome) {
        if index < stream.n_warmup {
            return;
        }
        self.events.push(Event::new(index, latency, outcome).late_by(late));
        let latency_ns = latency.as_nanos() as u64;
        let request = &stream.requests[index];
        self.latencies_ns.saturating_record(latency_ns);
        let tenant = &mut self.tenants[first_tenant(stream, request)];
        match (request.operation, outcome.n_missed) {
            (Operation::Read, 0) => tenant.hits.add(latency_ns),
            (Operation::Read, _) => tenant.misses.add(latency_ns),
            (Operation::Write | Operation::Delete, _) => tenant.writes.add(latency_ns),
            (Operation::Scan | Operation::ReadModifyWrite, _) => tenant.compound.add(latency_ns),
        }
        tenant.n_read += u64::from(outcome.n_read);
        tenant.n_missed += u64::from(outcome.n_missed);
        self.n_refused += u64::from(outcome.n_refused);
    }

    /// Takes over what `other`, of the same stream, has recorded.
    pub fn merge(&mut self, other: &Recorder) {
        self.latencies_ns.add(&other.latencies_ns).expect("histograms of the same bounds");
        self.events.extend_from_slice(&other.events);
        for (mine, theirs) in self.tenants.iter_mut().zip(&other.tenants) {
            mine.hits.merge(theirs.hits);
            mine.misses.merge(theirs.misses);
            mine.writes.merge(theirs.writes);
            mine.compound.merge(theirs.compound);
            mine.n_read += theirs.n_read;
            mine.n_missed += theirs.n_missed;
        }
        self.n_refused += other.n_refused;
    }

    /// All measured requests in the order of the stream, which are forgotten here: a comparison keeps many recorders.
    pub fn take_events(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.events);
        events.sort_unstable_by_key(|event| event.request);
        events
    }

    /// Each tenant's sums.
    pub fn tenants(&self) -> &[TenantSums] {
        &self.tenants
    }

    /// All measured requests.
    pub fn total(&self) -> Sum {
        let mut total = Sum::default();
        for tenant in &self.tenants {
            for part in [tenant.hits, tenant.misses, tenant.writes, tenant.compound] {
                total.merge(part);
            }
        }
        total
    }

    /// Keys missed over keys read, in [0, 1]; `None` where nothing was read.
    pub fn miss_ratio(&self) -> Option<f64> {
        let n_read: u64 = self.tenants.iter().map(|tenant| tenant.n_read).sum();
        let n_missed: u64 = self.tenants.iter().map(|tenant| tenant.n_missed).sum();
        (n_read > 0).then(|| n_missed as f64 / n_read as f64)
    }

    /// Writes that the server refused.
    pub fn n_refused(&self) -> u64 {
        self.n_refused
    }

    /// The latency that the share `quantile` of requests does not exceed, in µs.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.latencies_ns.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The distribution as points (µs, share of requests up to it), at most about 300 of them.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        const POINTS: f64 = 300.0;
        let (total, mut seen, mut points) = (self.latencies_ns.len() as f64, 0, Vec::new());
        let mut share_drawn = -1.0;
        for bucket in self.latencies_ns.iter_recorded() {
            seen += bucket.count_since_last_iteration();
            let share = seen as f64 / total;
            if share - share_drawn >= 1.0 / POINTS || share == 1.0 {
                points.push((bucket.value_iterated_to() as f64 / 1000.0, share));
                share_drawn = share;
            }
        }
        points
    }
}

fn first_tenant(stream: &Stream, request: &Request) -> usize {
    stream.keys_of(request).first().map_or(0, |&key| stream.keys.tenant(key))
}

/// A figure over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of `values`; `None` of nothing.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }

    /// The median, and what the true one lies between in 19 of 20 cases: of n values the ranks n/2 ± 0.98 √n, since
    /// above the true one lie as many as a coin drawn n times says. Of few, their smallest and largest.
    pub fn of_median(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let below = (n / 2.0 - 0.98 * n.sqrt()).max(0.0) as usize;
        let whole = Spread::of(values.iter().copied())?;
        Some(Spread { min: values[below], max: values[values.len() - 1 - below], ..whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Workload, WorkloadOptions};

    #[test]
    fn medians_and_spread() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    /// Of 100 values the 41st to the 60th, as a table of the binomial distribution has it.
    #[test]
    fn a_median_lies_closer_than_the_values_do() {
        let of = |n: u32| Spread::of_median((1..=n).rev().map(f64::from));
        assert_eq!(of(100), Some(Spread { median: 50.5, min: 41.0, max: 60.0 }));
        assert_eq!(of(5), Some(Spread { median: 3.0, min: 1.0, max: 5.0 }));
        assert_eq!(of(0), None);
    }

    fn stream(name: &str) -> Stream {
        let options = WorkloadOptions::new(name.parse::<Workload>().unwrap(), 2);
        WorkloadOptions { n_keys: Some(50), n_warmup: Some(100), n_requests: Some(1000), ..options }.generate().unwrap()
    }

    #[test]
    fn two_clients_merge_to_what_one_would_have_recorded() {
        let stream = stream("ycsb-a");
        let (mut one, mut halves) = (Recorder::new(&stream), [Recorder::new(&stream), Recorder::new(&stream)]);
        for (index, request) in stream.requests.iter().enumerate() {
            let read = u32::from(request.operation == Operation::Read);
            let outcome = Outcome { n_read: read, n_missed: read * u32::from(index % 4 == 0), n_refused: 0 };
            let latency = Duration::from_micros(10 + (index % 90) as u64);
            one.record(&stream, index, Duration::ZERO, latency, outcome);
            halves[index % 2].record(&stream, index, Duration::ZERO, latency, outcome);
        }
        let [mut merged, other] = halves;
        merged.merge(&other);
        assert_eq!(merged.tenants(), one.tenants());
        assert_eq!((merged.total(), merged.total().n), (one.total(), 1000));
        assert_eq!(merged.quantile_us(0.99), one.quantile_us(0.99));
        assert_eq!(merged.take_events(), one.take_events());
        assert!(merged.take_events().is_empty());
        assert!((one.miss_ratio().unwrap() - 0.25).abs() < 0.05);
    }

    #[test]
    fn the_warm_up_is_not_kept() {
        let stream = stream("ycsb-c");
        let mut recorder = Recorder::new(&stream);
        let read = Outcome { n_read: 1, ..Outcome::default() };
        recorder.record(&stream, 0, Duration::ZERO, Duration::from_micros(7), read);
        assert_eq!((recorder.total().n, recorder.miss_ratio()), (0, None));
        recorder.record(&stream, 1099, Duration::ZERO, Duration::from_micros(9), read);
        assert_eq!((recorder.total().mean_us(), recorder.miss_ratio()), (Some(9.0), Some(0.0)));
        assert_eq!(recorder.take_events(), [Event::new(1099, Duration::from_micros(9), read)]);
    }

    #[test]
    fn quantiles_and_distribution_agree() {
        let stream = stream("ycsb-c");
        let mut recorder = Recorder::new(&stream);
        for index in 100..1100 {
            let latency = Duration::from_micros(index as u64 - 99);
            recorder.record(&stream, index, Duration::ZERO, latency, Outcome::default());
        }
        for (quantile, us) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1000.0)] {
            assert!((recorder.quantile_us(quantile) / us - 1.0).abs() < 0.002, "{quantile}");
        }
        let points = recorder.distribution();
        assert!(points.len() <= 301 && points.last().unwrap().1 == 1.0);
        assert!(points.iter().all(|&(us, share)| (us / 1000.0 - share).abs() < 0.005));
    }
}
