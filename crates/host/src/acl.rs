//! The users of the server's access control lists: who a client has logged in as, and what a user may do.

use std::ffi::c_int;

use valkey_module::raw;

use super::api;
use super::context::own_context;
use super::filter::{FilterCall, Words};
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

/// The first rule of any user that names a command beginning with `prefix`, in lower case, and whose it is; `None`
/// where there is none, or the server doesn't tell. Asks for the list of users: for rare moments.
pub fn rule_naming(server: &mut Server, prefix: &str) -> Option<(String, String)> {
    let reply = server.call(c"ACL", &[b"LIST"])?;
    reply.elements().iter().find_map(|line| find_rule(line.text()?, prefix))
}

/// The same in one line of `ACL LIST`: `user NAME RULE...`, some of the rules in parentheses.
fn find_rule(line: &str, prefix: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace().skip(1);
    let user = words.next()?;
    let names = |rule: &&str| {
        let name = rule.strip_prefix(['+', '-']).unwrap_or_default().to_ascii_lowercase();
        name.starts_with(prefix)
    };
    let rule = words.map(|word| word.trim_matches(['(', ')'])).find(names)?;
    Some((user.to_owned(), rule.to_owned()))
}

impl FilterCall {
    /// False where the server is going to refuse the command to its client's user. Where that can't be told, true.
    /// About a microsecond: for rare commands.
    pub fn may_run(&self) -> bool {
        let user = self.client_id().and_then(|id| self.user_name(id)).and_then(|name| User::named(&name));
        let words = || (0..self.count()).filter_map(|i| self.word(i)).map(Text::without_context).collect::<Vec<_>>();
        user.is_none_or(|user| user.may_run(&words()))
    }

    /// The name of the user that a client has logged in as, as [`user_name`].
    pub fn user_name(&self, client_id: u64) -> Option<Text> {
        user_name(&own_context(self)?, client_id)
    }
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

#[cfg(test)]
mod tests {
    use super::find_rule;

    #[test]
    fn a_rule_that_names_a_command_is_found() {
        let found = |line| find_rule(line, "tenure.").map(|(user, rule)| format!("{user} {rule}"));
        assert_eq!(found("user bob on ~* -@all +get +Tenure.Class|get").unwrap(), "bob +Tenure.Class|get");
        assert_eq!(found("user eve on ~tenure.* +@all (~k* -tenure.sleep)").unwrap(), "eve -tenure.sleep");
        assert_eq!(found("user default on nopass ~* &* +@all +@tenure"), None);
        assert_eq!(found(""), None);
    }
}
