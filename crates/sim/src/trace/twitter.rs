//! Twitter's cache-trace csv: timestamp (s), key, key size, value size, client id, operation, TTL (s).
//!
//! Source: the README of the published traces (Yang et al., OSDI'20). An access's size is key size + value size. The
//! TTL stands at writes only. Keys contain no comma.

use super::row::{Row, parse_op, parse_size, parse_time, shown};

/// How many fields a line has.
pub(super) const FIELDS: usize = 7;

/// Reads one line.
pub(super) fn parse(line: &[u8], row: &mut Row) -> Result<(), String> {
    let mut fields = [&line[..0]; FIELDS];
    let mut n = 0;
    for field in line.split(|&b| b == b',') {
        if n == FIELDS {
            return Err(format!("more than {FIELDS} fields"));
        }
        fields[n] = field;
        n += 1;
    }
    if n < FIELDS {
        return Err(format!("{n} fields; {FIELDS} are expected"));
    }
    let [time, key, key_size, value_size, client, op, ttl] = fields;
    if key.is_empty() {
        return Err("the key is blank".to_owned());
    }
    row.time_us = parse_time(time, "time")?;
    row.key.extend_from_slice(key);
    row.size_bytes = match (parse_size(key_size)?, parse_size(value_size)?) {
        (None, None) => None,
        (key, value) => Some(key.unwrap_or(0) + value.unwrap_or(0)),
    };
    row.tenant.extend_from_slice(client);
    row.op = parse_op(op).ok_or_else(|| format!("operation {} is not one of the cache's", shown(op)))?;
    row.ttl_us = parse_time(ttl, "time to live")?;
    Ok(())
}

/// True where `line` has the shape of a row.
pub(super) fn looks_like(line: &[u8]) -> bool {
    parse(line, &mut Row::new()).is_ok()
}
