//! Isolation: a tenant with a guaranteed minimum beside one that scans and one with ten times its traffic, in one
//! database, has the hits that it has alone in that much memory; on a stock server it has not.

use redis::Connection;
use tenure_servers::{Server, ServerBinary, ServerOptions};

use crate::harness::{
    CacheAside, Random, add_user, config_set, evicted_by_server, limit_memory, login, oldest_and_newest_of, partitions,
    send, servers, start, status, that_know_clients, used_memory, wait_for, with_fine_clock, with_module,
};

const MB: u64 = 1 << 20;
/// What the tenant is guaranteed, and what all have together.
const MINIMUM: u64 = 4 * MB;
const MEMORY: u64 = 12 * MB;
/// The tenant's keys: more than twice what its minimum holds.
const KEPT_KEYS: u64 = 9000;
/// Reads of one round: the tenant's, its busy neighbour's, and its scanning neighbour's.
const KEPT_READS: usize = 20;
const BUSY_READS: usize = 10 * KEPT_READS;
const SCAN_READS: u64 = 100;
const BUSY_KEYS: u64 = 12_000;
const WARM_UP_ROUNDS: usize = 500;
const ROUNDS: usize = 1000;
/// So often at the most.
const STRETCHES: usize = 4;
/// A point of hit ratio.
const POINT: f64 = 0.01;
const USERS: [&str; 3] = ["kept", "busy", "scan"];

/// Reads some keys far more often than others: the key at a share x of all is asked for with a density of x^(-2/3).
struct Skewed {
    client: CacheAside,
    random: Random,
}

impl Skewed {
    fn new(connection: Connection) -> Skewed {
        Skewed { client: CacheAside::new(connection, "kept:", KEPT_KEYS, 1000), random: Random::new(11) }
    }

    fn read_some(&mut self, n: usize) {
        let keys: Vec<u64> = (0..n).map(|_| (KEPT_KEYS as f64 * self.random.share().powi(3)) as u64).collect();
        self.client.read(&keys);
    }

    /// Its hit ratio over so many rounds, `others` being what happens between them.
    fn measure(&mut self, rounds: usize, mut others: impl FnMut()) -> f64 {
        let before = (self.client.reads, self.client.misses);
        for _ in 0..rounds {
            self.read_some(KEPT_READS);
            others();
        }
        1.0 - (self.client.misses - before.1) as f64 / (self.client.reads - before.0) as f64
    }
}

fn stock(binary: &ServerBinary) -> Server {
    start(binary, &evicting(ServerOptions::default()))
}

fn evicting(options: ServerOptions) -> ServerOptions {
    with_fine_clock(options).set("maxmemory-policy", "allkeys-lru")
}

/// The tenant's neighbours.
struct Others {
    busy: CacheAside,
    scan: CacheAside,
    scanned: u64,
}

impl Others {
    fn new(busy: Connection, scan: Connection) -> Others {
        let busy = CacheAside::new(busy, "busy:", BUSY_KEYS, 1000);
        Others { busy, scan: CacheAside::new(scan, "scan:", 0, 1000), scanned: 0 }
    }

    fn read_some(&mut self) {
        self.busy.read_some(BUSY_READS);
        let next: Vec<u64> = (self.scanned..self.scanned + SCAN_READS).collect();
        self.scanned += SCAN_READS;
        self.scan.read(&next);
    }
}

/// The tenant's hit ratio alone on a stock server whose keys take the minimum, by `MEMORY USAGE`. Its neighbours are
/// busy elsewhere meanwhile, so that as much time goes by: ages are told in seconds.
fn alone(binary: &ServerBinary) -> f64 {
    let (server, elsewhere) = (stock(binary), stock(binary));
    let mut others = Others::new(elsewhere.connection().unwrap(), elsewhere.connection().unwrap());
    limit_memory(&elsewhere, MEMORY);
    let mut connection = server.connection().unwrap();
    let mut kept = Skewed::new(server.connection().unwrap());
    // What else the server holds comes and goes: the keys are counted some times, and the limit moves by what is
    // missing in the mean.
    let mut limit = used_memory(&server) + MINIMUM;
    limit_memory(&server, limit);
    wait_for("its keys to take the minimum", || {
        let taken: Vec<u64> = (0..20)
            .map(|_| {
                kept.read_some(500);
                let keys: u64 = send(&mut connection, "DBSIZE");
                let key: String = send(&mut connection, "RANDOMKEY");
                let each: Option<u64> = send(&mut connection, &format!("MEMORY USAGE {key}"));
                keys * each.unwrap_or(0)
            })
            .collect();
        let missing_bytes = MINIMUM as i64 - (taken.iter().sum::<u64>() / taken.len() as u64) as i64;
        let is_full = server.info("stats").unwrap()["evicted_keys"] != "0";
        if is_full && missing_bytes.abs() > 20_000 {
            limit = limit.saturating_add_signed(missing_bytes);
            config_set(&mut connection, "maxmemory", limit);
        }
        is_full && missing_bytes.abs() <= 20_000
    });
    kept.measure(WARM_UP_ROUNDS, || others.read_some());
    kept.measure(ROUNDS, || others.read_some())
}

/// The same beside its neighbours, measured anew until it is `enough`: while the machine is busy with something else
/// the server itself evicts, from everybody.
fn beside_others(server: &Server, enough: f64) -> f64 {
    USERS.iter().for_each(|name| add_user(server, name, "~*"));
    let mut kept = Skewed::new(login(server, "kept"));
    let mut others = Others::new(login(server, "busy"), login(server, "scan"));
    limit_memory(server, MEMORY);
    if server.info("modules").unwrap().values().any(|module| module.contains("tenure")) {
        wait_for("the minimum to be planned", || {
            kept.read_some(KEPT_READS);
            others.read_some();
            let mut connection = server.connection().unwrap();
            let row = partitions(&mut connection).remove("kept").unwrap();
            status(&mut connection)["eviction"] == "ready" && row["target_bytes"] >= MINIMUM as f64
        });
    }
    kept.measure(WARM_UP_ROUNDS, || others.read_some());
    let stretches = (0..STRETCHES).map(|_| kept.measure(ROUNDS, || others.read_some()));
    let mut most = 0.0;
    for ratio in stretches {
        most = f64::max(most, ratio);
        if most >= enough {
            break;
        }
    }
    most
}

#[test]
fn a_minimum_is_worth_that_much_memory_whatever_the_neighbours_do() {
    for binary in oldest_and_newest_of(that_know_clients(servers())) {
        println!("on {}", binary.label);
        let alone = alone(&binary);
        let on_stock = beside_others(&stock(&binary), 0.0);
        assert!(on_stock < alone - 10.0 * POINT, "stock keeps {on_stock} of {alone}: the neighbours do not matter");
        for policy in ["kredis", "predis"] {
            let tenants = format!("\"kept=user:kept,min={MINIMUM} busy=user:busy scan=user:scan\"");
            let options = with_module()
                .set("tenure.tenants", tenants)
                .set("tenure.policy", policy)
                // Time enough for a turn's evictions on a slow machine: the server itself spares nobody's minimum.
                .set("tenure.turn-budget-us", 5000)
                .set("tenure.window-requests", 20_000);
            let server = start(&binary, &evicting(options));
            let beside = beside_others(&server, alone - POINT);
            let rows = partitions(&mut server.connection().unwrap());
            let by_server = evicted_by_server(&server);
            assert!(
                beside >= alone - POINT,
                "{policy}: {beside} of {alone}, stock {on_stock}; {by_server} evicted by the server: {rows:?}"
            );
        }
    }
}
