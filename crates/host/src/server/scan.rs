//! The scan of a database's keys, in steps.

use std::ffi::c_void;

use valkey_module::raw;

use super::{Key, ScannedName, Server};
use crate::api;
use crate::main_thread::MainThread;

/// Where a walk through a database stands.
pub struct ScanCursor(*mut raw::RedisModuleScanCursor);

impl ScanCursor {
    /// A cursor at the start.
    pub fn new(_proof: &impl MainThread) -> Self {
        // SAFETY: takes nothing.
        ScanCursor(unsafe { api!(RedisModule_ScanCursorCreate()) })
    }
}

impl Drop for ScanCursor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe { api!(RedisModule_ScanCursorDestroy(self.0)) };
    }
}

impl Server {
    /// One step of the walk through the selected database: `visit` sees the keys of one hash bucket or a few. Hash
    /// order, so that consecutive steps are a random sample without replacement. At the end the cursor starts over;
    /// true says so.
    ///
    /// # Panics
    /// Where `visit` does: once the server's own frames are left, no other key having been visited.
    pub fn scan_step(&mut self, cursor: &ScanCursor, mut visit: impl FnMut(&ScannedName, &Key)) -> bool {
        let mut visitor = Visitor { visit: &mut visit, panic: None };
        let data = (&raw mut visitor).cast::<c_void>();
        // SAFETY: the cursor lives; the callback runs within this call only, and gets back the pointer that it is
        // given.
        let more = unsafe { api!(RedisModule_Scan(self.ctx, cursor.0, Some(scan_visit), data)) };
        if let Some(panic) = visitor.panic {
            std::panic::resume_unwind(panic);
        }
        if more == 0 {
            // SAFETY: the cursor lives.
            unsafe { api!(RedisModule_ScanCursorRestart(cursor.0)) };
        }
        more == 0
    }
}

/// What a scan shows keys to.
struct Visitor<'a> {
    visit: &'a mut dyn FnMut(&ScannedName, &Key),
    /// It has panicked, and the panic has to wait until the server's frames are left.
    panic: Option<Box<dyn std::any::Any + Send>>,
}

/// The server's trampoline into [`Server::scan_step`]'s closure.
unsafe extern "C" fn scan_visit(
    ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    data: *mut c_void,
) {
    // SAFETY: `data` is the visitor that `scan_step` passed, alive and unshared until the scan returns.
    let visitor = unsafe { &mut *data.cast::<Visitor>() };
    if key.is_null() || visitor.panic.is_some() {
        return;
    }
    let handle = Key { key, ctx, owned: false, server: std::marker::PhantomData };
    // SAFETY: the name lives during the visit.
    let name = unsafe { ScannedName::new(&name) };
    let visited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (visitor.visit)(&name, &handle)));
    visitor.panic = visited.err();
}
