//! Where a value is and how it came there, in two bytes.
//!
//! Three things decide about a move beside time and size: the tier, whether the value was accessed since it came to
//! it (or the insertion point still holds), and in which window it last moved (or it would go to and fro). An entry
//! of the key table has these two bytes free where it keeps histories (`Entry::placed`); the chapter takes four (sec.
//! 5.2.7).

use super::Tier;

const SLOW: u16 = 1 << 15;
const ASKED: u16 = 1 << 14;
const WINDOWS: u16 = ASKED - 1;

/// Where a value is. The default: just admitted to the fast tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed(u16);

impl Placed {
    /// The stamp of the window with number `n`: 1 to 16383, over and over. 0 stands for "has not moved".
    pub fn stamp(n: u64) -> u16 {
        (n % u64::from(WINDOWS)) as u16 + 1
    }

    /// The tier it is in.
    #[inline]
    pub fn tier(self) -> Tier {
        if self.0 & SLOW == 0 { Tier::Fast } else { Tier::Slow }
    }

    /// True where it was accessed since it entered the cache or was demoted; what was promoted was.
    #[inline]
    pub fn was_asked(self) -> bool {
        self.0 & ASKED != 0
    }

    /// True where it last moved in the window of this stamp. One in 16383 of those that moved long ago seem to have.
    #[inline]
    pub fn moved_in(self, stamp: u16) -> bool {
        self.0 & WINDOWS == stamp
    }

    /// After a read: it stays where it is.
    #[inline]
    #[must_use]
    pub fn accessed(self) -> Placed {
        Placed(self.0 | ASKED)
    }

    /// After a write of a key that was there: the server allocates the new value where new values go.
    #[inline]
    #[must_use]
    pub fn written(self) -> Placed {
        Placed((self.0 | ASKED) & !SLOW)
    }

    /// After a move to `tier` in the window of `stamp`.
    #[inline]
    #[must_use]
    pub fn moved(tier: Tier, stamp: u16) -> Placed {
        match tier {
            Tier::Fast => Placed(ASKED | stamp & WINDOWS),
            Tier::Slow => Placed(SLOW | stamp & WINDOWS),
        }
    }

    /// The same with the tier that its memory was found in, where that turns out to be another.
    #[inline]
    #[must_use]
    pub fn found_in(self, tier: Tier) -> Placed {
        match tier {
            Tier::Fast => Placed(self.0 & !SLOW),
            Tier::Slow => Placed(self.0 | SLOW),
        }
    }

    /// As two bytes, for a table that keeps them.
    pub fn to_bits(self) -> u16 {
        self.0
    }

    /// What [`Placed::to_bits`] gave.
    pub fn from_bits(bits: u16) -> Placed {
        Placed(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_goes_down_and_up_again() {
        let (now, later) = (Placed::stamp(0), Placed::stamp(1));
        let new = Placed::default();
        assert_eq!((new.tier(), new.was_asked(), new.moved_in(now)), (Tier::Fast, false, false));
        let down = Placed::moved(Tier::Slow, now);
        assert_eq!(
            (down.tier(), down.was_asked(), down.moved_in(now), down.moved_in(later)),
            (Tier::Slow, false, true, false)
        );
        assert_eq!(
            (down.accessed().tier(), down.accessed().was_asked(), down.accessed().moved_in(now)),
            (Tier::Slow, true, true)
        );
        assert_eq!((down.written().tier(), down.written().was_asked()), (Tier::Fast, true));
        assert_eq!(Placed::moved(Tier::Fast, later).tier(), Tier::Fast);
        assert!(Placed::moved(Tier::Fast, later).was_asked());
        assert_eq!(down.found_in(Tier::Fast).found_in(Tier::Slow), down);
        assert_eq!(Placed::from_bits(down.to_bits()), down);
    }

    #[test]
    fn stamps_go_round_and_are_never_that_of_no_move() {
        assert_eq!((Placed::stamp(0), Placed::stamp(16_382), Placed::stamp(16_383)), (1, 16_383, 1));
        assert!((0..40_000).all(|n| !Placed::default().moved_in(Placed::stamp(n))));
    }
}
