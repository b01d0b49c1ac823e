//! Which of the server's events the module hears.
//!
//! Twice in each turn the server goes through the list of all that are heard, whichever event it is about to tell of:
//! one more takes some 33 instructions of each turn, also where it never comes. So the load asks for what has to be
//! known at once, and the rest is asked for when somebody needs it. From then on it is heard for as long as the module
//! is there: what is taken from the list while the server goes through it may be what it looks at next.

use std::sync::atomic::{AtomicU8, Ordering};

use valkey_module::raw;

use super::callbacks;
use super::hooks::{Hooks, OnEvent};
use super::module::Module;
use super::server::Server;
use super::{api, config, loaded, migration};

/// What is heard only once it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Connections that end. Not heard of, what they have told is forgotten no sooner than the module starts over.
    Connections,
    /// An orderly stop.
    Stop,
    /// A replica that loads another data set beside its own.
    LoadsBeside,
}

/// What is heard of it, a bit each. Written on the main thread only.
static HEARD: AtomicU8 = AtomicU8::new(0);

/// The server tells of the event from now on. False where it doesn't know it.
fn hear(server: &Server, id: u64, callback: OnEvent) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the callback lives as long as the module.
    let done = unsafe { api!(RedisModule_SubscribeToServerEvent(server.raw(), event, Some(callback))) };
    done as isize == raw::REDISMODULE_OK
}

/// From soon on this is heard, where the server tells of it. Costs nothing where it is already.
pub fn need(server: &Server, what: Needed) {
    let bit = 1 << what as u8;
    if HEARD.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    let Some(hooks) = Hooks::get() else { return };
    match what {
        Needed::Connections => hear(server, raw::REDISMODULE_EVENT_CLIENT_CHANGE, hooks.on_client_change),
        Needed::Stop => hear(server, raw::REDISMODULE_EVENT_SHUTDOWN, hooks.on_shutdown),
        Needed::LoadsBeside => hear(server, raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD, hooks.on_data_change),
    };
}

/// At load: subscribes to what is always heard. The server lets go of it when the module is unloaded.
///
/// # Errors
/// What the server refused.
pub(super) fn watch<M: Module>(server: &Server) -> Result<(), String> {
    HEARD.store(0, Ordering::Relaxed);
    let refused = |what: &str| Err(format!("the server refused {what}"));
    if !hear(server, raw::REDISMODULE_EVENT_EVENTLOOP, callbacks::on_event_loop::<M>) {
        return refused("event loop events");
    }
    // Without it the module asks for settings now and then.
    config::note_changes_are_told(hear(server, raw::REDISMODULE_EVENT_CONFIG, callbacks::on_config_change::<M>));
    let of_data = [
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    ];
    let swaps = (loaded::databases() > 1).then_some(raw::REDISMODULE_EVENT_SWAPDB);
    if !of_data.into_iter().chain(swaps).all(|id| hear(server, id, callbacks::on_data_change::<M>)) {
        return refused("events of the data set");
    }
    // The ends of turns where none else is heard, and ahead of a pause of writes that ends, what woke in it.
    hear(server, raw::REDISMODULE_EVENT_CRON_LOOP, callbacks::on_cron::<M>);
    follow_role(server);
    Ok(())
}

/// Whoever lets slots move has to hear of it.
///
/// # Errors
/// The server refused it.
pub(super) fn watch_migration<M: Module>(server: &Server) -> Result<(), String> {
    if !server.flags().is_cluster() || hear(server, migration::EVENT, callbacks::on_migration::<M>) {
        return Ok(());
    }
    Err("the server refused events of slots that move".to_owned())
}

/// The server's role may be another: a replica may load a data set beside its own.
pub(super) fn follow_role(server: &Server) {
    if server.flags().is_replica() {
        need(server, Needed::LoadsBeside);
    }
}
