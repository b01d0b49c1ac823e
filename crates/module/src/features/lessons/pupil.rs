//! A replica's connection to its primary, as a client of it, on a thread of its own: asks once a second what the
//! primary has learned since.

use std::fmt;
use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{ErrorKind, Parser, RedisError, RedisResult, Value};

use super::FORMAT;
use crate::ffi::guard;

/// Between two questions.
const PAUSE: Duration = Duration::from_secs(1);
/// After one that failed.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(5);
/// A pause is cut short so soon.
const NAP: Duration = Duration::from_millis(50);
/// How long the primary is waited for.
const WAIT: Duration = Duration::from_secs(2);

/// Who is asked, and as whom.
#[derive(Clone, PartialEq, Eq)]
pub struct Primary {
    /// Its address and port.
    pub address: (String, u16),
    /// The user, empty for the default one, and its password, empty for none: those that replication goes by.
    pub credentials: (String, String),
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.address.0, self.address.1)
    }
}

/// What the primary has answered.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    /// Its clock, in ticks, and for how many ticks that has gone without a break.
    pub clock: (u64, u64),
    /// What it has learned, where that is news.
    pub lessons: Vec<u8>,
    /// A piece of its table of keys.
    pub piece: Vec<u8>,
}

/// What both threads see.
#[derive(Default)]
struct Desk {
    heard: Mutex<Option<Heard>>,
    trouble: Mutex<Option<String>>,
    /// To wake the thread out of a read.
    stream: Mutex<Option<TcpStream>>,
    stop: AtomicBool,
}

/// The thread. Dropping it stops it without waiting for it; [`Pupil::join`] waits.
pub struct Pupil {
    /// Who is asked.
    pub primary: Primary,
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Pupil {
    /// Starts asking.
    ///
    /// # Errors
    /// The system's, where there can be no thread.
    pub fn start(primary: Primary) -> std::io::Result<Pupil> {
        let desk = Arc::new(Desk::default());
        let (own, asked) = (desk.clone(), primary.clone());
        let body = move || {
            let run = std::panic::AssertUnwindSafe(|| ask_on(&asked, &own));
            if std::panic::catch_unwind(run).is_err() {
                guard::count_panic("the thread that asks the primary");
            }
        };
        let thread = thread::Builder::new().name("tenure-lessons".to_owned()).spawn(body)?;
        Ok(Pupil { primary, desk, thread: Some(thread) })
    }

    /// What was heard since the last call. Never waits.
    pub fn heard(&self) -> Option<Heard> {
        self.desk.heard.try_lock().ok()?.take()
    }

    /// Why nothing is heard, if that is new.
    pub fn trouble(&self) -> Option<String> {
        self.desk.trouble.try_lock().ok()?.take()
    }

    /// Tells the thread to end; true once it has.
    pub fn ends(&self) -> bool {
        self.desk.stop.store(true, Ordering::Release);
        if let Ok(Some(stream)) = self.desk.stream.try_lock().as_deref() {
            _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread's end: a nap, or at most as long as a connection takes to be refused.
    pub fn join(mut self) {
        while !self.ends() {
            thread::sleep(Duration::from_millis(1));
        }
        self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Pupil {
    fn drop(&mut self) {
        self.ends();
    }
}

/// Asks until it is told to end.
fn ask_on(primary: &Primary, desk: &Desk) {
    let mut connection = None;
    let (mut version, mut bucket) = (0, 0);
    while !desk.stop.load(Ordering::Acquire) {
        let asked = match &mut connection {
            // What was heard last is still to be taken.
            Some(_) if desk.heard.lock().is_ok_and(|heard| heard.is_some()) => Ok(None),
            Some(connection) => ask(connection, version, bucket).map(Some),
            None => connect(primary, desk).map(|opened| {
                connection = Some(opened);
                None
            }),
        };
        let pause = match asked {
            Ok(None) => NAP,
            Ok(Some(answer)) => {
                (version, bucket) = (answer.version, answer.next_bucket);
                if let Ok(mut place) = desk.heard.lock() {
                    *place = Some(answer.heard);
                }
                PAUSE
            }
            Err(why) => {
                (connection, version, bucket) = (None, 0, 0);
                if let Ok(mut place) = desk.trouble.lock() {
                    *place = Some(why.to_string());
                }
                PAUSE_AFTER_ERROR
            }
        };
        let mut left = pause;
        while left > Duration::ZERO && !desk.stop.load(Ordering::Acquire) {
            thread::sleep(NAP.min(left));
            left = left.saturating_sub(NAP);
        }
    }
}

fn connect(primary: &Primary, desk: &Desk) -> RedisResult<TcpStream> {
    let (host, port) = &primary.address;
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in (host.as_str(), *port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, WAIT) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(WAIT))?;
                stream.set_write_timeout(Some(WAIT))?;
                if let Ok(mut place) = desk.stream.lock() {
                    *place = stream.try_clone().ok();
                }
                let (user, password) = &primary.credentials;
                if !password.is_empty() {
                    let user = if user.is_empty() { "default" } else { user };
                    run(&mut stream, redis::cmd("AUTH").arg(user).arg(password))?;
                }
                return Ok(stream);
            }
            Err(why) => last = why,
        }
    }
    Err(last.into())
}

fn run(stream: &mut TcpStream, command: &redis::Cmd) -> RedisResult<Value> {
    stream.write_all(&command.get_packed_command())?;
    Parser::new().parse_value(stream)?.extract_error()
}

/// An answer of the primary.
struct Answered {
    version: u64,
    next_bucket: u64,
    heard: Heard,
}

fn ask(stream: &mut TcpStream, version: u64, bucket: u64) -> RedisResult<Answered> {
    let command = redis::cmd("TENURE.LESSONS").arg(FORMAT).arg(version).arg(bucket).to_owned();
    understood(run(stream, &command)?)
        .ok_or_else(|| RedisError::from((ErrorKind::UnexpectedReturnType, "what it answers is no lesson")))
}

fn understood(answer: Value) -> Option<Answered> {
    let Value::Array(answer) = answer else { return None };
    let [version, now, unbroken, lessons, next_bucket, piece] = <[Value; 6]>::try_from(answer).ok()?;
    let number = |value| if let Value::Int(n) = value { u64::try_from(n).ok() } else { None };
    let bytes = |value| if let Value::BulkString(bytes) = value { Some(bytes) } else { None };
    let heard = Heard { clock: (number(now)?, number(unbroken)?), lessons: bytes(lessons)?, piece: bytes(piece)? };
    Some(Answered { version: number(version)?, next_bucket: number(next_bucket)?, heard })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_lesson_is_none() {
        let answer = |last: Value| {
            let bulk = || Value::BulkString(b"x".to_vec());
            Value::Array(vec![Value::Int(3), Value::Int(80), Value::Int(7), bulk(), Value::Int(64), last])
        };
        let heard = understood(answer(Value::BulkString(Vec::new()))).unwrap();
        assert_eq!((heard.version, heard.next_bucket, heard.heard.clock), (3, 64, (80, 7)));
        assert_eq!(heard.heard.lessons, b"x");
        for odd in [answer(Value::Int(-1)), answer(Value::Nil), Value::Int(1), Value::Array(Vec::new())] {
            assert!(understood(odd).is_none());
        }
    }

    /// Nobody listens there: it says so, and ends when told.
    #[test]
    fn nobody_there_is_said() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let credentials = (String::new(), String::new());
        let pupil = Pupil::start(Primary { address: ("127.0.0.1".to_owned(), address.port()), credentials }).unwrap();
        let why = loop {
            match pupil.trouble() {
                Some(why) => break why,
                None => thread::yield_now(),
            }
        };
        assert!(why.to_lowercase().contains("refused") && pupil.heard().is_none(), "{why}");
        pupil.join();
    }
}
