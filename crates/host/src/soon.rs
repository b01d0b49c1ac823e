//! Being called when the event loop is idle: a timer of no delay, which fires after the requests that have come by
//! then.
//!
//! The server refuses to unload a module that holds a timer, so it is given back when a client is about to manage
//! modules.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use valkey_module::raw;

use super::hooks::Hooks;
use super::module::Module;
use super::server::Server;
use super::{MainThread, api, callbacks};

/// The timer that is set, where `IS_SET`. All three are touched on the main thread only.
static TIMER: AtomicU64 = AtomicU64::new(0);
static IS_SET: AtomicBool = AtomicBool::new(false);
/// A context of the module's own, for places where the server gives none; made once a load.
static CONTEXT: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// At load: what an earlier load left behind ended with it.
pub(super) fn prepare(server: &Server) {
    IS_SET.store(false, Ordering::Relaxed);
    // SAFETY: the context is that of the load callback; the server keeps what it returns until it is freed.
    let context = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(server.raw())) };
    CONTEXT.store(context, Ordering::Relaxed);
}

/// At unload.
pub(super) fn release(proof: &impl MainThread) {
    cancel(proof);
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

/// Asks for [`Module::on_idle`] once, soon.
#[inline]
pub fn call_soon(server: &Server) {
    let Some(hooks) = Hooks::get() else { return };
    if IS_SET.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the callback lives as long as the module, which can't be unloaded while it holds a timer.
    let timer = unsafe { api!(RedisModule_CreateTimer(server.raw(), 0, Some(hooks.on_timer), ptr::null_mut())) };
    TIMER.store(timer, Ordering::Relaxed);
}

/// Takes the request back.
pub(super) fn cancel(_proof: &impl MainThread) {
    let context = CONTEXT.load(Ordering::Relaxed);
    if context.is_null() || !IS_SET.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the context is the module's own; the server knows whether the timer is still to fire.
    let stopped = unsafe { api!(RedisModule_StopTimer(context, TIMER.load(Ordering::Relaxed), ptr::null_mut())) };
    if stopped as isize == raw::REDISMODULE_OK {
        IS_SET.store(false, Ordering::Relaxed);
    }
}

pub(super) unsafe extern "C" fn on_timer<M: Module>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    IS_SET.store(false, Ordering::Relaxed);
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    callbacks::on_idle::<M>(&mut server);
}
