//! The evictor: frees memory below the server's limit, from partitions that hold more than their target.
//!
//! Who gives up a key and which is decided in `tenure_core::policy::pools`, after pRedis (Pan et al., SoCC'19) sec.
//! 5; the walk through the key space feeds it. All this happens at the end of an event loop's turn, in a slice of
//! bounded time, a little below `maxmemory`, so that the server's own eviction has nothing left to do; when Tenure
//! can't keep up, it is there. Cost: about K scanned keys and one unlink per eviction, more where a partition that
//! gives has a small share of the keys; bounded per turn by `tenure.turn-budget-us`.

use std::time::Instant;

use tenure_core::departure::{Cause, Departure};
use tenure_core::key_table::{self, Entry};
use tenure_core::policy::density::{GreedyAges, Ranks, Subject, Thrift, Value, was_accessed};
use tenure_core::policy::over_target::OverTarget;
use tenure_core::policy::pools::{Donor, PATIENCE, Pools};
use tenure_core::random::Random;
use tenure_core::units::{KeyHash, PARTITIONS_MAX, PartitionId};

use super::newcomers::{Newcomers, Oldest};
use super::orders::{Limits, Orders, Scoring, may_give, others};
use super::ranks;
use super::sight::{Sight, look_at, was_used};
use super::slice::{Search, Slice};
use super::unread::{self, Unread, Verdict};
use super::walk::{Guides, Stretch, Walk, draw_db};
use crate::ffi::server::{Kind, ScannedName, Server, Text, Unlinks};
use crate::observe::LateAccess;
use crate::observe::partitions::in_database;
use crate::worker::Evictions;

/// Steps of the walk between two looks at the clock, where one key is to go, and where more are.
const STEPS_PER_LOOK: usize = 8;
const STEPS_PER_LONG_LOOK: usize = 32;

/// One victim in so many is searched for in any case.
const SEARCHED_ONE_IN: u32 = 128;
/// Nobody asks the server how long a newcomer is idle before it is opened.
const LONG_AGO_MS: u64 = 1 << 32;

/// Under a volatile policy newcomers are victims where so many of the last have a time to live, which they get once
/// they are there…
const EXPIRING_MIN: f32 = 0.75;
/// … by a mean in which the last weighs so much.
const EXPIRING_WEIGHT: f32 = 1.0 / 16.0;
/// Where newcomers are no victims, for they don't expire or free too little, one in so many is taken all the same.
const TRIED_ONE_IN: u32 = 16;

/// From this K on, of the four that are planned with, the oldest key is as good as the oldest of a sample.
const NEARLY_LRU: usize = 8;

/// What has been done since the module was loaded.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Keys evicted, by partition.
    pub evicted: Vec<u64>,
    /// Of them, those that went without a search.
    pub unsearched: u64,
    /// Bytes evicted, as estimated.
    pub evicted_bytes: u64,
    /// Time spent, in µs.
    pub spent_us: u64,
    /// The longest slice, in µs.
    pub slice_us_max: u64,
    /// Slices that ended with work left to do.
    pub slices_out_of_time: u64,
    /// Accesses that went unseen, told of by the server's clock when their keys were met.
    pub late_accesses: u64,
}

/// What a slice has done.
pub struct Relief {
    /// Keys that went.
    pub evicted: usize,
    /// Its time was over before enough was freed.
    pub ran_out: bool,
}

struct Victim {
    name: Text,
    db: u16,
    sight: Sight,
    found: Found,
}

/// How a victim was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The walk has met it.
    Met,
    /// It has come, and was at hand.
    AtHand,
    /// It has come, and goes without a search.
    Unsearched,
}

/// The evictor. See the file's opening.
pub struct Evictor {
    pools: Pools<Victim>,
    /// Keys of partitions that the walk rarely meets.
    pub newcomers: Newcomers,
    /// Keys that came, where they may go without a search.
    pub unread: unread::Queue<Unread>,
    thrift: Thrift,
    /// Victims until the next is searched for.
    searches_in: u32,
    /// Under a volatile policy, the share of newcomers that expire.
    expiring: f32,
    /// The ages of GDSF, under Tenure's own policy.
    pub ages: GreedyAges,
    /// Accesses that went unseen, of keys that the last slice has met.
    pub late: Vec<LateAccess>,
    /// Picks databases and newcomers.
    random: Random,
    /// What has been done.
    pub work: Work,
}

impl Evictor {
    /// An evictor at rest; `age_step` as [`GreedyAges::new`] has it.
    pub fn new(age_step: u64) -> Self {
        let work = Work { evicted: vec![0; PARTITIONS_MAX], ..Work::default() };
        Evictor {
            pools: Pools::new(1),
            newcomers: Newcomers::new(),
            unread: unread::Queue::default(),
            thrift: Thrift::default(),
            searches_in: 0,
            expiring: 1.0,
            ages: GreedyAges::new(age_step),
            late: Vec::new(),
            random: Random::new(1),
            work,
        }
    }

    /// What it has done, and the server besides, for the worker.
    pub fn so_far(&self, by_server: u64) -> Evictions {
        let Work { evicted, spent_us, .. } = &self.work;
        Evictions { keys: evicted.iter().sum(), spent_us: *spent_us, met: self.pools.used_up(), by_server }
    }

    /// Forgets the shortlists: they were made under another policy.
    pub fn forget_victims(&mut self) {
        self.pools.clear();
    }

    /// True where most newcomers have a time to live.
    pub fn most_expire(&self) -> bool {
        self.expiring >= EXPIRING_MIN
    }

    /// True where another newcomer of the partition need not be looked at, for what was met lasts for a while.
    pub fn has_met_enough(&self, partition: PartitionId) -> bool {
        self.pools.is_full(partition)
    }

    /// A key has come, and may be the next to go.
    pub fn offer(
        &mut self,
        partition: PartitionId,
        ranks: &Ranks,
        subject: &Subject,
        entry: Option<&Entry>,
        (name, db): (&ScannedName, u16),
    ) {
        let score = ranks.ranker(&self.ages).score(subject);
        let last = entry.map(|entry| entry.last);
        let sight = Sight { last, size_bytes: subject.size_bytes, ..Sight::default() };
        let victim = || Victim { name: name.keep(), db, sight, found: Found::AtHand };
        self.pools.offer(partition, f64::from(score), victim);
    }

    /// One slice of work. What went is among the `unlinks` then.
    pub fn relieve(
        &mut self,
        server: &mut Server,
        unlinks: &mut Unlinks,
        walk: &mut Walk,
        guides: &mut Guides,
        orders: &Orders,
    ) -> Relief {
        let started = Instant::now();
        self.pools.set_sample_sizes(orders.sample_size, orders.sample_sizes);
        self.pools.keep_to_sample_sizes(orders.keeps_to_samples);
        self.thrift.forget();
        let mut limits = Limits::of(orders);
        let mut slice = Slice::begun_at(started, orders, self.unread.take_newcomers());
        let ran_out = loop {
            let Some(donor) = limits.next_donor(guides, slice.is_short()) else { break false };
            if slice.is_over(orders) {
                break slice.has_left_some(orders);
            }
            let victim = match self.unsearched(guides, orders, &limits, donor) {
                Some(victim) => {
                    slice.goes_unsearched(donor);
                    Some(victim)
                }
                None => {
                    let search = slice.search(orders, donor, limits.excess_bytes(guides, donor));
                    self.find(server, walk, guides, orders, &search)
                }
            };
            let Some(victim) = victim else {
                if limits.pass_over(donor) {
                    continue;
                }
                break false;
            };
            slice.went(orders, self.evict(server, unlinks, guides, orders, victim));
            if slice.is_in_vain() {
                break false;
            }
        };
        self.work.slices_out_of_time += u64::from(ran_out);
        let spent_us = started.elapsed().as_micros() as u64;
        self.work.spent_us += spent_us;
        self.work.slice_us_max = self.work.slice_us_max.max(spent_us);
        server.note_latency(c"tenure-eviction", spent_us);
        Relief { evicted: slice.evicted(), ran_out }
    }

    /// The next victim: from the donor's pool, once K of its keys were met. `None` where they don't turn up; where
    /// time runs out and memory is short, the longest idle of those that hold more than their target: nobody below it
    /// pays for another.
    fn find(
        &mut self,
        server: &mut Server,
        walk: &mut Walk,
        guides: &mut Guides,
        orders: &Orders,
        &Search { donor, short, at_once, until }: &Search,
    ) -> Option<Victim> {
        if let Some(victim) = self.newcomer(server, guides, orders, donor) {
            return Some(victim);
        }
        let may_give = may_give(guides, orders);
        let patience = PATIENCE * self.pools.sample_size(donor);
        // Where there are more, each step is in a database drawn for it.
        let steps_at_once = match (orders.db_sizes.len(), at_once) {
            (1, 1) => STEPS_PER_LOOK,
            (1, _) => STEPS_PER_LONG_LOOK,
            _ => 1,
        };
        let (mut met, mut steps, mut looked_after, mut selected) = (0, 0, 0, None);
        loop {
            if self.pools.will_do(donor, met)
                && let Some(victim) = self.take(donor, may_give)
            {
                return Some(victim);
            }
            let is_look_due = steps + 1 >= looked_after + STEPS_PER_LOOK;
            if is_look_due {
                looked_after = steps;
            }
            let out_of_time = is_look_due && Instant::now() >= until;
            if met >= patience || steps >= 2 * patience || out_of_time {
                let taken = self.take(donor, may_give);
                return match short && out_of_time {
                    true => taken.or_else(|| self.pools.take_of(others(guides, orders, may_give))),
                    false => taken,
                };
            }
            let db = self.pick_db(guides, orders, donor)?;
            // Nobody turns to another database within the search.
            if selected.replace(db) != Some(db) && !server.select_db(db) {
                steps += 1;
                continue;
            }
            let stretch = Stretch { keys: self.pools.missing(donor, at_once).max(1), steps: steps_at_once };
            let Evictor { pools, ages, late, .. } = self;
            let gone = walk.steps_here(server, db, guides, stretch, |visit, keys| {
                if !may_give.holds(visit.partition) || (orders.volatile_only && visit.key.expires_in_ms().is_none()) {
                    return;
                }
                let (score, sight) = look_at(visit, keys, orders, ages, late);
                let victim = || Victim { name: visit.name.keep(), db: visit.db, sight, found: Found::Met };
                pools.offer(visit.partition, score, victim);
            });
            met += gone.keys;
            steps += gone.steps;
        }
    }

    /// The donor's worst key; where anyone gives, that of those who may.
    fn take(&mut self, donor: Donor, may_give: OverTarget) -> Option<Victim> {
        match donor {
            Donor::Anyone => self.pools.take_of(may_give),
            partition => self.pools.take(partition),
        }
    }

    /// A key of a donor that the walk rarely meets: its oldest, or the longest idle of K where K was chosen small.
    fn newcomer(&mut self, server: &mut Server, guides: &Guides, orders: &Orders, donor: Donor) -> Option<Victim> {
        let Donor::Partition(id) = donor else { return None };
        let keys = guides.usage.keys()[id.index()];
        // What is worth least isn't told by age.
        let by_age = matches!(orders.scoring, Scoring::Idle);
        if orders.volatile_only || !by_age || self.pools.is_ready(donor) || !self.newcomers.cover(id, keys) {
            return None;
        }
        let k = self.pools.sample_size(donor);
        let Oldest { name, db, idle } = if orders.keeps_to_samples && k < NEARLY_LRU {
            self.newcomers.oldest_of(server, id, k, &mut self.random)?
        } else {
            self.newcomers.oldest(server, id, orders.now_us)?
        };
        Some(Victim { name, db, sight: Sight { idle, ..Sight::default() }, found: Found::AtHand })
    }

    /// A newcomer that wasn't accessed since, where looking for a better victim would take more than that can save.
    fn unsearched(&mut self, guides: &mut Guides, orders: &Orders, limits: &Limits, donor: Donor) -> Option<Victim> {
        let (Some(thrifty), Scoring::Ranked(ranks)) = (orders.thrifty, &orders.scoring) else { return None };
        // What is searched for keeps to know how old such victims are.
        self.searches_in = if self.searches_in == 0 { SEARCHED_ONE_IN } else { self.searches_in } - 1;
        let pays = !self.thrift.finds_larger() && (!orders.volatile_only || self.most_expire());
        let is_tried = pays || self.searches_in.is_multiple_of(TRIED_ONE_IN);
        if self.searches_in == 0 || !is_tried {
            return None;
        }
        let these = limits.may_go(guides, orders, donor);
        // Who is above its maximum shrinks, whatever a search would save: it takes others' memory.
        let must_go = donor != Donor::Anyone && thrifty.runs_out;
        let Evictor { unread, thrift, .. } = self;
        let Unread { name, db, came, .. } = unread.take(thrifty.limit_bytes, |key| {
            if !these.holds(key.partition) {
                return Verdict::Waits;
            }
            let entry = guides.partitions.keys.entry(in_database(KeyHash::of(key.name.as_ref()), key.db));
            if entry.is_some_and(|entry| entry.n_requests == 0) {
                return Verdict::HasGone;
            }
            let partition = guides.partitions.of(key.db, key.name.as_ref());
            if was_accessed(entry.as_ref(), Some(key.came)) || !these.holds(partition) {
                return Verdict::Stays;
            }
            let value = Value { partition, size_bytes: guides.sizes.mean_bytes(partition), expires_in_ms: None };
            match must_go || thrift.may_go(ranks, &ranks.subject(entry.as_ref(), value, || LONG_AGO_MS)) {
                true => Verdict::Goes,
                false => Verdict::Stays,
            }
        })?;
        let sight = Sight { last: Some(came), ..Sight::default() };
        Some(Victim { name, db, sight, found: Found::Unsearched })
    }

    /// A database to sample, by its number of keys, among those that may hold the donor's.
    fn pick_db(&mut self, guides: &Guides, orders: &Orders, donor: Donor) -> Option<u16> {
        if let [(only, _)] = orders.db_sizes {
            return Some(*only);
        }
        let gives = match donor {
            Donor::Partition(id) => Some(id),
            Donor::Anyone => None,
        };
        let may_hold =
            |db: u16| gives.is_none_or(|id| guides.partitions.whole_database(db).is_none_or(|whole| whole == id));
        draw_db(&mut self.random, orders.db_sizes, may_hold)
            .or_else(|| draw_db(&mut self.random, orders.db_sizes, |_| true))
    }

    /// Evicts one key, unless it was used since it was shortlisted. Bytes freed.
    fn evict(
        &mut self,
        server: &mut Server,
        unlinks: &mut Unlinks,
        guides: &mut Guides,
        orders: &Orders,
        victim: Victim,
    ) -> Option<u64> {
        server.select_db(victim.db);
        let keys_before = server.db_size();
        let key = server.open_or_expire(&victim.name);
        let hash = KeyHash::of(victim.name.as_ref());
        let hash = || hash;
        let partition = guides.partitions.of(victim.db, victim.name.as_ref());
        if key.kind() == Kind::Absent {
            drop(key);
            // Looking it up has removed it, if nothing else has.
            let has_expired = victim.sight.is_expired && server.db_size() < keys_before;
            return has_expired.then(|| expired(guides, &victim, hash, partition));
        }
        if victim.sight.idle > 0 && key.idle() < victim.sight.idle {
            return None;
        }
        if orders.volatile_only {
            let expires = key.expires_in_ms().is_some();
            if victim.found != Found::Met {
                self.expiring += EXPIRING_WEIGHT * (f32::from(u8::from(expires)) - self.expiring);
            }
            if !expires {
                return None;
            }
        }
        let entry = guides.partitions.keys.entry(in_database(hash(), victim.db));
        if was_used(&orders.scoring, entry.as_ref(), &victim.sight) {
            return None;
        }
        // Who wasn't accessed since takes what it took; nobody is asked about whom no search is for.
        let size_bytes = match victim.sight.size_bytes {
            0 if victim.found == Found::Unsearched => guides.sizes.roughly(partition, &victim.name, hash, &key),
            0 => guides.sizes.of(partition, &victim.name, hash, &key),
            seen => seen,
        };
        let subject = match &orders.scoring {
            Scoring::Ranked(ranks) => {
                Some((ranks::subject(ranks, entry.as_ref(), partition, size_bytes, &key), ranks.clock.now))
            }
            _ => None,
        };
        // The server knows of accesses that went unseen.
        if victim.found == Found::Unsearched
            && let (Some(came), Some((subject, _))) = (victim.sight.last, &subject)
            && (subject.last as u32).wrapping_sub(came).cast_signed() > 0
        {
            return None;
        }
        key.signal_removal(&victim.name);
        if !key.unlink() {
            return None;
        }
        if let Some((subject, now)) = subject {
            self.ages.evicted(&subject, now);
            self.thrift.freed(size_bytes, victim.found != Found::Unsearched);
            if victim.found == Found::Met {
                self.thrift.searched(now.saturating_sub(subject.last));
            }
        }
        self.work.unsearched += u64::from(victim.found == Found::Unsearched);
        guides.partitions.gone(victim.db, hash, Departure::evicted_at(key_table::tick(orders.now_us)));
        server.signal_removed(&victim.name);
        server.notify_evicted(&victim.name);
        unlinks.add(server, victim.db, victim.name);
        guides.evicted(victim.db, partition, size_bytes, victim.found == Found::Met);
        self.work.evicted[partition.index()] += 1;
        self.work.evicted_bytes += u64::from(size_bytes);
        Some(u64::from(size_bytes))
    }
}

/// The victim was there no more when it was looked up: its time was up. Returns what that has freed, in bytes.
fn expired(guides: &mut Guides, victim: &Victim, hash: impl Fn() -> KeyHash, partition: PartitionId) -> u64 {
    let size_bytes = match victim.sight.size_bytes {
        0 => guides.sizes.mean_bytes(partition),
        seen => seen,
    };
    guides.partitions.gone(victim.db, hash, Departure::by(Cause::Expired));
    guides.evicted(victim.db, partition, size_bytes, victim.found == Found::Met);
    u64::from(size_bytes)
}
