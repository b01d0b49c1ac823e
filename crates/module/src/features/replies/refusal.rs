//! Writes that are refused while replicas can't follow: by the server itself, whose own `min-replicas-to-write` asks
//! for more replicas than there can be, for as long as one command takes.

use crate::ffi::server::Server;

/// More replicas than there can be: with so many wanted the server refuses every write.
const NEVER_ENOUGH: &[u8] = b"2147483647";

/// Whether the server refuses writes for Tenure, and its own settings as they were.
#[derive(Debug, Default)]
pub struct Refusal {
    before: Option<Before>,
}

#[derive(Debug)]
struct Before {
    replicas_to_write: String,
    max_lag: String,
}

impl Refusal {
    /// The server refuses writes from now on.
    pub fn begin(&mut self, server: &mut Server) {
        if self.before.is_some() {
            return;
        }
        let mut setting = |name| server.setting(name);
        let (Some(replicas_to_write), Some(max_lag)) =
            (setting("min-replicas-to-write"), setting("min-replicas-max-lag"))
        else {
            return;
        };
        // With a lag of 0 the server doesn't look at all.
        let lag = if max_lag == "0" { "10" } else { &max_lag };
        server.set_setting("min-replicas-to-write", NEVER_ENOUGH);
        server.set_setting("min-replicas-max-lag", lag.as_bytes());
        self.before = Some(Before { replicas_to_write, max_lag });
    }

    /// Its settings are as they were.
    pub fn end(&mut self, server: &mut Server) {
        if let Some(before) = self.before.take() {
            server.set_setting("min-replicas-to-write", before.replicas_to_write.as_bytes());
            server.set_setting("min-replicas-max-lag", before.max_lag.as_bytes());
        }
    }
}
