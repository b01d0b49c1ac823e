//! A cluster with the module on every node: slots move and replicas take over under load, and no value is wrong or
//! lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::Value;
use redis::cluster::{ClusterClient, ClusterConnection};
use redis::cluster_routing::{AggregateOp, MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo};
use tenure_servers::{Cluster, Server, ServerBinary, ServerOptions, module_path};

use crate::harness::{
    CacheAside, EvictedKeys, Random, Row, command, config_set, evicted_by_server, info, limit_memory,
    oldest_and_newest, partition, partitions, send, status, wait_for, with_module,
};

const MB: u64 = 1 << 20;

/// Three primaries and a replica of each.
pub fn start(binary: &ServerBinary, options: ServerOptions) -> Cluster {
    println!("on {}", binary.label);
    let options = options.set("repl-backlog-size", "64kb");
    Cluster::start(binary, &options, 3, 1).unwrap_or_else(|why| panic!("{why:#}"))
}

pub fn evicting() -> ServerOptions {
    with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.tenants", "\"a=a:* b=b:*\"")
}

pub fn client(cluster: &Cluster) -> ClusterConnection {
    let mut connection = None;
    wait_for("a connection to the cluster", || {
        connection = connect(cluster.addresses());
        connection.is_some()
    });
    connection.unwrap()
}

fn connect(addresses: Vec<String>) -> Option<ClusterConnection> {
    // A node that is gone is asked for no longer than it takes to see that; the caller asks again.
    let builder = ClusterClient::builder(addresses).retries(2).min_retry_wait(1).max_retry_wait(20);
    builder.response_timeout(Duration::from_secs(5)).build().unwrap().get_connection().ok()
}

/// Each node's room for keys, replicas included, since one may become a primary.
pub fn limit_all(cluster: &Cluster, more_bytes: u64) {
    cluster.nodes().iter().for_each(|node| _ = limit_memory(node, more_bytes));
}

/// A word in braces: keys that have it are primary `i`'s.
fn tag_of(cluster: &Cluster, i: usize) -> String {
    let node = &cluster.nodes()[i];
    let own = node.own_slots().unwrap();
    let slot = |tag: &String| node.call::<u16>(&["CLUSTER", "KEYSLOT", tag]).unwrap();
    (0..).map(|n| format!("{{t{n}}}")).find(|tag| own.contains(&slot(tag))).unwrap()
}

/// Writes keys of each primary at once, 1000 bytes each.
fn fill(cluster: &Cluster, keys: u64) {
    for i in 0..cluster.primaries().len() {
        let (tag, mut connection) = (tag_of(cluster, i), cluster.nodes()[i].connection().unwrap());
        let all: Vec<u64> = (0..keys).collect();
        for some in all.chunks(100) {
            let mut pipeline = redis::pipe();
            some.iter()
                .for_each(|key| _ = pipeline.cmd("SET").arg(format!("fill:{tag}:{key}")).arg(&[b'f'; 1000]).ignore());
            pipeline.exec(&mut connection).unwrap();
        }
    }
}

/// What is known of one key's writes; versions only grow.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// The newest version that a replica has acknowledged, and when its write was sent. Nothing may lose it but an
    /// eviction.
    safe: Option<(u64, Instant)>,
    /// The newest version that was sent.
    newest: u64,
}

type Account = Arc<Mutex<HashMap<u64, Written>>>;

/// A client that reads and writes through the whole cluster while nodes come and go, and keeps account of each key.
pub struct Checker {
    account: Account,
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Checker {
    pub fn start(cluster: &Cluster, keys: u64, value_bytes: usize) -> Checker {
        let (account, stop, rounds) =
            (Account::default(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut worker = CheckerThread {
            connection: client(cluster),
            addresses: cluster.addresses(),
            account: Arc::clone(&account),
            random: Random::new(3),
            version: 0,
            keys,
            value_bytes,
        };
        let (its_stop, its_rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
        let thread = std::thread::spawn(move || {
            while !its_stop.load(Ordering::Relaxed) {
                if worker.round() {
                    its_rounds.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Checker { account, stop, rounds, thread }
    }

    /// Waits until it has done so many more rounds whose writes all replicas have.
    #[track_caller]
    pub fn wait_for_rounds(&self, n: u64) {
        let goal = self.rounds.load(Ordering::Relaxed) + n;
        wait_for("the checking client to go on", || {
            self.rounds.load(Ordering::Relaxed) >= goal || self.thread.is_finished()
        });
        assert!(!self.thread.is_finished(), "the checking client failed, see above");
    }

    /// Stops it and reads all back: what was safe is there, that version or a newer one, or has gone since by an event.
    pub fn finish(self, cluster: &Cluster, gone: &[EvictedKeys]) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the checking client saw no wrong value");
        let account = self.account.lock().unwrap().clone();
        let mut connection = client(cluster);
        let is_there = |key: u64, connection: &mut ClusterConnection| {
            let found: Option<Vec<u8>> = redis::cmd("GET").arg(name(key)).query(connection).unwrap();
            found.inspect(|value| check_value(key, &account[&key], value)).is_some()
        };
        let mut missing: Vec<u64> = account.keys().copied().collect();
        missing.retain(|&key| account[&key].safe.is_some() && !is_there(key, &mut connection));
        let n_missing = missing.len();
        wait_for("an event for every key that has gone", || {
            let last: Vec<HashMap<Vec<u8>, Instant>> = gone.iter().map(EvictedKeys::last).collect();
            missing.retain(|&key| {
                let sent = account[&key].safe.unwrap().1;
                !last.iter().any(|of_node| of_node.get(name(key).as_bytes()).is_some_and(|&at| at >= sent))
            });
            if !missing.is_empty() {
                println!("no event for {} of {n_missing}, as {}", missing.len(), name(missing[0]));
            }
            missing.is_empty()
        });
        println!("{} keys written, {n_missing} of them evicted since", account.len());
    }
}

/// Keys of two tenants.
fn name(key: u64) -> String {
    format!("{}:{key}", if key.is_multiple_of(2) { "a" } else { "b" })
}

#[track_caller]
fn check_value(key: u64, written: &Written, value: &[u8]) {
    let text = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
    let (of, version) = text.split_once(':').and_then(|(of, rest)| Some((of, rest.split_once(':')?.0))).unwrap();
    let (of, version): (u64, u64) = (of.parse().unwrap(), version.parse().unwrap());
    let oldest = written.safe.map_or(0, |(version, _)| version);
    assert!(of == key && (oldest..=written.newest).contains(&version), "key {key}, {written:?}, reads {text:?}");
}

struct CheckerThread {
    connection: ClusterConnection,
    addresses: Vec<String>,
    account: Account,
    random: Random,
    version: u64,
    keys: u64,
    value_bytes: usize,
}

impl CheckerThread {
    /// Ten writes and ten reads; what is read is right, what is missing is written again. True where all writes are
    /// with a replica.
    fn round(&mut self) -> bool {
        let mut sent = Vec::new();
        let mut is_whole = true;
        for _ in 0..10 {
            let key = self.random.below(self.keys);
            is_whole &= self.write(key, &mut sent);
            let key = self.random.below(self.keys);
            match redis::cmd("GET").arg(name(key)).query::<Option<Vec<u8>>>(&mut self.connection) {
                Ok(Some(value)) => {
                    let account = self.account.lock().unwrap();
                    check_value(key, account.get(&key).expect("what was never written isn't there"), &value);
                }
                Ok(None) => is_whole &= self.write(key, &mut sent),
                Err(_) => is_whole = false,
            }
        }
        if !is_whole {
            // The library goes on asking a node that is gone: it looks for others where it connects anew.
            if let Some(connection) = connect(self.addresses.clone()) {
                self.connection = connection;
            }
        }
        is_whole && self.make_safe(&sent)
    }

    fn write(&mut self, key: u64, sent: &mut Vec<(u64, u64, Instant)>) -> bool {
        self.version += 1;
        let fresh = Written { safe: None, newest: 0 };
        self.account.lock().unwrap().entry(key).or_insert(fresh).newest = self.version;
        let mut value = format!("{key}:{}:", self.version).into_bytes();
        value.resize(self.value_bytes, b'.');
        sent.push((key, self.version, Instant::now()));
        redis::cmd("SET").arg(name(key)).arg(value).query::<()>(&mut self.connection).is_ok()
    }

    /// Waits until a replica of each primary has what was sent before. Only then may it not be lost: replication is
    /// asynchronous.
    fn make_safe(&mut self, sent: &[(u64, u64, Instant)]) -> bool {
        let wait = redis::cmd("WAIT").arg(1).arg(100).to_owned();
        let least = Some(ResponsePolicy::Aggregate(AggregateOp::Min));
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, least));
        let replicas = self.connection.route_command(&wait, all).ok();
        let replicas = replicas.and_then(|value| redis::from_redis_value::<u64>(value).ok());
        if replicas.is_none_or(|n| n < 1) {
            return false;
        }
        let mut account = self.account.lock().unwrap();
        for &(key, version, at) in sent {
            account.get_mut(&key).unwrap().safe = Some((version, at));
        }
        true
    }
}

/// Keys that nobody deletes go by being evicted: on a primary by that event, on a replica by what it is told.
fn gone_keys(cluster: &Cluster) -> Vec<EvictedKeys> {
    let n_primaries = cluster.primaries().len();
    let events = |i: usize| if i < n_primaries { &["evicted"][..] } else { &["evicted", "del"] };
    cluster.nodes().iter().enumerate().map(|(i, node)| EvictedKeys::with_events(node, events(i))).collect()
}

fn is_ready(node: &Server) -> bool {
    status(&mut node.connection().unwrap())["eviction"] == "ready"
}

/// A share of the first primary's slots goes to the second, while all evict.
fn reshard(cluster: &Cluster, checker: &Checker) {
    let before = Instant::now();
    cluster.move_slots(0..300, 0, 1).unwrap_or_else(|why| panic!("{why:#}"));
    println!("300 slots moved in {:?}", before.elapsed());
    assert_eq!(cluster.owner_of(299).unwrap(), 1);
    checker.wait_for_rounds(20);
}

/// The first primary is killed; its replica serves, plans and evicts in its place.
fn fail_over(cluster: &mut Cluster, checker: &Checker) {
    checker.wait_for_rounds(1);
    cluster.miss_nodes_soon().unwrap();
    let before = Instant::now();
    cluster.node_mut(0).kill();
    let heir = cluster.replica_of(0);
    wait_for("the replica to take over", || heir.info("replication").unwrap()["role"] == "master");
    println!("took over in {:?}", before.elapsed());
    wait_for("the new primary to plan", || is_ready(heir));
    println!("had a plan after {:?}", before.elapsed());
    let evicted = info(heir, "evictions");
    // It has no replica of its own, so nothing is safe any more; what it is asked for shows all the same.
    wait_for("the new primary to evict", || info(heir, "evictions") > evicted + 20.0);
    println!("evicted after {:?}", before.elapsed());
    // A client that asks a node which hasn't heard of it goes to the dead one.
    cluster.wait_until_all_agree().unwrap();
}

fn check_under_load(binary: &ServerBinary, policy: &str) {
    let mut cluster = start(binary, evicting().set("tenure.policy", policy));
    limit_all(&cluster, 3 * MB);
    let gone = gone_keys(&cluster);
    fill(&cluster, 2500);
    // What is checked alone is more than there is room for.
    let checker = Checker::start(&cluster, 16_000, 1000);
    wait_for("all primaries to evict", || {
        cluster.primaries().iter().all(|node| info(node, "evictions") > 200.0) || checker.thread.is_finished()
    });
    assert!(cluster.primaries().iter().all(is_ready), "{policy} plans on every primary");
    reshard(&cluster, &checker);
    fail_over(&mut cluster, &checker);
    checker.finish(&cluster, &gone);
    for node in &cluster.nodes()[1..] {
        assert_eq!(info(node, "panics"), 0.0);
    }
    let (ours, theirs) = cluster.nodes()[1..]
        .iter()
        .fold((0.0, 0), |(ours, theirs), node| (ours + info(node, "evictions"), theirs + evicted_by_server(node)));
    println!("{ours} evictions by Tenure, {theirs} by the servers");
}

/// Filters see commands before the server finds out that a key is elsewhere; such a read is no hit.
#[test]
fn a_command_for_another_nodes_key_does_not_count() {
    for binary in oldest_and_newest() {
        let cluster = Cluster::start(&binary, &with_module(), 2, 0).unwrap_or_else(|why| panic!("{why:#}"));
        let (own, other) = (tag_of(&cluster, 0), tag_of(&cluster, 1));
        let node = &cluster.nodes()[0];
        let mut connection = node.connection().unwrap();
        wait_for("the node to know its slots", || {
            status(&mut connection)["cluster"].starts_with("primary of 8192 slots")
        });
        let before = partition(&mut connection, "db0");
        for _ in 0..10 {
            redis::cmd("GET").arg(&own).query::<Option<String>>(&mut connection).unwrap();
            let moved = redis::cmd("GET").arg(&other).query::<Option<String>>(&mut connection).unwrap_err();
            assert_eq!(moved.kind(), redis::ErrorKind::Server(redis::ServerErrorKind::Moved), "{moved}");
        }
        let after = partition(&mut connection, "db0");
        assert_eq!((after["reads"] - before["reads"], after["misses"] - before["misses"]), (10.0, 10.0));
        assert_eq!(info(node, "redirected_keys"), 10.0);
    }
}

/// All keys of one tenant are on the first node, by their tag; those of another everywhere.
#[test]
fn limits_of_the_cluster_are_split_by_keys() {
    let tenants = "\"tagged=t:*,max=900kb spread=s:*,min=600kb,max=900kb\"";
    let options = with_module().set("maxmemory-policy", "allkeys-lru").set("maxmemory", 64 * MB);
    let options = options.set("tenure.tenants", tenants).set("tenure.limits-scope", "cluster");
    for binary in oldest_and_newest() {
        let cluster = Cluster::start(&binary, &options, 3, 0).unwrap_or_else(|why| panic!("{why:#}"));
        let (tag, mut client) = (tag_of(&cluster, 0), client(&cluster));
        let limits = |tenant: &str, limit: &str| -> Vec<f64> {
            let of = |node: &Server| tenants_of(node)[tenant][limit];
            cluster.nodes().iter().map(of).collect()
        };
        wait_for("limits to be split by slots", || {
            limits("tagged", "bytes_max").iter().all(|bytes| (bytes / 307_200.0 - 1.0).abs() < 0.01)
        });
        let mut write_some = |n: u64| {
            for key in 0..n {
                redis::cmd("SET").arg(format!("t:{tag}:{key}")).arg(&[b'v'; 1000]).exec(&mut client).unwrap();
                redis::cmd("SET").arg(format!("s:{key}")).arg(&[b'v'; 1000]).exec(&mut client).unwrap();
            }
        };
        write_some(600);
        wait_for("the tagged tenant's limit to be where its keys are", || {
            let [first, second, third] = limits("tagged", "bytes_max")[..] else { panic!("three nodes") };
            (first, second, third) == (921_600.0, 0.0, 0.0)
        });
        wait_for("the other tenant's to be everywhere", || {
            let (least, most) = (limits("spread", "bytes_min"), limits("spread", "bytes_max"));
            let adds_up = |bytes: &[f64], sum: f64| (bytes.iter().sum::<f64>() / sum - 1.0).abs() < 0.02;
            most.iter().all(|bytes| (0.25..0.45).contains(&(bytes / 921_600.0)))
                && adds_up(&most, 921_600.0)
                && adds_up(&least, 614_400.0)
        });
        // More than is allowed: each node gives its own share, and together they keep about what the cluster allows.
        wait_for("the tenants to be held to their limits", || {
            write_some(1500);
            let used = ["tagged", "spread"].map(|tenant| limits(tenant, "used_bytes").iter().sum::<f64>());
            used.iter().all(|bytes| (0.75 * 921_600.0..1.2 * 921_600.0).contains(bytes))
        });
    }
}

fn tenants_of(node: &Server) -> HashMap<String, HashMap<String, f64>> {
    let rows: Vec<HashMap<String, String>> = node.call(&["TENURE.TENANTS"]).unwrap();
    let numbers = |row: &HashMap<String, String>| {
        row.iter().filter_map(|(name, value)| Some((name.clone(), value.parse().ok()?))).collect()
    };
    rows.iter().map(|row| (row["name"].clone(), numbers(row))).collect()
}

/// A cache-aside client of a primary's keys whose misses take so long.
fn reader(node: &Server, prefix: String, keys: u64, backend_takes: Duration) -> CacheAside {
    let prefix: &'static str = prefix.leak();
    CacheAside::new(node.connection().unwrap(), prefix, keys, 1000).with_backend(backend_takes)
}

/// A primary has learned that one class of keys is expensive and which keys are. Its replica, which saw writes alone,
/// goes on with that: the first plan after it took over is the primary's, before any window of its own has ended.
#[test]
fn a_replica_takes_over_with_classes_penalties_and_plan() {
    for (binary, policy) in oldest_and_newest().iter().zip(["predis", "kredis"]) {
        // A window of its own would take far longer than the test: what the heir knows it was told.
        let options = with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.policy", policy);
        let options = options.set("tenure.classes", "auto").set("tenure.class-limits", "15000");
        // A small table of keys, which is taught at once: one without a limit takes a minute.
        let options = options.set("maxmemory", "8mb");
        let mut cluster = start(binary, options);
        limit_all(&cluster, 4 * MB);
        let tag = tag_of(&cluster, 0);
        let mut cheap = reader(&cluster.nodes()[0], format!("c:{tag}:"), 3000, Duration::from_micros(100));
        let mut expensive = reader(&cluster.nodes()[0], format!("d:{tag}:"), 3000, Duration::from_millis(60));
        let (near, far) = ("db0/0-15000us", "db0/15000us+");
        let mut connection = cluster.nodes()[0].connection().unwrap();
        // The primary learns fast, and as much in a window however fast the machine is; its replica has windows as they
        // are by default.
        config_set(&mut connection, "tenure.window-requests", 4000);
        config_set(&mut connection, "tenure.window-seconds", 3600);
        wait_for("the dear class to have most of the memory", || {
            (0..10).for_each(|_| cheap.read_some(100));
            expensive.read_some(200);
            let rows = partitions(&mut connection);
            let target = |name: &str| rows.get(name).map_or(0.0, |row| row["target_bytes"]);
            target(far) > 1.5 * target(near) && target(near) >= 0.0 && rows[far]["used_bytes"] > 0.7 * target(far)
        });
        let heir = cluster.replica_of(0);
        let mut to_heir = heir.connection().unwrap();
        // Before its own windows could tell it anything: they end no more.
        config_set(&mut to_heir, "tenure.window-seconds", 3600);
        config_set(&mut to_heir, "tenure.window-requests", 1_000_000_000);
        wait_for("the replica to be taught", || {
            // What isn't asked for any more is forgotten, here as there.
            (0..10).for_each(|_| cheap.read_some(100));
            expensive.read_some(200);
            let (on_primary, rows) = (partitions(&mut connection), partitions(&mut to_heir));
            let is_known = |row: &Row| {
                row["target_bytes"] > 0.0
                    && row["penalty_us_mean"] > 20_000.0
                    && row["keys"] >= 0.9 * on_primary[far]["keys"]
            };
            status(&mut to_heir)["learned"] == "by its primary" && rows.get(far).is_some_and(is_known)
        });
        // Windows without requests change nothing, so that what the primary has after one of them it has for good. One
        // that began with requests may end after it was asked, on a slow machine a second one, too.
        config_set(&mut connection, "tenure.window-seconds", 1);
        let ended = info(&cluster.nodes()[0], "windows");
        wait_for("a window without requests", || info(&cluster.nodes()[0], "windows") >= ended + 3.0);
        wait_for("the last plan to be taught", || {
            let (on_primary, rows) = (partitions(&mut connection), partitions(&mut to_heir));
            let same = |name: &str, row: &Row| {
                ["k", "penalty_us_mean"].iter().all(|field| row[*field] == on_primary[name][*field])
            };
            [near, far].iter().all(|name| rows.get(*name).is_some_and(|row| same(name, row)))
        });
        let before = partitions(&mut connection);
        cluster.miss_nodes_soon().unwrap();
        cluster.node_mut(0).kill();
        let heir = cluster.replica_of(0);
        wait_for("the replica to take over", || heir.info("replication").unwrap()["role"] == "master");
        // It has more memory than the primary had, and may give the rest to anybody.
        wait_for("the heir to hold itself to the plan", || {
            let target = partitions(&mut to_heir)[far]["target_bytes"];
            status(&mut to_heir)["learned"] == "by its primary" && target >= 0.8 * before[far]["target_bytes"]
        });
        let after = partitions(&mut to_heir);
        [near, far].iter().for_each(|name| check_alike(&before[*name], &after[*name]));
        let cheap = reader(heir, format!("c:{tag}:"), 3000, Duration::from_micros(100));
        check_keeps(heir, cheap, far, &after[far]);
        assert_eq!(info(heir, "panics"), 0.0);
    }
}

/// While others are read, what is expensive stays as it was before: the server evicts by its plan, not by age alone.
#[track_caller]
fn check_keeps(server: &Server, mut others: CacheAside, expensive: &str, before: &Row) {
    wait_for("evictions", || {
        others.read_some(100);
        info(server, "evictions") > 300.0
    });
    let now = &partitions(&mut server.connection().unwrap())[expensive];
    assert!(now["used_bytes"] > 0.8 * before["used_bytes"], "{before:?}, now {now:?}");
}

/// A partition's plan and penalty on the heir are what they were on its primary.
#[track_caller]
fn check_alike(before: &Row, after: &Row) {
    assert!((after["penalty_us_mean"] / before["penalty_us_mean"] - 1.0).abs() < 0.5, "{before:?} {after:?}");
    assert_eq!(after["k"], before["k"], "{before:?} {after:?}");
}

/// The server goes on calling the receiver of messages after the module has gone.
#[test]
fn a_node_without_the_module_ignores_the_others_and_can_have_it_back() {
    let options = evicting().set("tenure.limits-scope", "cluster").set("tenure.tenants", "\"a=a:*,max=1mb\"");
    for binary in oldest_and_newest() {
        let cluster = Cluster::start(&binary, &options, 2, 1).unwrap_or_else(|why| panic!("{why:#}"));
        let messages = |node: &Server| {
            let text = node.cluster_info("cluster_stats_messages_module_received");
            text.map_or(0, |n| n.parse::<u64>().unwrap())
        };
        let module = module_path().unwrap().display().to_string();
        for node in [&cluster.nodes()[0], cluster.replica_of(0)] {
            let mut connection = node.connection().unwrap();
            for _ in 0..2 {
                send::<()>(&mut connection, "MODULE UNLOAD tenure");
                let before = messages(node);
                wait_for("messages to come all the same", || messages(node) > before);
                send::<()>(&mut connection, &format!("MODULE LOAD {module} limits-scope cluster"));
                let before = messages(node);
                wait_for("messages to come again", || messages(node) > before);
            }
            assert_eq!(info(node, "panics"), 0.0);
        }
    }
}

#[test]
fn slots_move_and_a_replica_takes_over_under_load() {
    // Each policy on one server: they differ in what is evicted, the servers in how.
    for (binary, policy) in oldest_and_newest().iter().zip(["predis", "kredis"]) {
        check_under_load(binary, policy);
    }
}

/// A command of Tenure's that names a key is for the key's node, as any other; and what a node only redirects counts
/// for nothing there, on a replica neither.
#[test]
fn commands_that_name_a_key_are_redirected_and_redirects_are_no_accesses() {
    for binary in oldest_and_newest() {
        let cluster = start(&binary, evicting().set("tenure.classes", "hinted").set("tenure.debug-commands", "yes"));
        let (own, other) = (tag_of(&cluster, 0), tag_of(&cluster, 1));
        let code_of = |connection: &mut redis::Connection, line: &str| match command(line).query::<Value>(connection) {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => error.code().unwrap_or_default().to_owned(),
        };
        let mut primary = cluster.nodes()[0].connection().unwrap();
        let replica = cluster.replica_of(0);
        let (mut client, mut reader) = (replica.connection().unwrap(), replica.connection().unwrap());
        send::<()>(&mut primary, &format!("SET a:{own} value"));
        for line in ["TENURE.WHY a:T", "TENURE.CLASS GET a:T", "TENURE.CLASS KEY a:T report", "TENURE.DEBUG TIER a:T"] {
            assert_eq!(code_of(&mut primary, &line.replace(":T", &format!(":{other}"))), "MOVED", "{line}");
            let of_replica = code_of(&mut client, &line.replace(":T", &format!(":{own}")));
            assert_eq!(of_replica, "MOVED", "{line}");
        }
        send::<()>(&mut primary, &format!("TENURE.CLASS KEY a:{own} report"));
        wait_for("the replica to have the key", || replica.call::<u64>(&["DBSIZE"]).unwrap() == 1);
        // Its role and slots are looked at about once a second.
        wait_for("the replica to know its role", || status(&mut reader)["cluster"] == "replica");
        let before = accesses_of_a(&mut reader);
        (0..50).for_each(|_| assert_eq!(code_of(&mut client, &format!("GET a:{own}")), "MOVED"));
        assert_eq!(accesses_of_a(&mut reader), before, "redirects are no accesses");
        // Redis 7.0 doesn't tell who sends a command, so that readers can't be told from others.
        if binary.label.starts_with("redis-7.0") {
            continue;
        }
        send::<()>(&mut reader, "READONLY");
        for _ in 0..50 {
            assert_eq!(code_of(&mut client, &format!("SET a:{own} value")), "MOVED");
            assert_eq!(code_of(&mut reader, &format!("GET a:{other}")), "MOVED");
        }
        assert_eq!(accesses_of_a(&mut reader), before, "redirects are no accesses");
        // It may have known its role before its primary's slots.
        wait_for("the replica to know its primary's slots", || {
            send::<String>(&mut reader, &format!("GET a:{own}"));
            accesses_of_a(&mut reader) != before
        });
        let before = accesses_of_a(&mut reader);
        (0..20).for_each(|_| assert_eq!(send::<String>(&mut reader, &format!("GET a:{own}")), "value"));
        assert_eq!(accesses_of_a(&mut reader), (before.0 + 20.0, before.1));
    }
}

/// Reads and writes of the tenant a, over its classes.
fn accesses_of_a(connection: &mut redis::Connection) -> (f64, f64) {
    let rows = partitions(connection);
    let sum = |field: &str| rows.iter().filter(|(name, _)| name.starts_with('a')).map(|(_, row)| row[field]).sum();
    (sum("reads"), sum("writes"))
}
