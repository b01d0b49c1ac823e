//! Looks at servers again and again: one `INFO` each, connections kept, what time misses have cost added up.
//!
//! Servers count misses and tell the mean penalty of late. The time lost is misses × penalty, summed over all looks.
//! So it begins with the first look, and is coarse where looks are seldom. A server that says `miss_us` itself needs
//! no such sum.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use redis::ConnectionInfo;

use crate::nodes::{Fields, Node, primaries};
use crate::reading::{Account, Counts, Reading, SECTIONS, Tenant};

/// A server that doesn't answer for so long is gone, as far as a look is concerned.
const DEADLINE: Duration = Duration::from_secs(2);
/// Looks between two that ask a cluster who its primaries are, and each server for what INFO doesn't tell.
const LOOKS_PER_SURVEY: u64 = 30;

/// One server that is looked at.
pub struct Watched {
    address: ConnectionInfo,
    node: Option<Node>,
    lost: Lost,
    status: Fields,
}

impl Watched {
    /// Connects with the first look.
    pub fn new(address: ConnectionInfo) -> Watched {
        Watched { address, node: None, lost: Lost::default(), status: Fields::new() }
    }

    /// Host and port.
    pub fn name(&self) -> String {
        self.address.addr().to_string()
    }

    /// Looks, with one `INFO`.
    ///
    /// # Errors
    /// When it doesn't answer, or has no Tenure; the next look connects anew.
    pub fn read(&mut self) -> Result<Reading> {
        let mut node = match self.node.take() {
            Some(node) => node,
            None => Node::connect_within(self.address.clone(), DEADLINE)?,
        };
        let mut reading = Reading::parse(&node.info(SECTIONS)?);
        ensure!(reading.has_tenure(), "{}: Tenure is not loaded there", node.address);
        self.node = Some(node);
        self.lost.add_to(&mut reading);
        Ok(reading)
    }

    /// What `TENURE.STATUS` has that INFO hasn't, such as the policy; empty while Tenure doesn't run.
    fn survey(&mut self) {
        if let Some(node) = &mut self.node {
            self.status = node.status().unwrap_or_default();
        }
    }
}

/// Time lost to misses, by tenant and class.
#[derive(Default)]
struct Lost {
    /// Misses at the last look, and µs lost until then.
    by_partition: HashMap<(String, String), (f64, f64)>,
}

impl Lost {
    /// Adds what was lost since the last look, and writes the sums into `reading`.
    fn add_to(&mut self, reading: &mut Reading) {
        for Tenant { name, account, partitions } in &mut reading.tenants {
            for partition in partitions.iter_mut() {
                let Account { penalty_us_mean, counts, .. } = &mut partition.account;
                let key = (name.clone(), partition.class.clone());
                let (misses, lost_us) = self.by_partition.entry(key).or_insert((counts.misses, 0.0));
                if let Some(told_us) = counts.told_lost_us {
                    counts.lost_us = told_us;
                    continue;
                }
                // Fewer than before: the server began anew, and all of them are new.
                let grown = if counts.misses >= *misses { counts.misses - *misses } else { counts.misses };
                *lost_us += grown * *penalty_us_mean;
                *misses = counts.misses;
                counts.lost_us = *lost_us;
            }
            account.counts.lost_us = partitions.iter().map(|partition| partition.account.counts.lost_us).sum();
        }
    }
}

/// One server as a look found it.
#[derive(Clone, Debug)]
pub struct NodeLook {
    /// Host and port.
    pub address: String,
    /// What it said, or why it didn't.
    pub reading: Result<Reading, String>,
    /// Of `TENURE.STATUS`, as of late.
    pub status: Fields,
}

/// All servers at one moment.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// In the order of the slots.
    pub nodes: Vec<NodeLook>,
}

impl Look {
    /// What servers said that answered.
    pub fn readings(&self) -> impl Iterator<Item = &Reading> {
        self.nodes.iter().filter_map(|node| node.reading.as_ref().ok())
    }

    /// The sum of a field over all servers that tell it; `None` where none does.
    pub fn sum(&self, name: &str) -> Option<f64> {
        self.readings().filter_map(|reading| reading.number(name)).reduce(|a, b| a + b)
    }

    /// The tenants of all servers together, in the order of their first appearance.
    pub fn tenants(&self) -> Vec<(String, Account)> {
        let mut sums: Vec<(String, Account)> = Vec::new();
        for tenant in self.readings().flat_map(|reading| &reading.tenants) {
            match sums.iter_mut().find(|(name, _)| *name == tenant.name) {
                Some((_, sum)) => sum.add(&tenant.account),
                None => sums.push((tenant.name.clone(), tenant.account.clone())),
            }
        }
        sums
    }

    /// The same look at one server alone.
    pub fn only(&self, node: usize) -> Look {
        Look { at_ms: self.at_ms, nodes: self.nodes.get(node).cloned().into_iter().collect() }
    }

    /// Seconds from `before` to this look.
    pub fn seconds_since(&self, before: &Look) -> f64 {
        self.at_ms.saturating_sub(before.at_ms) as f64 / 1000.0
    }
}

/// Looks at a server, or at all primaries of its cluster.
pub struct Sampler {
    /// As it was given: any node of a cluster.
    first: ConnectionInfo,
    watched: Vec<Watched>,
    looks: u64,
}

impl Sampler {
    /// Nothing is connected before the first look.
    pub fn new(first: ConnectionInfo) -> Sampler {
        Sampler { first, watched: Vec::new(), looks: 0 }
    }

    /// Looks at all of them.
    pub fn look(&mut self) -> Look {
        let is_survey = self.looks.is_multiple_of(LOOKS_PER_SURVEY);
        self.looks += 1;
        if is_survey || self.watched.iter().any(|watched| watched.node.is_none()) {
            self.find();
        }
        let nodes = self.watched.iter_mut().map(|watched| {
            let reading = watched.read().map_err(|error| format!("{error:#}"));
            if is_survey || watched.status.is_empty() {
                watched.survey();
            }
            NodeLook { address: watched.name(), reading, status: watched.status.clone() }
        });
        Look { nodes: nodes.collect(), at_ms: now_ms() }
    }

    /// Asks any node that answers who the primaries are; keeps those that are known where none does.
    fn find(&mut self) {
        let mut known = self.watched.iter().map(|watched| watched.address.clone()).collect::<Vec<_>>();
        known.push(self.first.clone());
        let Some(found) = known.iter().rev().find_map(|address| primaries(address, DEADLINE).ok()) else {
            if self.watched.is_empty() {
                self.watched.push(Watched::new(self.first.clone()));
            }
            return;
        };
        let name = |address: &ConnectionInfo| address.addr().to_string();
        let mut before: HashMap<String, Watched> =
            self.watched.drain(..).map(|watched| (watched.name(), watched)).collect();
        let again = |address: ConnectionInfo| before.remove(&name(&address)).unwrap_or_else(|| Watched::new(address));
        self.watched = found.into_iter().map(again).collect();
    }

    /// Addresses of all servers that are looked at, to connect to them beside.
    pub fn addresses(&self) -> Vec<ConnectionInfo> {
        self.watched.iter().map(|watched| watched.address.clone()).collect()
    }
}

/// Milliseconds since 1970, by this machine's clock.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64)
}

/// All tenants of an account list together.
pub fn total(tenants: &[(String, Account)]) -> Account {
    let mut tenants = tenants.iter().map(|(_, account)| account);
    let mut sum = tenants.next().cloned().unwrap_or_default();
    tenants.for_each(|account| sum.add(account));
    sum
}

/// What each tenant's counts grew by between two looks, by second; `None` for those that are new, or whose server began
/// anew.
pub fn rates(before: &Look, now: &Look) -> HashMap<String, Counts> {
    let seconds = now.seconds_since(before);
    let mut rates: HashMap<String, Counts> = HashMap::new();
    if seconds <= 0.0 {
        return rates;
    }
    for node in &now.nodes {
        let then = before.nodes.iter().find(|then| then.address == node.address);
        let (Some(Ok(then)), Ok(reading)) = (then.map(|then| &then.reading), &node.reading) else { continue };
        for tenant in &reading.tenants {
            let then = then.tenants.iter().find(|then| then.name == tenant.name);
            let grown = |then: &Tenant| tenant.account.counts.per_second_since(&then.account.counts, seconds);
            if let Some(grown) = then.and_then(grown) {
                rates.entry(tenant.name.clone()).or_default().add(&grown);
            }
        }
    }
    rates
}

/// How much a field of the servers, or what `of` makes of it, grew between two looks, by second; those that began anew
/// are left out.
pub fn rate_of(before: &Look, now: &Look, of: impl Fn(&Reading) -> Option<f64>) -> Option<f64> {
    let seconds = Some(now.seconds_since(before)).filter(|&seconds| seconds > 0.0)?;
    let grown = |node: &NodeLook| {
        let then = before.nodes.iter().find(|then| then.address == node.address)?;
        let (then, now) = (of(then.reading.as_ref().ok()?)?, of(node.reading.as_ref().ok()?)?);
        (now >= then).then(|| (now - then) / seconds)
    };
    now.nodes.iter().filter_map(grown).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    fn reading(misses: u32) -> Reading {
        let line = |name: &str| format!("{name}:reads=100,misses={misses},penalty_us_mean=10,used_bytes=5\n");
        Reading::parse(&format!("tenure_state:running\n{}{}", line("tenure_tenant_a"), line("tenure_partition_a")))
    }

    fn look(at_ms: u64, readings: Vec<Reading>) -> Look {
        let node = |(i, reading): (usize, Reading)| NodeLook {
            address: format!("host:{i}"),
            reading: Ok(reading),
            status: Fields::new(),
        };
        Look { at_ms, nodes: readings.into_iter().enumerate().map(node).collect() }
    }

    #[test]
    fn time_lost_begins_with_the_first_look_and_outlasts_a_restart() {
        let mut lost = Lost::default();
        let mut lost_us = |misses| {
            let mut reading = reading(misses);
            lost.add_to(&mut reading);
            reading.tenants[0].account.counts.lost_us
        };
        assert_eq!((lost_us(50), lost_us(53), lost_us(2), lost_us(2)), (0.0, 30.0, 50.0, 50.0));
    }

    #[test]
    fn servers_add_up_and_one_that_began_anew_is_left_out_of_rates() {
        let (before, now) = (look(1000, vec![reading(4), reading(9)]), look(3000, vec![reading(10), reading(1)]));
        let tenants = now.tenants();
        assert_eq!((tenants.len(), total(&tenants).counts.misses, total(&tenants).used_bytes), (1, 11.0, 10.0));
        assert_eq!(rates(&before, &now)["a"].misses, 3.0);
        let misses = |reading: &Reading| Some(reading.tenants[0].account.counts.misses);
        assert_eq!(rate_of(&before, &now, misses), Some(3.0));
        assert!(rates(&now, &now).is_empty());
    }

    #[test]
    fn a_server_that_is_gone_is_told_as_gone() {
        let mut sampler = Sampler::new("redis://127.0.0.1:1".into_connection_info().unwrap());
        for _ in 0..2 {
            let look = sampler.look();
            assert!(look.nodes.len() == 1 && look.nodes[0].reading.is_err(), "{look:?}");
        }
    }
}
