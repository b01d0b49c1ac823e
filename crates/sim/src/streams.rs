//! Streams made for what policies that learn are weak at. There are bursts of expensive keys that never come again,
//! prices and popularity that change, loops and scans. There are expensive keys that die after a few accesses beside
//! large cheap ones that live. And, for comparison, there are streams on which nothing can be won.
//!
//! All are Zipfian over the same keys of 1 KiB, behind two backends, but for what each is named after; those of dead
//! and living keys have tenants of one price each. They answer what a trace can't: the change is at a known request,
//! so one sees how long a policy takes to get over it. Nobody's measured traffic.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tenure_core::access::{Access, Op};
use tenure_core::random::Random;
use tenure_core::units::KeyHash;

use crate::costs::backend_of;
use crate::tiers::workloads::Zipf;

/// Value and key, in bytes.
pub const SIZE_BYTES: u32 = 1024;
/// Keys, and bytes of their values, of what is written for servers: such a cache is large beside what a server and
/// Tenure take.
pub const SERVED_KEYS: u64 = 20_000;
/// See [`SERVED_KEYS`].
pub const SERVED_BYTES: u32 = 10_000;
/// What misses of the two backends cost, in µs.
const PENALTIES_US: [f32; 2] = [120.0, 1000.0];
/// How many times the most expensive price expensive bursts have.
const DEARER: f32 = 5.0;
const ALPHA: f64 = 0.9;
/// What the living and the dying cost in the streams of both, in µs.
const LIVING_US: f32 = 200.0;
const DYING_US: f32 = 10.0 * LIVING_US;
/// Values of the living that are large, in bytes.
const LARGE_BYTES: u32 = 11 * SIZE_BYTES;
/// Keys that are accessed twice are so after this many others of theirs.
const TWICE_AFTER: u64 = 101;
/// Bursts of dying keys are each as long, come after nine times as many accesses, and have each key three times.
const DYING_BURST: u64 = 20_000;
const DYING_KEYS: u64 = 200;
/// Requests of a session, one with another.
const SESSION_REQUESTS: u64 = 12;
/// A post of the feed is new after so many requests, and how fast interest in posts falls with their age.
const POST_REQUESTS: u64 = 10;
const INTEREST: f64 = 0.6;
/// Names that each key has in turn.
const NAMES: u64 = 6;

/// What a stream is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// For a tenth of the stream, from 45 % on, nine in ten requests are for keys that never come again, at five
    /// times the highest price.
    DearBurst,
    /// The same at the others' own prices.
    Burst,
    /// Five such expensive bursts, each a fiftieth long.
    DearBursts,
    /// One in five of all requests is for an expensive key that never comes again.
    DearAlways,
    /// The keys one after another.
    Loop,
    /// In each quarter other keys are hot.
    Phases,
    /// Halfway the expensive backend becomes the cheap one.
    Swap,
    /// What is hot moves on by a key every ten requests.
    Drift,
    /// A scan over half as many keys as there are, new ones each time, at the tenth, third, fifth … tenth of the
    /// stream.
    Scans,
    /// A quarter of the requests are for keys that are accessed twice within a short while and never again, at ten
    /// times the price of keys that live and are large.
    TwiceDead,
    /// In a tenth of the time, by bursts, most requests are for keys that are accessed three times and never again,
    /// at ten times the price: as long as you like.
    DyingBursts,
    /// A quarter of the requests are for small keys at ten times the price that never come again, half for large
    /// cheap ones that live.
    LargeLive,
    /// An eighth of the keys are sessions that are asked for evenly. Each ends after some time and another begins.
    Sessions,
    /// What is asked for is what is new: the chance falls with a power of a post's age.
    Feed,
    /// All keys are renamed five times, as where a name has a version or an hour in it.
    Renamed,
    /// Each key is written once, then the half that was written last is read evenly.
    Load,
    /// Each key is written and read once, when half as many others were written as there are keys.
    Handed,
    /// Three in four requests write keys again and again that nobody reads.
    Counted,
    /// One price.
    Equal,
}

impl Stream {
    /// All of them.
    pub const ALL: [Stream; 19] = [
        Stream::DearBurst,
        Stream::Burst,
        Stream::DearBursts,
        Stream::DearAlways,
        Stream::Loop,
        Stream::Phases,
        Stream::Swap,
        Stream::Drift,
        Stream::Scans,
        Stream::TwiceDead,
        Stream::DyingBursts,
        Stream::LargeLive,
        Stream::Sessions,
        Stream::Feed,
        Stream::Renamed,
        Stream::Load,
        Stream::Handed,
        Stream::Counted,
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
            Stream::TwiceDead => "twice-dead",
            Stream::DyingBursts => "dying-bursts",
            Stream::LargeLive => "large-live",
            Stream::Sessions => "sessions",
            Stream::Feed => "feed",
            Stream::Renamed => "renamed",
            Stream::Load => "load",
            Stream::Handed => "handed",
            Stream::Counted => "counted",
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

    /// Its `n` accesses, over `keys` keys and those that never come again: reads, where nothing else is said.
    pub fn accesses(self, keys: u64, n: u64, seed: u64) -> Vec<Access> {
        let (zipf, mut random) = (Zipf::new(keys, ALPHA), Random::new(seed));
        (0..n)
            .map(|i| {
                let dying = self.dying(i, keys, &mut random);
                if let Some((number, penalty_us, size_bytes)) = dying {
                    return Access { penalty_us, time_us: i, ..Access::read(KeyHash::of_number(number), size_bytes) };
                }
                let (number, penalty_us) = self.request(i, n, keys, &zipf, &mut random);
                let key = KeyHash::of_number(number);
                let swapped = usize::from(self == Stream::Swap && i >= n / 2);
                let own_us = match self {
                    Stream::Equal => PENALTIES_US[1],
                    _ => PENALTIES_US[backend_of(key, 2) ^ swapped],
                };
                let op = if self.writes(i, keys) { Op::Write } else { Op::Read };
                let penalty_us = penalty_us.unwrap_or(own_us);
                Access { penalty_us, time_us: i, op, ..Access::read(key, SIZE_BYTES) }
            })
            .collect()
    }

    /// Writes what was made of this stream into `folder`, as a trace of that name in Tenure's format, of one tenant and
    /// values of [`SERVED_BYTES`]: `tenure bench` replays it.
    ///
    /// # Errors
    /// Which file can't be written, and why.
    pub fn write_trace(self, accesses: impl IntoIterator<Item = Access>, folder: &Path) -> io::Result<()> {
        let path = folder.join(format!("{self}.csv"));
        let write = || {
            let mut out = BufWriter::new(File::create(&path)?);
            writeln!(out, "time_s,key,op,size,tenant")?;
            for Access { time_us, key, op, .. } in accesses {
                let op = match op {
                    Op::Read => "get",
                    Op::Write => "set",
                    Op::Delete => "delete",
                };
                writeln!(out, "{:.6},{:016x},{op},{SERVED_BYTES},all", time_us as f64 / 1e6, key.0)?;
            }
            out.flush()
        };
        write().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    /// Of the streams of living and dying keys: the key of request `i`, its price and its size. A tenant in four, a
    /// quarter of the keys each.
    fn dying(self, i: u64, keys: u64, random: &mut Random) -> Option<(u64, f32, u32)> {
        if !matches!(self, Stream::TwiceDead | Stream::DyingBursts | Stream::LargeLive) {
            return None;
        }
        let (tenant, own) = (i % 4, i / 4);
        // A flatter draw than the other streams': what is large has to be missed to be missed.
        let of_tenant = |tenant: u64, random: &mut Random| {
            let drawn = (random.below(1 << 20) as f64 / f64::from(1 << 20)).powi(2);
            tenant * keys + (drawn * (keys / 4) as f64) as u64
        };
        let living = |tenant: u64, random: &mut Random| match tenant {
            0 => (of_tenant(0, random), LIVING_US, LARGE_BYTES),
            1 => (of_tenant(1, random), LIVING_US, SIZE_BYTES),
            _ => (of_tenant(2, random), DYING_US, SIZE_BYTES),
        };
        let dead = 4 * keys;
        Some(match self {
            Stream::TwiceDead if tenant == 3 => {
                let number = if own % 2 == 0 { own } else { own.saturating_sub(TWICE_AFTER) };
                (dead + number, DYING_US, SIZE_BYTES)
            }
            Stream::DyingBursts if i % (10 * DYING_BURST) >= 9 * DYING_BURST && tenant > 0 => {
                let number = i / (3 * DYING_KEYS) * DYING_KEYS + i % DYING_KEYS;
                (dead + number, DYING_US, SIZE_BYTES)
            }
            Stream::LargeLive if tenant == 3 => (dead + i, DYING_US, SIZE_BYTES),
            Stream::LargeLive if tenant == 1 => living(0, random),
            _ => living(tenant.min(2), random),
        })
    }

    /// Whether request `i` is a write.
    fn writes(self, i: u64, keys: u64) -> bool {
        match self {
            Stream::Load => i < keys,
            Stream::Handed => i.is_multiple_of(2),
            Stream::Counted => !i.is_multiple_of(4),
            _ => false,
        }
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
            Stream::Sessions => {
                let sessions = keys / 8;
                let session = random.below(sessions);
                // One ends after the other, all of them once within their requests.
                let generation = (i + session * SESSION_REQUESTS) / (sessions * SESSION_REQUESTS);
                (generation * sessions + session, None)
            }
            Stream::Feed => {
                let drawn = (1 + random.below(1 << 20)) as f64 / f64::from(1 << 20);
                ((keys + i / POST_REQUESTS).saturating_sub(drawn.powf(-1.0 / INTEREST) as u64), None)
            }
            Stream::Renamed => (zipf.next(random) + i * NAMES / n * keys, None),
            Stream::Load if i < keys => (i, None),
            Stream::Load => (keys / 2 + random.below(keys / 2), None),
            Stream::Handed if self.writes(i, keys) => (i / 2, None),
            Stream::Handed => ((i / 2).saturating_sub(keys / 2), None),
            Stream::Counted if self.writes(i, keys) => (keys + zipf.next(random), None),
            _ => (zipf.next(random), None),
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
