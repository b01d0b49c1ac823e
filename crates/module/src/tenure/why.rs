//! `TENURE.WHY`: what one key is ranked by under Tenure's own policy, in the cache or evicted, and where it stands
//! among others.

use tenure_core::access_ring::REQUESTS_PER_TICK;
use tenure_core::policy::density::{History, Ranks};
use tenure_core::units::KeyHash;

use super::Tenure;
use crate::config::Policy;
use crate::enforce::ranks::subject;
use crate::enforce::walk::{Guides, SizesOf};
use crate::ffi::server::{Kind, Server};
use crate::observe::partitions::in_database;

/// Keys that the one is compared with, and the most that may be looked at for them.
const COMPARED: usize = 64;
const STEPS_MAX: usize = 256;

/// What a key is ranked by. Times in requests of all keys.
#[derive(Clone, Debug)]
pub struct Why {
    /// It is in the cache.
    pub is_there: bool,
    /// The name of its partition.
    pub partition: String,
    /// Requests for it, older ones less, and roughly beyond a dozen.
    pub n_requests: u32,
    /// Requests since it was last asked for.
    pub age_requests: u64,
    /// Its smoothed time between two requests; `None` where there was one or none.
    pub gap_requests: Option<f64>,
    /// Keys that have shown alike.
    pub feature: String,
    /// What a miss of it costs, in µs.
    pub penalty_us: f64,
    /// That was measured for the key itself.
    pub is_measured: bool,
    /// What it takes, in bytes; of an evicted key, its partition's mean.
    pub size_bytes: u32,
    /// Until it expires; `None` = never.
    pub expires_in_ms: Option<u64>,
    /// The ranking in force.
    pub ranking: &'static str,
    /// Reads to be expected per million requests from keeping it; 0 before anything was learned.
    pub reads_per_million: f64,
    /// Its score under the ranking: the lowest goes.
    pub score: f64,
    /// Keys that it was compared with, of all partitions.
    pub compared: usize,
    /// Of them, those that go before it.
    pub lower: usize,
}

impl Tenure {
    /// What `key` of database `db` is ranked by.
    ///
    /// # Errors
    /// Under another policy, where nothing is known of the key, and where no key was looked at yet.
    pub fn why(&mut self, server: &mut Server, db: u16, key: &[u8]) -> Result<Why, String> {
        if self.settings.policy != Policy::Density {
            let policy = self.settings.policy.name();
            return Err(format!("tenure.policy is {policy}; TENURE.WHY is for the policy density"));
        }
        self.observer.partitions.keys.settle();
        let (basis, all_keys) = (self.ranking_basis(), self.all_keys());
        let partition = self.observer.partitions.of(db, key);
        let hash = in_database(KeyHash::of(key), db);
        server.select_db(db);
        let name = server.text(key);
        let opened = server.open(&name);
        let is_there = opened.kind() != Kind::Absent;
        let (partitions, sizes, costs) = self.observer.guides();
        let ranks = Ranks::new(basis, &self.published.learned.table, costs);
        let ranker = ranks.ranker(&self.evictor.ages);
        let entry = partitions.keys.entry(hash);
        if !is_there && entry.is_none() {
            let key = String::from_utf8_lossy(key);
            return Err(format!(
                "nothing is known of key '{key}' in database {db}: it is not in the cache, and what was known of it \
                 is forgotten"
            ));
        }
        let size_bytes = match is_there {
            true => sizes.of(partition, &key, || hash, &opened),
            false => sizes.mean_bytes(partition),
        };
        let own = subject(&ranks, entry.as_ref(), partition, size_bytes, &opened);
        let score = ranker.score(&own);
        let age = ranks.clock.now.saturating_sub(own.last);
        let history = entry.map_or(History::default(), |entry| entry.history());
        let mut why = Why {
            is_there,
            partition: partitions.names()[partition.index()].clone(),
            n_requests: history.n_requests(),
            age_requests: age * REQUESTS_PER_TICK,
            gap_requests: history.gap_ticks().map(|gap| f64::from(gap) * REQUESTS_PER_TICK as f64),
            feature: own.feature.to_string(),
            penalty_us: f64::from(own.penalty_us),
            is_measured: entry.is_some_and(|entry| entry.penalty_us().is_some()),
            size_bytes,
            expires_in_ms: opened.expires_in_ms().filter(|_| is_there),
            ranking: ranks.ranking.as_str(),
            reads_per_million: f64::from(ranks.table.density(own.feature, age)) * 1e6 / REQUESTS_PER_TICK as f64,
            score: f64::from(score),
            compared: 0,
            lower: 0,
        };
        drop(opened);
        let mut guides = Guides { partitions, sizes, usage: &mut self.usage, sizes_of: SizesOf::All };
        for step in 0..STEPS_MAX as u64 {
            if why.compared >= COMPARED || all_keys == 0 {
                break;
            }
            let db = db_at(&self.databases.sizes, all_keys * step / STEPS_MAX as u64);
            self.walk.step(server, db, &mut guides, |visit, keys| {
                let entry = keys.entry(visit.hash());
                let size_bytes = visit.size_bytes.unwrap_or(visit.mean_bytes);
                let other = subject(&ranks, entry.as_ref(), visit.partition, size_bytes, visit.key);
                why.compared += 1;
                why.lower += usize::from(ranker.score(&other) < score);
            });
        }
        Ok(why)
    }
}

/// The database of the key of that number, in the order of databases.
fn db_at(db_sizes: &[(u16, u64)], mut number: u64) -> u16 {
    for &(db, keys) in db_sizes {
        if number < keys {
            return db;
        }
        number -= keys;
    }
    db_sizes.last().map_or(0, |(db, _)| *db)
}

#[cfg(test)]
mod tests {
    use super::db_at;

    #[test]
    fn databases_are_met_by_their_number_of_keys() {
        let sizes = [(0, 2), (3, 1), (5, 3)];
        assert_eq!([0, 1, 2, 3, 5, 9].map(|number| db_at(&sizes, number)), [0, 0, 3, 5, 5, 5]);
    }
}
