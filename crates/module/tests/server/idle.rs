//! A server that nobody asks is left alone: Tenure wakes seldom, and asks the server for little.

use std::path::Path;
use std::time::{Duration, Instant};

use tenure_servers::Server;

use crate::harness::{config_set, info, on_oldest_and_newest, send, status, wait_for, with_module};

/// What `/proc` has of the worker's thread under that name; nothing before the thread has told its own.
fn of_worker(server: &Server, name: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().map(|task| task.unwrap().path());
    let read = |task: &Path, name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
    let mut workers = tasks.filter(|task| read(task, "comm").trim() == "tenure-worker");
    workers.next().map(|task| read(&task, name)).unwrap_or_default()
}

/// How often the worker has gone to sleep.
fn naps(server: &Server) -> u64 {
    let status = of_worker(server, "status");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("a count")
}

/// `SCHED_BATCH`: where it shares a core with the server, a command that comes doesn't wait for its models.
#[test]
fn the_worker_lets_the_server_go_first() {
    on_oldest_and_newest(&with_module(), |server| {
        // The 41st field; the second is a name in brackets.
        let policy =
            || of_worker(server, "stat").rsplit(") ").next().and_then(|rest| rest.split(' ').nth(38)?.parse().ok());
        wait_for("it to have said so", || policy() == Some(3));
    });
}

#[test]
fn an_idle_server_is_left_alone() {
    on_oldest_and_newest(&with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru"), |server| {
        let mut connection = server.connection().unwrap();
        wait_for("a window", || {
            (0..300).for_each(|key| send::<()>(&mut connection, &format!("GET key:{key}")));
            info(server, "windows") >= 1.0
        });
        server.call::<()>(&["CONFIG", "RESETSTAT"]).unwrap();
        let (began, before) = (Instant::now(), naps(server));
        wait_for("three seconds", || began.elapsed() >= Duration::from_secs(3));
        let a_second = (naps(server) - before) as f64 / began.elapsed().as_secs_f64();
        // A nap of 150 ms each; of 10 ms they are a hundred, where the machine has time.
        assert!(a_second > 0.0 && a_second < 30.0, "{a_second}");
        let stats = server.info("commandstats").unwrap();
        assert!(stats.keys().all(|name| !name.starts_with("cmdstat_config|get")), "{stats:?}");
        // What it doesn't ask for, it is told.
        config_set(&mut connection, "maxmemory-policy", "noeviction");
        wait_for("the policy", || status(&mut connection)["eviction"].contains("noeviction"));
        let windows = info(server, "windows");
        wait_for("windows to end", || {
            send::<()>(&mut connection, "GET key");
            info(server, "windows") > windows
        });
    });
}
