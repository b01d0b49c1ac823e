//! What turns bring: slices of falling asleep and waking, reuses, what has ended, and a warm restart.

use std::time::{Duration, Instant};

use super::super::touches::Touches;
use super::super::{Spill, ends, now_ms};
use super::Sleep;
use crate::feature::Turn;
use crate::ffi::server::{Level, Server};
use crate::ffi::soon;

/// What falling asleep and waking may take of one turn, and telling whose value has ended.
const TURN_BUDGET: Duration = Duration::from_micros(200);
/// So many are told between two looks at the clock.
const TOLD_PER_LOOK: usize = 16;

impl Sleep {
    /// How long ago sampled keys were used before tells whether a class is periodic.
    pub(super) fn note_reuses(&mut self, turn: &mut Turn) {
        if let (Some(sampled), Some(spill)) = (&mut turn.tenure.observer.sampler.kept, &mut self.spill) {
            sampled.drain(..).for_each(|(partition, key)| spill.sampled(partition, key, turn.now_us));
        }
    }

    /// A slice of falling asleep and waking, while the server takes what wakes. Where there is more to do, an idle
    /// event loop is asked for more.
    pub(super) fn sleep_some(&mut self, turn: &mut Turn) {
        if self.tell_some(turn.server) {
            soon::call_soon(turn.server);
        }
        // While writes are paused no key may come or go: what the disk has done waits.
        if !self.spill.as_ref().is_some_and(Spill::is_busy) || turn.server.writes_are_paused() {
            return;
        }
        if !self.slots.is_up(turn.server, turn.now_us) {
            return;
        }
        // What wakes fills memory faster than the ticks that look how full it is.
        turn.tenure.expect_shortage();
        let worked = self.with_spill(turn, |spill, context| spill.work(context, TURN_BUDGET) && spill.is_busy());
        if worked == Some(true) {
            soon::call_soon(turn.server);
        }
    }

    /// What wakes is to have what it had: its memory is made room for by others.
    pub(super) fn hold_what_wakes(&self, turn: &mut Turn) {
        let window = turn.tenure.published.window;
        let held_bytes = self.spill.as_ref().map_or(Vec::new(), |spill| spill.held_bytes(window, turn.now_us));
        turn.tenure.observer.partitions.held_bytes = held_bytes;
    }

    /// Tells clients of some sleepers whose value has ended. True where there is more to tell.
    pub(super) fn tell_some(&mut self, server: &mut Server) -> bool {
        let touches = &mut self.touches;
        if touches.is_on && !touches.sleepers.any() && self.spill.is_none() && touches.owed.is_empty() {
            *touches = Touches::default();
        }
        let now_ms = if touches.sleepers.any() { now_ms() } else { return false };
        if !touches.sleepers.have_ended(now_ms) || server.writes_are_paused() {
            return false;
        }
        let started = Instant::now();
        let is_over = |told: usize| told.is_multiple_of(TOLD_PER_LOOK) && started.elapsed() >= TURN_BUDGET;
        let mut told = 0;
        while let Some(sleeper) = touches.sleepers.take_ended(now_ms) {
            ends::tell(server, &sleeper);
            told += 1;
            if is_over(told) {
                break;
            }
        }
        touches.sleepers.have_ended(now_ms)
    }

    /// Values of the last orderly stop, where this is the server's start: later, clients may have changed anything.
    pub(super) fn take_warm(&mut self, turn: &mut Turn) {
        let wanted = std::mem::take(&mut self.is_server_start) && turn.tenure.settings().warm_restart;
        let text = match self.with_spill(turn, |spill, context| spill.take_warm(context, wanted)) {
            Some(Ok(warm)) if warm.keys > 0 => {
                format!("warm restart: {} values of the last stop, {} bytes", warm.keys, warm.bytes)
            }
            Some(Err(why)) => format!("no warm restart: {why}"),
            _ => return,
        };
        turn.server.log(Level::Notice, &text);
    }

    /// An orderly stop: what it leaves on disk is the file of a warm restart, or nothing.
    pub(super) fn stop(&mut self, turn: &mut Turn) {
        if turn.tenure.settings().warm_restart && self.spill.is_some() {
            self.follow_partitions(turn.tenure);
            self.write_warm(turn);
        }
        self.spill = None;
    }

    pub(super) fn write_warm(&mut self, turn: &mut Turn) {
        turn.tenure.count_keys(turn.server);
        let text = match self.with_spill(turn, |spill, context| spill.write_warm(context)) {
            Some(Ok(warm)) => format!("warm restart: {} values written, {} bytes", warm.keys, warm.bytes),
            Some(Err(why)) => format!("no warm restart: values can't be written: {why}"),
            None => return,
        };
        turn.server.log(Level::Notice, &text);
    }
}
