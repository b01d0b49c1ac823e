//! The server as a callback on its main thread sees it: memory, databases, commands that it runs and sends on. Its
//! strings, keys, the scan, and what tells of removed keys are in `server/`.

mod key;
pub mod listeners;
mod scan;
mod section;
mod text;
mod unlinks;

use std::ffi::{CStr, CString, c_int, c_longlong};
use std::sync::atomic::{AtomicBool, Ordering};

use valkey_module::raw;

pub use self::key::{Age, Key, Kind};
pub use self::scan::ScanCursor;
pub use self::section::Section;
pub use self::text::{Name, ScannedName, Text};
pub(crate) use self::text::{bytes_of, words_of};
pub use self::unlinks::Unlinks;
use super::main_thread::{MainThread, OnMain};
use super::reply::Value;
use super::{api, config};

/// Redis 8.6 looks a key up before it tells of its change, which counts as any look-up until redis#14925. None of the
/// servers here does.
static LOOKS_UP_MODIFIED: AtomicBool = AtomicBool::new(false);

/// At load: how this server tells of changes.
pub(super) fn look_at_version(server: &mut Server) {
    let section = server.section(c"server");
    let is_redis = section.field(c"valkey_version").is_none();
    let version = section.field(c"redis_version").unwrap_or_default();
    LOOKS_UP_MODIFIED.store(is_redis && looks_up_modified(version), Ordering::Relaxed);
}

fn looks_up_modified(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (8, 6)
}

/// How loud a log line is.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    /// Something an operator should look at.
    Warning,
    /// Something an operator may want to know.
    Notice,
}

/// The server, within one callback.
pub struct Server {
    ctx: *mut raw::RedisModuleCtx,
}

// SAFETY: made within a callback on the main thread, and can't leave it.
unsafe impl MainThread for Server {}

impl Server {
    /// # Safety
    /// `ctx` is what the server handed to the callback that is running now, on its main thread.
    #[inline]
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Server { ctx }
    }

    /// The proof alone: the server itself is handed on.
    #[inline]
    pub fn proof(&self) -> OnMain {
        OnMain::by(self)
    }

    /// The context, for the rest of this folder.
    #[inline]
    pub(super) fn raw(&self) -> *mut raw::RedisModuleCtx {
        self.ctx
    }

    /// Writes one line to the server's log.
    pub fn log(&self, level: Level, text: &str) {
        let level = match level {
            Level::Warning => c"warning",
            Level::Notice => c"notice",
        };
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the format takes one C string, and one is given.
        unsafe { api!(RedisModule_Log(self.ctx, level.as_ptr(), c"%s".as_ptr(), text.as_ptr())) };
    }

    /// Used memory / maxmemory as eviction counts it (without replica buffers); 0 without a limit.
    #[inline]
    pub fn used_memory_ratio(&self) -> f64 {
        // SAFETY: takes nothing, reads counters.
        f64::from(unsafe { api!(RedisModule_GetUsedMemoryRatio()) })
    }

    /// The server's state as `RedisModule_GetContextFlags` gives it.
    #[inline]
    pub fn flags(&self) -> Flags {
        // SAFETY: `ctx` is valid in this callback.
        Flags(unsafe { api!(RedisModule_GetContextFlags(self.ctx)) } as u32)
    }

    /// True while clients or writes are paused (`CLIENT PAUSE`, a failover): no change of the data set is welcome.
    #[inline]
    pub fn writes_are_paused(&self) -> bool {
        // SAFETY: takes nothing, reads a flag.
        unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }

    /// The logical database that this callback is about.
    #[inline]
    pub fn selected_db(&self) -> u16 {
        // SAFETY: `ctx` is valid in this callback.
        unsafe { api!(RedisModule_GetSelectedDb(self.ctx)) as u16 }
    }

    /// The client whose command is running.
    #[inline]
    pub fn client_id(&self) -> u64 {
        // SAFETY: `ctx` is valid in this callback.
        unsafe { api!(RedisModule_GetClientId(self.ctx)) }
    }

    /// Turns to another logical database, for this callback. False where there is none of that number.
    #[inline]
    pub fn select_db(&self, db: u16) -> bool {
        // SAFETY: `ctx` is valid in this callback; the server checks the number.
        unsafe { api!(RedisModule_SelectDb(self.ctx, c_int::from(db))) as isize == raw::REDISMODULE_OK }
    }

    /// Keys in the selected database. O(1).
    #[inline]
    pub fn db_size(&self) -> u64 {
        // SAFETY: `ctx` is valid in this callback.
        unsafe { api!(RedisModule_DbSize(self.ctx)) }
    }

    /// A string of the server's.
    #[inline]
    pub fn text(&self, bytes: &[u8]) -> Text {
        Text::without_context(bytes)
    }

    /// Opens a key of the selected database without touching its age, its statistics or its watchers.
    ///
    /// It is opened for writing, because a read would count in `keyspace_hits` and raise `keymiss` on older servers;
    /// nothing is written unless [`Key::unlink`] is called. A key whose time is up is found absent, and stays until
    /// the server expires it; Redis 7.0 does so at once, as by any look-up.
    #[inline]
    pub fn open(&mut self, name: &impl Name) -> Key<'_> {
        self.open_in_mode(name, raw::REDISMODULE_OPEN_KEY_NOEXPIRE)
    }

    /// The same, but a key whose time is up is expired, as by any look-up of a client's.
    #[inline]
    pub fn open_or_expire(&mut self, name: &impl Name) -> Key<'_> {
        self.open_in_mode(name, 0)
    }

    #[inline]
    fn open_in_mode(&mut self, name: &impl Name, mode: u32) -> Key<'_> {
        let mode = (mode | raw::REDISMODULE_WRITE | raw::REDISMODULE_OPEN_KEY_NOTOUCH) as c_int;
        // SAFETY: `name` is a live string; the handle is closed on drop, within this callback.
        let key = unsafe { api!(RedisModule_OpenKey(self.ctx, name.string(), mode)) };
        Key { key, ctx: self.ctx, owned: true, server: std::marker::PhantomData }
    }

    /// Tells replicas and the append-only file that `name` of the selected database is gone.
    pub fn replicate_unlink(&self, name: &Text) {
        // SAFETY: format "s" takes one server string, and one is given.
        unsafe { api!(RedisModule_Replicate(self.ctx, c"UNLINK".as_ptr(), c"s".as_ptr(), name.0)) };
    }

    /// Runs `body`, which notes the keys that it removes. Replicas and the append-only file are told of all of them
    /// together, which takes a tenth of telling of each; also where `body` panics.
    ///
    /// # Panics
    /// Where `body` does, after that.
    pub fn telling_of_unlinks<R>(&mut self, body: impl FnOnce(&mut Server, &mut Unlinks) -> R) -> R {
        let mut unlinks = Unlinks { db: 0, names: Vec::new() };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(self, &mut unlinks)));
        unlinks.tell(self);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Tells those who watch or cache `name` on the client side that it changed.
    pub fn signal_modified(&self, name: &Text) {
        // SAFETY: `name` is a live string.
        unsafe { api!(RedisModule_SignalModifiedKey(self.ctx, name.0)) };
    }

    /// The same of a key that was there and has just been removed; not where [`Key::signal_removal`] has told already.
    pub fn signal_removed(&self, name: &Text) {
        if !LOOKS_UP_MODIFIED.load(Ordering::Relaxed) {
            self.signal_modified(name);
        }
    }

    /// Emits the `evicted` event for `name` of the selected database, where anybody else hears it.
    pub fn notify_evicted(&mut self, name: &Text) {
        if !listeners::hear_of_evictions() {
            return;
        }
        // SAFETY: both strings are live.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent(
                self.ctx,
                raw::REDISMODULE_NOTIFY_EVICTED,
                c"evicted".as_ptr(),
                name.0
            ))
        };
    }

    /// Has the server expire a key that isn't in memory: an empty one is made whose time is over, and looked up. So
    /// event, invalidations, watchers, replicas and `expired_keys` are the server's own doing; where it may not
    /// expire now, it does later.
    pub fn expire_absent(&mut self, name: &Text) {
        let nothing = self.text(b"");
        let key = self.open_or_expire(name);
        if key.kind() != Kind::Absent {
            return;
        }
        // SAFETY: the handle is open for writing; the server holds the string from then on by itself.
        unsafe { api!(RedisModule_StringSet(key.key, nothing.0)) };
        // SAFETY: as above; any time since 1970 is over.
        unsafe { api!(RedisModule_SetAbsExpire(key.key, 1)) };
        drop(key);
        drop(self.open_or_expire(name));
    }

    /// Tells replicas and the append-only file of a command that was run here alone.
    pub fn replicate(&self, command: &CStr, words: &[&[u8]]) {
        let texts: Vec<Text> = words.iter().map(|word| self.text(word)).collect();
        self.replicate_texts(command, &texts);
    }

    fn replicate_texts(&self, command: &CStr, texts: &[Text]) {
        let mut pointers: Vec<*mut raw::RedisModuleString> = texts.iter().map(|text| text.0).collect();
        let (start, count) = (pointers.as_mut_ptr(), pointers.len());
        // SAFETY: format "v" takes an array of server strings and its length; both live until the call has returned.
        unsafe { api!(RedisModule_Replicate(self.ctx, command.as_ptr(), c"v".as_ptr(), start, count)) };
    }

    /// What was replicated goes out now, not with the next command: that may be a pause of writes, during which
    /// nothing may.
    pub fn send_replicated(&mut self) {
        // The server sends it at the end of any command that isn't part of another.
        self.call(c"TIME", &[]);
    }

    /// Calls a command of the server and copies its reply; `None` where it failed. Where it changes keys, replicas and
    /// the append-only file get it too.
    ///
    /// A read is called so as well. A filter is no part of a command: there the server sends what was replicated before
    /// when the call ends. It throws that away where the call isn't one that replicates.
    pub fn call(&mut self, command: &CStr, words: &[&[u8]]) -> Option<Value> {
        self.call_with(c"!v", command, words)
    }

    /// The same of a command that is carried out on this server alone. What was replicated before goes out first, which
    /// costs another call.
    pub fn call_here(&mut self, command: &CStr, words: &[&[u8]]) -> Option<Value> {
        if !self.writes_are_paused() {
            self.send_replicated();
        }
        self.call_with(c"v", command, words)
    }

    fn call_with(&mut self, format: &CStr, command: &CStr, words: &[&[u8]]) -> Option<Value> {
        let texts: Vec<Text> = words.iter().map(|word| self.text(word)).collect();
        let mut pointers: Vec<*mut raw::RedisModuleString> = texts.iter().map(|text| text.0).collect();
        let (start, count) = (pointers.as_mut_ptr(), pointers.len());
        // SAFETY: format "v" takes an array of server strings and its length; both live until the call has returned.
        let reply = unsafe { api!(RedisModule_Call(self.ctx, command.as_ptr(), format.as_ptr(), start, count)) };
        if reply.is_null() {
            return None;
        }
        // SAFETY: the reply is ours and is freed once, after it was copied.
        let value = unsafe { Value::copy_of(reply) };
        // SAFETY: as above.
        unsafe { api!(RedisModule_FreeCallReply(reply)) };
        Some(value)
    }

    /// One setting of the server.
    pub fn setting(&mut self, name: &str) -> Option<String> {
        config::of_server(self, name)
    }

    /// Sets one; false where the server refused.
    pub fn set_setting(&mut self, name: &str, value: &[u8]) -> bool {
        self.call(c"CONFIG", &[b"SET", name.as_bytes(), value]).is_some()
    }

    /// Has `LATENCY` show work that took so long, where `latency-monitor-threshold` asks for it. What took less than
    /// a millisecond costs nothing here.
    pub fn note_latency(&mut self, event: &CStr, spent_us: u64) {
        let spent_ms = spent_us / 1000;
        if spent_ms == 0 {
            return;
        }
        // The server compares with the threshold itself, but takes 0, which is "off", for "everything".
        let threshold = self.setting("latency-monitor-threshold").and_then(|text| text.parse::<u64>().ok());
        if threshold.is_some_and(|threshold_ms| threshold_ms > 0) {
            // SAFETY: the name is a C string, which the server copies.
            unsafe { api!(RedisModule_LatencyAddSample(event.as_ptr(), spent_ms as c_longlong)) };
        }
    }

    /// Asks all replicas to acknowledge what they have; it goes behind the stream as it is when this turn ends. While
    /// writes are paused the stream must not grow, and nobody is asked.
    pub fn ask_for_acknowledgements(&self) {
        if self.writes_are_paused() {
            return;
        }
        let (name, format) = (c"REPLCONF".as_ptr(), c"ccA".as_ptr());
        // SAFETY: the format takes two C strings, and keeps the command out of the append-only file.
        unsafe { api!(RedisModule_Replicate(self.ctx, name, format, c"GETACK".as_ptr(), c"*".as_ptr())) };
    }

    /// Tells those of this server who listen on a channel.
    pub fn publish(&mut self, channel: &[u8], text: &[u8]) {
        self.call_here(c"PUBLISH", &[channel, text]);
    }

    /// Closes a connection, without what it would have been answered.
    pub fn close_client(&mut self, client_id: u64) {
        self.call(c"CLIENT", &[b"KILL", b"ID", client_id.to_string().as_bytes()]);
    }
}

/// The server's state flags.
#[derive(Clone, Copy, Debug)]
pub struct Flags(u32);

impl Flags {
    /// True where this server follows a primary.
    #[inline]
    pub fn is_replica(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
    }

    /// True where the running command may not block its client: in a script, a transaction, a call of another module.
    pub fn denies_blocking(self) -> bool {
        let flags = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING
            | raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_LUA;
        self.0 & flags != 0
    }

    /// True on a replica that clients can't write to.
    pub fn is_read_only(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_READONLY != 0
    }

    /// True on a node of a cluster.
    pub fn is_cluster(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
    }

    /// True where changes are written to the append-only file.
    pub fn has_append_only_file(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_AOF != 0
    }

    /// True while a child of this server saves, rewrites or sends the data set.
    pub fn has_child(self) -> bool {
        self.0 & raw::REDISMODULE_CTX_FLAGS_ACTIVE_CHILD != 0
    }

    /// True while a data set is being loaded, also beside the one being served.
    #[inline]
    pub fn is_loading(self) -> bool {
        self.0 & (raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::looks_up_modified;

    #[test]
    fn only_versions_that_look_up_what_they_tell_of_are_told_before() {
        for (version, expected) in [("7.0.15", false), ("8.0.6", false), ("8.6.0", true), ("8.10.1", true), ("", false)]
        {
            assert_eq!(looks_up_modified(version), expected, "{version}");
        }
    }
}
