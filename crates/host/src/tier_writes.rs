//! What was written to values that lie in a file, and is not in the file yet.
//!
//! The main thread puts it there. While a disk is behind with what others write, the kernel has whoever writes to a
//! file wait, for up to a fifth of a second each time. So a flush ends with the first write that took long, and the
//! next ones wait, unless so much waits that memory would fill with it. (`MAX_PAUSE` in Linux's `mm/page-writeback.c`.)

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::MainThread;
use super::jemalloc::page_bytes;
use super::tier_pages::{CHUNK_BYTES, FilePages, has_child};
use super::tier_range::Range;

/// More chunks wait than the flush should leave.
const CHUNKS_BEHIND: usize = 4;
/// Pages that took values last are left until others did: the next values go there too.
const RECENT: usize = 16;

/// A flush that takes so long waits for the disk.
const LONG: Duration = Duration::from_millis(10);
/// None begins then for so many times as long as it took.
const RESTS: u32 = 20;
/// … unless more chunks wait. These are 128 MB at the most.
const CHUNKS_RESTING: usize = 64;

/// When the next flush may begin.
#[derive(Debug, Default)]
struct Rest {
    until: Option<Instant>,
}

impl Rest {
    fn is_over(&mut self, now: Instant) -> bool {
        self.until.take_if(|until| *until <= now);
        self.until.is_none()
    }

    /// A flush took from `began` to `now`. True where it waited.
    fn after(&mut self, began: Instant, now: Instant) -> bool {
        let took = now - began;
        if took >= LONG {
            self.until = Some(now + RESTS * took);
        }
        took >= LONG
    }
}

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
    rest: Rest,
}

/// The pages of a file, and what was written to them. See the file's opening.
pub(super) struct FileWrites {
    pub(super) pages: FilePages,
    written: Mutex<Written>,
    page_bytes: usize,
    /// Pages flushed so far.
    flushed: AtomicUsize,
    /// Values came since the last flush.
    wants_flush: AtomicBool,
}

impl FileWrites {
    /// Nothing yet, into these pages.
    pub(super) fn into(pages: FilePages) -> FileWrites {
        FileWrites {
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
        self.wants_flush.load(Ordering::Relaxed) && !has_child()
    }

    /// True where so much waits that memory fills with it.
    pub(super) fn is_behind(&self) -> bool {
        self.wants_flush() && self.written().chunks.len() > CHUNKS_BEHIND
    }

    /// Pages that were put into the file so far.
    pub(super) fn flushed_pages(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed) as u64
    }

    /// A value has been put at that distance from the start.
    pub(super) fn took(&self, first: usize, bytes: usize) {
        let mut written = self.written();
        for chunk in first / CHUNK_BYTES..=(first + bytes) / CHUNK_BYTES {
            if !written.chunks.contains(&chunk) {
                written.chunks.push_back(chunk);
            }
        }
        let at = written.n % RECENT;
        written.recent[at] = (first + bytes) / self.page_bytes;
        written.n += 1;
        // Sooner only pages would be found that are spared.
        if written.n.is_multiple_of(RECENT) {
            self.wants_flush.store(true, Ordering::Relaxed);
        }
    }

    /// Puts what was written into the file, about `pages_max` pages of it. Where the disk keeps it waiting these are
    /// fewer, and for a while after that none. Returns how many.
    pub(super) fn flush(&self, _proof: &impl MainThread, range: &Range, pages_max: usize, search: bool) -> usize {
        if has_child() {
            return 0;
        }
        let mut written = self.written();
        let began = Instant::now();
        if !written.rest.is_over(began) && written.chunks.len() <= CHUNKS_RESTING {
            self.wants_flush.store(false, Ordering::Relaxed);
            return 0;
        }
        let (end, mapped) = {
            let taken = range.taken();
            (taken.next, taken.mapped)
        };
        let flush_chunk = |chunk: usize, spared: &[usize], max| {
            // SAFETY: so much is mapped, for good; values in it are written by the main thread only, which is here.
            unsafe { self.pages.flush(range.start(), mapped, chunk, spared, (max, began + LONG)) }
        };
        let mut flushed = 0;
        let due = written.chunks.len();
        if search {
            written.cursor = (written.cursor + 1) % (end / CHUNK_BYTES + 1);
            let chunk = written.cursor;
            flushed += flush_chunk(chunk, &written.recent, pages_max).0;
        }
        for _ in 0..due {
            if flushed >= pages_max || began.elapsed() >= LONG {
                break;
            }
            let Some(chunk) = written.chunks.pop_front() else { break };
            let (done, is_left) = flush_chunk(chunk, &written.recent, pages_max - flushed);
            flushed += done;
            if is_left && !written.chunks.contains(&chunk) {
                written.chunks.push_back(chunk);
            }
        }
        let has_waited = written.rest.after(began, Instant::now());
        self.wants_flush.store(flushed >= pages_max && !has_waited, Ordering::Relaxed);
        self.flushed.fetch_add(flushed, Ordering::Relaxed);
        flushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_flush_the_next_ones_wait() {
        let (mut rest, began) = (Rest::default(), Instant::now());
        assert!(!rest.after(began, began + LONG / 2) && rest.is_over(began));
        let now = began + LONG;
        assert!(rest.after(began, now) && !rest.is_over(now + (RESTS - 1) * LONG));
        assert!(rest.is_over(now + RESTS * LONG) && rest.is_over(now));
    }
}
