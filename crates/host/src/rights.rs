//! Who may change what the module does.

use valkey_module::raw;

use super::acl;
use super::module::Module;
use super::server::{Server, Text};

/// True where the client whose command is running may change what the module does. The server has seen to it where it
/// has categories; else whoever may `CONFIG SET` its settings may.
pub(super) fn may_change<M: Module>(server: &Server) -> bool {
    // SAFETY: the API table is written once, at load.
    if unsafe { raw::RedisModule_SetCommandACLCategories }.is_some() {
        return true;
    }
    // Nobody has sent what another module or the primary runs.
    let Some(name) = acl::user_name(server, server.client_id()) else { return true };
    let words = [b"config".as_slice(), b"set", M::ENABLED.to_bytes(), b"yes"].map(Text::without_context);
    acl::User::named(&name).is_some_and(|user| user.may_run(&words))
}
