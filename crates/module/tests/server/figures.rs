//! What users are told is so: versions, whether anything may be evicted, ratios, maxima, and memory as the server
//! counts it.

use std::collections::BTreeMap;

use redis::{Connection, Value};
use tenure_servers::Server;

use crate::harness::{
    CacheAside, config_get, config_set, evicting_in_time, info, limit_memory, on_every_server, on_oldest_and_newest,
    partitions, send, servers, start, status, wait_for, with_module,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_version_is_told_alike_everywhere() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        assert_eq!(status(&mut connection)["version"], VERSION);
        assert_eq!(server.info("tenure").unwrap()["tenure_version"], VERSION);
        let number = VERSION.split('.').fold(0, |number, part| number * 100 + part.parse::<i64>().unwrap());
        let modules: Vec<BTreeMap<String, Value>> = send(&mut connection, "MODULE LIST");
        let ours = modules.iter().find(|module| module["name"] == Value::BulkString(b"tenure".to_vec())).unwrap();
        assert_eq!(ours["ver"], Value::Int(number));
        config_set(&mut connection, "tenure.enabled", "no");
        wait_for("Tenure to stop", || status(&mut connection)["state"] == "stopped");
        assert_eq!(status(&mut connection)["version"], VERSION);
        assert_eq!(server.info("tenure").unwrap()["tenure_version"], VERSION);
    });
}

/// `ready` is for where something may be evicted.
#[test]
fn nobody_is_ready_where_nothing_may_go() {
    let options = with_module().set("maxmemory", "64mb").set("maxmemory-policy", "volatile-lru");
    on_every_server(&options, |server| {
        let mut connection = server.connection().unwrap();
        let told = |server: &Server| server.info("tenure").unwrap()["tenure_eviction"].clone();
        send::<()>(&mut connection, "SET stays 1");
        wait_for("the policy to be told", || told(server).contains("only keys go that expire"));
        assert_eq!(status(&mut connection)["eviction"], told(server));
        send::<()>(&mut connection, "SET goes 1 EX 1000");
        wait_for("a key that expires", || status(&mut connection)["eviction"] == "ready");
        send::<()>(&mut connection, "DEL goes");
        wait_for("no key to expire", || told(server) != "ready");
        config_set(&mut connection, "maxmemory-policy", "allkeys-lru");
        wait_for("any key to go", || told(server) == "ready");
    });
}

/// Also far from the limit, where nothing would have to go.
#[test]
fn a_replica_is_not_ready() {
    for binary in servers() {
        let options = with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru");
        let (primary, replica) = (start(&binary, &options), start(&binary, &options));
        wait_for("both to be ready", || {
            [&primary, &replica].iter().all(|server| server.info("tenure").unwrap()["tenure_eviction"] == "ready")
        });
        replica.replica_of(&primary).unwrap();
        let mut connection = replica.connection().unwrap();
        wait_for("the replica to stand by", || status(&mut connection)["eviction"].contains("is a replica"));
        // With a maximum each turn looks whether there is something to free.
        config_set(&mut connection, "tenure.tenants", "a=a:*,max=1mb");
        wait_for("the tenant", || partitions(&mut connection).contains_key("a"));
        for _ in 0..100 {
            assert_eq!(status(&mut connection)["eviction"], "standing by: this server is a replica");
        }
        send::<()>(&mut connection, "REPLICAOF NO ONE");
        wait_for("it to be ready again", || status(&mut connection)["eviction"] == "ready");
    }
}

fn row_of(connection: &mut Connection, command: &str, name: &str) -> BTreeMap<String, String> {
    let rows: Vec<BTreeMap<String, String>> = send(connection, command);
    rows.into_iter().find(|row| row["name"] == name).unwrap()
}

/// `miss_ratio` is misses / reads as they are shown beside it, for tenants and partitions, in commands and INFO; the
/// last window's has its own name.
#[test]
fn a_miss_ratio_is_of_all_that_was_counted() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        (0..1000).for_each(|key| send(&mut connection, &format!("GET key:{key}")));
        (0..1000).for_each(|key| send(&mut connection, &format!("SET key:{key} 1")));
        // Windows later nothing is missed any more.
        let windows = info(server, "windows");
        wait_for("a window of hits", || {
            (0..100).for_each(|key| send(&mut connection, &format!("GET key:{key}")));
            let row = row_of(&mut connection, "TENURE.PARTITIONS", "db0");
            info(server, "windows") >= windows + 3.0 && row["miss_ratio_window"] == "0"
        });
        for command in ["TENURE.PARTITIONS", "TENURE.TENANTS"] {
            let row = row_of(&mut connection, command, "db0");
            let number = |field: &str| row[field].parse::<f64>().unwrap();
            let ratio = number("misses") / number("reads");
            assert!(ratio > 0.0 && (number("miss_ratio") - ratio).abs() < 1e-9, "{command}: {row:?}");
            assert!(number("miss_ratio_window") < ratio / 2.0, "{command}: {row:?}");
        }
        for kind in ["tenant", "partition"] {
            let line = &server.info("tenure").unwrap()[&format!("tenure_{kind}_db0")];
            let fields: BTreeMap<&str, f64> = line
                .split(',')
                .filter_map(|field| field.split_once('='))
                .map(|(name, number)| (name, number.parse().unwrap()))
                .collect();
            assert!(fields["miss_ratio"] > 2.0 * fields["miss_ratio_window"], "{line}");
        }
    });
}

/// The longest times of the past are forgotten by the server's own command.
#[test]
fn the_longest_slice_is_measured_anew_after_resetstat() {
    on_oldest_and_newest(&evicting_in_time(), |server| {
        let limit = limit_memory(server, 2 << 20);
        let mut client = CacheAside::new(server.connection().unwrap(), "key:", 10_000, 1000);
        wait_for("evictions", || {
            client.read_some(100);
            info(server, "eviction_slice_us_max") > 0.0
        });
        let evictions = info(server, "evictions");
        let mut connection = server.connection().unwrap();
        // Nothing is short any more, so no slice follows.
        config_set(&mut connection, "maxmemory", 4 * limit);
        send::<()>(&mut connection, "CONFIG RESETSTAT");
        wait_for("the longest slice to be forgotten", || info(server, "eviction_slice_us_max") == 0.0);
        assert!(info(server, "evictions") >= evictions, "counters go on");
    });
}

/// What the module holds when the server begins to serve is not the server's own memory: it may be given back.
#[test]
fn memory_stats_hold_when_tenure_gives_memory_back() {
    on_every_server(&with_module().set("maxmemory", "4gb").set("maxmemory-policy", "allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        let check = |connection: &mut Connection, when: &str| {
            let stats: BTreeMap<String, Value> = send(connection, "MEMORY STATS");
            let number = |name: &str| match &stats[name] {
                Value::Int(n) => *n,
                other => panic!("{name} is {other:?}"),
            };
            let total = number("total.allocated");
            for name in ["startup.allocated", "overhead.total", "dataset.bytes"] {
                assert!((0..=total).contains(&number(name)), "{when}: {name} is {} of {total}", number(name));
            }
        };
        let table = |bytes: i32| info(server, "key_table_bytes") == f64::from(bytes);
        wait_for("a table of 1/64 of the limit, less 512 KiB", || table((64 << 20) - (512 << 10)));
        check(&mut connection, "at first");
        config_set(&mut connection, "maxmemory", "64mb");
        // In whole buckets, of two cache lines.
        wait_for("a table of 1/104 of the limit", || table((64 << 20) / 104 / 128 * 128));
        check(&mut connection, "after the cut");
        config_set(&mut connection, "tenure.enabled", "no");
        wait_for("Tenure to stop", || status(&mut connection)["state"] == "stopped");
        check(&mut connection, "without Tenure");
        send::<()>(&mut connection, "MODULE UNLOAD tenure");
        check(&mut connection, "without the module");
    });
}

/// Names of keys are bytes: rules by prefix too, also from a rewritten configuration.
#[test]
fn a_class_is_hinted_by_a_prefix_of_any_bytes() {
    on_every_server(&with_module().set("tenure.classes", "hinted"), |server| {
        let mut connection = server.connection().unwrap();
        let class_of = |connection: &mut Connection, key: &[u8]| -> BTreeMap<String, String> {
            redis::cmd("TENURE.CLASS").arg("GET").arg(key).query(connection).unwrap()
        };
        let (prefix, key) = (&b"\xff\x00='\xc3*"[..], &b"\xff\x00='\xc3key"[..]);
        redis::cmd("TENURE.CLASS").arg("PREFIX").arg(prefix).arg("far").exec(&mut connection).unwrap();
        wait_for("the rule", || class_of(&mut connection, key)["class"] == "far");
        assert_eq!(class_of(&mut connection, b"\xff\x01")["class"], "none");
        let rules: Vec<Vec<u8>> = send(&mut connection, "CONFIG GET tenure.class-rules");
        assert_eq!(rules[1], [b"far=", prefix].concat());
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        assert_eq!(send::<Vec<Vec<u8>>>(&mut connection, "CONFIG GET tenure.class-rules"), rules);
        assert_eq!(class_of(&mut connection, key)["class"], "far");
        redis::cmd("TENURE.CLASS").arg("PREFIX").arg(prefix).arg("none").exec(&mut connection).unwrap();
        assert_eq!(config_get(&mut connection, "tenure.class-rules"), "");
        // What an entry can't hold is refused, and the reason given.
        for (prefix, reason) in [
            (&b"a b*"[..], "has a space or line end in it"),
            (b"a\nb*", "has a space or line end in it"),
            (b"a\"b*", "a quote or backslash"),
            (b"a\\b*", "a quote or backslash"),
        ] {
            let refused = redis::cmd("TENURE.CLASS").arg("PREFIX").arg(prefix).arg("far").exec(&mut connection);
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    });
}

const KEPT: &[&str] = &[
    "reads",
    "writes",
    "misses",
    "evictions",
    "evicted_bytes",
    "eviction_us",
    "visited_keys",
    "windows",
    "unknown_commands",
    "forgotten_keys",
    "slept_keys",
];

/// Counters, of all and of a tenant: they only grow.
fn counts(server: &Server) -> BTreeMap<String, f64> {
    let fields = server.info("tenure").unwrap();
    let mut counts: BTreeMap<String, f64> =
        KEPT.iter().map(|name| ((*name).to_owned(), fields[&format!("tenure_{name}")].parse().unwrap())).collect();
    if let Some(line) = fields.get("tenure_tenant_a") {
        let numbers = line.split(',').filter_map(|field| field.split_once('='));
        let named = numbers.filter(|(name, _)| ["hits", "misses", "evictions"].contains(name));
        counts.extend(named.map(|(name, number)| (format!("a {name}"), number.parse().unwrap())));
    }
    counts
}

#[track_caller]
fn check_grown(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, what: &str) {
    for (name, n) in before {
        let now = after.get(name).unwrap_or_else(|| panic!("{what}: {name} is gone"));
        assert!(now >= n, "{what}: {name} went from {n} to {now}");
    }
}

/// A monitor that follows a counter sees it grow, whatever is set, and finds every field while Tenure is off.
#[test]
fn counters_outlive_settings_and_fields_outlive_tenure() {
    on_every_server(&evicting_in_time().set("tenure.tenants", "a=a:*"), |server| {
        let limit = limit_memory(server, 2 << 20);
        let mut connection = server.connection().unwrap();
        let mut client = CacheAside::new(server.connection().unwrap(), "a:", 5_000, 1000);
        wait_for("evictions", || {
            client.read_some(100);
            info(server, "evictions") > 100.0
        });
        let mut seen = counts(server);
        assert!(seen["reads"] > 0.0 && seen["a misses"] > 0.0 && seen["a evictions"] > 0.0, "{seen:?}");
        for (name, value) in [
            ("tenure.policy", "predis"),
            ("tenure.tenants", "a=a:* b=b:*"),
            ("tenure.classes", "auto"),
            ("tenure.key-table-bytes", "1mb"),
            ("tenure.policy", "density"),
            ("tenure.classes", "off"),
        ] {
            config_set(&mut connection, name, value);
            client.read_some(100);
            let now = counts(server);
            check_grown(&seen, &now, &format!("{name} {value}"));
            seen = now;
        }
        // Tenants and all commands tell the same.
        let rows: Vec<BTreeMap<String, String>> = send(&mut connection, "TENURE.TENANTS");
        let row = rows.iter().find(|row| row["name"] == "a").unwrap();
        assert_eq!(row["misses"].parse::<f64>().unwrap(), counts(server)["a misses"]);
        let evictions: f64 = status(&mut connection)["evictions"].parse().unwrap();
        assert!(evictions >= seen["evictions"]);

        let fields = server.info("tenure").unwrap();
        config_set(&mut connection, "maxmemory", 4 * limit);
        let seen = counts(server);
        config_set(&mut connection, "tenure.enabled", "no");
        wait_for("Tenure to stop", || status(&mut connection)["state"] == "stopped");
        let without = server.info("tenure").unwrap();
        let of_rows =
            |name: &&String| ["tenure_tenant_", "tenure_partition_"].iter().any(|kind| name.starts_with(kind));
        for name in fields.keys().filter(|name| !of_rows(name)) {
            assert!(without.contains_key(name), "{name} is gone");
        }
        assert_eq!(without["tenure_key_table_bytes"], "0");
        let tenants = |name: &String| name.starts_with("a ");
        let of_all: BTreeMap<String, f64> =
            seen.iter().filter(|(name, _)| !tenants(name)).map(|(n, v)| (n.clone(), *v)).collect();
        check_grown(&of_all, &counts(server), "without Tenure");
        config_set(&mut connection, "tenure.enabled", "yes");
        wait_for("Tenure to start", || status(&mut connection)["state"] == "running");
        wait_for("the tenant", || partitions(&mut connection).contains_key("a"));
        check_grown(&seen, &counts(server), "with Tenure again");
    });
}

/// What can't be kept isn't promised: refused where it is set, cut alike and told where it comes otherwise.
#[test]
fn minimums_that_do_not_fit_are_refused_or_told() {
    on_every_server(&with_module().set("maxmemory-policy", "allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        // Without a limit there is nothing to be above.
        config_set(&mut connection, "tenure.tenants", "a=a:*,min=1tb");
        config_set(&mut connection, "tenure.tenants", "a=a:*,min=30mb b=b:*,min=10mb");
        config_set(&mut connection, "maxmemory", "64mb");
        wait_for("minimums to be kept", || status(&mut connection)["minimums"] == "kept");
        assert_eq!(guaranteed(&mut connection), [30 << 20, 10 << 20]);
        for (tenants, expected) in [
            ("a=a:*,min=30mb b=b:*,min=35mb", "minimums are 65 MiB together, above maxmemory of 64 MiB"),
            ("a=a:*,min=65mb", "minimums are 65 MiB together, above maxmemory of 64 MiB"),
            ("a=a:*,min=65535kb", "which is what maxmemory of 64 MiB has for keys"),
        ] {
            let mut command = redis::cmd("CONFIG");
            let refused = command.arg("SET").arg("tenure.tenants").arg(tenants).exec(&mut connection);
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(expected), "{tenants}: {error}");
            assert_eq!(config_get(&mut connection, "tenure.tenants"), "a=a:*,min=30mb b=b:*,min=10mb");
        }
        // Both at once: the limit that is set with them counts.
        let mut both = redis::cmd("CONFIG");
        both.arg("SET").arg("maxmemory").arg("128mb").arg("tenure.tenants").arg("a=a:*,min=75mb b=b:*,min=25mb");
        both.exec(&mut connection).unwrap();
        wait_for("minimums to be kept", || guaranteed(&mut connection) == [75 << 20, 25 << 20]);
        // Lowered later: each has the same share of its own.
        config_set(&mut connection, "maxmemory", "64mb");
        wait_for("minimums to be cut", || status(&mut connection)["minimums"].starts_with("cut to "));
        let [a, b] = guaranteed(&mut connection)[..] else { panic!("two tenants") };
        assert!((40 << 20..64 << 20).contains(&(a + b)) && a.abs_diff(3 * b) < 10, "{a} and {b}");
        assert!(server.info("tenure").unwrap()["tenure_minimums"].starts_with("cut to "));
        assert_eq!(server.log().matches("minimums of 100 MiB together don't fit").count(), 1, "{}", server.log_tail());
        // With these settings it starts, and says so.
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        wait_for("minimums to be cut", || status(&mut connection)["minimums"].starts_with("cut to "));
        assert_eq!(server.log().matches("minimums of 100 MiB together don't fit").count(), 2, "{}", server.log_tail());
        config_set(&mut connection, "maxmemory", "256mb");
        wait_for("minimums to fit again", || status(&mut connection)["minimums"] == "kept");
        assert_eq!(guaranteed(&mut connection), [75 << 20, 25 << 20]);
        assert!(server.log().contains("minimums fit again"), "{}", server.log_tail());
    });
}

/// What tenants `a` and `b` are guaranteed now; of those that are there.
fn guaranteed(connection: &mut Connection) -> Vec<u64> {
    let rows: Vec<BTreeMap<String, String>> = send(connection, "TENURE.TENANTS");
    let ours = rows.iter().filter(|row| ["a", "b"].contains(&row["name"].as_str()));
    ours.map(|row| row["bytes_guaranteed"].parse().unwrap()).collect()
}
