//! A lower bound on what misses must cost, whatever the policy: no cache of the size can do better, knowing the
//! future or not.
//!
//! Source: PFOO-L (Berger, Beckmann and Harchol-Balter, SIGMETRICS'18) sec. 4, with costs. Keeping a value from one
//! use to the next takes its size for so many accesses and saves the miss penalty of the next use, where that is a
//! read. A cache of C bytes has C for every access of the trace. If only the *sum* must be kept, and the last stay may
//! be a fraction, a knapsack is left. Taking stays by saving per byte and access solves it exactly, and saves at least
//! what any policy can. Where values expire, a value filled anew lasts longer than one that stayed. So every stay
//! counts as possible that some choice of fills makes possible, and what the stays of one life of a key save together
//! is limited to what the best choice saves with unlimited memory (`lives.rs`). A life's savings by room stay concave
//! under its limit, so the same order still solves the knapsack, each life's stays being taken until its limit is
//! reached, the last in part. With room for all this is the optimum. With a warm-up only savings after it count, and
//! only room after it: a stay that spans its end takes the later part. What a policy gives up during the warm-up costs
//! it nothing, a fill that lasts into the counted part included. Cost: one sort of the trace's stays for any number of
//! cache sizes.

use tenure_core::access::Op;

use crate::lives::Lives;
use crate::offline::{Offline, saved_us};
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
    /// Which life it is part of: a place in [`Lives::saved_us_max`].
    life: u32,
}

impl Stay {
    fn room(&self) -> f64 {
        f64::from(self.size_bytes) * f64::from(self.length)
    }

    fn density(&self) -> f64 {
        if self.length == 0 { f64::INFINITY } else { f64::from(self.saved_us) / self.room() }
    }
}

/// The bound for caches of `capacities_bytes`, in that order. `warm_up` accesses at the trace's beginning are not
/// counted.
///
/// The miss ratios in the report are those of the cheapest relaxed solution, not bounds by themselves; nothing is
/// said to be evicted.
pub fn bound(offline: &Offline, capacities_bytes: &[u64], warm_up: usize, hit_us: f64) -> Vec<Report> {
    let mut everything = Tally::default();
    for access in &offline.accesses[warm_up.min(offline.accesses.len())..] {
        everything.count_miss(access);
    }
    let lives = Lives::new(offline, warm_up);
    let mut stays = stays(offline, &lives, warm_up);
    stays.sort_unstable_by(|a, b| b.density().total_cmp(&a.density()).then(a.room().total_cmp(&b.room())));
    let length = offline.accesses.len().saturating_sub(warm_up) as f64;
    let solve = |&capacity: &u64| {
        let mut tally = everything.clone();
        take_best(&stays, lives.saved_us_max.clone(), capacity, capacity as f64 * length, &mut tally);
        tally.report(capacity, 0, hit_us, None)
    };
    capacities_bytes.iter().map(solve).collect()
}

fn stays(offline: &Offline, lives: &Lives, warm_up: usize) -> Vec<Stay> {
    let mut stays = Vec::new();
    for (i, access) in offline.accesses.iter().enumerate() {
        let end = lives.next_use[i] as usize;
        let Some(found) = offline.accesses.get(end).filter(|_| end >= warm_up) else {
            continue;
        };
        stays.push(Stay {
            size_bytes: access.size_bytes,
            // A stay that ends just where counting begins takes no room that counts.
            length: (end - i.max(warm_up)) as u32,
            saved_us: saved_us(found) as f32,
            found_bytes: found.size_bytes,
            found_by_read: found.op == Op::Read,
            life: lives.life[i],
        });
    }
    stays
}

/// Turns misses into hits, best stays first, until the room is used up. `left_us` is what may still be saved, by life.
fn take_best(stays: &[Stay], mut left_us: Vec<f64>, capacity_bytes: u64, mut room: f64, tally: &mut Tally) {
    for stay in stays {
        if u64::from(stay.size_bytes) > capacity_bytes {
            continue;
        }
        let (saved_us, left_us) = (f64::from(stay.saved_us), &mut left_us[stay.life as usize]);
        let useful = if saved_us > *left_us { *left_us / saved_us } else { 1.0 };
        let share = if useful * stay.room() > room { room / stay.room() } else { useful };
        room -= share * stay.room();
        *left_us = (*left_us - share * saved_us).max(0.0);
        tally.misses -= share;
        tally.read_misses -= share * f64::from(u8::from(stay.found_by_read));
        tally.missed_bytes -= share * f64::from(stay.found_bytes);
        tally.penalty_us -= share * saved_us;
        if share < useful {
            return;
        }
    }
}

#[cfg(test)]
pub(crate) mod brute_force {
    use std::collections::BTreeMap;

    use tenure_core::access::{Access, Op};
    use tenure_core::expiry::expires_us_after;

    use crate::offline::saved_us;

    /// The least that misses can cost after `warm_up` accesses, by trying every set of values that fits after every
    /// access (admission is free). A state is by key when the value held expires.
    pub(crate) fn brute_force(accesses: &[Access], capacity: u64, warm_up: usize) -> f64 {
        let keys = accesses.iter().map(|a| a.key.0 as usize + 1).max().unwrap_or(0);
        let mut costs = BTreeMap::from([(vec![None; keys], 0.0)]);
        let mut sizes = vec![0_u64; keys];
        for (i, access) in accesses.iter().enumerate() {
            let key = access.key.0 as usize;
            sizes[key] = u64::from(access.size_bytes);
            let mut next = BTreeMap::new();
            for (mut held, so_far) in costs {
                held.iter_mut().for_each(|until| *until = until.filter(|&until| access.time_us < until));
                let paid = if held[key].is_none() && i >= warm_up { saved_us(access) } else { 0.0 };
                held[key] = (access.op != Op::Delete).then(|| expires_us_after(access, held[key]));
                // Any part of what could be held now may be kept.
                for part in 0..1_u32 << keys {
                    let kept: Vec<_> = (0..keys).map(|k| held[k].filter(|_| part >> k & 1 == 1)).collect();
                    let bytes: u64 = (0..keys).filter(|&k| kept[k].is_some()).map(|k| sizes[k]).sum();
                    if bytes <= capacity {
                        let least = next.entry(kept).or_insert(f64::INFINITY);
                        *least = f64::min(*least, so_far + paid);
                    }
                }
            }
            costs = next;
        }
        costs.into_values().fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tenure_core::access::Access;
    use tenure_core::units::KeyHash;

    use super::brute_force::brute_force;
    use super::*;

    fn access(key: u64, size_bytes: u32, penalty_us: f32, op: Op) -> Access {
        Access { penalty_us, op, ..Access::read(KeyHash(key), size_bytes) }
    }

    /// a b a b with room for one: keeping either through saves one of two, and the relaxation can't split what needs
    /// two accesses of room out of four: a and b both fit its sum (2 × 1 + 2 × 1 = 4), so the bound is the two cold
    /// misses.
    #[test]
    fn it_bounds_the_sum_only() {
        let trace: Arc<[Access]> = [0, 1, 0, 1].map(|key| access(key, 1, 10.0, Op::Read)).into();
        let reports = bound(&Offline::new(trace.clone()), &[1, 2], 0, 0.0);
        assert_eq!([reports[0].penalty_us_total, reports[1].penalty_us_total], [20.0, 20.0]);
        assert_eq!([1, 2].map(|capacity| brute_force(&trace, capacity, 0)), [30.0, 20.0]);
    }

    #[test]
    fn nothing_fits_into_nothing() {
        let trace: Arc<[Access]> = [0, 0, 0].map(|key| access(key, 5, 10.0, Op::Read)).into();
        assert_eq!(bound(&Offline::new(trace), &[4], 0, 0.0)[0].penalty_us_total, 30.0);
    }

    /// Size 4 at 0, size 1 at 1 and 17. With room for 2 the first isn't stored, so the read at 1 misses and fills a
    /// value that lasts until 18, which the read at 17 finds. With room for 4 the first may be kept and found at 1,
    /// but expires at 2. Either way two of three miss.
    #[test]
    fn a_value_filled_anew_lasts_longer() {
        let read = |time_us, size, ttl_us| Access { time_us, ttl_us, ..access(0, size, 10.0, Op::Read) };
        let trace: Arc<[Access]> = [read(0, 4, 2), read(1, 1, 17), read(17, 1, 0)].into();
        assert_eq!([2, 4].map(|capacity| paid_us(&trace, capacity, 0)), [20.0, 20.0]);
        assert_eq!([2, 4].map(|capacity| brute_force(&trace, capacity, 0)), [20.0, 20.0]);
    }

    /// Five keys of 1 to 4 bytes, with writes, deletes and TTLs, and a part that warms up.
    fn trace() -> impl Strategy<Value = (Arc<[Access]>, usize)> {
        let step = (0u64..5, 1u32..5, 0u8..6, 0u64..4, 0u64..16, 1u32..100);
        let ops = [Op::Write, Op::Delete];
        let build = move |steps: Vec<(u64, u32, u8, u64, u64, u32)>| {
            let mut now_us = 0;
            let build = |(key, size, op, gap_us, ttl, penalty): (u64, u32, u8, u64, u64, u32)| {
                now_us += gap_us;
                let op = ops.get(op as usize).copied().unwrap_or(Op::Read);
                let ttl_us = if ttl < 9 { ttl } else { 0 };
                Access { time_us: now_us, ttl_us, ..access(key, size, penalty as f32, op) }
            };
            steps.into_iter().map(build).collect()
        };
        (prop::collection::vec(step, 1..20).prop_map(build), 0usize..5)
    }

    fn paid_us(trace: &Arc<[Access]>, capacity: u64, warm_up: usize) -> f64 {
        bound(&Offline::new(trace.clone()), &[capacity], warm_up, 0.0)[0].penalty_us_total
    }

    proptest! {
        #[test]
        fn it_is_never_above_the_optimum((trace, warm_up) in trace(), capacity in 1u64..12) {
            let (bound, least) = (paid_us(&trace, capacity, warm_up), brute_force(&trace, capacity, warm_up));
            prop_assert!(bound <= least + 1e-6, "bound {} above the optimum {}", bound, least);
        }

        /// Five keys of 4 bytes fit into 20.
        #[test]
        fn it_is_the_optimum_where_all_fits((trace, warm_up) in trace()) {
            let (bound, least) = (paid_us(&trace, 20, warm_up), brute_force(&trace, 20, warm_up));
            prop_assert!((bound - least).abs() < 1e-6, "bound {}, the optimum {}", bound, least);
        }
    }
}
