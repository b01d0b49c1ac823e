//! The slow tier's memory: a range of addresses reserved once, pages of it taken as an arena of the server's allocator asks for them.
//!
//! One range makes "does this value lie in the slow tier?" a comparison of addresses. What backs its pages is the place: ordinary memory,
//! memory of a NUMA node (the kernel takes others' where that has none left), or a file.
//!
//! **A file is mapped privately, and written by us.** Mapped shared, a value that is overwritten while the server's child saves would change
//! in the child as well. Privately, what is written stays in memory of the process until [`SlowMemory::flush`] puts it into the file and
//! drops the copy: what the page reads afterwards is the file's. None of that happens while there is a child, nor are holes
//! punched then, so the child sees the memory of the moment when it was made, as with ordinary memory. Which pages are written but not
//! flushed the kernel tells (`/proc/self/pagemap`, bit 61).
//!
//! The arena stays for as long as the process lives, and this library with it: values may lie there, and jemalloc calls the hooks.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io, ptr};

use super::jemalloc::{ArenaId, ArenaUse, Jemalloc, page_bytes};
use super::server::{Server, Text};
use super::{MainThread, bus, numa};
use crate::features::tiers::place::Place;

/// Addresses reserved, less where the process may not have so many.
const RESERVED_BYTES: usize = 1 << 40;
const RESERVED_BYTES_MIN: usize = 1 << 32;
/// Pages are taken in steps of this.
const STEP_BYTES: usize = 64 << 20;
/// What is flushed is found in steps of this.
const CHUNK_BYTES: usize = 2 << 20;
/// More of them wait than the flush should leave.
const CHUNKS_BEHIND: usize = 4;
/// Pages that took values last are left until others did: the next values go there too.
const RECENT: usize = 16;
/// A string of so many bytes has an object of its own, on servers that put short ones into theirs, and passes through the thread's cache.
const OWN_OBJECT_BYTES: usize = 200;
/// What a test allocation takes: beyond any thread cache that is let through.
const TEST_BYTES: usize = 8192;

/// Set before the process forks, cleared once there is no child: see the file's opening.
static MAY_HAVE_CHILD: AtomicBool = AtomicBool::new(false);
static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);
/// Every tier that was ever opened, for good: hooks are called with it.
static OPENED: Mutex<Vec<&'static SlowMemory>> = Mutex::new(Vec::new());

type Hooks = *mut SlowMemory;

/// jemalloc's `extent_hooks_t`. Those left out it does without.
#[repr(C)]
struct ExtentHooks {
    alloc: unsafe extern "C" fn(Hooks, *mut c_void, usize, usize, *mut bool, *mut bool, c_uint) -> *mut c_void,
    dalloc: unsafe extern "C" fn(Hooks, *mut c_void, usize, bool, c_uint) -> bool,
    destroy: usize,
    commit: usize,
    decommit: usize,
    purge_lazy: usize,
    purge_forced: unsafe extern "C" fn(Hooks, *mut c_void, usize, usize, usize, c_uint) -> bool,
    split: unsafe extern "C" fn(Hooks, *mut c_void, usize, usize, usize, bool, c_uint) -> bool,
    merge: unsafe extern "C" fn(Hooks, *mut c_void, usize, *mut c_void, usize, bool, c_uint) -> bool,
}

/// How much of the range is in use.
#[derive(Debug)]
struct Taken {
    /// The next free address, from the start.
    next: usize,
    /// Pages below this can be written.
    mapped: usize,
}

/// The memory and its arena. See the file's opening.
#[repr(C)]
pub struct SlowMemory {
    /// First: jemalloc passes a pointer to it, which is one to all of this.
    hooks: ExtentHooks,
    place: Place,
    start: *mut u8,
    reserved_bytes: usize,
    file: Option<File>,
    pagemap: Option<File>,
    taken: Mutex<Taken>,
    jemalloc: Jemalloc,
    arena: Mutex<Option<ArenaId>>,
    /// Bytes that the place could not give, which lie in ordinary memory.
    elsewhere_bytes: AtomicU64,
    foreign: Mutex<numa::Foreign>,
    /// Bytes that lie on other nodes, estimated.
    foreign_bytes: AtomicU64,
    written: Mutex<Written>,
    page_bytes: usize,
    /// Pages flushed so far.
    flushed: AtomicUsize,
    /// Values came since the last flush.
    wants_flush: AtomicBool,
}

// SAFETY: what changes is behind locks or atomic; the range is reserved for good.
unsafe impl Sync for SlowMemory {}
// SAFETY: as above.
unsafe impl Send for SlowMemory {}

/// Which parts of a file's pages may have been written since they were flushed.
#[derive(Default)]
struct Written {
    /// Chunks that took values.
    chunks: std::collections::VecDeque<usize>,
    /// Pages that took the last ones.
    recent: [usize; RECENT],
    n: usize,
    /// Where the search for what the server wrote by itself stands.
    cursor: usize,
}

impl SlowMemory {
    /// The memory at `place`: that of an earlier call, or new.
    ///
    /// # Errors
    /// Why there is none, as a sentence.
    pub fn open(server: &Server, place: &Place) -> Result<&'static SlowMemory, String> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = opened.iter().find(|held| held.place == *place) {
            held.check(server)?;
            return Ok(held);
        }
        let jemalloc = Jemalloc::find()?;
        if !bus::stay_mapped() {
            return Err("the library can't be kept in memory".to_owned());
        }
        watch_forks()?;
        let memory: &'static SlowMemory = Box::leak(Box::new(SlowMemory::reserve(jemalloc, place)?));
        let hooks = ptr::from_ref(memory).cast_mut().cast();
        // SAFETY: the hooks are the first field of what lives for good, in a library that stays mapped.
        let arena = unsafe { jemalloc.create_arena(hooks, memory.file.is_some()) }?;
        *memory.arena.lock().unwrap_or_else(PoisonError::into_inner) = Some(arena);
        memory.check(server)?;
        opened.push(memory);
        Ok(memory)
    }

    fn reserve(jemalloc: Jemalloc, place: &Place) -> Result<SlowMemory, String> {
        let file = match place {
            Place::File(path) => Some(make_file(path)?),
            _ => None,
        };
        let pagemap = file.as_ref().map(|_| File::open("/proc/self/pagemap"));
        let pagemap = pagemap.transpose().map_err(|why| format!("/proc/self/pagemap can't be read: {why}"))?;
        let (start, reserved_bytes) = reserve_addresses()?;
        let hooks = ExtentHooks {
            alloc: on_alloc,
            dalloc: on_dalloc,
            destroy: 0,
            commit: 0,
            decommit: 0,
            purge_lazy: 0,
            purge_forced: on_purge,
            split: on_split,
            merge: on_merge,
        };
        let memory = SlowMemory {
            hooks,
            place: place.clone(),
            start,
            reserved_bytes,
            file,
            pagemap,
            taken: Mutex::new(Taken { next: 0, mapped: 0 }),
            jemalloc,
            arena: Mutex::new(None),
            elsewhere_bytes: AtomicU64::new(0),
            foreign: Mutex::new(numa::Foreign::new()),
            foreign_bytes: AtomicU64::new(0),
            written: Mutex::default(),
            page_bytes: page_bytes(),
            flushed: AtomicUsize::new(0),
            wants_flush: AtomicBool::new(false),
        };
        // A place that gives nothing is told now and not by the first value.
        let mut taken = memory.taken.lock().unwrap_or_else(PoisonError::into_inner);
        memory.map_to(&mut taken, 1).map_err(|why| format!("{place} gives no memory: {why}"))?;
        drop(taken);
        Ok(memory)
    }

    /// Whether what is allocated under the arena lies in the range, and nothing else does.
    fn check(&self, server: &Server) -> Result<(), String> {
        let inside =
            self.within(server, || Sample::new(TEST_BYTES)).ok_or("jemalloc doesn't let the arena be chosen")?;
        if !self.contains(inside.0) {
            return Err("the server's own allocations don't come from the arena that is chosen".to_owned());
        }
        // SAFETY: the sample is as large as that, and nobody else's.
        unsafe { inside.0.write_bytes(1, TEST_BYTES) };
        self.check_node(inside.0)?;
        drop(inside);
        let outside = Sample::new(TEST_BYTES);
        if self.contains(outside.0) {
            return Err("a thread cache mixes the tiers".to_owned());
        }
        Ok(())
    }

    /// Whether a page that was written lies on the node.
    fn check_node(&self, address: *mut u8) -> Result<(), String> {
        let Place::Numa(node) = self.place else { return Ok(()) };
        match numa::nodes_of(&[address.cast_const().cast()]) {
            [found] if found >= 0 && found != node as c_int => {
                Err(format!("node {node} has no memory left: the kernel takes that of node {found}"))
            }
            _ => Ok(()),
        }
    }

    /// Runs `body` while what the main thread allocates beyond its cache comes from here; `None`, without running it, where jemalloc
    /// refuses.
    pub fn within<R>(&self, proof: &impl MainThread, body: impl FnOnce() -> R) -> Option<R> {
        let arena = (*self.arena.lock().unwrap_or_else(PoisonError::into_inner))?;
        self.jemalloc.within(proof, arena, body)
    }

    /// `n` server strings of these bytes that lie here, with their objects, as any, in ordinary memory; none at all where that can't be done. They have to be longer than what passes through thread caches.
    pub(super) fn strings(&self, server: &Server, bytes: &[u8], n: usize) -> Vec<Text> {
        let make = |bytes: &[u8]| (0..n).map(|_| server.text(bytes)).collect::<Vec<Text>>();
        // Objects are small and come from the thread's cache. An empty cache would be filled from here, so as many are put back there before.
        drop(make(&[0; OWN_OBJECT_BYTES]));
        let strings = self.within(server, || make(bytes)).unwrap_or_default();
        if strings.iter().any(|string| self.contains(string.object())) {
            drop(strings);
            self.jemalloc.flush_cache(server);
            return Vec::new();
        }
        let lies_here = |string: &Text| self.contains(string.as_ref().as_ptr());
        if strings.iter().all(lies_here) { strings } else { Vec::new() }
    }

    /// Whether an address lies here.
    #[inline]
    pub fn contains(&self, address: *const u8) -> bool {
        (address as usize).wrapping_sub(self.start as usize) < self.reserved_bytes
    }

    /// What it holds, as of now. Tens of microseconds.
    pub fn used(&self) -> ArenaUse {
        self.jemalloc.refresh();
        let arena = *self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        arena.map(|arena| self.jemalloc.arena_use(arena)).unwrap_or_default()
    }

    /// Where it lies.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Bytes that the place could not give, which lie in ordinary memory instead; those on other nodes are estimated.
    pub fn elsewhere_bytes(&self) -> u64 {
        self.elsewhere_bytes.load(Ordering::Relaxed) + self.foreign_bytes.load(Ordering::Relaxed)
    }

    /// Ten times a second: how much of the `active_bytes` in use lies on other nodes than the one asked for.
    pub fn look_at_nodes(&self, active_bytes: u64) {
        let Place::Numa(node) = self.place else { return };
        let end = self.taken.lock().unwrap_or_else(PoisonError::into_inner).next;
        let share = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).look(self.start, end, node);
        self.foreign_bytes.store((share * active_bytes as f64) as u64, Ordering::Relaxed);
    }

    /// True where pages are to be flushed, and may be.
    pub fn wants_flush(&self) -> bool {
        self.wants_flush.load(Ordering::Relaxed) && !has_child()
    }

    /// True where so much was written that isn't in the file yet that memory fills with it.
    pub fn is_behind(&self) -> bool {
        self.wants_flush() && self.written.lock().unwrap_or_else(PoisonError::into_inner).chunks.len() > CHUNKS_BEHIND
    }

    /// Pages that were put into the file so far.
    pub fn flushed_pages(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed) as u64
    }

    /// A value has been put at `address`: its pages are to be flushed.
    pub fn took(&self, address: *const u8, bytes: usize) {
        if self.file.is_none() || !self.contains(address) {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let first = address as usize - self.start as usize;
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

    /// Puts what was written into the file, about `pages_max` pages of it, and lets go of the copies in memory. Returns how many pages.
    /// About 2 µs a page, on the main thread: no other writes to values. With `search`, what the server wrote by itself is looked for too,
    /// a little each time. Does nothing while there may be a child.
    pub fn flush(&self, _proof: &impl MainThread, pages_max: usize, search: bool) -> usize {
        let (Some(file), Some(pagemap)) = (&self.file, &self.pagemap) else { return 0 };
        if has_child() {
            return 0;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.taken.lock().unwrap_or_else(PoisonError::into_inner).next;
        let mut flushed = 0;
        let due = written.chunks.len();
        if search {
            written.cursor = (written.cursor + 1) % (end / CHUNK_BYTES + 1);
            let chunk = written.cursor;
            flushed += self.flush_chunk(file, pagemap, chunk, &written.recent, pages_max).0;
        }
        for _ in 0..due {
            if flushed >= pages_max {
                break;
            }
            let Some(chunk) = written.chunks.pop_front() else { break };
            let (done, is_left) = self.flush_chunk(file, pagemap, chunk, &written.recent, pages_max - flushed);
            flushed += done;
            if is_left && !written.chunks.contains(&chunk) {
                written.chunks.push_back(chunk);
            }
        }
        self.wants_flush.store(flushed >= pages_max, Ordering::Relaxed);
        self.flushed.fetch_add(flushed, Ordering::Relaxed);
        flushed
    }

    /// One chunk: how many pages were flushed, and whether some are left.
    fn flush_chunk(&self, file: &File, pagemap: &File, chunk: usize, spared: &[usize], max: usize) -> (usize, bool) {
        let pages = CHUNK_BYTES / self.page_bytes;
        let mut flags = vec![0u8; pages * 8];
        let first_page = self.start as usize / self.page_bytes + chunk * pages;
        if pagemap.read_exact_at(&mut flags, first_page as u64 * 8).is_err() {
            return (0, false);
        }
        let is_written = |i: usize| {
            let bytes = flags[i * 8..i * 8 + 8].try_into().unwrap_or_default();
            let (is_held, is_of_file) =
                (u64::from_le_bytes(bytes) >> 62 != 0, u64::from_le_bytes(bytes) >> 61 & 1 == 1);
            is_held && !is_of_file
        };
        let (mut done, mut is_left, mut i) = (0, false, 0);
        while i < pages {
            let from = i;
            let is_spared = |i: usize| spared.contains(&(chunk * pages + i));
            while i < pages && is_written(i) && !is_spared(i) && done + (i - from) < max {
                i += 1;
            }
            if i > from {
                match self.flush_pages(file, (chunk * pages + from) * self.page_bytes, (i - from) * self.page_bytes) {
                    Ok(()) => done += i - from,
                    // The disk is full, say: what was written stays in memory.
                    Err(_) => return (done, false),
                }
            } else {
                is_left |= is_written(i);
                i += 1;
            }
        }
        (done, is_left)
    }

    fn flush_pages(&self, file: &File, offset: usize, bytes: usize) -> io::Result<()> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = bytes.min(taken.mapped.saturating_sub(offset));
        drop(taken);
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: these pages are mapped for good; values in them are written by the main thread only, which is here.
        let content = unsafe { std::slice::from_raw_parts(self.start.add(offset), bytes) };
        file.write_all_at(content, offset as u64)?;
        // SAFETY: the pages hold what the file holds now, so dropping the copies changes nothing that is read.
        unsafe { libc::madvise(self.start.add(offset).cast(), bytes, libc::MADV_DONTNEED) };
        Ok(())
    }

    /// Makes pages up to `end` from the start usable.
    fn map_to(&self, taken: &mut Taken, end: usize) -> io::Result<()> {
        if end <= taken.mapped {
            return Ok(());
        }
        let until = end.next_multiple_of(STEP_BYTES).min(self.reserved_bytes);
        let (from, bytes) = (taken.mapped, until - taken.mapped);
        // SAFETY: within the reserved range.
        let address = unsafe { self.start.add(from) }.cast::<c_void>();
        match &self.file {
            Some(file) => {
                // SAFETY: the file is open; it only grows.
                check(unsafe { libc::ftruncate(file.as_raw_fd(), until as libc::off_t) })?;
                let (rights, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE);
                let (fd, offset) = (file.as_raw_fd(), from as libc::off_t);
                // SAFETY: takes the place of addresses that were reserved and never used.
                if unsafe { libc::mmap(address, bytes, rights, flags, fd, offset) } == libc::MAP_FAILED {
                    return Err(io::Error::last_os_error());
                }
                // SAFETY: as above; the disk would read ahead megabytes otherwise.
                unsafe { libc::madvise(address, bytes, libc::MADV_RANDOM) };
            }
            // SAFETY: within the reserved range.
            None => check(unsafe { libc::mprotect(address, bytes, libc::PROT_READ | libc::PROT_WRITE) })?,
        }
        if let Place::Numa(node) = self.place {
            numa::prefer(address, bytes, node)?;
        }
        // SAFETY: as above; a core dump of a crash needn't hold the cache.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTDUMP) };
        taken.mapped = until;
        Ok(())
    }

    /// A piece of the range.
    fn take(&self, wanted: *mut u8, bytes: usize, alignment: usize) -> Option<*mut u8> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Addresses, not offsets, are to be aligned; the range begins at a multiple of two megabytes.
        let offset = (self.start as usize + taken.next).next_multiple_of(alignment) - self.start as usize;
        let end = offset.checked_add(bytes).filter(|end| *end <= self.reserved_bytes)?;
        // SAFETY: within the reserved range.
        let address = unsafe { self.start.add(offset) };
        if !wanted.is_null() && wanted != address {
            return None;
        }
        self.map_to(&mut taken, end).ok()?;
        taken.next = end;
        Some(address)
    }
}

/// Memory of the server's allocator, as a value would have it.
struct Sample(*mut u8, std::alloc::Layout);

impl Sample {
    fn new(bytes: usize) -> Sample {
        let layout = std::alloc::Layout::from_size_align(bytes, 8).unwrap_or(std::alloc::Layout::new::<u64>());
        // SAFETY: the layout is not empty.
        Sample(unsafe { std::alloc::alloc(layout) }, layout)
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with that layout.
        unsafe { std::alloc::dealloc(self.0, self.1) };
    }
}

/// True where the process may have a child that reads its memory.
pub fn has_child() -> bool {
    MAY_HAVE_CHILD.load(Ordering::Relaxed)
}

/// The server has no child any more; ten times a second.
pub fn settle_children(server: &Server) {
    if has_child() && !server.flags().has_child() {
        MAY_HAVE_CHILD.store(false, Ordering::Relaxed);
    }
}

/// From now on forks are noted before they happen: a thread that frees memory must not punch a hole that the child reads.
fn watch_forks() -> Result<(), String> {
    unsafe extern "C" fn before() {
        MAY_HAVE_CHILD.store(true, Ordering::Relaxed);
    }
    if WATCHES_FORKS.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the handler only stores, and its code stays mapped.
    match unsafe { libc::pthread_atfork(Some(before), None, None) } {
        0 => Ok(()),
        _ => Err("forks can't be watched".to_owned()),
    }
}

fn check(status: c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn reserve_addresses() -> Result<(*mut u8, usize), String> {
    let mut bytes = RESERVED_BYTES;
    loop {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new addresses, which nothing can be read from or written to.
        let found = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if found != libc::MAP_FAILED {
            // A piece of two megabytes is given up so that the rest begins at a multiple of them.
            let start = (found as usize).next_multiple_of(CHUNK_BYTES);
            return Ok((start as *mut u8, bytes - CHUNK_BYTES));
        }
        if bytes == RESERVED_BYTES_MIN {
            return Err(format!("no addresses can be reserved: {}", io::Error::last_os_error()));
        }
        bytes /= 2;
    }
}

/// A new file without a name: what it takes is free again when the server ends, however it does.
fn make_file(path: &Path) -> Result<File, String> {
    let path = if path.is_dir() { path.join(format!("tenure-slow-{}", std::process::id())) } else { path.to_owned() };
    let wrong = |what: &str, why: io::Error| format!("{what} {}: {why}", path.display());
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).map_err(|why| match why.kind() {
        io::ErrorKind::AlreadyExists => format!("{} is there already, and Tenure makes its own file", path.display()),
        _ => wrong("can't make", why),
    })?;
    fs::remove_file(&path).map_err(|why| wrong("can't remove the name of", why))?;
    Ok(file)
}

unsafe extern "C" fn on_alloc(
    memory: Hooks,
    wanted: *mut c_void,
    bytes: usize,
    alignment: usize,
    zeroed: *mut bool,
    committed: *mut bool,
    _arena: c_uint,
) -> *mut c_void {
    // SAFETY: jemalloc passes the hooks that it was given, which are the first field of what lives for good.
    let memory = unsafe { &*memory };
    let piece = memory.take(wanted.cast(), bytes, alignment).map(|piece| piece.cast::<c_void>());
    let piece = piece.or_else(|| {
        // Without memory the server would end; with other memory it serves on, and INFO says so.
        let other = wanted.is_null().then(|| ordinary_memory(bytes, alignment)).flatten();
        memory.elsewhere_bytes.fetch_add(other.map_or(0, |_| bytes as u64), Ordering::Relaxed);
        other
    });
    if piece.is_some() {
        // SAFETY: jemalloc passes two flags to fill in; nothing was written to either kind of memory yet.
        unsafe { (*zeroed, *committed) = (true, true) };
    }
    piece.unwrap_or(ptr::null_mut())
}

fn ordinary_memory(bytes: usize, alignment: usize) -> Option<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let length = bytes.checked_add(alignment)?;
    // SAFETY: new addresses.
    let found = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (found != libc::MAP_FAILED).then(|| (found as usize).next_multiple_of(alignment) as *mut c_void)
}

/// Nothing is given back but pages: jemalloc keeps the addresses and uses them again.
unsafe extern "C" fn on_dalloc(_: Hooks, _: *mut c_void, _: usize, _: bool, _: c_uint) -> bool {
    true
}

unsafe extern "C" fn on_purge(
    memory: Hooks,
    address: *mut c_void,
    _: usize,
    offset: usize,
    bytes: usize,
    _: c_uint,
) -> bool {
    // SAFETY: as in `on_alloc`.
    let memory = unsafe { &*memory };
    // SAFETY: jemalloc asks for a part of what it was given.
    let address = unsafe { address.cast::<u8>().add(offset) };
    if let Some(file) = memory.file.as_ref().filter(|_| memory.contains(address)) {
        if has_child() {
            return true;
        }
        let at = (address as usize - memory.start as usize) as libc::off_t;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the file is ours, and nothing lies there.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, at, bytes as libc::off_t) } != 0 {
            return true;
        }
    }
    // SAFETY: nothing lies there; the pages read as zeros afterwards.
    unsafe { libc::madvise(address.cast(), bytes, libc::MADV_DONTNEED) != 0 }
}

unsafe extern "C" fn on_split(_: Hooks, _: *mut c_void, _: usize, _: usize, _: usize, _: bool, _: c_uint) -> bool {
    false
}

/// Pieces of the range and ordinary memory are never neighbours that may be one.
unsafe extern "C" fn on_merge(
    memory: Hooks,
    one: *mut c_void,
    _: usize,
    other: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    // SAFETY: as in `on_alloc`.
    let memory = unsafe { &*memory };
    memory.contains(one.cast()) != memory.contains(other.cast())
}
