//! The identifiers and quantities that every other file speaks in, and how a person writes a number of bytes.
//!
//! Quantities are plain numbers whose unit is the last word of their name (`size_bytes`, `penalty_us`, `n_requests`);
//! identifiers are types of their own, so that a partition is never taken for a tenant.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::random::Random;

/// The hash that a key is known by everywhere outside the server: XXH3, 64 bits, seed 0.
///
/// Spatial sampling, tables and traces all use it, so a key sampled in the server is sampled in the simulator too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hashes a key's bytes. About 3 ns for a key of 16 bytes.
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        KeyHash(xxh3_64(key))
    }

    /// The same key under another hash, so that a sample takes others; seed 0 leaves it as it is.
    #[inline]
    pub fn seeded(self, seed: u64) -> Self {
        if seed == 0 {
            self
        } else {
            KeyHash(Random::new(self.0 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64())
        }
    }

    /// Hashes a key that is known by number only, as the keys of many traces are.
    #[inline]
    pub fn of_number(number: u64) -> Self {
        KeyHash::of(&number.to_le_bytes())
    }
}

/// Who an access belongs to: a logical database, a key prefix or a column of a trace. Dense, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u16);

/// The unit of decision: a tenant × a miss-penalty class. Dense, from 0, below [`PARTITIONS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId(pub u16);

impl PartitionId {
    /// The partition's place in a table of [`PARTITIONS_MAX`] entries.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many partitions one server may have: 64 tenants and what is nobody's, and as many again for classes.
pub const PARTITIONS_MAX: usize = 128;

/// Why a number of bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BytesError(String);

impl fmt::Display for BytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a number of bytes: write 1048576, 1mb or 1mib", self.0)
    }
}

impl std::error::Error for BytesError {}

/// Reads bytes as a server's configuration does: `100`, `1k` = 1000, `1kb` = 1024, likewise `m`, `mb`, `g`, `gb`;
/// `kib`, `mib`, `gib` are 1024-based too. Case does not matter; a fraction (`1.5gb`) is rounded down.
///
/// # Errors
/// Anything else, a negative number, and what does not fit 63 bits.
pub fn parse_bytes(text: &str) -> Result<u64, BytesError> {
    let bad = || BytesError(text.to_owned());
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let factor: u64 = match unit {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        "tb" | "tib" => 1 << 40,
        _ => return Err(bad()),
    };
    let value = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor).ok_or_else(bad)?,
        Err(_) => (number.parse::<f64>().map_err(|_| bad())? * factor as f64) as u64,
    };
    if value > i64::MAX as u64 { Err(bad()) } else { Ok(value) }
}

/// Bytes for people: `512 B`, `1.5 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_the_server_reads_them() {
        for (text, bytes) in
            [("0", 0), ("100", 100), ("1k", 1000), ("1kb", 1024), ("1.5MB", 1_572_864), ("2GiB", 2 << 30)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "-1", "1x", "1.2.3", "99999999999gb", "mb"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_short() {
        assert_eq!(format_bytes(512), "512 B");
        assert_eq!(format_bytes(1 << 20), "1 MiB");
        assert_eq!(format_bytes(1_572_864), "1.5 MiB");
    }
}
