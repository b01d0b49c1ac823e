//! The callbacks that are handed to the server after the load, for the one module that this library is.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use valkey_module::raw;

use super::messages::Messages;
use super::server::Server;

/// They are the same in every load: the library is mapped anew, or it is the same still.
static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Hears of an event: context, event, what of it, and its data.
pub(super) type OnEvent = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

/// What is asked for later.
pub(super) struct Hooks {
    pub(super) on_command: unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx),
    pub(super) on_timer: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void),
    pub(super) on_event_loop: OnEvent,
    pub(super) on_client_change: OnEvent,
    pub(super) on_shutdown: OnEvent,
    pub(super) on_data_change: OnEvent,
    pub(super) on_wake: fn(&mut Server),
    pub(super) name: &'static CStr,
    pub(super) await_command: &'static CStr,
    pub(super) messages: Messages,
}

impl Hooks {
    /// At load.
    pub(super) fn set(hooks: Hooks) {
        HOOKS.get_or_init(|| hooks);
    }

    /// Those of the module; `None` before it is loaded.
    pub(super) fn get() -> Option<&'static Hooks> {
        HOOKS.get()
    }

    /// The module's name, for files and threads of its own.
    pub(super) fn owner() -> String {
        Hooks::get().map_or_else(String::new, |hooks| hooks.name.to_string_lossy().into_owned())
    }
}
