//! Misses that wait for their write: how the miss penalty is measured.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 2.1 and 5: the penalty is the time from a key's miss to the next write of
//! that key. Differs from the paper: a four-way table in place of an entry in the key space. It grows while four wait
//! where another comes; once it is as large as it may be, a newer miss takes the place of the oldest of its four. A
//! second miss of a key that waits already is the same fetch, or one that joined it, so the first counts. Where each
//! client writes what it fetched, the writes after the first are answers too. 8 to 64 KiB, one memory access per miss,
//! and one per write while any miss waits.

use tenure_core::policy::density::{Delays, MissCosts};
use tenure_core::units::KeyHash;

/// Slots at first, and at the most.
const SLOTS_MIN: usize = 1 << 9;
const SLOTS_MAX: usize = 1 << 12;
/// A miss may wait in any of so many slots, one cache line together.
const WAYS: usize = 4;
/// A write this many times later than the longest penalty is no answer to the miss.
const ABANDONED_AFTER: u64 = 4;

#[derive(Clone, Copy)]
struct Waiting {
    key: u64,
    /// 0 = answered; what is left are further misses of the same fetch.
    since_us: u64,
}

impl Waiting {
    /// Further misses of the same fetch.
    fn joined(self) -> u64 {
        (self.since_us & !REGRETTED) / ONE_MORE
    }
}

/// How a read that found nothing came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// By its event alone: the key isn't known to have been asked for yet.
    Unseen,
    /// Its command was seen, and counted as an access of the key.
    Seen,
    /// The same of a key that was evicted shortly before.
    Regretted,
}

impl Missed {
    /// By a command that was seen, of a key that was evicted shortly before, or not.
    pub fn seen(is_regretted: bool) -> Missed {
        if is_regretted { Missed::Regretted } else { Missed::Seen }
    }

    fn bits(self) -> u64 {
        match self {
            Missed::Unseen => 0,
            Missed::Seen => COUNTED,
            Missed::Regretted => COUNTED | REGRETTED,
        }
    }
}

const EMPTY: Waiting = Waiting { key: 0, since_us: 0 };
/// Further misses are counted above the time.
const ONE_MORE: u64 = 1 << 56;
const MORE_MAX: u64 = 0x7f;
/// Below them, that one of the misses was seen.
const COUNTED: u64 = 1 << 55;
const TIME: u64 = COUNTED - 1;
/// Above them, that the key was evicted shortly before.
const REGRETTED: u64 = 1 << 63;

/// What the write that answers a miss tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Time from the miss to the write, in µs.
    pub penalty_us: u64,
    /// Misses that joined the fetch meanwhile.
    pub joined: u64,
    /// Tenure had evicted the key shortly before.
    pub is_regretted: bool,
    /// One of the misses was seen, and counted as an access of the key.
    pub is_counted: bool,
}

/// What a write is to the misses that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Nothing: nobody has missed the key.
    New,
    /// An answer.
    Answers(Answer),
    /// What another client has fetched meanwhile.
    Late,
    /// Nobody's answer: its own command has missed.
    ByItself,
}

impl Filled {
    /// The answer that it is.
    pub fn answer(self) -> Option<Answer> {
        match self {
            Filled::Answers(answer) => Some(answer),
            Filled::New | Filled::Late | Filled::ByItself => None,
        }
    }
}

impl Answer {
    /// What all who waited have lost, in µs: those who joined came in the middle, on average.
    pub fn lost_us(self) -> f64 {
        self.penalty_us as f64 * (1.0 + self.joined as f64 / 2.0)
    }
}

/// The table. See the file's opening.
pub struct MissTable {
    slots: Vec<Waiting>,
    waiting: usize,
}

impl MissTable {
    /// An empty table.
    pub fn new() -> Self {
        MissTable { slots: vec![EMPTY; SLOTS_MIN], waiting: 0 }
    }

    /// True where a write may answer a miss.
    #[inline]
    pub fn any_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// A read of `key` found nothing at `now_us`. False where a miss of it waits already.
    pub fn note(&mut self, key: KeyHash, now_us: u64, missed: Missed) -> bool {
        let may_grow = self.slots.len() < SLOTS_MAX;
        let set = self.set_of(key);
        let since_us = now_us.clamp(1, TIME) | missed.bits();
        if let Some(held) = set.iter_mut().find(|slot| slot.key == key.0) {
            let is_new = held.since_us & TIME == 0;
            if is_new {
                held.since_us = since_us;
                return true;
            }
            held.since_us |= missed.bits() & COUNTED;
            if held.joined() < MORE_MAX {
                held.since_us += ONE_MORE;
            }
            return false;
        }
        // A free slot is older than any miss, and so is one that was answered.
        let Some(oldest) = set.iter_mut().min_by_key(|slot| slot.since_us & TIME) else { return true };
        if may_grow && oldest.since_us & TIME > 0 {
            self.grow();
            return self.note(key, now_us, missed);
        }
        let was_free = oldest.key == 0;
        *oldest = Waiting { key: key.0, since_us };
        self.waiting += usize::from(was_free);
        true
    }

    /// Twice as many slots: what waits in one set is shared out over two.
    fn grow(&mut self) {
        let more = vec![EMPTY; 2 * self.slots.len()];
        let before = std::mem::replace(&mut self.slots, more);
        for waiting in before.into_iter().filter(|waiting| waiting.key != 0) {
            if let Some(free) = self.set_of(KeyHash(waiting.key)).iter_mut().find(|slot| slot.key == 0) {
                *free = waiting;
            }
        }
    }

    /// Where a miss of `key` may wait.
    fn set_of(&mut self, key: KeyHash) -> &mut [Waiting] {
        // The number of slots is a power of two.
        let set = ((key.0 ^ (key.0 >> 32)) as usize & (self.slots.len() / WAYS - 1)) * WAYS;
        &mut self.slots[set..set + WAYS]
    }

    /// `key` is written: what that tells, with a penalty of at most `penalty_us_max`; `None` where no miss of it
    /// waits, or one so old that it was given up.
    pub fn take(&mut self, key: KeyHash, now_us: impl Fn() -> u64, penalty_us_max: u64) -> Option<Answer> {
        let is_it = |slot: &&mut Waiting| slot.key == key.0 && slot.key != 0 && slot.since_us & TIME > 0;
        let slot = self.set_of(key).iter_mut().find(is_it)?;
        let took_us = now_us().saturating_sub(slot.since_us & TIME);
        let is_answer = took_us <= penalty_us_max.saturating_mul(ABANDONED_AFTER);
        let (joined, has) = (slot.joined(), |bit| slot.since_us & bit > 0);
        let answer = Answer {
            penalty_us: took_us.min(penalty_us_max),
            joined,
            is_regretted: has(REGRETTED),
            is_counted: has(COUNTED),
        };
        slot.since_us &= !(TIME | REGRETTED | COUNTED);
        if slot.since_us == 0 || !is_answer {
            *slot = EMPTY;
            self.waiting -= 1;
        }
        is_answer.then_some(answer)
    }

    /// `key` is written, and no miss of it waits: true where this is what another client has fetched meanwhile.
    pub fn take_late(&mut self, key: KeyHash) -> bool {
        let is_it = |slot: &&mut Waiting| slot.key == key.0 && slot.since_us & TIME == 0 && slot.since_us > 0;
        let Some(slot) = self.set_of(key).iter_mut().find(is_it) else { return false };
        slot.since_us -= ONE_MORE;
        if slot.since_us == 0 {
            *slot = EMPTY;
            self.waiting -= 1;
        }
        true
    }
}

/// Where the server doesn't tell when a command began: an answer sooner than this, in µs, is of the miss's own command.
/// A client's own has to cross a socket twice.
const SAME_COMMAND_US: u64 = 8;

/// The longest penalty before any setting says so, in µs.
const PENALTY_US_MAX: u64 = 10_000_000;

/// What is known of misses: those that wait, and what one costs.
pub struct Misses {
    /// Those that wait for their answers.
    pub table: MissTable,
    /// What misses cost, where the key's own isn't known.
    pub costs: MissCosts,
    /// How many misses meet a fetch of the same key.
    pub delays: Delays,
    /// Penalties above this count as this, in µs.
    pub penalty_us_max: u64,
    /// How many misses the command that runs now may still bring: as many as it has reads. Others (a `GETSET`'s look
    /// at the old value) belong to no read. Queued commands were seen earlier, so `EXEC` may bring any number.
    pub due: u32,
    /// The last miss that joined no other: its key, and when its command began, where the server tells.
    last: (KeyHash, Option<u64>),
}

impl Misses {
    /// None waits.
    pub fn new() -> Self {
        Misses {
            table: MissTable::new(),
            costs: MissCosts::default(),
            delays: Delays::default(),
            penalty_us_max: PENALTY_US_MAX,
            due: 0,
            last: (KeyHash(0), None),
        }
    }

    /// A read found nothing just now, by a command that began then, as far as the server tells, both in µs: it waits,
    /// or joins who waits already.
    pub fn begins(&mut self, key: KeyHash, at: (u64, Option<u64>), is_regretted: bool) {
        let is_first = self.note(key, at, Missed::seen(is_regretted));
        self.delays.count(!is_first);
    }

    /// The same of a command that went unseen.
    pub fn begins_unseen(&mut self, key: KeyHash, at: (u64, Option<u64>)) {
        self.note(key, at, Missed::Unseen);
    }

    /// False where a miss of it waits already.
    fn note(&mut self, key: KeyHash, (now_us, began_us): (u64, Option<u64>), missed: Missed) -> bool {
        let is_first = self.table.note(key, now_us, missed);
        if is_first {
            self.last = (key, began_us);
        }
        is_first
    }

    /// The key is written: what that tells of a miss that waits for it.
    #[inline]
    pub fn answered(&mut self, key: KeyHash, now_us: impl Fn() -> u64) -> Option<Answer> {
        self.table.take(key, now_us, self.penalty_us_max)
    }

    /// The same by a command that began at `began_us`, or runs next. What has missed just before by the same command or
    /// script, as `SET … GET` does where there is nothing, has fetched nothing.
    #[inline]
    pub fn filled(&mut self, key: KeyHash, now_us: impl Fn() -> u64, began_us: impl Fn() -> Option<u64>) -> Filled {
        match self.answered(key, now_us) {
            Some(answer) if self.is_own(key, answer, began_us()) => Filled::ByItself,
            Some(answer) => Filled::Answers(answer),
            None => Filled::New,
        }
    }

    fn is_own(&self, key: KeyHash, answer: Answer, began_us: Option<u64>) -> bool {
        let (last, last_began_us) = self.last;
        let is_same = || match began_us {
            Some(_) => began_us == last_began_us,
            None => answer.penalty_us < SAME_COMMAND_US,
        };
        last == key && is_same()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn penalty_us(table: &mut MissTable, key: KeyHash, now_us: u64, max: u64) -> Option<u64> {
        table.take(key, || now_us, max).map(|answer| answer.penalty_us)
    }

    #[test]
    fn the_penalty_is_the_time_from_the_first_miss_to_the_write() {
        let mut table = MissTable::new();
        let (a, b) = (KeyHash::of(b"a"), KeyHash::of(b"b"));
        assert!(!table.any_waiting());
        assert!(table.note(a, 1_000, Missed::Seen));
        assert!(!table.note(a, 1_500, Missed::Seen));
        assert_eq!(table.take(b, || 2_000, 10_000), None);
        assert_eq!(penalty_us(&mut table, a, 2_000, 10_000), Some(1_000));
        assert_eq!(table.take(a, || 3_000, 10_000), None, "answered once");
        assert!(table.take_late(a));
        assert!(!table.any_waiting());
    }

    /// Three clients miss and fetch the same key: one penalty, three answers.
    #[test]
    fn who_fetches_the_same_answers_too() {
        let mut table = MissTable::new();
        let a = KeyHash::of(b"a");
        assert_eq!(
            [1_000, 1_100, 1_200].map(|now_us| table.note(a, now_us, Missed::seen(now_us == 3_000))),
            [true, false, false]
        );
        assert!(!table.take_late(a), "nothing was answered yet");
        assert_eq!(penalty_us(&mut table, a, 2_000, 10_000), Some(1_000));
        assert_eq!(table.take(a, || 2_100, 10_000), None);
        assert_eq!([(); 3].map(|()| table.take_late(a)), [true, true, false]);
        assert!(!table.any_waiting());
        // A miss after the first answer is another fetch.
        assert_eq!([3_000, 3_100].map(|now_us| table.note(a, now_us, Missed::seen(now_us == 3_000))), [true, false]);
        assert_eq!(
            table.take(a, || 3_500, 10_000),
            Some(Answer { penalty_us: 500, joined: 1, is_regretted: true, is_counted: true })
        );
        assert!(table.take_late(a));
        assert!(table.note(a, 4_000, Missed::Seen));
        assert_eq!(penalty_us(&mut table, a, 4_200, 10_000), Some(200));
        assert!(!table.take_late(a) && !table.any_waiting());
    }

    /// Where any of those who wait was seen, the key counts as accessed already.
    #[test]
    fn it_is_known_whether_a_miss_was_seen() {
        let mut table = MissTable::new();
        let a = KeyHash::of(b"a");
        let mut is_counted = |misses: &[Missed]| {
            misses.iter().for_each(|&missed| _ = table.note(a, 1_000, missed));
            table.take(a, || 1_500, 10_000).map(|answer| (answer.is_counted, answer.joined, answer.is_regretted))
        };
        assert_eq!(is_counted(&[Missed::Unseen]), Some((false, 0, false)));
        assert_eq!(is_counted(&[Missed::Unseen, Missed::Seen]), Some((true, 1, false)));
        assert_eq!(is_counted(&[Missed::Regretted, Missed::Unseen]), Some((true, 1, true)));
        assert_eq!(is_counted(&[Missed::Unseen, Missed::Unseen]), Some((false, 1, false)), "each fetch by itself");
    }

    /// Nine in ten of 2,000 misses that wait at once are answered, also those that the table grew for; and it stops.
    #[test]
    fn as_many_wait_as_there_are() {
        let mut table = MissTable::new();
        let answered = |table: &mut MissTable, n: u64| {
            (0..n).for_each(|i| _ = table.note(KeyHash::of_number(i), 1_000 + i, Missed::seen(i % 2 == 0)));
            let answers = (0..n).filter_map(|i| Some((i, table.take(KeyHash::of_number(i), || 101_000, 200_000)?)));
            let right = |&(i, answer): &(u64, Answer)| {
                answer == Answer { penalty_us: 100_000 - i, joined: 0, is_regretted: i % 2 == 0, is_counted: true }
            };
            answers.filter(right).count()
        };
        assert_eq!(answered(&mut table, 30), 30);
        assert_eq!(table.slots.len(), SLOTS_MIN, "few need no more");
        assert!(answered(&mut table, 2_000) > 1_800 && !table.any_waiting());
        assert!(answered(&mut table, 50_000) > SLOTS_MAX * 9 / 10);
        assert_eq!(table.slots.len(), SLOTS_MAX);
    }

    /// Before Redis 7.2 nobody tells when a command began, and the time that passed has to do.
    #[test]
    fn a_command_does_not_answer_itself() {
        let mut misses = Misses::new();
        let (a, b) = (KeyHash::of(b"a"), KeyHash::of(b"b"));
        let mut filled = |key: KeyHash, missed: (u64, Option<u64>), (now_us, began_us): (u64, Option<u64>)| {
            misses.begins(b, missed, false);
            misses.begins_unseen(a, missed);
            [a, b].map(|each| misses.filled(each, || now_us, || began_us))[usize::from(key == b)]
        };
        assert_eq!(filled(a, (1_000, Some(7)), (1_100, Some(7))), Filled::ByItself);
        assert!(filled(a, (1_000, Some(7)), (1_001, Some(8))).answer().is_some());
        assert_eq!(filled(a, (2_000, None), (2_002, None)), Filled::ByItself);
        assert!(filled(a, (2_000, None), (2_020, None)).answer().is_some());
        assert!(filled(b, (3_000, Some(9)), (3_001, Some(9))).answer().is_some(), "another has missed since");
        assert_eq!(misses.filled(a, || 4_000, || None), Filled::New);
        // A client waits for it already, and answers by a command that looks at what it replaces.
        misses.begins(a, (5_000, Some(1)), false);
        misses.begins_unseen(a, (5_500, Some(2)));
        assert_eq!(misses.filled(a, || 5_500, || Some(2)).answer().map(|answer| answer.penalty_us), Some(500));
    }

    #[test]
    fn outliers_are_capped_and_what_was_given_up_is_no_penalty() {
        let mut table = MissTable::new();
        let a = KeyHash::of(b"a");
        table.note(a, 0, Missed::Seen);
        assert_eq!(penalty_us(&mut table, a, 250, 100), Some(100));
        table.note(a, 0, Missed::Seen);
        assert_eq!(table.take(a, || 402, 100), None);
    }
}
