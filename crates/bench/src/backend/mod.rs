//! Backends: where a value comes from when the cache doesn't have it, and what that costs.
//!
//! A [`BackendSpec`] is what `--backend` says; [`Backends::start`] makes it real (a database file, a database server,
//! a proxy) and [`Backends::connect`] gives each client connections of its own, so that no client waits for another's
//! lock. A workload with several backends finds a key's by the key's hash or by its tenant: see
//! [`crate::workload::keys`].

mod delay;
mod mariadb;
mod proxy;
mod slow_down;
mod sqlite;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};

use crate::workload::Stream;

pub use mariadb::MariaDb;
pub use proxy::DelayProxy;
pub use slow_down::SlowDown;
pub use sqlite::SqliteFile;

/// How long the proxy holds each byte on its way to or from the remote MariaDB.
pub const REMOTE_ONE_WAY: Duration = Duration::from_micros(450);

/// One client's connection to one backend.
pub trait Backend: Send {
    /// Replaces `value` by the value of `key`, `value_bytes` bytes long, after as long as the backend takes for it.
    ///
    /// # Errors
    /// When the backend fails; the text says which one.
    fn fetch(&mut self, key: &[u8], value_bytes: usize, value: &mut Vec<u8>) -> anyhow::Result<()>;
}

/// Which of MariaDB's two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MariaDbRoute {
    /// Over loopback.
    Local,
    /// Through the proxy that holds each byte 450 µs each way.
    Remote,
}

/// What `--backend` says.
#[derive(Clone, Debug, PartialEq)]
pub enum BackendSpec {
    /// `delay:US,US…`: one backend per delay, in µs.
    Delay(Vec<f64>),
    /// `sqlite` or `sqlite:US,US…`: one backend per additional delay, all on one file; without delays one backend.
    Sqlite(Vec<f64>),
    /// `mariadb` (both routes), `mariadb:local`, `mariadb:remote`: one backend per route to one server.
    MariaDb(Vec<MariaDbRoute>),
}

impl BackendSpec {
    /// How many backends there are.
    pub fn len(&self) -> usize {
        match self {
            BackendSpec::Delay(delays) | BackendSpec::Sqlite(delays) => delays.len(),
            BackendSpec::MariaDb(routes) => routes.len(),
        }
    }

    /// Never: a specification names at least one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a table calls the backend at `index`.
    pub fn label(&self, index: usize) -> String {
        match self {
            BackendSpec::Delay(delays) => format!("{} µs", delays[index]),
            BackendSpec::Sqlite(delays) if delays[index] == 0.0 => "sqlite".to_string(),
            BackendSpec::Sqlite(delays) => format!("sqlite + {} µs", delays[index]),
            BackendSpec::MariaDb(routes) => match routes[index] {
                MariaDbRoute::Local => "mariadb, local".to_string(),
                MariaDbRoute::Remote => "mariadb, remote".to_string(),
            },
        }
    }
}

impl FromStr for BackendSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("delay", delays) => Ok(BackendSpec::Delay(parse_delays(delays)?)),
            ("sqlite", "") => Ok(BackendSpec::Sqlite(vec![0.0])),
            ("sqlite", delays) => Ok(BackendSpec::Sqlite(parse_delays(delays)?)),
            ("mariadb", "") => Ok(BackendSpec::MariaDb(vec![MariaDbRoute::Local, MariaDbRoute::Remote])),
            ("mariadb", "local") => Ok(BackendSpec::MariaDb(vec![MariaDbRoute::Local])),
            ("mariadb", "remote") => Ok(BackendSpec::MariaDb(vec![MariaDbRoute::Remote])),
            _ => bail!(
                "backend '{text}' is none of delay:US,US…, sqlite, sqlite:US,US…, mariadb, mariadb:local, \
                 mariadb:remote"
            ),
        }
    }
}

impl fmt::Display for BackendSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |delays: &[f64]| delays.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        match self {
            BackendSpec::Delay(delays) => write!(f, "delay:{}", list(delays)),
            BackendSpec::Sqlite(delays) if *delays == [0.0] => f.write_str("sqlite"),
            BackendSpec::Sqlite(delays) => write!(f, "sqlite:{}", list(delays)),
            BackendSpec::MariaDb(routes) => f.write_str(match routes[..] {
                [MariaDbRoute::Local] => "mariadb:local",
                [MariaDbRoute::Remote] => "mariadb:remote",
                _ => "mariadb",
            }),
        }
    }
}

fn parse_delays(text: &str) -> anyhow::Result<Vec<f64>> {
    let delays: Option<Vec<f64>> = text.split(',').map(|delay| delay.trim().parse().ok()).collect();
    let allowed = |delay: &f64| (0.0..=10_000_000.0).contains(delay);
    match delays {
        Some(delays) if delays.iter().all(allowed) => Ok(delays),
        _ => bail!("delays '{text}' are not numbers of µs from 0 to 10000000 between commas"),
    }
}

/// The backends of a comparison, running. Dropping them stops what was started.
pub struct Backends {
    started: Started,
    slow_down: Option<SlowDown>,
    /// The slow-down is in force; all connections look here.
    is_slow: Arc<AtomicBool>,
}

enum Started {
    Delay(Vec<f64>),
    Sqlite { file: SqliteFile, delays: Vec<f64> },
    // The proxy is dropped before the server it leads to.
    MariaDb { routes: Vec<MariaDbRoute>, proxy: Option<DelayProxy>, server: MariaDb },
}

impl Backends {
    /// Makes `spec` real; databases are given `n_rows` rows of 1 KB, which takes MariaDB about 20 s per million. One
    /// backend may slow down later, see [`Backends::set_slow`].
    ///
    /// # Errors
    /// When a database cannot be started or filled, or there is no such backend to slow down.
    pub fn start(spec: &BackendSpec, n_rows: u64, slow_down: Option<SlowDown>) -> anyhow::Result<Backends> {
        ensure!((1..=100_000_000).contains(&n_rows), "{n_rows} rows: 1 to 100000000 are allowed");
        if let Some(SlowDown { backend, .. }) = slow_down {
            ensure!(backend < spec.len(), "no backend {backend} to slow down: {spec} has 0 to {}", spec.len() - 1);
        }
        let started = match spec {
            BackendSpec::Delay(delays) => Started::Delay(delays.clone()),
            BackendSpec::Sqlite(delays) => {
                Started::Sqlite { file: SqliteFile::create(n_rows)?, delays: delays.clone() }
            }
            BackendSpec::MariaDb(routes) => {
                let server = MariaDb::start(n_rows)?;
                let is_remote = routes.contains(&MariaDbRoute::Remote);
                let proxy = is_remote.then(|| DelayProxy::start(server.address(), REMOTE_ONE_WAY)).transpose()?;
                Started::MariaDb { routes: routes.clone(), proxy, server }
            }
        };
        Ok(Backends { started, slow_down, is_slow: Arc::default() })
    }

    /// A connection to each backend, in their order, for one client.
    ///
    /// # Errors
    /// When a database refuses.
    pub fn connect(&self) -> anyhow::Result<Vec<Box<dyn Backend>>> {
        let slowed = |(index, backend)| match self.slow_down {
            Some(slow_down) if slow_down.backend == index => {
                slow_down::Slowed::boxed(backend, slow_down.extra_us, &self.is_slow)
            }
            _ => backend,
        };
        Ok(self.connect_at_speed()?.into_iter().enumerate().map(slowed).collect())
    }

    fn connect_at_speed(&self) -> anyhow::Result<Vec<Box<dyn Backend>>> {
        match &self.started {
            Started::Delay(delays) => Ok(delays.iter().map(|&delay| delay::Delay::boxed(delay)).collect()),
            Started::Sqlite { file, delays } => delays.iter().map(|&delay| file.connect(delay)).collect(),
            Started::MariaDb { routes, proxy, server } => {
                let address = |route: &MariaDbRoute| match (route, proxy) {
                    (MariaDbRoute::Remote, Some(proxy)) => proxy.address(),
                    _ => server.address(),
                };
                routes.iter().map(|route| server.connect(address(route))).collect()
            }
        }
    }

    /// The request of `stream` from which on a backend shall be slow; none where none is to slow down.
    pub fn slow_from(&self, stream: &Stream) -> Option<usize> {
        self.slow_down.map(|slow_down| slow_down.since.first_request(stream))
    }

    /// Switches the slow-down on or off, for all connections and whatever they fetch from now on.
    pub fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }
}

/// Which row of a table of `n_rows` holds `key`, from 1.
fn row_of(key: &[u8], n_rows: u64) -> u64 {
    1 + tenure_core::units::KeyHash::of(key).0 % n_rows
}

/// Makes `value` `value_bytes` long from `row`, cut or repeated: the cache holds what the workload says, whatever
/// rows measure.
fn fit(row: &[u8], value_bytes: usize, value: &mut Vec<u8>) {
    value.clear();
    while value.len() < value_bytes && !row.is_empty() {
        let n = row.len().min(value_bytes - value.len());
        value.extend_from_slice(&row[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_read_and_bad_ones_refused() {
        for (text, n) in
            [("delay:120,1000", 2), ("sqlite", 1), ("sqlite:0,1000", 2), ("mariadb", 2), ("mariadb:local", 1)]
        {
            let spec: BackendSpec = text.parse().unwrap();
            assert_eq!((spec.to_string(), spec.len()), (text.to_string(), n));
            assert!(!spec.label(n - 1).is_empty());
        }
        for text in ["delay", "delay:", "delay:1,x", "delay:-1", "delay:nan", "sqlite:x", "mysql", "mariadb:far", ""] {
            let error = text.parse::<BackendSpec>().unwrap_err().to_string();
            assert!(error.contains("delay"), "{error}");
        }
    }

    #[test]
    fn values_have_the_size_that_is_asked_for() {
        let mut value = b"old".to_vec();
        fit(b"abc", 7, &mut value);
        assert_eq!(value, b"abcabca");
        fit(b"abc", 2, &mut value);
        assert_eq!(value, b"ab");
    }

    #[test]
    fn keys_are_spread_over_all_rows() {
        let rows: std::collections::HashSet<u64> = (0..100).map(|i| row_of(format!("k{i}").as_bytes(), 5)).collect();
        assert_eq!(rows, (1..=5).collect());
    }
}
