//! Who is who: tenants as `tenure.tenants` states them, and whose any key is.
//!
//! Grammar: space-separated entries, each `NAME=SELECTOR[,min=BYTES][,max=BYTES][,weight=N][,replies=MODE]`, a
//! selector being `PREFIX*`, `user:USERNAME` or `db:N`; what ends in `*` is a prefix, `user:*` too. The longest
//! prefix that fits wins, then the user who created the key, then the database, then `other`. Without entries every
//! logical database in use is a tenant, named `db0`, `db1`, …. Where tenants appear by themselves
//! (`tenure.auto-tenants-delimiter`), first parts of keys that would be `other`'s are tenants in place of databases.

use tenure_core::frequent::Frequent;
use tenure_core::units::{PARTITIONS_MAX, TenantId, format_bytes, parse_bytes};

use super::DBS_MAX;
use super::first_parts::{self, FirstParts};
use super::owners::User;
use super::prefixes::Prefixes;
use super::reply_mode::Mode;

/// How many tenants there may be: 64, and `other`. Each has a partition, at least.
pub const TENANTS_MAX: usize = 65;
const _: () = assert!(TENANTS_MAX <= PARTITIONS_MAX);

/// The highest weight of a tenant.
const WEIGHT_MAX: u32 = 1000;

/// What makes a key a tenant's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Keys that start so, in any database.
    Prefix(Vec<u8>),
    /// Keys that a user of the server's access control lists has created, in any database.
    User(String),
    /// Keys of one logical database.
    Database(u16),
}

/// One tenant as stated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name in INFO and replies.
    pub name: String,
    /// Which keys are its.
    pub selector: Selector,
    /// What it is guaranteed, in bytes.
    pub bytes_min: u64,
    /// What it may hold, in bytes.
    pub bytes_max: u64,
    /// How much its misses count in a plan, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// What replies to its writes wait for, where that is stated.
    pub replies: Option<Mode>,
}

/// The setting, read. An empty one means: one tenant per logical database in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSpec {
    tenants: Vec<Tenant>,
}

impl TenantSpec {
    /// Reads the setting, for a server of so many databases.
    ///
    /// # Errors
    /// A sentence that says which entry is wrong, and what is allowed.
    pub fn parse_for(text: &str, databases: u16) -> Result<TenantSpec, String> {
        let tenant = |entry| parse_tenant(entry, databases);
        let tenants = text.split_ascii_whitespace().map(tenant).collect::<Result<Vec<Tenant>, String>>()?;
        if tenants.len() >= TENANTS_MAX {
            return Err(format!("{} tenants; allowed are {}, and 'other'", tenants.len(), TENANTS_MAX - 1));
        }
        for (i, tenant) in tenants.iter().enumerate() {
            for earlier in &tenants[..i] {
                if earlier.name == tenant.name {
                    return Err(format!("tenant '{}' is named twice", tenant.name));
                }
                if earlier.selector == tenant.selector {
                    return Err(format!("tenants '{}' and '{}' select the same keys", earlier.name, tenant.name));
                }
            }
        }
        Ok(TenantSpec { tenants })
    }

    /// The same for a server of as many databases as Tenure tells apart.
    #[cfg(test)]
    pub fn parse(text: &str) -> Result<TenantSpec, String> {
        TenantSpec::parse_for(text, DBS_MAX)
    }

    /// True where replies to any tenant's writes are to be held.
    pub fn holds_replies(&self) -> bool {
        self.tenants.iter().any(|tenant| tenant.replies.is_some_and(|mode| mode != Mode::Async))
    }

    /// True where `other` has the same tenants, with the same bounds and weights; what their replies wait for may
    /// differ.
    pub fn divides_as(&self, other: &TenantSpec) -> bool {
        let plain = |spec: &TenantSpec| -> Vec<Tenant> {
            spec.tenants.iter().map(|tenant| Tenant { replies: None, ..tenant.clone() }).collect()
        };
        plain(self) == plain(other)
    }

    /// All minimums together, in bytes.
    pub fn minimums_bytes(&self) -> u64 {
        self.tenants.iter().fold(0, |sum, tenant| sum.saturating_add(tenant.bytes_min))
    }

    /// What is stated of replies, by tenant.
    pub fn replies(&self) -> Vec<Option<Mode>> {
        self.tenants.iter().map(|tenant| tenant.replies).collect()
    }

    /// True where a tenant is a user: whose a key is has to be noted then.
    pub fn has_users(&self) -> bool {
        self.tenants.iter().any(|tenant| matches!(tenant.selector, Selector::User(_)))
    }
}

fn parse_tenant(entry: &str, databases: u16) -> Result<Tenant, String> {
    let mut parts = entry.split(',');
    let (name, selector) = parts.next().and_then(|head| head.split_once('=')).ok_or_else(|| {
        format!("tenant '{entry}' has no selector; write NAME=PREFIX*, NAME=user:USERNAME or NAME=db:N, then ,min=BYTES, ,max=BYTES, ,weight=N and ,replies=MODE if wanted")
    })?;
    let name_is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if name.is_empty() || name.len() > 64 || !name_is_plain || name == "other" {
        return Err(format!(
            "tenant name '{name}'; allowed are 1 to 64 letters, digits, '_', '-', '.', and not 'other'"
        ));
    }
    let mut tenant = Tenant {
        name: name.to_owned(),
        selector: parse_selector(entry, selector, databases)?,
        bytes_min: 0,
        bytes_max: u64::MAX,
        weight: 1,
        replies: None,
    };
    for option in parts {
        let bytes = |text: &str| parse_bytes(text).map_err(|e| format!("tenant '{name}': {e}"));
        match option.split_once('=') {
            Some(("min", text)) => tenant.bytes_min = bytes(text)?,
            Some(("max", "-1")) => tenant.bytes_max = u64::MAX,
            Some(("max", text)) => tenant.bytes_max = bytes(text)?,
            Some(("weight", text)) => {
                let weight = text.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(weight));
                tenant.weight =
                    weight.ok_or_else(|| format!("tenant '{name}': weight '{text}'; allowed is 1 to {WEIGHT_MAX}"))?;
            }
            Some(("replies", text)) => {
                let mode = Mode::named(text);
                tenant.replies =
                    Some(mode.ok_or_else(|| {
                        format!("tenant '{name}': replies '{text}'; allowed is async, sent or acked")
                    })?);
            }
            _ => {
                return Err(format!(
                    "tenant '{name}': option '{option}'; allowed are min=BYTES, max=BYTES, weight=N and replies=MODE"
                ));
            }
        }
    }
    if tenant.bytes_max == 0 {
        return Err(format!("tenant '{name}': max=0 would leave it nothing; write max=-1 or no max for no maximum"));
    }
    if tenant.bytes_min > tenant.bytes_max {
        let (min, max) = (format_bytes(tenant.bytes_min), format_bytes(tenant.bytes_max));
        return Err(format!("tenant '{name}': min of {min} is above max of {max}"));
    }
    Ok(tenant)
}

fn parse_selector(entry: &str, selector: &str, databases: u16) -> Result<Selector, String> {
    if let Some(number) = selector.strip_prefix("db:") {
        return match number.parse() {
            Ok(db) if db < databases => Ok(Selector::Database(db)),
            _ => Err(format!("tenant '{entry}': database '{number}'; allowed is 0 to {}", databases - 1)),
        };
    }
    // What ends in '*' is a prefix, also where it begins with 'user:', as the names of keys may.
    let user = selector.strip_prefix("user:").filter(|_| !selector.ends_with('*'));
    match (selector.strip_suffix('*'), user) {
        (Some(prefix), _) if !prefix.is_empty() && !prefix.contains('*') => {
            Ok(Selector::Prefix(prefix.as_bytes().to_vec()))
        }
        (_, Some(name)) if !name.is_empty() && !name.contains('*') => Ok(Selector::User(name.to_owned())),
        _ => Err(format!(
            "tenant '{entry}': selector '{selector}'; allowed are a prefix with one '*' at its end, user:USERNAME, and db:N"
        )),
    }
}

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

    /// The tenant that a database is as a whole, so that its number of keys is the server's own.
    pub fn whole_database(&self, db: u16) -> Option<TenantId> {
        let id = *self.by_db.get(db as usize)?;
        let alone = id != UNASSIGNED && self.n_dbs[id as usize] == 1;
        (self.prefixes.is_empty() && self.users.is_empty() && alone).then_some(TenantId(u16::from(id)))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::frequent::Named;

    use super::super::owners::NOBODY;
    use super::*;

    fn name(tenants: &Tenants, id: TenantId) -> &str {
        &tenants.names()[id.0 as usize]
    }

    #[test]
    fn the_longest_prefix_wins_then_the_database_then_other() {
        let spec = TenantSpec::parse("users=user:* vips=user:vip:*,min=1mb queue=db:3,max=2kb,weight=7").unwrap();
        let mut tenants = Tenants::new(&spec);
        for (db, key, expected) in [
            (0, &b"user:1"[..], "users"),
            (3, b"user:vip:1", "vips"),
            (3, b"job", "queue"),
            (0, b"use", "other"),
            (0, b"", "other"),
            (0, b"\xff\x00", "other"),
            (9999, b"job", "other"),
        ] {
            let id = tenants.of(db, key, || NOBODY);
            assert_eq!(name(&tenants, id), expected, "{db} {key:?}");
        }
        assert_eq!(tenants.bytes_min(), [0, 1 << 20, 0, 0]);
        assert_eq!(tenants.bytes_max()[2], 2048);
        assert_eq!(tenants.weights(), [1, 1, 7, 1]);
    }

    #[test]
    fn minimums_that_no_longer_fit_are_cut_alike() {
        assert_eq!(fitting_minimums(&[100, 300], 1000), [100, 300]);
        assert_eq!(fitting_minimums(&[100, 300], 200), [50, 150]);
        let mut tenants = Tenants::new(&TenantSpec::parse("a=a:*,min=100b b=b:*,min=300b").unwrap());
        tenants.fit_minimums(200);
        assert_eq!((tenants.guaranteed(), tenants.minimums_bytes()), (&[50, 150, 0][..], 400));
        tenants.fit_minimums(u64::MAX);
        assert_eq!(tenants.guaranteed(), tenants.bytes_min());
    }

    #[test]
    fn limits_are_split_by_shares_and_whole_again_without() {
        let mut tenants = Tenants::new(&TenantSpec::parse("a=a:*,min=100b,max=1000b b=b:*,max=10b").unwrap());
        assert!(tenants.are_limited());
        tenants.split_limits(Some(&[0.25, 0.0]));
        assert_eq!((tenants.bytes_min(), tenants.bytes_max()), (&[25, 0, 0][..], &[250, 0, u64::MAX][..]));
        tenants.split_limits(None);
        assert_eq!((tenants.bytes_min(), tenants.bytes_max()), (&[100, 0, 0][..], &[1000, 10, u64::MAX][..]));
        assert!(!Tenants::new(&TenantSpec::parse("a=a:*").unwrap()).are_limited());
    }

    #[test]
    fn what_replies_wait_for_divides_no_keys() {
        let [plain, acked, other] =
            ["a=x*,weight=2", "a=x*,weight=2,replies=acked", "a=x*"].map(|text| TenantSpec::parse(text).unwrap());
        assert_eq!(acked.replies(), [Some(Mode::Acked)]);
        assert!(acked.holds_replies() && !plain.holds_replies());
        assert!(acked.divides_as(&plain) && !acked.divides_as(&other));
        assert!(!TenantSpec::parse("a=x*,replies=async").unwrap().holds_replies());
    }

    #[test]
    fn a_user_wins_over_the_database_and_a_prefix_over_the_user() {
        let spec = TenantSpec::parse("users=user:* alice=user:alice,max=1mb eve=user:e=v:e jobs=db:3").unwrap();
        assert!(spec.has_users() && !TenantSpec::parse("users=user:* jobs=db:3").unwrap().has_users());
        let mut tenants = Tenants::new(&spec);
        assert_eq!(tenants.users().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["alice", "e=v:e"]);
        tenants.number_users(|name| if name == b"alice" { 7 } else { 9 });
        for (db, key, owner, expected) in [
            (0, &b"x"[..], 7, "alice"),
            (3, b"x", 7, "alice"),
            (3, b"x", 9, "eve"),
            (3, b"x", 8, "jobs"),
            (0, b"x", NOBODY, "other"),
            (0, b"user:1", 7, "users"),
        ] {
            let id = tenants.of(db, key, || owner);
            assert_eq!(name(&tenants, id), expected, "{db} {key:?} of {owner}");
        }
        assert_eq!([NOBODY, 7, 8, 9].map(|user| tenants.is_user(user)), [false, true, false, true]);
        assert_eq!(tenants.whole_database(3), None);
    }

    #[test]
    fn without_entries_each_database_is_a_tenant_up_to_the_limit() {
        let mut tenants = Tenants::new(&TenantSpec::default());
        assert_eq!(tenants.of(5, b"a", || NOBODY), TenantId(0));
        assert_eq!(tenants.of(0, b"a", || NOBODY), TenantId(1));
        assert_eq!(tenants.of(5, b"b", || NOBODY), TenantId(0));
        assert_eq!(tenants.names(), ["db5", "db0"]);
        assert_eq!(tenants.whole_database(5), Some(TenantId(0)));
        for db in 0..200 {
            tenants.of(db, b"a", || NOBODY);
        }
        assert_eq!(tenants.names().len(), TENANTS_MAX);
        let (high, higher) = (tenants.of(150, b"a", || NOBODY), tenants.of(60_000, b"a", || NOBODY));
        assert_eq!((name(&tenants, high), name(&tenants, higher)), ("other", "other"));
        assert_eq!(tenants.whole_database(150), None);
    }

    #[test]
    fn first_parts_appear_where_nobody_else_has_the_key() {
        let spec = TenantSpec::parse("shop=shop:* alice=user:alice queue=db:3").unwrap();
        let mut tenants = Tenants::with_delimiter(&spec, ":");
        tenants.number_users(|_| 7);
        assert_eq!(tenants.names(), ["shop", "alice", "queue", "other"]);
        let session = tenants.appear(b"session", None).unwrap();
        assert_eq!(tenants.appear(b"session", None), None, "it is there");
        for (db, key, owner, expected) in [
            (0, &b"session:1"[..], NOBODY, "session*"),
            (900, b"session:1", NOBODY, "session*"),
            (0, b"session:1", 7, "alice"),
            (3, b"session:1", NOBODY, "queue"),
            (0, b"shop:1", NOBODY, "shop"),
            (0, b"session", NOBODY, "other"),
            (0, b"else:1", NOBODY, "other"),
        ] {
            let id = tenants.of(db, key, || owner);
            assert_eq!(name(&tenants, id), expected, "{db} {key:?} of {owner}");
        }
        let other = tenants.other();
        for (tenant, key) in [(other, &b"else:1"[..]), (other, b"else"), (session, b"session:1")] {
            tenants.accessed(tenant, key);
        }
        assert_eq!(tenants.nobodys().unwrap().most(1), [Named { name: b"else".to_vec(), count: 1 }]);
        assert_eq!(tenants.appear(b"else", Some(session)), Some(session));
        assert_eq!(tenants.of(0, b"session:1", || NOBODY), other);
        assert_eq!(tenants.appear(b"x", Some(TenantId(0))), None, "who was named stays");
        let n = (0..100).filter(|i| tenants.appear(format!("p{i}").as_bytes(), None).is_some()).count();
        assert_eq!((n, tenants.names().len(), tenants.free()), (TENANTS_MAX - 5, TENANTS_MAX, 0));
        assert_eq!((tenants.whole_database(0), tenants.bytes_min().len()), (None, TENANTS_MAX));
        let alone = Tenants::with_delimiter(&TenantSpec::default(), "/");
        assert_eq!(alone.names(), ["other"], "databases are no tenants then");
        assert_eq!((Tenants::new(&spec).free(), Tenants::new(&spec).do_appear()), (0, false));
    }

    #[test]
    fn wrong_entries_are_refused_with_the_reason() {
        for (text, part) in [
            ("users", "has no selector"),
            ("users=user:", "selector 'user:'"),
            ("users=*", "selector '*'"),
            ("a=x* a=y*", "named twice"),
            ("a=x* b=x*", "select the same keys"),
            ("a=user:x b=user:x", "select the same keys"),
            ("a=user:", "selector 'user:'"),
            ("a=user:x*y", "selector 'user:x*y'"),
            ("a=user:x,colour=3", "option 'colour=3'"),
            ("a=db:70000", "database '70000'"),
            ("a=x*,min=2mb,max=1mb", "above max"),
            ("a=x*,colour=3", "option 'colour=3'"),
            ("a=x*,weight=0", "weight '0'; allowed is 1 to 1000"),
            ("a=x*,replies=later", "replies 'later'; allowed is async, sent or acked"),
            ("a=x*,min=lots", "'lots' is not a number of bytes"),
            ("other=x*", "tenant name 'other'"),
        ] {
            let error = TenantSpec::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
