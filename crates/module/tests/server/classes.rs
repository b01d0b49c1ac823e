//! Miss-penalty classes, measured and hinted, and the hyperbolic policies that use what is remembered of single keys.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Connection;
use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    CacheAside, config_get, config_set, error_of, evicted_by_server, info, limit_memory, on_every_server,
    on_oldest_and_newest, partition, partitions, send, status, wait_for, with_module,
};

const MB: u64 = 1 << 20;

/// Two classes, far apart, so that a busy machine confuses none.
fn auto() -> ServerOptions {
    with_module().set("tenure.classes", "auto").set("tenure.class-limits", "10000")
}

/// The same where each key is missed once, so that none may be confused though a busy machine stops for 100 ms.
fn auto_of_one_miss() -> ServerOptions {
    with_module().set("tenure.classes", "auto").set("tenure.class-limits", "200000")
}

const NEAR: Duration = Duration::from_micros(500);
const FAR: Duration = Duration::from_millis(40);
const FARTHER: Duration = Duration::from_millis(400);

fn client(server: &Server, prefix: &'static str, keys: u64) -> CacheAside {
    CacheAside::new(server.connection().unwrap(), prefix, keys, 1000)
}

fn class_of(connection: &mut Connection, key: &str) -> String {
    let answer: BTreeMap<String, String> = send(connection, &format!("TENURE.CLASS GET {key}"));
    answer["class"].clone()
}

/// The keys of all partitions are those of the server.
#[track_caller]
fn check_keys(connection: &mut Connection) {
    wait_for("all keys to be accounted for", || {
        let there: u64 = send(connection, "DBSIZE");
        partitions(connection).values().map(|row| row["keys"]).sum::<f64>() == there as f64
    });
}

/// Nobody said who is who: one database, no tenants. Keys from the slow backend keep more of the memory.
#[test]
fn measured_classes_divide_a_tenants_memory() {
    let options = auto().set("tenure.policy", "predis").set("maxmemory-policy", "allkeys-lru");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 9 * MB / 2);
        let (mut near, mut far) = (client(server, "n:", 4000), client(server, "f:", 4000));
        (near, far) = (near.with_backend(NEAR), far.with_backend(FAR));
        let mut seen = String::new();
        let is_settled = || {
            near.read_some(200);
            far.read_some(200);
            let rows = partitions(&mut connection);
            seen = format!("{rows:?}");
            let (Some(n), Some(f)) = (rows.get("db0/0-10000us"), rows.get("db0/10000us+")) else { return false };
            let sum = n["used_bytes"] + f["used_bytes"];
            let is_held = |row: &crate::harness::Row| (row["used_bytes"] - row["target_bytes"]).abs() / sum < 0.05;
            let has_begun = info(server, "evictions") > 0.0;
            has_begun && f["used_bytes"] > 2.0 * n["used_bytes"] && is_held(n) && is_held(f)
        };
        let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "the plan to be carried out", is_settled);
        assert!(waited.is_ok(), "{waited:?}: {seen}");
        check_keys(&mut connection);
        assert!(info(server, "evictions") > 9.0 * evicted_by_server(server) as f64);
    });
}

#[test]
fn a_class_is_remembered_after_the_key_has_gone_and_tenants_have_their_own() {
    on_every_server(&auto_of_one_miss().set("tenure.tenants", "a=a:*"), |server| {
        let mut connection = server.connection().unwrap();
        client(server, "a:", 20).with_backend(FARTHER).read_all();
        client(server, "b:", 20).with_backend(Duration::ZERO).read_all();
        assert_eq!(class_of(&mut connection, "a:1"), "200000us+");
        assert_eq!(class_of(&mut connection, "b:1"), "0-200000us");
        assert_eq!(class_of(&mut connection, "never:1"), "none");
        let rows = partitions(&mut connection);
        assert_eq!((rows["a/200000us+"]["keys"], rows["other/0-200000us"]["keys"]), (20.0, 20.0));
        assert_eq!((rows["a"]["keys"], rows["other"]["keys"]), (0.0, 0.0));
        send::<()>(&mut connection, "DEL a:1");
        assert_eq!(class_of(&mut connection, "a:1"), "200000us+");
        // It comes back without a miss, and is of its class.
        send::<()>(&mut connection, "SET a:1 value");
        assert_eq!(partition(&mut connection, "a/200000us+")["keys"], 20.0);
        check_keys(&mut connection);
        let lists: Vec<BTreeMap<String, String>> = send(&mut connection, "TENURE.CLASS LIST");
        assert_eq!(
            lists.iter().map(|row| row["class"].as_str()).collect::<Vec<_>>(),
            ["none", "200000us+", "0-200000us"]
        );
    });
}

/// A tenant's line is the sum of its classes'.
#[test]
fn a_tenant_is_its_partitions_together() {
    let options = auto_of_one_miss().set("tenure.tenants", "\"a=a:*,min=1mb,max=9mb\"").set("maxmemory", "64mb");
    on_every_server(&options, |server| {
        let mut connection = server.connection().unwrap();
        client(server, "a:", 20).with_backend(FARTHER).read_all();
        let mut near = CacheAside::new(server.connection().unwrap(), "a:near:", 30, 1000);
        // One by one: of a batch each would have the penalty of all.
        (0..30).for_each(|key| near.read(&[key]));
        near.read_all();
        client(server, "b:", 10).read_all();
        wait_for("the keys to be counted", || {
            let rows: Vec<BTreeMap<String, String>> = send(&mut connection, "TENURE.TENANTS");
            rows.iter().map(|row| row["keys"].parse::<u64>().unwrap()).sum::<u64>() == 60
        });
        let rows: Vec<BTreeMap<String, String>> = send(&mut connection, "TENURE.TENANTS");
        let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str()).collect();
        assert_eq!(names, ["a", "other"]);
        let number = |i: usize, field: &str| rows[i][field].parse::<f64>().unwrap();
        let counted = ["partitions", "keys", "reads", "hits", "misses", "bytes_min"].map(|field| number(0, field));
        assert_eq!(counted, [3.0, 50.0, 80.0, 30.0, 50.0, MB as f64]);
        assert_eq!((number(0, "bytes_max"), number(1, "bytes_max")), (9.0 * MB as f64, -1.0));
        assert!((number(0, "miss_ratio") - 0.625).abs() < 1e-9);
        let parts: f64 =
            partitions(&mut connection).iter().filter(|(n, _)| n.starts_with('a')).map(|(_, r)| r["used_bytes"]).sum();
        assert!((number(0, "used_bytes") - parts).abs() < 0.01 * parts);
        let fields = server.info("tenure").unwrap();
        assert!(fields["tenure_tenant_a"].contains("hits=30,misses=50"), "{}", fields["tenure_tenant_a"]);
    });
}

#[test]
fn hints_are_by_key_by_prefix_and_by_connection() {
    on_every_server(&with_module().set("tenure.classes", "hinted"), |server| {
        let mut connection = server.connection().unwrap();
        (0..10).for_each(|i| send::<()>(&mut connection, &format!("SET k:{i} value")));
        wait_for("the keys to be counted", || partition(&mut connection, "db0")["keys"] == 10.0);
        send::<()>(&mut connection, "TENURE.CLASS KEY k:1 report");
        assert_eq!(class_of(&mut connection, "k:1"), "report");
        let rows = partitions(&mut connection);
        assert_eq!((rows["db0"]["keys"], rows["db0/report"]["keys"]), (9.0, 1.0));
        send::<()>(&mut connection, "TENURE.CLASS KEY k:1 none");
        assert_eq!(class_of(&mut connection, "k:1"), "none");
        check_keys(&mut connection);

        send::<()>(&mut connection, "TENURE.CLASS PREFIX k:* local");
        send::<()>(&mut connection, "TENURE.CLASS PREFIX far:* remote");
        assert_eq!(config_get(&mut connection, "tenure.class-rules"), "local=k:* remote=far:*");
        wait_for("the rule", || class_of(&mut connection, "k:1") == "local");
        send::<()>(&mut connection, "SET far:1 value");
        wait_for("the keys of both rules", || {
            let rows = partitions(&mut connection);
            rows.contains_key("db0/local")
                && rows["db0/local"]["keys"] == 10.0
                && rows.contains_key("db0/remote")
                && rows["db0/remote"]["keys"] == 1.0
        });
        send::<()>(&mut connection, "TENURE.CLASS PREFIX k:* none");
        wait_for("the rule to be gone", || class_of(&mut connection, "k:1") == "none");

        let mut writer = server.connection().unwrap();
        if server.binary().label.starts_with("redis-7.0") {
            assert!(error_of(&mut writer, "TENURE.CLASS CONNECTION batch").contains("doesn't tell modules"));
            return;
        }
        send::<()>(&mut writer, "TENURE.CLASS CONNECTION batch");
        send::<()>(&mut writer, "SET w:1 value");
        send::<()>(&mut connection, "SET v:1 value");
        assert_eq!(
            (class_of(&mut connection, "w:1"), class_of(&mut connection, "v:1")),
            ("batch".into(), "none".into())
        );
        send::<()>(&mut writer, "TENURE.CLASS CONNECTION none");
        send::<()>(&mut writer, "SET w:2 value");
        assert_eq!(class_of(&mut connection, "w:2"), "none");
        check_keys(&mut connection);
    });
}

#[test]
fn hints_that_cannot_be_are_refused_with_the_reason() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        assert!(error_of(&mut connection, "TENURE.CLASS KEY k report").contains("tenure.classes is off"));
        config_set(&mut connection, "tenure.classes", "hinted");
        for (line, part) in [
            ("TENURE.CLASS", "wrong number of arguments"),
            ("TENURE.CLASS KEY k", "wrong number of arguments"),
            ("TENURE.CLASS KEY k bad=name", "class name 'bad=name'"),
            ("TENURE.CLASS PREFIX k: local", "one '*' at its end"),
            ("TENURE.CLASS PREFIX * local", "one '*' at its end"),
            ("TENURE.CLASS FORGET k", "TENURE.CLASS HELP"),
            ("CONFIG SET tenure.class-rules local", "NAME=PREFIX*"),
            ("CONFIG SET tenure.class-limits 5,6", "'5,6' is no limit"),
        ] {
            let error = error_of(&mut connection, line);
            assert!(error.contains(part), "{line}: {error}");
        }
        assert_eq!(config_get(&mut connection, "tenure.class-rules"), "");
    });
}

/// A backend slows down: the class's penalty of the next window is the new one, not a mean of old and new.
#[test]
fn a_hinted_class_follows_its_backend_at_once() {
    let options = with_module().set("tenure.classes", "hinted").set("tenure.class-rules", "far=f:*");
    on_oldest_and_newest(&options.set("tenure.window-requests", 1000), |server| {
        let mut connection = server.connection().unwrap();
        let mut penalty_after = |first: u64, backend: Duration| {
            let window = info(server, "windows");
            // A window that began before the change may still be open.
            let mut client = client(server, "f:", u64::MAX).with_backend(backend);
            let mut next = first;
            wait_for("two windows", || {
                client.read(&(next..next + 100).collect::<Vec<_>>());
                next += 100;
                info(server, "windows") >= window + 2.0
            });
            partition(&mut connection, "db0/far")["penalty_us_mean"]
        };
        let before = penalty_after(0, Duration::from_millis(5));
        let after = penalty_after(1_000_000, Duration::from_millis(50));
        assert!(before < 40_000.0 && after > 48_000.0, "{before} µs, then {after}");
    });
}

/// Equally often used, one kind forty times as expensive; and one often used. What is worth least goes.
#[test]
fn hyperbolic_keeps_what_is_dear_and_what_is_often_used() {
    for policy in ["hyperbolic", "hyperbolic-size"] {
        let options = with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.samples", 32);
        on_oldest_and_newest(&options.set("tenure.policy", policy), |server| {
            let mut connection = server.connection().unwrap();
            limit_memory(server, 4 * MB);
            let near = client(server, "n:", 3000).with_backend(Duration::from_millis(1));
            let far = client(server, "f:", 3000).with_backend(FAR);
            let hot = client(server, "h:", 300).with_backend(Duration::from_millis(1));
            let mut clients = [near, far, hot];
            let rounds = |clients: &mut [CacheAside; 3], n: usize| {
                for _ in 0..n {
                    let [near, far, hot] = clients;
                    near.read_some(150);
                    far.read_some(150);
                    hot.read_some(300);
                }
            };
            rounds(&mut clients, 40);
            let before = clients.each_ref().map(|client| (client.reads, client.misses));
            rounds(&mut clients, 40);
            let ratio = |i: usize| (clients[i].misses - before[i].1) as f64 / (clients[i].reads - before[i].0) as f64;
            let (near, far, hot) = (ratio(0), ratio(1), ratio(2));
            assert!(far < 0.6 * near && hot < 0.3 * near, "{policy}: near {near}, far {far}, hot {hot}");
            assert_eq!(status(&mut connection)["policy"], policy);
            assert!(info(server, "evictions") > 9.0 * evicted_by_server(server) as f64);
        });
    }
}
