//! Turns of the event loop: where few commands come in each, Tenure hears of those alone that it asks for.

use redis::Connection;
use tenure_servers::Server;

use crate::harness::{
    CacheAside, config_set, evicted_by_server, info, on_oldest_and_newest, send, status, used_memory, wait_for,
    with_module,
};

fn turns(server: &Server) -> String {
    server.info("tenure").unwrap()["tenure_turns"].clone()
}

/// Keys that take nine tenths of the limit, and a client that reads them one by one until turns are asked for.
fn read_until_asked(server: &Server, connection: &mut Connection) {
    let mut client = CacheAside::new(server.connection().unwrap(), "k:", 5000, 1000);
    client.read_all();
    config_set(connection, "maxmemory", used_memory(server) * 10 / 9);
    let mut n = 0;
    wait_for("turns to be asked for", || {
        (0..100).for_each(|_| {
            n += 1;
            send::<()>(connection, &format!("GET k:{}", n % 5000));
        });
        turns(server) == "asked"
    });
}

/// Nothing is lost by it: reads and misses are counted and sampled, settings hold at once, and what is written makes
/// Tenure evict, not the server.
#[test]
fn those_of_reads_are_asked_for_and_nothing_is_missed() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        read_until_asked(server, &mut connection);
        let count = |name| info(server, name);
        let (reads, misses) = (count("reads"), count("misses"));
        (0..300).for_each(|i| send(&mut connection, &format!("GET k:{i}")));
        (0..30).for_each(|i| send(&mut connection, &format!("GET absent:{i}")));
        assert_eq!((count("reads") - reads, count("misses") - misses), (330.0, 30.0));
        assert_eq!(turns(server), "asked");

        // No turn is heard of, and each of these asks for its own.
        config_set(&mut connection, "tenure.enabled", "no");
        assert_eq!(server.info("tenure").unwrap()["tenure_state"], "stopped");
        config_set(&mut connection, "tenure.enabled", "yes");
        assert_eq!(server.info("tenure").unwrap()["tenure_state"], "running");
        config_set(&mut connection, "tenure.policy", "lru");
        assert_eq!(status(&mut connection)["policy"], "lru");
        config_set(&mut connection, "tenure.policy", "density");
        assert_eq!(status(&mut connection)["policy"], "density");
    });
}

/// Keys come while the main thread counts as busy, for each of which another has to go: Tenure makes room for all,
/// whether few commands write or all do. It does so in turns that bring none, where there are such; of commands that
/// come without a pause turns are asked for.
#[test]
fn what_is_written_waits_for_idle_turns_while_there_are_any_and_tenure_evicts() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru");
    let options = options.set("tenure.watch-busy-percent", 0).set("tenure.watch-percent", 100);
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        read_until_asked(server, &mut connection);
        let theirs = evicted_by_server(server);
        let value = "v".repeat(1000);
        let mut n = 0;
        for reads_per_write in [9, 0] {
            let ours = info(server, "evictions");
            wait_for("evictions", || {
                for _ in 0..100 {
                    n += 1;
                    (0..reads_per_write).for_each(|i| send(&mut connection, &format!("GET k:{}", (n + i) % 5000)));
                    send::<()>(&mut connection, &format!("SET n:{n} {value}"));
                }
                info(server, "evictions") > ours + 500.0
            });
        }
        wait_for("an idle turn to be waited for", || {
            n += 1;
            send::<()>(&mut connection, &format!("SET n:{n} {value}"));
            turns(server) == "each"
        });
        assert_eq!(evicted_by_server(server), theirs, "Tenure has made room each time");
        wait_for("waiting to be in vain", || {
            let mut pipe = redis::pipe();
            (n + 1..=n + 3_000).for_each(|i| _ = pipe.set(format!("n:{i}"), &value).ignore());
            n += 3_000;
            pipe.query::<()>(&mut connection).unwrap();
            turns(server) == "asked"
        });
    });
}

/// While keys go and the main thread has time, each turn is heard of: they go while the event loop is idle, and as many
/// are looked at as is set. Asked for alone, no turn was ever told from an idle one, so fewer were.
#[test]
fn each_is_heard_while_keys_go_and_the_main_thread_has_time() {
    const EVICTIONS: f64 = 600.0;
    // A client that waits for each reply leaves the main thread time, and here nothing counts as busy.
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.watch-busy-percent", 100);
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        read_until_asked(server, &mut connection);
        let value = "v".repeat(1000);
        let mut n = 0;
        let mut evict_until = |met: &dyn Fn() -> bool| {
            wait_for("evictions", || {
                for _ in 0..200 {
                    n += 1;
                    send::<()>(&mut connection, &format!("SET n:{n} {value}"));
                }
                met()
            });
        };
        evict_until(&|| turns(server) == "each");
        let seen = || (info(server, "evictions"), info(server, "visited_keys"));
        // While another program has the core, slices run out of time, and fewer are looked at.
        wait_for("as many to be looked at as is set", || {
            let before = seen();
            evict_until(&|| seen().0 >= before.0 + EVICTIONS);
            let now = seen();
            let visited = (now.1 - before.1) / (now.0 - before.0);
            println!("{visited} of 10, of which one is the newcomer");
            visited > 6.5
        });
    });
}

/// A command larger than the room that is kept free makes the server evict before it runs: for a while each turn is
/// heard, and later no more.
#[test]
fn each_is_heard_for_a_while_after_the_server_evicted() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        read_until_asked(server, &mut connection);
        let theirs = evicted_by_server(server);
        let mut n = 0;
        wait_for("the server to evict", || {
            n += 1;
            send::<()>(&mut connection, &format!("SET large:{n} {}", "v".repeat(1_000_000)));
            evicted_by_server(server) > theirs
        });
        wait_for("each turn to be heard", || turns(server) == "each");
        read_until_asked(server, &mut connection);
    });
}

/// The server's tick, once a second, would find what was lost.
#[test]
fn asking_for_modules_holds_no_turn_up() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("hz", 1).set("dynamic-hz", "no");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        read_until_asked(server, &mut connection);
        for (enabled, state) in [("no", "stopped"), ("yes", "running")].repeat(3) {
            let mut turn = redis::pipe();
            turn.cmd("MODULE").arg("LIST").ignore();
            turn.cmd("CONFIG").arg("SET").arg("tenure.enabled").arg(enabled).ignore();
            turn.cmd("GET").arg("k:1").ignore();
            turn.exec(&mut connection).unwrap();
            assert_eq!(server.info("tenure").unwrap()["tenure_state"], state);
        }
    });
}

/// Between slices neither commands nor turns are heard, and the next slice comes all the same. The module can be
/// unloaded in the midst of it.
#[test]
fn slices_come_back_by_themselves_and_the_module_goes() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.watch-busy-percent", 0);
    let options = options.set("tenure.watch-percent", 1);
    on_oldest_and_newest(&options.set("enable-module-command", "yes"), |server| {
        let mut connection = server.connection().unwrap();
        read_until_asked(server, &mut connection);
        let mut reads = redis::pipe();
        (0..500).for_each(|i| _ = reads.cmd("GET").arg(format!("k:{i}")).ignore());
        let reads_before = info(server, "reads");
        wait_for("slices, one after the other", || {
            reads.exec(&mut connection).unwrap();
            info(server, "watched_time_share") < 0.9 && info(server, "reads") > reads_before + 2000.0
        });
        assert_eq!(turns(server), "asked");
        let mut other = server.connection().unwrap();
        (0..20).for_each(|_| reads.exec(&mut connection).unwrap());
        send::<()>(&mut other, "MODULE UNLOAD tenure");
        reads.exec(&mut connection).unwrap();
    });
}
