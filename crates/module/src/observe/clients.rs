//! Which logical database a command is for, and, where tenants are users, which user sends it.
//!
//! A filter is not told. From API 7.2 on it knows the client's id, by which the server can be asked (about 0.2 µs),
//! so the answers are kept in a small table until the client does something that may change its database or its user.
//! Scripts and other modules act through clients that can't be looked up: they are in the database of the client that
//! called them, and that client's user acts. A queued `SELECT`, or a script's, is believed: what follows it runs
//! after it. On Redis 7.0 there is no id: with one database in use it is that one, with several the answer is `None`
//! and the caller finds it elsewhere.

use super::owners::{NOBODY, Owners, User};
use super::slots::Sender;
use crate::ffi::context::own_context;
use crate::ffi::filter::FilterCall;

const SLOTS: usize = 1024;

#[derive(Clone, Copy)]
struct Slot {
    client_id: u64,
    db: u16,
    user: User,
    sender: Sender,
}

const EMPTY: Slot = Slot { client_id: 0, db: 0, user: NOBODY, sender: Sender::Other };

/// The table. 16 KiB.
pub struct Clients {
    slots: Vec<Slot>,
    /// Clients of the table may have gone to other databases since.
    are_unsure: bool,
    /// The database of the last command whose client is known.
    last_db: u16,
    /// Who sent it.
    last_user: User,
    /// On a replica of a cluster, in whose name.
    last_sender: Sender,
    /// This is one: clients are asked whether they are readers.
    is_replica: bool,
    /// A client has said `READONLY`.
    any_reads: bool,
    /// The server's filters don't tell who sends a command.
    ids_missing: bool,
    /// The one database in use, where there is only one.
    only_db: Option<u16>,
    dbs_in_use: Vec<u16>,
}

impl Clients {
    /// A table that knows no client.
    pub fn new() -> Self {
        // Ids start at 1.
        Clients {
            slots: vec![EMPTY; SLOTS],
            are_unsure: false,
            last_db: 0,
            last_user: NOBODY,
            last_sender: Sender::Other,
            is_replica: false,
            any_reads: false,
            ids_missing: false,
            only_db: Some(0),
            dbs_in_use: vec![0],
        }
    }

    /// All clients are asked anew.
    pub fn forget(&mut self) {
        self.slots.fill(EMPTY);
        self.are_unsure = false;
        self.last_user = NOBODY;
    }

    /// Some turns' commands have run unseen: who may have gone to another database is asked anew. Where one alone
    /// holds keys nobody is, since asking all would take longer than the turns; a key in another makes them two.
    pub fn forget_places(&mut self) {
        self.are_unsure = true;
        if self.dbs_in_use.len() > 1 {
            self.forget();
        }
    }

    /// From now on places have to be right: who may have gone elsewhere is asked anew. True where there may be such.
    pub fn make_sure(&mut self) -> bool {
        let were_unsure = self.are_unsure;
        if were_unsure {
            self.forget();
        }
        were_unsure
    }

    /// This node of a cluster is a replica, or is none any more.
    pub fn follow(&mut self, is_replica: bool) {
        if std::mem::replace(&mut self.is_replica, is_replica) != is_replica {
            self.forget();
        }
    }

    /// A client says `READONLY`.
    pub fn reads(&mut self) {
        self.any_reads = true;
    }

    /// Who has sent the command that was last looked at, on a replica of a cluster.
    pub fn sender(&self) -> Sender {
        if self.ids_missing { Sender::Unknown { any_reads: self.any_reads } } else { self.last_sender }
    }

    /// True on a replica of a cluster.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica
    }

    /// The user whose commands run now; nobody outside of commands.
    #[inline]
    pub fn user(&self) -> User {
        self.last_user
    }

    /// The turn's commands have run.
    pub fn end_turn(&mut self) {
        self.last_user = NOBODY;
    }

    /// The database of the command; `None` where it can't be known. Its user has a number of `owners`, where there are.
    #[inline]
    pub fn db_of(&mut self, call: &FilterCall, owners: Option<&mut (dyn Owners + 'static)>) -> Option<u16> {
        let Some(id) = call.client_id() else {
            self.ids_missing = true;
            return self.only_db;
        };
        let slot = &mut self.slots[id as usize % SLOTS];
        if slot.client_id != id {
            match call.client(id) {
                Some(client) => {
                    let sender = if self.is_replica { sender_of(call, id) } else { Sender::Other };
                    *slot = Slot { client_id: id, db: client.db, user: user_of(call, id, owners), sender };
                }
                None => return Some(self.last_db),
            }
        }
        (self.last_db, self.last_user, self.last_sender) = (slot.db, slot.user, slot.sender);
        Some(slot.db)
    }

    /// The command may change its client's database or user, the first to `selected` where it says which: ask again
    /// at the next one, or, where it can't be accessed, take its word.
    pub fn may_move(&mut self, call: &FilterCall, selected: Option<u16>) {
        let Some(id) = call.client_id() else { return };
        let slot = &mut self.slots[id as usize % SLOTS];
        if slot.client_id == id {
            slot.client_id = 0;
        }
        match (call.client(id), selected) {
            (Some(client), Some(db)) if client.in_multi => *slot = Slot { client_id: id, db, ..*slot },
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
            self.forget();
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

/// Who a client is to a replica of a cluster. A call of the server, some µs.
fn sender_of(call: &FilterCall, client_id: u64) -> Sender {
    let id = client_id.to_string();
    let reply = own_context(call).and_then(|mut server| server.call(c"CLIENT", &[b"LIST", b"ID", id.as_bytes()]));
    let text = reply.as_ref().and_then(|reply| reply.text()).unwrap_or_default();
    match text.split(' ').find_map(|field| field.strip_prefix("flags=")) {
        Some(flags) if flags.contains('M') => Sender::Primary,
        Some(flags) if flags.contains('r') => Sender::Reader,
        _ => Sender::Other,
    }
}

/// The user that a client has logged in as. A link to the primary has none.
fn user_of(call: &FilterCall, client_id: u64, owners: Option<&mut (dyn Owners + 'static)>) -> User {
    let named = owners.and_then(|owners| Some((call.user_name(client_id)?, owners)));
    named.map_or(NOBODY, |(name, owners)| owners.number_of(name.as_ref()))
}
