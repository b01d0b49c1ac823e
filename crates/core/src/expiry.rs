//! When values expire, and a queue that says which have.
//!
//! A value leaves memory at the moment it expires, asked for or not: what a server's active expiry comes to. The
//! queue is a heap whose entries are never changed in place: a value that was set anew leaves its old entry behind,
//! and the owner tells the two apart by the time it keeps with the value. O(log n) per value with a time to live,
//! nothing for others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::access::{Access, Op};
use crate::units::KeyHash;

/// The expiry time, in µs, of a value that never expires.
pub const NEVER_US: u64 = u64::MAX;

/// When the value that `access` leaves behind expires, in µs: a write sets it anew, and so does the fill after a
/// miss; a read that finds the value (`alive_until_us`) leaves it as it is.
pub fn expires_us_after(access: &Access, alive_until_us: Option<u64>) -> u64 {
    match (access.op, alive_until_us) {
        (Op::Read, Some(until)) => until,
        _ if access.ttl_us == 0 => NEVER_US,
        _ => access.time_us.saturating_add(access.ttl_us),
    }
}

/// Keys by the time their values expire. See the file's opening.
#[derive(Clone, Debug, Default)]
pub struct ExpiryQueue {
    heap: BinaryHeap<Reverse<(u64, KeyHash)>>,
}

impl ExpiryQueue {
    /// Notes that the value of `key` expires at `expires_us`; nothing to note where it never does.
    #[inline]
    pub fn push(&mut self, key: KeyHash, expires_us: u64) {
        if expires_us != NEVER_US {
            self.heap.push(Reverse((expires_us, key)));
        }
    }

    /// The next entry that has expired by `now_us`, oldest first: its key and its time, which the owner compares with
    /// the value's own (an entry whose value was set anew or removed is to be skipped).
    #[inline]
    pub fn pop_expired(&mut self, now_us: u64) -> Option<(KeyHash, u64)> {
        let &Reverse((expires_us, key)) = self.heap.peek()?;
        if expires_us > now_us {
            return None;
        }
        self.heap.pop();
        Some((key, expires_us))
    }

    /// Own memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(u64, KeyHash)>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_expired_comes_out_oldest_first() {
        let mut queue = ExpiryQueue::default();
        let key = KeyHash::of_number;
        for (number, expires_us) in [(1, 30), (2, 10), (3, NEVER_US), (4, 20)] {
            queue.push(key(number), expires_us);
        }
        let mut expired = |now_us| queue.pop_expired(now_us);
        assert_eq!(expired(9), None);
        assert_eq!(expired(20), Some((key(2), 10)));
        assert_eq!(expired(20), Some((key(4), 20)));
        assert_eq!(expired(20), None);
        assert_eq!(expired(u64::MAX - 1), Some((key(1), 30)));
        assert_eq!(expired(u64::MAX - 1), None);
    }

    #[test]
    fn only_a_write_or_a_fill_sets_the_expiry() {
        let read = Access { time_us: 100, ttl_us: 50, ..Access::read(KeyHash(1), 1) };
        assert_eq!(expires_us_after(&read, Some(120)), 120);
        assert_eq!(expires_us_after(&read, None), 150);
        assert_eq!(expires_us_after(&read.with_op(Op::Write), Some(120)), 150);
        assert_eq!(expires_us_after(&Access { ttl_us: 0, ..read.with_op(Op::Write) }, Some(120)), NEVER_US);
    }
}
