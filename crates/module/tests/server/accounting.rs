//! Accounting: what each partition is said to hold against what the server itself says of every key.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;
use tenure_servers::ServerOptions;

use crate::harness::{
    CacheAside, Random, config_set, connection_to, info, on_oldest_and_newest, partitions, send, used_memory, wait_for,
    with_module,
};

/// The error allowed: used bytes within 2 %.
pub const TOLERANCE: f64 = 0.02;
/// It has to hold this many ticks in a row (a tenth of a second each), so that no passing moment counts.
const TICKS: usize = 8;

/// Keys and bytes of one partition.
pub type Held = BTreeMap<String, (u64, u64)>;

/// Every key of a database, asked about one by one. `partition_of` names the partition of a key.
pub fn count(connection: &mut Connection, held: &mut Held, partition_of: impl Fn(&str) -> String) {
    let mut keys = BTreeSet::new();
    let mut cursor = 0u64;
    loop {
        let (next, batch): (u64, Vec<String>) = send(connection, &format!("SCAN {cursor} COUNT 1000"));
        keys.extend(batch);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let keys: Vec<String> = keys.into_iter().collect();
    for chunk in keys.chunks(500) {
        let mut pipeline = redis::pipe();
        chunk.iter().for_each(|key| {
            pipeline.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        });
        let sizes: Vec<Option<u64>> = pipeline.query(connection).unwrap();
        for (key, size) in chunk.iter().zip(sizes) {
            // A key that expired since the scan takes nothing.
            let Some(size) = size else { continue };
            let (keys, bytes) = held.entry(partition_of(key)).or_default();
            *keys += 1;
            *bytes += size;
        }
    }
}

/// Waits until the module's account agrees with `expected`, tick after tick.
#[track_caller]
pub fn check_held(server: &tenure_servers::Server, connection: &mut Connection, expected: &Held, what: &str) {
    check_against(server, connection, |_| expected.clone(), what);
}

/// The same where keys may still go: what there is, `count_all` says anew each time.
#[track_caller]
pub fn check_against(
    server: &tenure_servers::Server,
    connection: &mut Connection,
    count_all: impl Fn(&mut Connection) -> Held,
    what: &str,
) {
    let (mut in_a_row, mut last_tick, mut shown) = (0, 0.0, String::new());
    let agrees = || {
        let tick = info(server, "visited_keys");
        if tick == last_tick {
            return false;
        }
        last_tick = tick;
        let expected = count_all(connection);
        let rows = partitions(connection);
        let error_of = |(name, (keys, bytes)): (&String, &(u64, u64))| {
            let (Some(row), true) = (rows.get(name), *bytes > 0) else { return (name.clone(), 1.0, 1.0) };
            (name.clone(), row["keys"] / *keys as f64 - 1.0, row["used_bytes"] / *bytes as f64 - 1.0)
        };
        let errors: Vec<_> = expected.iter().map(error_of).collect();
        shown = format!("{errors:?}, of {expected:?}");
        let is_close = errors.iter().all(|(_, keys, bytes)| keys.abs() <= TOLERANCE && bytes.abs() <= TOLERANCE);
        in_a_row = if is_close { in_a_row + 1 } else { 0 };
        in_a_row >= TICKS
    };
    let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "agreement", agrees);
    assert!(waited.is_ok(), "{what}: relative errors of keys and bytes stay at {shown}");
}

fn by_prefix(key: &str) -> String {
    match key.split_once(':') {
        Some(("s", _)) => "small",
        Some(("l", _)) => "large",
        Some(("h", _)) => "hashes",
        _ => "other",
    }
    .to_owned()
}

/// `n` strings whose sizes are log-normal.
pub fn add_strings(connection: &mut Connection, prefix: &str, n: u64, median_bytes: f64) {
    let mut random = Random::new(n);
    for first in (0..n).step_by(500) {
        let mut pipeline = redis::pipe();
        for i in first..(first + 500).min(n) {
            let size = random.log_normal(median_bytes, 1.0).clamp(1.0, 65536.0) as usize;
            pipeline.cmd("SET").arg(format!("{prefix}{i}")).arg(vec![b'v'; size]).ignore();
        }
        pipeline.exec(connection).unwrap();
    }
}

pub fn add_hashes(connection: &mut Connection, prefix: &str, n: u64) {
    let mut random = Random::new(n);
    for i in 0..n {
        let mut command = redis::cmd("HSET");
        command.arg(format!("{prefix}{i}"));
        for field in 0..5 + random.below(45) {
            command.arg(format!("field:{field}")).arg(vec![b'v'; random.below(100) as usize]);
        }
        command.exec(connection).unwrap();
    }
}

#[test]
fn tenants_by_prefix_with_sizes_of_all_kinds() {
    on_oldest_and_newest(&with_module().set("tenure.tenants", "\"small=s:* large=l:* hashes=h:*\""), |server| {
        let mut connection = server.connection().unwrap();
        let check = |connection: &mut Connection, what: &str| {
            let mut held = Held::new();
            count(connection, &mut held, by_prefix);
            check_held(server, connection, &held, what);
        };
        add_strings(&mut connection, "s:", 4000, 80.0);
        add_strings(&mut connection, "l:", 1500, 1500.0);
        add_strings(&mut connection, "x", 300, 300.0);
        add_hashes(&mut connection, "h:", 400);
        check(&mut connection, "after writing");

        for i in 0..2000 {
            send::<()>(&mut connection, &format!("DEL s:{i}"));
        }
        for i in 0..500 {
            send::<()>(&mut connection, &format!("PEXPIRE l:{i} 1"));
        }
        for i in 500..700 {
            send::<()>(&mut connection, &format!("RENAME l:{i} s:renamed:{i}"));
        }
        for i in 0..100 {
            send::<()>(&mut connection, &format!("DEL h:{i}"));
        }
        wait_for("the keys to expire", || send::<u64>(&mut connection, "DBSIZE") == 4000 + 1500 + 300 + 400 - 2600);
        check(&mut connection, "after deletes, expiry and renames");

        // Values grow in place.
        for i in 2000..4000 {
            send::<()>(&mut connection, &format!("SET s:{i} {}", "v".repeat(400)));
        }
        for i in 100..400 {
            send::<()>(&mut connection, &format!("HSET h:{i} more {}", "v".repeat(2000)));
        }
        check(&mut connection, "after growth");

        send::<()>(&mut connection, "FLUSHDB");
        wait_for("nothing to be held", || partitions(&mut connection).values().all(|row| row["used_bytes"] == 0.0));
        assert!(partitions(&mut connection).values().all(|row| row["keys"] == 0.0));
    });
}

#[test]
fn tenants_by_database_have_exact_key_counts() {
    on_oldest_and_newest(&with_module(), |server| {
        let sizes = [(0, 3000, 100.0), (1, 500, 2000.0), (7, 1000, 400.0)];
        let mut connections: Vec<Connection> = sizes.iter().map(|(db, ..)| connection_to(server, *db)).collect();
        for (connection, (_, n, median)) in connections.iter_mut().zip(sizes) {
            add_strings(connection, "key:", n, median);
        }
        for round in 0..2 {
            let mut held = Held::new();
            for (connection, (db, ..)) in connections.iter_mut().zip(sizes) {
                count(connection, &mut held, |_| format!("db{db}"));
            }
            check_held(server, &mut connections[0], &held, &format!("round {round}"));
            let rows = partitions(&mut connections[0]);
            held.iter().for_each(|(name, (keys, _))| assert_eq!(rows[name]["keys"], *keys as f64, "{name}"));
            for i in 0..400 {
                send::<()>(&mut connections[0], &format!("DEL key:{i}"));
                send::<()>(&mut connections[1], &format!("MOVE key:{i} 2"));
            }
            send::<()>(&mut connections[2], "SWAPDB 7 9");
            send::<()>(&mut connections[2], "SWAPDB 9 7");
        }
        send::<()>(&mut connections[0], "FLUSHALL");
        wait_for("nothing to be held", || partitions(&mut connections[0]).values().all(|row| row["keys"] == 0.0));
    });
}

/// With other tenants the account starts anew.
#[test]
fn the_account_follows_a_change_of_tenants() {
    on_oldest_and_newest(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        add_strings(&mut connection, "s:", 2000, 100.0);
        add_strings(&mut connection, "l:", 1000, 1000.0);
        config_set(&mut connection, "tenure.tenants", "small=s:* large=l:* hashes=h:*");
        wait_for("the new tenants", || partitions(&mut connection).contains_key("small"));
        let mut held = Held::new();
        count(&mut connection, &mut held, by_prefix);
        check_held(server, &mut connection, &held, "after the change");
    });
}

/// What the server keeps for Tenure, beyond what `tenure_memory_bytes` counts, is little: what the allocator rounds up,
/// a histogram for each command that Tenure sends, and how Valkey from 9.1 on describes each command. The answer to a
/// bare `COMMAND`, which 9.1 keeps as well, would be too much.
#[test]
fn the_server_keeps_little_for_tenure_that_is_not_counted() {
    const LITTLE: f64 = 400.0 * 1024.0;
    let options = with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru");
    let options = ServerOptions { module_args: vec!["enabled".to_owned(), "no".to_owned()], ..options };
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        let before = used_memory(server) as f64;
        config_set(&mut connection, "tenure.enabled", "yes");
        wait_for("Tenure to have its memory", || info(server, "key_table_bytes") > 0.0);
        let beyond = used_memory(server) as f64 - info(server, "memory_bytes") - before;
        assert!(beyond < LITTLE, "{beyond} bytes that are not counted");
    });
}

/// Of 64 MB and of 128 MB, a fiftieth, once it has learned and the worker has caught up. Some keys are few, hot and
/// small, others are read evenly, and of some there is never anything.
#[test]
fn tenure_takes_a_fiftieth_of_a_small_cache() {
    for mb in [64, 128] {
        let limit = f64::from(mb << 20);
        let options = with_module().set("maxmemory", format!("{mb}mb")).set("maxmemory-policy", "allkeys-lru");
        on_oldest_and_newest(&options, |server| {
            let connect = || server.connection().unwrap();
            let mut even = CacheAside::new(connect(), "even:", 300_000, 1_000).with_sizes();
            let mut hot = CacheAside::new(connect(), "hot:", 30_000, 200);
            let (mut random, mut asking) = (Random::new(1), connect());
            wait_for("it to have learned in a full cache", || {
                even.read_some(200);
                hot.read_some(200);
                let mut nothing = redis::pipe();
                (0..20).for_each(|_| _ = nothing.cmd("GET").arg(format!("none:{}", random.below(1 << 40))));
                nothing.exec(&mut asking).unwrap();
                info(server, "evictions") > 20_000.0 && info(server, "windows") >= 12.0
            });
            let models = info(server, "models_bytes");
            assert!(models > limit / 512.0, "{models} bytes of what was learned");
            wait_for("it to take little", || info(server, "memory_bytes") <= limit / 50.0);
            let table = info(server, "key_table_bytes");
            assert!(table >= limit / 104.0 - 128.0, "{table} bytes for keys");
        });
    }
}
