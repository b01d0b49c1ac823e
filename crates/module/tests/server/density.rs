//! Tenure's own policy: what is worth least goes, within the tenants' bounds, and `TENURE.WHY` tells of a key why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use redis::{Commands, Connection};
use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    CacheAside, Checker, EvictedKeys, Random, Row, config_set, error_of, evicted_by_server, evicting_in_time, info,
    limit_memory, on_every_server, on_oldest_and_newest, partition, partitions, send, status, wait_for, wait_for_limit,
};

const MB: u64 = 1 << 20;
const NEAR: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_millis(40);

/// The table of keys keeps its size when the limit is set.
fn options() -> ServerOptions {
    evicting_in_time().set("tenure.policy", "density").set("tenure.key-table-bytes", "512kb")
}

fn client(server: &Server, prefix: &'static str, keys: u64, value_bytes: usize) -> CacheAside {
    CacheAside::new(server.connection().unwrap(), prefix, keys, value_bytes)
}

fn why(connection: &mut Connection, key: &str) -> BTreeMap<String, String> {
    send(connection, &format!("TENURE.WHY {key}"))
}

fn number(fields: &BTreeMap<String, String>, name: &str) -> f64 {
    fields[name].parse().unwrap_or_else(|_| panic!("{name} is no number in {fields:?}"))
}

/// Nine in ten evictions at least are Tenure's.
#[track_caller]
fn check_by_tenure(server: &Server) {
    let (ours, theirs) = (info(server, "evictions"), evicted_by_server(server) as f64);
    assert!(ours > 0.0 && theirs <= 0.1 * (ours + theirs), "{ours} by Tenure, {theirs} by the server");
}

/// What the worker takes at the end of each window counts against the limit, too: it is kept free, so that the server
/// doesn't step in.
#[test]
fn the_worker_takes_no_memory_that_keys_lie_in() {
    on_oldest_and_newest(&options().set("tenure.window-requests", 5000), |server| {
        limit_memory(server, 12 * MB);
        let mut client = client(server, "k:", 25_000, 1000);
        let mut read_windows = |n: f64| {
            let end = info(server, "windows") + n;
            wait_for("windows to end", || {
                client.read_some(200);
                info(server, "windows") >= end && info(server, "evictions") > 0.0
            });
        };
        // What it takes is known once it was taken.
        read_windows(8.0);
        let in_a_window = || {
            let before = evicted_by_server(server);
            read_windows(1.0);
            evicted_by_server(server) - before
        };
        // By window: where the machine takes the core away in mid-turn, a single one may have more.
        let mut theirs: Vec<u64> = std::iter::repeat_with(in_a_window).take(12).collect();
        theirs.sort_unstable();
        assert!(theirs[8] < 5, "the server evicted {theirs:?} in 12 windows: {:?}", server.info("tenure"));
    });
}

/// Both clients read `n` keys in each of 30 rounds; the miss ratio of each.
fn miss_ratios(clients: &mut [CacheAside; 2], n: usize) -> [f64; 2] {
    let before = clients.each_ref().map(|client| (client.reads, client.misses));
    for _ in 0..30 {
        clients.iter_mut().for_each(|client| client.read_some(n));
    }
    [0, 1].map(|i| (clients[i].misses - before[i].1) as f64 / (clients[i].reads - before[i].0) as f64)
}

/// Both clients are asked for alike, with room for a part of what they ask for: in the end the first misses less than
/// that share of what the second does, by Tenure's doing.
#[track_caller]
fn check_is_kept(server: &Server, mut clients: [CacheAside; 2], n: usize, share: f64) {
    limit_memory(server, 4 * MB);
    wait_for("the first client to miss less than the second", || {
        let [kept, given] = miss_ratios(&mut clients, n);
        kept < share * given
    });
    check_by_tenure(server);
}

#[test]
fn dear_keys_are_kept_over_cheap_ones_of_equal_use() {
    on_oldest_and_newest(&options(), |server| {
        let far = client(server, "f:", 3000, 1000).with_backend(FAR);
        let near = client(server, "n:", 3000, 1000).with_backend(NEAR);
        check_is_kept(server, [far, near], 200, 0.6);
        assert_eq!(status(&mut server.connection().unwrap())["policy"], "density");
        // An empty table has none of its bytes; how many a learned one has goes by the ages that were seen.
        assert!(info(server, "remembered_keys") > 3000.0 && info(server, "density_table_bytes") > 4_000.0);
    });
}

#[test]
fn a_tenant_of_more_weight_is_kept_over_one_of_equal_use_and_price() {
    let tenants = "\"heavy=h:*,weight=30 light=l:*\"";
    on_oldest_and_newest(&options().set("tenure.tenants", tenants), |server| {
        let heavy = client(server, "h:", 3000, 1000).with_backend(NEAR);
        let light = client(server, "l:", 3000, 1000).with_backend(NEAR);
        check_is_kept(server, [heavy, light], 200, 0.6);
    });
}

/// Half of the requests write keys of one kind over and over. That these are accessed as often says nothing for them,
/// unless what is there is used: what a command changes is.
#[test]
fn keys_that_are_written_and_never_read_leave_the_room_to_others() {
    on_oldest_and_newest(&options(), |server| {
        limit_memory(server, 4 * MB);
        let (mut connection, mut random) = (server.connection().unwrap(), Random::new(5));
        let (mut reader, value) = (client(server, "r:", 3000, 1000), "v".repeat(1000));
        let mut run_some = |connection: &mut Connection| {
            let mut writes = redis::pipe();
            for _ in 0..200 {
                writes.cmd("SET").arg(format!("w:{}", random.next() % 3000)).arg(&value).ignore();
            }
            writes.cmd("INCR").arg("changed").ignore();
            writes.exec(connection).unwrap();
            reader.read_some(200);
        };
        wait_for("what is read to have most of the memory", || {
            run_some(&mut connection);
            let [read, written] = ["r:*", "w:*"].map(|kind| connection.scan_match::<_, String>(kind).unwrap().count());
            read > 3 * written
        });
        check_by_tenure(server);
        wait_for("features", || {
            run_some(&mut connection);
            let mut feature = |key: String| {
                let known = redis::cmd("TENURE.WHY").arg(key).query::<BTreeMap<String, String>>(&mut connection);
                known.map_or_else(|_| String::new(), |fields| fields["feature"].clone())
            };
            let written = (0..3000).map(|i| feature(format!("w:{i}"))).find(|feature| !feature.is_empty());
            written.is_some_and(|written| written.starts_with("written "))
                && feature("changed".to_owned()).contains(", every ")
        });
    });
}

/// 256 KiB are 16,384 entries of 16 bytes. Where classes are remembered as well, that is all.
#[test]
fn more_keys_are_remembered_than_there_are_full_entries() {
    on_oldest_and_newest(&options().set("tenure.key-table-bytes", "256kb"), |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 8 * MB);
        let mut client = client(server, "k:", 30_000, 100);
        wait_for("more than fit in full", || {
            client.read_all();
            info(server, "remembered_keys") > 20_000.0
        });
        assert_eq!(info(server, "key_table_bytes"), 262_144.0);
        config_set(&mut connection, "tenure.classes", "hinted");
        wait_for("another table to be full", || {
            client.read_all();
            info(server, "remembered_keys") > 14_000.0
        });
        assert!(info(server, "remembered_keys") <= 16_384.0);
    });
}

/// Each key is fetched again and again, and takes whatever it takes: its own penalty tells nothing.
#[test]
fn a_penalty_that_is_never_the_same_is_not_trusted() {
    on_oldest_and_newest(&options().set("tenure.window-requests", 1000), |server| {
        limit_memory(server, 8 * MB);
        let mut connection = server.connection().unwrap();
        assert_eq!(info(server, "penalty_trust"), 1.0);
        let mut random = Random::new(1);
        wait_for("penalties to be told for noise", || {
            for i in 0..50 {
                send::<()>(&mut connection, &format!("DEL k:{i}"));
                send::<Option<String>>(&mut connection, &format!("GET k:{i}"));
                std::thread::sleep(Duration::from_micros(200 << random.below(6)));
                send::<()>(&mut connection, &format!("SET k:{i} v"));
            }
            info(server, "penalty_trust") < 0.7
        });
    });
}

#[test]
fn small_keys_are_kept_over_large_ones_of_equal_use() {
    on_oldest_and_newest(&options(), |server| {
        let small = client(server, "s:", 2000, 500).with_backend(NEAR);
        let large = client(server, "l:", 2000, 5000).with_backend(NEAR);
        check_is_kept(server, [small, large], 100, 0.5);
    });
}

/// Half of the requests are for keys at forty times the price that never come again. Greedy rankings keep those.
#[test]
fn a_burst_of_dear_keys_that_never_come_again_displaces_nobody() {
    // Windows in which the few sampled tell what the many are.
    on_oldest_and_newest(&options().set("tenure.window-requests", 10_000), |server| {
        limit_memory(server, 4 * MB);
        let mut hot = client(server, "h:", 1500, 1000).with_backend(NEAR);
        let mut once = client(server, "o:", u64::MAX, 1000).with_backend(FAR);
        let mut before = (0, 0);
        for round in 0..140 {
            if round == 100 {
                before = (hot.reads, hot.misses);
            }
            hot.read_some(200);
            once.read(&(round * 200..(round + 1) * 200).collect::<Vec<_>>());
        }
        let ratio = (hot.misses - before.1) as f64 / (hot.reads - before.0) as f64;
        assert!(ratio < 0.1, "{ratio} of the reads that come again miss {:?}", server.info("tenure"));
        check_by_tenure(server);
    });
}

/// The guaranteed keys are worth nothing: nobody asks for them.
#[test]
fn a_minimum_holds_against_keys_that_are_worth_more() {
    let options = options().set("tenure.tenants", "\"kept=k:*,min=2500kb scan=s:*\"");
    on_oldest_and_newest(&options, |server| {
        let mut kept = client(server, "k:", 2000, 1000);
        kept.write(&(0..2000).collect::<Vec<_>>());
        // Tenure's models take a megabyte of it in the end, and headroom most of another: the minimum still fits.
        limit_memory(server, 4 * MB);
        let mut scan = client(server, "s:", 4000, 1000).with_backend(NEAR);
        let mut connection = server.connection().unwrap();
        wait_for("thousands of the others to go, in more than a window", || {
            scan.read_some(200);
            partition(&mut connection, "scan")["evictions"] > 4000.0 && info(server, "windows") >= 3.0
        });
        let rows = partitions(&mut connection);
        assert_eq!(rows["kept"]["evictions"], 0.0, "{rows:?}");
        check_by_tenure(server);
    });
}

/// The limited keys are expensive and the others cheap, and memory is free.
#[test]
fn a_tenant_above_its_maximum_gives_first() {
    let options = options().set("tenure.tenants", "\"held=h:*,max=1mb free=f:*\"").set("maxmemory", "1gb");
    on_oldest_and_newest(&options, |server| {
        let mut held = client(server, "h:", 3000, 1000).with_backend(FAR);
        let mut free = client(server, "f:", 3000, 1000).with_backend(NEAR);
        (0..20).for_each(|_| {
            held.read_some(100);
            free.read_some(300);
        });
        let mut connection = server.connection().unwrap();
        wait_for("the tenant to shrink", || {
            held.read_some(1);
            partition(&mut connection, "held")["used_bytes"] <= 1.02 * MB as f64
        });
        let free = partition(&mut connection, "free");
        assert_eq!((free["evictions"], evicted_by_server(server)), (0.0, 0), "{free:?}");
        assert!(partition(&mut connection, "held")["evictions"] > 300.0);
    });
}

/// Keys whose time is up lie about where the server doesn't look for them: they go before any other.
#[test]
fn what_has_expired_goes_first() {
    // On a busy thread, and where slices run out of time, keys may go without a search. What Tenure takes for its
    // models meanwhile has room below the limit, so that the server doesn't step in.
    let options = options().set("tenure.watch-busy-percent", 100).set("tenure.turn-budget-us", 5000);
    let options = options.set("tenure.headroom-bytes", MB);
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "DEBUG SET-ACTIVE-EXPIRE 0");
        let mut lasting = client(server, "k:", 2000, 1000);
        lasting.write(&(0..2000).collect::<Vec<_>>());
        let value = "v".repeat(1000);
        let mut pipeline = redis::pipe();
        // So many that one of them is met nearly always, of five keys too, as where replies wait.
        for i in 0..12_000 {
            pipeline.cmd("SET").arg(format!("short:{i}")).arg(&value).arg("PX").arg(1).ignore();
        }
        pipeline.exec(&mut connection).unwrap();
        // The expired are what new keys may take: the megabyte is kept free.
        let limit = limit_memory(server, MB);
        wait_for_limit(&mut connection, limit);
        let evicted = EvictedKeys::of(server);
        let mut newcomers = client(server, "n:", 1000, 1000);
        for first in (0..1000).step_by(50) {
            newcomers.write(&(first..first + 50).collect::<Vec<_>>());
        }
        let expired: u64 = server.info("stats").unwrap()["expired_keys"].parse().unwrap();
        assert!(expired > 500, "{expired} of those that had expired were found");
        let (n, by_tenure) = (evicted.count(), info(server, "evictions"));
        assert!(n < 50, "{n} were evicted that had not, {by_tenure} by Tenure");
        wait_for("the keys to be accounted for", || {
            let keys: u64 = send(&mut connection, "DBSIZE");
            partition(&mut connection, "db0")["keys"] == keys as f64
        });
    });
}

/// A loop: no key is due before the others were asked for, and one that expires before that is worth next to nothing.
#[test]
fn a_key_about_to_expire_is_worth_less() {
    on_oldest_and_newest(&options().set("tenure.window-requests", 6000), |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 5 * MB);
        let mut all = client(server, "k:", 3000, 1000).with_backend(NEAR);
        wait_for("densities to be what ranks", || {
            all.read_all();
            let is_learned = ["density", "steady"].contains(&status(&mut connection)["ranking"].as_str());
            info(server, "windows") >= 8.0 && is_learned
        });
        // In 2 ms there are far fewer requests than between two of a key, on a fast machine too.
        wait_for("a key whose time isn't up when it is asked about", || {
            all.read_all();
            redis::cmd("SET").arg("k:1").arg("v".repeat(1000)).exec(&mut connection).unwrap();
            redis::cmd("SET").arg("k:2").arg("v".repeat(1000)).arg("PX").arg(2).exec(&mut connection).unwrap();
            let soon = why(&mut connection, "k:2");
            let lasting = why(&mut connection, "k:1");
            if soon["state"] != "resident" {
                return false;
            }
            assert_eq!(soon["feature"], lasting["feature"]);
            let scores = [&soon, &lasting].map(|fields| number(fields, "score"));
            assert!(scores[0] < 0.5 * scores[1], "{soon:?} beside {lasting:?}");
            true
        });
    });
}

#[test]
fn why_tells_of_a_key_in_the_cache_and_of_one_that_was_evicted() {
    let options = options().set("tenure.tenants", "a=a:*");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 3 * MB);
        let mut often = client(server, "a:", 100, 1000).with_backend(Duration::from_millis(5));
        let mut rarely = client(server, "b:", 6000, 1000);
        let evicted = EvictedKeys::of(server);
        wait_for("densities and evictions", || {
            often.read_some(50);
            rarely.read_some(200);
            info(server, "evictions") > 1000.0 && status(&mut connection)["ranking"] == "density"
        });
        let mut known = BTreeMap::new();
        // Another ranking may be ahead for a window.
        wait_for("a key to be ranked by density", || {
            // Three times whatever was drawn before, on a fast machine nothing.
            (0..4).for_each(|_| often.read_all());
            known = why(&mut connection, "a:7");
            known["ranking"] == "density"
        });
        assert_eq!((known["state"].as_str(), known["partition"].as_str()), ("resident", "a"), "{known:?}");
        assert_eq!(known["penalty_from"], "measured");
        assert!(number(&known, "requests") >= 3.0 && number(&known, "age_requests") < 1000.0, "{known:?}");
        assert!(number(&known, "gap_requests") > 0.0 && number(&known, "penalty_us") > 4000.0, "{known:?}");
        assert!((1000.0..1300.0).contains(&number(&known, "size_bytes")), "{known:?}");
        assert!(number(&known, "compared") >= 64.0 && number(&known, "expires_in_ms") == -1.0, "{known:?}");
        // It is expensive and used all the time: nearly all others go before it.
        assert!(number(&known, "lower") > 0.8 * number(&known, "compared"), "{known:?}");
        wait_for("an evicted key that isn't back", || {
            let gone: Vec<(u16, Vec<u8>)> = evicted.all();
            gone.iter().rev().take(100).any(|(_, key)| {
                let key = String::from_utf8(key.clone()).unwrap();
                let is_gone = send::<u64>(&mut connection, &format!("EXISTS {key}")) == 0;
                is_gone && why(&mut connection, &key)["state"] == "evicted"
            })
        });
        let error = error_of(&mut connection, "TENURE.WHY never:1");
        assert!(error.contains("nothing is known of key 'never:1' in database 0"), "{error}");
        assert!(error_of(&mut connection, "TENURE.WHY").contains("wrong number of arguments"));
        config_set(&mut connection, "tenure.policy", "predis");
        wait_for("the policy", || status(&mut connection)["policy"] == "predis");
        let error = error_of(&mut connection, "TENURE.WHY a:7");
        assert!(error.contains("tenure.policy is predis"), "{error}");
        assert_eq!(status(&mut connection)["ranking"], "none");
    });
}

/// From one policy to the next and back while clients write and read: no wrong value, and each evicts.
#[test]
fn policies_are_changed_to_and_fro_under_load() {
    on_oldest_and_newest(&options(), |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 5 * MB);
        let checker = Checker::start(server, 10_000, 1000);
        for policy in ["density", "hyperbolic", "density", "predis", "density", "lru", "off", "density"] {
            config_set(&mut connection, "tenure.policy", policy);
            wait_for("the policy", || status(&mut connection)["policy"] == policy);
            let before = info(server, "evictions");
            if policy != "off" {
                wait_for("the policy to evict", || info(server, "evictions") > before + 200.0);
            }
            checker.wait_for_rounds(20);
        }
        for enabled in ["no", "yes"] {
            config_set(&mut connection, "tenure.enabled", enabled);
            checker.wait_for_rounds(50);
        }
        let before = info(server, "evictions");
        wait_for("Tenure to evict again", || info(server, "evictions") > before + 200.0);
        checker.finish(server);
        assert_eq!(info(server, "panics"), 0.0);
    });
}

#[test]
fn it_is_unloaded_while_it_evicts_by_density() {
    let options = ServerOptions::default().set("enable-module-command", "yes").set("maxmemory-policy", "allkeys-lru");
    on_oldest_and_newest(&options, |server| {
        let load = |connection: &mut Connection| {
            let module = tenure_servers::module_path().unwrap().display().to_string();
            send::<()>(connection, &format!("MODULE LOAD {module} policy density window-requests 1000"));
        };
        let mut connection = server.connection().unwrap();
        load(&mut connection);
        limit_memory(server, 5 * MB);
        let checker = Checker::start(server, 10_000, 1000);
        for _ in 0..3 {
            wait_for("Tenure to evict", || info(server, "evictions") > 300.0);
            send::<()>(&mut connection, "MODULE UNLOAD tenure");
            checker.wait_for_rounds(20);
            load(&mut connection);
        }
        send::<()>(&mut connection, "MODULE UNLOAD tenure");
        checker.finish(server);
    });
}

/// Without its worker nothing new is learned: the server evicts as stock, but for tenants above their maximum.
#[test]
fn without_its_worker_the_server_evicts() {
    on_oldest_and_newest(&options().set("tenure.debug-commands", "yes"), |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 4 * MB);
        let mut all = client(server, "k:", 8000, 1000);
        wait_for("Tenure to evict", || {
            all.read_some(100);
            info(server, "evictions") > 500.0
        });
        send::<()>(&mut connection, "TENURE.DEBUG PANIC WORKER");
        wait_for("the worker's end", || status(&mut connection)["eviction"].contains("the worker has died"));
        let before = evicted_by_server(server);
        (0..20).for_each(|_| all.read_some(200));
        assert!(evicted_by_server(server) > before + 500);
    });
}

/// Far from the limit nothing is noted of single keys.
#[test]
fn far_from_the_limit_the_table_of_keys_is_left_alone() {
    on_oldest_and_newest(&options().set("maxmemory", "1gb"), |server| {
        let mut all = client(server, "k:", 1000, 1000);
        wait_for("a window", || {
            all.read_some(100);
            info(server, "windows") >= 2.0
        });
        // A penalty is remembered where it is measured.
        let known = info(server, "remembered_keys");
        assert!(known <= 1000.0, "{known}");
        client(server, "k:", 1000, 1000).read_all();
        let row = partition(&mut server.connection().unwrap(), "db0");
        assert!(row["reads"] > 1000.0);
        let first = why(&mut server.connection().unwrap(), "k:1");
        assert_eq!(first["requests"], "0", "{first:?}");
    });
}

/// A new key is told of before its first element is there. Redis 7.0 dies where it is asked what an empty list takes.
#[test]
fn new_collections_come_to_a_full_cache() {
    on_every_server(&options(), |server| {
        limit_memory(server, 4 * MB);
        let mut connection = server.connection().unwrap();
        let value = "x".repeat(1000);
        let mut number = 0;
        wait_for("collections to be evicted", || {
            let mut pipeline = redis::pipe();
            for _ in 0..200 {
                number += 1;
                pipeline.cmd("SET").arg(format!("string:{number}")).arg(&value);
                pipeline.cmd("RPUSH").arg(format!("list:{number}")).arg(&value);
                pipeline.cmd("HSET").arg(format!("hash:{number}")).arg("field").arg(&value);
                pipeline.cmd("SADD").arg(format!("set:{number}")).arg(&value);
                pipeline.cmd("ZADD").arg(format!("sorted:{number}")).arg(1).arg(&value);
                pipeline.cmd("XADD").arg(format!("stream:{number}")).arg("*").arg("field").arg(&value);
            }
            pipeline.exec(&mut connection).unwrap();
            info(server, "evictions") > 2000.0
        });
    });
}

/// A thousand keys that nobody reads, from the number after `n` on, in one pipeline.
fn write_new_keys(connection: &mut Connection, n: &mut u64) {
    write_new_keys_of(connection, n, &["n"]);
}

/// The same with so many prefixes by turns.
fn write_new_keys_of(connection: &mut Connection, n: &mut u64, prefixes: &[&str]) {
    let (mut writes, value) = (redis::pipe(), "v".repeat(1000));
    for prefix in prefixes.iter().cycle().take(1000) {
        *n += 1;
        writes.cmd("SET").arg(format!("{prefix}:{n}")).arg(&value).ignore();
    }
    writes.exec(connection).unwrap();
}

/// Under a volatile policy, too, and no key without a time to live: neither those that were there, nor where most of
/// those that come have none.
#[test]
fn newcomers_that_expire_go_without_a_search() {
    let options = options().set("tenure.watch-busy-percent", 0).set("maxmemory-policy", "volatile-lru");
    on_oldest_and_newest(&options, |server| {
        let (mut connection, mut n, value) = (server.connection().unwrap(), 0, "v".repeat(1000));
        send::<()>(&mut connection, "DEBUG POPULATE 3000 old 1000");
        limit_memory(server, 12 * MB);
        let mut write_some = |short: usize, lasting: &[String]| {
            let mut writes = redis::pipe();
            for _ in 0..short {
                n += 1;
                writes.cmd("SET").arg(format!("short:{n}")).arg(&value).arg("EX").arg(1000).ignore();
            }
            lasting.iter().for_each(|name| _ = writes.cmd("SET").arg(name).arg(&value).ignore());
            writes.exec(&mut connection).unwrap();
            if !lasting.is_empty() {
                let there: usize = redis::cmd("EXISTS").arg(lasting).query(&mut connection).unwrap();
                assert_eq!(there, lasting.len());
                redis::cmd("DEL").arg(lasting).exec(&mut connection).unwrap();
            }
        };
        wait_for("keys to go without a search", || {
            write_some(500, &[]);
            info(server, "evictions_unsearched") > 5000.0
        });
        let (before, lasting) =
            (info(server, "evictions"), (0..500).map(|i| format!("lasting:{i}")).collect::<Vec<_>>());
        let before_by_server = evicted_by_server(server);
        wait_for("keys to go where most of those that come may not", || {
            write_some(50, &lasting);
            info(server, "evictions") > before + 10_000.0
        });
        let by_server = evicted_by_server(server) - before_by_server;
        println!("{by_server} by the server where most stay");
        assert!(by_server <= 1000, "{by_server} by the server where most stay");
        check_by_tenure(server);
        let there: u64 = (0..3000).map(|i| send::<u64>(&mut connection, &format!("EXISTS old:{i}"))).sum();
        assert_eq!(there, 3000);
    });
}

/// A burst leaves no time for searches before the main thread counts as busy: 100 percent, which is never reached.
#[test]
fn who_is_never_read_goes_without_a_search_where_slices_run_out_of_time() {
    let options = options().set("tenure.watch-busy-percent", 100).set("tenure.turn-budget-us", 50);
    on_oldest_and_newest(&options, |server| {
        limit_memory(server, 12 * MB);
        let (mut connection, mut n) = (server.connection().unwrap(), 0);
        wait_for("keys to go without a search", || {
            write_new_keys(&mut connection, &mut n);
            info(server, "evictions_unsearched") > 1000.0
        });
        assert!(info(server, "eviction_slices_out_of_time") > 0.0);
    });
}

/// Clients that write keys that nobody reads, as long as this lives.
struct Flood {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    /// So many clients, each with names of these prefixes by turns.
    fn start(server: &Server, clients: u64, prefixes: &'static [&'static str]) -> Flood {
        let is_over = Arc::new(AtomicBool::new(false));
        let client = |i: u64| {
            let (mut connection, is_over) = (server.connection().unwrap(), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut n = i << 32;
                while !is_over.load(Ordering::Relaxed) {
                    write_new_keys_of(&mut connection, &mut n, prefixes);
                }
            })
        };
        let threads = (0..clients).map(client).collect();
        Flood { is_over, threads }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// More comes in a turn than can be searched for in its time: newcomers of tenants at their maximum go for others of
/// the same, so that these don't grow into the memory that is left, and nobody else gives.
#[test]
fn maximums_hold_in_a_flood_of_new_keys() {
    const LIMITS: [(&str, u64); 2] = [("held", 16 * MB), ("small", 8 * MB)];
    let options = options().set("tenure.watch-busy-percent", 0).set("tenure.turn-budget-us", 500);
    let options = options.set("tenure.window-requests", 5000).set("tenure.watch-percent", 1);
    let tenants = "\"held=h:*,max=16mb small=s:*,max=8mb free=f:*\"";
    on_oldest_and_newest(&options.set("tenure.tenants", tenants), |server| {
        limit_memory(server, 128 * MB);
        let mut connection = server.connection().unwrap();
        let flood = Flood::start(server, 50, &["h", "h", "s"]);
        let are_held = |rows: BTreeMap<String, Row>| {
            LIMITS.iter().all(|(tenant, bytes_max)| rows[*tenant]["used_bytes"] <= 1.1 * *bytes_max as f64)
        };
        wait_for("both to be held while thousands of keys come", || {
            let enough = info(server, "evictions") + 20_000.0;
            while are_held(partitions(&mut connection)) {
                if info(server, "evictions") > enough {
                    return true;
                }
            }
            false
        });
        write_new_keys_of(&mut connection, &mut 0, &["f"]);
        let before = ["evictions", "evictions_unsearched"].map(|field| info(server, field));
        let since = |i: usize, field: &str| info(server, field) - before[i];
        wait_for("thousands to go", || since(0, "evictions") > 50_000.0);
        assert!(since(1, "evictions_unsearched") > 0.5 * since(0, "evictions"));
        let free: Vec<String> = (1..=1000).map(|i| format!("f:{i}")).collect();
        assert_eq!(redis::cmd("EXISTS").arg(&free).query::<usize>(&mut connection).unwrap(), 1000);
        drop(flood);
    });
}

/// The same in the first seconds of a server, and of other tenants, when nothing is learned and the main thread doesn't
/// count as busy yet: the server has nothing to evict.
#[test]
fn a_maximum_holds_from_the_first_key_of_a_flood_on() {
    let tenants = |more: &str| format!("held=h:*,max=16mb free=f:*{more}");
    let options = options().set("tenure.watch-percent", 1).set("tenure.turn-budget-us", 500);
    let options = options.set("tenure.window-requests", 50_000);
    on_oldest_and_newest(&options.set("tenure.tenants", format!("\"{}\"", tenants(""))), |server| {
        limit_memory(server, 64 * MB);
        let mut connection = server.connection().unwrap();
        write_new_keys_of(&mut connection, &mut 0, &["f"]);
        let flood = Flood::start(server, 50, &["h"]);
        for more in ["", " new=new:*"] {
            config_set(&mut connection, "tenure.tenants", tenants(more));
            let enough = info(server, "evictions") + 200_000.0;
            wait_for("many to go", || info(server, "evictions") > enough);
            let free: Vec<String> = (1..=1000).map(|i| format!("f:{i}")).collect();
            assert_eq!(redis::cmd("EXISTS").arg(&free).query::<usize>(&mut connection).unwrap(), 1000);
            assert_eq!(evicted_by_server(server), 0, "tenants are {}", tenants(more));
        }
        drop(flood);
    });
}

/// Values that grow, of which none is read, after a stream of keys that go without a search: one search finds a large
/// value, where many that have just begun would have to go for as much memory.
#[test]
fn few_large_values_go_for_many_small_newcomers_on_a_busy_thread() {
    let options = options().set("tenure.watch-busy-percent", 0).set("tenure.window-requests", 5000);
    on_oldest_and_newest(&options, |server| {
        limit_memory(server, 12 * MB);
        let (mut connection, mut n, mut random) = (server.connection().unwrap(), 0, Random::new(1));
        wait_for("keys to go without a search", || {
            write_new_keys(&mut connection, &mut n);
            info(server, "evictions_unsearched") > 5000.0
        });
        let mut evicted_for = |appends: usize| {
            let before = info(server, "evictions");
            for _ in 0..appends / 1000 {
                let mut writes = redis::pipe();
                for _ in 0..1000 {
                    let name = format!("log:{}", random.next() % 20_000);
                    writes.cmd("APPEND").arg(name).arg("v".repeat(100)).ignore();
                }
                writes.exec(&mut connection).unwrap();
            }
            info(server, "evictions") - before
        };
        evicted_for(300_000);
        let evicted = evicted_for(200_000);
        println!("{evicted} values went for 200,000 that grew");
        assert!(evicted < 80_000.0, "{evicted} values went for 200,000 that grew");
        check_by_tenure(server);
    });
}

/// Where hardly any key is ever read again, those that come go without a search; where they are read, each victim is
/// searched for. `watch-busy-percent` makes the main thread count as busy.
#[test]
fn who_is_never_read_goes_without_a_search_on_a_busy_thread() {
    let options = options().set("tenure.watch-busy-percent", 0).set("tenure.window-requests", 1000);
    on_oldest_and_newest(&options, |server| {
        limit_memory(server, 12 * MB);
        let unsearched = || info(server, "evictions_unsearched");
        let mut reader = client(server, "k:", 20_000, 1000);
        let windows = info(server, "windows");
        wait_for("windows in which keys are read again", || {
            reader.read_some(1000);
            info(server, "windows") >= windows + 4.0 && info(server, "evictions") > 5000.0
        });
        assert_eq!(unsearched(), 0.0);

        let (mut connection, mut n) = (server.connection().unwrap(), 0);
        wait_for("keys to go without a search", || {
            write_new_keys(&mut connection, &mut n);
            unsearched() > 5000.0
        });

        let (windows, misses) = (info(server, "windows"), reader.misses);
        wait_for("keys to be searched for again", || {
            let before = unsearched();
            reader.read_some(5000);
            info(server, "windows") >= windows + 4.0 && unsearched() == before
        });
        assert!(reader.misses > misses);
        check_by_tenure(server);
    });
}
