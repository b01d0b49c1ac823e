//! Slots of a cluster that move as a whole (`CLUSTER MIGRATESLOTS`, Valkey 9): what the server asks of modules for
//! it, and what it tells them.
//!
//! The node that takes slots over holds their keys before they are its own: commands of the source make them, and key
//! events tell of each, but `DBSIZE`, `SCAN` and the server's eviction pass them by until all are there. Then they
//! are the node's from one moment to the next, or they are deleted one by one. The node that gives slots away deletes
//! their keys once they are the other's, with an event for each.
//!
//! The bindings are older than the event, so its number and structure stand here, by Valkey 9.0's `valkeymodule.h`.
//! Redis has other ones under the same numbers (and asks modules for nothing), so they are used on Valkey alone.

use std::ffi::c_char;

use super::server::Server;

/// `VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION`.
pub(super) const EVENT: u64 = 19;

/// How a node comes by slots, or gives them away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Their keys are on their way: they are there, and not yet this node's.
    Arriving,
    /// They are its own.
    Arrived,
    /// They stay another's, and what had come of their keys has been deleted.
    Refused,
    /// They begin to leave: their keys are sent, and what happens to these from now on.
    Leaving,
    /// They stay after all.
    Kept,
    /// They are another's.
    Left,
}

/// Slots on their way to this node or away, or to the primary that it follows.
#[derive(Clone, Debug)]
pub struct Migration {
    /// Which of several.
    pub job: [u8; 40],
    /// How far it is.
    pub stage: Stage,
    /// First and last of each range.
    pub ranges: Vec<(u16, u16)>,
}

#[repr(C)]
struct SlotRange {
    start: i32,
    end: i32,
}

/// `ValkeyModuleAtomicSlotMigrationInfoV1`.
#[repr(C)]
pub(super) struct Told {
    version: u64,
    job: [c_char; 41],
    ranges: *const SlotRange,
    n_ranges: u32,
}

/// True where the server moves slots so.
pub(super) fn is_known(server: &mut Server) -> bool {
    let version = server.info_field(c"server", c"valkey_version").unwrap_or_default();
    version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 9)
}

/// What the event tells; `None` of what is unknown.
///
/// # Safety
/// `told` came with this event and this subevent, and lives.
pub(super) unsafe fn migration(subevent: u64, told: *const Told) -> Option<Migration> {
    let stage = match subevent {
        0 => Stage::Arriving,
        1 => Stage::Leaving,
        2 => Stage::Refused,
        3 => Stage::Kept,
        4 => Stage::Arrived,
        5 => Stage::Left,
        _ => return None,
    };
    // SAFETY: by the caller's promise.
    let told = unsafe { told.as_ref() }?;
    let ranges = match told.n_ranges {
        0 => &[],
        // SAFETY: the structure holds that many ranges, which live with it.
        n => unsafe { std::slice::from_raw_parts(told.ranges, n as usize) },
    };
    let ranges = ranges.iter().map(|range| (range.start as u16, range.end as u16)).collect();
    Some(Migration { job: std::array::from_fn(|i| told.job[i] as u8), stage, ranges })
}
