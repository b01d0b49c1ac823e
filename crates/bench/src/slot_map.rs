//! What it is worth that clients remember slots: throughput against connections for clusters of some sizes, by each
//! route to a key's node, with the redirects and the servers' work that a request brings.
//!
//! Source: Scalable and Reliable Redis (TrustCom'16) sec. IV-B, Figures 6 and 7: GET:SET 9:1, replication off, 1 to
//! 512 clients each with one request at a time. Its clusters had a machine per node. Here all nodes share one, whose
//! throughput says little of three. So beside it stands what the busiest node does per request. A cluster whose nodes
//! have a core each serves at most as many requests a second as that node has time for. With a default node that is
//! the default node, whatever the cluster's size.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{bail, ensure};
use serde::Serialize;
use tenure_plots::{LineChart, Series};

use crate::client::{Cache, Queue, Reply, Route};
use crate::comparison::progress_bar;
use crate::observation::Counters;
use crate::report::columns;
use crate::system::{Clustering, Serving, Setup, System, Venue};
use crate::workload::{Operation, Request, Stream};

/// What is to be run.
pub struct SlotMapRuns<'a> {
    /// The requests; nothing is evicted.
    pub stream: &'a Stream,
    /// Sizes of clusters.
    pub n_primaries: &'a [usize],
    /// Ways to a key's node.
    pub routes: &'a [Route],
    /// Numbers of clients.
    pub n_connections: &'a [usize],
    /// The system on each node.
    pub system: &'a System,
    /// The server and where it runs.
    pub setup: &'a Setup,
}

/// One cluster, one route, one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Primaries.
    pub n_primaries: usize,
    /// The clients' way to a key's node.
    pub route: String,
    /// Clients, each with one request at a time.
    pub n_connections: usize,
    /// Requests per second.
    pub throughput_per_s: f64,
    /// Redirects per request.
    pub redirects: f64,
    /// Commands that arrived at nodes, per request.
    pub commands: f64,
    /// Core time of all nodes per request, in µs.
    pub cpu_us: f64,
    /// Of this, the busiest node's, in µs.
    pub cpu_us_busiest: f64,
}

impl Row {
    /// Requests per second that the busiest node has time for: the most that the cluster serves when each node has a
    /// core.
    pub fn bound_per_s(&self) -> f64 {
        1e6 / self.cpu_us_busiest
    }
}

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub struct SlotMapReport {
    /// When, which server, and where.
    #[serde(flatten)]
    pub venue: Venue,
    /// The system on each node.
    pub system: String,
    /// Keys of the workload.
    pub n_keys: usize,
    /// Measured requests per row.
    pub n_requests: usize,
    /// In the order in which they were run.
    pub rows: Vec<Row>,
}

impl SlotMapRuns<'_> {
    /// Runs all. Pins this thread to the clients' core.
    ///
    /// # Errors
    /// When a node fails or a read misses, or the user interrupts.
    pub fn run(&self, interrupted: &AtomicBool) -> anyhow::Result<SlotMapReport> {
        self.setup.placement.pin_this_thread()?;
        let progress = progress_bar((self.n_primaries.len() * self.routes.len() * self.n_connections.len()) as u64);
        let mut rows = Vec::new();
        for &n_primaries in self.n_primaries {
            for &route in self.routes {
                let setup = Setup { cluster: Some(Clustering { n_primaries, route }), ..self.setup.clone() };
                let serving = self.system.serve(&setup, None, self.stream.keys.tenants())?;
                // By which the clients also learn the slots.
                serving.connect()?.load_all_keys(self.stream)?;
                for &n_connections in self.n_connections {
                    progress.set_message(format!("{n_primaries} primaries, {route}, {n_connections} connections"));
                    rows.push(self.measure(&serving, n_primaries, route, n_connections, interrupted)?);
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();
        Ok(SlotMapReport {
            venue: self.setup.venue(),
            system: self.system.label.to_string(),
            n_keys: self.stream.keys.len(),
            n_requests: self.stream.n_measured(),
            rows,
        })
    }

    fn measure(
        &self,
        serving: &Serving,
        n_primaries: usize,
        route: Route,
        n_connections: usize,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<Row> {
        let clients: anyhow::Result<Vec<Cache>> = (0..n_connections).map(|_| serving.connect()).collect();
        let mut clients = clients?;
        let (warmup, measured) = self.stream.requests.split_at(self.stream.n_warmup);
        self.perform(&mut clients, warmup, interrupted)?;
        let read = || serving.nodes().iter().map(Counters::read).collect::<anyhow::Result<Vec<Counters>>>();
        let before = read()?;
        let start = Instant::now();
        self.perform(&mut clients, measured, interrupted)?;
        let elapsed_s = start.elapsed().as_secs_f64();
        let nodes: Vec<Counters> = read()?.into_iter().zip(before).map(|(after, before)| after.since(before)).collect();
        let sum = nodes.iter().fold(Counters::default(), |sum, node| sum.plus(*node));
        let n = measured.len() as f64;
        Ok(Row {
            n_primaries,
            route: route.to_string(),
            n_connections,
            throughput_per_s: n / elapsed_s,
            redirects: sum.n_redirects as f64 / n,
            // A command that is sent elsewhere doesn't count as processed.
            commands: (sum.n_commands + sum.n_redirects) as f64 / n,
            cpu_us: sum.cpu_s * 1e6 / n,
            cpu_us_busiest: nodes.iter().map(|node| node.cpu_s).fold(0.0, f64::max) * 1e6 / n,
        })
    }

    /// Lets all clients together perform `requests`, each taking the next one when it is free.
    fn perform(&self, clients: &mut [Cache], requests: &[Request], interrupted: &AtomicBool) -> anyhow::Result<()> {
        let queue = Queue::new(0, requests.len());
        queue.work_off(clients, |cache| self.perform_one_by_one(cache, requests, &queue, interrupted))
    }

    fn perform_one_by_one(
        &self,
        cache: &mut Cache,
        requests: &[Request],
        queue: &Queue,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<()> {
        let keys = &self.stream.keys;
        let mut value = Vec::new();
        while let Some(index) = queue.take() {
            let request = &requests[index];
            ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
            let name = keys.name(request.key);
            let reply = match request.operation {
                Operation::Write => {
                    value.resize(request.value_bytes as usize, b'v');
                    cache.call(&[b"SET", name, &value])?
                }
                _ => cache.call(&[b"GET", name])?,
            };
            match reply {
                Reply::Bulk(_) | Reply::Simple => {}
                other => bail!("{:?} was answered by {other:?}", request.operation),
            }
        }
        Ok(())
    }
}

impl SlotMapReport {
    /// The report for people.
    pub fn table(&self) -> String {
        let head = format!(
            "{} on {}, {}: {} keys of 100 bytes, GET:SET 9:1, {} requests per row; {}\n\n",
            self.system, self.venue.server, self.venue.date, self.n_keys, self.n_requests, self.venue.placement
        );
        let header = [
            "primaries",
            "route",
            "connections",
            "requests/s",
            "redirects",
            "commands",
            "CPU us",
            "busiest node us",
            "it allows/s",
        ];
        let mut rows = vec![header.map(str::to_string).to_vec()];
        for row in &self.rows {
            rows.push(vec![
                row.n_primaries.to_string(),
                row.route.clone(),
                row.n_connections.to_string(),
                format!("{:.0}", row.throughput_per_s),
                format!("{:.3}", row.redirects),
                format!("{:.3}", row.commands),
                format!("{:.1}", row.cpu_us),
                format!("{:.1}", row.cpu_us_busiest),
                format!("{:.0}", row.bound_per_s()),
            ]);
        }
        format!(
            "{head}{}\nPer request: redirects, commands that arrived at nodes, core time of all nodes and of the \
             busiest.\n",
            columns(&rows)
        )
    }

    /// The report for programs.
    ///
    /// # Errors
    /// None in practice.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Figures 6 and 7: throughput against connections, and what the busiest node allows.
    pub fn charts(&self) -> [(&'static str, LineChart); 2] {
        let chart = |what: &str, figure: fn(&Row) -> f64| {
            let mut series: Vec<Series> = Vec::new();
            for row in &self.rows {
                let name = format!("{} {}", row.n_primaries, row.route);
                let point = (row.n_connections as f64, figure(row) / 1000.0);
                match series.iter_mut().find(|series| series.name == name) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series { name, points: vec![point] }),
                }
            }
            LineChart {
                title: format!("{what} ({}, {}, {})", self.system, self.venue.server, &self.venue.date[..10]),
                x_label: "connections".to_string(),
                y_label: "1000 requests/s".to_string(),
                x_log: true,
                series,
            }
        };
        [
            ("throughput", chart("Throughput by primaries and route", |row| row.throughput_per_s)),
            ("busiest-node", chart("What the busiest node allows", Row::bound_per_s)),
        ]
    }
}
