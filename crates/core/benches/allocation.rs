//! What one allocation costs: ms of processor time for 16 and 64 partitions on 1000 units, by how they are grouped.
//!
//! The hard case: every curve falls at each of 1000 points (fixed seed, no two alike, not convex) and nobody's bounds
//! bind, so no inner loop ends early. Under `cargo test` 100 units. The checksum is of the costs.
//!
//! Run: `cargo bench -p tenure-core --bench allocation`.

mod support;

use support::ProcessorTime;
use tenure_core::curve::{CurvePoint, MissRatioCurve};
use tenure_core::decide::allocation::{Claim, Group, allocate};
use tenure_core::random::Random;

const SEED: u64 = 1;
const UNIT_BYTES: u64 = 1 << 20;
/// Enough that the scheduler's tick counts little.
const ROUNDS: usize = 50;

fn main() {
    // `cargo bench` passes --bench, `cargo test` doesn't.
    let units = if std::env::args().any(|argument| argument == "--bench") { 1000 } else { 100 };
    println!("{:>10} {:>10} {:>10} {:>14}", "partitions", "groups", "ms", "checksum");
    for (partitions, groups) in [(16, 1), (16, 16), (64, 1), (64, 4), (64, 64)] {
        measure(partitions, groups, units);
    }
}

fn measure(partitions: usize, n_groups: usize, units: u64) {
    let mut random = Random::new(SEED);
    let curves: Vec<MissRatioCurve> = (0..partitions).map(|_| falling(&mut random, units)).collect();
    let claim = |(i, curve)| Claim::new(curve, 1e6 * (i + 1) as f64, i % n_groups);
    let claims: Vec<Claim> = curves.iter().enumerate().map(claim).collect();
    let minimum = units * UNIT_BYTES / (8 * n_groups as u64);
    let groups = vec![Group { bytes_min: minimum, bytes_max: units * UNIT_BYTES }; n_groups];
    let began = ProcessorTime::now();
    let mut checksum = 0.0;
    for _ in 0..ROUNDS {
        checksum = allocate(&claims, &groups, units * UNIT_BYTES, UNIT_BYTES).expect("these bounds fit").cost_us;
    }
    let ms = began.elapsed_ns() / 1e6 / ROUNDS as f64;
    println!("{partitions:>10} {n_groups:>10} {ms:>10.2} {checksum:>14.1}");
}

fn falling(random: &mut Random, units: u64) -> MissRatioCurve {
    let falls: Vec<f64> = (0..units).map(|_| random.unit()).collect();
    let sum: f64 = falls.iter().sum();
    let mut miss_ratio = 1.0;
    let mut point = |(i, fall): (usize, &f64)| {
        miss_ratio -= fall / sum;
        CurvePoint { bytes: (i as u64 + 1) * UNIT_BYTES, miss_ratio }
    };
    MissRatioCurve::new(falls.iter().enumerate().map(&mut point).collect())
}
