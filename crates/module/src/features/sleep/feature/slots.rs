//! Slots of a cluster that come and go: what sleeps in one that leaves wakes first, and in one that comes nothing does.
//!
//! A value on disk is no longer to be believed once its key's slot was another node's. A slot comes to a primary in
//! three ways alone: by a command to this node, as a whole from another node (Valkey 9), and with its role. Before
//! each of them all sleepers in slots that aren't its own are given up, so nothing old can wake. What leaves is the
//! lesser trouble, a miss. Where slots move key by key the server refuses to restore a key into a slot that leaves, so
//! its sleepers wake before `SETSLOT … MIGRATING` runs. Where slots move as a whole they wake over the turns, and are
//! sent like any other write. Nothing falls asleep in a slot that is on its way.

use tenure_core::slots::slot_of;

use super::super::sleepers::Sleepers;
use super::Sleep;
use crate::feature::Turn;
use crate::ffi::filter::Words;
use crate::ffi::migration::{Migration, Stage};
use crate::ffi::server::Server;
use crate::observe::served::ServedSlots;
use crate::observe::slots::Slots;

/// Words behind `CLUSTER` after which slots may be another node's, or this one's.
const CHANGES: [&[u8]; 8] = [
    b"setslot",
    b"addslots",
    b"addslotsrange",
    b"delslots",
    b"delslotsrange",
    b"flushslots",
    b"reset",
    // Redis 8.4 moves slots so.
    b"migration",
];
/// So long nothing falls asleep in a slot that was told to leave, until the server says so by itself.
const TOLD_US: u64 = 10_000_000;
/// So often the server is asked whether the cluster is up, while it was.
const LOOK_US: u64 = 1_000_000;
/// And while it was not, beside each command that names a sleeping key.
const LOOK_DOWN_US: u64 = 100_000;

/// What a command is about to do with slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// This one begins to leave.
    Leaves(u16),
    /// Something else.
    Other,
}

/// What `call` is about to do with slots of a cluster; `None` where nothing.
pub(super) fn change_by(call: &impl Words) -> Option<Change> {
    let is = |i: usize, text: &[u8]| call.word(i).is_some_and(|word| word.eq_ignore_ascii_case(text));
    if !is(0, b"cluster") || !CHANGES.iter().any(|text| is(1, text)) {
        return None;
    }
    let slot = call.word(2).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    Some(slot.filter(|_| is(3, b"migrating")).map_or(Change::Other, Change::Leaves))
}

/// Slots of this node that may change hands. Nothing of it counts where the server is no node of a cluster.
#[derive(Default)]
pub struct MovingSlots {
    /// The server is a node of a cluster.
    pub(super) is_node: bool,
    /// The command that runs next changes something.
    pub(super) change: Option<Change>,
    /// What this node served when that was looked at last.
    seen: Option<Slots>,
    /// Slots that were told to leave, and until when that counts.
    told: Vec<(u16, u64)>,
    /// Slots that leave as a whole, by job.
    leaving: Vec<([u8; 40], Slots)>,
    is_up: bool,
    look_at_us: u64,
}

impl MovingSlots {
    /// For a server that is, or isn't, a node of a cluster.
    pub fn new(is_node: bool) -> MovingSlots {
        MovingSlots { is_node, ..MovingSlots::default() }
    }

    /// The server has another role: what was on its way here or away is not any more.
    pub(super) fn forget_moves(&mut self) {
        self.told.clear();
        self.leaving.clear();
    }

    /// True where a key may sleep: its slot is this node's, and on no way.
    pub fn let_sleep(&self, served: &ServedSlots, name: &[u8]) -> bool {
        if !self.is_node {
            return true;
        }
        let slot = slot_of(name);
        let is_own = served.own.as_ref().is_some_and(|own| own.has(slot)) && !served.arrivals.have(name);
        let leaves = || {
            served.leaving.has(slot)
                || self.told.iter().any(|(told, _)| *told == slot)
                || self.leaving.iter().any(|(_, slots)| slots.has(slot))
        };
        is_own && !leaves()
    }

    /// False while this node refuses commands that need its keys, and so would refuse to restore one; looked up where
    /// that is long ago.
    pub fn is_up(&mut self, server: &mut Server, now_us: u64) -> bool {
        if self.is_node && now_us >= self.look_at_us {
            self.look(server, now_us);
        }
        self.may_restore()
    }

    /// The same before a command runs: a node that was not up may be now.
    fn is_up_now(&mut self, server: &mut Server, now_us: u64) -> bool {
        if self.is_node && !self.is_up {
            self.look(server, now_us);
        }
        self.may_restore()
    }

    fn may_restore(&self) -> bool {
        !self.is_node || self.is_up
    }

    fn look(&mut self, server: &mut Server, now_us: u64) {
        let reply = server.call(c"CLUSTER", &[b"INFO"]);
        let text = reply.as_ref().and_then(|reply| reply.text());
        self.is_up = text.is_some_and(|text| text.lines().any(|line| line.trim_end() == "cluster_state:ok"));
        self.look_at_us = now_us + if self.is_up { LOOK_US } else { LOOK_DOWN_US };
    }
}

/// What this node serves at this moment, with slots on their way to it.
#[cfg(feature = "cluster")]
fn own_slots(server: &mut Server) -> Option<Slots> {
    let reply = server.call(c"CLUSTER", &[b"NODES"]);
    reply.as_ref().and_then(|reply| crate::features::cluster::view::View::parse(reply.text()?)).map(|view| view.slots)
}

/// Nothing sleeps on a node where nobody knows of slots.
#[cfg(not(feature = "cluster"))]
fn own_slots(_: &mut Server) -> Option<Slots> {
    None
}

/// Gives up what sleeps in slots that are not among these.
fn give_up_others(sleepers: &mut Sleepers, own: Option<&Slots>) -> usize {
    sleepers.give_up_slots(|slot| !own.is_some_and(|own| own.has(slot)))
}

impl Sleep {
    /// Ten times a second: what sleeps in slots that have gone is given up.
    pub(super) fn follow_slots(&mut self, turn: &mut Turn) {
        if !self.slots.is_node || !self.touches.is_on {
            return;
        }
        self.slots.told.retain(|(_, until_us)| turn.now_us < *until_us);
        self.slots.is_up(turn.server, turn.now_us);
        let own = &turn.tenure.observer.served.own;
        if own.is_some() && self.slots.seen != *own {
            self.slots.seen.clone_from(own);
            let given_up = give_up_others(&mut self.touches.sleepers, own.as_ref());
            self.past.given_up += given_up as u64;
        }
    }

    /// The command that is about to run may bring slots or take them away.
    pub(super) fn before_slots_change(&mut self, turn: &mut Turn, change: Change) {
        let own = own_slots(turn.server);
        self.past.given_up += give_up_others(&mut self.touches.sleepers, own.as_ref()) as u64;
        let Change::Leaves(slot) = change else { return };
        self.slots.told.retain(|(told, _)| *told != slot);
        self.slots.told.push((slot, turn.now_us + TOLD_US));
        let keys = self.touches.sleepers.of_slots(|of| of == slot);
        if !keys.is_empty() {
            self.with_spill(turn, |spill, context| spill.wake_leaving(context, &keys));
        }
    }

    /// Slots move as a whole.
    pub(super) fn on_migration(&mut self, migration: &Migration) {
        let slots = Slots::of_ranges(&migration.ranges);
        self.slots.leaving.retain(|(job, _)| *job != migration.job);
        match migration.stage {
            // What slept there was this node's once.
            Stage::Arriving | Stage::Left => {
                let given_up = self.touches.sleepers.give_up_slots(|slot| slots.has(slot));
                self.past.given_up += given_up as u64;
            }
            Stage::Leaving => {
                if let Some(spill) = &mut self.spill {
                    spill.wake_soon(self.touches.sleepers.of_slots(|slot| slots.has(slot)));
                }
                self.slots.leaving.push((migration.job, slots));
            }
            Stage::Arrived | Stage::Refused | Stage::Kept => {}
        }
    }

    /// False where the server is about to refuse whatever names keys, for the cluster is down: then none has to wake.
    pub(super) fn is_served(&mut self, turn: &mut Turn) -> bool {
        self.slots.is_up_now(turn.server, turn.now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line(Vec<&'static [u8]>);

    impl Words for Line {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn word(&self, i: usize) -> Option<&[u8]> {
            self.0.get(i).copied()
        }
    }

    fn change(line: &'static str) -> Option<Change> {
        change_by(&Line(line.split(' ').map(str::as_bytes).collect()))
    }

    #[test]
    fn commands_that_move_slots_are_told_from_others() {
        assert_eq!(change("CLUSTER SETSLOT 77 MIGRATING id"), Some(Change::Leaves(77)));
        assert_eq!(change("cluster setslot 77 migrating id"), Some(Change::Leaves(77)));
        assert_eq!(change("CLUSTER SETSLOT 77 NODE id"), Some(Change::Other));
        assert_eq!(change("CLUSTER SETSLOT x MIGRATING id"), Some(Change::Other));
        assert_eq!(change("CLUSTER ADDSLOTSRANGE 0 5"), Some(Change::Other));
        assert_eq!(change("CLUSTER GETKEYSINSLOT 77 10"), None);
        assert_eq!(change("CLUSTER"), None);
        assert_eq!(change("MGET SETSLOT 77 MIGRATING id"), None);
    }

    #[test]
    fn a_key_sleeps_only_in_a_slot_that_stays() {
        let mut served = ServedSlots::default();
        let mut slots = MovingSlots::default();
        // "foo" is in slot 12182.
        assert!(slots.let_sleep(&served, b"foo"), "no cluster");
        slots.is_node = true;
        assert!(!slots.let_sleep(&served, b"foo"), "not known yet");
        served.own = Some(Slots::of_ranges(&[(12_000, 12_200)]));
        assert!(slots.let_sleep(&served, b"foo") && !slots.let_sleep(&served, b"123456789"));
        slots.told.push((12_182, 1));
        assert!(!slots.let_sleep(&served, b"foo"), "told to leave");
        slots.told.clear();
        served.leaving = Slots::of_ranges(&[(12_182, 12_182)]);
        assert!(!slots.let_sleep(&served, b"foo"), "leaves key by key");
        served.leaving = Slots::default();
        slots.leaving.push(([0; 40], Slots::of_ranges(&[(12_100, 12_190)])));
        assert!(!slots.let_sleep(&served, b"foo"), "leaves as a whole");
        slots.leaving.clear();
        assert!(slots.let_sleep(&served, b"foo"));
    }
}
