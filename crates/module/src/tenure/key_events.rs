//! Keys that come, go or become another's, one by one or with their whole data set: who is told, and the account.

use std::ffi::CStr;

use tenure_core::departure::Cause;
use tenure_core::key_table::tick;
use tenure_core::policy::density::Ranks;
use tenure_core::units::{KeyHash, PartitionId};

use super::Tenure;
use super::status::EvictionStatus;
use crate::config::Policy;
use crate::enforce::newcomers::Newcomer;
use crate::enforce::ranks;
use crate::enforce::unread::Unread;
use crate::ffi::clock::now_us;
use crate::ffi::migration::Migration;
use crate::ffi::module::DataChange;
use crate::ffi::server::{Kind, ScannedName, Server};
use crate::observe::classes::Class;
use crate::observe::partitions::{Partitions, in_database};

impl Tenure {
    /// A key came or went.
    pub fn on_key_event(&mut self, server: &mut Server, db: u16, event: &CStr, name: &ScannedName) {
        let key = name.as_ref();
        match event.to_bytes() {
            b"new" if self.observer.served.arrivals.have(key) => self.count_arrival(db, key, 1),
            b"new" => self.on_new_key(server, db, name),
            b"del" | b"rename_from" | b"move_from" => self.on_gone(db, key, Cause::Deleted),
            b"expired" => self.on_gone(db, key, Cause::Expired),
            b"evicted" => {
                self.server_has_evicted(server);
                self.on_gone(db, key, Cause::Evicted);
            }
            _ => {}
        }
    }

    fn on_gone(&mut self, db: u16, key: &[u8], cause: Cause) {
        if self.observer.served.arrivals.have(key) {
            return self.count_arrival(db, key, -1);
        }
        let partition = self.observer.partitions.of(db, key);
        self.observer.on_gone(db, key, cause);
        self.usage.went(db, partition, self.observer.known_sizes());
    }

    /// A key came into being: it is accounted for, and may be the next to go.
    fn on_new_key(&mut self, server: &mut Server, db: u16, name: &ScannedName) {
        let key = name.as_ref();
        let partition = self.observer.on_new_key(db, key, now_us);
        if self.observer.has_grown_unseen(partition) {
            self.ask_unseen(server);
        }
        self.look_at_new_key(server, partition, name);
        self.usage.came(db, partition, self.observer.known_sizes());
        if self.pressure.status != EvictionStatus::Ready {
            return;
        }
        if self.settings.policy.goes_by_age() {
            self.note_newcomer((db, partition), name);
        } else if self.settings.policy == Policy::Density
            && self.keys_go_soon(partition)
            && !self.note_unread((db, partition), name)
        {
            self.offer_new_key(server, (db, partition), name);
        }
    }

    fn count_arrival(&mut self, db: u16, key: &[u8], change: i64) {
        let partition = self.observer.partitions.of(db, key);
        self.observer.served.arrivals.count(key, (db, partition), change);
    }

    /// Slots are on their way here, or have come: then their keys are, of sizes not known.
    pub fn on_migration(&mut self, migration: Migration) {
        let Some((slots, came)) = self.observer.served.arrivals.take(migration) else { return };
        if let Some(own) = &mut self.observer.served.own {
            own.add_all(&slots);
        }
        let sizes = self.observer.known_sizes();
        came.into_iter().for_each(|((db, partition), keys)| self.usage.arrived(db, partition, keys, sizes));
    }

    /// The data set as a whole has changed, or is about to.
    pub fn on_data_change(&mut self, change: DataChange) {
        self.forget_account(change);
        let slow_collections = &mut self.observer.partitions.keys.slow_collections;
        match change {
            DataChange::Emptied(db) => slow_collections.forget(db),
            DataChange::Loaded | DataChange::Replaced => slow_collections.forget(None),
            DataChange::Swapped(one, other) => {
                [one, other].into_iter().for_each(|db| slow_collections.forget(Some(db)))
            }
            DataChange::OtherRole => {}
        }
        self.server_may_have_changed();
    }

    /// Keys that went without an event are in no account any more; those that came so are, as the walk meets them.
    fn forget_account(&mut self, change: DataChange) {
        let mut forget = |db: Option<u16>| {
            self.usage.forget(db);
            self.walk.start_over(db);
        };
        match change {
            DataChange::Emptied(db) => forget(db),
            DataChange::Swapped(one, other) => [one, other].into_iter().for_each(|db| forget(Some(db))),
            DataChange::Replaced => forget(None),
            DataChange::Loaded | DataChange::OtherRole => {}
        }
    }

    /// The first keys of a partition tell their size at once; a collection is still empty then.
    fn look_at_new_key(&mut self, server: &mut Server, partition: PartitionId, name: &ScannedName) {
        let sizes = self.observer.sizes();
        if !sizes.are_unmet(partition) {
            return;
        }
        let opened = server.open(name);
        if opened.kind() == Kind::String {
            let size_bytes = sizes.of(partition, name, || KeyHash::of(name.as_ref()), &opened);
            sizes.met(partition, size_bytes);
        }
    }

    /// A key of a partition that the walk rarely meets is noted by its name.
    fn note_newcomer(&mut self, (db, partition): (u16, PartitionId), name: &ScannedName) {
        let note = || Newcomer { name: name.keep(), db, since_us: now_us() };
        let keys = self.usage.keys_in(db, partition);
        self.evictor.newcomers.came(partition, keys, self.memory.limit_bytes, note);
    }

    /// On a busy main thread a newcomer may go later without a search. True where most victims are found so: this one
    /// need not be looked at now.
    fn note_unread(&mut self, (db, partition): (u16, PartitionId), name: &ScannedName) -> bool {
        if !self.is_thrifty() {
            return false;
        }
        let unread = &mut self.evictor.unread;
        if !unread.wants_next() {
            return false;
        }
        let came = self.observer.partitions.keys.accesses.now() as u32;
        unread.came(Unread { name: name.keep(), db, partition, came }, self.memory.limit_bytes);
        unread.is_of_use()
    }

    /// A newcomer that is worth less than what was met goes before it. It was met without a search, too.
    fn offer_new_key(&mut self, server: &mut Server, (db, partition): (u16, PartitionId), name: &ScannedName) {
        if self.volatile_only() && !self.evictor.most_expire() {
            return;
        }
        // More come in a turn than go by Tenure's doing.
        if self.pressure.load.runs_out() && self.evictor.has_met_enough(partition) {
            return;
        }
        self.observer.partitions.keys.settle();
        if !self.observer.partitions.above_minimums(self.usage.bytes()).holds(partition) {
            return;
        }
        let basis = self.ranking_basis();
        let (partitions, sizes, costs) = self.observer.guides();
        let ranks = Ranks::new(basis, &self.published.learned.table, costs);
        let opened = server.open(name);
        let hash = in_database(KeyHash::of(name.as_ref()), db);
        let size_bytes = sizes.of(partition, name, || hash, &opened);
        let entry = partitions.keys.entry(hash);
        let subject = ranks::subject(&ranks, entry.as_ref(), partition, size_bytes, &opened);
        drop(opened);
        self.evictor.offer(partition, &ranks, &subject, entry.as_ref(), (name, db));
    }

    /// A key is of `class` from now on, also while it is in the cache.
    pub fn hint_key(&mut self, server: &mut Server, db: u16, key: &[u8], class: Class) {
        let (hash, now) = (in_database(KeyHash::of(key), db), tick(now_us()));
        let moved = self.observer.partitions.keys.moved;
        server.select_db(db);
        let is_there = server.open(&server.text(key)).kind() != Kind::Absent;
        let accounted = self.reassign(db, key, is_there, |partitions| partitions.keys.set_class(hash, class, now));
        if accounted {
            self.observer.partitions.keys.moved = moved;
        }
    }

    /// Changes what a key's partition is told by, and the account with it. True where the key was moved there.
    pub fn reassign(&mut self, db: u16, key: &[u8], is_there: bool, change: impl FnOnce(&mut Partitions)) -> bool {
        let partitions = &mut self.observer.partitions;
        let before = partitions.of(db, key);
        change(partitions);
        let after = partitions.of(db, key);
        let is_moved = is_there && before != after;
        if is_moved {
            self.usage.changed(db, before, after, self.observer.known_sizes());
        }
        is_moved
    }
}
