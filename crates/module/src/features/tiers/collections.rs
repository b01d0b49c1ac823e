//! Moves small collections from tier to tier: each is made anew by `DUMP` and `RESTORE`, for slow memory while its
//! arena is chosen.
//!
//! A string is moved by cutting it ([`super::mover`]); the module API has nothing like it for the listpacks, intsets
//! and quicklists that small collections are. `RESTORE` keeps the time to live, the idle time or frequency, elements
//! and their order, and called without a word to replicas it reaches none. But it deletes the key and makes it again,
//! which fails a `WATCH`, tells client-side caches and raises events. So nothing moves while somebody watches or
//! tracks keys, listens to such events, or might ([`refusal`]). That is asked before each slice's first move. What
//! shows: `keyspace_hits` and `rdb_changes_since_last_save` go up, `MONITOR` and `commandstats` tell of the calls.
//!
//! Down it is restored twice, the first time in fast memory: what the server's own tables and the small parts need,
//! they take there. Where a collection lies no address tells, so those that were moved are remembered
//! (`observe/slow_collections.rs`), and what the arena held before and after says now and then whether it worked.
//! Cost: a `DUMP`, one or two `RESTORE`s, 25 µs now and then to count the arena
//! (docs/decisions/07-moving-values.md).

use tenure_core::tiers::Tier;
use tenure_core::units::KeyHash;

use super::mover::Moved;
use crate::ffi::jemalloc::ArenaUse;
use crate::ffi::server::{Age, Key, Kind, Server, Text, listeners};
use crate::ffi::tier_memory::SlowMemory;
use crate::observe::sizes::memory_usage;
use crate::observe::slow_collections::{Held, SlowCollections};

/// What the server says that a collection takes, with its key, in bytes: smaller ones pass through the thread's
/// cache, larger ones take long.
const SIZE_BYTES: std::ops::RangeInclusive<u32> = 512..=64 << 10;
/// A move that leaves less than this in slow memory has left the collection elsewhere, in bytes.
const MOVED_MIN_BYTES: u32 = 256;
/// The arena is counted around one move of so many, and around those of lists, which may be several allocations.
const MOVES_PER_COUNT: u64 = 16;
/// Whether they may move is asked before a slice's first move, and once in so many ticks, for people and for the walk.
const TICKS_PER_QUESTION: u32 = 10;
/// Encodings that are one allocation, or a few large ones.
const COMPACT: [&str; 4] = ["listpack", "intset", "quicklist", "ziplist"];
/// Hashes, sets and sorted sets with more elements aren't, by the server's defaults.
const ELEMENTS_MAX: usize = 512;
/// Longer names would come to lie in slow memory.
const NAME_BYTES_MAX: usize = 128;
/// What is about to expire stays, in ms: restored too late it would be deleted without a word to replicas.
const LIFE_MIN_MS: u64 = 2000;
/// Keys that turned out not to move are remembered in so many places.
const UNFIT_PLACES: usize = 1024;

/// The collections. See the file's opening.
pub struct Collections {
    memory: &'static SlowMemory,
    /// Moves so far.
    moves: u64,
    ticks: u32,
    /// Those tried in this window that are of another encoding, or stayed where they were, by their hash.
    unfit: Vec<KeyHash>,
    /// Why none moves, when it was last asked.
    refusal: Option<&'static str>,
    /// It was asked in this slice.
    is_asked: bool,
}

impl Collections {
    /// Moves between ordinary memory and `memory`.
    pub fn new(memory: &'static SlowMemory) -> Collections {
        Collections {
            memory,
            moves: 0,
            ticks: 0,
            unfit: vec![KeyHash(0); UNFIT_PLACES],
            refusal: None,
            is_asked: false,
        }
    }

    /// Ten times a second; now and then the server is asked whether collections may move at all.
    pub fn tick(&mut self, server: &mut Server) {
        self.begin_slice();
        if self.ticks.is_multiple_of(TICKS_PER_QUESTION) {
            self.may_move(server);
        }
        self.ticks = self.ticks.wrapping_add(1);
    }

    /// Commands have run since the last slice: others may have come to listen.
    pub fn begin_slice(&mut self) {
        self.is_asked = false;
    }

    /// Ends the policy's window: what didn't move is tried again.
    pub fn end_window(&mut self) {
        self.unfit.fill(KeyHash(0));
    }

    /// True where collections may move in this slice. Asks the server once.
    fn may_move(&mut self, server: &mut Server) -> bool {
        if !self.is_asked {
            (self.is_asked, self.refusal) = (true, refusal(server));
        }
        self.refusal.is_none()
    }

    /// Why none moves, when it was last asked.
    pub fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// In which tier a key's collection lies, with the bytes that it takes there; `None` where it isn't one that
    /// moves, as far as that is seen without asking. `size_bytes` is what it takes with its key.
    pub fn tier_of(&self, slow: &SlowCollections, key: &Key, hash: KeyHash, size_bytes: u32) -> Option<(Tier, u32)> {
        if let Some(held) = slow.get(hash).filter(|_| key.kind() == Kind::Collection) {
            return Some((Tier::Slow, held.bytes));
        }
        let is_fit = key.is_plain_collection()
            && (key.is_list() || key.length() <= ELEMENTS_MAX)
            && SIZE_BYTES.contains(&size_bytes)
            && self.unfit[self.place(hash)] != hash;
        is_fit.then_some((Tier::Fast, size_bytes))
    }

    fn place(&self, hash: KeyHash) -> usize {
        hash.0 as usize % self.unfit.len()
    }

    /// Moves the collection under `name` of the selected database.
    pub fn move_to(
        &mut self,
        slow: &mut SlowCollections,
        server: &mut Server,
        (hash, name): (KeyHash, &Text),
        tier: Tier,
    ) -> Moved {
        if tier == Tier::Slow && slow.get(hash).is_some() {
            return Moved::Already;
        }
        if !self.may_move(server) {
            return Moved::Unfit;
        }
        let copy = Copy::of(server, name);
        let moved = copy.map_or(Moved::Unfit, |copy| self.restore(slow, server, (hash, &copy), tier));
        if matches!(moved, Moved::Unfit | Moved::Stray) {
            let place = self.place(hash);
            self.unfit[place] = hash;
        }
        moved
    }

    fn restore(
        &mut self,
        slow: &mut SlowCollections,
        server: &mut Server,
        (hash, copy): (KeyHash, &Copy),
        tier: Tier,
    ) -> Moved {
        self.moves += 1;
        let is_in_doubt = tier == Tier::Fast && slow.get(hash).is_none();
        let is_counted = copy.is_list || is_in_doubt || self.moves.is_multiple_of(MOVES_PER_COUNT);
        let count = || is_counted.then(|| self.memory.used());
        let before = count();
        if !copy.restore(server) {
            return Moved::Unfit;
        }
        let outside = count();
        if tier == Tier::Fast {
            let left = before.zip(outside).map(|(before, outside)| difference(before, outside));
            let left = left.or(slow.get(hash)).unwrap_or_default();
            slow.remove(|| hash);
            return if left.bytes > 0 { Moved::There(left.bytes.into()) } else { Moved::Already };
        }
        // Loaded under limits that were lowered since, it may be made of many small parts now.
        let proof = server.proof();
        if !is_compact(server, copy.name) || self.memory.within(&proof, || copy.restore(server)) != Some(true) {
            return Moved::Unfit;
        }
        let counted = count().zip(outside).map(|(after, outside)| difference(after, outside));
        let held = counted.unwrap_or(Held { bytes: copy.size_bytes, allocations: 1, ..Held::default() });
        if held.bytes < MOVED_MIN_BYTES {
            return Moved::Stray;
        }
        slow.insert(hash, Held { db: server.selected_db(), ..held });
        Moved::There(held.bytes.into())
    }
}

/// What of slow memory was used in `more` and isn't in `less`.
fn difference(more: ArenaUse, less: ArenaUse) -> Held {
    let of = |more: u64, less: u64| u32::try_from(more.saturating_sub(less)).unwrap_or(u32::MAX);
    Held {
        bytes: of(more.allocated_bytes, less.allocated_bytes),
        allocations: of(more.allocations, less.allocations),
        ..Held::default()
    }
}

/// A collection as it is to be restored.
struct Copy<'a> {
    name: &'a Text,
    is_list: bool,
    /// What it takes with its key, as the server says.
    size_bytes: u32,
    payload: Vec<u8>,
    expires_at_ms: String,
    age: [String; 2],
}

impl Copy<'_> {
    /// `None` where the key holds no collection that moves.
    fn of<'a>(server: &mut Server, name: &'a Text) -> Option<Copy<'a>> {
        let key = server.open(name);
        let lives = key.expires_in_ms().is_none_or(|ms| ms >= LIFE_MIN_MS);
        if !key.is_plain_collection() || name.as_ref().len() > NAME_BYTES_MAX || !lives {
            return None;
        }
        let age = match key.age() {
            Age::IdleMs(ms) => ["IDLETIME".to_owned(), (ms / 1000).to_string()],
            Age::Frequency(frequency) => ["FREQ".to_owned(), frequency.to_string()],
        };
        let (is_list, expires_at_ms) = (key.is_list(), key.expires_at_ms().to_string());
        drop(key);
        // What the walk remembers of its size may be old.
        let size_bytes = memory_usage(server, name.as_ref())? as u32;
        if !SIZE_BYTES.contains(&size_bytes) || !is_compact(server, name) {
            return None;
        }
        let payload = server.call(c"DUMP", &[name.as_ref()])?.bytes()?.to_vec();
        Some(Copy { name, is_list, size_bytes, payload, expires_at_ms, age })
    }

    /// Makes the key anew, in the memory that is chosen. Refused by the server it is as it was.
    fn restore(&self, server: &mut Server) -> bool {
        let [age, of_age] = &self.age;
        let words: [&[u8]; 7] = [
            self.name.as_ref(),
            self.expires_at_ms.as_bytes(),
            &self.payload,
            b"REPLACE",
            b"ABSTTL",
            age.as_bytes(),
            of_age.as_bytes(),
        ];
        server.call_here(c"RESTORE", &words).is_some_and(|reply| reply.is_ok())
    }
}

fn is_compact(server: &mut Server, name: &Text) -> bool {
    let encoding = server.call(c"OBJECT", &[b"ENCODING", name.as_ref()]);
    encoding.is_some_and(|reply| reply.text().is_some_and(|text| COMPACT.contains(&text)))
}

/// Why no collection may be made anew now: somebody would notice.
fn refusal(server: &mut Server) -> Option<&'static str> {
    let flags = server.flags();
    if flags.is_replica() && !flags.is_read_only() {
        return Some("this replica may be written to");
    }
    let Some([watching, tracking]) = server.info_fields(c"clients", [c"watching_clients", c"tracking_clients"]) else {
        return Some("this server doesn't say whether keys are watched (Valkey 8 and Redis 7.4 do)");
    };
    if watching != "0" {
        return Some("keys are watched");
    }
    if tracking != "0" {
        return Some("clients track keys");
    }
    // Generic events, those of new keys, or all.
    if server.setting("notify-keyspace-events").is_none_or(|set| set.contains(['g', 'n', 'A'])) {
        return Some("notify-keyspace-events includes g, n or A");
    }
    listeners::are_other_modules().then_some("another module may listen to events")
}
