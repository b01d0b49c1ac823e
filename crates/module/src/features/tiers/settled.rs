//! Whether reads hit the fast tier of memory as often as they did: then nothing is missed where some of them go unseen.
//!
//! Not whether values move: where all are accessed alike, some always look hotter than others, and moving them
//! changes nothing. The share of reads that hit is taken of [`READS_PER_LOOK`] at a time and compared with what it
//! was when the comparing began. Where it comes to lie further off, up or down, it begins anew: the hot ones are
//! others now, or moves are still of use. A rise so slow that it takes several minutes for that much is then followed
//! with what is seen. Where more is hot than fits, the share goes up as the fast tier fills and down as it is
//! collected, for ever. The coldest go down, so one collecting takes at most its part of the fast values' hits: so
//! much further off is the same still. Where that part is large the tier is so small that who is hit is what moves
//! make of it, and reads are needed. What hits go unseen is counted, and taken to be slow as often as those that were
//! seen.

/// The share is taken of so many reads: 0.35 % of it is chance, at the most.
const READS_PER_LOOK: u64 = 20_000;
/// Further from what it was than that it is another: four times what two such shares are apart by chance.
const SHARE_MAX: f64 = 0.02;
/// Of what one collecting takes of the fast values no more counts as the same.
const COLLECTED_MAX: f64 = 0.1;
/// For so long it has to have been the same, in µs.
const SETTLED_US: u64 = 4_000_000;

/// The share of reads that hit the slow tier, and since when it has been the same. See the file's opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settled {
    since_us: u64,
    /// The share when the comparing began, and of late.
    began_with: Option<f64>,
    share: f64,
    /// What was seen at the last look: fast and slow.
    looked_at: (u64, u64),
    /// Hits that went unseen, and those of them that are taken for slow.
    unseen: u64,
    unseen_slow: f64,
}

impl Settled {
    /// The comparing begins anew.
    pub fn unsettle(&mut self, now_us: u64) {
        (self.since_us, self.began_with) = (now_us, None);
    }

    /// The same, and what was seen is counted from 0 again.
    pub fn start_over(&mut self, now_us: u64) {
        self.unsettle(now_us);
        self.looked_at = (0, 0);
    }

    /// True where reads need not be seen. So many hits of the fast and of the slow tier were seen so far; one
    /// collecting takes `collected` of the fast values' bytes, 0 to 1.
    pub fn look(&mut self, now_us: u64, fast: u64, slow: u64, collected: f64) -> bool {
        let (fast_then, slow_then) = self.looked_at;
        let (new_fast, new_slow) = (fast.saturating_sub(fast_then), slow.saturating_sub(slow_then));
        if new_fast + new_slow >= READS_PER_LOOK {
            self.looked_at = (fast, slow);
            self.share = new_slow as f64 / (new_fast + new_slow) as f64;
            let collected = collected.min(COLLECTED_MAX);
            let is_another =
                |then: f64| (self.share - then).abs() > SHARE_MAX + (1.0 - then.min(self.share)) * collected;
            if self.began_with.is_none_or(is_another) {
                (self.since_us, self.began_with) = (now_us, Some(self.share));
            }
        }
        self.began_with.is_some() && now_us >= self.since_us + SETTLED_US
    }

    /// So many hits went unseen so far.
    pub fn unseen(&mut self, hits: u64) {
        self.unseen_slow += self.share * hits.saturating_sub(self.unseen) as f64;
        self.unseen = self.unseen.max(hits);
    }

    /// Hits that went unseen, and how many of them were slow, estimated.
    pub fn estimate(&self) -> (u64, u64) {
        (self.unseen, self.unseen_slow as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sees `n` reads in each tenth of a second of `seconds`, of which a share is slow.
    struct Stream {
        settled: Settled,
        now_us: u64,
        seen: (u64, u64),
        collected: f64,
    }

    impl Stream {
        fn new() -> Stream {
            Stream { settled: Settled::default(), now_us: 1_000_000, seen: (0, 0), collected: 0.0 }
        }

        fn run(&mut self, tenths: u64, reads: u64, slow_percent: u64) -> bool {
            let mut is_settled = false;
            for _ in 0..tenths {
                self.now_us += 100_000;
                self.seen.0 += reads * (100 - slow_percent) / 100;
                self.seen.1 += reads * slow_percent / 100;
                is_settled = self.settled.look(self.now_us, self.seen.0, self.seen.1, self.collected);
            }
            is_settled
        }
    }

    #[test]
    fn a_share_that_stays_is_settled_after_some_seconds_until_it_is_another() {
        for other in [24, 16] {
            let mut stream = Stream::new();
            assert!(!stream.run(40, 20_000, 20), "not long enough");
            assert!(stream.run(2, 20_000, 20));
            assert!(stream.run(20, 20_000, 21), "by chance");
            assert!(!stream.run(1, 20_000, other));
            assert!(!stream.run(39, 20_000, other));
            assert!(stream.run(2, 20_000, other));
        }
    }

    /// What rises slowly has risen in the end.
    #[test]
    fn many_small_steps_are_a_change() {
        let mut stream = Stream::new();
        assert!(stream.run(50, 20_000, 20));
        assert!(stream.run(40, 20_000, 21) && stream.run(40, 20_000, 22));
        assert!(!stream.run(1, 20_000, 23));
    }

    /// Collecting takes a tenth of the fast values: of 80 % of the hits 8 %, and as many come back.
    #[test]
    fn what_collecting_takes_is_no_change() {
        let mut stream = Stream { collected: 0.1, ..Stream::new() };
        assert!(!stream.run(20, 20_000, 20) && !stream.run(20, 20_000, 29), "not long enough");
        for slow_percent in [20, 24, 29, 20, 29] {
            assert!(stream.run(5, 20_000, slow_percent));
        }
        stream.collected = 1.0;
        assert!(!stream.run(1, 20_000, 32), "more than a tenth is a change, however small the tier");
        stream.collected = 0.0;
        assert!(stream.run(45, 20_000, 20) && !stream.run(1, 20_000, 29), "where it takes next to nothing, it is");
    }

    #[test]
    fn few_reads_tell_nothing() {
        let mut stream = Stream::new();
        assert!(!stream.run(100, 100, 20), "not enough in ten seconds");
        let mut stream = Stream::new();
        assert!(stream.run(42, 20_000, 20));
        assert!(stream.run(1, 1_000, 100), "a few may all be slow");
        stream.settled.unsettle(stream.now_us);
        assert!(!stream.run(39, 20_000, 20) && stream.run(10, 20_000, 20));
    }

    #[test]
    fn what_goes_unseen_is_as_slow_as_what_was_seen() {
        let mut stream = Stream::new();
        stream.run(1, 20_000, 20);
        stream.settled.unseen(1_000);
        stream.settled.unseen(1_000);
        stream.run(1, 20_000, 50);
        stream.settled.unseen(2_000);
        assert_eq!(stream.settled.estimate(), (2_000, 700));
    }
}
