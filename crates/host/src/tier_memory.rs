//! The slow tier's memory: a range of addresses reserved once, pages of it taken as an arena of the server's
//! allocator asks for them.
//!
//! One range makes "does this value lie in the slow tier?" a comparison of addresses. What backs its pages is the
//! place: ordinary memory, memory of a NUMA node (the kernel takes others' where that has none left), or a file.
//!
//! **A file is mapped privately, and written by us** (`tier_pages.rs`). Mapped shared, a value that is overwritten
//! while the server's child saves would change in the child as well. So [`SlowMemory::flush`] puts what was written
//! into the file and then lets go of it: what the page reads afterwards is the file's. Nothing written after a fork
//! goes there while there is a child, nor are holes punched then, so the child sees the memory of the moment when it
//! was made, as with ordinary memory.
//!
//! An arena that was opened stays for as long as the process lives, and this library with it: values may lie there,
//! and jemalloc calls the hooks. Of one that could not be opened nothing stays, but where jemalloc doesn't give the
//! arena back.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io, ptr};

use super::jemalloc::{ArenaId, ArenaUse, Jemalloc};
use super::place::Place;
use super::server::{Server, Text};
use super::tier_pages::{FilePages, check, watch_forks};
use super::tier_range::{Range, Taken};
use super::tier_writes::FileWrites;
use super::{MainThread, loaded, numa};

/// Pages are taken in steps of this.
const STEP_BYTES: usize = 64 << 20;
/// A string of so many bytes has an object of its own, on servers that put short ones into theirs, and passes through
/// the thread's cache.
const OWN_OBJECT_BYTES: usize = 200;
/// What a test allocation takes: beyond any thread cache that is let through.
const TEST_BYTES: usize = 8192;

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

/// The memory and its arena. See the file's opening.
#[repr(C)]
pub struct SlowMemory {
    /// First: jemalloc passes a pointer to it, which is one to all of this.
    hooks: ExtentHooks,
    place: Place,
    range: Range,
    /// What is written into a file, where that is the place.
    writes: Option<FileWrites>,
    jemalloc: Jemalloc,
    arena: Mutex<Option<ArenaId>>,
    elsewhere: Elsewhere,
}

/// Bytes that lie elsewhere than they should.
struct Elsewhere {
    /// The place could not give them, and they lie in ordinary memory.
    bytes: AtomicU64,
    foreign: Mutex<numa::Foreign>,
    /// They lie on other nodes, estimated.
    foreign_bytes: AtomicU64,
}

// SAFETY: what changes is behind locks or atomic; the range is reserved for good.
unsafe impl Sync for SlowMemory {}
// SAFETY: as above.
unsafe impl Send for SlowMemory {}

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
        if !loaded::stay_mapped() {
            return Err("the library can't be kept in memory".to_owned());
        }
        watch_forks()?;
        let memory = Box::into_raw(Box::new(SlowMemory::reserve(jemalloc, place)?));
        // SAFETY: made just above, and dropped below where there is no arena, before anybody else has seen it.
        let held: &'static SlowMemory = unsafe { &*memory };
        // SAFETY: the hooks are the first field of what lives as long as the arena, in a library that stays mapped.
        let arena = unsafe { jemalloc.create_arena(memory.cast(), held.writes.is_some()) };
        let is_kept = match arena {
            Ok(arena) => {
                *held.arena.lock().unwrap_or_else(PoisonError::into_inner) = Some(arena);
                held.check(server).map_err(|why| (why, !jemalloc.destroy_arena(server, arena)))
            }
            Err(why) => Err((why, false)),
        };
        if let Err((why, false)) = is_kept {
            // SAFETY: made above; no arena has the hooks, or not any more.
            drop(unsafe { Box::from_raw(memory) });
            return Err(why);
        }
        // Also where it can't be used: another try finds it, and takes nothing more.
        opened.push(held);
        is_kept.map(|()| held).map_err(|(why, _)| why)
    }

    fn reserve(jemalloc: Jemalloc, place: &Place) -> Result<SlowMemory, String> {
        let range = Range::reserve()?;
        let writes = match place {
            Place::File(path) => Some(FileWrites::into(FilePages::of(make_file(path)?, range.bytes())?)),
            _ => None,
        };
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
            range,
            writes,
            jemalloc,
            arena: Mutex::new(None),
            elsewhere: Elsewhere {
                bytes: AtomicU64::new(0),
                foreign: Mutex::new(numa::Foreign::new()),
                foreign_bytes: AtomicU64::new(0),
            },
        };
        // A place that gives nothing is told now and not by the first value.
        memory.map_to(&mut memory.range.taken(), 1).map_err(|why| no_memory(place, &why))?;
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

    /// Runs `body` while what the main thread allocates beyond its cache comes from here; `None`, without running it,
    /// where jemalloc refuses.
    pub fn within<R>(&self, proof: &impl MainThread, body: impl FnOnce() -> R) -> Option<R> {
        let arena = (*self.arena.lock().unwrap_or_else(PoisonError::into_inner))?;
        self.jemalloc.within(proof, arena, body)
    }

    /// `n` server strings of these bytes that lie here, with their objects, as any, in ordinary memory; none at all
    /// where that can't be done. They have to be longer than what passes through thread caches.
    pub(super) fn strings(&self, server: &Server, bytes: &[u8], n: usize) -> Vec<Text> {
        let make = |bytes: &[u8]| (0..n).map(|_| server.text(bytes)).collect::<Vec<Text>>();
        // Objects are small and come from the thread's cache. An empty cache would be filled from here, so as many
        // are put back there before.
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
        self.range.contains(address)
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
        self.elsewhere.bytes.load(Ordering::Relaxed) + self.elsewhere.foreign_bytes.load(Ordering::Relaxed)
    }

    /// Ten times a second: how much of the `active_bytes` in use lies on other nodes than the one asked for.
    pub fn look_at_nodes(&self, active_bytes: u64) {
        let Place::Numa(node) = self.place else { return };
        let end = self.range.taken().next;
        let mut foreign = self.elsewhere.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let share = foreign.look(self.range.start(), end, node);
        self.elsewhere.foreign_bytes.store((share * active_bytes as f64) as u64, Ordering::Relaxed);
    }

    /// True where pages are to be flushed, and may be.
    pub fn wants_flush(&self) -> bool {
        self.writes.as_ref().is_some_and(FileWrites::wants_flush)
    }

    /// True where so much was written that isn't in the file yet that memory fills with it.
    pub fn is_behind(&self) -> bool {
        self.writes.as_ref().is_some_and(FileWrites::is_behind)
    }

    /// Pages that were put into the file so far.
    pub fn flushed_pages(&self) -> u64 {
        self.writes.as_ref().map_or(0, FileWrites::flushed_pages)
    }

    /// A value has been put at `address`: its pages are to be flushed.
    pub fn took(&self, address: *const u8, bytes: usize) {
        if let Some(writes) = self.writes.as_ref().filter(|_| self.contains(address)) {
            writes.took(address as usize - self.range.start() as usize, bytes);
        }
    }

    /// Has what was written put into the file by a thread, about `pages_max` pages of it, and lets go of those that
    /// are there. Some 1.5 µs a page, on the main thread: no other writes to values. With `search`, what the server
    /// wrote by itself is looked for too, a little each time. Nothing new is begun while there may be a child.
    pub fn flush(&self, proof: &impl MainThread, pages_max: usize, search: bool) {
        if let Some(writes) = &self.writes {
            writes.flush(proof, &self.range, pages_max, search);
        }
    }

    /// Makes pages up to `end` from the start usable.
    fn map_to(&self, taken: &mut Taken, end: usize) -> io::Result<()> {
        if end <= taken.mapped {
            return Ok(());
        }
        let until = end.next_multiple_of(STEP_BYTES).min(self.range.bytes());
        let (from, bytes) = (taken.mapped, until - taken.mapped);
        // SAFETY: within the reserved range.
        let address = unsafe { self.range.start().add(from) }.cast::<c_void>();
        match &self.writes {
            // SAFETY: takes the place of addresses that were reserved and never used.
            Some(writes) => unsafe { writes.pages.map(address.cast(), from, bytes) }?,
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
        let mut taken = self.range.taken();
        // Addresses, not offsets, are to be aligned; the range begins at a multiple of two megabytes.
        let offset =
            (self.range.start() as usize + taken.next).next_multiple_of(alignment) - self.range.start() as usize;
        let end = offset.checked_add(bytes).filter(|end| *end <= self.range.bytes())?;
        // SAFETY: within the reserved range.
        let address = unsafe { self.range.start().add(offset) };
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

/// Tries whether a place gives memory, and keeps none of it.
///
/// # Errors
/// What stands against it, and what is allowed.
pub fn check_place(place: &Place) -> Result<(), String> {
    match place {
        Place::Anon => Ok(()),
        Place::Numa(node) => numa::check(*node).map_err(|why| no_memory(place, &why)),
        Place::File(path) => make_file(path).map(drop),
    }
}

fn no_memory(place: &Place, why: &io::Error) -> String {
    format!("{place} gives no memory: {why}")
}

/// A new file without a name: what it takes is free again when the server ends, however it does.
fn make_file(path: &Path) -> Result<File, String> {
    let path = match path.is_dir() {
        true => path.join(format!("{}-slow-{}", super::hooks::Hooks::owner(), std::process::id())),
        false => path.to_owned(),
    };
    let wrong = |what: &str, why: io::Error| format!("{what} {}: {why}", path.display());
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path).map_err(|why| match why.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{} is there already, and the slow tier makes its own file", path.display())
        }
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
        memory.elsewhere.bytes.fetch_add(other.map_or(0, |_| bytes as u64), Ordering::Relaxed);
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
    if let Some(writes) = memory.writes.as_ref().filter(|_| memory.contains(address)) {
        // SAFETY: nothing lies there.
        return !unsafe { writes.pages.purge(address, address as usize - memory.range.start() as usize, bytes) };
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
