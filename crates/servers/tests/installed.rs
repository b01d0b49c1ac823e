//! The launcher against the server that is installed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenure_servers::{Server, ServerBinary, ServerOptions, wait_for};

/// Longer than anything takes that is waited for here.
const DEADLINE: Duration = Duration::from_secs(60);

fn start(options: &ServerOptions) -> Server {
    Server::start(&ServerBinary::installed().unwrap(), options).unwrap()
}

/// The `Cpus_allowed_list` of a process, as the kernel tells it.
fn cpus_allowed(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
    line.split_whitespace().nth(1).unwrap().to_string()
}

#[test]
fn every_server_of_this_machine_answers_with_its_version() {
    let servers = ServerBinary::all().unwrap();
    assert!(servers.is_sorted_by_key(|server| (server.version, server.product)));
    for binary in servers {
        let server = Server::start(&binary, &ServerOptions::default()).unwrap();
        let info = server.info("server").unwrap();
        let version = info.get("valkey_version").or(info.get("redis_version")).unwrap();
        assert_eq!(binary.label, format!("{}-{version}", binary.product.name()));
        assert_eq!(info["process_id"], server.pid().to_string());
    }
}

#[test]
fn servers_side_by_side_do_not_meet() {
    let servers: Vec<Server> = (0..3).map(|_| start(&ServerOptions::default())).collect();
    for (i, server) in servers.iter().enumerate() {
        server.call::<()>(&["SET", "who", &i.to_string()]).unwrap();
    }
    for (i, server) in servers.iter().enumerate() {
        assert_eq!(server.call::<usize>(&["GET", "who"]).unwrap(), i);
    }
}

#[test]
fn settings_and_core_are_as_asked() {
    let server = start(&ServerOptions::default().set("maxmemory", "64mb").set("notify-keyspace-events", "").on_cpu(0));
    let maxmemory: (String, u64) = server.call(&["CONFIG", "GET", "maxmemory"]).unwrap();
    assert_eq!(maxmemory.1, 64 << 20);
    let snapshots: (String, String) = server.call(&["CONFIG", "GET", "save"]).unwrap();
    assert_eq!(snapshots.1, "");
    assert_eq!(cpus_allowed(server.pid()), "0");
}

#[test]
fn wrapper_and_environment_reach_the_server() {
    let script = "echo \"wrapped: $TENURE_PROBE\"; exec \"$@\"";
    let options = ServerOptions {
        environment: vec![("TENURE_PROBE".to_string(), "seen".to_string())],
        wrapper: ["sh", "-c", script, "sh"].map(str::to_string).to_vec(),
        ..ServerOptions::default()
    };
    assert!(start(&options).log().starts_with("wrapped: seen\n"));
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let options = ServerOptions::default().set("no-such-setting", "1");
    let error = Server::start(&ServerBinary::installed().unwrap(), &options).unwrap_err().to_string();
    assert!(error.contains("no-such-setting"), "{error}");
}

#[test]
fn a_module_that_does_not_load_is_named() {
    let options = ServerOptions::default().with_module("/no/such/module.so");
    let error = Server::start(&ServerBinary::installed().unwrap(), &options).unwrap_err().to_string();
    assert!(error.contains("/no/such/module.so"), "{error}");
}

#[test]
fn restart_keeps_port_folder_and_rewritten_settings() {
    let mut server = start(&ServerOptions::default().set("appendonly", "yes").set("appendfsync", "always"));
    let (port, directory) = (server.port(), server.directory().to_path_buf());
    server.call::<()>(&["SET", "kept", "1"]).unwrap();
    server.call::<()>(&["CONFIG", "SET", "maxmemory-samples", "7"]).unwrap();
    server.call::<()>(&["CONFIG", "REWRITE"]).unwrap();
    server.restart().unwrap();
    assert_eq!((server.port(), server.directory()), (port, directory.as_path()));
    assert_eq!(server.call::<u64>(&["GET", "kept"]).unwrap(), 1);
    assert_eq!(server.call::<(String, u64)>(&["CONFIG", "GET", "maxmemory-samples"]).unwrap().1, 7);

    server.kill();
    assert!(!server.is_alive());
    assert_eq!(server.crash(), None);
    server.restart().unwrap();
    assert_eq!(server.call::<u64>(&["GET", "kept"]).unwrap(), 1);
}

#[test]
fn nothing_stays_behind() {
    let mut server = start(&ServerOptions::default());
    let directory = server.directory().to_path_buf();
    let process = PathBuf::from(format!("/proc/{}", server.pid()));
    assert!(directory.is_dir() && process.is_dir());
    server.stop().unwrap();
    assert!(!server.is_alive() && directory.is_dir());
    drop(server);
    assert!(!directory.exists() && !process.exists());

    let dropped_alive = start(&ServerOptions::default());
    let process = PathBuf::from(format!("/proc/{}", dropped_alive.pid()));
    drop(dropped_alive);
    assert!(!process.exists());
}

#[test]
fn a_replica_follows_its_primary() {
    let primary = start(&ServerOptions::default());
    primary.call::<()>(&["SET", "before", "1"]).unwrap();
    let replica = start(&ServerOptions::default());
    replica.replica_of(&primary).unwrap();
    assert_eq!(replica.call::<u64>(&["GET", "before"]).unwrap(), 1);
    primary.call::<()>(&["SET", "after", "2"]).unwrap();
    let arrived = || replica.call::<Option<u64>>(&["GET", "after"]).unwrap() == Some(2);
    wait_for(DEADLINE, "the write to reach the replica", arrived).unwrap();
}

#[test]
fn a_crash_is_told_to_who_asks() {
    let server = start(&ServerOptions::default());
    let _ = server.call::<()>(&["DEBUG", "SEGFAULT"]);
    wait_for(DEADLINE, "the end of the crashed server", || !server.is_alive()).unwrap();
    let crash = server.crash().unwrap();
    assert!(crash.contains("BUG REPORT START"), "{crash}");
}

#[test]
#[should_panic(expected = "crashed")]
fn a_crash_nobody_asked_about_fails_the_test() {
    let server = start(&ServerOptions::default());
    let _ = server.call::<()>(&["DEBUG", "SEGFAULT"]);
    wait_for(DEADLINE, "the end of the crashed server", || !server.is_alive()).unwrap();
}

/// Who waits for a reply of a server that hangs gets an error once the server's time is over.
#[test]
fn a_server_that_hangs_is_ended() {
    let lifetime = Some(Duration::from_secs(3));
    let server = start(&ServerOptions { lifetime, ..ServerOptions::default() });
    let mut connection = server.connection().unwrap();
    server.halt().unwrap();
    redis::cmd("PING").exec(&mut connection).unwrap_err();
    // Killed from outside, it counts as crashed, as soon as it has gone: its connections end before.
    wait_for(DEADLINE, "the server to be gone", || server.crash().is_some()).unwrap();
}

/// What `./run` would take, in the words of `choose_server` in scripts/lib.sh: path and reason.
fn chosen(variables: &[(&str, &Path)]) -> (String, String) {
    let script = "source scripts/lib.sh; choose_server; printf '%s\\n%s\\n' \"$server\" \"$server_why\"";
    let mut bash = Command::new("bash");
    bash.arg("-ec").arg(script).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    bash.env_remove("TENURE_SERVER").envs(variables.iter().copied());
    let output = bash.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (server, why) = text.trim_end().split_once('\n').unwrap();
    (server.to_owned(), why.to_owned())
}

/// A program on the PATH that says that it is a server of that version; all else of the PATH follows.
fn says_it_is(folder: &Path, product: &str, version: &str) -> std::path::PathBuf {
    let name = format!("{}-server", product.to_lowercase());
    let program = folder.join(&name);
    std::fs::write(&program, format!("#!/bin/sh\necho '{product} server v={version} sha=0 bits=64'\n")).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    program
}

#[test]
fn run_takes_what_can_do_all_and_says_why() {
    let (on_path, unpacked) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = format!("{}:{}", on_path.path().display(), std::env::var("PATH").unwrap());
    let variables = [("PATH", Path::new(&path)), ("TENURE_SERVERS_DIR", unpacked.path())];

    let valkey = says_it_is(on_path.path(), "Valkey", "8.1.4");
    assert_eq!(chosen(&variables), (valkey.display().to_string(), "installed".to_owned()));

    // Replies can't be held there: the newest of those that were unpacked is better.
    says_it_is(on_path.path(), "Valkey", "7.2.5");
    for (product, version) in [("Redis", "8.0.6"), ("Valkey", "8.0.1"), ("Valkey", "9.1.2"), ("Redis", "7.4.1")] {
        let bin = unpacked.path().join(format!("{}-{version}/usr/bin", product.to_lowercase()));
        std::fs::create_dir_all(&bin).unwrap();
        says_it_is(&bin, product, version);
    }
    let (server, why) = chosen(&variables);
    assert!(server.ends_with("valkey-9.1.2/usr/bin/valkey-server"), "{server}");
    assert!(why.starts_with("the installed valkey 7.2.5 lacks held replies"), "{why}");

    let asked_for = says_it_is(on_path.path(), "Redis", "7.0.15");
    let given = [&variables[..], &[("TENURE_SERVER", asked_for.as_path())]].concat();
    assert_eq!(chosen(&given), (asked_for.display().to_string(), "asked for".to_owned()));
}
