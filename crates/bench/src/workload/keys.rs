//! The keys of a workload: their names as the server sees them, whose they are, and which backend holds them.
//!
//! A name begins with the tenant it belongs to (`b0:user123`, `t07:55`), because that is how Tenure tells tenants
//! apart; every system, stock too, is given the same names.

use std::str::FromStr;

use anyhow::bail;
use tenure_core::units::KeyHash;
use tenure_sim::costs::backend_of;

/// By what a key's backend is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// By the hash of its name; the backends are the tenants, `b0`, `b1` …
    ByKey,
    /// By its tenant in the workload, `t00`, `t01` …; tenant i uses backend i modulo their number.
    ByTenant,
}

impl FromStr for Assignment {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "key" => Ok(Assignment::ByKey),
            "tenant" => Ok(Assignment::ByTenant),
            _ => bail!("'{text}' is neither key nor tenant"),
        }
    }
}

/// Whoever Tenure gives memory to: all keys with one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The prefix without its colon: `b0`, `t07`.
    pub name: String,
    /// Which backend holds its keys, from 0.
    pub backend: usize,
}

/// All keys of a workload, numbered from 0 in the order in which they were added.
#[derive(Clone, Debug)]
pub struct KeyTable {
    assignment: Assignment,
    n_backends: usize,
    tenants: Vec<Tenant>,
    names: Vec<u8>,
    /// Where each name ends in `names`.
    ends: Vec<u32>,
    tenant_of: Vec<u16>,
    value_bytes: Vec<u32>,
}

impl KeyTable {
    /// A table without keys.
    ///
    /// # Panics
    /// Where `n_backends` is 0.
    pub fn new(assignment: Assignment, n_backends: usize) -> Self {
        assert!(n_backends > 0, "a workload needs a backend");
        let mut table = KeyTable {
            assignment,
            n_backends,
            tenants: Vec::new(),
            names: Vec::new(),
            ends: Vec::new(),
            tenant_of: Vec::new(),
            value_bytes: Vec::new(),
        };
        if assignment == Assignment::ByKey {
            table.tenants = (0..n_backends).map(|i| Tenant { name: format!("b{i}"), backend: i }).collect();
        }
        table
    }

    /// A table without keys for tenants of these `names`, which take the backends in turn.
    ///
    /// # Panics
    /// Where `n_backends` is 0.
    pub fn of_tenants(names: &[&str], n_backends: usize) -> Self {
        let mut table = KeyTable::new(Assignment::ByTenant, n_backends);
        let tenants = names.iter().enumerate();
        table.tenants = tenants.map(|(i, &name)| Tenant { name: name.into(), backend: i % n_backends }).collect();
        table
    }

    /// Adds a key that `tenant` of the workload calls `name`, with values of `value_bytes` bytes; returns its number.
    ///
    /// # Panics
    /// Where the names exceed 4 GiB.
    pub fn add(&mut self, name: &[u8], tenant: u16, value_bytes: u32) -> u32 {
        let tenant = match self.assignment {
            Assignment::ByKey => backend_of(KeyHash::of(name), self.n_backends),
            Assignment::ByTenant => usize::from(tenant),
        };
        while self.tenants.len() <= tenant {
            let index = self.tenants.len();
            self.tenants.push(Tenant { name: format!("t{index:02}"), backend: index % self.n_backends });
        }
        self.names.extend_from_slice(self.tenants[tenant].name.as_bytes());
        self.names.push(b':');
        self.names.extend_from_slice(name);
        self.ends.push(u32::try_from(self.names.len()).expect("names of less than 4 GiB"));
        self.tenant_of.push(tenant as u16);
        self.value_bytes.push(value_bytes);
        self.ends.len() as u32 - 1
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key's name as the server sees it.
    pub fn name(&self, key: u32) -> &[u8] {
        let start = if key == 0 { 0 } else { self.ends[key as usize - 1] };
        &self.names[start as usize..self.ends[key as usize] as usize]
    }

    /// The key's name without the tenant's prefix.
    pub fn bare_name(&self, key: u32) -> &[u8] {
        &self.name(key)[self.tenants[self.tenant(key)].name.len() + 1..]
    }

    /// Number of the key's tenant, from 0.
    pub fn tenant(&self, key: u32) -> usize {
        usize::from(self.tenant_of[key as usize])
    }

    /// Which backend holds the key, from 0.
    pub fn backend(&self, key: u32) -> usize {
        self.tenants[self.tenant(key)].backend
    }

    /// Size of the key's value, in bytes; where it changes, the last one.
    pub fn value_bytes(&self, key: u32) -> u32 {
        self.value_bytes[key as usize]
    }

    /// Notes that the key's value has another size from now on.
    pub fn set_value_bytes(&mut self, key: u32, value_bytes: u32) {
        self.value_bytes[key as usize] = value_bytes;
    }

    /// Whom memory is divided among.
    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// How many tenants there are.
    pub fn n_tenants(&self) -> usize {
        self.tenants.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_the_backend_that_holds_the_key() {
        let mut table = KeyTable::new(Assignment::ByKey, 2);
        for i in 0..1000 {
            let name = format!("user{i}");
            let key = table.add(name.as_bytes(), 9, i);
            let backend = backend_of(KeyHash::of(name.as_bytes()), 2);
            assert_eq!((table.backend(key), table.tenant(key), table.value_bytes(key)), (backend, backend, i));
            assert_eq!(table.name(key), format!("b{backend}:user{i}").as_bytes());
            assert_eq!(table.bare_name(key), name.as_bytes());
        }
        let on_the_first = (0..1000).filter(|&key| table.backend(key) == 0).count();
        assert!((400..600).contains(&on_the_first), "{on_the_first}");
    }

    #[test]
    fn tenants_take_backends_in_turn() {
        let mut table = KeyTable::new(Assignment::ByTenant, 2);
        let key = table.add(b"x", 2, 1);
        assert_eq!(table.name(key), b"t02:x");
        assert_eq!(table.tenants().iter().map(|t| t.backend).collect::<Vec<_>>(), [0, 1, 0]);
    }
}
