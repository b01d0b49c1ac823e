//! Clients that work at the same time, a thread each, on one list of requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The requests that clients take one after the other, each the next one when it is free.
#[derive(Debug)]
pub struct Queue {
    next: AtomicUsize,
    end: usize,
}

impl Queue {
    /// Those from `begin` up to `end`.
    pub fn new(begin: usize, end: usize) -> Queue {
        Queue { next: AtomicUsize::new(begin), end }
    }

    /// The next one; `None` where all are taken.
    pub fn take(&self) -> Option<usize> {
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&index| index < self.end)
    }

    /// Lets all clients do `work` at once and waits for them. Where one fails nobody takes another request.
    ///
    /// # Errors
    /// The first failure: it is the one that tells something.
    pub fn work_off<C: Send>(
        &self,
        clients: &mut [C],
        work: impl Fn(&mut C) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        let failure = Mutex::new(None);
        thread::scope(|scope| {
            for client in clients {
                scope.spawn(|| {
                    if let Err(error) = work(client) {
                        self.next.store(self.end, Ordering::Relaxed);
                        failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
                    }
                });
            }
        });
        failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[test]
    fn each_request_is_taken_once_and_a_failure_stops_all() {
        let (queue, mut taken) = (Queue::new(10, 1010), vec![Vec::new(); 4]);
        let take_all = |own: &mut Vec<usize>| {
            own.extend(std::iter::from_fn(|| queue.take()));
            Ok(())
        };
        queue.work_off(&mut taken, take_all).unwrap();
        let mut all = taken.concat();
        all.sort_unstable();
        assert_eq!(all, (10..1010).collect::<Vec<usize>>());

        let queue = Queue::new(0, usize::MAX / 2);
        let fails_at_100 = |_: &mut ()| {
            while let Some(index) = queue.take() {
                ensure!(index != 100, "number {index}");
            }
            Ok(())
        };
        let failure = queue.work_off(&mut [(), ()], fails_at_100).unwrap_err();
        assert_eq!(failure.to_string(), "number 100");
    }
}
