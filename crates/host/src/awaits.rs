//! Clients that wait for something: their command is put behind the module's [`Module::AWAIT`], which blocks them,
//! not the server, until an outcome is there, and then runs the command as if it had come just then.
//!
//! The server looks at the word in front, a read, and so passes what stands behind it by the guards of writes:
//! pauses, read-only replicas, memory. So only commands that never write are put there, only the filter puts them,
//! which leaves a note of just these words for just this client, and the server is told to run no write.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::LazyLock;

use valkey_module::raw;

use super::filter::{FilterCall, Words};
use super::guard::{MainCell, guarded};
use super::hooks::Hooks;
use super::module::{Awaited, Module, with};
use super::reply::Answer;
use super::server::{Server, Text, bytes_of, words_of};
use super::{MainThread, acl, api};

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// A client waits no longer than this, in ms; then its command runs without an outcome.
const WAIT_MS_MAX: i64 = 1000;

/// What the filter has put behind the command, by client, until that runs: a hash of the words. The server may hold
/// the client back in between (`CLIENT PAUSE`), or refuse it: then the note stays until the next, and lets the client
/// send the same again.
static NOTES: MainCell<HashMap<u64, u64>> = MainCell::empty();

/// At load: no notes.
pub(super) fn forget(proof: &impl MainThread) {
    NOTES.set(proof, Some(HashMap::new()));
}

/// A connection has gone.
pub(super) fn forget_connection(proof: &impl MainThread, client_id: u64) {
    NOTES.with(proof, |notes| notes.remove(&client_id));
}

impl FilterCall {
    /// Puts the command behind [`Module::AWAIT`], for a client that is to wait. True where the server
    /// did.
    pub fn put_behind_await(&self, client_id: u64) -> bool {
        if !note(self, client_id, self) {
            return false;
        }
        let Some(word) = command_word() else { return false };
        // SAFETY: `call` is valid while the filter runs; the server takes the string over.
        let inserted = unsafe { api!(RedisModule_CommandFilterArgInsert(self.raw(), 0, word.into_raw())) };
        inserted as isize == raw::REDISMODULE_OK
    }
}

/// The filter is about to put these words behind the command. False where that can't be noted.
fn note(proof: &impl MainThread, client_id: u64, words: &impl Words) -> bool {
    let words = (0..words.count()).filter_map(|i| words.word(i));
    NOTES.with(proof, |notes| notes.insert(client_id, hash_of(words))).is_some()
}

/// True, once, where the filter has put these words there for that client.
fn was_noted<'a>(server: &Server, words: impl Iterator<Item = &'a [u8]>) -> bool {
    let note = NOTES.with(server, |notes| notes.remove(&server.client_id())).flatten();
    note.is_some_and(|note| note == hash_of(words))
}

/// Of the words, each with its length, so that no two commands are alike; nobody outside can tell it.
fn hash_of<'a>(words: impl Iterator<Item = &'a [u8]>) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SEED.hash_one(words.collect::<Vec<&[u8]>>())
}

/// A client that waits. Dropped, as by a thread that panics, it lets the client's command run without an outcome.
pub struct Blocked<T> {
    client: *mut raw::RedisModuleBlockedClient,
    outcome: PhantomData<fn(T)>,
}

// SAFETY: the server lets any thread unblock a client; nothing else is done with the pointer.
unsafe impl<T: Send> Send for Blocked<T> {}

impl<T: Send> Blocked<T> {
    /// Lets the client's command run, with what it waited for.
    pub fn wake(self, outcome: T) {
        self.unblock(Box::into_raw(Box::new(Some(outcome))).cast::<c_void>());
        std::mem::forget(self);
    }
}

impl<T> Blocked<T> {
    /// The client does not wait after all: `block` is taken back.
    pub fn abort(self) {
        // SAFETY: the client was blocked by `block`, and isn't unblocked by a drop.
        unsafe { api!(RedisModule_AbortBlock(self.client)) };
        std::mem::forget(self);
    }

    /// The last that is done with it.
    fn unblock(&self, outcome: *mut c_void) {
        // SAFETY: the client was blocked by `block` and is unblocked once; the server hands the box to `free` when it
        // is done.
        unsafe { api!(RedisModule_UnblockClient(self.client, outcome)) };
    }
}

impl<T> Drop for Blocked<T> {
    fn drop(&mut self) {
        self.unblock(std::ptr::null_mut());
    }
}

/// Blocks the client whose command is running. `None` where it can't wait: in a script, a transaction.
pub fn block<M: Module>(server: &Server) -> Option<Blocked<M::Outcome>> {
    if server.flags().denies_blocking() {
        return None;
    }
    // SAFETY: the callbacks live as long as the module, which can't be unloaded while a client waits.
    let client = unsafe {
        api!(RedisModule_BlockClient(
            server.raw(),
            Some(on_outcome::<M>),
            Some(on_timeout::<M>),
            Some(free::<M>),
            WAIT_MS_MAX
        ))
    };
    (!client.is_null()).then(|| Blocked { client, outcome: PhantomData })
}

/// The server frees what a client was woken with.
unsafe extern "C" fn free<M: Module>(_ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    if !data.is_null() {
        // SAFETY: made by `Blocked::wake`, freed once.
        drop(unsafe { Box::from_raw(data.cast::<Option<M::Outcome>>()) });
    }
}

/// The outcome is there.
unsafe extern "C" fn on_outcome<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this callback now, with this context; the data is what `wake` gave.
    let outcome = unsafe { api!(RedisModule_GetBlockedClientPrivateData(ctx)).cast::<Option<M::Outcome>>().as_mut() };
    // SAFETY: as above.
    unsafe { go_on::<M>(ctx, argv, argc, outcome.and_then(Option::take)) }
}

/// There was none in time.
unsafe extern "C" fn on_timeout<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this callback now, with this context.
    unsafe { go_on::<M>(ctx, argv, argc, None) }
}

/// # Safety
/// Within a callback that the server runs with this context and these arguments.
unsafe fn go_on<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
    outcome: Option<M::Outcome>,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (mut server, words) = unsafe { (Server::new(ctx), std::slice::from_raw_parts(argv, argc as usize)) };
    // SAFETY: as above.
    let texts = unsafe { words_of(argv, argc) };
    guarded("the end of a wait", || {
        with(&server.proof(), |module: &mut M| module.on_awaited(&mut server, &texts[1..], outcome))
    });
    forward(&mut server, &words[1..])
}

/// [`Module::AWAIT`] and a command behind it: waits, where the module says so, and runs the command.
pub(super) unsafe extern "C" fn on_await<M: Module>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this command now, with this context and these arguments.
    let (mut server, words) = unsafe { (Server::new(ctx), std::slice::from_raw_parts(argv, argc as usize)) };
    // SAFETY: as above.
    let texts = unsafe { words_of(argv, argc) };
    if !was_noted(&server, texts[1..].iter().copied()) {
        let name = M::AWAIT.to_string_lossy().to_uppercase();
        let text = format!("{name} is {}'s own: it stands before reads that wait for a value", M::TITLE);
        server.answer(&Answer::error(text));
        return OK;
    }
    let awaited =
        guarded("a wait", || with(&server.proof(), |module: &mut M| module.on_await(&mut server, &texts[1..])));
    // Without the module it runs.
    match awaited.flatten() {
        Some(Awaited::Waits) => OK,
        Some(Awaited::Runs) | None => forward(&mut server, &words[1..]),
    }
}

/// Runs a command as the client that sent it, within its rights, and answers with its reply. It reads; what it finds
/// expired is replicated.
fn forward(server: &mut Server, words: &[*mut raw::RedisModuleString]) -> c_int {
    let [name, arguments @ ..] = words else { return OK };
    // SAFETY: the words are of the running callback.
    let name = CString::new(unsafe { bytes_of(name) }).unwrap_or_default();
    let ctx = server.raw();
    let mut arguments = arguments.to_vec();
    let (start, count) = (arguments.as_mut_ptr(), arguments.len());
    // "C": within the client's rights. "W": no write. "S": nothing of what scripts may not, and no stale replica's
    // data. SAFETY: format "v" takes an array of server strings and its length; both live until the call has
    // returned.
    let reply = unsafe { api!(RedisModule_Call(ctx, name.as_ptr(), c"!0ECWSv".as_ptr(), start, count)) };
    if reply.is_null() {
        let text = c"ERR the command could not be run";
        // SAFETY: the context is that of the running callback; the text is a constant.
        unsafe { api!(RedisModule_ReplyWithError(ctx, text.as_ptr())) };
        return OK;
    }
    // SAFETY: the reply is ours, sent once and freed once.
    unsafe {
        match is_of_another_node(reply) {
            true => api!(RedisModule_ReplyWithError(ctx, ASK_AGAIN.as_ptr())),
            false => api!(RedisModule_ReplyWithCallReply(ctx, reply)),
        };
        api!(RedisModule_FreeCallReply(reply));
    }
    OK
}

/// A key's slot went to another node of a cluster while its client waited: the server says so in words that no client
/// knows. Asked again, it says where to go.
const ASK_AGAIN: &CStr = c"TRYAGAIN the key's slot has moved meanwhile";

/// # Safety
/// The reply lives.
unsafe fn is_of_another_node(reply: *mut raw::RedisModuleCallReply) -> bool {
    // SAFETY: by the caller's promise.
    if unsafe { api!(RedisModule_CallReplyType(reply)) } != raw::REDISMODULE_REPLY_ERROR as c_int {
        return false;
    }
    let mut len = 0;
    // SAFETY: as above; the text lives as long as the reply.
    let text = unsafe {
        let start = api!(RedisModule_CallReplyStringPtr(reply, &mut len));
        if start.is_null() { &[] } else { std::slice::from_raw_parts(start.cast::<u8>(), len) }
    };
    text.windows(NON_LOCAL.len()).any(|words| words == NON_LOCAL)
}

/// What servers say of such keys to modules.
const NON_LOCAL: &[u8] = b"non local key";

/// True where the client's user may run [`Module::AWAIT`]: the server asks for it as for any other.
pub fn is_allowed(server: &Server, client_id: u64) -> bool {
    let user = acl::user_name(server, client_id).and_then(|name| acl::User::named(&name));
    user.zip(command_word()).is_some_and(|(user, word)| user.may_run(&[word]))
}

/// The word that a filter puts before a command.
fn command_word() -> Option<Text> {
    Hooks::get().map(|hooks| Text::without_context(hooks.await_command.to_bytes()))
}
