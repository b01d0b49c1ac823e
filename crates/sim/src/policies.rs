//! The table of policies. To add one: a file in the core's `policy` folder (or here, if it must know the future), and
//! a line below.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use tenure_core::error::ConfigError;
use tenure_core::policy::Inspect;
use tenure_core::policy::cache::{Cache, KLru};
use tenure_core::policy::density::Density;
use tenure_core::policy::exact_lru::ExactLru;
use tenure_core::policy::gdsf::{self, Gdsf, SampledGdsf};
use tenure_core::policy::kredis::Kredis;
use tenure_core::policy::lfu::Lfu;
use tenure_core::policy::partitioned::PlanConfig;
use tenure_core::policy::predis::{Driver, Predis};
use tenure_core::policy::redis::{self, RedisLru};
use tenure_core::policy::s3fifo::S3Fifo;
use tenure_core::policy::sampled::Sampled;
use tenure_lab::camp::Camp;
use tenure_lab::dlru::Dlru;
use tenure_lab::hyperbolic::{self, Hyperbolic};
use tenure_lab::lhd::Lhd;
use tenure_lab::sieve::Sieve;
use tenure_lab::three_l::ThreeL;
use tenure_lab::tinylfu::{self, SampledTinyLfu, TinyLfu};
use tenure_lab::va_cdh::{self, VaCdh};

use crate::belady::{self, Belady};
use crate::offline::Offline;
use crate::settings::Settings;

/// A policy at work in a cache.
pub trait Policy: Cache + Inspect + Send {}

impl<P: Cache + Inspect + Send> Policy for P {}

/// What a policy is built from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What the cache may hold, in bytes.
    pub capacity_bytes: u64,
    /// The number in the policy's name (`klru:8`), if there was one.
    pub parameter: Option<u32>,
    /// Seed of all that is random.
    pub seed: u64,
    /// How the policies that have settings are set.
    pub settings: Settings,
    /// The future, where the policy has to know it.
    pub offline: Option<Arc<Offline>>,
}

type Built = Result<Box<dyn Policy>, ConfigError>;

/// A line of the table.
pub struct Entry {
    /// What it is called.
    pub name: &'static str,
    /// What a number after a colon means, where one is understood.
    pub parameter: Option<&'static str>,
    /// What it does.
    pub about: &'static str,
    /// True where what it evicts depends on what misses cost.
    pub knows_costs: bool,
    /// True where it must know the future: it can't be replayed from a stream.
    pub offline: bool,
    build: fn(&Setup) -> Built,
}

const K: Option<&str> = Some("values sampled per eviction, 1 to 64");

/// All policies, in the order in which they are listed.
pub const POLICIES: &[Entry] = &[
    online("lru", None, false, "exact least recently used", |s| boxed(Ok(ExactLru::cache(s.capacity_bytes)))),
    online("random", None, false, "a random value", |s| boxed(KLru::new(1, s.capacity_bytes, s.seed))),
    online("klru", K, false, "the least recently used of a sample of K (5)", |s| {
        boxed(KLru::new(s.parameter.unwrap_or(5), s.capacity_bytes, s.seed))
    }),
    online("redis", K, false, "Redis's sample of 5 with a pool of 16", |s| {
        boxed(RedisLru::cache(s.parameter.unwrap_or(redis::SAMPLE_SIZE), s.capacity_bytes, s.seed))
    }),
    online("lfu", None, false, "exact least frequently used since it entered", |s| {
        boxed(Ok(Lfu::cache(s.capacity_bytes)))
    }),
    online("hyperbolic", K, true, "cost × requests / time in the cache, least of a sample of 64", |s| {
        let k = s.parameter.unwrap_or(hyperbolic::SAMPLE_SIZE);
        boxed(Sampled::cache(Hyperbolic { per_size: false }, k, s.capacity_bytes, s.seed))
    }),
    online("hyperbolic-size", K, true, "the same per byte", |s| {
        let k = s.parameter.unwrap_or(hyperbolic::SAMPLE_SIZE);
        boxed(Sampled::cache(Hyperbolic { per_size: true }, k, s.capacity_bytes, s.seed))
    }),
    online("gdsf", None, true, "greedy dual: age + requests × cost / size", |s| {
        boxed(Ok(Gdsf::cache(s.capacity_bytes)))
    }),
    online("gdsf-sampled", K, true, "the same by a sample of K (16), its age a mean of the victims'", |s| {
        boxed(SampledGdsf::cache(s.parameter.unwrap_or(gdsf::SAMPLE_SIZE), s.capacity_bytes, s.seed))
    }),
    online("s3fifo", None, false, "three queues in order of entry", |s| boxed(Ok(S3Fifo::cache(s.capacity_bytes)))),
    online("sieve", None, false, "one queue, and a hand that passes over what was accessed", |s| {
        boxed(Ok(Sieve::cache(s.capacity_bytes)))
    }),
    online(
        "wtinylfu",
        None,
        true,
        "a window before what is asked for more, for its cost, than those it displaces",
        |s| boxed(Ok(TinyLfu::cache(s.capacity_bytes))),
    ),
    online(
        "tinylfu-sampled",
        K,
        true,
        "recent requests × cost / size, least of a sample of K (16) and the newest",
        |s| {
            let k = s.parameter.unwrap_or(tinylfu::SAMPLE_SIZE);
            boxed(SampledTinyLfu::cache(k, s.capacity_bytes, s.seed))
        },
    ),
    online("camp", None, true, "greedy dual: age + cost / size, rounded", |s| boxed(Ok(Camp::cache(s.capacity_bytes)))),
    online("lhd", None, true, "hits per room and time × cost, as learned from hits and evictions by age", |s| {
        boxed(Ok(Lhd::cache(s.capacity_bytes, s.settings.plan.window_requests, s.seed)))
    }),
    online("3l-cache", None, true, "the longest until the next access × size / cost, as a forest predicts", |s| {
        boxed(Ok(ThreeL::cache(s.capacity_bytes, s.settings.plan.window_requests, s.seed)))
    }),
    online("va-cdh", K, true, "what all wait for one fetch, mean and spread, per byte and time; sample of 64", |s| {
        boxed(VaCdh::cache(s.parameter.unwrap_or(va_cdh::SAMPLE_SIZE), s.capacity_bytes, s.seed))
    }),
    online("dlru", None, false, "K-LRU with K chosen by miniature caches", |s| {
        boxed(Ok(Dlru::cache(s.capacity_bytes, s.settings.plan.window_requests, s.seed)))
    }),
    online("predis", K, true, "memory planned by penalty class or tenant, held to as the module does", |s| {
        boxed(Predis::cache(plan(s), Driver::Module, s.capacity_bytes, s.seed))
    }),
    online("predis-paper", K, true, "the same, held to as the paper's driver does", |s| {
        boxed(Predis::cache(plan(s), Driver::Paper, s.capacity_bytes, s.seed))
    }),
    online("kredis", None, true, "memory and K planned by tenant, each evicted from by itself", |s| {
        boxed(Kredis::cache(s.settings.plan, s.capacity_bytes, s.seed))
    }),
    online("tenure", K, true, "Tenure's own: least saved per byte and time, as learned, of a sample of K (10)", |s| {
        boxed(Density::cache(s.settings.density(s.parameter), s.capacity_bytes, s.seed))
    }),
    Entry {
        offline: true,
        ..online("belady", K, true, "knows the future: least saved per byte and time, of a sample of 64", |s| {
            let offline = s.offline.clone().expect("the caller looks ahead for a policy that is offline");
            boxed(Belady::cache(offline, s.parameter.unwrap_or(belady::SAMPLE_SIZE), s.capacity_bytes, s.seed))
        })
    },
];

/// The plan's configuration with the number in the policy's name as K.
fn plan(setup: &Setup) -> PlanConfig {
    let plan = setup.settings.plan;
    PlanConfig { sample_size: setup.parameter.unwrap_or(plan.sample_size), ..plan }
}

const fn online(
    name: &'static str,
    parameter: Option<&'static str>,
    knows_costs: bool,
    about: &'static str,
    build: fn(&Setup) -> Built,
) -> Entry {
    Entry { name, parameter, about, knows_costs, offline: false, build }
}

fn boxed<P: Policy + 'static>(built: Result<P, ConfigError>) -> Built {
    Ok(Box::new(built?))
}

/// A policy as named on the command line: `redis`, `klru:16`, or `bound`, which is no policy but what none can beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyName {
    /// Its line in [`POLICIES`]; `None` for the bound.
    index: Option<usize>,
    parameter: Option<u32>,
}

impl PolicyName {
    /// The offline bound.
    pub const BOUND: PolicyName = PolicyName { index: None, parameter: None };

    /// Its line in the table; `None` for the bound.
    pub fn entry(self) -> Option<&'static Entry> {
        self.index.map(|i| &POLICIES[i])
    }

    /// True where the whole trace must be in memory.
    pub fn is_offline(self) -> bool {
        self.entry().is_none_or(|entry| entry.offline)
    }

    /// True where what it does depends on what misses cost.
    pub fn knows_costs(self) -> bool {
        self.entry().is_none_or(|entry| entry.knows_costs)
    }

    /// Builds the policy; its name's number is taken from the name.
    ///
    /// # Errors
    /// A parameter out of its range.
    ///
    /// # Panics
    /// For the bound, and for an offline policy without a future.
    pub fn build(self, setup: &Setup) -> Built {
        let entry = self.entry().expect("the bound is computed, not replayed");
        (entry.build)(&Setup { parameter: self.parameter, ..setup.clone() })
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "bound" {
            return Ok(PolicyName::BOUND);
        }
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let Some(index) = POLICIES.iter().position(|entry| entry.name == name) else {
            let names: Vec<&str> = POLICIES.iter().map(|entry| entry.name).collect();
            return Err(format!("policy '{text}' is none of {}, bound", names.join(", ")));
        };
        let parameter = match (number, POLICIES[index].parameter) {
            (None, _) => None,
            (Some(_), None) => return Err(format!("policy '{name}' takes no number")),
            (Some(number), Some(meaning)) => {
                let parsed = number.parse::<u32>().ok().filter(|n| (1..=64).contains(n));
                Some(parsed.ok_or_else(|| format!("'{number}' in policy '{text}' is not what it takes: {meaning}"))?)
            }
        };
        Ok(PolicyName { index: Some(index), parameter })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().map_or("bound", |entry| entry.name))?;
        match self.parameter {
            Some(number) => write!(f, ":{number}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_bad_ones_refused() {
        for text in ["lru", "klru:16", "hyperbolic-size:5", "predis-paper", "bound", "belady"] {
            assert_eq!(text.parse::<PolicyName>().unwrap().to_string(), text);
        }
        for text in ["", "LRU", "lru:3", "klru:0", "klru:65", "klru:x", "bound:2", "kredis:1"] {
            assert!(text.parse::<PolicyName>().is_err(), "{text}");
        }
    }
}
