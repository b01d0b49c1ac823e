//! The server's own instruments: long slices of Tenure's appear in `LATENCY`, where it is asked for.

use tenure_servers::Server;

use crate::harness::{config_set, info, on_oldest_and_newest, send, wait_for, with_module};

const MB: u64 = 1 << 20;

/// Names of events that `LATENCY LATEST` shows, with the last sample of each, in ms.
fn latest(server: &Server) -> Vec<(String, u64)> {
    let rows: Vec<(String, u64, u64, u64)> = rows_of(server);
    rows.into_iter().map(|(name, _, last_ms, _)| (name, last_ms)).collect()
}

/// The first four values of each row; newer servers have more.
fn rows_of(server: &Server) -> Vec<(String, u64, u64, u64)> {
    let rows: Vec<Vec<redis::Value>> = server.call(&["LATENCY", "LATEST"]).unwrap();
    let row = |row: &Vec<redis::Value>| {
        let number = |i: usize| redis::from_redis_value_ref(&row[i]).unwrap();
        (redis::from_redis_value_ref(&row[0]).unwrap(), number(1), number(2), number(3))
    };
    rows.iter().map(row).collect()
}

/// A pipeline of writes that brings more at once than a slice of a millisecond can make room for.
fn write_much(connection: &mut redis::Connection, from: u64) {
    let mut pipeline = redis::pipe();
    for key in from..from + 4000 {
        pipeline.cmd("SET").arg(format!("k:{key}")).arg(&[b'v'; 1000][..]).ignore();
    }
    pipeline.exec(connection).unwrap();
}

#[test]
fn long_slices_of_eviction_are_in_latency_where_it_is_on() {
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("maxmemory", 16 * MB);
    let options = options.set("tenure.turn-budget-us", 5000).set("tenure.density-samples", 64);
    on_oldest_and_newest(&options, |server| {
        let (mut connection, mut other) = (server.connection().unwrap(), server.connection().unwrap());
        let mut key = 0;
        let mut write = || {
            write_much(&mut connection, key);
            key += 4000;
        };
        // Off: a slice may be as long as it will, and nothing is shown.
        config_set(&mut other, "latency-monitor-threshold", "0");
        wait_for("a slice of two milliseconds", || {
            write();
            info(server, "eviction_slice_us_max") >= 2000.0
        });
        assert_eq!(latest(server), []);
        config_set(&mut other, "latency-monitor-threshold", "1");
        wait_for("it to be shown", || {
            write();
            latest(server).iter().any(|(name, ms)| name == "tenure-eviction" && *ms >= 1)
        });
        // Above what slices take.
        config_set(&mut other, "latency-monitor-threshold", "100000");
        send::<redis::Value>(&mut other, "LATENCY RESET");
        (0..3).for_each(|_| write());
        assert_eq!(latest(server), []);
    });
}
