//! What all topics share: which servers to run on, a server with the module, and its own account of itself as plain
//! values.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::ops::Index;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::{Cmd, Connection, FromRedisValue, Value};
pub use tenure_servers::DEADLINE;
use tenure_servers::{Server, ServerBinary, ServerOptions, clock_path, module_path};

/// A server that runs for so long hangs.
const LIFETIME: Duration = Duration::from_secs(600);

/// A server with the module, and windows that end fast.
pub fn with_module() -> ServerOptions {
    let module = module_path().expect("the module is built before its tests run");
    let options = ServerOptions { lifetime: Some(LIFETIME), ..ServerOptions::default() }.with_module(module);
    // However fast the machine is, everything is watched, so that counts are exact; what else there may be,
    // observe.rs tests.
    options.set("tenure.window-seconds", 1).set("tenure.window-requests", 1000).set("tenure.watch-percent", 100)
}

/// The same where Tenure evicts and its settings don't matter otherwise: with time enough for a turn's evictions on a
/// slow machine, for tests that are about which keys go.
pub fn evicting_in_time() -> ServerOptions {
    with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.turn-budget-us", 5000)
}

/// With a clock so fast that a test of seconds isn't a handful of ticks of the LRU clock, in which all keys look alike.
pub fn with_fine_clock(options: ServerOptions) -> ServerOptions {
    options.with_clock(clock_path().expect("the clock is built before its tests run"), 100)
}

/// Makes a user who may do everything to keys of that pattern (`~*`: any).
pub fn add_user(server: &Server, name: &str, keys: &str) {
    server.call::<()>(&["ACL", "SETUSER", name, "on", ">password", keys, "+@all"]).unwrap();
}

/// A connection of that user.
#[track_caller]
pub fn login(server: &Server, name: &str) -> Connection {
    let mut connection = server.connection().unwrap();
    send::<()>(&mut connection, &format!("AUTH {name} password"));
    connection
}

/// Every server of this machine, oldest first. None only where `TENURE_SKIP_SERVER` is 1 and there is no server: the
/// test then says that it is skipped.
pub fn servers() -> Vec<ServerBinary> {
    match ServerBinary::all() {
        Ok(servers) => servers,
        Err(why) if std::env::var("TENURE_SKIP_SERVER").is_ok_and(|value| value == "1") => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            println!("SKIPPED: {test}: {why:#}");
            Vec::new()
        }
        Err(why) => panic!("{why:#}; TENURE_SKIP_SERVER=1 skips the tests that need a server"),
    }
}

/// Of these those on which a filter is told who sends a command.
pub fn that_know_clients(servers: Vec<ServerBinary>) -> Vec<ServerBinary> {
    servers.into_iter().filter(|binary| !binary.label.starts_with("redis-7.0")).collect()
}

/// The oldest and the newest server, which may be one.
pub fn oldest_and_newest() -> Vec<ServerBinary> {
    oldest_and_newest_of(servers())
}

/// The same of these.
pub fn oldest_and_newest_of(mut servers: Vec<ServerBinary>) -> Vec<ServerBinary> {
    if servers.len() > 2 {
        servers.drain(1..servers.len() - 1);
    }
    servers
}

/// Runs `test` on a fresh server of every version.
pub fn on_every_server(options: &ServerOptions, test: impl Fn(&mut Server)) {
    run_on(servers(), options, test);
}

/// Runs `test` on a fresh server of the oldest and of the newest version.
pub fn on_oldest_and_newest(options: &ServerOptions, test: impl Fn(&mut Server)) {
    run_on(oldest_and_newest(), options, test);
}

fn run_on(binaries: Vec<ServerBinary>, options: &ServerOptions, test: impl Fn(&mut Server)) {
    for binary in binaries {
        // Shown where the test fails: the last line says on which server.
        println!("on {}", binary.label);
        let mut server = start(&binary, options);
        test(&mut server);
    }
}

/// A running server.
#[track_caller]
pub fn start(binary: &ServerBinary, options: &ServerOptions) -> Server {
    Server::start(binary, options).unwrap_or_else(|why| panic!("{why:#}"))
}

/// Waits until `condition` holds.
#[track_caller]
pub fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    tenure_servers::wait_for(DEADLINE, what, condition).unwrap();
}

/// Sends one line, words separated by spaces.
#[track_caller]
pub fn send<T: FromRedisValue>(connection: &mut Connection, line: &str) -> T {
    command(line).query(connection).unwrap_or_else(|why| panic!("{line}: {why}"))
}

/// The error that a line is answered with.
#[track_caller]
pub fn error_of(connection: &mut Connection, line: &str) -> String {
    match command(line).query::<Value>(connection) {
        Ok(reply) => panic!("{line}: no error but {reply:?}"),
        Err(error) => error.to_string(),
    }
}

/// A line as a command.
pub fn command(line: &str) -> Cmd {
    let mut command = Cmd::new();
    line.split(' ').for_each(|word| {
        command.arg(word);
    });
    command
}

/// Sets one setting of the server at run time.
#[track_caller]
pub fn config_set(connection: &mut Connection, name: &str, value: impl Display) {
    let mut command = redis::cmd("CONFIG");
    command.arg("SET").arg(name).arg(value.to_string());
    command.exec(connection).unwrap_or_else(|why| panic!("CONFIG SET {name} {value}: {why}"));
}

/// One setting of the server.
#[track_caller]
pub fn config_get(connection: &mut Connection, name: &str) -> String {
    let found: Vec<String> = send(connection, &format!("CONFIG GET {name}"));
    found.get(1).unwrap_or_else(|| panic!("there is no setting {name}")).clone()
}

/// Named numbers, as `TENURE.PARTITIONS` gives them for one partition.
#[derive(Clone, Debug, Default)]
pub struct Row(BTreeMap<String, f64>);

impl Index<&str> for Row {
    type Output = f64;

    fn index(&self, name: &str) -> &f64 {
        self.0.get(name).unwrap_or_else(|| panic!("no field {name} in {:?}", self.0))
    }
}

impl Row {
    fn none() -> Row {
        let names = ["reads", "writes", "deletes", "misses", "keys", "used_bytes", "target_bytes", "evictions"];
        Row(names.iter().map(|name| ((*name).to_owned(), 0.0)).collect())
    }
}

/// `TENURE.PARTITIONS`, by name of the partition.
#[track_caller]
pub fn partitions(connection: &mut Connection) -> BTreeMap<String, Row> {
    let rows: Vec<BTreeMap<String, String>> = send(connection, "TENURE.PARTITIONS");
    let numbers = |row: &BTreeMap<String, String>| {
        let others = row.iter().filter(|(name, _)| !["name", "tenant", "class", "rest"].contains(&name.as_str()));
        Row(others.map(|(name, value)| (name.clone(), value.parse().expect("a number"))).collect())
    };
    rows.iter().map(|row| (row["name"].clone(), numbers(row))).collect()
}

/// One row of `TENURE.PARTITIONS`; zeros where the partition isn't met yet.
#[track_caller]
pub fn partition(connection: &mut Connection, name: &str) -> Row {
    partitions(connection).remove(name).unwrap_or_else(Row::none)
}

/// `TENURE.STATUS`.
#[track_caller]
pub fn status(connection: &mut Connection) -> BTreeMap<String, String> {
    send(connection, "TENURE.STATUS")
}

/// One field of `INFO tenure`, without its prefix, as a number.
#[track_caller]
pub fn info(server: &Server, name: &str) -> f64 {
    let fields = server.info("tenure").unwrap();
    let text = fields.get(&format!("tenure_{name}")).unwrap_or_else(|| panic!("INFO tenure has no {name}: {fields:?}"));
    text.parse().unwrap_or_else(|_| panic!("{name} is '{text}'"))
}

/// A connection in database `db`.
#[track_caller]
pub fn connection_to(server: &Server, db: u16) -> Connection {
    let mut connection = server.connection().unwrap();
    if db > 0 {
        send::<()>(&mut connection, &format!("SELECT {db}"));
    }
    connection
}

/// A small generator of repeatable numbers (SplitMix64), for keys and sizes.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl Random {
    /// Evenly in [0, 1).
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Log-normal with that median: what sizes of cached values look like. `spread` is the standard deviation of the
    /// logarithm.
    pub fn log_normal(&mut self, median: f64, spread: f64) -> f64 {
        let (a, b) = (1.0 - self.share(), self.share());
        median * (spread * (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()).exp()
    }
}

/// A way in which commands go by unseen.
#[derive(Clone, Copy, Debug)]
pub struct Unseen {
    /// What `tenure_watching` says then.
    watching: &'static str,
    /// A server's settings for it.
    settings: &'static [(&'static str, &'static str)],
    /// The setting that says how much is watched, with its values for all and for little.
    how_much: (&'static str, [u32; 2]),
    /// What a tenant's entry has to end with: one with a maximum may be short of memory at any time.
    pub maximum: &'static str,
}

impl Unseen {
    /// Far from the limit, where a fast stream is watched in part; and on a busy main thread at its limit, where slices
    /// of it are.
    pub const WAYS: [Unseen; 2] = [
        Unseen { watching: "paused", settings: &[], how_much: ("tenure.watched-per-second", [0, 100]), maximum: "" },
        Unseen {
            watching: "slices",
            settings: &[("maxmemory", "1gb"), ("maxmemory-policy", "allkeys-lru"), ("tenure.watch-busy-percent", "0")],
            how_much: ("tenure.watch-percent", [100, 1]),
            maximum: ",max=900mb",
        },
    ];

    /// Settings with which all is seen at first.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let (how_much, [all, _]) = self.how_much;
        let others = self.settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        others.chain([(how_much, all.to_string())]).collect()
    }

    /// The same with other options.
    pub fn options(&self, options: ServerOptions) -> ServerOptions {
        self.settings().into_iter().fold(options, |options, (name, value)| options.set(name, value))
    }

    /// From now on few commands are seen.
    #[track_caller]
    pub fn begin(&self, server: &Server) {
        let (how_much, [_, little]) = self.how_much;
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, how_much, little);
        wait_for("commands to go unseen", || {
            Unseen::pass_by(&mut connection);
            self.is_so(server)
        });
    }

    /// A burst of reads. Some are in slices, and few of those that come right after it.
    pub fn pass_by(connection: &mut Connection) {
        let mut reads = redis::pipe();
        (0..2000).for_each(|i| _ = reads.cmd("GET").arg(format!("absent:{i}")).ignore());
        reads.exec(connection).unwrap();
    }

    /// True where nothing at all is seen.
    pub fn is_whole(&self) -> bool {
        self.watching == "paused"
    }

    /// True while commands go unseen so.
    pub fn is_so(&self, server: &Server) -> bool {
        server.info("tenure").unwrap()["tenure_watching"] == self.watching
    }
}

/// A client that reads through the cache: what it misses it fetches from a backend that takes its time, and writes
/// back.
pub struct CacheAside {
    connection: Connection,
    random: Random,
    prefix: &'static str,
    keys: u64,
    value: Vec<u8>,
    /// How much of `value` is that of a key.
    value_bytes: fn(u64) -> usize,
    backend_takes: Duration,
    pub reads: u64,
    pub misses: u64,
}

/// Sizes of values that differ: log-normal by the key, half of them below 1000 bytes, and an eighth of the bytes in
/// those.
pub fn size_of_key(key: u64) -> usize {
    Random::new(key).log_normal(1000.0, 1.2).clamp(50.0, 65536.0) as usize
}

impl CacheAside {
    /// Reads `keys` keys of `prefix` evenly, whose values take `value_bytes`.
    pub fn new(connection: Connection, prefix: &'static str, keys: u64, value_bytes: usize) -> CacheAside {
        CacheAside {
            connection,
            random: Random::new(1),
            prefix,
            keys,
            value: vec![b'v'; value_bytes],
            value_bytes: |_| usize::MAX,
            backend_takes: Duration::ZERO,
            reads: 0,
            misses: 0,
        }
    }

    /// The same with values of [`size_of_key`].
    pub fn with_sizes(self) -> CacheAside {
        CacheAside { value: vec![b'v'; 65536], value_bytes: size_of_key, ..self }
    }

    /// The same with a backend that takes so long for each fetch.
    pub fn with_backend(self, backend_takes: Duration) -> CacheAside {
        CacheAside { backend_takes, ..self }
    }

    /// Reads `n` random keys at once, and fetches those that are missing at once.
    pub fn read_some(&mut self, n: usize) {
        let keys: Vec<u64> = (0..n).map(|_| self.random.below(self.keys)).collect();
        self.read(&keys);
    }

    /// Reads these keys at once, and fetches those that are missing at once.
    pub fn read(&mut self, keys: &[u64]) {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let mut pipeline = redis::pipe();
        keys.iter().for_each(|key| {
            pipeline.cmd("GET").arg(format!("{}{key}", self.prefix));
        });
        let found: Vec<Option<Vec<u8>>> = pipeline.query(&mut self.connection).unwrap();
        self.reads += keys.len() as u64;
        let missing: Vec<u64> = keys.iter().zip(found).filter(|(_, f)| f.is_none()).map(|(key, _)| *key).collect();
        if missing.is_empty() {
            return;
        }
        self.misses += missing.len() as u64;
        // This is the backend's work, not a wait for something to happen.
        std::thread::sleep(self.backend_takes);
        self.write(&missing);
    }

    /// Writes these keys at once.
    pub fn write(&mut self, keys: &[u64]) {
        let mut pipeline = redis::pipe();
        keys.iter().for_each(|key| {
            let value = &self.value[..(self.value_bytes)(*key).min(self.value.len())];
            pipeline.cmd("SET").arg(format!("{}{key}", self.prefix)).arg(value).ignore();
        });
        // Refused writes (OOM) are part of some tests.
        let _ = pipeline.exec(&mut self.connection);
    }

    /// Reads each key once.
    pub fn read_all(&mut self) {
        let keys: Vec<u64> = (0..self.keys).collect();
        keys.chunks(100).for_each(|chunk| self.read(chunk));
    }
}

/// Used memory, in bytes.
#[track_caller]
pub fn used_memory(server: &Server) -> u64 {
    server.info("memory").unwrap()["used_memory"].parse().unwrap()
}

/// Keys that the server itself evicted.
#[track_caller]
pub fn evicted_by_server(server: &Server) -> u64 {
    server.info("stats").unwrap()["evicted_keys"].parse().unwrap()
}

/// Sets `maxmemory` to what the server uses now and `more_bytes`.
#[track_caller]
pub fn limit_memory(server: &Server, more_bytes: u64) -> u64 {
    let limit = used_memory(server) + more_bytes;
    config_set(&mut server.connection().unwrap(), "maxmemory", limit);
    limit
}

/// Waits until Tenure evicts by this limit: where the server tells of no settings, that takes a tick.
#[track_caller]
pub fn wait_for_limit(connection: &mut Connection, bytes: u64) {
    wait_for("Tenure to know the limit", || status(connection)["maxmemory_bytes"] == bytes.to_string());
}

/// A key and its database.
type KeyOfDb = (u16, Vec<u8>);

/// The channel of what marks a place in the stream of events.
const FENCE: &str = "fence-of-a-test";

/// Every `evicted` event of a server since this began, with the database it came from, and when it was heard of.
pub struct EvictedKeys {
    seen: Arc<Mutex<Vec<(KeyOfDb, Instant)>>>,
    /// Asks the server for [`FENCE`]: what it said before has been heard when that is.
    asks: Mutex<Connection>,
    fences: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EvictedKeys {
    /// Subscribes.
    pub fn of(server: &Server) -> EvictedKeys {
        EvictedKeys::with_events(server, &["evicted"])
    }

    /// The same of other events that say that a key has gone.
    pub fn with_events(server: &Server, events: &[&str]) -> EvictedKeys {
        config_set(&mut server.connection().unwrap(), "notify-keyspace-events", "Eeg");
        let channels: Vec<String> = events.iter().map(|event| format!("__keyevent@*__:{event}")).collect();
        let mut connection = server.connection().unwrap();
        let asks = Mutex::new(server.connection().unwrap());
        let (seen, fences, stop) = (Arc::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (its_seen, its_fences, its_stop) = (Arc::clone(&seen), Arc::clone(&fences), Arc::clone(&stop));
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut events = connection.as_pubsub();
            channels.iter().for_each(|channel| events.psubscribe(channel).unwrap());
            events.subscribe(FENCE).unwrap();
            events.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            ready.send(()).unwrap();
            while !its_stop.load(Ordering::Relaxed) {
                match events.get_message() {
                    Ok(message) if message.get_channel_name() == FENCE => {
                        _ = its_fences.fetch_add(1, Ordering::Relaxed)
                    }
                    Ok(message) => {
                        let channel = message.get_channel_name();
                        let db = channel.split(['@', '_']).find_map(|part| part.parse().ok()).unwrap();
                        let seen: &Mutex<Vec<_>> = &its_seen;
                        seen.lock().unwrap().push(((db, message.get_payload_bytes().to_vec()), Instant::now()));
                    }
                    // Nothing came, or this process was stopped for a while ("Interrupted system call").
                    Err(error) if error.is_io_error() && !error.is_connection_dropped() => {}
                    Err(_) => return,
                }
            }
        });
        is_ready.recv().unwrap();
        EvictedKeys { seen, asks, fences, stop, thread: Some(thread) }
    }

    /// Waits until all is heard that the server has said by now; of a server that has gone, nothing more comes.
    fn catch_up(&self) {
        let before = self.fences.load(Ordering::Relaxed);
        if redis::cmd("PUBLISH").arg(FENCE).arg("").exec(&mut self.asks.lock().unwrap()).is_ok() {
            wait_for("the events of a server", || self.fences.load(Ordering::Relaxed) > before);
        }
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Their databases and keys.
    pub fn all(&self) -> Vec<(u16, Vec<u8>)> {
        self.catch_up();
        self.seen.lock().unwrap().iter().map(|(key, _)| key.clone()).collect()
    }

    /// When each key of database 0 last went.
    pub fn last(&self) -> HashMap<Vec<u8>, Instant> {
        self.catch_up();
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|((db, _), _)| *db == 0).map(|((_, key), at)| (key.clone(), *at)).collect()
    }
}

impl Drop for EvictedKeys {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client on a thread of its own that writes and reads back, and keeps account of every acknowledged write.
pub struct Checker {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<HashMap<u64, u64>>,
    port: u16,
}

impl Checker {
    /// Starts one that works on `keys` keys with values of about `value_bytes`.
    pub fn start(server: &Server, keys: u64, value_bytes: usize) -> Checker {
        let mut connection = server.connection().unwrap();
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (its_stop, its_rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            let (mut written, mut random) = (HashMap::new(), Random::new(3));
            while !its_stop.load(Ordering::Relaxed) {
                check_round(&mut connection, &mut random, &mut written, keys, value_bytes);
                its_rounds.fetch_add(1, Ordering::Relaxed);
            }
            written
        });
        Checker { stop, rounds, thread, port: server.port() }
    }

    /// Waits until it has done so many more rounds: the server serves.
    #[track_caller]
    pub fn wait_for_rounds(&self, n: u64) {
        let goal = self.rounds.load(Ordering::Relaxed) + n;
        wait_for("the checking client to go on", || {
            self.rounds.load(Ordering::Relaxed) >= goal || self.thread.is_finished()
        });
        assert!(!self.thread.is_finished(), "the checking client failed, see above");
    }

    /// Stops it and reads all back. Returns the keys that are gone; what is there has the value that was acknowledged
    /// last.
    pub fn finish(self, server: &Server) -> Vec<Vec<u8>> {
        assert_eq!(self.port, server.port());
        self.stop.store(true, Ordering::Relaxed);
        let written = self.thread.join().expect("the checking client saw no wrong value");
        let mut connection = server.connection().unwrap();
        let mut gone = Vec::new();
        for (&key, &version) in &written {
            let found: Option<Vec<u8>> = redis::cmd("GET").arg(checked_key(key)).query(&mut connection).unwrap();
            match found {
                Some(value) => check_value(key, version, &value),
                None => gone.push(checked_key(key).into_bytes()),
            }
        }
        gone
    }
}

fn checked_key(key: u64) -> String {
    format!("checked:{key}")
}

fn check_value(key: u64, version: u64, value: &[u8]) {
    let expected = format!("{key}:{version}:");
    assert!(value.starts_with(expected.as_bytes()), "key {key}, version {version}, reads {:?}", &value[..20]);
}

/// Ten writes and ten reads at once.
fn check_round(
    connection: &mut Connection,
    random: &mut Random,
    written: &mut HashMap<u64, u64>,
    keys: u64,
    value_bytes: usize,
) {
    let version = random.next();
    let writes: Vec<u64> = (0..10).map(|_| random.below(keys)).collect();
    let reads: Vec<u64> = (0..10).map(|_| random.below(keys)).collect();
    let mut pipeline = redis::pipe();
    for key in &writes {
        let mut value = format!("{key}:{version}:");
        value.extend(std::iter::repeat_n('.', value_bytes));
        pipeline.cmd("SET").arg(checked_key(*key)).arg(value).ignore();
    }
    reads.iter().for_each(|key| {
        pipeline.cmd("GET").arg(checked_key(*key));
    });
    let found: Vec<Option<Vec<u8>>> = pipeline.query(connection).expect("the server serves on");
    written.extend(writes.iter().map(|key| (*key, version)));
    for (key, value) in reads.iter().zip(found) {
        match (written.get(key), value) {
            (Some(version), Some(value)) => check_value(*key, *version, &value),
            (None, Some(value)) => panic!("key {key} was never written and reads {value:?}"),
            (_, None) => {}
        }
    }
}
