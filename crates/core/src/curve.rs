//! The miss ratio curve: miss ratio by cache size. Every model returns one, every allocation reads it.

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Cache size, in bytes.
    pub bytes: u64,
    /// Misses / requests at that size, in [0, 1].
    pub miss_ratio: f64,
}

/// Miss ratio by cache size: never increasing, in [0, 1], linear between its points.
///
/// A cache of 0 bytes misses always, so the curve starts at (0, 1) whether or not that point is given. Past the last
/// point it stays at the last miss ratio: the cold misses, where the model saw enough memory.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MissRatioCurve {
    points: Vec<CurvePoint>,
}

impl MissRatioCurve {
    /// A curve through `points`, whose sizes must strictly increase.
    ///
    /// Estimates are noisy, and a sampled curve may rise by a hair: each miss ratio is brought into [0, 1] and down to
    /// that of the point before it.
    ///
    /// # Panics
    /// Where sizes do not increase or a miss ratio is not a number: the model is broken.
    pub fn new(mut points: Vec<CurvePoint>) -> Self {
        let mut lowest = 1.0_f64;
        for i in 0..points.len() {
            assert!(i == 0 || points[i - 1].bytes < points[i].bytes, "curve sizes do not increase at point {i}");
            assert!(!points[i].miss_ratio.is_nan(), "curve has no miss ratio at point {i}");
            lowest = lowest.min(points[i].miss_ratio.clamp(0.0, 1.0));
            points[i].miss_ratio = lowest;
        }
        MissRatioCurve { points }
    }

    /// The points, sizes increasing.
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }

    /// True where no access was seen, and nothing can be said.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Predicted miss ratio of a cache of `bytes`, in [0, 1]; 1 everywhere on an empty curve. O(log points).
    pub fn miss_ratio_at(&self, bytes: u64) -> f64 {
        let after = self.points.partition_point(|p| p.bytes <= bytes);
        let before = match after.checked_sub(1) {
            Some(i) => self.points[i],
            None => CurvePoint { bytes: 0, miss_ratio: 1.0 },
        };
        match self.points.get(after) {
            None => before.miss_ratio,
            Some(next) => {
                let share = (bytes - before.bytes) as f64 / (next.bytes - before.bytes) as f64;
                before.miss_ratio + share * (next.miss_ratio - before.miss_ratio)
            }
        }
    }

    /// The least memory, in bytes, whose miss ratio is at most `miss_ratio`; `None` where no size reaches it. O(points).
    pub fn bytes_for(&self, miss_ratio: f64) -> Option<u64> {
        if miss_ratio >= 1.0 {
            return Some(0);
        }
        let i = self.points.iter().position(|p| p.miss_ratio <= miss_ratio)?;
        let before = if i == 0 { CurvePoint { bytes: 0, miss_ratio: 1.0 } } else { self.points[i - 1] };
        let at = self.points[i];
        let drop = before.miss_ratio - at.miss_ratio;
        let share = if drop > 0.0 { (before.miss_ratio - miss_ratio) / drop } else { 1.0 };
        Some(before.bytes + (share * (at.bytes - before.bytes) as f64).ceil() as u64)
    }

    /// Mean absolute difference of two curves over `sizes_bytes`, in [0, 1]: the error measure of every accuracy table.
    ///
    /// # Panics
    /// Where `sizes_bytes` is empty.
    pub fn mean_absolute_error(&self, other: &MissRatioCurve, sizes_bytes: &[u64]) -> f64 {
        assert!(!sizes_bytes.is_empty(), "no sizes to compare at");
        let sum: f64 = sizes_bytes.iter().map(|&b| (self.miss_ratio_at(b) - other.miss_ratio_at(b)).abs()).sum();
        sum / sizes_bytes.len() as f64
    }
}

/// `n` sizes that divide `bytes_max` evenly, smallest first, the last being `bytes_max`; fewer where bytes run out.
pub fn even_sizes(bytes_max: u64, n: usize) -> Vec<u64> {
    let mut sizes: Vec<u64> = (1..=n as u64).map(|i| (bytes_max as u128 * i as u128 / n as u128) as u64).collect();
    sizes.retain(|&b| b > 0);
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> MissRatioCurve {
        MissRatioCurve::new(points.iter().map(|&(bytes, miss_ratio)| CurvePoint { bytes, miss_ratio }).collect())
    }

    #[test]
    fn between_points_it_is_linear_from_a_full_miss_at_zero() {
        let c = curve(&[(10, 0.5), (20, 0.25)]);
        for (bytes, expected) in [(0, 1.0), (5, 0.75), (10, 0.5), (15, 0.375), (20, 0.25), (1000, 0.25)] {
            assert_eq!(c.miss_ratio_at(bytes), expected, "at {bytes}");
        }
    }

    #[test]
    fn the_inverse_gives_the_least_memory() {
        let c = curve(&[(10, 0.5), (20, 0.25)]);
        for (miss_ratio, expected) in
            [(1.0, Some(0)), (0.75, Some(5)), (0.5, Some(10)), (0.375, Some(15)), (0.25, Some(20)), (0.2, None)]
        {
            assert_eq!(c.bytes_for(miss_ratio), expected, "for {miss_ratio}");
        }
    }

    #[test]
    fn noise_is_flattened() {
        let c = curve(&[(1, 1.2), (2, 0.5), (3, 0.6), (4, -0.1)]);
        let got: Vec<f64> = c.points().iter().map(|p| p.miss_ratio).collect();
        assert_eq!(got, [1.0, 0.5, 0.5, 0.0]);
    }

    #[test]
    fn an_empty_curve_always_misses() {
        assert_eq!(MissRatioCurve::default().miss_ratio_at(100), 1.0);
    }

    #[test]
    fn sizes_are_even_and_distinct() {
        assert_eq!(even_sizes(100, 4), [25, 50, 75, 100]);
        assert_eq!(even_sizes(2, 4), [1, 2]);
    }
}
