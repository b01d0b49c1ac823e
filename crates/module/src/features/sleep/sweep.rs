//! The sweep: a walk through all keys for those that are to fall asleep, database by database.

use crate::ffi::server::{ScanCursor, Server};

/// The sweep under way. See the file's opening.
#[derive(Default)]
pub struct Sweep {
    number: u64,
    /// The databases that it has not ended, the last first.
    dbs: Vec<(u16, ScanCursor)>,
}

impl Sweep {
    /// The first sweep that meets every key from now on.
    pub fn next(&self) -> u64 {
        if self.is_under_way() { self.number + 1 } else { self.number }
    }

    /// True while one has keys to meet.
    pub fn is_under_way(&self) -> bool {
        !self.dbs.is_empty()
    }

    /// Databases that it has not ended.
    pub fn dbs_left(&self) -> usize {
        self.dbs.len()
    }

    /// Begins, or begins anew, with these databases and their numbers of keys.
    pub fn begin(&mut self, server: &Server, db_sizes: &[(u16, u64)]) {
        self.dbs = db_sizes.iter().map(|&(db, _)| (db, ScanCursor::new(server))).collect();
    }

    /// The database that it is in, and where; `None` at its end.
    pub fn current(&self) -> Option<(u16, &ScanCursor)> {
        self.dbs.last().map(|(db, cursor)| (*db, cursor))
    }

    /// It has met all keys of that database.
    pub fn end_db(&mut self) {
        self.dbs.pop();
    }

    /// It has met all keys: the number of the next.
    pub fn end(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}
