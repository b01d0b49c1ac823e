//! What one server says of itself in one `INFO`: its own figures, and an account of each tenant and partition.
//!
//! What a server doesn't tell isn't there, in place of a zero: an older Tenure doesn't split misses by cause, and has
//! no regret. `INFO` writes 0 for a target where there is no plan and for a maximum that nobody set; both are told
//! apart here.

use std::collections::BTreeMap;

use crate::nodes::Fields;

/// The sections of `INFO` that are read, all with one command.
pub const SECTIONS: &[&str] = &["tenure", "memory", "stats", "replication"];

/// Where misses come from, as the server names them behind `misses_`.
pub const CAUSES: [&str; 5] = ["first", "expired", "evicted", "deleted", "unknown"];

/// What only ever grows while a server runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Reads.
    pub reads: f64,
    /// Reads that found nothing.
    pub misses: f64,
    /// The same by cause, in the order of [`CAUSES`].
    pub causes: [Option<f64>; CAUSES.len()],
    /// Time lost to misses, in µs: in all where the server tells it, else since somebody has been looking.
    pub lost_us: f64,
    /// The same as the server tells it.
    pub told_lost_us: Option<f64>,
    /// Keys evicted.
    pub evictions: f64,
    /// Misses of keys that Tenure had evicted shortly before.
    pub regret_misses: Option<f64>,
    /// What these cost, in µs.
    pub regret_us: Option<f64>,
}

/// A tenant or a partition, on one server or on several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Keys.
    pub keys: f64,
    /// Bytes used.
    pub used_bytes: f64,
    /// Bytes planned; `None` without a plan.
    pub target_bytes: Option<f64>,
    /// Bytes that were stated to be guaranteed to the tenant.
    pub bytes_min: f64,
    /// Of these, what the memory there is allows to guarantee.
    pub bytes_guaranteed: Option<f64>,
    /// Bytes allowed to the tenant; `None` where nobody set a maximum.
    pub bytes_max: Option<f64>,
    /// Mean miss penalty of late, in µs.
    pub penalty_us_mean: f64,
    /// Miss ratio that is predicted for what the partition has; of a tenant not told.
    pub miss_ratio_predicted: Option<f64>,
    /// Keys whose values are on disk.
    pub sleeping_keys: Option<f64>,
    /// What is counted.
    pub counts: Counts,
}

/// A tenant × a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// Its miss-penalty class, `none` where keys have none.
    pub class: String,
    /// Its figures.
    pub account: Account,
}

/// A tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub account: Account,
    /// What it is made of.
    pub partitions: Vec<Partition>,
}

/// One server at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Fields of the server and of Tenure (these begin with `tenure_`).
    pub fields: Fields,
    /// In the server's order.
    pub tenants: Vec<Tenant>,
}

impl Counts {
    /// Adds those of another server, or of another tenant.
    pub fn add(&mut self, other: &Counts) {
        self.reads += other.reads;
        self.misses += other.misses;
        self.lost_us += other.lost_us;
        self.told_lost_us = added(self.told_lost_us, other.told_lost_us);
        self.evictions += other.evictions;
        for (sum, told) in self.causes.iter_mut().zip(other.causes) {
            *sum = added(*sum, told);
        }
        self.regret_misses = added(self.regret_misses, other.regret_misses);
        self.regret_us = added(self.regret_us, other.regret_us);
    }

    /// How much each has grown since `before`, by second; `None` where one has shrunk, for the server began anew.
    pub fn per_second_since(&self, before: &Counts, seconds: f64) -> Option<Counts> {
        if self.reads < before.reads || self.misses < before.misses || self.evictions < before.evictions {
            return None;
        }
        let grown = |now: f64, before: f64| (now - before).max(0.0) / seconds;
        let told = |now: Option<f64>, before: Option<f64>| Some(grown(now?, before?));
        Some(Counts {
            reads: grown(self.reads, before.reads),
            misses: grown(self.misses, before.misses),
            causes: std::array::from_fn(|i| told(self.causes[i], before.causes[i])),
            lost_us: grown(self.lost_us, before.lost_us),
            told_lost_us: told(self.told_lost_us, before.told_lost_us),
            evictions: grown(self.evictions, before.evictions),
            regret_misses: told(self.regret_misses, before.regret_misses),
            regret_us: told(self.regret_us, before.regret_us),
        })
    }

    /// Misses / reads; `None` without reads.
    pub fn miss_ratio(&self) -> Option<f64> {
        (self.reads > 0.0).then(|| self.misses / self.reads)
    }
}

/// The sum of what is told.
fn added(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

impl Account {
    /// Adds that of another server, or of another tenant: bytes and counts add up, penalties are weighed by misses.
    pub fn add(&mut self, other: &Account) {
        let weighed = self.penalty_us_mean * self.counts.misses + other.penalty_us_mean * other.counts.misses;
        self.keys += other.keys;
        self.used_bytes += other.used_bytes;
        self.target_bytes = added(self.target_bytes, other.target_bytes);
        self.bytes_min += other.bytes_min;
        self.bytes_guaranteed = added(self.bytes_guaranteed, other.bytes_guaranteed);
        self.bytes_max = self.bytes_max.zip(other.bytes_max).map(|(a, b)| a + b);
        self.miss_ratio_predicted = None;
        self.sleeping_keys = added(self.sleeping_keys, other.sleeping_keys);
        self.counts.add(&other.counts);
        if self.counts.misses > 0.0 {
            self.penalty_us_mean = weighed / self.counts.misses;
        }
    }

    fn of(told: &BTreeMap<&str, f64>) -> Account {
        let get = |name: &str| told.get(name).copied();
        let or_zero = |name: &str| get(name).unwrap_or(0.0);
        // None of these two is -1, and in an older INFO 0.
        let none = if told.contains_key("bytes_guaranteed") { -1.0 } else { 0.0 };
        let if_any = |name: &str| get(name).filter(|&bytes| bytes > none);
        let misses = or_zero("misses");
        Account {
            keys: or_zero("keys"),
            used_bytes: or_zero("used_bytes"),
            target_bytes: if_any("target_bytes"),
            bytes_min: or_zero("bytes_min"),
            bytes_guaranteed: get("bytes_guaranteed"),
            bytes_max: if_any("bytes_max"),
            penalty_us_mean: or_zero("penalty_us_mean"),
            miss_ratio_predicted: get("miss_ratio_predicted"),
            sleeping_keys: get("sleeping_keys"),
            counts: Counts {
                reads: get("reads").unwrap_or_else(|| or_zero("hits") + misses),
                misses,
                causes: CAUSES.map(|cause| get(&format!("misses_{cause}"))),
                lost_us: 0.0,
                told_lost_us: get("miss_us"),
                evictions: or_zero("evictions"),
                regret_misses: get("regret_misses"),
                regret_us: get("regret_us"),
            },
        }
    }
}

impl Reading {
    /// Reads what `INFO` has answered.
    pub fn parse(info: &str) -> Reading {
        let mut reading = Reading::default();
        for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim_end();
            let is_account = value.contains('=');
            if let Some(tenant) = name.strip_prefix("tenure_tenant_").filter(|_| is_account) {
                let account = Account::of(&numbers(value));
                reading.tenants.push(Tenant { name: tenant.to_owned(), account, partitions: Vec::new() });
            } else if let Some(partition) = name.strip_prefix("tenure_partition_").filter(|_| is_account) {
                reading.add_partition(partition, Account::of(&numbers(value)));
            } else {
                reading.fields.insert(name.to_owned(), value.to_owned());
            }
        }
        reading
    }

    /// A partition follows its tenant's line, and is named as it, or as it and the class.
    fn add_partition(&mut self, name: &str, account: Account) {
        let Some(tenant) = self.tenants.last_mut() else { return };
        let class = name.strip_prefix(&tenant.name).and_then(|rest| rest.strip_prefix('/')).unwrap_or("none");
        if let Some(sleeping) = account.sleeping_keys {
            tenant.account.sleeping_keys = added(tenant.account.sleeping_keys, Some(sleeping));
        }
        tenant.partitions.push(Partition { class: class.to_owned(), account });
    }

    /// A number, if it is told.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.fields.get(name)?.parse().ok()
    }

    /// A text, empty where it isn't told.
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Whether there is Tenure in the server, running or not.
    pub fn has_tenure(&self) -> bool {
        self.fields.contains_key("tenure_state")
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.text("tenure_state") == "running"
    }

    /// Whether what is evicted is what Tenure chose, or what it had the server choose.
    pub fn is_evicting(&self) -> bool {
        let eviction = self.text("tenure_eviction");
        self.is_running() && (eviction == "ready" || eviction.starts_with("left to the server"))
    }

    /// Main-thread time that Tenure has taken for its own work, in µs: evictions and moves between tiers, as far as it
    /// is told.
    pub fn main_thread_us(&self) -> Option<f64> {
        added(self.number("tenure_eviction_us"), self.number("tenure_tier_spent_us"))
    }

    /// How far the last prediction was off, as a miss ratio; `None` before there was one.
    pub fn prediction_error(&self) -> Option<f64> {
        let of_windows = || {
            self.number("tenure_predicted_windows").filter(|&windows| windows > 0.0)?;
            self.number("tenure_miss_ratio_error_mean")
        };
        self.number("tenure_prediction_error").filter(|&error| error >= 0.0).or_else(of_windows)
    }
}

/// The numbers of `NAME=NUMBER,NAME=NUMBER`.
fn numbers(text: &str) -> BTreeMap<&str, f64> {
    let fields = text.split(',').filter_map(|field| field.split_once('='));
    fields.filter_map(|(name, number)| Some((name, number.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "# Memory\r\nmaxmemory:1000\r\n# tenure\r\ntenure_state:running\r\ntenure_eviction:ready\r\n\
                       tenure_eviction_us:7\r\n\
        tenure_tenant_a.b:partitions=2,keys=3,used_bytes=30,target_bytes=0,bytes_min=5,bytes_max=0,hits=6,misses=4,\
        miss_ratio=0.4,penalty_us_mean=10,evictions=2,k=10\r\n\
        tenure_partition_a.b:keys=1,used_bytes=10,target_bytes=0,bytes_min=5,bytes_max=0,reads=5,misses=1,\
        penalty_us_mean=10,evictions=2,sleeping_keys=1\r\n\
        tenure_partition_a.b/0-10us:keys=2,used_bytes=20,target_bytes=9,bytes_min=5,bytes_max=0,reads=5,misses=3,\
        penalty_us_mean=10,evictions=0,sleeping_keys=2\r\n";

    #[test]
    fn what_is_not_told_is_not_there() {
        let reading = Reading::parse(OLD);
        assert!(reading.is_evicting() && reading.has_tenure());
        assert_eq!((reading.number("maxmemory"), reading.main_thread_us()), (Some(1000.0), Some(7.0)));
        let [tenant] = &reading.tenants[..] else { panic!("{reading:?}") };
        let account = &tenant.account;
        assert_eq!((account.target_bytes, account.bytes_max, account.sleeping_keys), (None, None, Some(3.0)));
        assert_eq!((account.counts.reads, account.counts.causes, account.counts.regret_us), (10.0, [None; 5], None));
        let classes: Vec<&str> = tenant.partitions.iter().map(|partition| partition.class.as_str()).collect();
        assert_eq!((tenant.name.as_str(), classes), ("a.b", vec!["none", "0-10us"]));
        assert_eq!(tenant.partitions[1].account.target_bytes, Some(9.0));
        assert_eq!(reading.prediction_error(), None);
    }

    #[test]
    fn what_a_newer_server_tells_is_there() {
        let text = "tenure_state:running\ntenure_prediction_error:0.01\n\
            tenure_tenant_a:target_bytes=0,bytes_guaranteed=0,bytes_max=-1,hits=6,misses=4,misses_first=1,\
            misses_expired=0,misses_evicted=2,misses_deleted=0,misses_unknown=1,regret_misses=2,regret_us=55\n";
        let reading = Reading::parse(text);
        let counts = &reading.tenants[0].account.counts;
        assert_eq!(counts.causes, [Some(1.0), Some(0.0), Some(2.0), Some(0.0), Some(1.0)]);
        assert_eq!((counts.regret_misses, counts.regret_us), (Some(2.0), Some(55.0)));
        let account = &reading.tenants[0].account;
        assert_eq!((account.target_bytes, account.bytes_max), (Some(0.0), None));
        assert_eq!(reading.prediction_error(), Some(0.01));
    }

    #[test]
    fn accounts_add_up_and_counts_that_shrink_began_anew() {
        let account = |misses: f64, penalty: f64, bytes_max: Option<f64>| Account {
            penalty_us_mean: penalty,
            bytes_max,
            counts: Counts { reads: 10.0, misses, regret_us: Some(1.0), ..Counts::default() },
            ..Account::default()
        };
        let mut sum = account(1.0, 100.0, Some(5.0));
        sum.add(&account(3.0, 500.0, Some(6.0)));
        assert_eq!((sum.penalty_us_mean, sum.bytes_max, sum.counts.regret_us), (400.0, Some(11.0), Some(2.0)));
        sum.add(&account(0.0, 0.0, None));
        assert_eq!((sum.bytes_max, sum.counts.miss_ratio()), (None, Some(4.0 / 30.0)));
        let rates = sum.counts.per_second_since(&account(2.0, 0.0, None).counts, 2.0).unwrap();
        assert_eq!((rates.reads, rates.misses, rates.regret_us, rates.causes[0]), (10.0, 1.0, Some(1.0), None));
        assert_eq!(account(1.0, 0.0, None).counts.per_second_since(&sum.counts, 1.0), None);
    }
}
