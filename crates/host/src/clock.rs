//! The clocks that a module goes by.

use valkey_module::raw;

use super::api;

/// Microseconds of a clock that never goes back. About 25 ns.
#[inline]
pub fn now_us() -> u64 {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_MonotonicMicroseconds()) }
}

/// When the command that runs now began, as the server has it, in µs: what it does to keys is told with the same.
/// `None` before Redis 7.2, which doesn't tell.
#[inline]
pub fn command_began_us() -> Option<u64> {
    // SAFETY: written when the module was loaded; the function takes nothing.
    unsafe { raw::RedisModule_CachedMicroseconds.map(|cached_us| cached_us() as u64) }
}

/// Processor time that the calling thread has used, in µs. A system call of some 300 ns.
pub fn thread_cpu_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time it is given, and keeps nothing.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
