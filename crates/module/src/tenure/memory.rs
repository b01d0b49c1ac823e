//! The server's memory limit, and what it lets be evicted: asked about once a second, and after each change. Settings
//! that INFO doesn't tell are asked for after a change alone, where the server tells of changes.

use std::ffi::CString;

use tenure_core::tiers::division::Division;

use super::Tenure;
use super::room;
use super::samples::ServerSamples;
use crate::ffi::server::{Section, Server};
use crate::ffi::{alloc, config};

/// The server's memory limit and what it lets be evicted.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// `maxmemory`, in bytes; 0 = no limit.
    pub limit_bytes: u64,
    /// `maxmemory-policy`.
    pub policy: String,
    /// `maxmemory-clients`: above it the server closes connections, before it evicts keys.
    pub(super) clients_limit: ClientsLimit,
    /// It lets only keys go that expire, and there were none.
    pub(super) nothing_expires: bool,
    /// `import-mode`: another server writes all its keys here, and none may go.
    pub(super) is_importing: bool,
    /// Keys that the server itself has evicted, as of the last look.
    pub evicted_by_server: u64,
    /// Commands that the server has counted.
    pub(super) n_commands: u64,
    pub(super) read_at_us: u64,
    pub(super) stale: bool,
    /// A setting of the server was set since they were asked for.
    pub(super) settings_are_stale: bool,
    /// `CONFIG RESETSTAT` was called, of which features haven't heard.
    pub(super) stats_were_reset: bool,
    /// How much of its minimum each tenant has: all is 1.
    pub(super) minimums_share: f64,
    /// `maxmemory-samples` of the server, while it follows.
    pub(super) samples: Option<ServerSamples>,
    /// Where there are two memory tiers, how the fast one is divided, and how much of it there is to divide, in bytes.
    pub fast_to_divide: Option<(Division, u64)>,
    pub(super) not_data: NotData,
}

/// Used memory that isn't data, by the server's own figures. They are right at once, also where sizes differ so much
/// that the walk knows their mean badly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NotData {
    /// In bytes; `None` where the server doesn't tell.
    pub(super) bytes: Option<u64>,
    /// What of a key the server counts as overhead, in bytes; 0 before it was asked.
    per_key_bytes: u64,
}

impl NotData {
    fn read(&mut self, server: &Server, of_memory: &Section, keys: u64) {
        if self.per_key_bytes == 0 {
            let version = server.info_field(c"server", c"valkey_version").unwrap_or_default();
            self.per_key_bytes = overhead_of_key(&version);
        }
        let number = |name| of_memory.number::<u64>(name);
        let uncounted_bytes = number(c"mem_not_counted_for_evict").unwrap_or(0);
        let own_bytes = alloc::allocated_bytes() as u64;
        self.bytes = number(c"used_memory").zip(number(c"used_memory_dataset")).map(|(used_bytes, dataset_bytes)| {
            let data_bytes = (dataset_bytes + keys * self.per_key_bytes).saturating_sub(own_bytes);
            used_bytes.saturating_sub(uncounted_bytes + data_bytes)
        });
    }
}

/// What `MEMORY USAGE` has of a key and `used_memory_dataset` has not, in bytes, by the version that a Valkey gives
/// itself: the value's header, and the entry in the table of keys, where that isn't the value itself.
fn overhead_of_key(valkey_version: &str) -> u64 {
    const HEADER: u64 = 16;
    // The server counts 24; the allocator gives 32, of which the rest is in the data set.
    const ENTRY: u64 = 16;
    let mut numbers = valkey_version.split('.').map_while(|part| part.parse::<u32>().ok());
    let has_entries = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (8, 1);
    if has_entries { HEADER + ENTRY } else { HEADER }
}

/// Some key expires, in one of the first `n` databases.
fn any_expires(server: &Server, n: u16) -> bool {
    let keyspace = server.section(c"keyspace");
    let expire = |text: &str| text.split(',').any(|field| field.starts_with("expires=") && field != "expires=0");
    (0..n).any(|db| {
        let name = CString::new(format!("db{db}")).expect("there is no zero in it");
        keyspace.field(&name).is_some_and(expire)
    })
}

impl Tenure {
    /// What the server counts against its limit, in bytes; 0 without a limit.
    pub fn used_bytes(&self, server: &mut Server) -> u64 {
        (server.used_memory_ratio() * self.memory.limit_bytes as f64) as u64
    }

    /// From half of the limit on, decisions depend on what is watched.
    pub(super) fn is_near_limit(&self, used_bytes: u64) -> bool {
        self.memory.limit_bytes > 0 && used_bytes >= self.memory.limit_bytes / 2
    }

    /// Asks for the limit and the policy.
    pub(super) fn read_memory(&mut self, server: &mut Server, now_us: u64) {
        self.memory.read_at_us = now_us;
        self.pressure.may_be_short |= self.memory.stale;
        self.memory.stale = false;
        let (n_commands, limit_bytes) = (self.memory.n_commands, self.memory.limit_bytes);
        let of_memory = server.section(c"memory");
        self.memory.limit_bytes = of_memory.number(c"maxmemory").unwrap_or(0);
        of_memory.field(c"maxmemory_policy").unwrap_or_default().clone_into(&mut self.memory.policy);
        let keys = self.all_keys();
        self.memory.not_data.read(server, &of_memory, keys);
        self.pressure.room.buffers_bytes =
            room::BUFFERS.into_iter().filter_map(|name| of_memory.number::<u64>(name)).sum();
        let stats = server.section(c"stats");
        self.memory.evicted_by_server = stats.number(c"evicted_keys").unwrap_or(0);
        self.memory.n_commands = stats.number(c"total_commands_processed").unwrap_or(0);
        self.memory.nothing_expires =
            self.memory.policy.starts_with("volatile") && !any_expires(server, self.databases.count);
        self.read_settings(server);
        if self.memory.limit_bytes != limit_bytes {
            // What is sized by the limit is fitted to it now, not in a tenth of a second: until then the server would
            // evict for it.
            self.times.ticked_at_us = 0;
        }
        // No event tells of CONFIG RESETSTAT, but it alone makes this smaller.
        if self.memory.n_commands < n_commands {
            self.forget_longest_times();
        }
    }

    /// Asks for the settings that INFO doesn't tell.
    fn read_settings(&mut self, server: &mut Server) {
        if config::changes_are_told() && !self.memory.settings_are_stale {
            return;
        }
        let Some(clients_limit) = server.setting("maxmemory-clients") else { return };
        self.memory.settings_are_stale = false;
        self.memory.clients_limit = ClientsLimit::of(&clients_limit);
        // Servers before Valkey 8.1 have none.
        self.memory.is_importing = server.setting("import-mode").is_some_and(|set| set == "yes");
    }

    /// True once after it: features have longest times too.
    pub fn take_stats_reset(&mut self) -> bool {
        std::mem::take(&mut self.memory.stats_were_reset)
    }

    /// `CONFIG RESETSTAT`: what was longest so far is measured anew; counters go on.
    fn forget_longest_times(&mut self) {
        self.evictor.work.slice_us_max = 0;
        self.memory.stats_were_reset = true;
    }
}

#[cfg(test)]
mod tests {
    use super::overhead_of_key;

    /// Redis tells no version of Valkey.
    #[test]
    fn what_a_key_takes_beside_its_value_goes_by_the_table_that_the_server_has() {
        let told = ["", "7.2.9", "8.0.1", "8.1.1", "9.1.2", "10.0.0-rc1"].map(overhead_of_key);
        assert_eq!(told, [32, 32, 32, 16, 16, 16]);
    }
}

/// `maxmemory-clients` as it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientsLimit {
    /// Bytes; 0 = no limit.
    Bytes(u64),
    /// A share of the server's limit.
    Percent(u64),
}

impl Default for ClientsLimit {
    fn default() -> Self {
        ClientsLimit::Bytes(0)
    }
}

impl ClientsLimit {
    fn of(set: &str) -> ClientsLimit {
        match set.strip_suffix('%') {
            Some(percent) => ClientsLimit::Percent(percent.parse().unwrap_or(0)),
            None => ClientsLimit::Bytes(set.parse().unwrap_or(0)),
        }
    }

    /// In bytes, under this limit of the server; 0 = no limit.
    pub(super) fn bytes(self, limit_bytes: u64) -> u64 {
        match self {
            ClientsLimit::Bytes(bytes) => bytes,
            ClientsLimit::Percent(percent) => limit_bytes / 100 * percent,
        }
    }
}
