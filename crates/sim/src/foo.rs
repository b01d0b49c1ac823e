//! A tighter lower bound on what misses must cost, for short traces: cost-FOO.
//!
//! Source: FOO-L (Berger, Beckmann and Harchol-Balter, SIGMETRICS'18) sec. 3, with savings in place of hits, as
//! "Caching for Dollars" (Mandarapu and Kunkunuru, 2026) has it for dollars. Keeping a value from one use to the next
//! takes its size at *each* access in between; a part of a value may be kept, and saves that part. The most that can be
//! saved is then a flow of least cost: the cache's bytes flow along the trace, each either idle, from one access to the
//! next, or through a stay, from its value's use to the next one, for what that saves per byte. Where all sizes are the
//! same it is the optimum. `bound.rs` asks only that the sum over all accesses be kept, so it is never above this
//! one. Flows go by the cheapest way that is left, one after another (Dijkstra's, with potentials). Savings per byte
//! are rounded up, to 2^-20 µs. Deviation: values that expire are refused, where what a stay saves depends on when the
//! value was filled. Cost: stays × accesses × log accesses, a second for 3,000 accesses; so it is there to judge
//! `bound.rs` by.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tenure_core::access::Access;

use crate::offline::{NEVER, Offline, saved_us};

/// Savings are whole numbers of 2^-20 µs a byte.
const SCALE: f64 = (1 << 20) as f64;

/// One way from access to access, or back.
#[derive(Clone, Copy, Debug)]
struct Way {
    to: u32,
    /// Bytes that still fit.
    room: u64,
    /// A byte's, in 2^-20 µs: what a stay saves is below 0.
    cost: i64,
}

/// The ways that bytes can go; the way back of way `i` is `i ^ 1`.
struct Flow {
    ways: Vec<Way>,
    /// By access, the ways that begin there.
    from: Vec<Vec<u32>>,
    /// By access, the least cost from the first.
    potentials: Vec<i64>,
}

impl Flow {
    fn add(&mut self, from: usize, to: usize, room: u64, cost: i64) {
        for (from, to, room, cost) in [(from, to, room, cost), (to, from, 0, -cost)] {
            self.from[from].push(self.ways.len() as u32);
            self.ways.push(Way { to: to as u32, room, cost });
        }
    }

    /// The accesses' order is one in which all ways lead on, before anything flows.
    fn find_potentials(&mut self) {
        self.potentials = vec![i64::MAX; self.from.len()];
        self.potentials[0] = 0;
        for at in 0..self.from.len() {
            for &way in &self.from[at] {
                let Way { to, room, cost } = self.ways[way as usize];
                let reached = self.potentials[at].saturating_add(cost);
                if room > 0 && reached < self.potentials[to as usize] {
                    self.potentials[to as usize] = reached;
                }
            }
        }
    }

    /// The ways of the cheapest path to the last access. All that is reached has its potential renewed.
    fn cheapest(&mut self) -> Option<Vec<u32>> {
        let last = self.from.len() - 1;
        let (mut least, mut came_by) = (vec![i64::MAX; last + 1], vec![u32::MAX; last + 1]);
        let mut next = BinaryHeap::from([Reverse((0, 0))]);
        least[0] = 0;
        while let Some(Reverse((cost, at))) = next.pop() {
            if cost > least[at] {
                continue;
            }
            for &way in &self.from[at] {
                let Way { to, room, cost: own } = self.ways[way as usize];
                let reached = cost + own + self.potentials[at] - self.potentials[to as usize];
                if room > 0 && reached < least[to as usize] {
                    (least[to as usize], came_by[to as usize]) = (reached, way);
                    next.push(Reverse((reached, to as usize)));
                }
            }
        }
        let mut path = Vec::new();
        let mut at = last;
        while at != 0 {
            let way = came_by.get(at).copied().filter(|&way| way != u32::MAX)?;
            path.push(way);
            at = self.ways[way as usize ^ 1].to as usize;
        }
        let furthest = least[last];
        self.potentials.iter_mut().zip(least).for_each(|(own, least)| *own += least.min(furthest));
        Some(path)
    }

    /// Lets `bytes` flow; what that costs.
    fn fill(&mut self, mut bytes: u64) -> i128 {
        let mut total = 0;
        while bytes > 0 {
            let Some(path) = self.cheapest() else { break };
            let cost: i64 = path.iter().map(|&way| self.ways[way as usize].cost).sum();
            if cost >= 0 {
                break;
            }
            let part = path.iter().map(|&way| self.ways[way as usize].room).min().unwrap_or(0).min(bytes);
            for way in path {
                self.ways[way as usize].room -= part;
                self.ways[way as usize ^ 1].room += part;
            }
            total += i128::from(cost) * i128::from(part);
            bytes -= part;
        }
        total
    }
}

/// What misses cost in µs at the least, after `warm_up` accesses, in a cache of `capacity_bytes`; `None` where values
/// expire.
pub fn least_penalty_us(offline: &Offline, capacity_bytes: u64, warm_up: usize) -> Option<f64> {
    let Offline { accesses, next_use } = offline;
    if accesses.iter().any(|access| access.ttl_us > 0) {
        return None;
    }
    let warm_up = warm_up.min(accesses.len());
    // What is before the end of the warm-up takes no room that counts.
    let place = |i: usize| i.saturating_sub(warm_up);
    let n = place(accesses.len());
    let mut flow = Flow { ways: Vec::new(), from: vec![Vec::new(); n + 1], potentials: Vec::new() };
    (0..n).for_each(|i| flow.add(i, i + 1, capacity_bytes, 0));
    let mut saved_at_once_us = 0.0;
    let counted = |&(i, access): &(usize, &Access)| {
        let is_kept = u64::from(access.size_bytes) <= capacity_bytes;
        is_kept && next_use[i] != NEVER && next_use[i] as usize >= warm_up
    };
    for (i, access) in accesses.iter().enumerate().filter(counted) {
        let next = next_use[i] as usize;
        let saved_us = saved_us(&accesses[next]);
        if place(next) == place(i) || access.size_bytes == 0 {
            saved_at_once_us += saved_us;
        } else if saved_us > 0.0 {
            let per_byte = (saved_us * SCALE / f64::from(access.size_bytes)).ceil() as i64;
            flow.add(place(i), place(next), u64::from(access.size_bytes), -per_byte);
        }
    }
    flow.find_potentials();
    let saved_in_all_us = -(flow.fill(capacity_bytes) as f64) / SCALE + saved_at_once_us;
    let everything_us: f64 = accesses[warm_up..].iter().map(saved_us).sum();
    Some((everything_us - saved_in_all_us).max(0.0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tenure_core::access::Op;
    use tenure_core::units::KeyHash;

    use super::*;
    use crate::bound::bound;
    use crate::bound::brute_force::brute_force;

    fn read(key: u64, size_bytes: u32, penalty_us: f32) -> Access {
        Access { penalty_us, ..Access::read(KeyHash(key), size_bytes) }
    }

    fn least_us(trace: &Arc<[Access]>, capacity: u64, warm_up: usize) -> f64 {
        least_penalty_us(&Offline::new(trace.clone()), capacity, warm_up).unwrap()
    }

    /// a b a b with room for one: one of the two can be kept through, which the bound by the sum doesn't see.
    #[test]
    fn it_asks_for_room_at_each_access() {
        let trace: Arc<[Access]> = [0, 1, 0, 1].map(|key| read(key, 1, 10.0)).into();
        assert_eq!([1, 2].map(|capacity| least_us(&trace, capacity, 0)), [30.0, 20.0]);
        assert_eq!(bound(&Offline::new(trace), &[1], 0, 0.0)[0].penalty_us_total, 20.0);
    }

    /// Two of 2 bytes with room for 3: of one a half is kept, which no cache can.
    #[test]
    fn a_value_may_be_kept_in_part() {
        let trace: Arc<[Access]> = [0, 1, 0, 1].map(|key| read(key, 2, 10.0)).into();
        assert!((least_us(&trace, 3, 0) - 25.0).abs() < 1e-3);
    }

    #[test]
    fn what_expires_is_refused() {
        let trace: Arc<[Access]> = [Access { ttl_us: 5, ..read(0, 1, 1.0) }].into();
        assert_eq!(least_penalty_us(&Offline::new(trace), 1, 0), None);
    }

    /// Key, size, operation and penalty.
    type Step = (u64, u32, u8, u32);

    /// Five keys of 1 to 4 bytes, or all of 2, with writes and deletes, and a part that warms up.
    fn trace() -> impl Strategy<Value = (Arc<[Access]>, usize, bool)> {
        let step = (0u64..5, 1u32..5, 0u8..6, 1u32..100);
        let build = |(steps, warm_up, is_uniform): (Vec<Step>, usize, bool)| {
            let access = |(key, size, op, penalty): Step| {
                let op = [Op::Write, Op::Delete].get(usize::from(op)).copied().unwrap_or(Op::Read);
                Access { op, ..read(key, if is_uniform { 2 } else { size }, penalty as f32) }
            };
            (steps.into_iter().map(access).collect(), warm_up, is_uniform)
        };
        (prop::collection::vec(step, 1..20), 0usize..5, any::<bool>()).prop_map(build)
    }

    proptest! {
        /// Never above the optimum, never below the bound by the sum; where all sizes are the same, the optimum.
        #[test]
        fn it_lies_between_the_bound_and_the_optimum((trace, warm_up, is_uniform) in trace(), capacity in 1u64..12) {
            let by_sum = bound(&Offline::new(trace.clone()), &[capacity], warm_up, 0.0)[0].penalty_us_total;
            let (own, least) = (least_us(&trace, capacity, warm_up), brute_force(&trace, capacity, warm_up));
            prop_assert!(own <= least + 1e-3, "{own} above the optimum {least}");
            prop_assert!(own >= by_sum - 1e-3, "{own} below the bound {by_sum}");
            if is_uniform && warm_up == 0 && capacity % 2 == 0 {
                prop_assert!((own - least).abs() < 1e-3, "{own}, the optimum {least}");
            }
        }
    }
}
