//! The settings in force, registered with the server: `CONFIG GET`, `SET` and `REWRITE` of them.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use valkey_module::raw;

use super::context::own_context;
use super::guard::{MainCell, counted};
use super::module::{Module, with};
use super::server::{Level, Server, Text, bytes_of};
use super::settings::{Declared, Given, Kind, Settings, closest};
use super::{MainThread, api, config_files, loaded};

/// The string that the server was last given for a text setting; it copies it at once, and it is ours to free.
static LAST_TEXT: MainCell<Text> = MainCell::empty();
static VERSION: AtomicU64 = AtomicU64::new(1);
static START_ASKED: AtomicBool = AtomicBool::new(false);
static IS_ENABLED: AtomicBool = AtomicBool::new(true);
/// The server has taken the subscription to changes of its configuration.
static CHANGES_ARE_TOLD: AtomicBool = AtomicBool::new(false);
/// Settings of the server's that were asked for.
static SERVERS: Mutex<BTreeMap<String, Option<String>>> = Mutex::new(BTreeMap::new());

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// A configuration callback, which the server runs on its main thread.
struct ConfigCall;

// SAFETY: made by callbacks of settings alone, which the server runs on its main thread.
unsafe impl MainThread for ConfigCall {}

/// The settings as they are now, and a number that changes with them.
pub fn current<M: Module>(proof: &impl MainThread) -> (u64, M::Settings) {
    let settings = M::cells().settings.with(proof, |settings| settings.clone()).unwrap_or_default();
    (VERSION.load(Ordering::Relaxed), settings)
}

/// Changes with every change of a setting.
#[inline]
pub fn version() -> u64 {
    VERSION.load(Ordering::Relaxed)
}

/// True where the server tells of every setting that is set, its own too: [`Module::on_config_change`]. Elsewhere who
/// depends on one has to ask for it now and then.
pub fn changes_are_told() -> bool {
    CHANGES_ARE_TOLD.load(Ordering::Relaxed)
}

/// At load.
pub(super) fn note_changes_are_told(are_told: bool) {
    CHANGES_ARE_TOLD.store(are_told, Ordering::Relaxed);
    forget_of_server(|_| true);
}

/// One setting of the server's, remembered until that one is set where the server tells of it: each question is a line
/// in its `MONITOR`. `None` where it has none of that name.
pub(super) fn of_server(server: &mut Server, name: &str) -> Option<String> {
    let known = servers_settings().get(name).filter(|_| changes_are_told()).cloned();
    known.unwrap_or_else(|| {
        let reply = server.call(c"CONFIG", &[b"GET", name.as_bytes()]);
        let value = reply.and_then(|reply| reply.get(name)?.text().map(str::to_owned));
        servers_settings().insert(name.to_owned(), value.clone());
        value
    })
}

/// Settings of the server's were set, those of which `was_set` is true.
pub(super) fn forget_of_server(was_set: impl Fn(&str) -> bool) {
    servers_settings().retain(|name, _| !was_set(name));
}

fn servers_settings() -> MutexGuard<'static, BTreeMap<String, Option<String>>> {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True once after [`Module::ENABLED`] was set to `yes`, whatever it was before.
#[inline]
pub fn start_was_asked() -> bool {
    START_ASKED.load(Ordering::Relaxed) && START_ASKED.swap(false, Ordering::Relaxed)
}

/// True from then until the module has started.
pub fn is_to_start() -> bool {
    START_ASKED.load(Ordering::Relaxed)
}

/// [`Module::ENABLED`] was set, maybe to what it is: after a fault, `yes` starts the module again.
pub(super) fn ask_start<M: Module>(proof: &impl MainThread) {
    let is_enabled = M::cells().settings.with(proof, |settings| settings.is_enabled()).unwrap_or(false);
    IS_ENABLED.store(is_enabled, Ordering::Relaxed);
    if is_enabled {
        START_ASKED.store(true, Ordering::Relaxed);
    }
}

/// True where [`Module::ENABLED`] was last set to `yes`.
pub fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// Whether settings can be as they are now, all of them together.
///
/// # Errors
/// As [`Module::check`].
fn check<M: Module>(server: &mut Server) -> Result<(), String> {
    let (_, settings) = current::<M>(server);
    let checked = with(&server.proof(), |module: &mut M| M::check(Some(module), server, &settings));
    checked.unwrap_or_else(|| M::check(None, server, &settings))
}

fn change<M: Module>(i: usize, value: Given) -> Result<(), String> {
    VERSION.fetch_add(1, Ordering::Relaxed);
    M::cells().settings.with(&ConfigCall, |settings| settings.set(i, value)).unwrap_or(Ok(()))
}

/// Registers every setting, and takes what the module's arguments and the server's configuration file say of them.
///
/// Arguments stand in for the defaults: what was set at run time and rewritten into the file is newer and wins.
///
/// # Errors
/// The argument that is wrong, or the setting that the server refused.
pub(super) fn register<M: Module>(server: &mut Server, arguments: &[String]) -> Result<(), String> {
    let mut settings = M::Settings::default();
    take_arguments::<M>(&mut settings, arguments)?;
    for (i, setting) in M::Settings::declared().iter().enumerate() {
        let index = ptr::without_provenance_mut::<c_void>(i);
        if register_one::<M>(server, setting, settings.get(i), index) != OK {
            return Err(format!("the server refused the setting {}", full_name::<M>(setting.name)));
        }
    }
    M::cells().settings.set(server, Some(settings));
    name_unknown::<M>(server);
    // SAFETY: the context is that of the load callback, and all settings are registered.
    match unsafe { api!(RedisModule_LoadConfigs(server.raw())) } {
        OK => Ok(()),
        _ => Err(format!("a {}.* setting in the server's configuration has a wrong value (see above)", plain::<M>())),
    }
}

/// A setting of the server's files that there is none of ends its start with no word about which: the log has it, and
/// the closest that there is.
fn name_unknown<M: Module>(server: &mut Server) {
    let Some(path) = server.info_field(c"server", c"config_file").filter(|path| !path.is_empty()) else { return };
    let prefix = format!("{}.", plain::<M>());
    let declared = M::Settings::declared();
    let names: Vec<_> = declared.iter().map(|setting| setting.name.to_string_lossy()).collect();
    for line in config_files::lines(Path::new(&path)) {
        let word = &line.name;
        let Some(name) = word.strip_prefix(&prefix).filter(|name| names.iter().all(|known| known != name)) else {
            continue;
        };
        let hint =
            closest(name, names.iter().map(AsRef::as_ref)).map(|known| format!("; did you mean {prefix}{known}?"));
        let (file, hint) = (line.file.display(), hint.unwrap_or_default());
        let text = format!("{file}:{}: there is no setting {word}{hint}", line.number);
        server.log(Level::Warning, &text);
    }
}

fn plain<M: Module>() -> std::borrow::Cow<'static, str> {
    M::NAME.to_string_lossy()
}

fn full_name<M: Module>(name: &CStr) -> String {
    format!("{}.{}", plain::<M>(), name.to_string_lossy())
}

/// The names of all settings, as the server knows them.
pub(super) fn names<M: Module>() -> impl Iterator<Item = CString> {
    M::Settings::declared().into_iter().filter_map(|setting| CString::new(full_name::<M>(setting.name)).ok())
}

fn register_one<M: Module>(server: &mut Server, setting: &Declared, default: Given, index: *mut c_void) -> c_int {
    let (ctx, name) = (server.raw(), setting.name.as_ptr());
    let plain = raw::REDISMODULE_CONFIG_DEFAULT;
    // The callbacks have the signatures asked for and live as long as the module; names are constants.
    match (setting.kind, default) {
        (Kind::Bool, Given::Bool(default)) => {
            let (get, set) = (Some(get_bool::<M> as _), Some(set_bool::<M> as _));
            // SAFETY: as said above.
            unsafe {
                api!(RedisModule_RegisterBoolConfig(ctx, name, c_int::from(default), plain, get, set, None, index))
            }
        }
        (Kind::Number { min, max, memory }, Given::Number(default)) => {
            let flags = if memory { raw::REDISMODULE_CONFIG_MEMORY } else { plain };
            let (get, set) = (Some(get_number::<M> as _), Some(set_number::<M> as _));
            // SAFETY: as said above.
            unsafe {
                api!(RedisModule_RegisterNumericConfig(ctx, name, default, flags, min, max, get, set, None, index))
            }
        }
        (Kind::Choice { names }, Given::Choice(default)) => {
            let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
            let values: Vec<c_int> = (0..names.len() as c_int).collect();
            let (pointers, values, n) = (pointers.as_mut_ptr(), values.as_ptr(), names.len() as c_int);
            let (get, set) = (Some(get_choice::<M> as _), Some(set_choice::<M> as _));
            let default = default as c_int;
            // SAFETY: as said above; the server copies both arrays, which have an entry for each name.
            unsafe {
                api!(RedisModule_RegisterEnumConfig(
                    ctx, name, default, plain, pointers, values, n, get, set, None, index
                ))
            }
        }
        (Kind::Text, Given::Text(default)) => {
            let default = CString::new(default).unwrap_or_default();
            let (get, set, apply) = (Some(get_text::<M> as _), Some(set_text::<M> as _), Some(apply_text::<M> as _));
            // SAFETY: as said above; the server copies the default.
            unsafe {
                api!(RedisModule_RegisterStringConfig(ctx, name, default.as_ptr(), plain, get, set, apply, index))
            }
        }
        // A module whose settings aren't of the kinds it declares.
        _ => ERR,
    }
}

/// Takes the module's arguments: `NAME VALUE` pairs of settings, names with or without the module's.
///
/// # Errors
/// The pair that is wrong, and what is allowed.
fn take_arguments<M: Module>(settings: &mut M::Settings, words: &[String]) -> Result<(), String> {
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("argument '{}' has no value; write NAME VALUE, as in 'samples 10'", pair[0]));
        };
        let prefix = format!("{}.", plain::<M>());
        settings.set_argument(name.strip_prefix(&prefix).unwrap_or(name), value)?;
    }
    Ok(())
}

/// What the setting of a running callback is.
///
/// Not guarded, nor are the callbacks below: what a setting is has to be known after a fault too (a CONFIG REWRITE
/// would make the answer last), turning the module on again has to work, and nothing here can panic.
fn look<M: Module, R>(index: *mut c_void, body: impl FnOnce(Given) -> Option<R>) -> Option<R> {
    M::cells().settings.with(&ConfigCall, |settings| body(settings.get(index.addr()))).flatten()
}

unsafe extern "C" fn get_bool<M: Module>(_name: *const c_char, index: *mut c_void) -> c_int {
    let value = look::<M, _>(index, |value| if let Given::Bool(value) = value { Some(value) } else { None });
    c_int::from(value.unwrap_or(false))
}

unsafe extern "C" fn set_bool<M: Module>(
    _name: *const c_char,
    value: c_int,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server gives a place for the message.
    unsafe { told(change::<M>(index.addr(), Given::Bool(value != 0)), error) }
}

unsafe extern "C" fn get_number<M: Module>(_name: *const c_char, index: *mut c_void) -> c_longlong {
    look::<M, _>(index, |value| if let Given::Number(value) = value { Some(value) } else { None }).unwrap_or(0)
}

unsafe extern "C" fn set_number<M: Module>(
    _name: *const c_char,
    value: c_longlong,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server has checked the range.
    // SAFETY: the server gives a place for the message.
    unsafe { told(change::<M>(index.addr(), Given::Number(value)), error) }
}

unsafe extern "C" fn get_choice<M: Module>(_name: *const c_char, index: *mut c_void) -> c_int {
    let value = look::<M, _>(index, |value| if let Given::Choice(value) = value { Some(value) } else { None });
    value.unwrap_or(0) as c_int
}

unsafe extern "C" fn set_choice<M: Module>(
    _name: *const c_char,
    value: c_int,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server has checked that it is one of ours.
    // SAFETY: the server gives a place for the message.
    unsafe { told(change::<M>(index.addr(), Given::Choice(value as usize)), error) }
}

/// What the server is answered; where it was refused, the reason.
///
/// # Safety
/// `error` is what the server gave the running callback for a message.
unsafe fn told(taken: Result<(), String>, error: *mut *mut raw::RedisModuleString) -> c_int {
    let Err(said) = taken else { return OK };
    let said = CString::new(said).unwrap_or_default();
    let said = Text::without_context(said.as_bytes()).into_raw();
    // SAFETY: by the caller's promise; the server frees the string.
    unsafe { *error = said };
    ERR
}

unsafe extern "C" fn get_text<M: Module>(_name: *const c_char, index: *mut c_void) -> *mut raw::RedisModuleString {
    let text = look::<M, _>(index, |value| if let Given::Text(text) = value { Some(text.to_owned()) } else { None });
    let text = Text::without_context(&text.unwrap_or_default());
    let pointer = text.raw();
    LAST_TEXT.set(&ConfigCall, Some(text));
    pointer
}

unsafe extern "C" fn set_text<M: Module>(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let take = || {
        // SAFETY: the value lives during the call.
        change::<M>(index.addr(), Given::Text(unsafe { bytes_of(&value) }))
    };
    match counted("a setting", take) {
        // SAFETY: the server gives a place for the message.
        Some(taken) => unsafe { told(taken, error) },
        None => ERR,
    }
}

/// All settings of one CONFIG SET have been taken: what they say together has to be possible.
unsafe extern "C" fn apply_text<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    _index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // At the start the server is not to fail over it.
    if !loaded::is_loaded() {
        return OK;
    }
    // Not the context that is given: on Redis 7.0 nothing can be called with it.
    let Some(mut server) = own_context(&ConfigCall) else { return OK };
    match counted("a setting", || check::<M>(&mut server)) {
        // SAFETY: the server gives a place for the message.
        Some(taken) => unsafe { told(taken, error) },
        None => OK,
    }
}

/// Frees what the callbacks keep, before the module is unloaded.
pub(super) fn release<M: Module>(proof: &impl MainThread) {
    forget_of_server(|_| true);
    drop(LAST_TEXT.set(proof, None));
    drop(M::cells().settings.set(proof, None));
}
