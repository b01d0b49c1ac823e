//! Clusters of the server that is installed here.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;
use tenure_servers::cluster::SLOTS;
use tenure_servers::{Cluster, Server, ServerBinary, ServerOptions, wait_for};

fn role(node: &Server) -> String {
    node.info("replication").unwrap()["role"].clone()
}

#[test]
fn a_cluster_serves_all_slots_and_a_replica_takes_over() {
    let binary = ServerBinary::installed().unwrap();
    let mut cluster = Cluster::start(&binary, &ServerOptions::default(), 3, 1).unwrap();
    let slots: BTreeSet<u16> = cluster.primaries().iter().flat_map(|node| node.own_slots().unwrap()).collect();
    assert_eq!(slots, (0..SLOTS).collect());
    // CLUSTER KEYSLOT foo is 12182, of the last third.
    assert_eq!(cluster.owner_of(12182).unwrap(), 2);
    cluster.nodes()[2].call::<()>(&["SET", "foo", "1"]).unwrap();
    let moved = cluster.nodes()[0].call::<()>(&["SET", "foo", "1"]).unwrap_err();
    assert!(format!("{moved:#}").contains("Moved: 12182"), "{moved:#}");
    let arrived = || cluster.replica_of(2).call::<u64>(&["DBSIZE"]).unwrap() == 1;
    wait_for(Duration::from_secs(10), "the write to reach the replica", arrived).unwrap();
    assert!(cluster.primaries().iter().all(|node| role(node) == "master"));

    cluster.move_slots(12180..12185, 2, 0).unwrap();
    assert_eq!(cluster.owner_of(12182).unwrap(), 0);
    assert_eq!(cluster.nodes()[0].call::<u64>(&["GET", "foo"]).unwrap(), 1);
    cluster.move_slots([12182], 0, 2).unwrap();

    cluster.miss_nodes_soon().unwrap();
    cluster.node_mut(2).kill();
    wait_for(Duration::from_secs(60), "the replica to take over", || role(cluster.replica_of(2)) == "master").unwrap();
    cluster.wait_until_it_serves().unwrap();
    assert_eq!(cluster.owner_of(12182).unwrap(), 5);
    assert_eq!(cluster.replica_of(2).call::<u64>(&["GET", "foo"]).unwrap(), 1);
}

#[test]
fn a_cluster_of_one_takes_the_ports_it_is_told() {
    // Above those that other tests take.
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let free = (23_000..30_000).find(|&port| is_free(port) && is_free(port + 1)).unwrap();
    let options = ServerOptions { port: Some(free), ..ServerOptions::default() };
    let cluster = Cluster::start(&ServerBinary::installed().unwrap(), &options, 1, 1).unwrap();
    assert_eq!([cluster.nodes()[0].port(), cluster.nodes()[1].port()], [free, free + 1]);
    let error = Cluster::start(&ServerBinary::installed().unwrap(), &options, 1, 0).unwrap_err();
    assert!(format!("{error:#}").contains("in use"), "{error:#}");
}
