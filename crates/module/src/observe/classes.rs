//! Miss-penalty classes: found by measuring, or hinted by who knows where a value comes from.
//!
//! Source: pRedis (Pan et al., SoCC'19) sec. 3.1 and 3.2. A class is a number: 0 is none, then the ranges of
//! `tenure.class-limits`, then the names that hints have brought. What a key is told by name (`TENURE.CLASS KEY`) or
//! by the connection that writes it (`TENURE.CLASS CONNECTION`) comes first, then the rule of its prefix
//! (`tenure.class-rules`), then what was measured. What is remembered of keys is in `keys.rs`.

use std::collections::HashMap;
use std::ffi::CStr;

use tenure_core::decide::penalty_class::{ClassLimits, PENALTY_CLASSES};

use super::prefixes::Prefixes;

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

impl Source {
    /// The names, in the order of [`Source::ALL`].
    pub const NAMES: &[&CStr] = &[c"off", c"auto", c"hinted"];
    /// All.
    pub const ALL: [Source; 3] = [Source::Off, Source::Auto, Source::Hinted];
}

/// `tenure.class-rules`, read: which class keys of a prefix are of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRules {
    rules: Vec<(Vec<u8>, String)>,
}

impl ClassRules {
    /// Reads entries `NAME=PREFIX*`, separated by spaces.
    ///
    /// # Errors
    /// A sentence that says which entry is wrong, and what is allowed.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<ClassRules, String> {
        let mut rules: Vec<(Vec<u8>, String)> = Vec::new();
        for entry in ClassRules::entries(text.as_ref()) {
            let shown = entry.escape_ascii();
            let at = entry.iter().position(|&byte| byte == b'=');
            let at = at.ok_or_else(|| format!("rule '{shown}'; write NAME=PREFIX*"))?;
            let name = String::from_utf8_lossy(&entry[..at]);
            check_name(&name)?;
            let prefix = entry[at + 1..].strip_suffix(b"*");
            let prefix = prefix.filter(|prefix| !prefix.is_empty() && !prefix.contains(&b'*'));
            let prefix =
                prefix.ok_or_else(|| format!("rule '{shown}'; allowed is a prefix with one '*' at its end"))?;
            if prefix.iter().any(|byte| b"\"\\".contains(byte)) {
                // Valkey 8.1.1 does not mask them in a rewritten configuration, and does not start with it then.
                return Err(format!(
                    "rule '{shown}'; a quote or backslash in a prefix does not outlive CONFIG REWRITE"
                ));
            }
            if rules.iter().any(|(held, _)| held == prefix) {
                return Err(format!("prefix '{}*' has two rules", prefix.escape_ascii()));
            }
            rules.push((prefix.to_vec(), name.into_owned()));
        }
        let names: std::collections::HashSet<&String> = rules.iter().map(|(_, name)| name).collect();
        if names.len() > HINTED_MAX {
            return Err(format!("{} classes; allowed are {HINTED_MAX}", names.len()));
        }
        Ok(ClassRules { rules })
    }

    /// The entries as they are written, separated by spaces.
    fn entries(text: &[u8]) -> impl Iterator<Item = &[u8]> {
        text.split(u8::is_ascii_whitespace).filter(|entry| !entry.is_empty())
    }

    /// `text` with `name` for keys of `prefix*`, in the place of the prefix's former rule; without one where `name`
    /// is `none`.
    ///
    /// # Errors
    /// As [`ClassRules::parse`], and for a prefix with a space in it, at which entries end.
    pub fn with(text: &[u8], prefix: &[u8], name: &str) -> Result<Vec<u8>, String> {
        if prefix.iter().any(u8::is_ascii_whitespace) {
            let shown = prefix.escape_ascii();
            return Err(format!(
                "prefix '{shown}' has a space or line end in it, at which entries of tenure.class-rules end"
            ));
        }
        let is_other = |entry: &&[u8]| {
            let at = entry.iter().position(|&byte| byte == b'=');
            at.is_none_or(|at| &entry[at + 1..] != prefix)
        };
        let mut rules: Vec<&[u8]> = ClassRules::entries(text).filter(is_other).collect();
        let rule = [name.as_bytes(), b"=", prefix].concat();
        if name != "none" {
            rules.push(&rule);
        }
        let rules = rules.join(&b' ');
        ClassRules::parse(&rules)?;
        Ok(rules)
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

/// The classes in force. See the file's opening.
#[derive(Debug, Default)]
pub struct Classes {
    spec: ClassSpec,
    /// Names of hinted classes, in the order in which they came.
    hinted: Vec<String>,
    rules: Option<Prefixes<Class>>,
    connections: HashMap<u64, Class>,
}

impl Classes {
    /// The classes that `spec` asks for.
    pub fn new(spec: ClassSpec) -> Self {
        let mut classes = Classes { spec, ..Classes::default() };
        classes.take_rules();
        classes
    }

    fn take_rules(&mut self) {
        let rules = self.spec.rules.rules.clone();
        // `parse` has seen to it that there are not too many, but hints may have brought others.
        let classes = rules.into_iter().map(|(prefix, name)| (prefix, self.hinted(&name).unwrap_or(0)));
        self.rules = Some(Prefixes::new(classes)).filter(|rules| !rules.is_empty());
    }

    /// True where numbers of measured classes mean the same under another `spec`.
    pub fn mean_the_same(&self, spec: &ClassSpec) -> bool {
        spec.limits == self.spec.limits && spec.source == self.spec.source
    }

    /// The same under another `spec`: what was told stays where what is remembered of keys does.
    pub fn renewed(self, spec: ClassSpec, are_keys_kept: bool) -> Self {
        if !are_keys_kept {
            return Classes::new(spec);
        }
        let (hinted, connections) = (self.hinted, self.connections);
        let mut classes = Classes { spec, hinted, connections, ..Classes::default() };
        classes.take_rules();
        classes
    }

    /// True where keys are told apart.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.spec.source != Source::Off
    }

    /// The class of a key of that name, of which `held` is remembered. A search among the rules.
    #[inline]
    pub fn of(&self, name: &[u8], held: Class) -> Class {
        match &self.rules {
            Some(rules) if held < FIRST_HINTED => rules.longest(name).unwrap_or(held),
            _ => held,
        }
    }

    /// True where penalties tell classes.
    pub fn are_measured(&self) -> bool {
        self.spec.source == Source::Auto
    }

    /// The class that a key of class `held` is of, where its smoothed penalty says so: hints win, and noise changes
    /// nothing.
    pub fn measured(&self, held: Class, smoothed_us: f32) -> Option<Class> {
        if !self.are_measured() || held >= FIRST_HINTED {
            return None;
        }
        let class = match held {
            0 => self.spec.limits.class_of(smoothed_us),
            held => self.spec.limits.class_from(usize::from(held) - 1, smoothed_us),
        };
        Some(class as Class + 1)
    }

    /// What a connection has told of the keys that it writes.
    pub fn of_connection(&self, client_id: u64) -> Option<Class> {
        self.connections.get(&client_id).copied()
    }

    /// True where a write may bring a class with it.
    #[inline]
    pub fn any_connections(&self) -> bool {
        !self.connections.is_empty()
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

    /// The class of that name, where there may be one: of a range that is measured, or hinted, then as
    /// [`Classes::named`].
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
}

#[cfg(test)]
mod tests {
    use tenure_core::key_table::KeyTable;
    use tenure_core::units::KeyHash;

    use super::super::keys::{Keys, Remembers, Table};
    use super::super::partitions::Partitions;
    use super::super::tenants::{TenantSpec, Tenants};
    use super::*;

    fn classes(source: Source, rules: &str) -> Classes {
        Classes::new(ClassSpec { source, rules: ClassRules::parse(rules).unwrap(), ..ClassSpec::default() })
    }

    fn partitions(source: Source, rules: &str) -> Partitions {
        let keys = Keys::new(Some(KeyTable::new(1 << 16)), Remembers::Classes);
        with(classes(source, rules), keys)
    }

    fn with(classes: Classes, keys: Keys) -> Partitions {
        Partitions::new(Tenants::new(&TenantSpec::default()), classes, keys, None)
    }

    fn of(partitions: &Partitions, name: &[u8]) -> String {
        partitions.classes.name(partitions.class_of(name, KeyHash::of(name)))
    }

    #[test]
    fn a_measured_penalty_tells_the_class_and_noise_does_not_change_it() {
        let mut partitions = partitions(Source::Auto, "");
        let key = KeyHash::of(b"k");
        assert_eq!(of(&partitions, b"k"), "none");
        partitions.learn(key, 1000, 0);
        assert_eq!(of(&partitions, b"k"), "630-1270us");
        partitions.learn(key, 1700, 0);
        assert_eq!(of(&partitions, b"k"), "630-1270us", "the mean is 1175");
        (0..10).for_each(|_| partitions.learn(key, 2000, 0));
        assert_eq!(of(&partitions, b"k"), "1270-2550us");
    }

    #[test]
    fn hints_win_over_rules_and_rules_over_what_was_measured() {
        let mut partitions = partitions(Source::Auto, "far=r:* near=r:l:*");
        let (far, near, other) = (&b"r:1"[..], &b"r:l:1"[..], &b"x"[..]);
        for key in [far, near, other] {
            partitions.learn(KeyHash::of(key), 100, 0);
        }
        assert_eq!([far, near, other].map(|key| of(&partitions, key)), ["far", "near", "70-150us"]);
        let class = partitions.classes.named("special").unwrap();
        partitions.keys.set_class(KeyHash::of(far), class, 0);
        partitions.classes.hint_connection(7, class).unwrap();
        partitions.written_by(7, KeyHash::of(other), 0);
        partitions.written_by(8, KeyHash::of(near), 0);
        assert_eq!([far, near, other].map(|key| of(&partitions, key)), ["special", "near", "special"]);
        partitions.learn(KeyHash::of(other), 100, 0);
        assert_eq!(of(&partitions, other), "special", "what was told stays");
    }

    #[test]
    fn other_rules_forget_nothing_and_other_limits_do() {
        let renewed = |held: Partitions, spec: &ClassSpec, remembers| {
            let bytes = held.keys.table.as_ref().map_or(1 << 16, KeyTable::memory_bytes);
            let table = Some(Table { bytes, has_compact_entries: false });
            let (keys, are_kept) = held.keys.renewed(table, remembers, held.classes.mean_the_same(spec));
            with(held.classes.renewed(spec.clone(), are_kept), keys)
        };
        let mut held = partitions(Source::Auto, "far=r:*");
        held.learn(KeyHash::of(b"k"), 100, 0);
        let class = held.classes.named("special").unwrap();
        held.keys.set_class(KeyHash::of(b"s"), class, 0);
        let spec = ClassSpec { rules: ClassRules::parse("new=n:*").unwrap(), ..held.classes.spec.clone() };
        let held = renewed(held, &spec, Remembers::Residence);
        assert_eq!([b"k", b"s"].map(|key| of(&held, key)), ["70-150us", "special"]);
        assert_eq!(of(&held, b"n:1"), "new");
        let mut held = renewed(held, &spec, Remembers::History);
        assert_eq!(of(&held, b"k"), "none", "its times are of another clock");
        held.learn(KeyHash::of(b"k"), 100, 0);
        let spec = ClassSpec { limits: ClassLimits::parse("1000").unwrap(), ..spec };
        assert_eq!(of(&renewed(held, &spec, Remembers::History), b"k"), "none");
    }

    #[test]
    fn where_hints_alone_count_nothing_is_measured() {
        let mut partitions = partitions(Source::Hinted, "");
        partitions.learn(KeyHash::of(b"k"), 1000, 0);
        assert_eq!(of(&partitions, b"k"), "none");
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
