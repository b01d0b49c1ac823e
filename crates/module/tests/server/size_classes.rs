//! Size classes: values of one tenant divided by what they take, each class with a target of its own.

use std::collections::BTreeMap;

use redis::Connection;
use tenure_servers::Server;

use crate::harness::{
    CacheAside, Row, config_set, connection_to, error_of, evicted_by_server, evicting_in_time, info, limit_memory,
    on_oldest_and_newest, partition, partitions, send, size_classes, status, wait_for, with_module,
};

const MB: u64 = 1 << 20;
const KEYS: u64 = 12_000;

/// Reads keys whose values take about 27 MB in all evenly.
fn client(server: &Server) -> CacheAside {
    CacheAside::new(server.connection().unwrap(), "k:", KEYS, 0).with_sizes()
}

/// Misses / reads of the next `rounds` × 200 reads.
fn miss_ratio(client: &mut CacheAside, rounds: usize) -> f64 {
    let before = (client.reads, client.misses);
    (0..rounds).for_each(|_| client.read_some(200));
    (client.misses - before.1) as f64 / (client.reads - before.0) as f64
}

/// What the keys of each size class take, by the server's own word on every key.
fn count(connection: &mut Connection, classes: &[Row]) -> Vec<f64> {
    let mut held = vec![0.0; classes.len()];
    let keys: Vec<String> = send(connection, "KEYS k:*");
    for chunk in keys.chunks(500) {
        let mut pipeline = redis::pipe();
        chunk.iter().for_each(|key| {
            pipeline.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        });
        let sizes: Vec<Option<f64>> = pipeline.query(connection).unwrap();
        for size in sizes.into_iter().flatten() {
            held[classes.iter().rposition(|class| class["begins_bytes"] <= size).unwrap()] += size;
        }
    }
    held
}

/// Evenly read values of sizes from 50 bytes to 64 KB, of which a third of the bytes fits: whoever keeps the small
/// ones has most of the hits. Recency alone can't tell; with four classes the small ones stay, under either policy.
#[test]
fn small_values_get_the_room_that_large_ones_waste() {
    for policy in ["predis", "kredis"] {
        on_oldest_and_newest(&evicting_in_time().set("tenure.policy", policy), |server| {
            let mut connection = server.connection().unwrap();
            limit_memory(server, 9 * MB);
            let mut client = client(server);
            wait_for("memory to be full and a plan to be there", || {
                client.read_some(200);
                info(server, "evictions") > 2000.0 && status(&mut connection)["eviction"] == "ready"
            });
            let undivided = miss_ratio(&mut client, 100);
            assert!(undivided > 0.5, "a third of the bytes are a third of the hits: {undivided}");
            assert_eq!(size_classes(&mut connection, "db0").len(), 0);

            config_set(&mut connection, "tenure.size-classes", 4);
            let mut seen = String::new();
            let is_settled = || {
                client.read_some(200);
                let classes = size_classes(&mut connection, "db0");
                let all: f64 = classes.iter().map(|class| class["target_bytes"]).sum();
                let is_held = |class: &Row| (class["used_bytes"] - class["target_bytes"]).abs() < 0.06 * all;
                seen = format!("{classes:?}");
                classes.len() == 4
                    && classes.iter().all(is_held)
                    && classes.windows(2).all(|pair| pair[0]["begins_bytes"] < pair[1]["begins_bytes"])
                    && classes[0]["miss_ratio_predicted"] < 0.1
            };
            let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "the classes to be held", is_settled);
            assert!(waited.is_ok(), "{waited:?}: {seen}");
            // Before there was a plan the server evicted.
            let evicted = || (info(server, "evictions"), evicted_by_server(server) as f64);
            let before = evicted();
            let divided = miss_ratio(&mut client, 100);
            let (ours, theirs) = (evicted().0 - before.0, evicted().1 - before.1);
            assert!(divided < 0.75 * undivided, "{divided} with size classes, {undivided} without: {seen}");

            let classes = size_classes(&mut connection, "db0");
            for (class, row) in classes.iter().enumerate() {
                assert_eq!(row["size_class"], class as f64);
                assert!(row["read_share"] > 0.03, "each has a part of the reads: {classes:?}");
            }
            let reads: f64 = classes.iter().map(|class| class["read_share"]).sum();
            assert!((reads - 1.0).abs() < 1e-3, "{reads}");
            wait_for("classes and partition to add up, no plan between the two questions", || {
                let classes = size_classes(&mut connection, "db0");
                add_up(&mut connection, &classes)
            });
            assert!(ours > 9.0 * theirs, "{ours} by Tenure, {theirs} by the server");

            // A policy without targets has no use for them.
            config_set(&mut connection, "tenure.policy", "lru");
            wait_for("one class", || size_classes(&mut connection, "db0").is_empty());
            assert_eq!(info(server, "panics"), 0.0);
        });
    }
}

/// Whether what is said of the classes adds up to what is said of their partition.
fn add_up(connection: &mut Connection, classes: &[Row]) -> bool {
    let whole = partition(connection, "db0");
    ["keys", "used_bytes", "target_bytes"].iter().all(|field| {
        let sum: f64 = classes.iter().map(|class| class[field]).sum();
        (sum / whole[field] - 1.0).abs() < 0.001
    })
}

/// Keys at rest: a tenant's bytes are within 2 % of what the server says of every key, and those of its classes
/// within 5 % of the tenant's; again after a part of one class is gone, after values have grown from one class into
/// another, and with other tenants.
#[test]
fn what_the_classes_hold_follows_what_is_there() {
    let options = evicting_in_time().set("tenure.policy", "predis").set("tenure.size-classes", 4);
    let options = options.set("tenure.tenants", "\"k=k:*\"");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        let mut client = client(server);
        client.read_all();
        client.read_all();
        check_held(&mut connection, "after writing");

        // Of the smallest half; no event says how large they were.
        let is_small = |key: &u64| crate::harness::size_of_key(*key) < 1000 && key.is_multiple_of(2);
        for key in (0..KEYS).filter(is_small) {
            send::<()>(&mut connection, &format!("DEL k:{key}"));
        }
        check_held(&mut connection, "after deletes");

        for key in (0..KEYS).filter(|key| key % 10 == 1) {
            send::<()>(&mut connection, &format!("SET k:{key} {}", "v".repeat(20_000)));
        }
        client.read_all();
        check_held(&mut connection, "after growth");

        config_set(&mut connection, "tenure.tenants", "k=k:* other-keys=o:*");
        wait_for("the new tenants", || partitions(&mut connection).contains_key("other-keys"));
        client.read_all();
        check_held(&mut connection, "with other tenants");
        send::<()>(&mut connection, "FLUSHDB");
        wait_for("nothing to be held", || {
            size_classes(&mut connection, "k").iter().all(|row| row["used_bytes"] == 0.0)
        });
    });
}

#[track_caller]
fn check_held(connection: &mut Connection, what: &str) {
    let mut shown = String::new();
    let agrees = || {
        let (classes, empty): (Vec<Row>, Vec<Row>) =
            size_classes(connection, "k").into_iter().partition(|class| class["begins_bytes"] >= 0.0);
        if classes.len() < 2 || empty.iter().any(|class| class["used_bytes"] > 0.0) {
            return false;
        }
        let held = count(connection, &classes);
        let all: f64 = held.iter().sum();
        let of_tenant = partition(connection, "k")["used_bytes"] / all - 1.0;
        let of_classes: Vec<f64> =
            classes.iter().zip(&held).map(|(class, held)| (class["used_bytes"] - held) / all).collect();
        shown = format!("{of_tenant} {of_classes:?}");
        of_tenant.abs() <= 0.02 && of_classes.iter().all(|off| off.abs() <= 0.05)
    };
    let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "agreement", agrees);
    assert!(waited.is_ok(), "{what}: relative errors stay at {shown}");
}

/// Eight classes of each of twelve databases are all of the 128 numbers but a quarter, which is left for those who
/// come later: they are not divided.
#[test]
fn classes_have_to_do_with_the_numbers_there_are() {
    let options = with_module().set("tenure.policy", "predis").set("tenure.size-classes", 8);
    on_oldest_and_newest(&options, |server| {
        for db in 0..16 {
            send::<()>(&mut connection_to(server, db), "SET k v");
        }
        let mut connection = server.connection().unwrap();
        wait_for("all databases", || partitions(&mut connection).len() == 16);
        let rows: Vec<BTreeMap<String, String>> = send(&mut connection, "TENURE.SIZES");
        let mut of: BTreeMap<&str, usize> = BTreeMap::new();
        rows.iter().for_each(|row| *of.entry(&row["partition"]).or_default() += 1);
        assert!(of.len() == 12 && of.values().all(|&n| n == 8), "{of:?}");
        config_set(&mut connection, "tenure.size-classes", 1);
        wait_for("no classes", || send::<Vec<BTreeMap<String, String>>>(&mut connection, "TENURE.SIZES").is_empty());
        let error = error_of(&mut connection, "CONFIG SET tenure.size-classes 9");
        assert!(error.contains("between 0 and 8"), "{error}");
    });
}
