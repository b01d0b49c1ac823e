//! Miss-penalty classes by themselves: sixteen ranges of exponentially growing width.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.2 and 6.3.1: [1 µs, 10 µs), [10, 30), [30, 70) … [327670, 655350): class i begins at
//! 10 × (2^i − 1). What lies below the first counts to it, what lies above the last to the last.

/// How many classes there are.
pub const PENALTY_CLASSES: usize = 16;

/// The class of a miss penalty, in µs: 0 to 15.
pub fn penalty_class(penalty_us: f64) -> usize {
    let octave = (penalty_us.max(0.0) / 10.0 + 1.0).log2();
    (octave as usize).min(PENALTY_CLASSES - 1)
}

/// Where a class begins, in µs.
pub fn penalty_class_begins_us(class: usize) -> f64 {
    10.0 * ((1_u64 << class.min(PENALTY_CLASSES)) - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_ranges() {
        for (penalty_us, class) in [
            (0.0, 0),
            (1.0, 0),
            (9.9, 0),
            (10.0, 1),
            (29.9, 1),
            (30.0, 2),
            (69.0, 2),
            (70.0, 3),
            (120.0, 3),
            (1000.0, 6),
            (327_669.0, 14),
            (327_670.0, 15),
            (1e9, 15),
        ] {
            assert_eq!(penalty_class(penalty_us), class, "{penalty_us} µs");
        }
        assert!((0..16).all(|class| penalty_class(penalty_class_begins_us(class)) == class));
    }
}
