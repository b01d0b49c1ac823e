//! What time brings: budgets, room on the disk, and at the end of each interval who falls asleep and who wakes.

use tenure_core::decide::diurnal::Phase;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId};

use super::{SleepContext, SleepState, Spill};

impl Spill {
    /// A sampled key was accessed: how long after its last time counts for its partition.
    pub fn sampled(&mut self, partition: PartitionId, key: KeyHash, now_us: u64) {
        self.rhythms.sampled(partition, key, now_us);
    }

    /// Ten times a second: fresh budgets, room on the disk, and at the end of an interval who falls asleep and who
    /// wakes.
    pub fn tick(&mut self, context: &mut SleepContext, may_sleep: bool) {
        self.pace.tick();
        let sleepers = &mut context.touches.sleepers;
        let before = sleepers.len();
        while sleepers.disk_bytes() > self.bytes_max {
            let Some(segment) = sleepers.give_up_segment() else { break };
            self.disk.remove(segment);
        }
        self.counts.given_up += (before - sleepers.len()) as u64;
        for segment in sleepers.take_empty_segments() {
            self.disk.remove(segment);
        }
        for i in 0..self.rhythms.len() {
            let partition = PartitionId(i as u16);
            // Values on their way to a slow disk may be all that is to sleep.
            let none_comes = self.pending.is_empty() && self.arrived.is_empty();
            let none_sleeps = || context.touches.sleepers.of(partition) == 0;
            let rhythm = self.rhythms.of(partition);
            if rhythm.rest == SleepState::Asleep && none_comes && none_sleeps() {
                rhythm.rest = SleepState::Awake;
            }
            if rhythm.is_to_wake() {
                self.wake(partition, context.window, context.now_us);
            }
        }
        let watched_us = context.observer.coverage.watched_us(context.now_us);
        if let Some(watched) = self.rhythms.end_interval(context.now_us, watched_us) {
            self.end_interval(context, watched, may_sleep);
        }
    }

    fn end_interval(&mut self, context: &mut SleepContext, watched: f64, may_sleep: bool) {
        for i in 0..context.observer.partitions.len().min(PARTITIONS_MAX) {
            let partition = PartitionId(i as u16);
            let requests = context.observer.counters[i].unprompted();
            let may_sleep =
                may_sleep && self.auto && context.now_us >= self.refused_until_us && context.usage.keys()[i] >= 1.0;
            let rhythm = self.rhythms.of(partition);
            let pattern = rhythm.end_interval(requests, watched);
            match (pattern.map(|p| p.phase), rhythm.rest) {
                (Some(Phase::Valley), SleepState::Awake)
                    if may_sleep && pattern.is_some_and(|p| p.next_peak_in > 1) =>
                {
                    self.sleep(context, partition);
                }
                (Some(Phase::Peak), SleepState::Asleep) => self.wake(partition, context.window, context.now_us),
                (Some(Phase::Valley | Phase::Between), SleepState::Asleep)
                    if pattern.is_some_and(|p| p.next_peak_in <= 1) =>
                {
                    self.wake(partition, context.window, context.now_us);
                }
                _ => {}
            }
        }
    }
}
