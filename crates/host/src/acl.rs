//! The users of the server's access control lists: who a client has logged in as, and what a user may do.

use std::ffi::c_int;

use valkey_module::raw;

use super::api;
use super::server::{Server, Text};

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// The name of the user that a client has logged in as; `None` for clients without one (a link to the primary) and
/// those that can't be looked up by id. About 0.1 µs.
pub fn user_name(server: &Server, client_id: u64) -> Option<Text> {
    // SAFETY: the API table is written once, at load.
    let name_of = unsafe { raw::RedisModule_GetClientUserNameById }?;
    // SAFETY: `raw` is a valid context without automatic memory; what is returned is ours.
    unsafe { Text::owned(name_of(server.raw(), client_id)) }
}

/// A user.
pub struct User(*mut raw::RedisModuleUser);

impl User {
    /// The user of that name; `None` where there is none, or where the server can't be asked (before Redis 7.0).
    pub fn named(name: &Text) -> Option<User> {
        // SAFETY: the API table is written once, at load.
        let user_of = unsafe { raw::RedisModule_GetModuleUserFromUserName }?;
        // SAFETY: the name is a live string; what is returned is ours and freed once, on drop.
        let user = unsafe { user_of(name.raw()) };
        (!user.is_null()).then(|| User(user))
    }

    /// True where the user may run the command of these words.
    pub fn may_run(&self, words: &[Text]) -> bool {
        let mut words: Vec<_> = words.iter().map(Text::raw).collect();
        // SAFETY: the API table is written once, at load.
        let check = unsafe { raw::RedisModule_ACLCheckCommandPermissions };
        // SAFETY: the user and so many words live during the call.
        check.is_some_and(|check| unsafe { check(self.0, words.as_mut_ptr(), words.len() as c_int) } == OK)
    }

    /// True where the user may do anything at all with the key.
    pub fn may_use(&self, key: &Text) -> bool {
        // SAFETY: the API table is written once, at load.
        let check = unsafe { raw::RedisModule_ACLCheckKeyPermissions };
        // SAFETY: user and key live during the call; no flag asks whether any of the user's patterns fits.
        check.is_some_and(|check| unsafe { check(self.0, key.raw(), 0) } == OK)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // SAFETY: made by `named`, freed once; the server's own user stays.
        unsafe { api!(RedisModule_FreeModuleUser(self.0)) };
    }
}
