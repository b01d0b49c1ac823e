//! The allocator: the server's own, so that `used_memory` and `maxmemory` include what the module takes, and a count
//! of it.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use valkey_module::alloc::ValkeyAlloc;

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the module holds now, as asked for (the allocator's rounding comes on top).
#[inline]
pub fn allocated_bytes() -> usize {
    ALLOCATED_BYTES.load(Ordering::Relaxed)
}

/// The most that the module held since this was last asked, in bytes.
pub fn take_peak_bytes() -> usize {
    PEAK_BYTES.swap(allocated_bytes(), Ordering::Relaxed).max(allocated_bytes())
}

#[inline]
fn count(bytes: usize) {
    let now = ALLOCATED_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if now > PEAK_BYTES.load(Ordering::Relaxed) {
        PEAK_BYTES.fetch_max(now, Ordering::Relaxed);
    }
}

/// The allocator of a module: its library makes it the global one, but in unit tests, where there is no server.
pub struct Counting;

// SAFETY: every call is passed on unchanged to an allocator that keeps the trait's contract; counting touches no
// memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { ValkeyAlloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { ValkeyAlloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { ValkeyAlloc.dealloc(pointer, layout) }
    }
}
