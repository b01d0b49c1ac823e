//! Pages of the slow tier that lie in a file: put there by us, dropped from memory, and given back as holes.
//!
//! Mapped privately, what is written stays in memory of the process until `FilePages::flush` puts it into the file
//! and drops the copy. Which pages were written and not flushed the kernel tells (`/proc/self/pagemap`, bit 61).
//!
//! Two threads meet here: the main one, which flushes, and the server's own, which frees and so purges. What one
//! copies the other may not drop meanwhile, or stale bytes come back in pages that jemalloc takes for zeroed. So both
//! hold `PAGES`, and a fork waits until nobody does: after it no hole is punched that the child would read.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::jemalloc::page_bytes;
use super::server::Server;

/// What is flushed is found in steps of this.
pub(super) const CHUNK_BYTES: usize = 2 << 20;

/// Held while pages are copied, punched or dropped. Whoever holds it allocates nothing: jemalloc may purge from
/// within an allocation.
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
    pub(super) file: File,
    pagemap: File,
    page_bytes: usize,
}

impl FilePages {
    /// # Errors
    /// Why written pages can't be told from others, as a sentence.
    pub(super) fn of(file: File) -> Result<FilePages, String> {
        let pagemap =
            File::open("/proc/self/pagemap").map_err(|why| format!("/proc/self/pagemap can't be read: {why}"))?;
        Ok(FilePages { file, pagemap, page_bytes: page_bytes() })
    }

    /// Maps `bytes` of the file from `offset`, in place of those addresses.
    ///
    /// # Safety
    /// The addresses are ours, and nothing lies there.
    pub(super) unsafe fn map(&self, address: *mut u8, offset: usize, bytes: usize) -> io::Result<()> {
        // SAFETY: the file is open; it only grows.
        check(unsafe { libc::ftruncate(self.file.as_raw_fd(), (offset + bytes) as libc::off_t) })?;
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

    /// One chunk of the range from `start`, of which `mapped_bytes` are the file's: how many pages were flushed, at
    /// the most `max`, and whether some are left. Those `spared` are passed over, counted from the start. Ends where
    /// the disk keeps it waiting: after the write that was under way at `until`.
    ///
    /// # Safety
    /// The pages are mapped from the file at their distance from `start`, and nobody writes to values in them
    /// meanwhile.
    pub(super) unsafe fn flush(
        &self,
        start: *mut u8,
        mapped_bytes: usize,
        chunk: usize,
        spared: &[usize],
        (max, until): (usize, Instant),
    ) -> (usize, bool) {
        let pages = CHUNK_BYTES / self.page_bytes;
        let mut flags = vec![0u8; pages * 8];
        let held = lock_pages();
        let first_page = start as usize / self.page_bytes + chunk * pages;
        if has_child() || self.pagemap.read_exact_at(&mut flags, first_page as u64 * 8).is_err() {
            return (0, false);
        }
        let is_mapped = |i: usize| (chunk * pages + i + 1) * self.page_bytes <= mapped_bytes;
        let is_written = |i: usize| is_mapped(i) && is_written(&flags[i * 8..i * 8 + 8]);
        let is_spared = |i: usize| spared.contains(&(chunk * pages + i));
        let (mut done, mut is_left, mut i) = (0, false, 0);
        while i < pages {
            let from = i;
            while i < pages && is_written(i) && !is_spared(i) && done + (i - from) < max {
                i += 1;
            }
            if i > from {
                let offset = (chunk * pages + from) * self.page_bytes;
                // SAFETY: by the caller's promise; the lock keeps those away who drop pages.
                match unsafe { self.write_back(start, offset, (i - from) * self.page_bytes, &held) } {
                    Ok(()) => done += i - from,
                    // The disk is full, say: what was written stays in memory.
                    Err(_) => return (done, false),
                }
                if Instant::now() >= until {
                    return (done, true);
                }
            } else {
                is_left |= is_written(i);
                i += 1;
            }
        }
        (done, is_left)
    }

    /// # Safety
    /// As for `FilePages::flush`.
    unsafe fn write_back(&self, start: *mut u8, offset: usize, bytes: usize, _: &MutexGuard<()>) -> io::Result<()> {
        // SAFETY: by the caller's promise.
        let content = unsafe { std::slice::from_raw_parts(start.add(offset), bytes) };
        self.file.write_all_at(content, offset as u64)?;
        // SAFETY: the pages hold what the file holds now, so dropping the copies changes nothing that is read.
        unsafe { libc::madvise(start.add(offset).cast(), bytes, libc::MADV_DONTNEED) };
        Ok(())
    }

    /// Pages with nothing in them become a hole of the file, and read as zeros afterwards. False where that can't be:
    /// while there may be a child, and on file systems without holes.
    ///
    /// # Safety
    /// Nothing lies in these pages, which are mapped from the file at `offset`.
    pub(super) unsafe fn purge(&self, address: *mut u8, offset: usize, bytes: usize) -> bool {
        let _held = lock_pages();
        if has_child() {
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

    fn later() -> Instant {
        Instant::now() + std::time::Duration::from_secs(3600)
    }

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
    }

    /// A thread that frees values purges their pages while the main thread puts them into the file: they read as
    /// zeros afterwards.
    #[test]
    fn what_is_purged_while_it_is_flushed_stays_zero() {
        let pages = FilePages::of(tempfile::tempfile().unwrap()).unwrap();
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
                    let purged = (0..CHUNK_BYTES).step_by(pages.page_bytes).all(|at| {
                        // SAFETY: nothing that anybody needs lies there.
                        unsafe { pages.purge(whole.0.add(at), at, pages.page_bytes) }
                    });
                    end.wait();
                    assert!(purged, "the file system has no holes");
                }
            });
            for round in 0..ROUNDS {
                // SAFETY: the other thread waits.
                unsafe { chunk.0.write_bytes(round as u8 | 1, CHUNK_BYTES) };
                begin.wait();
                // SAFETY: mapped as above, and written to before only.
                unsafe { pages.flush(chunk.0, CHUNK_BYTES, 0, &[], (usize::MAX, later())) };
                end.wait();
                stale += chunk.bytes().iter().filter(|byte| **byte != 0).count();
            }
        });
        assert_eq!(stale, 0, "bytes came back");
    }

    #[test]
    fn what_is_flushed_reads_the_same_and_is_in_the_file_but_for_what_is_spared() {
        let pages = FilePages::of(tempfile::tempfile().unwrap()).unwrap();
        let chunk = Chunk::map(&pages);
        // SAFETY: mapped above.
        unsafe { chunk.0.write_bytes(7, 3 * pages.page_bytes) };
        // SAFETY: as above.
        let flush_until =
            |until, spared: &[usize]| unsafe { pages.flush(chunk.0, CHUNK_BYTES, 0, spared, (usize::MAX, until)) };
        let flush = |spared: &[usize]| flush_until(later(), spared);
        assert_eq!(flush(&[1]), (2, true));
        assert!(chunk.bytes()[..3 * pages.page_bytes].iter().all(|byte| *byte == 7));
        let mut held = vec![0; 3 * pages.page_bytes];
        pages.file.read_exact_at(&mut held, 0).unwrap();
        assert_eq!(held.iter().filter(|byte| **byte == 7).count(), 2 * pages.page_bytes);
        assert_eq!(flush(&[]), (1, false));
        // SAFETY: as above.
        unsafe { chunk.0.write_bytes(8, 3 * pages.page_bytes) };
        assert_eq!(flush_until(Instant::now(), &[1]), (1, true), "one write, and what comes after it is left");
        assert_eq!(flush(&[]), (2, false));
    }
}
