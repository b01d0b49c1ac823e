//! Threads whose work can wait: the system is asked to let the server's own run as soon as they have something to do.
//!
//! Where the server has a single core, a command that comes while another thread computes would wait until that
//! thread's time is over: milliseconds. Asked for are `SCHED_BATCH` and, since Linux 6.12 heeds it, a long slice: who
//! has a shorter one goes first then. The share of the core stays the same, so that nobody starves.

use std::mem::size_of;

/// The longest slice that Linux takes.
const SLICE_NS: u64 = 100_000_000;

/// The calling thread's work can wait from now on. A system that knows no such thing leaves it as it is.
pub fn can_wait() {
    // SAFETY: asks for a number, of the calling thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the call reads `wanted`, which says its size, and changes how the calling thread is scheduled alone.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}
