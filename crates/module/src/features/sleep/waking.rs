//! Waking: of a partition whose peak begins, the last to fall asleep first; of a command that is about to touch
//! sleepers, those; and values that clients wait for alone.

use std::time::{Duration, Instant};

use tenure_core::units::{KeyHash, PartitionId};

use super::disk::Blocked;
use super::file::{Place, Record};
use super::{SleepContext, SleepState, Spill, UNDER_WAY_MAX, ends, may_change_keys, now_ms};

/// Keys that one command may wake while the server waits for the disk; more are forgotten.
const WAKE_NOW_MAX: usize = 256;
/// More of a slot that is about to leave may, for so long.
const LEAVING_MAX: Duration = Duration::from_millis(20);

impl Spill {
    /// Asks the disk for the hottest sleepers of a partition that wakes.
    pub(super) fn wake_some(&mut self, context: &mut SleepContext, partition: PartitionId, is_over: impl Fn() -> bool) {
        while self.disk.under_way() + self.arrived.len() < UNDER_WAY_MAX && !is_over() {
            let sleepers = &mut context.touches.sleepers;
            let Some(key) = sleepers.next_to_wake(partition) else {
                if self.disk.under_way() == 0 && self.arrived.is_empty() {
                    // Here the time begins in which plans have to see that it is used.
                    self.wake(partition, context.window, context.now_us);
                    self.rhythms.of(partition).rest = SleepState::Awake;
                }
                return;
            };
            let Some(place) = sleepers.get(key).map(|sleeper| sleeper.place) else { continue };
            if !self.disk.read(key, place) {
                return sleepers.list_again(key);
            }
        }
    }

    /// A record was read: its key wakes, if that is still the one that sleeps. True where it is awake now.
    pub fn wake_with(&mut self, context: &mut SleepContext, key: KeyHash, place: Place, bytes: Option<&[u8]>) -> bool {
        let SleepContext { server, observer, touches, usage, .. } = context;
        let is_that = touches.sleepers.get(key).is_some_and(|sleeper| sleeper.place == place);
        let Some(sleeper) = touches.sleepers.remove_if(key, is_that && may_change_keys(server)) else { return false };
        let record = bytes.and_then(Record::decode).filter(|r| r.db == sleeper.db && *r.name == *sleeper.name);
        self.counts.damaged += u64::from(record.is_none());
        let lives = record.filter(|_| !sleeper.is_over(now_ms()));
        let is_awake = lives.is_some_and(|record| ends::restore(server, &record, &mut touches.owed));
        if !is_awake {
            ends::tell(server, &sleeper);
            return false;
        }
        observer.partitions.created(sleeper.db, &sleeper.name, sleeper.owner);
        let partition = observer.partitions.of(sleeper.db, &sleeper.name);
        usage.came(sleeper.db, partition, observer.known_sizes());
        self.counts.woken += 1;
        true
    }

    /// A client has waited for this record. Meanwhile its key may have woken with others and fallen asleep again. Then
    /// it is read where it lies now, while the server waits for the disk.
    pub fn wake_waited_for(&mut self, context: &mut SleepContext, key: KeyHash, place: Place, bytes: Option<&[u8]>) {
        let is_awake = self.wake_with(context, key, place, bytes);
        if !is_awake && context.touches.sleepers.get(key).is_some_and(|sleeper| sleeper.place != place) {
            self.wake_now(context, &[key]);
        }
    }

    /// The value of a key that a client waited for didn't come in time: it is given up, so that nobody waits for it
    /// again.
    pub fn give_up_waiting(&mut self, context: &mut SleepContext, key: KeyHash) {
        if let Some(sleeper) = context.touches.sleepers.remove(key) {
            self.counts.damaged += 1;
            ends::tell(context.server, &sleeper);
        }
    }

    /// Wakes keys that a command is about to touch, while the server waits for the disk. What can't wake now is given
    /// up: the command may change or delete it, and run again without being seen.
    pub fn wake_now(&mut self, context: &mut SleepContext, keys: &[KeyHash]) {
        for (i, key) in keys.iter().enumerate() {
            let Some(sleeper) = context.touches.sleepers.get(*key) else { continue };
            let partition = sleeper.partition;
            self.touched(partition);
            self.wake_or_give_up(context, *key, i < WAKE_NOW_MAX);
        }
    }

    /// Wakes keys whose slot is about to leave, while the server waits for the disk, as far as there is time; the
    /// others are given up, for after that the server restores none of them.
    pub fn wake_leaving(&mut self, context: &mut SleepContext, keys: &[KeyHash]) {
        let started = Instant::now();
        for (i, key) in keys.iter().enumerate() {
            self.wake_or_give_up(context, *key, i < WAKE_NOW_MAX || started.elapsed() < LEAVING_MAX);
        }
    }

    fn wake_or_give_up(&mut self, context: &mut SleepContext, key: KeyHash, may_wait: bool) {
        if let Some(place) = context.touches.sleepers.get(key).map(|sleeper| sleeper.place).filter(|_| may_wait) {
            let bytes = self.disk.read_now(place);
            self.wake_with(context, key, place, bytes.as_deref());
        }
        if let Some(sleeper) = context.touches.sleepers.remove(key) {
            self.counts.given_up += 1;
            ends::tell(context.server, &sleeper);
        }
    }

    /// Keys whose slots leave as a whole are to wake over the next turns, though memory be short.
    pub fn wake_soon(&mut self, keys: Vec<KeyHash>) {
        self.leaving.extend(keys);
    }

    /// Asks the disk for some of them.
    pub(super) fn wake_what_leaves(&mut self, context: &SleepContext, is_over: impl Fn() -> bool) {
        while self.disk.under_way() + self.arrived.len() < UNDER_WAY_MAX && !is_over() {
            let Some(key) = self.leaving.pop() else { return };
            let Some(place) = context.touches.sleepers.get(key).map(|sleeper| sleeper.place) else { continue };
            if !self.disk.read(key, place) {
                return self.leaving.push(key);
            }
            self.read_to_leave.insert(key.0);
        }
    }

    /// Reads a sleeping key's value for a client that waits for it; the client back where that can't be.
    ///
    /// # Errors
    /// The client, where too many wait.
    pub fn read_for(&mut self, client: Blocked, partition: PartitionId, place: Place) -> Result<(), Blocked> {
        self.disk.read_for(client, place)?;
        self.touched(partition);
        Ok(())
    }

    /// For tests: the thread that reads for clients panics at its next job.
    pub fn panic_at_next_read(&self) {
        self.disk.panic_at_next_read();
    }

    pub(super) fn touched(&mut self, partition: PartitionId) {
        self.counts.touched += 1;
        self.rhythms.of(partition).touched += 1;
    }
}
