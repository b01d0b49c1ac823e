//! What all simulated caches share: the table of resident values, and the rules of [`cache`](super::cache) carried
//! out once.
//!
//! A policy is an [`Order`]: it hears what happens to the table and names a victim when room is needed. Values lie
//! densely in one array, so that a sample is a few random places; when one leaves, the last takes its place and the
//! order is told. Cost: one look-up per access (about 30 ns where the table doesn't fit the processor's cache); about
//! 75 bytes per value.

use super::cache::{AHEAD, Cache, Outcome};
use super::{Candidate, Inspect, Snapshot};
use crate::access::{Access, Op};
use crate::expiry::{ExpiryQueue, expires_us_after};
use crate::model::key_map::KeyMap;
use crate::random::Random;
use crate::units::{KeyHash, PartitionId};

/// With fewer values all lies near: the processor's own cache has a megabyte or two.
const WARMED_FROM: usize = 1 << 14;

/// A resident value. 48 bytes. Times are request numbers unless they say µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// Its key.
    pub key: KeyHash,
    /// Request number of its last access.
    pub last_access: u64,
    /// Request number at which it entered.
    pub entered: u64,
    /// When it expires, in µs.
    pub expires_us: u64,
    /// In bytes.
    pub size_bytes: u32,
    /// Requests for it since it entered, that one included.
    pub n_requests: u32,
    /// What a miss of it costs, in µs.
    pub penalty_us: f32,
    /// Where it belongs.
    pub partition: PartitionId,
}

impl Entry {
    /// What a scorer sees of it at request number `now`.
    #[inline]
    pub fn candidate(&self, now: u64) -> Candidate {
        Candidate {
            partition: self.partition,
            idle: now - self.last_access,
            resident: now - self.entered,
            n_requests: self.n_requests,
            size_bytes: self.size_bytes,
            penalty_us: self.penalty_us,
        }
    }
}

/// Which value goes next. Places are indices of [`Table::entries`]; hooks are called after the table has changed, but
/// for [`Order::removed`].
pub trait Order {
    /// The place of the value to evict so that `incoming` fits. The table is not empty. An order whose bookkeeping
    /// moves a value by naming it as a victim may rely on its being removed next.
    fn victim(&mut self, table: &Table, incoming: &Entry) -> usize;

    /// A value entered at `place`, or came back after its size had changed.
    fn stored(&mut self, _table: &Table, _place: usize) {}

    /// The value at `place` was accessed or written, and stays.
    fn touched(&mut self, _table: &Table, _place: usize) {}

    /// The value at `place` is about to leave.
    fn removed(&mut self, _table: &Table, _place: usize) {}

    /// The value at `from`, the last place, now lies at `to`.
    fn moved(&mut self, _from: usize, _to: usize) {}

    /// Where what `access` stores belongs.
    fn partition_of(&self, _access: &Access) -> PartitionId {
        PartitionId(0)
    }

    /// Hears every access, once it is done.
    fn observed(&mut self, _access: &Access, _outcome: Outcome, _table: &Table) {}

    /// A word of what hearing an access of `key` needs. See [`Cache::warm`].
    fn warm(&self, _key: KeyHash) -> u32 {
        0
    }

    /// Shows what the policy has decided. See [`Inspect`].
    fn snapshot(&self, _table: &Table) -> Snapshot {
        Snapshot::default()
    }
}

/// The resident values and their account.
#[derive(Clone, Debug)]
pub struct Table {
    entries: Vec<Entry>,
    place_of: KeyMap<u32>,
    expiries: ExpiryQueue,
    capacity_bytes: u64,
    used_bytes: u64,
    clock: u64,
}

impl Table {
    fn new(capacity_bytes: u64) -> Self {
        Table {
            entries: Vec::new(),
            place_of: KeyMap::default(),
            expiries: ExpiryQueue::default(),
            capacity_bytes,
            used_bytes: 0,
            clock: 0,
        }
    }

    /// The resident values, in no order.
    #[inline]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where a key's value lies.
    #[inline]
    pub fn place_of(&self, key: KeyHash) -> Option<usize> {
        self.place_of.get(&key).map(|&place| place as usize)
    }

    /// The number of the present request.
    #[inline]
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// What the cache may hold, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Places of `k` values drawn at random, written into `drawn`: all of them where there are no more, each with the
    /// same chance. A value may be drawn twice where there are more than 8 k (one draw in 16 at most).
    #[inline]
    pub fn draw<'a>(&self, k: usize, random: &mut Random, drawn: &'a mut [u32]) -> &'a [u32] {
        draw_from(self.entries.len(), k, random, drawn)
    }
}

/// `k` numbers below `n`, written into `drawn`. See [`Table::draw`].
#[inline]
pub(super) fn draw_from<'a>(n: usize, k: usize, random: &mut Random, drawn: &'a mut [u32]) -> &'a [u32] {
    let k = k.min(n).min(drawn.len());
    if n == k {
        drawn[..k].iter_mut().enumerate().for_each(|(i, slot)| *slot = i as u32);
    } else if n > 8 * k {
        drawn[..k].iter_mut().for_each(|slot| *slot = random.below(n as u64) as u32);
    } else {
        // Floyd's draw without replacement.
        for (count, last) in (n - k..n).enumerate() {
            let number = random.below(last as u64 + 1) as u32;
            drawn[count] = if drawn[..count].contains(&number) { last as u32 } else { number };
        }
    }
    &drawn[..k]
}

/// A simulated cache whose victims `O` names.
#[derive(Clone, Debug)]
pub struct TableCache<O> {
    table: Table,
    order: O,
    evictions: u64,
}

impl<O: Order> TableCache<O> {
    /// An empty cache of `capacity_bytes`.
    pub fn new(capacity_bytes: u64, order: O) -> Self {
        TableCache { table: Table::new(capacity_bytes), order, evictions: 0 }
    }

    /// The policy.
    pub fn order(&self) -> &O {
        &self.order
    }

    /// The policy, to set it up.
    pub fn order_mut(&mut self) -> &mut O {
        &mut self.order
    }

    /// The resident values.
    pub fn table(&self) -> &Table {
        &self.table
    }

    fn expire(&mut self, now_us: u64) {
        while let Some((key, expires_us)) = self.table.expiries.pop_expired(now_us) {
            let place = self.table.place_of(key);
            if let Some(place) = place.filter(|&p| self.table.entries[p].expires_us == expires_us) {
                self.remove_at(place);
            }
        }
    }

    fn remove_at(&mut self, place: usize) -> Entry {
        self.order.removed(&self.table, place);
        let table = &mut self.table;
        let gone = table.entries.swap_remove(place);
        table.place_of.remove(&gone.key);
        table.used_bytes -= u64::from(gone.size_bytes);
        if let Some(moved) = table.entries.get(place) {
            table.place_of.insert(moved.key, place as u32);
            self.order.moved(table.entries.len(), place);
        }
        gone
    }

    /// Stores a value that is not in the table, if it may fit at all.
    fn store(&mut self, entry: Entry) {
        let size_bytes = u64::from(entry.size_bytes);
        if size_bytes > self.table.capacity_bytes {
            return;
        }
        while self.table.used_bytes + size_bytes > self.table.capacity_bytes {
            let victim = self.order.victim(&self.table, &entry);
            self.remove_at(victim);
            self.evictions += 1;
        }
        let table = &mut self.table;
        let place = table.entries.len();
        table.used_bytes += size_bytes;
        table.place_of.insert(entry.key, place as u32);
        table.expiries.push(entry.key, entry.expires_us);
        table.entries.push(entry);
        self.order.stored(&self.table, place);
    }

    fn request(&mut self, access: &Access) -> Outcome {
        self.table.clock += 1;
        match self.table.place_of(access.key) {
            Some(place) => {
                self.touch(place, access);
                Outcome::Hit
            }
            None => {
                self.store(Entry {
                    key: access.key,
                    last_access: self.table.clock,
                    entered: self.table.clock,
                    expires_us: expires_us_after(access, None),
                    size_bytes: access.size_bytes,
                    n_requests: 1,
                    penalty_us: access.penalty_us,
                    partition: self.order.partition_of(access),
                });
                Outcome::Miss
            }
        }
    }

    fn touch(&mut self, place: usize, access: &Access) {
        let partition = self.order.partition_of(access);
        let table = &mut self.table;
        let entry = &mut table.entries[place];
        entry.last_access = table.clock;
        entry.n_requests += 1;
        entry.penalty_us = access.penalty_us;
        let expires_us = expires_us_after(access, Some(entry.expires_us));
        if (entry.size_bytes, entry.expires_us, entry.partition) == (access.size_bytes, expires_us, partition) {
            self.order.touched(&self.table, place);
            return;
        }
        // Out and in again, so that no order sees a value change under its hands, and no value makes room at its own
        // expense.
        let before = self.remove_at(place);
        self.store(Entry { size_bytes: access.size_bytes, expires_us, partition, ..before });
    }
}

impl<O: Order> Cache for TableCache<O> {
    #[inline]
    fn access(&mut self, access: &Access) -> Outcome {
        self.expire(access.time_us);
        let outcome = if access.op == Op::Delete {
            if let Some(place) = self.table.place_of(access.key) {
                self.remove_at(place);
            }
            Outcome::NotARequest
        } else {
            self.request(access)
        };
        self.order.observed(access, outcome, &self.table);
        outcome
    }

    fn warm(&self, next: &[Access]) {
        if self.table.entries.len() < WARMED_FROM {
            return;
        }
        // Where values lie is known once all look-ups are done: none waits for another.
        let mut places = [None; AHEAD];
        let mut near = 0;
        for (place, access) in places.iter_mut().zip(next) {
            *place = self.table.place_of(access.key);
            near ^= self.order.warm(access.key);
        }
        for place in places.into_iter().flatten() {
            near ^= self.table.entries[place].n_requests;
        }
        std::hint::black_box(near);
    }

    fn used_bytes(&self) -> u64 {
        self.table.used_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.table.capacity_bytes
    }

    fn evictions(&self) -> u64 {
        self.evictions
    }
}

impl<O: Order> Inspect for TableCache<O> {
    fn snapshot(&self) -> Snapshot {
        self.order.snapshot(&self.table)
    }
}
