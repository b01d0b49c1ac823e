//! Who moves: what is known of a value in, whether it goes up and what stands first to go down out.
//!
//! All rules behind one interface; the caller finds the values (accesses, a walk), keeps the shortlists
//! (`policy/pools.rs`: a demotion's candidates are ranked here as an eviction's are elsewhere), measures the tiers
//! (`marks.rs`) and carries the moves out. A turn of the caller: [`Placer::accessed`] for each request that found its
//! value, [`Placer::met`] for each value that the walk opens, those that leave told by [`Placer::left`] and moves by
//! [`Placer::moved`], and [`Placer::end_window`] now and then. A value that ranks about as low as those that left of
//! late ([`Placer::may_leave`]) can go at once: then no K have to be met for it, and a ring of newcomers' names saves
//! most of the walk. Allocates nothing after `new`; O(1) per call but for the last.

use super::hotness::Hotness;
use super::insertion::{Insertion, InsertionPoints};
use super::placed::Placed;
use super::worth::{Speeds, Worth};
use super::{Tier, Value};
use crate::policy::density::DensityTable;
use crate::units::{PARTITIONS_MAX, PartitionId};

/// What one value that leaves moves the mean rank of those by, of the difference.
const LEFT_WEIGHT: f64 = 1.0 / 64.0;
/// A value may leave at once from this share of the mean age on, or up to its inverse of the mean worth.
const NEARLY: f64 = 0.75;

/// What decides about moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Reuse time against the fast tier's mean, and ages with insertion points: sdTMM. For where no densities are
    /// learned.
    ReuseTime,
    /// Time saved per byte: more hits in the fast tier with fewer moves (docs/decisions/08-slow-memory.md). What stands
    /// in for a density before there is one was not measured by itself.
    #[default]
    Worth,
    /// Whatever is read in the slow tier goes up, and the longest idle down in plain order of recency: naiveTMM (sec.
    /// 5.1.4.1). To compare with.
    Always,
    /// Nothing goes up, down as by reuse time: the dissertation's sdTMM without promotions (sec. 5.2.5). To compare
    /// with, and for slow memory nearly as fast as the other, where no promotion pays.
    Never,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 4] = [Rule::ReuseTime, Rule::Worth, Rule::Always, Rule::Never];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Rule::ReuseTime => "reuse-time",
            Rule::Worth => "worth",
            Rule::Always => "always",
            Rule::Never => "never",
        }
    }
}

/// How values are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacerConfig {
    /// What decides.
    pub rule: Rule,
    /// Where values begin in a tier's order; of the rules by reuse time and [`Rule::Never`].
    pub points: InsertionPoints,
    /// What memory and moves cost; of the rule by worth.
    pub speeds: Speeds,
    /// True where partitions have parts of the fast tier of their own, so that a value takes its own partition's place.
    pub is_divided: bool,
}

/// The policy of two tiers. See the file's opening.
#[derive(Clone, Debug)]
pub struct Placer {
    config: PlacerConfig,
    hotness: Hotness,
    insertion: Insertion,
    worth: Worth,
    /// By tier, then partition, and last over all: mean rank of what left of late; NaN before the first.
    left: [[f64; PARTITIONS_MAX + 1]; 2],
    windows: u64,
    stamp: u16,
    window_began: u64,
}

impl Placer {
    /// A placer that has seen nothing: until the first window's end nothing goes up but where there is room to spare.
    pub fn new(config: PlacerConfig) -> Self {
        let points = if config.rule == Rule::Always { InsertionPoints::HEAD } else { config.points };
        Placer {
            hotness: Hotness::default(),
            insertion: Insertion::new(points),
            worth: Worth::new(config.speeds),
            left: [[f64::NAN; PARTITIONS_MAX + 1]; 2],
            windows: 0,
            stamp: Placed::stamp(0),
            window_began: 0,
            config,
        }
    }

    /// A request found a value of `partition` in `tier`, `reuse` ticks after the last one.
    #[inline]
    pub fn accessed(&mut self, partition: PartitionId, tier: Tier, reuse: u64) {
        if tier == Tier::Fast {
            self.hotness.reused(partition, reuse);
        }
    }

    /// The walk met a value.
    #[inline]
    pub fn met(&mut self, value: &Value, table: &DensityTable) {
        match self.config.rule {
            Rule::ReuseTime | Rule::Always | Rule::Never => self.insertion.met(value),
            Rule::Worth => self.worth.met(value, table),
        }
    }

    /// True where a slow value is to go up, as an access or the walk meets it: it is hot enough and hasn't moved in
    /// this window. `has_spare` ([`super::marks::FreeSpace::has_spare`], or a partition far below its target): nobody
    /// has to make room, so any reuse is enough. [`Rule::Always`] and [`Rule::Never`] look at none of this.
    pub fn wants_up(&self, value: &Value, table: &DensityTable, has_spare: bool) -> bool {
        let is_slow = value.placed.tier() == Tier::Slow;
        let Some(reuse) = value.reuse.filter(|_| is_slow && !value.placed.moved_in(self.stamp)) else {
            return is_slow && self.config.rule == Rule::Always;
        };
        match self.config.rule {
            Rule::Always => true,
            Rule::Never => false,
            _ if has_spare => true,
            Rule::ReuseTime => {
                self.hot_ticks(value.partition).is_some_and(|mean| (reuse.max(value.idle) as f32) < mean)
            }
            Rule::Worth => self.worth.wants_up(value, table, self.config.is_divided),
        }
    }

    /// Reuse times below this are hot, in ticks; `None` before anything was learned.
    pub fn hot_ticks(&self, partition: PartitionId) -> Option<f32> {
        if self.config.is_divided { self.hotness.mean_of(partition) } else { self.hotness.mean() }
    }

    /// The worth of leaving a value in its tier: the lowest leaves it first (down from the fast one, out of the slow
    /// one). What moved in this window leaves after all others. Compared only within a tier; never NaN.
    pub fn rank(&self, value: &Value, table: &DensityTable) -> f64 {
        let has_moved = value.placed.moved_in(self.stamp);
        match self.config.rule {
            Rule::Worth if has_moved => f64::from(f32::MAX),
            Rule::Worth => f64::from(self.worth.of(value, table)),
            _ if has_moved => f64::from(u8::from(!value.placed.was_asked())) * -0.5,
            _ => -1.0 - f64::from(self.insertion.age(value)),
        }
    }

    fn mean_left(&self, value: &Value) -> f64 {
        let place = if self.config.is_divided { value.partition.index() } else { PARTITIONS_MAX };
        self.left[value.placed.tier().index()][place]
    }

    /// True where a value of this rank is about as bad as those that left its tier of late, so that it may leave
    /// without others being met.
    #[inline]
    pub fn may_leave(&self, value: &Value, rank: f64) -> bool {
        let mean = self.mean_left(value);
        rank <= if mean < 0.0 { mean * NEARLY } else { mean / NEARLY }
    }

    /// A value of this rank leaves its tier, down or out.
    pub fn left(&mut self, value: &Value, rank: f64) {
        for place in [value.partition.index(), PARTITIONS_MAX] {
            let mean = &mut self.left[value.placed.tier().index()][place];
            *mean = if mean.is_nan() { rank } else { *mean + LEFT_WEIGHT * (rank - *mean) };
        }
    }

    /// A value is moved to the other tier; returns how it is placed now. Where the move turns out to be impossible,
    /// the value stays as it was and nothing is told.
    pub fn moved(&mut self, value: &Value) -> Placed {
        match value.placed.tier() {
            Tier::Slow => Placed::moved(Tier::Fast, self.stamp),
            Tier::Fast => {
                self.insertion.demoted(value);
                self.worth.demoted(value);
                Placed::moved(Tier::Slow, self.stamp)
            }
        }
    }

    /// Ends a window at `now`, with `fast_bytes` in the fast tier. O(partitions).
    pub fn end_window(&mut self, now: u64, fast_bytes: u64) {
        self.hotness.end_window();
        self.insertion.end_window();
        self.worth.end_window(now.saturating_sub(self.window_began), fast_bytes);
        self.window_began = now;
        self.windows += 1;
        self.stamp = Placed::stamp(self.windows);
    }

    /// Windows ended so far.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// What a partition's values begin with in the fast and the slow tier's order, in ticks, for people.
    pub fn insertion_ages(&self, partition: PartitionId) -> (f32, f32) {
        self.insertion.offsets_of(partition)
    }

    /// How it works.
    pub fn config(&self) -> &PlacerConfig {
        &self.config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::density::Feature;

    const P: PartitionId = PartitionId(0);

    fn slow(reuse: Option<u64>, placed: Placed) -> Value {
        Value { partition: P, size_bytes: 100, idle: 0, reuse, feature: Feature::default(), placed }
    }

    fn placer(rule: Rule) -> Placer {
        let mut placer = Placer::new(PlacerConfig { rule, ..PlacerConfig::default() });
        (0..100).for_each(|_| placer.accessed(P, Tier::Fast, 1_000));
        placer.end_window(10_000, 1 << 20);
        placer
    }

    #[test]
    fn up_goes_what_is_asked_for_faster_than_the_mean_and_only_once_a_window() {
        let table = DensityTable::default();
        let mut placer = placer(Rule::ReuseTime);
        let down = Placed::moved(Tier::Slow, Placed::stamp(0));
        assert!(placer.wants_up(&slow(Some(999), down), &table, false));
        assert!(!placer.wants_up(&slow(Some(1_000), down), &table, false));
        assert!(!placer.wants_up(&slow(None, down), &table, true), "asked for once: a scan");
        assert!(placer.wants_up(&slow(Some(5_000), down), &table, true), "room to spare");
        assert!(!placer.wants_up(&Value { idle: 2_000, ..slow(Some(10), down) }, &table, false), "cold since");
        assert!(!placer.wants_up(&slow(Some(10), Placed::default()), &table, true), "it is fast");
        let now = Placed::moved(Tier::Slow, Placed::stamp(1));
        assert!(!placer.wants_up(&slow(Some(10), now), &table, true), "it came down in this window");
        placer.end_window(20_000, 1 << 20);
        assert!(placer.wants_up(&slow(Some(10), now), &table, true));
    }

    /// Always: also what was accessed once, slowly, or came down in this window. Never: not even where there is room
    /// to spare.
    #[test]
    fn always_and_never_look_at_nothing() {
        let table = DensityTable::default();
        let (always, never) = (placer(Rule::Always), placer(Rule::Never));
        let [before, now] = [0, 1].map(|window| Placed::moved(Tier::Slow, Placed::stamp(window)));
        for value in [slow(None, before), slow(Some(1 << 40), before), slow(Some(10), before), slow(Some(10), now)] {
            for has_spare in [false, true] {
                assert!(always.wants_up(&value, &table, has_spare), "{value:?}");
                assert!(!never.wants_up(&value, &table, has_spare), "{value:?}");
            }
        }
        assert!(!always.wants_up(&slow(Some(10), Placed::default()), &table, true), "it is fast");
    }

    /// A partition with a part of its own has its own threshold.
    #[test]
    fn a_divided_tier_has_a_threshold_for_each() {
        let table = DensityTable::default();
        let mut placer =
            Placer::new(PlacerConfig { rule: Rule::ReuseTime, is_divided: true, ..PlacerConfig::default() });
        (0..100).for_each(|_| placer.accessed(PartitionId(1), Tier::Fast, 10));
        placer.end_window(1_000, 1 << 20);
        let down = Placed::moved(Tier::Slow, Placed::stamp(0));
        assert!(!placer.wants_up(&slow(Some(5), down), &table, false));
        assert!(placer.wants_up(&Value { partition: PartitionId(1), ..slow(Some(5), down) }, &table, false));
    }

    #[test]
    fn what_moved_in_this_window_leaves_last() {
        let table = DensityTable::default();
        for rule in Rule::ALL {
            let mut placer = placer(rule);
            let value = slow(Some(10), Placed::moved(Tier::Slow, Placed::stamp(0)));
            let up = Value { placed: placer.moved(&value), ..value };
            assert_eq!(up.placed.tier(), Tier::Fast);
            let hot = Value { placed: Placed::default().accessed(), reuse: Some(1), ..value };
            assert!(placer.rank(&up, &table) > placer.rank(&hot, &table), "{rule:?}");
            placer.end_window(20_000, 1 << 20);
            let idle = Value { idle: 500, ..up };
            assert!(placer.rank(&idle, &table) < placer.rank(&hot, &table), "{rule:?}");
        }
    }

    /// The insertion point shows in the ranks: a newcomer goes before an older value that was accessed again. Not by
    /// plain recency.
    #[test]
    fn a_newcomer_goes_before_what_was_asked_for_again() {
        let table = DensityTable::default();
        for (rule, has_points) in [(Rule::ReuseTime, true), (Rule::Never, true), (Rule::Always, false)] {
            let mut placer = placer(rule);
            let fast = |idle, placed| Value { idle, ..slow(Some(100), placed) };
            (0..1_000).for_each(|idle| placer.met(&fast(idle, Placed::default().accessed()), &table));
            placer.end_window(20_000, 1 << 20);
            let (new, old) = (fast(10, Placed::default()), fast(600, Placed::default().accessed()));
            assert_eq!(placer.rank(&new, &table) < placer.rank(&old, &table), has_points, "{rule:?}");
            let oldest = fast(900, Placed::default().accessed());
            assert!(placer.rank(&oldest, &table) < placer.rank(&new, &table), "{rule:?}");
        }
    }
}
