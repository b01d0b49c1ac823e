//! Sizes of keys whose trace doesn't tell them.

use std::f64::consts::TAU;

use tenure_core::units::KeyHash;

use crate::costs::stir;

/// Where an access's size comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// Every key has this size in bytes, whatever the trace says.
    Fixed(u32),
    /// As the trace says; where it doesn't, this size in bytes.
    TraceOr(u32),
    /// As the trace says; where it doesn't, drawn from this distribution by the key's hash.
    TraceOrDrawn(LogNormalSizes),
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes::TraceOr(1024)
    }
}

impl Sizes {
    /// The size of `key`, in bytes, at least 1; `told` is what the trace says.
    ///
    /// # Errors
    /// A size that the trace says and that is above 4 GiB: no value of a cache is so large.
    #[inline]
    pub fn size_bytes(&self, key: KeyHash, told: Option<u64>) -> Result<u32, String> {
        let size = match (self, told) {
            (Sizes::Fixed(size), _) | (Sizes::TraceOr(size), None) => *size,
            (Sizes::TraceOrDrawn(drawn), None) => drawn.size_bytes(key),
            (_, Some(size)) => {
                let allowed = || format!("size {size} is above {}, the largest that a value may have", u32::MAX);
                u32::try_from(size).map_err(|_| allowed())?
            }
        };
        Ok(size.max(1))
    }
}

/// A log-normal distribution cut off at both ends; a key always draws the same size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormalSizes {
    /// Half of the keys are smaller, in bytes.
    pub median_bytes: f64,
    /// Standard deviation of the natural logarithm of the size.
    pub sigma: f64,
    /// Smallest size, in bytes; what would be smaller becomes this.
    pub bytes_min: u32,
    /// Largest size, in bytes; what would be larger becomes this.
    pub bytes_max: u32,
}

impl LogNormalSizes {
    /// 50 B to 64 KiB. The median is the geometric middle of the two (1810 B). They lie three standard deviations away
    /// (σ = 1.197), so 0.3 % of keys are cut off. Mean 3.7 KB.
    pub fn default_range() -> Self {
        let (low, high) = (50.0_f64, 65_536.0_f64);
        let (median_bytes, sigma) = ((low * high).sqrt(), (high / low).ln() / 6.0);
        LogNormalSizes { median_bytes, sigma, bytes_min: low as u32, bytes_max: high as u32 }
    }

    /// The size of `key`, in bytes. Box–Muller on two halves of a hash of the key.
    pub fn size_bytes(&self, key: KeyHash) -> u32 {
        let bits = stir(key.0, 2);
        let unit = |half: u64| ((half & 0xffff_ffff) as f64 + 0.5) / 4_294_967_296.0;
        let normal = (-2.0 * unit(bits).ln()).sqrt() * (TAU * unit(bits >> 32)).cos();
        let size = self.median_bytes * (self.sigma * normal).exp();
        (size as u32).clamp(self.bytes_min, self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_sizes_have_the_median_and_spread_they_should() {
        let drawn = LogNormalSizes::default_range();
        let mut logs: Vec<f64> =
            (0..100_000).map(|i| f64::from(drawn.size_bytes(KeyHash::of_number(i))).ln()).collect();
        logs.sort_by(f64::total_cmp);
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let sigma = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / logs.len() as f64).sqrt();
        assert!((logs[50_000].exp() / drawn.median_bytes - 1.0).abs() < 0.02);
        assert!((sigma / drawn.sigma - 1.0).abs() < 0.02, "{sigma}");
        assert!(logs[0].exp() >= 49.9 && logs[99_999].exp() <= 65_536.1);
    }

    #[test]
    fn the_trace_is_believed_unless_told_otherwise() {
        let key = KeyHash(7);
        assert_eq!(Sizes::Fixed(10).size_bytes(key, Some(3)), Ok(10));
        assert_eq!(Sizes::TraceOr(10).size_bytes(key, Some(3)), Ok(3));
        assert_eq!(Sizes::TraceOr(10).size_bytes(key, None), Ok(10));
        assert_eq!(Sizes::TraceOr(10).size_bytes(key, Some(0)), Ok(1), "no size is below a byte");
        assert!(Sizes::TraceOr(10).size_bytes(key, Some(1 << 32)).unwrap_err().contains("above 4294967295"));
        assert_eq!(Sizes::Fixed(10).size_bytes(key, Some(1 << 32)), Ok(10));
    }
}
