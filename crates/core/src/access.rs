//! One access to one key, as the server's filter and the trace readers both report it.

use crate::units::{KeyHash, TenantId};

/// What an access does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Asks for the value. On a miss the client fetches it and stores it at once (cache-aside).
    Read,
    /// Stores the value, present or not.
    Write,
    /// Removes the key.
    Delete,
}

/// One access to one key. 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// The key.
    pub key: KeyHash,
    /// What is done.
    pub op: Op,
    /// Who asks.
    pub tenant: TenantId,
    /// Key, value and the server's overhead for them, in bytes; at least 1, also for a delete.
    pub size_bytes: u32,
    /// When, in µs since the start of the trace; 0 throughout where the trace has no times.
    pub time_us: u64,
    /// How long the value stays valid from now, in µs; 0 = for ever. Counts for writes and for the fill after a miss.
    pub ttl_us: u64,
    /// What a miss of this key costs, in µs; 0 where it isn't known.
    pub penalty_us: f32,
}

impl Access {
    /// A read of `size_bytes` by tenant 0, all else unknown: what most traces hold, and most tests need.
    pub fn read(key: KeyHash, size_bytes: u32) -> Self {
        Access { key, op: Op::Read, tenant: TenantId(0), size_bytes, time_us: 0, ttl_us: 0, penalty_us: 0.0 }
    }

    /// The same access with another operation.
    pub fn with_op(self, op: Op) -> Self {
        Access { op, ..self }
    }
}
