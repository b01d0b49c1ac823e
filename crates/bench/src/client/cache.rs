//! A client's way to the cache: one server, or the nodes of a cluster by one of three routes.
//!
//! Source: Scalable and Reliable Redis (Chen et al., TrustCom'16) sec. III-A. `default-node` is the original client:
//! it sends each request to one node and follows the redirect that comes in most cases. `remember` is their Algorithm
//! 1: it keeps for each slot the node that a redirect named. `library` is a client of today: the crate `redis` asks
//! for the whole map at the start. The first two are alike but for that one table, so what is between them is the
//! table's; the third has another library's costs too.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, bail, ensure};
use redis::cluster::{ClusterClient, ClusterConnection};
use tenure_core::slots::{SLOTS, slot_of};

use super::connection::{Connection, Reply};
use crate::workload::Stream;

/// A request that is sent on for so many times has no owner.
const REDIRECTS_MAX: usize = 16;

/// How a request finds its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the first node, and where it redirects to.
    DefaultNode,
    /// To the node that the slot's last redirect named, the first node at first.
    Remember,
    /// As the crate `redis` does it.
    Library,
}

impl Route {
    /// All of them.
    pub const ALL: [Route; 3] = [Route::DefaultNode, Route::Remember, Route::Library];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Route::DefaultNode => "default-node",
            Route::Remember => "remember",
            Route::Library => "library",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Route {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match Route::ALL.into_iter().find(|route| route.name() == text) {
            Some(route) => Ok(route),
            None => bail!("route '{text}' is none of {}", Route::ALL.map(Route::name).join(", ")),
        }
    }
}

/// Which port a slot was last redirected to; 0 where it wasn't. Clients of one program share it.
#[derive(Clone, Debug)]
pub struct SlotMap(Arc<[AtomicU16]>);

impl Default for SlotMap {
    fn default() -> Self {
        SlotMap((0..SLOTS).map(|_| AtomicU16::new(0)).collect())
    }
}

/// A connection to the cache.
pub enum Cache {
    /// To a server alone.
    Server(Connection),
    /// To a cluster, following redirects.
    Cluster(Redirected),
    /// To a cluster, by the library.
    Library(Box<ClusterConnection>),
}

impl Cache {
    /// Connects to a cluster with nodes on these ports of 127.0.0.1, the first being the default node. `map` is what
    /// [`Route::Remember`] remembers.
    ///
    /// # Errors
    /// When there is none.
    pub fn of_cluster(ports: &[u16], route: Route, map: &SlotMap) -> anyhow::Result<Cache> {
        let first = *ports.first().context("a cluster without nodes")?;
        if route == Route::Library {
            let addresses = ports.iter().map(|port| format!("redis://127.0.0.1:{port}"));
            return Ok(Cache::Library(Box::new(ClusterClient::new(addresses)?.get_connection()?)));
        }
        Ok(Cache::Cluster(Redirected {
            nodes: vec![(first, Connection::open(first)?)],
            map: (route == Route::Remember).then(|| map.clone()),
            n_redirects: 0,
        }))
    }

    /// Sends a command whose second word is its key, and reads its reply.
    ///
    /// # Errors
    /// When a connection is broken, or a request finds no node.
    pub fn call(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        match self {
            Cache::Server(connection) => connection.call(words),
            Cache::Cluster(redirected) => redirected.call(words),
            Cache::Library(connection) => call_library(connection, words),
        }
    }

    /// Writes each key of `stream` once, at the size it has last.
    ///
    /// # Errors
    /// When a node fails or refuses a write.
    pub fn load_all_keys(&mut self, stream: &Stream) -> anyhow::Result<()> {
        let mut value = Vec::new();
        for key in 0..stream.keys.len() as u32 {
            value.resize(stream.keys.value_bytes(key) as usize, b'v');
            let reply = self.call(&[b"SET", stream.keys.name(key), &value])?;
            ensure!(reply == Reply::Simple, "SET was answered by {reply:?}");
        }
        Ok(())
    }

    /// The next element of an array that a server alone sends.
    ///
    /// # Errors
    /// As [`Connection::reply`], and in a cluster.
    pub fn reply(&mut self) -> anyhow::Result<Reply> {
        match self {
            Cache::Server(connection) => connection.reply(),
            _ => bail!("no command of several keys goes to a cluster"),
        }
    }

    /// Redirects that were followed; the library doesn't tell.
    pub fn n_redirects(&self) -> u64 {
        if let Cache::Cluster(redirected) = self { redirected.n_redirects } else { 0 }
    }
}

/// Connections to the nodes that were met.
pub struct Redirected {
    /// With their ports; the first is the default node.
    nodes: Vec<(u16, Connection)>,
    /// `None` where nothing is remembered.
    map: Option<SlotMap>,
    n_redirects: u64,
}

impl Redirected {
    /// Algorithm 1; without a table its third line is `node = the default node`.
    fn call(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        let slot = words.get(1).map_or(0, |key| usize::from(slot_of(key)));
        let mut node = match self.map.as_ref().map_or(0, |map| map.0[slot].load(Ordering::Relaxed)) {
            0 => 0,
            port => self.node_on(port)?,
        };
        let mut is_asking = false;
        for _ in 0..REDIRECTS_MAX {
            let connection = &mut self.nodes[node].1;
            if is_asking {
                connection.call(&[b"ASKING"])?;
            }
            let reply = connection.call(words)?;
            let redirect = if let Reply::Error(text) = &reply { Redirect::parse(text) } else { None };
            let Some(redirect) = redirect else { return Ok(reply) };
            self.n_redirects += 1;
            node = self.node_on(redirect.port)?;
            is_asking = redirect.is_ask;
            if let Some(map) = self.map.as_ref().filter(|_| !is_asking) {
                map.0[slot].store(redirect.port, Ordering::Relaxed);
            }
        }
        bail!("a request was redirected {REDIRECTS_MAX} times")
    }

    fn node_on(&mut self, port: u16) -> anyhow::Result<usize> {
        if let Some(node) = self.nodes.iter().position(|(held, _)| *held == port) {
            return Ok(node);
        }
        self.nodes.push((port, Connection::open(port)?));
        Ok(self.nodes.len() - 1)
    }
}

/// `MOVED 3999 127.0.0.1:6381`, or `ASK …` for this once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Redirect {
    is_ask: bool,
    port: u16,
}

impl Redirect {
    fn parse(text: &str) -> Option<Redirect> {
        let mut words = text.split(' ');
        let is_ask = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let (_, port) = words.nth(1)?.rsplit_once(':')?;
        Some(Redirect { is_ask, port: port.parse().ok()? })
    }
}

fn call_library(connection: &mut ClusterConnection, words: &[&[u8]]) -> anyhow::Result<Reply> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| _ = command.arg(*word));
    match command.query(connection) {
        Ok(redis::Value::Nil) => Ok(Reply::Nil),
        Ok(redis::Value::Int(n)) => Ok(Reply::Integer(n)),
        Ok(redis::Value::BulkString(bytes)) => Ok(Reply::Bulk(bytes.len())),
        Ok(redis::Value::Okay | redis::Value::SimpleString(_)) => Ok(Reply::Simple),
        Ok(other) => bail!("the cluster answered {other:?}"),
        Err(error) if error.code() == Some("OOM") => Ok(Reply::Error(format!("OOM {error}"))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_told_from_other_errors() {
        let moved = Redirect::parse("MOVED 3999 127.0.0.1:6381");
        assert_eq!(moved, Some(Redirect { is_ask: false, port: 6381 }));
        assert_eq!(Redirect::parse("ASK 3999 ::1:7001"), Some(Redirect { is_ask: true, port: 7001 }));
        for text in ["OOM command not allowed", "MOVED", "MOVED 1", "MOVED 1 x", "CLUSTERDOWN The cluster is down", ""]
        {
            assert_eq!(Redirect::parse(text), None, "{text}");
        }
    }

    #[test]
    fn routes_are_known_by_name() {
        assert!(Route::ALL.iter().all(|route| route.to_string().parse::<Route>().unwrap() == *route));
        assert!("map".parse::<Route>().unwrap_err().to_string().contains("remember"));
    }
}
