//! Messages between the copies of a module on the nodes of a cluster, over the cluster's own bus: nothing is opened,
//! no key is written, and a node without the module drops them.
//!
//! The server never takes a receiver off its list (`RegisterClusterMessageReceiver` with null frees one that it goes
//! on to call), so ours stays after an unload and the library stays mapped for it; it does nothing then. It must not
//! use the context that it is given, which may be of a load that has ended. The server tells modules apart by names
//! of nine letters alone, so that another module's message of the same type may come here: each begins with a word of
//! our own.

use std::ffi::{CString, c_char, c_int, c_uchar};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use valkey_module::raw;

use super::context::context_of_load;
use super::guard::guarded;
use super::hooks::Hooks;
use super::loaded;
use super::messages::NodeId;
use super::module::{Module, with};
use super::server::Server;

static IS_LOADED: AtomicBool = AtomicBool::new(false);

/// At load, on a node of a cluster: messages come from now on. False where the server has no bus for modules.
pub(super) fn listen<M: Module>(server: &Server) -> bool {
    // SAFETY: the API table is written once, at load.
    let register = unsafe { raw::RedisModule_RegisterClusterMessageReceiver };
    let Some(register) = register.filter(|_| server.flags().is_cluster()) else { return false };
    if !loaded::stay_mapped() {
        return false;
    }
    IS_LOADED.store(true, Ordering::Relaxed);
    for kind in 0..M::MESSAGES.kinds {
        // SAFETY: the context is that of the load callback; the receiver's code stays mapped for as long as the
        // server runs.
        unsafe { register(server.raw(), M::MESSAGES.first_type + kind, Some(on_message::<M>)) };
    }
    true
}

/// At unload: what comes is dropped.
pub(super) fn release() {
    IS_LOADED.store(false, Ordering::Relaxed);
}

/// Sends a message to one node, or to all. False where the server knows no such node, or is of no cluster. What is on
/// its way may be lost.
pub fn send(server: &Server, to: Option<&NodeId>, kind: u8, body: &[u8]) -> bool {
    // SAFETY: the API table is written once, at load.
    let Some(send) = (unsafe { raw::RedisModule_SendClusterMessage }) else { return false };
    let Some(Hooks { messages, .. }) = Hooks::get() else { return false };
    let message = [messages.word, body].concat();
    let target = to.and_then(|id| CString::new(&id[..]).ok());
    let target: *const c_char = target.as_ref().map_or(ptr::null(), |id| id.as_ptr());
    let (start, length) = (message.as_ptr().cast::<c_char>(), message.len() as u32);
    // SAFETY: the target is null or a C string, the message has that many bytes; the server copies both.
    let sent: c_int = unsafe { send(server.raw(), target, messages.first_type + kind, start, length) };
    sent as isize == raw::REDISMODULE_OK
}

unsafe extern "C" fn on_message<M: Module>(
    _ctx: *mut raw::RedisModuleCtx,
    sender: *const c_char,
    kind: u8,
    payload: *const c_uchar,
    length: u32,
) {
    if !IS_LOADED.load(Ordering::Relaxed) || sender.is_null() || payload.is_null() {
        return;
    }
    // SAFETY: the server hands over that many bytes, alive during the call.
    let message = unsafe { std::slice::from_raw_parts(payload, length as usize) };
    // SAFETY: a sender's id has 40 bytes, without an end mark.
    let sender: NodeId = unsafe { sender.cast::<NodeId>().read() };
    let kind = kind.checked_sub(M::MESSAGES.first_type).filter(|kind| *kind < M::MESSAGES.kinds);
    let (Some(kind), Some(body)) = (kind, message.strip_prefix(M::MESSAGES.word)) else { return };
    // SAFETY: the server calls receivers on its main thread.
    let Some(mut server) = (unsafe { context_of_load() }) else { return };
    guarded("a message", || {
        with(&server.proof(), |module: &mut M| module.on_message(&mut server, &sender, kind, body))
    });
}
