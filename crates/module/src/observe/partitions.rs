//! Partitions: the units of decision, each a tenant's keys of one miss-penalty class.
//!
//! A tenant's keys without a class are a partition from the start; others come as the first key of a class is met,
//! while there are numbers left. What a tenant is guaranteed and allowed holds for all its partitions together.

use tenure_core::departure::Departure;
use tenure_core::frequent::Frequent;
use tenure_core::policy::over_target::OverTarget;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId, TenantId};

use super::DBS_MAX;
use super::classes::{CLASSES, Class, Classes};
use super::keys::{Keys, Remembers};
use super::owners::{NOBODY, Owners, User};
use super::tenants::{TENANTS_MAX, Tenants};

const UNASSIGNED: u8 = u8::MAX;

/// A tenant is near its maximum with less than this part of it left.
const NEAR_PART: u64 = 16;
/// Where one is above it, no more than this part of it goes besides.
const MORE_PART: u64 = 1024;

/// The tenants that are near their maximum.
#[derive(Clone, Copy, Debug)]
pub struct NearMaximum {
    /// Their partitions.
    pub partitions: OverTarget,
    /// What the smallest of them may have left, in bytes; without bound where there are none.
    pub rest_bytes: u64,
}

impl Default for NearMaximum {
    /// None.
    fn default() -> Self {
        NearMaximum { partitions: OverTarget::default(), rest_bytes: u64::MAX }
    }
}

/// The database is mixed into the low half of a hash, so that spatial sampling, which looks at the upper bits, is by
/// key alone.
pub fn in_database(key: KeyHash, db: u16) -> KeyHash {
    KeyHash(key.0 ^ (u64::from(db).wrapping_mul(0x9e37_79b9) & 0xffff_ffff))
}

/// The partitions in force, and which one a key is in.
#[derive(Debug)]
pub struct Partitions {
    tenants: Tenants,
    /// Which class a key is of.
    pub classes: Classes,
    /// What is remembered of single keys.
    pub keys: Keys,
    /// Whose a key is; where no tenant is a user nobody asks.
    pub owners: Option<Box<dyn Owners>>,
    /// What partitions that wake keep of the memory, in bytes by partition; empty where none does.
    pub held_bytes: Vec<u64>,
    names: Vec<String>,
    of: Vec<(TenantId, Class)>,
    /// By tenant and class.
    cells: Vec<[u8; CLASSES]>,
    /// How often the number went to another tenant, by partition.
    generations: Vec<u16>,
}

impl Partitions {
    /// One partition per tenant, and one more for each class of its keys. Of `owners` that which was known before is
    /// taken on where tenants are users.
    pub fn new(tenants: Tenants, classes: Classes, keys: Keys, owners: Option<Box<dyn Owners>>) -> Self {
        let mut partitions = Partitions {
            tenants,
            classes,
            keys,
            owners: None,
            held_bytes: Vec::new(),
            names: Vec::new(),
            of: Vec::new(),
            cells: vec![[UNASSIGNED; CLASSES]; TENANTS_MAX],
            generations: Vec::new(),
        };
        partitions.set_owners(owners);
        for tenant in 0..partitions.tenants.names().len() {
            partitions.add(TenantId(tenant as u16), 0);
        }
        partitions
    }

    /// From now on `owners` says whose keys are, where tenants are users.
    pub fn set_owners(&mut self, owners: Option<Box<dyn Owners>>) {
        self.owners = owners.filter(|_| !self.tenants.users().is_empty());
        if let Some(owners) = &mut self.owners {
            self.tenants.number_users(|name| owners.number_of(name));
        }
    }

    /// The partition of a key. A few ns; with classes, one cache line, and two where tenants are users.
    #[inline]
    pub fn of(&mut self, db: u16, key: &[u8]) -> PartitionId {
        self.of_accessed(db, key, || KeyHash::of(key), NOBODY)
    }

    /// The tenant of a key that `asker` asks for: who asks for a key of nobody's is taken for its owner, since most
    /// such keys are about to be created.
    #[inline]
    pub fn tenant_of(&mut self, db: u16, key: &[u8], hash: impl Fn() -> KeyHash, asker: User) -> TenantId {
        let Partitions { tenants, owners, .. } = self;
        tenants.of(db, key, || match owners.as_ref().map_or(NOBODY, |owners| owners.of(db, hash())) {
            NOBODY => asker,
            owner => owner,
        })
    }

    /// As [`Partitions::of`], for a key whose hash is known, that `asker` asks for (see [`Partitions::tenant_of`]).
    #[inline]
    pub fn of_accessed(&mut self, db: u16, key: &[u8], hash: impl Fn() -> KeyHash, asker: User) -> PartitionId {
        let tenant = self.tenant_of(db, key, &hash, asker);
        self.of_tenants(tenant, db, key, hash)
    }

    /// The same as that access is counted: see [`Tenants::accessed`].
    #[inline]
    pub fn of_counted(&mut self, db: u16, key: &[u8], hash: impl Fn() -> KeyHash, asker: User) -> PartitionId {
        let tenant = self.tenant_of(db, key, &hash, asker);
        self.tenants.accessed(tenant, key);
        self.of_tenants(tenant, db, key, hash)
    }

    /// A key is accessed in a database that isn't known: it is taken for one that is no tenant.
    pub fn counted_anywhere(&mut self, key: &[u8], asker: User) {
        if self.tenants.do_appear() {
            let tenant = self.tenant_of(DBS_MAX, key, || KeyHash::of(key), asker);
            self.tenants.accessed(tenant, key);
        }
    }

    #[inline]
    fn of_tenants(&mut self, tenant: TenantId, db: u16, key: &[u8], hash: impl Fn() -> KeyHash) -> PartitionId {
        let class = if self.classes.is_on() { self.class_of(key, in_database(hash(), db)) } else { 0 };
        match self.cells[tenant.0 as usize][usize::from(class)] {
            UNASSIGNED => self.add(tenant, class),
            id => PartitionId(u16::from(id)),
        }
    }

    /// A key came into being, by `user`'s doing.
    #[inline]
    pub fn created(&mut self, db: u16, key: &[u8], user: User) {
        if let Some(owners) = &mut self.owners {
            owners.set(db, KeyHash::of(key), user);
        }
    }

    /// A key has left the cache.
    #[inline]
    pub fn gone(&mut self, db: u16, hash: impl Fn() -> KeyHash, departure: Departure) {
        self.keys.gone(|| in_database(hash(), db), departure);
        if let Some(owners) = &mut self.owners {
            owners.remove(db, hash());
        }
    }

    /// The class of a key, which has its database in its hash. One cache line, and a search among the rules.
    #[inline]
    pub fn class_of(&self, name: &[u8], key: KeyHash) -> Class {
        self.classes.of(name, self.keys.class_of(key))
    }

    /// A miss of the key cost `penalty_us`. Where that tells its class, or penalties are remembered anyway, it is
    /// remembered.
    pub fn learn(&mut self, key: KeyHash, penalty_us: u64, now: u32) {
        let Partitions { classes, keys, .. } = self;
        if classes.are_measured() || keys.remembers() != Remembers::Classes {
            keys.learn(key, penalty_us, now, |held, smoothed_us| classes.measured(held, smoothed_us));
        }
    }

    /// The key is written by a connection: what that has told counts.
    pub fn written_by(&mut self, client_id: u64, key: KeyHash, now: u32) {
        if let Some(class) = self.classes.of_connection(client_id) {
            self.keys.set_class(key, class, now);
        }
    }

    /// Whose a key is; [`NOBODY`]'s where that isn't known, or where no tenant is a user.
    pub fn owner_of(&self, db: u16, key: &[u8]) -> User {
        self.owners.as_ref().map_or(NOBODY, |owners| owners.of(db, KeyHash::of(key)))
    }

    /// True where `user` is a tenant and the key is nobody's.
    pub fn may_claim(&self, db: u16, hash: KeyHash, user: User) -> bool {
        self.tenants.is_user(user) && self.owners.as_ref().is_some_and(|owners| owners.of(db, hash) == NOBODY)
    }

    /// A tenant or a class is met for the first time. One number is left for `other`; a class that finds none is with
    /// the keys that have none.
    #[cold]
    fn add(&mut self, tenant: TenantId, class: Class) -> PartitionId {
        let base = self.cells[tenant.0 as usize][0];
        if base == UNASSIGNED && class > 0 {
            self.add(tenant, 0);
            return self.add(tenant, class);
        }
        let id = match (self.free(), base) {
            (0, UNASSIGNED) => self.names.len() as u8 - 1,
            (0 | 1, base) if base != UNASSIGNED => base,
            _ => {
                self.names.push(self.name_of(tenant, class));
                self.of.push((tenant, class));
                self.generations.push(0);
                if self.free() <= 1 {
                    self.tenants.close();
                }
                self.names.len() as u8 - 1
            }
        };
        self.cells[tenant.0 as usize][usize::from(class)] = id;
        PartitionId(u16::from(id))
    }

    fn name_of(&self, tenant: TenantId, class: Class) -> String {
        let tenant_name = &self.tenants.names()[tenant.0 as usize];
        match class {
            0 => tenant_name.clone(),
            class => format!("{tenant_name}/{}", self.classes.name(class)),
        }
    }

    /// A first part of keys becomes a tenant: see [`Tenants::appear`]. In the place of another it has the numbers of
    /// that one's partitions, each of another generation then. True where it did.
    pub fn appear(&mut self, part: &[u8], in_place_of: Option<TenantId>) -> bool {
        let Some(tenant) = self.tenants.appear(part, in_place_of) else { return false };
        if in_place_of.is_none() {
            self.add(tenant, 0);
        }
        for partition in self.of_tenant(tenant).into_iter().filter(|_| in_place_of.is_some()) {
            self.names[partition.index()] = self.name_of(tenant, self.of[partition.index()].1);
            let generation = &mut self.generations[partition.index()];
            *generation = generation.wrapping_add(1);
        }
        true
    }

    /// The partitions of a tenant.
    pub fn of_tenant(&self, tenant: TenantId) -> Vec<PartitionId> {
        let its = self.of.iter().enumerate().filter(|(_, (of, _))| *of == tenant);
        its.map(|(i, _)| PartitionId(i as u16)).collect()
    }

    /// The partition of a tenant's keys that are of no class.
    pub fn base_of(&self, tenant: TenantId) -> PartitionId {
        PartitionId(u16::from(self.cells[usize::from(tenant.0)][0]))
    }

    /// How often each number went to another tenant, by partition.
    pub fn generations(&self) -> &[u16] {
        &self.generations
    }

    /// Numbers that are left.
    fn free(&self) -> usize {
        PARTITIONS_MAX - self.names.len()
    }

    /// See [`Tenants::nobodys`].
    pub fn nobodys(&mut self) -> Option<&mut Frequent> {
        self.tenants.nobodys()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// All names, by partition: the tenant's, or the tenant's and the class's, as in `db0/70-150us`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The partition of that name.
    ///
    /// # Errors
    /// Which there are, where there is none of it.
    pub fn called(&self, name: &[u8]) -> Result<PartitionId, String> {
        let name = String::from_utf8_lossy(name);
        self.named(&name).ok_or_else(|| format!("no partition '{name}'; there are: {}", self.names().join(", ")))
    }

    /// The partition of that name.
    pub fn named(&self, name: &str) -> Option<PartitionId> {
        self.names.iter().position(|n| n == name).map(|i| PartitionId(i as u16))
    }

    /// The partition of a tenant's class, met or not; `None` where there is no such tenant, or the class can't be.
    pub fn of_names(&mut self, tenant: &str, class: &str) -> Option<PartitionId> {
        let tenant = self.tenants.names().iter().position(|name| name == tenant)?;
        let class = if class == "none" { 0 } else { self.classes.numbered(class)? };
        Some(match self.cells[tenant][usize::from(class)] {
            UNASSIGNED => self.add(TenantId(tenant as u16), class),
            id => PartitionId(u16::from(id)),
        })
    }

    /// The limits of tenants hold for a cluster: see [`Tenants::split_limits`].
    pub fn split_limits(&mut self, shares: Option<&[f64]>) {
        self.tenants.split_limits(shares);
    }

    /// There are so many bytes for keys: see [`Tenants::fit_minimums`].
    pub fn fit_minimums(&mut self, room_bytes: u64) {
        self.tenants.fit_minimums(room_bytes);
    }

    /// Tenant and class, by partition.
    pub fn of_what(&self) -> &[(TenantId, Class)] {
        &self.of
    }

    /// How much misses count, by partition.
    pub fn weights(&self) -> [f32; PARTITIONS_MAX] {
        let mut weights = [1.0; PARTITIONS_MAX];
        let of_tenant = self.of.iter().map(|(tenant, _)| self.tenants.weights()[tenant.0 as usize] as f32);
        weights.iter_mut().zip(of_tenant).for_each(|(slot, weight)| *slot = weight);
        weights
    }

    /// Who is who.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// What each partition may hold now, in bytes: without bound, but for the one that gives where a tenant holds more
    /// than it is allowed: the one most above its target. `few_bytes` more go with that, up to 1/1024 of the maximum.
    /// So not every turn that brings a key needs a slice. `None` where no tenant holds more. Used and target bytes by
    /// partition.
    pub fn maximums(
        &self,
        used_bytes: &[u64],
        target_bytes: &[u64],
        few_bytes: impl Fn(PartitionId) -> u64,
    ) -> Option<Vec<u64>> {
        let (used, n) = (self.used_by_tenant(used_bytes), self.len());
        let mut maximums = None;
        for (tenant, &bytes_max) in self.tenants.bytes_max().iter().enumerate() {
            let above = used[tenant].saturating_sub(bytes_max);
            if above == 0 {
                continue;
            }
            let excess = |i: &usize| used_bytes[*i] as i128 - i128::from(target_bytes.get(*i).copied().unwrap_or(0));
            let its = self.tenants_by_partition().enumerate().filter(|&(i, of)| of == tenant && used_bytes[i] > 0);
            if let Some(gives) = its.map(|(i, _)| i).max_by_key(excess) {
                let maximums = maximums.get_or_insert_with(|| vec![u64::MAX; n]);
                let more = few_bytes(PartitionId(gives as u16)).min(bytes_max / MORE_PART);
                maximums[gives] = used_bytes[gives].saturating_sub(above + more);
            }
        }
        maximums
    }

    /// The tenants that hold nearly what they are allowed, or more. Used bytes by partition.
    pub fn near_maximum(&self, used_bytes: &[u64]) -> NearMaximum {
        if !self.tenants.have_maximum() {
            return NearMaximum::default();
        }
        let (used, bytes_max) = (self.used_by_tenant(used_bytes), self.tenants.bytes_max());
        let rest_bytes = |tenant: usize| bytes_max[tenant] / NEAR_PART;
        let is_near = |tenant: usize| used[tenant] > bytes_max[tenant] - rest_bytes(tenant);
        let partitions = OverTarget::of(self.tenants_by_partition().map(is_near));
        let least = (0..bytes_max.len()).filter(|&tenant| is_near(tenant)).map(rest_bytes).min();
        NearMaximum { partitions, rest_bytes: least.unwrap_or(u64::MAX) }
    }

    /// Who may give without its tenant falling below what that is guaranteed, or falling below what is held for it
    /// itself; all, where none may. Used bytes by partition.
    pub fn above_minimums(&self, used_bytes: &[u64]) -> OverTarget {
        let bytes_min = self.tenants.guaranteed();
        if self.held_bytes.is_empty() && bytes_min.iter().all(|&bytes| bytes == 0) {
            return OverTarget::all();
        }
        let used = self.used_by_tenant(used_bytes);
        let is_free = |(i, tenant): (usize, usize)| {
            let is_above = used[tenant] > bytes_min[tenant];
            let held = self.held_bytes.get(i).copied().unwrap_or(0);
            is_above && (held == 0 || used_bytes.get(i).is_some_and(|&used| used > held))
        };
        let free = OverTarget::of(self.tenants_by_partition().enumerate().map(is_free));
        if free.is_none() { OverTarget::all() } else { free }
    }

    /// The partitions of tenants that hold no more than they are guaranteed. Used bytes by partition.
    pub fn at_minimum(&self, used_bytes: &[u64]) -> OverTarget {
        let bytes_min = self.tenants.guaranteed();
        if bytes_min.iter().all(|&bytes| bytes == 0) {
            return OverTarget::default();
        }
        let used = self.used_by_tenant(used_bytes);
        let tenants = self.tenants_by_partition();
        OverTarget::of(tenants.map(|tenant| used[tenant] <= bytes_min[tenant] && bytes_min[tenant] > 0))
    }

    fn tenants_by_partition(&self) -> impl Iterator<Item = usize> {
        self.of.iter().map(|(tenant, _)| usize::from(tenant.0))
    }

    fn used_by_tenant(&self, used_bytes: &[u64]) -> [u64; TENANTS_MAX] {
        let mut used = [0_u64; TENANTS_MAX];
        for (tenant, bytes) in self.tenants_by_partition().zip(used_bytes) {
            used[tenant] += bytes;
        }
        used
    }

    /// The partition that a database is as a whole, so that its number of keys is the server's own.
    pub fn whole_database(&self, db: u16) -> Option<PartitionId> {
        if self.classes.is_on() {
            return None;
        }
        let tenant = self.tenants.whole_database(db)?;
        let id = self.cells[tenant.0 as usize][0];
        (id != UNASSIGNED).then_some(PartitionId(u16::from(id)))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::key_table::KeyTable;

    use super::super::classes::{ClassSpec, Source};
    use super::super::tenants::TenantSpec;
    use super::*;

    fn partitions(tenants: &str) -> Partitions {
        let spec = ClassSpec { source: Source::Auto, ..ClassSpec::default() };
        let keys = Keys::new(Some(KeyTable::new(1 << 16)), Remembers::Classes);
        Partitions::new(Tenants::new(&TenantSpec::parse(tenants).unwrap()), Classes::new(spec), keys, None)
    }

    fn learn(partitions: &mut Partitions, db: u16, key: &[u8], penalty_us: u64) -> String {
        partitions.learn(in_database(KeyHash::of(key), db), penalty_us, 0);
        let id = partitions.of(db, key);
        partitions.names()[id.index()].clone()
    }

    #[test]
    fn a_partition_is_a_tenant_and_a_class() {
        let mut partitions = partitions("a=a:*");
        assert_eq!(partitions.names(), ["a", "other"]);
        assert_eq!(learn(&mut partitions, 0, b"a:1", 100), "a/70-150us");
        assert_eq!(learn(&mut partitions, 0, b"b:1", 100), "other/70-150us");
        assert_eq!(learn(&mut partitions, 3, b"a:2", 1000), "a/630-1270us");
        assert_eq!(partitions.of(0, b"a:3"), PartitionId(0));
        assert_eq!(partitions.of(1, b"a:1"), PartitionId(0), "another database's key of that name is another key");
        assert_eq!(partitions.len(), 5);
    }

    #[test]
    fn a_tenant_that_takes_anothers_place_has_its_numbers() {
        let spec = ClassSpec { source: Source::Auto, ..ClassSpec::default() };
        let keys = Keys::new(Some(KeyTable::new(1 << 16)), Remembers::Classes);
        let tenants = Tenants::with_delimiter(&TenantSpec::parse("a=a:*").unwrap(), ":");
        let mut partitions = Partitions::new(tenants, Classes::new(spec), keys, None);
        assert!(partitions.appear(b"b", None) && !partitions.appear(b"b", None));
        assert_eq!(learn(&mut partitions, 0, b"b:1", 100), "b*/70-150us");
        assert_eq!(partitions.names(), ["a", "other", "b*", "b*/70-150us"]);
        let b = partitions.of_what()[2].0;
        assert_eq!(partitions.of_tenant(b), [PartitionId(2), PartitionId(3)]);
        assert!(partitions.appear(b"c", Some(b)));
        assert_eq!(partitions.names(), ["a", "other", "c*", "c*/70-150us"]);
        assert_eq!(partitions.generations(), [0, 0, 1, 1]);
        assert_eq!((partitions.of(0, b"b:2"), partitions.of(5, b"c:2")), (PartitionId(1), PartitionId(2)));
        assert_eq!(partitions.base_of(partitions.tenants().other()), PartitionId(1));
    }

    #[test]
    fn classes_that_find_no_number_are_with_the_keys_that_have_none() {
        let mut partitions = partitions("");
        let mut names = Vec::new();
        for db in 0..100 {
            for us in [5, 100, 1000] {
                names.push(learn(&mut partitions, db, b"k", us));
            }
        }
        assert_eq!(partitions.len(), PARTITIONS_MAX);
        assert_eq!(names[0..3], ["db0/0-10us", "db0/10-30us", "db0/150-310us"], "smoothed: 5, 29, 272");
        assert!(names.iter().all(|name| !name.is_empty()));
    }

    /// Both classes of a tenant stand by its minimum together.
    #[test]
    fn a_tenant_at_its_minimum_gives_nothing() {
        let mut partitions = partitions("a=a:*,min=100b b=b:*");
        learn(&mut partitions, 0, b"a:1", 100);
        let may_give = |used: [u64; 4]| {
            let above = partitions.above_minimums(&used);
            [0, 1, 2, 3].map(|i| above.holds(PartitionId(i)))
        };
        assert_eq!(may_give([50, 10, 0, 50]), [false, true, false, false]);
        assert_eq!(may_give([50, 10, 10, 51]), [true, true, true, true]);
        assert_eq!(may_give([50, 0, 0, 50]), [true; 4], "nobody is above");
    }

    #[test]
    fn a_partition_that_wakes_gives_nothing_before_it_has_what_it_had() {
        let mut partitions = partitions("a=a:* b=b:*");
        let may_give = |partitions: &Partitions, used: [u64; 3]| {
            let free = partitions.above_minimums(&used);
            [0, 1, 2].map(|i| free.holds(PartitionId(i)))
        };
        assert_eq!(may_give(&partitions, [50, 10, 10]), [true; 3]);
        partitions.held_bytes = vec![60, 0];
        assert_eq!(may_give(&partitions, [60, 10, 10]), [false, true, true]);
        assert_eq!(may_give(&partitions, [61, 10, 10]), [true; 3]);
        assert_eq!(may_give(&partitions, [60, 0, 0]), [true; 3], "nobody else has anything");
    }

    #[test]
    fn a_tenant_near_its_maximum_is_known_and_one_above_it_gives_a_little_more() {
        let partitions = partitions("a=a:*,max=16000b b=b:*,max=1600b c=c:*");
        let near = |used: [u64; 4]| {
            let NearMaximum { partitions, rest_bytes } = partitions.near_maximum(&used);
            ([0, 1, 2, 3].map(|i| partitions.holds(PartitionId(i))), rest_bytes)
        };
        assert_eq!(near([15_000, 1_500, 9_999, 9_999]), ([false; 4], u64::MAX));
        assert_eq!(near([15_001, 1_500, 9_999, 9_999]), ([true, false, false, false], 1_000));
        assert_eq!(near([20_000, 2_000, 0, 0]), ([true, true, false, false], 100), "the smallest has least");
        let may_hold = |few_bytes: u64| partitions.maximums(&[20_000, 0, 0, 0], &[], |_| few_bytes).unwrap()[0];
        assert_eq!([0, 10, 1_000].map(may_hold), [16_000, 15_990, 15_985], "up to 1/1024 of it");
    }

    #[test]
    fn a_tenant_above_its_maximum_gives_where_it_is_most_above_target() {
        let mut partitions = partitions("a=a:*,max=100b b=b:*");
        learn(&mut partitions, 0, b"a:1", 100);
        assert_eq!(partitions.names(), ["a", "b", "other", "a/70-150us"]);
        assert_eq!(partitions.maximums(&[50, 900, 900, 50], &[], |_| 0), None);
        let maximums = partitions.maximums(&[50, 900, 900, 60], &[0, 0, 0, 40], |_| 0).unwrap();
        assert_eq!(maximums, [40, u64::MAX, u64::MAX, u64::MAX]);
    }
}
