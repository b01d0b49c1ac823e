//! The keys of partitions so small that a walk through the key space rarely meets them: their names, noted as they
//! come.
//!
//! Finding K keys of one with a hundredth of all keys takes the walk a hundred times K visits, for one whose keys
//! come and go faster than any. Here its oldest goes first, unless it was accessed since (CLOCK: then it goes to the
//! back), at the cost of opening about one key; or, where a small K was chosen, the longest idle of K of them. Only
//! for those whose keys fit: where names had to be left out, those left out would never go. Memory: about 100 bytes
//! and the key's name for each, bounded by a share of the server's limit.

use std::collections::VecDeque;

use tenure_core::random::Random;
use tenure_core::units::{PARTITIONS_MAX, PartitionId};

use super::CLOCK_TICK_MS;
use crate::ffi::server::{Kind, Server, Text};

/// Names of one partition, at the most.
const NAMES_MAX: usize = 2048;
/// The names stand for the partition while it has no more than so many times as many keys.
const COVERED: f64 = 2.0;
/// All names together may take this share of the server's limit.
const LIMIT_SHARE: u64 = 256;
/// What a name takes, besides its letters, in bytes.
const NAME_BYTES: u64 = 100;
/// Partitions with a larger share of the keys than one in so many are met often enough.
const RARE_BELOW: f64 = 8.0;
/// Keys looked at for one victim.
const LOOKS_MAX: usize = 8;

/// A key that has come.
pub struct Newcomer {
    /// Its name.
    pub name: Text,
    /// Its database.
    pub db: u16,
    /// When it came.
    pub since_us: u64,
}

/// A key that may go.
pub struct Oldest {
    /// Its name.
    pub name: Text,
    /// Its database.
    pub db: u16,
    /// How long it hasn't been used, as the server tells.
    pub idle: u64,
}

/// The names. See the file's opening.
pub struct Newcomers {
    lists: Vec<VecDeque<Newcomer>>,
    len: usize,
}

impl Newcomers {
    /// No name.
    pub fn new() -> Self {
        Newcomers { lists: (0..PARTITIONS_MAX).map(|_| VecDeque::new()).collect(), len: 0 }
    }

    /// A key has come into a partition that has `keys` of its database's `all_keys`; `note` is called where it is
    /// noted.
    pub fn came(
        &mut self,
        partition: PartitionId,
        (keys, all_keys): (f64, f64),
        limit_bytes: u64,
        note: impl FnOnce() -> Newcomer,
    ) {
        let list = &mut self.lists[partition.index()];
        if keys > COVERED * NAMES_MAX as f64 || keys * RARE_BELOW > all_keys {
            // Too many to be covered, or so many that the walk meets them.
            self.len -= list.len();
            list.clear();
        } else if list.len() < NAMES_MAX && (self.len as u64 + 1) * NAME_BYTES <= limit_bytes / LIMIT_SHARE {
            list.push_back(note());
            self.len += 1;
        }
    }

    /// No name any more.
    pub fn clear(&mut self) {
        self.lists.iter_mut().for_each(VecDeque::clear);
        self.len = 0;
    }

    /// True where most of the partition's `keys` are noted: the others would never go.
    pub fn cover(&self, partition: PartitionId, keys: f64) -> bool {
        let noted = self.lists[partition.index()].len();
        noted > 0 && COVERED * noted as f64 >= keys
    }

    /// The oldest key of the partition that wasn't asked for since it came, taken off the list; `None` where the
    /// first few were all asked for or gone.
    pub fn oldest(&mut self, server: &mut Server, partition: PartitionId, now_us: u64) -> Option<Oldest> {
        let list = &mut self.lists[partition.index()];
        for _ in 0..LOOKS_MAX {
            let newcomer = list.pop_front()?;
            server.select_db(newcomer.db);
            let idle = Some(server.open_or_expire(&newcomer.name))
                .filter(|key| key.kind() != Kind::Absent)
                .map(|key| key.idle());
            let age_ms = now_us.saturating_sub(newcomer.since_us) / 1000;
            match idle {
                Some(idle) if idle + CLOCK_TICK_MS < age_ms => {
                    list.push_back(Newcomer { since_us: now_us, ..newcomer });
                    continue;
                }
                _ => self.len -= 1,
            }
            if let Some(idle) = idle {
                return Some(Oldest { name: newcomer.name, db: newcomer.db, idle });
            }
        }
        None
    }

    /// The longest idle of `k` keys of the partition, taken off the list; `None` where too many of those looked at were
    /// gone.
    pub fn oldest_of(
        &mut self,
        server: &mut Server,
        partition: PartitionId,
        k: usize,
        random: &mut Random,
    ) -> Option<Oldest> {
        let list = &mut self.lists[partition.index()];
        let mut oldest: Option<(usize, u64)> = None;
        let mut met = 0;
        for _ in 0..k + LOOKS_MAX {
            if met == k || list.is_empty() {
                break;
            }
            let at = random.below(list.len() as u64) as usize;
            server.select_db(list[at].db);
            let key = server.open_or_expire(&list[at].name);
            if key.kind() == Kind::Absent {
                drop(key);
                list.swap_remove_back(at);
                self.len -= 1;
                // The last has its place now.
                oldest = oldest.map(|(held, idle)| (if held == list.len() { at } else { held }, idle));
                continue;
            }
            met += 1;
            oldest = oldest.filter(|(_, idle)| *idle >= key.idle()).or(Some((at, key.idle())));
        }
        let (at, idle) = oldest?;
        let Newcomer { name, db, .. } = list.swap_remove_back(at)?;
        self.len -= 1;
        Some(Oldest { name, db, idle })
    }
}
