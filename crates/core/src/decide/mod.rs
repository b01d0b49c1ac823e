//! Decisions: curves, penalties and limits in, a plan out.

pub mod allocation;
pub mod delayed_hits;
pub mod diurnal;
pub mod first_parts;
pub mod objective;
pub mod penalty_class;
pub mod plan;
pub mod sample_size;
pub mod size_class;
