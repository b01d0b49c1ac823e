//! Which first parts of keys are tenants: those that are accessed most.
//!
//! Who is a tenant stays one until somebody else is accessed more than twice as much: so who is about as busy as
//! others doesn't come and go, and with him what was learned of him. A place that is free is given to whoever is
//! accessed at all. Both sides are counted over the windows of late, each seven eighths of the one after it.

use crate::units::TenantId;

/// Who is to take another's place is accessed so many times as much …
const FACTOR: u64 = 2;
/// … and one access in so many is his.
const SHARE: u64 = 1000;
/// For a free place one access in so many is enough …
const SHARE_OF_FREE: u64 = 8192;
/// … and never fewer than this.
const ACCESSES_MIN: u64 = 4;
/// So many take others' places at the end of one window, at the most.
const REPLACED_MAX: usize = 8;

/// Accesses that who isn't a tenant has to have of late, of so many in all.
pub fn accesses_min(total: u64) -> u64 {
    (total / SHARE_OF_FREE).max(ACCESSES_MIN)
}

/// Who becomes a tenant: which of `candidates`, and in whose place; `None` is a free one. `held` are the tenants with
/// their accesses of late, `candidates` the accesses of those who are none, most first, `free` the places that are
/// left, and `total` all accesses of late.
pub fn changes(
    held: &[(TenantId, u64)],
    candidates: &[u64],
    free: usize,
    total: u64,
) -> Vec<(usize, Option<TenantId>)> {
    let some = candidates.iter().take_while(|&&accesses| accesses >= accesses_min(total)).count();
    let mut changes: Vec<(usize, Option<TenantId>)> = (0..some.min(free)).map(|i| (i, None)).collect();
    let mut least_first = held.to_vec();
    least_first.sort_by_key(|&(_, accesses)| accesses);
    let busy = (total / SHARE).max(ACCESSES_MIN);
    let pairs = candidates[..some].iter().enumerate().skip(free).zip(least_first);
    let takes = |((_, accesses), (_, held)): &((usize, &u64), (TenantId, u64))| {
        **accesses >= busy && **accesses > FACTOR.saturating_mul(*held)
    };
    changes.extend(pairs.take(REPLACED_MAX).take_while(takes).map(|((i, _), (tenant, _))| (i, Some(tenant))));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: [(TenantId, u64); 3] = [(TenantId(1), 500), (TenantId(2), 10), (TenantId(3), 100)];

    #[test]
    fn free_places_are_for_whoever_is_accessed() {
        assert_eq!(changes(&[], &[900, 8, 4, 3], 64, 1000), [(0, None), (1, None), (2, None)]);
        assert_eq!(changes(&[], &[900, 8, 4], 2, 1000), [(0, None), (1, None)]);
        assert_eq!(changes(&[], &[900, 100], 2, 1_000_000), [(0, None)], "one access in 8192");
    }

    #[test]
    fn a_place_is_taken_by_whoever_is_accessed_twice_as_much() {
        assert_eq!(changes(&HELD, &[21], 0, 1000), [(0, Some(TenantId(2)))]);
        assert_eq!(changes(&HELD, &[20], 0, 1000), [], "no more than twice");
        assert_eq!(changes(&HELD, &[300, 205], 0, 1000), [(0, Some(TenantId(2))), (1, Some(TenantId(3)))]);
        assert_eq!(changes(&HELD, &[300, 195], 0, 1000), [(0, Some(TenantId(2)))]);
        assert_eq!(changes(&HELD, &[21], 0, 100_000), [], "one access in a thousand");
        assert_eq!(changes(&HELD, &[300, 200], 1, 1000), [(0, None), (1, Some(TenantId(2)))]);
    }

    #[test]
    fn few_change_at_one_time() {
        let held: Vec<_> = (0..64).map(|i| (TenantId(i), 0)).collect();
        assert_eq!(changes(&held, &[100; 64], 0, 6400).len(), REPLACED_MAX);
    }
}
