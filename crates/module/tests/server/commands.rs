//! `TENURE.*` and `INFO tenure`: their shapes in both protocols, and errors that say what is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use redis::{Connection, Value};
use tenure_servers::Server;

use crate::harness::{command, config_set, error_of, info, on_every_server, send, wait_for, with_module};
use crate::tiers::without_tiers;

/// A plan's worth of traffic: reads, misses and their writes, in a server with a limit.
fn warm_up(server: &Server) {
    let mut connection = server.connection().unwrap();
    for key in 0..300 {
        send::<()>(&mut connection, &format!("GET key:{key}"));
        send::<()>(&mut connection, &format!("SET key:{key} value"));
    }
    for _ in 0..5 {
        (0..300).for_each(|key| send(&mut connection, &format!("GET key:{key}")));
    }
    wait_for("a plan", || info(server, "plans_adopted") >= 1.0);
}

/// The names of a map, in whichever form the protocol gives it.
fn names_of(value: &Value) -> BTreeSet<String> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        Value::SimpleString(text) => text.clone(),
        other => panic!("{other:?} is no name"),
    };
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, _)| text(name)).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| text(&pair[0])).collect(),
        other => panic!("{other:?} is no map"),
    }
}

const STATUS: [&str; 17] = [
    "state",
    "policy",
    "eviction",
    "worker",
    "maxmemory_bytes",
    "headroom_bytes",
    "planned_bytes",
    "k",
    "predicted_cost_us",
    "partitions",
    "windows",
    "plans_adopted",
    "sample_rate",
    "evictions",
    "memory_bytes",
    "panics",
    "last_panic",
];
const PARTITION: [&str; 16] = [
    "name",
    "keys",
    "used_bytes",
    "target_bytes",
    "bytes_min",
    "bytes_max",
    "reads",
    "writes",
    "deletes",
    "misses",
    "miss_ratio",
    "miss_ratio_predicted",
    "penalty_us_mean",
    "penalty_us_spread",
    "evictions",
    "k",
];

/// What every client of TENURE.* relies on; more may be there.
fn check_shapes(connection: &mut Connection, is_resp3: bool) {
    let is_map = |value: &Value| matches!(value, Value::Map(_));
    let is_number = |value: &Value| match value {
        Value::Double(_) => is_resp3,
        Value::BulkString(text) => !is_resp3 && String::from_utf8_lossy(text).parse::<f64>().is_ok(),
        _ => false,
    };
    let status: Value = send(connection, "TENURE.STATUS");
    assert_eq!(is_map(&status), is_resp3);
    let names = names_of(&status);
    STATUS.iter().filter(|name| **name != "last_panic").for_each(|name| assert!(names.contains(*name), "{name}"));

    let Value::Array(rows) = send(connection, "tenure.partitions") else { panic!("no array") };
    assert_eq!(rows.len(), 1);
    assert_eq!(is_map(&rows[0]), is_resp3);
    let names = names_of(&rows[0]);
    PARTITION.iter().for_each(|name| assert!(names.contains(*name), "{name}"));

    for (line, n) in [("TENURE.MRC db0", 40), ("TENURE.MRC db0 7", 7)] {
        let Value::Array(points) = send(connection, line) else { panic!("no array") };
        assert!((1..=n).contains(&points.len()), "{line}: {points:?}");
        for point in &points {
            let Value::Array(pair) = point else { panic!("{point:?}") };
            assert!(matches!(pair[0], Value::Int(_)) && is_number(&pair[1]), "{pair:?}");
        }
    }
}

#[test]
fn shapes_in_both_protocols() {
    on_every_server(&with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru"), |server| {
        warm_up(server);
        let mut connection = server.connection().unwrap();
        check_shapes(&mut connection, false);
        send::<Value>(&mut connection, "HELLO 3");
        check_shapes(&mut connection, true);
    });
}

#[test]
fn a_curve_falls_from_one_to_the_working_set() {
    // Of so few keys a sample would be two or three.
    let options = with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru");
    on_every_server(&options.set("tenure.sample-percent", 100), |server| {
        warm_up(server);
        let mut connection = server.connection().unwrap();
        let one: u64 = send(&mut connection, "MEMORY USAGE key:100");
        // A loop over 300 keys, of 32 bytes each on Valkey 9.1 and more elsewhere: hopeless at half of that, and nearly
        // perfect at its end. A window that ended amid the first round knows less, and what a key takes is a guess at
        // first, so there are more rounds until both are known.
        wait_for("the curve of a loop", || {
            (0..300).for_each(|key| send(&mut connection, &format!("GET key:{key}")));
            let points: Vec<(u64, f64)> = send(&mut connection, "TENURE.MRC db0 50");
            assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "sizes grow: {points:?}");
            assert!(points.windows(2).all(|pair| pair[0].1 >= pair[1].1), "miss ratios fall: {points:?}");
            assert!(points.iter().all(|(_, ratio)| (0.0..=1.0).contains(ratio)), "{points:?}");
            let (last_bytes, last_ratio) = *points.last().unwrap();
            (300 * one * 4 / 5..300 * one * 5 / 4).contains(&last_bytes) && last_ratio < 0.5 && points[0].1 > 0.8
        });
    });
}

#[test]
fn help_lists_every_command_and_every_setting() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let help: Vec<String> = send(&mut connection, "TENURE.HELP");
        for command in ["TENURE.HELP", "TENURE.STATUS", "TENURE.PARTITIONS", "TENURE.MRC", "INFO tenure"] {
            assert!(help.iter().any(|line| line.starts_with(command)), "{command}: {help:?}");
        }
        let settings: Vec<String> = send(&mut connection, "tenure.help SETTINGS");
        let all: Vec<String> = send(&mut connection, "CONFIG GET tenure.*");
        assert!(all.len() >= 2 * 14, "{all:?}");
        for pair in all.chunks_exact(2) {
            let (name, default) = (&pair[0], &pair[1]);
            let head = settings.iter().find(|line| line.starts_with(&format!("{name}: ")));
            let head = head.unwrap_or_else(|| panic!("{name} is not explained: {settings:?}"));
            let is_ours =
                ["tenure.window-seconds", "tenure.window-requests", "tenure.watch-percent"].contains(&name.as_str());
            let default = if default.is_empty() { "empty" } else { default };
            assert!(is_ours || head.contains(&format!("(default {default})")), "{name} is {default}, but: {head}");
        }
        assert_eq!(settings.iter().filter(|line| line.starts_with("tenure.")).count(), all.len() / 2);
    });
}

#[test]
fn errors_say_what_was_wrong_and_what_is_allowed() {
    on_every_server(&with_module().set("tenure.tenants", "\"users=u:* jobs=db:1\""), |server| {
        let mut connection = server.connection().unwrap();
        for (line, expected) in [
            ("TENURE.MRC nobody", "no partition 'nobody'; there are: users, jobs, other"),
            ("TENURE.MRC users 0", "points is '0'; allowed is 1 to 1000"),
            ("TENURE.MRC users 1001", "points is '1001'"),
            ("TENURE.MRC users many", "points is 'many'"),
            ("TENURE.MRC users", "nothing is known of partition 'users' yet"),
            ("TENURE.MRC", "nothing is known of other sizes yet"),
            ("TENURE.MRC users 1 2", "wrong number of arguments"),
            ("TENURE.STATUS now", "wrong number of arguments for 'tenure.status'"),
            ("TENURE.PARTITIONS all", "wrong number of arguments for 'tenure.partitions'"),
            ("TENURE.WHY", "wrong number of arguments for 'tenure.why'"),
            ("TENURE.WHY a b", "wrong number of arguments for 'tenure.why'"),
            ("TENURE.WHY a", "nothing is known of key 'a' in database 0"),
            ("TENURE.HELP me", "no help on 'me'"),
            ("TENURE.HELP settings all", "wrong number of arguments for 'tenure.help'"),
            ("TENURE.DEBUG PANIC WORKER", "needs tenure.debug-commands yes"),
        ] {
            let error = error_of(&mut connection, line);
            assert!(error.contains(expected), "{line}: {error}");
        }
        let binary = redis::cmd("TENURE.MRC").arg(&b"\xff\r\n\0"[..]).query::<Value>(&mut connection);
        assert!(binary.unwrap_err().to_string().contains("no partition"));
        assert_eq!(send::<String>(&mut connection, "PING"), "PONG");
    });
}

#[test]
fn info_has_every_field_and_its_numbers_are_numbers() {
    on_every_server(&with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru"), |server| {
        warm_up(server);
        let fields = server.info("tenure").unwrap();
        for (name, value) in &fields {
            let name = name.strip_prefix("tenure_").unwrap_or_else(|| panic!("{name} has no prefix"));
            match name {
                "state" | "worker" => assert_eq!(value, "running", "{name}"),
                "watching" => assert_eq!(value, "all"),
                "turns" => assert!(["each", "asked"].contains(&value.as_str()), "{value}"),
                "replies" => assert_eq!(value, "async"),
                "version" => assert_eq!(value, env!("CARGO_PKG_VERSION")),
                "minimums" => assert_eq!(value, "none"),
                "eviction" | "sleep" | "last_panic" | "ranking" | "tiers" | "tier_slow_place" | "tier_collections" => {}
                _ if name.starts_with("partition_") || name.starts_with("tenant_") => {
                    value.split(',').for_each(|field| {
                        let (name, number) = field.split_once('=').unwrap_or_else(|| panic!("{field} in {value}"));
                        assert!(number.parse::<f64>().is_ok_and(f64::is_finite), "{name}={number}");
                    })
                }
                _ => assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{name}: {value}"),
            }
        }
        for name in ["reads", "misses", "evictions", "windows", "plan_us", "samples_dropped_queue", "memory_bytes"] {
            assert!(fields.contains_key(&format!("tenure_{name}")), "{name}: {fields:?}");
        }
        let mut connection = server.connection().unwrap();
        for (section, is_there) in [("everything", true), ("modules", true), ("all", false), ("memory", false)] {
            let text: String = send(&mut connection, &format!("INFO {section}"));
            assert_eq!(text.contains("tenure_state:running"), is_there, "INFO {section}");
        }
    });
}

/// What a monitor makes of a value: a number, fields, or text.
fn kind_of(name: &str, value: &str) -> &'static str {
    let is_row = ["tenure_tenant_", "tenure_partition_"].iter().any(|prefix| name.starts_with(prefix));
    let is_number = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    match value {
        _ if is_row && value.split(',').all(|field| field.split_once('=').is_some_and(|(_, n)| is_number(n))) => {
            "fields"
        }
        _ if is_number(value) => "a number",
        _ => "text",
    }
}

/// A monitor that has once seen a field as a number, or as text, sees it so whatever runs and whatever doesn't. Fields
/// neither come nor go, but for those of tenants and partitions.
#[test]
fn a_field_of_info_is_there_and_of_one_type_in_every_state() {
    let options = without_tiers().set("maxmemory", "32mb").set("maxmemory-policy", "allkeys-lru");
    on_every_server(&options, |server| {
        let folder = tempfile::tempdir().unwrap();
        let mut connection = server.connection().unwrap();
        let mut kinds: BTreeMap<String, &'static str> = BTreeMap::new();
        let mut check = |what: &str| {
            let fields = server.info("tenure").unwrap();
            for (name, value) in &fields {
                let kind = kind_of(name, value);
                assert_eq!(*kinds.entry(name.clone()).or_insert(kind), kind, "{what}: {name}:{value}");
            }
            let is_row = |name: &String| kinds[name] == "fields";
            let gone: Vec<&String> = kinds.keys().filter(|name| !fields.contains_key(*name) && !is_row(name)).collect();
            assert!(gone.is_empty(), "{what}: {gone:?}");
            fields.keys().filter(|name| !is_row(name)).count()
        };
        let n = check("begun");
        warm_up(server);
        let states = [
            "policy predis",
            "policy kredis",
            "policy dlru",
            "policy hyperbolic",
            "policy lru",
            "policy off",
            "policy density",
            "classes auto",
            "auto-tenants-delimiter :",
            "tier-slow anon",
            "replies sent",
            "teach-replicas no",
            "enabled no",
            "enabled yes",
        ];
        for state in states {
            // Some servers can't hold replies, or have one tier alone.
            _ = command(&format!("CONFIG SET tenure.{state}")).exec(&mut connection);
            (0..50).for_each(|key| send::<()>(&mut connection, &format!("SET a:{key} value")));
            assert_eq!(check(state), n, "{state}");
        }
        config_set(&mut connection, "tenure.spill-dir", folder.path().display());
        assert_eq!(check("a folder for sleep"), n);
        send::<()>(&mut connection, "TENURE.DEBUG PANIC TURN");
        wait_for("the fault", || server.info("tenure").unwrap()["tenure_state"] == "failed");
        assert_eq!(check("a fault"), n);
        config_set(&mut connection, "tenure.enabled", "no");
        assert_eq!(check("off after a fault"), n);
    });
}

/// Tools ask for all commands and their documentation; the module's are among them and break nothing.
#[test]
fn tools_that_list_commands_see_ours() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let names: Vec<String> = send(&mut connection, "COMMAND LIST FILTERBY MODULE tenure");
        // Subcommands are listed too, by some servers.
        let names: BTreeSet<String> = names.into_iter().filter(|name| !name.contains('|')).collect();
        let expected = [
            "help",
            "status",
            "partitions",
            "tenants",
            "mrc",
            "why",
            "lessons",
            "tiers",
            "held",
            "class",
            "sleep",
            "wake",
            "await",
            "debug",
        ];
        let expected = expected.map(|name| format!("tenure.{name}"));
        assert_eq!(names, expected.into());
        for line in ["COMMAND DOCS", "COMMAND DOCS tenure.mrc", "COMMAND INFO tenure.mrc", "COMMAND", "MODULE LIST"] {
            send::<Value>(&mut connection, line);
        }
        assert_eq!(info(server, "panics"), 0.0);
    });
}

/// The line that a server sends first in answer to one.
fn raw_reply(stream: &mut BufReader<TcpStream>, line: &str) -> String {
    stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_line(&mut reply).unwrap();
    reply.trim_end().to_owned()
}

/// Each line is answered with an error that begins with an upper-case word, as the server's own do: clients tell
/// errors apart by it. Notes the commands that were asked.
#[track_caller]
fn check_codes(stream: &mut BufReader<TcpStream>, lines: &[&str], asked: &mut BTreeSet<String>) {
    for line in lines {
        let reply = raw_reply(stream, line);
        let error = reply.strip_prefix('-').unwrap_or_else(|| panic!("{line}: no error but {reply}"));
        let code = error.split(' ').next().unwrap();
        let is_code = code.starts_with(|c: char| c.is_ascii_uppercase())
            && code.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        assert!(is_code && error.len() > code.len() + 1, "{line}: {reply}");
        asked.extend(line.split(' ').next().map(str::to_ascii_lowercase));
    }
}

/// What is wrong whatever the settings: counts of words, names, numbers.
const ALWAYS: &[&str] = &[
    "TENURE.HELP me",
    "TENURE.HELP settings all",
    "TENURE.STATUS now",
    "TENURE.PARTITIONS all",
    "TENURE.TENANTS all",
    "TENURE.MRC",
    "TENURE.MRC nobody",
    "TENURE.MRC users",
    "TENURE.MRC users 0",
    "TENURE.MRC users many",
    "TENURE.MRC users 1 2 by-k",
    "TENURE.MRC users by-k",
    "TENURE.WHY",
    "TENURE.WHY a b",
    "TENURE.WHY a",
    "TENURE.LESSONS",
    "TENURE.LESSONS a b c",
    "TENURE.LESSONS 999 0 0",
    "TENURE.TIERS all",
    "TENURE.HELD all",
    "TENURE.SLEEP",
    "TENURE.SLEEP nobody",
    "TENURE.SLEEP users",
    "TENURE.WAKE",
    "TENURE.WAKE nobody",
    "TENURE.WAKE users",
    "TENURE.AWAIT",
    "TENURE.AWAIT GET a",
    "TENURE.CLASS",
    "TENURE.CLASS NONE",
    "TENURE.CLASS KEY a report",
    "TENURE.CLASS GET a",
    "TENURE.DEBUG",
    "TENURE.DEBUG PANIC",
    "TENURE.DEBUG PANIC nobody",
    "TENURE.DEBUG TIER a",
    "TENURE.DEBUG TIER a medium",
    "TENURE.NOTHING",
];
/// What is wrong where classes are on.
const WITH_CLASSES: &[&str] = &[
    "TENURE.CLASS KEY a",
    "TENURE.CLASS KEY a no!name",
    "TENURE.CLASS CONNECTION",
    "TENURE.CLASS CONNECTION no!name",
    "TENURE.CLASS PREFIX a* no!name",
    "TENURE.CLASS PREFIX a report",
    "TENURE.CLASS GET",
    "TENURE.CLASS LIST all",
    "TENURE.WHY a",
];
/// Values that no setting takes.
const SETTINGS: &[&str] = &[
    "CONFIG SET tenure.window-seconds 0",
    "CONFIG SET tenure.window-seconds many",
    "CONFIG SET tenure.enabled perhaps",
    "CONFIG SET tenure.policy best",
    "CONFIG SET tenure.tenants users",
    "CONFIG SET tenure.auto-tenants-delimiter 123456789012345678901234567890",
    "CONFIG SET tenure.class-limits none",
    "CONFIG SET tenure.class-rules none",
    "CONFIG SET tenure.tier-slow nowhere",
    "CONFIG SET tenure.debug-commands no",
    "CONFIG SET tenure.nothing 1",
];
/// What changes something, for users who may not.
const CHANGES: &[&str] = &[
    "TENURE.HELD",
    "TENURE.SLEEP users",
    "TENURE.WAKE users",
    "TENURE.CLASS PREFIX a* report",
    "TENURE.DEBUG PANIC WORKER",
    "TENURE.DEBUG TIER a slow",
];
/// What is answered otherwise while Tenure is stopped.
const STOPPED: &[&str] = &["TENURE.MRC users", "TENURE.TENANTS", "TENURE.CLASS LIST", "TENURE.HELP me"];

#[test]
fn every_error_begins_with_a_code() {
    let options = with_module().set("tenure.tenants", "\"users=u:* jobs=db:1\"").set("tenure.debug-commands", "yes");
    on_every_server(&options, |server| {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", server.port())).unwrap());
        let mut asked = BTreeSet::new();
        let set = |name: &str, value: &str| server.call::<()>(&["CONFIG", "SET", name, value]).unwrap();
        check_codes(&mut stream, ALWAYS, &mut asked);
        check_codes(&mut stream, SETTINGS, &mut asked);
        set("tenure.classes", "hinted");
        set("tenure.policy", "predis");
        check_codes(&mut stream, WITH_CLASSES, &mut asked);
        server
            .call::<()>(&["ACL", "SETUSER", "plain", "on", "nopass", "~*", "+@all", "-@admin", "-@dangerous"])
            .unwrap();
        assert_eq!(raw_reply(&mut stream, "AUTH plain any"), "+OK");
        check_codes(&mut stream, CHANGES, &mut asked);
        set("tenure.enabled", "no");
        wait_for("Tenure to stop", || server.info("tenure").unwrap()["tenure_state"] != "running");
        check_codes(&mut stream, STOPPED, &mut asked);
        // A new command has its errors here, too.
        let names: Vec<String> = server.call(&["COMMAND", "LIST", "FILTERBY", "MODULE", "tenure"]).unwrap();
        let missing: Vec<&String> = names.iter().filter(|name| !name.contains('|') && !asked.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    });
}
