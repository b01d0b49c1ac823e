//! Tenants that appear by themselves: who they are, that the account follows, and that they stay.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;
use tempfile::TempDir;
use tenure_servers::{Cluster, Server, ServerOptions};

use crate::accounting::{Held, TOLERANCE, add_strings, check_held, count};
use crate::harness::{
    CacheAside, Row, config_get, config_set, connection_to, error_of, info, limit_memory, oldest_and_newest,
    on_oldest_and_newest, partition, partitions, send, start, status, wait_for, with_module,
};
use crate::sleep::{sleeping_in, two};
use crate::tiers::{move_to, tier_of, wait_until_ready, with_tiers};

const MB: u64 = 1 << 20;

fn with_delimiter() -> ServerOptions {
    with_module().set("tenure.auto-tenants-delimiter", ":")
}

/// One access to one key of each of these first parts, `n` times.
fn access(connection: &mut Connection, parts: impl Iterator<Item = String> + Clone, n: usize) {
    for i in 0..n {
        let mut pipeline = redis::pipe();
        parts.clone().for_each(|part| _ = pipeline.cmd("SET").arg(format!("{part}:{}", i % 7)).arg("v").ignore());
        pipeline.exec(connection).unwrap();
    }
}

fn names(connection: &mut Connection) -> BTreeSet<String> {
    partitions(connection).into_keys().collect()
}

/// Who of `named` is none yet is accessed until all are.
#[track_caller]
fn wait_for_tenants(connection: &mut Connection, named: &[&str]) {
    wait_for("tenants to appear", || {
        let held = names(connection);
        named.iter().all(|name| held.contains(*name)) || {
            let parts = named.iter().filter_map(|name| name.strip_suffix('*')).map(str::to_owned);
            access(connection, parts, 20);
            false
        }
    });
}

fn by_first_part(key: &str) -> String {
    key.split_once(':').map_or("other".to_owned(), |(part, _)| match part {
        "shop" => "shop".to_owned(),
        part => format!("{part}*"),
    })
}

#[track_caller]
fn check(server: &Server, what: &str) {
    let mut connection = server.connection().unwrap();
    let mut held = Held::new();
    count(&mut connection, &mut held, by_first_part);
    check_held(server, &mut connection, &held, what);
}

/// Keys that were there before, those that come by scripts and transactions, with a named tenant beside them, under
/// each kind of policy; then the setting changes while the server runs, and is kept by `CONFIG REWRITE`.
#[test]
fn first_parts_of_keys_become_tenants_and_the_account_follows() {
    for policy in ["density", "predis", "kredis"] {
        let options = with_delimiter().set("tenure.policy", policy).set("tenure.tenants", "\"shop=shop:*,min=1mb\"");
        on_oldest_and_newest(&options, |server| {
            let mut connection = server.connection().unwrap();
            add_strings(&mut connection, "shop:", 2000, 100.0);
            add_strings(&mut connection, "session:", 3000, 300.0);
            add_strings(&mut connection, "report:", 500, 3000.0);
            add_strings(&mut connection, "plain", 500, 500.0);
            let script = "for i = 1, 600 do redis.call('SET', KEYS[1] .. i, string.rep('v', 400)) end";
            redis::cmd("EVAL").arg(script).arg(1).arg("script:").exec(&mut connection).unwrap();
            let mut pipeline = redis::pipe();
            pipeline.atomic();
            (0..400).for_each(|i| _ = pipeline.cmd("SET").arg(format!("multi:{i}")).arg("v".repeat(500)).ignore());
            pipeline.exec(&mut connection).unwrap();
            wait_for_tenants(&mut connection, &["session*", "report*", "script*", "multi*"]);
            let expected = ["multi*", "other", "report*", "script*", "session*", "shop"];
            assert_eq!(names(&mut connection), BTreeSet::from(expected.map(str::to_owned)));
            check(server, policy);
            assert_eq!(status(&mut connection)["auto_tenants"], "4");
            let fields = server.info("tenure").unwrap();
            assert!(fields["tenure_tenant_session*"].contains("keys="), "{fields:?}");
            let rows: Vec<BTreeMap<String, redis::Value>> = send(&mut connection, "TENURE.TENANTS");
            assert_eq!(rows.len(), 6);

            config_set(&mut connection, "tenure.auto-tenants-delimiter", "");
            wait_for("named ones alone", || names(&mut connection).len() == 2);
            config_set(&mut connection, "tenure.auto-tenants-delimiter", "on:");
            send::<()>(&mut connection, "CONFIG REWRITE");
            assert_eq!(config_get(&mut connection, "tenure.auto-tenants-delimiter"), "on:");
            wait_for_tenants_by(&mut connection, "session:", "sessi*");
        });
    }
}

#[track_caller]
fn wait_for_tenants_by(connection: &mut Connection, key: &str, name: &str) {
    wait_for("a tenant to appear", || {
        (0..100).for_each(|i| send::<()>(connection, &format!("SET {key}{i} v")));
        names(connection).contains(name)
    });
}

#[test]
fn the_setting_is_kept_and_wrong_ones_are_refused() {
    on_oldest_and_newest(&with_delimiter(), |server| {
        let mut connection = server.connection().unwrap();
        let error = error_of(&mut connection, "CONFIG SET tenure.auto-tenants-delimiter 123456789");
        assert!(error.contains("delimiter of 9 bytes; allowed are 1 to 8"), "{error}");
        config_set(&mut connection, "tenure.auto-tenants-delimiter", "::");
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        assert_eq!(config_get(&mut connection, "tenure.auto-tenants-delimiter"), "::");
        wait_for_tenants_by(&mut connection, "shop::", "shop*");
    });
}

/// 70 first parts are accessed alike, then 64 are tenants and stay it. Others that are accessed far more take places;
/// their counters begin anew, and the account follows them too.
#[test]
fn those_that_are_accessed_most_are_tenants_and_stay_it() {
    on_oldest_and_newest(&with_delimiter(), |server| {
        let mut connection = server.connection().unwrap();
        let alike = (0..70).map(|i| format!("alike{i}"));
        wait_for("all places to be taken", || {
            access(&mut connection, alike.clone(), 10);
            names(&mut connection).len() == 65
        });
        let before = names(&mut connection);
        let windows = info(server, "windows");
        wait_for("ten windows", || {
            access(&mut connection, alike.clone(), 10);
            info(server, "windows") >= windows + 10.0
        });
        assert_eq!(names(&mut connection), before, "nobody is accessed twice as much as another");
        assert_eq!(info(server, "auto_tenants_replaced"), 0.0);

        let busy = (0..5).map(|i| format!("busy{i}"));
        wait_for("the busy to take places", || {
            access(&mut connection, busy.clone(), 50);
            names(&mut connection).iter().filter(|name| name.starts_with("busy")).count() == 5
        });
        let replaced = info(server, "auto_tenants_replaced");
        assert_eq!((replaced, names(&mut connection).len()), (5.0, 65));
        add_strings(&mut connection, "busy3:more", 2000, 300.0);
        check_some(server, |key| by_first_part(key).starts_with("busy"));
        let fields = server.info("tenure").unwrap();
        assert!(fields["tenure_reads"].parse::<u64>().is_ok() && fields["tenure_writes"] != "0");
    });
}

/// As [`check`], of those keys whose tenants are there.
#[track_caller]
fn check_some(server: &Server, is_meant: impl Fn(&str) -> bool) {
    let mut connection = server.connection().unwrap();
    let mut held = Held::new();
    count(&mut connection, &mut held, |key| if is_meant(key) { by_first_part(key) } else { "rest".to_owned() });
    held.remove("rest");
    // A handful of keys are one key more or less.
    held.retain(|_, (keys, _)| *keys > 100);
    assert!(!held.is_empty());
    check_held(server, &mut connection, &held, "after others took places");
}

/// Two tenants in a full cache: both are evicted from, are accounted as what they hold, and misses are theirs.
#[test]
fn in_a_full_cache_what_they_hold_is_known() {
    for policy in ["density", "predis"] {
        let options = with_delimiter().set("maxmemory-policy", "allkeys-lru").set("tenure.policy", policy);
        on_oldest_and_newest(&options, |server| {
            let mut connection = server.connection().unwrap();
            wait_for_tenants(&mut connection, &["a*", "b*"]);
            limit_memory(server, 8 * MB);
            let reader = |prefix, keys| CacheAside::new(server.connection().unwrap(), prefix, keys, 1000);
            let (mut a, mut b) = (reader("a:", 6000), reader("b:", 6000));
            let of = |row: &Row, name| row[name];
            wait_for("both to be evicted from, and known", || {
                a.read_some(1000);
                b.read_some(1000);
                let rows = partitions(&mut connection);
                let mut held = Held::new();
                count(&mut server.connection().unwrap(), &mut held, by_first_part);
                ["a*", "b*"].into_iter().all(|name| {
                    let row = &rows[name];
                    let bytes = held.get(name).map_or(0.0, |(_, bytes)| *bytes as f64);
                    of(row, "evictions") > 100.0
                        && of(row, "misses") > 1000.0
                        && (of(row, "used_bytes") / bytes - 1.0).abs() <= 2.0 * TOLERANCE
                })
            });
            assert!(status(&mut connection)["eviction"].starts_with("ready"), "{:?}", status(&mut connection));
        });
    }
}

/// What follows a primary in a cluster has its tenants, though it sees none of their reads.
#[test]
fn a_replica_in_a_cluster_has_its_primarys_tenants() {
    for binary in oldest_and_newest() {
        println!("on {}", binary.label);
        let cluster = Cluster::start(&binary, &with_delimiter(), 3, 1).unwrap_or_else(|why| panic!("{why:#}"));
        let (primary, replica) = (&cluster.nodes()[0], &cluster.nodes()[3]);
        let own = primary.own_slots().unwrap();
        let slot = |tag: &String| primary.call::<u16>(&["CLUSTER", "KEYSLOT", tag]).unwrap();
        let tags: Vec<String> =
            (0..).map(|n| format!("{{t{n}}}")).filter(|tag| own.contains(&slot(tag))).take(3).collect();
        let mut connection = primary.connection().unwrap();
        let mut of_replica = replica.connection().unwrap();
        let expected: BTreeSet<String> = tags.iter().map(|tag| format!("{tag}*")).collect();
        wait_for("the replica to have its primary's tenants", || {
            for tag in &tags {
                (0..200).for_each(|i| _ = send::<Option<String>>(&mut connection, &format!("GET {tag}:{i}")));
            }
            let held = names(&mut of_replica);
            expected.iter().all(|name| held.contains(name))
        });
        assert_eq!(partition(&mut of_replica, &format!("{}*", tags[0]))["reads"], 0.0);
    }
}

/// Keys of each tenant whatever their class, as the server counts them and as the account does. First parts that are
/// no tenants are of `other`.
#[track_caller]
fn check_keys_by_tenant(server: &Server, what: &str) {
    let mut connection = server.connection().unwrap();
    let names = names(&mut connection);
    let tenants: BTreeSet<&str> = names.iter().filter_map(|name| name.split('/').next()).collect();
    let mut wrong: Vec<String> = Vec::new();
    let agrees = || {
        // Some may go meanwhile.
        let mut held = Held::new();
        count(&mut connection, &mut held, |key| {
            let tenant = by_first_part(key);
            if tenants.contains(tenant.as_str()) { tenant } else { "other".to_owned() }
        });
        let mut accounted: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (name, row) in partitions(&mut connection) {
            let tenant = name.split('/').next().unwrap().to_owned();
            let sum = accounted.entry(tenant).or_default();
            *sum = (sum.0 + row["keys"], sum.1 + row["used_bytes"]);
        }
        let is_wrong = |(tenant, (keys, bytes)): (&String, &(u64, u64))| {
            let own = accounted.get(tenant).copied().unwrap_or_default();
            let is_close = |own: f64, counted: u64| (own / counted as f64 - 1.0).abs() <= 2.0 * TOLERANCE;
            // The account is right to a share of all; of a handful of keys that may be all.
            let is_right = *keys <= 100 || (is_close(own.0, *keys) && is_close(own.1, *bytes));
            (!is_right).then(|| format!("{tenant}: {own:?} of {:?}", (keys, bytes)))
        };
        wrong = held.iter().filter_map(is_wrong).collect();
        wrong.is_empty()
    };
    let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "agreement", agrees);
    assert!(waited.is_ok(), "{what}: {wrong:?}");
}

/// With classes of penalty beside: each tenant has its own, and those of one that takes another's place are its own
/// too.
#[test]
fn they_are_divided_by_classes() {
    for policy in ["density", "kredis"] {
        let options = with_delimiter()
            .set("maxmemory-policy", "allkeys-lru")
            .set("tenure.policy", policy)
            .set("tenure.classes", "auto")
            .set("tenure.class-limits", "10000");
        on_oldest_and_newest(&options, |server| {
            let mut connection = server.connection().unwrap();
            // All 6,000 values and what Tenure takes need some 12 MB.
            limit_memory(server, 8 * MB);
            wait_for_tenants(&mut connection, &["a*", "b*"]);
            let reader = |prefix, keys| CacheAside::new(server.connection().unwrap(), prefix, keys, 0).with_sizes();
            let far = std::time::Duration::from_millis(40);
            let (mut a, mut b) = (reader("a:", 3000), reader("b:", 3000).with_backend(far));
            wait_for("tenants to be divided", || {
                a.read_some(100);
                b.read_some(100);
                let names = names(&mut connection);
                let is_full = info(server, "evictions") > 1000.0;
                is_full && ["a*/0-10000us", "b*/10000us+"].iter().all(|name| names.contains(*name))
            });
            check_keys_by_tenant(server, policy);
            // All places are asked for.
            let many = (0..64).map(|i| format!("many{i}"));
            wait_for("others to take places", || {
                access(&mut connection, many.clone(), 20);
                names(&mut connection).iter().filter(|name| name.starts_with("many")).count() > 60
            });
            check_keys_by_tenant(server, "after others came");
        });
    }
}

/// Values in slow memory before their first part is a tenant, and after it is none any more: they stay where they
/// are, and are what they were. Those that are accessed meanwhile are others, since who is read moves up.
#[test]
fn values_in_slow_memory_stay_there_as_their_tenants_come_and_go() {
    let options = with_tiers("anon").set("tenure.auto-tenants-delimiter", ":");
    on_oldest_and_newest(&options, |server| {
        wait_until_ready(server);
        let mut connection = server.connection().unwrap();
        let value = "v".repeat(1000);
        (0..500).for_each(|i| send::<()>(&mut connection, &format!("SET slow:{i} {value}{i}")));
        (0..500).for_each(|i| assert_eq!(move_to(&mut connection, &format!("slow:{i}"), "slow"), "moved"));
        let check = |connection: &mut Connection, what: &str| {
            assert_eq!(info(server, "tier_slow_values"), 500.0, "{what}");
            assert_eq!(tier_of(connection, "slow:7"), "slow", "{what}");
            check_some(server, |key| key.starts_with("slow:"));
            assert_eq!(info(server, "tier_slow_values"), 500.0, "{what}");
        };
        wait_for("a tenant to appear", || {
            (0..500).for_each(|i| _ = send::<usize>(&mut connection, &format!("EXISTS slow:none{i}")));
            names(&mut connection).contains("slow*")
        });
        check(&mut connection, "a tenant");
        let many = (0..64).map(|i| format!("many{i}"));
        wait_for("others to take its place", || {
            access(&mut connection, many.clone(), 20);
            !names(&mut connection).contains("slow*")
        });
        assert_eq!(info(server, "tier_slow_values"), 500.0);
        for i in 0..500 {
            assert_eq!(send::<String>(&mut connection, &format!("GET slow:{i}")), format!("{value}{i}"));
        }
        let digest: Vec<String> = send(&mut connection, "DEBUG DIGEST-VALUE slow:7");
        move_to(&mut connection, "slow:7", "fast");
        assert_eq!(send::<Vec<String>>(&mut connection, "DEBUG DIGEST-VALUE slow:7"), digest);
    });
}

/// One of two falls asleep, its place is taken while its values sleep, and all of them are read as they were.
#[test]
fn values_that_sleep_are_read_whoever_has_their_tenants_place() {
    for binary in two() {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let options = sleeping_in(folder.path()).set("tenure.auto-tenants-delimiter", ":");
        let server = start(&binary, &options);
        let mut connection = server.connection().unwrap();
        wait_for_tenants(&mut connection, &["a*", "b*"]);
        for i in 0..500 {
            send::<()>(&mut connection, &format!("SET a:{i} of-a-{i}"));
            send::<()>(&mut connection, &format!("SET b:{i} of-b-{i}"));
        }
        check(&server, "before one sleeps");
        send::<()>(&mut connection, "TENURE.SLEEP a*");
        wait_for("one to sleep", || partition(&mut connection, "a*")["keys"] == 0.0);
        assert_eq!((info(&server, "sleeping_keys"), send::<u64>(&mut connection, "DBSIZE")), (500.0, 500));
        let many = (0..64).map(|i| format!("many{i}"));
        wait_for("others to take its place", || {
            access(&mut connection, many.clone(), 20);
            (0..200).for_each(|i| _ = send::<Option<String>>(&mut connection, &format!("GET b:{i}")));
            !names(&mut connection).contains("a*")
        });
        assert_eq!(info(&server, "sleeping_keys"), 500.0);
        for i in 0..500 {
            let both: Vec<String> = send(&mut connection, &format!("MGET a:{i} b:{i}"));
            assert_eq!(both, [format!("of-a-{i}"), format!("of-b-{i}")]);
        }
        assert_eq!((info(&server, "sleeping_keys"), info(&server, "spill_damaged")), (0.0, 0.0));
        check_keys_by_tenant(&server, "all awake");
    }
}

/// Accesses by scripts and transactions alone, in several databases, make tenants; a transaction that names none of
/// its keys' owners beforehand (Redis 7.0 tells a filter no database) as well.
#[test]
fn scripts_and_transactions_in_any_database_count() {
    on_oldest_and_newest(&with_delimiter(), |server| {
        let mut connections = [0, 3, 9].map(|db| connection_to(server, db));
        let script = "for i = 1, 50 do redis.call('SET', 'script:' .. i, 'v') redis.call('GET', KEYS[1]) end";
        wait_for("tenants to appear", || {
            for connection in &mut connections {
                redis::cmd("EVAL").arg(script).arg(1).arg("inscript:1").exec(connection).unwrap();
                let mut pipeline = redis::pipe();
                pipeline.atomic();
                (0..50).for_each(|i| _ = pipeline.cmd("SET").arg(format!("multi:{i}")).arg("v").ignore());
                pipeline.cmd("MGET").arg("many:1").arg("many:2").arg("many:3").ignore();
                pipeline.exec(connection).unwrap();
            }
            let held = names(&mut connections[0]);
            ["script*", "inscript*", "multi*", "many*"].iter().all(|name| held.contains(*name))
        });
        wait_for("their keys to be theirs", || {
            let rows = partitions(&mut connections[0]);
            rows["script*"]["keys"] == 150.0 && rows["multi*"]["keys"] == 150.0 && rows["other"]["keys"] == 0.0
        });
    });
}

/// A replica without a cluster has its primary's tenants, keeps account of them, and goes on as a primary.
#[test]
fn a_replica_that_takes_over_has_them_and_goes_on() {
    for binary in oldest_and_newest() {
        println!("on {}", binary.label);
        let (primary, replica) = (start(&binary, &with_delimiter()), start(&binary, &with_delimiter()));
        replica.replica_of(&primary).unwrap();
        let mut connection = primary.connection().unwrap();
        add_strings(&mut connection, "a:", 1000, 300.0);
        add_strings(&mut connection, "b:", 500, 1000.0);
        wait_for_tenants(&mut connection, &["a*", "b*"]);
        let mut of_replica = replica.connection().unwrap();
        wait_for("the replica to have them, and one that is only read", || {
            for i in 0..100 {
                let found: Vec<Option<String>> = send(&mut connection, &format!("MGET a:x{i} b:x{i} read:{i}"));
                assert_eq!(found, [None, None, None]);
            }
            let held = names(&mut of_replica);
            ["a*", "b*", "read*"].iter().all(|name| held.contains(*name))
        });
        check(&replica, "of the replica");
        send::<()>(&mut of_replica, "REPLICAOF NO ONE");
        wait_for_tenants(&mut of_replica, &["c*"]);
        let held = names(&mut of_replica);
        assert!(["a*", "b*"].iter().all(|name| held.contains(*name)), "{held:?}");
        check(&replica, "of who has taken over");
    }
}
