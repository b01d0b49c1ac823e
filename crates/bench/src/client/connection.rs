//! One connection to the server: commands out, replies in, at the least cost.
//!
//! The client's core is one of two and must not be the bottleneck, so commands are written into one buffer, and
//! replies are parsed where they were received; of a bulk reply only the length is kept, its bytes are passed over.
//! About 1 µs of client time per command besides the system calls. Knows of RESP 2 what the benchmark's commands
//! answer.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// A server that doesn't answer for so long has failed.
const REPLY_DEADLINE: Duration = Duration::from_secs(60);

/// Room for received bytes: several replies of 1 KB at once, and long ones in pieces.
const INPUT_BYTES: usize = 64 * 1024;

/// A reply, without the bytes of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and its like.
    Simple,
    /// An integer.
    Integer(i64),
    /// A value of so many bytes.
    Bulk(usize),
    /// No value: a miss.
    Nil,
    /// An array; its so many elements are replies of their own, to be read next.
    Array(usize),
    /// The server refused; its text.
    Error(String),
}

/// A connection to the server on a port of 127.0.0.1.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    input: Box<[u8]>,
    /// What was received and not yet parsed: `input[at..end]`.
    at: usize,
    end: usize,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens on `port`.
    pub fn open(port: u16) -> anyhow::Result<Connection> {
        let stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("no server on port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_DEADLINE))?;
        stream.set_write_timeout(Some(REPLY_DEADLINE))?;
        Ok(Connection { stream, output: Vec::new(), input: vec![0; INPUT_BYTES].into(), at: 0, end: 0 })
    }

    /// Appends a command to what [`send`](Connection::send) will write.
    pub fn queue(&mut self, words: &[&[u8]]) {
        write_command(&mut self.output, words);
    }

    /// Writes all queued commands.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send(&mut self) -> anyhow::Result<()> {
        let sent = self.stream.write_all(&self.output).context("the server does not take commands any more");
        self.output.clear();
        sent
    }

    /// Writes what was encoded elsewhere.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn send_encoded(&mut self, commands: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(commands).context("the server does not take commands any more")
    }

    /// Sends one command and reads its reply.
    ///
    /// # Errors
    /// When the connection is broken.
    pub fn call(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        self.queue(words);
        self.send()?;
        self.reply()
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// When the connection is broken, or what comes is no reply that this client knows.
    pub fn reply(&mut self) -> anyhow::Result<Reply> {
        let (kind, number) = match self.line()? {
            [b'+', ..] => return Ok(Reply::Simple),
            [b'-', text @ ..] => return Ok(Reply::Error(String::from_utf8_lossy(text).into_owned())),
            [kind, digits @ ..] => (*kind, parse_integer(digits)?),
            [] => bail!("the server sent an empty line"),
        };
        match (kind, number) {
            (b'$' | b'*', -1) => Ok(Reply::Nil),
            (b'$', 0..) => {
                self.skip(number as usize + 2)?;
                Ok(Reply::Bulk(number as usize))
            }
            (b'*', 0..) => Ok(Reply::Array(number as usize)),
            (b':', _) => Ok(Reply::Integer(number)),
            _ => bail!("the server sent a reply of unknown kind '{}'", char::from(kind)),
        }
    }

    /// The next line without its end; the buffer holds it until the next call.
    fn line(&mut self) -> anyhow::Result<&[u8]> {
        let mut searched = 0;
        let length = loop {
            let received = &self.input[self.at..self.end];
            match received[searched..].iter().position(|&byte| byte == b'\n') {
                Some(found) => break searched + found + 1,
                None => {
                    searched = received.len();
                    self.receive()?;
                }
            }
        };
        let line = &self.input[self.at..self.at + length];
        self.at += length;
        line.strip_suffix(b"\r\n").context("the server sent a line without its end")
    }

    fn skip(&mut self, mut n: usize) -> anyhow::Result<()> {
        loop {
            let available = self.end - self.at;
            if n <= available {
                self.at += n;
                return Ok(());
            }
            n -= available;
            (self.at, self.end) = (0, 0);
            self.receive()?;
        }
    }

    /// Receives more, keeping what is there.
    fn receive(&mut self) -> anyhow::Result<()> {
        if self.at > 0 {
            self.input.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        ensure!(self.end < self.input.len(), "the server sent a line of more than {INPUT_BYTES} bytes");
        let n = loop {
            match self.stream.read(&mut self.input[self.end..]) {
                // Whoever stops this process and lets it go on ends a read that has a time limit.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.context("the server does not answer")?,
            }
        };
        ensure!(n > 0, "the server closed the connection");
        self.end += n;
        Ok(())
    }
}

/// Appends one command in RESP.
pub fn write_command(output: &mut Vec<u8>, words: &[&[u8]]) {
    write_header(output, b'*', words.len());
    for word in words {
        write_header(output, b'$', word.len());
        output.extend_from_slice(word);
        output.extend_from_slice(b"\r\n");
    }
}

fn write_header(output: &mut Vec<u8>, kind: u8, mut number: usize) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    output.push(kind);
    output.extend_from_slice(&digits[first..]);
    output.extend_from_slice(b"\r\n");
}

fn parse_integer(digits: &[u8]) -> anyhow::Result<i64> {
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok())
        .with_context(|| format!("'{}' is no number", String::from_utf8_lossy(digits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A connection to a peer that sends `pieces`, one write each, and closes.
    fn peer(pieces: Vec<Vec<u8>>) -> Connection {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            for piece in pieces {
                stream.write_all(&piece).unwrap();
            }
        });
        Connection::open(port).unwrap()
    }

    #[test]
    fn commands_are_encoded_as_the_protocol_says() {
        let mut output = Vec::new();
        write_command(&mut output, &[b"SET", b"k", b"", &[b'v'; 12]]);
        assert_eq!(output, b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n$12\r\nvvvvvvvvvvvv\r\n");
    }

    #[test]
    fn replies_are_read_however_they_are_cut() {
        let mut bytes = b"+OK\r\n$-1\r\n$3\r\na\nb\r\n:-42\r\n-OOM no\r\n*2\r\n$1\r\nx\r\n$-1\r\n$200000\r\n".to_vec();
        bytes.extend(vec![b'z'; 200_000]);
        bytes.extend(b"\r\n+PONG\r\n");
        let expected = [
            Reply::Simple,
            Reply::Nil,
            Reply::Bulk(3),
            Reply::Integer(-42),
            Reply::Error("OOM no".into()),
            Reply::Array(2),
            Reply::Bulk(1),
            Reply::Nil,
            Reply::Bulk(200_000),
            Reply::Simple,
        ];
        for piece_bytes in [1, 7, 1000, 1_000_000] {
            let whole = if piece_bytes == 1 { &bytes[..60] } else { &bytes };
            let mut connection = peer(whole.chunks(piece_bytes).map(<[u8]>::to_vec).collect());
            for reply in &expected[..if piece_bytes == 1 { 8 } else { 10 }] {
                assert_eq!(connection.reply().unwrap(), *reply, "in pieces of {piece_bytes}");
            }
            assert!(connection.reply().is_err(), "the peer has closed");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for nonsense in ["?1\r\n", "$x\r\n", "$-2\r\n", "\r\n", "+no end\n"] {
            assert!(peer(vec![nonsense.into()]).reply().is_err(), "{nonsense:?}");
        }
    }
}
