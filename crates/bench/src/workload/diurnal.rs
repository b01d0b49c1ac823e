//! A periodic tenant beside a steady one: what keeping keys through a valley is worth.
//!
//! Source: pRedis (SoCC'19) sec. 6.4 and figure 16, whose periodic class is in the remote database and pauses from 45
//! to 65 % of the run, while the other goes on; sec. 4: in every peak the same keys are asked for. Here `p0` is
//! accessed in the first half of each period and silent in the second. `s0` is accessed all the time at the same rate:
//! in peaks a fifth of its keys, in valleys all of them. At half of the footprint as memory, a peak's keys (40 %) fit,
//! a valley's (75 %) do not, so that recency gives away all that `p0` had. A peak begins with a pass over all of
//! `p0`'s keys in random order, and others follow; `s0`'s are drawn uniformly. Differs from the paper: many valleys,
//! no thrashing at the end, and synthetic keys of one size.

use super::keys::KeyTable;
use super::pace::{Pace, Phase, PhaseKind};
use super::zipfian::Random;
use super::{Operation, Request, Size, Stream};

/// The prefixes; the first tenant is on the first backend (the local one of MariaDB's two), the second on the second.
const TENANTS: [&str; 2] = ["s0", "p0"];
const STEADY: u16 = 0;
const PERIODIC: u16 = 1;

/// From one peak to the next. Four periods make two minutes.
pub(super) const PERIOD_S: f64 = 30.0;

/// A footprint of about 85 MB: a period of 30 s asks for each key several times.
const N_KEYS: usize = 20_000;
const VALUE_BYTES: u32 = 4000;

/// Of each tenant while it is asked for. The paper's is 4000 on six nodes; this leaves two cores time for the misses.
const RATE_PER_S: f64 = 2000.0;

/// One period warms up, three are measured.
const N_PERIODS_MEASURED: f64 = 3.0;

pub(super) fn size(period_s: f64) -> Size {
    let n_each_period = (3.0 * RATE_PER_S * period_s / 2.0).round();
    Size { n_keys: N_KEYS, n_warmup: n_each_period as usize, n_requests: (n_each_period * N_PERIODS_MEASURED) as usize }
}

pub(super) fn generate(n_backends: usize, size: Size, period_s: f64, seed: u64) -> Stream {
    let mut keys = KeyTable::of_tenants(&TENANTS, n_backends);
    let n_periodic = (size.n_keys / 4).max(1);
    for number in 0..size.n_keys {
        let tenant = if number < n_periodic { PERIODIC } else { STEADY };
        keys.add(number.to_string().as_bytes(), tenant, VALUE_BYTES);
    }
    let n_total = size.n_warmup + size.n_requests;
    let mut draws = Draws { n_periodic, n_keys: size.n_keys, pass: Vec::new(), random: Random::new(seed) };
    let (mut phases, mut requests) = (Vec::new(), Vec::with_capacity(n_total));
    while requests.len() < n_total {
        let kind = if phases.len() % 2 == 0 { PhaseKind::Peak } else { PhaseKind::Valley };
        let rate_per_s = if kind == PhaseKind::Peak { 2.0 * RATE_PER_S } else { RATE_PER_S };
        let start_s = phases.len() as f64 * period_s / 2.0;
        phases.push(Phase { kind, first_request: requests.len(), start_s, rate_per_s });
        let n_phase = (rate_per_s * period_s / 2.0).round().max(1.0) as usize;
        draws.pass.clear();
        requests.extend((0..n_phase.min(n_total - requests.len())).map(|place| draws.next(kind, place)));
    }
    let pace = Some(Pace { phases, period_s, periodic_tenant: usize::from(PERIODIC) });
    Stream { name: "diurnal".into(), keys, requests, scans: Vec::new(), n_warmup: size.n_warmup, pace }
}

/// Where the next key comes from. The periodic tenant's are numbered first.
struct Draws {
    n_periodic: usize,
    n_keys: usize,
    /// What is left of the pass over the periodic tenant's keys.
    pass: Vec<u32>,
    random: Random,
}

impl Draws {
    /// The request at `place` in a phase: in peaks both tenants take turns.
    fn next(&mut self, kind: PhaseKind, place: usize) -> Request {
        let n_steady = self.n_keys - self.n_periodic;
        let key = match kind {
            PhaseKind::Peak if place.is_multiple_of(2) => self.next_of_pass(),
            PhaseKind::Peak => self.steady_of_first(n_steady / 5),
            PhaseKind::Valley => self.steady_of_first(n_steady),
        };
        Request::on(Operation::Read, key, VALUE_BYTES)
    }

    fn steady_of_first(&mut self, n: usize) -> u32 {
        (self.n_periodic as u64 + self.random.below(n.max(1) as u64)) as u32
    }

    fn next_of_pass(&mut self) -> u32 {
        if self.pass.is_empty() {
            self.pass.extend(0..self.n_periodic as u32);
            for last in (1..self.n_periodic).rev() {
                self.pass.swap(last, self.random.below(last as u64 + 1) as usize);
            }
        }
        self.pass.pop().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_default_run_takes_two_minutes() {
        let stream = generate(2, size(PERIOD_S), PERIOD_S, 1);
        let pace = stream.pace.unwrap();
        let end_s = pace.due_s(stream.requests.len());
        assert!((119.9..120.1).contains(&end_s), "{end_s}");
        assert_eq!(pace.phases.len(), 8);
        assert_eq!(pace.due_s(stream.n_warmup), 30.0, "the measurement begins with a peak");
        assert_eq!(pace.phases[pace.phase_of(stream.n_warmup)].kind, PhaseKind::Peak);
    }

    #[test]
    fn the_periodic_tenant_is_asked_for_in_peaks_only_and_for_all_its_keys() {
        let size = Size { n_keys: 1000, ..size(2.0) };
        let stream = generate(2, size, 2.0, 1);
        let pace = stream.pace.as_ref().unwrap();
        assert_eq!((stream.keys.name(0), stream.keys.name(999)), (&b"p0:0"[..], &b"s0:999"[..]));
        assert_eq!((stream.keys.backend(0), stream.keys.backend(999)), (1, 0));
        for (number, phase) in pace.phases.iter().enumerate() {
            let end = pace.phases.get(number + 1).map_or(stream.requests.len(), |next| next.first_request);
            let asked = &stream.requests[phase.first_request..end];
            let keys = asked.iter().map(|request| request.key);
            let (periodic, steady): (Vec<u32>, Vec<u32>) = keys.partition(|&key| stream.keys.tenant(key) == 1);
            let distinct = |keys: &[u32]| keys.iter().collect::<HashSet<_>>().len();
            assert_eq!(steady.len(), 2000, "the steady tenant's rate is always the same");
            if phase.kind == PhaseKind::Peak {
                assert_eq!(distinct(&periodic[..250]), 250, "the first pass reads every key once");
                assert_eq!(distinct(&steady), 150);
            } else {
                assert!(periodic.is_empty());
                assert!((660..=750).contains(&distinct(&steady)), "1 - e^-2.7 of 750 keys");
            }
        }
    }
}
