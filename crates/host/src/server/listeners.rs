//! Who hears of a key's end beside this module: clients, where `notify-keyspace-events` says so, and other modules.
//!
//! An event that nobody hears is not emitted: the server prepares a client for each module that may hear it, this one
//! too, which takes 600 instructions. Which modules there are is looked at when one comes or goes.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use valkey_module::raw;

use super::Server;
use crate::{api, guard};

/// Modules that come with a server and listen to nothing.
const HARMLESS: [&str; 2] = ["lua", "vectorset"];

/// There are others, as far as is known.
static ARE_OTHERS: AtomicBool = AtomicBool::new(true);
/// This module's name.
static OWN_NAME: OnceLock<String> = OnceLock::new();

/// True where another module may hear events of keys.
pub fn are_other_modules() -> bool {
    ARE_OTHERS.load(Ordering::Relaxed)
}

/// True where anybody else may hear that a key was evicted.
#[inline]
pub(super) fn hear_of_evictions() -> bool {
    // SAFETY: takes nothing; looked for when the module was loaded.
    let told = unsafe { api!(RedisModule_GetNotifyKeyspaceEvents()) };
    told & raw::REDISMODULE_NOTIFY_EVICTED as c_int != 0 || are_other_modules()
}

/// Looks which modules there are beside that of the name, from now on whenever that changes. Where the server doesn't
/// tell of it, there may always be others.
pub(crate) fn watch(server: &mut Server, own_name: &CStr) {
    OWN_NAME.get_or_init(|| own_name.to_string_lossy().into_owned());
    let event = raw::RedisModuleEvent { id: raw::REDISMODULE_EVENT_MODULE_CHANGE, dataver: 1 };
    // SAFETY: the callback lives as long as the module.
    let told = unsafe { api!(RedisModule_SubscribeToServerEvent(server.ctx, event, Some(on_module_change))) };
    if told == raw::REDISMODULE_OK as c_int {
        look(server, None);
    }
}

unsafe extern "C" fn on_module_change(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    let goes = subevent == raw::REDISMODULE_SUBEVENT_MODULE_UNLOADED;
    // SAFETY: the data of this event says which module, alive during the call.
    let change = unsafe { data.cast::<raw::RedisModuleModuleChange>().as_ref() }.filter(|_| goes);
    let going = change.map(|change| {
        // SAFETY: its name is a C string, alive as long.
        unsafe { CStr::from_ptr(change.module_name) }.to_string_lossy()
    });
    guard::counted("another module", || look(&mut server, going.as_deref()));
}

/// Which modules there are, but for one that goes.
fn look(server: &mut Server, going: Option<&str>) {
    let is_known =
        |name: &str| HARMLESS.contains(&name) || Some(name) == going || OWN_NAME.get().is_some_and(|own| own == name);
    let modules = server.call(c"MODULE", &[b"LIST"]);
    let are_known = modules.is_some_and(|modules| {
        let mut names = modules.elements().iter().map(|module| module.get("name").and_then(|name| name.text()));
        names.all(|name| name.is_some_and(is_known))
    });
    ARE_OTHERS.store(!are_known, Ordering::Relaxed);
}
