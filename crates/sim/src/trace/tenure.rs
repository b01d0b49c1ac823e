//! Tenure's own CSV: `time_s,key,op,size,tenant`, a blank is unknown; `op` is get, set or del.
//!
//! The header names the columns, so they may come in another order, and two more are understood: `ttl_s` and
//! `penalty_us`. Without a header the five columns are taken in the order above.

use super::delimited::{Columns, Role};
use super::row::Row;

/// The format. See the file's opening.
#[derive(Debug)]
pub(super) struct TenureCsv {
    columns: Columns,
    first: bool,
}

impl TenureCsv {
    pub fn new() -> Self {
        let roles = vec![Role::TimeSeconds, Role::Key, Role::Op, Role::Size, Role::Tenant];
        TenureCsv { columns: Columns { roles, delimiter: b',' }, first: true }
    }

    /// Reads one line; false where it is the header.
    pub fn parse(&mut self, line: &[u8], row: &mut Row) -> Result<bool, String> {
        if std::mem::take(&mut self.first) && is_header(line) {
            let roles = line.split(|&b| b == b',').map(role_of).collect();
            self.columns = Columns { roles, delimiter: b',' };
            return Ok(false);
        }
        self.columns.parse(line, row)?;
        Ok(true)
    }
}

/// True where `line` names columns, the key among them.
pub(super) fn is_header(line: &[u8]) -> bool {
    let mut names = line.split(|&b| b == b',').map(role_of);
    let has_key = names.clone().any(|role| role == Role::Key);
    has_key && names.any(|role| role != Role::Key && role != Role::Ignored)
}

fn role_of(name: &[u8]) -> Role {
    match name.trim_ascii() {
        b"time_s" => Role::TimeSeconds,
        b"key" => Role::Key,
        b"op" => Role::Op,
        b"size" | b"size_bytes" => Role::Size,
        b"tenant" => Role::Tenant,
        b"ttl_s" => Role::TtlSeconds,
        b"penalty_us" => Role::PenaltyUs,
        _ => Role::Ignored,
    }
}
