//! A data set that changes as a whole: slots that move with all their keys (Valkey 9), and a replica's that is
//! replaced by another.

use std::ops::RangeInclusive;
use std::time::Instant;

use redis::Connection;
use tenure_servers::{Cluster, Server, ServerBinary};

use crate::cluster::{Checker, evicting, limit_all, start as start_cluster};
use crate::harness::{
    DEADLINE, EvictedKeys, config_set, info, on_oldest_and_newest, partitions, send, servers, start, wait_for,
    with_module,
};

const MB: u64 = 1 << 20;
/// A quarter of the first primary's slots.
const MOVED: (u16, u16) = (0, 1365);

/// Servers that move slots so.
pub fn that_migrate() -> Vec<ServerBinary> {
    servers().into_iter().filter(|binary| binary.label.starts_with("valkey-9")).collect()
}

fn call(node: &Server, words: &[&str]) {
    node.call::<()>(words).unwrap_or_else(|why| panic!("{words:?}: {why:#}"));
}

fn migrate(cluster: &Cluster, from: usize, to: usize) {
    let (id, [first, last]) =
        (cluster.nodes()[to].cluster_id().unwrap(), [MOVED.0, MOVED.1].map(|slot| slot.to_string()));
    call(&cluster.nodes()[from], &["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", &id]);
}

fn wait_for_owner(cluster: &Cluster, node: usize) {
    wait_for("the slots to be the other's", || cluster.owner_of(MOVED.1).is_ok_and(|owner| owner == node));
    cluster.wait_until_all_agree().unwrap();
    // Keys that were given away go over the next turns.
    let slots: Vec<String> = (MOVED.0..=MOVED.1).step_by(97).map(|slot| slot.to_string()).collect();
    wait_for("the former owner to have let go", || {
        let held =
            |slot: &String| cluster.nodes()[1 - node].call::<u64>(&["CLUSTER", "COUNTKEYSINSLOT", slot]).unwrap();
        slots.iter().map(held).sum::<u64>() == 0
    });
}

/// What Tenure says each tenant has is what there is, on every node.
fn wait_for_right_books(nodes: &[Server]) {
    for (i, node) in nodes.iter().enumerate() {
        let mut connection = node.connection().unwrap();
        for tenant in ["a", "b"] {
            let mut seen = (0, 0.0);
            let is_right = |connection: &mut Connection, seen: &mut (usize, f64)| {
                let there: Vec<String> = send(connection, &format!("KEYS {tenant}:*"));
                *seen = (there.len(), partitions(connection)[tenant]["keys"]);
                (seen.1 - seen.0 as f64).abs() <= 0.01 * seen.0 as f64 + 2.0
            };
            tenure_servers::wait_for(DEADLINE, "the books to be right", || is_right(&mut connection, &mut seen))
                .unwrap_or_else(|why| panic!("node {i}, {tenant}: there are, and it says {seen:?}: {why:#}"));
        }
        assert_eq!(info(node, "panics"), 0.0);
    }
}

/// There, given up half-way and taken back, under load and with both ends full: no value is wrong, and none is lost
/// that no event tells of.
#[test]
fn slots_migrate_both_ways_under_load() {
    for binary in that_migrate() {
        let cluster = start_cluster(&binary, evicting());
        limit_all(&cluster, 3 * MB);
        let gone: Vec<EvictedKeys> =
            cluster.primaries().iter().map(|node| EvictedKeys::with_events(node, &["evicted"])).collect();
        // All are full by the time that the checking client begins, which waits for a replica each round.
        for (node, slots) in cluster.primaries().iter().zip([MOVED.1 + 1..=5460, 5461..=10_922, 10_923..=16_383]) {
            write(node, &format!("a:{}", tag_in(node, slots)), 0..2_500);
        }
        let checker = Checker::start(&cluster, 16_000, 1000);
        wait_for("the primaries to evict", || cluster.primaries().iter().all(|node| info(node, "evictions") > 200.0));
        migrate(&cluster, 0, 1);
        wait_for_owner(&cluster, 1);
        checker.wait_for_rounds(20);
        migrate(&cluster, 1, 0);
        // It may be over by now, which is no failure.
        _ = cluster.nodes()[1].call::<()>(&["CLUSTER", "CANCELSLOTMIGRATIONS"]);
        checker.wait_for_rounds(20);
        if cluster.owner_of(MOVED.1).unwrap() == 1 {
            migrate(&cluster, 1, 0);
        }
        wait_for_owner(&cluster, 0);
        checker.wait_for_rounds(20);
        checker.finish(&cluster, &gone);
        wait_for_right_books(cluster.nodes());
    }
}

/// Keys of slots that arrive are the source's until all are there: the target, full to the brim, lets none of them go.
#[test]
fn keys_that_arrive_are_not_evicted_before_they_are_there() {
    for binary in that_migrate() {
        let cluster = start_cluster(&binary, evicting());
        let [source, target] = [&cluster.nodes()[0], &cluster.nodes()[1]];
        let (moved, own) = (tag_in(source, MOVED.0..=MOVED.1), tag_in(target, 5500..=10_000));
        write(source, &format!("a:{moved}"), 0..3000);
        // The source sends a key a millisecond, so that there is time to see what the target does.
        call(source, &["CONFIG", "SET", "rdb-key-save-delay", "1000"]);
        write(target, &format!("b:{own}"), 0..6000);
        limit_all(&cluster, MB);
        let gone = EvictedKeys::with_events(target, &["evicted"]);
        migrate(&cluster, 0, 1);
        let (mut newest, mut last_before) = (6000, Instant::now());
        wait_for("the slots to arrive", || {
            write(target, &format!("b:{own}"), newest..newest + 200);
            newest += 200;
            let asked = Instant::now();
            let have_arrived = cluster.owner_of(MOVED.1).is_ok_and(|owner| owner == 1);
            last_before = if have_arrived { last_before } else { asked };
            have_arrived
        });
        let before: Vec<Vec<u8>> =
            gone.last().into_iter().filter(|(_, at)| *at < last_before).map(|(name, _)| name).collect();
        assert!(before.len() > 100, "the target had to evict: {}", before.len());
        let arriving = before.iter().filter(|name| name.starts_with(b"a:")).count();
        assert_eq!(arriving, 0, "of {} evicted", before.len());
        wait_for_right_books(&cluster.nodes()[..2]);
    }
}

/// A word in braces: keys that have it are in one of these slots.
fn tag_in(node: &Server, slots: RangeInclusive<u16>) -> String {
    let slot = |tag: &String| node.call::<u16>(&["CLUSTER", "KEYSLOT", tag]).unwrap();
    (0..).map(|n| format!("{{t{n}}}")).find(|tag| slots.contains(&slot(tag))).unwrap()
}

fn write(node: &Server, prefix: &str, keys: std::ops::Range<u64>) {
    let mut pipeline = redis::pipe();
    keys.for_each(|key| _ = pipeline.cmd("SET").arg(format!("{prefix}:{key}")).arg(&[b'v'; 1000]).ignore());
    pipeline.exec(&mut node.connection().unwrap()).unwrap();
}

/// A full synchronisation that is loaded beside what is served: done, it takes its place in the books too; broken
/// off, nothing has changed.
#[test]
fn the_books_of_a_replica_follow_a_data_set_that_is_loaded_beside_its_own() {
    let options = with_module().set("tenure.tenants", "\"a=a:* b=b:*\"").set("repl-diskless-sync", "yes");
    let options = options.set("repl-diskless-sync-delay", 0).set("repl-diskless-load", "swapdb");
    let options = options.set("repl-backlog-size", "16kb").set("loading-process-events-interval-bytes", 1024);
    on_oldest_and_newest(&options.clone(), |primary| {
        let replica = start(primary.binary(), &options);
        write(primary, "a", 0..2000);
        write(primary, "b", 0..1000);
        replica.replica_of(primary).unwrap();
        replica.wait_until_in_sync().unwrap();
        wait_for_right_books(std::slice::from_ref(&replica));
        cut_off_and_write(primary, "b", 1000..4000, "DEL a:0 a:1 a:2");
        wait_for("another data set to have taken its place", || {
            replica.log().contains("Swapping active DB with loaded DB")
        });
        replica.wait_until_in_sync().unwrap();
        wait_for_right_books(std::slice::from_ref(&replica));

        // A key a millisecond: it is never done.
        call(primary, &["CONFIG", "SET", "rdb-key-save-delay", "1000"]);
        let keys_before: u64 = replica.call(&["DBSIZE"]).unwrap();
        cut_off_and_write(primary, "a", 5000..6000, "PING");
        wait_for("the replica to load beside", || {
            replica.info("persistence").unwrap().get("async_loading").is_some_and(|is| is == "1")
        });
        let mut connection = replica.connection().unwrap();
        config_set(&mut connection, "repl-timeout", 600);
        primary.kill();
        wait_for("the replica to give up", || replica.info("persistence").unwrap()["async_loading"] == "0");
        assert_eq!(replica.call::<u64>(&["DBSIZE"]).unwrap(), keys_before);
        wait_for_right_books(std::slice::from_ref(&replica));
    });
}

/// Replicas lose the connection, and what is written before they come back is more than the backlog holds.
fn cut_off_and_write(primary: &Server, prefix: &str, keys: std::ops::Range<u64>, line: &str) {
    let mut pipeline = redis::pipe();
    pipeline.cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica").ignore();
    keys.for_each(|key| _ = pipeline.cmd("SET").arg(format!("{prefix}:{key}")).arg(&[b'v'; 1000]).ignore());
    let words: Vec<&str> = line.split(' ').collect();
    let last = pipeline.cmd(words[0]);
    words[1..].iter().for_each(|word| _ = last.arg(word));
    pipeline.exec(&mut primary.connection().unwrap()).unwrap();
}
