//! Delayed hits: requests that arrive while a miss is being fetched wait as well, each for what is left of the fetch.
//!
//! Source: Atre, Sherry, Wang and Berger, SIGCOMM'20: what counts is the aggregate delay. With requests for a key
//! every `gap` µs on average, a fetch of `z` µs meets `z / gap` of them, which wait `z / 2` each: `z + z² / (2 gap)`
//! in all.

/// Where fewer of the misses than this share find their key being fetched already, the penalty alone will do.
pub const DELAYED_MIN: f64 = 0.02;

/// What one miss makes all its requests wait, in µs; `gap_us` is the key's time between two requests, `None` where
/// that isn't known. At most one request per µs is reckoned with.
#[inline]
pub fn aggregate_delay_us(penalty_us: f32, gap_us: Option<f32>) -> f32 {
    gap_us.map_or(penalty_us, |gap_us| penalty_us + penalty_us * penalty_us / (2.0 * gap_us.max(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fetch of 1 ms with a request every 100 µs: ten more wait half of it each.
    #[test]
    fn who_comes_during_a_fetch_waits_for_half_of_it() {
        assert_eq!(aggregate_delay_us(1000.0, Some(100.0)), 6000.0);
        assert_eq!(aggregate_delay_us(1000.0, None), 1000.0);
    }
}
