//! Whether Tenure evicts, and why not, as people are told.

use crate::ffi::server::Server;

/// Whether Tenure evicts, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionStatus {
    /// It evicts when memory is short.
    Ready,
    /// `maxmemory` is 0.
    NoLimit,
    /// `maxmemory-policy` is `noeviction`.
    NoEviction,
    /// `tenure.policy` is `off`.
    PolicyOff,
    /// The server evicts, with the K that was chosen.
    ByServer,
    /// No plan was made yet.
    NoPlan,
    /// The worker hasn't been heard of for too long.
    StalePlan,
    /// The worker has died of a fault.
    NoWorker,
    /// This server follows a primary, which evicts for both.
    Replica,
    /// A data set is being loaded.
    Loading,
    /// Clients or writes are paused.
    Paused,
    /// `import-mode` is on.
    Importing,
    /// `maxmemory-policy` is a `volatile-*`, and no key expires.
    NothingExpires,
}

impl EvictionStatus {
    /// For STATUS and INFO.
    pub fn as_str(self) -> &'static str {
        match self {
            EvictionStatus::Ready => "ready",
            EvictionStatus::NoLimit => "standing by: maxmemory is 0",
            EvictionStatus::NoEviction => "standing by: maxmemory-policy is noeviction",
            EvictionStatus::PolicyOff => "standing by: tenure.policy is off",
            EvictionStatus::ByServer => "left to the server, whose maxmemory-samples follows",
            EvictionStatus::NoPlan => "standing by: no plan yet",
            EvictionStatus::StalePlan => "standing by: the last plan is too old",
            EvictionStatus::NoWorker => {
                "standing by: the worker has died; CONFIG SET tenure.enabled yes starts it again"
            }
            EvictionStatus::Replica => "standing by: this server is a replica",
            EvictionStatus::Loading => "standing by: the server is loading",
            EvictionStatus::Paused => "standing by: writes are paused",
            EvictionStatus::Importing => "standing by: import-mode is on",
            EvictionStatus::NothingExpires => {
                "standing by: maxmemory-policy lets only keys go that expire, and none does"
            }
        }
    }
}

/// What stands against evicting that the server has to be asked for.
pub(super) fn status_by_state(server: &mut Server) -> EvictionStatus {
    let flags = server.flags();
    if flags.is_replica() {
        EvictionStatus::Replica
    } else if flags.is_loading() {
        EvictionStatus::Loading
    } else if server.writes_are_paused() {
        EvictionStatus::Paused
    } else {
        EvictionStatus::Ready
    }
}
