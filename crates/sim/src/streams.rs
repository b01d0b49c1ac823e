//! Streams made for what policies that learn are weak at: bursts of dear keys that never come again, prices and popularity that change,
//! loops, scans; and, for comparison, streams on which nothing is to be won.
//!
//! All are Zipfian over the same keys of 1 KiB, behind two backends, but for what each is named after. They answer what a trace can't: the change
//! is at a known request, so one sees how long a policy takes to get over it. Nobody's measured traffic.

use std::fmt;

use tenure_core::access::Access;
use tenure_core::random::Random;
use tenure_core::units::KeyHash;

use crate::costs::backend_of;
use crate::tiers::workloads::Zipf;

/// Value and key, in bytes.
pub const SIZE_BYTES: u32 = 1024;
/// What misses of the two backends cost, in µs.
const PENALTIES_US: [f32; 2] = [120.0, 1000.0];
/// How many times the dearest price dear bursts have.
const DEARER: f32 = 5.0;
const ALPHA: f64 = 0.9;

/// What a stream is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// For a tenth of the stream, from 45 % on, nine in ten requests are for keys that never come again, at five times the highest price.
    DearBurst,
    /// The same at the others' own prices.
    Burst,
    /// Five such dear bursts, each a fiftieth long.
    DearBursts,
    /// One in five of all requests is for a dear key that never comes again.
    DearAlways,
    /// The keys one after another.
    Loop,
    /// In each quarter other keys are hot.
    Phases,
    /// Halfway the dear backend becomes the cheap one.
    Swap,
    /// What is hot moves on by a key every ten requests.
    Drift,
    /// A scan over half as many keys as there are, new ones each time, at the tenth, third, fifth … tenth of the stream.
    Scans,
    /// One price.
    Equal,
}

impl Stream {
    /// All of them.
    pub const ALL: [Stream; 10] = [
        Stream::DearBurst,
        Stream::Burst,
        Stream::DearBursts,
        Stream::DearAlways,
        Stream::Loop,
        Stream::Phases,
        Stream::Swap,
        Stream::Drift,
        Stream::Scans,
        Stream::Equal,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Stream::DearBurst => "dear-burst",
            Stream::Burst => "burst",
            Stream::DearBursts => "dear-bursts",
            Stream::DearAlways => "dear-always",
            Stream::Loop => "loop",
            Stream::Phases => "phases",
            Stream::Swap => "swap",
            Stream::Drift => "drift",
            Stream::Scans => "scans",
            Stream::Equal => "equal",
        }
    }

    /// Where it changes, in percent of its length.
    pub fn changes_percent(self) -> &'static [usize] {
        match self {
            Stream::DearBurst | Stream::Burst => &[55],
            Stream::Phases => &[25, 50, 75],
            Stream::Swap => &[50],
            _ => &[],
        }
    }

    /// Its `n` reads, over `keys` keys and those that never come again.
    pub fn accesses(self, keys: u64, n: u64, seed: u64) -> Vec<Access> {
        let (zipf, mut random) = (Zipf::new(keys, ALPHA), Random::new(seed));
        (0..n)
            .map(|i| {
                let (number, penalty_us) = self.request(i, n, keys, &zipf, &mut random);
                let key = KeyHash::of_number(number);
                let swapped = usize::from(self == Stream::Swap && i >= n / 2);
                let own_us = match self {
                    Stream::Equal => PENALTIES_US[1],
                    _ => PENALTIES_US[backend_of(key, 2) ^ swapped],
                };
                Access { penalty_us: penalty_us.unwrap_or(own_us), time_us: i, ..Access::read(key, SIZE_BYTES) }
            })
            .collect()
    }

    /// The key of request `i` of `n`, and its price where that isn't its backend's.
    fn request(self, i: u64, n: u64, keys: u64, zipf: &Zipf, random: &mut Random) -> (u64, Option<f32>) {
        let (once, dear_us) = (keys + i, Some(DEARER * PENALTIES_US[1]));
        let percent = i * 100 / n;
        match self {
            Stream::DearBurst if (45..55).contains(&percent) && random.below(10) > 0 => (once, dear_us),
            Stream::Burst if (45..55).contains(&percent) && random.below(10) > 0 => (once, None),
            Stream::DearBursts if percent % 20 >= 18 && random.below(10) > 0 => (once, dear_us),
            Stream::DearAlways if random.below(5) == 0 => (once, dear_us),
            Stream::Scans if i * 10 / n % 2 == 1 && i % (n / 10) < keys / 2 => (once, None),
            Stream::Loop => (i % keys, None),
            Stream::Phases => ((zipf.next(random) + i * 4 / n * (keys / 4)) % keys, None),
            Stream::Drift => ((zipf.next(random) + i / 10) % keys, None),
            _ => (zipf.next(random), None),
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
