//! First parts of keys that are tenants: what stands before the first delimiter, as in `shop:1`, and whose it is; and
//! how much those are accessed that are none.
//!
//! A tenant's name is its first part with a `*` behind it, which no tenant of `tenure.tenants` may have; bytes that
//! would break a line of INFO are written as `%3A`. Cost of asking: a look for the delimiter in the key's first
//! bytes, a hash of what stands before it, and mostly one place in a table of 256.

use tenure_core::frequent::{Frequent, NAME_BYTES_MAX};
use tenure_core::units::{KeyHash, TenantId};

const PLACES: usize = 256;
const FREE: u8 = u8::MAX;

/// Which first parts are tenants. See the file's opening.
#[derive(Clone, Debug)]
pub struct FirstParts {
    delimiter: Vec<u8>,
    held: Vec<(KeyHash, Vec<u8>, TenantId)>,
    /// Where in `held` a hash is: open addressing, which 64 of 256 keep short.
    places: [u8; PLACES],
    /// Those that are no tenants.
    pub nobodys: Frequent,
}

impl FirstParts {
    /// None yet; `None` without a delimiter.
    pub fn new(delimiter: &str) -> Option<FirstParts> {
        let none = || FirstParts {
            delimiter: delimiter.into(),
            held: Vec::new(),
            places: [FREE; PLACES],
            nobodys: Frequent::default(),
        };
        (!delimiter.is_empty()).then(none)
    }

    /// What stands before the delimiter; `None` where there is none, or only after more bytes than a name may have.
    #[inline]
    pub fn part_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let looked_at = &key[..key.len().min(NAME_BYTES_MAX + self.delimiter.len())];
        let at = match self.delimiter[..] {
            [only] => looked_at.iter().position(|&byte| byte == only),
            _ => looked_at.windows(self.delimiter.len()).position(|bytes| bytes == self.delimiter),
        };
        at.map(|at| &key[..at])
    }

    /// The tenant that a key's first part is.
    #[inline]
    pub fn tenant_of(&self, key: &[u8]) -> Option<TenantId> {
        let part = self.part_of(key)?;
        let hash = KeyHash::of(part);
        let mut place = hash.0 as usize % PLACES;
        while let Some((held, _, tenant)) = self.held.get(usize::from(self.places[place])) {
            if *held == hash {
                return Some(*tenant);
            }
            place = (place + 1) % PLACES;
        }
        None
    }

    /// A key is accessed whose first part is no tenant.
    #[inline(never)]
    pub fn count_nobodys(&mut self, key: &[u8]) {
        if let Some(part) = self.part_of(key) {
            self.nobodys.count(part);
        }
    }

    /// The first part is that tenant from now on, which may have been another.
    pub fn put(&mut self, part: &[u8], tenant: TenantId) {
        self.held.retain(|(_, _, held)| *held != tenant);
        self.held.push((KeyHash::of(part), part.to_vec(), tenant));
        self.places = [FREE; PLACES];
        for (i, (hash, ..)) in self.held.iter().enumerate() {
            let mut place = hash.0 as usize % PLACES;
            while self.places[place] != FREE {
                place = (place + 1) % PLACES;
            }
            self.places[place] = i as u8;
        }
    }

    /// The tenants that first parts are.
    pub fn tenants(&self) -> impl Iterator<Item = TenantId> {
        self.held.iter().map(|(_, _, tenant)| *tenant)
    }
}

/// The name of the tenant that a first part is.
pub fn name_of(part: &[u8]) -> String {
    let mut name = String::with_capacity(part.len() + 1);
    for &byte in part {
        match byte {
            b'!'..=b'~' if !b"#%*,/:=\"'\\".contains(&byte) => name.push(char::from(byte)),
            _ => name += &format!("%{byte:02X}"),
        }
    }
    name + "*"
}

/// The first part of the tenant that has that name; `None` where it is no such tenant's.
pub fn part_named(name: &str) -> Option<Vec<u8>> {
    let mut bytes = name.strip_suffix('*')?.bytes();
    let mut part = Vec::new();
    while let Some(byte) = bytes.next() {
        part.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    (part.len() <= NAME_BYTES_MAX).then_some(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_part_ends_at_the_first_delimiter() {
        let of = |delimiter: &str, key: &str| {
            let parts = FirstParts::new(delimiter).unwrap();
            parts.part_of(key.as_bytes()).map(|part| String::from_utf8(part.to_vec()).unwrap())
        };
        let some = |part: &str| Some(part.to_owned());
        assert_eq!(of(":", "shop:1:2"), some("shop"));
        assert_eq!(of(":", ":1"), some(""));
        assert_eq!((of(":", "shop"), of(":", "")), (None, None));
        assert_eq!(of("::", "a:b::c"), some("a:b"));
        assert_eq!(of("::", "a:"), None);
        let long = "x".repeat(NAME_BYTES_MAX);
        assert_eq!(of(":", &format!("{long}:1")), some(&long));
        assert_eq!((of(":", &format!("{long}x:1")), of("::", &format!("{long}::1"))), (None, some(&long)));
        assert!(FirstParts::new("").is_none());
    }

    #[test]
    fn a_tenant_is_one_first_part_at_a_time() {
        let mut parts = FirstParts::new(":").unwrap();
        (0..64).for_each(|i| parts.put(format!("part{i}").as_bytes(), TenantId(i)));
        assert!((0..64).all(|i| parts.tenant_of(format!("part{i}:x").as_bytes()) == Some(TenantId(i))));
        assert_eq!((parts.tenant_of(b"part64:x"), parts.tenant_of(b"part1")), (None, None));
        parts.put(b"new", TenantId(7));
        assert_eq!((parts.tenant_of(b"part7:x"), parts.tenant_of(b"new:x")), (None, Some(TenantId(7))));
        assert_eq!(parts.tenants().count(), 64);
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(name_of(b"shop"), "shop*");
        assert_eq!(name_of(b"a b:c=%\xff{1}"), "a%20b%3Ac%3D%25%FF{1}*");
        assert_eq!((name_of(b""), part_named("*")), ("*".to_owned(), Some(Vec::new())));
        assert_eq!((part_named("shop"), part_named("a%2"), part_named("%zz*")), (None, None, None));
    }

    proptest! {
        #[test]
        fn a_name_tells_its_first_part(part in prop::collection::vec(any::<u8>(), 0..=NAME_BYTES_MAX)) {
            prop_assert_eq!(part_named(&name_of(&part)), Some(part));
        }
    }
}
