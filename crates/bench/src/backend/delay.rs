//! A backend that is nothing but its delay: for figures that no database's noise is in.

use std::time::{Duration, Instant};

use super::Backend;
use crate::placement::wait_until;

pub(super) struct Delay(Duration);

impl Delay {
    /// Takes `delay_us` µs per fetch, at least 0.
    pub(super) fn boxed(delay_us: f64) -> Box<dyn Backend> {
        Box::new(Delay(Duration::from_nanos((delay_us * 1000.0) as u64)))
    }
}

impl Backend for Delay {
    fn fetch(&mut self, _key: &[u8], value_bytes: usize, value: &mut Vec<u8>) -> anyhow::Result<()> {
        wait_until(Instant::now() + self.0);
        value.resize(value_bytes, b'v');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_takes_its_time_and_gives_the_size() {
        let mut value = Vec::new();
        let start = Instant::now();
        Delay::boxed(300.0).fetch(b"k", 1000, &mut value).unwrap();
        assert!(start.elapsed() >= Duration::from_micros(300));
        assert_eq!(value.len(), 1000);
    }
}
