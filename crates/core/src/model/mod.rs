//! Models: a stream of accesses in, a miss ratio curve out. One model, one source, one file.
//!
//! `exact` is the oracle that the others are tested against.

mod calibration;
pub mod census;
mod deletes;
mod distances;
pub mod eaet;
pub mod exact;
pub mod key_map;
pub mod krr;
mod krr_stack;
mod lru_stack;
pub mod merged;
pub mod miniature;
#[cfg(test)]
mod properties;
mod reuse_time;
mod sample;
pub mod shards;
mod tally;
#[cfg(test)]
mod testing;

use crate::access::{Access, Op};
use crate::curve::MissRatioCurve;
use crate::sampling::SampleRate;

/// Which requests the miss ratio is about. All of them push keys down the stack either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Reads and writes, as trace tools count.
    ReadsAndWrites,
    /// Reads only: the requests that wait when they miss.
    Reads,
}

impl Counted {
    /// True where an access of this kind is one of them.
    #[inline]
    pub fn includes(self, op: Op) -> bool {
        match op {
            Op::Read => true,
            Op::Write => self == Counted::ReadsAndWrites,
            Op::Delete => false,
        }
    }
}

/// What turns a stream of accesses into a miss ratio curve.
///
/// The caller gives every access of the stream, in order; an implementor that samples picks its own, by the key's hash.
/// A read or a write is one request, and a miss where the key isn't there (a read is followed by its fill); a delete is
/// no request, but frees its memory.
pub trait CurveModel {
    /// Takes one access of the stream.
    fn record(&mut self, access: &Access);

    /// Forgets what was counted so far and keeps what is known of keys: the end of a warm-up, or of a window.
    fn forget_counts(&mut self);

    /// Predicted miss ratio over all requests so far at each of `sizes_bytes` (strictly increasing).
    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve;

    /// The share of keys that it looks at now.
    fn sample_rate(&self) -> SampleRate;

    /// The model's own memory, in bytes, within a few percent.
    fn memory_bytes(&self) -> usize;
}

impl<M: CurveModel + ?Sized> CurveModel for Box<M> {
    fn record(&mut self, access: &Access) {
        (**self).record(access);
    }

    fn forget_counts(&mut self) {
        (**self).forget_counts();
    }

    fn curve(&self, sizes_bytes: &[u64]) -> MissRatioCurve {
        (**self).curve(sizes_bytes)
    }

    fn sample_rate(&self) -> SampleRate {
        (**self).sample_rate()
    }

    fn memory_bytes(&self) -> usize {
        (**self).memory_bytes()
    }
}
