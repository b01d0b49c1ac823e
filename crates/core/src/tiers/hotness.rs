//! How hot is hot enough for the fast tier: the mean reuse time of what is in it.
//!
//! Source: Wang's dissertation (2024) sec. 5.1.4.1. Each request that finds its value in the fast tier adds its reuse
//! time to the window; the window's mean is the threshold below which a slow value's own reuse time has to be. A scan
//! asks for each value once, so it raises none. The rolling window is a sum that halves with each window, and the
//! threshold stands still within one. By partition, and over all of them where they share the fast tier freely. Cost:
//! two additions a request; 24 bytes a partition.

use crate::units::{PARTITIONS_MAX, PartitionId};

/// What a window weighs one window later.
const DECAY: f64 = 0.5;
/// Fewer reuses than this make no threshold.
const REUSES_MIN: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    ticks: f64,
    reuses: f64,
    mean: Option<f32>,
}

impl Window {
    fn end(&mut self) {
        self.mean = (self.reuses >= REUSES_MIN).then(|| (self.ticks / self.reuses) as f32);
        self.ticks *= DECAY;
        self.reuses *= DECAY;
    }
}

/// The windows of all partitions. See the file's opening.
#[derive(Clone, Debug)]
pub struct Hotness {
    all: Window,
    partitions: Vec<Window>,
}

impl Default for Hotness {
    fn default() -> Self {
        Hotness { all: Window::default(), partitions: vec![Window::default(); PARTITIONS_MAX] }
    }
}

impl Hotness {
    /// A value of the fast tier was accessed again, after `reuse` ticks.
    #[inline]
    pub fn reused(&mut self, partition: PartitionId, reuse: u64) {
        for window in [&mut self.all, &mut self.partitions[partition.index()]] {
            window.ticks += reuse as f64;
            window.reuses += 1.0;
        }
    }

    /// Ends a window: the thresholds are now those of it and, less, of those before.
    pub fn end_window(&mut self) {
        self.all.end();
        self.partitions.iter_mut().for_each(Window::end);
    }

    /// Mean reuse time of all fast values, in ticks; `None` where hardly any was accessed again.
    pub fn mean(&self) -> Option<f32> {
        self.all.mean
    }

    /// The same of one partition's.
    #[inline]
    pub fn mean_of(&self, partition: PartitionId) -> Option<f32> {
        self.partitions[partition.index()].mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten times 100, then ten times 400 with the former at half weight: 100, then (500 + 4000) / 15 = 300.
    #[test]
    fn the_mean_rolls() {
        let (one, other) = (PartitionId(1), PartitionId(2));
        let mut hotness = Hotness::default();
        (0..10).for_each(|_| hotness.reused(one, 100));
        assert_eq!(hotness.mean_of(one), None, "within a window thresholds stand");
        hotness.end_window();
        assert_eq!((hotness.mean_of(one), hotness.mean_of(other), hotness.mean()), (Some(100.0), None, Some(100.0)));
        (0..10).for_each(|_| hotness.reused(one, 400));
        hotness.end_window();
        assert_eq!(hotness.mean_of(one), Some(300.0));
        (0..5).for_each(|_| hotness.end_window());
        assert_eq!(hotness.mean_of(one), None, "nobody asks any more");
    }
}
