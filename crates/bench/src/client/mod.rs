//! Who asks: the wire, the cache-aside client, the load generator of the no-miss workload, and the probe for stalls.

mod cache_aside;
pub mod connection;
pub mod load_generator;
pub mod probe;

pub use cache_aside::{CacheAside, Outcome};
pub use connection::{Connection, Reply};
