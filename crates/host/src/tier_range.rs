//! The slow tier's addresses: reserved once, and taken from the start.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{io, ptr};

use super::tier_pages::CHUNK_BYTES;

/// Addresses reserved, less where the process may not have so many.
const RESERVED_BYTES: usize = 1 << 40;
const RESERVED_BYTES_MIN: usize = 1 << 32;

/// How much of the range is in use.
#[derive(Debug)]
pub(super) struct Taken {
    /// The next free address, from the start.
    pub(super) next: usize,
    /// Pages below this can be written.
    pub(super) mapped: usize,
}

/// The range, from a multiple of two megabytes on.
pub(super) struct Range {
    _addresses: Addresses,
    start: *mut u8,
    bytes: usize,
    taken: Mutex<Taken>,
}

impl Range {
    /// As many addresses as can be had, of which nothing is in use.
    ///
    /// # Errors
    /// Why there are none, as a sentence.
    pub(super) fn reserve() -> Result<Range, String> {
        let addresses = Addresses::reserve()?;
        let (start, bytes) = addresses.aligned();
        Ok(Range { _addresses: addresses, start, bytes, taken: Mutex::new(Taken { next: 0, mapped: 0 }) })
    }

    /// Where it begins.
    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// How long it is, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether an address is one of it.
    #[inline]
    pub(super) fn contains(&self, address: *const u8) -> bool {
        (address as usize).wrapping_sub(self.start as usize) < self.bytes
    }

    /// How much of it is in use, held still.
    pub(super) fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses that are ours, given back on drop.
struct Addresses {
    found: *mut c_void,
    bytes: usize,
}

impl Addresses {
    /// As many as can be had, which nothing can be read from or written to.
    fn reserve() -> Result<Addresses, String> {
        let mut bytes = RESERVED_BYTES;
        loop {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: new addresses.
            let found = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
            if found != libc::MAP_FAILED {
                return Ok(Addresses { found, bytes });
            }
            if bytes == RESERVED_BYTES_MIN {
                return Err(format!("no addresses can be reserved: {}", io::Error::last_os_error()));
            }
            bytes /= 2;
        }
    }

    /// Those from a multiple of two megabytes on: the piece before it is given up.
    fn aligned(&self) -> (*mut u8, usize) {
        let start = (self.found as usize).next_multiple_of(CHUNK_BYTES);
        (start as *mut u8, self.bytes - CHUNK_BYTES)
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: reserved by us; who drops them has no use for what lies there.
        unsafe { libc::munmap(self.found, self.bytes) };
    }
}
