//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes.
//!
//! Each holds a u32 time in seconds, a u64 object number, a u32 size and an i64, the position of the next access to
//! the object, which is not used: the clairvoyant policies here look ahead by themselves. The key is the number's
//! decimal text.

use super::row::Row;

/// Bytes per record.
pub(super) const RECORD_BYTES: usize = 24;

/// Reads one record.
pub(super) fn parse(record: &[u8], row: &mut Row) -> Result<(), String> {
    let Ok(record) = <&[u8; RECORD_BYTES]>::try_from(record) else {
        return Err(format!("the trace breaks off: {} bytes of a record of {RECORD_BYTES}", record.len()));
    };
    let number = |from: usize, bytes: usize| {
        record[from..from + bytes].iter().rev().fold(0u64, |value, &b| value << 8 | u64::from(b))
    };
    row.time_us = number(0, 4) * 1_000_000;
    push_decimal(number(4, 8), &mut row.key);
    row.size_bytes = Some(number(12, 4));
    Ok(())
}

/// Appends `number` in decimal.
pub(super) fn push_decimal(mut number: u64, text: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

/// True where `start`, the beginning of a trace, looks like records of this kind: binary, in order of time, with
/// sizes above 0 and positions ahead (or none, which is -1 or the largest number).
pub(super) fn looks_like(start: &[u8]) -> bool {
    let text = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
    let n = start.len() / RECORD_BYTES;
    n > 0 && start.iter().any(|b| !text(b)) && times(start).is_sorted()
}

fn times(start: &[u8]) -> impl Iterator<Item = u32> + '_ {
    start.chunks_exact(RECORD_BYTES).map(|r| u32::from_le_bytes([r[0], r[1], r[2], r[3]]))
}
