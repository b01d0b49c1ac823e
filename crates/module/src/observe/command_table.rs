//! Which words of a command are keys and what happens to them: the server's own command table, read once and kept flat.
//!
//! Source: the key specifications of `COMMAND` (Redis 7.0 and later): where a key starts (a position, or behind a
//! keyword) and how many follow (a range, or a number that another word gives). Looking a command up and walking its
//! keys allocates nothing. Not covered: keys that a command hides from its own specification (`SORT … STORE`, a
//! script's undeclared keys); what a script does is seen when it does it.

use crate::ffi::filter::Words;
use crate::ffi::reply::Value;

/// What a command does to one of its keys, as the models count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Asks.
    Read,
    /// Changes what is there, or adds to it; whether the key is still there afterwards is looked up.
    Change,
    /// Stores a value whatever is there.
    Replace,
    /// Removes.
    Delete,
}

impl Effect {
    /// True of what leaves a value.
    #[inline]
    pub fn writes(self) -> bool {
        matches!(self, Effect::Change | Effect::Replace)
    }
}

/// A specification's first flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// `RO`.
    ReadOnly,
    /// `RW`.
    ReadWrite,
    /// `OW`.
    Overwrite,
    /// `RM`.
    Remove,
}

#[derive(Clone, Debug, PartialEq)]
enum Begin {
    At(usize),
    /// Behind `word`, looked for from `from`; from the end backwards where it is negative.
    Keyword {
        word: Vec<u8>,
        from: i64,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Find {
    /// Up to `last` words further (negative: counted from the end of the command), every `step`; a `limit` above 1
    /// takes only that part of the remaining words.
    Range { last: i64, step: usize, limit: i64 },
    /// As many as the word `number` further says, the first being `first` further.
    Counted { number: usize, first: usize, step: usize },
}

/// One specification.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpec {
    begin: Begin,
    find: Find,
    key_use: KeyUse,
}

/// What a command changes for those that follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sets {
    /// Nothing.
    #[default]
    Nothing,
    /// The client's database, to the one that its first argument names.
    Database,
    /// The client's database or its user, maybe.
    MaybeClient,
    /// The client's reads are answered by a replica of a cluster, or no longer.
    Reader,
    /// What modules there are.
    Modules,
    /// Maybe the database or the user; and the commands that it runs have been seen when they were queued.
    RunsQueued,
}

/// What a command means to replies that wait for replicas, and to where values lie; a container's is that of all its
/// subcommands together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    const USED: Marks = Marks(1);
    /// It may change the data set, as far as its flags tell, or run commands that do.
    pub const WRITES: Marks = Marks(2);
    /// The server may serve others while it runs, for it may take long.
    pub const YIELDS: Marks = Marks(4);
    /// It runs what was queued.
    pub const RUNS_QUEUED: Marks = Marks(8);
    /// It may bring a replica's acknowledgement.
    pub const ACKNOWLEDGES: Marks = Marks(16);
    /// It may wait for keys, to be answered in a later turn.
    pub const WAITS_FOR_KEYS: Marks = Marks(32);
    /// Its second argument is a whole string, to be stored under its only key.
    const STORES_SECOND: Marks = Marks(64);
    /// Its third is.
    const STORES_THIRD: Marks = Marks(128);

    /// True of a command that is marked so.
    #[inline]
    pub fn has(self, mark: Marks) -> bool {
        self.0 & mark.0 != 0
    }

    fn with(self, mark: Marks, wanted: bool) -> Marks {
        if wanted { Marks(self.0 | mark.0) } else { self }
    }

    /// Of a command that the server flags so.
    fn of(container: &str, flags: &[&str]) -> Marks {
        let has = |flag| flags.contains(&flag);
        let is_script = container.starts_with("eval") || container.starts_with("fcall");
        // Of another module's command that isn't flagged either way nobody knows.
        let is_foreign = has("module") && !container.starts_with(OWN);
        let may_write = (is_script && !container.ends_with("_ro")) || (is_foreign && !has("readonly"));
        // `PFCOUNT` keeps what it has counted in the key.
        let keeps_count = has("readonly") && has("may_replicate");
        Marks::default()
            .with(Marks::WRITES, has("write") || may_write || keeps_count || container == "exec")
            .with(Marks::YIELDS, is_script || is_foreign || container == "debug")
            .with(Marks::WAITS_FOR_KEYS, has("blocking"))
            .with(Marks::RUNS_QUEUED, container == "exec")
            .with(Marks::ACKNOWLEDGES, container == "replconf")
            .with(Marks::STORES_SECOND, ["set", "setnx", "getset"].contains(&container))
            .with(Marks::STORES_THIRD, ["setex", "psetex"].contains(&container))
    }

    /// Which word is the string that the command stores, whole, under its only key; `None` where it doesn't.
    #[inline]
    pub fn stored_word(self) -> Option<usize> {
        match self.0 & (Marks::STORES_SECOND.0 | Marks::STORES_THIRD.0) {
            0 => None,
            mark if mark == Marks::STORES_SECOND.0 => Some(2),
            _ => Some(3),
        }
    }

    /// A command that isn't in the table: it may do anything.
    pub fn unknown() -> Marks {
        Marks(Marks::WRITES.0 | Marks::YIELDS.0 | Marks::WAITS_FOR_KEYS.0)
    }
}

/// One command, or one subcommand.
#[derive(Clone, Debug, Default, PartialEq)]
struct Command {
    /// Where its keys are. Empty where it has none, or where its look-ups are not meant as accesses.
    keys: Box<[KeySpec]>,
    sets: Sets,
    marks: Marks,
    subcommands: Box<[(Name, Command)]>,
}

/// A name as a number: its first and last eight letters, upper and lower case alike, and its length, mixed. That no
/// two names of the server's share one is checked when the table is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name(u64);

const FOLD_CASE: u64 = 0x2020_2020_2020_2020;

impl Name {
    #[inline]
    fn of(name: &[u8]) -> Self {
        let (first, last) = if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
        } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
            (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)))
        } else {
            let letter = |i: usize| name.get(i).map_or(0, |&b| u64::from(b));
            (letter(0) | letter(1) << 8 | letter(2) << 16, 0)
        };
        let mix = |word: u64| (word ^ (word >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Name(mix(mix(first | FOLD_CASE).wrapping_add(last | FOLD_CASE).wrapping_add((name.len() as u64) << 56)))
    }

    #[inline]
    fn slot(self, mask: usize) -> usize {
        (self.0 >> 40) as usize & mask
    }
}

/// A command as most are: what a look-up needs, in a quarter of a cache line.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: Name,
    /// Where the rest stands.
    command: u32,
    /// Where the one key is, of a command that has one at a fixed place; 0 = elsewhere, or none.
    only_key: u8,
    effect: Effect,
    /// What it changes for the commands behind it.
    pub sets: Sets,
    /// What it means to replies that wait for replicas.
    pub marks: Marks,
}

impl Entry {
    /// Place and effect of the only key.
    #[inline]
    pub fn only_key(self) -> Option<(usize, Effect)> {
        (self.only_key > 0).then_some((self.only_key as usize, self.effect))
    }

    /// True where it reads one key and does nothing else.
    #[inline]
    pub fn only_reads(self) -> bool {
        self.only_key > 0 && self.effect == Effect::Read
    }
}

/// All commands by name.
#[derive(Default)]
pub struct CommandTable {
    /// Open addressing, at most half full.
    slots: Vec<Entry>,
    commands: Vec<Command>,
}

/// Commands whose keys are not accessed: some leave a key's age alone and raise no `keymiss`, others only name the
/// keys that the commands they run may access.
const INSPECTING: [&str; 10] =
    ["object", "memory", "debug", "watch", "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];
/// What the names of Tenure's own begin with: to look at a key with them is no access.
const OWN: &str = "tenure.";
/// Commands that the server flags as writes, for a side effect (a new expiry, a cached count), and that ask all the
/// same.
const ASKING: [&str; 2] = ["getex", "pfcount"];
/// What the server takes for a change since an option of it tells what was there.
const REPLACING: &str = "set";

impl CommandTable {
    /// From the reply of `COMMAND`. `None` where it doesn't have the shape that Redis 7.0 and later give it.
    pub fn from_reply(reply: &Value) -> Option<CommandTable> {
        let commands: Vec<(Name, Command)> = reply.elements().iter().filter_map(named_command).collect();
        if commands.len() < 100 {
            return None;
        }
        let mut table = CommandTable::with_slots((commands.len() * 2).next_power_of_two());
        table.commands.reserve_exact(commands.len());
        for (name, command) in commands {
            table.insert(name, command);
        }
        Some(table)
    }

    /// A table that knows no command.
    pub fn empty() -> CommandTable {
        CommandTable::with_slots(1)
    }

    fn with_slots(n: usize) -> CommandTable {
        let (sets, marks) = (Sets::Nothing, Marks::default());
        let free = Entry { name: Name(0), command: 0, only_key: 0, effect: Effect::Read, sets, marks };
        CommandTable { slots: vec![free; n], commands: Vec::new() }
    }

    /// Two names of one number would be a wrong look-up: the first keeps it, and the other is unknown.
    fn insert(&mut self, name: Name, command: Command) {
        let mask = self.slots.len() - 1;
        let mut slot = name.slot(mask);
        while self.slots[slot].marks.has(Marks::USED) {
            if self.slots[slot].name == name {
                return;
            }
            slot = (slot + 1) & mask;
        }
        let (only_key, effect) = command.only_key().unwrap_or((0, Effect::Read));
        let at = self.commands.len() as u32;
        let marks = command.marks.with(Marks::USED, true);
        self.slots[slot] = Entry { name, command: at, only_key, effect, sets: command.sets, marks };
        self.commands.push(command);
    }

    /// The command of that name, upper or lower case. About 5 ns.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<Entry> {
        let name = Name::of(name);
        let mask = self.slots.len() - 1;
        let mut slot = name.slot(mask);
        loop {
            let entry = self.slots[slot];
            if !entry.marks.has(Marks::USED) {
                return None;
            }
            if entry.name == name {
                return Some(entry);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Where the keys of `words` are; a container's subcommand is told by its second word.
    pub fn keys(&self, entry: Entry, words: &impl Words) -> &[KeySpec] {
        let command = &self.commands[entry.command as usize];
        if command.subcommands.is_empty() {
            return &command.keys;
        }
        let Some(second) = words.word(1) else { return &command.keys };
        let name = Name::of(second);
        command.subcommands.iter().find(|(held, _)| *held == name).map_or(&command.keys, |(_, command)| &command.keys)
    }

    /// How many commands it knows.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.commands.len()
    }
}

impl Command {
    fn only_key(&self) -> Option<(u8, Effect)> {
        match &self.keys[..] {
            [KeySpec { begin: Begin::At(index), find: Find::Range { last: 0, .. }, key_use }]
                if self.subcommands.is_empty() =>
            {
                u8::try_from(*index).ok().map(|index| (index, Effect::from(*key_use)))
            }
            _ => None,
        }
    }
}

fn named_command(entry: &Value) -> Option<(Name, Command)> {
    let fields = entry.elements();
    let full_name = fields.first()?.text()?.to_ascii_lowercase();
    // A subcommand is listed as `container|subcommand`.
    let mut parts = full_name.split('|');
    let container = parts.next()?;
    let name = parts.next().unwrap_or(container);
    let inspects = INSPECTING.contains(&container) || container.starts_with(OWN);
    let specs = fields.get(8).map_or(&[][..], Value::elements);
    let mut keys: Box<[KeySpec]> = if inspects { Box::default() } else { specs.iter().filter_map(key_spec).collect() };
    if ASKING.contains(&container) {
        keys.iter_mut().for_each(|spec| spec.key_use = KeyUse::ReadOnly);
    }
    if container == REPLACING {
        keys.iter_mut().for_each(|spec| spec.key_use = KeyUse::Overwrite);
    }
    let subcommands: Box<[(Name, Command)]> =
        fields.get(9).map_or(&[][..], Value::elements).iter().filter_map(named_command).collect();
    let flags: Vec<&str> = fields.get(2).map_or(&[][..], Value::elements).iter().filter_map(Value::text).collect();
    let own = Marks::of(container, &flags);
    let marks = subcommands.iter().fold(own, |marks, (_, command)| Marks(marks.0 | command.marks.0));
    let sets = match container {
        "select" => Sets::Database,
        "auth" | "hello" | "reset" | "discard" => Sets::MaybeClient,
        "readonly" | "readwrite" => Sets::Reader,
        "exec" => Sets::RunsQueued,
        "module" => Sets::Modules,
        _ => Sets::Nothing,
    };
    Some((Name::of(name.as_bytes()), Command { keys, sets, marks, subcommands }))
}

/// One specification; `None` for those that say they don't know, and for words that only look like keys.
fn key_spec(spec: &Value) -> Option<KeySpec> {
    let flags: Vec<&str> = spec.get("flags")?.elements().iter().filter_map(Value::text).collect();
    if flags.contains(&"not_key") {
        return None;
    }
    let key_use = flags.iter().find_map(|flag| match *flag {
        "RO" => Some(KeyUse::ReadOnly),
        "RW" => Some(KeyUse::ReadWrite),
        "OW" => Some(KeyUse::Overwrite),
        "RM" => Some(KeyUse::Remove),
        _ => None,
    })?;
    Some(KeySpec { begin: begin(spec.get("begin_search")?)?, find: find(spec.get("find_keys")?)?, key_use })
}

fn begin(search: &Value) -> Option<Begin> {
    let spec = search.get("spec")?;
    match search.get("type")?.text()? {
        "index" => Some(Begin::At(usize::try_from(spec.get("index")?.integer()?).ok()?)),
        "keyword" => {
            let word = spec.get("keyword")?.text()?.as_bytes().to_vec();
            Some(Begin::Keyword { word, from: spec.get("startfrom")?.integer()? })
        }
        _ => None,
    }
}

fn find(keys: &Value) -> Option<Find> {
    let spec = keys.get("spec")?;
    let number = |name| spec.get(name).and_then(Value::integer);
    let count = |name| number(name).and_then(|n| usize::try_from(n).ok());
    match keys.get("type")?.text()? {
        "range" => {
            Some(Find::Range { last: number("lastkey")?, step: count("keystep")?.max(1), limit: number("limit")? })
        }
        "keynum" => {
            let (number, first) = (count("keynumidx")?, count("firstkey")?);
            Some(Find::Counted { number, first, step: count("keystep")?.max(1) })
        }
        _ => None,
    }
}

/// Calls `visit` with the position and the effect of every key that `specs` find in `words`. A malformed command (a
/// count that isn't one, a range past the end) has the keys that are there; the server refuses it afterwards.
#[inline]
pub fn for_each_key(specs: &[KeySpec], words: &impl Words, mut visit: impl FnMut(usize, Effect)) {
    for spec in specs {
        let first = match &spec.begin {
            Begin::At(index) => *index,
            Begin::Keyword { word, from } => match behind_keyword(words, word, *from) {
                Some(first) => first,
                None => continue,
            },
        };
        let (first, last, step) = match spec.find {
            Find::Range { last: 0, step, .. } => (first, first, step),
            Find::Range { last, step, limit } => (first, range_end(words.count(), first, last, limit), step),
            Find::Counted { number, first: offset, step } => {
                let Some(n) = words.word(first + number).and_then(parse_count).filter(|&n| n > 0) else { continue };
                let first = first + offset;
                (first, first.saturating_add((n - 1).saturating_mul(step)), step)
            }
        };
        let effect = Effect::from(spec.key_use);
        for position in (first..=last.min(words.count().saturating_sub(1))).step_by(step) {
            visit(position, effect);
        }
    }
}

fn range_end(count: usize, first: usize, last: i64, limit: i64) -> usize {
    let (count, first) = (count as i64, first as i64);
    let end = match last {
        0.. => first + last,
        _ if limit > 1 => first + (count - first) / limit + last,
        _ => count + last,
    };
    usize::try_from(end).unwrap_or(0)
}

fn behind_keyword(words: &impl Words, keyword: &[u8], from: i64) -> Option<usize> {
    let count = words.count();
    let matches = |i: &usize| words.word(*i).is_some_and(|word| word.eq_ignore_ascii_case(keyword));
    let found = if from >= 0 {
        (from as usize..count).find(matches)
    } else {
        (1..=count.checked_sub(from.unsigned_abs() as usize)?).rev().find(matches)
    };
    found.map(|i| i + 1)
}

fn parse_count(word: &[u8]) -> Option<usize> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line(Vec<&'static str>);

    impl Words for Line {
        fn count(&self) -> usize {
            self.0.len()
        }
        fn word(&self, i: usize) -> Option<&[u8]> {
            self.0.get(i).map(|word| word.as_bytes())
        }
    }

    fn spec(begin: Begin, find: Find) -> KeySpec {
        KeySpec { begin, find, key_use: KeyUse::ReadOnly }
    }

    #[track_caller]
    fn check(spec: KeySpec, line: &'static str, expected: &[&str]) {
        let words = Line(line.split(' ').collect());
        let mut found = Vec::new();
        for_each_key(&[spec], &words, |i, _| found.push(words.0[i]));
        assert_eq!(found, expected, "{line}");
    }

    fn range(last: i64, step: usize, limit: i64) -> Find {
        Find::Range { last, step, limit }
    }

    #[test]
    fn keys_are_found_as_the_server_finds_them() {
        check(spec(Begin::At(1), range(0, 1, 0)), "GET a", &["a"]);
        check(spec(Begin::At(1), range(-1, 1, 0)), "MGET a b c", &["a", "b", "c"]);
        check(spec(Begin::At(1), range(-1, 2, 0)), "MSET a 1 b 2", &["a", "b"]);
        check(spec(Begin::At(1), range(-2, 1, 0)), "BLPOP a b 0", &["a", "b"]);
        let counted = Find::Counted { number: 0, first: 1, step: 1 };
        check(spec(Begin::At(1), counted.clone()), "SINTERCARD 2 a b LIMIT 3", &["a", "b"]);
        check(spec(Begin::At(2), counted), "ZUNIONSTORE d 2 a b", &["a", "b"]);
        let streams = Begin::Keyword { word: b"STREAMS".to_vec(), from: 1 };
        check(spec(streams, range(-1, 1, 2)), "XREAD COUNT 2 streams a b 0 0", &["a", "b"]);
        let from_end = Begin::Keyword { word: b"KEYS".to_vec(), from: -2 };
        check(spec(from_end, range(-1, 1, 0)), "MIGRATE h 1 x 0 9 KEYS a b", &["a", "b"]);
    }

    #[test]
    fn malformed_commands_have_the_keys_that_are_there() {
        let counted = Find::Counted { number: 0, first: 1, step: 1 };
        for line in ["SINTERCARD x a", "SINTERCARD 0", "SINTERCARD -3 a", "SINTERCARD"] {
            check(spec(Begin::At(1), counted.clone()), line, &[]);
        }
        check(spec(Begin::At(1), counted.clone()), "SINTERCARD 9 a b", &["a", "b"]);
        check(spec(Begin::At(1), counted), "SINTERCARD 18446744073709551615 a", &["a"]);
        check(spec(Begin::At(1), range(0, 1, 0)), "GET", &[]);
        check(spec(Begin::At(1), range(-2, 1, 0)), "BLPOP", &[]);
        let streams = Begin::Keyword { word: b"STREAMS".to_vec(), from: 1 };
        check(spec(streams, range(-1, 1, 2)), "XREAD STREAMS", &[]);
        check(spec(Begin::Keyword { word: b"KEYS".to_vec(), from: -2 }, range(-1, 1, 0)), "MIGRATE", &[]);
    }

    #[test]
    fn names_fold_case_and_long_ones_differ_by_length() {
        assert_eq!(Name::of(b"GET"), Name::of(b"get"));
        assert_ne!(Name::of(b"georadiusbymember"), Name::of(b"georadiusbymember_ro"));
        for (one, other) in [("get", "set"), ("ttl", "pttl"), ("mget", "mset"), ("zrevrangebylex", "zremrangebylex")] {
            assert_ne!(Name::of(one.as_bytes()), Name::of(other.as_bytes()), "{one} {other}");
        }
    }

    fn text(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    fn array(values: Vec<Value>) -> Value {
        Value::Array(values)
    }

    fn entry(name: &str, subcommands: Vec<Value>) -> Value {
        let get_spec = array(vec![
            text("flags"),
            array(vec![text("RO"), text("access")]),
            text("begin_search"),
            array(vec![text("type"), text("index"), text("spec"), array(vec![text("index"), Value::Integer(1)])]),
            text("find_keys"),
            array(vec![
                text("type"),
                text("range"),
                text("spec"),
                array(vec![
                    text("lastkey"),
                    Value::Integer(0),
                    text("keystep"),
                    Value::Integer(1),
                    text("limit"),
                    Value::Integer(0),
                ]),
            ]),
        ]);
        let mut fields = vec![text(name)];
        fields.resize(8, Value::Nothing);
        fields.extend([array(vec![get_spec]), array(subcommands)]);
        array(fields)
    }

    /// Whatever the server's flags say of it.
    #[test]
    fn what_set_replaces_nobody_asked_for() {
        let effect = |name| named_command(&entry(name, vec![])).unwrap().1.only_key().unwrap().1;
        assert_eq!([effect("set"), effect("get")], [Effect::Replace, Effect::Read]);
    }

    #[test]
    fn the_table_is_read_from_the_servers_reply() {
        let mut commands: Vec<Value> = (0..100).map(|i| entry(&format!("command{i}"), vec![])).collect();
        commands.push(entry("get", vec![]));
        commands.push(entry("object", vec![entry("object|freq", vec![])]));
        commands.push(entry("xgroup", vec![entry("xgroup|create", vec![])]));
        commands.push(entry("eval", vec![]));
        commands.push(entry("select", vec![]));
        let table = CommandTable::from_reply(&array(commands)).unwrap();
        assert_eq!(table.len(), 105);
        let keys = |line: &'static str| {
            let words = Line(line.split(' ').collect());
            table.find(words.word(0).unwrap()).map(|entry| table.keys(entry, &words).len())
        };
        assert_eq!(table.find(b"GET").unwrap().only_key(), Some((1, Effect::Read)));
        assert_eq!(keys("OBJECT FREQ a"), Some(0), "inspecting is no access");
        assert_eq!(keys("EVAL s 1 a"), Some(0), "what it runs is seen when it runs");
        assert_eq!(table.find(b"SELECT").unwrap().sets, Sets::Database);
        assert_eq!(keys("xGroup CREATE"), Some(1));
        assert_eq!(keys("nosuch"), None);
        assert!(CommandTable::from_reply(&array(vec![])).is_none());
    }
}
