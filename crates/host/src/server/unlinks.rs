//! Keys that were removed, told to replicas and to the append-only file in as few commands as may be.

use super::{Server, Text};

/// One command tells of so many keys at the most.
const UNLINKS_MAX: usize = 256;

/// Keys that were removed, of which nobody was told yet.
pub struct Unlinks {
    /// Where they were.
    pub(super) db: u16,
    pub(super) names: Vec<Text>,
}

impl Unlinks {
    /// The key was removed from the selected database, which is `db`.
    pub fn add(&mut self, server: &mut Server, db: u16, name: Text) {
        if db != self.db || self.names.len() == UNLINKS_MAX {
            self.tell(server);
            server.select_db(db);
            self.db = db;
        }
        self.names.push(name);
    }

    /// One command for all. In a cluster one for each: keys of several slots may go different ways.
    pub(super) fn tell(&mut self, server: &mut Server) {
        if self.names.is_empty() {
            return;
        }
        server.select_db(self.db);
        if self.names.len() == 1 || server.flags().is_cluster() {
            self.names.iter().for_each(|name| server.replicate_unlink(name));
        } else {
            server.replicate_texts(c"UNLINK", &self.names);
        }
        self.names.clear();
    }
}
