//! What is said of keys and bytes, against databases that are counted by hand.

use super::*;
use crate::observe::classes::Classes;
use crate::observe::keys::Keys;
use crate::observe::tenants::{TenantSpec, Tenants};

const A: PartitionId = PartitionId(0);
const B: PartitionId = PartitionId(1);

fn of_tenants(text: &str) -> Partitions {
    Partitions::new(Tenants::new(&TenantSpec::parse(text).unwrap()), Classes::default(), Keys::default(), None)
}

fn prefixes() -> Partitions {
    of_tenants("a=a:* b=b:*")
}

fn visit(usage: &mut Usage, partition: PartitionId, n: usize, size_bytes: u32) {
    (0..n).for_each(|_| usage.visited(0, partition, Some(size_bytes)));
}

/// 100 keys, 3 of 4 visited ones in the first partition: 75 and 25 until they are counted; then 80 and 20, as met.
#[test]
fn shares_are_guessed_from_the_first_visits_and_then_counted() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 100)], &partitions, &sizes);
    visit(&mut usage, A, 3, 10);
    visit(&mut usage, B, 1, 10);
    usage.settle(&[(0, 100)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [75.0, 25.0]);
    assert!(!usage.is_counted());
    visit(&mut usage, A, 77, 10);
    visit(&mut usage, B, 19, 60);
    usage.came_round(0);
    usage.settle(&[(0, 100)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [80.0, 20.0]);
    assert_eq!(&usage.bytes()[..2], [800, 10 + 19 * 60]);
    assert!(usage.is_counted());
}

/// 100 keys of before, of which B asks for half while the walk is under way: those that it has passed it counts
/// as A's. The round after counts them right.
#[test]
fn keys_that_change_hands_are_counted_until_none_does() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 100)], &partitions, &sizes);
    visit(&mut usage, A, 90, 10);
    (0..50).for_each(|_| usage.changed(0, A, B, &sizes));
    visit(&mut usage, B, 10, 10);
    usage.came_round(0);
    visit(&mut usage, A, 50, 10);
    visit(&mut usage, B, 50, 10);
    usage.came_round(0);
    usage.settle(&[(0, 100)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [50.0, 50.0]);
    visit(&mut usage, A, 100, 10);
    usage.came_round(0);
    usage.settle(&[(0, 100)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [50.0, 50.0], "counted once and for all");
}

/// A walk that meets ten keys at once goes past some of the sixteen parts of a round: what an earlier round met there
/// counts no more.
#[test]
fn a_round_of_long_steps_leaves_nothing_of_the_one_before() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 100)], &partitions, &sizes);
    visit(&mut usage, A, 100, 10);
    usage.came_round(0);
    usage.settle(&[(0, 100)], &partitions, &sizes);
    assert_eq!(usage.bytes()[0], 1_000);
    (0..10).for_each(|_| usage.visited_many(0, A, 10, (10, 200)));
    usage.came_round(0);
    usage.settle(&[(0, 100)], &partitions, &sizes);
    assert_eq!(usage.bytes()[0], 2_000);
}

/// Keys that came since Tenure runs need no guess, however few were visited; only those of before do.
#[test]
fn what_came_by_an_event_is_known_at_once() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    (0..40).for_each(|_| usage.came(0, A, &sizes));
    (0..960).for_each(|_| usage.came(0, B, &sizes));
    visit(&mut usage, A, 5, 10);
    usage.settle(&[(0, 1000)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [40.0, 960.0]);
    usage.settle(&[(0, 1100)], &partitions, &sizes);
    visit(&mut usage, B, 5, 10);
    usage.settle(&[(0, 1100)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [140.0, 960.0], "half of those visited are in the first");
}

/// Events count exactly, and a later round that meets otherwise (keys come and go while it runs) changes nothing.
#[test]
fn events_are_believed_while_they_add_up() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 50)], &partitions, &sizes);
    visit(&mut usage, A, 50, 10);
    usage.came_round(0);
    usage.settle(&[(0, 50)], &partitions, &sizes);
    (0..50).for_each(|_| usage.came(0, B, &sizes));
    usage.went(0, A, &sizes);
    usage.settle(&[(0, 99)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [49.0, 50.0]);
    visit(&mut usage, A, 59, 10);
    visit(&mut usage, B, 40, 10);
    usage.came_round(0);
    usage.settle(&[(0, 99)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [49.0, 50.0]);
}

/// Twenty keys were overwritten by a rename, and no event told: the next round's count is taken.
#[test]
fn counts_that_no_longer_add_up_are_taken_anew() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 100)], &partitions, &sizes);
    visit(&mut usage, A, 50, 10);
    visit(&mut usage, B, 50, 10);
    usage.came_round(0);
    usage.settle(&[(0, 80)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [40.0, 40.0]);
    visit(&mut usage, A, 50, 10);
    visit(&mut usage, B, 30, 10);
    usage.came_round(0);
    usage.settle(&[(0, 80)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [50.0, 30.0]);
}

/// The walk was in the middle when the database became another. Half of the new keys are of each; what is left of
/// the round meets three of A for one of B.
#[test]
fn a_round_that_began_half_way_is_counted_again() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 100)], &partitions, &sizes);
    visit(&mut usage, A, 30, 10);
    visit(&mut usage, B, 10, 10);
    usage.came_round(0);
    usage.settle(&[(0, 100)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [75.0, 25.0], "the best there is");
    for _ in 0..2 {
        visit(&mut usage, A, 50, 10);
        visit(&mut usage, B, 50, 10);
        usage.came_round(0);
        usage.settle(&[(0, 100)], &partitions, &sizes);
        assert_eq!(&usage.keys()[..2], [50.0, 50.0]);
    }
}

/// 900 keys of A and 100 of B, counted while 500 of A went that the walk, half-way, had met all of, and 500 came
/// that it was still to meet: it takes half of them for met. At rest it counts right.
#[test]
fn what_was_counted_under_load_is_counted_again_at_rest() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 1000)], &partitions, &sizes);
    visit(&mut usage, A, 500, 10);
    (0..500).for_each(|_| usage.went(0, A, &sizes));
    (0..500).for_each(|_| usage.came(0, B, &sizes));
    visit(&mut usage, A, 400, 10);
    visit(&mut usage, B, 600, 10);
    usage.came_round(0);
    usage.settle(&[(0, 1000)], &partitions, &sizes);
    assert!((usage.keys()[0] - 400.0).abs() > 20.0, "{:?}", &usage.keys()[..2]);
    visit(&mut usage, A, 400, 10);
    visit(&mut usage, B, 600, 10);
    usage.came_round(0);
    usage.settle(&[(0, 1000)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [400.0, 600.0]);
}

/// A burst takes most of a partition's keys in the middle of the first round; all had been met.
#[test]
fn an_evicted_key_is_no_longer_met() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    usage.settle(&[(0, 200)], &partitions, &sizes);
    visit(&mut usage, A, 40, 100);
    visit(&mut usage, B, 60, 10);
    usage.settle(&[(0, 200)], &partitions, &sizes);
    (0..30).for_each(|_| usage.evicted(0, A, 100, true, &sizes));
    visit(&mut usage, B, 100, 10);
    usage.came_round(0);
    usage.settle(&[(0, 170)], &partitions, &sizes);
    assert_eq!(&usage.keys()[..2], [10.0, 160.0]);
    assert_eq!(&usage.bytes()[..2], [1000, 1600]);
}

/// Ten large keys of forty go; the mean of the rest is known at once.
#[test]
fn evicting_the_large_lowers_the_mean() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    (0..40).for_each(|_| usage.came(0, A, &sizes));
    usage.settle(&[(0, 40)], &partitions, &sizes);
    visit(&mut usage, A, 30, 10);
    visit(&mut usage, A, 10, 1000);
    usage.came_round(0);
    (0..10).for_each(|_| usage.evicted(0, A, 1000, true, &sizes));
    usage.settle(&[(0, 30)], &partitions, &sizes);
    assert_eq!((usage.keys()[0], usage.bytes()[0]), (30.0, 300));
}

/// Keys at rest are summed up exactly wherever the walk is; half of them met again three times as large count as
/// such.
#[test]
fn values_that_grew_count_as_far_as_they_were_met() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    let size_of = |i: u32| i * i;
    let sum: u64 = (0..160).map(|i| u64::from(size_of(i))).sum();
    usage.settle(&[(0, 160)], &partitions, &sizes);
    for round in 0..3 {
        for i in 0..160 {
            usage.visited(0, A, Some(size_of(i)));
            usage.settle(&[(0, 160)], &partitions, &sizes);
            assert!(round == 0 || usage.bytes()[0].abs_diff(sum) <= 1, "{round} {i}: {:?}", usage.bytes()[0]);
        }
        usage.came_round(0);
    }
    visit(&mut usage, A, 81, 30_000);
    usage.settle(&[(0, 160)], &partitions, &sizes);
    let grown: u64 = 80 * 30_000 + (80..160).map(|i| u64::from(size_of(i))).sum::<u64>();
    assert!(usage.bytes()[0].abs_diff(grown) <= 1, "{} {grown}", usage.bytes()[0]);
}

/// Large keys come and are evicted as fast, many times over between two looks at the server: what is held stays
/// what it was.
#[test]
fn what_goes_takes_along_what_it_brought() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    (0..1000).for_each(|_| usage.came(0, A, &sizes));
    usage.settle(&[(0, 1000)], &partitions, &sizes);
    visit(&mut usage, A, 1000, 200);
    usage.came_round(0);
    usage.settle(&[(0, 1000)], &partitions, &sizes);
    for _ in 0..1000 {
        usage.came(0, A, &sizes);
        usage.evicted(0, A, 1600, false, &sizes);
    }
    assert_eq!(usage.bytes()[0], 200_000);
}

/// 60 of B's keys become A's while A becomes somebody else's: at once all are B's, and once the walk has come
/// round from there, A has its own.
#[test]
fn a_number_that_goes_to_another_tenant_is_counted_anew() {
    let (mut usage, partitions, sizes) = (Usage::new(), prefixes(), Sizes::new());
    (0..40).for_each(|_| usage.came(0, A, &sizes));
    (0..160).for_each(|_| usage.came(0, B, &sizes));
    for _ in 0..2 {
        usage.settle(&[(0, 200)], &partitions, &sizes);
        visit(&mut usage, A, 40, 100);
        visit(&mut usage, B, 160, 10);
        usage.came_round(0);
    }
    assert!(!usage.is_outdated());
    visit(&mut usage, A, 20, 100);
    usage.pass_on(A, B);
    usage.count_anew(200.0);
    usage.settle(&[(0, 200)], &partitions, &sizes);
    assert_eq!((&usage.keys()[..2], usage.bytes()[1]), (&[0.0, 200.0][..], 5600));
    visit(&mut usage, A, 60, 10);
    visit(&mut usage, B, 120, 10);
    usage.came_round(0);
    assert!(usage.is_outdated(), "part of that round was before");
    visit(&mut usage, A, 60, 10);
    visit(&mut usage, B, 140, 100);
    usage.came_round(0);
    usage.settle(&[(0, 200)], &partitions, &sizes);
    assert_eq!((&usage.keys()[..2], usage.bytes()[0]), (&[60.0, 140.0][..], 600));
    assert!(!usage.is_outdated());
}

#[test]
fn a_whole_database_is_counted_by_the_server() {
    let (mut usage, mut partitions) = (Usage::new(), of_tenants(""));
    let sizes = Sizes::new();
    let (zero, seven) = (partitions.of(0, b""), partitions.of(7, b""));
    usage.settle(&[(0, 10), (7, 30)], &partitions, &sizes);
    assert_eq!((usage.keys()[zero.index()], usage.keys()[seven.index()]), (10.0, 30.0));
    usage.settle(&[(7, 30)], &partitions, &sizes);
    assert_eq!(usage.keys()[zero.index()], 0.0, "the database was flushed");
}
