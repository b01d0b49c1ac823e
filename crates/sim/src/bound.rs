//! A lower bound on what misses must cost, whatever the policy: no cache of the size can do better, knowing the future or not.
//!
//! Source: PFOO-L (Berger, Beckmann and Harchol-Balter, SIGMETRICS'18) sec. 4, with costs. Keeping a value from one use to the next takes its size
//! for so many accesses and saves the miss penalty of the next use, where that is a read. A cache of C bytes has C for every
//! access of the trace. Asking only that the *sum* be kept, and letting the last stay be a fraction, leaves a knapsack that
//! taking stays by saving per byte and access solves exactly; what it saves is at least what any policy can.
//! With a warm-up only savings after it count, and only room after it: a stay that spans its end takes the later part.
//! Cost: one sort of the trace's stays for any number of cache sizes.

use tenure_core::access::{Access, Op};

use crate::offline::Offline;
use crate::replay::{Report, Tally};

/// One possible stay of a value in the cache, between two uses.
#[derive(Clone, Copy, Debug)]
struct Stay {
    size_bytes: u32,
    /// Accesses of its length that count.
    length: u32,
    /// What the use at its end saves, in µs.
    saved_us: f32,
    /// Size of the value asked for at its end, in bytes.
    found_bytes: u32,
    /// Whether that use is a read.
    found_by_read: bool,
}

impl Stay {
    fn room(&self) -> f64 {
        f64::from(self.size_bytes) * f64::from(self.length)
    }

    fn density(&self) -> f64 {
        if self.length == 0 { f64::INFINITY } else { f64::from(self.saved_us) / self.room() }
    }
}

/// The bound for caches of `capacities_bytes`, in that order. `warm_up` accesses at the trace's beginning are not counted.
///
/// The miss ratios in the report are those of the cheapest relaxed solution, not bounds by themselves; nothing is said to be evicted.
pub fn bound(offline: &Offline, capacities_bytes: &[u64], warm_up: usize, hit_us: f64) -> Vec<Report> {
    let mut everything = Tally::default();
    for access in &offline.accesses[warm_up.min(offline.accesses.len())..] {
        everything.count_miss(access);
    }
    let mut stays = stays(offline, warm_up);
    stays.sort_unstable_by(|a, b| b.density().total_cmp(&a.density()).then(a.room().total_cmp(&b.room())));
    let length = offline.accesses.len().saturating_sub(warm_up) as f64;
    let solve = |&capacity: &u64| {
        let mut tally = everything.clone();
        take_best(&stays, capacity, capacity as f64 * length, &mut tally);
        tally.report(capacity, 0, hit_us, None)
    };
    capacities_bytes.iter().map(solve).collect()
}

fn stays(offline: &Offline, warm_up: usize) -> Vec<Stay> {
    let mut stays = Vec::new();
    for i in 0..offline.accesses.len() {
        let Some((saved_us, _)) = offline.saving(i) else {
            continue;
        };
        let end = offline.next_use[i] as usize;
        if end >= warm_up {
            // A stay that ends just where counting begins takes no room that counts.
            let length = (end - i.max(warm_up)) as u32;
            let Access { size_bytes: found_bytes, op, .. } = offline.accesses[end];
            let size_bytes = offline.accesses[i].size_bytes;
            stays.push(Stay {
                size_bytes,
                length,
                saved_us: saved_us as f32,
                found_bytes,
                found_by_read: op == Op::Read,
            });
        }
    }
    stays
}

/// Turns misses into hits, best stays first, until the room is used up.
fn take_best(stays: &[Stay], capacity_bytes: u64, mut room: f64, tally: &mut Tally) {
    for stay in stays {
        if u64::from(stay.size_bytes) > capacity_bytes {
            continue;
        }
        let share = if stay.room() > room { room / stay.room() } else { 1.0 };
        room -= share * stay.room();
        tally.misses -= share;
        tally.read_misses -= share * f64::from(u8::from(stay.found_by_read));
        tally.missed_bytes -= share * f64::from(stay.found_bytes);
        tally.penalty_us -= share * f64::from(stay.saved_us);
        if share < 1.0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tenure_core::units::KeyHash;

    use super::*;

    /// The least that misses can cost, by trying every set of keys that fits after every access (admission is free).
    fn brute_force(accesses: &[Access], capacity: u64) -> f64 {
        let keys = accesses.iter().map(|a| a.key.0 + 1).max().unwrap_or(0) as usize;
        let mut cost = vec![f64::INFINITY; 1 << keys];
        cost[0] = 0.0;
        let mut sizes = vec![0_u64; keys];
        for access in accesses {
            let key = access.key.0 as usize;
            sizes[key] = u64::from(access.size_bytes);
            let mut next = vec![f64::INFINITY; 1 << keys];
            for (held, &so_far) in cost.iter().enumerate().filter(|(_, c)| c.is_finite()) {
                let (has, without) = (held >> key & 1 == 1, held & !(1 << key));
                let paid = if access.op == Op::Read && !has { f64::from(access.penalty_us) } else { 0.0 };
                let reachable = if access.op == Op::Delete { without } else { without | 1 << key };
                // Any part of what could be held now may be kept.
                let mut kept = reachable;
                loop {
                    let bytes: u64 = (0..keys).filter(|k| kept >> k & 1 == 1).map(|k| sizes[k]).sum();
                    if bytes <= capacity {
                        next[kept] = f64::min(next[kept], so_far + paid);
                    }
                    if kept == 0 {
                        break;
                    }
                    kept = (kept - 1) & reachable;
                }
            }
            cost = next;
        }
        cost.into_iter().fold(f64::INFINITY, f64::min)
    }

    fn access(key: u64, size_bytes: u32, penalty_us: f32, op: Op) -> Access {
        Access { penalty_us, op, ..Access::read(KeyHash(key), size_bytes) }
    }

    /// a b a b with room for one: keeping either through saves one of two, and the relaxation can't split what needs two
    /// accesses of room out of four: a and b both fit its sum (2 × 1 + 2 × 1 = 4), so the bound is the two cold misses.
    #[test]
    fn it_bounds_the_sum_only() {
        let trace: Arc<[Access]> = [0, 1, 0, 1].map(|key| access(key, 1, 10.0, Op::Read)).into();
        let reports = bound(&Offline::new(trace.clone()), &[1, 2], 0, 0.0);
        assert_eq!([reports[0].penalty_us_total, reports[1].penalty_us_total], [20.0, 20.0]);
        assert_eq!([brute_force(&trace, 1), brute_force(&trace, 2)], [30.0, 20.0]);
    }

    #[test]
    fn nothing_fits_into_nothing() {
        let trace: Arc<[Access]> = [0, 0, 0].map(|key| access(key, 5, 10.0, Op::Read)).into();
        assert_eq!(bound(&Offline::new(trace), &[4], 0, 0.0)[0].penalty_us_total, 30.0);
    }

    proptest! {
        #[test]
        fn it_is_never_above_the_optimum(
            steps in prop::collection::vec((0u64..5, 1u32..5, 0u8..6), 1..14),
            penalties in prop::collection::vec(1u32..100, 5),
            capacity in 1u64..12,
        ) {
            let ops = [Op::Read, Op::Read, Op::Read, Op::Read, Op::Write, Op::Delete];
            let trace: Arc<[Access]> = steps.iter()
                .map(|&(key, size, op)| access(key, size, penalties[key as usize] as f32, ops[op as usize]))
                .collect();
            let least = brute_force(&trace, capacity);
            let bound = bound(&Offline::new(trace.clone()), &[capacity], 0, 0.0)[0].penalty_us_total;
            prop_assert!(bound <= least + 1e-6, "bound {} above the optimum {}", bound, least);
        }
    }
}
