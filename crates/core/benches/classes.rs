//! What it costs to remember each key's class, and how often that is wrong: ns of processor time per look-up, bytes per key, errors.
//!
//! Sixteen classes of 1,000,000 keys (1,000 under `cargo test`), filters sized for that at an error of 0.01. Each shape is measured
//! three times: at capacity; after one key in ten has changed to a class drawn at random; and with twice the keys (the first
//! filters, filled on). `wrong` is the share of known keys that get another class than their present one, `stale` that of the keys
//! that changed, `false` the share of unknown keys that get one. Looked up are 1,000,000 known and as many unknown keys,
//! drawn at random. The checksum is of the answers.
//!
//! Run: `cargo bench -p tenure-core --bench classes`; it takes 20 s and 140 MB. On two cores of an AMD EPYC
//! that others used too, 21 November 2026:
//!
//! ```text
//! shape  state      bytes/key    wrong    stale    false   hit ns  miss ns   checksum
//! chain  capacity        1.20   7.25 %        -  14.96 %    287.6    495.7    9332247
//! chain  changed         1.20  14.67 %  50.56 %  21.79 %    255.8    480.0    9433528
//! chain  twice full      0.60  62.98 %        -  93.52 %    143.8    272.0    9272328
//! tree   capacity        3.59   1.99 %        -   0.99 %    367.6     60.0    8604179
//! tree   changed         3.59   7.33 %  47.95 %   0.99 %    367.4     63.9    8318453
//! tree   twice full      1.80  27.99 %        -  15.75 %    400.3    151.8    9502304
//! ```

mod support;

use support::ProcessorTime;
use tenure_core::bloom_classes::{BloomClasses, Shape};
use tenure_core::decide::penalty_class::PENALTY_CLASSES;
use tenure_core::random::Random;
use tenure_core::units::KeyHash;

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
        "{:6} {:10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "shape", "state", "bytes/key", "wrong", "stale", "false", "hit ns", "miss ns", "checksum"
    );
    for shape in [Shape::Chain, Shape::Tree] {
        let mut classes = BloomClasses::new(shape, n as usize, ERROR);
        let mut keys = Keys { per_class: n, are_changed: false };
        keys.numbers().for_each(|number| classes.insert(hash(number), keys.class(number)));
        measure(shape, "capacity", &classes, keys);

        let mut changed = classes.clone();
        keys.are_changed = true;
        keys.numbers().filter(|&i| is_changing(i)).for_each(|i| changed.insert(hash(i), keys.class(i)));
        measure(shape, "changed", &changed, keys);
        drop(changed);

        let keys = Keys { per_class: 2 * n, are_changed: false };
        keys.numbers().skip((n as usize) * PENALTY_CLASSES).for_each(|i| classes.insert(hash(i), keys.class(i)));
        measure(shape, "twice full", &classes, keys);
    }
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

    fn numbers(self) -> impl Iterator<Item = u64> {
        0..self.n()
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

fn measure(shape: Shape, state: &str, classes: &BloomClasses, keys: Keys) {
    let looked_up = keys.per_class.min(KEYS_PER_CLASS);
    let mut random = Random::new(SEED);
    let known: Vec<u64> = (0..looked_up).map(|_| random.below(keys.n())).collect();
    let unknown: Vec<u64> = known.iter().map(|number| number + (1 << 40)).collect();
    let (hit_ns, hits) = look_up(classes, &known);
    let (miss_ns, misses) = look_up(classes, &unknown);

    let wrong: Vec<u64> = known.iter().copied().filter(|&i| classes.class_of(hash(i)) != Some(keys.class(i))).collect();
    let changed = known.iter().filter(|&&i| keys.are_changed && is_changing(i)).count();
    let stale = wrong.iter().filter(|&&i| keys.are_changed && is_changing(i)).count();
    let false_hits = unknown.iter().filter(|&&i| classes.class_of(hash(i)).is_some()).count();
    let percent =
        |n: usize, of: usize| if of == 0 { "-".into() } else { format!("{:.2} %", 100.0 * n as f64 / of as f64) };
    println!(
        "{:6} {state:10} {:>9.2} {:>8} {:>8} {:>8} {hit_ns:>8.1} {miss_ns:>8.1} {:>10}",
        format!("{shape:?}").to_lowercase(),
        classes.memory_bytes() as f64 / keys.n() as f64,
        percent(wrong.len(), known.len()),
        percent(stale, changed),
        percent(false_hits, unknown.len()),
        hits + misses,
    );
}

/// ns per look-up, and the sum of the classes. Hashes are made before, as the server has them.
fn look_up(classes: &BloomClasses, numbers: &[u64]) -> (f64, usize) {
    let hashes: Vec<KeyHash> = numbers.iter().map(|&number| hash(number)).collect();
    let began = ProcessorTime::now();
    let sum = hashes.iter().map(|&hash| classes.class_of(hash).map_or(0, |class| class + 1)).sum();
    (began.elapsed_ns() / hashes.len() as f64, sum)
}
