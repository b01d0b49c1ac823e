//! Keys that came while the main thread was busy, oldest first: who of them wasn't accessed since may go without a
//! search (`core/src/policy/density/thrift.rs` says when).
//!
//! The walk opens several keys to find one that may go; the name of a newcomer is at hand when it comes. It is looked
//! at again once a quarter of a queue of others has come. Where few of them turn out to be of use, one in sixteen is
//! noted, so that a change is found out. Cost: a reference to the name for each key that comes. Memory: the names,
//! within a share of the server's limit.

use std::collections::VecDeque;

use crate::ffi::server::Text;

/// All names together may take this share of the server's limit.
const LIMIT_SHARE: u64 = 512;
/// What a name takes in the server's memory and in the queue, in bytes, as most are.
const NAME_BYTES: u64 = 128;
/// Names at the most: of so few keys what the server needs to remove them is still in the processor's cache.
const NAMES_MAX: u64 = 1 << 13;
/// Keys looked at for one victim.
const LOOKS_MAX: usize = 8;
/// Where less than this share of those looked at may go, one newcomer in [`ONE_IN`] is noted.
const SHARE_MIN: f32 = 0.25;
const ONE_IN: u32 = 16;
/// What a look moves the share by, of the difference.
const SHARE_WEIGHT: f32 = 1.0 / 32.0;
/// The oldest is looked at once this part of a queue of others has come.
const OLD_AFTER: usize = 4;
/// Names that are let go of at a time, where there is no more need of any.
const FORGOTTEN_AT_ONCE: usize = 512;

/// A key that has come.
pub struct Unread {
    /// Its name.
    pub name: Text,
    /// Its database.
    pub db: u16,
    /// When it came, by Tenure's own clock.
    pub came: u32,
}

/// What a look at one of them tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go.
    Goes,
    /// It may not: it was accessed, or is worth a search.
    Stays,
    /// It isn't there any more.
    HasGone,
}

/// The queue. See the file's opening.
pub struct Queue {
    keys: VecDeque<Unread>,
    /// The share of those looked at of late that may go.
    share: f32,
    /// Newcomers since one was noted.
    passed: u32,
}

impl Default for Queue {
    /// Empty, and half of those that come are expected to be of use.
    fn default() -> Queue {
        Queue { keys: VecDeque::new(), share: 0.5, passed: 0 }
    }
}

impl Queue {
    /// True while most victims come from here.
    #[inline]
    pub fn is_of_use(&self) -> bool {
        self.share >= SHARE_MIN
    }

    /// Whether the key that comes just now is to be noted.
    #[inline]
    pub fn wants_next(&mut self) -> bool {
        self.passed += 1;
        if !self.is_of_use() && self.passed < ONE_IN {
            return false;
        }
        self.passed = 0;
        true
    }

    /// A key has come. The oldest is forgotten where names would take too much of `limit_bytes`.
    #[inline]
    pub fn came(&mut self, key: Unread, limit_bytes: u64) {
        if self.keys.len() >= capacity(limit_bytes) {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
    }

    /// The oldest of which `look` says that it goes, among the first few, where they have been there for long enough.
    pub fn take(&mut self, limit_bytes: u64, mut look: impl FnMut(&Unread) -> Verdict) -> Option<Unread> {
        for _ in 0..LOOKS_MAX {
            if self.keys.len() <= capacity(limit_bytes) / OLD_AFTER {
                return None;
            }
            let key = self.keys.pop_front()?;
            let verdict = look(&key);
            if verdict != Verdict::HasGone {
                let goes = f32::from(u8::from(verdict == Verdict::Goes));
                self.share += SHARE_WEIGHT * (goes - self.share);
            }
            if verdict == Verdict::Goes {
                return Some(key);
            }
        }
        None
    }

    /// There is no need of them now: some names are let go of.
    pub fn forget_some(&mut self) {
        self.keys.drain(..self.keys.len().min(FORGOTTEN_AT_ONCE));
    }
}

fn capacity(limit_bytes: u64) -> usize {
    (limit_bytes / LIMIT_SHARE / NAME_BYTES).min(NAMES_MAX) as usize
}
