//! What a page, a terminal and the history show of two looks: figures by name, of all servers together and of each
//! tenant.
//!
//! Names are those of `TENURE.TENANTS` and `INFO`; `_per_s` is what one grew by between the looks. What isn't told
//! isn't there.

use serde_json::{Map, Value, json};

use crate::reading::{Account, CAUSES, Counts, Reading};
use crate::sampler::{Look, rate_of, rates, total};

/// Fields of INFO that are shown as sums over all servers: name here, name there.
const SUMS: [(&str, &str); 22] = [
    ("used_memory", "used_memory"),
    ("maxmemory", "maxmemory"),
    ("evictions_by_server", "evicted_keys"),
    ("memory_bytes", "tenure_memory_bytes"),
    ("headroom_bytes", "tenure_headroom_bytes"),
    ("windows", "tenure_windows"),
    ("plans_adopted", "tenure_plans_adopted"),
    ("panics", "tenure_panics"),
    ("eviction_us", "tenure_eviction_us"),
    ("sleeping_keys", "tenure_sleeping_keys"),
    ("sleeping_bytes", "tenure_sleeping_bytes"),
    ("spill_disk_bytes", "tenure_spill_disk_bytes"),
    ("replies_replicas", "tenure_replies_replicas"),
    ("replies_held_now", "tenure_replies_held_now"),
    ("replies_held", "tenure_replies_held"),
    ("replies_degraded", "tenure_replies_degraded"),
    ("tier_fast_bytes", "tenure_tier_fast_bytes"),
    ("tier_slow_bytes", "tenure_tier_slow_bytes"),
    ("tier_fast_hits", "tenure_tier_fast_hits"),
    ("tier_slow_hits", "tenure_tier_slow_hits"),
    ("samples_dropped_turn", "tenure_samples_dropped_turn"),
    ("samples_dropped_queue", "tenure_samples_dropped_queue"),
];

/// What is shown of each server: texts.
const STATES: [(&str, &str); 7] = [
    ("state", "tenure_state"),
    ("eviction", "tenure_eviction"),
    ("ranking", "tenure_ranking"),
    ("sleep", "tenure_sleep"),
    ("replies", "tenure_replies"),
    ("tiers", "tenure_tiers"),
    ("role", "role"),
];

/// One tenant, or all together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The tenant's name.
    pub name: String,
    /// What is told of it.
    pub figures: Vec<(&'static str, f64)>,
}

/// One server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerRow {
    /// Host and port.
    pub address: String,
    /// Why it didn't answer.
    pub error: Option<String>,
    /// What it says of itself, by name.
    pub texts: Vec<(&'static str, String)>,
    /// Its memory used and allowed, in bytes.
    pub used_memory: f64,
    /// 0 is no limit.
    pub maxmemory: f64,
}

/// All that is shown of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Of all servers together.
    pub figures: Vec<(&'static str, f64)>,
    /// All tenants together.
    pub total: Row,
    /// In the server's order.
    pub tenants: Vec<Row>,
    /// In the order of the slots.
    pub servers: Vec<ServerRow>,
}

impl Row {
    /// A figure by name, if it is told.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(held, _)| *held == name).map(|(_, value)| *value)
    }
}

impl Summary {
    /// What `now` shows, and how it grew since `before`, if there was a look before.
    pub fn of(before: Option<&Look>, now: &Look) -> Summary {
        let accounts = now.tenants();
        let rates = before.map(|before| rates(before, now)).unwrap_or_default();
        let mut all = (!rates.is_empty()).then(Counts::default);
        rates.values().for_each(|rate| all.iter_mut().for_each(|sum| sum.add(rate)));
        let tenants = accounts.iter().map(|(name, account)| row(name, account, rates.get(name)));
        Summary {
            at_ms: now.at_ms,
            figures: figures_of_servers(before, now),
            total: row("all", &total(&accounts), all.as_ref()),
            tenants: tenants.collect(),
            servers: now.nodes.iter().map(server).collect(),
        }
    }

    /// A figure of all servers together, if it is told.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(held, _)| *held == name).map(|(_, value)| *value)
    }

    /// As a page reads it.
    pub fn to_json(&self) -> Value {
        let figures = |figures: &[(&'static str, f64)]| {
            figures.iter().map(|&(name, value)| (name.to_owned(), number(value))).collect::<Map<_, _>>()
        };
        let row = |row: &Row| json!({ "name": row.name, "figures": figures(&row.figures) });
        let server = |server: &ServerRow| {
            let texts: Map<_, _> = server.texts.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
            json!({ "address": server.address, "error": server.error, "texts": texts,
                "used_memory": number(server.used_memory), "maxmemory": number(server.maxmemory) })
        };
        json!({
            "at_ms": self.at_ms,
            "figures": figures(&self.figures),
            "total": row(&self.total),
            "tenants": self.tenants.iter().map(row).collect::<Vec<_>>(),
            "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
        })
    }
}

/// Counts without a point, as the server writes them.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

fn figures_of_servers(before: Option<&Look>, now: &Look) -> Vec<(&'static str, f64)> {
    let mut figures: Vec<(&str, f64)> =
        SUMS.iter().filter_map(|&(name, field)| Some((name, now.sum(field)?))).collect();
    let mut add = |name: &'static str, value: Option<f64>| figures.extend(value.map(|value| (name, value)));
    let n_nodes = now.readings().count().max(1) as f64;
    add("main_thread_busy", now.sum("tenure_main_thread_busy").map(|sum| sum / n_nodes));
    add("prediction_error", now.readings().filter_map(Reading::prediction_error).reduce(f64::max));
    let Some(before) = before else { return figures };
    let grown = |field: &'static str| rate_of(before, now, |reading| reading.number(field));
    add("main_thread_us_per_s", rate_of(before, now, Reading::main_thread_us).map(|us| us / n_nodes));
    add("evictions_by_server_per_s", grown("evicted_keys"));
    add("replies_held_per_s", grown("tenure_replies_held"));
    let moves =
        |reading: &Reading| Some(reading.number("tenure_tier_demotions")? + reading.number("tenure_tier_promotions")?);
    add("tier_moves_per_s", rate_of(before, now, moves));
    figures
}

fn server(node: &crate::sampler::NodeLook) -> ServerRow {
    let mut row = ServerRow { address: node.address.clone(), ..ServerRow::default() };
    match &node.reading {
        Err(why) => row.error = Some(why.clone()),
        Ok(reading) => {
            row.used_memory = reading.number("used_memory").unwrap_or(0.0);
            row.maxmemory = reading.number("maxmemory").unwrap_or(0.0);
            let told = STATES.iter().map(|&(name, field)| (name, reading.text(field).to_owned()));
            row.texts = told.filter(|(_, text)| !text.is_empty()).collect();
            row.texts.extend(node.status.get("policy").map(|policy| ("policy", policy.clone())));
        }
    }
    row
}

fn row(name: &str, account: &Account, rates: Option<&Counts>) -> Row {
    let mut figures = vec![
        ("keys", account.keys),
        ("used_bytes", account.used_bytes),
        ("bytes_min", account.bytes_min),
        ("reads", account.counts.reads),
        ("misses", account.counts.misses),
        ("penalty_us_mean", account.penalty_us_mean),
        ("lost_us", account.counts.lost_us),
        ("evictions", account.counts.evictions),
    ];
    let mut add = |name: &'static str, value: Option<f64>| figures.extend(value.map(|value| (name, value)));
    add("target_bytes", account.target_bytes);
    add("bytes_max", account.bytes_max);
    add("miss_ratio", account.counts.miss_ratio());
    add("sleeping_keys", account.sleeping_keys);
    add("regret_misses", account.counts.regret_misses);
    add("regret_us", account.counts.regret_us);
    for (i, name) in
        ["misses_first", "misses_expired", "misses_evicted", "misses_deleted", "misses_unknown"].iter().enumerate()
    {
        add(name, account.counts.causes[i]);
    }
    if let Some(rates) = rates {
        add("reads_per_s", Some(rates.reads));
        add("misses_per_s", Some(rates.misses));
        add("miss_ratio_now", rates.miss_ratio());
        add("evictions_per_s", Some(rates.evictions));
        add("lost_us_per_s", Some(rates.lost_us));
        add("regret_misses_per_s", rates.regret_misses);
        add("regret_us_per_s", rates.regret_us);
        let names = [
            "misses_first_per_s",
            "misses_expired_per_s",
            "misses_evicted_per_s",
            "misses_deleted_per_s",
            "misses_unknown_per_s",
        ];
        const { assert!(CAUSES.len() == 5) };
        for (name, rate) in names.into_iter().zip(rates.causes) {
            add(name, rate);
        }
    }
    Row { name: name.to_owned(), figures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Fields;
    use crate::sampler::NodeLook;

    fn look(at_ms: u64, misses: u32, more: &str) -> Look {
        let text = format!(
            "maxmemory:100\ntenure_state:running\ntenure_eviction_us:{misses}\ntenure_tenant_a:hits=10,\
             misses={misses}{more}\ntenure_partition_a:keys=0\n"
        );
        let node = NodeLook { address: "h:1".to_owned(), reading: Ok(Reading::parse(&text)), status: Fields::new() };
        Look { at_ms, nodes: vec![node] }
    }

    #[test]
    fn figures_are_those_that_are_told() {
        let now = look(3000, 10, ",misses_evicted=4");
        let summary = Summary::of(None, &now);
        let a = &summary.tenants[0];
        assert_eq!(
            (a.figure("misses"), a.figure("misses_evicted"), a.figure("misses_first")),
            (Some(10.0), Some(4.0), None)
        );
        assert_eq!(
            (a.figure("misses_per_s"), a.figure("target_bytes"), summary.figure("maxmemory")),
            (None, None, Some(100.0))
        );
        let summary = Summary::of(Some(&look(1000, 4, ",misses_evicted=2")), &now);
        let a = &summary.tenants[0];
        assert_eq!((a.figure("misses_per_s"), a.figure("misses_evicted_per_s")), (Some(3.0), Some(1.0)));
        assert_eq!(
            (summary.figure("main_thread_us_per_s"), summary.total.figure("misses_per_s")),
            (Some(3.0), Some(3.0))
        );
        let json = summary.to_json();
        assert_eq!(
            (&json["tenants"][0]["figures"]["misses"], &json["servers"][0]["address"]),
            (&json!(10), &json!("h:1"))
        );
        assert!(json["tenants"][0]["figures"].get("target_bytes").is_none(), "{json}");
    }
}
