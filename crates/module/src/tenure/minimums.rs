//! Whether what tenants are guaranteed fits: their minimums together are no more than `maxmemory` has for keys.
//!
//! More is refused where it is set (`CONFIG SET tenure.tenants`). Where it comes with the configuration file, or the
//! limit is lowered or other memory grows later, minimums are cut alike, each to the same share, and the log and
//! `TENURE.STATUS` say so.

use tenure_core::units::format_bytes;

use super::Tenure;
use crate::config::Settings;
use crate::ffi::alloc;
use crate::ffi::server::{Level, Server};

/// Minimums that were cut fit again where so large a share of the room holds them: used memory goes up and down a
/// little.
const FITS_AGAIN: f64 = 0.95;

/// Refuses minimums that are more together than there is for keys; `room_bytes` is that, where it is known.
///
/// # Errors
/// What they are together, and what there is.
pub fn check(settings: &Settings, limit_bytes: u64, room_bytes: Option<u64>) -> Result<(), String> {
    let sum = settings.tenants.minimums_bytes();
    // Those of a cluster hold for all primaries together.
    if limit_bytes == 0 || settings.has_limits_of_cluster() || sum <= room_bytes.unwrap_or(limit_bytes).min(limit_bytes)
    {
        return Ok(());
    }
    let (all, limit) = (format_bytes(sum), format_bytes(limit_bytes));
    Err(match room_bytes.filter(|_| sum <= limit_bytes) {
        None => format!("tenants' minimums are {all} together, above maxmemory of {limit}"),
        Some(room_bytes) => format!(
            "tenants' minimums are {all} together, above {}, which is what maxmemory of {limit} has for keys beside \
             headroom, buffers and Tenure's own memory",
            format_bytes(room_bytes)
        ),
    })
}

impl Tenure {
    /// What a limit of so many bytes has for keys: without headroom, buffers and what Tenure takes. `None` without a
    /// limit.
    pub fn room_for_keys(&self, server: &mut Server, limit_bytes: u64) -> Option<u64> {
        if limit_bytes == 0 {
            return None;
        }
        let room_bytes = limit_bytes.saturating_sub(self.headroom_bytes());
        // What keys take is told roughly until the walk has come round.
        let others_bytes = match self.usage.is_counted() {
            true => self.used_bytes(server).saturating_sub(self.usage.bytes().iter().sum()),
            false => alloc::allocated_bytes() as u64,
        };
        Some(room_bytes.saturating_sub(others_bytes))
    }

    /// Cuts minimums that don't fit any more, and says so once; ten times a second.
    pub(super) fn fit_minimums(&mut self, server: &mut Server) {
        let room_bytes = self.room_for_keys(server, self.memory.limit_bytes).unwrap_or(u64::MAX);
        let partitions = &mut self.observer.partitions;
        partitions.fit_minimums(room_bytes);
        let sum = partitions.tenants().minimums_bytes();
        let are_cut = match self.memory.minimums_share < 1.0 {
            true => sum as f64 > FITS_AGAIN * room_bytes as f64,
            false => sum > room_bytes,
        };
        let were_cut = self.memory.minimums_share < 1.0;
        self.memory.minimums_share = match are_cut {
            // Just below one where they fit, but barely.
            true => (room_bytes as f64 / sum as f64).min(0.9999),
            false => 1.0,
        };
        if are_cut && !were_cut {
            let (all, room) = (format_bytes(sum), format_bytes(room_bytes));
            let limit = format_bytes(self.memory.limit_bytes);
            let text = format!(
                "tenants' minimums of {all} together don't fit: maxmemory of {limit} has {room} for keys; each tenant \
                 has the same share of its own, see bytes_guaranteed in TENURE.TENANTS"
            );
            server.log(Level::Warning, &text);
        } else if were_cut && !are_cut {
            server.log(Level::Notice, "tenants' minimums fit again");
        }
    }

    /// Whether tenants have what they are guaranteed.
    pub fn minimums_status(&self) -> String {
        let sum = self.observer.partitions.tenants().minimums_bytes();
        if sum == 0 {
            "none".to_owned()
        } else if self.memory.minimums_share < 1.0 {
            let all = format_bytes(sum);
            format!(
                "cut to {:.1} %: {all} together are above what maxmemory has for keys",
                100.0 * self.memory.minimums_share
            )
        } else {
            "kept".to_owned()
        }
    }
}
