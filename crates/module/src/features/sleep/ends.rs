//! What ends a sleeping key's value is to clients what ends an awake key's, though the server knows of no such key.
//!
//! Where its time is over the server itself expires it, by means of an empty key made for that: its event,
//! invalidations, watchers and `expired_keys` are as ever. A value that is given up goes as one that is evicted:
//! those who watch or cache it are told, and those who listen for `evicted`. Replicas and the append-only file have
//! had it deleted since it fell asleep.

use super::file::Record;
use super::now_ms;
use super::sleepers::Sleeper;
use crate::ffi::server::{Kind, Server};

/// Tells that a value which slept is no more. About 1 µs, and 3 where the server expires it.
pub fn tell(server: &mut Server, sleeper: &Sleeper) {
    server.select_db(sleeper.db);
    let name = server.text(&sleeper.name);
    if sleeper.is_over(now_ms()) {
        return server.expire_absent(&name);
    }
    server.signal_modified(&name);
    if server.open(&name).kind() == Kind::Absent {
        server.notify_evicted(&name);
    }
}

/// Tells those who watch a key of an emptied database. The server has told those who cache any of it, and no event
/// says so of any.
pub fn tell_emptied(server: &mut Server, sleeper: &Sleeper) {
    server.select_db(sleeper.db);
    server.signal_modified(&server.text(&sleeper.name));
}

/// Keys that woke while nothing could be replicated, by database: replicas and the append-only file are still to have
/// them.
pub type Owed = Vec<(u16, Box<[u8]>)>;

/// Puts a value back into memory. While writes are paused nothing may be replicated, so that is owed until they no
/// longer are.
pub fn restore(server: &mut Server, record: &Record, owed: &mut Owed) -> bool {
    server.select_db(record.db);
    let (expires, idle) = (record.expires_at_ms.to_string(), record.idle_seconds.to_string());
    let words: [&[u8]; 6] = [record.name, expires.as_bytes(), record.payload, b"ABSTTL", b"IDLETIME", idle.as_bytes()];
    // Refused where the key is there: what is in memory is newer.
    if !server.writes_are_paused() {
        return server.call(c"RESTORE", &words).is_some_and(|reply| reply.is_ok());
    }
    let is_awake = server.call_here(c"RESTORE", &words).is_some_and(|reply| reply.is_ok());
    if is_awake {
        owed.push((record.db, record.name.into()));
    }
    is_awake
}

/// Replicates what is owed, as it is now, as soon as writes are no longer paused: before one of those held back runs,
/// as a rule, and else right after it. A server that follows another now gives up what its primary never had.
pub fn settle(server: &mut Server, owed: &mut Owed) {
    if owed.is_empty() || server.writes_are_paused() {
        return;
    }
    let is_replica = server.flags().is_replica();
    for (db, name) in std::mem::take(owed) {
        server.select_db(db);
        let text = server.text(&name);
        let key = server.open(&text);
        if is_replica {
            key.unlink();
            continue;
        }
        let (expires, idle) = (key.expires_at_ms().to_string(), (key.idle() / 1000).to_string());
        drop(key);
        let value = server.call(c"DUMP", &[&name]);
        let Some(payload) = value.as_ref().and_then(|value| value.bytes()) else {
            server.replicate_unlink(&text);
            continue;
        };
        let (expires, idle) = (expires.as_bytes(), idle.as_bytes());
        server.replicate(c"RESTORE", &[&name, expires, payload, b"REPLACE", b"ABSTTL", b"IDLETIME", idle]);
    }
    server.send_replicated();
}
