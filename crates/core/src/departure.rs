//! How a key has left the cache, and roughly when it was evicted, in fourteen bits.
//!
//! The table of keys keeps it where it keeps, of keys that are there, in which tier they lie (`tiers/placed.rs`); a
//! compact entry keeps the cause alone, in two bits. A read that misses such a key knows by that whose doing the miss
//! is.

/// Seconds are told in steps of 2^21 µs, which come round after 2.4 hours.
const STEP_SHIFT: u32 = 11;
const STEPS: u32 = 4095;
const TIME_BITS: u32 = 12;

/// How a key has left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was evicted.
    Evicted,
    /// Its time was over.
    Expired,
    /// A client removed it.
    Deleted,
}

/// A key's leaving, as it is remembered. The default: it never was there, or nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departure(u16);

impl Departure {
    /// By that cause, nobody knows when.
    pub fn by(cause: Cause) -> Departure {
        Departure::from_two_bits(cause as u8 + 1)
    }

    /// Evicted by Tenure at `tick`, of 1024 µs each.
    pub fn evicted_at(tick: u32) -> Departure {
        Departure(Departure::by(Cause::Evicted).0 | ((tick >> STEP_SHIFT) % STEPS + 1) as u16)
    }

    /// What its leaving was; `None` where it never was there, or nobody knows.
    pub fn cause(self) -> Option<Cause> {
        match self.to_two_bits() {
            0 => None,
            1 => Some(Cause::Evicted),
            2 => Some(Cause::Expired),
            _ => Some(Cause::Deleted),
        }
    }

    /// Seconds from Tenure's eviction of it until `tick`, to 2 s; `None` where that isn't known. What was evicted
    /// hours ago may seem to be of now.
    pub fn seconds_until(self, tick: u32) -> Option<f64> {
        let at = u32::from(self.0) % (1 << TIME_BITS);
        let steps = ((tick >> STEP_SHIFT) % STEPS + 1 + STEPS - at) % STEPS;
        (at > 0).then(|| f64::from(steps << STEP_SHIFT) * 1024e-6)
    }

    /// As fourteen bits, for a table that keeps them.
    pub fn to_bits(self) -> u16 {
        self.0
    }

    /// What [`Departure::to_bits`] gave.
    pub fn from_bits(bits: u16) -> Departure {
        Departure(bits & 0x3fff)
    }

    /// The cause alone, for a table that has little room.
    pub fn to_two_bits(self) -> u8 {
        (self.0 >> TIME_BITS) as u8
    }

    /// What [`Departure::to_two_bits`] gave.
    pub fn from_two_bits(bits: u8) -> Departure {
        Departure(u16::from(bits & 3) << TIME_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_back_from_both_forms() {
        for cause in [Cause::Evicted, Cause::Expired, Cause::Deleted] {
            let departure = Departure::by(cause);
            assert_eq!((departure.cause(), departure.seconds_until(5)), (Some(cause), None));
            assert_eq!(Departure::from_two_bits(departure.to_two_bits()), departure);
            assert_eq!(Departure::from_bits(departure.to_bits()), departure);
        }
        assert_eq!(Departure::default().cause(), None);
    }

    /// A tick is about a millisecond: 60,000 of them are a minute, to 2.1 s, also where the count wraps meanwhile.
    #[test]
    fn the_time_since_an_eviction_is_known_to_two_seconds() {
        for at in [0_u32, 1, 2_000_000, STEPS << STEP_SHIFT, u32::MAX / 2] {
            let departure = Departure::evicted_at(at);
            assert_eq!(departure.cause(), Some(Cause::Evicted));
            for (later, seconds) in [(0, 0.0), (60_000, 61.4), (600_000, 614.4)] {
                let told = departure.seconds_until(at + later).unwrap();
                assert!((told - seconds).abs() <= 2.2, "{at} {later}: {told}");
            }
            assert_eq!(Departure::from_two_bits(departure.to_two_bits()), Departure::by(Cause::Evicted));
        }
    }
}
