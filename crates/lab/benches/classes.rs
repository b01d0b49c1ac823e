//! What it costs to remember each key's class, and how often that is wrong: ns of processor time per look-up, bytes
//! per key, errors.
//!
//! Sixteen classes of 1,000,000 keys (1,000 under `cargo test`). Filters are sized for that at an error of 0.01, the
//! key table (`table`, what the server uses) for one entry of 16 bytes per key. Each shape is measured four times:
//! with half the keys; at capacity; after one key in ten has changed to a class drawn at random; and with twice the
//! keys. `forgot` is the share of known keys that get no class, `newer` that of the half that came last; `wrong` the
//! share of known keys that get another class than their present one, `stale` that of the keys that changed; `false`
//! the share of unknown keys that get one. 0 is none at all. Looked up are 1,000,000 known and as many unknown keys,
//! drawn at random; no look-up waits for the one before, so waits for memory overlap. The checksum is of the answers.
//!
//! Run: `cargo bench --locked -p tenure-lab --bench classes`; it takes 40 s and 280 MB. On two cores of an AMD EPYC
//! that others used too, 21 November 2026 (its clock of processor time has steps of 4 ns here):
//!
//! ```text
//! shape  state      bytes/key   forgot    newer    wrong    stale    false   hit ns  miss ns   checksum
//! chain  half full       2.40        0        0   0.19 %        -   0.41 %    272.0    399.9    4259379
//! chain  capacity        1.20        0        0   7.25 %        -  14.96 %    300.0    512.0    9332247
//! chain  changed         1.20        0        0  14.67 %  50.56 %  21.79 %    272.0    459.9    9433528
//! chain  twice full      0.60        0        0  62.98 %        -  93.52 %    162.7    263.5    9272328
//! tree   half full       7.19        0        0   0.05 %        -   0.02 %    350.3     45.7    4248595
//! tree   capacity        3.59        0        0   1.99 %        -   0.99 %    371.2     64.0    8604179
//! tree   changed         3.59        0        0   7.33 %  47.95 %   0.99 %    366.7     56.0    8318453
//! tree   twice full      1.80        0        0  27.99 %        -  15.75 %    396.2    159.8    9502304
//! table  half full      32.00   3.72 %   0.43 %        0        -        0     47.9     39.9    4088939
//! table  capacity       16.00  19.55 %   3.83 %        0        -        0     48.0     36.0    6839722
//! table  changed        16.00  19.53 %   5.39 %        0        0        0     44.0     36.0    6838511
//! table  twice full      8.00  50.67 %  19.50 %        0        -   0.00 %     44.0     36.0    4200105
//! ```
//!
//! One table that holds fingerprint, class, penalty, last access and residence takes 13 times the chain's memory per
//! key. For that it names no wrong class, takes a class that changed at once, answers from one cache line, and
//! forgets, where a bucket is full, what was not asked for longest. It holds neither sizes nor misses under way:
//! those are `sizes.rs` and `misses.rs` of the module's `observe`.

#[path = "../../core/benches/support/mod.rs"]
mod support;

use std::ops::Range;

use support::ProcessorTime;
use tenure_core::decide::penalty_class::PENALTY_CLASSES;
use tenure_core::key_table::{Entry, KeyTable};
use tenure_core::random::Random;
use tenure_core::units::KeyHash;
use tenure_lab::bloom_classes::{BloomClasses, Shape};

const SEED: u64 = 1;
const ERROR: f64 = 0.01;
const KEYS_PER_CLASS: u64 = 1_000_000;
const KEYS_PER_CLASS_IN_TESTS: u64 = 1_000;
const CHANGED_ONE_IN: u64 = 10;

fn main() {
    // `cargo bench` passes --bench, `cargo test` doesn't.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let n = if is_bench { KEYS_PER_CLASS } else { KEYS_PER_CLASS_IN_TESTS };
    println!(
        "{:6} {:10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "shape", "state", "bytes/key", "forgot", "newer", "wrong", "stale", "false", "hit ns", "miss ns", "checksum"
    );
    measure_states("chain", n, || BloomClasses::new(Shape::Chain, n as usize, ERROR));
    measure_states("tree", n, || BloomClasses::new(Shape::Tree, n as usize, ERROR));
    let entries = n * PENALTY_CLASSES as u64;
    measure_states("table", n, || KeyTable::new(entries * size_of::<Entry>() as u64));
}

/// What remembers classes, made for so many keys.
trait Remembers {
    /// The key is of `class`, and is used at `now`.
    fn remember(&mut self, key: KeyHash, class: usize, now: u32);
    fn class_of(&self, key: KeyHash) -> Option<usize>;
    fn memory_bytes(&self) -> u64;
}

impl Remembers for BloomClasses {
    fn remember(&mut self, key: KeyHash, class: usize, _now: u32) {
        self.insert(key, class);
    }

    fn class_of(&self, key: KeyHash) -> Option<usize> {
        BloomClasses::class_of(self, key)
    }

    fn memory_bytes(&self) -> u64 {
        BloomClasses::memory_bytes(self) as u64
    }
}

impl Remembers for KeyTable {
    fn remember(&mut self, key: KeyHash, class: usize, now: u32) {
        let entry = self.get_or_insert(key, now);
        // 0 is no class.
        (entry.class, entry.last) = (class as u8 + 1, now);
    }

    fn class_of(&self, key: KeyHash) -> Option<usize> {
        self.get(key).map(|entry| usize::from(entry.class) - 1)
    }

    fn memory_bytes(&self) -> u64 {
        KeyTable::memory_bytes(self)
    }
}

/// Keys come in the order of their numbers, one per tick.
fn measure_states<R: Remembers>(shape: &str, n: u64, new: impl Fn() -> R) {
    let insert = |classes: &mut R, keys: Keys, numbers: Range<u64>| {
        numbers.for_each(|i| classes.remember(hash(i), keys.class(i), i as u32));
    };
    let half = Keys { per_class: n / 2, are_changed: false };
    let mut keys = Keys { per_class: n, are_changed: false };
    let twice = Keys { per_class: 2 * n, are_changed: false };

    let mut classes = new();
    insert(&mut classes, half, 0..half.n());
    measure(shape, "half full", &classes, half);
    insert(&mut classes, keys, half.n()..keys.n());
    measure(shape, "capacity", &classes, keys);

    keys.are_changed = true;
    let changing = (0..keys.n()).filter(|&i| is_changing(i));
    changing.for_each(|i| classes.remember(hash(i), keys.class(i), (keys.n() + i) as u32));
    measure(shape, "changed", &classes, keys);
    drop(classes);

    let mut classes = new();
    insert(&mut classes, twice, 0..twice.n());
    measure(shape, "twice full", &classes, twice);
}

/// The known keys, by number from 0, and what class each is of.
#[derive(Clone, Copy)]
struct Keys {
    per_class: u64,
    are_changed: bool,
}

impl Keys {
    fn n(self) -> u64 {
        self.per_class * PENALTY_CLASSES as u64
    }

    fn class(self, number: u64) -> usize {
        if self.are_changed && is_changing(number) {
            return Random::new(number).below(PENALTY_CLASSES as u64) as usize;
        }
        (number % PENALTY_CLASSES as u64) as usize
    }
}

fn is_changing(number: u64) -> bool {
    (number / PENALTY_CLASSES as u64).is_multiple_of(CHANGED_ONE_IN)
}

fn hash(number: u64) -> KeyHash {
    KeyHash::of_number(number)
}

fn measure(shape: &str, state: &str, classes: &impl Remembers, keys: Keys) {
    let looked_up = keys.per_class.min(KEYS_PER_CLASS);
    let mut random = Random::new(SEED);
    let known: Vec<u64> = (0..looked_up).map(|_| random.below(keys.n())).collect();
    let unknown: Vec<u64> = known.iter().map(|number| number + (1 << 40)).collect();
    let (hit_ns, hits) = look_up(classes, &known);
    let (miss_ns, misses) = look_up(classes, &unknown);

    let class_of = |&number: &u64| classes.class_of(hash(number));
    let is_changed = |&number: &u64| keys.are_changed && is_changing(number);
    let is_newer = |&number: &u64| number >= keys.n() / 2;
    let is_forgotten = |number: &u64| class_of(number).is_none();
    let is_wrong = |number: &u64| class_of(number).is_some_and(|class| class != keys.class(*number));
    let of_known = |is: &dyn Fn(&u64) -> bool| known.iter().filter(|number| is(number)).count();
    let columns = [
        percent(of_known(&is_forgotten), known.len()),
        percent(of_known(&|i| is_newer(i) && is_forgotten(i)), of_known(&is_newer)),
        percent(of_known(&is_wrong), known.len()),
        percent(of_known(&|i| is_changed(i) && is_wrong(i)), of_known(&is_changed)),
        percent(unknown.iter().filter(|number| class_of(number).is_some()).count(), unknown.len()),
    ];
    println!(
        "{shape:6} {state:10} {:>9.2} {} {hit_ns:>8.1} {miss_ns:>8.1} {:>10}",
        classes.memory_bytes() as f64 / keys.n() as f64,
        columns.map(|column| format!("{column:>8}")).join(" "),
        hits + misses,
    );
}

/// None at all is told from next to none.
fn percent(n: usize, of: usize) -> String {
    match (n, of) {
        (_, 0) => "-".to_owned(),
        (0, _) => "0".to_owned(),
        (n, of) => format!("{:.2} %", 100.0 * n as f64 / of as f64),
    }
}

/// ns per look-up, and the sum of the classes. Hashes are made before, as the server has them.
fn look_up(classes: &impl Remembers, numbers: &[u64]) -> (f64, usize) {
    let hashes: Vec<KeyHash> = numbers.iter().map(|&number| hash(number)).collect();
    let began = ProcessorTime::now();
    let sum = hashes.iter().map(|&hash| classes.class_of(hash).map_or(0, |class| class + 1)).sum();
    (began.elapsed_ns() / hashes.len() as f64, sum)
}
