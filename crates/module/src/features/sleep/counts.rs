//! What is counted of values that sleep.

use std::ops::AddAssign;

/// What is counted for `INFO`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Values that fell asleep.
    pub slept: u64,
    /// Values that woke.
    pub woken: u64,
    /// Reads and writes that found their key asleep.
    pub touched: u64,
    /// Values that the disk didn't take.
    pub refused: u64,
    /// Records that could not be read or were damaged.
    pub damaged: u64,
    /// Sleepers that were given up for want of room.
    pub given_up: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let Counts { slept, woken, touched, refused, damaged, given_up } = other;
        self.slept += slept;
        self.woken += woken;
        self.touched += touched;
        self.refused += refused;
        self.damaged += damaged;
        self.given_up += given_up;
    }
}
