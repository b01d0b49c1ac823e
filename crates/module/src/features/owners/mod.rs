//! Users of the server's access control lists as tenants: whose each key is, and whose a key of nobody becomes.
//!
//! The table of owners (`table`) is shared with the partitions, which are told by it; all else is here. Keys of
//! nobody that a tenant's user asks for are noted as the command comes (`claims`), and looked at as the turn ends.

mod claims;
mod table;

use std::cell::RefCell;
use std::rc::Rc;

use tenure_core::units::KeyHash;

use self::claims::{Claim, Claims};
use self::table::Table;
use crate::feature::{Event, Feature, Report, Turn, Wants};
use crate::ffi::acl;
use crate::ffi::filter::FilterCall;
use crate::ffi::info::Value;
use crate::ffi::module::DataChange;
use crate::ffi::server::Kind;
use crate::observe::command_table::Entry;
use crate::observe::owners::{Owners, User};
use crate::tenure::Tenure;

/// The table, as the partitions hold it.
#[derive(Clone, Debug, Default)]
struct Shared(Rc<RefCell<Table>>);

impl Owners for Shared {
    fn number_of(&mut self, name: &[u8]) -> User {
        self.0.borrow_mut().number_of(name)
    }

    fn of(&self, db: u16, key: KeyHash) -> User {
        self.0.borrow().of(db, key)
    }

    fn set(&mut self, db: u16, key: KeyHash, user: User) {
        self.0.borrow_mut().set(db, key, user);
    }

    fn remove(&mut self, db: u16, key: KeyHash) {
        self.0.borrow_mut().remove(db, key);
    }
}

/// The feature. See the file's opening.
pub struct UsersAsTenants {
    /// Where tenants are users.
    table: Option<Shared>,
    /// Keys of nobody that this turn's commands ask for.
    claims: Claims,
    /// There are keys of nobody, as of the last tick.
    any_unowned: bool,
    /// Which settings were taken.
    settings_version: u64,
}

impl UsersAsTenants {
    /// There are none before the settings say so.
    pub fn new() -> UsersAsTenants {
        UsersAsTenants { table: None, claims: Claims::default(), any_unowned: false, settings_version: u64::MAX }
    }

    /// All users are numbered, so that one that becomes a tenant later has the keys it created.
    fn take_settings(&mut self, tenure: &mut Tenure) {
        self.settings_version = tenure.settings_version;
        let users = tenure.observer.partitions.tenants().users();
        self.table = (!users.is_empty()).then(|| self.table.take().unwrap_or_default());
        if let Some(table) = &self.table {
            table.0.borrow_mut().know(users.iter().map(|(name, _)| name.as_bytes()));
        }
        self.claims.clear();
        tenure.observer.set_owners(self.table.clone().map(|table| -> Box<dyn Owners> { Box::new(table) }));
    }

    /// Keys of nobody that tenants' users have asked for in this turn are theirs now, where they are there and the
    /// users may use them: a command that was refused was seen as well.
    fn settle_claims(&mut self, Turn { server, tenure, .. }: &mut Turn) {
        let Some(table) = self.table.as_ref().filter(|_| !self.claims.is_empty()) else { return };
        for (Claim { db, user, .. }, key) in self.claims.iter() {
            let owner = table.0.borrow().name_of(user).and_then(|name| acl::User::named(&server.text(name)));
            let Some(owner) = owner else { continue };
            let name = server.text(key);
            server.select_db(db);
            if tenure.observer.partitions.may_claim(db, KeyHash::of(key), user)
                && owner.may_use(&name)
                && server.open(&name).kind() != Kind::Absent
            {
                tenure.reassign(db, key, true, |partitions| partitions.created(db, key, user));
            }
        }
        self.claims.clear();
    }
}

impl Feature for UsersAsTenants {
    /// Who has written a key alone tells whose it is.
    fn wants(&self) -> Wants {
        Wants::WRITERS.when(self.table.is_some()) | (Wants::SEEN_COMMANDS | Wants::TURNS).when(self.any_unowned)
    }

    fn command(&mut self, tenure: &mut Tenure, call: &mut FilterCall, command: Option<Entry>) {
        let Some(command) = command.filter(|_| self.any_unowned) else { return };
        let claims = &mut self.claims;
        tenure.observer.for_each_key(call, command, |partitions, (db, key), user| {
            if partitions.may_claim(db, KeyHash::of(key), user) {
                claims.note(db, key, user);
            }
        });
    }

    fn end_turn(&mut self, turn: &mut Turn) {
        self.settle_claims(turn);
    }

    fn tick(&mut self, turn: &mut Turn) {
        let keys = turn.tenure.all_keys();
        self.any_unowned = self.table.as_ref().is_some_and(|table| {
            let mut table = table.0.borrow_mut();
            table.bound(keys);
            keys > table.keys()
        });
    }

    fn event(&mut self, turn: &mut Turn, event: &Event) {
        match (event, &self.table) {
            (Event::Configured, _) if self.settings_version != turn.tenure.settings_version => {
                self.take_settings(turn.tenure);
            }
            (Event::DataSet(change), Some(table)) => match change {
                DataChange::Emptied(db) => table.0.borrow_mut().forget(*db),
                DataChange::Loaded | DataChange::Replaced => table.0.borrow_mut().forget(None),
                DataChange::Swapped(one, other) => table.0.borrow_mut().swap(*one, *other),
                DataChange::OtherRole => {}
            },
            _ => {}
        }
    }

    fn report(&self, _: &Tenure, report: &mut Report) {
        let of = |figure: fn(&Table) -> u64| self.table.as_ref().map_or(0, |table| figure(&table.0.borrow()));
        let fields = [("owned_keys", of(Table::keys)), ("owners_bytes", of(Table::memory_bytes))];
        report.info.extend(fields.map(|(name, count)| (name.to_owned(), Value::Count(count))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::classes::Classes;
    use crate::observe::keys::Keys;
    use crate::observe::owners::NOBODY;
    use crate::observe::partitions::Partitions;
    use crate::observe::tenants::{TenantSpec, Tenants};
    use tenure_core::departure::Departure;
    use tenure_core::units::PartitionId;

    fn partitions(spec: &str, owners: Option<Box<dyn Owners>>) -> Partitions {
        let tenants = Tenants::new(&TenantSpec::parse(spec).unwrap());
        Partitions::new(tenants, Classes::default(), Keys::default(), owners)
    }

    #[test]
    fn a_key_is_its_creators_and_one_of_nobody_who_asks_for_it() {
        let mut shared = Shared::default();
        let [alice, bob, eve] = [&b"alice"[..], b"bob", b"eve"].map(|name| shared.number_of(name));
        let mut divided = partitions("alice=user:alice bob=user:bob", Some(Box::new(shared)));
        let (key, hash) = (&b"k"[..], || KeyHash::of(b"k"));
        assert_eq!(divided.of(0, key), PartitionId(2));
        assert_eq!(divided.of_accessed(0, key, hash, bob), PartitionId(1));
        assert!(divided.may_claim(0, hash(), bob) && !divided.may_claim(0, hash(), eve));
        divided.created(0, key, alice);
        assert_eq!(divided.of_accessed(0, key, hash, bob), PartitionId(0));
        assert!(!divided.may_claim(0, hash(), bob));
        assert_eq!(divided.owner_of(0, key), alice);
        divided.gone(0, hash, Departure::default());
        assert_eq!(divided.owner_of(0, key), NOBODY);
        divided.created(0, key, eve);
        assert_eq!(divided.of_accessed(0, key, hash, bob), PartitionId(2), "a user who is no tenant has it");
        // Eve becomes a tenant: what she created is hers.
        let mut divided = partitions("eve=user:eve", divided.owners);
        assert_eq!((divided.of(0, key), divided.names()[0].as_str()), (PartitionId(0), "eve"));
        assert!(partitions("", divided.owners).owners.is_none());
    }
}
