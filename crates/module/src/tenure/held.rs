//! Targets while some partitions keep more than the plan gives them, such as one that wakes: the plan was made while
//! it slept.

use super::Tenure;

impl Tenure {
    /// Target bytes by partition where some keep more than planned
    /// ([`crate::observe::partitions::Partitions::held_bytes`]). `None` where none does.
    pub(super) fn held_targets(&self, target_bytes: &[u64]) -> Option<Vec<u64>> {
        let partitions = &self.observer.partitions;
        // Called every turn that is short, and nearly always for nothing.
        if partitions.held_bytes.is_empty() {
            return None;
        }
        let is_guaranteed = |i: usize| partitions.tenants().bytes_min()[partitions.of_what()[i].0.0 as usize] > 0;
        lifted(target_bytes, &partitions.held_bytes, is_guaranteed)
    }
}

/// Targets where partitions have at least what is `held`, the others less in proportion to theirs, but for those that
/// `is_guaranteed`. `None` where no target is below what is held.
fn lifted(target_bytes: &[u64], held_bytes: &[u64], is_guaranteed: impl Fn(usize) -> bool) -> Option<Vec<u64>> {
    let held = |i: usize| held_bytes.get(i).copied().filter(|&bytes| bytes > target_bytes[i]);
    let n = target_bytes.len();
    let lifted: u64 = (0..n).filter_map(|i| held(i).map(|bytes| bytes - target_bytes[i])).sum();
    if lifted == 0 {
        return None;
    }
    let gives = |i: usize| held(i).is_none() && !is_guaranteed(i);
    let others: u64 = (0..n).filter(|&i| gives(i)).map(|i| target_bytes[i]).sum();
    let share = others.saturating_sub(lifted) as f64 / others.max(1) as f64;
    let scaled = |i: usize| if gives(i) { (target_bytes[i] as f64 * share) as u64 } else { target_bytes[i] };
    Some((0..n).map(|i| held(i).unwrap_or_else(|| scaled(i))).collect())
}

#[cfg(test)]
mod tests {
    use super::lifted;

    #[test]
    fn what_wakes_is_given_back_by_those_without_a_guarantee() {
        assert_eq!(lifted(&[100, 300, 600], &[], |_| false), None);
        assert_eq!(lifted(&[100, 300, 600], &[400, 0, 0], |_| false), Some(vec![400, 200, 400]));
        assert_eq!(lifted(&[100, 300, 600], &[400, 0, 0], |i| i == 1), Some(vec![400, 300, 300]));
        assert_eq!(lifted(&[100, 300], &[900], |_| false), Some(vec![900, 0]), "more than there is");
    }
}
