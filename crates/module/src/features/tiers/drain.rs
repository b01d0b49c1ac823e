//! While a slow tier is given up all its values go up, as the walk meets them.

/// Of so many rounds of the walk that meet nothing slow, one tries what may be: see [`Drain::tries_unknown`].
const ROUNDS_PER_TRIAL: u64 = 4;

/// Whether the slow tier is given up, and how far the walk has come.
#[derive(Debug, Default)]
pub struct Drain {
    is_on: bool,
    /// Keys met since the last that went up.
    met: u64,
}

impl Drain {
    /// True while all values go up.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// The slow tier is to be given up, or is wanted again.
    pub fn turn(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// The walk has met so many keys, and any of them went up, or none.
    pub fn met(&mut self, keys: u64, has_moved: bool) {
        self.met = if has_moved { 0 } else { self.met + keys };
    }

    /// True until the walk has met all of so many keys twice without any that went up.
    pub fn looks(&self, keys: u64) -> bool {
        self.is_on && self.met <= 2 * keys
    }

    /// While the walk has met as many keys as there are without one that went up: collections that lie in slow memory
    /// may have other names now, and in one round of some each is made anew, wherever it lies.
    pub fn tries_unknown(&self, db_sizes: &[(u16, u64)]) -> bool {
        let keys: u64 = db_sizes.iter().map(|(_, keys)| keys).sum();
        self.is_on && self.met / keys.max(1) % ROUNDS_PER_TRIAL == 1
    }
}
