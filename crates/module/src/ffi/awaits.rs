//! Clients that wait for the disk: their command is put behind `TENURE.AWAIT`, which blocks them, not the server, until the value
//! has been read, and then runs the command as if it had come just then.
//!
//! The server looks at the word in front, a read, and so passes what stands behind it by the guards of writes: pauses, read-only
//! replicas, memory. So only commands that never write are put there, only the filter puts them, which leaves a note of just
//! these words for just this client, and the server is told to run no write.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};

use tenure_core::units::KeyHash;
use valkey_module::raw;

use super::guard::MainCell;
use super::server::{Server, Text, bytes_of, words_of};
use super::{MainThread, acl, api, callbacks};
use crate::enforce::spill::file::Place;
use crate::observe::command_table::Words;

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// A client waits no longer than this for the disk, in ms; then its command runs without the value.
const WAIT_MS_MAX: i64 = 1000;

/// The command that stands before those that wait.
pub const COMMAND: &[u8] = b"tenure.await";

/// What the filter has put behind the command, by client, until that runs: a hash of the words. The server may hold the client
/// back in between (`CLIENT PAUSE`), or refuse it: then the note stays until the next, and lets the client send the same again.
static NOTES: MainCell<HashMap<u64, KeyHash>> = MainCell::empty();

/// At load: no notes.
pub(super) fn forget(proof: &impl MainThread) {
    NOTES.set(proof, Some(HashMap::new()));
}

/// A connection has gone.
pub(super) fn forget_connection(proof: &impl MainThread, client_id: u64) {
    NOTES.with(proof, |notes| notes.remove(&client_id));
}

/// The filter is about to put these words behind the command. False where that can't be noted.
pub(super) fn note(proof: &impl MainThread, client_id: u64, words: &impl Words) -> bool {
    let words = (0..words.count()).filter_map(|i| words.word(i));
    NOTES.with(proof, |notes| notes.insert(client_id, hash_of(words))).is_some()
}

/// True, once, where the filter has put these words there for that client.
fn was_noted<'a>(server: &Server, words: impl Iterator<Item = &'a [u8]>) -> bool {
    let note = NOTES.with(server, |notes| notes.remove(&server.client_id())).flatten();
    note.is_some_and(|note| note == hash_of(words))
}

/// Of words with their lengths, so that no two commands have the same text.
fn hash_of<'a>(words: impl Iterator<Item = &'a [u8]>) -> KeyHash {
    let mut text = Vec::new();
    for word in words {
        text.extend_from_slice(&(word.len() as u64).to_le_bytes());
        text.extend_from_slice(word);
    }
    KeyHash::of(&text)
}

/// A client that waits. Dropped, as by a thread that panics, it lets the client's command run without the value.
pub struct Blocked(*mut raw::RedisModuleBlockedClient);

// SAFETY: the server lets any thread unblock a client; nothing else is done with the pointer.
unsafe impl Send for Blocked {}

/// What a client waited for: the record's bytes, where they could be read, and where they lay.
pub type Outcome = (Place, Option<Vec<u8>>);

impl Blocked {
    /// Lets the client's command run, with what was read for it.
    pub fn wake(self, place: Place, bytes: Option<Vec<u8>>) {
        let outcome: Box<Outcome> = Box::new((place, bytes));
        self.unblock(Box::into_raw(outcome).cast::<c_void>());
        std::mem::forget(self);
    }

    /// The client does not wait after all: `block` is taken back.
    pub fn abort(self) {
        // SAFETY: the client was blocked by `block`, and isn't unblocked by a drop.
        unsafe { api!(RedisModule_AbortBlock(self.0)) };
        std::mem::forget(self);
    }

    /// The last that is done with it.
    fn unblock(&self, outcome: *mut c_void) {
        // SAFETY: the client was blocked by `block` and is unblocked once; the server hands the box to `free` when it is done.
        unsafe { api!(RedisModule_UnblockClient(self.0, outcome)) };
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.unblock(std::ptr::null_mut());
    }
}

/// Blocks the client whose command is running. `None` where it can't wait: in a script, a transaction.
pub fn block(server: &Server) -> Option<Blocked> {
    if server.flags().denies_blocking() {
        return None;
    }
    // SAFETY: the callbacks live as long as the module, which can't be unloaded while a client waits.
    let client = unsafe {
        api!(RedisModule_BlockClient(server.raw(), Some(on_read), Some(on_timeout), Some(free), WAIT_MS_MAX))
    };
    (!client.is_null()).then_some(Blocked(client))
}

/// The server frees what a client was woken with.
unsafe extern "C" fn free(_ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    if !data.is_null() {
        // SAFETY: made by `Blocked::wake`, freed once.
        drop(unsafe { Box::from_raw(data.cast::<Outcome>()) });
    }
}

/// The value has been read.
unsafe extern "C" fn on_read(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this callback now, with this context; the data is what `wake` gave.
    let outcome = unsafe { api!(RedisModule_GetBlockedClientPrivateData(ctx)).cast::<Outcome>().as_mut() };
    // SAFETY: as above.
    unsafe { go_on(ctx, argv, argc, outcome.map(|(place, bytes)| (*place, bytes.take()))) }
}

/// The disk has not answered in time.
unsafe extern "C" fn on_timeout(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this callback now, with this context.
    unsafe { go_on(ctx, argv, argc, None) }
}

/// # Safety
/// Within a callback that the server runs with this context and these arguments.
unsafe fn go_on(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
    outcome: Option<Outcome>,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (server, words) = unsafe { (Server::new(ctx), std::slice::from_raw_parts(argv, argc as usize)) };
    // SAFETY: as above.
    let texts = unsafe { words_of(argv, argc) };
    callbacks::on_awaited(&server, &texts[1..], outcome);
    forward(&server, &words[1..])
}

/// `TENURE.AWAIT command …`: waits for the value of the command's key, where it is asleep, and runs the command.
pub(super) unsafe extern "C" fn on_await(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server runs this command now, with this context and these arguments.
    let (server, words) = unsafe { (Server::new(ctx), std::slice::from_raw_parts(argv, argc as usize)) };
    // SAFETY: as above.
    let texts = unsafe { words_of(argv, argc) };
    if !was_noted(&server, texts[1..].iter().copied()) {
        let text = c"ERR TENURE.AWAIT is Tenure's own: it stands before reads of keys that are asleep";
        // SAFETY: the context is the running command's; the text is a constant.
        unsafe { api!(RedisModule_ReplyWithError(ctx, text.as_ptr())) };
        return OK;
    }
    match callbacks::on_await(&server, &texts[1..]) {
        callbacks::Awaited::Waits => OK,
        callbacks::Awaited::Runs => forward(&server, &words[1..]),
    }
}

/// Runs a command as the client that sent it, within its rights, and answers with its reply. It reads; what it finds expired is
/// replicated.
fn forward(server: &Server, words: &[*mut raw::RedisModuleString]) -> c_int {
    let [name, arguments @ ..] = words else { return OK };
    // SAFETY: the words are of the running callback.
    let name = CString::new(unsafe { bytes_of(name) }).unwrap_or_default();
    let ctx = server.raw();
    let mut arguments = arguments.to_vec();
    let (start, count) = (arguments.as_mut_ptr(), arguments.len());
    // "C": within the client's rights. "W": no write. "S": nothing of what scripts may not, and no stale replica's data.
    // SAFETY: format "v" takes an array of server strings and its length; both live until the call has returned.
    let reply = unsafe { api!(RedisModule_Call(ctx, name.as_ptr(), c"!0ECWSv".as_ptr(), start, count)) };
    if reply.is_null() {
        let text = c"ERR the command could not be run";
        // SAFETY: the context is that of the running callback; the text is a constant.
        unsafe { api!(RedisModule_ReplyWithError(ctx, text.as_ptr())) };
        return OK;
    }
    // SAFETY: the reply is ours, sent once and freed once.
    unsafe {
        api!(RedisModule_ReplyWithCallReply(ctx, reply));
        api!(RedisModule_FreeCallReply(reply));
    }
    OK
}

/// True where the client's user may run [`COMMAND`]: the server asks for it as for any other.
pub fn is_allowed(server: &Server, client_id: u64) -> bool {
    let user = acl::user_name(server, client_id).and_then(|name| acl::User::named(&name));
    user.is_some_and(|user| user.may_run(&[command_word()]))
}

/// The word that a filter puts before a command.
pub(super) fn command_word() -> Text {
    Text::without_context(COMMAND)
}
