//! Replicas that know what their primary has learned, without a cluster too.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

use redis::{Connection, Value};
use tempfile::TempDir;
use tenure_servers::{Server, ServerBinary, ServerOptions};

use crate::harness::{
    CacheAside, DEADLINE, Random, config_set, error_of, evicting_in_time, info, limit_memory, oldest_and_newest,
    on_oldest_and_newest, send, start, status, wait_for,
};
use crate::replies::make_certificate;

const MB: u64 = 1 << 20;
/// Keys that are read all the time, each once or twice a window; they fit into two thirds of the memory.
const HOT: u64 = 7000;
const MEMORY: u64 = 14 * MB;
const WINDOW: usize = 20_000;
/// Reads at once.
const BATCH: usize = 100;

/// The backlog of replication counts as used memory, and its default differs.
fn options() -> ServerOptions {
    let options = evicting_in_time().set("repl-backlog-size", "1mb");
    options.set("tenure.key-table-bytes", "512kb").set("tenure.window-requests", WINDOW)
}

/// Half of the reads are of hot keys, half of keys that are read once.
struct Stream {
    random: Random,
    next: u64,
}

impl Stream {
    fn new() -> Stream {
        Stream { random: Random::new(7), next: HOT }
    }

    fn batch(&mut self) -> Vec<u64> {
        let mut key = |i: usize| {
            self.next += u64::from(i.is_multiple_of(2));
            if i.is_multiple_of(2) { self.next } else { self.random.below(HOT) }
        };
        (0..BATCH).map(&mut key).collect()
    }
}

fn client(server: &Server) -> CacheAside {
    CacheAside::new(server.connection().unwrap(), "k:", HOT, 1000)
}

fn why(connection: &mut Connection, key: u64) -> Option<BTreeMap<String, String>> {
    redis::cmd("TENURE.WHY").arg(format!("k:{key}")).query(connection).ok()
}

/// The primary reads for so many windows.
fn read_windows(server: &Server, client: &mut CacheAside, stream: &mut Stream, n: f64) {
    let end = info(server, "windows") + n;
    wait_for("windows to end", || {
        client.read(&stream.batch());
        info(server, "windows") >= end && info(server, "evictions") > 1000.0
    });
}

/// Some hot key of which the primary knows what the replica doesn't, and what both say.
fn unknown(primary: &mut Connection, replica: &mut Connection) -> Option<String> {
    (0..HOT).step_by(101).find_map(|key| {
        let (there, here) = (why(primary, key), why(replica, key));
        let of = |side: &Option<BTreeMap<String, String>>| {
            let fields = ["requests", "ranking", "feature"].map(|field| side.as_ref().map(|side| side[field].clone()));
            let is_learned = side.as_ref().is_some_and(|side| side["reads_per_million_requests"] != "0");
            (fields, is_learned)
        };
        (of(&there) != of(&here)).then(|| format!("of k:{key} {there:?}, {here:?}"))
    })
}

/// A replica is promoted, and it and the primary then have the same reads: it misses as the primary does in the first
/// window. One that isn't to be taught hears nothing; it missed 1 to 19 % more.
///
/// The primary has learned for sixteen windows before. After eight it still got better from window to window, and what
/// was taught is up to a window older than what it knows.
#[test]
fn a_taught_replica_misses_as_its_primary_does() {
    on_oldest_and_newest(&options(), |primary| {
        let taught = start(primary.binary(), &options());
        let untaught = start(primary.binary(), &options().set("tenure.teach-replicas", "no"));
        let limit = limit_memory(primary, MEMORY);
        for replica in [&taught, &untaught] {
            replica.replica_of(primary).unwrap();
            config_set(&mut replica.connection().unwrap(), "maxmemory", limit);
        }
        let (mut reader, mut stream) = (client(primary), Stream::new());
        read_windows(primary, &mut reader, &mut stream, 16.0);
        let [mut here, mut there] = [primary, &taught].map(|server| server.connection().unwrap());
        // What was learned last is handed on when a window ends, and single keys go piece by piece.
        let mut seen = None;
        tenure_servers::wait_for(DEADLINE, "the replica to know as much", || {
            seen = unknown(&mut here, &mut there);
            info(&taught, "lessons_heard") > 0.0 && seen.is_none()
        })
        .unwrap_or_else(|why| panic!("{why:#}: {seen:?}, {:?}", status(&mut there)["lessons"]));
        assert!(status(&mut there)["lessons"].starts_with("heard "), "{:?}", status(&mut there));
        assert_eq!(status(&mut here)["lessons"], "asked for by replicas");
        assert_eq!(info(&untaught, "lessons_heard"), 0.0);
        taught.wait_until_in_sync().unwrap();
        send::<()>(&mut there, "REPLICAOF NO ONE");
        let mut clients = [primary, &taught].map(client);
        for _ in 0..WINDOW / BATCH {
            let batch = stream.batch();
            clients.iter_mut().for_each(|client| client.read(&batch));
        }
        let [as_before, of_taught] = clients.map(|client| client.misses as f64);
        println!("misses: {as_before} on the primary, {of_taught} on the new one");
        assert!(of_taught < 1.02 * as_before, "{of_taught} for {as_before} misses");
        for server in [primary, &taught, &untaught] {
            assert_eq!(info(server, "panics"), 0.0);
        }
    });
}

/// The replication's user may not ask: the replica says why, is none the worse for it, and hears as soon as it may.
#[test]
fn who_may_not_ask_says_so_and_asks_again() {
    on_oldest_and_newest(&options(), |primary| {
        let mut to_primary = primary.connection().unwrap();
        send::<()>(&mut to_primary, "ACL SETUSER copier on >secret +psync +replconf +ping");
        let replica = start(primary.binary(), &options());
        let mut connection = replica.connection().unwrap();
        config_set(&mut connection, "masteruser", "copier");
        config_set(&mut connection, "masterauth", "secret");
        replica.replica_of(primary).unwrap();
        wait_for("the refusal", || status(&mut connection)["lessons"].contains("no permissions"));
        wait_for("a line in the log", || replica.log().contains("no lessons from the primary"));
        assert!(!replica.log().contains("secret"));
        send::<()>(&mut to_primary, "ACL SETUSER copier +tenure.lessons");
        limit_memory(primary, MEMORY);
        read_windows(primary, &mut client(primary), &mut Stream::new(), 2.0);
        wait_for("lessons", || info(&replica, "lessons_heard") > 0.0);
        assert!(status(&mut connection)["lessons"].starts_with("heard "));
        // An orderly end while it is asked, and without the module.
        send::<()>(&mut connection, "MODULE UNLOAD tenure");
        assert_eq!(send::<String>(&mut connection, "PING"), "PONG");
    });
}

/// Whatever is asked wrongly is refused with a reason.
#[test]
fn lessons_are_of_one_format() {
    on_oldest_and_newest(&options(), |server| {
        let mut connection = server.connection().unwrap();
        for line in ["TENURE.LESSONS 2 0", "TENURE.LESSONS 2 0 x", "TENURE.LESSONS 2 -1 0"] {
            let why = error_of(&mut connection, line);
            assert!(why.contains("three numbers") || why.contains("wrong number of arguments"), "{line}: {why}");
        }
        let why = error_of(&mut connection, "TENURE.LESSONS 99 0 0");
        assert!(why.contains("format 2 here, not 99"), "{why}");
        error_of(&mut connection, "TENURE.LESSONS 98 0 0");
        wait_for("a line in the log", || server.log().contains("lessons of format 99"));
        assert!(!server.log().contains("lessons of format 98"), "no client fills the log");
        config_set(&mut connection, "tenure.teach-replicas", "no");
        assert!(error_of(&mut connection, "TENURE.LESSONS 2 0 0").contains("tenure.teach-replicas is 'no'"));
        config_set(&mut connection, "tenure.teach-replicas", "yes");
        // A bucket beyond the table is the first.
        let answer: Vec<redis::Value> = send(&mut connection, "TENURE.LESSONS 2 0 18446744073709551615");
        assert_eq!(answer.len(), 6);
    });
}

/// Those that watch a primary for its replicas.
struct Sentinels {
    processes: Vec<(Child, u16)>,
    _folder: TempDir,
}

impl Sentinels {
    /// Three, of which two must agree, with the rights that the servers' documentation names.
    fn of(primary: &Server) -> Sentinels {
        let folder = tempfile::tempdir().unwrap();
        let ports: [u16; 3] = std::array::from_fn(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
            .map(|listener| listener.local_addr().unwrap().port());
        let process = |port: u16| {
            let file = folder.path().join(format!("{port}.conf"));
            let settings = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor it 127.0.0.1 {} 2\n\
                 sentinel auth-user it watcher\nsentinel auth-pass it secret\n\
                 sentinel down-after-milliseconds it 4000\nsentinel failover-timeout it 5000\n",
                folder.path().display(),
                primary.port(),
            );
            std::fs::write(&file, settings).unwrap();
            let words = primary.binary().command_line();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).arg(&file).arg("--sentinel").stdout(Stdio::null());
            (command.spawn().unwrap(), port)
        };
        Sentinels { processes: ports.map(process).into(), _folder: folder }
    }

    fn ask<T: redis::FromRedisValue>(&self, line: &str) -> Vec<Option<T>> {
        let ask = |port: u16| {
            let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
            crate::harness::command(line).query(&mut client.get_connection()?)
        };
        self.processes.iter().map(|(_, port)| ask(*port).ok()).collect()
    }

    /// Waits until each knows the replica and the others.
    fn wait_until_they_know(&self) {
        wait_for("Sentinels to know the replica", || {
            self.ask::<Vec<Value>>("SENTINEL REPLICAS it")
                .iter()
                .all(|found| found.as_ref().is_some_and(|it| it.len() == 1))
        });
        wait_for("Sentinels to know each other", || {
            self.ask::<Vec<Value>>("SENTINEL SENTINELS it")
                .iter()
                .all(|found| found.as_ref().is_some_and(|it| it.len() == 2))
        });
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        for (process, _) in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A primary and a replica with users of their own for replication and for Sentinels.
fn with_users(binary: &ServerBinary, options: &ServerOptions) -> Server {
    let copier = "copier on >secret +psync +replconf +ping +tenure.lessons";
    let watcher = "watcher on >secret allchannels +multi +slaveof +ping +exec +subscribe +config|rewrite +role \
                   +publish +info +client|setname +client|kill +script|kill";
    let options = options.clone().set("user", copier).set("user", watcher);
    start(binary, &options.set("masteruser", "copier").set("masterauth", "secret"))
}

/// The primary dies under load. The replica that Sentinels choose misses in its first window as the primary did in its
/// last, and teaches the old one when that is back.
#[test]
fn a_replica_that_sentinels_choose_misses_as_its_primary_did() {
    for binary in oldest_and_newest() {
        println!("on {}", binary.label);
        let [mut primary, replica] = std::array::from_fn(|_| with_users(&binary, &options()));
        let limit = limit_memory(&primary, MEMORY);
        replica.replica_of(&primary).unwrap();
        config_set(&mut replica.connection().unwrap(), "maxmemory", limit);
        let sentinels = Sentinels::of(&primary);
        let (mut reader, mut stream) = (client(&primary), Stream::new());
        read_windows(&primary, &mut reader, &mut stream, 8.0);
        let before = reader.misses;
        (0..WINDOW / BATCH).for_each(|_| reader.read(&stream.batch()));
        let as_before = (reader.misses - before) as f64;
        sentinels.wait_until_they_know();
        let [mut here, mut there] = [&primary, &replica].map(|server| server.connection().unwrap());
        let mut seen = None;
        tenure_servers::wait_for(DEADLINE, "the replica to know as much", || {
            seen = unknown(&mut here, &mut there);
            info(&replica, "lessons_heard") > 0.0 && seen.is_none()
        })
        .unwrap_or_else(|why| panic!("{why:#}: {seen:?}, {:?}", status(&mut there)["lessons"]));
        replica.wait_until_in_sync().unwrap();
        primary.kill();
        let is_primary = |server: &Server| server.info("replication").is_ok_and(|info| info["role"] == "master");
        wait_for("Sentinels to choose it", || is_primary(&replica));
        let mut reader = client(&replica);
        (0..WINDOW / BATCH).for_each(|_| reader.read(&stream.batch()));
        println!("misses: {as_before} on the primary, {} on the new one", reader.misses);
        assert!((reader.misses as f64) < 1.03 * as_before, "{} for {as_before} misses", reader.misses);
        read_windows(&replica, &mut reader, &mut stream, 1.0);
        primary.restart().unwrap();
        // Sentinels make a replica of it, and end its connections for that.
        let has_heard = |info: BTreeMap<String, String>| info["tenure_lessons_heard"] != "0";
        wait_for("the old primary to be taught", || primary.info("tenure").is_ok_and(has_heard));
        assert!(!is_primary(&primary));
        assert_eq!(info(&replica, "panics") + info(&primary, "panics"), 0.0);
    }
}

/// A replica of a replica learns from nobody and says so, until that is a primary.
#[test]
fn a_replica_of_a_replica_is_taught_once_that_is_a_primary() {
    on_oldest_and_newest(&options(), |first| {
        let [second, third] = std::array::from_fn(|_| start(first.binary(), &options()));
        let limit = limit_memory(first, MEMORY);
        second.replica_of(first).unwrap();
        third.replica_of(&second).unwrap();
        let (mut reader, mut stream) = (client(first), Stream::new());
        read_windows(first, &mut reader, &mut stream, 2.0);
        wait_for("the second to be taught", || info(&second, "lessons_heard") > 0.0);
        let mut to_third = third.connection().unwrap();
        wait_for("the third to say why not", || {
            status(&mut to_third)["lessons"].contains("nothing of its own to teach")
        });
        assert_eq!(info(&third, "lessons_heard"), 0.0);
        let mut to_second = second.connection().unwrap();
        send::<()>(&mut to_second, "REPLICAOF NO ONE");
        config_set(&mut to_second, "maxmemory", limit);
        let (mut reader, end) = (client(&second), info(&second, "windows") + 2.0);
        wait_for("windows to end", || {
            reader.read(&stream.batch());
            info(&second, "windows") >= end
        });
        wait_for("the third to be taught", || info(&third, "lessons_heard") > 0.0);
        assert!(status(&mut to_third)["lessons"].starts_with("heard "));
    });
}

/// A replica that follows by TLS says that it isn't taught, once, and does not go on asking for settings.
#[test]
fn who_follows_by_tls_says_that_it_is_not_taught() {
    let folder = tempfile::tempdir().unwrap();
    let [key, certificate] = make_certificate(folder.path());
    on_oldest_and_newest(&options(), |primary| {
        let replica = start(primary.binary(), &options());
        let mut connection = replica.connection().unwrap();
        if crate::harness::command("CONFIG SET tls-auth-clients no").exec(&mut connection).is_err() {
            println!("{} was built without TLS", primary.binary().label);
            return;
        }
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        for server in [primary, &replica] {
            let mut connection = server.connection().unwrap();
            for (name, file) in [("key", &key), ("cert", &certificate), ("ca-cert", &certificate)] {
                config_set(&mut connection, &format!("tls-{name}-file"), file.display());
            }
            config_set(&mut connection, "tls-auth-clients", "no");
        }
        config_set(&mut primary.connection().unwrap(), "tls-port", port);
        config_set(&mut connection, "tls-replication", "yes");
        send::<()>(&mut connection, &format!("REPLICAOF 127.0.0.1 {port}"));
        wait_for("it to say why not", || {
            status(&mut connection)["lessons"] == "none: the primary is followed by TLS alone"
        });
        let mut monitor = replica.connection().unwrap();
        send::<()>(&mut monitor, "MONITOR");
        let uptime = || replica.info("server").unwrap()["uptime_in_seconds"].parse::<u64>().unwrap();
        let end = uptime() + 4;
        wait_for("some seconds", || uptime() >= end);
        send::<()>(&mut connection, "GET the-end");
        let mut seen: Vec<String> = Vec::new();
        while !seen.last().is_some_and(|line| line.contains("the-end")) {
            seen.push(redis::from_redis_value(monitor.recv_response().unwrap()).unwrap());
        }
        assert!(!seen.iter().any(|line| line.contains("masteruser")), "it goes on asking: {seen:?}");
        assert_eq!(replica.log().matches("which these don't speak").count(), 1);
        send::<()>(&mut connection, "REPLICAOF NO ONE");
        wait_for("it to follow nobody", || status(&mut connection)["lessons"] == "not asked for");
    });
}
