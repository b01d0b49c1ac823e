//! Which sleeping keys a command is about to touch, so that they are awake when it runs.
//!
//! A value on disk is wrong the moment its key is changed or deleted without anyone looking here, so what may name a
//! key counts as naming it: of a command with one key at a fixed place that key, of any other every word. What a
//! transaction has queued is looked at again when it runs: its keys may have fallen asleep since.

use std::collections::HashMap;

use tenure_core::units::KeyHash;

use super::ends::{self, Owed};
use super::sleepers::Sleepers;
use crate::ffi::filter::{FilterCall, Words};
use crate::ffi::server::Server;
use crate::observe::command_table::Sets;
use crate::observe::partitions::in_database;
use crate::tenure::Tenure;

/// Keys of one transaction that are remembered; of a longer one all sleepers are forgotten when it runs.
const QUEUED_MAX: usize = 10_000;

/// What a client in a transaction has named so far.
#[derive(Default)]
struct Queued {
    keys: Vec<KeyHash>,
    too_many: bool,
}

/// The sleepers, and what touches them. See the file's opening.
#[derive(Default)]
pub struct Touches {
    /// Who is asleep.
    pub sleepers: Sleepers,
    /// Keys may fall asleep.
    pub is_on: bool,
    /// Keys that the running command touches and that are asleep.
    touched: Vec<KeyHash>,
    /// It is a read of one key.
    is_read: bool,
    /// A transaction runs whose keys are not known.
    is_anything: bool,
    /// A transaction is about to run, or not, by what became of keys that are watched.
    is_exec: bool,
    /// What woke while writes were paused.
    pub owed: Owed,
    transactions: HashMap<u64, Queued>,
    /// How often commands had gone unseen when the first of them began.
    gaps: u64,
}

/// What a command touches of the sleepers.
pub struct Touched {
    /// Which keys.
    pub keys: Vec<KeyHash>,
    /// The command reads this one key, and that is all it does.
    pub is_read: bool,
    /// Any key may be touched.
    pub is_anything: bool,
    /// The command is `EXEC`.
    pub is_exec: bool,
}

/// With a whole database.
impl Touches {
    /// What slept in a database is no more, or in any.
    pub fn forget_database(&mut self, server: &mut Server, db: Option<u16>) {
        let is_gone = |db_of: u16| db.is_none_or(|db| db_of == db);
        let Touches { sleepers, owed, .. } = self;
        owed.retain(|(db, _)| !is_gone(*db));
        sleepers.forget_where(|sleeper| is_gone(sleeper.db), |sleeper| ends::tell_emptied(server, sleeper));
    }

    /// Databases have changed places: who sleeps is given up, of all of them.
    pub fn swap_databases(&mut self, one: u16, other: u16) {
        let Touches { sleepers, owed, .. } = self;
        sleepers.give_up_all();
        for (db, _) in owed {
            *db = match *db {
                db if db == one => other,
                db if db == other => one,
                db => db,
            };
        }
    }
}

impl Touches {
    /// True where words have to be looked at.
    fn are_wanted(&self) -> bool {
        self.sleepers.any() || !self.transactions.is_empty()
    }

    /// A command has its one key at this place; `is_read` where it reads that key and does nothing else.
    pub fn key(&mut self, tenure: &mut Tenure, call: &FilterCall, position: usize, is_read: bool) {
        if self.are_wanted()
            && let (Some(key), Some(db)) = (call.word(position), tenure.observer.db_of(call))
        {
            self.named(call.client_id(), key, db, is_read);
        }
    }

    /// Any word of a command may name a key.
    pub fn all_words(&mut self, tenure: &mut Tenure, call: &FilterCall) {
        if !self.are_wanted() {
            return;
        }
        let Some(db) = tenure.observer.db_of(call) else { return };
        for word in (1..call.count()).filter_map(|i| call.word(i)) {
            self.named(call.client_id(), word, db, false);
        }
    }

    /// What is queued now runs later. Of transactions that were under way when commands went unseen, `gaps` times so
    /// far, nobody knows what they have named.
    pub fn follow_transactions(&mut self, call: &FilterCall, sets: Sets, gaps: u64) {
        self.note_gaps(gaps);
        let (Some(name), Some(client_id)) = (call.word(0), call.client_id()) else { return };
        if sets == Sets::RunsQueued {
            self.exec(client_id, || call.client(client_id).is_some_and(|client| client.in_multi));
        } else if name.eq_ignore_ascii_case(b"multi") {
            self.multi(client_id);
        } else if name.eq_ignore_ascii_case(b"discard") || name.eq_ignore_ascii_case(b"reset") {
            self.discard(client_id);
        }
    }

    /// A command names what may be a key; `is_read` where it reads that key and does nothing else.
    fn named(&mut self, client_id: Option<u64>, word: &[u8], db: u16, is_read: bool) {
        let key = in_database(KeyHash::of(word), db);
        if self.sleepers.knows(key, db, word) {
            self.touched.push(key);
            self.is_read = is_read && self.touched.len() == 1;
        }
        if let Some(queued) = client_id.and_then(|id| self.transactions.get_mut(&id)) {
            if queued.keys.len() < QUEUED_MAX {
                queued.keys.push(key);
            } else {
                queued.too_many = true;
            }
        }
    }

    fn note_gaps(&mut self, gaps: u64) {
        if gaps != self.gaps {
            self.gaps = gaps;
            self.transactions.clear();
        }
    }

    /// A client begins a transaction.
    fn multi(&mut self, client_id: u64) {
        if self.is_on {
            self.transactions.insert(client_id, Queued::default());
        }
    }

    /// A client runs its transaction. Where its beginning was not seen, `is_in_multi` says whether there is one.
    fn exec(&mut self, client_id: u64, is_in_multi: impl FnOnce() -> bool) {
        self.is_exec = self.sleepers.any();
        match self.transactions.remove(&client_id) {
            Some(queued) => {
                self.is_anything |= queued.too_many;
                let asleep = queued.keys.into_iter().filter(|key| self.sleepers.knows_hash(*key));
                self.touched.extend(asleep);
                self.is_read = false;
            }
            None => self.is_anything |= self.sleepers.any() && is_in_multi(),
        }
    }

    /// A client has gone, or has given its transaction up.
    pub fn discard(&mut self, client_id: u64) {
        self.transactions.remove(&client_id);
    }

    /// What the command that was just looked at touches, once.
    pub fn take(&mut self) -> Option<Touched> {
        if self.touched.is_empty() && !self.is_anything && !self.is_exec {
            return None;
        }
        Some(Touched {
            keys: std::mem::take(&mut self.touched),
            is_read: std::mem::take(&mut self.is_read),
            is_anything: std::mem::take(&mut self.is_anything),
            is_exec: std::mem::take(&mut self.is_exec),
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::units::PartitionId;

    use super::*;
    use crate::features::sleep::file::Place;
    use crate::features::sleep::sleepers::Sleeper;

    fn fall_asleep(touches: &mut Touches, name: &[u8]) {
        let place = Place { segment: 1, offset: 0, len: 1 };
        let partition = PartitionId(0);
        let sleeper = Sleeper { db: 0, name: name.into(), place, expires_at_ms: 0, partition, owner: 0 };
        touches.sleepers.add(KeyHash::of(name), sleeper);
    }

    #[test]
    fn what_a_transaction_queued_is_woken_when_it_runs() {
        let mut touches = Touches { is_on: true, ..Touches::default() };
        touches.multi(7);
        touches.named(Some(7), b"k", 0, true);
        assert!(touches.take().is_none(), "awake when it was queued");
        fall_asleep(&mut touches, b"k");
        touches.exec(7, || true);
        let touched = touches.take().unwrap();
        assert_eq!((touched.keys.len(), touched.is_read, touched.is_anything), (1, false, false));
        touches.exec(8, || true);
        assert!(touches.take().unwrap().is_anything, "its beginning was not seen");
        touches.multi(7);
        touches.named(Some(7), b"l", 0, true);
        touches.note_gaps(1);
        touches.exec(7, || true);
        assert!(touches.take().unwrap().is_anything, "some of it may not have been seen");
        touches.exec(9, || false);
        assert!(!touches.take().unwrap().is_anything, "there is none");
    }

    #[test]
    fn a_read_of_one_key_is_told_from_others() {
        let mut touches = Touches::default();
        fall_asleep(&mut touches, b"a");
        fall_asleep(&mut touches, b"b");
        touches.named(None, b"a", 0, true);
        assert!(touches.take().unwrap().is_read);
        touches.named(None, b"a", 0, false);
        touches.named(None, b"b", 0, false);
        touches.named(None, b"c", 0, false);
        let touched = touches.take().unwrap();
        assert_eq!((touched.keys.len(), touched.is_read), (2, false));
        touches.named(None, b"a", 1, true);
        assert!(touches.take().is_none(), "another database's");
    }
}
