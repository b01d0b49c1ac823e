//! What the Tenures of a cluster know of each other: the parts that need no server. `tenure/cluster.rs` ties them to the turn, and
//! `ffi/bus.rs` carries their messages.
//!
//! Every primary decides for its own share of the keys by itself: slots are a hash, so each share is a sample of the whole, and its
//! curve the whole's at its part of the memory. Two things can't be known by one node alone: what part of a limit that holds for
//! the whole cluster is its own, and, on a replica, what its primary has learned from reads.

pub mod lessons;
pub mod shares;
pub mod view;
pub mod wire;
