//! Policies: which of a sample of keys goes. One scorer per file; the server's evictor and the simulator call the same.

pub mod cache;
pub mod density;
pub mod exact_lru;
pub mod gdsf;
mod heap;
pub mod kredis;
pub mod lfu;
pub mod linked;
pub mod lru;
pub mod over_target;
pub mod partitioned;
pub mod pools;
pub mod predis;
pub mod redis;
pub mod s3fifo;
pub mod sampled;
pub mod shortlist;
pub mod table;
pub mod walk;

use crate::units::PartitionId;

/// What is known of a sampled key when a victim is chosen. Times are in the caller's unit (ms in the server, requests
/// in the simulator), the same for all candidates that are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Where it belongs.
    pub partition: PartitionId,
    /// Time since its last access.
    pub idle: u64,
    /// Time since it entered the cache; 0 where it isn't known.
    pub resident: u64,
    /// Requests for it since it entered; 0 where it isn't known.
    pub n_requests: u32,
    /// Memory it takes, in bytes.
    pub size_bytes: u32,
    /// What a miss of it costs, in µs.
    pub penalty_us: f32,
}

/// Ranks candidates. The lowest score is evicted first; scores are compared only among candidates of one sample.
pub trait Scorer {
    /// The worth of keeping `candidate`; never NaN.
    fn score(&self, candidate: &Candidate) -> f64;
}

/// What a policy that decides has decided so far. Empty for those that don't.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What each partition should hold, in bytes.
    pub target_bytes: Vec<u64>,
    /// What each partition holds, in bytes.
    pub used_bytes: Vec<u64>,
    /// The sampling size K of each partition, or of all.
    pub sample_sizes: Vec<u32>,
}

/// A cache whose decisions can be looked at.
pub trait Inspect {
    /// The decisions in force now.
    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}

impl Inspect for cache::KLru {}
