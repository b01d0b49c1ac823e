//! What a key is ranked by under Tenure's own policy, as the server knows its value: `tenure_core::policy::density`
//! does the rest.

use tenure_core::key_table::Entry;
use tenure_core::policy::density::{Ranks, Subject, Value};
use tenure_core::units::PartitionId;

use super::CLOCK_TICK_MS;
use crate::ffi::server::Key;

/// What is known of a key of that partition that takes `size_bytes`.
#[inline]
pub fn subject(ranks: &Ranks, known: Option<&Entry>, partition: PartitionId, size_bytes: u32, key: &Key) -> Subject {
    subject_idle(ranks, known, (partition, size_bytes), key, || key.idle())
}

/// The same where `idle` tells how long the server knows it not to have been used.
#[inline]
pub fn subject_idle(
    ranks: &Ranks,
    known: Option<&Entry>,
    (partition, size_bytes): (PartitionId, u32),
    key: &Key,
    idle: impl FnOnce() -> u64,
) -> Subject {
    let value = Value { partition, size_bytes, expires_in_ms: key.expires_in_ms() };
    ranks.subject(known, value, || idle().saturating_add(CLOCK_TICK_MS))
}
