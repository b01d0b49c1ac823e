//! Miss penalties: measured from a miss to the write that answers it, kept apart by partition, outliers capped.

use std::time::{Duration, Instant};

use redis::Connection;
use tenure_servers::Server;

use crate::harness::{
    command, config_set, connection_to, info, on_every_server, partition, send, wait_for, with_module,
};

/// Bounds of a penalty as the client sees it: it lies between what passed from the miss's answer to the write's
/// start, and from the miss's start to the write's answer.
struct Bounds {
    least_us: f64,
    most_us: f64,
}

/// Misses `key` and writes it back after `wait`.
fn fetch(connection: &mut Connection, key: &str, wait: Duration) -> Bounds {
    let before_miss = Instant::now();
    send::<()>(connection, &format!("GET {key}"));
    let after_miss = Instant::now();
    // The backend's work.
    std::thread::sleep(wait);
    let least_us = after_miss.elapsed().as_micros() as f64;
    send::<()>(connection, &format!("SET {key} value"));
    Bounds { least_us, most_us: before_miss.elapsed().as_micros() as f64 }
}

/// Waits until the partition's mean is out, and compares it with what the client saw.
#[track_caller]
fn check_mean(connection: &mut Connection, name: &str, seen: &[Bounds]) {
    wait_for("a mean penalty", || partition(connection, name)["penalty_us_mean"] > 0.0);
    let mean = partition(connection, name)["penalty_us_mean"];
    let least = seen.iter().map(|b| b.least_us).fold(f64::INFINITY, f64::min);
    let most = seen.iter().map(|b| b.most_us).fold(0.0, f64::max);
    assert!((least..=most + 1.0).contains(&mean), "{name}: {mean} is not within {least} to {most}");
}

fn measured(server: &Server) -> f64 {
    info(server, "penalties_measured")
}

const NEAR: Duration = Duration::from_millis(2);
const FAR: Duration = Duration::from_millis(40);

#[test]
fn two_tenants_with_different_backends() {
    on_every_server(&with_module().set("tenure.tenants", "\"near=n:* far=f:*\""), |server| {
        let mut connection = server.connection().unwrap();
        let near: Vec<_> = (0..20).map(|i| fetch(&mut connection, &format!("n:{i}"), NEAR)).collect();
        let far: Vec<_> = (0..5).map(|i| fetch(&mut connection, &format!("f:{i}"), FAR)).collect();
        assert_eq!(measured(server), 25.0);
        check_mean(&mut connection, "near", &near);
        check_mean(&mut connection, "far", &far);
    });
}

/// Also where filters don't tell whose command it is (Redis 7.0).
#[test]
fn two_databases_with_different_backends() {
    on_every_server(&with_module(), |server| {
        let (mut near, mut far) = (connection_to(server, 0), connection_to(server, 1));
        send::<()>(&mut near, "SET first 1");
        send::<()>(&mut far, "SET first 1");
        wait_for("both databases to be known", || {
            partition(&mut near, "db0")["keys"] == 1.0 && partition(&mut near, "db1")["keys"] == 1.0
        });
        // The same names in both: they must not answer for each other.
        let seen_near: Vec<_> = (0..20).map(|i| fetch(&mut near, &format!("key:{i}"), NEAR)).collect();
        let seen_far: Vec<_> = (0..5).map(|i| fetch(&mut far, &format!("key:{i}"), FAR)).collect();
        assert_eq!(measured(server), 25.0);
        check_mean(&mut near, "db0", &seen_near);
        check_mean(&mut near, "db1", &seen_far);
    });
}

#[test]
fn every_kind_of_write_answers_a_miss_and_once() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        for (i, (read, write, answers)) in [
            ("GET K", "SET K v", 1),
            ("GET K", "SETEX K 100 v", 1),
            ("GET K", "SETNX K v", 1),
            ("GET K", "MSET other 1 K v", 1),
            ("GETEX K EX 100", "SET K v", 1),
            ("MGET a K", "SET K v", 1),
            ("HGETALL K", "HSET K f v", 1),
            ("LRANGE K 0 -1", "RPUSH K v", 1),
            ("SMEMBERS K", "SADD K v", 1),
            ("ZRANGE K 0 -1", "ZADD K 1 v", 1),
            ("XRANGE K - +", "XADD K * f v", 1),
            ("GETBIT K 1", "SETBIT K 1 1", 1),
            ("PFCOUNT K", "PFADD K v", 1),
            ("GEOPOS K a", "GEOADD K 1 1 a", 1),
            ("GET K", "DEL K", 0),
            ("GET K", "SET another v", 0),
            ("PING", "SET K v", 0),
            ("OBJECT ENCODING K", "SET K v", 0),
            // What looks at the old value and writes in one is no miss that waits.
            ("GETSET K v", "SET K w", 0),
            ("SET K v GET", "SET K w", 0),
            ("GETDEL K", "SET K w", 0),
        ]
        .iter()
        .enumerate()
        {
            let before = measured(server);
            let line = |line: &str| command(&line.replace('K', &format!("key:{i}")));
            // OBJECT ENCODING finds nothing and says so by an error.
            let _ = line(read).query::<redis::Value>(&mut connection);
            line(write).exec(&mut connection).unwrap();
            assert_eq!(measured(server) - before, f64::from(*answers), "{read}, {write}");
            line("SET K v").exec(&mut connection).unwrap();
            assert!(measured(server) - before <= 1.0, "{read}, {write}, and again");
        }
    });
}

#[test]
fn transactions_and_scripts_answer_a_miss() {
    on_every_server(&with_module(), |server| {
        let mut connection = server.connection().unwrap();
        send::<()>(&mut connection, "GET a");
        redis::pipe().atomic().cmd("SET").arg("a").arg(1).exec(&mut connection).unwrap();
        assert_eq!(measured(server), 1.0);
        send::<()>(&mut connection, "GET b");
        redis::cmd("EVAL").arg("redis.call('SET', KEYS[1], 1)").arg(1).arg("b").exec(&mut connection).unwrap();
        assert_eq!(measured(server), 2.0);
    });
}

/// Above `penalty-max-ms` a penalty counts as that; four times later it was no answer at all.
#[test]
fn outliers_are_capped() {
    on_every_server(&with_module().set("tenure.penalty-max-ms", 5), |server| {
        let mut connection = server.connection().unwrap();
        // On a busy machine 6 ms may become more than 20.
        wait_for("a penalty that counts", || {
            fetch(&mut connection, "late", Duration::from_millis(6));
            send::<()>(&mut connection, "DEL late");
            measured(server) > 0.0
        });
        let is_measured = measured(server);
        fetch(&mut connection, "abandoned", Duration::from_millis(21));
        assert_eq!(measured(server), is_measured, "21 ms is more than four times the most that counts");
        config_set(&mut connection, "tenure.penalty-max-ms", 1);
        wait_for("a mean", || partition(&mut connection, "db0")["penalty_us_mean"] > 0.0);
        assert_eq!(partition(&mut connection, "db0")["penalty_us_mean"], 5000.0);
    });
}
