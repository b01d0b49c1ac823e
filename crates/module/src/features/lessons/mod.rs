//! What a primary teaches its replicas: what it has learned, and what it remembers of single keys.
//!
//! A replica sees writes alone, so what it would learn by itself is no guide to reads. Once a second it asks its
//! primary, as a client of it ([`pupil`]), with the credentials that replication goes by: `TENURE.LESSONS format
//! version bucket`. The answer has what was published since that version ([`partitions`]) and the next buckets of the
//! table of keys. A primary that nobody asks prepares nothing. Cost there: a copy of at most 512 KiB a second; on the
//! replica at most 512 buckets a tick.

pub mod partitions;
pub mod pupil;

use std::time::Instant;

use tenure_core::key_table::{ENTRY_BYTES, Entry, KeyTable, tick};

use self::partitions::Lessons;
use self::pupil::{Heard, Primary, Pupil};
use crate::feature::{Event, Feature, Report, Turn, Wants};
use crate::ffi::info::Value;
use crate::ffi::reply::Answer;
use crate::ffi::server::{Level, Server};
use crate::observe::keys::{Keys, Remembers};
use crate::observe::partitions::Partitions;
use crate::tenure::Tenure;
use crate::wire::{Reader, Writer};
use crate::worker::Taught;

/// Who teaches in another format isn't understood.
pub const FORMAT: u64 = 2;
/// How often the server is asked whom it follows.
const LOOK_US: u64 = 1_000_000;
/// How often it is asked whether it still follows by TLS.
const LOOK_AGAIN_US: u64 = 60_000_000;
/// A pass over the table of keys takes a minute, where its limits let it.
const PASS_PIECES: usize = 60;
const PIECE_BUCKETS: std::ops::RangeInclusive<usize> = 1024..=4096;
/// Buckets that are taken over in a tick.
const TAKEN_MAX: usize = 512;
/// Who hasn't asked for so long is gone.
const PUPIL_US_MAX: u64 = 10_000_000;

/// What is known of the other side. See the folder's opening.
#[derive(Default)]
pub struct TeachReplicas {
    /// On a replica: who asks the primary.
    pupil: Option<Pupil>,
    /// Those that have been told to end.
    leaving: Vec<Pupil>,
    look_at_us: u64,
    /// The primary that is followed by TLS alone, which lessons don't speak, and when that is looked at again.
    by_tls: Option<((String, u16), u64)>,
    /// The primary's clock when it was last heard.
    clock: Option<u64>,
    /// The piece of the table that is being taken over.
    piece: Option<Piece>,
    /// Lessons that its primary has taught this server.
    heard: u64,
    /// Why nothing is heard, for people.
    trouble: String,
    /// When a replica asked last, where that is of late.
    asked_at_us: Option<u64>,
    /// Somebody has asked in another format, which the log says once.
    was_misunderstood: bool,
}

impl Feature for TeachReplicas {
    fn wants(&self) -> Wants {
        Wants::NOTHING
    }

    fn tick(&mut self, turn: &mut Turn) {
        self.leaving.retain(|pupil| !pupil.ends());
        if turn.now_us >= self.look_at_us {
            self.look_at_us = turn.now_us + LOOK_US;
            self.follow(turn);
        }
        self.asked_at_us.take_if(|at_us| turn.now_us >= *at_us + PUPIL_US_MAX);
        turn.tenure.worker.shared.set_asked(self.asked_at_us.is_some());
        self.learn(turn);
    }

    fn event(&mut self, _: &mut Turn, event: &Event) {
        if matches!(event, Event::Configured | Event::DataSet(_)) {
            self.look_at_us = 0;
            self.by_tls.iter_mut().for_each(|(_, look_at_us)| *look_at_us = 0);
        }
    }

    fn run(&mut self, turn: &mut Turn, name: &str, arguments: &[&[u8]]) -> Option<Answer> {
        (name == "tenure.lessons").then(|| self.teach(turn, arguments).unwrap_or_else(Answer::error))
    }

    fn report(&self, _: &Tenure, report: &mut Report) {
        report.status.push(("lessons", Value::Text(self.part())));
        report.info.push(("lessons_heard".to_owned(), Value::Total(self.heard)));
    }

    fn release(&mut self, _: &mut Server) {
        self.leaving.drain(..).chain(self.pupil.take()).for_each(Pupil::join);
    }
}

impl TeachReplicas {
    /// Who teaches whom, for people.
    fn part(&self) -> String {
        match (&self.pupil, self.asked_at_us) {
            (Some(pupil), _) if self.trouble.is_empty() => format!("heard {} from {}", self.heard, pupil.primary),
            (Some(pupil), _) => format!("none from {}: {}", pupil.primary, self.trouble),
            (None, _) if self.by_tls.is_some() => "none: the primary is followed by TLS alone".to_owned(),
            (None, Some(_)) => "asked for by replicas".to_owned(),
            (None, None) => "not asked for".to_owned(),
        }
    }

    /// Asks whoever this server follows, and nobody where it follows none.
    fn follow(&mut self, turn: &mut Turn) {
        let address = address_of_primary(turn.server).filter(|_| turn.tenure.settings().teach_replicas);
        self.by_tls.take_if(|(by_tls, _)| address.as_ref() != Some(by_tls));
        if self.by_tls.as_ref().is_some_and(|(_, look_at_us)| turn.now_us < *look_at_us) {
            return;
        }
        let asked = self.pupil.as_ref().map(|pupil| &pupil.primary);
        // The password may be another where it was refused.
        if address.as_ref() == asked.map(|primary| &primary.address) && self.trouble.is_empty() {
            return;
        }
        let wanted = match address.and_then(|address| primary_at(turn.server, address)) {
            Some((primary, true)) => {
                self.note_tls(turn, primary);
                None
            }
            found => found.map(|(primary, _)| primary),
        };
        let asked = self.pupil.as_ref().map(|pupil| &pupil.primary);
        if wanted.as_ref() == asked {
            return;
        }
        self.leaving.extend(self.pupil.take().inspect(|pupil| _ = pupil.ends()));
        (self.clock, self.trouble) = (None, String::new());
        self.piece = None;
        self.pupil = wanted.and_then(|primary| Pupil::start(primary).ok());
    }

    /// Says once that this primary can't be asked.
    fn note_tls(&mut self, turn: &mut Turn, primary: Primary) {
        if self.by_tls.is_none() {
            let text =
                format!("no lessons from the primary {primary}: replicas follow it by TLS, which these don't speak");
            turn.server.log(Level::Notice, &text);
        }
        self.by_tls = Some((primary.address, turn.now_us + LOOK_AGAIN_US));
    }

    /// Takes what was heard, some of it now.
    fn learn(&mut self, turn: &mut Turn) {
        let Some(pupil) = &self.pupil else { return };
        if let Some(why) = pupil.trouble().filter(|why| *why != self.trouble) {
            let text = format!("no lessons from the primary {}: {why}", pupil.primary);
            turn.server.log(Level::Notice, &text);
            self.trouble = why;
        }
        // What was heard before comes first.
        if self.piece.is_none()
            && let Some(Heard { clock, lessons, piece }) = pupil.heard()
        {
            self.trouble.clear();
            self.follow_clock(&mut turn.tenure.observer.partitions.keys, clock);
            if let Some(lessons) = Some(lessons).filter(|lessons| !lessons.is_empty()) {
                let understood = Lessons::decode(&lessons).map(|lessons| take_lessons(turn.tenure, lessons));
                self.heard += u64::from(understood.is_some());
            }
            self.piece = Piece::decode(piece, &mut turn.tenure.observer.partitions);
        }
        let partitions = &mut turn.tenure.observer.partitions;
        self.piece.take_if(|piece| piece.take_over(partitions, tick(turn.now_us)).is_none());
    }

    /// What keys have shown is dated by requests, of which this server sees a part: its clock goes as the primary's.
    fn follow_clock(&mut self, keys: &mut Keys, (now, unbroken): (u64, u64)) {
        let own = keys.accesses.now();
        // Both were so far apart when it was last heard.
        let due = self.clock.map_or(now, |apart| now.wrapping_sub(apart));
        keys.follow(due.saturating_sub(own), unbroken);
        self.clock = Some(now.wrapping_sub(keys.accesses.now()));
    }

    /// Answers a replica.
    fn teach(&mut self, turn: &mut Turn, arguments: &[&[u8]]) -> Result<Answer, String> {
        let number = |word: &&[u8]| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
        let numbers: Option<Vec<u64>> = arguments.iter().map(number).collect();
        let Some([format, version, bucket]) = numbers.and_then(|numbers| <[u64; 3]>::try_from(numbers).ok()) else {
            return Err("TENURE.LESSONS takes three numbers: format, version, bucket; replicas ask so".to_owned());
        };
        if format != FORMAT {
            let text = format!("a replica asks for lessons of format {format}, and here they are of format {FORMAT}");
            // Any client may ask, as often as it likes.
            if !std::mem::replace(&mut self.was_misunderstood, true) {
                turn.server.log(Level::Notice, &text);
            }
            return Err(format!("lessons are of format {FORMAT} here, not {format}"));
        }
        if turn.server.flags().is_replica() {
            return Err("a replica has nothing of its own to teach".to_owned());
        }
        if !turn.tenure.settings().teach_replicas {
            return Err("tenure.teach-replicas is 'no'".to_owned());
        }
        self.asked_at_us = Some(turn.now_us);
        let (tenure, now) = (&*turn.tenure, tick(turn.now_us));
        let partitions = &tenure.observer.partitions;
        let newest = tenure.published_version();
        let news = tenure.current().filter(|_| version != newest);
        let lessons = news.map(|published| {
            // What is known of who had a number before concerns nobody.
            let of_what = partitions.of_what().iter().enumerate().map(|(i, &(tenant, class))| {
                let name = tenure.view(i).map(|_| partitions.tenants().names()[usize::from(tenant.0)].clone());
                (name.unwrap_or_default(), partitions.classes.name(class))
            });
            Lessons::of(published, partitions.keys.noise, of_what).encode()
        });
        let (next_bucket, piece) = Piece::encode(partitions, bucket as usize, now);
        let clock = partitions.keys.accesses.clock();
        Ok(Answer::Array(vec![
            Answer::Integer(newest as i64),
            Answer::Integer(clock.now as i64),
            Answer::Integer((clock.now - clock.since) as i64),
            Answer::Bytes(lessons.unwrap_or_default()),
            Answer::Integer(next_bucket as i64),
            Answer::Bytes(piece),
        ]))
    }
}

/// Whom this server follows; `None` where it follows nobody, or doesn't reach it.
fn address_of_primary(server: &mut Server) -> Option<(String, u16)> {
    if !server.flags().is_replica() {
        return None;
    }
    let [host, port, link] =
        server.info_fields(c"replication", [c"master_host", c"master_port", c"master_link_status"])?;
    (link == "up").then_some((host, port.parse().ok()?))
}

/// How it is asked, and whether replicas follow by TLS alone.
fn primary_at(server: &mut Server, address: (String, u16)) -> Option<(Primary, bool)> {
    let asked: [&[u8]; 4] = [b"GET", b"masteruser", b"masterauth", b"tls-replication"];
    let set = server.call(c"CONFIG", &asked)?;
    let of = |name: &str| set.get(name).and_then(|value| value.text()).unwrap_or_default().to_owned();
    let is_tls = of("tls-replication") == "yes";
    let credentials = (of("masteruser"), of("masterauth"));
    Some((Primary { address, credentials }, is_tls))
}

fn take_lessons(tenure: &mut Tenure, lessons: Lessons) {
    tenure.follow_tenants(lessons.partitions.iter().map(|lesson| lesson.tenant.as_str()));
    let partitions = &mut tenure.observer.partitions;
    let known = lessons.partitions.into_iter().filter_map(|lesson| {
        let id = partitions.of_names(&lesson.tenant, &lesson.class)?;
        Some((id, lesson))
    });
    let known = known.collect();
    partitions.keys.noise = lessons.noise;
    let (epoch, sample_size, teaching) = (tenure.observer.epoch(), lessons.sample_size, lessons.teaching);
    tenure.worker.shared.teach(Taught { epoch, partitions: known, sample_size, teaching, heard: Instant::now() });
}

/// Some buckets of a table of keys.
struct Piece {
    bytes: Vec<u8>,
    /// How far it was taken over.
    at: usize,
    /// The buckets that are next, and of whose table.
    bucket: usize,
    of_histories: bool,
    /// The classes here that have the numbers there. Hinted ones have numbers in the order in which they came.
    classes: Vec<u8>,
}

impl Piece {
    /// The buckets from one on, and which is next; nothing where there is no table.
    fn encode(partitions: &Partitions, from: usize, now: u32) -> (usize, Vec<u8>) {
        let Some(table) = &partitions.keys.table else { return (0, Vec::new()) };
        let of_histories = partitions.keys.remembers() == Remembers::History;
        let from = if from < table.n_buckets() { from } else { 0 };
        let n = (table.n_buckets() / PASS_PIECES).clamp(*PIECE_BUCKETS.start(), *PIECE_BUCKETS.end());
        let end = (from + n).min(table.n_buckets());
        let names = partitions.classes.names();
        let mut writer = Writer::default();
        writer.u64(names.len() as u64);
        names.iter().for_each(|name| _ = writer.text(name));
        writer.u32(u32::from(of_histories)).u64(table.shared_bucket_bytes() as u64);
        writer.u64(table.n_buckets() as u64).u64(from as u64);
        for bucket in from..end {
            if of_histories {
                table.write_bucket(bucket, partitions.keys.accesses.now() as u32, &mut writer.0);
            } else {
                write_entries(table, bucket, now, &mut writer.0);
            }
        }
        (if end < table.n_buckets() { end } else { 0 }, writer.0)
    }

    /// `None` where it can't be read, or the table here is another.
    fn decode(bytes: Vec<u8>, partitions: &mut Partitions) -> Option<Piece> {
        let mut reader = Reader(&bytes);
        let n = reader.count(2)?;
        let names = (0..n).map(|_| reader.text()).collect::<Option<Vec<&str>>>()?;
        let classes = names.iter().map(|name| partitions.classes.numbered(name).unwrap_or(0)).collect();
        let of_histories = reader.u32()? == 1;
        let table = partitions.keys.table.as_ref()?;
        let is_alike = of_histories == (partitions.keys.remembers() == Remembers::History)
            && reader.u64()? == table.shared_bucket_bytes() as u64
            && reader.u64()? == table.n_buckets() as u64;
        let bucket = usize::try_from(reader.u64()?).ok()?;
        let at = bytes.len() - reader.0.len();
        is_alike.then_some(Piece { bytes, at, bucket, of_histories, classes })
    }

    /// Takes some of it over; `None` once nothing is left, or the rest means nothing here any more.
    fn take_over(&mut self, partitions: &mut Partitions, now: u32) -> Option<()> {
        let keys = &mut partitions.keys;
        for _ in 0..TAKEN_MAX {
            let size = keys.table.as_ref()?.shared_bucket_bytes();
            let bytes = self.bytes.get(self.at..self.at + size)?;
            let class_here = |there: u8| self.classes.get(usize::from(there)).copied().unwrap_or(0);
            if self.of_histories {
                keys.take_bucket(self.bucket, bytes, class_here)?;
            } else {
                for bytes in bytes.as_chunks::<ENTRY_BYTES>().0 {
                    let entry = Entry::from_bytes(bytes, now);
                    keys.take_over(self.bucket, entry.of_class(class_here(entry.class)), now);
                }
            }
            (self.at, self.bucket) = (self.at + size, self.bucket + 1);
        }
        Some(())
    }
}

/// A bucket of a table dated by time.
fn write_entries(table: &KeyTable, bucket: usize, now: u32, out: &mut Vec<u8>) {
    let end = out.len() + table.shared_bucket_bytes();
    table.bucket(bucket).for_each(|entry| out.extend_from_slice(&entry.to_bytes(now)));
    out.resize(end, 0);
}
