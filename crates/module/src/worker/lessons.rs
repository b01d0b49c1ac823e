//! What another node has learned: taught by a primary, and carried on by its heir until it knows better itself.

use std::time::{Duration, Instant};

use tenure_core::curve::MissRatioCurve;
use tenure_core::policy::density::Teaching;
use tenure_core::units::PartitionId;

use super::views::Weights;

/// What a primary has taught is believed for so many windows, and so long at the least.
const LESSON_WINDOWS: u32 = 6;
const LESSON_TIME_MIN: Duration = Duration::from_secs(3600);
/// What was taken over is forgotten when its reads are fewer than this share of one's own.
const CARRIED_MIN: f64 = 0.05;

/// What another node has learned of one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lesson {
    /// Whose it is.
    pub tenant: String,
    /// Its class, or `none`.
    pub class: String,
    /// Planned bytes.
    pub target_bytes: u64,
    /// Keys sampled per eviction; 0 where that is as set.
    pub sample_size: u32,
    /// Its reads and penalties of late.
    pub weights: Weights,
    /// Its miss ratio by memory.
    pub curve: MissRatioCurve,
}

/// What its primary has taught a replica.
#[derive(Clone, Debug)]
pub struct Taught {
    /// Which set of partitions the numbers are of.
    pub epoch: u32,
    /// What is known, by partition.
    pub partitions: Vec<(PartitionId, Lesson)>,
    /// Keys sampled per eviction, where one K was chosen for the whole cache.
    pub sample_size: Option<u32>,
    /// What the learner of Tenure's own policy knew.
    pub teaching: Option<Teaching>,
    /// When it was heard.
    pub heard: Instant,
}

impl Taught {
    /// True while its teacher may still be right.
    pub fn is_fresh(&self, window: Duration) -> bool {
        self.heard.elapsed() < (LESSON_WINDOWS * window).max(LESSON_TIME_MIN)
    }
}

/// A curve that was taken over, and the reads that it stands for; they decay, and it goes when they are few beside
/// one's own.
#[derive(Clone, Debug)]
pub struct Carried {
    /// By memory.
    pub curve: MissRatioCurve,
    /// What it stands for.
    pub reads: f64,
    /// Keys sampled per eviction; 0 where that is as set.
    pub sample_size: u32,
}

impl Carried {
    /// A window ends in which there were so many reads of one's own: false where that is enough to forget this.
    pub fn outlasts(&mut self, own_reads: impl FnOnce(f64) -> f64, decay: f64) -> bool {
        self.reads *= decay;
        self.reads >= CARRIED_MIN * own_reads(self.reads)
    }
}
