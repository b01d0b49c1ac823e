//! The module's commands as the server knows them: flags, rights, keys and descriptions, from the rows of
//! [`Module::COMMANDS`].
//!
//! Rights are the server's own where it lets modules name them: ACL categories from Valkey 7.2 and Redis 7.2 on, one
//! of the module's own from Valkey 8.0 and Redis 7.4 on. Keys are told to all. Before 7.2 a change asks for the right
//! to `CONFIG SET`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use valkey_module::raw;

use super::commands::{Argument, Command, Form, Kind, Pace};
use super::module::Module;
use super::server::Server;
use super::{api, awaits, callbacks};

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// The server's kind of command.
type Function = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int;

/// Registers them all.
///
/// # Errors
/// Which one the server refused.
pub(super) fn register<M: Module>(server: &Server) -> Result<(), String> {
    let has_own_category = add_category::<M>(server);
    let own = if has_own_category { format!(" {}", M::NAME.to_string_lossy()) } else { String::new() };
    let own = own.as_str();
    for command in M::COMMANDS {
        let made = make::<M>(server, command)?;
        describe::<M>(made, command).ok_or_else(|| refused(&command.syntax()))?;
        categorise(made, &categories(command, own)).ok_or_else(|| refused(&command.syntax()))?;
    }
    create(server, M::AWAIT, Some(awaits::on_await::<M>), c"readonly")?;
    let lost = || refused(&M::AWAIT.to_string_lossy());
    let made = named(server, M::AWAIT).ok_or_else(lost)?;
    let summary = format!("{}'s own: it stands before a command whose client waits. No client can send it.", M::TITLE);
    describe_plainly::<M>(made, &summary, c"O(1)", 0).ok_or_else(lost)?;
    categorise(made, &format!("read slow blocking{own}")).ok_or_else(lost)
}

fn refused(what: &str) -> String {
    format!("the server refused the command {what}")
}

/// Adds the category. False where the server has none of modules' own, or no room for one more.
fn add_category<M: Module>(server: &Server) -> bool {
    // SAFETY: the API table is written once, at load.
    let Some(add) = (unsafe { raw::RedisModule_AddACLCategory }) else { return false };
    // SAFETY: the context is that of the load callback; the server copies the name.
    let is_new = unsafe { add(server.raw(), M::NAME.as_ptr()) } == OK;
    // From an earlier load: categories stay.
    is_new || std::io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY)
}

/// Makes a command; a subcommand in its container, which comes into being with the first.
fn make<M: Module>(server: &Server, command: &Command) -> Result<*mut raw::RedisModuleCommand, String> {
    let (name, flags) = (command.name, flags(command));
    let lost = || refused(&command.syntax());
    let Some(subcommand) = command.subcommand else {
        create(server, name, Some(callbacks::on_own_command::<M>), &flags)?;
        return named(server, name).ok_or_else(lost);
    };
    if named(server, name).is_none() {
        create(server, name, None, c"")?;
        let container = named(server, name).ok_or_else(lost)?;
        let upper = name.to_string_lossy().to_ascii_uppercase();
        let summary = format!("A container for commands: {upper} HELP lists them.");
        // As the server's own containers: a name, and that of a subcommand.
        describe_plainly::<M>(container, &summary, c"Depends on the subcommand.", -2).ok_or_else(lost)?;
    }
    let container = named(server, name).ok_or_else(lost)?;
    let run: Option<Function> = Some(callbacks::on_own_command::<M>);
    // SAFETY: the container is ours; the server copies name and flags; the callback lives as long as the module.
    let status =
        unsafe { api!(RedisModule_CreateSubcommand(container, subcommand.as_ptr(), run, flags.as_ptr(), 0, 0, 0)) };
    let full_name = format!("{}|{}", name.to_string_lossy(), subcommand.to_string_lossy());
    let made = CString::new(full_name).ok().and_then(|name| named(server, &name));
    made.filter(|_| status == OK).ok_or_else(lost)
}

fn create(server: &Server, name: &CStr, run: Option<Function>, flags: &CStr) -> Result<(), String> {
    // SAFETY: the server copies name and flags; the callback lives as long as the module.
    let status = unsafe { api!(RedisModule_CreateCommand(server.raw(), name.as_ptr(), run, flags.as_ptr(), 0, 0, 0)) };
    if status == OK { Ok(()) } else { Err(refused(&name.to_string_lossy())) }
}

/// A command of ours, a subcommand as `container|subcommand`.
fn named(server: &Server, name: &CStr) -> Option<*mut raw::RedisModuleCommand> {
    // SAFETY: the context is that of the load callback; the name lives during the call.
    let command = unsafe { api!(RedisModule_GetCommand(server.raw(), name.as_ptr())) };
    (!command.is_null()).then_some(command)
}

/// By these the server guards it: a hint is a write, and what names a key is not for replicas that may be stale.
fn flags(command: &Command) -> CString {
    let kind = match command.kind {
        Kind::Looks if command.key_at().is_some() => "readonly",
        Kind::Looks => "readonly allow-stale",
        Kind::Hints => "write",
        // As CONFIG SET.
        Kind::Changes => "admin deny-script allow-stale",
    };
    let pace = if command.pace == Pace::Fast { " fast" } else { "" };
    CString::new(format!("{kind}{pace}")).unwrap_or_default()
}

fn categories(command: &Command, own: &str) -> String {
    let kind = match command.kind {
        Kind::Looks => "read",
        Kind::Hints => "write",
        Kind::Changes => "admin dangerous",
    };
    let pace = if command.pace == Pace::Fast { "fast" } else { "slow" };
    format!("{kind} {pace}{own}")
}

/// Puts it into these categories, where the server lets modules. `None` where it refused.
fn categorise(command: *mut raw::RedisModuleCommand, categories: &str) -> Option<()> {
    // SAFETY: the API table is written once, at load.
    let Some(set) = (unsafe { raw::RedisModule_SetCommandACLCategories }) else { return Some(()) };
    let categories = CString::new(categories).ok()?;
    // SAFETY: the command is ours, and this is the load; the server copies the text.
    (unsafe { set(command, categories.as_ptr()) } == OK).then_some(())
}

/// Tells the server what `COMMAND` answers of it, how many words it has, and which is a key. `None` where it refused.
fn describe<M: Module>(command: *mut raw::RedisModuleCommand, row: &Command) -> Option<()> {
    let mut key_specs = row.key_at().map(|at| [key_spec(at, row.kind), no_key_spec()]);
    let words: Vec<CString> = row.arguments.iter().filter_map(|argument| upper_case(argument.name)).collect();
    let mut arguments: Vec<_> = row.arguments.iter().zip(&words).map(|(row, word)| argument(row, word)).collect();
    arguments.push(no_argument());
    let info = raw::RedisModuleCommandInfo {
        key_specs: key_specs.as_mut().map_or(ptr::null_mut(), |specs| specs.as_mut_ptr()),
        args: arguments.as_mut_ptr(),
        ..info::<M>(row.summary, row.complexity, row.arity())
    };
    // SAFETY: the command is ours and not described yet; both lists end as the server wants it; it copies all it is
    // given.
    (unsafe { api!(RedisModule_SetCommandInfo(command, &raw const info)) } == OK).then_some(())
}

/// The same of one without arguments of its own; an arity of 0 leaves what it was made with.
fn describe_plainly<M: Module>(
    command: *mut raw::RedisModuleCommand,
    summary: &str,
    complexity: &CStr,
    arity: c_int,
) -> Option<()> {
    let summary = CString::new(summary).ok()?;
    let info = info::<M>(&summary, complexity, arity);
    // SAFETY: as above.
    (unsafe { api!(RedisModule_SetCommandInfo(command, &raw const info)) } == OK).then_some(())
}

/// What all have, without keys and arguments.
fn info<M: Module>(summary: &CStr, complexity: &CStr, arity: c_int) -> raw::RedisModuleCommandInfo {
    const VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    raw::RedisModuleCommandInfo {
        version: &VERSION,
        summary: summary.as_ptr(),
        complexity: complexity.as_ptr(),
        since: M::SINCE.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity,
        key_specs: ptr::null_mut(),
        args: ptr::null_mut(),
    }
}

fn upper_case(name: &CStr) -> Option<CString> {
    CString::new(name.to_bytes().to_ascii_uppercase()).ok()
}

/// One key at that place. To look needs any right on it, as with `OBJECT FREQ`; a hint needs that of writing it.
fn key_spec(at: c_int, kind: Kind) -> raw::RedisModuleCommandKeySpec {
    let flags = match kind {
        Kind::Looks => raw::REDISMODULE_CMD_KEY_RO,
        Kind::Hints | Kind::Changes => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
    };
    raw::RedisModuleCommandKeySpec {
        flags: u64::from(flags),
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: at },
        },
        ..no_key_spec()
    }
}

/// The end of a list; of the search for more keys, that there are none.
fn no_key_spec() -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        notes: ptr::null(),
        flags: 0,
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 0 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_OMITTED,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 0, limit: 0 },
        },
    }
}

fn argument(row: &Argument, word: &CStr) -> raw::RedisModuleCommandArg {
    let type_ = match row.form {
        Form::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        Form::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        Form::Number => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        Form::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
    };
    let flags = if row.is_optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { raw::REDISMODULE_CMD_ARG_NONE };
    raw::RedisModuleCommandArg {
        name: row.name.as_ptr(),
        type_,
        key_spec_index: if row.form == Form::Key { 0 } else { -1 },
        token: if row.form == Form::Word { word.as_ptr() } else { ptr::null::<c_char>() },
        flags: flags as c_int,
        ..no_argument()
    }
}

/// The end of a list.
fn no_argument() -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: ptr::null(),
        type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        key_spec_index: -1,
        token: ptr::null(),
        summary: ptr::null(),
        since: ptr::null(),
        flags: 0,
        deprecated_since: ptr::null(),
        subargs: ptr::null_mut(),
        display_text: ptr::null(),
    }
}
