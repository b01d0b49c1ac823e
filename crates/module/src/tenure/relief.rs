//! Memory is freed: how much has to go, when, and the orders that the evictor gets.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::policy::density::{Basis, Ranks};

use super::status::{EvictionStatus, status_by_state};
use super::{TICK_US, Tenure};
use crate::config::Policy;
use crate::enforce::UNBOUNDED;
use crate::enforce::evict::Relief;
use crate::enforce::orders::{Orders, Scoring, Thrifty};
use crate::enforce::slice::{EVICTED_MIN, VICTIMS_AT_ONCE};
use crate::enforce::walk::{Guides, SizesOf};
use crate::feature::When;
use crate::ffi::server::Server;
use crate::rivals::Rival;
use crate::worker::Published;

/// What an idle slice may take: a request that comes meanwhile waits so long at the most.
const IDLE_BUDGET_US: i64 = 100;
/// A slice may free more than it has to, up to this part of the headroom.
const MORE_OF_HEADROOM: u64 = 8;
/// Between two slices of a walk that meets keys, but none that may go.
const WALK_REST_US: u64 = 10_000;

/// What is to be freed at one moment.
struct Need<'a> {
    /// Bytes in all.
    free_bytes: u64,
    /// By partition, as planned; empty without a plan.
    target_bytes: &'a [u64],
    /// What partitions may hold, where any is above its maximum.
    bytes_max: Option<&'a [u64]>,
    /// The next turn may not find the room that it needs.
    is_urgent: bool,
}

impl Tenure {
    /// Frees what the next turn may need.
    pub fn relieve_if_short(&mut self, server: &mut Server, now_us: u64) {
        if self.pressure.may_be_short {
            self.relieve(server, now_us, When::BeforeReplies);
        }
    }

    /// Frees memory: where the next turn may need it, at once, and else when the event loop is idle, so that no reply
    /// waits for it. What is left to free has the next turn end the sooner.
    pub fn relieve(&mut self, server: &mut Server, now_us: u64, when: When) {
        let used_bytes = self.used_bytes(server);
        self.relieve_from(server, now_us, when, used_bytes);
        let used_bytes = self.pressure.growth.last_used_bytes().unwrap_or(used_bytes);
        self.observer.turns.fit(self.bytes_until_turn_ends(used_bytes));
    }

    fn relieve_from(&mut self, server: &mut Server, now_us: u64, when: When, used_bytes: u64) {
        let limit_bytes = self.memory.limit_bytes;
        if when == When::BeforeReplies {
            self.pressure.growth.turn(used_bytes);
        }
        // Most turns end here: the rest is asked only where something may have to go.
        self.pressure.has_room = !self.pressure.has_maximum && used_bytes + self.headroom_bytes() <= limit_bytes;
        if self.pressure.has_room {
            self.pressure.short_since_us = None;
            return;
        }
        let status = self.status_by_plan(now_us);
        let planned = status == EvictionStatus::Ready;
        if !planned {
            self.pressure.status = status;
        }
        // A maximum holds without a plan too, and without a limit.
        let may_hold_maximums = self.memory.policy != "noeviction"
            && matches!(
                status,
                EvictionStatus::NoPlan | EvictionStatus::StalePlan | EvictionStatus::NoLimit | EvictionStatus::ByServer
            );
        if !planned && !may_hold_maximums {
            return;
        }
        let free_bytes = if planned { self.bytes_to_free(server, used_bytes) } else { 0 };
        let published = Arc::clone(&self.published);
        let plan = published.plan.as_ref().filter(|_| planned && self.settings.policy.has_targets());
        let target_bytes = plan.map_or(&[][..], |plan| &plan.target_bytes);
        let held = self.held_targets(target_bytes);
        let target_bytes = held.as_deref().unwrap_or(target_bytes);
        let partitions = &self.observer.partitions;
        let sizes = self.observer.known_sizes();
        let few_bytes = |id| VICTIMS_AT_ONCE as u64 * u64::from(sizes.mean_bytes(id));
        let maximums = partitions.maximums(self.usage.bytes(), target_bytes, few_bytes);
        if free_bytes == 0 && maximums.is_none() {
            self.pressure.short_since_us = None;
            return;
        }
        let state = status_by_state(server);
        if planned || state != EvictionStatus::Ready {
            self.pressure.status = state;
        }
        if state != EvictionStatus::Ready {
            return;
        }
        let is_urgent = used_bytes + self.next_turn_bytes() > limit_bytes;
        if !is_urgent && maximums.is_none() && server.flags().has_child() {
            // Each key that goes has the kernel copy pages that a child shares.
            return;
        }
        let short_since_us = *self.pressure.short_since_us.get_or_insert(now_us);
        let rests = now_us < self.pressure.rests_until_us;
        if when == When::BeforeReplies && !is_urgent {
            if rests {
                return;
            }
            // Where slices run out of time none is idle for long enough.
            if !self.pressure.load.runs_out() && self.waits_for_idle_turn(server, (now_us, short_since_us), used_bytes)
            {
                return;
            }
        }
        let need = Need { free_bytes, target_bytes, bytes_max: maximums.as_deref(), is_urgent };
        self.evict_some(server, now_us, when, &published, &need);
    }

    /// A slice of eviction. By itself, so that a profile shows what it takes: `scripts/instructions` counts it.
    #[inline(never)]
    fn evict_some(&mut self, server: &mut Server, now_us: u64, when: When, published: &Published, need: &Need) {
        let budget_us = match when {
            When::BeforeReplies => self.settings.turn_budget_us,
            When::Idle => self.settings.turn_budget_us.min(IDLE_BUDGET_US),
        };
        self.need_key_counts(server);
        let sample_sizes = if self.sample_sizes().is_empty() { &[][..] } else { &published.sample_sizes };
        let bytes_max = need.bytes_max.unwrap_or(&UNBOUNDED[..self.observer.partitions.len()]);
        let (sample_size, basis) = (self.sample_size(when) as usize, self.ranking_basis());
        let (limit_bytes, runs_out) = (self.memory.limit_bytes, self.pressure.load.runs_out());
        let thrifty = self.is_thrifty().then_some(Thrifty { limit_bytes, runs_out });
        let volatile_only = self.volatile_only();
        let (rival, more_bytes) = (self.settings.policy.rival(), self.headroom_bytes() / MORE_OF_HEADROOM);
        let (partitions, sizes, costs) = self.observer.guides();
        partitions.keys.settle();
        let orders = Orders {
            free_bytes: need.free_bytes,
            more_bytes,
            target_bytes: need.target_bytes,
            bytes_max,
            sample_size,
            sample_sizes,
            keeps_to_samples: rival.is_some_and(Rival::keeps_to_samples),
            scoring: match self.settings.policy {
                Policy::Density => Scoring::Ranked(Ranks::new(basis, &published.learned.table, costs)),
                _ => rival.and_then(Rival::scorer).map_or(Scoring::Idle, Scoring::Scored),
            },
            penalty_us: &costs.penalty_us,
            volatile_only,
            thrifty,
            db_sizes: &self.databases.sizes,
            budget: Duration::from_micros(budget_us as u64),
            evicted_min: match when {
                // Who is above its maximum grows into others' memory.
                When::BeforeReplies if need.is_urgent || need.bytes_max.is_some() => EVICTED_MIN,
                _ => 0,
            },
            now_us,
        };
        let by_size = self.settings.policy == Policy::Density || rival.is_some_and(Rival::goes_by_size);
        // A question takes as long as to look at five keys.
        let sizes_of = match (by_size, thrifty) {
            (false, _) => SizesOf::Account,
            (true, None) => SizesOf::All,
            (true, Some(_)) => SizesOf::Known,
        };
        let mut guides = Guides { partitions, sizes, usage: &mut self.usage, sizes_of };
        let visited = self.walk.visited;
        let (evictor, walk) = (&mut self.evictor, &mut self.walk);
        let Relief { evicted, ran_out } =
            server.telling_of_unlinks(|server, unlinks| evictor.relieve(server, unlinks, walk, &mut guides, &orders));
        self.evictor.work.late_accesses += self.evictor.late.len() as u64;
        self.observer.pass_on_late(&mut self.evictor.late);
        if when == When::BeforeReplies {
            self.pressure.load.slice_ended(ran_out);
        }
        self.pressure.short_since_us = None;
        self.memory.nothing_expires &= evicted == 0;
        if evicted == 0 {
            // Nothing may go now, or none of those that may was met yet: asking again at once would keep the event
            // loop from sleeping.
            self.pressure.rests_until_us = now_us + if self.walk.visited > visited { WALK_REST_US } else { TICK_US };
        }
        let used_bytes = self.used_bytes(server);
        self.pressure.growth.look(used_bytes);
    }

    /// How many bytes of keys have to go. Where clients have a limit of their own, keys make no room for their buffers
    /// while memory isn't above its limit, nor for those that the server is about to close. That costs a call.
    fn bytes_to_free(&self, server: &mut Server, used_bytes: u64) -> u64 {
        let limit_bytes = self.memory.limit_bytes;
        let keys_limit_bytes = limit_bytes - self.headroom_bytes();
        let clients_limit_bytes = self.memory.clients_limit.bytes(limit_bytes);
        let clients_bytes = match clients_limit_bytes {
            0 => None,
            _ => server.info_field(c"memory", c"mem_clients_normal").and_then(|bytes| bytes.parse::<u64>().ok()),
        };
        let Some(clients_bytes) = clients_bytes else { return used_bytes.saturating_sub(keys_limit_bytes) };
        let to_be_closed = clients_bytes.saturating_sub(clients_limit_bytes);
        let above_limit = used_bytes.saturating_sub(to_be_closed).saturating_sub(limit_bytes);
        above_limit.max(used_bytes.saturating_sub(clients_bytes).saturating_sub(keys_limit_bytes))
    }

    /// What the ranks of keys go by at this moment, under Tenure's own policy.
    pub(super) fn ranking_basis(&self) -> Basis {
        Basis {
            ranking: self.ranking(),
            clock: self.observer.partitions.keys.accesses.clock(),
            idle_is_time: !self.memory.policy.ends_with("-lfu"),
            sees_part: self.watching.slices.are_on(),
        }
    }
}
