//! Fetches that take their time, in a simulated cache: who asks for a key while it is being fetched waits for the rest
//! of that fetch. That is a delayed hit.
//!
//! Source: Atre, Sherry, Wang and Berger, SIGCOMM'20. One fetch serves all who ask meanwhile, whether or not its value
//! has been evicted by then. Cost: a look-up per access, O(log n) per fetch.

use crate::access::{Access, Op};
use crate::expiry::ExpiryQueue;
use crate::model::key_map::KeyMap;
use crate::policy::cache::Outcome;

/// What an access waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// Nothing.
    Nothing,
    /// A fetch of its own, for as long as that takes.
    Fetch,
    /// The rest of one under way, in µs.
    Delayed(f32),
}

/// The fetches under way. See the file's opening.
#[derive(Clone, Debug, Default)]
pub struct Fetches {
    /// When each ends, in µs.
    ends: KeyMap<u64>,
    queue: ExpiryQueue,
}

impl Fetches {
    /// What an access waits for that found this. A write brings the value, and after a delete another fetch is needed:
    /// with either, one under way is of no use.
    pub fn wait(&mut self, access: &Access, outcome: Outcome) -> Wait {
        let now = access.time_us;
        while let Some((key, end)) = self.queue.pop_expired(now) {
            // A write may have ended it, and another have begun.
            if self.ends.get(&key) == Some(&end) {
                self.ends.remove(&key);
            }
        }
        if access.op != Op::Read {
            self.ends.remove(&access.key);
            return Wait::Nothing;
        }
        match self.ends.get(&access.key) {
            Some(&end) => Wait::Delayed((end - now) as f32),
            None if outcome == Outcome::Miss => {
                let end = now.saturating_add(access.penalty_us.ceil() as u64);
                self.ends.insert(access.key, end);
                self.queue.push(access.key, end);
                Wait::Fetch
            }
            None => Wait::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::KeyHash;

    /// A fetch of 100 µs at 10 has others wait until 110; a write ends one, and the next read needs another.
    #[test]
    fn who_asks_meanwhile_waits_for_the_rest() {
        let mut fetches = Fetches::default();
        let mut wait = |time_us, op, outcome| {
            let access = Access { op, time_us, penalty_us: 100.0, ..Access::read(KeyHash(1), 10) };
            fetches.wait(&access, outcome)
        };
        assert_eq!(wait(10, Op::Read, Outcome::Miss), Wait::Fetch);
        assert_eq!(wait(30, Op::Read, Outcome::Hit), Wait::Delayed(80.0));
        assert_eq!(wait(109, Op::Read, Outcome::Miss), Wait::Delayed(1.0), "evicted meanwhile");
        assert_eq!(wait(110, Op::Read, Outcome::Hit), Wait::Nothing);
        assert_eq!(wait(200, Op::Read, Outcome::Miss), Wait::Fetch);
        assert_eq!(wait(210, Op::Write, Outcome::Hit), Wait::Nothing);
        assert_eq!(wait(220, Op::Read, Outcome::Miss), Wait::Fetch);
        assert_eq!(wait(310, Op::Read, Outcome::Hit), Wait::Delayed(10.0), "the first's end is no end of the second");
    }
}
