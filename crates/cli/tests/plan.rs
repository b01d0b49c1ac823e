//! `tenure plan` and `tenure status` from outside: of a trace, and of a cluster with the module on every node.

mod support;

use redis::cluster::ClusterClient;
use serde_json::Value;
use support::{a_loop, check_failure, file, json, json_of_input, tenure};
use tenure_servers::{Cluster, DEADLINE, Server, ServerBinary, ServerOptions, module_path, wait_for};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Keys 0 to 9 round and round: random eviction of half of them keeps some, all of them fit in 1000 bytes.
#[test]
fn a_traces_tenant_takes_what_its_loop_takes() {
    let folder = tempfile::tempdir().unwrap();
    let trace = file(folder.path(), "loop.csv", &a_loop());
    let path = trace.to_str().unwrap();
    let plan = json("plan", &[path, "--miss-ratio", "0.02", "--rate", "1"]);
    assert_eq!((number(&plan["present_bytes"]), plan["tenant"].as_str()), (1000.0, Some("")));
    assert!((900.0..=1000.0).contains(&number(&plan["needed_bytes"])), "{plan}");
    assert!((number(&plan["miss_ratio_min"]) - 0.01).abs() < 1e-6, "only first accesses miss: {plan}");
    let rows = plan["rows"].as_array().unwrap();
    assert!(rows.windows(2).all(|pair| number(&pair[0]["miss_ratio"]) >= number(&pair[1]["miss_ratio"])), "{plan}");
    let of_input = json_of_input("plan", &["--miss-ratio", "0.02", "--rate", "1"], &a_loop());
    assert_eq!(of_input["needed_bytes"], plan["needed_bytes"]);
    let unreachable = json("plan", &[path, "--miss-ratio", "0.001", "--rate", "1"]);
    assert!(unreachable["needed_bytes"].is_null(), "{unreachable}");
}

#[test]
fn wrong_words_are_answered_with_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let two = "time_s,key,op,size,tenant\n0,a,get,1,x\n0,b,get,1,y\n";
    let trace = file(folder.path(), "two.csv", two);
    let path = trace.to_str().unwrap();
    check_failure("plan", &[path, "--miss-ratio", "0.1"], 1, "--tenant is needed; there are: 'x', 'y'");
    check_failure("plan", &[path, "--tenant", "z"], 1, "no tenant 'z'");
    check_failure("plan", &[path, "--miss-ratio", "2"], 2, "allowed is 0 to 1");
    check_failure("plan", &["/no/such/file"], 1, "HOST:PORT");
    check_failure("status", &["127.0.0.1"], 1, "HOST:PORT");
    check_failure("status", &["127.0.0.1:1"], 1, "127.0.0.1:1");
}

/// A loop over 1500 keys of 1000 bytes on three nodes: it takes about 1.6 MB in all for every read to hit.
#[test]
fn a_cluster_is_summed_up() {
    let Ok(module) = module_path() else {
        println!("SKIPPED: a_cluster_is_summed_up: libtenure.so is not built");
        return;
    };
    let options = ServerOptions::default().with_module(module).set("maxmemory-policy", "allkeys-lru");
    let options = options.set("maxmemory", 64 << 20).set("tenure.tenants", "\"shop=s:* rest=r:*\"");
    let options = options.set("tenure.window-requests", 1000).set("tenure.window-seconds", 1);
    let cluster = Cluster::start(&ServerBinary::installed().unwrap(), &options, 3, 1).unwrap();
    let any = format!("127.0.0.1:{}", cluster.replica_of(1).port());
    check_failure("plan", &[&any, "--tenant", "nobody"], 1, "'rest', 'shop'");

    let mut connection = ClusterClient::new(cluster.addresses()).unwrap().get_connection().unwrap();
    let mut reads = 0;
    let mut read_all = || {
        for key in 0..1500 {
            let name = format!("s:{key}");
            let found: Option<Vec<u8>> = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
            if found.is_none() {
                redis::cmd("SET").arg(&name).arg(&[b'v'; 1000]).exec(&mut connection).unwrap();
            }
            reads += 1;
        }
        reads
    };
    let mut plan = Value::Null;
    let known = wait_for(DEADLINE, "each node's curve to have seen the whole loop come round", || {
        read_all();
        let output = support::tenure("plan", &[&any, "--tenant", "shop", "--miss-ratio", "0.5", "--json"]);
        plan = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let needed = plan["needed_bytes"].as_f64().is_some_and(|bytes| (0.5e6..2.5e6).contains(&bytes));
        needed && plan["nodes"].as_array().is_some_and(|nodes| nodes.len() == 3)
    });
    known.unwrap_or_else(|why| panic!("{why}: {plan}"));
    let needed = number(&plan["needed_bytes"]);
    let by_node: f64 = plan["nodes"].as_array().unwrap().iter().map(|node| number(&node["needed_bytes"])).sum();
    assert!((by_node / needed - 1.0).abs() < 0.01, "{plan}");

    let reads = read_all();
    let status = json("status", &[&any]);
    let tenant =
        |name: &str| status["tenants"].as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 3);
    // The server is asked about its slots once a second: until then nothing is known to be its own.
    let (counted, misses) = (number(&tenant("shop")["reads"]), number(&tenant("shop")["misses"]));
    assert!(counted >= 0.9 * f64::from(reads) && counted <= f64::from(reads), "{counted} of {reads}");
    assert!(misses <= 1500.0 && (number(&tenant("shop")["keys"]) - 1500.0).abs() <= 15.0, "{status}");
    assert_eq!(number(&tenant("rest")["reads"]), 0.0);
    let text = String::from_utf8(support::tenure("status", &[&any]).stdout).unwrap();
    assert!(text.contains("shop") && text.contains(&cluster.nodes()[2].port().to_string()), "{text}");
}

/// Two tenants that read twice as much evenly as fits: what other limits would do, what it takes, and which is the
/// cheapest.
#[test]
fn a_full_server_is_sized_and_priced() {
    let Ok(module) = module_path() else {
        println!("SKIPPED: a_full_server_is_sized_and_priced: libtenure.so is not built");
        return;
    };
    let options = ServerOptions::default().with_module(module).set("maxmemory-policy", "allkeys-lru");
    let options = options.set("maxmemory", 24 << 20).set("tenure.tenants", "\"shop=s:* rest=r:*\"");
    let options = options.set("tenure.window-requests", 2000).set("tenure.window-seconds", 1);
    let server = Server::start(&ServerBinary::installed().unwrap(), &options).unwrap();
    let address = format!("127.0.0.1:{}", server.port());
    check_failure("plan", &[&address, "--lost-share", "0.5"], 1, "nothing is known of other sizes yet");
    check_failure("plan", &[&address, "--time-price", "1"], 2, "--memory-price");

    let mut connection = server.connection().unwrap();
    let (mut state, value) = (1_u64, vec![b'v'; 1000]);
    let mut read_some = || {
        let keys: Vec<String> = (0..200)
            .map(|i| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                format!("{}:{}", ["s", "r"][i % 2], (state >> 33) % 16_000)
            })
            .collect();
        let found: Vec<Option<Vec<u8>>> = redis::cmd("MGET").arg(&keys).query(&mut connection).unwrap();
        let mut fill = redis::pipe();
        for (key, _) in keys.iter().zip(found).filter(|(_, found)| found.is_none()) {
            fill.cmd("SET").arg(key).arg(&value).ignore();
        }
        fill.exec(&mut connection).unwrap();
    };
    let asked = [&address[..], "--miss-ratio", "0.3", "--memory-price", "8", "--miss-price", "0.000001", "--json"];
    let mut plan = Value::Null;
    let known = wait_for(DEADLINE, "other sizes to be known", || {
        (0..50).for_each(|_| read_some());
        plan = serde_json::from_slice(&tenure("plan", &asked).stdout).unwrap_or_default();
        // Once it has settled: half of the memory misses more, and twice as much next to nothing.
        let ratio = |i: usize| plan["maxmemory"]["sizes"][i]["miss_ratio"].as_f64().unwrap_or(f64::NAN);
        ratio(1) > ratio(3) + 0.1 && ratio(6) < 0.1
    });
    known.unwrap_or_else(|why| panic!("{why}: {plan}"));
    let plan = &plan["maxmemory"];
    let sizes = plan["sizes"].as_array().unwrap();
    assert_eq!((sizes.len(), number(&sizes[3]["maxmemory_bytes"])), (8, f64::from(24 << 20)));
    let needed = number(&plan["needed_bytes"]);
    assert!((10e6..60e6).contains(&needed), "{plan}");
    let tenants: Vec<&str> =
        sizes[0]["tenants"].as_array().unwrap().iter().filter_map(|t| t["tenant"].as_str()).collect();
    assert_eq!(tenants, ["shop", "rest", "other"]);
    assert!(number(&plan["next"]["saves"]["miss_ratio"]) > 0.1, "{plan}");
    let (present, cheapest) = (number(&sizes[3]["cost"]["per_month"]), number(&plan["cheapest"]["per_month"]));
    assert!(cheapest <= present, "{plan}");
    let text = String::from_utf8(tenure("plan", &asked[..asked.len() - 1]).stdout).unwrap();
    for part in ["a miss ratio of 0.3 takes", "the next 64 MiB would save", "could be given back", "the cheapest is"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let of_one = json("plan", &[&address, "--tenant", "shop", "--miss-ratio", "0.3"]);
    assert!(of_one["needed_bytes"].is_number() && of_one["maxmemory"]["needed_bytes"].is_number(), "{of_one}");
}
