//! What plans are to reach, and that they come to rest where the traffic does.

use tenure_servers::Server;

use crate::harness::{
    CacheAside, Random, config_set, evicting_in_time, limit_memory, oldest_and_newest, on_oldest_and_newest,
    partitions, start, status, wait_for,
};

const MB: u64 = 1 << 20;

/// A tenant of `prefix` with `keys` values of 1000 bytes, which take about 1100.
fn client(server: &Server, prefix: &'static str, keys: u64) -> CacheAside {
    CacheAside::new(server.connection().unwrap(), prefix, keys, 1000)
}

/// Two tenants that could each use all of the memory, one with a weight of a hundred: it gets nearly all for the
/// least penalty, and no more than leaves the other as well off as with a half where plans are to be fair.
#[test]
fn a_fair_plan_leaves_each_tenant_what_an_equal_part_is_worth() {
    let tenants = "\"loud=l:*,weight=100 quiet=q:*\"";
    let options = evicting_in_time().set("tenure.policy", "predis").set("tenure.tenants", tenants);
    on_oldest_and_newest(&options, |server| {
        let mut connection = server.connection().unwrap();
        limit_memory(server, 8 * MB);
        let (mut loud, mut quiet) = (client(server, "l:", 10_000), client(server, "q:", 10_000));
        let mut seen = String::new();
        let mut share_becomes = |what: &str, objective: &str, is_right: fn(f64) -> bool| {
            config_set(&mut connection, "tenure.objective", objective);
            let waited = tenure_servers::wait_for(crate::harness::DEADLINE, what, || {
                loud.read_some(200);
                quiet.read_some(200);
                let rows = partitions(&mut connection);
                seen = format!("{rows:?}");
                let share = |field: &str| rows["quiet"][field] / (rows["quiet"][field] + rows["loud"][field]);
                is_right(share("target_bytes")) && is_right(share("used_bytes"))
            });
            assert!(waited.is_ok(), "{waited:?}: {seen}");
        };
        share_becomes("the loud one to have most", "penalty", |quiet| quiet < 0.2);
        share_becomes("both to have a half", "fair", |quiet| (0.45..0.55).contains(&quiet));
        share_becomes("the loud one to have most again", "penalty", |quiet| quiet < 0.2);
    });
}

/// Reads of four tenants that stay what they are: popular keys more often than others, and more of one tenant than of
/// another.
struct Steady {
    clients: Vec<CacheAside>,
    random: Random,
}

impl Steady {
    fn new(server: &Server) -> Steady {
        let clients = ["a:", "b:", "c:", "d:"].map(|prefix| client(server, prefix, 4000).with_sizes());
        Steady { clients: clients.into(), random: Random::new(9) }
    }

    fn read_some(&mut self) {
        for (i, client) in self.clients.iter_mut().enumerate() {
            // The lower a key's number the more popular it is; of d there is one clear favourite part.
            let power = [1.5, 2.0, 3.0, 6.0][i];
            let key = |random: &mut Random| (random.share().powf(power) * 4000.0) as u64;
            let keys: Vec<u64> = (0..50 * (i + 1)).map(|_| key(&mut self.random)).collect();
            client.read(&keys);
        }
    }
}

/// Under steady traffic targets and K come to rest: from window to window less than 4 % of the memory changes hands
/// on average (5 to 10 % where nothing holds it), and K changes in few. A single window whose sample is odd may move a
/// tenth, so there are many.
#[test]
fn targets_and_k_settle_while_the_traffic_stays_as_it_is() {
    let binaries = oldest_and_newest();
    // The worker plans, and knows no server.
    for (policy, binary) in ["predis", "kredis"].into_iter().zip(binaries.iter().cycle()) {
        let tenants = "\"a=a:* b=b:* c=c:* d=d:*\"";
        let options = evicting_in_time().set("tenure.policy", policy).set("tenure.tenants", tenants);
        // Windows of so many requests, however busy the machine is.
        let options = options.set("tenure.window-requests", 10_000).set("tenure.window-seconds", 60);
        // And of as many samples: by itself their rate follows how many requests come in a second.
        let options = options.set("tenure.sample-percent", 100);
        // What a busy machine measures as penalty is not steady.
        let options = options.set("tenure.objective", "hits");
        println!("on {}", binary.label);
        let server = start(binary, &options);
        let mut connection = server.connection().unwrap();
        limit_memory(&server, 10 * MB);
        let mut steady = Steady::new(&server);
        let mut windows = Windows::default();
        let mut watch = |n: usize| {
            wait_for("windows to end", || {
                steady.read_some();
                let now: u64 = status(&mut connection)["windows"].parse().unwrap();
                if now != windows.last {
                    windows.last = now;
                    windows.seen.push(look(&mut connection));
                }
                windows.seen.len() >= n
            });
            std::mem::take(&mut windows.seen)
        };
        // What is known of popularity grows for a while.
        watch(8);
        let seen = watch(75);
        let moved: Vec<f64> = seen.windows(2).map(|pair| moved(&pair[0].targets, &pair[1].targets)).collect();
        let mean = moved.iter().sum::<f64>() / moved.len() as f64;
        println!("{policy}: {mean:.4} of the memory moved from window to window");
        assert!(mean < 0.04, "{policy}: of the memory {moved:?} moved from window to window");
        let changed: usize = seen.windows(2).map(|pair| changed(&pair[0].k, &pair[1].k)).sum();
        let all = seen.len() * seen[0].k.len();
        assert!(changed * 10 <= all, "{policy}: K changed {changed} times of {all}: {seen:?}");
    }
}

#[derive(Default)]
struct Windows {
    last: u64,
    seen: Vec<Window>,
}

/// What a window decided.
#[derive(Debug)]
struct Window {
    targets: Vec<f64>,
    k: Vec<f64>,
}

fn look(connection: &mut redis::Connection) -> Window {
    let rows = partitions(connection);
    let column = |name: &str| rows.values().map(|row| row[name]).collect();
    Window { targets: column("target_bytes"), k: column("k") }
}

/// The share of the memory that has another owner.
fn moved(before: &[f64], after: &[f64]) -> f64 {
    let changes: f64 = before.iter().zip(after).map(|(before, after)| (after - before).abs()).sum();
    changes / 2.0 / after.iter().sum::<f64>()
}

fn changed(before: &[f64], after: &[f64]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}
