//! `maxmemory-samples` of the server where the worker chooses one K for the whole cache: what the server itself evicts
//! goes by that too.
//!
//! It is set where K changes, and has its value back when the policy is another, or Tenure stops. Whoever sets it
//! meanwhile is right: it isn't put back then.

use super::Tenure;
use crate::ffi::server::{Level, Server};
use crate::rivals::Rival;

const NAME: &str = "maxmemory-samples";

/// The server's setting while it follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSamples {
    /// What it was before.
    before: String,
    /// What it was set to last.
    set: u32,
}

impl Tenure {
    /// Sets the server's sampling size, where another was chosen, and gives it back, where none is to be chosen. Two
    /// comparisons else.
    pub(super) fn follow_sample_size(&mut self, server: &mut Server) {
        let chooses = self.settings.policy.rival().is_some_and(Rival::chooses_sample_size);
        if !chooses || !self.settings.enabled {
            return self.give_back_samples(server);
        }
        let Some(k) = self.chosen_sample_size() else { return };
        if self.memory.samples.as_ref().is_some_and(|held| held.set == k) {
            return;
        }
        let before = self.memory.samples.take().map(|held| held.before);
        let Some(before) = before.or_else(|| server.setting(NAME)) else { return };
        if !server.set_setting(NAME, k.to_string().as_bytes()) {
            server.log(Level::Warning, &format!("the server refused {NAME} {k}; its own eviction goes on as set"));
        }
        self.memory.samples = Some(ServerSamples { before, set: k });
    }

    /// Puts back what the server's setting was.
    pub fn give_back_samples(&mut self, server: &mut Server) {
        if let Some(held) = self.memory.samples.take()
            && server.setting(NAME).is_some_and(|now| now == held.set.to_string())
        {
            server.set_setting(NAME, held.before.as_bytes());
        }
    }
}
