//! A cache that is full: keys that it holds, and GETs that hit or miss, SETs or HSETs of keys that are new, or a mix.
//!
//! Values are of 1,000 bytes; of a large cache, eight million keys in 4.6 GB, 400. Those of hashes, which have a field
//! each, are between a tenth of that and nearly twice as large: sizes that are alike tell of one another. GETs draw
//! uniformly, of as many keys, so that the server's own caches are no kinder than in use. A mix has one SET for ten
//! GETs, as memtier_benchmark sends where nothing else is said. Its keys follow Zipf's law, and the hottest are there
//! at first: else it would take minutes until they are.

use super::keys::{Assignment, KeyTable};
use super::zipfian::{Random, THETA, Zipfian};
use super::{Operation, Request, Stream};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// GETs of keys that are there.
    Get,
    /// GETs of keys that aren't, and that nobody writes.
    Miss,
    /// SETs of keys that aren't.
    Set,
    /// HSETs of keys that aren't.
    Hset,
    /// GETs and SETs of more keys than the cache holds, each drawn by itself: some hit, and some evict.
    Mix,
}

/// A mix is of so many times as many keys as the cache holds at first.
const MIX_KEYS: usize = 4;
/// One in so many of a mix is a SET.
const MIX_CYCLE: u64 = 11;

impl Command {
    /// All that there are.
    pub const ALL: [Command; 5] = [Command::Get, Command::Miss, Command::Set, Command::Hset, Command::Mix];

    /// Its name in that of a load.
    pub fn name(self) -> &'static str {
        match self {
            Command::Get => "get",
            Command::Miss => "miss",
            Command::Set => "set",
            Command::Hset => "hset",
            Command::Mix => "mix",
        }
    }

    /// True where nothing is written, and so nothing has to go.
    pub fn is_read(self) -> bool {
        matches!(self, Command::Get | Command::Miss)
    }
}

/// How large a load is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Keys that the cache holds at first.
    pub n_keys: usize,
    /// Bytes of each value.
    pub value_bytes: u32,
    /// Commands before the measurement.
    pub n_warmup: usize,
    /// Measured commands.
    pub n_requests: usize,
}

impl Size {
    /// What takes a second or two a server, the loading aside. The warm-up is long enough for the module to know how
    /// busy its server is, and of a mix for it to have learned.
    pub fn of(command: Command, depth: usize, is_large: bool) -> Size {
        let (n_keys, value_bytes) = if is_large { (8_000_000, 400) } else { (100_000, 1_000) };
        let (n_warmup, n_requests) = match (command, depth) {
            (Command::Get | Command::Miss, 1) => (150_000, 150_000),
            (Command::Get | Command::Miss, _) => (1_000_000, 1_500_000),
            (Command::Mix, 1) => (500_000, 150_000),
            (Command::Mix, _) => (4_000_000, 1_000_000),
            (Command::Set | Command::Hset, 1) => (100_000, 120_000),
            (Command::Set | Command::Hset, _) => (300_000, 300_000),
        };
        Size { n_keys, value_bytes, n_warmup, n_requests }
    }
}

/// From a tenth of that up to 1.9 times that.
fn hash_bytes(mean_bytes: u32, random: &mut Random) -> u32 {
    mean_bytes / 10 + random.below(u64::from(mean_bytes) * 9 / 5) as u32
}

/// The keys that are there, as a stream without requests, and what is asked.
pub fn streams(command: Command, size: Size, seed: u64) -> (Stream, Stream) {
    let keys = |names: std::ops::Range<usize>| {
        let mut keys = KeyTable::new(Assignment::ByKey, 1);
        names.for_each(|number| _ = keys.add(format!("{number:012}").as_bytes(), 0, size.value_bytes));
        keys
    };
    let stream = |keys, requests, n_warmup| Stream {
        name: "full".into(),
        keys,
        requests,
        scans: Vec::new(),
        n_warmup,
        pace: None,
    };
    let n = size.n_warmup + size.n_requests;
    let held = stream(keys(0..size.n_keys), Vec::new(), 0);
    let asked = match command {
        Command::Get | Command::Miss => {
            let mut random = Random::new(seed);
            let get = |_| Request::on(Operation::Read, random.below(size.n_keys as u64) as u32, 0);
            let first = if command == Command::Miss { size.n_keys } else { 0 };
            stream(keys(first..first + size.n_keys), (0..n).map(get).collect(), size.n_warmup)
        }
        Command::Mix => {
            let n_keys = (MIX_KEYS * size.n_keys) as u64;
            let (mut random, ranks) = (Random::new(seed), Zipfian::new(n_keys, THETA));
            let request = |_| {
                let (operation, bytes) = match random.below(MIX_CYCLE) {
                    0 => (Operation::Write, size.value_bytes),
                    _ => (Operation::Read, 0),
                };
                Request::on(operation, ranks.draw(&mut random) as u32, bytes)
            };
            stream(keys(0..n_keys as usize), (0..n).map(request).collect(), size.n_warmup)
        }
        Command::Set | Command::Hset => {
            let mut random = Random::new(seed);
            let mut value_bytes = || match command {
                Command::Hset => hash_bytes(size.value_bytes, &mut random),
                _ => size.value_bytes,
            };
            let requests = (0..n).map(|key| Request::on(Operation::Write, key as u32, value_bytes())).collect();
            stream(keys(size.n_keys..size.n_keys + n), requests, size.n_warmup)
        }
    };
    (held, asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_of_keys_that_are_there_and_others_and_a_part_of_it_is_written() {
        let size = Size { n_keys: 100, value_bytes: 10, n_warmup: 0, n_requests: 11_000 };
        let (_, asked) = streams(Command::Mix, size, 1);
        let written = asked.requests.iter().filter(|request| request.operation == Operation::Write).count();
        let numbers = asked.requests.iter().map(|request| request.key as usize);
        let held = numbers.clone().filter(|&number| number < size.n_keys).count();
        assert!((900..1_100).contains(&written), "{written}");
        assert!(numbers.max() < Some(MIX_KEYS * size.n_keys) && (1_000..9_000).contains(&held), "{held}");
    }

    #[test]
    fn gets_that_hit_are_of_keys_that_are_there_and_others_are_not() {
        let size = Size { n_keys: 100, value_bytes: 10, n_warmup: 50, n_requests: 150 };
        for command in [Command::Get, Command::Miss, Command::Set, Command::Hset] {
            let (held, asked) = streams(command, size, 1);
            let names: std::collections::HashSet<_> = (0..100).map(|key| held.keys.name(key).to_vec()).collect();
            let is_held = |request: &Request| names.contains(asked.keys.name(request.key));
            assert_eq!(asked.n_measured(), 150);
            assert!(asked.requests.iter().all(|request| is_held(request) == (command == Command::Get)));
        }
    }
}
