//! A running server with Tenure, or all primaries of its cluster: what `TENURE.*` says on each.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use redis::{Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Value};
use tenure_core::curve::{CurvePoint, MissRatioCurve};

/// A server that doesn't answer for so long has failed.
const DEADLINE: Duration = Duration::from_secs(10);
/// Points of a curve that is asked for.
const CURVE_POINTS: usize = 400;

/// Fields of one reply, by name.
pub type Fields = BTreeMap<String, String>;

/// One server.
pub struct Node {
    /// Host and port.
    pub address: String,
    connection: Connection,
}

/// What of an address makes it one: `HOST:PORT`, or `redis://[USER:PASSWORD@]HOST[:PORT]`.
pub fn parse_address(text: &str) -> Result<ConnectionInfo> {
    let url = if text.contains("://") { text.to_owned() } else { format!("redis://{text}") };
    let has_port = text.contains("://") || text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    ensure!(has_port, "'{text}' is no address; write HOST:PORT, as in 127.0.0.1:6379");
    url.into_connection_info().with_context(|| format!("'{text}' is no address"))
}

/// Connects to the server at `address`, and, where that is a node of a cluster, to all its primaries that serve slots.
///
/// # Errors
/// When one doesn't answer, or has no Tenure.
pub fn connect(address: ConnectionInfo) -> Result<Vec<Node>> {
    let connect = |address: ConnectionInfo| {
        let mut node = Node::connect(address)?;
        node.check()?;
        Ok(node)
    };
    primaries(&address, DEADLINE)?.into_iter().map(connect).collect()
}

/// Where the primaries are that serve slots, if `address` is a node of a cluster; else `address` alone.
///
/// # Errors
/// When it doesn't answer so soon, or its cluster serves no slots.
pub fn primaries(address: &ConnectionInfo, deadline: Duration) -> Result<Vec<ConnectionInfo>> {
    let mut first = Node::connect_within(address.clone(), deadline)?;
    let info = first.info(&["cluster"])?;
    if !info.lines().any(|line| line.trim_end() == "cluster_enabled:1") {
        return Ok(vec![address.clone()]);
    }
    let mut addresses: Vec<(String, u16)> = Vec::new();
    for shard in first.call::<Vec<Vec<Value>>>(&["CLUSTER", "SLOTS"])? {
        let primary = shard.into_iter().nth(2).context("CLUSTER SLOTS names no primary")?;
        let Value::Array(primary) = primary else { bail!("CLUSTER SLOTS has an unknown shape") };
        let [host, port, ..] = &primary[..] else { bail!("CLUSTER SLOTS has an unknown shape") };
        // A node that doesn't know its own address says nothing, or null: it is the one that was asked.
        let host: Option<String> = redis::from_redis_value_ref(host)?;
        let host = host.filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| host_of(address));
        let address = (host, redis::from_redis_value_ref(port)?);
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    ensure!(!addresses.is_empty(), "{}: the cluster serves no slots", first.address);
    let of = |(host, port)| address.clone().set_addr(elsewhere(address.addr(), host, port));
    Ok(addresses.into_iter().map(of).collect())
}

fn host_of(address: &ConnectionInfo) -> String {
    match address.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => "127.0.0.1".to_owned(),
    }
}

/// The same kind of connection, by TLS or not, to another node.
pub fn elsewhere(first: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match first.clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

impl Node {
    /// Connects to one server.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub fn connect(info: ConnectionInfo) -> Result<Node> {
        Node::connect_within(info, DEADLINE)
    }

    /// Connects to one server that has to answer so soon, now and whenever it is asked.
    ///
    /// # Errors
    /// When it doesn't.
    pub fn connect_within(info: ConnectionInfo, deadline: Duration) -> Result<Node> {
        let address = info.addr().to_string();
        let client = redis::Client::open(info)?;
        let connection =
            client.get_connection_with_timeout(deadline).with_context(|| format!("{address}: no connection"))?;
        connection.set_read_timeout(Some(deadline))?;
        connection.set_write_timeout(Some(deadline))?;
        Ok(Node { address, connection })
    }

    fn call<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> Result<T> {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.connection).with_context(|| format!("{}: {}", self.address, words.join(" ")))
    }

    /// Some sections of `INFO`.
    ///
    /// # Errors
    /// As [`Node::status`].
    pub fn info(&mut self, sections: &[&str]) -> Result<String> {
        self.call(&[&["INFO"], sections].concat())
    }

    /// Tenure runs there.
    fn check(&mut self) -> Result<()> {
        let state = self.status().with_context(|| format!("{}: is Tenure loaded there?", self.address))?;
        let state = state.get("state").map_or("", String::as_str);
        ensure!(state == "running", "{}: Tenure is {state}; TENURE.STATUS says why", self.address);
        Ok(())
    }

    /// `TENURE.STATUS`.
    ///
    /// # Errors
    /// When the server refuses or doesn't answer.
    pub fn status(&mut self) -> Result<Fields> {
        self.call(&["TENURE.STATUS"])
    }

    /// `TENURE.TENANTS`.
    ///
    /// # Errors
    /// As [`Node::status`].
    pub fn tenants(&mut self) -> Result<Vec<Fields>> {
        self.call(&["TENURE.TENANTS"])
    }

    /// `TENURE.PARTITIONS`.
    ///
    /// # Errors
    /// As [`Node::status`].
    pub fn partitions(&mut self) -> Result<Vec<Fields>> {
        self.call(&["TENURE.PARTITIONS"])
    }

    /// `TENURE.MRC` without arguments: what other limits would do; `None` where nothing is known of that yet, or a
    /// server is too old to.
    ///
    /// # Errors
    /// As [`Node::status`].
    pub fn sizes(&mut self) -> Result<Option<Vec<BTreeMap<String, redis::Value>>>> {
        match self.call(&["TENURE.MRC"]) {
            Ok(rows) => Ok(Some(rows)),
            Err(error) => {
                let text = format!("{error:#}");
                let is_unknown = text.contains("nothing is known") || text.contains("wrong number of arguments");
                if is_unknown { Ok(None) } else { Err(error) }
            }
        }
    }

    /// `TENURE.MRC`; `None` where nothing is known of the partition yet.
    ///
    /// # Errors
    /// As [`Node::status`].
    pub fn curve(&mut self, partition: &str) -> Result<Option<MissRatioCurve>> {
        let reply = self.call::<Vec<(u64, f64)>>(&["TENURE.MRC", partition, &CURVE_POINTS.to_string()]);
        match reply {
            Ok(points) => {
                let points = points.into_iter().map(|(bytes, miss_ratio)| CurvePoint { bytes, miss_ratio });
                Ok(Some(MissRatioCurve::new(points.collect())))
            }
            Err(error) if format!("{error:#}").contains("nothing is known") => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether an error is of the connection or the server's, so that another connection may help.
pub fn is_of_connection(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<redis::RedisError>())
}

/// A number among the fields; 0 where it isn't there, as on a node with an older Tenure.
pub fn number(fields: &Fields, name: &str) -> f64 {
    fields.get(name).and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// A text among the fields.
pub fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_other_words() {
        for text in ["127.0.0.1:7000", "cache.example:6379", "redis://user:secret@10.0.0.1:7000"] {
            assert!(parse_address(text).is_ok(), "{text}");
        }
        for text in ["trace.csv", "127.0.0.1", "host:port", "host:70000", ""] {
            assert!(parse_address(text).unwrap_err().to_string().contains("HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn other_nodes_are_reached_as_the_first_is() {
        let to = |url: &str| elsewhere(parse_address(url).unwrap().addr(), "10.0.0.2".to_owned(), 7001).to_string();
        let of = |url: &str| parse_address(url).unwrap().addr().to_string();
        assert_eq!(to("10.0.0.1:7000"), of("10.0.0.2:7001"));
        let by_tls = ConnectionAddr::TcpTls { host: String::new(), port: 1, insecure: true, tls_params: None };
        let ConnectionAddr::TcpTls { host, port, insecure, .. } = elsewhere(&by_tls, "10.0.0.2".to_owned(), 7001)
        else {
            panic!("by TLS as the first")
        };
        assert_eq!((host.as_str(), port, insecure), ("10.0.0.2", 7001, true));
    }
}
