//! Who may do what, and when: nobody stops the server or passes a guard of writes by a command of Tenure's, and a
//! user's rights hold for them as for the server's own.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, Value};
use tempfile::TempDir;
use tenure_servers::{Server, ServerBinary};

use crate::harness::{
    CacheAside, add_user, command, config_set, error_of, evicting_in_time, info, login, oldest_and_newest,
    oldest_and_newest_of, on_every_server, partition, send, servers, start, status, that_know_clients, used_memory,
    wait_for, with_module,
};
use crate::sleep::put_to_sleep;

/// May do all but administer.
const PLAIN: [&str; 7] = ["on", ">password", "~*", "&*", "+@all", "-@admin", "-@dangerous"];

#[track_caller]
fn set_user(server: &Server, name: &str, rules: &[&str]) {
    server.call::<()>(&[&["ACL", "SETUSER", name, "reset"], rules].concat()).unwrap();
}

/// The word that an error begins with.
#[track_caller]
fn code_of(connection: &mut Connection, words: &[&str]) -> String {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word));
    match command.query::<Value>(connection) {
        Ok(Value::ServerError(error)) => error.code().to_owned(),
        Ok(reply) => format!("no error but {reply:?}"),
        Err(error) => error.code().unwrap_or_else(|| panic!("{words:?}: {error} has no code")).to_owned(),
    }
}

/// Servers whose ACL categories modules' commands can be in, and those that have one of modules' own.
fn has_categories(binary: &ServerBinary) -> bool {
    !binary.label.starts_with("redis-7.0")
}

/// What stands behind `TENURE.AWAIT`, sent by a client, is not run: not while writes are paused, where it would have
/// stopped the server, nor past any guard of writes.
#[test]
fn a_client_cannot_run_anything_by_the_word_of_those_that_wait() {
    on_every_server(&with_module().set("appendonly", "yes"), |server| {
        set_user(server, "plain", &PLAIN);
        let mut admin = server.connection().unwrap();
        let mut plain = login(server, "plain");
        send::<()>(&mut admin, "SET other value");
        for pause in ["CLIENT PAUSE 60000 WRITE", "CLIENT UNPAUSE"] {
            send::<()>(&mut admin, pause);
            for line in [
                "TENURE.AWAIT SET k 1",
                "TENURE.AWAIT GET other",
                "TENURE.AWAIT TENURE.AWAIT GET other",
                "TENURE.AWAIT",
            ] {
                let error = error_of(&mut plain, line);
                assert!(error.contains("Tenure's own"), "{line}: {error}");
            }
            let script = "return redis.call('TENURE.AWAIT', 'SET', 'k', '1')";
            for eval in ["EVAL_RO", "EVAL"] {
                // Scripts that may write wait for the end of the pause.
                if eval == "EVAL_RO" || pause.ends_with("UNPAUSE") {
                    assert_eq!(code_of(&mut plain, &[eval, script, "0"]), "ERR", "{eval}");
                }
            }
            send::<()>(&mut plain, "MULTI");
            send::<()>(&mut plain, "TENURE.AWAIT SET k 1");
            let replies: Value = command("EXEC").query(&mut plain).unwrap_or(Value::Nil);
            assert!(!format!("{replies:?}").contains("Okay"), "{replies:?}");
        }
        assert_eq!(send::<u64>(&mut admin, "EXISTS k"), 0);
        assert!(server.is_alive());
    });
}

/// The server's guards of writes, and Tenure's own.
#[test]
fn no_guard_of_writes_is_passed() {
    for binary in oldest_and_newest() {
        println!("on {}", binary.label);
        let (primary, replica) = (start(&binary, &with_module()), start(&binary, &with_module()));
        replica.replica_of(&primary).unwrap();
        let mut connection = replica.connection().unwrap();
        config_set(&mut connection, "tenure.classes", "hinted");
        assert_eq!(code_of(&mut connection, &["TENURE.AWAIT", "SET", "k", "1"]), "ERR");
        assert_eq!(code_of(&mut connection, &["TENURE.CLASS", "KEY", "k", "report"]), "READONLY");
        let script = "return redis.call('TENURE.CLASS', 'KEY', KEYS[1], 'report')";
        assert!(!code_of(&mut connection, &["EVAL", script, "1", "k"]).starts_with("no error"));
        let mut connection = primary.connection().unwrap();
        config_set(&mut connection, "tenure.classes", "hinted");
        let error = code_of(&mut connection, &["EVAL_RO", script, "1", "k"]);
        assert_eq!(error, "ERR", "a hint is a write");
        config_set(&mut connection, "min-replicas-to-write", 3);
        assert_eq!(code_of(&mut connection, &["TENURE.AWAIT", "SET", "k", "1"]), "ERR");
        assert_eq!(code_of(&mut connection, &["TENURE.CLASS", "KEY", "k", "report"]), "NOREPLICAS");
        config_set(&mut connection, "min-replicas-to-write", 0);
        config_set(&mut connection, "maxmemory", 1);
        assert_eq!(code_of(&mut connection, &["TENURE.AWAIT", "SET", "k", "1"]), "ERR");
        assert_eq!(send::<u64>(&mut connection, "EXISTS k"), 0);
    }
}

/// What counts as a read of a sleeping key and writes all the same (`GETEX` a time to live, `PFCOUNT` its count) is
/// guarded as the write that it is.
#[test]
fn reads_that_write_are_guarded_where_their_key_sleeps() {
    for binary in that_know_clients(servers()) {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let options =
            with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.spill-dir", folder.path().display());
        let server = start(&binary, &options.set("appendonly", "yes"));
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "SET k value");
        send::<()>(&mut connection, "PFADD counted a b c");
        put_to_sleep(&server);
        config_set(&mut connection, "min-replicas-to-write", 1);
        assert_eq!(code_of(&mut connection, &["GETEX", "k", "EX", "1000"]), "NOREPLICAS");
        config_set(&mut connection, "min-replicas-to-write", 0);
        assert_eq!(send::<i64>(&mut connection, "TTL k"), -1);
        assert_eq!(send::<u64>(&mut connection, "PFCOUNT counted"), 3);
        assert_eq!(send::<String>(&mut connection, "GET k"), "value");
        let stats = server.info("commandstats").unwrap();
        assert!(!stats.contains_key("cmdstat_tenure.await"), "{stats:?}");
    }
}

/// A reader waits alone, within its rights, and any word of a command may be the name of a key that sleeps.
#[test]
fn a_read_behind_the_word_keeps_to_its_users_rights() {
    for binary in that_know_clients(servers()) {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let options =
            with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.spill-dir", folder.path().display());
        let server = start(&binary, &options.set("appendonly", "yes"));
        let mut connection = server.connection().unwrap();
        ["SET app:k value", "SET other:k value", "SET PAUSE word"].iter().for_each(|line| send(&mut connection, line));
        add_user(&server, "app", "~app:*");
        let mut app = login(&server, "app");
        put_to_sleep(&server);
        assert_eq!(code_of(&mut app, &["GET", "other:k"]), "NOPERM");
        // What was refused leaves nothing behind that could be used again.
        assert_eq!(code_of(&mut app, &["TENURE.AWAIT", "GET", "other:k"]), "ERR");
        assert_eq!(send::<String>(&mut app, "GET app:k"), "value");
        assert_eq!(code_of(&mut app, &["TENURE.AWAIT", "GET", "app:k"]), "ERR");
        send::<()>(&mut connection, "CLIENT PAUSE 50 WRITE");
        send::<()>(&mut connection, "SET after pause");
        assert_eq!(send::<String>(&mut connection, "GET PAUSE"), "word");
    }
}

/// A pause keeps the data set as it is, by Tenure too: what it would evict, or wake, waits.
#[test]
fn nothing_is_evicted_while_writes_are_paused() {
    for binary in oldest_and_newest() {
        println!("on {}", binary.label);
        let server = start(&binary, &evicting_in_time().set("appendonly", "yes"));
        let mut connection = server.connection().unwrap();
        CacheAside::new(server.connection().unwrap(), "k:", 3000, 1000).read_all();
        let keys: u64 = send(&mut connection, "DBSIZE");
        send::<()>(&mut connection, "CLIENT PAUSE 600000 WRITE");
        config_set(&mut connection, "maxmemory", used_memory(&server) / 2);
        wait_for("Tenure to see the pause", || status(&mut connection)["eviction"].contains("writes are paused"));
        assert_eq!((send::<u64>(&mut connection, "DBSIZE"), info(&server, "evictions")), (keys, 0.0));
        send::<()>(&mut connection, "CLIENT UNPAUSE");
        wait_for("keys to go", || send::<u64>(&mut connection, "DBSIZE") < keys);
    }
}

#[test]
fn what_is_to_wake_while_writes_are_paused_wakes_afterwards() {
    for binary in oldest_and_newest_of(that_know_clients(servers())) {
        println!("on {}", binary.label);
        let folder = TempDir::new().unwrap();
        let options =
            with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.spill-dir", folder.path().display());
        let server = start(&binary, &options.set("appendonly", "yes"));
        let mut connection = server.connection().unwrap();
        (0..100).for_each(|key| send(&mut connection, &format!("SET k:{key} value")));
        put_to_sleep(&server);
        send::<()>(&mut connection, "CLIENT PAUSE 600000 WRITE");
        send::<()>(&mut connection, "TENURE.WAKE db0");
        // Some turns, and a tick: a pause tells nothing of itself.
        let ticks = || server.info("server").unwrap()["uptime_in_seconds"].parse::<u64>().unwrap();
        let began = ticks();
        wait_for("a second to pass", || ticks() > began + 1);
        assert_eq!(send::<u64>(&mut connection, "DBSIZE"), 0);
        send::<()>(&mut connection, "CLIENT UNPAUSE");
        wait_for("all to wake", || send::<u64>(&mut connection, "DBSIZE") == 100);
        assert_eq!(info(&server, "sleeping_keys"), 0.0);
    }
}

/// Each command as it is written, on a key where it names one.
const LOOKS_AT_ALL: [&str; 7] = [
    "TENURE.HELP",
    "TENURE.STATUS",
    "TENURE.PARTITIONS",
    "TENURE.TENANTS",
    "TENURE.TIERS",
    "TENURE.CLASS LIST",
    "TENURE.CLASS HELP",
];
const CHANGES: [&str; 6] = [
    "TENURE.HELD",
    "TENURE.SLEEP db0",
    "TENURE.WAKE db0",
    "TENURE.CLASS PREFIX app:* report",
    "TENURE.DEBUG PANIC TURN",
    "TENURE.DEBUG TIER app:k",
];

#[test]
fn who_may_not_administer_changes_nothing_for_everybody() {
    on_every_server(&with_module().set("tenure.classes", "hinted").set("tenure.debug-commands", "yes"), |server| {
        set_user(server, "plain", &PLAIN);
        let mut plain = login(server, "plain");
        send::<()>(&mut plain, "SET app:k value");
        for line in CHANGES {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(code_of(&mut plain, &words), "NOPERM", "{line}");
            send::<()>(&mut plain, "MULTI");
            let queued = command(line).query::<Value>(&mut plain);
            let all = command("EXEC").query::<Value>(&mut plain);
            let told = format!("{queued:?} {all:?}").to_ascii_uppercase();
            assert!(told.contains("NOPERM"), "{line}: {told}");
            let arguments = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(",");
            let script = format!("return redis.call({arguments})");
            assert!(!code_of(&mut plain, &["EVAL", &script, "0"]).starts_with("no error"), "{line}");
            let library =
                format!("#!lua name=l\nredis.register_function('f', function() return redis.call({arguments}) end)");
            server.call::<()>(&["FUNCTION", "LOAD", "REPLACE", &library]).unwrap();
            assert!(!code_of(&mut plain, &["FCALL", "f", "0"]).starts_with("no error"), "{line}");
        }
        LOOKS_AT_ALL.iter().for_each(|line| _ = send::<Value>(&mut plain, line));
        let mut admin = server.connection().unwrap();
        assert_eq!(send::<Vec<String>>(&mut admin, "CONFIG GET tenure.class-rules")[1], "");
        send::<()>(&mut admin, "TENURE.CLASS PREFIX app:* report");
        assert_eq!(status(&mut admin)["state"], "running");
    });
}

#[test]
fn a_key_is_told_of_to_those_who_may_use_it() {
    on_every_server(&with_module().set("tenure.classes", "hinted"), |server| {
        let mut admin = server.connection().unwrap();
        add_user(server, "app", "~app:*");
        set_user(server, "looker", &["on", ">password", "%R~app:*", "+@all"]);
        let (mut app, mut looker) = (login(server, "app"), login(server, "looker"));
        for key in ["app:k", "other:k"] {
            send::<()>(&mut admin, &format!("SET {key} value"));
        }
        wait_for("the partition to be known", || partition(&mut admin, "db0")["keys"] == 2.0);
        for line in ["TENURE.WHY other:k", "TENURE.CLASS GET other:k", "TENURE.CLASS KEY other:k report"] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(code_of(&mut app, &words), "NOPERM", "{line}");
            let arguments = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(",");
            let code = code_of(&mut app, &["EVAL", &format!("return redis.call({arguments})"), "0"]);
            assert!(["NOPERM", "ERR"].contains(&code.as_str()), "{line}: {code}");
            send::<()>(&mut app, "MULTI");
            assert_eq!(code_of(&mut app, &words), "NOPERM", "{line}");
            assert_eq!(code_of(&mut app, &["EXEC"]), "EXECABORT");
        }
        send::<()>(&mut app, "TENURE.CLASS KEY app:k report");
        assert_eq!(code_of(&mut looker, &["TENURE.CLASS", "KEY", "app:k", "other"]), "NOPERM");
        for connection in [&mut app, &mut looker] {
            assert!(format!("{:?}", send::<Value>(connection, "TENURE.CLASS GET app:k")).contains("report"));
            send::<Value>(connection, "TENURE.WHY app:k");
        }
    });
}

#[test]
fn categories_say_who_may_look_and_who_may_change() {
    for binary in servers().into_iter().filter(has_categories) {
        println!("on {}", binary.label);
        let server = start(&binary, &with_module().set("tenure.classes", "hinted"));
        set_user(&server, "reader", &["on", ">password", "~app:*", "-@all", "+@read"]);
        set_user(&server, "tenure", &["on", ">password", "~app:*", "-@all", "+@tenure"]);
        let (mut reader, mut tenure) = (login(&server, "reader"), login(&server, "tenure"));
        for connection in [&mut reader, &mut tenure] {
            LOOKS_AT_ALL.iter().for_each(|line| _ = send::<Value>(connection, line));
            send::<Value>(connection, "TENURE.CLASS GET app:k");
        }
        for line in CHANGES.into_iter().chain(["TENURE.CLASS KEY app:k report", "TENURE.CLASS CONNECTION report"]) {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(code_of(&mut reader, &words), "NOPERM", "{line}");
        }
        send::<()>(&mut tenure, "TENURE.CLASS PREFIX app:* report");
        let of =
            |category| -> Vec<String> { server.call(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", category]).unwrap() };
        let (of_tenure, of_admin) = (of("tenure"), of("admin"));
        for name in ["tenure.await", "tenure.why", "tenure.class|key", "tenure.class|prefix", "tenure.sleep"] {
            assert!(of_tenure.iter().any(|held| held == name), "{name} in {of_tenure:?}");
        }
        assert!(of_admin.iter().any(|held| held == "tenure.class|prefix"), "{of_admin:?}");
        assert!(!of_admin.iter().any(|held| held == "tenure.class|key"), "{of_admin:?}");
    }
}

/// Rights as most people give them to an application: to read and write, or all but what is dangerous.
#[test]
fn who_reads_and_writes_looks_and_hints() {
    for binary in servers().into_iter().filter(has_categories) {
        println!("on {}", binary.label);
        let server = start(&binary, &with_module().set("tenure.classes", "hinted"));
        let rights: [&[&str]; 2] = [&["-@all", "+@read", "+@write"], &["+@all", "-@dangerous"]];
        for rules in rights {
            set_user(&server, "app", &[&["on", ">password", "~app:*"], rules].concat());
            let mut app = login(&server, "app");
            LOOKS_AT_ALL.iter().for_each(|line| _ = send::<Value>(&mut app, line));
            for line in ["TENURE.CLASS KEY app:k report", "TENURE.CLASS CONNECTION none", "TENURE.CLASS GET app:k"] {
                send::<Value>(&mut app, line);
            }
            for line in CHANGES.into_iter().chain(["TENURE.CLASS KEY other:k report", "TENURE.WHY other:k"]) {
                let words: Vec<&str> = line.split(' ').collect();
                assert_eq!(code_of(&mut app, &words), "NOPERM", "{rules:?}: {line}");
            }
        }
    }
}

/// The fields of one command's documentation, by name.
fn documentation(connection: &mut Connection, name: &str) -> BTreeMap<String, Value> {
    let docs: Vec<Value> = send(connection, &format!("COMMAND DOCS {name}"));
    let [told, fields] = &docs[..] else { panic!("COMMAND DOCS {name}: {docs:?}") };
    assert_eq!(redis::from_redis_value::<String>(told.clone()).unwrap(), name);
    redis::from_redis_value(fields.clone()).unwrap()
}

/// Each of them, and each subcommand, as TENURE.HELP has it: what it is about, and what it takes.
#[test]
fn every_command_is_described_as_its_help() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let help: Vec<String> = send(&mut connection, "TENURE.HELP");
        let of_commands: Vec<&[String]> = help.chunks(2).filter(|pair| pair[0].starts_with("TENURE.")).collect();
        let mut told = BTreeSet::new();
        for pair in of_commands {
            let words: Vec<&str> = pair[0].split(' ').collect();
            let is_container = ["TENURE.CLASS", "TENURE.DEBUG"].contains(&words[0]);
            let n_names = if is_container { 2 } else { 1 };
            let name = words[..n_names].join("|").to_ascii_lowercase();
            let docs = documentation(&mut connection, &name);
            let text = |field: &str| -> String {
                redis::from_redis_value(docs.get(field).unwrap_or_else(|| panic!("{name} has no {field}")).clone())
                    .unwrap()
            };
            assert_eq!(text("summary"), pair[1].trim(), "{name}");
            assert_eq!((text("since"), text("group")), ("0.1.0".to_owned(), "module".to_owned()), "{name}");
            assert!(text("complexity").starts_with("O("), "{name}");
            let takes = &words[n_names..];
            let arguments: Vec<Value> =
                docs.get("arguments").map_or(Vec::new(), |value| redis::from_redis_value(value.clone()).unwrap());
            assert_eq!(arguments.len(), takes.len(), "{name}: {arguments:?}");
            let is_optional = |word: &&&str| word.starts_with('[');
            for (argument, word) in arguments.iter().zip(takes) {
                assert_eq!(format!("{argument:?}").contains("optional"), is_optional(&word), "{name}: {argument:?}");
            }
            let info: Vec<Vec<Value>> = send(&mut connection, &format!("COMMAND INFO {name}"));
            let arity: i64 = redis::from_redis_value(info[0][1].clone()).unwrap();
            let n_needed = (n_names + takes.iter().filter(|word| !is_optional(word)).count()) as i64;
            let has_optional = takes.iter().any(|word| word.starts_with('['));
            assert_eq!(arity, if has_optional { -n_needed } else { n_needed }, "{name}");
            told.insert(name);
        }
        // TENURE.AWAIT is in no help: it is Tenure's own.
        let names: Vec<String> = send(&mut connection, "COMMAND LIST FILTERBY MODULE tenure");
        let containers = ["tenure.class", "tenure.debug", "tenure.await"];
        let untold: Vec<&String> =
            names.iter().filter(|name| !told.contains(*name) && !containers.contains(&name.as_str())).collect();
        assert!(untold.is_empty(), "{untold:?}");
        for name in containers {
            let docs = documentation(&mut connection, name);
            assert!(["summary", "since", "complexity"].iter().all(|field| docs.contains_key(*field)), "{docs:?}");
        }
    });
}

/// What `COMMAND` tells of each: words, keys, and what it is about.
#[test]
fn commands_are_described_to_the_server() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        let keys: Vec<String> = send(&mut connection, "COMMAND GETKEYS TENURE.CLASS KEY k report");
        assert_eq!(keys, ["k"]);
        let keys: Vec<String> = send(&mut connection, "COMMAND GETKEYS TENURE.WHY k");
        assert_eq!(keys, ["k"]);
        let docs = format!("{:?}", send::<Value>(&mut connection, "COMMAND DOCS tenure.mrc"));
        assert!(docs.contains("points") && docs.contains("BY-K"), "{docs}");
        let help: Vec<String> = send(&mut connection, "TENURE.CLASS HELP");
        assert!(help.contains(&"TENURE.CLASS KEY key class|none".to_owned()), "{help:?}");
        assert!(error_of(&mut connection, "TENURE.CLASS FORGET k").contains("TENURE.CLASS HELP"));
    });
}
