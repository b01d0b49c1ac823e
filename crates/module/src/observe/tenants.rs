//! Who is who: tenants as `tenure.tenants` states them, and whose any key is.
//!
//! The longest prefix that fits wins, then the user who created the key, then the database, then `other`. Without
//! entries every logical database in use is a tenant, named `db0`, `db1`, …. Where tenants appear by themselves
//! (`tenure.auto-tenants-delimiter`), first parts of keys that would be `other`'s are tenants in place of databases.

mod spec;
#[cfg(test)]
mod tests;

use tenure_core::frequent::Frequent;
use tenure_core::units::{PARTITIONS_MAX, TenantId};

use self::spec::Selector;
pub use self::spec::TenantSpec;
use super::first_parts::FirstParts;
use super::owners::User;
use super::prefixes::Prefixes;
use super::{DBS_MAX, first_parts};

/// How many tenants there may be: 64, and `other`. Each has a partition, at least.
pub const TENANTS_MAX: usize = 65;
const _: () = assert!(TENANTS_MAX <= PARTITIONS_MAX);

/// Minimums that together exceed the memory are cut alike.
pub fn fitting_minimums(bytes_min: &[u64], room_bytes: u64) -> Vec<u64> {
    let sum: u128 = bytes_min.iter().map(|&b| u128::from(b)).sum();
    if sum <= u128::from(room_bytes) {
        return bytes_min.to_vec();
    }
    bytes_min.iter().map(|&b| (u128::from(b) * u128::from(room_bytes) / sum) as u64).collect()
}

const UNASSIGNED: u8 = u8::MAX;

/// The tenants in force, and whose a key is.
#[derive(Clone, Debug)]
pub struct Tenants {
    names: Vec<String>,
    /// Minimum and maximum, by tenant, as stated.
    stated: Vec<(u64, u64)>,
    /// As they hold on this node.
    bytes_min: Vec<u64>,
    bytes_max: Vec<u64>,
    /// What of the minimums holds now: all, where there is room for them.
    guaranteed: Vec<u64>,
    weights: Vec<u32>,
    prefixes: Prefixes<TenantId>,
    /// Users that are tenants.
    users: Vec<(String, TenantId)>,
    /// The same by the user's number.
    by_user: [u8; User::MAX as usize + 1],
    /// By database.
    by_db: [u8; DBS_MAX as usize],
    /// How many databases each tenant has.
    n_dbs: [u16; TENANTS_MAX],
    /// New databases become tenants as they are met.
    grows: bool,
    /// No more of them: there are no numbers left for their partitions.
    is_full: bool,
    /// First parts of keys that are tenants, where some become it by themselves.
    first_parts: Option<Box<FirstParts>>,
    /// Whose all other keys are, then.
    other: TenantId,
}

impl Tenants {
    /// The tenants that `spec` asks for, and none beside them.
    #[cfg(test)]
    pub fn new(spec: &TenantSpec) -> Self {
        Tenants::with_delimiter(spec, "")
    }

    /// The tenants that `spec` asks for. With a `delimiter`, first parts of other keys become tenants: see
    /// [`Tenants::appear`].
    pub fn with_delimiter(spec: &TenantSpec, delimiter: &str) -> Self {
        let first_parts = FirstParts::new(delimiter).map(Box::new);
        let appear = first_parts.is_some();
        let mut tenants = Tenants {
            names: Vec::new(),
            stated: Vec::new(),
            bytes_min: Vec::new(),
            bytes_max: Vec::new(),
            guaranteed: Vec::new(),
            weights: Vec::new(),
            prefixes: Prefixes::new([]),
            users: Vec::new(),
            by_user: [UNASSIGNED; User::MAX as usize + 1],
            by_db: [UNASSIGNED; DBS_MAX as usize],
            n_dbs: [0; TENANTS_MAX],
            grows: spec.tenants.is_empty() && !appear,
            is_full: false,
            first_parts,
            other: TenantId(0),
        };
        let mut prefixes = Vec::new();
        for tenant in &spec.tenants {
            let id = tenants.add(tenant.name.clone(), tenant.bytes_min, tenant.bytes_max, tenant.weight);
            match &tenant.selector {
                Selector::Prefix(prefix) => prefixes.push((prefix.clone(), id)),
                Selector::User(name) => tenants.users.push((name.clone(), id)),
                Selector::Database(db) => tenants.by_db[*db as usize] = id.0 as u8,
            }
        }
        tenants.prefixes = Prefixes::new(prefixes);
        if !tenants.grows {
            tenants.other = tenants.add("other".to_owned(), 0, u64::MAX, 1);
            let other = tenants.other.0 as u8;
            // Where first parts are to be looked at, databases decide nothing.
            tenants.by_db.iter_mut().filter(|p| **p == UNASSIGNED && !appear).for_each(|p| *p = other);
        }
        for &id in tenants.by_db.iter().filter(|&&id| id != UNASSIGNED) {
            tenants.n_dbs[id as usize] += 1;
        }
        tenants
    }

    fn add(&mut self, name: String, bytes_min: u64, bytes_max: u64, weight: u32) -> TenantId {
        self.names.push(name);
        self.stated.push((bytes_min, bytes_max));
        self.bytes_min.push(bytes_min);
        self.bytes_max.push(bytes_max);
        self.guaranteed.push(bytes_min);
        self.weights.push(weight);
        TenantId(self.names.len() as u16 - 1)
    }

    /// Users that are tenants.
    pub fn users(&self) -> &[(String, TenantId)] {
        &self.users
    }

    /// Takes the numbers that users are known by.
    pub fn number_users(&mut self, mut number_of: impl FnMut(&[u8]) -> User) {
        self.by_user.fill(UNASSIGNED);
        for (name, id) in &self.users {
            self.by_user[usize::from(number_of(name.as_bytes()))] = id.0 as u8;
        }
    }

    /// True where that user is a tenant.
    #[inline]
    pub fn is_user(&self, user: User) -> bool {
        self.by_user[usize::from(user)] != UNASSIGNED
    }

    /// The tenant of a key. A few ns, and a search among the prefixes that start with the key's first byte; `owner`
    /// is asked where tenants are users and no prefix fits.
    #[inline]
    pub fn of(&mut self, db: u16, key: &[u8], owner: impl FnOnce() -> User) -> TenantId {
        if let Some(id) = self.prefixes.longest(key) {
            return id;
        }
        if !self.users.is_empty() {
            let id = self.by_user[usize::from(owner())];
            if id != UNASSIGNED {
                return TenantId(u16::from(id));
            }
        }
        match self.by_db.get(db as usize) {
            Some(&id) if id != UNASSIGNED => TenantId(u16::from(id)),
            _ => self.of_nobodys(db, key),
        }
    }

    /// The tenant of a key that no setting and no database gives to one.
    #[inline(never)]
    fn of_nobodys(&mut self, db: u16, key: &[u8]) -> TenantId {
        match &self.first_parts {
            Some(first_parts) => first_parts.tenant_of(key).unwrap_or(self.other),
            None => self.assign(db),
        }
    }

    /// True where first parts of keys become tenants by themselves.
    pub fn do_appear(&self) -> bool {
        self.first_parts.is_some()
    }

    /// The tenants that appeared by themselves.
    pub fn appeared(&self) -> Vec<TenantId> {
        self.first_parts.iter().flat_map(|first_parts| first_parts.tenants()).collect()
    }

    /// How many more may.
    pub fn free(&self) -> usize {
        if self.is_full || !self.do_appear() { 0 } else { TENANTS_MAX - self.names.len() }
    }

    /// A key of `tenant` is accessed: where no tenant has its first part, but one might, that is counted.
    #[inline]
    pub fn accessed(&mut self, tenant: TenantId, key: &[u8]) {
        if tenant == self.other
            && let Some(first_parts) = &mut self.first_parts
        {
            first_parts.count_nobodys(key);
        }
    }

    /// How much first parts are accessed that are no tenants; `None` where none is to become one.
    pub fn nobodys(&mut self) -> Option<&mut Frequent> {
        self.first_parts.as_mut().map(|first_parts| &mut first_parts.nobodys)
    }

    /// Whose keys are that are nobody's, where tenants appear by themselves.
    pub fn other(&self) -> TenantId {
        self.other
    }

    /// A first part of keys is a tenant from now on: another one, or, where that is given, in the place of one that
    /// had appeared. `None` where there is no place, or it is a tenant already.
    pub fn appear(&mut self, part: &[u8], in_place_of: Option<TenantId>) -> Option<TenantId> {
        let name = first_parts::name_of(part);
        if self.names.contains(&name) {
            return None;
        }
        let tenant = match in_place_of {
            Some(tenant) if self.appeared().contains(&tenant) => {
                self.names[usize::from(tenant.0)] = name;
                tenant
            }
            None if self.free() > 0 => self.add(name, 0, u64::MAX, 1),
            _ => return None,
        };
        self.first_parts.as_mut()?.put(part, tenant);
        Some(tenant)
    }

    /// A database is met for the first time. The last tenant is for all that no number is left for.
    #[cold]
    fn assign(&mut self, db: u16) -> TenantId {
        let id = match self.names.len() {
            n if n < TENANTS_MAX - 1 && db < DBS_MAX && !self.is_full => self.add(format!("db{db}"), 0, u64::MAX, 1),
            n if n < TENANTS_MAX && self.names.last().is_none_or(|name| name != "other") => {
                self.add("other".to_owned(), 0, u64::MAX, 1)
            }
            n => TenantId(n as u16 - 1),
        };
        if let Some(slot) = self.by_db.get_mut(db as usize) {
            *slot = id.0 as u8;
            self.n_dbs[id.0 as usize] += 1;
        }
        id
    }

    /// The limits hold for a cluster, of which this node has these shares by tenant; without shares they hold here as
    /// they are stated.
    pub fn split_limits(&mut self, shares: Option<&[f64]>) {
        for (tenant, &(bytes_min, bytes_max)) in self.stated.iter().enumerate() {
            let share = shares.map_or(1.0, |shares| shares.get(tenant).copied().unwrap_or(1.0));
            let of = |bytes: u64| if bytes == u64::MAX { bytes } else { (bytes as f64 * share) as u64 };
            (self.bytes_min[tenant], self.bytes_max[tenant]) = (of(bytes_min), of(bytes_max));
        }
    }

    /// All minimums on this node together, in bytes.
    pub fn minimums_bytes(&self) -> u64 {
        self.bytes_min.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// There are so many bytes for keys: minimums that are more together are cut alike, each to the same share.
    pub fn fit_minimums(&mut self, room_bytes: u64) {
        self.guaranteed = fitting_minimums(&self.bytes_min, room_bytes);
    }

    /// What of its minimum a tenant has, by tenant, in bytes.
    pub fn guaranteed(&self) -> &[u64] {
        &self.guaranteed
    }

    /// True where a tenant has a minimum or a maximum.
    pub fn are_limited(&self) -> bool {
        self.stated.iter().any(|&(bytes_min, bytes_max)| bytes_min > 0 || bytes_max < u64::MAX)
    }

    /// All names, by tenant.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Guaranteed bytes on this node, by tenant.
    pub fn bytes_min(&self) -> &[u64] {
        &self.bytes_min
    }

    /// From now on databases that are met are of `other`.
    pub fn close(&mut self) {
        self.is_full = true;
    }

    /// How much their misses count, by tenant.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// Allowed bytes on this node, by tenant.
    pub fn bytes_max(&self) -> &[u64] {
        &self.bytes_max
    }

    /// True where one has a maximum.
    pub fn have_maximum(&self) -> bool {
        self.bytes_max.iter().any(|&bytes_max| bytes_max < u64::MAX)
    }

    /// The tenant that a database is as a whole, so that its number of keys is the server's own.
    pub fn whole_database(&self, db: u16) -> Option<TenantId> {
        let id = *self.by_db.get(db as usize)?;
        let alone = id != UNASSIGNED && self.n_dbs[id as usize] == 1;
        (self.prefixes.is_empty() && self.users.is_empty() && alone).then_some(TenantId(u16::from(id)))
    }
}
