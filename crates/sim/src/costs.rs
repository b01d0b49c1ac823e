//! What a miss costs: the `SPEC` of the command line, for traces that don't say it themselves.
//!
//! The live benchmark gives its backends the same delays by the same rule, so that a prediction and a measurement speak
//! of the same keys.

use std::fmt;
use std::str::FromStr;

use tenure_core::access::Access;
use tenure_core::units::{KeyHash, TenantId};

/// How the miss penalty of an access is found. All penalties in µs, 0 or more.
#[derive(Clone, Debug, PartialEq)]
pub enum CostSpec {
    /// `fixed:US`: every miss costs the same.
    Fixed(f32),
    /// `by-key:US,US…`: the backend that holds a key is found by the key's hash, all equally likely.
    ByKey(Vec<f32>),
    /// `by-tenant:US,US…`: tenants in the order in which they first appear, round and round.
    ByTenant(Vec<f32>),
    /// `column`: as the trace says; 0 where it doesn't. A trace that never does is refused.
    Column,
    /// `column:US`: as the trace says; so much where it doesn't.
    ColumnOr(f32),
}

/// What a specification looks like, and what was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostSpecError(String);

impl fmt::Display for CostSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = "fixed:US, by-key:US,US…, by-tenant:US,US…, column or column:US (where the trace says nothing), \
                       with penalties in µs of 0 or more";
        write!(f, "cost specification '{}' is none of {allowed}", self.0)
    }
}

impl std::error::Error for CostSpecError {}

impl CostSpec {
    /// The penalty of a miss of `key` by `tenant`, in µs; `column_us` is what the trace says of it.
    #[inline]
    pub fn penalty_us(&self, key: KeyHash, tenant: TenantId, column_us: Option<f32>) -> f32 {
        match self {
            CostSpec::Fixed(us) => *us,
            CostSpec::ByKey(backends) => backends[backend_of(key, backends.len())],
            CostSpec::ByTenant(tenants) => tenants[tenant.0 as usize % tenants.len()],
            CostSpec::Column => column_us.unwrap_or(0.0),
            CostSpec::ColumnOr(us) => column_us.unwrap_or(*us),
        }
    }
}

/// Which of `n` backends holds `key`, from 0. Independent of whether the key is sampled.
///
/// # Panics
/// Where `n` is 0.
#[inline]
pub fn backend_of(key: KeyHash, n: usize) -> usize {
    // The upper bits of the hash decide about sampling, so they are stirred into all others first.
    (stir(key.0, 1) % n as u64) as usize
}

/// An independent 64-bit hash of a hash: the finaliser of SplitMix64 over the hash and a stream number.
#[inline]
pub(crate) fn stir(hash: u64, stream: u64) -> u64 {
    let mut z = hash.wrapping_add(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How far penalties are off where a policy is told of them, as a server measures them; what is counted is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PenaltyNoise {
    /// Standard deviation as a share of the penalty, 0 to [`PenaltyNoise::SHARE_MAX`].
    share: f32,
}

impl PenaltyNoise {
    /// Beyond it a penalty would be measured as less than nothing.
    pub const SHARE_MAX: f32 = 0.577;

    /// Noise of a standard deviation of `share` of the penalty; `None` beyond [`PenaltyNoise::SHARE_MAX`].
    pub fn new(share: f32) -> Option<PenaltyNoise> {
        (0.0..=Self::SHARE_MAX).contains(&share).then_some(PenaltyNoise { share })
    }

    /// Access number `i` as a policy hears of it: its penalty off by a number drawn evenly from an interval, the same
    /// for the same `i`.
    #[inline]
    pub fn heard(self, access: &Access, i: u64) -> Access {
        if self.share == 0.0 {
            return *access;
        }
        let even = (stir(i, 2) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        Access { penalty_us: access.penalty_us * (1.0 + self.share * 3_f32.sqrt() * even), ..*access }
    }
}

impl FromStr for CostSpec {
    type Err = CostSpecError;

    fn from_str(text: &str) -> Result<Self, CostSpecError> {
        let bad = || CostSpecError(text.to_owned());
        if text == "column" {
            return Ok(CostSpec::Column);
        }
        let (kind, list) = text.split_once(':').ok_or_else(bad)?;
        let penalties: Vec<f32> =
            list.split(',').map(|us| us.trim().parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
        if penalties.iter().any(|us| !us.is_finite() || *us < 0.0) {
            return Err(bad());
        }
        match (kind, penalties.as_slice()) {
            ("fixed", &[us]) => Ok(CostSpec::Fixed(us)),
            ("column", &[us]) => Ok(CostSpec::ColumnOr(us)),
            ("by-key", _) => Ok(CostSpec::ByKey(penalties)),
            ("by-tenant", _) => Ok(CostSpec::ByTenant(penalties)),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for CostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |us: &[f32]| us.iter().map(f32::to_string).collect::<Vec<_>>().join(",");
        match self {
            CostSpec::Fixed(us) => write!(f, "fixed:{us}"),
            CostSpec::ByKey(us) => write!(f, "by-key:{}", list(us)),
            CostSpec::ByTenant(us) => write!(f, "by-tenant:{}", list(us)),
            CostSpec::Column => write!(f, "column"),
            CostSpec::ColumnOr(us) => write!(f, "column:{us}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_read_and_bad_ones_refused() {
        for text in ["fixed:100", "by-key:120,1000", "by-tenant:200,400,1000,2000", "column", "column:1000"] {
            assert_eq!(text.parse::<CostSpec>().unwrap().to_string(), text);
        }
        for text in ["", "fixed", "fixed:", "fixed:1,2", "fixed:-1", "by-key:1,x", "by-tenant:nan", "by-hash:1"] {
            let error = text.parse::<CostSpec>().unwrap_err().to_string();
            assert!(error.contains("allowed") || error.contains("none of"), "{error}");
        }
    }

    #[test]
    fn backends_share_the_keys_evenly_also_within_a_sample() {
        let sampled = (0..200_000).map(KeyHash::of_number).filter(|k| k.0 < u64::MAX / 10);
        let (mut first, mut all) = (0, 0);
        for key in sampled {
            first += usize::from(backend_of(key, 2) == 0);
            all += 1;
        }
        assert!((f64::from(first as u32) / f64::from(all) - 0.5).abs() < 0.02, "{first} of {all}");
    }

    /// Half the penalty is the standard deviation, none is below 0, and the mean stays.
    #[test]
    fn noise_is_as_wide_as_it_says() {
        let (noise, access) = (PenaltyNoise::new(0.5).unwrap(), Access::read(KeyHash(7), 1));
        let access = Access { penalty_us: 100.0, ..access };
        let heard: Vec<f64> = (0..20_000).map(|i| f64::from(noise.heard(&access, i).penalty_us)).collect();
        let mean = heard.iter().sum::<f64>() / 20_000.0;
        let deviation = (heard.iter().map(|us| (us - mean).powi(2)).sum::<f64>() / 20_000.0).sqrt();
        assert!((mean - 100.0).abs() < 1.5 && (deviation - 50.0).abs() < 1.0, "{mean} {deviation}");
        assert!(heard.iter().all(|us| *us > 0.0) && PenaltyNoise::new(0.6).is_none());
        assert_eq!(PenaltyNoise::default().heard(&access, 3), access);
    }

    #[test]
    fn tenants_take_penalties_in_turn() {
        let spec = CostSpec::ByTenant(vec![1.0, 2.0]);
        let got: Vec<f32> = (0..4).map(|t| spec.penalty_us(KeyHash(0), TenantId(t), Some(9.0))).collect();
        assert_eq!(got, [1.0, 2.0, 1.0, 2.0]);
    }
}
