//! A TCP proxy that holds each byte for a fixed time in each direction: a network of that delay, without a kernel's
//! help.
//!
//! One thread serves all connections: it waits for bytes and for the next ones that are due, whichever comes first.
//! What is read at one moment is written together one delay later, so bandwidth is not limited and order is kept. The
//! end of a stream travels with the same delay.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::placement::wake_exactly;

/// How often the thread looks whether it shall end, when nothing else happens.
const STOP_LOOK: Duration = Duration::from_millis(20);

/// At most so many bytes are read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// A running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct DelayProxy {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DelayProxy {
    /// Leads connections to `target`, holding each byte for `one_way` in each direction.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start(target: SocketAddr, one_way: Duration) -> anyhow::Result<DelayProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port for the delaying proxy")?;
        listener.set_nonblocking(true)?;
        let (address, stop) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let mut exchange = Exchange { listener, target, one_way, links: Vec::new(), buffer: vec![0; CHUNK_BYTES] };
        let stop_seen = Arc::clone(&stop);
        let run = move || {
            wake_exactly();
            while !stop_seen.load(Ordering::Relaxed) {
                exchange.turn();
            }
        };
        let thread = thread::Builder::new().name("delay-proxy".into()).spawn(run)?;
        Ok(DelayProxy { address, stop, thread: Some(thread) })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

/// All that the proxy's thread owns.
struct Exchange {
    listener: TcpListener,
    target: SocketAddr,
    one_way: Duration,
    links: Vec<Link>,
    /// What a read goes to first.
    buffer: Vec<u8>,
}

/// One client's connection and the one made for it; index 0 is the client's end, 1 the target's.
struct Link {
    ends: [TcpStream; 2],
    /// `pipes[i]` holds what was read from `ends[i]` until it is written to the other end.
    pipes: [Pipe; 2],
}

#[derive(Default)]
struct Pipe {
    chunks: VecDeque<Chunk>,
    /// The source has said that nothing more comes.
    source_ended: bool,
    /// The sink has been told so, or does not take any more.
    sink_ended: bool,
    /// The sink's buffer is full.
    is_blocked: bool,
}

struct Chunk {
    due: Instant,
    /// Empty: the end of the stream.
    bytes: Vec<u8>,
    n_written: usize,
}

impl Exchange {
    /// Waits for the next thing to do, and does all there is.
    fn turn(&mut self) {
        self.wait();
        self.accept();
        let now = Instant::now();
        for link in &mut self.links {
            link.read(now + self.one_way, &mut self.buffer);
            link.write(now);
        }
        self.links.retain(|link| !link.is_over());
    }

    fn wait(&self) {
        let mut watched = vec![PollFd::new(&self.listener, PollFlags::IN)];
        let mut next = Instant::now() + STOP_LOOK;
        for link in &self.links {
            for (source, pipe) in link.pipes.iter().enumerate() {
                if !pipe.source_ended {
                    watched.push(PollFd::new(&link.ends[source], PollFlags::IN));
                }
                if pipe.is_blocked {
                    watched.push(PollFd::new(&link.ends[1 - source], PollFlags::OUT));
                } else if let Some(chunk) = pipe.chunks.front() {
                    next = next.min(chunk.due);
                }
            }
        }
        let left = next.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // Interrupted or not: whatever is there is found by trying.
        let _ = poll(&mut watched, Some(&timeout));
    }

    fn accept(&mut self) {
        while let Ok((client, _)) = self.listener.accept() {
            // A target that refuses is seen by the client as a connection that closes.
            let Ok(server) = TcpStream::connect(self.target) else { continue };
            let ends = [client, server];
            if ends.iter().all(|end| end.set_nodelay(true).and(end.set_nonblocking(true)).is_ok()) {
                self.links.push(Link { ends, pipes: Default::default() });
            }
        }
    }
}

impl Link {
    fn read(&mut self, due: Instant, buffer: &mut [u8]) {
        for (end, pipe) in self.ends.iter_mut().zip(&mut self.pipes) {
            while !pipe.source_ended {
                let n = match end.read(buffer) {
                    Ok(n) => n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    // A broken connection ends like a closed one.
                    Err(_) => 0,
                };
                pipe.source_ended = n == 0;
                pipe.chunks.push_back(Chunk { due, bytes: buffer[..n].to_vec(), n_written: 0 });
            }
        }
    }

    fn write(&mut self, now: Instant) {
        let [client, server] = &mut self.ends;
        for (pipe, sink) in self.pipes.iter_mut().zip([server, client]) {
            pipe.write(sink, now);
        }
    }

    fn is_over(&self) -> bool {
        let both_ended = self.pipes.iter().all(|pipe| pipe.sink_ended);
        both_ended || self.pipes.iter().any(|pipe| pipe.sink_ended && !pipe.source_ended)
    }
}

impl Pipe {
    fn write(&mut self, sink: &mut TcpStream, now: Instant) {
        self.is_blocked = false;
        while let Some(chunk) = self.chunks.front_mut().filter(|chunk| chunk.due <= now) {
            if chunk.bytes.is_empty() {
                // It fails only where the other side is gone.
                let _ = sink.shutdown(Shutdown::Write);
                self.sink_ended = true;
                self.chunks.clear();
                return;
            }
            match sink.write(&chunk.bytes[chunk.n_written..]) {
                Ok(n) => chunk.n_written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.sink_ended = true;
                    self.chunks.clear();
                    return;
                }
            }
            if chunk.n_written == chunk.bytes.len() {
                self.chunks.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_WAY: Duration = Duration::from_millis(3);

    /// A server that sends back what it receives, for `n` connections, each until its client stops sending.
    fn echo(n: usize) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for _ in 0..n {
                let (mut stream, _) = listener.accept().unwrap();
                thread::spawn(move || {
                    let mut writer = stream.try_clone().unwrap();
                    std::io::copy(&mut stream, &mut writer)
                });
            }
        });
        address
    }

    #[test]
    fn a_round_trip_takes_both_delays_and_hardly_more() {
        let proxy = DelayProxy::start(echo(1), ONE_WAY).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let trips = (0..50u8).map(|i| {
            let start = Instant::now();
            stream.write_all(&[i; 100]).unwrap();
            let mut back = [0; 100];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, [i; 100]);
            start.elapsed()
        });
        // The shortest, since a busy machine delays most of them.
        let shortest = trips.min().unwrap();
        assert!(shortest >= 2 * ONE_WAY && shortest < 2 * ONE_WAY + Duration::from_millis(1), "{shortest:?}");
    }

    #[test]
    fn connections_do_not_wait_for_each_other() {
        let proxy = DelayProxy::start(echo(8), ONE_WAY).unwrap();
        let mut streams: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(proxy.address()).unwrap()).collect();
        let rounds = (0..20).map(|_| {
            let start = Instant::now();
            for stream in &mut streams {
                stream.write_all(b"x").unwrap();
            }
            for stream in &mut streams {
                stream.read_exact(&mut [0]).unwrap();
            }
            start.elapsed()
        });
        let shortest = rounds.min().unwrap();
        assert!(shortest < 2 * 2 * ONE_WAY, "eight round trips at once took {shortest:?}");
    }

    #[test]
    fn much_data_arrives_whole_and_then_the_end() {
        let proxy = DelayProxy::start(echo(1), ONE_WAY).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let sent: Vec<u8> = (0..8_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut reader = stream.try_clone().unwrap();
        let received = thread::spawn(move || {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).map(|_| received)
        });
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(received.join().unwrap().unwrap() == sent);
    }

    #[test]
    fn a_target_that_is_gone_closes_the_connection() {
        let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let proxy = DelayProxy::start(unused, ONE_WAY).unwrap();
        let mut stream = TcpStream::connect(proxy.address()).unwrap();
        let end = stream.read(&mut [0]);
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}
