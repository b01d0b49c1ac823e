//! The dashboard: one page in the program, looks sent to it each second, an hour of history, and what `tenure plan`
//! answers.
//!
//! One thread looks, whoever watches; pages wait for it. A tenant's curve is asked of the server at most once a second,
//! and only when a window has ended since or a while has passed. Nothing that a page asks for changes anything.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::ConnectionInfo;
use serde_json::{Value, json};

use crate::history::History;
use crate::http::{Answer, Guard, Request, serve};
use crate::nodes::{Node, connect, is_of_connection};
use crate::plan::{Answer as Plan, Known, of_servers};
use crate::sampler::{Look, Sampler};
use crate::summary::Summary;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A page that hears nothing for so long would think the connection lost.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A curve is kept for so long at least, and, while no window ends, at most.
const CURVE_AGE_MIN: Duration = Duration::from_secs(1);
const CURVE_AGE_MAX: Duration = Duration::from_secs(30);
/// How long servers are asked on the same connections.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60);
/// Points of a curve that a page draws.
const CURVE_POINTS: usize = 200;

/// The page and what it is made of: path, media type, contents.
const FILES: [(&str, &str, &str); 6] = [
    ("/", "text/html; charset=utf-8", include_str!("../assets/index.html")),
    ("/app.css", "text/css; charset=utf-8", include_str!("../assets/app.css")),
    ("/app.js", "text/javascript; charset=utf-8", include_str!("../assets/app.js")),
    ("/uPlot.iife.min.js", "text/javascript; charset=utf-8", include_str!("../assets/uplot/uPlot.iife.min.js")),
    ("/uPlot.min.css", "text/css; charset=utf-8", include_str!("../assets/uplot/uPlot.min.css")),
    ("/uPlot-licence.txt", "text/plain; charset=utf-8", include_str!("../assets/uplot/LICENSE")),
];

/// What the thread that looks leaves for pages.
#[derive(Default)]
struct Board {
    history: History,
    /// The last look as JSON; empty before the first.
    latest: Arc<str>,
    /// Grows with each look.
    n_looks: u64,
    /// Windows that have ended, by which curves grow old.
    windows: f64,
}

/// Looks, and those who wait for them.
#[derive(Default)]
struct Watch {
    board: Mutex<Board>,
    has_looked: Condvar,
}

impl Watch {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks once a second for as long as the process lives.
    fn look(&self, mut sampler: Sampler) {
        let mut before: Option<Look> = None;
        loop {
            let began = Instant::now();
            let look = sampler.look();
            let summary = Summary::of(before.as_ref(), &look);
            let text: Arc<str> = summary.to_json().to_string().into();
            {
                let mut board = self.board();
                board.history.add(&summary);
                board.windows = summary.figure("windows").unwrap_or(0.0);
                board.latest = text;
                board.n_looks += 1;
            }
            self.has_looked.notify_all();
            before = Some(look);
            thread::sleep(EVERY.saturating_sub(began.elapsed()));
        }
    }

    /// Sends each look as an event until the page is gone.
    fn send_events(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut sent = 0;
        loop {
            let board = self.board();
            let wait = self.has_looked.wait_timeout_while(board, SILENCE_MAX, |board| board.n_looks == sent);
            let (board, _) = wait.unwrap_or_else(PoisonError::into_inner);
            let (text, n_looks) = (Arc::clone(&board.latest), board.n_looks);
            drop(board);
            match n_looks == sent {
                true => to.write_all(b": still here\n\n")?,
                false => write!(to, "data: {text}\n\n")?,
            }
            to.flush()?;
            sent = n_looks;
        }
    }
}

/// Tenants' curves as they were asked for last.
struct Plans {
    address: ConnectionInfo,
    nodes: Vec<Node>,
    /// When they were connected: a cluster may be another one by now.
    connected: Instant,
    known: HashMap<String, (Instant, f64, Known)>,
}

impl Plans {
    /// What is known of a tenant, asked of the servers where what is kept has grown old.
    fn of(&mut self, tenant: &str, windows: f64) -> Result<&Known> {
        let is_fresh = |(asked, of_windows, _): &(Instant, f64, Known)| {
            let age = asked.elapsed();
            age < CURVE_AGE_MIN || (*of_windows == windows && age < CURVE_AGE_MAX)
        };
        if !self.known.get(tenant).is_some_and(is_fresh) {
            if self.nodes.is_empty() || self.connected.elapsed() > CONNECTION_AGE_MAX {
                self.nodes = connect(self.address.clone())?;
                self.connected = Instant::now();
            }
            let known = of_servers(&mut self.nodes, Some(tenant)).inspect_err(|error| {
                if is_of_connection(error) {
                    self.nodes.clear();
                }
            })?;
            self.known.insert(tenant.to_owned(), (Instant::now(), windows, known));
        }
        self.known.get(tenant).map(|(_, _, known)| known).context("nothing is known of it")
    }
}

/// Looks at the server, or all primaries of its cluster, and serves the page until the process ends.
///
/// # Errors
/// As [`serve`].
pub fn run(listener: TcpListener, guard: Guard, address: ConnectionInfo) -> Result<()> {
    let watch = Arc::new(Watch::default());
    let looking = Arc::clone(&watch);
    let sampler = Sampler::new(address.clone());
    let look = move || looking.look(sampler);
    thread::Builder::new().name("tenure-looks".to_owned()).spawn(look).context("no thread to look from")?;
    let plans = Mutex::new(Plans { address, nodes: Vec::new(), connected: Instant::now(), known: HashMap::new() });
    serve(listener, guard, move |request| answer(&watch, &plans, request))
}

fn answer(watch: &Arc<Watch>, plans: &Mutex<Plans>, request: &Request) -> Answer {
    if let Some((_, content_type, text)) = FILES.iter().find(|(path, _, _)| *path == request.path) {
        return Answer::ok(content_type, text.as_bytes());
    }
    match request.path.as_str() {
        "/events" => {
            let watch = Arc::clone(watch);
            Answer::Events(Box::new(move |to| watch.send_events(to)))
        }
        "/history" => match request.query("seconds").unwrap_or("3600").parse() {
            Ok(seconds) => as_json(&watch.board().history.stretch(seconds)),
            Err(_) => Answer::refusal(400, "seconds is to be a number"),
        },
        "/plan" => plan(watch, plans, request),
        other => Answer::refusal(404, format!("there is nothing at {other}")),
    }
}

fn as_json(value: &Value) -> Answer {
    Answer::ok("application/json", value.to_string().into_bytes())
}

/// What `tenure plan --json` says, the curve, and, where `bytes` are asked about, what would be with them.
fn plan(watch: &Watch, plans: &Mutex<Plans>, request: &Request) -> Answer {
    let Some(tenant) = request.query("tenant") else { return Answer::refusal(400, "tenant is needed") };
    let (Ok(bytes), Ok(miss_ratio)) = (number::<u64>(request, "bytes"), number::<f64>(request, "miss_ratio")) else {
        return Answer::refusal(400, "bytes is to be a whole number, miss_ratio one of 0 to 1");
    };
    let windows = watch.board().windows;
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    let known = match plans.of(tenant, windows) {
        Ok(known) => known,
        // Of a tenant that has been asked for by nobody yet there is no curve: that is an answer too.
        Err(error) => return as_json(&json!({ "tenant": tenant, "curve": [], "why": format!("{error:#}") })),
    };
    let mut answer = Plan::of(known, miss_ratio).to_json(known);
    let points = known.curve.thinned(CURVE_POINTS);
    answer["curve"] = points.points().iter().map(|point| json!([point.bytes, point.miss_ratio])).collect();
    if let Some(bytes) = bytes {
        answer["what_if"] = json!({ "bytes": bytes, "miss_ratio": known.curve.miss_ratio_at(bytes) });
    }
    as_json(&answer)
}

/// A number of the query, if it is there.
fn number<T: std::str::FromStr>(request: &Request, name: &str) -> Result<Option<T>, T::Err> {
    request.query(name).map(str::parse).transpose()
}
