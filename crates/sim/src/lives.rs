//! How long values can last if they are filled at the right reads: what the bound needs where values expire.
//!
//! A read that finds a value leaves its expiry; a read that misses fills it anew, and the new value lasts longer. So
//! a policy that evicts a value may find it later, where one that keeps it finds it expired. A *life* of a key is a
//! write, or a read that nobody can find, and the reads after it that some policy can find: those before the latest
//! expiry of a fill at any access of the life so far. Not all of them at once: each fill at a read is a miss. What a
//! life's reads save together at most, with unlimited memory, is what they would save as hits less the cheapest
//! choice of fills among them. With `s(i)` the saving of access `i`, and `e(i)` the first access of the life that a
//! fill at `i` has expired by (its end if there is none), a fill at `i` and the cheapest ones after it cost
//! `c(i) = s(i) + min c(j)` over `i < j <= e(i)`, where `c` of the life's end is 0. Cost: one look-up per access, and
//! O(log n) per access of a life that fills prolong; nothing for traces without TTLs.

use std::iter::successors;

use tenure_core::access::{Access, Op};
use tenure_core::expiry::expires_us_after;
use tenure_core::model::key_map::KeyMap;

use crate::offline::{NEVER, Offline, saved_us};

/// What values can last until, and what that can save. 8 bytes per access.
#[derive(Debug)]
pub struct Lives {
    /// By access: the next use as in [`Offline::next_use`], or the next read that only a value filled anew can last
    /// until.
    pub next_use: Vec<u32>,
    /// By access: its place in `saved_us_max`.
    pub life: Vec<u32>,
    /// The most that the reads of a life after its first access can save together, in µs. The first is for the lives
    /// that need no fills, which have no limit.
    pub saved_us_max: Vec<f64>,
}

/// A life under way.
struct Life {
    first: u32,
    last: u32,
    /// When the last value that it could have left expires, in µs.
    expires_us: u64,
}

impl Lives {
    /// Looks through a trace. Reads before access `warm_up` save nothing.
    pub fn new(offline: &Offline, warm_up: usize) -> Self {
        let accesses = &offline.accesses[..];
        let (next_use, life) = (offline.next_use.clone(), vec![0; accesses.len()]);
        let mut lives = Lives { next_use, life, saved_us_max: vec![f64::INFINITY] };
        if accesses.iter().any(|access| access.ttl_us > 0) {
            for first in lives.prolong(accesses) {
                lives.limit(first, accesses, warm_up);
            }
        }
        lives
    }

    /// Adds the uses that only values filled anew can last until. Returns the first accesses of the lives that have
    /// any.
    fn prolong(&mut self, accesses: &[Access]) -> Vec<u32> {
        let mut prolonged = Vec::new();
        let mut current: KeyMap<Life> = KeyMap::default();
        for (i, access) in (0_u32..).zip(accesses) {
            if access.op == Op::Delete {
                current.remove(&access.key);
                continue;
            }
            let expires_us = expires_us_after(access, None);
            let life = current.entry(access.key).or_insert(Life { first: i, last: i, expires_us });
            if access.op == Op::Write || access.time_us >= life.expires_us {
                *life = Life { first: i, last: i, expires_us };
            } else if life.last != i {
                let next = &mut self.next_use[life.last as usize];
                if *next != i {
                    *next = i;
                    prolonged.push(life.first);
                }
                (life.last, life.expires_us) = (i, life.expires_us.max(expires_us));
            }
        }
        prolonged.sort_unstable();
        prolonged.dedup();
        prolonged
    }

    /// Limits what the life that begins at access `first` saves.
    fn limit(&mut self, first: u32, accesses: &[Access], warm_up: usize) {
        let is_read = |&next: &u32| next != NEVER && accesses[next as usize].op == Op::Read;
        let life: Vec<u32> = successors(Some(first), |&i| Some(self.next_use[i as usize]).filter(is_read)).collect();
        for &i in &life {
            self.life[i as usize] = self.saved_us_max.len() as u32;
        }
        let counted = |&i: &u32| {
            let access = &accesses[i as usize];
            (access, if i as usize >= warm_up { saved_us(access) } else { 0.0 })
        };
        self.saved_us_max.push(saved_us_max(&life.iter().map(counted).collect::<Vec<_>>()));
    }
}

/// The most that a life's accesses after the first can save together, in µs, each given with what it saves as a hit.
/// See the file's opening.
fn saved_us_max(life: &[(&Access, f64)]) -> f64 {
    let mut times = Staircase::default();
    let mut costs = Staircase::default();
    costs.build(life.len(), 0.0);
    let mut cost_after = 0.0;
    for (i, (access, saved_us)) in life.iter().enumerate().rev() {
        let expired_by = times.first_of(expires_us_after(access, None)).unwrap_or(life.len());
        cost_after = -costs.highest_to(expired_by);
        times.build(i, access.time_us);
        costs.build(i, -(saved_us + cost_after));
    }
    life[1..].iter().map(|(_, saved_us)| saved_us).sum::<f64>() - cost_after
}

/// Numbers at places, seen from the left: of those given so far, last place first, the ones that rise above all
/// before them.
#[derive(Default)]
struct Staircase<T>(Vec<(usize, T)>);

impl<T: PartialOrd + Copy> Staircase<T> {
    /// Puts a step in front of all others.
    fn build(&mut self, place: usize, height: T) {
        while self.0.last().is_some_and(|&(_, behind)| behind <= height) {
            self.0.pop();
        }
        self.0.push((place, height));
    }

    /// The first place that is `height` or higher. O(log steps).
    fn first_of(&self, height: T) -> Option<usize> {
        let as_high = self.0.partition_point(|&(_, step)| step >= height);
        as_high.checked_sub(1).map(|last| self.0[last].0)
    }

    /// The greatest height up to `place`, which is not before the first. O(log steps).
    fn highest_to(&self, place: usize) -> T {
        self.0[self.0.partition_point(|&(step, _)| step > place)].1
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::units::KeyHash;

    use super::*;

    fn at(time_us: u64, ttl_us: u64, penalty_us: f32) -> Access {
        Access { time_us, ttl_us, penalty_us, ..Access::read(KeyHash(1), 1) }
    }

    fn lives(trace: &[Access], warm_up: usize) -> Lives {
        Lives::new(&Offline::new(trace.into()), warm_up)
    }

    /// Reads at 0, 8, 16, 24 and 32, each fill lasts 10: every read but the first can be found, after a fill at the
    /// one before, and of any two in a row one must be a fill. 8 and 24 are the cheapest, 1 + 30, so of 1 + 20 + 30 +
    /// 40 the most that is saved is 60.
    #[test]
    fn the_cheapest_fills_are_chosen() {
        let trace = [(0, 9.0), (8, 1.0), (16, 20.0), (24, 30.0), (32, 40.0)].map(|(time, us)| at(time, 10, us));
        let found = lives(&trace, 0);
        assert_eq!(found.next_use, [1, 2, 3, 4, NEVER]);
        assert_eq!((found.saved_us_max, found.life), (vec![f64::INFINITY, 60.0], vec![1; 5]));
        // A fill at 24 costs nothing during the warm-up, and only 32 counts.
        assert_eq!(lives(&trace, 4).saved_us_max[1], 40.0);
    }

    /// The first value lasts until 17; a fill at 1, which lasts until 5 only, prolongs nothing; the one at 9 lasts
    /// until 29.
    #[test]
    fn a_write_begins_anew_and_what_lasts_anyway_has_no_limit() {
        let trace = [at(0, 17, 1.0), at(1, 4, 1.0), at(9, 20, 1.0), at(10, 1, 1.0), at(20, 1, 7.0)];
        assert_eq!(lives(&trace[..4], 0).saved_us_max.len(), 1);
        let found = lives(&trace, 0);
        assert_eq!((&found.next_use[..], found.saved_us_max[1]), (&[1, 2, 3, 4, NEVER][..], 9.0));
        // A write at 9 brings a value that lasts until 29, filled anew or not.
        let written = [trace[0], trace[1], trace[2].with_op(Op::Write), trace[3], trace[4]];
        assert_eq!(lives(&written, 0).saved_us_max.len(), 1);
        let deleted = [trace[0], trace[1], trace[2].with_op(Op::Delete), trace[3], trace[4]];
        assert_eq!(lives(&deleted, 0).next_use, [1, NEVER, NEVER, NEVER, NEVER]);
    }

    /// 1 4 2 from the left: steps of 1 and 4. With 5 in front that is the only one.
    #[test]
    fn steps_rise() {
        let mut stairs = Staircase::default();
        for (place, height) in [(3, 2), (2, 4), (1, 1)] {
            stairs.build(place, height);
        }
        assert_eq!([stairs.highest_to(1), stairs.highest_to(2), stairs.highest_to(3)], [1, 4, 4]);
        assert_eq!([1, 2, 4, 5].map(|height| stairs.first_of(height)), [Some(1), Some(2), Some(2), None]);
        stairs.build(0, 5);
        assert_eq!((stairs.first_of(1), stairs.highest_to(3)), (Some(0), 5));
    }
}
