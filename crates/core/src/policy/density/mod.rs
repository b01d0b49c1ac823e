//! Tenure's own policy, the default: of the keys that are met the one goes whose bytes save least. The server and the
//! simulator run this folder.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `history` | what a key has shown, in two bytes, and the feature that it is ranked by |
//! | `model`, `table` | how often keys of a feature are accessed at each age; what keeping them saves per time |
//! | `ranking` | a key's score: density, density steadied by the long run, GDSF or recency |
//! | `candidates` | who goes from a miniature cache |
//! | `shared_keys`, `places` | the keys of several miniature caches, and which of them each holds |
//! | `contest` | which of the four ranks, by miniature caches |
//! | `learner` | when a window ends, what model and contest hear, and what is made of both |
//! | `miss_costs` | what a miss of a key costs |
//! | `ranks` | what is known of a key, as ranking takes it |
//! | `load` | how many keys are looked at for a victim |
//! | `thrift` | when the search for a victim takes more than it can save |
//! | `sizing` | what would be missed with less memory or more, by miniature caches |
//! | `simulated` | the server's part, simulated: accesses, the walk that meets candidates, eviction |
//! | `watched` | which accesses a simulated server sees that is too busy for all |
//!
//! The candidates are kept by `policy/pools.rs`. What keys have shown is remembered in `key_table.rs`, dated by the
//! clock of `access_ring.rs`.

mod candidates;
mod contest;
mod history;
mod learner;
mod load;
mod miss_costs;
mod model;
mod places;
mod ranking;
mod ranks;
mod row;
mod shared_keys;
mod simulated;
mod sizing;
mod table;
mod thrift;
mod watched;

pub use contest::Contest;
pub use history::{FEATURES, Feature, GROUPS, History};
pub use learner::{Learned, Learner, LearnerConfig, Shown, Teaching, age_step};
pub use load::Load;
pub use miss_costs::{Delays, MissCosts, Noise, feature_of};
pub use model::{DensityConfig, DensityModel, Tail};
pub use ranking::{GreedyAges, Ranker, Ranking, Subject};
pub use ranks::{Basis, Ranks, Value, was_accessed};
pub use shared_keys::KEYS_MAX;
pub use simulated::{Bounds, Density, DensityPolicyConfig};
pub use sizing::{BYTES_PER_KEY, Expectations, Expected, Measured, Owner, PRESENT, SCALES, Sizing};
pub use table::DensityTable;
pub use thrift::Thrift;
pub use watched::Watched;

/// Keys looked at per eviction, where nothing else is set.
pub const SAMPLE_SIZE: u32 = 10;
/// Requests between two tables, where nothing else is set.
pub const WINDOW_REQUESTS: u64 = 50_000;
/// The table of keys has this part of the memory, where nothing else is set: of keys of 1 KiB, all that are there are
/// remembered.
pub const KEY_TABLE_SHARE: u64 = 64;
/// Under a lower limit a server is left to itself, in bytes: Tenure's own megabyte would be more than a quarter of it.
pub const LIMIT_BYTES_MIN: u64 = 4 << 20;
