//! A small HTTP server: what a dashboard and an exporter need, and nothing that changes anything.
//!
//! GET and HEAD, a thread for each connection, at most `CONNECTIONS_MAX`, each closed with its answer. Requests are
//! read by the crate `httparse`; beside that there is so little to do that a framework would be the larger part. What a
//! browser could be tricked into is refused by [`Guard`]: names of other hosts (DNS rebinding), requests from other
//! pages, requests without the password.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Connections served at once; each has a thread.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A client that takes longer to say what it wants, or to take what it is sent, is dropped.
const PATIENCE: Duration = Duration::from_secs(10);
/// The cookie that a token in the address becomes.
const COOKIE: &str = "tenure-token";

/// What is asked for.
#[derive(Debug, Default)]
pub struct Request {
    method: String,
    /// Without the query.
    pub path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

/// Writes events to a connection until it fails.
type Events = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// What is answered.
pub enum Answer {
    /// All at once.
    Whole {
        /// Such as 200.
        status: u16,
        /// Its media type.
        content_type: &'static str,
        /// The bytes.
        body: Cow<'static, [u8]>,
        /// More headers.
        headers: Vec<(&'static str, String)>,
    },
    /// Server-sent events.
    Events(Events),
}

impl Answer {
    /// What was asked for.
    pub fn ok(content_type: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Answer {
        Answer::Whole { status: 200, content_type, body: body.into(), headers: Vec::new() }
    }

    /// A sentence that says what is wrong.
    pub fn refusal(status: u16, why: impl Into<String>) -> Answer {
        let body = format!("{}\n", why.into()).into_bytes().into();
        Answer::Whole { status, content_type: "text/plain; charset=utf-8", body, headers: Vec::new() }
    }
}

impl Request {
    fn parse(head: &[u8]) -> Result<Request> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Request::new(&mut headers);
        ensure!(parsed.parse(head)?.is_complete(), "the head of the request is cut off");
        let target = parsed.path.unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        let header = |header: &httparse::Header| {
            (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).trim().to_owned())
        };
        Ok(Request {
            method: parsed.method.unwrap_or("").to_owned(),
            path: decoded(path),
            query: query.split('&').filter(|text| !text.is_empty()).map(pair).collect(),
            headers: parsed.headers.iter().map(header).collect(),
        })
    }

    /// The value of `name` in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }
}

/// `%2F` and `+` as what they stand for; what is no such code stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let (byte, taken) = match (first, code) {
            (b'%', Some(code)) => (code, 3),
            (b'+', _) => (b' ', 1),
            (other, _) => (*other, 1),
        };
        bytes.push(byte);
        rest = &rest[taken..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Who may ask.
#[derive(Debug, Default)]
pub struct Guard {
    /// Names of this server, beside its addresses and `localhost`; `None`: any will do.
    names: Option<Vec<String>>,
    secret: Option<Secret>,
}

#[derive(Debug)]
enum Secret {
    /// AccessRing for by the browser; any user name will do.
    Password(String),
    /// In the address once, in a cookie from then on.
    Token(String),
}

impl Guard {
    /// Whoever reaches it.
    pub fn open() -> Guard {
        Guard::default()
    }

    /// Browsers that were told these names, this machine's addresses or `localhost`, and no page of another origin.
    pub fn own_names(names: Vec<String>) -> Guard {
        Guard { names: Some(names), secret: None }
    }

    /// The same with a password.
    pub fn with_password(self, password: String) -> Guard {
        Guard { secret: Some(Secret::Password(password)), ..self }
    }

    /// The same with a token.
    pub fn with_token(self, token: String) -> Guard {
        Guard { secret: Some(Secret::Token(token)), ..self }
    }

    /// What is wrong with a request, if anything is.
    fn refuses(&self, request: &Request) -> Option<Answer> {
        if request.method != "GET" && request.method != "HEAD" {
            return Some(Answer::refusal(
                405,
                format!("{}: nothing is changed through this; allowed is GET", request.method),
            ));
        }
        if let Some(names) = &self.names {
            let host = request.header("host").unwrap_or("");
            if !is_own(host, names) {
                let why = format!("'{host}' is not this server; where it should be, start it with --name {host}");
                return Some(Answer::refusal(403, why));
            }
            let foreign =
                request.header("origin").filter(|origin| origin.split_once("://").is_none_or(|(_, of)| of != host));
            if let Some(origin) = foreign {
                return Some(Answer::refusal(403, format!("pages of '{origin}' may not read this")));
            }
        }
        self.secret.as_ref().and_then(|secret| secret.refuses(request))
    }
}

/// Whether a Host header names this server. An address can't be another's name, whatever a name service says.
fn is_own(host: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
}

impl Secret {
    fn refuses(&self, request: &Request) -> Option<Answer> {
        match self {
            Secret::Password(password) => {
                let given = request.header("authorization").and_then(password_of);
                if given.is_some_and(|given| is_same(given.as_bytes(), password.as_bytes())) {
                    return None;
                }
                let mut refusal =
                    Answer::refusal(401, "the password is that of --password-file; any user name will do");
                if let Answer::Whole { headers, .. } = &mut refusal {
                    headers.push(("WWW-Authenticate", "Basic realm=\"tenure\", charset=\"UTF-8\"".to_owned()));
                }
                Some(refusal)
            }
            Secret::Token(token) => {
                let is_token = |given: &str| is_same(given.as_bytes(), token.as_bytes());
                let cookies = request.header("cookie").unwrap_or("").split(';');
                let mut values = cookies.filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='));
                let bearer = request.header("authorization").and_then(|text| text.strip_prefix("Bearer "));
                if values.any(is_token) || bearer.is_some_and(is_token) {
                    return None;
                }
                if !request.query("token").is_some_and(is_token) {
                    return Some(Answer::refusal(401, "the address with the token was printed when this was started"));
                }
                // Out of the address bar, and so out of histories and referrers.
                let cookie = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/");
                let headers = vec![("Set-Cookie", cookie), ("Location", request.path.clone())];
                Some(Answer::Whole { status: 303, content_type: "text/plain", body: Cow::Borrowed(b""), headers })
            }
        }
    }
}

/// The password of `Basic BASE64(USER:PASSWORD)`, or what stands behind `Bearer`.
fn password_of(authorization: &str) -> Option<String> {
    if let Some(bearer) = authorization.strip_prefix("Bearer ") {
        return Some(bearer.to_owned());
    }
    let text = String::from_utf8(base64(authorization.strip_prefix("Basic ")?)?).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// What a text in base 64 stands for.
fn base64(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut held, mut n_bits) = (0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        held = held << 6 | DIGITS.iter().position(|&d| d == digit)? as u32;
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push((held >> n_bits) as u8);
            held &= (1 << n_bits) - 1;
        }
    }
    Some(bytes)
}

/// Compares in a time that doesn't tell how much of it was right.
fn is_same(given: &[u8], secret: &[u8]) -> bool {
    let differing = given.iter().zip(secret).fold(0, |differing, (a, b)| differing | (a ^ b));
    given.len() == secret.len() && differing == 0
}

/// Serves until the process ends.
///
/// # Errors
/// When no more connections can be accepted.
pub fn serve(
    listener: TcpListener,
    guard: Guard,
    handle: impl Fn(&Request) -> Answer + Send + Sync + 'static,
) -> Result<()> {
    let (guard, handle) = (Arc::new(guard), Arc::new(handle));
    let n_connections = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        // A client that has gone before it was accepted is no failure of the listener's.
        let Ok(mut stream) = stream else { continue };
        if n_connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            n_connections.fetch_sub(1, Ordering::Relaxed);
            let _ = send(&mut stream, Answer::refusal(503, "too many connections"), true);
            continue;
        }
        let (guard, handle, open) = (Arc::clone(&guard), Arc::clone(&handle), Open(Arc::clone(&n_connections)));
        let connection = move || {
            let _open = open;
            // A client that hangs up is its own affair.
            let _ = answer(stream, &guard, &*handle);
        };
        thread::Builder::new()
            .name("tenure-http".to_owned())
            .spawn(connection)
            .context("no thread for a connection")?;
    }
    Ok(())
}

/// A connection that counts as open until it is dropped, however its thread ends.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, guard: &Guard, handle: &impl Fn(&Request) -> Answer) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let request = match read_head(&mut stream)?.map(|head| Request::parse(&head)) {
        Some(Ok(request)) => request,
        Some(Err(error)) => return send(&mut stream, Answer::refusal(400, format!("{error:#}")), true),
        None => {
            return send(&mut stream, Answer::refusal(431, "the head of the request is too long, or too slow"), true);
        }
    };
    let has_body = request.method != "HEAD";
    let answer = guard.refuses(&request).unwrap_or_else(|| handle(&request));
    send(&mut stream, answer, has_body)
}

/// Up to the empty line; `None` where that doesn't come soon enough.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    let began = Instant::now();
    while head.len() < HEAD_BYTES_MAX && began.elapsed() < PATIENCE {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..n]);
        if head.windows(4).any(|window| window == b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fn send(stream: &mut TcpStream, answer: Answer, has_body: bool) -> io::Result<()> {
    match answer {
        Answer::Whole { status, content_type, body, headers } => {
            let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let length = body.len();
            let head = format!("{}Content-Length: {length}\r\n{more}\r\n", head(status, content_type));
            stream.write_all(head.as_bytes())?;
            if has_body {
                stream.write_all(&body)?;
            }
            stream.flush()
        }
        Answer::Events(run) => {
            stream.write_all(format!("{}\r\n", head(200, "text/event-stream")).as_bytes())?;
            if has_body { run(stream) } else { Ok(()) }
        }
    }
}

/// The status and what every answer says: that it isn't kept, belongs in no frame, and loads nothing from elsewhere.
fn head(status: u16, content_type: &str) -> String {
    let reason = match status {
        200 => "OK",
        303 => "See Other",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    };
    format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: \
         nosniff\r\n\
         Referrer-Policy: no-referrer\r\n"
    )
}

/// Listens on `address`, such as `127.0.0.1:8080`.
///
/// # Errors
/// When it is no address of this machine's, or taken.
pub fn listen(address: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .with_context(|| format!("{address}: cannot listen there; write ADDRESS:PORT, as in 127.0.0.1:8080"))
}

/// Sixteen bytes of the system's randomness, in hexadecimal.
///
/// # Errors
/// When the system has none.
pub fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    let mut source = std::fs::File::open("/dev/urandom").context("no source of random numbers")?;
    source.read_exact(&mut bytes).context("no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request::parse(format!("{text}\r\n\r\n").as_bytes()).unwrap()
    }

    fn status(guard: &Guard, text: &str) -> u16 {
        match guard.refuses(&request(text)) {
            None => 200,
            Some(Answer::Whole { status, .. }) => status,
            Some(Answer::Events(_)) => unreachable!("a refusal is said at once"),
        }
    }

    #[test]
    fn a_query_is_decoded() {
        let request = request("GET /what-if?tenant=a%2Fb+c&bytes=12&x HTTP/1.1\r\nHost: h");
        assert_eq!(
            (request.path.as_str(), request.query("tenant"), request.query("bytes")),
            ("/what-if", Some("a/b c"), Some("12"))
        );
        assert_eq!((request.query("x"), request.query("y"), decoded("%zz%4")), (Some(""), None, "%zz%4".to_owned()));
    }

    #[test]
    fn other_hosts_origins_and_methods_are_refused() {
        let guard = Guard::own_names(vec!["cache.example".to_owned()]);
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:8080", 200),
            ("GET / HTTP/1.1\r\nHost: [::1]:8080", 200),
            ("GET / HTTP/1.1\r\nHost: localhost", 200),
            ("GET / HTTP/1.1\r\nHost: Cache.example:80\r\nOrigin: http://Cache.example:80", 200),
            ("HEAD / HTTP/1.1\r\nHost: localhost", 200),
            ("GET / HTTP/1.1\r\nHost: evil.example", 403),
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example", 403),
            ("GET / HTTP/1.1", 403),
            ("GET / HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:2", 403),
            ("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: null", 403),
            ("POST / HTTP/1.1\r\nHost: localhost", 405),
        ] {
            assert_eq!(status(&guard, head), expected, "{head}");
        }
        assert_eq!(status(&Guard::open(), "GET / HTTP/1.1\r\nHost: any.example"), 200);
    }

    #[test]
    fn a_password_or_token_is_asked_for() {
        let of = |guard: Guard, more: &str| status(&guard, &format!("GET {more}"));
        let password = || Guard::own_names(Vec::new()).with_password("open sesame".to_owned());
        let with = |header: &str| format!("/ HTTP/1.1\r\nHost: localhost\r\n{header}");
        assert_eq!(of(password(), &with("Accept: x")), 401);
        assert_eq!(of(password(), &with("Authorization: Basic YW55Om9wZW4gc2VzYW1l")), 200);
        assert_eq!(of(password(), &with("Authorization: Basic YW55Om9wZW4gc2VzYW0=")), 401);
        assert_eq!(of(password(), &with("Authorization: Basic !")), 401);
        let token = || Guard::own_names(Vec::new()).with_token("0123".to_owned());
        assert_eq!(of(token(), &with("Cookie: a=b; tenure-token=0123")), 200);
        assert_eq!(of(token(), &with("Cookie: tenure-token=012")), 401);
        assert_eq!(of(token(), &with("Authorization: Bearer 0123")), 200);
        assert_eq!(of(token(), "/?token=0123 HTTP/1.1\r\nHost: localhost"), 303);
        assert_eq!(of(token(), "/?token=0123 HTTP/1.1\r\nHost: evil.example"), 403);
    }
}
