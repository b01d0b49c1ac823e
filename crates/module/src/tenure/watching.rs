//! How much of the commands is watched: what features want, what eviction needs, and what there is time for.

use tenure_core::access_ring::REQUESTS_PER_TICK;
use tenure_core::units::PartitionId;

use super::status::{EvictionStatus, status_by_state};
use super::{TICK_US, Tenure};
use crate::config::Policy;
use crate::feature::Wants;
use crate::ffi::clock::{now_us, thread_cpu_us};
use crate::ffi::events::{self, Needed};
use crate::ffi::filtering::{self, Sees};
use crate::ffi::server::Server;
use crate::ffi::{soon, turns, wake};
use crate::observe::duty::{Duty, Slices, Watched};

/// Near the limit a turn ends once what is written may have taken this part of the room that is left.
const ROOM_PART: u64 = 4;
/// Each turn is heard of for so long after the server has evicted a key itself.
const EACH_TURN_US: u64 = 2_000_000;

/// Where no key has to go within so long at the present pace, in µs …
const SOON_US: f64 = 10e6;
/// … watching takes this part of its share of a busy main thread's time: what is seen then decides nothing yet.
const EASED: f64 = 0.25;

/// An event loop that hasn't been idle for so long isn't waited for; a busy one not for as long.
const IDLE_WAIT_US: u64 = 5_000;
const BUSY_WAIT_US: u64 = 1_000;

/// What is watched of commands.
pub struct Watching {
    /// How much of a fast stream.
    pub(super) duty: Duty,
    /// Which turns, while there is no time to watch all.
    pub slices: Slices,
    /// What features want to hear.
    pub(super) wanted: Wants,
    /// Features hear every command, as far as they want to; and how often they began not to.
    are_all_heard: bool,
    gaps: u64,
    /// Until then each turn is heard of, since the server had to evict.
    pub(super) each_turn_until_us: u64,
    /// Those that keys wait for which are to go.
    idle_turns: IdleTurns,
    /// Until then timers of the module's are likely while commands go unseen, too.
    timers_until_us: u64,
}

/// Keys that are to go wait for a turn that brings no commands: replies needn't wait for them then.
#[derive(Clone, Copy, Debug, Default)]
struct IdleTurns {
    /// Until then each turn is heard of, to tell idle ones.
    heard_until_us: u64,
    /// Until then a busy event loop isn't waited for: it was in vain.
    vain_until_us: u64,
}

impl Watching {
    /// Everything is watched, from `now_us` on.
    pub(super) fn new(now_us: u64) -> Watching {
        Watching {
            duty: Duty::new(now_us),
            slices: Slices::default(),
            wanted: Wants::NOTHING,
            are_all_heard: true,
            gaps: 0,
            each_turn_until_us: 0,
            idle_turns: IdleTurns::default(),
            timers_until_us: 0,
        }
    }
}

impl IdleTurns {
    /// Whether keys that are to go since `since_us` wait for an idle turn, or still do. What waited for one in vain
    /// goes all at once, with replies waiting, and to hear each turn takes time. So where the main thread `is_busy` it
    /// is tried once a tick.
    fn are_waited_for(&mut self, now_us: u64, since_us: u64, is_busy: bool) -> bool {
        if is_busy && now_us < self.vain_until_us {
            return false;
        }
        let waits = now_us <= since_us + if is_busy { BUSY_WAIT_US } else { IDLE_WAIT_US };
        if waits {
            self.heard_until_us = now_us + EACH_TURN_US;
        } else if is_busy {
            *self = IdleTurns { heard_until_us: 0, vain_until_us: now_us + TICK_US };
        }
        waits
    }

    /// True where each turn is to be heard of.
    fn are_heard(&self, now_us: u64) -> bool {
        now_us < self.heard_until_us
    }
}

impl Tenure {
    /// True where any feature wants anything of this.
    pub fn features_want(&self, wants: Wants) -> bool {
        self.watching.wanted.has(wants)
    }

    /// How often commands began to go by unheard. Who follows what a client sends knows by it that some is missing.
    pub fn gaps(&self) -> u64 {
        self.watching.gaps
    }

    /// Features want other things to be heard than before.
    pub fn heed(&mut self, server: &mut Server, wants: Wants, now_us: u64) {
        let follows = |wants: Wants| wants.has_all(Wants::COMMANDS | Wants::READS);
        let before = std::mem::replace(&mut self.watching.wanted, wants);
        // Who needs each command from now on can't wait for the next tick.
        self.allow_slices();
        let sampled = self.observer.sampler.kept.take();
        self.observer.sampler.kept = wants.has(Wants::SAMPLES).then(|| sampled.unwrap_or_default());
        let wanted = match self.observer.coverage.watched() {
            Watched::Writes | Watched::Writers | Watched::Nothing if !wants.has(Wants::OBSERVED) => self.unwatched(),
            _ => Watched::All,
        };
        self.watch(server, wanted, now_us);
        if follows(wants) && !follows(before) && !self.observer.follow_clients() {
            self.watching.gaps += 1;
        }
        if wants != Wants::NOTHING {
            turns::hear(server, true);
        }
        // Who notes commands by connection forgets them with it; who works in slices may have work left at a stop.
        if wants.has(Wants::HEARS_COMMANDS) {
            events::need(server, Needed::Connections);
        }
        if wants.has(Wants::SLICES) {
            events::need(server, Needed::Stop);
        }
    }

    /// The server has evicted a key itself: memory may have filled since the last tick, and for a while each turn is
    /// looked at.
    pub(super) fn server_has_evicted(&mut self, server: &mut Server) {
        if self.pressure.status != EvictionStatus::Ready {
            return;
        }
        self.expect_shortage();
        if !turns::are_heard() {
            self.watching.each_turn_until_us = now_us() + EACH_TURN_US;
            turns::hear(server, true);
        }
    }

    /// True where keys that are to go since `since_us` wait until the event loop is idle. Whether it is, only who hears
    /// each turn can tell. That takes a timer, which is held only where somebody who unloads a module is seen to come.
    pub(super) fn waits_for_idle_turn(
        &mut self,
        server: &mut Server,
        (now_us, since_us): (u64, u64),
        used_bytes: u64,
    ) -> bool {
        let is_busy = self.is_busy();
        if !filtering::sees_unloads() {
            return false;
        }
        if !self.watching.idle_turns.are_waited_for(now_us, since_us, is_busy) {
            if is_busy && turns::are_heard() {
                self.choose_turns(server, now_us, used_bytes);
            }
            return false;
        }
        self.expect_timers();
        if turns::are_heard() {
            soon::call_soon(server);
        } else {
            turns::hear(server, true);
        }
        true
    }

    /// Asks for the end of this turn, which a key has made larger while commands go unseen.
    pub(super) fn ask_unseen(&mut self, server: &Server) {
        self.expect_timers();
        turns::ask(server);
    }

    /// The server unloads no module that holds a timer: who unloads one is to be seen in pauses, too.
    fn expect_timers(&mut self) {
        self.watching.timers_until_us = self.times.ticked_at_us + EACH_TURN_US;
    }

    /// To be told of each turn takes more of the server than a turn of few commands does. So it is told of all only
    /// where features need them, while keys go, or where the server had to evict of late.
    fn choose_turns(&mut self, server: &mut Server, now_us: u64, used_bytes: u64) {
        let Watching { each_turn_until_us, idle_turns, wanted, .. } = self.watching;
        let are_needed = wanted != Wants::NOTHING || now_us < each_turn_until_us || idle_turns.are_heard(now_us);
        turns::hear(server, are_needed);
        let bytes_max = self.pressure.may_be_short.then(|| self.bytes_until_turn_ends(used_bytes));
        self.observer.turns.expect(are_needed, bytes_max);
    }

    /// How much may be written until a turn has to end: a part of the room that is left, or less where a tenant has no
    /// room of its own.
    pub(super) fn bytes_until_turn_ends(&self, used_bytes: u64) -> u64 {
        let room_bytes = self.memory.limit_bytes.saturating_sub(used_bytes);
        room_bytes.min(self.pressure.near_maximum.rest_bytes) / ROOM_PART
    }

    /// What is to be seen of commands from now on. The filter stays for features too.
    fn watch(&mut self, server: &mut Server, wanted: Watched, now_us: u64) {
        let sees = if wanted != Watched::Nothing || self.watching.wanted.has(Wants::COMMANDS) {
            Sees::Commands
        } else if self.times.ticked_at_us < self.watching.timers_until_us {
            Sees::Unloads
        } else {
            Sees::Nothing
        };
        let are_all_heard = wanted == Watched::All || self.watching.wanted.has_all(Wants::COMMANDS | Wants::READS);
        self.watching.gaps += u64::from(self.watching.are_all_heard && !are_all_heard);
        self.watching.are_all_heard = are_all_heard;
        if filtering::watch(server, sees) {
            self.observer.watch(wanted, self.watching.slices.are_on(), now_us);
        }
    }

    /// Where nothing can be short of memory soon, turns don't look, and a fast stream is watched in part.
    pub(super) fn watch_or_pause(&mut self, server: &mut Server, now_us: u64) {
        let partitions = &self.observer.partitions;
        self.pressure.has_maximum = partitions.tenants().have_maximum();
        self.pressure.near_maximum = partitions.near_maximum(self.usage.bytes());
        let used_bytes = self.used_bytes(server);
        self.look_at_room(now_us, used_bytes);
        self.pressure.may_be_short = self.pressure.has_maximum || self.is_near_limit(used_bytes);
        let is_clock_wanted = self.watching.wanted.has(Wants::WRITES_OBSERVED)
            || (self.pressure.may_be_short && self.settings.policy == Policy::Density);
        let accesses = &mut self.observer.partitions.keys.accesses;
        accesses.turn(is_clock_wanted);
        accesses.pace(now_us);
        self.pressure.status = match self.status_by_plan(now_us) {
            EvictionStatus::Ready => status_by_state(server),
            other => other,
        };
        let enough_per_second = self.settings.watched_per_second as u64;
        let may_pause = !self.pressure.may_be_short && !self.watching.wanted.has(Wants::OBSERVED);
        let unwatched = self.unwatched();
        let wanted = self.watching.duty.decide(
            now_us,
            self.observer.requests(),
            may_pause.then_some(unwatched),
            enough_per_second,
        );
        self.allow_slices();
        if !self.watching.slices.is_pausing() {
            self.watch(server, wanted, now_us);
        }
        self.choose_turns(server, now_us, used_bytes);
    }

    /// What is watched in a pause all the same.
    fn unwatched(&self) -> Watched {
        match self.watching.wanted {
            wanted if wanted.has(Wants::WRITES_OBSERVED) => Watched::Writes,
            wanted if wanted.has(Wants::WRITERS) => Watched::Writers,
            _ => Watched::Nothing,
        }
    }

    /// Slices are cut where the main thread is busy and nobody needs each command.
    fn allow_slices(&mut self) {
        let may_slice = self.is_busy() && self.may_slice();
        self.watching.slices.allow(may_slice, self.watching_share());
    }

    /// True where the main thread has no time for all that is worth some.
    pub(super) fn is_busy(&self) -> bool {
        100.0 * self.pressure.load.share() >= self.settings.watch_busy_percent as f64
    }

    /// What watching may take of a busy main thread's time, 0 to 1.
    fn watching_share(&self) -> f64 {
        share_of_time(self.settings.watch_percent, self.any_go_soon())
    }

    /// True where keys of the partition go, or will soon: its tenant is near its maximum, or memory is short at the
    /// pace of the last second.
    pub(super) fn keys_go_soon(&self, partition: PartitionId) -> bool {
        self.pressure.near_maximum.partitions.holds(partition) || self.pressure.room.is_short_within(SOON_US)
    }

    /// The same of anybody's keys.
    fn any_go_soon(&self) -> bool {
        !self.pressure.near_maximum.partitions.is_none() || self.pressure.room.is_short_within(SOON_US)
    }

    /// True where keys may go without a search: there is no time for one. A burst shows by slices that run out of time
    /// before the main thread's share of it does.
    pub(super) fn is_thrifty(&self) -> bool {
        let has_no_time = self.is_busy() || self.pressure.load.runs_out();
        self.settings.policy == Policy::Density && has_no_time
    }

    /// True where only keys that expire may go.
    pub(super) fn volatile_only(&self) -> bool {
        self.memory.policy.starts_with("volatile")
    }

    /// Where keys go by rank, misses and new keys that the server tells of and the ages that it keeps will do for a
    /// while; where others need each command, they won't.
    fn may_slice(&self) -> bool {
        let others_need = Wants::OBSERVED | Wants::WRITES_OBSERVED;
        self.pressure.may_be_short
            && self.settings.policy == Policy::Density
            && self.pressure.status == EvictionStatus::Ready
            && !self.watching.wanted.has(others_need)
    }

    /// A turn has ended, or a pause: while the main thread is busy, whether the next turn is watched.
    pub fn end_slice(&mut self, server: &mut Server, now_us: u64) {
        let seen = self.observer.partitions.keys.accesses.now() * REQUESTS_PER_TICK;
        if let Some(is_watched) = self.watching.slices.turn(now_us, seen, thread_cpu_us) {
            self.watch(server, if is_watched { Watched::All } else { self.unwatched() }, now_us);
        }
        // Within a pause few turns are heard of, or none.
        if self.watching.slices.is_pausing() && !turns::are_heard() {
            wake::after(server, self.watching.slices.pause_left_us(now_us));
        }
    }
}

/// The share, 0 to 1, that `percent` allows, where a key goes soon or none does. All is all.
fn share_of_time(percent: i64, goes_soon: bool) -> f64 {
    let share = percent as f64 / 100.0;
    if goes_soon || share >= 1.0 { share } else { EASED * share }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times are ms since keys are to go.
    #[test]
    fn a_busy_event_loop_is_waited_for_less_and_not_again_at_once_after_a_wait_in_vain() {
        let waits = |turns: &mut IdleTurns, at_ms: u64, since_ms: u64, is_busy| {
            turns.are_waited_for(at_ms * 1_000, since_ms * 1_000, is_busy)
        };
        let mut idle = IdleTurns::default();
        assert_eq!([1, 5, 6, 7].map(|at| waits(&mut idle, at, 0, false)), [true, true, false, false]);
        assert!(waits(&mut idle, 8, 8, false), "what comes next waits again");
        let mut busy = IdleTurns::default();
        assert_eq!([1, 2].map(|at| waits(&mut busy, at, 0, true)), [true, false]);
        assert_eq!([3, 101, 102].map(|at| waits(&mut busy, at, at, true)), [false, false, true]);
        assert!(busy.are_heard(2_000_000) && !busy.are_heard(3_000_000));
        assert!(!waits(&mut busy, 104, 102, true) && !busy.are_heard(104_000), "in vain again");
    }

    #[test]
    fn a_quarter_is_watched_where_no_key_goes_soon_unless_all_is_to_be() {
        assert_eq!([(4, true), (4, false)].map(|(percent, soon)| share_of_time(percent, soon)), [0.04, 0.01]);
        assert_eq!([true, false].map(|soon| share_of_time(100, soon)), [1.0, 1.0]);
    }
}
