//! What is known of this server's replicas: which ones follow the stream, and how far each has acknowledged it.
//!
//! Who there is the server is asked for (`CLIENT LIST TYPE replica`, 1.5 µs, ten times a second), and so is how long
//! the stream is, without a command; acknowledgements are read as they come, by the filter. A replica
//! follows once it has acknowledged anything: before, it is loading a snapshot, and what it is sent is of no use to
//! it should this server die.

use crate::ffi::filter::Words;
use crate::ffi::holding::Holding;
use crate::ffi::server::Server;

/// A replica that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Replica {
    client_id: u64,
    /// How far it has acknowledged the stream, in bytes, as far as was seen.
    acked: u64,
}

/// The replicas that follow the stream.
#[derive(Debug, Default)]
pub struct Replicas {
    replicas: Vec<Replica>,
}

impl Replicas {
    /// Asks the server who there is.
    pub fn refresh(&mut self, server: &mut Server) {
        let Some(reply) = server.call(c"CLIENT", &[b"LIST", b"TYPE", b"replica"]) else { return };
        self.set(reply.text().unwrap_or_default().lines().filter_map(following));
    }

    /// These follow; of those that did before, what they have acknowledged stays known.
    fn set(&mut self, client_ids: impl Iterator<Item = u64>) {
        let before = std::mem::take(&mut self.replicas);
        let known = |id| before.iter().find(|replica| replica.client_id == id).map_or(0, |replica| replica.acked);
        self.replicas = client_ids.map(|client_id| Replica { client_id, acked: known(client_id) }).collect();
    }

    /// A command that may be `REPLCONF ACK offset`. True where a replica that follows has come further.
    pub fn heard(&mut self, client_id: u64, words: &impl Words) -> bool {
        let is_ack = words.word(1).is_some_and(|word| word.eq_ignore_ascii_case(b"ack"));
        let offset = words.word(2).filter(|_| is_ack).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        let replica = self.replicas.iter_mut().find(|replica| replica.client_id == client_id);
        match (replica, offset) {
            (Some(replica), Some(offset)) if offset > replica.acked => {
                replica.acked = offset;
                true
            }
            _ => false,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.replicas.len()
    }

    /// True for a replica.
    pub fn has(&self, client_id: u64) -> bool {
        self.replicas.iter().any(|replica| replica.client_id == client_id)
    }

    /// How many of them have the whole stream in their sockets.
    pub fn n_sent(&self, server: &mut Server, holding: &Holding) -> usize {
        self.replicas.iter().filter(|replica| holding.has_pending(server, replica.client_id) == Some(false)).count()
    }

    /// How many have acknowledged the stream up to `offset`.
    pub fn n_acked(&self, offset: u64) -> usize {
        self.replicas.iter().filter(|replica| replica.acked >= offset).count()
    }
}

/// The id of a replica that follows, from its line of `CLIENT LIST`: the last that one said that follows is
/// `REPLCONF ACK`.
fn following(line: &str) -> Option<u64> {
    let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    if field("cmd")?.starts_with("replconf") { field("id")?.parse().ok() } else { None }
}

/// How long the stream is, in bytes. Where the server doesn't say, longer than any replica will ever have it.
pub fn own_offset(server: &Server) -> u64 {
    server.section(c"replication").number(c"master_repl_offset").unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line(&'static str);

    impl Words for Line {
        fn count(&self) -> usize {
            self.0.split(' ').count()
        }
        fn word(&self, i: usize) -> Option<&[u8]> {
            self.0.split(' ').nth(i).map(str::as_bytes)
        }
    }

    #[test]
    fn acknowledgements_count_of_replicas_that_follow_and_only_forwards() {
        let mut replicas = Replicas::default();
        replicas.set([7, 8].into_iter());
        assert!(replicas.heard(7, &Line("REPLCONF ACK 90")));
        assert!(!replicas.heard(9, &Line("REPLCONF ACK 99")), "nobody's");
        assert!(!replicas.heard(7, &Line("REPLCONF GETACK 99")));
        assert!(!replicas.heard(7, &Line("REPLCONF ACK")));
        assert!(!replicas.heard(7, &Line("REPLCONF ACK 80")), "backwards");
        assert!(replicas.heard(8, &Line("replconf ack 100 FACK 5")));
        assert_eq!([90, 91, 101].map(|offset| replicas.n_acked(offset)), [2, 1, 0]);
        replicas.set([8, 9].into_iter());
        assert_eq!((replicas.n_acked(1), replicas.len(), replicas.has(7)), (1, 2, false));
    }

    #[test]
    fn a_replica_that_loads_does_not_follow_yet() {
        assert_eq!(following("id=7 addr=127.0.0.1:9 name= flags=S cmd=replconf user=default lib-name="), Some(7));
        assert_eq!(following("id=8 addr=127.0.0.1:9 name=cmd flags=S cmd=psync user=default"), None);
    }
}
