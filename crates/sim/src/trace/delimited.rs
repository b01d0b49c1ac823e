//! Lines of fields between delimiters, whose columns have roles: what the two csv formats with free columns share.
//!
//! A field that begins with a quotation mark is read by the rules of RFC 4180, through the `csv` crate and more slowly.

use super::row::{Row, parse_op, parse_penalty, parse_size, parse_time, shown};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    TimeSeconds,
    Key,
    Op,
    Size,
    Tenant,
    TtlSeconds,
    PenaltyUs,
    Ignored,
}

/// Which column holds what, and what stands between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Columns {
    /// By column, from the first.
    pub roles: Vec<Role>,
    pub delimiter: u8,
}

impl Columns {
    /// True where some column is the key.
    pub fn has_key(&self) -> bool {
        self.roles.contains(&Role::Key)
    }

    /// Reads one line.
    pub fn parse(&self, line: &[u8], row: &mut Row) -> Result<(), String> {
        let mut n_fields = 0;
        let mut rest = Some(line);
        for &role in &self.roles {
            let Some(left) = rest else {
                break;
            };
            let end = left.iter().position(|&b| b == self.delimiter);
            let field = &left[..end.unwrap_or(left.len())];
            rest = end.map(|i| &left[i + 1..]);
            n_fields += 1;
            if field.first() == Some(&b'"') {
                row.clear();
                return self.parse_quoted(line, row);
            }
            take_field(role, field, row)?;
        }
        self.check(n_fields, row)
    }

    #[cold]
    fn parse_quoted(&self, line: &[u8], row: &mut Row) -> Result<(), String> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).delimiter(self.delimiter).from_reader(line);
        let mut record = csv::ByteRecord::new();
        reader.read_byte_record(&mut record).map_err(|e| e.to_string())?;
        for (&role, field) in self.roles.iter().zip(record.iter()) {
            take_field(role, field, row)?;
        }
        self.check(record.len().min(self.roles.len()), row)
    }

    fn check(&self, n_fields: usize, row: &Row) -> Result<(), String> {
        if n_fields < self.roles.len() && self.roles[n_fields..].iter().any(|&r| r != Role::Ignored) {
            return Err(format!("{n_fields} fields; {} are expected", self.roles.len()));
        }
        if row.key.is_empty() { Err("the key is blank".to_owned()) } else { Ok(()) }
    }
}

#[inline(always)]
fn take_field(role: Role, field: &[u8], row: &mut Row) -> Result<(), String> {
    match role {
        Role::TimeSeconds => row.time_us = parse_time(field, "time")?,
        Role::Key => row.key.extend_from_slice(field),
        Role::Op => {
            row.op = parse_op(field).ok_or_else(|| format!("operation {} is none of get, set, del", shown(field)))?;
        }
        Role::Size => row.size_bytes = parse_size(field)?,
        Role::Tenant => row.tenant.extend_from_slice(field),
        Role::TtlSeconds => row.ttl_us = parse_time(field, "time to live")?,
        Role::PenaltyUs => row.penalty_us = parse_penalty(field)?,
        Role::Ignored => {}
    }
    Ok(())
}
