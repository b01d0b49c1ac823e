//! Which slot of a cluster a key is in.
//!
//! Source: the Redis Cluster specification, "Key distribution model": CRC16 (XMODEM) of the key modulo 16384, of what
//! stands in the key's first pair of braces where that is something. About 1 ns per byte.

use crc16::{State, XMODEM};

/// Slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// The slot of a key, below [`SLOTS`].
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&byte| byte == b'}').filter(|&length| length > 0).map(|length| &rest[..length])
    });
    State::<XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `CLUSTER KEYSLOT` answers.
    #[test]
    fn slots_are_those_of_the_server() {
        for (key, slot) in [
            (&b"foo"[..], 12182),
            (b"", 0),
            (b"123456789", 12739),
            (b"{user1000}.following", 3443),
            (b"{user1000}.followers", 3443),
            (b"user1000", 3443),
            (b"foo{}bar", 14_292),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
        ] {
            assert_eq!(slot_of(key), slot, "{}", String::from_utf8_lossy(key));
        }
    }
}
