//! When values may sleep: whether the server and the settings allow it, and the folder that is opened or let go of.

use tenure_core::units::PartitionId;

use super::super::{Counts, SleepContext, SleepState, Spill};
use super::Sleep;
use crate::config::Settings;
use crate::feature::Turn;
use crate::ffi::server::{Level, Server};
use crate::ffi::{filter, soon};
use crate::tenure::Tenure;

/// What stands against sleep on this server with these settings.
///
/// # Errors
/// Why values can't sleep.
fn is_possible(settings: &Settings, server: &mut Server) -> Result<(), &'static str> {
    let flags = server.flags();
    if settings.spill_dir.is_empty() {
        Err("off: tenure.spill-dir is empty")
    } else if !filter::knows_clients() {
        Err("off: this server doesn't tell modules who sends a command; Valkey 7.2 and Redis 7.2 do")
    } else if flags.is_cluster() && !cfg!(feature = "cluster") {
        Err("off: this module was built without 'cluster', which knows the slots of this node")
    } else if flags.is_replica() {
        Err("off: this server is a replica")
    } else if flags.is_loading() {
        Err("off: the server is loading")
    } else {
        Ok(())
    }
}

impl Sleep {
    /// Works with the spill, where there is one, on what it needs of the rest.
    pub(super) fn with_spill<R>(
        &mut self,
        turn: &mut Turn,
        body: impl FnOnce(&mut Spill, &mut SleepContext) -> R,
    ) -> Option<R> {
        let spill = self.spill.as_mut()?;
        let Turn { server, now_us, tenure } = turn;
        let headroom_bytes = tenure.headroom_bytes();
        let (room_bytes, burst_bytes) = match tenure.memory.limit_bytes {
            0 => (i64::MAX, i64::MAX),
            limit => {
                let room_bytes = limit.saturating_sub(headroom_bytes) as i64 - tenure.used_bytes(server) as i64;
                (room_bytes, (headroom_bytes / 2).max(1) as i64)
            }
        };
        let volatile_only = tenure.memory.policy.starts_with("volatile");
        let (now_us, window) = (*now_us, tenure.published.window);
        let Tenure { observer, usage, databases, .. } = &mut **tenure;
        let db_sizes = &databases.sizes;
        let (touches, slots) = (&mut self.touches, &self.slots);
        let mut context = SleepContext {
            server,
            observer,
            touches,
            slots,
            usage,
            db_sizes,
            room_bytes,
            burst_bytes,
            volatile_only,
            now_us,
            window,
        };
        Some(body(spill, &mut context))
    }

    pub(super) fn take_settings(&mut self, turn: &mut Turn) {
        self.settings_version = turn.tenure.settings_version;
        let settings = turn.tenure.settings();
        if self.folder != settings.spill_dir {
            self.folder.clone_from(&settings.spill_dir);
            self.let_go();
        }
        // Whatever was set may be what was missing.
        self.failed = None;
        if let Some(spill) = &mut self.spill {
            spill.take_settings(settings, turn.now_us);
        }
    }

    /// Sleepers of partitions that are no more are those of the new ones, whose rhythms are to be learned.
    pub(super) fn follow_partitions(&mut self, tenure: &mut Tenure) {
        let (epoch, generations) = (tenure.observer.epoch(), tenure.observer.partitions.generations());
        let is_other = std::mem::replace(&mut self.epoch, epoch) != epoch;
        // What sleeps stays whose it was while tenants only come.
        if !is_other && generations.starts_with(&self.generations) {
            self.generations.extend_from_slice(&generations[self.generations.len()..]);
            return;
        }
        let stays = |(i, before): (usize, &u16)| !is_other && generations.get(i) == Some(before);
        let stay: Vec<bool> = self.generations.iter().enumerate().map(stays).collect();
        self.generations = generations.to_vec();
        if let Some(spill) = &mut self.spill {
            spill.divide_anew(&stay, &mut tenure.observer.partitions, &mut self.touches.sleepers);
        }
    }

    /// Opens the folder or lets go of it, as it should be; ten times a second.
    pub(super) fn open_or_let_go(&mut self, turn: &mut Turn) {
        let settings = turn.tenure.settings();
        self.status = match (is_possible(settings, turn.server), &self.failed) {
            (Ok(()), None) => "ready".into(),
            (Ok(()), Some(failed)) => failed.clone().into(),
            (Err(why), _) => why.into(),
        };
        if self.status != "ready" {
            return self.let_go();
        }
        if self.spill.is_some() {
            return;
        }
        match Spill::start(settings, turn.now_us) {
            Ok(spill) => {
                self.spill = Some(spill);
                self.touches.is_on = true;
                if self.slots.is_node {
                    self.touches.sleepers.know_slots();
                }
                self.take_warm(turn);
            }
            Err(why) => {
                turn.server.log(Level::Warning, &format!("values can't sleep: {why}"));
                let failed = format!("off: tenure.spill-dir can't be used: {why}; setting it anew tries again");
                self.status = failed.clone().into();
                self.failed = Some(failed);
            }
        }
    }

    /// Lets go of the folder: what sleeps is gone, as if evicted, which clients are told over the next turns.
    pub(super) fn let_go(&mut self) {
        if let Some(spill) = self.spill.take() {
            self.past += spill.counts;
            self.touches.sleepers.give_up_all();
            self.touches.sleepers.forget_segments();
        }
    }

    /// What was counted, by this folder and those before.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.past;
        counts += self.spill.as_ref().map(|spill| spill.counts).unwrap_or_default();
        counts
    }

    /// `TENURE.SLEEP` and `TENURE.WAKE`.
    ///
    /// # Errors
    /// What stands against it.
    pub(super) fn put_to_rest(&mut self, turn: &mut Turn, of: &[u8], asleep: bool) -> Result<(), String> {
        let partition = turn.tenure.observer.partitions.called(of)?;
        self.follow_partitions(turn.tenure);
        self.open_or_let_go(turn);
        if self.spill.is_none() {
            return Err(format!("sleep is {}", self.status));
        }
        if asleep && turn.tenure.memory.policy == "noeviction" {
            return Err("maxmemory-policy is noeviction: nothing may leave memory".to_owned());
        }
        // Keys may have come since the last tick.
        turn.tenure.count_keys(turn.server);
        self.with_spill(turn, |spill, context| match asleep {
            true => spill.sleep(context, partition),
            false => spill.wake(partition, context.window, context.now_us),
        });
        soon::call_soon(turn.server);
        Ok(())
    }

    /// What a partition is about, for people.
    pub(super) fn rest_of(&self, partition: PartitionId) -> &'static str {
        match self.spill.as_ref().map_or(SleepState::Awake, |spill| spill.rest(partition)) {
            SleepState::Awake => "awake",
            SleepState::FallingAsleep { .. } => "falling asleep",
            SleepState::Asleep => "asleep",
            SleepState::Waking => "waking",
        }
    }
}
