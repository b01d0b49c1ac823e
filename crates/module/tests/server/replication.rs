//! Replicas and the append-only file receive each eviction, and only a primary evicts.

use redis::Connection;
use tenure_servers::{Server, ServerBinary, ServerOptions};

use crate::harness::{
    CacheAside, config_set, connection_to, evicted_by_server, info, limit_memory, oldest_and_newest,
    on_oldest_and_newest, send, start, status, used_memory, wait_for, with_module,
};

const MB: u64 = 1 << 20;

/// The backlog counts as used memory and would leave no room for keys.
fn evicting() -> ServerOptions {
    with_module().set("maxmemory-policy", "allkeys-lru").set("repl-backlog-size", "64kb")
}

fn digest(server: &Server) -> String {
    server.call::<String>(&["DEBUG", "DIGEST"]).unwrap()
}

/// Clients of three databases whose keys don't fit, until Tenure has evicted many. Nothing is evicted afterwards.
fn evict_much(server: &Server) {
    limit_memory(server, 4 * MB);
    let client = |db: u16| CacheAside::new(connection_to(server, db), "k:", 3000, 1000);
    let mut clients: Vec<CacheAside> = (0..3).map(client).collect();
    wait_for("Tenure to evict", || {
        clients.iter_mut().for_each(|client| client.read_some(100));
        info(server, "evictions") > 3000.0
    });
    limit_memory(server, 16 * MB);
}

#[track_caller]
fn wait_for_equality(primary: &Server, replica: &Server) {
    let keys =
        |server: &Server| -> Vec<u64> { (0..3).map(|db| send(&mut connection_to(server, db), "DBSIZE")).collect() };
    wait_for("the replica to have the same keys", || keys(primary) == keys(replica));
    wait_for("the replica to have the same values", || digest(primary) == digest(replica));
}

fn calls_of(server: &Server, command: &str) -> f64 {
    let calls = server.info("commandstats").unwrap().remove(&format!("cmdstat_{command}")).unwrap_or_default();
    calls.trim_start_matches("calls=").split(',').next().and_then(|calls| calls.parse().ok()).unwrap_or(0.0)
}

fn stands_by_as_replica(connection: &mut Connection) -> bool {
    status(connection)["eviction"] == "standing by: this server is a replica"
}

fn check_replica(binary: &ServerBinary, options: &ServerOptions, has_module: bool) {
    let (primary, replica) = (start(binary, &evicting()), start(binary, options));
    replica.replica_of(&primary).unwrap();
    if has_module {
        // Far too little for what the primary sends: a replica keeps it all the same.
        limit_memory(&replica, MB);
    }
    evict_much(&primary);
    wait_for_equality(&primary, &replica);
    assert_eq!(evicted_by_server(&replica), 0);
    if has_module {
        assert_eq!(info(&replica, "evictions"), 0.0);
        assert!(used_memory(&replica) > 3 * MB);
    }
}

#[test]
fn a_replica_without_the_module_stays_identical() {
    for binary in oldest_and_newest() {
        check_replica(&binary, &ServerOptions::default(), false);
    }
}

#[test]
fn a_replica_with_the_module_stays_identical_and_evicts_nothing_itself() {
    for binary in oldest_and_newest() {
        // With `lru` it would evict without a plan.
        check_replica(&binary, &evicting().set("tenure.policy", "lru"), true);
    }
}

#[test]
fn a_replica_that_becomes_primary_evicts() {
    for binary in oldest_and_newest() {
        let primary = start(&binary, &evicting());
        let replica = start(&binary, &evicting().set("tenure.policy", "lru"));
        replica.replica_of(&primary).unwrap();
        CacheAside::new(primary.connection().unwrap(), "k:", 6000, 1000).read_all();
        let mut connection = replica.connection().unwrap();
        wait_for("the replica to have all keys", || send::<u64>(&mut connection, "DBSIZE") == 6000);
        let limit = used_memory(&replica) - MB;
        config_set(&mut connection, "maxmemory", limit);
        wait_for("the replica to stand by", || stands_by_as_replica(&mut connection));
        drop(primary);
        send::<()>(&mut connection, "REPLICAOF NO ONE");
        let mut client = CacheAside::new(replica.connection().unwrap(), "k:", 6000, 1000);
        wait_for("the new primary to evict", || {
            client.read_some(100);
            info(&replica, "evictions") > 500.0
        });
        assert!(used_memory(&replica) <= limit + limit / 100);
    }
}

/// Each turn brings 200 keys, since a script's writes are all in one, and one command tells of all that go in a slice.
#[test]
fn one_command_tells_of_all_keys_that_a_slice_evicts() {
    for binary in oldest_and_newest() {
        let (primary, replica) = (start(&binary, &evicting()), start(&binary, &ServerOptions::default()));
        replica.replica_of(&primary).unwrap();
        evict_much(&primary);
        limit_memory(&primary, MB);
        let counts = || (calls_of(&replica, "unlink"), info(&primary, "evictions"), evicted_by_server(&primary));
        wait_for_equality(&primary, &replica);
        let before = counts();
        let (mut connection, mut next) = (primary.connection().unwrap(), 0);
        let script = "for i = ARGV[1], ARGV[1] + 199 do redis.call('SET', 'new:' .. i, string.rep('v', 1000)) end";
        // Buffers that the server gives back meanwhile are room for keys.
        wait_for("Tenure to evict", || {
            redis::cmd("EVAL").arg(script).arg(0).arg(next).exec(&mut connection).unwrap();
            next += 200;
            info(&primary, "evictions") - before.1 > 1000.0
        });
        wait_for_equality(&primary, &replica);
        let after = counts();
        let (told, evicted, by_server) = (after.0 - before.0, after.1 - before.1, (after.2 - before.2) as f64);
        // How many go in a slice is a matter of the machine.
        assert!(told < evicted + by_server, "{told} commands for {evicted} keys and the server's {by_server}");
    }
}

#[test]
fn the_append_only_file_has_each_eviction() {
    on_oldest_and_newest(&evicting().set("appendonly", "yes"), |server| {
        evict_much(server);
        let before = digest(server);
        let evicted = info(server, "evictions");
        server.restart().unwrap();
        assert_eq!(digest(server), before, "after {evicted} evictions");
        assert_eq!(info(server, "evictions"), 0.0);
    });
}

/// Loading brings more than fits: nothing goes before all of it is there, and then the server works on within its
/// limit.
#[test]
fn nothing_is_evicted_while_loading() {
    let options = evicting().set("appendonly", "yes").set("tenure.policy", "lru");
    on_oldest_and_newest(&options, |server| {
        let mut client = CacheAside::new(server.connection().unwrap(), "k:", 6000, 1000);
        client.read_all();
        let limit = used_memory(server) - 2 * MB;
        let file = server.directory().join("server.conf");
        let text = std::fs::read_to_string(&file).unwrap();
        // Slow enough to be looked at: the delay is in µs, for each key.
        std::fs::write(
            &file,
            format!("{text}maxmemory {limit}\nkey-load-delay 100\nloading-process-events-interval-bytes 1024\n"),
        )
        .unwrap();
        server.restart().unwrap();
        wait_for("all to fit", || used_memory(server) <= limit);
        // Evictions may still be under way, so both sides are asked anew each time.
        wait_for("every key to be there or evicted", || {
            let keys: u64 = server.call(&["DBSIZE"]).unwrap();
            let gone = info(server, "evictions") as u64 + evicted_by_server(server);
            keys + gone == 6000 && gone > 500
        });
    });
}
