//! Values that sleep on nodes of a cluster: slots that leave take them along, slots that come bring none, and who
//! takes over has each value or none, never an old one.

use redis::cluster::ClusterConnection;
use tenure_core::slots::slot_of;
use tenure_servers::{Cluster, Server, ServerBinary, ServerOptions};

use crate::cluster::{client, start};
use crate::harness::{config_set, info, partition, send, status, wait_for, with_module};
use crate::migration::that_migrate;
use crate::sleep::{tenure_rest, two};

const KEYS: u64 = 3000;
/// Those that wake before replicas take over.
const AWAKE: std::ops::Range<u64> = 0..3;
/// Slots of the first primary, with some hundred keys.
const MOVED: std::ops::RangeInclusive<u16> = 0..=299;

/// Each node has a folder of its own, within the one that it runs in.
fn sleeping() -> ServerOptions {
    with_module().set("maxmemory-policy", "allkeys-lru").set("maxmemory", "100mb").set("tenure.spill-dir", "sleepers")
}

/// A key's name. No word of another command is the same, which would wake it.
fn name(key: u64) -> String {
    format!("k:{key}")
}

/// Writes version `version` of all keys.
fn write(connection: &mut ClusterConnection, version: u64) {
    for key in 0..KEYS {
        redis::cmd("SET").arg(name(key)).arg(format!("{key}:{version}")).exec(connection).unwrap();
    }
}

/// Reads all keys, of which each is of that version or a miss: how many are misses.
#[track_caller]
fn misses(connection: &mut ClusterConnection, version: u64) -> usize {
    let is_missing = |key: &u64| {
        let found: Option<String> = redis::cmd("GET").arg(name(*key)).query(connection).unwrap();
        found.inspect(|value| assert_eq!(*value, format!("{key}:{version}"))).is_none()
    };
    (0..KEYS).filter(is_missing).count()
}

/// Puts all to sleep. Whoever is in a slot on its way, as nodes know it, stays awake, and is asked anew.
fn put_all_to_rest(nodes: &[Server]) {
    for node in nodes {
        let mut connection = node.connection().unwrap();
        wait_for("the partition to be known", || partition(&mut connection, "db0")["keys"] > 0.0);
        wait_for("all to sleep", || {
            if tenure_rest(&mut connection, "db0") != "falling asleep" {
                send::<()>(&mut connection, "TENURE.SLEEP db0");
            }
            send::<u64>(&mut connection, "DBSIZE") == 0
        });
    }
    assert_eq!(nodes.iter().map(|node| info(node, "sleeping_keys")).sum::<f64>(), KEYS as f64);
}

fn sum(cluster: &Cluster, name: &str) -> f64 {
    cluster.primaries().iter().map(|node| info(node, name)).sum()
}

/// Moves `MOVED` there and back, with the others' values written anew in between.
fn there_and_back(binary: &ServerBinary, mv: impl Fn(&Cluster, usize, usize)) {
    let cluster = start(binary, sleeping());
    let mut connection = client(&cluster);
    write(&mut connection, 1);
    put_all_to_rest(cluster.primaries());
    mv(&cluster, 0, 1);
    let mut connection = client(&cluster);
    assert_eq!(misses(&mut connection, 1), 0, "what slept went along");
    assert_eq!(sum(&cluster, "spill_given_up"), 0.0);
    // The former owner's sleepers are of the first version, were there any left.
    write(&mut connection, 2);
    put_all_to_rest(cluster.primaries());
    mv(&cluster, 1, 0);
    let mut connection = client(&cluster);
    assert_eq!(misses(&mut connection, 2), 0);
    assert_eq!(sum(&cluster, "spill_given_up"), 0.0);
    assert!(sum(&cluster, "slept_keys") >= 2.0 * KEYS as f64);
    assert_eq!(sum(&cluster, "panics"), 0.0);
}

#[test]
fn slots_that_move_key_by_key_take_their_sleepers_along() {
    for binary in two() {
        there_and_back(&binary, |cluster, from, to| cluster.move_slots(MOVED, from, to).unwrap());
    }
}

/// A replica that answers nothing for a while is waited for.
#[test]
fn slots_move_while_a_replica_stands_still() {
    for binary in two() {
        let cluster = start(&binary, sleeping());
        write(&mut client(&cluster), 1);
        put_all_to_rest(cluster.primaries());
        let replica = cluster.replica_of(1);
        replica.halt().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let has_refused =
                    || cluster.nodes()[1].info("errorstats").unwrap().contains_key("errorstat_NOREPLICAS");
                wait_for("its primary to have waited in vain", has_refused);
                replica.resume().unwrap();
            });
            cluster.move_slots(0..=9, 0, 1).unwrap();
        });
        assert_eq!(misses(&mut client(&cluster), 1), 0, "what slept went along");
    }
}

#[test]
fn slots_that_move_as_a_whole_take_their_sleepers_along() {
    for binary in that_migrate() {
        there_and_back(&binary, |cluster, from, to| {
            let (id, range) = (cluster.nodes()[to].cluster_id().unwrap(), [*MOVED.start(), *MOVED.end()]);
            let [first, last] = range.map(|slot| slot.to_string());
            let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", &id];
            cluster.nodes()[from].call::<()>(&words).unwrap();
            wait_for("the slots to be the other's", || cluster.owner_of(*MOVED.end()).is_ok_and(|owner| owner == to));
            cluster.wait_until_all_agree().unwrap();
        });
    }
}

/// What may have happened to a slot's keys while it was another's is told to nobody: their sleepers are gone.
#[test]
fn slots_that_come_back_bring_nothing_old() {
    for binary in two() {
        let cluster = start(&binary, sleeping());
        write(&mut client(&cluster), 1);
        put_all_to_rest(cluster.primaries());
        let node = &cluster.nodes()[0];
        let key = (0..KEYS).find(|key| cluster.owner_of(slot(*key)).unwrap() == 0).unwrap();
        let (slot, asleep) = (slot(key).to_string(), info(node, "sleeping_keys"));
        // At once: before any look of its own tells the node that it had lost the slot.
        let mut pipeline = redis::pipe();
        ["DELSLOTS", "ADDSLOTS"].iter().for_each(|what| _ = pipeline.cmd("CLUSTER").arg(what).arg(&slot).ignore());
        pipeline.exec(&mut node.connection().unwrap()).unwrap();
        assert_eq!(node.call::<Option<String>>(&["GET", &name(key)]).unwrap(), None, "{}", binary.label);
        let (left, given_up) = (info(node, "sleeping_keys"), info(node, "spill_given_up"));
        assert!(given_up >= 1.0 && left > 0.9 * asleep, "{given_up} were given up, {left} of {asleep} sleep");
    }
}

/// Who may not move slots makes nothing wake by words that would, nor does whoever names other commands' keys so.
#[test]
fn who_may_not_move_slots_wakes_nothing() {
    for binary in two() {
        let cluster = start(&binary, sleeping());
        write(&mut client(&cluster), 1);
        put_all_to_rest(cluster.primaries());
        let node = &cluster.nodes()[0];
        let other = cluster.nodes()[1].cluster_id().unwrap();
        let key = (0..KEYS).find(|key| cluster.owner_of(slot(*key)).unwrap() == 0).unwrap();
        let (slot, asleep) = (slot(key).to_string(), info(node, "sleeping_keys"));
        node.call::<()>(&["ACL", "SETUSER", "bob", "on", ">password", "~*", "+@all", "-cluster"]).unwrap();
        let mut bob = node.connection().unwrap();
        redis::cmd("AUTH").arg("bob").arg("password").exec(&mut bob).unwrap();
        for words in
            [["CLUSTER", "SETSLOT", &slot, "MIGRATING", &other], ["MGET", "SETSLOT", &slot, "MIGRATING", &other]]
        {
            let refused = redis::cmd(words[0]).arg(&words[1..]).exec(&mut bob).unwrap_err();
            assert!(matches!(refused.code(), Some("NOPERM" | "CROSSSLOT")), "{refused}");
            assert_eq!(info(node, "sleeping_keys"), asleep, "{words:?}");
        }
        // And for who may.
        node.call::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &other]).unwrap();
        assert!(info(node, "sleeping_keys") < asleep, "what sleeps there is awake");
    }
}

/// To ask the server for it would wake the key.
fn slot(key: u64) -> u16 {
    slot_of(name(key).as_bytes())
}

/// Replicas have what slept deleted, so that it is a miss on whoever takes over, by `FAILOVER` or after a kill; and
/// what woke is there.
#[test]
fn a_replica_that_takes_over_has_nothing_old() {
    for binary in two() {
        let mut cluster = start(&binary, sleeping());
        let mut connection = client(&cluster);
        write(&mut connection, 1);
        put_all_to_rest(cluster.primaries());
        // Some is awake again, with new values.
        for key in AWAKE {
            redis::cmd("APPEND").arg(name(key)).arg("!").exec(&mut connection).unwrap();
        }
        (0..3).for_each(|i| cluster.replica_of(i).wait_until_in_sync().unwrap());
        cluster.replica_of(0).call::<()>(&["CLUSTER", "FAILOVER"]).unwrap();
        let is_primary = |node: &Server| node.info("replication").unwrap()["role"] == "master";
        wait_for("the replica to take over", || is_primary(cluster.replica_of(0)) && !is_primary(&cluster.nodes()[0]));
        cluster.miss_nodes_soon().unwrap();
        cluster.node_mut(1).kill();
        wait_for("the other replica to take over", || is_primary(cluster.replica_of(1)));
        cluster.wait_until_it_serves().unwrap();
        cluster.wait_until_all_agree().unwrap();
        assert_eq!(info(&cluster.nodes()[0], "sleeping_keys"), 0.0, "a replica's primary decides");
        let mut connection = client(&cluster);
        let mut missing = 0;
        for key in 0..KEYS {
            let found: Option<String> = redis::cmd("GET").arg(name(key)).query(&mut connection).unwrap();
            let is_awake = AWAKE.contains(&key);
            match found {
                Some(value) => assert_eq!(value, format!("{key}:1{}", if is_awake { "!" } else { "" })),
                None if is_awake => panic!("{key} was awake"),
                None => missing += 1,
            }
        }
        // What two of three primaries had asleep.
        assert!((1200..=2500).contains(&missing), "{missing} misses");
    }
}

/// A node that is stopped in good order and started again has its values, once its cluster takes it for whole.
#[test]
fn a_node_restarts_warm() {
    for binary in two() {
        let mut cluster = start(&binary, sleeping().set("tenure.warm-restart", "yes").set("save", "\"\""));
        // Its replica shall not take over.
        cluster
            .nodes()
            .iter()
            .for_each(|node| config_set(&mut node.connection().unwrap(), "cluster-node-timeout", 60_000));
        let mut connection = client(&cluster);
        write(&mut connection, 1);
        let held: u64 = cluster.nodes()[0].call(&["DBSIZE"]).unwrap();
        drop(connection);
        cluster.node_mut(0).restart().unwrap();
        cluster.wait_until_it_serves().unwrap();
        let node = &cluster.nodes()[0];
        wait_for("all to wake", || node.call::<u64>(&["DBSIZE"]).unwrap() == held);
        assert_eq!(misses(&mut client(&cluster), 1), 0, "{}", binary.label);
        assert_eq!(info(node, "spill_damaged"), 0.0);
    }
}

#[test]
fn a_replica_of_a_cluster_puts_nothing_to_sleep() {
    for binary in two() {
        let cluster = start(&binary, sleeping());
        let mut connection = cluster.replica_of(0).connection().unwrap();
        wait_for("it to be known", || status(&mut connection)["sleep"] == "off: this server is a replica");
        assert_eq!(status(&mut cluster.nodes()[0].connection().unwrap())["sleep"], "ready");
    }
}
