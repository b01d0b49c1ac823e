//! Enforce: the plan carried out in small steps on the main thread, at the end of a turn of the event loop or when it
//! is idle.
//!
//! `walk` goes through the key space bucket by bucket, for the evictor and for the census. `usage` knows how many keys
//! and bytes each partition has. `evict` frees memory before the server's own limit is reached: the keys that `ranks`
//! ranks lowest, or keys of partitions above their target. What it has to free and from whom is in `orders`, how far a
//! slice has come in `slice`, and what a key was like when it was met in `sight`. `newcomers` knows keys of partitions
//! too small for the walk to meet, and `unread` those that may go without a search.

pub mod evict;
pub mod newcomers;
pub mod orders;
pub mod ranks;
mod sight;
pub mod slice;
pub mod unread;
pub mod usage;
pub mod walk;

use tenure_core::units::PARTITIONS_MAX;

/// What partitions may hold where nobody is above a maximum.
pub static UNBOUNDED: [u64; PARTITIONS_MAX] = [u64::MAX; PARTITIONS_MAX];
/// The server's clock of last accesses ticks once a second.
const CLOCK_TICK_MS: u64 = 1000;
