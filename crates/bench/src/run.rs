//! One run: a fresh server, the warm-up, the measurement in one part or several, and what came of it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use tenure_servers::Server;

use crate::backend::Backends;
use crate::client::probe::probe;
use crate::client::{Cache, CacheAside, Connection, Queue, Reply};
use crate::moment::Moment;
use crate::observation::{CoreTime, Counters, Memory};
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
    /// In how many turns the measured requests are performed.
    pub n_turns: usize,
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
    /// Mean latency in each turn, in µs.
    pub turns_us: Vec<f64>,
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
    /// How long they took altogether, without a restart or others' turns between them.
    pub elapsed: Duration,
    /// Evictions and core time, also of starting again.
    pub counters: Counters,
    /// Memory at the end; the peak is the largest of all starts.
    pub memory: Memory,
    /// Latencies of the probe's PINGs, in ns.
    pub pings_ns: Histogram<u64>,
    /// Of the machine's cores, without others' turns.
    pub core_time: CoreTime,
}

impl Observed {
    /// What was seen in one part and the next, which may be of a new process.
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
            core_time: self.core_time.plus(later.core_time),
        }
    }
}

/// A run that is under way: a system's servers, the clients, and what was seen so far.
pub struct Session<'a> {
    conditions: &'a Conditions<'a>,
    system: &'a System,
    serving: Serving,
    clients: Vec<(CacheAside<'a>, Recorder)>,
    /// Of the measured parts so far.
    observed: Option<Observed>,
    /// How long the server was away for its restart.
    down: Duration,
}

impl<'a> Session<'a> {
    /// Starts `system` with `maxmemory_bytes` on each of its servers, connects the clients and warms it up.
    ///
    /// # Errors
    /// When the server or a backend fails, or the user interrupts.
    pub fn begin(
        conditions: &'a Conditions<'a>,
        system: &'a System,
        maxmemory_bytes: u64,
    ) -> anyhow::Result<Session<'a>> {
        let stream = conditions.stream;
        let serving = system.serve(conditions.setup, Some(maxmemory_bytes), stream.keys.tenants())?;
        let mut session =
            Session { conditions, system, serving, clients: Vec::new(), observed: None, down: Duration::ZERO };
        session.guarded(|session| {
            for _ in 0..conditions.n_connections {
                let caches = session.connect()?;
                let client = CacheAside::new(stream, caches, conditions.backends.connect()?);
                session.clients.push((client, Recorder::new(stream)));
            }
            conditions.perform(&mut session.clients, 0..stream.n_warmup)
        })?;
        Ok(session)
    }

    /// Measures the requests of `range`, which come next.
    ///
    /// # Errors
    /// When the server or a backend fails, or the user interrupts.
    pub fn measure(&mut self, range: Range<usize>) -> anyhow::Result<()> {
        self.guarded(|session| {
            let Conditions { stream, restart, .. } = *session.conditions;
            let restart_at = restart.map(|moment| moment.first_request(stream)).filter(|at| range.contains(at));
            let before = Counters::read_all(session.serving.nodes())?;
            session.perform_observed(before, range.start..restart_at.unwrap_or(range.end))?;
            if let Some(restart_at) = restart_at {
                session.restart()?;
                // What the new process does to come back counts as well.
                session.perform_observed(Counters::default(), restart_at..range.end)?;
            }
            Ok(())
        })
    }

    /// The servers stand still until [`Session::resume`]: another system has its turn.
    ///
    /// # Errors
    /// When one has ended.
    pub fn halt(&self) -> anyhow::Result<()> {
        self.serving.nodes().iter().try_for_each(Server::halt)
    }

    /// They go on.
    ///
    /// # Errors
    /// When one has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.serving.nodes().iter().try_for_each(Server::resume)
    }

    /// What came of all measured requests.
    ///
    /// # Errors
    /// Where none was measured.
    pub fn end(self) -> anyhow::Result<Measurement> {
        let Conditions { stream, n_bins, n_turns, restart, .. } = *self.conditions;
        let mut recorder = Recorder::new(stream);
        for (_, of_client) in &self.clients {
            recorder.merge(of_client);
        }
        let events = recorder.take_events();
        let restart_at = restart.map(|moment| moment.first_request(stream));
        Ok(Measurement {
            recorder,
            timeline: timeline(stream, &events, n_bins),
            turns_us: timeline(stream, &events, n_turns).iter().filter_map(|turn| turn.latency_us_mean).collect(),
            paced: stream.pace.as_ref().map(|pace| Paced::of(stream, pace, &events, n_bins)),
            restart: restart_at.map(|restart_at| Restart::of(stream, &events, restart_at, self.down)),
            observed: self.observed.context("nothing was measured")?,
        })
    }

    /// Does `work`, and says what it was that failed.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let done = work(self);
        // Ctrl-C reaches the server too, so that what fails then is not the reason.
        if self.conditions.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if let Some(crash) = self.serving.crash() {
            bail!("{} crashed: {crash}", self.system.label);
        }
        done.with_context(|| format!("the run of {} failed", self.system.label))
    }

    fn restart(&mut self) -> anyhow::Result<()> {
        let Serving::Server(server) = &mut self.serving else { bail!("one server is restarted, not a cluster") };
        self.down = restart(server)?;
        for at in 0..self.clients.len() {
            let caches = self.connect()?;
            self.clients[at].0.reconnect(caches);
        }
        Ok(())
    }

    /// One client's connections to the cache: one, or one in each tenant's database.
    fn connect(&self) -> anyhow::Result<Vec<Cache>> {
        if !self.system.has_databases() {
            return Ok(vec![self.serving.connect()?]);
        }
        let select = |tenant: usize| {
            let mut cache = self.serving.connect()?;
            let reply = cache.call(&[b"SELECT", tenant.to_string().as_bytes()])?;
            ensure!(reply == Reply::Simple, "SELECT {tenant} was answered by {reply:?}");
            Ok(cache)
        };
        (0..self.conditions.stream.keys.n_tenants()).map(select).collect()
    }

    /// Performs the requests of `range` and observes what the servers do since its counters were `before`.
    fn perform_observed(&mut self, before: Counters, range: Range<usize>) -> anyhow::Result<()> {
        let began = CoreTime::read()?;
        let (elapsed, pings_ns) = self.perform_probed(range)?;
        let core_time = CoreTime::read()?.since(began);
        let nodes = self.serving.nodes();
        let counters = Counters::read_all(nodes)?.since(before);
        let seen = Observed { elapsed, counters, memory: Memory::read_all(nodes)?, pings_ns, core_time };
        self.observed = Some(match self.observed.take() {
            Some(earlier) => earlier.followed_by(seen),
            None => seen,
        });
        Ok(())
    }

    /// Performs them while a probe watches for stalls, of a cluster on its first node.
    fn perform_probed(&mut self, range: Range<usize>) -> anyhow::Result<(Duration, Histogram<u64>)> {
        let (connection, stop) = (Connection::open(self.serving.nodes()[0].port())?, AtomicBool::new(false));
        thread::scope(|scope| {
            let probing = scope.spawn(|| probe(connection, &stop));
            let start = Instant::now();
            let performed = self.conditions.perform(&mut self.clients, range);
            let elapsed = start.elapsed();
            stop.store(true, Ordering::Relaxed);
            let pings_ns = probing.join().map_err(|_| anyhow!("the probe panicked"))?;
            performed?;
            Ok((elapsed, pings_ns?))
        })
    }
}

impl Conditions<'_> {
    /// Lets all clients together perform the requests of `range`, each taking the next one when it is free.
    fn perform(&self, clients: &mut [(CacheAside, Recorder)], range: Range<usize>) -> anyhow::Result<()> {
        let slow_from = self.backends.slow_from(self.stream);
        self.backends.set_slow(slow_from.is_some_and(|from| from < range.start));
        let leg =
            Leg { start: Instant::now(), first: range.start, queue: Queue::new(range.start, range.end), slow_from };
        leg.queue.work_off(clients, |(client, recorder)| self.perform_one_by_one(client, recorder, &leg))
    }

    fn perform_one_by_one(&self, client: &mut CacheAside, recorder: &mut Recorder, leg: &Leg) -> anyhow::Result<()> {
        wake_exactly();
        while let Some(index) = leg.queue.take() {
            if index.is_multiple_of(PROGRESS_STEP) {
                self.progress.inc(PROGRESS_STEP as u64);
                ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
            }
            let late = leg.wait_until_due(self.stream.pace.as_ref(), index);
            if leg.slow_from == Some(index) {
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
    /// From which request on a backend is slow, if one ever is.
    slow_from: Option<usize>,
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
