//! The logical databases: which hold keys, and how many.
//!
//! `INFO keyspace` tells it of all at once, in some 5 µs. No database is turned to for that: Valkey from 9.0 on makes
//! one, in 6 KB of `maxmemory`, for whoever turns to it.

use std::ffi::CString;

use crate::ffi::load;
use crate::ffi::server::Server;
use crate::observe::DBS_MAX;

/// The logical databases. See the file's opening.
#[derive(Clone, Debug)]
pub struct Databases {
    /// Those that hold keys, with their number of keys, as of the last tick.
    pub sizes: Vec<(u16, u64)>,
    /// What INFO calls each that there is.
    names: Vec<CString>,
}

impl Databases {
    /// The server's, of which none is known to hold a key.
    pub(super) fn new() -> Databases {
        let name = |db| CString::new(format!("db{db}")).expect("there is no zero in it");
        Databases { sizes: Vec::new(), names: (0..load::databases().min(DBS_MAX)).map(name).collect() }
    }

    /// Asks which hold keys, and how many.
    pub(super) fn count(&mut self, server: &Server) {
        self.sizes.clear();
        let keyspace = server.section(c"keyspace");
        for (name, db) in self.names.iter().zip(0..) {
            if let Some(keys) = keyspace.field(name).and_then(|told| part(told, "keys")).filter(|keys| *keys > 0) {
                self.sizes.push((db, keys));
            }
        }
    }

    /// Some key expires.
    pub(super) fn any_expires(&self, server: &Server) -> bool {
        let keyspace = server.section(c"keyspace");
        self.names.iter().any(|name| keyspace.field(name).and_then(|told| part(told, "expires")).unwrap_or(0) > 0)
    }
}

/// A number of what INFO tells of a database, as in `keys=3,expires=1,avg_ttl=0`.
fn part(told: &str, name: &str) -> Option<u64> {
    told.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_info_tells_of_a_database_is_read() {
        let told = "keys=46801,expires=7,avg_ttl=0,keys_with_volatile_items=2";
        assert_eq!(
            ["keys", "expires", "avg_ttl", "key"].map(|name| part(told, name)),
            [Some(46_801), Some(7), Some(0), None]
        );
        assert_eq!((part("", "keys"), part("keys=x", "keys")), (None, None));
    }
}
