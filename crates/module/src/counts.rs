//! What was counted before the state that counts now: other tenants, another policy, or Tenure turned off and on
//! again make fresh state, and counters that a monitor follows go on all the same.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign, Sub};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ffi::info::Value;
use crate::observe::{Counters, origins};

/// Names of tenants, and of partitions, that are kept: whoever sets others for ever doesn't fill memory.
const NAMES_MAX: usize = 1024;

static PAST: Mutex<Totals> = Mutex::new(Totals::new());

/// What is counted for a tenant or a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Reads of one key.
    pub reads: u64,
    /// Writes of one key.
    pub writes: u64,
    /// Deletes of one key.
    pub deletes: u64,
    /// Reads that found nothing.
    pub misses: u64,
    /// The same by where they come from, in the order of [`origins::NAMES`].
    pub origins: [u64; origins::NAMES.len()],
    /// Time from misses to their answers, in µs.
    pub miss_us: u64,
    /// Misses of keys that Tenure had evicted shortly before.
    pub regret_misses: u64,
    /// How long before, all together, in seconds.
    pub regret_seconds: u64,
    /// What they cost, in µs.
    pub regret_us: u64,
    /// Keys evicted.
    pub evictions: u64,
}

impl Counted {
    /// What these have counted.
    pub fn of(counters: &Counters, evictions: u64) -> Self {
        let Counters { reads, writes, deletes, misses, origins, miss_us, .. } = *counters;
        Counted {
            reads,
            writes,
            deletes,
            misses,
            origins: origins.misses,
            miss_us: miss_us as u64,
            regret_misses: origins.regret_misses,
            regret_seconds: origins.regret_seconds as u64,
            regret_us: origins.regret_us as u64,
            evictions,
        }
    }

    /// Mean time from an eviction to the miss that is to be regretted for it, in seconds; 0 without.
    pub fn regret_seconds_mean(&self) -> f64 {
        self.regret_seconds as f64 / self.regret_misses.max(1) as f64
    }

    /// Where misses come from and what they cost, as INFO and TENURE.TENANTS name it.
    pub fn of_misses(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let by_origin = origins::NAMES.into_iter().zip(self.origins.map(Value::Count));
        by_origin.chain([
            ("miss_us", Value::Count(self.miss_us)),
            ("regret_misses", Value::Count(self.regret_misses)),
            ("regret_us", Value::Count(self.regret_us)),
            ("regret_seconds_mean", Value::Number(self.regret_seconds_mean())),
        ])
    }

    /// Misses / reads; 0 without reads.
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.reads.max(1) as f64
    }

    fn with(self, other: Counted, op: fn(u64, u64) -> u64) -> Self {
        Counted {
            reads: op(self.reads, other.reads),
            writes: op(self.writes, other.writes),
            deletes: op(self.deletes, other.deletes),
            misses: op(self.misses, other.misses),
            origins: std::array::from_fn(|i| op(self.origins[i], other.origins[i])),
            miss_us: op(self.miss_us, other.miss_us),
            regret_misses: op(self.regret_misses, other.regret_misses),
            regret_seconds: op(self.regret_seconds, other.regret_seconds),
            regret_us: op(self.regret_us, other.regret_us),
            evictions: op(self.evictions, other.evictions),
        }
    }
}

impl Add for Counted {
    type Output = Counted;

    fn add(self, other: Counted) -> Counted {
        self.with(other, u64::saturating_add)
    }
}

impl Sub for Counted {
    type Output = Counted;

    /// What went on growing meanwhile has lost nothing.
    fn sub(self, other: Counted) -> Counted {
        self.with(other, u64::saturating_sub)
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Counted) {
        *self = *self + other;
    }
}

/// All counts at one time, by name.
#[derive(Debug, Default)]
pub struct Totals {
    /// Of all that Tenure and its features do.
    pub fields: BTreeMap<String, u64>,
    /// By tenant.
    pub tenants: BTreeMap<String, Counted>,
    /// By partition.
    pub partitions: BTreeMap<String, Counted>,
}

impl Totals {
    const fn new() -> Self {
        Totals { fields: BTreeMap::new(), tenants: BTreeMap::new(), partitions: BTreeMap::new() }
    }

    /// Totals went from these to `after`: what they have lost by that is past from now on.
    pub fn keep(self, after: &Totals) {
        let past = &mut *all();
        for (name, n) in self.fields {
            let lost = n.saturating_sub(after.fields.get(&name).copied().unwrap_or(0));
            *past.fields.entry(name).or_default() += lost;
        }
        for (held, before, after) in [
            (&mut past.tenants, self.tenants, &after.tenants),
            (&mut past.partitions, self.partitions, &after.partitions),
        ] {
            for (name, counted) in before {
                let lost = counted - after.get(&name).copied().unwrap_or_default();
                if lost != Counted::default() && (held.len() < NAMES_MAX || held.contains_key(&name)) {
                    *held.entry(name).or_default() += lost;
                }
            }
        }
    }
}

fn all() -> MutexGuard<'static, Totals> {
    PAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What of a count is past.
pub fn past(name: &str) -> u64 {
    all().fields.get(name).copied().unwrap_or(0)
}

/// The same of a tenant.
pub fn past_of_tenant(name: &str) -> Counted {
    all().tenants.get(name).copied().unwrap_or_default()
}

/// The same of a partition.
pub fn past_of_partition(name: &str) -> Counted {
    all().partitions.get(name).copied().unwrap_or_default()
}

/// What a feature's field shows while Tenure is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What was counted.
    Total,
    /// 0.
    Count,
    /// The state.
    Text,
}

static NAMES: Mutex<Vec<(String, Kind)>> = Mutex::new(Vec::new());

/// Features report fields of these names.
pub fn keep_names(names: Vec<(String, Kind)>) {
    *NAMES.lock().unwrap_or_else(PoisonError::into_inner) = names;
}

/// Of which names features have reported fields.
pub fn names_of_features() -> Vec<(String, Kind)> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Frees all that is kept, before the module is unloaded.
pub fn forget() {
    *all() = Totals::new();
    keep_names(Vec::new());
}

/// A value with what of it is past.
pub fn with_past(value: Value, name: &str) -> Value {
    match value {
        Value::Total(n) => Value::Total(n + past(name)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_anew_is_kept_and_what_goes_on_is_not_counted_twice() {
        let totals = |evicted: u64, accesses: u64, reads: u64| Totals {
            fields: [("evicted".to_owned(), evicted), ("asked".to_owned(), accesses)].into(),
            tenants: [("a".to_owned(), Counted { reads, ..Counted::default() })].into(),
            ..Totals::new()
        };
        totals(10, 5, 7).keep(&totals(0, 6, 0));
        totals(3, 9, 2).keep(&Totals::new());
        assert_eq!((past("evicted"), past("asked"), past("other")), (13, 9, 0));
        assert_eq!((past_of_tenant("a").reads, past_of_tenant("b").reads), (9, 0));
        forget();
        assert_eq!(past("evicted"), 0);
    }
}
