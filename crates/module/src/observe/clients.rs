//! Which logical database a command is for.
//!
//! A filter is not told. From API 7.2 on it knows the client's id, by which the server can be asked (about 0.2 µs), so the
//! answers are kept in a small table until the client does something that may change its database. Scripts and other modules
//! act through clients that can't be looked up: they are in the database of the client that called them. A queued `SELECT`, or a
//! script's, is believed: what follows it runs after it. On Redis 7.0 there is no id: with one database in use it is that one,
//! with several the answer is `None` and the caller finds it elsewhere.

use crate::ffi::filter::FilterCall;

const SLOTS: usize = 1024;

#[derive(Clone, Copy)]
struct Slot {
    client_id: u64,
    db: u16,
}

/// The table. 16 KiB.
pub struct ClientDbs {
    slots: Vec<Slot>,
    /// The database of the last command whose client is known.
    last_db: u16,
    /// The server's filters don't tell who sends a command.
    ids_missing: bool,
    /// The one database in use, where there is only one.
    only_db: Option<u16>,
    dbs_in_use: Vec<u16>,
}

impl ClientDbs {
    /// A table that knows no client.
    pub fn new() -> Self {
        // Ids start at 1.
        let slots = vec![Slot { client_id: 0, db: 0 }; SLOTS];
        ClientDbs { slots, last_db: 0, ids_missing: false, only_db: Some(0), dbs_in_use: vec![0] }
    }

    /// The database of the command; `None` where it can't be known.
    #[inline]
    pub fn db_of(&mut self, call: &FilterCall) -> Option<u16> {
        let Some(id) = call.client_id() else {
            self.ids_missing = true;
            return self.only_db;
        };
        let slot = &mut self.slots[id as usize % SLOTS];
        if slot.client_id != id {
            match call.client(id) {
                Some(client) => *slot = Slot { client_id: id, db: client.db },
                None => return Some(self.last_db),
            }
        }
        self.last_db = slot.db;
        Some(slot.db)
    }

    /// The command may change its client's database, to `selected` where it says which: ask again at the next one, or, where it
    /// can't be asked for, take its word.
    pub fn may_move(&mut self, call: &FilterCall, selected: Option<u16>) {
        let Some(id) = call.client_id() else { return };
        let slot = &mut self.slots[id as usize % SLOTS];
        if slot.client_id == id {
            slot.client_id = 0;
        }
        match (call.client(id), selected) {
            (Some(client), Some(db)) if client.in_multi => *slot = Slot { client_id: id, db },
            (None, Some(db)) => self.last_db = db,
            _ => {}
        }
    }

    /// True where commands come without their database.
    pub fn are_unknown(&self) -> bool {
        self.ids_missing && self.dbs_in_use.len() > 1
    }

    /// Tells which databases hold keys; with none, it is database 0.
    pub fn set_dbs_in_use(&mut self, dbs: &[u16]) {
        if self.dbs_in_use != dbs {
            self.dbs_in_use = if dbs.is_empty() { vec![0] } else { dbs.to_vec() };
            self.only_db = if let [only] = self.dbs_in_use[..] { Some(only) } else { None };
        }
    }

    /// A key came into being in `db`: it is in use from now on, where that matters.
    pub fn met(&mut self, db: u16) {
        if self.ids_missing && !self.dbs_in_use.contains(&db) {
            self.dbs_in_use.push(db);
            self.only_db = if let [only] = self.dbs_in_use[..] { Some(only) } else { None };
        }
    }

    /// The databases that hold keys.
    pub fn dbs_in_use(&self) -> &[u16] {
        &self.dbs_in_use
    }
}
