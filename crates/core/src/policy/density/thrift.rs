//! Thrift: whether a key may go without a search for a better victim, on a main thread that is busy.
//!
//! A search meets several keys, which takes the main thread a few microseconds; whose commands are in line wait for
//! that. What it can save is no more than the reads that the key at hand would still have had, times what a miss of it
//! costs. Where hardly any key is ever read again, as in a stream of new keys, that is less. Reads are those that the
//! learned densities lead to expect until the age at which keys go that were searched for, and for at least as long
//! again as the key was there. And a search may free more: where values grow, newcomers are the smallest of all, and
//! ten of them have to go for one that has been there. An own idea; S3-FIFO (Yang et al., SOSP'23) lets newcomers go
//! early too, by a queue of fixed length. Cost: a comparison for a key that is like the last one, and O(ages) else.

use super::history::Feature;
use super::ranking::Subject;
use super::ranks::Ranks;
use super::table::{DensityTable, age_bucket};

/// What a search takes of the main thread, in µs: some 6,000 instructions, and waiting for memory.
const SEARCH_US: f32 = 2.5;
/// Who is expected to be read more often than so is searched for, whatever it costs: a miss that nobody ever repaired
/// has no price, and the reads would be lost all the same.
const READS_MAX: f32 = 1.0 / 32.0;
/// What a victim moves the mean age by, of the difference.
const AGE_WEIGHT: f32 = 1.0 / 32.0;
/// So many are searched for before the mean is believed.
const VICTIMS_MIN: u32 = 64;
/// A victim that is searched for takes the main thread so many times as long as one that isn't: 13,000 instructions
/// for 5,000 to 7,000 (docs/results/costs.md).
const SEARCHED_TAKES: f32 = 2.0;
/// What a victim moves the mean of what it frees by, of the difference: sizes vary more than ages.
const BYTES_WEIGHT: f32 = 1.0 / 128.0;

/// What keys are alike in, as far as reads go.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Alike {
    feature: Feature,
    age_bucket: usize,
}

/// Whether a search pays. See the file's opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thrift {
    /// Mean age of the victims that were searched for, in ticks, and how many they were.
    age: f32,
    victims: u32,
    /// What a victim frees that was ranked, and one that wasn't, in bytes on average; 0 where none has gone.
    ranked_bytes: f32,
    unranked_bytes: f32,
    /// Reads to be expected of keys like the last one.
    last: Option<(Alike, f32)>,
}

impl Thrift {
    /// A victim was searched for, and went at that age, in ticks.
    pub fn searched(&mut self, age: u64) {
        self.victims = self.victims.saturating_add(1);
        let weight = (1.0 / self.victims as f32).max(AGE_WEIGHT);
        self.age += weight * (age as f32 - self.age);
    }

    /// A victim of so many bytes went: the lowest of those that were ranked, or one that nobody compared with others.
    pub fn freed(&mut self, bytes: u32, was_ranked: bool) {
        let mean_bytes = if was_ranked { &mut self.ranked_bytes } else { &mut self.unranked_bytes };
        let weight = if *mean_bytes == 0.0 { 1.0 } else { BYTES_WEIGHT };
        *mean_bytes += weight * (bytes as f32 - *mean_bytes);
    }

    /// True where as much is freed sooner by searches: newcomers are so small that many have to go for one that would
    /// be found.
    #[inline]
    pub fn finds_larger(&self) -> bool {
        self.unranked_bytes > 0.0 && self.ranked_bytes > SEARCHED_TAKES * self.unranked_bytes
    }

    /// Others were learned: what was expected of the last key holds no more.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// True where a search would take more than keeping this key can save.
    #[inline]
    pub fn may_go(&mut self, ranks: &Ranks, subject: &Subject) -> bool {
        if self.victims < VICTIMS_MIN || ranks.table.is_empty() {
            return false;
        }
        let age = ranks.clock.now.saturating_sub(subject.last);
        let alike = Alike { feature: subject.feature, age_bucket: age_bucket(age) };
        let reads = match self.last {
            Some((last, reads)) if last == alike => reads,
            _ => self.look(ranks.table, alike, age),
        };
        reads <= READS_MAX && reads * subject.penalty_us <= SEARCH_US
    }

    fn look(&mut self, table: &DensityTable, alike: Alike, age: u64) -> f32 {
        let reads = table.reads_until(alike.feature, age, (self.age as u64).max(2 * age));
        self.last = Some((alike, reads));
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::super::miss_costs::MissCosts;
    use super::super::model::{DensityConfig, DensityModel};
    use super::super::ranking::Ranking;
    use super::super::ranks::Basis;
    use super::*;
    use crate::access::Op;
    use crate::access_ring::AccessRing;
    use crate::units::KeyHash;

    const ONCE: u64 = 20_000;

    /// What is learned of keys of which one in so many is read a second time, so many ticks after it came.
    fn learned(one_in: u64, after: u64) -> (DensityTable, Feature) {
        let mut model = DensityModel::new(DensityConfig::default()).unwrap();
        let feature = History::default().accessed(0, 0, 1e-6).feature(0);
        for i in 0..ONCE {
            model.record(KeyHash::of_number(i), Op::Write, i, feature);
            if i >= after && i % one_in == 0 {
                model.record(KeyHash::of_number(i - after), Op::Read, i, feature);
            }
        }
        (model.end_window(ONCE, 1 << 20), feature)
    }

    /// Whether a key goes that came 50 ticks ago, where some are read soon after they came.
    fn goes(one_in: u64, penalty_us: f32, searched: u32) -> bool {
        goes_at(50, learned(one_in, 100), penalty_us, searched)
    }

    /// The same of a key of that age, where victims that are searched for are 10,000 ticks old.
    fn goes_at(age: u64, (table, feature): (DensityTable, Feature), penalty_us: f32, searched: u32) -> bool {
        let costs = MissCosts::default();
        let clock = AccessRing::<()>::new().clock();
        let basis = Basis { ranking: Ranking::Density, clock, idle_is_time: true, sees_part: false };
        let mut ranks = Ranks::new(basis, &table, &costs);
        ranks.clock.now = ONCE;
        let mut thrift = Thrift::default();
        (0..searched).for_each(|_| thrift.searched(10_000));
        let last = ONCE - age;
        let subject = Subject { feature, last, expires: u64::MAX, size_bytes: 1_000, penalty_us };
        let goes = thrift.may_go(&ranks, &subject);
        assert_eq!(thrift.may_go(&ranks, &subject), goes, "the same again");
        goes
    }

    #[test]
    fn who_is_hardly_ever_read_goes_unless_a_miss_is_expensive() {
        assert!(goes(u64::MAX, 100.0, VICTIMS_MIN));
        assert!(!goes(u64::MAX, 1e7, VICTIMS_MIN), "a miss costs ten seconds");
        assert!(!goes(4, 100.0, VICTIMS_MIN), "one in four is read again");
        assert!(!goes(4, 0.0, VICTIMS_MIN), "also where no miss was ever repaired");
        assert!(!goes(u64::MAX, 100.0, VICTIMS_MIN - 1), "too few were searched for");
    }

    #[test]
    fn small_newcomers_are_no_savings_where_a_search_finds_what_frees_more() {
        let thrift = |ranked: &[u32], unranked: &[u32]| {
            let mut thrift = Thrift::default();
            ranked.iter().for_each(|&bytes| thrift.freed(bytes, true));
            unranked.iter().for_each(|&bytes| thrift.freed(bytes, false));
            thrift.finds_larger()
        };
        assert!(!thrift(&[1_000], &[]), "none has gone without a search");
        assert!(!thrift(&[], &[100]), "none was searched for");
        assert!(!thrift(&[1_900], &[1_000]) && thrift(&[2_100], &[1_000]));
        assert!(!thrift(&[&[1_000; 500][..], &[10_000]].concat(), &[1_000]), "one large one is no rule");
        assert!(thrift(&[&[1_000; 500][..], &[10_000; 500]].concat(), &[1_000]), "others come than did");
    }

    #[test]
    fn who_is_older_than_victims_are_may_be_read_all_the_same() {
        assert!(!goes_at(11_000, learned(1, 15_000), 100.0, VICTIMS_MIN), "all are read, later");
        assert!(goes_at(11_000, learned(u64::MAX, 15_000), 100.0, VICTIMS_MIN), "none is");
    }

    #[test]
    fn nobody_goes_before_anything_was_learned() {
        let (table, costs) = (DensityTable::default(), MissCosts::default());
        let clock = AccessRing::<()>::new().clock();
        let basis = Basis { ranking: Ranking::Greedy, clock, idle_is_time: true, sees_part: false };
        let mut thrift = Thrift::default();
        (0..VICTIMS_MIN).for_each(|_| thrift.searched(10));
        let subject =
            Subject { feature: Feature::default(), last: 0, expires: u64::MAX, size_bytes: 1, penalty_us: 1.0 };
        assert!(!thrift.may_go(&Ranks::new(basis, &table, &costs), &subject));
    }
}
