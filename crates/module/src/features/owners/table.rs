//! Whose each key is, where tenants are users of the server's access control lists: the user's whose connection
//! created it.
//!
//! The number of its creator is noted as a key comes into being, in a table that grows with the keys (`OwnerTable`),
//! and dropped as it goes; what others write into it later doesn't change whose it is. Of keys that were there before
//! (a data set that was loaded, tenants by user that were set just now) nobody knows: such a key is the first
//! tenant's whose user asks for it, and may (see `claims`). All users are numbered, so that one that becomes a tenant
//! later has the keys it created.

use tenure_core::owner_table::OwnerTable;
use tenure_core::units::KeyHash;

use crate::observe::owners::{NOBODY, User};

/// One of those that no number was left for.
const SOMEBODY: User = User::MAX;
const USERS_MAX: usize = SOMEBODY as usize - 1;
/// With more entries than this beside twice the keys, most are of keys that went without an event.
const STRAY_KEYS_MAX: u64 = 1 << 14;

/// Users by number, and keys by user. See the file's opening.
#[derive(Debug, Default)]
pub struct Table {
    /// The first has number 1.
    names: Vec<Box<[u8]>>,
    /// By database.
    tables: Vec<OwnerTable>,
}

impl Table {
    /// The number of the user of that name.
    pub fn number_of(&mut self, name: &[u8]) -> User {
        let at = self.names.iter().position(|held| **held == *name).or_else(|| {
            (self.names.len() < USERS_MAX).then(|| {
                self.names.push(name.into());
                self.names.len() - 1
            })
        });
        at.map_or(SOMEBODY, |at| at as User + 1)
    }

    /// The user of that number.
    pub fn name_of(&self, user: User) -> Option<&[u8]> {
        self.names.get(usize::from(user).checked_sub(1)?).map(|name| &**name)
    }

    /// Each of these users has a number of its own; where there is none left, nothing is known of any key.
    pub fn know<'a>(&mut self, users: impl Iterator<Item = &'a [u8]> + Clone) {
        if users.clone().any(|name| self.number_of(name) == SOMEBODY) {
            *self = Table { names: users.map(Box::from).collect(), tables: Vec::new() };
        }
    }

    /// Whose a key is; [`NOBODY`]'s where that isn't known.
    #[inline]
    pub fn of(&self, db: u16, key: KeyHash) -> User {
        self.tables.get(usize::from(db)).map_or(NOBODY, |table| table.get(key))
    }

    /// The key is `user`'s from now on.
    pub fn set(&mut self, db: u16, key: KeyHash, user: User) {
        let db = usize::from(db);
        if self.tables.len() <= db && user != NOBODY {
            self.tables.resize_with(db + 1, OwnerTable::new);
        }
        if let Some(table) = self.tables.get_mut(db) {
            table.set(key, user);
        }
    }

    /// The key is no more.
    pub fn remove(&mut self, db: u16, key: KeyHash) {
        if let Some(table) = self.tables.get_mut(usize::from(db)) {
            table.remove(key);
        }
    }

    /// A database was emptied, or all were.
    pub fn forget(&mut self, db: Option<u16>) {
        match db {
            None => self.tables.clear(),
            Some(db) => {
                if let Some(table) = self.tables.get_mut(usize::from(db)) {
                    *table = OwnerTable::new();
                }
            }
        }
    }

    /// Two databases have changed places.
    pub fn swap(&mut self, one: u16, other: u16) {
        let most = usize::from(one.max(other));
        if self.tables.len() <= most {
            self.tables.resize_with(most + 1, OwnerTable::new);
        }
        self.tables.swap(usize::from(one), usize::from(other));
    }

    /// Where far more keys are noted than the `keys` there are, most have gone without an event (by another module):
    /// then all is forgotten. True where that happened.
    pub fn bound(&mut self, keys: u64) -> bool {
        let is_stray = self.keys() > 2 * keys + STRAY_KEYS_MAX;
        if is_stray {
            self.forget(None);
        }
        is_stray
    }

    /// Keys whose owner is known.
    pub fn keys(&self) -> u64 {
        self.tables.iter().map(|table| table.len() as u64).sum()
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.tables.iter().map(OwnerTable::memory_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_of_a_database_and_databases_change_places() {
        let mut owners = Table::default();
        let (alice, bob) = (owners.number_of(b"alice"), owners.number_of(b"bob"));
        assert_eq!((alice, bob, owners.number_of(b"alice")), (1, 2, 1));
        let key = KeyHash::of(b"k");
        owners.set(0, key, alice);
        owners.set(3, key, bob);
        owners.set(9, key, NOBODY);
        assert_eq!([0, 3, 9, 500].map(|db| owners.of(db, key)), [alice, bob, NOBODY, NOBODY]);
        owners.swap(0, 7);
        assert_eq!((owners.of(0, key), owners.of(7, key), owners.keys()), (NOBODY, alice, 2));
        owners.forget(Some(7));
        assert_eq!((owners.of(7, key), owners.of(3, key)), (NOBODY, bob));
        [3, 7, 500].into_iter().for_each(|db| owners.remove(db, key));
        assert_eq!((owners.keys(), owners.name_of(bob), owners.name_of(NOBODY)), (0, Some(&b"bob"[..]), None));
    }

    #[test]
    fn there_are_numbers_for_tenants_whoever_has_come_before() {
        let mut owners = Table::default();
        for i in 0..300 {
            owners.number_of(format!("u{i}").as_bytes());
        }
        assert_eq!((owners.number_of(b"u0"), owners.number_of(b"u299")), (1, SOMEBODY));
        let key = KeyHash::of(b"k");
        owners.set(0, key, 1);
        owners.know([&b"u0"[..], b"u7"].into_iter());
        assert_eq!(owners.of(0, key), 1, "both had one");
        owners.know([&b"u299"[..]].into_iter());
        assert_eq!((owners.number_of(b"u299"), owners.of(0, key)), (1, NOBODY), "it started over");
    }

    #[test]
    fn what_went_unseen_does_not_pile_up() {
        let mut owners = Table::default();
        (0..STRAY_KEYS_MAX + 100).for_each(|i| owners.set(0, KeyHash::of_number(i), 1));
        assert!(!owners.bound(60));
        assert!(owners.bound(20));
        assert_eq!(owners.keys(), 0);
    }
}
