//! One row of a trace as its format understands it, and the number parsers that all formats share.

use tenure_core::access::Op;

/// What a format found in one line or record. Owned and reused, so that a trace is read without allocation.
#[derive(Debug)]
pub(super) struct Row {
    /// The key's text.
    pub key: Vec<u8>,
    pub op: Op,
    /// Key and value, in bytes; `None` where the trace doesn't say.
    pub size_bytes: Option<u64>,
    /// µs since any fixed moment.
    pub time_us: u64,
    /// µs; 0 = for ever.
    pub ttl_us: u64,
    /// µs; `None` where the trace doesn't say.
    pub penalty_us: Option<f32>,
    /// What the trace calls the tenant; empty where it doesn't.
    pub tenant: Vec<u8>,
    /// What the trace calls the client, where it tells one beside the tenant; else empty.
    pub client: Vec<u8>,
}

impl Row {
    pub fn new() -> Self {
        let (key, tenant, client) = (Vec::new(), Vec::new(), Vec::new());
        Row { key, op: Op::Read, size_bytes: None, time_us: 0, ttl_us: 0, penalty_us: None, tenant, client }
    }

    /// Forgets the row before.
    pub fn clear(&mut self) {
        self.key.clear();
        self.tenant.clear();
        self.client.clear();
        (self.op, self.size_bytes, self.time_us, self.ttl_us, self.penalty_us) = (Op::Read, None, 0, 0, None);
    }
}

/// Text for an error message.
pub(super) fn shown(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(&field[..field.len().min(60)]);
    format!("'{}'", text.escape_debug())
}

/// A whole number without sign.
#[inline]
pub(super) fn parse_u64(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 19 {
        return None;
    }
    let mut value = 0u64;
    for &b in field {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Seconds with up to any number of decimals, as µs (what is finer is cut off).
#[inline]
pub(super) fn parse_seconds_us(field: &[u8]) -> Option<u64> {
    let dot = field.iter().position(|&b| b == b'.');
    let (whole, decimals) = match dot {
        Some(i) => (&field[..i], &field[i + 1..]),
        None => (field, &field[..0]),
    };
    let mut us = parse_u64(whole)?.checked_mul(1_000_000)?;
    let mut worth = 100_000;
    for &b in decimals {
        if !b.is_ascii_digit() {
            return None;
        }
        us += u64::from(b - b'0') * worth;
        worth /= 10;
    }
    Some(us)
}

/// A size in bytes, or what is wrong with it. A blank is unknown.
#[inline]
pub(super) fn parse_size(field: &[u8]) -> Result<Option<u64>, String> {
    if field.is_empty() {
        return Ok(None);
    }
    match parse_u64(field) {
        Some(size) => Ok(Some(size)),
        None if field[0] == b'-' => Err(format!("size {} is negative", shown(field))),
        None => Err(format!("size {} is not a number of bytes", shown(field))),
    }
}

/// Seconds as µs, or what is wrong with them. A blank is 0.
#[inline]
pub(super) fn parse_time(field: &[u8], name: &str) -> Result<u64, String> {
    if field.is_empty() {
        return Ok(0);
    }
    parse_seconds_us(field).ok_or_else(|| format!("{name} {} is not a number of seconds, 0 or more", shown(field)))
}

/// A penalty in µs, or what is wrong with it. A blank is unknown.
pub(super) fn parse_penalty(field: &[u8]) -> Result<Option<f32>, String> {
    if field.is_empty() {
        return Ok(None);
    }
    let value = std::str::from_utf8(field).ok().and_then(|text| text.trim().parse::<f32>().ok());
    value
        .filter(|us| us.is_finite() && *us >= 0.0)
        .map(Some)
        .ok_or_else(|| format!("penalty {} is not a number of µs, 0 or more", shown(field)))
}

/// What an operation's name means, in any of the names that caches and tools use; `None` for others. Case does not
/// matter.
#[inline]
pub(super) fn parse_op(name: &[u8]) -> Option<Op> {
    const READS: [&[u8]; 6] = [b"get", b"gets", b"gat", b"read", b"r", b"head"];
    const WRITES: [&[u8]; 12] = [
        b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"incr", b"decr", b"write", b"w", b"put", b"update",
    ];
    const DELETES: [&[u8]; 6] = [b"del", b"delete", b"remove", b"d", b"unlink", b"evict"];
    match name {
        b"get" => return Some(Op::Read),
        b"set" => return Some(Op::Write),
        _ => {}
    }
    let is = |names: &[&[u8]]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
    if is(&READS) {
        Some(Op::Read)
    } else if is(&WRITES) {
        Some(Op::Write)
    } else if is(&DELETES) {
        Some(Op::Delete)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_microseconds() {
        for (text, us) in [
            ("0", 0),
            ("1", 1_000_000),
            ("0.242639", 242_639),
            ("12.5", 12_500_000),
            ("3.0000019", 3_000_001),
            ("4.", 4_000_000),
        ] {
            assert_eq!(parse_seconds_us(text.as_bytes()), Some(us), "{text}");
        }
        for text in ["", "-1", "1e3", "1.x", "99999999999999999"] {
            assert_eq!(parse_seconds_us(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn sizes_say_what_is_wrong() {
        assert_eq!(parse_size(b"12"), Ok(Some(12)));
        assert_eq!(parse_size(b""), Ok(None));
        assert_eq!(parse_size(b"-3"), Err("size '-3' is negative".to_owned()));
        assert!(parse_size(b"3k").unwrap_err().contains("not a number of bytes"));
    }

    #[test]
    fn operations_in_many_names() {
        for (name, op) in
            [("get", Op::Read), ("GETS", Op::Read), ("Write", Op::Write), ("cas", Op::Write), ("del", Op::Delete)]
        {
            assert_eq!(parse_op(name.as_bytes()), Some(op));
        }
        assert_eq!(parse_op(b"fly"), None);
    }
}
