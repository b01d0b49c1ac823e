//! What `tenure.replies` is worth and what it costs: `tenure replies`.
//!
//! Source: Chen et al., TrustCom'16, sec. IV.C: a primary with two replicas and clients that only write. [`loss`]
//! kills the primary in mid-run and counts the acknowledged writes that no replica has; [`price`] measures throughput
//! and latency (Figures 8 and 9). [`writers`] are the clients, [`trio`] the three servers.

pub mod loss;
pub mod price;
pub mod trio;
pub mod writers;

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use serde::Serialize;

/// What an answer to a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The server alone, without the module.
    Stock,
    /// Nothing, with the module.
    Async,
    /// The replicas' sockets.
    Sent,
    /// A replica's acknowledgement.
    Acked,
    /// The same, by a `WAIT 1 0` that the client sends behind each of its batches, without the module.
    Wait,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 5] = [Way::Stock, Way::Async, Way::Sent, Way::Acked, Way::Wait];

    fn name(self) -> &'static str {
        match self {
            Way::Stock => "stock",
            Way::Async => "async",
            Way::Sent => "sent",
            Way::Acked => "acked",
            Way::Wait => "wait",
        }
    }

    /// The setting of the module; `None` where it is not loaded.
    pub fn setting(self) -> Option<&'static str> {
        matches!(self, Way::Async | Way::Sent | Way::Acked).then(|| self.name())
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Way {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match Way::ALL.into_iter().find(|way| way.name() == text) {
            Some(way) => Ok(way),
            None => bail!("'{text}' is none of stock, async, sent, acked, wait"),
        }
    }
}
