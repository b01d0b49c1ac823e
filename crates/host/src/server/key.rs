//! An open key: what it holds, how long it was idle, when it expires; and what may be done to it.

use std::ffi::{c_int, c_longlong};
use std::slice;
use std::sync::atomic::Ordering;

use valkey_module::raw;

use super::{LOOKS_UP_MODIFIED, Server, Text};
use crate::api;

/// What kind of value a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No value: the key isn't there.
    Absent,
    /// A string, whose length is its size.
    String,
    /// A collection, a stream or a module's type: its size can only be estimated.
    Collection,
}

/// What the server remembers of a key's use, by its `maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Time since its last access, in ms.
    IdleMs(u64),
    /// The logarithmic counter of an LFU policy.
    Frequency(u8),
}

/// An open key. It has the server to itself: while it is open no other is opened, and nothing is called that could
/// free its value.
///
/// ```
/// fn size(server: &mut tenure_host::server::Server, name: &tenure_host::server::Text) -> usize {
///     let length = server.open(name).length();
///     length + server.open(name).length()
/// }
/// ```
///
/// Two at once don't compile:
/// ```compile_fail,E0499
/// fn sizes(server: &mut tenure_host::server::Server, name: &tenure_host::server::Text) -> usize {
///     let one = server.open(name);
///     let other = server.open(name);
///     one.length() + other.length()
/// }
/// ```
///
/// Nor does a command that may remove it:
/// ```compile_fail,E0499
/// fn removed(server: &mut tenure_host::server::Server, name: &tenure_host::server::Text) -> usize {
///     let key = server.open(name);
///     server.call(c"UNLINK", &[name.as_ref()]);
///     key.length()
/// }
/// ```
///
/// Nor one that outlives the callback that it was opened in:
/// ```compile_fail,E0597
/// fn kept<'a>(name: &tenure_host::server::Text, mut server: tenure_host::server::Server) {
///     let key;
///     {
///         let mut inner = server;
///         key = inner.open(name);
///     }
///     key.length();
/// }
/// ```
pub struct Key<'a> {
    pub(super) key: *mut raw::RedisModuleKey,
    pub(super) ctx: *mut raw::RedisModuleCtx,
    pub(super) owned: bool,
    pub(super) server: std::marker::PhantomData<&'a mut Server>,
}

impl Key<'_> {
    /// What it holds.
    #[inline]
    pub fn kind(&self) -> Kind {
        if self.key.is_null() {
            return Kind::Absent;
        }
        match self.type_number() {
            raw::REDISMODULE_KEYTYPE_EMPTY => Kind::Absent,
            raw::REDISMODULE_KEYTYPE_STRING => Kind::String,
            _ => Kind::Collection,
        }
    }

    /// Bytes of a string, elements of a collection. O(1).
    #[inline]
    pub fn length(&self) -> usize {
        // SAFETY: the handle is open; an empty one has length 0.
        unsafe { api!(RedisModule_ValueLength(self.key)) }
    }

    /// What the server says that it takes with `name`, its own, in bytes; up to 64 elements exact. A call.
    /// `MEMORY USAGE` looks it up without any of what a look-up brings: nothing expires, so the value stays.
    ///
    /// `None` for a collection without elements, as the event of a new key finds it: Redis 7.0 takes a list for one
    /// that has a first node, and dies. Of a module's value no elements are known.
    pub fn memory_usage(&self, name: &[u8]) -> Option<i64> {
        if self.kind() == Kind::Collection
            && self.length() == 0
            && self.type_number() != raw::REDISMODULE_KEYTYPE_MODULE
        {
            return None;
        }
        // SAFETY: the context is that of the callback that the key is open in; the call frees nothing.
        let mut server = unsafe { Server::new(self.ctx) };
        server.call(c"MEMORY", &[b"USAGE", name, b"SAMPLES", b"64"])?.integer()
    }

    /// A hash, list, set or sorted set. No stream: who waits for one is told when it goes, also where it is made
    /// again at once.
    pub fn is_plain_collection(&self) -> bool {
        const PLAIN: [isize; 3] =
            [raw::REDISMODULE_KEYTYPE_HASH, raw::REDISMODULE_KEYTYPE_SET, raw::REDISMODULE_KEYTYPE_ZSET];
        PLAIN.contains(&self.type_number()) || self.is_list()
    }

    /// A list.
    pub fn is_list(&self) -> bool {
        self.type_number() == raw::REDISMODULE_KEYTYPE_LIST
    }

    /// Its type, as the server numbers them: 0 where there is none, below 8.
    #[inline]
    pub fn type_number(&self) -> isize {
        // SAFETY: the handle is open; a null one is of the empty type.
        unsafe { api!(RedisModule_KeyType(self.key)) as isize }
    }

    /// How long it wasn't asked for, or how often it was: what the server evicts by.
    #[inline]
    pub fn age(&self) -> Age {
        let mut idle_ms: raw::mstime_t = -1;
        // SAFETY: the handle is open.
        unsafe { api!(RedisModule_GetLRU(self.key, &mut idle_ms)) };
        if idle_ms >= 0 {
            return Age::IdleMs(idle_ms as u64);
        }
        let mut frequency: c_longlong = 0;
        // SAFETY: the handle is open.
        unsafe { api!(RedisModule_GetLFU(self.key, &mut frequency)) };
        Age::Frequency(frequency.clamp(0, 255) as u8)
    }

    /// Time since its last access, in ms (the server's clock ticks once a second); under an LFU policy, how far its
    /// access frequency lies below the highest: the more, the sooner it goes, as the server ranks them.
    #[inline]
    pub fn idle(&self) -> u64 {
        match self.age() {
            Age::IdleMs(ms) => ms,
            Age::Frequency(frequency) => u64::from(255 - frequency),
        }
    }

    /// Sets what [`Key::idle`] told before: a look that counted as a use is taken back. Under an LFU policy it
    /// changes nothing.
    pub fn set_idle(&self, idle: u64) {
        let mut held: raw::mstime_t = -1;
        // SAFETY: the handle is open, for writing.
        unsafe { api!(RedisModule_GetLRU(self.key, &mut held)) };
        if held >= 0 {
            // SAFETY: as above.
            unsafe { api!(RedisModule_SetLRU(self.key, idle as raw::mstime_t)) };
        }
    }

    /// Milliseconds until it expires; `None` where it doesn't.
    #[inline]
    pub fn expires_in_ms(&self) -> Option<u64> {
        // SAFETY: the handle is open.
        let left = unsafe { api!(RedisModule_GetExpire(self.key)) };
        (left != raw::mstime_t::from(raw::REDISMODULE_NO_EXPIRE)).then_some(left.max(0) as u64)
    }

    /// When it expires, in ms since 1970; 0 = never.
    pub fn expires_at_ms(&self) -> u64 {
        // SAFETY: the handle is open.
        let at = unsafe { api!(RedisModule_GetAbsExpire(self.key)) };
        if at == raw::mstime_t::from(raw::REDISMODULE_NO_EXPIRE) { 0 } else { at.max(1) as u64 }
    }

    /// The bytes of a string as they lie in memory; `None` where it is none. A string of numbers may be turned into
    /// text by that.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.kind() != Kind::String {
            return None;
        }
        let mut length = 0;
        // SAFETY: the handle is open.
        let start = unsafe { api!(RedisModule_StringDMA(self.key, &mut length, raw::REDISMODULE_READ as c_int)) };
        // SAFETY: so many bytes start there, until the value is changed, for which `self` has to be borrowed anew.
        (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start.cast(), length) })
    }

    /// Cuts a string, or makes it longer with zeros; its memory is allocated anew where that changes much. Nobody is
    /// told. False where the server refused: it isn't a string, not open for writing, or would be longer than the
    /// server allows.
    pub fn set_length(&mut self, bytes: usize) -> bool {
        // SAFETY: the handle is open.
        unsafe { api!(RedisModule_StringTruncate(self.key, bytes)) as isize == raw::REDISMODULE_OK }
    }

    /// Writes over the first bytes of a string that is at least as long. Nobody is told. False where it is shorter.
    pub fn overwrite(&mut self, bytes: &[u8]) -> bool {
        let mut length = 0;
        // SAFETY: the handle is open.
        let start = unsafe { api!(RedisModule_StringDMA(self.key, &mut length, raw::REDISMODULE_WRITE as c_int)) };
        if start.is_null() || length < bytes.len() {
            return false;
        }
        // SAFETY: so many bytes start there, and `bytes` is elsewhere: who borrows a string's bytes can't change it.
        unsafe { start.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }

    /// Tells those who watch or cache the key that it changes, where the server looks up whatever it tells of: a key
    /// that has gone would count as a miss.
    pub fn signal_removal(&self, name: &Text) {
        if LOOKS_UP_MODIFIED.load(Ordering::Relaxed) {
            // SAFETY: the context is that of the running callback, and `name` is a live string.
            unsafe { api!(RedisModule_SignalModifiedKey(self.ctx, name.0)) };
        }
    }

    /// Removes the key; its memory is freed at once or, where that would take long, by the server's own thread. False
    /// where it wasn't there.
    pub fn unlink(self) -> bool {
        // SAFETY: the handle is open, for writing where it is owned; else the server refuses.
        self.kind() != Kind::Absent && unsafe { api!(RedisModule_UnlinkKey(self.key)) } as isize == raw::REDISMODULE_OK
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        if self.owned && !self.key.is_null() {
            // SAFETY: the handle was opened by `Server::open` and is closed once.
            unsafe { api!(RedisModule_CloseKey(self.key)) };
        }
    }
}
