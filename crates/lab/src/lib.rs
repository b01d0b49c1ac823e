//! What is only there to compare with: policies and tables of others, in the simulator and, where they can be had
//! there, in the server.
//!
//! A crate of its own, so that the compiler keeps it away from the default path: the core can't name what is here.
//! Each file opens with its source and its deviations; pure as the core is.
#![forbid(unsafe_code)]

pub mod bloom_classes;
pub mod boosting;
pub mod camp;
pub mod chooser;
pub mod dlru;
pub mod hyperbolic;
pub mod lhd;
pub mod miniatures;
pub mod sieve;
pub mod three_l;
pub mod tinylfu;
pub mod va_cdh;
