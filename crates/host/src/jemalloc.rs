//! The server's allocator, where it is jemalloc: its control function looked up at run time, its arenas, its
//! statistics.
//!
//! Debian's servers link `libjemalloc.so.2`, whose control function is `mallctl`; builds that bring their own export
//! `je_mallctl`. Where neither is found there are no tiers. Statistics are those of the last `epoch`;
//! [`Jemalloc::refresh`] begins a new one.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use super::MainThread;

type Control = unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// The control function. See the file's opening.
#[derive(Clone, Copy, Debug)]
pub struct Jemalloc {
    control: Control,
    /// It is the server's own copy: its names begin with `je_`.
    is_bundled: bool,
}

/// An arena's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaId(u32);

/// What an arena holds, of sizes that no thread's cache keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaUse {
    /// Bytes of allocations, rounded up as the allocator rounds them.
    pub allocated_bytes: u64,
    /// How many allocations.
    pub allocations: u64,
    /// Bytes of pages with allocations in them.
    pub active_bytes: u64,
}

impl Jemalloc {
    /// Looks it up.
    ///
    /// # Errors
    /// Where this process has none, as a sentence.
    pub fn find() -> Result<Jemalloc, String> {
        let lookup = |name: &CStr| {
            // SAFETY: the name is a C string; the look-up goes through what the process has loaded, the server first.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            // SAFETY: jemalloc's control function of either name has this signature in all versions since 2.0.
            (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Control>(found) })
        };
        let of = |is_bundled| move |control| Jemalloc { control, is_bundled };
        let jemalloc = lookup(c"je_mallctl").map(of(true)).or_else(|| lookup(c"mallctl").map(of(false)));
        let why = "this server's allocator is not jemalloc, or doesn't export its control function";
        jemalloc.filter(|jemalloc| jemalloc.tcache_max_bytes().is_some()).ok_or_else(|| why.to_owned())
    }

    /// Values up to this size pass through thread caches, in bytes; 0 where there are none.
    pub fn tcache_max_bytes(&self) -> Option<usize> {
        match self.read::<bool>(c"opt.tcache")? {
            true => self.read(c"arenas.tcache_max"),
            false => Some(0),
        }
    }

    /// What to set in the server's environment so that a thread cache holds small allocations alone. Before 5.3 none
    /// can be made to hold less than the larger of the small ones, 14 KiB, and has to be off.
    pub fn setting_for_tiers(&self) -> String {
        let name = if self.is_bundled { "JE_MALLOC_CONF" } else { "MALLOC_CONF" };
        let value = if self.version() < (5, 3) { "tcache:false" } else { "tcache_max:256" };
        format!("{name}={value}")
    }

    fn version(&self) -> (u32, u32) {
        let text = self.exchange::<usize, ()>(c"version", None).filter(|text| *text != 0);
        // SAFETY: the value of that name is a C string that lives as long as the process.
        let text = text.map(|text| unsafe { CStr::from_ptr(text as *const _) }.to_string_lossy()).unwrap_or_default();
        let mut numbers = text.split(['.', '-']).map_while(|part| part.parse().ok());
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    /// Begins a new epoch of the statistics: they are those of now. Tens of microseconds.
    pub fn refresh(&self) {
        self.write(c"epoch", &1u64);
    }

    /// What an arena held when the epoch began, of sizes that no thread's cache keeps: the rest is on its way through
    /// one, or anybody's.
    pub fn arena_use(&self, arena: ArenaId) -> ArenaUse {
        let number = |name: String| self.read::<usize>(&CString::new(name).unwrap_or_default());
        let field = |name: &str| number(format!("stats.arenas.{}.{name}", arena.0)).unwrap_or(0) as u64;
        // Counts are of 64 bits, sizes of the machine's word: the same here.
        let held = |of: &str| field(&format!("{of}.nmalloc")).saturating_sub(field(&format!("{of}.ndalloc")));
        let (mut allocated_bytes, mut allocations) =
            (field("small.allocated") + field("large.allocated"), held("small") + held("large"));
        let cached_max = self.tcache_max_bytes().unwrap_or(0);
        let cached = (0..).map_while(|bin| Some((bin, number(format!("arenas.bin.{bin}.size"))?)));
        for (bin, size) in cached.take_while(|(_, size)| *size <= cached_max) {
            let regions = field(&format!("bins.{bin}.curregs"));
            allocated_bytes = allocated_bytes.saturating_sub(regions * size as u64);
            allocations = allocations.saturating_sub(regions);
        }
        ArenaUse { allocated_bytes, allocations, active_bytes: field("pactive") * page_bytes() as u64 }
    }

    /// An arena whose memory comes from hooks; its own records lie in ordinary memory where the version can (5.3),
    /// which is a must with `records_elsewhere`.
    ///
    /// # Errors
    /// Where jemalloc refuses, as a sentence.
    ///
    /// # Safety
    /// `hooks` points to a table of jemalloc's extent hooks (5.x) that keep their contract, for as long as the
    /// process lives.
    pub unsafe fn create_arena(&self, hooks: *mut c_void, records_elsewhere: bool) -> Result<ArenaId, String> {
        #[repr(C)]
        struct Config {
            hooks: *mut c_void,
            metadata_use_hooks: bool,
        }
        let config = Config { hooks, metadata_use_hooks: false };
        let arena = self.exchange::<u32, Config>(c"experimental.arenas_create_ext", Some(&config));
        let arena = match arena {
            None if records_elsewhere => return Err("this tier needs jemalloc 5.3".to_owned()),
            None => self.exchange::<u32, *mut c_void>(c"arenas.create", Some(&hooks)),
            made => made,
        };
        arena.map(ArenaId).ok_or_else(|| "jemalloc makes no arena with hooks; 5.x does".to_owned())
    }

    /// Gives an arena back, with all that was ever allocated there: nobody may have any of it but this thread's
    /// cache. False where jemalloc doesn't, and goes on to call its hooks.
    pub(super) fn destroy_arena(&self, proof: &impl MainThread, arena: ArenaId) -> bool {
        self.flush_cache(proof);
        let name = CString::new(format!("arena.{}.destroy", arena.0)).unwrap_or_default();
        // SAFETY: the name takes and gives nothing.
        let status = unsafe { (self.control)(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0) };
        status == 0
    }

    /// Runs `body` while what this thread allocates beyond its cache comes from `arena`; `None`, without running it,
    /// where jemalloc refuses.
    pub fn within<R>(&self, _proof: &impl MainThread, arena: ArenaId, body: impl FnOnce() -> R) -> Option<R> {
        struct Back<'a>(&'a Jemalloc, u32);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.write(c"thread.arena", &self.1);
            }
        }
        let before = self.exchange::<u32, u32>(c"thread.arena", Some(&arena.0))?;
        let _back = Back(self, before);
        Some(body())
    }

    /// What this thread's cache holds goes back to where it came from.
    pub fn flush_cache(&self, _proof: &impl MainThread) {
        // SAFETY: the name takes and gives nothing.
        unsafe {
            (self.control)(c"thread.tcache.flush".as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0)
        };
    }

    fn read<T: Copy + Default>(&self, name: &CStr) -> Option<T> {
        self.exchange::<T, ()>(name, None)
    }

    fn write<T>(&self, name: &CStr, value: &T) -> bool {
        let value = ptr::from_ref(value).cast_mut().cast();
        // SAFETY: jemalloc checks the size against that of the name's value, and only reads through the pointer.
        unsafe { (self.control)(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), value, size_of::<T>()) == 0 }
    }

    /// Reads a value and, in the same call, sets another. `None` where jemalloc knows no such name, or takes other
    /// types.
    fn exchange<T: Copy + Default, U>(&self, name: &CStr, new: Option<&U>) -> Option<T> {
        let (mut old, mut length) = (T::default(), size_of::<T>());
        let (new, new_length) = match new {
            Some(new) => (ptr::from_ref(new).cast_mut().cast(), size_of::<U>()),
            None => (ptr::null_mut(), 0),
        };
        // SAFETY: jemalloc checks both sizes against those of the name's values before it writes or reads.
        let failed = unsafe { (self.control)(name.as_ptr(), (&raw mut old).cast(), &mut length, new, new_length) };
        (failed == 0 && length == size_of::<T>()).then_some(old)
    }
}

/// Bytes of a page of memory.
pub fn page_bytes() -> usize {
    // SAFETY: takes a number, reads a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Bytes that the server has allocated, as it counts them against its limit but for what replicas and append-only
/// files buffer. By the server's own counter, where it is exported, as it has been since Redis 3.
#[inline]
pub fn server_used_bytes() -> u64 {
    type Counter = unsafe extern "C" fn() -> usize;
    static FOUND: OnceLock<Option<Counter>> = OnceLock::new();
    let counter = FOUND.get_or_init(|| {
        // SAFETY: the name is a C string; the look-up goes through what the process has loaded, the server first.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"zmalloc_used_memory".as_ptr()) };
        // SAFETY: the server's function of that name takes nothing and returns a size.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Counter>(found) })
    });
    match counter {
        // SAFETY: it reads counters.
        Some(counter) => unsafe { counter() as u64 },
        None => {
            Jemalloc::find().ok().and_then(|jemalloc| jemalloc.read::<usize>(c"stats.allocated")).unwrap_or(0) as u64
        }
    }
}
