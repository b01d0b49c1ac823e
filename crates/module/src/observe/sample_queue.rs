//! Sampled accesses on their way from the main thread to the worker.

use crossbeam_queue::SegQueue;

use super::sampler::Sampled;

/// Sampled accesses under way, at the most.
pub const QUEUE_LEN: usize = 1 << 11;

/// The queue: up to [`QUEUE_LEN`], in 3 KB of memory for each 31 that are there. The main thread alone puts in and the
/// worker alone takes out, so neither waits for the other.
#[derive(Debug, Default)]
pub struct SampleQueue(SegQueue<Sampled>);

impl SampleQueue {
    /// Puts one in; false where there is no room.
    pub fn push(&self, sampled: Sampled) -> bool {
        let has_room = self.0.len() < QUEUE_LEN;
        if has_room {
            self.0.push(sampled);
        }
        has_room
    }

    /// Takes the first one out.
    pub fn pop(&self) -> Option<Sampled> {
        self.0.pop()
    }

    /// How many are under way.
    pub fn waiting(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::access::Access;
    use tenure_core::units::{KeyHash, PartitionId};

    use super::*;

    #[test]
    fn a_full_queue_refuses_until_something_is_taken() {
        let queue = SampleQueue::default();
        let sampled = |at| Sampled {
            access: Access::read(KeyHash::of_number(at), 10),
            at,
            partition: PartitionId(0),
            epoch: 0,
            generation: 0,
            shown: None,
            is_seen: true,
        };
        assert!((0..QUEUE_LEN as u64).all(|at| queue.push(sampled(at))));
        assert!(!queue.push(sampled(1 << 20)) && queue.waiting() == QUEUE_LEN);
        assert_eq!(queue.pop().map(|first| first.at), Some(0));
        assert!(queue.push(sampled(1 << 20)));
        let rest = std::iter::from_fn(|| queue.pop()).map(|sampled| sampled.at);
        assert!(rest.eq((1..QUEUE_LEN as u64).chain([1 << 20])));
        assert_eq!(queue.waiting(), 0);
    }
}
