//! The sampling size K, chosen by what the traffic is like: by partition with its target (kredis), or for the whole
//! cache, and the server's own eviction with it (dlru).

use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    CacheAside, config_get, config_set, evicted_by_server, evicting_in_time, info, limit_memory, on_oldest_and_newest,
    partition, partitions, send, status, wait_for, with_fine_clock,
};

const MB: u64 = 1 << 20;

fn evicting() -> ServerOptions {
    with_fine_clock(evicting_in_time())
}

/// A reader of values of 1000 bytes, which take about 1100.
fn client(server: &Server, prefix: &'static str) -> CacheAside {
    CacheAside::new(server.connection().unwrap(), prefix, 1, 1000)
}

/// Reads key after key, round and round.
struct Loop {
    client: CacheAside,
    keys: u64,
    at: u64,
}

impl Loop {
    fn new(server: &Server, prefix: &'static str, keys: u64) -> Loop {
        Loop { client: client(server, prefix), keys, at: 0 }
    }

    fn read_some(&mut self, n: u64) {
        let keys: Vec<u64> = (0..n).map(|i| (self.at + i) % self.keys).collect();
        self.at += n;
        self.client.read(&keys);
    }
}

/// Reads each key `times` times, once whenever `apart` others have come: what was used longest ago isn't used again.
/// Where some more than `apart * times` keys fit, each K misses far less than a smaller one does.
struct Drift {
    client: CacheAside,
    apart: u64,
    times: u64,
    at: u64,
}

impl Drift {
    fn new(server: &Server, prefix: &'static str, apart: u64, times: u64) -> Drift {
        Drift { client: client(server, prefix), apart, times, at: 0 }
    }

    fn read_some(&mut self, n: u64) {
        let key = |i: u64| i / self.times + self.apart * (self.times - 1 - i % self.times);
        let keys: Vec<u64> = (0..n).map(|i| key(self.at + i)).collect();
        self.at += n;
        self.client.read(&keys);
    }
}

/// One tenant loops over more keys than fit, the other drifts: the first wants a random victim, the second the oldest.
#[test]
fn each_tenant_is_evicted_under_its_own_k() {
    const LOOP: u64 = 8000;
    let options =
        evicting().set("tenure.policy", "kredis").set("tenure.tenants", "\"loop=l:*,min=3mb drift=d:*,min=3mb\"");
    // Windows of so many requests on a slow machine too.
    let options = options.set("tenure.window-requests", 20_000).set("tenure.window-seconds", 60);
    // What a busy machine measures as penalty is not steady, and a plan that moves would change what fits while
    // misses are counted.
    let options = options.set("tenure.objective", "hits");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 12 * MB);
        let (mut looping, mut drifting) = (Loop::new(server, "l:", LOOP), Drift::new(server, "d:", 600, 4));
        let mut seen = String::new();
        let is_settled = || {
            looping.read_some(200);
            drifting.read_some(200);
            let rows = partitions(&mut connection);
            let (l, d) = (&rows["loop"], &rows["drift"]);
            let sum = l["used_bytes"] + d["used_bytes"];
            let is_held = [l, d].iter().all(|row| (row["used_bytes"] - row["target_bytes"]).abs() / sum < 0.05);
            seen = format!("{rows:?}");
            is_held && l["evictions"] > 2000.0 && d["evictions"] > 2000.0 && l["k"] < 5.0 && d["k"] >= 8.0
        };
        let waited = tenure_servers::wait_for(crate::harness::DEADLINE, "the K to part", is_settled);
        assert!(waited.is_ok(), "{waited:?}: {seen}");
        let k = status(&mut connection)["k"].clone();
        assert!(k.starts_with("1 ") && k.split(' ').any(|k| k == "8" || k == "16"), "{k}");
        let evictions = |server: &Server| (info(server, "evictions"), evicted_by_server(server) as f64);
        let (ours, theirs) = evictions(server);
        // A loop of which a part fits hits what random eviction hits, and LRU never would. A plan that moves
        // meanwhile changes the part.
        wait_for("the loop to miss as at random", || {
            let before = (looping.client.reads, looping.client.misses);
            for _ in 0..150 {
                looping.read_some(200);
                drifting.read_some(200);
            }
            let ratio = (looping.client.misses - before.1) as f64 / (looping.client.reads - before.0) as f64;
            // Random eviction: a key is missed where one of the m N evictions of a round took it, of C keys.
            let fits = partition(&mut connection, "loop")["keys"] / LOOP as f64;
            let random = (0..100).fold(1.0, |m: f64, _| 1.0 - (-m / fits).exp());
            (ratio - random).abs() < 0.1 && ratio < 0.99
        });
        let (ours, theirs) = (evictions(server).0 - ours, evictions(server).1 - theirs);
        assert!(ours > 9.0 * theirs, "{ours} by Tenure, {theirs} by the server");
        // Another policy has models of its own, and one K.
        config_set(&mut connection, "tenure.policy", "predis");
        wait_for("one K", || status(&mut connection)["k"] == "5");
        wait_for("a plan of the other models", || {
            drifting.read_some(200);
            status(&mut connection)["eviction"] == "ready" && partition(&mut connection, "loop")["target_bytes"] > 0.0
        });
    });
}

/// A loop over more than fits, then keys that drift: K changes over, and the server's own sampling size with it,
/// until it is asked to be as it was. The server evicts.
#[test]
fn the_whole_cache_gets_the_k_of_its_traffic_and_the_server_follows() {
    follows_the_traffic("server", |ours, theirs| assert!(ours == 0.0 && theirs > 5000.0, "{ours}, {theirs}"));
}

/// The same where Tenure evicts.
#[test]
fn tenure_can_evict_under_dlru() {
    follows_the_traffic("tenure", |ours, theirs| assert!(ours > 9.0 * theirs && ours > 5000.0, "{ours}, {theirs}"));
}

/// `check` is told how many keys Tenure and the server have evicted.
fn follows_the_traffic(evictor: &str, check: impl Fn(f64, f64)) {
    let options =
        evicting().set("maxmemory-samples", 7).set("tenure.policy", "dlru").set("tenure.dlru-evictor", evictor);
    on_oldest_and_newest(&options.set("tenure.window-requests", 10_000), |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 8 * MB);
        let (mut looping, mut drifting) = (Loop::new(server, "l:", 8000), Drift::new(server, "d:", 1600, 4));
        assert_eq!(config_get(&mut connection, "maxmemory-samples"), "7", "nothing was chosen yet");
        let mut seen = String::new();
        let loop_k = tenure_servers::wait_for(crate::harness::DEADLINE, "a loop's K", || {
            looping.read_some(500);
            let status = status(&mut connection);
            seen = format!("{status:?}");
            status["k"] == "1" && config_get(&mut connection, "maxmemory-samples") == "1"
        });
        assert!(loop_k.is_ok(), "{loop_k:?}: {seen}");
        assert!(status(&mut connection)["miss_ratio_by_k"].starts_with("1=0."));
        wait_for("a drift's K", || {
            drifting.read_some(500);
            let k = status(&mut connection)["k"].parse::<u32>().unwrap();
            k >= 10 && config_get(&mut connection, "maxmemory-samples") == k.to_string()
        });
        check(info(server, "evictions"), evicted_by_server(server) as f64);
        // Windows in which K was chosen have been predicted.
        assert!(info(server, "predicted_windows") > 0.0 && info(server, "miss_ratio_error_mean") < 0.5);
        // It comes back with another policy, when Tenure is turned off, and when it is unloaded.
        config_set(&mut connection, "tenure.policy", "lru");
        wait_for("the former value", || config_get(&mut connection, "maxmemory-samples") == "7");
        let mut follows_again = |drifting: &mut Drift| {
            config_set(&mut connection, "tenure.policy", "dlru");
            config_set(&mut connection, "tenure.enabled", "yes");
            wait_for("a K again", || {
                drifting.read_some(500);
                config_get(&mut connection, "maxmemory-samples") != "7"
            });
        };
        follows_again(&mut drifting);
        let mut other = server.connection().unwrap();
        config_set(&mut other, "tenure.enabled", "no");
        wait_for("the former value", || config_get(&mut other, "maxmemory-samples") == "7");
        follows_again(&mut drifting);
        send::<()>(&mut other, "MODULE UNLOAD tenure");
        assert_eq!(config_get(&mut other, "maxmemory-samples"), "7");
    });
}

/// The server evicts as LRU alone: under another policy of its own, and from tenants above their maximum, Tenure does.
#[test]
fn under_dlru_tenure_evicts_what_the_server_would_not() {
    let options = evicting().set("tenure.policy", "dlru").set("tenure.tenants", "\"loop=l:*,max=2mb\"");
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 8 * MB);
        let mut looping = Loop::new(server, "l:", 4000);
        looping.read_some(4000);
        wait_for("the maximum to hold", || partition(&mut connection, "loop")["used_bytes"] < 2.1 * MB as f64);
        assert_eq!(evicted_by_server(server), 0);
        assert!(status(&mut connection)["eviction"].starts_with("left to the server"));
        config_set(&mut connection, "maxmemory-policy", "allkeys-random");
        wait_for("Tenure's turn", || status(&mut connection)["eviction"] == "ready");
        config_set(&mut connection, "maxmemory-policy", "volatile-lru");
        wait_for("the server's turn", || status(&mut connection)["eviction"].starts_with("left to the server"));
    });
}

/// Who sets the server's sampling size by hand while it follows has the last word.
#[test]
fn a_sampling_size_set_by_hand_is_not_put_back() {
    on_oldest_and_newest(&evicting().set("tenure.policy", "dlru").set("tenure.window-requests", 10_000), |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 8 * MB);
        let mut looping = Loop::new(server, "l:", 8000);
        wait_for("a loop's K", || {
            looping.read_some(500);
            config_get(&mut connection, "maxmemory-samples") == "1"
        });
        config_set(&mut connection, "maxmemory-samples", 9);
        config_set(&mut connection, "tenure.policy", "predis");
        wait_for("the other policy", || status(&mut connection)["k"] == "5");
        assert_eq!(config_get(&mut connection, "maxmemory-samples"), "9");
    });
}
