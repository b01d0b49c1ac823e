//! What the worker makes of sampled accesses and counters, without its thread.

use tenure_core::access::{Access, Op};
use tenure_core::curve::{CurvePoint, MissRatioCurve};
use tenure_core::decide::objective::Objective;
use tenure_core::policy::density::{DensityConfig, DensityModel, Feature, Ranking, SCALES, Shown};
use tenure_core::random::Random;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

use super::sizes::Sizes;
use super::sizing::{capacities, in_time};
use super::*;

pub(super) fn instructions() -> Instructions {
    Instructions {
        window_requests: 1000,
        window: Duration::from_secs(3600),
        granularity_bytes: 0,
        gain_min: 0.01,
        objective: Objective::Penalty,
        rate_min: SampleRate::new(0.01).unwrap(),
        samples_per_second: 1_000_000,
        modelling: Modelling::Recency,
        sample_size: 5,
    }
}

fn sampled(access: Access, at: u64, partition: u16) -> Sampled {
    Sampled { access, at, partition: PartitionId(partition), epoch: 0, generation: 0, shown: None, is_seen: true }
}

fn tenants(weights: Vec<u32>) -> TenantTerms {
    TenantTerms { bytes_min: vec![0; 2], bytes_max: vec![u64::MAX; 2], weights }
}

fn snapshot(counters: Vec<Counters>, capacity_bytes: u64) -> Snapshot {
    Snapshot {
        epoch: 0,
        counters,
        tenant_of: vec![TenantId(0), TenantId(1)],
        generations: vec![0; 2],
        tenants: tenants(vec![1; 2]),
        memory: MemoryNow {
            limit_bytes: capacity_bytes,
            capacity_bytes,
            data_bytes_max: capacity_bytes,
            key_table_bytes: 0,
            models_bytes: 0,
            headroom_bytes: [0; SCALES.len()],
        },
        keys: vec![10_000; 2],
        evictions: Evictions::default(),
        fast: None,
        is_watching: true,
        are_accesses_noted: true,
        is_replica: false,
        instructions: instructions(),
    }
}

/// What was learned of a number that goes to another tenant is forgotten; of the other it stays. News of the one
/// before that comes late is dropped.
#[test]
fn a_number_of_another_tenant_begins_anew() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let counted = |reads| Counters { reads, ..Counters::default() };
    models.look_at(&shared, &snapshot(vec![counted(0); 2], 1000));
    for i in 0..100 {
        models.take(&sampled(Access::read(KeyHash::of_number(i), 10), i, (i % 2) as u16));
    }
    let ends = Instructions { window_requests: 1, ..instructions() };
    models.look_at(&shared, &Snapshot { instructions: ends, ..snapshot(vec![counted(50); 2], 1000) });
    let known = |models: &Models| [0, 1].map(|i| models.kept.known(i));
    assert_eq!(known(&models), [(50, 50.0), (50, 50.0)]);
    let later = Snapshot { generations: vec![0, 3], ..snapshot(vec![counted(50), counted(0)], 1000) };
    models.look_at(&shared, &later);
    assert_eq!(known(&models), [(50, 50.0), (0, 0.0)]);
    models.take(&sampled(Access::read(KeyHash::of_number(7), 10), 60, 1));
    assert_eq!(known(&models)[1].0, 0, "of the one before");
    models.take(&Sampled { generation: 3, ..sampled(Access::read(KeyHash::of_number(7), 10), 1, 1) });
    assert_eq!(known(&models)[1].0, 1);
    let before = models.window.number;
    models.look_at(&shared, &Snapshot { instructions: ends, ..snapshot(vec![counted(90); 2], 1000) });
    assert_eq!(models.window.number, before, "a snapshot from before ends no window");
}

#[test]
fn what_went_unseen_is_told_to_who_learns_and_counts_for_nobody_else() {
    let mut models = Models::new(&Shared::new());
    models.start_epoch(0, Modelling::Densities);
    let mut told = |number, is_seen| {
        let access = Access::read(KeyHash::of_number(number), 10);
        let shown = Shown { now: 7, expires: u64::MAX, feature: Feature::default(), penalty_us: 1.0, op: Op::Read };
        models.take(&Sampled { shown: Some(shown), is_seen, ..sampled(access, 1, 0) });
        (models.learner.as_ref().map(|learner| learner.sampled_keys()), models.kept.known(0).0)
    };
    assert_eq!([told(1, true), told(2, false)], [(Some(1), 1), (Some(2), 1)]);
}

/// On a busy core accesses may come faster than a worker takes them.
#[test]
fn a_queue_that_is_never_empty_keeps_no_window_from_ending() {
    let mut models = Models::new(&Shared::new());
    let access = Access::read(KeyHash::of_number(1), 10);
    assert_eq!(models.take_some(|| Some(sampled(access, 0, 0))), QUEUE_LEN);
    assert_eq!(models.take_some(|| None), 0);
}

/// After a while without anything the worker is to be woken, and then takes what has come.
#[test]
fn a_worker_that_rests_is_woken() {
    let worker = Worker::start().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let wait = |condition: &dyn Fn() -> bool| {
        while !condition() {
            assert!(Instant::now() < until, "in time");
            std::thread::yield_now();
        }
    };
    wait(&|| worker.shared.rests_until.load(Ordering::Relaxed) != AWAKE);
    worker.wake();
    assert_eq!(worker.shared.queue.waiting(), 0, "nothing to wake it for");
    worker.shared.queue.push(sampled(Access::read(KeyHash::of_number(1), 10), 0, 0));
    wait(&|| {
        worker.wake();
        worker.shared.queue.waiting() == 0
    });
}

/// Two partitions, each a loop over 100 keys of 10 bytes, misses of the second ten times as expensive, memory for
/// one: it goes to the second.
#[test]
fn a_window_gives_memory_to_the_dear_misses() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let mut counters = vec![Counters::default(); PARTITIONS_MAX];
    for round in 0..20u64 {
        for key in 0..100u64 {
            for partition in 0..2u16 {
                let counted = &mut counters[partition as usize];
                counted.reads += 1;
                let key = KeyHash::of_number(u64::from(partition) * 1000 + key);
                models.take(&sampled(Access::read(key, 10), counted.requests(), partition));
                if round == 0 {
                    counted.misses += 1;
                    counted.penalties += 1;
                    counted.penalty_us_sum += if partition == 0 { 100.0 } else { 1000.0 };
                }
            }
        }
    }
    models.look_at(&shared, &snapshot(counters, 1050));
    let mut version = 0;
    let published = shared.news(&mut version).expect("a window has ended");
    let targets = &published.plan.as_ref().unwrap().target_bytes;
    assert!(targets[1] >= 1000, "{targets:?}");
    assert_eq!(published.partitions[1].penalty_us_mean, 1000.0);
    assert!(shared.news(&mut version).is_none());
}

/// A loop over 1.2 times what fits beside keys of recency, both in need of all memory: the loop is to be evicted
/// at random, or to fit; the other by recency.
#[test]
fn each_partition_gets_a_k_with_its_target() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let mut settings = instructions();
    settings.modelling = Modelling::SampleSizes;
    let mut counters = vec![Counters::default(); PARTITIONS_MAX];
    models.look_at(&shared, &Snapshot { instructions: settings, ..snapshot(counters.clone(), 1_900) });
    let mut random = tenure_core::random::Random::new(7);
    for i in 0..100_000_u64 {
        let recent = 1_000_000 + i / 4 + random.below(1_500);
        for (partition, key) in [i % 1_100, recent].into_iter().enumerate() {
            counters[partition].reads += 1;
            let access = Access::read(KeyHash::of_number(key), 1);
            models.take(&sampled(access, counters[partition].requests(), partition as u16));
        }
    }
    models.look_at(&shared, &Snapshot { instructions: settings, ..snapshot(counters, 1_900) });
    let published = shared.news(&mut 0).expect("a window has ended");
    let targets = &published.plan.as_ref().unwrap().target_bytes;
    let k = &published.sample_sizes;
    assert!(k[1] >= 8, "{k:?} {targets:?}");
    assert!(k[0] < 5 || targets[0] >= 1_100, "{k:?} {targets:?}");
}

/// As above, but every miss counts alike, or the cheap tenant a hundredfold: it has the memory.
#[test]
fn objective_and_weight_change_whose_misses_count() {
    for (objective, weights, dear_has_it) in [
        (Objective::Penalty, vec![1, 1], true),
        (Objective::Penalty, vec![100, 1], false),
        (Objective::Hits, vec![3, 2], false),
        (Objective::Hits, vec![2, 3], true),
    ] {
        let shared = Shared::new();
        let mut models = Models::new(&shared);
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        for i in 0..4000_u64 {
            let (partition, key) = (i as u16 % 2, i / 2 % 100);
            let counted = &mut counters[usize::from(partition)];
            counted.reads += 1;
            counted.penalties += 1;
            counted.penalty_us_sum += [100.0, 1000.0][usize::from(partition)];
            let access = Access::read(KeyHash::of_number(u64::from(partition) * 1000 + key), 10);
            models.take(&sampled(access, counted.requests(), partition));
        }
        let instructions = Instructions { objective, ..instructions() };
        models.look_at(
            &shared,
            &Snapshot { instructions, tenants: tenants(weights.clone()), ..snapshot(counters, 1050) },
        );
        let published = shared.news(&mut 0).expect("a window has ended");
        let targets = &published.plan.as_ref().unwrap().target_bytes;
        assert_eq!(targets[1] >= 1000, dear_has_it, "{objective:?} {weights:?}: {targets:?}");
    }
}

/// A backend slows down from one window to the next: the mean is the new one at once, where enough misses say so.
#[test]
fn the_penalty_is_that_of_the_last_window() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let mut counted = Counters::default();
    let mut mean_after = |reads: u64, penalties: u64, us: f64| {
        counted.reads += reads;
        counted.penalties += penalties;
        counted.penalty_us_sum += penalties as f64 * us;
        let mut counters = vec![Counters::default(); PARTITIONS_MAX];
        counters[0] = counted;
        models.look_at(&shared, &snapshot(counters, 0));
        shared.news(&mut 0).unwrap().partitions[0].penalty_us_mean
    };
    assert_eq!(mean_after(2000, 100, 1000.0), 1000.0);
    assert_eq!(mean_after(2000, 100, 2000.0), 2000.0);
    let few = mean_after(2000, 7, 1000.0);
    assert!((1900.0..2000.0).contains(&few), "seven do not outweigh a hundred: {few}");
}

/// A replica is taught that the second partition is expensive and fits; it plans so, also as the primary's heir,
/// until it has seen for several windows that it is the first.
#[test]
fn a_replica_plans_on_what_it_was_taught_and_so_does_the_heir_until_it_knows_better() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let mut version = 0;
    let curve = MissRatioCurve::new(vec![CurvePoint { bytes: 1000, miss_ratio: 0.0 }]);
    let lesson = |i: u16, penalty_us: f64, target_bytes| {
        let weights =
            Weights { reads: 1000.0, penalties: 100.0, penalty_us_sum: 100.0 * penalty_us, ..Weights::default() };
        (PartitionId(i), Lesson { target_bytes, weights, curve: curve.clone(), ..Lesson::default() })
    };
    let taught = || Taught {
        epoch: 0,
        partitions: vec![lesson(0, 10.0, 0), lesson(1, 1000.0, 1050)],
        sample_size: None,
        teaching: None,
        heard: Instant::now(),
    };
    let mut counters = vec![Counters::default(); PARTITIONS_MAX];
    let now = |counters: &[Counters], is_replica| Snapshot { is_replica, ..snapshot(counters.to_vec(), 1050) };
    let targets = |published: Option<Arc<Published>>| published.unwrap().plan.as_ref().unwrap().target_bytes.clone();
    // What a replica sees itself counts for nothing while it is taught.
    counters[0].writes = 5000;
    shared.teach(taught());
    models.look_at(&shared, &now(&counters, true));
    let published = shared.news(&mut version);
    assert!(published.as_ref().unwrap().is_taught);
    assert!(targets(published)[1] >= 1000);
    models.look_at(&shared, &now(&counters, true));
    assert!(shared.news(&mut version).is_none());
    models.look_at(&shared, &now(&counters, false));
    assert!(targets(shared.news(&mut version))[1] >= 1000, "the heir begins with it");

    let mut second_has_it = Vec::new();
    for _ in 0..8 {
        for i in 0..2000_u64 {
            let counted = &mut counters[0];
            counted.reads += 1;
            counted.penalties += 1;
            counted.penalty_us_sum += 5000.0;
            let access = Access::read(KeyHash::of_number(i % 100), 10);
            models.take(&sampled(access, counted.requests(), 0));
        }
        models.look_at(&shared, &now(&counters, false));
        let published = shared.news(&mut version);
        assert!(!published.as_ref().unwrap().is_taught);
        second_has_it.push(targets(published)[1] >= 1000);
    }
    assert!(!second_has_it[7], "{second_has_it:?}");
    assert!(!models.kept.is_carried(0), "what was taken over is forgotten in time");
}

/// A night in which nobody asks for anything; then the limit is halved, and there still is nobody.
#[test]
fn what_was_known_outlasts_windows_without_requests() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let mut counters = vec![Counters::default(); PARTITIONS_MAX];
    (counters[0].reads, counters[0].penalties, counters[0].penalty_us_sum) = (5000, 5, 5000.0);
    counters[1].reads = 1000;
    let mut look = |capacity_bytes| {
        let mut now = snapshot(counters.clone(), capacity_bytes);
        now.instructions.window = Duration::ZERO;
        models.look_at(&shared, &now);
        shared.news(&mut 0).unwrap()
    };
    let before = look(1000);
    (0..1000).for_each(|_| _ = look(1000));
    let after = look(500);
    let weights = |published: &Published| published.partitions.iter().map(|view| view.weights).collect::<Vec<_>>();
    assert_eq!(weights(&after), weights(&before));
    assert_eq!((after.window, after.partitions[0].miss_ratio), (before.window + 1001, None));
    assert_eq!(after.plan.as_ref().unwrap().target_bytes.iter().sum::<u64>(), 500);
}

#[test]
fn without_a_limit_there_is_no_plan() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let mut counters = vec![Counters::default(); PARTITIONS_MAX];
    counters[0].reads = 5000;
    models.look_at(&shared, &snapshot(counters, 0));
    assert!(shared.news(&mut 0).unwrap().plan.is_none());
}

/// Where more keys are sampled than before, the caches have to fill again: what was expected stands meanwhile, but not
/// under another limit.
#[test]
fn what_is_expected_stands_while_a_larger_sample_fills() {
    const LIMIT: u64 = 5000;
    let (quarter, all) = (SampleRate::new(0.25).unwrap(), SampleRate::new(1.0).unwrap());
    let mut sizer = Sizer::new(quarter, 1000);
    let mut n = 0;
    let mut end_window = |sizer: &mut Sizer, reads: u64, rate, limit| {
        for _ in 0..reads {
            n += 1;
            let access = Access::read(KeyHash::of_number(n % 1000), 10);
            let shown =
                Shown { now: n, expires: u64::MAX, feature: Feature::default(), penalty_us: 1.0, op: access.op };
            sizer.record(&access, PartitionId(0), &shown, &Learned::default());
        }
        let before = vec![Counters::default(); 2];
        let counted = Counters { reads, misses: reads / 2, answered: reads / 2, ..Counters::default() };
        let now = Snapshot { keys: vec![500; 2], ..snapshot(vec![counted, Counters::default()], limit) };
        sizer.end_window(&now, &before, (Duration::from_secs(1), rate), &Learned::default())
    };
    let mut told = Sizes::default();
    for _ in 0..10 {
        told = end_window(&mut sizer, 3000, quarter, LIMIT);
    }
    assert!(!told.is_empty());
    end_window(&mut sizer, 100, all, LIMIT);
    let meanwhile = end_window(&mut sizer, 1, all, LIMIT);
    assert!(!meanwhile.is_empty() && meanwhile.memory_bytes == told.memory_bytes);
    assert!(end_window(&mut sizer, 1, all, 2 * LIMIT).is_empty());
    for _ in 0..10 {
        told = end_window(&mut sizer, 3000, all, LIMIT);
    }
    assert!(!told.is_empty());
}

/// An eight-hundredth of the limit, beside what twelve caches take in any case; also once many keys have come at first
/// and fewer are looked at.
#[test]
fn the_caches_of_other_sizes_stay_within_their_share_of_memory() {
    const LIMIT: u64 = 64 << 20;
    const IN_ANY_CASE: u64 = 25 << 10;
    let quarter = SampleRate::new(0.25).unwrap();
    let mut model = DensityModel::new(DensityConfig::default()).unwrap();
    (0..1000).for_each(|i| model.record(KeyHash::of_number(i % 10), Op::Read, i, Feature::default()));
    let table = Arc::new(model.end_window(1000, 1 << 20));
    let learned = Learned { table, ranking: Some(Ranking::Density), ..Learned::default() };
    let mut sizer = Sizer::new(quarter, 20_000);
    let mut random = Random::new(3);
    for now in 1..=400_000 {
        let access = Access::read(KeyHash::of_number(random.below(100_000)), 1000);
        let shown = Shown { now, expires: u64::MAX, feature: Feature::default(), penalty_us: 1.0, op: access.op };
        sizer.record(&access, PartitionId(0), &shown, &learned);
        if now % 20_000 == 0 {
            let counted = Counters { reads: 20_000, misses: 10_000, answered: 10_000, ..Counters::default() };
            let seen = Snapshot { keys: vec![50_000, 0], ..snapshot(vec![counted, Counters::default()], LIMIT) };
            let before = vec![Counters::default(); 2];
            sizer.end_window(&seen, &before, (Duration::from_secs(1000), quarter), &learned);
        }
    }
    let bytes = sizer.memory_bytes() as u64;
    assert!((LIMIT / 2400..LIMIT / 800 + IN_ANY_CASE).contains(&bytes), "{bytes} of {LIMIT}");
}

/// Of a tenant whose keys are half as many as the sample says fewer are missed under half the memory. Where
/// the server evicts all keys by itself, dear ones go like others.
#[test]
fn other_sizes_are_told_by_what_the_server_says_of_itself() {
    let told_of_half = |keys: u64, by_server: u64| {
        let mut sizer = Sizer::new(SampleRate::ALL, 1000);
        let (mut random, mut told, mut now) = (Random::new(7), Sizes::default(), 0);
        for window in 1..=20 {
            for _ in 0..3000 {
                now += 1;
                let number = random.below(1000);
                let access = Access::read(KeyHash::of_number(number), 10);
                let (penalty_us, op) = ([10.0, 1000.0][number as usize % 2], access.op);
                let shown = Shown { now, expires: u64::MAX, feature: Feature::default(), penalty_us, op };
                sizer.record(&access, PartitionId(0), &shown, &Learned::default());
            }
            let before = vec![Counters::default(); 2];
            let counted = Counters { reads: 3000, misses: 1500, answered: 1500, ..Counters::default() };
            let evictions = Evictions { by_server: window * by_server, ..Evictions::default() };
            let counters = vec![counted, Counters::default()];
            let now = Snapshot { keys: vec![keys, 0], evictions, ..snapshot(counters, 5000) };
            let elapsed = (Duration::from_secs(1), SampleRate::ALL);
            told = sizer.end_window(&now, &before, elapsed, &Learned::default());
        }
        told.expected.by_size[1][0]
    };
    let (own, few, by_server) = (told_of_half(500, 0), told_of_half(250, 0), told_of_half(500, 2000));
    assert!((own.miss_ratio - 0.75).abs() < 0.02 && few.miss_ratio < 0.66, "{own:?} {few:?}");
    assert!(by_server.lost_us_per_second < 0.7 * own.lost_us_per_second, "{own:?} {by_server:?}");
}

/// A rate that takes half of the time stays: a higher one would take all while the caches fill, and be lowered again.
#[test]
fn the_rate_of_other_sizes_goes_up_only_where_there_is_time() {
    assert_eq!([0.03, 0.05, 0.1, 0.14].map(|by_time| in_time(0.05, by_time)), [0.03, 0.05, 0.05, 0.05]);
    assert!((in_time(0.05, 0.6) - 0.2).abs() < 1e-9);
}

/// The caches of other sizes have room for more keys than the models take. More come, and the models take no more.
#[test]
fn more_comes_for_the_caches_of_other_sizes() {
    let shared = Shared::new();
    let mut models = Models::new(&shared);
    let instructions = Instructions { modelling: Modelling::Densities, window_requests: 1, ..instructions() };
    let mut now = snapshot(vec![Counters::default(); 2], 1 << 20);
    now.instructions = instructions;
    now.keys = vec![100; 2];
    models.look_at(&shared, &now);
    models.set_rate(&shared, 0.01);
    assert_eq!(shared.stream_rate(), shared.rate());
    now.counters[0].reads = 100;
    models.look_at(&shared, &now);
    assert!(shared.stream_rate().rate() > 2.0 * shared.rate().rate(), "{:?}", shared.stream_rate());
    assert_eq!((models.rate.rate(), models.rate.stream()), (shared.rate(), shared.stream_rate()));
}

/// Under 100 MB: 80 of data, 6 kept free, models of 10.4, of which 0.4 are there under any limit. Half of it would keep
/// 5 free, and twice as much 6.
#[test]
fn what_keys_would_have_goes_by_what_else_there_would_be() {
    const MB: u64 = 1 << 20;
    let mut now = snapshot(Vec::new(), 80 * MB);
    now.memory.limit_bytes = 100 * MB;
    now.memory.models_bytes = 10 * MB + (400 << 10);
    now.memory.headroom_bytes = SCALES.map(|scale| if scale < 1.0 { 5 * MB } else { 6 * MB });
    let at = |scale: f64| capacities(&now)[SCALES.iter().position(|&one| one == scale).unwrap()];
    assert_eq!([0.5, 1.0, 2.0].map(at), [36 * MB, 80 * MB, 170 * MB]);
}
