//! What the worker makes, taken over at the end of a turn.

use tenure_core::units::PARTITIONS_MAX;

use super::Tenure;

impl Tenure {
    /// Takes over what the worker has made since, if anything.
    pub(super) fn take_news(&mut self, now_us: u64) {
        let Some(published) = self.worker.shared.news(&mut self.worker.news.version) else { return };
        let before = &self.published;
        let has_other_targets =
            published.plan.as_ref().map(|p| &p.target_bytes) != before.plan.as_ref().map(|p| &p.target_bytes);
        if has_other_targets || published.learned.ranking != before.learned.ranking {
            self.evictor.forget_victims();
        }
        self.published = published;
        self.worker.news.at_us = now_us;
        let penalties_us = self.penalties_us();
        let noise = self.observer.partitions.keys.noise;
        self.observer.misses.costs.take(penalties_us, self.observer.misses.delays, &noise);
        self.observer.misses.costs.weight = self.observer.partitions.weights();
    }

    /// Mean miss penalty by partition, in µs; 1 where none is known.
    fn penalties_us(&self) -> [f32; PARTITIONS_MAX] {
        let mut penalties_us = [1.0; PARTITIONS_MAX];
        let views = self.current().map_or(&[][..], |published| &published.partitions);
        let measured = views.iter().map(|view| view.penalty_us_mean as f32);
        penalties_us.iter_mut().zip(measured).filter(|(_, us)| *us > 0.0).for_each(|(slot, us)| *slot = us);
        penalties_us
    }
}
