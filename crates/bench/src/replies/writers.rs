//! Clients that only write: many connections on one thread, each with one batch under way at any time.
//!
//! A batch is so many `SET`s of new keys, and where wanted a `WAIT` behind them. The next goes out when the last
//! reply of the one before has come, so the server sees as many clients at once as there are connections. Client time
//! is about 1 µs per write.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use crate::client::connection::write_command;
use crate::statistics::latency_histogram;

/// What the clients send.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// `SET`s in a batch.
    pub depth: usize,
    /// Whether a `WAIT 1 0` follows them.
    pub waits: bool,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys of one connection, after which it begins anew; `None`: each is written once.
    pub n_keys: Option<u64>,
}

/// One connection.
#[derive(Debug)]
struct Writer {
    stream: TcpStream,
    output: Vec<u8>,
    written: usize,
    wants_to_write: bool,
    /// Lines of the batch under way that have not come.
    n_due: usize,
    /// The next byte begins a line.
    at_line_start: bool,
    is_error: bool,
    sent_at: Instant,
    n_sent: u64,
    n_acknowledged: u64,
    is_open: bool,
}

/// All connections. See the file's opening.
pub struct Writers {
    writers: Vec<Writer>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    load: Load,
    value: Vec<u8>,
    /// Time from a batch's first byte to its last reply.
    pub latencies: Histogram<u64>,
    /// Writes that were answered by an error.
    pub n_refused: u64,
    is_sending: bool,
}

impl Writers {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens on `port`.
    pub fn connect(port: u16, n_connections: usize, load: Load) -> anyhow::Result<Writers> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut writers = Vec::with_capacity(n_connections);
        for index in 0..n_connections {
            let stream =
                TcpStream::connect((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("no server on port {port}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            writers.push(Writer {
                stream,
                output: Vec::new(),
                written: 0,
                wants_to_write: false,
                n_due: 0,
                at_line_start: true,
                is_error: false,
                sent_at: Instant::now(),
                n_sent: 0,
                n_acknowledged: 0,
                is_open: true,
            });
        }
        let value = vec![b'v'; load.value_bytes];
        let events = Vec::with_capacity(n_connections);
        let latencies = latency_histogram();
        Ok(Writers { writers, epoll, events, load, value, latencies, n_refused: 0, is_sending: true })
    }

    /// Writes for `duration`, or until all connections are closed.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(&mut self, duration: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + duration;
        self.is_sending = true;
        for index in 0..self.writers.len() {
            if self.writers[index].n_due == 0 {
                self.send_batch(index);
            }
        }
        while Instant::now() < end && self.any_open() {
            self.turn(end)?;
        }
        Ok(())
    }

    /// Sends no more, and takes the replies that are still to come, until all have come, all connections are closed
    /// or `duration` is over.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn finish(&mut self, duration: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + duration;
        self.is_sending = false;
        while Instant::now() < end && self.writers.iter().any(|writer| writer.is_open && writer.n_due > 0) {
            self.turn(end)?;
        }
        Ok(())
    }

    fn any_open(&self) -> bool {
        self.writers.iter().any(|writer| writer.is_open)
    }

    fn turn(&mut self, end: Instant) -> anyhow::Result<()> {
        let left = end.saturating_duration_since(Instant::now()).min(Duration::from_millis(10));
        let timeout = Timespec::try_from(left).context("a wait out of range")?;
        let mut events = std::mem::take(&mut self.events);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("the replies can't be waited for"),
        }
        for event in events.drain(..) {
            // The kernel's struct is packed: its fields are copied out.
            let (flags, data) = (event.flags, event.data);
            let index = data.u64() as usize;
            if flags.contains(epoll::EventFlags::OUT) {
                self.write_on(index);
            }
            self.receive(index);
        }
        self.events = events;
        Ok(())
    }

    fn send_batch(&mut self, index: usize) {
        let Load { depth, waits, n_keys, .. } = self.load;
        let writer = &mut self.writers[index];
        writer.output.clear();
        writer.written = 0;
        for _ in 0..depth {
            let number = n_keys.map_or(writer.n_sent, |n| writer.n_sent % n);
            write_command(&mut writer.output, &[b"SET", &key(index, number), &self.value]);
            writer.n_sent += 1;
        }
        writer.n_due = depth;
        if waits {
            write_command(&mut writer.output, &[b"WAIT", b"1", b"0"]);
            writer.n_due += 1;
        }
        writer.sent_at = Instant::now();
        self.write_on(index);
    }

    /// Writes what the socket takes of the batch.
    fn write_on(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        while writer.is_open && writer.written < writer.output.len() {
            match writer.stream.write(&writer.output[writer.written..]) {
                Ok(n) => writer.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What was acknowledged before can still be read.
                Err(_) => break,
            }
        }
        let is_left = writer.written < writer.output.len();
        let flags = if is_left { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        let is_asked = std::mem::replace(&mut writer.wants_to_write, is_left);
        if writer.is_open && is_asked != is_left {
            // A socket that can't be watched any more is found closed by the next read.
            let _ = epoll::modify(&self.epoll, &writer.stream, epoll::EventData::new_u64(index as u64), flags);
        }
    }

    fn receive(&mut self, index: usize) {
        let mut input = [0; 16 * 1024];
        loop {
            let writer = &mut self.writers[index];
            let n = match writer.stream.read(&mut input) {
                Ok(0) => return self.close(index),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.close(index),
            };
            self.take_replies(index, &input[..n]);
            if n < input.len() {
                return;
            }
        }
    }

    fn take_replies(&mut self, index: usize, bytes: &[u8]) {
        let writer = &mut self.writers[index];
        for &byte in bytes {
            if std::mem::take(&mut writer.at_line_start) {
                writer.is_error = byte == b'-';
            }
            if byte == b'\n' {
                writer.at_line_start = true;
                writer.n_due -= 1;
                // The last line of a batch with WAIT answers that; its writes count from then on.
                self.n_refused += u64::from(writer.is_error);
                if !self.load.waits {
                    writer.n_acknowledged += u64::from(!writer.is_error);
                }
            }
        }
        if writer.n_due == 0 {
            if self.load.waits && !writer.is_error {
                writer.n_acknowledged = writer.n_sent;
            }
            let latency_ns = writer.sent_at.elapsed().as_nanos() as u64;
            // Longer than the histogram's range counts as its end.
            self.latencies.saturating_record(latency_ns);
            if self.is_sending {
                self.send_batch(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        writer.is_open = false;
        // It is not waited for any more; where that fails it was not before.
        let _ = epoll::delete(&self.epoll, &writer.stream);
    }

    /// Writes acknowledged so far, by connection: the first so many of its keys, where none was refused.
    pub fn acknowledged(&self) -> Vec<u64> {
        self.writers.iter().map(|writer| writer.n_acknowledged).collect()
    }

    /// The same of all connections together.
    pub fn n_acknowledged(&self) -> u64 {
        self.writers.iter().map(|writer| writer.n_acknowledged).sum()
    }
}

/// The name of a connection's key.
pub fn key(connection: usize, number: u64) -> Vec<u8> {
    format!("{connection}:{number}").into_bytes()
}
