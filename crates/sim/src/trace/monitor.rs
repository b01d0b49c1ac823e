//! What `MONITOR` of a Redis or Valkey server prints: `1339518083.107412 [0 127.0.0.1:60866] "set" "key" "value"`.
//!
//! One line is one command, and one access per key of it (`MGET`, `MSET`, `DEL` and `UNLINK` take many). Commands
//! that neither read nor write a value (`PING`, `EXPIRE`, `MULTI` …) are passed over. `SET` and its kin tell sizes
//! and TTLs; a read's size is what a bounded memory of 65,536 recent sizes knows of its key, else unknown. A tenant
//! is the logical database; a client is an address without its port, since each connection of one program has
//! another.

use std::collections::VecDeque;

use tenure_core::access::Op;
use tenure_core::units::KeyHash;

use super::row::{Row, parse_u64, shown};

/// How many keys' sizes are remembered.
const SIZES: usize = 1 << 16;

/// Where a command's keys stand among its arguments.
#[derive(Clone, Copy)]
enum Keys {
    /// The first argument.
    First,
    /// Every argument.
    All,
    /// Every second argument: key, value, key, value.
    Pairs,
}

/// The format. See the file's opening.
pub(super) struct Monitor {
    arguments: Vec<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    sizes: Vec<(KeyHash, u64)>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("waiting", &self.waiting.len()).finish()
    }
}

impl Default for Monitor {
    fn default() -> Self {
        Monitor { arguments: Vec::new(), waiting: VecDeque::new(), sizes: vec![(KeyHash(0), 0); SIZES] }
    }
}

impl Monitor {
    /// Reads one line; false where it holds no access.
    pub fn parse(&mut self, line: &[u8], row: &mut Row) -> Result<bool, String> {
        if line.is_empty() || line == b"OK" {
            return Ok(false);
        }
        let Head { time_us, database, client, rest } =
            head_of(line).ok_or("no line of MONITOR: time [database client] \"command\" …")?;
        let n = split_arguments(rest, &mut self.arguments)?;
        let Some((op, keys)) = self.arguments[..n].first().and_then(|name| meaning_of(name)) else {
            return Ok(false);
        };
        if n < 2 {
            return Err(format!("{} has no key", shown(&self.arguments[0])));
        }
        row.time_us = time_us;
        row.op = op;
        row.tenant.extend_from_slice(database);
        row.client.extend_from_slice(client);
        self.take_keys(keys, n, row);
        Ok(true)
    }

    fn take_keys(&mut self, keys: Keys, n: usize, row: &mut Row) {
        row.key.extend_from_slice(&self.arguments[1]);
        match keys {
            Keys::First => {
                let arguments = &self.arguments[..n];
                row.ttl_us = ttl_us_of(arguments);
                row.size_bytes = if row.op == Op::Write { Some(written_bytes(arguments)) } else { None };
            }
            Keys::All => self.waiting.extend(self.arguments[2..n].iter().cloned()),
            Keys::Pairs => self.waiting.extend(self.arguments[3..n.max(3)].iter().step_by(2).cloned()),
        }
        self.remember_size(row);
    }

    /// The next key of a command that has many; false where there is none. Time, operation and tenant stay as they are.
    pub fn next_waiting(&mut self, row: &mut Row) -> bool {
        let Some(key) = self.waiting.pop_front() else {
            return false;
        };
        (row.key, row.size_bytes) = (key, None);
        self.remember_size(row);
        true
    }

    fn remember_size(&mut self, row: &mut Row) {
        let key = KeyHash::of(&row.key);
        let slot = &mut self.sizes[key.0 as usize % SIZES];
        match row.size_bytes {
            Some(size_bytes) => *slot = (key, size_bytes),
            None if slot.0 == key && slot.1 > 0 => row.size_bytes = Some(slot.1),
            None => {}
        }
    }
}

/// What stands before a command, and the rest of its line.
struct Head<'a> {
    time_us: u64,
    database: &'a [u8],
    client: &'a [u8],
    rest: &'a [u8],
}

fn head_of(line: &[u8]) -> Option<Head<'_>> {
    let space = line.iter().position(|&b| b == b' ')?;
    let time_us = super::row::parse_seconds_us(&line[..space])?;
    let rest = line[space + 1..].strip_prefix(b"[")?;
    // An IPv6 address stands in brackets of its own, so the end is the bracket before the command.
    let close = rest.windows(3).position(|three| three == b"] \"")?;
    let mut origin = rest[..close].splitn(2, |&b| b == b' ');
    let (database, client) = (origin.next()?, without_port(origin.next().unwrap_or_default()));
    Some(Head { time_us, database, client, rest: rest[close + 1..].trim_ascii_start() })
}

/// `10.0.0.7:6379` is `10.0.0.7`; what ends in no port stays as it is.
fn without_port(address: &[u8]) -> &[u8] {
    match address.iter().rposition(|&b| b == b':') {
        Some(colon) if parse_u64(&address[colon + 1..]).is_some() => &address[..colon],
        _ => address,
    }
}

/// Takes quoted arguments apart into `arguments`, whose buffers are reused; how many there are.
fn split_arguments(mut rest: &[u8], arguments: &mut Vec<Vec<u8>>) -> Result<usize, String> {
    let mut n = 0;
    while !rest.is_empty() {
        if arguments.len() == n {
            arguments.push(Vec::new());
        }
        arguments[n].clear();
        rest = take_quoted(rest, &mut arguments[n])?.trim_ascii_start();
        n += 1;
    }
    Ok(n)
}

/// Appends what stands between the quotation marks that `text` begins with; what follows them.
fn take_quoted<'a>(text: &'a [u8], to: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let broken = || "an argument's quotation marks are not closed".to_owned();
    let mut bytes = text.strip_prefix(b"\"").ok_or_else(|| format!("{} is not in quotation marks", shown(text)))?;
    loop {
        let (&first, rest) = bytes.split_first().ok_or_else(broken)?;
        bytes = rest;
        match first {
            b'"' => return Ok(bytes),
            b'\\' => {
                let (&escaped, rest) = bytes.split_first().ok_or_else(broken)?;
                bytes = rest;
                let value = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let hex = bytes.get(..2).and_then(|h| std::str::from_utf8(h).ok());
                        let value =
                            hex.and_then(|h| u8::from_str_radix(h, 16).ok()).ok_or("a \\x has no two hex digits")?;
                        bytes = &bytes[2..];
                        value
                    }
                    other => other,
                };
                to.push(value);
            }
            other => to.push(other),
        }
    }
}

/// Commands that read their first argument.
const READ_FIRST: &str = "get getrange substr strlen getex hget hgetall hmget hkeys hvals hlen hexists hscan lrange \
    lindex llen smembers sismember smismember scard sscan srandmember zrange zrangebyscore \
    zrevrange zrevrangebyscore zscore zmscore zrank zrevrank zcard zcount zscan getbit bitcount bitpos xrange \
    xrevrange xlen pfcount geosearch geopos type dump";

/// Commands that write it.
const WRITE_FIRST: &str = "set setex psetex setnx getset append setrange incr incrby incrbyfloat decr decrby hset \
    hmset hsetnx hincrby hincrbyfloat hdel lpush rpush lpushx rpushx lpop rpop lset ltrim lrem \
    linsert sadd srem spop zadd zrem zincrby zpopmin zpopmax setbit bitfield xadd xtrim pfadd geoadd restore";

/// What a command does and where its keys are; `None` for those that are passed over.
fn meaning_of(name: &[u8]) -> Option<(Op, Keys)> {
    let is = |names: &str| names.split_whitespace().any(|n| n.as_bytes().eq_ignore_ascii_case(name));
    if is(READ_FIRST) {
        Some((Op::Read, Keys::First))
    } else if is(WRITE_FIRST) {
        Some((Op::Write, Keys::First))
    } else if is("mget exists touch sinter sunion sdiff") {
        Some((Op::Read, Keys::All))
    } else if is("mset msetnx") {
        Some((Op::Write, Keys::Pairs))
    } else if is("del unlink") {
        Some((Op::Delete, Keys::All))
    } else if is("getdel") {
        Some((Op::Delete, Keys::First))
    } else {
        None
    }
}

/// The bytes that a write's arguments hold without the command's name: the key, the value and what little else.
fn written_bytes(arguments: &[Vec<u8>]) -> u64 {
    let payload = match arguments[0].to_ascii_lowercase().as_slice() {
        b"set" | b"setnx" | b"getset" => &arguments[1..arguments.len().min(3)],
        _ => &arguments[1..],
    };
    payload.iter().map(|a| a.len() as u64).sum()
}

/// The TTL that a write sets, in µs; 0 = none.
fn ttl_us_of(arguments: &[Vec<u8>]) -> u64 {
    let number = |i: usize| arguments.get(i).and_then(|a| parse_u64(a)).unwrap_or(0);
    match arguments[0].to_ascii_lowercase().as_slice() {
        b"setex" => number(2).saturating_mul(1_000_000),
        b"psetex" => number(2).saturating_mul(1_000),
        b"set" => {
            let option =
                |name: &[u8]| arguments.iter().skip(3).position(|a| a.eq_ignore_ascii_case(name)).map(|i| i + 4);
            match (option(b"ex"), option(b"px")) {
                (Some(i), _) => number(i).saturating_mul(1_000_000),
                (_, Some(i)) => number(i).saturating_mul(1_000),
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// True where `line` has the shape of a line of MONITOR.
pub(super) fn looks_like(line: &[u8]) -> bool {
    line == b"OK" || head_of(line).is_some_and(|head| head.rest.first() == Some(&b'"'))
}
