//! Observing: every command of every type is counted for the right partition, and hits are told from misses exactly.

use redis::Connection;
use tenure_servers::{Product, Server};

use crate::harness::{
    CacheAside, Row, command, config_set, connection_to, evicted_by_server, evicting_in_time, info, on_every_server,
    on_oldest_and_newest, partition, partitions, send, servers, start, status, that_know_clients, used_memory,
    wait_for, with_module,
};

/// Reads, writes, deletes, misses.
pub type Counts = [u64; 4];

fn counts(row: &Row) -> Counts {
    ["reads", "writes", "deletes", "misses"].map(|name| row[name] as u64)
}

pub fn counts_of(connection: &mut Connection, name: &str) -> Counts {
    counts(&partition(connection, name))
}

/// Counts of all partitions together.
fn counts_of_all(connection: &mut Connection) -> Counts {
    let rows = partitions(connection);
    let sum = |i: usize| rows.values().map(|row| counts(row)[i]).sum();
    [sum(0), sum(1), sum(2), sum(3)]
}

/// Sends each line and compares what it added.
#[track_caller]
fn check(connection: &mut Connection, lines: &[(&str, Counts)]) {
    for (line, expected) in lines {
        let before = counts_of(connection, "db0");
        // Whether the command succeeds is not the point: many are meant to find nothing.
        let reply = command(line).query::<redis::Value>(connection);
        let after = counts_of(connection, "db0");
        let added: Counts = std::array::from_fn(|i| after[i] - before[i]);
        assert_eq!(added, *expected, "{line} (reads, writes, deletes, misses), answered {reply:?}");
    }
}

const READ: Counts = [1, 0, 0, 0];
const MISS: Counts = [1, 0, 0, 1];
const WRITE: Counts = [0, 1, 0, 0];
const DELETE: Counts = [0, 0, 1, 0];
const NOTHING: Counts = [0, 0, 0, 0];

/// A look at a key leaves it to the server when one whose time is up goes.
#[test]
fn a_look_expires_no_key() {
    const KEYS: u64 = 500;
    for binary in that_know_clients(servers()) {
        let server = start(&binary, &with_module().set("tenure.sample-percent", 100));
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0");
        (0..KEYS).for_each(|key| send(&mut connection, &format!("SET key:{key} value PX 1")));
        // What was noted before is looked at by then.
        let windows = info(&server, "windows");
        wait_for("two windows", || {
            (0..2000).for_each(|_| send::<()>(&mut connection, "GET key:0"));
            info(&server, "windows") >= windows + 2.0
        });
        // A client's GET expires what it reads.
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), KEYS - 1, "{}", binary.label);
    }
}

#[test]
fn commands_on_strings() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        check(
            &mut connection,
            &[
                ("SET s value", WRITE),
                ("GET s", READ),
                ("GET absent", MISS),
                ("set s value EX 100", WRITE),
                ("gEt s", READ),
                ("GETRANGE s 0 1", READ),
                ("SUBSTR s 0 1", READ),
                ("STRLEN absent", MISS),
                ("APPEND s more", WRITE),
                ("INCR n", WRITE),
                ("INCRBYFLOAT n 1.5", WRITE),
                ("SETNX n 1", WRITE),
                ("SETRANGE s 0 V", WRITE),
                ("GETSET fresh 1", WRITE),
                ("SET fresher 1 GET", WRITE),
                ("GETDEL fresh", WRITE),
                ("GETDEL fresh", WRITE),
                ("GETEX s EX 100", READ),
                ("GETEX absent EX 100", MISS),
                ("MSET a 1 b 2 c 3", [0, 3, 0, 0]),
                ("MSETNX d 1 e 2", [0, 2, 0, 0]),
                ("MGET a b absent c", [4, 0, 0, 1]),
                ("LCS a b", [2, 0, 0, 0]),
                ("EXISTS a absent", [2, 0, 0, 1]),
                ("TYPE a", READ),
                ("TTL a", READ),
                ("TOUCH a absent", [2, 0, 0, 1]),
                ("EXPIRE a 100", WRITE),
                ("PERSIST a", WRITE),
                ("DUMP a", READ),
                ("COPY a copy", [1, 1, 0, 0]),
                ("DEL a b absent", [0, 0, 3, 0]),
                ("UNLINK c d", [0, 0, 2, 0]),
                ("DEL absent", DELETE),
            ],
        );
    });
}

#[test]
fn commands_on_collections() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        check(
            &mut connection,
            &[
                ("HSET h f 1 g 2", WRITE),
                ("HGET h f", READ),
                ("HGET h absent", READ),
                ("HGET absent f", MISS),
                ("HMGET h f g", READ),
                ("HGETALL absent", MISS),
                ("HLEN h", READ),
                ("HSCAN h 0", READ),
                ("HINCRBY h n 1", WRITE),
                ("HDEL h f", WRITE),
                ("RPUSH l 1 2 3", WRITE),
                ("LPUSH l 0", WRITE),
                ("LRANGE l 0 -1", READ),
                ("LINDEX l 0", READ),
                ("LLEN absent", MISS),
                ("LPOS l 1", READ),
                ("LPOP l", WRITE),
                ("LPOP absent", WRITE),
                ("LMOVE l m LEFT RIGHT", [0, 2, 0, 0]),
                ("LMPOP 2 absent l LEFT", [0, 2, 0, 0]),
                ("BLPOP l m 1", [0, 2, 0, 0]),
                ("SADD s1 a b", WRITE),
                ("SADD s2 b c", WRITE),
                ("SMEMBERS s1", READ),
                ("SISMEMBER absent a", MISS),
                ("SCARD s1", READ),
                ("SINTER s1 s2", [2, 0, 0, 0]),
                ("SINTERCARD 2 s1 s2 LIMIT 1", [2, 0, 0, 0]),
                ("SUNION s1 absent", [2, 0, 0, 1]),
                ("SUNIONSTORE s3 s1 s2", [2, 1, 0, 0]),
                ("SMOVE s1 s2 a", [0, 2, 0, 0]),
                ("SRANDMEMBER s2", READ),
                ("SPOP s2", WRITE),
                ("SREM s2 c", WRITE),
                ("ZADD z1 1 a 2 b", WRITE),
                ("ZADD z2 1 b 2 c", WRITE),
                ("ZRANGE z1 0 -1", READ),
                ("ZSCORE z1 a", READ),
                ("ZCARD absent", MISS),
                ("ZINTER 2 z1 z2 WITHSCORES", [2, 0, 0, 0]),
                ("ZUNIONSTORE z3 2 z1 z2 WEIGHTS 1 2", [2, 1, 0, 0]),
                ("ZRANGESTORE z4 z1 0 -1", [1, 1, 0, 0]),
                ("ZINCRBY z1 1 a", WRITE),
                ("ZPOPMIN z1", WRITE),
                ("ZMPOP 1 z2 MIN", WRITE),
                ("SORT z3 BY nosort", READ),
                ("OBJECT ENCODING h", NOTHING),
                ("OBJECT IDLETIME absent", NOTHING),
                ("MEMORY USAGE h", NOTHING),
                ("MEMORY USAGE absent", NOTHING),
                ("DEBUG OBJECT h", NOTHING),
            ],
        );
    });
}

#[test]
fn commands_on_streams_bitmaps_and_the_rest() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        check(
            &mut connection,
            &[
                ("XADD x1 1-1 f v", WRITE),
                ("XADD x2 1-1 f v", WRITE),
                ("XRANGE x1 - +", READ),
                ("XLEN absent", MISS),
                ("XREAD COUNT 1 STREAMS x1 x2 0 0", [2, 0, 0, 0]),
                ("xread streams absent gone 0 0", [2, 0, 0, 2]),
                ("XGROUP CREATE x1 group $", WRITE),
                ("XREADGROUP GROUP group me COUNT 1 STREAMS x1 >", READ),
                ("XACK x1 group 1-1", WRITE),
                ("XINFO STREAM x1", READ),
                ("XTRIM x1 MAXLEN 0", WRITE),
                ("XDEL x2 1-1", WRITE),
                ("SETBIT b 7 1", WRITE),
                ("GETBIT b 7", READ),
                ("BITCOUNT absent", MISS),
                ("BITPOS b 1", READ),
                ("BITOP OR dest b absent", [2, 1, 0, 1]),
                ("BITFIELD_RO b GET u8 0", READ),
                ("PFADD p1 a b", WRITE),
                ("PFADD p2 c", WRITE),
                ("PFCOUNT p1", READ),
                ("PFCOUNT p1 p2", [2, 0, 0, 0]),
                ("PFCOUNT absent", MISS),
                ("PFMERGE p2 p1 p2", [2, 1, 0, 0]),
                ("GEOADD g 13.3 38.1 Palermo 15.0 37.5 Catania", WRITE),
                ("GEODIST g Palermo Catania", READ),
                ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km", READ),
                ("GEOSEARCHSTORE near g FROMLONLAT 15 37 BYRADIUS 200 km", [1, 1, 0, 0]),
                ("GEOPOS absent a", MISS),
                ("RENAME b c", [0, 2, 0, 0]),
                ("WATCH c absent", NOTHING),
                ("UNWATCH", NOTHING),
                ("PING", NOTHING),
                ("DBSIZE", NOTHING),
                ("SCAN 0", NOTHING),
                ("COMMAND GETKEYS GET c", NOTHING),
                ("PUBLISH c message", NOTHING),
            ],
        );
    });
}

/// What a script declares isn't what it does: its calls are counted, its list of keys isn't.
#[test]
fn scripts_are_counted_by_what_they_do() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET s value");
        let before = counts_of(&mut connection, "db0");
        let script = "redis.call('GET', KEYS[1]); redis.call('get', KEYS[2]); redis.call('SET', KEYS[2], 1); return 1";
        let eval = redis::cmd("EVAL").arg(script).arg(2).arg("s").arg("absent").to_owned();
        eval.query::<i64>(&mut connection).unwrap();
        let after = counts_of(&mut connection, "db0");
        assert_eq!([0, 1, 2, 3].map(|i| after[i] - before[i]), [2, 1, 0, 1]);

        let sha: String =
            redis::cmd("SCRIPT").arg("LOAD").arg("return redis.call('GET', KEYS[1])").query(&mut connection).unwrap();
        let library = "#!lua name=tests\n\
             redis.register_function{function_name='read', flags={'no-writes'}, \
             callback=function(keys) return redis.call('GET', keys[1]) end}";
        redis::cmd("FUNCTION").arg("LOAD").arg(library).exec(&mut connection).unwrap();
        check(
            &mut connection,
            &[
                (&format!("EVALSHA {sha} 1 s"), READ),
                (&format!("EVALSHA {sha} 1 gone"), MISS),
                (&format!("EVALSHA_RO {sha} 1 s"), READ),
                ("FCALL read 1 s", READ),
                ("FCALL_RO read 1 gone", MISS),
            ],
        );
    });
}

/// A script that looks after its own miss does not answer it.
#[test]
fn a_script_that_reads_answers_no_miss() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "GET k");
        let eval = redis::cmd("EVAL").arg("return redis.call('GET', KEYS[1])").arg(1).arg("k").to_owned();
        eval.exec(&mut connection).unwrap();
        assert_eq!(info(server, "penalties_measured"), 0.0);
        send::<()>(&mut connection, "SET k v");
        assert_eq!(info(server, "penalties_measured"), 1.0);
    });
}

#[test]
fn transactions_and_pipelines_are_counted() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let mut transaction = redis::pipe();
        transaction.atomic().cmd("SET").arg("a").arg(1).cmd("GET").arg("a").cmd("GET").arg("absent");
        transaction.exec(&mut connection).unwrap();
        assert_eq!(counts_of(&mut connection, "db0"), [2, 1, 0, 1]);

        let mut pipeline = redis::pipe();
        for i in 0..1000 {
            pipeline.cmd("SET").arg(format!("key:{i}")).arg(i).cmd("GET").arg(format!("key:{}", 2 * i));
        }
        let replies: Vec<Option<String>> = pipeline.query(&mut connection).unwrap();
        let misses = replies.iter().skip(1).step_by(2).filter(|reply| reply.is_none()).count() as u64;
        assert!(misses > 900, "{misses}");
        assert_eq!(counts_of(&mut connection, "db0"), [1002, 1001, 0, 1 + misses]);
    });
}

/// Keys of all 256 byte values, alone and as the first byte, are told apart, counted, and found by their prefix.
#[test]
fn binary_keys_and_prefixes() {
    let options = with_module().set("tenure.tenants", "\"high=\u{e9}* plain=a*\"");
    on_every_server(&options, |server| {
        let mut connection = server.connection().unwrap();
        let all: Vec<u8> = (0..=255).collect();
        let mut pipeline = redis::pipe();
        for byte in 0..=255u8 {
            pipeline.cmd("SET").arg(&[byte][..]).arg(1).cmd("GET").arg(&[byte, 0, 13, 10][..]);
        }
        pipeline.cmd("SET").arg(&all[..]).arg(1).cmd("GET").arg(&all[..]).cmd("GET").arg("");
        pipeline.cmd("SET").arg(["\u{e9}t\u{e9}".as_bytes(), &[0, 255]].concat()).arg(1);
        pipeline.exec(&mut connection).unwrap();
        assert_eq!(counts_of(&mut connection, "plain"), [1, 1, 0, 1]);
        assert_eq!(counts_of(&mut connection, "high"), [0, 1, 0, 0]);
        assert_eq!(counts_of(&mut connection, "other"), [257, 256, 0, 256]);
        assert_eq!(info(server, "panics"), 0.0);
    });
}

/// Commands that are malformed, unknown or refused neither panic nor unsettle the counts that follow.
#[test]
fn malformed_commands_do_no_harm() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        for line in [
            "NOSUCH a b",
            "GET",
            "SINTERCARD x a",
            "SINTERCARD 99999999999999999999 a",
            "SINTERCARD -1 a",
            "ZUNIONSTORE z 18446744073709551615 a",
            "XREAD STREAMS",
            "XREAD STREAMS a",
            "MSET a",
            "EVAL return 999999 a",
            "OBJECT",
            "OBJECT NOSUCH a",
            "MIGRATE h 1 key 0 9 KEYS",
            "SELECT 99999",
            "SELECT x",
            "BLPOP a",
        ] {
            assert!(command(line).query::<redis::Value>(&mut connection).is_err(), "{line}");
        }
        assert_eq!(info(server, "panics"), 0.0);
        let before = counts_of(&mut connection, "db0");
        send::<()>(&mut connection, "SET a 1");
        send::<()>(&mut connection, "GET a");
        let after = counts_of(&mut connection, "db0");
        assert_eq!([0, 1].map(|i| after[i] - before[i]), [1, 1]);
    });
}

/// API 7.2 tells the filter who sends, and so which database is meant, and events when their command began.
fn has_api_7_2(server: &Server) -> bool {
    server.binary().product == Product::Valkey || server.binary().version >= (7, 2, 0)
}

#[test]
fn clients_of_several_databases_at_once() {
    on_every_server(&with_module(), |server| {
        if !has_api_7_2(server) {
            return;
        }
        let mut connections: Vec<Connection> = (0..4).map(|db| connection_to(server, db)).collect();
        for round in 0..50 {
            for (db, connection) in connections.iter_mut().enumerate() {
                send::<()>(connection, &format!("SET key:{round} 1"));
                for _ in 0..db {
                    send::<()>(connection, &format!("GET key:{round}"));
                }
                send::<()>(connection, "GET absent");
            }
        }
        for db in 0..4 {
            let counts = counts_of(&mut connections[0], &format!("db{db}"));
            assert_eq!(counts, [50 * (db + 1), 50, 0, 50], "db{db}");
        }
        // More clients than the table of clients has places, so that each place is shared.
        let mut many: Vec<Connection> = (0..1100).map(|i| connection_to(server, i % 3)).collect();
        let before = [0, 1, 2].map(|db| counts_of(&mut connections[0], &format!("db{db}"))[0]);
        many.iter_mut().for_each(|connection| send(connection, "GET key:1"));
        for (db, before) in before.into_iter().enumerate() {
            let expected = if db < 2 { 367 } else { 366 };
            let reads = counts_of(&mut connections[0], &format!("db{db}"))[0] - before;
            assert_eq!(reads, expected, "db{db}");
        }
    });
}

#[test]
fn a_client_that_changes_its_database() {
    on_every_server(&with_module(), |server| {
        if !has_api_7_2(server) {
            return;
        }
        let mut connection = server.connection().unwrap();
        let mut expected = [[0; 4]; 8];
        let mut step = |connection: &mut Connection, lines: &[&str], added: &[(usize, Counts)]| {
            let mut pipeline = redis::pipe();
            lines.iter().for_each(|line| {
                pipeline.add_command(command(line));
            });
            pipeline.exec(connection).unwrap();
            for (db, counts) in added {
                (0..4).for_each(|i| expected[*db][i] += counts[i]);
            }
            for (db, expected) in expected.iter().enumerate() {
                assert_eq!(counts_of(connection, &format!("db{db}")), *expected, "db{db} after {lines:?}");
            }
        };
        step(&mut connection, &["SET a 1", "SELECT 1", "SET a 1", "GET a"], &[(0, WRITE), (1, [1, 1, 0, 0])]);
        step(&mut connection, &["GET absent", "SELECT 2", "GET a"], &[(1, MISS), (2, MISS)]);
        step(&mut connection, &["RESET", "GET a"], &[(0, READ)]);
        // The commands of a transaction run after SELECT has.
        step(&mut connection, &["MULTI", "SELECT 3", "SET a 1", "GET a", "EXEC"], &[(3, [1, 1, 0, 0])]);
        step(&mut connection, &["GET a", "SELECT 0"], &[(3, READ)]);
        step(&mut connection, &["MULTI", "SELECT 3", "DISCARD", "GET a"], &[(0, READ)]);
        // What is swapped is the data; the client stays where it is.
        step(&mut connection, &["SWAPDB 0 4", "GET a", "SWAPDB 0 4", "GET a"], &[(0, [2, 0, 0, 1])]);
        // A script that selects a database does so for itself.
        let script = "redis.call('SELECT', 5); return redis.call('GET', 'a')";
        redis::cmd("EVAL").arg(script).arg(0).exec(&mut connection).unwrap();
        step(&mut connection, &["GET a"], &[(0, READ), (5, MISS)]);
    });
}

/// Redis 7.0 doesn't say who sends a command. With several databases in use, the database of a key is found by
/// looking where it is: exact for misses, an estimate for the rest.
#[test]
fn several_databases_where_the_server_does_not_tell_whose_command_it_is() {
    on_every_server(&with_module().set("tenure.sample-percent", 100), |server| {
        if has_api_7_2(server) {
            return;
        }
        let mut connections: Vec<Connection> = (0..3).map(|db| connection_to(server, db)).collect();
        for (db, connection) in connections.iter_mut().enumerate() {
            send::<()>(connection, &format!("SET first:{db} 1"));
        }
        let two_ticks = info(server, "windows") + 1.0;
        wait_for("the databases in use to be known", || info(server, "windows") > two_ticks);
        let before = [0, 1, 2].map(|db| counts_of(&mut connections[0], &format!("db{db}")));
        for (db, connection) in connections.iter_mut().enumerate() {
            for i in 0..200 {
                send::<()>(connection, &format!("SET {db}:{i} 1"));
                (0..=db).for_each(|_| send(connection, &format!("GET {db}:{i}")));
                send::<()>(connection, &format!("GET {db}:absent"));
            }
        }
        let after = [0, 1, 2].map(|db| counts_of(&mut connections[0], &format!("db{db}")));
        for db in 0..3 {
            let [reads, writes, _, misses] = std::array::from_fn(|i| (after[db][i] - before[db][i]) as f64);
            assert_eq!(misses, 200.0, "db{db}");
            assert!((reads / (200.0 * (db as f64 + 2.0)) - 1.0).abs() < 0.1, "db{db}: {reads} reads");
            assert!((writes / 200.0 - 1.0).abs() < 0.1, "db{db}: {writes} writes");
        }
    });
}

/// A random mix, counted here as well: nothing is lost and nothing counted twice.
#[test]
fn hits_and_misses_are_exact() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let mut random = crate::harness::Random::new(7);
        let (mut reads, mut writes, mut misses) = (0, 0, 0);
        for _ in 0..200 {
            let mut pipeline = redis::pipe();
            let mut is_read = Vec::new();
            for _ in 0..random.below(50) + 1 {
                let key = format!("key:{}", random.below(2000));
                is_read.push(random.below(10) < 7);
                match is_read.last() {
                    Some(true) => pipeline.cmd("GET").arg(key),
                    _ => pipeline.cmd("SET").arg(key).arg("value").arg("PX").arg(1 + random.below(50)),
                };
            }
            let replies: Vec<Option<String>> = pipeline.query(&mut connection).unwrap();
            for (reply, is_read) in replies.iter().zip(is_read) {
                reads += u64::from(is_read);
                writes += u64::from(!is_read);
                misses += u64::from(is_read && reply.is_none());
            }
        }
        assert_eq!(counts_of_all(&mut connection), [reads, writes, 0, misses]);
    });
}

fn is_paused(server: &Server) -> bool {
    server.info("tenure").unwrap()["tenure_watching"] == "paused"
}

/// A fast stream far from the limit is watched in part; penalties are measured all the same. Near the limit all is
/// watched.
#[test]
fn a_fast_stream_far_from_the_limit_is_watched_in_part() {
    on_oldest_and_newest(&with_module().set("tenure.watched-per-second", 100), |server| {
        let mut connection = server.connection().unwrap();
        let mut client = CacheAside::new(server.connection().unwrap(), "k:", 5000, 100);
        client.read_all();
        assert_eq!(counts_of(&mut connection, "db0"), [5000, 5000, 0, 5000]);
        wait_for("a pause", || {
            client.read_some(100);
            is_paused(server)
        });
        let before = counts_of(&mut connection, "db0");
        let penalties = info(server, "penalties_measured");
        (0..20).for_each(|_| client.read_some(100));
        send::<()>(&mut connection, "GET absent");
        send::<()>(&mut connection, "SET absent v");
        assert_eq!(counts_of(&mut connection, "db0"), before);
        assert_eq!(info(server, "penalties_measured"), penalties + 1.0);
        // With a limit the table of keys is smaller: the limit follows what is used then. Below 4 MiB Tenure rests.
        wait_for("all to be watched", || {
            config_set(&mut connection, "maxmemory", (used_memory(server) * 3 / 2).max(4 << 20));
            !is_paused(server)
        });
        let before = counts_of(&mut connection, "db0");
        (0..300).for_each(|i| send(&mut connection, &format!("GET k:{i}")));
        assert_eq!(counts_of(&mut connection, "db0")[0], before[0] + 300);
    });
}

/// At the limit a thread without time to spare watches some turns alone; misses, their penalties and new keys are
/// known all the same, and Tenure evicts. Reads of what isn't there, and that nobody answers, are no accesses then.
#[test]
fn a_busy_thread_at_its_limit_watches_slices() {
    // From the start, since the table of keys is smaller then: more than half of it is used at once.
    let options = evicting_in_time().set("maxmemory", "4mb").set("tenure.watch-busy-percent", 0);
    on_oldest_and_newest(&options.set("tenure.watch-percent", 1), |server| {
        let mut connection = server.connection().unwrap();
        let mut client = CacheAside::new(server.connection().unwrap(), "k:", 5000, 100);
        client.read_all();
        let mut reads = redis::pipe();
        (0..2000).for_each(|i| _ = reads.cmd("GET").arg(format!("k:{i}")).ignore());
        let mut sent = 0;
        wait_for("turns to pass unseen", || {
            reads.exec(&mut connection).unwrap();
            sent += 2000;
            info(server, "watched_time_share") < 0.9 && info(server, "reads") < (sent + 5000) as f64
        });
        assert!(status(&mut connection)["watching"].starts_with("slices: "), "{:?}", status(&mut connection));
        assert_eq!(server.info("tenure").unwrap()["tenure_watching"], "slices");
        let known = || info(server, "remembered_keys") + info(server, "forgotten_keys");
        let (known_before, reads_before, mut sent) = (known(), info(server, "reads"), 0);
        wait_for("most reads of what isn't there to pass unseen", || {
            let mut absent = redis::pipe();
            (sent..sent + 2000).for_each(|i| _ = absent.cmd("GET").arg(format!("none:{i}")).ignore());
            absent.exec(&mut connection).unwrap();
            sent += 2000;
            sent >= 20_000 && info(server, "reads") - reads_before < 0.5 * f64::from(sent)
        });
        let (grown, seen) = (known() - known_before, info(server, "reads") - reads_before);
        assert!(grown < seen + 0.1 * f64::from(sent), "{grown} more keys are known of {seen} reads of {sent}");
        let penalties = info(server, "penalties_measured");
        let evicted_before = evicted_by_server(server);
        let mut newcomers = CacheAside::new(server.connection().unwrap(), "n:", 20_000, 100);
        newcomers.read_all();
        let measured = info(server, "penalties_measured") - penalties;
        assert!(measured > 0.9 * newcomers.misses as f64, "{measured} of {}", newcomers.misses);
        let (ours, theirs) = (info(server, "evictions"), (evicted_by_server(server) - evicted_before) as f64);
        assert!(ours > 1000.0 && theirs <= 0.1 * (ours + theirs), "{ours} by Tenure, {theirs} by the server");
        let (mut tries, mut hot) = (0, redis::pipe());
        (0..200).for_each(|_| _ = hot.cmd("GET").arg("k:0").ignore());
        wait_for("reads that went unseen to be told of by the server's clock", || {
            // That goes by the second, so a key has to be known to be some sixteen seconds old.
            if tries % 500 == 0 {
                client.read(&(0..3000).collect::<Vec<_>>());
            }
            hot.exec(&mut connection).unwrap();
            newcomers.read(&(0..5).map(|i| 20_000 + 5 * tries + i).collect::<Vec<_>>());
            tries += 1;
            info(server, "late_accesses") > 0.0
        });
        config_set(&mut connection, "tenure.watch-percent", 100);
        wait_for("all to be watched", || server.info("tenure").unwrap()["tenure_watching"] == "all");
        let before = counts_of(&mut connection, "db0");
        (0..300).for_each(|i| send(&mut connection, &format!("GET k:{i}")));
        assert_eq!(counts_of(&mut connection, "db0")[0], before[0] + 300);
    });
}

/// `SET … GET` and `GETSET` look at what they replace, and the server tells of a miss where there is nothing. So it
/// does of a script that writes what it hasn't found. Nobody has fetched anything then: no penalty is measured, and
/// such newcomers go as others that nobody has read.
#[test]
fn a_command_that_looks_at_what_it_replaces_answers_no_miss() {
    const GET_OR_SET: &str = "return redis.call('GET', KEYS[1]) or redis.call('SET', KEYS[1], ARGV[1])";
    let options = evicting_in_time().set("maxmemory", "4mb").set("tenure.watch-busy-percent", 0);
    on_oldest_and_newest(&options.set("tenure.watch-percent", 1), |server| {
        let mut connection = server.connection().unwrap();
        let mut sent = 0;
        let mut send_some = |connection: &mut redis::Connection| {
            let mut pipeline = redis::pipe();
            for i in sent..sent + 25 {
                pipeline.cmd("SET").arg(format!("set:{i}")).arg([b'v'; 100].as_slice()).arg("GET").ignore();
                pipeline.cmd("GETSET").arg(format!("getset:{i}")).arg([b'v'; 100].as_slice()).ignore();
                // Before API 7.2 what a script does in between may take too long.
                if has_api_7_2(server) {
                    pipeline
                        .cmd("EVAL")
                        .arg(GET_OR_SET)
                        .arg(1)
                        .arg(format!("script:{i}"))
                        .arg("v".repeat(100))
                        .ignore();
                }
            }
            pipeline.exec(connection).unwrap();
            sent += 25;
        };
        wait_for("writes to pass unseen, and newcomers to go without a search", || {
            (0..20).for_each(|_| send_some(&mut connection));
            info(server, "watched_time_share") < 0.5 && info(server, "evictions_unsearched") > 1000.0
        });
        let before = [info(server, "writes"), info(server, "evictions"), info(server, "evictions_unsearched")];
        let (mut sent_more, kinds) = (0.0, if has_api_7_2(server) { 3.0 } else { 2.0 });
        wait_for("most of many more to pass unseen", || {
            (0..100).for_each(|_| send_some(&mut connection));
            sent_more += 100.0 * 25.0 * kinds;
            sent_more >= 800.0 * 25.0 * kinds && info(server, "writes") - before[0] < 0.5 * sent_more
        });
        let [evicted, unsearched] = ["evictions", "evictions_unsearched"].map(|name| info(server, name));
        let share = (unsearched - before[2]) / (evicted - before[1]);
        assert!(share > 0.1, "{share} went without a search");
        let (measured, all) = (info(server, "penalties_measured"), f64::from(2 * sent));
        // Nor can a command that another program has interrupted be told from a client's answer.
        assert!(measured < 0.25 * all, "{measured} penalties of {all}");
        if has_api_7_2(server) {
            assert_eq!(measured, 0.0);
        }
    });
}

/// Tenure looks at keys all the time, to know how many and how large they are. Neither their age nor the server's
/// statistics show it.
#[test]
fn looking_leaves_no_trace() {
    on_oldest_and_newest(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        (0..100).for_each(|i| send(&mut connection, &format!("SET key:{i} value")));
        (0..150).for_each(|i| send(&mut connection, &format!("GET key:{i}")));
        // Being asked for its age counts as a hit.
        let mut asked = 0;
        wait_for("a key to age, and to be met many times", || {
            asked += 1;
            let idle: u64 = send(&mut connection, "OBJECT IDLETIME key:1");
            idle >= 2 && info(server, "visited_keys") > 1000.0
        });
        let stats = server.info("stats").unwrap();
        assert_eq!(stats["keyspace_hits"], (100 + asked).to_string());
        assert_eq!(stats["keyspace_misses"], "50");
        assert_eq!(counts_of(&mut connection, "db0"), [150, 100, 0, 50]);
    });
}

/// Other tenants start their counts anew, and every key belongs to one of them.
#[test]
fn tenants_can_be_changed_while_the_server_runs() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET users:1 1");
        assert_eq!(counts_of(&mut connection, "db0"), [0, 1, 0, 0]);
        config_set(&mut connection, "tenure.tenants", "users=users:* vip=users:vip:*");
        wait_for("the new tenants", || partitions(&mut connection).contains_key("vip"));
        let lines = ["GET users:1", "GET users:vip:1", "SET users:vip:1 1", "GET jobs:1", "GET users"];
        lines.iter().for_each(|line| send(&mut connection, line));
        let rows = partitions(&mut connection);
        assert_eq!(rows.keys().collect::<Vec<_>>(), ["other", "users", "vip"]);
        assert_eq!(counts(&rows["users"]), [1, 0, 0, 0]);
        assert_eq!(counts(&rows["vip"]), [1, 1, 0, 1]);
        assert_eq!(counts(&rows["other"]), [2, 0, 0, 2]);
    });
}
