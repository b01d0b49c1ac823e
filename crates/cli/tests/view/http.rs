//! Just enough of an HTTP client: one request, one answer, connection closed.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use tenure_servers::DEADLINE;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Such as 200.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// What came behind them.
    pub body: String,
}

impl Answer {
    /// The body, which has to be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }
}

/// Asks for `path` of the server at `address`.
pub fn get(address: &str, path: &str) -> std::io::Result<Answer> {
    request(address, "GET", path, &[], "")
}

/// Sends any request. `Host` is `address`, unless `headers` has one.
pub fn request(address: &str, method: &str, path: &str, headers: &[&str], body: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let has_host = headers.iter().any(|header| header.starts_with("Host:"));
    let host = if has_host { String::new() } else { format!("Host: {address}\r\n") };
    let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\n{host}{more}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16384];
    // Some servers keep the connection whatever they are asked: what they say of the length counts.
    while !is_whole(&bytes) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            // This process was stopped, and goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        unchunked(body)
    } else {
        body.to_owned()
    };
    Ok(Answer { status, head: head.to_owned(), body })
}

/// The next server-sent event of `path`.
pub fn next_event(address: &str, path: &str) -> std::io::Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    for line in BufReader::new(stream).lines() {
        if let Some(text) = line?.strip_prefix("data: ") {
            return Ok(serde_json::from_str(text)?);
        }
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    match length {
        Some(length) => bytes.len() >= end + 4 + length,
        None => bytes.ends_with(b"0\r\n\r\n") && head.contains("chunked"),
    }
}

fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        if length == 0 || length > rest.len() {
            break;
        }
        whole.push_str(&rest[..length]);
        text = rest[length..].trim_start_matches("\r\n");
    }
    whole
}
