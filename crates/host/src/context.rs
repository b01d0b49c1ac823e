//! A context of the module's own, for places where the server gives none; made once a load.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use valkey_module::raw;

use super::server::Server;
use super::{MainThread, api};

/// Touched on the main thread only.
static CONTEXT: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// At load: that of an earlier load ended with it.
pub(super) fn prepare(server: &Server) {
    // SAFETY: the context is that of the load callback; the server keeps what it returns until it is freed.
    let context = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(server.raw())) };
    CONTEXT.store(context, Ordering::Relaxed);
}

/// At unload.
pub(super) fn release(_proof: &impl MainThread) {
    let context = CONTEXT.swap(ptr::null_mut(), Ordering::Relaxed);
    if !context.is_null() {
        // SAFETY: made by `prepare`, freed once.
        unsafe { api!(RedisModule_FreeThreadSafeContext(context)) };
    }
}

/// The server, where a callback gets no context: in a command filter.
#[inline]
pub fn own_context(_proof: &impl MainThread) -> Option<Server> {
    // SAFETY: the caller has shown that it is on the main thread.
    unsafe { context_of_load() }
}

/// As [`own_context`].
///
/// # Safety
/// On the server's main thread alone.
#[inline]
pub(super) unsafe fn context_of_load() -> Option<Server> {
    let context = CONTEXT.load(Ordering::Relaxed);
    // SAFETY: the context is the module's own, for as long as it is loaded; the caller is on the main thread.
    (!context.is_null()).then(|| unsafe { Server::new(context) })
}
