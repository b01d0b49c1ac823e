//! What is known since the module was loaded.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

/// The settings that the server began with have been taken.
static IS_LOADED: AtomicBool = AtomicBool::new(false);
static DATABASES: AtomicU16 = AtomicU16::new(u16::MAX);

/// The load begins.
pub(super) fn begin() {
    IS_LOADED.store(false, Ordering::Relaxed);
}

/// The load has ended well.
pub(super) fn end() {
    IS_LOADED.store(true, Ordering::Relaxed);
}

/// True once the module serves: what is set then may be refused.
pub fn is_loaded() -> bool {
    IS_LOADED.load(Ordering::Relaxed)
}

/// The server has said how many databases it has.
pub(super) fn note_databases(n: u16) {
    DATABASES.store(n, Ordering::Relaxed);
}

/// How many databases the server has, as it said at load.
pub fn databases() -> u16 {
    DATABASES.load(Ordering::Relaxed)
}

/// Keeps this library in memory for good.
pub(super) fn stay_mapped() -> bool {
    let mut place = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: the address is of this library; the loader fills `place`.
    let found = unsafe { libc::dladdr(stay_mapped as *const c_void, &mut place) } != 0;
    if !found || place.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the name is the loader's own, of a library that is loaded: nothing is run by this.
    !unsafe { libc::dlopen(place.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) }.is_null()
}
