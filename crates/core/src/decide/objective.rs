//! What a plan is to reach.
//!
//! Source: Wang's dissertation (2024) sec. 4.1.2: the least penalty (eq. 4.3; pRedis, SoCC'19, eq. 9) and the most
//! hits (eq. 4.4, which is the fewest misses). `Fair` is ours: the least penalty of all plans under which no tenant's
//! misses cost more than on an equal split of the memory (`allocation::equal_split`).

/// What a plan is to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The least penalty in all.
    #[default]
    Penalty,
    /// The most hits: every miss counts alike.
    Hits,
    /// The least penalty in all that leaves no group with more than it has on an equal split.
    Fair,
}

impl Objective {
    /// All of them.
    pub const ALL: [Objective; 3] = [Objective::Penalty, Objective::Hits, Objective::Fair];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Penalty => "penalty",
            Objective::Hits => "hits",
            Objective::Fair => "fair",
        }
    }

    /// What a miss counts that takes `penalty_us`.
    pub fn miss_us(self, penalty_us: f64) -> f64 {
        match self {
            Objective::Penalty | Objective::Fair => penalty_us,
            Objective::Hits => 1.0,
        }
    }
}
