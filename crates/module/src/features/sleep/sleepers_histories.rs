//! Random histories of [`Sleepers`] beside a list of keys: who sleeps, whose value has ended, what lies on disk.

use proptest::prelude::*;
use tenure_core::slots::slot_of;
use tenure_core::units::{KeyHash, PartitionId};

use super::file::Place;
use super::sleepers::{Sleeper, Sleepers};

const KEYS: u64 = 24;

/// The length of key `i`'s record, no two alike.
const fn record_bytes(i: u64) -> u32 {
    100 + i as u32
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Key, and when it expires; 0 = never.
    Sleep(u64, u64),
    NewSegment,
    Remove(u64),
    Wake(u16),
    ListAgain(u64),
    /// Time goes on, and this many of those that ended are told.
    TellEnded(u64, usize),
    TellIfEnded(u64),
    GiveUpSegment,
    GiveUpAll,
    /// Slots of a cluster go: those of this remainder by three.
    GiveUpSlots(u16),
    ForgetDatabase(u16),
    /// Partitions are so many from now on.
    DivideAnew(u16),
    TakeEmptySegments,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..KEYS, prop_oneof![Just(0), 1..60_u64]).prop_map(|(i, at)| Step::Sleep(i, at)),
        2 => Just(Step::NewSegment),
        4 => (0..KEYS).prop_map(Step::Remove),
        4 => (0..4_u16).prop_map(Step::Wake),
        1 => (0..KEYS).prop_map(Step::ListAgain),
        2 => (0..5_u64, 0..4_usize).prop_map(|(ms, n)| Step::TellEnded(ms, n)),
        1 => (0..KEYS).prop_map(Step::TellIfEnded),
        1 => Just(Step::GiveUpSegment),
        1 => Just(Step::GiveUpAll),
        1 => (0..3_u16).prop_map(Step::GiveUpSlots),
        1 => (0..2_u16).prop_map(Step::ForgetDatabase),
        1 => (1..4_u16).prop_map(Step::DivideAnew),
        1 => Just(Step::TakeEmptySegments),
    ];
    proptest::collection::vec(step, 1..150)
}

/// What is true of one key that was ever put to sleep.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Truth {
    Asleep { segment: u32, expires_at_ms: u64 },
    GivenUp,
}

struct Model {
    /// By key; `None` = awake, or never heard of.
    truths: Vec<Option<Truth>>,
    /// By key: it is to be woken with its partition.
    are_listed: Vec<bool>,
    partitions: u16,
    newest: u32,
    now_ms: u64,
}

/// Its name, database and hash.
fn key(i: u64) -> (Vec<u8>, u16, KeyHash) {
    let name = format!("key:{i}").into_bytes();
    let hash = KeyHash::of(&name);
    (name, (i % 2) as u16, hash)
}

/// Its slot in a cluster.
fn slot(i: u64) -> u16 {
    slot_of(&key(i).0)
}

impl Model {
    fn partition(&self, i: u64) -> PartitionId {
        PartitionId((i % u64::from(self.partitions)) as u16)
    }

    fn asleep(&self) -> impl Iterator<Item = (u64, u32, u64)> + '_ {
        self.truths.iter().enumerate().filter_map(|(i, truth)| match truth {
            Some(Truth::Asleep { segment, expires_at_ms }) => Some((i as u64, *segment, *expires_at_ms)),
            _ => None,
        })
    }

    fn has_ended(&self, i: u64) -> bool {
        match self.truths[i as usize] {
            Some(Truth::GivenUp) => true,
            Some(Truth::Asleep { expires_at_ms, .. }) => expires_at_ms > 0 && expires_at_ms <= self.now_ms,
            None => false,
        }
    }

    fn give_up(&mut self, which: impl Fn(u32) -> bool) {
        for truth in &mut self.truths {
            if matches!(truth, Some(Truth::Asleep { segment, .. }) if which(*segment)) {
                *truth = Some(Truth::GivenUp);
            }
        }
    }

    /// The key of that name.
    fn named(name: &[u8]) -> u64 {
        std::str::from_utf8(&name[4..]).unwrap().parse().unwrap()
    }

    fn sleep(&mut self, sleepers: &mut Sleepers, i: u64, expires_at_ms: u64) -> Result<(), TestCaseError> {
        let (name, db, hash) = key(i);
        let place = Place { segment: self.newest, offset: 0, len: record_bytes(i) };
        sleepers.written(place);
        // As one that falls asleep again is in memory until then.
        if self.truths[i as usize] == Some(Truth::GivenUp) {
            sleepers.is_awake(hash, db, &name);
            self.truths[i as usize] = None;
        }
        let (partition, is_awake) = (self.partition(i), self.truths[i as usize].is_none());
        let sleeper = Sleeper { db, name: name.into(), place, expires_at_ms, partition, owner: 0 };
        prop_assert_eq!(sleepers.add(hash, sleeper), is_awake);
        if is_awake {
            self.truths[i as usize] = Some(Truth::Asleep { segment: self.newest, expires_at_ms });
            self.are_listed[i as usize] = true;
        }
        Ok(())
    }

    fn wake(&mut self, sleepers: &mut Sleepers, partition: PartitionId) -> Result<(), TestCaseError> {
        let own: Vec<u64> = self.asleep().map(|(i, ..)| i).filter(|i| self.partition(*i) == partition).collect();
        match sleepers.next_to_wake(partition) {
            Some(hash) => {
                let woken = own.into_iter().find(|i| key(*i).2 == hash);
                prop_assert!(woken.is_some(), "who is to wake sleeps, and is that partition's");
                self.are_listed[woken.unwrap_or(0) as usize] = false;
            }
            None => prop_assert!(!own.iter().any(|i| self.are_listed[*i as usize]), "one was left asleep"),
        }
        Ok(())
    }

    fn step(&mut self, sleepers: &mut Sleepers, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Sleep(i, expires_at_ms) => self.sleep(sleepers, i, expires_at_ms)?,
            Step::NewSegment => self.newest += 1,
            Step::Remove(i) => {
                let sleeps = matches!(self.truths[i as usize], Some(Truth::Asleep { .. }));
                prop_assert_eq!(sleepers.remove(key(i).2).is_some(), sleeps);
                if sleeps {
                    self.truths[i as usize] = None;
                }
            }
            Step::Wake(partition) => self.wake(sleepers, PartitionId(partition))?,
            Step::ListAgain(i) => {
                sleepers.list_again(key(i).2);
                self.are_listed[i as usize] = true;
            }
            Step::TellEnded(ms, n) => {
                self.now_ms += ms;
                for _ in 0..n {
                    let ended = (0..KEYS).any(|i| self.has_ended(i));
                    prop_assert_eq!(sleepers.have_ended(self.now_ms), ended);
                    let told = sleepers.take_ended(self.now_ms).map(|sleeper| Self::named(&sleeper.name));
                    prop_assert_eq!(told.is_some(), ended);
                    let Some(i) = told else { break };
                    prop_assert!(self.has_ended(i), "key {} was told and has not ended", i);
                    self.truths[i as usize] = None;
                }
            }
            Step::TellIfEnded(i) => {
                let has_ended = self.has_ended(i);
                prop_assert_eq!(sleepers.take_if_ended(key(i).2, self.now_ms).is_some(), has_ended);
                if has_ended {
                    self.truths[i as usize] = None;
                }
            }
            Step::GiveUpSegment => {
                if let Some(given_up) = sleepers.give_up_segment() {
                    self.give_up(|segment| segment == given_up);
                }
            }
            Step::GiveUpAll => {
                sleepers.give_up_all();
                self.give_up(|_| true);
            }
            Step::GiveUpSlots(rest) => {
                let own: Vec<u64> = self.asleep().map(|(i, ..)| i).filter(|i| slot(*i) % 3 == rest).collect();
                prop_assert_eq!(sleepers.give_up_slots(|slot| slot % 3 == rest), own.len());
                own.into_iter().for_each(|i| self.truths[i as usize] = Some(Truth::GivenUp));
            }
            Step::ForgetDatabase(db) => {
                let mut told = 0;
                sleepers.forget_where(|sleeper| sleeper.db == db, |_| told += 1);
                let of_db = self.truths.iter_mut().enumerate().filter(|(i, _)| (*i % 2) as u16 == db);
                let forgotten: usize = of_db.map(|(_, truth)| usize::from(truth.take().is_some())).sum();
                prop_assert_eq!(told, forgotten);
            }
            Step::DivideAnew(partitions) => {
                self.partitions = partitions;
                sleepers.divide_anew(|sleeper| self.partition(Self::named(&sleeper.name)));
            }
            Step::TakeEmptySegments => {
                let empty = sleepers.take_empty_segments();
                let in_use = self.asleep().any(|(_, segment, _)| empty.contains(&segment));
                prop_assert!(!in_use, "{:?} are in use", empty);
            }
        }
        Ok(())
    }

    fn check(&self, sleepers: &Sleepers) -> Result<(), TestCaseError> {
        prop_assert_eq!(sleepers.len(), self.asleep().count());
        let live_bytes: u64 = self.asleep().map(|(i, ..)| u64::from(record_bytes(i))).sum();
        prop_assert_eq!(sleepers.live_bytes(), live_bytes);
        prop_assert!(sleepers.disk_bytes() >= live_bytes);
        for partition in (0..4).map(PartitionId) {
            let of = self.asleep().filter(|(i, ..)| self.partition(*i) == partition).count();
            prop_assert_eq!(sleepers.of(partition), of, "asleep of {:?}", partition);
        }
        for i in 0..KEYS {
            let (name, db, hash) = key(i);
            let truth = self.truths[i as usize];
            prop_assert_eq!(sleepers.has(hash, db, &name), matches!(truth, Some(Truth::Asleep { .. })));
            prop_assert_eq!(sleepers.knows(hash, db, &name), truth.is_some());
            prop_assert!(!sleepers.has(hash, db + 1, &name) && !sleepers.knows(hash, db, b"other"));
        }
        let of_slots = sleepers.of_slots(|slot| slot % 3 != 1).len();
        prop_assert_eq!(of_slots, self.asleep().filter(|(i, ..)| slot(*i) % 3 != 1).count());
        prop_assert_eq!(sleepers.any(), self.truths.iter().any(Option::is_some));
        Ok(())
    }
}

proptest! {
    #[test]
    fn who_sleeps_is_who_was_put_to_sleep(steps in steps()) {
        let mut sleepers = Sleepers::default();
        sleepers.know_slots();
        let (truths, are_listed) = (vec![None; KEYS as usize], vec![false; KEYS as usize]);
        let mut model = Model { truths, are_listed, partitions: 2, newest: 1, now_ms: 0 };
        for step in steps {
            model.step(&mut sleepers, step)?;
            model.check(&sleepers)?;
        }
    }
}
