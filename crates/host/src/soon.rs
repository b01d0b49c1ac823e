//! Being called when the event loop is idle: a timer of no delay, which fires after the requests that have come by
//! then. Asked for by a command, it fires before the replies of its turn: so turns end that are asked for one by one.
//!
//! The server refuses to unload a module that holds a timer. So it is given back when a client is about to unload one,
//! and none is set before the next tick: between the filter and the command the server may evict, and tell of that.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use valkey_module::raw;

use super::context::own_context;
use super::guard::guarded;
use super::hooks::Hooks;
use super::module::{Module, with};
use super::server::Server;
use super::{MainThread, api, callbacks, turns};

/// The timer that is set, where `IS_SET`. Both are touched on the main thread only.
static TIMER: AtomicU64 = AtomicU64::new(0);
static IS_SET: AtomicBool = AtomicBool::new(false);
/// One fires just now. What is set meanwhile fires a millisecond later, since the server doesn't look again before.
static IS_FIRING: AtomicBool = AtomicBool::new(false);
/// That which is set was set so.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// None is set: a client is about to unload a module.
static GIVES_WAY: AtomicBool = AtomicBool::new(false);

/// At load: what an earlier load left behind ended with it.
pub(super) fn prepare() {
    IS_SET.store(false, Ordering::Relaxed);
    GIVES_WAY.store(false, Ordering::Relaxed);
}

/// Asks for [`Module::on_idle`] once, soon; in vain from when a client unloads a module to the next tick.
#[inline]
pub fn call_soon(server: &Server) {
    let Some(hooks) = Hooks::get().filter(|_| !GIVES_WAY.load(Ordering::Relaxed)) else { return };
    let is_firing = IS_FIRING.load(Ordering::Relaxed);
    if IS_SET.swap(true, Ordering::Relaxed) {
        if is_firing || !IS_LATE.load(Ordering::Relaxed) {
            return;
        }
        // The end of a turn that is asked for now is to come before its replies.
        stop(server);
    }
    IS_LATE.store(is_firing, Ordering::Relaxed);
    // SAFETY: the callback lives as long as the module, which can't be unloaded while it holds a timer.
    let timer = unsafe { api!(RedisModule_CreateTimer(server.raw(), 0, Some(hooks.on_timer), ptr::null_mut())) };
    TIMER.store(timer, Ordering::Relaxed);
}

/// Takes the request back, and no other before [`at_tick`].
pub(super) fn give_way(proof: &impl MainThread) {
    GIVES_WAY.store(true, Ordering::Relaxed);
    let Some(server) = own_context(proof).filter(|_| IS_SET.load(Ordering::Relaxed)) else { return };
    if stop(&server) {
        IS_SET.store(false, Ordering::Relaxed);
    }
}

/// A tick of the server's: the module is still there.
pub(super) fn at_tick() {
    GIVES_WAY.store(false, Ordering::Relaxed);
}

/// Stops the timer; whether it was still to fire.
fn stop(server: &Server) -> bool {
    // SAFETY: the context is the module's own; the server knows whether the timer is still to fire.
    let stopped = unsafe { api!(RedisModule_StopTimer(server.raw(), TIMER.load(Ordering::Relaxed), ptr::null_mut())) };
    stopped as isize == raw::REDISMODULE_OK
}

pub(super) unsafe extern "C" fn on_timer<M: Module>(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    IS_SET.store(false, Ordering::Relaxed);
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    IS_FIRING.store(true, Ordering::Relaxed);
    turns::settle(&server);
    if turns::take_asked() {
        callbacks::on_turn::<M>(&mut server);
    } else {
        guarded("an idle turn", || with(&server.proof(), |module: &mut M| module.on_idle(&mut server)));
    }
    IS_FIRING.store(false, Ordering::Relaxed);
}
