//! How much room there really is: bytes until eviction begins, of what the used memory isn't data, and how long the
//! room lasts at the present pace.
//!
//! Used memory is what the server counts against its limit; buffers and data are its own figures, read with the limit
//! about once a second. Data is what all keys with their values take, as `MEMORY USAGE` has it. What is left is the
//! server's own: its tables of keys, scripts, and what it takes empty.

use std::ffi::CStr;

use tenure_core::units::format_bytes;

/// The pace is that of the last so many µs…
const PACE_OVER_US: f64 = 10e6;
/// … and where the next seconds count, of these.
const PACE_NOW_OVER_US: f64 = 1e6;
/// Less than this part of the limit is no room: keys go, and memory stands still.
const LITTLE_PART: u64 = 50;

/// What is known of the room. See the file's opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Used memory as it counts against the limit, in bytes.
    pub used_bytes: u64,
    /// From here on keys are evicted, in bytes; 0 = without a limit.
    pub begins_at_bytes: u64,
    /// All keys with their values, in bytes.
    pub data_bytes: u64,
    /// Buffers of clients, of replication and of the append-only file, in bytes.
    pub buffers_bytes: u64,
    /// What Tenure holds, in bytes.
    pub tenure_bytes: u64,
    /// How fast used memory grows, in bytes per µs.
    pace: f64,
    /// The same just now.
    pace_now: f64,
    looked_at_us: u64,
}

/// The fields of `INFO memory` that are buffers.
pub const BUFFERS: [&CStr; 5] =
    [c"mem_clients_normal", c"mem_clients_slaves", c"mem_replication_backlog", c"mem_aof_buffer", c"mem_cluster_links"];

impl Room {
    /// Ten times a second: so much is used, and eviction begins there.
    pub fn look(&mut self, now_us: u64, used_bytes: u64, begins_at_bytes: u64) {
        let elapsed_us = now_us.saturating_sub(self.looked_at_us) as f64;
        let grown = used_bytes as f64 - self.used_bytes as f64;
        // Another limit, or a first look, says nothing of the pace.
        if self.looked_at_us > 0 && elapsed_us > 0.0 && self.begins_at_bytes > 0 && begins_at_bytes > 0 {
            let follow = |pace: f64, over_us: f64| pace + (elapsed_us / over_us).min(1.0) * (grown / elapsed_us - pace);
            self.pace = follow(self.pace, PACE_OVER_US);
            self.pace_now = follow(self.pace_now, PACE_NOW_OVER_US);
        } else {
            (self.pace, self.pace_now) = (0.0, 0.0);
        }
        (self.looked_at_us, self.used_bytes, self.begins_at_bytes) = (now_us, used_bytes, begins_at_bytes);
    }

    /// Bytes until eviction begins; `None` without a limit.
    pub fn bytes(&self) -> Option<u64> {
        (self.begins_at_bytes > 0).then(|| self.begins_at_bytes.saturating_sub(self.used_bytes))
    }

    /// The same in seconds at the present pace; `None` where it doesn't shrink.
    pub fn seconds(&self) -> Option<u64> {
        let seconds = self.bytes()? as f64 / self.pace / 1e6;
        // A year at that pace is no pace.
        (self.pace > 0.0 && seconds < 365.0 * 86_400.0).then_some(seconds as u64)
    }

    /// True where keys are evicted, or will be within so many µs at the pace of the last second.
    pub fn is_short_within(&self, us: f64) -> bool {
        let is_short = |bytes| bytes < self.begins_at_bytes / LITTLE_PART || (bytes as f64) < self.pace_now * us;
        self.bytes().is_some_and(is_short)
    }

    /// Used memory that isn't data, in bytes.
    pub fn not_data_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.data_bytes)
    }

    /// Of that, what is neither buffers nor Tenure's.
    pub fn server_bytes(&self) -> u64 {
        self.not_data_bytes().saturating_sub(self.buffers_bytes + self.tenure_bytes)
    }

    /// In words.
    pub fn text(&self) -> String {
        let Some(bytes) = self.bytes() else { return "no limit".to_owned() };
        let pace = match (bytes, self.seconds()) {
            (0, _) => "none: memory is full".to_owned(),
            (_, Some(seconds)) => {
                format!("{} until eviction begins, in {seconds} s at the present pace", format_bytes(bytes))
            }
            (_, None) => format!("{} until eviction begins, and memory doesn't grow", format_bytes(bytes)),
        };
        format!(
            "{pace}; of {} used {} is data, {} buffers, {} Tenure's, {} the server's own",
            format_bytes(self.used_bytes),
            format_bytes(self.data_bytes),
            format_bytes(self.buffers_bytes),
            format_bytes(self.tenure_bytes),
            format_bytes(self.server_bytes()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 bytes a second until 500 are left: half a second. A second later nothing has come: the pace is that of
    /// ten seconds.
    #[test]
    fn the_room_is_what_is_left_at_the_pace_of_late() {
        let mut room = Room::default();
        assert_eq!((room.bytes(), room.seconds(), room.text().as_str()), (None, None, "no limit"));
        for tick in 1..=1_000 {
            room.look(tick * 100_000, tick * 100, 100_500);
        }
        assert_eq!((room.bytes(), room.seconds()), (Some(500), Some(0)));
        room.look(100_100_000, 50_000, 100_500);
        assert_eq!((room.bytes(), room.seconds()), (Some(50_500), None), "it shrinks");
        assert!(room.text().contains("doesn't grow"), "{}", room.text());
        room.look(100_200_000, 200_000, 100_500);
        assert!(room.bytes() == Some(0) && room.text().starts_with("none: memory is full"), "{}", room.text());
    }

    /// A megabyte a second until a third is left of ten, then nothing: nobody has to expect an eviction soon.
    #[test]
    fn room_that_is_filled_within_seconds_is_short_and_room_that_nobody_fills_is_not() {
        let mut room = Room::default();
        let mut tick = 0;
        let mut look = |room: &mut Room, bytes: u64| {
            tick += 1;
            room.look(tick * 100_000, bytes, 10_000_000);
        };
        (1..=67).for_each(|i| look(&mut room, i * 100_000));
        assert!(room.is_short_within(4e6) && !room.is_short_within(3e6), "{room:?}");
        (0..50).for_each(|_| look(&mut room, 6_700_000));
        assert!(!room.is_short_within(10e6) && room.seconds() < Some(60), "the longer pace forgets later: {room:?}");
        (0..100).for_each(|_| look(&mut room, 9_900_000));
        assert!(room.is_short_within(0.0), "memory stands still because keys go");
        assert!(!Room::default().is_short_within(1e9), "without a limit none goes");
    }

    #[test]
    fn what_is_no_data_is_told_apart() {
        let room = Room { used_bytes: 100, data_bytes: 60, buffers_bytes: 10, tenure_bytes: 20, ..Room::default() };
        assert_eq!((room.not_data_bytes(), room.server_bytes()), (40, 10));
        let wrong = Room { data_bytes: 120, ..room };
        assert_eq!((wrong.not_data_bytes(), wrong.server_bytes()), (0, 0), "estimates may be off");
    }
}
