//! Which turns of the event loop the module hears the end of: all, or those alone that it asks for, and one at each of
//! the server's ticks.
//!
//! To tell a module of a turn costs the server some 3,000 instructions, which is more than half of what a GET takes
//! that comes alone. A turn that was asked for ends in a timer, after its commands and before its replies.

use std::sync::atomic::{AtomicBool, Ordering};

use valkey_module::raw;

use super::hooks::Hooks;
use super::server::Server;
use super::{api, soon};

/// The server tells of each turn. Written on the main thread only, as are those below.
static ARE_HEARD: AtomicBool = AtomicBool::new(true);
/// It is to.
static ARE_WANTED: AtomicBool = AtomicBool::new(true);
/// A turn is to end soon though the server doesn't tell of it.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// At load: each turn is heard of, as [`super::load`] subscribes.
pub(super) fn prepare() {
    ARE_HEARD.store(true, Ordering::Relaxed);
    ARE_WANTED.store(true, Ordering::Relaxed);
    IS_ASKED.store(false, Ordering::Relaxed);
}

/// True where the server tells of each turn.
#[inline]
pub fn are_heard() -> bool {
    ARE_HEARD.load(Ordering::Relaxed)
}

/// From soon on each turn is heard of, or only what is asked for. To be said at each tick: what it asks for may have
/// been taken back for a client that wanted to unload a module.
pub fn hear(server: &Server, wanted: bool) {
    ARE_WANTED.store(wanted, Ordering::Relaxed);
    if wanted != are_heard() {
        soon::call_soon(server);
    }
}

/// Asks for the end of this turn, where not each is heard of.
#[inline]
pub fn ask(server: &Server) {
    if !are_heard() {
        IS_ASKED.store(true, Ordering::Relaxed);
        soon::call_soon(server);
    }
}

/// True once after a turn was asked for.
pub(super) fn take_asked() -> bool {
    IS_ASKED.swap(false, Ordering::Relaxed) && !are_heard()
}

/// Does what [`hear`] has said. Only in a timer: the server reads a subscription again after the callback that it is
/// for, so that none may end there.
pub(super) fn settle(server: &Server) {
    let wanted = ARE_WANTED.load(Ordering::Relaxed);
    let Some(hooks) = Hooks::get().filter(|_| wanted != are_heard()) else { return };
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_EVENTLOOP, dataver: 1 };
    let callback = wanted.then_some(hooks.on_event_loop);
    // SAFETY: the callback lives as long as the module; none stands for the end of the subscription.
    let done = unsafe { api!(RedisModule_SubscribeToServerEvent(server.raw(), event, callback)) };
    if done as isize == raw::REDISMODULE_OK {
        ARE_HEARD.store(wanted, Ordering::Relaxed);
        // The server tells no more of the turn that this timer is in. What its commands have asked for, while each was
        // heard, would wait for the next tick.
        IS_ASKED.fetch_or(!wanted, Ordering::Relaxed);
    }
}
