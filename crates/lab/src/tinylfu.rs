//! W-TinyLFU, aware of size and cost: a window that newcomers pass through, and a main part that they enter if they
//! are asked for more than who would leave for them.
//!
//! Source: Einziger, Friedman and Manes, ACM TOS 2017: a window of 1 % by recency before a segmented LRU (80 %
//! protected); what leaves the window is admitted where its count is above that of the main part's next victim;
//! counts go to 15 and are halved every ten requests for each value held. Sizes by the *aggregated victims* of
//! Einziger et al., 2021 ("Lightweight Robust Size Aware Cache Management"): all that would have to leave for a
//! candidate, together. Times cost is ours: what is compared is count × cost, of the victims added up. Differs:
//! counts are exact where the paper has a sketch and a doorkeeper, which can only help; the window stays as large as
//! it is. A cache that stores every miss can do all that with a window; what a server can do, which keeps no order,
//! is [`SampledTinyLfu`]: of K values drawn at random and the newest the least count × cost / size goes. Cost: O(1)
//! per access, amortised; 16 bytes for each key counted.

use tenure_core::access::{Access, Op};
use tenure_core::error::ConfigError;
use tenure_core::model::key_map::KeyMap;
use tenure_core::policy::cache::{Outcome, SAMPLE_SIZE_MAX, sample_size};
use tenure_core::policy::linked::Lists;
use tenure_core::policy::table::{Entry, Order, Table, TableCache};
use tenure_core::random::Random;
use tenure_core::units::KeyHash;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;
/// The window's share of the capacity, and the protected segment's of the main part.
const WINDOW_SHARE: f64 = 0.01;
const PROTECTED_SHARE: f64 = 0.8;
/// What a counter counts to.
const COUNT_MAX: u8 = 15;
/// Counters are halved after so many requests for each value held.
const REQUESTS_PER_VALUE: usize = 10;
/// How many values are sampled where nothing else is asked for.
pub const SAMPLE_SIZE: u32 = 16;

/// How often keys were asked for of late.
#[derive(Clone, Debug, Default)]
struct Counts {
    counts: KeyMap<u8>,
    requests: usize,
}

impl Counts {
    fn count(&mut self, access: &Access, n_values: usize) {
        if access.op == Op::Delete {
            return;
        }
        let count = self.counts.entry(access.key).or_default();
        *count = (*count + 1).min(COUNT_MAX);
        self.requests += 1;
        if self.requests >= REQUESTS_PER_VALUE * n_values.max(1) {
            self.requests /= 2;
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }

    fn of(&self, key: KeyHash) -> f64 {
        self.counts.get(&key).copied().map_or(0.0, f64::from)
    }

    /// Count × cost.
    fn worth(&self, entry: &Entry) -> f64 {
        self.of(entry.key) * f64::from(entry.penalty_us)
    }
}

/// The order of W-TinyLFU. See the file's opening.
#[derive(Clone, Debug)]
pub struct TinyLfu {
    queues: Lists<3>,
    bytes: [u64; 3],
    capacity_bytes: u64,
    counts: Counts,
}

impl TinyLfu {
    /// A W-TinyLFU cache of `capacity_bytes`.
    pub fn cache(capacity_bytes: u64) -> TableCache<TinyLfu> {
        let order = TinyLfu { queues: Lists::new(), bytes: [0; 3], capacity_bytes, counts: Counts::default() };
        TableCache::new(capacity_bytes, order)
    }

    fn window_bytes_max(&self) -> u64 {
        (WINDOW_SHARE * self.capacity_bytes as f64) as u64
    }

    fn main_bytes_free(&self) -> u64 {
        let main_bytes_max = self.capacity_bytes - self.window_bytes_max();
        main_bytes_max.saturating_sub(self.bytes[PROBATION] + self.bytes[PROTECTED])
    }

    fn shift(&mut self, place: usize, to: usize, size_bytes: u32) {
        let from = self.queues.list_of(place);
        self.queues.unlink(place);
        self.queues.push(to, place);
        self.bytes[from] -= u64::from(size_bytes);
        self.bytes[to] += u64::from(size_bytes);
    }

    /// What the window has too much, with `incoming_bytes` more, goes on to the main part as far as there is room.
    fn pass_on(&mut self, table: &Table, incoming_bytes: u32) {
        while self.bytes[WINDOW] + u64::from(incoming_bytes) > self.window_bytes_max()
            && let Some(oldest) = self.queues.oldest(WINDOW)
        {
            let size_bytes = table.entries()[oldest].size_bytes;
            if u64::from(size_bytes) > self.main_bytes_free() {
                return;
            }
            self.shift(oldest, PROBATION, size_bytes);
        }
    }

    /// The main part's next victim.
    fn main_victim(&self) -> Option<usize> {
        self.queues.oldest(PROBATION).or_else(|| self.queues.oldest(PROTECTED))
    }

    /// Whether a candidate is worth more than all that has to leave the main part for it.
    fn is_admitted(&self, candidate: &Entry, table: &Table) -> bool {
        let (mut freed, mut worth) = (self.main_bytes_free(), 0.0);
        for queue in [PROBATION, PROTECTED] {
            let mut next = self.queues.oldest(queue);
            while let Some(place) = next.filter(|_| freed < u64::from(candidate.size_bytes)) {
                freed += u64::from(table.entries()[place].size_bytes);
                worth += self.counts.worth(&table.entries()[place]);
                next = self.queues.newer(place);
            }
        }
        self.counts.worth(candidate) > worth
    }
}

impl Order for TinyLfu {
    fn victim(&mut self, table: &Table, incoming: &Entry) -> usize {
        self.pass_on(table, incoming.size_bytes);
        let wanted = self.bytes[WINDOW] + u64::from(incoming.size_bytes);
        let candidate = self.queues.oldest(WINDOW).filter(|_| wanted > self.window_bytes_max());
        let main_victim = self.main_victim();
        match (candidate, main_victim) {
            (Some(candidate), Some(victim)) if self.is_admitted(&table.entries()[candidate], table) => victim,
            (Some(candidate), _) => candidate,
            (None, victim) => victim.or_else(|| self.queues.oldest(WINDOW)).expect("a table that is not empty"),
        }
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.queues.push(WINDOW, place);
        self.bytes[WINDOW] += u64::from(table.entries()[place].size_bytes);
        self.pass_on(table, 0);
    }

    fn touched(&mut self, table: &Table, place: usize) {
        let size_bytes = table.entries()[place].size_bytes;
        match self.queues.list_of(place) {
            WINDOW => self.shift(place, WINDOW, size_bytes),
            _ => self.shift(place, PROTECTED, size_bytes),
        }
        let protected_bytes_max = PROTECTED_SHARE * (self.capacity_bytes - self.window_bytes_max()) as f64;
        while self.bytes[PROTECTED] as f64 > protected_bytes_max
            && let Some(oldest) = self.queues.oldest(PROTECTED)
        {
            self.shift(oldest, PROBATION, table.entries()[oldest].size_bytes);
        }
    }

    fn removed(&mut self, table: &Table, place: usize) {
        self.bytes[self.queues.list_of(place)] -= u64::from(table.entries()[place].size_bytes);
        self.queues.unlink(place);
    }

    fn moved(&mut self, from: usize, to: usize) {
        self.queues.moved(from, to);
    }

    fn observed(&mut self, access: &Access, _outcome: Outcome, table: &Table) {
        self.counts.count(access, table.entries().len());
    }
}

/// TinyLFU as a server could have it, by samples. See the file's opening.
#[derive(Clone, Debug)]
pub struct SampledTinyLfu {
    k: usize,
    counts: Counts,
    newest: Option<KeyHash>,
    random: Random,
}

impl SampledTinyLfu {
    /// A cache of `capacity_bytes` that samples `k` values (1 to 64) per eviction.
    ///
    /// # Errors
    /// [`ConfigError::SampleSize`] for another `k`.
    pub fn cache(k: u32, capacity_bytes: u64, seed: u64) -> Result<TableCache<SampledTinyLfu>, ConfigError> {
        let k = sample_size(k)?;
        let (counts, random) = (Counts::default(), Random::new(seed));
        Ok(TableCache::new(capacity_bytes, SampledTinyLfu { k, counts, newest: None, random }))
    }
}

impl Order for SampledTinyLfu {
    fn victim(&mut self, table: &Table, _incoming: &Entry) -> usize {
        let mut drawn = [0; SAMPLE_SIZE_MAX as usize];
        let drawn = table.draw(self.k, &mut self.random, &mut drawn).iter().map(|&place| place as usize);
        let newest = self.newest.and_then(|key| table.place_of(key));
        let density = |place: usize| {
            let entry = &table.entries()[place];
            self.counts.worth(entry) / f64::from(entry.size_bytes.max(1))
        };
        let lowest = drawn.chain(newest).min_by(|&a, &b| density(a).total_cmp(&density(b)));
        lowest.expect("the table isn't empty")
    }

    fn stored(&mut self, table: &Table, place: usize) {
        self.newest = Some(table.entries()[place].key);
    }

    fn observed(&mut self, access: &Access, _outcome: Outcome, table: &Table) {
        self.counts.count(access, table.entries().len());
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::policy::cache::Cache;

    use super::*;

    fn read(number: u64, size_bytes: u32, penalty_us: f32) -> Access {
        Access { penalty_us, ..Access::read(KeyHash::of_number(number), size_bytes) }
    }

    /// Two hundred fit, so the window has room for two. 150 keys, each asked for twice, outlast a scan of ten
    /// thousand others.
    #[test]
    fn a_scan_is_not_admitted() {
        let mut cache = TinyLfu::cache(200);
        for number in (0..150).chain(0..150).chain(1_000..11_000) {
            cache.access(&read(number, 1, 10.0));
        }
        let hits = (0..150).filter(|&number| cache.access(&read(number, 1, 10.0)) == Outcome::Hit).count();
        assert!(hits >= 145, "{hits}");
    }

    /// Of 198 values of one byte, asked for twice at 10 µs, 190 stay when one of ten bytes comes, too large for the
    /// window. It is a candidate with the next newcomer: the main part has 8 of its 198 free, so two would leave for
    /// it. Asked for twice as well it has to be worth more than both: 2 × 20 is not, 2 × 21 is.
    #[test]
    fn a_large_candidate_is_compared_with_all_that_it_displaces() {
        let stays = |penalty_us| {
            let mut cache = TinyLfu::cache(200);
            (0..198).chain(0..198).for_each(|number| _ = cache.access(&read(number, 1, 10.0)));
            cache.access(&read(1_000, 10, penalty_us));
            cache.access(&read(1_000, 10, penalty_us));
            cache.access(&read(2_000, 1, 0.0));
            cache.table().place_of(KeyHash::of_number(1_000)).is_some()
        };
        assert_eq!((stays(20.0), stays(21.0)), (false, true));
    }

    /// Of all values, counts being equal, the cheapest per byte goes, were it the newest.
    #[test]
    fn sampled_the_cheapest_per_byte_goes() {
        let mut cache = SampledTinyLfu::cache(64, 40, 1).unwrap();
        for number in 0..4 {
            cache.access(&read(number, 10, 50.0));
        }
        cache.access(&read(9, 10, 10.0));
        cache.access(&read(8, 10, 60.0));
        assert!(cache.table().place_of(KeyHash::of_number(9)).is_none(), "it was the newest, and went for the next");
        assert!(cache.table().place_of(KeyHash::of_number(8)).is_some());
    }

    #[test]
    fn the_account_is_kept_under_deletes_and_changing_sizes() {
        let mut cache = TinyLfu::cache(300);
        let mut random = Random::new(1);
        for i in 0..30_000_u64 {
            let access = read(random.below(90), 1 + random.below(30) as u32, random.below(100) as f32);
            cache.access(&if i % 7 == 0 { access.with_op(Op::Delete) } else { access });
            let sum: u64 = cache.order().bytes.iter().sum();
            assert!(cache.used_bytes() <= 300 && sum == cache.used_bytes());
        }
    }
}
