//! Values that sleep on disk: what was written is what is read, whatever happens in between.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Connection, Value};
use tempfile::TempDir;
use tenure_servers::{Server, ServerBinary, ServerOptions};

use crate::harness::{
    CacheAside, DEADLINE, Random, Unseen, command, config_set, connection_to, error_of, info, limit_memory,
    oldest_and_newest_of, partition, send, servers, start, status, that_know_clients, used_memory, wait_for,
    with_module,
};

const MB: u64 = 1 << 20;

/// A server whose values sleep in the folder.
pub fn sleeping_in(folder: &Path) -> ServerOptions {
    with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.spill-dir", folder.display())
}

/// Servers on which values can sleep: a filter has to know who sends a command.
pub fn on_servers_that_can(binaries: Vec<ServerBinary>, test: impl Fn(&mut Server, &Path)) {
    for binary in that_know_clients(binaries) {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let mut server = start(&binary, &sleeping_in(folder.path()));
        test(&mut server, folder.path());
    }
}

/// Oldest that can, and newest.
pub fn two() -> Vec<ServerBinary> {
    oldest_and_newest_of(that_know_clients(servers()))
}

/// The oldest and the newest, in each way in which commands go by unseen, with this tenant.
fn where_accesses_go_unseen(tenant: &str, test: impl Fn(&Server, Unseen)) {
    for (binary, way) in two().into_iter().flat_map(|binary| Unseen::WAYS.map(|way| (binary.clone(), way))) {
        println!("on {}, {way:?}", binary.label);
        let folder = TempDir::new().unwrap();
        let options = sleeping_in(folder.path()).set("tenure.tenants", format!("{tenant}{}", way.maximum));
        test(&start(&binary, &way.options(options)), way);
    }
}

/// Puts all of database 0 to sleep.
#[track_caller]
pub fn put_to_sleep(server: &Server) {
    let mut connection = server.connection().unwrap();
    wait_for("the partition to be known", || partition(&mut connection, "db0")["keys"] > 0.0);
    send::<()>(&mut connection, "TENURE.SLEEP db0");
    wait_for("all to sleep", || send::<u64>(&mut connection, "DBSIZE") == 0);
}

/// One key of each kind, with values that are easily told apart.
const KINDS: [&str; 8] = [
    "SET string some-value",
    "SET number 12345",
    "RPUSH list a b c",
    "SADD set a b c",
    "HSET hash f 1 g 2",
    "ZADD sorted 1 a 2 b",
    "XADD stream 1-1 f v",
    "SETRANGE large 70000 end",
];

const LOOKS: [&str; 8] = [
    "GET string",
    "GET number",
    "LRANGE list 0 -1",
    "SCARD set",
    "HGETALL hash",
    "ZRANGE sorted 0 -1 WITHSCORES",
    "XRANGE stream - +",
    "STRLEN large",
];

#[test]
fn every_kind_of_value_is_read_from_disk_as_it_was() {
    on_servers_that_can(servers(), |server, _| {
        let mut connection = server.connection().unwrap();
        KINDS.iter().for_each(|line| drop(send::<Value>(&mut connection, line)));
        send::<()>(&mut connection, "PEXPIRE string 500000");
        let before: Vec<Value> = LOOKS.iter().map(|line| send(&mut connection, line)).collect();
        put_to_sleep(server);
        assert_eq!(info(server, "sleeping_keys"), 8.0);
        assert_eq!(partition(&mut connection, "db0")["keys"], 0.0);
        let after: Vec<Value> = LOOKS.iter().map(|line| send(&mut connection, line)).collect();
        assert_eq!(before, after);
        let left: i64 = send(&mut connection, "PTTL string");
        assert!((300_000..=500_000).contains(&left), "{left} ms to live");
        assert_eq!(send::<i64>(&mut connection, "PTTL number"), -1);
        assert_eq!(send::<String>(&mut connection, "OBJECT ENCODING number"), "int");
        assert_eq!(
            (info(server, "sleeping_keys"), info(server, "woken_keys"), info(server, "spill_damaged")),
            (0.0, 8.0, 0.0)
        );
        assert_eq!(partition(&mut connection, "db0")["keys"], 8.0);
    });
}

/// The client goes on, and no trace of its wait keeps the module from being unloaded.
#[test]
fn nobody_waits_for_a_reading_thread_that_has_died() {
    for binary in two() {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let mut options = sleeping_in(folder.path()).set("enable-module-command", "yes");
        options.module_args = vec!["debug-commands".to_owned(), "yes".to_owned()];
        let server = start(&binary, &options);
        let mut connection = server.connection().unwrap();
        ["SET a 1", "SET b 2"].iter().for_each(|line| send(&mut connection, line));
        put_to_sleep(&server);
        send::<()>(&mut connection, "TENURE.DEBUG PANIC READS");
        // What it was to read is a miss; what comes after is read by the main thread.
        assert_eq!(send::<Option<String>>(&mut connection, "GET a"), None);
        wait_for("the panic to be counted", || info(&server, "panics") == 1.0);
        assert_eq!(send::<String>(&mut connection, "GET b"), "2");
        send::<()>(&mut connection, "MODULE UNLOAD tenure");
    }
}

/// Whatever changes or removes a sleeping key does to it what it does to one that is awake.
#[test]
fn commands_on_sleeping_keys_do_what_they_do_on_others() {
    let lines = [
        "INCR n",
        "APPEND s x",
        "DEL s",
        "UNLINK l",
        "EXISTS s n l h",
        "SETNX s new",
        "SET s new KEEPTTL",
        "GETSET s newer",
        "LPUSH l x",
        "RENAME s t",
        "COPY s t",
        "EXPIRE s 100",
        "TTL e",
        "PERSIST e",
        "TYPE h",
        "HINCRBY h f 2",
        "MGET s n none",
        "MSET s 1 n 2",
        "SORT l ALPHA STORE s",
        "OBJECT ENCODING s",
        "TOUCH s n",
        "STRLEN s",
        "GETDEL n",
        "HDEL h f",
        "SUNIONSTORE s nothing",
        "BITOP NOT d s",
        "DUMP h",
        "LMPOP 2 none l LEFT",
        "MOVE n 3",
        "SETEX s 100 v",
        "SET s v",
        "EVAL return(redis.call('GET','s')) 0",
        "EVAL return(redis.call('DEL',ARGV[1])) 0 s",
        "RESTORE s 0 x",
    ];
    on_servers_that_can(two(), |server, _| {
        let fill = |connection: &mut Connection| {
            send::<()>(connection, "FLUSHALL");
            for line in ["SET s value", "SET n 5", "RPUSH l b a", "HSET h f 1", "SET e v EX 1000"] {
                send::<Value>(connection, line);
            }
        };
        let state = |connection: &mut Connection| -> Vec<Value> {
            ["GET s", "GET n", "LRANGE l 0 -1", "HGETALL h", "GET e", "GET t", "GET d", "EXISTS s n l h e t d"]
                .iter()
                .map(|line| command_or_error(connection, line))
                .collect()
        };
        let mut connection = server.connection().unwrap();
        for line in lines {
            fill(&mut connection);
            let awake = (command_or_error(&mut connection, line), state(&mut connection));
            fill(&mut connection);
            put_to_sleep(server);
            let asleep = (command_or_error(&mut connection, line), state(&mut connection));
            // A dump ends with a version and a checksum, and starts with how it is encoded: all the same here.
            assert_eq!(awake, asleep, "{line}");
        }
        assert_eq!((info(server, "panics"), info(server, "spill_damaged")), (0.0, 0.0));
    });
}

fn command_or_error(connection: &mut Connection, line: &str) -> Value {
    let reply = crate::harness::command(line).query::<Value>(connection);
    reply.unwrap_or_else(|error| Value::SimpleString(error.to_string()))
}

/// What a transaction queued is done to the keys as they were, though they fell asleep before it ran.
#[test]
fn transactions_find_keys_that_fell_asleep_meanwhile() {
    on_servers_that_can(two(), |server, _| {
        let mut connection = server.connection().unwrap();
        let mut other = server.connection().unwrap();
        for asleep_first in [true, false] {
            send::<()>(&mut connection, "FLUSHALL");
            send::<()>(&mut connection, "MSET a 1 b 2 c 3");
            if asleep_first {
                put_to_sleep(server);
            }
            for line in ["MULTI", "INCR a", "DEL b", "GET c"] {
                send::<Value>(&mut connection, line);
            }
            if !asleep_first {
                put_to_sleep(server);
            }
            let replies: (i64, i64, String) = send(&mut connection, "EXEC");
            assert_eq!(replies, (2, 1, "3".to_owned()), "asleep first: {asleep_first}");
            assert_eq!(send::<Option<String>>(&mut other, "GET b"), None, "what was deleted stays so");
        }
        // One that is given up, and one whose client goes.
        for line in ["MULTI", "INCR a", "DISCARD"] {
            send::<Value>(&mut connection, line);
        }
        send::<Value>(&mut connection, "MULTI");
        drop(connection);
        put_to_sleep(server);
        assert_eq!(send::<i64>(&mut other, "GET a"), 2);
    });
}

/// Of a transaction that was seen to begin commands may go by unseen, and clients may go to another database so.
#[test]
fn nothing_comes_back_of_what_has_gone_by_unseen() {
    where_accesses_go_unseen("sleepy=s:*", |server, way| {
        let [mut connection, mut mover, mut other] = [(); 3].map(|()| server.connection().unwrap());
        send::<()>(&mut other, "MSET s:a 1 s:b 2 s:c 3 s:d 4 awake 5");
        wait_for("the keys to be known", || partition(&mut other, "sleepy")["keys"] == 4.0);
        // That it begins is seen.
        send::<()>(&mut connection, "MULTI");
        way.begin(server);
        for line in ["INCR s:a", "DEL s:b", "GET s:c"] {
            Unseen::pass_by(&mut other);
            send::<()>(&mut connection, line);
        }
        // Where there are slices, a client is seen in another database; then it goes back.
        send::<()>(&mut mover, "SELECT 5");
        let reads = info(server, "reads");
        wait_for("some of its reads to be seen", || {
            Unseen::pass_by(&mut mover);
            way.is_whole() || info(server, "reads") > reads + 100.0
        });
        Unseen::pass_by(&mut mover);
        send::<()>(&mut mover, "SELECT 0");
        assert!(way.is_so(server));
        send::<()>(&mut other, "TENURE.SLEEP sleepy");
        wait_for("all to sleep", || info(server, "sleeping_keys") == 4.0);
        assert_eq!(send::<i64>(&mut mover, "DEL s:d"), 1);
        // What the transaction names isn't known: all that sleeps is given up, and nothing of it may come back.
        let replies: (i64, i64, Option<String>) = send(&mut connection, "EXEC");
        let now: (Option<i64>, Option<i64>, Option<String>, Option<i64>) = send(&mut other, "MGET s:a s:b s:c s:d");
        assert_eq!(now, (Some(replies.0), None, replies.2, None));
    });
}

/// A value that is changed while it is on its way to the disk does not fall asleep as it was.
#[test]
fn nothing_old_is_ever_read() {
    on_servers_that_can(two(), |server, _| read_and_write_at_random(server, 1));
}

/// So it is while accesses go unseen, asleep and awake.
#[test]
fn nothing_old_is_ever_read_where_accesses_go_unseen() {
    where_accesses_go_unseen("db0=db:0", |server, way| {
        way.begin(server);
        let count = || info(server, "reads") + info(server, "writes");
        let before = count();
        read_and_write_at_random(server, 100);
        let seen = count() - before;
        println!("{seen} of 60,000 accesses were seen");
        // How much slices see is up to the machine.
        assert!(seen < 30_000.0 || !way.is_whole(), "{seen} of 60,000 accesses were seen");
    });
}

/// Some keys, most of whose time is spent asleep, against what they have to be; so many commands are sent at once.
fn read_and_write_at_random(server: &Server, at_once: usize) {
    const KEYS: u64 = 2000;
    let text = |value: &u64| Value::BulkString(value.to_string().into_bytes());
    let (mut client, mut admin) = (server.connection().unwrap(), server.connection().unwrap());
    let mut random = Random::new(7);
    let mut truth: HashMap<u64, u64> = HashMap::new();
    let mut sent = Vec::new();
    for step in 0..60_000_u64 {
        let key = random.below(KEYS);
        sent.push(match random.below(10) {
            0..=2 => {
                truth.insert(key, step);
                (format!("SET k:{key} {step}"), Value::Okay)
            }
            3 => (format!("DEL k:{key}"), Value::Int(i64::from(truth.remove(&key).is_some()))),
            4 => {
                let now = truth.entry(key).or_default();
                *now += 1;
                (format!("INCR k:{key}"), Value::Int(*now as i64))
            }
            _ => (format!("GET k:{key}"), truth.get(&key).map_or(Value::Nil, text)),
        });
        if sent.len() == at_once {
            let mut pipeline = redis::pipe();
            sent.iter().for_each(|(line, _)| _ = pipeline.add_command(command(line)));
            let replies: Vec<Value> = pipeline.query(&mut client).unwrap();
            for ((line, expected), reply) in sent.drain(..).zip(replies) {
                assert_eq!(reply, expected, "{line} until {step}");
            }
        }
        if step % 300 == 0 {
            let verb = if step % 1500 == 0 { "WAKE" } else { "SLEEP" };
            let _ = command(&format!("TENURE.{verb} db0")).exec(&mut admin);
        }
    }
    let (slept, woken) = (info(server, "slept_keys"), info(server, "woken_keys"));
    assert!(slept > 2000.0 && woken > 1000.0, "{slept} fell asleep, {woken} woke");
    assert_eq!(
        (info(server, "spill_given_up"), info(server, "spill_damaged"), info(server, "panics")),
        (0.0, 0.0, 0.0)
    );
    println!("{slept} slept, {woken} woken");
}

/// Of keys that wake and fall asleep all the time, some do both while a client waits for the value.
#[test]
fn what_wakes_and_sleeps_again_while_its_client_waits_is_read() {
    const KEYS: usize = 20;
    on_servers_that_can(two(), |server, _| {
        let [mut client, mut admin] = [(); 2].map(|()| server.connection().unwrap());
        let (mut writes, mut reads) = (redis::pipe(), redis::pipe());
        for i in 0..KEYS {
            writes.cmd("SET").arg(format!("k:{i}")).arg(i).ignore();
            reads.cmd("GET").arg(format!("k:{i}"));
        }
        writes.exec(&mut client).unwrap();
        wait_for("the partition to be known", || partition(&mut client, "db0")["keys"] == KEYS as f64);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    ["TENURE.SLEEP db0", "TENURE.WAKE db0"].iter().for_each(|line| send(&mut admin, line));
                }
            });
            // The other thread ends first, whatever is found.
            let (mut wrong, what) = (None, "values to be read from disk");
            let waited = tenure_servers::wait_for(DEADLINE, what, || {
                for _ in 0..50 {
                    let values = reads.query::<Vec<Option<usize>>>(&mut client);
                    wrong = Some(values).filter(|values| *values != Ok((0..KEYS).map(Some).collect()));
                    if wrong.is_some() {
                        return true;
                    }
                }
                info(server, "sleeping_reads") >= 3000.0
            });
            is_over.store(true, Ordering::Relaxed);
            waited.unwrap();
            assert_eq!(wrong, None, "after {} reads of sleeping keys", info(server, "sleeping_reads"));
        });
    });
}

/// A server that holds writes back, or refuses them, serves what sleeps, or a miss, and nothing that was deleted
/// comes back.
#[test]
fn writes_that_are_held_back_or_refused_leave_nothing_old() {
    on_servers_that_can(two(), |server, _| {
        let (mut connection, mut other) = (server.connection().unwrap(), server.connection().unwrap());
        send::<()>(&mut connection, "MSET a 1 b 2 c 3 d 4");
        put_to_sleep(server);
        send::<()>(&mut connection, "CLIENT PAUSE 700 WRITE");
        // They wait until the pause is over; what they name is gone afterwards, whatever it was.
        send::<()>(&mut other, "DEL a b");
        send::<()>(&mut other, "DEL c");
        let left: Vec<Option<u64>> = send(&mut connection, "MGET a b c");
        assert_eq!(left, [None, None, None]);
        send::<()>(&mut connection, "CLIENT UNPAUSE");
        assert_eq!(send::<u64>(&mut connection, "GET d"), 4);
        send::<()>(&mut connection, "SET e 5");
        put_to_sleep(server);
        config_set(&mut connection, "min-replicas-to-write", 1);
        assert_eq!(send::<u64>(&mut connection, "GET e"), 5, "a read needs no replica");
    });
}

#[test]
fn times_to_live_run_on_and_emptied_databases_have_no_sleepers() {
    on_servers_that_can(two(), |server, _| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET short v PX 3000");
        send::<()>(&mut connection, "SET long v");
        put_to_sleep(server);
        wait_for("its time to be over", || send::<Option<String>>(&mut connection, "GET short").is_none());
        let mut second = connection_to(server, 1);
        send::<()>(&mut second, "SET long other");
        send::<()>(&mut second, "FLUSHDB");
        assert_eq!(info(server, "sleeping_keys"), 1.0);
        assert_eq!(send::<Option<String>>(&mut second, "GET long"), None);
        assert_eq!(send::<String>(&mut connection, "GET long"), "v");
        put_to_sleep(server);
        send::<()>(&mut connection, "FLUSHALL");
        assert_eq!(send::<Option<String>>(&mut connection, "GET long"), None);
        assert_eq!(info(server, "sleeping_keys"), 0.0);
    });
}

/// Replicas see a sleeping key go and come, and the append-only file has both.
#[test]
fn replicas_and_the_append_only_file_follow() {
    for binary in two() {
        let folder = TempDir::new().unwrap();
        let mut server = start(&binary, &sleeping_in(folder.path()).set("appendonly", "yes"));
        let replica = start(&binary, &ServerOptions::default());
        replica.replica_of(&server).unwrap();
        let mut connection = server.connection().unwrap();
        (0..200).for_each(|i| send(&mut connection, &format!("SET k:{i} {i}")));
        put_to_sleep(&server);
        let mut at_replica = replica.connection().unwrap();
        wait_for("the replica to follow", || send::<u64>(&mut at_replica, "DBSIZE") == 0);
        // Too few to wake the others.
        for i in 0..50 {
            assert_eq!(send::<u64>(&mut connection, &format!("GET k:{i}")), i);
        }
        wait_for("the replica to follow", || send::<u64>(&mut at_replica, "DBSIZE") == 50);
        assert_eq!(send::<u64>(&mut at_replica, "GET k:7"), 7);
        drop(connection);
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), 50, "{}: what was awake", binary.label);
        assert_eq!(send::<Option<u64>>(&mut connection, "GET k:150"), None, "what slept is as if evicted");
    }
}

/// A flipped bit, a cut file, a removed one: a miss each, never a wrong value.
#[test]
fn damage_on_disk_costs_hits_and_nothing_else() {
    on_servers_that_can(two(), |server, folder| {
        let mut connection = server.connection().unwrap();
        let mut random = Random::new(3);
        let (mut right, mut missing, mut trials) = (0, 0, 0);
        for round in 0..12 {
            (0..100).for_each(|i| send(&mut connection, &format!("SET k:{i} value-{round}-{i}")));
            put_to_sleep(server);
            for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if file.extension().is_none_or(|end| end != "values") {
                    continue;
                }
                let mut bytes = fs::read(&file).unwrap();
                match round % 3 {
                    0 => (0..20).for_each(|_| {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << random.below(8);
                    }),
                    1 => bytes.truncate(bytes.len() / 2),
                    _ => bytes.fill(0),
                }
                // In place: the server holds the file open.
                fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(0).unwrap();
                fs::write(&file, bytes).unwrap();
            }
            for i in 0..100 {
                trials += 1;
                match send::<Option<String>>(&mut connection, &format!("GET k:{i}")) {
                    Some(value) => {
                        assert_eq!(value, format!("value-{round}-{i}"));
                        right += 1;
                    }
                    None => missing += 1,
                }
            }
        }
        assert!(missing > 100 && right > 50, "{right} right, {missing} missing of {trials}");
        assert_eq!(info(server, "spill_damaged"), f64::from(missing));
        println!("{trials} trials: {right} right, {missing} missing, none wrong");
    });
}

#[test]
fn a_full_disk_keeps_values_awake() {
    if !Path::new("/dev/full").exists() {
        return println!("SKIPPED: no /dev/full");
    }
    on_servers_that_can(two(), |server, folder| {
        let mut connection = server.connection().unwrap();
        (0..100).for_each(|i| send(&mut connection, &format!("SET k:{i} {i}")));
        // The next segments are files that take nothing.
        for i in 1..=200 {
            std::os::unix::fs::symlink("/dev/full", folder.join(format!("tenure-spill-{i:08}.values"))).unwrap();
        }
        wait_for("the partition to be known", || partition(&mut connection, "db0")["keys"] > 0.0);
        send::<()>(&mut connection, "TENURE.SLEEP db0");
        wait_for("the disk to refuse", || info(server, "spill_refused") > 0.0);
        for i in 0..100 {
            assert_eq!(send::<u64>(&mut connection, &format!("GET k:{i}")), i);
        }
        assert_eq!((send::<u64>(&mut connection, "DBSIZE"), info(server, "slept_keys")), (100, 0.0));
    });
}

#[test]
fn the_disk_holds_no_more_than_it_may() {
    on_servers_that_can(two(), |server, folder| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "tenure.spill-max-bytes", 4 * MB);
        config_set(&mut connection, "rdbcompression", "no");
        let mut client = CacheAside::new(server.connection().unwrap(), "k:", 10_000, 1000);
        for _ in 0..3 {
            client.read_all();
            put_to_sleep(server);
        }
        wait_for("room to be made", || info(server, "spill_disk_bytes") <= 4.0 * MB as f64);
        assert!(info(server, "spill_given_up") > 1000.0);
        let on_disk = || -> u64 {
            let files = fs::read_dir(folder).unwrap().flatten();
            files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
        };
        wait_for("files to be removed", || on_disk() <= 5 * MB);
        assert!(info(server, "sleeping_keys") > 1000.0);
    });
}

/// By hand there and back; where memory is short meanwhile, what wakes takes back what it had.
#[test]
fn a_partition_sleeps_and_wakes_by_hand() {
    for (binary, policy) in two().into_iter().flat_map(|binary| [(binary.clone(), "predis"), (binary, "density")]) {
        let folder = TempDir::new().unwrap();
        // Time enough for a turn's evictions on a slow machine: the server itself would evict what has just woken.
        let options = sleeping_in(folder.path()).set("tenure.turn-budget-us", 5000).set("tenure.policy", policy);
        let server = start(&binary, &options.set("tenure.tenants", "\"p=p:* s=s:*\""));
        let mut connection = server.connection().unwrap();
        let mut periodic = CacheAside::new(server.connection().unwrap(), "p:", 3000, 1000);
        let mut steady = CacheAside::new(server.connection().unwrap(), "s:", 9000, 1000);
        limit_memory(&server, 8 * MB);
        periodic.read_all();
        steady.read_some(500);
        wait_for("a plan", || status(&mut connection)["eviction"] == "ready");
        wait_for("all to be accounted for", || partition(&mut connection, "p")["keys"] == 3000.0);
        let full = used_memory(&server);
        send::<()>(&mut connection, "TENURE.SLEEP p");
        wait_for("the tenant to sleep", || partition(&mut connection, "p")["sleeping_keys"] >= 2990.0);
        wait_for("memory to be free", || used_memory(&server) + 2 * MB < full);
        // Others use what has become free.
        wait_for("memory to be used", || {
            steady.read_some(500);
            partition(&mut connection, "s")["used_bytes"] > 6.0 * MB as f64
        });
        send::<()>(&mut connection, "TENURE.WAKE p");
        wait_for("the tenant to wake", || {
            steady.read_some(50);
            partition(&mut connection, "p")["keys"] >= 2700.0
        });
        assert!(info(&server, "woken_keys") >= 2700.0);
        let misses = periodic.misses;
        periodic.read_all();
        assert!(periodic.misses - misses < 150, "{policy}: {} of 3000 were lost", periodic.misses - misses);
    }
}

#[test]
fn an_orderly_stop_is_followed_by_a_warm_start() {
    for binary in two() {
        let folder = TempDir::new().unwrap();
        let mut server = start(&binary, &sleeping_in(folder.path()).set("tenure.warm-restart", "yes"));
        let mut connection = server.connection().unwrap();
        KINDS.iter().for_each(|line| drop(send::<Value>(&mut connection, line)));
        (0..3000).for_each(|i| send(&mut connection, &format!("SET k:{i} value-{i}")));
        let before: Vec<Value> = LOOKS.iter().map(|line| send(&mut connection, line)).collect();
        drop(connection);
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        // At once, whether or not it is awake yet; and what is deleted or changed now stays so.
        assert_eq!(send::<u64>(&mut connection, "DEL k:5"), 1);
        send::<()>(&mut connection, "SET k:6 newer");
        let after: Vec<Value> = LOOKS.iter().map(|line| send(&mut connection, line)).collect();
        assert_eq!(before, after, "{}", binary.label);
        wait_for("all to wake", || send::<u64>(&mut connection, "DBSIZE") == 3007);
        for i in (0..3000).filter(|i| *i != 5 && *i != 6) {
            assert_eq!(send::<String>(&mut connection, &format!("GET k:{i}")), format!("value-{i}"));
        }
        assert_eq!(send::<Option<String>>(&mut connection, "GET k:5"), None);
        assert_eq!(send::<String>(&mut connection, "GET k:6"), "newer");
        // A crash leaves nothing behind, and what an earlier stop wrote is not found again.
        drop(connection);
        server.kill();
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), 0);
        assert_eq!(info(&server, "sleeping_keys"), 0.0);
    }
}

/// Killed while values fall asleep, and while they are loaded back: nothing of before is found afterwards, nor is
/// anything wrong.
#[test]
fn a_crash_at_any_time_leaves_nothing_wrong_behind() {
    const TRIALS: u64 = 12;
    for binary in two() {
        let folder = TempDir::new().unwrap();
        let options = sleeping_in(folder.path()).set("tenure.warm-restart", "yes");
        let mut server = start(&binary, &options);
        let mut found = 0;
        for trial in 0..TRIALS {
            let mut connection = server.connection().unwrap();
            let mut pipeline = redis::pipe();
            for i in 0..5000 {
                pipeline.cmd("SET").arg(format!("k:{i}")).arg(format!("{trial}-{i}-{}", "v".repeat(500))).ignore();
            }
            pipeline.exec(&mut connection).unwrap();
            wait_for("the partition to be known", || partition(&mut connection, "db0")["keys"] > 0.0);
            send::<()>(&mut connection, "TENURE.SLEEP db0");
            let is_under_way = |server: &Server, field: &str| info(server, field) > 100.0 * (trial % 4 + 1) as f64;
            wait_for("some to sleep", || is_under_way(&server, "slept_keys"));
            if trial % 2 == 0 {
                // While values fall asleep.
                server.kill();
                server.restart().unwrap();
                let mut connection = server.connection().unwrap();
                assert_eq!((send::<u64>(&mut connection, "DBSIZE"), info(&server, "sleeping_keys")), (0, 0.0));
                continue;
            }
            // While they are loaded back, some of them changed and deleted already.
            drop(connection);
            server.restart().unwrap();
            let mut connection = server.connection().unwrap();
            send::<()>(&mut connection, "SET k:1 newer");
            send::<()>(&mut connection, "DEL k:2");
            wait_for("some to wake", || is_under_way(&server, "woken_keys"));
            for i in 3..500 {
                if let Some(value) = send::<Option<String>>(&mut connection, &format!("GET k:{i}")) {
                    assert!(value.starts_with(&format!("{trial}-{i}-")), "k:{i} in trial {trial}: {}", &value[..20]);
                    found += 1;
                }
            }
            assert_eq!(send::<String>(&mut connection, "GET k:1"), "newer");
            drop(connection);
            server.kill();
            server.restart().unwrap();
            let mut connection = server.connection().unwrap();
            assert_eq!((send::<u64>(&mut connection, "DBSIZE"), info(&server, "sleeping_keys")), (0, 0.0));
        }
        println!("{TRIALS} trials, {found} values read after a warm start, none wrong");
        assert!(found > 1000, "{found}");
    }
}

/// A class that is asked for every few seconds and a steady one: the first is found to be periodic, sleeps in its
/// valleys and is there at its peaks.
#[test]
fn a_periodic_partition_falls_asleep_and_wakes_by_itself() {
    let binary = servers().pop().unwrap();
    let folder = TempDir::new().unwrap();
    let options = sleeping_in(folder.path()).set("tenure.tenants", "\"p=p:* s=s:*\"").set("maxmemory", "1gb");
    let server = start(&binary, &options.set("tenure.spill-interval-seconds", 1).set("tenure.spill-run-intervals", 2));
    let mut connection = server.connection().unwrap();
    let mut periodic = CacheAside::new(server.connection().unwrap(), "p:", 2000, 1000);
    let mut steady = CacheAside::new(server.connection().unwrap(), "s:", 500, 1000);
    let began = std::time::Instant::now();
    let mut has_slept = false;
    // 3 s of peak, 6 s of valley: this is the clients' doing, not a wait for something to happen. Some four periods
    // until it is known, and on a busy machine not each valley is long enough to sleep in.
    let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "a valley and a peak", || {
        let is_peak = began.elapsed().as_secs() % 9 < 3;
        for _ in 0..5 {
            if is_peak {
                periodic.read_some(100);
            }
            steady.read_some(20);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        has_slept |= !is_peak && partition(&mut connection, "p")["sleeping_keys"] > 1000.0;
        has_slept && is_peak && info(&server, "woken_keys") > 1000.0
    });
    waited.unwrap();
    assert_eq!(tenure_rest(&mut connection, "s"), "awake");
    assert!(periodic.misses < 2100, "{} misses of 2000 keys that were never evicted", periodic.misses);
}

pub fn tenure_rest(connection: &mut Connection, name: &str) -> String {
    let rows: Vec<std::collections::BTreeMap<String, String>> = send(connection, "TENURE.PARTITIONS");
    rows.iter().find(|row| row["name"] == name).map(|row| row["rest"].clone()).unwrap_or_default()
}

#[test]
fn what_cannot_sleep_is_refused_with_the_reason() {
    for binary in servers() {
        let folder = TempDir::new().unwrap();
        let server = start(&binary, &with_module());
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET k v");
        wait_for("the partition to be known", || partition(&mut connection, "db0")["keys"] > 0.0);
        assert!(error_of(&mut connection, "TENURE.SLEEP db0").contains("spill-dir is empty"));
        assert!(error_of(&mut connection, "TENURE.SLEEP db9").contains("no partition 'db9'; there are: db0"));
        assert!(error_of(&mut connection, "CONFIG SET tenure.spill-dir /proc/nowhere").contains("can't be made"));
        config_set(&mut connection, "tenure.spill-dir", folder.path().display());
        let error = error_of(&mut connection, "TENURE.SLEEP db0");
        let expected = if binary.label.starts_with("redis-7.0") { "who sends a command" } else { "noeviction" };
        assert!(error.contains(expected), "{}: {error}", binary.label);
        if binary.label.starts_with("redis-7.0") {
            continue;
        }
        // One folder, one server.
        let second = start(&binary, &sleeping_in(folder.path()));
        let mut other = second.connection().unwrap();
        wait_for("the folder to be refused", || {
            status(&mut other)["sleep"].contains("can't be used")
                && status(&mut other)["sleep"].contains("another server")
        });
        config_set(&mut other, "tenure.spill-dir", "");
        let line = format!("CONFIG SET tenure.spill-dir {}", folder.path().display());
        assert!(error_of(&mut other, &line).contains("in use by another server"), "{}", binary.label);
        // Its own is no other's, however it is written, also where it was given up a moment ago.
        let same = folder.path().join(".");
        redis::pipe()
            .cmd("CONFIG")
            .arg("SET")
            .arg("tenure.spill-dir")
            .arg("")
            .cmd("CONFIG")
            .arg("SET")
            .arg("tenure.spill-dir")
            .arg(same.display().to_string())
            .exec(&mut connection)
            .unwrap();
        wait_for("it to sleep again", || status(&mut connection)["sleep"] == "ready");
    }
}

/// A folder that can't be had keeps no server from starting: it runs without sleep and says why.
#[test]
fn a_server_starts_without_its_folder() {
    for binary in two() {
        let server = start(&binary, &sleeping_in(Path::new("/proc/nowhere")));
        let mut connection = server.connection().unwrap();
        wait_for("the reason", || status(&mut connection)["sleep"].contains("can't be made"));
        assert!(server.log().contains("values can't sleep: folder /proc/nowhere can't be made"), "{}", binary.label);
        assert_eq!(status(&mut connection)["state"], "running");
        let error = error_of(&mut connection, "TENURE.SLEEP db0");
        assert!(error.contains("no partition") || error.contains("can't be made"), "{error}");
    }
}

/// Values lie in plain: nobody else may read them, and an orderly end leaves none behind but those of a warm restart.
#[test]
fn files_of_values_are_private_and_end_with_the_server() {
    use std::os::unix::fs::PermissionsExt;
    for binary in two() {
        let parent = TempDir::new().unwrap();
        let folder = parent.path().join("made/by/tenure");
        let mut server = start(&binary, &sleeping_in(&folder));
        let mut connection = server.connection().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let files = || -> Vec<std::path::PathBuf> {
            let files = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
            files.filter(|path| path.extension().is_some_and(|end| end == "values")).collect()
        };
        (0..100).for_each(|i| send(&mut connection, &format!("SET k:{i} {i}")));
        put_to_sleep(&server);
        assert_eq!((mode(&folder), files().len()), (0o700, 1), "{}", binary.label);
        files().iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
        config_set(&mut connection, "tenure.spill-dir", "");
        wait_for("no files", || files().is_empty());
        config_set(&mut connection, "tenure.spill-dir", folder.display());
        (0..100).for_each(|i| send(&mut connection, &format!("SET k:{i} {i}")));
        put_to_sleep(&server);
        drop(connection);
        server.stop().unwrap();
        assert!(files().is_empty(), "{}: {:?}", binary.label, files());
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "tenure.spill-dir", folder.display());
        config_set(&mut connection, "tenure.warm-restart", "yes");
        send::<()>(&mut connection, "SET k v");
        wait_for("it to be ready", || status(&mut connection)["sleep"] == "ready");
        drop(connection);
        server.stop().unwrap();
        let warm = folder.join("tenure-warm.values");
        assert_eq!((files(), mode(&warm)), (vec![warm], 0o600), "{}", binary.label);
    }
}
