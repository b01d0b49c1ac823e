//! What is remembered of keys that have no place in the table of keys, in a compact entry: about how often and how
//! fast they were accessed, about when last, and about what a miss of them costs. Five bytes each.
//!
//! A cache of small values holds more keys than its table has entries. Most of what is accessed again after long was
//! accessed before. So a rough history of all keys is worth more than a full one of half as many
//! (docs/decisions/05-key-table.md). Each bucket of the table has a line of twelve, one cache line, which is near for
//! the key that leaves the table, too. A key is known by 12 bits beyond the bucket's number: of keys that aren't there
//! one in 340 is taken for another. A full line gives up who was accessed once and has left the cache, then the longest
//! idle for the requests it had. Times are epochs of which the last 1024 can be told apart. A sweep, a few lines at a
//! time, removes what is older and has left; what is in the cache stays, as of the oldest. Cost: one cache line, for a
//! key that enters the table and the one that leaves it for that.

use crate::departure::Departure;
use crate::policy::density::History;

/// Compact entries in a line.
pub const WAYS: usize = 12;
const EPOCH_BITS: u32 = 10;
const EPOCHS: u32 = 1 << EPOCH_BITS;
const HISTORY_BITS: u32 = 10;
const TAG_SHIFT: u32 = EPOCH_BITS + HISTORY_BITS;
/// Older ones are removed, of keys in the cache counted as just younger.
const IDLE_EPOCHS_MAX: u32 = EPOCHS / 8 * 7;
/// The sweep comes round in so many epochs: fewer than are left before the eldest would look young.
const EPOCHS_PER_ROUND: u32 = EPOCHS / 16;
/// Lines that one call may sweep: the rest is due with the next.
const SWEPT_MAX: usize = 32;
/// log2 of how much longer than it was a key that has left counts as idle, beside those in the cache: a key in the
/// cache of which nothing is known can't be ranked (docs/decisions/05-key-table.md).
const LEFT_SHIFT: u32 = 4;
/// How old a key is at least, in that order, that was accessed once and has left: older than all others.
const ONCE_AND_LEFT: u32 = 1 << 30;
/// So many epochs pass while each place is accessed once.
const EPOCHS_PER_FILL: u64 = 32;

/// What is known of a key in a compact entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactEntry {
    /// What it has shown.
    pub history: History,
    /// When it was last accessed, in ticks, rounded down to an epoch.
    pub last: u32,
    /// log2 of its penalty in µs, in eighths; 0 = none was measured.
    pub penalty: u8,
    /// How it left the cache, without the time.
    pub departure: Departure,
}

/// Where a key is: its bucket in the table, and 24 bits of its hash beyond that.
pub type Place = (usize, u32);

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line {
    /// From the top: 12 bits of the hash, never 0 in use; ten of history; the epoch.
    words: [u32; WAYS],
    penalties: [u8; WAYS],
    /// How each left the cache, two bits each; above them, whether the line has ever forgotten a key.
    departures: u32,
}

/// The line has forgotten a key.
const FORGETFUL: u32 = 1 << 31;

impl Line {
    /// Which is of that tag. All are compared at once: a branch for each would be guessed wrong more often than not.
    #[inline]
    fn position(&self, tag: u32) -> Option<usize> {
        let same = (0..WAYS).fold(0, |same, at| same | u32::from(self.words[at] >> TAG_SHIFT == tag) << at);
        (same != 0).then(|| same.trailing_zeros() as usize % WAYS)
    }

    fn departure(&self, at: usize) -> Departure {
        Departure::from_two_bits((self.departures >> (2 * at)) as u8)
    }

    /// True where it is known that the key has left the cache.
    fn has_left(&self, at: usize) -> bool {
        self.departure(at) != Departure::default()
    }

    fn set_departure(&mut self, at: usize, departure: Departure) {
        self.departures = self.departures & !(3 << (2 * at)) | u32::from(departure.to_two_bits()) << (2 * at);
    }

    /// Who was accessed once and has left; else the longest idle for the requests it had, of keys that have left
    /// [`LEFT_SHIFT`] sooner. What is free goes before all.
    fn oldest(&self, epoch: u32) -> usize {
        let old = |at: usize| match self.words[at] {
            0 => u32::MAX,
            word => {
                let (has_left, octave) = (u32::from(self.has_left(at)), history(word).octave());
                let first = if octave == 0 { has_left * ONCE_AND_LEFT } else { 0 };
                first | (16 + 16 * idle(word, epoch)) << (has_left * LEFT_SHIFT) >> octave
            }
        };
        (0..WAYS).max_by_key(|&at| old(at)).unwrap_or(0)
    }
}

fn history(word: u32) -> History {
    History::from_ten_bits((word >> EPOCH_BITS) as u16)
}

/// Epochs since it was accessed.
fn idle(word: u32, epoch: u32) -> u32 {
    epoch.wrapping_sub(word) % EPOCHS
}

/// The same, as of a key accessed at that epoch.
fn dated(word: u32, epoch: u32) -> u32 {
    word / EPOCHS * EPOCHS + epoch % EPOCHS
}

/// 12 bits of the 24.
fn tag((_, bits): Place) -> u32 {
    (bits >> 12).max(1)
}

/// The compact entries. See the file's opening.
#[derive(Debug)]
pub struct CompactEntries {
    /// One for each bucket.
    lines: Vec<Line>,
    /// log2 of the ticks in an epoch.
    epoch_shift: u32,
    /// The epoch when it was last looked at how much is to be swept, the lines that still are, and the next of them.
    swept_epoch: u32,
    due: usize,
    next: usize,
    used: usize,
    forgotten: u64,
}

impl CompactEntries {
    /// None yet, for a table of `n_buckets` with `n_places` in them, whose ticks are of so many requests.
    pub fn new(n_buckets: usize, n_places: usize, requests_per_tick: u64) -> Self {
        let places = (n_places + n_buckets * WAYS) as u64;
        let epoch_ticks = (places / EPOCHS_PER_FILL / requests_per_tick.max(1)).max(1);
        let lines = vec![Line::default(); n_buckets];
        CompactEntries {
            lines,
            epoch_shift: epoch_ticks.ilog2(),
            swept_epoch: 0,
            due: 0,
            next: 0,
            used: 0,
            forgotten: 0,
        }
    }

    fn compact_entry(&self, line: usize, at: usize, epoch: u32) -> CompactEntry {
        let (word, penalty) = (self.lines[line].words[at], self.lines[line].penalties[at]);
        let last = epoch.wrapping_sub(idle(word, epoch)) << self.epoch_shift;
        CompactEntry { history: history(word), last, penalty, departure: self.lines[line].departure(at) }
    }

    /// Reads one word of the cache line that a bucket's compact entries are in, so that it is near when they are
    /// accessed.
    #[inline]
    pub fn warm(&self, bucket: usize) -> u32 {
        self.lines[bucket].words[0]
    }

    /// What is known of a key at `now`.
    #[inline]
    pub fn get(&self, place: Place, now: u32) -> Option<CompactEntry> {
        let at = self.lines[place.0].position(tag(place))?;
        Some(self.compact_entry(place.0, at, now >> self.epoch_shift))
    }

    /// Ticks in an epoch.
    pub fn epoch_ticks(&self) -> u32 {
        1 << self.epoch_shift
    }

    /// The key at `place` has left the cache; false where nothing is known of it here.
    pub fn leave(&mut self, place: Place, departure: Departure) -> bool {
        let line = &mut self.lines[place.0];
        let at = line.position(tag(place));
        at.inspect(|&at| line.set_departure(at, departure)).is_some()
    }

    /// How the key at `place` left the cache, if anything is known of it here.
    pub fn departure(&self, place: Place) -> Option<Departure> {
        let line = &self.lines[place.0];
        line.position(tag(place)).map(|at| line.departure(at))
    }

    /// True where keys of that bucket have been forgotten.
    pub fn has_forgotten(&self, bucket: usize) -> bool {
        self.lines[bucket].departures & FORGETFUL != 0
    }

    /// The key at `place` is in the table from now on and here no more: what was known of it at `now`. Another of the
    /// same bucket has had to leave the table for it, or none.
    pub fn exchange(&mut self, place: Place, gone: Option<(u32, CompactEntry)>, now: u32) -> Option<CompactEntry> {
        let epoch = now >> self.epoch_shift;
        let at = self.lines[place.0].position(tag(place));
        let known = at.map(|at| self.compact_entry(place.0, at, epoch));
        if let Some(at) = at {
            self.lines[place.0].words[at] = 0;
            self.used -= 1;
        }
        if let Some((bits, compact_entry)) = gone {
            self.sweep(epoch);
            self.put((place.0, bits), compact_entry, at, epoch);
        }
        known
    }

    /// A key is in the table no more. Where a place in its line is known to be `free`, it has that.
    fn put(&mut self, place: Place, known: CompactEntry, free: Option<usize>, epoch: u32) {
        // One that was dated by a later access than this is not idle at all.
        let idle_epochs = epoch.wrapping_sub(known.last >> self.epoch_shift).cast_signed().max(0).cast_unsigned();
        let has_left = known.departure != Departure::default();
        let is_nothing = known.history == History::default() && !has_left;
        if is_nothing || has_left && idle_epochs >= IDLE_EPOCHS_MAX {
            self.forgotten += 1;
            self.lines[place.0].departures |= FORGETFUL;
            return;
        }
        let line = &mut self.lines[place.0];
        let at = line.position(tag(place)).or(free).unwrap_or_else(|| line.oldest(epoch));
        match line.words[at] {
            0 => self.used += 1,
            _ => {
                self.forgotten += 1;
                line.departures |= FORGETFUL;
            }
        }
        let idle_epochs = idle_epochs.min(IDLE_EPOCHS_MAX - 1);
        let seed = known.last ^ place.1;
        let shown = u32::from(known.history.to_ten_bits(seed));
        line.words[at] = tag(place) << TAG_SHIFT | shown << EPOCH_BITS | (epoch.wrapping_sub(idle_epochs) % EPOCHS);
        line.penalties[at] = known.penalty;
        line.set_departure(at, known.departure);
    }

    /// Removes what is too old and has left, a few lines a call: as many in all as are due for the epochs that have
    /// passed. A key in the cache stays, as of the oldest: without its history it would rank as one that was accessed
    /// once.
    fn sweep(&mut self, epoch: u32) {
        if epoch != self.swept_epoch {
            let passed = epoch.wrapping_sub(self.swept_epoch).min(EPOCHS_PER_ROUND) as usize;
            let more = (self.lines.len() * passed).div_ceil(EPOCHS_PER_ROUND as usize);
            self.due = (self.due + more).min(self.lines.len());
            self.swept_epoch = epoch;
        }
        let now = self.due.min(SWEPT_MAX);
        self.due -= now;
        for _ in 0..now {
            let line = &mut self.lines[self.next];
            for at in 0..WAYS {
                let word = line.words[at];
                if word == 0 || idle(word, epoch) < IDLE_EPOCHS_MAX {
                    continue;
                }
                if !line.has_left(at) {
                    line.words[at] = dated(word, epoch.wrapping_sub(IDLE_EPOCHS_MAX - 1));
                    continue;
                }
                line.words[at] = 0;
                self.used -= 1;
                self.forgotten += 1;
                line.departures |= FORGETFUL;
            }
            self.next = (self.next + 1) % self.lines.len();
        }
    }

    /// Adds the line of a bucket to `out`, with ages at `now` in the place of times: 64 bytes.
    pub(crate) fn write_line(&self, bucket: usize, now: u32, out: &mut Vec<u8>) {
        let (line, epoch) = (&self.lines[bucket], now >> self.epoch_shift);
        for &word in &line.words {
            let aged = if word == 0 { 0 } else { dated(word, idle(word, epoch).min(IDLE_EPOCHS_MAX - 1)) };
            out.extend_from_slice(&aged.to_le_bytes());
        }
        out.extend_from_slice(&line.penalties);
        out.extend_from_slice(&line.departures.to_le_bytes());
    }

    /// Takes such a line over in the place of the one that is there; `None` where the bytes are too many or too few.
    pub(crate) fn take_line(&mut self, bucket: usize, bytes: &[u8], now: u32) -> Option<()> {
        let (words, rest) = bytes.split_at_checked(4 * WAYS)?;
        let (penalties, departures) = rest.split_first_chunk::<WAYS>()?;
        let departures = u32::from_le_bytes(departures.try_into().ok()?);
        let epoch = now >> self.epoch_shift;
        let taken = |bytes: &[u8; 4]| match u32::from_le_bytes(*bytes) {
            word if word >> TAG_SHIFT == 0 || word % EPOCHS >= IDLE_EPOCHS_MAX => 0,
            word => dated(word, epoch.wrapping_sub(word % EPOCHS)),
        };
        let words = std::array::from_fn(|at| taken(&words.as_chunks().0[at]));
        let line = self.lines.get_mut(bucket)?;
        let n_used = |words: &[u32; WAYS]| words.iter().filter(|&&word| word != 0).count();
        self.used = self.used + n_used(&words) - n_used(&line.words);
        *line = Line { words, penalties: *penalties, departures };
        Some(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.used
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Keys of which nothing is known any more, so far.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::departure::Cause;

    const N: usize = 64;

    fn compact_entries() -> CompactEntries {
        CompactEntries::new(N, 4 * N, 1)
    }

    fn accessed(times: u32, gap: u64) -> History {
        (0..times).fold(History::default(), |history, now| history.accessed(gap, now, 0.0))
    }

    /// A key has left the table for one that nothing is known of.
    fn put(compact_entries: &mut CompactEntries, place: Place, known: CompactEntry, now: u32) {
        assert_eq!(compact_entries.exchange((place.0, 0xfff_fff), Some((place.1, known)), now), None);
    }

    fn take(compact_entries: &mut CompactEntries, place: Place, now: u32) -> Option<CompactEntry> {
        compact_entries.exchange(place, None, now)
    }

    fn known(history: History, last: u32) -> CompactEntry {
        CompactEntry { history, last, penalty: 80, departure: Departure::by(Cause::Expired) }
    }

    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    }

    /// Counts to half an octave, gaps to the octave, times to the epoch, which here is 32 ticks.
    #[test]
    fn what_is_put_is_found_compact_and_taken_once() {
        let mut compact_entries = compact_entries();
        assert_eq!(compact_entries.epoch_shift, 5);
        put(&mut compact_entries, (3, 0x123456), known(accessed(9, 300), 1_000), 1_500);
        let found = compact_entries.get((3, 0x123456), 1_500).unwrap();
        assert_eq!((found.last, found.penalty), (992, 80));
        assert!((6..=13).contains(&found.history.n_requests()), "{:?}", found.history);
        assert!((256.0..512.0).contains(&found.history.gap_ticks().unwrap()), "{:?}", found.history);
        assert_eq!(compact_entries.get((3, 0x123456), 9_000), Some(found), "what is known of it is the same later");
        assert_eq!(
            (compact_entries.get((4, 0x123456), 1_500), compact_entries.get((3, 0x654321), 1_500)),
            (None, None)
        );
        assert_eq!((take(&mut compact_entries, (3, 0x123456), 1_500), compact_entries.len()), (Some(found), 0));
        assert_eq!((take(&mut compact_entries, (3, 0x123456), 1_500), compact_entries.forgotten()), (None, 0));
    }

    #[test]
    fn what_was_seen_once_stays_so_and_the_mean_of_counts_is_right() {
        let once = accessed(1, 0);
        assert!((0..100).all(|seed| History::from_ten_bits(once.to_ten_bits(seed)) == once));
        let often = accessed(100, 10);
        let octaves = |history: History| f64::from(history.n_requests()).log2();
        let mean = (0..1_000).map(|seed| octaves(History::from_ten_bits(often.to_ten_bits(seed)))).sum::<f64>() / 1e3;
        assert!((mean - octaves(often)).abs() < 0.1, "{mean} for {}", octaves(often));
    }

    #[test]
    fn a_full_line_gives_up_the_longest_idle_for_its_requests() {
        let mut compact_entries = compact_entries();
        let place = |i: u32| (0, i << 12);
        put(&mut compact_entries, place(1), known(accessed(32, 10), 100), 100);
        (2..=WAYS as u32).for_each(|i| put(&mut compact_entries, place(i), known(accessed(1, 0), 100 * i), 1_300));
        put(&mut compact_entries, place(100), known(accessed(1, 0), 1_300), 1_300);
        let there: Vec<u32> = (1..=WAYS as u32).filter(|&i| compact_entries.get(place(i), 1_300).is_some()).collect();
        assert_eq!(there.len(), WAYS - 1);
        assert!(there.contains(&1) && !there.contains(&2), "{there:?}");
        assert_eq!((compact_entries.len(), compact_entries.forgotten()), (WAYS, 1));
    }

    #[test]
    fn who_is_in_the_cache_outlasts_who_has_left() {
        let mut compact_entries = compact_entries();
        let place = |i: u32| (0, i << 12);
        let resident = CompactEntry { departure: Departure::default(), ..known(accessed(1, 0), 100) };
        put(&mut compact_entries, place(1), resident, 100);
        let late = |i: u32| 100 + 4 * i;
        (2..100).for_each(|i| put(&mut compact_entries, place(i), known(accessed(1, 0), late(i)), late(i)));
        let is_known = |compact_entries: &CompactEntries, i| compact_entries.get(place(i), 500).is_some();
        assert!(is_known(&compact_entries, 1) && !is_known(&compact_entries, 2) && is_known(&compact_entries, 99));
        // However long ago it was accessed, and however late the others.
        let late = 800 << compact_entries.epoch_shift;
        (100..200).for_each(|i| put(&mut compact_entries, place(i), known(accessed(1, 0), late), late));
        assert!(is_known(&compact_entries, 1) && !is_known(&compact_entries, 99));
    }

    /// The one that was accessed twice is long idle, the eleven others and who follows were accessed once just now.
    #[test]
    fn who_was_accessed_twice_outlasts_who_was_once_and_has_left() {
        let mut compact_entries = compact_entries();
        let (place, now) = (|i: u32| (0, i << 12), 800 << 5);
        put(&mut compact_entries, place(1), known(accessed(2, 10), 0), 0);
        (2..100).for_each(|i| put(&mut compact_entries, place(i), known(accessed(1, 0), now), now));
        assert!(compact_entries.get(place(1), now).is_some());
        // Of those that were accessed twice the oldest goes.
        (100..200).for_each(|i| put(&mut compact_entries, place(i), known(accessed(2, 10), now), now));
        assert!(compact_entries.get(place(1), now).is_none());
    }

    /// For 10,000 epochs another line is written to. What has left is removed; what is in the cache is known still, as
    /// of the oldest, also to a table that takes the line over, and goes once it has left.
    #[test]
    fn who_is_in_the_cache_is_not_too_old() {
        let mut compact_entries = compact_entries();
        let resident = CompactEntry { departure: Departure::default(), ..known(accessed(4, 10), 0) };
        put(&mut compact_entries, (9, 7 << 12), resident, 0);
        put(&mut compact_entries, (9, 8 << 12), known(accessed(4, 10), 0), 0);
        let write = |compact_entries: &mut CompactEntries, epochs: std::ops::Range<u32>| {
            epochs.for_each(|epoch| put(compact_entries, (1, 5 << 12), known(accessed(1, 0), 32 * epoch), 32 * epoch));
        };
        write(&mut compact_entries, 1..10_000);
        let now = 32 * 9_999;
        let found = compact_entries.get((9, 7 << 12), now).unwrap();
        let idle_epochs = (now - found.last) / 32;
        assert!((IDLE_EPOCHS_MAX - 1..EPOCHS).contains(&idle_epochs), "{idle_epochs}");
        assert_eq!((found.history.n_requests(), compact_entries.len()), (4, 2));
        let mut line = Vec::new();
        compact_entries.write_line(9, now, &mut line);
        compact_entries.take_line(10, &line, now).unwrap();
        assert!(compact_entries.get((10, 7 << 12), now).is_some());
        compact_entries.leave((9, 7 << 12), Departure::by(Cause::Evicted));
        compact_entries.leave((10, 7 << 12), Departure::by(Cause::Evicted));
        write(&mut compact_entries, 10_000..10_200);
        assert_eq!(compact_entries.len(), 1);
        put(&mut compact_entries, (9, 7 << 12), resident, 32 * 10_200);
        assert_eq!(compact_entries.len(), 2, "one that was long in the table is as welcome");
    }

    /// A time that comes round makes nobody young: what isn't asked for in 896 epochs has gone when another line is
    /// written to.
    #[test]
    fn what_is_too_old_goes() {
        let mut compact_entries = compact_entries();
        put(&mut compact_entries, (9, 7 << 12), known(accessed(4, 10), 0), 0);
        for epoch in 1..1_100_u32 {
            put(&mut compact_entries, (1, 5 << 12), known(accessed(1, 0), 32 * epoch), 32 * epoch);
            let is_there = compact_entries.get((9, 7 << 12), 32 * epoch).is_some();
            assert!(is_there || epoch >= IDLE_EPOCHS_MAX, "{epoch}");
            assert!(!is_there || epoch < EPOCHS, "{epoch}");
        }
        put(&mut compact_entries, (2, 5 << 12), known(accessed(1, 0), 0), 32 * 1_100);
        assert_eq!(compact_entries.len(), 1, "what is too old already is not kept");
    }

    /// However many lines there are, no access waits for more than a few: the others are swept with those that follow.
    #[test]
    fn a_large_table_is_swept_bit_by_bit() {
        let mut compact_entries = CompactEntries::new(10_000, 40_000, 1);
        let late = 1_000 << compact_entries.epoch_shift;
        (0..10_000).for_each(|line| put(&mut compact_entries, (line, 7 << 12), known(accessed(4, 10), 0), 0));
        put(&mut compact_entries, (0, 9 << 12), known(accessed(4, 10), late), late);
        assert!(compact_entries.len() > 10_000 - SWEPT_MAX, "{}", compact_entries.len());
        (0..10_000 / SWEPT_MAX as u32 + 1)
            .for_each(|_| put(&mut compact_entries, (0, 9 << 12), known(accessed(4, 10), late), late));
        assert_eq!(compact_entries.len(), 1);
    }

    /// Accesses wait a little before they are put in, and what was learned meanwhile is dated later.
    #[test]
    fn what_is_dated_later_is_not_old() {
        let mut compact_entries = compact_entries();
        put(&mut compact_entries, (1, 5 << 12), known(accessed(2, 10), 3_204), 3_196);
        assert_eq!(compact_entries.len(), 1);
    }
}
