//! Whether commands pass through the filter: its registration with the server.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use valkey_module::raw;

use super::hooks::Hooks;
use super::server::Server;
use super::{api, home_db};

/// The filter's registration; null while commands run unseen. Written on the main thread only.
static FILTER: AtomicPtr<raw::RedisModuleCommandFilter> = AtomicPtr::new(ptr::null_mut());

/// The filter is there for the host layer alone.
static RESTS: AtomicBool = AtomicBool::new(false);

/// True while commands are seen for the host layer alone: for [`home_db`], and for who unloads a module.
#[inline]
pub(super) fn is_resting() -> bool {
    RESTS.load(Ordering::Relaxed)
}

/// True where a command that unloads a module is seen, so that the module's timers give way to it.
#[inline]
pub fn sees_unloads() -> bool {
    !FILTER.load(Ordering::Relaxed).is_null()
}

/// At load: a registration of an earlier load, which ended with it, is forgotten.
pub(super) fn forget() {
    FILTER.store(ptr::null_mut(), Ordering::Relaxed);
}

/// What the filter is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// The module sees each command.
    Commands,
    /// Commands run unseen, but for those that unload a module: there may be timers, which give way to them.
    Unloads,
    /// Commands run unseen.
    Nothing,
}

/// Lets commands pass through the filter, or no longer. Not from within the filter. False where the server refused.
pub fn watch(server: &Server, sees: Sees) -> bool {
    RESTS.store(sees != Sees::Commands, Ordering::Relaxed);
    let held = FILTER.load(Ordering::Relaxed);
    let wanted = sees != Sees::Nothing || home_db::is_needed();
    if wanted != held.is_null() {
        return true;
    }
    let ctx = server.raw();
    if wanted {
        let flags = raw::REDISMODULE_CMDFILTER_NOSELF as c_int;
        let Some(hooks) = Hooks::get() else { return false };
        // SAFETY: the callback lives as long as the module, and its registration no longer.
        let filter = unsafe { api!(RedisModule_RegisterCommandFilter(ctx, Some(hooks.on_command), flags)) };
        FILTER.store(filter, Ordering::Relaxed);
        return !filter.is_null();
    }
    // SAFETY: `held` is our registration, given back once.
    let given_back = unsafe { api!(RedisModule_UnregisterCommandFilter(ctx, held)) } as isize == raw::REDISMODULE_OK;
    if given_back {
        forget();
    }
    given_back
}

/// At load: [`home_db`] needs the filter also where nothing else does yet.
pub(super) fn watch_for_home_db(server: &Server) {
    if home_db::is_needed() && FILTER.load(Ordering::Relaxed).is_null() {
        watch(server, Sees::Nothing);
    }
}
