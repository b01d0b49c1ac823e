//! Delayed hits: requests that arrive while a miss is being fetched wait as well, each for what is left of the fetch.
//!
//! Source: Atre, Sherry, Wang and Berger, SIGCOMM'20: what counts is the aggregate delay. With requests for a key
//! every `gap` µs on average, a fetch of `z` µs meets `z / gap` of them, which wait `z / 2` each: `z + z² / (2 gap)`
//! in all. Differs from the source: others are reckoned to wait no more than twice as long as who asks first. How many
//! ask is told by the time between two accesses of late, and where popularity moves on a key that has cooled would
//! count for far too much.

/// Where fewer of the misses than this share find their key being fetched already, the penalty alone will do.
pub const DELAYED_MIN: f64 = 0.02;

/// As a multiple of the penalty, what others are reckoned to wait at the most (docs/results/policies.md).
const OTHERS_MAX: f32 = 2.0;

/// What one miss makes all its requests wait, in µs; `gap_us` is the key's time between two requests, `None` where
/// that isn't known. At most one request per µs is reckoned with.
#[inline]
pub fn aggregate_delay_us(penalty_us: f32, gap_us: Option<f32>) -> f32 {
    let others = gap_us.map_or(0.0, |gap_us| penalty_us / (2.0 * gap_us.max(1.0)));
    penalty_us * (1.0 + others.min(OTHERS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fetch of 1 ms with a request every 500 µs: two more wait half of it each. With one every 100 µs ten would.
    #[test]
    fn who_comes_during_a_fetch_waits_for_half_of_it() {
        assert_eq!(aggregate_delay_us(1000.0, Some(500.0)), 2000.0);
        assert_eq!(aggregate_delay_us(1000.0, Some(100.0)), 3000.0, "no more than twice as much");
        assert_eq!(aggregate_delay_us(1000.0, None), 1000.0);
    }
}
