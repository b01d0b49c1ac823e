//! What the server calls: the filter, key events, the end of an event loop's turn, INFO, commands. Each enters
//! through the guard and hands over to the module's safe code at once.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use valkey_module::raw;

use super::context::own_context;
use super::filter::{FilterCall, Words};
use super::guard::{self, guarded};
use super::info::Sink;
use super::module::{DataChange, Life, Module, Next, retire, with};
use super::reply::Answer;
use super::server::{Level, ScannedName, Server, words_of};
use super::settings::Settings;
use super::{MainThread, awaits, config, events, filtering, home_db, migration, rights, soon, turns};

const OK: c_int = raw::REDISMODULE_OK as c_int;

pub(super) unsafe extern "C" fn on_command<M: Module>(call: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server runs this filter now, with this call.
    let mut call = unsafe { FilterCall::new(call) };
    // The call itself is handed to what it proves to be on the main thread.
    let proof = call.proof();
    if home_db::is_needed() {
        home_db::before_command(&call);
    }
    if filtering::is_resting() {
        return before_unload(&call, &proof);
    }
    guarded("the command filter", || {
        let next = with(&proof, |module: &mut M| {
            let seen = module.before_command(&call)?;
            Some(watch_command(module, &mut call, seen))
        });
        match next.flatten() {
            Some(Next::TurnEnds) => own_context(&proof).iter().for_each(turns::ask),
            // Who is refused holds up nobody else's turns.
            Some(Next::ModuleGoes) if call.may_run() => soon::give_way(&proof),
            None | Some(Next::Nothing | Next::ModuleGoes) => {}
        }
    });
}

/// A command goes by unseen; what it may not find is a timer, where it unloads a module.
#[inline]
fn before_unload(call: &FilterCall, proof: &impl MainThread) {
    let is = |at: usize, word: &[u8]| call.word(at).is_some_and(|has| has.eq_ignore_ascii_case(word));
    if is(0, b"module") && is(1, b"unload") && call.may_run() {
        soon::give_way(proof);
    }
}

/// The greater part, by itself: what passes unseen needs no room on the stack for it.
#[inline(never)]
fn watch_command<M: Module>(module: &mut M, call: &mut FilterCall, seen: M::Seen) -> Next {
    module.on_command(call, seen)
}

pub(super) unsafe extern "C" fn on_key_event<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    kind: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    let db = server.selected_db();
    // SAFETY: the server gives a C string that lives during the call.
    let event = unsafe { CStr::from_ptr(event) };
    guarded("a key event", || {
        // SAFETY: the key's name lives during the call.
        let key = unsafe { ScannedName::new(&key) };
        with(&server.proof(), |module: &mut M| {
            if kind & raw::REDISMODULE_NOTIFY_KEY_MISS != 0 {
                module.on_miss(db, key.as_ref());
            } else {
                module.on_key_event(&mut server, db, event, &key);
            }
        });
    });
    home_db::after_event(&mut server, db, event.to_bytes());
    OK
}

pub(super) unsafe extern "C" fn on_event_loop<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP {
        return;
    }
    // SAFETY: the server runs this callback now, with this context.
    on_turn::<M>(&mut unsafe { Server::new(ctx) });
}

/// The time has come that the module asked for ([`super::wake`]).
pub(super) fn on_wake<M: Module>(server: &mut Server) {
    guarded("a time", || with(&server.proof(), |module: &mut M| module.on_wake(server)));
}

/// A turn of the event loop ends.
pub(super) fn on_turn<M: Module>(server: &mut Server) {
    if guard::is_off() {
        recover::<M>(server);
    }
    guarded("the end of a turn", || end_turn::<M>(server));
}

fn end_turn<M: Module>(server: &mut Server) {
    match with(&server.proof(), |module: &mut M| module.end_turn(server)) {
        Some(Life::Ails) if config::start_was_asked() => {
            retire::<M>(server);
            start::<M>(server);
        }
        Some(Life::Runs) => _ = config::start_was_asked(),
        Some(Life::Ails) => {}
        Some(Life::Stops(why)) => {
            retire::<M>(server);
            filtering::watch(server, filtering::Sees::Nothing);
            server.log(Level::Notice, &format!("{why}: the server runs as stock"));
        }
        None => {
            let is_server_start =
                IS_SERVER_START.load(Ordering::Relaxed) && IS_SERVER_START.swap(false, Ordering::Relaxed);
            if config::start_was_asked() {
                start_anew::<M>(server, is_server_start);
            }
        }
    }
}

/// The module was loaded with the server, whose first turn is still to come.
static IS_SERVER_START: AtomicBool = AtomicBool::new(false);

/// Starts with the module. Where the server itself starts, when it begins to serve: what is held before counts as its
/// own memory for ever, and `MEMORY STATS` is wrong once the module gives it back.
pub(super) fn start_with_module<M: Module>(server: &mut Server) {
    let is_server_start = server.info_field(c"stats", c"total_connections_received").is_some_and(|n| n == "0");
    IS_SERVER_START.store(is_server_start, Ordering::Relaxed);
    if is_server_start {
        config::ask_start::<M>(server);
    } else {
        start::<M>(server);
    }
}

fn start<M: Module>(server: &mut Server) {
    start_anew::<M>(server, false);
}

/// Makes fresh state, where the settings want it.
fn start_anew<M: Module>(server: &mut Server, is_server_start: bool) {
    let (version, settings) = config::current::<M>(server);
    if !settings.is_enabled() {
        return;
    }
    match M::start(server, version, settings, is_server_start) {
        Ok(module) => drop(M::cells().state.set(server, Some(module))),
        Err(why) => {
            server.log(Level::Warning, &format!("{} does not run, the server serves as stock: {why}", M::TITLE));
        }
    }
}

/// After a panic: lets go of the state, says so once, and waits until it is asked to start again.
#[cold]
fn recover<M: Module>(server: &mut Server) {
    let had_state = || {
        let held = M::cells().state.set(server, None);
        let had_state = held.map(|mut module| module.stop(server)).is_some();
        if had_state {
            M::after_fault(server);
        }
        had_state
    };
    if guard::counted("giving up after a fault", had_state) == Some(true) {
        let text = format!(
            "{} has turned itself off after a fault, the server serves as stock: panic {}; CONFIG SET {} yes starts \
             it again",
            M::TITLE,
            guard::last_panic(),
            M::ENABLED.to_string_lossy()
        );
        server.log(Level::Warning, &text);
    }
    if config::start_was_asked() {
        guard::turn_on();
        guarded("the start", || start::<M>(server));
    }
}

pub(super) unsafe extern "C" fn on_config_change<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    // SAFETY: the data of this event is a list of the settings that were set.
    let was_set = |name: &CStr| unsafe { names_setting(data, name) };
    config::forget_of_server(|name| CString::new(name).is_ok_and(|name| was_set(name.as_c_str())));
    let is_stopped = || !guard::is_off() && M::cells().state.with(&server, |_| ()).is_none();
    let may_run_now = || M::RUNS_BY.iter().any(|name| was_set(name)) || config::names::<M>().any(|name| was_set(&name));
    if was_set(M::ENABLED) || (is_stopped() && may_run_now()) {
        config::ask_start::<M>(&server);
    }
    guarded("a configuration change", || with(&server.proof(), |module: &mut M| module.on_config_change(&mut server)));
    turns::ask(&server);
}

/// A connection has come or gone.
pub(super) unsafe extern "C" fn on_client_change<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED || data.is_null() {
        return;
    }
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    // SAFETY: the data of this event is a client's description, alive during the call.
    let client_id = unsafe { (*data.cast::<raw::RedisModuleClientInfo>()).id };
    awaits::forget_connection(&server, client_id);
    guarded("the end of a connection", || {
        with(&server.proof(), |module: &mut M| module.on_disconnect(&mut server, client_id))
    });
}

/// A database was emptied, databases changed places, a data set is loaded, or the server's role has changed.
pub(super) unsafe extern "C" fn on_data_change<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    let change = match event.id {
        raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD => {
            IS_LOADED_BESIDE.store(subevent == raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED, Ordering::Relaxed);
            if subevent != raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED {
                return;
            }
            DataChange::Replaced
        }
        raw::REDISMODULE_EVENT_LOADING if IS_LOADED_BESIDE.load(Ordering::Relaxed) => return,
        // SAFETY: the data of this event says which database, alive during the call; -1 is all.
        raw::REDISMODULE_EVENT_FLUSHDB => DataChange::Emptied(
            unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() }
                .and_then(|info| u16::try_from(info.dbnum).ok()),
        ),
        raw::REDISMODULE_EVENT_SWAPDB => {
            // SAFETY: the data of this event says which databases, alive during the call.
            let Some(info) = (unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() }) else { return };
            DataChange::Swapped(info.dbnum_first as u16, info.dbnum_second as u16)
        }
        raw::REDISMODULE_EVENT_LOADING => DataChange::Loaded,
        _ => {
            events::follow_role(&server);
            DataChange::OtherRole
        }
    };
    guarded("a change of the data set", || {
        with(&server.proof(), |module: &mut M| module.on_data_change(&mut server, change))
    });
    turns::ask(&server);
}

/// A replica loads another data set beside its own, which it keeps where that fails (`repl-diskless-load swapdb`).
static IS_LOADED_BESIDE: AtomicBool = AtomicBool::new(false);

/// Slots move to this node or away from it.
pub(super) unsafe extern "C" fn on_migration<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    // SAFETY: the data is this event's, alive during the call.
    let Some(moved) = (unsafe { migration::migration(subevent, data.cast::<migration::Told>()) }) else { return };
    guarded("slots that move", || with(&server.proof(), |module: &mut M| module.on_migration(&mut server, moved)));
}

/// Ten times a second, before commands that were held back by a pause run.
pub(super) unsafe extern "C" fn on_cron<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    soon::at_tick();
    guarded("a tick of the server's", || with(&server.proof(), |module: &mut M| module.on_cron(&mut server)));
    if !turns::are_heard() {
        on_turn::<M>(&mut server);
    }
}

/// The server stops in good order.
pub(super) unsafe extern "C" fn on_shutdown<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    guarded("the stop", || with(&server.proof(), |module: &mut M| module.on_shutdown(&mut server)));
}

/// True where the change that the server tells of includes `name`, also where it was set to what it is already.
///
/// # Safety
/// `data` is null or what came with a configuration event.
unsafe fn names_setting(data: *mut c_void, name: &CStr) -> bool {
    if data.is_null() {
        return false;
    }
    // SAFETY: by the caller's promise.
    let change = unsafe { &*data.cast::<raw::RedisModuleConfigChangeV1>() };
    // SAFETY: the event holds that many names, which live during the call.
    let names = unsafe { std::slice::from_raw_parts(change.config_names, change.num_changes as usize) };
    // SAFETY: each is a C string.
    names.iter().any(|&held| unsafe { CStr::from_ptr(held) } == name)
}

pub(super) unsafe extern "C" fn on_info<M: Module>(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return;
    }
    // SAFETY: the server runs this callback now, with this context.
    let mut sink = unsafe { Sink::new(ctx) };
    let was_off = guard::is_off();
    let written = guarded("INFO", || with(&InfoCall, |module: &mut M| module.info(&mut sink)));
    // What failed just now has begun to write.
    if written.flatten().is_none() && guard::is_off() == was_off {
        guard::counted("INFO", || M::info_stopped(&mut sink));
    }
}

/// The INFO callback, which the server runs on its main thread.
struct InfoCall;

// SAFETY: made by the INFO callback alone, which the server runs on its main thread.
unsafe impl MainThread for InfoCall {}

/// One command: its words become text where they are UTF-8, and its answer is sent.
pub(super) unsafe extern "C" fn on_own_command<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this command now, with this context.
    let mut server = unsafe { Server::new(ctx) };
    // SAFETY: `argv` holds `argc` strings that live during the call.
    let words = unsafe { words_of(argv, argc) };
    // Looking at other databases in a command's context moves its client there.
    let db = server.selected_db();
    let was_off = guard::is_off();
    let ran = guarded("a command", || {
        // Asked of the server only where it matters.
        let refused = M::refuse(&words).filter(|_| !rights::may_change::<M>(&server));
        refused.or_else(|| with(&server.proof(), |module: &mut M| module.on_own_command(&mut server, &words)))
    });
    server.select_db(db);
    let failed = || Answer::error(format!("a fault in {}; INFO says which", M::TITLE));
    let answer = match ran.flatten() {
        Some(answer) => answer,
        None if guard::is_off() != was_off => failed(),
        None => guard::counted("a command", || M::answer_stopped(&words)).unwrap_or_else(failed),
    };
    server.answer(&answer);
    turns::ask(&server);
    OK
}
