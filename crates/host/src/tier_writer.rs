//! The thread that puts copies of pages into their file.
//!
//! While a disk is behind with what others write, Linux has whoever writes to a file wait, for up to a fifth of a
//! second each time (`MAX_PAUSE` in its `mm/page-writeback.c`). So the main thread copies, and this thread waits. It
//! is started when there is something to write, and ends when there was nothing for a while.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::hooks::Hooks;

/// A thread with nothing to write ends after so long.
const IDLE: Duration = Duration::from_secs(10);

/// What pages of one chunk held when they were copied.
pub(super) struct Copied {
    pub(super) chunk: usize,
    /// Where each run of pages lies, in bytes from the start; never empty.
    pub(super) runs: Vec<Range<usize>>,
    /// The runs, one after the other.
    pub(super) content: Vec<u8>,
    /// The file holds all of it.
    pub(super) is_in_file: bool,
}

impl Copied {
    /// From the first run's begin to the last one's end, in bytes from the start.
    pub(super) fn span(&self) -> Range<usize> {
        let (first, last) = (self.runs.first(), self.runs.last());
        first.map_or(0, |run| run.start)..last.map_or(0, |run| run.end)
    }

    /// Bytes of all runs.
    pub(super) fn bytes(&self) -> usize {
        self.runs.iter().map(ExactSizeIterator::len).sum()
    }

    /// Each run, with what it held.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Range<usize>, &[u8])> {
        let mut at = 0;
        self.runs.iter().map(move |run| {
            let content = &self.content[at..at + run.len()];
            at += run.len();
            (run, content)
        })
    }

    fn write_to(&self, file: &File) -> io::Result<()> {
        self.parts().try_for_each(|(run, content)| file.write_all_at(content, run.start as u64))
    }
}

#[derive(Default)]
struct Desk {
    waiting: VecDeque<Copied>,
    written: Vec<Copied>,
    has_thread: bool,
}

struct Shared {
    file: Arc<File>,
    desk: Mutex<Desk>,
    has_come: Condvar,
    has_written: AtomicBool,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(mut copied) = self.next() {
            copied.is_in_file = copied.write_to(&self.file).is_ok();
            self.desk().written.push(copied);
            self.has_written.store(true, Ordering::Release);
        }
    }

    /// The next to be written; `None` where there was none for [`IDLE`].
    fn next(&self) -> Option<Copied> {
        let has_none = |desk: &mut Desk| desk.waiting.is_empty();
        let waited = self.has_come.wait_timeout_while(self.desk(), IDLE, has_none);
        let (mut desk, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = desk.waiting.pop_front();
        desk.has_thread = next.is_some();
        next
    }
}

/// The thread, as the main one sees it. See the file's opening.
pub(super) struct Writer(Arc<Shared>);

impl Writer {
    /// Nothing is written yet.
    pub(super) fn to(file: Arc<File>) -> Writer {
        let (desk, has_come) = (Mutex::default(), Condvar::new());
        Writer(Arc::new(Shared { file, desk, has_come, has_written: AtomicBool::new(false) }))
    }

    /// Has this written, some time. Where there can be no thread it comes back as not written.
    pub(super) fn write(&self, copied: Copied) {
        let mut desk = self.0.desk();
        if !desk.has_thread {
            let shared = Arc::clone(&self.0);
            let name = format!("{}-pages", Hooks::owner());
            let thread = std::thread::Builder::new().name(name).spawn(move || shared.run());
            desk.has_thread = thread.is_ok();
        }
        if desk.has_thread {
            desk.waiting.push_back(copied);
            self.0.has_come.notify_one();
        } else {
            desk.written.push(copied);
            self.0.has_written.store(true, Ordering::Release);
        }
    }

    /// True where [`Writer::take_written`] has something.
    #[inline]
    pub(super) fn has_written(&self) -> bool {
        self.0.has_written.load(Ordering::Acquire)
    }

    /// What is done with, whether the file took it or not.
    pub(super) fn take_written(&self) -> Vec<Copied> {
        if !self.0.has_written.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.0.desk().written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_written_and_a_file_that_takes_none_is_told_of() {
        let written = |file: File| {
            let file = Arc::new(file);
            let writer = Writer::to(Arc::clone(&file));
            let copied = Copied { chunk: 3, runs: vec![2..4, 6..9], content: b"abcde".to_vec(), is_in_file: false };
            assert_eq!(copied.span(), 2..9);
            writer.write(copied);
            while !writer.has_written() {
                std::thread::yield_now();
            }
            let [copied] = &writer.take_written()[..] else { panic!("one was written") };
            assert!(!writer.has_written() && copied.chunk == 3);
            copied.is_in_file
        };
        let file = tempfile::tempfile().unwrap();
        let content = file.try_clone().unwrap();
        assert!(written(file));
        let mut bytes = [0; 9];
        content.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"\0\0ab\0\0cde");
        assert!(!written(File::open("/dev/null").unwrap()), "opened to be read");
    }
}
