//! One command as the command filter sees it, before it runs: its words as bytes, and who sends it.

use std::ffi::c_int;
use std::slice;

use valkey_module::raw;

use super::api;
use super::main_thread::{MainThread, OnMain};
use super::server::Text;

/// True where a filter is told which client sends a command: not on Redis 7.0.
#[inline]
pub fn knows_clients() -> bool {
    // SAFETY: the API table is written once, at load.
    unsafe { raw::RedisModule_CommandFilterGetClientId }.is_some()
}

/// The words of a command.
pub trait Words {
    /// How many, the command's name included.
    fn count(&self) -> usize;
    /// The word at `i`; `None` past the end.
    fn word(&self, i: usize) -> Option<&[u8]>;
}

/// A command about to run. Its words live as long as the filter call.
pub struct FilterCall {
    call: *mut raw::RedisModuleCommandFilterCtx,
}

// SAFETY: made within a filter, which runs on the main thread, and can't leave it.
unsafe impl MainThread for FilterCall {}

/// The client that sends a command.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The logical database that it has selected.
    pub db: u16,
    /// Its commands are queued until `EXEC`.
    pub in_multi: bool,
    /// The server remembers what it reads, to tell it of changes.
    pub is_tracking: bool,
}

impl FilterCall {
    /// # Safety
    /// `call` is what the server handed to the filter that is running now.
    pub(super) unsafe fn new(call: *mut raw::RedisModuleCommandFilterCtx) -> Self {
        FilterCall { call }
    }

    /// The call, for the rest of this folder.
    pub(super) fn raw(&self) -> *mut raw::RedisModuleCommandFilterCtx {
        self.call
    }

    /// The proof alone, for who hands the call on to be changed. It can't leave the thread.
    #[inline]
    pub(super) fn proof(&self) -> OnMain {
        OnMain::by(self)
    }

    /// The sending client's id; `None` on servers whose filters don't tell (Redis 7.0).
    #[inline]
    pub fn client_id(&self) -> Option<u64> {
        // SAFETY: the API table is written once, at load; `call` is valid while the filter runs.
        unsafe { raw::RedisModule_CommandFilterGetClientId.map(|get| get(self.call)) }
    }

    /// What a client is up to; `None` for the server's own clients (scripts, other modules), which can't be looked up
    /// by id.
    pub fn client(&self, client_id: u64) -> Option<Client> {
        let info = client_info(client_id)?;
        let in_multi = info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_MULTI) != 0;
        let is_tracking = info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_TRACKING) != 0;
        Some(Client { db: info.db, in_multi, is_tracking })
    }
}

/// True while a client waits within a command. About 0.2 µs.
pub fn is_blocked(_proof: &impl MainThread, client_id: u64) -> bool {
    client_info(client_id).is_some_and(|info| info.flags & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_BLOCKED) != 0)
}

/// Where a client connects from, and its database; `None` where there is no such client.
pub fn address_of(_proof: &impl MainThread, client_id: u64) -> Option<(String, u16)> {
    let info = client_info(client_id)?;
    let host: Vec<u8> = info.addr.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    Some((format!("{}:{}", String::from_utf8_lossy(&host), info.port), info.db))
}

fn client_info(client_id: u64) -> Option<raw::RedisModuleClientInfo> {
    let mut info = raw::RedisModuleClientInfo {
        version: u64::from(raw::REDISMODULE_CLIENTINFO_VERSION),
        flags: 0,
        id: 0,
        addr: [0; 46],
        port: 0,
        db: 0,
    };
    let target = (&raw mut info).cast();
    // SAFETY: `target` is a client info of the version it says it is; the server fills it.
    let found = unsafe { api!(RedisModule_GetClientInfoById(target, client_id)) };
    (found as isize == raw::REDISMODULE_OK).then_some(info)
}

impl FilterCall {
    /// Puts another string of the same bytes in the place of word `i`, which isn't used any more. `i` has to be a
    /// word of the command.
    pub fn replace_word(&mut self, i: usize, text: Text) -> bool {
        // SAFETY: `call` is valid while the filter runs; the server frees the word that was there, which nobody holds
        // (`&mut`), and takes the string over.
        let replaced = unsafe { api!(RedisModule_CommandFilterArgReplace(self.call, i as c_int, text.into_raw())) };
        replaced as isize == raw::REDISMODULE_OK
    }
}

impl Words for FilterCall {
    #[inline]
    fn count(&self) -> usize {
        // SAFETY: `call` is valid while the filter runs.
        let n = unsafe { api!(RedisModule_CommandFilterArgsCount(self.call)) };
        usize::try_from(n).unwrap_or(0)
    }

    #[inline]
    fn word(&self, i: usize) -> Option<&[u8]> {
        let mut length = 0;
        // SAFETY: `call` is valid while the filter runs; past the last word the server gives null.
        let text = unsafe { api!(RedisModule_CommandFilterArgGet(self.call, i as i32)) };
        if text.is_null() {
            return None;
        }
        // SAFETY: `text` is a string of the running command.
        let start = unsafe { api!(RedisModule_StringPtrLen(text, &mut length)) };
        // SAFETY: the server says that `length` bytes start there; they stay until the command has run, longer than
        // `self`.
        (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start.cast(), length) })
    }
}
