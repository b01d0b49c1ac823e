//! Keys that came while the main thread was busy, oldest first: who of them wasn't accessed since may go without a
//! search (`core/src/policy/density/thrift.rs` says when).
//!
//! The walk opens several keys to find one that may go; the name of a newcomer is at hand when it comes. It is looked
//! at again once a quarter of a queue of others has come. Where few of them turn out to be of use, one in sixteen is
//! noted, so that a change is found out. Cost: a reference to the name for each key that is noted. Memory:
//! the names, within a share of the server's limit.

use std::collections::VecDeque;

use tenure_core::units::PartitionId;

use crate::ffi::server::Text;

/// All names together may take this share of the server's limit.
const LIMIT_SHARE: u64 = 512;
/// What a name takes in the server's memory and in the queue, in bytes, where it has some twenty.
const NAME_BYTES: u64 = 64;
/// Names at the most: of so few keys what the server needs to remove them is still in the processor's cache.
const NAMES_MAX: u64 = 1 << 13;
/// Keys looked at for one victim…
const LOOKS_MAX: usize = 8;
/// … and of others than the one who is to give, passed over for it.
const PASSED_OVER_MAX: usize = 64;
/// Where less than this share of those noted goes without a search, one newcomer in [`ONE_IN`] is noted.
const SHARE_MIN: f32 = 0.25;
const ONE_IN: u32 = 16;
/// What one of them moves the share by, of the difference.
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
    /// Whose it was when it came.
    pub partition: PartitionId,
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
    /// Another is to give: it waits on, behind all others.
    Waits,
}

/// The queue, of keys as the caller knows them. See the file's opening.
pub struct Queue<T> {
    keys: VecDeque<T>,
    /// The share of those noted of late that went without a search.
    share: f32,
    /// Newcomers since one was noted.
    passed: u32,
    /// Newcomers since somebody asked.
    newcomers: usize,
}

impl<T> Default for Queue<T> {
    /// Empty, and of use until it has shown not to be.
    fn default() -> Self {
        Queue { keys: VecDeque::new(), share: 1.0, passed: 0, newcomers: 0 }
    }
}

impl<T> Queue<T> {
    /// True while many victims come from here.
    #[inline]
    pub fn is_of_use(&self) -> bool {
        self.share >= SHARE_MIN
    }

    /// Whether the key that comes just now is to be noted.
    #[inline]
    pub fn wants_next(&mut self) -> bool {
        self.newcomers += 1;
        self.passed += 1;
        if !self.is_of_use() && self.passed < ONE_IN {
            return false;
        }
        self.passed = 0;
        true
    }

    /// How many keys have come since this was last asked, noted or not.
    pub fn take_newcomers(&mut self) -> usize {
        std::mem::take(&mut self.newcomers)
    }

    /// A key has come. The oldest is forgotten where names would take too much of `limit_bytes`: it was of no use.
    #[inline]
    pub fn came(&mut self, key: T, limit_bytes: u64) {
        if self.keys.len() >= capacity(limit_bytes) && self.keys.pop_front().is_some() {
            self.learn(false);
        }
        self.keys.push_back(key);
    }

    /// The oldest of which `look` says that it goes, among the first few, where they have been there for long enough.
    pub fn take(&mut self, limit_bytes: u64, mut look: impl FnMut(&T) -> Verdict) -> Option<T> {
        let (mut looks, mut passed_over) = (0, 0);
        let passed_over_max = PASSED_OVER_MAX.min(self.keys.len());
        while looks < LOOKS_MAX && passed_over < passed_over_max {
            if self.keys.len() <= capacity(limit_bytes) / OLD_AFTER {
                return None;
            }
            let key = self.keys.pop_front()?;
            let verdict = look(&key);
            looks += usize::from(verdict != Verdict::Waits);
            match verdict {
                Verdict::Goes => {
                    self.learn(true);
                    return Some(key);
                }
                Verdict::Stays => self.learn(false),
                Verdict::HasGone => {}
                Verdict::Waits => {
                    self.keys.push_back(key);
                    passed_over += 1;
                }
            }
        }
        None
    }

    fn learn(&mut self, goes: bool) {
        self.share += SHARE_WEIGHT * (f32::from(u8::from(goes)) - self.share);
    }

    /// There is no need of them now: some names are let go of.
    pub fn forget_some(&mut self) {
        self.keys.drain(..self.keys.len().min(FORGOTTEN_AT_ONCE));
    }
}

fn capacity(limit_bytes: u64) -> usize {
    (limit_bytes / LIMIT_SHARE / NAME_BYTES).min(NAMES_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for 64 names.
    const LIMIT_BYTES: u64 = 64 * LIMIT_SHARE * NAME_BYTES;

    /// So many keys come, and for each one may go; `verdict` says which does. How many did.
    fn run(queue: &mut Queue<u32>, keys: u32, takes: bool, verdict: impl Fn(u32) -> Verdict) -> u32 {
        let mut gone = 0;
        for key in 0..keys {
            if queue.wants_next() {
                queue.came(key, LIMIT_BYTES);
            }
            let is_over = |&noted: &u32| if noted + 16 > key { Verdict::HasGone } else { verdict(noted) };
            gone += u32::from(takes && queue.take(LIMIT_BYTES, is_over).is_some());
        }
        gone
    }

    #[test]
    fn it_is_of_use_while_those_noted_go_and_no_more_where_they_stay() {
        let mut queue = Queue::default();
        let gone = run(&mut queue, 1_000, true, |_| Verdict::Goes);
        assert!(queue.is_of_use() && gone > 900, "from the first on: {gone}");
        assert_eq!(run(&mut queue, 4_000, true, |_| Verdict::Stays), 0);
        assert!(!queue.is_of_use() && queue.keys.len() < 64);
        let gone = run(&mut queue, 4_000, true, |_| Verdict::Goes);
        assert!(queue.is_of_use() && gone > 2_000, "{gone}");
    }

    /// Two have keys here by turns, and the odd ones give alone.
    #[test]
    fn who_is_to_give_does_so_behind_others_and_they_wait_for_their_turn() {
        let mut queue = Queue::default();
        (0..64).for_each(|key| queue.came(key, LIMIT_BYTES));
        let is_odd = |&key: &u32| if key % 2 == 1 { Verdict::Goes } else { Verdict::Waits };
        let gone: Vec<u32> = std::iter::from_fn(|| queue.take(LIMIT_BYTES, is_odd)).collect();
        assert_eq!(gone, (0..32).map(|i| 2 * i + 1).collect::<Vec<_>>(), "the oldest first");
        assert!(queue.is_of_use());
        assert_eq!(queue.take(LIMIT_BYTES, |_| Verdict::Goes), Some(0), "nobody was lost");
        assert!(queue.take(LIMIT_BYTES, |_| Verdict::Waits).is_none());
        assert_eq!(queue.keys.len(), 31);
    }

    /// As where only keys that expire may go.
    #[test]
    fn it_is_of_no_use_where_nobody_takes_from_it() {
        let mut queue = Queue::default();
        run(&mut queue, 4_000, true, |_| Verdict::Goes);
        run(&mut queue, 4_000, false, |_| Verdict::Goes);
        assert!(!queue.is_of_use());
    }

    #[test]
    fn the_oldest_goes_once_others_have_come_and_names_are_few() {
        let mut queue = Queue::default();
        (0..16).for_each(|key| queue.came(key, LIMIT_BYTES));
        assert_eq!(queue.take(LIMIT_BYTES, |_| Verdict::Goes), None, "too young");
        (16..100).for_each(|key| queue.came(key, LIMIT_BYTES));
        assert_eq!(queue.take(LIMIT_BYTES, |_| Verdict::Goes), Some(36), "64 are kept");
        queue.forget_some();
        assert!(queue.keys.is_empty());
    }
}
