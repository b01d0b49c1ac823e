//! Brings a client back to its database, on servers whose key events leave it elsewhere.
//!
//! Valkey 8.1 and 9.0 run a key event's callback as the client whose command raised it. They turn that client to the
//! event's database and don't turn it back (valkey-io/valkey#1819; mended by #4024 in 2026). So after `MOVE` or `COPY
//! … DB`, with any module that listens, the client is in another database. So on those versions the callback turns it
//! back: after `MOVE` to where the key came from, which the event before tells; after `COPY` to where the client was
//! when it sent it, which only a command filter sees. For that the filter stays, doing nothing else while commands may
//! run unseen. Not seen is a `COPY … DB` within a transaction or a script.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use super::filter::{FilterCall, Words};
use super::server::Server;

/// The server forgets to turn its clients back.
static IS_NEEDED: AtomicBool = AtomicBool::new(false);
/// A client that is being turned, and its database; ids begin at 1, and 0 is none.
static CLIENT: AtomicU64 = AtomicU64::new(0);
static DB: AtomicU16 = AtomicU16::new(0);

/// At load: whether this server needs it.
pub(super) fn look_at(server: &mut Server) {
    let version = server.info_field(c"server", c"valkey_version").unwrap_or_default();
    let is_needed = ["8.1.", "9.0."].iter().any(|of| version.starts_with(of));
    IS_NEEDED.store(is_needed, Ordering::Relaxed);
}

/// True where the filter has to see each command.
#[inline]
pub(super) fn is_needed() -> bool {
    IS_NEEDED.load(Ordering::Relaxed)
}

/// A command is about to run, or to be queued, on a server that needs this.
#[inline(never)]
pub(super) fn before_command(call: &FilterCall) {
    let copies = call.word(0).is_some_and(|name| name.eq_ignore_ascii_case(b"copy"));
    let client = call.client_id().filter(|_| copies).and_then(|id| Some((id, call.client(id)?)));
    match client.filter(|(_, client)| !client.in_multi) {
        Some((id, client)) => remember(id, client.db),
        None => CLIENT.store(0, Ordering::Relaxed),
    }
}

fn remember(client_id: u64, db: u16) {
    CLIENT.store(client_id, Ordering::Relaxed);
    DB.store(db, Ordering::Relaxed);
}

/// An event of database `db` was looked at, by which other databases may have been selected.
#[inline]
pub(super) fn after_event(server: &mut Server, db: u16, event: &[u8]) {
    if !is_needed() {
        return;
    }
    let id = server.client_id();
    if event == b"move_from" {
        remember(id, db);
    }
    let is_turned = id != 0 && CLIENT.load(Ordering::Relaxed) == id;
    server.select_db(if is_turned { DB.load(Ordering::Relaxed) } else { db });
    if event == b"move_to" {
        CLIENT.store(0, Ordering::Relaxed);
    }
}
