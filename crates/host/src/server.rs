//! The server as a callback on its main thread sees it: memory, databases, keys, the keyspace scan.

use std::ffi::{CStr, CString, c_int, c_longlong, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use valkey_module::raw;

use super::api;
use super::main_thread::{MainThread, OnMain};
use super::reply::Value;

/// Redis 8.6 looks a key up before it tells of its change, which counts as any look-up until redis#14925. None of the
/// servers here does.
static LOOKS_UP_MODIFIED: AtomicBool = AtomicBool::new(false);

/// At load: how this server tells of changes.
pub(super) fn look_at_version(server: &mut Server) {
    let is_redis = server.info_field(b"server", "valkey_version").is_none();
    let version = server.info_field(b"server", "redis_version").unwrap_or_default();
    LOOKS_UP_MODIFIED.store(is_redis && looks_up_modified(&version), Ordering::Relaxed);
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
    /// nothing is written unless [`Key::unlink`] is called. A key whose time is up is expired, as by any look-up.
    #[inline]
    pub fn open(&mut self, name: &impl Name) -> Key<'_> {
        let mode = (raw::REDISMODULE_WRITE | raw::REDISMODULE_OPEN_KEY_NOTOUCH) as c_int;
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

    /// Emits the `evicted` event for `name` of the selected database.
    pub fn notify_evicted(&mut self, name: &Text) {
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
        let key = self.open(name);
        if key.kind() != Kind::Absent {
            return;
        }
        // SAFETY: the handle is open for writing; the server holds the string from then on by itself.
        unsafe { api!(RedisModule_StringSet(key.key, nothing.0)) };
        // SAFETY: as above; any time since 1970 is over.
        unsafe { api!(RedisModule_SetAbsExpire(key.key, 1)) };
        drop(key);
        drop(self.open(name));
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

    /// Calls a command of the server and copies its reply; `None` where it failed.
    pub fn call(&mut self, command: &CStr, words: &[&[u8]]) -> Option<Value> {
        self.call_with(c"v", command, words)
    }

    /// As [`Server::call`], for a command that changes keys: replicas and the append-only file get it too.
    pub fn call_replicated(&mut self, command: &CStr, words: &[&[u8]]) -> Option<Value> {
        self.call_with(c"!v", command, words)
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

    /// One field of `INFO section`.
    pub fn info_field(&mut self, section: &[u8], field: &str) -> Option<String> {
        self.info_fields(section, [field]).map(|[value]| value)
    }

    /// Several fields of `INFO section`; `None` where one of them isn't there.
    pub fn info_fields<const N: usize>(&mut self, section: &[u8], fields: [&str; N]) -> Option<[String; N]> {
        let reply = self.call(c"INFO", &[section])?;
        let text = reply.text()?;
        let value = |field| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
        };
        let values: Vec<String> = fields.into_iter().map_while(value).collect();
        values.try_into().ok()
    }

    /// One setting of the server.
    pub fn setting(&mut self, name: &str) -> Option<String> {
        self.call(c"CONFIG", &[b"GET", name.as_bytes()])?.get(name)?.text().map(str::to_owned)
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
        self.call(c"PUBLISH", &[channel, text]);
    }

    /// Closes a connection, without what it would have been answered.
    pub fn close_client(&mut self, client_id: u64) {
        self.call(c"CLIENT", &[b"KILL", b"ID", client_id.to_string().as_bytes()]);
    }

    /// One step of the walk through the selected database: `visit` sees the keys of one hash bucket or a few. Hash
    /// order, so that consecutive steps are a random sample without replacement. At the end the cursor starts over;
    /// true says so.
    ///
    /// # Panics
    /// Where `visit` does: once the server's own frames are left, no other key having been visited.
    pub fn scan_step(&mut self, cursor: &ScanCursor, mut visit: impl FnMut(&ScannedName, &Key)) -> bool {
        let mut visitor = Visitor { visit: &mut visit, panic: None };
        let data = (&raw mut visitor).cast::<c_void>();
        // SAFETY: the cursor lives; the callback runs within this call only, and gets back the pointer that it is
        // given.
        let more = unsafe { api!(RedisModule_Scan(self.ctx, cursor.0, Some(scan_visit), data)) };
        if let Some(panic) = visitor.panic {
            std::panic::resume_unwind(panic);
        }
        if more == 0 {
            // SAFETY: the cursor lives.
            unsafe { api!(RedisModule_ScanCursorRestart(cursor.0)) };
        }
        more == 0
    }
}

/// One command tells of so many keys at the most.
const UNLINKS_MAX: usize = 256;

/// Keys that were removed, of which nobody was told yet.
pub struct Unlinks {
    /// Where they were.
    db: u16,
    names: Vec<Text>,
}

impl Unlinks {
    /// The key was removed from the selected database, which is `db`.
    pub fn add(&mut self, server: &mut Server, db: u16, name: Text) {
        if db != self.db || self.names.len() == UNLINKS_MAX {
            self.tell(server);
            server.select_db(db);
            self.db = db;
        }
        self.names.push(name);
    }

    /// One command for all. In a cluster one for each: keys of several slots may go different ways.
    fn tell(&mut self, server: &mut Server) {
        if self.names.is_empty() {
            return;
        }
        server.select_db(self.db);
        if self.names.len() == 1 || server.flags().is_cluster() {
            self.names.iter().for_each(|name| server.replicate_unlink(name));
        } else {
            server.replicate_texts(c"UNLINK", &self.names);
        }
        self.names.clear();
    }
}

/// What a scan shows keys to.
struct Visitor<'a> {
    visit: &'a mut dyn FnMut(&ScannedName, &Key),
    /// It has panicked, and the panic has to wait until the server's frames are left.
    panic: Option<Box<dyn std::any::Any + Send>>,
}

/// The server's trampoline into [`Server::scan_step`]'s closure.
unsafe extern "C" fn scan_visit(
    ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    key: *mut raw::RedisModuleKey,
    data: *mut c_void,
) {
    // SAFETY: `data` is the visitor that `scan_step` passed, alive and unshared until the scan returns.
    let visitor = unsafe { &mut *data.cast::<Visitor>() };
    if key.is_null() || visitor.panic.is_some() {
        return;
    }
    let handle = Key { key, ctx, owned: false, server: std::marker::PhantomData };
    // SAFETY: the name lives during the visit.
    let name = unsafe { ScannedName::new(&name) };
    let visited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (visitor.visit)(&name, &handle)));
    visitor.panic = visited.err();
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

/// A key's name as a string of the server's: one that we hold, or one that lives as long as the callback.
pub trait Name: AsRef<[u8]> + sealed::Strings {}

impl<T: AsRef<[u8]> + sealed::Strings> Name for T {}

mod sealed {
    use super::{ScannedName, Text, raw};

    /// Who has a live string of the server's.
    pub trait Strings {
        /// The string.
        fn string(&self) -> *mut raw::RedisModuleString;
    }

    impl Strings for Text {
        #[inline]
        fn string(&self) -> *mut raw::RedisModuleString {
            self.0
        }
    }

    impl Strings for ScannedName<'_> {
        #[inline]
        fn string(&self) -> *mut raw::RedisModuleString {
            self.text
        }
    }
}

/// A server string that we hold a reference to.
pub struct Text(*mut raw::RedisModuleString);

impl Text {
    /// A copy of `bytes` as a server string; main thread only.
    #[inline]
    pub(super) fn without_context(bytes: &[u8]) -> Text {
        // SAFETY: the server copies `bytes`; without a context the string is ours to free.
        Text(unsafe { api!(RedisModule_CreateString(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())) })
    }

    /// Gives a string that we made, and that nobody else holds, other bytes, as many as it has.
    ///
    /// # Panics
    /// For another length.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        let mut length = 0;
        // SAFETY: the string is live.
        let start = unsafe { api!(RedisModule_StringPtrLen(self.0, &mut length)) }.cast_mut().cast::<u8>();
        assert_eq!(length, bytes.len(), "a string is filled with as many bytes as it has");
        // SAFETY: so many bytes start there, in memory that the server allocated for this string alone; they are
        // const in its interface because strings are shared, which this one isn't: the caller made it, and `&mut`
        // says that nobody reads it now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
    }

    /// Where the server's object lies, which holds the string or points to it.
    pub(super) fn object(&self) -> *const u8 {
        self.0.cast()
    }

    /// A string that is ours to free; `None` for null.
    ///
    /// # Safety
    /// `text` is null, or a live string with a reference that is given up to us.
    pub(super) unsafe fn owned(text: *mut raw::RedisModuleString) -> Option<Text> {
        // Not `then_some`, which would drop what it has no use for: null isn't ours to free.
        (!text.is_null()).then(|| Text(text))
    }

    /// The string, still ours.
    pub(super) fn raw(&self) -> *mut raw::RedisModuleString {
        self.0
    }

    /// The string, from now on the receiver's to free.
    pub(super) fn into_raw(self) -> *mut raw::RedisModuleString {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl AsRef<[u8]> for Text {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the string is live, and changes for `&mut self` alone.
        unsafe { bytes_of(&self.0) }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: we hold one reference, and let go of it once.
        unsafe { api!(RedisModule_FreeString(ptr::null_mut(), self.0)) };
    }
}

/// The name of a key that a scan visits, or that an event is about; gone afterwards unless it is kept.
pub struct ScannedName<'a> {
    text: *mut raw::RedisModuleString,
    bytes: &'a [u8],
}

impl AsRef<[u8]> for ScannedName<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl<'a> ScannedName<'a> {
    /// # Safety
    /// The string lives, unchanged, for `'a`.
    #[inline]
    pub(super) unsafe fn new(text: &'a *mut raw::RedisModuleString) -> ScannedName<'a> {
        // SAFETY: by the caller's promise.
        ScannedName { text: *text, bytes: unsafe { bytes_of(text) } }
    }

    /// Keeps the name beyond that, without a copy.
    pub fn keep(&self) -> Text {
        // SAFETY: the string lives now; holding it without a context only adds a reference.
        Text(unsafe { api!(RedisModule_HoldString(ptr::null_mut(), self.text)) })
    }
}

/// A server string's bytes, for as long as the pointer to it is borrowed.
///
/// # Safety
/// The string lives, and nobody changes it, for so long.
#[inline]
pub(super) unsafe fn bytes_of(text: &*mut raw::RedisModuleString) -> &[u8] {
    let mut length = 0;
    // SAFETY: by the caller's promise.
    let start = unsafe { api!(RedisModule_StringPtrLen(*text, &mut length)) };
    if start.is_null() {
        return &[];
    }
    // SAFETY: the server says that `length` bytes start there; the caller's promise keeps them.
    unsafe { slice::from_raw_parts(start.cast(), length) }
}

/// The words of a command, as the server hands them to what runs it.
///
/// # Safety
/// `argv` holds `argc` strings, or `argc` is 0; they live, unchanged, for `'a`: the callback that runs now.
pub(super) unsafe fn words_of<'a>(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Vec<&'a [u8]> {
    let words: &'a [*mut raw::RedisModuleString] = match usize::try_from(argc) {
        // SAFETY: by the caller's promise.
        Ok(n) if n > 0 => unsafe { slice::from_raw_parts(argv, n) },
        _ => &[],
    };
    // SAFETY: as above.
    words.iter().map(|word| unsafe { bytes_of(word) }).collect()
}

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
///     server.call_replicated(c"UNLINK", &[name.as_ref()]);
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
    key: *mut raw::RedisModuleKey,
    ctx: *mut raw::RedisModuleCtx,
    owned: bool,
    server: std::marker::PhantomData<&'a mut Server>,
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
    /// that has a first node, and dies.
    pub fn memory_usage(&self, name: &[u8]) -> Option<i64> {
        if self.kind() == Kind::Collection && self.length() == 0 {
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

    #[inline]
    fn type_number(&self) -> isize {
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

/// Where a walk through a database stands.
pub struct ScanCursor(*mut raw::RedisModuleScanCursor);

impl ScanCursor {
    /// A cursor at the start.
    pub fn new(_proof: &impl MainThread) -> Self {
        // SAFETY: takes nothing.
        ScanCursor(unsafe { api!(RedisModule_ScanCursorCreate()) })
    }
}

impl Drop for ScanCursor {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once.
        unsafe { api!(RedisModule_ScanCursorDestroy(self.0)) };
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
