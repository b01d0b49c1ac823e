//! Who asks: the wire, the routes to a cluster's nodes, the cache-aside client, many of them together, the load
//! generator of the no-miss workload, and the probe for stalls.

pub mod cache;
mod cache_aside;
pub mod connection;
pub mod load_generator;
pub mod probe;
mod together;

pub use cache::{Cache, Route, SlotMap};
pub use cache_aside::{CacheAside, Outcome};
pub use connection::{Connection, Reply};
pub use together::Queue;
