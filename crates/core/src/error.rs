//! Why a model or a decision refused its parameters. After construction nothing in the core fails.

use std::fmt;

/// A parameter out of its range. The text says which, what it was, and what is allowed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A sampling rate outside (0, 1].
    SampleRate(f64),
    /// A sampling size K outside 1 to 64.
    SampleSize(u32),
    /// A number of partitions outside 1 to [`PARTITIONS_MAX`](crate::units::PARTITIONS_MAX).
    Partitions(usize),
    /// A number of size classes outside 1 to 8.
    SizeClasses(usize),
    /// A decay outside [0, 1].
    Decay(f64),
    /// A claim on memory that names a group which isn't there.
    Group {
        /// What it names.
        group: usize,
        /// How many groups there are.
        n_groups: usize,
    },
    /// A group's minimum above its maximum, in bytes.
    Bounds {
        /// Guaranteed minimum, in bytes.
        bytes_min: u64,
        /// Maximum, in bytes.
        bytes_max: u64,
    },
    /// Minimums that add up to more than there is, in bytes.
    MinimumsExceedMemory {
        /// Sum of the minimums, in bytes.
        bytes_min_sum: u64,
        /// What there is to allocate, in bytes.
        memory_bytes: u64,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::SampleRate(rate) => {
                write!(f, "sampling rate is {rate}; allowed is above 0 and up to 1")
            }
            ConfigError::SampleSize(k) => write!(f, "sampling size K is {k}; allowed is 1 to 64"),
            ConfigError::Partitions(n) => write!(f, "{n} partitions; allowed is 1 to {}", crate::units::PARTITIONS_MAX),
            ConfigError::SizeClasses(n) => write!(f, "{n} size classes; allowed is 1 to 8"),
            ConfigError::Decay(decay) => write!(f, "decay is {decay}; allowed is 0 to 1"),
            ConfigError::Group { group, n_groups } => {
                write!(f, "a claim names group {group}; there are {n_groups}, counted from 0")
            }
            ConfigError::Bounds { bytes_min, bytes_max } => {
                write!(f, "minimum of {bytes_min} bytes is above the maximum of {bytes_max} bytes")
            }
            ConfigError::MinimumsExceedMemory { bytes_min_sum, memory_bytes } => {
                write!(f, "minimums add up to {bytes_min_sum} bytes, but there are {memory_bytes} to allocate")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
