//! What the server calls: the filter, key events, the end of an event loop's turn, INFO, commands. Each enters through the guard
//! and hands over to safe code at once.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use valkey_module::raw;

use super::bus::{NodeId, Topic};
use super::filter::{self, FilterCall};
use super::guard::{self, MainCell, guarded};
use super::reply::Answer;
use super::server::{Level, Server, bytes_of, words_of};
use super::{MainThread, api, awaits, home_db, registry, settings, soon};
use crate::commands;
use crate::config::Settings;
use crate::feature::Event;
use crate::features::replies;
use crate::info::{self, Sink, Value};
use crate::observe::command_table::Entry;
use crate::runtime::{Named, Runtime};
use crate::tenure::DataChange;
use crate::tenure::minimums;
pub(super) use crate::tenure::sleep::Awaited;

static STATE: MainCell<Runtime> = MainCell::empty();

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// Microseconds of a clock that never goes back. About 25 ns.
pub fn now_us() -> u64 {
    // SAFETY: takes nothing.
    unsafe { api!(RedisModule_MonotonicMicroseconds()) }
}

/// Processor time that the calling thread has used, in µs. A system call of some 300 ns.
pub fn thread_cpu_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time it is given, and keeps nothing.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Gives the server back what was set for it, stops the worker and drops all state.
pub(super) fn retire(server: &Server) {
    if let Some(mut runtime) = STATE.set(server, None) {
        info::keep_last_counts(&runtime);
        runtime.give_back(server);
    }
}

pub(super) unsafe extern "C" fn on_command(call: *mut raw::RedisModuleCommandFilterCtx) {
    // SAFETY: the server runs this filter now, with this call.
    let mut call = unsafe { FilterCall::new(call) };
    // The call itself is handed to what it proves to be on the main thread.
    let proof = call.proof();
    home_db::before_command(&call);
    if filter::is_resting() {
        return;
    }
    guarded("the command filter", || {
        let named = STATE.with(&proof, |runtime| runtime.named(&call));
        if let Some(Named::Seen(command)) = named {
            watch_command(&proof, &mut call, command);
        }
    });
}

/// The greater part, by itself: what passes unseen needs no room on the stack for it.
#[inline(never)]
fn watch_command(proof: &impl MainThread, call: &mut FilterCall, command: Option<Entry>) {
    let asks_for_timer = STATE.with(proof, |runtime| {
        runtime.on_command(call, command, now_us);
        let tenure = &mut runtime.tenure;
        if let Some(touched) = tenure.observer.touches.take()
            && let Some(server) = soon::own_context(call)
        {
            tenure.on_touched(call, &server, &touched);
        }
        if !tenure.observer.touches.owed.is_empty()
            && let Some(server) = soon::own_context(call)
        {
            tenure.settle_soon(&server);
        }
        tenure.observer.manages_modules
    });
    if asks_for_timer == Some(true) {
        soon::cancel(proof);
    }
}

/// The event loop has time, or seemed to: see [`Runtime::idle`].
pub(super) fn on_idle(server: &Server) {
    guarded("an idle turn", || STATE.with(server, |runtime| runtime.idle(server)));
}

pub(super) unsafe extern "C" fn on_key_event(
    ctx: *mut raw::RedisModuleCtx,
    kind: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server runs this callback now, with this context.
    let server = unsafe { Server::new(ctx) };
    let db = server.selected_db();
    // SAFETY: the server gives a C string that lives during the call.
    let event = unsafe { CStr::from_ptr(event) };
    guarded("a key event", || {
        // SAFETY: the key's name lives during the call.
        let key = unsafe { bytes_of(&key) };
        STATE.with(&server, |Runtime { tenure, .. }| {
            if kind & raw::REDISMODULE_NOTIFY_KEY_MISS != 0 {
                tenure.observer.on_miss(db, key, now_us());
            } else {
                tenure.on_key_event(&server, db, event, key);
            }
        });
    });
    home_db::after_event(&server, db, event.to_bytes());
    OK
}

pub(super) unsafe extern "C" fn on_event_loop(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP {
        return;
    }
    // SAFETY: the server runs this callback now, with this context.
    let server = unsafe { Server::new(ctx) };
    if guard::is_off() {
        recover(&server);
    }
    guarded("the end of a turn", || end_turn(&server));
}

fn end_turn(server: &Server) {
    let ran = STATE.with(server, |runtime| {
        if runtime.tenure.settings_version != settings::version() {
            let (version, now) = settings::current(server);
            info::keep_counts_of_all(runtime, |runtime| runtime.take_settings(server, version, now));
        }
        runtime.end_turn(server, now_us());
        let tenure = &runtime.tenure;
        (tenure.settings().enabled, tenure.worker.is_alive())
    });
    match ran {
        // Its worker has died, and it was asked to start again.
        Some((true, is_whole)) if settings::start_was_asked() && !is_whole => {
            retire(server);
            start(server);
        }
        Some((true, _)) => {}
        Some((false, _)) => {
            retire(server);
            filter::watch(server, false);
            server.log(Level::Notice, "tenure.enabled is 'no': the server runs as stock");
        }
        None => {
            let is_server_start =
                IS_SERVER_START.load(Ordering::Relaxed) && IS_SERVER_START.swap(false, Ordering::Relaxed);
            if settings::start_was_asked() {
                start_anew(server, is_server_start);
            }
        }
    }
}

/// The module was loaded with the server, whose first turn is still to come.
static IS_SERVER_START: AtomicBool = AtomicBool::new(false);

/// Starts with the module. Where the server itself starts, when it begins to serve: what is held before counts as its own memory for
/// ever, and `MEMORY STATS` is wrong once Tenure gives it back.
pub(super) fn start_with_module(server: &Server) {
    let is_server_start = server.info_field(b"stats", "total_connections_received").is_some_and(|n| n == "0");
    IS_SERVER_START.store(is_server_start, Ordering::Relaxed);
    if is_server_start {
        settings::ask_start(server);
    } else {
        start(server);
    }
}

fn start(server: &Server) {
    start_anew(server, false);
}

/// Makes fresh state, where the settings want it.
fn start_anew(server: &Server, is_server_start: bool) {
    let (version, settings) = settings::current(server);
    if !settings.enabled {
        return;
    }
    match Runtime::start(server, version, settings, is_server_start) {
        Ok(runtime) => drop(STATE.set(server, Some(runtime))),
        Err(why) => server.log(Level::Warning, &format!("Tenure does not run, the server serves as stock: {why}")),
    }
}

/// Minimums have to fit into the limit as it is now.
///
/// # Errors
/// As [`minimums::check`].
pub(super) fn check_minimums(server: &Server, settings: &Settings) -> Result<(), String> {
    let limit_bytes = server.info_field(b"memory", "maxmemory").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let room_bytes = STATE.with(server, |runtime| runtime.tenure.room_for_keys(server, limit_bytes)).flatten();
    minimums::check(settings, limit_bytes, room_bytes)
}

/// After a panic: lets go of the state, says so once, and waits until it is asked to start again.
#[cold]
fn recover(server: &Server) {
    let had_state = || {
        let held = STATE.set(server, None);
        let had_state = held.is_some();
        if let Some(mut runtime) = held {
            info::keep_last_counts(&runtime);
            runtime.give_back(server);
        }
        if had_state {
            replies::release_everyone(server);
        }
        had_state
    };
    if guard::counted("giving up after a fault", had_state) == Some(true) {
        let text = format!(
            "Tenure has turned itself off after a fault, the server serves as stock: panic {}; CONFIG SET tenure.enabled yes starts it again",
            guard::last_panic()
        );
        server.log(Level::Warning, &text);
    }
    if settings::start_was_asked() {
        guard::turn_on();
        guarded("the start", || start(server));
    }
}

pub(super) unsafe extern "C" fn on_config_change(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let server = unsafe { Server::new(ctx) };
    // SAFETY: the data of this event is a list of the settings that were set.
    if unsafe { names_setting(data, c"tenure.enabled") } {
        settings::ask_start(&server);
    }
    guarded("a configuration change", || STATE.with(&server, |runtime| runtime.server_may_have_changed(&server)));
}

/// A connection has come or gone.
pub(super) unsafe extern "C" fn on_client_change(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED || data.is_null() {
        return;
    }
    // SAFETY: the server runs this callback now, with this context.
    let server = unsafe { Server::new(ctx) };
    // SAFETY: the data of this event is a client's description, alive during the call.
    let client_id = unsafe { (*data.cast::<raw::RedisModuleClientInfo>()).id };
    awaits::forget_connection(&server, client_id);
    guarded("the end of a connection", || STATE.with(&server, |runtime| runtime.on_client_gone(&server, client_id)));
}

/// What becomes of a command that the filter has put behind `TENURE.AWAIT`. Without Tenure it runs.
pub(super) fn on_await(server: &Server, words: &[&[u8]]) -> Awaited {
    guarded("a wait", || STATE.with(server, |runtime| runtime.tenure.await_value(server, words)))
        .flatten()
        .unwrap_or(Awaited::Runs)
}

/// A client's wait is over.
pub(super) fn on_awaited(server: &Server, words: &[&[u8]], outcome: Option<awaits::Outcome>) {
    guarded("the end of a wait", || STATE.with(server, |runtime| runtime.tenure.finish_await(server, words, outcome)));
}

/// A database was emptied, databases changed places, a data set is loaded, or the server's role has changed.
pub(super) unsafe extern "C" fn on_data_change(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let server = unsafe { Server::new(ctx) };
    let change = match event.id {
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
        _ => DataChange::OtherRole,
    };
    guarded("a change of the data set", || STATE.with(&server, |runtime| runtime.on_data_change(&server, change)));
}

/// Ten times a second, before commands that were held back by a pause run.
pub(super) unsafe extern "C" fn on_cron(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let server = unsafe { Server::new(ctx) };
    guarded("a tick of the server's", || STATE.with(&server, |runtime| runtime.tenure.settle_sleepers(&server)));
}

/// Another node's Tenure has sent a message.
pub(super) fn on_message(server: &Server, sender: &NodeId, topic: Topic, body: &[u8]) {
    let message = Event::Message { sender, topic, body };
    guarded("a message", || STATE.with(server, |runtime| runtime.event(server, &message)));
}

/// The server stops in good order.
pub(super) unsafe extern "C" fn on_shutdown(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    // SAFETY: the server runs this callback now, with this context.
    let server = unsafe { Server::new(ctx) };
    guarded("the stop", || STATE.with(&server, |runtime| runtime.tenure.on_shutdown(&server)));
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

pub(super) unsafe extern "C" fn on_info(ctx: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        return;
    }
    let mut sink = InfoSink { ctx };
    let was_off = guard::is_off();
    let written = guarded("INFO", || STATE.with(&InfoCall, |runtime| crate::info::write(runtime, &mut sink)));
    // What failed just now has begun to write.
    if written.flatten().is_none() && guard::is_off() == was_off {
        guard::counted("INFO", || crate::info::write_stopped(&mut sink));
    }
}

/// The INFO callback, which the server runs on its main thread.
struct InfoCall;

impl MainThread for InfoCall {}

struct InfoSink {
    ctx: *mut raw::RedisModuleInfoCtx,
}

impl Sink for InfoSink {
    fn section(&mut self) -> bool {
        // SAFETY: the context is that of the running INFO.
        unsafe { api!(RedisModule_InfoAddSection(self.ctx, c"".as_ptr())) == OK }
    }

    fn field(&mut self, name: &str, value: Value) {
        let name = std::ffi::CString::new(name).unwrap_or_default();
        let name = name.as_ptr();
        match value {
            Value::Total(n) | Value::Count(n) => {
                // SAFETY: as above; the server copies the name.
                unsafe { api!(RedisModule_InfoAddFieldULongLong(self.ctx, name, n)) };
            }
            Value::OrNone(n) => {
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoAddFieldLongLong(self.ctx, name, n.map_or(-1, |n| n as i64))) };
            }
            Value::Number(x) => {
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoAddFieldDouble(self.ctx, name, x)) };
            }
            Value::Text(text) => {
                let text = std::ffi::CString::new(text).unwrap_or_default();
                // SAFETY: as above; the server copies the text.
                unsafe { api!(RedisModule_InfoAddFieldCString(self.ctx, name, text.as_ptr())) };
            }
            Value::Fields(fields) => {
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoBeginDictField(self.ctx, name)) };
                for (name, value) in fields {
                    self.field(name, value);
                }
                // SAFETY: as above.
                unsafe { api!(RedisModule_InfoEndDictField(self.ctx)) };
            }
        }
    }
}

/// One command: its words become text where they are UTF-8, and its answer is sent.
pub(super) unsafe extern "C" fn on_own_command(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this command now, with this context.
    let server = unsafe { Server::new(ctx) };
    // SAFETY: `argv` holds `argc` strings that live during the call.
    let words = unsafe { words_of(argv, argc) };
    // Looking at other databases in a command's context moves its client there.
    let db = server.selected_db();
    let was_off = guard::is_off();
    let ran = guarded("a command", || {
        let is_refused = commands::changes(&words) && !registry::may_change(&server);
        if is_refused {
            return Some(commands::no_permission());
        }
        STATE.with(&server, |runtime| commands::run(runtime, &server, &words))
    });
    server.select_db(db);
    let failed = || Answer::Error("ERR a fault in Tenure; see INFO tenure".to_owned());
    let answer = match ran.flatten() {
        Some(answer) => answer,
        None if guard::is_off() != was_off => failed(),
        None => guard::counted("a command", || commands::run_stopped(&words)).unwrap_or_else(failed),
    };
    server.answer(&answer);
    OK
}
