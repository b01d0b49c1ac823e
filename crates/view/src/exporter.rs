//! `/metrics` in the OpenMetrics text format: one `INFO` of each server for each scrape.
//!
//! Names, units and labels follow Prometheus' conventions. A server that is gone gives `tenure_up 0` and no other
//! series of its own; what a server doesn't tell has no series. Tenants beyond a bound are one, `overflow`, so that
//! nobody's key names fill a monitoring system. Beside a tenant's causes of misses stands no sum: `sum by (tenant)`
//! gives it, with causes told or not.

use std::fmt::Error;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use redis::ConnectionInfo;

use crate::http::{Answer, Guard, Request, serve};
use crate::reading::{Account, CAUSES, Reading, Tenant};
use crate::sampler::Watched;

/// What tenants beyond the bound are called together.
const OVERFLOW: &str = "overflow";
/// The media type of what is answered.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Servers, and how many tenants of each have series of their own.
pub struct Exporter {
    servers: Vec<Mutex<Watched>>,
    tenants_max: usize,
}

impl Exporter {
    /// Connects with the first scrape.
    pub fn new(servers: Vec<ConnectionInfo>, tenants_max: usize) -> Exporter {
        let servers = servers.into_iter().map(|address| Mutex::new(Watched::new(address)));
        Exporter { servers: servers.collect(), tenants_max }
    }

    /// Serves `/metrics` until the process ends.
    ///
    /// # Errors
    /// As [`serve`].
    pub fn serve(self, listener: TcpListener, guard: Guard) -> Result<()> {
        let handle = move |request: &Request| match request.path.as_str() {
            "/metrics" => Answer::ok(OPENMETRICS, self.scrape().into_bytes()),
            "/" => Answer::ok(
                "text/html; charset=utf-8",
                &b"<!doctype html><title>tenure exporter</title><a href=/metrics>/metrics</a>\n"[..],
            ),
            other => Answer::refusal(404, format!("there is nothing at {other}; there is /metrics")),
        };
        serve(listener, guard, handle)
    }

    /// Looks at all servers at once, so that one that is gone delays nobody but itself.
    fn scrape(&self) -> String {
        let read = |server: &Mutex<Watched>| {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            (server.name(), server.read().ok())
        };
        let looks: Vec<(String, Option<Reading>)> = thread::scope(|scope| {
            let threads: Vec<_> = self.servers.iter().map(|server| scope.spawn(|| read(server))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        text(&looks, self.tenants_max)
    }
}

/// The whole answer.
fn text(looks: &[(String, Option<Reading>)], tenants_max: usize) -> String {
    let mut families = Families::default();
    for (server, reading) in looks {
        let server = Labels::default().with("server", server);
        families.gauge(
            &server,
            "tenure_up",
            "Whether the server answers and has Tenure loaded",
            None,
            Some(f64::from(reading.is_some())),
        );
        if let Some(reading) = reading {
            add_server(&mut families, &server, reading);
            bounded(&reading.tenants, tenants_max).iter().for_each(|tenant| add_tenant(&mut families, &server, tenant));
        }
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(families));
    let mut text = String::new();
    // Writing into a text doesn't fail.
    let _ = encode(&mut text, &registry);
    text
}

/// The first `max` tenants, and all others as one.
fn bounded(tenants: &[Tenant], max: usize) -> Vec<Tenant> {
    let (own, others) = tenants.split_at(tenants.len().min(max));
    let mut bounded = own.to_vec();
    if let [first, rest @ ..] = others {
        let mut account = first.account.clone();
        rest.iter().for_each(|tenant| account.add(&tenant.account));
        let partitions = vec![crate::reading::Partition { class: "all".to_owned(), account: account.clone() }];
        bounded.push(Tenant { name: OVERFLOW.to_owned(), account, partitions });
    }
    bounded
}

fn add_server(f: &mut Families, server: &Labels, reading: &Reading) {
    let n = |name: &str| reading.number(&format!("tenure_{name}"));
    add_state(f, server, reading);
    add_memory(f, server, reading, &n);
    add_decisions(f, server, reading, &n);
    add_main_thread(f, server, &n);
    add_sleep_and_replies(f, server, &n);
    if !reading.text("tenure_tiers").starts_with("off") {
        add_tiers(f, server, &n);
    }
}

fn add_state(f: &mut Families, server: &Labels, reading: &Reading) {
    let is = |what: bool| Some(f64::from(what));
    let state = ["eviction", "ranking", "worker", "replies", "tiers", "sleep"];
    let state = state.iter().fold(server.with("role", reading.text("role")), |labels, name| {
        labels.with(name, reading.text(&format!("tenure_{name}")))
    });
    f.gauge(&state, "tenure_state", "What Tenure says of itself, in its labels; always 1", None, Some(1.0));
    f.gauge(
        server,
        "tenure_running",
        "Whether Tenure runs: 0 where it was stopped, or has failed",
        None,
        is(reading.is_running()),
    );
    f.gauge(
        server,
        "tenure_evicting",
        "Whether Tenure decides what is evicted: 0 where the server does, as stock",
        None,
        is(reading.is_evicting()),
    );
}

fn add_memory(f: &mut Families, server: &Labels, reading: &Reading, n: &impl Fn(&str) -> Option<f64>) {
    f.gauge(
        server,
        "tenure_server_used",
        "Memory that the server uses",
        Some(Unit::Bytes),
        reading.number("used_memory"),
    );
    f.gauge(server, "tenure_server_limit", "maxmemory; 0 is none", Some(Unit::Bytes), reading.number("maxmemory"));
    f.gauge(
        server,
        "tenure_headroom",
        "How far below maxmemory Tenure keeps memory",
        Some(Unit::Bytes),
        n("headroom_bytes"),
    );
    f.gauge(server, "tenure_own_memory", "Memory that Tenure takes for itself", Some(Unit::Bytes), n("memory_bytes"));
}

fn add_decisions(f: &mut Families, server: &Labels, reading: &Reading, n: &impl Fn(&str) -> Option<f64>) {
    f.gauge(server, "tenure_uptime", "Time since Tenure was started", Some(Unit::Seconds), n("uptime_seconds"));
    f.counter(
        server,
        "tenure_server_evictions",
        "Keys evicted by the server itself, not by Tenure",
        None,
        reading.number("evicted_keys"),
    );
    f.counter(
        server,
        "tenure_cache_evictions",
        "Keys evicted by Tenure and by the server itself: what evicted_keys is without Tenure",
        None,
        reading.number("evicted_keys").zip(n("evictions")).map(|(by_server, by_tenure)| by_server + by_tenure),
    );
    f.counter(
        server,
        "tenure_panics",
        "Faults inside Tenure, each of which leaves the server stock",
        None,
        n("panics"),
    );
    f.counter(server, "tenure_windows", "Windows that have ended, with a plan each at the most", None, n("windows"));
    f.counter(server, "tenure_plans_adopted", "Plans that took the place of another", None, n("plans_adopted"));
    f.counter(server, "tenure_evicted", "Bytes that evictions have freed", Some(Unit::Bytes), n("evicted_bytes"));
    f.gauge(
        server,
        "tenure_prediction_error",
        "How far the last prediction of the miss ratio was off",
        Some(Unit::Other("ratio".to_owned())),
        reading.prediction_error(),
    );
}

fn add_main_thread(f: &mut Families, server: &Labels, n: &impl Fn(&str) -> Option<f64>) {
    let seconds = |name: &str| n(name).map(|us| us / 1e6);
    f.gauge(
        server,
        "tenure_main_thread_busy",
        "How busy the server's main thread is, with everything",
        Some(Unit::Other("ratio".to_owned())),
        n("main_thread_busy"),
    );
    let help = "Time that Tenure has taken from the main thread, by work";
    f.counter(
        &server.with("work", "eviction"),
        "tenure_main_thread",
        help,
        Some(Unit::Seconds),
        seconds("eviction_us"),
    );
    f.counter(&server.with("work", "moves"), "tenure_main_thread", help, Some(Unit::Seconds), seconds("tier_spent_us"));
    let help = "Sampled accesses that were dropped because a queue was full";
    f.counter(&server.with("queue", "turn"), "tenure_samples_dropped", help, None, n("samples_dropped_turn"));
    f.counter(&server.with("queue", "worker"), "tenure_samples_dropped", help, None, n("samples_dropped_queue"));
}

fn add_sleep_and_replies(f: &mut Families, server: &Labels, n: &impl Fn(&str) -> Option<f64>) {
    f.gauge(server, "tenure_sleeping_keys", "Keys whose values are on disk", None, n("sleeping_keys"));
    f.gauge(server, "tenure_sleeping", "What their values take", Some(Unit::Bytes), n("sleeping_bytes"));
    f.gauge(
        server,
        "tenure_spill_disk",
        "What the files take that they lie in",
        Some(Unit::Bytes),
        n("spill_disk_bytes"),
    );
    f.counter(server, "tenure_slept_keys", "Keys that fell asleep", None, n("slept_keys"));
    f.counter(server, "tenure_woken_keys", "Keys that woke", None, n("woken_keys"));
    f.counter(server, "tenure_spill_damaged", "Records on disk that could not be read", None, n("spill_damaged"));
    f.gauge(
        server,
        "tenure_replies_waiting",
        "Connections whose replies wait for replicas",
        None,
        n("replies_held_now"),
    );
    f.gauge(server, "tenure_replies_replicas", "Replicas that replies wait for", None, n("replies_replicas"));
    f.counter(server, "tenure_replies_held", "Replies that have waited for replicas", None, n("replies_held"));
    let wait = n("replies_wait_us").map(|us| us / 1e6);
    f.counter(server, "tenure_replies_wait", "How long they have waited", Some(Unit::Seconds), wait);
    f.counter(
        server,
        "tenure_replies_degraded",
        "Times that replies stopped waiting because replicas could not follow",
        None,
        n("replies_degraded"),
    );
    f.counter(server, "tenure_replies_unconfirmed", "Replies that left unconfirmed", None, n("replies_unconfirmed"));
}

fn add_tiers(f: &mut Families, server: &Labels, n: &impl Fn(&str) -> Option<f64>) {
    for tier in ["fast", "slow"] {
        let labels = server.with("tier", tier);
        f.gauge(
            &labels,
            "tenure_tier_used",
            "What values take in each tier of memory",
            Some(Unit::Bytes),
            n(&format!("tier_{tier}_bytes")),
        );
        f.counter(
            &labels,
            "tenure_tier_hits",
            "Reads of values in each tier of memory",
            None,
            n(&format!("tier_{tier}_hits")),
        );
    }
    f.gauge(
        server,
        "tenure_tier_fast_limit",
        "What fast memory may hold",
        Some(Unit::Bytes),
        n("tier_fast_limit_bytes"),
    );
    let help = "Values moved from one tier to the other";
    f.counter(&server.with("direction", "demotion"), "tenure_tier_moves", help, None, n("tier_demotions"));
    f.counter(&server.with("direction", "promotion"), "tenure_tier_moves", help, None, n("tier_promotions"));
}

fn add_tenant(f: &mut Families, server: &Labels, tenant: &Tenant) {
    let labels = server.with("tenant", &tenant.name);
    let account = &tenant.account;
    f.gauge(
        &labels,
        "tenure_guaranteed",
        "Memory guaranteed to the tenant",
        Some(Unit::Bytes),
        Some(account.bytes_guaranteed.unwrap_or(account.bytes_min)),
    );
    f.gauge(
        &labels,
        "tenure_maximum",
        "Memory that the tenant may hold; absent where nobody set a maximum",
        Some(Unit::Bytes),
        account.bytes_max,
    );
    let help = "Reads that found nothing, by cause where the server tells it";
    match account.counts.causes.iter().all(Option::is_none) {
        true => f.counter(&labels, "tenure_misses", help, None, Some(account.counts.misses)),
        false => CAUSES.iter().zip(account.counts.causes).for_each(|(cause, misses)| {
            f.counter(&labels.with("cause", cause), "tenure_misses", help, None, misses);
        }),
    }
    let help = "Reads that missed a key that Tenure had evicted shortly before";
    f.counter(&labels, "tenure_regret_misses", help, None, account.counts.regret_misses);
    let help = "Time lost to misses of keys that Tenure had evicted shortly before";
    f.counter(&labels, "tenure_regret", help, Some(Unit::Seconds), account.counts.regret_us.map(|us| us / 1e6));
    for partition in &tenant.partitions {
        add_partition(f, &labels.with("class", &partition.class), &partition.account);
    }
}

fn add_partition(f: &mut Families, labels: &Labels, account: &Account) {
    let counts = &account.counts;
    f.gauge(labels, "tenure_used", "Memory used", Some(Unit::Bytes), Some(account.used_bytes));
    f.gauge(labels, "tenure_target", "Memory planned; absent without a plan", Some(Unit::Bytes), account.target_bytes);
    f.gauge(labels, "tenure_keys", "Keys", None, Some(account.keys));
    f.counter(labels, "tenure_reads", "Reads", None, Some(counts.reads));
    f.counter(labels, "tenure_evictions", "Keys evicted by Tenure", None, Some(counts.evictions));
    f.gauge(
        labels,
        "tenure_miss_penalty",
        "Mean miss penalty of late: from a miss to the value being back",
        Some(Unit::Seconds),
        Some(account.penalty_us_mean / 1e6),
    );
    let help = "Time lost to misses since the exporter's first scrape: misses x mean penalty";
    f.counter(labels, "tenure_miss", help, Some(Unit::Seconds), Some(counts.lost_us / 1e6));
    f.gauge(
        labels,
        "tenure_predicted_miss",
        "Miss ratio predicted for the memory it has",
        Some(Unit::Other("ratio".to_owned())),
        account.miss_ratio_predicted,
    );
}

/// Labels of one series.
#[derive(Clone, Debug, Default)]
struct Labels(Vec<(&'static str, String)>);

impl Labels {
    fn with(&self, name: &'static str, value: &str) -> Labels {
        let mut labels = self.clone();
        labels.0.push((name, value.to_owned()));
        labels
    }
}

/// All series of one name.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    is_counter: bool,
    series: Vec<(Labels, f64)>,
}

/// In the order in which they first appear.
#[derive(Debug, Default)]
struct Families(Vec<Family>);

impl Families {
    fn counter(
        &mut self,
        labels: &Labels,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        value: Option<f64>,
    ) {
        self.add(labels, Family { name, help, unit, is_counter: true, series: Vec::new() }, value);
    }

    fn gauge(
        &mut self,
        labels: &Labels,
        name: &'static str,
        help: &'static str,
        unit: Option<Unit>,
        value: Option<f64>,
    ) {
        self.add(labels, Family { name, help, unit, is_counter: false, series: Vec::new() }, value);
    }

    /// What isn't told has no series.
    fn add(&mut self, labels: &Labels, family: Family, value: Option<f64>) {
        let Some(value) = value else { return };
        let i = self.0.iter().position(|held| {
            held.name == family.name && held.unit.as_ref().map(Unit::as_str) == family.unit.as_ref().map(Unit::as_str)
        });
        let i = i.unwrap_or_else(|| {
            self.0.push(family);
            self.0.len() - 1
        });
        self.0[i].series.push((labels.clone(), value));
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        for Family { name, help, unit, is_counter, series } in &self.0 {
            let kind = if *is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for (labels, value) in series {
                let series = metric.encode_family(&labels.0)?;
                match is_counter {
                    true => ConstCounter::new(*value).encode(series)?,
                    false => ConstGauge::new(*value).encode(series)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        let tenant = |name: &str, misses: u32, more: &str| {
            format!(
                "tenure_tenant_{name}:keys=2,used_bytes=10,bytes_min=4,hits=6,misses={misses}{more}\n\
                 tenure_partition_{name}/0-10us:keys=2,used_bytes=10,reads=9,misses={misses},penalty_us_mean=2500\n"
            )
        };
        let causes =
            ",misses_first=1,misses_expired=0,misses_evicted=2,misses_deleted=0,misses_unknown=0,regret_us=5000";
        let tenants = tenant("a", 3, causes) + &tenant("b", 4, "") + &tenant("c", 5, "");
        Reading::parse(&format!(
            "maxmemory:100\nevicted_keys:3\ntenure_evictions:40\nrole:master\ntenure_state:running\n\
             tenure_eviction:ready\ntenure_tiers:off: x\ntenure_tier_fast_bytes:0\n{tenants}"
        ))
    }

    #[test]
    fn names_units_and_labels_are_prometheus_own() {
        let text = text(&[("h:1".to_owned(), Some(reading())), ("h:2".to_owned(), None)], 64);
        for line in [
            "# TYPE tenure_up gauge",
            "tenure_up{server=\"h:1\"} 1.0",
            "tenure_up{server=\"h:2\"} 0.0",
            "tenure_evicting{server=\"h:1\"} 1.0",
            "tenure_server_evictions_total{server=\"h:1\"} 3.0",
            "tenure_cache_evictions_total{server=\"h:1\"} 43.0",
            "# UNIT tenure_used_bytes bytes",
            "tenure_used_bytes{server=\"h:1\",tenant=\"a\",class=\"0-10us\"} 10.0",
            "tenure_misses_total{server=\"h:1\",tenant=\"a\",cause=\"evicted\"} 2.0",
            "tenure_misses_total{server=\"h:1\",tenant=\"b\"} 4.0",
            "tenure_regret_seconds_total{server=\"h:1\",tenant=\"a\"} 0.005",
            "# TYPE tenure_miss_seconds counter",
            "tenure_miss_penalty_seconds{server=\"h:1\",tenant=\"a\",class=\"0-10us\"} 0.0025",
        ] {
            assert!(text.lines().any(|held| held == line), "no line '{line}' in\n{text}");
        }
        for absent in [
            "tenure_tier",
            "tenure_maximum",
            "tenure_target",
            "tenure_prediction",
            "regret_seconds_total{server=\"h:1\",tenant=\"b\"",
        ] {
            assert!(!text.contains(absent), "{absent}:\n{text}");
        }
        assert_eq!(text.matches("# TYPE tenure_up ").count(), 1);
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(text.matches("h:2").count(), 1, "a server that is gone has one series: {text}");
    }

    #[test]
    fn tenants_beyond_the_bound_are_one() {
        let text = text(&[("h:1".to_owned(), Some(reading()))], 1);
        assert!(text.contains("tenure_misses_total{server=\"h:1\",tenant=\"overflow\"} 9.0"), "{text}");
        assert!(text.contains("tenure_used_bytes{server=\"h:1\",tenant=\"overflow\",class=\"all\"} 20.0"), "{text}");
        assert!(
            text.contains("tenant=\"a\"") && !text.contains("tenant=\"b\"") && !text.contains("tenant=\"c\""),
            "{text}"
        );
    }
}
