//! Where misses come from, and which of them Tenure is to regret.
//!
//! What the table of keys remembers of a key tells its miss's origin (`keys.rs`). A miss of a key that Tenure evicted
//! less than a minute before is regretted: much of that means that memory is too small, or the wrong keys go. What a
//! regretted miss cost is known with its answer (`misses.rs`).

use super::keys::Origin;

/// What was evicted longer ago than this is regretted by nobody, in seconds.
pub const REGRET_SECONDS: f64 = 60.0;

/// How many, as counted since the module was loaded. Only grows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origins {
    /// In the order of [`NAMES`].
    pub misses: [u64; NAMES.len()],
    /// Misses of keys that Tenure had evicted shortly before.
    pub regret_misses: u64,
    /// How long before, in seconds, all together.
    pub regret_seconds: f64,
    /// What they cost, in µs.
    pub regret_us: f64,
}

/// The fields of INFO and TENURE.TENANTS that have them.
pub const NAMES: [&str; 5] = ["misses_first", "misses_expired", "misses_evicted", "misses_deleted", "misses_unknown"];

impl Origins {
    /// Counts a miss; true where it is regretted.
    #[inline]
    pub fn count(&mut self, origin: Origin) -> bool {
        let (at, evicted_before) = match origin {
            Origin::First => (0, None),
            Origin::Expired => (1, None),
            Origin::Evicted(seconds) => (2, seconds),
            Origin::Deleted => (3, None),
            Origin::Unknown => (4, None),
        };
        self.misses[at] += 1;
        let regret = evicted_before.filter(|&seconds| seconds <= REGRET_SECONDS);
        self.regret_misses += u64::from(regret.is_some());
        self.regret_seconds += regret.unwrap_or(0.0);
        regret.is_some()
    }
}
