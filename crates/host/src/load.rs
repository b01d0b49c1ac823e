//! Loading and unloading: what the server calls first and last.

use std::ffi::{c_char, c_int};

use valkey_module::raw;

use super::hooks::Hooks;
pub use super::loaded::{databases, is_loaded};
use super::module::Module;
use super::server::{Level, Server, listeners, words_of};
use super::{
    acl, api, awaits, bus, callbacks, config, context, events, filtering, guard, holding, home_db, loaded, migration,
    module, registry, server, soon, turns, wake,
};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Functions without which no module on this host can run; a server older than Redis 7.0 lacks some.
macro_rules! required {
    ($($name:ident),* $(,)?) => {
        /// The first function that the server lacks.
        fn missing() -> Option<&'static str> {
            // SAFETY: the API table was filled just before, on this thread.
            $(if unsafe { (&raw const raw::$name).read() }.is_none() { return Some(stringify!($name)); })*
            None
        }
    };
}

required!(
    RedisModule_AbortBlock,
    RedisModule_AvoidReplicaTraffic,
    RedisModule_BlockClient,
    RedisModule_Call,
    RedisModule_CommandFilterArgGet,
    RedisModule_CommandFilterArgInsert,
    RedisModule_CommandFilterArgReplace,
    RedisModule_CommandFilterArgsCount,
    RedisModule_CreateCommand,
    RedisModule_CreateSubcommand,
    RedisModule_CreateTimer,
    RedisModule_DbSize,
    RedisModule_EventLoopAdd,
    RedisModule_EventLoopDel,
    RedisModule_FreeServerInfo,
    RedisModule_FreeThreadSafeContext,
    RedisModule_GetAbsExpire,
    RedisModule_GetBlockedClientPrivateData,
    RedisModule_GetClientId,
    RedisModule_GetClientInfoById,
    RedisModule_GetCommand,
    RedisModule_GetContextFlags,
    RedisModule_GetDetachedThreadSafeContext,
    RedisModule_GetExpire,
    RedisModule_GetLFU,
    RedisModule_GetLRU,
    RedisModule_GetNotifyKeyspaceEvents,
    RedisModule_GetServerInfo,
    RedisModule_GetUsedMemoryRatio,
    RedisModule_LatencyAddSample,
    RedisModule_HoldString,
    RedisModule_InfoAddFieldULongLong,
    RedisModule_LoadConfigs,
    RedisModule_MonotonicMicroseconds,
    RedisModule_NotifyKeyspaceEvent,
    RedisModule_OpenKey,
    RedisModule_RegisterBoolConfig,
    RedisModule_RegisterCommandFilter,
    RedisModule_RegisterEnumConfig,
    RedisModule_RegisterInfoFunc,
    RedisModule_RegisterNumericConfig,
    RedisModule_RegisterStringConfig,
    RedisModule_Replicate,
    RedisModule_ReplyWithCallReply,
    RedisModule_ReplyWithMap,
    RedisModule_Scan,
    RedisModule_SelectDb,
    RedisModule_ServerInfoGetFieldC,
    RedisModule_SetAbsExpire,
    RedisModule_SetCommandInfo,
    RedisModule_SetLRU,
    RedisModule_SetModuleOptions,
    RedisModule_SignalModifiedKey,
    RedisModule_StopTimer,
    RedisModule_StringDMA,
    RedisModule_StringSet,
    RedisModule_StringTruncate,
    RedisModule_SubscribeToKeyspaceEvents,
    RedisModule_SubscribeToServerEvent,
    RedisModule_UnblockClient,
    RedisModule_UnlinkKey,
    RedisModule_UnregisterCommandFilter,
);

/// What the server's look-up of the entry symbols finds: see [`crate::export_module`].
///
/// # Safety
/// Only the server calls it, once, on its main thread, with the arguments that its module API documents.
pub unsafe fn on_load<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the context is the one we were given; until this returns nothing may be allocated.
    let status = unsafe {
        raw::Export_RedisModule_Init(
            ctx,
            M::NAME.as_ptr().cast::<c_char>(),
            M::version(),
            raw::REDISMODULE_APIVER_1 as c_int,
        )
    };
    if status != OK {
        return ERR;
    }
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    // The library may have stayed mapped since an earlier load that ended in a fault.
    guard::start_over();
    guard::catch_panic_messages();
    // SAFETY: `argv` holds `argc` strings that live during the call.
    let words = unsafe { words_of(argv, argc) };
    match guard::guarded("the load", || load::<M>(&mut server, &words)) {
        Some(Ok(())) => OK,
        Some(Err(why)) => {
            server.log(Level::Warning, &format!("{} can't be loaded: {why}", M::TITLE));
            give_up::<M>(&mut server)
        }
        None => {
            server.log(Level::Warning, &format!("{} can't be loaded: panic {}", M::TITLE, guard::last_panic()));
            give_up::<M>(&mut server)
        }
    }
}

fn give_up<M: Module>(server: &mut Server) -> c_int {
    bus::release();
    soon::give_way(server);
    context::release(server);
    module::retire::<M>(server);
    config::release::<M>(server);
    guard::release_panic_messages();
    ERR
}

/// A cluster has one, unless its servers can have more.
fn read_databases(server: &mut Server) -> u16 {
    let (name, default) = match server.flags().is_cluster() {
        true => ("cluster-databases", 1),
        false => ("databases", 16),
    };
    let number = server.setting(name).and_then(|number| number.parse::<u16>().ok());
    number.unwrap_or(default).max(1)
}

/// # Errors
/// Which of the module's arguments is no text.
fn arguments(words: &[&[u8]]) -> Result<Vec<String>, String> {
    let text = |word: &&[u8]| {
        let text = std::str::from_utf8(word).map(str::to_owned);
        text.map_err(|_| format!("argument '{}' is not UTF-8 text", word.escape_ascii()))
    };
    words.iter().map(text).collect()
}

fn load<M: Module>(server: &mut Server, words: &[&[u8]]) -> Result<(), String> {
    loaded::begin();
    if let Some(name) = missing() {
        return Err(format!("this server lacks {name}; Valkey 7.2 or Redis 7.0 and later have it"));
    }
    let knows_migration = migration::is_known(server);
    // SAFETY: the context is that of the load callback.
    unsafe { api!(RedisModule_SetModuleOptions(server.raw(), options(knows_migration))) };
    Hooks::set(Hooks {
        on_command: callbacks::on_command::<M>,
        on_timer: soon::on_timer::<M>,
        on_event_loop: callbacks::on_event_loop::<M>,
        on_client_change: callbacks::on_client_change::<M>,
        on_shutdown: callbacks::on_shutdown::<M>,
        on_data_change: callbacks::on_data_change::<M>,
        on_wake: callbacks::on_wake::<M>,
        name: M::NAME,
        await_command: M::AWAIT,
        messages: M::MESSAGES,
    });
    filtering::forget();
    awaits::forget(server);
    soon::prepare();
    turns::prepare();
    wake::prepare();
    context::prepare(server);
    holding::prepare(server);
    home_db::look_at(server);
    server::look_at_version(server);
    loaded::note_databases(read_databases(server));
    config::register::<M>(server, &arguments(words)?)?;
    registry::register::<M>(server)?;
    if server.flags().is_cluster() && !bus::listen::<M>(server) {
        server.log(Level::Warning, &format!("no messages between nodes: {} on each is by itself", M::TITLE));
    }
    callbacks::start_with_module::<M>(server);
    filtering::watch_for_home_db(server);
    watch::<M>(server)?;
    listeners::watch(server, M::NAME);
    if knows_migration {
        events::watch_migration::<M>(server)?;
    }
    loaded::end();
    Ok(())
}

/// What the server may count on. Left out: handling of read errors, which types of a module's own need, and events of
/// keys within those of keys.
fn options(knows_migration: bool) -> c_int {
    let options = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    options as c_int | if knows_migration { raw::VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION as c_int } else { 0 }
}

/// Subscribes to all that a module hears of but commands, which it looks at while it runs. The server lets go of it
/// when the module is unloaded.
fn watch<M: Module>(server: &mut Server) -> Result<(), String> {
    let ctx = server.raw();
    let refused = |what: &str| Err(format!("the server refused {what}"));
    let kinds = raw::REDISMODULE_NOTIFY_KEY_MISS
        | raw::REDISMODULE_NOTIFY_NEW
        | raw::REDISMODULE_NOTIFY_GENERIC
        | raw::REDISMODULE_NOTIFY_EXPIRED
        | raw::REDISMODULE_NOTIFY_EVICTED;
    // SAFETY: the callback lives as long as the module.
    if unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx, kinds, Some(callbacks::on_key_event::<M>))) } != OK {
        return refused("key events");
    }
    events::watch::<M>(server)?;
    // SAFETY: as above.
    if unsafe { api!(RedisModule_RegisterInfoFunc(ctx, Some(callbacks::on_info::<M>))) } != OK {
        return refused("an INFO section");
    }
    Ok(())
}

/// Before the module is unloaded: stops it and frees everything.
///
/// # Safety
/// Only the server calls it, once, on its main thread.
pub unsafe fn on_unload<M: Module>(ctx: *mut raw::RedisModuleCtx) -> c_int {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    if guard::counted("the unload", || is_named_in_rights::<M>(&mut server)) == Some(true) {
        return ERR;
    }
    let freed = guard::counted("the unload", || {
        bus::release();
        module::retire::<M>(&mut server);
        soon::give_way(&server);
        wake::release(&server);
        context::release(&server);
        config::release::<M>(&server);
        M::unloaded();
    });
    guard::release_panic_messages();
    if freed.is_some() { OK } else { ERR }
}

/// True where the rights of a user name one of the module's commands: servers from 7.2 on abort over such a rule once
/// the command has gone, if they don't refuse first. The server answers that the operation isn't possible; the log
/// says why.
fn is_named_in_rights<M: Module>(server: &mut Server) -> bool {
    let prefix = format!("{}.", M::NAME.to_string_lossy());
    let Some((user, rule)) = acl::rule_naming(server, &prefix) else { return false };
    let text = format!(
        "{} stays loaded: rights of the user '{user}' name a command of its ({rule}); servers end over that without \
         it. Give the user its commands anew without (ACL SETUSER {user} nocommands ...), then unload again",
        M::TITLE
    );
    server.log(Level::Warning, &text);
    true
}

/// Makes a library a module: the symbols that the server looks up when it loads one, for a type that is a [`Module`].
#[macro_export]
macro_rules! export_module {
    ($module:ty) => {
        /// Called by the server when the module is loaded.
        ///
        /// # Safety
        /// Only the server calls it, once, on its main thread, with the arguments that its module API documents.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            ctx: *mut $crate::raw::RedisModuleCtx,
            argv: *mut *mut $crate::raw::RedisModuleString,
            argc: ::std::ffi::c_int,
        ) -> ::std::ffi::c_int {
            // SAFETY: by the caller's promise.
            unsafe { $crate::load::on_load::<$module>(ctx, argv, argc) }
        }

        /// Called by the server before the module is unloaded.
        ///
        /// # Safety
        /// Only the server calls it, once, on its main thread.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut $crate::raw::RedisModuleCtx) -> ::std::ffi::c_int {
            // SAFETY: by the caller's promise.
            unsafe { $crate::load::on_unload::<$module>(ctx) }
        }
    };
}
