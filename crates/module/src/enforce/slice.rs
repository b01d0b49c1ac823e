//! How far a slice of eviction has come, and what it may still take of the main thread's time.

use std::time::{Duration, Instant};

use tenure_core::policy::pools::Donor;

use super::orders::Orders;

/// Victims in a row that were gone or used again: enough for this turn.
const FAILURES_MAX: usize = 16;

/// Minimum evictions per slice under pressure, ignoring the budget: its time may have passed while another program
/// had the core. What Tenure leaves over the server takes from whoever is idle longest, a guaranteed tenant first.
pub const EVICTED_MIN: usize = 32;

/// Of those that go without a search as many as have come are in nobody's budget under pressure: the server takes as
/// long for each that Tenure leaves over. No more than so many in one slice.
const UNSEARCHED_MAX: usize = 4096;

/// For these the search may last so many times a turn's share of time.
const URGENT: u32 = 4;

/// So many keys are looked for at once, and so many more go than have to: a walk begun and ended for each costs as much
/// as two keys more that it meets, and a slice for each twice as much.
pub const VICTIMS_AT_ONCE: usize = 8;

/// Whose key is looked for.
pub(super) struct Search {
    pub(super) donor: Donor,
    /// Memory is short, and not the donor alone too large.
    pub(super) short: bool,
    /// Keys that are to go one after the other: as many are made ready where the walk goes on anyway.
    pub(super) at_once: usize,
    /// It lasts until then.
    pub(super) until: Instant,
}

/// The slice under way. See the file's opening.
pub(super) struct Slice {
    /// Bytes that are to go…
    free_bytes: u64,
    /// … and those that have.
    freed_bytes: u64,
    /// Keys that have gone, and what the last one took.
    evicted: usize,
    last_bytes: Option<u64>,
    failures: usize,
    /// Of keys that go without a search so many may in nobody's time, and so many have.
    newcomers: usize,
    unbudgeted: usize,
    searching: Searching,
}

impl Slice {
    /// So many keys have `come` since the last one.
    pub(super) fn begun_at(started: Instant, orders: &Orders, come: usize) -> Slice {
        Slice {
            free_bytes: orders.free_bytes,
            freed_bytes: 0,
            evicted: 0,
            last_bytes: None,
            failures: 0,
            newcomers: if orders.evicted_min > 0 { come.min(UNSEARCHED_MAX) } else { 0 },
            unbudgeted: 0,
            searching: Searching::begun_at(started),
        }
    }

    /// Keys that have gone.
    pub(super) fn evicted(&self) -> usize {
        self.evicted
    }

    /// True while more is to go.
    pub(super) fn is_short(&self) -> bool {
        self.freed_bytes < self.free_bytes
    }

    /// True where its time is over.
    pub(super) fn is_over(&self, orders: &Orders) -> bool {
        !self.must_go_on(orders) && self.searching.spent() >= orders.budget
    }

    /// True where something that has to go is left. What was to be freed besides is none of it.
    pub(super) fn has_left_some(&self, orders: &Orders) -> bool {
        orders.free_bytes == 0 || self.freed_bytes < orders.free_bytes
    }

    /// True where one victim after the other is gone or used again.
    pub(super) fn is_in_vain(&self) -> bool {
        self.failures > FAILURES_MAX
    }

    fn must_go_on(&self, orders: &Orders) -> bool {
        self.evicted < orders.evicted_min + self.unbudgeted
    }

    /// The next victim goes without a search. Of a partition above its maximum it takes none of the slice's time: who
    /// is so shrinks, whatever comes. At the limit the server's own search costs less.
    pub(super) fn goes_unsearched(&mut self, donor: Donor) {
        let is_budgeted = self.unbudgeted >= self.newcomers;
        self.unbudgeted += usize::from(!is_budgeted);
        if is_budgeted {
            self.searching.go_on();
        } else if donor != Donor::Anyone {
            self.searching.pause();
        }
    }

    /// The next victim is searched for among the donor's keys, which take so many bytes more than they may.
    pub(super) fn search(&mut self, orders: &Orders, donor: Donor, excess_bytes: u64) -> Search {
        self.searching.go_on();
        let left_bytes = self.free_bytes.saturating_sub(self.freed_bytes).max(excess_bytes);
        let until = self.searching.until(orders.budget * if self.must_go_on(orders) { URGENT } else { 1 });
        Search { donor, short: self.is_short(), at_once: victims_at_once(left_bytes, self.last_bytes), until }
    }

    /// A victim went, and freed so many bytes, or didn't.
    pub(super) fn went(&mut self, orders: &Orders, bytes: Option<u64>) {
        let Some(bytes) = bytes else {
            self.failures += 1;
            return;
        };
        self.failures = 0;
        self.evicted += 1;
        self.freed_bytes += bytes;
        self.last_bytes = Some(bytes);
        if orders.free_bytes > 0 {
            self.free_bytes = orders.free_bytes + orders.more_bytes.min(VICTIMS_AT_ONCE as u64 * bytes);
        }
    }
}

/// For how many victims at once the walk looks where so many bytes are to go, by what the last one freed.
fn victims_at_once(left_bytes: u64, last_bytes: Option<u64>) -> usize {
    last_bytes.map_or(1, |bytes| (left_bytes / bytes.max(1)) as usize).clamp(1, VICTIMS_AT_ONCE)
}

/// The time that searches take of a slice.
struct Searching {
    spent: Duration,
    /// Since when there is one after the other.
    since: Option<Instant>,
}

impl Searching {
    fn begun_at(now: Instant) -> Self {
        Searching { spent: Duration::ZERO, since: Some(now) }
    }

    fn spent(&self) -> Duration {
        self.spent + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Keys go without one.
    fn pause(&mut self) {
        self.spent = self.spent();
        self.since = None;
    }

    fn go_on(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// When `budget` will be spent, as they go on.
    fn until(&self, budget: Duration) -> Instant {
        self.since.unwrap_or_else(Instant::now) + budget.saturating_sub(self.spent)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::units::PARTITIONS_MAX;

    use super::super::orders::Scoring;
    use super::*;

    static PENALTIES_US: [f32; PARTITIONS_MAX] = [0.0; PARTITIONS_MAX];

    /// So many bytes are to go, and so many keys whatever the time, of which there is none.
    fn orders(free_bytes: u64, evicted_min: usize) -> Orders<'static> {
        Orders {
            free_bytes,
            more_bytes: 50,
            target_bytes: &[],
            bytes_max: &[],
            sample_size: 1,
            sample_sizes: &[],
            keeps_to_samples: false,
            scoring: Scoring::Idle,
            penalty_us: &PENALTIES_US,
            volatile_only: false,
            thrifty: None,
            db_sizes: &[],
            budget: Duration::ZERO,
            evicted_min,
            now_us: 0,
        }
    }

    #[test]
    fn as_many_as_have_come_go_in_nobodys_time_beside_the_least_number() {
        let run = |orders: &Orders| {
            let mut slice = Slice::begun_at(Instant::now(), orders, 3);
            let mut gone = 0;
            while !slice.is_over(orders) {
                slice.goes_unsearched(Donor::Anyone);
                slice.went(orders, Some(100));
                gone += 1;
            }
            assert_eq!((slice.evicted(), slice.has_left_some(orders)), (gone, true));
            gone
        };
        assert_eq!(run(&orders(1_000, 2)), 5);
        assert_eq!(run(&orders(1_000, 0)), 0, "no pressure");
    }

    #[test]
    fn what_goes_besides_is_not_left_over_and_nothing_goes_on_in_vain() {
        let orders = orders(100, 1);
        let mut slice = Slice::begun_at(Instant::now(), &orders, 0);
        assert!(slice.is_short() && slice.has_left_some(&orders));
        slice.went(&orders, Some(100));
        assert!(slice.is_short() && !slice.has_left_some(&orders), "50 bytes more may go");
        (0..FAILURES_MAX).for_each(|_| slice.went(&orders, None));
        assert!(!slice.is_in_vain());
        slice.went(&orders, None);
        assert!(slice.is_in_vain());
        slice.went(&orders, Some(100));
        assert!(!slice.is_in_vain() && !slice.is_short());
    }

    #[test]
    fn what_goes_without_a_search_takes_none_of_its_time() {
        let ms = Duration::from_millis;
        let mut searching = Searching::begun_at(Instant::now() - ms(5));
        searching.pause();
        let spent = searching.spent();
        assert!(spent >= ms(5));
        std::iter::repeat_with(Instant::now).find(|now| now.elapsed() > Duration::ZERO);
        assert_eq!(searching.spent(), spent, "paused");
        searching.go_on();
        assert!(searching.until(ms(10)) <= Instant::now() + ms(5), "what was spent before counts");
        std::iter::repeat_with(Instant::now).find(|now| now.elapsed() > Duration::ZERO);
        assert!(searching.spent() > spent);
    }
}
