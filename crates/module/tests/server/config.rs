//! Settings: read, set, refused, and kept over a rewrite and a restart.

use std::collections::BTreeMap;

use tenure_servers::ServerOptions;

use crate::harness::{
    config_get, config_set, error_of, on_every_server, on_oldest_and_newest, partitions, send, status, wait_for,
    with_module,
};

/// Every setting that can be set at run time: a value other than its default, how it reads back, and values that are
/// refused.
const SETTINGS: &[(&str, &str, &str, &[&str])] = &[
    ("enabled", "no", "no", &["maybe", "2"]),
    ("policy", "kredis", "kredis", &["mru", "", "0"]),
    ("tenants", "a=x:*,min=1mb b=db:3", "a=x:*,min=1mb b=db:3", &["a", "a=x* a=y*", "a=x*,min=2mb,max=1mb"]),
    ("samples", "16", "16", &["0", "65", "many", "-1"]),
    ("density-samples", "32", "32", &["0", "65", "many"]),
    ("kredis-k", "as-set", "as-set", &["yes", "5"]),
    ("dlru-evictor", "tenure", "tenure", &["nobody", ""]),
    ("auto-tenants-delimiter", "::", "::", &["123456789"]),
    ("classes", "auto", "auto", &["yes", "3"]),
    ("class-limits", "100 1000", "100 1000", &["1000 100", "0", "few"]),
    ("class-rules", "far=r:* near=l:*", "far=r:* near=l:*", &["far", "far=*", "a b=x*"]),
    ("key-table-bytes", "1mb", "1048576", &["-1", "2000gb"]),
    ("window-requests", "5000", "5000", &["999", "1000000001"]),
    ("window-seconds", "3600", "3600", &["0", "3601"]),
    ("granularity-bytes", "64kb", "65536", &["-1", "2000gb", "lots"]),
    ("gain-min-percent", "100", "100", &["-1", "101"]),
    ("objective", "fair", "fair", &["unfair", ""]),
    ("headroom-bytes", "1mb", "1048576", &["-1", "2000gb"]),
    ("turn-budget-us", "50", "50", &["49", "5001"]),
    ("sample-percent", "100", "100", &["0", "101", "1.5"]),
    ("samples-per-second", "100", "100", &["99", "1000001"]),
    ("watched-per-second", "0", "0", &["-1", "1000000001"]),
    ("watch-percent", "5", "5", &["0", "101"]),
    ("watch-busy-percent", "0", "0", &["-1", "101"]),
    ("penalty-max-ms", "1", "1", &["0", "3600001"]),
    ("limits-scope", "cluster", "cluster", &["world", ""]),
    ("teach-replicas", "no", "no", &["some"]),
    ("spill-dir", "sleepers", "sleepers", &["/proc/nowhere"]),
    ("spill-max-bytes", "64mb", "67108864", &["1000", "-1"]),
    ("spill-bytes-per-second", "1mb", "1048576", &["1", "2000gb"]),
    ("spill-auto", "no", "no", &["maybe"]),
    ("spill-interval-seconds", "5", "5", &["0", "3601"]),
    ("spill-run-intervals", "3", "3", &["0", "1001"]),
    ("warm-restart", "yes", "yes", &["1"]),
    // Places are refused where the allocator would mix tiers, as here: see tiers.rs.
    ("tier-slow", "", "", &["cxl", "numa:x", "file:here", "dax:/dev/dax0.0", "anon"]),
    ("tier-fast-bytes", "1mb", "1048576", &["-1", "lots"]),
    ("tier-rule", "worth", "worth", &["lru", ""]),
    ("tier-division", "equal", "equal", &["fair", ""]),
    // The other modes are refused where they can't be kept: see replies.rs.
    ("replies", "async", "async", &["later", ""]),
    ("replies-replicas", "0", "0", &["-1", "65"]),
    ("replies-timeout-ms", "10", "10", &["9", "3600001"]),
    ("replies-on-timeout", "refuse", "refuse", &["wait", ""]),
];

#[test]
fn every_setting_is_set_read_back_and_refuses_what_is_not_allowed() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let known: Vec<String> = send(&mut connection, "CONFIG GET tenure.*");
        assert_eq!(known.len() / 2, SETTINGS.len() + 1, "a setting is not tested: {known:?}");
        for (name, value, reads_back, refused) in SETTINGS {
            let full = format!("tenure.{name}");
            config_set(&mut connection, &full, value);
            assert_eq!(config_get(&mut connection, &full), *reads_back, "{full}");
            for wrong in *refused {
                let mut command = redis::cmd("CONFIG");
                let error = command.arg("SET").arg(&full).arg(wrong).exec(&mut connection).unwrap_err();
                assert_eq!(error.code(), Some("ERR"), "{full} {wrong}: {error}");
                let error = error.to_string();
                assert!(error.contains(&full), "{full} {wrong}: {error}");
                assert_eq!(config_get(&mut connection, &full), *reads_back, "{full} after {wrong} was refused");
            }
        }
        let error = error_of(&mut connection, "CONFIG SET tenure.debug-commands yes");
        assert!(error.contains("tenure.debug-commands") && error.contains("at start only"), "{error}");
        assert_eq!(config_get(&mut connection, "tenure.debug-commands"), "no");
        // All that was read can be set again, and reads back as it did.
        let read: BTreeMap<String, String> = send(&mut connection, "CONFIG GET tenure.*");
        redis::cmd("CONFIG").arg("SET").arg(&read).exec(&mut connection).unwrap();
        assert_eq!(send::<BTreeMap<String, String>>(&mut connection, "CONFIG GET tenure.*"), read);
    });
}

/// Tools write back all that they have read, what can be set at start only among it.
#[test]
fn all_that_was_read_can_be_set_again() {
    on_every_server(&with_module().set("tenure.debug-commands", "yes"), |server| {
        let mut connection = server.connection().unwrap();
        // In whatever order: the server's table of settings may be rehashed in between.
        let all = |connection: &mut redis::Connection| -> BTreeMap<String, String> {
            send(connection, "CONFIG GET tenure.*")
        };
        let read = all(&mut connection);
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg(&read).exec(&mut connection).unwrap();
        assert_eq!(all(&mut connection), read);
        let error = error_of(&mut connection, "CONFIG SET tenure.debug-commands no");
        assert!(error.contains("at start only"), "{error}");
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        assert_eq!(config_get(&mut server.connection().unwrap(), "tenure.debug-commands"), "yes");
    });
}

#[test]
fn choices_that_nobody_made_are_as_documented() {
    let choices = [
        ("policy", "density"),
        ("classes", "off"),
        ("kredis-k", "by-curve"),
        ("dlru-evictor", "server"),
        ("objective", "penalty"),
        ("limits-scope", "node"),
        ("tier-rule", "reuse-time"),
        ("tier-division", "free"),
        ("replies", "async"),
        ("replies-on-timeout", "async"),
    ];
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        for (name, default) in choices {
            assert_eq!(config_get(&mut connection, &format!("tenure.{name}")), default, "{name}");
        }
    });
}

/// A database that the server doesn't have holds no keys; in a cluster there is one.
#[test]
fn tenants_are_of_databases_that_there_are() {
    for (setting, value, last) in [("databases", "16", 15), ("databases", "3", 2), ("cluster-enabled", "yes", 0)] {
        on_oldest_and_newest(&with_module().set(setting, value), |server| {
            let mut connection = server.connection().unwrap();
            config_set(&mut connection, "tenure.tenants", format!("last=db:{last}"));
            let error = error_of(&mut connection, &format!("CONFIG SET tenure.tenants a=db:{}", last + 1));
            let expected = format!("database '{}'; allowed is 0 to {last}", last + 1);
            assert!(error.contains(&expected), "{setting} {value}: {error}");
            assert_eq!(config_get(&mut connection, "tenure.tenants"), format!("last=db:{last}"));
        });
    }
}

/// One way of writing that there is no maximum, in all places: -1.
#[test]
fn no_maximum_is_written_alike_everywhere() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "tenure.tenants", "a=a:*,max=-1 b=b:*,max=1mb c=c:*");
        for (name, max) in [("a", -1.0), ("b", 1_048_576.0), ("c", -1.0), ("other", -1.0)] {
            wait_for("the tenants", || partitions(&mut connection).contains_key(name));
            assert_eq!(partitions(&mut connection)[name]["bytes_max"], max, "{name}");
            let rows: Vec<BTreeMap<String, String>> = send(&mut connection, "TENURE.TENANTS");
            let row = rows.iter().find(|row| row["name"] == name).unwrap();
            assert_eq!(row["bytes_max"].parse::<f64>().unwrap(), max, "{name}");
            for kind in ["tenant", "partition"] {
                let line = &server.info("tenure").unwrap()[&format!("tenure_{kind}_{name}")];
                assert!(line.split(',').any(|field| field == format!("bytes_max={max}")), "{line}");
                assert!(line.split(',').any(|field| field == "target_bytes=-1"), "no plan is written likewise: {line}");
            }
        }
        for (wrong, expected) in
            [("a=a:*,max=0", "max=0 would leave it nothing"), ("a=a:*,max=-2", "'-2' is not a number")]
        {
            let error = error_of(&mut connection, &format!("CONFIG SET tenure.tenants {wrong}"));
            assert!(error.contains(expected), "{error}");
        }
    });
}

#[test]
fn a_rewritten_configuration_brings_every_setting_back() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        for (name, value, ..) in SETTINGS {
            config_set(&mut connection, &format!("tenure.{name}"), value);
        }
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        for (name, _, reads_back, _) in SETTINGS {
            assert_eq!(config_get(&mut connection, &format!("tenure.{name}")), *reads_back, "{name}");
        }
        assert_eq!(status(&mut connection)["state"], "stopped");
        // Back to the defaults, likewise.
        for name in ["enabled yes", "tenants ", "samples 5", "policy density"] {
            let (name, value) = name.split_once(' ').unwrap();
            config_set(&mut connection, &format!("tenure.{name}"), value);
        }
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        for (name, expected) in [("enabled", "yes"), ("tenants", ""), ("samples", "5"), ("policy", "density")] {
            assert_eq!(config_get(&mut connection, &format!("tenure.{name}")), expected, "{name}");
        }
        assert_eq!(status(&mut connection)["state"], "running");
    });
}

/// What was set at run time and rewritten is newer than the arguments of `loadmodule`, which stay in the file.
#[test]
fn a_rewritten_setting_wins_over_the_modules_arguments() {
    let arguments = ["samples", "9", "policy", "lru", "tenants", "a=x:*"].map(str::to_owned).to_vec();
    let options = ServerOptions { module_args: arguments, ..with_module() };
    on_every_server(&options, |server| {
        let mut connection = server.connection().unwrap();
        config_set(&mut connection, "tenure.samples", 12);
        config_set(&mut connection, "tenure.policy", "predis");
        config_set(&mut connection, "tenure.tenants", "");
        send::<()>(&mut connection, "CONFIG REWRITE");
        server.restart().unwrap();
        let mut connection = server.connection().unwrap();
        assert_eq!(config_get(&mut connection, "tenure.samples"), "12");
        assert_eq!(config_get(&mut connection, "tenure.policy"), "predis");
        assert_eq!(config_get(&mut connection, "tenure.tenants"), "");
    });
}

#[test]
fn a_wrong_tenant_is_named_and_changes_nothing() {
    on_every_server(&with_module().set("tenure.tenants", "a=x:*"), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET x:1 1");
        for (text, expected) in [
            ("b", "tenant 'b' has no selector"),
            ("b=y", "selector 'y'"),
            ("b=db:256", "database '256'; allowed is 0 to 15"),
            ("b=y*,max=much", "tenant 'b': 'much' is not a number of bytes"),
            ("other=y*", "tenant name 'other'"),
        ] {
            let error = error_of(&mut connection, &format!("CONFIG SET tenure.tenants {text}"));
            assert!(error.contains(expected), "{text}: {error}");
        }
        let many: Vec<String> = (0..65).map(|i| format!("t{i}=p{i}:*")).collect();
        let mut command = redis::cmd("CONFIG");
        let error = command.arg("SET").arg("tenure.tenants").arg(many.join(" ")).exec(&mut connection).unwrap_err();
        assert!(error.to_string().contains("65 tenants; allowed are 64"), "{error}");
        let rows = partitions(&mut connection);
        assert_eq!(rows.keys().collect::<Vec<_>>(), ["a", "other"]);
        assert_eq!(rows["a"]["writes"], 1.0, "counting went on");
    });
}

#[test]
fn the_most_tenants_there_can_be() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let many: Vec<String> = (0..64).map(|i| format!("t{i}=p{i}:*")).collect();
        config_set(&mut connection, "tenure.tenants", many.join(" "));
        wait_for("65 partitions", || partitions(&mut connection).len() == 65);
        (0..64).for_each(|i| send(&mut connection, &format!("SET p{i}:key 1")));
        let rows = partitions(&mut connection);
        (0..64).for_each(|i| assert_eq!(rows[&format!("t{i}")]["writes"], 1.0, "t{i}"));
        assert_eq!(rows["other"]["writes"], 0.0);
    });
}
