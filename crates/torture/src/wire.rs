//! Commands as they are sent and replies as they come: alone and in pipelines, in transactions, scripts and functions.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Cmd, Connection, ConnectionLike, ErrorKind, RedisError, RedisResult, Value};

use crate::model::{Op, Reply, name};

/// In what form several commands are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One after the other without waiting.
    Pipeline,
    /// `MULTI` … `EXEC`.
    Transaction,
    /// A script that runs them one by one and returns all replies.
    Script,
    /// A function that does the same, of a library that the server has: [`library`].
    Function,
}

/// Words of each command, each with their number before them: what a command answers, an error too, is what it
/// answers outside.
const SCRIPT: &str = "local replies, at = {}, 1 \
    while at <= #ARGV do \
        local n = tonumber(ARGV[at]) \
        replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + n)) \
        at = at + n + 1 \
    end \
    return replies";

/// What `FUNCTION LOAD` takes, for [`Form::Function`].
pub fn library() -> String {
    format!("#!lua name=torture\nredis.register_function('torture_each', function(KEYS, ARGV) {SCRIPT} end)")
}

/// Sends these commands, and returns as many replies.
///
/// # Errors
/// When the connection breaks, or not each is answered.
pub fn send(connection: &mut Connection, form: Form, commands: &[Cmd], keys: &[String]) -> RedisResult<Vec<Value>> {
    let pack = |commands: &[Cmd]| commands.iter().flat_map(Cmd::get_packed_command).collect::<Vec<u8>>();
    let n = commands.len();
    let last = match form {
        Form::Pipeline => return connection.req_packed_commands(&pack(commands), 0, n),
        Form::Transaction => {
            let bytes = [pack(&[redis::cmd("MULTI")]), pack(commands), pack(&[redis::cmd("EXEC")])].concat();
            connection.req_packed_commands(&bytes, 0, n + 2)?.pop()
        }
        Form::Script | Form::Function => {
            let [call, what] = if form == Form::Script { ["EVAL", SCRIPT] } else { ["FCALL", "torture_each"] };
            let mut script = redis::cmd(call);
            script.arg(what).arg(keys.len()).arg(keys);
            for command in commands {
                let words: Vec<&[u8]> = command.args_iter().map(bytes_of_word).collect();
                script.arg(words.len()).arg(words);
            }
            connection.req_packed_commands(&script.get_packed_command(), 0, 1)?.pop()
        }
    };
    match last {
        Some(Value::Array(replies)) if replies.len() == n => Ok(replies),
        // All were refused at once.
        Some(Value::ServerError(error)) => Ok(vec![Value::ServerError(error); n]),
        _ => Err(RedisError::from((ErrorKind::UnexpectedReturnType, "not a reply for each command"))),
    }
}

fn bytes_of_word(word: redis::Arg<&[u8]>) -> &[u8] {
    match word {
        redis::Arg::Simple(bytes) => bytes,
        _ => &[],
    }
}

/// What is sent.
pub fn command(key: &str, op: &Op) -> Cmd {
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
pub fn words_of(command: &Cmd) -> Vec<String> {
    let words = command.args_iter().map(|word| bytes_of_word(word).escape_ascii().to_string());
    words.map(|word| if word.len() > 24 { format!("{}…", &word[..24]) } else { word }).collect()
}

/// Errors by which a server says that nothing was done.
const REFUSALS: [&str; 12] = [
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
    "MISCONF",
    "EXECABORT",
];

/// The reply as the model foresees it.
///
/// # Errors
/// An error in its place: `None` for one by which a server says that nothing was done, else what is wrong with it.
pub fn reply_of(op: &Op, value: &Value) -> Result<Reply, Option<String>> {
    let strings = |items: &[Value]| items.iter().map(bytes_of).collect::<Option<Vec<_>>>();
    let reply = match (op, value) {
        (_, Value::ServerError(error)) => {
            let is_refusal = REFUSALS.contains(&error.code());
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

/// Whether the reply says that the key isn't there.
pub fn is_absence(reply: &Reply) -> bool {
    match reply {
        Reply::Nothing | Reply::Number(0) => true,
        Reply::Pairs(pairs) => pairs.is_empty(),
        Reply::List(items) => items.is_empty(),
        Reply::Members(members) => members.is_empty(),
        _ => false,
    }
}
