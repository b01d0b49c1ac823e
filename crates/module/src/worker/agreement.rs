//! What the simulator predicts is what the server does: the same accesses, once through the simulator's cache and
//! once through the worker and the server's own ranks, evict the same keys.
//!
//! The server's side here: accesses noted in the ring, sampled ones through [`Models`], its publications, and keys
//! ranked by what the table remembers and the costs that were measured. Values lie in the simulator's table, which
//! stands for the server's key space; both walk it alike.

use tenure_core::access::{Access, Op};
use tenure_core::access_ring::{AccessRing, Kind, REQUESTS_PER_TICK};
use tenure_core::departure::{Cause, Departure};
use tenure_core::key_table::KeyTable;
use tenure_core::policy::cache::{Cache, Outcome};
use tenure_core::policy::density::{
    Basis, Density, DensityPolicyConfig, GreedyAges, MissCosts, Ranking, Ranks, SCALES, Shown, Subject, Value,
    age_step, was_accessed,
};
use tenure_core::policy::over_target::OverTarget;
use tenure_core::policy::pools::{Donor, Pools};
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::policy::walk::Walk;
use tenure_core::random::Random;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

use super::tests::instructions;
use super::*;

const WINDOW_REQUESTS: u64 = 4_000;
const CAPACITY_BYTES: u64 = 300 * 1024;
/// Large enough that no key is forgotten.
const KEY_TABLE_BYTES: u64 = 1 << 22;
/// Large enough that each key is sampled.
const MEMORY_BYTES: u64 = 1 << 30;
const SEED: u64 = 1;

/// The server's side of the policy. See the file's opening.
struct Served {
    shared: Shared,
    models: Models,
    published: Arc<Published>,
    version: u64,
    counters: Vec<Counters>,
    accesses: AccessRing,
    keys: KeyTable,
    costs: MissCosts,
    ages: GreedyAges,
    pools: Pools<(KeyHash, Option<u32>)>,
    walk: Walk,
    victims: Vec<KeyHash>,
}

impl Served {
    fn cache() -> TableCache<Served> {
        let (shared, mut accesses) = (Shared::new(), AccessRing::new());
        accesses.turn(true);
        let served = Served {
            models: Models::new(&shared),
            shared,
            published: Arc::default(),
            version: 0,
            counters: vec![Counters::default(); PARTITIONS_MAX],
            accesses,
            keys: KeyTable::with_compact_entries(KEY_TABLE_BYTES, REQUESTS_PER_TICK),
            costs: MissCosts::default(),
            ages: GreedyAges::new(age_step(WINDOW_REQUESTS)),
            pools: Pools::new(DensityPolicyConfig::default().sample_size as usize),
            walk: Walk::new(SEED),
            victims: Vec::new(),
        };
        let mut cache = TableCache::new(CAPACITY_BYTES, served);
        cache.order_mut().look();
        cache
    }

    /// As the main thread does ten times a second; here after each access, so that both sides end windows at the same
    /// one.
    fn look(&mut self) {
        let instructions =
            Instructions { modelling: Modelling::Densities, window_requests: WINDOW_REQUESTS, ..instructions() };
        let snapshot = Snapshot {
            epoch: 0,
            counters: self.counters.clone(),
            tenant_of: vec![TenantId(0)],
            generations: vec![0],
            tenants: TenantTerms { bytes_min: vec![0], bytes_max: vec![u64::MAX], weights: vec![1] },
            memory: MemoryNow {
                limit_bytes: MEMORY_BYTES,
                capacity_bytes: CAPACITY_BYTES,
                data_bytes_max: CAPACITY_BYTES,
                key_table_bytes: 0,
                models_bytes: 0,
                headroom_bytes: [0; SCALES.len()],
            },
            keys: vec![300],
            evictions: Evictions::default(),
            fast: None,
            is_watching: true,
            are_accesses_noted: true,
            is_replica: false,
            instructions,
        };
        self.models.look_at(&self.shared, &snapshot);
        if let Some(published) = self.shared.news(&mut self.version) {
            // What is published in between is no window: whoever waits for the next isn't told.
            let before = &self.published;
            assert_eq!(published.version != before.version, published.window != before.window);
            if published.learned.ranking != self.published.learned.ranking {
                self.pools.clear();
            }
            self.published = published;
        }
    }

    fn ranks(&self) -> Ranks<'_> {
        let ranking = self.published.learned.ranking.unwrap_or(Ranking::Greedy);
        let basis = Basis { ranking, clock: self.accesses.clock(), idle_is_time: true, sees_part: false };
        Ranks::new(basis, &self.published.learned.table, &self.costs)
    }

    fn subject(&self, entry: &Entry) -> (Subject, Option<u32>) {
        let known = self.keys.recall(entry.key, self.accesses.now() as u32);
        let value = Value { partition: PartitionId(0), size_bytes: entry.size_bytes, expires_in_ms: None };
        let subject = self.ranks().subject(known.as_ref(), value, || panic!("each key is remembered"));
        (subject, known.map(|known| known.last))
    }

    fn offer(&mut self, entry: &Entry) {
        let (subject, last) = self.subject(entry);
        let score = self.ranks().ranker(&self.ages).score(&subject);
        self.pools.offer(PartitionId(0), f64::from(score), || (entry.key, last));
    }
}

impl Order for Served {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        self.accesses.settle(&mut self.keys);
        loop {
            let mut met = 0;
            while !self.pools.will_do(Donor::Anyone, met) {
                let entry = table.entries()[self.walk.next(table.entries().len())];
                met += 1;
                self.offer(&entry);
            }
            let Some((key, last)) = self.pools.take_of(OverTarget::all()) else { continue };
            let Some(place) = table.place_of(key) else { continue };
            let known = self.keys.recall(key, self.accesses.now() as u32);
            if was_accessed(known.as_ref(), last) {
                continue;
            }
            let (gone, _) = self.subject(&table.entries()[place]);
            self.ages.evicted(&gone, self.accesses.now());
            self.victims.push(key);
            return place;
        }
    }

    fn removed(&mut self, table: &Table, place: usize) {
        self.keys.leave(table.entries()[place].key, Departure::by(Cause::Evicted), self.accesses.now() as u32, true);
    }

    fn observed(&mut self, access: &Access, outcome: Outcome, table: &Table) {
        self.accesses.note(&mut self.keys, access.key, Kind::Accessed);
        self.accesses.settle(&mut self.keys);
        let now = self.accesses.now();
        self.keys.get_mut(access.key).expect("it was just noted").learn_penalty(access.penalty_us);
        let known = self.keys.recall(access.key, now as u32);
        let (feature, penalty_us) = self.costs.of(known.as_ref(), PartitionId(0), 0.0);
        let shown = Some(Shown { now, expires: u64::MAX, feature, penalty_us, op: Op::Read });
        let at = self.counters[0].requests();
        let (access, partition) = (*access, PartitionId(0));
        self.models.take(&Sampled { access, at, partition, epoch: 0, generation: 0, shown, is_seen: true });
        self.counters[0].reads += 1;
        self.counters[0].misses += u64::from(outcome == Outcome::Miss);
        if outcome == Outcome::Miss
            && let Some(place) = table.place_of(access.key)
        {
            let entry = table.entries()[place];
            self.offer(&entry);
        }
        self.look();
    }
}

/// Two backends; keys that are hot for long, for a while, in a loop, and once.
fn access(i: u64, random: &mut Random) -> Access {
    let number = match i % 4 {
        0 => random.below(200).pow(2) / 200,
        1 => 1_000 + i / 40 % 300 + random.below(30),
        2 => 10_000 + i / 4 % 250,
        _ => 100_000 + i,
    };
    let penalty_us = if number % 3 == 0 { 1024.0 } else { 128.0 };
    let size_bytes = 512 << (number % 2);
    Access { penalty_us, time_us: i, ..Access::read(KeyHash::of_number(number), size_bytes) }
}

#[test]
fn the_server_evicts_the_keys_that_the_simulator_does() {
    let config = DensityPolicyConfig {
        window_requests: WINDOW_REQUESTS,
        key_table_bytes: KEY_TABLE_BYTES,
        sampled_keys_max: Modelling::Densities.sampled_keys_max(MEMORY_BYTES),
        ..DensityPolicyConfig::default()
    };
    let mut simulated = Density::cache(config, CAPACITY_BYTES, SEED).unwrap();
    let mut served = Served::cache();
    let mut random = Random::new(7);
    for i in 0..40_000 {
        let access = access(i, &mut random);
        let outcomes = (simulated.access(&access), served.access(&access));
        assert_eq!(outcomes.0, outcomes.1, "at access {i}, after {} evictions", served.evictions());
        let keys = |table: &Table| table.entries().iter().map(|entry| entry.key).collect::<Vec<_>>();
        if i % 100 == 0 || i < 2_000 {
            assert_eq!(keys(simulated.table()), keys(served.table()), "at access {i}");
        }
    }
    let order = served.order();
    assert_eq!(Some(simulated.order().ranking()), order.published.learned.ranking);
    assert!(order.published.window > 8 && order.victims.len() > 10_000, "{}", order.victims.len());
}
