//! The sampling size K, chosen by what the traffic is like: by partition with its target (kredis).

use tenure_servers::{Server, ServerOptions};

use crate::harness::{
    CacheAside, Random, config_set, evicted_by_server, info, limit_memory, on_oldest_and_newest, partition, partitions,
    status, wait_for, with_module,
};

const MB: u64 = 1 << 20;

fn evicting() -> ServerOptions {
    // Time enough for a turn's evictions on a slow machine: this is about which keys go.
    with_module().set("maxmemory-policy", "allkeys-lru").set("tenure.turn-budget-us", 5000)
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

/// Reads among `width` keys that drift: what was used last is used next.
struct Drift {
    client: CacheAside,
    random: Random,
    width: u64,
    at: u64,
}

impl Drift {
    fn new(server: &Server, prefix: &'static str, width: u64) -> Drift {
        Drift { client: client(server, prefix), random: Random::new(3), width, at: 0 }
    }

    fn read_some(&mut self, n: u64) {
        let keys: Vec<u64> = (0..n).map(|i| (self.at + i) / 4 + self.random.below(self.width)).collect();
        self.at += n;
        self.client.read(&keys);
    }
}

/// One tenant loops over more keys than fit, the other drifts: the first wants a random victim, the second the oldest.
#[test]
fn each_tenant_is_evicted_under_its_own_k() {
    let options =
        evicting().set("tenure.policy", "kredis").set("tenure.tenants", "\"loop=l:*,min=3mb drift=d:*,min=3mb\"");
    on_oldest_and_newest(&options.set("tenure.window-requests", 20_000), |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 8 * MB);
        let (mut looping, mut drifting) = (Loop::new(server, "l:", 6000), Drift::new(server, "d:", 6000));
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
        // A loop of which half fits, evicted at random, hits what random eviction hits, and LRU never would.
        let before = (looping.client.reads, looping.client.misses);
        let evictions = |server: &Server| (info(server, "evictions"), evicted_by_server(server) as f64);
        let (ours, theirs) = evictions(server);
        for _ in 0..150 {
            looping.read_some(200);
            drifting.read_some(200);
        }
        let ratio = (looping.client.misses - before.1) as f64 / (looping.client.reads - before.0) as f64;
        assert!(ratio < 0.9, "{ratio}: {seen}");
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
