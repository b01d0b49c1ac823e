//! Spatial sampling: a key is in the sample, always or never, by its hash.
//!
//! Source: SHARDS (Waldspurger et al., FAST'15) sec. 3. A key is sampled where the upper bits of its hash fall below a
//! threshold; lowering the threshold keeps a subset, so a stream can be thinned later without being read again.

use crate::error::ConfigError;
use crate::units::KeyHash;

/// The share of keys that is sampled, above 0 and at most 1, as a threshold on a key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SampleRate {
    threshold: u64,
}

impl SampleRate {
    /// Every key.
    pub const ALL: SampleRate = SampleRate { threshold: u64::MAX };

    /// A rate above 0 and at most 1.
    ///
    /// # Errors
    /// [`ConfigError::SampleRate`] for anything else.
    pub fn new(rate: f64) -> Result<Self, ConfigError> {
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(ConfigError::SampleRate(rate));
        }
        // `as` saturates, so a rate of 1 becomes u64::MAX.
        Ok(SampleRate { threshold: (rate * u64::MAX as f64) as u64 })
    }

    /// The rate from the threshold that [`SampleRate::threshold`] gave: how it crosses threads in one atomic word.
    pub fn from_threshold(threshold: u64) -> Self {
        SampleRate { threshold }
    }

    /// The highest hash that is sampled.
    pub fn threshold(self) -> u64 {
        self.threshold
    }

    /// The rate, in (0, 1].
    pub fn rate(self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    /// Four fifths of the rate: the step in which a model with a limit of keys lowers it.
    pub fn lowered(self) -> Self {
        SampleRate { threshold: self.threshold / 5 * 4 }
    }

    /// True where `key` is in the sample.
    #[inline]
    pub fn takes(self, key: KeyHash) -> bool {
        key.0 <= self.threshold
    }
}

/// How a model samples keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// A fixed share of keys; memory grows with the stream's distinct keys.
    Rate(SampleRate),
    /// At most this many keys: every key at first, and a lower rate whenever there are more. Memory is bounded.
    Keys(usize),
    /// A fixed share of keys, and more of them where that share would be fewer than `keys`: every key at first, and a
    /// lower rate, down to `rate`, whenever there are more. Few keys cost nothing, and a sample of few says nothing.
    AtLeast {
        /// The rate where there are keys enough.
        rate: SampleRate,
        /// What is enough: between 4/5 of this and all of it.
        keys: usize,
    },
}

impl Sampling {
    /// Every key, without limit.
    pub const ALL: Sampling = Sampling::Rate(SampleRate::ALL);

    /// The rate to begin with.
    pub fn rate(self) -> SampleRate {
        match self {
            Sampling::Rate(rate) => rate,
            Sampling::Keys(_) | Sampling::AtLeast { .. } => SampleRate::ALL,
        }
    }

    /// The rate below which no number of keys brings it.
    pub fn floor(self) -> SampleRate {
        match self {
            Sampling::Rate(rate) | Sampling::AtLeast { rate, .. } => rate,
            Sampling::Keys(_) => SampleRate::from_threshold(0),
        }
    }

    /// True where `n_keys` at the rate `now` are too many, and the rate has to fall.
    #[inline]
    pub fn is_exceeded_by(self, n_keys: usize, now: SampleRate) -> bool {
        match self {
            Sampling::Rate(_) => false,
            Sampling::Keys(keys) => n_keys > keys,
            Sampling::AtLeast { rate, keys } => n_keys > keys && now > rate,
        }
    }

    /// The rate that comes after `now` where that is exceeded.
    pub fn lowered(self, now: SampleRate) -> SampleRate {
        now.lowered().max(self.floor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_outside_their_range_are_refused() {
        for rate in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(SampleRate::new(rate).is_err(), "{rate}");
        }
        assert_eq!(SampleRate::new(1.0), Ok(SampleRate::ALL));
    }

    #[test]
    fn a_share_of_few_keys_is_all_of_them() {
        let rate = SampleRate::new(0.5).unwrap();
        let sampling = Sampling::AtLeast { rate, keys: 100 };
        assert_eq!((sampling.rate(), sampling.floor()), (SampleRate::ALL, rate));
        assert!(!sampling.is_exceeded_by(100, SampleRate::ALL) && sampling.is_exceeded_by(101, SampleRate::ALL));
        let steps = (0..9).scan(SampleRate::ALL, |now, _| Some(std::mem::replace(now, sampling.lowered(*now))));
        assert_eq!(steps.last(), Some(rate));
        assert!(!sampling.is_exceeded_by(1_000, rate), "no lower than the share asked for");
    }

    #[test]
    fn it_takes_its_share_of_keys_and_a_lower_rate_takes_a_subset() {
        let (tenth, hundredth) = (SampleRate::new(0.1).unwrap(), SampleRate::new(0.01).unwrap());
        let keys: Vec<KeyHash> = (0..100_000).map(KeyHash::of_number).collect();
        let taken = keys.iter().filter(|&&k| tenth.takes(k)).count() as f64;
        assert!((taken / 10_000.0 - 1.0).abs() < 0.05, "{taken}");
        assert!(keys.iter().all(|&k| !hundredth.takes(k) || tenth.takes(k)));
    }
}
