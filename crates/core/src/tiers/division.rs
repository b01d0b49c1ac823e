//! How the fast tier is divided among tenants.
//!
//! Source: Wang's dissertation (2024) sec. 5.1.5 and 5.2.4.2, which compares three: guided by miss ratio curves, free
//! competition, equal parts. Only the fast tier is divided; the slow one is everyone's. A curve at a size is the
//! share of reads that the fast tier of that size misses, and such a read costs the difference of the tiers, not a
//! miss penalty; the program is that of the cache itself (`decide/allocation.rs`).

use crate::decide::allocation::{Claim, Group, allocate};
use crate::error::ConfigError;

/// Who says how much of the fast tier a tenant has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Division {
    /// Miss ratio curves: so that least time is lost in the slow tier.
    Guided,
    /// Nobody: whoever has the coldest value gives.
    #[default]
    Free,
    /// All alike.
    Equal,
}

impl Division {
    /// All of them.
    pub const ALL: [Division; 3] = [Division::Guided, Division::Free, Division::Equal];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Division::Guided => "guided",
            Division::Free => "free",
            Division::Equal => "equal",
        }
    }
}

/// Target bytes of the fast tier by claim; none at all under free competition, as `policy::pools::next_giver` takes
/// them.
///
/// A claim is a partition's curve and what its reads would cost if all were slow (reads × time saved, in µs); its
/// group is its tenant. Within a tenant's part curves guide in any case. A tenant whose claims cost nothing gets what
/// the others have no use for.
///
/// # Errors
/// A claim of a group that isn't below `n_groups`.
pub fn divide(
    division: Division,
    claims: &[Claim],
    n_groups: usize,
    fast_bytes: u64,
    granularity_bytes: u64,
) -> Result<Vec<u64>, ConfigError> {
    let groups = match division {
        Division::Free => return Ok(Vec::new()),
        Division::Guided => vec![Group::UNBOUNDED; n_groups],
        Division::Equal => {
            let accesses = |group: usize| claims.iter().any(|claim| claim.group == group && claim.cost_us_max > 0.0);
            let n_asked = (0..n_groups).filter(|&group| accesses(group)).count() as u64;
            let part = fast_bytes / n_asked.max(1);
            let of =
                |group| if accesses(group) { Group { bytes_min: part, bytes_max: part } } else { Group::UNBOUNDED };
            (0..n_groups).map(of).collect()
        }
    };
    allocate(claims, &groups, fast_bytes, granularity_bytes).map(|allocation| allocation.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::{CurvePoint, MissRatioCurve};

    fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        MissRatioCurve::new(points.iter().map(|&(bytes, miss_ratio)| CurvePoint { bytes, miss_ratio }).collect())
    }

    /// One tenant's reads all hit in 100 bytes, the other's scan never does below 10,000.
    #[test]
    fn curves_give_to_whom_it_helps() {
        let (small, scan) = (curve(&[(100, 0.0)]), curve(&[(9_999, 1.0), (10_000, 0.0)]));
        let claims = [Claim::new(&small, 50.0, 0), Claim::new(&scan, 100.0, 1)];
        let divided = |division| divide(division, &claims, 2, 400, 10).unwrap();
        let guided = divided(Division::Guided);
        assert!(guided[0] >= 100 && guided.iter().sum::<u64>() <= 400, "{guided:?}");
        assert_eq!(divided(Division::Equal), [200, 200]);
        assert!(divided(Division::Free).is_empty());
        assert!(divide(Division::Guided, &claims, 1, 400, 10).is_err());
    }

    #[test]
    fn who_is_not_asked_for_has_no_equal_part() {
        let flat = curve(&[(100, 0.5), (1_000, 0.0)]);
        let claims = [Claim::new(&flat, 50.0, 0), Claim::new(&flat, 0.0, 1), Claim::new(&flat, 50.0, 2)];
        assert_eq!(divide(Division::Equal, &claims, 3, 600, 1).unwrap(), [300, 0, 300]);
    }
}
