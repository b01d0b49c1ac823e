//! MSR Cambridge block traces: timestamp, host, disk, Read or Write, offset, size, response time.
//!
//! Source: the README of the published traces (SNIA IOTTA; Narayanan et al., FAST'08): times are Windows file times
//! (100 ns), as is the response time, which becomes the penalty column; offset and size are bytes. The key is
//! `host.disk:offset`, the start address of the request, so overlapping extents are different keys. The tenant is
//! `host.disk`.

use super::row::{Row, parse_op, parse_size, parse_u64, shown};

const FIELDS: usize = 7;

/// Reads one line.
pub(super) fn parse(line: &[u8], row: &mut Row) -> Result<(), String> {
    let mut fields = [&line[..0]; FIELDS];
    let n = line.split(|&b| b == b',').zip(&mut fields).map(|(field, slot)| *slot = field.trim_ascii()).count();
    if n < FIELDS {
        return Err(format!("{n} fields; {FIELDS} are expected"));
    }
    let [time, host, disk, op, offset, size, response] = fields;
    let number = |field, name: &str| parse_u64(field).ok_or_else(|| format!("{name} {} is not a number", shown(field)));
    row.time_us = number(time, "timestamp")? / 10;
    row.op = parse_op(op).ok_or_else(|| format!("operation {} is neither Read nor Write", shown(op)))?;
    number(offset, "offset")?;
    row.tenant.extend_from_slice(host);
    row.tenant.push(b'.');
    row.tenant.extend_from_slice(disk);
    row.key.extend_from_slice(&row.tenant);
    row.key.push(b':');
    row.key.extend_from_slice(offset);
    row.size_bytes = parse_size(size)?;
    row.penalty_us = Some(number(response, "response time")? as f32 / 10.0);
    Ok(())
}

/// True where `line` has the shape of a row.
pub(super) fn looks_like(line: &[u8]) -> bool {
    parse(line, &mut Row::new()).is_ok()
}
