//! What Tenure can do beside eviction, each in a folder of its own, plugged in through [`Feature`].

pub mod cluster;
pub mod replies;
pub mod tiers;

use self::cluster::Clustered;
use self::replies::Replies;
use self::tiers::MemoryTiers;
use crate::feature::Feature;
use crate::ffi::server::Server;

/// All that there are on this server, in the order in which they are called.
pub fn all(server: &mut Server) -> Vec<Box<dyn Feature>> {
    vec![
        // First, so that replicas work while the rest is done.
        Box::new(Replies::new()),
        Box::new(Clustered::new(server.flags().is_cluster())),
        Box::new(MemoryTiers::new()),
    ]
}
