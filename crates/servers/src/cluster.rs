//! A cluster on this machine: primaries that share the slots evenly, and replicas that follow them.
//!
//! Formed by the servers' own commands (`CLUSTER MEET`, `ADDSLOTSRANGE`, `REPLICATE`), so nothing but the servers is
//! needed. A cluster takes about two seconds to form: so long a primary that has just started waits before it serves.

use crate::{DEADLINE, Result, Server, ServerBinary, ServerOptions, server, wait_for};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;
use std::time::Duration;

/// Slots of a cluster.
pub const SLOTS: u16 = 16_384;
/// How long a node may be silent where it is to be missed soon, see [`Cluster::miss_nodes_soon`].
const SILENCE: Duration = Duration::from_secs(2);
/// Keys that leave a slot at once.
const KEYS_AT_ONCE: usize = 100;

/// A running cluster. Dropping it kills all nodes and deletes their folders; see [`Server`] for what the drop panics
/// about.
#[derive(Debug)]
pub struct Cluster {
    /// The primaries first, then the first replica of each, then the second of each.
    nodes: Vec<Server>,
    n_primaries: usize,
}

/// Has a node meet these, but for itself.
fn meet(node: &Server, others: &[Server]) -> Result<()> {
    for other in others.iter().filter(|other| other.port() != node.port()) {
        let ports = [other.port(), other.cluster_port()?].map(|port| port.to_string());
        node.call::<()>(&["CLUSTER", "MEET", "127.0.0.1", &ports[0], &ports[1]])?;
    }
    Ok(())
}

impl Cluster {
    /// Starts `n_primaries` primaries and `n_replicas` replicas of each, all with `options` (`cluster-enabled` is
    /// added), and waits until all serve. With `options.port` the nodes take that port and those above it.
    ///
    /// # Errors
    /// When there is no primary or more than 100, a node doesn't start, or the cluster isn't formed by [`DEADLINE`].
    pub fn start(
        binary: &ServerBinary,
        options: &ServerOptions,
        n_primaries: usize,
        n_replicas: usize,
    ) -> Result<Cluster> {
        ensure!((1..=100).contains(&n_primaries), "{n_primaries} primaries; allowed are 1 to 100");
        let n_nodes = n_primaries * (1 + n_replicas);
        let start = |i: usize| {
            let port = options.port.map(|port| port.checked_add(i as u16).context("no ports are left above"));
            let options = ServerOptions { port: port.transpose()?, ..options.clone() };
            let options = options.set("cluster-enabled", "yes");
            server::on_free_ports(|| {
                let options = options.clone().set("cluster-port", server::free_port()?);
                Server::start_on(binary, &options, options.port.map_or_else(server::free_port, Ok)?)
            })
        };
        let nodes: Result<Vec<Server>> = (0..n_nodes).map(start).collect();
        let cluster = Cluster { nodes: nodes?, n_primaries };
        cluster.form()?;
        Ok(cluster)
    }

    fn form(&self) -> Result<()> {
        for (i, node) in self.nodes.iter().enumerate() {
            // Else nodes that meet as equals settle their epochs one by one.
            node.call::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()])?;
            if i < self.n_primaries {
                let [first, last] = slots_of(i, self.n_primaries).map(|slot| slot.to_string());
                node.call::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            }
            // All pairs, rather than waiting for gossip.
            meet(node, &self.nodes[..i])?;
        }
        self.wait_until("to know each other", |node| {
            let known: String = node.call(&["CLUSTER", "NODES"]).unwrap_or_default();
            if known.lines().count() < self.nodes.len() {
                // Who hasn't answered within the nodes' timeout is forgotten, and would never be met again.
                meet(node, &self.nodes).ok();
            }
            known.lines().count() == self.nodes.len() && !known.contains("handshake")
        })?;
        for (i, replica) in self.nodes.iter().enumerate().skip(self.n_primaries) {
            replica.call::<()>(&["CLUSTER", "REPLICATE", &self.nodes[i % self.n_primaries].cluster_id()?])?;
        }
        self.wait_until("to know which are replicas", |node| {
            let known: String = node.call(&["CLUSTER", "NODES"]).unwrap_or_default();
            known.matches("slave ").count() == self.nodes.len() - self.n_primaries
        })?;
        for replica in &self.nodes[self.n_primaries..] {
            replica.wait_until_in_sync()?;
        }
        self.wait_until_it_serves()?;
        self.wait_until_all_agree()
    }

    /// Waits until every node that runs takes the cluster for whole.
    ///
    /// # Errors
    /// When that isn't so within [`DEADLINE`].
    pub fn wait_until_it_serves(&self) -> Result<()> {
        self.wait_until("to serve", |node| node.cluster_info("cluster_state").as_deref() == Some("ok"))
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&Server) -> bool) -> Result<()> {
        for node in self.nodes.iter().filter(|node| node.is_alive()) {
            let label = &node.binary().label;
            let what = format!("the nodes of a cluster of {label} {what}; the end of a node's log:\n");
            wait_for(DEADLINE, &what, || condition(node)).with_context(|| node.log_tail())?;
        }
        Ok(())
    }

    /// From now on a primary that doesn't answer for two seconds is replaced by its replica. Before, it takes 15 s, if
    /// nothing else was set: a busy machine makes no replica take over.
    ///
    /// # Errors
    /// When a node that runs refuses.
    pub fn miss_nodes_soon(&self) -> Result<()> {
        let timeout = SILENCE.as_millis().to_string();
        self.nodes
            .iter()
            .filter(|node| node.is_alive())
            .try_for_each(|node| node.call(&["CONFIG", "SET", "cluster-node-timeout", &timeout]))
    }

    /// All nodes: the primaries as they began, then their replicas in the same order.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// One of [`Cluster::nodes`], to stop, kill or restart it.
    pub fn node_mut(&mut self, i: usize) -> &mut Server {
        &mut self.nodes[i]
    }

    /// Those that began as primaries.
    pub fn primaries(&self) -> &[Server] {
        &self.nodes[..self.n_primaries]
    }

    /// The first of those that began as replicas of primary `i`.
    ///
    /// # Panics
    /// Where it has none.
    pub fn replica_of(&self, i: usize) -> &Server {
        &self.nodes[self.n_primaries + i]
    }

    /// Addresses of all nodes, as `redis://127.0.0.1:7000`, for a client that finds the rest by itself.
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port())).collect()
    }

    /// Moves slots from one node to another, key by key, as `valkey-cli --cluster reshard` does. Clients are served
    /// meanwhile.
    ///
    /// # Errors
    /// When a node refuses; slots that were under way stay so.
    pub fn move_slots(&self, slots: impl IntoIterator<Item = u16>, from: usize, to: usize) -> Result<()> {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let (source_id, target_id) = (source.cluster_id()?, target.cluster_id()?);
        let mut from_source = source.connection()?;
        for slot in slots {
            let slot = slot.to_string();
            set_slot(target, &slot, "IMPORTING", &source_id)?;
            set_slot(source, &slot, "MIGRATING", &target_id)?;
            loop {
                let ask = redis::cmd("CLUSTER").arg("GETKEYSINSLOT").arg(&slot).arg(KEYS_AT_ONCE).to_owned();
                let keys: Vec<Vec<u8>> = ask.query(&mut from_source)?;
                if keys.is_empty() {
                    break;
                }
                let mut migrate = redis::cmd("MIGRATE");
                migrate.arg("127.0.0.1").arg(target.port()).arg("").arg(0).arg(DEADLINE.as_millis() as u64).arg("KEYS");
                keys.iter().for_each(|key| {
                    migrate.arg(key);
                });
                until_taken(&slot, || Ok(migrate.exec(&mut from_source)?))?;
            }
            // The target first: between the two both hold the slot for theirs, and none for another's.
            let others = self.nodes.iter().filter(|node| node.is_alive() && node.is_primary());
            let others = others.filter(|node| ![source.port(), target.port()].contains(&node.port()));
            for node in [target, source].into_iter().chain(others) {
                set_slot(node, &slot, "NODE", &target_id)?;
            }
        }
        self.wait_until_all_agree()
    }

    /// Waits until all nodes that run name the same owner of each slot, of the same epoch. Until then they don't vote
    /// for a replica.
    ///
    /// # Errors
    /// When that isn't so within [`DEADLINE`].
    pub fn wait_until_all_agree(&self) -> Result<()> {
        let alive: Vec<&Server> = self.nodes.iter().filter(|node| node.is_alive()).collect();
        let agree =
            || alive.windows(2).all(|pair| pair[0].owners().is_ok_and(|a| pair[1].owners().is_ok_and(|b| a == b)));
        wait_for(DEADLINE, "all nodes of a cluster to agree whose the slots are", agree)
    }

    /// The node that serves `slot` now, by what the nodes that run say of themselves.
    ///
    /// # Errors
    /// When none does.
    pub fn owner_of(&self, slot: u16) -> Result<usize> {
        let owns = |node: &Server| node.is_alive() && node.own_slots().is_ok_and(|own| own.contains(&slot));
        match self.nodes.iter().position(owns) {
            Some(i) => Ok(i),
            None => bail!("slot {slot} is served by no node"),
        }
    }
}

/// Tells a node whose `slot` is, or becomes.
fn set_slot(node: &Server, slot: &str, state: &str, id: &str) -> Result<()> {
    until_taken(slot, || node.call(&["CLUSTER", "SETSLOT", slot, state, id]))
}

/// One step of moving a slot, again while a node takes its cluster for down, or has no answer from its replica (Valkey
/// gives replicas two seconds to learn of a slot): a core may have been busy with other things.
fn until_taken(slot: &str, mut step: impl FnMut() -> Result<()>) -> Result<()> {
    let mut failure = None;
    wait_for(DEADLINE, "a cluster to be up", || match step() {
        Err(error) if ["CLUSTERDOWN", "NOREPLICAS"].iter().any(|code| format!("{error:#}").contains(code)) => false,
        outcome => {
            failure = outcome.err();
            true
        }
    })?;
    failure.map_or(Ok(()), Err).with_context(|| format!("slot {slot} doesn't move"))
}

/// First and last slot of primary `i` of `n`.
fn slots_of(i: usize, n: usize) -> [u16; 2] {
    let begin = |i: usize| (i * usize::from(SLOTS) / n) as u16;
    [begin(i), begin(i + 1) - 1]
}

impl Server {
    /// The node's id in its cluster.
    ///
    /// # Errors
    /// When it is no node of a cluster.
    pub fn cluster_id(&self) -> Result<String> {
        self.call(&["CLUSTER", "MYID"])
    }

    /// One field of `CLUSTER INFO`.
    pub fn cluster_info(&self, field: &str) -> Option<String> {
        let text: String = self.call(&["CLUSTER", "INFO"]).ok()?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(name, _)| *name == field).map(|(_, value)| value.trim_end().to_string()).next()
    }

    /// The slots that the node says it serves, without those on their way.
    ///
    /// # Errors
    /// When it is no node of a cluster.
    pub fn own_slots(&self) -> Result<Vec<u16>> {
        let nodes: String = self.call(&["CLUSTER", "NODES"])?;
        let own = nodes.lines().find(|line| line.contains("myself")).context("CLUSTER NODES doesn't name its node")?;
        let mut slots = Vec::new();
        for range in own.split(' ').skip(8).filter(|range| !range.starts_with('[')) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            slots.extend(first.parse::<u16>()?..=last.trim_end().parse::<u16>()?);
        }
        Ok(slots)
    }

    fn is_primary(&self) -> bool {
        self.info("replication").is_ok_and(|info| info.get("role").is_some_and(|role| role == "master"))
    }

    /// Id, epoch and slots of each node that serves some, as this one sees it.
    fn owners(&self) -> Result<BTreeSet<String>> {
        let nodes: String = self.call(&["CLUSTER", "NODES"])?;
        let owner = |line: &str| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let slots: Vec<&str> = words.iter().skip(8).copied().filter(|word| !word.starts_with('[')).collect();
            (!slots.is_empty()).then(|| format!("{} {} {}", words[0], words[6], slots.join(" ")))
        };
        Ok(nodes.lines().filter_map(owner).collect())
    }

    /// The port of the cluster's bus.
    fn cluster_port(&self) -> Result<u16> {
        let (_, port): (String, u16) = self.call(&["CONFIG", "GET", "cluster-port"])?;
        Ok(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_shared_evenly_and_none_is_left() {
        for n in 1..=7 {
            let ranges: Vec<[u16; 2]> = (0..n).map(|i| slots_of(i, n)).collect();
            assert_eq!((ranges[0][0], ranges[n - 1][1]), (0, SLOTS - 1));
            assert!(ranges.windows(2).all(|pair| pair[0][1] + 1 == pair[1][0]));
            let sizes = ranges.iter().map(|[first, last]| last - first);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }
}
