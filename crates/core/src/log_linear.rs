//! Log-linear buckets: numbers below N are told apart one by one, those above by N buckets to each doubling, so that
//! a bucket is at most 1 / N of what lies in it. For histograms of reuse times (`model/reuse_time.rs`) and of sizes
//! (`decide/size_class.rs`). O(1).

/// The bucket of `n`, from 0. `PER_OCTAVE` has to be a power of two.
#[inline]
pub const fn bucket_of<const PER_OCTAVE: u64>(n: u64) -> usize {
    if n < PER_OCTAVE {
        return n as usize;
    }
    let octave = (n.ilog2() - PER_OCTAVE.ilog2()) as u64;
    let within = (n >> octave) - PER_OCTAVE;
    ((octave + 1) * PER_OCTAVE + within) as usize
}

/// The least number in a bucket, and how many there are.
pub const fn bounds_of<const PER_OCTAVE: u64>(bucket: usize) -> (u64, u64) {
    let (octave, within) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    if octave == 0 { (within, 1) } else { ((PER_OCTAVE + within) << (octave - 1), 1 << (octave - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const PER_OCTAVE: u64>() {
        for n in (0..5000).chain([1 << 20, (1 << 20) + 12_345, u64::from(u32::MAX), (1 << 41) + 1]) {
            let (first, width) = bounds_of::<PER_OCTAVE>(bucket_of::<PER_OCTAVE>(n));
            assert!(first <= n && n < first + width, "{n} is not in [{first}, {first}+{width})");
            assert!(n < PER_OCTAVE || width * PER_OCTAVE <= first, "{width} from {first}");
        }
        for bucket in 1..30 * PER_OCTAVE as usize {
            let (first, width) = bounds_of::<PER_OCTAVE>(bucket - 1);
            assert_eq!(bounds_of::<PER_OCTAVE>(bucket).0, first + width);
        }
    }

    #[test]
    fn every_number_lies_in_its_bucket_and_buckets_adjoin() {
        check::<8>();
        check::<64>();
    }
}
