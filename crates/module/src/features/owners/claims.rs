//! Keys of nobody that a tenant's user asks for: noted as the command comes, looked at as the turn ends, when it has
//! run.
//!
//! Only a key that is there then, and that the user may use, becomes the user's. Allocated once: 64 keys and 8 KiB of
//! names a turn; what comes beyond that is noted when it is accessed again. Nothing is noted where all keys' owners
//! are known.

use crate::observe::owners::User;

const CLAIMS: usize = 64;
const KEY_BYTES: usize = 8 << 10;

/// A key and who asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Its database.
    pub db: u16,
    /// Who asks.
    pub user: User,
    start: u32,
    len: u32,
}

/// The keys of one turn. See the file's opening.
#[derive(Debug, Default)]
pub struct Claims {
    claims: Vec<Claim>,
    keys: Vec<u8>,
}

impl Claims {
    /// Notes one, where there is room.
    pub fn note(&mut self, db: u16, key: &[u8], user: User) {
        if self.claims.len() >= CLAIMS || self.keys.len() + key.len() > KEY_BYTES {
            return;
        }
        if self.claims.capacity() == 0 {
            (self.claims, self.keys) = (Vec::with_capacity(CLAIMS), Vec::with_capacity(KEY_BYTES));
        }
        self.claims.push(Claim { db, user, start: self.keys.len() as u32, len: key.len() as u32 });
        self.keys.extend_from_slice(key);
    }

    /// True where nothing was noted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// All that was noted, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Claim, &[u8])> {
        self.claims.iter().map(|claim| (*claim, &self.keys[claim.start as usize..][..claim.len as usize]))
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        self.claims.clear();
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_not_noted() {
        let mut claims = Claims::default();
        claims.note(0, &[b'k'; KEY_BYTES + 1], 1);
        assert!(claims.is_empty());
        (0..100).for_each(|i| claims.note(i, format!("key{i}").as_bytes(), 2));
        assert_eq!(claims.iter().count(), CLAIMS);
        let (claim, key) = claims.iter().nth(63).unwrap();
        assert_eq!((claim.db, claim.user, key), (63, 2, &b"key63"[..]));
        claims.clear();
        assert!(claims.is_empty());
    }
}
