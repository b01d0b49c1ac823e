//! The settings table, registered with the server: `CONFIG GET`, `SET` and `REWRITE` of `tenure.*`.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use valkey_module::raw;

use super::guard::{MainCell, counted};
use super::server::{Server, Text, bytes_of};
use super::{MainThread, api, callbacks, load, soon};
use crate::config::{Kind, Settings, TABLE, allowed};

static SETTINGS: MainCell<Settings> = MainCell::empty();
/// The string that the server was last given for a text setting; it copies it at once, and it is ours to free.
static LAST_TEXT: MainCell<Text> = MainCell::empty();
static VERSION: AtomicU64 = AtomicU64::new(1);
static START_ASKED: AtomicBool = AtomicBool::new(false);

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// A configuration callback, which the server runs on its main thread.
struct ConfigCall;

impl MainThread for ConfigCall {}

/// The settings as they are now, and a number that changes with them.
pub fn current(proof: &impl MainThread) -> (u64, Settings) {
    let settings = SETTINGS.with(proof, |settings| settings.clone()).unwrap_or_default();
    (VERSION.load(Ordering::Relaxed), settings)
}

/// Changes with every change of a setting.
pub fn version() -> u64 {
    VERSION.load(Ordering::Relaxed)
}

/// True once after `tenure.enabled` was set to `yes`, whatever it was before.
pub fn start_was_asked() -> bool {
    START_ASKED.load(Ordering::Relaxed) && START_ASKED.swap(false, Ordering::Relaxed)
}

/// True from then until Tenure has started.
pub fn is_to_start() -> bool {
    START_ASKED.load(Ordering::Relaxed)
}

/// `tenure.enabled` was set, maybe to what it is: after a fault, `yes` starts Tenure again.
pub fn ask_start(proof: &impl MainThread) {
    if SETTINGS.with(proof, |settings| settings.enabled).unwrap_or(false) {
        START_ASKED.store(true, Ordering::Relaxed);
    }
}

fn change<R>(body: impl FnOnce(&mut Settings) -> R) -> Option<R> {
    VERSION.fetch_add(1, Ordering::Relaxed);
    SETTINGS.with(&ConfigCall, body)
}

/// Registers every setting, and takes what the module's arguments and the server's configuration file say of them.
///
/// Arguments stand in for the defaults: what was set at run time and rewritten into the file is newer and wins.
///
/// # Errors
/// The argument that is wrong, or the setting that the server refused.
pub(super) fn register(server: &Server, arguments: &[String]) -> Result<(), String> {
    SETTINGS.set(server, Some(Settings::default()));
    take_arguments(arguments)?;
    let (_, defaults) = current(server);
    for (i, setting) in TABLE.iter().enumerate() {
        let index = ptr::without_provenance_mut::<c_void>(i);
        if register_one(server, setting.name, &setting.kind, &defaults, index) != OK {
            return Err(format!("the server refused the setting tenure.{}", setting.name.to_string_lossy()));
        }
    }
    // SAFETY: the context is that of the load callback, and all settings are registered.
    match unsafe { api!(RedisModule_LoadConfigs(server.raw())) } {
        OK => Ok(()),
        _ => Err("a tenure.* setting in the server's configuration has a wrong value (see above)".to_owned()),
    }
}

fn register_one(server: &Server, name: &CStr, kind: &Kind, defaults: &Settings, index: *mut c_void) -> c_int {
    let (ctx, name) = (server.raw(), name.as_ptr());
    match kind {
        Kind::Bool { get, .. } => {
            // Not the server's IMMUTABLE, which refuses the value that is set already: `set_bool` refuses others.
            let flags = raw::REDISMODULE_CONFIG_DEFAULT;
            let default = c_int::from(get(defaults));
            // SAFETY: the name is a constant; the callbacks have the signatures asked for and live as long as the module.
            unsafe {
                api!(RedisModule_RegisterBoolConfig(
                    ctx,
                    name,
                    default,
                    flags,
                    Some(get_bool),
                    Some(set_bool),
                    None,
                    index
                ))
            }
        }
        Kind::Number { get, min, max, memory, .. } => {
            let flags = if *memory { raw::REDISMODULE_CONFIG_MEMORY } else { raw::REDISMODULE_CONFIG_DEFAULT };
            // SAFETY: as above.
            unsafe {
                api!(RedisModule_RegisterNumericConfig(
                    ctx,
                    name,
                    get(defaults),
                    flags,
                    *min,
                    *max,
                    Some(get_number),
                    Some(set_number),
                    None,
                    index
                ))
            }
        }
        Kind::Choice { names, get, .. } => {
            let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
            let values: Vec<c_int> = (0..names.len() as c_int).collect();
            let flags = raw::REDISMODULE_CONFIG_DEFAULT;
            let (pointers, values) = (pointers.as_mut_ptr(), values.as_ptr());
            // SAFETY: as above; the server copies both arrays, which have an entry for each name.
            unsafe {
                api!(RedisModule_RegisterEnumConfig(
                    ctx,
                    name,
                    get(defaults) as c_int,
                    flags,
                    pointers,
                    values,
                    names.len() as c_int,
                    Some(get_choice),
                    Some(set_choice),
                    None,
                    index
                ))
            }
        }
        Kind::Text { get, .. } => {
            let flags = raw::REDISMODULE_CONFIG_DEFAULT;
            let default = CString::new(get(defaults)).unwrap_or_default();
            // SAFETY: as above; the server copies the default.
            unsafe {
                api!(RedisModule_RegisterStringConfig(
                    ctx,
                    name,
                    default.as_ptr(),
                    flags,
                    Some(get_text),
                    Some(set_text),
                    Some(apply_text),
                    index
                ))
            }
        }
    }
}

/// Takes the module's arguments: `NAME VALUE` pairs of settings, names without `tenure.`.
///
/// # Errors
/// The pair that is wrong, and what is allowed.
fn take_arguments(words: &[String]) -> Result<(), String> {
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("argument '{}' has no value; write NAME VALUE, as in 'samples 10'", pair[0]));
        };
        let plain = name.strip_prefix("tenure.").unwrap_or(name);
        let setting = TABLE
            .iter()
            .find(|setting| setting.name.to_bytes() == plain.as_bytes())
            .ok_or_else(|| format!("there is no setting '{name}'; TENURE.HELP settings lists them"))?;
        let wrong = || format!("setting '{name}' is '{value}'; allowed: {}", allowed(setting));
        change(|settings| take_value(settings, &setting.kind, value)).unwrap_or(Err(None)).map_err(
            |said| match said {
                Some(text) => text,
                None => wrong(),
            },
        )?;
    }
    Ok(())
}

/// # Errors
/// `None` where the value is outside what is allowed, or a sentence that says more.
fn take_value(settings: &mut Settings, kind: &Kind, value: &str) -> Result<(), Option<String>> {
    match kind {
        Kind::Bool { set, .. } => match value {
            "yes" => set(settings, true),
            "no" => set(settings, false),
            _ => return Err(None),
        },
        Kind::Number { min, max, memory, set, .. } => {
            let number = if *memory {
                tenure_core::units::parse_bytes(value).ok().and_then(|bytes| i64::try_from(bytes).ok())
            } else {
                value.parse().ok()
            };
            set(settings, number.filter(|n| (min..=max).contains(&n)).ok_or(None)?);
        }
        Kind::Choice { names, set, .. } => {
            let i = names.iter().position(|name| name.to_bytes() == value.as_bytes()).ok_or(None)?;
            set(settings, i).map_err(Some)?;
        }
        Kind::Text { set, .. } => set(settings, value.as_bytes()).map_err(Some)?,
    }
    Ok(())
}

fn kind_of(index: *mut c_void) -> &'static Kind {
    &TABLE[index.addr()].kind
}

unsafe extern "C" fn get_bool(_name: *const c_char, index: *mut c_void) -> c_int {
    // Not guarded, nor are those below: what a setting is has to be known after a fault too (a CONFIG REWRITE would make the
    // answer last), turning Tenure on again has to work, and nothing here can panic.
    let value = match kind_of(index) {
        Kind::Bool { get, .. } => SETTINGS.with(&ConfigCall, |settings| get(settings)),
        _ => None,
    };
    c_int::from(value.unwrap_or(false))
}

unsafe extern "C" fn set_bool(
    name: *const c_char,
    value: c_int,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let Kind::Bool { get, set, immutable, .. } = kind_of(index) else { return OK };
    let (value, held) = (value != 0, SETTINGS.with(&ConfigCall, |settings| get(settings)));
    if *immutable && load::is_loaded() && held != Some(value) {
        // SAFETY: the server gives a C string that lives during the call.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        // SAFETY: the server gives a place for the message.
        return unsafe { refuse(&format!("{name} can be set at start only"), error) };
    }
    change(|settings| set(settings, value));
    OK
}

unsafe extern "C" fn get_number(_name: *const c_char, index: *mut c_void) -> c_longlong {
    let value = match kind_of(index) {
        Kind::Number { get, .. } => SETTINGS.with(&ConfigCall, |settings| get(settings)),
        _ => None,
    };
    value.unwrap_or(0)
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    index: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server has checked the range.
    if let Kind::Number { set, .. } = kind_of(index) {
        change(|settings| set(settings, value));
    }
    OK
}

unsafe extern "C" fn get_choice(_name: *const c_char, index: *mut c_void) -> c_int {
    let value = match kind_of(index) {
        Kind::Choice { get, .. } => SETTINGS.with(&ConfigCall, |settings| get(settings)),
        _ => None,
    };
    value.unwrap_or(0) as c_int
}

unsafe extern "C" fn set_choice(
    _name: *const c_char,
    value: c_int,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // The server has checked that it is one of ours.
    let taken = match kind_of(index) {
        Kind::Choice { set, .. } => change(|settings| set(settings, value as usize)),
        _ => None,
    };
    match taken {
        Some(Err(said)) => {
            // SAFETY: the server gives a place for the message.
            unsafe { refuse(&said, error) }
        }
        _ => OK,
    }
}

/// # Safety
/// `error` is what the server gave the running callback for a message.
unsafe fn refuse(said: &str, error: *mut *mut raw::RedisModuleString) -> c_int {
    let said = CString::new(said).unwrap_or_default();
    let said = Text::without_context(said.as_bytes()).into_raw();
    // SAFETY: by the caller's promise; the server frees the string.
    unsafe { *error = said };
    ERR
}

unsafe extern "C" fn get_text(_name: *const c_char, index: *mut c_void) -> *mut raw::RedisModuleString {
    let text = match kind_of(index) {
        Kind::Text { get, .. } => SETTINGS.with(&ConfigCall, |settings| get(settings).to_owned()),
        _ => None,
    };
    let text = Text::without_context(&text.unwrap_or_default());
    let pointer = text.raw();
    LAST_TEXT.set(&ConfigCall, Some(text));
    pointer
}

unsafe extern "C" fn set_text(
    _name: *const c_char,
    value: *mut raw::RedisModuleString,
    index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let take = || match kind_of(index) {
        // SAFETY: the value lives during the call.
        Kind::Text { set, .. } => change(|settings| set(settings, unsafe { bytes_of(&value) })).unwrap_or(Ok(())),
        _ => Ok(()),
    };
    match counted("a setting", take) {
        Some(Ok(())) => OK,
        Some(Err(said)) => {
            // SAFETY: the server gives a place for the message.
            unsafe { refuse(&said, error) }
        }
        None => ERR,
    }
}

/// All settings of one CONFIG SET have been taken: what they say together has to be possible.
unsafe extern "C" fn apply_text(
    _ctx: *mut raw::RedisModuleCtx,
    _index: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // At the start the server is not to fail over it: it says so, and minimums are cut.
    if !load::is_loaded() {
        return OK;
    }
    // Not the context that is given: on Redis 7.0 nothing can be called with it.
    let Some(server) = soon::own_context(&ConfigCall) else { return OK };
    let (_, settings) = current(&server);
    match counted("a setting", || callbacks::check_minimums(&server, &settings)) {
        Some(Err(said)) => {
            // SAFETY: the server gives a place for the message.
            unsafe { refuse(&said, error) }
        }
        _ => OK,
    }
}

/// Frees what the callbacks keep, before the module is unloaded.
pub(super) fn release(proof: &impl MainThread) {
    drop(LAST_TEXT.set(proof, None));
    drop(SETTINGS.set(proof, None));
}
