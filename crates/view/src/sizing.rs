//! What a server, or a cluster, would do with less memory or more: of `TENURE.MRC` without arguments, by tenant and
//! in all; and what that is in money.
//!
//! A server tells it of eight limits from a quarter of `maxmemory` to four times as much, under the policy that
//! evicts. Between them it is linear, beyond them nothing is said. Nodes of a cluster are taken together, each at the
//! same multiple of its own limit.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use redis::{Value, from_redis_value};
use serde_json::{Value as Json, json};

use crate::nodes::Node;

/// The limit as it is now, among those that are told.
const PRESENT: usize = 3;
/// How finely a size is looked for: steps from the least to the most.
const STEPS: usize = 2000;
/// Hours in a month, on average.
pub const HOURS_PER_MONTH: f64 = 730.0;
/// What a price of memory is for.
pub const GB: f64 = (1_u64 << 30) as f64;

/// What a tenant or all together would do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// What it would hold, in bytes.
    pub used_bytes: f64,
    /// Reads a second, as they are now.
    pub reads_per_second: f64,
    /// Misses / reads.
    pub miss_ratio: f64,
    /// Time lost to misses, in µs per second.
    pub lost_us_per_second: f64,
}

impl Expected {
    fn add(&mut self, other: &Expected) {
        let reads = self.reads_per_second + other.reads_per_second;
        let misses = self.misses_per_second() + other.misses_per_second();
        self.used_bytes += other.used_bytes;
        self.lost_us_per_second += other.lost_us_per_second;
        self.reads_per_second = reads;
        self.miss_ratio = if reads > 0.0 { misses / reads } else { 0.0 };
    }

    /// Misses a second.
    pub fn misses_per_second(&self) -> f64 {
        self.miss_ratio * self.reads_per_second
    }

    /// Between this and `other`.
    fn towards(&self, other: &Expected, share: f64) -> Expected {
        let between = |a: f64, b: f64| a + share * (b - a);
        Expected {
            used_bytes: between(self.used_bytes, other.used_bytes),
            reads_per_second: between(self.reads_per_second, other.reads_per_second),
            miss_ratio: between(self.miss_ratio, other.miss_ratio),
            lost_us_per_second: between(self.lost_us_per_second, other.lost_us_per_second),
        }
    }

    fn to_json(self) -> Json {
        json!({
            "used_bytes": self.used_bytes.round(),
            "reads_per_second": self.reads_per_second,
            "miss_ratio": self.miss_ratio,
            "lost_us_per_second": self.lost_us_per_second,
        })
    }
}

/// One limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Size {
    /// The limit, in bytes.
    pub memory_bytes: f64,
    /// All tenants together.
    pub all: Expected,
    /// By name, in the server's order.
    pub tenants: Vec<(String, Expected)>,
}

/// What is known of all limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizing {
    /// From the least to the most.
    pub sizes: Vec<Size>,
}

/// What memory and misses cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// A gigabyte (2^30 bytes) of memory for a month.
    pub memory_per_gb_month: f64,
    /// An hour of time lost.
    pub time_per_hour: Option<f64>,
    /// A miss.
    pub per_miss: Option<f64>,
}

/// What a size costs in a month.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The limit, in bytes.
    pub memory_bytes: f64,
    /// For the memory.
    pub memory: f64,
    /// For the misses.
    pub misses: f64,
}

impl Cost {
    /// Both.
    pub fn total(&self) -> f64 {
        self.memory + self.misses
    }

    fn to_json(self) -> Json {
        json!({
            "maxmemory_bytes": self.memory_bytes.round(),
            "memory_per_month": self.memory,
            "misses_per_month": self.misses,
            "per_month": self.total(),
        })
    }
}

impl Sizing {
    /// What these servers tell, all together; `None` where one doesn't know yet, or is too old to.
    ///
    /// # Errors
    /// When one doesn't answer, or in another shape.
    pub fn of_servers(nodes: &mut [Node]) -> Result<Option<Sizing>> {
        let mut together: Option<Sizing> = None;
        for node in nodes {
            let Some(rows) = node.sizes()? else { return Ok(None) };
            let sizes = rows.iter().map(size).collect::<Result<_>>().context(node.address.clone())?;
            let its = Sizing { sizes };
            match &mut together {
                Some(sum) => sum.add(&its),
                None => together = Some(its),
            }
        }
        Ok(together.filter(|sizing| sizing.sizes.len() > PRESENT))
    }

    fn add(&mut self, other: &Sizing) {
        for (sum, its) in self.sizes.iter_mut().zip(&other.sizes) {
            sum.memory_bytes += its.memory_bytes;
            sum.all.add(&its.all);
            for (name, expected) in &its.tenants {
                match sum.tenants.iter_mut().find(|(held, _)| held == name) {
                    Some((_, held)) => held.add(expected),
                    None => sum.tenants.push((name.clone(), *expected)),
                }
            }
        }
    }

    /// As it is now.
    pub fn present(&self) -> &Size {
        &self.sizes[PRESENT]
    }

    /// With a limit of `memory_bytes`: within what is told, the nearest of it else. Of one tenant, or of all.
    pub fn at(&self, memory_bytes: f64, tenant: Option<&str>) -> Expected {
        let of = |size: &Size| match tenant {
            Some(name) => size.tenants.iter().find(|(held, _)| held == name).map_or(Expected::default(), |(_, e)| *e),
            None => size.all,
        };
        let after = self.sizes.partition_point(|size| size.memory_bytes <= memory_bytes);
        match (after.checked_sub(1).map(|i| &self.sizes[i]), self.sizes.get(after)) {
            (Some(low), Some(high)) => {
                let share = (memory_bytes - low.memory_bytes) / (high.memory_bytes - low.memory_bytes);
                of(low).towards(&of(high), share)
            }
            (Some(only), None) | (None, Some(only)) => of(only),
            (None, None) => Expected::default(),
        }
    }

    /// Limits that a size is looked for among, the least first.
    fn limits(&self) -> impl DoubleEndedIterator<Item = f64> {
        let (low, high) = (self.sizes[0].memory_bytes, self.sizes[self.sizes.len() - 1].memory_bytes);
        (0..=STEPS).map(move |i| low + (high - low) * i as f64 / STEPS as f64)
    }

    /// The least limit at which `tenant`, or all, do as `is_wanted`; `None` where none of those that are told is
    /// enough.
    pub fn least(&self, tenant: Option<&str>, is_wanted: impl Fn(&Expected) -> bool) -> Option<f64> {
        // What wants more than the most doesn't get it, and noise makes no smaller one do: from above.
        self.limits().rev().take_while(|&bytes| is_wanted(&self.at(bytes, tenant))).last()
    }

    /// How much could be given back if so much more time were lost, as a share of what is lost now.
    pub fn spare_bytes(&self, more: f64) -> f64 {
        let now = self.present();
        let most = now.all.lost_us_per_second * (1.0 + more);
        let ratio = now.all.miss_ratio * (1.0 + more);
        // Where no penalty is known misses count.
        let is_enough = |e: &Expected| {
            if now.all.lost_us_per_second > 0.0 { e.lost_us_per_second <= most } else { e.miss_ratio <= ratio }
        };
        let below = self.limits().rev().filter(|&bytes| bytes <= now.memory_bytes);
        let least = below.take_while(|&bytes| is_enough(&self.at(bytes, None))).last();
        (now.memory_bytes - least.unwrap_or(now.memory_bytes)).max(0.0)
    }

    /// What a limit costs.
    pub fn cost(&self, memory_bytes: f64, prices: &Prices) -> Cost {
        let expected = self.at(memory_bytes, None);
        let hours_lost = expected.lost_us_per_second / 1e6 * HOURS_PER_MONTH;
        let misses = expected.misses_per_second() * HOURS_PER_MONTH * 3600.0;
        Cost {
            memory_bytes,
            memory: memory_bytes / GB * prices.memory_per_gb_month,
            misses: hours_lost * prices.time_per_hour.unwrap_or(0.0) + misses * prices.per_miss.unwrap_or(0.0),
        }
    }

    /// The limit that costs least.
    pub fn cheapest(&self, prices: &Prices) -> Cost {
        let costs = self.limits().map(|bytes| self.cost(bytes, prices));
        costs.min_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
    }

    /// What is told of each limit, as the tool prints it with `--json`.
    pub fn to_json(&self, prices: Option<&Prices>) -> Json {
        let named = |(name, expected): &(String, Expected)| {
            let mut fields = expected.to_json();
            fields["tenant"] = json!(name);
            fields
        };
        let row = |size: &Size| {
            let mut fields = size.all.to_json();
            fields["maxmemory_bytes"] = json!(size.memory_bytes.round());
            fields["tenants"] = size.tenants.iter().map(named).collect();
            if let Some(prices) = prices {
                fields["cost"] = self.cost(size.memory_bytes, prices).to_json();
            }
            fields
        };
        let mut out = json!({ "sizes": self.sizes.iter().map(row).collect::<Vec<_>>() });
        if let Some(prices) = prices {
            out["cheapest"] = self.cheapest(prices).to_json();
        }
        out
    }
}

fn size(row: &BTreeMap<String, Value>) -> Result<Size> {
    let number = |name: &str| -> Result<f64> {
        Ok(from_redis_value(row.get(name).with_context(|| format!("TENURE.MRC has no {name}"))?.clone())?)
    };
    let tenants = row.get("tenants").context("TENURE.MRC has no tenants")?;
    let tenants: Vec<BTreeMap<String, String>> = from_redis_value(tenants.clone())?;
    let of_tenant = |fields: &BTreeMap<String, String>| -> Result<(String, Expected)> {
        let number = |name: &str| -> Result<f64> {
            Ok(fields.get(name).with_context(|| format!("TENURE.MRC has no {name} of a tenant"))?.parse()?)
        };
        Ok((fields.get("name").cloned().unwrap_or_default(), expected(number)?))
    };
    Ok(Size {
        memory_bytes: number("maxmemory_bytes")?,
        all: expected(number)?,
        tenants: tenants.iter().map(of_tenant).collect::<Result<_>>()?,
    })
}

fn expected(number: impl Fn(&str) -> Result<f64>) -> Result<Expected> {
    Ok(Expected {
        used_bytes: number("used_bytes")?,
        reads_per_second: number("reads_per_second")?,
        miss_ratio: number("miss_ratio")?,
        lost_us_per_second: number("lost_us_per_second")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight limits from 25 to 400 GB; 1,000 reads a second, of which 100 GB / limit / 10 miss, at 1 ms each.
    fn sizing() -> Sizing {
        let size = |scale: &f64| {
            let miss_ratio = 0.1 / scale;
            let all = Expected {
                used_bytes: 90.0 * scale * GB,
                reads_per_second: 1000.0,
                miss_ratio,
                lost_us_per_second: 1e6 * miss_ratio,
            };
            let half = Expected { reads_per_second: 500.0, ..all };
            Size { memory_bytes: 100.0 * scale * GB, all, tenants: vec![("a".to_owned(), half)] }
        };
        Sizing { sizes: [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0].iter().map(size).collect() }
    }

    #[test]
    fn between_the_limits_it_is_linear_and_beyond_them_nothing_is_said() {
        let sizing = sizing();
        assert!((sizing.at(150.0 * GB, None).miss_ratio - 0.1 / 1.5).abs() < 1e-12);
        assert!((sizing.at(300.0 * GB, Some("a")).miss_ratio - 0.0375).abs() < 1e-12);
        assert_eq!((sizing.at(1.0, None).miss_ratio, sizing.at(1e15, None).miss_ratio), (0.4, 0.025));
        assert_eq!(sizing.at(GB, Some("nobody")), Expected::default());
        let least = sizing.least(None, |e| e.miss_ratio <= 0.05).unwrap() / GB;
        assert!((200.0..200.4).contains(&least), "{least}");
        assert_eq!(sizing.least(None, |e| e.miss_ratio <= 0.01), None);
        // 1 % more of 100 ms a second: 3 GB less, of the 25 that bring a third more.
        let spare = sizing.spare_bytes(0.01) / GB;
        assert!((0.5..=0.76).contains(&spare), "{spare}");
    }

    /// At 1 a GB and month and 1 an hour lost: 100 GB cost 100 and lose 73 hours. Twice as much costs 236.5, half 196.
    #[test]
    fn the_cheapest_size_is_where_more_memory_costs_what_it_saves() {
        let (sizing, prices) =
            (sizing(), Prices { memory_per_gb_month: 1.0, time_per_hour: Some(1.0), per_miss: None });
        let now = sizing.cost(100.0 * GB, &prices);
        assert!((now.memory - 100.0).abs() < 1e-9 && (now.misses - 73.0).abs() < 1e-9, "{now:?}");
        let cheapest = sizing.cheapest(&prices);
        assert!((70.0..=101.0).contains(&(cheapest.memory_bytes / GB)) && cheapest.total() <= 173.0, "{cheapest:?}");
        // 100 misses a second are 262.8 million a month.
        let by_miss = Prices { time_per_hour: None, per_miss: Some(1e-6), ..prices };
        assert!((sizing.cost(100.0 * GB, &by_miss).misses - 262.8).abs() < 1e-6);
        assert!(sizing.cheapest(&by_miss).memory_bytes > cheapest.memory_bytes);
        let json = sizing.to_json(Some(&prices));
        assert_eq!(
            (json["sizes"].as_array().unwrap().len(), json["sizes"][3]["tenants"][0]["tenant"].as_str()),
            (8, Some("a"))
        );
        assert!(json["cheapest"]["per_month"].as_f64().unwrap() <= 173.0);
    }

    #[test]
    fn nodes_add_up() {
        let mut sum = sizing();
        sum.add(&sizing());
        let (one, both) = (sizing(), sum.present());
        assert_eq!((both.memory_bytes, both.all.miss_ratio), (200.0 * GB, one.present().all.miss_ratio));
        assert_eq!((both.all.reads_per_second, both.tenants[0].1.reads_per_second), (2000.0, 1000.0));
    }
}
