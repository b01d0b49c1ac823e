//! Random histories of the core's structures, each beside a model that a reader can check: what the table of keys may
//! remember, and which candidate a pool may give.

use std::collections::HashMap;

use crate::departure::{Cause, Departure};
use crate::key_table::KeyTable;
use crate::policy::over_target::OverTarget;
use crate::policy::pools::{Donor, Pools, SHORTLIST};
use crate::tiers::placed::Placed;
use crate::units::{KeyHash, PartitionId};
use proptest::prelude::*;

/// Four buckets of four full and twelve compact entries.
const TABLE_BYTES: u64 = 512;
const KEYS: u64 = 96;
/// A compact entry's time is right to so many ticks in a table of this size.
const EPOCH_TICKS: u32 = 2;

/// No two of these keys are taken for each other: they differ in the bits that a compact entry keeps, too.
fn key(i: u64) -> KeyHash {
    KeyHash((i + 1) << 44 | (i % 4) << 30)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access(u64),
    Leave(u64, u8),
    Wait(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..KEYS).prop_map(Step::Access),
        2 => (0..KEYS, 0..3_u8).prop_map(|(key, cause)| Step::Leave(key, cause)),
        1 => (1..3_u32).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..600)
}

/// Partition and score of a key that is offered, or that partition's turn to give.
fn offers_and_takes() -> impl Strategy<Value = Vec<(u16, u32, bool)>> {
    proptest::collection::vec((0..4_u16, 0..1_000_u32, any::<bool>()), 1..500)
}

/// What is true of a key, whatever of it is remembered.
#[derive(Clone, Copy, Debug)]
struct Truth {
    last: u32,
    /// How it left, if it did.
    left_by: Option<Cause>,
}

/// What is remembered of a key is true of it. What was accessed just now is remembered whole.
fn check_key(table: &KeyTable, i: u64, now: u32, truth: Option<&Truth>) -> Result<(), TestCaseError> {
    let Some(known) = table.recall(key(i), now) else { return Ok(()) };
    let truth = truth.expect("something is remembered of a key that was never accessed");
    let off = truth.last.wrapping_sub(known.last);
    match table.get(key(i)) {
        Some(entry) => {
            prop_assert_eq!(off, 0, "last access of key {}", i);
            prop_assert_eq!(entry.n_requests > 0, truth.left_by.is_none(), "key {} is there", i);
            let departure = if entry.n_requests == 0 { entry.departure().cause() } else { None };
            prop_assert_eq!(departure, truth.left_by, "how key {} left", i);
        }
        None => {
            prop_assert!(
                off < EPOCH_TICKS,
                "key {} was accessed at {}, and {} is remembered",
                i,
                truth.last,
                known.last
            );
            prop_assert_eq!(table.compact_departure(key(i)).and_then(Departure::cause), truth.left_by, "key {}", i);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_table_of_keys_remembers_what_is_true(steps in steps()) {
        let mut table = KeyTable::with_compact_entries(TABLE_BYTES, 1);
        let mut truths: HashMap<u64, Truth> = HashMap::new();
        let mut now = 1;
        for step in steps {
            match step {
                Step::Access(i) => {
                    let fading = table.fading();
                    let entry = table.get_or_insert_by_history(key(i), now);
                    let gap = u64::from(now.wrapping_sub(entry.last));
                    entry.set_history(entry.history().accessed(gap, now, fading));
                    if entry.n_requests == 0 {
                        entry.set_placed(Placed::default());
                    }
                    entry.last = now;
                    entry.n_requests = entry.n_requests.saturating_add(1);
                    truths.insert(i, Truth { last: now, left_by: None });
                    prop_assert_eq!(table.get(key(i)).map(|entry| entry.last), Some(now));
                }
                Step::Leave(i, cause) => {
                    let cause = [Cause::Evicted, Cause::Expired, Cause::Deleted][usize::from(cause)];
                    if let Some(truth) = truths.get_mut(&i) {
                        table.leave(key(i), Departure::by(cause), now, false);
                        truth.left_by = Some(cause);
                    }
                }
                Step::Wait(ticks) => now += ticks,
            }
        }
        for i in 0..KEYS {
            check_key(&table, i, now, truths.get(&i))?;
        }
        let remembered = (0..KEYS).filter(|&i| table.recall(key(i), now).is_some()).count();
        prop_assert_eq!(table.len(), remembered);
        prop_assert!(table.len() as u64 + table.displaced() >= truths.len() as u64, "each is there or forgotten");
    }

    /// Of what was offered to a partition and not taken, the [`SHORTLIST`] lowest may be given, the lowest first.
    #[test]
    fn pools_give_the_lowest_that_they_hold(steps in offers_and_takes()) {
        let mut pools: Pools<u32> = Pools::new(5);
        let mut held: [Vec<u32>; 4] = Default::default();
        for (i, (partition, score, is_taken)) in steps.into_iter().enumerate() {
            // No two are alike, so that who is given is told by the score.
            let score = score << 10 | i as u32;
            let own = &mut held[usize::from(partition)];
            if !is_taken {
                pools.offer(PartitionId(partition), f64::from(score), || score);
                own.push(score);
                own.sort_unstable();
                own.truncate(SHORTLIST);
                continue;
            }
            let lowest = own.first().copied();
            prop_assert_eq!(pools.take(Donor::Partition(PartitionId(partition))), lowest);
            own.retain(|&score| Some(score) != lowest);
            let all = held.iter().filter_map(|own| own.first().copied()).min();
            prop_assert_eq!(pools.take_of(OverTarget::all()), all);
            held.iter_mut().for_each(|own| own.retain(|&score| Some(score) != all));
        }
    }
}
