//! Failing open: whatever breaks inside Tenure, the server serves on as stock, and says what happened.

use std::collections::HashSet;

use tempfile::TempDir;
use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    Checker, EvictedKeys, command, config_get, config_set, error_of, evicted_by_server, info, limit_memory,
    oldest_and_newest_of, on_oldest_and_newest, send, servers, start, status, that_know_clients, wait_for, with_module,
};
use crate::sleep::put_to_sleep;

const MB: u64 = 1 << 20;
/// What the checking client works on: about 20 MB.
const KEYS: u64 = 20_000;
const VALUE_BYTES: usize = 1000;

fn evicting() -> ServerOptions {
    let options = with_module().set("maxmemory-policy", "allkeys-lru");
    ServerOptions { module_args: vec!["debug-commands".to_owned(), "yes".to_owned()], ..options }
}

fn state(server: &Server) -> String {
    server.info("tenure").unwrap()["tenure_state"].clone()
}

/// A server with a checking client on it whose keys don't fit, once Tenure evicts.
fn under_load(server: &Server) -> (Checker, EvictedKeys) {
    limit_memory(server, 10 * MB);
    let evicted = EvictedKeys::of(server);
    let checker = Checker::start(server, KEYS, VALUE_BYTES);
    wait_for("Tenure to evict", || info(server, "evictions") > 100.0);
    (checker, evicted)
}

/// Nothing acknowledged is lost but what was evicted, and every eviction was told.
fn check_all_there(server: &Server, checker: Checker, evicted: &EvictedKeys) {
    let gone = checker.finish(server);
    let told: HashSet<Vec<u8>> = evicted.all().into_iter().map(|(_, key)| key).collect();
    let lost: Vec<_> = gone.iter().filter(|key| !told.contains(*key)).collect();
    assert!(lost.is_empty(), "{} keys are gone that were not evicted", lost.len());
    assert!(!gone.is_empty(), "nothing was evicted, so nothing was tested");
}

#[test]
fn a_panic_on_the_main_thread_turns_tenure_off_and_nothing_else() {
    on_oldest_and_newest(&evicting(), |server| {
        let (checker, evicted) = under_load(server);
        let mut connection = server.connection().unwrap();
        let places = [
            ("FILTER", "in the command filter"),
            ("TURN", "in the end of a turn"),
            ("COMMAND", "in a command"),
            ("VISIT", "in a command"),
        ];
        for (n, (place, name)) in places.iter().enumerate() {
            let evicted_before = evicted_by_server(server);
            // What panics itself is answered with an error.
            drop(command(&format!("TENURE.DEBUG PANIC {place}")).query::<redis::Value>(&mut connection));
            wait_for("the fault", || state(server) == "failed");
            let fields = server.info("tenure").unwrap();
            assert_eq!(fields["tenure_panics"], (n + 1).to_string());
            let told = &fields["tenure_last_panic"];
            assert!(
                told.contains(name) && told.contains("asked to by TENURE.DEBUG") && told.contains(".rs:"),
                "{told}"
            );
            assert_eq!(status(&mut connection)["state"], "failed");
            assert!(error_of(&mut connection, "TENURE.PARTITIONS").contains("Tenure does not run"));
            wait_for("the server's own eviction", || evicted_by_server(server) > evicted_before + 100);
            checker.wait_for_rounds(50);
            assert_eq!(server.log().matches("Tenure has turned itself off after a fault").count(), n + 1);

            // What is set is known all the same: CONFIG REWRITE writes it down.
            assert_eq!(config_get(&mut connection, "tenure.samples"), "5");
            assert_eq!(config_get(&mut connection, "tenure.enabled"), "yes");
            config_set(&mut connection, "tenure.tenants", "a=a:*");
            assert_eq!(config_get(&mut connection, "tenure.tenants"), "a=a:*");
            config_set(&mut connection, "tenure.tenants", "");
            assert_eq!(state(server), "failed");

            let evictions = info(server, "evictions");
            config_set(&mut connection, "tenure.enabled", "yes");
            wait_for("Tenure to start again", || state(server) == "running");
            wait_for("Tenure to evict again", || info(server, "evictions") > evictions + 100.0);
        }
        check_all_there(server, checker, &evicted);
    });
}

#[test]
fn without_its_worker_tenure_stands_by_until_it_is_started_again() {
    on_oldest_and_newest(&evicting(), |server| {
        let (checker, evicted) = under_load(server);
        let mut connection = server.connection().unwrap();
        let evicted_before = evicted_by_server(server);
        send::<()>(&mut connection, "TENURE.DEBUG PANIC WORKER");
        wait_for("the worker's end", || status(&mut connection)["worker"] == "dead");
        assert_eq!(state(server), "running", "it watches on");
        let told = server.info("tenure").unwrap()["tenure_last_panic"].clone();
        assert!(told.contains("in the worker") && told.contains("asked to by TENURE.DEBUG"), "{told}");
        wait_for("the server's own eviction", || evicted_by_server(server) > evicted_before + 100);
        assert!(status(&mut connection)["eviction"].contains("the worker"), "{:?}", status(&mut connection));
        assert_eq!(server.log().matches("the worker has died").count(), 1);
        // Nobody empties the queue: what it can't take is dropped and counted.
        wait_for("the queue to be full", || info(server, "samples_dropped_queue") > 0.0);
        checker.wait_for_rounds(50);

        let evictions = info(server, "evictions");
        config_set(&mut connection, "tenure.enabled", "yes");
        wait_for("a worker", || status(&mut connection)["worker"] == "running");
        wait_for("Tenure to evict again", || info(server, "evictions") > evictions + 100.0);
        check_all_there(server, checker, &evicted);
    });
}

#[test]
fn tenure_is_turned_off_and_on_under_load() {
    on_oldest_and_newest(&evicting(), |server| {
        let (checker, evicted) = under_load(server);
        let mut connection = server.connection().unwrap();
        for _ in 0..3 {
            let evicted_before = evicted_by_server(server);
            config_set(&mut connection, "tenure.enabled", "no");
            wait_for("Tenure to stop", || state(server) == "stopped");
            wait_for("the server's own eviction", || evicted_by_server(server) > evicted_before + 10);
            checker.wait_for_rounds(20);
            let evictions = info(server, "evictions");
            config_set(&mut connection, "tenure.enabled", "yes");
            wait_for("Tenure to evict again", || state(server) == "running" && info(server, "evictions") > evictions);
            checker.wait_for_rounds(20);
        }
        check_all_there(server, checker, &evicted);
    });
}

/// Under a limit that Tenure's own memory would fill the server serves as stock. Tenure runs once the limit is higher.
#[test]
fn a_limit_too_low_for_tenure_is_left_to_the_server() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("maxmemory", "3mb");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        wait_for("Tenure to stand aside", || state(server) == "no-room");
        let value = "v".repeat(500);
        (0..10_000).for_each(|i| redis::cmd("SET").arg(i).arg(&value).exec(&mut connection).unwrap());
        assert!(evicted_by_server(server) > 1_000 && info(server, "memory_bytes") < 65_536.0);
        let error = error_of(&mut connection, "TENURE.TENANTS");
        assert!(error.contains("maxmemory is below 4mb"), "{error}");
        assert!(status(&mut connection)["eviction"].contains("maxmemory is below 4mb"));

        config_set(&mut connection, "maxmemory", "64mb");
        wait_for("Tenure to run", || state(server) == "running");
        config_set(&mut connection, "maxmemory", "3mb");
        wait_for("Tenure to stand aside again", || state(server) == "no-room");
        config_set(&mut connection, "tenure.enabled", "no");
        assert_eq!(state(server), "stopped");
        config_set(&mut connection, "maxmemory", "64mb");
        config_set(&mut connection, "tenure.enabled", "yes");
        wait_for("Tenure to run where it is enabled", || state(server) == "running");
    });
}

/// What sleeps would be gone without Tenure: it runs under a low limit, too.
#[test]
fn a_low_limit_takes_no_sleepers() {
    for binary in oldest_and_newest_of(that_know_clients(servers())) {
        let folder = TempDir::new().unwrap();
        let options = with_module().set("maxmemory", "64mb").set("maxmemory-policy", "allkeys-lru");
        let server = start(&binary, &options.set("tenure.spill-dir", folder.path().display()));
        let mut connection = server.connection().unwrap();
        wait_for("values to be able to sleep", || status(&mut connection)["sleep"] == "ready");
        config_set(&mut connection, "tenure.window-seconds", 1);
        send::<()>(&mut connection, "SET k value");
        put_to_sleep(&server);
        config_set(&mut connection, "maxmemory", "3mb");
        wait_for("the low limit to be seen", || status(&mut connection)["maxmemory_bytes"] == "3145728");
        let windows = info(&server, "windows");
        wait_for("Tenure to go on", || info(&server, "windows") > windows + 1.0);
        assert_eq!(send::<String>(&mut connection, "GET k"), "value");
        config_set(&mut connection, "tenure.spill-dir", "");
        wait_for("Tenure to stand aside", || state(&server) == "no-room");
        config_set(&mut connection, "tenure.spill-dir", folder.path().display());
        wait_for("values to be able to sleep again", || {
            status(&mut connection).get("sleep").is_some_and(|sleep| sleep == "ready")
        });
    }
}

/// More sampled keys in one turn than there is room for: they are dropped and counted, the counters stay exact.
#[test]
fn a_turn_with_more_keys_than_the_ring_has_room_for() {
    on_oldest_and_newest(&evicting(), |server| {
        let mut connection = server.connection().unwrap();
        let keys: Vec<String> = (0..20_000).map(|i| format!("key:{i}")).collect();
        redis::cmd("MGET").arg(&keys).exec(&mut connection).unwrap();
        let long = "k".repeat(100_000);
        (0..5).for_each(|i| redis::cmd("SET").arg(format!("{long}{i}")).arg(1).exec(&mut connection).unwrap());
        assert!(info(server, "samples_dropped_turn") > 10_000.0);
        let row = crate::harness::partition(&mut connection, "db0");
        assert_eq!((row["reads"], row["misses"], row["writes"]), (20_000.0, 20_000.0, 5.0));
        assert_eq!(info(server, "panics"), 0.0);
    });
}

/// Valkey 8.1 and 9.0 leave a client whose command raised an event of another database there, where a module listens.
#[test]
fn a_client_stays_in_its_database_whatever_another_hears_of() {
    let lines = [
        "SELECT 1",
        "SET a 1",
        "SET b 1",
        "MOVE a 2",
        "MOVE b 2",
        "DBSIZE",
        "SET c 1",
        "COPY c d DB 3",
        "EXISTS c",
        "COPY c e DB 2 REPLACE",
        "DBSIZE",
        "MULTI",
        "SELECT 2",
        "MOVE a 7",
        "SET z 1",
        "EXEC",
        "DBSIZE",
        "SELECT 7",
        "DBSIZE",
    ];
    let script =
        "redis.call('SELECT', 4) redis.call('SET', 'x', 1) redis.call('MOVE', 'x', '5') return redis.call('DBSIZE')";
    let replies = |server: &Server| -> Vec<redis::Value> {
        let mut connection = server.connection().unwrap();
        let mut replies: Vec<_> = lines.iter().map(|line| send(&mut connection, line)).collect();
        replies.push(redis::cmd("EVAL").arg(script).arg(0).query(&mut connection).unwrap());
        replies.push(send(&mut connection, "DBSIZE"));
        replies
    };
    for binary in servers() {
        println!("on {}", binary.label);
        let expected = replies(&start(&binary, &ServerOptions::default()));
        for enabled in ["yes", "no"] {
            let server = start(&binary, &with_module().set("tenure.enabled", enabled));
            assert_eq!(replies(&server), expected, "tenure.enabled {enabled}");
        }
    }
}
