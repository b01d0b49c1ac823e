//! Tenants that appear by themselves: who they are, that the account follows, and that they stay.

use std::collections::{BTreeMap, BTreeSet};

use redis::Connection;
use tenure_servers::{Cluster, Server, ServerOptions};

use crate::accounting::{Held, TOLERANCE, add_strings, check_held, count};
use crate::harness::{
    CacheAside, Row, config_get, config_set, error_of, info, limit_memory, oldest_and_newest, on_oldest_and_newest,
    partition, partitions, send, status, wait_for, with_module,
};

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
        let options = with_delimiter().set("cluster-node-timeout", 2000);
        let cluster = Cluster::start(&binary, &options, 3, 1).unwrap_or_else(|why| panic!("{why:#}"));
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
