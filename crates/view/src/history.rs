//! What looks have shown over the last hour, kept in the tool: no server keeps it, and a page that is opened late still
//! has it.
//!
//! One sample a second: a few numbers of all servers together and a dozen of each tenant, 4 bytes each; 64 tenants take
//! 12 MB in an hour. AccessRing for a stretch, it gives at most [`POINTS_MAX`] points, means over equal steps of it.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use crate::summary::Summary;

/// Samples that are kept: an hour, at one a second.
const SAMPLES_MAX: usize = 3600;
/// Tenants that are kept: what a server may have, and some that were renamed meanwhile.
const TENANTS_MAX: usize = 160;
/// Points of a stretch.
const POINTS_MAX: usize = 360;

/// What is kept of a tenant, by the names that a row of [`Summary`] has.
pub const OF_TENANT: [&str; 14] = [
    "used_bytes",
    "target_bytes",
    "reads_per_s",
    "misses_per_s",
    "evictions_per_s",
    "lost_us_per_s",
    "misses_first_per_s",
    "misses_expired_per_s",
    "misses_evicted_per_s",
    "misses_deleted_per_s",
    "misses_unknown_per_s",
    "regret_misses_per_s",
    "regret_us_per_s",
    "sleeping_keys",
];

/// What is kept of all servers together, by the names that a [`Summary`] has.
pub const OF_SERVERS: [&str; 10] = [
    "used_memory",
    "maxmemory",
    "main_thread_us_per_s",
    "evictions_by_server_per_s",
    "tier_fast_bytes",
    "tier_slow_bytes",
    "tier_moves_per_s",
    "sleeping_keys",
    "replies_held_now",
    "replies_held_per_s",
];

/// A number that wasn't told.
const NOT_TOLD: f32 = f32::NAN;

/// One moment.
struct Sample {
    at_ms: u64,
    servers: [f32; OF_SERVERS.len()],
    /// By the place of the tenant's name.
    tenants: Vec<[f32; OF_TENANT.len()]>,
}

/// The last hour.
#[derive(Default)]
pub struct History {
    names: Vec<String>,
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds a moment, and forgets what is more than an hour old.
    pub fn add(&mut self, summary: &Summary) {
        let told = |value: Option<f64>| value.map_or(NOT_TOLD, |value| value as f32);
        let mut tenants = vec![[NOT_TOLD; OF_TENANT.len()]; self.names.len()];
        for row in &summary.tenants {
            let Some(place) = self.place_of(&row.name) else { continue };
            tenants.resize(tenants.len().max(place + 1), [NOT_TOLD; OF_TENANT.len()]);
            tenants[place] = OF_TENANT.map(|name| told(row.figure(name)));
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        let servers = OF_SERVERS.map(|name| told(summary.figure(name)));
        self.samples.push_back(Sample { at_ms: summary.at_ms, servers, tenants });
    }

    fn place_of(&mut self, name: &str) -> Option<usize> {
        let known = self.names.iter().position(|held| held == name);
        if known.is_none() && self.names.len() < TENANTS_MAX {
            self.names.push(name.to_owned());
            return Some(self.names.len() - 1);
        }
        known
    }

    /// The last so many seconds as JSON: `at`, then series by name, of servers and of each tenant; `null` where nothing
    /// was told.
    pub fn stretch(&self, seconds: u64) -> Value {
        let last_ms = self.samples.back().map_or(0, |sample| sample.at_ms);
        let first_ms = last_ms.saturating_sub(seconds.saturating_mul(1000));
        let begin = self.samples.partition_point(|sample| sample.at_ms <= first_ms);
        let samples: Vec<&Sample> = self.samples.range(begin..).collect();
        let steps: Vec<&[&Sample]> = samples.chunks(samples.len().div_ceil(POINTS_MAX).max(1)).collect();
        let at: Vec<u64> = steps.iter().map(|step| step[step.len() - 1].at_ms).collect();
        let servers = series(&OF_SERVERS, &steps, |sample, i| sample.servers[i]);
        let tenants = self.names.iter().enumerate().map(|(place, name)| {
            let of =
                |sample: &Sample, i: usize| sample.tenants.get(place).map_or(NOT_TOLD, |figures: &[f32; _]| figures[i]);
            (name.clone(), Value::Object(series(&OF_TENANT, &steps, of)))
        });
        let tenants: Map<String, Value> =
            tenants.filter(|(_, series)| series.as_object().is_some_and(|s| !s.is_empty())).collect();
        json!({ "at": at, "servers": servers, "tenants": tenants })
    }
}

/// Those series of which anything was told, a mean for each step.
fn series(names: &[&str], steps: &[&[&Sample]], of: impl Fn(&Sample, usize) -> f32) -> Map<String, Value> {
    let mut all = Map::new();
    for (i, name) in names.iter().enumerate() {
        let points: Vec<Value> = steps.iter().map(|step| mean(step.iter().map(|sample| of(sample, i)))).collect();
        if points.iter().any(|point| !point.is_null()) {
            all.insert((*name).to_owned(), Value::Array(points));
        }
    }
    all
}

/// The mean of those that were told, in four digits; `null` where none was.
fn mean(values: impl Iterator<Item = f32>) -> Value {
    let (sum, n) =
        values.filter(|value| !value.is_nan()).fold((0.0, 0_u32), |(sum, n), value| (sum + f64::from(value), n + 1));
    if n == 0 {
        return Value::Null;
    }
    let mean = sum / f64::from(n);
    let digits = 10_f64.powi(3 - mean.abs().log10().floor().max(-3.0) as i32);
    let short = (mean * digits).round() / digits;
    if short.fract() == 0.0 { json!(short as i64) } else { json!(short) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Row;

    fn summary(at_s: u64, used_bytes: f64) -> Summary {
        let row = Row { name: "a".to_owned(), figures: vec![("used_bytes", used_bytes)] };
        Summary { at_ms: at_s * 1000, figures: vec![("maxmemory", 7.0)], tenants: vec![row], ..Summary::default() }
    }

    #[test]
    fn an_hour_is_kept_and_told_in_so_many_points() {
        let mut history = History::default();
        assert_eq!(history.stretch(60)["at"], json!([]));
        for second in 0..4000 {
            history.add(&summary(second, second as f64));
        }
        let hour = history.stretch(10_000);
        assert_eq!(hour["at"].as_array().unwrap().len(), POINTS_MAX);
        assert_eq!(hour["tenants"]["a"]["used_bytes"][0], json!(404.5), "the mean of 400 to 409");
        assert_eq!(hour["tenants"]["a"].as_object().unwrap().len(), 1, "what wasn't told has no series");
        let minute = history.stretch(60);
        assert_eq!((minute["at"].as_array().unwrap().len(), &minute["servers"]["maxmemory"][59]), (60, &json!(7)));
        assert_eq!(minute["tenants"]["a"]["used_bytes"][59], json!(3999));
    }

    #[test]
    fn a_tenant_that_came_later_has_nothing_before() {
        let mut history = History::default();
        history.add(&Summary { at_ms: 1000, ..Summary::default() });
        history.add(&summary(2, 5.0));
        assert_eq!(history.stretch(60)["tenants"]["a"]["used_bytes"], json!([null, 5]));
    }

    #[test]
    fn numbers_are_short() {
        for (value, expected) in
            [(0.0, json!(0)), (0.123_456, json!(0.1235)), (12_345_678.0, json!(12_350_000)), (1e-9, json!(0))]
        {
            assert_eq!(mean([value as f32].into_iter()), expected);
        }
    }
}
