//! Miss-penalty classes: found by measuring, or hinted by who knows where a value comes from.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.1 and 3.2. A class is a number: 0 is none, then the ranges of `tenure.class-limits`,
//! then the names that hints have brought. What a key is told by name (`TENURE.CLASS KEY`) or by the connection that writes it
//! (`TENURE.CLASS CONNECTION`) comes first, then the rule of its prefix (`tenure.class-rules`), then what was measured. Keys are
//! remembered, in the cache or not, in a `KeyTable` of fixed size.

use std::collections::HashMap;

use tenure_core::asked::{Asked, Kind, REQUESTS_PER_TICK};
use tenure_core::decide::penalty_class::{ClassLimits, PENALTY_CLASSES};
use tenure_core::key_table::{BUCKET_BYTES, Entry, KeyTable};
use tenure_core::tiers::placed::Placed;
use tenure_core::units::{KeyHash, PartitionId};

use super::command_table::Effect;
use super::placements::{Noted, Placements};
use super::prefixes::Prefixes;
use super::slow_collections::SlowCollections;
use super::worths::Noise;

/// A class: 0 = none, 1 to 16 measured, 17 to 32 hinted.
pub type Class = u8;

/// How many numbers there are.
pub const CLASSES: usize = 1 + PENALTY_CLASSES + HINTED_MAX;
const HINTED_MAX: usize = 16;
const FIRST_HINTED: Class = PENALTY_CLASSES as Class + 1;
/// Connections that have told their class, at the most.
const CONNECTIONS_MAX: usize = 4096;

/// Where classes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// There are none.
    #[default]
    Off,
    /// From measured penalties, where there is no hint.
    Auto,
    /// From hints alone.
    Hinted,
}

/// `tenure.class-rules`, read: which class keys of a prefix are of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRules {
    rules: Vec<(Vec<u8>, String)>,
}

impl ClassRules {
    /// Reads entries `NAME=PREFIX*`, apart by spaces.
    ///
    /// # Errors
    /// A sentence that says which entry is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<ClassRules, String> {
        let mut rules: Vec<(Vec<u8>, String)> = Vec::new();
        for entry in text.split_ascii_whitespace() {
            let (name, prefix) = entry.split_once('=').ok_or_else(|| format!("rule '{entry}'; write NAME=PREFIX*"))?;
            check_name(name)?;
            let prefix = prefix.strip_suffix('*').filter(|prefix| !prefix.is_empty() && !prefix.contains('*'));
            let prefix =
                prefix.ok_or_else(|| format!("rule '{entry}'; allowed is a prefix with one '*' at its end"))?;
            if rules.iter().any(|(held, _)| held == prefix.as_bytes()) {
                return Err(format!("prefix '{prefix}*' has two rules"));
            }
            rules.push((prefix.as_bytes().to_vec(), name.to_owned()));
        }
        let names: std::collections::HashSet<&String> = rules.iter().map(|(_, name)| name).collect();
        if names.len() > HINTED_MAX {
            return Err(format!("{} classes; allowed are {HINTED_MAX}", names.len()));
        }
        Ok(ClassRules { rules })
    }
}

/// # Errors
/// Where `name` can't be a class's.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    if name.is_empty() || name.len() > 32 || !is_plain || name == "none" {
        return Err(format!("class name '{name}'; allowed are 1 to 32 letters, digits, '_', '-', '.', and not 'none'"));
    }
    Ok(())
}

/// What the classes are made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSpec {
    /// `tenure.classes`
    pub source: Source,
    /// `tenure.class-limits`
    pub limits: ClassLimits,
    /// `tenure.class-rules`
    pub rules: ClassRules,
}

/// What is remembered of a key beside its class and penalty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remembers {
    /// Nothing, and no key whose class isn't known.
    #[default]
    Classes,
    /// How long and how often asked for each key of the cache is there, for hyperbolic policies.
    Residence,
    /// What each key has shown, in the cache or not, for Tenure's own policy.
    History,
}

/// The table that is to be had for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it may take.
    pub bytes: u64,
    /// Half of it for what the other half has no place for: where neither classes nor tiers are to be remembered.
    pub has_outlines: bool,
}

impl Table {
    /// An empty one.
    pub fn new_keys(self) -> KeyTable {
        match self.has_outlines {
            true => KeyTable::with_outlines(self.bytes, REQUESTS_PER_TICK),
            false => KeyTable::new(self.bytes),
        }
    }

    /// True where `keys` is such a one.
    fn is_of(self, keys: &KeyTable) -> bool {
        let least = BUCKET_BYTES << u32::from(self.has_outlines);
        self.has_outlines == keys.has_outlines() && self.bytes / least * least == keys.memory_bytes()
    }
}

/// The classes in force. See the file's opening.
#[derive(Debug, Default)]
pub struct Classes {
    spec: ClassSpec,
    /// Names of hinted classes, in the order in which they came.
    hinted: Vec<String>,
    rules: Option<Prefixes<Class>>,
    connections: HashMap<u64, Class>,
    /// What is remembered of keys; where nothing needs it there is none.
    pub keys: Option<KeyTable>,
    remembers: Remembers,
    /// Accesses on their way into the table, where it holds what keys have shown.
    pub asked: Asked<Noted>,
    /// Where there are two tiers of memory, who is asked for in which.
    pub placements: Option<Box<Placements>>,
    /// And whose collections lie in the slower one.
    pub slow_collections: SlowCollections,
    /// Keys that changed class, or were forgotten, maybe while they were in the cache.
    pub moved: u64,
    /// How far penalties tell keys apart.
    pub noise: Noise,
}

impl Classes {
    /// The classes that `spec` asks for, with what is remembered of keys.
    pub fn new(spec: ClassSpec, keys: Option<KeyTable>, remembers: Remembers) -> Self {
        let mut classes = Classes { spec, keys, remembers, asked: Asked::default(), ..Classes::default() };
        classes.take_rules();
        classes
    }

    fn take_rules(&mut self) {
        let rules = self.spec.rules.rules.clone();
        // `parse` has seen to it that there are not too many, but hints may have brought others.
        let classes = rules.into_iter().map(|(prefix, name)| (prefix, self.hinted(&name).unwrap_or(0)));
        self.rules = Some(Prefixes::new(classes)).filter(|rules| !rules.is_empty());
    }

    /// The same under another `spec`, with such a `table`: what was learned and told of keys stays, where the table
    /// is as before, its classes mean the same, and its times are of the same clock.
    pub fn renewed(self, spec: ClassSpec, table: Option<Table>, remembers: Remembers) -> Self {
        let is_same = |keys: &KeyTable| table.is_some_and(|table| table.is_of(keys));
        let is_history = |remembers| remembers == Remembers::History;
        let means_the_same = spec.limits == self.spec.limits
            && spec.source == self.spec.source
            && is_history(remembers) == is_history(self.remembers);
        let keys = self.keys.filter(|keys| means_the_same && is_same(keys));
        let Some(keys) = keys else {
            let mut classes = Classes::new(spec, table.map(Table::new_keys), remembers);
            classes.slow_collections = self.slow_collections;
            return classes;
        };
        let (hinted, connections, asked, placements) = (self.hinted, self.connections, self.asked, self.placements);
        let (keys, slow_collections) = (Some(keys), self.slow_collections);
        let mut classes = Classes {
            spec,
            keys,
            remembers,
            asked,
            hinted,
            connections,
            placements,
            slow_collections,
            ..Classes::default()
        };
        classes.take_rules();
        classes
    }

    /// True where keys are told apart.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.spec.source != Source::Off
    }

    /// The class of a key. One cache line, and a search among the rules.
    #[inline]
    pub fn of(&self, name: &[u8], key: KeyHash) -> Class {
        let held = self.keys.as_ref().and_then(|keys| keys.get(key)).map_or(0, |entry| entry.class);
        match &self.rules {
            Some(rules) if held < FIRST_HINTED => rules.longest(name).unwrap_or(held),
            _ => held,
        }
    }

    /// A miss of the key cost `penalty_us`. Where that tells its class, it is remembered.
    pub fn learn(&mut self, key: KeyHash, penalty_us: u64, now: u32) {
        if self.spec.source != Source::Auto && self.remembers == Remembers::Classes {
            return;
        }
        let now = self.time(now);
        let Some(keys) = &mut self.keys else { return };
        let displaced = keys.displaced();
        let entry = keys.get_or_insert(key, now);
        self.noise.measured(penalty_us as f32, entry.penalty_us());
        let smoothed_us = entry.learn_penalty(penalty_us as f32);
        if self.spec.source == Source::Auto && entry.class < FIRST_HINTED {
            let class = match entry.class {
                0 => self.spec.limits.class_of(smoothed_us),
                held => self.spec.limits.class_from(usize::from(held) - 1, smoothed_us),
            };
            entry.class = class as Class + 1;
        }
        self.moved += keys.displaced() - displaced;
    }

    /// The key of that name is asked for, written or deleted; `is_answer` says that the write answers a miss.
    #[inline]
    pub fn used(
        &mut self,
        (key, name): (KeyHash, &[u8]),
        place: (u16, PartitionId),
        effect: Effect,
        is_answer: bool,
        now: u32,
    ) {
        if self.remembers == Remembers::History {
            let kind = match effect {
                Effect::Delete => Kind::Deleted,
                Effect::Write if is_answer => Kind::Filled,
                _ => Kind::Asked,
            };
            return self.ask((key, name), place, effect, kind);
        }
        let Some(keys) = &mut self.keys else { return };
        let displaced = keys.displaced();
        let entry = match effect {
            Effect::Write if self.remembers == Remembers::Residence => Some(keys.get_or_insert(key, now)),
            _ => keys.get_mut(key),
        };
        let Some(entry) = entry else { return };
        entry.last = now;
        match effect {
            Effect::Write if entry.n_requests == 0 => entry.enter(now),
            Effect::Delete => entry.n_requests = 0,
            // What isn't there has 0 and keeps it.
            _ => entry.n_requests = entry.n_requests.saturating_add(u16::from(entry.n_requests > 0)),
        }
        self.moved += keys.displaced() - displaced;
    }

    /// The same where what keys have shown is remembered, and where there are two tiers, in which each key lies.
    #[inline]
    fn ask(&mut self, (key, name): (KeyHash, &[u8]), place: (u16, PartitionId), effect: Effect, kind: Kind) {
        if self.keys.is_none() || !self.asked.is_on() {
            return;
        }
        let has_room = self.placements.as_ref().is_none_or(|placements| placements.has_room(name));
        if self.asked.is_full() || !has_room {
            self.settle();
        }
        let noted = match &mut self.placements {
            Some(placements) => placements.note(key, name, place, effect),
            None => Noted::default(),
        };
        self.asked.push(key, kind, noted);
    }

    /// While reads go unseen, a key is written: where its value lies has to be known all the same.
    pub fn stored(&mut self, key: KeyHash) {
        self.ask((key, b""), (0, PartitionId::default()), Effect::Write, Kind::Stored);
    }

    /// The key's value lies there now. Who isn't remembered is from now on, as of whom nothing was seen since the clock goes.
    pub fn set_placed(&mut self, key: KeyHash, placed: Placed) {
        let since = self.asked.clock().since as u32;
        let Some(keys) = &mut self.keys else { return };
        let displaced = keys.displaced();
        let entry = keys.get_or_insert(key, since);
        entry.n_requests = entry.n_requests.max(1);
        entry.set_placed(placed);
        self.moved += keys.displaced() - displaced;
    }

    /// Accesses that wait are in the table from now on. A comparison, where there are none.
    #[inline]
    pub fn settle(&mut self) {
        if self.asked.are_waiting() {
            self.settle_waiting();
        }
    }

    /// A turn is over. Where values lie in two tiers, what is slow and was read may have to move now; else accesses wait until they are many or asked about.
    #[inline]
    pub fn end_turn(&mut self) {
        if self.placements.is_some() {
            self.settle();
        }
    }

    #[inline(never)]
    fn settle_waiting(&mut self) {
        let Some(keys) = &mut self.keys else { return };
        self.moved += match &mut self.placements {
            Some(placements) => self.asked.settle_with(keys, &mut **placements),
            None => self.asked.settle_with(keys, &mut ()),
        };
        if let Some(placements) = &mut self.placements {
            placements.settled();
        }
    }

    /// A read of the key has found nothing.
    #[inline]
    pub fn missed(&mut self, key: KeyHash) {
        if self.remembers == Remembers::History {
            self.gone(|| key);
        }
    }

    /// The time that entries are dated by: `now`, or Tenure's own clock.
    fn time(&self, now: u32) -> u32 {
        if self.remembers == Remembers::History { self.asked.now() as u32 } else { now }
    }

    /// The key has left the cache.
    #[inline]
    pub fn gone(&mut self, key: impl Fn() -> KeyHash) {
        self.settle();
        self.slow_collections.remove(&key);
        if let Some(entry) = self.keys.as_mut().and_then(|keys| keys.get_mut(key())) {
            entry.n_requests = 0;
        }
    }

    /// The key is written by a connection: what that has told counts.
    pub fn written_by(&mut self, client_id: u64, key: KeyHash, now: u32) {
        if let Some(&class) = self.connections.get(&client_id) {
            self.hint(key, class, now);
        }
    }

    /// True where a write may bring a class with it.
    #[inline]
    pub fn any_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// From now on the key is of `class`.
    pub fn hint(&mut self, key: KeyHash, class: Class, now: u32) {
        let now = self.time(now);
        let Some(keys) = &mut self.keys else { return };
        let displaced = keys.displaced();
        let entry = keys.get_or_insert(key, now);
        let changed = u64::from(std::mem::replace(&mut entry.class, class) != class);
        self.moved += keys.displaced() - displaced + changed;
    }

    /// From now on what a connection writes is of `class`; with 0, of whatever its key tells.
    ///
    /// # Errors
    /// Where too many have told theirs.
    pub fn hint_connection(&mut self, client_id: u64, class: Class) -> Result<(), String> {
        if class == 0 {
            self.connections.remove(&client_id);
        } else if self.connections.len() >= CONNECTIONS_MAX && !self.connections.contains_key(&client_id) {
            return Err(format!("{CONNECTIONS_MAX} connections have told their class already; that is the most"));
        } else {
            self.connections.insert(client_id, class);
        }
        Ok(())
    }

    /// A connection has ended.
    pub fn forget_connection(&mut self, client_id: u64) {
        self.connections.remove(&client_id);
    }

    /// The class of that name, a new one where there was none; `none` is no class.
    ///
    /// # Errors
    /// A name that can't be, or one too many.
    pub fn named(&mut self, name: &str) -> Result<Class, String> {
        if name == "none" {
            return Ok(0);
        }
        check_name(name)?;
        self.hinted(name)
            .ok_or_else(|| format!("class '{name}' would be one too many; there are: {}", self.hinted.join(", ")))
    }

    fn hinted(&mut self, name: &str) -> Option<Class> {
        let at = self.hinted.iter().position(|held| held == name).or_else(|| {
            (self.hinted.len() < HINTED_MAX).then(|| {
                self.hinted.push(name.to_owned());
                self.hinted.len() - 1
            })
        });
        at.map(|at| FIRST_HINTED + at as Class)
    }

    /// A class's name: that of its hint, or its range.
    pub fn name(&self, class: Class) -> String {
        match class {
            0 => "none".to_owned(),
            hinted if hinted >= FIRST_HINTED => self.hinted[usize::from(hinted - FIRST_HINTED)].clone(),
            measured => self.spec.limits.name(usize::from(measured) - 1),
        }
    }

    /// The class of that name, where there may be one: of a range that is measured, or hinted, then as [`Classes::named`].
    pub fn numbered(&mut self, name: &str) -> Option<Class> {
        let measured = |class: &Class| self.spec.source == Source::Auto && self.name(*class) == name;
        match (1..FIRST_HINTED).find(measured) {
            Some(class) => Some(class),
            None => self.named(name).ok(),
        }
    }

    /// The names of all classes that keys may be of, by class; `none` is the first.
    pub fn names(&self) -> Vec<String> {
        (0..FIRST_HINTED + self.hinted.len() as Class).map(|class| self.name(class)).collect()
    }

    /// The table, where another node can use it: what keys have shown is dated by each node's own clock.
    pub fn shared_keys(&self) -> Option<&KeyTable> {
        self.keys.as_ref().filter(|_| self.remembers != Remembers::History)
    }

    /// Takes over what another node remembers of a key, in a table of as many buckets.
    pub fn take_over(&mut self, bucket: usize, entry: Entry, now: u32) {
        let Some(keys) = self.keys.as_mut().filter(|_| self.remembers != Remembers::History) else { return };
        let displaced = keys.displaced();
        let before = keys.put(bucket, entry, now);
        self.moved += keys.displaced() - displaced + u64::from(before.is_some_and(|class| class != entry.class));
    }

    /// What is remembered of a key.
    #[inline]
    pub fn entry(&self, key: KeyHash) -> Option<Entry> {
        self.keys.as_ref().and_then(|keys| keys.recall(key, self.asked.now() as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::tiers::Tier;

    fn classes(source: Source, rules: &str) -> Classes {
        let spec = ClassSpec { source, rules: ClassRules::parse(rules).unwrap(), ..ClassSpec::default() };
        Classes::new(spec, Some(KeyTable::new(1 << 16)), Remembers::Classes)
    }

    fn of(classes: &Classes, name: &[u8]) -> String {
        classes.name(classes.of(name, KeyHash::of(name)))
    }

    #[test]
    fn a_measured_penalty_tells_the_class_and_noise_does_not_change_it() {
        let mut classes = classes(Source::Auto, "");
        let key = KeyHash::of(b"k");
        assert_eq!(of(&classes, b"k"), "none");
        classes.learn(key, 1000, 0);
        assert_eq!(of(&classes, b"k"), "630-1270us");
        classes.learn(key, 1700, 0);
        assert_eq!(of(&classes, b"k"), "630-1270us", "the mean is 1175");
        (0..10).for_each(|_| classes.learn(key, 2000, 0));
        assert_eq!(of(&classes, b"k"), "1270-2550us");
    }

    #[test]
    fn hints_win_over_rules_and_rules_over_what_was_measured() {
        let mut classes = classes(Source::Auto, "far=r:* near=r:l:*");
        let (far, near, other) = (&b"r:1"[..], &b"r:l:1"[..], &b"x"[..]);
        for key in [far, near, other] {
            classes.learn(KeyHash::of(key), 100, 0);
        }
        assert_eq!([far, near, other].map(|key| of(&classes, key)), ["far", "near", "70-150us"]);
        let class = classes.named("special").unwrap();
        classes.hint(KeyHash::of(far), class, 0);
        classes.hint_connection(7, class).unwrap();
        classes.written_by(7, KeyHash::of(other), 0);
        classes.written_by(8, KeyHash::of(near), 0);
        assert_eq!([far, near, other].map(|key| of(&classes, key)), ["special", "near", "special"]);
        classes.learn(KeyHash::of(other), 100, 0);
        assert_eq!(of(&classes, other), "special", "what was told stays");
    }

    #[test]
    fn other_rules_forget_nothing_and_other_limits_do() {
        let mut classes = classes(Source::Auto, "far=r:*");
        classes.learn(KeyHash::of(b"k"), 100, 0);
        let class = classes.named("special").unwrap();
        classes.hint(KeyHash::of(b"s"), class, 0);
        let table = Some(Table { bytes: classes.keys.as_ref().unwrap().memory_bytes(), has_outlines: false });
        let spec = ClassSpec { rules: ClassRules::parse("new=n:*").unwrap(), ..classes.spec.clone() };
        let classes = classes.renewed(spec.clone(), table, Remembers::Residence);
        assert_eq!([b"k", b"s"].map(|key| of(&classes, key)), ["70-150us", "special"]);
        assert_eq!(of(&classes, b"n:1"), "new");
        let mut classes = classes.renewed(spec.clone(), table, Remembers::History);
        assert_eq!(of(&classes, b"k"), "none", "its times are of another clock");
        classes.learn(KeyHash::of(b"k"), 100, 0);
        let spec = ClassSpec { limits: ClassLimits::parse("1000").unwrap(), ..spec };
        assert_eq!(of(&classes.renewed(spec, table, Remembers::History), b"k"), "none");
    }

    #[test]
    fn a_table_with_outlines_stays_where_another_is_to_have_them_too() {
        let outlined = Table { bytes: 1 << 16, has_outlines: true };
        let mut classes = Classes::new(ClassSpec::default(), Some(outlined.new_keys()), Remembers::History);
        classes.learn(KeyHash::of(b"k"), 100, 0);
        let classes = classes.renewed(ClassSpec::default(), Some(outlined), Remembers::History);
        assert!(classes.entry(KeyHash::of(b"k")).is_some());
        let full = Table { has_outlines: false, ..outlined };
        let classes = classes.renewed(ClassSpec::default(), Some(full), Remembers::History);
        assert!(classes.entry(KeyHash::of(b"k")).is_none());
        assert_eq!(classes.keys.map(|keys| (keys.has_outlines(), keys.memory_bytes())), Some((false, 1 << 16)));
    }

    #[test]
    fn where_hints_alone_count_nothing_is_measured() {
        let mut classes = classes(Source::Hinted, "");
        classes.learn(KeyHash::of(b"k"), 1000, 0);
        assert_eq!(of(&classes, b"k"), "none");
    }

    #[test]
    fn wrong_rules_and_names_are_refused_with_the_reason() {
        for (text, part) in [
            ("far", "NAME=PREFIX*"),
            ("far=r:", "one '*' at its end"),
            ("far=*", "one '*' at its end"),
            ("f ar=x*", "NAME=PREFIX*"),
            ("none=x*", "class name 'none'"),
            ("a=x* b=x*", "two rules"),
        ] {
            assert!(ClassRules::parse(text).unwrap_err().contains(part), "{text}");
        }
        let mut classes = classes(Source::Hinted, "");
        assert!(classes.named("a b").is_err());
        (0..HINTED_MAX).for_each(|i| assert!(classes.named(&format!("c{i}")).is_ok()));
        assert!(classes.named("more").unwrap_err().contains("one too many"));
        assert_eq!((classes.names()[0].as_str(), classes.names().len()), ("none", CLASSES));
    }

    /// A value that moved before anyone asked for it is known to lie there, also once it is asked for.
    #[test]
    fn what_moved_is_remembered_of_keys_that_nobody_asked_for() {
        let mut classes = Classes::new(ClassSpec::default(), Some(KeyTable::new(1 << 16)), Remembers::History);
        classes.asked.turn(true);
        let (key, down) = (KeyHash::of(b"k"), Placed::moved(Tier::Slow, 3));
        classes.set_placed(key, down);
        assert_eq!(classes.entry(key).map(|entry| (entry.n_requests, entry.placed())), Some((1, down)));
        classes.used((key, b"k"), (0, PartitionId::default()), Effect::Read, false, 0);
        classes.settle();
        assert_eq!(classes.entry(key).map(|entry| entry.placed().tier()), Some(Tier::Slow));
    }

    /// A write that goes unseen but for where its value lies: a new key is there, one that was deleted is again, and no time passes.
    #[test]
    fn what_is_written_among_unseen_reads_is_there() {
        let mut classes = Classes::new(ClassSpec::default(), Some(KeyTable::new(1 << 16)), Remembers::History);
        classes.asked.turn(true);
        let key = KeyHash::of(b"k");
        for _ in 0..2 {
            classes.stored(key);
            classes.settle();
            assert_eq!(
                classes.entry(key).map(|entry| (entry.n_requests, entry.placed())),
                Some((1, Placed::default()))
            );
            classes.set_placed(key, Placed::moved(Tier::Slow, 3));
            classes.stored(key);
            classes.gone(|| key);
            assert_eq!(classes.entry(key).map(|entry| entry.n_requests), Some(0));
        }
        assert_eq!(classes.asked.now(), 0);
    }

    #[test]
    fn classes_are_found_by_the_names_they_have() {
        let mut classes = classes(Source::Auto, "far=r:*");
        for (class, name) in classes.names().into_iter().enumerate() {
            assert_eq!(classes.numbered(&name), Some(class as Class), "{name}");
        }
        assert_eq!(classes.numbered("near"), Some(FIRST_HINTED + 1));
        assert_eq!(classes.numbered("no name"), None);
    }
}
