//! Pages of the slow tier that lie in a file: put there by us, dropped from memory, and given back as holes.
//!
//! Mapped privately, what is written stays in memory of the process. `FilePages::copy` copies it, a thread puts the
//! copies into the file (`tier_writer.rs`), and `FilePages::drop_if_same` drops the pages that hold what the file
//! holds. Which pages were written and not dropped the kernel tells (`/proc/self/pagemap`, bit 61).
//!
//! The server's own threads meet the main one here: they free, and so purge. Nothing is purged while a write to the
//! file is under way: coming after it, the write would bring back stale bytes in pages that jemalloc takes for zeroed,
//! and the kernel has who punches a hole or makes a file longer wait for it. So the file is as long as can be from the
//! start. What isn't purged jemalloc keeps, to use it again.
//!
//! Who copies, drops or purges holds `PAGES`. A fork waits until nobody does, and after it nothing is copied and no
//! hole punched that the child would read. What was copied before may reach the file later: the child has those pages
//! in its own memory.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::jemalloc::page_bytes;
use super::server::Server;
use super::tier_writer::Copied;

/// What was written is found in steps of this.
pub(super) const CHUNK_BYTES: usize = 2 << 20;
/// Copies under way at once, of a chunk each at the most, and bytes in them from which no other is begun.
const UNDER_WAY_MAX: usize = 64;
const UNDER_WAY_BYTES: usize = 8 << 20;

/// Held while pages are copied, punched or dropped. Whoever holds it allocates nothing, and frees nothing: jemalloc
/// may purge from within.
static PAGES: Mutex<()> = Mutex::new(());
/// Set before the process forks, cleared once there is no child: see the file's opening.
static MAY_HAVE_CHILD: AtomicBool = AtomicBool::new(false);
static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);

fn lock_pages() -> MutexGuard<'static, ()> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call of the system said.
pub(super) fn check(status: c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The file. See the opening.
pub(super) struct FilePages {
    pub(super) file: Arc<File>,
    file_bytes: usize,
    pagemap: File,
    page_bytes: usize,
    /// Locked under `PAGES`, where both are.
    under_way: Mutex<UnderWay>,
}

/// Of what copies are under way into the file.
struct UnderWay {
    /// From the first to the last byte, from the start; empty where there is none.
    spans: [Range<usize>; UNDER_WAY_MAX],
    /// Bytes in the copies.
    bytes: usize,
}

impl UnderWay {
    /// Where another copy can be noted.
    fn free(&mut self) -> Option<&mut Range<usize>> {
        self.spans.iter_mut().find(|span| Range::is_empty(span)).filter(|_| self.bytes < UNDER_WAY_BYTES)
    }

    fn has(&self, chunk: usize) -> bool {
        self.spans.iter().any(|span| !span.is_empty() && span.start / CHUNK_BYTES == chunk)
    }
}

impl FilePages {
    /// Of a new file, which will be as long as that, or as it may be.
    ///
    /// # Errors
    /// Why written pages can't be told from others, as a sentence.
    pub(super) fn of(file: File, bytes: usize) -> Result<FilePages, String> {
        let pagemap =
            File::open("/proc/self/pagemap").map_err(|why| format!("/proc/self/pagemap can't be read: {why}"))?;
        let under_way = Mutex::new(UnderWay { spans: [const { 0..0 }; UNDER_WAY_MAX], bytes: 0 });
        let file_bytes = lengthen(&file, bytes);
        Ok(FilePages { file: Arc::new(file), file_bytes, pagemap, page_bytes: page_bytes(), under_way })
    }

    /// Maps `bytes` of the file from `offset`, in place of those addresses.
    ///
    /// # Safety
    /// The addresses are ours, and nothing lies there.
    pub(super) unsafe fn map(&self, address: *mut u8, offset: usize, bytes: usize) -> io::Result<()> {
        if offset + bytes > self.file_bytes {
            let most = self.file_bytes;
            return Err(io::Error::other(format!(
                "a file may have {most} bytes there (ulimit -f, or the file system)"
            )));
        }
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE);
        let (fd, offset) = (self.file.as_raw_fd(), offset as libc::off_t);
        // SAFETY: by the caller's promise.
        if unsafe { libc::mmap(address.cast(), bytes, rights, flags, fd, offset) } == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above; the disk would read ahead megabytes otherwise.
        unsafe { libc::madvise(address.cast(), bytes, libc::MADV_RANDOM) };
        Ok(())
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True where another chunk may be copied.
    pub(super) fn has_room(&self) -> bool {
        self.under_way().free().is_some()
    }

    /// A copy of what was written in one chunk of the range from `start`, of which `mapped_bytes` are the file's: at
    /// the most `pages_max` pages. Also says whether some are left: pages `spared`, counted from the start, are passed
    /// over. `None` where there is nothing, and while a copy of the chunk is under way.
    ///
    /// The copy is made in a buffer of `spare`, where there is one: a new one has to get pages of its own first. Each
    /// copy has to come back to [`FilePages::drop_if_same`].
    ///
    /// # Safety
    /// The pages are mapped from the file at their distance from `start`, and nobody writes to values in them
    /// meanwhile.
    pub(super) unsafe fn copy(
        &self,
        start: *mut u8,
        mapped_bytes: usize,
        chunk: usize,
        spared: &[usize],
        pages_max: usize,
        spare: &mut Vec<Vec<u8>>,
    ) -> (Option<Copied>, bool) {
        if self.under_way().has(chunk) {
            return (None, true);
        }
        let first_page = (start as usize + chunk * CHUNK_BYTES) / self.page_bytes;
        let mut flags = vec![0u8; CHUNK_BYTES / self.page_bytes * 8];
        if has_child() || self.pagemap.read_exact_at(&mut flags, first_page as u64 * 8).is_err() {
            return (None, false);
        }
        let (runs, is_left) = self.written_runs(&flags, chunk, mapped_bytes, spared, pages_max);
        if runs.is_empty() {
            return (None, is_left);
        }
        let mut content = spare.pop().unwrap_or_default();
        content.clear();
        // Who holds the lock allocates nothing.
        content.reserve_exact(runs.iter().map(ExactSizeIterator::len).sum());
        let mut copied = Copied { chunk, runs, content, is_in_file: false };
        // SAFETY: by the caller's promise.
        let is_copied = unsafe { self.fill(start, &mut copied) };
        (is_copied.then_some(copied), is_left || !is_copied)
    }

    /// Where the written pages of a chunk lie, in bytes from the start, and whether others are left.
    fn written_runs(
        &self,
        flags: &[u8],
        chunk: usize,
        mapped_bytes: usize,
        spared: &[usize],
        pages_max: usize,
    ) -> (Vec<Range<usize>>, bool) {
        let (mut runs, mut pages, mut is_left) = (Vec::<Range<usize>>::new(), 0, false);
        for (i, _) in flags.chunks_exact(8).enumerate().filter(|(_, entry)| is_written(entry)) {
            let from = chunk * CHUNK_BYTES + i * self.page_bytes;
            let until = from + self.page_bytes;
            if until > mapped_bytes {
                break;
            }
            if pages == pages_max || spared.contains(&(from / self.page_bytes)) {
                is_left = true;
                continue;
            }
            pages += 1;
            match runs.last_mut().filter(|run| run.end == from) {
                Some(run) => run.end = until,
                None => runs.push(from..until),
            }
        }
        (runs, is_left)
    }

    /// Copies what the runs hold, and notes that the copy is under way. False where it may not be.
    ///
    /// # Safety
    /// As for [`FilePages::copy`].
    unsafe fn fill(&self, start: *mut u8, copied: &mut Copied) -> bool {
        let _held = lock_pages();
        let mut under_way = self.under_way();
        let Some(free) = under_way.free().filter(|_| !has_child()) else { return false };
        *free = copied.span();
        under_way.bytes += copied.bytes();
        for run in &copied.runs {
            // SAFETY: by the caller's promise; the lock keeps those away who drop pages.
            copied.content.extend_from_slice(unsafe { std::slice::from_raw_parts(start.add(run.start), run.len()) });
        }
        true
    }

    /// The pages of a copy that still hold what the file holds now are dropped from memory. Returns how many, and
    /// whether there are others.
    ///
    /// # Safety
    /// As for [`FilePages::copy`], which made it of the range from `start`.
    pub(super) unsafe fn drop_if_same(&self, start: *mut u8, copied: &Copied) -> (usize, bool) {
        let _held = lock_pages();
        let (mut dropped_bytes, mut is_left) = (0, false);
        for (run, content) in copied.parts().filter(|_| copied.is_in_file) {
            // SAFETY: by the caller's promise; the lock keeps those away who drop pages.
            let held = unsafe { std::slice::from_raw_parts(start.add(run.start), run.len()) };
            let pages = || held.chunks(self.page_bytes).zip(content.chunks(self.page_bytes));
            let mut at = 0;
            while at < run.len() {
                let is_same = |(now, then): &(&[u8], &[u8])| now == then;
                let same_pages = pages().skip(at / self.page_bytes).take_while(is_same).count();
                let same_bytes = same_pages * self.page_bytes;
                if same_bytes == 0 {
                    (is_left, at) = (true, at + self.page_bytes);
                    continue;
                }
                // SAFETY: these pages hold what the file holds, so dropping them changes nothing that is read.
                unsafe { libc::madvise(start.add(run.start + at).cast(), same_bytes, libc::MADV_DONTNEED) };
                (dropped_bytes, at) = (dropped_bytes + same_bytes, at + same_bytes);
            }
        }
        let mut under_way = self.under_way();
        under_way.bytes -= copied.bytes();
        if let Some(noted) = under_way.spans.iter_mut().find(|span| **span == copied.span()) {
            *noted = 0..0;
        }
        (dropped_bytes / self.page_bytes, is_left)
    }

    /// Pages with nothing in them become a hole of the file, and read as zeros afterwards. False where that can't be:
    /// while there may be a child or a copy is under way, and on file systems without holes.
    ///
    /// # Safety
    /// Nothing lies in these pages, which are mapped from the file at `offset`.
    pub(super) unsafe fn purge(&self, address: *mut u8, offset: usize, bytes: usize) -> bool {
        // A child may have been made while another thread held the lock, and would wait for it for good.
        if has_child() {
            return false;
        }
        let _held = lock_pages();
        if has_child() || self.under_way().bytes > 0 {
            return false;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (fd, at, bytes_there) = (self.file.as_raw_fd(), offset as libc::off_t, bytes as libc::off_t);
        // SAFETY: the file is ours; by the caller's promise nothing lies there.
        if unsafe { libc::fallocate(fd, mode, at, bytes_there) } != 0 {
            return false;
        }
        // SAFETY: by the caller's promise.
        unsafe { libc::madvise(address.cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }
}

/// Makes a file as long as that, or half as long, and so on, without a byte in it. Returns its length. More than the
/// process may write would end it.
fn lengthen(file: &File, bytes: usize) -> usize {
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills in the limits.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut most) } == 0;
    let bytes = if is_known { bytes.min(most.rlim_cur as usize) } else { bytes };
    let halves = std::iter::successors(Some(bytes), |bytes| Some(bytes / 2).filter(|&bytes| bytes > 0));
    halves.into_iter().find(|&bytes| file.set_len(bytes as u64).is_ok()).unwrap_or(0)
}

/// By its entry in the page map: in memory, and not as the file has it.
fn is_written(entry: &[u8]) -> bool {
    let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
    let (is_held, is_of_file) = (entry >> 62 != 0, entry >> 61 & 1 == 1);
    is_held && !is_of_file
}

/// True where the process may have a child that reads its memory.
#[inline]
pub fn has_child() -> bool {
    MAY_HAVE_CHILD.load(Ordering::Relaxed)
}

/// The server has no child any more; ten times a second.
pub fn settle_children(server: &Server) {
    if has_child() && !server.flags().has_child() {
        MAY_HAVE_CHILD.store(false, Ordering::Relaxed);
    }
}

/// From now on forks are noted before they happen, and happen while nobody is at work on pages.
pub(super) fn watch_forks() -> Result<(), String> {
    unsafe extern "C" fn before() {
        MAY_HAVE_CHILD.store(true, Ordering::Relaxed);
        // Who is at work already ends first; who begins later sees the child.
        drop(lock_pages());
    }
    if WATCHES_FORKS.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the handler stores and waits for a lock that nobody forks under; its code stays mapped.
    let status: c_int = unsafe { libc::pthread_atfork(Some(before), None, None) };
    if status == 0 { Ok(()) } else { Err("forks can't be watched".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of a chunk, mapped from the file.
    struct Chunk(*mut u8);

    // SAFETY: the test's threads take turns by its barriers, but for those that the lock keeps apart.
    unsafe impl Sync for Chunk {}

    impl Chunk {
        fn map(pages: &FilePages) -> Chunk {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: new addresses.
            let found = unsafe { libc::mmap(std::ptr::null_mut(), CHUNK_BYTES, libc::PROT_NONE, flags, -1, 0) };
            assert_ne!(found, libc::MAP_FAILED);
            // SAFETY: they are ours, and empty.
            unsafe { pages.map(found.cast(), 0, CHUNK_BYTES) }.unwrap();
            Chunk(found.cast())
        }

        fn bytes(&self) -> &[u8] {
            // SAFETY: so many are mapped, for good.
            unsafe { std::slice::from_raw_parts(self.0, CHUNK_BYTES) }
        }

        /// Writes to some pages from the first on.
        fn write(&self, byte: u8, bytes: usize) {
            // SAFETY: mapped as above; nobody else writes.
            unsafe { self.0.write_bytes(byte, bytes) };
        }

        fn copy(&self, pages: &FilePages, spared: &[usize], pages_max: usize) -> (Option<Copied>, bool) {
            // SAFETY: mapped as above; nobody else writes.
            unsafe { pages.copy(self.0, CHUNK_BYTES, 0, spared, pages_max, &mut Vec::new()) }
        }

        /// Has the copy written, and drops its pages.
        fn put(&self, pages: &FilePages, mut copied: Copied) -> (usize, bool) {
            let in_file = copied.parts().try_for_each(|(run, part)| pages.file.write_all_at(part, run.start as u64));
            copied.is_in_file = in_file.is_ok();
            // SAFETY: as above.
            unsafe { pages.drop_if_same(self.0, &copied) }
        }
    }

    /// A thread that frees values purges their pages while the main thread puts them into the file: they read as
    /// zeros afterwards.
    #[test]
    fn what_is_purged_while_it_is_flushed_stays_zero() {
        let pages = FilePages::of(tempfile::tempfile().unwrap(), CHUNK_BYTES).unwrap();
        let chunk = Chunk::map(&pages);
        let (begin, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        const ROUNDS: usize = 100;
        let mut stale = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let whole = &chunk;
                for _ in 0..ROUNDS {
                    begin.wait();
                    // Page by page: what goes wrong does so between two steps of one purge.
                    for at in (0..CHUNK_BYTES).step_by(pages.page_bytes) {
                        // SAFETY: nothing that anybody needs lies there.
                        while !unsafe { pages.purge(whole.0.add(at), at, pages.page_bytes) } {
                            std::thread::yield_now();
                        }
                    }
                    end.wait();
                }
            });
            for round in 0..ROUNDS {
                chunk.write(round as u8 | 1, CHUNK_BYTES);
                begin.wait();
                if let (Some(copied), _) = chunk.copy(&pages, &[], usize::MAX) {
                    chunk.put(&pages, copied);
                }
                end.wait();
                stale += chunk.bytes().iter().filter(|byte| **byte != 0).count();
            }
        });
        assert_eq!(stale, 0, "bytes came back");
    }

    #[test]
    fn what_is_put_into_the_file_reads_the_same_but_for_what_is_spared() {
        let pages = FilePages::of(tempfile::tempfile().unwrap(), CHUNK_BYTES).unwrap();
        let chunk = Chunk::map(&pages);
        let put = |spared: &[usize], pages_max| {
            let (copied, is_left) = chunk.copy(&pages, spared, pages_max);
            (copied.map(|copied| chunk.put(&pages, copied)), is_left)
        };
        chunk.write(7, 3 * pages.page_bytes);
        assert_eq!(put(&[1], usize::MAX), (Some((2, false)), true));
        assert!(chunk.bytes()[..3 * pages.page_bytes].iter().all(|byte| *byte == 7));
        let mut held = vec![0; 3 * pages.page_bytes];
        pages.file.read_exact_at(&mut held, 0).unwrap();
        assert_eq!(held.iter().filter(|byte| **byte == 7).count(), 2 * pages.page_bytes);
        assert_eq!(put(&[], usize::MAX), (Some((1, false)), false));
        assert_eq!(put(&[], usize::MAX), (None, false));
        chunk.write(8, 3 * pages.page_bytes);
        assert_eq!(put(&[], 1), (Some((1, false)), true), "so many, and the others are left");
        assert_eq!(put(&[], usize::MAX), (Some((2, false)), false));
    }

    /// A value is written to, or its page purged, while a copy of the page is on its way into the file.
    #[test]
    fn what_is_written_meanwhile_stays_in_memory_and_nothing_is_purged() {
        let pages = FilePages::of(tempfile::tempfile().unwrap(), CHUNK_BYTES).unwrap();
        let chunk = Chunk::map(&pages);
        // SAFETY: nothing that anybody needs lies there.
        let purge = |page: usize| unsafe {
            let at = page * pages.page_bytes;
            pages.purge(chunk.0.add(at), at, pages.page_bytes)
        };
        chunk.write(7, 3 * pages.page_bytes);
        let copied = chunk.copy(&pages, &[], usize::MAX).0.unwrap();
        assert!(matches!(chunk.copy(&pages, &[], usize::MAX), (None, true)), "one copy of a chunk at a time");
        assert!((0..5).all(|page| !purge(page)));
        chunk.write(8, 1);
        assert_eq!(chunk.put(&pages, copied), (2, true));
        assert_eq!((chunk.bytes()[0], chunk.bytes()[1]), (8, 7));
        assert!(purge(0) && chunk.bytes()[0] == 0);
        let (copied, is_left) = chunk.copy(&pages, &[], usize::MAX);
        assert!(copied.is_none() && !is_left, "all is in the file");
    }

    /// To make it longer would wait for what is being written to it.
    #[test]
    fn the_file_is_as_long_from_the_start_as_it_gets() {
        let pages = FilePages::of(tempfile::tempfile().unwrap(), CHUNK_BYTES).unwrap();
        let chunk = Chunk::map(&pages);
        assert_eq!(pages.file.metadata().unwrap().len(), CHUNK_BYTES as u64);
        // SAFETY: refused, else in place of addresses that are the test's.
        let refused = unsafe { pages.map(chunk.0, CHUNK_BYTES, CHUNK_BYTES) }.unwrap_err();
        assert!(refused.to_string().contains("2097152 bytes"), "{refused}");
        let longer = tempfile::tempfile().unwrap();
        let bytes = lengthen(&longer, usize::MAX / 2);
        assert_eq!(longer.metadata().unwrap().len(), bytes as u64, "as long as this file system has any");
        assert!(bytes >= CHUNK_BYTES);
    }

    #[test]
    fn so_many_copies_are_under_way_and_no_more() {
        let pages = FilePages::of(tempfile::tempfile().unwrap(), CHUNK_BYTES).unwrap();
        let chunk = Chunk::map(&pages);
        chunk.write(7, 1);
        pages.under_way().bytes = UNDER_WAY_BYTES;
        assert!(!pages.has_room() && matches!(chunk.copy(&pages, &[], 1), (None, true)));
        pages.under_way().bytes = 0;
        pages.under_way().spans = [const { CHUNK_BYTES..CHUNK_BYTES + 1 }; UNDER_WAY_MAX];
        assert!(!pages.has_room() && matches!(chunk.copy(&pages, &[], 1), (None, true)));
    }
}
