//! A backend that slows down in mid-run: from a moment on, each of its fetches takes so much longer.
//!
//! Source: pRedis (SoCC'19) sec. 6.3.1, where a stress test on the remote database, from 40 % of the run on, takes
//! its latency from 1000 to about 2000 µs. Here the client adds the difference to whatever the backend takes, so it
//! is exact, and the same for all kinds of backends. Requests that are under way at that moment may be slow already:
//! at most one per connection.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Backend, parse_delays};
use crate::moment::Moment;
use crate::placement::wait_until;

/// What `--slow-down` says, as in `1:1000@40%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowDown {
    /// Which backend, from 0.
    pub backend: usize,
    /// By how many µs each fetch takes longer.
    pub extra_us: f64,
    /// Since when.
    pub since: Moment,
}

impl FromStr for SlowDown {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parse = || -> Option<anyhow::Result<SlowDown>> {
            let (backend, rest) = text.split_once(':')?;
            let (extra_us, since) = rest.split_once('@')?;
            let (backend, &[extra_us]) = (backend.trim().parse().ok()?, &parse_delays(extra_us).ok()?[..]) else {
                return None;
            };
            Some(since.parse().map(|since| SlowDown { backend, extra_us, since }))
        };
        parse().with_context(|| format!("'{text}' is not BACKEND:US@SHARE, such as 1:1000@40%"))?
    }
}

impl fmt::Display for SlowDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}@{}", self.backend, self.extra_us, self.since)
    }
}

/// A backend that takes longer while a switch, which all clients share, is on.
pub(super) struct Slowed {
    backend: Box<dyn Backend>,
    extra: Duration,
    is_slow: Arc<AtomicBool>,
}

impl Slowed {
    /// `backend`, which takes `extra_us` µs longer while `is_slow`.
    pub(super) fn boxed(backend: Box<dyn Backend>, extra_us: f64, is_slow: &Arc<AtomicBool>) -> Box<dyn Backend> {
        let extra = Duration::from_nanos((extra_us * 1000.0) as u64);
        Box::new(Slowed { backend, extra, is_slow: Arc::clone(is_slow) })
    }
}

impl Backend for Slowed {
    fn fetch(&mut self, key: &[u8], value_bytes: usize, value: &mut Vec<u8>) -> anyhow::Result<()> {
        self.backend.fetch(key, value_bytes, value)?;
        if self.is_slow.load(Ordering::Relaxed) {
            wait_until(Instant::now() + self.extra);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BackendSpec, Backends};
    use super::*;

    #[test]
    fn slow_downs_are_read_and_bad_ones_refused() {
        let slow_down: SlowDown = "1:1000@40%".parse().unwrap();
        assert_eq!((slow_down.backend, slow_down.extra_us), (1, 1000.0));
        assert_eq!(slow_down.to_string(), "1:1000@40%");
        for text in ["", "1:1000", "1000@40%", "x:1000@40%", "1:-5@40%", "1:1,2@40%"] {
            assert!(text.parse::<SlowDown>().unwrap_err().to_string().contains("BACKEND:US@SHARE"), "{text}");
        }
        assert!("1:1000@100%".parse::<SlowDown>().unwrap_err().to_string().contains("below 100%"));
    }

    #[test]
    fn only_the_named_backend_is_slow_and_only_while_switched_on() {
        let fetch_us = |backend: &mut Box<dyn Backend>| {
            let (start, mut value) = (Instant::now(), Vec::new());
            backend.fetch(b"k", 10, &mut value).unwrap();
            assert_eq!(value.len(), 10);
            start.elapsed().as_micros()
        };
        for spec in ["delay:0,0", "sqlite:0,0"] {
            let (spec, slow_down): (BackendSpec, SlowDown) = (spec.parse().unwrap(), "1:50000@0%".parse().unwrap());
            let backends = Backends::start(&spec, 10, Some(slow_down)).unwrap();
            let mut connections = backends.connect().unwrap();
            // Of several, since a busy machine delays some.
            let mut shortest_us = |index: usize| (0..3).map(|_| fetch_us(&mut connections[index])).min().unwrap();
            assert!(shortest_us(1) < 50_000);
            backends.set_slow(true);
            assert!(shortest_us(0) < 50_000 && shortest_us(1) >= 50_000);
            backends.set_slow(false);
            assert!(shortest_us(1) < 50_000);
        }
        let (spec, slow_down): (BackendSpec, SlowDown) = ("delay:1".parse().unwrap(), "1:5@0%".parse().unwrap());
        let error = Backends::start(&spec, 10, Some(slow_down)).err().unwrap().to_string();
        assert!(error.contains("backend 1") && error.contains("0 to 0"), "{error}");
    }
}
