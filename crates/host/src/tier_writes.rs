//! What was written to values that lie in a file, and is not in the file yet.
//!
//! The main thread copies it, a thread writes the copies (`tier_writer.rs`), and the main thread drops the pages that
//! hold what was copied still. So no command waits for the disk. What the disk has no time for stays in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::MainThread;
use super::jemalloc::page_bytes;
use super::tier_pages::{CHUNK_BYTES, FilePages, has_child};
use super::tier_range::Range;
use super::tier_writer::Writer;

/// More chunks wait than the flush should leave.
const CHUNKS_BEHIND: usize = 4;
/// Pages that took values last are left until others did: the next values go there too.
const RECENT: usize = 16;
/// Buffers kept, of up to a chunk each.
const SPARE_MAX: usize = 4;

/// Which parts of a file's pages may have been written since they were flushed.
#[derive(Default)]
struct Written {
    /// Chunks that took values.
    chunks: VecDeque<usize>,
    /// Pages that took the last ones.
    recent: [usize; RECENT],
    n: usize,
    /// Where the search for what the server wrote by itself stands.
    cursor: usize,
    /// Buffers of copies that are done with, while others follow.
    spare: Vec<Vec<u8>>,
}

impl Written {
    fn wait(&mut self, chunk: usize) {
        if !self.chunks.contains(&chunk) {
            self.chunks.push_back(chunk);
        }
    }
}

/// The pages of a file, and what was written to them. See the file's opening.
pub(super) struct FileWrites {
    pub(super) pages: FilePages,
    writer: Writer,
    written: Mutex<Written>,
    page_bytes: usize,
    /// Pages that were put into the file and dropped, so far.
    flushed: AtomicUsize,
    /// Values came since the last flush.
    wants_flush: AtomicBool,
}

impl FileWrites {
    /// Nothing yet, into these pages.
    pub(super) fn into(pages: FilePages) -> FileWrites {
        FileWrites {
            writer: Writer::to(Arc::clone(&pages.file)),
            pages,
            written: Mutex::default(),
            page_bytes: page_bytes(),
            flushed: AtomicUsize::new(0),
            wants_flush: AtomicBool::new(false),
        }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True where pages are to be flushed, and may be.
    pub(super) fn wants_flush(&self) -> bool {
        (self.wants_flush.load(Ordering::Relaxed) || self.writer.has_written()) && !has_child()
    }

    /// True where so much waits that memory fills with it, and more can be copied.
    pub(super) fn is_behind(&self) -> bool {
        self.wants_flush() && self.pages.has_room() && self.written().chunks.len() > CHUNKS_BEHIND
    }

    /// Pages that were put into the file so far.
    pub(super) fn flushed_pages(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed) as u64
    }

    /// A value has been put at that distance from the start.
    pub(super) fn took(&self, first: usize, bytes: usize) {
        let mut written = self.written();
        (first / CHUNK_BYTES..=(first + bytes) / CHUNK_BYTES).for_each(|chunk| written.wait(chunk));
        let at = written.n % RECENT;
        written.recent[at] = (first + bytes) / self.page_bytes;
        written.n += 1;
        // Sooner only pages would be found that are spared.
        if written.n.is_multiple_of(RECENT) {
            self.wants_flush.store(true, Ordering::Relaxed);
        }
    }

    /// Lets go of pages that the file holds now, and has about `pages_max` others written. With `search`, what the
    /// server wrote by itself is looked for too. Nothing is copied while there may be a child.
    pub(super) fn flush(&self, _proof: &impl MainThread, range: &Range, pages_max: usize, search: bool) {
        let mut written = self.written();
        for copied in self.writer.take_written() {
            // SAFETY: copied below; values in the range are written by the main thread only, which is here.
            let (dropped, is_left) = unsafe { self.pages.drop_if_same(range.start(), &copied) };
            self.flushed.fetch_add(dropped, Ordering::Relaxed);
            if is_left {
                written.wait(copied.chunk);
            }
            if written.spare.len() < SPARE_MAX {
                written.spare.push(copied.content);
            }
        }
        if search && written.chunks.is_empty() {
            written.spare = Vec::new();
        }
        let (end, mapped) = {
            let taken = range.taken();
            (taken.next, taken.mapped)
        };
        let copy_chunk = |chunk: usize, Written { recent, spare, .. }: &mut Written, pages_max| {
            // SAFETY: so much is mapped, for good; who writes to values is here, as above.
            let (copied, is_left) = unsafe { self.pages.copy(range.start(), mapped, chunk, recent, pages_max, spare) };
            let pages = copied.as_ref().map_or(0, |copied| copied.content.len() / self.page_bytes);
            copied.into_iter().for_each(|copied| self.writer.write(copied));
            (pages, is_left)
        };
        let (mut pages, due) = (0, written.chunks.len());
        if search && self.pages.has_room() {
            written.cursor = (written.cursor + 1) % (end / CHUNK_BYTES + 1);
            pages += copy_chunk(written.cursor, &mut written, pages_max).0;
        }
        for _ in 0..due {
            if pages >= pages_max || !self.pages.has_room() || has_child() {
                break;
            }
            let Some(chunk) = written.chunks.pop_front() else { break };
            let (copied, is_left) = copy_chunk(chunk, &mut written, pages_max - pages);
            pages += copied;
            if is_left {
                written.wait(chunk);
            }
        }
        self.wants_flush.store(pages >= pages_max && self.pages.has_room(), Ordering::Relaxed);
    }
}
