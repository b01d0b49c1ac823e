//! Miss-penalty classes by themselves: sixteen ranges of exponentially growing width.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.2 and 6.3.1: [1 µs, 10 µs), [10, 30), [30, 70) … [327670, 655350):
//! class i begins at 10 × (2^i − 1). What lies below the first counts to it, what lies above the last to the last.
//! Other ranges may be set.

/// How many classes there are.
pub const PENALTY_CLASSES: usize = 16;

/// The class of a miss penalty, in µs: 0 to 15.
pub fn penalty_class(penalty_us: f64) -> usize {
    // The exponent is the logarithm, rounded down: it is at least 1.
    let from_one = penalty_us.max(0.0) / 10.0 + 1.0;
    let octave = (from_one.to_bits() >> (f64::MANTISSA_DIGITS - 1)) as usize - 1023;
    octave.min(PENALTY_CLASSES - 1)
}

/// Where a class begins, in µs.
pub fn penalty_class_begins_us(class: usize) -> f64 {
    10.0 * ((1_u64 << class.min(PENALTY_CLASSES)) - 1) as f64
}

/// Where one class ends and the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassLimits {
    /// Ascending, in µs; at most 15.
    limits_us: Vec<u32>,
}

impl Default for ClassLimits {
    /// The paper's.
    fn default() -> Self {
        let limits_us = (1..PENALTY_CLASSES).map(|class| penalty_class_begins_us(class) as u32).collect();
        ClassLimits { limits_us }
    }
}

impl ClassLimits {
    /// Reads space-separated limits in µs; none: the paper's.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what is allowed.
    pub fn parse(text: &str) -> Result<ClassLimits, String> {
        let number = |word: &str| match word.parse::<u32>() {
            Ok(us) if us > 0 => Ok(us),
            _ => Err(format!("'{word}' is no limit; allowed are whole microseconds from 1 to {}", u32::MAX)),
        };
        let limits_us = text.split_ascii_whitespace().map(number).collect::<Result<Vec<u32>, String>>()?;
        if limits_us.is_empty() {
            return Ok(ClassLimits::default());
        }
        if limits_us.len() >= PENALTY_CLASSES {
            return Err(format!("{} limits; allowed are 1 to {}", limits_us.len(), PENALTY_CLASSES - 1));
        }
        match limits_us.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => Err(format!("limit {} is not above {}; they have to ascend", pair[1], pair[0])),
            None => Ok(ClassLimits { limits_us }),
        }
    }

    /// The class of a miss penalty in µs, from 0.
    pub fn class_of(&self, penalty_us: f32) -> usize {
        self.limits_us.partition_point(|&limit| limit as f32 <= penalty_us)
    }

    /// As [`ClassLimits::class_of`] for a key that is of class `held`, which it leaves only for a penalty a tenth
    /// beyond its range: one that lies near a limit would change class with every measurement else.
    pub fn class_from(&self, held: usize, penalty_us: f32) -> usize {
        let class = self.class_of(penalty_us);
        let nearest = if class > held { penalty_us / 1.1 } else { penalty_us * 1.1 };
        if self.class_of(nearest) == held { held } else { class }
    }

    /// A class's range, as `70-150us`; the first as `0-10us`, the last as `327670us+`.
    pub fn name(&self, class: usize) -> String {
        let begins_us = if class == 0 { 0 } else { self.limits_us[(class - 1).min(self.limits_us.len() - 1)] };
        match self.limits_us.get(class) {
            Some(ends_us) => format!("{begins_us}-{ends_us}us"),
            None => format!("{begins_us}us+"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_can_be_set_and_wrong_ones_are_refused() {
        let limits = ClassLimits::parse("100 1000").unwrap();
        assert_eq!([0.0, 99.9, 100.0, 999.0, 1e9].map(|us| limits.class_of(us)), [0, 0, 1, 1, 2]);
        assert_eq!([0, 1, 2].map(|class| limits.name(class)), ["0-100us", "100-1000us", "1000us+"]);
        assert_eq!(ClassLimits::parse(" ").unwrap(), ClassLimits::default());
        for (text, part) in [("0", "'0'"), ("5 x", "'x'"), ("10 10", "not above 10"), (&"1 ".repeat(16), "16 limits")] {
            assert!(ClassLimits::parse(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn the_default_limits_are_the_papers_and_a_class_is_left_only_when_clearly_outside() {
        let limits = ClassLimits::default();
        for us in [0.0, 5.0, 10.0, 75.0, 1000.0, 327_670.0, 1e8] {
            assert_eq!(limits.class_of(us), penalty_class(f64::from(us)), "{us}");
        }
        assert_eq!([145.0, 155.0, 166.0, 1000.0].map(|us| limits.class_from(3, us)), [3, 3, 4, 6]);
        assert_eq!([66.0, 60.0].map(|us| limits.class_from(3, us)), [3, 2]);
    }

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
