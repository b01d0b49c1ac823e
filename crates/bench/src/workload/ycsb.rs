//! YCSB's core workloads A to F, by their published definitions.
//!
//! Source: the six workload files and CoreWorkload (parameters in [`Mix`] below). A record is cached as one string of
//! 1000 bytes (ten fields of 100), so an update writes the record, not a field: a cache-aside client that knows the
//! new value writes it to the cache. What the database then pays is not the cache's doing, so it isn't in an update's
//! latency; the reads that miss pay for the backend. Where keys are inserted, a draw above the newest key is
//! repeated, as YCSB does. A scan takes records in the order of their names.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

use super::keys::KeyTable;
use super::zipfian::{Latest, Random, ScrambledZipfian, fnv64};
use super::{Operation, Request, Size, Stream};

/// Ten fields of 100 bytes.
const RECORD_BYTES: u32 = 1000;

/// Scans ask for 1 to 100 records, all lengths equally likely.
const SCAN_LENGTH_MAX: u64 = 100;

/// One of the six workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ycsb {
    /// Update heavy.
    A,
    /// Read mostly.
    B,
    /// Read only.
    C,
    /// Read latest.
    D,
    /// Short ranges.
    E,
    /// Read-modify-write.
    F,
}

const LETTERS: [(Ycsb, &str); 6] =
    [(Ycsb::A, "a"), (Ycsb::B, "b"), (Ycsb::C, "c"), (Ycsb::D, "d"), (Ycsb::E, "e"), (Ycsb::F, "f")];

impl FromStr for Ycsb {
    type Err = anyhow::Error;

    fn from_str(letter: &str) -> anyhow::Result<Self> {
        match LETTERS.iter().find(|(_, name)| *name == letter) {
            Some(&(ycsb, _)) => Ok(ycsb),
            None => bail!("YCSB has workloads a to f, not '{letter}'"),
        }
    }
}

impl fmt::Display for Ycsb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LETTERS.iter().find(|(ycsb, _)| ycsb == self).map_or("", |(_, name)| name))
    }
}

/// The share of each operation; what remains are reads.
#[derive(Clone, Copy, Debug, Default)]
struct Mix {
    update: f64,
    insert: f64,
    scan: f64,
    read_modify_write: f64,
}

/// How the next key is chosen.
enum Chooser {
    Scrambled(ScrambledZipfian),
    Latest(Latest),
}

impl Chooser {
    fn choose(&mut self, newest: u64, random: &mut Random) -> u64 {
        match self {
            Chooser::Latest(latest) => latest.draw(newest, random),
            Chooser::Scrambled(scrambled) => loop {
                let key = scrambled.draw(random);
                if key <= newest {
                    return key;
                }
            },
        }
    }
}

impl Ycsb {
    fn mix(self) -> Mix {
        let reads = Mix::default();
        match self {
            Ycsb::A => Mix { update: 0.5, ..reads },
            Ycsb::B => Mix { update: 0.05, ..reads },
            Ycsb::C => reads,
            Ycsb::D => Mix { insert: 0.05, ..reads },
            Ycsb::E => Mix { insert: 0.05, scan: 0.95, ..reads },
            Ycsb::F => Mix { read_modify_write: 0.5, ..reads },
        }
    }

    /// Small enough for minutes, large enough for a hundred thousand records' skew. A scan is fifty reads.
    pub(super) fn default_size(self) -> Size {
        let (n_warmup, n_requests) = if self == Ycsb::E { (10_000, 20_000) } else { (300_000, 300_000) };
        Size { n_keys: 100_000, n_warmup, n_requests }
    }

    pub(super) fn generate(self, mut keys: KeyTable, size: Size, seed: u64) -> Stream {
        let (mix, mut random, n_total) = (self.mix(), Random::new(seed), size.n_warmup + size.n_requests);
        for number in 0..size.n_keys as u64 {
            add_record(&mut keys, number);
        }
        let mut chooser = if self == Ycsb::D {
            Chooser::Latest(Latest::new(size.n_keys as u64 - 1))
        } else {
            let n_inserts_expected = (n_total as f64 * mix.insert * 2.0) as u64;
            Chooser::Scrambled(ScrambledZipfian::new(size.n_keys as u64 + n_inserts_expected + 1))
        };
        let (mut requests, mut scans) = (Vec::with_capacity(n_total), Vec::new());
        for _ in 0..n_total {
            let newest = keys.len() as u64 - 1;
            let operation = choose_operation(mix, random.unit());
            let request = match operation {
                // The only write of a workload with inserts is the insert.
                Operation::Write if mix.insert > 0.0 => {
                    Request::on(operation, add_record(&mut keys, newest + 1), RECORD_BYTES)
                }
                _ => Request::on(operation, chooser.choose(newest, &mut random) as u32, RECORD_BYTES),
            };
            if operation == Operation::Scan {
                let length = 1 + random.below(SCAN_LENGTH_MAX);
                scans.push(Scan { request: requests.len(), newest: newest as u32, length: length as usize });
            }
            requests.push(request);
        }
        let scans = spread_scans(&keys, &mut requests, &scans);
        Stream { name: format!("ycsb-{self}"), keys, requests, scans, n_warmup: size.n_warmup, pace: None }
    }
}

fn add_record(keys: &mut KeyTable, number: u64) -> u32 {
    keys.add(format!("user{}", fnv64(number)).as_bytes(), 0, RECORD_BYTES)
}

fn choose_operation(mix: Mix, u: f64) -> Operation {
    let writes = mix.update + mix.insert;
    if u < writes {
        Operation::Write
    } else if u < writes + mix.scan {
        Operation::Scan
    } else if u < writes + mix.scan + mix.read_modify_write {
        Operation::ReadModifyWrite
    } else {
        Operation::Read
    }
}

/// A scan whose keys are still to be listed.
struct Scan {
    request: usize,
    /// The newest key when the scan was drawn; later ones don't exist for it.
    newest: u32,
    length: usize,
}

/// Lists the keys of every scan, in the order of names from its first key on, and points the requests at them.
fn spread_scans(keys: &KeyTable, requests: &mut [Request], scans: &[Scan]) -> Vec<u32> {
    if scans.is_empty() {
        return Vec::new();
    }
    let mut by_name: Vec<u32> = (0..keys.len() as u32).collect();
    by_name.sort_by_key(|&key| keys.bare_name(key));
    let mut place = vec![0; keys.len()];
    for (at, &key) in by_name.iter().enumerate() {
        place[key as usize] = at;
    }
    let mut listed = Vec::new();
    for scan in scans {
        let start = listed.len();
        let from = place[requests[scan.request].key as usize];
        listed.extend(by_name[from..].iter().copied().filter(|&key| key <= scan.newest).take(scan.length));
        let request = &mut requests[scan.request];
        (request.key, request.n_keys) = (start as u32, (listed.len() - start) as u8);
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::super::keys::Assignment;
    use super::*;

    fn generate(ycsb: Ycsb) -> Stream {
        let size = Size { n_keys: 1000, n_warmup: 0, n_requests: 40_000 };
        ycsb.generate(KeyTable::new(Assignment::ByKey, 2), size, 3)
    }

    fn share(stream: &Stream, operation: Operation) -> f64 {
        let n = stream.requests.iter().filter(|request| request.operation == operation).count();
        n as f64 / stream.requests.len() as f64
    }

    #[test]
    fn operations_have_their_published_shares() {
        for (ycsb, [read, write, scan, read_modify_write]) in [
            (Ycsb::A, [0.5, 0.5, 0.0, 0.0]),
            (Ycsb::B, [0.95, 0.05, 0.0, 0.0]),
            (Ycsb::C, [1.0, 0.0, 0.0, 0.0]),
            (Ycsb::D, [0.95, 0.05, 0.0, 0.0]),
            (Ycsb::E, [0.0, 0.05, 0.95, 0.0]),
            (Ycsb::F, [0.5, 0.0, 0.0, 0.5]),
        ] {
            let stream = generate(ycsb);
            let found = [Operation::Read, Operation::Write, Operation::Scan, Operation::ReadModifyWrite]
                .map(|operation| share(&stream, operation));
            let expected = [read, write, scan, read_modify_write];
            assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 0.01), "{ycsb}: {found:?}");
        }
    }

    #[test]
    fn records_are_named_and_sized_as_published() {
        let stream = generate(Ycsb::A);
        assert_eq!(stream.keys.len(), 1000);
        assert_eq!(stream.keys.bare_name(0), b"user6284781860667377211");
        assert!(stream.requests.iter().all(|request| request.value_bytes == 1000 && request.key < 1000));
    }

    #[test]
    fn latest_inserts_in_order_and_never_reads_ahead() {
        let stream = generate(Ycsb::D);
        let mut newest = 999;
        for request in &stream.requests {
            if request.operation == Operation::Write {
                newest += 1;
                assert_eq!(request.key, newest);
            }
            assert!(request.key <= newest);
        }
        assert!((1500..2500).contains(&(newest - 999)), "{newest}");
    }

    #[test]
    fn scans_are_ranges_of_existing_records_in_the_order_of_names() {
        let stream = generate(Ycsb::E);
        let (mut newest, mut lengths) = (999, Vec::new());
        for request in &stream.requests {
            match request.operation {
                Operation::Write => newest += 1,
                _ => {
                    let keys = stream.keys_of(request);
                    lengths.push(keys.len());
                    assert!(keys.iter().all(|&key| key <= newest));
                    let names: Vec<_> = keys.iter().map(|&key| stream.keys.bare_name(key)).collect();
                    assert!(names.is_sorted());
                }
            }
        }
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        assert!((45.0..51.0).contains(&mean), "mean length {mean}: 50.5, less those cut short by the last record");
        assert!(
            lengths.contains(&1) && lengths.contains(&100) && lengths.iter().all(|length| (1..=100).contains(length))
        );
    }
}
