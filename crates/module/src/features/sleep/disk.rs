//! The threads that touch the disk, so that the server's own never waits for it: one appends and loads back in the
//! background, one reads what a client waits for.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tenure_core::units::KeyHash;

use super::file::{self, Place, Reader, Writer};
use crate::feature::Outcome;
use crate::ffi::awaits;
use crate::ffi::guard;

/// Jobs under way, at the most, of each thread.
const JOBS_MAX: usize = 1024;

/// What a client waits for: the record's bytes, where they could be read, and where they lay.
pub type Read = (Place, Option<Vec<u8>>);

/// A client that waits for it.
pub type Blocked = awaits::Blocked<Outcome>;

/// What a thread is to do.
enum Job {
    Append {
        key: KeyHash,
        record: Vec<u8>,
    },
    Read {
        key: KeyHash,
        place: Place,
    },
    ReadFor {
        client: Blocked,
        place: Place,
    },
    Remove(u32),
    HoldWarm(std::fs::File),
    SegmentBytes(u64),
    /// For tests: the job after this one panics.
    Panic,
}

/// What it has done for the main thread.
pub enum Done {
    /// A record was appended.
    Written { key: KeyHash, place: Place },
    /// A record was read in the background, where it could be.
    Read { key: KeyHash, place: Place, bytes: Option<Vec<u8>> },
    /// A record could not be appended.
    Refused { key: KeyHash, why: String },
}

struct Thread {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(name: &str, run: impl FnOnce(Receiver<Job>) + Send + 'static) -> std::io::Result<Thread> {
        let (jobs, receiver) = sync_channel(JOBS_MAX);
        let body = move || {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(receiver))).is_err() {
                guard::count_panic("a disk thread");
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Thread { jobs: Some(jobs), thread: Some(thread) })
    }

    /// The job back where there is no room, or no thread any more.
    fn give(&self, job: Job) -> Result<(), Job> {
        match &self.jobs {
            Some(jobs) => jobs.try_send(job).map_err(|e| match e {
                TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
            }),
            None => Err(job),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // The thread ends when there is nobody left to give it jobs, after those that it has.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// The disk as the main thread sees it.
pub struct Disk {
    folder: PathBuf,
    background: Thread,
    reads: Thread,
    done: Arc<Mutex<Vec<Done>>>,
    /// Jobs of the background thread that are not done, or whose outcome was not taken.
    under_way: Arc<AtomicUsize>,
    /// For what can't wait.
    reader: Reader,
    /// Nothing more is written.
    is_over: Arc<AtomicBool>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Its threads are waited for: what they still have to write nobody needs.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Disk {
    /// Starts the threads.
    ///
    /// # Errors
    /// Where the system has none to give.
    pub fn start(folder: &Path, segment_bytes: u64) -> std::io::Result<Disk> {
        let done: Arc<Mutex<Vec<Done>>> = Arc::default();
        let under_way: Arc<AtomicUsize> = Arc::default();
        let is_over: Arc<AtomicBool> = Arc::default();
        let background = {
            let (mut writer, mut reader) = (Writer::new(folder, segment_bytes), Reader::new(folder));
            let (folder, done, under_way) = (folder.to_owned(), Arc::clone(&done), Arc::clone(&under_way));
            let is_over = Arc::clone(&is_over);
            Thread::start("tenure-disk", move |jobs| {
                for job in jobs.into_iter().filter(|_| !is_over.load(Ordering::Relaxed)) {
                    match (perform(job, &folder, &mut writer, &mut reader), done.lock()) {
                        (Some(outcome), Ok(mut done)) => done.push(outcome),
                        _ => drop(under_way.fetch_sub(1, Ordering::Release)),
                    }
                }
            })?
        };
        let mut reader = Reader::new(folder);
        let reads = Thread::start("tenure-reads", move |jobs| {
            let mut panic_please = false;
            for job in jobs {
                assert!(!panic_please, "asked to by TENURE.DEBUG");
                match job {
                    Job::ReadFor { client, place } => wake(client, (place, reader.read(place).ok())),
                    Job::Remove(segment) => reader.forget(segment),
                    Job::HoldWarm(file) => reader.hold_warm(file),
                    Job::Panic => panic_please = true,
                    Job::Append { .. } | Job::Read { .. } | Job::SegmentBytes(_) => {}
                }
            }
        })?;
        let (folder, reader) = (folder.to_owned(), Reader::new(folder));
        Ok(Disk { folder, background, reads, done, under_way, reader, is_over })
    }

    fn give_background(&self, job: Job) -> bool {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let given = self.background.give(job).is_ok();
        if !given {
            self.under_way.fetch_sub(1, Ordering::Release);
        }
        given
    }

    /// Appends a record some time. False where too much is under way.
    pub fn append(&self, key: KeyHash, record: Vec<u8>) -> bool {
        self.give_background(Job::Append { key, record })
    }

    /// Reads a record some time. False where too much is under way.
    pub fn read(&self, key: KeyHash, place: Place) -> bool {
        self.give_background(Job::Read { key, place })
    }

    /// Reads a record for a client that waits, and wakes it. The client back where too many wait.
    pub fn read_for(&self, client: Blocked, place: Place) -> Result<(), Blocked> {
        match self.reads.give(Job::ReadFor { client, place }) {
            Err(Job::ReadFor { client, .. }) => Err(client),
            _ => Ok(()),
        }
    }

    /// For tests: the thread that reads for clients panics at its next job.
    pub fn panic_at_next_read(&self) {
        drop(self.reads.give(Job::Panic));
    }

    /// Reads a record now: the caller waits for the disk.
    pub fn read_now(&mut self, place: Place) -> Option<Vec<u8>> {
        self.reader.read(place).ok()
    }

    /// Removes a segment. What is being read of it is read all the same.
    pub fn remove(&mut self, segment: u32) {
        self.reader.forget(segment);
        let forgotten = self.reads.give(Job::Remove(segment)).is_ok();
        if !forgotten || !self.give_background(Job::Remove(segment)) {
            file::remove(&self.folder, segment);
        }
    }

    /// All threads hold the file of the last orderly stop open.
    ///
    /// # Errors
    /// Where the system has no handles left.
    pub fn hold_warm(&mut self, file: std::fs::File) -> std::io::Result<()> {
        drop(self.reads.give(Job::HoldWarm(file.try_clone()?)));
        self.give_background(Job::HoldWarm(file.try_clone()?));
        self.reader.hold_warm(file);
        Ok(())
    }

    /// Segments that are begun from now on end at so many bytes.
    pub fn set_segment_bytes(&self, bytes: u64) {
        self.give_background(Job::SegmentBytes(bytes));
    }

    /// What was done since the last look.
    pub fn take_done(&self) -> Vec<Done> {
        let done = self.done.try_lock().map(|mut done| std::mem::take(&mut *done)).unwrap_or_default();
        self.under_way.fetch_sub(done.len(), Ordering::Release);
        done
    }

    /// Jobs in the background that are not done, and those done since the last look.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }
}

/// Lets the client's command run with what was read.
fn wake(client: Blocked, read: Read) {
    client.wake(Box::new(read));
}

fn perform(job: Job, folder: &Path, writer: &mut Writer, reader: &mut Reader) -> Option<Done> {
    match job {
        Job::Append { key, record } => Some(match writer.append(&record) {
            Ok(place) => Done::Written { key, place },
            Err(e) => Done::Refused { key, why: e.to_string() },
        }),
        Job::Read { key, place } => Some(Done::Read { key, place, bytes: reader.read(place).ok() }),
        Job::Remove(segment) => {
            reader.forget(segment);
            file::remove(folder, segment);
            None
        }
        Job::HoldWarm(file) => {
            reader.hold_warm(file);
            None
        }
        Job::SegmentBytes(bytes) => {
            writer.set_segment_bytes(bytes);
            None
        }
        Job::Panic => None,
        Job::ReadFor { client, place } => {
            wake(client, (place, None));
            None
        }
    }
}
