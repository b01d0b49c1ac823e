//! One run: a fresh server, the warm-up, the measurement, and what came of it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::backend::Backends;
use crate::client::probe::probe;
use crate::client::{Cache, CacheAside, Connection, Queue, Reply};
use crate::moment::Moment;
use crate::observation::{Counters, Memory};
use crate::paced::Paced;
use crate::placement::{wait_until, wake_exactly};
use crate::restart::{Restart, restart};
use crate::statistics::Recorder;
use crate::system::{Serving, Setup, System};
use crate::timeline::{Point, timeline};
use crate::workload::Stream;
use crate::workload::pace::Pace;

/// The progress bar is moved once per so many requests.
const PROGRESS_STEP: usize = 256;

/// What all runs of a comparison share.
pub struct Conditions<'a> {
    /// The requests.
    pub stream: &'a Stream,
    /// Where misses go.
    pub backends: &'a Backends,
    /// The server and where it runs.
    pub setup: &'a Setup,
    /// How many clients ask at once.
    pub n_connections: usize,
    /// Into how many bins a run is cut for its timeline.
    pub n_bins: usize,
    /// When the server is restarted, if it is.
    pub restart: Option<Moment>,
    /// Counts requests for whoever watches.
    pub progress: &'a ProgressBar,
    /// Set when the user wants an end.
    pub interrupted: &'a AtomicBool,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// Latencies and misses.
    pub recorder: Recorder,
    /// The same over the run.
    pub timeline: Vec<Point>,
    /// In peaks and valleys, where the workload has a pace.
    pub paced: Option<Paced>,
    /// Before and after the restart, if there was one.
    pub restart: Option<Restart>,
    /// The server meanwhile.
    pub observed: Observed,
}

/// What was seen of the server during the measured requests.
#[derive(Clone, Debug)]
pub struct Observed {
    /// How long they took altogether, without a restart between them.
    pub elapsed: Duration,
    /// Evictions and core time, also of starting again.
    pub counters: Counters,
    /// Memory at the end; the peak is the largest of all starts.
    pub memory: Memory,
    /// Latencies of the probe's PINGs, in ns.
    pub pings_ns: Histogram<u64>,
}

impl Observed {
    /// What was seen before and after a restart.
    fn followed_by(mut self, later: Observed) -> Observed {
        self.pings_ns.add(&later.pings_ns).expect("histograms of the same bounds");
        Observed {
            elapsed: self.elapsed + later.elapsed,
            counters: self.counters.plus(later.counters),
            memory: Memory {
                used_bytes_peak: self.memory.used_bytes_peak.max(later.memory.used_bytes_peak),
                ..later.memory
            },
            pings_ns: self.pings_ns,
        }
    }
}

impl Conditions<'_> {
    /// Runs `system` with `maxmemory_bytes` on each of its servers.
    ///
    /// # Errors
    /// When the server or a backend fails, or the user interrupts.
    pub fn run(&self, system: &System, maxmemory_bytes: u64) -> anyhow::Result<Measurement> {
        let mut serving = system.serve(self.setup, Some(maxmemory_bytes), self.stream.keys.tenants())?;
        let measured = self.measure(&mut serving, system.has_databases());
        // Ctrl-C reaches the server too, so that what fails then is not the reason.
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if let Some(crash) = serving.crash() {
            bail!("{} crashed: {crash}", system.label);
        }
        measured.with_context(|| format!("the run of {} failed", system.label))
    }

    fn measure(&self, serving: &mut Serving, databases: bool) -> anyhow::Result<Measurement> {
        let (stream, mut clients) = (self.stream, Vec::new());
        for _ in 0..self.n_connections {
            let caches = self.connect(serving, databases)?;
            clients.push((CacheAside::new(stream, caches, self.backends.connect()?), Recorder::new(stream)));
        }
        self.backends.set_slow(false);
        self.perform(&mut clients, 0..stream.n_warmup)?;
        let end = stream.requests.len();
        let restart_at = self.restart.map(|moment| moment.first_request(stream));
        let (before, first_leg) = (Counters::read_all(serving.nodes())?, stream.n_warmup..restart_at.unwrap_or(end));
        let mut observed = self.perform_observed(&mut clients, serving, before, first_leg)?;
        let mut down = Duration::ZERO;
        if let Some(restart_at) = restart_at {
            let Serving::Server(server) = serving else { bail!("one server is restarted, not a cluster") };
            down = restart(server)?;
            for (client, _) in &mut clients {
                client.reconnect(self.connect(serving, databases)?);
            }
            // What the new process does to come back counts as well.
            let later = self.perform_observed(&mut clients, serving, Counters::default(), restart_at..end)?;
            observed = observed.followed_by(later);
        }
        let mut recorder = Recorder::new(stream);
        for (_, of_client) in &clients {
            recorder.merge(of_client);
        }
        let events = recorder.take_events();
        Ok(Measurement {
            recorder,
            timeline: timeline(stream, &events, self.n_bins),
            paced: stream.pace.as_ref().map(|pace| Paced::of(stream, pace, &events, self.n_bins)),
            restart: restart_at.map(|restart_at| Restart::of(stream, &events, restart_at, down)),
            observed,
        })
    }

    /// One client's connections to the cache: one, or one in each tenant's database.
    fn connect(&self, serving: &Serving, databases: bool) -> anyhow::Result<Vec<Cache>> {
        if !databases {
            return Ok(vec![serving.connect()?]);
        }
        let select = |tenant: usize| {
            let mut cache = serving.connect()?;
            let reply = cache.call(&[b"SELECT", tenant.to_string().as_bytes()])?;
            ensure!(reply == Reply::Simple, "SELECT {tenant} was answered by {reply:?}");
            Ok(cache)
        };
        (0..self.stream.keys.n_tenants()).map(select).collect()
    }

    /// Performs the requests of `range` and observes what the servers do since its counters were `before`.
    fn perform_observed(
        &self,
        clients: &mut [(CacheAside, Recorder)],
        serving: &Serving,
        before: Counters,
        range: Range<usize>,
    ) -> anyhow::Result<Observed> {
        let (elapsed, pings_ns) = self.perform_probed(clients, serving, range)?;
        let counters = Counters::read_all(serving.nodes())?.since(before);
        Ok(Observed { elapsed, counters, memory: Memory::read_all(serving.nodes())?, pings_ns })
    }

    /// Performs them while a probe watches for stalls, of a cluster on its first node.
    fn perform_probed(
        &self,
        clients: &mut [(CacheAside, Recorder)],
        serving: &Serving,
        range: Range<usize>,
    ) -> anyhow::Result<(Duration, Histogram<u64>)> {
        let (connection, stop) = (Connection::open(serving.nodes()[0].port())?, AtomicBool::new(false));
        thread::scope(|scope| {
            let probing = scope.spawn(|| probe(connection, &stop));
            let start = Instant::now();
            let performed = self.perform(clients, range);
            let elapsed = start.elapsed();
            stop.store(true, Ordering::Relaxed);
            let pings_ns = probing.join().map_err(|_| anyhow!("the probe panicked"))?;
            performed?;
            Ok((elapsed, pings_ns?))
        })
    }

    /// Lets all clients together perform the requests of `range`, each taking the next one when it is free.
    fn perform(&self, clients: &mut [(CacheAside, Recorder)], range: Range<usize>) -> anyhow::Result<()> {
        let leg = Leg { start: Instant::now(), first: range.start, queue: Queue::new(range.start, range.end) };
        leg.queue.work_off(clients, |(client, recorder)| self.perform_one_by_one(client, recorder, &leg))
    }

    fn perform_one_by_one(&self, client: &mut CacheAside, recorder: &mut Recorder, leg: &Leg) -> anyhow::Result<()> {
        wake_exactly();
        let slow_from = self.backends.slow_from(self.stream);
        while let Some(index) = leg.queue.take() {
            if index.is_multiple_of(PROGRESS_STEP) {
                self.progress.inc(PROGRESS_STEP as u64);
                ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
            }
            let late = leg.wait_until_due(self.stream.pace.as_ref(), index);
            if slow_from == Some(index) {
                self.backends.set_slow(true);
            }
            let start = Instant::now();
            let outcome = client.perform(&self.stream.requests[index])?;
            recorder.record(self.stream, index, late, start.elapsed(), outcome);
        }
        Ok(())
    }
}

/// A part of the stream that is performed without a break.
struct Leg {
    /// Its first request.
    first: usize,
    queue: Queue,
    /// When it began; its first request is due then.
    start: Instant,
}

impl Leg {
    /// Waits until the request at `index` is due, and returns by how much that is past.
    fn wait_until_due(&self, pace: Option<&Pace>, index: usize) -> Duration {
        let Some(pace) = pace else { return Duration::ZERO };
        let due = self.start + pace.due_after(self.first, index);
        wait_until(due);
        due.elapsed()
    }
}
