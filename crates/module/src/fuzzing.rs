//! What reads bytes of others, for `fuzz/`: nothing may panic, and what is understood is written as it was read.

use crate::features::lessons::partitions::Lessons;
use crate::features::sleep::file::Record;
use crate::observe::classes::ClassRules;
use crate::observe::tenants::TenantSpec;

/// Settings in words of their own: tenants, and rules of classes.
pub fn texts(bytes: &[u8]) {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    match std::str::from_utf8(bytes) {
        Ok(text) if which % 2 == 0 => _ = TenantSpec::parse_for(text, 16),
        _ => _ = ClassRules::parse(bytes),
    }
}

/// What nodes of a cluster, and a primary, have learned.
pub fn messages(bytes: &[u8]) {
    if let Some(lessons) = Lessons::decode(bytes) {
        let written = lessons.encode();
        let again = Lessons::decode(&written).expect("what was written can be read");
        assert_eq!(again.encode(), written);
    }
}

/// A record of a sleeping value, or of a warm restart: as it is, and with length and checksum made right.
pub fn records(bytes: &[u8]) {
    Record::decode(bytes);
    let beginning = Record { db: 0, name: b"", payload: b"", expires_at_ms: 0, idle_seconds: 0 }.encode();
    if bytes.len() < beginning.len() {
        return;
    }
    let mut whole = bytes.to_vec();
    whole[..4].copy_from_slice(&beginning[..4]);
    whole[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    // No server has so many databases.
    whole[18..20].fill(0);
    let checksum = crc32fast::hash(&whole[8..]);
    whole[4..8].copy_from_slice(&checksum.to_le_bytes());
    if let Some(record) = Record::decode(&whole) {
        assert_eq!(record.encode(), whole);
    }
}
