//! Holding back what connections are answered, and sending replicas what they are to get before anybody is answered:
//! what a module can't do by the server's module API, and the server's own functions can.
//!
//! The servers export their functions to modules as a by-product (they are linked with `-rdynamic`), so five are
//! looked up by name. What they do, by the source of Redis 7.0 to 8.0 and Valkey 7.2 to 9.1, and by
//! `tests/server/replies.rs` on each server tried:
//!
//! - `lookupClientByID(id)`: the connection's client, or null. It may be gone after any command, so the pointer is
//!   never kept.
//! - `protectClient(client)`: nothing is read from the connection any more and nothing written to it, though replies
//!   are still collected in their order; whoever closes it is put off. The server does so with clients that wait in
//!   the midst of a command.
//! - `unprotectClient(client)`: both go on; what was collected leaves at the end of this turn of the event loop.
//! - `clientHasPendingReplies(client)`: of a client, whether replies are collected; of a replica, whether any of the
//!   replication stream was not handed to its socket.
//! - `flushReplicasOutputBuffers()` (Redis: `flushSlavesOutputBuffers`): writes as much of the stream to the
//!   replicas' sockets as they take. The server does so while it evicts, and when it stops.
//!
//! Their names may stay and their meaning change, so only versions on which that test has run are let through
//! (`TRIED`). On any other nothing is held and the setting is refused, with the reason.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use super::server::Server;
use super::{MainThread, filter};

/// The server's client; only pointers to it exist.
#[repr(C)]
struct Client {
    opaque: [u8; 0],
}

/// The functions. See the file's opening.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    lookup: unsafe extern "C" fn(u64) -> *mut Client,
    protect: unsafe extern "C" fn(*mut Client),
    unprotect: unsafe extern "C" fn(*mut Client),
    has_pending: unsafe extern "C" fn(*mut Client) -> c_int,
    flush_replicas: unsafe extern "C" fn(),
}

static FOUND: OnceLock<Result<Holding, String>> = OnceLock::new();

/// The server's kind, and its version's first two numbers.
type Version = (&'static str, u32, u32);

/// Versions on which `tests/server/replies.rs` has run: 8.0.1, 8.1.1 and 9.1.2; 8.0.2 and 8.0.6.
const TRIED: [Version; 4] = [("Valkey", 8, 0), ("Valkey", 8, 1), ("Valkey", 9, 1), ("Redis", 8, 0)];
const TRIED_TEXT: &str = "Valkey 8.0, 8.1 and 9.1 and Redis 8.0";

/// At load: looks the functions up.
pub(super) fn prepare(server: &mut Server) {
    FOUND.get_or_init(|| {
        let section = server.section(c"server");
        let (product, text) = match section.field(c"valkey_version") {
            Some(text) => ("Valkey", text),
            None => ("Redis", section.field(c"redis_version").unwrap_or_default()),
        };
        let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
        let version = (product, numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        find(version).map_err(|why| format!("replies can't be held on {product} {text}: {why}"))
    });
}

/// The functions.
///
/// # Errors
/// Why this server's replies can't be held, as a sentence.
pub fn holding() -> Result<Holding, String> {
    FOUND.get().cloned().unwrap_or_else(|| Err("replies can't be held: the module is not loaded".to_owned()))
}

fn find(version: Version) -> Result<Holding, String> {
    if !filter::knows_clients() {
        return Err("its modules aren't told who sends a command; those of Valkey 7.2 and Redis 7.2 are".to_owned());
    }
    check_version(version)?;
    let flush_replicas = symbol(c"flushReplicasOutputBuffers").or_else(|_| symbol(c"flushSlavesOutputBuffers"))?;
    let (lookup, protect) = (symbol(c"lookupClientByID")?, symbol(c"protectClient")?);
    let (unprotect, has_pending) = (symbol(c"unprotectClient")?, symbol(c"clientHasPendingReplies")?);
    // SAFETY: these are the server's functions of that name, whose signatures are those of the fields on every
    // version let through above.
    Ok(unsafe {
        Holding {
            lookup: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64) -> *mut Client>(lookup),
            protect: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Client)>(protect),
            unprotect: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Client)>(unprotect),
            has_pending: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Client) -> c_int>(has_pending),
            flush_replicas: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(flush_replicas),
        }
    })
}

fn check_version(version: Version) -> Result<(), String> {
    if TRIED.contains(&version) { Ok(()) } else { Err(format!("it was tried on {TRIED_TEXT} only")) }
}

fn symbol(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name is a C string; the look-up goes through what the process has loaded, the server first.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return Err(format!("this build doesn't export {}", name.to_string_lossy()));
    }
    Ok(found)
}

impl Holding {
    /// Holds back what the client is answered, also from what it has been answered in this turn; where it is held
    /// already, nothing changes. False where there is no such client: it is gone, or the server's own, without a
    /// connection.
    pub fn hold(&self, _proof: &impl MainThread, client_id: u64) -> bool {
        self.with(client_id, |client| {
            // SAFETY: the client was looked up just now, on the main thread.
            unsafe { (self.protect)(client) };
        })
        .is_some()
    }

    /// Lets go of a client that is held.
    pub fn release(&self, _proof: &impl MainThread, client_id: u64) {
        self.with(client_id, |client| {
            // SAFETY: as above.
            unsafe { (self.unprotect)(client) };
        });
    }

    /// Whether the client has replies that haven't left, or the replica a part of the stream; `None` where there is
    /// no such client.
    pub fn has_pending(&self, _proof: &impl MainThread, client_id: u64) -> Option<bool> {
        // SAFETY: as above; it only reads.
        self.with(client_id, |client| unsafe { (self.has_pending)(client) } != 0)
    }

    /// Hands to the replicas' sockets what they take of the replication stream. One write to each that is behind.
    pub fn flush_replicas(&self, _proof: &impl MainThread) {
        // SAFETY: the caller is on the main thread and between commands, where the server flushes too.
        unsafe { (self.flush_replicas)() };
    }

    fn with<R>(&self, client_id: u64, body: impl FnOnce(*mut Client) -> R) -> Option<R> {
        // SAFETY: any number may be looked up; the callers are on the main thread.
        let client = unsafe { (self.lookup)(client_id) };
        (!client.is_null()).then(|| body(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the server's versions say of themselves; a filter that knows clients is all else it takes.
    #[test]
    fn only_versions_that_were_tried_are_let_through() {
        for (version, is_tried) in [
            (("Valkey", 7, 2), false),
            (("Valkey", 8, 0), true),
            (("Valkey", 8, 1), true),
            (("Valkey", 9, 0), false),
            (("Valkey", 9, 1), true),
            (("Valkey", 9, 9), false),
            (("Redis", 7, 4), false),
            (("Redis", 8, 0), true),
            (("Redis", 8, 6), false),
        ] {
            assert_eq!(check_version(version).is_ok(), is_tried, "{version:?}");
        }
        assert!(TRIED.iter().all(|(product, ..)| TRIED_TEXT.contains(product)));
    }
}
