//! A heap of table places by rank, lowest first, whose ranks may change: 4-ary, with a map from place to position.
//! O(log n).

const ARITY: usize = 4;

/// The heap. A place is in it at most once; ranks are totally ordered by their `PartialOrd` (no NaN).
#[derive(Clone, Debug)]
pub(super) struct PlaceHeap<R> {
    heap: Vec<(R, u32)>,
    position_of: Vec<u32>,
}

impl<R: Copy + PartialOrd> PlaceHeap<R> {
    pub fn new() -> Self {
        PlaceHeap { heap: Vec::new(), position_of: Vec::new() }
    }

    /// The place of the lowest rank, and the rank.
    pub fn lowest(&self) -> Option<(usize, R)> {
        self.heap.first().map(|&(rank, place)| (place as usize, rank))
    }

    pub fn insert(&mut self, place: usize, rank: R) {
        if self.position_of.len() <= place {
            self.position_of.resize(place + 1, 0);
        }
        self.heap.push((rank, place as u32));
        self.up(self.heap.len() - 1);
    }

    pub fn change(&mut self, place: usize, rank: R) {
        let at = self.position_of[place] as usize;
        let lower = rank < self.heap[at].0;
        self.heap[at].0 = rank;
        if lower { self.up(at) } else { self.down(at) }
    }

    pub fn remove(&mut self, place: usize) {
        let at = self.position_of[place] as usize;
        self.heap.swap_remove(at);
        if at < self.heap.len() {
            self.down(at);
            self.up(at);
        }
    }

    /// What was at `from` is now at `to`, which is not in the heap.
    pub fn moved(&mut self, from: usize, to: usize) {
        let at = self.position_of[from];
        self.heap[at as usize].1 = to as u32;
        self.position_of[to] = at;
    }

    fn up(&mut self, mut at: usize) {
        let item = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent].0 <= item.0 {
                break;
            }
            self.put(at, self.heap[parent]);
            at = parent;
        }
        self.put(at, item);
    }

    fn down(&mut self, mut at: usize) {
        let item = self.heap[at];
        loop {
            let first = at * ARITY + 1;
            let Some(children) = self.heap.get(first..(first + ARITY).min(self.heap.len())).filter(|c| !c.is_empty())
            else {
                break;
            };
            let mut least = 0;
            for (i, child) in children.iter().enumerate() {
                if child.0 < children[least].0 {
                    least = i;
                }
            }
            if children[least].0 >= item.0 {
                break;
            }
            let child = first + least;
            self.put(at, self.heap[child]);
            at = child;
        }
        self.put(at, item);
    }

    fn put(&mut self, at: usize, item: (R, u32)) {
        self.heap[at] = item;
        self.position_of[item.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain search, under insertions, changes and removals.
        #[test]
        fn the_lowest_is_the_lowest(steps in prop::collection::vec((0usize..20, 0u32..1000, 0u8..3), 1..300)) {
            let mut heap = PlaceHeap::new();
            let mut model: Vec<Option<u32>> = vec![None; 20];
            for (place, rank, what) in steps {
                match (what, model[place]) {
                    (2, Some(_)) => { heap.remove(place); model[place] = None; }
                    (_, Some(_)) => { heap.change(place, rank); model[place] = Some(rank); }
                    (_, None) => { heap.insert(place, rank); model[place] = Some(rank); }
                }
                prop_assert_eq!(heap.lowest().map(|(_, rank)| rank), model.iter().flatten().min().copied());
                if let Some((place, rank)) = heap.lowest() {
                    prop_assert_eq!(model[place], Some(rank));
                }
            }
        }
    }
}
