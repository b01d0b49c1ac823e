//! How long the worker sleeps between two looks: briefly while something comes in, and longer the longer nothing does,
//! so that an idle server is left alone.
//!
//! A long nap ends as soon as the main thread has passed something on, and a short one once that fills a quarter of the
//! queue ([`super::Worker::wake`]). A word that is missed costs the rest of that nap. Windows end as much later as the
//! longest nap.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared::{AWAKE, Shared};
use crate::observe::QUEUE_LEN;

/// While something comes in. Each nap that ends takes the core from the server where both share one, and the server
/// finds other lines in the processor's cache then.
const SHORTEST: Duration = Duration::from_millis(50);
/// A window is a second at least.
const LONGEST: Duration = Duration::from_millis(150);

/// How long the next one is.
pub(super) struct Nap(Duration);

impl Default for Nap {
    fn default() -> Self {
        Nap(SHORTEST)
    }
}

impl Nap {
    /// Sleeps. `has_come`: something came in since the last one.
    pub(super) fn take(&mut self, shared: &Shared, has_come: bool) {
        let long = self.next(has_come);
        shared.rests_until.store(if long > SHORTEST { 1 } else { QUEUE_LEN / 4 }, Ordering::Relaxed);
        std::thread::park_timeout(long);
        shared.rests_until.store(AWAKE, Ordering::Relaxed);
    }

    fn next(&mut self, has_come: bool) -> Duration {
        let long = if has_come { SHORTEST } else { self.0 };
        self.0 = (2 * long).min(LONGEST);
        long
    }
}

/// Samples between two pauses: some 40 µs of work. A pause takes some 7 µs of the core, as much as twenty samples do
/// (docs/decisions/06-density.md).
const STINT: u32 = 128;
/// What a pause takes at the least.
const PAUSE: Duration = Duration::from_micros(50);

/// Pauses within a longer piece of work. Where the server has a single core, a command that comes meanwhile would wait
/// for all of it: the system lets a thread run on for milliseconds.
#[derive(Default)]
pub(super) struct Stint(u32);

impl Stint {
    /// One more sample is taken. Pauses now and then, where the queue has room for what comes meanwhile.
    pub(super) fn go_on(&mut self, waiting: usize) {
        self.0 += 1;
        if self.0 >= STINT && waiting < QUEUE_LEN / 2 {
            self.0 = 0;
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_while_nothing_comes() {
        let mut nap = Nap::default();
        let mut take = |has_come| nap.next(has_come).as_millis();
        assert_eq!([false; 6].map(&mut take), [50, 100, 150, 150, 150, 150]);
        assert_eq!([true, true, false, false, true].map(&mut take), [50, 50, 100, 150, 50]);
    }
}
