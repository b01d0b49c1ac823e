//! Eviction: the plan is carried out on real keys, within the server's own rules about what may go.

use std::collections::HashSet;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    CacheAside, EvictedKeys, config_set, connection_to, error_of, evicted_by_server, evicting_in_time, info,
    limit_memory, oldest_and_newest, on_every_server, on_oldest_and_newest, partition, partitions, send, start, status,
    used_memory, wait_for, wait_for_limit, with_module,
};

const MB: u64 = 1 << 20;

/// What these tests hold is that targets are kept.
fn evicting(policy: &str) -> ServerOptions {
    with_module().set("maxmemory-policy", policy).set("tenure.policy", "predis")
}

/// A tenant of `prefix` with `keys` values of 1000 bytes, which take about 1100.
fn client(server: &Server, prefix: &'static str, keys: u64) -> CacheAside {
    CacheAside::new(server.connection().unwrap(), prefix, keys, 1000)
}

/// Traffic until there is a plan.
fn wait_for_a_plan(server: &Server, client: &mut CacheAside) {
    wait_for("a plan", || {
        client.read_some(100);
        status(&mut server.connection().unwrap())["eviction"] == "ready"
    });
}

/// Writes every key once, in order, 100 at once.
fn write_all(client: &mut CacheAside, keys: u64) {
    let all: Vec<u64> = (0..keys).collect();
    all.chunks(100).for_each(|chunk| client.write(chunk));
}

fn evictions(server: &Server) -> f64 {
    info(server, "evictions")
}

/// Nine in ten evictions at least are Tenure's.
#[track_caller]
fn check_by_tenure(server: &Server) {
    let (ours, theirs) = (evictions(server), evicted_by_server(server) as f64);
    assert!(
        ours > 0.0 && theirs <= 0.1 * (ours + theirs),
        "{ours} by Tenure, {theirs} by the server; {}, slices out of time: {} of {} us at the most",
        status(&mut server.connection().unwrap())["eviction"],
        info(server, "eviction_slices_out_of_time"),
        info(server, "eviction_slice_us_max")
    );
}

#[test]
fn the_dear_tenant_keeps_more_and_used_follows_targets() {
    let options = evicting("allkeys-lru").set("tenure.tenants", "\"cheap=c:* dear=d:*\"");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        // About 9 MB of data, and room for half of it.
        limit_memory(server, 9 * MB / 2);
        let evicted = EvictedKeys::of(server);
        let mut cheap = client(server, "c:", 4000).with_backend(Duration::from_micros(500));
        // Far apart, so that a busy machine, which adds to both, leaves them so.
        let mut expensive = client(server, "d:", 4000).with_backend(Duration::from_millis(40));
        let mut seen = String::new();
        let is_settled = || {
            cheap.read_some(200);
            expensive.read_some(200);
            let rows = partitions(&mut connection);
            let (c, d) = (&rows["cheap"], &rows["dear"]);
            let sum = c["used_bytes"] + d["used_bytes"];
            let off = [c, d].map(|row| (row["used_bytes"] - row["target_bytes"]).abs() / sum);
            seen = format!("{rows:?}");
            d["used_bytes"] > 2.0 * c["used_bytes"] && off.iter().all(|off| *off < 0.05)
        };
        let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "the plan to be carried out", is_settled);
        assert!(waited.is_ok(), "{waited:?}: {seen}");
        let before = [(cheap.reads, cheap.misses), (expensive.reads, expensive.misses)];
        for _ in 0..50 {
            cheap.read_some(200);
            expensive.read_some(200);
        }
        let ratio = |client: &CacheAside, (reads, misses): (u64, u64)| {
            (client.misses - misses) as f64 / (client.reads - reads) as f64
        };
        let (cheap_ratio, dear_ratio) = (ratio(&cheap, before[0]), ratio(&expensive, before[1]));
        assert!(dear_ratio < 0.5 * cheap_ratio, "{dear_ratio} against {cheap_ratio}");
        check_by_tenure(server);
        check_events(server, &evicted);
    });
}

/// Each eviction is told once, ours and the server's.
#[track_caller]
fn check_events(server: &Server, evicted: &EvictedKeys) {
    // Evictions may still be under way, so both sides are asked anew each time.
    let all = || evictions(server) as usize + evicted_by_server(server) as usize;
    wait_for("every eviction to be told once", || evicted.count() == all());
}

/// The highest used memory over its limit that a burst of writes brings.
fn overshoot(server: &Server) -> f64 {
    let mut client = CacheAside::new(server.connection().unwrap(), "w:", 40_000, 4000);
    if server.info("modules").unwrap().values().any(|module| module.contains("tenure")) {
        config_set(&mut server.connection().unwrap(), "maxmemory", 1024 * MB);
        wait_for_a_plan(server, &mut client);
    }
    // Tenure's own memory comes and goes by some 100 kB while it makes a plan, as a client's does: small beside this.
    let limit = limit_memory(server, 64 * MB);
    let mut connection = server.connection().unwrap();
    let all: Vec<u64> = (0..40_000).collect();
    let mut highest = 0;
    for chunk in all.chunks(50) {
        client.write(chunk);
        let text: String = send(&mut connection, "INFO memory");
        let used = text.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        highest = highest.max(used.parse::<u64>().unwrap());
    }
    highest as f64 / limit as f64
}

#[test]
fn the_limit_is_not_exceeded_by_more_than_stock_exceeds_it() {
    for binary in oldest_and_newest() {
        let stock = start(&binary, &ServerOptions::default().set("maxmemory-policy", "allkeys-lru"));
        let stock_highest = overshoot(&stock);
        // Time enough for a turn's evictions on a slow machine: this is about memory.
        let server = start(&binary, &evicting("allkeys-lru").set("tenure.turn-budget-us", 5000));
        let highest = overshoot(&server);
        assert!(highest <= stock_highest.max(1.0) + 0.002, "{}: {highest}, stock {stock_highest}", binary.label);
        assert!(evicted_by_server(&stock) > 15_000);
        check_by_tenure(&server);
    }
}

#[test]
fn volatile_policies_take_only_keys_that_expire() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random"] {
        on_oldest_and_newest(&evicting(policy), |server| {
            let mut connection = server.connection().unwrap();
            config_set(&mut connection, "maxmemory", 1024 * MB);
            let mut kept = client(server, "kept:", 2000);
            // Nothing is ready to be evicted where no key expires.
            send::<()>(&mut connection, "SET short:first v EX 1000");
            wait_for_a_plan(server, &mut kept);
            write_all(&mut kept, 2000);
            limit_memory(server, 4 * MB);
            let evicted = EvictedKeys::of(server);
            let value = "v".repeat(1000);
            // A plan for the new limit may come late: until then the server evicts.
            let mut names = (0..).map(|i| format!("short:{i}"));
            wait_for("evictions by Tenure", || {
                let mut pipeline = redis::pipe();
                names.by_ref().take(50).for_each(|name| {
                    pipeline.cmd("SET").arg(name).arg(&value).arg("EX").arg(1000).ignore();
                });
                pipeline.exec(&mut connection).unwrap();
                evictions(server) > 1000.0
            });
            check_events(server, &evicted);
            assert!(evicted.all().iter().all(|(_, key)| key.starts_with(b"short:")), "{policy}");
            let there: u64 = (0..2000).map(|i| send::<u64>(&mut connection, &format!("EXISTS kept:{i}"))).sum();
            assert_eq!(there, 2000, "{policy}");
        });
    }
}

/// With only lasting keys a volatile policy has nothing to take, and the server refuses writes as it does without
/// Tenure.
#[test]
fn without_a_key_that_may_go_writes_are_refused() {
    for policy in ["noeviction", "volatile-lru"] {
        on_every_server(&evicting(policy), |server| {
            let mut connection = server.connection().unwrap();
            limit_memory(server, 4 * MB);
            let mut client = client(server, "k:", 1500);
            client.read_all();
            wait_for("a window", || info(server, "windows") >= 1.0);
            write_all(&mut client, 6000);
            let error = error_of(&mut connection, &format!("SET more {}", "v".repeat(100_000)));
            assert!(error.contains("OOM"), "{error}");
            assert_eq!((evictions(server), evicted_by_server(server)), (0.0, 0), "{policy}");
            assert_eq!(send::<u64>(&mut connection, "EXISTS k:0"), 1);
            if policy == "noeviction" {
                assert_eq!(status(&mut connection)["eviction"], "standing by: maxmemory-policy is noeviction");
            }
        });
    }
}

/// Under an LFU policy what is used often stays, however long ago.
#[test]
fn lfu_keeps_what_is_used_often() {
    // Time enough for a turn's evictions on a slow machine: this is about which keys go.
    on_oldest_and_newest(&evicting("allkeys-lfu").set("tenure.turn-budget-us", 5000), |server| {
        config_set(&mut server.connection().unwrap(), "maxmemory", 1024 * MB);
        let (mut hot, mut cold) = (client(server, "hot:", 1000), client(server, "cold:", 20_000));
        (0..60).for_each(|_| hot.read_all());
        wait_for_a_plan(server, &mut hot);
        limit_memory(server, 4 * MB);
        write_all(&mut cold, 20_000);
        let before = hot.misses;
        hot.read_all();
        assert!(hot.misses - before < 50, "{} of 1000 often used keys were evicted", hot.misses - before);
        check_by_tenure(server);
    });
}

#[test]
fn a_scanning_neighbour_does_not_push_a_tenant_below_its_minimum() {
    let options = evicting("allkeys-lru").set("tenure.tenants", "\"kept=k:*,min=4mb scan=s:*\"");
    on_oldest_and_newest(&options, |server| {
        config_set(&mut server.connection().unwrap(), "maxmemory", 1024 * MB);
        let (mut kept, mut scan) = (client(server, "k:", 2000), client(server, "s:", 30_000));
        kept.read_all();
        wait_for_a_plan(server, &mut scan);
        limit_memory(server, 5 * MB);
        wait_for("the minimum to be planned, and evictions by Tenure", || {
            scan.read_some(100);
            let kept = partition(&mut server.connection().unwrap(), "kept");
            kept["target_bytes"] >= 4.0 * MB as f64 && evictions(server) > 0.0
        });
        // Memory may have filled before Tenure looked: what the server took then is there again.
        kept.read_all();
        // Fifteen times what fits, while the kept keys are not asked for once.
        write_all(&mut scan, 30_000);
        let mut connection = server.connection().unwrap();
        let row = partition(&mut connection, "kept");
        assert!(row["used_bytes"] > 2.0 * MB as f64, "{row:?}");
        let before = kept.misses;
        kept.read_all();
        assert!(kept.misses - before <= 20, "{} of 2000 kept keys are gone: {row:?}", kept.misses - before);
        check_by_tenure(server);
    });
}

/// The scanning tenant's keys are few and large, and hard to find among many small ones.
#[test]
fn a_neighbour_of_few_large_keys_does_not_push_a_tenant_below_its_minimum() {
    let options = evicting("allkeys-lru").set("tenure.tenants", "\"kept=k:*,min=8mb scan=s:*\"");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "maxmemory", 1024 * MB);
        send::<()>(&mut connection, "DEBUG POPULATE 40000 k 50");
        let mut scan = CacheAside::new(server.connection().unwrap(), "s:", 3000, 40_000);
        wait_for("a plan", || {
            scan.read_some(5);
            status(&mut server.connection().unwrap())["eviction"] == "ready"
        });
        limit_memory(server, 4 * MB);
        wait_for("a plan for the limit", || {
            scan.read_some(1);
            evictions(server) > 0.0
        });
        let before = evicted_by_server(server);
        (0..150).for_each(|_| scan.read_some(5));
        let rows = partitions(&mut connection);
        assert!(rows["scan"]["evictions"] > 100.0, "{rows:?}");
        let by_server = evicted_by_server(server) - before;
        assert!(rows["kept"]["evictions"] < 40.0 && by_server < 40, "{by_server} by the server, {rows:?}");
    });
}

#[test]
fn a_tenant_above_its_maximum_shrinks_while_memory_is_free() {
    let options = evicting("allkeys-lru").set("tenure.tenants", "\"held=h:*,max=1mb free=f:*\"");
    on_oldest_and_newest(&options.set("maxmemory", "1gb"), |server| {
        let mut connection = server.connection().unwrap();
        let (mut held, mut free) = (client(server, "h:", 4000), client(server, "f:", 4000));
        free.read_all();
        wait_for_a_plan(server, &mut free);
        write_all(&mut held, 4000);
        wait_for("the tenant to shrink", || {
            held.write(&[0]);
            partition(&mut connection, "held")["used_bytes"] <= 1.02 * MB as f64
        });
        let bytes: u64 =
            (0..4000).filter_map(|i| send::<Option<u64>>(&mut connection, &format!("MEMORY USAGE h:{i}"))).sum();
        assert!((0.8..1.05).contains(&(bytes as f64 / MB as f64)), "{bytes} bytes are left");
        let rows = partitions(&mut connection);
        assert_eq!((rows["free"]["evictions"], evicted_by_server(server)), (0.0, 0), "{rows:?}");
        assert!(rows["free"]["used_bytes"] > 4.0 * MB as f64, "{rows:?}");
    });
}

/// The few keys of the tenant that has to give are hard to find among many others. Those others have nothing to do
/// with it.
#[test]
fn a_tenant_of_few_large_keys_above_its_maximum_costs_nobody_else_a_key() {
    let options = evicting("allkeys-lru").set("tenure.tenants", "\"held=h:*,max=1mb\"");
    on_oldest_and_newest(&options.set("maxmemory", "1gb"), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "DEBUG POPULATE 50000 key 50");
        let mut some = client(server, "key:", 100);
        wait_for_a_plan(server, &mut some);
        let value = "v".repeat(100_000);
        (0..40).for_each(|i| send(&mut connection, &format!("SET h:{i} {value}")));
        wait_for("the tenant to shrink", || {
            send::<()>(&mut connection, "PING");
            (0..40).map(|i| send::<u64>(&mut connection, &format!("EXISTS h:{i}"))).sum::<u64>() <= 12
        });
        let there: u64 = (0..40).map(|i| send::<u64>(&mut connection, &format!("EXISTS h:{i}"))).sum();
        assert!((7..=12).contains(&there), "{there} keys of 100 kB are left, of the 10 that fit");
        assert_eq!(partition(&mut connection, "other")["evictions"], 0.0);
        assert_eq!(evicted_by_server(server), 0);
    });
}

/// A tenant with a hundredth of the keys turns over fast. Found by walking, each of its victims would cost a hundred
/// visits.
#[test]
fn a_small_partition_gives_up_its_keys_without_a_search() {
    let options = evicting("allkeys-lru").set("tenure.tenants", "\"small=s:*,max=256kb\"");
    on_oldest_and_newest(&options.set("maxmemory", "1gb"), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "DEBUG POPULATE 20000 key 50");
        let mut some = client(server, "key:", 100);
        wait_for_a_plan(server, &mut some);
        let visited_before = info(server, "visited_keys");
        let mut small = client(server, "s:", 100_000);
        wait_for("the small tenant to turn over", || {
            small.read_some(20);
            evictions(server) > 2000.0
        });
        // The census goes on meanwhile, and comes round once.
        let visited = info(server, "visited_keys") - visited_before;
        assert!(visited < 60_000.0, "{visited} keys were visited for 2000 evictions");
        assert_eq!(partition(&mut connection, "other")["evictions"], 0.0);
    });
}

#[test]
fn the_limit_is_changed_at_run_time() {
    on_oldest_and_newest(&evicting("allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "maxmemory", 1024 * MB);
        let mut client = client(server, "k:", 8000);
        client.read_all();
        wait_for_a_plan(server, &mut client);
        assert_eq!(evictions(server), 0.0);
        let full = used_memory(server);
        for limit in [full - 2 * MB, full - 4 * MB] {
            config_set(&mut connection, "maxmemory", limit);
            wait_for("memory to shrink", || used_memory(server) <= limit);
            client.read_some(1000);
            wait_for_limit(&mut connection, limit);
        }
        wait_for("Tenure to evict", || {
            client.read_some(200);
            evictions(server) > 100.0
        });
        config_set(&mut connection, "maxmemory", 2 * full);
        wait_for_limit(&mut connection, 2 * full);
        let before = evictions(server) + evicted_by_server(server) as f64;
        client.read_all();
        assert!(used_memory(server) > full - MB, "what was evicted is back");
        assert_eq!(evictions(server) + evicted_by_server(server) as f64, before);
    });
}

/// The table of keys is a share of the limit: under a lower one it makes room, not the keys.
#[test]
fn what_tenure_held_for_a_higher_limit_is_no_reason_to_evict() {
    on_oldest_and_newest(&with_module().set("maxmemory-policy", "allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "maxmemory", 4096 * MB);
        send::<()>(&mut connection, "DEBUG POPULATE 30000 k 1000");
        wait_for("a table for that limit", || info(server, "memory_bytes") > 60.0 * MB as f64);
        let limit = used_memory(server) - 50 * MB;
        config_set(&mut connection, "maxmemory", limit);
        wait_for_limit(&mut connection, limit);
        wait_for("memory to shrink", || used_memory(server) <= limit);
        let left: u64 = send(&mut connection, "DBSIZE");
        assert!(left > 20_000, "{left} of 30,000 keys are left");
    });
}

#[test]
fn with_its_policy_off_the_server_evicts_and_with_lru_no_plan_is_needed() {
    on_oldest_and_newest(&evicting("allkeys-lru").set("tenure.policy", "off"), |server| {
        let mut connection = server.connection().unwrap();
        let mut client = client(server, "k:", 8000);
        limit_memory(server, 4 * MB);
        client.read_all();
        assert_eq!(status(&mut connection)["eviction"], "standing by: tenure.policy is off");
        assert_eq!(evictions(server), 0.0);
        let by_server = evicted_by_server(server);
        assert!(by_server > 2000, "{by_server}");
        config_set(&mut connection, "tenure.policy", "lru");
        wait_for("Tenure to evict", || {
            client.read_some(50);
            evictions(server) > 4000.0
        });
        let more = evicted_by_server(server) - by_server;
        assert!((more as f64) < 0.2 * evictions(server), "{more} by the server");
    });
}

#[test]
fn many_databases_are_evicted_from_each_by_its_target() {
    on_oldest_and_newest(&evicting("allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        let client = |db| CacheAside::new(connection_to(server, db), "k:", 600, 1000);
        let mut clients: Vec<CacheAside> = (0..16).map(client).collect();
        config_set(&mut connection, "maxmemory", 1024 * MB);
        clients.iter_mut().for_each(CacheAside::read_all);
        wait_for_a_plan(server, &mut clients[0]);
        // One database was read after the other, and the longest idle go: all keys of the first, then of the next. Now
        // there are old and young ones in each.
        (0..20).for_each(|_| clients.iter_mut().for_each(|client| client.read_some(100)));
        let evicted = EvictedKeys::of(server);
        // 16 × 600 × 1.1 kB, of which a third has to go.
        let limit = used_memory(server) - 7 * MB / 2;
        config_set(&mut connection, "maxmemory", limit);
        wait_for("every database to be evicted from", || {
            clients.iter_mut().for_each(|client| client.read_some(100));
            evictions(server) > 2000.0
        });
        let dbs: HashSet<u16> = evicted.all().iter().map(|(db, _)| *db).collect();
        assert!(dbs.len() >= 12, "evicted from {dbs:?}");
        // Evictions may still be under way, so both sides are asked anew each time.
        wait_for("the keys of every database to be counted", || {
            partitions(&mut connection).iter().all(|(name, row)| {
                let db = name.strip_prefix("db").unwrap().parse().unwrap();
                row["keys"] == send::<u64>(&mut connection_to(server, db), "DBSIZE") as f64
            })
        });
        check_events(server, &evicted);
    });
}

/// While another server writes its keys into this one none goes, as with the server alone; then they do, and count.
#[test]
fn in_import_mode_nothing_is_evicted() {
    on_every_server(&with_module().set("maxmemory-policy", "allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        let known: Vec<String> = send(&mut connection, "CONFIG GET import-mode");
        if known.is_empty() {
            return;
        }
        config_set(&mut connection, "import-mode", "yes");
        write_all(&mut client(server, "k:", 5000), 5000);
        config_set(&mut connection, "maxmemory", used_memory(server) / 2);
        wait_for("Tenure to stand by", || status(&mut connection)["eviction"] == "standing by: import-mode is on");
        let visited = info(server, "visited_keys");
        wait_for("more ticks", || info(server, "visited_keys") > visited + 100.0);
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), 5000);
        config_set(&mut connection, "import-mode", "no");
        wait_for("keys to go", || send::<u64>(&mut connection, "DBSIZE") < 4000);
        wait_for("both to add up", || {
            let all = info(server, "evictions_and_servers");
            all > 0.0 && all == evictions(server) + evicted_by_server(server) as f64
        });
    });
}

/// A slice ends with the key at work when its time is up, and the server evicts the rest. How long one slice takes is
/// no measure: machines pause programs.
#[test]
fn slices_keep_to_their_budget() {
    on_oldest_and_newest(&evicting("allkeys-lru").set("tenure.turn-budget-us", 50), |server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "maxmemory", 1024 * MB);
        let mut client = client(server, "k:", 20_000);
        wait_for_a_plan(server, &mut client);
        limit_memory(server, 4 * MB);
        let evicted_before = evicted_by_server(server);
        // A script's writes are all in one turn.
        let script = "for i = ARGV[1], ARGV[1] + 499 do redis.call('SET', 'k:' .. i, string.rep('v', 1000)) end";
        for first in (0..60_000).step_by(500) {
            redis::cmd("EVAL").arg(script).arg(0).arg(first).exec(&mut connection).unwrap();
        }
        assert!(info(server, "eviction_slices_out_of_time") > 0.0, "500 writes a turn need more than 50 µs");
        let (spent, n) = (info(server, "eviction_us"), evictions(server));
        assert!(n > 500.0 && spent / n < 200.0, "{spent} µs for {n} evictions");
        assert!(evicted_by_server(server) > evicted_before, "what Tenure has no time for, the server does");
    });
}

/// While a child saves, keys go where the next turn needs their room, and not to have more of it: each has the kernel
/// copy pages that the child shares.
#[test]
fn no_room_is_made_ahead_while_a_child_saves() {
    let options = evicting_in_time().set("tenure.headroom-bytes", MB).set("rdb-key-save-delay", 20_000);
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 12 * MB);
        let mut client = client(server, "k:", 20_000);
        wait_for("evictions by Tenure", || {
            client.read_some(1000);
            evictions(server) > 5000.0
        });
        let mut evicted = 0.0;
        wait_for("all the room to be made", || std::mem::replace(&mut evicted, evictions(server)) == evictions(server));
        send::<()>(&mut connection, "BGSAVE");
        let before = evictions(server);
        config_set(&mut connection, "tenure.headroom-bytes", 16 * MB / 10);
        // So many keys take the child minutes. Ten times a second Tenure looks whether there is room.
        let began = info(server, "uptime_seconds");
        wait_for("ten looks", || {
            let all: String = send(&mut connection, "INFO everything");
            assert!(all.contains("rdb_bgsave_in_progress:1"), "the child ends before it is asked to");
            assert!(all.contains(&format!("\ntenure_evictions:{before}\r")), "more than {before} while a child saves");
            info(server, "uptime_seconds") > began + 1.0
        });
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
        let killed = Command::new("sh").arg("-c").arg(format!("kill -9 {children}")).status().unwrap();
        assert!(killed.success(), "{children}");
        wait_for("more room", || evictions(server) > before + 100.0);
    });
}

/// Clients that have a limit of their own are closed for what they take above it, and keys make no room for what they
/// take below, as where the server is alone.
#[test]
fn keys_are_spared_for_buffers_of_clients_with_a_limit() {
    on_oldest_and_newest(&with_module().set("maxmemory-policy", "allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        client(server, "k:", 8000).read_all();
        redis::cmd("SET").arg("large").arg(vec![b'v'; 100_000]).exec(&mut connection).unwrap();
        config_set(&mut connection, "maxmemory-clients", 2 * MB);
        let keys: u64 = send(&mut connection, "DBSIZE");
        limit_memory(server, 5 * MB / 2);
        let closed = || server.info("stats").unwrap()["evicted_clients"].parse::<u64>().unwrap();
        let mut greedy = Vec::new();
        wait_for("a client to be closed", || {
            // Each asks for more than all may have, and reads none of it.
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
            _ = stream.write_all("GET large\r\n".repeat(60).as_bytes());
            greedy.push(stream);
            closed() > 0
        });
        // As many turns as it takes to evict, were anything to go.
        (0..200).for_each(|_| drop(send::<String>(&mut connection, "PING")));
        assert_eq!((evictions(server), evicted_by_server(server)), (0.0, 0));
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), keys);
    });
}

/// What replicas haven't read yet is on no key's account, as where the server is alone.
#[test]
fn keys_are_spared_for_buffers_of_replicas() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("repl-backlog-size", 16384);
    on_oldest_and_newest(&options.set("repl-diskless-sync", "no"), |server| {
        let mut connection = server.connection().unwrap();
        client(server, "k:", 8000).read_all();
        let value = vec![b'v'; 10_000];
        let mut write = || redis::cmd("SET").arg("again").arg(&value).exec(&mut connection).unwrap();
        write();
        limit_memory(server, 2 * MB);
        let mut replica = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        replica.write_all(b"SYNC\r\n").unwrap();
        let field = |name: &str| server.info("memory").unwrap()[name].parse::<u64>().unwrap();
        wait_for("its buffer to grow", || {
            write();
            field("used_memory") > field("maxmemory") + MB
        });
        assert!(field("mem_not_counted_for_evict") > MB);
        assert_eq!((evictions(server), evicted_by_server(server)), (0.0, 0));
    });
}

#[test]
fn a_cluster_node_is_watched_and_evicted_from() {
    on_oldest_and_newest(&evicting("allkeys-lru").set("cluster-enabled", "yes"), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "CLUSTER ADDSLOTSRANGE 0 16383");
        wait_for("the cluster", || send::<String>(&mut connection, "CLUSTER INFO").contains("cluster_state:ok"));
        limit_memory(server, 4 * MB);
        let evicted = EvictedKeys::of(server);
        let mut client = client(server, "k:", 8000);
        wait_for("Tenure to evict", || {
            client.read_some(100);
            evictions(server) > 1000.0
        });
        check_events(server, &evicted);
        let row = partition(&mut connection, "db0");
        assert_eq!((row["reads"], row["misses"]), (client.reads as f64, client.misses as f64));
        // Evictions may still be under way, so both sides are asked anew each time.
        wait_for("the keys to be counted", || {
            let keys: u64 = send(&mut connection, "DBSIZE");
            partition(&mut connection, "db0")["keys"] == keys as f64
        });
    });
}

/// As of an eviction of the server's: rounds go on until one has passed in which it made none.
#[test]
fn who_watches_or_tracks_a_key_hears_of_its_eviction() {
    on_oldest_and_newest(&evicting_in_time(), |server| {
        let (mut tracker, mut watcher, mut told) =
            (server.connection().unwrap(), server.connection().unwrap(), server.connection().unwrap());
        let id: i64 = send(&mut told, "CLIENT ID");
        send::<()>(&mut tracker, &format!("CLIENT TRACKING ON REDIRECT {id}"));
        let mut told = told.as_pubsub();
        told.subscribe("__redis__:invalidate").unwrap();
        limit_memory(server, 4 * MB);
        let evicted = EvictedKeys::of(server);
        let mut client = client(server, "c:", 8000);
        let mut round = 0;
        wait_for("a round of Tenure's evictions alone", || {
            round += 1;
            let (key, before) = (format!("watched:{round}"), evicted_by_server(server));
            send::<()>(&mut watcher, &format!("SET {key} {}", "v".repeat(1000)));
            send::<Option<String>>(&mut tracker, &format!("GET {key}"));
            send::<()>(&mut watcher, &format!("WATCH {key}"));
            wait_for("the key to be evicted", || {
                client.read_some(200);
                evicted.all().contains(&(0, key.clone().into_bytes()))
            });
            assert_eq!(told.get_message().unwrap().get_payload::<Vec<String>>().unwrap(), [key]);
            let ran: Option<Vec<String>> = redis::pipe().atomic().cmd("PING").query(&mut watcher).unwrap();
            assert_eq!(ran, None, "what it watched has gone");
            evictions(server) > 0.0 && evicted_by_server(server) == before
        });
    });
}
