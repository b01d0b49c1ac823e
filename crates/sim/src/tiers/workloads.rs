//! Workloads like those of Wang's dissertation (2024) sec. 5.2.3 and 5.2.4, made here, smaller: by default 50,000
//! keys and 500,000 reads a tenant, where the dissertation has 10 million and 100 million, the same ratio of ten
//! reads a key. A value is 324 bytes, its mean size in sec. 5.2.7.
//!
//! Ranks are drawn exactly in proportion to 1 / rank^α by bisection in the cumulative sum, and scattered over the
//! keys by their hash. Tenants take turns.
//!
//! Two more are for policies. One has tenants like four of Twitter's clusters (sec. 4.2.3.1), made from the statistics
//! that were published of them. The other is a loop followed by popularity that moves on: DLRU (MEMSYS'20) sec. 4.3.3
//! has a phase that likes random eviction and one that likes LRU.

use std::fmt;
use std::str::FromStr;

use tenure_core::access::Access;
use tenure_core::random::Random;
use tenure_core::units::{KeyHash, TenantId};

/// Key and value, in bytes.
const SIZE_BYTES: u32 = 324;
/// The larger size of the phase-changing case.
const LARGE_BYTES: u32 = 4096;

/// What is accessed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// YCSB C: reads, Zipfian with this α.
    Zipf(f64),
    /// YCSB E: scans of a length up to the number of keys, from keys of this α.
    Scan(f64),
    /// α = 0.9, first on one end of the key space, then on the other; sizes of 324 bytes, or 4 KiB.
    TwoPhases {
        /// 4 KiB.
        large: bool,
    },
    /// Two tenants: α = 0.8 and 1.2.
    TwoTenants,
    /// Four: one scans, the others have α = 0.5, 0.99 and 1.2.
    FourTenants,
    /// Two tenants of α = 0.8 and 1.2 that change places halfway.
    ChangingTenants,
    /// Four, as the clusters of `TWITTER`.
    TwitterTenants,
    /// The keys one after another, then a few popular ones, which others take the place of.
    LoopThenDrift,
}

/// A cluster of the published statistics of Twitter's caches (twitter/cache-trace, stat/2020Mar.md).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cluster {
    alpha: f64,
    /// Key and value, the mean.
    size_bytes: u32,
    /// Distinct keys / requests.
    cold_share: f64,
    /// Keys that are accessed once / distinct keys.
    once_share: f64,
}

/// Clusters 4, 29, 34 and 54, the four tenants of sec. 4.2.3.1. Writes, times to live and the spread of sizes are left
/// out.
const TWITTER: [Cluster; 4] = [
    Cluster { alpha: 1.1004, size_bytes: 67 + 2439, cold_share: 0.0377, once_share: 0.2933 },
    Cluster { alpha: 1.2323, size_bytes: 36 + 799, cold_share: 0.0445, once_share: 0.2304 },
    Cluster { alpha: 1.1401, size_bytes: 33 + 322, cold_share: 0.0203, once_share: 0.0026 },
    Cluster { alpha: 1.611, size_bytes: 19 + 246, cold_share: 0.1025, once_share: 0.5483 },
];

impl Workload {
    /// Those of two tiers, with the skews of the dissertation.
    pub const OF_TIERS: [Workload; 10] = [
        Workload::Zipf(0.5),
        Workload::Zipf(0.8),
        Workload::Zipf(0.99),
        Workload::Zipf(1.2),
        Workload::Scan(0.99),
        Workload::TwoPhases { large: false },
        Workload::TwoPhases { large: true },
        Workload::TwoTenants,
        Workload::FourTenants,
        Workload::ChangingTenants,
    ];

    /// Those for policies.
    const OF_POLICIES: [Workload; 2] = [Workload::TwitterTenants, Workload::LoopThenDrift];

    /// How many tenants it has.
    pub fn tenants(self) -> usize {
        match self {
            Workload::TwoTenants | Workload::ChangingTenants => 2,
            Workload::FourTenants | Workload::TwitterTenants => 4,
            _ => 1,
        }
    }

    /// Its accesses: `reads` of each tenant over `keys` keys of each.
    pub fn accesses(self, keys: u64, reads: u64, seed: u64) -> Vec<Access> {
        let size_of = |tenant: u16| match self {
            Workload::TwoPhases { large: true } => LARGE_BYTES,
            Workload::TwitterTenants => TWITTER[usize::from(tenant)].size_bytes,
            _ => SIZE_BYTES,
        };
        let access = |(tenant, number): (u16, u64)| {
            let key = KeyHash::of_number(u64::from(tenant) << 40 | number);
            Access { tenant: TenantId(tenant), ..Access::read(key, size_of(tenant)) }
        };
        self.keys(keys, reads, seed).into_iter().map(access).collect()
    }

    /// The same as tenants and their keys' numbers from 0, for who makes requests of its own of them.
    pub fn keys(self, keys: u64, reads: u64, seed: u64) -> Vec<(u16, u64)> {
        let keys = keys.max(1);
        let mut random = Random::new(seed);
        let zipf = |alpha| Stream::Zipf(Zipf::new(keys, alpha));
        let half = reads / 2;
        let mut streams: Vec<[Stream; 2]> = match self {
            Workload::Zipf(alpha) => vec![[zipf(alpha), zipf(alpha)]],
            Workload::Scan(alpha) => vec![[Stream::scan(keys, alpha), Stream::scan(keys, alpha)]],
            Workload::TwoPhases { .. } => vec![[zipf(0.9), Stream::FromTheEnd(Zipf::new(keys, 0.9))]],
            Workload::TwoTenants => vec![[zipf(0.8), zipf(0.8)], [zipf(1.2), zipf(1.2)]],
            Workload::ChangingTenants => vec![[zipf(0.8), zipf(1.2)], [zipf(1.2), zipf(0.8)]],
            Workload::FourTenants => vec![
                [Stream::scan(keys, 0.99), Stream::scan(keys, 0.99)],
                [zipf(0.5), zipf(0.5)],
                [zipf(0.99), zipf(0.99)],
                [zipf(1.2), zipf(1.2)],
            ],
            Workload::TwitterTenants => TWITTER
                .map(|cluster| [Stream::cluster(cluster, reads, 0), Stream::cluster(cluster, reads, reads)])
                .to_vec(),
            Workload::LoopThenDrift => {
                vec![[Stream::Loop { keys, at: 0 }, Stream::Drift { popular: Zipf::new(keys, 0.9), at: 0 }]]
            }
        };
        let mut numbers = Vec::with_capacity(reads as usize * streams.len());
        for i in 0..reads {
            for (tenant, phases) in streams.iter_mut().enumerate() {
                numbers.push((tenant as u16, phases[usize::from(i >= half)].next(&mut random)));
            }
        }
        numbers
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Zipf(alpha) => write!(f, "zipf:{alpha}"),
            Workload::Scan(alpha) => write!(f, "scan:{alpha}"),
            Workload::TwoPhases { large: false } => f.write_str("two-phases"),
            Workload::TwoPhases { large: true } => f.write_str("two-phases-4k"),
            Workload::TwoTenants => f.write_str("two-tenants"),
            Workload::FourTenants => f.write_str("four-tenants"),
            Workload::ChangingTenants => f.write_str("changing-tenants"),
            Workload::TwitterTenants => f.write_str("twitter-tenants"),
            Workload::LoopThenDrift => f.write_str("loop-then-drift"),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Workload::OF_TIERS.into_iter().chain(Workload::OF_POLICIES);
        if let Some(known) = all.find(|workload| workload.to_string() == text) {
            return Ok(known);
        }
        let alpha = |text: &str| text.parse::<f64>().ok().filter(|alpha| (0.0..=4.0).contains(alpha));
        let parsed = match text.split_once(':') {
            Some(("zipf", skew)) => alpha(skew).map(Workload::Zipf),
            Some(("scan", skew)) => alpha(skew).map(Workload::Scan),
            _ => None,
        };
        let named = Workload::OF_TIERS.iter().skip(5).chain(&Workload::OF_POLICIES);
        let names: Vec<String> = named.map(Workload::to_string).collect();
        parsed
            .ok_or_else(|| format!("workload '{text}' is none of zipf:SKEW, scan:SKEW (0 to 4), {}", names.join(", ")))
    }
}

/// Ranks from 0, the hottest.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(keys: u64, alpha: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-alpha);
            sum
        });
        Zipf { cumulative: cumulative.collect() }
    }

    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        let at = random.unit() * self.cumulative.last().copied().unwrap_or(0.0);
        self.cumulative.partition_point(|&sum| sum < at).min(self.cumulative.len() - 1) as u64
    }
}

/// Numbers of keys.
#[derive(Clone, Debug)]
enum Stream {
    Zipf(Zipf),
    /// The highest number is the hottest.
    FromTheEnd(Zipf),
    /// From a key on, so many more.
    Scan {
        starts: Zipf,
        at: u64,
        left: u64,
    },
    /// Popular keys, and so many in a million requests that come once.
    Cluster {
        popular: Zipf,
        once_in_million: u64,
        n_once: u64,
    },
    Loop {
        keys: u64,
        at: u64,
    },
    /// Who is popular moves on by a key every [`DRIFT_REQUESTS`] requests.
    Drift {
        popular: Zipf,
        at: u64,
    },
}

/// Requests after which a key that was popular isn't any more.
const DRIFT_REQUESTS: u64 = 10;

impl Stream {
    /// As many keys that come again as `reads` of it have; those that come once are numbered from `n_once` on.
    fn cluster(cluster: Cluster, reads: u64, n_once: u64) -> Stream {
        let Cluster { alpha, cold_share, once_share, .. } = cluster;
        let popular = Zipf::new((reads as f64 * cold_share * (1.0 - once_share)) as u64 + 1, alpha);
        Stream::Cluster { popular, once_in_million: (cold_share * once_share * 1e6) as u64, n_once }
    }

    fn scan(keys: u64, alpha: f64) -> Stream {
        Stream::Scan { starts: Zipf::new(keys, alpha), at: 0, left: 0 }
    }

    fn next(&mut self, random: &mut Random) -> u64 {
        match self {
            Stream::Zipf(zipf) => zipf.next(random),
            Stream::FromTheEnd(zipf) => zipf.cumulative.len() as u64 - 1 - zipf.next(random),
            Stream::Scan { starts, at, left } => {
                let keys = starts.cumulative.len() as u64;
                if *left == 0 {
                    *at = starts.next(random);
                    *left = 1 + random.below(keys);
                }
                let number = *at % keys;
                (*at, *left) = (*at + 1, *left - 1);
                number
            }
            Stream::Cluster { popular, once_in_million, n_once } => {
                if random.below(1_000_000) >= *once_in_million {
                    return popular.next(random);
                }
                *n_once += 1;
                popular.cumulative.len() as u64 + *n_once
            }
            Stream::Loop { keys, at } => {
                *at += 1;
                *at % *keys
            }
            Stream::Drift { popular, at } => {
                *at += 1;
                (popular.next(random) + *at / DRIFT_REQUESTS) % popular.cumulative.len() as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for workload in Workload::OF_TIERS.into_iter().chain(Workload::OF_POLICIES) {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        assert_eq!("zipf:0.7".parse(), Ok(Workload::Zipf(0.7)));
        assert!(["zipf", "zipf:9", "zipf:x", "", "two"].iter().all(|text| text.parse::<Workload>().is_err()));
    }

    /// α = 1 over 3 keys: shares of 6, 3 and 2 elevenths.
    #[test]
    fn ranks_are_drawn_in_proportion() {
        let (zipf, mut random) = (Zipf::new(3, 1.0), Random::new(1));
        let mut counts = [0_u32; 3];
        (0..110_000).for_each(|_| counts[zipf.next(&mut random) as usize] += 1);
        for (count, expected) in counts.into_iter().zip([60_000.0, 30_000.0, 20_000.0]) {
            assert!((f64::from(count) / expected - 1.0).abs() < 0.02, "{counts:?}");
        }
    }

    #[test]
    fn tenants_take_turns_and_phases_change() {
        let accesses = Workload::FourTenants.accesses(100, 50, 1);
        assert_eq!((accesses.len(), accesses[6].tenant, Workload::FourTenants.tenants()), (200, TenantId(2), 4));
        let phases = Workload::TwoPhases { large: true }.accesses(1_000, 20_000, 1);
        let share = |part: &[Access], number| {
            let key = KeyHash::of_number(number);
            part.iter().filter(|access| access.key == key).count() * 100 / part.len()
        };
        let (first, second) = phases.split_at(10_000);
        assert!(share(first, 0) > 5 && share(second, 999) > 5 && share(first, 999) == 0);
        assert_eq!(phases[0].size_bytes, 4096);
    }

    /// Cluster 54: a tenth of the requests bring a new key, and half of these come once. Fewer of the popular ones are
    /// seen than there are, since the rare ones are drawn late.
    #[test]
    fn clusters_have_their_sizes_and_their_new_keys() {
        let accesses = Workload::TwitterTenants.accesses(1, 20_000, 1);
        let of_last: Vec<&Access> = accesses.iter().filter(|access| access.tenant == TenantId(3)).collect();
        let distinct = of_last.iter().map(|access| access.key).collect::<std::collections::HashSet<_>>().len();
        assert_eq!((accesses.len(), of_last[0].size_bytes), (80_000, 265));
        assert!((1_100..2_050).contains(&distinct), "{distinct}");
    }

    #[test]
    fn a_loop_comes_first_and_popularity_moves_on_then() {
        let keys = Workload::LoopThenDrift.keys(1_000, 20_000, 1);
        assert!(keys[..10_000].windows(2).all(|pair| pair[1].1 == (pair[0].1 + 1) % 1_000));
        let most = |part: &[(u16, u64)]| (0..1_000).max_by_key(|n| part.iter().filter(|key| key.1 == *n).count());
        assert_ne!(most(&keys[10_000..11_000]), most(&keys[19_000..]));
    }

    /// Of a scan that is not cut, each key follows the one before.
    #[test]
    fn a_scan_goes_from_key_to_key() {
        let (mut stream, mut random) = (Stream::scan(1_000, 0.99), Random::new(1));
        let numbers: Vec<u64> = (0..10_000).map(|_| stream.next(&mut random)).collect();
        let follows = numbers.windows(2).filter(|pair| pair[1] == (pair[0] + 1) % 1_000).count();
        assert!(follows > 9_900, "{follows}");
    }
}
