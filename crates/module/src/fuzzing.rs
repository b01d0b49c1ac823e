//! What reads bytes of others, for `fuzz/`: nothing may panic, and what is understood is written as it was read.

use std::fs;
use std::sync::LazyLock;

use tenure_core::random::Random;

use crate::config::Settings;
use crate::features::cluster::shares::Shares;
use crate::features::lessons::partitions::Lessons;
use crate::features::sleep::file::{self, Record};
use crate::ffi::filter::Words;
use crate::ffi::reply::Value;
use crate::ffi::settings::Settings as _;
use crate::observe::classes::ClassRules;
use crate::observe::command_table::{CommandTable, for_each_key};
use crate::observe::tenants::TenantSpec;

/// Settings in words of their own: tenants, and rules of classes.
pub fn texts(bytes: &[u8]) {
    let Some((&which, bytes)) = bytes.split_first() else { return };
    match std::str::from_utf8(bytes) {
        Ok(text) if which % 2 == 0 => _ = TenantSpec::parse_for(text, 16),
        _ => _ = ClassRules::parse(bytes),
    }
}

/// An argument of the module: which setting, and its value. What is refused changes nothing, and what is taken is taken
/// again.
pub fn settings(bytes: &[u8]) {
    let Some((&which, value)) = bytes.split_first() else { return };
    let Ok(value) = std::str::from_utf8(value) else { return };
    let declared = Settings::declared();
    let i = usize::from(which) % declared.len();
    let name = declared[i].name.to_string_lossy();
    let (before, mut settings) = (Settings::default(), Settings::default());
    let is_as_before = |settings: &Settings, i: usize| settings.get(i) == before.get(i);
    match settings.set_argument(&name, value) {
        Ok(()) => {
            assert!((0..declared.len()).all(|other| other == i || is_as_before(&settings, other)), "{name} {value}");
            let mut again = Settings::default();
            again.set(i, settings.get(i)).expect("what was taken is allowed");
            assert_eq!(again.get(i), settings.get(i));
        }
        Err(_) => assert!((0..declared.len()).all(|i| is_as_before(&settings, i)), "{name} {value}"),
    }
}

/// The words of a command, as clients send them: the keys that are found in them are among them.
struct Line<'a>(Vec<&'a [u8]>);

impl Words for Line<'_> {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn word(&self, i: usize) -> Option<&[u8]> {
        self.0.get(i).copied()
    }
}

/// Commands whose keys are anywhere, by numbers that are drawn.
static COMMANDS: LazyLock<CommandTable> = LazyLock::new(|| {
    let mut random = Random::new(1);
    let mut numbers = || [0; 8].map(|_| random.below(256) as u8 >> random.below(8));
    let commands = (0..N_COMMANDS).map(|i| command(&format!("command{i}"), numbers())).collect();
    CommandTable::from_reply(&Value::Array(commands)).expect("as many as a server has")
});
const N_COMMANDS: u16 = 4096;

/// Which of the commands, and a line with it.
pub fn words(bytes: &[u8]) {
    let Some((which, line)) = bytes.split_at_checked(2) else { return };
    let which = u16::from_le_bytes([which[0], which[1]]) % N_COMMANDS;
    let words = Line(line.split(|&byte| byte == b' ').collect());
    let entry = COMMANDS.find(format!("COMMAND{which}").as_bytes()).expect("it was put in");
    _ = words.word(0).and_then(|name| COMMANDS.find(name));
    for_each_key(COMMANDS.keys(entry, &words), &words, |at, _| {
        assert!(at < words.count(), "{at} of {}", words.count())
    });
}

/// As `COMMAND` tells of it.
fn command(name: &str, numbers: [u8; 8]) -> Value {
    let text = |text: &str| Value::Text(text.as_bytes().to_vec());
    let number = |i: usize| Value::Integer(i64::from(numbers[i] as i8));
    let map = |fields: Vec<(&str, Value)>| Value::Array(fields.into_iter().flat_map(|(k, v)| [text(k), v]).collect());
    let (index, keyword) = (vec![("index", number(1))], vec![("keyword", text("KEYS")), ("startfrom", number(1))]);
    let begin = [("index", index), ("keyword", keyword)][usize::from(numbers[0] & 1)].clone();
    let range = vec![("lastkey", number(2)), ("keystep", number(3)), ("limit", number(4))];
    let keynum = vec![("keynumidx", number(5)), ("firstkey", number(6)), ("keystep", number(3))];
    let find = [("range", range), ("keynum", keynum)][usize::from(numbers[0] >> 1 & 1)].clone();
    let flag = ["RO", "RW", "OW", "RM"][usize::from(numbers[7] & 3)];
    let spec = map(vec![
        ("flags", Value::Array(vec![text(flag)])),
        ("begin_search", map(vec![("type", text(begin.0)), ("spec", map(begin.1))])),
        ("find_keys", map(vec![("type", text(find.0)), ("spec", map(find.1))])),
    ]);
    let mut fields = vec![text(name)];
    fields.resize(8, Value::Nothing);
    fields.extend([Value::Array(vec![spec]), Value::Array(Vec::new())]);
    Value::Array(fields)
}

/// What nodes of a cluster, and a primary, have learned, and what keys they are asked for.
pub fn messages(bytes: &[u8]) {
    Shares::default().hear([b'a'; 40], bytes, 0);
    if let Some(lessons) = Lessons::decode(bytes) {
        let written = lessons.encode();
        let again = Lessons::decode(&written).expect("what was written can be read");
        assert_eq!(again.encode(), written);
    }
}

/// A record of a sleeping value, or of a warm restart: as it is, and with length and checksum made right.
pub fn records(bytes: &[u8]) {
    Record::decode(bytes);
    let beginning = Record { db: 0, name: b"", payload: b"", expires_at_ms: 0, idle_seconds: 0 }.encode();
    if bytes.len() < beginning.len() {
        return;
    }
    let mut whole = bytes.to_vec();
    whole[..4].copy_from_slice(&beginning[..4]);
    whole[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    // No server has so many databases.
    whole[18..20].fill(0);
    let checksum = crc32fast::hash(&whole[8..]);
    whole[4..8].copy_from_slice(&checksum.to_le_bytes());
    if let Some(record) = Record::decode(&whole) {
        assert_eq!(record.encode(), whole);
    }
}

/// The file of an orderly stop: as it is, and with an end that leads to a list of these bytes. Each place that it names
/// lies in it.
pub fn warm(bytes: &[u8]) {
    let folder = std::env::temp_dir().join(format!("tenure-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for it");
    let read = |bytes: &[u8]| {
        fs::write(folder.join(file::WARM_NAME), bytes).expect("a file for it");
        let Ok(Some((list, file))) = file::take_warm(&folder) else { return 0 };
        let length = file.metadata().expect("it is open").len();
        let is_within = |place: file::Place| place.offset + u64::from(place.len) <= length;
        assert!(list.iter().all(|listed| is_within(listed.place)));
        list.len()
    };
    assert_eq!(read(&bytes[..bytes.len().min(15)]), 0, "it is too short");
    read(bytes);
    let Some((&list_at, bytes)) = bytes.split_first() else { return };
    let at = usize::from(list_at).min(bytes.len());
    read(&[bytes, &file::end_of_list(&bytes[at..], at as u64)].concat());
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tenure_core::random::Random;

    /// Other bytes in the place of a few of these, or some of them twice, or not at all.
    fn changed(bytes: &[u8], random: &mut Random) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64 + 1) as usize;
            let until = (at + random.below(8) as usize).min(bytes.len());
            match random.below(4) {
                0 => drop(bytes.drain(at..until)),
                1 => bytes.splice(at..at, bytes[at..until].to_vec()).for_each(drop),
                2 => bytes.insert(at, random.below(256) as u8),
                _ => bytes[at..until].iter_mut().for_each(|byte| *byte ^= 1 << random.below(8)),
            }
        }
        bytes
    }

    /// What `scripts/fuzz` has found to reach something of its own, as it is and changed: a minute of that in each run
    /// of all tests.
    fn try_corpus(name: &str, target: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let mut random = Random::new(u64::from(crc32fast::hash(name.as_bytes())));
        let files = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut inputs: Vec<Vec<u8>> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
        inputs.sort();
        assert!(inputs.len() > 10, "{} files", inputs.len());
        inputs.iter().for_each(|bytes| target(bytes));
        for i in 0..CHANGED {
            target(&changed(&inputs[i % inputs.len()], &mut random));
        }
    }

    /// Changed inputs of each target.
    const CHANGED: usize = 100_000;

    #[test]
    fn texts() {
        try_corpus("texts", super::texts);
    }

    #[test]
    fn settings() {
        try_corpus("settings", super::settings);
    }

    #[test]
    fn words() {
        try_corpus("words", super::words);
    }

    #[test]
    fn messages() {
        try_corpus("messages", super::messages);
    }

    #[test]
    fn records() {
        try_corpus("records", super::records);
    }

    #[test]
    fn warm() {
        try_corpus("warm", super::warm);
    }
}
