//! Two memory tiers: which values lie in fast memory, which in slow, and when one moves.
//!
//! Source: sdTMM (Wang's dissertation, 2024, ch. 5). New values enter the fast tier. Background work keeps some of
//! each tier free ([`marks`]): the coldest move down, and out of the slow tier. A slow value goes up when it is
//! accessed again within the mean reuse time of the fast tier ([`hotness`]). Lists with insertion points (a quarter
//! from the tail, the middle) become ages ([`insertion`]), since a server has no lists: what a walk or an access meets
//! has an idle time, and one is enough for the other. [`worth`] is a second rule, our own: by what moving saves,
//! against what it costs. [`division`] shares the fast tier among tenants. [`placer`] is what simulator and server
//! call; it holds a few KiB per partition and nothing per key. What must be known of a key are two bytes ([`placed`]),
//! for which its entry in the key table has room. docs/models.md, "Two tiers".

pub mod division;
pub mod hotness;
pub mod insertion;
pub mod marks;
pub mod placed;
pub mod placer;
pub mod worth;

use crate::policy::density::Feature;
use crate::units::PartitionId;
use placed::Placed;

/// A tier of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Tier 0: the memory of the processors.
    #[default]
    Fast,
    /// Tier 1: memory further away.
    Slow,
}

impl Tier {
    /// Its place in a table of two.
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Fast => "fast",
            Tier::Slow => "slow",
        }
    }
}

/// What is known of a value when the walk or an access meets it. Times in ticks, the same as everywhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// Whose it is.
    pub partition: PartitionId,
    /// Memory it takes, in bytes.
    pub size_bytes: u32,
    /// Ticks since it was last accessed; of a value that an access meets, 0.
    pub idle: u64,
    /// Ticks between its last two requests; where only a smoothed one is known (`History::gap_ticks`), that. `None`
    /// after a single request.
    pub reuse: Option<u64>,
    /// What it has shown ([`crate::policy::density::History::feature`]); looked at by worth only.
    pub feature: Feature,
    /// Where it is, and how it came there.
    pub placed: Placed,
}
