//! The accesses of `tenure simulate --tiers` as requests of a server in which every key is: GETs, and SETs of the same size.
//!
//! Source of the accesses: Wang's dissertation (2024) sec. 5.2, see `tenure_sim::tiers::workloads`. With updates of 0, 5 and 50 % those by skew
//! are YCSB's C, B and A. A scan is here so many GETs of one key after the other. What changes in mid-run does so in the middle of all
//! requests, the warm-up counted, so the measured ones must be more than that.

use std::fmt;
use std::str::FromStr;

use anyhow::{bail, ensure};
use tenure_core::random::Random;
use tenure_sim::tiers::workloads::Workload as Accesses;

use super::keys::{Assignment, KeyTable};
use super::{Operation, Request, Size, Stream};

/// Above the 256 bytes from which on values move.
const VALUE_BYTES: u32 = 1000;
/// Of the dissertation's case of large values.
const VALUE_BYTES_LARGE: u32 = 4096;
/// Four windows of requests before the measurement, eight in it.
pub(super) const SIZE: Size = Size { n_keys: 100_000, n_warmup: 200_000, n_requests: 400_000 };

/// A part of a whole, 0 to 1; 0.05 is written 5%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok()) {
            Some(share) if (0.0..=100.0).contains(&share) => Ok(Share(share / 100.0)),
            _ => bail!("'{text}' is no share from 0% to 100%"),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 10_000.0).round() / 100.0)
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierLoad {
    /// Which keys.
    pub accesses: Accesses,
    /// How many of the requests are SETs.
    pub updates: Share,
    /// Size of all values, in bytes; `None`: 1000, of two-phases-4k 4096.
    pub value_bytes: Option<u32>,
}

impl Default for TierLoad {
    /// YCSB B.
    fn default() -> Self {
        TierLoad { accesses: Accesses::Zipf(0.99), updates: Share(0.05), value_bytes: None }
    }
}

impl TierLoad {
    /// Size of all values, in bytes.
    pub fn value_bytes(&self) -> u32 {
        let by_default = match self.accesses {
            Accesses::TwoPhases { large: true } => VALUE_BYTES_LARGE,
            _ => VALUE_BYTES,
        };
        self.value_bytes.unwrap_or(by_default)
    }

    fn changes(&self) -> bool {
        matches!(self.accesses, Accesses::TwoPhases { .. } | Accesses::ChangingTenants)
    }
}

/// `size` has the keys of each tenant, and the requests of all together.
pub(super) fn generate(load: &TierLoad, size: Size, seed: u64) -> anyhow::Result<Stream> {
    ensure!(
        !load.changes() || size.n_warmup < size.n_requests,
        "{} changes in the middle of all requests: {} of warm-up before {} measured ones hide it",
        load.accesses,
        size.n_warmup,
        size.n_requests
    );
    let (n_tenants, value_bytes) = (load.accesses.tenants(), load.value_bytes());
    let mut keys = KeyTable::new(Assignment::ByTenant, 1);
    let mut random = Random::new(!seed);
    let order = shuffled(size.n_keys, &mut random);
    for tenant in 0..n_tenants {
        for number in &order {
            keys.add(format!("user{number}").as_bytes(), tenant as u16, value_bytes);
        }
    }
    let mut places = vec![0; size.n_keys];
    order.iter().zip(0..).for_each(|(&number, place)| places[number as usize] = place);
    let n_requests = size.n_warmup + size.n_requests;
    let asked = load.accesses.keys(size.n_keys as u64, n_requests.div_ceil(n_tenants) as u64, seed);
    let request = |(tenant, number): (u16, u64)| {
        // `unit` is above 0 and at most 1.
        let operation = if random.unit() <= load.updates.0 { Operation::Write } else { Operation::Read };
        let key = u32::from(tenant) * size.n_keys as u32 + places[number as usize];
        Request::on(operation, key, value_bytes)
    };
    let requests = asked.into_iter().take(n_requests).map(request).collect();
    let name = format!("tiers-{}", load.accesses.to_string().replace(':', "-"));
    Ok(Stream { name, keys, requests, scans: Vec::new(), n_warmup: size.n_warmup, pace: None })
}

/// The numbers from 0 to `n` in an order in which keys are loaded: what is hot must be neither the oldest nor side by side in memory.
fn shuffled(n: usize, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    for last in (1..n).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(accesses: &str, updates: f64, size: Size) -> anyhow::Result<Stream> {
        let load = TierLoad { accesses: accesses.parse().unwrap(), updates: Share(updates), value_bytes: None };
        generate(&load, size, 1)
    }

    const SMALL: Size = Size { n_keys: 1000, n_warmup: 4001, n_requests: 6000 };

    #[test]
    fn shares_are_read_and_bad_ones_refused() {
        for (text, share) in [("0%", 0.0), ("5%", 0.05), ("12.5%", 0.125), ("100%", 1.0)] {
            let read: Share = text.parse().unwrap();
            assert_eq!((read, read.to_string()), (Share(share), text.to_string()));
        }
        for text in ["101%", "-1%", "0.5", "nan%", ""] {
            assert!(text.parse::<Share>().unwrap_err().to_string().contains("0% to 100%"), "{text}");
        }
    }

    #[test]
    fn updates_are_a_share_of_the_requests_for_the_same_keys() {
        let keys = |stream: &Stream| stream.requests.iter().map(|request| request.key).collect::<Vec<_>>();
        let all: Vec<Stream> = [0.0, 0.05, 1.0].map(|updates| stream("zipf:0.99", updates, SMALL).unwrap()).into();
        for (stream, expected) in all.iter().zip([0..=0, 400..=600, 10_001..=10_001]) {
            let n = stream.requests.iter().filter(|request| request.operation == Operation::Write).count();
            assert!(expected.contains(&n), "{n}");
            assert_eq!(keys(stream), keys(&all[0]));
            assert!(stream.requests.iter().all(|request| request.value_bytes == 1000));
        }
    }

    #[test]
    fn tenants_have_keys_of_their_own() {
        let stream = stream("four-tenants", 0.5, SMALL).unwrap();
        assert_eq!((stream.keys.len(), stream.keys.n_tenants(), stream.requests.len()), (4000, 4, 10_001));
        let turns = stream.requests.iter().take(8).map(|request| stream.keys.tenant(request.key));
        assert_eq!(turns.collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
        let mut names: Vec<&[u8]> = (2000..3000).map(|key| stream.keys.name(key)).collect();
        assert!(!names.is_sorted() && names.iter().all(|name| name.starts_with(b"t02:user")));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1000, "each key once");
    }

    #[test]
    fn a_change_must_be_measured() {
        let size = Size { n_warmup: 6000, ..SMALL };
        assert!(stream("two-phases", 0.0, size).unwrap_err().to_string().contains("6000 measured"));
        assert!(stream("zipf:0.8", 0.0, size).is_ok());
        let large = stream("two-phases-4k", 0.0, SMALL).unwrap();
        assert_eq!(large.keys.value_bytes(7), 4096);
        let half = &large.requests[5001..];
        let n = half.iter().filter(|request| large.keys.bare_name(request.key) == b"user999").count();
        assert!(n > 200, "the last key is hot from then on, {n}");
    }
}
