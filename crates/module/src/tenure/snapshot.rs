//! What the main thread leaves for the worker.

use tenure_core::key_table::KeyTable;
use tenure_core::policy::density::SCALES;

use super::Tenure;
use crate::ffi::server::Server;
use crate::observe::duty::Watched;
use crate::worker::{Instructions, MemoryNow, Snapshot, TenantTerms};

impl Tenure {
    /// What the worker needs to know, ten times a second.
    pub(super) fn leave_snapshot(&mut self, server: &mut Server) {
        let limit_bytes = self.memory.limit_bytes;
        let items: u64 = self.usage.bytes().iter().sum();
        let used_bytes = self.used_bytes(server);
        let headroom_bytes = self.headroom_bytes();
        let room_bytes = limit_bytes.saturating_sub(headroom_bytes) as i64 - used_bytes as i64;
        let capacity_bytes = if limit_bytes == 0 { 0 } else { (items as i64 + room_bytes).max(1) as u64 };
        let partitions = &self.observer.partitions;
        let is_a_share = self.settings.key_table_bytes == 0;
        let key_table = partitions.keys.table.as_ref().filter(|_| is_a_share);
        let key_table_bytes = key_table.map_or(0, KeyTable::memory_bytes);
        let not_data_bytes = self.memory.not_data.bytes.filter(|_| limit_bytes > 0);
        let data_bytes_max =
            not_data_bytes.map_or(capacity_bytes, |bytes| limit_bytes.saturating_sub(headroom_bytes + bytes).max(1));
        self.worker.shared.leave(Snapshot {
            epoch: self.observer.epoch(),
            counters: self.observer.counters.to_vec(),
            tenant_of: partitions.of_what().iter().map(|(tenant, _)| *tenant).collect(),
            generations: partitions.generations().to_vec(),
            tenants: TenantTerms {
                bytes_min: partitions.tenants().guaranteed().to_vec(),
                bytes_max: partitions.tenants().bytes_max().to_vec(),
                weights: partitions.tenants().weights().to_vec(),
            },
            memory: MemoryNow {
                limit_bytes,
                capacity_bytes,
                data_bytes_max,
                key_table_bytes,
                models_bytes: self.published.effort.models_bytes,
                headroom_bytes: SCALES.map(|scale| self.headroom_bytes_under((scale * limit_bytes as f64) as u64)),
            },
            keys: self.usage.keys()[..partitions.len()].iter().map(|&keys| keys as u64).collect(),
            evictions: self.evictor.so_far(self.memory.evicted_by_server),
            fast: self.memory.fast_to_divide,
            is_watching: self.observer.coverage.watched() == Watched::All || self.watching.slices.is_pausing(),
            are_accesses_noted: partitions.keys.accesses.is_on(),
            is_replica: server.flags().is_replica(),
            instructions: self.instructions(used_bytes),
        });
    }

    /// The worker's settings; while memory is far from its limit little depends on the curves, and watching costs a
    /// quarter.
    fn instructions(&self, used_bytes: u64) -> Instructions {
        let instructions = self.settings.instructions();
        let share = if self.is_near_limit(used_bytes) { 1 } else { 4 };
        Instructions { samples_per_second: instructions.samples_per_second / share, ..instructions }
    }
}
