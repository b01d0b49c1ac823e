//! Being called some µs from now: a timer of the kernel's in the server's event loop. The server's own timers count
//! milliseconds, and it unloads no module that holds one.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use valkey_module::raw;

use super::context::context_of_load;
use super::hooks::Hooks;
use super::server::Server;
use super::{MainThread, api};

/// What stands for no descriptor.
const NONE: c_int = -1;

/// The timer's descriptor, made when one is first asked for. Touched on the main thread only.
static TIMER: AtomicI32 = AtomicI32::new(NONE);

/// At load: an earlier load has closed its own.
pub(super) fn prepare() {
    TIMER.store(NONE, Ordering::Relaxed);
}

/// Asks for [`Module::on_wake`](super::module::Module::on_wake) `delay_us` from now; what was asked before is
/// forgotten. Where there is no such timer, nobody is called. Cost: one system call.
pub fn after(_server: &Server, delay_us: u64) {
    let held = TIMER.load(Ordering::Relaxed);
    let timer = if held == NONE { open() } else { held };
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let delay = libc::timespec {
        tv_sec: (delay_us / 1_000_000) as libc::time_t,
        // No delay at all would disarm it.
        tv_nsec: (delay_us % 1_000_000 * 1000).max(1) as libc::c_long,
    };
    let spec = libc::itimerspec { it_interval: zero, it_value: delay };
    // SAFETY: the call reads `spec`; of a descriptor that there isn't it says so.
    unsafe { libc::timerfd_settime(timer, 0, &spec, ptr::null_mut()) };
}

/// A timer in the event loop; [`NONE`] where one of them can't be had.
fn open() -> c_int {
    // SAFETY: makes a descriptor, which is ours.
    let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
    if timer == NONE {
        return NONE;
    }
    let readable = raw::REDISMODULE_EVENTLOOP_READABLE as c_int;
    // SAFETY: the callback lives as long as the module, which takes it back when it is unloaded.
    let added = unsafe { api!(RedisModule_EventLoopAdd(timer, readable, Some(on_time), ptr::null_mut())) };
    if added as isize != raw::REDISMODULE_OK {
        // SAFETY: ours, closed once.
        unsafe { libc::close(timer) };
        return NONE;
    }
    TIMER.store(timer, Ordering::Relaxed);
    timer
}

unsafe extern "C" fn on_time(timer: c_int, _data: *mut c_void, _mask: c_int) {
    let mut times = MaybeUninit::<u64>::uninit();
    // SAFETY: the kernel writes a number of eight bytes, or nothing; nobody reads it.
    unsafe { libc::read(timer, times.as_mut_ptr().cast(), size_of::<u64>()) };
    // SAFETY: the server runs this callback on its main thread.
    if let (Some(mut server), Some(hooks)) = (unsafe { context_of_load() }, Hooks::get()) {
        (hooks.on_wake)(&mut server);
    }
}

/// At unload.
pub(super) fn release(_proof: &impl MainThread) {
    let timer = TIMER.swap(NONE, Ordering::Relaxed);
    if timer != NONE {
        // SAFETY: it is in the event loop since `open`.
        unsafe { api!(RedisModule_EventLoopDel(timer, raw::REDISMODULE_EVENTLOOP_READABLE as c_int)) };
        // SAFETY: ours, closed once.
        unsafe { libc::close(timer) };
    }
}
