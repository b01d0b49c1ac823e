//! A client of keys of its own, which knows what each of them must hold and compares every reply with it.
//!
//! It writes, changes in place, copies, renames, deletes, lets expire and reads, many commands at once. What a key
//! holds tells where it is from. A value with a short time to live may be there or be gone while its time ends, and
//! is only read, written anew or deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Connection, Pipeline, Value};
use tenure_servers::Server;

use crate::harness::Random;

/// Commands sent at once.
const BATCH: u64 = 64;
/// Keys of each client that hold numbers.
const COUNTERS: usize = 20;
/// What the server's clock and this program's may differ by.
const CLOCKS_DIFFER: Duration = Duration::from_millis(50);
/// A time to live that doesn't end during a test, in seconds.
const LONG_SECONDS: i64 = 1_000_000;
/// The longest value, in bytes; one that reaches it is written anew instead of growing.
const LENGTH_MAX: usize = 1 << 16;

/// How long a value stays.
#[derive(Clone, Copy, PartialEq)]
pub enum Life {
    Endless,
    /// It ends after the test.
    Long,
    /// It is there until `gone_from` and isn't after `gone_by`: the server got the command somewhen in between.
    Short {
        ttl: Duration,
        gone_from: Instant,
        gone_by: Instant,
    },
}

/// What a key must hold.
#[derive(Clone)]
pub struct Held {
    pub value: Arc<Vec<u8>>,
    pub life: Life,
}

/// What all keys of a client must hold, by number; a copy costs no copies of values.
pub type Account = Vec<Option<Held>>;

/// When a command was sent and its reply received.
#[derive(Clone, Copy)]
struct Times {
    sent: Instant,
    received: Instant,
}

/// Compares what was read with what must be there.
fn check_read(held: Option<&Held>, found: Option<&[u8]>, times: Times) -> Result<(), String> {
    match (held, found) {
        (None, None) => Ok(()),
        (None, Some(found)) => Err(format!("is gone, and reads {}", start_of(found))),
        (Some(held), Some(found)) if *held.value != found => Err(difference(&held.value, found)),
        (Some(held), found) => match (held.life, found) {
            (Life::Short { gone_by, .. }, Some(_)) if times.sent > gone_by + CLOCKS_DIFFER => {
                Err(format!("has outlived its time by {:?}", times.sent - gone_by))
            }
            (Life::Short { gone_from, .. }, None) if times.received + CLOCKS_DIFFER > gone_from => Ok(()),
            (_, None) => Err(format!("has lost {}", start_of(&held.value))),
            _ => Ok(()),
        },
    }
}

fn start_of(bytes: &[u8]) -> String {
    format!("{} bytes '{}'", bytes.len(), bytes[..bytes.len().min(24)].escape_ascii())
}

fn difference(wanted: &[u8], found: &[u8]) -> String {
    let at = wanted.iter().zip(found).position(|(a, b)| a != b).unwrap_or(wanted.len().min(found.len()));
    format!("is {} in place of {}, from byte {at} on", start_of(found), start_of(wanted))
}

/// What a reply must be.
enum Expected {
    Read(Option<Held>),
    Number(i64),
    /// Seconds left of [`LONG_SECONDS`].
    LongTime,
    Done,
    /// A key that may be gone by itself meanwhile was deleted.
    Either,
}

impl Expected {
    fn check(&self, reply: &Value, times: Times) -> Result<(), String> {
        match (self, reply) {
            (Expected::Read(held), Value::BulkString(found)) => check_read(held.as_ref(), Some(found), times),
            (Expected::Read(held), Value::Nil) => check_read(held.as_ref(), None, times),
            (Expected::Number(wanted), Value::Int(found)) if found == wanted => Ok(()),
            (Expected::LongTime, Value::Int(left)) if (LONG_SECONDS / 2..=LONG_SECONDS).contains(left) => Ok(()),
            (Expected::Done, Value::Okay) | (Expected::Either, Value::Int(0 | 1)) => Ok(()),
            (Expected::Number(wanted), other) => Err(format!("answers {other:?} in place of {wanted}")),
            (_, other) => Err(format!("answers {other:?}")),
        }
    }
}

/// A client with keys that nobody else uses.
pub struct Client {
    number: usize,
    pub connection: Connection,
    random: Random,
    pub account: Account,
    /// Where the tenth of the keys begins that half of the operations are for.
    pub hot_from: u64,
    /// Number of the last content, so that no two are the same.
    content: u64,
    pipeline: Pipeline,
    expected: Vec<(usize, Expected)>,
    /// When the batch began that is being made.
    began: Instant,
    /// Keys whose time to live was set in it.
    timed: Vec<usize>,
}

impl Client {
    /// Number `number`, of `keys` keys with values and some with numbers.
    pub fn new(number: usize, server: &Server, keys: usize) -> Client {
        Client {
            number,
            connection: server.connection().unwrap(),
            random: Random::new(number as u64),
            account: vec![None; keys + COUNTERS],
            hot_from: 0,
            content: 0,
            pipeline: redis::pipe(),
            expected: Vec::new(),
            began: Instant::now(),
            timed: Vec::new(),
        }
    }

    /// Does so many operations, and checks every reply.
    pub fn work(&mut self, operations: u64) {
        let mut left = operations;
        while left > 0 {
            let n = left.min(BATCH);
            self.began = Instant::now();
            (0..n).for_each(|_| self.act());
            self.send_all();
            left -= n;
        }
    }

    /// Forgets the values whose time has ended. True where none are left whose time is short.
    pub fn forget_what_ended(&mut self) -> bool {
        let now = Instant::now();
        self.account.iter_mut().for_each(|held| drop(held.take_if(|held| held.has_ended(now))));
        !self.account.iter().flatten().any(Held::may_go)
    }

    fn send_all(&mut self) {
        let replies: Vec<Value> = self.pipeline.query(&mut self.connection).expect("the server serves on");
        let times = Times { sent: self.began, received: Instant::now() };
        for (reply, (key, expected)) in replies.iter().zip(self.expected.drain(..)) {
            expected.check(reply, times).unwrap_or_else(|why| panic!("{} {why}", name_of(self.number, key)));
        }
        self.pipeline.clear();
        for key in self.timed.drain(..) {
            if let Some(Held { life: Life::Short { ttl, gone_by, .. }, .. }) = &mut self.account[key] {
                *gone_by = times.received + *ttl;
            }
        }
    }

    fn act(&mut self) {
        let key = self.draw();
        self.account[key].take_if(|held| held.has_ended(self.began));
        let may_go = self.account[key].as_ref().is_some_and(Held::may_go);
        match self.random.below(100) {
            0..40 => self.get(key),
            40..58 => self.set(key),
            58..62 => self.set_for_a_time(key),
            62..67 => self.delete(key, may_go),
            67..70 => self.count(),
            // What the others do to a key that may be gone can't be told.
            _ if may_go => self.get(key),
            70..76 => self.append(key),
            76..82 => self.set_range(key),
            82..85 => self.get_range(key),
            85..88 => self.get_and_delete(key),
            88..90 => self.exchange(key),
            90..93 => self.expire(key),
            93..95 => self.persist(key),
            95..97 => self.time_to_live(key),
            97..99 => self.copy(key),
            _ => self.rename(key),
        }
    }

    /// Half of the time one of the hot tenth.
    fn draw(&mut self) -> usize {
        let keys = (self.account.len() - COUNTERS) as u64;
        match self.random.below(2) {
            0 => ((self.hot_from + self.random.below(keys / 10)) % keys) as usize,
            _ => self.random.below(keys) as usize,
        }
    }

    /// Adds a command about `key`.
    fn add(&mut self, command: &str, key: usize, expected: Expected) -> &mut Pipeline {
        self.expected.push((key, expected));
        self.pipeline.cmd(command).arg(name_of(self.number, key))
    }

    /// New content: the key's name and a number first, so that it can be told where it is from.
    fn new_content(&mut self, key: usize, length: usize) -> Vec<u8> {
        self.content += 1;
        let mut content = format!("{}#{} ", name_of(self.number, key), self.content).into_bytes();
        let mut random = Random::new(self.content << 8 | self.number as u64);
        while content.len() < length {
            content.extend(random.next().to_le_bytes());
        }
        content.truncate(length);
        content
    }

    /// Mostly around a kilobyte, some that the allocator keeps as large.
    fn new_value(&mut self, key: usize) -> Vec<u8> {
        let length = match self.random.below(100) {
            0 => 14_000 + self.random.below(LENGTH_MAX as u64 - 14_000) as usize,
            _ => self.random.log_normal(700.0, 1.0).clamp(200.0, LENGTH_MAX as f64) as usize,
        };
        self.new_content(key, length)
    }

    fn hold(&mut self, key: usize, value: Vec<u8>, life: Life) {
        self.account[key] = Some(Held { value: Arc::new(value), life });
    }

    fn get(&mut self, key: usize) {
        let held = self.account[key].clone();
        self.add("GET", key, Expected::Read(held));
    }

    fn set(&mut self, key: usize) {
        let value = self.new_value(key);
        self.add("SET", key, Expected::Done).arg(&value);
        self.hold(key, value, Life::Endless);
    }

    fn set_for_a_time(&mut self, key: usize) {
        let value = self.new_value(key);
        let ttl = Duration::from_millis(20 + self.random.below(1000));
        self.add("SET", key, Expected::Done).arg(&value).arg("PX").arg(ttl.as_millis() as u64);
        // It is sent after this; until when it is there is known with the reply.
        let gone_by = self.began + Duration::from_secs(3600);
        self.hold(key, value, Life::Short { ttl, gone_from: self.began + ttl, gone_by });
        self.timed.push(key);
    }

    fn delete(&mut self, key: usize, may_go: bool) {
        let held = self.account[key].take();
        let expected = if may_go { Expected::Either } else { Expected::Number(i64::from(held.is_some())) };
        let command = if self.random.below(2) == 0 { "DEL" } else { "UNLINK" };
        self.add(command, key, expected);
    }

    fn count(&mut self) {
        let key = self.account.len() - 1 - self.random.below(COUNTERS as u64) as usize;
        let (before, more) = (number_of(self.account[key].as_ref()), self.random.below(1000) as i64);
        self.add("INCRBY", key, Expected::Number(before + more)).arg(more);
        self.hold(key, (before + more).to_string().into_bytes(), Life::Endless);
    }

    fn append(&mut self, key: usize) {
        let length = 1 + self.random.below(300) as usize;
        if length_of(self.account[key].as_ref()) + length > LENGTH_MAX {
            return self.set(key);
        }
        let more = self.new_content(key, length);
        let held = self.account[key].get_or_insert_with(Held::empty);
        Arc::make_mut(&mut held.value).extend_from_slice(&more);
        let length = held.value.len() as i64;
        self.add("APPEND", key, Expected::Number(length)).arg(more);
    }

    /// Within the value, over its end or beyond it.
    fn set_range(&mut self, key: usize) {
        let part = self.new_content(key, 60);
        let held_bytes = length_of(self.account[key].as_ref()).min(LENGTH_MAX - part.len());
        let at = self.random.below(held_bytes as u64 + 20) as usize;
        let held = self.account[key].get_or_insert_with(Held::empty);
        let value = Arc::make_mut(&mut held.value);
        value.resize(value.len().max(at + part.len()), 0);
        value[at..at + part.len()].copy_from_slice(&part);
        let length = value.len() as i64;
        self.add("SETRANGE", key, Expected::Number(length)).arg(at).arg(part);
    }

    fn get_range(&mut self, key: usize) {
        let Some(held) = self.account[key].clone() else { return self.get(key) };
        let from = self.random.below(held.value.len() as u64) as usize;
        let until = held.value.len().min(from + 500);
        let part = Held { value: Arc::new(held.value[from..until].to_vec()), life: Life::Endless };
        self.add("GETRANGE", key, Expected::Read(Some(part))).arg(from).arg(until - 1);
    }

    fn get_and_delete(&mut self, key: usize) {
        let held = self.account[key].take();
        self.add("GETDEL", key, Expected::Read(held));
    }

    fn exchange(&mut self, key: usize) {
        let value = self.new_value(key);
        let held = self.account[key].take();
        self.add("SET", key, Expected::Read(held)).arg(&value).arg("GET");
        self.hold(key, value, Life::Endless);
    }

    fn expire(&mut self, key: usize) {
        let held = self.account[key].as_mut().map(|held| held.life = Life::Long);
        self.add("EXPIRE", key, Expected::Number(i64::from(held.is_some()))).arg(LONG_SECONDS);
    }

    fn persist(&mut self, key: usize) {
        let before = self.account[key].as_mut().map(|held| std::mem::replace(&mut held.life, Life::Endless));
        self.add("PERSIST", key, Expected::Number(i64::from(before == Some(Life::Long))));
    }

    fn time_to_live(&mut self, key: usize) {
        let expected = match &self.account[key] {
            Some(held) if held.life == Life::Long => Expected::LongTime,
            held => Expected::Number(if held.is_some() { -1 } else { -2 }),
        };
        self.add("TTL", key, expected);
    }

    fn copy(&mut self, key: usize) {
        let Some(held) = self.account[key].clone() else { return self.set(key) };
        let to = self.other(key);
        self.account[to] = Some(held);
        let name = name_of(self.number, to);
        self.add("COPY", key, Expected::Number(1)).arg(name).arg("REPLACE");
    }

    fn rename(&mut self, key: usize) {
        let Some(held) = self.account[key].take() else { return self.set(key) };
        let to = self.other(key);
        self.account[to] = Some(held);
        let name = name_of(self.number, to);
        self.add("RENAME", key, Expected::Done).arg(name);
    }

    fn other(&self, key: usize) -> usize {
        (key + 1) % (self.account.len() - COUNTERS)
    }
}

impl Held {
    fn empty() -> Held {
        Held { value: Arc::default(), life: Life::Endless }
    }

    /// It goes by itself, now or soon.
    fn may_go(&self) -> bool {
        matches!(self.life, Life::Short { .. })
    }

    /// It is gone for sure.
    fn has_ended(&self, now: Instant) -> bool {
        matches!(self.life, Life::Short { gone_by, .. } if now > gone_by + CLOCKS_DIFFER)
    }
}

pub fn name_of(client: usize, key: usize) -> String {
    format!("{client}:{key}")
}

fn length_of(held: Option<&Held>) -> usize {
    held.map_or(0, |held| held.value.len())
}

fn number_of(held: Option<&Held>) -> i64 {
    held.map_or(0, |held| String::from_utf8_lossy(&held.value).parse().expect("a counter"))
}

/// Reads every key, those too that must be gone.
pub fn check_all(what: &str, server: &Server, accounts: &[Account]) {
    let mut connection = server.connection().unwrap();
    for (client, account) in accounts.iter().enumerate() {
        for (n, part) in account.chunks(200).enumerate() {
            let mut pipeline = redis::pipe();
            (0..part.len()).for_each(|i| {
                pipeline.cmd("GET").arg(name_of(client, n * 200 + i));
            });
            let sent = Instant::now();
            let found: Vec<Option<Vec<u8>>> = pipeline.query(&mut connection).unwrap();
            let times = Times { sent, received: Instant::now() };
            for (i, (held, found)) in part.iter().zip(found).enumerate() {
                let name = name_of(client, n * 200 + i);
                check_read(held.as_ref(), found.as_deref(), times).unwrap_or_else(|why| panic!("{what}: {name} {why}"));
            }
        }
    }
}
