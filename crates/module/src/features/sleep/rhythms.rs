//! How each partition's accesses come and go, and what it is about by that: awake, falling asleep, asleep or waking.

use tenure_core::decide::diurnal::{Diurnal, DiurnalConfig, Pattern, ReuseTimes};
use tenure_core::units::{KeyHash, PartitionId};

/// So many reads of sleeping keys in an interval wake their partition.
const READS_TO_WAKE: u64 = 100;
/// A partition that has woken keeps what it had before at least until so many plans were made, and so long: plans
/// have to see that it is used again.
const WINDOWS_HELD: u64 = 3;
const HELD_US: u64 = 20_000_000;
/// What fell asleep least recently used goes first: in a first round what was idle for an interval, then for a
/// quarter, then all.
pub const ROUNDS: [u64; 3] = [4, 1, 0];
/// History in runs: with ten minutes each, two days of minutes and two hours. Less remembers shorter rhythms better.
pub const HISTORY_RUNS: usize = 300;
/// Sampled keys whose last access is remembered, to tell how long reuses are.
const REUSE_SLOTS: usize = 1 << 14;

/// What a partition is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SleepState {
    /// Nothing of it sleeps, or what little does may.
    #[default]
    Awake,
    /// Its values are on their way to the disk; which round of [`ROUNDS`], and the first sweep through the keys that
    /// counts for it.
    FallingAsleep { round: usize, sweep: u64 },
    /// What could fall asleep has.
    Asleep,
    /// Its values are on their way back.
    Waking,
}

/// One partition's rhythm.
pub struct Rhythm {
    /// What it is about.
    pub rest: SleepState,
    diurnal: Diurnal,
    reuses: ReuseTimes,
    /// Accesses counted when the interval began, and how many came in the one before.
    requests_before: u64,
    accesses_before: u64,
    /// Sleeping keys touched in this interval.
    pub touched: u64,
    /// What it held when it began to fall asleep, in bytes, and from which window and time on that no longer counts.
    held_bytes: u64,
    held_until: u64,
    held_until_us: u64,
}

impl Rhythm {
    fn new(config: DiurnalConfig) -> Self {
        Rhythm {
            rest: SleepState::Awake,
            diurnal: Diurnal::new(config),
            reuses: ReuseTimes::default(),
            requests_before: 0,
            accesses_before: 0,
            touched: 0,
            held_bytes: 0,
            held_until: 0,
            held_until_us: 0,
        }
    }

    /// True while it keeps what it had.
    fn is_held(&self, window: u64, now_us: u64) -> bool {
        self.rest == SleepState::Waking || window < self.held_until || now_us < self.held_until_us
    }

    /// True where what sleeps is read so often that all of it is to wake.
    pub fn is_to_wake(&self) -> bool {
        self.rest == SleepState::Asleep && self.touched >= READS_TO_WAKE
    }

    /// An interval ends, with so many requests counted since the beginning: its rhythm, where it has one. They were
    /// counted in the `watched` part of the interval, 0 to 1, and what came in the rest is taken to be alike. Where
    /// nothing was watched the interval is taken to be as the one before.
    pub fn end_interval(&mut self, requests: u64, watched: f64) -> Option<Pattern> {
        let seen = requests.saturating_sub(std::mem::replace(&mut self.requests_before, requests));
        let accesses = if watched > 0.0 { (seen as f64 / watched) as u64 } else { self.accesses_before };
        self.accesses_before = accesses;
        self.diurnal.record(accesses.min(u64::from(u32::MAX)) as u32, &std::mem::take(&mut self.reuses));
        self.touched = 0;
        self.diurnal.pattern()
    }
}

/// All partitions' rhythms, and the intervals that they are counted in.
pub struct Rhythms {
    all: Vec<Rhythm>,
    config: DiurnalConfig,
    interval_us: u64,
    interval_began_us: u64,
    /// How long all commands had been watched by then, in µs.
    watched_us_before: u64,
    /// By key's hash: a fingerprint, and the second of the last access.
    last_seen: Vec<(u32, u32)>,
}

impl Rhythms {
    /// None yet, and no intervals.
    pub fn new() -> Rhythms {
        Rhythms {
            all: Vec::new(),
            config: DiurnalConfig::default(),
            interval_us: 0,
            interval_began_us: 0,
            watched_us_before: 0,
            last_seen: vec![(0, 0); REUSE_SLOTS],
        }
    }

    /// Intervals are so long from now on; where that is another length, or runs are, what was known is forgotten.
    pub fn keep_time(&mut self, config: DiurnalConfig, interval_us: u64, now_us: u64) {
        if (config, interval_us) != (self.config, self.interval_us) {
            (self.config, self.interval_us) = (config, interval_us);
            self.interval_began_us = now_us;
            self.all.iter_mut().for_each(|rhythm| rhythm.diurnal = Diurnal::new(config));
        }
    }

    /// How long an interval is, in µs.
    pub fn interval_us(&self) -> u64 {
        self.interval_us
    }

    /// Where an interval has ended, for what part of its length commands were watched since the one before ended, 0 to
    /// 1; the next begins. After other settings that may be more than 1, and more was counted then, too. `watched_us`
    /// is how long all commands have been watched so far.
    pub fn end_interval(&mut self, now_us: u64, watched_us: u64) -> Option<f64> {
        let passed_us = now_us.saturating_sub(self.interval_began_us);
        if passed_us < self.interval_us {
            return None;
        }
        self.interval_began_us = now_us;
        let watched_us = watched_us.saturating_sub(std::mem::replace(&mut self.watched_us_before, watched_us));
        Some(watched_us as f64 / passed_us.max(1) as f64)
    }

    /// Partitions are others but for those that `stay`.
    pub fn keep(&mut self, stay: &[bool]) {
        for (i, rhythm) in self.all.iter_mut().enumerate() {
            if !stay.get(i).copied().unwrap_or(false) {
                *rhythm = Rhythm::new(self.config);
            }
        }
    }

    /// How many partitions have one.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// One partition's.
    pub fn of(&mut self, partition: PartitionId) -> &mut Rhythm {
        while self.all.len() <= partition.index() {
            self.all.push(Rhythm::new(self.config));
        }
        &mut self.all[partition.index()]
    }

    /// What a partition is about.
    pub fn rest(&self, partition: PartitionId) -> SleepState {
        self.all.get(partition.index()).map_or(SleepState::Awake, |rhythm| rhythm.rest)
    }

    /// A partition that holds so many bytes is to fall asleep, from that sweep on.
    pub fn fall_asleep(&mut self, partition: PartitionId, held_bytes: u64, sweep: u64) {
        let rhythm = self.of(partition);
        rhythm.held_bytes = held_bytes.max(if rhythm.rest == SleepState::Asleep { rhythm.held_bytes } else { 0 });
        rhythm.rest = SleepState::FallingAsleep { round: 0, sweep };
        rhythm.touched = 0;
    }

    /// A partition is to wake, in that window.
    pub fn wake(&mut self, partition: PartitionId, window: u64, now_us: u64) {
        let rhythm = self.of(partition);
        rhythm.rest = SleepState::Waking;
        (rhythm.held_until, rhythm.held_until_us) = (window + WINDOWS_HELD, now_us + HELD_US);
    }

    /// There is no room: what wakes goes on sleeping.
    pub fn stop_waking(&mut self) {
        let waking = self.all.iter_mut().filter(|rhythm| rhythm.rest == SleepState::Waking);
        waking.for_each(|rhythm| rhythm.rest = SleepState::Asleep);
    }

    /// A sweep has met all keys, and that is the next: partitions enter their next round. True where nothing falls
    /// asleep any more.
    pub fn end_round(&mut self, next: u64) -> bool {
        let mut none_falls = true;
        for rhythm in &mut self.all {
            if let SleepState::FallingAsleep { round, sweep } = rhythm.rest {
                rhythm.rest = match round + 1 {
                    _ if sweep >= next => rhythm.rest,
                    round if round < ROUNDS.len() => SleepState::FallingAsleep { round, sweep: next },
                    _ => SleepState::Asleep,
                };
                none_falls &= rhythm.rest == SleepState::Asleep;
            }
        }
        none_falls
    }

    /// True where any partition falls asleep.
    pub fn any_falls(&self) -> bool {
        self.all.iter().any(|rhythm| matches!(rhythm.rest, SleepState::FallingAsleep { .. }))
    }

    /// True where any falls asleep or wakes.
    pub fn any_moves(&self) -> bool {
        self.any_falls() || self.all.iter().any(|rhythm| rhythm.rest == SleepState::Waking)
    }

    /// What partitions that wake had before they fell asleep, in bytes by partition; empty where none wakes.
    pub fn held_bytes(&self, window: u64, now_us: u64) -> Vec<u64> {
        if !self.all.iter().any(|rhythm| rhythm.is_held(window, now_us)) {
            return Vec::new();
        }
        let held = |rhythm: &Rhythm| if rhythm.is_held(window, now_us) { rhythm.held_bytes } else { 0 };
        self.all.iter().map(held).collect()
    }

    /// True where a partition has a right to more than the bytes it has, though memory is short.
    pub fn is_held_below(&self, partition: PartitionId, used_bytes: u64, window: u64, now_us: u64) -> bool {
        let rhythm = self.all.get(partition.index());
        rhythm.is_some_and(|rhythm| rhythm.is_held(window, now_us) && used_bytes < rhythm.held_bytes)
    }

    /// A sampled key was accessed: how long after its last time counts for its partition.
    pub fn sampled(&mut self, partition: PartitionId, key: KeyHash, now_us: u64) {
        let seconds = (now_us / 1_000_000) as u32;
        let slot = &mut self.last_seen[key.0 as usize % REUSE_SLOTS];
        let fingerprint = (key.0 >> 32) as u32 | 1;
        let (held, last) = std::mem::replace(slot, (fingerprint, seconds));
        let interval_seconds = (self.interval_us / 1_000_000).max(1) as u32;
        let intervals = (held == fingerprint).then(|| seconds.saturating_sub(last) / interval_seconds);
        self.of(partition).reuses.add(intervals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    #[test]
    fn an_interval_ends_with_the_part_of_it_that_was_watched() {
        let mut rhythms = Rhythms::new();
        rhythms.keep_time(DiurnalConfig::default(), 60 * SECOND_US, 5 * SECOND_US);
        assert_eq!(rhythms.end_interval(64 * SECOND_US, 64 * SECOND_US), None);
        // 65 s were watched since the start, and all that was counted in them is of this interval.
        assert_eq!(rhythms.end_interval(65 * SECOND_US, 65 * SECOND_US), Some(65.0 / 60.0));
        assert_eq!(rhythms.end_interval(125 * SECOND_US, 80 * SECOND_US), Some(0.25));
        assert_eq!(rhythms.end_interval(185 * SECOND_US, 80 * SECOND_US), Some(0.0));
    }

    #[test]
    fn what_went_unseen_counts_as_what_was_seen() {
        let mut rhythm = Rhythm::new(DiurnalConfig::default());
        let mut accesses_of = |requests, watched| {
            rhythm.end_interval(requests, watched);
            rhythm.accesses_before
        };
        assert_eq!(accesses_of(1_000, 1.0), 1_000);
        assert_eq!(accesses_of(1_500, 0.25), 2_000);
        assert_eq!(accesses_of(1_500, 0.0), 2_000, "as before where nothing was watched");
        assert_eq!(accesses_of(1_500, 0.5), 0, "none came while some was watched");
    }
}
