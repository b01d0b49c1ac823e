//! A client: draws commands for keys of its own, sends them one by one, in pipelines, transactions, scripts and
//! functions, and checks each reply.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use redis::{Cmd, Connection, ConnectionInfo, ErrorKind, RedisResult, Value};
use tenure_view::nodes::elsewhere;

use crate::course::{Event, Left};
use crate::known::Known;
use crate::model::Op;
use crate::wire::{Form, command, is_absence, reply_of, send, words_of};
use crate::{Progress, Torture};

/// A server that doesn't answer for so long has failed.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long it waits before it connects again.
const PAUSE: Duration = Duration::from_millis(50);
/// Elements of a collection at the most, by how its operations are drawn.
const ELEMENTS: u64 = 24;
/// Of so many steps one empties a database or swaps two, where clients have databases of their own.
const STEPS_PER_SWAP: u64 = 500;

/// One client and what it knows of its keys.
pub struct Client {
    line: Line,
    random: Xoshiro256PlusPlus,
    /// What stands before the number of a key.
    prefix: String,
    /// Of each database in turn.
    keys: Vec<Known>,
    /// The same when the server saved last.
    saved: Vec<Known>,
    n_keys: usize,
    /// The databases that are its own.
    databases: Vec<usize>,
    value_bytes_max: usize,
    calls_functions: bool,
    n_events: usize,
    /// Since when slots move.
    slots_move: Option<Instant>,
}

/// Its connection.
struct Line {
    server: ConnectionInfo,
    connection: Option<Connection>,
    /// The database that is selected.
    database: usize,
    /// Which process it is; `None`: another may be there without harm.
    run_id: Option<String>,
}

/// A key and what is sent to it.
type Sent = (usize, Op);

impl Client {
    /// Connects, and finds a hash tag whose keys the server has.
    ///
    /// # Errors
    /// When the server doesn't answer, or has no slot of a cluster.
    pub fn start(server: &ConnectionInfo, torture: &Torture, number: usize) -> Result<Client> {
        let mut connection = connect(server)?;
        let prefix = prefix(&mut connection, torture.seed, number)?;
        let run_id = Some(run_id(&mut connection)?);
        let n_keys = torture.n_keys as usize;
        let databases = if torture.owns_databases() { vec![2 * number, 2 * number + 1] } else { vec![0] };
        let mut client = Client {
            line: Line { server: server.clone(), connection: Some(connection), database: 0, run_id },
            random: Xoshiro256PlusPlus::seed_from_u64(torture.seed.wrapping_add(number as u64)),
            prefix,
            keys: vec![Known::default(); n_keys * databases.len()],
            saved: Vec::new(),
            n_keys,
            databases,
            value_bytes_max: torture.value_bytes_max.max(16),
            calls_functions: torture.calls_functions,
            n_events: 0,
            slots_move: None,
        };
        client.clean_up();
        Ok(client)
    }

    /// One command, one pipeline, one transaction or one script.
    pub fn step(&mut self, progress: &Progress) {
        let _turn = progress.course.enter();
        self.catch_up(progress);
        if self.line.connection.is_none() && !self.reconnect(progress) {
            return;
        }
        let own = self.below(self.databases.len() as u64) as usize;
        if self.line.select(self.databases[own]).is_err() {
            self.line.connection = None;
            return;
        }
        if self.databases.len() == 2 && self.below(STEPS_PER_SWAP) == 0 {
            return self.empty_or_swap(own);
        }
        let way = self.below(20);
        let n = if way < 12 { 1 } else { 2 + self.below(7) };
        let sent: Vec<Sent> = (0..n).map(|_| self.draw(own)).collect();
        let form = match way {
            18 => Form::Transaction,
            19 if self.calls_functions && self.below(2) == 0 => Form::Function,
            19 => Form::Script,
            _ => Form::Pipeline,
        };
        self.send(&sent, form, progress);
    }

    fn send(&mut self, sent: &[Sent], form: Form, progress: &Progress) {
        let keys: Vec<String> = sent.iter().map(|(key, _)| self.key(*key)).collect();
        let commands: Vec<Cmd> = sent.iter().zip(&keys).map(|((_, op), key)| command(key, op)).collect();
        let at = self.sent_at();
        let Some(connection) = &mut self.line.connection else { return };
        match send(connection, form, &commands, &keys) {
            Ok(replies) => self.check(sent, &replies, at, progress),
            Err(error) => {
                if error.kind() == ErrorKind::UnexpectedReturnType {
                    progress.tell(format!("an answer that can't be read: {error}"));
                }
                let now = Instant::now();
                sent.iter().for_each(|(key, op)| self.keys[*key].unanswered(op, at, now));
                self.line.connection = None;
            }
        }
    }

    /// Deletes all its keys, as far as the server is there.
    pub fn clean_up(&mut self) {
        for own in 0..self.databases.len() {
            let keys: Vec<String> = (0..self.n_keys).map(|i| self.key(i)).collect();
            if self.line.select(self.databases[own]).is_err() {
                break;
            }
            let Some(connection) = &mut self.line.connection else { break };
            for some in keys.chunks(256) {
                let _: RedisResult<i64> = redis::cmd("UNLINK").arg(some).query(connection);
            }
        }
        self.keys.iter_mut().for_each(Known::lost);
    }

    /// Takes in what has happened to the server.
    fn catch_up(&mut self, progress: &Progress) {
        for event in progress.course.since(self.n_events) {
            self.n_events += 1;
            match event {
                Event::Saved => self.saved.clone_from(&self.keys),
                Event::Flushed(sent) => self.keys.iter_mut().for_each(|key| key.flushed(sent)),
                Event::Moved(server) => self.line.go_to(*server),
                Event::SlotsMove(since) => self.slots_move = Some(since),
                Event::SlotsMoved(took) => {
                    self.slots_move = None;
                    self.keys.iter_mut().for_each(|key| key.lives_longer(took));
                }
                Event::Restarted(left) => {
                    self.line.go_to(self.line.server.clone());
                    match left {
                        Left::All => {}
                        Left::Answered => self.keys.iter_mut().for_each(Known::taken_over),
                        Left::Saved if !self.saved.is_empty() => self.keys.clone_from(&self.saved),
                        Left::Saved | Left::Nothing => self.keys.iter_mut().for_each(Known::lost),
                    }
                }
            }
        }
    }

    /// Empties the database that is selected, or swaps its two.
    fn empty_or_swap(&mut self, own: usize) {
        let n = self.n_keys;
        let draw = self.below(4);
        let Some(connection) = &mut self.line.connection else { return };
        let (first, second) = self.keys.split_at_mut(n);
        if draw < 2 {
            let how = ["SYNC", "ASYNC"][draw as usize];
            match redis::cmd("FLUSHDB").arg(how).query::<Value>(connection) {
                Ok(_) => [first, second][own].iter_mut().for_each(Known::lost),
                Err(error) => self.line.give_up_after(&error),
            }
            return;
        }
        match redis::cmd("SWAPDB").arg(&self.databases).query::<Value>(connection) {
            Ok(_) => first.swap_with_slice(second),
            Err(error) => {
                first.iter_mut().zip(second).for_each(|(one, other)| one.perhaps_swapped(other));
                self.line.give_up_after(&error);
            }
        }
    }

    fn key(&self, number: usize) -> String {
        format!("{}{}", self.prefix, number % self.n_keys)
    }

    fn check(&mut self, sent: &[Sent], replies: &[Value], at: Instant, progress: &Progress) {
        let now = Instant::now();
        let mut moved = None;
        for ((number, op), value) in sent.iter().zip(replies) {
            if let Some((is_ask, host, port)) = redirect(value) {
                let address = elsewhere(self.line.server.addr(), host, port);
                let there = ConnectionInfo::clone(&self.line.server).set_addr(address);
                if is_ask {
                    self.ask_there(*number, op, &there, progress);
                    continue;
                }
                moved = Some(there);
            }
            self.check_one(*number, op, value, (at, now), progress);
        }
        if let Some(server) = moved {
            self.line.go_to(server);
        }
    }

    fn check_one(&mut self, number: usize, op: &Op, value: &Value, when: (Instant, Instant), progress: &Progress) {
        progress.commands.fetch_add(1, Ordering::Relaxed);
        let known = match reply_of(op, value) {
            Ok(reply) => {
                if op.is_read() {
                    progress.reads.fetch_add(1, Ordering::Relaxed);
                    progress.absent.fetch_add(u64::from(is_absence(&reply)), Ordering::Relaxed);
                }
                self.keys[number].answered(op, &reply, when.0, when.1)
            }
            Err(refused) => refused.map_or(Ok(()), Err),
        };
        if let Err(what) = known {
            let command = command(&self.key(number), op);
            progress.tell(format!("{} {what} ({})", words_of(&command).join(" "), self.line.server.addr()));
        }
    }

    /// When a command that is sent now counts as sent: while slots move, when they began to, since what lived then may
    /// live on.
    fn sent_at(&self) -> Instant {
        self.slots_move.unwrap_or_else(Instant::now)
    }

    /// Asks the node that a slot is on its way to, of a key that has gone there.
    fn ask_there(&mut self, number: usize, op: &Op, there: &ConnectionInfo, progress: &Progress) {
        let commands = [redis::cmd("ASKING"), command(&self.key(number), op)];
        let at = self.sent_at();
        let answered = connect(there).ok().and_then(|mut there| send(&mut there, Form::Pipeline, &commands, &[]).ok());
        let now = Instant::now();
        match answered.and_then(|mut replies| replies.pop()) {
            Some(value) => self.check_one(number, op, &value, (at, now), progress),
            None => self.keys[number].unanswered(op, at, now),
        }
    }

    /// Tries to connect once. A server that was started anew, or another that has taken over, may lack what was
    /// answered before.
    fn reconnect(&mut self, progress: &Progress) -> bool {
        progress.reconnections.fetch_add(1, Ordering::Relaxed);
        let connected = connect(&self.line.server);
        let Ok((connection, now)) = connected.and_then(|mut to| run_id(&mut to).map(|run_id| (to, run_id))) else {
            thread::sleep(PAUSE);
            return false;
        };
        let is_other = self.line.run_id.replace(now.clone()).is_some_and(|before| before != now);
        (self.line.connection, self.line.database) = (Some(connection), 0);
        if is_other {
            self.clean_up();
        }
        true
    }

    /// A key and a command for what it holds: of eight keys five are strings, one each a hash, a list and a set.
    fn draw(&mut self, own: usize) -> Sent {
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
        (own * self.n_keys + number, op)
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
        let n = self.n_keys as u64;
        let end = if self.below(2) == 0 { (n / 10).max(8).min(n) } else { n };
        self.below(end) as usize
    }
}

impl Line {
    fn select(&mut self, database: usize) -> RedisResult<()> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        if self.database != database {
            redis::cmd("SELECT").arg(database).exec(connection)?;
            self.database = database;
        }
        Ok(())
    }

    /// Whoever is there now is the right one.
    fn go_to(&mut self, server: ConnectionInfo) {
        *self = Line { server, connection: None, database: 0, run_id: None };
    }

    /// A refusal leaves the connection as it is.
    fn give_up_after(&mut self, error: &redis::RedisError) {
        if error.is_io_error() || error.is_connection_dropped() {
            self.connection = None;
        }
    }
}

/// Where the reply says that the key is, and whether that is for this time alone.
fn redirect(reply: &Value) -> Option<(bool, String, u16)> {
    let Value::ServerError(error) = reply else { return None };
    let is_ask = match error.code() {
        "ASK" => true,
        "MOVED" => false,
        _ => return None,
    };
    let (host, port) = error.details()?.split(' ').nth(1)?.rsplit_once(':')?;
    Some((is_ask, host.to_owned(), port.parse().ok()?))
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
