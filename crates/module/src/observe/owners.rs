//! Whose each key is, as far as partitions are told by it. Who knows is a feature (`features/owners`); without it
//! nobody's key is known.

use std::fmt::Debug;

use tenure_core::units::KeyHash;

pub use tenure_core::owner_table::Owner as User;

/// Nobody: a command whose sender isn't known, a key whose creator isn't.
pub const NOBODY: User = 0;

/// Users by number, and keys by user.
pub trait Owners: Debug {
    /// The number of the user of that name.
    fn number_of(&mut self, name: &[u8]) -> User;
    /// Whose a key is; [`NOBODY`]'s where that isn't known.
    fn of(&self, db: u16, key: KeyHash) -> User;
    /// The key is `user`'s from now on.
    fn set(&mut self, db: u16, key: KeyHash, user: User);
    /// The key is no more.
    fn remove(&mut self, db: u16, key: KeyHash);
}
