//! What is remembered of single keys, resident or not: miss-penalty class, penalty, last access, and, while it is in
//! the cache, since when and how often it was accessed.
//!
//! A table of fixed size in place of the sixteen Bloom filters of pRedis (Pan et al., SoCC'19, sec. 3.1), of its size
//! cache's kind: 16 bytes an entry, four in a bucket of one cache line, so a look-up touches one line of memory. A
//! key is known by 24 bits of its hash beyond the bucket's number: of keys that aren't there, one in four million is
//! taken for another, where the filters err by 1 %. A full bucket gives up the entry that was not accessed for
//! longest; a class changes in place. `benches/classes.rs` has both side by side. Times are ticks of 1024 µs, 32 bits
//! of them: they wrap after 50 days. Under Tenure's own policy they are ticks of requests, and what a bucket has no
//! place for is kept there in a compact entry (`compact_entries.rs`).

use crate::compact_entries::{self, CompactEntries, CompactEntry};
use crate::departure::Departure;
use crate::policy::density::History;
use crate::tiers::Tier;
use crate::tiers::placed::Placed;
use crate::units::KeyHash;

const WAYS: usize = 4;
/// A request counts for half after so many requests for each place of the table.
const FILLS_PER_HALF_LIFE: f32 = 128.0;
/// Bytes of a bucket.
pub const BUCKET_BYTES: u64 = 64;
/// Bytes of an entry on its way to another table.
pub const ENTRY_BYTES: usize = 16;
/// A measured penalty moves the remembered one by this share of the difference: one slow answer makes no other class.
const PENALTY_WEIGHT: f32 = 0.25;
/// Steps per doubling of a remembered penalty.
const STEPS_PER_OCTAVE: f32 = 2048.0;
/// A compact entry has eight.
const COMPACT_SHIFT: u32 = 8;

/// A time for the table: ticks of 1024 µs.
#[inline]
pub fn tick(now_us: u64) -> u32 {
    (now_us >> 10) as u32
}

/// What is remembered of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// 24 bits of the hash, never 0 in use.
    fingerprint: [u8; 3],
    /// The caller's number of its class; 0 = none.
    pub class: u8,
    /// Requests since it entered the cache; 0 = not there, or not known.
    pub n_requests: u16,
    /// log2 of the penalty; 0 = none was measured.
    penalty: u16,
    /// When it entered the cache, in ticks; under Tenure's own policy what it has shown, see [`Entry::history`].
    pub entered: u32,
    /// When it was last accessed, in ticks.
    pub last: u32,
}

impl Entry {
    /// Its miss penalty in µs, smoothed; `None` where none was measured.
    pub fn penalty_us(&self) -> Option<f32> {
        (self.penalty > 0).then(|| (f32::from(self.penalty) / STEPS_PER_OCTAVE).exp2())
    }

    /// A penalty was measured, in µs; returns the smoothed one.
    pub fn learn_penalty(&mut self, measured_us: f32) -> f32 {
        let smoothed = match self.penalty_us() {
            Some(held_us) => held_us + PENALTY_WEIGHT * (measured_us - held_us),
            None => measured_us,
        };
        self.penalty = (smoothed.max(1.001).log2() * STEPS_PER_OCTAVE).clamp(1.0, f32::from(u16::MAX)) as u16;
        smoothed
    }

    /// It has entered the cache at `now`, by a first request, unless it was there.
    pub fn enter(&mut self, now: u32) {
        if self.n_requests == 0 {
            (self.n_requests, self.entered) = (1, now);
        }
    }

    /// What the key has shown, evicted or not. It takes the place of `entered`: who needs the one doesn't need the
    /// other, and who changes from one to the other begins with an empty table.
    #[inline]
    pub fn history(&self) -> History {
        History::from_bits(self.entered as u16)
    }

    /// Remembers what the key has shown.
    #[inline]
    pub fn set_history(&mut self, history: History) {
        self.entered = self.entered & 0xffff_0000 | u32::from(history.to_bits());
    }

    /// In which tier of memory its value lies, and how it came there: the other half of `entered`, where histories
    /// are kept.
    #[inline]
    pub fn placed(&self) -> Placed {
        Placed::from_bits((self.entered >> 16) as u16)
    }

    /// Remembers where its value lies.
    #[inline]
    pub fn set_placed(&mut self, placed: Placed) {
        self.entered = self.entered & 0xffff | u32::from(placed.to_bits()) << 16;
    }

    /// It has left the cache. The bits are those of where its value lay.
    #[inline]
    pub fn leave(&mut self, departure: Departure) {
        self.n_requests = 0;
        self.entered = self.entered & 0xffff | u32::from(departure.to_bits()) << 16;
    }

    /// How it has left the cache: of a key that isn't there.
    #[inline]
    pub fn departure(&self) -> Departure {
        Departure::from_bits((self.entered >> 16) as u16)
    }

    fn compact_entry(&self) -> CompactEntry {
        let rounded = (u32::from(self.penalty) + (1 << (COMPACT_SHIFT - 1))) >> COMPACT_SHIFT;
        let penalty = if self.penalty == 0 { 0 } else { rounded.clamp(1, u32::from(u8::MAX)) as u8 };
        let departure = if self.n_requests == 0 { self.departure() } else { Departure::default() };
        // A compact entry would be taken for that of a key in the cache.
        let is_of_nobody = self.n_requests == 0 && departure == Departure::default() && self.history().octave() == 0;
        let history = if is_of_nobody { History::default() } else { self.history() };
        CompactEntry { history, last: self.last, penalty, departure }
    }

    fn take_compact(&mut self, known: CompactEntry) {
        self.set_history(known.history);
        self.leave(known.departure);
        (self.last, self.penalty) = (known.last, u16::from(known.penalty) << COMPACT_SHIFT);
    }

    fn is_free(&self) -> bool {
        self.tag() == 0
    }

    /// The fingerprint as a number.
    #[inline]
    fn tag(&self) -> u32 {
        let [a, b, c] = self.fingerprint;
        // With its neighbour: one word is read, not three bytes.
        u32::from_le_bytes([a, b, c, self.class]) & 0xff_ffff
    }

    /// The same of another class.
    pub fn of_class(self, class: u8) -> Entry {
        Entry { class, ..self }
    }

    /// For another table that counts time from elsewhere: times become ages at `now`.
    pub fn to_bytes(self, now: u32) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..3].copy_from_slice(&self.fingerprint);
        bytes[3] = self.class;
        bytes[4..6].copy_from_slice(&self.n_requests.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.penalty.to_le_bytes());
        bytes[8..12].copy_from_slice(&now.wrapping_sub(self.entered).to_le_bytes());
        bytes[12..].copy_from_slice(&now.wrapping_sub(self.last).to_le_bytes());
        bytes
    }

    /// What [`Entry::to_bytes`] wrote, by this table's time.
    pub fn from_bytes(bytes: &[u8; ENTRY_BYTES], now: u32) -> Entry {
        let &[a, b, c, class, n0, n1, p0, p1, e0, e1, e2, e3, l0, l1, l2, l3] = bytes;
        Entry {
            fingerprint: [a, b, c],
            class,
            n_requests: u16::from_le_bytes([n0, n1]),
            penalty: u16::from_le_bytes([p0, p1]),
            // How a key left is known where it was; as a time it would be nonsense.
            entered: if (n0, n1) == (0, 0) { 0 } else { now.wrapping_sub(u32::from_le_bytes([e0, e1, e2, e3])) },
            last: now.wrapping_sub(u32::from_le_bytes([l0, l1, l2, l3])),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket([Entry; WAYS]);

impl Bucket {
    /// Which entry is of that fingerprint. All four are compared at once: a branch for each would be guessed wrong
    /// more often than not.
    #[inline]
    fn position(&self, fingerprint: [u8; 3]) -> Option<usize> {
        let wanted = Entry { fingerprint, ..Entry::default() }.tag();
        let same = (0..WAYS).fold(0, |same, i| same | u32::from(self.0[i].tag() == wanted) << i);
        (same != 0).then(|| same.trailing_zeros() as usize % WAYS)
    }
}

/// The table. See the file's opening.
#[derive(Debug)]
pub struct KeyTable {
    buckets: Vec<Bucket>,
    compact_entries: Option<CompactEntries>,
    used: usize,
    displaced: u64,
}

impl KeyTable {
    /// An empty table of at most `bytes`, at least one bucket.
    pub fn new(bytes: u64) -> Self {
        let buckets = vec![Bucket::default(); (bytes / BUCKET_BYTES).clamp(1, u64::from(u32::MAX)) as usize];
        KeyTable { buckets, compact_entries: None, used: 0, displaced: 0 }
    }

    /// As [`KeyTable::new`], for histories alone: half of the memory for four keys a bucket, half for twelve more in
    /// a compact entry, of which class and tier are not remembered. Its ticks are of so many requests.
    pub fn with_compact_entries(bytes: u64, requests_per_tick: u64) -> Self {
        let table = KeyTable::new(bytes / 2);
        let n_buckets = table.buckets.len();
        KeyTable { compact_entries: Some(CompactEntries::new(n_buckets, n_buckets * WAYS, requests_per_tick)), ..table }
    }

    /// True where it was made [`with_compact_entries`](KeyTable::with_compact_entries).
    pub fn has_compact_entries(&self) -> bool {
        self.compact_entries.is_some()
    }

    #[inline]
    fn place(&self, key: KeyHash) -> (usize, [u8; 3]) {
        let bucket = ((key.0 & 0xffff_ffff) * self.buckets.len() as u64) >> 32;
        let [_, _, _, _, a, b, c, _] = key.0.to_le_bytes();
        (bucket as usize, [a.max(1), b, c])
    }

    /// What is remembered of `key`. One cache line.
    #[inline]
    pub fn get(&self, key: KeyHash) -> Option<&Entry> {
        let (bucket, fingerprint) = self.place(key);
        let bucket = &self.buckets[bucket];
        bucket.position(fingerprint).map(|i| &bucket.0[i])
    }

    /// As [`KeyTable::get`], to change it.
    #[inline]
    pub fn get_mut(&mut self, key: KeyHash) -> Option<&mut Entry> {
        let (bucket, fingerprint) = self.place(key);
        let bucket = &mut self.buckets[bucket];
        bucket.position(fingerprint).map(|i| &mut bucket.0[i])
    }

    /// What is remembered of `key` at `now`, also in a compact entry: then the requests are those of its history. One
    /// cache line, or two.
    #[inline]
    pub fn recall(&self, key: KeyHash, now: u32) -> Option<Entry> {
        let (bucket, fingerprint) = self.place(key);
        if let Some(i) = self.buckets[bucket].position(fingerprint) {
            return Some(self.buckets[bucket].0[i]);
        }
        let mut entry = Entry { fingerprint, ..Entry::default() };
        let known = self.compact_entries.as_ref()?.get((bucket, entry.tag()), now)?;
        entry.take_compact(known);
        entry.n_requests = known.history.n_requests().min(u32::from(u16::MAX)) as u16;
        Some(entry)
    }

    /// Ticks by which a compact entry may have the last access of its key too early.
    pub fn epoch_ticks(&self) -> u32 {
        self.compact_entries.as_ref().map_or(0, CompactEntries::epoch_ticks)
    }

    /// Reads one word of the cache line that `key` belongs to, so that it is near when it is accessed. Reads of
    /// several keys overlap where look-ups, which have more to do, wait for one another.
    #[inline]
    pub fn warm(&self, key: KeyHash) -> u32 {
        self.buckets[self.place(key).0].0[0].last
    }

    /// The same of the line that its compact entry may lie in, where that will be looked at.
    #[inline]
    pub fn warm_compact(&self, key: KeyHash) -> u32 {
        let (bucket, fingerprint) = self.place(key);
        match &self.compact_entries {
            Some(compact_entries) if self.buckets[bucket].position(fingerprint).is_none() => {
                compact_entries.warm(bucket)
            }
            _ => 0,
        }
    }

    /// Both for each of these keys: first all the one, then all the other, so that no look-up waits for another.
    #[inline]
    pub fn warm_all(&self, keys: impl Iterator<Item = KeyHash> + Clone) {
        std::hint::black_box(keys.clone().fold(0, |near, key| near ^ self.warm(key)));
        if self.has_compact_entries() {
            std::hint::black_box(keys.fold(0, |near, key| near ^ self.warm_compact(key)));
        }
    }

    /// `key` has left the cache at `now`. Of a key of which nothing is known that is remembered where `is_new_too`,
    /// if there is a free place.
    pub fn leave(&mut self, key: KeyHash, departure: Departure, now: u32, is_new_too: bool) {
        let (at, fingerprint) = self.place(key);
        if let Some(i) = self.buckets[at].position(fingerprint) {
            return self.buckets[at].0[i].leave(departure);
        }
        let mut new = Entry { fingerprint, last: now, ..Entry::default() };
        if self.compact_entries.as_mut().is_some_and(|compact| compact.leave((at, new.tag()), departure)) || !is_new_too
        {
            return;
        }
        if let Some(free) = self.buckets[at].position([0; 3]) {
            new.leave(departure);
            self.buckets[at].0[free] = new;
            self.used += 1;
        }
    }

    /// How a key has left of which a compact entry alone is known.
    pub fn compact_departure(&self, key: KeyHash) -> Option<Departure> {
        let (at, fingerprint) = self.place(key);
        self.compact_entries.as_ref()?.departure((at, Entry { fingerprint, ..Entry::default() }.tag()))
    }

    /// True where nothing can have been forgotten of `key`, since nothing was of its bucket.
    pub fn forgets_nothing_of(&self, key: KeyHash) -> bool {
        let (at, _) = self.place(key);
        match &self.compact_entries {
            Some(compact_entries) => !compact_entries.has_forgotten(at),
            None => self.buckets[at].position([0; 3]).is_some(),
        }
    }

    /// The entry of `key`, a new one where there is none: then it takes a free place or that of the bucket's longest
    /// idle at `now`, of keys that are in the cache only where there are no others.
    #[inline]
    pub fn get_or_insert(&mut self, key: KeyHash, now: u32) -> &mut Entry {
        self.get_or_displace(key, now, |entry| {
            let idle = u64::from(now.wrapping_sub(entry.last));
            if entry.n_requests == 0 { (1 << 32) + idle } else { idle }
        })
    }

    /// As [`KeyTable::get_or_insert`], where entries have histories: the longest idle for the requests it had goes,
    /// those that have left four times as soon, and of slow tiers' values none before others, for where they lie is
    /// known from here alone. What is accessed once passes through without taking what is known of others: a key in
    /// the cache that isn't remembered counts as one of those anyway.
    #[inline]
    pub fn get_or_insert_by_history(&mut self, key: KeyHash, now: u32) -> &mut Entry {
        self.get_or_displace(key, now, |entry| {
            // Accesses wait a little: what was learned meanwhile is dated later than they, and not idle.
            let idle = now.wrapping_sub(entry.last).cast_signed().max(0) as u64;
            match entry.n_requests {
                0 => (4 + 4 * idle) >> entry.history().octave(),
                _ if entry.placed().tier() == Tier::Slow => 0,
                _ => idle >> entry.history().octave(),
            }
        })
    }

    #[inline]
    fn get_or_displace(&mut self, key: KeyHash, now: u32, idle: impl Fn(&Entry) -> u64) -> &mut Entry {
        let (bucket, fingerprint) = self.place(key);
        let at = match self.buckets[bucket].position(fingerprint) {
            Some(at) => at,
            None => self.make_room(bucket, Entry { fingerprint, last: now, ..Entry::default() }, now, idle),
        };
        &mut self.buckets[bucket].0[at]
    }

    #[inline(never)]
    fn make_room(&mut self, at: usize, mut new: Entry, now: u32, idle: impl Fn(&Entry) -> u64) -> usize {
        let bucket = &mut self.buckets[at].0;
        let idle = |entry: &Entry| if entry.is_free() { u64::MAX } else { idle(entry) };
        let oldest = (0..WAYS).max_by_key(|&i| idle(&bucket[i])).unwrap_or(0);
        let gone = bucket[oldest];
        if let Some(compact_entries) = &mut self.compact_entries {
            let leaving = (!gone.is_free()).then(|| (gone.tag(), gone.compact_entry()));
            if let Some(known) = compact_entries.exchange((at, new.tag()), leaving, now) {
                new.take_compact(known);
            }
        } else if !gone.is_free() {
            self.displaced += 1;
        }
        self.used += usize::from(gone.is_free());
        bucket[oldest] = new;
        oldest
    }

    /// Decay per request, in halvings; half-life = 128 × capacity, in requests. So long that keys are told apart
    /// which are accessed less than once while the table fills. Without decay, what was popular once would never
    /// leave.
    pub fn fading(&self) -> f32 {
        let ways = WAYS + if self.has_compact_entries() { compact_entries::WAYS } else { 0 };
        1.0 / (FILLS_PER_HALF_LIFE * (self.buckets.len() * ways) as f32)
    }

    /// How many buckets there are. Keys lie alike in tables of as many.
    pub fn n_buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The entries in use of a bucket.
    pub fn bucket(&self, bucket: usize) -> impl Iterator<Item = &Entry> {
        self.buckets.get(bucket).into_iter().flat_map(|bucket| &bucket.0).filter(|entry| !entry.is_free())
    }

    /// Puts an entry of a table of as many buckets into the same bucket, in the place of what is known of that key,
    /// or a free one, or that of the longest idle where that is idle for longer. Returns its class before, 0 where it
    /// wasn't there; `None` where it found no place.
    pub fn put(&mut self, bucket: usize, entry: Entry, now: u32) -> Option<u8> {
        let bucket = &mut self.buckets.get_mut(bucket).filter(|_| !entry.is_free())?.0;
        let idle = |entry: &Entry| if entry.is_free() { u64::MAX } else { u64::from(now.wrapping_sub(entry.last)) };
        let held = bucket.iter().position(|held| held.fingerprint == entry.fingerprint);
        let at = held.or_else(|| (0..WAYS).max_by_key(|&i| idle(&bucket[i])))?;
        if held.is_none() {
            if idle(&bucket[at]) < idle(&entry) {
                return None;
            }
            if bucket[at].is_free() {
                self.used += 1;
            } else {
                self.displaced += 1;
            }
        }
        let before = std::mem::replace(&mut bucket[at], entry);
        Some(if held.is_some() { before.class } else { 0 })
    }

    /// Bytes of a bucket as [`KeyTable::write_bucket`] writes it.
    pub fn shared_bucket_bytes(&self) -> usize {
        BUCKET_BYTES as usize * if self.has_compact_entries() { 2 } else { 1 }
    }

    /// Adds a bucket of histories to `out`, for a table of as many buckets with a clock of its own: times become ages
    /// at `now`.
    pub fn write_bucket(&self, bucket: usize, now: u32, out: &mut Vec<u8>) {
        for entry in &self.buckets[bucket].0 {
            let entered = entry.entered.to_le_bytes();
            let mut bytes = entry.to_bytes(now);
            // A history is no time.
            bytes[8..12].copy_from_slice(&entered);
            out.extend_from_slice(&bytes);
        }
        if let Some(compact_entries) = &self.compact_entries {
            compact_entries.write_line(bucket, now, out);
        }
    }

    /// Takes a bucket over that [`KeyTable::write_bucket`] wrote, in the place of what is known here, but for where
    /// values lie in slow memory. `class_here` tells the number here of a class there. Returns how many keys changed
    /// class; `None` where there is no such bucket or the bytes are too many or too few.
    pub fn take_bucket(&mut self, bucket: usize, bytes: &[u8], now: u32, class_here: impl Fn(u8) -> u8) -> Option<u64> {
        let held = &mut self.buckets.get_mut(bucket)?.0;
        let (entries, line) = bytes.split_at_checked(BUCKET_BYTES as usize)?;
        match &mut self.compact_entries {
            Some(compact_entries) => compact_entries.take_line(bucket, line, now)?,
            None if line.is_empty() => {}
            None => return None,
        }
        let (mut taken, mut changed) = ([Entry::default(); WAYS], 0);
        for (entry, bytes) in taken.iter_mut().zip(entries.as_chunks::<ENTRY_BYTES>().0) {
            let entered = u32::from_le_bytes(*bytes[8..].first_chunk()?);
            *entry = Entry { entered, ..Entry::from_bytes(bytes, now) };
            entry.class = class_here(entry.class);
            let own = held.iter().find(|own| own.n_requests > 0 && own.fingerprint == entry.fingerprint);
            if entry.n_requests > 0 {
                entry.set_placed(own.map(Entry::placed).unwrap_or_default());
                changed += u64::from(own.map_or(0, |own| own.class) != entry.class);
            }
        }
        let is_slow = |entry: &Entry| entry.n_requests > 0 && entry.placed().tier() == Tier::Slow;
        for own in held.iter().filter(|own| is_slow(own)) {
            let is_taken = taken.iter().any(|entry| entry.fingerprint == own.fingerprint);
            let idle = |entry: &Entry| if entry.is_free() { u32::MAX } else { now.wrapping_sub(entry.last) };
            let others = taken.iter_mut().filter(|entry| !is_slow(entry));
            if let Some(place) = others.max_by_key(|entry| idle(entry)).filter(|_| !is_taken) {
                *place = *own;
            }
        }
        let n_used = |entries: &[Entry]| entries.iter().filter(|entry| !entry.is_free()).count();
        self.used = self.used + n_used(&taken) - n_used(held);
        *held = taken;
        Some(changed)
    }

    /// Keys of which something is remembered.
    pub fn len(&self) -> usize {
        self.used + self.compact_entries.as_ref().map_or(0, CompactEntries::len)
    }

    /// True where nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys that had to go for others and of which nothing is known any more, so far.
    pub fn displaced(&self) -> u64 {
        self.displaced + self.compact_entries.as_ref().map_or(0, CompactEntries::forgotten)
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let lines = if self.has_compact_entries() { 2 } else { 1 };
        self.buckets.len() as u64 * BUCKET_BYTES * lines
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::departure::Cause;

    fn key(i: u64) -> KeyHash {
        KeyHash::of_number(i)
    }

    #[test]
    fn an_entry_is_sixteen_bytes_and_a_bucket_a_cache_line() {
        assert_eq!((size_of::<Entry>(), size_of::<Bucket>(), align_of::<Bucket>()), (16, 64, 64));
    }

    /// Half full, nearly all keys are remembered; keys that were never there are not found.
    #[test]
    fn what_was_put_in_is_found_and_nothing_else() {
        let mut table = KeyTable::new(1 << 20);
        let n = table.buckets.len() as u64 * WAYS as u64 / 2;
        for i in 0..n {
            table.get_or_insert(key(i), 1).class = (i % 16) as u8 + 1;
        }
        let found = (0..n).filter(|&i| table.get(key(i)).is_some_and(|e| e.class == (i % 16) as u8 + 1)).count() as f64;
        assert!(found > 0.94 * n as f64, "{found} of {n}");
        assert_eq!(table.len() as u64 + table.displaced(), n);
        let ghosts = (n..20 * n).filter(|&i| table.get(key(i)).is_some()).count();
        assert!(ghosts <= 3, "{ghosts} of {} keys that never were", 19 * n);
    }

    /// Another table of the same size, whose clock began elsewhere, knows what the first does once all buckets were
    /// handed over.
    #[test]
    fn what_is_handed_over_is_known_to_another_table() {
        let (mut from, mut to) = (KeyTable::new(1 << 14), KeyTable::new(1 << 14));
        for i in 0..400 {
            let entry = from.get_or_insert(key(i), 1000 + i as u32);
            entry.class = (i % 16) as u8 + 1;
            entry.learn_penalty(i as f32 + 2.0);
            entry.enter(1000);
        }
        to.get_or_insert(key(7), 5).class = 99;
        let hand_over = |from: &KeyTable, to: &mut KeyTable| {
            for bucket in 0..from.n_buckets() {
                for entry in from.bucket(bucket).map(|entry| entry.to_bytes(2000)) {
                    to.put(bucket, Entry::from_bytes(&entry, 50), 50);
                }
            }
        };
        hand_over(&from, &mut to);
        hand_over(&from, &mut to);
        let known = |table: &KeyTable, i: u64| table.get(key(i)).map(|e| (e.class, e.penalty, e.n_requests));
        assert!((0..400).all(|i| known(&from, i) == known(&to, i)));
        assert_eq!(
            (to.len(), to.get(key(399)).map(|e| e.last.wrapping_sub(50))),
            (from.len(), Some(0u32.wrapping_sub(601)))
        );
        assert_eq!(to.put(1 << 20, *from.get(key(1)).unwrap(), 50), None, "no such bucket");
        assert_eq!(to.put(0, Entry::default(), 50), None, "no entry");
    }

    /// Twice as many keys as there are entries: all are remembered, those without a place in a compact entry, and one
    /// that is accessed again has its history back.
    #[test]
    fn what_has_no_place_is_kept_in_outline() {
        let mut table = KeyTable::with_compact_entries(1 << 16, 1);
        let n = 2 * (table.buckets.len() * WAYS) as u64;
        assert_eq!((n, table.memory_bytes()), (4096, 1 << 16));
        let shown = (0..5).fold(History::default(), |history, now| history.accessed(700, now, 0.0));
        for i in 0..n {
            let entry = table.get_or_insert_by_history(key(i), 1_000);
            entry.set_history(shown);
            entry.learn_penalty(500.0);
        }
        // Of twelve bits some are alike.
        assert!(
            table.len() as u64 > n - n / 100 && table.displaced() < n / 100,
            "{} {}",
            table.len(),
            table.displaced()
        );
        let recalled = |table: &KeyTable, i| {
            table
                .recall(key(i), 1_200)
                .filter(|e| e.history().feature(0).to_string() == "5 to 8 times, every 2^9 ticks")
        };
        let compacted: Vec<u64> =
            (0..n).filter(|&i| table.get(key(i)).is_none() && recalled(&table, i).is_some()).collect();
        assert!(compacted.len() as u64 > n / 4, "{}", compacted.len());
        let entry = *table.get_or_insert_by_history(key(compacted[0]), 1_200);
        assert!(
            (400.0..600.0).contains(&entry.penalty_us().unwrap()) && (744..=1_000).contains(&entry.last),
            "{entry:?}"
        );
        assert_eq!(entry.n_requests, 0, "whether it is in the cache isn't known");
        assert_eq!(table.recall(key(compacted[0]), 1_300), Some(entry), "in full again");
        let strangers = (n..20 * n).filter(|&i| table.recall(key(i), 1_200).is_some()).count() as u64;
        assert!(strangers < 19 * n / 400, "{strangers}");
    }

    /// Reads of far more keys than the table has room for, each once, find nothing: what was known of keys in the cache
    /// and of those that were evicted is known still.
    #[test]
    fn keys_that_never_were_take_no_place_of_others() {
        let mut table = KeyTable::with_compact_entries(1 << 14, 1);
        let n = (table.buckets.len() * WAYS) as u64;
        let mut access = |keys: std::ops::Range<u64>, times: u32, n_requests: u16, departure: Option<Departure>| {
            for i in keys {
                let entry = table.get_or_insert_by_history(key(i), 1_000);
                let shown = (0..times).fold(History::default(), |history, now| history.accessed(700, now, 0.0));
                entry.set_history(shown);
                entry.n_requests = n_requests;
                departure.inspect(|&departure| entry.leave(departure));
            }
        };
        access(0..n / 2, 1, 0, Some(Departure::by(Cause::Evicted)));
        access(n / 2..n, 1, 1, None);
        access(n..30 * n, 1, 0, None);
        let known = (0..n).filter(|&i| table.recall(key(i), 1_000).is_some()).count() as u64;
        assert!(known > n - n / 50, "{known} of {n}");
        assert!(!table.forgets_nothing_of(key(n)), "and what was passed over isn't taken for a first read later");
    }

    /// Histories too, in full and in compact entries, whatever the other's clock says; and who lies in slow memory
    /// there still does.
    #[test]
    fn histories_are_handed_over_to_a_table_with_another_clock() {
        let new = || KeyTable::with_compact_entries(1 << 14, 1);
        let (mut from, mut to) = (new(), new());
        let n = 2 * (from.buckets.len() * WAYS) as u64;
        for i in 0..n {
            let shown = (0..i as u32 % 7).fold(History::default(), |history, now| history.accessed(50, now, 0.0));
            let entry = from.get_or_insert_by_history(key(i), 9_000);
            entry.set_history(shown);
            entry.learn_penalty(100.0);
            match i % 2 {
                0 => entry.leave(Departure::by(Cause::Evicted)),
                _ => entry.n_requests = 1,
            }
        }
        let slow = (0..n).find(|&i| from.get(key(i)).is_some_and(|entry| entry.n_requests > 0)).unwrap();
        for known in [slow, n + 1] {
            let entry = to.get_or_insert_by_history(key(known), 20);
            entry.n_requests = 1;
            entry.set_placed(Placed::moved(Tier::Slow, 3));
        }
        let mut bytes = Vec::new();
        (0..from.n_buckets()).for_each(|bucket| from.write_bucket(bucket, 10_000, &mut bytes));
        for _ in 0..2 {
            let size = from.shared_bucket_bytes();
            bytes
                .chunks(size)
                .enumerate()
                .for_each(|(i, bytes)| _ = to.take_bucket(i, bytes, 70_000, |class| class).unwrap());
        }
        let known = |table: &KeyTable, i: u64, now: u32| {
            let entry = table.recall(key(i), now)?;
            Some((entry.history(), entry.penalty, entry.n_requests, now.wrapping_sub(entry.last) / 512))
        };
        let differ = (0..n).filter(|&i| known(&from, i, 10_000) != known(&to, i, 70_000)).count();
        // The one that lies in slow memory has taken somebody's place.
        assert!(differ <= 1, "{differ} of {n}");
        assert!([slow, n + 1].iter().all(|&i| to.get(key(i)).unwrap().placed().tier() == Tier::Slow));
        assert!(to.len().abs_diff(from.len()) <= 1 && from.len() > 900, "{} {}", to.len(), from.len());
        assert_eq!(to.take_bucket(1 << 20, &bytes[..128], 1, |_| 0), None, "no such bucket");
        assert_eq!(to.take_bucket(0, &bytes[..127], 1, |_| 0), None, "cut");
        assert_eq!(KeyTable::new(1 << 14).take_bucket(0, &bytes[..128], 1, |_| 0), None, "of another kind");
    }

    #[test]
    fn a_full_bucket_keeps_what_was_used_later() {
        let (mut small, mut other) = (KeyTable::new(BUCKET_BYTES), KeyTable::new(BUCKET_BYTES));
        (0..4).for_each(|i| _ = small.get_or_insert(key(i), 10));
        let older = *other.get_or_insert(key(8), 9);
        let newer = *other.get_or_insert(key(9), 12);
        assert_eq!((small.put(0, older, 20), small.put(0, newer, 20)), (None, Some(0)));
        assert!(small.get(key(8)).is_none() && small.get(key(9)).is_some() && small.displaced() == 1);
    }

    #[test]
    fn a_full_bucket_gives_up_its_longest_idle() {
        let mut table = KeyTable::new(BUCKET_BYTES);
        for i in 0..4 {
            table.get_or_insert(key(i), i as u32);
        }
        table.get_mut(key(0)).unwrap().last = 9;
        table.get_or_insert(key(4), 10);
        assert!(table.get(key(1)).is_none());
        assert!([0, 2, 3, 4].iter().all(|&i| table.get(key(i)).is_some()));
    }

    /// All four are in the cache. The longest idle was accessed sixteen times, the next lies in a slow tier: the
    /// third goes.
    #[test]
    fn what_was_asked_for_often_is_not_forgotten_for_what_comes_once() {
        let mut table = KeyTable::new(BUCKET_BYTES);
        for i in 0..4 {
            table.get_or_insert_by_history(key(i), i as u32).n_requests = 1;
        }
        let often = (0..16).fold(History::default(), |history, now| history.accessed(1, now, 0.0));
        table.get_mut(key(0)).unwrap().set_history(often);
        table.get_mut(key(1)).unwrap().set_placed(Placed::moved(Tier::Slow, 1));
        table.get_or_insert_by_history(key(4), 12);
        assert_eq!([0, 1, 2, 3, 4].map(|i| table.get(key(i)).is_some()), [true, true, false, true, true]);
        // One that has left is four times as idle.
        table.get_mut(key(4)).unwrap().last = 6;
        table.get_mut(key(3)).unwrap().last = 5;
        table.get_or_insert_by_history(key(5), 12);
        assert!(table.get(key(4)).is_none() && table.get(key(3)).is_some());
    }

    #[test]
    fn what_is_dated_later_than_an_access_is_not_forgotten_for_it() {
        let mut table = KeyTable::new(BUCKET_BYTES);
        (0..4).for_each(|i| table.get_or_insert_by_history(key(i), 10 + i as u32).n_requests = 1);
        table.get_or_insert_by_history(key(4), 12);
        assert!(table.get(key(3)).is_some() && table.get(key(0)).is_none());
    }

    #[test]
    fn a_key_that_is_there_outlasts_those_that_have_left() {
        let mut table = KeyTable::new(BUCKET_BYTES);
        table.get_or_insert(key(0), 0).enter(0);
        (1..9).for_each(|i| {
            table.get_or_insert(key(i), i as u32);
        });
        assert!(table.get(key(0)).is_some() && table.get(key(5)).is_none());
    }

    #[test]
    fn an_entry_holds_what_a_key_has_shown_and_where_its_value_lies() {
        let (history, slow) =
            (History::default().accessed(0, 1, 1e-6).accessed(300, 301, 1e-6), Placed::from_bits(0xc005));
        let mut entry = Entry::default();
        entry.set_placed(slow);
        entry.set_history(history);
        assert_eq!((entry.placed(), entry.history()), (slow, history));
        entry.set_placed(Placed::default());
        assert_eq!((entry.placed(), entry.history()), (Placed::default(), history));
    }

    #[test]
    fn residence_begins_once_and_a_class_changes_in_place() {
        let mut table = KeyTable::new(4096);
        let entry = table.get_or_insert(key(1), 5);
        entry.enter(5);
        entry.enter(9);
        assert_eq!((entry.entered, entry.n_requests), (5, 1));
        entry.class = 3;
        table.get_or_insert(key(1), 9).class = 4;
        assert_eq!((table.get(key(1)).unwrap().class, table.len()), (4, 1));
    }

    proptest! {
        /// What is remembered is within a thousandth; one outlier in a stream of equals moves it by a quarter.
        #[test]
        fn penalties_are_smoothed(us in 2u32..10_000_000) {
            let us = us as f32;
            let mut entry = Entry::default();
            entry.learn_penalty(us);
            prop_assert!((entry.penalty_us().unwrap() / us - 1.0).abs() < 1e-3);
            prop_assert!((entry.learn_penalty(5.0 * us) / us - 2.0).abs() < 0.01);
        }
    }
}
