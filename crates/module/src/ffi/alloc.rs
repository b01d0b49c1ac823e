//! The allocator: the server's own, so that `used_memory` and `maxmemory` include what Tenure takes, and a count of it.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use valkey_module::alloc::ValkeyAlloc;

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that Tenure holds now, as asked for (the allocator's rounding comes on top).
pub fn allocated_bytes() -> usize {
    ALLOCATED_BYTES.load(Ordering::Relaxed)
}

/// The most that Tenure held since this was last asked, in bytes.
pub fn take_peak_bytes() -> usize {
    PEAK_BYTES.swap(allocated_bytes(), Ordering::Relaxed).max(allocated_bytes())
}

fn count(bytes: usize) {
    let now = ALLOCATED_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if now > PEAK_BYTES.load(Ordering::Relaxed) {
        PEAK_BYTES.fetch_max(now, Ordering::Relaxed);
    }
}

struct Counting;

// Unit tests run without a server, whose allocator doesn't exist there.
#[cfg_attr(not(test), global_allocator)]
#[cfg_attr(test, expect(dead_code))]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged to an allocator that keeps the trait's contract; counting touches no memory of it.
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
