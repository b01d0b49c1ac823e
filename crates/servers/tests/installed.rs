//! The launcher against the server that is installed here.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tenure_servers::{Server, ServerBinary, ServerOptions, wait_for};

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
    wait_for(Duration::from_secs(10), "the write to reach the replica", arrived).unwrap();
}

#[test]
fn a_crash_is_told_to_who_asks() {
    let server = start(&ServerOptions::default());
    let _ = server.call::<()>(&["DEBUG", "SEGFAULT"]);
    wait_for(Duration::from_secs(10), "the end of the crashed server", || !server.is_alive()).unwrap();
    let crash = server.crash().unwrap();
    assert!(crash.contains("BUG REPORT START"), "{crash}");
}

#[test]
#[should_panic(expected = "crashed")]
fn a_crash_nobody_asked_about_fails_the_test() {
    let server = start(&ServerOptions::default());
    let _ = server.call::<()>(&["DEBUG", "SEGFAULT"]);
    wait_for(Duration::from_secs(10), "the end of the crashed server", || !server.is_alive()).unwrap();
}
