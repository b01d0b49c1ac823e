//! The cache-aside client: reads the cache, on a miss fetches from the backend and writes the value back.
//!
//! Source: pRedis (SoCC'19) sec. 6.1.1, whose response time is the wall-clock time of a request including the
//! database's part. A write-back the server refuses (out of memory) is counted and not an error: a cache-aside client
//! goes on without the cache.

use anyhow::{bail, ensure};

use super::cache::Cache;
use super::connection::Reply;
use crate::backend::Backend;
use crate::workload::{Operation, Request, Stream};

/// One client: its way to the cache, or one for each tenant's database, and a connection to each backend.
pub struct CacheAside<'a> {
    stream: &'a Stream,
    caches: Vec<Cache>,
    backends: Vec<Box<dyn Backend>>,
    value: Vec<u8>,
    missed: Vec<u32>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Keys that were asked for.
    pub n_read: u32,
    /// Of these, keys that the cache did not have.
    pub n_missed: u32,
    /// Writes that the server refused.
    pub n_refused: u32,
}

impl<'a> CacheAside<'a> {
    /// A client of `stream` over these: one way to the cache for all tenants, or one for each.
    pub fn new(stream: &'a Stream, caches: Vec<Cache>, backends: Vec<Box<dyn Backend>>) -> Self {
        CacheAside { stream, caches, backends, value: Vec::new(), missed: Vec::new() }
    }

    /// Goes on with other connections to the cache: after a restart.
    pub fn reconnect(&mut self, caches: Vec<Cache>) {
        self.caches = caches;
    }

    /// The connection for `key`.
    fn cache(&mut self, key: u32) -> &mut Cache {
        let own = if self.caches.len() > 1 { self.stream.keys.tenant(key) } else { 0 };
        &mut self.caches[own]
    }

    /// Does what `request` says, and returns when the client would have its answer.
    ///
    /// # Errors
    /// When the server or a backend fails.
    pub fn perform(&mut self, request: &Request) -> anyhow::Result<Outcome> {
        match request.operation {
            Operation::Read => self.read(request),
            Operation::Scan => self.scan(request),
            Operation::Write => {
                Ok(Outcome { n_refused: self.write(request.key, request.value_bytes)?, ..Outcome::default() })
            }
            Operation::ReadModifyWrite => {
                let read = self.read(request)?;
                let n_refused = read.n_refused + self.write(request.key, request.value_bytes)?;
                Ok(Outcome { n_refused, ..read })
            }
            Operation::Delete => {
                let stream = self.stream;
                let reply = self.cache(request.key).call(&[b"DEL", stream.keys.name(request.key)])?;
                ensure!(matches!(reply, Reply::Integer(_)), "DEL was answered by {reply:?}");
                Ok(Outcome::default())
            }
        }
    }

    fn read(&mut self, request: &Request) -> anyhow::Result<Outcome> {
        let hit = Outcome { n_read: 1, ..Outcome::default() };
        let stream = self.stream;
        match self.cache(request.key).call(&[b"GET", stream.keys.name(request.key)])? {
            Reply::Bulk(_) => Ok(hit),
            Reply::Nil => {
                let n_refused = self.fetch_and_store(request.key, request.value_bytes)?;
                Ok(Outcome { n_missed: 1, n_refused, ..hit })
            }
            other => bail!("GET was answered by {other:?}"),
        }
    }

    fn scan(&mut self, request: &Request) -> anyhow::Result<Outcome> {
        let stream = self.stream;
        let keys = stream.keys_of(request);
        let mut words: Vec<&[u8]> = vec![b"MGET"];
        words.extend(keys.iter().map(|&key| stream.keys.name(key)));
        let reply = self.cache(request.key).call(&words)?;
        ensure!(reply == Reply::Array(keys.len()), "MGET of {} keys was answered by {reply:?}", keys.len());
        let mut missed = std::mem::take(&mut self.missed);
        missed.clear();
        for &key in keys {
            if self.cache(request.key).reply()? == Reply::Nil {
                missed.push(key);
            }
        }
        let mut outcome = Outcome { n_read: keys.len() as u32, n_missed: missed.len() as u32, n_refused: 0 };
        for &key in &missed {
            outcome.n_refused += self.fetch_and_store(key, stream.keys.value_bytes(key))?;
        }
        self.missed = missed;
        Ok(outcome)
    }

    /// Returns how many writes were refused: 0 or 1.
    fn fetch_and_store(&mut self, key: u32, value_bytes: u32) -> anyhow::Result<u32> {
        let keys = &self.stream.keys;
        self.backends[keys.backend(key)].fetch(keys.name(key), value_bytes as usize, &mut self.value)?;
        self.store(key)
    }

    fn write(&mut self, key: u32, value_bytes: u32) -> anyhow::Result<u32> {
        self.value.resize(value_bytes as usize, b'w');
        self.store(key)
    }

    fn store(&mut self, key: u32) -> anyhow::Result<u32> {
        let (stream, value) = (self.stream, std::mem::take(&mut self.value));
        let reply = self.cache(key).call(&[b"SET", stream.keys.name(key), &value])?;
        self.value = value;
        match reply {
            Reply::Simple => Ok(0),
            Reply::Error(text) if text.starts_with("OOM") => Ok(1),
            other => bail!("SET was answered by {other:?}"),
        }
    }
}
