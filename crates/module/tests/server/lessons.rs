//! Replicas that know what their primary has learned, without a cluster too.

use std::collections::BTreeMap;

use redis::Connection;
use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    CacheAside, DEADLINE, Random, config_set, error_of, evicting_in_time, info, limit_memory, on_oldest_and_newest,
    send, start, status, wait_for,
};

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
/// window. One that isn't to be taught hears nothing; it missed up to a quarter more.
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
        read_windows(primary, &mut reader, &mut stream, 8.0);
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
        assert!(of_taught < 1.03 * as_before, "{of_taught} for {as_before} misses");
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
        for line in ["TENURE.LESSONS 1 0", "TENURE.LESSONS 1 0 x", "TENURE.LESSONS 1 -1 0"] {
            let why = error_of(&mut connection, line);
            assert!(why.contains("three numbers") || why.contains("wrong number of arguments"), "{line}: {why}");
        }
        let why = error_of(&mut connection, "TENURE.LESSONS 99 0 0");
        assert!(why.contains("format 1 here, not 99"), "{why}");
        error_of(&mut connection, "TENURE.LESSONS 98 0 0");
        wait_for("a line in the log", || server.log().contains("lessons of format 99"));
        assert!(!server.log().contains("lessons of format 98"), "no client fills the log");
        config_set(&mut connection, "tenure.teach-replicas", "no");
        assert!(error_of(&mut connection, "TENURE.LESSONS 1 0 0").contains("tenure.teach-replicas is 'no'"));
        config_set(&mut connection, "tenure.teach-replicas", "yes");
        // A bucket beyond the table is the first.
        let answer: Vec<redis::Value> = send(&mut connection, "TENURE.LESSONS 1 0 18446744073709551615");
        assert_eq!(answer.len(), 6);
    });
}
