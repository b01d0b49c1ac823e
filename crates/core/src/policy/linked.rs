//! Doubly linked lists over the places of a table: recency and insertion orders.
//!
//! The links lie in arrays beside the table, so a place is in at most one list and moves when its value moves. All
//! O(1).

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Links {
    /// Towards the head.
    newer: u32,
    /// Towards the tail.
    older: u32,
    list: u8,
}

/// `N` lists that share their links. A value enters at the head of one; the oldest is at its tail.
#[derive(Clone, Debug)]
pub struct Lists<const N: usize> {
    links: Vec<Links>,
    heads: [u32; N],
    tails: [u32; N],
}

impl<const N: usize> Default for Lists<N> {
    fn default() -> Self {
        Lists::new()
    }
}

impl<const N: usize> Lists<N> {
    /// Empty lists.
    pub fn new() -> Self {
        Lists { links: Vec::new(), heads: [NONE; N], tails: [NONE; N] }
    }

    /// Puts `place`, which is in no list, at the head of `list`.
    pub fn push(&mut self, list: usize, place: usize) {
        if self.links.len() <= place {
            self.links.resize(place + 1, Links { newer: NONE, older: NONE, list: 0 });
        }
        let older = self.heads[list];
        self.links[place] = Links { newer: NONE, older, list: list as u8 };
        match older {
            NONE => self.tails[list] = place as u32,
            older => self.links[older as usize].newer = place as u32,
        }
        self.heads[list] = place as u32;
    }

    /// Takes `place` out of its list.
    pub fn unlink(&mut self, place: usize) {
        let Links { newer, older, list } = self.links[place];
        match newer {
            NONE => self.heads[list as usize] = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            NONE => self.tails[list as usize] = newer,
            older => self.links[older as usize].newer = newer,
        }
    }

    /// The value at `from` now lies at `to`, which is in no list.
    pub fn moved(&mut self, from: usize, to: usize) {
        let links = self.links[from];
        self.links[to] = links;
        match links.newer {
            NONE => self.heads[links.list as usize] = to as u32,
            newer => self.links[newer as usize].older = to as u32,
        }
        match links.older {
            NONE => self.tails[links.list as usize] = to as u32,
            older => self.links[older as usize].newer = to as u32,
        }
    }

    /// The oldest place of `list`.
    #[inline]
    pub fn oldest(&self, list: usize) -> Option<usize> {
        (self.tails[list] != NONE).then_some(self.tails[list] as usize)
    }

    /// The place that entered `place`'s list next after it.
    #[inline]
    pub fn newer(&self, place: usize) -> Option<usize> {
        let newer = self.links[place].newer;
        (newer != NONE).then_some(newer as usize)
    }

    /// Which list `place` is in.
    #[inline]
    pub fn list_of(&self, place: usize) -> usize {
        self.links[place].list as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_leave_oldest_first_and_may_move() {
        let mut lists = Lists::<2>::new();
        (0..4).for_each(|place| lists.push(place % 2, place));
        assert_eq!((lists.oldest(0), lists.oldest(1)), (Some(0), Some(1)));
        lists.unlink(0);
        lists.moved(3, 0);
        assert_eq!((lists.oldest(0), lists.oldest(1), lists.list_of(0)), (Some(2), Some(1), 1));
        lists.unlink(1);
        assert_eq!(lists.oldest(1), Some(0));
        lists.unlink(0);
        assert_eq!(lists.oldest(1), None);
    }
}
