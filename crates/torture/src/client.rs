//! A client: draws commands for keys of its own, sends them one by one, in pipelines and in transactions, and checks
//! each reply.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use redis::{Cmd, Connection, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value};

use crate::model::{Known, Op, Reply, name};
use crate::{Progress, Torture};

/// A server that doesn't answer for so long has failed.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long it waits before it connects again.
const PAUSE: Duration = Duration::from_millis(50);
/// Elements of a collection at the most, by how its operations are drawn.
const ELEMENTS: u64 = 24;

/// One client and what it knows of its keys.
pub struct Client {
    server: ConnectionInfo,
    connection: Option<Connection>,
    random: Xoshiro256PlusPlus,
    /// What stands before the number of a key.
    prefix: String,
    keys: Vec<Known>,
    value_bytes_max: usize,
    run_id: String,
}

/// A key and what is sent to it.
type Sent = (usize, Op);

impl Client {
    /// Connects, and finds a hash tag whose keys the server has.
    ///
    /// # Errors
    /// When the server doesn't answer, or has no slot of a cluster.
    pub fn start(torture: &Torture, number: usize) -> Result<Client> {
        let mut connection = connect(&torture.server)?;
        let prefix = prefix(&mut connection, torture.seed, number)?;
        let run_id = run_id(&mut connection)?;
        let mut client = Client {
            server: torture.server.clone(),
            connection: Some(connection),
            random: Xoshiro256PlusPlus::seed_from_u64(torture.seed.wrapping_add(number as u64)),
            prefix,
            keys: vec![Known::default(); torture.n_keys as usize],
            value_bytes_max: torture.value_bytes_max.max(16),
            run_id,
        };
        client.clean_up();
        Ok(client)
    }

    /// One command, one pipeline or one transaction.
    pub fn step(&mut self, progress: &Progress) {
        if self.connection.is_none() && !self.reconnect(progress) {
            return;
        }
        let way = self.below(10);
        let n = if way < 6 { 1 } else { 2 + self.below(7) };
        let sent: Vec<Sent> = (0..n).map(|_| self.draw()).collect();
        let mut pipeline = redis::pipe();
        // A transaction answers all at once, and none of it happens where it isn't answered at all or refused.
        if way == 9 {
            pipeline.atomic();
        }
        for (key, op) in &sent {
            pipeline.add_command(command(&self.key(*key), op));
        }
        let at = Instant::now();
        let Some(connection) = &mut self.connection else { return };
        let replies: RedisResult<Vec<Value>> = pipeline.query(connection);
        match replies {
            Ok(replies) => self.check(&sent, &replies, at, progress),
            Err(error) => self.failed(&sent, &error, at, progress),
        }
    }

    /// Deletes all its keys, as far as the server is there.
    pub fn clean_up(&mut self) {
        let keys: Vec<String> = (0..self.keys.len()).map(|i| self.key(i)).collect();
        let Some(connection) = &mut self.connection else { return };
        for some in keys.chunks(256) {
            let _: RedisResult<i64> = redis::cmd("UNLINK").arg(some).query(connection);
        }
        self.keys.iter_mut().for_each(Known::lost);
    }

    fn key(&self, number: usize) -> String {
        format!("{}{number}", self.prefix)
    }

    fn check(&mut self, sent: &[Sent], replies: &[Value], at: Instant, progress: &Progress) {
        let now = Instant::now();
        for ((number, op), value) in sent.iter().zip(replies) {
            progress.commands.fetch_add(1, Ordering::Relaxed);
            let known = match reply_of(op, value) {
                Ok(reply) => {
                    if op.is_read() {
                        progress.reads.fetch_add(1, Ordering::Relaxed);
                        progress.absent.fetch_add(u64::from(is_absence(&reply)), Ordering::Relaxed);
                    }
                    self.keys[*number].answered(op, &reply, at, now)
                }
                Err(refused) => refused.map_or(Ok(()), Err),
            };
            if let Err(what) = known {
                let (key, command) = (self.key(*number), command(&self.key(*number), op));
                let words: Vec<String> = words_of(&command);
                progress.tell(format!("{key}: {} {what}", words.join(" ")));
            }
        }
    }

    /// An error for all of them. One that the server answers says that nothing was done; anything else says nothing.
    fn failed(&mut self, sent: &[Sent], error: &RedisError, at: Instant, progress: &Progress) {
        let now = Instant::now();
        if error.kind() == ErrorKind::UnexpectedReturnType {
            progress.tell(format!("an answer that can't be read: {error}"));
        }
        for (number, op) in sent {
            self.keys[*number].unanswered(op, at, now);
        }
        self.connection = None;
    }

    /// Tries to connect once. A server that was started anew, or another that has taken over, may lack what was
    /// answered before.
    fn reconnect(&mut self, progress: &Progress) -> bool {
        progress.reconnections.fetch_add(1, Ordering::Relaxed);
        let Ok(mut connection) = connect(&self.server) else {
            thread::sleep(PAUSE);
            return false;
        };
        match run_id(&mut connection) {
            Ok(run_id) if run_id == self.run_id => self.connection = Some(connection),
            Ok(run_id) => {
                self.run_id = run_id;
                self.connection = Some(connection);
                self.clean_up();
            }
            Err(_) => thread::sleep(PAUSE),
        }
        self.connection.is_some()
    }

    /// A key and a command for what it holds: of eight keys five are strings, one each a hash, a list and a set.
    fn draw(&mut self) -> Sent {
        let number = self.skewed();
        let op = match number % 8 {
            5 => self.draw_of([Op::Fields, Op::Fields], |client| {
                let field = client.below(ELEMENTS) as u8;
                Op::SetField(field, client.value(200))
            }),
            6 => self.draw_of([Op::Items, Op::Pop], |client| Op::Push(client.value(200))),
            7 => self.draw_of([Op::Members, Op::Members], |client| Op::Add(client.below(ELEMENTS) as u8)),
            _ => self.draw_of_text(),
        };
        (number, op)
    }

    fn draw_of(&mut self, reads: [Op; 2], write: impl FnOnce(&mut Client) -> Op) -> Op {
        let [first, second] = reads;
        match self.below(20) {
            0..6 => first,
            6..10 => second,
            10..16 => write(self),
            16 => Op::Delete,
            17 => Op::Expire(Duration::from_millis(50 + self.below(3000))),
            18 => Op::Persist,
            _ => Op::Exists,
        }
    }

    fn draw_of_text(&mut self) -> Op {
        let some = self.value_bytes_max;
        match self.below(40) {
            0..12 => Op::Get,
            12..15 => {
                let from = self.below(300) as usize;
                Op::GetRange(from, from + self.below(300) as usize)
            }
            15 => Op::Length,
            16..25 => Op::Set(self.value(some), None),
            25..27 => {
                let time = Duration::from_millis(50 + self.below(3000));
                Op::Set(self.value(some), Some(time))
            }
            27 => Op::SetIfAbsent(self.value(some)),
            28..30 => Op::Append(self.value(100)),
            30..32 => {
                let at = self.below(400) as usize;
                Op::SetRange(at, self.value(100))
            }
            32 => Op::GetDelete,
            33..35 => Op::Delete,
            35 => Op::Expire(Duration::from_millis(50 + self.below(3000))),
            36 => Op::Persist,
            _ => Op::Exists,
        }
    }

    /// Bytes that tell one write from another, 1 to `bytes_max` of them, small ones more often.
    fn value(&mut self, bytes_max: usize) -> Vec<u8> {
        let scale = self.below(4) as u32;
        let length = 1 + self.below((bytes_max >> (2 * scale)).max(1) as u64) as usize;
        let stamp = format!("{:016x}", self.random.next_u64());
        stamp.bytes().cycle().take(length).collect()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    /// A key, half of the time one of the first tenth.
    fn skewed(&mut self) -> usize {
        let n = self.keys.len() as u64;
        let end = if self.below(2) == 0 { (n / 10).max(8).min(n) } else { n };
        self.below(end) as usize
    }
}

fn connect(server: &ConnectionInfo) -> Result<Connection> {
    let client = redis::Client::open(server.clone())?;
    let connection =
        client.get_connection_with_timeout(DEADLINE).with_context(|| format!("{}: no connection", server.addr()))?;
    connection.set_read_timeout(Some(DEADLINE))?;
    connection.set_write_timeout(Some(DEADLINE))?;
    Ok(connection)
}

fn run_id(connection: &mut Connection) -> Result<String> {
    let info: String = redis::cmd("INFO").arg("server").query(connection)?;
    let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    Ok(line.context("the server tells no run_id")?.trim().to_owned())
}

/// What this client's keys begin with: in a cluster, a hash tag of a slot that the server has.
fn prefix(connection: &mut Connection, seed: u64, number: usize) -> Result<String> {
    for attempt in 0..100_000 {
        let prefix = format!("torture:{{{seed}.{number}.{attempt}}}:");
        match redis::cmd("EXISTS").arg(&prefix).query::<i64>(connection) {
            Ok(_) => return Ok(prefix),
            Err(error) if error.redirect_node().is_some() => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the server has no slot of its cluster")
}

/// What is sent.
fn command(key: &str, op: &Op) -> Cmd {
    let millis = |time: &Duration| time.as_millis() as u64;
    let mut command = Cmd::new();
    match op {
        Op::Get => command.arg("GET").arg(key),
        Op::GetRange(from, to) => command.arg("GETRANGE").arg(key).arg(*from).arg(*to),
        Op::Length => command.arg("STRLEN").arg(key),
        Op::Set(value, None) => command.arg("SET").arg(key).arg(value),
        Op::Set(value, Some(time)) => command.arg("SET").arg(key).arg(value).arg("PX").arg(millis(time)),
        Op::SetIfAbsent(value) => command.arg("SET").arg(key).arg(value).arg("NX"),
        Op::Append(value) => command.arg("APPEND").arg(key).arg(value),
        Op::SetRange(at, value) => command.arg("SETRANGE").arg(key).arg(*at).arg(value),
        Op::GetDelete => command.arg("GETDEL").arg(key),
        Op::Delete => command.arg("UNLINK").arg(key),
        Op::Expire(time) => command.arg("PEXPIRE").arg(key).arg(millis(time)),
        Op::Persist => command.arg("PERSIST").arg(key),
        Op::SetField(field, value) => command.arg("HSET").arg(key).arg(name(*field)).arg(value),
        Op::Fields => command.arg("HGETALL").arg(key),
        Op::Push(value) => command.arg("RPUSH").arg(key).arg(value),
        Op::Pop => command.arg("LPOP").arg(key),
        Op::Items => command.arg("LRANGE").arg(key).arg(0).arg(-1),
        Op::Add(member) => command.arg("SADD").arg(key).arg(name(*member)),
        Op::Members => command.arg("SMEMBERS").arg(key),
        Op::Exists => command.arg("EXISTS").arg(key),
    };
    command
}

/// The words of a command, long ones cut.
fn words_of(command: &Cmd) -> Vec<String> {
    let words = command.args_iter().map(|word| match word {
        redis::Arg::Simple(bytes) => bytes.escape_ascii().to_string(),
        _ => String::new(),
    });
    words.map(|word| if word.len() > 24 { format!("{}…", &word[..24]) } else { word }).collect()
}

/// The reply as the model foresees it.
///
/// # Errors
/// An error in its place: `None` for one by which a server says that nothing was done, else what is wrong with it.
fn reply_of(op: &Op, value: &Value) -> Result<Reply, Option<String>> {
    let strings = |items: &[Value]| items.iter().map(bytes_of).collect::<Option<Vec<_>>>();
    let reply = match (op, value) {
        (_, Value::ServerError(error)) => {
            let refusals = [
                "OOM",
                "LOADING",
                "READONLY",
                "MOVED",
                "ASK",
                "CLUSTERDOWN",
                "NOREPLICAS",
                "MASTERDOWN",
                "BUSY",
                "TRYAGAIN",
            ];
            let is_refusal = refusals.contains(&error.code());
            return Err((!is_refusal).then(|| format!("answered {error:?}")));
        }
        (_, Value::Nil) => Some(Reply::Nothing),
        (_, Value::Okay) => Some(Reply::Fine),
        (_, Value::Int(number)) => Some(Reply::Number(*number)),
        (Op::Fields, Value::Map(pairs)) => {
            let pairs = pairs.iter().map(|(field, value)| Some((bytes_of(field)?, bytes_of(value)?)));
            pairs.collect::<Option<BTreeMap<_, _>>>().map(Reply::Pairs)
        }
        (Op::Fields, Value::Array(items)) => strings(items)
            .map(|items| Reply::Pairs(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())),
        (Op::Members, Value::Array(items) | Value::Set(items)) => {
            strings(items).map(|items| Reply::Members(items.into_iter().collect()))
        }
        (_, Value::Array(items)) => strings(items).map(Reply::List),
        (_, value) => bytes_of(value).map(Reply::Bytes),
    };
    reply.ok_or_else(|| Some(format!("answered {value:?}")))
}

fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        _ => None,
    }
}

fn is_absence(reply: &Reply) -> bool {
    match reply {
        Reply::Nothing | Reply::Number(0) => true,
        Reply::Pairs(pairs) => pairs.is_empty(),
        Reply::List(items) => items.is_empty(),
        Reply::Members(members) => members.is_empty(),
        _ => false,
    }
}
