//! The allocator: the server's own, so that `used_memory` and `maxmemory` include what the module takes, and a count
//! of it.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use valkey_module::alloc::ValkeyAlloc;
use valkey_module::raw;

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

/// What every allocator of a server aligns to.
const ALIGNED_TO: usize = 16;

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

    /// By the server's own, where it can: else a list that grows would count twice for a moment, and that is noticed
    /// as a peak for which memory is kept free.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size`, rounded up to the alignment, is no more than isize::MAX.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: set once while the module loads, before a second thread is there, and by then on only read.
        let realloc = unsafe { raw::RedisModule_Realloc };
        if let (Some(realloc), true) = (realloc, layout.align() <= ALIGNED_TO) {
            ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
            count(size);
            // SAFETY: `pointer` is from the same allocator, which is the one that `ValkeyAlloc` asks; what it gives is
            // aligned to 16 bytes where it is as large, and to its size where it is smaller.
            return unsafe { realloc(pointer.cast(), new.pad_to_align().size()) }.cast();
        }
        // SAFETY: `new` is of no size only where the caller has broken the trait's contract.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both are of so many bytes at least, and apart; `pointer` is given up once.
            unsafe {
                moved.copy_from_nonoverlapping(pointer, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
        }
        moved
    }
}
