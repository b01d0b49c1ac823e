//! Gradient-boosted regression trees, small and plain: what `three_l.rs` predicts with.
//!
//! Source: Friedman, Annals of Statistics 2001, with what LightGBM (Ke et al., NIPS'17) made usual: values are put
//! into bins by quantile, and a tree grows at the leaf where a split gains most. Squared error, no regularisation.
//! Differs from LightGBM: all rows and features for every tree (there 0.8 of each may be drawn), 64 bins in place of
//! 255. Cost: for each tree O(rows × features × depth); a prediction is one path in each tree.

/// Bins of a feature at most.
const BINS: usize = 64;
/// Rows of a leaf at least.
const ROWS_MIN: usize = 20;

/// How a forest grows.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Trees.
    pub trees: usize,
    /// Leaves of a tree at most.
    pub leaves: usize,
    /// What part of a tree's prediction counts.
    pub rate: f32,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    Leaf(f32),
    /// Up to `threshold` to the left, above it to the right.
    Split {
        feature: usize,
        threshold: f32,
        left: usize,
        right: usize,
    },
}

/// Trees whose predictions add up. Of `N` features.
#[derive(Clone, Debug)]
pub struct Forest<const N: usize> {
    mean: f32,
    trees: Vec<Vec<Node>>,
}

impl<const N: usize> Forest<N> {
    /// Learns `labels` from `rows`, which are as many.
    pub fn grow(rows: &[[f32; N]], labels: &[f32], growth: Growth) -> Self {
        let mean = labels.iter().sum::<f32>() / labels.len().max(1) as f32;
        let mut residuals: Vec<f32> = labels.iter().map(|label| label - mean).collect();
        let bins = Bins::of(rows);
        let mut trees = Vec::with_capacity(growth.trees);
        for _ in 0..growth.trees {
            trees.push(Tree::grow(&bins, &mut residuals, growth));
        }
        Forest { mean, trees }
    }

    /// What is expected of a row.
    pub fn predict(&self, row: &[f32; N]) -> f32 {
        self.trees.iter().fold(self.mean, |sum, tree| sum + leaf_of(tree, row))
    }
}

fn leaf_of<const N: usize>(tree: &[Node], row: &[f32; N]) -> f32 {
    let mut at = 0;
    loop {
        match tree[at] {
            Node::Leaf(value) => return value,
            Node::Split { feature, threshold, left, right } => {
                at = if row[feature] <= threshold { left } else { right }
            }
        }
    }
}

/// All rows by bin, and the largest value of each bin.
struct Bins<const N: usize> {
    rows: Vec<[u8; N]>,
    upper: [Vec<f32>; N],
}

impl<const N: usize> Bins<N> {
    fn of(rows: &[[f32; N]]) -> Self {
        let upper = std::array::from_fn(|feature| {
            let mut values: Vec<f32> = rows.iter().map(|row| row[feature]).collect();
            values.sort_unstable_by(f32::total_cmp);
            let mut upper: Vec<f32> = (1..=BINS).map(|i| values[(values.len() * i / BINS).max(1) - 1]).collect();
            upper.dedup();
            upper
        });
        let bin = |row: &[f32; N]| {
            std::array::from_fn(|feature| {
                let upper: &Vec<f32> = &upper[feature];
                upper.partition_point(|&most| most < row[feature]).min(upper.len() - 1) as u8
            })
        };
        Bins { rows: rows.iter().map(bin).collect(), upper }
    }
}

/// The best split of a leaf: by which feature, after which bin, and what it gains.
#[derive(Clone, Copy)]
struct Best {
    gain: f64,
    feature: usize,
    bin: u8,
}

/// A leaf while the tree grows: its node, and its rows.
struct Leaf {
    node: usize,
    rows: Vec<u32>,
    best: Option<Best>,
}

struct Tree;

impl Tree {
    /// Grows a tree, takes what it predicts off the residuals.
    fn grow<const N: usize>(bins: &Bins<N>, residuals: &mut [f32], growth: Growth) -> Vec<Node> {
        let all: Vec<u32> = (0..residuals.len() as u32).collect();
        let (mut nodes, best) = (vec![Node::Leaf(0.0)], best_split(bins, residuals, &all));
        let mut leaves = vec![Leaf { node: 0, rows: all, best }];
        while leaves.len() < growth.leaves {
            let gain = |leaf: &Leaf| leaf.best.map_or(0.0, |best| best.gain);
            let Some(at) = (0..leaves.len()).max_by(|&a, &b| gain(&leaves[a]).total_cmp(&gain(&leaves[b]))) else {
                break;
            };
            let Some(Best { feature, bin, .. }) = leaves[at].best else { break };
            let Leaf { node, rows, .. } = leaves.swap_remove(at);
            let (left, right): (Vec<u32>, Vec<u32>) =
                rows.into_iter().partition(|&row| bins.rows[row as usize][feature] <= bin);
            let threshold = bins.upper[feature][usize::from(bin)];
            nodes[node] = Node::Split { feature, threshold, left: nodes.len(), right: nodes.len() + 1 };
            for rows in [left, right] {
                let best = best_split(bins, residuals, &rows);
                leaves.push(Leaf { node: nodes.len(), rows, best });
                nodes.push(Node::Leaf(0.0));
            }
        }
        for Leaf { node, rows, .. } in leaves {
            let sum: f64 = rows.iter().map(|&row| f64::from(residuals[row as usize])).sum();
            let value = growth.rate * (sum / rows.len().max(1) as f64) as f32;
            nodes[node] = Node::Leaf(value);
            rows.iter().for_each(|&row| residuals[row as usize] -= value);
        }
        nodes
    }
}

fn best_split<const N: usize>(bins: &Bins<N>, residuals: &[f32], rows: &[u32]) -> Option<Best> {
    if rows.len() < 2 * ROWS_MIN {
        return None;
    }
    let mut sums = [[(0.0_f64, 0_usize); BINS]; N];
    for &row in rows {
        for (sums, &bin) in sums.iter_mut().zip(&bins.rows[row as usize]) {
            let (sum, n) = &mut sums[usize::from(bin)];
            *sum += f64::from(residuals[row as usize]);
            *n += 1;
        }
    }
    let total: f64 = sums[0].iter().map(|(sum, _)| sum).sum();
    let explained = |sum: f64, n: usize| sum * sum / n as f64;
    let mut best: Option<Best> = None;
    for (feature, sums) in sums.iter().enumerate() {
        let (mut left, mut n_left) = (0.0, 0);
        for (bin, &(sum, n)) in sums.iter().enumerate() {
            (left, n_left) = (left + sum, n_left + n);
            let n_right = rows.len() - n_left;
            if n_left < ROWS_MIN || n_right < ROWS_MIN {
                continue;
            }
            let gain = explained(left, n_left) + explained(total - left, n_right) - explained(total, rows.len());
            if gain > best.map_or(1e-9, |best| best.gain) {
                best = Some(Best { gain, feature, bin: bin as u8 });
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use tenure_core::random::Random;

    use super::*;

    const GROWTH: Growth = Growth { trees: 16, leaves: 8, rate: 0.5 };

    /// Half of the rows below 5 are worth 1, those above 3: the first split says so, and nothing is left to learn.
    #[test]
    fn a_step_is_one_split() {
        let rows: Vec<[f32; 2]> = (0..100).map(|i| [(i % 10) as f32, 7.0]).collect();
        let labels: Vec<f32> = rows.iter().map(|row| if row[0] < 5.0 { 1.0 } else { 3.0 }).collect();
        let forest = Forest::grow(&rows, &labels, Growth { trees: 1, leaves: 8, rate: 1.0 });
        assert_eq!((forest.predict(&[4.0, 7.0]), forest.predict(&[5.0, 7.0])), (1.0, 3.0));
        assert_eq!(forest.trees[0].len(), 3);
    }

    /// A product of two features, with noise: nine tenths of the variance are explained.
    #[test]
    fn what_two_features_make_together_is_learned() {
        let mut random = Random::new(1);
        let mut uniform = || random.below(1_000) as f32 / 1_000.0;
        let rows: Vec<[f32; 3]> = (0..5_000).map(|_| [uniform(), uniform(), uniform()]).collect();
        let labels: Vec<f32> = rows.iter().map(|row| 10.0 * row[0] * row[1] + 0.3 * (uniform() - 0.5)).collect();
        let forest = Forest::grow(&rows, &labels, Growth { leaves: 32, ..GROWTH });
        let mean = labels.iter().sum::<f32>() / labels.len() as f32;
        let squares = |of: &dyn Fn(usize) -> f32| (0..rows.len()).map(|i| (labels[i] - of(i)).powi(2)).sum::<f32>();
        let (left, all) = (squares(&|i| forest.predict(&rows[i])), squares(&|_| mean));
        assert!(left < 0.1 * all, "{left} of {all}");
    }

    #[test]
    fn too_few_rows_are_their_mean() {
        let forest = Forest::grow(&[[1.0], [2.0]], &[4.0, 6.0], GROWTH);
        assert_eq!(forest.predict(&[9.0]), 5.0);
    }
}
