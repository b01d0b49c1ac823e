//! What Tenure can do beside eviction, each in a folder of its own and a cargo feature, plugged in through [`Feature`].

#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "lessons")]
pub mod lessons;
#[cfg(feature = "owners")]
pub mod owners;
#[cfg(feature = "prefixes")]
pub mod prefixes;
#[cfg(feature = "replies")]
pub mod replies;
#[cfg(feature = "sleep")]
pub mod sleep;
#[cfg(feature = "tiers")]
pub mod tiers;

use crate::feature::Feature;
use crate::ffi::server::Server;

/// Of all features the name, whether this module was built with it, and what the names of its settings begin with.
pub const KNOWN: [(&str, bool, &[&str]); 7] = [
    ("sleep", cfg!(feature = "sleep"), &["spill-", "warm-restart"]),
    ("tiers", cfg!(feature = "tiers"), &["tier-"]),
    ("replies", cfg!(feature = "replies"), &["replies"]),
    ("cluster", cfg!(feature = "cluster"), &["limits-scope"]),
    ("lessons", cfg!(feature = "lessons"), &["teach-replicas"]),
    ("owners", cfg!(feature = "owners"), &[]),
    ("prefixes", cfg!(feature = "prefixes"), &["auto-tenants-"]),
];

/// The names of those that this module was built with, separated by spaces.
pub fn names() -> String {
    KNOWN.iter().filter(|(_, is_in, _)| *is_in).map(|(name, ..)| *name).collect::<Vec<_>>().join(" ")
}

/// The feature that a setting belongs to, where this module was built without it.
pub fn left_out(setting: &str) -> Option<&'static str> {
    let is_of = |begins: &[&str]| begins.iter().any(|begin| setting.starts_with(begin));
    KNOWN.iter().find(|(_, is_in, begins)| !is_in && is_of(begins)).map(|(name, ..)| *name)
}

/// All that there are on this server, in the order in which they are called; `is_server_start` where no client was
/// served yet.
pub fn all(server: &mut Server, is_server_start: bool) -> Vec<Box<dyn Feature>> {
    let _ = (&server, is_server_start);
    Vec::from([
        // First, so that replicas work while the rest is done.
        #[cfg(feature = "replies")]
        boxed(replies::Replies::new()),
        #[cfg(feature = "cluster")]
        boxed(cluster::Clustered::new(server.flags().is_cluster())),
        #[cfg(feature = "lessons")]
        boxed(lessons::TeachReplicas::default()),
        // Before those that ask whose a key is.
        #[cfg(feature = "owners")]
        boxed(owners::UsersAsTenants::new()),
        #[cfg(feature = "prefixes")]
        boxed(prefixes::AutoTenants::new()),
        // Before what looks for memory: what wakes needs room before the next commands do.
        #[cfg(feature = "sleep")]
        boxed(sleep::feature::Sleep::new(is_server_start, server.flags().is_cluster())),
        #[cfg(feature = "tiers")]
        boxed(tiers::MemoryTiers::new()),
    ])
}

fn boxed(feature: impl Feature + 'static) -> Box<dyn Feature> {
    Box::new(feature)
}

/// After a fault, of which the state was dropped: gives back what doesn't depend on it.
pub fn after_fault(server: &mut Server) {
    let _ = &server;
    #[cfg(feature = "replies")]
    replies::release_everyone(server);
}
