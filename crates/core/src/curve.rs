//! The miss ratio curve: miss ratio by cache size. Every model returns one, every allocation reads it.

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Cache size, in bytes.
    pub bytes: u64,
    /// Misses / requests at that size, in [0, 1].
    pub miss_ratio: f64,
}

/// One of several that divide a memory: see [`MissRatioCurve::of_parts`].
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its own curve.
    pub curve: &'a MissRatioCurve,
    /// How much it counts: its requests.
    pub weight: f64,
    /// Its share of the memory, above 0, at most 1.
    pub share: f64,
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

    /// The least memory, in bytes, whose miss ratio is at most `miss_ratio`; `None` where no size reaches it.
    /// O(points).
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

    /// The miss ratio of several parts together that divide a memory of so many bytes in fixed shares: classes of a
    /// tenant, or nodes of a cluster. The mean of theirs by weight, each at its share of the memory; a part without
    /// weight or curve says nothing.
    ///
    /// Points where any part has one. O(parts × points × log points).
    pub fn of_parts(parts: &[Part]) -> MissRatioCurve {
        let says = |part: &&Part| part.weight > 0.0 && part.share > 0.0 && !part.curve.is_empty();
        let parts: Vec<&Part> = parts.iter().filter(says).collect();
        let whole = |part: &Part, point: &CurvePoint| (point.bytes as f64 / part.share).round() as u64;
        let mut sizes: Vec<u64> =
            parts.iter().flat_map(|part| part.curve.points().iter().map(move |point| whole(part, point))).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let weight: f64 = parts.iter().map(|part| part.weight).sum();
        let miss_ratio_at = |bytes: u64| {
            let of = |part: &&Part| part.weight * part.curve.miss_ratio_at((bytes as f64 * part.share).round() as u64);
            parts.iter().map(of).sum::<f64>() / weight
        };
        MissRatioCurve::new(
            sizes.into_iter().map(|bytes| CurvePoint { bytes, miss_ratio: miss_ratio_at(bytes) }).collect(),
        )
    }

    /// The same curve in at most `n` points (at least 2): those at even steps of what it falls by, and the last.
    pub fn thinned(&self, n: usize) -> MissRatioCurve {
        let (n, points) = (n.max(2), &self.points);
        let (Some(last), true) = (points.last(), points.len() > n) else { return self.clone() };
        let step = (1.0 - last.miss_ratio) / (n - 1) as f64;
        let mut next = 1.0 - step;
        let mut kept = Vec::with_capacity(n);
        for point in &points[..points.len() - 1] {
            if kept.len() + 1 < n && point.miss_ratio <= next {
                kept.push(*point);
                next = point.miss_ratio - step;
            }
        }
        kept.push(*last);
        MissRatioCurve { points: kept }
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

    /// Half of 20 bytes is 10 for each; three quarters of the requests are of the first.
    #[test]
    fn parts_add_up_by_their_requests_each_at_its_share() {
        let (a, b, none) = (curve(&[(10, 0.4)]), curve(&[(10, 0.8), (30, 0.0)]), curve(&[]));
        let part = |curve, weight, share| Part { curve, weight, share };
        let whole = MissRatioCurve::of_parts(&[part(&a, 3.0, 0.5), part(&b, 1.0, 0.5), part(&none, 9.0, 0.5)]);
        for (bytes, expected) in [(0, 1.0), (20, 0.5), (60, 0.3), (1000, 0.3)] {
            assert!((whole.miss_ratio_at(bytes) - expected).abs() < 1e-9, "{bytes}: {whole:?}");
        }
        assert_eq!(MissRatioCurve::of_parts(&[part(&a, 2.0, 1.0)]), a);
        assert!(MissRatioCurve::of_parts(&[]).is_empty());
    }

    #[test]
    fn a_thinned_curve_is_the_same_to_a_step() {
        let long = MissRatioCurve::new(
            (1..=1000).map(|i| CurvePoint { bytes: i * i, miss_ratio: 1.0 / (1.0 + i as f64 / 50.0) }).collect(),
        );
        let thin = long.thinned(40);
        assert!(thin.points().len() <= 40 && thin.points().last() == long.points().last());
        let sizes = even_sizes(1_000_000, 200);
        assert!(thin.mean_absolute_error(&long, &sizes) < 1.0 / 39.0);
        assert_eq!(thin.thinned(40), thin);
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
